"""From corpora to a report on how much position matters in them: counts → distances → MDS, stress, violations → records
→ page (GEOM).

Counts are kept, so that a second run with other questions does not read the text again.
"""

import json
import os
import re
import shlex
import sys
import time
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from ..analysis.course import separation_records
from ..analysis.geometry import (
    CorpusDistances,
    Geometry,
    Plan,
    best_rank,
    corpus_geometry,
    encoding_tables,
    scatter,
    stands_out,
)
from ..analysis.matrices import bert_like, condition_records, scores_of_folder, scores_of_model
from ..analysis.tables import load_tables
from ..analysis.who import Who
from ..corpus import Source, build_tokenizer, count_source, load_tokenizer, open_source, tokenizer_hash
from ..encoder import Encoder, EncoderConfig
from ..files import read_json, write_array, write_arrays
from ..geometry import MIN_SUPPORT, Counts, hellinger, jackknife, mds_table, positional_distributions
from ..records import Record
from ..shipped import model_source
from ..training.checkpoints import quiet
from ..training.config import StrictConfig
from .geometry_words import model_summary, summary
from .jobs import show_progress
from .machine import machine
from .outputs import check_folder, write_results

CONFIG, FACTS = "geometry.yaml", "geometry.json"
_NAMED = re.compile(r"([^=/:]+)=(.+)")  # NAME=SPEC, no slash or colon in the name
_UNFIT = re.compile(r"[^\w.+-]")  # characters of a corpus's name that its files do not get
WITHOUT_CLS = ("gpt2", "opt", "gpt_neo", "gptj", "vit_mae")  # read text from row 0 on, the others from row 1
DRAWN = 3  # columns of coordinates that a figure needs


