"""Figures of the structural probes (DSTG section 5): position by layer on the first screen, then layer × target × stream.

Controls beside chance: the same probes of the untrained model (records with step 0), and of the first principal components of a part
alone (parts `all.pca2`, `position.pca8`, ...).
"""

import re
from collections.abc import Iterable, Mapping

from ..papers import DSTG_LAYERS
from ..points import Point
from . import findings, schemes
from .figures import MOST_DIGITS, Cell, Figure, Panel, Table, Trace, hover, line, measured, reference, repeats, text, value
from .layer_panels import WORDS, Frame, Line, PaperValues, groups, many, paper_curve, r2_axis, stream_label
from .load import Study
from .numbers import count, fixed, interval, number, percent
from .style import axis, label_margin, layout, line_end_labels
from .training_figures import stuck_models

LOWEST = -0.3  # smallest R² that an axis shows; a probe far worse than the mean would hide all others
UNTRAINED = 0  # step of a model before its training
CUT = re.compile(r"(.+)\.pca(\d+)$")  # a part cut to its first components
DASHES = ("2px,3px", "7px,4px", "10px,3px,2px,3px")  # of few components, from the fewest; all of them are solid
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
    """Title of a probe figure by the rules of `findings`; a model that has not left the unigram plateau supports no finding.

    Where the untrained model was probed too, the title says how far what it tells of lies above it.
    """
    name, stuck = two_streams(study, metric), stuck_models(study)
    title = _finding(study, metric, first_screen, stuck)
    if name in stuck:
        return findings.untestable(name, title)
    told = _told(study, metric, first_screen)
    point, before = (study.curve(metric, *told[:2], step).get(told[2]) if told else None for step in (None, UNTRAINED))
    return f"{title}; {findings.gained(point, before)}" if point and before else title


def _told(study: Study, metric: str, first_screen: bool) -> tuple[str, str, int] | None:
    """The model, part and layer whose value the title of a probe figure tells first."""
    name = two_streams(study, metric)
    if name is not None:
        position, semantic = study.curve(metric, name, "position"), study.curve(metric, name, "semantic")
        last = study.trained_until(name, "position")
        if metric == "r2.intra" and last in position and last in semantic:
            return name, "semantic" if semantic[last].value >= position[last].value else "position", last
        layers = [l for l in position if l in semantic and l <= last]
        if metric == "r2.token" and not first_screen and layers:
            return name, "semantic", max(layers, key=lambda l: semantic[l].value)
        if metric != "r2.intra":
            return name, "position", last
    found = {(m, layer): p.value for m in study.models for layer, p in study.curve(metric, m, "all").items()}
    best = max(found, key=lambda key: found[key], default=None)
    return (best[0], "all", best[1]) if best else None


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
    before = [point.value for m, p in lines for point in study.curve(metric, m, p, UNTRAINED).values()]
    return own + before + [v for m, p in lines for _, v in paper_curve(paper, study, metric, m, p).values()]


def controls(study: Study, metric: str, lines: Iterable[Line]) -> list[Trace]:
    """The same lines before training."""
    found = []
    for model, part in lines:
        name = model if part == "all" else f"{model}, {WORDS.get(part, part)}"
        found += before(study.curve(metric, model, part, UNTRAINED), schemes.colour(study, model, part), name)
    return found


def before(curve: Mapping[int, Point], colour: str, name: str, what: str = "R²") -> list[Trace]:
    """A line of a model before its training: thin and dotted, a short bar at each layer; nothing where it was not measured."""
    if not curve:
        return []
    paint = f"@{colour}"
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": list(curve),
            "y": [p.value for p in curve.values()],
            "line": {"color": paint, "dash": "1px,3px", "width": 1.2},
            "marker": {"symbol": "line-ew", "size": 11, "color": paint, "line": {"color": paint, "width": 1.6}},
            "hovertext": [hover(f"{name}, before training", f"layer {i}", p, what) for i, p in curve.items()],
            "hoverinfo": "text",
        }
    ]


def reduced(study: Study, metric: str, model: str) -> dict[str, dict[int, dict[int, Point]]]:
    """Part -> number of first components -> layer -> R² of the probes that see no more of the part."""
    found: dict[str, dict[int, dict[int, Point]]] = {}
    for name in sorted({r.part for r in study.records if r.metric == metric and r.model == model and r.part}):
        if (match := CUT.match(name)) and (curve := study.curve(metric, model, name)):
            found.setdefault(match[1], {})[int(match[2])] = curve
    return {part: dict(sorted(found[part].items())) for part in ("all", "position", "semantic", *found) if part in found}


