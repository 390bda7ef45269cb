"""Claims of TUPE: what its correlations look like, and that untying them trains faster and to a lower loss.

The paper compares scores on GLUE, whose averages are printed in Table 2, and validation losses, of which it draws
figure 5a alone; a study compares losses on the same held-out documents, so most claims here have no printed value.
"""

import itertools

import numpy as np

from ..papers import GLUE_MID
from ..records.metric import UNIT
from ..records.table import Point, average, largest, share_above, smallest
from .claim import LOST, MARGINAL, OURS, SOME, Measured, claim, of_losses
from .evidence import Evidence, Missing

UNIFORM = 1 / 3  # "looks uniform": standard deviation at most this share of word-to-word's, a ninth of its variance
FASTER = 0.4  # with room above it
ABOVE = 1.0  # "relatively large": standard deviations above the mean
PATTERNS = ("global", "local", "broad", "previous", "next")


# Losses: sections 4.2 and 4.3.


def _below(e: Evidence, *models: str) -> Measured:
    """Compare losses, which fall, or stay, from each model to the next; the smallest step is shown."""
    gains = [e.loss(higher) - e.loss(lower) for higher, lower in itertools.pairwise(models)]
    return smallest(gains), *(gain >= 0 for gain in gains)


@of_losses("TUPE section 4.2, figure 5a (loss not printed; Table 2: GLUE 84.47 against 82.96)", "tupe-a", "bert-a")
def tupe_a_beats_bert_a(e: Evidence) -> Measured:
    """Untied absolute position beats BERT's.
    Held-out MLM loss of tupe-a is not above bert-a's; how far below is shown."""
    return _below(e, "bert-a", "tupe-a")


@of_losses("TUPE section 4.2, figure 5a (loss not printed; Table 2: GLUE 85.04 against 83.66)", "tupe-r", "bert-r")
def tupe_r_beats_bert_r(e: Evidence) -> Measured:
    """Untied relative position beats BERT's.
    Held-out MLM loss of tupe-r is not above bert-r's; how far below is shown."""
    return _below(e, "bert-r", "tupe-r")


@of_losses("TUPE section 4.2 (said of GLUE, 85.04 against 84.47, not of the loss)", "tupe-r", "tupe-a", origin=OURS)
def tupe_r_beats_tupe_a(e: Evidence) -> Measured:
    """Relative position adds to untied absolute position.
    Held-out MLM loss of tupe-r is not above tupe-a's; how far below is shown."""
    return _below(e, "tupe-a", "tupe-r")


@of_losses(
    "TUPE section 4.3 (said of GLUE, 82.96, 83.81, 84.47, not of the loss)",
    "tupe-a-tie-cls",
    "bert-a",
    "tupe-a",
    origin=OURS,
)
def tupe_tie_cls_between(e: Evidence) -> Measured:
    """Untying [CLS] and untying position both help.
    Held-out MLM losses fall, or stay, from bert-a to tupe-a-tie-cls to tupe-a; the smaller of the two steps is
    shown."""
    return _below(e, "bert-a", "tupe-a-tie-cls", "tupe-a")


@of_losses(
    "TUPE section 4.3 (said of GLUE, 82.96, 83.64, 83.81, not of the loss)",
    "bert-ad",
    "bert-a",
    "tupe-a-tie-cls",
    origin=OURS,
)
def tupe_bert_ad_between(e: Evidence) -> Measured:
    """Own projections help; dropping mixed correlations helps too.
    Held-out MLM losses fall, or stay, from bert-a to bert-ad to tupe-a-tie-cls; the smaller of the two steps is
    shown."""
    return _below(e, "bert-a", "bert-ad", "tupe-a-tie-cls")


# Steps: abstract, section 4.2, section 5.

_STEPS = "TUPE abstract, section 4.2, Table 2, figure 5"


def _share_of_steps(e: Evidence, model: str, baseline: str) -> Point:
    """Return the share of its steps in which a model reaches a baseline's final loss; 1 for a seed that never does."""
    reached = e.value("convergence.reached", model, part=baseline).at[:, 0]
    if reached.all():
        return e.value("convergence.share", model, part=baseline)
    rows = e.rows("convergence.share", model, part=baseline)
    e.read |= dict.fromkeys(rows)
    shares = {r.seed: r.value for r in rows}
    whole = [[shares[seed] if done else 1.0] for seed, done in zip(e.seeds, reached, strict=True)]
    return Point.of(whole, span=UNIT)


