"""KL of removed terms against loops in float64, shares, labels and their bootstrap, and models whose terms cannot be
removed."""

import math

import numpy as np
import pytest
import torch
from encoder_models import KINDS, build, config, inputs, real

import whatwhere as ww
from whatwhere.analysis import head_labels as heads
from whatwhere.analysis.head_labels import (
    HeadTaxonomy,
    head_labels,
    removal_kl,
    separable_terms,
    term_names,
    term_shares,
)
from whatwhere.analysis.passes import ChosenWindows, read
from whatwhere.analysis.record_context import RecordContext, draw_documents
from whatwhere.records.gates import NOTHING, labels
from whatwhere.records.record import Record, select
from whatwhere.records.table import Table

SEVERAL_TERMS = [
    ("dstg", {}),
    ("rp", {}),
    ("tupe-r", {}),
    ("split", {}),
    ("bert-ad", {}),
    ("dstg", {"block": "bert"}),
    ("tupe-a", {}),
]


def documents(given, copies=1):
    """`ChosenWindows` of the inputs of `encoder_models.inputs`."""
    ids = given["input_ids"].numpy()
    counted = np.maximum(real(given).numpy().cumsum(1) - 1, 0)
    optional = {
        key: given[key].numpy().repeat(copies, 0) if key in given else None
        for key in ("document_ids", "attention_mask")
    }
    positions = given["position_ids"].numpy() if "position_ids" in given else counted
    regular = (ids != 2) & (ids != 3) & real(given).numpy()
    return ChosenWindows(
        input_ids=ids.repeat(copies, 0),
        position_ids=positions.repeat(copies, 0),
        regular=regular.repeat(copies, 0),
        targets={},
        **optional,
    )


def naive(terms, allowed, queries):
    """Eq. 4 written out: (b, h, terms); terms (b or 1, h, n, n), allowed (b, n, n) bool, queries (b, n) bool."""
    names = list(terms)
    b = len(queries)
    h, n = terms[names[0]].shape[1:3]

    def softmax(scores):
        top = max(scores)
        return [math.exp(s - top) / sum(math.exp(x - top) for x in scores) for s in scores]

    found = np.full((b, h, len(names)), np.nan)
    for e in range(b):
        for head in range(h):
            for k, removed in enumerate(names):
                values = []
                for i in range(n):
                    if not queries[e, i]:
                        continue
                    keys = [j for j in range(n) if allowed[e, i, j]]
                    at = {
                        name: [float(t[e if len(t) > 1 else 0, head, i, j]) for j in keys] for name, t in terms.items()
                    }
                    whole = softmax([sum(at[name][j] for name in names) for j in range(len(keys))])
                    without = softmax([sum(at[name][j] for name in names if name != removed) for j in range(len(keys))])
                    values.append(sum(p * math.log(p / q) for p, q in zip(whole, without, strict=True)))
                if values:
                    found[e, head, k] = sum(values) / len(values)
    return found


def allowed_of(given):
    """(b, n, n): a key is seen unless it is padding or of another document; every token of packed documents sees
    itself."""
    seen = real(given)[:, None, :].expand(-1, real(given).shape[1], -1)
    if "document_ids" not in given:
        return seen
    ids = given["document_ids"]
    return (seen & (ids[:, :, None] == ids[:, None, :])) | torch.eye(ids.shape[1], dtype=torch.bool)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "fields"), SEVERAL_TERMS)
def test_kl_is_eq_4(name, fields, kind):
    model = build(name, **fields)
    given = inputs(kind)
    chosen = documents(given)
    reader = HeadTaxonomy(model)
    read(model, chosen, [reader], batch_size=1 if kind == "packed" else 2)
    terms = model.attention_terms(**given)
    assert set(reader.names) == set(terms)
    for block in range(2):
        expected = naive({t: terms[t][block] for t in reader.names}, allowed_of(given), chosen.regular)
        np.testing.assert_allclose(reader.kl[:, block], expected, rtol=1e-9, atol=1e-12)
    assert reader.kl.max() > 1e-3


