"""StudyConfig: the models, corpus and budget of a comparison."""

from typing import Any

from pydantic import Field, model_validator

from ..training.pretrain import RECIPES, CorpusConfig, PretrainConfig


class StudyConfig(CorpusConfig):
    """A comparison of presets on one corpus, from one recipe, on the same batches."""

    models: list[str] = Field(default_factory=lambda: ["dstg", "ap", "rp", "rope"], description="presets to compare")
    size: str = "tiny"
    seeds: int = Field(1, ge=1, description="training seeds per model")
    minutes: float | None = Field(10.0, gt=0, description="budget for the whole study; turned into steps once, by timing")
    steps: int | None = Field(None, ge=1, description="optimizer steps per model, instead of minutes")
    training: dict[str, Any] = Field(default_factory=dict, description="PretrainConfig keys for every model")
    probe_documents: int = Field(500, ge=10, description="held-out windows of full length that are probed")
    probe_splits: int = Field(5, ge=2, description="random splits of the probed documents")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        for key in values:
            if key not in cls.model_fields and key in PretrainConfig.model_fields:
                raise ValueError(f"{key} is a key of the trainings: give training.{key}, for example --set training.{key}=...")
        recipe = RECIPES.get(values.get("size", "tiny"), {})
        own = {key: value for key, value in recipe.items() if key in cls.model_fields}
        filled = {**own, **{key: value for key, value in values.items() if value is not None or key == "minutes"}}
        if filled.get("steps") is not None and "minutes" not in values:
            filled["minutes"] = None
        return filled

    @model_validator(mode="after")
    def _check(self) -> "StudyConfig":
        if (self.steps is None) == (self.minutes is None):
            raise ValueError(f"Give steps or minutes, one of them; got steps={self.steps}, minutes={self.minutes}.")
        if len(set(self.models)) < len(self.models) or not self.models:
            raise ValueError(f"models must be different presets, at least one; got {', '.join(self.models) or 'none'}.")
        for name in self.models:
            self.pretraining(name, seed=0, steps=1).encoder_config()
        return self

    def pretraining(self, model: str, seed: int, steps: int) -> PretrainConfig:
        """The configuration of one of the trainings."""
        shared = {key: getattr(self, key) for key in CorpusConfig.model_fields}
        clash = sorted(set(self.training) & {*shared, "preset", "size", "seed", "steps", "tokens", "minutes"})
        if clash:
            raise ValueError(f"training.{clash[0]} is the study's own key: set {clash[0]} instead.")
        return PretrainConfig.parse({**shared, **self.training, "preset": model, "size": self.size, "seed": seed, "steps": steps})
