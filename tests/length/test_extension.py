"""Models that read longer texts: the table goes on, all else stays; they open anywhere."""

import json
import os
import re
import subprocess
import sys

import huggingface_hub
import numpy as np
import pytest
import torch
from cli_runner import sentences, whatwhere
from foreign_models import put_in_hub_cache, save
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
)

import whatwhere as ww
from whatwhere import geometry
from whatwhere.geometry import extrapolate
from whatwhere.length.extension import SCALINGS, extend
from whatwhere.models.lengths import trained_length
from whatwhere.models.model_tables import read_table
from whatwhere.models.modules import vector_parts
from whatwhere.run.folder import RunFolder
from whatwhere.run.reference import model_source
from whatwhere.run.verify import verify
from whatwhere.study import evaluation_run

SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def make(kind, folder):
    """A small random model of 40 positions."""
    torch.manual_seed(0)
    if kind == "bert":
        model = BertModel(BertConfig(**SMALL, max_position_embeddings=40))
    elif kind == "roberta":
        model = RobertaModel(RobertaConfig(**SMALL, max_position_embeddings=42, pad_token_id=1))
    else:
        model = GPT2Model(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=40))
    model.eval().save_pretrained(folder)
    return model


def test_a_copy_leaves_the_text_of_its_run_behind(tmp_path):
    """A longer copy of a training took its windows along, gigabytes of text that nobody meant to hand on."""
    make("bert", tmp_path / "run").save_pretrained(tmp_path / "run")
    for name in ("corpus/shards/0.npy", "dev-predictions.csv", "not-finite-3.npz", "report.html", "finetune.yaml"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("{}")
    extend(tmp_path / "run", tmp_path / "copy", 80)
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {
        "config.json",
        "extension.json",
        "manifest.jsonl",
        "model.safetensors",
        "README.md",
    }


def test_a_copy_has_hashes_of_its_own(tmp_path):
    """It had those of its original, and was refused as damaged wherever it was opened."""
    with RunFolder.create(tmp_path / "m", "model") as folder:
        make("bert", folder)
    extend(tmp_path / "m", tmp_path / "long", 90, "cyclic")
    assert model_source(str(tmp_path / "long")) and verify(tmp_path / "long")[1] == []


def test_a_name_on_the_hub_is_continued(tmp_path, monkeypatch):
    """There was "no such folder", as of no other verb that takes a model."""
    model = make("roberta", tmp_path / "model")
    put_in_hub_cache(tmp_path / "model", "some/encoder", tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    assert extend("some/encoder", tmp_path / "long", 90)["parent"] == "some/encoder"
    table = AutoModel.from_pretrained(tmp_path / "long").embeddings.position_embeddings.weight
    assert len(table) == 92 and torch.equal(table[:42], model.embeddings.position_embeddings.weight)
    with pytest.raises(ValueError, match="'some/other' is no file or folder here, and the Hub returns no such model"):
        extend("some/other", tmp_path / "other", 90)


@pytest.mark.whole
def test_longer_texts_of_a_name_on_the_hub(tmp_path, monkeypatch):
    """Its config.json was said to be missing; the losses are those of the same model in a folder."""
    texts = sentences(400).split("\n\n")
    corpus = tmp_path / "long.txt"
    corpus.write_text("\n\n".join("\n".join(texts[i : i + 20]) for i in range(0, 400, 20)), encoding="utf-8")
    folder = save("roberta", tmp_path / "model", texts)
    put_in_hub_cache(folder, "some/encoder", tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(evaluation_run, "parallel_jobs", lambda: 1)  # in this process, which has imported everything
    given = ["--to", "64", "--corpus", str(corpus), "--document", "blank-line", "--documents", "10"]
    losses = []
    for number, source in enumerate(("some/encoder", str(folder))):
        out = tmp_path / f"out-{number}"
        done = whatwhere("evaluate", "length", source, *given, "--methods", "cyclic", "--out", str(out))
        assert done.returncode == 0, done.stderr
        losses.append(np.load(next(out.glob("runs/*/cyclic/*.npz")))["loss"])
    np.testing.assert_array_equal(*losses)


@pytest.mark.parametrize(("kind", "first"), [("bert", 1), ("roberta", 1), ("gpt2", 0)])
def test_a_model_of_transformers_reads_on(kind, first, tmp_path):
    before = make(kind, tmp_path / "m")
    facts = extend(tmp_path / "m", tmp_path / "long", 90, "cyclic")
    assert (facts["before"], facts["length"]) == (40, 90)
    old = read_table(tmp_path / "m").numpy()  # rows of no position left out
    new = read_table(tmp_path / "long").numpy()
    assert old.shape == (40, 16) and new.shape == (90, 16)
    assert (new[:40] == old).all()
    assert new[first:] == pytest.approx(extrapolate(old[first:], 90 - first, "cyclic"), abs=1e-6)
    after = AutoModel.from_pretrained(tmp_path / "long").eval()
    with torch.no_grad():
        short = torch.randint(3, 50, (1, 40))
        long = torch.randint(3, 50, (1, 90))
        assert torch.equal(before(short).last_hidden_state, after(short).last_hidden_state)
        assert after(long).last_hidden_state.isfinite().all()
        with pytest.raises((IndexError, RuntimeError)):
            before(long)


# Copies of ours: a table continued, by its formula too, a rotation scaled, a window with each and alone.
COPIES = {
    "table": ("ap", {"method": "rotation"}),
    "table-window": ("dstg", {"window": 16}),
    "formula": ("sinusoidal", {}),
    "points": ("ap", {"method": "mds", "points": np.random.default_rng(0).normal(size=(200, 3))}),
    "rotation-window": ("rope", {"window": 16}),
    "window": ("alibi", {"window": 16}),
    **{method: ("rope", {"method": method}) for method in SCALINGS},
}
OPEN = """
import json, sys
sys.modules["whatwhere"] = None  # an import of it fails, as where it is not installed
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer
found = {}
for name, ids in json.load(open("cases.json")).items():
    model = AutoModel.from_pretrained(name, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    with torch.no_grad():
        found[name] = model(input_ids=torch.tensor(ids)).last_hidden_state
save_file(found, "found.safetensors")
tokenizer = AutoTokenizer.from_pretrained("reference", trust_remote_code=True)
print(tokenizer.model_max_length, len(tokenizer("the river " * 400, truncation=True).input_ids))
"""


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Folder of copies of 200 positions, and what a process without this package says of them all: in this one
    transformers takes the classes of the package, and not the files that a copy carries."""
    root = tmp_path_factory.mktemp("copies")
    draw = torch.Generator().manual_seed(0)
    cases = {name: torch.randint(5, 60, (2, 200), generator=draw).tolist() for name in ("reference", *COPIES)}
    for name, (preset, how) in COPIES.items():
        torch.manual_seed(0)
        ww.Encoder(ww.preset(preset, size="tiny", vocab_size=60)).save_pretrained(root / "m" / name)
        config = root / "m" / name / "config.py"  # of a model saved before attention_window was a field, which code
        config.write_text(config.read_text().replace("    attention_window: int | None = None\n", ""))  # refuses then
        (root / "m" / name / "old.py").write_text("raise RuntimeError")
        extend(root / "m" / name, root / name, 200, **how)
    how = ("--length", "200", "--method", "decay", "--out", str(root / "reference"), "--json")
    done = whatwhere("extrapolate", "reference", *how)
    assert done.returncode == 0 and json.loads(done.stdout)["before"] == 128, done.stderr
    (root / "cases.json").write_text(json.dumps(cases))
    quiet = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(root / "hub"), "PYTHONPATH": ""}
    quiet |= {"HF_MODULES_CACHE": str(root / "modules")}
    told = subprocess.run([sys.executable, "-P", "-c", OPEN], capture_output=True, text=True, env=quiet, cwd=root)
    assert told.returncode == 0, told.stderr[-4000:]
    return root, cases, load_file(root / "found.safetensors"), told.stdout.split()


@pytest.mark.long
@pytest.mark.parametrize("name", ["reference", *COPIES])
def test_a_carried_copy_gives_the_same_numbers(name, copies):
    """A copy gives the same numbers where this package is not installed."""
    # All but one were opened in the process of the test: code of long ago passed there.
    root, cases, found, _ = copies
    assert not (root / name / "old.py").exists()
    with torch.no_grad():
        model = ww.Encoder.from_pretrained(root / name).eval()
        assert torch.equal(found[name], model(input_ids=torch.tensor(cases[name])).last_hidden_state)


@pytest.mark.long
def test_a_copy_keeps_its_table(copies):
    """A copy by the verb keeps its table and its tokenizer reads on."""
    root, _, _, told = copies
    assert told == ["200", "200"]
    old = read_table(ww.reference()).numpy()
    new = read_table(root / "reference").numpy()
    assert (new[:128] == old).all()
    assert new[150] == pytest.approx(old[-1] / (1 + np.log1p(150 - 127)), rel=0.01)  # bfloat16
    with torch.no_grad():
        ids = torch.randint(5, 4000, (1, 128))
        kept, longer = (ww.Encoder.from_pretrained(folder).eval() for folder in (ww.reference(), root / "reference"))
        assert torch.equal(kept(input_ids=ids).last_hidden_state, longer(input_ids=ids).last_hidden_state)


def test_a_copys_tokenizer_cuts_nothing(tmp_path):
    """The source's truncation stayed in the copy's tokenizer.json: long texts were cut at the old length."""
    folder = save("bert", tmp_path / "m")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    before = backend.encode("la ne to " * 20).ids
    backend.enable_padding(length=32)
    backend.enable_truncation(32)
    backend.save(str(folder / "tokenizer.json"))
    extend(folder, tmp_path / "long", 90, "cyclic")
    assert Tokenizer.from_file(str(tmp_path / "long/tokenizer.json")).encode("la ne to " * 20).ids == before


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_vectors_of_a_copy_are_of_longer_texts(kind, tmp_path):
    """A sentence-transformers folder says its length under several names and keys; a copy kept those of all but one."""
    folder = save(kind, tmp_path / "m")
    parts = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    parts += [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(parts))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    stated = {"max_seq_length": 12, "processing_kwargs": {"text": {"max_length": 12}}}
    (folder / f"sentence_{kind}_config.json").write_text(json.dumps(stated))
    extend(folder, tmp_path / "long", 90, "cyclic")
    assert vector_parts(str(tmp_path / "long"))[0].length == 90


@pytest.mark.parametrize("preset", ["rope", "xpos", "alibi", "rp", "nope", "bipe"])
def test_a_scheme_without_a_table_needs_nothing(preset, tmp_path):
    model = ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60))
    model.save_pretrained(tmp_path / "m")
    done = whatwhere("extrapolate", str(tmp_path / "m"), "--length", "500", "--out", str(tmp_path / "long"))
    assert done.returncode == 0 and f"{preset} needs no change to read texts of any length" in done.stdout, done.stderr
    assert not (tmp_path / "long").exists()
    with pytest.raises(ValueError, match="components, points and as_written are of a learned position table"):
        extend(tmp_path / "m", tmp_path / "long", 500, as_written=True)
    with pytest.raises(ValueError, match="There is no method 'nonsense'"):
        extend(tmp_path / "m", tmp_path / "long", 500, "nonsense")
    if preset != "rope":  # the message had an empty list of methods, and without a window the method was ignored
        for window in (16, None):
            no_use = f"^{preset} has no table and no rotation to continue, so cyclic has no use here"
            with pytest.raises(ValueError, match=no_use):
                extend(tmp_path / "m", tmp_path / "long", 500, "cyclic", window=window)


def test_places_in_a_segment_keep_their_table(tmp_path):
    """A copy of `bipe` with a window of attention has the table as it was, whose rows are places in a segment."""
    model = ww.EncoderForMaskedLM(ww.preset("bipe", size="tiny", vocab_size=60)).eval()
    model.save_pretrained(tmp_path / "m")
    extend(tmp_path / "m", tmp_path / "long", 500, window=499 // 2)
    again = ww.EncoderForMaskedLM.from_pretrained(tmp_path / "long").eval()
    ids = torch.randint(5, 60, (1, 240), generator=torch.Generator().manual_seed(0))
    assert again.config.attention_window == 249 and torch.equal(again(ids).logits, model(ids).logits)


@pytest.mark.parametrize("preset", ["deberta", "cope", "fire"])
def test_terms_of_a_longest_text_keep_it(preset, tmp_path):
    """A copy with a window got another number of positions: two could not be opened, and FIRE's L was another."""
    model = ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60)).eval()
    model.save_pretrained(tmp_path / "m")
    extend(tmp_path / "m", tmp_path / "long", 500, window=499 // 2)
    again = ww.EncoderForMaskedLM.from_pretrained(tmp_path / "long").eval()
    ids = torch.randint(5, 60, (1, 240), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=1e-5)
    for table in ("learned", "sinusoidal"):
        both = {"absolute": table, "position_size": 8, "stream_qk": "separate"}
        model = ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60, **both))
        model.save_pretrained(tmp_path / table)
        with pytest.raises(ValueError, match="cannot be continued: its .* terms are made for 128 positions"):
            extend(tmp_path / table, tmp_path / "longer", 500)


