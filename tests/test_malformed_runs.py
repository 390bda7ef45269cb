"""Wrong configurations and folders of runs and windows: an error in a line that names the file, or a whole page."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cli_runner import whatwhere
from made_study import make_study
from malformed import BOMB, DEEP, HUGE, LONG, array, cases, line_of, npz, parquet, put, records, refused, touched

import whatwhere as ww
from whatwhere.corpus import build_windows, load_tokenizer, open_source
from whatwhere.corpus.windows import Windows
from whatwhere.evaluation.benchmark import Trial
from whatwhere.evaluation.glue import GlueConfig
from whatwhere.evaluation.grid import by_seed
from whatwhere.evaluation.holmes import HolmesConfig
from whatwhere.evaluation.linguistic import LinguisticConfig
from whatwhere.evaluation.mteb import MtebConfig
from whatwhere.evaluation.squad import SquadConfig
from whatwhere.length.longer_texts import LengthConfig
from whatwhere.report import page_of
from whatwhere.run.files import describe_os_error
from whatwhere.run.folder import RunFolder
from whatwhere.run.status import run_status
from whatwhere.study.study_settings import GeometryConfig, StudyConfig
from whatwhere.training.finetune import FinetuneConfig
from whatwhere.training.pretrain_settings import PretrainConfig

CONFIGS = [
    *(PretrainConfig, FinetuneConfig, StudyConfig, GeometryConfig, GlueConfig, SquadConfig, HolmesConfig),
    *(LinguisticConfig, LengthConfig, MtebConfig),
]
YAMLS = {
    "python code": "a: !!python/object/apply:os.system [x]",
    "a python name": "a: !!python/name:os.system",
    "latin1": b"a: \xe4",
    "nul": "a\0: 1",
    "5000 digits": f"a: {LONG}",
    "a date that is none": "a: 2001-99-99",
    "a tag on nothing": "a: !!int ''",
    "a time that is none": "a: !!timestamp x",
    "a truth that is none": "a: !!bool x",
    "a number for a key": "1: 2",
    "nothing for a key": "null: 2",
    "a list for a key": "{[1]: 2}",
    "two documents": "a: 1\n---\nb: 2",
    "an alias of nothing": "a: *x",
    "a list that holds itself": "models: &a [*a]",
    "a bomb of aliases": f"{BOMB}models: *a11",
    "a list": "- a",
    "a word": "steps",
    "nothing": "",
    "a key of a megabyte": "x" * 100_000 + ": 1",
    "nested": "a: " + "{b: " * 1500,
}


@pytest.mark.parametrize("name", YAMLS)
def test_yaml_of_every_configuration(tmp_path, name):
    """No YAML that is wrong is read: two configurations each in turn, as one function reads them all."""
    path = put(tmp_path, "c.yaml", YAMLS[name])
    at = list(YAMLS).index(name)
    for kind in (CONFIGS[at % len(CONFIGS)], CONFIGS[(at + 1) % len(CONFIGS)]):
        refused(lambda kind=kind: kind.load(path), path)


STRANGE = [None, True, -1, 10**30, 1e308, "", "x" * 50_000, "a\nb", "\ud800", [], [1], [[1]], [None], {}, {"x": [1]}]
STRANGE += [{1: 2}, {"preset": [1]}, {"a": {"preset": [1]}}, {"a": {"preset": "dstg", "model": 3}}, b"x"]


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_strange_values_of_any_key_are_one_line(kind):
    values = {"steps": 3, "models": ["reference"], "data": "x", "dev": "x", "text": "t", "label": "l", "to": 512}
    values |= {"start": "reference"}
    base = {key: value for key, value in values.items() if key in kind.model_fields and kind is not StudyConfig}
    base |= {"steps": 3} if kind is StudyConfig else {}
    for at, key in enumerate(kind.model_fields):
        for value in STRANGE[at % 4 :: 4] if key != "scheme" else STRANGE[:3]:  # all of them over four keys
            try:
                kind.parse({**base, key: value})
            except ValueError as error:
                line_of(error)
            except OSError as error:  # a name that no file can have
                assert "x" * 100 in describe_os_error(error)


@pytest.mark.parametrize(
    ("text", "said"),
    cases(
        a_tag_on_nothing=("steps=!!int ''", "--set steps"),
        a_date_that_is_none=("steps=2001-99-99", "--set steps"),
        nested=("steps=" + "[" * 1500, "--set steps"),
        digits=(f"steps={LONG}", "--set steps"),
        layers=("model.num_hidden_layers=1000000000", "num_hidden_layers must be at most 10,000"),
        words=(f"vocab_size={10**30}", "vocab_size"),
    ),
)
def test_nonsense_settings_are_refused_in_one_line(text, said):
    done = whatwhere("explain", "dstg", "--set", text)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and said in done.stderr and len(done.stderr) < 500


def test_wrong_values_name_their_file_alone(tmp_path):
    """A wrong value names the file that holds it and no other."""
    path = put(tmp_path, "c.yaml", "steps: many\nlength: 64\n")
    done = whatwhere("explain", str(path))
    assert done.stderr == f"whatwhere: {path}: steps must be a whole number; got 'many'.\n" and done.returncode == 2
    done = whatwhere("explain", str(path), "--set", "steps=few")
    assert done.stderr == "whatwhere: steps must be a whole number; got 'few'.\n" and done.returncode == 2


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_study(tmp_path_factory.mktemp("made") / "study", models=("dstg", "rope"), layers=2, steps=200)


@pytest.mark.parametrize(
    ("content", "said"),
    cases(
        empty=(b"", "is not a complete parquet file"),
        junk=(b"PAR1" + b"\xff" * 99 + b"PAR1", "is not a complete parquet file"),
        of_something_else=(parquet(pa.table({"text": ["x"]})), "has record format 'none'"),
        without_a_column=(records(value=...), "has other columns than records have"),
        with_texts_for_values=(records(value=["much"]), "has other values than records have"),
        without_a_model=(records(model=[None]), "has other values than records have"),
        without_a_value=(records(value=[None]), "has other values than records have"),
        with_lists_for_models=(records(model=[["m"]]), "has other values than records have"),
        with_a_fraction_for_a_layer=(records(layer=[0.5]), "has other values than records have"),
        a_folder=(..., "No records at"),
        a_pipe=(None, "No records at"),
    ),
)
@pytest.mark.parametrize("verb", ["report", "claims"])
def test_damaged_records_are_refused(tmp_path, verb, content, said):
    path = put(tmp_path, "records.parquet", content)
    done = whatwhere(verb, str(tmp_path))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(path) in done.stderr and said in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["records.parquet"]


@pytest.mark.parametrize("name", ["study.json", "claims.json", "explorer.json", "geometry.json", "spectra.json"])
@pytest.mark.parametrize(
    "content",
    cases(nested=(DEEP,), cut_off=('{"a": [1',)),
)
def test_damaged_json_of_a_run_is_refused(tmp_path, study, name, content):
    folder = shutil.copytree(study, tmp_path / "study")
    path = put(folder, name, content)
    done = whatwhere("report", str(folder))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(path) in done.stderr
    assert not (folder / "report.html").exists()


def changes(value, place=()):
    """(place, another value) of every part of plain values."""
    for strange in (None, 10**400, "x", [], [[]], {}, {"x": [1]}):
        yield place, strange
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, part in inside:
        yield from changes(part, (*place, key))


def changed(value, place, by):
    """Plain values with another one in a place."""
    if not place:
        return by
    copy = value.copy()
    copy[place[0]] = changed(value[place[0]], place[1:], by)
    return copy


@pytest.mark.parametrize("name", ["study.json", "claims.json"])
def test_strange_facts_give_a_page_or_an_error(tmp_path, study, name):
    """A report of strange facts is a page or an error."""
    folder = shutil.copytree(study, tmp_path / "study")
    whole = json.loads((folder / name).read_text())
    for place, by in [*changes(whole)][::97]:
        put(folder, name, json.dumps(changed(whole, place, by)))
        try:
            page_of(folder)
        except ValueError as error:
            assert name in line_of(error), (place, by)


@pytest.mark.parametrize(
    "content",
    cases(
        empty=(b"",),
        a_zip_of_text=(npz(scores=b"text"),),
        of_10_14_numbers=(npz(scores=array(HUGE)),),
        of_a_head_cut_off=(npz(scores=array(b"{'descr': '<f8', (")),),
        of_a_head_without_end=(npz(scores=array(b"{'descr': '''")),),
        of_a_head_of_brackets=(npz(scores=array(b"(" * 9000)),),
        of_a_shape_below_0=(npz(scores=array(HUGE | {"shape": (-1,)})),),
        of_a_shape_of_31_digits=(npz(scores=array(HUGE | {"shape": (10**30,)})),),
        of_a_kind_that_is_none=(npz(scores=array(HUGE | {"descr": "<q99"})),),
        of_objects=(npz(scores=array(HUGE | {"descr": "|O", "shape": (1,)})),),
    ),
)
def test_damaged_arrays_of_a_run_are_refused(tmp_path, study, content):
    folder = shutil.copytree(study, tmp_path / "study")
    path = put(folder, "arrays/table-dstg-seed-0.npz", content)
    done = whatwhere("report", str(folder))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and f"{path} is not a complete array" in done.stderr


def test_strange_arrays_give_a_page_or_an_error(tmp_path, study):
    """Arrays of other shapes than a run has are a page or an error."""
    folder = shutil.copytree(study, tmp_path / "study")
    path = folder / "arrays/table-dstg-seed-0.npz"
    with np.load(path) as whole:
        arrays = dict(whole)
    for strange in (np.zeros(0), np.zeros(()), np.zeros((2, 2, 2)), np.array(["x"]), np.full((128, 3), np.nan)):
        for name in arrays:
            np.savez(path, **arrays | {name: strange})
            try:
                page_of(folder)
            except ValueError as error:
                assert str(path) in line_of(error), (name, strange.shape)


@pytest.mark.parametrize(
    "name", ["../other", "arrays/../../other", "/etc/passwd", "x" * 10**6], ids=["above", "around", "system", "long"]
)
def test_a_manifest_names_no_files_outside_of_its_folder(tmp_path, study, name):
    """A file above the folder was looked for there, and compared."""
    folder = shutil.copytree(study, tmp_path / "study")
    put(folder, "manifest.jsonl", json.dumps({"files": {name: "x"}}) + "\n")
    refused(lambda: RunFolder.at(folder).check_all(), folder, "which is not inside")
    done = whatwhere("verify", str(folder))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def windows(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("windows")
    text = put(folder, "t.txt", "".join(f"The {i}. cat sat on the mat by the door.\n\n" for i in range(60)))
    build_windows(open_source(text), load_tokenizer(ww.reference()), folder / "w", length=32, progress=False)
    return folder / "w"


def of_manifest(**values):
    return lambda folder: json.dumps({**json.loads((folder / "windows.json").read_text()), **values})


STARTS = array({"descr": "<i8", "fortran_order": False, "shape": (3,)}, struct.pack("<3q", 0, 10**6, 10**7))


@pytest.mark.parametrize(
    ("name", "content"),
    cases(
        manifest_of_a_list=("windows.json", "[]"),
        manifest_nested=("windows.json", DEEP),
        manifest_of_nothing=("windows.json", "{}"),
        manifest_of_the_format_alone=("windows.json", {"format": "whatwhere-windows-2"}),
        manifest_of_a_word_for_files=("windows.json", of_manifest(files="x")),
        manifest_of_words_for_shards=("windows.json", of_manifest(shards=["x"])),
        manifest_of_a_word_for_the_vocabulary=("windows.json", of_manifest(vocab_size="x")),
        tokenizer_of_junk=("tokenizer/tokenizer.json", b"\xff\xfe"),
        tokenizer_of_a_list=("tokenizer/tokenizer.json", "[]"),
        unigrams_of_junk=("unigrams.npy", b"junk"),
        unigrams_of_10_14_numbers=("unigrams.npy", array(HUGE)),
        ids_of_junk=("shards/00000.train.ids.npy", b"\x93NUMPYjunk"),
        ids_of_10_14_numbers=("shards/00000.train.ids.npy", array(HUGE)),
        ids_of_one_number=("shards/00000.train.ids.npy", array(HUGE | {"shape": ()}, b"12345678")),
        starts_beyond_the_ids=("shards/00000.train.starts.npy", STARTS),
    ),
)
def test_windows_whose_hashes_are_gone(tmp_path, windows, name, content):
    folder = shutil.copytree(windows, tmp_path / "w")
    put(folder, name, content(folder) if callable(content) else content)
    (folder / "manifest.jsonl").unlink()
    manifest = json.loads((windows / "windows.json").read_text())
    if name in manifest["files"]:
        manifest["files"][name] = (folder / name).stat().st_size
        put(folder, "windows.json", manifest)
    refused(lambda: touched(folder), folder if name != "windows.json" else folder.name)


@pytest.mark.parametrize(
    "changed",
    cases(
        a_file=(lambda manifest: {"files": {**manifest["files"], "../x": 1}},),
        unigrams=(lambda manifest: {"unigrams": "../x"},),
        a_shard=(lambda manifest: {"shards": [{**manifest["shards"][0], "name": "../../x"}]},),
        an_absolute_file=(lambda manifest: {"files": {"/x": 1}},),
    ),
)
def test_windows_name_no_files_outside_of_their_folder(tmp_path, windows, changed):
    folder = shutil.copytree(windows, tmp_path / "w")
    manifest = json.loads((folder / "windows.json").read_text())
    put(folder, "windows.json", manifest | changed(manifest))
    (folder / "manifest.jsonl").unlink()
    refused(lambda: Windows(folder), folder / "windows.json", "x', which is not inside")


LOGGED = {"step": 1, "tokens": 9, "tokens_per_second": 1.0}


@pytest.mark.parametrize(
    ("files", "said"),
    cases(
        settings_of_a_list=({"pretrain.yaml": "[]"}, "pretrain.yaml must hold"),
        settings_with_code=({"pretrain.yaml": "!!python/name:os.system"}, "pretrain.yaml is not valid YAML"),
        a_bomb=({"study.yaml": f"{BOMB}models: *a11"}, "study.yaml is not valid YAML"),
        words_for_steps=({"pretrain.yaml": "steps: many", "log.jsonl": LOGGED}, "pretrain.yaml: steps"),
        a_list_for_seeds=({"study.yaml": "seeds: [1]"}, "study.yaml: seeds"),
        a_number_for_models=({"study.yaml": "models: 5"}, "study.yaml: models"),
        words_in_the_log=({"pretrain.yaml": "steps: 5", "log.jsonl": LOGGED | {"step": "x"}}, "log.jsonl"),
        a_list_for_a_loss=({"pretrain.yaml": "steps: 5", "log.jsonl": {"step": 1, "validation_loss": []}}, "log.jsonl"),
        a_step_without_end=({"pretrain.yaml": "steps: 5", "log.jsonl": '{"step": 1e999}'}, "log.jsonl: step"),
        a_loss_of_400_digits=(
            {"pretrain.yaml": "steps: 5", "log.jsonl": LOGGED | {"loss": 10**400}},
            "log.jsonl: loss",
        ),
        results_of_a_list=(
            {"pretrain.yaml": "steps: 5", "training.json": "[]", "model.safetensors": "x"},
            "training.json holds a list",
        ),
    ),
)
def test_the_status_names_damaged_files(tmp_path, files, said):
    for name, content in files.items():
        put(tmp_path, name, content)
    refused(lambda: run_status(tmp_path), tmp_path, said)


@pytest.mark.parametrize("scores", ["x", 5, [], [0.5], [[0.5, 0.5]], [[0.5, 0.5, 0.5], [0.5]], [["x", 1, 2]]], ids=str)
def test_a_finished_fine_tuning_of_strange_scores_is_named(tmp_path, scores):
    trial = Trial("m", "m", False, "sst-2")
    path = trial.file(tmp_path)
    put(tmp_path, str(path.relative_to(tmp_path)), {"scores": scores})
    refused(lambda: by_seed([trial], tmp_path), path, "holds no three scores")
