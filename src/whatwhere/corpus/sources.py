"""Sources by the name that a corpus argument gives them, and data sets of the Hugging Face Hub."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from .python_docs import PythonDocs
from .source import Source, first_line
from .synthetic import Regimes, RepeatedDocuments, ThreeRegimes
from .text_files import Files, text_field


def open_source(spec: str | Path, field: str = "text", document: str = "auto") -> Source:
    """Open the source that a corpus argument names, such as `python-docs`, a file, a folder or `hub:NAME`.

    Args:
        field: the field of a .jsonl, .json, .tsv, .csv, .parquet or Hub corpus that holds the text; `doc.text` is a
            field inside a field.
        document: rule for documents of a text file, see `text_files.Files`.

    Raises:
        ValueError: nothing of that name, a file that is no text and has an unknown ending, an unknown `document` rule.
    """
    name = str(spec)
    if name == "python-docs":
        return PythonDocs()
    if name.startswith("hub:"):
        return Hub(name, field)
    if name == "synthetic:repeat":
        return RepeatedDocuments()
    kind, _, options = name.removeprefix("synthetic:").partition(":")
    if name.startswith("synthetic:") and kind == "three-regimes":
        return ThreeRegimes(Regimes.parse(options))
    if name.startswith("synthetic:"):
        raise ValueError(
            f"Unknown synthetic corpus {name!r}. There are synthetic:repeat and "
            "synthetic:three-regimes[:n=32,seed=0,...]."
        )
    source = Files(Path(spec).expanduser(), field, document)
    _print_once(source.remark)
    return source


@cache
def _print_once(remark: str) -> None:
    """Print a line on stderr, once a process: a study opens its text again and again."""
    if remark:
        print(remark, file=sys.stderr)


class Hub(Source):
    """Text of a data set on the Hugging Face Hub, `hub:NAME[:CONFIG]`: each row a document, its text in `field`.

    The rows of the split "train" (or of the first split) come in their order, streamed through `datasets`, so nothing
    of it is kept on disk; the revision is fixed at the first look, so later passes read the same text. Its `files` are
    the data set's, as far as `datasets` can read them apart. Needs the network.

    Raises:
        ValueError: no name. While reading: the Hub cannot be reached, has no such data set, configuration or field.
    """

    def __init__(self, spec: str, field: str = "text"):
        parts = spec.removeprefix("hub:").split(":")
        if len(parts) > 2 or not all(parts):
            raise ValueError(
                f"Corpus {spec!r} names no data set. Write hub:NAME or hub:NAME:CONFIG, for example "
                "hub:HuggingFaceFW/fineweb:sample-10BT."
            )
        self.name = spec
        self.field = field
        self.dataset = parts[0]
        self.config = parts[1] if len(parts) == 2 else None
        self._rows: Any = None
        self._about: dict[str, Any] = {}
        self._row_count = 0
        self._total = None

    def _open(self) -> Any:
        if self._rows is None:
            import datasets  # takes a second, so only for a corpus of the Hub
            from huggingface_hub import HfApi

            try:
                revision = HfApi().dataset_info(self.dataset).sha
                splits = datasets.load_dataset(self.dataset, self.config, revision=revision, streaming=True)
            except Exception as error:  # network, Hub and data set scripts raise classes of half a dozen libraries
                raise ValueError(
                    f"Cannot open {self.name!r} on the Hub: {first_line(error)} Check the name and the network."
                ) from error
            split = "train" if "train" in splits else next(iter(splits))
            self._rows = splits[split]
            sizes = self._rows.info.splits or {}
            self._total = sizes[split].num_examples if split in sizes else None
            self._about = {"dataset": self.dataset, "config": self.config, "split": split, "revision": revision}
            self._about["field"] = self.field
        return self._rows

    def documents(self) -> Iterator[str]:
        self._row_count = 0
        return self._texts(self._open(), self.name)

    def _texts(self, rows: Any, name: str) -> Iterator[str]:
        for number, row in enumerate(rows, 1):
            self._row_count += 1
            yield text_field(row, self.field, f"{name}, row {number}")

    def files(self) -> Sequence[Source]:
        self._row_count = 0
        count = self._open().num_shards
        return [_HubFile(self, number, count) for number in range(count)] if count > 1 else [self]

    def fingerprint(self) -> dict[str, Any]:
        self._open()
        return dict(self._about)

    def share_read(self) -> float | None:
        return min(1.0, self._row_count / self._total) if self._total else None


class _HubFile(Source):
    """One file of a data set on the Hub."""

    def __init__(self, whole: Hub, number: int, count: int):
        self.name = f"{whole.name}, file {number + 1} of {count}"
        self._whole = whole
        self._rows = whole._open().shard(count, number)

    def documents(self) -> Iterator[str]:
        return self._whole._texts(self._rows, self.name)


def hub_rows(name: str, config: str | None, split: str, hint: str) -> Any:
    """Fetch the rows of a split of a Hub data set, which `datasets` caches; each row maps columns to values.

    Args:
        hint: advice that ends an error message.

    Raises:
        ValueError: the data set cannot be fetched.
    """
    import datasets  # takes a second, so only for the Hub

    with _fetching(", ".join(filter(None, (name, config))), hint):
        return datasets.load_dataset(name, config, split=split)


def hub_configs(name: str, hint: str) -> Sequence[str]:
    """Fetch the names of the configurations of a Hub data set.

    Raises:
        ValueError: as `hub_rows`.
    """
    import datasets

    with _fetching(name, hint):
        return datasets.get_dataset_config_names(name)


@contextmanager
def _fetching(what: str, hint: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # network and Hub raise classes of half a dozen libraries
        raise ValueError(f"{what} cannot be fetched ({first_line(error)[:160]}). {hint}") from None
