"""The model that comes with the package: what its folder holds, what opens it, which verbs take its name, how it is
made and refused."""

import json
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from cli_runner import sentences
from safetensors.torch import load_file
from scripts import module_of
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertModel

import whatwhere as ww
from whatwhere import cli
from whatwhere.corpus import build_windows, open_source
from whatwhere.corpus.tokenizer import train_tokenizer
from whatwhere.models.open import open_model
from whatwhere.models.table_sources import load_tables
from whatwhere.run import reference as reference_model
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import verify
from whatwhere.study.geometry_run import GeometryConfig, run_geometry
from whatwhere.training.finetune import FinetuneConfig, finetune
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig

ROOT = Path(__file__).parents[1]
TEXT = "The river rose quickly after the rain."


@pytest.fixture
def run(monkeypatch, capsys):
    """The command line in this process: (exit status, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["whatwhere", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return call


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text(sentences(150), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def maker():
    """examples/make_reference.py as a module."""
    return module_of(ROOT / "examples/make_reference.py")


def test_the_reference_folder_is_small_without_code():
    """The folder is small has no code and travels with the package."""
    folder = Path(ww.reference())
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 4_000_000
    assert not [path for path in files if path.suffix in (".py", ".bin", ".pt")]
    package = folder.parent
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["whatwhere"]
    assert set(files) <= {path for pattern in patterns for path in package.glob(pattern)}
    about = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert (
        about["reference"]["licence"] in card
        and f"{about['reference']['loss']:.4f} nats" in card
        and f"| seed | {about['seed']} |" in card
    )
    assert about["reference"]["bytes"] == sum(path.stat().st_size for path in files if path.name != MANIFEST)
    assert verify(folder) == (len(files) - 2, [])  # all but the card and the list itself
    assert abs(about["reference"]["loss"] - about["reference"]["loss_float32"]) < 0.01


def test_16_bit_weights_compute_in_32_bits():
    """Stored in 16 bits it opens and computes in 32."""
    stored = load_file(Path(ww.reference()) / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    tokenizer = AutoTokenizer.from_pretrained(ww.reference())
    for model in (
        AutoModel.from_pretrained(ww.reference()),
        AutoModelForMaskedLM.from_pretrained(ww.reference()),
        open_model("reference").model,
    ):
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        body = getattr(model, "encoder", model)
        assert torch.equal(body.word_embeddings.weight, stored["encoder.word_embeddings.weight"].float())
        hidden = body(**tokenizer(TEXT, return_tensors="pt")).last_hidden_state
        assert hidden.dtype == torch.float32 and hidden.isfinite().all()
    assert body.config.preset == "dstg" and len(tokenizer) == body.config.vocab_size


def test_the_reference_model_has_learned_from_context():
    """What stands around a mask changes the prediction, which word frequencies alone would not."""
    # A model that knows only how often a word occurs gives "the" for both; its own text is English.
    tokenizer = AutoTokenizer.from_pretrained(ww.reference())
    model = AutoModelForMaskedLM.from_pretrained(ww.reference()).eval()
    ids = tokenizer("the end of the [MASK] .", return_tensors="pt")
    other = tokenizer("it is [MASK] of the best .", return_tensors="pt")
    with torch.no_grad():
        logits = [
            model(**text).logits[text["input_ids"] == tokenizer.mask_token_id][0].log_softmax(-1)
            for text in (ids, other)
        ]
    assert (logits[0].exp() * (logits[0] - logits[1])).sum() > 0.1  # KL in nats: what stands round a mask matters


def test_narrow_foreign_models_are_read_in_32_bits(tmp_path):
    """A narrow model of transformers is looked at in 32 bits."""
    BertModel(
        BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    ).bfloat16().save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert AutoModel.from_pretrained(tmp_path).dtype == torch.bfloat16
    assert open_model(tmp_path).model.dtype == torch.float32


@pytest.mark.whole
def test_verbs_take_the_name_of_the_reference_model(run, corpus, tmp_path, monkeypatch):
    """`reference` is all that a verb needs to know of a model, in any folder."""
    monkeypatch.chdir(tmp_path)
    status, out, _ = run("attention", "reference", "--text", TEXT, "--json", "--out", tmp_path / "attention.html")
    assert status == 0 and json.loads(out)["terms"] == ["semantic", "absolute", "relative", "total"]
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert "What each head of reference looks at" in page and ww.reference() not in page
    status, out, _ = run("spectra", "reference", "--json")
    assert status == 0 and json.loads(out)["tables"][0]["name"] == "reference"
    status, out, _ = run("explain", "reference", "--json")
    assert status == 0 and json.loads(out)["config"]["position_size"] == 8
    # python-docs, the default text, takes seconds: a small file stands for it.
    status, out, err = run("heads", "reference", "--corpus", corpus, "--windows", "10", "--json")
    found = json.loads(out)
    assert status == 0 and found["corpus"] == str(corpus) and found["windows"] == 10, err
    assert {r["model"] for r in found["records"]} == {"reference"} and any(
        r["metric"] == "kl.absolute" for r in found["records"]
    )
    status, out, err = run("probe", "reference", "--corpus", corpus, "--windows", "10", "--splits", "2")
    assert status == 0 and "\n    4  position " in out and "read: 10 windows of 128 tokens, of " in out, err
    assert out.rstrip().endswith(f" of {corpus}")


def test_missing_package_data_is_one_line(run, monkeypatch, tmp_path):
    """Without the package data every verb says so in one line."""
    monkeypatch.setattr(reference_model, "_FOLDER", tmp_path / "none")
    table = tmp_path / "rows.tsv"
    table.write_text("sentence\tlabel\na\t0\nb\t1\n")
    data = ("--data", table, "--dev", table, "--out", tmp_path / "tuned")
    for words in (
        ("attention", "reference", "--out", tmp_path / "a.html"),
        ("heads", "reference"),
        ("probe", "reference"),
        ("spectra", "reference"),
        ("explain", "reference"),
        ("finetune", "reference", *data),
        ("geometry", "--model", "reference", "--out", tmp_path / "g"),
        ("geometry", "--table", "reference", "--out", tmp_path / "g"),
        (
            "pretrain",
            "--tokenizer",
            "reference",
            "--steps",
            "1",
            "--corpus",
            "synthetic:repeat",
            "--out",
            tmp_path / "p",
        ),
    ):
        status, _, err = run(*words)
        (line,) = [line for line in err.splitlines() if line.strip()]
        wanted = (
            f"whatwhere: The reference model is not part of this installation: {tmp_path / 'none'} has no "
            "config.json. Reinstall"
        )
        assert status == 2 and line.startswith(wanted), (words, err)


def test_the_reference_model_is_no_run(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for words in (("claims", "reference"), ("report", "reference")):
        status, _, err = run(*words)
        assert (
            status == 2
            and "reference is the model that comes with the package, and no run" in err
            and len(err.splitlines()) == 1
        )


def test_the_reference_model_wins_over_a_local_folder(monkeypatch, tmp_path):
    """`reference` is the shipped model even beside a folder of that name, which `./reference` names."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=30, num_hidden_layers=1)).save_pretrained(
        "reference", code=False
    )
    shipped_table, mine, also = (
        load_tables([source])[0][0].rows for source in ("reference", "./reference", Path("reference"))
    )
    assert (mine == also).all() and not (mine == shipped_table).all()
    assert open_model("reference").model.config.vocab_size != 30
    assert open_model("./reference").model.config.vocab_size == 30


