"""Position tables (n, d), a row a position: added to the words, fed to the position stream, or untied (TUPE)."""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import initialization as init

from .config import TABLE_STARTS, EncoderConfig
from .registry import TABLES, register_table, table_of_folder

HALF_TURN_SIZE = 0.1  # amplitude of the two waves of a half turn, as in the code of DSTG's authors
SMOOTH_WAVES = 8  # waves of a smooth start: docs/results/start


def sinusoid(rows: int, width: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Compute sin and cos of i / 10000^(2k/width) in columns 2k and 2k + 1 (Vaswani et al. 2017): (rows, width)."""
    return sinusoid_at(torch.arange(rows, device=device, dtype=dtype), width)


def sinusoid_at(positions: Tensor, width: int) -> Tensor:
    """Compute `sinusoid` at real positions of any shape: (..., width)."""
    angles = positions[..., None] * frequencies(width, positions.dtype, positions.device)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


def frequencies(width: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Compute 10000^(-2k/width), radians per position, for every k below width/2 (Vaswani et al. 2017): shape
    (ceil(width/2),)."""
    k = torch.arange((width + 1) // 2, device=device, dtype=dtype)
    return torch.exp(-2 * k / width * math.log(10000.0))


def half_turn(rows: int, width: int) -> Tensor:
    """Compute half a turn of a wave over all positions in two columns: (rows, width), float64, zero elsewhere.

    Columns 0 and 1 of row i are cos(π·i/rows) and sin(π·i/rows): `2dim_cosine` of the earlier code of DSTG's authors
    (LequeuISIR/PosNeoBERT), which multiplies both by 0.1.
    """
    angles = torch.arange(rows, dtype=torch.float64) * (math.pi / rows)
    table = torch.zeros(rows, width, dtype=torch.float64)
    table[:, 0] = angles.cos()
    table[:, 1] = angles.sin()
    return table


def smooth_noise(rows: int, width: int) -> Tensor:
    """Draw noise whose neighbouring rows are alike, each column a sum of `SMOOTH_WAVES` slow waves: (rows, width).

    Wave k is cos(π·k·(i + 1/2)/rows) at row i, k half turns over all positions, k from 1; its amplitude in each column
    is drawn from a normal distribution. float64.
    """
    k = torch.arange(1, min(SMOOTH_WAVES, rows) + 1, dtype=torch.float64)
    middles = torch.arange(rows, dtype=torch.float64) + 0.5
    waves = torch.cos(middles[:, None] * k * (math.pi / rows))
    return waves @ torch.randn(len(k), width, dtype=torch.float64)


def has_loaded_numbers(parameter: Tensor) -> bool:
    """Return whether a parameter of any shape holds the numbers of a loaded model, which no initialisation may
    change."""
    return getattr(parameter, "_is_hf_initialized", False)


def draw_weights(weight: Tensor, spread: float, config: EncoderConfig) -> None:
    """Draw a weight of any shape by `config.initializer`: normal with deviation `spread`, or uniform on ± `spread`."""
    if config.initializer == "uniform":
        init.uniform_(weight, -spread, spread)
    else:
        init.normal_(weight, std=spread)


def read_npy_table(path: Path) -> Tensor:
    """Read the position table of a .npy file: (rows, width) in float64, row i is position i.

    Raises:
        ValueError: no such file, objects or words in it, not two dimensions, or NaN or infinity.
    """
    if path.suffix != ".npy" or not path.is_file():
        hint = "Give a .npy file of shape (positions, width), or the folder of a model."
        raise ValueError(f"No position table at {path}. {hint}")
    try:
        with np.errstate(over="raise"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        table = torch.from_numpy(array.astype(np.float64, casting="same_kind"))
    except Exception:  # numpy raises many, and its own words recommend to unpickle the file
        raise ValueError(f"{path} holds no table of numbers. Write one with numpy.save.") from None
    check_table(table, path)
    return table


def check_table(table: Tensor, source: str | Path) -> None:
    """Refuse a tensor that is no position table: shape (positions, width), finite.

    Raises:
        ValueError: not two dimensions, no number at all, or NaN or infinity; the message names `source`.
    """
    if table.ndim != 2 or not table.numel():
        raise ValueError(
            f"A position table has shape (positions, width); {source} has {tuple(table.shape)}. Give an array of two "
            "dimensions."
        )
    if not bool(table.isfinite().all()):
        bad = int((~table.isfinite()).any(1).nonzero()[0])
        raise ValueError(f"{source} holds NaN or infinity, first in row {bad}. Leave such positions out, or fill them.")


def read_starting_table(source: str, rows: int, width: int) -> Tensor:
    """Read the rows that a new model starts from: (rows, width) in float64, of a .npy file or a model's folder.

    Raises:
        ValueError: as `read_npy_table` and the registered reader of folders; fewer rows, or another width.
    """
    path = Path(source)
    if not path.exists():
        raise ValueError(
            f"No position table at {source}. Give a .npy file of shape (positions, width) or the folder of a model; "
            f"table_start also takes a name: {', '.join(TABLE_STARTS)}."
        )
    table = table_of_folder(path) if path.is_dir() else read_npy_table(path)
    if table.shape[1] != width:
        raise ValueError(
            f"The table {source} is {table.shape[1]} wide, and the model needs {width}. "
            f"Set table_width={table.shape[1]}, which adds a learned map, or give another table."
        )
    if (row_count := len(table)) < rows:
        hint = f"Set max_position_embeddings={row_count}."
        raise ValueError(f"The table {source} has {row_count} rows for {rows} positions. {hint}")
    return table[:rows]


def _starting_scale(config: EncoderConfig, table: Tensor) -> float:
    """Return the factor of a starting table: `table_scale`, or by default the factor that makes its root mean square
    `position_initializer_range`."""
    if config.table_scale is not None:
        return config.table_scale
    assert config.position_initializer_range is not None
    rms = float(table.square().mean().sqrt())
    return config.position_initializer_range / rms if rms else 1.0


@register_table("learned")
class LearnedTable(nn.Module):
    """Table with a free row for each position (BERT; DSTG section 3.1), which starts as `table_start` says (LOWDIM 5).

    "random" draws it as `initializer` and `position_initializer_range` say, "smooth" draws `smooth_noise`, "half-turn"
    puts `half_turn` into two columns, "sinusoidal" takes `sinusoid`, "zeros" sets every entry to 0; a .npy file or a
    model folder gives its own rows (`read_starting_table`).
    """

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))

    def initialize(self, config: EncoderConfig) -> None:
        """Set the rows to the start that `table_start` names; the rows of a loaded model stay.

        Raises:
            ValueError: as `read_starting_table`.
        """
        _set_to_start(self.weight, config)

    def forward(self) -> Tensor:
        """Return the table, (rows, width)."""
        return self.weight


@register_table("fixed")
class FixedTable(nn.Module):
    """Table that starts as a learned one does, by `table_start`, and that no training changes."""

    weight: Tensor

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(rows, width))
        if not self.weight.is_meta and config.table_start in ("half-turn", "sinusoidal"):
            _set_to_start(self.weight, config)  # a client may build the model without initialising its weights

    def initialize(self, config: EncoderConfig) -> None:
        """Set the rows to the start that `table_start` names; the rows of a loaded model stay.

        Raises:
            ValueError: as `read_starting_table`.
        """
        _set_to_start(self.weight, config)

    def forward(self) -> Tensor:
        """Return the table, (rows, width)."""
        return self.weight


