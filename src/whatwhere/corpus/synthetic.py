"""Synthetic documents: DOC-A + DOC-B + DOC-A, where the second DOC-A can only be told from the first by its place (DSTG
fig. 3); and the three-regime corpus, where what stands at a position is known (GEOM 6.1).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from .draws import generator_of
from .source import Source

_SUBJECTS = (
    "the miller,a young doctor,my neighbour,the old captain,a tired clerk,the gardener,her brother,"
    "the teacher,a stranger,the twins"
).split(",")
_VERBS = "found,carried,painted,forgot,sold,repaired,hid,borrowed,weighed,described,counted,praised".split(",")
_OBJECTS = (
    "a wooden box,the long letter,two silver spoons,an empty cup,the broken clock,his winter coat,"
    "a map,the last apple,some rope"
).split(",")
_PLACES = (
    "near the river,behind the station,before breakfast,in the attic,under the bridge,at noon,"
    "on the hill,without a word,in spring"
).split(",")


class RepeatedDocuments(Source):
    """Synthetic corpus `synthetic:repeat`: a document is a text A of a few sentences, another text B, and A again.

    Each text stands on a line.

    Raises:
        ValueError: fewer than one document or sentence.
    """

    name = "synthetic:repeat"

    def __init__(self, documents: int = 4000, sentences: int = 3, seed: int = 0):
        if documents < 1 or sentences < 1:
            raise ValueError(
                f"synthetic:repeat needs at least one document and one sentence, got {documents} and {sentences}. "
                "Give more."
            )
        self.count = documents
        self.sentences = sentences
        self.seed = seed
        self._read = 0

    def documents(self) -> Iterator[str]:
        for number in range(self.count):
            self._read = number + 1
            generator = generator_of(self.seed, number)
            a, b = (self._text(generator) for _ in range(2))
            yield f"{a}\n{b}\n{a}"

    def _text(self, generator: np.random.Generator) -> str:
        chosen = [
            [words[i] for i in generator.integers(len(words), size=self.sentences)]
            for words in (_SUBJECTS, _VERBS, _OBJECTS, _PLACES)
        ]
        return " ".join(f"{' '.join(words)}.".capitalize() for words in zip(*chosen, strict=True))

    def fingerprint(self) -> dict[str, Any]:
        code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return {"documents": self.count, "sentences": self.sentences, "seed": self.seed, "generator_sha256": code}

    def share_read(self) -> float | None:
        return self._read / self.count


@dataclass(frozen=True)
class Regimes:
    """Settings of the three-regime corpus, written as key=value with commas behind `synthetic:three-regimes:`.

    n: words of a document. vocabulary: different words. documents: how many. seed: of all random numbers. initial,
    terminal: positions of the first and the last regime; those between are the medial one. own, other: Dirichlet
    concentrations at a position of the words that belong to its regime, a third of the vocabulary, and of the others: a
    large `own` makes the positions of a regime alike, a small `other` keeps the regimes apart.

    Raises:
        ValueError: a number out of its range, or regimes that are longer than a document.
    """

    n: int = 32
    vocabulary: int = 200
    documents: int = 5000
    seed: int = 0
    initial: int = 8
    terminal: int = 8
    own: float = 2.0
    other: float = 0.01

    def __post_init__(self) -> None:
        for name, least in {"n": 1, "vocabulary": 3, "documents": 1, "seed": 0, "initial": 0, "terminal": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"synthetic:three-regimes: {name}={getattr(self, name)} must be at least {least}.")
        for name in ("own", "other"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(
                    f"synthetic:three-regimes: {name}={getattr(self, name)} is a Dirichlet concentration: it must be "
                    "above 0."
                )
        if self.initial + self.terminal > self.n:
            raise ValueError(
                f"synthetic:three-regimes: initial={self.initial} and terminal={self.terminal} are more than "
                f"n={self.n} positions. Use a larger n."
            )

    @classmethod
    def parse(cls, options: str) -> "Regimes":
        """Parse settings such as "n=32,seed=1"; the empty text gives the defaults.

        Raises:
            ValueError: an unknown key, or a value that is no number.
        """
        kinds = {f.name: f.type for f in fields(cls)}
        values: dict[str, Any] = {}
        for option in filter(None, options.split(",")):
            name, _, value = option.partition("=")
            if name not in kinds:
                raise ValueError(f"synthetic:three-regimes has no option {name!r}. Options: {', '.join(kinds)}.")
            try:
                values[name] = kinds[name](value)  # type: ignore[operator]
            except ValueError as error:
                raise ValueError(
                    f"synthetic:three-regimes: {option!r} is no number. Write {name}={getattr(cls, name)}, for example."
                ) from error
        return cls(**values)


class ThreeRegimes(Source):
    """Synthetic corpus `synthetic:three-regimes[:OPTIONS]` of documents whose distribution at each position is known.

    GEOM 6.1 gives n = 32, V = 200, N = 5,000 and three regimes, initial, medial and terminal, and leaves the rest open.
    Here each position has a Dirichlet draw of its own, most of it on the third of the vocabulary that belongs to its
    regime. The defaults come near GEOM's Table 2: two components hold 0.83 of the variance (GEOM 0.80), the stress of
    MDS at ranks 1, 2, 3, 7 is 0.27, 0.06, 0.04, 0.02 (0.28, 0.06, 0.05, 0.02), of the sinusoidal table at d = 128
    19 (19). Count it with the tokenizer `words`.
    """

    _BLOCK = 1000

    def __init__(self, regimes: Regimes = Regimes()):
        self.regimes = regimes
        default = Regimes()
        changed = [f"{name}={value}" for name, value in asdict(regimes).items() if value != getattr(default, name)]
        self.name = "synthetic:three-regimes"
        if changed:
            self.name += f":{','.join(changed)}"
        self._read = 0

    def distributions(self) -> np.ndarray:
        """Compute the true distributions: (n, V), row i the distribution at position i; word v is `word(v)`."""
        r = self.regimes
        regime = np.where(np.arange(r.n) < r.initial, 0, np.where(np.arange(r.n) < r.n - r.terminal, 1, 2))
        third = np.arange(r.vocabulary) * 3 // r.vocabulary
        return np.stack(
            [generator_of(r.seed, 0, i).dirichlet(np.where(third == regime[i], r.own, r.other)) for i in range(r.n)]
        )

    def documents(self) -> Iterator[str]:
        words = np.array([self.word(v) for v in range(self.regimes.vocabulary)])
        steps = np.cumsum(self.distributions(), axis=1)
        for begin in range(0, self.regimes.documents, self._BLOCK):
            draws = generator_of(self.regimes.seed, 1, begin).random((self._BLOCK, self.regimes.n)).T
            pairs = zip(steps, draws, strict=True)
            chosen = np.stack([np.searchsorted(step, draw * step[-1], side="right") for step, draw in pairs], axis=1)
            for number, row in enumerate(words[chosen][: self.regimes.documents - begin], begin + 1):
                self._read = number
                yield " ".join(row)

    @staticmethod
    def word(v: int) -> str:
        """Return the word of number v."""
        return f"w{v:03}"

    def fingerprint(self) -> dict[str, Any]:
        return {**asdict(self.regimes), "generator_sha256": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}

    def share_read(self) -> float | None:
        return self._read / self.regimes.documents
