"""Attention of every scheme: scores are a declared sum of terms, products of two projections or added biases.

The backend `eager` is the specification; the others compute the same in one call on the concatenated projections. The
indicator of DSTG eq. 2, [i, j not in S] with S = {[CLS], [SEP]}, factorises: with q_pos and k_pos set to zero at
special tokens, [q_pos; q_sem]·[k_pos; k_sem] is the sum of both products.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from .biases import Bias, RelativeTerm, sum_biases
from .config import EncoderConfig
from .pair_terms import PairInputs
from .registry import PAIR_TERMS, suggest_name
from .rotations import rotate
from .tiled_attention import attend_in_tiles


def _rotate_both(
    q: Tensor, k: Tensor, query_cos_sin: tuple[Tensor, Tensor] | None, key_cos_sin: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys (b, h, n, d_head), each by a cos and a sin; leave them where there are none."""
    if query_cos_sin is None or key_cos_sin is None:
        return q, k
    return rotate(q, *query_cos_sin), rotate(k, *key_cos_sin)


@dataclass(frozen=True)
class ProductForKeysAhead:
    """Queries and keys of a `Product` at pairs whose key is ahead, at the larger position (xPos).

    q, k: as in `Product`. is_ahead: (b or 1, 1, n, n), True at pairs whose key is ahead.
    """

    q: dict[str, Tensor]
    k: dict[str, Tensor]
    is_ahead: Tensor


@dataclass(frozen=True)
class Product:
    """Scores between named queries and keys (b or 1, h, n, d_head), a term scale · q_a·k_b of each pair of names.

    A query and a key of the same name a give the term "a"; a query a and a key b give the term "a_to_b". Without
    `ahead`, the terms sum to scale · (Σq)·(Σk). ahead: other queries and keys for the pairs of tokens whose key has the
    larger position, or None.
    """

    q: dict[str, Tensor]
    k: dict[str, Tensor]
    ahead: ProductForKeysAhead | None = None

    def terms(self, scale: float) -> dict[str, Tensor]:
        """Return each term (b or 1, h, n, n), in score units, by name."""
        names = [(a, b) for a in self.q for b in self.k]
        return {a if a == b else f"{a}_to_{b}": scale * self._scores(a, b) for a, b in names}

    def _scores(self, a: str, b: str) -> Tensor:
        scores = self.q[a] @ self.k[b].transpose(-1, -2)
        if self.ahead is None:
            return scores
        return torch.where(self.ahead.is_ahead, self.ahead.q[a] @ self.ahead.k[b].transpose(-1, -2), scores)


@dataclass(frozen=True)
class AttentionInputs:
    """Inputs that all layers share in one forward pass.

    token_kinds: (b, n), the kind of each token: 0 outside of S = {cls, sep}, 1 in it, and with relative_special=each 2
        at [SEP]; (1, n) where special tokens stand alike in all examples, so that a bias equal over the batch exists
        once.
    cls_kinds: 1 at [CLS], else 0; (b, n) or (1, n), as token_kinds.
    table_rows: (b, n), the row of the position table that each token reads: its position, or with `bilevel` its place
        in its segment.
    term_positions: (b, n), the position of each token, for pair terms; one row (1, n) where all examples are known to
        have the same, so that terms of positions are computed once. No pair term reads it with `bilevel`.
    distance_or_bucket: the distance of each pair, position of the key minus the query's; with `bilevel` the number of
        the key's segment minus the query's; for a bias with `buckets` (T5) the bucket of the distance. (b, n, n), or
        (2n - 1,) where positions are consecutive; None if unused. Pair terms read distances: no configuration has them
        beside a bias with buckets.
    allowed: (b, 1, 1 or n, n), True where a query may look at a key, or None for everywhere.
    cos_sin: cos and sin (b, 1, n, rotated_width) of the rotation, or None; for xPos times ζ^(position / s).
    cos_sin_over_decay: for xPos cos and sin divided by ζ^(position / s), else None. A query takes `cos_sin`, an earlier
        key `cos_sin_over_decay`. For a later key both swap, so that scores fall with the distance on both sides.
    is_ahead: (b or 1, 1, n, n), True at pairs whose key has the larger position; for xPos alone.
    position_query_key: query and key of the positions, which join the words' (BERT-A^d), or None.
    distance_vectors: (rows, width), which DeBERTa's terms of all layers share, or None.
    biases: biases that all layers share, computed once.
    bias_sum: their sum, or None if there are none.
    with_dropout: False leaves dropout out, whatever mode the model is in.
    """

    token_kinds: Tensor
    cls_kinds: Tensor
    table_rows: Tensor
    term_positions: Tensor
    distance_or_bucket: Tensor | None = None
    allowed: Tensor | None = None
    cos_sin: tuple[Tensor, Tensor] | None = None
    cos_sin_over_decay: tuple[Tensor, Tensor] | None = None
    is_ahead: Tensor | None = None
    position_query_key: tuple[Tensor, Tensor] | None = None
    distance_vectors: Tensor | None = None
    biases: tuple[Bias, ...] = ()
    bias_sum: Bias | None = None
    with_dropout: bool = True


