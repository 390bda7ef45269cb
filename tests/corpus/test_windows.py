"""Folders of windows: counts, splits, restart, bounded memory, and the folders that are refused."""

import json
import resource
import tracemalloc
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from whatwhere.corpus import Windows, build, build_windows, shards, train_tokenizer
from whatwhere.corpus.segments import DOCUMENT
from whatwhere.corpus.shards import document_share
from whatwhere.corpus.windows import places
from whatwhere.run.files import machine_id, sha256
from whatwhere.run.folder import RunFolder
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import verify
from whatwhere.study.training_records import corpus_size_records
from whatwhere.training.corpus_settings import check_enough_windows


def contents(windows) -> dict[str, list]:
    return {split: [w.input_ids.tolist() for w in windows[split]] for split in ("train", "held_out")}


def hashes(out) -> dict[str, str]:
    """Name -> SHA-256 of every recorded file of windows and their tokenizer."""
    folders = (out, out / "tokenizer")
    return {
        str(folder / name)[len(str(out)) :]: sha256(folder / name)
        for folder in folders
        for name in RunFolder.at(folder).listed_files()
    }


def shard_files(out) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((out / "shards").iterdir())}


@pytest.mark.parametrize("join", ["run-on", "none", "isolate"])
def test_manifest_counts_what_the_windows_hold(windows, documents, tokenizer, join):
    w = windows(join)
    facts = w.facts
    for split in ("train", "held_out"):
        chosen = [d for d in documents if (document_share(d) < 0.1) == (split == "held_out")]
        assert facts["documents"][split] == len(chosen) > 5
        assert facts["characters"][split] == sum(map(len, chosen))
        assert facts["windows"][split] == len(w[split]) == len(list(w[split]))
        text_tokens = sum(int((window.segments >= 0).sum()) for window in w[split])
        assert facts["tokens"][split] - facts["left_out"][split] == text_tokens
        assert w[split].lengths().tolist() == [len(window.input_ids) for window in w[split]]
    assert (facts["length"], facts["join"], facts["vocab_size"], facts["newline_token"]) == (32, join, 120, True)
    assert facts["source"] == {"name": "list", "version": 0} and len(facts["tokenizer_sha256"]) == 64
    assert w.tokenizer().get_vocab() == tokenizer.get_vocab()


def test_unigrams_count_the_text_of_the_train_split(windows):
    w = windows()
    counts = np.zeros(120, int)
    for window in w["train"]:
        np.add.at(counts, window.input_ids[window.segments >= 0], 1)
    np.testing.assert_array_equal(w.unigrams(), counts)
    p = counts[5:][counts[5:] > 0] / counts[5:].sum()  # special tokens are never masked, so never predicted
    assert w.unigram_entropy() == pytest.approx(-(p * np.log(p)).sum())


def test_a_window_has_all_its_parts(windows):
    window = windows()["train"][0]
    n = len(window.input_ids)
    assert n == 32 and window.input_ids[0] == 2 and window.input_ids[-1] == 3
    assert window.position_ids.tolist() == list(range(n)) and not window.document_ids.any()
    assert window.segments[0] == -1 and window.segments[1] == 0 and window.segments.max() > 1
    assert np.isnan(window.progress[0]) and window.progress[1] == 0
    assert (window.input_ids.dtype, window.segments.dtype, window.progress.dtype) == (np.int64, np.int32, np.float32)


def test_isolated_documents_restart_the_positions(windows):
    seen = 0
    for window in windows("isolate")["train"]:
        opens = window.input_ids == 2
        assert window.document_ids.tolist() == (np.cumsum(opens) - 1).tolist()
        assert (window.position_ids[opens] == 0).all()
        assert (np.diff(window.position_ids)[~opens[1:]] == 1).all()
        seen = max(seen, int(opens.sum()))
    assert seen > 1


def test_an_unmarked_row_is_one_document():
    documents, positions = places(np.zeros(3, np.uint8), "run-on")
    assert documents.tolist() == [0, 0, 0] and positions.tolist() == [0, 1, 2]


def test_unknown_windows_and_splits_are_errors(windows):
    with pytest.raises(IndexError):
        windows()["train"][len(windows()["train"])]
    with pytest.raises(ValueError, match="No split 'test'. Splits: train, held_out"):
        windows()["test"]


