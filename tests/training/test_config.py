"""Strict configurations: unknown keys, wrong values and clashes are one-line errors; what is saved loads equal."""

import pickle
import time
from types import SimpleNamespace

import pytest
import torch
import yaml
from cli_runner import whatwhere

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.run.files import parse_yaml
from whatwhere.run.folder import RunFolder
from whatwhere.study.study_settings import StudyConfig
from whatwhere.training.pretrain_settings import PretrainConfig, make_curriculum
from whatwhere.training.recipes import SIZE_DEFAULTS, defaults_of
from whatwhere.training.scheme_settings import scheme_context
from whatwhere.training.training_keys import LoopConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["lenght=64"], "Unknown configuration key 'lenght'. Did you mean length?"),
        (["table_start=half-turn"], "Unknown configuration key 'table_start'. Did you mean model.table_start?"),
        (["steps"], "--set takes key=value; got 'steps'"),
        (["steps=0"], "steps must be at least 1; got 0"),
        (["batch_size=many"], "batch_size must be a whole number; got 'many'"),
        (["optimizer=sgd"], "optimizer must be 'adamw' or 'muon'; got 'sgd'"),
        (["steps=3", "minutes=2"], "Give one budget of steps, tokens, minutes; got steps and minutes"),
        (["steps=1", "steps.more=3"], "steps is a single value"),
        (["model=3"], "model must be a dictionary; got 3"),
        (["recipe=bert"], "recipe must be 'dstg' or 'tupe'; got 'bert'"),
        (["betas=[0.9]"], r"betas.1 must be given; got \[0.9\]"),
        (["betas=[1, 2, 3]"], r"betas must have at most 2 entries; got \[1, 2, 3\]"),
        (["betas=[2, 3]"], r"betas.0 must be less than 1; got 2"),
        (["scheme=3"], "scheme must be a text; got 3"),
    ],
)
def test_wrong_settings_are_one_line_errors(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        PretrainConfig.load(None, settings)
    assert "\n" not in str(caught.value)


def test_settings_override_values_override_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("preset: ap\nlearning_rate: 1.0e-3\nsteps: 5\nmodel: {dropout: 0.1}\n")
    config = PretrainConfig.load(path, ["learning_rate=4e-3", "model.norm_eps=1e-5"], preset="rope", size=None)
    assert (config.preset, config.learning_rate, config.steps) == ("rope", 4e-3, 5)
    assert config.model == SIZE_DEFAULTS["tiny"].get("model", {}) | {"dropout": 0.1, "norm_eps": 1e-5}
    # All that float() takes became a number: the language nan, a column named 2.
    merged = PretrainConfig.merge_values(None, ["a=nan", "b='2'", "c=1e3", "d=-.5E+2", "e=infinity"])
    assert merged == {"a": "nan", "b": "2", "c": 1000.0, "d": -50.0, "e": "infinity"}


def test_a_key_without_a_value_takes_settings(tmp_path):
    """`model:` with nothing behind it made `--set model.dropout=0.1` an error: model is a single value."""
    path = tmp_path / "p.yaml"
    path.write_text("model:\n")
    assert LoopConfig.merge_values(path, ["model.dropout=0.1"]) == {"model": {"dropout": 0.1}}
    path.write_text("model: false\n")
    with pytest.raises(ValueError, match="--set model.dropout: model is a single value"):
        LoopConfig.merge_values(path, ["model.dropout=0.1"])


@pytest.mark.parametrize("preset", ["tupe-r", "bert-r", "tisa", "kerple-log"])
def test_learned_biases_of_a_study_have_one_rate(preset):
    """`tupe-r` and `bert-r` beside `dstg` learned their biases a tenth as fast, on one backbone as well."""
    training = {"model": {"block": "neobert"}}
    study = StudyConfig.parse(
        {"models": ["dstg", preset, "mine"], "variants": {"mine": {"preset": preset}}, "training": training}
    )
    assert {study.pretraining(model).bias_learning_rate_scale for model in study.models} == {10.0}
    assert "rates" not in study.differences_message()
    slow = study.pretraining("mine").model_dump() | {"bias_learning_rate_scale": 1.0}
    assert PretrainConfig.parse(slow).bias_learning_rate_scale == 1.0
    assert PretrainConfig.load(None, ["recipe=tupe"], preset=preset).bias_learning_rate_scale == 1


def test_paper_size_has_one_rate_for_biases():
    scales = {s: PretrainConfig.load(None, preset="rp", size=s).bias_learning_rate_scale for s in ("small", "paper")}
    assert scales == {"small": 10.0, "paper": 1.0}


def test_schemes_without_a_table_read_any_length():
    """A rotation was refused for a position table that it does not have, after its text had been read."""
    assert PretrainConfig.load(None, ["length=256"], preset="rope").encoder_config().max_position_embeddings == 256
    assert PretrainConfig.load(None, ["length=64"], preset="rope").encoder_config().max_position_embeddings == 128
    for preset, words in (("dstg", "has a position table of 128"), ("rope", "has 128")):
        config = PretrainConfig.load(None, ["length=256", "model.max_position_embeddings=128"], preset=preset)
        with pytest.raises(ValueError, match=f"length=256 tokens, but {preset} {words} positions. Use --length 128"):
            config.check()


def test_an_empty_size_is_the_default():
    """`size:` without a value trained a tiny model without its recipe."""
    assert PretrainConfig.load(None, ["size=null"]) == PretrainConfig.load(None)


def test_what_a_recipe_sets_can_be_switched_off():
    """An empty value was dropped, and the recipe's came back."""
    assert PretrainConfig.load(None, ["size=tiny"]).matrix_steps == 625
    assert PretrainConfig.load(None, ["size=tiny", "matrix_steps=null"]).matrix_steps is None
    assert StudyConfig.load(None, ["size=paper", "steps=1"]).tokenizer == "bert-base-uncased"
    assert StudyConfig.load(None, ["size=paper", "steps=1", "tokenizer=null"]).tokenizer is None


def test_settings_leave_the_callers_values_alone():
    """A dictionary of the caller had the value of a `key=value` setting afterwards."""
    given = {"dropout": 0.0}
    assert LoopConfig.merge_values(None, ["model.dropout=0.1"], model=given) == {"model": {"dropout": 0.1}}
    assert given == {"dropout": 0.0}


def test_saved_configuration_loads_equal(tmp_path):
    config = PretrainConfig.load(None, ["size=paper", "tokens=1000000", "betas=[0.9, 0.98]"])
    with RunFolder.open(tmp_path / "run", "pretrain") as run:
        config.save_in(run, "c.yaml")
    assert PretrainConfig.load(run.path / "c.yaml") == config
    assert (config.length, config.batch_size, config.tokenizer) == (512, 256, "bert-base-uncased")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "`key: value` lines; got list"),
        ("steps: 5\nseed: 1\nsteps: 6", "c.yaml is not valid YAML: the key 'steps' stands twice in one place"),
        ("model: {dropout: 0, dropout: 0.1}", "the key 'dropout' stands twice"),
    ],
)
def test_broken_files_are_errors(tmp_path, text, message):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        PretrainConfig.load(tmp_path / "c.yaml")
    with pytest.raises(ValueError, match="There is no file .*. Give a YAML file of `key: value` lines"):
        PretrainConfig.load(tmp_path / "none.yaml")
    with pytest.raises(ValueError, match="is a folder. Give a YAML file"):
        PretrainConfig.load(tmp_path)


