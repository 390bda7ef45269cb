"""The findings of DSTG as a study has them, beside what the paper prints: Markdown tables from its records.

    python docs/results/tables.py docs/results/NAME/records.parquet

A value is the mean over training seeds with its 95 % interval, over seeds and, where the records have documents, over
these too; the values of two or three seeds follow after a semicolon. With one seed it is that model's, and the
interval, where the records have one, speaks of other documents, not of another training.
"""

import sys
from collections.abc import Iterable

from whatwhere.papers import DSTG_R2, DSTG_TABLES
from whatwhere.records.record import read_records
from whatwhere.records.table import ANY, Point, Table

SIZES = (("parameters", 2), ("tokens", 1))  # with their digits in millions
TUNED = "+simcse"  # at the end of the name of a model after `evaluate mteb --contrastive`
STREAMS = {"all": "", "position": ", position stream", "semantic": ", semantic stream"}


def models(table: Table) -> list[str]:
    """The models that were trained, in the order of the records."""
    return table.models("parameters", seed=tuple(seeds(table)))


def seeds(table: Table) -> list[int]:
    """Training seeds of the study."""
    return sorted(table.distinct("seed", "parameters"))


def loss(table: Table, model: str) -> Point | None:
    """Held-out loss after the last step."""
    curve = table.points("loss", model, by="step", part="validation")
    return curve[max(curve)] if curve else None


def layers(table: Table, metric: str, model: str, part: str) -> dict[int, Point]:
    """A metric of the final model by layer."""
    return table.points(metric, model, by="layer", part=part)


def said(point: Point | None, digits: int = 2, scale: float = 1.0, short: bool = False, sign: str = "") -> str:
    """Mean, interval and the values of few seeds in words; "–" for nothing.

    short: "0.71 ± 0.05" where both ends are about as far. sign: "+" writes that of positive numbers.
    """
    if point is None:
        return "–"
    point = scale * point
    form = f"{sign}.{digits}f"
    if point.interval is None:
        return f"{point.value:{form}}"
    low, high = point.interval
    even = short and abs(low + high - 2 * point.value) < max(10**-digits, 0.1 * (high - low))
    bounds = f"± {(high - low) / 2:.{digits}f}" if even else f"[{low:{form}}, {high:{form}}]"
    seeds = f"; {', '.join(f'{v:{form}}' for v in point.few)}" if point.few else ""
    return f"{point.value:{form}} {bounds}{seeds}"


