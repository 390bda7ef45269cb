"""Effect of the attention matrices M = W_Q W_Kᵀ on differences between positions.

Stress of a position table behind the M of each block (GEOM section 6.8, figure 8). Conditions H1 and H3 of GEOM's
separation theorem (section 4): H1: ē_i ≠ ē_j, where ē_i is the mean word embedding at position i. H3: M(ē_i - ē_j) ≠ 0,
M of an attention head. Any sample makes two means differ, and M, of rank d_head, annihilates most directions, so that
"≠ 0" says little by itself: the records compare the smallest distances with the difference of two halves of the
documents at the same position.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..encoder import Encoder
from ..geometry import sinusoidal
from ..geometry.distances import distances
from ..records.metric import NOT_NEGATIVE, SCALES, TABLE, Metric, with_endings
from ..records.metrics import add_metrics
from ..records.record import Record
from .analyses import TRAINING, Analysis
from .corpus_geometry import CorpusDistances, rows_of
from .foreign import query_key
from .passes import as_float64, body_of, first_position
from .record_context import RecordContext

add_metrics(
    {
        **with_endings(
            "h1",
            ("", ".median", ".floor"),
            Metric(name="distance of the mean words of two positions", counts="positions", range=NOT_NEGATIVE),
        ),
        **with_endings(
            "h3",
            ("", ".median", ".floor"),
            Metric(name="the same behind W_Q W_Kᵀ", part="which way", counts="positions", range=NOT_NEGATIVE),
        ),
        **with_endings(
            "projected.stress.",
            SCALES,
            Metric(name="stress behind M", part=TABLE, counts="positions", method="projected", range=NOT_NEGATIVE),
        ),
    },
    methods={
        "projected": """
A table of positions, sinusoidal or the model’s own, is multiplied by each block’s product of query and key matrices,
without norms and without what earlier blocks did. The stress is the sum of squared differences between the distances of
its rows and the Hellinger distances of the corpus, over the sum of squares of the latter; raw unscaled, optimal after
the best common factor (GEOM, 6.8).
""",
    },
)


@dataclass(frozen=True, eq=False)
class ScoreMatrices:
    """The matrices M through which a model's attention compares positions, in float64.

    blocks: M of each block, (width, width), on the stream that holds positions. table: the model's own (rows, width of
    its matrices), row 0 for [CLS], or None. of_table: the matrices that read the table: `blocks`, or one for all
    blocks where it is untied from the words (TUPE, BERT-A^d).
    """

    blocks: list[np.ndarray]
    table: np.ndarray | None
    of_table: list[np.ndarray]


def score_matrices(model: Any) -> ScoreMatrices:
    """Return M = W_Qᵀ W_K of every block, for weights as torch keeps them, (out, in).

    x_i M x_jᵀ is the sum over all heads of q_i · k_j before the scale, without biases, rotations and norms.

    Raises:
        ValueError: the model is neither ours nor of a family that `query_key` knows.
    """
    body = body_of(model)
    if isinstance(body, Encoder):
        blocks = [q.T @ k for q, k in _query_key(body, 0)]
        rows = body.position_table()
        if rows is None:
            return ScoreMatrices(blocks, None, [])
        of_table = blocks
        if body.untied is not None:
            of_table = [as_float64(body.untied.query.weight).T @ as_float64(body.untied.key.weight)]
        return ScoreMatrices(blocks, as_float64(rows), of_table)
    blocks = [as_float64(pair.query).T @ as_float64(pair.key) for pair in query_key(model)]
    positions = getattr(getattr(body, "embeddings", None), "position_embeddings", None)
    if positions is None or positions.weight.shape[1] != len(blocks[0]):
        return ScoreMatrices(blocks, None, [])
    return ScoreMatrices(blocks, as_float64(positions.weight)[first_position(model) :], blocks)


def _query_key(encoder: Any, stream: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return W_Q and W_K (heads · d_head, width of the stream) of each block; stream 0 holds positions, -1 words."""
    rows = encoder.config.num_attention_heads * encoder.config.d_head
    weights = (as_float64(layer.attention.qkv[stream].weight) for layer in encoder.layers)
    return [(weight[:rows], weight[rows : 2 * rows]) for weight in weights]


def projection_records(model: Any, corpus: CorpusDistances, context: RecordContext) -> list[Record]:
    """Measure the stress of P and of P · M(l) against the corpus's distances.

    l counts the blocks, and the positions are the corpus's.

    Records `projected.stress.raw` and `projected.stress.optimal` (at the best scale); layer 0 is P itself, layer l the
    matrix of block l; n is the number of positions. Part "sinusoidal": P is the sinusoidal table of the matrices'
    width, row i position i, the paper's measure. Part "own": P is the model's table, row i + 1 position i, as row 0 is
    [CLS]; absent for models without one, and where its width is not the blocks' (ELECTRA-small). Where the table
    is untied from the words, the only matrix that reads it is U_Qᵀ U_K, one for all blocks: layer 1. With two streams,
    matrices and width belong to the position stream.

    Raw stress grows with the square of the scale of M, which says little: the paper's peaks are in it, its "near-zero"
    of an untrained model is 1 here, all distances being nearly 0 beside the corpus's. Neither is the attention of the
    model: norms, biases, rotations and the effect of earlier blocks on positions are left out, and M sums all heads.
    There are no intervals.

    Raises:
        ValueError: see `score_matrices`; the corpus has positions that the table has not, or not two that differ.
    """
    matrices = score_matrices(model)
    positions = np.asarray(corpus.positions)
    sinusoids = sinusoidal(int(positions.max()) + 1, len(matrices.blocks[0]))[positions]
    tables = [("sinusoidal", sinusoids, matrices.blocks)]
    if matrices.table is not None:
        tables.append(("own", matrices.table[rows_of(corpus, len(matrices.table))], matrices.of_table))
    return [
        context.record(f"projected.{metric}", value, part=part, layer=layer, n=len(positions))
        for part, table, behind in tables
        for layer, projected in enumerate([table, *(table @ m for m in behind)])
        for metric, value in corpus.stress(projected).items()
    ]


