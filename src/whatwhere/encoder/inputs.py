"""Inputs of the encoder: their checks, the ids that stand for vectors, segments, and masks of pairs."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import EncoderConfig

_LARGEST_HIDING = -1e4  # an additive mask hides a pair by this number or a lower one


def has_values(tensor: Tensor) -> bool:
    """Return whether a tensor of any shape has values to read: it is no stand-in of the compiler or of a meta device.

    Reading them waits for an accelerator's queue, unless `has_values_on_cpu`.
    """
    return not torch.compiler.is_compiling() and tensor.device.type != "meta"


def has_values_on_cpu(tensor: Tensor) -> bool:
    """Return whether a tensor of any shape has values in the CPU's memory, read without waiting for an accelerator."""
    return not torch.compiler.is_compiling() and tensor.device.type == "cpu"


def positions_are_consecutive(position_ids: Tensor, attention_mask: Tensor | None, document_ids: Tensor | None) -> bool:
    """Return whether tokens that see each other are as far apart in positions as in the row, by inputs (b, n).

    All distances are then the 2n - 1 of a row.
    """
    b, n = position_ids.shape
    offset = position_ids - torch.arange(n, device=position_ids.device)
    groups = torch.arange(b, device=position_ids.device)[:, None].expand(b, n)  # tokens of a group see each other
    if document_ids is not None:
        pairs = torch.stack([groups, document_ids.expand(b, n)], dim=-1).flatten(0, 1)
        groups = pairs.unique(dim=0, return_inverse=True)[1].view(b, n)
    if attention_mask is not None:
        offset = offset[attention_mask.bool()]
        groups = groups[attention_mask.bool()]
    offset = offset.flatten()
    groups = groups.flatten()
    if not len(offset):
        return True
    offset_of_group = torch.zeros(int(groups.max()) + 1, dtype=offset.dtype, device=offset.device)
    offset_of_group[groups] = offset  # the offset of any one token: all of the group must share it
    return bool((offset_of_group[groups] == offset).all())


def token_positions(attention_mask: Tensor, limit: int | None) -> Tensor:
    """Count the tokens of each row from 0: positions (b, n), for a mask (b, n), 1 at tokens.

    Padding after a text continues the count, up to the last row of a position table. So its states, which no text
    reads, are the same whether distances come from the row or from positions. Padding before a text has position 0.

    limit: rows of the position table; None: no table, positions are not bounded.
    """
    index = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    tokens = attention_mask.long()
    last_token = (index * tokens).amax(-1, keepdim=True)
    positions = (tokens.cumsum(-1) - 1 + (index - last_token).clamp(min=0)).clamp(min=0)
    return positions if limit is None else torch.where(tokens.bool(), positions, positions.clamp(max=limit - 1))


def common_row(numbers: Tensor) -> Tensor:
    """Return numbers (b, n) as one row (1, n) where all rows are equal, else unchanged."""
    return numbers[:1] if bool((numbers == numbers[:1]).all()) else numbers


def distances(position_ids: Tensor, is_consecutive: bool) -> Tensor:
    """Return the distances, key position minus query position, of positions (b, n): (b, n, n).

    Where positions are consecutive: the distances from -(n - 1) to n - 1, (2n - 1,).
    """
    n = position_ids.shape[1]
    if is_consecutive:
        return torch.arange(1 - n, n, device=position_ids.device)
    return position_ids[:, None, :] - position_ids[:, :, None]


