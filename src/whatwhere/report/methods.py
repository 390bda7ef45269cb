"""How a study was done, in words, and whom to cite: a paragraph for every analysis that the study has records of.

The words are ours, so they may hold markup.
"""

from markupsafe import Markup

from ..metrics import METHODS, metric
from ..papers import bibtex
from . import schemes
from .numbers import compact, count
from .run import Run
from .titles import PAPER_TOKENS, listed

_TRAINED = Markup(
    "The corpus is cut into windows; training and held-out windows come from different documents. All models are "
    "trained by "
    "masked-language modelling on the same batches with the same masks, in the same order. Every figure of this page "
    "is read from one "
    "file of {records}, maps and texts from the arrays beside it; the fold of a figure’s data table names its records."
)
_PAPER = Markup(
    "The paper's training is counted as 70,000 steps of 256 sequences of 512 tokens, {tokens} tokens; its text says "
    "22B."
)
# Measured in one pass over held-out documents, which has a paragraph of its own.
_PASS = ("kl.", "ablation.", "attention.", "local.", "hidden.", "sentences.")


def has(run: Run, *beginnings: str) -> bool:
    """Whether a study has a record whose metric begins with one of some words."""
    return any(metric.startswith(beginnings) for metric in run.table.metrics)


def words(run: Run) -> list[Markup]:
    """Paragraphs on the training, then on every analysis that the study has records of, in the order of `METHODS`."""
    ways = {metric(name).method for name in run.table.metrics}
    if any(name.startswith(_PASS) for name in run.table.metrics):
        ways.add("pass")
    if any(r.metric.startswith("r2.") and (r.step == 0 or ".pca" in (r.part or "")) for r in run.records):
        ways.add("control")
    measured = [
        Markup("{}").format(paragraph) for way, paragraphs in METHODS.items() if way in ways for paragraph in paragraphs
    ]
    trained = _TRAINED.format(records=count(len(run.records), "record"))
    return [trained, *measured, _PAPER.format(tokens=compact(PAPER_TOKENS))]


def cited(run: Run) -> list[tuple[Markup, str]]:
    """What a page takes from which paper, and its BibTeX: of every paper whose schemes, analyses or claims the study
    has."""
    configs = [run.config(m) for m in run.models]
    families = {schemes.family(run, m) for m in run.models}
    presets = {schemes.preset(run, m) for m in run.models}
    tables = {str(c.get("absolute")) for c in configs}
    claims = {str(c.get("source") or "") for c in run.claims}

    def claimed(*names: str) -> bool:
        return any(name in source for source in claims for name in names)

    reasons: dict[str, dict[str, bool]] = {
        "dstg": {  # its values are in the words of every page
            "the architecture, the probes and the values of the paper": True,
            "the taxonomy of heads": has(run, "kl."),
        },
        "tupe": {
            "the untied schemes": "untied" in families,
            "the products of words and positions": has(run, "correlation."),
            "the patterns of attention": has(run, "pattern"),
            "the steps to a baseline’s loss": has(run, "convergence."),
            "claims of the ledger": claimed("TUPE"),
        },
        "geometry": {
            "positional distributions, Hellinger distances and stress": has(run, "distance.", "stress.", "projected."),
            "the separation of positions": has(run, "separation"),
            "tables made by scaling": bool(tables & {"mds", "low_rank"}),
            "claims of the ledger": claimed("GEOM"),
        },
        "lowdim": {
            "the components and waves of position tables": has(run, "pca.", "fft.", "dct."),
            "tables of low rank and of waves": bool(tables & {"low_rank", "fourier"}),
            "claims of the ledger": claimed("LOWDIM"),
        },
        "split": {
            "the streams that meet in the scores only": "split" in presets,
            "the shift of positions": has(run, "shift."),
            "claims of the ledger": claimed("SPLIT", "notes"),
        },
    }
    given = {key: listed([reason for reason, holds in of.items() if holds]) for key, of in reasons.items()}
    return [(Markup("{}:").format(of[0].upper() + of[1:]), bibtex(key)) for key, of in given.items() if of]
