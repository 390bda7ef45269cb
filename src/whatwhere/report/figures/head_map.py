"""Who uses position: the taxonomy of heads, and what a term's removal costs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...records.gates import NOTHING, labels
from ...records.table import Point
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, measured, row, value
from ..forms.axes import Axis
from ..forms.curves import LEVEL, Curves, Line
from ..forms.dots import Cloud, Dot
from ..forms.form import dots, drawn, errors, note, sample, segments, shaded, symbols
from ..forms.rows import Row, Rows
from ..loaded_run import Run
from ..numbers import interval, number, percent, span
from ..style import TEXT_SIZE, axis, layout, plain
from ..titles import best, claimed, mark, of_story, rise, story

# Term -> (colour, what a head that follows it looks for, the term in a few words).
TERMS: dict[str, tuple[str, str, str]] = {
    "semantic": ("semantic", "meaning", "semantic"),
    "absolute": ("absolute", "absolute position", "absolute"),
    "relative": ("relative", "relative position", "relative"),
    "mixed": ("combined", "words and positions in one", "mixed"),
    "semantic_to_absolute": ("untied", "position from words", "words to positions"),
    "absolute_to_semantic": ("untied", "words from position", "positions to words"),
    "semantic_to_relative": ("untied", "distance from words", "words to distances"),
    "relative_to_semantic": ("untied", "words from distance", "distances to words"),
    "total": ("combined", "all terms", "total"),
    "several": ("combined", "no term alone", "several"),
    NOTHING: ("combined", "no single term that is worth anything here", "none"),
    "stream.position": ("absolute", "the position stream", "position stream"),
    "stream.semantic": ("semantic", "the semantic stream", "semantic stream"),
}
TOTAL = "total"
SEVERAL = "several"
Head = tuple[int, int]  # layer from 1, head from 0
STABLE = 0.95  # share of bootstrap draws that must give a head the same label for it to be drawn filled
HEIGHT = 3**0.5 / 2  # of the triangle with sides of 1
CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.5, HEIGHT))
MARGINS = 100  # pixels left and right of every panel together, so that all can be equally wide
MOST_SHADES = 8  # layers in the key of the triangle
LEAST = 1e-6  # nats of divergence that are drawn


def colour(term: str) -> str:
    """Return the colour name of a term; its stream's where it has one."""
    return TERMS.get(term, ("untied", "", ""))[0]


def meaning(term: str) -> str:
    """Return in words what a head of a term attends to."""
    return TERMS[term][1] if term in TERMS else term.replace("_", " ")


def short(term: str) -> str:
    """Return a term in a few words."""
    return TERMS[term][2] if term in TERMS else term.replace("_", " ")


def in_order(terms: Iterable[str]) -> list[str]:
    """Return terms in the order of `TERMS`, others before `total`, `several` and none."""
    order = {t: i for i, t in enumerate(TERMS)}
    last = {TOTAL: 1, SEVERAL: 2, NOTHING: 3}
    return sorted(set(terms), key=lambda t: (last.get(t, 0), order.get(t, len(order)), t))


def seeds_of(run: Run, model: str) -> list[int | None]:
    """Return the training seeds of a model; [None] where records name none.

    The first is drawn, as head 3 of one training is not head 3 of another.
    """
    known = sorted(seed for seed in run.table.seeds.get(model, ()) if seed is not None)
    return list(known) or [None]


def heads(run: Run, metric: str, model: str, part: str | None = None, seed: Any = ...) -> dict[Head, Point]:
    """Return (layer, head) -> value of one training seed, by default the one that is drawn."""
    chosen = seeds_of(run, model)[0] if seed is ... else seed
    return run.table.points(metric, model, by=("layer", "head"), part=part, seed=chosen)


def terms_of(run: Run, model: str) -> list[str]:
    """Return the terms whose share of a model's heads is recorded."""
    names = [m for m in run.table.metrics if m.startswith("kl.share.") and run.table.rows(m, model)]
    return in_order(name.removeprefix("kl.share.") for name in names)


def parts_of(run: Run, metric: str, model: str) -> list[str]:
    """Return the terms that the parts of a metric name, in order; the sum of a single term is that term."""
    parts = in_order(run.table.distinct("part", metric, model))
    return [TOTAL] if TOTAL in parts and len(parts) == 2 else parts


