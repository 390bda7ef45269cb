"""The pages of a geometry run and of a spectra run, as data: questions, each with its figures and tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics import METHODS
from ..papers import BIBTEX
from . import schemes
from .figures import corpus, fits, shape, spectra
from .numbers import count, number
from .page import How, Page
from .pages import Question, _json, _rows, _seconds, _several, flat, machine, sections
from .run import Run

FEW_DOCUMENTS = 1000
GRIDS = ("vit", "deit", "beit", "vit_mae", "vit_msn")  # model types whose positions are patches of a picture

GEOMETRY = (
    Question(
        "support",
        "What is counted?",
        "A position that few documents reach is counted on few tokens, and its distances are mostly noise.",
        [corpus.SUPPORT.draw],
        [corpus.overview],
    ),
    Question(
        "distances",
        "How far apart?",
        "Two positions are close if the same tokens stand there equally often.",
        [corpus.MATRIX.draw, corpus.BETWEEN.draw],
    ),
    Question(
        "shape",
        "What shape?",
        "Distances can be drawn as points in space. Few components hold most of a simple shape; noise needs a "
        "component of its own for "
        "every position.",
        [corpus.maps_of, corpus.SPECTRUM.draw],
    ),
    Question(
        "fit",
        "Which encoding fits?",
        "A position encoding also puts positions at distances from each other. Here these are held against the "
        "distances of the corpus.",
        [fits.STRESS.draw, fits.scatter, fits.HELD_OUT.draw, fits.DIMENSIONS.draw, fits.VIOLATIONS.draw],
        [fits.correlations, fits.parameters],
    ),
    Question(
        "training",
        "Over training",
        "Position tables of models at their kept checkpoints.",
        [corpus.SEPARATIONS.draw],
        [corpus.hypotheses],
    ),
)

SPECTRA = (
    Question(
        "dimensions",
        "How many dimensions does it use?",
        "Principal components in the order of their variance. Few hold most of a table of learned positions; words "
        "need many.",
        [spectra.SHARES.draw, shape.SPECTRUM.draw],
        [spectra.table],
    ),
    Question(
        "path",
        "What path do positions take?",
        "From the first position to the last, the vectors of a learned table draw a curve. Seen along single "
        "components it is a wave, seen "
        "along two an arc or a circle.",
        [shape.table_map, spectra.rotations, spectra.SCORES.draw, spectra.ALL.draw],
    ),
    Question(
        "waves",
        "How fast does it vary?",
        "The same scores, taken apart into waves along the positions: cosines of half waves, and Fourier's whole "
        "turns.",
        [shape.FREQUENCIES.draw, spectra.MAGNITUDES.draw, spectra.COMPONENT_MAGNITUDES.draw],
    ),
    Question(
        "distance",
        "Does distance alone count?",
        "If the inner product of two positions depends on their distance alone, the matrix of all inner products has "
        "equal entries along "
        "every diagonal.",
        [spectra.EQUIVARIANCE.draw, spectra.FIRST.draw, spectra.PRODUCTS.draw],
    ),
)


_PAPER = (
    "This run follows the paper's protocol: 1e-12 is added to every count, so positions that no document reaches get a "
    "uniform "
    "distribution and take part in everything. The last two are always among them, for there [CLS] and [SEP] take the "
    "place of text."
)


def geometry_page(run: Run) -> Page:
    """The page of a geometry run."""
    facts = run.facts
    sentences = {c.name: c.facts.get("summary") for c in run.corpora}
    told = {
        name: [str(s) for s in (found if isinstance(found, list) else [found] if isinstance(found, str) else [])]
        for name, found in sentences.items()
    }
    settings = facts.get("settings")
    given = {k: v for k, v in settings.items() if v is not None and v != []} if isinstance(settings, dict) else None
    rows = [
        ("Command", facts.get("command")),
        ("Started", facts.get("started")),
        ("Time", _seconds(run)),
        ("Protocol", facts.get("protocol")),
        ("Records", f"{len(run.records):,}"),
    ]
    groups = [("Run", _rows(rows)), ("Settings", flat(given)), ("Machine", machine(facts.get("machine")))]
    # The statistics are the records, which the tables show.
    configs = [(c.name, _json({k: v for k, v in c.facts.items() if k != "statistics"})) for c in run.corpora]
    cite = ("Positional distributions, Hellinger scaling, stress and the order of distances:", BIBTEX["geometry"])
    hero = next(iter(_several(run, [corpus.LAG.draw])), None)
    return Page(
        title=str(facts.get("title") or run.name),
        summary=_geometry_summary(run),
        caveats=geometry_caveats(run),
        notes=_notes(run),
        lead=[(name if len(told) > 1 else "", said) for name, said in told.items() if said],
        hero=hero,
        sections=sections(run, GEOMETRY, hero),
        how=How(METHODS["corpora"], [g for g in groups if g[1]], flat(facts.get("versions")), [], configs, [cite]),
    )


def _geometry_summary(run: Run) -> list[str]:
    """Each corpus with its size, then the protocol."""
    pieces = []
    for c in run.corpora:
        sizes = [f"{n:,} {unit}" for unit in ("documents", "tokens") if (n := c.number(unit)) is not None]
        pieces.append(f"{c.name}: {', '.join(sizes)}" if sizes else c.name)
    if run.corpora and all(c.facts.get("align") == "relative" for c in run.corpora):
        pieces.append("position relative to the length of the document")
    return [*pieces, "the paper's protocol"] if run.facts.get("protocol") == "paper" else pieces


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def geometry_caveats(run: Run) -> list[str]:
    """What a reader must know before any number, by fixed rules, most important first."""
    paper = run.facts.get("protocol") == "paper"
    found = [_PAPER] if paper else []
    if noise := corpus.chance(run):
        bounded = any(p.low is not None for p in corpus.of_each(run, "distance.mean" + corpus.CORRECTED).values())
        head = "Not separable from chance: in" if bounded else "In"
        found.append(
            f"{head} {_listed(noise)} the mean square of the corrected distances is not above 0, so no fit below says "
            "anything about it."
        )
    if few := [c.name for c in run.corpora if (n := c.number("documents")) is not None and n < FEW_DOCUMENTS]:
        found.append(
            f"Fewer than {FEW_DOCUMENTS:,} documents in {_listed(few)}: most of what is counted there is chance."
        )
    if (left := [(c.name, len(c.left_out)) for c in run.corpora if c.left_out]) and not paper:
        said = "; ".join(f"{count(n, 'position')} of `{name}`" for name, n in left)
        found.append(f"Left out because too little text reaches them: {said}.")
    if run.corpora and all(p.low is None for p in corpus.of_each(run, "distance.mean").values()):
        found.append("There are no intervals: nothing was resampled.")
    return found


def _notes(run: Run) -> list[str]:
    """What the page leaves out of maps and tables to stay small."""
    most = corpus.most(run)
    long = [c.name for c in run.corpora if max(len(c.positions), c.number("positions_asked") or 0) > most]
    said = (
        f"Maps and tables of {_listed(long)} show at most {most} positions, at equal steps; arrays/ in the run's "
        "folder has them all."
    )
    return [said] if long else []


# ---- a spectra run ----


def spectra_page(run: Run) -> Page:
    """The page of a `whatwhere spectra` run."""
    several = len(run.models) > 1
    hero = (shape.SPECTRUM.draw if several else shape.table_map)(run)
    named = run.models[: schemes.FEW]
    said = [spectra.sentence(run, model) for model in named]
    said += [f"{count(len(run.models) - len(named), 'more table')} below."] if len(run.models) > len(named) else []
    entries = spectra.entries(run)
    sources = ", ".join(dict.fromkeys(str(e.get("source")) for e in entries))
    rows = [
        ("Command", run.facts.get("command")),
        ("Time", _seconds(run)),
        ("Sources", sources),
        ("Records", number(len(run.records))),
    ]
    return Page(
        title=str(run.facts.get("title") or run.name),
        summary=_spectra_summary(run, entries),
        caveats=_spectra_caveats(run, entries),
        lead=[("What came out", said)] if said else [],
        hero=hero,
        sections=sections(run, SPECTRA, hero),
        how=How(
            words=METHODS["spectra"],
            facts=[("Run", _rows(rows))],
            versions=flat(run.facts.get("versions")),
            cite=[("The measurements:", BIBTEX["lowdim"])],
        ),
    )


def _spectra_summary(run: Run, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    positions = [e for e in entries if e.get("kind") == "positions"]
    sizes = list(dict.fromkeys(f"{e['rows']:,} × {e['width']:,}" for e in positions))
    of = f" of {count(len(run.models), 'model')}" if len(positions) != len(run.models) else ""
    pieces = [f"{count(len(positions), 'table')} of positions{of}"]
    pieces += [", ".join(sizes[:3]) + (" and others" if len(sizes) > 3 else "") + " (positions × width)"]
    return pieces + ([f"{count(len(run.words), 'table')} of words"] if run.words else [])


def _spectra_caveats(run: Run, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    if grids := [
        e["name"]
        for e in entries
        if e.get("kind") == "positions" and (e.get("config") or {}).get("model_type") in GRIDS
    ]:
        said.append(
            f"The positions of {_listed(grids)} are patches of a picture, row after row: a frequency along them mixes "
            "rows and columns, "
            "and outliers may be a class token."
        )
    if left := run.facts.get("left_out"):
        said.append(f"Without a position table, and so not here: {_listed(left)}.")
    return said