@pytest.mark.parametrize("preset", ["sinusoidal", "fourier", "low-rank"])
def test_tables_by_formula_go_on_by_it(preset, tmp_path):
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60)).eval()
    model.save_pretrained(tmp_path / "m")
    if preset != "low-rank":  # any method was taken, and the formula used
        for method, said in (("linear", "so linear has no use here"), ("nonsense", "There is no method 'nonsense'")):
            with pytest.raises(ValueError, match=said):
                extend(tmp_path / "m", tmp_path / "long", 300, method)
    extend(tmp_path / "m", tmp_path / "long", 300)
    longer = ww.EncoderForMaskedLM.from_pretrained(tmp_path / "long").eval()
    ids = torch.randint(0, 60, (1, 100))
    with torch.no_grad():
        assert torch.allclose(model(input_ids=ids).logits, longer(input_ids=ids).logits, atol=1e-6)
        assert longer(input_ids=torch.randint(0, 60, (1, 300))).logits.isfinite().all()


@pytest.mark.whole
@pytest.mark.parametrize("as_written", [False, True])
@pytest.mark.parametrize("method", ["sinusoidal", "fourier", "cyclic", "decay", "rotation", "linear"])
def test_low_rank_copies_continue_the_product(method, as_written, tmp_path):
    """Of a table of low rank the product goes on."""
    # Its factor A went on: σ, the dominant frequencies and the network were those of A, not of the table.
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(ww.preset("low-rank", size="tiny", vocab_size=60))
    model.save_pretrained(tmp_path / "m")
    extend(tmp_path / "m", tmp_path / "long", 300, method, as_written=as_written)
    old = read_table(tmp_path / "m").numpy()
    new = read_table(tmp_path / "long").numpy()
    apart = new[1:] - extrapolate(old[1:], 299, method, as_written=as_written)
    mixed = model.encoder.position_embeddings.table.B.detach().double().numpy()
    assert np.abs(apart @ mixed).max() < 1e-7  # the nearest of its rank: nothing is left in the columns of B
    assert np.abs(apart).max() < 1e-6 or method == "sinusoidal"  # whose waves are not of the table's rank
    if not as_written and method != "linear":
        assert (new[:128] == old).all()


