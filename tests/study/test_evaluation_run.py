"""GLUE from the command line: finished fine-tunings are not done again, what one half of the rows chose is judged on
the other, differences are paired."""

import json
import shutil
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_runner import sentences, whatwhere
from fork_server import LONGEST
from scipy.stats import rankdata

import whatwhere as ww
from whatwhere.evaluation.benchmark import Trial, averages, bounded, differences, model_names, of_studies, paired
from whatwhere.evaluation.examples import for_one_command
from whatwhere.evaluation.glue import GLUE, METRICS, GlueConfig, fine_tune
from whatwhere.evaluation.grid import GridResult, chosen, of_both, one_after_the_other, trials
from whatwhere.evaluation.tuning import halves
from whatwhere.length.longer_texts import LONG_TEXTS
from whatwhere.records.record import read_records, select
from whatwhere.records.table import Point
from whatwhere.run.files import read_object, temporary_folder
from whatwhere.run.folder import RunFolder
from whatwhere.run.status import run_status
from whatwhere.study import evaluation_run as evaluate
from whatwhere.study.evaluation_run import _threads_of_trials, evaluation_text, run_evaluation


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """RTE and SST-2 in small: two texts that are equal, or not; what a text is about."""
    folder = tmp_path_factory.mktemp("glue")
    rng = np.random.default_rng(0)
    words = ["river", "water", "music", "song"]
    for split, n in (("train", 24), ("dev", 16)):
        about = [" ".join(rng.choice(words[2 * (i % 2) : 2 + 2 * (i % 2)], 4)) for i in range(n)]
        tables = {
            "RTE": ("index\tsentence1\tsentence2\tlabel", (f"{i}\t{t}\t{t}\t{i % 2}" for i, t in enumerate(about))),
            "SST-2": ("sentence\tlabel", (f"{t}\t{i % 2}" for i, t in enumerate(about))),
        }
        for name, (header, rows) in tables.items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return folder


def config(data, **more):
    settings = {"models": ["reference"], "tasks": ["sst-2"], "data": str(data), "seeds": 1, "rates": [1e-4]}
    return GlueConfig.parse({**settings, **more})


def test_data_of_another_command_are_read_anew(tmp_path):
    """A worker that had read a file for one command answered the next command from its memory."""
    reads = []
    read = for_one_command(lambda path: reads.append(path) or path.read_text())
    for command, text in (("one", "a"), ("one", "a"), ("two", "b")):
        (tmp_path / "data.txt").write_text(text)
        with evaluate._context_of_trial(command, nullcontext):
            assert read(tmp_path / "data.txt") == text
    assert len(reads) == 2


@pytest.mark.long
def test_finished_work_stays_when_work_is_added(data, tmp_path, monkeypatch):
    """What is finished stays and models tasks and seeds may be added."""
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    done = []
    counted = replace(GLUE, work=lambda *given: done.append(given[1]) or fine_tune(*given))
    out = tmp_path / "out"
    first = run_evaluation(counted, config(data), out, progress=False)
    assert (first["done"], first["unfinished"], len(done)) == (1, 0, 1)
    run_evaluation(counted, config(data), out, progress=False)
    assert len(done) == 1
    more = run_evaluation(counted, config(data, tasks=["sst-2", "rte"], seeds=2, untrained=True), out, progress=False)
    assert len(done) == 8 and more["done"] == 8
    records = read_records(out / "records.parquet")
    assert {(r.part, r.seed, r.step) for r in select(records, metric="glue.score")} == {
        (task, seed, step) for task in ("sst-2", "rte", None) for seed in (0, 1) for step in (None, 0)
    }
    assert {r.part for r in select(records, metric="glue.difference", step=0)} == {"sst-2", "rte", None}
    # Of the first model the same difference as from its trained self, and by the same draws of rows.
    taught = {r.part: (r.value, r.low, r.high) for r in select(records, metric="glue.taught")}
    for r in select(records, metric="glue.difference", step=0):
        assert taught[r.part] == pytest.approx((-r.value, -r.high, -r.low))
    assert "of an untrained one from its trained self" in evaluate.evaluation_text(GLUE, more)
    assert (out / "report.html").is_file()
    again = run_evaluation(counted, config(data, tasks=["rte"]), out, progress=False)  # no word of untrained models
    assert again["done"] == 8 and len(done) == 8
    with pytest.raises(ValueError, match="was started with recipe='short', this command has recipe='dstg'"):
        run_evaluation(counted, config(data, recipe="dstg"), out, progress=False)


