"""Counts of a corpus's tokens by position (GEOM algorithm 1, line 3), straight from text or from windows on disk.

Text is read once, in order, in shards; processes of this machine or workers of a cluster count some each. They also add
the counts of shards, in a tree: in pairs of about the same size, in a temporary folder. Memory holds a few shards and a
bounded part of the counts, whatever the size of the corpus; of a large result it maps temporary files.
"""

import hashlib
import json
import re
import secrets
import shutil
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from ..geometry.counts import Counts, StoredCounts, Tally, in_lists, sums_of_blocks, write_counts
from ..run.cluster import Cluster
from ..run.executors import Job
from ..run.files import temporary_folder
from ..run.processes import check_not_spawned
from ..run.progress import Progress, estimate_total, progress_bar
from ..run.shard_pool import ShardPool
from .segments import DOCUMENT, PIECE
from .shards import SHARD_CHARACTERS, plain
from .source import Source, numbered_lists
from .tokenizer import special_token_ids, tokenizer_hash
from .windows import Windows, WindowSet, after_cls

LONGEST_TOKEN = 64  # characters a position, on average: where a document is cut if counts are aligned from its start
MOST_WORDS = 500_000  # different words that are remembered, some hundred bytes each
_BATCH = 1 << 18  # characters that are tokenised at once
_LIKELY_TOKEN = 8  # characters: how much of a text is tried first if only its first tokens are wanted
_TOGETHER = 100  # words that are tokenised in one list: half the time of one by one
_SPACE = re.compile(r"\s")


@dataclass(frozen=True)
class CountJob:
    """Settings by which the documents of a shard are counted, equal in all processes."""

    vocab_size: int
    positions: int
    special_ids: tuple[int, ...]
    align: str
    groups: int
    tokenizer_sha256: str
    keys: Mapping[str, str] | None = None  # the text whose hash gives a document its group, where that is not its own

    def tally(self) -> Tally:
        """Start an empty tally with these settings."""
        return Tally(self.vocab_size, self.positions, self.special_ids, self.align, self.groups)

    def digest(self, texts: Sequence[str], groups: np.ndarray) -> str:
        """Hash everything that decides the counts of a shard: settings, groups (texts,) and texts."""
        digest = hashlib.sha256(repr(replace(self, keys=None)).encode() + groups.tobytes())
        for text in texts:
            encoded = text.encode("utf-8")
            digest.update(f"\0{len(encoded)}\0".encode() + encoded)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class PartialCounts:
    """Counts of some shards in a folder (`geometry.counts.write_counts`).

    nnz: non-zeros. documents: (groups,) documents of each group. characters: that were read. summands: folders of the
    counts that these are the sum of, which nobody needs any more; none of a single shard.
    """

    folder: Path
    nnz: int
    documents: np.ndarray
    characters: int
    summands: tuple[Path, ...] = ()