def test_fine_tuning_starts_from_the_reference(tmp_path):
    """Fine tuning starts from it in 32 bits and its run names no path."""
    for name, rows in (("train.tsv", 24), ("dev.tsv", 8)):
        (tmp_path / name).write_text(
            "sentence\tlabel\n" + "".join(f"{'good' if i % 2 else 'bad'} book\t{i % 2}\n" for i in range(rows))
        )
    values = {
        "start": "reference",
        "data": str(tmp_path / "train.tsv"),
        "dev": str(tmp_path / "dev.tsv"),
        "length": 16,
        "batch_size": 8,
    }
    finetune(FinetuneConfig.parse({**values, "precision": "fp32", "steps": 2}), tmp_path / "out", progress=False)
    assert {tensor.dtype for tensor in load_file(tmp_path / "out/model.safetensors").values()} == {torch.float32}
    assert "start: reference\n" in (tmp_path / "out/finetune.yaml").read_text(encoding="utf-8")
    assert "the encoder `reference`" in (tmp_path / "out/README.md").read_text(encoding="utf-8")


def test_geometry_measures_it_with_its_own_tokenizer(corpus, tmp_path):
    few = {
        "positions": 12,
        "intervals": False,
        "smacof": False,
        "splits": 1,
        "groups": 4,
        "dims": [8],
        "ranks": [1],
        "width": 64,
        "min_support": 5,
    }
    config = GeometryConfig.parse(
        {"corpora": [str(corpus)], "document": "blank-line", "models": ["reference"], "tables": ["reference"], **few}
    )
    found = run_geometry(config, tmp_path / "g", progress=False)
    assert found["models"][0]["name"] == "reference" and found["models"][0]["summary"]
    assert "reference" in {s["part"] for s in found["corpora"][0]["statistics"] if s.get("part")}


