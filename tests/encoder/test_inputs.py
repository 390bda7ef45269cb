"""Inputs that clients of BERT give: vectors alone, token types, masks of pairs, several choices."""

import pytest
import torch
from encoder_models import CLS, SEP, VOCAB, build, config, inputs, random_weights
from torch.nn import functional as F
from transformers import AutoModelForMultipleChoice

import whatwhere as ww
from whatwhere.encoder.presets import PRESETS

LARGE = torch.finfo(torch.float64).min


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "bipe"])  # whose segments ids alone tell
@pytest.mark.parametrize("kind", ["plain", "padded"])
def test_vectors_with_marked_specials_equal_ids(name, kind):
    """Words' vectors beside `special_tokens_mask`, as a tokenizer makes it, give what the ids give."""
    model = build(name)
    given = inputs(kind)
    ids = given.pop("input_ids")
    vectors = model.encoder.word_embeddings(ids).detach()
    marks = torch.isin(ids, torch.tensor([0, CLS, SEP])).long()  # padding is marked, too
    found = model(inputs_embeds=vectors, special_tokens_mask=marks, **given).logits
    tokens = given.get("attention_mask", torch.ones_like(ids)).bool()
    torch.testing.assert_close(found[tokens], model(ids, **given).logits[tokens], rtol=1e-12, atol=1e-12)
    terms = model.attention_terms(inputs_embeds=vectors, special_tokens_mask=marks, **given)
    assert set(terms) == set(model.attention_terms(input_ids=ids, **given))


def test_a_first_token_without_mark_is_no_cls():
    """A text without [CLS] has none where vectors stand for it."""
    model = build("dstg", relative_special="each")
    ids = torch.tensor([[7, 8, SEP, 9, SEP]])
    marks = (ids == SEP).long()
    vectors = model.encoder.word_embeddings(ids).detach()
    found = model(inputs_embeds=vectors, special_tokens_mask=marks).logits
    torch.testing.assert_close(found, model(ids).logits, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"special_tokens_mask has shape \(1, 4\)"):
        model(inputs_embeds=vectors, special_tokens_mask=marks[:, 1:])


def test_types_and_caches_of_clients_change_nothing(ids):
    """Token types and use_cache are accepted by encoder and heads; a head mask is refused in one line."""
    types = (torch.arange(9) > 4).long().expand(2, 9)
    model = build("dstg")
    for one in (model, model.encoder):
        assert torch.equal(one(ids, token_type_ids=types, use_cache=False, head_mask=None)[0], one(ids)[0])
    with pytest.raises(ValueError, match="No head_mask"):
        model(ids, head_mask=torch.ones(2, 2))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["dstg", "tupe-r", "rope", "alibi", "bipe"])
def test_masks_of_pairs_equal_masks_of_tokens(name, backend):
    """A mask of pairs, in truth values, numbers or as transformers adds it, equals the padding mask it is made of."""
    model = build(name)
    given = inputs("padded")
    model.set_attn_implementation(backend)
    ids = given["input_ids"]
    mask = given["attention_mask"]
    expected = model(**given).logits[mask.bool()]
    pairs = mask.bool()[:, None, None, :].expand(2, 1, 7, 7)
    added = torch.zeros(2, 1, 7, 7, dtype=torch.float64).masked_fill(~pairs, LARGE)
    # One row for all queries, (b, 1, 1, n), which BERT takes, was refused.
    for form in (pairs, pairs.long(), added, pairs[:, :, :1], added[:, :, :1]):
        torch.testing.assert_close(model(ids, attention_mask=form).logits[mask.bool()], expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["dstg", "conv", "bipe"])
def test_a_mask_of_pairs_keeps_documents_apart(name):
    """Pairs within a document alone are what `document_ids` say; a convolution read over their ends."""
    model = build(name)
    given = inputs("packed")
    documents = given.pop("document_ids")
    pairs = (documents[:, :, None] == documents[:, None, :])[:, None]
    expected = model(**given, document_ids=documents).logits
    torch.testing.assert_close(model(**given, attention_mask=pairs).logits, expected, rtol=1e-11, atol=1e-11)
    one = ww.EncoderForSequenceClassification(config("dstg")).double().eval()
    whole = torch.ones(1, 1, 7, 7, dtype=torch.bool)
    assert torch.equal(one(given["input_ids"], attention_mask=whole).logits, one(given["input_ids"]).logits)


def test_padding_that_sees_nothing_is_no_text():
    """Queries of padding that may look nowhere do not make the padding before a text a part of it."""
    # They were opened first: positions began, and the classifier read, at the padding.
    text = torch.tensor([[2, 7, 8, 9, 3]])
    padded = torch.cat([torch.zeros(1, 2, dtype=torch.long), text], 1)
    seen = padded[:, None, :] != 0
    pairs = (seen & seen.mT)[:, None]
    model = build("ap")
    expected = model(padded, attention_mask=seen[:, 0]).logits[:, 2:]
    torch.testing.assert_close(model(padded, attention_mask=pairs).logits[:, 2:], expected, rtol=0, atol=0)
    one = ww.EncoderForSequenceClassification(config("ap")).double().eval()
    torch.testing.assert_close(one(padded, attention_mask=pairs).logits, one(text).logits, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["fire", "tupe-a", "alibi"])
