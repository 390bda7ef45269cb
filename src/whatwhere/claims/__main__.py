"""`python -m whatwhere.claims` prints docs/claims.md: all claims, a table for each paper."""

from collections import Counter
from pathlib import Path

from ..gates import CONTENT, FALLING, FLOOR, HALF, LEARNED, ONE_SEED, PRESENT, READ, STILL, USED, WALK  # noqa: F401  (for intro.md)
from ..papers import PAPERS, title
from . import CLAIMS
from .claim import ANALYTIC, CORPUS, EMPIRICAL, Claim

KINDS = {EMPIRICAL: "about trained models", CORPUS: "about text", ANALYTIC: "that are arithmetic"}
HEAD = "| id | claim | source | paper | rule |\n| --- | --- | --- | --- | --- |\n"


def as_markdown() -> str:
    """A section for each paper with a table of id, claim, source, the paper's value and the rule."""
    kinds = Counter(c.kind for c in CLAIMS)
    counts = ", ".join(f"{kinds[kind]} {words}" for kind, words in KINDS.items())
    intro = Path(__file__).with_name("intro.md").read_text(encoding="utf-8").format_map(globals())
    sections = [f"{intro}\n{len(CLAIMS)} claims: {counts}.\n"]
    for paper, key in PAPERS.items():
        lines = "".join(_line(c) for c in CLAIMS if c.source.startswith(paper))
        sections.append(f"## {paper}: {title(key)}\n\n{HEAD}{lines}")
    return "\n".join(sections)


def _line(claim: Claim) -> str:
    value = "-" if claim.paper_value is None else f"{claim.paper_value:.6g} {claim.unit}".strip()
    rule = f"{claim.rule}." + (f" **Analytic**: {claim.always}." if claim.always else "")
    return f"| `{claim.id}` | {claim.claim} | {claim.source} | {value} | {rule} |\n"


if __name__ == "__main__":
    print(as_markdown(), end="")
