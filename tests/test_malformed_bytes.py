"""Changed bytes in a valid file of each kind: it is read, or refused in a line that names it."""

import gzip
import json
import lzma

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from malformed import (
    HUGE,
    ROOT,
    SAMPLES,
    SPANS,
    TABLE,
    array,
    asked,
    line_of,
    of_squad,
    packed,
    parquet,
    put,
    records,
    word,
)

from whatwhere.corpus import load_tokenizer, open_source
from whatwhere.corpus.labelled import read_labelled
from whatwhere.encoder.tables import read_table
from whatwhere.evaluation import holmes, ud
from whatwhere.hashes import check_files
from whatwhere.records import read_records
from whatwhere.study.config import StudyConfig

READERS = {
    "t.txt": (b"The cat sat.\n\nStra\xc3\x9fe.\n" * 9, lambda path: list(open_source(path))),
    "t.jsonl": (b'{"text": "The cat", "n": [1, 2.5e3, null]}\n' * 9, lambda path: list(open_source(path))),
    "t.csv": (b'n,text\n1,"The ""cat"" sat"\n2,b\n' * 3, lambda path: list(open_source(path))),
    "t.parquet": (parquet(pa.table({"text": [f"cat {i}" for i in range(99)]})), lambda path: list(open_source(path))),
    "t.txt.gz": (gzip.compress(b"The cat sat.\n" * 99), lambda path: list(open_source(path))),
    "t.txt.xz": (lzma.compress(b"The cat sat.\n" * 99), lambda path: list(open_source(path))),
    "t.txt.zst": (packed(".zst", b"The cat sat.\n" * 99), lambda path: list(open_source(path))),
    "l.tsv": (TABLE.encode() * 3, lambda path: read_labelled(path, "t", "l")),
    "c.yaml": (
        b"models: [dstg, ap]\nsteps: 30\ntraining: {learning_rate: 1.0e-3, model: {dropout: 0.1}}\n",
        lambda path: StudyConfig.load(path),
    ),
    "records.parquet": (records(), read_records),
    "t.npy": (array(HUGE | {"shape": (4, 4)}, np.eye(4).tobytes()), read_table),
    "dev-v1.1.json": (json.dumps(asked()).encode(), lambda path: of_squad()(path.parent)),
    "en-ud-train.conllu": (
        (word("1-2", "_") + ROOT + word(2, 1) + word(3, 2) + "\n").encode() * 3,
        lambda path: [each.depths() for each in ud.read_trees(path.parent, "train")],
    ),
    "samples.csv": (
        (SAMPLES + "".join(f"\"[('w', 0, 0, 1, 0)]\",\"['a b']\",0,{s}\n" for s in holmes.SPLITS)).encode(),
        lambda path: holmes.read_data_set(path.parent),
    ),
    "vocab.txt": (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n", load_tokenizer),
    "hashes.json": (b'{"a": "00", "b/c": "11"}', lambda path: check_files(path.parent)),
}


@st.composite
def mutations(draw, data: bytes) -> bytes:
    """Data with a byte flipped, its end cut off, a piece twice, or bytes put in; or other bytes alone."""
    kind, at = draw(st.integers(0, 4)), draw(st.integers(0, len(data) - 1))
    if kind == 0:
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at : at + draw(st.integers(1, 64))] * draw(st.integers(1, 3)) + data[at:]
    other = draw(st.binary(max_size=64))
    return data[:at] + other + data[at:] if kind == 3 else other


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutations_of_a_valid_file_are_read_or_refused_by_name(tmp_path, name, data):
    whole, read = READERS[name]
    put(tmp_path, "config-none.yaml", SPANS)
    path = put(tmp_path, name, data.draw(mutations(whole)))
    try:
        read(path)
    except (ValueError, OSError) as error:
        line = line_of(error)
        assert str(tmp_path) in line and (name in line or name == "hashes.json"), line


def test_a_valid_file_of_each_kind_is_read(tmp_path):
    put(tmp_path, "config-none.yaml", SPANS)
    for name, (whole, read) in READERS.items():
        if name != "hashes.json":  # whose files are not there
            read(put(tmp_path, name, whole))
