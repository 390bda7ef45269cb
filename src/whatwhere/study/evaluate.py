"""`whatwhere evaluate`: the pieces of an evaluation, as many at once as cores; what is finished stays."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from ..claims import evaluate
from ..evaluation.family import UNTRAINED, EvaluationConfig, Family, Piece, model_names
from ..files import read_json
from ..points import Point, Table
from ..records import Record
from ..shipped import model_source
from ..training.runs import claim_folder
from .jobs import Job, at_once, run_jobs, threads
from .machine import machine, versions
from .outputs import write_results

C = TypeVar("C", bound=EvaluationConfig)
WIDE = 160  # characters of a line


def run_evaluation(
    family: Family[C], config: C, out: Path, progress: bool = True, checked: bool = False
) -> dict[str, Any]:
    """Do what is not done yet, and write records and page; returns what the verb prints. checked: the data have been.

    Raises:
        ValueError: `out` holds something else or other settings, data are missing or damaged.
    """
    if claim_folder(config, out, family.file, resume=True, free=config.free()):
        config = config.after(family.config.load_run(out / family.file))
    model_names(config.models)
    if not checked:
        family.check(config)
    config.save_run(out / family.file)
    pieces = family.pieces(config)
    todo = [piece for piece in pieces if not piece.file(out).is_file()]
    left = 0
    for part in _parts(todo, config.minutes):
        if part is None:
            left = sum(not piece.file(out).is_file() for piece in pieces)
            break
        most = at_once() if len(part) > 1 else 1
        jobs = [
            Job(piece.label, family.work, (str(out), piece), count)
            for piece, count in zip(part, threads(len(part), most), strict=True)
        ]
        for _ in run_jobs(jobs, most, progress, fresh=False):
            pass
    records = [replace(record, study=out.name) for record in family.records(config, out)]
    notes = [*family.notes(config), *([_left_out(left)] if left else [])]
    facts = model_facts(config, out, family.title, family.name, notes)
    report = write_results(out, records, "study.json", facts, evaluate(records))
    return {
        "out": str(out),
        "done": len(pieces) - left,
        "left": left,
        "records": [vars(r) for r in records],
        "report": str(report),
    }


def _left_out(pieces: int) -> str:
    return f"{pieces} pieces of work were left out for want of time; the same command goes on."


def _parts(todo: Sequence[Piece], minutes: float | None) -> Iterator[Sequence[Piece] | None]:
    """The work in parts: a stage at once, or with a budget as many as there are cores, then None where the next would
    take it beyond."""
    began, seconds = time.perf_counter(), dict[str, float]()
    for _, group in groupby(todo, key=lambda piece: piece.stage):
        stage = list(group)
        most = len(stage) if minutes is None else max(at_once(), 1)
        for i in range(0, len(stage), most):
            part, now = stage[i : i + most], time.perf_counter()
            if minutes and now - began + max(seconds.get(piece.part, 0.0) for piece in part) > 60 * minutes:
                yield None
                return
            yield part
            for piece in part:
                seconds[piece.part] = time.perf_counter() - now


def model_facts(config: EvaluationConfig, out: Path, title: str, data: str, notes: Sequence[str]) -> dict[str, Any]:
    """study.json of an evaluation of some models on some data."""
    return {
        "title": title,
        "name": out.name,
        "models": [{"name": name, "config": _config(model)} for name, model in model_names(config.models).items()],
        "corpus": {"name": data},
        "machine": machine(),
        "versions": versions(),
        "notes": list(notes),
    }


def _config(model: str) -> dict[str, Any]:
    """The configuration of a model folder; empty for one of the Hub."""
    path = Path(model_source(model)) / "config.json"
    return dict(read_json(path)) if path.is_file() else {}


def evaluation_text(family: Family[Any], result: Mapping[str, Any]) -> str:
    """For people: a line a model (a column, where parts are many) with its score on each part, its interval, and the
    difference from the first model."""
    table = Table([Record(**r) for r in result["records"]])
    metrics = [f"{family.score}{variant}" for variant in family.variants]
    parts = list(dict.fromkeys(part for metric in metrics for part in table.distinct("part", metric)))
    if any(r.metric in metrics and r.part is None for r in table.records):
        parts.append(None)  # the average of them
    lines = [["model", *("average" if part is None else family.heading(str(part)) for part in parts)]]
    for variant, metric in zip(family.variants, metrics, strict=True):
        beside = family.difference and f"{family.difference}{variant}"
        for model in table.models(metric):
            for step, kind in ((None, ""), (0, f", {UNTRAINED}")):
                points = [table.point(metric, model, part=part, step=step) for part in parts]
                paired = [table.point(beside, model, part=part, step=step) if beside else None for part in parts]
                if any(points):
                    name = f"{model}{variant.replace('.', ', ')}{kind}"
                    lines.append([name, *map(_cell, points, paired)])
    if sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True)) > WIDE and len(parts) > len(lines):
        lines = [list(column) for column in zip(*lines, strict=True)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    after = "after it the difference from the first model, = where it may be 0" if family.difference else ""
    bounds = "in brackets: 95 %" if any("[" in cell for line in lines for cell in line) else ""
    text.append("; ".join(filter(None, (family.legend, bounds, after))))
    text += [_left_out(result["left"])] if result["left"] else []
    return "\n".join([*text, f"The report is {result['report']}: open it in a browser."])


def _cell(point: Point | None, beside: Point | None) -> str:
    if point is None:
        return "-"
    bounds = f" [{point.low:.3f}, {point.high:.3f}]" if point.low is not None else ""
    if beside is None:
        return f"{point.value:.3f}{bounds}"
    level = beside.value == 0 or (beside.low is not None and beside.low <= 0 <= (beside.high or 0.0))
    return f"{point.value:.3f}{bounds} {'=' if level else f'{beside.value:+.3f}'}"
