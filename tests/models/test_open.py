"""One function opens every model as transformers itself would, to the last bit, and refuses the rest in one line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runner import whatwhere
from foreign_models import EVERY, TEXTS, save
from malformed import cases, refused
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    ViTConfig,
    ViTModel,
)

import whatwhere as ww
from whatwhere.models.open import HeadMissing, WeightsMisfit, model_hashes, open_config, open_model
from whatwhere.run.folder import RunFolder

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
MASKED = [kind for kind in EVERY if kind != "electra"]  # saved with the head of a discriminator


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of each kind."""
    place = tmp_path_factory.mktemp("models")
    for kind in EVERY:
        save(kind, place / kind)
    return place


@pytest.fixture
def ours(tmp_path) -> Path:
    """A copy of the model that comes with the package, without hashes."""
    (tmp_path / "ours").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(ww.reference()) / name, tmp_path / "ours" / name)
    return tmp_path / "ours"


def changed(folder: Path, **values) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("kind", EVERY)
@torch.inference_mode()
def test_a_body_is_transformers_own_bit_for_bit(kind, place):
    opened = open_model(place / kind)
    expected = AutoModel.from_pretrained(place / kind).eval()
    assert type(opened.model) is type(expected) and not opened.model.training and opened.folder == place / kind
    assert opened.config.to_dict() == AutoConfig.from_pretrained(place / kind).to_dict() | {
        key: opened.config.to_dict()[key] for key in ("dtype",) if key in opened.config.to_dict()
    }
    how = {"truncation": True, "max_length": opened.max_tokens, "padding": True, "return_tensors": "pt"}
    batch = opened.tokenizer(TEXTS[:3], **how)
    theirs = AutoTokenizer.from_pretrained(place / kind)(TEXTS[:3], **how)
    assert all(torch.equal(batch[key], theirs[key]) for key in theirs) and batch["input_ids"].shape[1] == 32
    ours = opened.model(**batch, output_hidden_states=True)
    found = expected(**batch, output_hidden_states=True)
    assert len(ours.hidden_states) == 3
    assert all(torch.equal(a, b) for a, b in zip(ours.hidden_states, found.hidden_states, strict=True))
    assert torch.equal(ours.last_hidden_state, found.last_hidden_state)


@pytest.mark.parametrize("kind", EVERY)
@torch.inference_mode()
def test_max_tokens_are_read_and_no_more(kind, place):
    opened = open_model(place / kind)
    assert opened.max_tokens == 32 and opened.cap_length(500) == 32 and opened.cap_length(8) == 8
    assert opened.token_types == (kind in ("bert", "electra"))
    ids = torch.full((1, 33), 20)
    assert opened.model(input_ids=ids[:, :32]).last_hidden_state.isfinite().all()
    if kind != "modernbert":  # whose rotations know no end
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            opened.model(input_ids=ids)


@pytest.mark.parametrize("kind", MASKED)
@torch.inference_mode()
def test_a_masked_head_is_transformers_own(kind, place):
    opened = open_model(place / kind, "masked")
    batch = opened.tokenizer(TEXTS[0], truncation=True, max_length=32, return_tensors="pt")
    expected = AutoModelForMaskedLM.from_pretrained(place / kind).eval()
    assert torch.equal(opened.model(**batch).logits, expected(**batch).logits)


@pytest.mark.parametrize("kind", EVERY)
@torch.inference_mode()
def test_new_heads_have_their_classes_and_their_seed(kind, place):
    ids = torch.full((2, 5), 20)
    one, same, other = (
        open_model(place / kind, "labels", classes=3, seed=seed).model(input_ids=ids).logits for seed in (1, 1, 2)
    )
    assert one.shape == (2, 3) and torch.equal(one, same) and not torch.equal(one, other)
    assert open_model(place / kind, "labels", classes=0).config.problem_type == "regression"
    answers = open_model(place / kind, "answers").model(input_ids=ids)
    assert answers.start_logits.shape == answers.end_logits.shape == (2, 5)


@pytest.mark.parametrize("source", ["reference", *EVERY])
def test_untrained_weights_are_drawn_from_the_seed(source, place):
    source = source if source == "reference" else place / source

    def words(**how):
        return open_model(source, **how).model.get_input_embeddings().weight

    assert torch.equal(words(untrained=True, seed=3), words(untrained=True, seed=3))
    assert not torch.equal(words(untrained=True, seed=3), words(untrained=True, seed=4))
    assert not torch.equal(words(untrained=True, seed=3), words())


@torch.inference_mode()
def test_ours_opens_as_transformers_opens_it():
    opened = open_model("reference", "masked")
    expected = AutoModelForMaskedLM.from_pretrained(ww.reference()).eval()
    batch = opened.tokenizer("The river [MASK] quickly.", return_tensors="pt")
    assert torch.equal(opened.model(**batch).logits, expected(**batch).logits)
    assert opened.max_tokens == expected.config.max_position_embeddings and not opened.token_types


