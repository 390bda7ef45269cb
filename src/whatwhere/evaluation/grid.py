"""Fine-tunings over a grid of settings: what one half of the development rows chooses is judged on the other."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ..records.record import Record
from ..run.reference import model_source
from ..training.checkpoints import checkpoint_folder
from .agreement import Score
from .benchmark import EvaluationConfig, Trial, each_model
from .evaluation_keys import GridKeys
from .tuning import Recipe, Setting, halves


class GridConfig(GridKeys, EvaluationConfig):
    """Fine-tunings over a grid; of a folder that has some, models, tasks, seeds and checkpoints may be added."""

    CHANGEABLE_KEYS = (*EvaluationConfig.CHANGEABLE_KEYS, "seeds")  # never fewer, by `add_saved_entries`
    GROWING_KEYS = (*EvaluationConfig.GROWING_KEYS, "tasks", "checkpoints")
    TASKS: ClassVar[Mapping[str, Any]]
    RECIPES: ClassVar[Mapping[str, Recipe]]

    @property
    def how_many_seeds(self) -> int:
        """Number of seeds: the one given, or the recipe's."""
        return self.seeds or self.RECIPES[self.recipe].seeds

    def add_saved_entries(self, saved: Self) -> Self:
        """Return these settings with the saved values before their own, and at least as many seeds."""
        fewer = self.how_many_seeds < saved.how_many_seeds
        return super().add_saved_entries(saved).model_copy(update={"seeds": saved.how_many_seeds} if fewer else {})

    @property
    def settings(self) -> list[Setting]:
        """Grid of settings: the recipe's, or its other settings at each of the rates given."""
        of_recipe = self.RECIPES[self.recipe].settings
        others = dict.fromkeys(replace(setting, learning_rate=0.0) for setting in of_recipe)
        settings = [replace(setting, learning_rate=rate) for rate in self.rates for setting in others]
        return settings or list(of_recipe)

    def protocol(self) -> str:
        """Describe the recipe and its grid in words."""
        rates = f" at rates {', '.join(f'{rate:g}' for rate in self.rates)} × 768 / width" if self.rates else ""
        many = len(self.settings)
        return f"the recipe `{self.recipe}`{rates}: {many} setting{'s' if many > 1 else ''}"

    def check_checkpoints(self) -> None:
        """Refuse steps at which a model has no checkpoint.

        Raises:
            ValueError: as `checkpoint`, or step 0 beside models with weights drawn anew.
        """
        if self.untrained and 0 in self.checkpoints:
            raise ValueError("step 0 of --checkpoints and --untrained would both be step 0. Leave one of them out.")
        for model in self.models:
            for step in self.checkpoints:
                checkpoint_folder(model_source(model), step)


def trials(config: GridConfig) -> list[Trial]:
    """List all fine-tunings: one seed after the other, each over all tasks, so that a budget cuts off seeds."""
    return [
        Trial(*model, task, seed, setting, step)
        for seed in range(config.how_many_seeds)
        for task in sorted(config.tasks, key=list(config.TASKS).index)
        for setting in config.settings
        for model in each_model(config)
        for step in (None, *config.checkpoints)
        if step is None or not model[2]
    ]


def weights(trial: Trial) -> str:
    """Find the weights of a trial's model: its folder or Hub name, or the folder of a checkpoint."""
    source = model_source(trial.source)
    return source if trial.step is None else str(checkpoint_folder(source, trial.step))


@dataclass(frozen=True)
class GridResult:
    """Result of one finished fine-tuning of a grid: the name of its setting, its scores, and its saved arrays.

    scores: (evaluations, 3) of the first half of the development rows, the second, all. arrays: its other file;
    `predicted`: (3, rows, ...) predictions at the best of each.
    """

    setting: str
    scores: np.ndarray
    arrays: Mapping[str, np.ndarray]