@pytest.mark.parametrize("method", SCALINGS)
def test_a_rotation_is_scaled(method, tmp_path):
    torch.manual_seed(0)
    ww.EncoderForMaskedLM(ww.preset("rope", size="tiny", vocab_size=60)).eval().save_pretrained(tmp_path / "m")
    facts = extend(tmp_path / "m", tmp_path / "long", 512, method)
    assert (facts["before"], facts["length"], facts["method"]) == (128, 512, method)
    scaled = ww.EncoderForMaskedLM.from_pretrained(tmp_path / "long").eval()
    config = scaled.config
    assert (config.rotation_scaling, config.rotation_factor, config.max_position_embeddings) == (method, 4.0, 512)
    built = ww.EncoderForMaskedLM(
        ww.preset(
            "rope",
            size="tiny",
            vocab_size=60,
            rotation_scaling=method,
            rotation_factor=4.0,
            max_position_embeddings=512,
        )
    ).eval()
    built.load_state_dict(scaled.state_dict())
    ids = torch.randint(5, 60, (1, 300))
    with torch.no_grad():
        assert torch.equal(scaled(input_ids=ids).logits, built(input_ids=ids).logits)
    with pytest.raises(ValueError, match=f"is a copy that goes on already, by {method} to 512 tokens. Give the model"):
        extend(tmp_path / "long", tmp_path / "longer", 1024, method)


