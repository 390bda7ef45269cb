"""Several studies on one page: the same figures, every model named `run/model`, and the claims of all runs beside.

What differs between the runs is said first, for then values are comparable within a run only.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..records.metrics import unit
from ..records.record import Arrays, Record
from ..run.errors import command_line
from ..run.names import STUDY_SETTINGS
from . import how, ledger, pages
from .figure import Table, row
from .loaded_run import CORPUS, ArrayFiles, Run, Tables, load_run, page_kind
from .numbers import compact, count, number
from .page import How, Page, Section
from .titles import caveats, listed, named, totals

SHORT = 8  # characters of a run's name that a label at a line's end has room for, beside the model's
NO_MODEL = ("", CORPUS)  # what stands as the model of a record about texts alone
BETWEEN_MODELS = ("regression.", "convergence.")  # metrics whose part is another model
# Facts of a run's corpus and of what it holds back.
OF_CORPUS = ("corpus", "documents", "corpus tokens", "window length", "vocabulary")
OF_WINDOWS = ("windows joined", "pieces of a document", "held-out share", "tokenizer")
_KINDS = {"geometry": "a geometry run", "spectra": "a spectra run", "model": "a model"}  # what is no study,
_INSTEAD = {  # and how its likes are compared
    "geometry": "One geometry run compares corpora itself: give `whatwhere geometry` several --corpus.",
    "spectra": "One spectra run compares tables itself: give `whatwhere spectra` several sources.",
}


def open_runs(runs: Sequence[str | Path]) -> dict[str, Run]:
    """Return short name -> study for each folder: the folder's name where all differ and are short, else A, B, C.

    Raises ValueError: fewer than two, one of them twice, unfinished or no study, or a file in one is damaged or of
    another version.
    """
    folders = [Path(run) for run in runs]
    if len(folders) < 2:
        raise ValueError(f"A comparison needs two studies or more, got {len(folders)}. Name another one.")
    studies_by_path: dict[Path, Path] = {}
    for folder in folders:
        if (before := studies_by_path.setdefault(folder.resolve(), folder)) is not folder:
            raise ValueError(f"{folder} is {before} once more. Name each run once.")
        if (kind := page_kind(folder)) != "study":
            if not kind and (folder / STUDY_SETTINGS).is_file():
                status = command_line("status", folder)
                raise ValueError(f"The study in {folder} is not finished. See how far it is: {status}")
            what = _KINDS.get(kind, "no study: it holds no records.parquet")
            hint = _INSTEAD.get(kind, "Give folders that `whatwhere study` wrote.")
            raise ValueError(f"{folder} is {what}, and studies alone are compared. {hint}")
    studies = [load_run(folder) for folder in folders]
    names = [s.name for s in studies]
    plain = len(set(names)) == len(names) and all(len(n) <= SHORT and "/" not in n for n in names)
    letters = string.ascii_uppercase if len(names) <= 26 else [f"run {i + 1}" for i in range(len(names))]
    return dict(zip(names if plain else letters, studies, strict=False))


def merged(studies: Mapping[str, Run]) -> Run:
    """Merge runs into one study whose models are named `run/model`.

    Records about a corpus are kept if they are the same in all runs; the entropy of token frequencies also as a record
    of every model.
    """
    first = next(iter(studies.values()))
    apart = _differing(studies)
    together = not apart.keys() & {*OF_CORPUS, *OF_WINDOWS}
    records = [r for r in first.records if r.model in NO_MODEL] if together else []
    entries: list[dict[str, Any]] = []
    tables: Tables = {}
    files: dict[str, Callable[[], Arrays]] = {}
    for run, study in studies.items():
        records += [_renamed(r, run) for r in study.records if r.model not in NO_MODEL]
        if (level := study.plateau()) is not None and not together:
            of_model = partial(Record, "", metric="loss.unigram", value=level, unit=unit("loss.unigram"))
            records += [of_model(model=f"{run}/{m}") for m in study.models]
        for entry in study.entries:
            config = study.config(str(entry.get("name")))
            config = {**config, "preset": config.get("preset") or entry.get("name")}
            entries.append({**entry, "name": f"{run}/{entry.get('name')}", "config": config})
        tables |= {(f"{run}/{name}", seed): arrays for (name, seed), arrays in study.tables.items()}
        for stem in study.arrays:
            kind, _, rest = stem.partition("-")
            name = f"{kind}-{run}_{rest}" if "-seed-" in rest else stem  # as `Run.arrays_of` looks for it
            # Tables are in `Run.tables`; texts are looked at on the page of their run.
            if kind not in ("table", "explorer") and (together or name != stem):
                files.setdefault(name, partial(study.arrays.__getitem__, stem))
    shared = {k: v for k in ("size", "match", "versions", "machine") if (v := first.facts.get(k)) is not None}
    same = {k: v for k, v in shared.items() if len({str(study.facts.get(k)) for study in studies.values()}) == 1}
    return Run(
        "comparison",
        {"models": entries, **same},
        records,
        [],
        tables,
        ArrayFiles(files),
        apart=bool(apart),
        paired=_same_documents(studies),
    )


def _renamed(record: Record, run: str) -> Record:
    other = record.part and record.metric.startswith(BETWEEN_MODELS)
    return replace(record, model=f"{run}/{record.model}", part=f"{run}/{record.part}" if other else record.part)


def _same_documents(studies: Mapping[str, Run]) -> bool:
    """Return whether the runs are known to hold back the same documents: same text, windows and held-out share."""
    known = [(study.corpus.get("source"), _facts(study)) for study in studies.values()]
    text, facts = known[0]
    names = (*OF_CORPUS[:4], "windows joined", "held-out share")
    if not text or not all(facts[name] for name in names):
        return False
    return all(
        source == text and all(of_run[name] == facts[name] for name in (*OF_CORPUS, *OF_WINDOWS))
        for source, of_run in known
    )


def _facts(study: Run) -> dict[str, str]:
    """What a run was made of, empty where nothing is recorded."""
    trainings = [e["training"] for e in study.entries if isinstance(e.get("training"), dict)]

    def size(metric: str) -> str:
        return number(p.value) if (p := study.table.point(f"corpus.{metric}")) else ""

    def trained(key: str) -> str:
        values = {training.get(key) for training in trainings} - {None}
        return ", ".join(compact(v) if isinstance(v, int) else str(v) for v in sorted(values, key=str))

    of_corpus = [study.corpus_name, size("documents"), size("tokens")]
    of_corpus += [str(study.corpus.get(key) or "") for key in ("length", "vocab_size")]
    of_windows = [str(study.corpus.get(key) or "") or trained(key) for key in ("join", "pieces")]
    of_windows += [trained(key) for key in ("held_out", "tokenizer")]
    return {
        **dict(zip(OF_CORPUS, of_corpus, strict=True)),
        **dict(zip(OF_WINDOWS, of_windows, strict=True)),
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


def _differing(studies: Mapping[str, Run]) -> dict[str, list[str]]:
    """Every fact that differs between the runs, with its value in each."""
    return {name: values for name, values in _side_by_side(studies).items() if len(set(values)) > 1}


def _caveats(studies: Mapping[str, Run], together: Run) -> list[str]:
    """What differs between the runs, then what every one of them is too small to say."""
    sentences = []
    pieces = []
    apart = _differing(studies)
    for name, values in apart.items():
        of_runs = (f"`{run}` {value or 'not recorded'}" for run, value in zip(studies, values, strict=True))
        pieces.append(f"{name} ({', '.join(of_runs)})")
    if pieces:
        what = listed(pieces, len(pieces))
        sentences.append(f"These runs differ in {what}: compare models within a run, not across runs.")
    if apart.keys() & {"corpus", "vocabulary", "corpus tokens", "tokenizer"}:
        scales = "Losses of different texts or vocabularies are on different scales"
        sentences.append(f"{scales}: a lower one of another run says nothing.")
    return sentences + caveats(together)


def comparison_page(studies: Mapping[str, Run]) -> Page:
    """Return the page of several studies, given by their short names."""
    together = merged(studies)
    full = {run: run if run == study.name else f"{run} ({study.name})" for run, study in studies.items()}
    return pages.study_page(
        together,
        title=f"{len(studies)} runs compared: {', '.join(study.name for study in studies.values())}",
        summary=[f"{full[run]}: {' · '.join(how.summary(study))}" for run, study in studies.items()],
        caveats=_caveats(studies, together),
        notes=[f"{run}: {note}" for run, study in studies.items() for note in study.facts.get("notes") or []],
        sections=[_runs_section(studies, [*full.values()]), _claims_section(studies)],
        how=_how(studies, together),
    )


def _runs_section(studies: Mapping[str, Run], names: Sequence[str]) -> Section:
    facts = {name: values for name, values in _side_by_side(studies).items() if any(values)}
    rows = [row(name.capitalize(), *of, "yes" if len(set(of)) > 1 else "no") for name, of in facts.items()]
    rows.append(row("Models", *(", ".join(study.models) for study in studies.values()), None))
    intro = (
        "What each run was made of. Every model is named by its run and its own name on this page; texts are on the "
        "page of each run."
    )
    table = Table("runs", "The runs", ["", *names, "Differs"], rows)
    return Section("runs", "What is compared?", intro, tables=[table], short="Runs")


def _claims_section(studies: Mapping[str, Run]) -> Section:
    """The claims whose verdicts differ between runs, a row each; those that agree are named."""
    claims: dict[str, dict[str, ledger.Row]] = {}
    for run, study in studies.items():
        for claim in map(ledger.row, study.claims):
            claims.setdefault(claim.id or claim.claim, {})[run] = claim
    rows = []
    alike = []
    counted = [key for key, of_runs in claims.items() if any(r.tested for r in of_runs.values())]
    for key in counted:
        of_runs = claims[key]
        if len(of_runs) == len(studies) and len({r.verdict for r in of_runs.values()}) == 1:
            alike.append(key)
            continue
        first = next(iter(of_runs.values()))
        verdicts = (f"{r.verdict}: {r.result}" if (r := of_runs.get(run)) else "" for run in studies)
        rows.append(row(first.claim, *verdicts, first.printed.replace(ledger.NONE, ""), first.rule))
    table = Table("claims-by-run", "Claims whose verdicts differ", ["Claim", *studies, "Paper", "Rule"], rows)
    intro = (
        "Each claim is a rule on recorded numbers of one run, so it is judged in each run by itself. "
        f"Of {count(len(counted), 'claim')} tested in a run, {len(alike)} have the same verdict in all"
    )
    intro += f": {named(alike)}." if alike else "."
    return Section("claims", "Do the verdicts agree?", intro, tables=[table] if rows else [], short="Claims")


def _how(studies: Mapping[str, Run], together: Run) -> How:
    whole = pages.study_how(together)
    parts = {run: pages.study_how(study) for run, study in studies.items()}
    cited: dict[str, str] = {}
    for part in (whole, *parts.values()):
        for words, entry in part.cite:
            cited.setdefault(entry, words)

    def of_all(name: str) -> list[tuple[str, Any]]:
        return [(f"{run}: {heading}", rest) for run, part in parts.items() for heading, rest in getattr(part, name)]

    facts, versions, configs = map(of_all, ("facts", "versions", "configs"))
    cite = [(words, entry) for entry, words in cited.items()]
    return replace(whole, facts=facts, versions=versions, configs=configs, cite=cite)
