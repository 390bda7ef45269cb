"""Speed of text to windows on one core, against the tokenizer's `encode_batch` alone; and of batches.

Budget: at least 1 MB of text per second per core. `encode_batch` is the floor: it gives ids and offsets as objects of
the library, but no arrays, segments, splits, rows or files. CPU seconds of one process and one thread, text read
beforehand.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from whatwhere.corpus import MaskedBatches, build_windows, train_tokenizer

from .packing import Beginning
from .timing import Results, Settings, alternate, figure, row

CHARACTERS = {"full": 50_000_000, "quick": 3_000_000, "micro": 60_000}
MOST_REPEATS = 3


def cpu(run: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def windows(settings: Settings) -> Results:
    """Megabytes a second for each way of joining documents, and milliseconds a batch."""
    results = Results()
    source = Beginning(settings.source(), CHARACTERS[settings.scale])
    documents = list(source)
    megabytes = sum(len(d.encode()) for d in documents) / 1e6
    tokenizer = train_tokenizer(documents)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    shape = f"{settings.corpus_name}, {megabytes:.1f} MB, one core"

    def encode() -> None:
        for at in range(0, len(documents), 400):
            backend.encode_batch(documents[at : at + 400], add_special_tokens=False)

    with tempfile.TemporaryDirectory() as folder:
        outs = (Path(folder) / str(i) for i in range(100))

        def build(join: str) -> Callable[[], object]:
            return lambda: build_windows(source, tokenizer, next(outs), join=join, workers=1, progress=False)

        runs = {"encode_batch": encode, **{join: build(join) for join in ("run-on", "none", "isolate")}}
        times = alternate(runs, min(settings.repeats, MOST_REPEATS), measure=cpu)
        speed = {name: figure(name, [megabytes / t for t in values], unit="MB/s") for name, values in times.items()}
        for join in ("run-on", "none", "isolate"):
            results.rows.append(
                row(f"text to windows, {join} / encode_batch", shape, speed[join], speed["encode_batch"])
            )
            results.rows.append(row(f"text to windows, {join}, MB/s", shape, speed[join], at_least=1.0))
        train = build_windows(source, tokenizer, next(outs), progress=False)["train"]
        for masking in ("all", "80-10-10"):
            batches = MaskedBatches(train, masking=masking)
            batches.permutation(0)
            steps = 200 if settings.scale == "full" else 20

            def make(batches: MaskedBatches = batches, steps: int = steps) -> None:
                for step in range(steps):
                    batches.micro_batch(step, 32)

            values = alternate({masking: make}, min(settings.repeats, MOST_REPEATS), measure=cpu)[masking]
            batch = figure(masking, [1e3 * t / steps for t in values], unit="ms")
            results.rows.append(row(f"batch, masking {masking}, ms", "32 x 128 tokens", batch, at_most=3.0))
    return results
