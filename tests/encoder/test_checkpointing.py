"""Gradient checkpointing: equal gradients, by transformers' own switches."""

import pytest
import torch
from encoder_models import build, inputs
from hf_training import model_of, moved, rows, trainer

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # the names of transformers 5 go in 6


def gradients(model, **given) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(7)  # of dropout
    model(**inputs("padded"), labels=inputs("plain")["input_ids"], **given).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["dstg", "rope", "tupe-r", "bert-ad", "split"])
def test_checkpointed_gradients_are_equal(name, backend):
    """Every gradient, through streams and shared biases and with dropout, equals that of the plain pass."""
    model = build(name, dropout=0.1).train()
    model.set_attn_implementation(backend)
    expected = gradients(model)
    model.gradient_checkpointing_enable()
    calls = []
    handle = model.encoder.layers[0].attention.register_forward_hook(lambda *_: calls.append(1))
    found = gradients(model)
    handle.remove()
    assert len(calls) == 2  # once more in the backward pass
    assert found.keys() == expected.keys() and len(found) > 10
    for key, gradient in found.items():
        torch.testing.assert_close(gradient, expected[key], rtol=1e-12, atol=1e-14)
    model.gradient_checkpointing_disable()
    assert not any(layer.gradient_checkpointing for layer in model.encoder.layers)


@pytest.mark.parametrize("name", ["dstg", "tupe-r"])
def test_reentrant_checkpoints_have_equal_gradients(name):
    """use_reentrant=True, which loses gradients of streams and biases, is read as False with a warning.

    It was an error, where transformers' BERT trains.
    """
    model = build(name, dropout=0.1).train()
    expected = gradients(model)
    with pytest.warns(UserWarning, match="use_reentrant=True is read as False"):
        model.gradient_checkpointing_enable({"use_reentrant": True})
    found = gradients(model)
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        torch.testing.assert_close(gradient, expected[key], rtol=1e-12, atol=1e-14)


def test_trainer_checkpoints_to_the_same_weights(tmp_path):
    """Trainer's flag changes memory, not the training."""
    models = [model_of("words").double() for _ in range(2)]
    for model, flag in zip(models, (False, True), strict=True):
        trainer(model, rows("words"), tmp_path, gradient_checkpointing=flag).train()
    assert all(layer.gradient_checkpointing for layer in models[1].encoder.layers)
    assert moved(*models) < 1e-12
