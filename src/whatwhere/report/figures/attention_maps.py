"""What the attention itself looks at: distances, places, neighbours over training, and patterns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...records.metric import Metric
from ...records.metrics import metric
from ...records.table import ANY, Point, average, curve
from .. import schemes
from ..figure import Cell, Panel, row
from ..forms.axes import SMALLEST, Axis
from ..forms.curves import LEVEL, MOST, Curves, Line
from ..forms.form import drawn, sample
from ..forms.maps import Maps, heatmap, thinned
from ..forms.rows import Row, Rows
from ..loaded_run import Run
from ..numbers import fixed
from ..titles import best, claimed, mark, of_story, share, story, two_numbers
from .head_map import TOTAL, colour, heads, in_order, parts_of, seeds_of, short, where

LOOKS = tuple(f"attention.{look}" for look in ("previous", "next", "self", "local", "special", "retrieval", "broad"))
MATRICES = {
    "word-word": "words with words",
    "word-position": "words with positions",
    "position-word": "positions with words",
    "position-position": "positions with positions",
}
# Metric of the products -> its column.
PRODUCTS = {
    "correlation.share": "Share",
    "correlation.row": "Between rows",
    "correlation.column": "Between columns",
    "correlation.std": "Standard deviation",
}
PATTERNS = {"global": "far, not near", "local": "near", "broad": "everywhere", "previous": "before", "next": "after"}
MOST_LAYERS = 12  # lines of a profile; of deeper models every second layer and the last
NEAR = 16  # lags drawn one by one; beyond, every fourth


def _terms(run: Run, terms: Sequence[str]) -> list[str]:
    """Terms of a model that are drawn, all together first; where models are many, or a term is alone, no others."""
    if TOTAL in terms and (schemes.many(run) or len(terms) == 2):
        return [TOTAL]
    return sorted(terms, key=lambda t: t != TOTAL)


def _panel_of(model: str, term: str, terms: int) -> str:
    if terms == 1:
        return model
    return f"{model}, all terms" if term == TOTAL else f"{model}, {short(term)} alone"


def _best_by(run: Run, name: str, caption: str, nothing: str) -> str:
    """The best head of the story's model by all terms together."""
    models = [m for m in run.models if heads(run, name, m, TOTAL)]
    if not models:
        return nothing
    model = story(run, models)
    values = {where(at): p for at, p in heads(run, name, model, TOTAL).items()}
    return best(values, caption.format(f"`{model}`"), write=share, mark=mark(run, model))


def _profile_seeds(run: Run) -> list[int | None]:
    """The training seeds whose profiles are drawn."""
    return [seed for seed, arrays in (run.arrays_of("attention", m) for m in run.models) if arrays]


