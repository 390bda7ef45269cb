"""Claims of DSTG about attention heads (section 4 (3), figures 2 and 3).

The paper's "relative" is the term `relative`, its AP `absolute`, its semantic information `semantic`.
"""

import numpy as np

from .evidence import Evidence, Missing
from .ledger import LOST, MOST, SOME, Claim, Measured
from .values import Value, largest, portion, rank_correlations, share_above

PURELY = 0.75  # "purely": at least this share of the divergence
CLEAR = 0.75  # AP- or semantic-oriented: at least this share of what the two terms make
GROUP = 0.1  # of the heads, from which there is a group
AFFECTED = 1 / 3  # "strongly affected" by one of three terms: at least an even share of the divergence
RETRIEVES = 0.1  # from which attention to the other copy a head is one of retrieval (Wu et al. 2024, whom DSTG follows: a score of 0.1)
SEMANTIC_HEADS, ALL_HEADS = 9, 36  # in the paper's model


def _few_semantic(e: Evidence) -> Measured:
    share = e.value("heads.share", part="semantic")
    return Measured(share, [LOST - share, share - SOME])


def _no_relative(e: Evidence) -> Measured:
    share = share_above(e.heads("kl.share.relative"), PURELY)
    return Measured(share, [SOME - share])


def _most_absolute(e: Evidence) -> Measured:
    share = share_above(e.heads("kl.share.absolute"), AFFECTED)
    return Measured(share, [share - LOST])


def _cluster(e: Evidence) -> Measured:
    both = list(zip(e.heads("kl.semantic"), e.heads("kl.absolute"), strict=True))
    semantic, absolute = [portion(s, a) for s, a in both], [portion(a, s) for s, a in both]
    groups = [share_above(values, CLEAR) for values in (semantic, absolute)]
    clear = share_above([largest(pair) for pair in zip(semantic, absolute, strict=True)], CLEAR)
    note = f"{groups[0].mean:.0%} of the heads semantic, {groups[1].mean:.0%} absolute".replace("%", " %")
    return Measured(clear, [clear - MOST, *(group - GROUP for group in groups)], note)


def _relative_with_semantic(e: Evidence) -> Measured:
    semantic, gap = rank_correlations(*(e.heads(f"kl.{term}") for term in ("relative", "semantic", "absolute")))
    return Measured(semantic, [semantic, gap])


def _retrieval(e: Evidence) -> Measured:
    found = largest(e.heads("attention.retrieval", "semantic"))  # another head in every training
    return Measured(found, [found - RETRIEVES])


def _relative_not_self(e: Evidence) -> Measured:
    retrieval, itself = e.heads("attention.retrieval", "semantic"), e.heads("attention.self", "relative")
    chosen = np.array([v.at[:, 0] >= RETRIEVES for v in retrieval])  # (heads, seeds)
    seeds = np.flatnonzero(chosen.any(axis=0))
    if not len(seeds):
        most = max(v.at.max() for v in retrieval)
        raise Missing(f"needs a retrieval head: the largest attention.retrieval of the semantic term is {most:.2f}, below {RETRIEVES}")
    at, below, above = (
        np.array([np.mean([getattr(itself[head], side)[s] for head in np.flatnonzero(chosen[:, s])]) for s in seeds])
        for side in ("at", "below", "above")
    )
    own = Value(at[:, None], below, above)
    uniform = 1 / e.value("probe.length").mean
    lacking = len(e.seeds) - len(seeds)
    without = f", none in {lacking} of {len(e.seeds)} seeds" if lacking else ""
    return Measured(own, [uniform - own], f"{chosen.sum()} retrieval heads{without}, uniform attention {uniform:.4f}")


def _not_exclusive(e: Evidence) -> Measured:
    remove = [e.value("ablation.remove", part=term) for term in ("semantic", "absolute", "relative")]
    return Measured(remove[2], [remove[0] - remove[2], remove[1] - remove[2]])


MOST_ABSOLUTE = Claim(
    "dstg-most-heads-absolute",
    "Most heads are strongly affected by absolute position",
    "DSTG section 4 (3), figure 2",
    (ALL_HEADS - SEMANTIC_HEADS) / ALL_HEADS,
    f"In at least {LOST} of the heads the absolute term has at least an even share, a third, of the divergence that leaving out one term "
    "makes; the interval is from the heads that surely do to those that may",
    ("dstg",),
    _most_absolute,
)

OTHERS = (
    Claim(
        "dstg-no-relative-heads",
        "No head lives by relative position alone",
        "DSTG section 4 (3), figure 2: no purely RP-oriented heads",
        0.0,
        f"Share of the heads in which the relative term makes at least {PURELY} of the divergence is at most {SOME}, less than one head; "
        "the interval is from the heads that surely are so to those that may be",
        ("dstg",),
        _no_relative,
    ),
    Claim(
        "dstg-few-semantic-heads",
        "A minority of the heads specialises in semantics",
        "DSTG section 4 (3): 9 of 36 heads",
        SEMANTIC_HEADS / ALL_HEADS,
        f"Share of the heads labelled semantic is at most {LOST} and more than {SOME}",
        ("dstg",),
        _few_semantic,
    ),
    Claim(
        "dstg-heads-cluster",
        "Heads are either absolute or semantic, hardly mixed",
        "DSTG section 4 (3): almost exclusively AP-driven or semantic-driven (no number printed)",
        None,
        f"In at least {MOST} of the heads one of the semantic and the absolute term makes at least {CLEAR} of the divergence of the two, "
        f"and each of the two does in at least {GROUP} of the heads; the share of such heads is shown",
        ("dstg",),
        _cluster,
    ),
    Claim(
        "dstg-relative-supports-semantics",
        "Relative position supports the semantic heads",
        "DSTG section 4 (3), figure 2 (no number printed)",
        None,
        "Spearman's correlation over heads of the relative term's divergence with the semantic term's, in nats, is above 0, and above that "
        "with the absolute term's; both intervals are bootstraps over heads. Shares of it would correlate because they sum to one",
        ("dstg",),
        _relative_with_semantic,
    ),
    Claim(
        "dstg-relative-least-needed",
        "Relative position is the least needed of three",
        "DSTG section 4 (3): complementary information (no number printed)",
        None,
        "Leaving out the relative term in all heads raises the held-out MLM loss less than leaving out either other; its rise is shown",
        ("dstg",),
        _not_exclusive,
        "nats",
    ),
    Claim(
        "dstg-retrieval-heads",
        "Semantic attention of some heads finds repeated text",
        "DSTG section 4 (3), figure 3: heads 3 and 6 of the last layer (no number printed)",
        None,
        f"In one head at least, semantic attention to the other copy of a token in A+B+A text is at least {RETRIEVES} above that to the "
        "same place in A+B+C text; the largest is shown",
        ("dstg",),
        _retrieval,
    ),
    Claim(
        "dstg-relative-not-self",
        "Relative bias keeps retrieval heads from self-attention",
        "DSTG section 4 (3), figure 3, third row (no number printed)",
        None,
        f"In the heads whose semantic term retrieves (at least {RETRIEVES}), attention of a token to itself under the relative term alone "
        "is on average below that of uniform attention; the heads are chosen in each training",
        ("dstg",),
        _relative_not_self,
    ),
)
