"""The pages of a study, a geometry run, a spectra run and a model's heads: what stands around the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..papers import bibtex
from ..records.metrics import methods
from . import how, schemes
from .explorer import ATTENTION_BUDGET, STUDY_BUDGET, ExplorerModel, load_explorer, pack
from .figures import buys, corpus, shape
from .figures import hidden_states as states
from .figures import table_shapes as spectra
from .loaded_run import Run, load_run
from .numbers import count, number
from .page import How, Page, Section, render_page, write_page
from .pick import pick
from .questions import GEOMETRY, SPECTRA, STUDY, Draw, Question, drawn
from .titles import caveats, named

MOST_BYTES = 9_800_000  # of a page with its explorer, whose texts give way to the figures
LEAST_EXPLORER = 1_500_000  # bytes of packed maps that an explorer keeps where many models' figures fill a page
FEW_DOCUMENTS = 1000
GRIDS = ("vit", "deit", "beit", "vit_mae", "vit_msn")  # model types whose positions are patches of a picture

_PAPER = (
    "This run follows the paper's protocol: 1e-12 is added to every count, so positions that no document reaches get a "
    "uniform distribution and take part in everything. The last two are always among them, for there [CLS] and [SEP] "
    "take the place of text."
)


def page(run: Run, questions: Sequence[Question], hero: Draw, *, sections: Sequence[Section] = (), **rest: Any) -> Page:
    """Build the page of any run: the figure of the first screen, then every section that the run has data for.

    sections: those before the questions. rest: as `Page`, whose title is the run's by default.
    """
    above = next(iter(drawn(run, hero)), None)
    answers = [question.section(run, above.id if above else "") for question in questions]
    rest = {"title": str(run.facts.get("title") or run.name)} | rest
    return Page(hero=above, sections=[*sections, *answers], **rest)


# ---- a study ----


def open_page(folder: str | Path) -> Page:
    """Build the page of a study's folder, with as many texts of its attention explorer as fit.

    Raises ValueError: the folder has no records, or a file in it is damaged.
    """
    study = study_page(load_run(folder))
    if not (Path(folder) / "explorer.json").is_file():
        return study
    room = MOST_BYTES - len(render_page(study).encode())
    return replace(study, explorer=load_explorer(folder, min(STUDY_BUDGET, max(LEAST_EXPLORER, room))))


def study_page(run: Run, **rest: Any) -> Page:
    """Build the page of a study, or of several merged into one; `open_page` adds the explorer. rest: as `page`."""
    around: dict[str, Any] = {
        "summary": how.summary(run),
        "glossary": schemes.line(run),
        "models": schemes.listed(run),
        "gated": run.weak_models,
        "aside": schemes.aside(run),
        "caveats": caveats(run),
        "notes": [str(note) for note in run.facts.get("notes") or []],
        "pick": pick(run),
        "claims": referenced(run),
        "beside": run.beside.study.label if run.beside.study else "",
        "how": study_how(run),
    }
    return page(run, STUDY, states.position, **(around | rest))


def referenced(run: Run) -> list[dict[str, Any]]:
    """Return the claims of a run, each with the reference study's value and verdict where there is one."""
    reference = run.beside.claims
    return (
        [{**claim, "reference": reference.get(str(claim.get("id")))} for claim in run.claims]
        if reference
        else run.claims
    )


def study_how(run: Run) -> How:
    """Return the last section of a study's page."""
    return how.section(
        run,
        how.words(run),
        {"Run": how.of_study(run), "Corpus": how.of_corpus(run)},
        tables=[*how.tables(run), *filter(None, [buys.costs(run)])],
        configs=how.configs(run),
        cite=how.cited(run),
    )


# ---- a geometry run ----


