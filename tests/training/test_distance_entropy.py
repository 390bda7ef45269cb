"""The entropy penalty: the equation with loops, what it adds to a loss, and who has no such terms."""

import math

import pytest
import torch
from encoder_models import build, inputs, real
from loop_runs import config_of, windows_of

import whatwhere as ww
from whatwhere.training.distance_entropy import (
    check_entropy_weight,
    distance_entropy,
    entropy_penalty,
    penalize_entropy,
)
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig


def entropy_with_loops(scores, allowed, b, head):
    """Shares of all distances, over queries that may look at themselves, and their entropy."""
    n = scores.shape[-1]
    shares = dict.fromkeys(range(1 - n, n), 0.0)
    queries = [i for i in range(n) if allowed[b, i, i]]
    for i in queries:
        powers = {j: math.exp(scores[b, head, i, j]) for j in range(n) if allowed[b, i, j]}
        for j, power in powers.items():
            shares[j - i] += power / sum(powers.values()) / len(queries)
    return -sum(share * math.log(share) for share in shares.values() if share)


def penalty_of(model, ids):
    """The penalty of all blocks."""
    penalties = []
    with model.inspect_terms(lambda block, terms, allowed: penalties.append(entropy_penalty(terms, allowed, None))):
        model(ids)
    return sum(penalties).detach()


def seen_by_all(given):
    """(b, n, n): which query may look at which key."""
    tokens = real(given)
    allowed = tokens[:, :, None] & tokens[:, None, :]
    if "document_ids" in given:
        allowed = allowed & (given["document_ids"][:, :, None] == given["document_ids"][:, None, :])
    return allowed


@pytest.mark.parametrize("case", ["dstg", "rp", "tupe-r", "split", "fire", "transformer-xl"])
@pytest.mark.parametrize("kind", ["plain", "padded", "both"])
def test_penalties_are_those_of_the_loops(case, kind):
    model = build(case)
    given = inputs(kind)
    found = []
    with torch.no_grad(), model.inspect_terms(lambda block, terms, allowed: found.append((terms, allowed))):
        model.encoder(**given)
    seen = seen_by_all(given)
    tokens = given.get("attention_mask")
    assert found
    for terms, allowed in found:
        position = sum(terms[name] for name in ("absolute", "relative") if name in terms)
        expected = 0.0
        for head in range(terms["semantic"].shape[1]):
            means = []
            for scores in (terms["semantic"], position):
                scores = scores.expand(len(seen), -1, -1, -1)
                each = [entropy_with_loops(scores, seen, b, head) for b in range(len(seen))]
                torch.testing.assert_close(
                    distance_entropy(scores, allowed, tokens)[:, head].tolist(), each, rtol=1e-9, atol=1e-9
                )
                means.append(sum(each) / len(each))
            expected += (1 - means[0] / math.log(2 * scores.shape[-1] - 1)) * means[1]
        assert entropy_penalty(terms, allowed, tokens).item() == pytest.approx(expected, rel=1e-9)


def test_even_weights_of_one_query_have_the_largest_entropy():
    assert float(distance_entropy(torch.zeros(1, 1, 1, 1), None, None)) == 0
    n = 8
    sharp = torch.full((1, 1, n, n), -1e4)
    sharp[0, 0].fill_diagonal_(0)
    assert float(distance_entropy(sharp, None, None)) == pytest.approx(0, abs=1e-6)
    assert 2 < float(distance_entropy(torch.zeros(1, 1, n, n), None, None)) < math.log(2 * n - 1)


def test_the_penalty_joins_the_training_loss_alone():
    model = build("dstg").train()
    ids = inputs("plain")["input_ids"]
    plain = model(ids, labels=ids).loss
    penalty = penalty_of(model, ids)
    with penalize_entropy(model, 0.25):
        together = model(ids, labels=ids).loss
        torch.testing.assert_close(together, plain + 0.25 * penalty)
        gradient = torch.autograd.grad(together - plain, model.encoder.layers[0].attention.qkv[0].weight)[0]
        assert gradient.abs().max() > 1e-6
        model.eval()
        torch.testing.assert_close(model(ids, labels=ids).loss, plain)
    model.train()
    torch.testing.assert_close(model(ids, labels=ids).loss, plain)


@pytest.mark.whole
def test_a_penalized_training_narrows_positions(corpus_file, tmp_path):
    """A training with a large weight ends with a smaller penalty than one without, and with a model as any other."""
    windows = windows_of(corpus_file, tmp_path)
    rows = torch.as_tensor(next(iter(windows["train"])).input_ids)[None].long()
    ends = {}
    for weight in (0.0, 1.0):
        out = tmp_path / str(weight)
        pretrain(config_of(corpus_file, steps=40, entropy_weight=weight), out, windows=windows, progress=False)
        ends[weight] = float(penalty_of(ww.EncoderForMaskedLM.from_pretrained(out), rows))
    assert ends[1.0] < 0.8 * ends[0.0]


@pytest.mark.parametrize("name", ["ap", "rope", "nope", "bert-a"])
def test_encoders_without_both_terms_are_refused(name):
    config = PretrainConfig.parse({"preset": name, "entropy_weight": 0.01})
    with pytest.raises(ValueError, match=f"needs a semantic term beside one of positions, which {name} has not"):
        config.check()


@pytest.mark.parametrize("name", ["dstg", "split", "fire", "dape", "transformer-xl"])
def test_encoders_with_both_terms_are_taken(name):
    """Those whose positions come by pair terms were refused by the fields of the configuration."""
    PretrainConfig.parse({"preset": name, "entropy_weight": 0.01}).check()


def test_a_compiled_training_has_no_penalty(monkeypatch):
    """Compiled blocks hand over no terms: the first step ended with torch's error on an empty stack."""
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "AOT_EAGER")
    with pytest.raises(ValueError, match="ACCELERATE_DYNAMO_BACKEND=AOT_EAGER.*Train without compilation"):
        PretrainConfig.parse({"preset": "dstg", "entropy_weight": 0.01}).check()
    with pytest.raises(ValueError, match="Train without compilation"), penalize_entropy(build("dstg"), 0.01):
        pass
    PretrainConfig.parse({"preset": "dstg"}).check()


def test_a_sharded_training_has_no_penalty():
    with pytest.raises(ValueError, match="needs whole models: set sharding=none"):
        check_entropy_weight(0.01, ww.preset("dstg"), 32, "full")
