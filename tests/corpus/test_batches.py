"""Masked batches as a pure function of (seed, epoch, index): same masks in any batch, right rates, shifts in range."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import whatwhere
from whatwhere.corpus import MaskedBatches, build_windows
from whatwhere.corpus.batches import PositionDraws, in_pieces, times_read

SPECIAL = {0, 1, 2, 3, 4}


def rows(batch):
    """Rows without padding, as hashable tuples."""
    keys = list(batch)
    out = []
    for i in range(len(batch["input_ids"])):
        n = int(batch["attention_mask"][i].sum())
        out.append(tuple(tuple(batch[key][i, :n].tolist()) for key in keys))
    return out


def stream(batches, samples, batch_size, world):
    """Global samples in order, collected from all processes."""
    got = []
    for step in range(samples // batch_size):
        shares = [rows(batches.micro_batch(step, batch_size, rank, world)) for rank in range(world)]
        got += [shares[row % world][row // world] for row in range(batch_size)]
    return got


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**63),
    join=st.sampled_from(["run-on", "none", "isolate"]),
    masking=st.sampled_from(["all", "80-10-10"]),
    world=st.sampled_from([1, 2, 4]),
    per_process=st.sampled_from([1, 2, 8]),
)
def test_a_window_gets_the_same_mask_in_any_batch(windows, seed, join, masking, world, per_process):
    options = {"seed": seed, "masking": masking, "max_positions": 40}
    train = windows(join)["train"]
    alone = stream(MaskedBatches(train, **options), 64, 1, 1)
    assert stream(MaskedBatches(train, **options), 64, world * per_process, world) == alone


@pytest.mark.parametrize("join", ["run-on", "none", "isolate"])
def test_an_epoch_holds_every_window_once(windows, join):
    """An epoch holds every window once and the next masks anew."""
    train = windows(join)["train"]
    batches = MaskedBatches(train, max_positions=32)
    count = len(train)

    def restored(row):
        return tuple(label if label != -100 else token for token, label in zip(row[0], row[1], strict=True))

    both = stream(batches, 2 * count, 1, 1)
    expected = sorted(tuple(w.input_ids.tolist()) for w in train)
    assert sorted(map(restored, both[:count])) == sorted(map(restored, both[count:])) == expected
    assert [restored(r) for r in both[:count]] != [restored(r) for r in both[count:]]
    assert {r[1] for r in both[:count]} != {r[1] for r in both[count:]}


@given(st.integers(0, 2**40), st.integers(0, 50))
def test_permutations_are_permutations(windows, seed, epoch):
    batches = MaskedBatches(windows()["train"], seed=seed, max_positions=32)
    order = batches.permutation(epoch)
    assert np.array_equal(np.sort(order), np.arange(len(batches)))
    assert np.array_equal(order, MaskedBatches(windows()["train"], seed=seed, max_positions=32).permutation(epoch))


@pytest.mark.parametrize("masking", ["all", "80-10-10"])
def test_special_tokens_are_never_masked(windows, masking):
    """Special tokens are never masked and the rest is kept."""
    train = windows()["train"]
    for i, batch in enumerate(MaskedBatches(train, masking=masking, mask_rate=0.5, max_positions=32).in_order(1)):
        original = torch.from_numpy(train[i].input_ids)
        ids = batch["input_ids"][0]
        labels = batch["labels"][0]
        masked = labels != -100
        assert torch.equal(labels[masked], original[masked])
        assert torch.equal(ids[~masked], original[~masked])
        assert not set(labels[masked].tolist()) & SPECIAL
        assert not set(ids[masked].tolist()) & (SPECIAL - {4})
        if masking == "all":
            assert (ids[masked] == 4).all()


def test_unknown_words_are_never_masked(list_source, tokenizer, tmp_path):
    w = build_windows(list_source(["@ alpha @ @ beta @"]), tokenizer, tmp_path / "w", progress=False)
    assert (w["train"][0].input_ids == 1).sum() == 4
    for seed in range(20):
        labels = next(MaskedBatches(w["train"], seed=seed, mask_rate=0.9).in_order(1))["labels"]
        assert not (labels == 1).any() and (labels != -100).any()


@pytest.mark.parametrize("rate", [0.15, 0.2, 0.4])
def test_the_rate_is_right_in_the_mean(windows, rate):
    train = windows()["train"]
    masked = 0
    regular = 0
    for seed in range(10):
        for batch in MaskedBatches(train, seed=seed, mask_rate=rate, max_positions=32).in_order(64):
            masked += int((batch["labels"] != -100).sum())
    regular = 10 * sum(int((w.segments >= 0).sum()) for w in train)
    # 60,000 draws: five standard deviations are below 0.01; the one token that every window gets adds less than 0.001.
    assert masked / regular == pytest.approx(rate, abs=0.01)


def test_80_10_10_masks_swaps_and_keeps_its_shares(windows):
    """Of the tokens to predict, 80 % are masked, 10 % swapped and 10 % kept."""
    kept = 0
    swapped = 0
    hidden = 0
    for seed in range(20):
        for batch in MaskedBatches(
            windows()["train"], seed=seed, masking="80-10-10", mask_rate=0.5, max_positions=32
        ).in_order(64):
            at = batch["labels"] != -100
            ids = batch["input_ids"][at]
            labels = batch["labels"][at]
            hidden += int((ids == 4).sum())
            kept += int((ids == labels).sum())
            swapped += int(((ids != labels) & (ids != 4)).sum())
    total = kept + swapped + hidden
    assert [hidden / total, kept / total, swapped / total] == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def test_both_maskings_and_shifts_choose_the_same_tokens(windows):
    train = windows()["train"]
    reference = MaskedBatches(train, max_positions=50)
    for change in ({"masking": "80-10-10"}, {"shift": False}, {"max_positions": 32}):
        other = MaskedBatches(train, **{"max_positions": 50, **change})
        assert torch.equal(reference.micro_batch(3, 16)["labels"], other.micro_batch(3, 16)["labels"])


def test_every_window_has_a_target(list_source, tokenizer, tmp_path):
    w = build_windows(
        list_source(["alpha", "beta", "gamma"]), tokenizer, tmp_path / "w", join="none", held_out=0, progress=False
    )
    for seed in range(30):
        batch = next(MaskedBatches(w["train"], seed=seed, mask_rate=0.01).in_order(3))
        assert ((batch["labels"] != -100).sum(1) == 1).all()


@pytest.mark.parametrize("join", ["run-on", "none"])
def test_shifts_cover_zero_to_room_and_nothing_else(windows, join):
    train = windows(join)["train"]
    seen: dict[int, set[int]] = {}
    for seed in range(40):
        for row in stream(MaskedBatches(train, seed=seed, max_positions=36), 64, 16, 1):
            positions = row[3]
            n = len(positions)
            assert positions == tuple(range(positions[0], positions[0] + n)) and positions[-1] < 36
            seen.setdefault(n, set()).add(positions[0])
    assert seen[32] == {0, 1, 2, 3, 4}


def test_windows_without_room_are_not_shifted(windows):
    """Full windows begin at position 0 where the table has no room, or where `shift` is off."""
    train = windows()["train"]
    for options in ({"max_positions": 32}, {"max_positions": 99, "shift": False}):
        batch = MaskedBatches(train, **options).micro_batch(0, 16)
        full = batch["attention_mask"].sum(1) == 32
        assert full.sum() > 10 and (batch["position_ids"][full] == torch.arange(32)).all()


def test_isolated_documents_shift_each_on_its_own(windows):
    batches = MaskedBatches(windows("isolate", 64)["train"], max_positions=70)
    different = 0
    for step in range(8):
        batch = batches.micro_batch(step, 16)
        for i in range(16):
            documents = batch["document_ids"][i]
            firsts = []
            for d in range(int(documents.max()) + 1):
                positions = batch["position_ids"][i][documents == d]
                firsts.append(int(positions[0]))
                assert torch.equal(positions - positions[0], torch.arange(len(positions))) and positions[-1] < 70
            different += len(set(firsts)) > 1
            padding = batch["attention_mask"][i] == 0
            assert (documents[padding] == -1).all()
    assert different > 20


@pytest.mark.parametrize("join", ["none", "isolate"])
def test_random_positions_ascend_and_reach_everywhere(windows, join):
    """Random positions are in order without repetition and reach everywhere."""
    train = windows(join)["train"]
    seen = set()
    same = stream(MaskedBatches(train, max_positions=80), 64, 16, 1)
    for seed in range(10):
        for row in stream(MaskedBatches(train, seed=seed, max_positions=80, subset=True), 64, 16, 1):
            documents = row[4] if join == "isolate" else [0] * len(row[3])
            for d in set(documents):
                positions = [p for p, each in zip(row[3], documents, strict=True) if each == d]
                assert sorted(set(positions)) == positions and positions[-1] < 80
            seen |= set(row[3])
    assert seen == set(range(80))
    spread = stream(MaskedBatches(train, max_positions=80, subset=True), 64, 16, 1)
    assert [row[:3] for row in spread] == [row[:3] for row in same]  # the same tokens, masked alike


@pytest.mark.parametrize("join", ["none", "isolate", "run-on"])
def test_shape_shifts_each_text_from_zero_to_k(windows, join):
    """SHAPE adds one whole number from 0 to K to a text, every number alike often; the tokens are as without it."""
    train = windows(join)["train"]
    options = {"max_positions": 40, "seed": 3}
    shape = MaskedBatches(train, **options, draws=PositionDraws("shape", 3.0, 0.0, 1.0))
    plain = MaskedBatches(train, **options, shift=False)
    found = []
    for step in range(12):
        drawn = shape.micro_batch(step, 16)
        counted = plain.micro_batch(step, 16)
        assert drawn["position_ids"].dtype == torch.float32
        assert all(torch.equal(drawn[key], counted[key]) for key in counted if key != "position_ids")
        again = MaskedBatches(train, **options, draws=shape.draws).micro_batch(step, 16)
        assert torch.equal(again["position_ids"], drawn["position_ids"])  # by seed and step alone, so that runs resume
        apart = (drawn["position_ids"] - counted["position_ids"])[counted["attention_mask"] == 1]
        documents = counted.get("document_ids", torch.arange(16)[:, None].expand_as(counted["labels"]))
        rows = torch.arange(16)[:, None].expand_as(documents)
        for row, document in {*zip(rows.flatten().tolist(), documents.flatten().tolist(), strict=True)}:
            inside = (rows == row) & (documents == document) & (counted["attention_mask"] == 1)
            shifts = (drawn["position_ids"] - counted["position_ids"])[inside].unique().tolist()
            assert len(shifts) <= 1
            found += shifts
        assert set(apart.tolist()) <= {0.0, 1.0, 2.0, 3.0}
    counts = np.bincount(np.array(found, np.int64), minlength=4)
    assert len(counts) == 4 and counts.min() > 0.6 * counts.mean()


def test_cape_is_its_equation(windows):
    """CAPE moves by Δ, each token by ε and all by the factor λ: each draw in its range, Δ and λ one for a text."""
    train = windows("none")["train"]

    def drawn(shift, local, scale):
        draws = PositionDraws("cape", shift, local, scale)
        batches = MaskedBatches(train, max_positions=40, draws=draws)
        for batch in (batches.micro_batch(step, 16) for step in range(8)):
            for positions, mask in zip(batch["position_ids"], batch["attention_mask"].bool(), strict=True):
                yield positions[mask].double()

    offsets = []
    factors = []
    moves = []
    for p in drawn(5.0, 0.0, 1.5):  # λ (i + Δ)
        factor = (p[-1] - p[0]) / (len(p) - 1)
        torch.testing.assert_close(p, p[0] + factor * torch.arange(len(p)), rtol=0, atol=5e-5)  # they are float32
        factors.append(float(factor.log() / np.log(1.5)))
        offsets.append(float(p[0] / factor / 5.0))
    for p in drawn(0.0, 0.5, 1.0):  # i + ε
        moves += (2 * (p - torch.arange(len(p)))).tolist()
    for found in (offsets, factors, moves):  # uniform in ± 1
        assert -1.001 <= min(found) < -0.9 and 0.9 < max(found) <= 1.001
        assert abs(np.mean(found)) < 0.2 and abs(np.mean(np.square(found)) - 1 / 3) < 0.08


@pytest.mark.parametrize("join", ["none", "isolate"])
@pytest.mark.parametrize("n", [5, 8, 31])
def test_pieces_are_the_windows_cut(windows, join, n):
    batches = MaskedBatches(windows(join)["train"], max_positions=32)
    whole = batches.micro_batch(3, 16)
    pieces = in_pieces(whole, n, batches.windows.special_ids)
    at = 0
    for row in range(16):
        tokens = int(whole["attention_mask"][row].sum())
        for begin in range(0, whole["input_ids"].shape[1], n):
            size = min(n, tokens - begin)
            if size < 3:
                continue
            inner = slice(begin + 1, begin + size - 1)
            for key, rows in whole.items():
                assert pieces[key].shape[1] == n
                assert torch.equal(pieces[key][at, 1 : size - 1], rows[row, inner])
            assert pieces["input_ids"][at, 0] == 2 and pieces["input_ids"][at, size - 1] == 3
            assert (pieces["labels"][at, [0, size - 1]] == -100).all()
            assert pieces["attention_mask"][at].tolist() == [1] * size + [0] * (n - size)
            at += 1
    assert at == len(pieces["input_ids"]) >= 16


def test_padding_is_on_the_right(windows):
    batch = next(MaskedBatches(windows("none")["train"], max_positions=32).in_order(16))
    n = batch["attention_mask"].sum(1)
    assert n.min() < n.max() == batch["input_ids"].shape[1]
    for i in range(16):
        padded = torch.arange(int(n.max())) >= n[i]
        assert torch.equal(batch["attention_mask"][i], (~padded).long())
        assert (batch["input_ids"][i][padded] == 0).all() and (batch["labels"][i][padded] == -100).all()
        assert (batch["position_ids"][i][padded] == 0).all()
    assert all(t.dtype == torch.int64 for t in batch.values())
    assert "document_ids" not in batch


def test_in_order_keeps_the_order_and_the_limit(windows):
    held_out = windows()["held_out"]
    batches = MaskedBatches(held_out, max_positions=32)
    sizes = [len(b["input_ids"]) for b in batches.in_order(4, limit=6)]
    assert sizes == [4, 2]
    everything = [row for b in batches.in_order(4) for row in rows(b)]
    assert len(everything) == len(held_out)
    assert everything == [row for b in batches.in_order(7) for row in rows(b)]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"mask_rate": 0.0}, "mask_rate=0.0"),
        ({"mask_rate": 1.0}, "mask_rate=1.0"),
        ({"masking": "some"}, "masking='some' is unknown. Give one of all, 80-10-10"),
        ({"max_positions": 31}, "Windows of 32 tokens, but the position table has 31 rows"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_settings_out_of_range_are_refused(windows, options, wanted):
    with pytest.raises(ValueError, match=wanted):
        MaskedBatches(windows()["train"], **options)


def test_an_empty_split_is_an_error(list_source, tokenizer, tmp_path):
    w = build_windows(list_source(["alpha"]), tokenizer, tmp_path / "w", progress=False)
    with pytest.raises(ValueError, match="'held_out' has no windows"):
        MaskedBatches(w["held_out"])


def test_a_batch_that_processes_cannot_share_is_an_error(windows):
    with pytest.raises(ValueError, match="multiple of the number of processes. Give a multiple of 2"):
        MaskedBatches(windows()["train"]).micro_batch(0, 3, 0, 2)


def test_one_place_says_how_often_windows_are_read():
    """A training, a study and a model's card repeated the bound; once or less is not worth a word."""
    assert times_read(1.5) == "read 1.5 times" and times_read(12.345) == "read 12.3 times"
    assert times_read(1.004) == times_read(0.3) == times_read(0) == ""
    files = (Path(whatwhere.__file__).parent).rglob("*.py")
    assert [path.name for path in files if "1.005" in path.read_text(encoding="utf-8")] == ["batches.py"]
