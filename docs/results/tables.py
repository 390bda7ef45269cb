"""The findings of DSTG as a study has them, beside what the paper prints: Markdown tables from its records.

    python docs/results/tables.py docs/results/NAME/records.parquet

A value is the mean over training seeds with its 95 % interval (Student's t between seeds). With one seed it is that
model's, and the interval, where the records have one, speaks of other documents, not of another training.
"""

import sys
from collections.abc import Iterable

import numpy as np

from whatwhere.intervals import seed_interval
from whatwhere.papers import DSTG_R2, DSTG_TABLES
from whatwhere.records import Record, read_records, select

STREAMS = {"all": "", "position": ", position stream", "semantic": ", semantic stream"}


class Results:
    """The records of one study by model."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)
        self.models = list(
            dict.fromkeys(r.model for r in self.records if r.metric == "parameters" and r.seed is not None)
        )
        self.seeds = sorted({r.seed for r in select(self.records, metric="parameters") if r.seed is not None})
        self._by_metric: dict[str, list[Record]] = {}
        for record in self.records:
            self._by_metric.setdefault(record.metric, []).append(record)

    def found(self, metric: str, model: str, **columns: object) -> list[Record]:
        """The summaries of a final model, one a seed; `columns` as for `select`."""
        return select(self._by_metric.get(metric, []), model=model, **{"step": None, "index": None, **columns})

    def losses(self, model: str) -> list[Record]:
        """Held-out loss after the last step, one a seed."""
        curve = self.found("loss", model, part="validation", step={r.step for r in self.records})
        last = max((r.step or 0 for r in curve), default=0)
        return [r for r in curve if r.step == last]

    def layers(self, metric: str, model: str, part: str) -> list[int]:
        return sorted({r.layer for r in self.found(metric, model, part=part) if r.layer is not None})


def said(records: list[Record], digits: int = 2, scale: float = 1.0, short: bool = False) -> str:
    """Mean and interval in words; "–" without records. short: "0.71 ± 0.05"."""
    if not records:
        return "–"
    values = [scale * r.value for r in records]
    mean, interval = float(np.mean(values)), seed_interval(values)
    if interval is None and records[0].low is not None and records[0].high is not None:
        interval = scale * records[0].low, scale * records[0].high
    if interval is None:
        return f"{mean:.{digits}f}"
    if short:
        return f"{mean:.{digits}f} ± {(interval[1] - interval[0]) / 2:.{digits}f}"
    return f"{mean:.{digits}f} [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def rows(title: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    title = list(title)
    lines = [title, ["---"] * len(title), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def difference(ours: list[Record], theirs: list[Record]) -> str:
    """Mean of the differences seed by seed, with its interval."""
    other = {r.seed: r.value for r in theirs}
    values = [r.value - other[r.seed] for r in ours if r.seed in other]
    interval = seed_interval(values)
    if not values:
        return "–"
    return f"{np.mean(values):+.2f}" + (f" [{interval[0]:+.2f}, {interval[1]:+.2f}]" if interval else "")


def loss_table(results: Results) -> str:
    """Every model: size, tokens, held-out loss and what separates it from the first model, seed by seed."""
    first = results.losses(results.models[0])
    unigram = results.found("loss.unigram", "")
    body = []
    for model in results.models:
        size, tokens = (results.found(metric, model) for metric in ("parameters", "tokens"))
        body.append(
            [
                f"`{model}`",
                f"{size[0].value / 1e6:.2f}",
                f"{tokens[0].value / 1e6:.1f}",
                said(results.losses(model)),
                difference(results.losses(model), first) if model != results.models[0] else "",
            ]
        )
    note = f"\n\nA guess by word frequencies alone: {unigram[0].value:.2f} nats." if unigram else ""
    title = ["model", "million parameters", "million tokens", "held-out loss (nats)", f"beside `{results.models[0]}`"]
    return rows(title, body) + note


def probe_table(results: Results, metric: str) -> str:
    """R² by layer; the paper's rows, of 6 blocks, right below ours."""
    blocks = max((max(results.layers(metric, m, "all"), default=0) for m in results.models), default=0)
    width = max(blocks, 6)
    body = []
    for model in results.models:
        for part, words in STREAMS.items():
            if part == "all" and results.layers(metric, model, "position"):
                continue
            layers = results.layers(metric, model, part)
            if not layers:
                continue
            cells = [""] * (width + 1)
            for layer in layers:
                cells[layer] = said(results.found(metric, model, part=part, layer=layer), short=True)
            if part == "position" and "full-mlm" not in model:
                cells[layers[-1]] = f"({cells[layers[-1]]})"
            body.append([f"`{model}`{words}", *cells])
            printed = [DSTG_R2.get((metric, model, part, layer)) for layer in range(width + 1)]
            if any(v is not None for v in printed):
                body.append(["*paper*", *("" if v is None else f"*{v:.2f}*" for v in printed)])
    return rows(["after block", *("0 (input)" if i == 0 else str(i) for i in range(width + 1))], body)


