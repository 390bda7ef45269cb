"""`whatwhere spectra` as a whole: the text table, the folder it writes, one's own files left alone."""

import json
import shlex

import numpy as np
import pytest
from cli_runner import whatwhere
from run_files import missing, unexplained
from transformers import BertConfig, BertModel

from whatwhere.analysis.position_tables import noise_records, table_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import read_records
from whatwhere.run.verify import verify
from whatwhere.study.spectra_run import measure_tables, run_spectra, spectra_text


@pytest.fixture
def sources(tmp_path):
    turn = 2 * np.pi * 5 * np.arange(64)[:, None] / 64
    noise = np.random.default_rng(0).normal(size=(64, 6))
    np.save(tmp_path / "circle.npy", np.concatenate([2 * np.cos(turn), 2 * np.sin(turn)], 1) @ noise[:2] + 0.02 * noise)
    sizes = {
        "vocab_size": 90,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(**sizes, max_position_embeddings=40)).save_pretrained(tmp_path / "bert")
    return tmp_path / "circle.npy", tmp_path / "bert"


def test_the_text_holds_lowdim_table_1_and_the_rest(sources):
    run = measure_tables(sources[1:], words=True)
    run = type(run)(run.tables, run.records, ["rope"])
    lines = spectra_text(run).splitlines()
    heads = [i for i, line in enumerate(lines) if line.split()[0:1] in (["positions"], ["words"]) and "top 3" in line]
    assert [lines[i].split()[0] for i in heads] == ["positions", "words"]
    records = {r.metric: r for r in run.records[0] if r.index is None}
    expected = ["bert", "40", "16", "16", *(f"{records[f'pca.top{k}'].value:.2f}" for k in (3, 5, 10))]
    assert lines[heads[0] + 1].split() == [
        *expected,
        f"{records['n50.count'].value:.0f}",
        f"{records['n50'].value:.1f}",
    ]
    assert lines[heads[1] + 1].split()[:4] == ["bert", "90", "16", "16"]
    assert lines[-1] == "no position table: rope"


def test_the_text_names_turns_rotations_and_outliers(sources):
    text = " ".join(spectra_text(measure_tables(sources[:1])).split())
    assert "1+2 5.0 turns (" in text and "dominant turns 5" in text
    assert "positions alone none" in text and "equivariance of E E^T" in text


def test_a_folder_holds_records_arrays_facts_and_a_page(sources, tmp_path):
    run, page = run_spectra(sources, tmp_path / "out", words=False)
    assert page == tmp_path / "out/report.html" and page.read_text(encoding="utf-8").startswith("<!doctype html>")
    records = read_records(tmp_path / "out/records.parquet")
    context = RecordContext("circle", run_name="out")
    table = np.load(sources[0])
    expected = table_records(table, context)[0] + noise_records(table, context)
    assert [r for r in records if r.model == "circle"] == expected
    facts = json.loads((tmp_path / "out/spectra.json").read_text())
    assert [(e["name"], e["kind"], e["rows"], e["width"], e["arrays"]) for e in facts["tables"]] == [
        ("circle", "positions", 64, 6, "arrays/table-circle.npz"),
        ("bert", "positions", 40, 16, "arrays/table-bert.npz"),
    ]
    assert facts["left_out"] == []
    with np.load(tmp_path / "out/arrays/table-circle.npz", allow_pickle=False) as arrays:
        assert arrays["scores"].shape == (64, 6) and arrays["products"].shape == (3, 64, 64)


def test_the_recorded_command_runs_again(sources, tmp_path):
    """Paths with a space stood in it without quotes."""
    source = sources[0].rename(tmp_path / "a circle.npy")
    run_spectra([source], tmp_path / "the out")
    program, *words = shlex.split(json.loads((tmp_path / "the out/spectra.json").read_text())["command"])
    assert program == "whatwhere" and words == ["spectra", str(source), "--out", "NEW-FOLDER"]
    done = whatwhere(*words[:-1], str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    # It left out the scheme, without which a model with one of its own does not open.
    run_spectra([source], tmp_path / "third", scheme="my scheme.py")
    words = shlex.split(json.loads((tmp_path / "third/spectra.json").read_text())["command"])
    assert words[-4:-2] == ["--scheme", "my scheme.py"]


def test_other_sources_and_other_folders_are_refused(sources, tmp_path):
    run_spectra(sources[1:], tmp_path / "out", words=True)
    assert sorted(p.name for p in (tmp_path / "out/arrays").iterdir()) == ["table-bert.npz", "words-bert.npz"]
    assert not unexplained(tmp_path / "out", "spectra SOURCE")
    assert missing(tmp_path / "out", "spectra SOURCE") == set()
    assert {r.part for r in read_records(tmp_path / "out/records.parquet")} >= {None, "words"}
    with pytest.raises(ValueError, match="was started with words=True, this command has words=False"):
        run_spectra(sources[1:], tmp_path / "out")
    with pytest.raises(ValueError, match="was started with sources="):
        run_spectra(sources[:1], tmp_path / "out", words=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="thesis is not empty and holds no spectra run"):
        run_spectra(sources, tmp_path / "thesis")
    with pytest.raises(ValueError, match="circle.npy is a file"):
        run_spectra(sources, sources[0])
    assert [p.name for p in (tmp_path / "thesis").iterdir()] == ["thesis.txt"]


def test_what_a_killed_call_left_is_no_obstacle(sources, tmp_path):
    """It was refused as something else's folder, as was that of `heads`: spectra.json and study.json come last."""
    run_spectra(sources[1:], tmp_path / "out")
    for name in ("spectra.json", "report.html"):
        (tmp_path / "out" / name).unlink()
    run_spectra(sources[1:], tmp_path / "out")
    assert (tmp_path / "out/report.html").is_file()
    assert not verify(tmp_path / "out")[1]


def test_a_table_of_equal_rows_is_named(tmp_path):
    np.save(tmp_path / "flat.npy", np.ones((4, 3)))
    with pytest.raises(ValueError, match="flat.npy, positions: All 4 rows of the table are equal"):
        measure_tables([tmp_path / "flat.npy"])
