"""Configuration of an encoder: fields, checked when a configuration is built and trusted by all other modules."""

import math
from collections.abc import Callable, Iterator
from itertools import chain
from types import NoneType
from typing import Any, ClassVar, get_args

from transformers import PretrainedConfig

from .registry import BIASES, PAIR_TERMS, PARTS, ROTATIONS, TABLES, suggest_name
from .scheme_checks import misfits_of_scheme

CHOICES: dict[str, Callable[[], tuple[str, ...]]] = {
    "block": lambda: ("neobert", "bert"),
    "absolute": lambda: ("none", *TABLES),
    "untied": lambda: ("none", "position", "crossed", "free"),
    "reset": lambda: ("none", "sum", "each"),
    "relative": lambda: ("none", *BIASES),
    "relative_special": lambda: ("none", "shared", "each"),
    "pair_terms": lambda: ("none", *PAIR_TERMS),
    "rotation": lambda: ("none", *ROTATIONS),
    "position_draws": lambda: ("none", "shape", "cape"),
    "rotation_scaling": lambda: ("none", "linear", "ntk", "yarn"),
    "stream_qk": lambda: ("separate", "joint"),
    "stream_feed_forward": lambda: ("shared", "separate"),
    "stream_values": lambda: ("per_head", "consecutive"),
    "mlm_head": lambda: ("semantic", "full"),
    "residual": lambda: ("stream", "normalized"),
    "initializer": lambda: ("normal", "uniform"),
}

TABLE_STARTS = ("random", "smooth", "half-turn", "sinusoidal", "zeros")  # any other start is a file or folder

# Keys that transformers itself passes through a configuration and that are no fields of the class.
_HF_KEYS = frozenset(
    "torch_dtype num_labels name_or_path _commit_hash output_attentions attn_implementation experts_implementation "
    "model_type _attn_implementation_internal _experts_implementation_internal auto_map use_cache problem_type".split()
)
_FOREIGN_KEYS = "_foreign_keys"  # argument by which `from_dict` hands over the keys that are no fields
_COUNT_KEYS = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings "
    "table_width table_rank attention_window tisa_kernels".split()
)
_LARGEST_COUNT = 2**31 - 1
_MOST_LAYERS = 10_000
_POSITIVE_KEYS = (
    "initializer_range embedding_initializer_range position_initializer_range norm_eps rope_theta xpos_scale_base"
).split()
_TOKEN_ID_KEYS = "pad_token_id unk_token_id cls_token_id sep_token_id mask_token_id".split()
_WORDS_OF_LISTS = {"alibi_slopes": "a list of numbers", "segment_end_ids": "a list of whole numbers"}
_WORDS_OF_TYPES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def _nearest_multiples(value: int, divisor: int) -> str:
    below = value // divisor * divisor
    return f"{below} or {below + divisor}" if below else f"{divisor}"