def geometry_page(run: Run) -> Page:
    """Build the page of a geometry run."""
    summaries = {c.name: sentences for c in run.corpora if (sentences := c.facts.get("summary"))}
    settings = {k: v for k, v in (run.facts.get("settings") or {}).items() if v is not None and v != []}
    entries = how.of_run(run, Protocol=run.facts.get("protocol"), Records=f"{len(run.records):,}")
    # The statistics are the records, which the tables show.
    configs = [(c.name, {k: v for k, v in c.facts.items() if k != "statistics"}) for c in run.corpora]
    cite = ("Positional distributions, Hellinger scaling, stress and the order of distances:", bibtex("geometry"))
    return page(
        run,
        GEOMETRY,
        corpus.lag,
        summary=_geometry_summary(run),
        caveats=_geometry_caveats(run),
        notes=_notes(run),
        lead=[(name if len(run.corpora) > 1 else "", sentences) for name, sentences in summaries.items()],
        how=how.section(
            run,
            methods()["corpora"],
            {"Run": entries, "Settings": how.flat(settings)},
            configs=configs,
            cite=[cite],
        ),
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


def _geometry_caveats(run: Run) -> list[str]:
    """What a reader must know before any number, by fixed rules, most important first."""
    paper = run.facts.get("protocol") == "paper"
    sentences = [_PAPER] if paper else []
    if noise := corpus.chance(run):
        bounded = any(p.low is not None for p in corpus.of_each(run, "distance.mean" + corpus.CORRECTED).values())
        head = "Not separable from chance: in" if bounded else "In"
        rest = "the mean square of the corrected distances is not above 0, so no fit below says anything about it."
        sentences.append(f"{head} {named(noise)} {rest}")
    if few := [c.name for c in run.corpora if (n := c.number("documents")) is not None and n < FEW_DOCUMENTS]:
        rest = "the counts there are mostly chance."
        sentences.append(f"Fewer than {FEW_DOCUMENTS:,} documents in {named(few)}: {rest}")
    if (left := {c.name: len(c.left_out) for c in run.corpora if c.left_out}) and not paper:
        places = "; ".join(f"{count(n, 'position')} of `{name}`" for name, n in left.items())
        sentences.append(f"Left out because too little text reaches them: {places}.")
    if run.corpora and all(p.low is None for p in corpus.of_each(run, "distance.mean").values()):
        sentences.append("There are no intervals: nothing was resampled.")
    return sentences


def _notes(run: Run) -> list[str]:
    """What the page leaves out of maps and tables to stay small."""
    most = corpus.most(run)
    long = [c.name for c in run.corpora if max(len(c.positions), c.number("positions_asked") or 0) > most]
    rest = "at equal steps; arrays/ in the run's folder has them all."
    return [f"Maps and tables of {named(long)} show at most {most} positions, {rest}"] if long else []


# ---- a spectra run ----


def spectra_page(run: Run) -> Page:
    """Build the page of a `whatwhere spectra` run."""
    entries = spectra.entries(run)
    rest = len(run.models) - schemes.FEW
    sentences = [spectra.sentence(run, model) for model in run.models[: schemes.FEW]]
    sentences += [f"{count(rest, 'more table')} below."] if rest > 0 else []
    sources = ", ".join(dict.fromkeys(str(e.get("source")) for e in entries))
    facts = how.of_run(run, Sources=sources, Records=number(len(run.records)))
    tables = [e for e in entries if e.get("kind") == "positions"]
    return page(
        run,
        SPECTRA,
        shape.spectrum if len(run.models) > 1 else shape.table_map,
        summary=_spectra_summary(run, tables),
        caveats=_spectra_caveats(run, tables),
        lead=[("What came out", sentences)] if sentences else [],
        how=how.section(run, methods()["spectra"], {"Run": facts}, cite=[("The measurements:", bibtex("lowdim"))]),
    )


def _spectra_summary(run: Run, tables: Sequence[Mapping[str, Any]]) -> list[str]:
    sizes = list(dict.fromkeys(f"{e['rows']:,} × {e['width']:,}" for e in tables))
    of = f" of {count(len(run.models), 'model')}" if len(tables) != len(run.models) else ""
    pieces = [f"{count(len(tables), 'table')} of positions{of}"]
    pieces += [", ".join(sizes[:3]) + (" and others" if len(sizes) > 3 else "") + " (positions × width)"]
    return pieces + ([f"{count(len(run.words), 'table')} of words"] if run.words else [])


def _spectra_caveats(run: Run, tables: Sequence[Mapping[str, Any]]) -> list[str]:
    sentences = []
    types = {e["name"]: (e.get("config") or {}).get("model_type") for e in tables}
    if grids := [name for name, kind in types.items() if kind in GRIDS]:
        rest = "a frequency along them mixes rows and columns, and outliers may be a class token."
        sentences.append(f"The positions of {named(grids)} are patches of a picture, row after row: {rest}")
    if left := run.facts.get("left_out"):
        sentences.append(f"Without a position table, and so not here: {named(left)}.")
    return sentences


# ---- the heads of a model ----


def write_attention_page(
    path: Path, model: ExplorerModel, *, facts: Sequence[tuple[str, str]] = (), versions: Sequence[tuple[str, str]] = ()
) -> Path:
    """Write the page of what every head of a model looks at in its texts: the explorer alone; returns the path.

    facts: name and value of what should be said of the model. versions: packages and their numbers.

    Raises ValueError: there is no text, or not even one fits a page (10 MB).
    """
    explorer = replace(pack([model], ATTENTION_BUDGET), title="Heads and terms")
    maps = model.texts[0].maps
    layers, heads = maps["total"].shape[:2]
    lengths = sorted({len(text.tokens) for text in model.texts})
    tokens = f"{lengths[0]} tokens" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]} tokens"
    terms = [f"`{name}`" for name in maps if name != "total"]
    missing = model.missing
    if terms:
        missing = (
            f"The scores are the sum of {count(len(terms), 'term')} ({', '.join(terms)}); each has its own softmax "
            "over all keys, as in figure 3 of DSTG, and `total` is the softmax of the sum."
        )
    words = [
        "Attention is computed block by block from the scores before softmax, in at least single precision, without "
        f"dropout and without masked tokens. {missing}",
        f"A weight w of this page is wrong by at most 0.004, and by at most √w · {explorer.data['step']} / 255 where "
        "it is small. Rows are queries, columns are keys; tokens count from 0, layers from 1, heads from 0.",
    ]
    return write_page(
        path,
        Page(
            title=f"What each head of {model.name} looks at",
            summary=[count(layers, "layer"), count(heads, "head"), count(len(model.texts), "text"), tokens],
            explorer=explorer,
            how=How(words, facts=[("Model", list(facts))] if facts else (), versions=versions),
        ),
    )