@pytest.mark.parametrize(("saved", "read"), [("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_numbers_have_32_bits_at_least(saved, read, tmp_path):
    BertModel(BertConfig(vocab_size=20, **SMALL)).to(getattr(torch, saved)).save_pretrained(tmp_path)
    for untrained in (False, True):
        assert open_model(tmp_path, untrained=untrained).model.dtype == getattr(torch, read)


def test_a_checkpoint_has_the_tokenizer_of_its_run(ours):
    checkpoint = ours / "checkpoints/step-3"
    checkpoint.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(ours / name, checkpoint / name)
    opened = open_model(checkpoint, "masked")
    assert opened.tokenizer.get_vocab() == open_model(ours).tokenizer.get_vocab()


@pytest.mark.parametrize("below", ["", "0_Transformer"])
def test_sentence_transformers_folders_open_old_and_new(below, place, tmp_path):
    shutil.copytree(place / "mpnet", tmp_path / "st" / below, dirs_exist_ok=True)
    parts = [{"idx": 0, "name": "0", "path": below, "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "st/modules.json").write_text(json.dumps([*parts, {"idx": 1, "path": "1_Pooling"}]))
    opened = open_model(tmp_path / "st")
    assert opened.folder == tmp_path / "st" / below and opened.max_tokens == 32
    assert opened.tokenizer.get_vocab() == open_model(place / "mpnet").tokenizer.get_vocab()
    plain = open_model(place / "mpnet").model.state_dict()
    assert all(torch.equal(value, plain[name]) for name, value in opened.model.state_dict().items())


def test_opening_says_nothing(place, capsys):
    open_model(place / "bert", "labels", classes=2)  # transformers remarks on the new head, and draws a bar
    assert capsys.readouterr() == ("", "")


def test_changed_fields_are_taken_and_misfits_named(place, tmp_path):
    config = open_config(place / "bert")
    config.hidden_dropout_prob = 0.3
    assert open_model(place / "bert", config=config).model.embeddings.dropout.p == 0.3
    config.intermediate_size = 8
    with pytest.raises(WeightsMisfit, match="do not fit the requested configuration"):
        open_model(place / "bert", config=config)
    BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=3, **SMALL)).save_pretrained(tmp_path)
    assert open_model(tmp_path, "labels").config.num_labels == 3
    changed = open_config(tmp_path)
    changed.num_labels = 2
    with pytest.raises(WeightsMisfit):
        open_model(tmp_path, "labels", config=changed)
    weights = load_file(tmp_path / "model.safetensors")
    weights["bert.pooler.dense.bias"] = torch.zeros(3)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsMisfit, match="bert.pooler.dense.bias"):
        open_model(tmp_path, "labels", classes=2)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_of_other_classes_begins_anew(classes, tmp_path):
    """GLUE trained a classifier's saved head on where the classes were as many, and failed where they were not."""
    saved = BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=3, **SMALL))
    saved.save_pretrained(tmp_path / "classifier")
    saved.bert.save_pretrained(tmp_path / "encoder")
    ids = torch.full((2, 5), 4)
    hidden, head = (
        open_model(tmp_path / kind, "labels", classes=classes, seed=1).model for kind in ("classifier", "encoder")
    )
    assert torch.equal(hidden.bert(ids).pooler_output, saved.eval().bert(ids).pooler_output)
    assert hidden.classifier.weight.shape == head.classifier.weight.shape == (classes, SMALL["hidden_size"])
    assert classes == 2 or not torch.equal(hidden.classifier.weight, saved.classifier.weight)
    again = open_model(tmp_path / "classifier", "labels", classes=classes, seed=1).model
    assert torch.equal(again.classifier.weight, hidden.classifier.weight)


# What is refused


def without_config(folder):
    (folder / "config.json").unlink()


def of_a_study(folder):
    (folder / "models/ap/seed-0").mkdir(parents=True)
    (folder / "config.json").rename(folder / "models/ap/seed-0/config.json")


def unfinished(folder):
    (folder / "model.safetensors").unlink()


def pickled(folder):
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(weights)
    changed(folder, model_type="bert")


def too_deep(folder):
    changed(folder, num_hidden_layers=5000)


def of_no_weights(folder):
    BertModel(BertConfig(vocab_size=20, **SMALL)).save_pretrained(folder)
    changed(folder, model_type="roberta", vocab_size=30, pad_token_id=1)


def with_a_layer_more(folder):
    changed(folder, num_hidden_layers=json.loads((folder / "config.json").read_text())["num_hidden_layers"] + 1)


def damaged(folder):
    run = RunFolder.at(folder)
    run.add_to_manifest(*run.files_not_in_manifest())
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")


def of_an_own_scheme(folder):
    changed(folder, relative="hill")
    (folder / "own_scheme.py").write_text("raise SystemExit('run')\n")


