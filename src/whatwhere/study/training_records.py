"""Records of a corpus and a training: sizes, losses and costs, and the message on an undertrained model."""

from pathlib import Path
from typing import Any

from ..analysis.record_context import RecordContext
from ..corpus import Windows
from ..corpus.windows import own_windows
from ..records.gates import insufficient_gain, plateau
from ..records.record import Record
from ..records.table import Table
from ..run.folder import LOG, RunFolder
from ..run.names import SUMMARY
from ..run.status import step_lines
from ..training import pretrain

# Metric -> key of the training's summary.
COSTS = {
    key: key for key in ("steps", "tokens", "passes", "seconds", "tokens_per_second", "parameters", "operations")
} | {
    "parameters.embedding": "embedding_parameters",
    "memory.peak": "peak_memory_bytes",
}


def corpus_size_records(windows: Windows, run_name: str) -> list[Record]:
    """Return records of the corpus: sizes, tokens that its training windows leave empty, and the unigram loss.

    run_name: column `study` of the records, as in every function of this file.
    """
    train = windows["train"]
    context = RecordContext("", run_name=run_name)
    records = []
    for key in ("documents", "characters", "tokens", "windows"):
        records.append(context.record(f"corpus.{key}", sum(windows.facts[key].values())))
        records += [context.record(f"corpus.{key}", count, part=split) for split, count in windows.facts[key].items()]
    empty = train.length - train.lengths()
    records.append(context.record("corpus.room", empty.mean(), n=len(empty)))
    if (share := train.from_start()) is not None:
        records.append(context.record("corpus.from_start", share, n=len(train)))
    return [*records, unigram_record(windows, run_name)]


def unigram_record(windows: Windows, run_name: str) -> Record:
    """Return the record of the unigram loss in nats: the entropy of the token frequencies."""
    return RecordContext("", run_name=run_name).record(
        "loss.unigram", windows.unigram_entropy(), n=int(windows.unigrams().sum())
    )


def loss_records(folder: Path, context: RecordContext) -> list[Record]:
    """Return the curves of loss and accuracy of a training, finished or not."""
    records = []
    for line in step_lines(folder / LOG):
        at = context.at(line["step"])
        for key, part in (("loss", "train"), ("validation_loss", "validation")):
            if key in line:
                records.append(at.record("loss", line[key], part=part))
        if "validation_accuracy" in line:
            low = line.get("accuracy_low")
            high = line.get("accuracy_high")
            n = line.get("validation_labels")
            records.append(at.record("accuracy", line["validation_accuracy"], low, high, part="validation", n=n))
    return records


def training_records(folder: Path, context: RecordContext) -> list[Record]:
    """Return the curves of loss and accuracy, and the costs, of a finished training."""
    run = RunFolder.at(folder)
    run.check(LOG)
    summary = run.read(SUMMARY)
    costs = {metric: summary.get(key) for metric, key in COSTS.items()}
    return loss_records(folder, context) + [context.record(metric, v) for metric, v in costs.items() if v is not None]


def learning_records(tokenizer: Any, folder: Path, context: RecordContext) -> list[Record]:
    """Return the loss curves of a model's pretraining and the unigram loss; of a checkpoint, up to its step.

    There are no records where the losses are unknown: for models from elsewhere, or of another task.
    """
    is_checkpoint = folder.parent.name == "checkpoints" and folder.name.removeprefix("step-").isdigit()
    run_folder = folder.parent.parent if is_checkpoint else folder
    is_known = (run_folder / pretrain.SETTINGS_FILE).is_file() and (run_folder / LOG).is_file()
    windows = own_windows(tokenizer, folder) if is_known else None
    if windows is None:
        return []
    last_step = int(folder.name.removeprefix("step-")) if is_checkpoint else None
    losses = [
        r
        for r in loss_records(run_folder, context)
        if r.metric == "loss" and (last_step is None or (r.step or 0) <= last_step)
    ]
    return [*losses, unigram_record(windows, context.run_name)]


def undertrained_message(records: list[Record], model: str) -> str:
    """Return a message if a model is undertrained (`records.gates`), else an empty text."""
    table = Table(records)
    gains = insufficient_gain(table, model)
    unigram_loss = plateau(table)
    if gains is None or unigram_loss is None:
        return ""
    loss = unigram_loss - gains[0]
    return (
        f"{model} has not learned more than how often each token occurs: its validation loss is {loss:.2f} nats, a "
        f"guess by these frequencies has {unigram_loss:.2f}. What follows is how it began, not what its scheme does; "
        "train it longer."
    )
