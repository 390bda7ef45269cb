"""What GEOM's theorem 1 and appendix A say of an encoder, measured on a real one: permutations, the forcing b (A2),
scores, attention.

The forcing b_i = -∇_{p_i} L at P = 0 is the negative gradient of the expected masked-language loss by row i of the
position table. What came out: docs/theory.md.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from whatwhere.corpus.batches import IGNORED
from whatwhere.encoder import EncoderForMaskedLM

Batch = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Forcing:
    """b (n, d), row i for row i of the position table, in nats per unit of the table, for the mean loss of a labelled
    token.

    halves: (2, n, d), the same over every other batch: the noise of both is independent, so
        `geometry.corrected_squares(*halves)` are the squared distances |b_i - b_j|² without what the finite number of
        batches adds.
    loss: nats. labels: tokens that were predicted.
    """

    b: np.ndarray
    halves: np.ndarray
    loss: float
    labels: int


@dataclass(frozen=True, eq=False)
class FirstAttention:
    """The quantities of Lemmas 12 and 16 in the first layer at P = 0, float64.

    E: (V, d), each word as the attention reads it, behind the block's norm. M: (heads, d, d) = W_Q·W_Kᵀ. W_V: (heads,
        d, d_v).
    d_k: width of a head.
    """

    E: np.ndarray
    M: np.ndarray
    W_V: np.ndarray
    d_k: int


def permutation_gaps(model: Any, input_ids: Tensor, order: Tensor) -> tuple[float, float]:
    """How far an encoder is from GEOM's theorem 1, as it should read and as it is printed; relative to the largest
    output.

    With t'_i = t_σ(i) the permuted input, an encoder without positions gives f(t')_i = f(t)_σ(i). The theorem prints
    f(t')_σ(i) = f(t)_i, which is the same only for permutations that are their own inverse.

    Args:
        input_ids: (b, n). order: (n,), σ(i) at place i.
    """
    body: Any = getattr(model, "base_model", model)
    training = body.training
    body.eval()
    with torch.inference_mode():
        plain = body(input_ids).last_hidden_state
        permuted = body(input_ids[:, order]).last_hidden_state
    body.train(training)
    size = plain.abs().max()
    return float((permuted - plain[:, order]).abs().max() / size), float(
        (permuted[:, order] - plain).abs().max() / size
    )


def forcing(model: EncoderForMaskedLM, batches: Iterable[Batch]) -> Forcing:
    """The forcing b of GEOM eq. 6 of a model with a learned table that is added to the words (`ap`, `bert-a`), all else
    as it is.

    The table is zero while the gradient is taken, and afterwards what it was. Dropout is off.

    Args:
        batches: inputs of the model with `labels`, as `masked_rows` or `corpus.MaskedBatches` make them; each is used
            once, and every label counts alike. Positions should not be shifted at random, or rows of the table stop
            being positions of the text.

    Raises:
        ValueError: another scheme, or no labels.
    """
    config = model.config
    if config.absolute != "learned" or config.position_size or config.untied != "none":
        raise ValueError(
            f"The forcing needs a learned position table that is added to the words. Got absolute={config.absolute}, "
            f"position_size={config.position_size}, untied={config.untied}. Use the preset ap or bert-a."
        )
    table = model.encoder.position_embeddings
    assert table is not None
    parameter = table.table.weight
    assert isinstance(parameter, torch.nn.Parameter)
    with _at_zero(parameter):
        halves, both, loss, labels = _expected_gradient(model, parameter, batches)
    return Forcing(-both, -halves, loss, labels)


def score_gradients(model: EncoderForMaskedLM, batches: Iterable[Batch]) -> np.ndarray:
    """E[δ_ij] of GEOM's Lemma 11: the expected gradient of the loss by the attention scores at P = 0, (heads, n, n).

    Measured as the gradient by a matrix that is added to the scores and is zero (`tupe-free`). Use a model of one
    layer: with more, the gradients of all layers add up. Each row sums to zero, for softmax does not change when a
    number is added to all scores of a query.

    Raises:
        ValueError: the model has no such matrix, it is not zero, or there are no labels.
    """
    free = None if model.encoder.untied is None else model.encoder.untied.free
    if free is None or free.detach().any():
        raise ValueError(
            "Gradients of scores need a free matrix of zeros beside them. Use the preset tupe-free, untrained, with "
            "reset=none."
        )
    return _expected_gradient(model, free, batches)[1]


def _expected_gradient(
    model: EncoderForMaskedLM, parameter: torch.nn.Parameter, batches: Iterable[Batch]
) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Gradients over even and odd batches (2, ...) and over all, the loss, and the number of labels."""
    training = model.training
    model.eval()
    sums = np.zeros((2, *parameter.shape))
    counts = [0, 0]
    loss_sum = 0.0
    try:
        for number, batch in enumerate(batches):
            inputs = {name: value.to(parameter.device) for name, value in batch.items()}
            labels = int((inputs["labels"] != IGNORED).sum())
            loss = model(**inputs).loss
            (gradient,) = torch.autograd.grad(loss, parameter)
            sums[number % 2] += gradient.double().cpu().numpy() * labels
            counts[number % 2] += labels
            loss_sum += float(loss.detach()) * labels
    finally:
        model.train(training)
    if not all(counts):
        raise ValueError(
            f"An expected gradient and its noise need labels in at least two batches. Got {counts[0]} and {counts[1]} "
            "labels."
        )
    halves = sums / np.reshape(counts, (2, *[1] * parameter.ndim))
    return halves, sums.sum(axis=0) / sum(counts), loss_sum / sum(counts), sum(counts)


@contextmanager
def _at_zero(parameter: torch.nn.Parameter) -> Iterator[None]:
    before = parameter.detach().clone()
    with torch.no_grad():
        parameter.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            parameter.copy_(before)


def first_attention(model: Any) -> FirstAttention:
    """E, M and W_V of the first layer of a one-stream encoder in the NeoBERT block (`ap`, `nope`, `sinusoidal`).

    Raises:
        ValueError: two streams, or BERT's block, whose biases have no place in the paper's score.
    """
    config = model.config
    body = getattr(model, "base_model", model)
    if config.position_size or config.block != "neobert" or config.rotation != "none":
        raise ValueError(
            f"Lemma 16 is about one stream with scores x·M·xᵀ. Got position_size={config.position_size}, "
            f"block={config.block}, "
            f"rotation={config.rotation}. Use the preset ap with block=neobert."
        )
    layer = body.layers[0]
    with torch.no_grad():
        (words,) = layer.attention_input((body.word_embeddings.weight,))
        q, k, v = (part.double().cpu().numpy() for part in layer.attention.qkv[0].weight.chunk(3))
    q, k, v = (part.reshape(config.num_attention_heads, -1, config.hidden_size) for part in (q, k, v))  # (h, d_k, d)
    return FirstAttention(
        words.double().cpu().numpy(), np.einsum("hkd,hke->hde", q, k), v.transpose(0, 2, 1), config.d_head
    )


def document_heads(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, n: int, most: int | None = None
) -> np.ndarray:
    """The first n tokens of each text that has as many, without special tokens: (m, n) int64, at most `most` of them.

    Every position is occupied in every row, as GEOM assumes; with texts of unequal length b would also say how often a
    position occurs.

    Raises:
        ValueError: fewer than two texts are so long.
    """
    rows: list[list[int]] = []
    held: list[str] = []

    def take() -> None:
        encoded = tokenizer.backend_tokenizer.encode_batch_fast(held, add_special_tokens=False)
        rows.extend(e.ids[:n] for e in encoded if len(e.ids) >= n)
        held.clear()

    for text in texts:
        held.append(text[: 50 * n])  # words of 50 letters would still fill n tokens
        if len(held) == 1000:
            take()
            if most is not None and len(rows) >= most:
                break
    if held:
        take()
    if len(rows) < 2:
        raise ValueError(f"{len(rows)} texts have {n} tokens or more; 2 are needed. Give longer texts, or a smaller n.")
    return np.array(rows[:most], dtype=np.int64)


def masked_rows(
    ids: np.ndarray, config: Any, *, rate: float = 0.2, batch_size: int = 64, seed: int = 0
) -> Iterator[Batch]:
    """Masked batches of rows of equal length: [CLS] row [SEP], each token [MASK] with probability `rate`.

    Position i of a row stands at position i + 1 of the model.

    Args:
        ids: (m, n) without special tokens. config: an EncoderConfig, for its special tokens.
    """
    draw = np.random.default_rng(seed)
    for begin in range(0, len(ids), batch_size):
        rows = ids[begin : begin + batch_size]
        yield _framed(rows, draw.random(rows.shape) < rate, config)


def copied_token_batches(tokens: int, n: int, config: Any, batch_size: int = 512) -> Iterator[Batch]:
    """All documents of n tokens out of `tokens` whose first two are equal, each with every one token masked: an exact
    expectation.

    All positions have the same, uniform distribution, so all Hellinger distances are 0, and (A2) asks for equal b. But
    positions 0 and 1 predict each other and the others predict nothing: no statistic of single positions can tell.

    Args:
        config: an EncoderConfig with `tokens` ordinary tokens after the largest special one.
    """
    first = 1 + max(
        config.pad_token_id, config.unk_token_id, config.cls_token_id, config.sep_token_id, config.mask_token_id
    )
    free = np.array(list(product(range(first, first + tokens), repeat=n - 1)))
    documents = np.repeat(np.concatenate([free[:, :1], free], axis=1), n, axis=0)
    masks = np.tile(np.eye(n, dtype=bool), (len(free), 1))
    for begin in range(0, len(documents), batch_size):
        rows = slice(begin, begin + batch_size)
        yield _framed(documents[rows], masks[rows], config)


def _framed(rows: np.ndarray, masked: np.ndarray, config: Any) -> Batch:
    frame = [(0, 0), (1, 1)]
    inputs = np.pad(np.where(masked, config.mask_token_id, rows), frame)
    inputs[:, 0] = config.cls_token_id
    inputs[:, -1] = config.sep_token_id
    labels = np.pad(np.where(masked, rows, IGNORED), frame, constant_values=IGNORED)
    return {"input_ids": torch.from_numpy(inputs), "labels": torch.from_numpy(labels)}
