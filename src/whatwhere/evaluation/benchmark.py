"""Shape of every evaluation: settings, trials with files of their own, records of the finished ones.

A `Benchmark` describes a group of tasks; `study.evaluation_run` runs its trials in parallel and writes the page.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from pydantic import ValidationInfo, field_validator
from scipy.stats import rankdata

from ..analysis.record_context import RecordContext
from ..models.open import model_hashes, name_and_seed
from ..records.record import Arrays, Record
from ..run.files import read_object
from ..run.folder import RunFolder
from ..run.names import FINISHED_TRIAL, TRIALS
from ..run.progress import Progress
from ..run.settings import plain_path
from ..training.scheme_settings import ConfigWithScheme
from .evaluation_keys import EvaluationKeys

UNTRAINED = "untrained"
C = TypeVar("C", bound="EvaluationConfig")
DRAWS = 1000  # of the rows, for the interval of a difference


class EvaluationConfig(EvaluationKeys, ConfigWithScheme):
    """The settings that all evaluations share; each evaluation adds its own `GROWING_KEYS`."""

    CHANGEABLE_KEYS: ClassVar[tuple[str, ...]] = ("minutes",)
    GROWING_KEYS: ClassVar[tuple[str, ...]] = ("models", "untrained")
    EMPTY_IS_ALL: ClassVar[tuple[str, ...]] = ()  # keys of lists that without an entry stand for all there is

    @field_validator("*")
    @classmethod
    def _once(cls, value: Any, info: ValidationInfo) -> Any:
        """Drop entries of a list that stand in it twice, but of `models`, where that is an error."""
        return list(dict.fromkeys(value)) if isinstance(value, list) and info.field_name != "models" else value

    @field_validator("models")
    @classmethod
    def _spelt_alike(cls, models: list[str]) -> list[str]:
        """Spell a model that is given again as before, so that it counts as the same."""
        return [plain_path(model) for model in models]

    def add_saved_entries(self, saved: Self) -> Self:
        """Return these settings with what the saved ones have; lists of `EMPTY_IS_ALL` are empty where either is."""
        of_all = [key for key in self.EMPTY_IS_ALL if not (getattr(saved, key) and getattr(self, key))]
        return super().add_saved_entries(saved).model_copy(update={key: [] for key in of_all})

    def models_by_name(self) -> dict[str, str]:
        """Return the models as they were given, by name.

        Raises:
            ValueError: two that are called alike.
        """
        return model_names(self.models)

    def check_names(self) -> None:
        """Refuse two models that are called alike.

        Raises:
            ValueError: names them.
        """
        self.models_by_name()

    def data_name(self) -> str:
        """Return what the page calls the data; an empty text stands for the name of the verb."""
        return ""

    @property
    def folder(self) -> Path | None:
        """The folder of the data; None: the Hub."""
        return None if self.data is None else Path(self.data)


class Named(Protocol):
    """A setting with a name that can be part of a file's."""

    @property
    def name(self) -> str:
        """Name, of letters that a file's name may have."""
        ...


