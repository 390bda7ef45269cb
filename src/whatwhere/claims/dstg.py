"""Claims of DSTG about position tables, hidden states, losses and attention heads.

The paper's "relative" is the term `relative`, its AP `absolute`, its semantic information `semantic`.
"""

import numpy as np

from ..papers import DSTG_R2, DSTG_TABLES
from ..records.gates import CONTENT, LABELLED, NOTHING, PRESENT, READ, USED, insufficient_gain
from ..records.metric import UNIT
from ..records.table import Margin, Point, largest, portion, rank_correlations, smallest
from .claim import HARDLY, KEPT, LOST, MARGINAL, MOST, OURS, SENTENCE, SOME, Measured, claim, of_losses
from .evidence import Evidence, Missing

ABOUT_90 = 0.85  # "about 90 %": what rounds to it in tens
MATCHED = 2.0  # "matched": standard deviations at most this many times apart
COMPARABLE = 0.1  # R² apart at most: "comparable"
PURELY = 0.75  # "purely": at least this share of the divergence
CLEAR = 0.75  # AP- or semantic-oriented: at least this share of what the two terms make
GROUP = 0.1  # of the heads, from which there is a group
AFFECTED = 1 / 3  # "strongly affected" by one of three terms: at least an even share of the divergence
RETRIEVES = 0.1  # attention to the other copy that makes a retrieval head (Wu et al. 2024, whom DSTG follows)
SEVERAL = "several"  # label of a head in which no term has half
SEMANTIC_HEADS = 9  # in the paper's model
ALL_HEADS = 36
_TABLE_2, _TABLE_3, _TABLE_4 = (f"DSTG section 5.{i}, Table {i + 1}" for i in (1, 2, 3))
BASELINES = ("ap", "rp", "rope")
FOUR = ("dstg", "ap", "rp", "rope")


# Positions and segments in hidden states: Tables 2 and 3.


def _least(e: Evidence, target: str) -> float:
    """Return the R² from which a target is present: half of the R² of position alone in these texts
    (`r2.TARGET.ceiling`), where known; of the token's place, which position alone gives, it is not measured."""
    if target == "token":
        return PRESENT
    ceiling = e.table.point(f"r2.{target}.ceiling")
    if ceiling is None:
        return PRESENT
    e.read |= dict.fromkeys(e.table.rows(f"r2.{target}.ceiling"))
    e.note = f"position alone reaches {ceiling.value:.2f}"
    return LOST * ceiling.value


def _hardly(e: Evidence, target: str, least: float, *parts: tuple[str, str]) -> Measured:
    """Compare the largest peak of some parts of models with models that have positions in their input: ap, or dstg's
    position stream, whichever has more at its best layer, at the seeds that all of them have.

    The claim is not testable where neither is in the run and has learned, or neither has `least`. parts: (model, part).
    """
    trained = e if e.step is None else Evidence(e.table, e.models)  # rivals are trained beside untrained models, too
    metric = f"r2.{target}"
    rivals = [
        (model, part)
        for model, part in (("ap", "all"), ("dstg", "position"))
        if e.table.rows(metric, model, part=part, step=None) and not insufficient_gain(e.table, model, trained.seeds)
    ]
    for model, part in rivals:
        for side in (e, trained):
            side.share_seeds(metric, model, part)
    peak = largest([e.peak(model, target, part) for model, part in parts])
    if not rivals:
        raise Missing("needs ap or dstg, trained, in the study, to see what can be read at all")
    best = largest([trained.peak(model, target, part) for model, part in rivals])
    return peak <= HARDLY * e.require(best, least, f"R² ({target}) in ap or in dstg's position stream")


def _retention_of(e: Evidence, target: str) -> Measured:
    early, late = (e.r2("dstg", target, "position", layer) for layer in (1, e.late()))
    least = _least(e, target)
    e.require(early, least, f"R² ({target}) after the first block of dstg's position stream")
    worth, writes = e.used(target, e.late())
    return late >= KEPT * early, worth >= USED, writes >= least


def _present(e: Evidence, target: str) -> float:
    """Return the R² that a part must have before a claim says that it carries or loses a target.

    It is half of the R² of position alone, which is 1 for the token's place.
    """
    return READ if target == "token" else _least(e, target)


