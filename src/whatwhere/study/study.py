"""One command from a corpus to a report: windows → models on the same batches → measurements → records → report.

Windows are a run inside the study; corpus geometry, budget, each measured model, comparisons and explorer texts are
steps of its manifest: a command skips finished ones, and writes results and page wherever something is new. So a killed
study resumes at its last step.
"""

from contextlib import closing
from pathlib import Path
from typing import Any

from ..analysis.hidden import ceiling_records
from ..analysis.passes import FEWEST_WINDOWS
from ..corpus import Windows, open_source
from ..corpus.batches import times_read
from ..corpus.build import describe_pieces
from ..records.record import Record
from ..run.cluster import Cluster, connect
from ..run.errors import command_line
from ..run.executors import Job
from ..run.folder import RunFolder, keep_inner_run
from ..run.jobs import progress_by_part, run_jobs
from ..run.names import RESULTS_STEP, STUDY_SETTINGS
from ..run.status import is_finished, newest_step
from ..training.budget import shortage_message, steps_to_learn, time_trainings
from ..training.corpus_settings import check_enough_windows, prepare_windows
from ..training.pretrain import segments_message
from ..training.scheme_settings import scheme_context
from .corpus_step import corpus_geometry_records, measure_corpus
from .cross_model_steps import compare_models, save_explorer_attention
from .model_task import ModelTask, has_windows_for_analyses, train_and_measure
from .page_schedule import REPORT, StudyResults
from .prepared_study import Study, StudyLog
from .study_settings import StudyConfig, prefix_training_keys_in_errors
from .training_plan import (
    FEWEST_STEPS,
    ModelOfSeed,
    budget_of_minutes,
    matched_widths,
    models_at_once,
    models_of,
    threads_of_models,
    threads_per_model,
    threads_while_timed,
)
from .training_records import corpus_size_records

KIND = "study"
BUDGET_STEP = "budget"  # step of the manifest that turns minutes into training steps


def run_study(config: StudyConfig, out: str | Path, progress: bool = True, on: str | None = None) -> Path:
    """Run a study in the folder `out`, or resume it; return the path of its report.

    Args:
        progress: Show events and bars on stderr.
        on: Address of a Dask scheduler, whose workers train and measure the models; None: processes of this machine.

    Raises:
        Stopped: a signal asked to stop, and the trainings have written checkpoints.
        ValueError: `out` holds something else or a study with other settings, any part refuses its input, or no
            scheduler answers.
    """
    out = Path(out)
    if STUDY_SETTINGS not in RunFolder.at(out).listed_files():
        _check_new(config)  # before the command waits for a worker
    with connect(on, out) as cluster, RunFolder.open(out, KIND) as run:
        log = StudyLog(out, progress)  # its clock begins here, when there is a worker
        if cluster is not None:
            log.log_event("cluster", workers=cluster.admit_workers())
        return complete_study(prepare_study(run, config, log, cluster))


def prepare_study(run: RunFolder, config: StudyConfig, log: StudyLog, cluster: Cluster | None = None) -> Study:
    """Save or compare the settings, make the windows, match the models, and measure the corpus.

    Raises:
        ValueError: the study was started with other settings, a finished file is not as it was written, or the
            settings, the text or a model is refused.
    """
    is_resumed = STUDY_SETTINGS in run.listed_files()  # a listed file that is missing is refused, not written anew
    if is_resumed:
        config = config.merge_with_saved(run, STUDY_SETTINGS, saved=_load_saved_settings(run, config))
    else:
        config = config.save_in(run, STUDY_SETTINGS)  # at once, as windows take long: a kill leaves settings to resume
    event = "study resumed" if is_resumed else "study"
    log.log_event(event, models=" ".join(config.models), size=config.size, corpus=config.corpus)
    if words := config.differences_message():
        log.log_event("models differ", words, differences=words)
    windows = prepare_windows(config, run.path / "corpus", log.progress, cluster)
    _check_models(config, windows, log)
    config = _match_widths(config, windows, log)
    config = config.save_in(run, STUDY_SETTINGS)
    run.accept_input()
    _log_windows(windows, log)
    if config.all_analyses:
        with progress_by_part("corpus", log.progress) as advance:
            measure_corpus(run, windows, advance)
    return Study(run, config, windows, log, cluster)


