"""A finished study gains seeds and models; nothing that it has is lost or changes, where it refuses either."""

import pytest
from cli_runner import whatwhere
from small_study import VALUES

import whatwhere as ww
from whatwhere.records.record import read_records
from whatwhere.run.files import read_json
from whatwhere.run.folder import RunFolder
from whatwhere.study import cross_model_steps
from whatwhere.study.explorer_files import INDEX
from whatwhere.study.study import run_study
from whatwhere.study.study_settings import StudyConfig
from whatwhere.training.corpus_settings import prepare_windows

pytestmark = pytest.mark.long


def test_a_study_gains_seeds_and_loses_none(arguments, tmp_path):
    """A study gains seeds even without its weights and loses none."""
    values = {"steps": 4, "all_analyses": False, "at_once": 1, "models": ["rope"]}
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | values)
    run_study(config.model_copy(update={"seeds": 2}), tmp_path / "whole/s", progress=False)
    run_study(config, tmp_path / "grown/s", progress=False)
    for weights in (tmp_path / "grown/s").rglob("model.safetensors"):  # what a folder that was sent without them lacks
        weights.unlink()
    done = whatwhere("study", "--out", str(tmp_path / "grown/s"), "--seeds", "2")
    assert done.returncode == 0, done.stderr[-2000:]
    timed = {"seconds", "tokens_per_second", "memory.peak"}
    ours, theirs = (
        [r for r in read_records(tmp_path / d / "s/records.parquet") if r.metric not in timed]
        for d in ("whole", "grown")
    )
    assert ours == theirs and {r.seed for r in ours} >= {0, 1}
    done = whatwhere("study", "--out", str(tmp_path / "grown/s"), "--seeds", "1")
    assert (
        done.returncode == 2
        and "was started with seeds=2, this command has seeds=1. Give seeds=2 or more" in done.stderr
    )


def test_a_study_gains_models_and_changes_none(arguments, tmp_path):
    """A reference study is measured as its models end; one more rival must not cost the others' trainings."""
    own = {"narrow": {"preset": "rope", "model": {"intermediate_size": 64}}}
    values = {"steps": 4, "all_analyses": False, "at_once": 1, "models": ["dstg", "narrow"], "variants": own}
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | values)
    run_study(config, tmp_path / "whole/s", progress=False)
    run_study(config.model_copy(update={"models": ["dstg"], "variants": {}}), tmp_path / "grown/s", progress=False)
    grown = str(tmp_path / "grown/s")
    variant = "variants.narrow={preset: rope, model: {intermediate_size: %d}}"
    done = whatwhere("study", "--out", grown, "--models", "dstg,narrow", "--set", variant % 64)
    assert done.returncode == 0, done.stderr[-2000:]
    timed = {"seconds", "tokens_per_second", "memory.peak"}
    ours, theirs = (
        [r for r in read_records(tmp_path / d / "s/records.parquet") if r.metric not in timed]
        for d in ("whole", "grown")
    )
    assert ours == theirs and {r.model for r in ours} >= {"dstg", "narrow"}
    done = whatwhere("study", "--out", grown, "--models", "narrow")
    assert done.returncode == 2 and "this command lacks dstg. Give all its models" in done.stderr
    done = whatwhere("study", "--out", grown, "--set", variant % 32)
    assert done.returncode == 2 and "was started with variants.narrow=" in done.stderr, done.stderr


def test_added_models_show_texts_as_long(corpus_file, tmp_path, monkeypatch):
    """The texts of models that a study gained were shorter, as their length was shared by more models."""

    def open_models(run, config, seed):
        return {name: ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=300)) for name in config.models}

    monkeypatch.setattr(cross_model_steps, "open_models", open_models)
    monkeypatch.setattr(cross_model_steps, "MOST_EXPLORER_BYTES", 30_000)
    with RunFolder.open(tmp_path / "s", "study") as run:
        for models in (["rope"], ["rope", "ap", "alibi"]):
            config = StudyConfig.parse({**VALUES, "corpus": str(corpus_file), "models": models})
            windows = prepare_windows(config, run.path / "corpus", progress=False)
            cross_model_steps.save_explorer_attention(run, config, windows)
        shown = {entry["name"]: [text["tokens"] for text in entry["texts"]] for entry in run.read(INDEX)}
    assert 8 < len(shown["rope"][0]) < config.length
    assert shown["ap"] == shown["alibi"] == shown["rope"]


def test_variants_given_whole_are_added_to_saved_ones(arguments, tmp_path):
    """`--set 'variants={...}'` of a further model took the saved variants away, and the study refused its own model."""
    narrow = {"preset": "rope", "model": {"intermediate_size": 64}}
    values = {"steps": 4, "models": ["dstg", "narrow"], "variants": {"narrow": narrow}}
    saved = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | values)
    with RunFolder.open(tmp_path / "s", "study") as run:
        saved.save_in(run, "study.yaml")
        run.accept_input()
    file = tmp_path / "s/study.yaml"
    grown = StudyConfig.load(file, ["variants={big: {preset: ap}}"], models=["dstg", "narrow", "big"])
    assert grown.variants == {"narrow": narrow, "big": {"preset": "ap"}}
    other = "variants={narrow: {preset: rope, model: {intermediate_size: 32}}}"
    done = whatwhere("study", "--out", str(tmp_path / "s"), "--set", other)
    assert done.returncode == 2 and "was started with variants.narrow=" in done.stderr, done.stderr


def test_a_model_that_is_refused_leaves_the_study(arguments, tmp_path):
    """study.yaml listed the model for good, so that the study could neither resume nor lose it again."""
    values = {"steps": 3, "all_analyses": False, "at_once": 1, "models": ["rope"]}
    out = tmp_path / "s"
    run_study(StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | values), out, progress=False)
    before = (out / "study.yaml").read_bytes()
    big = "variants.big={preset: ap, trackers: [nothere]}"
    done = whatwhere("study", "--out", str(out), "--models", "rope,big", "--set", big)
    assert done.returncode == 2 and "nothere" in done.stderr
    assert (out / "study.yaml").read_bytes() == before
    done = whatwhere("study", "--out", str(out), "--set", "widths={rope: 64}")
    assert done.returncode == 2 and "was started with widths.rope=None, this command has 64" in done.stderr
    assert (out / "study.yaml").read_bytes() == before
    assert whatwhere("study", "--out", str(out)).returncode == 0


def test_a_width_that_is_given_is_not_matched(arguments, tmp_path):
    """The first command took the matched width, the same command again wrote the given one beside the model."""
    values = {"steps": 3, "all_analyses": False, "at_once": 1, "models": ["dstg", "ap", "rope"], "match": "parameters"}
    config = StudyConfig.parse(StudyConfig.load(arguments[2]).model_dump() | values | {"widths": {"ap": 96}})
    out = tmp_path / "s"
    for _ in range(2):
        run_study(config, out, progress=False)
        widths = StudyConfig.load_verified(RunFolder.at(out), "study.yaml").widths
        assert widths["ap"] == 96 and widths.keys() == {"ap", "rope"}
        assert read_json(out / "models/ap/seed-0/config.json")["intermediate_size"] == 96
