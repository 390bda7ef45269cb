"""The manifest of a run: one line of `manifest.jsonl` for each change of its files and steps.

A line that is no JSON, such as a torn one of a killed process, is ignored. Several handles (`Manifest` objects) add
lines: one of the command that has locked the run, and one for each job, whose lines have a random token under `by`. A
line with new hashes is written before its files are renamed, and the files are renamed before the next line. So only
files of a handle's last line can still have their former content.

The first line has `format` and `kind`. Others may have `files` (name -> hash), `removed` (names), `done` (a finished
step, with its `inputs`, its `outcome`, and the names of its files, `step_files`), and `closed` (every
rename of the lines before is settled; further lines may follow) with `restored` (former hashes of files that were
never renamed).
"""

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .files import append_line, sha256

MANIFEST = "manifest.jsonl"
FORMAT = "whatwhere-run-2"


class Manifest:
    """Handle of a run's manifest: files and steps as of the last `refresh`, which reads the lines added since.

    folder: folder of the run. kind: kind of the run; None without a manifest. files: name -> SHA-256. steps: name of a
    finished step -> its inputs, files and outcome. is_command: True for the handle of the command that makes the run,
    False for a job's or a reader's.
    """

    def __init__(self, folder: Path, *, is_command: bool = False) -> None:
        self.folder = folder
        self._token = "" if is_command else secrets.token_hex(4)  # key "by" of the lines of this handle
        self._reset()

    def _reset(self) -> None:
        self.kind: str | None = None
        self.files: dict[str, str] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        # Token of a handle -> files in its last line -> their hashes before that line.
        self._pending: dict[str, dict[str, str | None]] = {}
        self._state: tuple[int, int, int] | None = None  # of the file when it was last read, see `_state_of`
        self._applied_bytes = 0
        self._last_applied_line = b""  # ends at `_applied_bytes`

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.folder / MANIFEST

    @property
    def is_empty(self) -> bool:
        """True where the last `refresh` had read no whole line."""
        return not self._applied_bytes

    def begin(self, kind: str) -> None:
        """Add the first line, with the kind of the run."""
        self.append({"format": FORMAT, "kind": kind})

    def append(self, line: dict[str, Any]) -> None:
        """Add a line and flush it to the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        append_line(self.path, line | ({"by": self._token} if self._token else {}), flush=True)

    def refresh(self) -> None:
        """Read and apply the lines that were added since the last call.

        Raises:
            ValueError: another program or another version wrote a line.
        """
        state = _state_of(self.path)
        if state == self._state:
            return
        if state is None:
            self._reset()
            return
        is_other_file = self._state is None or state[0] != self._state[0]
        if is_other_file or state[2] <= self._applied_bytes:
            self._reset()
        for row in self._read_new_bytes().splitlines(keepends=True):
            line: Any = None
            with suppress(ValueError):  # a crash cut the line off
                line = json.loads(row)
            if isinstance(line, dict):
                try:
                    self._apply(line)
                except (TypeError, AttributeError):  # another program wrote the line
                    raise ValueError(
                        f"{self.path} is no manifest of whatwhere: a line has values of other types. Restore it."
                    ) from None
            elif not row.endswith(b"\n"):  # perhaps it is being written
                break
            self._applied_bytes += len(row)
            self._last_applied_line = row
        self._state = state

    def _read_new_bytes(self) -> bytes:
        """Return the bytes after the last line that was applied, or all bytes of a file that was replaced."""
        with self.path.open("rb") as file:
            last_line = self._last_applied_line
            file.seek(self._applied_bytes - len(last_line))
            if file.read(len(last_line)) != last_line:
                self._reset()
            file.seek(self._applied_bytes)
            return file.read()

    def _apply(self, line: Mapping[str, Any]) -> None:
        """Change files and steps as a line says, and note the former hashes of its files until they are renamed."""
        token = str(line.get("by", ""))
        if "closed" in line:
            self._pending = {}
        for name, digest in line.get("restored", {}).items():
            if digest is None:
                self.files.pop(name, None)
            else:
                self.files[name] = digest
        new = line.get("files", {})
        self._pending[token] = {name: self.files.get(name) for name in new}
        self.files.update(new)
        for name in line.get("removed", ()):
            self.files.pop(name, None)
            for name_below in [known for known in self.files if known.startswith(f"{name}/")]:
                del self.files[name_below]
        if "kind" in line:
            if (written := line.get("format")) != FORMAT:
                raise ValueError(
                    f"{self.path} has the format {str(written)[:40]!r}, this version reads {FORMAT!r}. Use the version "
                    "that wrote it, or choose another --out."
                )
            self.kind = str(line["kind"])
        if "done" in line:
            self.steps[str(line["done"])] = {
                "inputs": line.get("inputs", {}),
                "step_files": line.get("step_files", []),
                "outcome": line.get("outcome", {}),
            }

    def former_hashes(self, name: str) -> set[str | None]:
        """Return the hashes that a file may still have before a handle renames it; None: the file may be missing."""
        return {pending[name] for pending in self._pending.values() if name in pending}

    def resolve_pending(self) -> None:
        """Restore the former hashes of files that a killed process did not rename. Call it while no job writes."""
        self.refresh()
        pending_hashes = {name: digest for pending in self._pending.values() for name, digest in pending.items()}
        if not pending_hashes:
            return
        restored = {}
        for name, digest in pending_hashes.items():
            path = self.folder / name
            if name in self.files and (not path.is_file() or sha256(path) != self.files[name]):
                restored[name] = digest
        self.append({"closed": True, "restored": restored})


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Return inode, time of change and size of a file; None where there is none.

    The file is opened first: else NFS may return, for a minute, the state before a change by another machine.
    """
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size
