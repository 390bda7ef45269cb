"""What the attention of each block makes of a position table's distances: stress behind M = W_Qᵀ W_K (GEOM section 6.8, figure 8)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ..encoder import Encoder
from ..geometry import sinusoidal, stress
from ..records import Record
from .features import first_position
from .geometry import CorpusDistances, rows_of
from .who import Who


@dataclass(frozen=True, eq=False)
class ScoreMatrices:
    """The matrices M through which a model's attention compares positions, in float64.

    blocks: M of each block, (width, width), on the stream that holds positions. table: the model's own (rows, width of its matrices),
    row 0 that of [CLS], or None. own: the matrices that read the table: `blocks`, or one for all blocks where it is untied from the
    words (TUPE, BERT-A^d).
    """

    blocks: list[np.ndarray]
    table: np.ndarray | None
    own: list[np.ndarray]


def score_matrices(model: Any) -> ScoreMatrices:
    """M = W_Qᵀ W_K of every block, for weights as torch keeps them, (out, in).

    x_i M x_jᵀ is the sum over all heads of q_i · k_j before the scale, without biases, rotations and norms. With two streams, M and table
    are those of the position stream.

    Raises:
        ValueError: the model is neither ours nor laid out as BERT (`encoder.layer[l].attention.self.query`).
    """
    body = getattr(model, "base_model", model)
    if isinstance(body, Encoder):
        return _ours(body)
    try:
        attentions = [layer.attention.self for layer in body.encoder.layer]
        blocks = [_product(a.query.weight, a.key.weight) for a in attentions]
    except (AttributeError, TypeError):
        raise ValueError(
            f"{type(model).__name__} has no encoder.layer[l].attention.self.query and .key, so W_Q and W_K of its blocks are not found. "
            "Encoders of this package and of BERT's layout have them: BERT, RoBERTa, ELECTRA."
        ) from None
    positions = getattr(getattr(body, "embeddings", None), "position_embeddings", None)
    table = None if positions is None else _array(positions.weight)[first_position(model) :]
    same = table is not None and table.shape[1] == len(blocks[0])
    return ScoreMatrices(blocks, table if same else None, blocks if same else [])


def _ours(body: Encoder) -> ScoreMatrices:
    blocks = []
    layers: Any = body.layers
    for attention in (layer.attention for layer in layers):
        qk = attention.heads * attention.d_head
        weight = attention.qkv[0].weight  # the position stream comes first
        blocks.append(_product(weight[:qk], weight[qk : 2 * qk]))
    table = body.position_table()
    if table is None:
        return ScoreMatrices(blocks, None, [])
    untied = body.untied
    return ScoreMatrices(blocks, _array(table), blocks if untied is None else [_product(untied.query.weight, untied.key.weight)])


def _product(query: torch.Tensor, key: torch.Tensor) -> np.ndarray:
    return _array(query).T @ _array(key)


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


def projection_records(model: Any, corpus: CorpusDistances, who: Who) -> list[Record]:
    """Stress of P and of P · M(l), for every block l, against the corpus's distances at the corpus's positions.

    Records `projected.stress.raw` and `projected.stress.optimal` (at the best scale), and the same with the ending `.corrected` against
    corrected distances if the corpus has them; layer 0 is P itself, layer l the matrix of block l; n is the number of positions. Part
    "sinusoidal": P is the sinusoidal table of the matrices' width, row i position i, the paper's measure. Part "own": P is the model's
    table, row i + 1 position i, as row 0 is [CLS]; absent for models without one, and where its width is not that of the blocks
    (ELECTRA-small). Where the table is untied from the words, the only matrix that reads it is U_Qᵀ U_K, one for all blocks: layer 1,
    while "sinusoidal" goes through the blocks as in every model. With two streams, matrices and width are those of the position stream.

    Raw stress grows with the square of the scale of M, which says little: the paper's peaks are in it, its "near-zero" of an untrained
    model is 1 here, all distances being nearly 0 beside the corpus's. Neither is the attention of the model: norms, biases, rotations
    and what the blocks before have done to positions are left out, and M is of all heads together. There are no intervals.

    Raises:
        ValueError: see `score_matrices`; the corpus has positions that the table has not, or not two that differ.
    """
    found = score_matrices(model)
    positions = np.asarray(corpus.positions)
    tables = [("sinusoidal", sinusoidal(int(positions.max()) + 1, len(found.blocks[0]))[positions], found.blocks)]
    if found.table is not None:
        tables.append(("own", found.table[rows_of(corpus, len(found.table))], found.own))
    records = []
    for part, table, matrices in tables:
        for layer, projected in enumerate([table, *(table @ m for m in matrices)]):
            record = partial(who.record, part=part, layer=layer, n=len(positions))
            for ending, dist in (("", corpus.dist), (".corrected", corpus.corrected)):
                if dist is not None:
                    records.append(record(f"projected.stress.raw{ending}", stress(projected, dist)))
                    records.append(record(f"projected.stress.optimal{ending}", stress(projected, dist, "optimal")))
    return records