def rows(title: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    title = list(title)
    lines = [title, ["---"] * len(title), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def difference(ours: Point | None, theirs: Point | None) -> str:
    """Mean of the differences seed by seed, with its interval."""
    return "–" if ours is None or theirs is None else said(ours - theirs, sign="+")


def loss_table(table: Table) -> str:
    """Every model: size, tokens, held-out loss and what separates it from the first model, seed by seed."""
    first, *_ = models(table)
    body = []
    for model in models(table):
        size, tokens = (f"{p.value / 1e6:.{d}f}" if (p := table.point(m, model)) else "–" for m, d in SIZES)
        apart = difference(loss(table, model), loss(table, first)) if model != first else ""
        body.append([f"`{model}`", size, tokens, said(loss(table, model)), apart])
    unigram = table.point("loss.unigram")
    note = f"\n\nA guess by word frequencies alone: {unigram.value:.2f} nats." if unigram else ""
    title = ["model", "million parameters", "million tokens", "held-out loss (nats)", f"beside `{first}`"]
    return rows(title, body) + note


def probe_table(table: Table, metric: str) -> str:
    """R² by layer; the paper's rows, of 6 blocks, right below ours."""
    width = max(6, *(max(layers(table, metric, m, "all"), default=0) for m in models(table)))
    body = []
    for model in models(table):
        for part, words in STREAMS.items():
            points = layers(table, metric, model, part)
            if not points or part == "all" and layers(table, metric, model, "position"):
                continue
            cells = [said(points[layer], short=True) if layer in points else "" for layer in range(width + 1)]
            if part == "position" and "full-mlm" not in model:
                cells[max(points)] = f"({cells[max(points)]})"
            body.append([f"`{model}`{words}", *cells])
            printed = [DSTG_R2.get((metric, model, part, layer)) for layer in range(width + 1)]
            if any(v is not None for v in printed):
                body.append(["*paper*", *("" if v is None else f"*{v:.2f}*" for v in printed)])
    return rows(["after block", *("0 (input)" if i == 0 else str(i) for i in range(width + 1))], body)


def by_model(table: Table, title: str, cells: Iterable[tuple[str, str, dict[str, str]]]) -> str:
    """Rows (what, the paper's value, model → value); models without any value are left out."""
    cells = [(what, paper, values) for what, paper, values in cells if any(v != "–" for v in values.values())]
    shown = [m for m in models(table) if any(values.get(m, "–") != "–" for _, _, values in cells)]
    return rows(
        [title, "paper", *(f"`{m}`" for m in shown)],
        ([what, paper, *(v.get(m, "–") for m in shown)] for what, paper, v in cells),
    )


def each(table: Table, metric: str, digits: int = 2, scale: float = 1.0, **columns: object) -> dict[str, str]:
    """A metric of every model."""
    return {m: said(table.point(metric, m, **columns), digits, scale) for m in models(table)}


def late(table: Table, metric: str, part: str) -> dict[str, str]:
    """A metric of every model at its last block but one."""
    ends = {m: list(layers(table, metric, m, part).values()) for m in models(table)}
    return {m: said(points[-2]) if len(points) > 1 else "–" for m, points in ends.items()}


def table_rows(table: Table) -> Iterable[tuple[str, str, dict[str, str]]]:
    """DSTG section 4 (1): the position table."""
    percent = {"digits": 0, "scale": 100.0}
    dstg, ap = (100 * DSTG_TABLES["pca.top2", m, None] for m in ("dstg", "ap"))
    yield "two components hold (%)", f"`dstg` {dstg:.1f}, `ap` {ap:.1f}", each(table, "pca.top2", **percent)
    yield "the same before training (%)", "–", each(table, "pca.top2", step=0, **percent)
    for component in (0, 1, 2):
        want = [(m, DSTG_TABLES.get(("dct.low4", m, component))) for m in ("dstg", "ap")]
        paper = ", ".join(f"`{m}` {'< ' if m == 'ap' else ''}{100 * v:.1f}" for m, v in want if v is not None) or "high"
        yield (
            f"component {component + 1}: power in the first four bins of the DCT (%)",
            paper,
            each(table, "dct.low4", index=component, **percent),
        )
    yield "half of the variance in so many components", "–", each(table, "n50.count", digits=0)


def work_rows(table: Table) -> Iterable[tuple[str, str, dict[str, str]]]:
    """DSTG section 4 (2) and (3), B.2: heads, sentences, states of the others, what the loss pays."""
    paper = {"semantic": "25 (9 of 36)", "absolute": "the other 75, by another rule", "relative": "0", "several": "–"}
    for part, printed in paper.items():
        what = "heads that no single term drives" if part == "several" else f"heads that the {part} term drives"
        yield f"{what} (%)", printed, each(table, "heads.share", digits=0, scale=100.0, part=part)
    for part in ("semantic", "absolute", "relative"):
        yield (
            f"loss without the {part} term (nats more)",
            "–",
            each(table, "ablation.remove", part=part),
        )
    yield (
        "position stream, last block but one: share of variance that is position's",
        "–",
        late(table, "variance.position", "position"),
    )
    yield "the same: two components hold", "about 0.9", late(table, "hidden.top2", "position")
    yield (
        "the same: sentences apart beyond random cuts",
        "apart, and more with depth (figure 4, without this control)",
        late(table, "sentences.excess", "position"),
    )
    yield "the same at the input", "–", each(table, "sentences.excess", part="position", layer=0)
    for target in ("position", "semantic"):
        metric = f"regression.{target}"
        yield (
            f"states regressed onto `dstg`'s {target} stream, last block but one (R²)",
            "figure 8",
            late(table, metric, "dstg"),
        )


def task_table(table: Table, metric: str) -> str:
    """Scores of an evaluation: a row a task, of every model trained, with the untrained one's in brackets, and whether
    the difference from the first model, or in the brackets that between both, may be 0 (=)."""
    family = metric.partition(".")[0]
    shown = [model for model in table.models(metric) if not model.endswith(TUNED)]
    parts = [*table.distinct("part", metric), *([None] if table.rows(metric, part=None, seed=ANY, step=ANY) else [])]

    def cell(model: str, part: str | None) -> str:
        point, start = (table.point(metric, model, part=part, step=step) for step in (None, 0))
        beside, taught = (table.point(f"{family}.{what}", model, part=part) for what in ("difference", "taught"))
        untrained = f" ({start.value:.3f}{level(taught)})" if start is not None else ""
        return f"{said(point, 3, short=True)}{level(beside)}{untrained}"

    def level(apart: Point | None) -> str:
        return " =" if apart is not None and apart.low is not None and apart.low <= 0 <= apart.high else ""

    guesses = {part: table.point(f"{family}.surface", part=part) for part in parts}
    surface = ["by the surface"] if any(guesses.values()) else []
    return rows(
        ["task", *(f"`{m}`" for m in shown), *surface],
        (
            [str(part or "average"), *(cell(m, part) for m in shown), *([said(guesses[part], 3)] if surface else [])]
            for part in parts
        ),
    )


def tuned_table(table: Table) -> str:
    """Mean scores of the types of mteb's tasks before and after SimCSE, in brackets of weights drawn anew; nothing
    where no model was tuned."""
    shown = [model for model in table.models("mteb.type") if f"{model}{TUNED}" in table.models("mteb.type")]

    def cell(model: str, part: str) -> str:
        found = [
            [table.point("mteb.type", name, part=part, step=s) for name in (model, model + TUNED)] for s in (None, 0)
        ]
        trained, anew = (" → ".join(f"{p.value:.3f}" for p in pair if p is not None) for pair in found)
        return f"{trained} ({anew})" if anew else trained

    body = [[part, *(cell(model, part) for model in shown)] for part in map(str, table.distinct("part", "mteb.type"))]
    return rows(["type of tasks", *(f"`{model}`" for model in shown)], body) if shown else ""


def of_seeds(point: Point | None, digits: int = 2) -> str:
    """The mean, and of several seeds that of each: two tell too little for an interval."""
    if point is None:
        return "–"
    each_seed = ", ".join(f"{v:.{digits}f}" for v in point.seed_values) if len(point.seed_values) > 1 else ""
    return f"{point.value:.{digits}f}" + (f" ({each_seed})" if each_seed else "")


def longest(table: Table, metric: str, model: str, way: str) -> Point | None:
    """A metric at its largest index."""
    points = table.points(metric, model, by="index", part=way)
    return points[max(points)] if points else None


def places_table(table: Table, shown: Iterable[str]) -> str:
    """Loss less that of the same tokens read in pieces: a row a sixteenth of the positions, by its middle, a column a
    model."""
    columns = {}
    for model in shown:
        gains = {str(way): p.value for way, p in table.points("length.gain", model, by="part").items()}
        losses = {w: table.points("length.loss", model, by="index", part=w) for w in ("in-pieces", *gains)}
        if gains and losses["in-pieces"]:
            best = max(gains, key=lambda way: gains[way])
            name = f"`{model}` {best}"
            columns[name] = {at: p - losses["in-pieces"][at] for at, p in losses[best].items()}
    body = [[f"{at}", *(of_seeds(c.get(at)) for c in columns.values())] for at in next(iter(columns.values()), ())]
    return rows(["position", *columns], body) if columns else ""


def length_tables(table: Table) -> Iterable[str]:
    """`evaluate length`: a row a way to read on, a column a model."""
    shown = table.models("length.beyond")
    ways = [str(way) for way in table.distinct("part", "length.beyond")]
    best = max(ways, key=lambda way: len(table.models("length.gain", part=way)))
    order = sorted(ways, key=lambda way: (way != "in-pieces", way != best, way))
    streams = {m: ".semantic" * bool(table.rows("length.drift.semantic", m)) for m in shown}
    layers_of = {m: max(table.distinct("layer", "length.r2.token", m), default=0) for m in shown}
    for title, found in (
        ("Loss at positions beyond the training, nats", lambda m, w: table.point("length.beyond", m, part=w)),
        ("Nats below reading in pieces", lambda m, w: table.point("length.gain", m, part=w)),
        ("Nats saved by a passage that stood farthest before", lambda m, w: longest(table, "length.copy", m, w)),
        (
            "Change of the states (of two streams the semantic ones) where positions move farthest",
            lambda m, w: longest(table, f"length.drift{streams[m]}", m, w),
        ),
        (
            "R² of position beyond the training, after the last block but one",
            lambda m, w: table.point("length.r2.token", m, part=w, layer=layers_of[m] - 1),
        ),
    ):
        body = [[way, *(of_seeds(found(m, way)) for m in shown)] for way in order]
        body = [line for line in body if any(cell != "–" for cell in line[1:])]
        if body:
            yield f"### {title}\n\n{rows(['way', *(f'`{m}`' for m in shown)], body)}"
    if by_place := places_table(table, shown):
        yield f"### Nats above reading in pieces by position, by the best way\n\n{by_place}"


def main(path: str) -> None:
    table = Table(read_records(path))
    if table.models("length.beyond"):
        print("\n\n".join(length_tables(table)))
        return
    if tasks := [name for name in ("glue", "squad", "linguistic", "mteb") if table.models(f"{name}.score")]:
        for name in tasks:
            print(f"### `evaluate {name}`\n\n{task_table(table, f'{name}.score')}\n")
        if after := tuned_table(table):
            print(f"### Before and after SimCSE\n\n{after}")
        return
    of = f"{len(seeds(table))} training seeds" if len(seeds(table)) > 1 else "one training seed"
    print(f"{of}; mean and 95 % interval.\n\n### Loss\n\n{loss_table(table)}")
    for metric, title in (
        ("r2.token", "Position read from the states: R² (DSTG Table 2)"),
        ("r2.segment", "Segment number: R² (Table 3)"),
        ("r2.intra", "Progress inside a segment: R² (Table 4)"),
    ):
        probes = probe_table(table, metric)
        untrained = "In brackets: the last position stream gets no gradient (3.3; the paper prints none)."
        ceiling = None
        if metric != "r2.token":  # position alone gives a token's place
            ceiling = table.point(f"{metric}.ceiling") or table.point(f"{metric}.ceiling", "corpus")
        best = f"The best function of position alone reaches {said(ceiling)} on this corpus." if ceiling else ""
        print("\n" + "\n\n".join(filter(None, (f"### {title}", probes, "(0" in probes and untrained, best))))
    print(f"\n### The position table (section 4, 1)\n\n{by_model(table, 'what', table_rows(table))}")
    print(f"\n### Who does the work (section 4, 2 and 3; B.2)\n\n{by_model(table, 'what', work_rows(table))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
