"""Attention to neighbours by term: against loops over documents, queries and keys in float64, a bias set by hand,
checkpoints of a run."""

import numpy as np
import pytest
import torch
from encoder_models import build
from naive_attention import may_look, naive_weights, terms_of
from small_documents import documents

from whatwhere.analysis.attention_weights import TOTAL
from whatwhere.analysis.course import OFFSETS, REACH, NeighbourWeights, local_records
from whatwhere.analysis.passes import Batch, read
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select
from whatwhere.training.checkpoints import write_checkpoint

WHO = RecordContext("m", 0, "s")


def one(records, metric, **columns):
    (found,) = select(records, metric=metric, **columns)
    return found


def neighbours(chosen, b, i):
    """Regular keys up to eight places from a query that it may look at."""
    near = [j for j in range(max(0, i - REACH), min(chosen.length, i + REACH + 1)) if j != i]
    return [j for j in near if chosen.regular[b, j] and may_look(chosen, b, i, j)]


@pytest.mark.parametrize(
    ("case", "kind"),
    [("dstg", "plain"), ("dstg", "padded"), ("dstg", "packed"), ("rp", "inner"), ("rp", "packed"), ("ap", "padded")],
)
def test_weights_and_shares_are_those_of_the_loops(case, kind):
    model = build(case)
    chosen = documents(4, n=20, **({} if kind == "plain" else {kind: True}))
    reader = NeighbourWeights()
    read(model, chosen, [reader], batch_size=3)
    records = reader.records(WHO)
    weights = naive_weights(terms_of(model, chosen), chosen)
    queries = [np.flatnonzero(row) for row in chosen.regular]
    everyone = range(len(chosen))
    seen = []
    for part, w in weights.items():
        for layer, head in np.ndindex(2, 2):
            here = {"part": part, "layer": layer + 1, "head": head}
            p = w[layer, :, head]
            for offset in OFFSETS:
                allowed = [[i for i in queries[b] if i + offset in (*neighbours(chosen, b, i), i)] for b in everyone]
                means = [np.mean([p[b, i, i + offset] for i in allowed[b]]) for b in everyone if allowed[b]]
                found = one(records, "local.weight", **here, index=offset)
                assert found.value == pytest.approx(np.mean(means), abs=1e-12) and found.low is None
                seen.append(found)
            masses = [
                np.mean([sum(p[b, i, j] for j in neighbours(chosen, b, i)) for i in queries[b]]) for b in everyone
            ]
            found = one(records, "local.share", **here)
            assert (
                found.value == pytest.approx(np.mean(masses), abs=1e-12)
                and found.low <= found.value <= found.high
                and found.n == 4
            )
    assert len(seen) == len(select(records, metric="local.weight"))
    keys = [[[j for j in range(20) if may_look(chosen, b, i, j)] for i in queries[b]] for b in everyone]
    even = [
        np.mean([len(neighbours(chosen, b, i)) / len(k) for i, k in zip(queries[b], keys[b], strict=True)])
        for b in everyone
    ]
    assert one(records, "local.even").value == pytest.approx(np.mean(even), abs=1e-12)


def test_head_summaries_follow_from_single_heads():
    """Means over heads the best head and who leads follow from the heads."""
    model = build("dstg")
    chosen = documents(6, n=12)
    reader = NeighbourWeights()
    read(model, chosen, [reader])
    records = reader.records(WHO)
    whole = {}
    for part in ("semantic", "absolute", "relative", TOTAL):
        heads = {
            (r.layer, r.head): r.value
            for r in select(records, metric="local.share", part=part)
            if r.layer is not None and r.head is not None
        }
        assert len(heads) == 4
        for layer in (1, 2):
            mean = (heads[layer, 0] + heads[layer, 1]) / 2
            assert one(records, "local.share", part=part, layer=layer, head=None).value == pytest.approx(mean)
        whole[part] = one(records, "local.share", part=part, layer=None)
        assert whole[part].value == pytest.approx(np.mean(list(heads.values())))
        best = one(records, "local.best", part=part)
        assert best.value == max(heads.values()) == heads[best.layer, best.head]
    del whole[TOTAL]
    for part, share in whole.items():
        rival = max(r.value for other, r in whole.items() if other != part)
        lead = one(records, "local.lead", part=part, layer=None)
        assert lead.value == pytest.approx(share.value - rival) and lead.low <= lead.value <= lead.high
    assert sum(r.value > 0 for r in select(records, metric="local.lead", layer=None)) == 1
    assert not select(records, metric="local.lead", part=TOTAL)


