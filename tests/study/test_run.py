"""A small study from text to report: killed and continued, one number of steps for all, every number from a record."""

import json
import re
import shutil
from collections import Counter

import fork_server
import pytest
import torch
from cli_runner import sentences, whatwhere
from run_files import logged, missing, unexplained
from small_study import TRAINING, VALUES

from whatwhere.encoder import PRESETS
from whatwhere.records.record import read_records, select
from whatwhere.run.files import read_json, read_lines
from whatwhere.run.folder import RunFolder
from whatwhere.run.verify import verify
from whatwhere.study import model_task
from whatwhere.study.results import save_results, save_study, total_seconds
from whatwhere.study.study import run_study
from whatwhere.study.study_settings import StudyConfig
from whatwhere.study.training_plan import ModelOfSeed
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig


@pytest.fixture(scope="module")
def finished(arguments, tmp_path_factory):
    """A whole study of two models, and what its command printed; tests that change it take a copy."""
    out = tmp_path_factory.mktemp("finished") / "whole"
    done = whatwhere(*arguments, "--out", str(out))
    assert done.returncode == 0, done.stderr[-2000:]
    return out, done


@pytest.mark.long
def test_killed_study_goes_on_to_the_same_records(arguments, finished, tmp_path):
    (whole, done) = finished
    broken = tmp_path / "broken"
    assert json.loads(done.stdout)["report"] == str(whole / "report.html")
    ended = {p.parent: json.loads(p.read_text())["validation_loss"] for p in whole.glob("models/*/*/training.json")}
    lowest = min(ended, key=lambda model: ended[model])
    said = whatwhere("study", "--out", str(whole)).stdout  # named was the first by the alphabet
    assert "The models differ in more than their position schemes: parameters (`dstg`" in said
    assert len(set(ended.values())) == 2 and f"Next: whatwhere predict {lowest} --text 'This is the first" in said
    killed = fork_server.command(*arguments, "--out", str(broken), held_before=38)
    killed.kill_after(broken / "models/rope/seed-0/checkpoints/step-10")  # the second model is being trained
    finished = (broken / "models/dstg/seed-0/model.safetensors").stat().st_mtime_ns
    assert not (broken / "models/rope/seed-0/model.safetensors").exists()
    assert whatwhere("study", "--out", str(broken)).returncode == 0  # the saved configuration is enough
    assert (broken / "models/dstg/seed-0/model.safetensors").stat().st_mtime_ns == finished
    timed = {"seconds", "tokens_per_second", "memory.peak"}
    ours, theirs = (
        [
            (r.model, r.metric, r.layer, r.part, r.step, r.index, r.value)
            for r in read_records(d / "records.parquet")
            if r.metric not in timed
        ]
        for d in (broken, whole)
    )
    assert ours == theirs
    records = read_records(whole / "records.parquet")
    assert {r.value for r in select(records, metric="steps")} == {20.0}
    places = [(r.model, r.seed, r.metric, r.part, r.layer, r.head, r.step, r.index) for r in records]
    assert not [place for place, times in Counter(places).items() if times > 1]
    assert select(records, metric="n50", model="dstg", step=0)  # of two analyses, once
    assert {r.layer for r in select(records, metric="r2.token", model="dstg", part="position", index=None)} == {0, 1, 2}
    assert select(records, metric="pca.share", model="dstg") and not select(records, metric="pca.share", model="rope")
    for model, parts in (("dstg", {"semantic", "absolute", "relative", "total"}), ("rope", {"semantic", "total"})):
        near = select(records, metric="local.share", model=model)
        assert {r.step for r in near} == {0, 1, 3, 10, 20} and {r.part for r in near} == parts
    page = (whole / "report.html").read_text(encoding="utf-8")
    assert "dstg" in page and len(page) < 10_000_000
    assert "searched with seed 0 on python-docs" in page  # the reader is told how the defaults came about
    assert unexplained(broken, "A study") == unexplained(whole, "A study") == []
    events = {line["event"]: set(line) - {"seconds", "event"} for line in read_lines(broken / "log.jsonl")}
    assert set(events) == {"study", "study resumed", "windows", "trained and measured", "report"}
    for event, facts in events.items():
        (named,) = (names for names in logged("A study") if event in names)
        assert facts - {"pid"} <= named and named - facts <= set(events), event
    # An own scheme, --minutes, a model that adds positions to words, enough text to measure its positions.
    others = {"scheme.py", "arrays/correlations-*-seed-*.npz", "arrays/geometry-corpus.npz"}
    assert missing(whole, "A study") == others and not missing(whole, "Windows")
    verdicts = json.loads(whatwhere("claims", str(whole), "--json").stdout)
    own = [{key: value for key, value in claim.items() if key != "reference"} for claim in verdicts]
    assert own == json.loads((whole / "claims.json").read_text())
    assert set(verdicts[0]) >= {"id", "claim", "verdict", "value", "low", "high", "paper_value", "scale"}
    # What is damaged is refused, what is gone is made again, and a torn line of the log costs itself: such studies
    # never healed.
    texts = json.loads((broken / "explorer.json").read_text())
    (broken / "explorer.json").write_text(json.dumps(texts[:1]))
    told = whatwhere("study", "--out", str(broken))
    assert told.returncode == 2 and f"{broken / 'explorer.json'} is not as it was written" in told.stderr, told.stderr
    (broken / "explorer.json").unlink()
    (broken / "arrays/attention-rope-seed-0.npz").unlink()
    with (broken / "log.jsonl").open("ab") as log:
        log.write(b'{"event": "of another program"}\n{"seconds": 3.1, "eve')  # the first: KeyError
    again = whatwhere("study", "--out", str(broken))
    assert again.returncode == 0 and "measured again: rope seed 0" in again.stderr, again.stderr
    assert sorted(p.name for p in (broken / "arrays").iterdir()) == sorted(p.name for p in (whole / "arrays").iterdir())
    assert json.loads((broken / "explorer.json").read_text()) == texts
    assert whatwhere("verify", str(broken)).returncode == 0