def locate_in_segments(
    end_ids: Iterable[int], input_ids: Tensor, attention_mask: Tensor | None, document_ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the place of each token in its segment, and the number of the segment, both (b, n) and from 0.

    A segment ends with a token of `end_ids`, which belongs to it, and where the row's next token is of another
    document. Padding is not counted. Numbers rise along the row and may skip one: where a document ends with a token of
    `end_ids`, the next document's first number is larger by 2.

    input_ids, attention_mask (1 at tokens), document_ids: (b, n).
    """
    b, n = input_ids.shape
    tokens = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    is_end = torch.zeros_like(input_ids)
    for token in end_ids:
        is_end = is_end + (input_ids == token).long()
    is_end = is_end * tokens
    number = is_end.cumsum(-1) - is_end
    tokens_before = tokens.cumsum(-1) - tokens
    if document_ids is not None:
        begins_document = (document_ids != _shift_right(document_ids)) & (tokens_before > 0)
        number = number + begins_document.long().cumsum(-1)
    # The first token of a segment writes the number of tokens before it to column `number` of `start`. All other tokens
    # write to a column that nobody reads. No cummax: ONNX has none.
    is_first = number > _shift_right(number)
    discard = 2 * n  # numbers stay below it: an end and a new document may both raise the number at a token
    column = torch.where(is_first, number, discard)
    start = tokens_before.new_zeros(b, discard + 1).scatter(1, column, tokens_before)
    return tokens_before - start.gather(1, number), number


def _shift_right(x: Tensor) -> Tensor:
    """Shift rows x (b, n) right by one token, with -1 in front."""
    # Padded before it is cut: a part of n - 1 tokens would fix n in an exported graph.
    return F.pad(x, (1, 0), value=-1)[:, :-1]


def allowed_keys(
    input_ids: Tensor,
    attention_mask: Tensor | None,
    document_ids: Tensor | None,
    attention_window: int | None,
    pair_mask: Tensor | None,
) -> Tensor | None:
    """Return the keys that each query may look at, (b, 1, 1 or n, n), or None for all.

    No query is left without a key, so that backends agree. In a row of padding alone every query sees all keys. A query
    that documents or the window leave without a key sees itself.

    Args:
        input_ids, attention_mask, document_ids: (b, n), as of `Encoder.forward`.
        attention_window: number of tokens on each side that a query looks at; None: all.
        pair_mask: (b, 1, n, n), in place of `attention_mask`, after `open_blind_queries`; or None.
    """
    n = input_ids.shape[1]
    device = input_ids.device
    allowed = pair_mask
    if (
        allowed is None
        and attention_mask is not None
        and not (has_values_on_cpu(attention_mask) and bool(attention_mask.all()))
    ):
        tokens = attention_mask.bool()
        tokens = tokens | ~tokens.any(-1, keepdim=True)
        allowed = tokens[:, None, None, :]
    if document_ids is not None:
        same_document = document_ids[:, None, :, None] == document_ids[:, None, None, :]
        allowed = same_document if allowed is None else same_document & allowed
    if attention_window is not None:
        index = torch.arange(n, device=device)
        gap = (index[:, None] - index).abs()
        examples = input_ids.shape[0]  # len() would be a constant of an exported graph
        is_near = (gap <= attention_window).expand(examples, 1, n, n)
        allowed = is_near if allowed is None else allowed & is_near
    if allowed is not None and (document_ids is not None or attention_window is not None):
        diagonal = torch.eye(n, dtype=torch.bool, device=device)
        allowed = allowed | (diagonal & ~allowed.any(-1, keepdim=True))
    return allowed


def pair_mask_of(mask: Tensor, b: int, n: int) -> Tensor:
    """Return a mask of pairs (b, 1, n, n) for b rows of n tokens, True where a query may look at a key.

    mask: (b or 1, 1, n, n), queries by keys, or (b or 1, 1, 1, n), the same keys for every query: true or 1 where a
    query may look, or, in floating point, what transformers adds to the scores: 0 there and a large negative number
    elsewhere.

    Raises:
        ValueError: another shape; on a CPU also numbers that neither allow nor hide.
    """
    examples, heads, queries, keys = mask.shape
    if examples not in (1, b) or heads != 1 or queries not in (1, n) or keys != n:
        advice = " One mask is for all heads: change single ones by `inspect_terms`." if heads > 1 else ""
        raise ValueError(
            f"A mask of pairs has shape (batch or 1, 1, tokens or 1, tokens) = {(b, 1, n, n)}; got "
            f"{tuple(mask.shape)}.{advice}"
        )
    allowed = mask == 0 if mask.is_floating_point() else mask.bool()
    if has_values_on_cpu(mask) and mask.is_floating_point() and bool(((mask > _LARGEST_HIDING) & ~allowed).any()):
        raise ValueError(
            "A mask of pairs in floating point is added to the scores: 0 where a query may look, a large negative "
            "number elsewhere. Give true and false to say the same."
        )
    return allowed.expand(b, 1, n, n)


def open_blind_queries(pair_mask: Tensor) -> Tensor:
    """Return a mask of pairs (b, 1, n, n) in which a query that may look nowhere looks everywhere."""
    return pair_mask | ~pair_mask.any(-1, keepdim=True)


def visible_tokens(pair_mask: Tensor) -> Tensor:
    """Return (b, n), True at tokens that any query looks at, of a mask of pairs (b, 1, n, n)."""
    return pair_mask[:, 0].any(1)


def ids_of_vectors(
    config: EncoderConfig, inputs_embeds: Tensor, attention_mask: Tensor | None, special_tokens_mask: Tensor | None
) -> Tensor:
    """Return token ids (b, n) that stand for vectors: [CLS] and [SEP] where these are marked, elsewhere another token.

    A row's first token is [CLS] if it is marked; every other marked token is a [SEP]. inputs_embeds: (b, n, width).
    attention_mask, special_tokens_mask: (b, n), 1 at tokens and at special tokens.

    Raises:
        ValueError: the scheme reads segments, or treats [CLS] and [SEP] apart and nothing says where they are; or a
            mask of other shape.
    """
    if config.bilevel:
        raise ValueError(
            f"{config.preset or 'This scheme'} reads segments, and vectors do not say where they end. Give input_ids "
            "beside inputs_embeds."
        )
    special_ids = (config.cls_token_id, config.sep_token_id)
    regular = next(i for i in range(3) if i not in special_ids)
    shape = inputs_embeds.shape[:2]
    ids = inputs_embeds.new_full(shape, regular, dtype=torch.long)
    if special_tokens_mask is None:
        if config.relative_special != "none" or config.absolute_skips_special or config.reset != "none":
            raise ValueError(
                f"{config.preset or 'This scheme'} treats [CLS] and [SEP] apart, and vectors do not say where they "
                "are. Give input_ids or special_tokens_mask beside inputs_embeds."
            )
        return ids
    if special_tokens_mask.shape != shape:
        raise ValueError(
            f"special_tokens_mask has shape {tuple(special_tokens_mask.shape)}; the vectors are {tuple(shape)}."
        )
    ids = ids.masked_fill(special_tokens_mask.bool(), config.sep_token_id)
    first = torch.zeros(shape[0], dtype=torch.long, device=ids.device)
    if attention_mask is not None:
        first = attention_mask.long().argmax(-1)
    is_first = torch.arange(shape[1], device=ids.device) == first[:, None]
    return ids.masked_fill(is_first & special_tokens_mask.bool(), config.cls_token_id)


def check_vectors(config: EncoderConfig, inputs_embeds: Tensor, input_ids: Tensor | None) -> None:
    """Refuse vectors of another shape than (b, n, semantic_size), with b and n of the ids beside them.

    Raises:
        ValueError: the shapes.
    """
    shape = (config.semantic_size,) if input_ids is None else (*input_ids.shape, config.semantic_size)
    if inputs_embeds.dim() != 3 or inputs_embeds.shape[-len(shape) :] != shape:
        raise ValueError(
            f"inputs_embeds has shape {tuple(inputs_embeds.shape)}; it must be (batch, tokens, "
            f"{config.semantic_size}), with batch and tokens of input_ids where both are given."
        )


def check_inputs(config: EncoderConfig, input_ids: Tensor, **inputs: Tensor | None) -> None:
    """Refuse ids that are not (b, n) or, on a CPU, not in the vocabulary, and inputs of another shape.

    inputs: the other inputs of a row of tokens by name, (b, n) as the ids.

    Raises:
        ValueError: names the input, and what is wrong with it.
    """
    if input_ids.dim() != 2:
        raise ValueError(f"input_ids must have shape (batch, tokens); got {tuple(input_ids.shape)}.")
    for name, tensor in inputs.items():
        if tensor is not None and tensor.shape != input_ids.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, input_ids {tuple(input_ids.shape)}. Give both one shape."
            )
    if not input_ids.shape[1]:
        raise ValueError(f"input_ids must hold at least one token a row; got shape {tuple(input_ids.shape)}.")
    if not has_values_on_cpu(input_ids) or not input_ids.numel():
        return
    if int(input_ids.min()) < 0:
        raise ValueError(
            f"Token ids count from 0; got {int(input_ids.min())}. Give padding the id pad_token_id; only labels may be "
            "negative, where the loss ignores a token."
        )
    if int(input_ids.max()) >= config.vocab_size:
        raise ValueError(
            f"Token id {int(input_ids.max())}, but the model's vocabulary has {config.vocab_size} entries. "
            "Use the tokenizer that was saved with the model."
        )


def check_positions(position_ids: Tensor, limit: int) -> None:
    """Refuse positions (b, n) that a table of `limit` rows has not.

    Raises:
        ValueError: the lowest position below 0, or the highest one outside the table.
    """
    if (lowest := int(position_ids.min())) < 0:
        raise ValueError(f"Positions are counted from 0; position_ids holds {lowest}. Leave it out for 0, 1, 2, ...")
    if (highest := int(position_ids.max())) >= limit:
        raise ValueError(_length_message(highest, limit))


def check_width(n: int, limit: int, may_be_padded: bool) -> None:
    """Refuse rows of n tokens for a table of `limit` rows, without reading which tokens are padding.

    Raises:
        ValueError: n exceeds the limit.
    """
    if n > limit and may_be_padded:
        raise ValueError(
            f"The batch is {n} tokens wide, padding included; the position table has {limit} rows. "
            f"Pad to the longest text, and truncate to {limit} tokens."
        )
    if n > limit:
        raise ValueError(_length_message(n - 1, limit))


def _length_message(highest: int, limit: int) -> str:
    return (
        f"Sequence reaches position {highest}, but the position table has {limit} rows. "
        f"Truncate to {limit} tokens, or extend the table: whatwhere extrapolate --help."
    )