def test_cut_rows_and_partial_grids_are_said(data, tmp_path, monkeypatch):
    """Rows that are cut and grids that are not whole are said."""
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    settings = config(data, tasks=["rte"], rates=[1e-4, 1e-3], length=8)
    notes = run_evaluation(GLUE, settings, tmp_path / "out", progress=False)["notes"]
    assert notes[1].startswith("Training rows that are cut after 8 tokens") and len(notes) == 2
    facts = read_object(trials(settings)[0].file(tmp_path / "out"), "scores")
    assert f"{facts['truncated'] / facts['rows']:.0%} of rte" in notes[1]
    trials(settings)[0].file(tmp_path / "out").unlink()
    assert GLUE.notes(settings, tmp_path / "out")[2:] == [
        "Of fewer than the 2 settings, so far, are the scores of reference rte seed 0 (1)."
    ]


def test_two_sources_of_one_step_are_refused(data):
    with pytest.raises(ValueError, match="step 0 of --checkpoints and --untrained would both be step 0. Leave one"):
        GLUE.check(config(data, untrained=True, checkpoints=[0]))


def begin_or_fail(out, trial, progress):
    """The first model's piece is in its middle when the second one's fails."""
    if trial.seed == 0:
        with temporary_folder(trial.file(Path(out), "")) as new:
            (new / "model").touch()
            time.sleep(LONGEST)
    while not list(Path(out).rglob("model")):
        time.sleep(0.01)
    raise ValueError("one line.")


@pytest.mark.whole
def test_what_a_stopped_piece_had_begun_is_removed(data, tmp_path, monkeypatch, processes):
    # A process that is told to stop ends where it is: `evaluate length` left copies of whole models below runs/.
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 2)
    with pytest.raises(ValueError, match="^one line.$"):
        run_evaluation(replace(GLUE, work=begin_or_fail), config(data, seeds=2), tmp_path / "out", progress=False)
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.name != "sst-2") == [
        *("glue.yaml", "manifest.jsonl", "reference", "runs"),
    ]


def test_a_finished_evaluation_whose_extension_was_stopped_goes_on(data, tmp_path, monkeypatch):
    # The settings of the second call differed from the hash that the first had left, and a third was refused.
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    run_evaluation(GLUE, config(data), tmp_path / "out", progress=False)
    fails = replace(GLUE, work=lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(fails, config(data, seeds=2), tmp_path / "out", progress=False)
    assert run_evaluation(GLUE, config(data, seeds=2), tmp_path / "out", progress=False)["done"] == 2


def test_damaged_figures_are_measured_again(data, tmp_path, monkeypatch):
    """A damaged figure is not taken over and one that is gone is measured again."""
    # A changed byte of a finished piece gave other records, and new hashes said that all was well.
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    out = tmp_path / "out"
    run_evaluation(GLUE, config(data), out, progress=False)
    records = read_records(out / "records.parquet")
    (trial,) = out.glob("runs/reference/sst-2/*.json")
    whole = trial.read_text()
    trial.write_text(whole.replace('"rows": 24', '"rows": 25'))
    with pytest.raises(ValueError, match=f"{trial.name} is not as it was written"):
        run_evaluation(GLUE, config(data, untrained=True), out, progress=False)
    trial.unlink()
    run_evaluation(GLUE, config(data), out, progress=False)
    found = read_records(out / "records.parquet")
    assert [(r.metric, r.value) for r in found] == [(r.metric, r.value) for r in records]


def test_another_model_at_the_same_place_is_refused(data, tmp_path, monkeypatch):
    """Another model gets no numbers of the one before it; a model that has moved keeps its own."""
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    place = tmp_path / "m"
    shutil.copytree(ww.reference(), place)
    (place / "manifest.jsonl").unlink()  # a folder of anybody's, whose files nobody compares
    asked = config(data, models=[str(place)])
    run_evaluation(GLUE, asked, tmp_path / "out", progress=False)
    other_place = tmp_path / "archive/m"
    shutil.move(place, other_place)  # a moved model was refused as a second one of its name
    moved = replace(GLUE, work=None)  # runs no trial again
    again = run_evaluation(moved, config(data, models=[str(other_place)]), tmp_path / "out", progress=False)
    assert again["done"] == 1
    assert GlueConfig.load_saved(tmp_path / "out/glue.yaml").models == [str(other_place)]
    shutil.copytree(other_place, place)
    with pytest.raises(ValueError, match="are both called m"):  # a copy, while the model is where it was
        run_evaluation(GLUE, asked, tmp_path / "out", progress=False)
    shutil.rmtree(other_place)
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + bytes(8))
    with pytest.raises(ValueError, match="is of another model than .*m is now. Use another --out, or delete .*runs/m"):
        run_evaluation(GLUE, asked, tmp_path / "out", progress=False)
    shutil.move(place, other_place)
    with pytest.raises(ValueError, match="is of another model than .*m is now. Use another --out, or delete .*runs/m"):
        run_evaluation(GLUE, config(data, models=[str(other_place)]), tmp_path / "out", progress=False)


