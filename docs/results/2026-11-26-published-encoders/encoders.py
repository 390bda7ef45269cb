"""Where published encoders keep position: from models to records, tables and a comparison with what papers print.

    python encoders.py --out FOLDER --text TEXT [--corpus NAME=FILE:FIELD:POSITIONS[:phrases] ...] [--hub] [MODEL ...]

MODEL is a folder, a name on the Hub, NAME=FOLDER or NAME=HUB-NAME; --hub stands for five names on the Hub. For each
model the records have, by `part` of this file:

- tables: shapes of its position and word tables (LOWDIM);
- probes: R² of position, segment and progress in a segment by layer, and sentences in the states, beside the same
  architecture with weights drawn anew (`step` 0, `seed` the seed of the drawing);
- heads: patterns of every head (TUPE 4.4), of the position-position correlation in the first block (study
  "position-position") and of the mean attention between positions in every block (study "attention");
- corpora: stress, order and separation of its table against corpora, and stress behind the matrices of every block,
  beside weights drawn anew (GEOM 6; study: the corpus, or "CORPUS, paper" by the paper's own protocol);
- length: vectors of texts of twice the table by a copy with a continued table (study "length").

The tables go to stdout as Markdown; a model that lacks what a part measures is told on stderr, and the rest goes on.
A model of which FOLDER has records of a part is not measured again for that part; a part that failed is tried again.
Of models that expected.json names, a table holds what the papers print beside what was measured.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.analysis.attention_weights import attention_weights
from whatwhere.analysis.corpus_geometry import CorpusDistances, Plan, corpus_geometry
from whatwhere.analysis.correlations import correlation_records
from whatwhere.analysis.hidden import SentenceMaps
from whatwhere.analysis.matrices import condition_records, projection_records, scores_of_model
from whatwhere.analysis.passes import choose_windows, read
from whatwhere.analysis.patterns import MeanScores, counted_tokens, pattern_records
from whatwhere.analysis.position_tables import noise_records, table_records, word_records
from whatwhere.analysis.probes import probe_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.corpus import count_source, open_source
from whatwhere.geometry import monotonicity_violations, positional_distributions
from whatwhere.geometry.distances import distances
from whatwhere.length.extension import extend
from whatwhere.length.long_documents import long_texts
from whatwhere.length.vectors import vector_records
from whatwhere.models.lengths import max_tokens
from whatwhere.models.open import open_model
from whatwhere.models.table_sources import POSITIONS, load_tables
from whatwhere.records.record import Record, read_records, select, write_records
from whatwhere.run.hub import fetch_model
from whatwhere.run.reference import model_source
from whatwhere.study.model_windows import model_windows

STUDY = "published-encoders"
HUB = (
    "bert-base-uncased",
    "albert-base-v2",
    "roberta-base",
    "google/electra-base-discriminator",
    "answerdotai/ModernBERT-base",
)
TOKENIZER = ("tokenizer*.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model")
TARGETS = {"r2.token": "position", "r2.segment": "segment", "r2.intra": "progress in a segment"}
EXPECTED = Path(__file__).with_name("expected.json")
KEPT = ("own", "sinusoidal", "random", "corpus", None)  # tables whose statistics on a corpus are kept
TINY = 1e-12  # weight of a pair of positions that no head looks along


@dataclass(frozen=True)
class Corpus:
    """A corpus with positions to compare: GEOM cuts SST-2 at 128 and IMDB at 256 tokens."""

    name: str
    file: str
    field: str
    positions: int
    phrases: bool = False

    @staticmethod
    def parse(spec: str) -> "Corpus":
        """Read NAME=FILE:FIELD:POSITIONS, with `:phrases` where documents stand inside longer ones, as SST-2's do.

        Raises:
            argparse.ArgumentTypeError: another form.
        """
        name, equals, rest = spec.removesuffix(":phrases").partition("=")
        file, *others = rest.rsplit(":", 2)
        if not equals or len(others) != 2 or not others[1].isdigit():
            form = "NAME=FILE:FIELD:POSITIONS, as sst-2=train.tsv:sentence:128"
            raise argparse.ArgumentTypeError(f"a corpus is {form}; got {spec!r}")
        return Corpus(name, file, others[0], int(others[1]), spec.endswith(":phrases"))


@dataclass(frozen=True)
class Subject:
    """A model to measure, by the name of its records and its folder, and how."""

    name: str
    source: str
    options: argparse.Namespace

    @property
    def who(self) -> RecordContext:
        """Context of the records of the model."""
        return RecordContext(self.name, None, STUDY)

    def opened(self, **how: Any) -> Any:
        """Open the bare encoder with attention that gives its weights."""
        return open_model(self.source, attention="eager", **how)

    def drawn(self) -> list[tuple[int, Any]]:
        """Return the same architecture with weights drawn anew, by seed."""
        return [(seed, self.opened(untrained=True, seed=seed).model) for seed in range(self.options.drawn)]


def of_tables(subject: Subject) -> list[Record]:
    """Measure the shapes of a model's position and word table (LOWDIM table 1, figures 4 and 5)."""
    records = []
    for table in load_tables([subject.source], words=True)[0]:
        if table.kind == POSITIONS:
            records += table_records(table.rows, subject.who)[0] + noise_records(table.rows, subject.who)
        else:
            records += word_records(table.rows, subject.who)[0]
    return records


