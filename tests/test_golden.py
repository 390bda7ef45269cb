"""Every figure, table, section and verdict is what it was: see golden.py for what to do where one is not."""

from pathlib import Path

import golden
import numpy as np
import pytest

Parts = dict[str, object]


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """What is told of every part of every page, as the code makes them."""
    folder: Path = tmp_path_factory.mktemp("golden")
    return by_place(golden.readable(folder))


def by_place(files: dict[str, dict[str, dict[str, object]]]) -> Parts:
    """What is told of every part, by its file, its page and its name."""
    found: Parts = {}
    for file, pages in files.items():
        for page, parts in pages.items():
            found |= {f"{file}: {page}: {part}": said for part, said in parts.items()}
    return found


@pytest.mark.long
def test_no_page_part_or_verdict_has_moved(now: Parts) -> None:
    """No part of a page and no verdict has moved."""
    before = by_place(golden.kept())
    moved = [part for part in sorted(before.keys() | now.keys()) if before.get(part) != now.get(part)]
    words = [f"{part}\n  was {before.get(part)}\n  is  {now.get(part)}" for part in moved[:40]]
    assert not moved, "\n".join([f"{len(moved)} parts moved; python tests/golden.py --keep, if they were to:", *words])


def test_a_digest_tells_numbers_apart_up_to_five_digits() -> None:
    same = {"x": [1.000001, np.float64(2)]}
    other = {"x": [1.0001, np.float64(2)]}
    assert golden.digest(golden.canonical(same)) == golden.digest(golden.canonical({"x": (1.0, 2.0)}))
    assert golden.digest(golden.canonical(other)) != golden.digest(golden.canonical(same))