def test_windows_of_one_document_give_no_interval():
    chosen = documents(4, n=12)
    object.__setattr__(chosen, "document_numbers", np.zeros(4, int))
    reader = NeighbourWeights()
    read(build("dstg"), chosen, [reader])
    records = reader.records(WHO)
    assert all(r.low is None for r in records) and one(records, "local.even").n == 1


def test_bias_to_previous_token_is_measured_there():
    """A bias that puts all weight on the token before is seen there."""
    model = build("rp")
    chosen = documents(3, n=24)
    chosen.regular[:, 1] = False  # the first word has no word before it: neither it nor what looks at it counts
    with torch.no_grad():
        for layer in model.base_model.layers:
            for parameter in layer.attention.parameters():
                if parameter.shape == (8, 2):  # T5's buckets and heads
                    parameter.zero_()
                    parameter[1] = 60.0  # distance -1: bucket 1 of the half that looks back
    reader = NeighbourWeights()
    read(model, chosen, [reader])
    records = reader.records(WHO)
    for layer, head, offset in np.ndindex(2, 2, len(OFFSETS)):
        found = one(records, "local.weight", part="relative", layer=layer + 1, head=head, index=OFFSETS[offset]).value
        assert found == pytest.approx(1.0 if OFFSETS[offset] == -1 else 0.0, abs=1e-12)
    assert one(records, "local.share", part="relative", layer=None).value == pytest.approx(
        20 / 21
    )  # of words 2 ... 22 all but the first
    assert one(records, "local.lead", part="relative", layer=None).value > 0.3


def test_short_documents_have_no_far_offsets():
    reader = NeighbourWeights()
    chosen = documents(2, n=6)
    scores = torch.zeros(1, 3, 6, 6, dtype=torch.float64)
    batch = Batch.of(chosen, np.arange(2), torch.device("cpu"))
    reader.terms(batch, 0, {"relative": scores}, None)
    records = reader.records(WHO)
    assert {r.index for r in select(records, metric="local.weight")} == set(range(-3, 4))
    assert [r.value for r in select(records, metric="local.weight")] == pytest.approx(
        [1 / 6] * 42
    )  # two parts, three heads
    assert one(records, "local.share", part="relative", layer=None).value == pytest.approx(
        one(records, "local.even").value
    )


def test_every_checkpoint_of_a_run_is_read(tmp_path):
    chosen = documents(3, n=12)
    models = {0: build("dstg"), 7: build("dstg")}
    with torch.no_grad():
        for parameter in models[0].parameters():
            parameter.mul_(0.5)
    for step, model in models.items():
        write_checkpoint(tmp_path / "checkpoints", step, model, {}, {"cpu": torch.zeros(1)}, {})
    records = local_records(tmp_path, chosen, WHO)
    (even,) = select(records, metric="local.even")
    assert even.step is None and {r.step for r in records if r is not even} == {0, 7}
    for step, model in models.items():
        reader = NeighbourWeights()
        read(model, chosen, [reader])
        found = [r for r in records if r.step == step]
        expected = [r for r in reader.records(WHO) if r.metric != "local.even"]
        assert [(r.metric, r.part, r.layer, r.head, r.index) for r in found] == [
            (r.metric, r.part, r.layer, r.head, r.index) for r in expected
        ]
        np.testing.assert_allclose([r.value for r in found], [r.value for r in expected], atol=1e-6)


def test_no_checkpoints_and_no_documents_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has no checkpoints"):
        local_records(tmp_path, documents(), WHO)
    with pytest.raises(ValueError, match="No window has passed"):
        NeighbourWeights().records(WHO)