def _check_models(config: StudyConfig, windows: Windows, log: StudyLog) -> None:
    """Refuse models that cannot train on the windows, and log models that read no segments.

    Windows that are enough for all models stay, whatever is refused afterwards.
    """
    with prefix_training_keys_in_errors():
        for name in config.models:
            check_enough_windows(windows, config.pretraining(name).batch_size)
        keep_inner_run(windows.folder)  # they may have taken hours, and the corrected command uses them
        for name in config.models:
            encoder = config.pretraining(name).encoder_config(windows)  # refuses a vocabulary below the tokenizer's
            if words := segments_message(name, encoder, windows):
                log.log_event("no segments", words, model=name)


def _match_widths(config: StudyConfig, windows: Windows, log: StudyLog) -> StudyConfig:
    """Return the settings with the widths that `match` asks for; given widths stay."""
    if config.match is None or set(config.models[1:]) <= set(config.widths):
        return config
    widths = {**matched_widths(config, windows), **config.widths}
    by_model = ", ".join(f"{name} {width}" for name, width in widths.items())
    words = f"{config.match} matched to {config.models[0]} by feed-forward widths: {by_model}"
    log.log_event("matched", words, match=config.match, widths=widths)
    return config.model_copy(update={"widths": widths})


def _check_new(config: StudyConfig) -> None:
    """Refuse a wrong training or a missing text of a new study, before a file is written."""
    with prefix_training_keys_in_errors():
        for name in config.models:
            config.pretraining(name).check()
    open_source(config.corpus, config.field, config.document)


def _load_saved_settings(run: RunFolder, config: StudyConfig) -> StudyConfig:
    """Return the saved settings of a study that a command resumes.

    Raises:
        ValueError: the command lacks or changes a model of the study, or adds a wrong one, or a finished file is
            damaged.
    """
    saved = config.load_to_resume(run, STUDY_SETTINGS)
    _check_saved_models(run, saved, config)
    for name in config.models:
        if name not in saved.models:
            config.pretraining(name).check()
    _check_files_of_complete_study(run, model_count=len(models_of(saved)))
    return saved


def _check_saved_models(run: RunFolder, saved: StudyConfig, requested: StudyConfig) -> None:
    """Refuse settings that would remove models or seeds from a study, or change a model of it."""
    if requested.seeds < saved.seeds:
        raise ValueError(
            f"{run.path} was started with seeds={saved.seeds}, this command has seeds={requested.seeds}. Give "
            f"seeds={saved.seeds} or more, or choose another --out."
        )
    if lost := [name for name in saved.models if name not in requested.models]:
        raise ValueError(
            f"{run.path} was started with models={','.join(saved.models)}, this command lacks {','.join(lost)}. Give "
            "all its models, or choose another --out."
        )
    for name in saved.models:
        if saved.variants.get(name) != requested.variants.get(name):
            raise ValueError(
                f"{run.path} was started with variants.{name}={saved.variants.get(name)}, this command has "
                f"{requested.variants.get(name)}. Give the variant another name."
            )
        if requested.widths.get(name, saved.widths.get(name)) != saved.widths.get(name):
            raise ValueError(
                f"{run.path} was started with widths.{name}={saved.widths.get(name)}, this command has "
                f"{requested.widths[name]}. Give a variant of that width another name."
            )


def find_training_steps(study: Study) -> int:
    """Return the number of steps of every training of a study: the given one, or as many as the minutes buy."""
    if study.config.steps is not None:
        return study.config.steps
    if not study.run.is_reusable(BUDGET_STEP):
        _turn_minutes_into_steps(study)
    return int(study.run.outcome_of(BUDGET_STEP)["steps"])