@pytest.mark.whole
def test_parallel_models_equal_sequential_ones(arguments, tmp_path, processes):
    """One thread either way, so the same bits; a variant is the preset with its own settings, under its own name."""
    assert torch.get_num_threads() == 1  # tests run with OMP_NUM_THREADS=1
    more = processes == "spawn"
    own = {
        "models": ["dstg", "printed", *["rope"] * more],
        "variants": {"printed": {"preset": "dstg", "learning_rate": 2e-3, "model": {"residual": "stream"}}},
        "steps": 3,
        "seeds": 1 + more,
        "all_analyses": False,
    }
    found = []
    for most in (1, 2):
        config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | own | {"at_once": most})
        run_study(config, tmp_path / str(most) / "s", progress=False)
        timed = {"seconds", "tokens_per_second", "memory.peak"}
        found.append([r for r in read_records(tmp_path / str(most) / "s/records.parquet") if r.metric not in timed])
    assert found[0] == found[1]
    events = list(read_lines(tmp_path / "2/s/log.jsonl"))
    trained = [line for line in events if line["event"] == "trained and measured"]
    assert all(0 <= line["seconds of looking inside"] < line["seconds"] for line in trained) and len(trained) > 1
    told = [line["differences"] for line in events if line["event"] == "models differ"]
    residual = (
        "residual (`printed` stream, others normalized)" if more else "residual (`dstg` normalized, `printed` stream)"
    )
    assert told == [f"The models differ in more than their position schemes: {residual}; rates."]
    models = json.loads((tmp_path / "2/s/study.json").read_text())["models"]
    assert [(m["name"], m["seed"], m["config"]["preset"], m["config"]["residual"]) for m in models[: 2 + more]] == [
        ("dstg", 0, "dstg", "normalized"),
        ("printed", 0, "dstg", "stream"),
        *[("rope", 0, "rope", "normalized")] * more,
    ]
    assert models[1]["config"]["num_hidden_layers"] == 2  # of `training`, which a variant's own `model` is laid over
    assert [m["training"]["learning_rate"] for m in models[:2]] == [models[0]["training"]["learning_rate"], 2e-3]
    assert "printed" in (tmp_path / "2/s/report.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_page_stands_from_the_first_model_on(arguments, tmp_path, monkeypatch, capsys):
    pages = []

    def noted(*given):
        path = save_results(*given)
        pages.append((path.read_text(encoding="utf-8"), read_json(path.parent / "study.json")))
        return path

    monkeypatch.setattr("whatwhere.study.results.save_results", noted)
    values = {"steps": 3, "all_analyses": False, "at_once": 1, "models": ["dstg", "rope"]}
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | values)
    run_study(config, tmp_path / "s", progress=False)
    (first, began), (last, ended) = pages
    _check_what_is_finished(tmp_path / "s", config, capsys)
    assert (
        "1 of 2 models so far: this page is drawn again when every model of a seed is measured." in first
        and "models so far" not in last
    )
    assert [m["name"] for m in began["models"]] == ["dstg"] and len(ended["models"]) == ended["planned"] == 2


