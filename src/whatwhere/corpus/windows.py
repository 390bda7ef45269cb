"""Documents to memory-mapped windows of token ids, in a folder with a manifest (hashes, counts).

Text is read once, in order, into shards; worker processes turn each shard into rows. A finished shard is on disk with the hash of its text,
so a killed run goes on where it stopped. Memory holds a few shards, whatever the size of the corpus.
"""

import hashlib
import json
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from whatwhere.corpus.segments import DOCUMENT, SPECIAL, token_segments
from whatwhere.corpus.shards import JOINS, SPLITS, Part, build_rows, document_share
from whatwhere.corpus.sources import Source
from whatwhere.corpus.tokenizer import has_newline_token, one_thread, special_token_ids

FORMAT = "whatwhere-windows-1"
SHARD_CHARACTERS = 2_000_000


@dataclass(frozen=True)
class Window:
    """One row of tokens, each array of the row's own length n.

    input_ids: int64. position_ids: int64 from 0, special tokens included, restarted per document where documents are isolated.
    document_ids: int64, which document of the row (all 0 unless isolated). segments, progress: see `segments.token_segments`.
    special: bool, [CLS] and [SEP].
    """

    input_ids: np.ndarray
    position_ids: np.ndarray
    document_ids: np.ndarray
    segments: np.ndarray
    progress: np.ndarray
    special: np.ndarray


