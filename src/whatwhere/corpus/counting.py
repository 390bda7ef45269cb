"""A corpus to counts of tokens by position (GEOM algorithm 1, line 3): straight from text, or from windows on disk.

Text is read once, in order, in shards; worker processes and the processes of a launcher (accelerate, torchrun) count
some each. Memory holds the counts and a few shards, whatever the size of the corpus.
"""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from scipy.sparse import csr_array
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from ..geometry.counts import Counts, Tally
from .encoding import BulkEncoder
from .overlap import containing
from .segments import DOCUMENT
from .shards import SHARD_CHARACTERS
from .source import Source
from .tokenizer import special_token_ids
from .windows import Windows, WindowSet
from .workers import Workers, check_not_in_worker, progress_bar

LONGEST_TOKEN = 64  # characters a position, on average: where a document is cut if counts are aligned from its start
_BATCH = 1 << 18  # characters that are tokenised at once


@dataclass(frozen=True)
class CountJob:
    """How the documents of a shard are counted."""

    vocab_size: int
    positions: int
    special_ids: tuple[int, ...]
    align: str
    groups: int
    keys: Mapping[str, str] | None = None  # the text whose hash gives a document its group, where that is not its own

    def tally(self) -> Tally:
        return Tally(
            self.vocab_size, self.positions, special_ids=self.special_ids, align=self.align, n_groups=self.groups
        )


def count_source(
    source: Source,
    tokenizer: PreTrainedTokenizerFast,
    positions: int,
    *,
    align: str = "start",
    groups: int = 32,
    phrases: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> Counts:
    """How often each token stands at each position of the documents of `source`, in `groups` groups of documents.

    Position 0 is the first token of the document: no [CLS] is put before it, and special tokens written in the text are
    read as plain text. [UNK] is a token like others. A document's group is the CRC-32 of its text modulo `groups`, so
    equal documents share a group. Counted by "start", a document is read up to 64 characters a position (or a million,
    if that is more) and tokenised as far as needed.

    Args:
        positions, align: see `geometry.positional_counts`.
        phrases: documents that stand inside longer ones get the group of the longest (`overlap.containing`): random
            halves of the documents then share no sentence. The texts are read twice and held in memory, and counted by
            this process alone.
        workers: processes, this one included; default one a core. They start only for a large corpus
            (workers.WORTH_WORKERS). Under a launcher each of its processes counts its share of the corpus, all of them
            get the sum, and the default is 1.
        progress: a bar on stderr.

    Raises:
        ValueError: an option out of range, a source without text, or what the source raises while it is read.
    """
    check_not_in_worker("count_source")
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers} must be at least 1, this process itself.")
    backend = tokenizer.backend_tokenizer
    most = LONGEST_TOKEN * positions if align == "start" else None
    keys = containing(_documents(source, most)) if phrases else None
    job = CountJob(len(tokenizer), positions, _no_text(special_token_ids(tokenizer)), align, groups, keys)
    tally, documents = job.tally(), np.zeros(groups, np.int64)
    rank, world = _rank()
    read = done = 0

    def shards() -> Iterator[tuple[CountJob, list[str]]]:
        nonlocal read
        for number, texts in enumerate(_batches(_documents(source, most), SHARD_CHARACTERS)):
            read += sum(map(len, texts))
            if number % world == rank:
                yield job, texts

    with tempfile.TemporaryDirectory() as folder, progress_bar(progress and rank == 0, "counting") as show:
        backend.save(str(Path(folder) / "tokenizer.json"))
        alone = phrases or (workers is None and world > 1)
        with Workers(Path(folder) / "tokenizer.json", 1 if alone else workers) as pool:
            for matrix, counted, characters in pool.each(
                count_texts, shards(), lambda: pool.worth_it(read, source.share_read())
            ):
                tally.add_counts(matrix)
                documents += counted
                done += characters
                show(done * world, read, source.share_read())
    matrix, documents = _sum_over_processes(tally.total(), documents, job) if world > 1 else (tally.total(), documents)
    if not documents.any():
        raise ValueError(f"Corpus {source.name} has no text to count. Give a corpus that has some.")
    facts = {
        "corpora": [{"name": source.name, **source.fingerprint()}],
        "tokenizer_sha256": hashlib.sha256(backend.to_str().encode()).hexdigest(),
        "special_ids": list(job.special_ids),
        "phrases": phrases,
    }
    return Counts(matrix, positions, groups, documents, align, facts)


