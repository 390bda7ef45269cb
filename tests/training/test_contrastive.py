"""SimCSE: the loss is its equation, dropout is what tells the two readings apart, sentences are whole and different,
and what is tuned can be opened."""

import numpy as np
import pytest
import torch
from foreign_models import save, sentence_model
from transformers import BertConfig, ModernBertConfig

import whatwhere as ww
from whatwhere.corpus import build_windows, load_tokenizer, open_source
from whatwhere.corpus.tokenizer import train_tokenizer
from whatwhere.models.open import open_config, open_model
from whatwhere.training import contrastive
from whatwhere.training.contrastive import (
    BATCH_SIZE,
    DROPOUT,
    ContrastiveEncoder,
    SentenceBatches,
    collect_sentences,
    contrastive_loss,
    save_encoder,
    train_contrastive,
    zero_dropout_settings,
)


def naive(one, two, temperature):
    """Gao et al. 2021, equation 4, in float64, pair by pair."""

    def cosine(a, b):
        return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))

    losses = []
    for i in range(len(one)):
        below = sum(np.exp(cosine(one[i], two[j]) / temperature) for j in range(len(two)))
        losses.append(-np.log(np.exp(cosine(one[i], two[i]) / temperature) / below))
    return float(np.mean(losses))


def test_the_loss_is_the_equation():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(9, 5))
    two = one + rng.normal(size=(9, 5))
    found = contrastive_loss(torch.from_numpy(one), torch.from_numpy(two))
    assert float(found) == pytest.approx(naive(one, two, 0.05), rel=1e-12)
    assert float(contrastive_loss(torch.from_numpy(one), torch.from_numpy(two), 1.0)) == pytest.approx(
        naive(one, two, 1.0), rel=1e-12
    )
    assert float(contrastive_loss(torch.eye(4), torch.eye(4)[[1, 0, 3, 2]])) > 19  # each is nearest to another


def test_dropout_makes_two_readings_differ():
    """Without dropout both readings are the same and with it they are not."""
    ids = torch.tensor([[2, 50, 60, 70, 3], [2, 80, 90, 3, 0]])
    batch = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    config = open_config("reference")
    assert zero_dropout_settings(config) == ["dropout"] and config.dropout == 0
    for dropout, same in ((0.0, True), (DROPOUT, False)):
        config.dropout = dropout
        body = open_model("reference", config=config).model.train()
        twice = torch.cat([ids, ids])
        hidden = body(twice, attention_mask=torch.cat([batch["attention_mask"]] * 2)).last_hidden_state
        assert torch.allclose(hidden[:2, :4], hidden[2:, :4], atol=1e-5) is same
        again = {ContrastiveEncoder(body, "mean")(**batch).loss.item() for _ in range(2)}
        assert (max(again) - min(again) < 1e-6) is same  # another draw, another loss


def test_dropout_of_other_models_is_found_under_its_names():
    assert zero_dropout_settings(BertConfig()) == []
    names = zero_dropout_settings(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    assert set(names) == {"hidden_dropout_prob", "attention_probs_dropout_prob"}
    assert set(zero_dropout_settings(ModernBertConfig())) >= {"attention_dropout", "embedding_dropout", "mlp_dropout"}


@pytest.fixture(scope="module")
def made(corpus_file, tmp_path_factory):
    """A tokenizer of its own and windows of the made-up corpus."""
    tokenizer = train_tokenizer(open_source(str(corpus_file)), 300)
    folder = tmp_path_factory.mktemp("windows")
    windows = build_windows(open_source(str(corpus_file)), tokenizer, folder / "w", length=48, progress=False)
    return tokenizer, windows


def test_sentences_are_those_of_the_text(corpus_file, made):
    tokenizer, windows = made
    rows = collect_sentences(open_source(str(corpus_file)), tokenizer, 100)
    first = corpus_file.read_text(encoding="utf-8").split(". ")[:2]
    written = [tokenizer.decode(row, skip_special_tokens=True).replace(" ", "") for row in rows]
    whole = [f"{text.replace(' ', '').lower()}." for text in first]
    assert set(whole) & set(written) and len({row.tobytes() for row in rows}) == len(rows) == 100
    assert all(row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id for row in rows)
    assert all(6 <= len(row) <= 32 for row in rows)
    cut = collect_sentences(windows, tokenizer, 100)
    assert all(row[0] == tokenizer.cls_token_id and (row[1:-1] != tokenizer.sep_token_id).all() for row in cut)
    everywhere = {row.tobytes() for row in collect_sentences(open_source(str(corpus_file)), tokenizer, 10**6)}
    assert np.mean([row.tobytes() in everywhere for row in cut]) > 0.5  # the others are cut by their window
    assert [row.tolist() for row in cut] == [row.tolist() for row in collect_sentences(windows, tokenizer, 100)]


def test_too_little_text_is_one_line(tmp_path, made):
    (tmp_path / "short.txt").write_text("A sentence of some words is here.\n\n" * 9, encoding="utf-8")
    with pytest.raises(ValueError, match="The text has 1 different sentences of 6 tokens or more, and a batch is 64"):
        collect_sentences(open_source(str(tmp_path / "short.txt")), made[0], 1000)


def test_batches_are_padded_rows_in_a_seeds_order():
    rows = [np.arange(2, 2 + n) for n in (6, 9, 7, 8)]
    batch = SentenceBatches(rows, 0, seed=1).micro_batch(0, 4)
    assert batch["input_ids"].shape == (4, 9) and batch["attention_mask"].sum() == 30
    assert sorted(batch["attention_mask"].sum(1).tolist()) == [6, 7, 8, 9]


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_contrastive_training_tells_sentences_apart(kind, corpus_file, tmp_path, monkeypatch):
    """The loss falls, and the saved folder gives the trained model's vectors."""
    monkeypatch.setattr(contrastive, "LENGTH", 10)
    monkeypatch.setattr(contrastive, "RATE", 1e-4)
    source = ww.reference() if kind == "ours" else str(save("bert", tmp_path / "bert"))
    tokenizer = load_tokenizer(source)
    config = open_config(source)
    if kind == "ours":
        config.dropout = DROPOUT
    body = open_model(source, config=config).model
    before = body.get_input_embeddings().weight.detach().clone()
    found = train_contrastive(body, tokenizer, open_source(str(corpus_file)), "cls", 5, 0, lambda *_: None)
    assert found["loss_last"] < found["loss_first"] and found["sentences"] == 5 * BATCH_SIZE
    assert not torch.equal(before, body.get_input_embeddings().weight)
    save_encoder(body, tokenizer, tmp_path / "tuned", found, length=9)
    model = sentence_model(tmp_path / "tuned")
    assert model.max_seq_length == 9  # the table's rows, some of which no training had reached
    ids = torch.tensor([tokenizer("ba lo ti .")["input_ids"]])
    with torch.no_grad():
        expected = body.eval()(ids).last_hidden_state[:, 0]
    torch.testing.assert_close(model.encode(["ba lo ti ."], convert_to_tensor=True).cpu(), expected.cpu())