def _set_to_start(weight: Tensor, config: EncoderConfig) -> None:
    """Set a table (rows, width) to the start that `table_start` names; functions of `init` leave loaded rows alone."""
    rows, width = weight.shape
    assert config.position_initializer_range is not None
    if config.table_start == "random":
        draw_weights(weight, config.position_initializer_range, config)
    elif config.table_start == "zeros":
        init.zeros_(weight)
    elif config.table_start == "half-turn":
        scale = HALF_TURN_SIZE if config.table_scale is None else config.table_scale
        init.copy_(weight, scale * half_turn(rows, width))
    elif config.table_start == "sinusoidal":
        waves = sinusoid(rows, width, torch.float64)
        init.copy_(weight, _starting_scale(config, waves) * waves)
    elif has_loaded_numbers(weight):  # spare a loaded model the drawing, and the file
        return
    elif config.table_start == "smooth":
        noise = smooth_noise(rows, width)
        init.copy_(weight, _starting_scale(config, noise) * noise)
    else:
        init.copy_(weight, read_starting_table(config.table_start, rows, width))


@register_table("sinusoidal")
class SinusoidalTable(nn.Module):
    """Table of fixed sines and cosines (Vaswani et al. 2017), scaled by `table_scale`, else to a root mean square of
    `position_initializer_range`."""

    scale: Tensor

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.width = width
        self.register_buffer("scale", torch.tensor(self._factor(config)))

    def _factor(self, config: EncoderConfig) -> float:
        waves = sinusoid(
            self.rows, self.width, torch.float64, torch.device("cpu")
        )  # also for a model on the meta device
        return _starting_scale(config, waves)

    def initialize(self, config: EncoderConfig) -> None:
        """Set the scale to `table_scale`, or so that the root mean square is `position_initializer_range`."""
        init.constant_(self.scale, self._factor(config))

    def at(self, positions: Tensor) -> Tensor:
        """Return the vectors (..., width) of real positions of any shape."""
        dtype = torch.promote_types(self.scale.dtype, torch.float32)
        return (sinusoid_at(positions.to(dtype), self.width) * self.scale).to(self.scale.dtype)

    def forward(self) -> Tensor:
        """Return the table, (rows, width)."""
        return self.at(torch.arange(self.rows, device=self.scale.device))