def _carried(e: Evidence, target: str) -> Margin:
    """Compare ap after its last block but one with its best layer up to there, the input, where it is probed, among
    them."""
    late = e.late("ap")
    first = 0 if e.rows(f"r2.{target}", "ap", part="all", layer=0) else 1
    best = largest([e.r2("ap", target, "all", layer) for layer in range(first, late + 1)])
    e.require(best, _present(e, target), f"R² ({target}) at the best layer of ap before its last block")
    return e.r2("ap", target, "all", late) >= KEPT * best


def _lost(e: Evidence, target: str, model: str = "ap", part: str = "all") -> Margin:
    """Compare R² after the last block with R² after the block before."""
    before, after = (e.r2(model, target, part, layer) for layer in (e.late(model), e.last(model)))
    e.require(before, _present(e, target), f"R² ({target}) after the last block but one of {model}")
    return after <= LOST * before


@claim(_TABLE_2, "dstg", paper=DSTG_R2["r2.token", "dstg", "position", 5])
def dstg_position_kept(e: Evidence) -> Measured:
    """The position stream keeps position through the layers.
    R² (token) of the position stream after the last block but one is at least {KEPT} of that after the first, which is
    at least {PRESENT}, else there is nothing to keep. Kept means used: without the absolute term the loss rises by at
    least {USED} nats in every seed, and R² (token) of what the last block but one writes into the stream, apart from
    what the residual path carries past it, is at least {PRESENT}."""
    return _retention_of(e, "token")


@claim(f"{_TABLE_2}; section 5.3, finding 2", "ap", paper=DSTG_R2["r2.token", "ap", "all", 5])
def ap_keeps_position(e: Evidence) -> Measured:
    """Entangled position stays until the last block.
    R² (token) of ap after the last block but one is at least {KEPT} of that at the best layer up to there, the input
    among them, which is at least {READ}, else there is nothing to keep."""
    return _carried(e, "token")


@claim("DSTG section 5.1, Table 2 (the text has 0.34)", "ap", paper=DSTG_R2["r2.token", "ap", "all", 6])
def ap_loses_position(e: Evidence) -> Measured:
    """Entangled position is lost in the last block.
    R² (token) of ap after the last block is at most {LOST} of R² after the block before, which is at least {READ},
    else there is nothing to lose."""
    return _lost(e, "token")


@claim(_TABLE_2, "rope", paper=DSTG_R2["r2.token", "rope", "all", 3])
def rope_no_position(e: Evidence) -> Measured:
    """RoPE hardly encodes absolute position.
    R² (token) at the best layer is at most {HARDLY} of R² in ap or in dstg's position stream, whichever has more,
    which is at least {READ}, else not testable."""
    return _hardly(e, "token", READ, ("rope", "all"))


@claim(_TABLE_2, "rp", paper=DSTG_R2["r2.token", "rp", "all", 2])
def rp_no_position(e: Evidence) -> Measured:
    """Relative bias hardly encodes absolute position.
    R² (token) at the best layer is at most {HARDLY} of R² in ap or in dstg's position stream, whichever has more,
    which is at least {READ}, else not testable."""
    return _hardly(e, "token", READ, ("rp", "all"))


@claim(_TABLE_2, "dstg", paper=DSTG_R2["r2.token", "dstg", "semantic", 1])
def semantic_stream_little_position(e: Evidence) -> Measured:
    """The semantic stream holds little position.
    R² (token) of the semantic stream at its best layer is at most {HARDLY} of R² in the position stream, or in ap if
    that has more; it is at least {READ}, else not testable."""
    return _hardly(e, "token", READ, ("dstg", "semantic"))


# Position tables: section 4 (1).


@claim("DSTG section 4 (1)", "dstg", "ap", paper=DSTG_TABLES["pca.top2", "dstg", None])
def dstg_2d_collapse(e: Evidence) -> Measured:
    """The separate position table collapses to two dimensions.
    Two components hold at least {MOST} of the variance of dstg's table, and more than of ap's; both stand above their
    noise."""
    e.moved("dstg", "ap")
    dstg = e.value("pca.top2", "dstg")
    ap = e.value("pca.top2", "ap")
    return dstg >= MOST, dstg >= ap


