"""The ledger of claims: what a paper says, a rule fixed beforehand that decides it, and the verdict from a study's records alone.

A claim is a row of `CLAIMS`. The thresholds say in numbers what the paper says in words; the paper's own printed values
meet every one of them, and none depends on what a study found.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whatwhere.intervals import seed_interval, split_interval
from whatwhere.records import Record
from whatwhere.report.paper import TABLE_VALUES, paper_values

HOLDS, FAILS, OPEN, UNTESTABLE = "holds", "does not hold", "not separable", "not testable here"

KEPT = 0.75  # "preserves": at least this share of the R² after the first block
LOST = 0.5  # "loses", "largely unable": at most this share of the R², or of the variance, is left
PRESENT = 0.25  # below this R² a part is said not to carry a target (ap's last layer, which "loses" it, has 0.24)
MOST = 0.9  # "collapses to", "concentrates in": at least this share of the variance or power
MOVED = 1.5  # a table has left its random start once two components hold this many times the share they held there
UNMOVED = 0.05  # "invariant": states change by at most this share of their size
LEARNED = 0.1  # nats below the unigram plateau from which a model counts as trained

_PAPER = paper_values()


class Missing(Exception):
    """A record that a claim needs is not there; the text says which."""


@dataclass(frozen=True)
class Measured:
    """What a claim's measurement found.

    shown: (seeds, splits) the quantity on the card. margins: the same shape each, how far on the right side of its threshold
    each part of the rule is; all of them must be at least 0. Tables of one model have one "split".
    """

    shown: np.ndarray
    margins: Sequence[np.ndarray]


class Evidence:
    """The records of a study that speak of some models, over the training seeds that all of them have.

    Values are arrays (seeds, splits); arithmetic on them is paired by seed and by split, as all models are probed on the
    same documents in the same splits.
    """

    def __init__(self, records: Sequence[Record], models: Sequence[str]) -> None:
        self._values: dict[tuple[str, str, int | None, int | None, str | None, int | None], float] = {}
        for r in records:
            if math.isfinite(r.value):
                # The records of the table before the first step stand apart, under a name of their own.
                metric = r.metric if r.step is None else f"{r.metric}@{r.step}"
                self._values[metric, r.model, r.seed, r.layer, r.part, r.index] = r.value
        self._losses = [r for r in records if r.metric == "loss" and r.part == "validation" and r.step is not None]
        seeds = [{r.seed for r in records if r.model == model and r.seed is not None} for model in models]
        for model, found in zip(models, seeds, strict=True):
            if not found:
                raise Missing(f"the study has no model {model}")
        self.models = models
        self.seeds = sorted(set.intersection(*seeds))
        if not self.seeds:
            raise Missing(f"{' and '.join(models)} have no training seed in common")

    def value(self, metric: str, model: str, index: int | None = None, layer: int | None = None, part: str | None = None) -> np.ndarray:
        """A single value of a model: (seeds, 1)."""
        return np.array([[self._get(metric, model, seed, layer, part, index)] for seed in self.seeds])

    def r2(self, model: str, target: str, part: str, layer: int) -> np.ndarray:
        """R² at hidden[layer] in every split: (seeds, splits)."""
        splits = self._splits(f"r2.{target}", model, part, layer)
        return np.array([[self._get(f"r2.{target}", model, seed, layer, part, s) for s in splits] for seed in self.seeds])

    def peak(self, model: str, target: str, part: str) -> np.ndarray:
        """R² at the layer from 1 on with the largest mean, chosen for each seed: (seeds, splits)."""
        layers = np.stack([self.r2(model, target, part, layer) for layer in range(1, self.last(model) + 1)])
        best = layers.mean(axis=2).argmax(axis=0)
        return layers[best, np.arange(len(self.seeds))]

    def last(self, model: str) -> int:
        """Number of blocks of a model: hidden[last] is the output of the last one."""
        found = [key[3] for key in self._values if key[0] == "r2.token" and key[1] == model and key[3] is not None]
        if not found:
            raise Missing(f"no probes of {model}")
        return max(found)

    def late(self, model: str) -> int:
        """Output of the last block whose position stream is trained; the one after it gets no gradient (DSTG 3.3)."""
        layer = self.last(model) - 1
        if layer < 2:
            raise Missing(f"{model} has {layer + 1} blocks; losing position through the layers needs three")
        return layer

    def interval(self, values: np.ndarray) -> tuple[float, float] | None:
        """95 % interval of the mean: between training seeds if there are several, else between document splits."""
        if len(values) > 1:
            return seed_interval(values.mean(axis=1))
        documents = self._values.get(("probe.documents", self.models[0], self.seeds[0], None, None, None), 500.0)
        return split_interval(values[0], int(documents))

    def plateau(self) -> str | None:
        """Which model has not left the unigram plateau: it has learned token frequencies at most, so no claim can be about it."""
        unigram = self._values.get(("loss.unigram", "", None, None, None, None))
        if unigram is None:
            return None
        for model in self.models:
            for seed in self.seeds:
                losses = [r for r in self._losses if r.model == model and r.seed == seed]
                if losses and not (loss := max(losses, key=lambda r: r.step or 0).value) <= unigram - LEARNED:
                    return f"{model} has learned token frequencies only: loss {loss:.2f} nats, the unigram plateau is {unigram:.2f}"
        return None

    def scale(self, values: np.ndarray | None = None) -> str:
        """How much was trained and measured, in words."""
        model, seed = self.models[0], self.seeds[0]
        words = []
        for metric, word in (("tokens", "training tokens"), ("parameters", "parameters")):
            if (found := self._values.get((metric, model, seed, None, None, None))) is not None:
                words.append(f"{_short(found)} {word}")
        if (length := self._values.get(("probe.length", model, seed, None, None, None))) is not None:
            words.append(f"{length:.0f} positions")
        words.append(f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}")
        if values is not None and len(values) == 1:
            words.append(f"interval over {values.shape[1]} document splits" if values.shape[1] > 1 else "no interval")
        return ", ".join(words)

    def _splits(self, metric: str, model: str, part: str, layer: int) -> list[int]:
        place = (metric, model, self.seeds[0], layer, part)
        splits = sorted(key[5] for key in self._values if key[:5] == place and key[5] is not None)
        if not splits:
            raise Missing(f"no {metric} of {model}, part {part}, at hidden[{layer}]")
        return splits

    def _get(
        self, metric: str, model: str, seed: int, layer: int | None = None, part: str | None = None, index: int | None = None
    ) -> float:
        try:
            return self._values[metric, model, seed, layer, part, index]
        except KeyError:
            where = "".join(f", {name} {v}" for name, v in (("part", part), ("layer", layer), ("index", index)) if v is not None)
            raise Missing(f"no {metric} of {model}, seed {seed}{where}") from None


@dataclass(frozen=True)
class Claim:
    """One row of the ledger. `rule` says in words what `measure` computes; models[0] is the one the claim is about."""

    id: str
    claim: str
    source: str
    paper_value: float
    rule: str
    models: tuple[str, ...]
    measure: Callable[[Evidence], Measured]
    unit: str = ""


def evaluate(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Every claim with its verdict, as claims.json holds them.

    A claim holds if every part of its rule does. A part with an interval (over training seeds if there are several, else over
    document splits) is "not separable" if the interval of its margin straddles the threshold; without one the value alone decides.
    Where records are missing, or a model never left the unigram plateau, the claim is "not testable here" and `scale` says why.
    With one training seed a verdict is about that model; `scale` says so.

    Returns:
        Dictionaries with id, claim, verdict, value, low, high, paper_value, scale, source, rule, unit; value, low and high
        may be None.
    """
    return [_verdict(claim, records) for claim in CLAIMS]


