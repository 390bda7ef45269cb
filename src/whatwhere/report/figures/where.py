"""Where position is kept, and what moves with it: probes, variance between positions, shifted texts."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ...papers import DSTG_R2
from ...points import Point
from .. import schemes
from ..figure import Figure
from ..forms.axes import Axis
from ..forms.curves import ASIDE, EVERYWHERE, FULL, LEVEL, MOST_LINES, OURS, Curves, Line, of_models
from ..forms.marks import share
from ..numbers import count
from ..run import Run
from ..titles import ABOVE, BELOW, compare, digits, finding, judged, story

LAYER = Axis("layer", "layer", word="layer")
R2 = Axis("R²", "r2", (0, 1), -0.3)
SHARE = Axis("", "share", (0,))
TARGETS = {
    "token": "position in its document",
    "segment": "segment (sentence or line), by its index,",
    "intra": "progress inside its segment, 0 at the start, 1 at the end,",
}
_CUT = re.compile(r"(.+)\.pca(\d+)$")  # a part cut to its first components
_DASHES = ("2px,3px", "7px,4px", "10px,3px,2px,3px")  # of few components, from the fewest; all of them are solid


def chance(run: Run, metric: str) -> list[Line]:
    """The largest R² that any probe of a layer reaches on shuffled targets."""
    floor: dict[float, Point] = {}
    for model in run.models:
        for part in run.parts(f"{metric}.chance", model):
            for layer, point in run.curve(f"{metric}.chance", model, part).items():
                floor[layer] = max(floor.get(layer, point), point, key=lambda p: p.value)
    return [Line(dict(sorted(floor.items())), "chance", "best R² on shuffled targets", kind=LEVEL, panel=EVERYWHERE)]


def asides(run: Run, metric: str, lines: Sequence[Line]) -> list[Line]:
    """For the table alone: chance of every line, what few components hold of it, and where models are many, before
    training."""
    found = []
    for each in [e for e in lines if e.kind == OURS]:
        parts = [p for p in run.table.distinct("part", metric, each.name) if p.startswith(f"{each.part}.pca")]
        cut = {f"{each.part}, {p.rpartition('.pca')[2]} components": p for p in parts}
        for words, name, part, step in (
            (f"{each.part}, chance", f"{metric}.chance", each.part, None),
            *((words, metric, part, None) for words, part in cut.items()),
            *([(f"{each.part}, before training", metric, each.part, 0)] if schemes.many(run) else []),
        ):
            found.append(
                replace(each, points=run.curve(name, each.name, part, step), part=words, kind=ASIDE, hollow=frozenset())
            )
    return found


def _kept(run: Run) -> Sequence[Line]:
    streams = [m for m in run.models if "position" in run.parts("r2.token", m)]
    told = (
        streams
        if schemes.many(run)
        else [run.named("dstg") if run.named("dstg") in streams else m for m in streams[:1]]
    )
    models = [m for m in run.models if m in told or m not in streams]
    lines = of_models(
        run, "r2.token", streams=True, paper=DSTG_R2, before=True, models=sorted(models, key=lambda m: m not in told)
    )
    streamed = {(each.name, each.part) for each in lines if each.part != "all"}
    if schemes.many(run) and len(streamed) <= MOST_LINES:
        lines = [each if each.part == "all" else replace(each, panel=schemes.FAMILIES["streams"][0]) for each in lines]
    return [*lines, *chance(run, "r2.token"), *asides(run, "r2.token", lines)]


POSITION = Curves(
    "position",
    "r2.token",
    _kept,
    finding("dstg-position-kept", "ap-loses-position", sentence="At the end position is read best from", what="R²"),
    "A ridge probe reads a token's position in its document from each layer: R² on held-out documents. Hollow: the "
    "paper's six-layer models, at the same relative depth",
    "R² of position by layer",
    replace(LAYER, title="layer (0: embedding)"),
    replace(R2, title="R² of position"),
    records=("r2.token: layer, part, index = split", "r2.token.chance: layer, part"),
    width=230,
)


def _target(name: str, *claims: str) -> Curves:
    metric = f"r2.{name}"

    def lines(run: Run) -> Sequence[Line]:
        found = of_models(run, metric, panel="model", paper=DSTG_R2, before=True)
        ceiling = run.table.point(f"{metric}.ceiling")
        return [
            *found,
            *chance(run, metric),
            *asides(run, metric, found),
            *([Line({0: ceiling}, "position alone", mark=(FULL, ""), kind=LEVEL, panel=EVERYWHERE)] if ceiling else []),
        ]

    return Curves(
        f"probe-{name}",
        metric,
        lines,
        finding(*claims, sentence=f"At the end {what_of(name)} is read best from", what="R²"),
        f"A ridge probe reads a token's {TARGETS[name]} from each layer: R² on held-out documents",
        f"R² of {what_of(name)} by model, stream and layer",
        LAYER,
        R2,
        records=(
            f"{metric}: layer, part, index = split",
            f"{metric}.chance: layer, part",
            f"{metric}.ceiling: index = split",
        ),
        width=250,
        ghosts=True,
    )


def what_of(name: str) -> str:
    """A probe's target in a few words."""
    return {"token": "position", "segment": "the segment index", "intra": "progress in a segment"}[name]


