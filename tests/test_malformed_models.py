"""Wrong checkpoints, models, tokenizers and tables: refused in a line before memory is spent; no code runs."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runner import sentences, whatwhere
from fault_works import tasks
from malformed import DEEP, HUGE, LONG, array, cases, line_of, npz, put, refused
from safetensors.numpy import save_file

import whatwhere as ww
from whatwhere.corpus import load_tokenizer
from whatwhere.corpus.tokenizer import open_tokenizer
from whatwhere.geometry.counts import Counts
from whatwhere.models.model_tables import read_table
from whatwhere.models.open import open_model
from whatwhere.run.folder import RunFolder
from whatwhere.run.manifest import FORMAT, MANIFEST
from whatwhere.training import checkpoints

STATE = {"step": 3, "seconds": 1.5, "losses": [4.0]}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    cases(
        state_of_a_list=("state.json", "[]", "state.json holds a list"),
        state_without_a_step=("state.json", "{}", "state.json has no 'step'"),
        state_of_a_word=("state.json", {**STATE, "step": "many"}, "state.json has no step"),
        state_without_seconds=("state.json", {"step": 3, "losses": []}, "state.json has no 'seconds'"),
        state_of_no_seconds=("state.json", {**STATE, "seconds": None}, "state.json has no seconds"),
        state_without_losses=("state.json", {"step": 3, "seconds": 1.5}, "state.json has no 'losses'"),
        state_of_a_word_for_losses=("state.json", {**STATE, "losses": "x"}, "state.json has no losses"),
        state_of_words_for_losses=("state.json", {**STATE, "losses": ["x"]}, "state.json has no losses"),
        state_nested=("state.json", DEEP, "state.json is not complete JSON"),
        manifest_of_a_list=(MANIFEST, "[]", "is not a complete checkpoint"),
        manifest_of_nothing=(MANIFEST, "", "is not a complete checkpoint"),
    ),
)
def test_broken_checkpoints_are_named_and_skipped(tmp_path, name, content, said):
    """A checkpoint that is broken is named and passed over."""
    folder = tmp_path / "step-3"
    for each in ("state.json", "model.safetensors", "optimizer.safetensors"):
        put(folder, each, STATE)
    put(folder, name, content)
    if name != MANIFEST:
        put(folder, MANIFEST, f'{{"format": "{FORMAT}", "kind": "checkpoint"}}\n')
        run = RunFolder.at(folder)
        run.add_to_manifest(*run.files_not_in_manifest())
    refused(lambda: checkpoints.open_checkpoint(folder), folder, said)
    found, broken = checkpoints.newest_checkpoint(tmp_path)
    assert found is None and len(broken) == 1


@pytest.mark.parametrize(
    "states",
    cases(
        a_head_of_8_exabytes=(struct.pack("<Q", 2**63) + b"{}",),
        a_head_of_junk=(struct.pack("<Q", 4) + b"junk",),
        nothing=(b"",),
        names_of_something_else=({"weight": np.zeros(2, np.float32)},),
        a_parameter_of_letters=({"0.x.step": np.zeros(1, np.float32)},),
        gone=(None,),
    ),
)
def test_damaged_states_of_optimizers_are_refused(tmp_path, states):
    module = torch.nn.Linear(2, 2)
    module.all_tied_weights_keys = {}
    folder = tmp_path / "step-3"
    folder.mkdir()
    save_file({name: each.detach().numpy() for name, each in module.state_dict().items()}, folder / "model.safetensors")
    if isinstance(states, bytes):
        put(folder, "optimizer.safetensors", states)
    elif states is not None:
        save_file(states, folder / "optimizer.safetensors")
    found = checkpoints.Checkpoint(folder, 3, {}, True)
    refused(lambda: checkpoints.restore(found, module, [torch.optim.AdamW(module.parameters())]), folder)


@pytest.fixture
def model(tmp_path) -> Path:
    """A copy of the model that comes with the package."""
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(ww.reference()) / name, tmp_path / "model" / name)
    return tmp_path / "model"


def of_config(**values):
    return json.dumps({**json.loads((Path(ww.reference()) / "config.json").read_text()), **values})


@pytest.mark.parametrize(
    "content",
    cases(
        a_list=("[]",),
        nothing=("null",),
        empty=("",),
        nested=(DEEP,),
        utf16=(b"\xff\xfe",),
        digits=(f'{{"a": {LONG}}}',),
        a_list_for_a_type=(of_config(model_type=["x"]),),
        a_type_that_is_none=(of_config(model_type="nonsense"),),
        the_type_of_others=('{"model_type": "bert", "num_hidden_layers": 1, "vocab_size": 9}',),
        a_precision_that_is_none=(of_config(dtype="nonsense"),),
        a_number_for_labels=(of_config(id2label=5),),
        nan=(of_config(norm_eps=float("nan")),),
        half_a_character=(of_config(block="\ud800"),),
        more_layers_than_weights=(of_config(num_hidden_layers=9),),
        a_billion_layers=(of_config(num_hidden_layers=10**9),),
        layers_of_others=('{"model_type": "bert", "num_hidden_layers": 1000000000}',),
        a_billion_words=(of_config(vocab_size=10**9),),
        words_of_31_digits=(of_config(vocab_size=10**30),),
        a_billion_positions=(of_config(max_position_embeddings=10**9),),
        a_width_of_31_digits=(of_config(intermediate_size=8 * 10**29),),
        a_width_below_0=(of_config(hidden_size=-8),),
        a_word_for_a_width=(of_config(hidden_size="wide"),),
    ),
)
def test_a_damaged_model_configuration_is_refused(model, content):
    put(model, "config.json", content)
    refused(lambda: open_model(model), model)
    try:
        read_table(model)
    except ValueError as error:
        assert str(model) in line_of(error)


def head(about, data: bytes = b"") -> bytes:
    text = json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    cases(
        empty=(b"",),
        a_head_of_8_exabytes=(struct.pack("<Q", 2**63) + b"{}",),
        a_head_longer_than_the_file=(struct.pack("<Q", 10**6) + b"{}",),
        a_head_nested=(struct.pack("<Q", 9000) + b"[" * 9000,),
        a_head_of_a_list=(head([]),),
        a_tensor_beyond_the_file=(head({"a": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}}),),
        a_tensor_of_another_size=(head({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}, b"1234"),),
        a_kind_that_is_none=(head({"a": {"dtype": "Q99", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),),
        no_tensor=(head({}),),
        a_pickle_under_the_name=(b"\x80\x04cos\nsystem\n(S'x'\ntR.",),
    ),
)
def test_a_model_of_damaged_weights_is_refused(model, content):
    put(model, "model.safetensors", content)
    refused(lambda: open_model(model), model)
    refused(lambda: read_table(model), model)


def test_pickles_are_not_read(model):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    refused(lambda: open_model(model), model, "pickle is never read")
    refused(lambda: read_table(model), model, "runs code when opened")


@pytest.mark.long
def test_model_code_runs_only_when_named(model, tmp_path):
    """Code in the folder of a model runs only where it is named."""
    ran = tmp_path / "ran"
    text = put(tmp_path, "text.txt", sentences(60))
    out = tmp_path / "out"
    data = str(tasks(tmp_path / "tasks"))

    def plant(folder: Path) -> None:
        for name in ("modeling_whatwhere", "own_scheme", "scheme", "sitecustomize", "torch", "whatwhere"):
            put(folder, f"{name}.py", f"from pathlib import Path\nPath({str(ran)!r}).touch()\n")

    kinds = {kind: f"modeling_whatwhere.{kind}" for kind in ("AutoConfig", "AutoModel", "AutoModelForMaskedLM")}
    put(model, "config.json", of_config(auto_map=kinds))
    settings = json.loads((model / "tokenizer_config.json").read_text())
    mapped = {"auto_map": {"AutoTokenizer": [None, "modeling_whatwhere.T"]}}
    put(model, "tokenizer_config.json", settings | mapped)
    plant(model)
    read = ("--corpus", str(text), "--length", "16")
    for verb, *words in (
        ("predict", "--text", "The [MASK] of it."),
        ("heads", *read, "--windows", "10", "--out", str(out)),
        ("probe", *read, "--windows", "30"),
        ("evaluate", "linguistic", "--tasks", "blimp", "--data", data, "--out", str(tmp_path / "judged")),
    ):
        task = [words.pop(0)] if verb == "evaluate" else []
        done = whatwhere(verb, *task, str(model), *words)
        assert done.returncode == 0 and not ran.exists(), (verb, done.stderr[-2000:])
    plant(out)
    assert whatwhere("report", str(out)).returncode == 0 and not ran.exists()
    whatwhere("presets", "--scheme", str(model / "own_scheme.py"))
    assert ran.exists()  # so would the others have been


@pytest.mark.parametrize(
    ("name", "content"),
    cases(
        junk=("tokenizer.json", b"\xff\xfe"),
        a_list=("tokenizer.json", "[]"),
        nothing=("tokenizer.json", "{}"),
        nested=("tokenizer.json", DEEP),
        without_a_model=("tokenizer.json", {"version": "1.0", "added_tokens": [], "model": {"type": "nonsense"}}),
        settings_of_a_list=("tokenizer_config.json", "[]"),
        settings_cut_off=("tokenizer_config.json", "{"),
        settings_nested=("tokenizer_config.json", DEEP),
    ),
)
def test_a_damaged_tokenizer_is_refused(model, name, content):
    put(model, name, content)
    refused(lambda: open_tokenizer(str(model)), model)
    refused(lambda: load_tokenizer(model), model)


@pytest.mark.parametrize(
    ("content", "said"),
    cases(
        empty=(b"", "has no token [PAD]"),
        junk=(b"\xff\xfe", "is not UTF-8"),
        a_token_twice=("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", "names a token twice"),
        json_in_its_place=('{"[PAD]": 0}', "has no token [PAD]"),
        utf16=("[PAD]\n[UNK]".encode("utf-16"), "is not UTF-8"),
        a_pipe=(None, "No tokenizer at"),
    ),
)
def test_a_damaged_vocabulary_is_refused(tmp_path, content, said):
    path = put(tmp_path, "vocab.txt", content)
    refused(lambda: load_tokenizer(path), path, said)


@pytest.mark.parametrize(
    "content",
    cases(
        empty=(b"",),
        junk=(b"junk",),
        a_head_cut_off=(b"\x93NUMPY\x01\x00\xff\xff{",),
        a_head_without_end=(array(b"{'descr': '''"),),
        a_head_of_brackets=(array(b"(" * 9000),),
        a_head_of_code=(array(b"__import__('os')"),),
        numbers_that_no_memory_holds=(array(HUGE | {"shape": (2**62, 4)}),),
        a_shape_below_0=(array(HUGE | {"shape": (-1, 4)}),),
        a_shape_of_letters=(array(HUGE | {"shape": "ab"}),),
        a_shape_of_31_digits=(array(HUGE | {"shape": (10**30, 1)}),),
        objects=(array(HUGE | {"descr": "|O", "shape": (1, 1)}, b"\x80\x04N."),),
        words=(array(HUGE | {"descr": "<U1", "shape": (1, 1)}, b"a\0\0\0"),),
        one_number=(array(HUGE | {"shape": ()}, b"12345678"),),
        three_dimensions=(array(HUGE | {"shape": (1, 1, 1)}, b"12345678"),),
        nan=(array(HUGE | {"shape": (1, 1)}, b"\xff" * 8),),
        a_zip=(npz(),),
        a_pipe=(None,),
        a_folder=(...,),
    ),
)
def test_damaged_tables_of_numbers_are_refused(tmp_path, content):
    path = put(tmp_path, "t.npy", content)
    done = whatwhere("spectra", str(path))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(path) in done.stderr, done.stderr
    if content is not None:
        refused(lambda: Counts.load(path), path)
