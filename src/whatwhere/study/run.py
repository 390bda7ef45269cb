"""One command from a corpus to a report: windows → models on the same batches → probes → spectra → records → report.

Every part leaves plain files and is skipped where they are finished, so a killed study goes on where it was.
"""

import json
import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..analysis.features import FEWEST_DOCUMENTS
from ..analysis.probes import probe_records
from ..analysis.shift import shift_records
from ..analysis.tables import table_records
from ..corpus import Windows
from ..encoder import SOURCES, EncoderForMaskedLM
from ..records import Record, read_records, write_records
from ..report import write_report
from ..training.checkpoints import WEIGHTS
from ..training.config import write_text
from ..training.costs import costs, matched_width
from ..training.pretrain import prepare_windows, pretrain, timed_step
from ..training.runs import SUMMARY, claim_folder
from .claims import evaluate
from .config import StudyConfig
from .machine import machine, versions

CONFIG, BUDGET = "study.yaml", "budget.json"
# Share of the time and seconds kept for probes and report, and what validation and checkpoints add to a step.
RESERVE_SHARE, RESERVE_SECONDS, OVERHEAD = 0.06, 12.0, 1.2
FEWEST_STEPS = 20


# What a reader of the report should know about the defaults of a size.
NOTES = {
    "tiny": [
        "The defaults of size tiny were searched on python-docs with seed 0, so that all encoders learn within minutes and the streams can "
        "be told apart. On that corpus and seed a verdict demonstrates; other corpora and seeds test. docs/log.md lists what was tried."
    ]
}


class Study:
    """A study folder and the parts that fill it."""

    def __init__(self, config: StudyConfig, out: Path, progress: bool = True) -> None:
        self.config, self.out, self.progress = config, out, progress
        self.began = time.perf_counter()

    @property
    def name(self) -> str:
        return self.out.name

    def say(self, event: str, **facts: Any) -> None:
        """One line to log.jsonl and, in words, to stderr."""
        line = {"seconds": round(time.perf_counter() - self.began, 2), "event": event, **facts}
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.progress:
            details = ", ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in facts.items())
            print(f"[{line['seconds']:6.0f} s] {event}{': ' + details if details else ''}", file=sys.stderr, flush=True)

    def steps(self, windows: Windows) -> int:
        """ONE number of steps for all models and seeds: as asked, or from a short timing of each preset; kept on resume."""
        if self.config.steps is not None:
            return self.config.steps
        kept = self.out / BUDGET
        if kept.is_file():
            return int(json.loads(kept.read_text(encoding="utf-8"))["steps"])
        assert self.config.minutes is not None
        seconds = {name: timed_step(self.config.pretraining(name, 0, 1), windows) for name in self.config.models}
        total = self.config.minutes * 60
        left = total * (1 - RESERVE_SHARE) - RESERVE_SECONDS - (time.perf_counter() - self.began)
        steps = max(FEWEST_STEPS, int(left / (self.config.seeds * sum(seconds.values()) * OVERHEAD)))
        write_text(kept, json.dumps({"steps": steps, "seconds_per_step": seconds, "minutes": self.config.minutes}, indent=1))
        self.say("budget", steps=steps, **{f"ms per step of {n}": round(1000 * s) for n, s in seconds.items()})
        return steps

    def match_costs(self, windows: Windows, resumed: bool) -> None:
        """Give every model the feed-forward width at which it costs what the first one does; a resumed study keeps its widths."""
        first, *rivals = self.config.models
        what = self.config.match
        if what is None or (resumed and set(rivals) <= set(self.config.widths)):
            return
        trainings = {name: self.config.pretraining(name, 0, 1) for name in self.config.models}
        configs = {name: training.encoder_config(windows) for name, training in trainings.items()}
        length, labelled = self.config.length, trainings[first].mask_rate
        target = costs(configs[first], length, labelled).of(what)
        widths = {name: matched_width(configs[name], what, target, length, labelled) for name in rivals}
        self.config = self.config.model_copy(update={"widths": {**self.config.widths, **widths}})
        self.config.save_run(self.out / CONFIG)
        self.say(f"{what} matched to those of {first} by feed-forward widths", **widths)

    def can_probe(self, windows: Windows) -> bool:
        """Whether enough held-out windows have the full length for the probes (which a study can do without)."""
        return int((windows["held_out"].lengths() == self.config.length).sum()) >= FEWEST_DOCUMENTS

    def model_records(self, folder: Path, name: str, seed: int, windows: Windows) -> list[Record]:
        """All records of one trained model: training, probes, table; kept beside the model."""
        kept = folder / "records.parquet"
        if kept.is_file():
            return read_records(kept)
        records = training_records(folder, self.name, name, seed)
        model = EncoderForMaskedLM.from_pretrained(folder).eval()
        if self.can_probe(windows):
            records += probe_records(
                model,
                windows["held_out"],
                study=self.name,
                name=name,
                seed=seed,
                documents=self.config.probe_documents,
                splits=self.config.probe_splits,
            )
            records += shift_records(model, windows["held_out"], study=self.name, name=name, seed=seed)
        table = model.position_table()
        if table is not None:
            start = EncoderForMaskedLM.from_pretrained(folder / "checkpoints" / "step-0").position_table()
            untrained, _ = table_records(start, study=self.name, name=name, seed=seed)
            records += [replace(record, step=0) for record in untrained]
            more, arrays = table_records(table, study=self.name, name=name, seed=seed)
            records += more
            save_arrays(self.out / "arrays" / f"table-{name}-seed-{seed}.npz", arrays)
        write_records(kept, records)
        return records

    def run(self) -> Path:
        """Do what is not done yet; returns the report's path."""
        config = self.config
        resumed = claim_folder(config, self.out, CONFIG, resume=True, free=("workers", "widths"))
        if resumed and not config.widths:  # those that the study began with
            config = self.config = config.model_copy(update={"widths": StudyConfig.load(self.out / CONFIG).widths})
        if not resumed:
            for name in config.models:
                config.pretraining(name, 0, 1).check()
        self.out.mkdir(parents=True, exist_ok=True)
        config.save_run(self.out / CONFIG)
        self.say("study resumed" if resumed else "study", models=" ".join(config.models), size=config.size, corpus=config.corpus)
        windows = prepare_windows(config, self.out / "corpus", self.progress)
        facts = windows.manifest
        self.say("windows", **{key: sum(facts[key].values()) for key in ("documents", "characters", "tokens", "windows")})
        if not self.can_probe(windows):
            self.say(
                f"no probes: fewer than {FEWEST_DOCUMENTS} held-out windows are full; more text, held_out or join=run-on would give them"
            )
        self.match_costs(windows, resumed)
        config = self.config
        steps = self.steps(windows)
        records = corpus_records(windows, self.name)
        trained = []
        for seed in range(config.seeds):
            for name in config.models:
                folder = self.out / "models" / name / f"seed-{seed}"
                training = config.pretraining(name, seed, steps)
                finished = (folder / WEIGHTS).is_file()
                summary = pretrain(training, folder, resume=True, windows=windows, progress=self.progress)
                if not finished:
                    self.say("trained", model=name, seed=seed, loss=round(summary["validation_loss"] or math.nan, 3))
                records += self.model_records(folder, name, seed, windows)
                trained.append(
                    {
                        "name": name,
                        "seed": seed,
                        "source": SOURCES[name],
                        "config": json.loads((folder / "config.json").read_text(encoding="utf-8")),
                        "training": training.model_dump(mode="json"),
                        "summary": summary,
                    }
                )
        write_records(self.out / "records.parquet", records)
        write_text(self.out / "claims.json", json.dumps(evaluate(records), indent=1))
        self.provenance(windows, trained)
        report = write_report(self.out)
        self.say("report", path=str(report))
        return report

    def provenance(self, windows: Windows, trained: list[dict[str, Any]]) -> None:
        """study.json: what a reader needs to know about where the records come from."""
        command = f"whatwhere study --config {self.out / CONFIG} --out NEW-FOLDER"
        facts = {
            "title": "What position encodings keep",
            "name": self.name,
            "corpus": {"name": self.config.corpus, **{k: windows.manifest[k] for k in ("length", "join", "vocab_size", "source")}},
            "models": trained,
            "seeds": list(range(self.config.seeds)),
            "size": self.config.size,
            "recipe": self.config.recipe,
            "match": self.config.match or "none",
            "machine": machine(),
            "versions": versions(),
            "notes": NOTES.get(self.config.size, []),
            "seconds": _total_seconds(self.out / "log.jsonl", time.perf_counter() - self.began),
            "command": command,
        }
        write_text(self.out / "study.json", json.dumps(facts, indent=1))


