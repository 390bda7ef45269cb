"""Claims of DSTG about attention heads (section 4 (3), figures 2 and 3).

The paper's "relative" is the term `relative`, its AP `absolute`, its semantic information `semantic`.
"""

from .evidence import Evidence, Missing
from .ledger import LOST, MOST, SOME, Claim, Measured
from .values import average, rank_correlation, share_above

AFFECTED = 1 / 3  # "strongly affected" by one of three terms: at least an even share of the divergence
RETRIEVES = 0.1  # from which attention to the other copy a head is one of retrieval (Wu et al. 2024, whom DSTG follows: a score of 0.1)
SEMANTIC_HEADS, ALL_HEADS = 9, 36  # in the paper's model


def _few_semantic(e: Evidence) -> Measured:
    share = e.value("heads.share", part="semantic")
    return Measured(share, [LOST - share, share - SOME])


def _no_relative(e: Evidence) -> Measured:
    share = e.value("heads.share", part="relative")
    return Measured(share, [SOME - share])


def _most_absolute(e: Evidence) -> Measured:
    share = share_above(e.heads("kl.share.absolute"), AFFECTED)
    return Measured(share, [share - LOST])


def _cluster(e: Evidence) -> Measured:
    share = e.value("heads.share", part="absolute") + e.value("heads.share", part="semantic")
    return Measured(share, [share - MOST])


def _relative_with_semantic(e: Evidence) -> Measured:
    relative = e.heads("kl.share.relative")
    semantic, absolute = (rank_correlation(relative, e.heads(f"kl.share.{term}")) for term in ("semantic", "absolute"))
    return Measured(semantic, [semantic, semantic - absolute])


def _retrieval(e: Evidence) -> Measured:
    found = max(e.heads("attention.retrieval", "semantic"), key=lambda v: v.mean)
    return Measured(found, [found - RETRIEVES])


def _relative_not_self(e: Evidence) -> Measured:
    found = list(zip(e.heads("attention.retrieval", "semantic"), e.heads("attention.self", "relative"), strict=True))
    own = [itself for retrieval, itself in found if retrieval.mean >= RETRIEVES]
    if not own:
        most = max(retrieval.mean for retrieval, _ in found)
        raise Missing(f"needs a retrieval head: the largest attention.retrieval of the semantic term is {most:.2f}, below {RETRIEVES}")
    uniform = 1 / e.value("probe.length").mean
    itself = average(own)
    return Measured(itself, [uniform - itself], f"{len(own)} retrieval heads, uniform attention {uniform:.4f}")


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
        "DSTG section 4 (3), figure 2",
        0.0,
        f"Share of the heads labelled relative (half of the divergence or more) is at most {SOME}, less than one head",
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
        "DSTG section 4 (3), figure 2: 9 semantic heads, the remaining 27 driven by AP",
        1.0,
        f"Shares of the heads labelled absolute and semantic together are at least {MOST}",
        ("dstg",),
        _cluster,
    ),
    Claim(
        "dstg-relative-supports-semantics",
        "Relative position supports the semantic heads",
        "DSTG section 4 (3), figure 2 (no number printed)",
        None,
        "Spearman's correlation over heads of the relative term's share of the divergence with the semantic term's is above 0, and above "
        "that with the absolute term's; the interval is over heads",
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
        "is on average below that of uniform attention",
        ("dstg",),
        _relative_not_self,
    ),
)