@pytest.mark.whole
def test_a_number_and_its_text_are_two_keys():
    assert parse_yaml("{1: a, '1': b}") == {1: "a", "1": "b"}
    many = "\n".join(f"k{i}: {i}" for i in range(30_000))  # each key was sought among all before it: 6 s
    began = time.process_time()
    yaml.safe_load(many)
    plain = time.process_time() - began
    began = time.process_time()
    assert len(parse_yaml(many)) == 30_000
    assert time.process_time() - began < 4 * plain


TUPE = {
    "mask_rate": 0.15,
    "masking": "80-10-10",
    "schedule": "linear",
    "minimum_learning_rate_ratio": 0.0,
    "epsilon": 1e-6,
    "betas": (0.9, 0.999),
    "shift": False,
}


def test_a_preset_trains_by_the_recipe_of_its_family():
    dstg, tupe = (PretrainConfig.load(None, ["size=paper"], preset=name) for name in ("dstg", "tupe-a"))
    assert (dstg.recipe, dstg.mask_rate, dstg.masking, dstg.schedule, dstg.learning_rate) == (
        "dstg",
        0.2,
        "all",
        "cosine",
        6e-4,
    )
    assert tupe.recipe == "tupe" and {key: getattr(tupe, key) for key in TUPE} == TUPE
    # TUPE table 1: learning rate, batch, warm-up of 1 % of 1M steps, length, clipping, weight decay; dropout is the
    # preset's.
    table = (tupe.learning_rate, tupe.batch_size, tupe.warmup_steps, tupe.length, tupe.clip, tupe.weight_decay)
    assert table == (1e-4, 256, 10_000, 512, 1.0, 0.01) and tupe.encoder_config().dropout == 0.1
    assert PretrainConfig.load(None, preset="split").recipe == "tupe"
    own = PretrainConfig.load(None, ["recipe=dstg", "mask_rate=0.3"], preset="tupe-a")
    assert (own.mask_rate, own.masking) == (0.3, "all")
    assert defaults_of("tupe", "tiny") == SIZE_DEFAULTS["tiny"] | TUPE


