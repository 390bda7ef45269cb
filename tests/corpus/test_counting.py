"""A corpus to counts by position: against a loop over the tokenizer, by worker processes, from windows."""

import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from whatwhere.corpus import build_windows, counting, source
from whatwhere.corpus.counting import count_source, count_windows
from whatwhere.corpus.segments import DOCUMENT
from whatwhere.geometry.counts import StoredCounts, positional_counts, write_counts
from whatwhere.run import shard_pool
from whatwhere.run.files import describe_os_error


def loop(texts, tokenizer, n, align="start", groups=1, special=(0, 2, 3, 4)):
    out = np.zeros((groups * n, len(tokenizer)), np.int64)
    for text in texts:
        ids = [
            i
            for i in tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
            if i not in special
        ]
        for place, token in enumerate(ids):
            position = place if align == "start" else place * n // len(ids)
            if position < n:
                out[zlib.crc32(text.encode()) % groups * n + position, token] += 1
    return out


@pytest.mark.parametrize("align", ["start", "relative"])
@pytest.mark.parametrize("n", [3, 12, 200])
def test_counts_are_those_of_a_loop_over_the_tokenizer(align, n, list_source, documents, tokenizer):
    texts = [*documents, "odd \u0001 words [MASK] Zzz", documents[0]]
    counts = count_source(list_source(texts), tokenizer, n, align=align, groups=4, progress=False)
    np.testing.assert_array_equal(counts.matrix.toarray(), loop(texts, tokenizer, n, align, 4))
    assert counts.documents.sum() == len(texts) and counts.groups == 4 and counts.align == align
    assert counts.facts["corpora"] == [{"name": "list", "version": 0}] and counts.facts["special_ids"] == [0, 2, 3, 4]
    assert len(counts.facts["tokenizer_sha256"]) == 64


def test_unknown_words_are_counted(list_source, tokenizer):
    counts = count_source(list_source(["alpha \u4e2d beta"]), tokenizer, 3, groups=1, progress=False)
    assert counts.matrix[1, tokenizer.unk_token_id] == 1 and counts.tokens == 3


def test_the_tokenizer_is_left_as_it_was(list_source, documents, tokenizer):
    before = tokenizer.backend_tokenizer.to_str(), tokenizer("alpha [MASK]").input_ids
    count_source(list_source(documents), tokenizer, 5, progress=False)
    assert (tokenizer.backend_tokenizer.to_str(), tokenizer("alpha [MASK]").input_ids) == before


@pytest.mark.parametrize("align", ["start", "relative"])
def test_long_documents_are_read_as_far_as_needed(align, list_source, tokenizer, monkeypatch):
    monkeypatch.setattr(source, "PART_CHARACTERS", 2000)
    texts = ["alpha beta " * 2000, "gamma", "delta " + " " * 300 + "alpha " * 500]
    expected = loop(texts, tokenizer, 8, align)
    seen = []
    count_texts = counting.count_texts
    monkeypatch.setattr(
        counting,
        "count_texts",
        lambda t, job, given, *places: seen.extend(map(len, given)) or count_texts(t, job, given, *places),
    )
    counts = count_source(list_source(texts), tokenizer, 8, align=align, groups=1, workers=1, progress=False)
    np.testing.assert_array_equal(counts.matrix.toarray(), expected)
    assert seen[0] <= 2000 if align == "start" else seen[0] == len(texts[0].strip())


def test_worker_processes_count_the_same(list_source, documents, tokenizer, monkeypatch, processes):
    monkeypatch.setattr(shard_pool, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 3000)
    sent = []
    submit = shard_pool.ShardPool.submit_to_process
    monkeypatch.setattr(
        shard_pool.ShardPool,
        "submit_to_process",
        lambda self, job, number: sent.append(number) or submit(self, job, number),
    )
    one, two = (count_source(list_source(documents), tokenizer, 9, workers=number, progress=False) for number in (1, 2))
    assert sent
    assert (one.matrix != two.matrix).nnz == 0 and (one.documents == two.documents).all() and one.facts == two.facts


