"""What a study, `heads`, `geometry` and `spectra` measure on tiny models: a line a record, an array, a part of the
page.

A change of the code that is to change no number leaves the text as it is: `python tests/study_records.py BEFORE`, the
change, `python tests/study_records.py AFTER`, `diff -r BEFORE AFTER`. Values depend on the processor in their last
digits, so that none are kept in the repository. About half a minute.
"""

import factories_path  # isort: skip  # noqa: F401
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from cli_runner import sentences
from golden import digest, parts
from small_study import TRAINING, VALUES
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from whatwhere.encoder import EncoderForMaskedLM
from whatwhere.records.record import Record, read_records, write_records
from whatwhere.report import page_of
from whatwhere.study.geometry_run import GeometryConfig, run_geometry
from whatwhere.study.heads_run import run_heads
from whatwhere.study.spectra_run import run_spectra
from whatwhere.study.study import run_study
from whatwhere.study.study_settings import StudyConfig

TIMED = {"seconds", "tokens_per_second", "memory.peak"}
MODELS = ["dstg", "ap", "tupe-r"]


def lines(records: Iterable[Record]) -> list[str]:
    """The records in canonical order, numbers to six digits."""
    places = ("model", "metric", "part", "seed", "step", "layer", "head", "index")
    rows = []
    for r in records:
        if r.metric not in TIMED:
            place = " ".join(f"{key}={getattr(r, key)}" for key in places if getattr(r, key) is not None)
            value, low, high = ("-" if v is None else f"{v:.6g}" for v in (r.value, r.low, r.high))
            rows.append(f"{place} n={r.n} unit={r.unit!r}: {value} [{low}, {high}]")
    return sorted(rows)


def array_lines(folder: Path) -> list[str]:
    """Name, shape and size of every array in a folder."""
    rows = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            for name, a in sorted(arrays.items()):
                sums = (
                    []
                    if a.dtype.kind == "U"
                    else [f"{np.nansum(np.abs(a.astype(float))):.6g}", f"{np.nansum(a.astype(float) ** 2):.6g}"]
                )
                rows.append(" ".join([path.name, name, str(a.dtype), str(a.shape), *sums]))
    return rows


def page_lines(study: Path) -> list[str]:
    """A digest of every part of a study's page, without what is timed and the words around them."""
    write_records(
        study / "records.parquet", (r for r in read_records(study / "records.parquet") if r.metric not in TIMED)
    )
    facts = json.loads((study / "study.json").read_text(encoding="utf-8").replace(str(study.parent), ""))
    of_the_day = ("machine", "versions", "seconds")
    (study / "study.json").write_text(
        json.dumps({key: v for key, v in facts.items() if key not in of_the_day}), encoding="utf-8"
    )
    return [f"{name} {digest(part)}" for name, part in parts(page_of(study)).items() if name != "page"]


def measure(folder: Path) -> dict[str, list[str]]:
    """Lines of everything that is measured, by what measured it; `folder` takes the models."""
    torch.manual_seed(0)
    text = folder / "corpus.txt"
    text.write_text(sentences(1000), encoding="utf-8")
    study = folder / "study"
    config = StudyConfig.parse(
        {**VALUES, "corpus": str(text), "steps": 30, "at_once": 1, "models": MODELS, "training": TRAINING}
    )
    run_study(config, study, progress=False)
    texts = {"study": lines(read_records(study / "records.parquet")), "study-arrays": array_lines(study / "arrays")}
    texts["study-left-out"] = json.loads((study / "study.json").read_text(encoding="utf-8"))["notes"]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(study / "corpus/tokenizer")
    torch.manual_seed(0)
    small = BertConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    ours = study / "models/dstg/seed-0"
    for name, model, place in (
        ("ours", EncoderForMaskedLM.from_pretrained(ours), ours),
        ("foreign", BertModel(small).eval(), folder / "foreign"),
    ):
        out = folder / f"heads-{name}"
        corpus = str(study / "corpus")
        result = run_heads(
            model, tokenizer, place, corpus=corpus, windows=12, ablation_windows=8, out=out, progress=False
        )
        texts[f"heads-{name}"] = lines(read_records(out / "records.parquet"))
        texts[f"heads-{name}-arrays"] = array_lines(out / "arrays")
        texts[f"heads-{name}-left-out"] = [f"{what}: {why}" for what, why in sorted(result["left_out"].items())]
    out = folder / "geometry"
    values = {
        "corpora": [str(text)],
        "tokenizer": str(study / "corpus/tokenizer"),
        "positions": 12,
        "groups": 8,
        "splits": 2,
    }
    small_plan = {
        "width": 32,
        "dims": [16, 32],
        "ranks": [1, 2],
        "models": [str(ours), str(study / "models/ap/seed-0")],
        "workers": 1,
    }
    run_geometry(GeometryConfig.parse({**values, **small_plan, "document": "blank-line"}), out, progress=False)
    texts["geometry"] = lines(read_records(out / "records.parquet"))
    run_spectra([study], folder / "spectra", words=True)
    texts["spectra"] = lines(read_records(folder / "spectra/records.parquet"))
    return texts | {"study-page": page_lines(study)}


def main(out: Path) -> None:
    """Write a text for each part of `measure` to a folder."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in measure(Path(folder)).items():
            (out / f"{name}.txt").write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
