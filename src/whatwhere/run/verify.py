"""Comparison of files with the hashes in their manifests, and new hashes for files that a user has changed."""

from contextlib import suppress
from pathlib import Path

from .folder import MANIFEST, RunFolder


def verify(folder: Path) -> tuple[int, list[str]]:
    """Return how many files below a folder the manifests list, and a sentence for each that is missing or damaged.

    Raises:
        ValueError: there is no such folder.
    """
    if not folder.is_dir():
        problem = f"{folder} is no folder" if folder.exists() else f"There is no folder {folder}"
        raise ValueError(f"{problem}. Give the folder of a run or a model.")
    count = 0
    problems: list[str] = []
    for path in sorted(folder.rglob(MANIFEST)):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):  # a folder that is being written
            continue
        try:
            run = RunFolder.at(path.parent)
        except ValueError as error:  # a manifest of another program or version
            problems.append(str(error))
            continue
        count += len(run.listed_files())
        if first_look := list(run.problems()):
            # Another process may be writing the run: only problems that a second look also sees are real.
            second_look = set(run.problems())
            problems += [problem for problem in first_look if problem in second_look]
    return count, problems


def files_without_hash(folder: Path) -> list[str]:
    """List the files below a folder that no manifest lists, such as pages, cards and growing logs, sorted.

    Manifests are left out, and files whose name, or the name of a folder above them, begins with a dot.
    """
    listed: set[Path] = set()
    below: list[Path] = []
    for path in folder.rglob("*"):
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        below.append(path)
        if path.name == MANIFEST:
            listed.add(path)
            with suppress(ValueError):  # `verify` names such a manifest
                listed |= {path.parent / name for name in RunFolder.at(path.parent).listed_files()}
    return sorted(str(path.relative_to(folder)) for path in below if path not in listed)


def update_hash(folder: Path, name: str) -> None:
    """Replace the hash of a file that a user has changed on purpose in the manifest of its run.

    Args:
        folder: Folder of the run, or a folder around it.
        name: Path of the file, relative to the folder or to the working directory.

    Raises:
        ValueError: the folder belongs to no run, or its manifest lists no such file.
    """
    run = RunFolder.at(folder)
    for path in (folder / name, Path(name)):
        for inner in path.parents if path.is_file() and path.resolve().is_relative_to(folder.resolve()) else ():
            # The model of a study is a run of its own: the nearest folder above the file that lists it.
            if (inner / MANIFEST).is_file() and RunFolder.at(inner).has(str(path.relative_to(inner))):
                name = str(path.relative_to(inner))
                folder = inner
                run = RunFolder.at(inner)
                break
    if run.kind is None:
        raise ValueError(f"{folder} has no whole {MANIFEST}. Give the folder of the run whose file you changed.")
    if not run.has(name):
        names = run.listed_files()
        more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
        file_exists = (folder / name).is_file()
        problem = "has no hash, as pages, cards and growing logs have none" if file_exists else "is not there"
        raise ValueError(f"{folder / name} {problem}. Files with a hash: {', '.join(names[:20])}{more}.")
    with RunFolder.open(folder, run.kind) as writable:
        writable.add_to_manifest(name)