def of_probes(subject: Subject) -> list[Record]:
    """Measure R² of position by layer, and sentences in the states, of the model and of weights drawn anew."""
    options = subject.options
    opened = subject.opened()
    models = [(subject.who, opened.model)]
    models += [(replace(subject.who, seed=seed, step=0), model) for seed, model in subject.drawn()]
    given = (opened.model, opened.tokenizer, opened.folder, options.text, options.field, options.documents, False)
    records = []
    with model_windows(*given, length=options.length) as (windows, _):
        held_out = windows["held_out"]
        some = choose_windows(held_out, options.pictured)
        for who, model in models:
            records += probe_records(model, held_out, who, windows=options.documents, splits=options.splits)
            sentences = SentenceMaps(model)
            read(model, some, [sentences])
            records += sentences.records(who)
    return records


def of_heads(subject: Subject) -> list[Record]:
    """Name the pattern of every head: in the first block without content, in all blocks by the mean attention."""
    options = subject.options
    opened = subject.opened()
    model = opened.model
    given = (model, opened.tokenizer, opened.folder, options.text, options.field, options.pictured, False)
    records = []
    with model_windows(*given, length=options.length) as (windows, _):
        windows = choose_windows(windows["held_out"], options.pictured)
    try:
        records += correlation_records(model, windows, replace(subject.who, run_name="position-position"))[0]
    except ValueError as error:
        tell(f"{subject.name}: position-position: left out. {error}")
    means: list[MeanScores] = []
    for batch, attentions in attention_weights(model, windows, batch_size=4):
        means = means or [MeanScores() for _ in attentions]
        for mean, weights in zip(means, attentions, strict=True):
            mean.add(weights, counted_tokens(batch))
    scores = np.log(np.maximum(np.stack([mean.mean() for mean in means]), TINY))
    return records + pattern_records(scores, replace(subject.who, run_name="attention"), n=windows.document_count)


