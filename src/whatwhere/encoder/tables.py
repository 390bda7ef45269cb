"""Position tables (n, d), a row a position: added to the words, fed to the position stream, or untied (TUPE)."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import initialization as init

from .config import STARTS, EncoderConfig
from .registry import TABLES, register_table

# Model types whose first rows belong to no position: RoBERTa's count from the padding id + 1, BART's from 2.
_FROM_PADDING = (
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"),
    *("camembert", "longformer", "data2vec-text", "mpnet"),
)
_FROM_TWO = ("bart", "mbart", "opt")
WITHOUT_CLS = ("gpt2", "opt", "gpt_neo", "gpt_bigcode", "gptj", "openai-gpt", "vit_mae")  # read text from row 0 on

# Tables in the weights of transformers' models and of ours (ViT's and BEiT's positions are no embedding layer).
_POSITIONS = ("position_embeddings.weight", "position_embeddings", "wpe.weight", "embed_positions.weight")
_WORDS = ("word_embeddings.weight", "wte.weight", "embed_tokens.weight", "tok_embeddings.weight")
_OWN = "position_embeddings."  # the module of all our tables


def sinusoid(rows: int, width: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Vaswani et al. 2017: columns 2k and 2k + 1 are sin and cos of i / 10000^(2k/width); (rows, width)."""
    angles = torch.arange(rows, device=device, dtype=dtype)[:, None] * frequencies(width, dtype, device)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def frequencies(width: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """10000^(-2k/width) for k < width/2, rounded up: radians per position."""
    k = torch.arange((width + 1) // 2, device=device, dtype=dtype)
    return torch.exp(-2 * k / width * math.log(10000.0))


def half_turn(rows: int, width: int) -> Tensor:
    """Half a turn of a wave over all positions, in two columns: (rows, width) in float64, zero in the other columns.

    Columns 0 and 1 of row i are cos(π·i/rows) and sin(π·i/rows): `2dim_cosine` of the earlier code of DSTG's authors
    (LequeuISIR/PosNeoBERT), which multiplies both by 0.1.
    """
    angles = torch.arange(rows, dtype=torch.float64) * (math.pi / rows)
    table = torch.zeros(rows, width, dtype=torch.float64)
    table[:, 0] = angles.cos()
    table[:, 1] = angles.sin()
    return table


def draw(weight: Tensor, spread: float, config: EncoderConfig) -> None:
    """Initial values as `config.initializer` says: normal of this deviation, or uniform on [-spread, spread]."""
    if config.initializer == "uniform":
        init.uniform_(weight, -spread, spread)
    else:
        init.normal_(weight, std=spread)


def read_table(source: str | Path, words: bool = False) -> Tensor:
    """A position table (rows, width) in float64 of a .npy file or a model folder's weights; row i is position i.

    Of a model folder one tensor is read by its name, from safetensors alone, and no model is built: BERT, ALBERT,
    RoBERTa, ELECTRA, GPT-2, ViT and what names its table as they do; of a model of ours, the table as the model uses
    it, whatever its kind.

    Args:
        words: the table of words instead, row i token id i, all rows; a .npy file has none.

    Raises:
        ValueError: no such file or table, weights in pickle files alone, not two dimensions, or NaN or infinity.
    """
    path = Path(source)
    if path.is_dir():
        table = _table_of_model(path, words)
    elif words:
        way_out = "Give the folder of a model, or the words as a source of their own."
        raise ValueError(f"{path} is one table and has no words beside it. {way_out}")
    elif path.suffix == ".npy" and path.is_file():
        try:
            with np.errstate(over="raise"):
                held = np.load(path, mmap_mode="r", allow_pickle=False)
            table = torch.from_numpy(held.astype(np.float64, casting="same_kind"))
        except Exception:  # numpy raises many, and its own words recommend to unpickle the file
            raise ValueError(f"{path} holds no table of numbers. Write one with numpy.save.") from None
    else:
        way_out = "Give a .npy file of shape (positions, width), or the folder of a model."
        raise ValueError(f"No position table at {path}. {way_out}")
    if table.ndim != 2 or not table.numel():
        raise ValueError(f"A position table has shape (positions, width); {path} has {tuple(table.shape)}.")
    if not bool(table.isfinite().all()):
        bad = int((~table.isfinite()).any(1).nonzero()[0])
        raise ValueError(f"{path} holds NaN or infinity, first in row {bad}. Leave such positions out, or fill them.")
    return table


def _table_of_model(folder: Path, words: bool) -> Tensor:
    about = folder / "config.json"
    try:
        config = json.loads(about.read_text(encoding="utf-8")) if about.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{about} is not complete JSON ({error}). Use a complete copy of the model.") from None
    if not isinstance(config, dict):
        raise ValueError(
            f"{about} holds a {type(config).__name__}, no configuration. Use a complete copy of the model."
        )
    kind = config.get("model_type")
    tensors = named_tensors(folder)
    if kind == EncoderConfig.model_type and not words:
        return _own_table(folder, tensors)
    what, names = ("word", _WORDS) if words else ("position", _POSITIONS)
    key = _called(tensors, names)
    if key is None:
        whose = f"model type {kind!r} keeps none" if kind else "no config.json says what model it is"
        way_out = "Leave --words out." if words else "Give a model with absolute positions, or a .npy file."
        raise ValueError(f"No {what} table in {folder}: {whose} under the names {', '.join(names)}. {way_out}")
    table = _tensor(tensors[key], key).double()
    if words:
        return table
    table = table[0] if table.ndim == 3 and table.shape[0] == 1 else table  # ViT's has a batch dimension
    return table[rows_of_no_position(config) :]


def has_table(folder: Path) -> bool:
    """Whether a model's folder, ours or of transformers, has a position table that `read_table` reads."""
    about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if about.get("model_type") == EncoderConfig.model_type:
        return own_config(folder).absolute != "none"
    return _called(named_tensors(folder), _POSITIONS) is not None


def rows_of_no_position(config: dict[str, Any]) -> int:
    """How many first rows of the table of a model of transformers belong to no position, by its config.json."""
    kind, pad = config.get("model_type"), config.get("pad_token_id")
    if kind in _FROM_PADDING and pad is not None and (not isinstance(pad, int) or pad < 0):
        raise ValueError(f"pad_token_id of a model of type {kind} is {str(pad)[:40]!r}, no row. Use a complete copy.")
    return (1 if pad is None else pad) + 1 if kind in _FROM_PADDING else 2 if kind in _FROM_TWO else 0


def table_key(tensors: Iterable[str], ours: bool) -> str | None:
    """The name of the tensor with a row a position among those of a model; None where there is none."""
    return _called(tensors, tuple(f"{_OWN}table.{name}" for name in ("weight", "A")) if ours else _POSITIONS)


def _called(tensors: Iterable[str], names: tuple[str, ...]) -> str | None:
    return next((k for k in tensors if f".{k}".endswith(tuple(f".{name}" for name in names))), None)


def named_tensors(folder: Path) -> dict[str, Path]:
    """Name of every tensor in a folder -> its file."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as weights:
                found |= dict.fromkeys(weights.keys(), path)
        except SafetensorError as error:
            raise ValueError(f"{path} does not open ({error}). Use a complete copy of the model.") from None
    if not found:
        pickles = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for p in folder.glob(pattern))
        if not pickles:
            way_out = "Give the folder of a finished model, or a .npy file."
            raise ValueError(f"No weights in {folder}: no .safetensors file. {way_out}")
        raise ValueError(
            f"{folder} has its weights as pickle alone ({pickles[0]}), which runs code when opened and is never read "
            "here. Convert it where you trust it: model.save_pretrained writes safetensors."
        )
    return found


def own_config(folder: Path) -> EncoderConfig:
    """The configuration of a model of ours.

    Raises:
        ValueError: it is damaged, names an unknown scheme, or sizes that its weights cannot have.
    """
    try:
        config = EncoderConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, OSError, TypeError, AttributeError, LookupError, RecursionError, StrictDataclassError) as error:
        raise ValueError(f"{folder}/config.json: {' '.join(str(error).split())[:600]}") from None
    check_sizes(folder, config)
    return config


def most_tokens(config: Any) -> int | None:
    """The most tokens that a model of this configuration, ours or of transformers, reads; None: nothing bounds them."""
    kind, most = str(getattr(config, "model_type", "")), getattr(config, "max_position_embeddings", None)
    if kind == EncoderConfig.model_type:
        return config.longest  # type: ignore[no-any-return]
    if not isinstance(most, int) or most < 1:
        return None
    return most - 2 if "roberta" in kind or kind in ("camembert", "mpnet") else most  # counted from the padding id


def check_sizes(folder: Path, config: Any) -> None:
    """Refuse a configuration of more layers or rows than the weights beside it can have, before memory is taken.

    Raises:
        ValueError: the first such size.
    """
    if not (paths := list(folder.glob("*.safetensors"))):
        return
    tensors, size = len(named_tensors(folder)), sum(path.stat().st_size for path in paths)
    shared = hasattr(config, "num_hidden_groups")  # ALBERT's layers are one
    sizes = {} if shared else {"num_hidden_layers": (tensors, "tensors")}
    sizes |= dict.fromkeys(
        ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings"), (size, "bytes")
    )
    for key, (most, of) in sizes.items():
        if isinstance(value := getattr(config, key, None), int) and value > most:
            raise ValueError(
                f"{folder}/config.json has {key}={str(value)[:20]}, and the weights beside it are {most:,} {of}. Use a "
                "complete copy."
            )


def _tensor(path: Path, key: str) -> Tensor:
    with safe_open(path, framework="pt") as weights:
        found: Tensor = weights.get_tensor(key)
        return found


def _own_table(folder: Path, tensors: dict[str, Path]) -> Tensor:
    """The table of a model of ours, computed from its parts in float64."""
    config = own_config(folder)
    if config.absolute == "none":
        scheme = config.preset or "unnamed"
        way_out = "Try a dstg or ap model."
        raise ValueError(f"No position table in {folder}: its scheme, {scheme}, keeps no position in one. {way_out}")
    parts = {key.rpartition(_OWN)[2]: _tensor(path, key) for key, path in tensors.items() if _OWN in key}
    module = PositionTable(config)
    try:
        module.load_state_dict(parts)
    except RuntimeError as error:
        why = " ".join(str(error).split())[:160]
        raise ValueError(f"The table of {folder} does not fit its config.json ({why}). Use a complete copy.") from None
    table: Tensor = module.double()()
    return table.detach()


def _fit(table: Tensor, source: str, rows: int, width: int) -> Tensor:
    """The first `rows` rows of a table that must have them, and the width that is needed."""
    if table.shape[1] != width:
        raise ValueError(
            f"The table {source} is {table.shape[1]} wide, but {width} is needed. "
            f"Set table_width={table.shape[1]}, which adds a learned map, or give another table."
        )
    if (given := len(table)) < rows:
        way_out = f"Set max_position_embeddings={given}."
        raise ValueError(f"The table {source} has {given} rows for {rows} positions. {way_out}")
    return table[:rows]


def check_table_files(config: EncoderConfig) -> None:
    """Read the files that a new model's table comes from, to refuse them early; a saved model needs them no more.

    Raises:
        ValueError: a file is missing, is no table, or does not fit.
    """
    start = None if config.table_start in STARTS else config.table_start
    width = config.table_width or config.position_width
    for source in (config.table_file, start):
        if source is not None:
            _fit(read_table(source), source, config.max_position_embeddings, width)


HALF_TURN_SIZE = 0.1  # of the two waves of a half turn, as in the authors' code


def _fixed_scale(config: EncoderConfig, table: Tensor) -> float:
    """Factor of a table that is not trained: as configured, or to the spread that a learned table starts with."""
    if config.table_scale is not None:
        return config.table_scale
    assert config.position_initializer_range is not None
    size = float(table.square().mean().sqrt())
    return config.position_initializer_range / size if size else 1.0


@register_table("learned")
class LearnedTable(nn.Module):
    """A free row per position (BERT; DSTG section 3.1); `table_start` says where it begins (LOWDIM section 5).

    "random" draws it as the word embeddings are drawn, "half-turn" puts `half_turn` into two columns, "sinusoidal"
    takes `sinusoid`, "zeros" nothing; a .npy file or a model folder gives its own rows (`read_table`).
    """

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))

    def initialize(self, config: EncoderConfig) -> None:
        rows, width = self.weight.shape
        assert config.position_initializer_range is not None
        if config.table_start == "random":
            draw(self.weight, config.position_initializer_range, config)
        elif config.table_start == "zeros":
            init.zeros_(self.weight)
        elif config.table_start == "half-turn":
            size = HALF_TURN_SIZE if config.table_scale is None else config.table_scale
            init.copy_(self.weight, size * half_turn(rows, width))
        elif config.table_start == "sinusoidal":
            waves = sinusoid(rows, width, torch.float64)
            init.copy_(self.weight, _fixed_scale(config, waves) * waves)
        elif not getattr(self.weight, "_is_hf_initialized", False):  # a loaded model needs the file no more
            init.copy_(self.weight, _fit(read_table(config.table_start), config.table_start, rows, width))

    def forward(self) -> Tensor:
        return self.weight


@register_table("sinusoidal")
class SinusoidalTable(nn.Module):
    """Fixed sines and cosines (Vaswani et al. 2017), scaled to the spread that a learned table starts with."""

    scale: Tensor

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.rows, self.width = rows, width
        self.register_buffer("scale", torch.ones(()))

    def initialize(self, config: EncoderConfig) -> None:
        init.constant_(self.scale, _fixed_scale(config, sinusoid(self.rows, self.width, torch.float64)))

    def forward(self) -> Tensor:
        wide = torch.promote_types(self.scale.dtype, torch.float32)
        return (sinusoid(self.rows, self.width, wide, self.scale.device) * self.scale).to(self.scale.dtype)


@register_table("low_rank")
class LowRankTable(nn.Module):
    """P = A·Bᵀ with A (rows, r), B (width, r): r(rows + width) parameters (GEOM remark 8)."""

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        assert config.table_rank is not None
        self.A = nn.Parameter(torch.empty(rows, config.table_rank))
        self.B = nn.Parameter(torch.empty(width, config.table_rank))

    def initialize(self, config: EncoderConfig) -> None:
        assert config.position_initializer_range is not None
        std = (config.position_initializer_range / math.sqrt(self.A.shape[1])) ** 0.5  # P spreads as a learned table
        init.normal_(self.A, std=std)
        init.normal_(self.B, std=std)

    def forward(self) -> Tensor:
        return self.A @ self.B.t()


@register_table("fourier")
class FourierTable(nn.Module):
    """Pairs a·sin(ω·i + φ), a·cos(ω·i + φ) with learned ω, φ and a, at first the sinusoidal table (LOWDIM 5)."""

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.rows, self.width = rows, width
        # As a logarithm: the frequencies span four decades, and an optimizer's steps are of one size.
        self.log_frequency, self.phase, self.amplitude = (nn.Parameter(torch.empty((width + 1) // 2)) for _ in range(3))

    def initialize(self, config: EncoderConfig) -> None:
        init.copy_(self.log_frequency, frequencies(self.width, torch.float64).log())
        init.zeros_(self.phase)
        init.constant_(self.amplitude, _fixed_scale(config, sinusoid(self.rows, self.width, torch.float64)))

    @property
    def frequency(self) -> Tensor:
        """Radians per position of each pair, in at least float32."""
        return self.log_frequency.to(torch.promote_types(self.log_frequency.dtype, torch.float32)).exp()

    def forward(self) -> Tensor:
        frequency = self.frequency
        positions = torch.arange(self.rows, device=frequency.device, dtype=frequency.dtype)
        angles = positions[:, None] * frequency + self.phase.to(frequency.dtype)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1) * self.amplitude.to(frequency.dtype)[:, None]
        return waves.flatten(1)[:, : self.width].to(self.phase.dtype)


@register_table("mds")
class FileTable(nn.Module):
    """A fixed table from a file, for example multidimensional scaling of a corpus (GEOM algorithm 1).

    Row i is model position i; files written for a model have a zero row 0 for [CLS]. The rows become part of the
    weights, so that a saved model does not need the file.
    """

    weight: Tensor

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(rows, width))

    def initialize(self, config: EncoderConfig) -> None:
        if not getattr(self.weight, "_is_hf_initialized", False):
            assert config.table_file is not None
            table = _fit(read_table(config.table_file), config.table_file, *self.weight.shape)
            init.copy_(self.weight, _fixed_scale(config, table) * table)

    def forward(self) -> Tensor:
        return self.weight


class WidthMap(nn.Linear):
    """The learned map from a table's own width to the one that is needed; it keeps the spread of the table."""

    def __init__(self, width: int, needed: int) -> None:
        super().__init__(width, needed, bias=False)

    def initialize(self, config: EncoderConfig) -> None:
        init.normal_(self.weight, std=self.in_features**-0.5)


class PositionTable(nn.Module):
    """The configured table, and a learned map to the width that is needed where its own is another (LOWDIM 5)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.table_width or config.position_width
        self.name, self.shape = config.absolute, (config.max_position_embeddings, width)
        self.table = TABLES[config.absolute](config, *self.shape)
        mapped = config.table_width is not None and config.table_width != config.position_width
        self.map = WidthMap(width, config.position_width) if mapped else None

    def forward(self) -> Tensor:
        """The table as the model uses it: (max_position_embeddings, position_width)."""
        table = self.table()
        if table.shape != self.shape:
            seen = f"The table {self.name} gives shape {tuple(table.shape)}"
            raise ValueError(f"{seen}; needed (positions, width) = {self.shape}.")
        return table if self.map is None else self.map(table)
