"""Several studies on one page: the same figures with every model named `run/model`, and the claims of all runs side by
side.

What differs between the runs is said first, for then values are comparable within a run only.
"""

import math
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..records import Record
from . import methods, pages, schemes
from .cards import card
from .figure import Cell, Table, text, value
from .figures.where import POSITION
from .numbers import compact, count, number, printed
from .page import How, Page, Section, write_page
from .run import CORPUS, Run, load_run
from .titles import totals

SHORT = 8  # characters of a run's name that a label at a line's end has room for, beside the model's
NO_MODEL = ("", CORPUS)  # what stands as the model of a record about texts alone
BETWEEN_MODELS = ("regression.", "convergence.")  # metrics whose part is another model


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
        _refuse_others(folder)
    studies = [load_run(folder) for folder in folders]
    names = [s.name for s in studies]
    plain = len(set(names)) == len(names) and all(len(n) <= SHORT and "/" not in n for n in names)
    letters = string.ascii_uppercase if len(names) <= 26 else [f"run {i + 1}" for i in range(len(names))]
    return dict(zip(names if plain else letters, studies, strict=False))


def _refuse_others(folder: Path) -> None:
    """Refuse what is no study, with the way to compare it if there is one."""
    if (folder / "geometry.json").is_file():
        raise ValueError(
            f"{folder} is a geometry run, and studies alone are compared. One geometry run compares corpora itself: "
            "give `whatwhere "
            "geometry` several --corpus."
        )
    if (folder / "spectra.json").is_file():
        raise ValueError(
            f"{folder} is a spectra run, and studies alone are compared. One spectra run compares tables itself: give "
            "`whatwhere spectra` "
            "several sources."
        )
    if not (folder / "records.parquet").is_file():
        what = "a model" if (folder / "config.json").is_file() else "no study: it holds no records.parquet"
        raise ValueError(
            f"{folder} is {what}, and studies alone are compared. Give folders that `whatwhere study` wrote."
        )


class _Renamed(Mapping[str, dict[str, np.ndarray]]):
    """The array files of several runs, each under its model's new name; read when they are first asked for."""

    def __init__(self, studies: Mapping[str, Run], together: bool) -> None:
        self._files: dict[str, tuple[Run, str]] = {}
        for run, study in studies.items():
            for stem in study.arrays:
                kind, _, rest = stem.partition("-")
                if kind in ("table", "explorer"):
                    continue  # tables are in `Run.tables`; texts are looked at on the page of their run
                if "-seed-" in rest:
                    self._files[f"{kind}-{run}/{rest}"] = study, stem
                elif together:
                    self._files.setdefault(stem, (study, stem))

    def __getitem__(self, stem: str) -> dict[str, np.ndarray]:
        study, own = self._files[stem]
        return study.arrays[own]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, stem: object) -> bool:
        return stem in self._files


def merged(studies: Mapping[str, Run]) -> Run:
    """All runs as one study whose models are named `run/model`.

    Records about a corpus are kept if they are the same in all runs; the entropy of token frequencies also as a record
    of every model.
    """
    together = not _differing(studies, corpus_only=True)
    records = [r for r in next(iter(studies.values())).records if r.model in NO_MODEL] if together else []
    entries = []
    for run, study in studies.items():
        own = [r for r in study.records if r.model not in NO_MODEL]
        records += [_renamed(r, run) for r in own]
        level = study.plateau()
        if level is not None and not together:
            records += [Record("", f"{run}/{m}", "loss.unigram", level, unit="nats") for m in study.models]
        for entry in study.entries:
            config = study.config(str(entry.get("name")))
            kind = config.get("preset") or entry.get("name")
            entries.append({**entry, "name": f"{run}/{entry.get('name')}", "config": {**config, "preset": kind}})
    facts: dict[str, Any] = {"models": entries}
    same = {json_key for json_key in ("size", "match", "versions", "machine") if not _several(studies, _fact(json_key))}
    facts |= {key: found for key in sorted(same) if (found := next(iter(studies.values())).facts.get(key)) is not None}
    tables = {
        (f"{run}/{name}", seed): arrays
        for run, study in studies.items()
        for (name, seed), arrays in study.tables.items()
    }
    return Run("comparison", facts, records, [], tables, _Renamed(studies, together))


