"""What states hold: position and what moves with it, sentences, and the streams of other models."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...records.metric import GROUPS, Metric
from ...records.table import Point, highest
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, row
from ..forms.axes import EMBEDDED, R2, Axis
from ..forms.curves import ASIDE, EVERYWHERE, FULL, LEVEL, MOST_LINES, OURS, Curves, Line, in_families, of_models
from ..forms.form import Draw, beside, drawn, line, shaded, symbols
from ..forms.maps import rounded
from ..loaded_run import Run
from ..numbers import count
from ..style import axis, layout
from ..titles import Title, best, claimed, finding, listed, mark, share, story

# Probe -> (its target in a few words, in many).
TARGETS = {
    "token": ("position", "position in its document"),
    "segment": ("the segment index", "segment (sentence or line), by its index,"),
    "intra": ("progress in a segment", "progress inside its segment, 0 at the start, 1 at the end,"),
}
STREAMS = ("position", "semantic")
# Of the states: solid lines are shares of their variance, dashed ones R².
SHARE_OR_R2 = Metric(name="share of the variance between positions, or R² of position", over=GROUPS)
MOST_MODELS = 2  # whose documents are drawn
NAMES = 6  # sentences named in a panel
_CUT = re.compile(r"(.+)\.pca(\d+)$")  # a part cut to its first components
_DASHES = ("2px,3px", "7px,4px", "10px,3px,2px,3px")  # of few components, from the fewest; all of them are solid


# ---- position ----


def _chance(run: Run, metric: str) -> list[Line]:
    """The largest R² that any probe of a layer reaches on shuffled targets."""
    name = f"{metric}.chance"
    floor = highest(run.curve(name, model, part) for model in run.models for part in run.parts(name, model))
    return [Line(floor, "chance", "best R² on shuffled targets", kind=LEVEL, panel=EVERYWHERE)]


def _asides(run: Run, metric: str, lines: Sequence[Line]) -> Iterator[Line]:
    """For the table alone: chance of every line, what few components hold of it, and where models are many, before
    training."""
    for curve in [e for e in lines if e.kind == OURS]:
        curves = {"chance": run.curve(f"{metric}.chance", curve.name, curve.part)}
        for part in run.table.distinct("part", metric, curve.name):
            if part.startswith(f"{curve.part}.pca"):
                curves[f"{part.rpartition('.pca')[2]} components"] = run.curve(metric, curve.name, part)
        if schemes.many(run):
            curves["before training"] = run.curve(metric, curve.name, curve.part, 0)
        for words, points in curves.items():
            yield replace(curve, points=points, part=f"{curve.part}, {words}", kind=ASIDE, hollow=frozenset())


def _read_best(run: Run, lines: Sequence[Line]) -> str:
    """A claim, else the best of what is drawn, and the streams that are not."""
    ids = ("dstg-position-kept", "ap-loses-position", "ap-keeps-position")
    title = finding(*ids, caption="R² of position in the last trained layer", what="R²")(run, lines)
    drawn = {line.name for line in lines}
    left = [f"`{m}`" for m in run.models if m not in drawn and "position" in run.parts("r2.token", m)]
    return title if not left or claimed(run, *ids) else f"{title}; {listed(left)} not drawn"


@Curves(
    "position",
    "R² of position by layer",
    _read_best,
    y=replace(R2, title="R² of position"),
    x=EMBEDDED,
    records=("r2.token: layer, part, index = split", "r2.token.chance: layer, part"),
    width=230,
)
def position(run: Run) -> Sequence[Line]:
    """A ridge probe reads a token's position from each layer that training reaches, on held-out documents. Hollow: the
    paper's models, at the same relative depth."""
    streams = [m for m in run.models if "position" in run.parts("r2.token", m)]
    story_of_streams = streams
    if streams and not schemes.many(run):
        story_of_streams = [story(run, streams)]
    models = [*story_of_streams, *(m for m in run.models if m not in streams)]
    lines = of_models(run, "r2.token", streams=True, models=models)
    lines = [replace(e, points={x: p for x, p in e.points.items() if x not in e.hollow}) for e in lines]
    streamed = {(curve.name, curve.part) for curve in lines if curve.part != "all"}
    if schemes.many(run) and len(streamed) <= MOST_LINES:
        lines = [curve if curve.part == "all" else replace(curve, panel=schemes.FAMILIES["streams"]) for curve in lines]
    return [*lines, *_chance(run, "r2.token"), *_asides(run, "r2.token", lines)]


