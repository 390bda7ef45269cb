"""Made-up records in the shapes that claims read: of models, layers, heads, tables and corpora."""

from dataclasses import replace

import numpy as np

from whatwhere.records.record import Record

SPREAD = np.array([-1.0, -0.5, 0, 0.5, 1])  # of five splits about their mean


def one(model, metric, value, half=0.0, seed=0, **place):
    bounds = (value - half, value + half) if half else (None, None)
    return Record("s", model, metric, value, *bounds, seed=seed, **place)


def corpus(metric, value, half=0.0, **place):
    return one("corpus", metric, value, half, None, **place)


def probes(model, target, part, values, half=0.0, noisy=0, metric="r2"):
    """Splits at layers 1, 2, ...; those of the layer `noisy` scatter by `half`."""
    found = [one(model, "r2.token", 0.0, layer=len(values), part="depth")]
    for layer, value in enumerate(values, 1):
        splits = value + (half if layer == noisy else 0.0) * SPREAD
        found += [
            one(model, f"{metric}.{target}", float(v), layer=layer, part=part, index=i) for i, v in enumerate(splits)
        ]
    return found


def used(model, target="token", layer=2, worth=1.0, written=0.8):
    """A position stream that is used: what the absolute term is worth, and R² of what a block writes."""
    writes = probes(model, target, "position", [0.0] * (layer - 1) + [written], metric="r2.update")
    return [one(model, "ablation.remove", worth, 0.001, part="absolute"), *(r for r in writes if r.part == "position")]


def losses(half, **models):
    names = {name.replace("_", "-"): value for name, value in models.items()}
    if half:
        return [one(name, "ablation.loss", value, half) for name, value in names.items()]
    return [one(m, "loss", v, part="validation", step=s) for m, v in names.items() for s in (90, 100)]


def heads(metric, values, half=0.0, model="dstg", part=None):
    """A metric of heads, of a model whose attention by content is worth something."""
    worth = [one(model, "ablation.remove", 1.0, part="semantic")]
    return worth + [
        one(model, metric, float(v), half, layer=i // 4 + 1, head=i % 4, part=part) for i, v in enumerate(values)
    ]


def tables(part="sinusoidal", scale="raw", half=0.0, index=None, **stresses):
    """Stress of tables against the corpus; the half-width stands at `part`."""
    found = {"sinusoidal": 272.0, **stresses}
    return [
        corpus(
            f"stress.{scale}", value, half if name == part else 0.0, part=name, index=index if name == part else None
        )
        for name, value in found.items()
    ] + ([corpus("stress.raw", 272.0, part="sinusoidal")] if scale != "raw" else [])


def table(metric, value, model="bert", **place):
    """A value of a table from elsewhere: no seed, nothing of its start."""
    return [one(model, "n50", 4.0, seed=None, n=512), one(model, metric, value, seed=None, n=512, **place)]


def known(target, value=0.99):
    """What is given positions, beside which another hardly has any."""
    return probes("ap", target, "all", [value, 0.5, 0.4])


def regimes(records):
    """The same records of the paper's synthetic corpus."""
    return [replace(r, model="synthetic:three-regimes") for r in records]


def moved(model, share=0.9):
    """A table that stands above its noise."""
    return [one(model, "table.floor", 0.3, part="change"), one(model, "pca.top2", share)]


def stages(metric, values, half=0.0, part="corpus"):
    """A table's metric at steps 0, 10, ..., the half-width at the last."""
    found = [one("ap", "separation", 1.0, part="corpus", step=0)] if metric != "separation" else []
    return found + [
        one("ap", metric, v, half if i == len(values) - 1 else 0.0, part=part, step=10 * i)
        for i, v in enumerate(values)
    ]


def widths(values):
    at = 16 * 2 ** np.arange(len(values))
    return [
        *tables(),
        *(corpus("stress.raw", float(v), part="sinusoidal", index=int(d)) for d, v in zip(at, values, strict=True)),
    ]


def labelled(labels, model="dstg", worth=0.02, half=0.01):
    """Heads by their labels, of each of which the loss rises by `worth` without that term in that head alone."""
    found = []
    for i, label in enumerate(labels):
        place = {"layer": i // 4 + 1, "head": i % 4, "part": label}
        found += [one(model, "head.label", 1.0, **place), one(model, "ablation.remove", worth, half, **place)]
    return found


def heads_above(share, half, count, metric, high, low, model, part=None):
    """That share of the heads has the high value."""
    k = round(share * count)
    return heads(metric, [high] * k + [low] * (count - k), half, model, part)


def supports(sign, half):
    order = np.arange(12.0)
    semantic = order if sign > 0 else order[::-1] if sign < 0 else order[[6, 1, 8, 3, 10, 5, 0, 7, 2, 9, 4, 11]]
    sets = {"relative": order, "semantic": semantic, "absolute": semantic[::-1] if sign else 11 - semantic}
    return [r for term, values in sets.items() for r in heads(f"kl.{term}", values / 100)]


def clusters(clear, half, semantic=0.25):
    """36 heads: that share of them clear, of which `semantic` are the semantic group; the half-width stands at the
    semantic term."""
    k = round(clear * 36)
    total = 36
    group = round(semantic * k)
    shares = [0.9] * group + [0.1] * (k - group) + [0.6] * (total - k)
    return [
        *labelled(["semantic" if share > 0.5 else "absolute" for share in shares]),
        *(r for r in heads("kl.semantic", shares, half)),
        *(r for r in heads("kl.absolute", [1 - s for s in shares])),
    ]


def regressions(stream, ap, rp, rope, half, noisy):
    found = probes("dstg", "token", "position", [0.9, 0.9, 0])
    for name, value in (("ap", ap), ("rp", rp), ("rope", rope)):
        found += probes(name, stream, "dstg", [0.0, value], half if name == noisy else 0.0, 2, "regression")
    return found


def converges(model, baseline, share, half):
    reached = one(model, "convergence.reached", 1.0, part=baseline)
    return [
        reached,
        one(model, "convergence.share", share, half, part=baseline),
        *losses(0, **{baseline.replace("-", "_"): 3.0}),
    ]


def projections(ratio, metric):
    values = (1000, 1000, 1000 * ratio, 1000, 1000, 1000)
    found = [one("ap", f"projected.stress.{metric}", v, layer=i, part="sinusoidal") for i, v in enumerate(values, 1)]
    added = one("ap", "scores.std", 0.1, layer=1, part="mixed")
    return [*found, added, one("ap", "projected.stress.raw", 5.0, layer=0, part="sinusoidal")]


def longer(model, gain, half):
    """What three ways to read on gain, the best but for adaptation the first."""
    ways = {"rotation": (gain, half), "cyclic": (gain - 0.5, 0.0), "rotation+all": (gain + 0.5, 0.0)}
    found = [one(model, "length.gain", *value, part=way) for way, value in ways.items()]
    return [*found, one(model, "length.frequencies", 6.0), one(model, "length.beyond", 4.0, part="in-pieces")]


def in_split(target, read, other, share):
    """Probes of `target` in the part of split that is read, and a share of it in the other."""
    return lambda v, h: [
        *probes("split", target, read, [0.0, v, 0.0], h, 2),
        *probes("split", target, other, [0.9, share, 0.9], 0.0, 2),
    ]


def sinusoidal_row(v, _half):
    found = {"pca.top10": v, "n50.count": 10.0, "n50": 1000 / 128}
    return [one("sinusoidal", metric, value, seed=None, n=512) for metric, value in found.items()]