def test_a_copy_says_how_it_was_made(tmp_path):
    """A copy says how it was made and is not continued again."""
    # The rows that a method made were taken for learned ones.
    make("bert", tmp_path / "bert/seed-1")
    how = {"components": 3, "as_written": True}
    facts = extend(tmp_path / "bert/seed-1", tmp_path / "long", 90, "fourier", **how)
    made = {
        "parent": "bert/seed-1",
        "method": "fourier",
        "window": None,
        "length": 90,
        "before": 40,
        "trained": 40,
        **how,
    }
    assert json.loads((tmp_path / "long/extension.json").read_text()) == made and facts == made | {
        "out": str(tmp_path / "long")
    }
    assert (tmp_path / "long/README.md").read_text() == (
        "> A copy of `bert/seed-1` that reads 90 tokens (40 before, trained on 40): positions beyond by `fourier` of 3 "
        "frequencies, by the equation in the rows before, too. What follows is said of the original, but for the "
        "longest input.\n\n"
    )
    with pytest.raises(ValueError, match="is a copy that goes on already, by fourier to 90 tokens. Give the model"):
        extend(tmp_path / "long", tmp_path / "longer", 120)
    usual = extend(tmp_path / "bert/seed-1", tmp_path / "other", 90, "rotation")
    assert usual["components"] == 2  # a sixteenth of the 39 rows behind [CLS]


