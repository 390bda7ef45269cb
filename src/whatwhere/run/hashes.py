"""Hashes of the files of a folder, written when it is finished and compared when a file is opened, so that a copy that
was damaged on its way is told from a whole one."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .files import check_inside, read_json, read_object, write_json
from .folder import verify as verify_runs

HASHES = "hashes.json"  # name below the folder -> SHA-256
_LONGEST = 4096  # characters of a path
_BELOW = "# sha256 of the lines below: "
REST = "sha256 of the rest"  # a key of an object of JSON
# Lines are added to logs, pages are drawn again from what is hashed, and cards are there to be edited.
LEFT_OUT = ("log.jsonl", HASHES, "*.html", "README.md")


def sha256(path: Path) -> str:
    """Of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_hashes(folder: Path, known: Mapping[str, str] | None = None, more: Iterable[str] = ()) -> None:
    """Write down the hash of every file below a folder, but for names that begin with a dot, and for those of which a
    folder in it has hashes of its own, whose list is hashed instead.

    known: hashes that need not be computed: all that the folder has. more: names of files that are left out otherwise.
    """
    found = {name: sha256(folder / name) for name in (*_files(folder), *more)} if known is None else dict(known)
    write_json(folder / HASHES, found)


def _files(folder: Path, below: str = "") -> Iterator[str]:
    own = {f"{below}{name}" for name in hashes(folder / below)} if below else set()
    for path in sorted((folder / below).iterdir()):
        name = f"{below}{path.name}"
        free = any(path.match(each) for each in LEFT_OUT) and not (below and path.name == HASHES)  # a list can be lost
        if path.name.startswith(".") or free:
            continue
        if path.is_dir():
            yield from (each for each in _files(folder, f"{name}/") if each not in own)
        elif name not in own:
            yield name


def forget_hashes(folder: Path) -> None:
    """Before its files change: without hashes nothing is compared."""
    (folder / HASHES).unlink(missing_ok=True)


def hashes(folder: Path) -> dict[str, str]:
    """Name -> hash of the files of a folder; {} where none were written.

    Raises:
        ValueError: the list itself is damaged, or names a file outside of the folder.
    """
    path = folder / HASHES
    if not path.is_file():
        return {}
    found = read_json(path, "Use a complete copy of the folder.")
    return _checked(path, found, "Use a complete copy of the folder.")


def _checked(path: Path, found: Any, way_out: str) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(v, str) and len(k) < _LONGEST for k, v in found.items()):
        raise ValueError(f"{path} holds no hashes of files. {way_out}")
    check_inside(path, found)
    return found


def check_files(folder: Path, *names: str, known: Mapping[str, str] | None = None, way_out: str | None = None) -> None:
    """Compare files of a folder with its hashes, where it has some; without names all that have one.

    known: its hashes, where they have been read. way_out: ends the message.

    Raises:
        ValueError: the first that is missing or differs.
    """
    known = hashes(folder) if known is None else known
    for problem in _differing(folder, known, names or known):
        usual = f"Use a complete copy; if you changed it yourself, delete {folder / HASHES}."
        raise ValueError(f"{problem}. {way_out or usual}")


def _differing(folder: Path, known: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        path = folder / name
        if name in known and not path.is_file():
            yield f"{path} is missing"
        elif name in known and hash_now(path) != known[name]:
            yield f"{path} is not as it was written (its hash differs)"


def hash_now(path: Path) -> str:
    """As `sha256`, but of a file that has not changed since this process last asked."""
    return _hash_of_state(path, path.stat().st_mtime_ns, path.stat().st_size)


@cache  # a pass over more shards than it held would hash them all again
def _hash_of_state(path: Path, changed: int, size: int) -> str:
    return sha256(path)


def with_hash(text: str) -> str:
    """Lines of YAML, and above them a comment with their hash: for a file that one call writes and the next goes on
    with, in a folder that has no hashes yet."""
    return f"{_BELOW}{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def check_lines(path: Path) -> None:
    """Compare the lines of a file with the hash above them; a file that a person wrote has none.

    Raises:
        ValueError: they differ, or the file ends before them.
    """
    held = path.read_bytes()
    first, _, text = held.partition(b"\n")
    above, old, digest = held.rpartition(b"# sha256 of the lines above: ")  # of earlier versions
    if old and digest.strip() != hashlib.sha256(above).hexdigest().encode():
        raise ValueError(
            f"{path} is not as it was written (its hash differs). Use a complete copy; if you changed it yourself, "
            "delete its last line."
        )
    if not _BELOW.encode().startswith(first[: len(_BELOW)]):
        return
    if first.decode(errors="replace") != f"{_BELOW}{hashlib.sha256(text).hexdigest()}":
        raise ValueError(
            f"{path} is not as it was written (its hash differs). Use a complete copy; if you changed it yourself, "
            "delete its first line."
        )


def write_hashed(path: Path, facts: Mapping[str, Any]) -> None:
    """Write an object as JSON with a hash of what it says: as `with_hash`, for what no person writes."""
    write_json(path, {**facts, REST: hash_of(facts)})


def read_hashed(path: Path, *keys: str, way_out: str) -> dict[str, Any]:
    """What `write_hashed` wrote. Where the object has `hashes`, names of files beside it, those are compared, too.

    Raises:
        ValueError: as `files.read_object`; it, or a file that it names, is missing or not as it was written.
    """
    found = read_object(path, *keys, way_out=way_out)
    if found.pop(REST, None) not in (None, hash_of(found)):
        raise ValueError(f"{path} is not as it was written (its hash differs). {way_out}")
    check_files(path.parent, known=_checked(path, found.get("hashes", {}), way_out), way_out=way_out)
    return found


def hash_of(facts: Mapping[str, Any]) -> str:
    """Of what an object says, as it comes back from a file of JSON: keys are words there."""
    return hashlib.sha256(json.dumps(json.loads(json.dumps(facts))).encode()).hexdigest()


def verify(folder: Path) -> tuple[int, list[str]]:
    """Files below a folder that have a hash, and a line for each that is missing or differs."""
    count, problems = verify_runs(folder)
    for path in sorted(folder.rglob(HASHES)):
        try:
            known = hashes(path.parent)
        except ValueError as error:
            problems.append(str(error))
            continue
        count += len(known)
        problems += _differing(path.parent, known, known)
    return count, problems
