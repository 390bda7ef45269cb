"""Figures of the head taxonomy (DSTG section 4 (3), figure 2): which term each head follows."""

from collections.abc import Sequence

from ..points import Point
from ..records import Record
from . import schemes
from .by_head import (
    SEVERAL,
    Head,
    bold,
    by_head,
    colour,
    documents,
    dots,
    errors,
    head_name,
    in_order,
    judged,
    meaning,
    parts_of,
    recorded,
    repeats,
    sample,
    seed_cell,
    segments,
    short,
    story,
    terms_of,
    with_bounds,
)
from .figures import Cell, Figure, Panel, Table, Trace, text, value
from .load import Study
from .numbers import count, number, percent
from .style import TEXT_SIZE, axis, layout, plain, sequential

STABLE = 0.95  # share of bootstrap draws that must give a head the same label for it to be drawn filled
HEIGHT = 3**0.5 / 2  # of the triangle with sides of 1
MOST_SHADES = 8  # layers in the key of the triangle
MARGINS = 100  # pixels left and right of every panel together, so that all can be equally wide
CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.5, HEIGHT))


def figures(study: Study) -> list[Figure]:
    """The taxonomy of heads; empty without its records, or where no model has several terms."""
    found = taxonomy(study)
    return [found] if found else []


def separated(study: Study) -> list[str]:
    """Models of several terms, which alone can follow one more than another."""
    return [m for m in study.models if len(terms_of(study, m)) > 1]


def labels(study: Study, model: str) -> dict[Head, tuple[str, Record]]:
    """(seed, layer, head) -> label and its record, whose value is the share of bootstrap draws with that label."""
    found = {
        head: (part, r) for part in parts_of(study, "head.label", model) for head, r in by_head(study, "head.label", model, part).items()
    }
    return dict(sorted(found.items(), key=lambda item: (-1 if item[0][0] is None else item[0][0], *item[0][1:])))


