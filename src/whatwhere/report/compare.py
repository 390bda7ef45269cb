"""Several studies on one page: the same figures with every model named `run/model`, and the claims of all runs side by
side.

What differs between the runs is said first, for then values are comparable within a run only.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..files import Arrays
from ..metrics import unit
from ..records import Record
from . import how, ledger, pages
from .figure import Cell, Table, text
from .numbers import compact, count, number
from .page import How, Page, Section, write_page
from .run import CORPUS, ArrayFiles, Run, Tables, kind_of, load_run
from .titles import listed, named, totals

SHORT = 8  # characters of a run's name that a label at a line's end has room for, beside the model's
NO_MODEL = ("", CORPUS)  # what stands as the model of a record about texts alone
BETWEEN_MODELS = ("regression.", "convergence.")  # metrics whose part is another model
OF_CORPUS = ("corpus", "documents", "corpus tokens", "window length", "vocabulary")  # facts of a run's corpus
_INSTEAD = {  # what a folder that is no study is, and how its likes are compared
    "geometry": (
        "a geometry run",
        "One geometry run compares corpora itself: give `whatwhere geometry` several --corpus.",
    ),
    "spectra": ("a spectra run", "One spectra run compares tables itself: give `whatwhere spectra` several sources."),
    "model": ("a model", "Give folders that `whatwhere study` wrote."),
    "": ("no study: it holds no records.parquet", "Give folders that `whatwhere study` wrote."),
}


def write_comparison(runs: Sequence[str | Path], out: str | Path) -> Path:
    """Write the page that compares several studies to `out`, whole or not at all; returns the path.

    Raises:
        ValueError: as `open_runs`.
    """
    return write_page(Path(out), comparison_page(open_runs(runs)))


def open_runs(runs: Sequence[str | Path]) -> dict[str, Run]:
    """Short name -> study of every folder: the folder's own name where all are different and short, else A, B, C.

    Raises:
        ValueError: fewer than two, one of them twice or no study, or a file in one is damaged or of another version.
    """
    folders = [Path(run) for run in runs]
    if len(folders) < 2:
        raise ValueError(f"A comparison needs two studies or more, got {len(folders)}.")
    seen: dict[Path, Path] = {}
    for folder in folders:
        if (before := seen.setdefault(folder.resolve(), folder)) is not folder:
            raise ValueError(f"{folder} is {before} once more. Name each run once.")
        if (kind := kind_of(folder)) != "study":
            what, way_out = _INSTEAD[kind]
            raise ValueError(f"{folder} is {what}, and studies alone are compared. {way_out}")
    studies = [load_run(folder) for folder in folders]
    names = [s.name for s in studies]
    plain = len(set(names)) == len(names) and all(len(n) <= SHORT and "/" not in n for n in names)
    letters = string.ascii_uppercase if len(names) <= 26 else [f"run {i + 1}" for i in range(len(names))]
    return dict(zip(names if plain else letters, studies, strict=False))


def merged(studies: Mapping[str, Run]) -> Run:
    """All runs as one study whose models are named `run/model`.

    Records about a corpus are kept if they are the same in all runs; the entropy of token frequencies also as a record
    of every model.
    """
    first = next(iter(studies.values()))
    together = not _differing(studies, OF_CORPUS)
    records = [r for r in first.records if r.model in NO_MODEL] if together else []
    entries: list[dict[str, Any]] = []
    tables: Tables = {}
    files: dict[str, Callable[[], Arrays]] = {}
    for run, study in studies.items():
        records += [_renamed(r, run) for r in study.records if r.model not in NO_MODEL]
        if (level := study.plateau()) is not None and not together:
            records += [
                Record("", f"{run}/{m}", "loss.unigram", level, unit=unit("loss.unigram")) for m in study.models
            ]
        for entry in study.entries:
            config = study.config(str(entry.get("name")))
            config = {**config, "preset": config.get("preset") or entry.get("name")}
            entries.append({**entry, "name": f"{run}/{entry.get('name')}", "config": config})
        tables |= {(f"{run}/{name}", seed): arrays for (name, seed), arrays in study.tables.items()}
        for stem in study.arrays:
            kind, _, rest = stem.partition("-")
            name = f"{kind}-{run}_{rest}" if "-seed-" in rest else stem  # as `Run.held` looks for it
            # Tables are in `Run.tables`; texts are looked at on the page of their run.
            if kind not in ("table", "explorer") and (together or name != stem):
                files.setdefault(name, partial(study.arrays.__getitem__, stem))
    shared = {k: v for k in ("size", "match", "versions", "machine") if (v := first.facts.get(k)) is not None}
    same = {k: v for k, v in shared.items() if len({str(study.facts.get(k)) for study in studies.values()}) == 1}
    found = Run("comparison", {"models": entries, **same}, records, [], tables, ArrayFiles(files))
    return replace(found, apart=bool(_differing(studies)))


def _renamed(record: Record, run: str) -> Record:
    other = record.part and record.metric.startswith(BETWEEN_MODELS)
    return replace(record, model=f"{run}/{record.model}", part=f"{run}/{record.part}" if other else record.part)


def _facts(study: Run) -> dict[str, str]:
    """What a run was made of, empty where nothing is recorded; first what is true of its corpus."""
    corpus = study.facts.get("corpus")
    corpus = corpus if isinstance(corpus, dict) else {}
    trainings = [e["training"] for e in study.entries if isinstance(e.get("training"), dict)]

    def size(metric: str) -> str:
        return number(p.value) if (p := study.table.point(f"corpus.{metric}")) else ""

    def trained(key: str) -> str:
        values = {training.get(key) for training in trainings} - {None}
        return ", ".join(compact(v) if isinstance(v, int) else str(v) for v in sorted(values, key=str))

    return {
        "corpus": study.corpus_name,
        "documents": size("documents"),
        "corpus tokens": size("tokens"),
        "window length": str(corpus.get("length") or ""),
        "vocabulary": str(corpus.get("vocab_size") or ""),
        "size": str(study.facts.get("size") or ""),
        "recipe": str(study.facts.get("recipe") or ""),
        "costs matched by": str(study.facts.get("match") or ""),
        "steps": ", ".join(compact(v) for v in sorted(set(totals(study, "steps")))) or trained("steps"),
        "batch size": trained("batch_size"),
        "learning rate": trained("learning_rate"),
        "seeds": ", ".join(map(str, study.seeds)),
    }


def _side_by_side(studies: Mapping[str, Run]) -> dict[str, list[str]]:
    """Every fact with its value in each run."""
    of_runs = [_facts(study) for study in studies.values()]
    return {name: [of_run[name] for of_run in of_runs] for name in of_runs[0]}


def _differing(studies: Mapping[str, Run], among: Sequence[str] = ()) -> dict[str, list[str]]:
    """What differs between the runs, all facts or those named, with the value of each run."""
    return {k: v for k, v in _side_by_side(studies).items() if len(set(v)) > 1 and (not among or k in among)}


def caveats(studies: Mapping[str, Run], together: Run) -> list[str]:
    """What differs between the runs, then what every one of them is too small to say."""
    sentences = []
    if apart := _differing(studies):
        pieces = [f"{name} ({_by_run(studies, values)})" for name, values in apart.items()]
        sentences.append(
            f"These runs differ in {listed(pieces, len(pieces))}: compare models within a run, not across runs."
        )
    if apart.keys() & {"corpus", "vocabulary", "corpus tokens"}:
        scales = "Losses of different texts or vocabularies are on different scales"
        sentences.append(f"{scales}: a lower one of another run says nothing.")
    return sentences + pages.study_caveats(together)


def _by_run(studies: Mapping[str, Run], values: Sequence[str]) -> str:
    return ", ".join(f"`{run}` {value or 'not recorded'}" for run, value in zip(studies, values, strict=True))


def comparison_page(studies: Mapping[str, Run]) -> Page:
    """The page of several studies, by their short names."""
    together = merged(studies)
    return pages.study_page(
        together,
        title=f"{len(studies)} runs compared: {', '.join(study.name for study in studies.values())}",
        summary=[f"{_full(run, study)}: {' · '.join(how.summary(study))}" for run, study in studies.items()],
        caveats=caveats(studies, together),
        notes=[f"{run}: {note}" for run, study in studies.items() for note in study.facts.get("notes") or []],
        sections=[_runs_section(studies), _claims_section(studies)],
        how=_how(studies, together),
    )


def _full(run: str, study: Run) -> str:
    """The short name of a run with the name of its folder."""
    return run if run == study.name else f"{run} ({study.name})"


def _runs_section(studies: Mapping[str, Run]) -> Section:
    rows = [
        [text(name.capitalize()), *map(text, values), text("yes" if len(set(values)) > 1 else "no")]
        for name, values in _side_by_side(studies).items()
        if any(values)
    ]
    rows.append([text("Models"), *(text(", ".join(study.models)) for study in studies.values()), Cell("–")])
    columns = ["", *(_full(run, study) for run, study in studies.items()), "Differs"]
    intro = (
        "What each run was made of. Every model is named by its run and its own name on this page; texts are on the "
        "page of each run."
    )
    return Section("runs", "What is compared?", intro, tables=[Table("runs", "The runs", columns, rows)], short="Runs")


def _claims_section(studies: Mapping[str, Run]) -> Section:
    """The claims whose verdicts differ between runs, a row each; those that agree are named."""
    claims: dict[str, dict[str, ledger.Row]] = {}
    for run, study in studies.items():
        for claim in map(ledger.row, study.claims):
            claims.setdefault(claim.id or claim.claim, {})[run] = claim
    counted = {key: of_runs for key, of_runs in claims.items() if any(r.shown for r in of_runs.values())}
    alike = [
        key
        for key, of_runs in counted.items()
        if len(of_runs) == len(studies) and len({r.verdict for r in of_runs.values()}) == 1
    ]
    rows = []
    for key, of_runs in counted.items():
        if key not in alike:
            first = next(iter(of_runs.values()))
            told = (f"{r.verdict}: {r.here}" if (r := of_runs.get(run)) else "" for run in studies)
            rows.append([text(first.claim), *map(text, told), text(first.printed.replace("–", "")), text(first.rule)])
    table = Table("claims-by-run", "Claims whose verdicts differ", ["Claim", *studies, "Paper", "Rule"], rows)
    intro = "Each claim is a rule on recorded numbers of one run, so it is judged in each run by itself. "
    intro += f"Of {count(len(counted), 'claim')} tested in a run, {len(alike)} have the same verdict in all"
    intro += f": {named(alike)}." if alike else "."
    return Section("claims", "Do the verdicts agree?", intro, tables=[table] if rows else [], short="Claims")


def _how(studies: Mapping[str, Run], together: Run) -> How:
    whole, parts = pages.study_how(together), {run: pages.study_how(study) for run, study in studies.items()}
    cited: dict[str, Any] = {}
    for part in (whole, *parts.values()):
        for words, entry in part.cite:
            cited.setdefault(entry, words)

    def of_all(name: str) -> list[tuple[str, Any]]:
        return [(f"{run}: {heading}", rest) for run, how in parts.items() for heading, rest in getattr(how, name)]

    return How(
        words=whole.words,
        facts=of_all("facts"),
        versions=of_all("versions"),
        tables=whole.tables,
        configs=of_all("configs"),
        cite=[(words, entry) for entry, words in cited.items()],
    )
