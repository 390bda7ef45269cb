"""Figures of the structural probes (DSTG section 5): position by layer on the first screen, then layer × target × stream."""

from . import findings, schemes
from .figures import MOST_DIGITS, Cell, Figure, Table, measured, repeats, text, value
from .layer_panels import WORDS, Frame, Line, PaperValues, groups, many, paper_curve, r2_axis, stream_label
from .load import Study
from .numbers import count, fixed, number, percent
from .paper import PAPER_LAYERS
from .style import label_margin
from .training_figures import stuck_models

LOWEST = -0.3  # smallest R² that an axis shows; a probe far worse than the mean would hide all others
TARGETS = {
    "r2.token": ("position", "a token's position in its document"),
    "r2.segment": ("the segment index", "the index of the segment (sentence or line) a token stands in"),
    "r2.intra": ("progress", "a token's progress inside its segment, 0 at the start, 1 at the end,"),
}


def two_streams(study: Study, metric: str) -> str | None:
    """The two-stream model to tell the story with: `dstg`, else the first whose position stream was probed."""
    streams = [m for m in study.models if "position" in study.parts(metric, m)]
    named = study.named("dstg")
    return named if named in streams else next(iter(streams), None)


def chance_floor(study: Study, metric: str) -> dict[int, float]:
    """Layer -> largest R² that any probe of that layer reaches on shuffled targets."""
    floor: dict[int, float] = {}
    for model in study.models:
        for part in study.parts(f"{metric}.chance", model):
            for layer, p in study.curve(f"{metric}.chance", model, part).items():
                floor[layer] = max(floor.get(layer, p.value), p.value)
    return dict(sorted(floor.items()))


def finding(study: Study, metric: str, first_screen: bool = False) -> str:
    """Title of a probe figure by the rules of `findings`; a model that has not left the unigram plateau supports no finding."""
    name, stuck = two_streams(study, metric), stuck_models(study)
    title = _finding(study, metric, first_screen, stuck)
    return findings.untestable(name, title) if name in stuck else title


def _finding(study: Study, metric: str, first_screen: bool, stuck: list[str]) -> str:
    what = TARGETS[metric][0]
    name = two_streams(study, metric)
    ap = study.named("ap")
    curves = {m: study.curve(metric, m, "all") for m in study.models}
    if name is None:
        return findings.best(what, curves)
    position, semantic = study.curve(metric, name, "position"), study.curve(metric, name, "semantic")
    last = study.trained_until(name, "position")
    if metric == "r2.intra":
        return findings.progress(position, semantic, last) or findings.best(what, curves)
    if metric == "r2.token" and not first_screen and (title := findings.apart(what, position, semantic, last)):
        return title  # the first screen has said what the position stream keeps
    other = curves[ap].get(study.depth(ap)) if ap and ap != name and ap not in stuck else None
    return findings.kept(what, name, position, last, ap, other)


def _range(values: list[float]) -> tuple[float, float]:
    return max(LOWEST, min([*values, 0.0]) - 0.05), max([*values, 1.0]) + 0.04


def _values(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues) -> list[float]:
    own = [
        v for m, p in lines for point in study.curve(metric, m, p).values() for v in (point.value, point.low, point.high) if v is not None
    ]
    return own + [v for m, p in lines for _, v in paper_curve(paper, study, metric, m, p).values()]


def _table(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues, id: str, caption: str) -> Table:
    """Every point that is drawn: ours with interval and chance, the paper's as rows of their own."""
    rows: list[list[Cell]] = []
    for model, part in lines:
        depth = study.depth(model)
        chance = study.curve(f"{metric}.chance", model, part)
        for layer, p in study.curve(metric, model, part).items():
            floor = chance.get(layer)
            untrained = " (no gradient)" if layer > study.trained_until(model, part) else ""
            rows.append(
                [
                    text("this run"),
                    text(model),
                    text(WORDS.get(part, part) + untrained),
                    value(layer, str(layer)),
                    value(layer / depth, fixed(layer / depth, 2)),
                ]
                + measured(p)
                + [
                    value(floor.value, number(floor.value, floor.low, floor.high, MOST_DIGITS)) if floor else Cell("–"),
                    value(p.n) if p.n else Cell("–"),
                ]
            )
        for k, v in paper_curve(paper, study, metric, model, part).values():
            share = k / PAPER_LAYERS
            rows.append(
                [
                    text("paper"),
                    text(model),
                    text(WORDS.get(part, part)),
                    value(k, str(k)),
                    value(share, fixed(share, 2)),
                    value(v, fixed(v, 2)),
                ]
                + [Cell(""), Cell(""), Cell("–"), Cell("–")]
            )
    columns = ["Source", "Model", "Read from", "Layer", "Relative depth", "R²", "Low", "High", "Chance", "n"]
    return Table(id, caption, columns, rows, frozenset(range(3, 10)))