def _renamed(record: Record, run: str) -> Record:
    other = record.part and record.metric.startswith(BETWEEN_MODELS)
    return replace(record, model=f"{run}/{record.model}", part=f"{run}/{record.part}" if other else record.part)


def _fact(key: str) -> Callable[[Run], str]:
    return lambda study: str(study.facts.get(key) or "")


def _training(key: str) -> Callable[[Run], str]:
    """A field of the trainings of a study, as one string."""

    def found(study: Run) -> str:
        values = {e["training"].get(key) for e in study.entries if isinstance(e.get("training"), dict)} - {None}
        return ", ".join(compact(v) if isinstance(v, int) else str(v) for v in sorted(values, key=str))

    return found


def _corpus(key: str) -> Callable[[Run], str]:
    def found(study: Run) -> str:
        corpus = study.facts.get("corpus")
        if key == "name":
            return pages.corpus_name(study)
        return str(corpus.get(key) or "") if isinstance(corpus, dict) else ""

    return found


def _size(metric: str) -> Callable[[Run], str]:
    return lambda study: number(p.value) if (p := study.table.point(f"corpus.{metric}")) else ""


def _steps(study: Run) -> str:
    recorded = sorted(set(totals(study, "steps")))
    return ", ".join(compact(v) for v in recorded) or _training("steps")(study)


# What the table of runs holds; those of the first part are facts of the corpus.
_OF_CORPUS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("corpus", _corpus("name")),
    ("documents", _size("documents")),
    ("corpus tokens", _size("tokens")),
    ("window length", _corpus("length")),
    ("vocabulary", _corpus("vocab_size")),
)
_OF_TRAINING: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("size", _fact("size")),
    ("recipe", _fact("recipe")),
    ("costs matched by", _fact("match")),
    ("steps", _steps),
    ("batch size", _training("batch_size")),
    ("learning rate", _training("learning_rate")),
    ("seeds", lambda study: ", ".join(str(s) for s in study.seeds)),
)


def _several(studies: Mapping[str, Run], read: Callable[[Run], str]) -> bool:
    return len({read(study) for study in studies.values()}) > 1


def _differing(studies: Mapping[str, Run], corpus_only: bool = False) -> list[tuple[str, list[str]]]:
    """What differs between the runs, with the value of each run."""
    return [
        (name, [read(study) for study in studies.values()])
        for name, read in (_OF_CORPUS if corpus_only else _OF_CORPUS + _OF_TRAINING)
        if _several(studies, read)
    ]


def caveats(studies: Mapping[str, Run], together: Run) -> list[str]:
    """What differs between the runs, then what every one of them is too small to say."""
    said = []
    if found := _differing(studies):
        pieces = [f"{name} ({_by_run(studies, values)})" for name, values in found]
        said.append(f"These runs differ in {_listed(pieces)}: compare models within a run, not across runs.")
    if any(name in ("corpus", "vocabulary", "corpus tokens") for name, _ in found):
        said.append(
            "Losses of different texts or vocabularies are on different scales: a lower one of another run says "
            "nothing."
        )
    return said + pages.study_caveats(together)


def _by_run(studies: Mapping[str, Run], values: Sequence[str]) -> str:
    return ", ".join(f"`{run}` {value or 'not recorded'}" for run, value in zip(studies, values, strict=True))


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def comparison_page(studies: Mapping[str, Run]) -> Page:
    """The page of several studies, by their short names."""
    together = merged(studies)
    return Page(
        title=f"{len(studies)} runs compared: {', '.join(study.name for study in studies.values())}",
        summary=[f"{_full(run, study)}: {' · '.join(pages.summary(study))}" for run, study in studies.items()],
        glossary=schemes.line(together),
        models=schemes.listed(together),
        caveats=caveats(studies, together),
        notes=[f"{run}: {note}" for run, study in studies.items() for note in study.facts.get("notes") or []],
        hero=POSITION.draw(together),
        sections=[_runs_section(studies), _claims_section(studies), *pages.sections(together, pages.STUDY)],
        how=_how(studies, together),
    )


def _full(run: str, study: Run) -> str:
    """The short name of a run with the name of its folder."""
    return run if run == study.name else f"{run} ({study.name})"