def test_no_document_is_in_both_splits(windows, tokenizer, documents):
    w = windows("none", 512)
    first = {
        split: {tokenizer.decode(window.input_ids, skip_special_tokens=True) for window in w[split]}
        for split in ("train", "held_out")
    }
    assert not first["train"] & first["held_out"]
    assert len(first["train"]) + len(first["held_out"]) == len(documents)


def test_a_killed_run_goes_on_without_redoing_shards(list_source, documents, tokenizer, tmp_path, monkeypatch):
    whole = build_windows(
        list_source(documents), tokenizer, tmp_path / "whole", length=32, progress=False, shard_characters=2000
    )
    assert len(whole.facts["shards"]) > 8

    class Killed(list_source):
        def documents(self):
            for number, text in enumerate(super().documents()):
                if number == 200:
                    raise KeyboardInterrupt
                yield text

    out = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        build_windows(Killed(documents), tokenizer, out, length=32, progress=False, shard_characters=2000)
    with pytest.raises(ValueError, match="no finished windows"):
        Windows(out)
    before = len(list((out / "shards").glob("*.json")))
    assert before > 3
    (out / "shards" / "00001.train.ids.npy").write_bytes(b"cut off")  # a shard that a crash of the machine left damaged
    (out / "shards" / f".00099.train.ids.npy.{machine_id()}-4194303").write_bytes(b"a temporary file")

    made = []
    monkeypatch.setattr(
        "whatwhere.corpus.build.write_shard",
        lambda t, job, *rest: made.append(job.number) or shards.write_shard(t, job, *rest),
    )
    again = build_windows(list_source(documents), tokenizer, out, length=32, progress=False, shard_characters=2000)
    assert made == [1, *range(before, len(whole.facts["shards"]))]
    assert contents(again) == contents(whole)
    assert shard_files(out) == shard_files(tmp_path / "whole")