def test_shards_that_are_kept_are_not_counted_again(list_source, documents, tokenizer, monkeypatch, tmp_path):
    # A count that was stopped began again.
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 3000)
    encode = counting.BulkEncoder.encode
    done = []
    monkeypatch.setattr(
        counting.BulkEncoder, "encode", lambda self, texts, *most: done.append(texts) or encode(self, texts, *most)
    )

    def counted(source, positions=9, keep=tmp_path):
        done.clear()
        counts = count_source(source, tokenizer, positions, groups=4, workers=1, progress=False, shards_folder=keep)
        return counts, len(done)

    expected, shards = counted(list_source(documents), keep=None)
    _, first = counted(list_source(documents[: len(documents) // 2]))
    assert 2 < first < shards
    (tmp_path / "00001.npz").write_bytes(b"damaged")
    found, left = counted(list_source(documents))
    assert left == shards - first + 2  # the damaged one and the last, which had fewer documents
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found.matrix, name), getattr(expected.matrix, name))
    assert (found.documents == expected.documents).all() and found.facts == expected.facts
    assert counted(list_source(documents))[1] == 0
    assert counted(list_source(documents), positions=10)[1] == shards


@pytest.mark.whole
def test_shards_are_added_in_pairs(list_source, documents, tokenizer, monkeypatch):
    """Counts of shards are added in a tree, and folders of those that were added go."""
    # The command added them all itself, which took a sixth of its core beside two workers; a tree by the number of
    # shards held seven times the result of 900 shards in its folders.
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 300)
    add_pair = counting.add_pair
    sums = []
    held = []

    def added(vocab_size, pair, folder, progress):
        held.append(sum(path.stat().st_size for path in folder.rglob("data")) // 8)
        sums.append(add_pair(vocab_size, pair, folder, progress))
        return sums[-1]

    monkeypatch.setattr(counting, "add_pair", added)
    counts = count_source(list_source(documents * 4), tokenizer, 9, groups=4, workers=1, progress=False)
    np.testing.assert_array_equal(counts.matrix.toarray(), 4 * loop(documents, tokenizer, 9, groups=4))
    shards = len(sums) + 1
    assert shards > 100 and max(held) <= 3 * counts.matrix.nnz
    smaller = sum(part.nnz for part in sums) / counts.matrix.nnz
    assert smaller < shards / 2  # as against a running sum, which is written once a shard
    assert sums[-1].characters == 4 * sum(map(len, documents))


def test_bar_is_full_when_all_is_counted(list_source, documents, tokenizer, monkeypatch):
    """The bar said 100 % while the last shard was still to be counted, as a sum was drawn before its text was read."""
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 300)
    monkeypatch.setattr(type(list_source([])), "share_read", lambda self: min(1.0, self.read / len(documents)))
    seen = []

    @contextmanager
    def recorded(*_):
        yield lambda done, total, note: seen.append((done, total))

    monkeypatch.setattr(counting, "progress_bar", recorded)
    count_source(list_source(documents), tokenizer, 9, workers=1)
    characters = sum(map(len, documents))
    assert [done for done, total in seen if done >= total][0] == characters == seen[-1][1]


def test_sum_is_equal_if_a_job_runs_twice(list_source, documents, tokenizer, monkeypatch):
    """A worker that was thought dead may add the same counts at the same time as another."""
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 3000)
    for name in ("add_pair", "count_texts"):
        work = getattr(counting, name)
        monkeypatch.setattr(counting, name, lambda *given, work=work: (work(*given), work(*given))[1])
    counts = count_source(list_source(documents), tokenizer, 9, groups=4, workers=1, progress=False)
    np.testing.assert_array_equal(counts.matrix.toarray(), loop(documents, tokenizer, 9, groups=4))


def test_counts_that_are_cut_off_are_no_zeros(tokenizer, tmp_path):
    """What a full or lost disk left of counts is refused, not added."""
    tokens = np.arange(20)
    write_counts(tmp_path, [positional_counts([tokens], len(tokenizer), 20)])
    whole = (tmp_path / "data").read_bytes()
    (tmp_path / "data").write_bytes(whole[:-8])
    with pytest.raises(ValueError, match=r"data is not as long as it was written\. Run the command again\.$"):
        StoredCounts.open(tmp_path, len(tokenizer))
    (tmp_path / "data").unlink()
    with pytest.raises(ValueError, match=r"are gone \(No such file or directory\)\. Run the command again\.$"):
        StoredCounts.open(tmp_path, len(tokenizer))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_counts_name_their_place_on_a_full_disk(tmp_path):
    """It was "a file"."""
    for name in ("data", "indices"):
        (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(OSError) as full:
        write_counts(tmp_path, [positional_counts([np.arange(9)], 10, 20)])
    assert describe_os_error(full.value).startswith(f"No room is left on the disk for {tmp_path}.")


@pytest.mark.parametrize("texts", [["\u0001 \u0002"] * 3, ["\u0001 \u0002", "alpha", "\u0002 \u0003"]])
def test_shards_without_tokens_are_added(texts, list_source, tokenizer, monkeypatch):
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 2)
    counts = count_source(list_source(texts), tokenizer, 3, groups=2, workers=1, progress=False)
    np.testing.assert_array_equal(counts.matrix.toarray(), loop(texts, tokenizer, 3, groups=2))
    assert counts.documents.sum() == 3


@pytest.mark.parametrize("held", [10, 1 << 21])
def test_counts_can_be_changed_in_place(held, list_source, documents, tokenizer, monkeypatch):
    """Counts from files are writable, as those in memory, after their folder is gone."""
    monkeypatch.setattr(counting, "SHARD_CHARACTERS", 3000)
    monkeypatch.setattr("whatwhere.geometry.counts._HELD", held)
    counts = count_source(list_source(documents), tokenizer, 9, groups=4, progress=False)
    np.testing.assert_array_equal(counts.matrix.toarray(), loop(documents, tokenizer, 9, groups=4))
    counts.matrix.data[:] = 0
    assert counts.tokens == 0


