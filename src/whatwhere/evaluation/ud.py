"""Probing tasks made of dependency trees: Universal Dependencies in CoNLL-U (EWT: Silveira et al. 2014), questions in
the manner of SentEval (Conneau et al. 2018) and of the structural part of Holmes (Waldis et al. 2024)."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..corpus.text_files import data_lines
from .examples import SPLITS, Examples, Row, examples, for_one_command

FOLDER = "ud-ewt"
LENGTHS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))  # words, the classes of SentEval's Length
DEPTHS = (2, 8)
FEWEST = 5  # words of a sentence of SentEval
MOST = 28


class Word(NamedTuple):
    """Word of a dependency tree, with its place in the text.

    head: place of the word that it depends on, -1 of the root. label: of the arc, without its subtype. start, end:
    characters in the text of the sentence.
    """

    form: str
    tag: str
    features: dict[str, str]
    head: int
    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Sentence:
    """Dependency tree of a sentence, with its text."""

    text: str
    words: list[Word]

    @property
    def root(self) -> int:
        """Place of the root among the words."""
        return next(i for i, word in enumerate(self.words) if word.head < 0)

    def children(self, head: int, *labels: str) -> list[int]:
        """List the places of the words that depend on one, by some labels or by any."""
        return [i for i, word in enumerate(self.words) if word.head == head and (not labels or word.label in labels)]

    def depths(self) -> list[int]:
        """Count the arcs from the root to each word."""
        depths = [-1] * len(self.words)
        for i in range(len(self.words)):
            above = [i]
            while depths[above[-1]] < 0 <= self.words[above[-1]].head:
                above.append(self.words[above[-1]].head)
            depth = max(depths[above[-1]], 0)
            for more, place in enumerate(reversed(above)):
                depths[place] = depth + more
        return depths

    def below(self, head: int) -> list[int]:
        """List the places of a word and of all that depend on it, in order."""
        inside = {head}
        for _ in self.words:
            more = {i for i, word in enumerate(self.words) if word.head in inside} | inside
            if more == inside:
                break
            inside = more
        return sorted(inside)


def tree_file(data: Path, split: str) -> Path | None:
    """Find the file of a split in a folder, or in its folder `ud-ewt`; None if there is none."""
    paths = [
        path
        for folder in (data, data / FOLDER)
        for path in sorted(folder.glob(f"*-ud-{split}.conllu*"))
        if path.is_file()
    ]
    return paths[0] if paths else None


def read_trees(data: Path, split: str, limit: int | None = None) -> list[Sentence]:
    """Read the sentences of a split in CoNLL-U, plain or packed.

    Words are syntactic ones, with the characters of the text that they stand on; parts of a contraction that are not
    its letters stand on all of it. Empty nodes are left out.

    Args:
        limit: number of sentences that are read, from the first on.

    Raises:
        ValueError: no such file, or a line that is not CoNLL-U.
    """
    path = tree_file(data, split)
    if path is None:
        raise ValueError(
            f"{data} holds no trees: no *-ud-{split}.conllu (nor .xz, .gz, .zst) there or in {FOLDER}. Bring "
            "UD_English-EWT (github.com/UniversalDependencies) and give the folder."
        )
    sentences: list[Sentence] = []
    lines: list[list[str]] = []
    number = 0
    for number, line in enumerate(data_lines(path), 1):
        line = line.rstrip("\r\n")
        if line.startswith("#"):
            continue
        if line:
            lines.append(line.split("\t"))
            if len(lines[-1]) != 10:
                raise ValueError(
                    f"{path}, line {number}: {len(lines[-1])} columns, where CoNLL-U has 10. Bring a complete copy."
                )
        elif lines:
            sentences.append(_sentence(lines, f"{path}, line {number}"))
            lines = []
        if limit is not None and len(sentences) == limit:
            return sentences
    if lines:
        sentences.append(_sentence(lines, f"{path}, line {number}"))
    if not sentences:
        raise ValueError(f"{path} has no sentences. Bring a complete copy.")
    return sentences


def _sentence(lines: Sequence[Sequence[str]], place: str) -> Sentence:
    """Build the tree of the lines of a sentence."""
    text = ""
    words: list[Word] = []
    whole: tuple[int, int, int] | None = None  # of a contraction: number of its last word, its characters
    for number, form, _, tag, _, features, head, label, _, misc in lines:
        if "." in number:
            continue
        start = len(text)
        if "-" in number:
            if not re.fullmatch(r"[0-9]{1,9}-[0-9]{1,9}", number):
                raise ValueError(f"{place}: {number[:40]!r} is no span of words of CoNLL-U. Bring a complete copy.")
            last = number.split("-")[1]
            parts = [line[1] for line in lines if re.fullmatch("[0-9]{1,9}", line[0]) and _between(line[0], number)]
            text += form
            whole = (int(last), start, len(text))
            at = start if "".join(parts) == form else -1
            space = "SpaceAfter=No" not in misc
            continue
        if number != str(len(words) + 1) or not re.fullmatch("[0-9]{1,9}", head) or int(head) > len(lines):
            raise ValueError(
                f"{place}: word {number[:40]!r} with head {head[:40]!r} ends no tree of CoNLL-U. Bring a complete copy."
            )
        if whole is None:
            text += form
            span = (start, len(text))
            text += "" if "SpaceAfter=No" in misc else " "
        else:
            span = (at, at + len(form)) if at >= 0 else whole[1:]
            at = at + len(form) if at >= 0 else at
            if int(number) == whole[0]:
                text += " " if space else ""
                whole = None
        values = dict(cells.split("=", 1) for cells in features.split("|") if "=" in cells)
        words.append(Word(form, tag, values, int(head) - 1, label.split(":")[0], *span))
    if sum(word.head < 0 for word in words) != 1:
        raise ValueError(f"{place}: the sentence {text.strip()[:40]!r} has no single root. Bring a complete copy.")
    reached = {i for i, word in enumerate(words) if word.head < 0}
    below: dict[int, list[int]] = defaultdict(list)
    for i, word in enumerate(words):
        below[word.head].append(i)
    new = list(reached)
    while new:
        new = [child for i in new for child in below[i]]
        reached.update(new)
    if len(reached) < len(words):
        lost = next(i for i in range(len(words)) if i not in reached)
        raise ValueError(f"{place}: word {lost + 1} does not hang on the root. Bring a complete copy.")
    return Sentence(text.rstrip(" "), words)


def _between(number: str, span: str) -> bool:
    first, last = span.split("-")
    return int(first) <= int(number) <= int(last)


_read = for_one_command(read_trees, len(SPLITS))
Make = Callable[[Sentence, np.random.Generator], Iterator[Row]]


def _whole(sentence: Sentence, label: str, key: str = "") -> Row:
    return Row(sentence.text, ((0, len(sentence.text)),), label, key)


def _tags(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    for word in sentence.words:
        yield Row(sentence.text, ((word.start, word.end),), word.tag, word.form.lower())


def _labels(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    for word in sentence.words:
        yield Row(sentence.text, ((word.start, word.end),), word.label, word.form.lower())


def _arcs(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    """Yield a word with its head, or with another one about as far: does the first depend on the second?"""
    words = sentence.words
    for i, word in enumerate(words):
        if word.head < 0 or word.tag == "PUNCT":
            continue
        others = [j for j in range(len(words)) if j not in (i, word.head) and words[j].tag != "PUNCT"]
        if not others:
            continue
        far = abs(word.head - i)
        order = rng.permutation(others)
        other = int(min(order, key=lambda j: abs(abs(int(j) - i) - far)))
        is_head = bool(rng.random() < 0.5)
        second = words[word.head if is_head else other]
        spans = (word.start, word.end), (second.start, second.end)
        yield Row(sentence.text, spans, "head" if is_head else "not", f"{word.form} {second.form}".lower())


def _depth(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    depth = max(sentence.depths())
    if DEPTHS[0] <= depth <= DEPTHS[1]:
        yield _whole(sentence, str(depth), str(len(sentence.words)))


# Kinds of top constituents; function words and modifiers would make thousands of sequences, nearly all of them rare.
CONSTITUENTS = {
    **dict.fromkeys(("nsubj", "csubj", "expl"), "subject"),
    **dict.fromkeys(("obj", "iobj"), "object"),
    **dict.fromkeys(("ccomp", "xcomp", "advcl", "parataxis"), "clause"),
    **{"conj": "conjunct", "root": "root"},
}


def _top(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    """Yield the constituents around the root in their order, the root among them, neighbours of one kind once."""
    if len(sentence.words) >= FEWEST:
        root = sentence.root
        labels = [sentence.words[i].label for i in sorted([root, *sentence.children(root)])]
        kinds = [kind for kind, _ in groupby(CONSTITUENTS[label] for label in labels if label in CONSTITUENTS)]
        yield _whole(sentence, " ".join(kinds), str(len(sentence.words)))


def _length(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    for low, high in LENGTHS:
        if low <= len(sentence.words) <= high:
            yield _whole(sentence, f"{low}-{high}")


def _tense(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    """Yield the tense of the main clause's finite verb: the root, else its first auxiliary or copula that has one."""
    root = sentence.root
    verbs = [root, *sentence.children(root, "aux", "cop")]
    for verb in (sentence.words[i] for i in verbs):
        if verb.features.get("VerbForm") == "Fin" and "Tense" in verb.features:
            yield _whole(sentence, verb.features["Tense"], verb.form.lower())
            return