@dataclass(frozen=True)
class Trial:
    """Trial of a benchmark: one model on one task, with one seed and setting.

    name: of the model, as records have it; source: its folder or Hub name; task: of the benchmark; setting: what a grid
    varies; step: of a checkpoint of its training, at `source`. stage: it begins when all of the stages before are done.
    """

    name: str
    source: str
    untrained: bool
    task: str
    seed: int | None = None
    setting: Named | None = None
    step: int | None = None
    stage: int = 0

    @property
    def label(self) -> str:
        """Name of the trial on the screen."""
        seed = "" if self.seed is None else f"seed {self.seed}"
        return " ".join(filter(None, (self.name, self._state, self.task, seed)))

    @property
    def context(self) -> RecordContext:
        """Context of the trial's records, but for the study's name; step 0 where the model is untrained."""
        return RecordContext(self.name, self.seed, "", 0 if self.untrained else self.step)

    @property
    def _state(self) -> str:
        if self.untrained:
            return UNTRAINED
        return "" if self.step is None else f"step-{self.step}"

    def file_name(self, ending: str = ".json") -> str:
        """Return the name of one of its files in the run: .json with its facts, or .npz."""
        seed = "" if self.seed is None else f"seed-{self.seed}"
        words = ("" if self.setting is None else self.setting.name, seed, self._state)
        stem = "-".join(filter(None, words)) or "all"
        return f"{TRIALS}/{self.name.replace('/', '_')}/{self.task}/{stem}{ending}"

    def file(self, out: Path, ending: str = ".json") -> Path:
        """Return the path of one of its files in the run at `out`."""
        return out / self.file_name(ending)

    @property
    def step_name(self) -> str:
        """Step of the run that does this trial."""
        return f"{FINISHED_TRIAL}{self.file_name('').removeprefix(f'{TRIALS}/')}"

    def write(self, out: Path, facts: Mapping[str, Any], arrays: Arrays | None = None, **beside: Any) -> None:
        """Write the results of this trial as one step of the run.

        Args:
            facts: Plain values, as .json.
            arrays: Scores and predictions of any shape, by name, as .npz.
            beside: Further plain values by the ends of their files' names.
        """
        run = _run_at(out)
        values: dict[str, Any] = {self.file_name(f"-{name}.json"): value for name, value in beside.items()}
        if arrays is not None:
            values[self.file_name(".npz")] = arrays
        values[self.file_name()] = dict(facts)
        for name, value in values.items():
            run.write(name, value)
        run.mark_done(self.step_name, inputs={"model": model_hashes(self.source)}, files=values)

    def facts(self, out: Path, *keys: str) -> dict[str, Any]:
        """Return the facts that were written, which have these keys.

        Raises:
            ValueError: the file is missing, not as it was written, or lacks a key.
        """
        _run_at(out).check(self.file_name())
        path = self.file(out)
        return read_object(path, *keys, hint=f"Delete {path.name} and run the command again.")

    def is_finished(self, out: Path) -> bool:
        """Return whether this trial is finished, without comparing the hashes of its files.

        In a copy without a manifest, return whether its facts are there.
        """
        run = _run_at(out)
        step = run.finished_step(self.step_name)
        if step is None:
            return run.kind is None and self.file(out).is_file()
        return all(map(run.has, step["step_files"]))

    def check_finished(self, out: Path) -> bool:
        """Return whether this trial is finished, after comparing its model and the hashes of its files.

        Raises:
            ValueError: a file is not as it was written, or the model is another one now.
        """
        run = _run_at(out)
        step = run.finished_step(self.step_name)
        if step is None or not self.is_finished(out):
            return False
        run.check(*step["step_files"])
        if step["inputs"]["model"] not in (None, model_hashes(self.source)):
            raise ValueError(
                f"{self.file(out)} is of another model than {self.source} is now. Use another --out, or delete "
                f"{self.file(out).parent.parent}."
            )
        return True

    def arrays(self, out: Path) -> Arrays:
        """Return the arrays that `write` was given, of their shapes.

        Raises:
            ValueError: the file is missing, damaged, or not as it was written.
        """
        arrays: Arrays = _run_at(out).read(self.file_name(".npz"))
        return arrays


@cache
def _run_at(out: Path) -> RunFolder:
    """Return the run of an evaluation, whose manifest this process reads once and then follows."""
    return RunFolder.at(out)


@dataclass(frozen=True)
class Benchmark(Generic[C]):
    """Description of a benchmark.

    name: of its verb, of its settings' file, and what its metrics begin with. title: of the page. config: its settings.
    check: reads a little of all data before anything is done; a ValueError says what is missing. trials: all of them,
    in the order in which a budget spends itself. work: runs one trial in the folder of the run and writes its files,
    .json last; called in a process of its own, so a function of a module. records: of all finished trials. notes:
    sentences for the page, on the settings and on the finished trials. score: metric of the table for people, a column
    each `part`; `difference` from the first model, where there is one also NAME.taught. heading: of a column. legend:
    what the numbers are. brief: settings of `evaluate all`, which gives each benchmark the rest of a budget. variants:
    endings of `score` and `difference` that have rows of their own.
    """

    name: str
    title: str
    config: type[C]
    check: Callable[[C], None]
    trials: Callable[[C], list[Trial]]
    work: Callable[[str, Trial, Progress], None]
    records: Callable[[C, Path], list[Record]]
    notes: Callable[[C, Path], list[str]]
    score: str
    difference: str = ""
    heading: Callable[[str], str] = str
    legend: str = ""
    brief: Mapping[str, Any] = field(default_factory=dict)
    variants: Sequence[str] = ("",)

    @property
    def file(self) -> str:
        """Return the name of the settings file in a run's folder."""
        return f"{self.name}.yaml"