# Inspector of the terms of one block: (named terms, allowed) -> terms to use instead, or None. `Encoder.inspect_terms`
# makes it of the user's inspector and the number of the block.
TermInspector = Callable[[dict[str, Tensor], Tensor | None], dict[str, Tensor] | None]
# Stack of mappings from `id(attention)` to its inspector; the newest wins. Each thread or task has its own stack, so
# that threads that read the same model do not change each other's terms.
INSPECTORS: ContextVar[tuple[Mapping[int, TermInspector], ...]] = ContextVar("inspectors", default=())


def term_scores(products: list[Product], biases: list[Bias], scale: float) -> dict[str, Tensor]:
    """Return the named terms of the scores, each (b or 1, h, n, n), before masking: softmax reads their masked sum.

    products: queries and keys, with distinct names of terms. biases: all other terms: of positions alone, and the pair
    terms that a layer has computed from its queries or keys (`_collect_biases`). scale: factor of the products.
    """
    terms = {name: term for product in products for name, term in product.terms(scale).items()}
    return terms | {b.name: b.to_dense() for b in biases}


def attend_eagerly(
    terms: dict[str, Tensor], values: Tensor, allowed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """Compute attention: outputs (b, h, n, d_v), and weights (b, h, n, n) before dropout.

    This is the specification; softmax runs in at least float32. A query without an allowed key weighs all keys alike.

    terms: each (b or 1, h, n, n), in score units. values: (b, h, n, d_v). allowed: (b, 1, 1 or n, n) bool, True where a
    query may look at a key; None for everywhere. dropout: share of the weights that are set to 0, in [0, 1).
    """
    scores = functools.reduce(torch.add, (t.to(torch.promote_types(t.dtype, torch.float32)) for t in terms.values()))
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1).to(values.dtype)
    return F.dropout(weights, dropout) @ values, weights


# Queries and keys (b, h, n, d) of a `ProductForKeysAhead`, the sum of their named parts, and its mask.
JoinedAhead = tuple[Tensor, Tensor, Tensor]


def attend_by_sdpa(
    q: Tensor,
    k: Tensor,
    values: Tensor,
    bias: Bias | None,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
    ahead: JoinedAhead | None = None,
) -> Tensor:
    """Compute the outputs by torch's scaled_dot_product_attention, or on a CPU by `attend_in_tiles` where it is faster.

    A bias, dropout or bfloat16 make torch's kernel slow on a CPU. The kernel takes one product of queries and keys:
    where keys ahead have another one and tiles are not used, `attend_eagerly` makes all scores (b, h, n, n).

    q, k: (b, h, n, d). ahead: other queries and keys of this shape for keys ahead, and their mask. values, allowed,
    dropout: as of `attend_eagerly`; so is the result, (b, h, n, d_v).
    """
    is_slow_in_torch = bias is not None or dropout > 0 or q.dtype == torch.bfloat16 or ahead is not None
    if q.device.type == "cpu" and is_slow_in_torch and not torch.compiler.is_compiling():
        if bias is None:
            return attend_in_tiles(q, k, values, None, None, None, allowed, scale, dropout, ahead)
        return attend_in_tiles(q, k, values, bias.base, bias.special_values, bias.kinds, allowed, scale, dropout, ahead)
    if ahead is not None:
        ahead_q, ahead_k, is_ahead = ahead
        product = Product({"": q}, {"": k}, ProductForKeysAhead({"": ahead_q}, {"": ahead_k}, is_ahead))
        terms = term_scores([product], [] if bias is None else [bias], scale)
        return attend_eagerly(terms, values, allowed, dropout)[0]
    width = values.shape[-1]
    if width < q.shape[-1]:
        values = F.pad(values, (0, q.shape[-1] - width))  # equal widths keep the fast kernel
    mask = allowed
    if bias is not None:
        mask = bias.to_dense()
        mask = mask.to(torch.promote_types(q.dtype, torch.float32) if q.device.type == "cpu" else q.dtype)
        if allowed is not None:
            mask = mask.masked_fill(~allowed, torch.finfo(mask.dtype).min)
    return F.scaled_dot_product_attention(q, k, values, attn_mask=mask, dropout_p=dropout, scale=scale)[..., :width]


