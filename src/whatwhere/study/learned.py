"""Whether a trained model has learned anything yet, for verbs that look into one model alone."""

from pathlib import Path
from typing import Any

from ..analysis.who import Who
from ..corpus.windows import own_windows
from ..gates import plateau, unlearned
from ..points import Table
from ..records import Record
from ..training.pretrain import CONFIG
from .records import loss_records, unigram_record


def learning_records(tokenizer: Any, folder: Path, who: Who) -> list[Record]:
    """Validation losses of the pretraining that left a model or checkpoint, up to it, and the loss of a guess by token
    frequency; none where they are not known: of models from elsewhere, or of another task."""
    checkpoint = folder.parent.name == "checkpoints"
    run = folder.parent.parent if checkpoint else folder
    windows = own_windows(tokenizer, folder) if (run / CONFIG).is_file() and (run / "log.jsonl").is_file() else None
    if windows is None:
        return []
    last = int(folder.name.removeprefix("step-")) if checkpoint else None
    losses = [r for r in loss_records(run, who) if r.metric == "loss" and (last is None or (r.step or 0) <= last)]
    return [*losses, unigram_record(windows, who.study)]


def not_learned(records: list[Record], model: str) -> str:
    """One sentence where a model has learned how often each token occurs and no more (`gates`); else empty."""
    table = Table(records)
    young, level = unlearned(table, model), plateau(table)
    if young is None or level is None:
        return ""
    loss = level - young[0]
    return (
        f"{model} has not learned more than how often each token occurs: its validation loss is {loss:.2f} nats, such "
        f"a guess has {level:.2f}. What follows is how it began, not what its scheme does; train it longer."
    )