def _runs_section(studies: Mapping[str, Run]) -> Section:
    rows: list[list[Cell]] = []
    for name, read in _OF_CORPUS + _OF_TRAINING:
        found = [read(study) for study in studies.values()]
        if any(found):
            rows.append(
                [
                    text(name.capitalize()),
                    *(text(v) if v else Cell("–") for v in found),
                    text("yes" if len(set(found)) > 1 else "no"),
                ]
            )
    rows.append([text("Models"), *(text(", ".join(study.models)) for study in studies.values()), Cell("–")])
    columns = ["", *(_full(run, study) for run, study in studies.items()), "Differs"]
    intro = (
        "What each run was made of. Every model is named by its run and its own name on this page; texts are on the "
        "page of each run."
    )
    return Section("runs", "What is compared?", intro, tables=[Table("runs", "The runs", columns, rows)], short="Runs")


def _claims_section(studies: Mapping[str, Run]) -> Section:
    """The claims of all runs, a row each; verdict, value and interval of every run side by side."""
    intro = "Each claim is a rule on recorded numbers of one run, so it is judged in each run by itself."
    claims: dict[str, dict[str, dict[str, Any]]] = {}
    for run, study in studies.items():
        for claim in study.claims:
            claims.setdefault(str(claim.get("id") or claim.get("claim") or ""), {})[run] = claim
    if not claims:
        return Section("claims", "Do the verdicts agree?", intro)
    rows = []
    for key, found in claims.items():
        cards = {run: card(claim) for run, claim in found.items()}
        first = next(iter(cards.values()))
        row = [text(key), text(first.claim)]
        for run in studies:
            row += _verdict(cards[run].verdict, found[run]) if run in cards else [Cell("–")] * 4
        paper = next((p for c in found.values() if isinstance(p := c.get("paper_value"), int | float)), None)
        rows.append(
            [
                *row,
                value(paper, printed(paper)) if paper is not None else Cell("–"),
                text(first.source),
                text(first.rule),
            ]
        )
    columns = [
        "Id",
        "Claim",
        *(f"{run}{what}" for run in studies for what in ("", " value", " low", " high")),
        "Paper",
        "Source",
        "Rule",
    ]
    values = frozenset(i for k in range(len(studies)) for i in range(3 + 4 * k, 6 + 4 * k)) | {2 + 4 * len(studies)}
    return Section(
        "claims",
        "Do the verdicts agree?",
        f"{intro} {_agreement(studies, claims)}",
        tables=[Table("claims-by-run", "Every claim in every run", columns, rows, values)],
        short="Claims",
    )


def _verdict(said: str, claim: Mapping[str, Any]) -> list[Cell]:
    """Verdict, value and the ends of its interval."""
    value_, low, high = (
        v if isinstance(v := claim.get(k), int | float) and math.isfinite(v) else None for k in ("value", "low", "high")
    )
    return [
        text(said),
        value(value_, number(value_, low, high)) if value_ is not None else Cell("–"),
        *(value(v, number(v)) if v is not None else Cell("–") for v in (low, high)),
    ]


def _agreement(studies: Mapping[str, Run], claims: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """How many claims that every run can test have one verdict, and which do not."""
    testable = {
        key: {str(c.get("verdict")) for c in found.values()}
        for key, found in claims.items()
        if len(found) == len(studies) and all(c.get("value") is not None for c in found.values())
    }
    if not testable:
        return "No claim was measured in all runs."
    apart = [f"`{key}`" for key, verdicts in testable.items() if len(verdicts) > 1]
    agree = (
        f"Of {count(len(testable), 'claim')} measured in all runs, {len(testable) - len(apart)} have the same verdict "
        "in all"
    )
    return f"{agree}; not so {_listed(apart)}." if apart else f"{agree}."


def _how(studies: Mapping[str, Run], together: Run) -> How:
    parts = {run: pages.how(study) for run, study in studies.items()}
    cite: dict[str, Any] = {}
    for study in [together, *studies.values()]:
        for words, entry in methods.cited(study):
            cite.setdefault(entry, words)
    return How(
        words=methods.words(together),
        facts=[(f"{run}: {name}", rows) for run, how in parts.items() for name, rows in how.facts],
        versions=[(f"{run}: {name}", version) for run, how in parts.items() for name, version in how.versions],
        tables=pages.how_tables(together),
        configs=[(f"{run}: {name}", body) for run, how in parts.items() for name, body in how.configs],
        cite=[(words, entry) for entry, words in cite.items()],
    )
