"""Every metric of a record, once: its name, what its columns mean, what its interval is over, how it is measured."""

from dataclasses import dataclass

R2, SHARE, NATS = "R²", "share", "nats"
SPLITS, DOCUMENTS, GROUPS = "document splits", "documents", "groups of documents"
PRODUCT = "words or positions, with either"
STREAM, TERM, TABLE, BASELINE = "part of the hidden state", "term of the scores", "position table", "other model"


@dataclass(frozen=True)
class Metric:
    """What the records of a metric say.

    name: what a value is, as an axis or a column names it; unit: its unit, "share" or "R²" where it is
    a pure number of that kind, "" of others. part, index: what these columns
    name and count. counts: what `n` counts. over: what the record's own interval is over. repeats: what `index` counts
    where it repeats one quantity, "splits" or "documents". method: key of `METHODS`, of how it is measured. seed:
    what a seed of its records is of.
    """

    name: str
    unit: str = ""
    part: str = ""
    index: str = ""
    counts: str = DOCUMENTS
    over: str = DOCUMENTS
    repeats: str = ""
    method: str = ""
    seed: str = "training seed"


def _probe(target: str) -> Metric:
    return Metric(f"R² of {target}", R2, STREAM, "split", "tokens", SPLITS, "splits", "probe")


def _stress(name: str) -> Metric:
    return Metric(name, "", TABLE, "rank or dimensions of the table", "pairs of positions", GROUPS, method="geometry")


def _task(name: str, rows: str, unit: str = "", **more: str) -> Metric:
    """Of a task, whose rows are counted and drawn."""
    return Metric(name, unit, "task", counts=rows, over=rows, **more)


def _look(name: str) -> Metric:
    return Metric(name, SHARE, TERM, method="pass")