@pytest.mark.long
@pytest.mark.parametrize("killed_at", ["page_schedule.save_study", "results.write_report"])
def test_a_page_that_a_kill_cost_is_drawn(arguments, tmp_path, monkeypatch, killed_at):
    """After a kill between measuring the first model and its page there was none until the last model."""

    class Killed(BaseException):
        pass

    def kill(*given, **named):
        raise Killed

    def noted(*given, **named):
        pages.append((sorted(path.name for path in (out / "models").iterdir()), [str(model) for model in given[4]]))
        return save_study(*given, **named)

    out = tmp_path / "s"
    pages = []
    values = {"steps": 3, "all_analyses": False, "at_once": 1, "models": ["dstg", "rope"]}
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | values)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(f"whatwhere.study.{killed_at}", kill)
        run_study(config, out, progress=False)
    assert not (out / "report.html").exists()
    monkeypatch.setattr("whatwhere.study.page_schedule.save_study", noted)
    run_study(config, out, progress=False)
    assert pages == [(["dstg"], ["dstg/0"]), (["dstg", "rope"], ["dstg/0", "rope/0"])]


def _check_what_is_finished(out, config, capsys):
    """A study without its settings took any others; a page of some models made it refuse what it can measure again."""
    run = RunFolder.at(out)
    models = 2
    (damaged,) = out.glob("models/rope/seed-0/records.parquet")
    kept = damaged.read_bytes()
    damaged.write_bytes(kept[:-1] + b"x")
    with pytest.raises(ValueError, match="records.parquet is not as it was written"):
        run_study(config, out, progress=False)
    with RunFolder.open(out, "study") as opened:
        opened.mark_done("results", inputs={"models": ["dstg/0"]})  # as after the page of the first model
    run_study(config, out, progress=False)
    assert len(RunFolder.at(out).finished_step("results")["inputs"]["models"]) == models and not verify(out)[1]
    damaged.unlink()  # only measured again: the page took this command's number for that of the trainings
    (weights,) = out.glob("models/dstg/seed-0/model.safetensors")
    weights.unlink()  # a study with such a model was finished without a word
    run_study(config.model_copy(update={"at_once": 2}), out, progress=False)
    assert [line["models"] for line in RunFolder.at(out).log_lines() if line["event"] == "models lost"] == [
        str(weights.parent)
    ]
    capsys.readouterr()
    drawn = (out / "report.html").stat().st_mtime_ns
    run_study(config.model_copy(update={"at_once": 2}), out)  # nothing is new
    assert (out / "report.html").stat().st_mtime_ns == drawn
    told = capsys.readouterr().err
    assert f"whatwhere pretrain --out {weights.parent}" in told and "without a checkpoint" not in told
    pretrain(PretrainConfig.load(weights.parent / "pretrain.yaml"), weights.parent, progress=False)
    assert not verify(out)[1]
    weights.unlink()
    shutil.rmtree(weights.parent / "checkpoints")
    run_study(config, out)
    assert "without a checkpoint only another study trains it again" in capsys.readouterr().err
    assert read_json(out / "study.json")["at_once"] == 1
    (out / "study.yaml").unlink()
    with pytest.raises(ValueError, match="study.yaml is missing"):
        run_study(config.model_copy(update={"steps": 4}), out, progress=False)
    assert not run.has("study.yaml")