def test_a_finished_folder_is_opened_as_it_is(list_source, documents, tokenizer, tmp_path):
    build_windows(list_source(documents), tokenizer, tmp_path / "w", length=32, progress=False)
    for name in (".lock", ".writer"):  # of a process that was killed as it let go of them, and stayed for good
        (tmp_path / "w" / name).touch()
    source = list_source(documents)
    again = build_windows(source, tokenizer, tmp_path / "w", length=32, progress=False)
    assert source.read == 0 and len(again["train"]) > 10
    assert not [path.name for path in (tmp_path / "w").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"length": 16}, "another length: there 32, now 16"),
        ({"join": "none"}, "another join: there run-on, now none"),
        ({"held_out": 0.2}, "another held_out: there 0.05, now 0.2"),
        ({"version": 1}, "another source: there {'version': 0}, now {'version': 1}"),
        ({"tokenizer": 100}, "another vocab_size: there 120, now 100"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_windows_of_other_settings_are_refused(list_source, documents, tokenizer, tmp_path, change, wanted, finished):
    out = tmp_path / "w"
    build_windows(list_source(documents), tokenizer, out, length=32, progress=False)
    if not finished:
        (out / "windows.json").unlink()
    before = shard_files(out)
    options = {"length": 32, "progress": False, **change}
    source = list_source(documents, options.pop("version", 0))
    other = train_tokenizer(documents, options.pop("tokenizer")) if "tokenizer" in change else tokenizer
    with pytest.raises(ValueError, match="holds windows of") as error:
        build_windows(source, other, out, **options)
    assert wanted in str(error.value) and "\n" not in str(error.value)
    assert shard_files(out) == before


def test_short_windows_keep_all_pieces(list_source, documents, tokenizer, tmp_path):
    """Windows of eight tokens kept the first piece of each document alone, whatever was asked for."""
    counts = {}
    for pieces in ("first", "all"):
        out = tmp_path / pieces
        how = {"length": 8, "join": "none", "pieces": pieces, "held_out": 0.0, "progress": False, "workers": 1}
        counts[pieces] = len(build_windows(list_source(documents), tokenizer, out, **how)["train"])
    assert counts["all"] > 3 * counts["first"]


def test_a_foreign_folder_is_refused(list_source, documents, tokenizer, tmp_path):
    (tmp_path / "letter.txt").write_text("do not lose me")
    with pytest.raises(ValueError, match="is not empty and holds no windows run"):
        build_windows(list_source(documents), tokenizer, tmp_path, progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("texts", [[], ["", "  \n "], ["\x00\x01"]])
def test_an_empty_corpus_is_an_error_and_leaves_nothing(list_source, tokenizer, tmp_path, texts):
    with pytest.raises(ValueError, match="Corpus list gives no window to train on"):
        build_windows(list_source(texts), tokenizer, tmp_path / "w", progress=False)
    build_windows(list_source(["alpha beta"], version=1), tokenizer, tmp_path / "w", progress=False)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_few_documents_still_keep_one_held_out(list_source, documents, tokenizer, tmp_path, count):
    w = build_windows(list_source(documents[:count]), tokenizer, tmp_path / "w", held_out=1e-6, progress=False)
    assert w.facts["documents"] == {"train": count - 1, "held_out": 1}
    assert len(w["held_out"]) >= 1


@pytest.mark.parametrize("texts", [["alpha beta gamma"], ["alpha beta gamma"] * 3])
@pytest.mark.parametrize("held_out", [0.0, 1e-6, 0.999999])
def test_one_document_is_trained_on(list_source, tokenizer, tmp_path, texts, held_out):
    w = build_windows(list_source(texts), tokenizer, tmp_path / "w", held_out=held_out, progress=False)
    assert w.facts["documents"] == {"train": len(texts), "held_out": 0}
    assert len(w["train"]) == 1 and len(w["held_out"]) == 0 and list(w["held_out"]) == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"join": "joined"}, "run-on, none, isolate"),
        ({"length": 2}, "length=2"),
        ({"held_out": 1.0}, "held_out=1.0"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_settings_out_of_range_are_refused(list_source, tokenizer, tmp_path, options, wanted):
    """Settings out of range are refused before a folder is made."""
    with pytest.raises(ValueError, match=wanted):
        build_windows(list_source(["alpha"]), tokenizer, tmp_path / "w", progress=False, **options)
    assert not (tmp_path / "w").exists()


def test_a_truncated_or_missing_file_is_noticed(list_source, documents, tokenizer, tmp_path):
    out = tmp_path / "w"
    build_windows(list_source(documents), tokenizer, out, progress=False)
    path = out / "shards" / "00000.train.ids.npy"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError, match="should be .* bytes long, it is"):
        Windows(out)
    path.unlink()
    with pytest.raises(ValueError, match="it is missing"):
        Windows(out)
    (out / "windows.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="windows.json is not as it was written"):
        Windows(out)
    (out / MANIFEST).unlink()  # a copy without it is taken as it is
    with pytest.raises(ValueError, match="window format 'other'"):
        Windows(out)
    (out / "windows.json").write_text('{"form')
    with pytest.raises(ValueError, match="not complete JSON"):
        Windows(out)


def test_what_a_killed_process_left_gets_no_hash(list_source, documents, tokenizer, tmp_path):
    # A kill while the tokenizer was copied: the hashes of the finished windows named its temporary folder.
    left = tmp_path / f"w/.tokenizer.{machine_id()}-4194303/tokenizer.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    build_windows(list_source(documents), tokenizer, tmp_path / "w", length=16, workers=1, progress=False)
    assert not left.parent.exists() and verify(tmp_path / "w")[1] == []


@pytest.mark.whole
def test_more_shards_than_open_files_are_read(list_source, documents, tokenizer, tmp_path):
    """Windows of more shards than files may be open are read."""
    # Three files a shard stay mapped: at the usual limit of 1,024 a training ended after 341 shards.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = [f"{text} {i}" for i in range(2) for text in documents]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, hard))
        how = {"length": 16, "workers": 1, "progress": False, "shard_characters": 60}
        made = build_windows(list_source(many), tokenizer, tmp_path / "w", **how)
        assert len(made.facts["shards"]) > 60 and len(list(made["train"])) == len(made["train"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_changed_byte_is_noticed_at_reading(list_source, documents, tokenizer, tmp_path):
    """A changed byte of a shard is noticed when it is read."""
    # Of the same size: another model was trained, and nothing said so.
    out = tmp_path / "w"
    build_windows(list_source(documents), tokenizer, out, progress=False)
    for part in ("ids", "marks", "starts"):
        path = out / "shards" / f"00000.train.{part}.npy"
        before = path.read_bytes()
        path.write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
        with pytest.raises(ValueError, match=f"{part}.npy is not as it was written"):
            Windows(out)["train"][0]
        (out / "windows.json").unlink()  # while it is built such a shard is made anew
        assert len(build_windows(list_source(documents), tokenizer, out, progress=False)["train"])
        assert path.read_bytes() == before


def test_an_id_above_the_vocabulary_is_refused(list_source, documents, tokenizer, tmp_path):
    out = tmp_path / "w"
    build_windows(list_source(documents), tokenizer, out, progress=False)
    ids = np.load(path := out / "shards" / "00000.train.ids.npy")
    ids[3] = 60_000
    np.save(path, ids)
    RunFolder.at(out).add_to_manifest("shards/00000.train.ids.npy")
    with pytest.raises(ValueError, match="holds the id 60000, and the vocabulary has"):
        Windows(out)["train"][0]


def test_ids_above_uint16_are_kept(list_source, tmp_path):
    from whatwhere.corpus import load_tokenizer

    path = tmp_path / "vocab.txt"
    path.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(70_000))]), encoding="utf-8"
    )
    big = load_tokenizer(path)
    w = build_windows(list_source(["w0 w69999 w65531"]), big, tmp_path / "w", progress=False)
    assert w["train"][0].input_ids.tolist() == [2, 5, 70_004, 65_536, 3]
    assert next(w["train"].shards())[0].dtype == np.uint32
    assert w.unigrams()[70_004] == 1


