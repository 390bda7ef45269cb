"""Settings of a study (models, corpus, budget) and of a geometry run.

The settings of `heads` and `spectra` are in `study_keys`: their checks load no torch.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from pydantic import model_validator

from ..corpus import Source, open_source
from ..encoder import PRESETS
from ..records.terms import unequal
from ..training.corpus_settings import CorpusConfig
from ..training.pretrain_settings import PretrainConfig
from ..training.recipes import defaults_of, recipe_of
from ..training.scheme_settings import ConfigWithScheme
from .study_keys import ALL_PRESETS, CHOSEN_BY_STUDY, GeometryKeys, StudyKeys, name_and_corpus


class StudyConfig(StudyKeys, CorpusConfig, ConfigWithScheme):
    """Settings of a study: a comparison of presets on one corpus, from one recipe, on the same batches."""

    RESUME_ARGUMENTS: ClassVar[str] = "--out {out}"
    CHANGEABLE_KEYS: ClassVar[tuple[str, ...]] = ("workers", "at_once")  # workers tokenise the text
    # A command that adds models names the saved ones, too, and no fewer seeds (`study._check_saved_models`).
    GROWING_KEYS: ClassVar[tuple[str, ...]] = ("models", "variants", "widths", "seeds")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = {key: value for key, value in values.items() if value is not None or key == "tokenizer"}
        size = values.get("size", "tiny")
        models = values.get("models") or cls.model_fields["models"].default
        variants = values.get("variants")
        if isinstance(models, list) and ALL_PRESETS in models:
            at = models.index(ALL_PRESETS)
            models = [*models[:at], *(name for name in PRESETS if name not in models), *models[at + 1 :]]
            values["models"] = models
        if not values.get("recipe"):
            first = str(models[0]) if isinstance(models, list) else "dstg"  # what is no list is refused below
            variant = variants.get(first) if isinstance(variants, dict) else None
            values["recipe"] = recipe_of(str(variant.get("preset", first)) if isinstance(variant, dict) else first)
        defaults = cls._defaults(str(values["recipe"]), str(size))
        if "minutes" in values or "steps" in values:
            defaults.pop("steps", None)
        return {**defaults, **values}

    @classmethod
    def _defaults(cls, recipe: str, size: str) -> dict[str, Any]:
        """Return the values of keys that are left out, by recipe and size."""
        values = {key: value for key, value in defaults_of(recipe, size).items() if key in cls.model_fields}
        if size == "tiny":  # minutes, not hours: half of the paper's documents leave time to train
            values |= {"probe_windows": 250, "ablation_windows": 16}
        return values

    def given_keys(self) -> set[str]:
        """Return the keys that the user gave, but for those that equal a default of the recipe and the size."""
        first = self.preset(self.models[0])
        defaults = self._defaults(self.recipe, self.size) | {"recipe": recipe_of(first)}
        return {key for key in super().given_keys() if key not in defaults or defaults[key] != getattr(self, key)}

    @model_validator(mode="after")
    def _check(self) -> "StudyConfig":
        if self.steps is None and self.minutes is None:
            raise ValueError("Give steps or minutes, one of them; got steps=None, minutes=None.")
        if len(set(self.models)) < len(self.models) or not self.models:
            raise ValueError(
                f"models must be different presets or variants, at least one; got {', '.join(self.models) or 'none'}."
            )
        for name, variant in self.variants.items():
            if name in PRESETS or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
                raise ValueError(
                    f"variants: a name has letters, digits and . _ + - and is no preset's; got {name!r}. Rename it."
                )
            if not isinstance(variant, dict) or str(variant.get("preset")) not in PRESETS:
                raise ValueError(f"variants.{name} must say its preset, for example {{preset: dstg}}; got {variant!r}.")
        if unknown := sorted(set(self.widths) - set(self.models)):
            raise ValueError(
                f"widths names {unknown[0]!r}, which is not in the study. Its models: {', '.join(self.models)}."
            )
        with prefix_training_keys_in_errors():
            for name in self.models:
                try:
                    self.pretraining(name, seed=0, steps=1).encoder_config()
                except ValueError as error:
                    raise ValueError(self._add_variant_hint(name, str(error))) from None
        return self

    def _add_variant_hint(self, name: str, error: str) -> str:
        """Add a hint to a model's error, how to give `training.model` to one model alone, if any model accepts it."""
        encoder_keys = self.training.get("model")
        fields: dict[str, Any] = encoder_keys if isinstance(encoder_keys, dict) else {}
        for other in self.models if fields else ():
            with suppress(ValueError):
                self.pretraining(other, seed=0, steps=1).encoder_config()
                keys = ", ".join(f"{key}: {value}" for key, value in fields.items())
                variant = f"{other}-2: {{preset: {self.preset(other)}, model: {{{keys}}}}}"
                hint = "training.model is for every model. For one alone name a variant among the models"
                return f"{name}: {error} {hint}: --set 'variants={{{variant}}}'."
        return error

    def differences_message(self) -> str:
        """Return a sentence on what the models differ in beside their schemes; "" if they differ in nothing else."""
        trainings = {name: self.pretraining(name, 0, self.steps or 1) for name in self.models}
        entries = [
            {"name": n, "config": t.encoder_config().to_dict(), "training": t.model_dump(mode="json")}
            for n, t in trainings.items()
        ]
        return unequal(entries)

    def preset(self, model: str) -> str:
        """Return the preset of a model, which may be a variant."""
        return str(self.variants[model]["preset"]) if model in self.variants else model

    def pretraining(self, model: str, seed: int = 0, steps: int = 1) -> PretrainConfig:
        """Return the settings of one training: the study's keys, `training`, and the variant's keys, which override it.

        `widths` overrides both. The defaults serve callers that need neither seed nor steps.

        Raises:
            ValueError: `training` or the variant sets a key of the study, or the training refuses a value.
        """
        shared = {key: getattr(self, key) for key in (*CorpusConfig.model_fields, "scheme", "recipe", "size")}
        training = _override(self.training, {k: v for k, v in self.variants.get(model, {}).items() if k != "preset"})
        clash = sorted(set(training) & {*shared, "preset", "seed", "steps", "tokens", "minutes"})
        if clash:
            where = "training" if clash[0] in self.training else f"variants.{model}"
            advice = CHOSEN_BY_STUDY.get(clash[0], f"Set {clash[0]} itself")
            raise ValueError(f"{where}.{clash[0]} is chosen by the study. {advice}.")
        if model in self.widths and isinstance(training.get("model", {}), dict):
            training = _override(training, {"model": {"intermediate_size": self.widths[model]}})
        return PretrainConfig.parse({**shared, **training, "preset": self.preset(model), "seed": seed, "steps": steps})


