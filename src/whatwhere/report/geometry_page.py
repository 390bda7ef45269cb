"""The report of a geometry run: how much position matters in a corpus, and which encoding fits it."""

import json
from pathlib import Path
from typing import Any

from ..papers import BIBTEX
from . import geometry_curves, geometry_figures, geometry_fits, geometry_scatter, geometry_shapes
from .geometry_findings import remains
from .geometry_load import CORRECTED, Geometry, load_geometry
from .numbers import count, duration
from .page import How, Page, Section, write_page
from .study_page import flat, machine

FEW_DOCUMENTS = 1000

_WORDS = (
    "Positions are counted from 0 without special tokens. μ of a position is the share of each token there; the Hellinger distance of "
    "two positions is the length of the difference of their square roots, between 0 and 1.41. It is a distance in space, so an exact "
    "table always exists, and classical scaling of it is the principal components of the square roots.",
    "Few samples make two positions look apart that are not: the square root of a small share is often 0 in one sample and not in the "
    "next. The noise floor is the distance between two random halves of the documents at one position. The corrected distance takes this "
    "bias out: with one half for the one factor and the other half for the other, the errors of the two are independent and cancel on "
    "average. Its square may come out negative; its root then carries a minus sign.",
    "The root mean square distance is the root of the mean of the squared distances over all pairs of positions; if that mean is negative, "
    "minus the root of its size. Only the squares are free of bias, so the interval is that of the mean square, its ends as roots: where "
    "it holds 0, the geometry is not separable from chance. For the same reason the order of corrected distances, their correlation with "
    "the lag and the Toeplitz and circulant shares keep the sign of every square, and chance alone gives 50\u202f% of triples out of order "
    "and a correlation of 0.",
    "Intervals are 95\u202f% intervals of the delete-one-group jackknife over groups of documents: they say what another sample of "
    "documents would change, not another tokenizer or another way of choosing documents.",
    "Stress is the sum over pairs of squared differences, over the sum of squared Hellinger distances, without a root. It is not between "
    "0 and 1: the raw value of a table can be made anything by stretching the table. Triples out of order are those of three different "
    "positions i, j, k with |i − j| < |i − k| and a larger distance for the nearer pair.",
)
_PAPER = (
    "This run follows the paper's protocol: 1e-12 is added to every count, so positions that no document reaches get a uniform "
    "distribution and take part in everything. The last two are always among them, for there [CLS] and [SEP] take the place of text."
)
_CITE = ("Positional distributions, Hellinger scaling, stress and the order of distances:", BIBTEX["geometry"])


def write_geometry_report(folder: Path, out: Path | None = None) -> Path:
    """Write the report of a geometry run's folder to `out` (default: report.html inside it); returns the path.

    Raises:
        ValueError: the folder has no records, or a file in it is damaged.
    """
    folder = Path(folder)
    return write_page(Path(out) if out is not None else folder / "report.html", geometry_page(load_geometry(folder)))


def geometry_page(run: Geometry) -> Page:
    """The page of a geometry run."""
    hero = geometry_figures.lags(run)
    return Page(
        title=str(run.facts.get("title") or run.name),
        summary=summary(run),
        caveats=caveats(run),
        notes=notes(run),
        lead=[
            (c.name if len(run.corpora) > 1 else "", _sentences(c.facts.get("summary")))
            for c in run.corpora
            if _sentences(c.facts.get("summary"))
        ],
        hero=hero,
        sections=sections(run),
        how=how(run),
    )


def _sentences(found: Any) -> list[str]:
    return [str(s) for s in found] if isinstance(found, list) else [found] if isinstance(found, str) else []


def summary(run: Geometry) -> list[str]:
    """Each corpus with its size, then the protocol."""
    pieces = []
    for c in run.corpora:
        sizes = [f"{n:,} {unit}" for unit in ("documents", "tokens") if (n := c.number(unit)) is not None]
        pieces.append(f"{c.name}: {', '.join(sizes)}" if sizes else c.name)
    if run.corpora and all(c.facts.get("align") == "relative" for c in run.corpora):
        pieces.append("position relative to the length of the document")
    return [*pieces, "the paper's protocol"] if run.paper else pieces