def count_source(
    source: Source,
    tokenizer: PreTrainedTokenizerFast,
    positions: int,
    *,
    align: str = "start",
    groups: int = 32,
    phrases: bool = False,
    workers: int | None = None,
    progress: bool | Progress = True,
    shards_folder: Path | None = None,
    cluster: Cluster | None = None,
) -> Counts:
    """Count how often each token stands at each position of a source's documents, in `groups` groups of documents.

    Position 0 is the first token of the document: no [CLS] is put before it, and special tokens written in the text are
    read as plain text. [UNK] is a token like others. A document's group is the CRC-32 of its text modulo `groups`, so
    equal documents share a group. Counted by "start", a document is read up to 64 characters a position (or a million,
    if that is more) and tokenised as far as needed.

    Args:
        positions, align: see `geometry.positional_counts`.
        phrases: documents that stand inside longer ones get the group of the longest (`containing`): random halves of
            the documents then share no sentence. The texts are read twice and held in memory, and counted by this
            process alone.
        workers: processes, this one included; default one a core. They start only for a large corpus
            (shard_pool.WORTH_PROCESSES).
        progress: a bar on stderr, or the function that moves one.
        shards_folder: a folder for the counts of each shard. A count that was stopped finds them there: it reads the
            text again and tokenises what is left. The folder may be deleted when the sum is written.
        cluster: workers that count in place of processes; without `phrases`. The folder that they share takes about
            three times the result for as long as it goes on, elsewhere the folder of `shards_folder`, or TMPDIR.

    Raises:
        ValueError: an option out of range, a source without text, or what the source raises while it is read.
    """
    check_not_spawned("count_source")
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers} leaves nobody to count. Give 1 (this process) or more.")
    most = LONGEST_TOKEN * positions if align == "start" else None
    keys = containing(source.beginnings(most)) if phrases else None
    sha = tokenizer_hash(tokenizer)
    special_ids = _no_text(special_token_ids(tokenizer))
    job = CountJob(len(tokenizer), positions, special_ids, align, groups, sha, keys)
    job.tally()  # which refuses an option out of range before anything is read
    parts: list[PartialCounts] = []
    read = 0
    done = 0
    place: AbstractContextManager[str | Path]
    if shards_folder is not None:
        # Beside it, in the folder of a run, which sweeps what a killed command left.
        place = temporary_folder(shards_folder)
    elif cluster is not None:
        place = temporary_folder(cluster.folder / "counting")  # which the workers see
    else:
        place = tempfile.TemporaryDirectory(prefix="whatwhere-counting-")
    with place as folder_name, progress_bar("counting", progress) as advance:
        folder = Path(folder_name)
        tokenizer_file = folder / "tokenizer.json"
        tokenizer.backend_tokenizer.save(str(tokenizer_file))

        def jobs() -> Iterator[Job]:
            nonlocal read
            for number, texts in numbered_lists(source, lambda file: in_lists(file.beginnings(most), SHARD_CHARACTERS)):
                read += sum(map(len, texts))
                while pair := take_pair(parts):
                    yield sum_job(job, pair, folder)
                shard_file = shards_folder and shards_folder / f"{number:05d}.npz"
                yield pool.job_of_shard(count_texts, job, texts, folder, shard_file)

        def jobs_of_a_round() -> Iterator[Job]:
            pair = take_pair(parts) or take_pair(parts, whatever_size=True)
            while pair:
                yield sum_job(job, pair, folder)
                pair = take_pair(parts)

        def take(part: PartialCounts) -> None:
            nonlocal done
            parts.append(part)
            for summand in part.summands:
                shutil.rmtree(summand, ignore_errors=True)
            if not part.summands:
                done += part.characters
            total = estimate_total(done, read, source.share_read())
            advance(done, total, note=f"{done / 1e6:.1f} million characters{', adding' if part.summands else ''}")

        with ShardPool(tokenizer_file, 1 if phrases else workers, None if phrases else cluster) as pool:
            for part in pool.map(jobs(), lambda: (read, source.share_read())):
                take(part)
            while len(parts) > 1:
                for part in pool.map(jobs_of_a_round(), lambda: (read, 1.0)):
                    take(part)
        if not parts:
            raise ValueError(f"Corpus {source.name} has no text to count. Give a corpus that has some.")
        opened = StoredCounts.open(parts[0].folder, job.vocab_size)
        matrix = opened.copied()
        opened.close()
    facts = {
        "corpora": [{"name": source.name, **source.fingerprint()}],
        "tokenizer_sha256": sha,
        "special_ids": list(special_ids),
        "phrases": phrases,
    }
    return Counts(matrix, positions, groups, parts[0].documents, align, facts)