@Curves(
    "attention-profile",
    "Mean attention weight by distance",
    lambda run, lines: _best_by(
        run, "attention.local", "Weight in {} on the three nearest tokens of each side", "Attention by distance"
    ),
    y=Axis("", "log", floor=SMALLEST / 10),
    x=Axis("distance, tokens", "lags", word="distance"),
    columns=("Layer", ""),
    metric=Metric(name="mean weight"),
    records=("arrays/attention-*.npz", "attention.local: layer, head, part"),
    width=250,
    gaps=lambda run, lines: {"drawn": drawn(run.trainings[1], _profile_seeds(run))},
)
def profile(run: Run) -> Iterator[Line]:
    """Mean attention weight from a token to another, by how far it stands after the first (negative: before). Both axes
    are logarithmic. One line a layer, mean over its heads, named at its right end, stronger in deeper layers; single
    terms under a softmax of their own.{drawn}"""
    for model in run.models:
        _, arrays = run.arrays_of("attention", model)
        profiles = {k.removeprefix("profile."): v for k, v in arrays.items() if k.startswith("profile.")}
        if not profiles:
            continue
        lags = arrays["lags"]
        at = np.flatnonzero((np.abs(lags) <= NEAR) | (np.round(np.abs(lags)) % 4 == 0))
        at = at[thinned(len(at), MOST)]
        terms = _terms(run, in_order(profiles))
        for term in terms:
            depth = len(profiles[term])
            for layer in sorted({*range(0, depth, -(-depth // MOST_LAYERS)), depth - 1}):
                points = curve(profiles[term][layer][:, at], lags[at].tolist())
                shade = f"map-{3 + round(5 * layer / max(1, depth - 1))}"
                panel = _panel_of(model, term, len(terms))
                yield Line(points, f"{layer + 1}", "", shade, panel=panel, thick=1.8)


def _list_maps(run: Run) -> list[tuple[str, str, list[str]]]:
    """(model, term, metrics) of what is drawn."""
    maps = []
    for model in run.models:
        for term in _terms(run, in_order(part for look in LOOKS for part in parts_of(run, look, model))):
            maps.append((model, term, [look for look in LOOKS if heads(run, look, model, term)]))
    return [entry for entry in maps if entry[2]]


def _sampled(run: Run, panels: object) -> Mapping[str, str]:
    points = [
        p for model, term, looks in _list_maps(run) for look in looks for p in heads(run, look, model, term).values()
    ]
    return {"sample": sample(points), "drawn": drawn(run.trainings[1], [seeds_of(run, run.models[0])[0]])}


@Maps(
    "attention-looks",
    "What every head looks at",
    lambda run, panels: (
        claimed(run, "dstg-retrieval-heads", what="share of the weight")
        or _best_by(run, "attention.retrieval", "Weight in {} on the other copy of a token", "What heads look at")
    ),
    columns=("Model", "Seed", "Term", "Layer", "Head", "Place", "Weight", "Low", "High", "Documents"),
    records=tuple(f"{look}: layer, head, part" for look in LOOKS),
    every=True,
    gaps=_sampled,
)
def looks(run: Run) -> Iterator[tuple[Panel, list[list[Cell]]]]:
    """Mean attention weight of each head ({sample}) to the token before, the token after, the token itself, the three
    nearest on each side, special tokens; copy: weight to the other copy of the same token in a repeated text, minus
    that in a text that does not repeat; spread: entropy of its weights, 1 where all keys are equal.{drawn}"""
    maps = _list_maps(run)
    for model, term, looks in maps:
        values = [heads(run, look, model, term) for look in looks]
        every = sorted({at for points in values for at in points})
        z = np.array([[points[at].value if at in points else np.nan for at in every] for points in values])
        firsts = [i for i, at in enumerate(every) if i == 0 or every[i - 1][0] != at[0]]
        middles = [(a + b - 1) / 2 for a, b in zip(firsts, [*firsts[1:], len(every)], strict=True)]
        step = 1 if len(firsts) <= 12 else 2
        edge = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1}
        edge |= {"line": {"color": "@surface", "width": 3}}
        names = [metric(look).name for look in looks]
        look: dict[str, Any] = {
            "height": 24 * len(z) + 62,
            "trace": {"customdata": [[f"{layer}.{head}" for layer, head in every]] * len(z), "ygap": 1},
            "xaxis": {"tickvals": middles[::step], "ticktext": [str(every[i][0]) for i in firsts[::step]]},
            "yaxis": {"tickvals": names},
            "shapes": [edge | {"x0": i - 0.5, "x1": i - 0.5} for i in firsts[1:]],
        }
        title = _panel_of(model, term, sum(m == model for m, _, _ in maps))
        axes = ("layer, its heads side by side", "")
        hover = "layer.head %{customdata}<br>%{y}: %{z:.3f}"
        rows = [
            row(model, seed, short(term), *at, metric(name).name, p, p.n)
            for name in looks
            for seed in seeds_of(run, model)
            for at, p in heads(run, name, model, term, seed).items()
        ]
        yield heatmap(z, range(len(every)), names, title, hover, (0.0, 1.0), axes, **look), rows


def _terms_alone(lines: Sequence[Line]) -> dict[str, Point]:
    """What each term has at the last step; all terms together where there is no other."""
    ends = {line.part: line.end for line in lines if "top head" not in line.part}
    return {part: p for part, p in ends.items() if part != short(TOTAL)} or ends


@Curves(
    "neighbours",
    "Weight on the eight tokens on each side, by step",
    of_story("Weight in {} on the eight tokens of each side", _terms_alone, write=share),
    y=Axis("", "share", (0,)),
    x=Axis("training step", "steps", word="step"),
    columns=("Model", "Term"),
    records=("local.share: part, step", "local.best: part, step", "local.even"),
)
def neighbours(run: Run) -> Iterator[Line]:
    """Attention weight on the eight tokens on each side together, by training step (logarithmic, from 0), each term
    under a softmax of its own. Solid: mean over all heads; dotted: the head with most; even: what equal attention to
    all tokens would give."""
    for model in run.models:
        for term in parts_of(run, "local.share", model):
            if points := run.table.points("local.share", model, by="step", part=term):
                most = run.table.points("local.best", model, by="step", part=term, layer=ANY, head=ANY)
                name = short(term)
                ink = colour(term)
                dots = ("2px,4px", "circle")
                yield Line(points, model, name, ink, panel=model)
                yield Line(most, model, f"{name}, top head", ink, dots, panel=model, thick=1.4)
        if even := run.table.point("local.even", model):
            yield Line({0: even}, "even", kind=LEVEL, panel=model)


def _of_all_heads(run: Run, lines: object) -> str:
    model = next((m for m in run.models if len(run.table.distinct("part", "reach.mean", m)) > 2), "")
    if not model:
        return "Mean distance that attention looks over, by layer"
    ends = {part: run.table.point("reach.mean", model, part=part) for part in parts_of(run, "reach.mean", model)}
    reaches = {short(part): point.value for part, point in ends.items() if point and part != TOTAL}
    ranked = sorted(reaches, key=lambda term: -reaches[term])
    furthest_and_nearest = {term: fixed(reaches[term], 1) for term in (ranked[0], ranked[-1])}
    return two_numbers(f"Mean distance, in tokens, to what `{model}` looks at by a term alone", furthest_and_nearest)


@Curves(
    "reach",
    "Mean distance that attention looks over, by layer",
    _of_all_heads,
    y=Axis("distance in tokens", include=(0,)),
    columns=("Model", "Term"),
    records=("reach: part, layer, head", "reach.mean: part", "reach.even"),
)
def reach(run: Run) -> Iterator[Line]:
    """Mean distance in tokens from a token to those that it looks at, mean over the heads of a layer, each term under a
    softmax of its own; even: what equal attention to all tokens would give."""
    for model in run.models:
        for term in parts_of(run, "reach", model):
            heads = run.table.points("reach", model, by=("layer", "head"), part=term)
            layers = dict.fromkeys(layer for layer, _ in heads)
            points = {at: average([p for (layer, _), p in heads.items() if layer == at]) for at in layers}
            yield Line(points, model, short(term), colour(term), panel=model)
        if even := run.table.point("reach.even", model):
            yield Line({1: even}, "even", kind=LEVEL, panel=model)


@Maps(
    "correlations",
    "Variance of the four parts of the first block's scores, by head",
    lambda run, panels: (
        claimed(run, "tupe-mixed-correlations-uniform", what="share of the variance")
        or "Words and positions in the first scores"
    ),
    columns=("Model", "Seed", "Head", "Part", "Share", "Low", "High", *list(PRODUCTS.values())[1:], "n"),
    records=("arrays/correlations-*.npz", *(f"{name}: head, part" for name in PRODUCTS)),
    width=236,
)
def correlations(run: Run) -> Iterator[tuple[Panel | None, list[list[Cell]]]]:
    """The four parts of the scores of the first block where a position is added to a word (TUPE, equation 6), mean over
    heads and documents, on one scale a model with zero in the middle; the table has each part's share of the variance
    within a document, by head. At most three models are drawn."""
    arrays = {
        m: arrays_of_model
        for m in run.models
        if MATRICES.keys() <= (arrays_of_model := run.arrays_of("correlations", m)[1]).keys()
    }
    for model in sorted(arrays, key=lambda m: m != story(run, list(arrays)))[:3]:
        means = {k: np.nanmean(arrays[model][k], axis=0) for k in MATRICES}
        extent = max(float(np.nanmax(np.abs(m))) for m in means.values()) or 1.0
        for kind, mean in means.items():
            places = thinned(len(mean), 64 if len(arrays) <= 2 else 32)
            z = mean[np.ix_(places, places)]
            title = MATRICES[kind].capitalize() if len(arrays) == 1 else f"{model}: {MATRICES[kind]}"
            hover = f"{MATRICES[kind]}<br>query %{{y}}, key %{{x}}: %{{z:.3f}}"
            # One scale of the four, so one bar.
            look: dict[str, Any] = {"height": 330, "signed": True, "square": True}
            look |= {} if kind == "position-position" else {"trace": {"showscale": False}, "margin": {"r": 8}}
            yield heatmap(z, places, places, title, hover, (-extent, extent), ("key", "query"), **look), []
    for model in run.models:
        for kind in run.table.distinct("part", "correlation.share", model):
            for seed in seeds_of(run, model):
                shares, *others = (heads(run, name, model, kind, seed) for name in PRODUCTS)
                for at, p in shares.items():
                    rest = [o[at].value if at in o else None for o in others]
                    yield None, [row(model, seed, at[1], MATRICES.get(kind, kind), p, *rest, p.n)]


@Rows(
    "patterns",
    "Share of heads with each pattern",
    lambda run, rows: (
        claimed(run, "tupe-five-patterns", what="patterns")
        or best({f"{r.name} in `{r.panel}`": r.points[""] for r in rows}, "Share of heads by pattern", write=share)
    ),
    x=Axis("share of heads", "share", (0, 1)),
    columns=("Model", "", "Pattern"),
    records=("patterns.share: part", "pattern: layer, head, part"),
    width=290,
)
def patterns(run: Run) -> Iterator[Row]:
    """Heads by the pattern of their scores over positions alone, without words (TUPE 4.4), as a share of all heads of a
    model."""
    for model in run.models:
        for part, name in PATTERNS.items():
            if point := run.table.point("patterns.share", model, part=part):
                yield Row(name, {"": point}, model, colour="untied")


# Figures of each question, in their order (`report.questions`).
FIGURES = {"study.heads": (neighbours,)}
# Figures that few ask for, folded.
MORE = {
    "study.heads": (
        reach,
        profile,
        looks,
        correlations,
        patterns,
    )
}
