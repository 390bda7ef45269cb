"""What the tests of wrong input share: content that no reader takes, and what is expected of a refusal."""

import gzip
import io
import json
import lzma
import os
import struct
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from whatwhere.corpus.windows import Windows
from whatwhere.evaluation import squad
from whatwhere.records.record import FORMAT, Record
from whatwhere.run.files import describe_os_error

LONG = "9" * 5000  # digits: more than Python makes a number of
DEEP = "[" * 100_000
WIDE = [f"c{i}" for i in range(100_000)]
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


def line_of(error: ValueError | OSError) -> str:
    """What the command line says of an error, which must be one line of a length that can be read."""
    line = describe_os_error(error) if isinstance(error, OSError) else str(error)
    assert "\n" not in line and len(line) < 1500, line[:3000]
    return line


def refused(read, *said) -> None:
    """A reader refuses its file in a line with these words."""
    with pytest.raises((ValueError, OSError)) as caught:
        read()
    line = line_of(caught.value)
    assert all(str(word) in line for word in said), line


def put(folder: Path, name: str, content) -> Path:
    """A file with a content: bytes, text, plain values as JSON; None: a pipe; ...: a folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        os.mkfifo(path)
    elif content is ...:
        path.mkdir()
    else:
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    return path


def cases(**rows):
    """Named cases."""
    return [pytest.param(*row, id=name.replace("_", " ")) for name, row in rows.items()]


def packed(ending: str, data: bytes) -> bytes:
    return {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}[ending](data)


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def array(header: dict | bytes, data: bytes = b"") -> bytes:
    """A .npy file with this header."""
    text = header if isinstance(header, bytes) else repr(header).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def npz(**files: bytes) -> bytes:
    """An .npz file of these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"{name}.npy", data)
    return made.getvalue()


HUGE = {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)}
RECORD = {"study": ["s"], "model": ["m"], "metric": ["loss"], "value": [1.0], "unit": [""]}


def records(**columns) -> bytes:
    full = {key: columns.get(key, RECORD.get(key, [None])) for key in Record.__dataclass_fields__}
    table = pa.table({key: value for key, value in full.items() if value is not ...})
    return parquet(table.replace_schema_metadata({"format": FORMAT}))


TABLE = "t\tl\na\t0\nb\t1\n"
QUESTION = {"id": "q", "question": "Who?", "answers": [{"answer_start": 0, "text": "Rollo"}]}
PARAGRAPH = {"context": "Rollo went.", "qas": [QUESTION]}


def asked(title="t", **changed):
    return {"data": [{"title": title, "paragraphs": [{**PARAGRAPH, "qas": [{**QUESTION, **changed}]}]}]}


def word(number, head, form="w") -> str:
    return f"{number}\t{form}\t_\tNOUN\t_\t_\t{head}\tdep\t_\t_\n"


ROOT = word(1, 0)
SPANS = "probe_task_type: SENTENCE_SPANS\nnum_labels: 2\n"
SAMPLES = "inputs,context,label,set-0\n"


def touched(folder: Path) -> None:
    """All that windows hold, read."""
    windows = Windows(folder)
    for split in ("train", "held_out"):
        list(windows[split])
        windows[split].document_numbers()
    windows.unigrams()
    windows.tokenizer()


def of_squad(task="squad"):
    return lambda data: squad.read_questions(squad.TASKS[task], data, "dev")
