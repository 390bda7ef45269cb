"""Claims of TUPE: what its correlations look like, and that untying them trains faster and to a lower loss.

The paper compares scores on GLUE, whose averages are printed in Table 2, and validation losses, of which it draws figure 5a alone; a
study compares losses on the same held-out documents, so most claims here have no printed value.
"""

from collections.abc import Callable

import numpy as np

from .evidence import Evidence, Missing
from .ledger import LOST, MARGINAL, SOME, Claim, Measured
from .values import Value, average, largest, share_above, smallest

UNIFORM = 1 / 3  # "looks uniform": standard deviation at most this share of that of word-to-word, a ninth of its variance
FASTER = 0.3  # of the baseline's steps (abstract; Table 2: 300k of 1M)
TWICE = 2.0  # "relatively large": times the weight that uniform attention gives
PATTERNS = ("global", "local", "broad", "previous", "next")

Measure = Callable[[Evidence], Measured]


def _uniform(e: Evidence) -> Measured:
    word, *mixed = (average(e.heads("correlation.std", part)) for part in ("word-word", "word-position", "position-word"))
    ratio = largest([m / word for m in mixed])
    return Measured(ratio, [UNIFORM - ratio])


def _patterns(e: Evidence) -> Measured:
    shares = [e.value("patterns.share", part=pattern) for pattern in PATTERNS]
    if (distinct := e.count("patterns.share", PATTERNS[0])) < len(PATTERNS):
        raise Missing(f"needs {len(PATTERNS)} heads that differ in their positional scores; {e.models[0]} has {distinct}")
    least = smallest(shares)
    there = np.sum([s.at >= SOME for s in shares], axis=0)
    return Measured(Value.of(there), [Value.of(least.at) - SOME])


def _first_column(e: Evidence) -> Measured:
    uniform = e.value("attention.special.keys")
    note, margins = f"uniform attention gives {uniform.mean:.3g}", []
    heads = e.heads("attention.special", "absolute")
    share = share_above([v / uniform for v in heads], TWICE)
    if e.step is not None:
        raise Missing("an untrained model is its own control")
    try:
        before = share_above([v / uniform for v in e.untrained().heads("attention.special", "absolute")], TWICE)
    except Missing:
        note += ", no records of the untrained model"
    else:
        note, margins = f"{note}, untrained {before.mean:.3g}", [share - before]
    return Measured(share, [share - LOST, *margins], note)


def _below(lower: str, higher: str) -> Measure:
    """The loss of one model is below that of another; how far is shown."""

    def measure(e: Evidence) -> Measured:
        gain = e.loss(higher) - e.loss(lower)
        return Measured(gain, [gain])

    return measure