@claim("DSTG section 4 (1)", "dstg", paper=DSTG_TABLES["dct.low4", "dstg", 0])
def dstg_low_frequency(e: Evidence) -> Measured:
    """Two components of the separate table are slow waves.
    Each of the first two components of dstg's table, which stands above its noise, has at least {MOST} of its power in
    the first four DCT bins; the lower is shown."""
    e.moved()
    return smallest([e.value("dct.low4", index=i) for i in (0, 1)]) >= MOST


@claim("DSTG section 4 (1) (the power is not printed)", "dstg")
def dstg_third_component_fast(e: Evidence) -> Measured:
    """The separate table's third component is a fast wave.
    The third component of dstg's table, which stands above its noise, has at most {LOST} of its power in the first four
    DCT bins, and less than each of the first two, which have at least as much, else not testable."""
    e.moved()
    *slow, low = (e.value("dct.low4", index=i) for i in range(3))
    e.require(smallest(slow), LOST, "a share of slow waves in both of the first two components")
    return low <= LOST, low <= smallest(slow)


@claim("DSTG section 4 (1)", "ap", paper=DSTG_TABLES["pca.top2", "ap", None])
def ap_table_high_dimensional(e: Evidence) -> Measured:
    """The entangled position table needs many dimensions.
    Two components hold at most {LOST} of the variance of ap's table, which stands above its noise."""
    e.moved()
    return e.value("pca.top2") <= LOST


@claim("DSTG section 4 (1) (paper: under 0.002)", "ap", paper=DSTG_TABLES["dct.low4", "ap", 0])
def ap_high_frequency(e: Evidence) -> Measured:
    """The entangled position table varies fast.
    Each of the first two components of ap's table, which stands above its noise, has at most {LOST} of its power in the
    first four DCT bins; the higher is shown."""
    e.moved()
    return largest([e.value("dct.low4", index=i) for i in (0, 1)]) <= LOST


# Segments: Tables 3 and 4.


@claim(_TABLE_3, "dstg", paper=DSTG_R2["r2.segment", "dstg", "position", 5])
def segment_follows_position(e: Evidence) -> Measured:
    """The position stream keeps the segment index.
    R² (segment) of the position stream after the last block but one is at least {KEPT} of that after the first, which
    is at least {LOST} of what position alone explains in these texts, else there is nothing to keep; no stream that
    holds positions alone can reach more than that. Kept means used: without the absolute term the loss rises by at
    least {USED} nats in every seed, and what the last block but one writes into the stream has at least {LOST} of the
    same."""
    return _retention_of(e, "segment")


@claim("DSTG abstract, section 4 (2): captures the structure of the document (no number printed)", "dstg")
def dstg_structure_beyond_position(e: Evidence) -> Measured:
    """The position stream captures the structure of documents.
    R² (segment) of the position stream after the last block but one is above what position alone explains in these
    texts; how far above is shown. A stream that counts tokens and knows no segment reaches that at most."""
    ceiling = e.table.point("r2.segment.ceiling")
    if ceiling is None:
        raise Missing("no r2.segment.ceiling, what position alone explains in these texts")
    e.read |= dict.fromkeys(e.table.rows("r2.segment.ceiling"))
    late = e.r2("dstg", "segment", "position", e.late())
    return late - ceiling, late >= ceiling


@claim(f"{_TABLE_3}; section 5.3, finding 2", "ap", paper=DSTG_R2["r2.segment", "ap", "all", 5])
def ap_keeps_segments(e: Evidence) -> Measured:
    """Entangled segments stay until the last block.
    R² (segment) of ap after the last block but one is at least {KEPT} of that at the best layer up to there, the input
    among them, which is at least {LOST} of what position alone explains in these texts, else there is nothing to
    keep."""
    return _carried(e, "segment")


@claim(_TABLE_3, "ap", paper=DSTG_R2["r2.segment", "ap", "all", 6])
def ap_loses_segments(e: Evidence) -> Measured:
    """Entangled segments are lost in the last block.
    R² (segment) of ap after the last block is at most {LOST} of R² after the block before, which is at least {LOST}
    of what position alone explains in these texts, else there is nothing to lose."""
    return _lost(e, "segment")