def count_windows(
    window_set: WindowSet, positions: int, *, align: str = "start", groups: int = 32, whole: bool = False
) -> Counts:
    """The same from windows on disk: position 0 is the first token of a row, or of a document where documents are
    isolated.

    A group is a run of neighbouring rows, because rows next to each other may be pieces of one document. Its
    `documents` are rows. With `whole`, documents that run on are followed from row to row: position 0 is the first
    token of each, and `documents` are those.

    Raises:
        ValueError: an option out of range, or `whole` for windows whose documents do not run on.
    """
    if whole and window_set.join != "run-on":
        raise ValueError(
            f"Documents are followed from row to row in run-on windows only; these are join={window_set.join}."
        )
    manifest = Windows(window_set.folder).manifest
    job = CountJob(window_set.vocab_size, positions, _no_text(window_set.special_ids), align, groups)
    tally, documents, done = job.tally(), np.zeros(groups, np.int64), 0
    for ids, marks, starts in window_set.shards():
        chosen = (done + np.arange(len(starts) - 1)) * groups // len(window_set)
        done += len(starts) - 1
        if whole or window_set.join == "isolate":
            begins = np.flatnonzero(marks & DOCUMENT)
            chosen = chosen[np.searchsorted(starts, begins, side="right") - 1]
            starts = np.append(begins, starts[-1])
        tally.add(ids, starts, chosen)
        documents += np.bincount(chosen, minlength=groups)
    source = {**manifest["source"], "split": window_set.split}
    facts = {
        "corpora": [source],
        "tokenizer_sha256": manifest["tokenizer_sha256"],
        "special_ids": list(job.special_ids),
    }
    return Counts(tally.total(), positions, groups, documents, align, facts)


def count_texts(tokenizer: Tokenizer, job: CountJob, texts: Sequence[str]) -> tuple[csr_array, np.ndarray, int]:
    """Counts, documents of each group (G,), and the number of characters of some documents; may run in a worker
    process."""
    tally, encoder = job.tally(), _encoder(tokenizer)
    keys = texts if job.keys is None else [job.keys.get(text, text) for text in texts]
    groups = np.array([zlib.crc32(key.encode("utf-8")) % job.groups for key in keys], np.int64)
    done = 0
    for batch in _batches(texts, _BATCH):
        ids, starts = encoder.encode(batch, job.positions if job.align == "start" else None)
        tally.add(ids, starts, groups[done : done + len(batch)])
        done += len(batch)
    return tally.total(), np.bincount(groups, minlength=job.groups), sum(map(len, texts))


@lru_cache(maxsize=1)
def _encoder(tokenizer: Tokenizer) -> BulkEncoder:
    """The same from shard to shard, as it remembers words."""
    return BulkEncoder(tokenizer)


def _documents(source: Source, most: int | None) -> Iterator[str]:
    """The documents of a source, of each about the first `most` characters."""
    held: list[str] = []
    size = 0
    for first, text in source.parts():
        if first and held:
            yield "".join(held)
            held, size = [], 0
        if most is None or size < most:
            held.append(text)
            size += len(text)
    if held:
        yield "".join(held)


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Texts in lists of about `size` characters."""
    held: list[str] = []
    characters = 0
    for text in texts:
        held.append(text)
        characters += len(text)
        if characters >= size:
            yield held
            held, characters = [], 0
    if held:
        yield held


def _no_text(special_ids: dict[str, int]) -> tuple[int, ...]:
    """The ids that are no text; [UNK] stands for a word, so it is counted."""
    return tuple(sorted({i for name, i in special_ids.items() if name != "unk_token_id"}))


def _rank() -> tuple[int, int]:
    """(number of this process, processes) of a launcher, joined together; (0, 1) without one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1
    state = PartialState(cpu=not torch.cuda.is_available())
    return state.process_index, state.num_processes


def _sum_over_processes(matrix: csr_array, documents: np.ndarray, job: CountJob) -> tuple[csr_array, np.ndarray]:
    """The sum of what the processes of a launcher counted, in each of them; one after the other, so that two matrices
    are held."""
    channel = torch.distributed.new_group(backend="gloo")  # counts are in this machine's memory, whatever the device
    tally, total = job.tally(), np.zeros_like(documents)
    for sender in range(torch.distributed.get_world_size()):
        sent: list[Any] = [(matrix, documents) if torch.distributed.get_rank() == sender else None]
        torch.distributed.broadcast_object_list(sent, src=sender, group=channel)
        tally.add_counts(sent[0][0])
        total += sent[0][1]
    torch.distributed.destroy_process_group(channel)
    return tally.total(), total
