"""The folder of a run: its files with their hashes, its finished steps, its log, and its lock.

`manifest.jsonl` (`run.manifest`) lists every file with its hash, except pages, cards and logs that still grow. A file
is written under a temporary name, its hash is added to the manifest, and the file is renamed. A process that is killed
before the rename leaves a hash that the file does not have yet; the next `open` puts the former hash back.

One command holds the lock. Its jobs write to this run through `RunFolder.at`, without a lock. A run inside that
`open` opens, such as a training of a study, has a lock of its own; one that `create` makes, such as a checkpoint, none.
A command that writes a whole folder at once (`export`, `extrapolate`) makes it by `create_locked`.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from .errors import command_line
from .files import (
    TEMPORARY,
    append_line,
    cached_hash_of,
    check_writable,
    flush_names,
    new_file,
    new_folder,
    read_lines,
    remove_folder,
    sha256,
    sweep,
)
from .formats import format_of
from .lock import LOCK, WRITER, InUse, is_free, lock, writer_of
from .manifest import MANIFEST, Manifest

LOG = "log.jsonl"
_LONGEST = 4096  # characters of a path
_removable_runs: set[Path] = set()  # runs made by this process, removed with the run around them if it is refused
# What `create`, `move_in` and `files_not_in_manifest` leave out: lines are added to the first two, people edit cards. A
# finished training lists its log all the same. Pages have no hash either: no method of a run writes them.
_FILES_WITHOUT_HASH = (MANIFEST, LOG, "README.md")


class RunFolder:
    """Folder of a run: `open` yields it under a lock, `at` returns it without one, `create` makes it whole in one go.

    path: path of the folder. is_new: True where `open` found no manifest with a whole line.
    """

    def __init__(self, path: Path, *, is_command: bool = False) -> None:
        self.path = path
        self.is_new = False
        self._manifest = Manifest(path, is_command=is_command)
        self._is_provisional = False  # True for a new run until its input is accepted
        self._removable_at_open: frozenset[Path] = frozenset()  # `_removable_runs` when this run was opened

    # ---- opening ----

    @classmethod
    @contextmanager
    def open(cls, path: str | Path, kind: str) -> Iterator[Self]:
        """Open a run for writing under its lock, and create it if it is missing.

        Jobs of the run write through `at`. Temporary files of killed processes are removed.

        A run is new if it has no manifest yet. If the block raises ValueError before it calls `accept_input` or
        `mark_done`, a new run is refused: its listed files are removed, with the runs that this process made inside it
        and did not keep (`keep_inner_run`). Calls by jobs do not count, which have a `RunFolder` of their own. What a
        killed command left stays: for the next command the run is not new.

        Args:
            kind: Kind of the run ("study", "pretrain", ...).

        Raises:
            ValueError: the folder cannot be written, or holds something else than a run of this kind.
            InUse: another process writes to it.
        """
        path = Path(path)
        check_writable(path)
        if path.is_file():
            raise ValueError(f"{path} is a file, where the folder of a run is needed. Choose another --out.")
        with lock(path):
            run = cls(path, is_command=True)
            run._manifest.refresh()
            run.is_new = run._manifest.is_empty
            run._begin_or_check(kind)
            run._is_provisional = run.is_new
            run._removable_at_open = frozenset(_removable_runs)
            if run.is_new:
                _removable_runs.add(path.resolve())
            sweep(path, is_free)
            run._manifest.resolve_pending()
            try:
                yield run
            except ValueError:
                if run._is_provisional:
                    run._withdraw()
                raise
            finally:
                run._manifest.resolve_pending()
                sweep(path, is_free)  # processes of this run that were stopped leave temporary names

    @classmethod
    @contextmanager
    def create(cls, path: str | Path, kind: str) -> Iterator[Path]:
        """Yield an empty folder; if the block raises nothing, list its files in a manifest and rename it to `path`."""
        is_new = not Path(path).exists()
        with new_folder(Path(path)) as folder:
            yield folder
            (folder / MANIFEST).unlink(missing_ok=True)  # the block may have copied a run with its manifest
            run = cls(folder, is_command=True)
            run._manifest.begin(kind)
            run.add_to_manifest(*run.files_not_in_manifest())
            run._manifest.resolve_pending()
        if is_new:
            _removable_runs.add(Path(path).resolve())

    @classmethod
    @contextmanager
    def create_locked(cls, path: str | Path, kind: str, *, replaces: bool = False) -> Iterator[Path]:
        """Do what `create` does under the lock of `path`, for a command whose --out it is.

        Args:
            replaces: True where an earlier folder of this kind may be replaced.

        Raises:
            ValueError: as `check_can_create`.
        """
        path = Path(path)
        cls.check_can_create(path, kind, replaces=replaces)
        with lock(path):
            cls._check_content(path, kind, replaces)  # another process may have written it since
            with cls.create(path, kind) as folder:
                yield folder

    @classmethod
    def check_can_create(cls, path: Path, kind: str, *, replaces: bool = False) -> None:
        """Refuse a path at which `create_locked` would not create a folder.

        Raises:
            ValueError: it is a file, or a folder with other content.
            InUse: another process writes to it.
        """
        if path.is_file():
            raise ValueError(f"{path} is a file. Give --out a folder.")
        if path.is_dir():
            if (writer := writer_of(path)) is not None:
                raise InUse(path, writer)
            cls._check_content(path, kind, replaces)

    @classmethod
    def _check_content(cls, path: Path, kind: str, replaces: bool) -> None:
        """Refuse a folder with other content than the lock, unless it may be replaced."""
        # What a killed command leaves: its lock, and the writer's file or its temporary one. All else is somebody's.
        names = [entry.name for entry in path.iterdir()]
        targets = [match["target"] if (match := TEMPORARY.match(name)) else name for name in names]
        if set(targets) <= {LOCK, WRITER}:
            return
        if not replaces:
            raise ValueError(f"{path} is there already. Give --out another name.")
        if cls.at(path).kind != kind:
            raise ValueError(f"{path} holds something else than an earlier {kind}. Choose another --out.")

    @classmethod
    def at(cls, path: str | Path) -> Self:
        """Return a handle without a lock: to read a run, or to write as a job of the command that holds the lock."""
        run = cls(Path(path))
        run._manifest.refresh()
        return run

    @staticmethod
    def tidy(path: Path) -> None:
        """Remove temporary files and locks of killed processes from a run; do nothing if it is in use or read-only."""
        with suppress(InUse, OSError), lock(path):
            sweep(path, is_free)

    @property
    def name(self) -> str:
        """Name of the folder, also where it was given as "." or ".."."""
        return self.path.resolve().name

    @property
    def kind(self) -> str | None:
        """Kind of the run; None for a folder without a manifest."""
        self._manifest.refresh()
        return self._manifest.kind

    def _begin_or_check(self, kind: str) -> None:
        """Begin a manifest in a folder without one, and refuse a run of another kind or a folder with other files."""
        if self._manifest.kind == kind:
            return
        if self._manifest.kind is not None:
            raise ValueError(f"{self.path} holds a run of {self._manifest.kind}, not of {kind}. Choose another --out.")
        if not self._manifest.is_empty:
            raise ValueError(
                f"The first line of {self.path / MANIFEST} is damaged, so nothing says what the folder holds. Use a "
                "complete copy, or choose another --out."
            )
        self.check_no_foreign_files(kind)
        self._manifest.begin(kind)

    def check_no_foreign_files(self, kind: str) -> None:
        """Refuse a folder without a manifest in which a run of a kind cannot begin: it holds other files.

        Raises:
            ValueError: it holds files of an unknown program, or a run without its manifest.
        """
        for path in self.path.iterdir():
            if (path / MANIFEST).is_file() or path.name.startswith("."):
                continue
            if path.name == MANIFEST:  # without a whole line: a process was killed as it wrote the first one
                continue
            if path.is_dir() and all(name.startswith(".") for name in os.listdir(path)):  # a run that begins
                continue
            if path.is_dir() and not is_free(path):  # a run that another process begins
                continue
            if (self.path / "hashes.json").is_file() or (self.path / f"{kind}.yaml").is_file():
                raise ValueError(
                    f"{self.path} has no {MANIFEST}: it was written before version 0.1.0 was final, or is an "
                    f"incomplete copy, and cannot be resumed. Choose another --out; give a {kind}.yaml of yours by "
                    "--config."
                )
            raise ValueError(
                f"{self.path} is not empty and holds no {kind} run ({MANIFEST} is missing). Choose another --out."
            )

    # ---- files ----

    def write(self, name: str, value: Any) -> None:
        """Write a file whole or not at all, in the format of its suffix (`run.formats`), and list its hash.

        Raises:
            OSError: the disk is full or not writable; the file before is still there.
        """
        path = self.path / name
        encode = format_of(name).write

        def list_hash(temporary: Path) -> None:
            self._manifest.append({"files": {name: sha256(temporary)}})

        with new_file(path, before_rename=list_hash) as file:
            encode(file, value)

    def read(self, name: str) -> Any:
        """Return the value of a file, in the format of its suffix, after comparing its hash.

        A process computes a hash again only where the file's time or size has changed.

        Raises:
            ValueError: the file is missing, damaged, or not as it was written.
        """
        self.check(name)
        if not (self.path / name).is_file():  # not listed, or listed just before its first rename: `check` passes both
            raise ValueError(
                f"{self.path / name} is missing. Use a complete copy of the folder, or run the command again."
            )
        return format_of(name).read(self.path / name)

    def has(self, name: str) -> bool:
        """Return whether the manifest lists a file and the file exists."""
        self._manifest.refresh()
        return name in self._manifest.files and (self.path / name).is_file()

    def listed_files(self, pattern: str = "*") -> list[str]:
        """Return the names of the files in the manifest that match a pattern, sorted."""
        self._manifest.refresh()
        return sorted(name for name in self._manifest.files if Path(name).match(pattern))

    def hash_of(self, name: str) -> str:
        """Return the SHA-256 of a file from the manifest, or of its present bytes where the manifest lists none."""
        self._manifest.refresh()
        return self._manifest.files.get(name) or cached_hash_of(self.path / name)

    def add_to_manifest(self, *names: str, hashes: Mapping[str, str] = MappingProxyType({})) -> None:
        """Add files that `write` did not write to the manifest, with their present hashes.

        Args:
            hashes: Name -> SHA-256 of further files, where another process has computed them.
        """
        self._manifest.append({"files": {**{name: sha256(self.path / name) for name in names}, **hashes}})

    def files_not_in_manifest(self) -> list[str]:
        """Return the names of the files that the manifest does not list.

        The log, the manifest and README.md of the run, names that begin with a dot, and runs inside are left out.
        """
        self._manifest.refresh()
        return [name for name in _files_below(self.path) if name not in self._manifest.files]

    def move_in(self, folder: Path, *, last: str = "") -> list[str]:
        """Add the files of a folder to the manifest, and move its entries into the run, over entries of the same names.

        last: name of the entry that moves last.

        Returns:
            The names of the moved files that the manifest now lists.
        """
        hashes = {name: sha256(folder / name) for name in _files_below(folder)}
        self._manifest.append({"files": hashes})
        for path in sorted(folder.iterdir(), key=lambda path: path.name == last):
            target = self.path / path.name
            if target.is_dir():
                remove_folder(target)
            os.replace(path, target)
        flush_names(self.path)
        return list(hashes)

    def drop_entries(self, *names: str) -> None:
        """Remove files or folders from the manifest before code that writes no hashes changes them."""
        self._manifest.append({"removed": list(names)})

    def remove(self, *names: str) -> None:
        """Remove files or folders of the run, from its manifest first.

        Finished steps stay in the manifest, also those whose files are removed: `is_reusable` looks at the files.
        """
        self.drop_entries(*names)
        for name in names:
            path = self.path / name
            if path.is_dir():
                remove_folder(path)
            else:
                path.unlink(missing_ok=True)

    def check(self, *names: str) -> None:
        """Compare files with their hashes in the manifest.

        A file without a listed hash passes, even if it does not exist. So does a file whose first hash is listed and
        whose rename is still to come, in this process or another one.

        Raises:
            ValueError: the first file that is missing or not as it was written.
        """
        self._raise_first(self.problems(names))

    def check_all(self) -> None:
        """Compare every file that the manifest lists with its hash.

        Raises:
            ValueError: the first file that is missing or not as it was written.
        """
        self._raise_first(self.problems())

    def check_present_files(self) -> None:
        """Compare every listed file that exists with its hash; one that is missing passes, as its step runs again.

        Raises:
            ValueError: the first file that is not as it was written.
        """
        self.check(*filter(self.has, self.listed_files()))

    def _raise_first(self, problems: Iterable[str]) -> None:
        """Raise the first of some problems, if there is one, as a ValueError that says what to do."""
        if problem := next(iter(problems), None):
            if problem.endswith(" is missing"):
                raise ValueError(f"{problem}. Use a complete copy, or give the command again that wrote it.")
            accept = command_line("verify", self.path, "--accept", "FILE")
            raise ValueError(
                f"{problem}. Use a complete copy, or delete it and give the command again that wrote it; if you "
                f"changed it, record it as it stands: {accept}"
            )

    def problems(self, names: Iterable[str] | None = None) -> Iterator[str]:
        """Yield a problem, without a full stop, for each file that is missing or not as it was written.

        names: files to look at; default: all listed ones. A name that leads out of the run is a problem, too; a file
        without a hash is none.
        """
        self._manifest.refresh()
        for name in sorted(self._manifest.files) if names is None else names:
            if not _is_inside(name):
                yield f"{self.path / MANIFEST} names the file {name[:200]!r}, which is not inside {self.path}"
                continue
            path = self.path / name
            actual = cached_hash_of(path) if path.is_file() else None
            if actual in {self._manifest.files.get(name, actual), *self._manifest.former_hashes(name)}:
                continue
            if actual is None:
                yield f"{path} is missing"
            else:
                yield f"{path} is not as it was written (hash mismatch)"

    # ---- steps and log ----

    def mark_done(
        self,
        step: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        files: Iterable[str] = (),
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """Mark a step as finished in the manifest, and accept the input of the run (`accept_input`).

        Args:
            inputs: Plain values that the step was made from; `is_reusable` compares them. None are needed where they
                follow from settings that cannot change in this run.
            files: Names of the files that the step wrote.
            outcome: Small results, plain values, that need no file.
        """
        self.accept_input()
        values = {"inputs": dict(inputs or {}), "step_files": list(files), "outcome": dict(outcome or {})}
        self._manifest.append({"done": step, **values})

    def accept_input(self) -> None:
        """Keep the files of this new run from now on, even if a later step raises.

        A new run around this one still removes them if it is refused, unless `keep_inner_run` was called.
        """
        self._is_provisional = False

    def is_reusable(self, step: str, *, inputs: Mapping[str, Any] | None = None) -> bool:
        """Return whether a step is finished from these inputs (None: any) and its files are as last listed.

        The manifest's newest hash of a file counts, whichever step or `whatwhere verify --accept` listed it.
        """
        finished = self.finished_step(step)
        if finished is None or (inputs is not None and finished["inputs"] != json.loads(json.dumps(dict(inputs)))):
            return False
        return self.damage_of_step(step) is None

    def damage_of_step(self, step: str) -> str | None:
        """Return a sentence on the first missing, else the first changed file of a finished step; None if none is.

        A step that was never finished has no files, so the answer is None.
        """
        names = (self.finished_step(step) or {"step_files": []})["step_files"]
        for name in names:
            if not (self.path / name).is_file():
                return f"{self.path / name} is missing"
        return next(self.problems(names), None)

    def check_step(self, step: str) -> None:
        """Compare the files of a finished step with their hashes.

        Raises:
            KeyError: the step is not finished.
            ValueError: the first file that is missing or not as it was written.
        """
        self._manifest.refresh()
        self.check(*self._manifest.steps[step]["step_files"])

    def inputs_of_finished(self) -> dict[str, dict[str, Any]]:
        """Return the names of the finished steps, each with the inputs that it was made from."""
        self._manifest.refresh()
        return {name: dict(step["inputs"]) for name, step in self._manifest.steps.items()}

    def finished_step(self, step: str) -> Mapping[str, Any] | None:
        """Return `inputs`, `step_files`, `outcome` of a step once finished, even if its files are gone; else None."""
        self._manifest.refresh()
        return self._manifest.steps.get(step)

    def outcome_of(self, step: str) -> dict[str, Any]:
        """Return the small results of a finished step.

        Raises:
            KeyError: the step is not finished.
        """
        self._manifest.refresh()
        return dict(self._manifest.steps[step]["outcome"])

    def log(self, **values: Any) -> None:
        """Add a line to log.jsonl."""
        append_line(self.path / LOG, values)

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the lines of log.jsonl, without one that a crash cut off."""
        return read_lines(self.path / LOG)

    def _withdraw(self) -> None:
        """Remove the listed files of a new run whose input was refused, and the runs that were made inside it."""
        names = self.listed_files()
        self.remove(*names)
        for name in (LOG, MANIFEST):
            (self.path / name).unlink(missing_ok=True)
        for folder in sorted({(self.path / name).parent for name in names} - {self.path}, reverse=True):
            with suppress(OSError):  # it holds files that are not listed
                folder.rmdir()
        inner_runs = [path for path in _removable_runs - self._removable_at_open if self.path.resolve() in path.parents]
        for path in sorted(inner_runs):
            _removable_runs.discard(path)
            if path.is_dir() and is_free(path):
                remove_folder(path)


def keep_inner_run(path: Path) -> None:
    """Keep a run, and all runs inside it, where the new run around it is refused: the next command can use it."""
    path = path.resolve()
    _removable_runs.difference_update([run for run in _removable_runs if path in (run, *run.parents)])


def _is_inside(name: str) -> bool:
    """Return whether a name leads to a file below its folder; a damaged or foreign manifest may have others."""
    return len(name) < _LONGEST and not Path(name).is_absolute() and ".." not in Path(name).parts


def _files_below(folder: Path, below: str = "") -> Iterator[str]:
    """Yield the names of files below a folder that get a hash.

    Runs inside, names that begin with a dot, and `_FILES_WITHOUT_HASH` are left out.

    below: Start of the names, a folder inside that ends with a slash.
    """
    for path in sorted((folder / below).iterdir()):
        name = f"{below}{path.name}"
        if path.name.startswith(".") or name in _FILES_WITHOUT_HASH:
            continue
        if not path.is_dir():
            yield name
        elif not (path / MANIFEST).is_file():
            yield from _files_below(folder, f"{name}/")