@pytest.mark.whole
def test_a_budget_leaves_the_rest_for_the_next_call(data, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    out = tmp_path / "out"
    found = run_evaluation(GLUE, config(data, seeds=4, length=64, minutes=1e-9), out, progress=False)
    assert (found["done"], found["unfinished"]) == (0, 4)
    assert "not done for lack of time" in evaluation_text(GLUE, found)
    # Settings under which nothing was finished bind nobody.
    assert run_evaluation(GLUE, config(data, seeds=3), out, progress=False)["unfinished"] == 0
    assert (
        GlueConfig.load_saved(out / "glue.yaml").length,
        GlueConfig.load_saved(out / "glue.yaml").seeds,
    ) == (128, 3)


@pytest.mark.whole
def test_checkpoints_of_a_training_are_fine_tuned_too(data, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    model = tmp_path / "mine"
    shutil.copytree(ww.reference(), model)
    (model / "checkpoints/step-30").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model / name, model / "checkpoints/step-30" / name)
    out = tmp_path / "out"
    run_evaluation(GLUE, config(data, models=[str(model)]), out, progress=False)
    more = config(data, models=[str(model)], checkpoints=[30], untrained=True)
    assert run_evaluation(GLUE, more, out, progress=False)["done"] == 3
    scores = {r.step: r.value for r in select(read_records(out / "records.parquet"), metric="glue.score")}
    assert set(scores) == {None, 0, 30} and scores[30] == scores[None]  # the same weights and seed
    assert (out / "runs/mine/sst-2/rate-0.0001-batch-32-decay-0.01-seed-0-step-30.json").is_file()
    assert "glue-steps" in (out / "report.html").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="mine keeps no checkpoint of step 7. Give one of these: 30."):
        run_evaluation(GLUE, config(data, models=[str(model)], checkpoints=[7]), tmp_path / "p", progress=False)
    assert not (tmp_path / "p").exists()


def test_one_half_chooses_and_the_other_judges():
    """One half of the rows chooses and the other judges."""
    labels = np.arange(20) % 2
    one, two = halves(20)
    good = labels.copy()
    bad = 1 - labels
    accuracy = {"accuracy": METRICS["accuracy"]}

    def run(on_one, on_two):
        """A fine-tuning whose predictions are right on so many halves."""
        said = labels.copy()
        said[one] = (good if on_one else bad)[one]
        said[two] = (good if on_two else bad)[two]
        scores = np.array([[on_one, on_two, (on_one + on_two) / 2]], float)
        return GridResult("", scores, {"predicted": np.array([said] * 3)})

    # Each half alone is best in another run: chosen there, it fails on the other; on all rows both look half right.
    found, said = chosen([run(1, 0), run(0, 1)], labels, accuracy)
    assert (found["score"], found["best"], found["optimism"]) == (0.0, 0.5, 0.5)
    assert np.array_equal(said, bad)
    found, _ = chosen([run(1, 0), run(1, 1)], labels, accuracy)
    assert found["best"] == 1.0 and found["score"] == 0.5  # on the first half both are best, and the first is taken


