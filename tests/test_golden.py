"""Every figure, table, section and verdict is what it was: see golden.py for what to do where one is not."""

from pathlib import Path

import golden
import numpy as np
import pytest


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Hash of every part of every page, as the code makes them."""
    folder: Path = tmp_path_factory.mktemp("golden")
    return golden.hashes(golden.everything(folder))


def test_no_page_part_or_verdict_has_moved(now: dict[str, dict[str, str]]) -> None:
    """No part of a page and no verdict has moved."""
    before, after = (
        {f"{page}: {part}": of[part] for page, of in pages.items() for part in of} for pages in (golden.kept(), now)
    )
    moved = [part for part in sorted(before.keys() | after.keys()) if before.get(part) != after.get(part)]
    assert not moved, "\n".join(
        [f"{len(moved)} parts moved; python tests/golden.py --keep, if they were to:", *moved[:40]]
    )


def test_a_digest_tells_numbers_apart_up_to_five_digits() -> None:
    same, other = {"x": [1.000001, np.float64(2)]}, {"x": [1.0001, np.float64(2)]}
    assert golden.digest(golden.canonical(same)) == golden.digest(golden.canonical({"x": (1.0, 2.0)}))
    assert golden.digest(golden.canonical(other)) != golden.digest(golden.canonical(same))
