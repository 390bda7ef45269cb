"""The script of docs/results/...published-encoders on small random models: every part measures, its numbers are those
of NumPy and of loops, and what papers print stands beside the right record."""

import json
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from cli_runner import sentences
from foreign_models import save
from safetensors.numpy import load_file
from scripts import module_of

from whatwhere.records.metrics import metric
from whatwhere.records.record import Record, read_records, select

pytestmark = pytest.mark.long

(SCRIPT,) = Path(__file__).parents[1].glob("docs/results/*published-encoders/encoders.py")
# The first one has the name of a model that papers print values of.
NAMES = {
    "bert-base-uncased": "bert",
    "mpnet-small": "mpnet",
    "modernbert-small": "modernbert",
    "albert-small": "albert",
    "roberta-small": "roberta",
    "electra-small": "electra",
}
READ = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")  # of a model, to open it
WITH_TABLE = [name for name in NAMES if name != "modernbert-small"]


@pytest.fixture(scope="module")
def script():
    return module_of(SCRIPT)


@pytest.fixture(scope="module")
def measured(script, tmp_path_factory):
    """Measure every architecture by the script's own command line; return the folder and its arguments."""
    place = tmp_path_factory.mktemp("encoders")
    text = place / "text.txt"
    text.write_text("\n\n".join(sentences(40, seed).replace("\n\n", " ") for seed in range(30)), encoding="utf-8")
    lines = place / "lines.jsonl"
    lines.write_text("".join(json.dumps({"text": t}) + "\n" for t in sentences(700).split("\n\n")), encoding="utf-8")
    models = [f"{name}={save(kind, place / kind)}" for name, kind in NAMES.items()]
    options = ["--out", str(place / "out"), "--text", str(text), "--corpus", f"lines={lines}:text:12:phrases"]
    options += ["--documents", "24", "--pictured", "12", "--long", "6", "--splits", "2"]
    options += ["--method", "cyclic", "--method", "linear"]
    script.main([*options, *models])
    return place, [*options, *models]


@pytest.fixture(scope="module")
def records(measured):
    return read_records(measured[0] / "out/records.parquet")


def table_of(place, kind):
    (weights,) = (place / kind).glob("*.safetensors")
    return next(v for k, v in load_file(weights).items() if k.endswith("position_embeddings.weight")).astype(float)


def smallest(rows):
    return min(np.linalg.norm(a - b) for i, a in enumerate(rows) for b in rows[:i])


def test_every_part_measures_what_a_model_has(records):
    parts = {
        "tables": ("pca.top3", *WITH_TABLE),
        "probes": ("r2.token", *NAMES),
        "sentences": ("sentences.excess", *NAMES),
        "heads": ("pattern", *NAMES),
        "matrices": ("projected.stress.raw", *NAMES),
        "conditions": ("h3", *(name for name in NAMES if name != "albert-small")),  # a map lies between
        "length": ("length.lost", *WITH_TABLE),
    }
    for name, *models in parts.values():
        assert {r.model for r in records if r.metric == name} == set(models), name
    for name in ("r2.token", "sentences.excess", "projected.stress.raw"):
        assert {(r.step, r.seed) for r in records if r.metric == name} == {(None, None), (0, 0)}


@pytest.mark.parametrize(("name", "unused"), [("bert-base-uncased", 0), ("mpnet-small", 2), ("roberta-small", 2)])
def test_tables_are_those_of_the_weights(measured, records, name, unused):
    """Shares equal NumPy's SVD of the centred rows, and separation a loop over pairs.

    First rows of MPNet and RoBERTa are none.
    """
    table = table_of(measured[0], NAMES[name])[unused:]
    squares = np.linalg.svd(table - table.mean(0), compute_uv=False) ** 2
    (top,) = select(records, model=name, metric="pca.top3", part=None)
    assert top.value == pytest.approx(squares[:3].sum() / squares.sum())
    (first,) = select(records, model=name, metric="separation", study="lines, first rows")
    assert first.value == pytest.approx(smallest(table[:12]))
    (behind,) = select(records, model=name, metric="separation", study="lines, paper")
    assert behind.value == pytest.approx(smallest(table[1:13]))


def test_what_is_measured_is_not_measured_again(script, measured, capsys):
    place, arguments = measured
    before = {path: path.stat().st_mtime_ns for path in (place / "out").glob("*-*.parquet")}
    script.main(arguments)
    assert before == {path: path.stat().st_mtime_ns for path in (place / "out").glob("*-*.parquet")}
    assert len(before) == 5 * len(NAMES) - 2  # ModernBERT has no table, and none that can go on
    printed = capsys.readouterr().out
    assert "| bert-base-uncased | LOWDIM table 1a, positions, top 3 | 0.25 |" in printed
    assert "| albert" not in printed and printed.count("## ") == len(NAMES)