def test_extra_rows_of_old_checkpoints_are_ignored(tmp_path):
    """Numbers of the rows that old checkpoints keep are left out."""
    # MiniLM of sentence-transformers: its copies had 512 numbers beside 1,024 rows.
    model = make("bert", tmp_path / "m")
    old = {name: t.contiguous() for name, t in model.state_dict().items()} | {
        "embeddings.position_ids": torch.arange(40)[None]
    }
    save_file(old, tmp_path / "m/model.safetensors", {"format": "pt"})
    extend(tmp_path / "m", tmp_path / "long", 90)
    assert set(load_file(tmp_path / "long/model.safetensors")) == set(model.state_dict())


def test_a_copy_with_a_window_alone_is_continued(tmp_path):
    ww.EncoderForMaskedLM(ww.preset("ap", size="tiny", vocab_size=60)).save_pretrained(tmp_path / "m")
    extend(tmp_path / "m", tmp_path / "near", 128, window=16)
    assert extend(tmp_path / "near", tmp_path / "long", 200)["trained"] == 128


def test_points_are_those_of_a_table_that_geometry_writes(tmp_path):
    # Its row 0 is that of [CLS]: points were taken one position too early.
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    points = geometry.mds_table(rng.normal(size=(199, 3)), np.arange(199), 3)
    table = points @ rng.normal(size=(3, 120))
    model = ww.EncoderForMaskedLM(ww.preset("ap", size="tiny", vocab_size=60))
    model.encoder.position_embeddings.table.weight.data = torch.from_numpy(table[:128]).float()
    model.save_pretrained(tmp_path / "m")
    extend(tmp_path / "m", tmp_path / "long", 200, "mds", points=points)
    assert read_table(tmp_path / "long").numpy() == pytest.approx(table, abs=1e-5)
    with pytest.raises(ValueError, match="points for 150 positions, and LENGTH is 200"):
        extend(tmp_path / "m", tmp_path / "longer", 200, "mds", points=points[:150])


