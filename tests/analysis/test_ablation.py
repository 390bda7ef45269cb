"""Ablations against models whose weights were edited by hand and against loops; masks, what stays as it is, and bad
input."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from encoder_models import VOCAB, build
from scipy import stats

import whatwhere as ww
from whatwhere.analysis import ablation
from whatwhere.analysis.ablation import ablation_records, document_loss_records, masked, permutations
from whatwhere.analysis.passes import ChosenWindows
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select

N = 12


def documents(count=6, kind="plain", seed=0):
    """Random windows of 12 tokens: [CLS] ... [SEP] ... [SEP]; `padded` at the end, or `packed` of two documents."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCAB, (count, N))
    ids[:, 0] = 2
    ids[:, 5] = 3
    ids[:, -1] = 3
    positions = np.tile(np.arange(N), (count, 1))
    numbers = None
    mask = None
    if kind == "packed":
        ids[:, 6] = 2
        numbers = np.tile(np.repeat([0, 1], 6), (count, 1))
        positions = np.tile(np.tile(np.arange(6), 2), (count, 1))
    if kind == "padded":
        mask = (np.arange(N) < rng.integers(7, N + 1, (count, 1))).astype(np.int64)
        ids = np.where(mask, ids, 0)
    regular = (ids != 2) & (ids != 3) & (ids != 0)
    return ChosenWindows(ids, positions, numbers, regular, {}, mask)


def loss_of(model, chosen):
    """Loss of each document by the model's own forward pass, one document at a time."""
    ids, labels = masked(chosen, 0.2, model.config.mask_token_id)
    found = []
    with torch.no_grad():
        for i in range(len(chosen)):
            optional = {"document_ids": chosen.document_ids, "attention_mask": chosen.attention_mask}
            given = {key: torch.from_numpy(a[i : i + 1]) for key, a in optional.items() if a is not None}
            out = model(
                torch.from_numpy(ids[i : i + 1]),
                position_ids=torch.from_numpy(chosen.position_ids[i : i + 1]),
                labels=torch.from_numpy(labels[i : i + 1]),
                **given,
            )
            found.append(float(out.loss))
    return np.array(found)


def run(model, chosen, parts=None, layers=None, heads=None, **options):
    """Records of all ablations, of some parts, layers and heads alone where they are given."""
    wanted = {"part": parts, "layer": layers, "head": heads}
    return [
        r
        for r in ablation_records(model, chosen, RecordContext("m", 1, "s"), **options)
        if all(w is None or getattr(r, column) in (None, *w) for column, w in wanted.items())
    ]


def one(records, kind, part, layer=None, head=None):
    (found,) = select(records, metric=f"ablation.{kind}", part=part, layer=layer, head=head)
    return found


@pytest.mark.parametrize("kind", ["plain", "padded", "packed"])
@pytest.mark.parametrize("name", ["dstg", "tupe-r", "split", "rope", "ap"])
def test_the_loss_is_the_models_own(name, kind):
    model = build(name)
    chosen = documents(kind=kind)
    records = run(model, chosen, kinds=["remove"], by=["all"], batch_size=4)
    (loss,) = select(records, metric="ablation.loss", index=None)
    each = [r for r in records if r.metric == "ablation.loss" and r.index is not None]
    np.testing.assert_allclose([r.value for r in each], loss_of(model, chosen), rtol=1e-10)
    assert [r.index for r in each] == list(range(6))
    assert (loss.unit, loss.n, loss.seed, loss.layer, loss.part) == ("nats", 6, 1, None, None)
    assert loss.value == pytest.approx(loss_of(model, chosen).mean(), rel=1e-10)
    assert loss.low < loss.value < loss.high
    alone = document_loss_records(model, chosen, RecordContext("m", 1, "s"), batch_size=3)  # the same without ablations
    (mean,) = select(alone, metric="loss.document", index=None)
    assert (mean.value, mean.low, mean.high) == pytest.approx((loss.value, loss.low, loss.high), rel=1e-9)
    np.testing.assert_allclose([r.value for r in alone if r.index is not None], [r.value for r in each], rtol=1e-9)