def counts(study: Study, model: str) -> dict[str, tuple[int, int, int, int]]:
    """Label -> heads with it, ends of the interval in heads, heads in all; summed over training seeds."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for label in parts_of(study, "heads.share", model):
        records = [r for r in study.of("heads.share", model, label) if r.step is None and r.n]
        if records:
            heads, low, high = (
                sum(round((r.value if end is None else end) * (r.n or 0)) for r, end in ends)
                for ends in ([(r, r.value) for r in records], [(r, r.low) for r in records], [(r, r.high) for r in records])
            )
            found[label] = (heads, low, high, sum(r.n or 0 for r in records))
    return found


def finding(study: Study, model: str) -> str:
    """How many heads follow which term: counts of `heads.share`, with the ends of their intervals where those hold another count.

    Where the two most frequent labels' intervals overlap, which one is more frequent is not separable, and the title says so.
    """
    found = counts(study, model)
    if not found:
        return f"How far each head of `{model}` follows each term"
    total = max(n for *_, n in found.values())
    seeds = len({r.seed for label in found for r in study.of("heads.share", model, label)})
    said = []
    for i, label in enumerate(in_order(found)):
        heads, low, high, _ = found[label]
        if label == SEVERAL and high == 0:
            continue
        amount = "none" if heads == 0 else str(heads)
        if i == 0:
            amount += f" of {count(total, 'head')}" + (f" of {seeds} seeds" if seeds > 1 else "")
        if (low, high) != (heads, heads):
            amount += f" (up to {high})" if heads == 0 else f" ({low} to {high})"
        verb = ("follow " if heads != 1 else "follows ") if i == 0 else ""
        said.append(f"{amount} {verb}{meaning(label)}")
    ranked = sorted(found.values(), key=lambda f: -f[0])
    tie = (
        "; which is more frequent is not separable"
        if len(ranked) > 1 and ranked[0][0] > ranked[1][0] and ranked[0][1] <= ranked[1][2]
        else ""
    )
    return f"`{model}`: {', '.join(said)}{tie}"


def taxonomy(study: Study) -> Figure | None:
    """Heads by the share of each term: a triangle for models of three terms, a strip by layer for others."""
    models = separated(study)
    if not models:
        return None
    shares = {m: {t: by_head(study, f"kl.share.{t}", m) for t in terms_of(study, m)} for m in models}
    three = [m for m in models if len(shares[m]) == 3]
    panels = [_triangle(study, m) if m in three else _strip(study, m) for m in [*three, *(m for m in models if m not in three)]]
    told = story(study, three or models)
    everything = [r for of in shares.values() for records in of.values() for r in records.values()]
    how = repeats([Point.between(r.value, r.low, r.high) for r in everything], len(study.seeds))
    drawn = "in the triangle, the nearer to a corner, the more of a head's change comes from that term; " if three else ""
    drawn += "by layer, the share of one term; " if len(three) < len(models) else ""
    subtitle = (
        "Each point is a head: how far its attention changes (KL divergence) when one term is left out of the scores, as a share of the "
        f"changes by all terms; {drawn}{'beyond a' if three else 'on either side of the'} dashed line one term has at least half"
    )
    subtitle = sample(subtitle, documents(everything), how) + "."
    key = [("dot", "one head")]
    if any(r.value < STABLE for m in models for _, r in labels(study, m).values()):
        key.append(("paper", f"hollow: its label changes in more than {percent(1 - STABLE, 0)} of bootstrap draws"))
    title = judged(study, told, finding(study, told))
    records = ("kl.share.*: layer, head", "kl.*: layer, head", "head.label: layer, head, part", "heads.share: part")
    return Figure("heads", title, subtitle, panels, _table(study, models), key, 330, even=True, records=records)


def _heads(study: Study, model: str) -> list[Head]:
    """Heads that have a share of every term."""
    found = [set(by_head(study, f"kl.share.{t}", model)) for t in terms_of(study, model)]
    return sorted(set.intersection(*found), key=lambda h: (-1 if h[0] is None else h[0], *h[1:]))


def _hovers(study: Study, model: str, heads: Sequence[Head], terms: Sequence[str]) -> list[str]:
    """What is said of each head: its shares and divergences with their intervals, and its label."""
    label = labels(study, model)
    found = {(kind, t): by_head(study, f"{kind}.{t}", model) for kind in ("kl.share", "kl") for t in terms}
    said = []
    for head in heads:
        lines = [f"{bold(model)}, {head_name(head, len(study.seeds))}"]
        for t in terms:
            share, kl = found["kl.share", t].get(head), found["kl", t].get(head)
            words = f"{plain(short(t))} {with_bounds(share)}" if share else plain(short(t))
            lines.append(words + (f"; KL {with_bounds(kl)} nats" if kl else ""))
        if head in label:
            name, record = label[head]
            lines.append(f"label: {plain(short(name))}, the same in {percent(record.value, 0)} of draws")
        said.append("<br>".join(lines))
    return said


def _spoken(study: Study, model: str) -> str:
    found = counts(study, model)
    said = ", ".join(f"{found[label][0]} {short(label)}" for label in in_order(found))
    return f"Heads of {model} by label: {said}." if said else f"Heads of {model} by the share of each term."


def _triangle(study: Study, model: str) -> Panel:
    """One point a head in a triangle whose corners are the three terms, darker in deeper layers."""
    terms = terms_of(study, model)
    heads, label = _heads(study, model), labels(study, model)
    shares = [by_head(study, f"kl.share.{t}", model) for t in terms]
    weights = [[of[head].value for of in shares] for head in heads]
    x = [sum(w * c[0] for w, c in zip(row, CORNERS, strict=True)) for row in weights]
    y = [sum(w * c[1] for w, c in zip(row, CORNERS, strict=True)) for row in weights]
    middles = [
        ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in ((CORNERS[0], CORNERS[1]), (CORNERS[1], CORNERS[2]), (CORNERS[2], CORNERS[0]))
    ]
    depth = study.depth(model)
    loose = [head in label and label[head][1].value < STABLE for head in heads]
    points: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [round(v, 4) for v in x],
        "y": [round(v, 4) for v in y],
        "marker": {
            "size": 10,
            "opacity": 0.9,
            "symbol": ["circle-open" if out else "circle" for out in loose],
            "color": [layer for _, layer, _ in heads],
            "cmin": 1,
            "cmax": max(depth, 2),
            "colorscale": sequential(3),
            "line": {"width": [2 if out else 0.8 for out in loose], **({} if any(loose) else {"color": "@surface"})},
        },
        "hovertext": _hovers(study, model, heads, terms),
        "hoverinfo": "text",
    }
    shown = list(range(1, depth + 1, -(-depth // MOST_SHADES)))
    heights = [HEIGHT - 0.075 * (i + 1) for i in range(len(shown))]
    shades: Trace = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [0.93] * len(shown),
        "y": heights,
        "marker": {"size": 10, "color": shown, "cmin": 1, "cmax": max(depth, 2), "colorscale": sequential(3)},
        "text": [f" {layer}" for layer in shown],
        "textposition": "middle right",
        "textfont": {"size": TEXT_SIZE, "color": "@muted"},
        "hoverinfo": "skip",
    }
    edges = segments([(*CORNERS[i], *CORNERS[(i + 1) % 3]) for i in range(3)], "muted", 1.2)
    halves = segments([(*middles[i], *middles[(i + 1) % 3]) for i in range(3)], "muted", 1.0, "4px,4px")
    notes = [
        _note(CORNERS[0][0] - 0.06, -0.05, short(terms[0]), terms[0], "left", "top"),
        _note(CORNERS[1][0] + 0.06, -0.05, short(terms[1]), terms[1], "right", "top"),
        _note(0.5, HEIGHT + 0.03, short(terms[2]), terms[2], "center", "bottom"),
    ]
    heading = _note(0.91, HEIGHT, "layer", SEVERAL, "left", "middle")
    notes.append(heading | {"font": {"size": TEXT_SIZE, "color": "@muted"}})
    ground = layout(
        340,
        axis("", visible=False, range=[-0.1, 1.1], constrain="domain"),
        axis("", visible=False, range=[-0.16, 1.0], scaleanchor="x", constrain="domain"),
        {"l": MARGINS // 2, "r": MARGINS // 2, "t": 6, "b": 6},
        annotations=notes,
    )
    return Panel(
        [edges, halves, shades, points], ground, model, _spoken(study, model), schemes.block(study, model) if _blocks(study) else ""
    )


def _blocks(study: Study) -> bool:
    return len({schemes.block(study, m) for m in study.models}) > 1


def _note(x: float, y: float, words: str, term: str, xanchor: str, yanchor: str) -> dict[str, object]:
    return {
        "x": x,
        "y": y,
        "text": plain(words),
        "showarrow": False,
        "xanchor": xanchor,
        "yanchor": yanchor,
        "font": {"size": TEXT_SIZE + 1, "color": f"@ink-{colour(term)}"},
    }


def _strip(study: Study, model: str) -> Panel:
    """By layer, one point a head: the share of the first term, coloured by the head's label."""
    terms = terms_of(study, model)
    first = terms[0]
    records, label, heads = by_head(study, f"kl.share.{first}", model), labels(study, model), _heads(study, model)
    most = max((h for _, _, h in heads), default=0)
    x = [layer + 0.7 * ((h + 0.5) / (most + 1) - 0.5) for _, layer, h in heads]
    words = _hovers(study, model, heads, terms)
    hues = [colour(label[head][0]) if head in label else colour(first) for head in heads]
    loose = [head in label and label[head][1].value < STABLE for head in heads]
    traces: list[Trace] = [segments([(0.5, 0.5, study.depth(model) + 0.5, 0.5)], "muted", 1.0, "4px,4px")]
    for hue in dict.fromkeys(hues):
        chosen = [i for i, found in enumerate(hues) if found == hue]
        shown = dots(
            [round(x[i], 3) for i in chosen],
            [records[heads[i]].value for i in chosen],
            [hue] * len(chosen),
            [words[i] for i in chosen],
            [loose[i] for i in chosen],
        )
        traces.append(shown | errors([records[heads[i]] for i in chosen], hue))
    other = short(terms[1]) if len(terms) == 2 else "other terms"
    room = min(MARGINS - 12, round(7.7 * max(len(other), len(short(first)))) + 14)
    depth = study.depth(model)
    ground = layout(
        340,
        axis("layer", range=[0.4, depth + 0.6], tickvals=list(range(1, depth + 1, 1 if depth <= 8 else 2)), showgrid=False),
        axis("", range=[-0.06, 1.06], tickvals=[0, 0.5, 1], ticktext=[plain(other), percent(0.5, 0), plain(short(first))]),
        {"l": room, "r": MARGINS - room, "t": 8, "b": 50},
    )
    return Panel(traces, ground, model, _spoken(study, model), f"share of {short(first)}, heads side by side")