@functools.cache
def _compiled() -> Callable[..., Any]:
    # Not on import: that loads torch's compiler, which takes seconds. Shapes become dynamic at a second length.
    return torch.compile(flex_attention)


def attend_by_flex(
    q: Tensor,
    k: Tensor,
    values: Tensor,
    bias: Bias | None,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
    ahead: JoinedAhead | None = None,
) -> Tensor:
    """Compute the outputs by torch's FlexAttention, which looks the bias up inside the kernel.

    A bias of the distance alone needs no (h, n, n) map. Where keys ahead have another product, the kernel runs once
    over pairs with keys ahead and once over all others, and their sums of exponentials weigh the two outputs.

    On a CPU it runs without compilation, for comparisons only, and has no backward pass.

    Shapes are as in `attend_by_sdpa`. dropout is not read: `check_backend` refuses it.
    """
    if ahead is not None:
        ahead_q, ahead_k, is_ahead = ahead
        is_ahead = is_ahead.expand(q.shape[0], -1, -1, -1)
        masks = (~is_ahead, is_ahead) if allowed is None else (allowed & ~is_ahead, allowed & is_ahead)
        request = AuxRequest(lse=True)
        other_outputs, other_sums = _flex(q, k, values, bias, masks[0], scale, request)
        ahead_outputs, ahead_sums = _flex(ahead_q, ahead_k, values, bias, masks[1], scale, request)
        other_share = torch.sigmoid(other_sums.lse - ahead_sums.lse)[..., None].to(values.dtype)
        return other_share * other_outputs + (1 - other_share) * ahead_outputs
    return _flex(q, k, values, bias, allowed, scale, None)  # type: ignore[no-any-return]


def _flex(
    q: Tensor,
    k: Tensor,
    values: Tensor,
    bias: Bias | None,
    allowed: Tensor | None,
    scale: float,
    request: AuxRequest | None,
) -> Any:
    """Compute outputs (b, h, n, d_v), and beside them the requested auxiliary values."""
    n = q.shape[2]
    # The least float32 is beyond bfloat16. One number serves both types: a second one in the same process would become
    # a variable of the compiled graph.
    lowest = max(torch.finfo(q.dtype).min, torch.finfo(torch.bfloat16).min)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if bias is not None:
            example = b if bias.base.shape[0] > 1 else 0
            value = bias.base[h, j - i + n - 1] if bias.base.ndim == 2 else bias.base[example, h, i, j]
            if bias.special_values is not None:
                row = b if bias.kinds.shape[0] > 1 else 0
                query = bias.kinds[row, i]
                key = bias.kinds[row, j]
                value = torch.where((query > 0) | (key > 0), bias.special_values[query, key, h], value)
            score = score + value
        if allowed is not None:
            score = torch.where(allowed[b, 0, i if allowed.shape[2] > 1 else 0, j], score, lowest)
        return score

    if q.device.type == "cuda":
        return _compiled()(q, k, values, score_mod=score_mod, scale=scale, return_aux=request)
    with warnings.catch_warnings():  # the warning that it is slow without compilation
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q, k, values, score_mod=score_mod, scale=scale, return_aux=request)


FUSED: dict[str, Callable[..., Tensor]] = {"sdpa": attend_by_sdpa, "flex_attention": attend_by_flex}
BACKENDS = ("eager", *FUSED)


def check_backend(name: str, device: torch.device, needs_gradient: bool, dropout: float) -> None:
    """Refuse an attention backend that does not exist, or that cannot train or drop weights as asked.

    Raises:
        ValueError: no such backend, flex_attention with gradients on a CPU, or flex_attention with dropout.
    """
    if name not in BACKENDS:
        raise ValueError(
            f"No attention backend {name!r}.{suggest_name(name, BACKENDS)} Backends: {', '.join(BACKENDS)}."
        )
    if name == "flex_attention" and device.type == "cpu" and needs_gradient:
        raise ValueError("flex_attention has no backward pass on a CPU. Use torch.no_grad(), or sdpa or eager.")
    if name == "flex_attention" and dropout:
        raise ValueError(
            f"flex_attention has no dropout of attention weights; dropout={dropout}. Use sdpa, eager, or dropout=0."
        )


def _concatenate(factors: list[dict[str, Tensor]]) -> Tensor:
    """Concatenate the queries (or keys) of all products, summed in each product: (b, h, n, products · d_head).

    (Σq)·(Σk) is the sum of a product's terms. Where positions (1, h, n, d_head) join words in a product, the sum has
    all b examples.
    """
    sums = [functools.reduce(torch.add, named.values()) for named in factors]
    return torch.cat(sums, dim=-1) if len(sums) > 1 else sums[0]