def _table(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues, id: str, caption: str) -> Table:
    """Every point that is drawn: ours with interval and chance; as rows of their own those before training, those of few components and
    the paper's."""
    rows: list[list[Cell]] = []
    cut = {m: reduced(study, metric, m) for m in dict.fromkeys(m for m, _ in lines)}
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
        own = WORDS.get(part, part)
        more = [("before training", own, study.curve(metric, model, part, UNTRAINED))]
        more += [("this run", f"{own}, {count(k, 'component')}", curve) for k, curve in cut[model].get(part, {}).items()]
        rows += [
            [text(source), text(model), text(words), value(layer, str(layer)), value(layer / depth, fixed(layer / depth, 2))]
            + [*measured(p), Cell("–"), value(p.n) if p.n else Cell("–")]
            for source, words, curve in more
            for layer, p in curve.items()
        ]
        for k, v in paper_curve(paper, study, metric, model, part).values():
            share = k / DSTG_LAYERS
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
    if ceiling := study.point(f"{metric}.ceiling", ""):
        none = Cell("–")
        rows.append([text("corpus"), none, text("position alone"), none, none, *measured(ceiling), none, value(ceiling.n)])
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
        where = "layer by layer" if depths == {DSTG_LAYERS} else "at the same relative depth"
        said += f" Hollow and unjoined: the paper's six-layer models, {where}."
    untrained = [p for m, part in lines for p in study.curve(metric, m, part, UNTRAINED).values()]
    if ceiling := study.point(f"{metric}.ceiling", ""):
        said += (
            f" Position alone: the best function of a token's position reaches R² {fixed(ceiling.value, 2)}"
            f"{' ' * bool(bounds := interval(ceiling.low, ceiling.high))}{bounds}, the ceiling of a stream that knows "
            "nothing else."
        )
    if any(p.value < LOWEST for p in [*points, *untrained]):
        said += f" Values below {fixed(LOWEST, 1)} are in the table only."
    if many(study) and untrained:
        said += " The same before training is in the table."
    return said


def _key(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues, chance: bool) -> list[tuple[str, str]]:
    key = [("measured", f"measured, bar: {percent(0.95, 0)} interval")]
    if any(paper_curve(paper, study, metric, m, p) for m, p in lines):
        key.append(("paper", "the paper"))
    if any(l > study.trained_until(m, p) for m, p in lines for l in study.curve(metric, m, p)):
        key.append(("untrained", "no gradient reaches it"))
    if not many(study) and any(study.curve(metric, m, p, UNTRAINED) for m, p in lines):
        key.append(("before", "the same model before training"))
    if study.point(f"{metric}.ceiling", ""):
        key.append(("ceiling", "position alone"))
    if chance:
        key.append(("chance", "best R² on shuffled targets"))
    return key


def _records(study: Study, metric: str) -> tuple[str, ...]:
    found: tuple[str, ...] = (f"{metric}: layer, part, index = split", f"{metric}.chance: layer, part")
    untrained = any(r.metric == metric and r.step == UNTRAINED for r in study.records)
    found += (f"{metric}.ceiling: index = split",) if study.point(f"{metric}.ceiling", "") else ()
    return (*found, *([f"{metric}: layer, part, step = 0 (before training)"] if untrained else []))


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
        panels[0].data[:0] = controls(study, metric, lines)
    title = finding(study, metric, first_screen=True)
    table = _table(study, metric, lines, paper, "position-by-layer", "Position R² by layer, as drawn")
    key = _key(study, metric, lines, paper, bool(chance))
    return Figure(
        "position", title, _subtitle(study, metric, lines, paper), panels, table, key, 230, many(study), records=_records(study, metric)
    )


def targets(study: Study, paper: PaperValues) -> list[Figure]:
    """One figure a target on shared axes: one panel a model, the others behind it in grey; many models share panels by family."""
    return [f for f in (_target(study, paper, metric) for metric in TARGETS) if f is not None]


def _target(study: Study, paper: PaperValues, metric: str) -> Figure | None:
    models = [m for m in study.models if any(study.curve(metric, m, p) for p in study.parts(metric, m))]
    lines = [(m, p) for m in models for p in study.parts(metric, m)]
    if not lines:
        return None
    chance = chance_floor(study, metric)
    ceiling = study.point(f"{metric}.ceiling", "")
    bounds = _range(_values(study, metric, lines, paper) + list(chance.values()) + ([ceiling.value] if ceiling else []))
    depth = max(study.depth(m) for m in models)
    ghosts = [(m, "all") for m in models if study.curve(metric, m, "all")]

    def frame(labels: list[str]) -> Frame:
        right = label_margin(labels) if any(labels) else 12
        y = r2_axis("", bounds, 0.5)
        return Frame(study, metric, "R²", bounds, depth, y, right, 236, 40, "layer", paper, chance, ghosts, ceiling)

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
            behind = sum(ghost not in own for ghost in ghosts)
            panels[-1].data[behind:behind] = controls(study, metric, own)
    title = finding(study, metric)
    short = metric.removeprefix("r2.")
    table = _table(study, metric, lines, paper, f"probe-{short}", f"R² of {TARGETS[metric][0]} by model, stream and layer")
    key = _key(study, metric, lines, paper, bool(chance))
    return Figure(
        f"probe-{short}",
        title,
        _subtitle(study, metric, lines, paper),
        panels,
        table,
        key,
        250,
        many(study),
        records=_records(study, metric),
    )


