"""`whatwhere evaluate`: trials of one benchmark, or of all whose data are there, in parallel; finished ones stay."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from ..claims import evaluate as judge_claims
from ..evaluation.benchmark import UNTRAINED, Benchmark, EvaluationConfig, Trial
from ..evaluation.examples import forget_data
from ..evaluation.glue import GLUE
from ..evaluation.holmes import HOLMES
from ..evaluation.linguistic import LINGUISTIC
from ..evaluation.mteb import MTEB
from ..evaluation.squad import SQUAD
from ..length.longer_texts import LONG_TEXTS
from ..models.open import model_folder, model_hashes, name_and_seed
from ..records.record import Record
from ..records.table import Point, Table
from ..run.cluster import Cluster
from ..run.executors import Job, MakeContext
from ..run.files import read_json
from ..run.folder import RunFolder
from ..run.hub import refuse_hub_names
from ..run.jobs import parallel_jobs, run_jobs, threads_of_jobs
from ..run.names import EVALUATE_ALL, FINISHED_TRIAL, RESULTS_STEP
from ..run.text_tables import table_lines
from ..training.scheme_settings import scheme_context
from .machine import machine_facts
from .results import PAGE_FACTS, RECORDS, save_results

C = TypeVar("C", bound=EvaluationConfig)
LINE_WIDTH = 158  # characters of a line of a table, beyond which models become columns
# Cheapest first: reading states, embedding, reading long texts in many ways, then fine-tuning.
BENCHMARKS: tuple[Benchmark[Any], ...] = (LINGUISTIC, HOLMES, MTEB, LONG_TEXTS, GLUE, SQUAD)


def run_evaluation(
    benchmark: Benchmark[C],
    config: C,
    out: Path,
    progress: bool = True,
    has_checked_data: bool = False,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Run the trials of a benchmark that are not finished, write records and page, and return what the verb prints.

    Args:
        has_checked_data: True where the caller has called `benchmark.check`.
        cluster: Workers that do the trials; None: processes of this machine.

    Raises:
        ValueError: `out` holds something else or other settings, data are missing or damaged.
    """
    with RunFolder.open(out, benchmark.name) as run:
        config = _resume_settings(run, config, benchmark.file)
        if cluster is not None:
            refuse_hub_names(config.models)
        if not has_checked_data:
            benchmark.check(config)
        trials = benchmark.trials(config)
        todo = [trial for trial in trials if not trial.check_finished(out)]
        config = config.save_in(run, benchmark.file)
        run.accept_input()
        threads = _threads_of_trials(trials)
        at_once = parallel_jobs() if cluster is None else cluster.admit_workers()
        make_context = partial(_context_of_trial, secrets.token_hex(4), scheme_context(config.scheme))
        for round_of_trials in _plan_rounds(todo, config.minutes, at_once):
            jobs = [
                Job(trial.label, benchmark.work, (str(out), trial), threads[id(trial)]) for trial in round_of_trials
            ]
            finished = run_jobs(
                jobs,
                at_once if at_once > 1 else None,  # threads in all: one for each trial that runs beside others
                progress,
                process_per_job=False,
                name="trials",
                make_context=make_context,
                cluster=cluster,
            )
            for _ in finished:  # wait for the whole round
                pass
        unfinished = sum(not trial.is_finished(out) for trial in trials)
        records = [replace(record, study=run.name) for record in benchmark.records(config, out)]
        notes = list(benchmark.notes(config, out))
        if unfinished:
            notes.append(_note_on_unfinished(unfinished))
        data = config.data_name() or benchmark.name
        report = _write_results(run, config, records, benchmark.title, data, notes, unfinished)
    result = {"out": str(out), "done": len(trials) - unfinished, "unfinished": unfinished}
    return {**result, "records": [vars(r) for r in records], "notes": notes, "report": report}


def _resume_settings(run: RunFolder, config: C, file: str) -> C:
    """Return the settings of an evaluation: the saved ones once a trial is finished; others are then refused.

    (In `evaluate all`: once one benchmark has run.)

    Raises:
        ValueError: the saved settings are others, a finished file is not as it was written, or two models have one
        name.
    """
    if file in run.listed_files() and any(step != RESULTS_STEP for step in run.inputs_of_finished()):
        saved = config.load_to_resume(run, file)
        moved = _find_moved_models(run, saved.models, config.models)
        saved = saved.model_copy(update={"models": [moved.get(model, model) for model in saved.models]})
        config = config.merge_with_saved(run, file, saved=saved)
        run.check_present_files()
    config.check_names()
    return config