def count_windows(
    window_set: WindowSet,
    positions: int,
    *,
    align: str = "start",
    groups: int = 32,
    whole: bool = False,
) -> Counts:
    """Count how often each token stands at each position of windows on disk, in `groups` groups of documents.

    Position 0 is the first token of a row, or of a piece in rows of join=isolate. A group is a run of neighbouring
    documents, each whole: a row belongs to the document that it begins in, a piece to its own. `documents` of the
    result counts the documents of each group. Fewer documents than `groups` leave some groups empty; a single document
    is one group, of which no interval can be made.

    Args:
        positions, align: see `geometry.positional_counts`.
        whole: position 0 is the first token of a document, whatever the rows: documents that run on are followed from
            row to row, and of other joins the first pieces count alone.

    Raises:
        ValueError: an option out of range.
    """
    of_windows = Windows(window_set.folder).facts
    sha = of_windows["tokenizer_sha256"]
    special_ids = _no_text(window_set.special_ids)
    job = CountJob(window_set.vocab_size, positions, special_ids, align, groups, sha)
    tally = job.tally()
    documents = np.zeros(groups, np.int64)
    document_totals = window_set.documents_begun()  # by the end of each shard
    for number, (ids, marks, starts) in enumerate(window_set.shards()):
        before = document_totals[number - 1] if number else 0
        begins = (marks & DOCUMENT) != 0
        if whole and window_set.join == "run-on":
            starts = np.append(np.flatnonzero(begins), starts[-1])
        elif window_set.join == "isolate":
            starts = np.append(np.flatnonzero(marks & PIECE), starts[-1])
        first_tokens = starts[:-1] if whole and window_set.join == "run-on" else after_cls(starts)
        which = np.maximum(before + np.cumsum(begins)[first_tokens] - 1, 0)  # the document that each begins in
        if whole and not begins[first_tokens].all():
            lengths = np.diff(starts)
            ids = ids[np.repeat(begins[first_tokens], lengths)]
            starts = np.append(0, np.cumsum(lengths[begins[first_tokens]]))
            which = which[begins[first_tokens]]
        tally.add(ids, starts, which * groups // max(document_totals[-1], 1))
        documents += np.bincount(
            np.arange(before, document_totals[number]) * groups // max(document_totals[-1], 1), minlength=groups
        )
    facts = {
        "corpora": [{**of_windows["source"], "split": window_set.split}],
        "tokenizer_sha256": sha,
        "special_ids": list(special_ids),
    }
    return Counts(tally.total(), positions, groups, documents, align, facts)


def count_texts(
    tokenizer: Tokenizer, job: CountJob, texts: Sequence[str], folder: Path, counts_file: Path | None = None
) -> PartialCounts:
    """Count the tokens of a shard's documents by position; may run in a worker process.

    Args:
        folder: where the counts are written, in a folder of their own.
        counts_file: a file where they are kept for a command that goes on after a stop; counts of the same job and
            texts in it are taken, not made again.
    """
    keys = texts if job.keys is None else [job.keys.get(text, text) for text in texts]
    groups = np.array([zlib.crc32(key.encode("utf-8")) % job.groups for key in keys], np.int64)
    digest = job.digest(texts, groups) if counts_file else None
    characters = sum(map(len, texts))
    own_folder = _new_folder(folder)
    if counts_file:
        with suppress(ValueError):  # there is none, or a damaged one
            before = Counts.load(counts_file)
            if before.facts.get("digest") == digest:
                return PartialCounts(
                    own_folder, write_counts(own_folder, [before.matrix]), before.documents, characters
                )
    tally = job.tally()
    encoder = _encoder(tokenizer)
    done = 0
    for batch in in_lists(texts, _BATCH):
        ids, starts = encoder.encode(batch, job.positions if job.align == "start" else None)
        tally.add(ids, starts, groups[done : done + len(batch)])
        done += len(batch)
    documents = np.bincount(groups, minlength=job.groups)
    matrix = tally.total()
    if counts_file:
        Counts(matrix, job.positions, job.groups, documents, job.align, {"digest": digest}).save(counts_file)
    return PartialCounts(own_folder, write_counts(own_folder, [matrix]), documents, characters)


def _new_folder(folder: Path) -> Path:
    """Make a folder of a new name: a job may run twice at the same time, where a worker is thought dead and is not."""
    path = folder / secrets.token_hex(8)
    path.mkdir()
    return path


def take_pair(parts: list[PartialCounts], whatever_size: bool = False) -> tuple[PartialCounts, PartialCounts] | None:
    """Remove and return two counts of similar size, or None.

    The larger has at most twice the non-zeros of the smaller. So no more than about twice the largest lie in folders,
    and each number is added a few times.

    whatever_size: take the two smallest.
    """
    parts.sort(key=lambda part: part.nnz)
    for i, (small, large) in enumerate(pairwise(parts)):
        if whatever_size or large.nnz <= 2 * small.nnz:
            del parts[i : i + 2]
            return small, large
    return None


def sum_job(job: CountJob, pair: tuple[PartialCounts, PartialCounts], folder: Path) -> Job:
    """Return the job that adds the counts of shards."""
    return Job("sum of counts", add_pair, (job.vocab_size, pair, folder))


def add_pair(
    vocab_size: int, pair: tuple[PartialCounts, PartialCounts], folder: Path, progress: Progress
) -> PartialCounts:
    """Add the counts of shards; may run in a worker process. Both summands stay: the job may run twice.

    folder: where the sum is written, in a folder of its own.
    """
    opened = [StoredCounts.open(part.folder, vocab_size) for part in pair]
    own_folder = _new_folder(folder)
    rows = opened[0].shape[0]

    def blocks() -> Iterator[csr_array]:
        done = 0
        for block in sums_of_blocks(*opened):
            progress(done, rows)  # where a job that nobody wants any more stops
            yield block
            done += block.shape[0]

    nnz = write_counts(own_folder, blocks())
    for counts in opened:
        counts.close()
    documents = pair[0].documents + pair[1].documents
    characters = pair[0].characters + pair[1].characters
    return PartialCounts(own_folder, nnz, documents, characters, tuple(part.folder for part in pair))


def _no_text(special_ids: dict[str, int]) -> tuple[int, ...]:
    """Return the ids of special tokens that are no text; [UNK] stands for a word, so it is counted."""
    return tuple(sorted({i for name, i in special_ids.items() if name != "unk_token_id"}))


def containing(texts: Iterable[str]) -> dict[str, str]:
    """Map each document to the longest document that it stands in, word for word; to itself if there is none.

    Phrases of one sentence, quotes of one text are not independent of each other: of GLUE's SST-2, 67,349 rows, 6,885
    stand in no other, and random halves of the rows share nearly all their sentences. Words are what white space
    separates. Holds all texts in memory.
    """
    words = {text: f" {' '.join(text.split())} " for text in texts}
    frequency = Counter(word for padded in words.values() for word in set(padded.split()))
    holders: dict[str, list[str]] = defaultdict(list)  # word -> documents that stand in no other
    longest: dict[str, str] = {}
    for text in sorted(words, key=lambda text: (-len(words[text]), text)):
        padded = words[text]
        rarest = min(set(padded.split()), key=lambda word: (frequency[word], word), default=None)
        others = holders[rarest] if rarest is not None else []
        longest[text] = next((other for other in others if padded in words[other]), text)
        if longest[text] == text:
            for word in set(padded.split()):
                holders[word].append(text)
    return longest


class BulkEncoder:
    """An encoder of many texts into token ids, faster than `tokenizer.encode_batch`, which also returns offsets.

    The ids are the same; special tokens written in the text are read as plain text, and none are added. Where a
    tokenizer treats what stands between two spaces on its own (BERT's does), each different word is tokenised once and
    looked up after.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = plain(tokenizer)
        self.by_word = splits_at_spaces(tokenizer)
        self._number: dict[str, int] = {}  # word -> its place in _starts
        self._ids = np.empty(0, np.uint32)
        self._starts = np.zeros(1, np.int64)

    def encode(self, texts: Sequence[str], enough: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts into ids (t,) uint32, one text after the other, and starts (texts + 1,) int64.

        Text i has ids[starts[i]:starts[i + 1]].

        Args:
            enough: tokens that are wanted of each text; further ones may be left out. None: all.
        """
        if enough is None or max(map(len, texts), default=0) <= 2 * _LIKELY_TOKEN * enough:
            return self._whole(texts)
        rows: list[np.ndarray] = [np.empty(0, np.uint32)] * len(texts)
        left = list(range(len(texts)))
        characters = _LIKELY_TOKEN * enough
        while left:
            heads = [_head(texts[i], characters) for i in left]
            ids, starts = self._whole(heads)
            for i, begin, end in zip(left, starts[:-1], starts[1:], strict=True):
                rows[i] = ids[begin:end]
            cut = [i for i, head in zip(left, heads, strict=True) if len(head) < len(texts[i])]
            left = [i for i in cut if len(rows[i]) < enough]
            characters *= 4
        return np.concatenate(rows), _bounds([len(row) for row in rows])

    def _whole(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        if not self.by_word:
            rows = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
            starts = _bounds([len(row) for row in rows])
            return np.fromiter(chain.from_iterable(rows), np.uint32, starts[-1]), starts
        split = [text.replace("\n", " ").split(" ") for text in texts]
        words = list(chain.from_iterable(split))
        if new := set(words).difference(self._number):
            self._learn(sorted(new))
        number = np.fromiter(map(self._number.__getitem__, words), np.int64, len(words))
        lengths = np.diff(self._starts)[number]
        bounds = _bounds(lengths)
        ids = self._ids[np.arange(bounds[-1]) + np.repeat(self._starts[number] - bounds[:-1], lengths)]
        if len(self._number) > MOST_WORDS:
            self._number.clear()
            self._ids = self._ids[:0]
            self._starts = self._starts[:1]
        return ids, bounds[_bounds([len(row) for row in split])]

    def _learn(self, words: list[str]) -> None:
        lists = [words[at : at + _TOGETHER] for at in range(0, len(words), _TOGETHER)]
        # encode_batch_fast forgets which word an id is of.
        encodings = self.tokenizer.encode_batch(lists, is_pretokenized=True, add_special_tokens=False)
        ids = np.fromiter(chain.from_iterable([encoding.ids for encoding in encodings]), np.uint32)
        lengths = [
            np.bincount(np.array(e.word_ids, np.int64), minlength=len(some))
            for e, some in zip(encodings, lists, strict=True)
        ]
        self._number.update(zip(words, range(len(self._number), len(self._number) + len(words)), strict=True))
        self._starts = np.concatenate([self._starts, len(self._ids) + _bounds(np.concatenate(lengths))[1:]])
        self._ids = np.concatenate([self._ids, ids])


@lru_cache(maxsize=1)
def _encoder(tokenizer: Tokenizer) -> BulkEncoder:
    """Return the encoder of a tokenizer, the same for all shards, because it remembers words."""
    return BulkEncoder(tokenizer)


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Tell if a tokenizer certainly encodes each run of text between spaces and line ends on its own."""
    about = json.loads(tokenizer.to_str())
    kinds = tuple((about[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model"))
    # These split at a space, whatever stands on either side, and look at nothing beyond it.
    known = (
        kinds[0] in ("BertNormalizer", None)
        and kinds[1] in ("BertPreTokenizer", "WhitespaceSplit")
        and kinds[2] in ("WordPiece", "WordLevel")
    )
    # Added tokens that are not special, as [NL], are looked for across spaces.
    return known and all(token["special"] for token in about["added_tokens"])


def _head(text: str, characters: int) -> str:
    """Cut a text at the first white space after `characters`, or a thousand later; return all of a short text."""
    if len(text) <= 2 * characters:
        return text
    space = _SPACE.search(text, characters, characters + 1000)
    return text[: space.start() if space else characters + 1000]


def _bounds(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