def attend_fused(
    products: list[Product],
    biases: list[Bias],
    values: Tensor,
    scale: float,
    allowed: Tensor | None,
    dropout: float,
    backend: str = "sdpa",
) -> Tensor:
    """Compute the outputs (b, h, n, d_v) of `attend_eagerly` in one call of a fused backend.

    values, allowed, dropout: as there. products, biases, scale: as in `term_scores`. backend: a key of `FUSED`.
    """
    q = _concatenate([p.q for p in products])
    k = _concatenate([p.k for p in products])
    ahead = None
    if (product_ahead := products[0].ahead) is not None:  # xPos: there is one product alone
        ahead = _concatenate([product_ahead.q]), _concatenate([product_ahead.k]), product_ahead.is_ahead
    return FUSED[backend](q, k, values, sum_biases(biases), allowed, scale, dropout, ahead)


class StackedLinear(nn.Linear):
    """Several linear maps of one input in one product; `output_sizes` gives the number of outputs of each.

    It returns the outputs side by side, and its caller splits them: libraries that adapt, quantise or replace an
    `nn.Linear` work on it without knowing `output_sizes`.
    """

    def __init__(self, width: int, output_sizes: tuple[int, ...], bias: bool) -> None:
        super().__init__(width, sum(output_sizes), bias=bias)
        self.output_sizes = output_sizes


def stream_term_names(config: EncoderConfig) -> tuple[str, ...]:
    """Return the name of each stream's own term of the scores, position stream first."""
    if len(config.stream_sizes) == 2:
        return ("absolute", "semantic")
    if config.absolute != "none" and config.untied == "none":  # positions are added to the words
        return ("mixed",)
    return ("semantic",)