def _total_seconds(log: Path, current: float) -> float:
    """Time spent over all calls of a study: the last entry of each call, the current one included."""
    total, last = 0.0, 0.0
    for text in log.read_text(encoding="utf-8").splitlines():
        seconds = float(json.loads(text)["seconds"])
        if seconds < last:
            total += last
        last = seconds
    return total + current


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an .npz whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    os.replace(temporary, path)


def corpus_records(windows: Windows, study: str) -> list[Record]:
    """Sizes of the corpus, and the entropy in nats of a guess by token frequency alone (the unigram plateau)."""
    facts = windows.manifest
    records = []
    for key in ("documents", "characters", "tokens", "windows"):
        records.append(Record(study, "", f"corpus.{key}", float(sum(facts[key].values())), unit=key))
        records += [Record(study, "", f"corpus.{key}", float(count), unit=key, part=split) for split, count in facts[key].items()]
    return [*records, Record(study, "", "loss.unigram", windows.unigram_entropy(), unit="nats", n=int(windows.unigrams().sum()))]


def training_records(folder: Path, study: str, name: str, seed: int) -> list[Record]:
    """Loss curves and costs of a finished training."""
    records = []
    for text in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        for key, part in (("loss", "train"), ("validation_loss", "validation")):
            if key in line:
                records.append(Record(study, name, "loss", line[key], unit="nats", seed=seed, part=part, step=line["step"]))
        if "validation_accuracy" in line:
            low, high, n = line.get("accuracy_low"), line.get("accuracy_high"), line.get("validation_labels")
            value = line["validation_accuracy"]
            records.append(Record(study, name, "accuracy", value, low, high, seed=seed, part="validation", step=line["step"], n=n))
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    for metric, key, unit in (
        ("steps", "steps", "steps"),
        ("tokens", "tokens", "tokens"),
        ("seconds", "seconds", "s"),
        ("tokens_per_second", "tokens_per_second", "tokens/s"),
        ("parameters", "parameters", "parameters"),
        ("operations", "operations", "operations/token"),
        ("parameters.embedding", "embedding_parameters", "parameters"),
        ("memory.peak", "peak_memory_bytes", "bytes"),
    ):
        if summary.get(key) is not None:
            records.append(Record(study, name, metric, float(summary[key]), unit=unit, seed=seed))
    return records


def run_study(config: StudyConfig, out: str | Path, progress: bool = True) -> Path:
    """Run or go on with a study in the folder `out`; returns the path of its report.

    Raises:
        ValueError: `out` holds something else or a study with other settings, or any part refuses its input.
    """
    torch.manual_seed(0)
    return Study(config, Path(out), progress).run()