def test_small_vocabularies_are_stored_in_two_bytes(windows):
    ids, marks, starts = next(windows()["train"].shards())
    assert (ids.dtype, marks.dtype, starts.dtype) == (np.uint16, np.uint8, np.int64)
    assert isinstance(ids, np.memmap)


@pytest.mark.whole
@pytest.mark.usefixtures("usual_collections")
def test_memory_does_not_grow_with_the_corpus(list_source, tokenizer, tmp_path):
    class Endless(list_source):
        def documents(self):
            for number in range(self.texts[0]):
                yield f"Document {number}. " + "alpha beta gamma. " * 100

    peaks = []
    for count in (20, 200):
        tracemalloc.start()
        build_windows(
            Endless([count]), tokenizer, tmp_path / str(count), workers=1, progress=False, shard_characters=20_000
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 150_000  # the text is 330 kB longer; its shards' descriptions are kept


def test_a_pass_keeps_no_shard_mapped(list_source, documents, tokenizer, tmp_path, monkeypatch):
    """A pass over the shards keeps none of them mapped."""
    # All stayed mapped, and what was read of them counted as memory of the process.
    windows = build_windows(list_source(documents), tokenizer, tmp_path / "w", length=32, shard_characters=500)
    train = windows["train"]
    assert len(windows.facts["shards"]) > 3 and train.lengths().sum() > 100
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    monkeypatch.setattr(RunFolder, "check", mock.Mock(side_effect=AssertionError("compared again")))
    assert (windows["train"].lengths() == train.lengths()).all()


def test_progress_goes_to_stderr_and_can_be_silent(list_source, documents, tokenizer, tmp_path, capsys):
    build_windows(list_source(documents), tokenizer, tmp_path / "a", progress=True)
    seen = capsys.readouterr()
    assert seen.out == "" and "million characters" in seen.err and "list: 300 documents, " in seen.err
    build_windows(list_source(documents), tokenizer, tmp_path / "b", progress=False)
    assert capsys.readouterr() == ("", "")


def test_the_manifest_is_plain_json(windows):
    path = windows().folder / "windows.json"
    assert json.loads(path.read_text()) == windows().facts


def test_a_full_disk_leaves_no_half_file(list_source, documents, tokenizer, tmp_path, monkeypatch):
    def full(file, array, allow_pickle):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shards.np, "save", full)
        with pytest.raises(OSError, match="No space left"):
            build_windows(list_source(documents), tokenizer, tmp_path / "w", length=32, progress=False)
    assert not [p for p in (tmp_path / "w" / "shards").iterdir()]
    assert (
        len(build_windows(list_source(documents), tokenizer, tmp_path / "w", length=32, progress=False)["train"]) > 10
    )


def test_rows_know_the_document_that_they_begin_in(windows, documents, tokenizer):
    train = windows("run-on")["train"]
    found = train.document_numbers()
    opened = -1
    starts = 0
    for i in range(len(train)):
        _, marks = train.row(i)
        first = bool(marks[1] & DOCUMENT)
        assert found[i] == opened + first
        starts += first
        opened += int(((marks & DOCUMENT) != 0).sum())
    assert opened + 1 == windows("run-on").facts["documents"]["train"] and train.from_start() == starts / len(train)
    assert 0 < train.from_start() < 1