def test_differences_are_of_each_halfs_scores():
    """A difference is that of the scores of each half."""
    rng = np.random.default_rng(0)
    right = rng.normal(size=41)
    said = rng.normal(size=41)
    one, two = halves(41)
    said[two] *= 100  # of another step: one correlation over both would be that of the second half
    pearson = METRICS["pearson"]
    order, strata = one_after_the_other(41)
    assert np.bincount(strata).tolist() == [len(one), len(two)]
    of_halves = np.mean([pearson(said[rows], right[rows]) for rows in (one, two)])
    assert of_both(pearson)(said[order], right[order]) == pytest.approx(of_halves)
    drawn = paired(of_both(pearson), [(said[order], right[order])], right[order], strata)
    assert drawn[0] == pytest.approx(of_halves - 1)  # beside itself a correlation of 1


def test_differences_are_paired_by_rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    hard = rng.random(400) < 0.3  # both are wrong there
    a = np.where(hard, 1 - labels, labels)
    assert bounded(paired(METRICS["accuracy"], [(a, a)], labels)) == (0.0, 0.0, 0.0)
    b = a.copy()
    b[:20] = np.where(a[:20] == labels[:20], 1 - a[:20], a[:20])
    value, low, high = bounded(paired(METRICS["accuracy"], [(a, b)], labels))
    share = (a[:20] == labels[:20]).sum() / 400
    assert value == pytest.approx(share)
    # Wald's interval of a share: what the bootstrap comes to where one is never right alone.
    half = 1.96 * np.sqrt(share * (1 - share) / 400)
    assert (low, high) == pytest.approx((share - half, share + half), abs=0.006)


def test_bootstrap_rows_ignore_seeds_and_other_tasks():
    """Draws of rows and of seeds were of one generator, begun by the place of a task: other rows for each model."""
    labels = np.arange(60) % 2
    said = np.roll(labels, 1) * (np.arange(60) % 3 > 0)
    accuracy = METRICS["accuracy"]
    one, three = (paired(accuracy, [(said, labels)] * k, labels, name="rte") for k in (1, 3))
    assert np.allclose(one, three, atol=1e-12) and one[1:].std() > 0
    assert not np.array_equal(one, paired(accuracy, [(said, labels)], labels, name="cola"))


def test_averages_are_over_the_tasks_that_all_models_have():
    a, b = (Trial(name, name, False, "", seed) for name, seed in (("a", 0), ("b", 0)))
    late = Trial("b", "b", False, "", 1)  # a budget has cut off its second task
    scores = {a: {"rte": 0.6, "cola": 0.2, "mrpc": 0.9}, b: {"rte": 0.5, "cola": 0.1}, late: {"rte": 0.9}}
    found = {(r.model, r.seed): (r.value, r.n) for r in averages("glue.score", scores)}
    assert found == {("a", 0): (pytest.approx(0.4), 2), ("b", 0): (pytest.approx(0.3), 2)}
    assert averages("glue.score", {a: {"rte": 0.6}, b: {"rte": 0.5}}) == []  # of one task there is none


def test_average_differences_are_narrower_than_task_differences():
    """The difference of averages is narrower than those of the tasks."""
    rng = np.random.default_rng(0)
    labels = {part: rng.integers(2, size=300) for part in ("rte", "sst-2")}
    flips = {name: {part: rng.random(300) < 0.3 for part in labels} for name in ("a", "b")}
    predicted = {
        (name, False, part): {0: np.where(flips[name][part], 1 - labels[part], labels[part])}
        for name in ("a", "b")
        for part in labels
    }
    settings = GlueConfig.parse({"models": ["a", "b"]})
    records = differences("glue", settings, predicted, labels, dict.fromkeys(labels, METRICS["accuracy"]))
    assert {r.metric for r in records} == {"glue.difference", "glue.rank"}  # no untrained selves to stand beside
    found = {r.part: r for r in select(records, metric="glue.difference")}
    assert found[None].value == pytest.approx(np.mean([found[part].value for part in labels]))
    widths = {part: r.high - r.low for part, r in found.items()}
    # Independent samples: the mean of two has the root of half their variance.
    assert widths[None] == pytest.approx(np.hypot(widths["rte"], widths["sst-2"]) / 2, rel=0.1)