class GeometryConfig(StrictConfig):
    """Which corpora, how they are counted, and what is measured on them."""

    corpora: list[str] = Field(
        default_factory=lambda: ["python-docs"], min_length=1, description="corpora, each SPEC or NAME=SPEC"
    )
    field: list[str] = Field(
        default_factory=lambda: ["text"], description="field of the text in tables: one for all, or one a corpus"
    )
    phrases: bool = Field(
        False, description="documents inside longer ones share their group (phrases of a sentence); holds all texts"
    )
    document: str = Field("auto", description="what a document of a text file is: file, heading, blank-line, line")
    tokenizer: str | None = Field(
        None, description="vocabulary file, folder, Hub name, words or characters; none: train a WordPiece"
    )
    vocab_size: int | None = Field(
        None, ge=8, description="entries of a tokenizer to make; none: 4,096 pieces, 50,000 words"
    )
    positions: int = Field(128, ge=3, description="positions counted, without special tokens")
    align: Literal["start", "relative"] = Field(
        "start", description="position from the start of a document, or its place in equal parts"
    )
    protocol: Literal["default", "paper"] = Field(
        "default", description="paper: all positions, smoothed, nothing corrected, as GEOM"
    )
    min_support: float = Field(MIN_SUPPORT, ge=1, description="tokens that a position needs to be kept")
    groups: int = Field(32, ge=2, description="groups of documents that are left out in turn for intervals")
    splits: int = Field(10, ge=1, description="random halves for the corrected distances")
    intervals: bool = Field(True, description="95 % intervals: a pass for each group of documents")
    smacof: bool = Field(True, description="tables of least stress beside classical MDS")
    width: int = Field(768, ge=2, description="width of the encodings compared")
    heads: int = Field(12, ge=1, description="heads of ALiBi")
    dims: list[int] = Field(
        default_factory=lambda: [16, 32, 64, 128, 256, 512, 768], description="widths of the curve of stress"
    )
    ranks: list[int] = Field(default_factory=lambda: [1, 2, 3, 7], description="ranks of the MDS tables")
    rank: int | None = Field(
        None, ge=1, description="rank of the table that is written; none: of least stress on held-out documents"
    )
    tables: list[str] = Field(
        default_factory=list, description="further tables: .npy files, model folders, Hub names, reference"
    )
    first_row: int | None = Field(
        None, ge=0, description="row of position 0 in them; none: 1, after [CLS], and 0 for GPT-2 and OPT"
    )
    models: list[str] = Field(
        default_factory=list, description="runs whose tables are measured at every checkpoint, or reference"
    )
    seed: int = Field(0, description="of random halves and the random table")
    workers: int | None = Field(None, ge=1, description="processes that count; none: one a core for large corpora")

    @field_validator("corpora", "field", "tables", "models", "dims", "ranks", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """One value stands for a list of it, and numbers may come with commas."""
        if isinstance(value, str) and re.fullmatch(r"\s*\d+(\s*,\s*\d+)*\s*", value):
            return [int(number) for number in value.split(",")]
        return value if isinstance(value, list | tuple) else [value]

    @model_validator(mode="after")
    def _check(self) -> "GeometryConfig":
        if len(self.field) not in (1, len(self.corpora)):
            raise ValueError(
                f"{len(self.field)} fields for {len(self.corpora)} corpora. Give one for all, or one for each."
            )
        if wrong := [d for d in (*self.dims, *self.ranks) if d < 1]:
            raise ValueError(f"dims and ranks are at least 1; got {wrong[0]}.")
        if self.width % min(64, self.width) or self.width % 2:
            raise ValueError(
                f"width must be a multiple of 64, or even and below 64 (RoPE's head); got {self.width}. For example "
                "768."
            )
        return self

    def sources(self) -> dict[str, Source]:
        """The corpora by name, names made different."""
        found: dict[str, Source] = {}
        for i, spec in enumerate(self.corpora):
            named = None if Path(spec).exists() else _NAMED.fullmatch(spec)
            source = open_source(named[2] if named else spec, self.field[i % len(self.field)], self.document)
            name = wanted = named[1] if named else source.name
            number = 2
            while name in found:
                name, number = f"{wanted}-{number}", number + 1
            found[name] = source
        return found


def run_geometry(config: GeometryConfig, out: Path, progress: bool = True) -> dict[str, Any]:
    """Measure every corpus of `config` and write records, arrays, tables and report.html to `out`.

    Returns:
        What `--json` prints: for each corpus its facts and summary, and the path of the report.

    Raises:
        ValueError: a corpus or table that cannot be read, or a corpus without a geometry; nothing of an earlier run is
        lost.
    """
    began, started = time.perf_counter(), time.strftime("%Y-%m-%d %H:%M")
    sources, plan = config.sources(), _plan(config)
    encodings = encoding_tables(plan, config.positions)  # a table too short is refused before anything is counted
    for run in config.models:
        _check_model(Path(model_source(run)))
    _claim(config, out)
    tokenizer = _tokenizer(config, sources)
    for run in config.models:
        _check_vocabulary(Path(model_source(run)), tokenizer)
    records: list[Record] = []
    facts: list[dict[str, Any]] = []
    measured: dict[str, tuple[Counts, Geometry]] = {}
    stems = {name: _UNFIT.sub("-", name) for name in sources}
    counted = {
        name: _counts(config, s, tokenizer, out / "counts" / f"{stems[name]}.npz", progress)
        for name, s in sources.items()
    }
    if os.environ.get("RANK", "0") != "0":  # processes of a launcher count together; the first one measures
        return {"out": str(out), "report": None, "corpora": [], "models": []}
    for name, counts in counted.items():
        stem = stems[name]
        with show_progress(name, progress) as show:
            found = corpus_geometry(counts, plan, show)
        measured[name] = counts, found
        table = _write_table(config, found, out / "tables" / f"{stem}-mds.npy")
        records += geometry_records(Who(name, study=out.name), counts, found)
        ranks = [*config.ranks, *([config.rank] if config.rank else [])]
        sentences = summary(found, config.positions, config.width, config.min_support, ranks, table)
        facts.append({**_facts(config, name, counts, found), "file": stem, "table": table, "summary": sentences})
        cloud = scatter(found, encodings, config.seed)
        save_geometry_arrays(out / "arrays" / f"geometry-{stem}.npz", found, cloud)
    records += _between(out.name, measured, config.intervals and config.protocol == "default")
    first = next(iter(measured.values()))
    records += _model_records(config, out.name, *first)
    models = [
        {"name": Path(run).name, "folder": run, "summary": model_summary(records, Path(run).name)}
        for run in config.models
    ]
    about = {
        "title": f"Positions in {', '.join(sources)}",
        "protocol": config.protocol,
        "corpora": facts,
        "models": models,
        "command": shlex.join(["whatwhere", *sys.argv[1:]]) if sys.argv[0].endswith("whatwhere") else None,
        "started": started,
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
        "settings": config.model_dump(mode="json"),
    }
    report = write_results(out, records, FACTS, about)
    return {"out": str(out), "report": str(report), "corpora": facts, "models": models}


def _claim(config: GeometryConfig, out: Path) -> None:
    """Take a folder that is new, empty, or holds a geometry run, whose results are replaced and whose counts are used
    again."""
    check_folder(out, (out / CONFIG).is_file(), "geometry run")
    kept = out / CONFIG
    if (out / FACTS).is_file() and kept.is_file() and kept.read_text(encoding="utf-8") != config.as_yaml():
        print(
            f"{out} holds a run of other settings: its results are replaced, its counts used again where they fit.",
            file=sys.stderr,
        )
    config.save(kept)


def _check_model(folder: Path) -> None:
    """Refuse early what is no model, a run whose model keeps no position table, or a model of another package whose
    matrices are not found."""
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"No finished model at {folder}: config.json is missing. Give the folder of a pretraining or fine-tuning."
        )
    about = read_json(folder / "config.json")
    if about.get("model_type") != EncoderConfig.model_type:
        bert_like(folder)
    elif about.get("absolute") == "none":
        raise ValueError(
            f"{folder} has no position table: its scheme keeps no position in the input. Give an ap or dstg model."
        )