def _verdict(claim: Claim, records: Sequence[Record]) -> dict[str, Any]:
    value = low = high = None
    try:
        evidence = Evidence(records, claim.models)
        found = claim.measure(evidence)
    except Missing as missing:
        verdict, scale = UNTESTABLE, f"not measured: {missing}"
    else:
        value = float(found.shown.mean())
        low, high = evidence.interval(found.shown) or (None, None)
        verdict, scale = _combined([_side(m, evidence.interval(m)) for m in found.margins]), evidence.scale(found.shown)
        if reason := evidence.plateau():
            verdict, scale = UNTESTABLE, f"{reason}; {scale}"
    return {
        "id": claim.id,
        "claim": claim.claim,
        "verdict": verdict,
        "value": value,
        "low": low,
        "high": high,
        "paper_value": claim.paper_value,
        "scale": scale,
        "source": claim.source,
        "rule": claim.rule,
        "unit": claim.unit,
    }


def _side(margin: np.ndarray, interval: tuple[float, float] | None) -> str:
    low, high = interval or (float(margin.mean()),) * 2
    return HOLDS if low >= 0 else FAILS if high < 0 else OPEN


def _combined(verdicts: Sequence[str]) -> str:
    return next((v for v in (FAILS, OPEN) if v in verdicts), HOLDS)


def _short(count: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.0f}"


def _kept(target: str) -> Callable[[Evidence], Measured]:
    def measure(e: Evidence) -> Measured:
        early, late = e.r2("dstg", target, "position", 1), e.r2("dstg", target, "position", e.late("dstg"))
        return Measured(late, [late - KEPT * early, late - PRESENT])

    return measure