def without_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    cases(
        no_configuration=(without_config, "config.json is missing. Give the folder of a trained model."),
        a_study=(of_a_study, "holds one model of a study. Name one, for example"),
        an_unfinished_run=(unfinished, "Finish its training: whatwhere pretrain --out"),
        a_pickle=(pickled, "a pickle is never read. Bring its weights."),
        sizes_of_other_weights=(too_deep, "num_hidden_layers=5000, and the weights beside it are"),
        weights_of_another_type=(of_no_weights, "does not load"),
        a_layer_without_weights=(with_a_layer_more, "which its config.json asks for. Use a complete copy."),
        a_damaged_copy=(damaged, "is not as it was written (hash mismatch)"),
        a_scheme_that_it_carries=(of_an_own_scheme, "The model carries it: read"),
        no_tokenizer=(without_tokenizer, "has no tokenizer (tokenizer.json). Save the model's tokenizer there"),
    ),
)
def test_what_is_no_whole_model_is_refused(spoil, said, ours, tmp_path):
    spoil(ours)
    refused(lambda: open_model(ours).tokenizer, ours, said)
    done = whatwhere("attention", str(ours), "--text", "A river.", "--out", str(tmp_path / "page.html"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert said in done.stderr and not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("source", "said"),
    cases(
        a_path=("./nowhere", "No model at ./nowhere: it is no folder."),
        a_file=(__file__, "it is no folder. Give the folder of a trained model."),
        a_hub_that_does_not_answer=("no/where", "no/where is no folder here, and the Hub returns no such model"),
    ),
)
def test_what_is_no_folder_is_refused(source, said):
    refused(lambda: open_model(source), said)
    refused(lambda: open_config(source), said)


def test_a_head_that_is_not_there_is_refused(place, tmp_path):
    bare = tmp_path / "bare"
    ww.Encoder(ww.preset("ap", "tiny", vocab_size=64, num_hidden_layers=1)).save_pretrained(bare)
    for folder, saved in ((bare, "Encoder"), (place / "electra", "ElectraForPreTraining")):
        said = f"({saved}) was saved without a masked-language head"
        refused(lambda folder=folder: open_model(folder, "masked"), folder, said)
        refused(lambda folder=folder: open_model(folder, "masked", untrained=True), said)
    ViTModel(ViTConfig(image_size=32, patch_size=8, **SMALL)).save_pretrained(tmp_path / "vit")
    refused(lambda: open_config(tmp_path / "vit", "answers"), "(vit) has no head for questions in transformers")


def without_head(folder, place):
    """Copy a model without the weights of its head, as encoders for sentences are saved; config.json names it yet."""
    shutil.copytree(folder, place)
    body = AutoModel.from_pretrained(folder).state_dict()
    save_file({key: value.contiguous() for key, value in body.items()}, place / "model.safetensors", {"format": "pt"})
    return place


@pytest.mark.parametrize("kind", MASKED)
def test_a_head_without_weights_predicts_nothing(kind, place, tmp_path):
    """all-mpnet-base-v2's config.json names MPNetForMaskedLM, its weights have no head: one drawn at random filled in
    "Paris is the capital of <mask>" with "##nery", and was exported."""
    folder = without_head(place / kind, tmp_path / kind)
    with pytest.raises(HeadMissing, match="was saved without the head that its config.json names, .*ForMaskedLM"):
        open_model(folder, "masked")
    found = ww.predict(folder, TEXTS[:2])
    np.testing.assert_array_equal(found, ww.predict(place / kind, TEXTS[:2], what="vectors"))
    with pytest.raises(HeadMissing):
        ww.predict(folder, TEXTS[:2], what="words")


def test_a_classifier_without_weights_labels_nothing(tmp_path):
    """A new classifier is what a fine-tuning asks for, and no prediction."""
    model = BertForSequenceClassification(BertConfig(vocab_size=50, **SMALL, num_labels=3))
    model.save_pretrained(tmp_path / "whole")
    folder = without_head(tmp_path / "whole", tmp_path / "bare")
    with pytest.raises(HeadMissing, match="classifier.bias is not among its weights"):
        open_model(folder, "labels")
    assert open_model(folder, "labels", classes=3).model.config.num_labels == 3
    assert open_model(tmp_path / "whole", "labels").model.config.num_labels == 3


def test_an_unknown_head_names_the_known_ones(place):
    """The message on an unknown head was a KeyError that blamed the model's files."""
    with pytest.raises(ValueError, match="^Unknown head 'maskd'. Did you mean masked. Heads: None, 'masked', 'labels'"):
        open_model("reference", "maskd")
    with pytest.raises(ValueError, match="^Unknown head 'tokens'. Heads: None"):
        open_config(place / "bert", "tokens")


def test_weights_in_an_older_folder_belong_to_its_identity(place, tmp_path):
    """Results of other weights would be taken for those of this model."""
    for kind in ("bert", "mpnet"):
        shutil.copytree(place / kind, tmp_path / kind / "0_Transformer")
        parts = [{"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]
        (tmp_path / kind / "modules.json").write_text(json.dumps(parts))
    older, other = (model_hashes(str(tmp_path / kind)) for kind in ("bert", "mpnet"))
    assert older == model_hashes(str(place / "bert")) != other