def test_all_queries_are_all_but_padding():
    model = build("dstg")
    given = inputs("padded")
    reader = HeadTaxonomy(model, queries="all")
    read(model, documents(given), [reader])
    terms = model.attention_terms(**given)
    expected = naive({t: terms[t][1] for t in reader.names}, allowed_of(given), real(given).numpy())
    np.testing.assert_allclose(reader.kl[:, 1], expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("piece", [1, 50, 1 << 21])
def test_removal_kl_is_equal_for_every_piece_size(dtype, piece, monkeypatch):
    """Any size of the pieces and any type of the terms give the loops' KL, in float64."""
    monkeypatch.setattr(heads, "PIECE", piece)
    generator = torch.Generator().manual_seed(0)
    terms = {k: (2 * torch.randn(b, 3, 5, 5, generator=generator)).to(dtype) for k, b in (("a", 2), ("b", 1), ("c", 2))}
    queries = torch.tensor([[True, True, False, True, True], [False, True, True, True, False]])
    found = removal_kl(terms, None, queries)
    expected = naive({k: t.double() for k, t in terms.items()}, np.ones((2, 5, 5), bool), queries)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 2e-6)


@pytest.mark.parametrize("others", [1, 2, 3])
@pytest.mark.parametrize("seen", ["all", "padding"])
def test_a_zero_term_changes_exactly_nothing(others, seen):
    generator = torch.Generator().manual_seed(0)
    terms = {f"t{k}": 5 * torch.randn(2, 2, 6, 6, generator=generator) for k in range(others)}
    terms = {"first": torch.zeros(1, 2, 6, 6), **terms, "last": torch.zeros(2, 2, 6, 6)}
    allowed = None if seen == "all" else (torch.arange(6) < torch.tensor([6, 3])[:, None])[:, None, None, :]
    queries = torch.ones(2, 6, dtype=torch.bool) if allowed is None else allowed[:, 0, 0]
    found = removal_kl(terms, allowed, queries)
    assert (found[..., [0, -1]] == 0).all()
    if others > 1:
        assert (found[..., 1:-1] > 0).all()


def test_kl_does_not_see_what_softmax_does_not():
    """A constant added to all keys of a query changes no weights; rounding in float32 never makes a KL negative or
    large."""
    generator = torch.Generator().manual_seed(0)
    terms = {
        "a": 3 * torch.randn(1, 2, 64, 64, generator=generator),
        "b": (40 * torch.randn(1, 2, 64, 1, generator=generator)).expand(1, 2, 64, 64),
    }
    found = removal_kl(terms, None, torch.ones(1, 64, dtype=torch.bool))
    assert (found >= 0).all() and found[..., 1].max() < 2e-5
    wide = removal_kl({k: t.double() for k, t in terms.items()}, None, torch.ones(1, 64, dtype=torch.bool))
    assert wide[..., 1].max() < 1e-12
    np.testing.assert_allclose(found[..., 0], wide[..., 0], rtol=1e-5)


def test_weights_that_underflow():
    """One key takes all weight with the term and another without it: KL is the difference of the scores, not
    infinite."""
    term = torch.zeros(1, 1, 2, 2)
    term[..., 0] = 400.0
    rest = torch.zeros(1, 1, 2, 2)
    rest[..., 1] = 200.0
    found = removal_kl({"a": term, "b": rest}, None, torch.ones(1, 2, dtype=torch.bool))
    assert found.flatten().tolist() == pytest.approx([200.0, 0.0])


def taxonomy(kl):
    """A reader that has read documents with the given KL (documents, L, h, terms)."""
    reader = HeadTaxonomy(build("dstg"))
    reader.values = dict(enumerate(np.moveaxis(np.asarray(kl, dtype=np.float64), 1, 0)))
    return reader


