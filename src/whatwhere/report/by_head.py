"""Records of single heads and of whole models for the figures that look inside, and the names of terms and of what is drawn."""

from collections.abc import Iterable, Sequence

import numpy as np

from ..intervals import seed_interval
from ..points import Point
from ..records import Record
from . import findings
from .figures import MOST_DIGITS, Cell, Trace, value
from .load import Study
from .numbers import count, interval, number, percent
from .style import plain
from .training_figures import stuck_models

Head = tuple[int | None, int, int]  # seed, layer from 1, head from 0

# Term -> (colour, what a head that follows it looks for, the term in a few words).
TERMS: dict[str, tuple[str, str, str]] = {
    "semantic": ("semantic", "meaning", "semantic"),
    "absolute": ("absolute", "absolute position", "absolute"),
    "relative": ("relative", "relative position", "relative"),
    "mixed": ("combined", "words and positions in one", "mixed"),
    "semantic_to_absolute": ("untied", "position from words", "words to positions"),
    "absolute_to_semantic": ("untied", "words from position", "positions to words"),
    "total": ("combined", "all terms", "total"),
    "several": ("combined", "no term alone", "several"),
}
TOTAL, SEVERAL = "total", "several"


def colour(term: str) -> str:
    """Colour name of a term; that of its stream where it has one."""
    return TERMS.get(term, ("untied", "", ""))[0]


def meaning(term: str) -> str:
    """What a head of that term looks for, in words."""
    return TERMS[term][1] if term in TERMS else term.replace("_", " ")


def short(term: str) -> str:
    """A term in a few words."""
    return TERMS[term][2] if term in TERMS else term.replace("_", " ")


def in_order(terms: Iterable[str]) -> list[str]:
    """Terms in the order of `TERMS`, others before `total` and `several`."""
    order = {t: i for i, t in enumerate(TERMS)}
    last = {TOTAL: 1, SEVERAL: 2}
    return sorted(set(terms), key=lambda t: (last.get(t, 0), order.get(t, len(order)), t))


def terms_of(study: Study, model: str, prefix: str = "kl.share.") -> list[str]:
    """Terms that a model has records of by head: of metrics `prefix` and the term."""
    found = {r.metric.removeprefix(prefix) for r in study.records if r.model == model and r.metric.startswith(prefix)}
    return in_order(found)


def parts_of(study: Study, metric: str, model: str) -> list[str]:
    """Parts of a metric that a model has records of, terms in order."""
    return in_order(study.parts(metric, model))


def by_head(study: Study, metric: str, model: str, part: str | None = None) -> dict[Head, Record]:
    """(seed, layer, head) -> record of the trained model, in that order."""
    found = {
        (r.seed, r.layer, r.head): r for r in study.of(metric, model, part) if r.step is None and r.layer is not None and r.head is not None
    }
    return dict(sorted(found.items(), key=lambda item: (-1 if item[0][0] is None else item[0][0], *item[0][1:])))


def by_layer(study: Study, metric: str, model: str, part: str | None = None) -> dict[int, Point]:
    """Layer -> value of all heads of a layer together; records of single heads are left out."""
    return study.table.points(metric, model, by="layer", part=part)


def whole(study: Study, metric: str, model: str, part: str | None = None) -> Point | None:
    """Value of the whole model: of no single layer and no single head."""
    return study.table.point(metric, model, part=part)


def lowest_seed(heads: Iterable[Head]) -> int | None:
    """The seed that is drawn where heads of different seeds cannot be averaged: head 3 of one training is not head 3 of another."""
    return min((seed for seed, _, _ in heads if seed is not None), default=None)


def seeds_drawn(study: Study, seed: int | None) -> str:
    """Which of several training seeds a figure draws, as a sentence; nothing where there is one."""
    if seed is None or len(study.seeds) < 2:
        return ""
    return f" Drawn: seed {seed} of {count(len(study.seeds), 'training seed')}; the table has all."


def arrays(study: Study, kind: str, model: str) -> tuple[int | None, dict[str, np.ndarray]]:
    """Seed and arrays of the file `kind-NAME-seed-K` with the lowest seed that is there, `kind-NAME` for a model without; {} if none."""
    name = model.replace("/", "_")
    stems = [(seed, f"{kind}-{name}-seed-{seed}") for seed in study.seeds] + [(None, f"{kind}-{name}")]
    return next(((seed, study.arrays[stem]) for seed, stem in stems if stem in study.arrays), (None, {}))


def documents(records: Iterable[Record]) -> str:
    """How many documents are behind some records, in words: `n = 100 documents`; nothing where none says."""
    sizes = sorted({r.n for r in records if r.n})
    if not sizes:
        return ""
    return f"n = {number(sizes[0])}" + (f" to {number(sizes[-1])}" if len(sizes) > 1 else "") + " documents"