@pytest.mark.whole
def test_making_it_measures_the_rounding(maker, corpus, tmp_path, monkeypatch):
    """Making it rounds the weights and measures what that does."""
    small = {"length": 32, "vocab_size": 300, "batch_size": 8, "workers": 1, "precision": "fp32", "warmup_steps": 2}
    settings = {
        **small,
        "model": {"num_hidden_layers": 2},
        "document": "blank-line",
        "corpus": str(corpus),
        "held_out": 0.3,
        "steps": 4,
    }
    pretrain(PretrainConfig.parse(settings), tmp_path / "run", progress=False)
    to = tmp_path / "to"
    summary = maker.make_reference(tmp_path / "run", to, text="made-up sentences", licence="CC0")
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", to))
    assert before.keys() == after.keys()
    assert all(
        after[name].dtype == torch.bfloat16 and torch.equal(after[name], before[name].bfloat16()) for name in before
    )
    found = summary["reference"]
    assert json.loads((to / "training.json").read_text())["reference"] == found
    assert found["bytes"] == sum(
        path.stat().st_size for path in to.rglob("*") if path.is_file() and path.name != MANIFEST
    )
    assert 0 < found["largest_logit_difference"] < 0.5 and 0 < abs(found["loss"] - found["loss_float32"]) < 0.01
    assert list(found["r2"]) == ["all", "position", "semantic"] and all(len(r2) == 3 for r2 in found["r2"].values())
    assert "made-up sentences (CC0), 30% of the documents held out" in (to / "README.md").read_text(encoding="utf-8")
    config = json.loads((to / "config.json").read_text())
    assert (
        config["dtype"] == "float32"
        and "auto_map" not in config
        and AutoModel.from_pretrained(to).dtype == torch.float32
    )
    kept = (to / "training.json").read_bytes()
    for limit, what in (
        ("LARGEST", "bytes in the folder"),
        ("LOGITS", "nats between two logits"),
        ("LOSS", "nats between the held-out losses"),
    ):
        with (
            monkeypatch.context() as patch,
            pytest.raises(ValueError, match=f"{what}, more than the 1e-12 of a reference model. Nothing was"),
        ):
            patch.setattr(maker, limit, 1e-12)
            maker.make_reference(tmp_path / "run", to)
    assert (to / "training.json").read_bytes() == kept and not list(tmp_path.glob(".reference-*"))
    windows = build_windows(
        open_source(corpus), train_tokenizer(["one two three"] * 9, 60), tmp_path / "others", length=32, progress=False
    )
    with pytest.raises(ValueError, match="No windows of .*run beside it"):
        maker.make_reference(tmp_path / "run", to, windows=windows.folder)
    with pytest.raises(ValueError, match="is no finished pretraining: pretrain.yaml is missing"):
        maker.make_reference(to, tmp_path / "again")
