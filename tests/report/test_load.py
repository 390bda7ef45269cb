"""Reading a study folder: invisible characters shown, damaged files refused in one line."""

import numpy as np
import pytest

from whatwhere.records import Record, write_records
from whatwhere.report.load import Study, load_study, visible


def r2(value, layer=1):
    return Record("s", "ap", "r2.token", value, seed=0, layer=layer, part="all", n=10)


def test_visible_shows_what_cannot_be_seen():
    assert visible("a\u202eb\u2066c\u200bd\x00e\ufefff") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf"
    assert visible({"k\u202e": ["x\u061c", 1, None]}) == {"k\ufffd": ["x\ufffd", 1, None]}
    assert visible("naïve 文字\n") == "naïve 文字\n"


def test_the_last_position_layer_is_trained_only_if_the_head_reads_it():
    entries = [{"name": n, "config": {"num_hidden_layers": 4, "mlm_head": head}} for n, head in (("a", "semantic"), ("b", "full"))]
    study = Study("s", {"models": entries})
    assert [study.trained_until("a", p) for p in ("position", "semantic", "all")] == [3, 4, 4]
    assert study.trained_until("b", "position") == 4


def test_a_study_is_read_whole(demo):
    study = load_study(demo)
    assert study.models == ["dstg", "ap", "rp", "rope"] and study.seeds == [0] and study.depth("ap") == 4
    assert set(study.curve("r2.token", "dstg", "position")) == {0, 1, 2, 3, 4}
    assert set(study.tables) == {("dstg", 0), ("ap", 0)} and len(study.claims) == 7


def test_records_alone_are_enough(tmp_path):
    write_records(tmp_path / "records.parquet", [r2(0.5), r2(0.4, layer=6)])
    study = load_study(tmp_path)
    assert study.models == ["ap"] and study.depth("ap") == 6 and study.claims == [] and study.tables == {}


def test_no_records_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="No records at"):
        load_study(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"), [("study.json", b"{"), ("study.json", b"[]"), ("claims.json", b"{}"), ("claims.json", b"\xff\xfe")]
)
def test_a_damaged_json_file_is_an_error(tmp_path, name, content):
    write_records(tmp_path / "records.parquet", [r2(0.5)])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}.*Delete it and run the command again"):
        load_study(tmp_path)


@pytest.mark.parametrize("cut", [0, 40, -60])
def test_a_truncated_array_file_is_an_error(build, cut):
    folder = build()
    path = folder / "arrays" / "table-ap-seed-0.npz"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match="table-ap-seed-0.npz.*Delete it"):
        load_study(folder)


def test_an_array_file_with_a_pickle_is_refused(build):
    folder = build()
    np.savez(folder / "arrays" / "table-ap-seed-0.npz", scores=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="table-ap-seed-0.npz"):
        load_study(folder)


def test_array_files_are_read_when_they_are_asked_for(build):
    folder = build()
    np.savez(folder / "arrays" / "attention-ap-seed-0.npz", lags=np.arange(3, dtype=np.float32))
    (folder / "arrays" / "hidden-ap-seed-0.npz").write_bytes(b"PK")
    study = load_study(folder)  # the damaged file is nobody's yet
    assert set(study.arrays) == {"attention-ap-seed-0", "hidden-ap-seed-0", "table-ap-seed-0", "table-dstg-seed-0"}
    found = study.arrays["attention-ap-seed-0"]
    assert found["lags"].tolist() == [0, 1, 2] and found["lags"].dtype == float and study.arrays["attention-ap-seed-0"] is found
    assert "hidden-ap-seed-0" in study.arrays and len(study.arrays) == 4 and study.arrays.get("none") is None
    with pytest.raises(ValueError, match=r"hidden-ap-seed-0.npz.*Delete it"):
        study.arrays["hidden-ap-seed-0"]


def test_the_corpus_is_no_model_and_the_untrained_model_has_curves_of_its_own():
    place = {"study": "s", "model": "ap", "seed": 0, "layer": 1}
    records = [
        Record(metric="r2.token", value=0.3, part="all", **place),
        Record(metric="r2.token", value=0.9, part="all", step=0, **place),
        Record(metric="r2.token", value=0.2, part="all.pca2", **place),
        Record("s", "corpus", "stress.raw", 0.1, part="rope"),
    ]
    study = Study("s", records=records)
    assert study.models == ["ap"] and study.parts("r2.token", "ap") == ["all"]
    assert study.curve("r2.token", "ap", "all")[1].value == 0.3 and study.curve("r2.token", "ap", "all", step=0)[1].value == 0.9
    named = Study("s", {"models": [{"name": "corpus"}]}, records)
    assert named.models == ["corpus", "ap"]
