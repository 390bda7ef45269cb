"""What runs are asked for: the models, corpus and budget of a study, the corpora and measures of a geometry run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ..corpus import Source, open_source
from ..encoder import PRESETS
from ..geometry import MIN_SUPPORT
from ..records.terms import unequal
from ..run.settings import StrictConfig
from ..training.corpus_settings import CorpusConfig
from ..training.pretrain_settings import PretrainConfig
from ..training.recipes import defaults_of, family_of
from ..training.settings import SchemeConfig

ALL = "all"
_NAMED = re.compile(r"([^=/:]+)=(.+)")  # NAME=SPEC, no slash or colon in the name


class StudyConfig(CorpusConfig, SchemeConfig):
    """A comparison of presets on one corpus, from one recipe, on the same batches."""

    FREE: ClassVar[tuple[str, ...]] = ("workers", "widths", "at_once", "seeds", "models", "variants")

    models: list[str] = Field(
        ["dstg", "ap", "rp", "rope"],
        description="presets to compare; a finished study can gain more; `all` stands for those not named before",
    )
    size: str = "tiny"
    recipe: Literal["dstg", "tupe"] = Field(
        "dstg", description="whose training defaults for all models; default: those of the first's family"
    )
    match: Literal["parameters", "operations"] | None = Field(
        None, description="change the feed-forward widths so that every model costs what the first one does"
    )
    variants: dict[str, dict[str, Any]] = Field(
        {}, description="models of your own by name: {preset: NAME, and PretrainConfig keys}, for `models` to take"
    )
    widths: dict[str, int] = Field({}, description="intermediate_size of single models; `match` fills it in")
    seeds: int = Field(1, ge=1, description="training seeds per model; more may be asked of a finished study")
    steps: int | None = Field(None, ge=1, description="optimizer steps per model; default: those of the size's recipe")
    minutes: float | None = Field(
        None, gt=0, description="instead: budget for the whole study, turned into steps once, by timing"
    )
    at_once: int | None = Field(
        None,
        ge=1,
        description="models trained and looked into at once; default: one a core, or one if trainings are short",
    )
    training: dict[str, Any] = Field({}, description="PretrainConfig keys for every model")
    probe_documents: int = Field(
        500, ge=10, description="held-out windows that are probed and looked into; 250 at size tiny"
    )
    probe_splits: int = Field(5, ge=2, description="random splits of the probed documents")
    inside: bool = Field(
        True, description="heads, attention, sentences, ablations, controls, the corpus too; False: probes only"
    )
    ablation_documents: int = Field(
        32, ge=8, description="held-out windows whose loss is measured under ablations; 16 at size tiny"
    )
    texts: int = Field(2, ge=0, description="held-out windows in the explorer, beside a text that repeats itself")

    @classmethod
    def keys_below(cls) -> list[str]:
        keys = [
            *PretrainConfig.keys_below(),
            *(key for key in PretrainConfig.model_fields if key not in cls.model_fields),
        ]
        return [f"training.{key}" for key in keys]

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        for key in values:
            if key not in cls.model_fields and key in PretrainConfig.model_fields:
                advice = f"give training.{key}, for example --set training.{key}=..."
                raise ValueError(f"{key} is a key of the trainings: {advice}")
        values = {key: value for key, value in values.items() if value is not None}
        size = values.get("size", "tiny")
        models = values.get("models") or ["dstg"]
        variants = values.get("variants")
        if isinstance(models, list) and ALL in models:
            at = models.index(ALL)
            models = [*models[:at], *(name for name in PRESETS if name not in models), *models[at + 1 :]]
            values["models"] = models
        if not values.get("recipe"):
            first = str(models[0]) if isinstance(models, list) else "dstg"  # what is no list is refused below
            variant = variants.get(first) if isinstance(variants, dict) else None
            values["recipe"] = family_of(str(variant.get("preset", first)) if isinstance(variant, dict) else first)
        recipe = defaults_of(str(values["recipe"]), str(size))
        own = {key: value for key, value in recipe.items() if key in cls.model_fields}
        if "minutes" in values or "steps" in values:
            own.pop("steps", None)
        if size == "tiny":  # minutes, not hours: half of the paper's documents leave time to train
            own |= {"probe_documents": 250, "ablation_documents": 16}
        return {**own, **values}

    @model_validator(mode="after")
    def _check(self) -> "StudyConfig":
        if (self.steps is None) == (self.minutes is None):
            raise ValueError(f"Give steps or minutes, one of them; got steps={self.steps}, minutes={self.minutes}.")
        if len(set(self.models)) < len(self.models) or not self.models:
            raise ValueError(f"models must be different presets, at least one; got {', '.join(self.models) or 'none'}.")
        for name, own in self.variants.items():
            if name in PRESETS or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
                raise ValueError(f"variants: a name is of letters, digits and . _ + - and no preset; got {name!r}.")
            if not isinstance(own, dict) or str(own.get("preset")) not in PRESETS:
                raise ValueError(f"variants.{name} must say its preset, for example {{preset: dstg}}; got {own!r}.")
        if strange := sorted(set(self.widths) - set(self.models)):
            raise ValueError(
                f"widths names {strange[0]!r}, which is not in the study. Its models: {', '.join(self.models)}."
            )
        with advice_of_trainings():
            for name in self.models:
                try:
                    self.pretraining(name, seed=0, steps=1).encoder_config()
                except ValueError as error:
                    raise ValueError(self._of_one_model(name, str(error))) from None
        return self

    def _of_one_model(self, name: str, error: str) -> str:
        """Add to the error of a model how a key of the encoder goes to others alone, if some take what it refuses."""
        model = self.training.get("model")
        given: dict[str, Any] = model if isinstance(model, dict) else {}
        for other in self.models if given else ():
            with suppress(ValueError):
                self.pretraining(other, seed=0, steps=1).encoder_config()
                keys = ", ".join(f"{key}: {value}" for key, value in given.items())
                variant = f"{other}-2: {{preset: {self.preset(other)}, model: {{{keys}}}}}"
                way_out = "training.model is for every model. For one alone name a variant among the models"
                return f"{name}: {error} {way_out}: --set 'variants={{{variant}}}'."
        return error

    def terms(self) -> list[str]:
        """What is said of the terms before anything is trained: rates of a preset's own, and unequal terms."""
        trainings = {name: self.pretraining(name, 0, self.steps or 1) for name in self.models}
        said = []
        for name, training in trainings.items():
            own = ", ".join(f"{key}={value}" for key, value in training.scheme_recipe.items())
            said += [f"{name} trains by the recipe of {training.preset}: {own}"] if own else []
        entries = [
            {"name": n, "config": t.encoder_config().to_dict(), "training": t.model_dump(mode="json")}
            for n, t in trainings.items()
        ]
        return said + list(filter(None, [unequal(entries)]))

    def preset(self, model: str) -> str:
        """The preset of a model, which may be a variant."""
        return str(self.variants[model]["preset"]) if model in self.variants else model

    def pretraining(self, model: str, seed: int, steps: int) -> PretrainConfig:
        """The configuration of one of the trainings: of the study, over it `training`, over it the variant."""
        shared = {key: getattr(self, key) for key in (*CorpusConfig.model_fields, "scheme", "recipe", "size")}
        training = _over(self.training, {k: v for k, v in self.variants.get(model, {}).items() if k != "preset"})
        clash = sorted(set(training) & {*shared, "preset", "seed", "steps", "tokens", "minutes"})
        if clash:
            where = "training" if clash[0] in self.training else f"variants.{model}"
            raise ValueError(f"{where}.{clash[0]} is the study's own key: set {clash[0]} instead.")
        if model in self.widths and isinstance(training.get("model", {}), dict):
            training = _over(training, {"model": {"intermediate_size": self.widths[model]}})
        return PretrainConfig.parse({**shared, **training, "preset": self.preset(model), "seed": seed, "steps": steps})


