"""`whatwhere evaluate`: fine-tunings of several models on several tasks, as many at once as cores; what is finished
stays."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from ..analysis.texts import most_tokens
from ..analysis.who import Who
from ..claims import evaluate
from ..corpus import load_tokenizer
from ..evaluation.glue import DEFAULT, METRICS, RECIPES, TASKS, Task, read_task, task_texts
from ..evaluation.tuning import Setting, halves, open_classifier, tune
from ..files import read_json, write_arrays, write_json
from ..points import Table
from ..records import Record
from ..shipped import model_source
from ..training.config import SchemeConfig, use_scheme
from ..training.loop import Show
from ..training.runs import claim_folder
from .jobs import Job, at_once, run_jobs, threads
from .machine import machine, versions
from .outputs import write_results

CONFIG = "glue.yaml"
DRAWS = 1000  # of the rows, for the interval of a difference
UNTRAINED = "untrained"


class GlueConfig(SchemeConfig):
    """Fine-tunings on GLUE; of a folder that has some, models, tasks and seeds may be added."""

    models: list[str] = Field(description="model folders, Hub names or `reference`")
    tasks: list[str] = Field(default_factory=lambda: list(DEFAULT), description="tasks by name")
    data: str | None = Field(None, description="folder of GLUE's release; default: the Hub")
    recipe: str = Field("short", description=f"protocol: {', '.join(RECIPES)}")
    seeds: int | None = Field(None, ge=1, description="seeds; default: the recipe's")
    length: int = Field(128, ge=8, description="most tokens of a row; longer ones are cut")
    limit: int | None = Field(None, ge=20, description="most training rows")
    untrained: bool = Field(False, description="also every model with weights drawn anew")
    minutes: float | None = Field(None, gt=0, description="begin no fine-tuning that would end later")

    @model_validator(mode="after")
    def _check(self) -> "GlueConfig":
        for names, known, what in ((self.tasks, TASKS, "task"), ([self.recipe], RECIPES, "recipe")):
            if strange := [name for name in names if name not in known]:
                raise ValueError(f"no {what} {strange[0]!r}. Known: {', '.join(known)}")
        return self


@dataclass(frozen=True)
class Run:
    """One fine-tuning. name: of the model, as records have it; source: its folder or Hub name."""

    name: str
    source: str
    untrained: bool
    task: str
    setting: Setting
    seed: int

    def file(self, out: Path, ending: str = ".json") -> Path:
        """One of its files: .json, written last, or .npz."""
        name = f"{self.setting.name}-seed-{self.seed}" + f"-{UNTRAINED}" * self.untrained
        return out / "runs" / self.name.replace("/", "_") / self.task / f"{name}{ending}"


def model_names(models: Sequence[str]) -> dict[str, str]:
    """Name -> model as given: the folder's name, of a study's model that above its seed.

    Raises:
        ValueError: two that are called alike.
    """
    named: dict[str, str] = {}
    for model in models:
        path = Path(model)
        whole = path.resolve() if path.is_dir() else path
        name = whole.parent.name if whole.name.startswith("seed-") else whole.name if path.is_dir() else model
        if name in named:
            raise ValueError(f"{named[name]} and {model} are both called {name}. Rename one of the folders.")
        named[name] = model
    return named


def planned(config: GlueConfig) -> list[Run]:
    """All fine-tunings: a seed after the other, each over all tasks, so that what a budget cuts off are seeds."""
    recipe, named = RECIPES[config.recipe], model_names(config.models)
    return [
        Run(name, model, untrained, task, setting, seed)
        for seed in range(config.seeds or recipe.seeds)
        for task in sorted(config.tasks, key=list(TASKS).index)
        for setting in recipe.settings
        for name, model in named.items()
        for untrained in (False, True)[: 1 + config.untrained]
    ]


def run_glue(config: GlueConfig, out: Path, progress: bool = True) -> dict[str, Any]:
    """Fine-tune what is not fine-tuned yet, and write records and page; returns what the verb prints.

    Raises:
        ValueError: `out` holds something else or other settings, a task's files are missing or damaged.
    """
    resumed = claim_folder(config, out, CONFIG, resume=True, free=("models", "tasks", "seeds", "minutes", "untrained"))
    data = Path(config.data) if config.data else None
    for name in config.tasks:  # before anything is trained
        for split in ("train", *TASKS[name].splits):
            read_task(TASKS[name], data, split, 100)
    if resumed:
        began = GlueConfig.load_run(out / CONFIG)
        models = [*began.models, *(m for m in config.models if m not in began.models)]
        tasks = [*began.tasks, *(t for t in config.tasks if t not in began.tasks)]
        config = config.model_copy(update={"models": models, "tasks": tasks})
    config.save_run(out / CONFIG)
    runs = planned(config)
    todo = [run for run in runs if not run.file(out).is_file()]
    began_at, left = time.perf_counter(), 0
    for part in _parts(todo, config, began_at):
        if part is None:
            left = sum(not run.file(out).is_file() for run in runs)
            break
        most = at_once() if len(part) > 1 else 1
        each = threads(len(part), most)
        jobs = [
            Job(f"{run.name} {run.task} seed {run.seed}", fine_tune, (str(out), run), count)
            for run, count in zip(part, each, strict=True)
        ]
        for _ in run_jobs(jobs, most, progress):
            pass
    records = glue_records(config, out)
    return {
        "out": str(out),
        "done": len(runs) - left,
        "left": left,
        "records": [vars(r) for r in records],
        "report": str(write_results(out, records, "study.json", _facts(config, out, left), evaluate(records))),
    }


def _parts(todo: Sequence[Run], config: GlueConfig, began: float) -> Iterator[Sequence[Run] | None]:
    """The work in pieces: all at once, or with a budget as many as there are cores, then None where the next would take
    it beyond."""
    if config.minutes is None:
        yield from [todo] if todo else []
        return
    most, seconds = max(at_once(), 1), dict[str, float]()
    for i in range(0, len(todo), most):
        part, now = todo[i : i + most], time.perf_counter()
        if now - began + max(seconds.get(run.task, 0.0) for run in part) > 60 * config.minutes:
            yield None
            return
        yield part
        for run in part:
            seconds[run.task] = time.perf_counter() - now


def fine_tune(out: str, run: Run, show: Show) -> None:
    """One fine-tuning of a run in the folder `out`: its evaluations as .json, its predictions as .npz, the former
    last."""
    config = GlueConfig.load_run(Path(out) / CONFIG)
    use_scheme(config.scheme)
    recipe, task, source = RECIPES[config.recipe], TASKS[run.task], model_source(run.source)
    texts = task_texts(task, Path(config.data) if config.data else None, config.limit)
    model, tokenizer = open_classifier(source, len(texts.classes), run.seed, run.untrained), load_tokenizer(source)
    length = min(config.length, most_tokens(model) or config.length)
    types = "token_type_ids" in tokenizer.model_input_names and model.config.model_type != "whatwhere"
    train, dev = texts.encoded(tokenizer, length, run.seed, types)
    first, *others = task.splits
    tuned = tune(
        model,
        train,
        dev[first],
        run.setting,
        recipe,
        METRICS[task.metrics[0]],
        others={split: dev[split] for split in others},
        seed=run.seed,
        show=show,
    )
    labels = {f"labels.{split}": rows.labels for split, rows in dev.items()}
    write_arrays(run.file(Path(out), ".npz"), {"predicted": tuned.predicted, **tuned.others, **labels})
    facts = {
        "steps": tuned.steps,
        "scores": tuned.scores.tolist(),
        "seconds": tuned.seconds,
        "rows": len(train),
        "dev_rows": len(dev[first]),
        "truncated": train.truncated,
        "length": length,
    }
    write_json(run.file(Path(out)), facts)


@dataclass(frozen=True)
class _Done:
    """A finished fine-tuning: its evaluations and predictions."""

    scores: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray
    arrays: Mapping[str, np.ndarray]


def _finished(run: Run, out: Path) -> _Done | None:
    if not run.file(out).is_file():
        return None
    facts = read_json(run.file(out))
    with np.load(run.file(out, ".npz"), allow_pickle=False) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    return _Done(np.array(facts["scores"]), held["predicted"], held[f"labels.{TASKS[run.task].splits[0]}"], held)


def glue_records(config: GlueConfig, out: Path) -> list[Record]:
    """Records of all that is finished: of each model, task and seed the score at what one half of the development rows
    chose on the other half, and the papers' own, the best on all of them; of each model and task the difference from
    the first model."""
    of_seed: dict[tuple[str, bool, str, int], list[_Done]] = defaultdict(list)
    by_setting: dict[tuple[str, bool, str, Setting], list[float]] = defaultdict(list)
    for run in planned(config):
        if (done := _finished(run, out)) is not None:
            of_seed[run.name, run.untrained, run.task, run.seed].append(done)
            by_setting[run.name, run.untrained, run.task, run.setting].append(float(done.scores[:, 2].max()))
    records: list[Record] = []
    honest: dict[tuple[str, bool, str], dict[int, np.ndarray]] = defaultdict(dict)
    labels: dict[str, np.ndarray] = {}
    for (name, untrained, task, seed), runs in of_seed.items():
        who = Who(name, seed, out.name, 0 if untrained else None)
        found, said = _scores(TASKS[task], runs)
        honest[name, untrained, task][seed], labels[task] = said, runs[0].labels
        records += [who.record(f"glue.{key}", value, part=task, n=len(said)) for key, value in found.items()]
    for (name, untrained, task), settings in _grouped(by_setting).items():
        most = max(float(np.median(of)) for of in settings)
        who = Who(name, None, out.name, 0 if untrained else None)
        records.append(who.record("glue.median", most, part=task, n=max(map(len, settings))))
    baseline = next(iter(model_names(config.models)))
    for (name, untrained, task), of_seeds in honest.items():
        base = honest.get((baseline, False, task), {})
        seeds = sorted(set(of_seeds) & set(base))
        if seeds and (name, untrained) != (baseline, False):
            pairs = [(of_seeds[seed], base[seed]) for seed in seeds]
            difference = paired(METRICS[TASKS[task].metrics[0]], pairs, labels[task])
            who = Who(name, None, out.name, 0 if untrained else None)
            records.append(who.record("glue.difference", *difference, part=task, n=len(labels[task])))
    return records


def _grouped(by_setting: Mapping[tuple[str, bool, str, Setting], list[float]]) -> dict[Any, list[list[float]]]:
    found: dict[Any, list[list[float]]] = defaultdict(list)
    for (*place, _), values in by_setting.items():
        found[tuple(place)].append(values)
    return found


def _scores(task: Task, runs: Sequence[_Done]) -> tuple[dict[str, float], np.ndarray]:
    """Figures of one model, task and seed over a grid, and the predictions of each half of the rows by what the other
    half chose."""
    labels = runs[0].labels
    parts = halves(len(labels))
    said = np.empty(len(labels), runs[0].predicted.dtype)
    for chosen_on, judged_on in ((0, 1), (1, 0)):
        chosen = max(runs, key=lambda run: run.scores[:, chosen_on].max())
        said[parts[judged_on]] = chosen.predicted[chosen_on][parts[judged_on]]
    best = max(runs, key=lambda run: run.scores[:, 2].max())
    found = {}
    for name in task.metrics:
        found[name] = float(np.mean([METRICS[name](said[rows], labels[rows]) for rows in parts]))
    found = {"score": found[task.metrics[0]], "best": float(best.scores[:, 2].max()), **found}
    found["optimism"] = found["best"] - found["score"]
    for split in task.splits[1:]:
        found[f"score.{split.removeprefix('dev_')}"] = METRICS[task.metrics[0]](
            best.arrays[split], best.arrays[f"labels.{split}"]
        )
    return found, said


def paired(
    score: Callable[[np.ndarray, np.ndarray], float], pairs: Sequence[tuple[np.ndarray, np.ndarray]], labels: np.ndarray
) -> tuple[float, float, float]:
    """Difference of two models' scores, mean over seeds, and its 95 % interval over rows, the same drawn for both
    (percentile bootstrap)."""

    def difference(rows: np.ndarray) -> float:
        return float(np.mean([score(a[rows], labels[rows]) - score(b[rows], labels[rows]) for a, b in pairs]))

    rng = np.random.default_rng(0)
    draws = [difference(rng.integers(len(labels), size=len(labels))) for _ in range(DRAWS)]
    low, high = np.percentile(draws, (2.5, 97.5))
    return difference(np.arange(len(labels))), float(low), float(high)


def _facts(config: GlueConfig, out: Path, left: int) -> dict[str, Any]:
    recipe = RECIPES[config.recipe]
    notes = [
        f"GLUE by the recipe `{config.recipe}`: {len(recipe.settings)} settings, at most {recipe.epochs:g} epochs."
    ]
    notes += [f"{left} fine-tunings were left out for want of time."] if left else []
    return model_facts(config.models, out, "What the encoders are good for", "GLUE", notes)


def model_facts(models: Sequence[str], out: Path, title: str, data: str, notes: Sequence[str]) -> dict[str, Any]:
    """study.json of an evaluation of several models on some data."""
    return {
        "title": title,
        "name": out.name,
        "models": [{"name": name, "config": _config(model)} for name, model in model_names(models).items()],
        "corpus": {"name": data},
        "machine": machine(),
        "versions": versions(),
        "notes": list(notes),
    }


def _config(model: str) -> dict[str, Any]:
    """The configuration of a model folder; empty for one of the Hub."""
    path = Path(model_source(model)) / "config.json"
    return dict(read_json(path)) if path.is_file() else {}


def glue_text(result: Mapping[str, Any]) -> str:
    """For people: a line a model with its score on each task, its interval over seeds, and the difference from the
    first model, `=` where it is not separable from 0."""
    table = Table([Record(**r) for r in result["records"]])
    tasks = sorted(table.distinct("part", "glue.score"), key=list(TASKS).index)
    lines = [["model", *(f"{task} ({TASKS[task].metrics[0]})" for task in tasks)]]
    for model in table.models("glue.score"):
        for step, kind in ((None, ""), (0, f", {UNTRAINED}")):
            cells = []
            for task in tasks:
                point = table.point("glue.score", model, part=task, step=step)
                beside = table.point("glue.difference", model, part=task, step=step)
                cells.append(_cell(point, beside))
            if any(cell != "-" for cell in cells):
                lines.append([model + kind, *cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text += ["in brackets: 95 % over seeds; after it the difference from the first model, = where it may be 0"]
    text += [f"{result['left']} fine-tunings left out for want of time"] if result["left"] else []
    return "\n".join([*text, f"The report is {result['report']}: open it in a browser."])


def _cell(point: Any, beside: Any) -> str:
    if point is None:
        return "-"
    bounds = f" [{point.low:.3f}, {point.high:.3f}]" if point.low is not None else ""
    if beside is None:
        return f"{point.value:.3f}{bounds}"
    level = beside.low is not None and beside.low <= 0 <= beside.high
    return f"{point.value:.3f}{bounds} {'=' if level else f'{beside.value:+.3f}'}"