def _check_vocabulary(folder: Path, tokenizer: Any) -> None:
    """Refuse a model whose token ids are other words than those that are counted; one saved without its tokenizer can
    only be asked for their number, later."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json")):
        return
    if load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
        raise ValueError(
            f"The corpora would be counted with another vocabulary than that of {folder}, so their ids are other words "
            "than the model's. Leave --tokenizer out, and measure models of different vocabularies one by one."
        )


def _plan(config: GeometryConfig) -> Plan:
    return Plan(
        paper=config.protocol == "paper",
        min_support=config.min_support,
        width=config.width,
        dims=tuple(sorted(set(config.dims))),
        ranks=tuple(sorted(set(config.ranks))),
        heads=config.heads,
        tables=_tables(config),
        splits=config.splits,
        intervals=config.intervals,
        use_smacof=config.smacof,
        seed=config.seed,
    )


def _tokenizer(config: GeometryConfig, sources: dict[str, Source]) -> Any:
    """As configured; else that of the first model; else a WordPiece trained on the corpora, taken in turns."""
    spec = config.tokenizer or (config.models[0] if config.models else None)
    turns = zip_longest(*sources.values())
    return build_tokenizer(spec, (text for texts in turns for text in texts if text is not None), config.vocab_size)


def _tables(config: GeometryConfig) -> dict[str, np.ndarray]:
    """Tables to compare, row i of position i."""
    if not config.tables:
        return {}
    found, left_out = load_tables(config.tables)
    if left_out:
        raise ValueError(
            f"{left_out[0]} has no position table, so it has no distances to compare. Leave it out of --table."
        )
    starts = [int(t.config.get("model_type") not in WITHOUT_CLS) for t in found]
    starts = starts if config.first_row is None else [config.first_row] * len(found)
    return {t.name: t.rows[start:] for t, start in zip(found, starts, strict=True)}


def _counts(config: GeometryConfig, source: Source, tokenizer: Any, path: Path, progress: bool) -> Counts:
    """Counts of a corpus: those of an earlier run in the same folder if they are of the same text and settings."""
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1  # then all must count, whatever file one of them finds
    sha = tokenizer_hash(tokenizer)
    if path.is_file() and not launched:
        kept = Counts.load(path)
        text = json.loads(json.dumps([{"name": source.name, **source.fingerprint()}]))
        now = config.positions, config.groups, config.align, text, sha, config.phrases
        facts = (kept.facts.get(key) for key in ("corpora", "tokenizer_sha256", "phrases"))
        if (kept.positions, kept.groups, kept.align, *facts) == now:
            return kept
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = count_source(
        source,
        tokenizer,
        config.positions,
        align=config.align,
        groups=config.groups,
        phrases=config.phrases,
        workers=config.workers,
        progress=progress,
    )
    if os.environ.get("RANK", "0") == "0":
        counts.save(path)
    return counts


def _write_table(config: GeometryConfig, found: Geometry, path: Path) -> dict[str, Any] | None:
    """The corpus-optimal table as a file for a model; None where position 0 is not supported or nothing stands out of
    chance."""
    if config.align != "start" or found.distributions.positions[0] != 0 or not stands_out(found):
        return None
    mds = found.mds_corrected or found.mds
    rank = min(config.rank or best_rank(found) or mds.coords.shape[1], mds.coords.shape[1])
    table = mds_table(mds.coords, found.distributions.positions, rank)
    write_array(path, table)
    corrected = found.mds_corrected is not None
    return {"file": f"tables/{path.name}", "rows": len(table), "rank": rank, "corrected": corrected}


def geometry_records(who: Who, counts: Counts, found: Geometry) -> list[Record]:
    """Sizes, support and every statistic of a corpus, whose name is the model's."""
    kept = found.distributions
    rows = len(kept.positions)
    return [
        who.record("corpus.documents", counts.documents.sum()),
        who.record("corpus.tokens", kept.support.sum()),
        who.record("positions.kept", rows, n=counts.positions),
        *who.records("support", kept.support, {"index": range(len(kept.support))}),
        *(who.record(s.metric, s.value, s.low, s.high, part=s.part, index=s.index, n=rows) for s in found.statistics),
    ]