@pytest.mark.slow
def test_corpus_points_come_from_geometry(tmp_path):
    """Points of a corpus are what geometry writes of it."""
    # Made-up points alone were ever given, and to Python, not to the verb.
    words = ("--corpus", "python-docs", "--tokenizer", "reference", "--positions", "200", "--no-smacof", "--dims", "4")
    less = ("--no-intervals", "--set", "splits=2", "--set", "groups=4")
    done = whatwhere("geometry", *words, *less, "--out", str(tmp_path / "geometry"))
    assert done.returncode == 0, done.stderr
    points = tmp_path / "geometry/tables/python-docs-mds.npy"
    held = np.load(points)
    assert len(held) == 201  # [CLS] and 200 tokens
    how = ("--length", "200", "--method", "mds", "--points", str(points), "--out", str(tmp_path / "long"))
    done = whatwhere("extrapolate", "reference", *how)
    assert done.returncode == 0 and "reads 200 tokens, 128 before, by the method mds" in done.stdout, done.stderr
    old = read_table(ww.reference()).double().numpy()
    new = read_table(tmp_path / "long").double().numpy()
    image = np.column_stack([held, np.ones(len(held))])  # its least-squares image of the rows behind [CLS]
    expected = image[1:200] @ np.linalg.lstsq(image[1:128], old[1:], rcond=None)[0]
    assert (new[:128] == old).all() and new[128:] == pytest.approx(expected[127:], abs=2e-3)  # bfloat16


def test_rotations_are_slowed_by_the_length_of_the_training(tmp_path):
    ww.EncoderForMaskedLM(ww.preset("rope", size="tiny", vocab_size=60)).save_pretrained(tmp_path / "m")
    (tmp_path / "m/pretrain.yaml").write_text("length: 64\n")  # it could read 128, and was trained on 64
    extend(tmp_path / "m", tmp_path / "long", 512, "yarn")
    assert ww.EncoderConfig.from_pretrained(tmp_path / "long").rotation_factor == 8.0
    assert trained_length(tmp_path / "long", {}) == 64  # a copy of a copy, too


def test_the_copys_card_opens_it(tmp_path):
    """The card of a copy says what the copy reads and opens it."""
    # "longest input: 128 tokens" stood below the sentence on 300, and the code opened the original.
    extend("reference", tmp_path / "long", 300)
    card = (tmp_path / "long/README.md").read_text("utf-8")
    assert "| longest input | 300 tokens |" in card and "- Longest input: 300 tokens." in card
    assert 'from_pretrained("FOLDER")' in card and "whatwhere attention FOLDER --text" in card
    assert "ww.reference()" not in card and "input | 128" not in card


def test_a_window_alone_continues_no_table(tmp_path):
    """A copy of the same length was said to be continued by a method."""
    facts = extend("reference", tmp_path / "near", 128, window=8)
    assert facts["method"] is None and facts["window"] == 8
    assert "beyond by" not in (tmp_path / "near/README.md").read_text("utf-8")
    with pytest.raises(ValueError, match="reads 128 tokens already: method and points have no use"):
        extend("reference", tmp_path / "cyclic", 128, method="cyclic", window=8)


def test_a_checkpoint_was_trained_on_its_runs_length(tmp_path):
    """The length of the training was sought in the checkpoint, and what the table holds was taken for it."""
    checkpoint = tmp_path / "run/checkpoints/step-10"
    checkpoint.mkdir(parents=True)
    (tmp_path / "run/pretrain.yaml").write_text("length: 32\n")
    assert trained_length(checkpoint, {"max_position_embeddings": 128}) == 32


