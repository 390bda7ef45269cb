"""A geometry run's folder comes in whole, cleaned of what cannot be seen, and a damaged file is one clear line."""

import json
from dataclasses import replace

import numpy as np
import pytest

from whatwhere.records import Record, read_records, write_records
from whatwhere.report.geometry_load import Corpus, Geometry, load_geometry


def test_records_arrays_and_facts_come_in(geometry_folder):
    run = load_geometry(geometry_folder)
    assert [c.name for c in run.corpora] == ["reviews", "tags"] and not run.paper
    reviews = run.corpora[0]
    assert sorted(reviews.positions + reviews.left_out) == list(range(24)) and reviews.number("positions_asked") == 24
    assert reviews.matrix("distance").shape == (len(reviews.positions),) * 2 and reviews.vector("distance") is None
    assert run.models == ["from-pretrained", "from-scratch"]


def test_summaries_indices_and_steps_are_told_apart(geometry_folder):
    run = load_geometry(geometry_folder)
    whole, ranks = run.point("stress.optimal", "reviews", "mds"), run.by_index("stress.optimal", "reviews", "mds")
    assert whole.value < 1e-20 and list(ranks) == sorted(ranks) and None not in ranks
    assert whole.low <= whole.value <= whole.high and whole.over == "documents"
    assert list(run.by_step("separation", "from-scratch")) == [0, 50, 100, 200, 500, 1000, 2000, 4200]
    assert len(run.by_step("separation.quantile", "from-scratch", 50)) == 8
    assert run.point("separation", "from-scratch") is None


def test_steps_are_of_one_seed_and_of_the_rows_of_the_corpus_if_there_are_any():
    def at(step, value, part, seed):
        return Record("s", "m", "separation", value, step=step, part=part, seed=seed)

    records = [at(0, 9.0, None, 0), at(0, 1.0, "used", 0), at(5, 2.0, "used", 0), at(5, 3.0, "used", 1), at(5, 4.0, "corpus", 0)]

    def values(records):
        run = Geometry("run", records=records)
        return run.rows_of("separation", "m"), {s: p.value for s, p in run.by_step("separation", "m").items()}

    assert values(records) == ("corpus", {5: 4.0})
    assert values(records[:4]) == ("used", {0: 1.0, 5: 2.0})
    assert values(records[:1]) == (None, {0: 9.0})


def test_words_among_the_arrays_are_made_visible_and_are_no_numbers(geometry_folder, tmp_path):
    assert load_geometry(geometry_folder).corpora[0].words == {"scatter_names": ["sinusoidal", "rope", "alibi", "random"]}
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "geometry-a.npz", scatter_names=np.array(["b\u202e"]), lag=[1, 2])
    write_records(tmp_path / "records.parquet", [])
    (tmp_path / "geometry.json").write_text(json.dumps({"corpora": [{"name": "a"}]}))
    corpus = load_geometry(tmp_path).corpora[0]
    assert corpus.words == {"scatter_names": ["b\ufffd"]} and list(corpus.arrays) == ["lag"]


def test_what_is_not_finite_is_not_measured():
    records = [Record("s", "c", "rank", float("nan")), Record("s", "c", "floor.mean", 1.0, float("nan"), 2.0)]
    run = Geometry("run", records=records)
    assert run.point("rank", "c") is None and run.point("floor.mean", "c").low is None
    assert Corpus("c", {"documents": float("inf"), "tokens": True}).number("documents") is None
    assert Corpus("c", arrays={"lag": np.array([np.nan])}).vector("lag") is None


def test_a_corpus_may_name_its_file_and_hidden_characters_are_shown(tmp_path):
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "geometry-texts-1.npz", positions=[0, 2], left_out=[1])
    write_records(tmp_path / "records.parquet", [Record("s", "a/\u202eb", "rank", 2.0)])
    (tmp_path / "geometry.json").write_text(json.dumps({"corpora": [{"name": "a/\u202eb", "file": "texts-1"}, {"no": "name"}, 3]}))
    run = load_geometry(tmp_path)
    assert [c.name for c in run.corpora] == ["a/\ufffdb"] and run.corpora[0].positions == [0, 2] and run.corpora[0].left_out == [1]
    assert run.point("rank", "a/\ufffdb").value == 2.0


def test_a_corpus_without_arrays_is_read(tmp_path):
    write_records(tmp_path / "records.parquet", [])
    (tmp_path / "geometry.json").write_text(json.dumps({"corpora": [{"name": "a"}]}))
    assert load_geometry(tmp_path).corpora[0].positions == []


@pytest.mark.parametrize(("name", "content"), [("geometry.json", b"{"), ("geometry.json", b"[]"), ("arrays/geometry-reviews.npz", b"PK")])
def test_a_damaged_file_is_an_error(geometry_folder, tmp_path, name, content):
    (tmp_path / "arrays").mkdir()
    write_records(tmp_path / "records.parquet", [replace(r) for r in read_records(geometry_folder / "records.parquet")[:3]])
    (tmp_path / "geometry.json").write_bytes((geometry_folder / "geometry.json").read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}.*Delete it and run the command again"):
        load_geometry(tmp_path)


def test_no_records_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="No records at"):
        load_geometry(tmp_path)