@claim(_STEPS, "tupe-a", "bert-a", paper=GLUE_MID)
def tupe_a_30_percent(e: Evidence) -> Measured:
    """Untied position needs 30 % of the steps.
    tupe-a reaches the final validation loss of bert-a in at most {FASTER} of its steps; a model that never does counts
    as 1. The paper judges by GLUE as well."""
    return _share_of_steps(e, "tupe-a", "bert-a") <= FASTER


@claim(_STEPS, "tupe-r", "bert-r", paper=GLUE_MID)
def tupe_r_30_percent(e: Evidence) -> Measured:
    """With relative position too, 30 % of the steps.
    tupe-r reaches the final validation loss of bert-r in at most {FASTER} of its steps; a model that never does counts
    as 1. The paper judges by GLUE as well."""
    return _share_of_steps(e, "tupe-r", "bert-r") <= FASTER


# Correlations and patterns: sections 3.1 and 4.4.


@claim("TUPE section 3.1, figure 2 (no number printed)", "bert-a")
def tupe_mixed_correlations_uniform(e: Evidence) -> Measured:
    """Words and positions hardly correlate in BERT's attention.
    Standard deviations of the word-to-position and position-to-word scores of bert-a's first block, mean over heads,
    are at most a third of the word-to-word scores'; the larger share is shown."""
    parts = ("word-word", "word-position", "position-word")
    word, *mixed = (average(e.heads("correlation.std", part)) for part in parts)
    return largest([m / word for m in mixed]) <= UNIFORM


@claim("TUPE section 4.4, figure 6", "tupe-a", paper=float(len(PATTERNS)), unit="patterns")
def tupe_five_patterns(e: Evidence) -> Measured:
    """Five patterns of positional attention emerge.
    Each of the patterns global, local, broad, previous and next is found in at least one head; how many of them are is
    shown. Not testable below five heads whose positional scores differ."""
    shares = [e.value("patterns.share", part=pattern) for pattern in PATTERNS]
    if (distinct := e.count("patterns.share", PATTERNS[0])) < len(PATTERNS):
        raise Missing(f"needs {len(PATTERNS)} heads that differ in their positional scores; {e.model} has {distinct}")
    emerged = np.sum([s.at >= SOME for s in shares], axis=0)
    return Point.of(emerged, span=(0, len(PATTERNS))), Point.of(smallest(shares).at, span=UNIT) >= SOME


@claim("TUPE section 4.4: the first column is relatively large in most heads (no number printed)", "tupe-a")
def tupe_first_column(e: Evidence) -> Measured:
    """Most heads' positional term turns to [CLS].
    In at least {LOST} of tupe-a's heads θ2, the positional score of every token for [CLS], is above the mean of the
    other positional scores by at least {ABOVE:g} of their standard deviations; the share of such heads is shown."""
    scores, mean, std = (e.heads(f"theta.{name}") for name in ("key", "mean", "std"))
    heights = [(score - m) / s for score, m, s in zip(scores, mean, std, strict=True)]
    return share_above(heights, ABOVE) >= LOST


@claim("TUPE section 5 (no number printed)", "tupe-free", "bert-a", learned=0.0)
def tupe_free_form_slower(e: Evidence) -> Measured:
    """Free positional scores converge much slower than BERT.
    bert-a reaches the final validation loss of tupe-free in at most {LOST} of its steps; never counts as 1."""
    return _share_of_steps(e, "bert-a", "tupe-free") <= LOST


@of_losses("TUPE section 5 (no number printed)", "tupe-product", "tupe-r")
def tupe_product_bias_marginal(e: Evidence) -> Measured:
    """A relative bias made of products gains little.
    Held-out MLM losses of tupe-product and tupe-r differ by at most {MARGINAL} nats; the gain over tupe-r is shown."""
    gain = e.loss("tupe-r") - e.loss("tupe-product")
    return gain <= MARGINAL, gain >= -MARGINAL