def test_documents_are_paired_whole_and_count_once():
    """Every window was a document: of six windows of three documents the intervals were those of six."""
    model = build("dstg")
    chosen = documents()
    numbers = np.array([5, 5, 5, 5, 8, 9])
    joined = replace(chosen, document_numbers=numbers)
    each = loss_of(model, chosen)
    wanted = [each[numbers == d].mean() for d in (5, 8, 9)]
    records = document_loss_records(model, joined, RecordContext("m", 1, "s"))
    (mean,) = select(records, metric="loss.document", index=None)
    assert [r.value for r in records if r.index is not None] == pytest.approx(wanted, rel=1e-9)
    assert mean.value == pytest.approx(np.mean(wanted), rel=1e-9) and mean.n == 3
    (removed,) = [r for r in run(model, joined, ["absolute"], kinds=["remove"], by=["all"]) if r.part == "absolute"]
    assert removed.n == 3
    alone = document_loss_records(model, replace(chosen, document_numbers=np.zeros(6, int)), RecordContext("m", 1, "s"))
    assert [(r.index, r.low, r.n) for r in alone] == [(None, None, 1)]


def zero_relative(model, layers=(0, 1)):
    with torch.no_grad():
        for layer in layers:
            for parameter in model.encoder.layers[layer].attention.relative.parameters():
                parameter[:] = 0


def zero_relative_shared(model):
    with torch.no_grad():
        for parameter in model.encoder.relative.parameters():
            parameter[:] = 0


def zero_absolute_rows(model, layer=1, head=1):
    """The rows of a head's query in the projection of the position stream."""
    d = model.config.d_head
    with torch.no_grad():
        model.encoder.layers[layer].attention.qkv[0].weight[head * d : (head + 1) * d] = 0


def zero_untied(model):
    with torch.no_grad():
        model.encoder.untied.query.weight[:] = 0


def zero_mixed(model):
    with torch.no_grad():
        model.encoder.layers[0].attention.qkv[0].weight[: model.config.d_head * 2] = 0


def zero_table(model):
    with torch.no_grad():
        for parameter in model.encoder.position_embeddings.parameters():
            parameter[:] = 0


def zero_words(model):
    with torch.no_grad():
        model.encoder.word_embeddings.weight[:] = 0


@pytest.mark.parametrize(
    ("name", "edit", "part", "layer", "head"),
    [
        ("dstg", zero_relative, "relative", None, None),
        ("dstg", lambda model: zero_relative(model, [1]), "relative", 2, None),
        ("rp", zero_relative, "relative", None, None),
        ("tupe-r", zero_relative_shared, "relative", None, None),
        ("tupe-r", zero_untied, "absolute", None, None),
        ("dstg", zero_absolute_rows, "absolute", 2, 1),
        ("ap", zero_mixed, "mixed", 1, None),
        ("rope", zero_mixed, "semantic", 1, None),
        ("nope", zero_mixed, "semantic", 1, None),
        ("dstg", zero_table, "stream.position", None, None),
        ("dstg", zero_table, "stream.position", 1, None),
        ("dstg", zero_words, "stream.semantic", None, None),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_removing_is_editing_the_weights(name, edit, part, layer, head, kind):
    model = build(name, tie_word_embeddings=False)
    edited = build(name, tie_word_embeddings=False)
    chosen = documents(kind=kind)
    edit(edited)
    rises = loss_of(edited, chosen) - loss_of(model, chosen)
    found = one(
        run(model, chosen, kinds=["remove"], by=["head" if head else "layer" if layer else "all"], batch_size=4),
        "remove",
        part,
        layer,
        head,
    )
    assert abs(rises).max() > 1e-3
    assert found.value == pytest.approx(rises.mean(), rel=1e-9) and found.n == 6 and found.unit == "nats"
    bound = stats.bootstrap((rises,), np.mean, n_resamples=20_000, method="percentile", rng=0).confidence_interval
    assert (found.low, found.high) == pytest.approx((bound.low, bound.high), abs=0.1 * (bound.high - bound.low))


def with_terms(model, chosen, edit):
    """Loss of each document with the terms of block 1 edited, all documents in one batch."""
    ids, labels = masked(chosen, 0.2, model.config.mask_token_id)
    given = {
        "position_ids": chosen.position_ids,
        "document_ids": chosen.document_ids,
        "attention_mask": chosen.attention_mask,
    }
    given = {key: torch.from_numpy(a) for key, a in given.items() if a is not None}

    def see(block, terms, allowed):
        return edit({k: t.clone() for k, t in terms.items()}) if block == 0 else terms

    with torch.no_grad(), model.inspect_terms(see):
        logits = model(torch.from_numpy(ids), **given).logits
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), torch.from_numpy(labels), reduction="none")
    return (each.sum(1) / torch.from_numpy(labels != -100).sum(1)).numpy()


