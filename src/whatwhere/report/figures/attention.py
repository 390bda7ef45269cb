"""What the attention itself looks at: distances, places, neighbours over training, and patterns."""

import math
from collections.abc import Sequence

import numpy as np

from ...points import ANY, Point
from .. import schemes
from ..figure import Cell, Figure, count_cell, measured, text, value
from ..forms.axes import SMALLEST, Axis
from ..forms.curves import LEVEL, MOST, Curves, Line
from ..forms.maps import Map, Maps, thinned
from ..forms.marks import drawn, sample, share
from ..forms.rows import Row, Rows
from ..run import Run
from ..titles import best, claimed, judged, story
from .heads import Head, best_head, heads, parts_of, seeds_of
from .terms import TOTAL, colour, in_order, short

LOOKS = ("previous", "next", "self", "local", "special", "retrieval", "broad")
WORDS = {
    "previous": "before",
    "next": "after",
    "self": "itself",
    "local": "near",
    "special": "special",
    "retrieval": "copy",
    "broad": "spread",
}
MATRICES = {
    "word-word": "words with words",
    "word-position": "words with positions",
    "position-word": "positions with words",
    "position-position": "positions with positions",
}
PATTERNS = {"global": "far, not near", "local": "near", "broad": "everywhere", "previous": "before", "next": "after"}
MOST_LAYERS = 12  # lines of a profile; of deeper models every second layer and the last
NEAR = 16  # lags drawn one by one; beyond, every fourth


def _panel_of(model: str, term: str, terms: int) -> str:
    return model if terms == 1 else f"{model}, {'all terms' if term == TOTAL else f'{short(term)} alone'}"