@pytest.mark.long
def test_weights_that_are_not_as_trained_are_not_measured(arguments, finished, tmp_path):
    # Status 0 and other numbers: a study opened models and checkpoints without a look at their hashes.
    config = StudyConfig.load(arguments[2])
    out = shutil.copytree(finished[0], tmp_path / "whole")
    for name, gone in (
        ("models/rope/seed-0/model.safetensors", "between-seed-0.parquet"),
        ("models/rope/seed-0/checkpoints/step-0/model.safetensors", "models/rope/seed-0/records.parquet"),
        ("models/rope/seed-0/log.jsonl", "models/rope/seed-0/records.parquet"),
    ):
        (out / gone).unlink(missing_ok=True)
        whole = (out / name).read_bytes()
        (out / name).write_bytes(
            whole.replace(b'"loss": ', b'"loss": 1', 1) if "log" in name else whole[:-4] + b"\1" * 4
        )
        with pytest.raises(ValueError, match=f"{name} is not as it was written"):
            run_study(config, out, progress=False)
        (out / name).write_bytes(whole)
    run_study(config, out, progress=False)
    assert not verify(out)[1]


@pytest.mark.long
def test_another_recipe_is_refused(arguments, tmp_path):
    """A run of another recipe is refused and left alone."""
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | {"steps": 3, "all_analyses": False})
    run_study(config, tmp_path / "s", progress=False)
    saved = tmp_path / "s/models/rope/seed-0/pretrain.yaml"
    saved.write_text(saved.read_text().replace("muon_scale: spectral", "muon_learning_rate: 0.006"))
    with RunFolder.open(saved.parent, "pretrain") as training:
        training.add_to_manifest("pretrain.yaml")
    before = {p: p.stat().st_mtime_ns for p in saved.parent.iterdir()}
    (saved.parent / "records.parquet").unlink()
    done = whatwhere("study", "--out", str(tmp_path / "s"))
    assert done.returncode == 2
    assert "pretrain.yaml is refused here: " in done.stderr
    assert "Unknown configuration key 'muon_learning_rate'" in done.stderr
    assert "or choose another --out" in done.stderr and "Traceback" not in done.stderr
    alone = whatwhere("pretrain", "--out", str(saved.parent))  # whose settings are the run's own
    assert alone.returncode == 2 and "is refused here: " in alone.stderr
    del before[saved.parent / "records.parquet"]
    assert {p: p.stat().st_mtime_ns for p in saved.parent.iterdir()} == before


@pytest.mark.whole
def test_small_budgets_say_the_minutes_needed(tmp_path, capsys):
    """A budget that buys too few steps says how many minutes would do."""
    path = tmp_path / "corpus.txt"
    path.write_text(sentences(300), encoding="utf-8")
    values = {
        **VALUES,
        "corpus": str(path),
        "minutes": 0.03,
        "models": ["nope"],
        "all_analyses": False,
        "training": TRAINING,
    }
    run_study(StudyConfig.parse(values), tmp_path / "s")
    said = " ".join(capsys.readouterr().err.split())
    found = re.search(
        r"0.03 minutes buy (?:at most the )?(\d+) steps(?: that each model takes at least)?; "
        r"models of size tiny need about ([\d,]+) .* about ([\d,]+) "
        r"minutes on this machine",
        said,
    )
    assert found, said
    assert (
        int(found[1]) == RunFolder.at(tmp_path / "s").outcome_of("budget")["steps"]
        and int(found[3].replace(",", "")) >= 1
    )


