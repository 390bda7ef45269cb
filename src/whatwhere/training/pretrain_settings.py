"""Settings of a pretraining, and the masked batches that they ask for."""

import math
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import model_validator

from ..corpus import MaskedBatches, Windows
from ..corpus.batches import PositionDraws, in_pieces
from ..corpus.tokenizer import segment_end_ids
from ..encoder import EncoderConfig, preset
from ..encoder.attention import check_backend
from ..models.explain import try_scheme
from ..models.lengths import settings_of_training
from ..models.model_tables import check_table_files
from ..models.tensors import default_device
from .corpus_settings import CorpusConfig
from .distance_entropy import check_entropy_weight
from .environment import check_launcher, check_trackers, process_group_state
from .recipes import defaults_of, recipe_of
from .scheme_settings import ConfigWithScheme
from .setup import MicroBatch, MicroBatchFunction, rows_of_micro_batch
from .training_keys import BUDGET_KEYS, PretrainKeys


class PretrainConfig(PretrainKeys, CorpusConfig, ConfigWithScheme):
    """Settings of a pretraining.

    Keys that a size or a recipe sets (SIZE_DEFAULTS, RECIPE_DEFAULTS) may be given, too.
    """

    RESUME_ARGUMENTS: ClassVar[str] = "--out {out}"
    CHANGEABLE_KEYS: ClassVar[tuple[str, ...]] = ("workers", "sharding")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = {**values, "recipe": values.get("recipe") or recipe_of(str(values.get("preset", "dstg")))}
        defaults = defaults_of(str(values["recipe"]), str(values.get("size") or "tiny"))
        # None is "not given"; for these keys it is a value, which switches the recipe's tokenizer or matrix_steps off.
        can_be_none = ("tokenizer", "matrix_steps")
        values_given = {key: value for key, value in values.items() if value is not None or key in can_be_none}
        if any(key in values_given for key in BUDGET_KEYS):
            defaults.pop("steps", None)
        return {**defaults, **values_given}

    @model_validator(mode="after")
    def _check(self) -> "PretrainConfig":
        if all(getattr(self, key) is None for key in BUDGET_KEYS):
            preset(self.preset, self.size)  # names an unknown size, for which no recipe has steps
            raise ValueError(f"Give one budget of {', '.join(BUDGET_KEYS)}; got none.")
        if self.first_length is not None and self.first_length >= self.length:
            raise ValueError(f"first_length must be below length={self.length}; got {self.first_length}.")
        return self

    def given_keys(self) -> set[str]:
        """Return the keys that the user gave, but for those that equal a value of the recipe.

        `_fill` writes the recipe's values into the keys that the user left out, so that pydantic counts them as given.
        """
        defaults = defaults_of(self.recipe, self.size) | {"recipe": recipe_of(self.preset)}
        return {key for key in super().given_keys() if key not in defaults or defaults[key] != getattr(self, key)}

    def in_steps(self) -> Self:
        """Return the settings with a budget of tokens turned into steps."""
        if self.tokens is None:
            return self
        steps = math.ceil(self.tokens / (self.batch_size * self.length))
        return self.model_copy(update={"steps": steps, "tokens": None})

    def encoder_config(self, windows: Windows | None = None) -> EncoderConfig:
        """Return the model's configuration.

        Vocabulary, special tokens and ends of segments come from `windows`, if given.

        Raises:
            ValueError: no such preset, size or field, a tokenizer larger than the vocabulary, or windows longer than
                the position table.
        """
        fields = dict(self.model)
        if "preset" in fields:
            raise ValueError(
                f"model.preset cannot be set: choose the preset itself, for example --preset {fields['preset']}."
            )
        if windows is not None:
            entries = windows.facts["vocab_size"]
            fields = {"vocab_size": entries, **windows.facts["special_token_ids"], **fields}
            if fields["vocab_size"] < entries:
                raise ValueError(
                    f"model.vocab_size={fields['vocab_size']}, but the tokenizer has {entries} entries. "
                    "Leave model.vocab_size out, or use the tokenizer of that model."
                )
        config = preset(self.preset, self.size, **fields)
        if windows is not None and config.bilevel and config.segment_end_ids is None:
            fields["segment_end_ids"] = segment_end_ids(windows.tokenizer())
            config = preset(self.preset, self.size, **fields)
        positions = config.max_position_embeddings
        if self.length > positions and config.position_limit is None and "max_position_embeddings" not in self.model:
            config = preset(self.preset, self.size, **{**fields, "max_position_embeddings": self.length})
        elif self.length > positions and not config.bilevel:  # bilevel: places beyond the table share its last row
            has = "has" if config.position_limit is None else "has a position table of"
            raise ValueError(
                f"length={self.length} tokens, but {self.preset} {has} {positions} positions. "
                f"Use --length {positions}, or --set model.max_position_embeddings={self.length}."
            )
        if self.subset and self.join == "run-on" and (rows := config.max_position_embeddings) <= self.length:
            raise ValueError(
                f"subset draws positions from more than length={self.length}, but there are {rows}: none is random. "
                f"Use --set model.max_position_embeddings={8 * self.length}, or leave subset out."
            )
        return config

    def check(self) -> None:
        """Refuse settings that cannot work, before any text is read.

        Raises:
            ValueError: names the setting that cannot work (encoder, a file that the encoder starts from, tracker,
                launcher, parts of a batch, attention backend, a step of an own scheme), and why.
        """
        config = self.encoder_config()
        check_trackers(self.trackers)
        check_launcher()
        rows_of_micro_batch(self, process_group_state().num_processes)
        check_table_files(config)
        check_entropy_weight(self.entropy_weight, config, self.length, self.sharding)
        device = default_device()
        check_backend(self.backend, device, needs_gradient=True, dropout=config.dropout)
        try_scheme(config, self.length)


