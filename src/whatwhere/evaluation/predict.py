"""What a trained model says of texts: words for masks, labels, vectors; of texts of any length."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from ..analysis.passes import device_of
from ..analysis.texts import most_tokens
from ..corpus import load_tokenizer
from ..corpus.labelled import padded
from ..encoder.sentence import OF_STREAMS, POOLINGS, pooled
from ..shipped import model_source
from ..training.checkpoints import quiet

WHAT = ("words", "labels", "vectors")
BATCH_TOKENS = 4096  # of a forward pass, padding included


@dataclass(frozen=True)
class _Window:
    """Tokens of a text that are read at once. counted: 1 for a token that no earlier window has, special ones too."""

    text: int
    ids: np.ndarray
    counted: np.ndarray
    starts: np.ndarray  # characters in the text, -1 of special tokens


class Predictor:
    """A model, opened once, and its tokenizer.

    Args:
        model: a folder of ours or of transformers, a Hub name, or "reference".
        what: "words", "labels", "vectors"; None: labels of a classifier, else words.

    Raises:
        ValueError: the model has no such head, or there is no such thing.
    """

    def __init__(self, model: str | Path, what: str | None = None) -> None:
        source = model_source(model)
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        head = str((getattr(config, "architectures", None) or [""])[0])
        has = {"labels": "ForSequenceClassification" in head, "words": "ForMaskedLM" in head, "vectors": True}
        self.what = what or next(name for name, there in has.items() if there)
        if self.what not in WHAT:
            raise ValueError(f"what must be one of {', '.join(WHAT)}; got {what!r}.")
        if not has[self.what]:
            there = ", ".join(name for name in has if has[name])
            raise ValueError(f"{model} is a {head or 'model without a head'}: it gives {there}, not {self.what}.")
        kinds = {"words": AutoModelForMaskedLM, "labels": AutoModelForSequenceClassification, "vectors": AutoModel}
        with quiet():
            self.model: Any = kinds[self.what].from_pretrained(
                source, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
            )
        self.model.eval()
        self.tokenizer: Any = load_tokenizer(source)
        self.name = str(model)

    @torch.inference_mode()
    def __call__(
        self,
        texts: Sequence[str],
        *,
        top: int = 5,
        pooling: str = "mean",
        stride: int | None = None,
        show: Callable[[int, int], None] = lambda done, total: None,
    ) -> Any:
        """Of words a list for each text of (mask, top) dicts `word`, `probability`; of labels a dict label ->
        probability for each text, likeliest first; of vectors (texts, width) float32.

        A text longer than the model reads is read in windows, each beginning with the last `stride` tokens of the one
        before (default: a quarter of a window). Logits and vectors are the means over windows, weighted by the tokens
        that no earlier window has (so that a mean vector counts every token once); a mask is filled in the window in
        which it is farthest from both ends.

        Args:
            top: words for each mask. pooling: as `encoder.sentence.pooled`.

        Raises:
            ValueError: no text, one without tokens or (for words) without the mask, or a pooling that the model has
                not.
        """
        streams = int(getattr(self.model.config, "position_size", 0))
        if pooling not in POOLINGS or (pooling in OF_STREAMS and not streams):
            there = ", ".join(name for name in POOLINGS if streams or name not in OF_STREAMS)
            raise ValueError(f"pooling must be one of {there} for {self.name}; got {pooling!r}.")
        if not texts:
            raise ValueError("There is no text. Give one or more.")
        windows = list(self._windows(texts, stride))
        if self.what == "words":
            return self._words(texts, windows, top, show)
        weights, found = np.zeros(len(texts)), np.zeros(0)
        for rows, mask, output in self._passes(windows, show):
            if self.what == "labels":
                values = output.logits
            else:
                counted = torch.from_numpy(padded([w.counted for w in rows], 0)).to(mask)
                values = pooled(output.last_hidden_state, counted, pooling, streams)
            for window, value in zip(rows, values.double().cpu().numpy(), strict=True):
                if not found.size:
                    found = np.zeros((len(texts), len(value)))
                weight = float(window.counted.sum())
                weights[window.text] += weight
                found[window.text] += weight * value
        found /= weights[:, None]
        if self.what == "vectors":
            return found.astype(np.float32)
        names = self.model.config.id2label
        several = getattr(self.model.config, "problem_type", None) == "multi_label_classification"
        shares = torch.from_numpy(found)
        shares = shares.sigmoid() if several else shares.softmax(-1)
        return [{str(names[int(i)]): float(row[i]) for i in row.argsort(descending=True)} for row in shares]

    def longest(self) -> int:
        """Tokens of a window, special ones included."""
        limit = int(self.tokenizer.model_max_length)  # absurdly large where the tokenizer knows none
        return min(most_tokens(self.model) or 512, limit)

    def _windows(self, texts: Sequence[str], stride: int | None) -> Iterator[_Window]:
        longest = self.longest()
        room = longest - self.tokenizer.num_special_tokens_to_add()
        overlap = room // 4 if stride is None else stride
        if not 0 <= overlap < room:
            raise ValueError(f"stride must be from 0 to {room - 1} tokens for {self.name}; got {stride}.")
        how = {"truncation": True, "max_length": longest, "stride": overlap, "return_overflowing_tokens": True}
        rows = self.tokenizer(
            list(texts), return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False, **how
        )
        before = -1
        for at, text in enumerate(rows["overflow_to_sample_mapping"]):
            special = np.array(rows["special_tokens_mask"][at], bool)
            ids, plain = np.array(rows["input_ids"][at], np.int64), np.flatnonzero(~special)
            if self.what == "words":  # to the tokenizer the mask is a special token, which a user wrote
                plain = np.flatnonzero(~special | (ids == self.tokenizer.mask_token_id))
            if text != before and not len(plain):
                raise ValueError(f"Text {text + 1} has no token that {self.name} knows. Leave it out.")
            counted = np.ones(len(ids), np.int64)
            counted[plain[: overlap if text == before else 0]] = 0
            starts = np.array([start for start, _ in rows["offset_mapping"][at]], np.int64)
            yield _Window(int(text), ids, counted, np.where(np.isin(np.arange(len(ids)), plain), starts, -1))
            before = text

    def _passes(
        self, windows: Sequence[_Window], show: Callable[[int, int], None]
    ) -> Iterator[tuple[list[_Window], torch.Tensor, Any]]:
        """The model's output of batches of windows of nearly one length, the longest first."""
        order, at = sorted(windows, key=lambda w: -len(w.ids)), 0
        while at < len(order):
            rows = order[at : at + max(1, BATCH_TOKENS // len(order[at].ids))]
            ids = torch.from_numpy(padded([w.ids for w in rows], self.tokenizer.pad_token_id or 0))
            mask = torch.from_numpy(padded([np.ones(len(w.ids), np.int64) for w in rows], 0))
            ids, mask = ids.to(device_of(self.model)), mask.to(device_of(self.model))
            yield rows, mask, self.model(input_ids=ids, attention_mask=mask)
            at += len(rows)
            show(at, len(order))

    def _words(
        self, texts: Sequence[str], windows: Sequence[_Window], top: int, show: Callable[[int, int], None]
    ) -> list[list[list[dict[str, Any]]]]:
        mask_id = self.tokenizer.mask_token_id
        room: dict[tuple[int, int], tuple[int, list[dict[str, Any]]]] = {}  # of a mask: to the nearer end, its words
        for rows, _, output in self._passes(windows, show):
            for window, logits in zip(rows, output.logits, strict=True):
                for place in np.flatnonzero(window.ids == mask_id):
                    key, free = (window.text, int(window.starts[place])), min(place, len(window.ids) - 1 - place)
                    if key in room and room[key][0] >= free:
                        continue
                    likely = logits[place].softmax(-1).topk(min(top, logits.shape[-1]))
                    pairs = zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
                    said = [{"word": self.tokenizer.decode([i]).strip(), "probability": p} for i, p in pairs]
                    room[key] = int(free), said
        found = [[said for (at, _), (_, said) in sorted(room.items()) if at == text] for text in range(len(texts))]
        if (bare := [i for i, masks in enumerate(found) if not masks]) or top < 1:
            token = self.tokenizer.mask_token
            missing = f"text {bare[0] + 1} has no {token}" if bare else f"top={top}"
            raise ValueError(f"Words are said for {token}, at least one for each; {missing}.")
        return found


def predict(model: str | Path, texts: str | Sequence[str], *, what: str | None = None, **how: Any) -> Any:
    """Words for the masks of texts, labels of a classifier, or vectors, see `Predictor`.

    Args:
        model: a folder of ours or of transformers, a Hub name, or "reference".
        what: "words", "labels", "vectors"; None: labels of a classifier; else words where every text has a mask, else
            vectors.
        how: `top`, `pooling`, `stride` of `Predictor.__call__`.
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    return opened(model, texts, what)(texts, **how)


def opened(model: str | Path, texts: Sequence[str], what: str | None = None) -> Predictor:
    """The model for what is wanted of some texts; it says on stderr where texts are longer than it reads."""
    found = Predictor(model, what)
    if what is None and found.what == "words" and not all(found.tokenizer.mask_token in text for text in texts):
        found = Predictor(model, "vectors")
    lengths = [len(ids) for ids in found.tokenizer(list(texts), verbose=False)["input_ids"]] if texts else []
    if long := sum(length > found.longest() for length in lengths):
        print(
            f"{long:,} of {len(texts):,} texts are longer than the {found.longest():,} tokens that {model} reads; they "
            "are read in windows.",
            file=sys.stderr,
        )
    return found
