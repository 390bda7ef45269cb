"""Tools that look inside: bertviz shows, captum attributes, nnsight reads and changes what a model computes."""

import json
import re

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSequenceClassification

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def model(folder) -> nn.Module:
    """The encoder with the attention that can be read."""
    return AutoModel.from_pretrained(folder, attn_implementation="eager").eval()


@pytest.fixture
def text(tokenizer, texts) -> dict[str, Tensor]:
    """One text."""
    return dict(tokenizer(texts[0], truncation=True, max_length=24, return_tensors="pt"))


def shown_attention(page: str) -> Tensor:
    """The maps (layers, heads, n, n) in a page of bertviz."""
    (found,) = re.findall(r"const params = (\{.*\});", page)
    return torch.tensor(json.loads(found)["attention"][0]["attn"])


@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz_shows_the_attention_of_the_model(view, model, tokenizer, text):
    """The page of bertviz holds the maps that the model returns, and rows that sum to one."""
    bertviz = pytest.importorskip("bertviz", reason="make clients has it")
    attention = model(**text, output_attentions=True).attentions
    tokens = tokenizer.convert_ids_to_tokens(text["input_ids"][0])
    page = getattr(bertviz, view)(attention, tokens, html_action="return").data
    shown = shown_attention(page)
    expected = torch.cat([layer.detach() for layer in attention])
    assert shown.shape == expected.shape == (2, 4, len(tokens), len(tokens))
    torch.testing.assert_close(shown, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(shown.sum(-1), torch.ones(2, 4, len(tokens)), rtol=0, atol=1e-5)


@pytest.fixture
def classifier(folder) -> nn.Module:
    """A classifier of texts with a head whose scores depend on the text."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    draw = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if not name.startswith(f"{model.base_model_prefix}."):
            nn.init.normal_(parameter, std=0.3, generator=draw)
    return model


def test_captum_attributions_sum_to_the_difference(classifier, tokenizer, text):
    """Integrated gradients of the word embeddings sum to F(text) - F(baseline) (Sundararajan et al. 2017)."""
    attribution = pytest.importorskip("captum.attr", reason="make clients has it")

    def score(ids: Tensor) -> Tensor:
        mask = text["attention_mask"].expand(len(ids), -1)
        return classifier(ids, attention_mask=mask).logits[:, 0]

    ids = text["input_ids"]
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    baseline = torch.where(special, ids, tokenizer.unk_token_id)
    method = attribution.LayerIntegratedGradients(score, classifier.get_input_embeddings())
    given = method.attribute(ids, baseline, n_steps=200)
    difference = float((score(ids) - score(baseline)).detach())
    assert abs(difference) > 0.01
    assert float(given.sum()) == pytest.approx(difference, abs=0.02 * abs(difference))
    torch.testing.assert_close(given[special].abs().max(), torch.tensor(0.0))


def test_nnsight_reads_the_hidden_states_of_blocks(model, text):
    """A trace saves at each block what `hidden_states` holds after it."""
    nnsight = pytest.importorskip("nnsight", reason="make clients has it")
    traced = nnsight.NNsight(model)
    with traced.trace(**text):
        streams = traced.layers[0].output[0].save()
    read = torch.cat(streams, dim=-1)  # a block hands on its streams one by one
    states = model(**text, output_hidden_states=True).hidden_states
    torch.testing.assert_close(read, states[1])


def test_nnsight_edit_equals_a_forward_hook(model, text):
    """Zeros in place of an attention's output change the model as a hook that returns zeros does."""
    nnsight = pytest.importorskip("nnsight", reason="make clients has it")
    plain = model(**text).last_hidden_state
    part = model.layers[1].attention.out[0]
    handle = part.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
    hooked = model(**text).last_hidden_state
    handle.remove()
    traced = nnsight.NNsight(model)
    with traced.trace(**text):
        traced.layers[1].attention.out[0].output[:] = 0
        edited = traced.output.last_hidden_state.save()
    assert float((hooked - plain).abs().max()) > 1e-3
    torch.testing.assert_close(edited, hooked)
