"""Synthetic documents: DOC-A + DOC-B + DOC-A, where the second DOC-A can only be told from the first by its place (DSTG fig. 3)."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.corpus.sources import Source

_SUBJECTS = (
    "the miller,a young doctor,my neighbour,the old captain,a tired clerk,the gardener,her brother,the teacher,a stranger,the twins".split(
        ","
    )
)
_VERBS = "found,carried,painted,forgot,sold,repaired,hid,borrowed,weighed,described,counted,praised".split(",")
_OBJECTS = (
    "a wooden box,the long letter,two silver spoons,an empty cup,the broken clock,his winter coat,a map,the last apple,some rope".split(",")
)
_PLACES = (
    "near the river,behind the station,before breakfast,in the attic,under the bridge,at noon,on the hill,without a word,in spring".split(
        ","
    )
)


class RepeatedDocuments(Source):
    """`synthetic:repeat`: each document is a text A of a few sentences, another text B, and A again, each a paragraph on its own line."""

    name = "synthetic:repeat"

    def __init__(self, documents: int = 4000, sentences: int = 3, seed: int = 0):
        if documents < 1 or sentences < 1:
            raise ValueError(f"synthetic:repeat needs at least one document and one sentence, got {documents} and {sentences}.")
        self.count, self.sentences, self.seed = documents, sentences, seed
        self._read = 0

    def documents(self) -> Iterator[str]:
        for number in range(self.count):
            self._read = number + 1
            generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, number))))
            a, b = (self._text(generator) for _ in range(2))
            yield f"{a}\n{b}\n{a}"

    def _text(self, generator: np.random.Generator) -> str:
        chosen = [
            [words[i] for i in generator.integers(len(words), size=self.sentences)] for words in (_SUBJECTS, _VERBS, _OBJECTS, _PLACES)
        ]
        return " ".join(f"{' '.join(words)}.".capitalize() for words in zip(*chosen, strict=True))

    def fingerprint(self) -> dict[str, Any]:
        code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return {"documents": self.count, "sentences": self.sentences, "seed": self.seed, "generator_sha256": code}

    def share_read(self) -> float | None:
        return self._read / self.count