def _find_moved_models(run: RunFolder, saved_models: Sequence[str], models: Sequence[str]) -> dict[str, str]:
    """Find the saved models whose folders are gone and that are given from another place now: old source -> new.

    The name has to be the same, and the files those that the finished trials read.
    """
    steps = run.inputs_of_finished()
    moved = dict[str, str]()
    for saved in saved_models:
        name = name_and_seed(Path(saved))[0]
        for model in models:
            is_same_name = Path(model).is_dir() and name_and_seed(Path(model).resolve())[0] == name
            if is_same_name and saved != model and not Path(saved).exists():
                start = f"{FINISHED_TRIAL}{name}/"
                read = [inputs["model"] for step, inputs in steps.items() if step.startswith(start)]
                hashes = model_hashes(model)
                if all(earlier == hashes for earlier in read):
                    moved[saved] = model
    return moved


_last_command_token = ""  # of the command whose trial this process ran last


@contextmanager
def _context_of_trial(command_token: str, make_scheme_context: MakeContext) -> Iterator[None]:
    """Forget the data of another command and use the scheme of this one: a cluster's worker serves many commands."""
    global _last_command_token
    if command_token != _last_command_token:
        forget_data()
        _last_command_token = command_token
    with make_scheme_context():
        yield


def _threads_of_trials(trials: Sequence[Trial]) -> dict[int, int | None]:
    """Return the threads of each trial by `id(trial)`, planned over whole stages, so that resuming changes none."""
    threads = dict[int, int | None]()
    for _, group in groupby(trials, key=lambda trial: trial.stage):
        stage = list(group)
        at_once = parallel_jobs() if len(stage) > 1 else 1
        threads |= zip(map(id, stage), threads_of_jobs(len(stage), at_once), strict=True)
    return threads


def _note_on_unfinished(trials: int) -> str:
    are = "trials are" if trials > 1 else "trial is"
    return f"{trials} {are} not done for lack of time. Run the same command to go on."


def _plan_rounds(todo: Sequence[Trial], minutes: float | None, at_once: int) -> Iterator[Sequence[Trial]]:
    """Yield rounds of trials that run side by side.

    Without a budget a round is a whole stage. With one it is `at_once` trials of a stage, and no round is yielded that
    would exceed the budget.

    The caller finishes a round before it asks for the next: the time between is taken as the duration of the round.
    """
    began = time.perf_counter()
    seconds = dict[str, float]()
    for _, group in groupby(todo, key=lambda trial: trial.stage):
        stage = list(group)
        round_size = len(stage) if minutes is None else at_once
        for i in range(0, len(stage), round_size):
            round_of_trials = stage[i : i + round_size]
            start = time.perf_counter()
            longest = max(seconds.get(trial.task, 0.0) for trial in round_of_trials)
            if minutes is not None and start - began + longest > 60 * minutes:
                return
            yield round_of_trials
            for trial in round_of_trials:
                seconds[trial.task] = time.perf_counter() - start


def _write_results(
    run: RunFolder,
    config: EvaluationConfig,
    records: list[Record],
    title: str,
    data: str,
    notes: Sequence[str],
    unfinished: int = 0,
) -> str:
    """Write the results of an evaluation, with `unfinished` trials to come; return the path of the page."""
    configs = {name: model_folder(model) / "config.json" for name, model in config.models_by_name().items()}
    page_facts = {
        "title": title,
        "name": run.name,
        "models": [  # {} for one of the Hub, whose configuration lies in no folder here
            {"name": name, "config": dict(read_json(path)) if path.is_file() else {}} for name, path in configs.items()
        ],
        "corpus": {"name": data},
        "machine": machine_facts(),
        "notes": list(notes),
    }
    return str(save_results(run, records, PAGE_FACTS, page_facts, judge_claims(records), unfinished=unfinished))


