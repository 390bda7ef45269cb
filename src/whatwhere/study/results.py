"""Results that a command leaves: records, claims, the facts of the page, and the page drawn from these files."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.course import convergence_records
from ..claims import evaluate as judge_claims
from ..corpus import Windows
from ..encoder import SOURCES
from ..records.record import Record
from ..report import write_report
from ..run.folder import RunFolder
from ..run.names import RESULTS_STEP
from ..run.settings import StrictConfig
from ..training.recipes import TOKENS_TO_LEARN
from ..training.scheme_settings import SCHEME
from .machine import machine_facts, versions
from .study_settings import StudyConfig
from .training_plan import ModelOfSeed, models_of

RECORDS = "records.parquet"
CLAIMS = "claims.json"
PAGE_FACTS = "study.json"  # facts of the page, of a study and also of an evaluation or `whatwhere heads`
CORPUS_FACTS = ("length", "join", "pieces", "vocab_size", "source")  # keys of `Windows.facts` that the page has, too
# What a reader of the report should know about the defaults of a size.
NOTES = {
    "tiny": [
        "The defaults of size tiny were searched with seed 0 on python-docs and, for 10M tokens, on Wikipedia, by the "
        "loss of dstg and ap. On these texts with seed 0 a verdict is an illustration: test a claim on others. "
        "docs/log.md lists the attempts."
    ]
}


def save_or_compare_settings(config: StrictConfig, run: RunFolder, settings_file: str) -> None:
    """Save the settings in a run without results, which is cleared first; in one with results, refuse other settings.

    For `heads` and `spectra`, which measure everything each time and write all results at the end: a stopped command
    leaves files that may not be of the next settings, so they are cleared. Results stay until new ones replace them.
    None of the settings may change. The input is not accepted yet: a ValueError before `save_results` removes the files
    of a new run.

    Raises:
        ValueError: the results are of other settings, or the settings file is damaged.
    """
    if run.finished_step(RESULTS_STEP) is not None:
        config.merge_with_saved(run, settings_file)
        return
    if leftovers := run.listed_files():
        run.remove(*leftovers)
    config.save_in(run, settings_file)


def save_results(
    run: RunFolder,
    records: Iterable[Record],
    facts_file: str,
    page_facts: Mapping[str, Any],
    claims: Sequence[Mapping[str, Any]] | None = None,
    inputs: Mapping[str, Any] | None = None,
    unfinished: int = 0,
) -> Path:
    """Write records, claims and facts of the page, mark them as one step of a run, and draw the page; return its path.

    The files are written one after another. A kill in between leaves some new files beside old ones, and the step of
    the earlier results still counts as finished. So a command that is given again must always call this function.

    Args:
        facts_file: Name of the file for `page_facts`: PAGE_FACTS, or the file by which `report.loaded_run.page_kind`
            finds a page of another kind.
        page_facts: Values that the page shows; the versions of packages are added.
        claims: Verdicts on the records; None where a run has none.
        inputs: Plain values that the results were made from, such as the names of the models.
        unfinished: Pieces of work that are not done yet, which `whatwhere status` reads.
    """
    run.write(RECORDS, list(records))
    files = [RECORDS]
    if claims is not None:
        run.write(CLAIMS, claims)
        files.append(CLAIMS)
    run.write(facts_file, {**page_facts, "versions": versions()})
    files.append(facts_file)
    run.mark_done(RESULTS_STEP, inputs=_with_settings(run, inputs), files=files, outcome={"unfinished": unfinished})
    return write_report(run.path)


def _with_settings(run: RunFolder, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of results together with the hash of the run's settings, if it has some."""
    settings = f"{run.kind}.yaml"
    with_settings = dict(inputs or {})
    if settings in run.listed_files():
        with_settings["settings"] = run.hash_of(settings)
    return with_settings


def has_results_of(run: RunFolder, models: Sequence[ModelOfSeed]) -> bool:
    """Return whether a study's results are there, of these models, its present settings and these package versions."""
    inputs = _with_settings(run, _inputs_of_models(models))
    return run.is_reusable(RESULTS_STEP, inputs=inputs) and run.read(PAGE_FACTS).get("versions") == versions()


def _inputs_of_models(models: Sequence[ModelOfSeed]) -> dict[str, Any]:
    return {"models": [str(model) for model in models]}