def test_a_saved_recipe_loads_equal(tmp_path):
    config = PretrainConfig.load(None, preset="bert-a", steps=3)
    with RunFolder.open(tmp_path / "run", "pretrain") as run:
        config.save_in(run, "c.yaml")
    assert PretrainConfig.load(run.path / "c.yaml") == config


def test_schemes_are_found_beside_their_file_first(tmp_path, monkeypatch):
    """A scheme is found beside its file then from the current directory."""
    (tmp_path / "runs").mkdir()
    here = tmp_path / "s.py"
    beside = tmp_path / "runs/s.py"
    here.write_text('"""Registers nothing."""\n')
    (tmp_path / "runs/c.yaml").write_text("scheme: s.py\n")
    monkeypatch.chdir(tmp_path)
    assert PretrainConfig.load("runs/c.yaml").scheme == "s.py"
    beside.write_text('"""Registers nothing either."""\n')
    config = PretrainConfig.load("runs/c.yaml")
    assert config.scheme == "runs/s.py"
    with RunFolder.open(tmp_path / "out", "pretrain") as run:
        config.save_in(run, "pretrain.yaml")
    (tmp_path / "runs/s.py").unlink()
    saved = PretrainConfig.load(tmp_path / "out/pretrain.yaml")
    assert (
        saved.scheme == str(tmp_path / "out/scheme.py") and "nothing either" in (tmp_path / "out/scheme.py").read_text()
    )


def test_a_scheme_of_set_is_given_by_the_user(tmp_path):
    """`--config` with `--set scheme=FILE` was refused as a scheme that only the file names."""
    (tmp_path / "c.yaml").write_text("preset: ap\n")
    (tmp_path / "s.py").write_text("import no_such_module_at_all\n")
    words = ["explain", f"{tmp_path}/c.yaml", "--set", f"scheme={tmp_path}/s.py"]
    assert "no_such_module_at_all" in whatwhere(*words).stderr


def test_checking_values_runs_no_scheme(tmp_path):
    """A scheme runs where a process begins with a folder not where values are checked."""
    path = tmp_path / "run/scheme.py"
    path.parent.mkdir()
    path.write_text("from whatwhere.encoder import register_preset\nregister_preset('begun', 'ap', 'nobody')\n")
    path.with_name("pretrain.yaml").write_text(f"scheme: {path}\n")
    with pytest.raises(
        ValueError, match="pretrain.yaml names a scheme. Read .*scheme.py, then add --scheme .*scheme.py"
    ):
        PretrainConfig.load_saved(path.with_name("pretrain.yaml"))
    other = tmp_path / "other.py"
    other.write_text(path.read_text() + "# another text is another program\n")
    with scheme_context(str(other))(), pytest.raises(ValueError, match="names a scheme"):
        PretrainConfig.load_saved(path.with_name("pretrain.yaml"))
    assert "begun" not in PRESETS
    with scheme_context(str(path))():
        assert PretrainConfig.load_saved(path.with_name("pretrain.yaml")).scheme == str(path)
        assert "begun" in PRESETS
    assert "begun" not in PRESETS