def _between(study: str, measured: dict[str, tuple[Counts, Geometry]], intervals: bool) -> list[Record]:
    """Hellinger distances of two corpora at the positions that both support, as counted, with their intervals."""
    records, who = [], Who("", study=study)
    names = list(measured)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            p, q = (measured[name][1].distributions for name in (a, b))
            both, rows, others = np.intersect1d(p.positions, q.positions, return_indices=True)
            if not len(both):
                continue
            ours, theirs = p.p[rows], q.p[others]
            half = np.full(len(both), np.nan)
            if intervals:
                sides = (_half_interval(measured[a][0], both, theirs), _half_interval(measured[b][0], both, ours))
                half = np.hypot(*sides)
            for at, d, h in zip(both, hellinger(ours, theirs), half, strict=True):
                low, high = (None, None) if np.isnan(h) else (float(d - h), float(d + h))
                records.append(who.record("between", d, low, high, part=f"{a}|{b}", index=int(at)))
    return records


def _half_interval(counts: Counts, positions: np.ndarray, others: Any) -> np.ndarray:
    """Half 95 % interval of the distances to other distributions, over groups of documents; NaN where one group holds a
    whole position."""
    groups = [counts.group(g)[positions] for g in range(counts.groups) if counts.documents[g]]
    support = np.array([group.sum(axis=1) for group in groups])
    if len(groups) < 2 or (support.sum(axis=0) - support).min() == 0:
        return np.full(len(positions), np.nan)
    found = jackknife(groups, lambda left: hellinger(positional_distributions(left, min_support=0).p, others))
    return np.asarray((found.high - found.low) / 2)