def evaluation_text(benchmark: Benchmark[Any], result: Mapping[str, Any]) -> str:
    """Return the text of an evaluation: a line, or a column, for each model, with scores, intervals and differences."""
    table = Table([Record(**r) for r in result["records"]])
    metrics = [f"{benchmark.score}{variant}" for variant in benchmark.variants]
    parts = list(dict.fromkeys(part for metric in metrics for part in table.distinct("part", metric)))
    if any(r.metric in metrics and r.part is None for r in table.records):
        parts.append(None)  # the average of them
    has_ranks = any(f"{benchmark.name}.rank{variant}" in table.metrics for variant in benchmark.variants)
    lines = [["model", *("average" if part is None else benchmark.heading(str(part)) for part in parts)]]
    if has_ranks:
        lines[0].append("rank")
    for variant, metric in zip(benchmark.variants, metrics, strict=True):
        for model in table.models(metric):
            for step, kind in ((None, ""), (0, f", {UNTRAINED}")):
                points = [table.point(metric, model, part=part, step=step) for part in parts]
                differences = [_difference_of(table, benchmark, variant, model, part, step) for part in parts]
                if any(points):
                    name = f"{model}{variant.replace('.', ', ')}{kind}"
                    rank = table.point(f"{benchmark.name}.rank{variant}", model) if has_ranks and step is None else None
                    rank_cells = [_cell_of_rank(rank)] if has_ranks else []
                    lines.append([name, *map(_cell_of, points, differences), *rank_cells])
    note_of_untrained = (
        f", of an {UNTRAINED} one from its trained self" if any(UNTRAINED in line[0] for line in lines) else ""
    )
    text = table_lines(lines)
    if max(map(len, text)) > LINE_WIDTH and len(parts) > len(lines):
        text = table_lines(list(zip(*lines, strict=True)))
    difference_note = (
        f"after it the difference from the first model{note_of_untrained}, `=`: the interval includes 0"
        if benchmark.difference
        else ""
    )
    rank_note = "rank by the average of the tasks that all have and whose rows are paired" if has_ranks else ""
    bounds = "in brackets: 95 %" if any("[" in cell for line in lines for cell in line) else ""
    text.append("; ".join(filter(None, (benchmark.legend, bounds, difference_note, rank_note))))
    return "\n".join([*text, *result["notes"], f"The report is {result['report']}: open it in a browser."])


def _difference_of(
    table: Table, benchmark: Benchmark[Any], variant: str, model: str, part: object, step: int | None
) -> Point | None:
    """Return the difference of a trained model from the first, or of an untrained one from its trained self."""
    if not benchmark.difference:
        return None
    if step is None:
        return table.point(f"{benchmark.difference}{variant}", model, part=part)
    gain_by_training = table.point(f"{benchmark.name}.taught{variant}", model, part=part)
    return None if gain_by_training is None else -gain_by_training


def _cell_of_rank(rank: Point | None) -> str:
    if rank is None:
        return "-"
    bounds = f" [{rank.low:g}, {rank.high:g}]" if rank.low != rank.high else ""
    return f"{rank.value:g}{bounds}"


def _cell_of(point: Point | None, difference: Point | None) -> str:
    if point is None:
        return "-"
    bounds = f" [{point.low:.3f}, {point.high:.3f}]" if point.low is not None else ""
    if difference is None:
        return f"{point.value:.3f}{bounds}"
    is_zero = difference.value == 0 or (difference.low is not None and difference.low <= 0 <= (difference.high or 0.0))
    return f"{point.value:.3f}{bounds} {'=' if is_zero else f'{difference.value:+.3f}'}"