@pytest.mark.parametrize("join", ["none", "isolate"])
def test_rows_in_the_middle_of_a_document_begin_none(join, windows, list_source, tokenizer, tmp_path):
    """Every row was taken for a beginning (isolate), or the question was not answered (none)."""
    texts = [" ".join(f"word{i}" for i in range(40 * k)) for k in range(1, 9)]
    made = build_windows(
        list_source(texts), tokenizer, tmp_path / "w", length=32, join=join, pieces="all", held_out=0.0, progress=False
    )["train"]
    lengths = [len(ids) for ids in (tokenizer(text, add_special_tokens=False).input_ids for text in texts)]
    rows = [-(-n // 30) - (0 < n % 30 < 8) for n in lengths]
    if join == "none":
        assert made.document_numbers().tolist() == [k for k, count in enumerate(rows) for _ in range(count)]
        assert made.from_start() == len(texts) / sum(rows)
    else:
        assert 0 < made.from_start() < 0.5
        assert set(made.document_numbers()) <= set(range(len(texts)))


def test_first_pieces_are_taken_where_they_are_enough_text(list_source, tokenizer, tmp_path, monkeypatch):
    texts = [" ".join(f"word{i}" for i in range(40 * k)) for k in range(1, 9)]

    def made(folder, **how):
        return build_windows(
            list_source(texts), tokenizer, tmp_path / folder, length=32, held_out=0.0, progress=False, **how
        )

    assert made("few", join="none").facts["pieces"] == "all"
    assert made("on", join="run-on").facts["pieces"] == "all"
    monkeypatch.setattr(build, "ENOUGH", len(texts))
    first = made("enough", join="none")
    assert first.facts["pieces"] == "first" and len(first["train"]) == len(texts)
    assert first["train"].from_start() == 1.0
    assert first["train"].document_numbers().tolist() == list(range(len(texts)))
    monkeypatch.setattr(build, "ENOUGH", len(texts) + 1)
    assert made("short", join="none").facts["pieces"] == "all"
    assert made("asked", join="none", pieces="first").facts["pieces"] == "first"
    with pytest.raises(ValueError, match="pieces=first keeps documents apart, and join=run-on does not"):
        made("both", join="run-on", pieces="first")


def test_the_manifest_records_what_is_read(list_source, tokenizer, tmp_path, capsys):
    """What is read is said and recorded for every join."""
    texts = [" ".join(f"word{i}" for i in range(40 * k)) for k in range(1, 9)]
    said = {}
    for join, pieces in (("run-on", "all"), ("none", "all"), ("none", "first"), ("isolate", "all")):
        how = {"length": 32, "join": join, "pieces": pieces, "held_out": 0.0}
        made = build_windows(list_source(texts), tokenizer, tmp_path / f"{join}-{pieces}", **how)
        (share,) = [r.value for r in corpus_size_records(made, "s") if r.metric == "corpus.from_start"]
        assert share == made["train"].from_start()
        said[join, pieces] = build.describe_pieces(made), share
        assert capsys.readouterr().err.rstrip().endswith(said[join, pieces][0])
    assert said["none", "first"] == ("the first piece of each document", 1.0)
    for join, told in (("run-on", "documents run on from one to the next"), ("none", "all pieces of documents")):
        words, share = said[join, "all"]
        assert words == f"{told}, {share:.0%} begin with a document" and 0 < share < 0.5


def test_too_few_first_pieces_name_the_remedy(list_source, tokenizer, tmp_path):
    """First pieces of too few documents say what would do."""
    texts = [" ".join(f"word{i}" for i in range(400)) for _ in range(3)] + ["a b"]
    how = {"length": 32, "join": "none", "held_out": 0.0, "progress": False}
    first = build_windows(list_source(texts), tokenizer, tmp_path / "first", pieces="first", **how)
    check_enough_windows(first, 4)
    with pytest.raises(ValueError) as error:
        check_enough_windows(first, 5)
    assert str(error.value) == (
        "pieces=first leaves 4 training windows, the beginnings of 4 documents, less than one batch of 5. Use --set "
        "pieces=all, or give more documents or a smaller --set batch_size=."
    )
    check_enough_windows(build_windows(list_source(texts), tokenizer, tmp_path / "all", pieces="all", **how), 5)