def test_a_part_that_failed_is_tried_again(script, measured, tmp_path, monkeypatch, capsys):
    """A part that fails leaves no file; it left an empty one, and counted as done for ever."""
    _, arguments = measured
    options = [*arguments[2:6], "--out", str(tmp_path), "--parts", "tables", arguments[-1]]
    works = script.PARTS["tables"]

    def fails(_):
        raise ValueError("The text is too short.")

    monkeypatch.setitem(script.PARTS, "tables", fails)
    script.main(options)
    assert "electra-small: tables: left out. The text is too short." in capsys.readouterr().err
    assert not list(tmp_path.glob("*-tables.parquet"))
    monkeypatch.setitem(script.PARTS, "tables", works)
    script.main(options)
    assert read_records(tmp_path / "electra-small-tables.parquet") == read_records(tmp_path / "records.parquet") != []


def test_names_on_the_hub_are_measured_from_its_cache(script, measured, tmp_path, monkeypatch, capsys):
    """Every part takes a name on the Hub: `length` refused it as no folder. A name without a model is told.

    The cache holds links to files elsewhere, as the Hub's own does.
    """
    place, arguments = measured
    cache = tmp_path / "cache"
    cache.mkdir()
    for file in (place / "roberta").iterdir():
        (cache / file.name).symlink_to(file)

    def snapshot_download(name, *, allow_patterns, ignore_patterns):
        if name != "roberta-base":
            raise OSError("no such model")
        assert all(any(fnmatch(file.name, p) for p in allow_patterns) for file in cache.iterdir() if file.name in READ)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.chdir(tmp_path)
    script.main(["--hub", *arguments[2:-6], "--out", "out", "--parts", "tables,length"])
    found = read_records(tmp_path / "out/records.parquet")
    assert {(r.model, r.metric) for r in found} >= {("roberta-base", m) for m in ("pca.top3", "length.lost")}
    said = capsys.readouterr().err
    assert {r.model for r in found} == {"roberta-base"} and said.count("the Hub returns no such model") == 4


def test_printed_values_meet_their_own_records(script):
    """Within what the last digit allows is agreement; a peak counts where the nearest one is it; a missing record is
    told."""
    made = [
        Record(script.STUDY, "m", "pca.top3", 0.254),
        Record(script.STUDY, "m", "pca.top3", 0.9, part="words"),
        Record(script.STUDY, "m", "pca.top3", 0.9, step=0),
        Record(script.STUDY, "m", "outlier", 4.0, index=0),
        *(Record(script.STUDY, "m", "fft.peak", value, index=i) for i, value in enumerate((49.0, 5.0))),
        Record("sst-2, paper", "m", "projected.stress.raw", 4400.0, layer=3, part="sinusoidal"),
    ]
    layer = {"study": "sst-2, paper", "metric": "projected.stress.raw", "part": "sinusoidal", "layer": 3}
    cases = [
        ({"metric": "pca.top3", "part": None}, 0.25, 0.005, "yes"),
        ({"metric": "pca.top3", "part": None}, 0.26, 0.005, "no"),
        ({"metric": "outlier", "index": 0}, None, 0, "yes"),
        ({"metric": "outlier", "index": 511}, None, 0, "no"),
        ({"metric": "fft.peak"}, 5, 0.5, "yes"),
        ({"metric": "fft.peak"}, 15, 0.5, "no"),
        (layer, 5000, 500, "no"),
        (layer | {"layer": 4}, 1500, 400, "not measured"),
    ]
    entries = [{"model": "m", "source": "s", "record": r, "value": v, "within": w} for r, v, w, _ in cases]
    verdicts = [line.split(" | ")[-1].rstrip(" |") for line in script.compared(made, entries)[2:]]
    assert verdicts == [verdict for *_, verdict in cases]
    assert script.compared(made, [entries[0] | {"model": "another"}]) == []


def test_expected_values_name_known_metrics(script):
    entries = json.loads(script.EXPECTED.read_text("utf-8"))
    assert {"bert-base-uncased", "albert-base-v2"} <= {entry["model"] for entry in entries}
    for entry in entries:
        assert metric(entry["record"]["metric"]) and entry["within"] >= 0 and entry["source"]


def test_options_are_refused_in_a_line(script, capsys):
    for wrong in (["--corpus", "x=y"], ["--parts", "tables,heds"]):
        with pytest.raises(SystemExit):
            script.main(["--out", "o", "--text", "t", "m", *wrong])
    said = capsys.readouterr().err
    assert "a corpus is NAME=FILE:FIELD:POSITIONS" in said and "unknown part 'heds'" in said
