"""Record: the one result format of the project, and its file.

Every measured figure is a `Record`; a study keeps them in `records.parquet`, one row a record, and reports read nothing
else. The columns are tidy: one value a row, `None` where a column does not apply.
"""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..run.errors import command_line
from ..run.files import new_file, unpacked_parquet_bytes, unpacking_problem
from ..run.formats import register_format
from ..run.names import TRAINING_SETTINGS

Arrays = dict[str, np.ndarray]  # by name, as in an .npz file: measured beside the records
FORMAT = "whatwhere-records-1"


@dataclass(frozen=True)
class Record:
    """Measured value with its interval, the model, and the place in the model that it belongs to.

    study: name of the folder of the run that wrote the record, a study, an evaluation or another. model: name; "" for a
    fact about the corpus alone.
    seed: training seed of the model; None where no model is involved.
    layer: index of hidden[l], 0 = embedding. head: attention head.
    part: part of the model or of the data: "all", "position", "semantic"; for losses "train", "validation".
    metric: name of the quantity (`r2.token`, `pca.share`, `loss`, ...); unit: its unit ("" for a pure number).
    value, low, high: the value and its 95 % interval; low and high are None where nothing was repeated.
    step: optimizer step of the model measured; None for the final model.
    index: number of the value in a series: component of a spectrum, repetition (split) of a probe; None for a summary.
    n: number of observations behind the value.
    """

    study: str
    model: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    unit: str = ""
    seed: int | None = None
    layer: int | None = None
    head: int | None = None
    part: str | None = None
    step: int | None = None
    index: int | None = None
    n: int | None = None


_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_SCHEMA = pa.schema(
    [(f.name, next(t for kind, t in _TYPES.items() if f.type in (kind, kind | None))) for f in fields(Record)],
    metadata={"format": FORMAT},
)
_SCHEMA_NAMES = set(_SCHEMA.names)


def write_records(path: str | Path, records: Iterable[Record]) -> None:
    """Write `records` to a parquet file."""
    with new_file(path) as file:
        _write(file, records)


def _write(file: IO[bytes], records: Iterable[Record]) -> None:
    table = pa.Table.from_pylist([vars(r) for r in records], schema=_SCHEMA)
    pq.write_table(table, file, write_page_checksum=True)


def read_records(path: str | Path) -> list[Record]:
    """Read a record file.

    Raises:
        ValueError: the file is missing, is no parquet file, or was written in another format.
    """
    path = Path(path)
    if not path.is_file():
        if any((path.parent / name).is_file() for name in ("training.json", *TRAINING_SETTINGS)):
            raise ValueError(
                f"{path.parent} is a model, which has no records. Give the folder of a study or of `heads`."
            )
        if not path.parent.exists():
            raise ValueError(f"No records at {path}: {path.parent} does not exist. Give the folder of a finished run.")
        if (path.parent / "study.yaml").is_file():
            status = command_line("status", path.parent)
            raise ValueError(f"No records at {path} yet. See how far the study is: {status}")
        raise ValueError(
            f"No records at {path}. Give the folder of a study, or of heads, geometry, spectra or an evaluation."
        )
    try:
        metadata = pq.read_metadata(path)
        if why := unpacking_problem(
            max(unpacked_parquet_bytes(metadata), 8 * metadata.num_columns * metadata.num_rows), path.stat().st_size
        ):
            raise ValueError(f"it {why}")
        table = pq.read_table(path, page_checksum_verification=True)
        if table.num_rows != metadata.num_rows:  # its groups say how many they have, which no checksum covers
            raise ValueError(f"it has {table.num_rows:,} rows and says that they are {metadata.num_rows:,}")
        format_of_file = (table.schema.metadata or {}).get(b"format", b"none").decode()
        strange = [field.name for field in table.schema if not _fits(field, table)]
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError, TypeError, MemoryError) as error:  # a damaged head can be anything
        why = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path} is not a complete parquet file ({why}). Delete it; the command that wrote the folder writes it "
            f"again (of a study: {command_line('study', '--out', path.parent)})."
        ) from error
    if format_of_file != FORMAT:
        raise ValueError(
            f"{path} has record format {format_of_file!r}, this version reads {FORMAT!r}. Run the study again."
        )
    if strange:
        raise ValueError(f"{path} has other values than records have in its column {strange[0]}. Run the study again.")
    names = {field.name for field in table.schema}
    needed = {f.name for f in fields(Record) if f.default is MISSING}
    if names - _SCHEMA_NAMES or needed - names:
        others = ", ".join(sorted(names - _SCHEMA_NAMES | needed - names))
        raise ValueError(f"{path} has other columns than records have ({others}). Run the study again.")
    return [_of_row(row) for row in rows]


def _of_row(row: dict[str, Any]) -> Record:
    """Return the record of a row that has a record's names and types.

    The constructor of a frozen class sets the fields one by one, which took three fifths of the reading.
    """
    record = object.__new__(Record)
    record.__dict__.update(row)
    return record


register_format(".parquet", _write, read_records)


def _fits(field: pa.Field, table: pa.Table) -> bool:
    """Tell if a column has values of the type of a record's, and none is missing where there is always one."""
    if field.name not in _SCHEMA.names:
        return True  # the caller refuses unknown columns
    if table.column(field.name).null_count:
        default = next(f.default for f in fields(Record) if f.name == field.name)
        return default is None and field.type in (_SCHEMA.field(field.name).type, pa.null())
    return bool(field.type == _SCHEMA.field(field.name).type)


def select(records: Sequence[Record], **columns: Any) -> list[Record]:
    """Return the records whose columns have the given values; a tuple or set stands for any of its members.

    Raises:
        ValueError: `Record` has no such column.
    """
    names = [f.name for f in fields(Record)]
    if unknown := sorted(set(columns) - set(names)):
        raise ValueError(f"Record has no column {unknown[0]!r}. Columns: {', '.join(names)}.")
    return [r for r in records if all(is_one_of(getattr(r, k), v) for k, v in columns.items())]


def is_one_of(value: Any, wanted: Any) -> bool:
    """Tell if a value equals `wanted`, or, where `wanted` is a tuple or set, any of its members."""
    return value in wanted if isinstance(wanted, tuple | set | frozenset) else value == wanted
