"""One command from a corpus to a report: windows → models on the same batches → probes → spectra → records → report.

Every part leaves plain files and is skipped where they are finished, so a killed study goes on where it was.
"""

import math
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..analysis import ANALYSES, PLAIN, Subject
from ..analysis.corpus_geometry import CorpusDistances
from ..analysis.course import convergence_records
from ..analysis.head_labels import term_names
from ..analysis.hidden import ceiling_records
from ..analysis.passes import FEWEST_DOCUMENTS, choose_documents
from ..analysis.probes import regression_records
from ..analysis.texts import repeated_text, save_texts, texts_saved
from ..analysis.who import Who
from ..claims import evaluate
from ..corpus import Windows, load_tokenizer, open_source
from ..corpus.build import said_of_pieces
from ..encoder import SOURCES
from ..models.explain import costs, matched_width
from ..models.open import open_model
from ..records.record import Record, read_records, write_records
from ..run.files import append_line, read_json
from ..run.folder import MANIFEST, RunFolder
from ..run.hashes import REST, check_files, forget_hashes, hashes, read_hashed, sha256, write_hashed
from ..run.jobs import Job, at_once, limited, run_jobs, show_progress, threads
from ..run.locks import InUse, locked, waiting_for
from ..run.progress import Show
from ..run.status import STUDY
from ..training.budget import shortage_message, steps_to_learn, time_step
from ..training.corpus_settings import check_one_batch, prepare_windows
from ..training.pretrain import pretrain
from ..training.recipes import LEAVES_PLATEAU
from ..training.runs import SUMMARY, begun, claim_folder, one_writer
from .heads import MOST_SHOWN, corpus_records, measure
from .machine import machine
from .outputs import RECORDS, save_arrays, total_seconds, write_results
from .settings import StudyConfig, advice_of_trainings
from .training_records import text_records, training_records

CONFIG, BUDGET, MEASURED = STUDY, "budget.json", "measured.json"
_COPY = f"Use a complete copy; if you changed it yourself, delete its entry {REST!r}."
CORPUS_FACTS = ("length", "join", "pieces", "vocab_size", "source")  # of the windows' manifest, for that of the study
# Share of the time and seconds kept for probes and report, and what validation and checkpoints add to a step.
RESERVE_SHARE, RESERVE_SECONDS, OVERHEAD = 0.06, 12.0, 1.2
CONTENTION = 1.1  # how much longer a step takes while the other cores train too
WORTH_PROCESSES = 250_000  # training tokens of a model from which a process of its own, seconds to start, pays
MOST_INSIDE = 0.35  # share of the time
STEPS_PER_PROBED, STEPS_PER_ABLATED = 0.4, 2.0  # training steps that take as long as looking at one document of a model
FEWEST_STEPS = 20
REFERENCE = "dstg"  # whose streams the others' states are regressed onto
MOST_LEVELS = 12_000_000  # bytes of all maps of the explorer before packing
COMPONENTS = (2, 8)  # principal components that are probed alone
# What a reader of the report should know about the defaults of a size.
NOTES = {
    "tiny": [
        "The defaults of size tiny were searched with seed 0 on python-docs and, for 10M tokens, on Wikipedia, by the "
        "loss of dstg and ap. On those a verdict demonstrates; other corpora and seeds test. docs/log.md lists what "
        "was tried."
    ]
}


