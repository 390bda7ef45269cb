"""Probing tasks made of running text: the order of two sentences, whether one follows the other, and how readable a
paragraph is (Flesch 1948), the phenomena of discourse and length where DSTG reports its gains (Table 6)."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from ..corpus import Source, open_source
from ..corpus.text_files import Files, empty_file
from .examples import SPLITS, Examples, Row, examples, for_one_command

FOLDER = "wikipedia-en"
PARAGRAPHS = 20_000  # of the last file's articles, as trainings begin with the first
WORDS = (5, 40)  # of a sentence
MARKS = re.compile(r"(?<=[a-z0-9\")][.!?])\s+(?=[A-Z\"])")
ABBREVIATIONS = frozenset(
    "Mr. Mrs. Ms. Dr. Prof. St. Ste. Mt. Ft. Rev. Hon. Gen. Col. Maj. Capt. Lt. Sgt. Cpl. Adm. Gov. Sen. Rep. Pres. "
    "Messrs. vs. No. Nos. Vol. Op. Fig. ca. cf. approx. Nov. Dec. Jan. Feb. Aug. Sept. Oct.".split()
)
VOWELS = re.compile(r"[aeiouy]+")


def sentences_of(paragraph: str) -> list[str]:
    """Split a paragraph into sentences, behind . ! ? before a capital letter.

    Initials and titles ("Dr. Smith") end no sentence.
    """
    sentences: list[str] = []
    for piece in MARKS.split(paragraph.strip()):
        if sentences and sentences[-1].rsplit(" ", 1)[-1].lstrip('("') in ABBREVIATIONS:
            sentences[-1] += f" {piece}"
        elif piece:
            sentences.append(piece)
    return sentences


def syllables(word: str) -> int:
    """Count the groups of vowels in an English word, without a silent e at its end; at least 1."""
    word = word.lower()
    silent = word.endswith("e") and not word.endswith(("le", "ee")) and len(VOWELS.findall(word)) > 1
    return max(1, len(VOWELS.findall(word)) - silent)


def flesch(sentences: Sequence[str]) -> float:
    """Compute the reading ease of a text (Flesch 1948), about 0 for the hardest and 100 for the easiest.

    206.835 - 1.015 · words a sentence - 84.6 · syllables a word.

    Raises:
        ValueError: no word.
    """
    words = [word for sentence in sentences for word in re.findall(r"[A-Za-z']+", sentence)]
    if not words:
        raise ValueError("A text without words has no reading ease. Leave it out.")
    return 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * sum(map(syllables, words)) / len(words)


def _articles(file: Path) -> Source:
    """Return the articles of a file: its documents, or the whole text where no heading begins one.

    A line or a block between empty lines is a paragraph: taken for an article, it would part its article's other
    paragraphs between training and test.
    """
    source = open_source(str(file))
    no_headings = isinstance(source, Files) and source.document in ("line", "blank-line")
    return open_source(str(file), document="file") if no_headings else source


def read_paragraphs(data: Path, most: int = PARAGRAPHS) -> list[tuple[int, list[str]]]:
    """Read (article, sentences) of paragraphs with two sentences or more, all of 5 to 40 words.

    The last file comes first, because a model was trained mostly on the first ones.

    Args:
        data: the folder of the articles, or one that holds it. most: number of paragraphs, at most.

    Raises:
        ValueError: no such folder, or no such paragraph in it.
    """
    folder = data / FOLDER if (data / FOLDER).is_dir() else data
    if data.name != FOLDER and folder == data:
        raise ValueError(
            f"{data} holds no {FOLDER}/. Bring English articles there, as text with a paragraph a line, each below a "
            "line `= Title =` or in a file of its own."
        )

    files = sorted((p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")), reverse=True)

    def all_paragraphs() -> Iterator[tuple[int, list[str]]]:
        for number, article in enumerate(chain.from_iterable(map(_articles, files))):
            for line in article.splitlines():
                sentences = sentences_of(line)
                if len(sentences) > 1 and all(WORDS[0] <= len(s.split()) <= WORDS[1] for s in sentences):
                    yield number, sentences

    paragraphs = list(islice(all_paragraphs(), most))
    if not paragraphs and (blank := [path for path in files if not path.stat().st_size]):
        raise empty_file(blank[0])
    if not paragraphs:
        raise ValueError(f"{folder} has no paragraph of two sentences or more. Bring running text, a paragraph a line.")
    return paragraphs


Paragraph = tuple[int, list[str]]
Make = Callable[[Sequence[Paragraph], np.random.Generator], Iterator[Row]]


def _order(paragraphs: Sequence[Paragraph], rng: np.random.Generator) -> Iterator[Row]:
    """Yield the first two sentences of a paragraph, read as one text in their order or in the other."""
    for _, (first, second, *_) in paragraphs:
        if rng.random() < 0.5:
            yield _pair(second, first, "turned")
        else:
            yield _pair(first, second, "as it was")


def _following(paragraphs: Sequence[Paragraph], rng: np.random.Generator) -> Iterator[Row]:
    """Yield the first sentence of a paragraph with the second, or with one of another article."""
    if len(paragraphs) < 2:
        raise ValueError("One paragraph of two sentences is too few to tell which follows. Bring more text.")
    for i, (article, (first, second, *_)) in enumerate(paragraphs):
        follows = bool(rng.random() < 0.5)
        other = paragraphs[(i + 1 + int(rng.integers(len(paragraphs) - 1))) % len(paragraphs)]
        if not follows and other[0] == article:
            continue
        yield _pair(first, second if follows else other[1][1], "follows" if follows else "does not")


def _pair(first: str, second: str, label: str) -> Row:
    text = f"{first} {second}"
    return Row(text, ((0, len(first)), (len(first) + 1, len(text))), label, "")


def _readability(paragraphs: Sequence[Paragraph], rng: np.random.Generator) -> Iterator[Row]:
    for _, sentences in paragraphs:
        text = " ".join(sentences[:3])
        yield Row(text, ((0, len(text)),), flesch(sentences[:3]), "")


_read = for_one_command(read_paragraphs)


@dataclass(frozen=True)
class ParagraphTask:
    """Probing task made of paragraphs.

    number: true if labels are numbers.
    """

    rows: Make
    number: bool = False
    words: bool = False
    most: int | None = None

    def has_files(self, data: Path | None) -> bool:
        """Tell if a folder is, or holds, the folder of the articles."""
        return data is not None and data.is_dir() and (data.name == FOLDER or (data / FOLDER).is_dir())

    def check(self, data: Path | None) -> None:
        """Refuse a folder without paragraphs.

        Raises:
            ValueError: as `read_paragraphs`.
        """
        assert data is not None
        read_paragraphs(data, 10)

    def examples(self, data: Path | None, split: str, limit: int | None) -> Examples:
        """Read the rows of a split: eight of ten articles train, one is the development part, one the test.

        Raises:
            ValueError: as `read_paragraphs`.
        """
        assert data is not None
        place = SPLITS.index(split)
        paragraphs = [paragraph for paragraph in _read(data) if max(0, paragraph[0] % 10 - 7) == place]
        if not paragraphs:
            raise ValueError(
                f"{data} has no article for the {split} part, which takes one of ten. Bring more articles, each below "
                "a line `= Title =` or in a file of its own."
            )
        rng = np.random.default_rng(place)
        order = rng.permutation(len(paragraphs))
        return examples(self.rows([paragraphs[i] for i in order], rng), limit)


TASKS: dict[str, ParagraphTask] = {
    "sentence-order": ParagraphTask(_order),
    "next-sentence": ParagraphTask(_following),
    "readability": ParagraphTask(_readability, number=True),
}
