"""Fixtures of the corpus tests: a small text, a tokenizer trained on it, sources made of lists, a folder of windows."""

import numpy as np
import pytest

from whatwhere.corpus import Source, build_windows, train_tokenizer

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()


def made_up_documents(count: int, seed: int = 0) -> list[str]:
    """Documents of a few sentences on one or more lines, all different."""
    generator = np.random.default_rng(seed)
    documents = []
    for number in range(count):
        lines = []
        for _ in range(int(generator.integers(1, 4))):
            sentences = [
                " ".join(generator.choice(WORDS, int(generator.integers(2, 9))))
                for _ in range(int(generator.integers(1, 4)))
            ]
            lines.append(" ".join(s.capitalize() + "." for s in sentences))
        documents.append(f"Number {number}.\n" + "\n".join(lines))
    return documents


class ListSource(Source):
    """Documents from a list; `read` counts how many were asked for."""

    name = "list"

    def __init__(self, texts, version=0):
        self.texts = list(texts)
        self.version = version
        self.read = 0

    def documents(self):
        for text in self.texts:
            self.read += 1
            yield text

    def fingerprint(self):
        return {"version": self.version}


@pytest.fixture(scope="session")
def documents() -> list[str]:
    return made_up_documents(300)


@pytest.fixture(scope="session")
def list_source():
    return ListSource


@pytest.fixture(scope="session")
def tokenizer(documents):
    return train_tokenizer(documents, vocab_size=120)


@pytest.fixture(scope="session")
def windows(documents, tokenizer, tmp_path_factory):
    """Function from (join, length) to windows of the small text."""
    made = {}

    def of(join="run-on", length=32):
        if (join, length) not in made:
            out = tmp_path_factory.mktemp("windows") / "w"
            source = ListSource(documents)
            made[join, length] = build_windows(
                source, tokenizer, out, length=length, join=join, held_out=0.1, progress=False
            )
        return made[join, length]

    return of
