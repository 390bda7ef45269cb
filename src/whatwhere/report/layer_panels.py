"""Plots of a quantity by layer: which lines share a panel, and how a panel is drawn. Probes and shifts use the same ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..papers import DSTG_LAYERS
from ..points import Point
from . import schemes
from .figures import Panel, Trace, line, paper_marks, reference
from .load import Study
from .numbers import fixed, percent
from .style import LABEL_GAP, LABEL_LIMIT, TEXT_SIZE, axis, layout, line_end_labels, model_styles, plain, spread

PaperValues = Mapping[tuple[str, str, str, int], float]  # (metric, model, part, our layer index) -> value
Line = tuple[str, str]  # model, part
WORDS = {"all": "all of hidden", "position": "position stream", "semantic": "semantic stream"}
MOST_LINES = 8  # of one panel; more stand in further panels


@dataclass(frozen=True)
class Group:
    """Lines that share a panel."""

    title: str
    lines: list[Line]


def many(study: Study) -> bool:
    """Whether the run has more models than one plot can name."""
    return len(study.models) > schemes.FEW


def styles(study: Study) -> dict[str, tuple[str, str]]:
    """Model -> (dash, marker), the same on the whole page; where models are many, different within a family only."""
    if not many(study):
        return model_styles(study.models)
    families: dict[str, list[str]] = {}
    for model in study.models:
        families.setdefault(schemes.family(study, model), []).append(model)
    return {m: style for members in families.values() for m, style in model_styles(members).items()}


def groups(study: Study, lines: Sequence[Line], together: bool = False) -> list[Group]:
    """Panels for many lines: one a stream, one a family of one-stream models, at most `MOST_LINES` lines each.

    together: the streams share a panel, if they are few enough.
    """
    together = together and sum(part != "all" for _, part in lines) <= MOST_LINES
    found: dict[tuple[int, str], list[Line]] = {}
    for model, part in lines:
        kind = schemes.family(study, model)
        if part != "all" and together:
            place = (0, schemes.FAMILIES[kind][0])
        elif part != "all":
            place = (0, f"{WORDS.get(part, part).capitalize()}s")
        elif kind == "streams":
            place = (1, "Both streams together")
        else:
            place = (2 + list(schemes.FAMILIES).index(kind), schemes.FAMILIES[kind][0])
        found.setdefault(place, []).append((model, part))
    panels = []
    for (_, title), members in sorted(found.items(), key=lambda item: item[0][0]):
        pieces = -(-len(members) // MOST_LINES)
        size = -(-len(members) // pieces)
        for i in range(pieces):
            panels.append(Group(title + (f" ({i + 1} of {pieces})" if pieces > 1 else ""), members[i * size : (i + 1) * size]))
    return panels


def paper_curve(paper: PaperValues, study: Study, metric: str, model: str, part: str) -> dict[float, tuple[int, float]]:
    """x -> (our layer index in a six-layer model, value): the paper's model of the same preset at the same relative depth.

    The paper's models have six layers. Where the model at hand has L, layer k of six stands at x = k · L / 6: the last layer
    falls on the last layer, whose collapse is what the comparison is about. With six layers x is the layer itself.
    """
    kind = schemes.preset(study, model)
    depth = study.depth(model)
    found = {k: v for (m, name, p, k), v in paper.items() if m == metric and name == kind and p == part}
    return {k * depth / DSTG_LAYERS: (k, v) for k, v in sorted(found.items())}


def stream_label(model: str, part: str) -> str:
    """Name of a line at its end: a long model name is cut, the stream's never."""
    if part == "all":
        return model
    room = LABEL_LIMIT - len(part) - 1
    return f"{model if len(model) <= room else model[: max(1, room - 1)] + '…'} {part}"


def spoken(study: Study, metric: str, lines: Sequence[Line]) -> str:
    """The lines in words, for those who hear the page."""
    said = []
    for model, part in lines:
        values = ", ".join(fixed(p.value, 2) for p in study.curve(metric, model, part).values())
        said.append(f"{model}{'' if part == 'all' else ' ' + part}: {values}")
    return "; ".join(said) + "."


