"""Write texts of Wikipedia that have the docstrings' number of documents, or their lengths, or both.

    python docs/results/rows/cut.py WIKIPEDIA OUT

few.jsonl: as many articles as there are docstrings, their first 20,000 characters. short.jsonl: all articles, each cut
to the number of tokens of a docstring drawn by chance. few-short.jsonl: the articles of few.jsonl, each cut to the
tokens of another docstring. Tokens are counted by the tokenizer of a study, trained on each text. Articles and lengths
are drawn from seed 0.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from whatwhere.corpus import build_tokenizer, open_source

BEGINNING = 20_000  # characters of an article that are kept at most: a row has 128 tokens
SPECIAL_TOKENS = 2


def main() -> None:
    """Write the three texts to the folder that the command line names."""
    wikipedia = sys.argv[1]
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    docstrings = list(open_source("python-docs").beginnings(BEGINNING))
    tokenizer = build_tokenizer(None, docstrings)
    lengths = np.array([len(tokenizer(text, verbose=False)["input_ids"]) for text in docstrings]) - SPECIAL_TOKENS
    articles = [text[:BEGINNING] for text in open_source(wikipedia, document="heading").beginnings(BEGINNING)]
    few = np.sort(random.choice(len(articles), len(docstrings), replace=False))
    tokenizer = build_tokenizer(None, articles)
    _write(out / "few.jsonl", (articles[i] for i in few))
    _write(out / "few-short.jsonl", _cut((articles[i] for i in few), random.permutation(lengths), tokenizer))
    _write(out / "short.jsonl", _cut(articles, random.choice(lengths, len(articles)), tokenizer))


def _cut(texts: Iterable[str], lengths: Iterable[int], tokenizer) -> Iterator[str]:
    """Yield the first tokens of each text, as many as its length says."""
    for text, length in zip(texts, lengths, strict=True):
        ends = tokenizer(text, verbose=False, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
        yield text[: ends[min(max(length, 1), len(ends)) - 1][1]]


def _write(path: Path, texts: Iterable[str]) -> None:
    """Write texts as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)


if __name__ == "__main__":
    main()