@pytest.mark.long
def test_minutes_become_steps_once(arguments, tmp_path):
    """Minutes become one number of steps that a resumed study keeps."""
    config = StudyConfig.load(arguments[2], ["probe_splits=2"]).model_dump() | {
        "steps": None,
        "minutes": 0.1,
        "all_analyses": False,
        "models": ["ap", "nope"],
    }
    run_study(StudyConfig.parse(config), tmp_path / "s", progress=False)
    steps = RunFolder.at(tmp_path / "s").outcome_of("budget")["steps"]
    records = read_records(tmp_path / "s/records.parquet")
    assert {r.value for r in select(records, metric="steps")} == {float(steps)}
    (tmp_path / "s/report.html").unlink()
    run_study(StudyConfig.parse(config), tmp_path / "s", progress=False)
    assert RunFolder.at(tmp_path / "s").outcome_of("budget")["steps"] == steps
    assert (tmp_path / "s/report.html").exists()


@pytest.mark.long
def test_matched_models_cost_the_same(arguments, tmp_path):
    """Matched models cost the same and a resumed study keeps their widths."""
    own = {"steps": 3, "models": ["rope", "tupe-r"], "match": "operations", "recipe": None, "all_analyses": False}
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | own)
    run_study(config, tmp_path / "s", progress=False)
    records = read_records(tmp_path / "s/records.parquet")
    first, second = (select(records, metric="operations", model=name)[0].value for name in ("rope", "tupe-r"))
    assert abs(second / first - 1) < 0.005
    widths = StudyConfig.load(tmp_path / "s/study.yaml").widths
    saved = json.loads((tmp_path / "s/study.json").read_text())
    assert widths == {"tupe-r": saved["models"][1]["config"]["intermediate_size"]} and saved["match"] == "operations"
    assert [m["source"] for m in saved["models"]] == ["DSTG section 3.3; RoFormer", "TUPE eq. 11"]
    assert {m["training"]["masking"] for m in saved["models"]} == {"all"} and saved[
        "recipe"
    ] == "dstg"  # the first one's family
    run_study(config, tmp_path / "s", progress=False)
    assert StudyConfig.load(tmp_path / "s/study.yaml").widths == widths


def test_what_cannot_be_matched_is_refused_before_training(arguments, tmp_path):
    own = {"steps": 3, "models": ["nope", "dstg"], "match": "parameters", "widths": {"nope": 1}}
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | own)
    with pytest.raises(ValueError, match="dstg cannot be made to cost .* parameters: .*Put dstg first"):
        run_study(config, tmp_path / "s", progress=False)
    assert not (tmp_path / "s/models").exists()


def test_all_stands_for_presets_with_one_recipe():
    """`all` stands for all presets that are not named, and the first model gives the recipe."""
    config = StudyConfig.parse({"models": ["tupe-a", "all"], "steps": 3})
    assert config.models[0] == "tupe-a" and set(config.models) == set(PRESETS) and len(config.models) == len(PRESETS)
    assert config.recipe == "tupe" and config.pretraining("dstg", 0, 3).masking == "80-10-10"
    assert StudyConfig.parse({"models": ["all"], "steps": 3}).recipe == "dstg"
    assert StudyConfig.parse({"models": ["tupe-a"], "recipe": "dstg"}).pretraining("tupe-a", 0, 3).mask_rate == 0.2


