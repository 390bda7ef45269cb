"""The change of states when positions are shifted: nothing where positions are relative, the definition elsewhere."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from encoder_models import VOCAB, build

from whatwhere.analysis.hidden import shift_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select


@pytest.fixture(scope="module")
def held_out():
    rng = np.random.default_rng(0)
    plain = {"position_ids": np.arange(16), "document_ids": np.zeros(16, int), "progress": np.full(16, np.nan)}
    segments = np.array([-1, *[0] * 14, -1])
    return [
        SimpleNamespace(input_ids=np.array([2, *rng.integers(5, VOCAB, 14), 3]), segments=segments, **plain)
        for _ in range(12)
    ]


@pytest.mark.parametrize("name", ["nope", "rp", "rope", "alibi"])
def test_relative_positions_are_not_moved(name, held_out):
    records = shift_records(build(name), held_out, RecordContext(name, 0, "s"), windows=10)
    assert {r.part for r in records} == {"all"}
    assert max(r.value for r in records) < 1e-12


def test_segments_have_no_shift(held_out):
    """`bipe`, which never reads the shifted `position_ids`, had a change of 0 as a finding."""
    assert shift_records(build("bipe"), held_out, RecordContext("bipe", 0, "s"), windows=10) == []


@pytest.mark.parametrize("name", ["dstg", "split"])
def test_shift_leaves_the_semantic_input_in_place(name, held_out):
    """Streams are measured apart and the semantic input never moves."""
    records = shift_records(build(name), held_out, RecordContext(name, 0, "s"), windows=10)
    found = {(r.layer, r.part): r for r in records}
    assert found[0, "semantic"].value == 0.0 and found[0, "position"].value > 0.1
    assert found[2, "semantic"].value > 1e-4  # through the attention weights it does move, whatever the notes say
    assert all(r.low <= r.value <= r.high and r.n == 10 for r in records)


def test_shift_is_a_mean_of_relative_changes(held_out):
    """The value is the mean over documents of the relative change over words."""
    model = build("ap")
    record = select(shift_records(model, held_out, RecordContext("ap", 0, "s"), windows=10), layer=2)[0]
    changes = []
    for window in [held_out[i * len(held_out) // 10] for i in range(10)]:
        ids = torch.tensor(window.input_ids[:8])[None]
        h, moved = (
            model.encoder(ids, position_ids=torch.arange(8)[None] + k, output_block_states=True)
            .block_states[2][0, 1:]
            .detach()
            for k in (0, 8)
        )  # [CLS] is left out
        changes.append(float((moved - h).norm() / h.norm()))
    assert record.value == pytest.approx(sum(changes) / 10, rel=1e-10)


def test_windows_of_one_document_are_drawn_together(held_out):
    """Twelve windows, four documents of three alike: an interval over windows is too narrow by a root of three."""

    class Pieces(list):
        def document_numbers(self):
            return np.repeat(np.arange(4), 3)

    alike = [held_out[i // 3] for i in range(12)]
    model = build("ap")
    found = [
        shift_records(model, windows, RecordContext("ap", 0, "s"), windows=12) for windows in (Pieces(alike), alike)
    ]
    for joined, apart in zip(*found, strict=True):
        assert joined.value == apart.value and (joined.n, apart.n) == (4, 12)
        assert joined.high - joined.low > 1.3 * (apart.high - apart.low)