def model_names(models: Sequence[str]) -> dict[str, str]:
    """Return name -> model as given: a folder's own name, or for a model of a study the name above its seed.

    Raises:
        ValueError: two that are called alike.
    """
    folders: dict[str, str] = {}
    for model in models:
        path = Path(model)
        whole = path.resolve() if path.is_dir() else path
        name = whole.name if path.is_dir() else model
        if name_and_seed(whole)[1] is not None:
            name = whole.parent.name
        same = [known for known in folders if known != name and known.replace("/", "_") == name.replace("/", "_")]
        if same:
            raise ValueError(f"{name} and {same[0]} would have files of one name. Rename the folder.")
        if folders.get(name) == model:
            raise ValueError(f"{model} is given twice. Leave one out.")
        if name in folders:
            raise ValueError(f"{folders[name]} and {model} are both called {name}. Rename one of the folders.")
        folders[name] = model
    return folders


def of_studies(models: Sequence[str], seeds: bool = False) -> list[str]:
    """Return the models given; for a study's folder its models of the first seed, or of all seeds.

    Raises:
        ValueError: a study without a finished model.
    """
    models_of_study: list[str] = []
    for model in models:
        root = Path(model) / "models"
        if not root.is_dir() or (Path(model) / "config.json").is_file():
            models_of_study.append(model)
            continue
        facts = Path(model) / "study.json"
        listed = []  # no facts before the page
        if facts.is_file():
            RunFolder.at(model).check(facts.name)
            listed = read_object(facts, "models")["models"]
        folders = sorted(path.name for path in root.iterdir())
        entries = listed if isinstance(listed, list) else []
        names = [str(entry.get("name")) for entry in entries if isinstance(entry, dict)]
        names = list(dict.fromkeys([*(name for name in names if name in folders), *folders]))
        trained = [
            sorted((root / name).glob("seed-*/config.json"), key=lambda path: name_and_seed(path.parent)[1] or 0)
            for name in names
        ]
        chosen = [str(entry.parent) for of_name in trained for entry in of_name[: None if seeds else 1]]
        if not chosen:
            raise ValueError(f"{model} is a study without a finished model. Go on with it, or give a model's folder.")
        models_of_study += chosen
    return models_of_study


def each_model(config: EvaluationConfig) -> list[tuple[str, str, bool]]:
    """Yield (name, source, untrained) of every model and, where they are wanted, of its untrained selves."""
    folders = model_names(config.models).items()
    return [
        (name, source, untrained) for name, source in folders for untrained in (False, True)[: 1 + config.untrained]
    ]


def paired(
    score: Callable[[np.ndarray, np.ndarray], float],
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    labels: np.ndarray,
    strata: np.ndarray | None = None,
    name: str = "",
) -> np.ndarray:
    """Return the difference of two models' scores, mean over seeds, and its bootstrap samples, (1 + DRAWS,).

    A sample draws rows, the same for both models, and seeds where there are several. Of k seeds drawn anew the mean has
    (k - 1) / k of the variance that k new ones had, so that three show two thirds of it.

    Args:
        score: of (predictions, labels). pairs: predictions (rows, ...) of the two models, a pair each seed.
            labels: (rows,).
        strata: (rows,) int; of the rows with one number as many are drawn as there are. name: of the task, which says
            what rows are drawn, for models with any number of seeds.
    """
    order = np.arange(len(labels)) if strata is None else np.argsort(strata, kind="stable")
    sizes = np.array([len(labels)]) if strata is None else np.unique(strata, return_counts=True)[1]
    firsts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    most = np.repeat(sizes, sizes)

    def difference(rows: np.ndarray, seeds: np.ndarray) -> float:
        of_seed = {k: score(pairs[k][0][rows], labels[rows]) - score(pairs[k][1][rows], labels[rows]) for k in {*seeds}}
        return float(np.mean([of_seed[k] for k in seeds]))

    rng = np.random.default_rng([0, *name.encode()])
    k = len(pairs)
    (of_seeds,) = rng.spawn(1)
    drawn = [(order[firsts + rng.integers(most)], of_seeds.integers(k, size=k)) for _ in range(DRAWS)]
    return np.array([difference(*sample) for sample in [(np.arange(len(labels)), np.arange(k)), *drawn]])


def bounded(drawn: np.ndarray) -> tuple[float, float, float]:
    """Return the first of the values (1 + draws,) of `paired`, and the 95 % interval of the others (percentiles)."""
    low, high = np.percentile(drawn[1:], (2.5, 97.5))
    return float(drawn[0]), float(low), float(high)


