"""Predictions of a trained model for texts of any length: words for masks, labels, or vectors."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..corpus.batches import padded
from ..corpus.tokenizer import check_tokenizer, lower_case
from ..encoder import EncoderConfig
from ..run.errors import as_list
from ..run.progress import Progress, ignore_progress
from ..run.reference import model_source
from .lengths import MOST_AT_ONCE, settings_of_training, usual_length
from .modules import MODULES, VectorParts, vector_parts
from .open import HeadMissing, open_config, open_model
from .prediction_kinds import KINDS, OF_STREAMS, POOLINGS, check_kind
from .sentence import pooled, reads_early, trained_states
from .tensors import device_of

BATCH_TOKENS = 4096  # of a forward pass, padding included


@dataclass(frozen=True)
class _Window:
    """A run of tokens of a text that the model reads at once.

    types: what the model is told of the text of a pair that a token is of. counted: 1 for a token that no earlier
    window has, special ones too. starts: characters in the text, -1 of special tokens. in_pair: True at tokens of the
    second text.
    """

    text: int
    ids: np.ndarray
    types: np.ndarray
    counted: np.ndarray
    starts: np.ndarray
    in_pair: np.ndarray


class Predictor:
    """An opened model with its tokenizer that predicts words, labels or vectors of texts of any length.

    Args:
        model: a folder of ours or of transformers, a Hub name, or "reference".
        what: "words", "labels", "vectors"; None: labels of a classifier, else words, or vectors of a bare encoder.
        length: tokens, special ones included, that it reads at once; None: as many as the texts of its training had,
            or as a longer copy was made for; of transformers' models as many as they read, at most 512.

    Raises:
        ValueError: no such model, a model without that head, an unknown `what`, or a length that it cannot read.
    """

    def __init__(self, model: str | Path, what: str | None = None, length: int | None = None) -> None:
        self.name = str(model)
        self.remark = ""  # what the output does not show, such as vectors in place of words
        self.parts: VectorParts | None = None  # of a sentence-transformers folder, which its vectors follow
        self.unfollowed = ""  # words on what modules.json asks for in vain
        self.cuts = False  # longer texts are cut, as sentence-transformers does
        config = open_config(model)
        head = str((getattr(config, "architectures", None) or [""])[0])
        has = {"labels": "ForSequenceClassification" in head, "words": "ForMaskedLM" in head, "vectors": True}
        self.what = what or next(name for name, is_given in has.items() if is_given)
        check_kind(self.what)
        if not has[self.what]:
            is_given = " and ".join(name for name in has if has[name])
            raise ValueError(f"{model} ({head or 'without a head'}) gives {is_given}; {self.what} need another model.")
        try:
            opened = open_model(model, KINDS[self.what])
        except HeadMissing:
            if what is not None:
                raise
            self.remark = f"{model} was saved without the head that its config.json names: these are vectors."
            self.what = "vectors"
            opened = open_model(model)
        self.model = opened.model
        self.tokenizer = opened.tokenizer
        self.types = opened.token_types
        second = settings_of_training(opened.folder).get("text_pair")
        self.reads_pairs = self.what == "labels" and bool(second)
        check_tokenizer(self.tokenizer, self.name)
        ours = config.model_type == EncoderConfig.model_type
        usual = usual_length(opened.folder, config)
        if self.what == "vectors":
            self.parts, self.unfollowed = vector_parts(model_source(model))
            if self.parts is not None and self.parts.lower_case:
                lower_case(self.tokenizer)
        if self.parts is not None and not ours and length is None:  # ours are read in windows, as ever
            self.cuts = True
            usual = self.parts.length or min(self.tokenizer.model_max_length, opened.max_tokens or MOST_AT_ONCE)
        self.longest = opened.cap_length(length or usual)
        least = self.tokenizer.num_special_tokens_to_add(pair=True) + 2
        if length is not None and not least <= length <= self.longest:
            most = opened.max_tokens
            bounds = f"from {least} to {most:,}" if most else f"{least} or more"
            raise ValueError(f"A length is {bounds} tokens for {self.name}; got {length}.")

    @torch.inference_mode()
    def __call__(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        top: int = 5,
        pooling: str | None = None,
        stride: int | None = None,
        progress: Progress = ignore_progress,
    ) -> Any:
        """Predict words for masks, labels or vectors of texts, read in overlapping windows where they are long.

        A text longer than the model reads is read in windows, each beginning with the last `stride` tokens of the one
        before (default: a quarter of a window). Logits and vectors are the means over windows, weighted by the tokens
        that no earlier window has, so that a mean vector counts every token of the text once; a mask is filled in the
        window in which it is farthest from both ends. Of a pair that is too long the longer text is cut. A text without
        tokens, such as a blank one, is read as its special tokens alone. Lines on stderr count both.

        The vectors of a sentence-transformers folder are as its modules.json says, where `pooling` is None: its
        prompt, pooling, maps and normalisation; without a `length` texts are cut at its max_seq_length, but for ours.

        Args:
            pairs: the second text of each pair.
            top: number of words for each mask, and of labels for each text.
            pooling: as `models.sentence.pooled`; None: as modules.json says, else "mean".
            stride: tokens that two neighbouring windows share.

        Returns:
            One result for each text, in their order. Words: a list of its masks (empty of a blank text), of each the
            `top` likeliest as {"word": ..., "probability": ...}. Labels: {label: probability} of the `top` likeliest
            (of a regression: its number). Vectors: (texts, width) float32.

        Raises:
            ValueError: no text, one without a mask (for words), one for which the tokenizer gives nothing at all,
                another number of pairs than of texts, a pooling that the model has not or that is not of vectors, `top`
                below 1, or a stride that is out of range or beside pairs.
        """
        streams = int(getattr(self.model.config, "position_size", 0))
        parts = self.parts if pooling is None else None
        if pooling is not None and self.what != "vectors":
            raise ValueError(f"A pooling is for vectors, and these are {self.what}. Leave it out, or ask for vectors.")
        pooling = pooling or "mean"
        if pooling not in POOLINGS or (pooling in OF_STREAMS and not streams):
            known = ", ".join(name for name in POOLINGS if streams or name not in OF_STREAMS)
            raise ValueError(f"The poolings of {self.name} are {known}; got {pooling!r}.")
        if stride is not None and pairs is not None:
            raise ValueError("Pairs are cut, not read in windows, so that a stride has no use. Leave it out.")
        if not texts:
            raise ValueError("There is no text. Give one or more.")
        if self.reads_pairs and pairs is None:
            self.remark = f"{self.name} was trained on pairs of texts, and these are single ones: give --pair as well."
        if top < 1:
            raise ValueError(f"top={top} shows nothing. Give 1 or more.")
        if parts is not None and parts.prompt:
            texts = [parts.prompt + text for text in texts]
        cuts = self.cuts and parts is not None and stride is None
        windows = list(self._windows(texts, stride, cuts) if pairs is None else self._pairs(texts, pairs))
        self._tell(texts, pairs, windows, cuts)
        if self.what == "words":
            return self._words(texts, windows, top, progress)
        weights = np.zeros(len(texts))
        sums = np.zeros((len(texts), 0))
        config = self.model.config
        early = self.what == "vectors" and reads_early(self.model.config, pooling)
        for rows, mask, output in self._passes(windows, progress, **({"output_block_states": True} if early else {})):
            if self.what == "labels":
                values = output.logits
            else:
                counted = torch.from_numpy(padded([w.counted for w in rows], 0)).to(mask)
                states = trained_states(output.block_states, config) if early else output.last_hidden_state
                if parts is None:
                    values = pooled(states, counted, pooling, streams)
                else:
                    values = parts.pool(states, counted)
            if not sums.size:
                sums = np.zeros((len(texts), values.shape[1]))
            for window, value in zip(rows, values.double().cpu().numpy(), strict=True):
                weights[window.text] += window.counted.sum()
                sums[window.text] += window.counted.sum() * value
        sums /= weights[:, None]
        if self.what == "labels":
            return self.labels(torch.from_numpy(sums), top)
        if parts is not None:
            sums = parts.finish(torch.from_numpy(sums)).numpy()
        return sums.astype(np.float32)

    def _tell(self, texts: Sequence[str], pairs: Sequence[str] | None, windows: Sequence[_Window], cuts: bool) -> None:
        """Print what the results do not show: parts that are not followed, texts without tokens, texts too long."""
        if self.unfollowed:
            print(self.unfollowed, file=sys.stderr)
            self.unfollowed = ""  # said once
        if empty := sorted({window.text + 1 for window in windows if (window.starts < 0).all()}):
            others = f" and {len(empty) - 1:,} others" if len(empty) > 1 else ""
            done = f"read as the special tokens of {self.name} alone"
            advice = "Leave such rows out where they should give nothing."
            print(f"No token in text {empty[0]:,}{others}: {done}. {advice}", file=sys.stderr)
        if long := self._longer(texts, pairs):
            remark = f"{long:,} of {len(texts):,} {'texts' if pairs is None else 'pairs'} are longer than the"
            done = "they are read in windows" if pairs is None else "they are cut"
            if cuts:
                done = f"they are cut, as its {MODULES} says (--length N reads them in windows)"
            print(f"{remark} {self.longest:,} tokens that {self.name} reads at once; {done}.", file=sys.stderr)

    def _longer(self, texts: Sequence[str], pairs: Sequence[str] | None) -> int:
        """Count the texts (or pairs) that are longer than the model reads at once."""
        ids = self.tokenizer(list(texts), None if pairs is None else list(pairs), verbose=False)["input_ids"]
        return sum(len(row) > self.longest for row in ids)

    def _windows(self, texts: Sequence[str], stride: int | None, cuts: bool = False) -> Iterator[_Window]:
        room = self.longest - self.tokenizer.num_special_tokens_to_add()
        overlap = room // 4 if stride is None else stride
        if not 0 <= overlap < room:
            raise ValueError(f"A stride is from 0 to {room - 1} tokens for {self.name}; got {stride}.")
        if cuts:
            yield from self._encoded(list(texts), None, truncation=True, max_length=self.longest)
            return
        how = {"truncation": True, "max_length": self.longest, "stride": overlap, "return_overflowing_tokens": True}
        before = -1
        side = self.tokenizer.truncation_side
        self.tokenizer.truncation_side = "right"  # windows run from a text's beginning to its end
        try:
            windows = list(self._encoded(list(texts), None, **how))
        finally:
            self.tokenizer.truncation_side = side
        for window in windows:
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
            if not len(ids):
                raise ValueError(f"Text {text + 1} has no token that {self.name} knows. Leave it out.")
            starts = np.array([start for start, _ in rows["offset_mapping"][at]], np.int64)
            in_pair = np.array([sequence == 1 for sequence in rows.sequence_ids(at)])
            counted = np.ones(len(ids), np.int64)
            yield _Window(int(text), ids, types, counted, np.where(special, -1, starts), in_pair)

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

    def labels(self, logits: torch.Tensor, top: int) -> list[dict[str, float]]:
        """Return the `top` likeliest labels of each row of a classifier's logits (texts, labels), likeliest first."""
        config = self.model.config
        if config.num_labels > 1:
            as_list = config.problem_type == "multi_label_classification"
            logits = logits.sigmoid() if as_list else logits.softmax(-1)
        best = [row.argsort(descending=True)[:top] for row in logits]
        return [
            {str(config.id2label[int(i)]): float(row[i]) for i in likely}
            for row, likely in zip(logits, best, strict=True)
        ]

    @cached_property
    def _has_token(self) -> torch.Tensor:
        """True for each id of the output that the tokenizer has a token for; tables are often wider: (V,)."""
        ids = [i for token, i in self.tokenizer.get_vocab().items() if token]
        known = torch.zeros(max(self.model.config.vocab_size, max(ids) + 1), dtype=torch.bool)
        known[ids] = True
        return known

    def likeliest(self, logits: torch.Tensor, top: int) -> list[dict[str, Any]]:
        """Return the `top` likeliest words of a row of logits (V,), each with its probability among all V."""
        known = self._has_token[: len(logits)].to(logits.device)
        likely = logits.softmax(-1).masked_fill(~known, -1).topk(min(top, int(known.sum())))
        pairs = zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
        return [{"word": self._word(i), "probability": p} for i, p in pairs]

    def _word(self, token: int) -> str:
        """Return a token as text; of white space alone, as the vocabulary spells it."""
        return str(self.tokenizer.decode([token]).strip() or self.tokenizer.convert_ids_to_tokens(token))

    def _words(
        self, texts: Sequence[str], windows: Sequence[_Window], top: int, progress: Progress
    ) -> list[list[list[dict[str, Any]]]]:
        mask_id = self.tokenizer.mask_token_id
        best: dict[tuple[int, int, int], tuple[int, list[dict[str, Any]]]] = {}  # of a mask: to the nearer end, words
        for rows, _, output in self._passes(windows, progress):
            for window, logits in zip(rows, output.logits, strict=True):
                for place in np.flatnonzero(window.ids == mask_id):
                    key = (window.text, int(window.in_pair[place]), int(window.starts[place]))
                    room = int(min(place, len(window.ids) - 1 - place))
                    if key in best and best[key][0] >= room:
                        continue
                    best[key] = room, self.likeliest(logits[place], top)
        words: list[list[list[dict[str, Any]]]] = [[] for _ in texts]
        for (text, *_), (_, likeliest) in sorted(best.items(), key=lambda entry: entry[0]):
            words[text].append(likeliest)
        for number, (string, of_text) in enumerate(zip(texts, words, strict=True), 1):
            if string.strip() and not of_text:
                mask = self.tokenizer.mask_token
                raise ValueError(f"Text {number} has no {mask} that is not cut away. Add one, or leave the text out.")
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
    return open_predictor(model, first, what, length, second)(first, second, **how)


def open_predictor(
    model: str | Path,
    texts: Sequence[str],
    what: str | None = None,
    length: int | None = None,
    pairs: Sequence[str] | None = None,
) -> Predictor:
    """Open the predictor that suits the texts: vectors in place of words where a text that is not blank has no mask,
    nor has the second text of its pair.

    Args:
        what: "words", "labels", "vectors"; None: as `predict`.

    Raises:
        ValueError: as `Predictor`.
    """
    predictor = Predictor(model, what, length)
    if what is not None or predictor.what != "words":
        return predictor
    mask = predictor.tokenizer.mask_token
    whole_texts = [text + second for text, second in zip(texts, pairs or [""] * len(texts), strict=False)]
    # A blank row has no words, whatever the others have.
    has_mask = [mask in text for text in whole_texts if text.strip()]
    if not has_mask or not all(has_mask):
        without = "Not every text" if any(has_mask) else "No text"
        remark = f"{without} has a {mask} to fill in: these are their vectors."
        predictor = Predictor(model, "vectors", length)
        predictor.remark = remark
    return predictor