@contextmanager
def prefix_training_keys_in_errors() -> Iterator[None]:
    """Write keys in the errors that a training raises as a study takes them: `training.batch_size` for `batch_size`.

    Only a key that stands after `--set` is found.
    """
    try:
        yield
    except ValueError as error:
        full_keys = {key.rpartition(".")[2]: key for key in StudyConfig.keys_below()}
        message = re.sub(r"(--set )(\w+)", lambda m: m[1] + full_keys.get(m[2], m[2]), str(error))
        if message == str(error):  # raised again unchanged: a caller may catch its class, such as `InUse`
            raise
        raise ValueError(message) from None


def _override(values: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Return `values` overridden by `overrides`; where both have a mapping, such as `model`, the two are merged."""
    shared = {key for key in values if isinstance(values[key], dict) and isinstance(overrides.get(key), dict)}
    return {**values, **overrides, **{key: {**values[key], **overrides[key]} for key in shared}}


class GeometryConfig(GeometryKeys, ConfigWithScheme):
    """Settings of a geometry run: corpora, how to count them, and what to measure on them.

    What is measured may change from command to command in one folder.
    """

    CHANGEABLE_KEYS: ClassVar[tuple[str, ...]] = (
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
        "scheme",  # may be added; what a run with a scheme refuses, see `ConfigWithScheme.check_same_scheme`
        "seed",
        "workers",
    )

    @model_validator(mode="after")
    def _check(self) -> "GeometryConfig":
        if len(self.field) not in (1, len(self.corpora)):
            raise ValueError(
                f"{len(self.field)} fields for {len(self.corpora)} corpora. Give one for all, or one for each."
            )
        names = [name for name, _ in map(name_and_corpus, self.corpora) if name]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ValueError(f"Two corpora are named {twice[0]!r}. Give each a name of its own: --corpus NAME=TEXT.")
        if misfits := [d for d in (*self.dims, *self.ranks) if d < 1]:
            raise ValueError(f"dims and ranks count columns, at least 1; got {misfits[0]}. Leave it out, or give more.")
        if self.width % min(64, self.width) or self.width % 2:
            raise ValueError(
                f"width must be a multiple of 64, or even and below 64 (RoPE's head); got {self.width}. For example "
                "768."
            )
        return self

    def sources(self) -> dict[str, Source]:
        """Open the corpora, by name; one that the user did not name gets a number where its name is taken."""
        sources: dict[str, Source] = {}
        given_names = {name for name, _ in map(name_and_corpus, self.corpora)}
        for i, spec in enumerate(self.corpora):
            given_name, corpus = name_and_corpus(spec)
            source = open_source(corpus, self.field[i % len(self.field)], self.document)
            name = given_name or source.name
            number = 2
            while given_name is None and (name in sources or name in given_names):
                name = f"{source.name}-{number}"
                number = number + 1
            sources[name] = source
        return sources
