"""`python -m whatwhere.claims` prints docs/claims.md: all claims, a table for each paper."""

from collections.abc import Sequence

from ..papers import CITATIONS, PAPERS
from . import CLAIMS
from .claim import Claim

_INTRO = """# The claims

What five papers say of positions in encoders, and the rule by which a run of ours decides each claim. `whatwhere claims
RUN` gives the verdicts for a study, a geometry run or a spectra run; a study's report shows them. This page is written
by `python -m whatwhere.claims > docs/claims.md`.

- The rules are fixed: thresholds say in numbers what a paper says in words, and wherever the paper prints its own
  value, that value meets the rule. "-" means that it prints none. They were set before the studies that they judge,
  with one exception: geometries of six corpora, and a first study of four models, had been measured when the rules for
  GEOM and LOWDIM were written. A review later made rules stricter that an untrained model or chance would meet (groups
  and correlations of heads, sentences, first column, patterns), and judges purely relative heads by "purely" instead of
  the label; no threshold was moved because of a result.
- Verdicts: holds; does not hold; not separable (the 95 % interval of some part of the rule lies on both sides of its
  threshold); not testable here, with what is missing. A model that has not left the unigram plateau, and a table that
  has not left its random start, are not judged.
- Would an untrained model pass? Where the records of step 0 are there, the scale of a verdict gives what the same rule
  says of the untrained model: a rule that this meets too shows nothing that was learned. A rule that names the
  untrained model compares with it. Where there are none (divergences, ablations and retrieval of heads), the plateau is
  the only control. The scale also names models whose validation loss still fell by more than 0.05 nats over the last
  tenth of their steps.
- Intervals are between training seeds if there are several; else over documents, document splits, or those that the
  records carry. Losses are compared document by document where the records have them. Other differences combine two
  half-widths in quadrature: right for independent errors, too wide for errors that go together, as on the same
  documents. A value without an interval decides alone.
- A claim about corpora, tables or models in general is judged for each in the run; the verdict is that of the worst,
  which is named.
- A verdict speaks of the run at its scale, never of the paper's models.
"""


def as_markdown(claims: Sequence[Claim] = CLAIMS) -> str:
    """A section for each paper with a table of id, claim, source, the paper's value and the rule."""
    pieces = [f"{_INTRO}\n{len(claims)} claims.\n"]
    for paper, key in PAPERS.items():
        rows = [c for c in claims if c.source.startswith(paper)]
        lines = [f"| `{c.id}` | {c.claim} | {c.source} | {_value(c)} | {c.rule}. |".replace("\n", " ") for c in rows]
        head = "| id | claim | source | paper | rule |\n| --- | --- | --- | --- | --- |"
        pieces.append(f"## {paper}: {CITATIONS[key]['title']}\n\n{head}\n" + "\n".join(lines) + "\n")
    return "\n".join(pieces)


def _value(claim: Claim) -> str:
    if claim.paper_value is None:
        return "-"
    return f"{claim.paper_value:.6g} {claim.unit}".strip()


if __name__ == "__main__":
    print(as_markdown(), end="")