@contextmanager
def advice_of_trainings() -> Iterator[None]:
    """Lets what a training advises (`--set batch_size=`) be typed in a study: `--set training.batch_size=`."""
    try:
        yield
    except ValueError as error:
        below = {key.rpartition(".")[2]: key for key in StudyConfig.keys_below()}
        typed = re.sub(r"(--set )(\w+)", lambda m: m[1] + below.get(m[2], m[2]), str(error))
        raise ValueError(typed) from None


def _over(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`values` with those of `more`; where both have a mapping, such as `model`, theirs are put together."""
    both = {key for key in values if isinstance(values[key], dict) and isinstance(more.get(key), dict)}
    return {**values, **more, **{key: {**values[key], **more[key]} for key in both}}


class HeadsConfig(StrictConfig):
    """A look into one model: what it reads, and how much of it."""

    model: str = Field(description="folder of the model")
    corpus: str | None = Field(None, description="text or folder of windows; none: those of the model's own run")
    field: str = Field("text", description="field of the text in tables")
    documents: int = Field(500, ge=10, description="held-out windows of full length to read")
    length: int | None = Field(None, description="tokens of a window; none: those of the windows that are there")
    ablate: int = Field(0, ge=0, description="windows whose loss is measured with parts taken out")


class SpectraConfig(StrictConfig):
    """Position tables to measure."""

    sources: list[str] = Field(description="tables, model folders, studies, Hub names or reference")
    words: bool = Field(False, description="word tables, too")


class GeometryConfig(StrictConfig):
    """Which corpora, how they are counted, and what is measured on them; what is measured may change on one folder."""

    FREE: ClassVar[tuple[str, ...]] = (
        "protocol",
        "min_support",
        "splits",
        "intervals",
        "smacof",
        "width",
        "heads",
        "dims",
        "ranks",
        "rank",
        "tables",
        "first_row",
        "models",
        "seed",
        "workers",
    )

    corpora: list[str] = Field(["python-docs"], min_length=1, description="corpora, each SPEC or NAME=SPEC")
    field: list[str] = Field(["text"], description="field of the text in tables: one for all, or one a corpus")
    phrases: bool = Field(
        False, description="documents inside longer ones share their group (phrases of a sentence); holds all texts"
    )
    document: str = Field("auto", description="what a document of a text file is: file, heading, blank-line, line")
    tokenizer: str | None = Field(
        None, description="vocabulary file, folder, Hub name, words or characters; none: train a WordPiece"
    )
    vocab_size: int | None = Field(
        None, ge=8, description="entries of a tokenizer to make; none: 4,096 pieces, 50,000 words"
    )
    positions: int = Field(128, ge=3, description="positions counted, without special tokens")
    align: Literal["start", "relative"] = Field(
        "start", description="position from the start of a document, or its place in equal parts"
    )
    protocol: Literal["default", "paper"] = Field(
        "default", description="paper: all positions, smoothed, nothing corrected, as GEOM"
    )
    min_support: float = Field(MIN_SUPPORT, ge=1, description="tokens that a position needs to be kept")
    groups: int = Field(32, ge=2, description="groups of documents that are left out in turn for intervals")
    splits: int = Field(10, ge=1, description="random halves for the corrected distances")
    intervals: bool = Field(True, description="95 % intervals: a pass for each group of documents")
    smacof: bool = Field(True, description="tables of least stress beside classical MDS")
    width: int = Field(768, ge=2, description="width of the encodings compared")
    heads: int = Field(12, ge=1, description="heads of ALiBi")
    dims: list[int] = Field([16, 32, 64, 128, 256, 512, 768], description="widths of the curve of stress")
    ranks: list[int] = Field([1, 2, 3, 7], description="ranks of the MDS tables")
    rank: int | None = Field(
        None, ge=1, description="rank of the table that is written; none: of least stress on held-out documents"
    )
    tables: list[str] = Field([], description="further tables: .npy files, model folders, Hub names, reference")
    first_row: int | None = Field(
        None, ge=0, description="row of position 0 in them; none: 1, after [CLS], and 0 for GPT-2 and OPT"
    )
    models: list[str] = Field([], description="runs whose tables are measured at every checkpoint, or reference")
    seed: int = Field(0, description="of random halves and the random table")
    workers: int | None = Field(None, ge=1, description="processes that count; none: one a core for large corpora")

    @field_validator("corpora", "field", "tables", "models", "dims", "ranks", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """One value stands for a list of it, and numbers may come with commas."""
        if isinstance(value, str) and re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", value):
            return [int(number) for number in value.split(",")]
        return value if isinstance(value, list | tuple) else [value]

    @model_validator(mode="after")
    def _check(self) -> "GeometryConfig":
        if len(self.field) not in (1, len(self.corpora)):
            raise ValueError(
                f"{len(self.field)} fields for {len(self.corpora)} corpora. Give one for all, or one for each."
            )
        if wrong := [d for d in (*self.dims, *self.ranks) if d < 1]:
            raise ValueError(f"dims and ranks are at least 1; got {wrong[0]}.")
        if self.width % min(64, self.width) or self.width % 2:
            raise ValueError(
                f"width must be a multiple of 64, or even and below 64 (RoPE's head); got {self.width}. For example "
                "768."
            )
        return self

    def sources(self) -> dict[str, Source]:
        """The corpora by name, names made different."""
        found: dict[str, Source] = {}
        for i, spec in enumerate(self.corpora):
            named = None if Path(spec).exists() else _NAMED.fullmatch(spec)
            source = open_source(named[2] if named else spec, self.field[i % len(self.field)], self.document)
            name = wanted = named[1] if named else source.name
            number = 2
            while name in found:
                name = f"{wanted}-{number}"
                number = number + 1
            found[name] = source
        return found
