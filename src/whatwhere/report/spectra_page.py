"""The page of `whatwhere spectra`: reads its folder, makes the figures, says in words what came out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..papers import BIBTEX
from . import equivariance_figures, spectra_figures, table_figures
from .figures import Cell, Figure, Table, text, value
from .load import Study, read_arrays, read_json, visible, visible_records
from .numbers import count, duration, fixed, number, percent
from .page import How, Page, Section, write_page
from .schemes import FEW

GRIDS = ("vit", "deit", "beit", "vit_mae", "vit_msn")  # model types whose positions are patches of a picture
_HOW = (
    "Every table is taken as it is, all its rows, centred over positions before its principal components are taken. N50 is the number of "
    "components that hold half of the variance; per cent are of the smaller of rows and columns. Every number of this page is read from "
    "the records beside it, every curve and map from the arrays.",
    "The positions of one table are no sample of anything, so there are no intervals but those between training seeds. The null of "
    "translation equivariance is the same rows in 99 random orders.",
    "A wave is fitted to each component by least squares, with any frequency and phase. Two components rotate if their frequencies differ "
    "by at most a quarter of a turn, their phases by a sixth to a third of a period, and one steady turn explains at least two thirds of "
    "their motion. A position stands alone if its nearest other position is over three times as far as the median, and far above the upper "
    "quartile.",
    "Frequencies are of the table as a whole: one turn is one period over all its positions.",
)
_CITE = (("The measurements:", BIBTEX["lowdim"]),)


@dataclass(frozen=True)
class Spectra:
    """What the folder of a `whatwhere spectra` run holds.

    study: records and arrays of the position tables, as the figures of tables read them. words: shares of the word tables.
    entries: `tables` of spectra.json, one a table.
    """

    study: Study
    words: dict[tuple[str, int | None], np.ndarray] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def models(self) -> list[str]:
        """Models in the order of the sources."""
        return list(dict.fromkeys(str(e["name"]) for e in self.entries))


def load_spectra(folder: str | Path) -> Spectra:
    """Read the folder of a `whatwhere spectra` run.

    Raises:
        ValueError: spectra.json or the records are missing, or a file is damaged.
    """
    folder = Path(folder)
    if not (folder / "spectra.json").is_file():
        raise ValueError(f"No spectra at {folder}: spectra.json is missing. Write them: whatwhere spectra SOURCE --out {folder}.")
    facts = read_json(folder / "spectra.json", dict)
    entries = [e for e in facts.get("tables") or [] if isinstance(e, dict)]
    arrays = {
        (visible(str(e["name"])), e.get("seed"), e.get("kind")): read_arrays(folder / "arrays" / Path(e["arrays"]).name) for e in entries
    }
    # A table of another make has no preset of ours, whatever its name; what we know of presets is not said of it.
    models = [
        {"name": e["name"], "seed": e.get("seed"), "config": {"preset": "–", **(e.get("config") or {})}}
        for e in entries
        if e.get("kind") == "positions"
    ]
    study = Study(
        name=visible(folder.resolve().name),
        facts=facts | {"models": models},
        records=visible_records(folder),
        tables={(name, seed): found for (name, seed, kind), found in arrays.items() if kind == "positions"},
    )
    words = {(name, seed): found["shares"] for (name, seed, kind), found in arrays.items() if kind == "words"}
    return Spectra(study, words, entries)


def write_spectra_report(folder: str | Path) -> Path:
    """Write the page of a `whatwhere spectra` run as report.html inside its folder; returns the path.

    Raises:
        ValueError: as `load_spectra`.
    """
    return write_page(Path(folder) / "report.html", spectra_page(load_spectra(folder)))


def spectra_page(spectra: Spectra) -> Page:
    """The page of a run."""
    study = spectra.study
    hero = table_figures.table_map(study) if len(spectra.models) == 1 else table_figures.spectrum(study)
    return Page(
        title=str(study.facts.get("title") or study.name),
        summary=_summary(spectra),
        caveats=_caveats(spectra),
        lead=[("What came out", said)] if (said := findings(spectra)) else [],
        hero=hero,
        sections=_sections(spectra, None if hero is None else hero.id),
        how=How(
            words=_HOW,
            facts=[("Run", rows)] if (rows := _run(spectra)) else [],
            versions=[(str(k), str(v)) for k, v in (study.facts.get("versions") or {}).items()],
            cite=_CITE,
        ),
    )


def _sections(spectra: Spectra, above: str | None) -> list[Section]:
    study = spectra.study

    def kept(*figures: Figure | None) -> list[Figure]:
        return [f for f in figures if f is not None and f.id != above]

    return [
        Section(
            "dimensions",
            "How many dimensions does it use?",
            "Principal components in the order of their variance. Few hold most of a table of learned positions; words need many.",
            kept(spectra_figures.shares(study, spectra.words), table_figures.spectrum(study)),
            [_table(spectra)],
        ),
        Section(
            "path",
            "What path do positions take?",
            "From the first position to the last, the vectors of a learned table draw a curve. Seen along single components it is a wave, "
            "seen along two an arc or a circle.",
            kept(
                table_figures.table_map(study),
                spectra_figures.rotation_maps(study),
                spectra_figures.score_maps(study, spectra_figures.FEW_SCORES),
                spectra_figures.score_maps(study, spectra_figures.ALL_SCORES),
            ),
        ),
        Section(
            "waves",
            "How fast does it vary?",
            "The same scores, taken apart into waves along the positions: cosines of half waves, and Fourier's whole turns.",
            kept(table_figures.frequencies(study), spectra_figures.summed_magnitudes(study), spectra_figures.magnitude_maps(study)),
        ),
        Section(
            "distance",
            "Does distance alone count?",
            "If the inner product of two positions depends on their distance alone, the matrix of all inner products has equal entries "
            "along every diagonal.",
            kept(equivariance_figures.equivariances(study), equivariance_figures.products(study)),
        ),
    ]


def _summary(spectra: Spectra) -> list[str]:
    positions = [e for e in spectra.entries if e.get("kind") == "positions"]
    sizes = list(dict.fromkeys(f"{e['rows']:,} × {e['width']:,}" for e in positions))
    pieces = [
        count(len(spectra.models), "table") + " of positions"
        if len(positions) == len(spectra.models)
        else f"{count(len(positions), 'table')} of positions of {count(len(spectra.models), 'model')}"
    ]
    pieces += [", ".join(sizes[:3]) + (" and others" if len(sizes) > 3 else "") + (" (positions × width)")]
    return pieces + ([f"{count(len(spectra.words), 'table')} of words"] if spectra.words else [])


def _caveats(spectra: Spectra) -> list[str]:
    grids = [
        f"`{e['name']}`" for e in spectra.entries if e.get("kind") == "positions" and (e.get("config") or {}).get("model_type") in GRIDS
    ]
    said = []
    if grids:
        said.append(
            f"The positions of {', '.join(grids)} are patches of a picture, row after row: a frequency along them mixes rows and columns, "
            "and outliers may be a class token."
        )
    if left := [f"`{name}`" for name in spectra.study.facts.get("left_out") or []]:
        said.append(f"Without a position table, and so not here: {', '.join(left)}.")
    return said


def findings(spectra: Spectra) -> list[str]:
    """What came out, a few sentences a table from its records; of more than `FEW` tables only the first few."""
    said = [_finding(spectra, model) for model in spectra.models[:FEW]]
    if len(spectra.models) > FEW:
        said.append(f"{count(len(spectra.models) - FEW, 'more table')} below.")
    return said


def _finding(spectra: Spectra, model: str) -> str:
    study = spectra.study
    needed, share = study.point("n50.count", model), study.point("n50", model)
    tops = [(k, p) for k, p in ((k, study.point(f"pca.top{k}", model)) for k in (3, 10)) if p]
    words = [f"`{model}`:"]
    if needed and share:
        words.append(f"half of the variance in {count(round(needed.value), 'component')} ({percent(share.value / 100)} of them)")
    if tops:
        words[-1] += ", " + ", ".join(f"{percent(p.value, 0)} in {k}" for k, p in tops)
    if other := study.point("n50", model, "words"):
        words[-1] += f"; words need {percent(other.value / 100)} for half"
    words[-1] += "."
    pairs = spectra_figures.rotating(study, model)
    turns = ", ".join(fixed(turn, 1) for _, turn, _, _ in pairs[:4])
    turning = f"{count(len(pairs), 'pair')} of components turn{'s' if len(pairs) == 1 else ''}, {turns} times."
    words.append(turning if pairs else "No pair of components turns.")
    point, null = study.point("equivariance", model), study.point("equivariance.null", model)
    if point and null:
        words.append(
            f"Distance explains {percent(point.value, 0)} of the inner products, {percent(null.value, 0)} with shuffled positions."
        )
    if alone := _alone(spectra, model):
        words.append(f"{'Position' if len(alone) == 1 else 'Positions'} {_few(alone)} {'stands' if len(alone) == 1 else 'stand'} alone.")
    return " ".join(words)


def _alone(spectra: Spectra, model: str) -> list[int]:
    """Outliers of the drawn table."""
    seed = spectra_figures.study_seed(spectra.study, model)
    return sorted(r.index for r in spectra.study.of("outlier", model) if r.index is not None and r.seed == seed and r.step is None)


def _few(places: list[int]) -> str:
    return ", ".join(map(str, places[:6])) + (f" and {len(places) - 6} more" if len(places) > 6 else "")


def _table(spectra: Spectra) -> Table:
    """LOWDIM Table 1, (a) and (b), with what else is one number a table; means over training seeds."""
    study = spectra.study
    rows: list[list[Cell]] = []
    for kind in ("positions", "words"):
        for model in spectra.models:
            entry = next((e for e in spectra.entries if e["name"] == model and e.get("kind") == kind), None)
            if entry is None:
                continue
            part = "words" if kind == "words" else None
            total = min(entry["rows"], entry["width"])
            rows.append([text(model), text(kind), *(value(v, f"{v:,}") for v in (entry["rows"], entry["width"], total))])
            for metric, digits in (("pca.top3", 2), ("pca.top5", 2), ("pca.top10", 2), ("n50.count", 0), ("n50", 1)):
                point = study.point(metric, model, part)
                rows[-1].append(value(point.value, fixed(point.value, digits)) if point else Cell("–"))
            for metric in ("equivariance", "equivariance.null"):
                point = study.point(metric, model) if kind == "positions" else None
                rows[-1].append(value(point.value, fixed(point.value, 2)) if point else Cell("–"))
            rows[-1].append(text(_few(alone) if kind == "positions" and (alone := _alone(spectra, model)) else "–"))
    columns = [
        "Model",
        "Table",
        "Rows",
        "Width",
        "PCs",
        "Top 3",
        "Top 5",
        "Top 10",
        "N50",
        "N50 %",
        "Equivariance",
        "Shuffled",
        "Stand alone",
    ]
    return Table("tables", "Every table in one row, as in LOWDIM Table 1", columns, rows, frozenset(range(2, 12)))


def _run(spectra: Spectra) -> list[tuple[str, str]]:
    facts = spectra.study.facts
    seconds = facts.get("seconds")
    sources = list(dict.fromkeys(str(e.get("source")) for e in spectra.entries))
    rows = [
        ("Command", facts.get("command")),
        ("Time", duration(seconds) if isinstance(seconds, int | float) else None),
        ("Sources", ", ".join(sources)),
        ("Records", number(len(spectra.study.records))),
    ]
    return [(name, str(found)) for name, found in rows if found]
