"""The configuration keys of evaluations, a class for each family of tasks: type, range, default and help of each key.

Nothing here loads torch: the command line makes its options of these classes.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PositiveFloat, ValidationInfo, field_validator

from ..corpus.paths import check_corpus
from ..run.errors import suggest_name
from ..training.training_keys import CorpusKeys, SchemeKeys

GLUE_TASKS = ("rte", "mrpc", "cola", "sts-b", "sst-2", "qnli", "qqp", "mnli")  # without wnli, as all report GLUE
_OF_TREES = ("pos", "deprel", "arc", "depth", "constituents", "length", "tense", "subject-number", "object-number")
_OF_CHANGES = ("bigram-shift", "coordination", "sentence-order", "next-sentence", "readability", "acceptability")
_OF_PROBES = {"layers": ("choice of layers", ("last", "all")), "pooling": ("pooling", ("mean", "first", "last"))}
ENGLISH = "MTEB(eng, v2)"
_PATH = "<path>"
_ALL = {"default": "all"}
_PROBE_SEEDS = "Seeds of each probe."
_LAYERS = "Hidden states that probes read: last or all."
_POOLING = "Tokens of a place that are averaged: mean (all), first or last."


def check_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that nobody knows.

    Raises:
        ValueError: the first such name, with those that are known.
    """
    if strange := [name for name in names if name not in known]:
        hint = suggest_name(strange[0], [*known])
        raise ValueError(f"no {what} {strange[0]!r}.{hint} Known: {', '.join(known)}")


class EvaluationKeys(SchemeKeys):
    """The keys that all evaluations share.

    KNOWN: for a key that names things, what they are called and their names.
    """

    KNOWN: ClassVar[Mapping[str, tuple[str, Collection[str]]]] = {}

    models: list[str] = Field(
        description="Model folders of ours or of transformers, studies (their first seeds; of `length` all), Hub "
        "names, or `reference`; differences are from the first."
    )
    data: str | None = Field(
        None, description="Folder of the data.", json_schema_extra={"default": "the Hub", "metavar": _PATH}
    )
    untrained: bool = Field(False, description="Measure also each model with weights drawn anew, as a control.")
    minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes: begin nothing that would end later, judged by the pieces of its task so far (the first "
        "of each is begun whatever it takes); the same command goes on.",
    )

    @field_validator("data", check_fields=False)
    @classmethod
    def _check_folder(cls, data: str | None) -> str | None:
        if data is not None and Path(data).is_file():
            raise ValueError(f"{data} is a file. Give the folder that holds the data")
        if data is not None and not Path(data).is_dir():
            raise ValueError("there is no such folder. Give the one that holds the data")
        return data

    @field_validator("*")
    @classmethod
    def _check_known(cls, value: Any, about: ValidationInfo) -> Any:
        if (key := str(about.field_name)) in cls.KNOWN:
            what, known = cls.KNOWN[key]
            check_known(what, [value] if isinstance(value, str) else value, known)
        return value

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        super().check_existence(values)
        if values.get("corpus") is not None:
            check_corpus(values["corpus"])


class AllKeys(EvaluationKeys):
    """The keys of all evaluations at once."""

    data: str = Field(
        description="Folder that holds glue/, squad/, blimp/, ud-ewt/, sts/, books-pd/ ...; what lacks is left out.",
        json_schema_extra={"metavar": _PATH},
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes for all, the cheapest first, as of each verb; the same command goes on.",
    )


class GridKeys(EvaluationKeys):
    """The keys of fine-tunings over a grid."""

    tasks: list[str] = Field(default_factory=list, description="Tasks, with commas.")
    recipe: str = Field("short", description="Protocol: grid, epochs, seeds.")
    rates: list[PositiveFloat] = Field(
        default_factory=list,
        description="Learning rates in place of the recipe's, of a model 768 wide, with commas; one half of the "
        "development rows chooses.",
    )
    seeds: int | None = Field(
        None, ge=1, description="Seeds of the fine-tuning.", json_schema_extra={"default": "the recipe's"}
    )
    checkpoints: list[int] = Field(
        default_factory=list,
        description="Steps of the models' trainings that are fine-tuned too, with commas (TUPE Figure 5).",
    )


class GlueKeys(GridKeys):
    """The keys of fine-tunings on GLUE."""

    KNOWN = {"tasks": ("task", (*GLUE_TASKS, "wnli")), "recipe": ("recipe", ("dstg", "tupe", "short"))}

    tasks: list[str] = Field(
        default_factory=lambda: list(GLUE_TASKS),
        description="Tasks, with commas.",
        json_schema_extra={"default": "all but wnli"},
    )
    data: str | None = Field(
        None,
        description="Folder of GLUE's own release (CoLA/train.tsv ..., also packed), or that holds glue/.",
        json_schema_extra={"default": "the Hub", "metavar": _PATH},
    )
    recipe: str = Field(
        "short",
        description="Protocol: short (2 rates, 5 epochs, 3 seeds), tupe (4 rates, 5 seeds; TUPE Table 1), dstg (18 "
        "settings; DSTG C.1). Rates are of models 768 wide, narrower ones take them in inverse proportion.",
    )
    length: int = Field(128, ge=8, description="Most tokens of a row; longer ones are cut.")
    limit: int | None = Field(None, ge=20, description="Most training rows, evenly spaced.", json_schema_extra={**_ALL})