def components(study: Study) -> Figure | None:
    """How many dimensions hold position: R² of position from the first principal components of a part, and from all of it, by layer."""
    metric = "r2.token"
    found = {(m, part): few for m in study.models for part, few in reduced(study, metric, m).items()}
    lines = [(m, p) for m, p in found if p != "all" or not any(other == m and q != "all" for other, q in found)]
    if not lines:
        return None
    wholes = {x: study.curve(metric, *x) for x in lines}
    curves = {x: [*found[x].items(), (None, wholes[x])] for x in lines}  # None: all components
    shown = [x for x in lines if any(p.value >= findings.PRESENT for p in wholes[x].values())] or lines[:1]
    every = [p for few in curves.values() for _, curve in few for p in curve.values()]
    bounds = _range([v for p in every for v in (p.value, p.low, p.high) if v is not None])
    depth = max(study.depth(m) for m, _ in lines)
    panels = [_components_panel(study, x, curves[x], bounds, depth) for x in shown]
    rows = [
        [text(m), text(WORDS.get(part, part)), value(k, str(k)) if k else text("all"), value(layer, str(layer)), *measured(p)]
        for m, part in lines
        for k, curve in curves[m, part]
        for layer, p in curve.items()
    ]
    counts = sorted({k for x in lines for k in found[x]})
    subtitle = (
        f"R² of a token's position on held-out documents, read by a ridge probe from the first {_or(counts)} principal components of the "
        f"states of a layer, and from all; {repeats(every)}."
    )
    if len(shown) < len(lines):
        subtitle += f" Drawn where R² from all reaches {fixed(findings.PRESENT, 2)} in a layer; the table has the others."
    columns = ["Model", "Read from", "Components", "Layer", "R²", "Low", "High"]
    table = Table("probe-components", "R² of position by number of components", columns, rows, frozenset(range(2, 7)))
    key = [("measured", f"measured, bar: {percent(0.95, 0)} interval")]
    records = (f"{metric}: layer, part = *.pca{counts[0]} ...", f"{metric}: layer, part")
    return Figure("probe-components", _held(study, found), subtitle, panels, table, key, 260, even=True, records=records)


def between(study: Study) -> Figure | None:
    """How much of a stream is position: the share of its variance that lies between positions by layer, beside R² of position."""
    metric, linear = "variance.position", "r2.token"
    lines = [(m, p) for m in study.models for p in study.parts(metric, m) if p != "all" or len(study.parts(metric, m)) == 1]
    points = {x: curve for x in lines if (curve := study.curve(metric, *x))}
    if not points:
        return None
    lines = list(points)
    every = [p for curve in points.values() for p in curve.values()]
    bounds = _range([v for p in every for v in (p.value, p.low, p.high) if v is not None])
    depth = max(study.depth(m) for m, _ in lines)
    labels = {x: "" if x[1] == "all" else x[1] for x in lines}
    y, right = r2_axis("", bounds, 0.5), label_margin([m for m, _ in lines] if many(study) else list(labels.values()))
    frame = Frame(study, metric, "share", bounds, depth, y, right, 236)
    if many(study):
        panels = [frame.panel(g.title, g.lines, [m for m, _ in g.lines]) for g in groups(study, lines)]
    else:
        panels = []
        for model in dict.fromkeys(m for m, _ in lines):
            own = [x for x in lines if x[0] == model]
            panels.append(frame.panel(model, own, [labels[x] for x in own]))
            for x in own:
                curve = study.curve(linear, *x)
                panels[-1].data.insert(0, reference(list(curve), [p.value for p in curve.values()], f"R² of position, {' '.join(x)}"))
    rows = [
        [text(m), text(WORDS.get(part, part)), value(layer, str(layer)), *measured(p), *measured(study.curve(linear, m, part).get(layer))]
        for (m, part), curve in points.items()
        for layer, p in curve.items()
    ]
    columns = ["Model", "Part", "Layer", "Share", "Low", "High", "R²", "Low", "High"]
    table = Table("variance-position", "Share of the variance between positions, and R² of position", columns, rows, frozenset(range(2, 9)))
    key = [("measured", f"share, bar: {percent(0.95, 0)} interval")]
    key += [] if many(study) else [("chance", "R² of position, by a line")]
    name = two_streams(study, metric)
    told = (name, "position") if name else max(lines, key=lambda x: max((p.value for layer, p in points[x].items() if layer), default=-1.0))
    layer = study.trained_until(*told) if name else max(points[told], key=lambda i: points[told][i].value if i else -1.0)
    title = "Share of the variance that lies between positions, layer by layer"
    if found := points[told].get(layer):
        where = f"layer {layer} of `{told[0]}`" + ("" if told[1] == "all" else f"'s {WORDS[told[1]]}")
        title = findings.between(where, found, study.curve(linear, *told).get(layer))
        title = findings.untestable(told[0], title) if told[0] in stuck_models(study) else title
    subtitle = (
        "Of the variance of a layer's states over tokens, the share that lies between positions, without what chance adds: 1 where the "
        f"states are a function of position, straight or not; {repeats(every).replace('document splits', 'documents')}."
    )
    return Figure("variance-position", title, subtitle, panels, table, key, 250, many(study), records=(f"{metric}: layer, part",))