def of_corpora(subject: Subject) -> list[Record]:
    """Measure a model's table and its blocks' matrices against corpora (GEOM 6.3 to 6.8)."""
    opened = subject.opened()
    tables = attempt(subject, "table against corpora", lambda: load_tables([subject.source])[0])
    drawn = subject.drawn()
    records = []
    for corpus in subject.options.corpus:
        source = open_source(corpus.file, corpus.field)
        how: dict[str, Any] = {"phrases": corpus.phrases, "workers": 1, "progress": False}
        counts = count_source(source, opened.tokenizer, corpus.positions, **how)
        rows = [table.rows[1 : corpus.positions + 1] for table in tables]  # row 0 is [CLS]'s; [] without a table
        own = dict(zip(["own"], rows, strict=False))
        for paper in (True, False):
            who = replace(subject.who, run_name=f"{corpus.name}{', paper' if paper else ''}")
            plan = Plan(follows_paper=paper, dims=(), ranks=(3,), tables=own, use_smacof=False, intervals=not paper)
            geometry = corpus_geometry(counts, plan)
            positions = geometry.distributions.positions
            for s in geometry.statistics:
                if s.part in KEPT:
                    records.append(
                        who.record(s.metric, s.value, s.low, s.high, part=s.part, index=s.index, n=len(positions))
                    )
            corrected = None if geometry.corrected is None else geometry.corrected.distances
            seen = CorpusDistances(geometry.dist, positions, corrected)
            for context, model in [(who, opened.model), *((replace(who, seed=k, step=0), m) for k, m in drawn)]:
                records += attempt(subject, "stress by layer", partial(projection_records, model, seen, context))
            for rows in (of[positions] for of in own.values()):
                records.append(who.record("separation", nearest(rows), part="corpus", n=len(rows)))
        halves = halves_of(counts, positions)
        scores = attempt(subject, "H1 and H3", lambda: [scores_of_model(opened.model)])
        for given in scores:
            records += condition_records(given, geometry.distributions.p, who, halves=halves)
        who = replace(subject.who, run_name=f"{corpus.name}, first rows")
        for whole in (table.rows[: corpus.positions] for table in tables):  # the paper's 128 rows, [CLS]'s among them
            records.append(who.record("separation", nearest(whole), n=len(whole)))
            records.append(who.record("violations", monotonicity_violations(whole), n=len(whole)))
    return records


def nearest(rows: np.ndarray) -> float:
    """Return the smallest distance of two rows of a table."""
    return float(distances(rows)[np.triu_indices(len(rows), 1)].min())


def halves_of(counts: Any, positions: np.ndarray) -> list[tuple[Any, Any]]:
    """Return the distributions at some positions of two random halves of a corpus, for five splits."""
    halves = []
    for split in range(5):
        order = np.random.default_rng(split).permutation(np.flatnonzero(counts.documents))
        parts = [counts.of(half.tolist())[positions] for half in np.array_split(order, 2)]
        if all(part.sum(axis=1).all() for part in parts):
            halves.append(tuple(positional_distributions(part, min_support=0).p for part in parts))
    return halves


def of_length(subject: Subject) -> list[Record]:
    """Measure what a copy with a continued table keeps of the vectors of texts of twice the table."""
    options = subject.options
    opened = subject.opened()
    most = max_tokens(opened.model.config)
    if most is None:
        raise ValueError(f"{subject.name} reads texts of any length.")
    folder = options.out / "longer" / subject.name
    for method in options.method:
        if not (folder / method).exists():
            extend(subject.source, folder / method, 2 * most, method)
    room = 2 * most - 2
    source = open_source(options.long_text or options.text, options.field)
    texts, _ = long_texts(source, opened.tokenizer, 2 * room + 2, options.long)
    who = replace(subject.who, run_name="length")
    records = []
    for method in options.method:
        longer = open_model(folder / method).model
        records += vector_records(opened.model, longer, texts, most, method, who)
    return list(dict.fromkeys(records))


PARTS: dict[str, Callable[[Subject], list[Record]]] = {
    "tables": of_tables,
    "heads": of_heads,
    "corpora": of_corpora,
    "probes": of_probes,
    "length": of_length,
}


def attempt(subject: Subject, what: str, measure: Callable[[], list[Any]]) -> list[Any]:
    """Return what `measure` returns; nothing, and a line on stderr, where the model lacks what it measures."""
    try:
        return measure()
    except ValueError as error:
        tell(f"{subject.name}: {what}: left out. {error}")
        return []


def subjects_of(options: argparse.Namespace) -> Iterator[Subject]:
    """Yield the models that the command line names, those of the Hub from its cache; one that is not there is told."""
    for given in [*options.models, *(HUB if options.hub else ())]:
        name, equals, source = given.partition("=")
        source = model_source(source if equals else given)
        try:
            folder = str(fetch_model(source, ("config.json", "*.safetensors", *TOKENIZER), ["*/*"]))
        except ValueError as error:
            tell(f"{given}: left out. {error}")
            continue
        yield Subject(name if equals else Path(given).name, folder, options)


def tell(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)


