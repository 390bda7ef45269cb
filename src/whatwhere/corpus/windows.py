"""Windows of token ids, memory-mapped from a folder whose facts and counts build.py wrote."""

import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from ..run.files import check_inside, read_array, read_object
from ..run.folder import RunFolder
from .segments import DOCUMENT, PIECE, token_segments
from .shards import SPLITS
from .tokenizer import load_tokenizer, tokenizer_hash, tokenizer_rules

FORMAT = "whatwhere-windows-4"
FACTS = "windows.json"  # what the windows are: settings, counts, shards
BUILT = "windows"  # the step that finishes a folder of windows
OTHER_FILES = 512  # that a process may have open beside windows


@dataclass(frozen=True)
class Window:
    """A row of tokens, each array of the row's own length n.

    input_ids: int64. position_ids: int64 from 0, special tokens included, restarted per document where documents are
        isolated.
    document_ids: int64, which document of the row (all 0 unless isolated). segments, progress: see
        `segments.token_segments`.
    """

    input_ids: np.ndarray
    position_ids: np.ndarray
    document_ids: np.ndarray
    segments: np.ndarray
    progress: np.ndarray


class WindowSet:
    """The windows of one split, read from disk as they are asked for."""

    def __init__(
        self,
        folder: Path,
        split: str,
        facts: dict[str, Any],
        run: RunFolder | None = None,
        checked: set[str] | None = None,
    ):
        self.folder = folder
        self.split = split
        self._run = run  # None: the shards have just been written
        self._checked = set[str]() if checked is None else checked  # shards of this split that were looked at
        self.length: int = facts["length"]
        self.join: str = facts["join"]
        self.special_ids: dict[str, int] = facts["special_token_ids"]
        self.vocab_size: int = facts["vocab_size"]
        shards = [s for s in facts["shards"] if s["windows"][split]]
        self._names = [s["name"] for s in shards]
        self._ends = np.cumsum([s["windows"][split] for s in shards])
        self._open: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def document_numbers(self) -> np.ndarray:
        """Return the number of the document that each row begins in: (len,) int64, from 0 in the order of the text.

        Raises:
            ValueError: as `shards`.
        """
        numbers = [np.empty(0, np.int64)]
        before = -1
        for _, marks, starts in self.shards():
            opened = before + np.cumsum((marks & DOCUMENT) != 0)
            numbers.append(np.maximum(opened[after_cls(starts)], 0))
            before = int(opened[-1])
        return np.concatenate(numbers)

    def documents_begun(self) -> list[int]:
        """Count the documents that have begun by the end of each shard."""
        return np.cumsum([np.count_nonzero(marks & DOCUMENT) for _, marks, _ in self.shards()], dtype=np.int64).tolist()

    def from_start(self) -> float | None:
        """Return the share of the rows that begin with the beginning of a document, in [0, 1]; None without rows."""
        if not len(self):
            return None
        opened = 0
        for _, marks, starts in self.shards():
            opened += int(np.count_nonzero(marks[after_cls(starts)] & DOCUMENT))
        return opened / len(self)

    def shards(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield (ids, marks, starts) of each shard, memory-mapped: row i is ids[starts[i]:starts[i + 1]].

        One shard at a time is open, as pages that are read of a mapped file count as memory of the process.

        ids (t,), marks (t,) uint8, starts (rows + 1,) int64.

        Raises:
            ValueError: a file is missing, damaged or not as it was written, or has an id outside the vocabulary.
        """
        for number in range(len(self._names)):
            yield self._open.get(number) or self._mapped(number)

    def _shard(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if number not in self._open:
            self._open[number] = self._mapped(number)
        return self._open[number]

    def _mapped(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        names = [f"shards/{self._names[number]}.{self.split}.{part}.npy" for part in ("ids", "marks", "starts")]
        known = self._names[number] in self._checked
        if not known and self._run is not None:
            self._run.check(*names)
        hint = _again(self.folder)
        ids, marks, starts = (read_array(self.folder / name, hint, mapped=True) for name in names)
        if known:
            return ids, marks, starts
        ends = [*starts[:1], *starts[-1:]] if starts.ndim == 1 else []
        if ids.ndim != 1 or ids.shape != marks.shape or ends != [0, len(ids)] or (np.diff(starts) < 0).any():
            raise ValueError(f"{self.folder / names[2]} holds no beginnings of rows of {names[0]}. {hint}")
        if len(ids) and int(ids.max()) >= self.vocab_size:
            raise ValueError(
                f"{self.folder / names[0]} holds the id {int(ids.max())}, and the vocabulary has "
                f"{self.vocab_size} entries. Build the windows again."
            )
        self._checked.add(self._names[number])
        return ids, marks, starts

    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each window: (len,) int64.

        Raises:
            ValueError: as `shards`.
        """
        return np.concatenate([np.diff(starts) for _, _, starts in self.shards()] or [np.empty(0, np.int64)])

    def row(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and marks (n,) of window `index`, as views of the file.

        Raises:
            IndexError: there is no such window.
            ValueError: as `shards`.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        ids, marks, starts = self._shard(number)
        at = index - (int(self._ends[number - 1]) if number else 0)
        return ids[starts[at] : starts[at + 1]], marks[starts[at] : starts[at + 1]]

    def __getitem__(self, index: int) -> Window:
        ids, marks = self.row(index)
        documents, positions = places(marks, self.join)
        return Window(ids.astype(np.int64), positions, documents, *token_segments(marks))

    def __iter__(self) -> Iterator[Window]:
        return (self[i] for i in range(len(self)))


def after_cls(starts: np.ndarray) -> np.ndarray:
    """Return the index (rows,) of each row's first token of text, or of its last token where it has no text.

    starts: (rows + 1,) index of each row's first token, and the number of tokens.
    """
    return np.minimum(starts[:-1] + 1, starts[1:] - 1)


def places(marks: np.ndarray, join: str) -> tuple[np.ndarray, np.ndarray]:
    """Return document_ids and position_ids, (n,) int64 each, from the marks (n,) of a row.

    With join=isolate, pieces are numbered from 0 in the row and positions restart at 0 in each; otherwise all
    document_ids are 0 and positions run from 0 to n - 1.
    """
    n = len(marks)
    if join != "isolate":
        return np.zeros(n, np.int64), np.arange(n, dtype=np.int64)
    opens = (marks & PIECE) != 0
    documents = np.cumsum(opens).astype(np.int64) - 1
    return documents, np.arange(n, dtype=np.int64) - np.flatnonzero(opens)[documents]


class Windows:
    """A finished folder of windows: `windows["train"]`, `windows["held_out"]`, `windows.facts`.

    Raises:
        ValueError: the folder holds no finished windows or windows of another format, or a file of it is missing, of
            another size, or not as it was written.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        path = self.folder / FACTS
        if not is_built(self.folder):
            raise ValueError(f"{folder} holds no finished windows. Run again what builds them; it goes on from there.")
        self._run = RunFolder.at(self.folder)
        self._checked: dict[str, set[str]] = {split: set() for split in SPLITS}
        self._run.check(FACTS, "unigrams.npy")
        RunFolder.at(self.folder / "tokenizer").check_all()
        self.facts: dict[str, Any] = read_facts(path)
        if self.facts.get("format") != FORMAT:
            raise ValueError(
                f"{folder} has window format {self.facts.get('format')!r}, this version reads {FORMAT!r}. Build "
                "them again."
            )
        _check_facts(path, self.facts)
        allow_open_files(len(self.facts["files"]))
        for name, size in self.facts["files"].items():
            file = self.folder / name
            state = f"{file.stat().st_size} bytes long" if file.is_file() else "missing"
            if state != f"{size} bytes long":
                raise ValueError(
                    f"{file} should be {size} bytes long, it is {state}. Delete {folder} and build the windows again."
                )

    def __getitem__(self, split: str) -> WindowSet:
        if split not in SPLITS:
            raise ValueError(f"No split {split!r}. Splits: {', '.join(SPLITS)}.")
        return WindowSet(self.folder, split, self.facts, self._run, self._checked[split])

    def unigrams(self) -> np.ndarray:
        """Count how often each id occurs as text in the windows of the train split: (vocab_size,) int64.

        Raises:
            ValueError: the file of the counts is damaged.
        """
        return read_array(self.folder / self.facts["unigrams"], _again(self.folder))

    def unigram_entropy(self) -> float:
        """Return the loss in nats of a model that knows token frequencies alone, over the tokens that can be masked.

        Raises:
            ValueError: the file of the counts is damaged.
        """
        counts = self.unigrams().astype(np.float64)
        counts[list(self.facts["special_token_ids"].values())] = 0
        p = counts[counts > 0] / counts.sum()
        return float(-(p * np.log(p)).sum())

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Open the tokenizer that made the windows, saved beside them."""
        return load_tokenizer(self.folder / "tokenizer")

    def has_tokenizer(self, tokenizer: PreTrainedTokenizerFast) -> bool:
        """Return whether `tokenizer` made these windows, by its file or its rules.

        Raises:
            ValueError: the tokenizer is no fast one, or the one beside the windows is damaged.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ValueError(f"{type(tokenizer).__name__} gives no character offsets. Use a fast tokenizer.")
        if self.facts["tokenizer_sha256"] == tokenizer_hash(tokenizer):
            return True
        beside = (self.folder / "tokenizer").is_dir()
        return beside and tokenizer_rules(self.tokenizer().backend_tokenizer) == tokenizer_rules(backend)


def allow_open_files(count: int) -> None:
    """Let this process hold `count` files of windows open, as far as the system's hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


_KINDS = {
    **{
        "length": int,
        "join": str,
        "pieces": str,
        "vocab_size": int,
        "special_token_ids": dict,
        "shards": list,
        "files": dict,
    },
    **{"unigrams": str, "tokenizer_sha256": str},
}


def _check_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse facts that lack what is read of them.

    Raises:
        ValueError: the first key that is missing, or is of another kind; a name of a file outside of the folder.
    """
    wrong = [key for key, kind in _KINDS.items() if not isinstance(facts.get(key), kind)]
    shards = facts.get("shards")
    for shard in shards if isinstance(shards, list) else ():
        counts = shard.get("windows") if isinstance(shard, dict) and isinstance(shard.get("name"), str) else None
        if not isinstance(counts, dict) or not all(isinstance(counts.get(split), int) for split in SPLITS):
            wrong.append("shards")
    if wrong:
        raise ValueError(f"{path} has no {wrong[0]!r} as windows have. {_again(path.parent)}")
    check_inside(path, [*facts["files"], facts["unigrams"], *(shard["name"] for shard in facts["shards"])])


def is_built(folder: Path) -> bool:
    """Return whether a folder holds finished windows; one without the list of its files is taken unchecked."""
    run = RunFolder.at(folder)
    return (folder / FACTS).is_file() and (run.kind is None or BUILT in run.inputs_of_finished())


def own_windows(tokenizer: Any, folder: Path) -> Windows | None:
    """Return the windows of the run or study of a model or checkpoint, if they are of this tokenizer."""
    for run in (folder, *list(folder.resolve().parents)[:5]):
        if (run / "corpus/windows.json").is_file() and (windows := Windows(run / "corpus")).has_tokenizer(tokenizer):
            return windows
    return None


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts of a folder of windows.

    Raises:
        ValueError: the file is damaged.
    """
    return read_object(path, hint=_again(path.parent))


def _again(folder: Path) -> str:
    return f"Delete the folder {folder} and build the windows again."