@pytest.mark.parametrize("kind", ["plain", "padded", "packed"])
@pytest.mark.parametrize("head", [None, 1])
def test_means_are_over_documents_that_see_the_key(kind, head):
    """Mean is over the documents in which a query may look at the key."""
    model = build("dstg")
    chosen = documents(kind=kind)
    real = np.ones_like(chosen.input_ids) if chosen.attention_mask is None else chosen.attention_mask
    numbers = np.zeros_like(chosen.input_ids) if chosen.document_ids is None else chosen.document_ids

    def edit(terms):
        new = terms["semantic"].clone()
        for h in range(2) if head is None else [head]:
            for i in range(N):
                for j in range(N):
                    rows = [
                        e for e in range(len(chosen)) if real[e, i] and real[e, j] and numbers[e, i] == numbers[e, j]
                    ]
                    for e in rows:
                        new[e, h, i, j] = sum(terms["semantic"][r, h, i, j] for r in rows) / len(rows)
        return {**terms, "semantic": new}

    records = run(model, chosen, ["semantic", "relative"], [1], None if head is None else [head], kinds=["mean"])
    rise = with_terms(model, chosen, edit) - loss_of(model, chosen)
    assert one(records, "mean", "semantic", 1, head).value == pytest.approx(rise.mean(), rel=1e-9)
    assert abs(rise).max() > 1e-4
    if kind != "packed":
        assert one(records, "mean", "relative", 1, head).value == 0.0  # the same for all documents


@pytest.mark.parametrize("kind", ["plain", "padded", "packed"])
def test_shuffle_permutes_rows_and_columns_of_the_words(kind):
    model = build("dstg")
    chosen = documents(kind=kind)
    order = permutations(chosen)

    def edit(terms):
        new = {k: t.expand(len(chosen), -1, -1, -1).clone() for k, t in terms.items()}
        for e in range(len(chosen)):
            for i in range(N):
                for j in range(N):
                    new["relative"][e, 1, i, j] = terms["relative"][
                        e if len(terms["relative"]) > 1 else 0, 1, order[e, i], order[e, j]
                    ]
        return new

    rise = with_terms(model, chosen, edit) - loss_of(model, chosen)
    found = one(
        run(model, chosen, ["relative"], [1], [1], kinds=["shuffle"], batch_size=4), "shuffle", "relative", 1, 1
    )
    assert found.value == pytest.approx(rise.mean(), rel=1e-9) and abs(rise).max() > 1e-4


@pytest.mark.parametrize("kind", ["remove", "mean", "shuffle"])
@pytest.mark.parametrize("name", ["dstg", "split"])
def test_streams_are_changed_where_they_enter_a_block(name, kind):
    model = build(name)
    chosen = documents(kind="padded")
    regular = torch.from_numpy(chosen.regular)
    order = permutations(chosen)

    def change(module, given):
        position, semantic = given[0]
        new = semantic.clone()
        if kind == "remove":
            new[:] = 0
        if kind == "mean":
            new[:] = semantic[regular].mean(0)
        if kind == "shuffle":
            for e in range(len(chosen)):
                for i in range(N):
                    new[e, i] = semantic[e, order[e, i]]
        return (position, new), *given[1:]

    before = with_terms(model, chosen, lambda terms: terms)
    handle = model.encoder.layers[1].register_forward_pre_hook(change)
    after = with_terms(model, chosen, lambda terms: terms)
    handle.remove()
    records = run(model, chosen, ["stream.semantic"], kinds=[kind])
    assert one(records, kind, "stream.semantic", 2).value == pytest.approx((after - before).mean(), rel=1e-9)
    assert one(records, kind, "stream.semantic", 1).value == one(records, kind, "stream.semantic").value
    assert not [r for r in records if r.head is not None]


@pytest.mark.parametrize("kind", ["plain", "padded", "packed"])
def test_removing_terms_of_zero_changes_no_loss(kind):
    model = build("dstg").float()
    zero_relative(model)
    zero_table(model)
    records = run(model, documents(kind=kind), ["relative", "absolute", "stream.position"], batch_size=3)
    for record in records:
        if (
            record.metric != "ablation.loss"
            and (record.part != "absolute" or record.layer == 1)
            and record.part != "stream.position"
        ):
            assert (record.value, record.low, record.high) == (0.0, 0.0, 0.0), record
    for what in ("remove", "mean", "shuffle"):
        assert one(records, what, "stream.position", 1).value == 0.0


