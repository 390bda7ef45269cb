"""The benchmark command runs and writes what it says: form only, no times."""

import importlib
import json
import multiprocessing
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

import whatwhere as ww

ROOT = Path(__file__).parents[1]


@pytest.fixture
def main(monkeypatch, processes):
    """The command of `python -m benchmarks`."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    for part in ("steps", "study", "busy", "tuning"):
        monkeypatch.setattr(importlib.import_module(f"benchmarks.{part}"), "get_context", multiprocessing.get_context)
    return importlib.import_module("benchmarks.__main__").main


def check(folder: Path, parts: list[str]) -> dict:
    """The JSON of a run, every row and its budget checked, and every row found on the page."""
    whole = json.loads((folder / "benchmarks.json").read_text(encoding="utf-8"))
    page = (folder / "benchmarks.md").read_text(encoding="utf-8")
    assert list(whole["parts"]) == parts
    for part in whole["parts"].values():
        assert part["rows"] and part["command"] in page
        assert part["machine"]["cores"] and part["versions"]["torch"] and len(part["load"]) == 2
        for row in part["rows"]:
            assert row["what"] in page and f"| {row['shape']} |" in page
            for figure in filter(None, (row["first"], row["second"])):
                assert len(figure["values"]) == figure["repeats"] >= 1
                assert 0 < figure["min"] <= figure["median"] <= figure["max"]
            value = row["first"][row["of"]]
            if row["second"]:
                value = row["ratio"]
                assert value == pytest.approx(row["first"][row["of"]] / row["second"][row["of"]])
            if row["at_most"] is not None:
                assert row["met"] is (value <= row["at_most"])
            elif row["at_least"] is not None:
                assert row["met"] is (value >= row["at_least"])
            else:
                assert row["met"] is None
    return whole


@pytest.mark.long
def test_command_writes_figures_page_and_picture(main, tmp_path):
    main(["--micro", "--only", "attention,memory,long,heads,probes,linguistic", "--out", str(tmp_path)])
    whole = check(tmp_path, ["memory", "long", "attention", "probes", "heads", "linguistic"])  # in the order of PARTS
    eager, fused = whole["parts"]["memory"]["curves"][:2]
    assert eager["backend"] == "eager" and fused["backend"] == "sdpa"
    assert all(0 < held <= peak for held, peak in zip(fused["held"], fused["peak"], strict=True))
    assert eager["held"][1] > eager["held"][0]
    assert ElementTree.parse(tmp_path / "memory.svg").getroot().tag.endswith("svg")
    assert str(tmp_path) not in (tmp_path / "benchmarks.json").read_text(encoding="utf-8")


def test_a_part_run_again_replaces_its_own_entry(main, tmp_path):
    main(["--micro", "--only", "positional,probes", "--out", str(tmp_path)])
    before = check(tmp_path, ["positional", "probes"])["parts"]
    main(["--micro", "--only", "positional", "--out", str(tmp_path)])
    after = check(tmp_path, ["positional", "probes"])["parts"]
    assert before["positional"] != after["positional"] and before["probes"] == after["probes"]


def test_command_refuses_what_it_does_not_know(main, capsys):
    with pytest.raises(SystemExit):
        main(["--only", "presents"])
    assert (
        "No part presents. Parts: memory, long, checkpointing, study, busy, presets, schemes, peers, inference"
        in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main(["--micro"])
    assert "--out" in capsys.readouterr().err


# Parts that start processes or train several models take most of a minute.
LONG = [
    pytest.param(part, marks=pytest.mark.slow)
    for part in ("checkpointing", "study", "busy", "peers", "inference", "tuning", "cluster")
]


@pytest.mark.long
@pytest.mark.parametrize("parts", ["presets,schemes,packing,windows,counts,mds", *LONG])
def test_every_other_part_runs(parts, main, tmp_path):
    corpus = tmp_path / "texts.jsonl"
    texts = [" ".join(f"word{(i * k) % 97}" for k in range(20 + 3 * i)) for i in range(60)]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    if parts == "cluster":
        pytest.importorskip("distributed")
    main(["--micro", "--only", parts, "--corpus", str(corpus), "--out", str(tmp_path)])
    check(tmp_path, parts.split(","))


@pytest.mark.long
@pytest.mark.parametrize("presets", [["nope", "tupe-r"], pytest.param(None, marks=pytest.mark.slow)], ids=str)
def test_script_for_accelerators_runs_on_a_cpu(presets, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    gpu = importlib.import_module("benchmarks.gpu")
    if presets:
        monkeypatch.setattr(gpu, "PRESETS", presets)
        monkeypatch.setattr(gpu, "SPEED", ["ap", "tupe-r"])
    gpu.main(["--tiny", "--parts", "correctness,speed", "--out", str(tmp_path)])
    table = (tmp_path / "correctness.md").read_text(encoding="utf-8")
    assert "| tupe-r | sdpa | float32 |" in table and "flex_attention has no backward pass on a CPU" in table
    assert "over tolerance" not in table
    assert "modernbert" in (tmp_path / "speed.md").read_text(encoding="utf-8")


def test_packing_reads_distances_by_their_field(monkeypatch):
    """The page's note of shapes asked for `distance`, which is `distance_or_bucket` of `AttentionInputs`."""
    monkeypatch.syspath_prepend(ROOT)
    packing = importlib.import_module("benchmarks.packing")
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    batch = {"input_ids": documents + 7, "attention_mask": torch.ones_like(documents)}
    batch |= {"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]]), "document_ids": documents}
    shapes = packing._shapes(ww.preset("dstg", "tiny", vocab_size=40), batch)
    assert shapes == "mask (1, 1, 8, 8), bias (4, 15)"