class Study:
    """A study folder and the parts that fill it."""

    def __init__(self, config: StudyConfig, out: Path, progress: bool = True) -> None:
        self.config, self.out, self.progress = config, out, progress
        self.name, self.began = out.name, time.perf_counter()

    @cached_property
    def windows(self) -> Windows:
        """The windows of the study, once they are made."""
        return Windows(self.out / "corpus")

    def say(self, event: str, words: str = "", /, **facts: Any) -> None:
        """One line to log.jsonl and, in words of its own or those of its facts, to stderr."""
        line = {"seconds": round(time.perf_counter() - self.began, 2), "event": event, **facts}
        append_line(self.out / "log.jsonl", line)
        if self.progress:
            details = ", ".join(f"{key} {v:,}" if isinstance(v, int) else f"{key} {v}" for key, v in facts.items())
            words = words or f"{event}{': ' + details if details else ''}"
            print(f"[{line['seconds']:6.0f} s] {words}", file=sys.stderr, flush=True)

    def steps(self) -> int:
        """ONE number of steps for all models and seeds: as asked, or from a short timing of each, which is kept."""
        config, kept = self.config, self.out / BUDGET
        if config.steps is not None:
            return config.steps
        if kept.is_file():
            return int(read_hashed(kept, "steps", way_out=_COPY)["steps"])
        assert config.minutes is not None
        most = self.at_once(None)
        plan = threads(len(config.models) * config.seeds, most)
        with limited(plan[0]):
            seconds = {name: time_step(config.pretraining(name, 0, 1), self.windows) for name in config.models}
        looks = STEPS_PER_PROBED * config.probe_documents + STEPS_PER_ABLATED * config.ablation_documents
        looks = looks if config.inside else 0.0
        # One step of all models and seeds, in seconds of this machine with all its cores.
        step = config.seeds * sum(seconds.values()) * (CONTENTION if most > 1 else 1.0) / min(most, len(plan))
        total = config.minutes * 60
        fixed = RESERVE_SECONDS + time.perf_counter() - self.began

        def minutes(steps: float, share: float = 1.0) -> float:
            return (steps * OVERHEAD * step + looks * step * share + fixed) / (1 - RESERVE_SHARE) / 60

        left = total * (1 - RESERVE_SHARE) - fixed
        left -= min(looks * step, MOST_INSIDE * total)  # a trial on a busy machine must not eat up the training
        steps = max(FEWEST_STEPS, int(left / (step * OVERHEAD)))
        write_hashed(kept, {"steps": steps, "seconds_per_step": seconds, "minutes": config.minutes})
        self.say("budget", steps=steps, **{f"ms per step of {n}": round(1000 * s) for n, s in seconds.items()})
        training = config.pretraining(config.models[0], 0, 1)
        if (wanted := steps_to_learn(training)) > steps:
            self.say(shortage_message(config.minutes, steps, training, minutes(wanted), FEWEST_STEPS))
        return steps

    def at_once(self, steps: int | None) -> int:
        """Models that are trained at once; for so many steps, or however many."""
        training = self.config.pretraining(self.config.models[0], 0, 1)
        short = steps is not None and steps * training.batch_size * training.length < WORTH_PROCESSES
        return self.config.at_once or (1 if short else at_once())

    def folder(self, name: str, seed: int) -> Path:
        """Where a model is."""
        return self.out / "models" / name / f"seed-{seed}"

    def match_costs(self, resumed: bool) -> None:
        """Give every model the feed-forward width at which it costs what the first one does; kept on resume."""
        first, *rivals = self.config.models
        what = self.config.match
        if what is None or (resumed and set(rivals) <= set(self.config.widths)):
            return
        trainings = {name: self.config.pretraining(name, 0, 1) for name in self.config.models}
        configs = {name: training.encoder_config(self.windows) for name, training in trainings.items()}
        length, labelled = self.config.length, trainings[first].mask_rate
        target = costs(configs[first], length, labelled).of(what)
        widths = {name: matched_width(configs[name], what, target, length, labelled) for name in rivals}
        self.config = self.config.model_copy(update={"widths": {**self.config.widths, **widths}})
        self.config.save_run(self.out / CONFIG)
        self.say(f"{what} matched to those of {first} by feed-forward widths", **widths)

    @cached_property
    def can_probe(self) -> bool:
        """Whether enough held-out windows have the full length for the probes (which a study can do without)."""
        return int((self.windows["held_out"].lengths() == self.config.length).sum()) >= FEWEST_DOCUMENTS

    def model_records(self, name: str, seed: int, corpus: CorpusDistances | None, show: Show) -> None:
        """Measure a trained model: records, and what could not be measured and why, beside it; arrays in the study."""
        config, folder, who = self.config, self.folder(name, seed), Who(name, seed, self.name)
        beginning = folder / "checkpoints" / "step-0"
        untrained = open_model(beginning, "masked").model if beginning.is_dir() else None
        held_out = self.windows["held_out"] if self.can_probe else None
        subject = Subject(
            who,
            open_model(folder, "masked").model,
            documents=None if held_out is None else choose_documents(held_out, config.probe_documents),
            held_out=held_out,
            untrained=untrained,
            run=folder if (folder / "checkpoints").is_dir() else None,
            corpus=corpus,
            probed=config.probe_documents,
            splits=config.probe_splits,
            components=COMPONENTS if config.inside else (),
            ablated=config.ablation_documents,
            progress=lambda what, done, total: show(what, done, total, ""),
        )
        measured = measure(subject, ANALYSES if config.inside else PLAIN)
        save_arrays(self.out, measured.arrays)
        if untrained is None:
            measured.left_out["controls"] = f"{beginning} is gone, so nothing is held against the untrained model."
        written = {name: sha256(self.out / name) for name in (f"arrays/{stem}.npz" for stem in measured.arrays)}
        write_hashed(folder / MEASURED, {"left_out": measured.left_out, "arrays": written})
        write_records(folder / RECORDS, training_records(folder, who) + measured.records)

    def prepare(self, shared: bool = False) -> None:
        """Claim the folder, keep its settings, build the windows, match the models.

        shared: other processes work at other models of it; the first builds the windows, the others wait for them.
        """
        config = self.config
        free = ("workers", "widths", "at_once", "seeds")
        resumed = claim_folder(config, self.out, CONFIG, resume=True, free=free, shared=shared)
        if resumed:
            self.check_written()
            began = StudyConfig.load_run(self.out / CONFIG)
            if config.seeds < began.seeds:
                raise ValueError(
                    f"{self.out} holds a study of seeds={began.seeds}, now seeds={config.seeds}: a study can gain "
                    "seeds, not lose them."
                )
            config = self.config = config.model_copy(update={"widths": config.widths or began.widths})
            config.save_run(self.out / CONFIG)
            if not shared:
                forget_hashes(self.out)
        else:
            for name in config.models:
                config.pretraining(name, 0, 1).check()
            open_source(config.corpus, config.field, config.document)  # what is not there takes no folder
        with begun(config, self.out, CONFIG, "log.jsonl"):
            event = "study resumed" if resumed else "study"
            self.say(event, models=" ".join(config.models), size=config.size, corpus=config.corpus)
            for words in config.terms():
                self.say("terms", words, terms=words)
            with waiting_for(self.out / "corpus", self.say) if shared else nullcontext():
                windows = prepare_windows(config, self.out / "corpus", self.progress)
            with advice_of_trainings():
                check_one_batch(windows, config.pretraining(config.models[0], 0, 1).batch_size)
        self.match_costs(resumed)

    def check_written(self) -> None:
        """Compare what a finished study holds with its hashes, which are written anew when it goes on; what is gone is
        made again.

        Raises:
            ValueError: the first file that is not as it was written.
        """
        known = hashes(self.out)
        check_files(self.out, *(name for name in known if (self.out / name).is_file()), known=known)

    def run_only(self, pairs: Sequence[tuple[str, int]]) -> Path | None:
        """Train and measure some models of the study, beside other processes or machines that do others; where all of
        them are there then, returns the report's path.

        Raises:
            ValueError: a model or seed that the study has not, or one that another process works at; a budget in
                minutes, which machines would turn into different numbers of steps.
        """
        known = [(name, seed) for name in self.config.models for seed in range(self.config.seeds)]
        if strange := [pair for pair in pairs if pair not in known]:
            there = ", ".join(f"{name}/{seed}" for name, seed in known)
            raise ValueError(f"The study has no model {strange[0][0]}/{strange[0][1]}. It has: {there}.")
        if self.config.steps is None and not (self.out / BUDGET).is_file():
            raise ValueError("Minutes buy another number of steps on every machine. Give --steps with --only.")
        self.prepare(shared=True)
        steps = self.steps()
        for name, seed in pairs:
            with locked(self.folder(name, seed)):
                if not self.measured((name, seed)):
                    with show_progress(f"{name} seed {seed}", self.progress) as show:
                        summary = train_and_look(
                            str(self.out), name, seed, steps, lambda what, done, total, word: show(what, done, total)
                        )
                    loss = round(summary["validation_loss"] or math.nan, 3)
                    self.say("trained", model=name, seed=seed, loss=loss)
        if not all(map(self.measured, known)):
            return None
        try:
            with locked(self.out):  # of two that end at once, one
                forget_hashes(self.out)
                return self.complete()
        except InUse:
            return None

    def run(self) -> Path:
        """Do what is not done yet; returns the report's path."""
        self.prepare()
        return self.complete()

    def complete(self) -> Path:
        """Of a study that is prepared, do what is not done yet; returns the report's path."""
        sizes = ("documents", "characters", "tokens", "windows")
        counts = {key: sum(self.windows.manifest[key].values()) for key in sizes}
        self.say("windows", **counts, rows=said_of_pieces(self.windows))
        if not self.can_probe:
            self.say(
                f"no probes: fewer than {FEWEST_DOCUMENTS} held-out windows are full; more text, held_out or "
                "join=run-on would give them"
            )
        config = self.config
        records = text_records(self.windows, self.name)
        if self.can_probe:
            documents, splits = config.probe_documents, config.probe_splits
            records += ceiling_records(self.windows["held_out"], study=self.name, documents=documents, splits=splits)
        if config.inside:
            with show_progress("corpus", self.progress) as show:
                records += corpus_records(self.windows, self.out, self.name, show)[0]
        steps = self.steps()
        passes = steps * config.pretraining(config.models[0], 0, steps).batch_size / len(self.windows["train"])
        if passes > 1:
            self.say("passes", f"each training window is read {passes:.3g} times", times=round(passes, 2))
        pairs = [(name, seed) for seed in range(config.seeds) for name in config.models]
        most = self.at_once(steps)
        jobs = [
            Job(f"{name} seed {seed}", train_and_look, (str(self.out), name, seed, steps), each)
            for (name, seed), each in zip(pairs, threads(len(pairs), most), strict=True)
        ]
        todo = [job for job in jobs if not self.measured(job.args[1:3])]
        for job in todo:
            if why := self.damage(job.args[1:3]):
                name, seed = job.args[1:3]
                self.say("measured again", f"measured again: {job.label}: {why}", model=name, seed=seed, why=why)
        for job, summary in run_jobs(todo, most, self.progress):
            loss = round(summary["validation_loss"] or math.nan, 3)
            self.say("trained", model=job.args[1], seed=job.args[2], loss=loss)
            if not all(map(self.measured, pairs)):
                self.results(records, pairs, steps)  # a page stands from the first model on
        between: list[Record] = []
        if config.inside:
            for seed in range(config.seeds):
                between += self.compared(seed)
            self.show_texts()
        report = self.results(records, pairs, steps, between)
        self.say("report", path=str(report))
        return report

    def measured(self, pair: tuple[str, int]) -> bool:
        """Whether a model of a seed is trained and measured, and all that it was measured by is there as written."""
        return self.damage(pair) == ""

    def damage(self, pair: tuple[str, int]) -> str | None:
        """What is wrong with what was measured on a model of a seed, "" if nothing; None where it was not measured."""
        folder = self.folder(*pair)
        if not (folder / RECORDS).is_file() or not (folder / MEASURED).is_file():
            return None
        try:
            arrays = read_hashed(folder / MEASURED, "arrays", way_out="Delete it.")["arrays"]
            check_files(self.out, *arrays, known=arrays)
        except (ValueError, KeyError, TypeError) as error:
            return str(error).split(". ")[0]
        return ""

    def results(
        self, records: list[Record], pairs: list[tuple[str, int]], steps: int, between: Sequence[Record] = ()
    ) -> Path:
        """Write records (of the corpus, of `pairs`, `between` models), claims, study.json and page of what is there."""
        found, trained = list(records), []
        for name, seed in filter(self.measured, pairs):
            folder = self.folder(name, seed)
            if not (folder / MANIFEST).is_file():
                raise ValueError(f"{folder / MANIFEST} is missing. Use a complete copy, or delete {folder}.")
            RunFolder.at(folder).check("config.json", SUMMARY)
            training = self.config.pretraining(name, seed, steps)
            found += read_records(folder / RECORDS)
            trained.append(
                {
                    "name": name,
                    "seed": seed,
                    "source": SOURCES[self.config.preset(name)],
                    "config": read_json(folder / "config.json"),
                    "training": training.model_dump(mode="json"),
                    "scheme_recipe": training.scheme_recipe,
                    "summary": read_json(folder / SUMMARY),
                    "left_out": read_json(folder / MEASURED)["left_out"],
                }
            )
        found += between
        if self.config.inside:
            found += convergence_records(found, study=self.name)
        facts = self.provenance(trained) | {"planned": len(pairs)}
        return write_results(self.out, found, "study.json", facts, evaluate(found))

    def compared(self, seed: int) -> list[Record]:
        """What the models of a seed tell of each other: regressions onto the streams of `dstg` (DSTG B.2); kept."""
        kept = self.out / f"between-seed-{seed}.parquet"
        if REFERENCE not in self.config.models or len(self.config.models) < 2 or not self.can_probe:
            return []
        if not kept.is_file():
            folders = {name: self.folder(name, seed) for name in self.config.models}
            models = {name: open_model(folder, "masked").model for name, folder in folders.items()}
            reference = models.pop(REFERENCE)
            documents = choose_documents(self.windows["held_out"], self.config.probe_documents)
            with show_progress("between models", self.progress) as show:
                found = regression_records(
                    reference,
                    models,
                    documents,
                    study=self.name,
                    reference=REFERENCE,
                    seed=seed,
                    splits=self.config.probe_splits,
                    progress=partial(show, "regression"),
                )
            write_records(kept, found)
        return read_records(kept)

    def show_texts(self) -> None:
        """Attention of the first seed's models in held-out windows and a text that repeats itself, for the explorer."""
        lacking = [name for name in self.config.models if not texts_saved(self.out, name, 0)]
        if not lacking or not self.config.texts:
            return
        tokenizer = load_tokenizer(str(self.out / "corpus" / "tokenizer"))
        title, text = repeated_text()
        models = {n: open_model(self.folder(n, 0), "masked").model for n in self.config.models}
        shapes = [(m.config.num_hidden_layers, m.config.num_attention_heads, m) for m in models.values()]
        maps = sum(layers * heads * (1 + len(term_names(model))) for layers, heads, model in shapes)
        shown = min(self.config.length, MOST_SHOWN, int((MOST_LEVELS / maps / (1 + self.config.texts)) ** 0.5))
        held_out, texts = self.windows["held_out"], []
        for i in np.linspace(0, len(held_out) - 1, self.config.texts).astype(int):
            texts.append((f"held-out window {i}", np.asarray(held_out[int(i)].input_ids)[:shown]))
        # Last, as a vocabulary of the corpus may cut its words into letters.
        texts.append((title, np.array(tokenizer(text, truncation=True, max_length=shown)["input_ids"])))
        for name in lacking:
            save_texts(self.out, models[name], tokenizer, texts, name=name, seed=0)

    def provenance(self, trained: list[dict[str, Any]]) -> dict[str, Any]:
        """study.json: what a reader needs to know about where the records come from."""
        not_measured = [
            f"Not measured on `{m['name']}`, {what}: {why}" for m in trained for what, why in m["left_out"].items()
        ]
        return {
            "title": "What position encodings keep",
            "name": self.name,
            "corpus": {
                "name": self.windows.manifest["source"].get("name") or self.config.corpus,
                **{k: self.windows.manifest[k] for k in CORPUS_FACTS},
            },
            "needed_tokens": LEAVES_PLATEAU.get(self.config.size),
            "models": trained,
            "seeds": list(range(self.config.seeds)),
            "size": self.config.size,
            "recipe": self.config.recipe,
            "match": self.config.match or "none",
            "at_once": min(self.at_once(self.steps()), len(trained)),
            "machine": machine(),
            "notes": [*NOTES.get(self.config.size, []), *dict.fromkeys(not_measured)],  # once for all seeds
            "seconds": total_seconds(self.out / "log.jsonl", time.perf_counter() - self.began),
            "command": f"whatwhere study --config {self.out / CONFIG} --out NEW-FOLDER",
        }