@claim(_TABLE_3, "rope", "rp", paper=DSTG_R2["r2.segment", "rp", "all", 2])
def relative_little_segment(e: Evidence) -> Measured:
    """Relative encodings hardly encode the segment index.
    R² (segment) of rope and of rp at their best layers is at most {HARDLY} of R² in ap or in dstg's position stream,
    whichever has more, which is at least {LOST} of what position alone explains in these texts, else not testable. The
    higher of the two is shown."""
    return _hardly(e, "segment", _least(e, "segment"), *((model, "all") for model in e.models))


@claim(
    _TABLE_4,
    "dstg",
    paper=round(DSTG_R2["r2.intra", "dstg", "semantic", 5] - DSTG_R2["r2.intra", "dstg", "position", 5], 2),
)
def intra_in_semantics(e: Evidence) -> Measured:
    """Progress inside a segment lives in the semantics.
    R² (intra) after the last block but one: semantic less position stream is at least {PRESENT}, position stream at
    most {PRESENT}; either has at least {PRESENT}, else not testable."""
    semantic, position = (e.r2("dstg", "intra", part, e.late()) for part in ("semantic", "position"))
    e.require(largest([semantic, position]), PRESENT, "R² (intra) in a stream of dstg")
    return semantic - position, semantic - position >= PRESENT, position <= PRESENT


@claim(_TABLE_4, *FOUR, paper=DSTG_R2["r2.intra", "rp", "all", 2])
def intra_in_all_models(e: Evidence) -> Measured:
    """All four models encode progress inside a segment.
    R² (intra) at the best layer is at least {LOST} in dstg, ap, rp and rope; the lowest is shown. One of them at least
    has {LOST}, else not testable."""
    peaks = [e.peak(model, "intra") for model in FOUR]
    e.require(largest(peaks), LOST, "R² (intra) in one of the four models")
    return smallest(peaks) >= LOST


@claim(_TABLE_4, *FOUR, paper=round(DSTG_R2["r2.intra", "dstg", "all", 3] - DSTG_R2["r2.intra", "rope", "all", 3], 2))
def intra_better_with_absolute(e: Evidence) -> Measured:
    """Absolute position helps to know progress inside segments.
    R² (intra) at the best layer: the lower of ap and dstg is not below the higher of rope and rp; the gap is shown. One
    of them has at least {LOST}, else not testable."""
    absolute, relative = ([e.peak(model, "intra") for model in pair] for pair in (("ap", "dstg"), ("rope", "rp")))
    e.require(largest([*absolute, *relative]), LOST, "R² (intra) in one of the four models")
    return smallest(absolute) - largest(relative) >= 0


# Hidden states: section 4 (2).


def _of_blocks(e: Evidence, metric: str) -> dict[int, Point]:
    """Return a metric of the position stream after every block that trains it."""
    late = e.late()
    return {layer: v for layer, v in e.along("layer", metric, "position").items() if 1 <= layer <= late}


@claim("DSTG section 4 (2), figure 4", "dstg", paper=0.9)
def dstg_hidden_two_dimensional(e: Evidence) -> Measured:
    """Position states stay in two dimensions in every layer.
    Two components hold at least {ABOUT_90} (what rounds to the paper's 90 %) of the variance of the position stream
    within a document, from the first block to the last but one; the least is shown."""
    return smallest(_of_blocks(e, "hidden.top2").values()) >= ABOUT_90


@claim("DSTG section 4 (2), figure 4 (no number printed)", "dstg")
def dstg_sentences_separate(e: Evidence) -> Measured:
    """Sentences move apart in the deeper position states.
    Log of the separation of sentences in the position stream over the separation of cuts of the same lengths, in random
    order: larger after the last block but one than after the first, there above 0, and more so than in the untrained
    model; the growth is shown."""
    (first, late), (start, end) = (
        [of.value("sentences.excess", layer=layer, part="position") for layer in (1, e.late())]
        for of in (e, e.untrained())
    )
    growth = late - first
    before = end - start
    e.note = f"untrained {before.value:.3g}"
    return growth >= 0, late >= 0, growth >= before


