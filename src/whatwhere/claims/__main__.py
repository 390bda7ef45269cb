"""Command `python -m whatwhere.claims`, which prints docs/claims.md: all claims, a table for each paper."""

from collections import Counter
from pathlib import Path

from ..papers import PAPERS, title
from ..records import gates
from . import CLAIMS, FACTS, NUMBER, OURS, SENTENCE
from .claim import CORPUS, EMPIRICAL, Claim

KINDS = {EMPIRICAL: "about trained models", CORPUS: "about text"}
ORIGINS = {NUMBER: "for a printed number", SENTENCE: "for a printed sentence", OURS: "of our own"}
HEAD = "| id | claim | source | paper | rule |\n| --- | --- | --- | --- | --- |\n"


def as_markdown() -> str:
    """Return docs/claims.md: a section for each paper with a table of id, claim, source, the paper's value and the
    rule."""
    intro = Path(__file__).with_name("intro.md").read_text(encoding="utf-8").format_map(vars(gates))
    sections = [f"{intro}\n{counts()}\n"]
    for paper, key in PAPERS.items():
        lines = "".join(_line(c) for c in CLAIMS if c.source.startswith(paper))
        sections.append(f"## {paper}: {title(key)}\n\n{HEAD}{lines}")
    return "\n".join(sections)


def counts() -> str:
    """Return a sentence with the numbers of rules by their origin in the papers, and by their subject."""
    origins, kinds = (Counter(getattr(claim, name) for claim in CLAIMS) for name in ("origin", "kind"))
    by_origin = ", ".join(f"{origins[origin]} {words}" for origin, words in ORIGINS.items())
    by_kind = ", ".join(f"{kinds[kind]} {words}" for kind, words in KINDS.items())
    apart = f"{len(FACTS)} more statements come out as they do by arithmetic and stand in [theory.md](theory.md)"
    return f"{len(CLAIMS)} rules: {by_origin}; {by_kind}. {apart}."


def _line(claim: Claim) -> str:
    value = "" if claim.paper_value is None else f"{claim.paper_value:.6g} {claim.unit}".strip()
    printed = {NUMBER: value, SENTENCE: f"in words {value and f'({value})'}".strip(), OURS: "**ours**"}[claim.origin]
    return f"| `{claim.id}` | {claim.claim} | {claim.source} | {printed} | {claim.rule}. |\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