class WindowSet:
    """The windows of one split, read from disk as they are asked for."""

    def __init__(self, folder: Path, split: str, manifest: dict[str, Any]):
        self.folder, self.split, self.manifest = folder, split, manifest
        self.length: int = manifest["length"]
        self.join: str = manifest["join"]
        self.special_ids: dict[str, int] = manifest["special_token_ids"]
        self.vocab_size: int = manifest["vocab_size"]
        self._shards = [s["name"] for s in manifest["shards"] if s["windows"][split]]
        self._ends = np.cumsum([s["windows"][split] for s in manifest["shards"] if s["windows"][split]])
        self._open: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def shards(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(ids, marks, starts) of each shard, memory-mapped: row i of a shard is ids[starts[i]:starts[i + 1]]."""
        for number in range(len(self._shards)):
            yield self._shard(number)

    def _shard(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if number not in self._open:
            stem = self.folder / "shards" / f"{self._shards[number]}.{self.split}"
            ids, marks, starts = (np.load(f"{stem}.{part}.npy", mmap_mode="r", allow_pickle=False) for part in ("ids", "marks", "starts"))
            self._open[number] = ids, marks, starts
        return self._open[number]

    def row(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """ids and marks (n,) of window `index`, as views of the file."""
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        ids, marks, starts = self._shard(number)
        at = index - (int(self._ends[number - 1]) if number else 0)
        return ids[starts[at] : starts[at + 1]], marks[starts[at] : starts[at + 1]]

    def __getitem__(self, index: int) -> Window:
        ids, marks = self.row(index)
        documents, positions = places(marks, self.join)
        segments, progress = token_segments(marks)
        return Window(ids.astype(np.int64), positions, documents, segments, progress, (marks & SPECIAL) != 0)

    def __iter__(self) -> Iterator[Window]:
        return (self[i] for i in range(len(self)))


def places(marks: np.ndarray, join: str) -> tuple[np.ndarray, np.ndarray]:
    """document_ids and position_ids (n,) of a row; both restart only where documents are isolated."""
    n = len(marks)
    if join != "isolate":
        return np.zeros(n, np.int64), np.arange(n, dtype=np.int64)
    begin = np.flatnonzero(marks & DOCUMENT)
    documents = np.cumsum((marks & DOCUMENT) != 0).astype(np.int64) - 1
    return documents, np.arange(n, dtype=np.int64) - begin[documents]


class Windows:
    """A finished folder of windows: `windows["train"]`, `windows["held_out"]`, `windows.manifest`.

    Raises:
        ValueError: the folder holds no finished windows, or a file of it is missing or of another size than when it was written.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        path = self.folder / "manifest.json"
        if not path.is_file():
            raise ValueError(
                f"{folder} holds no finished windows (no manifest.json). Build them with build_windows, which also goes on where it stopped."
            )
        self.manifest: dict[str, Any] = _read_json(path)
        if self.manifest.get("format") != FORMAT:
            raise ValueError(
                f"{folder} has window format {self.manifest.get('format')!r}, this version reads {FORMAT!r}. Build the windows again."
            )
        for name, size in self.manifest["files"].items():
            file = self.folder / name
            if not file.is_file() or file.stat().st_size != size:
                seen = f"{file.stat().st_size} bytes" if file.is_file() else "missing"
                raise ValueError(f"{file} should have {size} bytes, it is {seen}. Delete {folder} and build the windows again.")

    def __getitem__(self, split: str) -> WindowSet:
        if split not in SPLITS:
            raise ValueError(f"No split {split!r}. Splits: {', '.join(SPLITS)}.")
        return WindowSet(self.folder, split, self.manifest)

    def unigrams(self) -> np.ndarray:
        """How often each id occurs as text in the train split: (vocab_size,) int64."""
        return np.load(self.folder / "unigrams.npy", allow_pickle=False)

    def unigram_entropy(self) -> float:
        """Loss in nats of a model that knows only how often each token occurs, over the tokens that can be masked."""
        counts = self.unigrams().astype(np.float64)
        counts[list(self.manifest["special_token_ids"].values())] = 0
        p = counts[counts > 0] / counts.sum()
        return float(-(p * np.log(p)).sum())

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer that made the windows, saved beside them."""
        return AutoTokenizer.from_pretrained(self.folder / "tokenizer", trust_remote_code=False)


def build_windows(
    source: Source,
    tokenizer: PreTrainedTokenizerFast,
    out: str | Path,
    length: int = 128,
    join: str = "run-on",
    held_out: float = 0.05,
    workers: int | None = None,
    progress: bool = True,
    shard_characters: int = SHARD_CHARACTERS,
) -> Windows:
    """Cuts the documents of `source` into windows of at most `length` tokens, [CLS] and [SEP] included, in the folder `out`.

    join: "run-on" (documents follow each other in full rows), "none" (a window is a piece of one document), "isolate" (several documents or
    pieces in a row, told apart by document_ids, positions restarted). held_out: share of the documents kept from training, by a hash of their
    text. workers: processes, this one included; default one a core. A finished folder of the same settings and text is opened as it is.

    Raises:
        ValueError: a setting is out of range, `out` holds windows of other settings or another text, or nothing is left to train on.
    """
    out = Path(out)
    if join not in JOINS:
        raise ValueError(f"join must be one of {', '.join(JOINS)}, not {join!r}.")
    if length < 3:
        raise ValueError(f"length={length} leaves no room for text between [CLS] and [SEP]. Use 8 or more.")
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out={held_out} must be a share of the documents in [0, 1), for example 0.05.")
    json_text = tokenizer.backend_tokenizer.to_str()
    settings = {
        "format": FORMAT,
        "length": length,
        "join": join,
        "held_out": held_out,
        "vocab_size": len(tokenizer),
        "newline_token": has_newline_token(tokenizer),
        "special_token_ids": special_token_ids(tokenizer),
        "tokenizer_sha256": hashlib.sha256(json_text.encode()).hexdigest(),
        "shard_characters": shard_characters,
        "source": {"name": source.name, **source.fingerprint()},
    }
    _check_settings(out, settings)
    if (out / "manifest.json").is_file():
        return Windows(out)
    (out / "shards").mkdir(parents=True, exist_ok=True)
    _write_json(out / "settings.json", settings)
    tokenizer.save_pretrained(out / "tokenizer")

    task = {
        "length": length,
        "join": join,
        "cls_id": settings["special_token_ids"]["cls_token_id"],
        "sep_id": settings["special_token_ids"]["sep_token_id"],
        "dtype": "uint16" if len(tokenizer) <= 2**16 else "uint32",
        "folder": str(out / "shards"),
    }
    threshold = held_out
    with _Workers(json_text, workers) as pool:
        shards = _build(source, pool, task, threshold, progress, shard_characters)
        if not shards:
            raise ValueError(f"Corpus {source.name} is empty: no document has any text.")
        least = min(s["least_share"] for s in shards)
        total = {split: sum(s["windows"][split] for s in shards) for split in SPLITS}
        if held_out and not total["held_out"] and sum(s["documents"]["train"] for s in shards) > 1:
            threshold = float(np.nextafter(least, 1))  # too few documents for the share: keep back the one with the smallest hash
        elif not total["train"]:
            threshold = 0.0  # the only documents all fell to the held-out side: train on them
        if threshold != held_out:
            shards = _build(source, pool, task, threshold, progress, shard_characters)
            total = {split: sum(s["windows"][split] for s in shards) for split in SPLITS}
    if not total["train"]:
        raise ValueError(
            f"Corpus {source.name} gives no window to train on: {sum(s['documents']['train'] for s in shards)} documents without a token."
        )
    return _finish(out, settings, shards, task["dtype"])


def _check_settings(out: Path, settings: dict[str, Any]) -> None:
    """An unfinished or finished folder must have been started with the same settings."""
    path = out / "settings.json"
    if not path.is_file():
        if out.is_dir() and any(out.iterdir()):
            raise ValueError(f"{out} is not empty and holds no windows. Give an empty or new folder.")
        return
    before = _read_json(path)
    differing = [k for k in settings if before.get(k) != json.loads(json.dumps(settings[k]))]
    if differing:
        key = differing[0]
        seen = f"{str(before.get(key))[:80]}, now {str(settings[key])[:80]}"
        others = f" (also: {', '.join(differing[1:])})" if differing[1:] else ""
        raise ValueError(f"{out} holds windows with another {key}: {seen}{others}. Give another folder, or delete this one.")


def _parts(source: Source) -> Iterator[Part]:
    share = 0.0
    for first, text in source.parts():
        if first:
            share = document_share(text)
        yield Part(text, first, share)


def _shards_of_text(source: Source, size: int) -> Iterator[list[Part]]:
    shard: list[Part] = []
    characters = 0
    for part in _parts(source):
        shard.append(part)
        characters += len(part.text)
        if characters >= size:
            yield shard
            shard, characters = [], 0
    if shard:
        yield shard


def _digest(parts: list[Part], task: dict[str, Any]) -> str:
    """Hash of all that decides the rows of a shard."""
    digest = hashlib.sha256(json.dumps({k: v for k, v in task.items() if k != "folder"}, sort_keys=True).encode())
    for part in parts:
        text = part.text.encode("utf-8", "surrogatepass")
        digest.update(f"\0{len(text)} {part.first}\0".encode())
        digest.update(text)
    return digest.hexdigest()


def _build(source: Source, pool: "_Workers", task: dict[str, Any], threshold: float, progress: bool, size: int) -> list[dict[str, Any]]:
    """Builds the shards that are not on disk yet; the descriptions of all, in order."""
    task = {**task, "threshold": threshold}
    done: dict[int, dict[str, Any]] = {}
    waiting: deque[tuple[int, Future[dict[str, Any]]]] = deque()
    with _bar(source, progress) as advance:

        def take(number: int, meta: dict[str, Any]) -> None:
            done[number] = meta
            advance(meta)

        for number, parts in enumerate(_shards_of_text(source, size)):
            job = {**task, "name": f"{number:05d}", "digest": _digest(parts, task)}
            meta = _finished(job)
            if meta is not None:
                take(number, meta)
                continue
            while waiting and waiting[0][1].done():
                first, future = waiting.popleft()
                take(first, future.result())
            submitted = pool.submit(job, parts) if len(waiting) < 2 * pool.children else None
            if submitted is None:
                take(number, _work(job, parts, pool.tokenizer))
            else:
                waiting.append((number, submitted))
        for number, future in waiting:
            take(number, future.result())
    return [done[number] for number in sorted(done)]


class _Workers:
    """Worker processes, started when the second shard comes; this process works too when they are busy."""

    def __init__(self, tokenizer_json: str, workers: int | None):
        self.json = tokenizer_json
        self.tokenizer = Tokenizer.from_str(tokenizer_json)
        self.children = max(0, (workers if workers is not None else len(os.sched_getaffinity(0))) - 1)
        self.executor: ProcessPoolExecutor | None = None

    def submit(self, job: dict[str, Any], parts: list[Part]) -> Future[dict[str, Any]] | None:
        if job["name"] == "00000":
            return None
        if self.executor is None:
            context = multiprocessing.get_context("spawn")
            self.executor = ProcessPoolExecutor(self.children, context, initializer=_start_worker, initargs=(self.json,))
        return self.executor.submit(_work, job, parts)

    def __enter__(self) -> "_Workers":
        self._threads = one_thread()
        self._threads.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.executor is not None:
            self.executor.shutdown(cancel_futures=True)
        self._threads.__exit__(None, None, None)


_worker_tokenizer: Tokenizer | None = None


def _start_worker(tokenizer_json: str) -> None:
    global _worker_tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _worker_tokenizer = Tokenizer.from_str(tokenizer_json)


def _work(job: dict[str, Any], parts: list[Part], tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Builds one shard and writes it; its description is written last, so a shard with one is whole."""
    tokenizer = tokenizer or _worker_tokenizer
    assert tokenizer is not None
    rows = build_rows(tokenizer, parts, job["length"], job["join"], job["threshold"], job["cls_id"], job["sep_id"])
    folder = Path(job["folder"])
    sizes = {}
    for split, row in rows.items():
        if len(row.starts) > 1:
            arrays = {"ids": row.ids.astype(job["dtype"]), "marks": row.marks, "starts": row.starts}
            for part, array in arrays.items():
                name = f"{job['name']}.{split}.{part}.npy"
                _save(folder / name, array)
                sizes[name] = (folder / name).stat().st_size
    meta = {
        "name": job["name"],
        "digest": job["digest"],
        "files": sizes,
        "least_share": min(part.share for part in parts),
        "windows": {split: len(row.starts) - 1 for split, row in rows.items()},
        **{
            key: {split: int(getattr(row, key)) for split, row in rows.items()} for key in ("documents", "characters", "tokens", "left_out")
        },
    }
    _write_json(folder / f"{job['name']}.json", meta)
    return meta


def _finished(job: dict[str, Any]) -> dict[str, Any] | None:
    """The description of a shard that is on disk, made from the same text with the same settings."""
    path = Path(job["folder"]) / f"{job['name']}.json"
    try:
        meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        whole = all((path.parent / name).stat().st_size == size for name, size in meta["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return meta if whole and meta.get("digest") == job["digest"] else None


class _bar:
    """A progress bar over the characters of the source on stderr; `advance` takes the description of a finished shard."""

    def __init__(self, source: Source, progress: bool):
        self.source, self.progress = source, progress

    def __enter__(self) -> Any:
        if not self.progress:
            return lambda meta: None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("windows"), BarColumn(), TextColumn("{task.fields[done]}"), TimeRemainingColumn()
        self.bar = Progress(*columns, console=console, transient=not console.is_terminal)
        task = self.bar.add_task("windows", total=None, done="")
        self.bar.start()
        seen = 0

        def advance(meta: dict[str, Any]) -> None:
            nonlocal seen
            seen += sum(meta["characters"].values())
            self.bar.update(task, completed=seen, total=self.source.characters(), done=f"{seen / 1e6:.0f} million characters")

        return advance

    def __exit__(self, *error: Any) -> None:
        if self.progress:
            self.bar.stop()


def _finish(out: Path, settings: dict[str, Any], shards: list[dict[str, Any]], dtype: str) -> Windows:
    """Counts the tokens of the train split and writes the manifest, last."""
    files = {f"shards/{name}": size for s in shards for name, size in s["files"].items()}
    for stale in (out / "shards").iterdir():
        if f"shards/{stale.name}" not in files and stale.suffix != ".json":
            stale.unlink()
    totals = {
        key: {split: sum(s[key][split] for s in shards) for split in SPLITS}
        for key in ("documents", "characters", "tokens", "left_out", "windows")
    }
    manifest = {**settings, **totals, "dtype": dtype, "unigrams": "unigrams.npy", "files": files}
    manifest["shards"] = [{"name": s["name"], "windows": s["windows"], "digest": s["digest"]} for s in shards]
    counts = np.zeros(settings["vocab_size"], np.int64)
    for ids, marks, _ in WindowSet(out, "train", manifest).shards():
        counts += np.bincount(ids[(marks & SPECIAL) == 0], minlength=len(counts))
    _save(out / "unigrams.npy", counts)
    files["unigrams.npy"] = (out / "unigrams.npy").stat().st_size
    _write_json(out / "manifest.json", manifest)
    return Windows(out)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not readable JSON ({error}). Delete the folder {path.parent} and build the windows again.") from error


def _write_json(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=1), encoding="utf-8")
    os.replace(temporary, path)


def _save(path: Path, array: np.ndarray) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)
    os.replace(temporary, path)
