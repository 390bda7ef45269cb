"""Reading a study folder: invisible characters shown, damaged files refused in one line."""

import json

import numpy as np
import pytest

from whatwhere.records.record import Record, read_records, write_records
from whatwhere.report.how import summary
from whatwhere.report.loaded_run import Corpus, Run, load_run, visible


def r2(value, layer=1):
    return Record("s", "ap", "r2.token", value, seed=0, layer=layer, part="all", n=10)


def test_visible_shows_what_cannot_be_seen():
    assert visible("a\u202eb\u2066c\u200bd\x00e\ufefff") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf"
    assert visible({"k\u202e": ["x\u061c", 1, None]}) == {"k\ufffd": ["x\ufffd", 1, None]}
    assert visible("naïve 文字\n") == "naïve 文字\n"


def test_last_position_layers_need_a_reading_head():
    """The last position layer is trained only if the head reads it."""
    entries = [
        {"name": n, "config": {"num_hidden_layers": 4, "mlm_head": head}}
        for n, head in (("a", "semantic"), ("b", "full"))
    ]
    study = Run("s", {"models": entries})
    assert [study.trained_until("a", p) for p in ("position", "semantic", "all")] == [3, 4, 4]
    assert study.trained_until("b", "position") == 4


def test_a_study_is_read_whole(demo):
    study = load_run(demo)
    assert study.models == ["dstg", "ap", "rp", "rope"] and study.seeds == [0] and study.depth("ap") == 4
    assert set(study.curve("r2.token", "dstg", "position")) == {0, 1, 2, 3, 4}
    assert set(study.tables) == {("dstg", 0), ("ap", 0)} and len(study.claims) == 7


def test_models_without_a_configuration_have_no_depth_to_tell():
    """A page of four layers told of "1 to 4 layers", because of the models after SimCSE."""
    records = [Record("r", model, "mteb.score", 0.5, part="t") for model in ("a", "a+simcse")]
    run = Run("r", {"models": [{"name": "a", "config": {"num_hidden_layers": 4}}]}, records)
    assert "2 models, 4 layers" in summary(run)


def test_records_alone_are_enough(tmp_path):
    write_records(tmp_path / "records.parquet", [r2(0.5), r2(0.4, layer=6)])
    study = load_run(tmp_path)
    assert study.models == ["ap"] and study.depth("ap") == 6 and study.claims == [] and study.tables == {}


def test_no_records_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="No records at"):
        load_run(tmp_path)


@pytest.mark.parametrize("file", ["training.json", "pretrain.yaml"])
def test_a_training_is_no_run_of_records(file, tmp_path):
    """Of an unfinished training `report` said that a study writes its records."""
    (tmp_path / file).touch()
    with pytest.raises(ValueError, match="is a model, which has no records"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("study.json", b"{"), ("study.json", b"[]"), ("claims.json", b"{}"), ("claims.json", b"\xff\xfe")],
)
def test_a_damaged_json_file_is_an_error(tmp_path, name, content):
    write_records(tmp_path / "records.parquet", [r2(0.5)])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}.*Delete it and run the command again"):
        load_run(tmp_path)


@pytest.mark.parametrize("cut", [0, 40, -60])
def test_a_truncated_array_file_is_an_error(build, cut):
    folder = build()
    path = folder / "arrays" / "table-ap-seed-0.npz"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match="table-ap-seed-0.npz.*Delete it"):
        load_run(folder)


def test_an_array_file_with_a_pickle_is_refused(build):
    folder = build()
    np.savez(folder / "arrays" / "table-ap-seed-0.npz", scores=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="table-ap-seed-0.npz"):
        load_run(folder)


def test_array_files_are_read_when_they_are_asked_for(build):
    folder = build()
    np.savez(folder / "arrays" / "attention-ap-seed-0.npz", lags=np.arange(3, dtype=np.float32))
    (folder / "arrays" / "hidden-ap-seed-0.npz").write_bytes(b"PK")
    study = load_run(folder)  # the damaged file is nobody's yet
    assert set(study.arrays) == {"attention-ap-seed-0", "hidden-ap-seed-0", "table-ap-seed-0", "table-dstg-seed-0"}
    found = study.arrays["attention-ap-seed-0"]
    assert (
        found["lags"].tolist() == [0, 1, 2]
        and found["lags"].dtype == float
        and study.arrays["attention-ap-seed-0"] is found
    )
    assert "hidden-ap-seed-0" in study.arrays and len(study.arrays) == 4 and study.arrays.get("none") is None
    with pytest.raises(ValueError, match=r"hidden-ap-seed-0.npz.*Delete it"):
        study.arrays["hidden-ap-seed-0"]


