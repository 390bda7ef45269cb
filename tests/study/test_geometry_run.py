"""`whatwhere geometry`: from text to records, arrays, a table that a model loads and a page; what it refuses, in one
line each."""

import json
import shlex
import shutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from cli_runner import sentences, whatwhere
from run_files import missing, unexplained
from transformers import AutoTokenizer

import whatwhere as ww
from whatwhere.corpus import counting
from whatwhere.corpus.tokenizer import unit_tokenizer
from whatwhere.geometry import hellinger, positional_distributions, stress
from whatwhere.geometry.counts import Counts
from whatwhere.models.table_sources import load_tables
from whatwhere.records.record import read_records, select
from whatwhere.report import write_report
from whatwhere.run.status import run_status
from whatwhere.study import geometry_run
from whatwhere.study.geometry_run import GeometryConfig, run_geometry

THREE = "synthetic:three-regimes:documents=1500,vocabulary=80,n=16"
FEW = ("--set", "splits=2", "--set", "groups=8", "--set", "dims=[16, 64]", "--set", "ranks=[1, 2]", "--set", "width=64")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("geometry") / "run"
    words = [
        "geometry",
        "--corpus",
        f"three={THREE}",
        "--corpus",
        f"other={THREE},seed=1",
        "--positions",
        "16",
        "--out",
        str(out),
    ]
    done = whatwhere(*words, "--tokenizer", "words", "--json", *FEW)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


@pytest.mark.whole
def test_run_leaves_records_that_follow_from_its_counts(run):
    out, said = run
    records = read_records(out / "records.parquet")
    counts = Counts.load(out / "counts/three.npz")
    dist = hellinger(positional_distributions(counts.total()).p)
    arrays = np.load(out / "arrays/geometry-three.npz")
    names = list(arrays["scatter_names"])
    cloud = arrays["scatter_table"]
    exact = arrays["scatter_dist"]
    assert cloud.shape == (len(names), len(exact)) == (len(names), 120) and np.all(arrays["scatter_lag"] >= 1)
    assert np.corrcoef(cloud[names.index("alibi")], arrays["scatter_lag"])[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(arrays["distance"], dist, atol=1e-6)
    (raw,) = select(records, model="three", metric="stress.raw", part="sinusoidal", index=None)
    assert raw.value == pytest.approx(stress(ww.geometry.sinusoidal(16, 64), dist))
    assert raw.low < raw.value < raw.high
    between = select(records, metric="between", part="three|other")
    assert len(between) == 16 and all(r.low < r.value < r.high for r in between)
    (curve,) = select(records, model="three", metric="stress.optimal.corrected", part="sinusoidal", index=16)
    assert curve.low < curve.value < curve.high
    assert {c["name"] for c in said["corpora"]} == {"three", "other"} and all(
        c["positions_kept"] == 16 for c in said["corpora"]
    )
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    assert not unexplained(out, "geometry --out") and not missing(out, "geometry --out")


@pytest.mark.whole
def test_report_writes_the_page_again(run):
    out, _ = run
    (out / "report.html").unlink()
    assert write_report(out).read_text(encoding="utf-8").count("Positions in three, other") >= 1


def test_summary_says_what_was_measured(run):
    _, said = run
    words = " ".join(said["corpora"][0]["summary"])
    assert "16 of 16 positions have at least 500 tokens" in words and "Made from half of the documents" in words


def test_a_rank_beyond_the_tables_is_said(tmp_path):
    """The table of corrected distances has fewer columns than counted ones allow, and no sentence said so."""
    few = {"splits": 2, "groups": 4, "dims": [16], "ranks": [1], "width": 64, "intervals": False, "min_support": 20}
    text = THREE.replace("1500", "150")
    config = GeometryConfig.parse({"corpora": [text], "positions": 16, "tokenizer": "words", "rank": 15, **few})
    (corpus,) = run_geometry(config, tmp_path / "run", progress=False)["corpora"]
    rank = corpus["table"]["rank"]
    assert (
        rank < 15 and f"The distances have rank {rank}, which is used where a rank of 15 is set." in corpus["summary"]
    )


def test_table_of_the_run_loads_into_a_model(run):
    out, said = run
    table = said["corpora"][0]["table"]
    config = ww.preset(
        "ap",
        "tiny",
        vocab_size=99,
        absolute="mds",
        table_file=str(out / table["file"]),
        table_width=table["rank"],
        max_position_embeddings=17,
    )
    used = ww.Encoder(config).position_embeddings.table()
    written = np.load(out / table["file"])
    assert written.shape == (17, table["rank"]) and not written[0].any()
    size = float(used.norm()) / np.linalg.norm(written)
    np.testing.assert_allclose(used.detach().numpy(), size * written, atol=1e-5)


def test_second_run_uses_the_counts_again(run):
    out, _ = run
    before = (out / "counts/three.npz").stat().st_mtime_ns
    config = GeometryConfig.load(out / "geometry.yaml", ["intervals=false"])
    run_geometry(config, out, progress=False)
    assert (out / "counts/three.npz").stat().st_mtime_ns == before
    config = GeometryConfig.load(out / "geometry.yaml", ["align=relative", "intervals=false"])
    with pytest.raises(ValueError, match="was started with align='start', this command has align='relative'"):
        run_geometry(config, out, progress=False)


def test_a_refused_run_leaves_the_results_as_they_are(run, tmp_path):
    """A refused measurement replaced geometry.yaml of a finished run, which `status` then called stopped."""
    out = shutil.copytree(run[0], tmp_path / "run")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".yaml", ".npz", ".json", ".npy")}
    config = GeometryConfig.load(out / "geometry.yaml", ["min_support=2000"])
    with pytest.raises(ValueError, match="No position has 2000 tokens"):
        run_geometry(config, out, progress=False)
    assert {path: path.read_bytes() for path in before} == before
    assert run_status(out)[0]["state"] == "finished"