def test_ranks_are_places_by_the_average():
    """Ranks are places by the average and those of the draws."""
    rng = np.random.default_rng(0)
    labels = {part: rng.integers(2, size=300) for part in ("rte", "sst-2")}
    wrong = {"a": 0.3, "twin": 0.3, "near": 0.31, "far": 0.5}
    flips = {(name, part): rng.random(300) < share for part in labels for name, share in wrong.items()}
    flips |= {("twin", part): flips["a", part] for part in labels}
    flips |= {("rest", part): np.ones(300, bool) for part in labels}
    predicted = {
        (name, False, part): {0: np.where(flip, 1 - labels[part], labels[part])} for (name, part), flip in flips.items()
    } | {("a", True, part): {0: labels[part]} for part in labels}  # an untrained self takes no place
    settings = GlueConfig.parse({"models": ["a"]})
    records = differences("glue", settings, predicted, labels, dict.fromkeys(labels, METRICS["accuracy"]))
    right = {name: np.mean([1 - flips[name, part].mean() for part in labels]) for name in (*wrong, "rest")}
    found = {r.model: r for r in select(records, metric="glue.rank")}
    places = dict(zip(right, rankdata([-v for v in right.values()]), strict=True))
    assert {name: r.value for name, r in found.items()} == places
    assert (found["rest"].low, found["rest"].high, found["far"].high) == (5, 5, 4)
    assert found["a"].value == found["twin"].value and found["near"].low < found["near"].high  # not separable
    assert {(r.part, r.step, r.n) for r in found.values()} == {(None, None, 2)}


def test_no_difference_at_all_is_level():
    one = Point.between(0.5)
    assert evaluate._cell_of(one, Point.between(0.0, 0.0, 0.0)) == "0.500 ="
    assert evaluate._cell_of(one, Point.between(0.1, 0.05, 0.2)) == "0.500 +0.100"


def test_models_are_called_by_their_folders(tmp_path):
    one = tmp_path / "study/models/dstg/seed-0"
    two = tmp_path / "other/models/dstg/seed-0"
    one.mkdir(parents=True)
    two.mkdir(parents=True)
    assert model_names([str(one), "org/bert"]) == {"dstg": str(one), "org/bert": "org/bert"}
    with pytest.raises(ValueError, match="are both called dstg. Rename one"):
        model_names([str(one), str(two)])
    runs = trials(GlueConfig.parse({"models": [str(one)], "recipe": "dstg", "tasks": ["rte", "cola"], "seeds": 2}))
    assert len(runs) == 2 * 2 * 18 and [run.seed for run in runs] == sorted(run.seed for run in runs)