def train_and_look(out: str, name: str, seed: int, steps: int, show: Show) -> dict[str, Any]:
    """Train one model of a study's folder and measure it, but for what is done; returns the training's summary."""
    study = Study(StudyConfig.load_run(Path(out) / CONFIG), Path(out))
    with advice_of_trainings():
        training = study.config.pretraining(name, seed, steps)
        summary = pretrain(training, study.folder(name, seed), windows=study.windows, progress=show)
    show("looking inside", 0, 1, "")
    corpus = corpus_records(study.windows, study.out, study.name)[1] if study.config.inside else None
    study.model_records(name, seed, corpus, show)
    return summary


@one_writer
def run_study(config: StudyConfig, out: str | Path, progress: bool = True) -> Path:
    """Run or go on with a study in the folder `out`; returns the path of its report.

    Raises:
        ValueError: `out` holds something else or a study with other settings, or any part refuses its input.
    """
    torch.manual_seed(0)
    return Study(config, Path(out), progress).run()


def run_models(config: StudyConfig, out: str | Path, only: Sequence[str], progress: bool = True) -> Path | None:
    """Train and measure some models of a study, NAME/SEED each, while others may do others in the same folder; the call
    that finds all there writes the report and returns its path.

    Raises:
        ValueError: as `Study.run_only` and `run_study`, or a name that is no NAME/SEED.
    """
    pairs = []
    for each in only:
        name, _, seed = each.rpartition("/")
        if not name or not seed.isdigit():
            raise ValueError(f"--only takes NAME/SEED, for example {config.models[0]}/0; got {each!r}.")
        pairs.append((name, int(seed)))
    torch.manual_seed(0)
    return Study(config, Path(out), progress).run_only(pairs)