def by_model(results: Results, title: str, cells: Iterable[tuple[str, str, dict[str, str]]]) -> str:
    """Rows (what, the paper's value, model → value); models without any value are left out."""
    cells = [(what, paper, values) for what, paper, values in cells if any(v != "–" for v in values.values())]
    models = [m for m in results.models if any(values.get(m, "–") != "–" for _, _, values in cells)]
    return rows(
        [title, "paper", *(f"`{m}`" for m in models)],
        ([what, paper, *(v.get(m, "–") for m in models)] for what, paper, v in cells),
    )


def each(results: Results, metric: str, digits: int = 2, scale: float = 1.0, **columns: object) -> dict[str, str]:
    return {m: said(results.found(metric, m, **columns), digits, scale) for m in results.models}


def last(results: Results, metric: str, part: str, back: int = 1, **columns: object) -> dict[str, str]:
    """At the layer `back` blocks before the end."""
    values = {}
    for model in results.models:
        layers = results.layers(metric, model, part)
        values[model] = (
            said(results.found(metric, model, part=part, layer=layers[-1 - back], **columns))
            if len(layers) > back
            else "–"
        )
    return values


def table_rows(results: Results) -> Iterable[tuple[str, str, dict[str, str]]]:
    """DSTG section 4 (1): the position table."""
    percent = {"digits": 0, "scale": 100.0}
    dstg, ap = (100 * DSTG_TABLES["pca.top2", m, None] for m in ("dstg", "ap"))
    yield "two components hold (%)", f"`dstg` {dstg:.1f}, `ap` {ap:.1f}", each(results, "pca.top2", **percent)
    yield "the same before training (%)", "–", each(results, "pca.top2", step=0, **percent)
    for component in (0, 1, 2):
        want = [(m, DSTG_TABLES.get(("dct.low4", m, component))) for m in ("dstg", "ap")]
        paper = ", ".join(f"`{m}` {'< ' if m == 'ap' else ''}{100 * v:.1f}" for m, v in want if v is not None) or "high"
        yield (
            f"component {component + 1}: power in the first four bins of the DCT (%)",
            paper,
            each(results, "dct.low4", index=component, **percent),
        )
    yield "half of the variance in so many components", "–", each(results, "n50.count", digits=0)


def work_rows(results: Results) -> Iterable[tuple[str, str, dict[str, str]]]:
    """DSTG section 4 (2) and (3), B.2: heads, sentences, states of the others, what the loss pays."""
    paper = {"semantic": "25 (9 of 36)", "absolute": "the other 75, by another rule", "relative": "0", "several": "–"}
    for part, printed in paper.items():
        what = "heads that no single term drives" if part == "several" else f"heads that the {part} term drives"
        yield f"{what} (%)", printed, each(results, "heads.share", digits=0, scale=100.0, part=part)
    for part in ("semantic", "absolute", "relative"):
        yield (
            f"loss without the {part} term (nats more)",
            "–",
            each(results, "ablation.remove", layer=None, head=None, part=part),
        )
    yield (
        "position stream, last block but one: share of variance that is position's",
        "–",
        last(results, "variance.position", "position"),
    )
    yield "the same: two components hold", "about 0.9", last(results, "hidden.top2", "position")
    yield (
        "the same: sentences apart beyond random cuts",
        "apart, and more with depth (figure 4, without this control)",
        last(results, "sentences.excess", "position"),
    )
    yield "the same at the input", "–", each(results, "sentences.excess", part="position", layer=0)
    for target in ("position", "semantic"):
        metric = f"regression.{target}"
        yield (
            f"states regressed onto `dstg`'s {target} stream, last block but one (R²)",
            "figure 8",
            last(results, metric, "dstg"),
        )


def main(path: str) -> None:
    results = Results(read_records(path))
    seeds = f"{len(results.seeds)} training seeds" if len(results.seeds) > 1 else "one training seed"
    print(f"{seeds}; mean and 95 % interval.\n\n### Loss\n\n{loss_table(results)}")
    for metric, title in (
        ("r2.token", "Position read from the states: R² (DSTG Table 2)"),
        ("r2.segment", "Segment number: R² (Table 3)"),
        ("r2.intra", "Progress inside a segment: R² (Table 4)"),
    ):
        table = probe_table(results, metric)
        ceiling = results.found(f"{metric}.ceiling", "") or results.found(f"{metric}.ceiling", "corpus")
        note = (
            "\n\nIn brackets: the last position stream gets no gradient (3.3; the paper prints none)."
            if "(0" in table
            else ""
        )
        note += f"\n\nThe best function of position alone reaches {said(ceiling)} on this corpus." if ceiling else ""
        print(f"\n### {title}\n\n{table}{note}")
    print(f"\n### The position table (section 4, 1)\n\n{by_model(results, 'what', table_rows(results))}")
    print(f"\n### Who does the work (section 4, 2 and 3; B.2)\n\n{by_model(results, 'what', work_rows(results))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