# A name that ends in "*" stands for all that begin so; the longest that fits counts.
METRICS: dict[str, Metric] = {
    "r2.*": _probe("a target"),
    "r2.token": _probe("position"),
    "r2.segment": _probe("the segment index"),
    "r2.intra": _probe("progress in a segment"),
    "r2.segment.ceiling": Metric("R² of position alone", R2, "", "split", "tokens", SPLITS, "splits", "ceiling"),
    "r2.intra.ceiling": Metric("R² of position alone", R2, "", "split", "tokens", SPLITS, "splits", "ceiling"),
    "variance.position": Metric("variance between positions", SHARE, STREAM, over=GROUPS, method="variance"),
    "shift.change": Metric("change of the states", SHARE, STREAM),
    "hidden.top2": Metric("variance in two components", SHARE, STREAM, method="pass"),
    "hidden.stress": Metric("stress at the best scale", "", STREAM, over=GROUPS, method="centres"),
    "hidden.stress.level": Metric("stress of equal distances", "", counts="positions", method="centres"),
    "sentences.*": Metric("between ÷ within sentences", "", STREAM, method="sentences"),
    "sentences.excess": Metric("log ratio to random cuts", "", STREAM, method="sentences"),
    "regression.*": Metric("R² of a stream", R2, BASELINE, "split", DOCUMENTS, SPLITS, "splits", "regression"),
    "kl.*": Metric("change of attention (KL)", NATS, method="heads"),
    "kl.share.*": Metric("share of the change", SHARE, method="heads"),
    "head.label": Metric("draws with the same label", SHARE, "label", method="heads"),
    "heads.share": Metric("share of heads", SHARE, "label", counts="heads", method="heads"),
    "ablation.*": Metric("rise of loss", NATS, f"{TERM}, or stream", method="ablation"),
    "loss.document": Metric("loss", NATS, "", "document", DOCUMENTS, DOCUMENTS, "documents", "ablation"),
    "ablation.loss": Metric("loss as it is", NATS, "", "document", DOCUMENTS, DOCUMENTS, "documents", "ablation"),
    "attention.*": _look("attention weight"),
    "attention.previous": _look("before"),
    "attention.next": _look("after"),
    "attention.self": _look("itself"),
    "attention.local": _look("near"),
    "attention.special": _look("special"),
    "attention.retrieval": Metric("copy", SHARE, TERM, method="retrieval"),
    "attention.broad": _look("spread"),
    "local.*": Metric("weight on neighbours", SHARE, TERM, method="neighbours"),
    "scores.std": Metric("standard deviation of the scores", "score units", TERM),
    "theta.*": Metric("score of a pair with [CLS], or of others", "score units"),
    "correlation.std": Metric("standard deviation", "score units", PRODUCT, method="products"),
    "correlation.row": Metric("variance between queries", SHARE, PRODUCT, method="products"),
    "correlation.column": Metric("variance between keys", SHARE, PRODUCT, method="products"),
    "correlation.share": Metric("share of the variance", SHARE, PRODUCT, method="products"),
    "pattern": Metric("pattern of a head", "", "pattern", method="pass"),
    "patterns.share": Metric("share of heads", SHARE, "pattern", counts="heads", over="heads", method="pass"),
    "loss": Metric("loss", NATS, "train or validation", counts="masked tokens", over="held-out windows"),
    "loss.unigram": Metric("entropy of token frequencies", NATS, counts="tokens"),
    "blimp": Metric("share of pairs right", SHARE, counts="pairs", over="pairs"),
    "blimp.*": Metric("share of pairs right", SHARE, "paradigm or field", counts="pairs", over="pairs"),
    **{
        f"linguistic.{name}": Metric(
            words, unit, "task", counts="test rows", over="seeds of the probe", method="grammar"
        )
        for name, words, unit in (
            ("score*", "share right", SHARE),
            ("layer*", "share right", SHARE),
            ("f1*", "F1, mean of classes", SHARE),
            ("selectivity*", "share right less the control’s", SHARE),
            ("compression*", "uniform code ÷ online code", ""),
            ("commonest", "share of the commonest class", SHARE),
            ("surface", "share right by the surface alone", SHARE),
        )
    },
    "holmes*": Metric("mean score", "", counts="data sets", over="seeds of the probe", method="holmes"),
    "holmes.dataset*": Metric("score", "", "data set", counts="test rows", over="seeds of the probe", method="holmes"),
    "holmes.layer*": Metric("score", "", "data set", counts="test rows", over="seeds of the probe", method="holmes"),
    "holmes.selectivity*": Metric(
        "score above permuted labels",
        "",
        "data set",
        counts="test rows",
        over="seeds of the probe",
        method="holmes",
    ),
    "holmes.phenomenon*": Metric("mean score", "", "phenomenon", counts="data sets", method="holmes"),
    "holmes.field*": Metric("mean score", "", "field", counts="data sets", method="holmes"),
    "holmes.unsteady": Metric(
        "largest deviation over seeds", "", "data set that is left out", counts="models", method="holmes"
    ),
    "holmes.difference": Metric(
        "score beside the first model’s", "", "data set", counts="test rows", over="test rows", method="holmes"
    ),
    "linguistic.difference": Metric(
        "share right beside the first model’s", SHARE, "task", counts="sentences", over="sentences", method="grammar"
    ),
    "glue.*": _task("score on a task", "development rows", seed="fine-tuning seed"),
    "glue.difference": _task("score beside the first model's", "development rows"),
    "squad.*": _task("F1 of the answers", "questions", SHARE, seed="fine-tuning seed"),
    "squad.exact": _task("answers exactly right", "questions", SHARE, seed="fine-tuning seed"),
    "squad.best.exact": _task("answers exactly right", "questions", SHARE, seed="fine-tuning seed"),
    "squad.unanswerable": _task("questions without an answer", "questions", SHARE),
    "squad.difference": _task("F1 beside the first model's", "questions"),
    "mteb.score*": _task("score on a task", "pairs, test rows or queries", method="vectors"),
    "mteb.type*": Metric("mean score of the tasks of a type", "", "type of task", counts="tasks", method="vectors"),
    "mteb.difference*": _task("score beside the first model's", "pairs, test rows or queries", method="vectors"),
    "accuracy.commonest": Metric("share of the commonest class", SHARE, "validation"),
    "h1*": Metric("distance of the mean words of two positions", "", counts="positions"),
    "h3*": Metric("the same behind W_Q W_Kᵀ", "", "which way", counts="positions"),
    "accuracy": Metric("masked tokens right", SHARE, "validation", counts="masked tokens"),
    "convergence.*": Metric("share of its steps", SHARE, BASELINE, counts="validations", method="convergence"),
    "corpus.documents": Metric("documents", "documents"),
    "corpus.characters": Metric("characters", "characters"),
    "corpus.tokens": Metric("tokens", "tokens"),
    "corpus.windows": Metric("windows", "windows"),
    "corpus.room": Metric("room to shift a window", "tokens", counts="windows"),
    "corpus.from_start": Metric("windows that begin with a document", SHARE, counts="windows"),
    "probe.documents": Metric("documents that are probed", "documents"),
    "probe.length": Metric("their length", "tokens"),
    "swap.loss": Metric("rise of loss", NATS, "tokens", "distance"),
    "swap.positive": Metric("pairs whose swap costs", SHARE, "", "distance", "pairs", "pairs"),
    "fft.turns": Metric("turns over the table", "turns", "", "component", "positions"),
    "fft.peak": Metric("turns of the largest columns", "turns", "", "order", "positions"),
    "outlier": Metric("distance to the nearest row", "medians", "", "position", "positions"),
    "rotation.turns": Metric("turns of a pair of components", "turns", "components", "pair", "positions"),
    "rotation.strength": Metric("motion that is rotation", SHARE, "components", "pair", "positions"),
    "rotation.share": Metric("variance of a pair of components", SHARE, "components", "pair", "positions"),
    "rotation.shift": Metric("shift between a pair of components", "periods", "components", "pair", "positions"),
    "n50.count": Metric("components for half the variance", "components", counts="positions"),
    "parameters": Metric("parameters", "parameters"),
    "parameters.embedding": Metric("of them embeddings", "parameters"),
    "operations": Metric("operations/token", "operations/token", method="operations"),
    "steps": Metric("steps", "steps"),
    "tokens": Metric("training tokens", "tokens"),
    "seconds": Metric("training time", "s"),
    "tokens_per_second": Metric("tokens/s", "tokens/s"),
    "memory.peak": Metric("peak memory", "bytes"),
    "pca.share": Metric("share of variance", SHARE, "", "component", "positions", method="tables"),
    "pca.*": Metric("share of variance", SHARE, counts="positions", method="tables"),
    "dct.low4": Metric("power in four lowest frequencies", SHARE, "", "component", "positions", method="tables"),
    "n50": Metric("components for half the variance", "%", counts="positions", method="tables"),
    "equivariance": Metric("share explained by distance", SHARE, counts="positions", over="random orders of the rows"),
    "equivariance.*": Metric(
        "share explained by distance", SHARE, "", "components", "positions", "random orders of the rows"
    ),
    "distance.*": Metric("root mean square distance", "", counts="pairs of positions", over=GROUPS, method="geometry"),
    "floor.mean": Metric("noise floor", "", counts="positions", over="random halves", method="geometry"),
    "between": Metric("distance", "", "two corpora", "position", over="random halves", method="geometry"),
    "stress.raw": _stress("raw stress"),
    "stress.optimal": _stress("stress at the best scale"),
    "stress.held_out": _stress("stress on other documents"),
    "stress.ratio.*": _stress("stress of one table over that of another"),
    "stress.*": _stress("stress"),
    "violations": Metric("triples out of order", SHARE, TABLE, "rank", "triples", GROUPS, method="geometry"),
    "violations.*": Metric("triples out of order", SHARE, TABLE, "rank", "triples", GROUPS, method="geometry"),
    "correlation": Metric(
        "correlation with the corpus", "", TABLE, "", "pairs of positions", GROUPS, method="geometry"
    ),
    "correlation.corrected": Metric(
        "correlation with the corpus", "", TABLE, "", "pairs of positions", GROUPS, method="geometry"
    ),
    "separation": Metric(
        "smallest distance of two positions", "", "rows of the table", counts="positions", method="geometry"
    ),
    "separation.quantile": Metric(
        "distances of all pairs", "", "rows of the table", "percentile", "pairs of positions"
    ),
    "change": Metric("change since the first checkpoint", SHARE, "rows of the table", counts="positions"),
    "projected.*": Metric("stress behind M", "", TABLE, method="projected"),
    "low_rank.stress.*": _stress("stress at a rank"),
    "low_rank.closed*": Metric("way from random to MDS", SHARE, "", "rank", "positions"),
    "lag.correlation*": Metric("correlation with the lag", "", "", "", "pairs of positions", GROUPS, method="geometry"),
    "rank*": Metric("rank", "", "", "", "positions", GROUPS, method="geometry"),
    "support": Metric("tokens of the rarest position", "tokens", counts="positions", method="geometry"),
    "positions.kept": Metric("positions kept", "positions", method="geometry"),
    "toeplitz*": Metric("share of the lag alone", SHARE, counts="positions", over=GROUPS, method="geometry"),
    "circulant*": Metric("share of circulant matrices", SHARE, counts="positions", over=GROUPS, method="geometry"),
    "mds.share*": Metric("share of variance", SHARE, "", "component", "positions", GROUPS, method="geometry"),
}