def test_another_vocabulary_than_the_counts_is_refused(run, tmp_path):
    """A model that was added after the counting changed the tokenizer, and all counts were made anew."""
    out = shutil.copytree(run[0], tmp_path / "run")
    config = GeometryConfig.load(out / "geometry.yaml", ["tokenizer=words"])
    with mock.patch.object(geometry_run, "_make_tokenizer", lambda *_: unit_tokenizer("characters", ["a b"])):
        with pytest.raises(ValueError, match="has counted three by another tokenizer than this command's"):
            run_geometry(config, out, progress=False)
    assert (out / "counts/three.npz").is_file()


def test_a_name_that_the_user_gave_is_not_numbered(tmp_path):
    """`--corpus a.txt --corpus a.txt=b.txt` called the second corpus a.txt-2."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("Some words.", encoding="utf-8")
    corpora = [str(tmp_path / "a.txt"), f"a.txt={tmp_path / 'b.txt'}"]
    sources = GeometryConfig.parse({"corpora": corpora}).sources()
    assert {name: source.name for name, source in sources.items()} == {"a.txt-2": "a.txt", "a.txt": "b.txt"}


@pytest.mark.parametrize("tokenizer", ["reference", None])
def test_another_text_than_the_counts_is_refused(tokenizer, tmp_path):
    """A changed text was counted again in silence, or blamed on another tokenizer, which had been made from it."""
    text = tmp_path / "corpus.txt"
    out = tmp_path / "run"
    text.write_text(sentences(150))
    few = {"splits": 2, "groups": 4, "dims": [16], "ranks": [1], "width": 64, "intervals": False, "min_support": 20}
    values = {"corpora": [f"mine={text}"], "positions": 8, "vocab_size": 100, **few}
    config = GeometryConfig.parse(values | {"tokenizer": tokenizer})
    run_geometry(config, out, progress=False)
    before = (out / "counts/mine.npz").read_bytes()
    text.write_text(sentences(150, seed=1))
    with pytest.raises(ValueError, match="The text of mine is not the one that .*run has counted. Restore it"):
        run_geometry(config, out, progress=False)
    assert (out / "counts/mine.npz").read_bytes() == before


@pytest.mark.whole
def test_a_run_stopped_while_counting_resumes(run, tmp_path, monkeypatch):
    """A run that was stopped while it counted goes on."""
    # It counted from the beginning.
    config = GeometryConfig.load(run[0] / "geometry.yaml", ["intervals=false", "workers=1"])
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 20_000)
    encode = counting.BulkEncoder.encode
    done = []

    def stopped(self, texts, enough=None):
        done.append(texts)
        if len(done) == 3:
            raise KeyboardInterrupt
        return encode(self, texts, enough)

    monkeypatch.setattr(counting.BulkEncoder, "encode", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_geometry(config, tmp_path, progress=False)
    run_geometry(config, tmp_path, progress=False)
    assert len(done) > 5 and done.count(done[0]) == 1 and done.count(done[2]) == 2
    assert {path.name for path in (tmp_path / "counts").iterdir()} == {"three.npz", "other.npz"}
    run_geometry(config, run[0], progress=False)
    ours, whole = (Counts.load(out / "counts/three.npz").matrix for out in (tmp_path, run[0]))
    assert (ours != whole).nnz == 0


@pytest.mark.whole
def test_runs_table_can_be_compared_again(run, tmp_path):
    out, _ = run
    (table,), _ = load_tables([out / "tables/three-mds.npy"])
    config = GeometryConfig(
        corpora=[f"three={THREE}"],
        tokenizer="words",
        positions=16,
        intervals=False,
        width=64,
        dims=[16],
        tables=[str(out / "tables/three-mds.npy")],
    )
    run_geometry(config, tmp_path, progress=False)
    records = read_records(tmp_path / "records.parquet")
    (own,) = select(records, metric="stress.optimal.corrected", part=table.name, index=None)
    (waves,) = select(records, metric="stress.optimal.corrected", part="sinusoidal", index=None)
    assert own.value < waves.value


def test_corpora_with_one_file_name_are_refused(tmp_path):
    """The second of "a b" and "a-b" overwrote counts and arrays of the first."""
    config = GeometryConfig.parse({"corpora": [f"a b={THREE}", f"a-b={THREE},seed=1"], "positions": 16})
    with pytest.raises(ValueError, match="corpora 'a b' and 'a-b' have one file name, a-b. Name one of them otherwise"):
        run_geometry(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "report.html").write_text("mine")
    config = GeometryConfig(corpora=[THREE], tokenizer="words", positions=16)
    with pytest.raises(ValueError, match="holds no geometry run .manifest.jsonl is missing.. Choose another --out"):
        run_geometry(config, tmp_path, progress=False)
    with pytest.raises(ValueError, match="is a file, where the folder of a run is needed"):
        run_geometry(config, tmp_path / "notes.txt", progress=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "report.html"]


def test_settings_may_be_single_values_and_numbers_with_commas(tmp_path):
    config = GeometryConfig.load(None, ["field=sentence", "ranks=7,20", "dims=16"])
    assert (config.field, config.ranks, config.dims) == (["sentence"], [7, 20], [16])
    assert GeometryConfig(corpora=[THREE], field="1").field == ["1"]  # the name of a column, which became a number
    (tmp_path / "a=b.txt").write_text("one\n\ntwo")
    assert list(GeometryConfig(corpora=[str(tmp_path / "a=b.txt")]).sources()) == ["a=b.txt"]
    assert list(GeometryConfig(corpora=[f"my corpus={tmp_path}/a=b.txt"]).sources()) == ["my corpus"]


def test_model_without_a_table_is_refused_before_counting(tmp_path):
    ww.Encoder(ww.preset("rope", "tiny", vocab_size=99)).save_pretrained(tmp_path / "rope")
    config = GeometryConfig(corpora=[THREE], tokenizer="words", positions=16, models=[str(tmp_path / "rope")])
    with pytest.raises(ValueError, match="rope has no position table: its scheme keeps no position in the input"):
        run_geometry(config, tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_models_of_a_study_keep_their_names(tmp_path):
    """Models in folders `seed-0` were one model in records and summaries."""
    torch.manual_seed(0)
    folders = [tmp_path / name / "seed-0" for name in ("ap", "bert-a")]
    folders.append(tmp_path / "ap/seed-1")
    for folder in folders:
        ww.Encoder(ww.preset(folder.parent.name, "tiny", vocab_size=4096)).save_pretrained(folder)
        AutoTokenizer.from_pretrained(ww.reference()).save_pretrained(folder)
    options = {"corpora": [THREE], "tokenizer": "reference", "positions": 16, "min_support": 1}
    config = GeometryConfig(models=[str(folder) for folder in folders], **options)
    made = run_geometry(config, tmp_path / "out", progress=False)
    assert [(m["name"], m["seed"]) for m in made["models"]] == [("ap", 0), ("bert-a", 0), ("ap", 1)]
    assert len({tuple(m["summary"]) for m in made["models"]}) == 3
    records = select(read_records(tmp_path / "out/records.parquet"), metric="h1")
    assert {(r.model, r.seed) for r in records} == {("ap", 0), ("bert-a", 0), ("ap", 1)}
    shutil.copytree(folders[0], tmp_path / "copy/ap/seed-0")
    config = GeometryConfig(models=[str(folders[0]), str(tmp_path / "copy/ap/seed-0")], **options)
    with pytest.raises(ValueError, match="have one name. Rename the folder of one of them"):
        run_geometry(config, tmp_path / "two", progress=False)


def test_one_document_is_refused(tmp_path):
    (tmp_path / "one.txt").write_text(sentences(300).replace("\n\n", " "), encoding="utf-8")
    config = GeometryConfig(
        corpora=[str(tmp_path / "one.txt")],
        document="file",
        positions=8,
        min_support=1,
        width=64,
        dims=[16],
        vocab_size=200,
    )
    with pytest.raises(ValueError, match="^1 document, or equal ones: nothing tells what chance adds"):
        run_geometry(config, tmp_path / "out", progress=False)


def test_wrong_argument_is_one_line(tmp_path):
    words = ["geometry", "--dims", "16,x", "--out", str(tmp_path / "out")]
    done = whatwhere(*words)
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "out").exists()
    assert done.stderr.splitlines() == [
        "whatwhere: --dims takes whole numbers with commas, for example 16,32,64; got '16,x'. "
        "See whatwhere geometry --help."
    ]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"corpora": ["nothing-here.txt"]}, "No corpus 'nothing-here.txt'"),
        ({"positions": 2}, "positions"),
        ({"protocol": "honest"}, "protocol"),
        ({"widht": 3}, "Unknown configuration key 'widht'. Did you mean width"),
        ({"width": 100}, "width must be a multiple of 64"),
        ({"corpora": ["a.txt"], "field": ["x", "y"]}, "2 fields for 1 corpora"),
        ({"corpora": [THREE], "tables": ["nothing-here.npy"]}, "nothing-here.npy"),
    ],
)
def test_wrong_setting_is_one_line(values, line, tmp_path):
    with pytest.raises(ValueError, match=line) as error:
        run_geometry(GeometryConfig.parse(values), tmp_path / "out", progress=False)
    assert "\n" not in str(error.value)


def test_corpus_without_a_supported_position_is_one_line(tmp_path):
    """Its advice led from one refusal to the next: `min_support` that one position has, then one that three need."""
    (tmp_path / "few.txt").write_text(sentences(200), encoding="utf-8")
    few = {"corpora": [str(tmp_path / "few.txt")], "vocab_size": 200, "document": "line", "positions": 8}
    config = GeometryConfig(**few, splits=2, groups=8, intervals=False)
    with pytest.raises(ValueError, match=r"No position has 500 tokens.*min_support=\d+\.$") as refused:
        run_geometry(config, tmp_path / "out", progress=False)
    support = float(str(refused.value).rstrip(".").rpartition("=")[2])
    run_geometry(config.model_copy(update={"min_support": support}), tmp_path / "out", progress=False)


def test_advice_for_a_tiny_corpus_is_more_text(tmp_path):
    (tmp_path / "few.txt").write_text(sentences(20), encoding="utf-8")
    config = GeometryConfig(corpora=[str(tmp_path / "few.txt")], vocab_size=200)
    with pytest.raises(ValueError, match=r"No position has 500 tokens.*document=line, are the smallest\.$"):
        run_geometry(config, tmp_path / "out", progress=False)


@pytest.mark.whole
def test_corpus_in_which_position_says_nothing_gets_no_table(tmp_path):
    draw = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    lines = [" ".join(draw.choice(words, size=12, p=np.arange(1, 41) / 820)) for _ in range(1500)]
    (tmp_path / "shuffled.txt").write_text("\n".join(lines), encoding="utf-8")
    config = GeometryConfig(
        corpora=[str(tmp_path / "shuffled.txt")], document="line", tokenizer="words", positions=12, intervals=False
    )
    said = run_geometry(config, tmp_path / "out", progress=False)["corpora"][0]
    assert said["table"] is None and not (tmp_path / "out/tables").exists()
    assert "No table made of these distances fits other documents better" in said["summary"][-1]


@pytest.mark.whole
def test_the_recorded_command_measures_again(tmp_path):
    """A run that Python code started recorded no command."""
    text = tmp_path / "text.txt"
    text.write_text(sentences(600))
    config = GeometryConfig.parse({"corpora": [str(text)], "tokenizer": "words", "positions": 8, "intervals": False})
    run_geometry(config, tmp_path / "the out", progress=False)
    program, *words = shlex.split(json.loads((tmp_path / "the out/geometry.json").read_text())["command"])
    assert program == "whatwhere" and words[-2:] == ["--out", "NEW-FOLDER"]
    done = whatwhere(*words[:-1], str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    records = [read_records(tmp_path / name / "records.parquet") for name in ("the out", "new")]
    first, again = ([replace(record, study="") for record in of_run] for of_run in records)
    assert first == again
