"""Settings of a run: the first ones bind, changeable keys and equal content go on, others are refused by name."""

from pathlib import Path
from typing import ClassVar

import pytest

from whatwhere.evaluation.glue import GlueConfig
from whatwhere.run import settings
from whatwhere.run.files import read_yaml
from whatwhere.run.folder import RunFolder
from whatwhere.run.settings import StrictConfig, plain_path
from whatwhere.study.study_settings import StudyConfig
from whatwhere.training.finetune import FinetuneConfig
from whatwhere.training.scheme_settings import use_scheme

NAME = "counting.yaml"


class Counting(StrictConfig):
    CHANGEABLE_KEYS: ClassVar[tuple[str, ...]] = ("workers",)
    steps: int = 300
    workers: int = 1
    text: str = "a.txt"
    title: str = ""

    def has_same_content(self, key: str, out: Path) -> bool:
        return key == "text" and self.text == "copy of a.txt"


def bound(out: Path, **values) -> Counting:
    with RunFolder.open(out, "counting") as run:
        config = Counting.parse(values)
        if NAME in run.listed_files():
            config = config.merge_with_saved(run, NAME)
        run.accept_input()
        return config.save_in(run, NAME)


def test_the_first_settings_bind(tmp_path):
    out = tmp_path / "run"
    assert bound(out, steps=625).steps == 625
    assert bound(out, steps=625) == Counting(steps=625)
    with pytest.raises(ValueError) as error:
        bound(out)
    assert str(error.value) == (
        f"{out} was started with steps=625, this command has steps=300 (default). Give steps=625 to resume, or choose "
        "another `--out`."
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ValueError, match=f"Run it with only `--out {out}` to resume, or choose another `--out`"),
    ):
        patch.setattr(
            Counting, "RESUME_ARGUMENTS", "--out {out}"
        )  # heads and geometry, whose folder is no answer, said so, too
        bound(out)
    with pytest.raises(ValueError, match="started with title='', this command has title='x'\\. Give title=''"):
        bound(out, title="x")  # the key that was given is named before the default one
    assert Counting.load_verified(RunFolder.at(out), NAME).steps == 625


def test_the_command_that_resumes_can_be_typed(tmp_path, monkeypatch):
    """It named a folder or a text with a space in its name without quotes."""
    monkeypatch.setattr(Counting, "RESUME_ARGUMENTS", "{text} --out {out}")
    bound(tmp_path / "my run", steps=625, text="my text")
    with pytest.raises(ValueError) as error:
        bound(tmp_path / "my run", text="my text")
    assert f"Run it with only `'my text' --out '{tmp_path / 'my run'}'` to resume" in str(error.value)


class Nested(StrictConfig):
    model: dict[str, str] = {}


def test_a_nested_path_may_be_spelt_twice(tmp_path, monkeypatch):
    """A training with `--set model.table_file=./t.npy` refused to resume with t.npy."""
    monkeypatch.chdir(tmp_path)
    Path("t.npy").touch()
    with RunFolder.open("run", "counting") as run:
        Nested.parse({"model": {"table_file": "./t.npy"}}).save_in(run, NAME)
        assert Nested.parse({"model": {"table_file": "t.npy"}}).merge_with_saved(run, NAME)
        with pytest.raises(ValueError, match="was started with model="):
            Nested.parse({"model": {"table_file": "u.npy"}}).merge_with_saved(run, NAME)


def test_defaults_of_recipes_are_no_given_keys():
    """A refusal called them given, and named one before the key that the user had typed."""
    assert StudyConfig.parse({"corpus": "a.txt", "probe_splits": 7}).given_keys() == {"corpus", "probe_splits"}
    assert StudyConfig.parse({"models": ["bert-a"], "steps": 300}).given_keys() == {"models", "steps"}
    plain = {"start": "reference", "data": "a.tsv", "dev": "b.tsv"}
    assert FinetuneConfig.parse(plain).given_keys() == {"start", "data", "dev"}
    assert FinetuneConfig.parse(plain | {"length": 64}).given_keys() == {"start", "data", "dev", "length"}


def test_defaults_beside_saved_models_are_no_given_keys(tmp_path):
    """The recipe that follows from a command's first model counted as typed beside the models of the run."""
    with RunFolder.open(tmp_path / "study", "study") as run:
        StudyConfig.parse({"models": ["dstg"], "steps": 300}).save_in(run, "study.yaml")
        with pytest.raises(ValueError, match=r"with recipe='dstg', this command has recipe='tupe' \(default\)"):
            StudyConfig.parse({"models": ["tupe-a", "dstg"], "steps": 300}).merge_with_saved(run, "study.yaml")


def test_resuming_writes_nothing(tmp_path):
    """A refused command replaced the settings of a run that had counted for hours."""
    bound(tmp_path / "run", steps=3)
    with RunFolder.open(tmp_path / "run", "counting") as run:
        assert Counting(steps=3, workers=4).merge_with_saved(run, NAME).workers == 4
        assert Counting.load_verified(run, NAME).workers == 1


