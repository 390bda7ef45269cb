"""Whether the states of a document cluster by sentence, and how few directions they fill (DSTG section 4 (2), figure 4).

The paper shows one document. Here are numbers over many, with a null: position alone makes every stretch of neighbours compact, so the
sentences are compared with other cuts of the same document into stretches of the same lengths.
"""

import logging
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from ..records import Record
from .bootstrap import document_mean, joined
from .passes import Batch, Reader
from .probes import stream_columns
from .who import Who

SHUFFLES = 10
SHOWN = 4  # documents whose scores are kept for the figure
ROUNDING = 1e-13  # of the squares of float32 states: a sum of squares below that share is none

_log = logging.getLogger(__name__)


class SentenceMaps(Reader):
    """A `passes.Reader` of hidden states: how sentences and principal components share the variance within each document.

    Records of every layer and part ("all", and with two streams "position" and "semantic"), each the mean over documents with the
    bootstrap's 95 % interval over documents, n their number. Only regular tokens count, N of a document, in S sentences
    (`Documents.targets["segment"]`).

    `hidden.top2`: share of the variance in the first two principal components of the document's states, in [0, 1].
    `sentences.separation`: variance between sentences ÷ variance within,
    Σ_s n_s |m_s - m|² / (S - 1) ÷ Σ_s Σ_{i in s} |x_i - m_s|² / (N - S): the index of Calinski & Harabasz (scikit-learn's), 1 on average
    where the states do not know sentences and tokens are independent, and far above 1 for any contiguous cut of states that know position.
    `sentences.null`: the same for cuts into stretches of the same lengths in random order, geometric mean over `shuffles` orders.
    `sentences.excess`: log(separation ÷ null); its mean is 0 where sentence boundaries are not special among such cuts, for the true cut
    is then one of them, and above 0 where states of a sentence lie closer together, or further from others, than position explains.

    Documents of fewer than two sentences, of sentences of one token each, or with equal states in every sentence have no `sentences.*`;
    n says so, and if none is left the log does and there are no such records.

    Args:
        model: its `config` has hidden_size, num_hidden_layers and, with two streams, position_size.
        shuffles: orders of the lengths, drawn from a seed fixed for each document.
        shown: documents, the first of the pass, whose component scores `arrays` gives.
    """

    wants_hidden = True

    def __init__(self, model: Any, shuffles: int = SHUFFLES, shown: int = SHOWN) -> None:
        if shuffles < 1:
            raise ValueError(f"The null needs at least 1 order of the sentences. Got shuffles={shuffles}. The default is {SHUFFLES}.")
        config = model.config
        self.parts = stream_columns(config.hidden_size, getattr(config, "position_size", 0))
        self.layers, self.shuffles, self.shown = config.num_hidden_layers + 1, shuffles, shown
        self._found: dict[str, list[np.ndarray]] = {"hidden.top2": [], "sentences.separation": [], "sentences.null": []}
        self._scores: dict[str, list[np.ndarray]] = {part: [] for part in self.parts}
        self._segments: list[np.ndarray] = []
        self._articles: list[np.ndarray | None] = []

    def hidden(self, batch: Batch, hidden: tuple[Tensor, ...]) -> None:
        """The states of a batch.

        Raises:
            ValueError: states of regular tokens that are not finite.
        """
        regular = batch.documents.regular[batch.indices]
        self._articles.append(batch.articles)
        segments = np.where(regular, batch.documents.targets["segment"][batch.indices], -1).astype(np.int64)
        cuts = np.stack([_cuts(row, self.shuffles, int(i)) for row, i in zip(segments, batch.indices, strict=True)], axis=1)
        # (1 + shuffles) x (b, n, S): a matrix product with it sums the tokens of each sentence.
        members = [torch.from_numpy(cut[..., None] == np.arange(max(cut.max() + 1, 1))).double() for cut in cuts]
        mask = torch.from_numpy(regular)[..., None]
        top, separation, null = (np.full((len(segments), self.layers, len(self.parts)), np.nan) for _ in range(3))
        for layer, states in enumerate(hidden):
            x = states.detach().cpu().double().masked_fill(~mask, 0.0)
            raw = x.square().sum(1)  # (b, width)
            x = (x - x.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)) * mask
            squares = x.square().sum(1)
            if not torch.isfinite(squares).all():
                raise ValueError(f"hidden[{layer}] has NaN or infinite values. The model diverged; use an earlier checkpoint.")
            between = torch.stack([_between(x, member) for member in members], dim=1)  # (b, 1 + shuffles, width)
            for i, columns in enumerate(self.parts.values()):
                floor = ROUNDING * raw[:, columns].sum(-1).numpy()
                total, of_cuts = squares[:, columns].sum(-1).numpy(), between[..., columns].sum(-1).numpy()
                top[:, layer, i] = np.where(total > floor, _top2(x[..., columns]) / np.where(total > floor, total, 1.0), np.nan)
                ratios = _ratios(of_cuts, total, floor, regular.sum(1), cuts[0].max(1) + 1)
                separation[:, layer, i] = ratios[:, 0]
                null[:, layer, i] = np.exp(np.log(ratios[:, 1:]).mean(1))
        for metric, values in zip(self._found, (top, separation, null), strict=True):
            self._found[metric].append(values)
        for row in range(min(len(segments), self.shown - len(self._segments))):
            self._segments.append(segments[row].astype(np.float32))
            for part, columns in self.parts.items():
                of_row = [h[row, :, columns].detach().cpu().double().numpy() for h in hidden]
                self._scores[part].append(_component_scores(of_row, regular[row]))

    def records(self, who: Who) -> list[Record]:
        """The records of all documents of the pass; see the class.

        Raises:
            ValueError: nothing was read.
        """
        if not self._found["hidden.top2"]:
            raise ValueError("No documents were read: give this reader to passes.read(model, documents, [reader]) first.")
        found = {metric: np.concatenate(values) for metric, values in self._found.items()}
        found["sentences.excess"] = np.log(found["sentences.separation"]) - np.log(found["sentences.null"])
        if np.isnan(found["sentences.excess"]).all():
            _log.warning("No separation of sentences: none of %d documents has two sentences.", len(found["hidden.top2"]))
        records: list[Record] = []
        for metric, values in found.items():
            mean, *ends = document_mean(values, articles=joined(self._articles))
            n = np.sum(~np.isnan(values), axis=0)
            low, high = (None if end is None else np.where(n > 1, end, np.nan) for end in ends)
            records += who.records(metric, (mean, low, high), {"layer": range(self.layers), "part": list(self.parts)}, n=n)
        return records

    def arrays(self) -> dict[str, np.ndarray]:
        """For figure 4, of the first documents of the pass, float32; {} if nothing was read.

        `scores.PART` (documents, layers + 1, n, 2): all tokens on the first two principal axes of the document's regular tokens. Signs:
        of layer 0 so that scores rise with the place in the document, and of every later layer so that they agree with the layer before.
        `segments` (documents, n): the sentence of each token, -1 at special tokens.
        """
        if not self._segments:
            return {}
        return {f"scores.{part}": np.stack(scores) for part, scores in self._scores.items()} | {"segments": np.stack(self._segments)}