def repeats(points: Sequence[Point], seeds: int) -> str:
    """What the intervals of some points are over, in words for a subtitle."""
    level = percent(0.95, 0)
    if any(p.over == "seeds" for p in points):
        return f"mean over {count(max(p.seeds for p in points), 'training seed')}, {level} interval between seeds"
    who = "each training seed by itself" if seeds > 1 else "one training seed" if seeds else "no training of ours"
    return f"{who}, {level} interval over documents" if any(p.low is not None for p in points) else f"{who}, no interval"


def sample(words: str, *more: str) -> str:
    """`words (n = 100 documents; one training seed)` without the pieces that are empty."""
    inside = "; ".join(piece for piece in more if piece)
    return f"{words} ({inside})" if inside else words


def recorded(record: Record | None) -> list[Cell]:
    """Three cells: a record's value and the ends of its interval."""
    if record is None:
        return [Cell("–"), Cell(""), Cell("")]
    low, high = record.low, record.high
    ends = interval(low, high, MOST_DIGITS).strip("[]").split(", ") if low is not None and high is not None else ["", ""]
    return [value(record.value, number(record.value, low, high, MOST_DIGITS)), Cell(ends[0], low), Cell(ends[-1], high)]


def with_bounds(record: Record, digits: int = MOST_DIGITS) -> str:
    """A record's value with its interval, for a hover."""
    bounds = f" {interval(record.low, record.high, digits)}" if record.low is not None and record.high is not None else ""
    return number(record.value, record.low, record.high, digits) + bounds


def head_name(head: Head, seeds: int) -> str:
    """`layer 3, head 2`, with the seed where there are several."""
    seed, layer, number_ = head
    return f"layer {layer}, head {number_}" + (f", seed {seed}" if seeds > 1 and seed is not None else "")


def seed_cell(seed: int | None) -> Cell:
    """Cell of a training seed; a dash for a model that no training of ours made."""
    return value(seed, "–" if seed is None else str(seed))


def size_cell(record: Record) -> Cell:
    """Cell of the number of observations behind a record."""
    return value(record.n, number(record.n)) if record.n else Cell("–")


def mean_of(values: Sequence[float]) -> Point | None:
    """Mean over heads with Student's interval between them; None for no value."""
    if not len(values):
        return None
    low, high = seed_interval(values) or (None, None)
    return Point.between(float(np.mean(values)), low, high, n=len(values))


def judged(study: Study, model: str, title: str) -> str:
    """The title, or only its numbers if the model has not left the unigram plateau."""
    return findings.untestable(model, title) if model in stuck_models(study) else title


def story(study: Study, models: Sequence[str]) -> str:
    """The model that a title speaks of: `dstg`, else the first."""
    named = study.named("dstg")
    return named if named is not None and named in models else models[0]


def errors(records: Sequence[Record | Point], colour_name: str, axis: str = "y") -> dict[str, object]:
    """Error bars of some points, `error_x` or `error_y` of a trace."""
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [(r.high - r.value) if r.high is not None else 0.0 for r in records],
        "arrayminus": [(r.value - r.low) if r.low is not None else 0.0 for r in records],
        "color": f"@{colour_name}",
        "thickness": 1.2,
        "width": 0,
    }
    return {f"error_{axis}": bars}


def dots(
    x: Sequence[float], y: Sequence[float], colours: Sequence[str], hovers: Sequence[str], hollow: Sequence[bool] = (), **marker: object
) -> Trace:
    """Points; `colours` are palette names, hovers our own words around names from outside, already plain."""
    empty = list(hollow) or [False] * len(x)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "marker": {
            "size": 9,
            "opacity": 1,
            "color": ["@surface" if e else f"@{c}" for e, c in zip(empty, colours, strict=True)],
            "line": {
                "color": [f"@{c}" if e else "@surface" for e, c in zip(empty, colours, strict=True)],
                "width": [2 if e else 1 for e in empty],
            },
            **marker,
        },
        "hovertext": list(hovers),
        "hoverinfo": "text",
    }


def segments(
    pairs: Sequence[tuple[float, float, float, float]], colour_name: str = "rule", width: float = 1.2, dash: str = "solid"
) -> Trace:
    """Straight lines (x0, y0, x1, y1), drawn as one trace."""
    x: list[float | None] = []
    y: list[float | None] = []
    for x0, y0, x1, y1 in pairs:
        x += [x0, x1, None]
        y += [y0, y1, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": f"@{colour_name}", "width": width, "dash": dash},
        "hoverinfo": "skip",
    }


def bold(name: str) -> str:
    """A name from outside as the heading of a hover."""
    return f"<b>{plain(name)}</b>"