def test_a_variant_trains_under_its_own_name(monkeypatch, tmp_path):
    """A loss that is not finite was reported for the preset, whichever of its variants it was."""
    labels = []
    monkeypatch.setattr(model_task, "Windows", lambda folder: None)
    monkeypatch.setattr(model_task, "measure_model", lambda *arguments: None)
    monkeypatch.setattr(model_task, "pretrain", lambda *arguments, label, **options: labels.append(label) or {})
    training = StudyConfig.parse({"steps": 3}).pretraining("dstg", 1, 3)
    task = model_task.ModelTask(tmp_path, ModelOfSeed("printed", 1), training, 8, 2, 2, False)
    model_task.train_and_measure(task, lambda *state: None)
    assert labels == ["printed seed 1"]


@pytest.mark.long
def test_a_study_of_other_settings_is_refused(arguments, tmp_path):
    with RunFolder.open(tmp_path / "s", "study") as run:
        StudyConfig.load(arguments[2]).save_in(run, "study.yaml")
        run.accept_input()
    with pytest.raises(ValueError, match="was started with length=32, this command has length=16. Run it with only"):
        run_study(StudyConfig.load(arguments[2], ["length=16"]), tmp_path / "s", progress=False)


@pytest.mark.parametrize("on", [None, "tcp://127.0.0.1:1"])
def test_a_corpus_that_is_not_there_takes_no_folder(tmp_path, on):
    """It is refused before a scheduler is asked, and before a file is written."""
    config = StudyConfig.parse({"corpus": "nowhere.txt", "models": ["ap"]})
    with pytest.raises(ValueError, match="No corpus 'nowhere.txt'"):
        run_study(config, tmp_path / "s", progress=False, on=on)
    assert not (tmp_path / "s").exists()


def test_a_missing_field_leaves_no_study(tmp_path):
    """A field that is not there leaves no study behind."""
    (tmp_path / "events.csv").write_text("when,message\n1,one\n")
    words = ("study", "--out", str(tmp_path / "s"), "--corpus", str(tmp_path / "events.csv"), "--steps", "1")
    done = whatwhere(*words, "--field", "note", "--length", "32")
    assert done.returncode == 2 and "no field 'note'" in done.stderr and "--field NAME." in done.stderr
    assert not [p for p in (tmp_path / "s").rglob("*") if p.is_file()]


def test_every_model_needs_one_batch_before_any_trains(tmp_path):
    """The second model's batch was refused after the first had been trained."""
    path = tmp_path / "corpus.txt"
    path.write_text(sentences(30), encoding="utf-8")
    values = {**VALUES, "corpus": str(path), "steps": 1, "all_analyses": False, "training": TRAINING}
    variants = {"large": {"preset": "ap", "batch_size": 4096}}
    config = StudyConfig.parse({**values, "models": ["ap", "large"], "variants": variants})
    with pytest.raises(ValueError, match="less than one batch of 4096"):
        run_study(config, tmp_path / "s", progress=False)
    assert not list((tmp_path / "s").rglob("*.safetensors"))