def make_batches(config: PretrainConfig, windows: Windows, split: str, model_config: EncoderConfig) -> MaskedBatches:
    """Return the masked batches of a split ("train", "held_out"); only training batches shift or draw positions."""
    is_training = split == "train"
    draws = None
    if is_training and (kind := model_config.position_draws) != "none":
        draws = PositionDraws(kind, model_config.draw_shift, model_config.draw_local_shift, model_config.draw_scale)
    rows = model_config.max_position_embeddings
    return MaskedBatches(
        windows[split],
        seed=config.seed,
        mask_rate=config.mask_rate,
        masking=config.masking,
        max_positions=max(rows, config.length) if model_config.bilevel else rows,
        shift=config.shift and is_training and model_config.position_limit is not None,
        subset=config.subset and is_training,
        draws=draws,
    )


def make_curriculum(config: PretrainConfig, batches: MaskedBatches, steps: int) -> MicroBatchFunction:
    """Return the function that makes micro-batches, with windows cut into pieces as `first_length` asks.

    All `steps` are divided into equal stages; each stage doubles the length of the pieces, the last has whole windows.
    """
    if config.first_length is None:
        return batches.micro_batch
    lengths = [config.first_length]
    while 2 * lengths[-1] < config.length:
        lengths.append(2 * lengths[-1])

    def cut_batch(micro_step: int, rows: int, rank: int, world: int) -> MicroBatch:
        batch = batches.micro_batch(micro_step, rows, rank, world)
        stage = micro_step // config.accumulate * (len(lengths) + 1) // steps
        return batch if stage == len(lengths) else in_pieces(batch, lengths[stage], batches.windows.special_ids)

    return cut_batch


def mask_rate_of(folder: Path, preset_name: str | None) -> float:
    """Return the share of the tokens that the training of a model predicted.

    It comes from the settings in the model's folder; without them it is the default of the preset's recipe.

    Raises:
        ValueError: the file of the settings is damaged.
    """
    name = preset_name or "dstg"
    default = PretrainKeys.model_fields["mask_rate"].default
    settings = {"mask_rate": default, **defaults_of(recipe_of(name), "tiny"), **settings_of_training(folder)}
    share = settings["mask_rate"]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        problem = f"mask_rate must lie between 0 and 1; got {str(share)[:60]!r}"
        raise ValueError(f"The settings of the training in {folder} are damaged: {problem}. Use a complete copy.")
    return float(share)
