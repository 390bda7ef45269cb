"""Fine-tuning: the same loop and exact resume as pretraining, GEOM's marks, accuracy as counted by hand, wrong input in
one line."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
import torch
from cli_runner import settings, whatwhere
from foreign_models import KINDS, SIZES, save
from huggingface_hub.errors import LocalEntryNotFoundError
from loop_runs import config_of as small_training
from run_files import MODEL, logged, losses, unexplained
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    ViTConfig,
    ViTModel,
)

import whatwhere as ww
from whatwhere.corpus import tokenizer
from whatwhere.models import open as models
from whatwhere.models.predict import open_predictor
from whatwhere.records.intervals import share_interval
from whatwhere.records.record import read_records, select
from whatwhere.run import hub
from whatwhere.run.files import read_lines
from whatwhere.run.folder import RunFolder
from whatwhere.study.finetune_run import finetune_records, run_finetuning
from whatwhere.training import checkpoints
from whatwhere.training.finetune import FinetuneConfig, build_classifier, default_rate, finetune
from whatwhere.training.pretrain import pretrain

QUICK = {
    "length": 32,
    "batch_size": 8,
    "precision": "fp32",
    "steps": 12,
    "checkpoint_steps": [2, 5],
    "log_every": 5,
    "validate_every": 6,
}


@pytest.fixture(scope="module")
def encoder(corpus_file, tmp_path_factory) -> Path:
    """A pretrained `ap` folder."""
    out = tmp_path_factory.mktemp("pretrained") / "ap"
    pretrain(small_training(corpus_file, preset="ap", steps=3), out, progress=False)
    return out


def write_table(path: Path, rows: int, seed: int, rule=lambda words: words[0] < words[-1]) -> Path:
    draw = random.Random(seed)
    lines = ["sentence\tlabel"]
    for _ in range(rows):
        words = [draw.choice("abcdefgh") for _ in range(draw.randint(3, 12))]
        lines.append(" ".join(words) + "\t" + ("yes" if rule(words) else "no"))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tables")
    return {"data": str(write_table(folder / "train.tsv", 120, 0)), "dev": str(write_table(folder / "dev.tsv", 40, 1))}


def config_of(encoder, tables, **values) -> FinetuneConfig:
    return FinetuneConfig.parse({"start": str(encoder), **tables, **QUICK, **values})


def test_a_resumed_fine_tuning_equals_one_run(encoder, tables, tmp_path):
    """A resumed fine tuning equals one run and keeps the marks."""
    config = config_of(encoder, tables, model={"dropout": 0.1}, accumulate=2, checkpoint_every=7)
    whole = finetune(config, tmp_path / "whole", progress=False)
    kept = [f.name for f in checkpoints.checkpoint_folders(tmp_path / "whole/checkpoints")]
    assert kept == ["step-0", "step-2", "step-5", "step-7", "step-12"]
    # As if killed after step 7: what came later is not there.
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    for name in ("checkpoints/step-12", "model.safetensors", "training.json"):
        path = tmp_path / "broken" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert checkpoints.newest_checkpoint(tmp_path / "broken/checkpoints")[0].step == 7
    again = finetune(config, tmp_path / "broken", progress=False)
    assert (tmp_path / "whole/model.safetensors").read_bytes() == (tmp_path / "broken/model.safetensors").read_bytes()
    assert losses(tmp_path / "whole") == losses(tmp_path / "broken")
    assert again["validation_accuracy"] == whole["validation_accuracy"]
    assert finetune(config, tmp_path / "broken", progress=False) == again  # a finished run is left alone


def test_a_lost_log_keeps_the_accuracy(encoder, tables, tmp_path):
    """Without its log a training killed after the last checkpoint had no accuracy: a TypeError at every try."""
    config = config_of(encoder, tables)
    expected = finetune(config, tmp_path / "run", progress=False)
    for name in ("model.safetensors", "training.json", "log.jsonl"):
        (tmp_path / "run" / name).unlink()
    summary = finetune(config, tmp_path / "run", progress=False)
    for key in ("validation_loss", "validation_accuracy", "accuracy_low", "accuracy_high"):
        assert summary[key] == expected[key]


def test_accuracy_is_the_saved_folders(encoder, tables, tmp_path):
    """Accuracy is that of the saved folder and has wilsons interval."""
    summary = finetune(config_of(encoder, tables), tmp_path / "run", progress=False)
    model = ww.EncoderForSequenceClassification.from_pretrained(tmp_path / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    rows = [line.split("\t") for line in Path(tables["dev"]).read_text().splitlines()[1:]]
    with torch.no_grad():  # one by one, without padding
        named = [
            model.config.id2label[int(model(**tokenizer(text, return_tensors="pt")).logits.argmax())]
            for text, _ in rows
        ]
    right = sum(name == label for name, (_, label) in zip(named, rows, strict=True))
    assert summary["validation_accuracy"] == right / 40 and (
        summary["accuracy_low"],
        summary["accuracy_high"],
    ) == share_interval(right, 40)
    assert summary["labels"] == ["no", "yes"] and (summary["rows"], summary["dev_rows"]) == (120, 40)
    said = pd.read_csv(tmp_path / "run/dev-predictions.csv")
    assert list(said["text"]) == [text for text, _ in rows] and list(said["predicted"]) == named
    assert list(said["label"]) == [label for _, label in rows]
    given = ww.predict(tmp_path / "run", [text for text, _ in rows])
    best = [row[name] for row, name in zip(given, named, strict=True)]
    of_label = [row[label] for row, (_, label) in zip(given, rows, strict=True)]
    assert list(said["probability"]) == pytest.approx(best, abs=1e-5)
    assert list(said["probability_of_label"]) == pytest.approx(of_label, abs=1e-5)
    table = pd.read_csv(tmp_path / "run/dev-confusion.csv", index_col="label")
    pairs = Counter((label, name) for name, (_, label) in zip(named, rows, strict=True))
    assert {(label, name): table.loc[label, name] for label in table.index for name in table} == {
        (label, name): pairs[label, name] for label in ("no", "yes") for name in ("no", "yes")
    }
    assert RunFolder.at(tmp_path / "run").has("dev-predictions.csv")
    shares = [sum(label == name for _, label in rows) / 40 for name in ("no", "yes")]
    assert summary["commonest"] in shares
    card = (tmp_path / "run/README.md").read_text()
    assert "text-classification" in card and f"{right / 40:.1%} of 40 rows" in card and "the encoder `ap`" in card
    assert str(tmp_path) not in card and str(encoder.parent) not in card
    with safe_open(tmp_path / "run/model.safetensors", "pt") as file:
        assert file.metadata()["data"] == "train.tsv" and file.metadata()["steps"] == "12"


def test_fine_tuning_starts_pretrained_or_fresh(encoder, tables):
    """It starts from the pretrained weights or from fresh ones."""
    pretrained = ww.EncoderForMaskedLM.from_pretrained(encoder).encoder.state_dict()
    started = build_classifier(config_of(encoder, tables), ["no", "yes"]).model
    assert all(torch.equal(value, pretrained[name]) for name, value in started.encoder.state_dict().items())
    fresh = build_classifier(config_of(encoder, tables, from_scratch=True), ["no", "yes"]).model
    table = fresh.position_table()
    assert not torch.equal(table, started.position_table()) and float(table.detach().std()) == pytest.approx(
        0.02, rel=0.1
    )
    assert fresh.config.num_hidden_layers == 2 and fresh.config.id2label == {0: "no", 1: "yes"}
    again = build_classifier(config_of(encoder, tables, from_scratch=True), ["no", "yes"]).model
    assert torch.equal(again.position_table(), table)


@pytest.mark.whole
def test_fine_tuning_learns_a_rule_on_the_first_word(encoder, tmp_path):
    rule = {
        name: str(write_table(tmp_path / f"{name}.tsv", rows, seed, lambda words: words[0] < "e"))
        for name, rows, seed in (("data", 600, 2), ("dev", 100, 3))
    }
    config = config_of(encoder, rule, from_scratch=True, steps=60, batch_size=16, warmup_steps=5)
    assert finetune(config, tmp_path / "run", progress=False)["accuracy_low"] > 0.8


def test_defaults_are_those_of_geom_for_its_width(encoder, tables):
    config = FinetuneConfig.parse({"start": str(encoder), **tables})
    assert (config.epochs, config.batch_size, config.schedule, config.checkpoint_steps[:3]) == (
        3,
        64,
        "linear",
        [50, 100, 200],
    )
    assert config.learning_rate == pytest.approx(2e-5 * 768 / 120) and default_rate(
        str(encoder), True
    ) == pytest.approx(2e-4 * 768 / 120)
    assert (
        config.total_steps(67349) == 3157 and max(config.checkpoint_steps) < 3157
    )  # SST-2: the eighth checkpoint is the last step
    assert config.length == 32
    with RunFolder.open(Path(tables["data"]).with_name("run"), "finetune") as run:
        config.save_in(run, "c.yaml")
    assert FinetuneConfig.load(run.path / "c.yaml") == config


def test_few_positions_limit_the_length(tables, tmp_path):
    """An encoder of few positions reads as many as it has."""
    # Without --length 128 tokens were asked of it, and refused.
    ww.Encoder(ww.preset("ap", "tiny", vocab_size=40, max_position_embeddings=20)).save_pretrained(tmp_path / "short")
    config = FinetuneConfig.parse({"start": str(tmp_path / "short"), **tables})
    assert config.length == 20 and config.encoder_config(["no", "yes"]).max_position_embeddings == 20


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 1}, "Give one budget, steps or epochs; got steps=12 and epochs=1"),
        ({"start": "nowhere"}, "nowhere is no folder here, and the Hub returns no such model"),
        ({"lenght": 3}, "Unknown configuration key 'lenght'. Did you mean length"),
        ({"length": 500}, "length=500 tokens, but the position table has 128 rows"),
        ({"model": {"hidden_size": 64}}, "do not fit model.hidden_size=64"),
        ({"model": {"dropuot": 0.1}}, "EncoderConfig has no field 'dropuot'"),
        ({"batch_size": 200}, "has 120 rows, less than one batch of 200"),
        ({"label": "labels"}, "no column 'labels'. Give one of those there: sentence, label"),
    ],
)
def test_wrong_settings_are_one_line_errors(values, message, encoder, tables, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        finetune(config_of(encoder, tables, **values), tmp_path / "run", progress=False)
    assert "\n" not in str(caught.value) and not (tmp_path / "run/finetune.yaml").exists()


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match="start is missing. Give it: A model folder"):
        FinetuneConfig.parse({"data": "a.tsv", "dev": "b.tsv"})


@pytest.mark.whole
def test_other_rows_than_the_run_began_with_are_refused(encoder, tables, tmp_path):
    data = shutil.copy(tables["data"], tmp_path / "train.tsv")
    config = config_of(encoder, {**tables, "data": str(data)}, steps=2)
    finetune(config, tmp_path / "run", progress=False)
    moved = config_of(encoder, {**tables, "data": str(shutil.copy(data, tmp_path / "moved.tsv"))}, steps=2)
    assert finetune(moved, tmp_path / "run", progress=False)["steps"] == 2  # the same rows elsewhere
    write_table(tmp_path / "moved.tsv", 120, 5)
    with pytest.raises(ValueError, match="was started with data="):
        finetune(moved, tmp_path / "run", progress=False)
    # Rows to measure on were not compared, and accuracies on two tables stood in one log.
    dev = shutil.copy(tables["dev"], tmp_path / "dev.tsv")
    other = config_of(encoder, {**tables, "dev": str(dev)}, steps=2)
    finetune(other, tmp_path / "other", progress=False)
    (tmp_path / "other/model.safetensors").unlink()
    write_table(tmp_path / "dev.tsv", 120, 5)
    with pytest.raises(ValueError, match="the --dev rows .* are not those that .*other was started with"):
        finetune(other, tmp_path / "other", progress=False)
    (tmp_path / "run/model.safetensors").unlink()
    write_table(tmp_path / "train.tsv", 120, 5)
    with pytest.raises(ValueError, match="are not those that .* was started with"):
        finetune(config, tmp_path / "run", progress=False)


def test_the_advice_to_resume_names_the_start(encoder, tables, tmp_path):
    """It said "only `--out`", and without START the command is refused."""
    finetune(config_of(encoder, tables, steps=2), tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match=f"Run it with only `{encoder} --out {tmp_path / 'run'}` to resume"):
        finetune(config_of(encoder, tables, steps=3), tmp_path / "run", progress=False)
    assert whatwhere("finetune", str(encoder), "--out", str(tmp_path / "run")).returncode == 0


@pytest.mark.whole
def test_another_start_than_the_run_began_with_is_refused(encoder, tables, tmp_path):
    """A finished run was reported, and a stopped one resumed, whatever the weights of START had become."""
    start = shutil.copytree(encoder, tmp_path / "start")
    config = config_of(start, tables, steps=2)
    fresh = config_of(start, tables, steps=2, from_scratch=True)
    finetune(config, tmp_path / "run", progress=False)
    finetune(fresh, tmp_path / "fresh", progress=False)
    finetune(config, tmp_path / "stopped", progress=False)
    (tmp_path / "stopped/model.safetensors").unlink()
    weights = load_file(start / "model.safetensors")
    save_file({name: value + 1 for name, value in weights.items()}, start / "model.safetensors", {"format": "pt"})
    RunFolder.at(start).add_to_manifest("model.safetensors")
    for folder in ("run", "stopped"):
        with pytest.raises(ValueError, match="is another model than .* was started from: model.safetensors differs"):
            finetune(config, tmp_path / folder, progress=False)
    assert finetune(fresh, tmp_path / "fresh", progress=False)["steps"] == 2  # which took no weight of it
    shutil.rmtree(start)
    assert finetune(config, tmp_path / "run", progress=False)["steps"] == 2  # nothing is there to compare


def test_cut_rows_are_reported(encoder, tmp_path):
    """It says how many rows were cut and by how much."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    for name, counts in (("train", (5, 20, 30, 50)), ("dev", (5, 5, 26, 5))):
        rows = [f"{' '.join('abcdefgh'[i % 8] for i in range(n))}\t{n % 3}" for n in counts]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
        lengths = [len(tokenizer(row.split("\t")[0])["input_ids"]) for row in rows]
        assert lengths == [n + 2 for n in counts]
    data = ["--data", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "dev.tsv")]
    words = ["finetune", str(encoder), "--out", str(tmp_path / "run"), *data, "--steps", "1"]
    words += ["--length", "16", "--set", "batch_size=4", "--set", "precision=fp32"]
    done = whatwhere(*words)
    assert done.returncode == 0, done.stderr
    lost = 1 - 3 * 16 / (22 + 32 + 52)
    said = "3 of 4 training rows (75%) and 1 of 4 dev rows (25%) are longer than 16 tokens and were cut, "
    said += f"{lost:.0%} of the tokens of those training rows"
    assert f"{said}. To read more of them: --length N, N up to 128." in done.stderr
    assert f"Of the rows, {said}." in done.stdout
    summary = json.loads((tmp_path / "run/training.json").read_text())
    assert (summary["truncated"], summary["dev_truncated"]) == (3, 1) and summary["share_cut"] == pytest.approx(lost)
    assert said in (tmp_path / "run/README.md").read_text()