@dataclass(frozen=True, eq=False)
class Scores:
    """Weights of the content term of attention scores, in float64.

    words: word embeddings (V, d). query, key: matrices (layers, heads, d_head, d) that turn a vector into a head's
    query or key.
    """

    words: np.ndarray
    query: np.ndarray
    key: np.ndarray


def _scores(words: np.ndarray, weights: list[tuple[np.ndarray, np.ndarray]], heads: int) -> Scores:
    """Return the weights by head, of word embeddings (V, d), and of W_Q and W_K (heads · d_head, d) of each block."""
    query, key = (np.stack([w.reshape(heads, -1, w.shape[1]) for w in kind]) for kind in zip(*weights, strict=True))
    return Scores(words, query, key)


def scores_of_model(model: Any) -> Scores:
    """Return the content weights of a model, ours or of transformers; with two streams, of the semantic stream.

    Raises:
        ValueError: as `query_key`, or the words are not as wide as the attention that reads them.
    """
    body = body_of(model)
    heads = int(model.config.num_attention_heads)
    if isinstance(body, Encoder):
        return _scores(as_float64(body.word_embeddings.weight), _query_key(body, -1), heads)
    words = as_float64(body.get_input_embeddings().weight)
    weights = [(as_float64(pair.query), as_float64(pair.key)) for pair in query_key(model)]
    width = weights[0][0].shape[1]
    if words.shape[1] != width:
        raise ValueError(
            f"The words of {type(model).__name__} are {words.shape[1]} wide, its attention {width}: a map stands "
            "between them, as in ALBERT and ELECTRA-small. Give a model without one, for example ELECTRA-base."
        )
    return _scores(words, weights, heads)


def condition_records(
    scores: Scores, p: Any, context: RecordContext, *, halves: Sequence[tuple[Any, Any]] = ()
) -> list[Record]:
    """Measure GEOM's conditions: `h1`, `h3`, `h1.median` and `h3.median`.

    `h1` and `h3` are the smallest distances over pairs of positions.

    h1: of |ē_i - ē_j|. h3, by head and layer, here the state that a block reads: 0 of the first block, one less than in
    other records of blocks. Part "M" is |M(ē_i - ē_j)|, as H3 states, and "M^T" |Mᵀ(ē_i - ē_j)|, which the proof of
    theorem 4 uses. With `halves` also `h1.floor` and `h3.floor`: the mean over
    positions and splits of the distance between the means of two halves at one position; a smallest distance below it
    is not shown to be more than chance. n is the number of positions. (M multiplies the word embeddings here, as in the
    paper, whose model has one layer and no norm; in later layers of a real model it meets hidden states.)

    Args:
        p: (m, V) distributions of tokens at positions, rows that sum to 1, sparse or dense.
        halves: distributions (m, V) of two halves of the documents at the same positions, for one or more splits.

    Raises:
        ValueError: the vocabularies of corpus and model differ, or fewer than two positions.
    """
    if p.shape[1] != len(scores.words):
        raise ValueError(
            f"The corpus is counted over {p.shape[1]} tokens, the model has {len(scores.words)}. Count with the "
            "model's own tokenizer."
        )
    means = np.asarray(p @ scores.words)  # ē (m, d)
    if len(means) < 2:
        raise ValueError(
            f"Positions are compared in pairs; got {len(means)}. Count more text, or lower the support that is asked "
            "for."
        )
    noise = [np.asarray(a @ scores.words - b @ scores.words) for a, b in halves]
    record = partial(context.record, n=len(means))
    records = _smallest(means, noise, "h1", record)
    for layer, (queries, keys) in enumerate(zip(scores.query, scores.key, strict=True)):
        for head, (query, key) in enumerate(zip(queries, keys, strict=True)):
            for part, outer, inner in (("M", query, key), ("M^T", key, query)):
                # M = W_Q W_Kᵀ with the paper's W (d, d_head), our matrices transposed; rows meet it from the right.
                record_of_part = partial(record, layer=layer, head=head, part=part)
                records += _smallest(
                    means @ inner.T @ outer, [n @ inner.T @ outer for n in noise], "h3", record_of_part
                )
    return records


def _smallest(vectors: np.ndarray, noise: Sequence[np.ndarray], metric: str, record: "partial[Record]") -> list[Record]:
    apart = distances(vectors)[np.triu_indices(len(vectors), 1)]
    records = [record(metric, apart.min()), record(f"{metric}.median", np.median(apart))]
    floors = [np.linalg.norm(n, axis=1).mean() for n in noise]
    return [*records, record(f"{metric}.floor", np.mean(floors))] if floors else records


ANALYSES = (
    Analysis("projection", TRAINING, lambda s: projection_records(s.model, s.corpus, s.context), needs=("corpus",)),
)