def _table(study: Study, models: Sequence[str]) -> Table:
    """Every head with its label, shares and KL divergences."""
    terms = in_order(t for m in models for t in terms_of(study, m))
    rows: list[list[Cell]] = []
    for model in models:
        label = labels(study, model)
        found = {(kind, t): by_head(study, f"{kind}.{t}", model) for kind in ("kl.share", "kl") for t in terms}
        for head in sorted({h for of in found.values() for h in of}, key=lambda h: (-1 if h[0] is None else h[0], *h[1:])):
            seed, layer, number_ = head
            row = [text(model), seed_cell(seed), value(layer), value(number_, str(number_))]
            row += (
                [text(short(label[head][0])), value(label[head][1].value, percent(label[head][1].value, 0))]
                if head in label
                else [Cell("–")] * 2
            )
            for t in terms:
                row += recorded(found["kl.share", t].get(head)) + recorded(found["kl", t].get(head))
            sizes = {r.n for of in found.values() if (r := of.get(head)) is not None and r.n}
            rows.append([*row, value(max(sizes), number(max(sizes))) if sizes else Cell("–")])
    columns = ["Model", "Seed", "Layer", "Head", "Label", "Same in"]
    for t in terms:
        columns += [f"{short(t).capitalize()}: {what}" for what in ("share", "share low", "share high", "KL", "KL low", "KL high")]
    columns.append("Documents")
    numeric = frozenset({1, 2, 3, *range(5, len(columns))})
    return Table("heads", "Every head: its label, the share of each term and its KL divergence in nats", columns, rows, numeric)