@claim("DSTG section 4 (2), figure 4 (without this control)", "dstg", origin=OURS)
def dstg_sentences_beyond_contiguity(e: Evidence) -> Measured:
    """Sentences separate more than random contiguous stretches.
    After every block up to the last but one the same logarithm is above 0, and above the untrained model's, whose
    words alone make some; the smallest gain over it is shown."""
    layers = _of_blocks(e, "sentences.excess")
    start = e.untrained()
    gains = (v - start.value("sentences.excess", layer=at, part="position") for at, v in layers.items())
    gain = smallest(gains)
    least = smallest(layers.values())
    e.note = f"the least itself {least.value:.3g}"
    return gain >= 0, least >= 0


# Knowledge of the streams in other models, and the cost of the streams.


def _regression(e: Evidence, model: str, stream: str) -> Point:
    """Return the best R² of predicting a stream of dstg, over the layers whose position stream is trained."""
    layers = range(1, e.late("dstg") + 1)
    return largest([e.value(f"regression.{stream}", model, part="dstg", layer=layer) for layer in layers])


@claim("DSTG appendix B.2, figure 8 (no number printed)", *BASELINES, "dstg")
def only_ap_predicts_position(e: Evidence) -> Measured:
    """Only entangled position predicts the position stream.
    R² of predicting dstg's position stream from another model's states, at the best layer: at least {LOST} from ap, at
    most {LOST} from rp and rope; the gap is shown. The stream itself holds position (R² of {PRESENT} after the last
    block but one), else not testable."""
    in_stream = e.r2("dstg", "token", "position", e.late("dstg"))
    e.require(in_stream, PRESENT, "R² (token) in dstg's position stream")
    ap = _regression(e, "ap", "position")
    others = largest([_regression(e, m, "position") for m in ("rope", "rp")])
    return ap - others, ap >= LOST, others <= LOST


@claim("DSTG appendix B.2, figure 8 (no number printed)", *BASELINES, "dstg")
def baselines_predict_semantics_alike(e: Evidence) -> Measured:
    """All three baselines predict the semantic stream alike.
    R² of predicting dstg's semantic stream at the best layer differs by at most {COMPARABLE} between ap, rp and rope;
    one of them has at least {PRESENT}, else not testable."""
    shares = [_regression(e, model, "semantic") for model in BASELINES]
    e.require(largest(shares), PRESENT, "R² of the regression from one of the three")
    return largest(shares) - smallest(shares) <= COMPARABLE


@of_losses("DSTG section 3.4, Table 1 (said of GLUE, MTEB and SQuAD, not of the loss)", *FOUR, origin=OURS)
def dstg_costs_no_loss(e: Evidence) -> Measured:
    """Separating the streams costs no MLM loss.
    Held-out MLM loss of dstg is at most {MARGINAL} nats above the lowest of ap, rp and rope; the gap is shown."""
    return e.loss("dstg") - smallest([e.loss(model) for model in BASELINES]) <= MARGINAL


@claim("DSTG appendix B.2, figure 7 (no number printed)", "dstg-full-mlm", "dstg")
def dstg_full_mlm_loses_position(e: Evidence) -> Measured:
    """A head on both streams makes position fade.
    R² (token) of the position stream of dstg-full-mlm after the last block is at most {LOST} of R² after the block
    before, which is at least {READ}, else there is nothing to lose; and below R² in dstg after its last block but
    one."""
    lost = _lost(e, "token", "dstg-full-mlm", "position")
    return lost, lost.compared <= e.r2("dstg", "token", "position", e.late("dstg"))


@claim(
    "DSTG section 3.1: dot-product variances are matched (no number printed)",
    "dstg",
    always="it is read before the first step: weights of one spread make it the ratio of the widths",
)
def dstg_scores_matched(e: Evidence) -> Measured:
    """One head width matches position and content scores.
    Before the first step the standard deviation of dstg's absolute scores is between 1/{MATCHED:g} and {MATCHED:g}
    times its semantic scores' in every block; the smallest ratio is shown."""
    layers = e.along("layer", "scores.std", "absolute")
    absolute, semantic = (
        [e.value("scores.std", layer=layer, part=part, step=0) for layer in layers] for part in ("absolute", "semantic")
    )
    ratios = [a / s for a, s in zip(absolute, semantic, strict=True)]
    return smallest(ratios) >= 1 / MATCHED, largest(ratios) <= MATCHED


