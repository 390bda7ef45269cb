"""Claims of DSTG about position tables, hidden states and losses; those about attention heads are in `dstg_heads`."""

from collections.abc import Callable

from ...report.paper import TABLE_VALUES, paper_values
from .evidence import Evidence, Missing
from .ledger import KEPT, LOST, MARGINAL, MOST, PRESENT, Claim, Measured
from .values import largest, smallest

MOVED = 1.5  # a table has left its random start once two components hold this many times the share they held there
TEXT, TABLE = 0.34, 0.24  # R² (token) of ap after the last block, in the text of 5.1 and in Table 2
ABOUT_90 = 0.85  # "about 90 %": what rounds to it in tens
MATCHED = 2.0  # "matched": standard deviations at most this many times apart
COMPARABLE = 0.1  # R² apart at most: "comparable"

_PAPER = paper_values()
_RELATIVE, _BASELINES, _FOUR = ("rope", "rp"), ("ap", "rp", "rope"), ("dstg", "ap", "rp", "rope")

Measure = Callable[[Evidence], Measured]


def _kept(target: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        early, late = e.r2("dstg", target, "position", 1), e.r2("dstg", target, "position", e.late("dstg"))
        return Measured(late, [late - KEPT * early, late - PRESENT])

    return measure


def _kept_rule(target: str) -> str:
    return (
        f"R² ({target}) of the position stream after the last block but one is at least {KEPT} of that after the first, "
        f"and at least {PRESENT}. An untrained model that carries its table along may meet this too: its value is in the scale"
    )


def _at_most(model: str, part: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        peak = e.peak(model, "token", part)
        return Measured(peak, [LOST - peak])

    return measure


def _loses(model: str, target: str, part: str = "all") -> Measure:
    def measure(e: Evidence) -> Measured:
        peak, last = e.peak(model, target, part), e.r2(model, target, part, e.last(model))
        return Measured(last, [LOST * peak - last, peak - PRESENT])

    return measure


def _as_the_text_has_it(e: Evidence) -> Measured:
    last, half = e.r2("ap", "token", "all", e.last("ap")), (TEXT - TABLE) / 2
    return Measured(last, [last - (TEXT - half), TEXT + half - last])


def _relative_segments(e: Evidence) -> Measured:
    peak = largest([e.peak(m, "segment", "all") for m in _RELATIVE])
    return Measured(peak, [LOST - peak])


def _intra_everywhere(e: Evidence) -> Measured:
    lowest = smallest([e.peak(m, "intra", "all") for m in _FOUR])
    return Measured(lowest, [lowest - LOST])


def _intra_order(e: Evidence) -> Measured:
    gap = smallest([e.peak(m, "intra", "all") for m in ("ap", "dstg")]) - largest([e.peak(m, "intra", "all") for m in _RELATIVE])
    return Measured(gap, [gap])


def moved(e: Evidence, model: str) -> None:
    """Refuse to judge a table that has not left its random start, whose many dimensions and fast changes it would show."""
    before, after = e.value("pca.top2", model, step=0), e.value("pca.top2", model)
    if not (after.at >= MOVED * before.at).all():
        shares = f"two components of {model}'s hold {after.at.max():.2f}, {before.at.max():.2f} before the first step"
        raise Missing(f"needs a trained table: {shares}")


def _two_dimensional(e: Evidence) -> Measured:
    dstg, ap = e.value("pca.top2", "dstg"), e.value("pca.top2", "ap")
    return Measured(dstg, [dstg - MOST, dstg - ap])


def _low_frequency(e: Evidence) -> Measured:
    lower = smallest([e.value("dct.low4", "dstg", index=i) for i in (0, 1)])
    return Measured(lower, [lower - MOST])


def _third_is_fast(e: Evidence) -> Measured:
    moved(e, "dstg")
    low = e.value("dct.low4", "dstg", index=2)
    return Measured(low, [LOST - low])


def _ap_high_dimensional(e: Evidence) -> Measured:
    moved(e, "ap")
    share = e.value("pca.top2", "ap")
    return Measured(share, [LOST - share])


def _ap_high_frequency(e: Evidence) -> Measured:
    moved(e, "ap")
    higher = largest([e.value("dct.low4", "ap", index=i) for i in (0, 1)])
    return Measured(higher, [LOST - higher])


def _scores_matched(e: Evidence) -> Measured:
    ratios = [
        e.value("scores.std", layer=layer, part="absolute", step=0) / e.value("scores.std", layer=layer, part="semantic", step=0)
        for layer in e.layers("scores.std", "absolute")
    ]
    lowest = smallest(ratios)
    return Measured(lowest, [lowest - 1 / MATCHED, MATCHED - largest(ratios)])


def _intra_in_semantics(e: Evidence) -> Measured:
    layer = e.late("dstg")
    semantic, position = (e.r2("dstg", "intra", part, layer) for part in ("semantic", "position"))
    return Measured(semantic - position, [semantic - position - PRESENT, PRESENT - position])


def _states_two_dimensional(e: Evidence) -> Measured:
    late = e.late("dstg")
    least = smallest([v for layer, v in e.layers("hidden.top2", "position").items() if 1 <= layer <= late])
    return Measured(least, [least - ABOUT_90])


def _separate_more(e: Evidence) -> Measured:
    trained, start = (
        [of.value("sentences.excess", layer=layer, part="position") for layer in (1, e.late("dstg"))] for of in (e, e.untrained())
    )
    growth, before = (late - first for first, late in (trained, start))
    return Measured(growth, [growth, trained[1], growth - before], f"untrained {before.mean:.3g}")


def _beyond_contiguity(e: Evidence) -> Measured:
    late = e.late("dstg")
    layers = {layer: v for layer, v in e.layers("sentences.excess", "position").items() if 1 <= layer <= late}
    start = {layer: e.untrained().value("sentences.excess", layer=layer, part="position") for layer in layers}
    least, gain = smallest(list(layers.values())), smallest([v - start[layer] for layer, v in layers.items()])
    return Measured(gain, [gain, least], f"the least itself {least.mean:.3g}")


def _full_mlm_loses(e: Evidence) -> Measured:
    full = "dstg-full-mlm"
    peak, last = e.peak(full, "token", "position"), e.r2(full, "token", "position", e.last(full))
    return Measured(last, [LOST * peak - last, e.r2("dstg", "token", "position", e.late("dstg")) - last])


def _predicts_position(e: Evidence) -> Measured:
    ap, others = _regression(e, "ap", "position"), largest([_regression(e, m, "position") for m in _RELATIVE])
    return Measured(ap - others, [ap - LOST, LOST - others])


def _predict_semantics(e: Evidence) -> Measured:
    found = [_regression(e, m, "semantic") for m in _BASELINES]
    apart = largest(found) - smallest(found)
    return Measured(apart, [COMPARABLE - apart])


def _regression(e: Evidence, model: str, stream: str):  # type: ignore[no-untyped-def]
    """Best R² over the layers whose position stream is trained of predicting a stream of dstg."""
    return largest([e.splits(f"regression.{stream}", model, "dstg", layer) for layer in range(1, e.late("dstg") + 1)])


def _costs_nothing(e: Evidence) -> Measured:
    gap = e.loss("dstg") - smallest([e.loss(m) for m in _BASELINES])
    return Measured(gap, [MARGINAL - gap])


POSITION_KEPT = Claim(
    "dstg-position-kept",
    "The position stream keeps position through the layers",
    "DSTG section 5.1, Table 2",
    _PAPER["r2.token", "dstg", "position", 5],
    _kept_rule("token"),
    ("dstg",),
    _kept("token"),
)
AP_LOSES = Claim(
    "ap-loses-position",
    "Entangled absolute position is lost by the end",
    "DSTG section 5.1, Table 2 (the text has 0.34)",
    _PAPER["r2.token", "ap", "all", 6],
    f"R² (token) after the last block is at most {LOST} of that at the best layer, which is at least {PRESENT}",
    ("ap",),
    _loses("ap", "token"),
)
ROPE_LITTLE = Claim(
    "rope-no-position",
    "RoPE hardly encodes absolute position",
    "DSTG section 5.1, Table 2",
    _PAPER["r2.token", "rope", "all", 3],
    f"R² (token) at the best layer is at most {LOST}",
    ("rope",),
    _at_most("rope", "all"),
)
TWO_DIMENSIONS = Claim(
    "dstg-2d-collapse",
    "The separate position table collapses to two dimensions",
    "DSTG section 4 (1)",
    TABLE_VALUES["pca.top2", "dstg", None],
    f"Two components hold at least {MOST} of the variance of dstg's table, and more than of ap's",
    ("dstg", "ap"),
    _two_dimensional,
)
FULL_MLM_LOSES = Claim(
    "dstg-full-mlm-loses-position",
    "A head on both streams makes position fade",
    "DSTG appendix B.2, figure 7 (no number printed)",
    None,
    f"R² (token) of the position stream of dstg-full-mlm after the last block is at most {LOST} of that at its best layer, and below that "
    "of dstg after its last block but one",
    ("dstg-full-mlm", "dstg"),
    _full_mlm_loses,
)

OTHERS = (
    Claim(
        "rp-no-position",
        "Relative bias hardly encodes absolute position",
        "DSTG section 5.1, Table 2",
        _PAPER["r2.token", "rp", "all", 2],
        f"R² (token) at the best layer is at most {LOST}",
        ("rp",),
        _at_most("rp", "all"),
    ),
    Claim(
        "semantic-stream-little-position",
        "The semantic stream holds little position",
        "DSTG section 5.1, Table 2",
        _PAPER["r2.token", "dstg", "semantic", 1],
        f"R² (token) of the semantic stream at its best layer is at most {LOST}",
        ("dstg",),
        _at_most("dstg", "semantic"),
    ),
    Claim(
        "dstg-low-frequency",
        "Its two components are slow waves",
        "DSTG section 4 (1)",
        TABLE_VALUES["dct.low4", "dstg", 0],
        f"Each of the first two components of dstg's table has at least {MOST} of its power in the first four DCT bins; the lower is shown",
        ("dstg",),
        _low_frequency,
    ),
    Claim(
        "dstg-third-component-fast",
        "Its third component is a fast wave",
        "DSTG section 4 (1) (the power is not printed)",
        None,
        f"The third component of dstg's table, which has left its random start, has at most {LOST} of its power in the first four DCT bins",
        ("dstg",),
        _third_is_fast,
    ),
    Claim(
        "ap-table-high-dimensional",
        "The entangled position table needs many dimensions",
        "DSTG section 4 (1)",
        TABLE_VALUES["pca.top2", "ap", None],
        f"Two components hold at most {LOST} of the variance of ap's table, and at least {MOVED} times what they held before training",
        ("ap",),
        _ap_high_dimensional,
    ),
    Claim(
        "ap-high-frequency",
        "The entangled position table varies fast",
        "DSTG section 4 (1) (paper: under 0.002)",
        TABLE_VALUES["dct.low4", "ap", 0],
        f"Each of the first two components of ap's table, which has left its random start, has at most {LOST} of its power in the first "
        "four DCT bins; the higher is shown",
        ("ap",),
        _ap_high_frequency,
    ),
    Claim(
        "segment-follows-position",
        "The position stream keeps the segment index",
        "DSTG section 5.2, Table 3",
        _PAPER["r2.segment", "dstg", "position", 5],
        f"{_kept_rule('segment')}; position alone explains much of the segment index, so this is no proof of segments as such",
        ("dstg",),
        _kept("segment"),
    ),
    Claim(
        "ap-loses-segments",
        "Entangled position loses the segment index too",
        "DSTG section 5.2, Table 3",
        _PAPER["r2.segment", "ap", "all", 6],
        f"R² (segment) after the last block is at most {LOST} of that at the best layer, which is at least {PRESENT}",
        ("ap",),
        _loses("ap", "segment"),
    ),
    Claim(
        "relative-little-segment",
        "Relative encodings hardly encode the segment index",
        "DSTG section 5.2, Table 3",
        _PAPER["r2.segment", "rp", "all", 2],
        f"R² (segment) of rope and of rp at their best layers is at most {LOST}; the higher is shown",
        _RELATIVE,
        _relative_segments,
    ),
    Claim(
        "intra-in-semantics",
        "Progress inside a segment lives in the semantics",
        "DSTG section 5.3, Table 4",
        round(_PAPER["r2.intra", "dstg", "semantic", 5] - _PAPER["r2.intra", "dstg", "position", 5], 2),
        f"R² (intra) after the last block but one: semantic less position stream is at least {PRESENT}, position stream at most {PRESENT}",
        ("dstg",),
        _intra_in_semantics,
    ),
    Claim(
        "intra-in-all-models",
        "All four models encode progress inside a segment",
        "DSTG section 5.3, Table 4",
        _PAPER["r2.intra", "rp", "all", 2],
        f"R² (intra) at the best layer is at least {LOST} in dstg, ap, rp and rope; the lowest is shown",
        _FOUR,
        _intra_everywhere,
    ),
    Claim(
        "intra-better-with-absolute",
        "Absolute position helps to know progress inside segments",
        "DSTG section 5.3, Table 4",
        round(_PAPER["r2.intra", "dstg", "all", 3] - _PAPER["r2.intra", "rope", "all", 3], 2),
        "R² (intra) at the best layer: the lower of ap and dstg is not below the higher of rope and rp; the gap is shown",
        _FOUR,
        _intra_order,
    ),
    Claim(
        "ap-last-layer-as-in-text",
        "What entangled position keeps is 0.34, not 0.24",
        "DSTG section 5.1: the text has 0.34, Table 2 has 0.24",
        TEXT,
        f"R² (token) of ap after the last block is within {(TEXT - TABLE) / 2:.2f}, half of the way to Table 2, of {TEXT}",
        ("ap",),
        _as_the_text_has_it,
    ),
    Claim(
        "dstg-hidden-two-dimensional",
        "Position states stay in two dimensions in every layer",
        "DSTG section 4 (2), figure 4",
        0.9,
        f"Two components hold at least {ABOUT_90} (what rounds to the paper's 90 %) of the variance of the position stream within a "
        "document, from the first block to the last but one; the least is shown",
        ("dstg",),
        _states_two_dimensional,
    ),
    Claim(
        "dstg-sentences-separate",
        "Sentences move apart in the deeper position states",
        "DSTG section 4 (2), figure 4 (no number printed)",
        None,
        "Log of the separation of sentences in the position stream over that of cuts of the same lengths in random order: larger after the "
        "last block but one than after the first, there above 0, and more so than in the untrained model (half-widths in quadrature); the "
        "growth is shown",
        ("dstg",),
        _separate_more,
    ),
    Claim(
        "dstg-sentences-beyond-contiguity",
        "Sentences separate more than random contiguous stretches",
        "DSTG section 4 (2), figure 4 (no number printed)",
        None,
        "After every block up to the last but one the same logarithm is above 0, and above that of the untrained model (half-widths in "
        "quadrature), whose words alone make some; the smallest gain over it is shown",
        ("dstg",),
        _beyond_contiguity,
    ),
    Claim(
        "only-ap-predicts-position",
        "Only entangled position predicts the position stream",
        "DSTG appendix B.2, figure 8 (no number printed)",
        None,
        f"R² of predicting dstg's position stream from another model's states, at the best layer: at least {LOST} from ap, at most {LOST} "
        "from rp and rope; the gap is shown",
        ("ap", "rp", "rope", "dstg"),
        _predicts_position,
    ),
    Claim(
        "baselines-predict-semantics-alike",
        "All three baselines predict the semantic stream alike",
        "DSTG appendix B.2, figure 8 (no number printed)",
        None,
        f"R² of predicting dstg's semantic stream at the best layer differs by at most {COMPARABLE} between ap, rp and rope",
        ("ap", "rp", "rope", "dstg"),
        _predict_semantics,
    ),
    Claim(
        "dstg-costs-no-loss",
        "Separating the streams costs no MLM loss",
        "DSTG section 3.4, Table 1 (on GLUE, MTEB and SQuAD; no loss printed)",
        None,
        f"Held-out MLM loss of dstg is at most {MARGINAL} nats above the lowest of ap, rp and rope; the gap is shown",
        ("dstg", "ap", "rp", "rope"),
        _costs_nothing,
        "nats",
    ),
    Claim(
        "dstg-scores-matched",
        "One head width matches position and content scores",
        "DSTG section 3.1: dot-product variances are matched (no number printed)",
        None,
        f"Before the first step the standard deviation of dstg's absolute scores is between 1/{MATCHED:g} and {MATCHED:g} times that of "
        "its semantic scores in every block; the smallest ratio is shown. Weights of one spread make it the ratio of the widths, 1/15",
        ("dstg",),
        _scores_matched,
    ),
)
