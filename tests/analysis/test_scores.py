"""Spread of the terms of the scores against loops and its closed form at the start; θ against the weights it is made
of."""

import numpy as np
import pytest
import torch
from encoder_models import build
from small_documents import documents

import whatwhere as ww
from whatwhere.analysis.passes import Batch
from whatwhere.analysis.patterns import ScoreSpread, score_records, theta_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select

WHO = RecordContext("m", 1, "s")


def terms_of(model, docs, i):
    """{term: (layers, h, n, n)} of one document."""
    given = {"input_ids": docs.input_ids, "attention_mask": docs.attention_mask, "position_ids": docs.position_ids}
    given |= {} if docs.document_ids is None else {"document_ids": docs.document_ids}
    tensors = {key: torch.from_numpy(a[i : i + 1]) for key, a in given.items() if a is not None}
    return {name: term[:, 0].numpy() for name, term in model.attention_terms(**tensors).items()}


@pytest.mark.parametrize("options", [{}, {"inner": True, "padded": True}, {"packed": True}])
@pytest.mark.parametrize("name", ["dstg", "tupe-r", "ap"])
def test_spread_equals_loops(name, options):
    model = build(name)
    docs = documents(**options)
    records = score_records(model, docs, WHO, batch_size=2)
    by_document = [terms_of(model, docs, i) for i in range(len(docs))]
    assert {r.part for r in records} == set(by_document[0]) and {r.layer for r in records} == {1, 2}
    for r in records:
        variances = []
        for i, terms in enumerate(by_document):
            own = terms[r.part][r.layer - 1]
            tokens = np.flatnonzero(docs.regular[i])
            may = [
                (a, b)
                for a in tokens
                for b in tokens
                if docs.document_ids is None or docs.document_ids[i, a] == docs.document_ids[i, b]
            ]
            variances.append(np.mean([np.var([head[pair] for pair in may]) for head in own]))
        assert r.value == pytest.approx(np.sqrt(np.mean(variances))) and r.n == 5 and r.low <= r.value <= r.high


def test_a_constant_term_has_a_spread_of_zero():
    """A term constant over regular pairs alone had a variance below 0 by rounding, and its record vanished as nan."""
    docs = documents(count=4, n=9)
    batch = Batch.of(docs, np.arange(4), torch.device("cpu"))
    pairs = torch.from_numpy(docs.regular[:, :, None] & docs.regular[:, None, :])[:, None]
    for level in torch.linspace(0.1, 9.9, 50):
        reader = ScoreSpread()
        reader.terms(batch, 0, {"absolute": torch.where(pairs, level, -level).expand(-1, 2, -1, -1)}, None)
        (r,) = reader.records(WHO)
        assert r.value == pytest.approx(0, abs=1e-2)


def test_initial_score_sizes_follow_the_stream_width():
    """E over the weights of the variance in a document is σ⁴(d² - |x̄|⁴), x̄ the mean of its normed states, each of
    length √d."""
    docs = documents(count=3, n=24)
    found = {"absolute": [], "semantic": []}
    expected = {"absolute": [], "semantic": []}
    for seed in range(40):
        torch.manual_seed(seed)
        fields = {"num_hidden_layers": 1, "initializer": "normal", "initializer_range": 0.02}
        model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=400, **fields)).double().eval()
        for r in score_records(model, docs, WHO):
            if r.part in found:
                found[r.part].append(r.value**2)
        encoder = model.encoder
        with torch.no_grad():
            streams = encoder.embed(torch.from_numpy(docs.input_ids), torch.from_numpy(docs.position_ids))
            for part, x in zip(("absolute", "semantic"), encoder.layers[0].attention_norm(streams), strict=True):
                means = torch.stack([own[torch.from_numpy(r)].mean(0) for own, r in zip(x, docs.regular, strict=True)])
                expected[part].append(0.02**4 * float(x.shape[-1] ** 2 - means.square().sum(1).square().mean()))
    for part, values in found.items():
        error = np.std(values, ddof=1) / np.sqrt(40)
        assert abs(np.mean(values) - np.mean(expected[part])) < 3 * error < 0.25 * np.mean(values), part
    assert np.sqrt(np.mean(found["absolute"]) / np.mean(found["semantic"])) == pytest.approx(8 / 120, rel=0.15)


@pytest.mark.parametrize("name", ["tupe-a", "tupe-r", "tupe-r/each", "tupe-free", "bert-r/reset", "tupe-r/layers"])
def test_theta_is_that_of_the_weights(name):
    model = build(name)
    docs = documents(inner=True)
    records = theta_records(model, docs, WHO)
    untied = model.encoder.untied
    config = model.config
    theta = np.zeros((2, 2))
    if untied is not None and untied.cls is not None:
        p = (
            torch.nn.functional.layer_norm(untied.cls, (24,), untied.norm.weight, untied.norm.bias, config.norm_eps)
            .detach()
            .numpy()
        )
        q, k = (p @ m.weight.detach().numpy().T for m in (untied.query, untied.key))
        theta += config.score_scale * (q * k).reshape(2, 2, 12).sum(2)
    if untied is not None and untied.theta is not None:
        theta += untied.theta.detach().numpy()
    relative = model.encoder.relative
    if relative is not None and relative.cls is not None:
        theta += relative.cls.detach().numpy()
    # bert-r shares its bias; of a bias for each layer all have records.
    assert {r.layer for r in records} == ({1, 2} if name == "tupe-r/layers" else {1})
    v = sum(t for part, t in terms_of(model, docs, 0).items() if part in ("absolute", "relative"))
    tokens = np.flatnonzero(docs.regular[0])
    for layer, head in {(r.layer, r.head) for r in records}:
        value = {r.metric: r.value for r in records if (r.layer, r.head) == (layer, head)}
        own = np.array([[v[layer - 1, head, i, j] for j in tokens] for i in tokens])
        assert value["theta.mean"] == pytest.approx(own.mean()) and value["theta.std"] == pytest.approx(own.std())
        assert [value["theta.query"], value["theta.key"]] == pytest.approx(list(theta[:, head]))


def test_theta_needs_a_reset_and_cls():
    """Schemes without reset have no theta and text without [CLS] is refused."""
    assert (
        theta_records(build("tupe-a-tie-cls"), documents(), WHO) == theta_records(build("dstg"), documents(), WHO) == []
    )
    docs = documents()
    docs.input_ids[0, 0] = 7
    with pytest.raises(ValueError, match=r"begins with \[CLS\]; got 0"):
        theta_records(build("tupe-a"), docs, WHO)
    assert len(select(theta_records(build("tupe-a"), documents(), WHO), metric="theta.key")) == 2