SCHEME = "from whatwhere.encoder import register_preset\nregister_preset('begun', 'ap', 'nobody')\n"


def test_a_loaded_scheme_may_resume(tmp_path):
    """After `ww.load_scheme` every new training was refused: its settings name the run's copy of the scheme."""
    path = tmp_path / "mine.py"
    path.write_text(SCHEME)
    with scheme_context(None)():  # forgets the scheme afterwards
        ww.load_scheme(path)
        config = PretrainConfig.load(None, preset="begun", steps=1, scheme=str(path))
        with RunFolder.open(tmp_path / "run", "pretrain") as run:
            config.save_in(run, "pretrain.yaml")
            assert config.merge_with_saved(run, "pretrain.yaml").preset == "begun"


def test_a_job_refuses_a_changed_scheme(tmp_path):
    """A worker ran whatever the run's copy held by then, in place of the text that the user had given."""
    path = tmp_path / "scheme.py"
    path.write_text(SCHEME)
    make_context = pickle.loads(pickle.dumps(scheme_context(str(path))))
    ran = tmp_path / "ran"
    path.write_text(f"open({str(ran)!r}, 'w').close()\n{SCHEME}")
    with pytest.raises(ValueError, match="scheme.py has changed since the command began"), make_context():
        pass
    assert not ran.exists() and "begun" not in PRESETS
    path.write_text(SCHEME)
    with make_context():
        assert "begun" in PRESETS
    assert "begun" not in PRESETS


def test_a_foreign_yaml_runs_no_code(tmp_path):
    """A YAML from elsewhere runs no code until it is named."""
    # `explain`, `study --out` and `pretrain --out` ran scheme.py beside a YAML, unasked and unsaid.
    folder = tmp_path / "dl"
    ran = tmp_path / "ran"
    folder.mkdir()
    registers = "from whatwhere.encoder import register_preset\nregister_preset('named', 'dstg', 'own')\n"
    (folder / "scheme.py").write_text(f"open({str(ran)!r}, 'w').close()\n{registers}")
    (folder / "pretrain.yaml").write_text("preset: dstg\nsteps: 1\nscheme: scheme.py\n")
    (folder / "study.yaml").write_text("models: [dstg]\nsteps: 1\nscheme: scheme.py\n")
    for words in (
        ["explain", str(folder / "pretrain.yaml")],
        ["explain", str(folder / "study.yaml")],
        ["study", "--out", str(folder)],
        ["study", "--config", str(folder / "study.yaml"), "--out", str(tmp_path / "new")],
        ["pretrain", "--out", str(folder)],
        ["report", str(folder)],
        ["status", str(folder)],
    ):
        done = whatwhere(*words)
        assert done.returncode == 2 or words[0] == "status", words
        assert not ran.exists() and (words[0] in ("report", "status") or "names a scheme. Read " in done.stderr), words
    named = whatwhere("explain", str(folder / "pretrain.yaml"), "--scheme", str(folder / "scheme.py"))
    assert named.returncode == 0 and ran.exists(), named.stderr
    ran.unlink()
    again = whatwhere("explain", str(folder / "pretrain.yaml"))  # nothing is remembered
    assert again.returncode == 2 and not ran.exists() and "names a scheme" in again.stderr


def test_settings_that_are_no_finite_numbers_are_refused():
    for key in ("learning_rate", "weight_decay", "clip", "minutes"):
        for value in (".inf", ".nan"):
            with pytest.raises(ValueError, match="finite"):
                PretrainConfig.load(None, [f"{key}={value}"], preset="dstg")