class Attention(nn.Module):
    """Multi-head attention over all streams: weights from the sum of terms are applied to the values of each stream.

    Queries and keys of every stream have width d_head = hidden_size / heads, values d_stream / heads (DSTG 3.1),
    except where `stream_values` is consecutive.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.d_head = config.d_head
        self.scale = config.score_scale
        self.dropout = config.dropout
        self.stream_sizes = config.stream_sizes
        self.joins_queries_and_keys = config.stream_qk == "joint"
        self.heads_cut_across_streams = config.stream_values == "consecutive"
        self.absolute_skips_special = config.absolute_skips_special
        qk = self.heads * self.d_head
        has_linear_bias = config.block == "bert"
        self.output_sizes = [(qk, qk, d) for d in self.stream_sizes]
        widths = zip(self.stream_sizes, self.output_sizes, strict=True)
        self.qkv = nn.ModuleList(StackedLinear(d, output_sizes, has_linear_bias) for d, output_sizes in widths)
        self.out = nn.ModuleList(nn.Linear(d, d, bias=has_linear_bias) for d in self.stream_sizes)
        self.relative = RelativeTerm(config) if config.relative != "none" and not config.relative_shared else None
        self.pair_terms = None
        if config.pair_terms != "none":
            self.pair_terms = PAIR_TERMS[config.pair_terms](config)
        self.stream_term_names = stream_term_names(config)

    def compute_terms_and_values(
        self, streams: tuple[Tensor, ...], inputs: AttentionInputs
    ) -> tuple[list[Product], list[Bias], Tensor]:
        """Compute the terms of the scores, as products and biases, and the values of a block's `streams`.

        streams: (b, n, d_stream). values: (b, h, n, sum of d_stream / heads).

        Raises:
            ValueError: a registered bias has another shape.
        """
        product, values = self._project_streams(streams, inputs)
        # Positions enter below through the dicts of `product`, which nobody has read yet.
        pair_terms: dict[str, Tensor] = {}
        if self.pair_terms is not None:
            distance = inputs.distance_or_bucket
            assert distance is not None
            pair_inputs = PairInputs(distance, inputs.term_positions, inputs.allowed, inputs.distance_vectors)
            product.q["semantic"], pair_terms = self.pair_terms(
                product.q["semantic"], product.k["semantic"], pair_inputs
            )
        if inputs.position_query_key is not None:
            product.q["absolute"], product.k["absolute"] = inputs.position_query_key
            if product.ahead is not None:
                product.ahead.q["absolute"], product.ahead.k["absolute"] = inputs.position_query_key
        products = [product]
        # Each stream has its own product, unless the configuration joins streams, positions join words, or keys ahead
        # have another product.
        if not (self.joins_queries_and_keys or product.ahead is not None or inputs.position_query_key is not None):
            products = [Product({name: product.q[name]}, {name: product.k[name]}) for name in product.q]
        return products, self._collect_biases(inputs, pair_terms), self._split_into_heads(values)

    def _project_streams(self, streams: tuple[Tensor, ...], inputs: AttentionInputs) -> tuple[Product, list[Tensor]]:
        """Return queries and keys of all streams, turned by the rotation, and the values (b, n, d_stream) of each."""
        queries = {}
        keys = {}
        ahead_queries = {}
        ahead_keys = {}
        values = []
        parts = zip(self.stream_term_names, streams, self.qkv, self.output_sizes, strict=True)
        for name, x, project, output_sizes in parts:
            q, k, v = project(x).split_with_sizes(output_sizes, dim=-1)
            q, k = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k))
            if inputs.is_ahead is not None:
                ahead_queries[name], ahead_keys[name] = _rotate_both(q, k, inputs.cos_sin_over_decay, inputs.cos_sin)
            q, k = _rotate_both(q, k, inputs.cos_sin, inputs.cos_sin_over_decay or inputs.cos_sin)
            if name == "absolute" and self.absolute_skips_special:
                # Zero rows give zero scores: the indicator of eq. 2.
                regular = inputs.token_kinds[:, None, :, None] == 0
                q = q * regular
                k = k * regular
            queries[name] = q
            keys[name] = k
            values.append(v)
        if inputs.is_ahead is None:
            return Product(queries, keys), values
        return Product(queries, keys, ProductForKeysAhead(ahead_queries, ahead_keys, inputs.is_ahead)), values

    def _collect_biases(self, inputs: AttentionInputs, pair_terms: dict[str, Tensor]) -> list[Bias]:
        """Return the biases that all layers share, then this layer's own, then the pair terms (b or 1, h, n, n)."""
        biases = list(inputs.biases)
        if self.relative is not None:
            assert inputs.distance_or_bucket is not None
            biases.append(self.relative(inputs.distance_or_bucket, inputs.token_kinds, inputs.cls_kinds))
        return biases + [Bias(name, term, None, inputs.token_kinds) for name, term in pair_terms.items()]

    def _split_into_heads(self, values: list[Tensor]) -> Tensor:
        """Split the values of the streams (b, n, d_stream) into heads: (b, h, n, hidden_size / h)."""
        if self.heads_cut_across_streams:
            return torch.cat(values, dim=-1).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return torch.cat([v.unflatten(-1, (self.heads, -1)).transpose(1, 2) for v in values], dim=-1)

    def _join_heads(self, head_outputs: Tensor) -> tuple[Tensor, ...]:
        """Join outputs of the heads (b, h, n, hidden_size / h) into streams (b, n, d_stream): the inverse of
        `_split_into_heads`."""
        if self.heads_cut_across_streams:
            return head_outputs.transpose(1, 2).flatten(2).split_with_sizes(list(self.stream_sizes), dim=-1)
        parts = head_outputs.split_with_sizes([d // self.heads for d in self.stream_sizes], dim=-1)
        return tuple(part.transpose(1, 2).flatten(2) for part in parts)

    def forward(
        self, streams: tuple[Tensor, ...], inputs: AttentionInputs, backend: str
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Return outputs per stream (b, n, d_stream), and weights (b, h, n, n) or None.

        There are weights if the backend is eager or an inspector changed the terms. streams: (b, n, d_stream) each.

        Raises:
            ValueError: a registered bias has another shape.
        """
        products, biases, values = self.compute_terms_and_values(streams, inputs)
        dropout = self.dropout if self.training and inputs.with_dropout else 0.0
        weights = None
        terms = None
        inspector = None
        if not torch.compiler.is_compiling():
            inspector = next(
                (inspectors[id(self)] for inspectors in reversed(INSPECTORS.get()) if id(self) in inspectors), None
            )
        if inspector is not None:
            terms = inspector(term_scores(products, biases, self.scale), inputs.allowed)
        if backend == "eager" or terms is not None:
            terms = term_scores(products, biases, self.scale) if terms is None else terms
            head_outputs, weights = attend_eagerly(terms, values, inputs.allowed, dropout)
        else:
            shared = [] if inputs.bias_sum is None else [inputs.bias_sum]  # the sum of the first ones of `biases`
            biases = [*shared, *biases[len(inputs.biases) :]]
            head_outputs = attend_fused(products, biases, values, self.scale, inputs.allowed, dropout, backend)
        return tuple(out(part) for out, part in zip(self.out, self._join_heads(head_outputs), strict=True)), weights