# Attention heads: section 4 (3).


def _content(e: Evidence) -> None:
    """Refuse a model that does not attend by content yet: its heads have nothing to specialise in."""
    e.require(e.value("ablation.remove", part="semantic"), CONTENT, "a rise of the loss without attention by content")


def _heads(e: Evidence, metric: str, part: str | None = None) -> list[Point]:
    _content(e)
    return e.heads(metric, part)


def _shares(e: Evidence, term: str) -> np.ndarray:
    """Return a term's share of the divergence of every head, (heads, seeds), nan where there is hardly any."""
    _content(e)
    return e.at_labelled(f"kl.share.{term}")


def _of_labelled(e: Evidence, chosen: np.ndarray) -> Point:
    """Return for each seed the share of labelled heads that are chosen (heads, seeds); refuses a model with few such
    heads.

    A labelled head has a term that is worth something in that head alone.
    """
    labelled = np.isin(e.labelled(), (NOTHING, SEVERAL), invert=True)
    what = f"a share of the heads of {e.model} of which one term is worth anything alone"
    e.require(Point.between(float(labelled.mean())), LABELLED, what)
    return Point.of(((chosen & labelled).sum(axis=0) / np.maximum(labelled.sum(axis=0), 1))[:, None], span=UNIT)


def _at_least(points: list[Point], threshold: float) -> np.ndarray:
    """Return the points that reach a threshold, (heads, seeds) bool."""
    return np.array([p.seed_values >= threshold for p in points])


@claim("DSTG section 4 (3), figure 2", "dstg", paper=(ALL_HEADS - SEMANTIC_HEADS) / ALL_HEADS)
def dstg_most_heads_absolute(e: Evidence) -> Measured:
    """Most heads are strongly affected by absolute position.
    In at least {LOST} of the labelled heads the absolute term has at least an even share, a third, of the divergence
    that leaving out one term makes. A head is labelled by the term with at least half, and only where the loss rises
    without that term in that head alone; not testable where fewer than {LABELLED} of the heads are."""
    return _of_labelled(e, _shares(e, "absolute") >= AFFECTED) >= LOST


@claim("DSTG section 4 (3), figure 2: no purely RP-oriented heads", "dstg", paper=0.0, origin=SENTENCE)
def dstg_no_relative_heads(e: Evidence) -> Measured:
    """No head lives by relative position alone.
    Share of the labelled heads in which the relative term makes at least {PURELY} of the divergence is at most {SOME},
    less than one head; not testable where fewer than {LABELLED} of the heads are labelled."""
    return _of_labelled(e, _shares(e, "relative") >= PURELY) <= SOME


@claim("DSTG section 4 (3): 9 of 36 heads", "dstg", paper=SEMANTIC_HEADS / ALL_HEADS)
def dstg_few_semantic_heads(e: Evidence) -> Measured:
    """A minority of the heads specialises in semantics.
    Share of the labelled heads that are labelled semantic is at most an even share of three terms, a third, and at
    least {GROUP}, from which there is a group; not testable where fewer than {LABELLED} of the heads are labelled."""
    _content(e)
    share = _of_labelled(e, e.labelled() == "semantic")
    return share <= AFFECTED, share >= GROUP


@claim("DSTG section 4 (3): almost exclusively AP-driven or semantic-driven (no number printed)", "dstg")
def dstg_heads_cluster(e: Evidence) -> Measured:
    """Heads are either absolute or semantic, hardly mixed.
    In at least {MOST} of the labelled heads one of the semantic and the absolute term makes at least {CLEAR} of the
    divergence of the two, and each of the two does in at least {GROUP} of them; the share of such heads is shown. Not
    testable where fewer than {LABELLED} of the heads are labelled."""
    both = list(zip(_heads(e, "kl.semantic"), _heads(e, "kl.absolute"), strict=True))
    semantic = _at_least([portion(s, a) for s, a in both], CLEAR)
    absolute = _at_least([portion(a, s) for s, a in both], CLEAR)
    groups = [_of_labelled(e, chosen) for chosen in (semantic, absolute)]
    clear = _of_labelled(e, semantic | absolute)
    e.note = f"{groups[0].value:.0%} of them semantic, {groups[1].value:.0%} absolute".replace("%", " %")
    return clear >= MOST, *(group >= GROUP for group in groups)