def test_other_heads_stay_as_they_are():
    terms = {"semantic": torch.randn(3, 4, N, N), "relative": torch.randn(1, 4, N, N)}
    chosen = documents(3)
    batch = ablation._Batch(build("dstg"), chosen, np.arange(3), *masked(chosen, 0.2, 4), permutations(chosen))
    for kind in ablation.KINDS:
        for part, term in terms.items():
            before = term.clone()
            new = batch.changed(term, ablation._Ablation(kind, part, 1, 2))
            others = [0, 1, 3]
            assert torch.equal(new[:, others], term[:, others].expand(len(new), -1, -1, -1)) and torch.equal(
                term, before
            )
            assert torch.equal(new[:, 2], term[:, 2].expand(len(new), -1, -1)) == (
                kind == "mean" and part == "relative"
            )


@pytest.mark.parametrize("name", ["dstg", "rp", "rope", "ap", "nope", "tupe-r", "bert-ad", "split", "alibi"])
def test_every_part_is_ablated_everywhere(name):
    model = build(name).train()
    done = []
    records = run(model, documents(4), progress=lambda i, total: done.append((i, total)))
    assert model.training
    terms = list(model.attention_terms(input_ids=torch.tensor([[2, 3]])))
    streams = ["stream.position", "stream.semantic"] if model.config.position_size else []
    expected = {
        (f"ablation.{kind}", part, layer, head)
        for kind in ablation.KINDS
        for part in [*terms, *streams]
        for layer, head in [
            (None, None),
            (1, None),
            (2, None),
            *((l, h) for l in (1, 2) for h in (0, 1) if part in terms),
        ]
    }
    records = [r for r in records if r.index is None]
    assert {(r.metric, r.part, r.layer, r.head) for r in records[1:]} == expected and len(records) == len(expected) + 1
    assert done == [(i + 1, len(expected)) for i in range(len(expected))]
    assert all(np.isfinite([r.value, r.low, r.high]).all() and r.low <= r.value <= r.high and r.n == 4 for r in records)


def test_batches_change_nothing_but_means():
    model = build("dstg")
    chosen = documents(7)
    small, large = (run(model, chosen, kinds=["remove", "shuffle"], batch_size=size) for size in (2, 8))
    assert [r.value for r in small] == pytest.approx([r.value for r in large], rel=1e-9, abs=1e-12)


def test_masks_are_a_fixed_fifth_of_the_words():
    chosen = documents(50)
    ids, labels = masked(chosen, 0.2, 4)
    hidden = labels != -100
    assert (hidden.sum(1) == round(0.2 * 9)).all() and not hidden[~chosen.regular].any()
    assert (ids[hidden] == 4).all() and (labels[hidden] == chosen.input_ids[hidden]).all()
    assert (ids[~hidden] == chosen.input_ids[~hidden]).all()
    other = documents(50, seed=5)
    np.testing.assert_array_equal(masked(other, 0.2, 4)[1] != -100, hidden)  # other words, same places
    np.testing.assert_array_equal(masked(chosen, 0.2, 4)[0], ids)
    share = hidden[:, chosen.regular[0]].mean(0)
    assert share.min() > 0.05 and share.max() < 0.4  # no place is always or never masked
    assert ((masked(chosen, 0.01, 4)[1] != -100).sum(1) == 1).all()


def test_permutations_move_words_within_their_document():
    chosen = documents(20, "packed")
    order = permutations(chosen)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(N), (20, 1)))
    assert (order == np.arange(N))[~chosen.regular].all() and (order != np.arange(N))[chosen.regular].mean() > 0.5
    assert (np.take_along_axis(chosen.document_ids, order, 1) == chosen.document_ids).all()


def test_documents_without_words_are_left_out():
    model = build("dstg")
    chosen = documents(5)
    chosen.regular[2] = False
    records = run(model, chosen, ["absolute"], kinds=["remove"], by=["all"])
    keep = [0, 1, 3, 4]
    assert (
        all(r.n == 4 for r in records if r.index is None) and [r.index for r in records if r.index is not None] == keep
    )
    assert records[0].value == pytest.approx(loss_of(model, chosen)[keep].mean(), rel=1e-10)
    chosen.regular[:] = False
    with pytest.raises(ValueError, match="No window has a regular token"):
        run(model, chosen, ["absolute"], kinds=["remove"], by=["all"])


def test_one_document_has_no_interval():
    records = run(build("dstg"), documents(1), ["absolute"], kinds=["remove"], by=["all"])
    assert all((r.low, r.high, r.n) == (None, None, 1) for r in records)


def test_a_mean_needs_two_documents():
    with pytest.raises(ValueError, match="needs at least 2 in a batch; got 6 with batch_size=1"):
        run(build("dstg"), documents(), batch_size=1)


def test_a_model_without_a_vocabulary_head_is_refused():
    with pytest.raises(ValueError, match="needs a masked-language model of this package"):
        run(ww.Encoder(build("dstg").config), documents())
