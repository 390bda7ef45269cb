"""Four correlations in the first block of a model that adds positions to its words (TUPE section 3.1, eq. 6, figure 2).

With x = w + p at the input, scale · (x W_Q)(x W_K)ᵀ is the sum of word-word, word-position, position-word and
position-position. The norm in between is kept exact: it divides each token by one number, found for the whole x and
applied to both parts. A LayerNorm also subtracts the mean of the features, from each part its own. Biases and token
types belong to neither and are a third part, `constant`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..encoder.blocks import RMSNorm
from ..encoder.rotations import compute_cos_sin, rotate
from ..records.metric import NOT_NEGATIVE, PRODUCT, SHARE, Metric
from ..records.metrics import add_metrics
from ..records.record import Record
from .analyses import OF_WINDOWS, Analysis
from .foreign import distance_bias, query_key
from .passes import Batch, ChosenWindows, batches, body_of, first_position, name_of, rows_on
from .patterns import MeanScores, content_free_terms, counted_tokens, pattern_records
from .record_context import RecordContext, count_documents, document_mean

CORRELATIONS = ("word-word", "word-position", "position-word", "position-position")
STATISTICS = ("share", "row", "column", "std")
MAP = 128  # rows and columns of a mean map

Parts = dict[str, Tensor]  # "word", "position", "constant" -> (b, n, d) or (b, h, n, d_head)

add_metrics(
    {
        "correlation.std": Metric(
            name="standard deviation", unit="score units", part=PRODUCT, method="products", range=NOT_NEGATIVE
        ),
        "correlation.row": Metric(name="variance between queries", unit=SHARE, part=PRODUCT, method="products"),
        "correlation.column": Metric(name="variance between keys", unit=SHARE, part=PRODUCT, method="products"),
        "correlation.share": Metric(name="share of the variance", unit=SHARE, part=PRODUCT, method="products"),
    },
    methods={
        "products": """