class EncoderConfig(PretrainedConfig):
    """Configuration of an `Encoder`: one field for each choice, grouped as below. Equations are in docs/method.md.

    Sizes:
        preset: name of the preset that the fields come from, for messages, tables and cards; no part reads it.
        vocab_size: entries of the vocabulary.
        num_hidden_layers, num_attention_heads: blocks, and heads of each.
        max_position_embeddings: rows of the position table, size of other parts that count positions (untied=free, pair
            terms deberta and cope), a number in fire's formula; without any of them the length of text that the model
            is made for.

    Widths and block:
        hidden_size: width of `last_hidden_state`, both streams together.
        position_size: how much of it, at its beginning, is the position stream; 0: there is one stream.
        intermediate_size: inner width of the feed-forward block; None: 4 × hidden_size (DSTG section 3.2).
        block: "neobert" (pre-RMSNorm, SwiGLU, no biases) or "bert" (post-LayerNorm, GELU, biases).
        residual: what a NeoBERT block adds its two updates to: "stream" to the plain sum of embedding and earlier
            updates (DSTG eq. after 3), "normalized" to this sum after its norm (its authors' code; here every preset in
            NeoBERT's block).
        attention_window: number of tokens on each side that a token looks at; None: all.
        dropout: share of the numbers that a training sets to zero in embeddings, attention weights and both updates of
            a block, and before the last layer of a classifier.
        norm_eps: ε of every RMSNorm and LayerNorm.
        tie_word_embeddings: the vocabulary head shares the matrix of the word embeddings.
        mlm_head: what words are predicted from: "semantic" stream, or "full" hidden state (DSTG B.2).

    Position table, a vector for each position:
        absolute: kind of table. It feeds the position stream, or without one is added to the words, unless `untied`.
        untied: "position" adds the term pU_Q·pU_K (TUPE eq. 7) to the scores, "crossed" all four products of words and
            positions (BERT-A^d, TUPE 4.3); "free" is a parameter (heads, n, n) in place of a table (TUPE section 5).
        absolute_skips_special: pairs with [CLS] or [SEP] have no score of the position stream (DSTG eq. 2).
        reset: [CLS] has scores of its own (TUPE eq. 9): "sum" resets absolute and relative correlation together (the
            paper), "each" both separately (its published code).
        table_width: width of the table if a learned linear map brings it to the model's.
        table_rank: rank of a `low_rank` table.
        table_file: .npy file or model folder of an `mds` table, whose rows are scaled.
        table_start: how a `learned` table begins, and all that a `fixed` one ever is: "random", "smooth", "half-turn",
            "sinusoidal", "zeros", or the rows of a .npy file or a model folder as they are.
        table_scale: factor of a table by a formula or of `mds`, or of the waves of `table_start`; None: the one that
            gives a root mean square of `position_initializer_range`, but 0.1 for a half turn.
        input_kernel: odd number of taps of a depthwise convolution over what enters the first block, added to it
            (`InputConvolution`), which reads neighbours in the row; 0: none.

    Positions drawn at random for each text, in pretraining alone:
        position_draws: "shape" adds a whole number from 0 to `draw_shift` (Kiyono et al. 2021). "cape" makes position p
            (p + Δ + ε)·λ, with Δ in ± `draw_shift` and log λ in ± log `draw_scale` alike for the text, ε in
            ± `draw_local_shift` for each token, all uniform (Likhomanenko et al. 2021). Both need a table by a formula,
            such as sinusoidal and fourier, which has a vector for every real number.

    Segments:
        bilevel: the table has a row for each place inside a segment, places beyond it share the last row, and rotation
            or bias get numbers of segments (He et al. 2024). Segments stand in the order of the row, and no
            `position_ids` are read.
        segment_end_ids: tokens that end a segment; a training fills them in from its tokenizer. None: [SEP] alone.

    Terms of distance:
        relative: bias added to the scores.
        relative_shared: one bias for all layers.
        relative_special: separate values, in every head, for pairs with [CLS] or [SEP], found by their ids.
            "shared" by [CLS] and [SEP]: three, for both special, the query, the key (DSTG eq. 1). "each": four, for
            [CLS] and for [SEP], as query and as key, the key's where both are special (the code of DSTG's authors).
        relative_buckets: buckets of T5, logarithmic up to `relative_max_distance`.
        relative_max_distance: distance from which "clipped", "product" and "shaw" are constant, and "t5" at the latest.
        alibi_slopes: slopes of ALiBi, one a head; None: the standard ones.
        tisa_kernels: kernels of "tisa" in a head; None: 5, as in its paper.
        pair_terms: pair terms, which read words or both positions: "shaw", "deberta", "xl", "cope"
            (encoder/pair_terms.py), "fire", "dape" (encoder/bias_networks.py).

    Rotation of queries and keys:
        rotation: "rope", or "xpos", which also lets pair k of columns fall with distance, from 1 to ζ_k at
            `xpos_scale_base` positions, alike in both directions (`rotations.apply_decay`).
        rope_theta: base of its frequencies.
        rotation_share: share of a head's columns that turn, the first ones, an even number; the others know no position
            (GPT-NeoX's `rotary_pct`).
        rotation_scaling: frequencies for texts `rotation_factor` times as long as in the training: "linear", "ntk",
            "yarn". max_position_embeddings is the new length.

    Two streams:
        stream_qk: "separate" adds a score for each stream (DSTG eq. 2), "joint" multiplies the sum of both queries with
            the sum of both keys (SPLIT).
        stream_feed_forward: "shared" reads both (DSTG eq. 3), "separate" has one for each.
        stream_values: "per_head" cuts each stream's values over the heads, "consecutive" cuts both end to end, so that
            the first heads carry position (SPLIT).

    Initial weights:
        initializer: "normal" with standard deviation r, or "uniform" on [-r, r] (the code of DSTG's authors, r = 0.02).
            It decides matrices, word embeddings and learned tables; other parts draw as their `initialize` says.
        initializer_range: r of matrices.
        embedding_initializer_range: r of word embeddings.
        position_initializer_range: r of the position table; None: as for word embeddings.

    Special tokens, ids in the vocabulary:
        pad_token_id, unk_token_id, mask_token_id: padding, unknown words and [MASK].
        cls_token_id, sep_token_id: [CLS] and [SEP], which `relative_special`, `absolute_skips_special` and `reset`
            treat apart.

    Raises:
        ValueError: an unknown key, a value outside its choices, or parts that do not fit together.
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
    absolute_skips_special: bool = False
    untied: str = "none"
    table_width: int | None = None
    table_rank: int | None = None
    table_file: str | None = None
    table_start: str = "random"
    table_scale: float | None = None
    input_kernel: int = 0
    bilevel: bool = False
    segment_end_ids: list[int] | None = None
    position_draws: str = "none"
    draw_shift: float = 0.0
    draw_local_shift: float = 0.0
    draw_scale: float = 1.0
    relative: str = "none"
    relative_shared: bool = False
    relative_special: str = "none"
    pair_terms: str = "none"
    relative_buckets: int = 32
    relative_max_distance: int = 128
    alibi_slopes: list[float] | None = None
    tisa_kernels: int | None = None
    rotation: str = "none"
    rope_theta: float = 10000.0
    rotation_share: float = 1.0
    xpos_scale_base: float = 512.0
    rotation_scaling: str = "none"
    rotation_factor: float = 1.0
    reset: str = "none"
    attention_window: int | None = None
    stream_qk: str = "separate"
    stream_feed_forward: str = "shared"
    stream_values: str = "per_head"
    mlm_head: str = "semantic"
    residual: str = "stream"
    dropout: float = 0.0
    norm_eps: float = 1e-6
    initializer: str = "normal"
    initializer_range: float = 0.02
    embedding_initializer_range: float = 0.02
    position_initializer_range: float | None = None
    tie_word_embeddings: bool = False
    pad_token_id: int = 0
    unk_token_id: int = 1
    cls_token_id: int = 2
    sep_token_id: int = 3
    mask_token_id: int = 4

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read a configuration from a dict, such as the config.json of a folder; arguments are as in transformers.

        Keys that are no fields are stored, saved again and not used, as in every configuration of transformers: tools
        leave notes there (`quantization_config`). Names of other models' fields (`rope_scaling`) are left out. The
        class itself refuses such keys when a person gives them.
        """
        known = _HF_KEYS | set(cls.__dataclass_fields__)
        fields = {key: value for key, value in config_dict.items() if key in known}
        foreign = {key: value for key, value in config_dict.items() if key not in known}
        return super().from_dict({**fields, _FOREIGN_KEYS: foreign} if foreign else fields, **kwargs)

    def __post_init__(self, **kwargs: Any) -> None:
        foreign = kwargs.pop(_FOREIGN_KEYS, {})
        for key in kwargs:
            if key not in _HF_KEYS:
                hint = suggest_name(key, list(type(self).__dataclass_fields__))
                hint = hint or " Fields: docs/method.md, or help(whatwhere.EncoderConfig)."
                raise ValueError(f"EncoderConfig has no field {key!r}.{hint}")
        notes, read_only = self._divide_foreign_keys(foreign)
        super().__post_init__(**kwargs, **notes)
        vars(self).update(read_only)  # transformers cannot set them; here they are kept and saved again
        self._check_types()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.position_initializer_range is None:
            self.position_initializer_range = self.embedding_initializer_range
        checks = chain(self._misfits_of_values(), self._misfits_of_streams(), misfits_of_scheme(self))
        if misfit := next(checks, None):
            raise ValueError(misfit)

    def _divide_foreign_keys(self, foreign: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Divide the keys of a config.json that are no fields into notes of other tools and read-only properties.

        A property with a setter (`rope_scaling`) names a field of other models, and is left out.
        """
        notes = {}
        read_only = {}
        for key, value in foreign.items():
            attribute = getattr(type(self), key, None)
            if not isinstance(attribute, property):
                notes[key] = value
            elif attribute.fset is None:
                read_only[key] = value
        return notes, read_only

    def _check_types(self) -> None:
        """Refuse a value of another type than its field: YAML and JSON may give a word for a number."""
        for key, annotation in EncoderConfig.__annotations__.items():
            value = getattr(self, key)
            kinds = get_args(annotation) or (annotation,)
            if key == "model_type" or (value is None and NoneType in kinds):
                continue
            if key in _WORDS_OF_LISTS:
                numbers: Any = int | float if key == "alibi_slopes" else int
                is_valid = isinstance(value, list | tuple) and all(
                    isinstance(x, numbers) and not isinstance(x, bool) for x in value
                )
                kinds = (_WORDS_OF_LISTS[key],)
            else:
                is_of_kind = isinstance(value, (*kinds, int) if float in kinds else kinds)
                is_valid = is_of_kind and (bool in kinds or not isinstance(value, bool))
            if not is_valid:
                names = [_WORDS_OF_TYPES.get(kind, str(kind)) for kind in kinds if kind is not NoneType]
                raise ValueError(f"{key} must be {' or '.join(names)}; got {value!r}.")

    def _misfits_of_values(self) -> Iterator[str]:
        """Yield a sentence for each single field whose value is wrong."""
        for key, choices in CHOICES.items():
            if (value := getattr(self, key)) not in choices():
                hint = suggest_name(str(value), choices())
                if key in PARTS:
                    hint += " One of your own needs its file: --scheme FILE, in Python whatwhere.load_scheme(FILE); a "
                    hint += "saved model carries own_scheme.py."
                yield f"{key} must be one of {', '.join(choices())}; got {value!r}.{hint}"
        for key in _COUNT_KEYS:
            if (value := getattr(self, key)) is not None and value < 1:
                yield f"{key} must be at least 1; got {value}."
            if value is not None and value > (limit := _MOST_LAYERS if key == "num_hidden_layers" else _LARGEST_COUNT):
                yield f"{key} must be at most {limit:,}; got {str(value)[:20]}."
        for key in _POSITIVE_KEYS:
            if not 0 < (value := getattr(self, key)) < math.inf:
                yield f"{key} must be above 0 and finite; got {value}."
        if self.rotation_scaling == "yarn" and self.rope_theta <= 1:
            yield f"rotation_scaling=yarn needs rope_theta above 1; got {self.rope_theta}."
        for key in _TOKEN_ID_KEYS:
            if not 0 <= (value := getattr(self, key)) < self.vocab_size:
                yield f"{key}={value} is no entry of a vocabulary of {self.vocab_size} (vocab_size)."
        if not 0 < self.rotation_share <= 1:
            yield f"rotation_share must be above 0 and at most 1; got {self.rotation_share}."
        if not 0.0 <= self.dropout < 1.0:
            yield f"dropout must be in [0, 1); got {self.dropout}."
        if self.relative_buckets < 4 or self.relative_buckets % 4:
            yield f"relative_buckets must be a positive multiple of 4; got {self.relative_buckets}."
        max_distance = self.relative_max_distance
        exact = self.relative_buckets // 4  # distances in each direction with a bucket of their own
        if max_distance < 1:
            yield f"relative_max_distance must be at least 1; got {max_distance}."
        if self.relative == "t5" and max_distance <= exact:
            yield f"relative_max_distance must exceed relative_buckets/4 = {exact}; got {max_distance}."

    def _misfits_of_streams(self) -> Iterator[str]:
        """Yield a sentence for each reason why the widths, or the parts of the streams, do not fit together."""
        width = self.hidden_size
        d_pos = self.position_size
        heads = self.num_attention_heads
        if not 0 <= d_pos < width:
            yield f"position_size must be in [0, hidden_size): position_size={d_pos}, hidden_size={width}."
        for key, value in {"hidden_size": width, "position_size": d_pos}.items():
            if key == "position_size" and self.stream_values == "consecutive":
                continue  # heads cut the concatenation of both streams
            if value % heads:
                widths = f"{key}={value}, num_attention_heads={heads}. Nearest: {_nearest_multiples(value, heads)}."
                yield f"{key} must be a multiple of num_attention_heads: {widths}"
        if d_pos and self.absolute == "none":
            yield f"position_size={d_pos} needs a position table: set absolute to learned."
        if d_pos and self.rotation != "none":
            yield "rotation works on one stream: set position_size=0, or rotation=none."
        if (taps := self.input_kernel) and (taps < 3 or not taps % 2):
            yield f"input_kernel must be 0 or an odd number of taps from 3; got {taps}."
        if d_pos and taps:
            yield f"input_kernel works on one stream: set position_size=0, or input_kernel=0; got {taps}."
        for key in ("stream_qk", "stream_feed_forward", "stream_values", "mlm_head"):
            if not d_pos and (value := getattr(self, key)) != (default := getattr(EncoderConfig, key)):
                yield f"{key}={value} needs a position stream: set position_size, or {key}={default}."
        assert self.intermediate_size is not None
        if (inner := self.intermediate_size) % (divisor := self.intermediate_divisor):
            needed = f"is split over the streams like hidden_size and must be a multiple of {divisor}"
            nearest = _nearest_multiples(inner, divisor)
            yield f"intermediate_size {needed}: intermediate_size={inner}. Nearest: {nearest}."

    @property
    def d_head(self) -> int:
        """Width of a query or key of one stream in one head: hidden_size / num_attention_heads, for both streams."""
        return self.hidden_size // self.num_attention_heads

    @property
    def rotated_width(self) -> int:
        """Columns of a head that a rotation turns: the even number nearest to rotation_share · d_head, at least 2."""
        return 2 * max(1, round(self.rotation_share * self.d_head / 2))

    @property
    def stream_sizes(self) -> tuple[int, ...]:
        """Widths of the streams in their order in the hidden state: (d_pos, d_sem), or (d_model,) for one stream."""
        d_pos = self.position_size
        return (d_pos, self.hidden_size - d_pos) if d_pos else (self.hidden_size,)

    @property
    def semantic_size(self) -> int:
        """Width of the stream that carries meaning: all of hidden_size if there is one stream."""
        return self.hidden_size - self.position_size

    @property
    def position_vector_width(self) -> int:
        """Width of position vectors: the width of the position stream, or hidden_size where there is one stream."""
        return self.position_size or self.hidden_size

    @property
    def intermediate_divisor(self) -> int:
        """Divisor of every valid intermediate_size, so that streams share it as they share hidden_size."""
        return self.hidden_size // math.gcd(self.hidden_size, self.position_size)

    @property
    def score_scale(self) -> float:
        """Factor of the products in the scores: 1/√(terms · d_head).

        Terms are 4 for untied=crossed, 2 for untied=position or free (TUPE), else the `scale_terms` of the pair terms
        (3 for DeBERTa's) or 1.
        """
        terms = {"none": 1, "position": 2, "crossed": 4, "free": 2}[self.untied]
        if self.pair_terms != "none":
            terms = PAIR_TERMS[self.pair_terms].scale_terms
        return (terms * self.d_head) ** -0.5

    @property
    def reads_position_ids(self) -> bool:
        """True where a part reads `position_ids`; a convolution reads the order of the row, and `bilevel` segments."""
        parts = (self.absolute, self.untied, self.relative, self.pair_terms, self.rotation)
        return not self.bilevel and any(part != "none" for part in parts)

    @property
    def position_limit(self) -> int | None:
        """Number of positions that the scheme has a row for, or None where no table numbers the positions."""
        numbers_positions = (self.absolute != "none" and not self.bilevel) or self.untied == "free"
        return self.max_position_embeddings if numbers_positions else None


def last_trained_layer(config: Any, stream: str = "all") -> int:
    """Return the index of the last hidden state in which pretraining trains the given stream.

    It is num_hidden_layers - 1 for the position stream under a semantic head: no gradient reaches the last position
    output (DSTG 3.3), and the last position down-projection stays as drawn, except for weight decay. Else it is
    num_hidden_layers, also for the position stream of a model without a masked-language head, whose later training is
    assumed to use all columns. For a pretrained encoder that was saved without its head and not trained further, that
    is wrong by one.

    Args:
        config: of any encoder.
        stream: "position" for the position stream, any other word for the whole state.
    """
    last = int(config.num_hidden_layers)
    if stream != "position" or not getattr(config, "position_size", 0) or getattr(config, "mlm_head", "") != "semantic":
        return last
    heads = getattr(config, "architectures", None) or ["EncoderForMaskedLM"]
    return last - 1 if "EncoderForMaskedLM" in heads else last