def run_all(
    config: EvaluationConfig, out: Path, progress: bool = True, cluster: Cluster | None = None
) -> dict[str, Any]:
    """Run all benchmarks whose data are there, within a budget, and write one page; the same call resumes the run.

    Args:
        config: `minutes` are the budget of all benchmarks, None for no limit; `data` is one folder with all their data.
        cluster: Workers that do the trials; None: processes of this machine.

    Raises:
        ValueError: `out` holds something else, or no task's data are there.
    """
    with RunFolder.open(out, EVALUATE_ALL) as run:
        config = _resume_settings(run, config, f"{EVALUATE_ALL}.yaml")
        choices, left_out = _choose_benchmarks(config)
        if not choices:
            names = ", ".join(benchmark.name for benchmark in BENCHMARKS)
            raise ValueError(f"No task's data are at hand: {config.data} holds none of {names}. {left_out[0]}")
        config = config.save_in(run, f"{EVALUATE_ALL}.yaml")
        run.accept_input()
        began = time.perf_counter()
        results: dict[str, dict[str, Any]] = {}
        records: list[Record] = []
        notes: list[str] = []
        for benchmark, settings in choices:
            if config.minutes is not None:
                settings.minutes = max(config.minutes - (time.perf_counter() - began) / 60, 1e-9)  # then none starts
            folder = run.path / benchmark.name
            result = run_evaluation(benchmark, settings, folder, progress, has_checked_data=True, cluster=cluster)
            results[benchmark.name] = result
            run.mark_done(f"tried {benchmark.name}", outcome={key: result[key] for key in ("done", "unfinished")})
            inner = RunFolder.at(folder)
            records += [replace(record, study=run.name) for record in inner.read(RECORDS)]
            if result["done"]:  # a benchmark without a finished trial gets only the line below
                notes += inner.read(PAGE_FACTS)["notes"]
        with_results = [name for name, result in results.items() if result["done"]]
        notes += [f"Not begun for lack of time: {name}." for name in results if name not in with_results]
        notes += [f"Left out: {reason}" for reason in left_out]
        counts = {key: sum(result[key] for result in results.values()) for key in ("done", "unfinished")}
        title = "What the encoders are good for"
        report = _write_results(run, config, records, title, ", ".join(with_results), notes, counts["unfinished"])
    return {"out": str(out), **counts, "left_out": left_out, "benchmarks": results, "report": report}


def _choose_benchmarks(config: EvaluationConfig) -> tuple[list[tuple[Benchmark[Any], Any]], list[str]]:
    """Return the benchmarks that have data, each with settings for such tasks, and a sentence on each task without."""
    choices: list[tuple[Benchmark[Any], Any]] = []
    left_out: list[str] = []
    for benchmark in BENCHMARKS:
        field = benchmark.config.model_fields.get("tasks")
        default = field.get_default(call_default_factory=True) if field else []
        tasks = benchmark.brief.get("tasks") or default
        # A benchmark without names of tasks is checked as a whole: it is one task, or its data folder names the tasks.
        to_check: list[list[str]] = [[task] for task in tasks] if tasks else [[]]
        with_data: list[list[str]] = []
        for names in to_check:
            try:
                benchmark.check(_settings_of(benchmark, config, names))
                with_data.append(names)
            except ValueError as error:
                left_out.append(f"{' '.join([benchmark.name, *names])}: {error}")
        if with_data:
            choices.append((benchmark, _settings_of(benchmark, config, sum(with_data, []))))
    return choices, left_out


def _settings_of(benchmark: Benchmark[Any], config: EvaluationConfig, tasks: list[str]) -> Any:
    """Return the settings of a benchmark in `evaluate all`: its `brief` ones, for little time, and the shared."""
    shared = {"models": config.models, "data": config.data, "untrained": config.untrained, "scheme": config.scheme}
    named = {"tasks": tasks} if "tasks" in benchmark.config.model_fields else {}
    return benchmark.config.parse({**benchmark.brief, **shared, **named})


def all_text(result: Mapping[str, Any]) -> str:
    """Return the text of `evaluate all`: the table of every benchmark, then the tasks that were left out."""
    by_name = {benchmark.name: benchmark for benchmark in BENCHMARKS}
    results: Mapping[str, Any] = result["benchmarks"]
    parts = [
        "\n".join([by_name[name].title, evaluation_text(by_name[name], results[name])])
        for name in results
        if any(r["metric"] == by_name[name].score for r in results[name]["records"])
    ]
    counts = {name: results[name]["unfinished"] for name in results if results[name]["unfinished"]}
    parts.append("\n".join(f"{name}: {count} trials not done for lack of time" for name, count in counts.items()))
    parts.append("\n".join(f"left out: {reason}" for reason in result["left_out"]))
    parts.append(f"The report of all is {result['report']}: open it in a browser.")
    return "\n\n".join(filter(None, parts))