def where(at: Head) -> str:
    """Return a head in words."""
    return f"layer {at[0]}, head {at[1]}"


def _with(point: Point, most: int = 3) -> str:
    """A value with its interval, for a hover."""
    return f"{number(point.value, point.low, point.high, most)} {interval(point.low, point.high, most)}".strip()


# ---- the taxonomy ----


def _labels(run: Run, model: str, seed: Any = ...) -> dict[Head, tuple[str, Point]]:
    """(layer, head) -> term by which its attention changes most, and the share of bootstrap draws that say so."""
    terms = run.table.distinct("part", "head.label", model)
    return {at: (term, p) for term in terms for at, p in heads(run, "head.label", model, term, seed).items()}


def _worth(run: Run, model: str, seed: Any = ...) -> dict[Head, tuple[str, Point | None]]:
    """(layer, head) -> label, `NOTHING` where no single term is worth anything, and what the loss rises by without the
    term by which the attention changes most, in that head alone; {} where no head was ablated alone."""
    chosen = seeds_of(run, model)[0] if seed is ... else seed
    head_labels = labels(run.table, model, chosen)
    return {
        at: (head_labels[at], heads(run, "ablation.remove", model, term, chosen).get(at))
        for at, (term, _) in _labels(run, model, chosen).items()
        if at in head_labels
    }


def _counts(run: Run, model: str, doubt: str = "") -> str:
    """Return a title with the number of heads of the largest group and of absolute position, or of the two largest.

    A number runs from the fewest to the most over seeds. The change of attention alone decides where no head was
    ablated alone.
    """
    of_seeds = [list(labels(run.table, model, seed).values()) for seed in seeds_of(run, model)]
    verb = "follow"
    if not all(of_seeds):
        of_seeds = [[term for term, _ in _labels(run, model, seed).values()] for seed in seeds_of(run, model)]
        verb = "change most without"
    known = {label for of_seed in of_seeds for label in of_seed}
    if not known:
        return f"How far each head of `{model}` follows each term"
    sizes = {label: {s.count(label) for s in of_seeds} for label in in_order({*terms_of(run, model), *known})}
    ranked = sorted(sizes, key=lambda label: -max(sizes[label]))
    second = ["absolute"] if "absolute" in ranked[1:] else ranked[1:2]
    counts = []
    for label in ranked[:1] + second:
        size = span(list(sizes[label]))
        counts.append(f"{size} have {meaning(label)}" if label == NOTHING else f"{size} {verb} {meaning(label)}")
    return f"`{model}`{f' ({doubt})' if doubt else ''}: of {len(of_seeds[0])} heads {', '.join(counts)}"


def taxonomy(run: Run) -> Figure | None:
    """Draw heads by the share of each term: a triangle for models of three terms, a strip by layer for others."""
    models = [m for m in run.models if len(terms_of(run, m)) > 1]
    if not models:
        return None
    models.sort(key=lambda m: len(terms_of(run, m)) != 3)
    three = [m for m in models if len(terms_of(run, m)) == 3]
    model = story(run, three or models)
    points = [p for m in models for t in terms_of(run, m) for p in heads(run, f"kl.share.{t}", m).values()]
    places = ""
    if three:
        places += "; in the triangle, the nearer to a corner, the more of a head's change comes from that term"
    if len(three) < len(models):
        places += "; by layer, the share of one term"
    half = "Beyond a dashed line one term has at least half"
    if any(len(terms_of(run, m)) > 3 for m in models):
        half += " (on strips of more than two terms: above the line the first term has at least half)"
    subtitle = (
        "Each point is a head: how far its attention changes (KL divergence) when one term is left out of the scores, "
        f"as a share of the changes by all terms ({sample(points)}){places}. {half}; a "
        "head follows it only where the loss rises without it in that head alone, by more than its interval over "
        "documents."
    )
    key = [("dot", "one head")]
    why = []
    if any(p.value < STABLE for m in models for _, p in _labels(run, m).values()):
        why.append(f"its label changes in more than {percent(1 - STABLE, 0)} of bootstrap draws")
    if any(label == NOTHING for m in models for label, _ in _worth(run, m).values()):
        why.append("no single term is worth anything in it")
    if why:
        key.append(("paper", f"hollow: {', or '.join(why)}"))
    title = claimed(run, "dstg-most-heads-absolute", "dstg-few-semantic-heads", what="share of heads")
    return Figure(
        "heads",
        title or _counts(run, model, mark(run, model)),
        subtitle + drawn(run.trainings[1], [seeds_of(run, model)[0]]),
        [_triangle(run, m) if m in three else _strip(run, m) for m in models],
        _taxonomy_table(run, models),
        key,
        330,
        even=True,
        records=(
            "kl.share.*: layer, head",
            "kl.*: layer, head",
            "head.label: layer, head, part",
            "ablation.remove: layer, head, part",
        ),
    )


