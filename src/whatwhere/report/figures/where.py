"""Where position is kept, and what moves with it: probes, variance between positions, shifted texts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...papers import DSTG_R2
from ...points import highest
from .. import schemes
from ..figure import Figure
from ..forms.axes import EMBEDDED, R2, Axis
from ..forms.curves import ASIDE, EVERYWHERE, FULL, LEVEL, MOST_LINES, OURS, Curves, Line, of_models
from ..numbers import count
from ..run import Run
from ..titles import ABOVE, BELOW, compare, digits, finding, judged, share, story

# Probe -> (its target in a few words, in many).
TARGETS = {
    "token": ("position", "position in its document"),
    "segment": ("the segment index", "segment (sentence or line), by its index,"),
    "intra": ("progress in a segment", "progress inside its segment, 0 at the start, 1 at the end,"),
}
_CUT = re.compile(r"(.+)\.pca(\d+)$")  # a part cut to its first components
_DASHES = ("2px,3px", "7px,4px", "10px,3px,2px,3px")  # of few components, from the fewest; all of them are solid


def chance(run: Run, metric: str) -> list[Line]:
    """The largest R² that any probe of a layer reaches on shuffled targets."""
    name = f"{metric}.chance"
    floor = highest(run.curve(name, model, part) for model in run.models for part in run.parts(name, model))
    return [Line(floor, "chance", "best R² on shuffled targets", kind=LEVEL, panel=EVERYWHERE)]


def asides(run: Run, metric: str, lines: Sequence[Line]) -> Iterator[Line]:
    """For the table alone: chance of every line, what few components hold of it, and where models are many, before
    training."""
    for each in [e for e in lines if e.kind == OURS]:
        curves = {"chance": run.curve(f"{metric}.chance", each.name, each.part)}
        for part in run.table.distinct("part", metric, each.name):
            if part.startswith(f"{each.part}.pca"):
                curves[f"{part.rpartition('.pca')[2]} components"] = run.curve(metric, each.name, part)
        if schemes.many(run):
            curves["before training"] = run.curve(metric, each.name, each.part, 0)
        for words, points in curves.items():
            yield replace(each, points=points, part=f"{each.part}, {words}", kind=ASIDE, hollow=frozenset())


def _kept(run: Run) -> Sequence[Line]:
    streams = [m for m in run.models if "position" in run.parts("r2.token", m)]
    told = streams if schemes.many(run) else [story(run, streams)] if streams else []
    models = [*told, *(m for m in run.models if m not in streams)]
    lines = of_models(run, "r2.token", streams=True, paper=DSTG_R2, models=models)
    lines = [replace(e, points={x: p for x, p in e.points.items() if x not in e.hollow}) for e in lines]
    streamed = {(each.name, each.part) for each in lines if each.part != "all"}
    if schemes.many(run) and len(streamed) <= MOST_LINES:
        lines = [each if each.part == "all" else replace(each, panel=schemes.FAMILIES["streams"]) for each in lines]
    return [*lines, *chance(run, "r2.token"), *asides(run, "r2.token", lines)]


POSITION = Curves(
    "position",
    "r2.token",
    _kept,
    finding("dstg-position-kept", "ap-loses-position", sentence="At the end position is read best from", what="R²"),
    "A ridge probe reads a token's position from each layer that training reaches, on held-out documents. Hollow: the "
    "paper's models, at the same relative depth",
    "R² of position by layer",
    replace(R2, title="R² of position"),
    EMBEDDED,
    records=("r2.token: layer, part, index = split", "r2.token.chance: layer, part"),
    width=230,
)


def _target(name: str, *claims: str) -> Curves:
    metric, (short, long) = f"r2.{name}", TARGETS[name]

    def probes(run: Run) -> Sequence[Line]:
        probed = of_models(run, metric, panel="model", paper=DSTG_R2, before=True)
        lines = [*probed, *chance(run, metric), *asides(run, metric, probed)]
        if ceiling := run.table.point(f"{metric}.ceiling"):
            lines.append(Line({0: ceiling}, "position alone", mark=(FULL, ""), kind=LEVEL, panel=EVERYWHERE))
        return lines

    return Curves(
        f"probe-{name}",
        metric,
        probes,
        finding(*claims, sentence=f"At the end {short} is read best from", what="R²"),
        f"A ridge probe reads a token's {long} from each layer: R² on held-out documents",
        f"R² of {short} by model, stream and layer",
        R2,
        records=tuple(
            f"{metric}{more}"
            for more in (": layer, part, index = split", ".chance: layer, part", ".ceiling: index = split")
        ),
        width=250,
        ghosts=True,
    )


PROBES = (
    _target("token", "semantic-stream-little-position", "rope-no-position"),
    _target("segment", "segment-follows-position", "ap-loses-segments", "relative-little-segment"),
    _target("intra", "intra-in-semantics", "intra-in-all-models"),
)


def _between(run: Run) -> Sequence[Line]:
    lines = of_models(run, "variance.position", streams=True, panel="model")
    many = schemes.many(run)
    beside = []
    for each in lines:
        name = f"R² of position, `{each.name}`" if many else "R², by a line"
        points = run.curve("r2.token", each.name, each.part)
        beside.append(Line(points, name, each.part, kind=ASIDE if many else LEVEL, panel=each.panel))
    return [*lines, *beside]


VARIANCE = Curves(
    "variance-position",
    "variance.position",
    _between,
    finding(sentence="Most of the variance lies between positions in", write=share),
    "Of the variance of a layer's states over tokens, the share that lies between positions, without what chance adds: "
    "1 where the states are a function of position, straight or not",
    "Share of the variance between positions, and R² of position",
    R2,
    records=("variance.position: part, layer",),
    width=250,
)


def _components(run: Run) -> Iterator[Line]:
    """R² from the first components of the streams, of one-stream models from those of all, and from the whole part."""
    cut: dict[tuple[str, str], list[int]] = {}
    for model in run.models:
        for name in run.table.distinct("part", "r2.token", model):
            if match := _CUT.match(name):
                cut.setdefault((model, match[1]), []).append(int(match[2]))
    for (model, part), counts in cut.items():
        if part == "all" and any(m == model and p != "all" for m, p in cut):
            continue
        colour, until = schemes.colour(run, model, part), run.trained_until(model, part)
        panel = model if part == "all" else f"{model}, {part}"
        for i, k in enumerate([*sorted(set(counts)), None]):
            points = run.curve("r2.token", model, part if k is None else f"{part}.pca{k}")
            still = frozenset(layer for layer in points if layer > until)
            dash = "solid" if k is None else _DASHES[i % len(_DASHES)]
            name = f"{part} from all" if k is None else f"{part} from {count(k, 'component')}"
            yield Line(points, model, name, colour, (dash, "circle"), panel=panel, hollow=still)


def _few(run: Run, lines: Sequence[Line]) -> str:
    """What most first components hold beside what all do, in the last trained layer of the model told of."""
    model = story(run, [each.name for each in lines])
    panel = next(each.panel for each in lines if each.name == model)
    *few, whole = [each for each in lines if each.panel == panel]
    if not few:
        return "R² of position from the first components"
    sides = {BELOW: "less position than all", ABOVE: "more position than all"}
    side = sides.get(compare(few[-1].end, whole.end), "no separably other position")
    part, _, components = few[-1].part.partition(" from ")
    where = f"`{model}`" + (f", {part}" if part != "all" else "")
    values = f"R² {digits(few[-1].end)}, from all {digits(whole.end)}"
    return judged(run, [model], f"The first {components} hold {side} at the end of {where}: {values}")


COMPONENTS = Curves(
    "probe-components",
    "r2.token",
    _components,
    _few,
    "R² of a token's position on held-out documents, read by a ridge probe from the first principal components of the "
    "states of a layer, and from all",
    "R² of position by number of components",
    R2,
    columns=("Model", "Read from"),
    records=("r2.token: layer, part = *.pca2 ...", "r2.token: layer, part"),
    width=260,
)

SHIFT = Curves(
    "shift",
    "shift.change",
    lambda run: of_models(run, "shift.change", streams=True),
    finding(
        "split-semantics-invariant",
        "nope-shift",
        sentence="When positions shift, the states at the end change most in",
        write=share,
    ),
    "The same tokens at the start of the positions and half a document further on: size of the change over the size of "
    "the state",
    "Change of the states by layer, as a share of their size",
    Axis("change of the states", "share", (0,)),
    EMBEDDED,
    records=("shift.change: part, layer",),
    width=250,
)


def probes(run: Run) -> list[Figure]:
    """Probes of three targets, of which a reader chooses one."""
    figures = {TARGETS[name][0]: form.draw(run) for name, form in zip(TARGETS, PROBES, strict=True)}
    return [replace(f, choice=target) for target, f in figures.items() if f]
