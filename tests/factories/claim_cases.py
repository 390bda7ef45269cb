"""Made-up records for every claim: such that make it hold, with the paper's printed value, such that make it fail, and
such that straddle its threshold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from claim_records import (
    clusters,
    converges,
    corpus,
    heads,
    heads_above,
    in_split,
    known,
    labelled,
    longer,
    losses,
    moved,
    one,
    probes,
    projections,
    regimes,
    regressions,
    sinusoidal_row,
    stages,
    supports,
    table,
    tables,
    used,
    widths,
)

from whatwhere.claims import CLAIMS, FACTS, evaluate
from whatwhere.records.record import Record

BY_ID = {claim.id: claim for claim in (*CLAIMS, *FACTS)}


@dataclass(frozen=True)
class Case:
    """records(value, half): `good` makes the claim hold (and is the paper's value where it prints one), `bad` fail,
    `edge` neither."""

    records: Callable[[float, float], list[Record]]
    good: float
    bad: float
    edge: tuple[float, float] | None = None


def intra(v, h):
    position = probes("dstg", "intra", "position", [0.06, 0.06, 0])
    return position + probes("dstg", "intra", "semantic", [0.7, 0.06 + v, 0.6], h, 2)


def four_intra(dstg, ap, rp, rope, half, noisy):
    found = {"dstg": dstg, "ap": ap, "rp": rp, "rope": rope}
    return [
        r for m, v in found.items() for r in probes(m, "intra", "all", [0.2, v, 0.2], half if m == noisy else 0.0, 2)
    ]


def states(metric, first, late, half):
    found = [
        one("dstg", metric, first, layer=1, part="position"),
        one("dstg", metric, late, half, layer=2, part="position"),
    ]
    if metric == "sentences.excess":  # what words alone make
        found += [one("dstg", metric, 0.01, layer=layer, part="position", step=0) for layer in (1, 2)]
    return [*found, *probes("dstg", "token", "position", [0.9, 0.9, 0])]


def full_mlm(v, h):
    plain = probes("dstg", "token", "position", [0.98, 0.89, 0])
    return probes("dstg-full-mlm", "token", "position", [0.98, 0.9, v], h, 3) + plain


def stds(v, h):
    parts = {"word-word": 1.0, "word-position": v, "position-word": 0.1}
    return [
        r
        for part, s in parts.items()
        for r in heads("correlation.std", [s] * 4, h if part == "word-position" else 0, "bert-a", part)
    ]


def patterns(count, _half):
    names = ("global", "local", "broad", "previous", "next")
    return [one("tupe-a", "patterns.share", 0.2 if i < count else 0.0, part=name, n=12) for i, name in enumerate(names)]


def shifted(model, part):
    return lambda v, h: [
        *probes(model, "token", "all", [0.1, 0.1]),
        one(model, "shift.change", v, h, layer=2, part=part),
    ]


def scored(family, half, tasks=("rte", "cola"), **scores):
    """Scores of models and of their untrained selves on some tasks, and the paired differences from the first model."""
    start = 0.1
    base = next(iter(scores.values()))
    found = []
    for name, value in scores.items():
        model = name.replace("_", "-")
        for task in tasks:
            for step, score in ((None, value), (0, start)):
                found.append(one(model, f"{family}.score", score, part=task, step=step))
                if (name, step) != (next(iter(scores)), None):
                    found.append(one(model, f"{family}.difference", score - base, half, part=task, step=step))
            found.append(one(model, f"{family}.taught", value - start, 0.01, part=task))
    return found


def read_off(half, lead, *tasks):
    """Scores of probes, `dstg` ahead by `lead` in the first task and by more in the other."""
    return [
        record
        for extra, task in enumerate(tasks)
        for record in scored("linguistic", half, (task,), dstg=0.6 + lead + extra / 10, ap=0.6, rope=0.55)
    ]


def tuned(accuracy):
    """A fine-tuning that ends with an accuracy, where half of the labels are of one class."""
    return [
        one("ap", "accuracy.commonest", 0.5, part="validation"),
        one("ap", "accuracy", accuracy, step=9, part="validation"),
    ]


def fields(v, _half):
    """Means of the five fields of Flash-Holmes; dstg ahead by `v` in one of them and by more in the others."""
    names = ("morphology", "reasoning", "semantics", "discourse", "syntax")
    found = []
    for i, field in enumerate(names):
        for model, score in (("dstg", 0.5 + v + i / 100), ("ap", 0.5), ("rope", 0.48)):
            found += [one(model, "holmes.field", x, part=field, step=step) for x, step in ((score, None), (0.2, 0))]
    return found


CASES = {
    "dstg-position-kept": Case(
        lambda v, h: [*probes("dstg", "token", "position", [0.98, v, 0], h, 2), *used("dstg")], 0.89, 0.7, (0.735, 0.03)
    ),
    "ap-keeps-position": Case(
        lambda v, h: probes("ap", "token", "all", [0.99, v, 0.24], h, 2), 0.82, 0.5, (0.7425, 0.03)
    ),
    "ap-loses-position": Case(
        lambda v, h: probes("ap", "token", "all", [0.99, 0.82, v], h, 3), 0.24, 0.6, (0.41, 0.03)
    ),
    "dstg-2d-collapse": Case(
        lambda v, h: [one("dstg", "pca.top2", v, h), one("ap", "pca.top2", 0.234)], 0.941, 0.85, (0.9, 0.02)
    ),
    "rope-no-position": Case(
        lambda v, h: probes("rope", "token", "all", [0.1, v, 0.06], h, 2) + known("token"), 0.32, 0.65, (0.594, 0.03)
    ),
    "dstg-most-heads-absolute": Case(
        lambda v, h: [
            *heads_above(v, h, 36, "kl.share.absolute", 0.6, 0.1, "dstg"),
            *labelled(["absolute"] * round(36 * v) + ["semantic"] * (36 - round(36 * v))),
        ],
        0.75,
        0.25,
    ),
    "dstg-full-mlm-loses-position": Case(full_mlm, 0.2, 0.7, (0.45, 0.03)),
    "tupe-a-beats-bert-a": Case(lambda v, h: losses(h, tupe_a=3 - v, bert_a=3.0), 0.1, -0.1, (0.01, 0.05)),
    "dstg-costs-no-glue": Case(lambda v, h: scored("glue", h, dstg=0.7 + v, ap=0.7, rp=0.6, rope=0.65), -0.01, -0.05),
    "dstg-costs-no-squad": Case(
        lambda v, h: scored("squad", h, ("squad",), dstg=0.7 + v, ap=0.6, rope=0.7), 0.0, -0.05, (-0.02, 0.01)
    ),
    "dstg-costs-no-mteb": Case(lambda v, h: scored("mteb", h, dstg=0.7 + v, ap=0.7, rope=0.7), -0.01, -0.05),
    "dstg-keeps-more-syntax": Case(lambda v, h: read_off(h, v, "pos", "constituents"), 0.07, -0.05, (0.01, 0.05)),
    "dstg-keeps-more-structure": Case(
        lambda v, h: read_off(h, v, "readability", "sentence-order"), 0.05, -0.05, (0.01, 0.05)
    ),
    "dstg-better-in-all-fields": Case(fields, 0.01, -0.02),
    "tupe-a-beats-bert-a-on-glue": Case(
        lambda v, h: scored("glue", h, tupe_a=0.7 + v, bert_a=0.7), 0.0151, -0.05, (0.01, 0.05)
    ),
    "tupe-r-beats-bert-r-on-glue": Case(
        lambda v, h: scored("glue", h, tupe_r=0.7 + v, bert_r=0.7), 0.0138, -0.05, (0.01, 0.05)
    ),
    "tupe-a-30-percent-on-glue": Case(
        lambda v, h: [
            *scored("glue", 0.0, tupe_a=0.8, bert_a=0.7),
            *(one("tupe-a", "glue.score", 0.7 + v, h, part=task, step=300) for task in ("rte", "cola")),
            *(one("tupe-a", "glue.score", 0.8, part=task, step=1000) for task in ("rte", "cola")),
        ],
        0.0037,
        -0.05,
        (0.01, 0.05),
    ),
    "geom-isometry-unattainable": Case(lambda v, h: tables("mds", half=h, mds=v), 0.009, 1e-12, (1e-6, 1e-3)),
    "geom-alibi-far-below": Case(lambda v, h: tables("alibi", half=h, alibi=272 * v), 0.00207, 0.5, (0.1, 10)),
    "geom-alibi-far-below-optimal": Case(
        lambda v, h: tables("alibi", "optimal.corrected", h, sinusoidal=0.2, alibi=0.2 * v), 0.05, 1.2, (0.1, 0.01)
    ),
    "lowdim-few-dimensions": Case(lambda v, h: [one("bert", "n50", v, h, None, n=512)], 5.5, 20, (10, 1)),
    "split-semantics-invariant": Case(
        lambda v, h: shifted("split", "semantic")(v, h) + probes("split", "token", "position", [0.9, 0.8]),
        0.0,
        0.3,
        (0.05, 0.02),
    ),
    "rp-no-position": Case(
        lambda v, h: probes("rp", "token", "all", [0.17, v, 0.22], h, 2) + known("token"), 0.5, 0.65, (0.594, 0.03)
    ),
    "semantic-stream-little-position": Case(
        lambda v, h: probes("dstg", "token", "semantic", [v, 0.3, 0.2], h, 1) + known("token"),
        0.44,
        0.65,
        (0.594, 0.03),
    ),
    "dstg-low-frequency": Case(
        lambda v, h: [one("dstg", "dct.low4", v, h, index=0), one("dstg", "dct.low4", 0.99, index=1)],
        0.984,
        0.8,
        (0.9, 0.02),
    ),
    "dstg-third-component-fast": Case(
        lambda v, h: [
            *moved("dstg"),
            *(one("dstg", "dct.low4", x, y, index=i) for i, x, y in ((0, 0.95, 0.0), (1, 0.9, 0.0), (2, v, h))),
        ],
        0.1,
        0.7,
        (0.5, 0.1),
    ),
    "ap-table-high-dimensional": Case(lambda v, h: moved("ap", v), 0.234, 0.6),
    "ap-high-frequency": Case(
        lambda v, h: [*moved("ap", 0.234), one("ap", "dct.low4", v, h, index=0), one("ap", "dct.low4", v / 2, index=1)],
        0.002,
        0.7,
        (0.5, 0.1),
    ),
    "segment-follows-position": Case(
        lambda v, h: [*probes("dstg", "segment", "position", [0.94, v, 0], h, 2), *used("dstg", "segment")],
        0.85,
        0.6,
        (0.705, 0.03),
    ),
    "dstg-structure-beyond-position": Case(
        lambda v, h: [
            *probes("dstg", "segment", "position", [0.3, 0.4 + v, 0.0], h, 2),
            one("", "r2.segment.ceiling", 0.4, seed=None),
        ],
        0.2,
        -0.1,
        (0.0, 0.03),
    ),
    "ap-keeps-segments": Case(
        lambda v, h: probes("ap", "segment", "all", [0.95, v, 0.23], h, 2), 0.79, 0.5, (0.7125, 0.03)
    ),
    "ap-loses-segments": Case(
        lambda v, h: probes("ap", "segment", "all", [0.95, 0.79, v], h, 3), 0.23, 0.6, (0.395, 0.03)
    ),
    "relative-little-segment": Case(
        lambda v, h: [
            *probes("rp", "segment", "all", [0.1, v], h, 2),
            *probes("rope", "segment", "all", [0.1, 0.3]),
            *known("segment", 0.95),
        ],
        0.47,
        0.6,
        (0.57, 0.03),
    ),
    "intra-in-semantics": Case(intra, 0.67, 0.2, (0.25, 0.03)),
    "intra-in-all-models": Case(lambda v, h: four_intra(0.76, 0.8, v, 0.73, h, "rp"), 0.68, 0.3, (0.5, 0.03)),
    "intra-better-with-absolute": Case(
        lambda v, h: four_intra(0.73 + v, 0.8, 0.68, 0.73, h, "dstg"), 0.03, -0.1, (0.0, 0.03)
    ),
    "dstg-hidden-two-dimensional": Case(lambda v, h: states("hidden.top2", 0.95, v, h), 0.9, 0.6, (0.85, 0.03)),
    "dstg-sentences-separate": Case(lambda v, h: states("sentences.excess", 0.1, 0.1 + v, h), 0.3, -0.2, (0.01, 0.05)),
    "dstg-sentences-beyond-contiguity": Case(
        lambda v, h: states("sentences.excess", 0.5, v, h), 0.3, -0.2, (0.01, 0.05)
    ),
    "only-ap-predicts-position": Case(
        lambda v, h: regressions("position", 0.1 + v, 0.1, 0.1, h, "ap"), 0.7, 0.2, (0.4, 0.03)
    ),
    "baselines-predict-semantics-alike": Case(
        lambda v, h: regressions("semantic", 0.5, 0.5 + v, 0.5, h, "rp"), 0.05, 0.3, (0.1, 0.03)
    ),
    "dstg-costs-no-loss": Case(lambda v, h: losses(h, dstg=3 + v, ap=3.0, rp=3.1, rope=3.0), 0.0, 0.2, (0.05, 0.03)),
    "dstg-no-relative-heads": Case(
        lambda v, h: [*heads_above(v, h, 36, "kl.share.relative", 0.78, 0.1, "dstg"), *labelled(["absolute"] * 36)],
        0.0,
        0.2,
    ),
    "dstg-few-semantic-heads": Case(
        lambda v, h: [
            *heads("kl.semantic", []),
            *labelled(["semantic"] * round(36 * v) + ["absolute"] * (36 - round(36 * v))),
        ],
        0.25,
        0.5,
    ),
    "dstg-heads-cluster": Case(clusters, 1.0, 0.6),
    "dstg-relative-supports-semantics": Case(supports, 1, -1, (0, 1)),
    "dstg-relative-least-needed": Case(
        lambda v, h: [
            one("dstg", "ablation.remove", x, h, part=t)
            for t, x in (("semantic", 1.0), ("absolute", 0.5), ("relative", v))
        ],
        0.1,
        0.8,
        (0.5, 0.1),
    ),
    "dstg-relative-looks-near": Case(
        lambda v, h: [
            one("dstg", "reach.even", 40.0),
            *(
                one("dstg", "reach.mean", x, h, part=t)
                for t, x in (("semantic", 38.0), ("absolute", 30.0), ("relative", v))
            ),
        ],
        12.0,
        33.0,
        (30.0, 2.0),
    ),
    "dstg-retrieval-heads": Case(
        lambda v, h: heads("attention.retrieval", [0.01, v, 0.0, 0.0], h, part="semantic"), 0.4, 0.02, (0.1, 0.03)
    ),
    "dstg-relative-not-self": Case(
        lambda v, h: [
            one("dstg", "probe.length", 128.0),
            *heads("attention.retrieval", [0.4, 0.0, 0.5, 0.0], part="semantic"),
            *heads("attention.self", [v, 0.9, v, 0.9], h, part="relative"),
        ],
        0.001,
        0.3,
        (1 / 256, 0.002),
    ),
    "dstg-scores-matched": Case(
        lambda v, h: [
            one("dstg", "scores.std", x, half, layer=1, part=part, step=step)
            for step in (0, None)
            for part, x, half in (("absolute", 0.1 * v, 0.1 * h), ("semantic", 0.1, 0.0))
        ],
        1.0,
        1 / 15,
        (0.5, 0.1),
    ),
    "tupe-r-beats-bert-r": Case(lambda v, h: losses(h, tupe_r=3 - v, bert_r=3.0), 0.1, -0.1, (0.01, 0.05)),
    "tupe-r-beats-tupe-a": Case(lambda v, h: losses(h, tupe_r=3 - v, tupe_a=3.0), 0.1, -0.1, (0.01, 0.05)),
    "tupe-tie-cls-between": Case(
        lambda v, h: losses(h, bert_a=3.0, tupe_a_tie_cls=3 - v, tupe_a=2.8), 0.1, -0.1, (0.01, 0.05)
    ),
    "tupe-bert-ad-between": Case(
        lambda v, h: losses(h, bert_a=3.0, bert_ad=3 - v, tupe_a_tie_cls=2.8), 0.1, -0.1, (0.01, 0.05)
    ),
    "tupe-a-30-percent": Case(lambda v, h: converges("tupe-a", "bert-a", v, h), 0.3, 0.6, (0.4, 0.05)),
    "tupe-r-30-percent": Case(lambda v, h: converges("tupe-r", "bert-r", v, h), 0.3, 0.6, (0.4, 0.05)),
    "tupe-mixed-correlations-uniform": Case(stds, 0.2, 0.8, (1 / 3, 0.05)),
    "tupe-five-patterns": Case(patterns, 5, 4),
    "tupe-first-column": Case(
        lambda v, h: [
            *heads_above(v, h, 8, "theta.key", 2.0, 0.5, "tupe-a"),
            *heads("theta.mean", [0.5] * 8, model="tupe-a"),
            *heads("theta.std", [1.0] * 8, model="tupe-a"),
        ],
        0.75,
        0.25,
    ),
    "tupe-free-form-slower": Case(lambda v, h: converges("bert-a", "tupe-free", v, h), 0.3, 0.8, (0.5, 0.05)),
    "tupe-product-bias-marginal": Case(lambda v, h: losses(h, tupe_r=3.0, tupe_product=3 - v), 0.0, 0.2, (0.05, 0.03)),
    "geom-mds-exact": Case(lambda v, h: tables("mds", half=h, mds=v), 0.0, 0.01, (1e-6, 1e-3)),
    "geom-mds-least-stress": Case(
        lambda v, h: [*tables("mds", half=h, index=1, mds=0.3), corpus("stress.raw", 0.3 - v, part="smacof", index=1)],
        0.0,
        0.1,
        (0.0, 0.05),
    ),
    "geom-sinusoidal-like-rope": Case(lambda v, h: tables("rope", half=h, rope=272 * (1 + v)), 0.0257, 0.2, (0.03, 5)),
    "geom-sinusoids-above-zero": Case(lambda v, h: tables(half=h, sinusoidal=v), 272.0, 0.5, (1.0, 0.1)),
    "geom-sinusoids-near-optimal": Case(
        lambda v, h: tables("sinusoidal", "optimal.corrected", h, sinusoidal=v, random=1.0), 0.3, 0.9, (0.5, 0.1)
    ),
    "geom-random-worst": Case(
        lambda v, h: tables("random", half=h, alibi=0.5, rope=279.0, random=279 * v), 4.79, 0.5, (1.0, 10)
    ),
    "geom-random-worst-optimal": Case(
        lambda v, h: tables("random", "optimal.corrected", h, sinusoidal=0.1, alibi=0.2, rope=0.1, random=0.2 * v),
        1.5,
        0.5,
        (1.0, 0.05),
    ),
    "geom-stress-exponential": Case(
        lambda v, h: widths(np.exp(np.array([16, 32, 64, 128]) / 20) if v > 0 else [1, 2, 4, 8]), 1, -1
    ),
    "geom-stress-grows": Case(lambda v, h: widths([1, 2, 3, 3 + v]), 1, -1),
    "geom-rank-full": Case(
        lambda v, h: [*tables(), corpus("rank", 255 * v, h), corpus("positions.kept", 256.0)], 0.996, 0.5, (0.9, 10)
    ),
    "geom-dimensions-real": Case(
        lambda v, h: [*tables(), corpus("rank.corrected", 255 * v, h), corpus("positions.kept", 256.0)],
        1.0,
        0.1,
        (0.9, 10),
    ),
    "geom-toeplitz": Case(lambda v, h: [*tables(), corpus("lag.share.corrected", v, h)], 0.95, 0.4, (0.9, 0.02)),
    "geom-circulant": Case(lambda v, h: [*tables(), corpus("circulant.corrected", v, h)], 0.95, 0.4, (0.9, 0.02)),
    "geom-mds-monotone": Case(
        lambda v, h: [*tables(), corpus("violations.corrected", v, h, part="mds")], 0.22, 0.45, (0.368, 0.05)
    ),
    "geom-corpus-monotone": Case(
        lambda v, h: [*tables(), corpus("violations.corrected", v, h, part="corpus")], 0.2, 0.45, (0.368, 0.05)
    ),
    "geom-two-eigenvectors": Case(
        lambda v, h: regimes(
            [*tables(), *(corpus("mds.share.corrected", x, y, index=i) for i, x, y in ((0, v - 0.3, h), (1, 0.3, 0.0)))]
        ),
        0.799,
        0.4,
        (0.5, 0.05),
    ),
    "geom-rank-3-suffices": Case(
        lambda v, h: regimes(tables("mds", half=h, index=3, sinusoidal=18.98, mds=18.98 * v)), 0.00248, 0.5, (0.01, 0.1)
    ),
    "geom-rank-3-suffices-optimal": Case(
        lambda v, h: regimes(tables("mds", "optimal.corrected", h, 3, sinusoidal=0.2, mds=0.2 * v)),
        0.005,
        0.5,
        (0.1, 0.01),
    ),
    "geom-low-rank-saves": Case(
        lambda v, h: [
            *tables(),
            corpus("parameters", 98304 * v, part="mds", index=64),
            corpus("parameters", 98304.0, part="free"),
        ],
        0.583,
        1.3,
    ),
    "geom-optimal-on-new-text": Case(
        lambda v, h: [
            *tables(),
            corpus("stress.held_out", v, h, part="mds.chosen"),
            corpus("stress.held_out", 1.0, part="random"),
        ],
        0.2,
        1.5,
        (1.0, 0.1),
    ),
    "geom-no-position-without-signal": Case(
        lambda v, h: probes("nope", "token", "all", [0.01, v, 0.01], h, 2), 0.05, 0.6, (0.25, 0.03)
    ),
    "geom-nope-blind-to-shift": Case(shifted("nope", "all"), 0.0, 0.3, (0.05, 0.02)),
    "geom-position-needed": Case(lambda v, h: losses(h, nope=3 + v, ap=3.0), 0.2, -0.2, (0.01, 0.05)),
    "geom-separation-positive": Case(lambda v, h: stages("separation", [0.7, v]), 0.35, 0.0),
    "geom-separation-flat": Case(lambda v, h: [*stages("separation", [100.0, 100 * (1 + v)]), *tuned(0.7)], 0.01, 0.5),
    "geom-learned-monotone": Case(lambda v, h: stages("violations", [0.5, v], h), 0.254, 0.5, (0.368, 0.05)),
    "geom-learned-correlates": Case(lambda v, h: stages("correlation.corrected", [0.0, v], h), 0.168, 0.0, (0.1, 0.05)),
    "geom-layer-peak": Case(lambda v, h: projections(v, "raw"), 3.0, 1.2),
    "geom-states-peak": Case(
        lambda v, _half: [
            *(one("ap", "hidden.stress", x, layer=i, part="all") for i, x in enumerate((0.1, 0.1 * v, 0.1, 0.1), 1)),
            one("corpus", "corpus.from_start", 1.0, seed=None),
            one("ap", "scores.std", 0.1, layer=1, part="mixed"),
        ],
        3.0,
        1.2,
    ),
    "geom-layer-peak-optimal": Case(lambda v, h: projections(v, "optimal"), 3.0, 1.2),
    "geom-mean-embeddings-differ": Case(
        lambda v, h: [one("ap", "h1", v, h), one("ap", "h1.floor", 1.0)], 2.0, 0.5, (1.0, 0.1)
    ),
    "geom-swaps-cost": Case(
        lambda v, h: [
            one("ap", "swap.loss", x, half, part="swapped", index=lag) for lag, x, half in ((1, v, h), (2, 0.5, 0.0))
        ],
        0.1,
        -0.1,
        (0.01, 0.05),
    ),
    "lowdim-ten-components": Case(lambda v, h: table("pca.top10", v), 0.53, 0.3),
    "lowdim-slow-components": Case(lambda v, h: table("fft.turns", 512 * v, index=0), 0.0957, 0.3),
    "lowdim-pairs-rotate": Case(
        lambda v, h: table("fft.turns", 5.0, index=0) + table("rotation.strength", v, part="1+2", index=0), 0.9, 0.2
    ),
    "lowdim-equivariant": Case(
        lambda v, h: [*table("equivariance", v), Record("s", "bert", "equivariance.null", 0.1, 0.05, 0.2)], 0.8, 0.1
    ),
    "lowdim-equivariant-from-few": Case(
        lambda v, h: [
            *table("equivariance", 0.9),
            *table("equivariance.first", v, index=10),
            Record("s", "bert", "equivariance.null", 0.1, 0.05, 0.2),
        ],
        0.88,
        0.3,
    ),
    "lowdim-words-high-dimensional": Case(lambda v, h: table("n50", v, part="words"), 19.3, 5),
    "lowdim-words-above-positions": Case(lambda v, h: table("n50", 4 + v, part="words"), 17.2, -2),
    "lowdim-sinusoidal-row": Case(sinusoidal_row, 0.52, 0.485),
    "split-semantics-without-position": Case(in_split("token", "semantic", "position", 0.8), 0.0, 0.5, (0.25, 0.03)),
    "split-position-without-semantics": Case(in_split("intra", "position", "semantic", 0.8), 0.0, 0.5, (0.25, 0.03)),
    "split-extends-by-table": Case(lambda v, h: longer("split", v, h), 0.0, -0.4, (-0.06, 0.03)),
    "dstg-extends-by-table": Case(lambda v, h: longer("dstg", v, h), 0.0, -0.4, (-0.06, 0.03)),
    "separate-tables-extend-better": Case(
        lambda v, h: [*longer("split", v, h), *longer("ap", -0.1, 0.0)], 0.0, -0.4, (-0.11, 0.03)
    ),
    "split-position-kept": Case(
        lambda v, h: [*probes("split", "token", "position", [0.98, 0.9, v], h, 3), *used("split", layer=3)],
        0.9,
        0.3,
        (0.735, 0.03),
    ),
}


def verdict(name, records):
    return evaluate(records, [BY_ID[name]])[0]