class SquadKeys(GridKeys):
    """The keys of fine-tunings on questions."""

    KNOWN = {"tasks": ("task", ("squad", "squad-2", "restaurants")), "recipe": ("recipe", ("dstg", "short"))}

    tasks: list[str] = Field(
        default_factory=lambda: ["squad"],
        description="Tasks, with commas, of squad (1.1), squad-2 (2.0), restaurants.",
    )
    data: str | None = Field(
        None,
        description="Folder of train-v1.1.json, dev-v1.1.json ..., or that holds squad/ and span-extraction/; also "
        "packed.",
        json_schema_extra={"default": "the Hub", "metavar": _PATH},
    )
    recipe: str = Field(
        "short",
        description="Protocol: short (2 rates, 3 epochs, 3 seeds), dstg (3 rates; DSTG C.4). Rates are of models 768 "
        "wide, narrower ones take them in inverse proportion.",
    )
    # A window of fewer than `spans.SHORTEST` tokens has no room for question and paragraph.
    length: int = Field(384, ge=16, description="Most tokens of a window, question included.")
    stride: int = Field(128, ge=1, description="Tokens from a window of a paragraph to the next.")
    limit: int | None = Field(
        None, ge=20, description="Most training questions, evenly spaced.", json_schema_extra={**_ALL}
    )
    train_on_dev: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of SQuAD's development articles to train on in place of the training file; the others are "
        "tested. Not of restaurants.",
    )


class LinguisticKeys(EvaluationKeys):
    """The keys of BLiMP and of linguistic probes."""

    KNOWN = {"tasks": ("task", ("blimp", *_OF_TREES, *_OF_CHANGES)), **_OF_PROBES}

    data: str | None = Field(
        None,
        description="Folder that holds blimp/, ud-ewt/, wikipedia-en/, or one of these; also packed.",
        json_schema_extra={"default": "the Hub, which has blimp and acceptability alone", "metavar": _PATH},
    )
    tasks: list[str] = Field(
        default_factory=list,
        description="Tasks, with commas.",
        json_schema_extra={"default": "those whose files are there"},
    )
    seeds: int = Field(5, ge=1, description=_PROBE_SEEDS)
    layers: str = Field("last", description=_LAYERS)
    pooling: str = Field("mean", description=_POOLING)
    code: bool = Field(
        False,
        description="Measure also the online code of the labels (minimum description length): how easily is it read?",
    )
    limit: int | None = Field(
        None,
        ge=20,
        description="Most rows of training and test of a probe.",
        json_schema_extra={"default": "10,000"},
    )
    pairs: int | None = Field(
        None,
        ge=1,
        description="Most pairs of each paradigm of BLiMP.",
        json_schema_extra={"default": "all, 1,000"},
    )


class HolmesKeys(EvaluationKeys):
    """The keys of Holmes."""

    KNOWN = _OF_PROBES

    data: str = Field(
        description="Folder of Holmes' or Flash-Holmes' data sets, a folder with samples.csv each, or that holds it.",
        json_schema_extra={"metavar": _PATH},
    )
    tasks: list[str] = Field(
        default_factory=list,
        description="Data sets, with commas.",
        json_schema_extra={"default": "all of the folder"},
    )
    table: str | None = Field(
        None,
        description="Published table (leaderboards/*.csv), which says what a data set is of.",
        json_schema_extra={"default": "leaderboard*holmes.csv beside the data", "metavar": _PATH},
    )
    seeds: int = Field(5, ge=1, description=_PROBE_SEEDS)
    layers: str = Field("last", description=_LAYERS)
    pooling: str = Field("mean", description=_POOLING)
    control: bool = Field(
        False, description="Fit also probes of permuted labels: what is left of a score without them?"
    )
    limit: int | None = Field(None, ge=2, description="Most rows of a split.", json_schema_extra={**_ALL})


class MtebKeys(EvaluationKeys):
    """The keys of sentence-vector tasks."""

    KNOWN = {"pooling": ("pooling", ("mean", "cls", "semantic", "position"))}

    data: str | None = Field(
        None,
        description="Folder of the local tasks' files (docs/evaluation/mteb.md), plain or packed.",
        json_schema_extra={"default": "the Hub", "metavar": _PATH},
    )
    tasks: list[str] = Field(
        description="mteb's tasks or benchmarks, from the Hub, or local ones of --data (STS12-local ... STS16-local, "
        "STSBenchmark-local, SICK-R-local, Banking77-local, TwentyNewsgroups-local, Cranfield-local, MR-local, "
        "CR-local, SUBJ-local, MPQA-local), with commas.",
        json_schema_extra={"default": f"{ENGLISH}; with --data all local ones"},
    )
    pooling: list[str] = Field(
        default_factory=lambda: ["mean"],
        description="How tokens become one vector: mean, cls; of two streams also semantic, position. With commas.",
    )
    length: int = Field(
        512, ge=8, description="Most tokens of a text, at most as many as the model reads; longer ones are cut."
    )
    limit: int | None = Field(
        None,
        ge=20,
        description="Most pairs, test rows or queries of a local task, evenly over all.",
        json_schema_extra={**_ALL},
    )
    contrastive: bool = Field(
        False, description="Measure also each model after some minutes of unsupervised SimCSE: NAME+simcse."
    )
    seeds: int = Field(1, ge=1, description="Trainings by SimCSE of each model; all else here has no chance in it.")
    steps: int = Field(250, ge=1, description="Steps of SimCSE, of 64 sentences each.")
    corpus: str | None = Field(
        None,
        description="Text for SimCSE, as for `study`, or a folder of windows (the corpus/ of a run or study), whose "
        "training part is read.",
        json_schema_extra={"default": "the windows of the model's own run, else a part of python-docs"},
    )
    field: str = Field("text", description=CorpusKeys.model_fields["field"].description)
