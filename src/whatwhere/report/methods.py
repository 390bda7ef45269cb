"""How a study was done, in words, and whom to cite: a paragraph for every analysis that the study has records of.

The words are ours, so they may hold markup.
"""

from collections.abc import Sequence

from markupsafe import Markup

from ..papers import BIBTEX
from . import findings, schemes
from .load import Study
from .numbers import compact, count

_TRAINED = Markup(
    "The corpus is cut into windows; training and held-out windows come from different documents. All models are trained by "
    "masked-language modelling on the same batches with the same masks, in the same order. Every figure of this page is read from one "
    "file of {records}, maps and texts from the arrays beside it; the fold of a figure’s data table names its records."
)
_PAPER = Markup("The paper's training is counted as 70,000 steps of 256 sequences of 512 tokens, {tokens} tokens; its text says 22B.")

_PROBES = (
    Markup(
        "A probe is a ridge regression from the hidden state of a token, after one layer, to one of three targets: its position in the "
        "document, the index of its segment, its progress inside the segment. R² is measured on documents that the probe has not seen. "
        "Layer 0 is the embedding, layer <i>l</i> the output of block <i>l</i>. Chance is the same probe with shuffled targets."
    ),
    Markup(
        "With one training seed, an interval is the 95&#8239;% interval over the splits of documents into probe training and test: it "
        "says how sure the reading of this one model is, and nothing about another training. The splits share documents, so the "
        "interval is the corrected one of Nadeau and Bengio (Machine Learning 52, 2003). With several seeds, values are means over "
        "seeds and intervals are Student intervals between seeds."
    ),
    Markup(
        "The paper’s models have six layers. Layer <i>k</i> of six is drawn at the same relative depth, so that last layer stands over "
        "last layer; with six layers that is the layer itself. The last position layer of a model whose prediction head reads the "
        "semantic stream only gets no gradient: it is drawn hollow and takes part in no verdict."
    ),
)
_CEILING = (
    Markup(
        "Position alone, the ceiling of a stream that knows nothing else: the mean of the target at each position of the probes’ training "
        "documents, tested on their test documents."
    ),
)
_VARIANCE = (
    Markup(
        "The share of the variance between positions is that of one-way analysis of variance over regular tokens, squares summed over the "
        "columns of a stream, less what shuffled positions give on average (Kelley’s ε²). It counts what no line reads; its 95&#8239;% "
        "interval is a jackknife over groups of articles."
    ),
)
_PASS = (
    Markup(
        "Heads, attention and hidden states are measured in one pass over held-out documents. Their 95&#8239;% intervals are "
        "percentiles of 1,000 draws of the documents with replacement: they say what other documents of the same kind would change, and "
        "nothing about another training."
    ),
)
_HEADS = (
    Markup(
        "Attention scores are a sum of terms. What a head attends by is found by taking a term away: the Kullback–Leibler divergence, "
        "in nats, from the attention by the whole sum to the attention by the sum without that term, mean over the queries of regular "
        "tokens, then over documents (DSTG, equation 4). The KL share of a term is its divergence over the sum of the divergences of "
        "all terms of the head, so it lies between 0 and 1 and compares the terms of one head only: a head that hardly changes whatever "
        "is taken away has shares too. A head is labelled by the term with at least half of the share; where none has, by “several”. "
        "The certainty of a label is the share of the draws of documents that give the same one."
    ),
)
_ABLATIONS = (
    Markup(
        "An ablation changes the forward pass itself and asks what the prediction of masked tokens loses: a term of the scores, or a "
        "stream of the hidden state, is removed, put in place by its mean, or shuffled. The rise of the loss is paired, document by "
        "document, with the loss of the untouched model. The model was never trained without the part, so a rise says that it is used, "
        "and no rise that it is not used in this place; neither says what a model trained without it would do."
    ),
)
_NEIGHBOURS = (
    Markup(
        "Attention to neighbours is the weight of a regular token on the regular tokens up to eight places before and after it, by a "
        "softmax of one term alone, as if the others were not there. The model of each checkpoint reads the same few held-out documents. "
        "A term that does not depend on the words gives nearly the same in each, so its interval over documents is narrow and says "
        "nothing about another training."
    ),
)
_RETRIEVAL = (
    Markup(
        "Retrieval is attention to the other copy of a token in a text that is repeated, A B A. Its control is the attention to the "
        "same places in A B C, where no copy stands, and is subtracted."
    ),
)
_PRODUCTS = (
    Markup(
        "In the first block of a model that adds positions to words, the scores fall into four products, word with word, word with "
        "position, position with word, and position with position (TUPE, figure 2). The share of one is its variance over the sum of "
        "the four variances; products are not independent of each other, so the shares are a comparison, not a decomposition."
    ),
)
_SENTENCES = (
    Markup(
        "Sentences are told apart in a layer if states differ more between than within them. Neighbouring tokens are alike anyway, and "
        "any contiguous cut of a text shows it; so the ratio is compared with that of shuffled boundaries: segments of the same lengths "
        "in a random order, just as contiguous. The excess is the mean over documents of the logarithm of the one ratio over the other; "
        "0 is what such random cuts show, and words alone lift it a little: the untrained model stands beside it."
    ),
)
_REGRESSION = (
    Markup(
        "How much of a stream another model has is asked by a ridge regression from its hidden state of a layer to the reference "
        "model’s stream of the same layer, over tokens, R² on documents that the regression has not seen (DSTG, appendix B.2). The "
        "regression may turn and stretch the state freely, so it says that the stream can be read there, not that it is used."
    ),
)
_PROJECTED = (
    Markup(
        "A table of positions, sinusoidal or the model’s own, is multiplied by each block’s product of query and key matrices, without "
        "norms and without what earlier blocks did. The stress is the sum of squared differences between the distances of its rows and "
        "the Hellinger distances of the corpus, over the sum of squares of the latter; raw as it is, optimal after the best common "
        "factor (GEOM, 6.8)."
    ),
)
_CONVERGENCE = (
    Markup(
        "The share of steps to a baseline’s loss is read where the validation loss of a model falls to the final one of the "
        "baseline and stays there (TUPE, figure 5), of each seed by itself. A model that never reaches it has no share."
    ),
)
_TABLES = (
    Markup(
        "Position tables are centred over positions before their principal components are taken. The cosine transform of type II is "
        "applied to each component's scores; power is squared amplitude as a share of the component's total."
    ),
)
_OPERATIONS = (
    Markup("Operations are those of the matrix products of a forward pass, two for each multiply-add, per token of a full window."),
)

