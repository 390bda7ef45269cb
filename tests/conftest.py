"""Fixtures that all tests share."""

from pathlib import Path

import pytest
from cli_runner import sentences


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory) -> Path:
    """400 short made-up documents, separated by blank lines."""
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text(sentences(400), encoding="utf-8")
    return path