def _of_streams(title: Title) -> Title:
    """Make a rule that leaves out the last state of a model whose position stream no gradient reaches there: its
    streams have lines of their own."""

    def of_streams(run: Run, lines: Sequence[Line]) -> str:
        streams = {line.name for line in lines if line.part == "position"}
        half = {m for m in streams if run.trained_until(m, "position") < run.depth(m)}
        return title(run, [line for line in lines if line.part != "all" or line.name not in half])

    return of_streams


def _probe(name: str, *claims: str) -> Draw:
    metric = f"r2.{name}"
    (short, long) = TARGETS[name]
    records = [f"{metric}: layer, part, index = split", f"{metric}.chance: layer, part"]
    ceiling = "" if name == "token" else f"{metric}.ceiling"  # position alone gives a token's place
    if ceiling:
        records.append(f"{ceiling}: index = split")

    title = finding(*claims, caption=f"R² of {short} in the last trained layer", what="R²")
    if name == "token":  # the first screen has the same caption and the streams' values
        title = _of_streams(title)

    @Curves(
        f"probe-{name}",
        f"R² of {short} by model, stream and layer",
        title,
        y=R2,
        records=tuple(records),
        width=250,
        ghosts=True,
        gaps=lambda run, lines: {"target": long},
    )
    def probe(run: Run) -> Iterator[Line]:
        """A ridge probe reads a token's {target} from each layer: R² on held-out documents."""
        probed = of_models(run, metric, apart=True, before=True)
        yield from [*probed, *_chance(run, metric), *_asides(run, metric, probed)]
        if ceiling and (alone := run.table.point(ceiling)):
            yield Line({0: alone}, "position alone", mark=(FULL, ""), kind=LEVEL, panel=EVERYWHERE)

    return probe


PROBES = (
    _probe("token", "semantic-stream-little-position", "rope-no-position"),
    _probe("segment", "segment-follows-position", "ap-loses-segments", "relative-little-segment"),
    _probe("intra", "intra-in-semantics", "intra-in-all-models"),
)


def probes(run: Run) -> list[Figure]:
    """Draw the probes of three targets, of which a reader chooses one."""
    figures = {target: draw(run) for (target, _), draw in zip(TARGETS.values(), PROBES, strict=True)}
    return [replace(f, choice=target) for target, f in figures.items() if f]


@Curves(
    "variance-position",
    "Share of the variance between positions, and R² of position",
    finding(caption="Share of the variance between positions, last trained layer", write=share),
    metric=SHARE_OR_R2,
    y=replace(R2, title="share of variance, or R²"),
    records=("variance.position: part, layer",),
    width=250,
)
def variance(run: Run) -> Sequence[Line]:
    """Share of the variance of a layer's states over tokens that lies between positions, without what chance adds: 1
    where the states are a function of position, straight or not. Dashed: R² of position, read by a line."""
    lines = of_models(run, "variance.position", streams=True, apart=True)
    many = schemes.many(run)
    read = []
    for curve in (one for one in lines if one.kind == OURS):
        name = "R² of position" if curve.part == "all" else f"R², {curve.part} stream"
        name = f"R² of position, `{curve.name}`" if many else name
        points = run.curve("r2.token", curve.name, curve.part)
        read.append(Line(points, name, curve.part, kind=ASIDE if many else LEVEL, panel=curve.panel))
    return [*lines, *read]


def _few(run: Run, lines: Sequence[Line]) -> str:
    """What most first components hold beside what all do, in the last trained layer of the model told of."""
    model = story(run, [curve.name for curve in lines])
    panel = next(curve.panel for curve in lines if curve.name == model)
    *few, whole = [curve for curve in lines if curve.panel == panel]
    if not few:
        return "R² of position from the first components"
    part, _, components = few[-1].part.rpartition(", ")
    where = f"`{model}` {part}".rstrip()
    return best(
        {f"first {components}": few[-1].end, "all": whole.end},
        f"R² of position in {where} by components",
        mark=mark(run, model),
    )


