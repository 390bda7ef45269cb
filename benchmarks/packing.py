"""Packing gain: real tokens a second of training steps, documents packed and isolated against one piece of a document
in each row."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import whatwhere as ww
from whatwhere.corpus import MaskedBatches, build_windows, load_tokenizer, train_tokenizer
from whatwhere.corpus.source import Source

from .models import MASKED, PRECISION, ours, training_step
from .timing import DEVICE, Results, Settings, alternate, figure, row

CHARACTERS = {"full": 10_000_000, "quick": 2_000_000, "micro": 60_000}
BATCH = {"full": 32, "quick": 32, "micro": 2}
STEPS = {"full": 8, "quick": 4, "micro": 1}  # batches in each repeat
JOINS = ("none", "isolate", "run-on")


class Beginning(Source):
    """The first documents of a source, about as many characters."""

    def __init__(self, source: Source, characters: int) -> None:
        self.source = source
        self.characters = characters
        self.name = f"{source.name}, {characters} characters"

    def documents(self) -> Iterator[str]:
        left = self.characters
        for document in self.source:
            yield document
            left -= len(document)
            if left <= 0:
                return

    def fingerprint(self) -> dict[str, Any]:
        return {"beginning": self.characters, **self.source.fingerprint()}


def packing(settings: Settings) -> Results:
    """Packed against padded, and what isolation costs against run-on rows that need none."""
    results = Results()
    source = Beginning(settings.source(), CHARACTERS[settings.scale])
    tokenizer = load_tokenizer(settings.tokenizer) if settings.tokenizer else train_tokenizer(source)
    names = ("dstg", "ap") if settings.scale != "micro" else ("dstg",)
    b = BATCH[settings.scale]
    steps = STEPS[settings.scale]
    with tempfile.TemporaryDirectory() as folder:
        batches = {}
        for join in JOINS:
            windows = build_windows(
                source, tokenizer, Path(folder) / join, length=128, join=join, workers=1, progress=False
            )["train"]
            made = MaskedBatches(windows, mask_rate=MASKED, max_positions=128)
            batches[join] = [{k: v.to(DEVICE) for k, v in made.micro_batch(step, b).items()} for step in range(steps)]
    real = {join: sum(int(batch["attention_mask"].sum()) for batch in several) for join, several in batches.items()}
    room = {join: sum(batch["input_ids"].numel() for batch in several) for join, several in batches.items()}
    full = {join: real[join] / room[join] for join in JOINS}
    for name in names:
        config = ww.preset(name, "tiny", vocab_size=len(tokenizer))
        runs = {join: _epoch(config, several) for join, several in batches.items()}
        times = alternate(runs, settings.repeats)
        rates = {
            join: figure(f"{name}, {join}", [real[join] / t for t in times[join]], unit="tokens/s") for join in JOINS
        }
        shape = f"tiny, n = 128, b = {b}, {PRECISION}, {settings.corpus_name}"
        note = (
            f"places that hold tokens: packed {full['isolate']:.0%}, padded {full['none']:.0%}; "
            f"{_shapes(config, batches['isolate'][0])}"
        )
        results.rows.append(
            row(f"tokens a second, {name}, packed / padded", shape, rates["isolate"], rates["none"], note=note)
        )
        results.rows.append(row(f"tokens a second, {name}, packed / run-on", shape, rates["isolate"], rates["run-on"]))
    return results


def _epoch(config: ww.EncoderConfig, batches: list[dict[str, torch.Tensor]]) -> Callable[[], None]:
    """A training step on every batch."""
    model = ours(config)
    steps = [training_step(model, batch) for batch in batches]

    def run() -> None:
        for step in steps:
            step()

    return run


def _shapes(config: ww.EncoderConfig, batch: dict[str, torch.Tensor]) -> str:
    """What a packed batch makes the attention hold: the shapes of the mask and of the bias."""
    model = ww.Encoder(config).to(DEVICE)
    shared = model.attention_inputs(
        batch["input_ids"], batch["attention_mask"], batch["position_ids"], batch["document_ids"]
    )
    found = [f"mask {_named(shared.allowed)}"]
    relative = model.layers[0].attention.relative
    if relative is not None:
        found.append(f"bias {_named(relative(shared.distance_or_bucket, shared.token_kinds, shared.cls_kinds).base)}")
    return ", ".join(found)


def _named(tensor: torch.Tensor | None) -> str:
    return "none" if tensor is None else str(tuple(tensor.shape))
