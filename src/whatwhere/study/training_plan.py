"""Plan of the trainings of a study: the models in their order, threads, one number of steps, matched widths."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..corpus import Windows
from ..models.explain import costs, matched_width
from ..run.jobs import parallel_jobs, threads_of_jobs
from ..run.processes import count_cores
from .study_settings import StudyConfig

RESERVE_SHARE = 0.06  # of the time, for the report, and for the probes where all_analyses=False
MOST_SHARE_FOR_ANALYSES = 0.35  # of the time, for all analyses
RESERVE_SECONDS = 12.0  # beside RESERVE_SHARE
# How many times longer a step takes with its part of validation and checkpoints, and while other cores train too.
OVERHEAD = 1.2
CONTENTION = 1.1
FEWEST_STEPS = 20
# Training steps that take as long as the analyses of one window, and as the ablations of one.
STEPS_PER_PROBED_WINDOW = 0.4
STEPS_PER_ABLATED_WINDOW = 2.0
LEAST_TOKENS_FOR_PROCESSES = 250_000  # of one training; with fewer, starting a process costs more than it saves


@dataclass(frozen=True)
class ModelOfSeed:
    """Model of a study: the name of a preset or variant, and a training seed."""

    name: str
    seed: int

    def __str__(self) -> str:
        return f"{self.name}/{self.seed}"

    @property
    def folder(self) -> str:
        """Name of the training's folder inside the folder of the study."""
        return f"models/{self.name}/seed-{self.seed}"

    @property
    def step_name(self) -> str:
        """Name of the step of the study that trains and measures this model; its files are the measurements alone."""
        return f"measured {self}"


@dataclass(frozen=True)
class Budget:
    """Budget of a study in minutes.

    steps: Optimizer steps of every model that the minutes buy. minutes_per_step: Minutes that one more step of every
    model takes. fixed_minutes: Minutes for everything but training.
    """

    steps: int
    minutes_per_step: float
    fixed_minutes: float

    def minutes(self, steps: float) -> float:
        """Return the minutes that a study of `steps` takes."""
        return steps * self.minutes_per_step + self.fixed_minutes


def models_of(config: StudyConfig) -> list[ModelOfSeed]:
    """Return all models in the order of training: every model of a seed before the next seed."""
    return [ModelOfSeed(name, seed) for seed in range(config.seeds) for name in config.models]


def models_at_once(config: StudyConfig, steps: int | None) -> int:
    """Return how many models to train in parallel.

    steps: Steps of each training, None while they are not known.
    """
    if config.at_once is not None:
        return config.at_once
    training = config.pretraining(config.models[0])
    if steps is not None and steps * training.batch_size * training.length < LEAST_TOKENS_FOR_PROCESSES:
        return 1
    return parallel_jobs()


def threads_per_model(at_once: int) -> int:
    """Return how many threads each of `at_once` models has, which share the cores: at least one."""
    return max(1, count_cores() // at_once)


def threads_of_models(config: StudyConfig, at_once: int) -> list[int | None]:
    """Return the threads of each model, in the order of `models_of`; None: all threads of the process.

    Of four models on eight cores, three at once, the first three have two threads each, and the last, alone, six.
    """
    per_model = threads_per_model(at_once)
    counts = threads_of_jobs(len(config.models) * config.seeds, at_once)  # with one thread each
    return [None if count is None else count * per_model for count in counts]


def threads_while_timed(config: StudyConfig) -> int | None:
    """Return the threads with which steps are timed: the first model's, as if trainings were long.

    How long they are is not known yet (short ones run one by one). None: all threads of the process.
    """
    return threads_of_models(config, models_at_once(config, None))[0]


def budget_of_minutes(
    config: StudyConfig, seconds_per_step: Mapping[str, float], seconds_spent: float, cluster_workers: int | None = None
) -> Budget:
    """Return the steps of every model that fit into `config.minutes`, and what another number of steps would take.

    There are FEWEST_STEPS at least, even where these do not fit.

    Args:
        seconds_per_step: Model -> seconds of one step, alone on its threads.
        seconds_spent: Seconds that this command has taken so far; earlier commands on the study do not count.
        cluster_workers: Workers of a cluster that train; None: processes of this machine.
    """
    assert config.minutes is not None
    at_once = cluster_workers or models_at_once(config, None)
    parallel = min(at_once, len(config.models) * config.seeds)
    contention = CONTENTION if parallel > 1 else 1.0
    # Seconds that one step of every model and seed takes, `parallel` of them at the same time.
    seconds_of_all = config.seeds * sum(seconds_per_step.values()) * contention / parallel
    analysis_steps = 0.0
    if config.all_analyses:
        analysis_steps = STEPS_PER_PROBED_WINDOW * config.probe_windows
        analysis_steps += STEPS_PER_ABLATED_WINDOW * config.ablation_windows
    total = config.minutes * 60
    fixed = RESERVE_SECONDS + seconds_spent
    seconds_left = total * (1 - RESERVE_SHARE) - fixed
    # Steps that are timed on a busy machine look long; analyses, estimated from them, must leave time to train.
    seconds_left -= min(analysis_steps * seconds_of_all, MOST_SHARE_FOR_ANALYSES * total)
    steps = max(FEWEST_STEPS, int(seconds_left / (seconds_of_all * OVERHEAD)))
    # MOST_SHARE_FOR_ANALYSES bounds the steps alone: `Budget.minutes` counts the whole estimate of the analyses.
    scale = 60 * (1 - RESERVE_SHARE)
    return Budget(steps, OVERHEAD * seconds_of_all / scale, (analysis_steps * seconds_of_all + fixed) / scale)


def matched_widths(config: StudyConfig, windows: Windows) -> dict[str, int]:
    """Return the feed-forward widths by which the other models cost what the first model costs.

    Raises:
        ValueError: a model has no such width.
    """
    assert config.match is not None
    trainings = {name: config.pretraining(name) for name in config.models}
    encoders = {name: training.encoder_config(windows) for name, training in trainings.items()}
    first, *others = config.models
    labelled_share = trainings[first].mask_rate
    target = costs(encoders[first], config.length, labelled_share).of(config.match)
    return {name: matched_width(encoders[name], config.match, target, config.length, labelled_share) for name in others}
