"""EncoderConfig: what an encoder is made of, checked once when it is built; the code below trusts it."""

import difflib
import math
from typing import Any, ClassVar

from transformers import PretrainedConfig

CHOICES: dict[str, tuple[str, ...]] = {
    "block": ("neobert",),
    "absolute": ("none", "learned"),
    "relative": ("none", "t5"),
    "mlm_head": ("semantic", "full"),
    "residual": ("stream", "normalized"),
}

# Keys that transformers itself passes through a configuration and that are no fields of the class.
_HF_KEYS = frozenset(
    "torch_dtype num_labels name_or_path _commit_hash output_attentions attn_implementation experts_implementation model_type "
    "_attn_implementation_internal _experts_implementation_internal auto_map use_cache problem_type".split()
)


def nearest(name: str, names: tuple[str, ...] | list[str]) -> str:
    """' Did you mean X or Y?' for a misspelt name, or '' if nothing is close."""
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def _multiples(value: int, of: int) -> str:
    below = value // of * of
    return f"{below} or {below + of}" if below else f"{of}"


class EncoderConfig(PretrainedConfig):
    """Configuration of an `Encoder`.

    Widths: `hidden_size` is the width of `last_hidden_state`, position stream first; `position_size` of it belong to the
    position stream (0: one stream). `intermediate_size` None means 4 × hidden_size (DSTG section 3.2).
    Scheme: `absolute` names the position table ("learned"), which is the position stream's input if there is one and is
    added to the word embedding otherwise; `relative` names the additive bias ("t5": `relative_buckets` buckets, logarithmic
    up to `relative_max_distance`), `relative_special` gives pairs with a special token three values of their own (DSTG eq. 1);
    `rotary` rotates queries and keys with base `rope_theta`.
    `mlm_head`: "semantic" predicts from the semantic stream, "full" from all of hidden (DSTG B.2).
    `residual`: "stream" adds to the un-normalised stream (DSTG eq. after 3), "normalized" to the normalised one.
    Initial standard deviations: `initializer_range` of matrices, `embedding_initializer_range` of word embeddings,
    `position_initializer_range` of the position table (None: as the word embeddings).
    Special tokens S = {cls, sep} are found by id.

    Raises:
        ValueError: an unknown key, a value outside its choices, or widths that heads do not divide.
    """

    model_type: ClassVar[str] = "whatwhere"

    preset: str = ""
    vocab_size: int = 30522
    hidden_size: int = 768
    position_size: int = 0
    num_hidden_layers: int = 6
    num_attention_heads: int = 6
    intermediate_size: int | None = None
    max_position_embeddings: int = 512
    block: str = "neobert"
    absolute: str = "none"
    relative: str = "none"
    relative_special: bool = False
    relative_buckets: int = 32
    relative_max_distance: int = 128
    rotary: bool = False
    rope_theta: float = 10000.0
    mlm_head: str = "semantic"
    residual: str = "stream"
    dropout: float = 0.0
    norm_eps: float = 1e-6
    initializer_range: float = 0.02
    embedding_initializer_range: float = 0.02
    position_initializer_range: float | None = None
    tie_word_embeddings: bool = False
    pad_token_id: int = 0
    unk_token_id: int = 1
    cls_token_id: int = 2
    sep_token_id: int = 3
    mask_token_id: int = 4

    def __post_init__(self, **kwargs: Any) -> None:
        fields = list(type(self).__dataclass_fields__)
        for key in kwargs:
            if key not in _HF_KEYS:
                raise ValueError(f"EncoderConfig has no field {key!r}.{nearest(key, fields) or ' Fields: whatwhere presets --help.'}")
        super().__post_init__(**kwargs)
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.position_initializer_range is None:
            self.position_initializer_range = self.embedding_initializer_range
        self._check()

    def _check(self) -> None:
        for key, choices in CHOICES.items():
            if (value := getattr(self, key)) not in choices:
                raise ValueError(f"{key} must be one of {', '.join(choices)}; got {value!r}.{nearest(str(value), choices)}")
        for key in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        ):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1; got {getattr(self, key)}.")
        if not 0 <= self.position_size < self.hidden_size:
            raise ValueError(
                f"position_size must be in [0, hidden_size): position_size={self.position_size}, hidden_size={self.hidden_size}."
            )
        for key in ("initializer_range", "embedding_initializer_range", "position_initializer_range"):
            if not getattr(self, key) > 0:
                raise ValueError(f"{key} is a standard deviation and must be above 0; got {getattr(self, key)}.")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1); got {self.dropout}.")
        heads = self.num_attention_heads
        for key in ("hidden_size", "position_size"):
            if (value := getattr(self, key)) % heads:
                raise ValueError(
                    f"{key} must be a multiple of num_attention_heads: {key}={value}, num_attention_heads={heads}. "
                    f"Nearest: {_multiples(value, heads)}."
                )
        if self.position_size and self.absolute == "none":
            raise ValueError(f"position_size={self.position_size} needs a position table: set absolute to learned.")
        if self.position_size and self.rotary:
            raise ValueError("rotary works on one stream: set position_size=0, or rotary=False.")
        if self.rotary and self.d_head % 2:
            raise ValueError(
                f"rotary needs an even width per head: hidden_size={self.hidden_size}, num_attention_heads={heads} give {self.d_head}."
            )
        if self.relative_buckets < 4 or self.relative_buckets % 4:
            raise ValueError(f"relative_buckets must be a positive multiple of 4; got {self.relative_buckets}.")
        if self.relative_max_distance <= self.relative_buckets // 4:
            raise ValueError(
                f"relative_max_distance must exceed relative_buckets/4 = {self.relative_buckets // 4}; got {self.relative_max_distance}."
            )
        if self.relative_special and self.relative == "none":
            raise ValueError("relative_special needs a relative bias: set relative to t5.")
        assert self.intermediate_size is not None
        if self.intermediate_size * self.position_size % self.hidden_size:
            step = self.hidden_size // math.gcd(self.hidden_size, self.position_size)
            raise ValueError(
                f"intermediate_size is split over the streams like hidden_size and must be a multiple of {step}: "
                f"intermediate_size={self.intermediate_size}. Nearest: {_multiples(self.intermediate_size, step)}."
            )

    @property
    def d_head(self) -> int:
        """Width of a query or key of one stream in one head: hidden_size / num_attention_heads for both streams."""
        return self.hidden_size // self.num_attention_heads

    @property
    def stream_sizes(self) -> tuple[int, ...]:
        """Widths of the streams in their order in the hidden state: (d_pos, d_sem), or (d_model,) for one stream."""
        d_pos = self.position_size
        return (d_pos, self.hidden_size - d_pos) if d_pos else (self.hidden_size,)

    @property
    def semantic_size(self) -> int:
        """Width of the stream that carries meaning: all of hidden_size if there is one stream."""
        return self.hidden_size - self.position_size