PROBES = (
    _target("token", "semantic-stream-little-position", "rope-no-position"),
    _target("segment", "segment-follows-position", "ap-loses-segments", "relative-little-segment"),
    _target("intra", "intra-in-semantics", "intra-in-all-models"),
)


def _between(run: Run) -> Sequence[Line]:
    lines = of_models(run, "variance.position", streams=True, panel="model")
    beside = [
        Line(
            run.curve("r2.token", each.name, each.part),
            f"R² of position, `{each.name}`" if schemes.many(run) else "R² of position, by a line",
            each.part,
            kind=ASIDE if schemes.many(run) else LEVEL,
            panel=each.panel,
        )
        for each in lines
        if each.kind == OURS
    ]
    return [*lines, *beside]


VARIANCE = Curves(
    "variance-position",
    "variance.position",
    _between,
    finding(sentence="Most of the variance lies between positions in", write=lambda p: share(p.value)),
    "Of the variance of a layer's states over tokens, the share that lies between positions, without what chance adds: "
    "1 where the states are a function of position, straight or not",
    "Share of the variance between positions, and R² of position",
    LAYER,
    R2,
    width=250,
)


def _components(run: Run) -> Sequence[Line]:
    """R² from the first components of the streams, of one-stream models from those of all, and from the whole part."""
    cut: dict[tuple[str, str], list[int]] = {}
    for model in run.models:
        for name in run.table.distinct("part", "r2.token", model):
            if match := _CUT.match(name):
                cut.setdefault((model, match[1]), []).append(int(match[2]))
    lines = []
    for (model, part), counts in cut.items():
        if part == "all" and any(m == model and p != "all" for m, p in cut):
            continue
        colour = schemes.colour(run, model, part)
        panel = model if part == "all" else f"{model}, {part}"
        for i, k in enumerate([*sorted(set(counts)), None]):
            points = run.curve("r2.token", model, part if k is None else f"{part}.pca{k}")
            still = frozenset(layer for layer in points if layer > run.trained_until(model, part))
            dash = "solid" if k is None else _DASHES[i % len(_DASHES)]
            name = f"{part} from all" if k is None else f"{part} from {count(k, 'component')}"
            lines.append(Line(points, model, name, colour, (dash, "circle"), panel=panel, hollow=still))
    return lines


def _few(run: Run, lines: Sequence[Line]) -> str:
    """What most first components hold beside what all do, in the last trained layer of the model told of."""
    model = story(run, [each.name for each in lines])
    *few, whole = [
        each for each in lines if each.name == model and each.panel == next(e.panel for e in lines if e.name == model)
    ]
    if not few:
        return "R² of position from the first components"
    side = {BELOW: "less position than all", ABOVE: "more position than all"}.get(
        compare(few[-1].end, whole.end), "no separably other position"
    )
    part, _, components = few[-1].part.partition(" from ")
    where = f"`{model}`" + (f", {part}" if part != "all" else "")
    return judged(
        run,
        [model],
        f"The first {components} hold {side} at the end of {where}: R² {digits(few[-1].end)}, from all "
        f"{digits(whole.end)}",
    )


COMPONENTS = Curves(
    "probe-components",
    "r2.token",
    _components,
    _few,
    "R² of a token's position on held-out documents, read by a ridge probe from the first principal components of the "
    "states of a layer, and from all",
    "R² of position by number of components",
    LAYER,
    R2,
    ("Model", "Read from"),
    ("r2.token: layer, part = *.pca2 ...", "r2.token: layer, part"),
    260,
)

SHIFT = Curves(
    "shift",
    "shift.change",
    lambda run: of_models(run, "shift.change", streams=True),
    finding(
        "split-semantics-invariant",
        "nope-shift",
        sentence="When positions shift, the states at the end change most in",
        write=lambda p: share(p.value),
    ),
    "The same tokens at the start of the positions and half a document further on: size of the change over the size of "
    "the state",
    "Change of the states by layer, as a share of their size",
    replace(LAYER, title="layer (0: embedding)"),
    Axis("change of the states", "share", (0,)),
    width=250,
)


def figures(run: Run) -> list[Figure]:
    """Probes of three targets, variance between positions, and few components."""
    return [f for f in (each.draw(run) for each in (*PROBES, VARIANCE, COMPONENTS)) if f]