@register_table("low_rank")
class LowRankTable(nn.Module):
    """Table P = A·Bᵀ with A (rows, r), B (width, r): r(rows + width) parameters (GEOM remark 8)."""

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        assert config.table_rank is not None
        self.A = nn.Parameter(torch.empty(rows, config.table_rank))
        self.B = nn.Parameter(torch.empty(width, config.table_rank))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw A and B, normal, so that entries of A·Bᵀ have the deviation `position_initializer_range`."""
        assert config.position_initializer_range is not None
        std = (config.position_initializer_range / math.sqrt(self.A.shape[1])) ** 0.5
        init.normal_(self.A, std=std)
        init.normal_(self.B, std=std)

    def forward(self) -> Tensor:
        """Return the table, (rows, width)."""
        return self.A @ self.B.t()


@register_table("fourier")
class FourierTable(nn.Module):
    """Table of pairs a·sin(ω·i + φ), a·cos(ω·i + φ) with learned ω, φ and a, first the sinusoidal table (LOWDIM 5)."""

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.rows = rows
        self.width = width
        # Logarithms, as the frequencies span four decades and an optimizer takes steps of one size.
        self.log_frequency, self.phase, self.amplitude = (nn.Parameter(torch.empty((width + 1) // 2)) for _ in range(3))

    def initialize(self, config: EncoderConfig) -> None:
        """Set ω, φ and a to the sinusoidal table's, with its root mean square or `table_scale`."""
        init.copy_(self.log_frequency, frequencies(self.width, torch.float64).log())
        init.zeros_(self.phase)
        init.constant_(self.amplitude, _starting_scale(config, sinusoid(self.rows, self.width, torch.float64)))

    @property
    def frequency(self) -> Tensor:
        """Radians per position of each pair, (pairs,), in at least float32."""
        return self.log_frequency.to(torch.promote_types(self.log_frequency.dtype, torch.float32)).exp()

    def at(self, positions: Tensor) -> Tensor:
        """Return the vectors (..., width) of real positions of any shape."""
        frequency = self.frequency
        angles = positions.to(frequency.dtype)[..., None] * frequency + self.phase.to(frequency.dtype)
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1) * self.amplitude.to(frequency.dtype)[:, None]
        return waves.flatten(-2)[..., : self.width].to(self.phase.dtype)

    def forward(self) -> Tensor:
        """Return the table, (rows, width)."""
        return self.at(torch.arange(self.rows, device=self.phase.device))


@register_table("mds")
class FileTable(nn.Module):
    """Fixed table `mds`: the rescaled rows of any file, as of a corpus's multidimensional scaling (GEOM algorithm 1).

    Row i is model position i; tables that `whatwhere geometry` writes have a zero row 0 for [CLS]. The rows become part
    of the weights, so that a saved model does not need the file.
    """

    weight: Tensor

    def __init__(self, config: EncoderConfig, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(rows, width))

    def initialize(self, config: EncoderConfig) -> None:
        """Copy the rows of `table_file`, scaled; the rows of a loaded model stay.

        Raises:
            ValueError: as `read_starting_table`.
        """
        if not has_loaded_numbers(self.weight):
            assert config.table_file is not None
            table = read_starting_table(config.table_file, *self.weight.shape)
            init.copy_(self.weight, _starting_scale(config, table) * table)

    def forward(self) -> Tensor:
        """Return the table, (rows, width)."""
        return self.weight


class WidthMap(nn.Linear):
    """Learned map from the width of a table to the width that the model needs."""

    def __init__(self, width: int, model_width: int) -> None:
        super().__init__(width, model_width, bias=False)

    def initialize(self, config: EncoderConfig) -> None:
        """Draw the map, normal with deviation 1/√(width of the table), so that the spread of the table stays."""
        init.normal_(self.weight, std=self.in_features**-0.5)


class PositionTable(nn.Module):
    """Table that `config.absolute` names, with a learned map where its width is not the model's (LOWDIM 5)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.table_width or config.position_vector_width
        self.name = config.absolute
        self.shape = (config.max_position_embeddings, width)
        self.table = TABLES[config.absolute](config, *self.shape)
        needs_map = config.table_width is not None and config.table_width != config.position_vector_width
        self.map = WidthMap(width, config.position_vector_width) if needs_map else None

    def at(self, positions: Tensor) -> Tensor:
        """Return the vectors (b, n, position_vector_width) of real positions (b, n), of a table by a formula."""
        vectors = self.table.at(positions)  # type: ignore[operator]
        return vectors if self.map is None else self.map(vectors)

    def forward(self) -> Tensor:
        """Return the table that the model uses: (max_position_embeddings, position_vector_width).

        Raises:
            ValueError: a registered table gives another shape.
        """
        table = self.table()
        if table.shape != self.shape:
            raise ValueError(
                f"The table {self.name} gives shape {tuple(table.shape)}. Return (positions, width) = {self.shape}."
            )
        return table if self.map is None else self.map(table)
