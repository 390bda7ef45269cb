"""Changed bytes in a valid file of each kind: it is read, or refused in a line that names it."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from geometry_run import make_run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_study import make_study
from made_tasks import CRANFIELD
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
    touched,
    word,
)
from safetensors.torch import save_file

import whatwhere as ww
from whatwhere.corpus import build_windows, load_tokenizer, open_source
from whatwhere.corpus.labelled import read_labelled
from whatwhere.evaluation import holmes, ud
from whatwhere.evaluation.benchmark import Trial
from whatwhere.evaluation.blimp import read_blimp
from whatwhere.evaluation.glue import TASKS, read_task
from whatwhere.evaluation.grid import by_seed
from whatwhere.evaluation.local_tasks import LOCAL
from whatwhere.models.model_tables import read_table
from whatwhere.models.open import open_model
from whatwhere.records.record import read_records
from whatwhere.report import page_of
from whatwhere.report.explorer import load_explorer
from whatwhere.run.files import write_arrays
from whatwhere.run.folder import RunFolder
from whatwhere.run.status import run_status
from whatwhere.study.spectra_run import run_spectra
from whatwhere.study.study_settings import StudyConfig
from whatwhere.training import checkpoints

SLOT = {"slot": "people", "valueSpan": {"startIndex": 4, "endIndex": 7}}


def cranfield(path: Path):
    """Its three files, those that are not there as they should be."""
    for name, text in CRANFIELD.items():
        if name != path.name:
            put(path.parent, name, text)
    return LOCAL["Cranfield-local"].read([path.parent / name for name in CRANFIELD])


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
    "test.json": (
        json.dumps([{"userInput": {"text": "for six"}, "labels": [SLOT]}, {"userInput": {"text": "no"}}]).encode(),
        lambda path: of_squad("restaurants")(path.parent),
    ),
    **{f"retrieval/cranfield/{name}": (text.encode(), cranfield) for name, text in CRANFIELD.items()},
    "vocab.txt": (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n", load_tokenizer),
    "SST-2/train.tsv": (
        b"sentence\tlabel\na fine film\t1\na bad one\t0\n",
        lambda path: read_task(TASKS["sst-2"], path.parent.parent, "train"),
    ),
    "blimp/all.jsonl": (
        json.dumps({"sentence_good": "a b", "sentence_bad": "b a", "field": "syntax", "UID": "u"}).encode(),
        lambda path: read_blimp(path.parent),
    ),
}


@st.composite
def mutations(draw, data: bytes) -> bytes:
    """Data with a byte flipped, its end cut off, a piece twice, or bytes put in; or other bytes alone."""
    kind = draw(st.integers(0, 4))
    at = draw(st.integers(0, len(data) - 1))
    if kind == 0:
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at : at + draw(st.integers(1, 64))] * draw(st.integers(1, 3)) + data[at:]
    other = draw(st.binary(max_size=64))
    return data[:at] + other + data[at:] if kind == 3 else other


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_files_are_read_or_refused(tmp_path, name, data):
    """Mutations of a valid file are read or refused by name."""
    whole, read = READERS[name]
    put(tmp_path, "config-none.yaml", SPANS)
    path = put(tmp_path, name, data.draw(mutations(whole)))
    try:
        read(path)
    except (ValueError, OSError) as error:
        line = line_of(error)
        assert str(tmp_path) in line and Path(name).name in line, line


STEP = {"step": 1, "tokens": 9, "loss": 2.5, "tokens_per_second": 1.5, "waiting": 0.1, "peak_memory_bytes": 9}
TRIAL = Trial("m", "m", False, "sst2")


def linear() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """As much of a model and its optimizer as a checkpoint knows."""
    module = torch.nn.Linear(2, 2)
    module.all_tied_weights_keys = {}
    return module, torch.optim.AdamW(module.parameters())


def restored(folder: Path) -> None:
    """A training goes on from a checkpoint; its hashes are those of the files that are there."""
    (folder / "manifest.jsonl").unlink(missing_ok=True)
    run = RunFolder.at(folder)
    run.add_to_manifest(*run.files_not_in_manifest())
    module, optimizer = linear()
    checkpoints.restore(checkpoints.open_checkpoint(folder), module, [optimizer])


IN_FOLDERS = {
    "model/config.json": lambda folder: open_model(folder),
    "model/model.safetensors": lambda folder: open_model(folder),
    "model/tokenizer.json": lambda folder: open_model(folder).tokenizer,
    "windows/windows.json": touched,
    "windows/shards/00000.train.ids.npy": touched,
    "windows/shards/00000.train.starts.npy": touched,
    "windows/unigrams.npy": touched,
    "study/study.json": page_of,
    "study/claims.json": page_of,
    "study/arrays/table-dstg-seed-0.npz": page_of,
    "run/pretrain.yaml": run_status,
    "run/log.jsonl": run_status,
    "run/training.json": run_status,
    "run/checkpoints/step-3/state.json": lambda folder: restored(folder / "checkpoints/step-3"),
    "run/checkpoints/step-3/optimizer.safetensors": lambda folder: restored(folder / "checkpoints/step-3"),
    "explorer/explorer.json": load_explorer,
    "explorer/arrays/explorer-m-seed-0.npz": load_explorer,
    "explorer/arrays/attention-m-seed-0.npz": load_explorer,
    "geometry/geometry.json": page_of,
    "geometry/arrays/geometry-reviews.npz": page_of,
    "spectra/spectra.json": page_of,
    "spectra/arrays/table-t.npz": page_of,
    "pieces/runs/m/sst2/all.json": lambda folder: by_seed([TRIAL], folder),
    "pieces/runs/m/sst2/all.npz": lambda folder: by_seed([TRIAL], folder),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """A folder of each kind, without hashes."""
    base = tmp_path_factory.mktemp("folders")
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        put(base, f"model/{name}", (Path(ww.reference()) / name).read_bytes())
    text = put(base, "t.txt", "".join(f"The {i}. cat sat on the mat by the door.\n\n" for i in range(60)))
    build_windows(open_source(text), load_tokenizer(ww.reference()), base / "windows", length=32, progress=False)
    (base / "windows/manifest.jsonl").unlink()
    make_study(base / "study", models=("dstg",), layers=1, steps=200)
    lines = [STEP, {"step": 1, "tokens": 9, "validation_loss": 2.5}]
    files = {"pretrain.yaml": "steps: 5\npreset: dstg\n", "log.jsonl": "\n".join(map(json.dumps, lines))}
    files |= {"training.json": {"seconds": 2.5, "steps": 5}, "model.safetensors": ""}
    for name, content in files.items():
        put(base, f"run/{name}", content)
    module, optimizer = linear()
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    put(base, "run/checkpoints/step-3/state.json", {"step": 3, "seconds": 1.5, "losses": [4.0]})
    save_file(module.state_dict(), base / "run/checkpoints/step-3/model.safetensors")
    save_file(checkpoints.optimizer_tensors([optimizer]), base / "run/checkpoints/step-3/optimizer.safetensors")
    shown = {"title": "t", "tokens": ["a", "b", "c"]}
    entry = {"name": "m", "seed": 0, "texts": [shown], "terms": ["total"], "file": "arrays/explorer-m-seed-0.npz"}
    put(base, "explorer/explorer.json", [entry])
    maps = {"levels": np.linspace(0, 1, 256), "0.total": np.ones((1, 2, 3, 3), np.uint8)}
    write_arrays(base / "explorer/arrays/explorer-m-seed-0.npz", maps)
    profiles = {"mean.total": np.ones((1, 2, 3, 3)), "profile.total": np.ones((1, 2, 5)), "lags": np.arange(-2, 3)}
    write_arrays(base / "explorer/arrays/attention-m-seed-0.npz", profiles)
    make_run(base / "geometry", corpora=["reviews"], positions=8, models=[])
    np.save(base / "t.npy", np.random.default_rng(0).normal(size=(8, 4)))
    run_spectra([base / "t.npy"], base / "spectra")
    (base / "spectra/manifest.jsonl").unlink()
    put(base, "pieces/runs/m/sst2/all.json", {"scores": [[0.5, 0.25, 0.4], [0.5, 0.5, 0.5]], "rows": 9})
    write_arrays(TRIAL.file(base / "pieces", ".npz"), {"predicted": np.zeros((3, 9))})
    return base


@pytest.mark.parametrize("name", IN_FOLDERS)
@settings(max_examples=4, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_folder_files_are_read_or_refused(folders, name, data):
    """Mutations of a file of a folder are read or refused by its name."""
    folder = folders / name.partition("/")[0]
    path = folders / name
    whole = path.read_bytes()
    try:
        path.write_bytes(data.draw(mutations(whole)))
        IN_FOLDERS[name](folder)
    except (ValueError, OSError) as error:
        line = line_of(error)
        assert str(folder) in line or path.name in line, line
    finally:
        path.write_bytes(whole)


def test_a_valid_file_of_each_kind_is_read(tmp_path, folders):
    for name, read in IN_FOLDERS.items():
        read(folders / name.partition("/")[0])
    put(tmp_path, "config-none.yaml", SPANS)
    for name, (whole, read) in READERS.items():
        read(put(tmp_path, name, whole))
