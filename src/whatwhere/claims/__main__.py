"""`python -m whatwhere.claims` prints docs/claims.md: all claims, a table for each paper."""

from collections import Counter
from collections.abc import Sequence

from ..gates import CONTENT, FALLING, HALF, LEARNED, MOVED, ONE_SEED, PRESENT, READ, STILL
from ..papers import PAPERS, title
from . import CLAIMS
from .claim import ANALYTIC, CORPUS, EMPIRICAL, Claim

KINDS = {EMPIRICAL: "about trained models", CORPUS: "about text", ANALYTIC: "that are arithmetic"}

_INTRO = f"""# The claims

What five papers say of positions in encoders, and the rule by which a run of ours decides each claim. `whatwhere claims
RUN` gives the verdicts for a study, a geometry run or a spectra run; a study's report shows them. This page is written
by `python -m whatwhere.claims > docs/claims.md`.

- The rules are fixed: thresholds say in numbers what a paper says in words, and wherever the paper prints its own
  value, that value meets the rule. "-" means that it prints none. The first rules were set before the studies that they
  judge, but for geometries of six corpora and one small study. Two reviews later made them stricter: what an untrained
  model, chance or noise would meet is no longer counted; no threshold was moved because of a result.
- **Kinds.** Empirical claims are about trained models, those of a corpus about text. Analytic ones come out as they do
  by arithmetic or construction, whatever is measured; each says why. Headlines count the first two alone.
- **Verdicts.** Holds here; not seen here (a run of another scale refutes no paper); not separable: the 95 % interval of
  some part of the rule lies on both sides of its threshold; not settled: a model still learns; not testable here, with
  what is missing.
- **Gates**, the same for ledger and pages (`whatwhere.gates`). Learned: every model ends at least {LEARNED} nats, and
  {HALF:.0%} of the gain of the run's best model, below the entropy of token frequencies (claims about the losses
  themselves need the first alone). Settled: over the last tenth of its steps a loss falls by at most {FALLING} nats or
  {STILL:.0%} of the model's gain; rates that decay lower it to the end, so that no number of nats would do for all.
  Presence: what is said to be kept, lost or predicted must be there first (R² of {PRESENT}; {READ} in a model that is
  given positions before another "hardly" has any; attention by content worth {CONTENT} nats before anything is said of
  heads). Tables: only one that has moved by {MOVED:g} times its first size is judged as learned. Differences of losses
  below {ONE_SEED} nats are not separable with one training seed.
- Where the records of step 0 are there, the row gives what the same rule says of the untrained models: what these meet
  too was not learned.
- Intervals are between training seeds if there are several; else over documents, document splits, or those that the
  records carry. Losses are compared document by document where the records have them. Ratios of stresses are resampled
  as ratios where the records have them; other differences combine two half-widths in quadrature: right for independent
  errors, too wide for errors that go together. A value without an interval decides alone.
- A claim about corpora or tables is judged for each that its paper speaks of; the verdict is that of the middle one.
"""


def as_markdown(claims: Sequence[Claim] = CLAIMS) -> str:
    """A section for each paper with a table of id, claim, source, the paper's value and the rule."""
    kinds = Counter(c.kind for c in claims)
    counts = ", ".join(f"{kinds[kind]} {words}" for kind, words in KINDS.items())
    pieces = [f"{_INTRO}\n{len(claims)} claims: {counts}.\n"]
    for paper, key in PAPERS.items():
        rows = [c for c in claims if c.source.startswith(paper)]
        lines = [f"| `{c.id}` | {c.claim} | {c.source} | {_value(c)} | {_rule(c)} |".replace("\n", " ") for c in rows]
        head = "| id | claim | source | paper | rule |\n| --- | --- | --- | --- | --- |"
        pieces.append(f"## {paper}: {title(key)}\n\n{head}\n" + "\n".join(lines) + "\n")
    return "\n".join(pieces)


def _rule(claim: Claim) -> str:
    return f"{claim.rule}." + (f" **Analytic**: {claim.always}." if claim.always else "")


def _value(claim: Claim) -> str:
    if claim.paper_value is None:
        return "-"
    return f"{claim.paper_value:.6g} {claim.unit}".strip()


if __name__ == "__main__":
    print(as_markdown(), end="")
