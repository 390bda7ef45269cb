"""The heads: each is what its papers and transformers' own models compute, on the same hidden states."""

import inspect

import pytest
import torch
from encoder_models import VOCAB
from torch.nn import functional as F
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bert.modeling_bert import BertLMPredictionHead

import whatwhere as ww
from whatwhere.encoder.config import last_trained_layer
from whatwhere.encoder.task_heads import MaskedLMHead

HEADS = {
    "sequence": (
        ww.EncoderForSequenceClassification,
        BertForSequenceClassification,
        AutoModelForSequenceClassification,
    ),
    "token": (ww.EncoderForTokenClassification, BertForTokenClassification, AutoModelForTokenClassification),
    "span": (ww.EncoderForQuestionAnswering, BertForQuestionAnswering, AutoModelForQuestionAnswering),
}
SIZES = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2}


def small(**fields) -> ww.EncoderConfig:
    own = {"position_size": 8, "max_position_embeddings": 32, "intermediate_size": 96} | fields
    return ww.preset("dstg", "tiny", vocab_size=VOCAB, **(SIZES | own))


def labels(head: str, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    if head == "sequence":
        return {"labels": torch.tensor([2, 0])}
    if head == "token":
        return {"labels": torch.where(ids % 4 == 1, -100, ids % 3)}
    return {
        "start_positions": torch.tensor([1, 50]),
        "end_positions": torch.tensor([3, 4]),
    }  # 50: outside the text, ignored


@pytest.mark.parametrize("head", HEADS)
def test_head_on_the_same_hidden_states_equals_transformers_bert(head, ids, monkeypatch):
    ours, bert, _ = HEADS[head]
    torch.manual_seed(0)
    model = ours(small(num_labels=3)).double().eval()
    reference = (
        bert(BertConfig(vocab_size=VOCAB, num_labels=2 if head == "span" else 3, intermediate_size=96, **SIZES))
        .double()
        .eval()
    )
    pairs = {"qa_outputs": "qa_outputs"} if head == "span" else {"classifier": "classifier"}
    if head == "sequence":
        pairs = {"classifier.dense": "bert.pooler.dense", "classifier.out_proj": "classifier"}
    for mine, theirs in pairs.items():
        reference.get_submodule(theirs).load_state_dict(model.get_submodule(mine).state_dict())
    hidden = model.encoder(ids).last_hidden_state
    output = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden)
    monkeypatch.setattr(reference.bert.encoder, "forward", lambda *args, **kwargs: output)
    got = model(ids, **labels(head, ids))
    expected = reference(ids, **labels(head, ids))
    for key in ("loss", *(["start_logits", "end_logits"] if head == "span" else ["logits"])):
        torch.testing.assert_close(got[key], expected[key])


@pytest.mark.parametrize("problem", ["regression", "single_label_classification", "multi_label_classification"])
def test_sequence_losses_equal_their_equations(problem, ids):
    count = 1 if problem == "regression" else 3
    model = ww.EncoderForSequenceClassification(small(num_labels=count)).double().eval()
    logits = model(ids).logits
    if problem == "regression":
        target = torch.tensor([0.3, -2.0], dtype=torch.float64)
        expected = ((logits[:, 0] - target) ** 2).mean()
    elif problem == "single_label_classification":
        target = torch.tensor([2, 1])
        expected = -torch.log(torch.softmax(logits, -1)[torch.arange(2), target]).mean()
    else:
        target = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
        p = torch.sigmoid(logits)
        expected = -(target * p.log() + (1 - target) * (1 - p).log()).mean()
    torch.testing.assert_close(model(ids, labels=target).loss, expected)
    assert model.config.problem_type == problem


@pytest.mark.parametrize("head", HEADS)
def test_padding_on_either_side_changes_no_logits(head, ids):
    torch.manual_seed(0)
    model = HEADS[head][0](small()).double().eval()
    expected = model(ids)
    for left, right in ((0, 3), (2, 0), (2, 3)):
        padded = F.pad(ids, (left, right))
        output = model(padded, attention_mask=F.pad(torch.ones_like(ids), (left, right)))
        for key in expected:
            got = output[key] if head == "sequence" else output[key][:, left : left + ids.shape[1]]
            torch.testing.assert_close(got, expected[key])


@pytest.mark.parametrize("head", HEADS)
def test_a_masked_lm_checkpoint_opens_with_other_heads(head, ids, tmp_path):
    """Masked LM checkpoint opens with another head and comes back whole."""
    ours, _, auto = HEADS[head]
    pretrained = ww.EncoderForMaskedLM(small(dropout=0.1)).eval()
    pretrained.save_pretrained(tmp_path / "mlm")
    model = auto.from_pretrained(tmp_path / "mlm", num_labels=5)
    assert type(model) is ours
    assert torch.equal(model.encoder(ids).last_hidden_state, pretrained.encoder(ids).last_hidden_state)
    model.save_pretrained(tmp_path / "head")
    again, model = auto.from_pretrained(tmp_path / "head")(ids), model.eval()(ids)
    assert model.keys() == again.keys() and all(torch.equal(model[key], again[key]) for key in model)
    assert head == "span" or model.logits.shape[-1] == 5