def _number_of(*labels: str) -> Make:
    def make(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
        for i in sentence.children(sentence.root, *labels)[:1]:
            noun = sentence.words[i]
            if noun.tag in ("NOUN", "PROPN") and noun.features.get("Number") in ("Sing", "Plur"):
                yield _whole(sentence, noun.features["Number"], noun.form.lower())

    return make


def _shifted(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    """Yield a sentence in which two neighbouring words change places, or none do."""
    forms = [word.form for word in sentence.words]
    if not FEWEST <= len(forms) <= MOST:
        return
    inner = [
        i
        for i in range(1, len(forms) - 1)
        if "PUNCT" not in (sentence.words[i].tag, sentence.words[i + 1].tag) and forms[i] != forms[i + 1]
    ]
    if inner:
        i = int(rng.choice(inner))
        shifted = bool(rng.random() < 0.5)
        if shifted:
            forms[i : i + 2] = forms[i : i + 2][::-1]
        text = " ".join(forms)
        yield Row(text, ((0, len(text)),), "shifted" if shifted else "as it was", "")


def _inverted(sentence: Sentence, rng: np.random.Generator) -> Iterator[Row]:
    """Yield a sentence in which two joined clauses change places ("It rained, and he left."), or do not."""
    words = sentence.words
    root = sentence.root
    joined = [i for i in sentence.children(root, "conj") if sentence.children(i, "nsubj")]
    if len(joined) != 1 or not sentence.children(root, "nsubj"):
        return
    second = sentence.below(joined[0])
    ands = [i for i in sentence.children(joined[0], "cc") if i == second[0] or words[second[0]].label == "punct"]
    stop = next((i for i in range(len(words) - 1, -1, -1) if words[i].tag != "PUNCT"), 0) + 1
    if len(ands) != 1 or second[-1] + 1 < stop or second != list(range(second[0], second[-1] + 1)):
        return
    conjunction = ands[0]
    comma = conjunction - (words[conjunction - 1].form == ",")
    one = list(range(comma))
    two = list(range(conjunction + 1, stop))
    if min(len(one), len(two)) < 2:
        return
    joint = ["," for _ in range(conjunction - comma)] + [words[conjunction].form]
    end = [words[i].form for i in range(stop, len(words))]
    inverted = bool(rng.random() < 0.5)
    first, last = (two, one) if inverted else (one, two)
    forms = [[words[i].form for i in clause] for clause in (first, last)]
    if inverted:
        forms[0][0] = forms[0][0][:1].upper() + forms[0][0][1:]
        opening = words[one[0]]
        if opening.tag != "PROPN" and opening.form != "I":
            forms[1][0] = opening.form[:1].lower() + opening.form[1:]
    text = " ".join([*forms[0], *joint, *forms[1], *end])
    yield Row(text, ((0, len(text)),), "inverted" if inverted else "as it was", "")


@dataclass(frozen=True)
class TreeTask:
    """Probing task made of dependency trees.

    rows: of a sentence. words: true if a row is one word, which can have a control task. balanced: as many of each
    class. most: classes beside `other`. number: true if labels are numbers.
    """

    rows: Make
    words: bool = False
    balanced: bool = False
    most: int | None = None
    number: bool = False

    def has_files(self, data: Path | None) -> bool:
        """Tell if a folder has one of the splits."""
        return data is not None and any(tree_file(data, split) is not None for split in SPLITS)

    def check(self, data: Path | None) -> None:
        """Refuse trees of which a split is missing or damaged at its beginning.

        Raises:
            ValueError: as `read_trees`.
        """
        assert data is not None
        for split in SPLITS:
            read_trees(data, split, 50)

    def examples(self, data: Path | None, split: str, limit: int | None) -> Examples:
        """Read the rows of a split, its sentences in an order drawn once for all.

        Raises:
            ValueError: as `read_trees`.
        """
        assert data is not None
        sentences = _read(data, split)
        rng = np.random.default_rng(SPLITS.index(split))
        order = rng.permutation(len(sentences))
        rows = (row for i in order for row in self.rows(sentences[i], rng))
        return examples(rows, limit, self.balanced)


TASKS: dict[str, TreeTask] = {
    "pos": TreeTask(_tags, words=True),
    "deprel": TreeTask(_labels, words=True),
    "arc": TreeTask(_arcs),
    "depth": TreeTask(_depth),
    "constituents": TreeTask(_top, most=20),
    "length": TreeTask(_length),
    "tense": TreeTask(_tense, balanced=True),
    "subject-number": TreeTask(_number_of("nsubj"), balanced=True),
    "object-number": TreeTask(_number_of("obj"), balanced=True),
    "bigram-shift": TreeTask(_shifted, balanced=True),
    "coordination": TreeTask(_inverted, balanced=True),
}