def _hovers(run: Run, model: str, of: Sequence[Head]) -> Iterator[str]:
    """What is said of each head: its shares and divergences with their intervals, and its label."""
    drawn_labels = _labels(run, model)
    worth = _worth(run, model)
    terms = terms_of(run, model)
    known = {(kind, t): heads(run, f"{kind}.{t}", model) for kind in ("kl.share", "kl") for t in terms}
    for at in of:
        lines = [f"<b>{plain(model)}</b>, {where(at)}"]
        for t in terms:
            kl = known["kl", t].get(at)
            divergence = f"; KL {_with(kl)} nats" if kl else ""
            lines.append(f"{plain(short(t))} {_with(known['kl.share', t][at])}{divergence}")
        if at in drawn_labels:
            label, sure = drawn_labels[at]
            lines.append(f"changes most: {plain(short(label))}, the same in {percent(sure.value, 0)} of draws")
        if at in worth:
            label, rise = worth[at]
            follows = f"follows {plain(meaning(label))}"
            follows = "no single term is worth anything here" if label == NOTHING else follows
            lines.append(f"{follows}: loss {_with(rise, 4)} nats without it in this head" if rise else follows)
        yield "<br>".join(lines)


def _of_all_terms(run: Run, model: str) -> tuple[list[Head], list[dict[Head, Point]], list[bool]]:
    """Heads that have a share of every term, the shares, and whose label is not sure."""
    shares = [heads(run, f"kl.share.{t}", model) for t in terms_of(run, model)]
    of = sorted(set.intersection(*(set(heads_of_model) for heads_of_model in shares)))
    sure = _labels(run, model)
    worth = _worth(run, model)
    loose = [at in sure and sure[at][1].value < STABLE or at in worth and worth[at][0] == NOTHING for at in of]
    return of, shares, loose


