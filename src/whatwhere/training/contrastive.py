"""Unsupervised SimCSE (Gao, Yao and Chen 2021): training makes the vectors of two draws of dropout alike."""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast

from ..corpus import Windows
from ..corpus.batches import Batches, padded
from ..corpus.segments import segment_starts, token_segments
from ..corpus.source import Source
from ..corpus.tokenizer import save_tokenizer
from ..models.sentence import pooled, write_sentence_transformer
from ..run.files import write_json
from ..run.folder import RunFolder
from ..run.names import SUMMARY
from ..run.progress import Progress
from .divergence import NotFiniteError
from .loop import Trainer
from .model_folder import save_model
from .training_keys import LoopConfig

TEMPERATURE = 0.05
DROPOUT = 0.1  # for a model without dropout: the paper's value, the best in its Table 4
BATCH_SIZE = 64  # sentences
LENGTH = 32  # tokens of a sentence at most, special ones included
SHORTEST = 6  # tokens of a sentence, special ones included: headings and numbers repeat themselves
RATE = 3e-5  # for a model 768 wide, the paper's for BERT-base; in inverse proportion to the width


def contrastive_loss(first: Tensor, second: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Compute the contrastive loss of two vectors of each sentence (Gao et al. 2021, equation 4).

    The mean over i of -log(exp(sim(first_i, second_i) / t) / sum over j of exp(sim(first_i, second_j) / t)), sim the
    cosine.

    first, second: (b, d) vectors of the same sentences. temperature: t, above 0. The result is in nats, without axes.
    """
    scores = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T / temperature
    return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


class ContrastiveEncoder(nn.Module):
    """Encoder whose output is the contrastive loss of a batch that it reads twice, under two draws of dropout."""

    def __init__(self, encoder: Any, pooling: str) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.config = encoder.config
        self.set_attn_implementation = encoder.set_attn_implementation

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """Return the contrastive loss of sentences, each of which is read twice.

        input_ids, attention_mask: (b, n). The loss is an attribute of what is returned: in nats, without axes.
        """
        ids = torch.cat([input_ids] * 2)
        mask = torch.cat([attention_mask] * 2)
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        first, second = pooled(hidden, mask, self.pooling, getattr(self.config, "position_size", 0)).chunk(2)
        return SimpleNamespace(loss=contrastive_loss(first, second))


class SentenceBatches(Batches):
    """Batches of sentences as token ids, padded to the longest sentence.

    ids: (tokens,) int64 of each sentence. A batch: `input_ids`, `attention_mask`, (b, n) int64.
    """

    def __init__(self, ids: Sequence[np.ndarray], pad_id: int, seed: int = 0) -> None:
        super().__init__(len(ids), seed)
        self.ids = ids
        self.pad_id = pad_id

    def _collate(self, chosen: list[tuple[int, int]]) -> dict[str, Tensor]:
        rows = [self.ids[index] for _, index in chosen]
        input_ids = padded(rows, self.pad_id)
        mask = np.arange(input_ids.shape[1]) < np.array([len(row) for row in rows])[:, None]
        batch = {"input_ids": input_ids, "attention_mask": mask.astype(np.int64)}
        return {name: torch.from_numpy(array) for name, array in batch.items()}


def collect_sentences(text: Windows | Source, tokenizer: PreTrainedTokenizerFast, limit: int) -> list[np.ndarray]:
    """Return at most `limit` different sentences of SHORTEST tokens or more, cut to LENGTH.

    Args:
        text: windows, whose train split is read in a fixed random order; or a text, read from its beginning.

    Returns:
        (tokens,) int64 ids of each sentence, special tokens included.

    Raises:
        ValueError: too few sentences for one batch.
    """
    rows: dict[bytes, np.ndarray] = {}
    for ids in _sentences_of_windows(text) if isinstance(text, Windows) else _sentences_of_source(text, tokenizer):
        if len(ids) >= SHORTEST:
            rows.setdefault(ids.tobytes(), ids)
        if len(rows) == limit:
            break
    if len(rows) < BATCH_SIZE:
        raise ValueError(
            f"The text has {len(rows)} different sentences of {SHORTEST} tokens or more, and a batch is {BATCH_SIZE}. "
            "Give more text: --corpus."
        )
    return list(rows.values())


def _sentences_of_windows(windows: Windows) -> Iterator[np.ndarray]:
    train = windows["train"]
    cls, sep = (train.special_ids[name] for name in ("cls_token_id", "sep_token_id"))
    for row in np.random.default_rng(0).permutation(len(train)):
        ids, marks = train.row(int(row))
        segments, _ = token_segments(marks)
        for number in range(int(segments.max()) + 1):
            yield np.array([cls, *ids[segments == number][: LENGTH - 2], sep], np.int64)


def _sentences_of_source(source: Source, tokenizer: PreTrainedTokenizerFast) -> Iterator[np.ndarray]:
    for document in source:
        bounds = [0, *segment_starts(document), len(document)]
        sentences = [text for start, end in pairwise(bounds) if (text := document[start:end].strip())]
        if sentences:
            rows = tokenizer(sentences, truncation=True, max_length=LENGTH)["input_ids"]
            yield from (np.array(ids, np.int64) for ids in rows)


def zero_dropout_settings(config: Any) -> list[str]:
    """Return the names of a model's dropout settings if all are 0; an empty list if any is above 0.

    Without dropout SimCSE would compare equal vectors. A classifier's dropout does not count.
    """
    settings = {key: value for key, value in vars(config).items() if "dropout" in key and "classifier" not in key}
    numbers = {key: value for key, value in settings.items() if isinstance(value, float | int)}
    return [] if any(value > 0 for value in numbers.values()) else list(numbers)


def train_contrastive(
    encoder: Any,
    tokenizer: PreTrainedTokenizerFast,
    text: Windows | Source,
    pooling: str,
    steps: int,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Train an encoder in place for `steps` steps of BATCH_SIZE sentences each, and return the facts of the training.

    The learning rate rises over the first tenth of the steps, then falls linearly to 0. The paper trains a head over
    the vector; here the vector of `pooling` itself is trained.

    Args:
        pooling: as `models.sentence.pooled`: "mean", "cls", "semantic" or "position".
        seed: seed of the dropout and of the order of the sentences. The set of sentences does not depend on it.

    Returns:
        The settings; `sentences`, the number of different ones; `loss_first` and `loss_last`, mean contrastive losses
        in nats of the first and the last tenth of the steps; `learning_rate`, the peak; `seconds`.

    Raises:
        ValueError: as `collect_sentences`; the loss or the gradient is not finite.
    """
    rows = collect_sentences(text, tokenizer, steps * BATCH_SIZE)
    assert isinstance(tokenizer.pad_token_id, int)
    data = SentenceBatches(rows, tokenizer.pad_token_id, seed)
    torch.manual_seed(seed)
    rate = RATE * 768 / encoder.config.hidden_size
    settings = {"batch_size": BATCH_SIZE, "learning_rate": rate, "weight_decay": 0.0, "warmup_steps": steps // 10}
    settings |= {"schedule": "linear", "minimum_learning_rate_ratio": 0.0, "betas": (0.9, 0.999)}
    trainer: Any = Trainer(ContrastiveEncoder(encoder, pooling), LoopConfig.parse(settings), steps)  # type: ignore[arg-type]
    losses = []
    began = time.perf_counter()
    for index in range(steps):
        try:
            losses.append(trainer.take_step(index, trainer.make_micro_batches(data.micro_batch, index))[0])
        except NotFiniteError as error:
            advice = "The encoder may be damaged: try it by `whatwhere predict`"
            raise ValueError(f"{error} at step {index + 1} of contrastive training. {advice}.") from None
        progress(index + 1, steps, "contrastive", f"loss {losses[-1]:.3f}")
    tenth = max(1, steps // 10)
    return {
        "pooling": pooling,
        "seed": seed,
        "steps": steps,
        "sentences": len(rows),
        "loss_first": float(np.mean(losses[:tenth])),
        "loss_last": float(np.mean(losses[-tenth:])),
        "learning_rate": rate,
        "seconds": time.perf_counter() - began,
    }


def save_encoder(
    encoder: Any, tokenizer: PreTrainedTokenizerFast, out: Path, facts: dict[str, Any], length: int
) -> None:
    """Write a folder that transformers and sentence-transformers open, whole or not at all.

    length: tokens to which sentence-transformers cuts longer texts.
    """
    with RunFolder.create(out, "model") as folder:
        save_model(encoder, folder, with_code=True)
        save_tokenizer(tokenizer, folder)
        write_sentence_transformer(folder, facts["pooling"], length)
        write_json(folder / SUMMARY, facts)