def _profiles(run: Run) -> Sequence[Line]:
    """Weight by distance of each layer, mean over its heads: for all terms together, and each under a softmax of its
    own."""
    lines = []
    for model in run.models:
        _, held = run.held("attention", model)
        own = {k.removeprefix("profile."): v for k, v in held.items() if k.startswith("profile.") and v.ndim == 3}
        lags = held.get("lags")
        if not own or lags is None or any(v.shape[2] != len(lags) for v in own.values()):
            continue
        terms = in_order(own)
        terms = (
            [TOTAL]
            if TOTAL in own and (schemes.many(run) or len(own) == 2)
            else sorted(terms, key=lambda t: t != TOTAL)
        )
        at = [i for i, lag in enumerate(lags) if abs(lag) <= NEAR or round(abs(float(lag))) % 4 == 0]
        at = [at[i] for i in thinned(len(at), MOST)]
        for term in terms:
            curves = own[term].mean(axis=1)  # as the arrays are of single heads, and a panel of a hundred lines is none
            depth = len(curves)
            for layer in sorted({*range(0, depth, -(-depth // MOST_LAYERS)), depth - 1}):
                points = {
                    float(lags[i]): Point.between(float(curves[layer, i]))
                    for i in at
                    if math.isfinite(curves[layer, i])
                }
                shade = f"map-{3 + round(5 * layer / max(1, depth - 1))}"
                lines.append(
                    Line(points, f"{layer + 1}", "", shade, panel=_panel_of(model, term, len(terms)), thick=1.8)
                )
    return lines


def _nearest(run: Run, lines: Sequence[Line]) -> str:
    models = [m for m in run.models if heads(run, "attention.local", m, TOTAL)]
    if not models:
        return "Attention by distance"
    model = story(run, models)
    return judged(
        run,
        [model],
        best_head(
            run,
            "attention.local",
            model,
            TOTAL,
            f"In `{model}` the three nearest tokens on each side get most from",
            _percent,
        ),
    )


def _percent(point: Point) -> str:
    return share(point.value)


PROFILE = Curves(
    "attention-profile",
    "attention.local",
    _profiles,
    _nearest,
    "Mean attention weight from a token to the one so many places after it, negative: before it. Both axes are "
    "logarithmic. One line a layer, mean over its heads, named at its right end, stronger in deeper layers; single "
    "terms under a softmax of their own",
    "Mean attention weight by distance",
    Axis("distance, tokens", "lags", word="distance"),
    Axis("", "log", floor=SMALLEST / 10),
    ("Layer", ""),
    ("arrays/attention-*.npz", "attention.local: layer, head, part"),
    250,
)


def _seen(run: Run) -> list[tuple[str, str, dict[str, dict[Head, Point]]]]:
    """(model, term, look -> heads) of what is drawn."""
    found = []
    for model in run.models:
        terms = in_order(p for look in LOOKS for p in parts_of(run, f"attention.{look}", model))
        terms = [TOTAL] if TOTAL in terms and schemes.many(run) else sorted(terms, key=lambda t: t != TOTAL)
        for term in terms:
            of = {look: heads(run, f"attention.{look}", model, term) for look in LOOKS}
            found.append((model, term, {look: by for look, by in of.items() if by}))
    return [each for each in found if each[2]]


def _looks(run: Run) -> Sequence[Map]:
    maps = []
    seen = _seen(run)
    for model, term, of in seen:
        every = sorted({at for by in of.values() for at in by})
        z = np.array([[by[at].value if at in by else np.nan for at in every] for by in of.values()])
        firsts = [i for i, at in enumerate(every) if i == 0 or every[i - 1][0] != at[0]]
        middles = [(a + b - 1) / 2 for a, b in zip(firsts, [*firsts[1:], len(every)], strict=True)]
        step = 1 if len(firsts) <= 12 else 2
        edge = {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": "@surface", "width": 3},
        }
        more = {
            "trace": {"customdata": [[f"{layer}.{head}" for layer, head in every]] * len(z), "ygap": 1},
            "xaxis": {"tickvals": middles[::step], "ticktext": [str(every[i][0]) for i in firsts[::step]]},
            "yaxis": {"tickvals": [WORDS[look] for look in of]},
            "shapes": [edge | {"x0": i - 0.5, "x1": i - 0.5} for i in firsts[1:]],
        }
        title = _panel_of(model, term, sum(m == model for m, _, _ in seen))
        hover, axes = "layer.head %{customdata}<br>%{y}: %{z:.3f}", ("layer, its heads side by side", "")
        maps.append(
            Map(
                z,
                list(range(len(every))),
                [WORDS[look] for look in of],
                hover,
                (0.0, 1.0),
                axes,
                title,
                height=24 * len(z) + 62,
                more=more,
            )
        )
    return maps


def _look_rows(run: Run) -> list[list[Cell]]:
    return [
        [
            text(model),
            count_cell(seed),
            text(short(term)),
            *map(count_cell, at),
            text(WORDS[look]),
            *measured(p),
            count_cell(p.n),
        ]
        for model, term, of in _seen(run)
        for look in of
        for seed in seeds_of(run, model)
        for at, p in heads(run, f"attention.{look}", model, term, seed).items()
    ]


def _retrieval(run: Run) -> str:
    models = [m for m in run.models if heads(run, "attention.retrieval", m, TOTAL)]
    if told := claimed(run, "dstg-retrieval-heads", what="share of the weight"):
        return told
    if not models:
        return "What heads look at"
    model = story(run, models)
    return judged(
        run,
        [model],
        best_head(
            run,
            "attention.retrieval",
            model,
            TOTAL,
            f"In `{model}` the other copy of a token is found best by",
            _percent,
        ),
    )


def _look_words(run: Run) -> str:
    points = [p for _, _, of in _seen(run) for by in of.values() for p in by.values()]
    return (
        f"Mean attention weight of each head ({sample(points)}) to the token before, the token after, the token "
        "itself, the three nearest on each side, special tokens; copy: weight to the other copy of the same token in a "
        "repeated text, minus that in a text that does not repeat; spread: entropy of its weights, 1 where all keys "
        "are equal." + drawn(run.seeds, [seeds_of(run, run.models[0])[0]])
    )


LOOKING = Maps(
    "attention-looks",
    _looks,
    _retrieval,
    _look_words,
    "What every head looks at",
    lambda run: ["Model", "Seed", "Term", "Layer", "Head", "Place", "Weight", "Low", "High", "Documents"],
    _look_rows,
    tuple(f"attention.{look}: layer, head, part" for look in LOOKS),
    text=6,
    behind="The table below holds every value.",
)


def _neighbours(run: Run) -> Sequence[Line]:
    lines = []
    for model in run.models:
        for term in parts_of(run, "local.share", model):
            if points := run.table.points("local.share", model, by="step", part=term):
                best_of = run.table.points("local.best", model, by="step", part=term, layer=ANY, head=ANY)
                lines.append(Line(points, model, short(term), colour(term), panel=model))
                lines.append(
                    Line(
                        best_of,
                        model,
                        f"{short(term)}, best head",
                        colour(term),
                        ("2px,4px", "circle"),
                        panel=model,
                        thick=1.4,
                    )
                )
        if even := run.table.point("local.even", model):
            lines.append(Line({0: even}, "even", kind=LEVEL, panel=model))
    return lines


def _leader(run: Run, lines: Sequence[Line]) -> str:
    """Which term alone attends to neighbours most at the last step."""
    model = story(run, [each.name for each in lines])
    mine = {each.part: each.end for each in lines if each.name == model and "best head" not in each.part}
    terms = {part: p for part, p in mine.items() if part != short(TOTAL)} or mine
    return judged(
        run, [model], best(terms, f"In `{model}` the eight tokens on each side get most weight by", write=_percent)
    )


NEIGHBOURS = Curves(
    "neighbours",
    "local.share",
    _neighbours,
    _leader,
    "Attention weight on the eight tokens on each side together, by training step (logarithmic, from 0), each term "
    "under a softmax of its own. Solid: mean over all heads; dotted: the head with most; even: what equal attention to "
    "all tokens would give",
    "Weight on the eight tokens on each side, by step",
    Axis("training step", "steps", word="step"),
    Axis("", "share", (0,)),
    ("Model", "Term"),
    ("local.share: part, step", "local.best: part, step", "local.even"),
)


def _correlated(run: Run) -> Sequence[Map]:
    """The four products of words and positions in the first block's scores, mean over heads, on one scale a model."""
    held = {m: run.held("correlations", m)[1] for m in run.models}
    full = [m for m, a in held.items() if all(k in a and a[k].ndim == 3 for k in MATRICES)]
    maps = []
    for model in sorted(full, key=lambda m: m != story(run, full))[:3]:
        means = {k: np.nanmean(held[model][k], axis=0) for k in MATRICES}
        extent = max(float(np.nanmax(np.abs(m))) for m in means.values()) or 1.0
        for kind, mean in means.items():
            at = thinned(len(mean), 64 if len(full) <= 2 else 32)
            title = MATRICES[kind].capitalize() if len(full) == 1 else f"{model}: {MATRICES[kind]}"
            hover, last = f"{MATRICES[kind]}<br>query %{{y}}, key %{{x}}: %{{z:.3f}}", kind == "position-position"
            more = (
                {} if last else {"trace": {"showscale": False}, "margin": {"r": 8}}
            )  # one scale of the four, so one bar
            maps.append(
                Map(
                    mean[np.ix_(at, at)],
                    at,
                    at,
                    hover,
                    (-extent, extent),
                    ("key", "query"),
                    title,
                    "",
                    330,
                    True,
                    True,
                    more,
                )
            )
    return maps


def _correlation_rows(run: Run) -> list[list[Cell]]:
    rows = []
    for model in run.models:
        for kind in run.table.distinct("part", "correlation.share", model):
            for seed in seeds_of(run, model):
                known = [
                    heads(run, f"correlation.{what}", model, kind, seed) for what in ("share", "row", "column", "std")
                ]
                for at, p in known[0].items():
                    rest = [value(o[at].value) if at in o else Cell("–") for o in known[1:]]
                    named = text(MATRICES.get(kind, kind))
                    rows.append(
                        [text(model), count_cell(seed), count_cell(at[1]), named, *measured(p), *rest, count_cell(p.n)]
                    )
    return rows


CORRELATIONS = Maps(
    "correlations",
    _correlated,
    lambda run: (
        claimed(run, "tupe-mixed-correlations-uniform", what="share of the variance")
        or "Words and positions in the first scores"
    ),
    lambda run: (
        "The four parts of the scores of the first block where a position is added to a word (TUPE, equation 6), mean "
        "over heads and documents, on one scale a model with zero in the middle; the table has each part's share of "
        "the variance within a document, by head. At most three models are drawn."
    ),
    "Variance of the four parts of the first block's scores, by head",
    lambda run: [
        "Model",
        "Seed",
        "Head",
        "Part",
        "Share",
        "Low",
        "High",
        "Between rows",
        "Between columns",
        "Standard deviation",
        "n",
    ],
    _correlation_rows,
    ("arrays/correlations-*.npz", *(f"correlation.{what}: head, part" for what in ("share", "row", "column", "std"))),
    236,
    4,
)

PATTERN = Rows(
    "patterns",
    "patterns.share",
    lambda run: [
        Row(words, {"": p}, m, colour="untied")
        for m in run.models
        for k, words in PATTERNS.items()
        if (p := run.table.point("patterns.share", m, part=k))
    ],
    lambda run, rows: (
        claimed(run, "tupe-five-patterns", what="patterns")
        or best({f"`{r.name}` in `{r.panel}`": r.points[""] for r in rows}, "Most heads look", write=_percent)
    ),
    "Heads by the pattern of their scores over positions alone, without words (TUPE 4.4), as a share of all heads of a "
    "model",
    "Share of heads with each pattern",
    Axis("share of heads", "share", (0, 1)),
    ("Model", "", "Pattern"),
    ("patterns.share: part", "pattern: layer, head, part"),
    290,
)


def figures(run: Run) -> list[Figure]:
    """What heads look at."""
    return [f for f in (each.draw(run) for each in (PROFILE, LOOKING, NEIGHBOURS, CORRELATIONS, PATTERN)) if f]
