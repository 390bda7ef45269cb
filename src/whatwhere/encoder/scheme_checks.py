"""Checks of a position scheme: the parts that a configuration names must fit together, and read every key it sets."""

import math
from collections.abc import Iterator
from typing import Any

from .registry import TABLES

TABLES_WITH_A_START = ("learned", "fixed")  # tables that begin as `table_start` says
# Names of this folder's biases and pair terms that read each key of distances, and names of those that read none. A
# user's own part may read any key.
DISTANCE_KEY_READERS = {"relative_buckets": {"t5"}, "relative_max_distance": {"t5", "clipped", "product", "shaw"}}
NO_DISTANCE_KEY_READERS = set("none alibi kerple_log kerple_power tisa sandwich deberta xl cope fire dape".split())


def misfits_of_scheme(config: Any) -> Iterator[str]:
    """Yield a sentence for each reason why the parts of the position scheme do not fit together."""
    yield from _misfits_of_rotation_and_untied(config)
    yield from _misfits_of_biases(config)
    yield from _unread_distance_keys(config)
    yield from _misfits_of_table(config)
    yield from _misfits_of_segments(config)
    yield from _misfits_of_draws(config)
    yield from _misfits_of_table_sizes(config)


def _misfits_of_table_sizes(config: Any) -> Iterator[str]:
    """Yield a sentence for each reason why the rank or width of a position table does not fit the other fields."""
    if config.absolute == "low_rank" and config.table_rank is None:
        yield "absolute=low_rank needs table_rank, the rank of the table; got none."
    if config.absolute != "low_rank" and (rank := config.table_rank) is not None:
        yield f"table_rank belongs to absolute=low_rank; got absolute={config.absolute}, table_rank={rank}."
    smaller_side = min(config.max_position_embeddings, config.table_width or config.position_vector_width)
    if config.table_rank is not None and config.table_rank > smaller_side:
        yield f"table_rank must be at most {smaller_side}, the smaller side of the table; got {config.table_rank}."
    if config.table_width is not None and config.absolute == "none":
        yield f"table_width={config.table_width} needs a position table: set absolute to learned."


def _misfits_of_rotation_and_untied(config: Any) -> Iterator[str]:
    """Yield a sentence for each reason why the rotation or untied positions do not fit the other fields."""
    if config.rotation != "none" and config.d_head % 2:
        heads = config.num_attention_heads
        widths = f"hidden_size={config.hidden_size}, num_attention_heads={heads} give {config.d_head}."
        yield f"rotation needs an even width per head: {widths}"
    if config.untied in ("position", "crossed") and config.absolute == "none":
        yield f"untied={config.untied} needs a position table: set absolute to learned."
    if config.untied == "free" and config.absolute != "none":
        yield f"untied=free takes the place of a table: set absolute=none; got absolute={config.absolute}."
    if config.untied != "none" and config.position_size:
        yield f"untied={config.untied} works on one stream: set position_size=0; got {config.position_size}."
    for key in ("rope_theta", "rotation_share"):
        if config.rotation == "none" and (value := getattr(config, key)) != (default := getattr(type(config), key)):
            yield f"{key}={value} needs a rotation: set rotation=rope, or {key}={default:g}."
    if config.rotation != "xpos" and (value := config.xpos_scale_base) != type(config).xpos_scale_base:
        yield f"xpos_scale_base needs rotation=xpos; got xpos_scale_base={value:g}, rotation={config.rotation}."
    scaling = config.rotation_scaling
    factor = config.rotation_factor
    if scaling != "none" and (config.rotation != "rope" or config.rotated_width < 4):
        yield f"rotation_scaling={scaling} is for rotation=rope of at least 4 columns a head: set it to none."
    if not (1 < factor < math.inf if scaling != "none" else factor == 1):
        yield f"rotation_factor is above 1 with a rotation_scaling, and 1 without; got {factor} with {scaling}."


def _misfits_of_biases(config: Any) -> Iterator[str]:
    """Yield a sentence for each reason why biases, pair terms, resets or the residual do not fit the other fields."""
    relative = config.relative
    parts = {"relative_special": config.relative_special != "none", "relative_shared": config.relative_shared}
    for key, used in parts.items():
        if relative == "none" and used:
            yield f"{key} needs a relative bias: set relative to t5."
    if (terms := config.pair_terms) != "none":
        excluded = {"relative": relative, "rotation": config.rotation, "untied": config.untied, "reset": config.reset}
        for key, value in excluded.items():
            if value != "none":
                yield f"pair_terms={terms} is the whole relative scheme: set {key}=none; got {value}."
        if config.stream_qk == "joint" or (config.absolute != "none" and not config.position_size):
            yield (
                f"pair_terms={terms} needs a score of the words alone: set absolute=none, or position_size "
                "and stream_qk=separate."
            )
    if config.absolute_skips_special and (not config.position_size or config.stream_qk == "joint"):
        yield (
            "absolute_skips_special needs a score of the position stream alone: set position_size, and "
            "stream_qk=separate."
        )
    if config.residual == "normalized" and config.block == "bert":
        yield "residual=normalized is for block=neobert; BERT's block normalises the sum. Set residual=stream."
    if config.reset != "none" and config.untied not in ("position", "free") and relative == "none":
        yield f"reset={config.reset} needs a positional correlation: set untied=position, or a relative bias."
    if config.reset != "none" and config.untied == "crossed":
        yield "reset is defined for position-only correlations; untied=crossed mixes words in. Set reset=none."
    if config.reset != "none" and config.relative_special != "none":
        yield "reset and relative_special both say what special tokens get. Choose one of them."
    if (slopes := config.alibi_slopes) is not None:
        if relative != "alibi":
            yield f"alibi_slopes needs relative=alibi; got relative={relative}."
        if len(slopes) != (heads := config.num_attention_heads) or not all(0 < slope < math.inf for slope in slopes):
            yield f"alibi_slopes must be {heads} positive numbers, one for each head; got {slopes}."
    if config.tisa_kernels is not None and relative != "tisa":
        yield f"tisa_kernels needs relative=tisa; got relative={relative}."