def test_training_advice_is_valid_in_a_study(tmp_path):
    """What a training advises can be typed in a study."""
    path = tmp_path / "corpus.txt"
    path.write_text(sentences(30), encoding="utf-8")
    values = {**VALUES, "corpus": str(path), "steps": 1, "models": ["ap"], "all_analyses": False}
    config = StudyConfig.parse({**values, "training": {**TRAINING, "batch_size": 4096}})
    with pytest.raises(ValueError, match=r"or a smaller --set training.batch_size= or --length\."):
        run_study(config, tmp_path / "s", progress=False)
    with pytest.raises(ValueError, match="Use --length 128, or --set training.model.max_position_embeddings=256"):
        StudyConfig.parse({"length": 256})
    with pytest.raises(
        ValueError, match="Unknown configuration key 'lerning_rate'. Did you mean training.learning_rate"
    ):
        StudyConfig.parse({"lerning_rate": 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"models": ["dstg", "dstg"]}, "models must be different presets"),
        ({"models": []}, "at least one; got none"),
        ({"models": ["dstg"], "steps": 3, "minutes": 2}, "Give steps or minutes"),
        ({"widths": {"ap": 64}, "models": ["dstg"]}, "widths names 'ap', which is not in the study. Its models: dstg"),
        ({"widths": {"dstg": 63}}, "multiple of 16: intermediate_size=63"),
        ({"training": {"recipe": "tupe"}}, "training.recipe is chosen by the study. Set recipe itself"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"training": {"seed": 3}}, "training.seed is chosen by the study. Give seeds, their number"),
        ({"training": {"lr": 3}}, "Unknown configuration key 'lr'"),
        ({"length": 256}, "dstg has a position table of 128 positions"),
        ({"minuets": 3}, "Did you mean minutes"),
        ({"variants": {"dstg": {"preset": "ap"}}}, "variants: a name has .* no preset.s; got 'dstg'"),
        ({"variants": {"../x": {"preset": "ap"}}}, "variants: a name has .*; got '../x'"),
        (
            {"variants": {"mine": {"residual": "stream"}}},
            "variants.mine must say its preset, for example .*; got {'residual'",
        ),
        (
            {"variants": {"mine": {"preset": "ap", "seed": 2}}, "models": ["mine"]},
            "variants.mine.seed is chosen by the study",
        ),
        ({"variants": {"mine": {"preset": "ap", "model": {"resid": 1}}}, "models": ["mine"]}, "no field 'resid'"),
        ({"batch_size": 3}, "batch_size is a key of the trainings. Give training.batch_size"),
        (
            {"models": ["rope", "ap"], "training": {"model": {"table_start": "half-turn"}}},
            "^rope: table_start=half-turn needs a learned or .* 'variants={ap-2: {preset: ap, model: {table_start",
        ),
        (
            {"models": ["rope", "rp"], "training": {"model": {"table_start": "half-turn"}}},
            "^table_start=half-turn needs",
        ),
    ],
)
def test_wrong_study_settings_are_one_line_errors(values, message):
    with pytest.raises(ValueError, match=message) as caught:
        StudyConfig.parse(values)
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_small_corpora_still_give_a_report(tmp_path, capsys):
    """A corpus too small to probe still gives a report."""
    path = tmp_path / "small.txt"
    path.write_text(sentences(60), encoding="utf-8")
    values = {**VALUES, "held_out": 0.02, "corpus": str(path), "steps": 3, "models": ["ap"], "training": TRAINING}
    report = run_study(StudyConfig.parse(values), tmp_path / "s")
    assert "no probes, and no other" in capsys.readouterr().err
    records = read_records(tmp_path / "s/records.parquet")
    assert not select(records, metric=("r2.token", "local.share")) and select(records, metric="loss", part="train")
    verdicts = {c["verdict"] for c in json.loads((tmp_path / "s/claims.json").read_text())}
    assert report.is_file() and verdicts == {"not testable here"}
    # One document leaves none to hold out: IndexError after all trainings.
    path.write_text(sentences(60).replace("\n\n", " "), encoding="utf-8")
    values |= {"document": "file", "join": "run-on", "texts": 2}
    assert run_study(StudyConfig.parse(values), tmp_path / "one").is_file()
    titles = [text["title"] for text in read_json(tmp_path / "one/explorer.json")[0]["texts"]]
    assert len(titles) == 1 and "held-out" not in titles[0]


def test_seconds_of_commands_side_by_side_count_once_each():
    """Lines of several processes lie between each other; each step back was taken for another command."""
    lines = [{"pid": pid, "seconds": seconds} for pid, seconds in ((1, 1.0), (2, 0.5), (1, 9.0), (2, 7.0), (1, 10.0))]
    assert total_seconds(lines, pid=3, current=2.0) == 10.0 + 7.0 + 2.0
    assert total_seconds(lines, pid=2, current=8.0) == 10.0 + 8.0
    assert total_seconds([*lines, {"pid": 1, "seconds": 0.5}, {"seconds": "?"}], pid=3, current=0.0) == 10.5 + 7.0
