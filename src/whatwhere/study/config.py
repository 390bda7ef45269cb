"""StudyConfig: the models, corpus and budget of a comparison."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import Field, model_validator

from ..encoder import PRESETS
from ..training.config import SchemeConfig
from ..training.pretrain import CorpusConfig, PretrainConfig, defaults, family

ALL = "all"


class StudyConfig(CorpusConfig, SchemeConfig):
    """A comparison of presets on one corpus, from one recipe, on the same batches."""

    models: list[str] = Field(
        default_factory=lambda: ["dstg", "ap", "rp", "rope"],
        description="presets to compare; `all` stands for those not named before",
    )
    size: str = "tiny"
    recipe: Literal["dstg", "tupe"] = Field(
        "dstg", description="whose training defaults for all models; default: those of the first's family"
    )
    match: Literal["parameters", "operations"] | None = Field(
        None, description="change the feed-forward widths so that every model costs what the first one does"
    )
    variants: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="models of your own by name: {preset: NAME, and PretrainConfig keys}, for `models` to take",
    )
    widths: dict[str, int] = Field(
        default_factory=dict, description="intermediate_size of single models; `match` fills it in"
    )
    seeds: int = Field(1, ge=1, description="training seeds per model; more may be asked of a finished study")
    steps: int | None = Field(None, ge=1, description="optimizer steps per model; default: those of the size's recipe")
    minutes: float | None = Field(
        None, gt=0, description="instead: budget for the whole study, turned into steps once, by timing"
    )
    at_once: int | None = Field(
        None,
        ge=1,
        description="models that are trained and looked into at once; default: one a core, one where trainings are "
        "short",
    )
    training: dict[str, Any] = Field(default_factory=dict, description="PretrainConfig keys for every model")
    probe_documents: int = Field(
        500, ge=10, description="held-out windows that are probed and looked into; 250 at size tiny"
    )
    probe_splits: int = Field(5, ge=2, description="random splits of the probed documents")
    inside: bool = Field(
        True,
        description="look inside: heads, attention, sentences, ablations, controls, the corpus; False: probes only",
    )
    ablation_documents: int = Field(
        32, ge=8, description="held-out windows whose loss is measured under ablations; 16 at size tiny"
    )
    texts: int = Field(
        2, ge=0, description="held-out windows that the attention explorer shows, beside one that repeats itself"
    )

    @classmethod
    def keys_below(cls) -> list[str]:
        return [f"training.{key}" for key in PretrainConfig.model_fields if key not in cls.model_fields]

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        for key in values:
            if key not in cls.model_fields and key in PretrainConfig.model_fields:
                raise ValueError(
                    f"{key} is a key of the trainings: give training.{key}, for example --set training.{key}=..."
                )
        models = values.get("models") or ["dstg"]
        if isinstance(values.get("models"), list) and ALL in models:
            at = models.index(ALL)
            models = [*models[:at], *(name for name in PRESETS if name not in models), *models[at + 1 :]]
            values = {**values, "models": models}
        if not values.get("recipe"):
            variant = (values.get("variants") or {}).get(models[0], {})
            values = {
                **values,
                "recipe": family(str(variant.get("preset", models[0]) if isinstance(variant, dict) else models[0])),
            }
        recipe = defaults(str(values["recipe"]), str(values.get("size", "tiny")))
        own = {key: value for key, value in recipe.items() if key in cls.model_fields}
        if values.get("minutes") is not None or values.get("steps") is not None:
            own.pop("steps", None)
        if (
            values.get("size", "tiny") == "tiny"
        ):  # minutes, not hours: half of the paper's documents leave time to train
            own |= {"probe_documents": 250, "ablation_documents": 16}
        return {**own, **{key: value for key, value in values.items() if value is not None}}

    @model_validator(mode="after")
    def _check(self) -> "StudyConfig":
        if (self.steps is None) == (self.minutes is None):
            raise ValueError(f"Give steps or minutes, one of them; got steps={self.steps}, minutes={self.minutes}.")
        if len(set(self.models)) < len(self.models) or not self.models:
            raise ValueError(f"models must be different presets, at least one; got {', '.join(self.models) or 'none'}.")
        for name, own in self.variants.items():
            if name in PRESETS or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
                raise ValueError(f"variants: a name is of letters, digits and . _ + - and no preset; got {name!r}.")
            if not isinstance(own, dict) or own.get("preset") not in PRESETS:
                raise ValueError(f"variants.{name} must say its preset, for example {{preset: dstg}}; got {own!r}.")
        if strange := sorted(set(self.widths) - set(self.models)):
            raise ValueError(
                f"widths names {strange[0]!r}, which is not in the study. Its models: {', '.join(self.models)}."
            )
        with advice_of_trainings():
            for name in self.models:
                self.pretraining(name, seed=0, steps=1).encoder_config()
        return self

    def preset(self, model: str) -> str:
        """The preset of a model, which may be a variant."""
        return str(self.variants[model]["preset"]) if model in self.variants else model

    def pretraining(self, model: str, seed: int, steps: int) -> PretrainConfig:
        """The configuration of one of the trainings: what the study says, then `training`, then what the variant
        says."""
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