def _kept_rule(target: str) -> str:
    return (
        f"R² ({target}) of the position stream after the last block but one is at least {KEPT} of that after the first, "
        f"and at least {PRESENT}"
    )


def _at_most(model: str, part: str) -> Callable[[Evidence], Measured]:
    def measure(e: Evidence) -> Measured:
        peak = e.peak(model, "token", part)
        return Measured(peak, [LOST - peak])

    return measure


def _ap_loses(e: Evidence) -> Measured:
    peak, last = e.peak("ap", "token", "all"), e.r2("ap", "token", "all", e.last("ap"))
    return Measured(last, [LOST * peak - last, peak - LOST])


def _moved(e: Evidence, model: str) -> None:
    """Refuse to judge a table that has not left its random start, whose many dimensions and fast changes it would show."""
    before, after = e.value("pca.top2@0", model), e.value("pca.top2", model)
    if not (after >= MOVED * before).all():
        raise Missing(f"a trained table: two components of {model}'s hold {after.max():.2f}, {before.max():.2f} before the first step")


def _two_dimensional(e: Evidence) -> Measured:
    dstg, ap = e.value("pca.top2", "dstg"), e.value("pca.top2", "ap")
    return Measured(dstg, [dstg - MOST, dstg - ap])


def _low_frequency(e: Evidence) -> Measured:
    lower = np.minimum(e.value("dct.low4", "dstg", 0), e.value("dct.low4", "dstg", 1))
    return Measured(lower, [lower - MOST])


def _ap_high_dimensional(e: Evidence) -> Measured:
    _moved(e, "ap")
    share = e.value("pca.top2", "ap")
    return Measured(share, [LOST - share])


def _ap_high_frequency(e: Evidence) -> Measured:
    _moved(e, "ap")
    higher = np.maximum(e.value("dct.low4", "ap", 0), e.value("dct.low4", "ap", 1))
    return Measured(higher, [LOST - higher])


def _intra_in_semantics(e: Evidence) -> Measured:
    layer = e.late("dstg")
    semantic, position = (e.r2("dstg", "intra", part, layer) for part in ("semantic", "position"))
    return Measured(semantic - position, [semantic - position - PRESENT, PRESENT - position])


def _semantics_unmoved(e: Evidence) -> Measured:
    change = e.value("shift.change", "split", layer=e.last("split"), part="semantic")
    return Measured(change, [UNMOVED - change])


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "dstg-position-kept",
        "The position stream keeps position through the layers",
        "DSTG section 5.1, Table 2",
        _PAPER["r2.token", "dstg", "position", 5],
        _kept_rule("token"),
        ("dstg",),
        _kept("token"),
    ),
    Claim(
        "ap-loses-position",
        "Entangled absolute position is lost at the end",
        "DSTG section 5.1, Table 2 (the text has 0.34)",
        _PAPER["r2.token", "ap", "all", 6],
        f"R² (token) after the last block is at most {LOST} of that at the best layer, which is at least {LOST}",
        ("ap",),
        _ap_loses,
    ),
    Claim(
        "rope-no-position",
        "RoPE hardly encodes absolute position",
        "DSTG section 5.1, Table 2",
        _PAPER["r2.token", "rope", "all", 3],
        f"R² (token) at the best layer is at most {LOST}",
        ("rope",),
        _at_most("rope", "all"),
    ),
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
        "dstg-2d-collapse",
        "The separate position table collapses to two dimensions",
        "DSTG section 4 (1)",
        TABLE_VALUES["pca.top2", "dstg", None],
        f"Two components hold at least {MOST} of the variance of dstg's table, and more than of ap's",
        ("dstg", "ap"),
        _two_dimensional,
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
        "intra-in-semantics",
        "Progress inside a segment lives in the semantics",
        "DSTG section 5.3, Table 4",
        round(_PAPER["r2.intra", "dstg", "semantic", 5] - _PAPER["r2.intra", "dstg", "position", 5], 2),
        f"R² (intra) after the last block but one: semantic less position stream is at least {PRESENT}, position stream at most {PRESENT}",
        ("dstg",),
        _intra_in_semantics,
    ),
    Claim(
        "split-semantics-invariant",
        "Semantics of split do not depend on position",
        "SPLIT notes, eq. 1 and the text around it (they measure nothing: 0 is what they say)",
        0.0,
        f"Shifting all positions by half a document changes the semantic states after the last block by at most {UNMOVED} of their size. "
        "By construction it can change them through the attention weights alone",
        ("split",),
        _semantics_unmoved,
    ),
)