def test_models_of_one_file_name_are_refused(tmp_path, monkeypatch):
    """Two models whose files would have one name are refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_b").mkdir()
    with pytest.raises(ValueError, match="a_b and a/b would have files of one name"):
        model_names(["a/b", "a_b"])


@pytest.mark.long
def test_all_benchmarks_share_a_budget(data, tmp_path, monkeypatch):
    """All families share a budget and what lacks is named."""
    monkeypatch.setattr(evaluate, "parallel_jobs", lambda: 1)
    monkeypatch.setitem(GLUE.brief, "seeds", 1)
    monkeypatch.setitem(GLUE.brief, "rates", [1e-4])
    for key, value in {"to": 140, "methods": ["cyclic"], "document": "blank-line"}.items():
        monkeypatch.setitem(LONG_TEXTS.brief, key, value)
    (data / "books-pd").mkdir()
    (data / "books-pd/a.txt").write_text("Too short.\n", encoding="utf-8")
    (data / "books-pd/b.txt").write_text("\n\n".join(["\n".join(sentences(20).split("\n\n"))] * 10), encoding="utf-8")
    out = tmp_path / "out"
    words = ["evaluate", "all", "reference", "--data", str(data), "--out", str(out)]
    first = whatwhere(*words, "--minutes", "1e-9", "--json")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert (found["done"], found["unfinished"], list(found["benchmarks"])) == (0, 4, ["length", "glue"])
    assert run_status(out)[0]["state"] == "stopped"  # "finished", with four trials left
    steps = RunFolder.at(out).inputs_of_finished()  # "length" and "glue" were among them, as if they were finished
    assert {"tried length", "tried glue"} <= steps.keys() and not {"length", "glue"} & steps.keys()
    assert RunFolder.at(out).outcome_of("tried glue") == {
        "done": 0,
        "unfinished": found["benchmarks"]["glue"]["unfinished"],
    }
    lacking = "\n".join(found["left_out"])
    assert all(
        f"{name}: " in lacking for name in ("linguistic pos", "holmes", "mteb MR-local", "squad squad", "glue cola")
    )
    second = whatwhere(*words)
    assert second.returncode == 0 and "sst-2 (accuracy)" in second.stdout and "left out: squad" in second.stdout
    assert "Texts: 10 documents of b.txt" in second.stdout
    whole, *parts = (read_records(folder / "records.parquet") for folder in (out, out / "length", out / "glue"))
    assert [(r.metric, r.part, r.value) for r in whole] == [(r.metric, r.part, r.value) for p in parts for r in p]
    assert "Left out: squad squad:" in (out / "report.html").read_text(encoding="utf-8")
    none = whatwhere("evaluate", "all", "reference", "--data", str(tmp_path / "out/glue"), "--out", str(tmp_path / "p"))
    assert none.returncode == 2 and "holds none of linguistic, holmes, mteb" in none.stderr
    assert not (tmp_path / "p").exists()


def test_a_study_stands_for_its_first_seed(tmp_path):
    """A study stands for its models of the first seed."""
    for name, seed in (("rope", 0), ("rope", 1), ("dstg", 0)):
        folder = tmp_path / f"s/models/{name}/seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (tmp_path / "s/study.json").write_text(json.dumps({"models": [{"name": n} for n in ("rope", "dstg", "ap")]}))
    at = str(tmp_path / "s/models/{}/seed-0").format
    assert of_studies(["bert", str(tmp_path / "s")]) == ["bert", at("rope"), at("dstg")]
    # One whose models were done by `study --only` has no page yet, and no facts: it was "without a finished model".
    (tmp_path / "s/study.json").unlink()
    assert of_studies([str(tmp_path / "s")], seeds=True) == [
        at("dstg"),
        at("rope"),
        str(tmp_path / "s/models/rope/seed-1"),
    ]
    (tmp_path / "t/models").mkdir(parents=True)
    with pytest.raises(ValueError, match="t is a study without a finished model"):
        of_studies([str(tmp_path / "t")])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "rte,nli"], "no task 'nli'. Did you mean wnli or qnli? Known: rte, mrpc"),
        (["--recipe", "bert"], "no recipe 'bert'. Known: dstg, tupe, short"),
        (["--data", "nowhere"], "data: there is no such folder. Give the one that holds the data; got 'nowhere'"),
        (["--data", "."], "Bring GLUE's release there"),
        (["reference"], "reference is given twice. Leave one out."),
    ],
)
def test_wrong_input_is_one_line(words, said, tmp_path):
    done = whatwhere("evaluate", "glue", "reference", "--tasks", "rte", *words, "--out", str(tmp_path / "o"))
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.whole
def test_the_verb_prints_scores_and_where_the_page_is(data, tmp_path):
    words = ["evaluate", "glue", ww.reference(), "--tasks", "sst-2", "--data", str(data), "--seeds", "1"]
    words += ["--rates", "1e-4"]
    done = whatwhere(*words, "--out", str(tmp_path / "o"))
    assert done.returncode == 0 and "sst-2 (accuracy)" in done.stdout and "report.html" in done.stdout, done.stderr
    again = whatwhere(*words, "--out", str(tmp_path / "o"), "--json")
    found = json.loads(again.stdout)
    assert found["done"] == 1 and any(r["metric"] == "glue.score" for r in found["records"])


@pytest.mark.parametrize("listed", [3, [3], [{}], [{"name": 3}], [{"name": "../../else"}]])
def test_a_studys_model_list_is_checked(listed, tmp_path):
    """What a study says of its models is held against what is there."""
    # A traceback, or a model outside of the folder.
    for name in ("study/models/mine", "else"):
        (tmp_path / name / "seed-0").mkdir(parents=True)
        (tmp_path / name / "seed-0/config.json").write_text("{}")
    (tmp_path / "study/study.json").write_text(json.dumps({"models": listed}))
    assert of_studies([str(tmp_path / "study")]) == [str(tmp_path / "study/models/mine/seed-0")]


def test_threads_of_a_trial_are_those_of_its_stage(monkeypatch):
    """Threads were planned over what was left: a resumed evaluation computed with others, to other last bits."""
    monkeypatch.setattr("whatwhere.study.evaluation_run.parallel_jobs", lambda: 2)
    planned = [Trial("m", "m", untrained=False, task="rte", seed=seed) for seed in range(3)]
    planned += [Trial("m", "m", untrained=False, task="rte", stage=1)]
    assert [_threads_of_trials(planned)[id(trial)] for trial in planned] == [1, 1, 2, None]
