"""What the corpus of a study says about positions: the figures of a geometry run that tell most, from the study's own records."""

from collections.abc import Mapping
from dataclasses import replace

from ..points import Point
from . import geometry_figures, geometry_fits, geometry_shapes
from .figures import Cell, Figure, Table, measured, text, value
from .geometry_findings import NOISE
from .geometry_fits import counting, last, only_counted, shown, values_of
from .geometry_load import CORRECTED, Corpus, Geometry
from .load import CORPUS, Study

FILE = f"geometry-{CORPUS}"  # stem of its arrays
CELLS = 40_000  # of the matrices: a study's page holds much else
# Where position 0 is: models that read documents run on see them from other places too.
PLACES = "Positions count from the start of a document, special tokens left out; where windows run on, models see later parts too."
# Figure of a geometry run -> what it is drawn from
DRAWN = {
    "matrix": (f"arrays/{FILE}.npz: distance, corrected", "toeplitz, circulant: model = corpus"),
    "map": (f"arrays/{FILE}.npz: coords, coords_corrected", "mds.share: model = corpus, index = component"),
    "stress": ("stress.raw, stress.optimal, *.corrected: model = corpus, part = table, index = rank",),
}


def geometry(study: Study) -> Geometry | None:
    """The study's corpus as a geometry run of one corpus, under the corpus's own name; None where nothing of it was recorded."""
    known = study.facts.get("corpus")
    name = str((known.get("name") if isinstance(known, dict) else known) or CORPUS)
    records = [replace(r, model=name) for r in study.records if r.model == CORPUS and CORPUS not in study.models and r.step is None]
    arrays = study.arrays.get(FILE, {})
    if not records and not arrays:
        return None
    corpus = Corpus(name, {"name": name, "file": CORPUS}, {k: v for k, v in arrays.items()})
    return Geometry(study.name, {}, records, [corpus])


def figures(study: Study) -> list[Figure]:
    """Hellinger distances, their map, and the stress of every table with the noise floor."""
    run = geometry(study)
    if run is None:
        return []
    made = (geometry_figures.matrices(run, CELLS), geometry_shapes.table_maps(run), geometry_fits.stress(run))
    found = [
        replace(
            f,
            id=f"{CORPUS}-{f.id}",
            subtitle=f.subtitle.replace(", the same for all corpora", ""),
            table=replace(f.table, id=f"{CORPUS}-{f.table.id}"),
            records=DRAWN[f.id],
        )
        for f in made
        if f is not None
    ]
    return [replace(f, subtitle=f"{PLACES} {f.subtitle}") if f is found[0] else f for f in found]


def tables(study: Study) -> list[Table]:
    """The corpus in numbers, and one row a position table with its stress."""
    run = geometry(study)
    if run is None:
        return []
    overview = geometry_figures.overview(run) if any(r.metric in ("distance.mean", "corpus.tokens") for r in run.records) else None
    found = [replace(overview, id=f"{CORPUS}-numbers")] if overview else []
    return found + [t for t in (_stress_table(run),) if t is not None]


def _stress_table(run: Geometry) -> Table | None:
    """Every table from the best fit to the worst: at the best scale and raw, each against corrected distances where there are any."""
    name = run.corpora[0].name
    scales = {"stress.optimal": "Best scale", "stress.raw": "Raw"}
    values = {metric: values_of(run, metric, name) for metric in scales}
    every = list(dict.fromkeys(e for found in values.values() for e in found))
    if not every:
        return None
    ranked = counting(values["stress.optimal"])
    every.sort(key=lambda e: (e not in ranked, ranked[e].value if e in ranked else 0.0))
    rows = [[text(shown(e)), *(cell for metric in scales for cell in _cells(values[metric], e))] for e in every]
    half = [run.point(metric + CORRECTED, name, NOISE) for metric in scales]
    if any(half):
        rows.append([text("half against half, for comparison"), *(cell for p in half for cell in measured(p))])
    corrected = any(r.metric.endswith(CORRECTED) and r.metric.startswith("stress.") for r in run.records)
    caption = f"Stress of every table against the {'corrected ' if corrected else ''}distances of the corpus, the best fit first"
    columns = ["Table", *(c for words in scales.values() for c in (words, "Low", "High"))]
    return Table(f"{CORPUS}-fits", caption, columns, rows, frozenset(range(1, len(columns))))


def _cells(values: Mapping[str, dict[str, Point]], encoding: str) -> list[Cell]:
    kinds = values.get(encoding)
    if kinds is None or only_counted(kinds, values):
        return measured(None)
    point = last(kinds)
    if 0 <= point.value < geometry_fits.SMALLEST:
        return [value(point.value, "0"), Cell(""), Cell("")]
    return measured(point)