def test_records_are_shares_labels_and_bootstrap_intervals():
    rng = np.random.default_rng(3)
    kl = rng.gamma(1.0, size=(40, 2, 2, 3)) * rng.random((2, 2, 3))
    reader = taxonomy(kl)
    records = reader.records(RecordContext("m", 4, "s"))
    drawn = np.stack([np.repeat(kl, row, axis=0).mean(0) for row in draw_documents(40)])
    for layer, head in np.ndindex(2, 2):
        place = {"layer": layer + 1, "head": head}
        mean = kl[:, layer, head].mean(0)
        for k, term in enumerate(reader.names):
            (one,) = select(records, metric=f"kl.{term}", **place)
            assert (one.study, one.model, one.seed, one.n, one.unit) == ("s", "m", 4, 40, "nats")
            low, high = np.percentile(drawn[:, layer, head, k], [2.5, 97.5])
            assert (one.value, one.low, one.high) == pytest.approx((mean[k], low, high), rel=1e-9)
            (one,) = select(records, metric=f"kl.share.{term}", **place)
            shares = drawn[:, layer, head, k] / drawn[:, layer, head].sum(-1)
            low, high = np.percentile(shares, [2.5, 97.5])
            assert (one.value, one.low, one.high) == pytest.approx((mean[k] / mean.sum(), low, high), rel=1e-9)
        (one,) = select(records, metric="head.label", **place)

        def word(row):
            return next((t for k, t in enumerate(reader.names) if row[k] / row.sum() >= 0.5), "several")

        same = np.mean([word(row) == word(mean) for row in drawn[:, layer, head]])
        assert (one.part, one.value) == (word(mean), pytest.approx(same))
    shares = select(records, metric="heads.share")
    assert {r.part for r in shares} == {*reader.names, "several"} and all(r.n == 4 for r in shares)
    assert sum(r.value for r in shares) == pytest.approx(1.0)
    assert all(r.low <= r.value <= r.high for r in shares)


def test_a_label_that_few_documents_decide_is_unstable():
    kl = np.zeros((50, 1, 2, 3))
    kl[:, 0, 0] = [0.9, 0.05, 0.05]
    kl[:25, 0, 1] = [1.02, 0.0, 0.0]
    kl[25:, 0, 1] = [0.0, 1.0, 0.0]
    records = taxonomy(kl).records(RecordContext("m", 0, "s"))
    sure, unsure = select(records, metric="head.label")
    assert sure.part == unsure.part == "absolute"
    assert sure.value == 1.0 and 0.4 < unsure.value < 0.75
    (share,) = select(records, metric="heads.share", part="absolute")
    assert (share.value, share.low, share.high) == (1.0, 0.5, 1.0)


def test_a_head_is_labelled_by_its_majority_term():
    """Without a majority the label is the number of terms; a sum near 0 gives no shares."""
    shares = term_shares(np.array([[2.0, 1, 1], [1, 1, 1], [0, 0, 3], [0, 0, 1e-10], [0, 0, 0]]))
    assert head_labels(shares).tolist() == [0, 3, 2, 3, 3]
    assert np.isnan(shares[3:]).all() and shares[0].tolist() == [0.5, 0.25, 0.25]


def test_a_head_that_nothing_drives_has_no_shares():
    kl = np.zeros((5, 1, 2, 3))
    kl[:, 0, 1] = [1.0, 0, 0]
    records = taxonomy(kl).records(RecordContext("m", 0, "s"))
    assert not [r for r in records if r.metric.startswith("kl.share") and r.head == 0]
    assert [r.part for r in select(records, metric="head.label")] == ["several", "absolute"]
    assert [r.value for r in select(records, metric="kl.absolute")] == [0.0, 1.0]
    assert not any(math.isnan(r.value) for r in records)


def test_one_document_has_no_intervals():
    model = build("rp")
    reader = HeadTaxonomy(model)
    given = {k: v[:1] for k, v in inputs("plain").items()}
    read(model, documents(given), [reader])
    records = reader.records(RecordContext("m", 0, "s"))
    assert all(r.low is None and r.high is None for r in records)
    assert {r.metric for r in records} == {
        "kl.semantic",
        "kl.relative",
        "kl.share.semantic",
        "kl.share.relative",
        "head.label",
        "heads.share",
    }
    assert all(r.value == 1.0 for r in select(records, metric="head.label"))