def test_corpus_and_untrained_model_are_kept_apart():
    """The corpus is no model and the untrained model has curves of its own."""
    place = {"study": "s", "model": "ap", "seed": 0, "layer": 1}
    records = [
        Record(metric="r2.token", value=0.3, part="all", **place),
        Record(metric="r2.token", value=0.9, part="all", step=0, **place),
        Record(metric="r2.token", value=0.2, part="all.pca2", **place),
        Record("s", "corpus", "stress.raw", 0.1, part="rope"),
    ]
    study = Run("s", records=records)
    assert study.models == ["ap"] and study.parts("r2.token", "ap") == ["all"]
    assert (
        study.curve("r2.token", "ap", "all")[1].value == 0.3
        and study.curve("r2.token", "ap", "all", step=0)[1].value == 0.9
    )
    named = Run("s", {"models": [{"name": "corpus"}]}, records)
    assert named.models == ["corpus", "ap"]


def test_records_arrays_and_facts_come_in(geometry_folder):
    run = load_run(geometry_folder)
    assert [c.name for c in run.corpora] == ["reviews", "tags"]
    reviews = run.corpora[0]
    assert sorted(reviews.positions + reviews.left_out) == list(range(24)) and reviews.number("positions_asked") == 24
    assert reviews.array("distance", 2).shape == (len(reviews.positions),) * 2 and reviews.array("distance") is None
    assert sorted(run.models) == ["from-pretrained", "from-scratch"]


def test_summaries_indices_and_steps_are_told_apart(geometry_folder):
    table = load_run(geometry_folder).table
    whole = table.point("stress.optimal", "reviews", part="mds")
    ranks = table.points("stress.optimal", "reviews", by="index", part="mds")
    assert whole.value < 1e-20 and list(ranks) == sorted(ranks) and None not in ranks
    assert whole.low <= whole.value <= whole.high and whole.over == "documents"
    steps = table.points("separation", "from-scratch", by="step", part="corpus")
    assert list(steps) == [0, 50, 100, 200, 500, 1000, 2000, 4200]
    assert table.point("separation", "from-scratch") is None


def test_words_in_arrays_are_made_visible(geometry_folder, tmp_path):
    """Words among the arrays are made visible and are no numbers."""
    assert load_run(geometry_folder).corpora[0].names("scatter_names") == ["sinusoidal", "rope", "alibi", "random"]
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "geometry-a.npz", scatter_names=np.array(["b\u202e"]), lag=[1, 2])
    write_records(tmp_path / "records.parquet", [])
    (tmp_path / "geometry.json").write_text(json.dumps({"corpora": [{"name": "a"}]}))
    corpus = load_run(tmp_path).corpora[0]
    assert corpus.names("scatter_names") == ["b\ufffd"] and corpus.names("lag") == []


def test_what_is_not_finite_is_not_measured():
    records = [Record("s", "c", "rank", float("nan")), Record("s", "c", "floor.mean", 1.0, float("nan"), 2.0)]
    run = Run("run", records=records)
    assert run.table.point("rank", "c") is None and run.table.point("floor.mean", "c").low is None
    assert Corpus("c", "c", {"documents": float("inf"), "tokens": True}).number("documents") is None
    assert Corpus("c", "c", arrays={"lag": np.array([np.nan])}).array("lag") is None


def test_a_corpus_may_name_its_file(tmp_path):
    """A corpus may name its file and hidden characters are shown."""
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "geometry-texts-1.npz", positions=[0, 2], left_out=[1])
    write_records(tmp_path / "records.parquet", [Record("s", "a/\u202eb", "rank", 2.0)])
    (tmp_path / "geometry.json").write_text(
        json.dumps({"corpora": [{"name": "a/\u202eb", "file": "texts-1"}, {"no": "name"}, 3]})
    )
    run = load_run(tmp_path)
    assert (
        [c.name for c in run.corpora] == ["a/\ufffdb"]
        and run.corpora[0].positions == [0, 2]
        and run.corpora[0].left_out == [1]
    )
    assert run.table.point("rank", "a/\ufffdb").value == 2.0


def test_a_corpus_without_arrays_is_read(tmp_path):
    write_records(tmp_path / "records.parquet", [])
    (tmp_path / "geometry.json").write_text(json.dumps({"corpora": [{"name": "a"}]}))
    assert load_run(tmp_path).corpora[0].positions == []


@pytest.mark.parametrize(
    ("name", "content"), [("geometry.json", b"{"), ("geometry.json", b"[]"), ("arrays/geometry-reviews.npz", b"PK")]
)
def test_damaged_geometry_files_are_errors(geometry_folder, tmp_path, name, content):
    """A damaged file of a geometry run is an error."""
    (tmp_path / "arrays").mkdir()
    write_records(tmp_path / "records.parquet", read_records(geometry_folder / "records.parquet")[:3])
    (tmp_path / "geometry.json").write_bytes((geometry_folder / "geometry.json").read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}.*Delete it and run the command again"):
        load_run(tmp_path)