def caveats(run: Geometry) -> list[str]:
    """What a reader must know before any number, by fixed rules, most important first."""
    found = [_PAPER] if run.paper else []
    noise = {c.name: p for c in run.corpora if (p := run.point("distance.mean" + CORRECTED, c.name)) is not None and not remains(p)}
    if noise:
        head = "Not separable from chance: in" if any(p.low is not None for p in noise.values()) else "In"
        found.append(
            f"{head} {_listed(list(noise))} the mean square of the corrected distances is not above 0, so no fit below says anything "
            "about it."
        )
    few = [c.name for c in run.corpora if (n := c.number("documents")) is not None and n < FEW_DOCUMENTS]
    if few:
        found.append(f"Fewer than {FEW_DOCUMENTS:,} documents in {_listed(few)}: most of what is counted there is chance.")
    left = [(c.name, len(c.left_out)) for c in run.corpora if c.left_out]
    if left and not run.paper:
        found.append(
            "Left out because too little text reaches them: " + "; ".join(f"{count(n, 'position')} of `{name}`" for name, n in left) + "."
        )
    if run.corpora and all(p.low is None for c in run.corpora if (p := run.point("distance.mean", c.name)) is not None):
        found.append("There are no intervals: nothing was resampled.")
    return found


def notes(run: Geometry) -> list[str]:
    """What the page leaves out of lines and tables to stay small."""
    most = geometry_figures.most_points(run.corpora)
    long = [c.name for c in run.corpora if max(len(c.positions), c.number("positions_asked") or 0) > most]
    if not long:
        return []
    return [f"Lines and tables of {_listed(long)} show at most {most} positions, at equal steps; arrays/ in the run's folder has them all."]


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def sections(run: Geometry) -> list[Section]:
    """Every section the run could have, in the order of the questions; the page leaves empty ones out."""

    def some(*figures: Any) -> list[Any]:
        return [f for f in figures if f is not None]

    return [
        Section(
            "support",
            "What is counted?",
            "A position that few documents reach is counted on few tokens, and its distances are mostly noise.",
            some(geometry_figures.support(run)),
            some(geometry_figures.overview(run)),
        ),
        Section(
            "distances",
            "How far apart?",
            "Two positions are close if the same tokens stand there equally often.",
            some(geometry_figures.matrices(run), geometry_figures.between(run)),
        ),
        Section(
            "shape",
            "What shape?",
            "Distances can be drawn as points in space. Few components hold most of a simple shape; noise needs a component of its own "
            "for every position.",
            some(geometry_shapes.table_maps(run), geometry_shapes.spectrum(run)),
        ),
        Section(
            "fit",
            "Which encoding fits?",
            "A position encoding also puts positions at distances from each other. Here these are held against the distances of the "
            "corpus.",
            some(
                geometry_fits.stress(run),
                geometry_scatter.scatter(run),
                geometry_curves.held_out(run),
                geometry_curves.dimensions(run),
                geometry_fits.violations(run),
            ),
            some(geometry_scatter.correlations(run), geometry_fits.parameters(run)),
        ),
        Section(
            "training",
            "Over training",
            "Position tables of models at their kept checkpoints.",
            some(geometry_curves.separation(run)),
            some(geometry_curves.hypotheses(run)),
        ),
    ]


def _given(settings: Any) -> Any:
    """Settings that say something."""
    return {k: v for k, v in settings.items() if v is not None and v != []} if isinstance(settings, dict) else None


def how(run: Geometry) -> How:
    """The last section."""
    facts = run.facts
    seconds = facts.get("seconds")
    command = facts.get("command")
    rows = [
        ("Command", " ".join(str(c) for c in command) if isinstance(command, list) else command),
        ("Started", facts.get("started")),
        ("Time", duration(seconds) if isinstance(seconds, int | float) else None),
        ("Protocol", facts.get("protocol")),
        ("Records", f"{len(run.records):,}"),
    ]
    groups = [
        ("Run", [(k, str(v)) for k, v in rows if v]),
        ("Settings", flat(_given(facts.get("settings")))),
        ("Machine", machine(facts.get("machine"))),
    ]
    # The statistics are the records, which the tables show.
    corpora = [
        (c.name, json.dumps({k: v for k, v in c.facts.items() if k != "statistics"}, indent=2, ensure_ascii=False)) for c in run.corpora
    ]
    return How(_WORDS, [g for g in groups if g[1]], flat(facts.get("versions")), [], corpora, [_CITE])
