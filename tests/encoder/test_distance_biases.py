"""Biases by a formula of the distance: start values, precision, distances evaluated once. Their equations are held by
test_schemes.py."""

import pytest
import torch
from encoder_models import build, config

import whatwhere as ww
from whatwhere.encoder.tables import sinusoid

NAMES = ["kerple-log", "kerple-power", "tisa", "sandwich"]
FALLING = ["kerple-log", "kerple-power"]  # with distance, alike in both directions


def function_of(model):
    """The bias of the first layer, or the one of all layers."""
    return (model.encoder.relative or model.encoder.layers[0].attention.relative).function


@pytest.mark.parametrize("name", FALLING)
def test_causal_biases_fall_alike_in_both_directions(name):
    """0 at distance 0, and less at each distance more, by the same to both sides."""
    function = function_of(ww.EncoderForMaskedLM(config(name)))
    with torch.no_grad():
        values = function(torch.arange(-20, 21))
    assert values.shape == (41, 2) and torch.equal(values, values.flip(0)) and not values[20].any()
    assert bool((values[20:].diff(dim=0) < 0).all())


def test_kerple_starts_as_its_code():
    """r1 is even between 0 and 2, r2 between 0 and 1, neither below 0.01."""
    torch.manual_seed(0)
    function = function_of(ww.EncoderForMaskedLM(config("kerple-log", hidden_size=400, num_attention_heads=400)))
    r1, r2 = function.log_r.detach().exp()
    for r, highest in ((r1, 2.0), (r2, 1.0)):
        assert 0.0099 < r.min() < 0.05 * highest and 0.95 * highest < r.max() <= highest
        assert abs(float(r.mean()) / highest - 0.5) < 0.05


def test_tisa_starts_as_its_code():
    """Five kernels a head: amplitudes and sharpnesses near 0.1, offsets within a few tokens to both sides."""
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(ww.preset("tisa", "tiny", vocab_size=40, hidden_size=400, num_attention_heads=400))
    function = function_of(model)
    assert len({layer.attention.relative for layer in model.encoder.layers}) == 4
    for name, mean, spread in (("amplitude", 0.1, 0.01), ("sharpness", 0.1, 0.01), ("offset", 0.0, 5.0)):
        numbers = getattr(function, name)
        assert numbers.shape == (5, 400)
        assert abs(float(numbers.detach().mean()) - mean) < 0.1 * spread
        assert float(numbers.detach().std()) == pytest.approx(spread, rel=0.1)


def test_power_starts_as_its_code():
    """r1 is even between 0 and 1, r2 between 0 and 2, neither below 0.01."""
    torch.manual_seed(0)
    function = function_of(ww.EncoderForMaskedLM(config("kerple-power", hidden_size=400, num_attention_heads=400)))
    r1 = function.log_r1.detach().exp()
    r2 = 2 * function.logit_r2.detach().sigmoid()
    for r, highest in ((r1, 1.0), (r2, 2.0)):
        assert 0.0099 < r.min() < 0.05 * highest and 0.95 * highest < r.max() <= highest
        assert abs(float(r.mean()) / highest - 0.5) < 0.05


def test_sandwich_is_the_product_of_sinusoids():
    """The bias is the product of two rows of the sinusoidal table, divided by 2, 4, 6, 8 in four heads."""
    rows = sinusoid(300, 128, torch.float64)
    products = (rows @ rows.T - 64)[..., None] / torch.tensor([2.0, 4.0, 6.0, 8.0])
    model = ww.EncoderForMaskedLM(ww.preset("sandwich", "tiny", vocab_size=40)).double()
    positions = torch.arange(300)
    found = function_of(model)(positions - positions[:, None])
    torch.testing.assert_close(found, products, rtol=1e-9, atol=1e-9)
    assert not list(function_of(model).parameters())
    assert float(found[0, 299, 0]) < float(found[0, 30, 0]) < float(found[0, 3, 0]) < 0


@pytest.mark.parametrize("name", NAMES)
def test_long_distances_differ_in_bfloat16(name):
    """bfloat16 does not tell 256 from 257: the formula runs in float32, as ALiBi's."""
    model = build(name).bfloat16()
    exact = build(name).bfloat16().double()
    distance = torch.tensor([-257, -256, -3, 0, 1, 256, 257])
    found, expected = (function_of(m)(distance) for m in (model, exact))
    assert found.dtype == torch.float32 and expected.dtype == torch.float64
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_each_distance_is_evaluated_once(name, monkeypatch):
    """A batch of distances gives the values and gradients of its pairs, by at most one evaluation a distance."""
    function = function_of(build(name))
    asked = []
    values = type(function).values
    monkeypatch.setattr(type(function), "values", lambda self, d: asked.append(d.shape) or values(self, d))
    positions = torch.tensor([[0, 3, 4, 9, 2, 11, 5], [8, 7, 6, 5, 0, 1, 2]])
    near = positions[:, None, :] - positions[:, :, None]
    for distance, shape in ((near, (23,)), (1000 * near, (2, 7, 7))):
        found = function(distance)
        expected = values(function, distance.double())
        assert asked.pop() == shape and not asked
        torch.testing.assert_close(found, expected)
        weights = list(function.parameters())
        for ours, theirs in zip(
            *(torch.autograd.grad(x.sum(), weights) if weights else () for x in (found, expected)), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_bias_keeps_its_numbers(name, tmp_path):
    model = build(name)
    model.save_pretrained(tmp_path)
    again = ww.EncoderForMaskedLM.from_pretrained(tmp_path)
    for ours, theirs in zip(function_of(again).parameters(), function_of(model).parameters(), strict=True):
        torch.testing.assert_close(ours.double(), theirs)
    distance = torch.arange(-9, 10)
    torch.testing.assert_close(function_of(again).double()(distance), function_of(model)(distance))