def test_progress_is_on_stderr(list_source, documents, tokenizer, capsys):
    count_source(list_source(documents), tokenizer, 5, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "counting" in err


@pytest.mark.parametrize(
    ("texts", "options", "wanted"),
    [
        ([], {}, "Corpus list has no text to count"),
        (["a"], {"workers": 0}, "workers=0 leaves nobody to count. Give 1"),
        (["a"], {"groups": 0}, "n_groups=0 is too small. Give 1 or more"),
        (["a"], {"align": "end"}, "align='end' is unknown. Give one of start, relative"),
    ],
)
def test_bad_input_is_one_line(texts, options, wanted, list_source, tokenizer):
    with pytest.raises(ValueError, match=wanted) as error:
        count_source(list_source(texts), tokenizer, 5, progress=False, **options)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="max_positions=0"):
        count_source(list_source(["a"]), tokenizer, 0, progress=False)


@pytest.mark.parametrize("join", ["run-on", "none", "isolate"])
@pytest.mark.parametrize("align", ["start", "relative"])
def test_windows_count_like_their_rows(join, align, windows, tokenizer):
    train = windows(join)["train"]
    wanted = np.zeros((4 * 10, len(tokenizer)), np.int64)
    documents = np.zeros(4, int)
    opened = -1
    total = windows(join).facts["documents"]["train"]
    for number, window in enumerate(train):
        begins = (train.row(number)[1] & DOCUMENT) != 0
        for document in range(window.document_ids.max() + 1):
            # A row belongs to the document that it begins in, a piece to its own: whole documents in a group.
            inside = np.flatnonzero(window.document_ids == document)
            group = max(opened + int(begins[inside[1]]), 0) * 4 // total
            for _ in range(int(begins[inside].sum())):
                opened += 1
                documents[opened * 4 // total] += 1
            ids = [i for i in window.input_ids[window.document_ids == document] if i not in (0, 2, 3, 4)]
            for place, token in enumerate(ids):
                position = place if align == "start" else place * 10 // len(ids)
                if position < 10:
                    wanted[group * 10 + position, token] += 1
    counts = count_windows(train, 10, align=align, groups=4)
    np.testing.assert_array_equal(counts.matrix.toarray(), wanted)
    np.testing.assert_array_equal(counts.documents, documents)
    assert counts.facts["corpora"][0]["split"] == "train"


def test_run_on_documents_continue_across_rows(windows, documents, tokenizer):
    """Documents that run on are followed from row to row."""
    train = windows("run-on")["train"]
    stream = [int(i) for window in train for i in window.input_ids if i not in (0, 2, 3, 4)]
    encoded = [tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids for text in documents]
    found = []
    at = 0
    for ids in encoded:  # those in training, in order
        if ids == stream[at : at + len(ids)]:
            found.append(ids)
            at += len(ids)
    assert len(found) > 100 and at == len(stream)
    wanted = np.zeros((40, len(tokenizer)), np.int64)
    for ids in found:
        for place, token in enumerate(ids[:40]):
            wanted[place, token] += 1
    counts = count_windows(train, 40, groups=4, whole=True)
    np.testing.assert_array_equal(sum(counts.group(g).toarray() for g in range(4)), wanted)
    assert counts.documents.sum() == len(found)


@pytest.mark.parametrize("join", ["none", "isolate"])
def test_whole_documents_are_their_first_pieces(join, list_source, tokenizer, tmp_path):
    """Position 0 was the first token of every piece, five of six of them in the middle of a document."""
    texts = [" ".join(f"word{i}" for i in range(20 * k)) for k in range(1, 9)]
    how = {"length": 32, "join": join, "held_out": 0.0, "workers": 1, "progress": False, "shard_characters": 600}
    train = build_windows(list_source(texts), tokenizer, tmp_path / "all", pieces="all", **how)["train"]
    first = build_windows(list_source(texts), tokenizer, tmp_path / "first", pieces="first", **how)["train"]
    counts = count_windows(train, 30, groups=4, whole=True)
    wanted = count_windows(first, 30, groups=4)
    assert (counts.matrix != wanted.matrix).nnz == 0 and counts.documents.tolist() == [2, 2, 2, 2]
    assert wanted.documents.tolist() == [2, 2, 2, 2]
    encoded = tokenizer(texts, add_special_tokens=False).input_ids
    assert counts.tokens == sum(min(len(ids), 30) for ids in encoded)
    assert count_windows(train, 30, groups=4).tokens > counts.tokens


def test_groups_hold_whole_documents(list_source, tokenizer, tmp_path):
    """Groups were runs of rows, and a long document was in several."""
    texts = ["alpha " * 300, *["beta gamma"] * 3]
    how = {"length": 16, "join": "none", "pieces": "all", "held_out": 0.0, "workers": 1, "progress": False}
    train = build_windows(list_source(texts), tokenizer, tmp_path / "w", **how)["train"]
    counts = count_windows(train, 14, groups=4)
    (alpha,) = set(tokenizer("alpha", add_special_tokens=False).input_ids[:1])
    assert [int(counts.group(g).toarray()[:, alpha].sum()) > 0 for g in range(4)] == [True, False, False, False]
    assert counts.documents.tolist() == [1, 1, 1, 1]
    few = count_windows(train, 14, groups=9)
    assert few.documents.sum() == 4 and few.documents.max() == 1