def test_missing_trackers_are_refused_first(tmp_path):
    """A tracker that is not installed is refused before any text is read."""
    words = ("pretrain", "--preset", "ap", "--steps", "1", "--set", "trackers=[nonsense]", "--out", str(tmp_path / "r"))
    done = whatwhere(*words)
    assert done.returncode == 2 and "No tracker 'nonsense' is installed here" in done.stderr
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("accumulate=3", "batch_size must be a multiple of processes × accumulate: batch_size=64, processes=1"),
        ("sharding=full", "sharding=full shards a model among processes, and there is one"),
    ],
)
def test_what_processes_cannot_share_is_refused_first(setting, message, tmp_path):
    """A study built its windows, kept its settings and bound to them before its first training refused them."""
    sizes = ("--models", "ap", "--steps", "1", "--set", "training.batch_size=64", "--set", f"training.{setting}")
    done = whatwhere("study", *sizes, "--out", str(tmp_path / "s"))
    assert done.returncode == 2 and message in done.stderr and "Reading" not in done.stderr
    assert not (tmp_path / "s").exists()


def test_deep_yaml_is_refused_in_one_line(tmp_path):
    """A YAML that is nested too deeply is one line."""
    (tmp_path / "deep.yaml").write_text("steps: " + "[" * 100_000)
    with pytest.raises(ValueError, match="deep.yaml is (nested too deeply|not valid YAML)"):
        PretrainConfig.load(tmp_path / "deep.yaml")


def test_a_curriculum_doubles_its_pieces():
    """A curriculum doubles its pieces in equal parts of the steps."""
    config = PretrainConfig.parse({"steps": 12, "accumulate": 2, "length": 40, "first_length": 8})
    asked = []

    class Whole:
        windows = SimpleNamespace(special_ids={"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3})

        def micro_batch(self, micro_step, *others):
            asked.append((micro_step, *others))
            ids = torch.arange(5, 45).repeat(3, 1)
            return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids), "position_ids": ids - 5}

    batch_of_micro_step = make_curriculum(config, Whole(), 12)
    widths = [batch_of_micro_step(part, 4, 0, 1)["input_ids"].shape[1] for part in range(24)]
    assert widths == [8] * 6 + [16] * 6 + [32] * 6 + [40] * 6 and asked == [(part, 4, 0, 1) for part in range(24)]
    batch_of_micro_step = make_curriculum(config, Whole(), 5)  # micro-batches of one step were cut into unequal pieces
    widths = [batch_of_micro_step(part, 4, 0, 1)["input_ids"].shape[1] for part in range(10)]
    assert widths == [8] * 4 + [16] * 2 + [32] * 2 + [40] * 2
    whole = Whole().micro_batch
    assert (
        make_curriculum(config.model_copy(update={"first_length": None}), SimpleNamespace(micro_batch=whole), 12)
        is whole
    )
    with pytest.raises(ValueError, match="first_length must be below length=40; got 40"):
        PretrainConfig.parse({"steps": 12, "length": 40, "first_length": 40})


@pytest.mark.parametrize("name", ["dstg", "rope"])
def test_random_positions_want_more_than_a_window_has_tokens(name):
    # All of 128 positions, in their order, were drawn from 128: the option did nothing, and said nothing.
    values = {"steps": 2, "preset": name, "subset": True, "join": "run-on"}
    with pytest.raises(ValueError, match="than length=128, but there are 128: .*max_position_embeddings=1024, or"):
        PretrainConfig.parse(values).encoder_config()
    for more in ({"model": {"max_position_embeddings": 200}}, {"join": "none"}, {"length": 64}):
        PretrainConfig.parse(values | more).encoder_config()


def test_default_corpus_documents_are_kept_apart():
    """Documents of the default corpus are kept apart and others run on."""
    assert PretrainConfig.parse({"steps": 1}).join == "none"
    assert PretrainConfig.parse({"steps": 1, "join": "run-on"}).join == "run-on"
    assert PretrainConfig.parse({"steps": 1, "corpus": "my-texts"}).join == "run-on"
    assert StudyConfig.parse({"steps": 1}).join == StudyConfig.parse({"steps": 1}).pretraining("ap").join == "none"
