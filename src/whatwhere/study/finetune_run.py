"""`whatwhere finetune`: a fine-tuning, and the records of its losses, accuracy and position table."""

from pathlib import Path
from typing import Any

from ..analysis.corpus_geometry import CorpusDistances
from ..analysis.course import separation_records
from ..analysis.record_context import RecordContext
from ..models.model_tables import has_table
from ..records.record import Record
from ..run.folder import RunFolder
from ..run.names import SUMMARY
from ..training.environment import process_group_state
from ..training.finetune import KIND, SETTINGS_FILE, FinetuneConfig, finetune
from .results import RECORDS
from .training_records import training_records


def run_finetuning(config: FinetuneConfig, out: str | Path, progress: bool = True) -> dict[str, Any]:
    """Fine-tune a classifier in the folder `out`, or resume it, and write its records; return the training's summary.

    Raises:
        ValueError: as `training.finetune.finetune`, or the records are not as they were written.
        Stopped: a signal asked to stop, and a checkpoint is written.
    """
    summary = finetune(config, out, progress=progress)
    if process_group_state().is_main_process:
        with RunFolder.open(out, KIND) as run:
            if run.has(RECORDS):
                run.check(RECORDS)
            else:
                run.write(RECORDS, finetune_records(out))
    return summary


def finetune_records(out: str | Path, corpus: CorpusDistances | None = None) -> list[Record]:
    """Return all records of the finished fine-tuning in the folder `out`; the folder's name is the model's name.

    Args:
        corpus: Hellinger distances for stress and correlation; see `separation_records`.

    Raises:
        ValueError: no finished fine-tuning there.
    """
    out = Path(out)
    if not (out / SUMMARY).is_file() or not (out / SETTINGS_FILE).is_file():
        raise ValueError(f"{out} holds no finished fine-tuning. Run the command that began it again.")
    summary = RunFolder.at(out).read(SUMMARY)
    context = RecordContext(out.resolve().name, FinetuneConfig.load_saved(out / SETTINGS_FILE).seed)
    records = training_records(out, context)
    records.append(context.record("accuracy.commonest", summary["commonest"], part="validation", n=summary["dev_rows"]))
    if has_table(out):
        records += separation_records(out, context, used=summary["longest"], corpus=corpus)
    return records