@dataclass(frozen=True)
class Frame:
    """What all panels of a figure by layer share.

    lines: all of the figure, behind each panel as ghosts where `ghosts` holds them. y: the vertical axis. chance: layer -> floor.
    right: pixels right of the plots, for the labels. ceiling: what position alone can reach, a horizontal line.
    """

    study: Study
    metric: str
    what: str
    bounds: tuple[float, float]
    depth: int
    y: dict[str, Any]
    right: int
    height: int
    left: int = 40
    x_title: str = "layer"
    paper: PaperValues = field(default_factory=dict)
    chance: Mapping[int, float] = field(default_factory=dict)
    ghosts: Sequence[Line] = ()
    ceiling: Point | None = None

    def panel(
        self, title: str, lines: Sequence[Line], labels: Sequence[str], note: str = "", name_chance: bool = False, name_paper: bool = False
    ) -> Panel:
        """One panel: its lines, named at their ends by `labels` ("" for none), over the ghosts and the floor of chance."""
        marks = styles(self.study)
        traces: list[Trace] = [self._ghost(ghost) for ghost in self.ghosts if ghost not in lines]
        if self.chance:
            traces.append(
                reference(list(self.chance), list(self.chance.values()), "chance: the best R² that a probe reaches on shuffled targets")
            )
        if self.ceiling:
            words = f"position alone: R² {fixed(self.ceiling.value, 2)} by the best function of a token's position"
            traces.append(reference([0, self.depth], [self.ceiling.value] * 2, words, "solid"))
        ends = []
        for (model, part), label in reversed(list(zip(lines, labels, strict=True))):  # the first of the story is drawn last, on top
            traces += self._line(model, part, marks[model])
            curve = self.study.curve(self.metric, model, part)
            if label and curve:
                ends.append((float(max(curve)), curve[max(curve)].value, label, schemes.colour(self.study, model, part)))
        if name_chance and self.chance:
            ends.append((float(max(self.chance)), self.chance[max(self.chance)], "chance", "combined"))
        top, bottom = (10, 52) if self.x_title != "layer" else (6, 48)
        inside = self.height - top - bottom
        notes = line_end_labels(ends, self.bounds, inside) + (self._paper_names(lines, inside) if name_paper else [])
        x = axis(
            self.x_title,
            range=[-0.03 * self.depth - 0.02, self.depth * 1.03 + 0.02],
            tickmode="array",
            tickvals=list(range(0, self.depth + 1, 1 if self.depth <= 8 else 2)),
            showgrid=False,
        )
        plot = layout(self.height, x, self.y, {"l": self.left, "r": self.right, "t": top, "b": bottom}, annotations=notes)
        return Panel(traces, plot, title, spoken(self.study, self.metric, lines), note)

    def _line(self, model: str, part: str, style: tuple[str, str]) -> list[Trace]:
        """Our line of one model and part, and the paper's markers of the same."""
        study, (dash, symbol) = self.study, style
        curve = study.curve(self.metric, model, part)
        colour, name = schemes.colour(study, model, part), model if part == "all" else f"{model}, {WORDS.get(part, part)}"
        hollow = frozenset(float(layer) for layer in curve if layer > study.trained_until(model, part))
        depth = study.depth(model)
        places = {float(i): f"layer {i} of {depth}" for i in range(1, depth + 1)} | {0.0: "embedding"}
        places |= {i: f"layer {i:.0f}, which no gradient reaches" for i in hollow}
        traces = line({float(i): p for i, p in curve.items()}, colour, dash, symbol, name, places, hollow, what=self.what)
        if published := paper_curve(self.paper, study, self.metric, model, part):
            where = {x: f"layer {k} of {DSTG_LAYERS}" for x, (k, _) in published.items()}
            traces.append(paper_marks({x: v for x, (_, v) in published.items()}, colour, symbol, name, where))
        return traces

    def _ghost(self, ghost: Line) -> Trace:
        curve = self.study.curve(self.metric, *ghost)
        return {
            "type": "scatter",
            "mode": "lines",
            "x": list(curve),
            "y": [p.value for p in curve.values()],
            "line": {"color": "@ghost", "width": 1.0 if many(self.study) else 1.6},
            "hovertext": [plain(ghost[0])] * len(curve),
            "hoverinfo": "skip",
        }

    def _paper_names(self, lines: Sequence[Line], height: float) -> list[dict[str, Any]]:
        """The paper's names of its models, left of their first markers; colours tell the streams of one apart."""
        firsts = []
        for model, part in lines:
            if found := paper_curve(self.paper, self.study, self.metric, model, part):
                x = min(found)
                firsts.append((x, found[x][1], schemes.preset(self.study, model), schemes.colour(self.study, model, part)))
        bottom, top = self.bounds
        wanted = [(top - y) / (top - bottom) * height for _, y, _, _ in firsts]
        return [
            {
                "x": x,
                "y": y,
                "ax": -11,
                "ay": at - want,
                "text": plain(words, LABEL_LIMIT),
                "showarrow": True,
                "arrowhead": 0,
                "arrowwidth": 1,
                "arrowcolor": "rgba(0,0,0,0)",
                "xanchor": "right",
                "yanchor": "middle",
                "bgcolor": "@halo",
                "borderpad": 0,
                "font": {"size": TEXT_SIZE, "color": f"@ink-{colour}"},
            }
            for (x, y, words, colour), want, at in zip(firsts, wanted, spread(wanted, LABEL_GAP), strict=True)
        ]


def r2_axis(title: str, bounds: tuple[float, float], step: float) -> dict[str, Any]:
    """A vertical axis of R² from 0 to 1."""
    ticks = [i * step for i in range(round(1 / step) + 1)]
    return axis(title, range=list(bounds), tickvals=ticks, ticktext=[f"{t:g}" for t in ticks])


def share_axis(title: str, bounds: tuple[float, float], ticks: Sequence[float]) -> dict[str, Any]:
    """A vertical axis of shares, in per cent."""
    return axis(title, range=list(bounds), tickvals=list(ticks), ticktext=[percent(t, 0) for t in ticks])
