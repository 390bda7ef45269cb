"""Several studies on one page: what differs is said first, every number of a run is still that run's, claims stand side
by side."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from page_parser import Parsed

from whatwhere.records.record import Record, read_records, write_records
from whatwhere.report import write_page
from whatwhere.report.compare import comparison_page, merged, open_runs
from whatwhere.report.page import render_page


@pytest.fixture
def pair(build):
    """Two small runs of one corpus and one setting."""
    return [build("one", models=("dstg", "ap")), build("two", models=("dstg", "rope"))]


def change(folder: Path, name: str, **facts: object) -> None:
    found = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**found, **facts}))


def words(page) -> str:
    return "".join(Parsed(render_page(page)).words)


def test_models_are_named_by_run_and_keep_their_values(pair):
    studies = open_runs(pair)
    together = merged(studies)
    assert list(studies) == ["one", "two"] and together.models == ["one/dstg", "one/ap", "two/dstg", "two/rope"]
    for run, study in studies.items():
        for model in study.models:
            for metric, part in (("r2.token", "all"), ("r2.intra", "all")):
                curves = together.curve(metric, f"{run}/{model}", part), study.curve(metric, model, part)
                renamed, own = ({layer: p.at.tolist() for layer, p in curve.items()} for curve in curves)
                assert renamed == own
            assert (
                together.table.point("loss", f"{run}/{model}", part="validation").value
                == study.table.point("loss", model, part="validation").value
            )
    assert together.named("dstg") == "one/dstg" and together.depth("two/rope") == 4
    assert set(together.tables) == {("one/dstg", 0), ("one/ap", 0), ("two/dstg", 0)}
    np.testing.assert_array_equal(together.tables["two/dstg", 0]["scores"], studies["two"].tables["dstg", 0]["scores"])
    assert together.table.point("corpus.tokens").value == studies["one"].table.point("corpus.tokens").value


@pytest.mark.whole
def test_only_different_runs_need_a_caveat(pair):
    """Equal runs need no caveat and different ones get it first."""
    assert not any("These runs differ" in c for c in comparison_page(open_runs(pair)).caveats)
    change(pair[1], "study.json", corpus={"name": "wiki"}, size="small")
    caveats = comparison_page(open_runs(pair)).caveats
    assert caveats[0] == (
        "These runs differ in corpus (`one` python-docs, `two` wiki) and size (`one` tiny, `two` small): "
        "compare models within a run, not across runs."
    )
    assert caveats[1].startswith("Losses of different texts or vocabularies are on different scales")


def test_different_steps_forbid_ranking(build):
    """Other steps are a difference and nothing is ranked across them."""
    runs = [build("one", models=("ap",)), build("two", models=("ap",), steps=900)]
    page = comparison_page(open_runs(runs))
    assert page.caveats[0].startswith("These runs differ in steps (`one` 1,100, `two` 900): compare")
    losses = next(f for s in page.sections for f in s.figures if f.id == "loss")
    # Such a page said that all models see the same batches, which runs of other settings do not.
    assert next(s for s in page.sections if s.id == "learning").intro.startswith("Within a run, all models see")
    assert "Within a run, all models are trained" in page.how.words[0]
    assert page.pick is None and losses.title == "Loss by step, as drawn, of runs that differ"
    shown = [figure.title for section in page.sections for figure in section.figures]
    assert len(shown) > 3 and all(title.endswith(", of runs that differ") for title in shown)
    alike = comparison_page(open_runs([build("three", models=("ap",)), build("four", models=("rope",))]))
    assert alike.pick is not None


def test_each_corpus_keeps_its_plateau(pair):
    """Of different corpora each model keeps the plateau of its own."""
    change(pair[1], "study.json", corpus={"name": "wiki"})
    records = read_records(pair[1] / "records.parquet")
    write_records(
        pair[1] / "records.parquet",
        [r for r in records if r.metric != "loss.unigram"] + [Record("two", "", "loss.unigram", 3.0)],
    )
    together = merged(open_runs(pair))
    assert (
        together.table.point("corpus.tokens") is None and together.table.point("loss.unigram", "two/dstg").value == 3.0
    )
    assert together.stuck == ["two/dstg", "two/rope"]


def test_parts_that_are_models_are_renamed_too(pair):
    records = read_records(pair[0] / "records.parquet")
    records.append(Record("one", "ap", "regression.position", 0.5, seed=0, layer=1, part="dstg"))
    records.append(Record("one", "ap", "convergence.share", 0.5, seed=0, part="dstg"))
    write_records(pair[0] / "records.parquet", records)
    together = merged(open_runs(pair))
    assert together.table.rows("regression.position", "one/ap", part="one/dstg") and together.table.point(
        "convergence.share", "one/ap", part="one/dstg"
    )


def test_array_files_are_found_and_read_late(pair):
    """Array files are found under the new names and read late."""
    np.savez(pair[0] / "arrays" / "attention-ap-seed-0.npz", lags=np.arange(3.0))
    np.savez(pair[0] / "arrays" / "geometry-corpus.npz", positions=np.arange(2.0))
    (pair[1] / "arrays" / "hidden-rope-seed-1.npz").write_bytes(b"PK")
    together = merged(open_runs(pair))
    arrays = together.arrays
    assert set(arrays) == {"attention-one_ap-seed-0", "geometry-corpus", "hidden-two_rope-seed-1"} and len(arrays) == 3
    assert arrays["attention-one_ap-seed-0"]["lags"].tolist() == [0, 1, 2] and "hidden-two_rope-seed-1" in arrays
    assert together.arrays_of("attention", "one/ap") == (0, arrays["attention-one_ap-seed-0"])
    with pytest.raises(ValueError, match=r"hidden-rope-seed-1.npz"):
        arrays["hidden-two_rope-seed-1"]


def test_claims_of_different_verdicts_stand_side_by_side(pair):
    """Claims whose verdicts differ stand side by side and the others are named."""
    claims = json.loads((pair[1] / "claims.json").read_text())
    claims[0] |= {"verdict": "not seen here", "value": 0.125, "low": 0.0625, "high": None}
    (pair[1] / "claims.json").write_text(json.dumps(claims[:-1]))
    section = next(s for s in comparison_page(open_runs(pair)).sections if s.id == "claims")
    table = section.tables[0]
    kept = dict(zip(table.columns, table.rows[0], strict=True))
    assert kept["one"].raw == "holds here: 0.612 [0.598, 0.626]" and kept["two"].raw == "not seen here: 0.125"
    assert kept["Paper"].raw == "0.89" and len(table.rows) == 1
    assert section.intro.endswith(
        "Of 6 claims tested in a run, 5 have the same verdict in all: `lost`, `rope`, `plane`, `sem` and `slow`."
    ), section.intro


def test_the_page_holds_the_figures_of_all_runs(pair):
    text = render_page(comparison_page(open_runs(pair)))
    found = Parsed(text)
    assert [a["id"] for tag, a in found.elements if tag == "section"] == [
        "runs",
        "learning",
        "shape",
        "structure",
        "how",
    ]
    assert all(name in text for name in ("one/dstg", "one/ap", "two/dstg", "two/rope"))
    assert "2 runs compared: one, two" in text and "one: Run" in found.words and "two: dstg, seed 0" in found.words


def test_long_or_equal_names_become_letters(build, tmp_path):
    first = build("a-rather-long-name", models=("ap",))
    second = build("two", models=("ap",))
    studies = open_runs([first, second])
    assert list(studies) == ["A", "B"]
    assert "A (a-rather-long-name)" in words(comparison_page(studies))
    other = tmp_path / "elsewhere" / "two"
    other.parent.mkdir()
    other.symlink_to(second)
    with pytest.raises(ValueError, match="once more"):
        open_runs([second, other])


def test_what_cannot_be_compared_is_refused(pair, geometry_folder, tmp_path):
    with pytest.raises(ValueError, match="needs two studies or more, got 1"):
        open_runs(pair[:1])
    with pytest.raises(ValueError, match="once more. Name each run once"):
        open_runs([pair[0], pair[1], pair[0] / "arrays" / ".."])
    with pytest.raises(ValueError, match="is a geometry run, and studies alone are compared.*several --corpus"):
        open_runs([pair[0], geometry_folder])
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match=r"model is no study: it holds no records\.parquet"):
        open_runs([pair[0], tmp_path / "model"])
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "study.yaml").write_text("models: [ap]")
    with pytest.raises(ValueError, match="The study in .*begun is not finished. .*: whatwhere status .*begun"):
        open_runs([pair[0], tmp_path / "begun"])
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="model is a model, and studies alone"):
        open_runs([pair[0], tmp_path / "model"])


def test_records_of_another_version_name_their_run(pair):
    import pyarrow.parquet as pq

    path = pair[1] / "records.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"format": "whatwhere-records-0"}), path)
    with pytest.raises(
        ValueError, match=r"two/records.parquet has record format 'whatwhere-records-0'.*Run the study again"
    ):
        open_runs(pair)


def test_a_comparison_is_written_whole(pair, tmp_path):
    path = write_page(tmp_path / "new" / "comparison.html", comparison_page(open_runs(pair)))
    assert path.read_text(encoding="utf-8").endswith("</html>") and [p.name for p in path.parent.iterdir()] == [
        path.name
    ]


def with_seed(folder: Path, seed: int) -> Path:
    """Name the one training of a run by another seed."""
    records = [replace(r, seed=seed if r.seed is not None else None) for r in read_records(folder / "records.parquet")]
    write_records(folder / "records.parquet", records)
    for file in list((folder / "arrays").glob("*-seed-0.npz")):
        file.rename(file.with_name(file.name.replace("-seed-0", f"-seed-{seed}")))
    return folder


@pytest.mark.whole
def test_seeds_of_two_runs_do_not_add_up(build):
    """A run of seed 0 beside a run of seed 1 was said to have two training seeds, with intervals between them."""
    runs = [build("one", models=("ap",)), with_seed(build("two", models=("ap",)), 1)]
    together = merged(open_runs(runs))
    assert together.seeds == [0, 1] and together.trainings == (1, 1)
    text = words(comparison_page(open_runs(runs)))
    assert "One training seed" in text and "2 training seeds" not in text and "between seeds" not in text
    several = comparison_page(open_runs([runs[1], build("three", models=("ap",), seeds=(0, 1, 2))]))
    assert " 1 to 3 training seeds a model: intervals between few of them are wide." in several.caveats[-1]


def held_out(folder: Path, number: int, **training: object) -> Path:
    """Give a run the loss of four held-out documents, its source, and settings of its training."""
    records = read_records(folder / "records.parquet")
    (model,) = {r.model for r in records if r.metric == "loss"}
    losses = [3.0 + i + number / 10 + i / 100 for i in range(4)]
    records += [Record(folder.name, model, "loss.document", v, seed=0, index=i) for i, v in enumerate(losses)]
    write_records(folder / "records.parquet", records)
    entries = json.loads((folder / "study.json").read_text())["models"]
    entries = [entry | {"training": entry["training"] | training} for entry in entries]
    corpus = {"name": "docs", "length": 128, "vocab_size": 4096, "join": "none", "source": {"name": "docs"}}
    change(folder, "study.json", models=entries, corpus=corpus)
    return folder


@pytest.mark.whole
def test_other_held_out_documents_are_not_paired(build):
    """Document 7 of one run was paired with document 7 of a run that held back others, and the two were ranked."""
    first = held_out(build("one", models=("ap",)), 0, held_out=0.05)
    same = held_out(build("two", models=("rope",)), 2, held_out=0.05)
    alike = comparison_page(open_runs([first, same])).pick
    assert alike is not None and "the same 4 held-out documents" in alike.table.caption
    other = held_out(build("three", models=("rope",)), 2, held_out=0.1)
    page = comparison_page(open_runs([first, other]))
    assert page.pick is None
    assert page.caveats[0].startswith("These runs differ in held-out share (`one` 0.05, `three` 0.1): compare")
    known = held_out(build("four", models=("ap",)), 0), held_out(build("five", models=("rope",)), 2)
    unknown = comparison_page(open_runs(known)).pick
    assert unknown is not None and unknown.table.caption.startswith("Loss: nats, all held-out masked tokens.")
