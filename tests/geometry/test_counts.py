"""Counts by position: against a naive loop, in every form of windows, added up, kept in a file, and bad input."""

import json
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

from whatwhere.geometry import counts as module
from whatwhere.geometry.counts import Counts, Tally, positional_counts

V = 40


def naive(rows, n, special=(), align="start", groups=None, n_groups=1):
    out = np.zeros((n_groups * n, V), np.int64)
    for number, row in enumerate(rows):
        ordinary = [int(i) for i in row if i not in special]
        for place, token in enumerate(ordinary):
            position = place if align == "start" else int(np.floor(place / len(ordinary) * n + 1e-12))
            if position < n:
                out[(0 if groups is None else groups[number]) * n + position, token] += 1
    return out


def ragged(count, longest, seed=0, dtype=np.uint16):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, V, rng.integers(0, longest + 1)).astype(dtype) for _ in range(count)]


def end_to_end(rows):
    return np.concatenate(rows), np.concatenate([[0], np.cumsum([len(r) for r in rows])])


@pytest.fixture(params=[(1 << 20, 1 << 21), (50, 1 << 21), (50, 30)], ids=["one chunk", "many chunks", "in files"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", request.param[0])
    monkeypatch.setattr(module, "_HELD", request.param[1])


@pytest.mark.parametrize("align", ["start", "relative"])
@pytest.mark.parametrize("special", [(), (0, 3, 7)])
@pytest.mark.parametrize("dtype", [np.uint16, np.int64, np.uint32])
def test_counts_are_those_of_a_naive_loop(align, special, dtype, chunk):
    rows = ragged(60, 30, dtype=dtype)
    groups = np.random.default_rng(1).integers(0, 3, len(rows))
    wanted = naive(rows, 12, special, align, groups, 3)
    options = {"special_ids": special, "align": align, "groups": groups, "n_groups": 3}
    for form in (end_to_end(rows), rows, iter(rows)):
        found = positional_counts(form, V, 12, **options)
        assert isinstance(found, csr_array) and found.dtype == np.int64 and found.shape == (36, V)
        assert found.has_canonical_format
        np.testing.assert_array_equal(found.toarray(), wanted)


def test_an_array_of_rows_counts_like_scipy(chunk, tmp_path):
    ids = np.random.default_rng(0).integers(0, V, (50, 16)).astype(np.uint16)
    position = np.broadcast_to(np.arange(16), ids.shape)
    theirs = coo_array((np.ones(ids.size, np.int64), (position.ravel(), ids.ravel())), shape=(16, V)).tocsr()
    np.save(tmp_path / "ids.npy", ids)
    for windows in (ids, np.load(tmp_path / "ids.npy", mmap_mode="r"), np.asfortranarray(ids)):
        ours = positional_counts(windows, V, 16)
        assert (ours != theirs).nnz == 0


def test_many_groups_and_positions_need_wider_keys():
    # 2,000 groups x 1,000 positions x 5,000 ids pass 2**32.
    rows = ragged(20, 30)
    groups = np.arange(20) * 100
    found = positional_counts(rows, 5000, 1000, groups=groups, n_groups=2000)
    assert found.shape == (2_000_000, 5000) and found.sum() == sum(map(len, rows))
    for row, g in zip(rows, groups, strict=True):
        assert (found[g * 1000 : (g + 1) * 1000].toarray()[np.arange(len(row)), row] == 1).all()


@pytest.mark.usefixtures("usual_collections")
def test_sums_in_files_give_the_same_numbers(monkeypatch):
    """Memory is flat and numbers are the same where sums are made in files."""

    # A ten times longer corpus took twice the memory (569 and 1,180 MiB).
    def counted(rows, held):
        monkeypatch.setattr(module, "_CHUNK", 3000)
        monkeypatch.setattr(module, "_HELD", held)
        rng = np.random.default_rng(0)
        tracemalloc.start()
        found = positional_counts((rng.integers(0, 20_000, 50) for _ in range(rows)), 20_000, 50)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, peak

    (_, few) = counted(300, 6000)
    (many, more) = counted(3000, 6000)
    (in_memory, most) = counted(3000, 1 << 21)
    assert more < 1.7 * few and most > 5 * few
    for name in ("data", "indices", "indptr"):
        ours = getattr(many, name)
        theirs = getattr(in_memory, name)
        assert ours.dtype == theirs.dtype and (ours == theirs).all()
    many.data[:] = 0  # as of counts in memory, not an error
    assert many.sum() == 0


def test_counts_go_on_after_a_total(chunk):
    rows = ragged(60, 30)
    tally = Tally(V, 12, (), "start", 1)
    for part in (rows[:20], rows[20:40], rows[40:]):
        tally.add(*end_to_end(part))
        found = tally.total()
    np.testing.assert_array_equal(found.toarray(), naive(rows, 12))


def test_a_sum_in_files_may_be_small_itself(monkeypatch):
    # It was taken for one in memory, as both numbers together were few enough.
    monkeypatch.setattr(module, "_HELD", 30)
    tally = Tally(V, 20, (), "start", 1)
    for length in (20, 20, 10):
        tally.add_counts(positional_counts([np.arange(length)], V, 20))
    np.testing.assert_array_equal(tally.total().diagonal(), [3] * 10 + [2] * 10)


def test_special_tokens_take_no_position():
    # The example of the contract: [CLS] a [SEP] b is a at position 0 and b at position 1.
    found = positional_counts(np.array([[2, 10, 3, 11]]), V, 4, special_ids=(2, 3))
    assert found[0, 10] == found[1, 11] == found.sum() / 2 == 1


def test_relative_positions_spread_a_row_over_all():
    found = positional_counts([np.arange(3)], V, 6, align="relative").toarray()
    assert [found[i].argmax() for i in (0, 2, 4)] == [0, 1, 2] and found.sum() == 3
    long = positional_counts([np.arange(24) // 4], V, 6, align="relative").toarray()
    assert (long.diagonal() == 4).all()


def test_counts_of_parts_add_up():
    rows = ragged(40, 20)
    whole = positional_counts(rows, V, 10)
    assert (positional_counts(rows[:15], V, 10) + positional_counts(rows[15:], V, 10) != whole).nnz == 0


def test_no_rows_give_no_counts():
    for nothing in (
        np.empty((0, 5), np.int64),
        np.empty((3, 0), np.uint16),
        [],
        [[]],
        (np.empty(0, np.uint16), np.zeros(1, np.int64)),
    ):
        assert positional_counts(nothing, V, 4).nnz == 0


@pytest.mark.parametrize(
    ("windows", "options", "wanted"),
    [
        (np.array([[1, V]]), {}, f"Token id {V}, but ids run from 0 to {V - 1}"),
        (np.array([[1, -100]]), {}, "Token id -100"),
        (np.array([1, 2]), {}, r"shape \(2,\)"),
        (np.array([[0.5]]), {}, "whole numbers; got float64"),
        ((np.arange(4), np.array([0, 5])), {}, "starts must rise from 0 to at most 4"),
        ((np.arange(4), np.array([0, 3, 2])), {}, "starts must rise"),
        ([[1]], {"align": "end"}, "align='end' is unknown. Give one of start, relative"),
        ([[1]], {"special_ids": [V]}, f"special_ids has {V}"),
        ([[1]], {"n_groups": 0}, "n_groups=0 is too small. Give 1 or more"),
        ([[1], [2]], {"groups": np.array([0])}, "groups has 1 entries, but there are more rows"),
        ([[1]], {"groups": np.array([0, 0])}, "groups has 2 entries for 1 rows"),
        ([[1]], {"groups": np.array([2]), "n_groups": 2}, "groups run from 2 to 2, but n_groups=2: 0 to 1"),
    ],
)
def test_bad_input_is_one_line(windows, options, wanted):
    with pytest.raises(ValueError, match=wanted) as error:
        positional_counts(windows, V, 4, **options)
    assert "\n" not in str(error.value)


def test_no_positions_is_an_error():
    with pytest.raises(ValueError, match="max_positions=0 is too small. Give 1 or more"):
        positional_counts([[1]], V, 0)


FACTS = {"corpora": [{"name": "a"}], "tokenizer_sha256": "t", "special_ids": [0]}


def made(seed=0, facts=FACTS, **options):
    rows = ragged(30, 12, seed)
    groups = np.arange(30) % 4
    matrix = positional_counts(rows, V, 8, groups=groups, n_groups=4, **options)
    return rows, Counts(matrix, 8, 4, np.bincount(groups, minlength=4), options.get("align", "start"), facts)


def test_groups_are_the_counts_of_their_documents():
    rows, counts = made()
    for chosen in ([0], [1, 3], [0, 1, 2, 3], [2, 2], []):
        wanted = sum((naive([r for i, r in enumerate(rows) if i % 4 == g], 8) for g in chosen), np.zeros((8, V)))
        np.testing.assert_array_equal(counts.of(chosen).toarray(), wanted)
    np.testing.assert_array_equal(counts.group(2).toarray(), counts.of([2]).toarray())
    np.testing.assert_array_equal(counts.total().toarray(), naive(rows, 8))
    assert counts.tokens == counts.total().sum()
    with pytest.raises(ValueError, match="No group 4. Choose one of the groups 0 to 3"):
        counts.group(4)


def test_counts_of_two_corpora_add_up():
    (_, a) = made(0)
    (_, b) = made(1, {**FACTS, "corpora": [{"name": "b"}]})
    both = a + b
    np.testing.assert_array_equal(both.matrix.toarray(), a.matrix.toarray() + b.matrix.toarray())
    assert both.documents.sum() == 60 and [c["name"] for c in both.facts["corpora"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        ({"facts": {**FACTS, "tokenizer_sha256": "u"}}, "tokenizer_sha256='t' and tokenizer_sha256='u'"),
        ({"facts": {**FACTS, "special_ids": [1]}}, "special_ids"),
        ({"align": "relative"}, "align='start' and align='relative'"),
    ],
)
def test_counts_of_another_kind_do_not_add_up(other, wanted):
    with pytest.raises(ValueError, match=wanted):
        made()[1] + made(**other)[1]


def test_a_matrix_of_other_rows_is_refused():
    with pytest.raises(ValueError, match="do not belong to 3 groups of 8 positions"):
        Counts(made()[1].matrix, 8, 3, np.zeros(3, np.int64))


def test_saved_counts_read_the_same(tmp_path):
    counts = made()[1]
    counts.save(tmp_path / "c.npz")
    read = Counts.load(tmp_path / "c.npz")
    assert (read.matrix != counts.matrix).nnz == 0 and read.matrix.dtype == np.int64 and read.facts == FACTS
    assert (read.positions, read.groups, read.align) == (8, 4, "start") and (read.documents == counts.documents).all()
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


def test_a_damaged_or_foreign_file_is_an_error(tmp_path):
    path = tmp_path / "c.npz"
    with pytest.raises(ValueError, match="No counts at"):
        Counts.load(path)
    made()[1].save(path)
    whole = path.read_bytes()
    for broken in (b"", b"text", whole[: len(whole) // 2], whole[:200] + b"\0" * 200 + whole[400:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="not a complete array file .*the same command counts again"):
            Counts.load(path)
    np.savez(path, about=json.dumps({"format": "other"}), **{k: np.zeros(1, np.int64) for k in ("data", "documents")})
    with pytest.raises(ValueError, match="is not a complete array file"):
        Counts.load(path)
    np.savez(path, about=np.array({"a": 1}, dtype=object))
    with pytest.raises(ValueError, match="is not a complete array file"):
        Counts.load(path)