def _between(lower: str, middle: str, higher: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        gains = [e.loss(higher) - e.loss(middle), e.loss(middle) - e.loss(lower)]
        return Measured(smallest(gains), gains)

    return measure


def _share_of_steps(e: Evidence, model: str, baseline: str) -> Value:
    """Of the steps, that a model needs to a baseline's final loss: (seeds, 1); 1 where it never gets there."""
    reached = e.value("convergence.reached", model, part=baseline)
    if not reached.at.any():
        return Value.of([[1.0] for _ in e.seeds])
    if reached.at.all():
        return e.value("convergence.share", model, part=baseline)
    return Value.of([[_one(e, model, baseline, i) if there else 1.0] for i, there in enumerate(reached.at[:, 0])])


def _one(e: Evidence, model: str, baseline: str, seed: int) -> float:
    alone = Evidence(e.book, e.models)
    alone.seeds = [e.seeds[seed]]
    return alone.value("convergence.share", model, part=baseline).mean


def _faster(model: str, baseline: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        share = _share_of_steps(e, model, baseline)
        return Measured(share, [FASTER - share])

    return measure


def _free_is_slower(e: Evidence) -> Measured:
    share = _share_of_steps(e, "bert-a", "tupe-free")
    return Measured(share, [LOST - share])


def _product_gains_little(e: Evidence) -> Measured:
    gain = e.loss("tupe-r") - e.loss("tupe-product")
    return Measured(gain, [MARGINAL - gain, gain + MARGINAL])


def _loss_claim(name: str, sentence: str, source: str, lower: str, higher: str) -> Claim:
    rule = f"Held-out MLM loss of {lower} is not above that of {higher}; how far below is shown"
    return Claim(name, sentence, source, None, rule, (lower, higher), _below(lower, higher), "nats")


def _faster_claim(name: str, sentence: str, source: str, model: str, baseline: str) -> Claim:
    rule = (
        f"{model} reaches the final validation loss of {baseline} in at most {FASTER} of its steps; a model that never does counts as 1. "
        "The paper judges by GLUE as well"
    )
    return Claim(name, sentence, source, FASTER, rule, (model, baseline), _faster(model, baseline))


BEATS_BERT_A = _loss_claim(
    "tupe-a-beats-bert-a",
    "Untied absolute position beats BERT's",
    "TUPE section 4.2, figure 5a (loss not printed; Table 2: GLUE 84.47 against 82.96)",
    "tupe-a",
    "bert-a",
)

OTHERS = (
    _loss_claim(
        "tupe-r-beats-bert-r",
        "Untied relative position beats BERT's",
        "TUPE section 4.2, figure 5a (loss not printed; Table 2: GLUE 85.04 against 83.66)",
        "tupe-r",
        "bert-r",
    ),
    _loss_claim(
        "tupe-r-beats-tupe-a",
        "Relative position adds to untied absolute position",
        "TUPE section 4.2 (loss not printed; Table 2: GLUE 85.04 against 84.47)",
        "tupe-r",
        "tupe-a",
    ),
    Claim(
        "tupe-tie-cls-between",
        "Untying [CLS] and untying position both help",
        "TUPE section 4.3 (loss not printed; Table 2: GLUE 82.96, 83.81, 84.47)",
        None,
        "Held-out MLM losses fall, or stay, from bert-a to tupe-a-tie-cls to tupe-a; the smaller of the two steps is shown",
        ("tupe-a-tie-cls", "bert-a", "tupe-a"),
        _between("tupe-a", "tupe-a-tie-cls", "bert-a"),
        "nats",
    ),
    Claim(
        "tupe-bert-ad-between",
        "Own projections help; dropping mixed correlations helps too",
        "TUPE section 4.3 (loss not printed; Table 2: GLUE 82.96, 83.64, 83.81)",
        None,
        "Held-out MLM losses fall, or stay, from bert-a to bert-ad to tupe-a-tie-cls; the smaller of the two steps is shown",
        ("bert-ad", "bert-a", "tupe-a-tie-cls"),
        _between("tupe-a-tie-cls", "bert-ad", "bert-a"),
        "nats",
    ),
    _faster_claim(
        "tupe-a-30-percent",
        "Untied position needs 30 % of the steps",
        "TUPE abstract, section 4.2, Table 2, figure 5",
        "tupe-a",
        "bert-a",
    ),
    _faster_claim(
        "tupe-r-30-percent",
        "With relative position too, 30 % of the steps",
        "TUPE abstract, section 4.2, Table 2, figure 5",
        "tupe-r",
        "bert-r",
    ),
    Claim(
        "tupe-mixed-correlations-uniform",
        "Words and positions hardly correlate in BERT's attention",
        "TUPE section 3.1, figure 2 (no number printed)",
        None,
        "Standard deviations of the word-to-position and position-to-word scores of bert-a's first block, mean over heads, are at most a "
        "third of that of word-to-word; the larger share is shown",
        ("bert-a",),
        _uniform,
    ),
    Claim(
        "tupe-five-patterns",
        "Five patterns of positional attention emerge",
        "TUPE section 4.4, figure 6",
        float(len(PATTERNS)),
        "Each of the patterns global, local, broad, previous and next is that of a head at least; how many of them are is shown. Not "
        "testable below five heads whose positional scores differ",
        ("tupe-a",),
        _patterns,
        "patterns",
    ),
    Claim(
        "tupe-first-column",
        "Most heads' positional term turns to special tokens",
        "TUPE section 4.4: the first column is relatively large in most heads (no number printed)",
        None,
        f"In at least {LOST} of tupe-a's heads the positional term alone gives special tokens at least {TWICE:g} times what uniform "
        "attention does, and in no fewer heads than in the untrained model where there are records of it; the paper speaks of [CLS], the "
        "records hold [CLS] and [SEP] together",
        ("tupe-a",),
        _first_column,
    ),
    Claim(
        "tupe-free-form-slower",
        "Free positional scores converge much slower than BERT",
        "TUPE section 5 (no number printed)",
        None,
        f"bert-a reaches the final validation loss of tupe-free in at most {LOST} of its steps; never counts as 1",
        ("tupe-free", "bert-a"),
        _free_is_slower,
    ),
    Claim(
        "tupe-product-bias-marginal",
        "A relative bias made of products gains little",
        "TUPE section 5 (no number printed)",
        None,
        f"Held-out MLM losses of tupe-product and tupe-r differ by at most {MARGINAL} nats; the gain over tupe-r is shown",
        ("tupe-product", "tupe-r"),
        _product_gains_little,
        "nats",
    ),
)