def _cuts(segments: np.ndarray, shuffles: int, document: int) -> np.ndarray:
    """(1 + shuffles, n): the sentences of a document from 0, then stretches of the same lengths in random orders; -1 stays -1."""
    regular = segments >= 0
    cuts = np.full((1 + shuffles, len(segments)), -1)
    _, own, lengths = np.unique(segments[regular], return_inverse=True, return_counts=True)
    cuts[0, regular] = own
    rng = np.random.default_rng([0, document])
    for cut in cuts[1:]:
        cut[regular] = np.repeat(np.arange(len(lengths)), rng.permutation(lengths))
    return cuts


def _between(x: Tensor, member: Tensor) -> Tensor:
    """(b, width) squares between the sentences, Σ_s n_s m_s² of centred states x (b, n, width), for members (b, n, S)."""
    sums = member.transpose(1, 2) @ x
    return (sums.square() / member.sum(1).clamp(min=1)[..., None]).sum(1)


def _ratios(between: np.ndarray, total: np.ndarray, floor: np.ndarray, tokens: np.ndarray, sentences: np.ndarray) -> np.ndarray:
    """(b, cuts) variance between ÷ within, nan where it is not defined for some cut of the document."""
    within = total[:, None] - between
    possible = (sentences > 1) & (tokens > sentences) & (np.minimum(within, between) > floor[:, None]).all(1)
    freedom = np.where(possible, (tokens - sentences) / np.maximum(sentences - 1, 1), np.nan)
    return between / np.where(possible[:, None], within, 1.0) * freedom[:, None]


def _top2(x: Tensor) -> np.ndarray:
    """(b,) sum of the two largest eigenvalues of xᵀx, of centred states x (b, n, width)."""
    gram = (x.transpose(1, 2) @ x if x.shape[2] <= x.shape[1] else x @ x.transpose(1, 2)).numpy()
    size = gram.shape[1]
    return np.array([eigh(g, eigvals_only=True, subset_by_index=[max(size - 2, 0), size - 1]).sum() for g in gram])


def _component_scores(states: list[np.ndarray], regular: np.ndarray) -> np.ndarray:
    """(layers + 1, n, 2) scores of the states of one document, each (n, width), float32."""
    scores = np.zeros((len(states), len(regular), 2))
    before = np.repeat(np.arange(len(regular))[:, None] - np.arange(len(regular))[regular].mean(), 2, axis=1)
    for found, x in zip(scores, states, strict=True):
        centred = np.nan_to_num(x - x[regular].mean(0))
        axes = np.linalg.svd(centred[regular], full_matrices=False)[2][:2]
        found[:, : len(axes)] = centred @ axes.T
        found[:, np.sum((found * before)[regular], axis=0) < 0] *= -1
        before = found
    return scores.astype(np.float32)