def test_settings_that_are_gone_name_a_way_out(tmp_path):
    """The advice was to give the command again that wrote them, which refused them in the same words."""
    bound(tmp_path / "run", steps=3)
    (tmp_path / "run" / NAME).unlink()
    with pytest.raises(ValueError, match="is missing. Use a complete copy, or choose another --out"):
        Counting.load_verified(RunFolder.at(tmp_path / "run"), NAME)


def test_a_bound_scheme_is_the_copy_of_the_run(tmp_path):
    """A scheme that was edited while the text was read was saved as the one that the training used."""
    scheme = tmp_path / "mine.py"
    scheme.write_text("")
    config = FinetuneConfig.parse({"start": "reference", "data": "a.tsv", "dev": "b.tsv", "scheme": str(scheme)})
    with RunFolder.open(tmp_path / "run", "finetune") as run:
        settings = config.save_in(run, NAME)
        scheme.write_text("x = 1")
        settings = settings.save_in(run, NAME)
        assert settings.scheme == str(tmp_path / "run/scheme.py") and run.read("scheme.py") == ""


def test_free_keys_and_equal_content_go_on(tmp_path):
    bound(tmp_path / "run", steps=3)
    again = bound(tmp_path / "run", steps=3, workers=8, text="copy of a.txt")
    assert again == Counting(steps=3, workers=8, text="copy of a.txt")


def test_two_spellings_of_a_path_are_one(tmp_path, monkeypatch):
    """`runs/a/` was another model, text or START than `runs/a`, and the command was refused."""
    monkeypatch.chdir(tmp_path)
    for name in ("runs/a", "reference", "python-docs"):
        Path(name).mkdir(parents=True)
    spellings = {"runs/a": "runs/a", "runs/a/": "runs/a", "./runs//a": "runs/a", "x=./runs/a/": "x=runs/a"}
    others = {"runs/b/": "runs/b/", "org/model": "org/model", "hub:org/name": "hub:org/name", "a=b": "a=b", "": ""}
    words = {"reference": "reference", "./reference": "./reference", "./python-docs": "./python-docs"}
    assert {text: plain_path(text) for text in spellings | others | words} == spellings | others | words
    bound(tmp_path / "run", text="runs/a/")
    assert bound(tmp_path / "run", text="./runs/a").text == "runs/a/"
    with pytest.raises(ValueError, match="was started with text='runs/a/', this command has text='runs/b'"):
        bound(tmp_path / "run", text="runs/b")
    config = GlueConfig.parse({"models": ["runs/a"], "recipe": "dstg"})
    again = GlueConfig.parse({"models": ["./runs/a/"], "recipe": "dstg"})
    assert again.add_saved_entries(config).models == ["runs/a"]


def test_changed_or_foreign_settings_are_refused(tmp_path):
    out = tmp_path / "run"
    bound(out, steps=3)
    path = out / NAME
    whole = path.read_text()
    path.write_text(whole.replace("steps: 3", "steps: 4"))
    with pytest.raises(ValueError, match=r"counting.yaml is not as it was written \(hash mismatch\)"):
        bound(out, steps=3)
    path.unlink()
    with pytest.raises(ValueError, match="counting.yaml is missing"):
        bound(out, steps=3)
    with RunFolder.open(out, "counting") as run:
        run.write(NAME, {"steps": 3, "pace": 2})
    with pytest.raises(ValueError, match="is refused here: Unknown configuration key 'pace'"):
        bound(out, steps=3)


def test_a_run_without_results_takes_another_scheme(tmp_path):
    """The settings named the copy of a scheme that a stopped command had left, and the new scheme was never used."""
    scheme = tmp_path / "mine.py"
    scheme.write_text("")
    config = FinetuneConfig.parse({"start": "reference", "data": "a.tsv", "dev": "b.tsv", "scheme": str(scheme)})
    with RunFolder.open(tmp_path / "run", "finetune") as run:
        config.save_in(run, NAME)
        scheme.write_text("x = 1")
        config.save_in(run, NAME)
        assert run.read("scheme.py") == "x = 1"


def test_saved_settings_are_read_once(tmp_path, monkeypatch):
    """A study that was resumed read study.yaml ten times before its first worker, and 17 times by `--out` alone."""
    scheme = tmp_path / "mine.py"
    scheme.write_text(
        'from whatwhere.encoder import register_preset\nregister_preset("own", base="ap", source="here")\n'
    )
    use_scheme(scheme)
    config = StudyConfig.parse({"models": ["mine"], "variants": {"mine": {"preset": "own"}}, "scheme": str(scheme)})
    reads = []

    def counted(path, *hint):
        reads.append(path.name)
        return read_yaml(path, *hint)

    monkeypatch.setattr(settings, "read_yaml", counted)
    with RunFolder.open(tmp_path / "run", "study") as run:
        config.save_in(run, "study.yaml")
        saved = StudyConfig.load_verified(run, "study.yaml")
        assert reads == ["study.yaml"] and saved.variants == config.variants
        again = config.merge_with_saved(run, "study.yaml", saved=saved)
        assert reads == ["study.yaml"] and again.scheme == str(run.path / "scheme.py")
        other = config.model_copy(update={"length": 24})
        # The hint lacked --scheme, and a second refusal followed.
        with pytest.raises(ValueError, match=r"only `--out .* --scheme .*run/scheme.py` to resume"):
            other.merge_with_saved(run, "study.yaml", saved=saved)