In the first block of a model that adds positions to words, the scores fall into four products, word with word, word
with position, position with word, and position with position (TUPE, figure 2). The share of one is its variance over
the sum of the four variances; products are not independent of each other, so the shares are a comparison, not a
decomposition.
""",
    },
)


@dataclass(frozen=True, eq=False)
class FirstBlock:
    """Parts of the first block between the tables and the scores.

    types: vector (d,) of every token beside word and position, or None. norm: norm of the sum of the tables. between:
    map after the norm (ELECTRA). query, key: weight (heads · d_head, d) and bias
    (heads · d_head,) of the projections. turn: rotation of
    queries and keys, or None.
    """

    words: nn.Embedding
    positions: Tensor
    types: Tensor | None
    norm: nn.Module
    between: nn.Linear | None
    query: tuple[Tensor, Tensor | None]
    key: tuple[Tensor, Tensor | None]
    heads: int
    scale: float
    turn: Callable[[Tensor, Tensor], Tensor] | None = None


def first_block(model: Any) -> FirstBlock:
    """Return the first block of a model that adds its position table to its words.

    The model is `ap`, `sinusoidal`, `low-rank`, `fourier`, `bert-a`, `bert-r`, or one of transformers built like BERT.

    Raises:
        ValueError: the model adds no position table to its words; the message says how it uses positions instead.
    """
    body = body_of(model)
    return _first_block_of_ours(model, body) if model.config.model_type == "whatwhere" else _like_bert(model, body)


def _first_block_of_ours(model: Any, body: Any) -> FirstBlock:
    config = model.config
    table = body.position_table()
    if (
        table is None
        or config.untied != "none"
        or config.position_size
        or config.rotation == "xpos"
        or config.input_kernel
    ):
        why = "has no position table" if table is None else "mixes neighbours into the words"
        if config.bilevel:
            why = "has rows for places in a segment, which are none of the text"
        if config.rotation == "xpos":
            why = "lets its scores fall with distance"
        if config.position_size:
            why = "keeps positions in a stream of their own"
        elif config.untied != "none":
            why = "projects positions apart from the words"
        raise ValueError(
            f"{name_of(model)} {why}: nothing is added to the words that could be taken apart. Its scores have named "
            "terms (attention_terms). The four correlations exist in ap, sinusoidal, low-rank, fourier, bert-a and "
            "bert-r."
        )
    layer = body.layers[0]
    heads = config.num_attention_heads
    project = layer.attention.qkv[0]
    rows = heads * config.d_head
    biases = (None, None) if project.bias is None else project.bias[: 2 * rows].split(rows)
    query, key = zip(project.weight[: 2 * rows].split(rows), biases, strict=True)
    norm = (body.embedding_norm or layer.attention_norm).norms[0]
    turn = None if config.rotation == "none" else lambda x, at: rotate(x, *compute_cos_sin(at, config, x.dtype))
    return FirstBlock(body.word_embeddings, table, None, norm, None, query, key, heads, config.score_scale, turn)


_BETWEEN = ("embeddings_project", "encoder.embedding_hidden_mapping_in")


def _between(body: Any) -> nn.Linear | None:
    """Return the map from the words' width to the blocks' width; None without one."""
    for path in _BETWEEN:
        with suppress(AttributeError):
            module = body.get_submodule(path)
            return module if isinstance(module, nn.Linear) else None
    return None


def _like_bert(model: Any, body: Any) -> FirstBlock:
    embeddings = getattr(body, "embeddings", None)
    projections = None
    with suppress(ValueError):
        projections = query_key(model)[0]
    names = ("word_embeddings", "position_embeddings", "LayerNorm", "token_type_embeddings")
    parts: list[Any] = [getattr(embeddings, name, None) for name in names]
    kinds = (nn.Embedding, nn.Embedding, nn.LayerNorm)
    if projections is None or not all(isinstance(part, kind) for part, kind in zip(parts, kinds, strict=False)):
        raise ValueError(
            f"{type(model).__name__} is not built like BERT. Give a model with embeddings.word_embeddings, "
            ".position_embeddings and .LayerNorm, and a first block with a query and a key projection (BERT, RoBERTa, "
            "ELECTRA, CamemBERT, XLM-RoBERTa, MPNet, ALBERT, DistilBERT)."
        )
    (words, positions, norm, types) = parts
    table = positions.weight[first_position(model) :]
    types = None if types is None else types.weight[0]
    query = projections.query, projections.query_bias
    key = projections.key, projections.key_bias
    heads = int(model.config.num_attention_heads)
    scale = (len(projections.query) // heads) ** -0.5
    return FirstBlock(words, table, types, norm, _between(body), query, key, heads, scale)


def normed_parts(norm: nn.Module, word: Tensor, position: Tensor, constant: Tensor) -> Parts:
    """Take three parts (b, n, d) of x through a norm, so that they sum to the norm of their sum.

    RMSNorm multiplies each token by one number and the weights. LayerNorm also subtracts the mean over features, part
    by part; its bias is constant.

    Raises:
        ValueError: another kind of norm.
    """
    x = word + position + constant
    parts = {"word": word, "position": position, "constant": constant}
    weight: Any = norm.weight
    if isinstance(norm, RMSNorm):
        factor = (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
        return {name: part * factor * weight for name, part in parts.items()}
    if not isinstance(norm, nn.LayerNorm):
        raise ValueError(
            f"No sum can be followed through {type(norm).__name__}. Give a model with RMSNorm or LayerNorm."
        )
    factor = (x.var(-1, correction=0, keepdim=True) + norm.eps).rsqrt()
    parts = {name: (part - part.mean(-1, keepdim=True)) * factor * weight for name, part in parts.items()}
    return parts if norm.bias is None else {**parts, "constant": parts["constant"] + norm.bias}


def _mapped(parts: Parts, weight: Tensor, bias: Tensor | None) -> Parts:
    """Apply a linear map to the parts; its bias is constant."""
    return {name: F.linear(p, weight, bias if name == "constant" else None) for name, p in parts.items()}


@torch.inference_mode()
def first_block_correlations(block: FirstBlock, input_ids: Tensor, position_ids: Tensor | None = None) -> Parts:
    """Compute the four correlations of TUPE eq. 6 and the rest, each (b, h, n, n) in score units; they sum to the
    product of queries and keys.

    Keys: `word-word`, `word-position` (query word), `position-word`, `position-position`, and `constant`, all pairs
    with a part that is neither: norm and projection biases, token types. Biases of the distance (`bert-r`) are no part
    of the product.

    Args:
        input_ids: (b, n). position_ids: (b, n), counted from 0 in every model; default 0, 1, 2, ...

    Raises:
        ValueError: a text is longer than the position table.
    """
    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    if position_ids.numel() and int(position_ids.max()) >= len(block.positions):
        raise ValueError(
            f"Text reaches position {int(position_ids.max())}, but the position table has {len(block.positions)} rows. "
            "Give shorter windows."
        )
    word = F.embedding(input_ids, block.words.weight)
    position = F.embedding(position_ids, block.positions)
    constant = torch.zeros_like(word) if block.types is None else block.types.expand_as(word)
    parts = normed_parts(block.norm, word, position, constant)
    if block.between is not None:
        parts = _mapped(parts, block.between.weight, block.between.bias)

    def heads(x: Tensor) -> Tensor:
        x = x.unflatten(-1, (block.heads, -1)).transpose(1, 2)
        return x if block.turn is None else block.turn(x, position_ids)

    q, k = ({name: heads(x) for name, x in _mapped(parts, *project).items()} for project in (block.query, block.key))
    products = {f"{a}-{b}": block.scale * (q[a] @ k[b].mT) for a in ("word", "position") for b in ("word", "position")}
    # Every pair with a constant: constant query with the whole key, and the rest of the query with a constant key.
    whole = k["word"] + k["position"] + k["constant"]
    constant = q["constant"] @ whole.mT + (q["word"] + q["position"]) @ k["constant"].mT
    return products | {"constant": block.scale * constant}


def correlation_records(
    model: Any, windows: ChosenWindows, context: RecordContext, *, batch_size: int = 8
) -> tuple[list[Record], dict[str, np.ndarray]]:
    """Measure the four correlations between regular tokens in each head of layer 1.

    Return records and maps.

    Records, part one of the four, means over windows:

    - `correlation.share`: variance of the matrix (over all pairs of regular tokens of a window) ÷ sum of the four
      variances;
    - `correlation.std`: its standard deviation, in score units;
    - `correlation.row`, `correlation.column`: share of its variance that is between rows (queries) and between columns
      (keys). TUPE finds the second and third "uniform": small `std` beside word-word.

    A correlation without variance has no row and column. Where the model has no term that is free of content (`ap`,
    BERT), the patterns of the mean position-position correlation are added: `pattern`, `patterns.share` (TUPE 4.4) of
    this one block; in MPNet of its sum with the bias of the distance, which the block adds to its scores.

    Arrays: of each of the four, (h, m, m), mean over windows of the m positions that are mostly regular tokens, at
    most 128: with more, means over 128 equal bins.

    Args:
        model: one of ours with an added table, or one of transformers built like BERT, with or without a head.

    Raises:
        ValueError: as `first_block`; a window reaches beyond the table; or no window has 3 regular tokens.
    """
    block = first_block(model)
    device = block.positions.device
    values = np.empty((len(windows), len(CORRELATIONS), 3, block.heads))
    means = {part: MeanScores() for part in CORRELATIONS}
    places = MeanScores()
    bias = distance_bias(model, windows.length)
    for rows in batches(np.arange(len(windows)), batch_size):
        with torch.inference_mode():
            batch = Batch.of(windows, rows, device)
            regular = counted_tokens(batch)
            parts = first_block_correlations(block, batch.input_ids, *rows_on(device, rows, windows.position_ids))
            for part in CORRELATIONS:
                means[part].add(parts[part], regular)
            places.add(parts["position-position"] + bias, regular)
            values[rows] = torch.stack([_variances(parts[part], regular) for part in CORRELATIONS], dim=1).cpu().numpy()
    if not len(values) or np.isnan(values).all():
        raise ValueError("No window has 3 regular tokens or more, so no correlation varies. Give longer windows.")
    whole, rows_of, columns = np.moveaxis(values, 2, 0)  # (windows, correlations, h) each
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = whole / whole.sum(1, keepdims=True), rows_of / whole, columns / whole, np.sqrt(whole)
    stacked = np.stack(statistics, axis=1)  # (windows, statistics, correlations, h)
    stacked[~np.isfinite(stacked)] = np.nan
    mean = document_mean(stacked, document_numbers=windows.document_numbers)
    n = count_documents(stacked, windows.document_numbers)
    axes = {"metric": STATISTICS, "part": CORRELATIONS, "head": range(block.heads)}
    records = context.records("correlation.", mean, axes, n=n, layer=1)
    maps = {part: m.mean() for part, m in means.items()}
    between_positions = places.mean()
    if not _has_terms(model) and between_positions.shape[-1] >= 3:
        records += pattern_records(between_positions[None], context, n=windows.document_count)
    return records, {part: _binned(m).astype(np.float32) for part, m in maps.items()}


def _has_terms(model: Any) -> bool:
    with suppress(ValueError):
        return bool(content_free_terms(model))
    return False


def _variances(scores: Tensor, regular: Tensor) -> Tensor:
    """Compute the variance of scores (b, h, n, n) over pairs of regular tokens (b, n), between rows, and between
    columns: (b, 3, h).

    nan in windows of fewer than 3 such tokens.
    """
    chosen = regular[:, None].to(scores.dtype)  # (b, 1, n)
    count = chosen.sum(-1)  # (b, 1)
    pairs = chosen[..., None] * chosen[..., None, :]
    mean = (scores * pairs).sum((-2, -1)) / count**2
    centred = (scores - mean[..., None, None]) * pairs
    rows = centred.sum(-1) / count[..., None]
    columns = centred.sum(-2) / count[..., None]
    squares = [centred.square().sum((-2, -1)) / count**2, *(x.square().sum(-1) / count for x in (rows, columns))]
    return torch.stack(squares, dim=1).masked_fill((count < 3)[..., None], float("nan"))


def _binned(maps: np.ndarray) -> np.ndarray:
    """Return maps (h, n, n) as means over equal bins, at most 128 each way."""
    n = maps.shape[-1]
    if n <= MAP:
        return maps
    starts = np.unique(np.arange(n) * MAP // n, return_index=True)[1]
    sizes = np.diff(np.append(starts, n))
    summed = np.add.reduceat(np.add.reduceat(maps, starts, axis=1), starts, axis=2)
    return summed / np.outer(sizes, sizes)


ANALYSES = (
    Analysis(
        "correlations",
        OF_WINDOWS,
        lambda s: correlation_records(s.model, s.evenly_spaced(), s.context),
        array_stem="correlations",
        optional=True,
    ),
)