def _model_records(config: GeometryConfig, study: str, counts: Counts, found: Geometry) -> list[Record]:
    """Separation of each run's table at every checkpoint against the first corpus, and conditions H1 and H3 of its
    model."""
    records: list[Record] = []
    corpus = CorpusDistances(
        found.dist, found.distributions.positions, found.corrected.distances if found.corrected else None
    )
    halves = _halves(counts, found.distributions.positions, config) if config.models else []
    for run in config.models:
        folder = Path(model_source(run))
        who = Who(folder.name, study=study)
        if (folder / "checkpoints").is_dir():
            records += separation_records(folder, who, corpus=corpus)
        if read_json(folder / "config.json").get("model_type") == EncoderConfig.model_type:
            with quiet():
                scores = scores_of_model(Encoder.from_pretrained(folder, local_files_only=True))
        else:
            scores = scores_of_folder(folder)
        records += condition_records(scores, found.distributions.p, who, halves=halves)
    return records


def _halves(counts: Counts, positions: np.ndarray, config: GeometryConfig) -> list[tuple[Any, Any]]:
    """Distributions of two random halves of the documents at the positions, for each split."""
    rng = np.random.default_rng(config.seed)
    filled = np.flatnonzero(counts.documents)
    halves = []
    for _ in range(config.splits):
        order = rng.permutation(filled)
        parts = [counts.of(half.tolist())[positions] for half in np.array_split(order, 2)]
        if all(part.sum(axis=1).all() for part in parts):
            halves.append(tuple(positional_distributions(part, min_support=0).p for part in parts))
    return halves


def save_geometry_arrays(path: Path, found: Geometry, more: dict[str, np.ndarray]) -> None:
    """What the figures of a corpus are drawn from, as an .npz, whole or not at all."""
    kept = found.distributions
    lags = np.abs(kept.positions[:, None] - kept.positions)
    lag = np.arange(1, int(lags.max()) + 1)
    lag = lag[np.isin(lag, lags)]

    def mean_at(squares: np.ndarray) -> np.ndarray:
        means = np.array([squares[lags == k].mean() for k in lag])
        return np.asarray(np.sign(means) * np.sqrt(np.abs(means)))

    arrays: dict[str, np.ndarray] = {
        "positions": kept.positions,
        "support": kept.support,
        "left_out": kept.left_out,
        "distance": found.dist.astype(np.float32),
        "eigenvalues": found.mds.eigenvalues,
        "coords": found.mds.coords[:, :DRAWN],
        "lag": lag,
        "lag_mean": mean_at(found.dist**2),
        **more,
    }
    if found.dist_half is not None:
        arrays["distance_half"] = found.dist_half.astype(np.float32)
    if found.corrected is not None:
        arrays |= {
            "corrected": found.corrected.signed.astype(np.float32),
            **{key: getattr(found.corrected, key) for key in ("floor", "floor_low", "floor_high")},
            "lag_mean_corrected": mean_at(found.corrected.squares),
        }
    if found.mds_corrected is not None:
        arrays |= {
            "eigenvalues_corrected": found.mds_corrected.eigenvalues,
            "coords_corrected": found.mds_corrected.coords[:, :DRAWN],
        }
    if found.squares_half is not None:
        arrays["corrected_squares_half"] = found.squares_half.astype(np.float32)
    write_arrays(path, arrays)


def _facts(config: GeometryConfig, name: str, counts: Counts, found: Geometry) -> dict[str, Any]:
    return {
        "name": name,
        "documents": int(counts.documents.sum()),
        "tokens": int(found.distributions.support.sum()),
        "positions_asked": config.positions,
        "positions_kept": len(found.distributions.positions),
        "left_out": [int(p) for p in found.distributions.left_out],
        "align": config.align,
        "source": counts.facts.get("corpora"),
        "statistics": [{key: value for key, value in asdict(s).items() if value is not None} for s in found.statistics],
    }