def test_the_command_names_a_missing_option(tables, tmp_path):
    """It said "dev is missing" to a user who types options."""
    done = whatwhere("finetune", "reference", "--out", str(tmp_path / "run"), "--data", str(tables["data"]))
    assert done.returncode == 2 and "--dev is missing. Give it, here or in --config: " in done.stderr


@pytest.mark.whole
def test_the_command_leaves_a_classifier_and_records(encoder, tables, tmp_path):
    out = tmp_path / "run"
    settings = [
        a for key in ("length=32", "batch_size=8", "precision=fp32", "checkpoint_steps=[1,3]") for a in ("--set", key)
    ]
    data = ["--data", tables["data"], "--dev", tables["dev"]]
    done = whatwhere("finetune", str(encoder), "--out", str(out), *data, "--steps", "4", "--json", *settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 4
    again = whatwhere("finetune", str(encoder), "--out", str(out), *data, "--steps", "4", *settings)
    assert again.returncode == 0 and "It was finished before; nothing was trained." in again.stdout, again.stderr
    alone = json.loads(done.stdout)["commonest"]
    assert f" on 40 rows ({alone:.3f} by naming the commonest class alone). " in again.stdout
    assert " 2 classes in the column 'label': " in again.stdout
    records = read_records(out / "records.parquet")
    assert [r.step for r in select(records, metric="separation", part=None)] == [0, 1, 3, 4]
    (last,) = select(records, metric="accuracy", step=4)
    assert last.low < last.value < last.high and last.n == 40
    assert unexplained(out, MODEL) == unexplained(encoder, MODEL) == []
    step, validation, tuned = logged(MODEL)
    for run, more in ((encoder, frozenset()), (out, tuned)):
        assert {frozenset(line) for line in read_lines(run / "log.jsonl")} == {step, validation | more}
    assert f"Next: whatwhere predict {out} --text 'A text of your own.'" in again.stdout
    assert "is trained on" not in done.stderr
    # The command alone wrote the records: a call of the library left a folder without them.
    called = tmp_path / "called"
    config = config_of(encoder, tables, length=32, batch_size=8, precision="fp32", checkpoint_steps=[1, 3], steps=4)
    run_finetuning(config, called, progress=False)
    assert RunFolder.at(called).listed_files() == RunFolder.at(out).listed_files()
    assert {r.metric for r in read_records(called / "records.parquet")} == {r.metric for r in records}
    assert (
        select(read_records(called / "records.parquet"), metric="loss")[0].value
        == select(records, metric="loss")[0].value
    )
    whole = (out / "records.parquet").read_bytes()  # its footer has no checksum, and it had no hash
    (out / "records.parquet").write_bytes(whole.replace(b"parquet-cpp", b"parquet-cpq"))
    broken = whatwhere("finetune", str(encoder), "--out", str(out), *data, "--steps", "4", *settings)
    assert broken.returncode == 2 and "records.parquet is not as it was written" in broken.stderr


def test_rows_that_are_trained_on_and_judge_are_said(encoder, tables, tmp_path, capsys):
    # The accuracy of such a table was given like any other.
    values = {"start": str(encoder), "data": tables["data"], "dev": tables["data"], "length": 32, "batch_size": 8}
    finetune(FinetuneConfig.parse({**values, "steps": 1}), tmp_path / "run")
    assert f"{tables['data']} is trained on: the accuracy says nothing about other" in capsys.readouterr().err


def test_negative_labels_are_named(encoder, tables, tmp_path, capsys):
    """-1, by which data sets mark rows without a label, became a class without a word."""
    for name in ("data", "dev"):
        text = Path(tables[name]).read_text().replace("\tyes\n", "\t1\n").replace("\tno\n", "\t-1\n")
        (tmp_path / f"{name}.tsv").write_text(text)
    values = {name: str(tmp_path / f"{name}.tsv") for name in ("data", "dev")}
    many = (tmp_path / "data.tsv").read_text().count("\t-1\n")
    finetune(config_of(encoder, values, steps=1, checkpoint_steps=[]), tmp_path / "run")
    told = f"-1 is trained on as a class: {many} of 120 rows have it. Leave such rows out if it means that they have no"
    assert told in capsys.readouterr().err


def test_rows_without_text_are_counted(encoder, tables, tmp_path, capsys):
    """Empty rows trained on special tokens without a word."""
    text = Path(tables["data"]).read_text()
    (tmp_path / "data.tsv").write_text(text + "\tyes\n \tno\n")
    values = {**tables, "data": str(tmp_path / "data.tsv")}
    finetune(config_of(encoder, values, steps=1, checkpoint_steps=[]), tmp_path / "run")
    assert "2 of 122 rows have no text: they train on special tokens alone." in capsys.readouterr().err


def test_notes_of_other_tools_stay_in_config(encoder, tables, tmp_path):
    """A key that is no field of ours was lost by fine-tuning."""
    shutil.copytree(encoder, tmp_path / "noted", ignore=shutil.ignore_patterns("manifest*", "checkpoints"))
    settings = json.loads((encoder / "config.json").read_text())
    (tmp_path / "noted/config.json").write_text(json.dumps(settings | {"adapter_fusion": {"from": "a tool"}}))
    once = {"model": {"dropout": 0.1}, "steps": 1, "checkpoint_steps": [], "validate_every": 1}
    finetune(config_of(tmp_path / "noted", tables, **once), tmp_path / "run", progress=False)
    saved = json.loads((tmp_path / "run/config.json").read_text())
    assert saved["adapter_fusion"] == {"from": "a tool"} and saved["dropout"] == 0.1
    assert saved["architectures"] == ["EncoderForSequenceClassification"] and saved["id2label"]["1"] == "yes"


@pytest.mark.whole
def test_bert_is_fine_tuned_as_its_class(tables, tmp_path):
    """A BERT is fine tuned as its own class would be."""
    # The recipe's loop on transformers' own classifier: weights, token types and the table at each mark are BERT's.
    start = save("bert", tmp_path / "bert")
    pairs = {}
    for name, path in tables.items():
        lines = [line.split("\t") for line in Path(path).read_text().splitlines()[1:]]
        rows = ["a\tb\tlabel", *(f"{text}\t{text[::-1]}\t{label}" for text, label in lines)]
        pairs[name] = str(tmp_path / f"{name}.tsv")
        Path(pairs[name]).write_text("\n".join(rows) + "\n")
    config = FinetuneConfig.parse(
        {"start": str(start), **pairs, **QUICK, "length": 16, "text": "a", "text_pair": "b", "learning_rate": 0.01}
        | {"model": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}, "steps": 3}
    )
    summary = finetune(config, tmp_path / "run", progress=False)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert type(model) is BertForSequenceClassification and model.config.id2label == {0: "no", 1: "yes"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    dev = [line.split("\t") for line in Path(pairs["dev"]).read_text().splitlines()[1:]]
    rows = [tokenizer(a, b, return_tensors="pt", truncation=True, max_length=16) for a, b, _ in dev]
    with torch.no_grad():
        said = [model.config.id2label[int(model.eval()(**row).logits.argmax())] for row in rows]
    right = sum(one == label for one, (*_, label) in zip(said, dev, strict=True))
    assert summary["validation_accuracy"] == right / len(dev) and rows[0]["token_type_ids"].sum() > 0
    predictor = open_predictor(tmp_path / "run", [dev[0][0]])
    predictor([dev[0][0]])
    assert "was trained on pairs of texts, and these are single ones: give --pair as well" in predictor.remark
    first = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run/checkpoints/step-0")
    began = AutoModel.from_pretrained(start).embeddings.position_embeddings.weight
    assert torch.equal(first.bert.embeddings.position_embeddings.weight, began)
    table = model.bert.embeddings.position_embeddings.weight.detach().double()
    moved = {r.step: r.value for r in finetune_records(tmp_path / "run") if r.metric == "change" and r.part is None}
    assert list(moved) == [0, 2, 3] and moved[0] == 0
    before = began.detach().double()
    assert moved[3] == pytest.approx(float((table - before).norm() / before.norm()))
    card = (tmp_path / "run/README.md").read_text()
    assert "`bert`, of transformers" in card and "trust_remote_code" not in card and "import whatwhere" not in card
    assert not unexplained(tmp_path / "run", MODEL)
    again = finetune(config, tmp_path / "run", progress=False)
    assert again["validation_accuracy"] == summary["validation_accuracy"]
    fresh = build_classifier(config.model_copy(update={"from_scratch": True}), ["no", "yes"]).model
    assert not torch.equal(fresh.bert.embeddings.position_embeddings.weight, began)
    with pytest.raises(ValueError, match="model.hiden_dropout is no field of a bert.*hidden_dropout_prob"):
        build_classifier(config.model_copy(update={"model": {"hiden_dropout": 0.1}}), ["no", "yes"])


@pytest.mark.whole
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bert"])
def test_other_encoders_of_transformers_are_fine_tuned(kind, tables, tmp_path):
    start = save(kind, tmp_path / kind)
    values = {"start": str(start), **tables, **QUICK, "length": 16, "steps": 3, "learning_rate": 0.01}
    values["seed"] = 1  # `save` draws with 0: weights drawn anew would be the same
    summary = finetune(FinetuneConfig.parse(values), tmp_path / "run", progress=False)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run").eval()
    assert model.config.model_type == kind and model.config.id2label == {0: "no", 1: "yes"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    rows = [line.split("\t") for line in Path(tables["dev"]).read_text().splitlines()[1:]]
    with torch.no_grad():  # one by one, without padding
        said = [int(model(**tokenizer(text, return_tensors="pt", truncation=True)).logits.argmax()) for text, _ in rows]
    right = sum(model.config.id2label[one] == label for one, (_, label) in zip(said, rows, strict=True))
    assert summary["validation_accuracy"] == right / len(rows)
    began = AutoModel.from_pretrained(start).get_input_embeddings().weight
    first = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run/checkpoints/step-0")
    assert torch.equal(first.get_input_embeddings().weight, began)  # of the folder, not drawn anew
    assert not torch.equal(model.get_input_embeddings().weight, began)
    assert not unexplained(tmp_path / "run", MODEL)


def test_models_without_a_classifier_are_refused(encoder, tables, tmp_path):
    """A model that has no classifier is refused by its type."""
    ViTModel(ViTConfig(image_size=32, patch_size=16, **SIZES)).save_pretrained(tmp_path / "vit")
    with pytest.raises(ValueError, match="transformers has no classifier of type vit. Give an encoder that has one."):
        finetune(config_of(tmp_path / "vit", tables), tmp_path / "run", progress=False)
    assert not (tmp_path / "run/finetune.yaml").exists()


@pytest.mark.whole
def test_failed_starts_begin_anew_with_other_settings(encoder, tables, corpus_file, tmp_path):
    """What failed before a step was kept begins anew with other settings."""
    # A mended scheme was refused in the folder of the run that had failed by it at its first step.
    kerple = (Path(__file__).parents[2] / "examples/kerple.py").read_text()
    # Steep with the vocabulary of this corpus alone, as what fails at every size is refused before there is a run.
    chosen = "(torch.log1p if self.entries > 1000 else torch.sqrt)(r2 * distance.abs()[..., None])"
    steep = kerple.replace("torch.log1p(r2 * distance.abs()[..., None])", chosen)
    assert steep != kerple
    steep = steep.replace("super().__init__()", "super().__init__()\n        self.entries = config.vocab_size")
    scheme = tmp_path / "mine.py"
    out = tmp_path / "run"
    words = ["pretrain", "--out", str(out), "--corpus", str(corpus_file), "--preset", "kerple", "--scheme", str(scheme)]
    scheme.write_text(steep)
    failed = whatwhere(*words, "--steps", "2", *settings())
    assert failed.returncode == 2 and "at step 1 of kerple" in failed.stderr, failed.stderr
    assert [p.name for p in out.glob("checkpoints/*")] == ["step-0"] and (out / "not-finite-0.npz").is_file()
    scheme.write_text(kerple)
    other = whatwhere(*words, "--steps", "2", *settings("vocab_size=200"))
    assert "holds windows of vocab_size=300, this command has vocab_size=200" in other.stderr
    done = whatwhere(*words, "--steps", "3", "--json", *settings())
    assert done.returncode == 0 and json.loads(done.stdout)["steps"] == 3, done.stderr
    assert (out / "scheme.py").read_text() == kerple and not unexplained(out, MODEL)
    assert not (out / "not-finite-0.npz").exists()
    scheme.write_text(steep)
    assert "is not the scheme that" in whatwhere(*words, "--steps", "3", *settings()).stderr  # now it binds

    config = config_of(encoder, tables, steps=2, checkpoint_steps=[])
    run_finetuning(config, tmp_path / "tuned", progress=False)
    for name in ("checkpoints/step-2", "model.safetensors"):  # as if it had failed at its first step
        path = tmp_path / "tuned" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    changed = config.model_copy(update={"length": 24, "learning_rate": 0.01})
    assert finetune(changed, tmp_path / "tuned", progress=False)["steps"] == 2
    assert FinetuneConfig.load(tmp_path / "tuned/finetune.yaml") == changed
    whole = finetune(changed, tmp_path / "whole", progress=False)
    assert losses(tmp_path / "tuned") == losses(tmp_path / "whole") and whole["longest"] <= 24
    # The records of the first training stayed.
    run_finetuning(changed, tmp_path / "tuned", progress=False)
    (last,) = select(read_records(tmp_path / "tuned/records.parquet"), metric="loss", part="validation", step=2)
    assert last.value == losses(tmp_path / "tuned")[-1]["validation_loss"]


@pytest.mark.parametrize(("value", "expected"), [("0", "False"), ("", "False"), ("1", "True")])
def test_offline_follows_the_hubs_rule(value, expected):
    """`HF_HUB_OFFLINE=0` counted as offline."""
    command = [sys.executable, "-c", "from whatwhere.run import hub; print(hub.is_offline())"]
    done = subprocess.run(command, env=os.environ | {"HF_HUB_OFFLINE": value}, capture_output=True, text=True)
    assert done.stdout.strip() == expected, done.stderr


def test_a_lost_connection_is_no_missing_file(monkeypatch):
    """The Hub's client calls it a missing entry, and a model was read as one without its head of sentences."""
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda name, file: None)
    monkeypatch.setattr(hub, "hf_hub_download", mock.Mock(side_effect=LocalEntryNotFoundError("no address")))
    with pytest.raises(OSError, match="the Hub cannot be reached: no address"):
        hub.file_of("org/name", "modules.json")


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch):
    # transformers tried for half a minute; most often the name of a folder was misspelt.
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "get_hf_file_metadata", mock.Mock(side_effect=RuntimeError("no address")))
    monkeypatch.setattr(models.AutoConfig, "from_pretrained", mock.Mock(side_effect=AssertionError("asked again")))
    with pytest.raises(
        ValueError,
        match="nowhere is no folder here, and the Hub returns no such model .the Hub cannot be reached: no address",
    ):
        models.open_config("nowhere")
    asked_again = mock.Mock(side_effect=AssertionError("asked again"))
    monkeypatch.setattr(tokenizer.AutoTokenizer, "from_pretrained", asked_again)
    with pytest.raises(ValueError, match="No tokenizer 'nowhere': the Hub cannot be reached: no address"):
        tokenizer.load_tokenizer("nowhere")
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda name, file: "here" if file == "vocab.txt" else None)
    with pytest.raises(ValueError, match="asked again"):  # what is at hand is opened without the Hub
        tokenizer.load_tokenizer("nowhere")