@claim("DSTG section 4 (3), figure 2 (no number printed)", "dstg")
def dstg_relative_supports_semantics(e: Evidence) -> Measured:
    """Relative position supports the semantic heads.
    Spearman's correlation over heads of the relative term's divergence with the semantic term's, in nats, is above 0,
    and above that with the absolute term's; with one seed both intervals are bootstraps over heads, with several
    Student's between seeds. Shares of it would correlate because they sum to one."""
    semantic, gap = rank_correlations(*(_heads(e, f"kl.{term}") for term in ("relative", "semantic", "absolute")))
    return semantic >= 0, gap >= 0


@claim("DSTG section 4 (3): complementary information (no number printed)", "dstg", unit="nats")
def dstg_relative_least_needed(e: Evidence) -> Measured:
    """Relative position is the least needed of three.
    Leaving out the relative term in all heads raises the held-out MLM loss less than leaving out either other; its rise
    is shown."""
    semantic, absolute, relative = (
        e.value("ablation.remove", part=term) for term in ("semantic", "absolute", "relative")
    )
    return relative <= semantic, relative <= absolute


@claim('DSTG section 4 (3): "a localized support mechanism" (no number printed)', "dstg", unit="tokens")
def dstg_relative_looks_near(e: Evidence) -> Measured:
    """The relative term looks over the shortest distances.
    Mean distance over which attention by the relative term alone looks, mean over all heads, is below the distance by
    the semantic term alone, by the absolute term alone, and by equal attention; the first is shown."""
    relative, semantic, absolute = (e.value("reach.mean", part=term) for term in ("relative", "semantic", "absolute"))
    return relative <= semantic, relative <= absolute, relative <= e.value("reach.even")


@claim("DSTG section 4 (3), figure 3: heads 3 and 6 of the last layer (no number printed)", "dstg")
def dstg_retrieval_heads(e: Evidence) -> Measured:
    """Semantic attention of some heads finds repeated text.
    In one head at least, semantic attention to the other copy of a token in A+B+A text is at least {RETRIEVES} above
    that to the same place in A+B+C text; the largest is shown."""
    return largest(_heads(e, "attention.retrieval", "semantic")) >= RETRIEVES  # another head in every training


@claim("DSTG section 4 (3), figure 3, third row (no number printed)", "dstg")
def dstg_relative_not_self(e: Evidence) -> Measured:
    """Relative bias keeps retrieval heads from self-attention.
    In the heads whose semantic term retrieves (at least {RETRIEVES}), attention of a token to itself under the relative
    term alone is on average at most {LOST} of uniform attention's; the heads are chosen in each training."""
    retrieval = _heads(e, "attention.retrieval", "semantic")
    itself = _heads(e, "attention.self", "relative")
    chosen = np.array([v.at[:, 0] >= RETRIEVES for v in retrieval])  # (heads, seeds)
    seeds = np.flatnonzero(chosen.any(axis=0))
    if not len(seeds):
        most = f"the largest attention.retrieval of the semantic term is {max(v.at.max() for v in retrieval):.2f}"
        raise Missing(f"needs a retrieval head: {most}, below {RETRIEVES}")
    sides = np.array([(v.at[:, 0], v.below, v.above) for v in itself])[..., seeds]  # (heads, 3, seeds that have any)
    at, below, above = sides.mean(axis=0, where=chosen[:, None, seeds])
    uniform = 1 / e.value("probe.length").value
    lacking = len(e.seeds) - len(seeds)
    without = f", none in {lacking} of {len(e.seeds)} seeds" if lacking else ""
    e.note = f"{chosen.sum()} retrieval heads{without}, uniform attention {uniform:.4f}"
    return Point(at[:, None], below, above, span=itself[0].span) <= LOST * uniform
