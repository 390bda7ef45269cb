"""Muon of stacked matrices: torch's own for each matrix alone."""

import pytest
import torch
from transformers import AutoConfig, AutoModel

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.training.optimizers import RMS, Muon, make_optimizers, orthogonalize
from whatwhere.training.training_keys import LoopConfig


def parameter(*shape, seed=0):
    return torch.nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def test_stacked_matrices_move_as_separate_ones():
    """Q (12, 8), K (12, 8) and V (8, 8) in one parameter, a wide (4, 10) and a tall (10, 4) beside it; three steps with
    decay."""
    rows = [12, 12, 8]
    ours = [parameter(32, 8), parameter(4, 10, seed=1), parameter(10, 4, seed=2)]
    theirs = [torch.nn.Parameter(part.detach().clone()) for part in ours[0].split(rows)]
    theirs += [torch.nn.Parameter(p.detach().clone()) for p in ours[1:]]
    mine = Muon([{"params": ours, "rows": [rows, [4], [10]]}], lr=0.03, weight_decay=0.1)
    torchs = torch.optim.Muon(theirs, lr=0.03, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        gradients = [parameter(*p.shape, seed=10 * step + i).detach() for i, p in enumerate(ours)]
        for p, gradient in zip(ours, gradients, strict=True):
            p.grad = gradient
        for p, gradient in zip(theirs, [*gradients[0].split(rows), *gradients[1:]], strict=True):
            p.grad = gradient.clone()
        mine.step()
        torchs.step()
    for found, expected in zip([*ours[0].split(rows), *ours[1:]], theirs, strict=True):
        # bfloat16 products in another order: a relative error of 2^-8 an iteration, of updates of 0.2 * 0.03 an entry.
        torch.testing.assert_close(found, expected, rtol=0, atol=6e-4)


def test_together_they_would_move_otherwise():
    """What the split is for: taken as one matrix, the update of Q depends on V's gradient."""
    whole = parameter(24, 8)
    apart = parameter(24, 8)
    gradient = torch.cat([torch.ones(12, 8) * 100 + parameter(12, 8).detach(), parameter(12, 8, seed=5).detach()])
    for p, rows in ((whole, [24]), (apart, [12, 12])):
        p.grad = gradient
        Muon([{"params": [p], "rows": [rows]}], lr=0.1).step()
    assert float((whole - apart).detach().abs().max()) > 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_singular_values_come_near_one(dtype):
    """Singular values come near one and an entry moves as much as adamw would."""
    found = orthogonalize(parameter(3, 40, 120).detach(), dtype)
    values = torch.linalg.svdvals(found.float())
    assert (
        0.6 < float(values.min()) and float(values.max()) < 1.3
    )  # the iteration aims at 0.7 to 1.2 (Jordan et al. 2024)
    for shape in ((8, 128), (376, 120), (64, 64)):
        p = parameter(*shape)
        before = p.detach().clone()
        p.grad = parameter(*shape, seed=3).detach()
        Muon([{"params": [p], "rows": [[shape[0]]]}], lr=0.01, dtype=dtype).step()
        size = float((p - before).detach().square().mean().sqrt())
        assert size == pytest.approx(RMS * 0.01, rel=0.2), shape


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert"])
def test_muon_trains_the_matrices_of_other_models(kind):
    """Blocks of BERT are named `layer.0`, and Muon got none of their matrices, without a word."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "pad_token_id": 0}
    sizes |= {"dim": 16, "n_layers": 2, "n_heads": 2} if kind == "distilbert" else {"intermediate_size": 32}
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes))
    adamw, muon = make_optimizers(model, LoopConfig(optimizer="muon"), 10)
    (group,) = muon.param_groups
    blocks = {id(p) for name, p in model.named_parameters() if ".weight" in name and p.ndim == 2 and "layer" in name}
    assert blocks and {id(p) for p in group["params"]} == blocks
    with pytest.raises(ValueError, match="optimizer=muon finds no hidden matrices in Sequential, whose blocks"):
        make_optimizers(torch.nn.Sequential(torch.nn.Linear(3, 3)), LoopConfig(optimizer="muon"), 10)


def test_our_models_stack_their_matrices():
    """A models queries keys values gates and ups are apart."""
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=50))
    _, muon = make_optimizers(model, LoopConfig(optimizer="muon"), 10)
    (group,) = muon.param_groups
    rows = {id(p): list(r) for p, r in zip(group["params"], group["rows"], strict=True)}
    layer = "encoder.layers.1."
    assert rows[id(model.get_parameter(layer + "attention.qkv.0.weight"))] == [128, 128, 8]
    assert rows[id(model.get_parameter(layer + "attention.qkv.1.weight"))] == [128, 128, 120]
    assert rows[id(model.get_parameter(layer + "feed_forward.up.0.weight"))] == [512, 512]
    assert rows[id(model.get_parameter(layer + "attention.out.1.weight"))] == [120]


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"a parameter \(6, 2\) with rows \(2, 2\)"):
        Muon([{"params": [parameter(6, 2)], "rows": [[2, 2]]}])


def test_muon_trains_only_matrices_of_own_terms():
    """A kernel of a convolution stopped the training, a table of vectors was made orthogonal."""
    model = ww.EncoderForMaskedLM(ww.preset("shaw", "tiny", vocab_size=50))
    content = model.encoder.layers[0].attention.pair_terms
    content.kernel = torch.nn.Conv2d(4, 4, 1)
    content.vectors = torch.nn.Embedding(8, 16)
    content.map = torch.nn.Linear(16, 16)
    adamw, muon = make_optimizers(model, LoopConfig(optimizer="muon", table_learning_rate_scale=0.5), 10)
    (group,) = muon.param_groups
    trained = {id(p) for p in group["params"]}
    assert id(content.map.weight) in trained
    assert not {id(content.kernel.weight), id(content.vectors.weight)} & trained
    peaks = {id(p): group["peak"] for group in adamw.param_groups for p in group["params"]}
    assert peaks[id(content.vectors.weight)] == 0.5 * peaks[id(content.kernel.weight)]


@pytest.mark.parametrize("name", list(PRESETS))
def test_no_parameter_is_a_scalar(name):
    """FIRE had one, which FSDP cannot cut among processes."""
    assert all(p.ndim for p in ww.Encoder(ww.preset(name, "tiny", vocab_size=50)).parameters())


def test_small_numbers_of_a_bias_learn_as_biases():
    """Networks of FIRE and DAPE, and DAPE's KERPLE, learned at the rate of tables, with which 0 freezes a table."""
    config = LoopConfig(optimizer="adamw", table_learning_rate_scale=0.5, bias_learning_rate_scale=2.0)
    scales = {"dape": 2.0, "fire": 2.0, "transformer-xl": 2.0, "shaw": 0.5, "cope": 0.5, "deberta": 0.5}
    for name, scale in scales.items():
        model = ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=50))
        (adamw,) = make_optimizers(model, config, 10)
        small = {
            id(p)
            for part, p in model.named_parameters()
            if "distance_vectors" in part or ("pair_terms" in part and not part.endswith((".weight", ".bias")))
        }
        peaks = [group["peak"] for group in adamw.param_groups for p in group["params"] if id(p) in small]
        assert len(peaks) == len(small) > 0 and set(peaks) == {scale * config.learning_rate}