def _or(counts: list[int]) -> str:
    return f"{', '.join(map(str, counts[:-1]))} or {counts[-1]}" if len(counts) > 1 else str(counts[0])


def _held(study: Study, found: dict[Line, dict[int, dict[int, Point]]]) -> str:
    """Whether a few components hold position, by `findings.dimensions`: in the position stream of the story, else where it is read best."""
    metric = "r2.token"
    name = two_streams(study, metric)
    if name is not None and (name, "position") in found:
        line_, layer = (name, "position"), study.trained_until(name, "position")
    else:
        at = {(x, layer): p.value for x in found for layer, p in study.curve(metric, *x).items() if layer}
        if not at:
            return "R² of position from the first components"
        line_, layer = max(at, key=lambda key: at[key])
    few, whole = {k: c[layer] for k, c in found[line_].items() if layer in c}, study.curve(metric, *line_).get(layer)
    if not few or whole is None:
        return "R² of position from the first components"
    where = f"in layer {layer} of `{line_[0]}`" + ("" if line_[1] == "all" else f"'s {WORDS.get(line_[1], line_[1])}")
    stuck = stuck_models(study)
    ap, other = study.named("ap"), ""
    if ap and ap != line_[0] and ap not in stuck and (ap, "all") in found and (own := study.curve(metric, ap, "all").get(layer)):
        least = {k: c[layer] for k, c in found[ap, "all"].items() if layer in c}
        if least:
            other = f"; `{ap}` {findings.r2(least[max(least)])} from {max(least)}, {findings.r2(own)} from all"
    title = findings.dimensions("position", where, few, whole, other)
    return findings.untestable(line_[0], title) if line_[0] in stuck else title


def _components_panel(
    study: Study, x: Line, curves: list[tuple[int | None, dict[int, Point]]], bounds: tuple[float, float], depth: int
) -> Panel:
    model, part = x
    colour = schemes.colour(study, model, part)
    traces: list[Trace] = []
    ends = []
    for i, (k, curve) in enumerate(curves):
        dash, name = ("solid", "all") if k is None else (DASHES[i % len(DASHES)], count(k, "component"))
        places = {float(layer): f"layer {layer} of {depth}" for layer in curve} | {0.0: "embedding"}
        still = frozenset(float(layer) for layer in curve if layer > study.trained_until(model, part))
        held = {float(layer): p for layer, p in curve.items()}
        traces += line(held, colour, dash, "circle", f"{model}, {name}", places, still, size=6, width=2.0 if k is None else 1.6)
        if curve:
            ends.append((float(max(curve)), curve[max(curve)].value, "all" if k is None else str(k), colour))
    height, margin = 236, {"l": 40, "r": label_margin(["all"]), "t": 6, "b": 48}
    ticks = list(range(0, depth + 1, 1 if depth <= 8 else 2))
    plot = layout(
        height,
        axis("layer", range=[-0.03 * depth - 0.02, depth * 1.03 + 0.02], tickvals=ticks, showgrid=False),
        r2_axis("", bounds, 0.5),
        margin,
        annotations=line_end_labels(ends, bounds, height - margin["t"] - margin["b"]),
    )
    said = "; ".join(f"{'all' if k is None else k}: {', '.join(findings.r2(p) for p in c.values())}" for k, c in curves)
    words = "" if part == "all" else WORDS.get(part, part)
    return Panel(traces, plot, model, f"R² of position by layer from components of {model} {words}. {said}.", words)


def _blocks(study: Study) -> bool:
    """Whether the models stand on different blocks, which their panels then name."""
    return len({schemes.block(study, m) for m in study.models}) > 1