def metric(name: str) -> Metric:
    """What is known of a metric; of an unknown one its name."""
    if name in METRICS:
        return METRICS[name]
    fits = [key for key in METRICS if key.endswith("*") and name.startswith(key[:-1])]
    return METRICS[max(fits, key=len)] if fits else Metric(name)


def unit(name: str) -> str:
    """The unit of a metric's records, "" for a pure number such as a share or an R²."""
    known = metric(name).unit
    return "" if known in (SHARE, R2) else known


def repeats(name: str) -> str:
    """What the index of a metric counts where it repeats one quantity: "splits" or "documents", else ""."""
    return metric(name).repeats


# How each group of metrics is measured, in paragraphs for a page: "corpora" of a geometry run, "spectra" of a spectra
# run, the others of a study, in this order. The text is ours and holds no markup.
METHODS: dict[str, tuple[str, ...]] = {
    "probe": (
        "A probe is a ridge regression from the hidden state of a token, after one layer, to one of three targets: "
        "its position in the document, the index of its segment, its progress inside the segment. R² is measured on "
        "documents that the probe has not seen. Layer 0 is the embedding, layer l the output of block l. Chance is "
        "the same probe with shuffled targets.",
        "With one training seed, an interval is the 95\u202f% interval over the splits of documents into probe "
        "training "
        "and test: it says how sure the reading of this one model is, and nothing about another training. The "
        "splits share documents, so the interval is the corrected one of Nadeau and Bengio (Machine Learning 52, "
        "2003). With several seeds, values are means over seeds and intervals are Student intervals between seeds.",
        "The paper’s models have six layers. Layer k of six is drawn at the same relative depth, so that last layer "
        "stands over last layer; with six layers that is the layer itself. The last position layer of a model whose "
        "prediction head reads the semantic stream only gets no gradient: it is drawn hollow and takes part in no "
        "verdict.",
    ),
    "control": (
        "Three controls stand beside the probes. The same probe on the untrained model says what the random weights "
        "give away by themselves; a probe on the first two or eight principal components says whether a reading "
        "rests on the large directions of a state or on small ones; shuffled targets are the floor of chance.",
    ),
    "ceiling": (
        "Position alone, the ceiling of a stream that knows nothing else: the mean of the target at each position "
        "of the probes’ training documents, tested on their test documents.",
    ),
    "variance": (
        "The share of the variance between positions is that of one-way analysis of variance over regular tokens, "
        "squares summed over the columns of a stream, less what shuffled positions give on average (Kelley’s ε²). "
        "It counts what no line reads; its 95\u202f% interval is a jackknife over groups of articles.",
    ),
    "pass": (
        "Heads, attention and hidden states are measured in one pass over held-out documents. Their 95\u202f% "
        "intervals "
        "are percentiles of 1,000 draws of the documents with replacement: they say what other documents of the "
        "same kind would change, and nothing about another training.",
    ),
    "heads": (
        "Attention scores are a sum of terms. What a head attends by is found by taking a term away: the "
        "Kullback–Leibler divergence, in nats, from the attention by the whole sum to the attention by the sum "
        "without that term, mean over the queries of regular tokens, then over documents (DSTG, equation 4). The KL "
        "share of a term is its divergence over the sum of the divergences of all terms of the head, so it lies "
        "between 0 and 1 and compares the terms of one head only: a head that hardly changes whatever is taken away "
        "has shares too. A head is labelled by the term with at least half of the share; where none has, by "
        "“several”. The certainty of a label is the share of the draws of documents that give the same one.",
    ),
    "ablation": (
        "An ablation changes the forward pass itself and asks what the prediction of masked tokens loses: a term of "
        "the scores, or a stream of the hidden state, is removed, put in place by its mean, or shuffled. The rise "
        "of the loss is paired, document by document, with the loss of the untouched model. The model was never "
        "trained without the part, so a rise says that it is used, and no rise that it is not used in this place; "
        "neither says what a model trained without it would do.",
    ),
    "neighbours": (
        "Attention to neighbours is the weight of a regular token on the regular tokens up to eight places before "
        "and after it, by a softmax of one term alone, as if the others were not there. The model of each "
        "checkpoint reads the same few held-out documents. A term that does not depend on the words gives nearly "
        "the same in each, so its interval over documents is narrow and says nothing about another training.",
    ),
    "retrieval": (
        "Retrieval is attention to the other copy of a token in a text that is repeated, A B A. Its control is the "
        "attention to the same places in A B C, where no copy stands, and is subtracted.",
    ),
    "products": (
        "In the first block of a model that adds positions to words, the scores fall into four products, word with "
        "word, word with position, position with word, and position with position (TUPE, figure 2). The share of "
        "one is its variance over the sum of the four variances; products are not independent of each other, so the "
        "shares are a comparison, not a decomposition.",
    ),
    "sentences": (
        "Sentences are told apart in a layer if states differ more between than within them. Neighbouring tokens "
        "are alike anyway, and any contiguous cut of a text shows it; so the ratio is compared with that of "
        "shuffled boundaries: segments of the same lengths in a random order, just as contiguous. The excess is the "
        "mean over documents of the logarithm of the one ratio over the other; 0 is what such random cuts show, and "
        "words alone lift it a little: the untrained model stands beside it.",
    ),
    "regression": (
        "How much of a stream another model has is asked by a ridge regression from its hidden state of a layer to "
        "the reference model’s stream of the same layer, over tokens, R² on documents that the regression has not "
        "seen (DSTG, appendix B.2). The regression may turn and stretch the state freely, so it says that the "
        "stream can be read there, not that it is used.",
    ),
    "centres": (
        "The mean state of a position, over the words that stand there, has distances to those of the others; their "
        "stress at the best common factor says how far they are from the Hellinger distances of the corpus. Two "
        "halves of the articles give two means, and products across the halves hold none of their noise on average. "
        "What is left of it adds stress, so a layer that tells positions less apart has more; one that does not tell "
        "them apart has none. Where all positions are equally far from each other, the stress is at its level; "
        "95\u202f% intervals leave out one group of articles after the other.",
    ),
    "projected": (
        "A table of positions, sinusoidal or the model’s own, is multiplied by each block’s product of query and "
        "key matrices, without norms and without what earlier blocks did. The stress is the sum of squared "
        "differences between the distances of its rows and the Hellinger distances of the corpus, over the sum of "
        "squares of the latter; raw as it is, optimal after the best common factor (GEOM, 6.8).",
    ),
    "grammar": (
        "A probe of grammar is one linear layer, trained by Adam on the mean of the states of the tokens of a word, or "
        "of a sentence, after the last layer; the pass with the lowest loss on development rows is kept, and judged on "
        "the test. Of two streams, probes read both and each alone. The surface alone is the commonest class of the "
        "same word, or of sentences of the same length, in training. Selectivity is the share right less that of a "
        "control, in which every word type has one label drawn at random (Hewitt and Liang 2019). The compression is "
        "the length of the uniform code of the labels over that of their online code, where each block of rows is told "
        "by a probe of all before it (Voita and Titov 2020). Intervals are over seeds of the probe, those of "
        "differences over sentences of the test, the same drawn for both models.",
    ),
    "holmes": (
        "Probes of Holmes are one linear layer behind dropout on the last hidden state, by the protocol of its code "
        "(Waldis et al. 2024). A score is macro F1, or Pearson’s correlation where labels are numbers; a phenomenon "
        "and a field are means over their data sets. Data sets whose score has a standard deviation above 0.1 over "
        "seeds for some model are left out for all (DSTG, C.3). Selectivity is the score less that of probes of "
        "permuted labels.",
    ),
    "convergence": (
        "The share of steps to a baseline’s loss is read where the validation loss of a model falls to the final "
        "one of the baseline and stays there (TUPE, figure 5), of each seed by itself. A model that never reaches "
        "it has no share.",
    ),
    "tables": (
        "Position tables are centred over positions before their principal components are taken. The cosine "
        "transform of type II is applied to each component's scores; power is squared amplitude as a share of the "
        "component's total.",
    ),
    "operations": (
        "Operations are those of the matrix products of a forward pass, two for each multiply-add, per token of a full "
        "window.",
    ),
    "vectors": (
        "A text is one vector: the mean over its tokens, its first token, or the columns of one stream in the mean. "
        "Tasks and main scores are mteb’s: Spearman’s correlation of the cosines of pairs with people’s scores, "
        "accuracy of a logistic regression on a few rows a class (mean of ten draws), V-measure of k-means, nDCG of "
        "the ten nearest documents. Intervals are percentiles of 1,000 draws of the pairs, test rows or queries; they "
        "say nothing about other training rows of the classifiers, nor about another training of the encoder. Clusters "
        "have none.",
    ),
    "geometry": (
        "What the corpus says of position is counted without any model: the share of each token at each position, "
        "the Hellinger distances of these shares with the bias of sampling taken out, and the stress of a table "
        "against them. Triples out of order are those of three positions of which the nearer pair in the text is "
        "the farther one in the distances.",
    ),
    "corpora": (
        "Positions are counted from 0 without special tokens. μ of a position is the share of each token there; the "
        "Hellinger distance of two positions is the length of the difference of their square roots, between 0 and "
        "1.41. It is a distance in space, so an exact table always exists, and classical scaling of it is the "
        "principal components of the square roots.",
        "Few samples make two positions look apart that are not: the square root of a small share is often 0 in one "
        "sample and not in the next. The noise floor is the distance between two random halves of the documents at "
        "one position. The corrected distance takes this bias out: with one half for the one factor and the other "
        "half for the other, the errors of the two are independent and cancel on average. Its square may come out "
        "negative; its root then carries a minus sign.",
        "The root mean square distance is the root of the mean of the squared distances over all pairs of "
        "positions; if that mean is negative, minus the root of its size. Only the squares are free of bias, so the "
        "interval is that of the mean square, its ends as roots: where it holds 0, the geometry is not separable "
        "from chance. For the same reason the order of corrected distances, their correlation with the lag and the "
        "Toeplitz and circulant shares keep the sign of every square, and chance alone gives 50\u202f% of triples out "
        "of "
        "order and a correlation of 0.",
        "Intervals are 95\u202f% intervals of the delete-one-group jackknife over groups of documents: they say what "
        "another sample of documents would change, not another tokenizer or another way of choosing documents.",
        "Stress is the sum over pairs of squared differences, over the sum of squared Hellinger distances, without "
        "a root. It is not between 0 and 1: the raw value of a table can be made anything by stretching the table. "
        "Triples out of order are those of three different positions i, j, k with |i − j| < |i − k| and a larger "
        "distance for the nearer pair.",
    ),
    "spectra": (
        "Every table is taken as it is, all its rows, centred over positions before its principal components are "
        "taken. N50 is the number of components that hold half of the variance; per cent are of the smaller of rows "
        "and columns. Every number of this page is read from the records beside it, every curve and map from the "
        "arrays.",
        "The positions of one table are no sample of anything, so there are no intervals but those between training "
        "seeds. The null of translation equivariance is the same rows in 99 random orders.",
        "A wave is fitted to each component by least squares, with any frequency and phase. Two components rotate "
        "if their frequencies differ by at most a quarter of a turn, their phases by a sixth to a third of a "
        "period, and one steady turn explains at least two thirds of their motion. A position stands alone if its "
        "nearest other position is over three times as far as the median, and far above the upper quartile.",
        "Frequencies are of the table as a whole: one turn is one period over all its positions.",
    ),
}