@pytest.mark.parametrize("head", HEADS)
def test_head_gives_hidden_states_attentions_tuples_and_gradients_everywhere(head, ids):
    model = HEADS[head][0](small(num_labels=3))
    output = model(ids, **labels(head, ids), output_hidden_states=True, output_attentions=True)
    assert len(output.hidden_states) == 3 and len(output.attentions) == 2
    assert torch.equal(model(ids, return_dict=False)[0], model(ids).to_tuple()[0])
    output.loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_trainer_keeps_the_columns_that_forward_names():
    for ours in (ww.EncoderForMaskedLM, *(head[0] for head in HEADS.values())):
        names = inspect.signature(ours.forward).parameters
        assert {"input_ids", "attention_mask", "position_ids", "document_ids"} <= set(names)
        assert "labels" in names or {"start_positions", "end_positions"} <= set(names)


def test_one_answer_position_alone_is_an_error(ids):
    with pytest.raises(ValueError, match="both start_positions and end_positions"):
        ww.EncoderForQuestionAnswering(small())(ids, start_positions=torch.tensor([1, 1]))


@pytest.mark.parametrize("tied", [False, True])
def test_head_of_bert_block_equals_transformers_bert(tied, ids):
    config = ww.preset("ap", "tiny", vocab_size=VOCAB, block="bert", norm_eps=1e-12, tie_word_embeddings=tied, **SIZES)
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(config).double().eval()
    reference = BertLMPredictionHead(BertConfig(vocab_size=VOCAB, hidden_size=24, layer_norm_eps=1e-12)).double()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        reference.transform.dense.load_state_dict(model.head.transform.dense.state_dict())
        reference.transform.LayerNorm.load_state_dict(model.head.transform.norm.state_dict())
        reference.decoder.weight.copy_(model.head.decoder.weight)
        reference.decoder.bias.copy_(model.head.decoder.bias)
    torch.testing.assert_close(model(ids).logits, reference(model.encoder(ids).last_hidden_state))
    assert (model.head.decoder.weight is model.encoder.word_embeddings.weight) == tied


@pytest.mark.parametrize("block", ["neobert", "bert"])
def test_mlm_heads_read_their_streams(block):
    """Semantic head reads the semantic stream and full head all of hidden."""
    hidden = torch.randn(3, 24, dtype=torch.float64)
    for mlm_head, first in (("semantic", 8), ("full", 0)):
        head = MaskedLMHead(small(block=block, mlm_head=mlm_head)).double()
        assert head.decoder.in_features == 16  # the width of the word embedding, so that the two can be tied
        jacobian = torch.autograd.functional.jacobian(lambda h, head=head: head(h).sum(0), hidden).abs().sum((0, 1))
        assert (jacobian[:first] == 0).all() and (jacobian[first:] > 0).all()


@pytest.mark.parametrize("head", ["semantic", "full"])
@pytest.mark.parametrize("residual", ["stream", "normalized"])
def test_only_full_heads_train_the_last_position_output(head, residual):
    """DSTG 3.3; `last_trained_layer` says so of every reader of hidden states."""
    torch.manual_seed(0)
    config = ww.preset("dstg", "tiny", vocab_size=40, num_hidden_layers=3, mlm_head=head, residual=residual)
    model = ww.EncoderForMaskedLM(config)
    ids = torch.randint(5, 40, (2, 9))
    model(input_ids=ids, labels=ids).loss.backward()
    gradients = [layer.feed_forward.down[0].weight.grad for layer in model.encoder.layers]
    assert [g is not None and bool(g.any()) for g in gradients] == [True, True, head == "full"]
    assert last_trained_layer(config, "position") == (2 if head == "semantic" else 3)
    assert last_trained_layer(config, "semantic") == last_trained_layer(config) == 3
    # A classifier reads both streams, a model of one stream has nothing to leave out.
    config.architectures = ["EncoderForSequenceClassification"]
    assert last_trained_layer(config, "position") == 3
    assert last_trained_layer(ww.preset("rope", "tiny", vocab_size=40), "position") == 4


@pytest.mark.parametrize("tied", [True, False])
def test_added_words_get_logits_of_both_streams(tied):
    """A table of words that grows takes the decoder of positions with it, and the old words keep their logits.

    The logits of positions had the old number of words, and their sum raised RuntimeError.
    """
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(ww.preset("dstg-full-mlm", "tiny", vocab_size=50, tie_word_embeddings=tied)).eval()
    ids = torch.tensor([[2, 7, 9, 3]])
    before = model(ids).logits
    model.resize_token_embeddings(53)
    after = model(ids).logits
    assert after.shape == (1, 4, 53)
    torch.testing.assert_close(after[..., :50], before)