def save_study(
    run: RunFolder,
    config: StudyConfig,
    windows: Windows,
    steps: int,
    measured: Sequence[ModelOfSeed],
    records_without_model: Sequence[Record],
    comparison_records: Sequence[Record],
    seconds: float,
    at_once: int,
    notes: Sequence[str] = (),
) -> Path:
    """Write the results of a study's measured models and draw its page; return the page's path.

    Args:
        records_without_model: Records of the text and its positions.
        comparison_records: Records that compare models.
        seconds: Time that all commands on this study took together.
        at_once: Trainings that ran at the same time.
        notes: Sentences for the page, beside the notes on the size and on what was not measured.
    """
    gathered = list(records_without_model)
    for model in measured:
        gathered += run.read(f"{model.folder}/{RECORDS}")
    gathered += comparison_records
    if config.all_analyses:
        gathered += convergence_records(gathered, run_name=run.name)
    entries = [_entry_of(run, config, steps, model) for model in measured]
    page_facts = _page_facts_of(run, config, windows, entries, notes)
    page_facts |= {"seconds": seconds, "at_once": min(at_once, len(entries))}
    inputs = _inputs_of_models(measured)
    return save_results(run, gathered, PAGE_FACTS, page_facts, judge_claims(gathered), inputs)


def _entry_of(run: RunFolder, config: StudyConfig, steps: int, model: ModelOfSeed) -> dict[str, Any]:
    """Return the entry of a model in study.json."""
    outcome = run.outcome_of(model.step_name)
    training = config.pretraining(model.name, model.seed, steps)
    return {
        "name": model.name,
        "seed": model.seed,
        "source": SOURCES[config.preset(model.name)],
        "config": outcome["config"],
        "training": training.model_dump(mode="json"),
        "summary": outcome["summary"],
        "left_out": outcome["left_out"],
    }


def _page_facts_of(
    run: RunFolder,
    config: StudyConfig,
    windows: Windows,
    entries: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return the facts of a study's page: its models, corpus, machine, notes and command."""
    not_measured = [
        f"Not measured on `{entry['name']}`, {what}: {why}"
        for entry in entries
        for what, why in entry["left_out"].items()
    ]
    corpus = {key: windows.facts[key] for key in CORPUS_FACTS}
    scheme = run.path / SCHEME
    settings = run.path / f"{run.kind}.yaml"
    return {
        "title": "What position encodings keep",
        "name": run.name,
        "corpus": {"name": windows.facts["source"].get("name") or config.corpus, **corpus},
        "needed_tokens": TOKENS_TO_LEARN.get(config.size),
        "models": entries,
        "seeds": list(range(config.seeds)),
        "size": config.size,
        "recipe": config.recipe,
        "match": config.match or "none",
        "machine": machine_facts(),
        "notes": [*NOTES.get(config.size, []), *notes, *dict.fromkeys(not_measured)],  # once for all seeds
        "command": command_of("study", "--config", str(settings), scheme=scheme if scheme.is_file() else None),
        "planned": len(models_of(config)),
    }


def command_of(verb: str, *words: str, scheme: str | Path | None = None) -> str:
    """Return the command that makes the results of a run again, in a new folder.

    Args:
        words: Arguments and options of the verb.
        scheme: File of the user's scheme, which the models need.
    """
    with_scheme = [] if scheme is None else ["--scheme", str(scheme)]
    return shlex.join(["whatwhere", verb, *words, *with_scheme, "--out", "NEW-FOLDER"])


def total_seconds(lines: Iterable[Mapping[str, Any]], pid: int, current: float) -> float:
    """Return the total seconds of all commands on a study, this one included.

    The commands ran one after another, each in a process of its own; each earlier one counts up to its last log line.

    Args:
        pid: Number of this process, whose command has taken `current` seconds.
    """
    total = 0.0
    last: dict[Any, float] = {}  # process number -> seconds at its last line
    for line in lines:
        seconds = line.get("seconds")
        if not isinstance(seconds, int | float):  # the log is damaged
            continue
        process = line.get("pid")
        if seconds < last.get(process, 0.0):  # the process of another command has the same number
            total += last[process]
        last[process] = seconds
    return total + sum(seconds for process, seconds in last.items() if process != pid) + current