def test_a_window_as_wide_as_the_text_is_refused(tmp_path):
    with pytest.raises(ValueError, match="A window of 299 tokens on each side hides nothing of 300. Give less"):
        extend("reference", tmp_path / "long", 300, window=299)
    extend("reference", tmp_path / "long", 300, window=298)


@pytest.mark.parametrize("preset", ["rope", "alibi", "dstg"])
def test_a_window_goes_with_every_scheme_of_ours(preset, tmp_path):
    ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60)).save_pretrained(tmp_path / "m")
    facts = extend(tmp_path / "m", tmp_path / "long", 300, window=16)
    assert facts["method"] == ("cyclic" if preset == "dstg" else None) and facts["window"] == 16
    model = ww.Encoder.from_pretrained(tmp_path / "long").eval()
    ids = torch.randint(5, 60, (1, 300))
    changed = ids.clone()
    changed[0, 200:] = 5
    with torch.no_grad():
        before, after = (model(input_ids=each).last_hidden_state for each in (ids, changed))
    reach = 16 * model.config.num_hidden_layers
    assert torch.equal(before[0, : 200 - reach], after[0, : 200 - reach]) and not torch.equal(before, after)
    make("bert", tmp_path / "bert")
    with pytest.raises(ValueError, match="Attention to a window of tokens is of this package's encoders"):
        extend(tmp_path / "bert", tmp_path / "longer", 90, window=16)


@pytest.mark.parametrize(
    ("preset", "method", "said"),
    [
        ("rope", "cyclic", "There is no method 'cyclic' for a rotation: it is of a table. Known: linear, ntk, yarn."),
        ("ap", "yarn", "There is no method 'yarn' for a position table: it is of RoPE. Known: sinusoidal"),
        ("tupe-free", None, "The positions of .*/m are a free correlation"),
    ],
)
def test_a_method_of_another_scheme_is_refused(preset, method, said, tmp_path):
    ww.EncoderForMaskedLM(ww.preset(preset, size="tiny", vocab_size=60)).save_pretrained(tmp_path / "m")
    with pytest.raises(ValueError, match=said):
        extend(tmp_path / "m", tmp_path / "long", 500, method)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--length", "100"],
            r"The model already reads 128 tokens \(predict --length 128\). Give more; got 100.",
        ),
        (
            ["--length", "200", "--method", "spline"],
            "There is no method 'spline' for a position table. Known: sinusoidal",
        ),
        (
            ["--length", "200", "--method", "fourier", "--components", "64"],
            "from 1 to half of the 127 positions. Got 64",
        ),
        (
            ["--length", "200", "--components", "3"],
            "components are of fourier and rotation. Got method='cyclic'; leave components out",
        ),
        (["--length", "999999999999"], "Rows for 999,999,999,999 tokens need .* GiB, and .* are free. Give less"),
        (
            ["--length", "128"],
            r"The model already reads 128 tokens \(predict --length 128\). Give more; got 128.",
        ),
        (["--length", "200", "--scheme", "none.py"], "none.py"),
        (["--length", "100", "--window", "16"], r"With a window give 128 or more; got 100."),
        (["--length", "200", "--method", "mds"], "mds needs points, .* .--points FILE.npy., or another method."),
        (["--length", "200", "--method", "mds", "--points", "none.npy"], "No position table at none.npy"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(words, said, tmp_path):
    done = whatwhere("extrapolate", "reference", *words, "--out", str(tmp_path / "long"))
    assert done.returncode == 2 and re.search(said, done.stderr) and len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_kept(tmp_path):
    (tmp_path / "long").mkdir()
    (tmp_path / "long/notes.txt").write_text("mine")
    done = whatwhere("extrapolate", "reference", "--length", "200", "--out", str(tmp_path / "long"))
    assert done.returncode == 2 and "is there already" in done.stderr
    done = whatwhere("extrapolate", str(tmp_path), "--length", "200", "--out", str(tmp_path / "x"))
    assert done.returncode == 2 and "config.json is missing" in done.stderr
