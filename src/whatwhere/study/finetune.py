"""Records of a fine-tuning, from the files that it left: losses, accuracy, and its position table at every checkpoint
(GEOM 6.5)."""

import json
from pathlib import Path

from ..analysis.course import separation_records
from ..analysis.geometry import CorpusDistances
from ..analysis.who import Who
from ..encoder import EncoderConfig
from ..records import Record
from ..training.finetune import CONFIG, FinetuneConfig
from ..training.runs import SUMMARY
from .run import training_records


def finetune_records(out: str | Path, corpus: CorpusDistances | None = None) -> list[Record]:
    """All records of the finished fine-tuning in the folder `out`, whose name is the model's.

    Args:
        corpus: Hellinger distances for stress and correlation; see `separation_records`.

    Raises:
        ValueError: no finished fine-tuning there.
    """
    out = Path(out)
    if not (out / SUMMARY).is_file() or not (out / CONFIG).is_file():
        raise ValueError(f"{out} holds no finished fine-tuning. Finish it: whatwhere finetune --resume.")
    summary = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
    seed = FinetuneConfig.load_run(out / CONFIG).seed
    who = Who(out.name, seed)
    records = training_records(out, who)
    records.append(who.record("accuracy.commonest", summary["commonest"], part="validation", n=summary["dev_rows"]))
    if EncoderConfig.from_pretrained(out, local_files_only=True).absolute != "none":
        records += separation_records(out, who, used=summary["longest"], corpus=corpus)
    return records