def compared(records: Sequence[Record], expected: Sequence[dict[str, Any]]) -> list[str]:
    """Return a Markdown table of what the papers print beside what was measured; nothing without a common model.

    An entry of `expected` has the model, its place in a paper, the columns of its records (`metric` and others), the
    printed `value`, and `within`, how far a measurement of the same thing may be from it: half of the last digit
    printed, more where the paper gives a round number. Of several records, such as peaks, the nearest counts; where the
    paper only says that there is one, `value` is null.
    """
    known = {r.model for r in records}
    lines = ["| model | what | printed | measured | agrees |", "| --- | --- | ---: | ---: | --- |"]
    for entry in expected:
        if entry["model"] not in known:
            continue
        place = {"study": STUDY, "step": None, "seed": None} | entry["record"]
        values = [r.value for r in select(records, model=entry["model"], **place)]
        printed = entry["value"]
        nearest = min(values, key=lambda value: abs(value - (printed or 0.0)), default=None)
        if nearest is None:
            agrees = "not measured" if printed is not None else "no"
        else:
            agrees = "yes" if printed is None or abs(nearest - printed) <= entry["within"] + TINY else "no"
        cells = ["there" if printed is None else f"{printed:g}", "–" if nearest is None else f"{nearest:.4g}"]
        lines.append(_row([entry["model"], entry["source"], *cells, agrees]))
    return lines if len(lines) > 2 else []


def said(record: Record | None, digits: int = 2) -> str:
    """Write a value with its interval; "–" for none."""
    if record is None:
        return "–"
    bounds = ""
    if record.low is not None and record.high is not None:
        bounds = f" [{record.low:.{digits}f}, {record.high:.{digits}f}]"
    return f"{record.value:.{digits}f}{bounds}"


def one(records: Sequence[Record], **columns: Any) -> Record | None:
    """Return the only record of a place, or None."""
    found = select(records, **({"index": None, "head": None} | columns))
    return found[0] if len(found) == 1 else None


def shown(records: Sequence[Record]) -> list[str]:
    """Return the tables of all models as lines of Markdown: probes by layer, tables, corpora, patterns, length."""
    lines: list[str] = []
    for model in dict.fromkeys(r.model for r in records):
        here = [r for r in records if r.model == model]
        lines += ["", f"## {model}", *_probes(here), *_tables(here), *_corpora(here), *_patterns(here), *_length(here)]
    return lines


def _probes(records: list[Record]) -> list[str]:
    layers = sorted({r.layer for r in records if r.metric == "r2.token" and r.layer is not None})
    if not layers:
        return []
    (documents,) = {r.value for r in records if r.metric == "probe.documents"} or {0}
    heads = [head for name in TARGETS.values() for head in (name, "drawn anew")]
    lines = ["", f"R² of probes, {documents:.0f} documents", "", _row(["layer", *heads, "sentences", "drawn anew"])]
    lines.append("| ---: |" + " ---: |" * (len(heads) + 2))
    for layer in layers:
        cells = []
        for metric in (*TARGETS, "sentences.excess"):
            cells += [said(one(records, metric=metric, part="all", layer=layer, step=None))]
            drawn = [r.value for r in select(records, metric=metric, part="all", layer=layer, step=0, index=None)]
            cells += [f"{np.mean(drawn):.2f}" if drawn else "–"]
        lines.append(_row([str(layer), *cells]))
    return lines


def _tables(records: list[Record]) -> list[str]:
    if one(records, metric="pca.top3", part=None) is None:
        return []
    cells = []
    for part in (None, "words"):
        tops = [said(one(records, metric=f"pca.top{k}", part=part)) for k in (3, 5, 10)]
        n50 = one(records, metric="n50.count", part=part)
        cells.append(f"top 3, 5, 10: {', '.join(tops)}; N50 {'–' if n50 is None else f'{n50.value:.0f}'}")
    turns = [f"{r.part} {r.value:.1f}" for r in records if r.metric == "rotation.turns"]
    peaks = [f"{r.value:.0f}" for r in records if r.metric == "fft.peak"]
    alone = [f"{r.index}" for r in records if r.metric == "outlier"]
    equal = said(one(records, metric="equivariance"))
    return [
        "",
        f"- positions: {cells[0]}; words: {cells[1]}",
        f"- pairs that rotate, turns: {', '.join(turns) or 'none'}; dominant turns: {', '.join(peaks) or 'none'}",
        f"- share of E·Eᵀ explained by the distance {equal}; rows alone: {', '.join(alone) or 'none'}",
    ]


