"""`whatwhere evaluate all`: every family of tasks whose data are at hand, cheapest first, within a budget."""

import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ..claims import evaluate
from ..evaluation.family import EvaluationConfig, Family, model_names
from ..files import read_json
from ..records import Record, read_records
from ..training.runs import claim_folder
from .evaluate import evaluation_text, model_facts, run_evaluation
from .outputs import RECORDS, write_results

CONFIG = "all.yaml"
# Cheapest first: reading states, embedding, then fine-tuning.
FAMILIES = ("linguistic:LINGUISTIC", "holmes:HOLMES", "mteb:MTEB", "glue:GLUE", "squad:SQUAD")


def families() -> list[Family[Any]]:
    """All families of tasks, cheapest first."""
    named = (name.split(":") for name in FAMILIES)
    return [getattr(import_module(f"...evaluation.{file}", __name__), name) for file, name in named]


def run_all(config: EvaluationConfig, out: Path, progress: bool = True) -> dict[str, Any]:
    """Spend a budget over all families of tasks, and write one page of all; the same call goes on.

    Args:
        config: `minutes` for everything; None: until all is done. `data`: one folder that holds every family's data.

    Raises:
        ValueError: `out` holds something else, or no task's data are there.
    """
    if claim_folder(config, out, CONFIG, resume=True, free=config.free()):
        config = config.after(EvaluationConfig.load_run(out / CONFIG))
    model_names(config.models)
    chosen: list[tuple[Family[Any], Any]] = []
    lacking: list[str] = []
    for family in families():
        tasks, missing = _at_hand(family, config)
        lacking += missing
        if tasks:
            chosen.append((family, _settings(family, config, sum(tasks, []))))
    if not chosen:
        raise ValueError(f"No task's data are at hand. {lacking[0]}")
    config.save_run(out / CONFIG)
    began, results = time.perf_counter(), []
    for family, settings in chosen:
        if config.minutes is not None:
            settings.minutes = max(config.minutes - (time.perf_counter() - began) / 60, 1e-9)
        results.append((family, run_evaluation(family, settings, out / family.name, progress, True)))
    records = [
        replace(record, study=out.name) for family, _ in results for record in read_records(out / family.name / RECORDS)
    ]
    begun = [family for family, result in results if result["done"]]  # of the others nothing is to be told but that
    notes = [note for family in begun for note in read_json(out / family.name / "study.json")["notes"]]
    notes += [f"Not begun, for want of time: {family.name}." for family, _ in results if family not in begun]
    notes += [f"Left out: {reason}" for reason in lacking]
    facts = model_facts(
        config, out, "What the encoders are good for", ", ".join(family.name for family in begun), notes
    )
    return {
        "out": str(out),
        "done": sum(result["done"] for _, result in results),
        "left": sum(result["left"] for _, result in results),
        "left_out": lacking,
        "families": {family.name: result for family, result in results},
        "report": str(write_results(out, records, "study.json", facts, evaluate(records))),
    }


def _settings(family: Family[Any], config: EvaluationConfig, tasks: list[str]) -> Any:
    shared = {"models": config.models, "data": config.data, "untrained": config.untrained, "scheme": config.scheme}
    return family.config.parse({**family.brief, **shared, "tasks": tasks})


def _at_hand(family: Family[Any], config: EvaluationConfig) -> tuple[list[list[str]], list[str]]:
    """The tasks of a family whose data are there, each in a list, an empty one where the folder tells which they are;
    and why the others are not."""
    wanted = family.brief.get("tasks") or family.config.model_fields["tasks"].get_default(call_default_factory=True)
    tasks, lacking = [], []
    for some in [[task] for task in wanted] or [[]]:
        try:
            family.check(_settings(family, config, some))
            tasks.append(some)
        except ValueError as error:
            lacking.append(f"{' '.join([family.name, *some])}: {error}")
    return tasks, lacking


def all_text(result: Mapping[str, Any]) -> str:
    """For people: the table of every family, and what was left out."""
    of_name = {family.name: family for family in families()}
    parts = [
        "\n".join([of_name[name].title, evaluation_text(of_name[name], found)])
        for name, found in result["families"].items()
        if any(Record(**r).metric == of_name[name].score for r in found["records"])
    ]
    late = [f"{name}: {found['left']} pieces left out for want of time" for name, found in result["families"].items()]
    parts += ["\n".join(line for line in late if ": 0 pieces" not in line)] if result["left"] else []
    parts += ["\n".join(f"left out: {reason}" for reason in result["left_out"])] if result["left_out"] else []
    return "\n\n".join([*parts, f"The report of all is {result['report']}: open it in a browser."])