def test_a_document_without_words_is_left_out():
    model = build("dstg")
    given = inputs("plain")
    ids = given["input_ids"].clone()
    ids[0] = torch.tensor([2, 3, 3, 3, 3, 3, 3])
    reader = HeadTaxonomy(model)
    alone = HeadTaxonomy(model)
    read(model, documents({"input_ids": ids}), [reader])
    read(model, documents({"input_ids": ids[1:]}), [alone])
    assert np.isnan(reader.kl[0]).all()
    mean = {
        (r.metric, r.layer, r.head): r.value
        for r in alone.records(RecordContext("m", 0, "s"))
        if r.metric.startswith("kl.")
    }
    for record in reader.records(RecordContext("m", 0, "s")):
        if record.metric.startswith("kl."):
            assert (
                record.value == pytest.approx(mean[record.metric, record.layer, record.head], rel=1e-12)
                and record.n == 1
            )
    empty = HeadTaxonomy(model)
    read(model, documents({"input_ids": ids[:1]}), [empty])
    with pytest.raises(ValueError, match="No window has a regular token"):
        empty.records(RecordContext("m", 0, "s"))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("rope", {}, "rope has one term, semantic: rotation is inside the product"),
        ("ap", {}, "ap has one term, mixed: positions are added to the words"),
        ("bert-a", {}, "bert-a has one term, mixed"),
        ("nope", {}, "nope has one term, semantic: nothing of position"),
    ],
)
def test_single_term_models_are_refused(name, fields, message):
    """A model with one term is refused with the reason."""
    model = build(name, **fields)
    assert len(term_names(model)) == 1
    with pytest.raises(ValueError, match=message):
        separable_terms(model)
    with pytest.raises(ValueError, match=message):
        HeadTaxonomy(model)


def test_every_scheme_names_its_terms():
    """Terms are named in the order of their sum, and reading them leaves the model's mode."""
    assert separable_terms(build("dstg")) == ["absolute", "semantic", "relative"]
    assert set(separable_terms(ww.Encoder(config("split")))) == {
        "absolute",
        "semantic",
        "absolute_to_semantic",
        "semantic_to_absolute",
    }
    assert separable_terms(build("rope", relative="t5")) == ["semantic", "relative"]
    model = build("dstg").train()
    term_names(model)
    assert model.training


def test_head_taxonomy_refuses_what_it_cannot_read():
    """A module without terms, unknown queries, no window and scores that are not finite are refused."""
    with pytest.raises(ValueError, match="Linear does not say"):
        HeadTaxonomy(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="queries must be one of regular, all; got 'words'"):
        HeadTaxonomy(build("dstg"), queries="words")
    with pytest.raises(ValueError, match="No window has passed"):
        HeadTaxonomy(build("dstg")).records(RecordContext("m", 0, "s"))
    model = build("dstg")
    with torch.no_grad():
        model.encoder.layers[1].attention.relative.special[:] = torch.inf
    with pytest.raises(ValueError, match="block 2 are not finite"):
        read(model, documents(inputs("plain")), [HeadTaxonomy(model)])


def test_head_labels_need_a_term_worth_something():
    """A head is called after a term only where that term is worth something there."""

    def head(number, label, rise, low, seed=0):
        place = {"seed": seed, "layer": 1, "head": number, "part": label}
        found = [Record("s", "dstg", "head.label", 1.0, **place)]
        if rise is not None:
            found.append(Record("s", "dstg", "ablation.remove", rise, low, 2 * rise - (low or 0), **place))
        return found

    records = [
        *head(0, "semantic", 0.03, 0.01),
        *head(1, "semantic", 0.008, -0.001),  # the interval holds 0
        *head(2, "relative", 0.02, None),  # one document: no interval
        *head(3, "several", None, None),  # no single term that could be taken out
        *head(0, "absolute", None, None, seed=1),
    ]
    # A rise in all blocks at once, or of another term in this head, says nothing of the head.
    records.append(Record("s", "dstg", "ablation.remove", 0.2, 0.15, 0.25, seed=0, part="semantic"))
    records.append(Record("s", "dstg", "ablation.remove", 0.2, 0.15, 0.25, seed=0, layer=1, head=1, part="absolute"))
    table = Table(records)
    assert labels(table, "dstg", 0) == {(1, 0): "semantic", (1, 1): NOTHING, (1, 2): NOTHING, (1, 3): "several"}
    assert labels(table, "dstg", 1) == {}  # no head was ablated alone
