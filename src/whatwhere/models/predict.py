"""Predictions of a trained model for texts of any length: words for masks, labels, or vectors."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..corpus.labelled import padded
from ..corpus.tokenizer import check_tokenizer
from ..encoder import EncoderConfig
from ..run.errors import as_list
from ..run.progress import Progress, ignore_progress
from .lengths import read_at_once
from .open import open_config, open_model
from .sentence import OF_STREAMS, POOLINGS, pooled, reads_early, trained_states
from .tensors import device_of

KINDS = {"labels": "labels", "words": "masked", "vectors": None}  # kind of prediction -> head
BATCH_TOKENS = 4096  # of a forward pass, padding included
UNBOUNDED = 512  # tokens of a window where nothing bounds what a model reads


@dataclass(frozen=True)
class _Window:
    """A run of tokens of a text that the model reads at once.

    types: which text of a pair a token is of. counted: 1 for a token that no earlier window has, special ones too.
    starts: characters in the text, -1 of special tokens.
    """

    text: int
    ids: np.ndarray
    types: np.ndarray
    counted: np.ndarray
    starts: np.ndarray


class Predictor:
    """An opened model with its tokenizer that predicts words, labels or vectors of texts of any length.

    Args:
        model: a folder of ours or of transformers, a Hub name, or "reference".
        what: "words", "labels", "vectors"; None: labels of a classifier, else words, or vectors of a bare encoder.
        length: tokens, special ones included, that it reads at once; None: as many as the texts of its training had,
            or as a longer copy was made for; of transformers' models as many as they can, 512 where nothing bounds it.

    Raises:
        ValueError: no such model, a model without that head, an unknown `what`, or a length that it cannot read.
    """

    def __init__(self, model: str | Path, what: str | None = None, length: int | None = None) -> None:
        self.name = str(model)
        self.remark = ""  # what the output does not show, such as vectors in place of words
        config = open_config(model)
        head = str((getattr(config, "architectures", None) or [""])[0])
        has = {"labels": "ForSequenceClassification" in head, "words": "ForMaskedLM" in head, "vectors": True}
        self.what = what or next(name for name, given in has.items() if given)
        if self.what not in KINDS:
            raise ValueError(f"what must be one of {', '.join(KINDS)}; got {what!r}.")
        if not has[self.what]:
            given = " and ".join(name for name in has if has[name])
            raise ValueError(
                f"{model} ({head or 'without a head'}) gives {given}; what={self.what} needs another model."
            )
        opened = open_model(model, KINDS[self.what])
        self.model = opened.model
        self.tokenizer = opened.tokenizer
        self.types = opened.token_types
        check_tokenizer(self.tokenizer, self.name)
        ours = config.model_type == EncoderConfig.model_type
        usual = read_at_once(opened.folder, config.to_dict()) if ours else UNBOUNDED
        self.longest = opened.fitting(length or usual)
        least = self.tokenizer.num_special_tokens_to_add(pair=True) + 2
        if length is not None and not least <= length <= self.longest:
            most = opened.max_tokens
            bounds = f"from {least} to {most:,}" if most else f"{least} or more"
            raise ValueError(f"length must be {bounds} tokens for {self.name}; got {length}.")

    @torch.inference_mode()
    def __call__(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        top: int = 5,
        pooling: str = "mean",
        stride: int | None = None,
        progress: Progress = ignore_progress,
    ) -> Any:
        """Predict words for masks, labels or vectors of texts, read in overlapping windows where they are long.

        A text longer than the model reads is read in windows, each beginning with the last `stride` tokens of the one
        before (default: a quarter of a window). Logits and vectors are the means over windows, weighted by the tokens
        that no earlier window has, so that a mean vector counts every token of the text once; a mask is filled in the
        window in which it is farthest from both ends. Of a pair that is too long the longer text is cut. A line on
        stderr counts the texts that are too long.

        Args:
            pairs: the second text of each pair.
            top: number of words for each mask.
            pooling: as `models.sentence.pooled`.
            stride: tokens that two neighbouring windows share.

        Returns:
            Words: for each text a list of its masks, of each the `top` likeliest as {"word": ..., "probability": ...}.
            Labels: for each text {label: probability}, likeliest first (of a regression: its number). Vectors: (texts,
            width) float32.

        Raises:
            ValueError: no text, one without tokens or (for words) without a mask, another number of pairs than of
                texts, or a pooling that the model has not.
        """
        streams = int(getattr(self.model.config, "position_size", 0))
        if pooling not in POOLINGS or (pooling in OF_STREAMS and not streams):
            known = ", ".join(name for name in POOLINGS if streams or name not in OF_STREAMS)
            raise ValueError(f"pooling must be one of {known} for {self.name}; got {pooling!r}.")
        if not texts:
            raise ValueError("There is no text. Give one or more.")
        if top < 1:
            raise ValueError(f"top must be at least 1; got {top}.")
        windows = list(self._windows(texts, stride) if pairs is None else self._pairs(texts, pairs))
        if long := self._longer(texts, pairs):
            seen = f"{long:,} of {len(texts):,} {'texts' if pairs is None else 'pairs'} are longer than the"
            done = "they are read in windows" if pairs is None else "they are cut"
            print(f"{seen} {self.longest:,} tokens that {self.name} reads at once; {done}.", file=sys.stderr)
        if self.what == "words":
            return self._words(len(texts), windows, top, progress)
        weights = np.zeros(len(texts))
        sums = np.zeros((len(texts), 0))
        config = self.model.config
        early = self.what == "vectors" and reads_early(self.model.config, pooling)
        for rows, mask, output in self._passes(windows, progress, output_hidden_states=early):
            if self.what == "labels":
                values = output.logits
            else:
                counted = torch.from_numpy(padded([w.counted for w in rows], 0)).to(mask)
                states = trained_states(output.hidden_states, config) if early else output.last_hidden_state
                values = pooled(states, counted, pooling, streams)
            if not sums.size:
                sums = np.zeros((len(texts), values.shape[1]))
            for window, value in zip(rows, values.double().cpu().numpy(), strict=True):
                weights[window.text] += window.counted.sum()
                sums[window.text] += window.counted.sum() * value
        sums /= weights[:, None]
        return sums.astype(np.float32) if self.what == "vectors" else self._labels(torch.from_numpy(sums))

    def _longer(self, texts: Sequence[str], pairs: Sequence[str] | None) -> int:
        """Count the texts (or pairs) that are longer than the model reads at once."""
        ids = self.tokenizer(list(texts), None if pairs is None else list(pairs), verbose=False)["input_ids"]
        return sum(len(row) > self.longest for row in ids)

    def _windows(self, texts: Sequence[str], stride: int | None) -> Iterator[_Window]:
        room = self.longest - self.tokenizer.num_special_tokens_to_add()
        overlap = room // 4 if stride is None else stride
        if not 0 <= overlap < room:
            raise ValueError(f"stride must be from 0 to {room - 1} tokens for {self.name}; got {stride}.")
        how = {"truncation": True, "max_length": self.longest, "stride": overlap, "return_overflowing_tokens": True}
        before = -1
        for window in self._encoded(list(texts), None, **how):
            again = overlap if window.text == before else 0  # tokens that the window before has as well
            window.counted[np.flatnonzero(window.starts >= 0)[:again]] = 0
            before = window.text
            yield window

    def _pairs(self, texts: Sequence[str], pairs: Sequence[str]) -> Iterator[_Window]:
        if len(texts) != len(pairs):
            raise ValueError(
                f"{len(texts)} texts have {len(pairs)} second texts. Give every text its second one: --pair."
            )
        yield from self._encoded(list(texts), list(pairs), truncation="longest_first", max_length=self.longest)

    def _encoded(self, texts: list[str], pairs: list[str] | None, **how: Any) -> Iterator[_Window]:
        rows = self.tokenizer(
            texts,
            pairs,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            return_token_type_ids=True,
            verbose=False,
            **how,
        )
        of = rows.get("overflow_to_sample_mapping", range(len(texts)))
        for at, text in enumerate(of):
            ids, types = (np.array(rows[key][at], np.int64) for key in ("input_ids", "token_type_ids"))
            special = np.array(rows["special_tokens_mask"][at], bool)
            if self.what == "words":  # the tokenizer takes the mask for a special token, but the user wrote it
                special &= ids != self.tokenizer.mask_token_id
            if special.all():
                raise ValueError(f"Text {text + 1} has no token that {self.name} knows. Leave it out.")
            starts = np.array([start for start, _ in rows["offset_mapping"][at]], np.int64)
            yield _Window(int(text), ids, types, np.ones(len(ids), np.int64), np.where(special, -1, starts))

    def _passes(
        self, windows: Sequence[_Window], progress: Progress, **how: Any
    ) -> Iterator[tuple[list[_Window], torch.Tensor, Any]]:
        """Yield windows, attention mask and output of batches of windows of nearly one length, the longest first.

        how: further arguments of the model.
        """
        order = sorted(windows, key=lambda w: -len(w.ids))
        at = 0
        while at < len(order):
            rows = order[at : at + max(1, BATCH_TOKENS // len(order[at].ids))]
            batch = {
                "input_ids": padded([w.ids for w in rows], self.tokenizer.pad_token_id or 0),
                "attention_mask": padded([np.ones(len(w.ids), np.int64) for w in rows], 0),
            }
            if self.types:
                batch["token_type_ids"] = padded([w.types for w in rows], 0)
            inputs = {key: torch.from_numpy(value).to(device_of(self.model)) for key, value in batch.items()}
            yield rows, inputs["attention_mask"], self.model(**inputs, **how)
            at += len(rows)
            progress(at, len(order))

    def _labels(self, logits: torch.Tensor) -> list[dict[str, float]]:
        config = self.model.config
        if config.num_labels > 1:
            as_list = config.problem_type == "multi_label_classification"
            logits = logits.sigmoid() if as_list else logits.softmax(-1)
        return [{str(config.id2label[int(i)]): float(row[i]) for i in row.argsort(descending=True)} for row in logits]

    def _words(
        self, texts: int, windows: Sequence[_Window], top: int, progress: Progress
    ) -> list[list[list[dict[str, Any]]]]:
        mask_id = self.tokenizer.mask_token_id
        best: dict[tuple[int, int, int], tuple[int, list[dict[str, Any]]]] = {}  # of a mask: to the nearer end, words
        for rows, _, output in self._passes(windows, progress):
            for window, logits in zip(rows, output.logits, strict=True):
                for place in np.flatnonzero(window.ids == mask_id):
                    key = (window.text, int(window.types[place]), int(window.starts[place]))
                    room = int(min(place, len(window.ids) - 1 - place))
                    if key in best and best[key][0] >= room:
                        continue
                    likely = logits[place].softmax(-1).topk(min(top, logits.shape[-1]))
                    pairs = zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
                    best[key] = room, [{"word": self.tokenizer.decode([i]).strip(), "probability": p} for i, p in pairs]
        words: list[list[list[dict[str, Any]]]] = [[] for _ in range(texts)]
        for (text, *_), (_, likeliest) in sorted(best.items(), key=lambda entry: entry[0]):
            words[text].append(likeliest)
        if not all(words):
            raise ValueError(
                f"Text {words.index([]) + 1} has no {self.tokenizer.mask_token} to fill in. Add one, or leave it out."
            )
        return words


def predict(
    model: str | Path,
    texts: str | Sequence[str],
    pairs: str | Sequence[str] | None = None,
    *,
    what: str | None = None,
    length: int | None = None,
    **how: Any,
) -> Any:
    """Predict words for the masks of texts, labels of a classifier, or vectors, with a model that is opened once.

    Args:
        model: a folder of ours or of transformers, a Hub name, or "reference".
        pairs: the second text of each pair.
        what: "words", "labels", "vectors"; None: labels of a classifier; else words where every text has a mask, else
            vectors.
        length: tokens that the model reads at once, as in `Predictor`.
        how: `top`, `pooling`, `stride` of `Predictor.__call__`.

    Returns:
        As `Predictor.__call__`: words or labels of each text, or vectors (texts, width) float32.

    Raises:
        ValueError: as `Predictor` and `Predictor.__call__`.
    """
    first = as_list(texts, str, "A text is a string, several are a list of strings")
    second = None if pairs is None else as_list(pairs, str, "A second text is a string, several are a list of strings")
    return opened(model, first, what, length)(first, second, **how)


def opened(model: str | Path, texts: Sequence[str], what: str | None = None, length: int | None = None) -> Predictor:
    """Open the predictor that suits the texts: vectors in place of words where a text has no mask.

    Args:
        what: "words", "labels", "vectors"; None: as `predict`.

    Raises:
        ValueError: as `Predictor`.
    """
    predictor = Predictor(model, what, length)
    if what is None and predictor.what == "words" and not all(predictor.tokenizer.mask_token in text for text in texts):
        without = "No text" if not any(predictor.tokenizer.mask_token in text for text in texts) else "Not every text"
        remark = f"{without} has a {predictor.tokenizer.mask_token} to fill in: these are their vectors."
        predictor = Predictor(model, "vectors", length)
        predictor.remark = remark
    return predictor