def _turn_minutes_into_steps(study: Study) -> None:
    """Time some steps of each model, save how many steps the minutes buy, and log if they are too few to learn."""
    config = study.config
    seconds = _time_steps(study)
    cluster_workers = None if study.cluster is None else study.cluster.admit_workers()
    budget = budget_of_minutes(config, seconds, study.log.seconds(), cluster_workers)
    outcome = {"steps": budget.steps, "seconds_per_step": seconds}
    study.run.mark_done(BUDGET_STEP, outcome=outcome)  # without inputs: a study does not resume with other minutes
    times = {f"ms per step of {name}": round(1000 * value) for name, value in seconds.items()}
    study.log.log_event(BUDGET_STEP, steps=budget.steps, **times)
    training = config.pretraining(config.models[0])
    steps_needed = steps_to_learn(training)
    if steps_needed > budget.steps:
        minutes_needed = budget.minutes(steps_needed)
        words = shortage_message(config.minutes or 0.0, budget.steps, training, minutes_needed, FEWEST_STEPS)
        study.log.log_event("too few steps", words, steps=budget.steps, needed=steps_needed)


def _time_steps(study: Study) -> dict[str, float]:
    """Return the seconds of a step of each model, timed on this machine or a worker, wherever the models will train."""
    trainings = {name: study.config.pretraining(name) for name in study.config.models}
    threads = threads_while_timed(study.config)
    jobs = [Job("timing", time_trainings, (trainings, study.run.path / "corpus"), threads)]
    make_context = scheme_context(study.config.scheme)
    # A single job: it runs in this process, on its own threads, unless on a cluster.
    ((_, seconds),) = run_jobs(jobs, None, study.progress, make_context=make_context, cluster=study.cluster)
    return dict(seconds)


def complete_study(study: Study) -> Path:
    """Train, measure and compare the models of a prepared study, skipping finished work; return its page's path."""
    config = study.config
    records = records_without_model(study)  # first: the budget of `find_training_steps` counts the time they take
    steps = find_training_steps(study)
    _log_passes(study, steps)
    at_once = models_at_once(config, steps) if study.cluster is None else study.cluster.admit_workers()
    _log_lost_models(study)
    jobs = _jobs_left(study, steps, at_once)
    # False where jobs only measure finished trainings again; the page then keeps the `at_once` of the trainings.
    tasks: list[ModelTask] = [job.args[0] for job in jobs]
    trains_models = not all(is_finished(study.run.path / task.model.folder) for task in tasks)
    results = StudyResults(study, records, steps, at_once, trains_models=trains_models)
    results.write_if_due()  # an earlier command may have been killed between measuring and drawing
    # With None trainings run one after another in this process, each with all its threads.
    total_threads = at_once * threads_per_model(at_once) if at_once > 1 else None
    make_context = scheme_context(config.scheme)
    # `closing` stops running jobs before an interrupted command gives up the lock of the folder.
    trainings = run_jobs(jobs, total_threads, study.progress, make_context=make_context, cluster=study.cluster)
    with closing(trainings):
        for job, summary in trainings:
            _log_trained(study, job.args[0].model, summary)
            results.write_if_due()
    comparison_records: list[Record] = []
    if config.all_analyses:
        for seed in range(config.seeds):
            comparison_records += compare_models(study.run, config, study.windows, seed, study.progress)
        save_explorer_attention(study.run, config, study.windows)
    is_finished_study = not jobs and results.shows_all_models()
    report = study.run.path / REPORT if is_finished_study else results.write(results.models, comparison_records)
    words = f"finished before; nothing is new: {report}" if is_finished_study else ""
    study.log.log_event("report", words, path=str(report))
    return report