def test_a_token_that_nobody_looks_at_has_its_place(name):
    """It was counted as padding: in a batch of two it stood at 0, and its distances were those of a run."""
    model = build(name)
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    pairs = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    pairs[..., -1] = False
    places = torch.tensor([[0, 1, 2, 3, 1]])
    for given in ({}, {"position_ids": places}):
        twice = {key: x.repeat(2, 1) for key, x in given.items()}
        alone = model(ids, attention_mask=pairs, **given).logits
        torch.testing.assert_close(model(ids.repeat(2, 1), attention_mask=pairs, **twice).logits[:1], alone)
    run = model(ids, attention_mask=pairs, position_ids=torch.arange(5)[None]).logits[:, -1]
    far = model(ids, attention_mask=pairs, position_ids=places).logits[:, -1]
    assert not torch.isclose(run, far).all()


@pytest.mark.parametrize("name", PRESETS)
def test_padding_states_depend_on_no_other_row(name):
    """Padding behind a text stood at the place of its last token, but only where another row was no run of places."""
    model = build(name)
    ids = torch.tensor([[2, 7, 8, 9, 3, 1, 1], [2, 5, 6, 3, 1, 1, 1], [2, 9, 1, 4, 5, 1, 3]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 1, 0, 1]])
    together = model.encoder(ids, attention_mask=mask).last_hidden_state
    for row in range(3):
        alone = model.encoder(ids[row : row + 1], attention_mask=mask[row : row + 1]).last_hidden_state
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-11, atol=1e-11)


def test_padding_reaches_no_further_than_the_table():
    """Padding behind a text as long as the table is read, whatever it is padded to."""
    model = build("dstg", max_position_embeddings=5)
    ids = torch.tensor([[2, 7, 8, 9, 3, 0, 0, 0]])
    padded = model(ids, attention_mask=(ids > 0).long()).logits[:, :5]
    torch.testing.assert_close(padded, model(ids[:, :5]).logits, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("given", [{"document_ids": torch.zeros(1, 5, dtype=torch.long)}, {}])
def test_a_hidden_diagonal_stays_hidden(given):
    """Documents and windows let every token see itself, whatever the mask of pairs said."""
    model = build("rope", **({} if given else {"attention_window": 2}))
    pairs = ~torch.eye(5, dtype=torch.bool)[None, None]
    out = model(torch.tensor([[2, 7, 8, 9, 3]]), attention_mask=pairs, output_attentions=True, **given)
    assert all(not layer.diagonal(dim1=-2, dim2=-1).any() for layer in out.attentions)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 2, 9, 9), r"\(2, 1, 9, 9\); got \(2, 2, 9, 9\). One mask is for all heads"),
        (torch.ones(2, 1, 9, 8), r"mask of pairs has shape .* = \(2, 1, 9, 9\); got \(2, 1, 9, 8\).\Z"),
        (torch.ones(2, 1, 9, 9), "in floating point is added to the scores"),
        (torch.full((2, 1, 9, 9), -0.5), "in floating point is added to the scores"),
    ],
)
def test_other_masks_of_pairs_are_refused(mask, message, ids):
    with pytest.raises(ValueError, match=message):
        build("dstg")(ids, attention_mask=mask)


def test_choices_are_scored_one_by_one(tmp_path):
    """The score of a choice is what the classifier says of its text alone; the loss is cross-entropy over choices."""
    model = random_weights(ww.EncoderForMultipleChoice(config("dstg")).double().eval(), seed=3)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, VOCAB, (3, 4, 8), generator=generator)
    ids[..., 0] = CLS
    mask = torch.ones_like(ids)
    mask[:, 1, 5:] = 0
    labels = torch.tensor([2, 0, -100])
    out = model(ids, attention_mask=mask, labels=labels, token_type_ids=torch.zeros_like(ids))
    for row in range(3):
        for choice in range(4):
            alone = model.encoder(ids[row, choice][None, : int(mask[row, choice].sum())]).last_hidden_state[:, 0]
            torch.testing.assert_close(out.logits[row, choice], model.classifier(alone)[0, 0])
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits[:2], labels[:2]))
    vectors = model.encoder.word_embeddings(ids)
    given = {"inputs_embeds": vectors, "special_tokens_mask": (ids == CLS).long(), "attention_mask": mask}
    torch.testing.assert_close(model(**given).logits, out.logits)
    model.save_pretrained(tmp_path)
    again = AutoModelForMultipleChoice.from_pretrained(tmp_path, dtype=torch.float64)
    assert type(again) is type(model) and torch.equal(again(ids, attention_mask=mask).logits, out.logits)
    with pytest.raises(ValueError, match=r"\(batch, choices, tokens\); got \(4, 8\)"):
        model(ids[0])