def by_seed(trials: Sequence[Trial], out: Path) -> list[tuple[Trial, list[GridResult]]]:
    """Collect the finished fine-tunings of each model, task and seed, one for each setting.

    Raises:
        ValueError: a file of a finished trial is missing, damaged or not as it was written.
    """
    finished: dict[Trial, list[GridResult]] = defaultdict(list)
    for trial in trials:
        if trial.is_finished(out):
            setting = "" if trial.setting is None else trial.setting.name
            scores = _scores(trial, out)
            finished[replace(trial, setting=None)].append(GridResult(setting, scores, trial.arrays(out)))
    return list(finished.items())


def _scores(trial: Trial, out: Path) -> np.ndarray:
    scores = trial.facts(out, "scores")["scores"]
    try:
        array = np.array(scores, dtype=float)
    except (ValueError, TypeError, OverflowError):
        array = np.zeros(0)
    if array.ndim != 2 or array.shape[1] != 3 or not len(array):
        raise ValueError(f"{trial.file(out)} holds no three scores an evaluation. Delete it and run the command again.")
    return array


def notes_on_unfinished(config: GridConfig, out: Path) -> list[str]:
    """Write a note on scores that are the best of only a part of the grid; none if there are none."""
    counts = Counter(replace(trial, setting=None) for trial in trials(config) if trial.is_finished(out))
    some = {trial: runs for trial, runs in counts.items() if runs < len(config.settings)}
    if not some:
        return []
    which = ", ".join(f"{trial.label} ({runs})" for trial, runs in some.items())
    return [f"Of fewer than the {len(config.settings)} settings, so far, are the scores of {which}."]


def chosen(
    runs: Sequence[GridResult], labels: np.ndarray, metrics: Mapping[str, Score]
) -> tuple[dict[str, float], np.ndarray]:
    """Score one model, task and seed over a grid, each half of the rows by the other half's best fine-tuning.

    Args:
        labels: (rows,) right answers. metrics: of (predictions, labels); the first decides, and is `score`.

    Returns:
        Figures: score, each metric, `best` (the best of all rows, as papers report it) and `optimism`, best less score.
        The predictions (rows, ...) that they judge.
    """
    parts = halves(len(labels))
    predictions = np.empty(runs[0].arrays["predicted"].shape[1:], runs[0].arrays["predicted"].dtype)
    for chosen_on, judged_on in ((0, 1), (1, 0)):
        first = max(runs, key=lambda run: float(run.scores[:, chosen_on].max()))
        predictions[parts[judged_on]] = first.arrays["predicted"][chosen_on][parts[judged_on]]
    figures = {
        name: float(np.mean([score(predictions[rows], labels[rows]) for rows in parts]))
        for name, score in metrics.items()
    }
    score = figures[next(iter(metrics))]
    best = max(float(run.scores[:, 2].max()) for run in runs)
    return {"score": score, "best": best, **figures, "optimism": best - score}, predictions


def medians(metric: str, results: Sequence[tuple[Trial, Sequence[GridResult]]]) -> list[Record]:
    """Write records of each model and task: the largest median over seeds of the best score (TUPE Table 1).

    The median is taken over the seeds of each setting, the largest over settings.
    """
    scores: dict[Trial, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial, runs in results:
        for run in runs:
            scores[replace(trial, seed=None)][run.setting].append(float(run.scores[:, 2].max()))
    return [
        trial.context.record(
            metric, max(map(np.median, of_each.values())), part=trial.task, n=max(map(len, of_each.values()))
        )
        for trial, of_each in scores.items()
    ]


def one_after_the_other(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Order the rows of one half before the other half: (rows,) the order, and (rows,) the half of each row."""
    one, two = halves(rows)
    return np.concatenate([one, two]), np.repeat([0, 1], [len(one), len(two)])


def of_both(score: Score) -> Score:
    """Make a score that is the mean over two halves of the rows, which stand one after the other.

    Each half is predicted by another step, perhaps another setting, so that both together are no sample for a
    correlation.
    """

    def mean(predicted: np.ndarray, right: np.ndarray) -> float:
        middle = len(right) // 2
        return (score(predicted[:middle], right[:middle]) + score(predicted[middle:], right[middle:])) / 2

    return mean