def _corpora(records: list[Record]) -> list[str]:
    lines: list[str] = []
    for study in dict.fromkeys(r.study for r in records if r.metric == "stress.optimal" and r.part == "sinusoidal"):
        here = [r for r in records if r.study == study]
        tables = [f"{p} {said(one(here, metric='stress.optimal', part=p), 3)}" for p in ("own", "sinusoidal", "random")]
        order = said(one(here, metric="violations", part="own"), 3)
        close = said(one(here, metric="correlation", part="own"))
        near = said(one(here, metric="separation", part="corpus"), 3)
        lines.append(f"- {study}: stress at the best scale {', '.join(tables)}")
        lines.append(f"  - own table: out of order {order}; correlation {close}; nearest rows {near}")
        for part in ("sinusoidal", "own"):
            by_layer = select(here, metric="projected.stress.raw", part=part, step=None)
            if by_layer:
                lines.append(
                    f"  - raw stress behind M by layer, {part}: {', '.join(f'{r.value:.4g}' for r in by_layer)}"
                )
    return [""] * bool(lines) + lines


def _patterns(records: list[Record]) -> list[str]:
    lines = []
    for study in ("position-position", "attention"):
        shares = select(records, study=study, metric="patterns.share")
        if shares:
            lines.append(f"- heads by {study}: {', '.join(f'{r.part} {r.value:.0%}' for r in shares)} of {shares[0].n}")
    return [""] * bool(lines) + lines


def _length(records: list[Record]) -> list[str]:
    lines = []
    for metric in ("length.cosine", "length.found", "length.lost"):
        found = select(records, metric=metric)
        if found:
            lines.append(f"- {metric}: {', '.join(f'{r.part} {said(r, 3)}' for r in found)} of {found[0].n} texts")
    return [""] * bool(lines) + lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--hub", action="store_true", help=f"measure {', '.join(HUB)} as well")
    parser.add_argument("--out", type=Path, required=True, help="folder of the records and of the longer copies")
    parser.add_argument("--text", required=True, help="documents that the models read")
    parser.add_argument("--field", default="text")
    parser.add_argument("--long-text", help="text with more long documents, for the part length [--text]")
    parser.add_argument("--corpus", action="append", type=Corpus.parse, default=[], metavar="SPEC")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to measure, with commas [%(default)s]")
    parser.add_argument("--documents", type=int, default=500, help="documents that are probed [%(default)s]")
    parser.add_argument("--pictured", type=int, default=100, help="documents for heads and sentences [%(default)s]")
    parser.add_argument("--length", type=int, help="tokens of a document [all that the model reads, at most 512]")
    parser.add_argument("--splits", type=int, default=5, help="splits of the documents for probes [%(default)s]")
    parser.add_argument("--drawn", type=int, default=1, help="seeds of weights drawn anew [%(default)s]")
    parser.add_argument("--long", type=int, default=200, help="texts of twice the table [%(default)s]")
    parser.add_argument("--method", action="append", help="ways to continue a table, repeated [cyclic]")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="what papers print")
    options = parser.parse_args(arguments)
    options.method = options.method or ["cyclic"]
    if not (options.models or options.hub):
        parser.error("no model; give MODEL or --hub")
    if unknown := [part for part in options.parts.split(",") if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}; parts are {', '.join(PARTS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every model that the command line names, and print the tables."""
    options = options_of(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    every: list[Record] = []
    for subject in subjects_of(options):
        for part in options.parts.split(","):
            file = options.out / f"{subject.name}-{part}.parquet"
            if file.exists():
                every += read_records(file)
                continue
            tell(f"{subject.name}: {part}")
            if measured := attempt(subject, part, partial(PARTS[part], subject)):
                write_records(file, measured)
                every += measured
    write_records(options.out / "records.parquet", every)
    print("\n".join([*shown(every), "", *compared(every, json.loads(options.expected.read_text("utf-8")))]))


if __name__ == "__main__":
    main()