# Metrics (a beginning that ends in "." stands for all that follow) -> paragraphs.
_WORDS: tuple[tuple[tuple[str, ...], tuple[Markup, ...]], ...] = (
    (("r2.",), _PROBES),
    (("r2.segment.ceiling", "r2.intra.ceiling"), _CEILING),
    (("variance.position",), _VARIANCE),
    (("kl.", "ablation.", "attention.", "local.", "hidden.", "sentences."), _PASS),
    (("kl.",), _HEADS),
    (("ablation.",), _ABLATIONS),
    (("local.",), _NEIGHBOURS),
    (("attention.retrieval",), _RETRIEVAL),
    (("correlation.",), _PRODUCTS),
    (("sentences.",), _SENTENCES),
    (("regression.",), _REGRESSION),
    (("projected.",), _PROJECTED),
    (("convergence.",), _CONVERGENCE),
    (("pca.",), _TABLES),
    (("operations",), _OPERATIONS),
)
_CONTROL = Markup(
    "Three controls stand beside the probes. The same probe on the untrained model says what the random weights give away by themselves; "
    "a probe on the first two or eight principal components says whether a reading rests on the large directions of a state or on "
    "small ones; shuffled targets are the floor of chance."
)
_GEOMETRY = Markup(
    "What the corpus says of position is counted without any model: the share of each token at each position, the Hellinger distances of "
    "these shares with the bias of sampling taken out, and the stress of a table against them. Triples out of order are those of three "
    "positions of which the nearer pair in the text is the farther one in the distances."
)


def has(study: Study, *beginnings: str) -> bool:
    """Whether a study has a record whose metric begins with one of some words."""
    return any(metric.startswith(beginnings) for metric in study.metrics)


def words(study: Study) -> list[Markup]:
    """Paragraphs on the training, then on every analysis that the study has records of."""
    said = [_TRAINED.format(records=count(len(study.records), "record"))]
    for metrics, paragraphs in _WORDS:
        if has(study, *metrics):
            said += paragraphs
            if metrics == ("r2.",) and _controls(study):
                said.append(_CONTROL)
    said += [_GEOMETRY] if has(study, "distance.", "stress.") else []
    return [*said, _PAPER.format(tokens=compact(findings.PAPER_TOKENS))]


def _controls(study: Study) -> bool:
    return any(r.metric.startswith("r2.") and (r.step == 0 or ".pca" in (r.part or "")) for r in study.records)


def cited(study: Study) -> list[tuple[Markup, str]]:
    """What a page takes from which paper, and its BibTeX: of every paper whose schemes, analyses or claims the study has."""
    configs = [study.config(m) for m in study.models]
    families = {schemes.family(study, m) for m in study.models}
    presets = {schemes.preset(study, m) for m in study.models}
    tables = {str(c.get("absolute")) for c in configs}
    claims = {str(c.get("source") or "") for c in study.claims}

    def claimed(*names: str) -> bool:
        return any(name in source for source in claims for name in names)

    reasons: dict[str, list[str]] = {
        "dstg": ["the architecture, the probes and the values of the paper"],  # its values are in the words of every page
        "tupe": _told(
            ("the untied schemes", "untied" in families),
            ("the products of words and positions", has(study, "correlation.")),
            ("the patterns of attention", has(study, "pattern")),
            ("the steps to a baseline’s loss", has(study, "convergence.")),
            ("claims of the ledger", claimed("TUPE")),
        ),
        "geometry": _told(
            ("positional distributions, Hellinger distances and stress", has(study, "distance.", "stress.", "projected.")),
            ("the separation of positions", has(study, "separation")),
            ("tables made by scaling", bool(tables & {"mds", "low_rank"})),
            ("claims of the ledger", claimed("GEOM")),
        ),
        "lowdim": _told(
            ("the components and waves of position tables", has(study, "pca.", "fft.", "dct.")),
            ("tables of low rank and of waves", bool(tables & {"low_rank", "fourier"})),
            ("claims of the ledger", claimed("LOWDIM")),
        ),
        "split": _told(
            ("the streams that meet in the scores only", "split" in presets),
            ("the shift of positions", has(study, "shift.")),
            ("claims of the ledger", claimed("SPLIT", "notes")),
        ),
    }
    if has(study, "kl."):
        reasons["dstg"].append("the taxonomy of heads")
    return [(Markup("{}:").format(_sentence(said)), BIBTEX[key]) for key, said in reasons.items() if said]


def _told(*reasons: tuple[str, bool]) -> list[str]:
    return [said for said, holds in reasons if holds]


def _sentence(said: Sequence[str]) -> str:
    found = said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}"
    return found[0].upper() + found[1:]