def differences(
    family: str,
    config: EvaluationConfig,
    predicted: Mapping[tuple[str, bool, str], Mapping[Any, np.ndarray]],
    labels: Mapping[str, np.ndarray],
    scores: Mapping[str, Callable[[np.ndarray, np.ndarray], float]],
    strata: Mapping[str, np.ndarray] = MappingProxyType({}),
    name_of: Callable[[str], str] = str,
) -> list[Record]:
    """Return paired differences over the seeds that both sides have, and ranks.

    FAMILY.difference compares each model and part with the first model; FAMILY.taught compares each trained model with
    its untrained self. Without a part it is the average over the parts that all models have. FAMILY.rank is the place
    of each trained model by that average.

    Args:
        predicted: (model, untrained, part) -> seed -> predictions (rows, ...).
        labels: part -> right answers (rows, ...) in the same order.
        scores: part -> function of predictions and labels.
        strata: part -> stratum of each row (rows,), see `paired`.
        name_of: function from a metric of the benchmark to its name.
    """
    first = (next(iter(model_names(config.models))), False)
    models = dict.fromkeys(key[:2] for key in predicted)
    from_first = {model: first for model in models if model != first}
    from_untrained = {model: (model[0], True) for model in models if not model[1]}
    records, drawn = _beside(name_of(f"{family}.difference"), from_first, predicted, labels, scores, strata)
    taught, _ = _beside(name_of(f"{family}.taught"), from_untrained, predicted, labels, scores, strata)
    trained = {name: of_parts for (name, untrained), of_parts in drawn.items() if not untrained}
    return [*records, *taught, *_ranks(name_of(f"{family}.rank"), first[0], trained)]


def _ranks(metric: str, first: str, drawn: Mapping[str, Mapping[str, np.ndarray]]) -> list[Record]:
    """The place of each model, 1 the best, by its average over the parts that all have, and the places that it takes
    in 95 % of the draws, equal ones sharing the mean of theirs."""
    if not (common := _common(drawn.values())):
        return []
    means = [np.mean([of_parts[part] for part in common], axis=0) for of_parts in drawn.values()]
    places = rankdata(-np.array([np.zeros_like(means[0]), *means]), axis=0)  # of differences from the first model
    ends = np.percentile(places[:, 1:], (2.5, 97.5), axis=1, method="closest_observation")
    return [
        RecordContext(name).record(metric, place, low, high, n=len(common))
        for name, place, low, high in zip((first, *drawn), places[:, 0], *ends, strict=True)
    ]


def _beside(
    metric: str,
    bases: Mapping[tuple[str, bool], tuple[str, bool]],
    predicted: Mapping[tuple[str, bool, str], Mapping[Any, np.ndarray]],
    labels: Mapping[str, np.ndarray],
    scores: Mapping[str, Callable[[np.ndarray, np.ndarray], float]],
    strata: Mapping[str, np.ndarray],
) -> tuple[list[Record], Mapping[tuple[str, bool], Mapping[str, np.ndarray]]]:
    """The differences of `differences`, and model -> part -> all that were drawn; bases: of each model, trained or not,
    the one that it stands beside."""
    records = []
    drawn: dict[tuple[str, bool], dict[str, np.ndarray]] = defaultdict(dict)
    for (name, untrained, part), of_seeds in predicted.items():
        base = predicted.get((*bases[name, untrained], part), {}) if (name, untrained) in bases else {}
        if both := sorted(set(of_seeds) & set(base), key=str):
            pairs = [(of_seeds[k], base[k]) for k in both]
            difference = paired(scores[part], pairs, labels[part], strata.get(part), part)
            drawn[name, untrained][part] = difference
            context = RecordContext(name, None, "", 0 if untrained else None)
            records.append(context.record(metric, *bounded(difference), part=part, n=len(labels[part])))
    common = _common(drawn.values())
    for (name, untrained), of_parts in drawn.items():
        if len(common) > 1:
            context = RecordContext(name, None, "", 0 if untrained else None)
            whole = bounded(np.mean([of_parts[part] for part in common], axis=0))
            records.append(context.record(metric, *whole, n=sum(len(labels[part]) for part in common)))
    return records, drawn


def averages(metric: str, scores: Mapping[Trial, Mapping[str, float]]) -> list[Record]:
    """Average a metric of each model and seed over the parts that all models have; seeds that lack one are left out.

    Args:
        scores: a trial of each model and seed, its part left out -> part -> score.
    """
    of_models: dict[Trial, dict[str, float]] = defaultdict(dict)
    for trial, of_parts in scores.items():
        of_models[replace(trial, seed=None)].update(of_parts)
    common = _common(of_models.values())
    if len(common) < 2:
        return []
    return [
        trial.context.record(metric, np.mean([of_parts[part] for part in common]), n=len(common))
        for trial, of_parts in scores.items()
        if common <= set(of_parts)
    ]


def _common(of_each: Iterable[Mapping[str, Any]]) -> set[str]:
    sets = [set(of_parts) for of_parts in of_each]
    return set.intersection(*sets) if sets else set()