def _jobs_left(study: Study, steps: int, at_once: int) -> list[Job]:
    """Return a job for each model that is not measured, and log why finished ones repeat.

    A job has the threads that the model has when all models train: results depend on the number of threads.
    """
    models = models_of(study.config)
    threads_by_model = threads_of_models(study.config, at_once) if study.cluster is None else [1] * len(models)
    jobs = []
    for model, threads in zip(models, threads_by_model, strict=True):
        if not study.is_measured(model):
            _log_reason_to_repeat(study, model)
            label = f"{model.name} seed {model.seed}"
            jobs.append(Job(label, train_and_measure, (study.task_of(model, steps),), threads))
    return jobs


def records_without_model(study: Study) -> list[Record]:
    """Return the records that need no model: sizes of the text, ceilings of the probes, geometry of its positions."""
    config = study.config
    name = study.run.name
    records = corpus_size_records(study.windows, name)
    if has_windows_for_analyses(study.windows):
        held_out = study.windows["held_out"]
        records += ceiling_records(held_out, run_name=name, windows=config.probe_windows, splits=config.probe_splits)
    if config.all_analyses:
        records += corpus_geometry_records(study.run)
    return records


def _check_files_of_complete_study(run: RunFolder, model_count: int) -> None:
    """Refuse changed files of a study if its page shows all its models; of another study, their steps run again.

    A missing file passes: its step runs again.
    """
    results = run.finished_step(RESULTS_STEP)
    if results is not None and len(results["inputs"]["models"]) >= model_count:
        run.check_present_files()


def _log_windows(windows: Windows, log: StudyLog) -> None:
    sizes = ("documents", "characters", "tokens", "windows")
    counts = {key: sum(windows.facts[key].values()) for key in sizes}
    log.log_event("windows", **counts, rows=describe_pieces(windows))
    if not has_windows_for_analyses(windows):
        words = (
            f"no probes, and no other analysis that reads windows: fewer than {FEWEST_WINDOWS} held-out windows are "
            "full; more text, held_out or join=run-on would give them"
        )
        log.log_event("too few windows", words)


def _log_passes(study: Study, steps: int) -> None:
    config = study.config
    batch_size = config.pretraining(config.models[0], 0, steps).batch_size
    passes = steps * batch_size / len(study.windows["train"])
    if phrase := times_read(passes):
        study.log.log_event("passes", f"each training window is {phrase}", times=round(passes, 2))


def _log_reason_to_repeat(study: Study, model: ModelOfSeed) -> None:
    if why := study.run.damage_of_step(model.step_name):
        words = f"measured again: {model.name} seed {model.seed}: {why}"
        study.log.log_event("measured again", words, model=model.name, seed=model.seed, why=why)


def _log_lost_models(study: Study) -> None:
    """Log which measured models are no longer there, and what brings them back.

    The user may have deleted weights to save space; therefore no command trains such a model again unasked.
    """
    folders = [study.run.path / model.folder for model in models_of(study.config) if study.is_measured(model)]
    lost = [folder for folder in folders if not is_finished(folder)]
    if not lost:
        return
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    words = f"{lost[0]}{more}: no weights; the measurements are whole"
    if restorable := [folder for folder in lost if newest_step(folder)]:
        words += f". {command_line('pretrain', '--out', restorable[0])} writes them from the last checkpoint"
    else:
        words += ", and without a checkpoint only another study trains it again"
    study.log.log_event("models lost", words, models=" ".join(str(folder) for folder in lost))


def _log_trained(study: Study, model: ModelOfSeed, summary: dict[str, Any]) -> None:
    """Log that the job of a model has ended: it is trained, by this job or an earlier one, and measured."""
    loss = summary["validation_loss"]
    rounded_loss = None if loss is None else round(loss, 3)
    seconds = {
        "seconds of training": round(summary["seconds"]),
        "seconds of looking inside": round(summary["seconds_inside"]),
    }
    study.log.log_event("trained and measured", model=model.name, seed=model.seed, loss=rounded_loss, **seconds)