def _triangle(run: Run, model: str) -> Panel:
    """One point a head in a triangle whose corners are the three terms, stronger in colour in deeper layers."""
    terms = terms_of(run, model)
    depth = run.depth(model)
    of, shares, loose = _of_all_terms(run, model)
    place = np.array([[share[at].value for share in shares] for at in of]).reshape(-1, 3) @ np.array(CORNERS)
    x, y = np.round(place, 4).T.tolist()
    inside = {} if any(loose) else {"color": "@surface"}
    edge = {"width": [2 if out else 0.8 for out in loose], **inside}
    rings = ["circle-open" if out else "circle" for out in loose]
    marker = shaded([layer for layer, _ in of], 1, depth, size=10, opacity=0.9, symbol=rings, line=edge)
    points = symbols(x, y, marker, hovertext=list(_hovers(run, model, of)), hoverinfo="text")
    shown = list(range(1, depth + 1, -(-depth // MOST_SHADES)))
    shades = symbols(
        [0.93] * len(shown),
        [HEIGHT - 0.075 * (i + 1) for i in range(len(shown))],
        shaded(shown, 1, depth, size=10),
        mode="markers+text",
        text=[f" {layer}" for layer in shown],
        textposition="middle right",
        textfont={"size": TEXT_SIZE, "color": "@muted"},
        hoverinfo="skip",
    )
    ends = [(CORNERS[i], CORNERS[(i + 1) % 3]) for i in range(3)]
    middles = [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in ends]
    edges = segments([(*a, *b) for a, b in ends], width=1.2, dash="solid")
    halves = segments([(*middles[i], *middles[(i + 1) % 3]) for i in range(3)])
    corners = ((-0.06, -0.05, "left", "top"), (1.06, -0.05, "right", "top"), (0.5, HEIGHT + 0.03, "center", "bottom"))
    notes = [
        note(x, y, short(t), f"@ink-{colour(t)}", xanchor=left, yanchor=top)
        for t, (x, y, left, top) in zip(terms, corners, strict=True)
    ]
    notes.append(note(0.91, HEIGHT, "layer", xanchor="left", yanchor="middle"))
    square = {"visible": False, "constrain": "domain"}
    across = axis("", range=[-0.1, 1.1], **square)
    up = axis("", range=[-0.16, 1.0], scaleanchor="x", **square)
    margin = {"l": MARGINS // 2, "r": MARGINS // 2, "t": 6, "b": 6}
    ground = layout(340, across, up, margin, annotations=notes)
    blocks = len({schemes.block(run, m) for m in run.models}) > 1
    remark = schemes.block(run, model) if blocks else ""
    return Panel([edges, halves, shades, points], ground, model, f"{_counts(run, model)}.", remark)


def _strip(run: Run, model: str) -> Panel:
    """By layer, one point a head: the share of the first term, coloured by the head's label."""
    terms = terms_of(run, model)
    depth = run.depth(model)
    terms_by_head = _labels(run, model)
    of, shares, loose = _of_all_terms(run, model)
    most = max((head for _, head in of), default=0)
    x = [round(layer + 0.7 * ((head + 0.5) / (most + 1) - 0.5), 3) for layer, head in of]
    texts = list(_hovers(run, model, of))
    hues = [colour(terms_by_head[at][0] if at in terms_by_head else terms[0]) for at in of]
    traces = [segments([(0.5, 0.5, depth + 0.5, 0.5)])]
    for hue in dict.fromkeys(hues):
        chosen = [i for i, other in enumerate(hues) if other == hue]
        points = [shares[0][of[i]] for i in chosen]
        xs = [x[i] for i in chosen]
        ys = [p.value for p in points]
        ink = [hue] * len(chosen)
        shown = dots(xs, ys, ink, [texts[i] for i in chosen], [loose[i] for i in chosen])
        traces.append(shown | errors(points, hue, width=0))
    first = short(terms[0])
    other = short(terms[1]) if len(terms) == 2 else "other terms"
    room = min(MARGINS - 12, round(7.7 * max(len(other), len(first))) + 14)
    layers = list(range(1, depth + 1, 1 if depth <= 8 else 2))
    across = axis("layer", range=[0.4, depth + 0.6], tickvals=layers, showgrid=False)
    ticks = {"tickvals": [0, 0.5, 1], "ticktext": [plain(other), percent(0.5, 0), plain(first)]}
    up = axis("", range=[-0.06, 1.06], **ticks)
    margin = {"l": room, "r": MARGINS - room, "t": 8, "b": 50}
    ground = layout(340, across, up, margin)
    return Panel(traces, ground, model, f"{_counts(run, model)}.", f"share of {first}, heads side by side")


def _taxonomy_table(run: Run, models: Sequence[str]) -> Table:
    """Every head of every seed with its label, shares and KL divergences."""
    terms = in_order(t for m in models for t in terms_of(run, m))
    rows: list[list[Cell]] = []
    for model in models:
        for seed in seeds_of(run, model):
            changes = _labels(run, model, seed)
            worth = _worth(run, model, seed)
            known = [heads(run, f"{kind}.{t}", model, None, seed) for t in terms for kind in ("kl.share", "kl")]
            for at in sorted({at for points in known for at in points}):
                term, sure = changes.get(at, ("", None))
                label, rise = worth.get(at, ("", None))
                same = value(sure.value, percent(sure.value, 0)) if sure else None
                cells = [cell for points in known for cell in measured(points.get(at))]
                size = next(points[at].n for points in known if at in points)
                of_label = [*row(short(label)), *measured(rise, 5)]
                rows.append([*row(model, seed, *at, short(term), same), *of_label, *cells, *row(size)])
    kinds = ("share", "share low", "share high", "KL", "KL low", "KL high")
    shares = [f"{short(t).capitalize()}: {kind}" for t in terms for kind in kinds]
    header = ["Changes most by", "Same in", "Label", "Rise of loss", "Rise low", "Rise high"]
    columns = ["Model", "Seed", "Layer", "Head", *header, *shares, "Documents"]
    caption = (
        "Every head: the term by which it changes most, its label and what that term is worth in it, the share of each "
        "term and its KL divergence in nats"
    )
    return Table.of("heads", caption, columns, rows)


# ---- ablations ----


def _price(run: Run, rows: Sequence[Row]) -> str:
    """Return the two terms without which the loss of the story's model rises most."""
    model = story(run, list(dict.fromkeys(line.panel for line in rows)))
    mine = [line for line in rows if line.panel == model]
    chosen = [line for line in mine if not line.name.endswith("stream")] or mine
    points = {line.name: line.points[""] for line in chosen}
    title = best(points, f"Loss of `{model}` without each term", write=rise, mark=mark(run, model))
    return claimed(run, "dstg-relative-least-needed") or title


@Rows(
    "ablation",
    "Rise of the loss without a term or a stream, nats",
    _price,
    x=Axis("rise of loss, nats", include=(0,)),
    columns=("Model", "", "Taken out"),
    records=("ablation.remove: part", "ablation.shuffle: part", "ablation.loss"),
    levels={0.0: ""},
)
def ablation(run: Run) -> Iterator[Row]:
    """Rise of the loss of masked words, in nats, when a term of the scores is left out of every block, or a stream is
    shuffled among positions."""
    for model in run.models:
        parts = {p for how in ("remove", "shuffle") for p in run.table.distinct("part", f"ablation.{how}", model)}
        for part in sorted(in_order(parts), key=lambda p: not p.startswith("stream.")):
            how = "shuffle" if part.startswith("stream.") else "remove"
            if point := run.table.point(f"ablation.{how}", model, part=part):
                yield Row(short(part), {"": point}, model, colour=colour(part))


@Curves(
    "ablation-layers",
    "Rise of the loss without one term in one block, nats",
    of_story(
        "Loss of {} without one term in one block",
        lambda lines: {f"{line.part} in layer {at}": p for line in lines for at, p in line.points.items()},
        write=rise,
    ),
    y=Axis("rise of loss, nats", include=(0,)),
    columns=("Model", "Term"),
    records=("ablation.remove: layer, part",),
    width=300,
)
def by_layer(run: Run) -> Iterator[Line]:
    """Rise of the loss of masked words, in nats, when one term is left out of the attention scores of one block and of
    no other."""
    for model in run.models:
        for t in in_order(run.table.distinct("part", "ablation.remove", model)):
            if not t.startswith("stream."):
                yield Line(run.curve("ablation.remove", model, t), model, short(t), colour(t), panel=model)
        yield Line({0: Point.between(0.0)}, "unchanged", kind=LEVEL, panel=model)


@Cloud(
    "ablation-heads",
    "Every head and term: change of attention and rise of the loss, nats",
    of_story(
        "Loss of {} without one term in one head",
        lambda dots: {f"{d.group} in layer {d.cells[2].text}, head {d.cells[3].text}": d.y for d in dots},
        write=rise,
    ),
    metric="ablation.remove",
    x=Axis("change of attention (KL), nats", "log", floor=LEAST),
    y=Axis("rise of loss, nats", include=(0,)),
    columns=(
        "Model",
        "Seed",
        "Layer",
        "Head",
        "Term",
        "KL",
        "KL low",
        "KL high",
        "Rise of loss",
        "Low",
        "High",
        "Documents",
    ),
    records=("kl.*: layer, head", "ablation.remove: layer, head, part"),
    gaps=lambda run, points: {"drawn": drawn(run.trainings[1], [seeds_of(run, points[0].panel)[0]])},
)
def by_head(run: Run) -> Iterator[Dot]:
    """Each point is a head without one term: how far its attention moves, and how far the loss of masked words
    rises.{drawn}"""
    for model in run.models:
        seed = seeds_of(run, model)[0]
        for term in terms_of(run, model):
            kl = heads(run, f"kl.{term}", model)
            rise = heads(run, "ablation.remove", model, term)
            for at in sorted(kl.keys() & rise.keys()):
                values = f"KL {_with(kl[at])} nats; loss {_with(rise[at], 4)} nats"
                text = f"<b>{plain(model)}</b>, {where(at)}<br>{plain(short(term))} left out: {values}"
                cells = [*row(model, seed, *at, short(term), kl[at]), *measured(rise[at], 5), *row(rise[at].n)]
                yield Dot(kl[at], rise[at], model, short(term), colour(term), text, cells)


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "study.heads": (
        taxonomy,
        ablation,
    )
}
# Figures that few ask for, folded.
MORE = {
    "study.heads": (
        by_layer,
        by_head,
    )
}