@Curves(
    "probe-components",
    "R² of position by number of components",
    _few,
    y=R2,
    columns=("Model", "Read from"),
    records=("r2.token: layer, part = *.pca2 ...", "r2.token: layer, part"),
    width=260,
)
def components(run: Run) -> Iterator[Line]:
    """R² of a token's position on held-out documents, read by a ridge probe from the first principal components of the
    states of a layer, and from all."""
    cut: dict[tuple[str, str], list[int]] = {}
    for model in run.models:
        for name in run.table.distinct("part", "r2.token", model):
            if match := _CUT.match(name):
                cut.setdefault((model, match[1]), []).append(int(match[2]))
    for (model, part), counts in cut.items():
        if part == "all" and any(m == model and p != "all" for m, p in cut):
            continue
        colour = schemes.colour(run, model, part)
        until = run.trained_until(model, part)
        panel = model if part == "all" else f"{model}, {part}"
        for i, k in enumerate([*sorted(set(counts)), None]):
            points = run.curve("r2.token", model, part if k is None else f"{part}.pca{k}")
            still = frozenset(layer for layer in points if layer > until)
            dash = "solid" if k is None else _DASHES[i % len(_DASHES)]
            read = "all" if k is None else count(k, "component")
            name = read if part == "all" else f"{part}, {read}"
            yield Line(points, model, name, colour, (dash, "circle"), panel=panel, hollow=still)


@Curves(
    "shift",
    "Change of the states by layer, as a share of their size",
    finding(
        "split-semantics-invariant",
        caption="Change of the states where positions shift, last trained layer",
        write=share,
    ),
    y=Axis("change of the states", "share", (0,)),
    x=EMBEDDED,
    records=("shift.change: part, layer",),
    width=250,
)
def shift(run: Run) -> list[Line]:
    """The same tokens at the start of the positions and half a document further on: size of the change over the size of
    the state."""
    return of_models(run, "shift.change", streams=True)


# ---- sentences, other models ----


def _documents(run: Run) -> list[Figure]:
    """The first document's states by layer: of position streams, or of all of hidden where no model has one."""
    arrays_of_models = {m: arrays_of_model for m in run.models if (arrays_of_model := run.arrays_of("hidden", m))[1]}
    part = "position" if any("scores.position" in arrays for _, arrays in arrays_of_models.values()) else "all"
    models = [
        m
        for m, (_, arrays) in arrays_of_models.items()
        if len(arrays.get(f"scores.{part}", ())) and "segments" in arrays
    ]
    models.sort(key=lambda m: m != run.named("dstg"))
    return [_map(run, m, part, *arrays_of_models[m], i) for i, m in enumerate(models[:MOST_MODELS])]


def _map(run: Run, model: str, part: str, seed: int | None, arrays: dict[str, np.ndarray], number: int) -> Figure:
    scores = arrays[f"scores.{part}"][0]  # (L + 1, n, 2), (n,)
    segments = arrays["segments"][0].astype(int)
    last = run.trained_until(model, part)
    panels = []
    rows = []
    for layer, points in enumerate(scores):
        note = "embedding" if layer == 0 else ""
        if layer > last:
            note = "no gradient reaches it"
        panels.append(_cloud(points, segments, f"Layer {layer}", note, layer > last, f"{model}, layer {layer}"))
        for i in np.flatnonzero(np.isfinite(points).all(axis=1)).tolist():
            segment = Cell("special") if segments[i] < 0 else int(segments[i]) + 1
            rows.append(row(model, seed, layer, i, segment, *points[i]))
    subtitle = (
        f"{'Position stream' if part == 'position' else 'All of hidden'} of `{model}` for one held-out document of "
        f"{count(len({*segments[segments >= 0]}), 'segment')} (sentences or lines) and {len(segments)} tokens, on the "
        "first two principal components of each layer: one point a token, joined inside a segment, coloured by the "
        "order of the segments, some of them numbered; special tokens as crosses."
    )
    id = f"hidden-map-{number + 1}" if number else "hidden-map"
    columns = ["Model", "Seed", "Layer", "Token", "Segment", "Component 1", "Component 2"]
    title = None if number else claimed(run, "dstg-sentences-separate")
    return Figure(
        id,
        title or f"One document in the states of `{model}`, layer by layer",
        subtitle + drawn(run.trainings[1], [seed]),
        panels,
        Table.of(id, "Tokens of the document on two components, by layer", columns, rows),
        width=300,
        even=True,
        records=("arrays/hidden-*.npz", "sentences.separation: layer, part"),
    )