def _subtitle(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues) -> str:
    points = [p for m, part in lines for p in study.curve(metric, m, part).values()]
    sizes = sorted({p.n for p in points if p.n})
    n = f"n = {number(sizes[0])}" + (f" to {number(sizes[-1])}" if len(sizes) > 1 else "") + " tokens" if sizes else ""
    documents = {p.value for m in study.models if (p := study.point("probe.documents", m))}
    if n and len(documents) == 1:
        n += f" of {count(round(documents.pop()), 'document')}"
    said = f"A ridge probe reads {TARGETS[metric][1]} from each layer: R² on held-out documents"
    said += (f" ({n})" if n else "") + f"; {repeats(points)}."
    if any(paper_curve(paper, study, metric, m, p) for m, p in lines):
        depths = {study.depth(m) for m, _ in lines}
        where = "layer by layer" if depths == {PAPER_LAYERS} else "at the same relative depth"
        said += f" Hollow and unjoined: the paper's six-layer models, {where}."
    if any(p.value < LOWEST for p in points):
        said += f" Values below {fixed(LOWEST, 1)} are in the table only."
    return said


def _key(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues, chance: bool) -> list[tuple[str, str]]:
    key = [("measured", f"measured, bar: {percent(0.95, 0)} interval")]
    if any(paper_curve(paper, study, metric, m, p) for m, p in lines):
        key.append(("paper", "the paper"))
    if any(l > study.trained_until(m, p) for m, p in lines for l in study.curve(metric, m, p)):
        key.append(("untrained", "no gradient reaches it"))
    if chance:
        key.append(("chance", "best R² on shuffled targets"))
    return key


def hero(study: Study, paper: PaperValues) -> Figure | None:
    """The figure of the first screen: position R² by layer of the streams and of every one-stream model.

    A few models share one plot, the story's two streams with all others; many stand in one panel a family.
    """
    metric = "r2.token"
    name = two_streams(study, metric)
    told = study.models if many(study) else [name] if name else []
    lines = [(m, p) for m in told for p in ("position", "semantic") if study.curve(metric, m, p)]
    lines += [(m, "all") for m in study.models if "position" not in study.parts(metric, m) and study.curve(metric, m, "all")]
    if not lines:
        return None
    chance = chance_floor(study, metric)
    bounds = _range(_values(study, metric, lines, paper) + list(chance.values()))
    depth = max(study.depth(m) for m, _ in lines)
    if many(study):
        right, y = label_margin([stream_label(m, p) for m, p in lines]), r2_axis("", bounds, 0.5)
        frame = Frame(study, metric, "R²", bounds, depth, y, right, 226, 40, "layer", paper, chance)
        panels = [frame.panel(g.title, g.lines, [stream_label(m, p) for m, p in g.lines]) for g in groups(study, lines, together=True)]
    else:
        labels = [stream_label(m, p) for m, p in lines]
        frame = Frame(
            study,
            metric,
            "R²",
            bounds,
            depth,
            r2_axis("R² of position", bounds, 0.25),
            label_margin([*labels, "chance"]),
            470,
            52,
            "layer (0: embedding)",
            paper,
            chance,
        )
        panels = [frame.panel("", lines, labels, name_chance=True, name_paper=True)]
    title = finding(study, metric, first_screen=True)
    table = _table(study, metric, lines, paper, "position-by-layer", "Position R² by layer, as drawn")
    key = _key(study, metric, lines, paper, bool(chance))
    return Figure("position", title, _subtitle(study, metric, lines, paper), panels, table, key, 230, even=many(study))


def targets(study: Study, paper: PaperValues) -> list[Figure]:
    """One figure a target on shared axes: one panel a model, the others behind it in grey; many models share panels by family."""
    return [f for f in (_target(study, paper, metric) for metric in TARGETS) if f is not None]


def _target(study: Study, paper: PaperValues, metric: str) -> Figure | None:
    models = [m for m in study.models if any(study.curve(metric, m, p) for p in study.parts(metric, m))]
    lines = [(m, p) for m in models for p in study.parts(metric, m)]
    if not lines:
        return None
    chance = chance_floor(study, metric)
    bounds = _range(_values(study, metric, lines, paper) + list(chance.values()))
    depth = max(study.depth(m) for m in models)
    ghosts = [(m, "all") for m in models if study.curve(metric, m, "all")]

    def frame(labels: list[str]) -> Frame:
        right = label_margin(labels) if any(labels) else 12
        return Frame(study, metric, "R²", bounds, depth, r2_axis("", bounds, 0.5), right, 236, 40, "layer", paper, chance, ghosts)

    if many(study):
        shared = frame(models)
        panels = [shared.panel(g.title, g.lines, [m for m, _ in g.lines]) for g in groups(study, lines)]
    else:
        panels = []
        for model in models:
            own: list[Line] = [(m, p) for m, p in lines if m == model]
            # Of several parts, all of hidden is drawn first, the streams over it.
            own = [x for x in own if x[1] != "all"] + [x for x in own if x[1] == "all"]
            labels = [p if len(own) > 1 else "" for _, p in own]
            panels.append(frame(labels).panel(model, own, labels, schemes.block(study, model) if _blocks(study) else ""))
    title = finding(study, metric)
    short = metric.removeprefix("r2.")
    table = _table(study, metric, lines, paper, f"probe-{short}", f"R² of {TARGETS[metric][0]} by model, stream and layer")
    key = _key(study, metric, lines, paper, bool(chance))
    return Figure(f"probe-{short}", title, _subtitle(study, metric, lines, paper), panels, table, key, 250, even=many(study))


def _blocks(study: Study) -> bool:
    """Whether the models stand on different blocks, which their panels then name."""
    return len({schemes.block(study, m) for m in study.models}) > 1