def _unread_distance_keys(config: Any) -> Iterator[str]:
    """Yield a sentence for each changed key of distances that neither the bias nor the pair terms read."""
    parts = {config.relative, config.pair_terms}
    non_readers = {
        key: NO_DISTANCE_KEY_READERS.union(*DISTANCE_KEY_READERS.values()) - readers
        for key, readers in DISTANCE_KEY_READERS.items()
    }
    for key, names in non_readers.items():
        if parts <= names and (value := getattr(config, key)) != (default := getattr(type(config), key)):
            readers = ", ".join(sorted(DISTANCE_KEY_READERS[key]))
            yield (
                f"{key}={value} is read by {readers} alone; got relative={config.relative}, "
                f"pair_terms={config.pair_terms}. Choose one of these, or set {key}={default}."
            )


def _misfits_of_table(config: Any) -> Iterator[str]:
    """Yield a sentence for each reason why a position table cannot start as the fields say."""
    absolute = config.absolute
    if absolute == "mds" and config.table_file is None:
        yield "absolute=mds needs table_file, a .npy file of shape (positions, width); got none."
    if absolute != "mds" and config.table_file is not None:
        yield f"table_file is for absolute=mds; got absolute={absolute}. A learned table starts from table_start."
    if absolute not in TABLES_WITH_A_START and (start := config.table_start) != "random":
        yield f"table_start={start} needs a learned or fixed table, and this scheme has none: absolute={absolute}."
    if absolute == "fixed" and config.table_start == "zeros":
        yield "absolute=fixed with table_start=zeros tells no positions apart. Set absolute=none, or another start."
    if config.table_start == "half-turn" and (config.table_width or config.position_vector_width) < 2:
        yield "table_start=half-turn fills two columns, and the table has one. Set position_size or table_width."
    if config.table_scale is not None:
        starts_as_waves = config.table_start in ("sinusoidal", "smooth", "half-turn")
        if absolute not in ("sinusoidal", "fourier", "mds") and not starts_as_waves:
            kinds = "absolute=sinusoidal, fourier or mds, or table_start=sinusoidal, smooth or half-turn"
            yield f"table_scale needs {kinds}; got absolute={absolute}, table_start={config.table_start}."
        if not 0 < config.table_scale < math.inf:
            yield f"table_scale must be a positive number; got {config.table_scale}."


def _misfits_of_segments(config: Any) -> Iterator[str]:
    """Yield a sentence for each reason why segments cannot be read as the fields say."""
    ends = config.segment_end_ids
    if not config.bilevel:
        if ends is not None:
            yield f"segment_end_ids has no use with bilevel=False; got {ends}. Set bilevel=True."
        return
    if ends is not None and (not ends or not all(0 <= token < config.vocab_size for token in ends)):
        yield f"segment_end_ids must be entries of a vocabulary of {config.vocab_size}, at least one; got {ends}."
    if config.absolute == "none" or (config.rotation == "none" and config.relative == "none"):
        yield (
            "bilevel needs a table for places in a segment and a rotation or bias for numbers of segments: set "
            f"absolute=learned and rotation=rope; got absolute={config.absolute}, rotation={config.rotation}."
        )
    for key in ("untied", "pair_terms", "position_draws"):
        if (value := getattr(config, key)) != "none":
            yield f"bilevel has places in segments and their numbers alone: set {key}=none; got {value}."


def _misfits_of_draws(config: Any) -> Iterator[str]:
    """Yield a sentence for each reason why positions cannot be drawn as the fields say."""
    kind = config.position_draws
    shift = config.draw_shift
    unused = {"none": ("draw_shift", "draw_local_shift", "draw_scale"), "shape": ("draw_local_shift", "draw_scale")}
    for key in unused.get(kind, ()):
        if (value := getattr(config, key)) != (default := getattr(type(config), key)):
            hint = f"set position_draws=cape, or {key}={default:g}"
            yield f"{key}={value:g} has no use with position_draws={kind}: {hint}."
    if kind == "none":
        return
    parts = {key: getattr(config, key) for key in ("relative", "pair_terms", "rotation", "untied")}
    if keys := [key for key, value in parts.items() if value != "none"]:
        used = [f"{key}={parts[key]}" for key in keys]
        hint = f"Set {', '.join(keys)} to none."
        yield f"position_draws={kind} needs positions in the table alone; got {', '.join(used)}. {hint}"
    if not hasattr(TABLES.get(config.absolute), "at"):
        yield (
            f"position_draws={kind} needs a table by a formula: set absolute=sinusoidal or fourier; got "
            f"absolute={config.absolute}."
        )
    if kind == "shape" and not (1 <= shift < math.inf and shift == int(shift)):
        yield f"position_draws=shape needs draw_shift, a whole number of positions of at least 1; got {shift:g}."
    if not (0 <= shift < math.inf and 0 <= config.draw_local_shift < math.inf and 1 <= config.draw_scale < math.inf):
        yield (
            "draw_shift and draw_local_shift must be at least 0, and draw_scale at least 1; got "
            f"{shift:g}, {config.draw_local_shift:g}, {config.draw_scale:g}."
        )