def _cloud(points: np.ndarray, segments: np.ndarray, title: str, note: str, hollow: bool, alt: str) -> Panel:
    """One layer: a token a point, coloured by its segment's order."""
    known = [s for s in dict.fromkeys(segments.tolist()) if s >= 0]
    finite = np.isfinite(points).all(axis=1)
    inside, special = (np.flatnonzero(finite & side).tolist() for side in (segments >= 0, segments < 0))
    x, y = (rounded(column) for column in np.nan_to_num(points).T)
    way: list[int | None] = []
    for a, b in zip([None, *inside], inside, strict=False):
        way += [None, b] if a is not None and segments[a] != segments[b] else [b]
    look = {"size": 6, "symbol": "circle-open"} if hollow else {"size": 5, "symbol": "circle"}
    edge = {"opacity": 0.95, "line": {"width": 1.2 if hollow else 0}}
    marker = shaded([known.index(segments[i]) for i in inside], 0, len(known) - 1, 2, **look, **edge)
    names = [f"token {i}, segment {segments[i] + 1}" for i in inside]
    along, up = ([None if i is None else column[i] for i in way] for column in (x, y))
    traces = [
        line(along, up, "muted", width=0.7, opacity=0.35),
        symbols([x[i] for i in inside], [y[i] for i in inside], marker, hovertext=names, hoverinfo="text"),
    ]
    if special:
        cross = {"size": 7, "symbol": "x-thin", "color": "@muted", "line": {"width": 1.4, "color": "@muted"}}
        names = [f"token {i}, special" for i in special]
        place = [x[i] for i in special], [y[i] for i in special]
        traces.append(symbols(*place, cross, hovertext=names, hoverinfo="text"))
    notes = []
    middle = _middle(x, y, inside)
    for s in known[:: -(-len(known) // NAMES) or 1]:
        if members := [i for i in inside if segments[i] == s]:
            at = _middle(x, y, members)
            notes.append(beside(at, str(s + 1), (at[0] - middle[0], at[1] - middle[1])))
    frame = []
    for values in (x, y):
        low = min(values, default=0.0)
        high = max(values, default=1.0)
        room = 0.14 * ((high - low) or 1.0)
        frame.append([low - room, high + room])
    bare = {"nticks": 4, "showticklabels": False, "showgrid": False, "constrain": "domain"}
    bare |= {"zeroline": True, "zerolinecolor": "@grid"}
    axes = axis("", range=frame[0], **bare), axis("", range=frame[1], scaleanchor="x", **bare)
    ground = layout(230, *axes, {"l": 6, "r": 6, "t": 4, "b": 6}, annotations=notes)
    return Panel(traces, ground, title, f"{alt}: {len(inside)} tokens in {len(known)} segments.", note)


def _middle(x: Sequence[float], y: Sequence[float], members: Sequence[int]) -> tuple[float, float]:
    at = [float(np.median([column[i] for i in members] or [0.0])) for column in (x, y)]
    return at[0], at[1]


@Curves(
    "sentences",
    "How far apart sentences are, beside random cuts, by layer",
    lambda run, lines: (
        claimed(run, "dstg-sentences-beyond-contiguity", what="log ratio")
        or finding(caption="Sentences beyond random cuts, log ratio in the last trained layer")(
            run, [e for e in lines if not e.axis]
        )
    ),
    metric="sentences.excess",
    y={"ratio": Axis("between ÷ within", include=(0,)), "": Axis("log ratio", include=(0,))},
    records=tuple(f"sentences.{what}: layer, part" for what in ("separation", "null", "excess")),
    width=250,
)
def sentences(run: Run) -> Iterator[Line]:
    """Variance of the states between sentences ÷ that within, and the same for cuts into pieces of the sentences'
    lengths, in random order (dashed). Excess: mean over documents of the logarithm of the one over the other, 0 where
    sentences are no further apart than random contiguous pieces."""
    # Separation beside random cuts of the model told of; of all, the excess of the one over the other.
    excess = of_models(run, "sentences.excess")
    model = story(run, [curve.name for curve in excess]) if excess else None
    for curve in sorted(of_models(run, "sentences.separation"), key=lambda curve: curve.name != model):
        null = run.curve("sentences.null", curve.name, curve.part)
        if curve.name == model:
            panel = f"{curve.name}, {curve.part}"
            yield replace(curve, panel=panel, axis="ratio")
            yield Line(null, "random cuts", curve.part, kind=LEVEL, panel=panel, axis="ratio")
        else:
            yield (aside := replace(curve, axis="ratio", kind=ASIDE))
            yield replace(aside, points=null, part=f"{curve.part}, random cuts")
    levels = set()
    for curve in in_families(run, excess):
        panel = f"Excess: {curve.panel[0].lower()}{curve.panel[1:]}"
        yield replace(curve, panel=panel)
        if panel not in levels:
            levels.add(panel)
            yield Line({0: Point.between(0.0)}, "random cuts", kind=LEVEL, panel=panel)


def _onto(run: Run, reference: str) -> Iterator[Line]:
    """R² of each stream of a model from the states of every other, a panel a stream; where models are many, a
    family."""
    asides = {".chance": "shuffled targets", ".place": "same place in another document"}
    for stream in STREAMS:
        metric = f"regression.{stream}"
        panel = f"Onto the {stream} stream"
        colour = schemes.colour(run, reference, stream)
        until = run.trained_until(reference, stream)
        curves = {m: points for m in run.models if m != reference and (points := run.curve(metric, m, reference))}
        onto = []
        for model, points in curves.items():
            depth = run.depth(reference)
            other = run.depth(model)
            still = frozenset(layer for layer in points if round(layer * depth / other) > until)
            onto.append(Line(points, model, stream, colour, schemes.marks(run)[model], panel=panel, hollow=still))
            for ending, name in asides.items():
                beside = run.curve(metric + ending, model, reference)
                yield Line(beside, model, f"{stream}, {name}", kind=ASIDE, panel=panel)
        if schemes.many(run):
            families = {e.name: e.panel.lower() for e in in_families(run, [replace(e, part="") for e in onto])}
            onto = [replace(e, panel=f"{panel}: {families[e.name]}") for e in onto]
        floor = highest(run.curve(f"{metric}.chance", model, reference) for model in curves)
        levels = dict.fromkeys(e.panel for e in onto)
        yield from [*onto, *(Line(floor, "chance", stream, kind=LEVEL, panel=p) for p in levels)]


def regression(run: Run, reference: str, number: int) -> Figure | None:
    """Draw how well other models' states predict the two streams of one model (DSTG B.2, figure 8)."""

    def title(run: Run, lines: Sequence[Line]) -> str:
        if reference == run.named("dstg") and (verdict := claimed(run, "only-ap-predicts-position", what="R²")):
            return verdict
        values = {f"`{e.name}`": e.end for e in lines if e.part == "position" and e.name not in run.weak_models}
        if not values:
            return f"What others hold of `{reference}`"
        return best(values, f"R² onto the position stream of `{reference}`", mark=mark(run, reference))

    @Curves(
        f"regression-{number}" if number else "regression",
        f"R² of the regressions onto {reference}",
        title,
        y=R2,
        x=EMBEDDED,
        columns=("Model", "Onto"),
        records=tuple(f"regression.{s}: model = baseline, part = {reference}, layer, index" for s in STREAMS),
        width=400,
        gaps=lambda run, lines: {"reference": reference},
    )
    def onto(run: Run) -> Iterator[Line]:
        """A ridge regression predicts each stream of `{reference}` from all of the hidden state of another model at the
        same layer: R² on held-out documents."""
        return _onto(run, reference)

    return onto(run)


def others(run: Run) -> list[Figure]:
    """Draw one document by layer, and regressions onto the streams of every model that has them."""
    parts = {p for s in STREAMS for p in run.table.distinct("part", f"regression.{s}")}
    known = [m for m in run.models if m in parts]
    references = sorted([*known, *sorted(parts - {*known})], key=lambda m: m != run.named("dstg"))
    regressions = [regression(run, m, i) for i, m in enumerate(references)]
    return [f for f in (*_documents(run), *regressions) if f]


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "study.shape": (variance,),
    "study.structure": (
        probes,
        sentences,
    ),
}
# Figures that few ask for, folded.
MORE = {
    "study.structure": (
        components,
        shift,
        others,
    )
}
