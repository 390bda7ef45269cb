"""Geometry of positions in corpora (GEOM): counts → distances → MDS, stress, violations → records → page.

Counts are kept, so that a second command in the folder, with other questions, does not count the text again.
"""

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.corpus_geometry import (
    Geometry,
    Plan,
    best_rank,
    corpus_geometry,
    encoding_tables,
    scatter,
    stands_out,
)
from ..analysis.record_context import RecordContext
from ..corpus import Source, build_tokenizer, count_source, tokenizer_hash
from ..geometry import Counts, hellinger, jackknife, mds_table, positional_distributions
from ..geometry.distances import name_text_in_errors
from ..models.model_tables import WITHOUT_CLS
from ..models.open import name_and_seed
from ..models.table_sources import load_tables
from ..records.record import Arrays, Record
from ..run.cluster import Cluster, connect
from ..run.files import remove_folder
from ..run.folder import RunFolder
from ..run.jobs import progress_by_part
from ..run.names import RESULTS_STEP
from ..run.progress import progress_bar
from ..run.reference import model_source
from ..training.scheme_settings import use_scheme
from .geometry_models import check_model, check_model_names, check_vocabulary, model_records, model_summary
from .machine import machine_facts
from .results import command_of, save_results
from .study_settings import GeometryConfig

SETTINGS_FILE = "geometry.yaml"
FACTS = "geometry.json"
KIND = "geometry"
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.+-]")  # characters of a corpus's name that its files do not get
FIGURE_COLUMNS = 3  # columns of coordinates that a figure needs
Measured = tuple[Counts, Geometry]
Statistics = Mapping[tuple[str, str | None, int | None], Record]


def run_geometry(config: GeometryConfig, out: Path, progress: bool = True, on: str | None = None) -> dict[str, Any]:
    """Measure every corpus and model of `config`, and write records, arrays, tables and report.html to `out`.

    Args:
        on: Address of a cluster whose workers count (`run.cluster.connect`).

    Returns:
        What `--json` prints: the entry of each corpus and model in geometry.json, and the path of the report.

    Raises:
        ValueError: a corpus, table or model that is refused, too little text, or a folder that holds something else or
            the results of other corpora; results of an earlier command stay.
    """
    began = time.perf_counter()
    started = time.strftime("%Y-%m-%d %H:%M")
    use_scheme(config.scheme)  # the settings can be made without it, the models not
    sources = config.sources()
    _check_names(sources)
    plan = _plan_of(config)
    encodings = encoding_tables(plan, config.positions)  # a table too short is refused before anything is counted
    model_folders = {model: Path(model_source(model)) for model in config.models}
    check_model_names(config.models, model_folders)
    for folder in model_folders.values():
        check_model(folder)
    with connect(on, out) as cluster, RunFolder.open(out, KIND) as run:
        has_results = run.finished_step(RESULTS_STEP) is not None
        if has_results:
            config = config.merge_with_saved(run, SETTINGS_FILE)
        tokenizer = _make_tokenizer(config, sources, progress)
        for folder in model_folders.values():
            check_vocabulary(folder, tokenizer)
        if not has_results:  # a finished run keeps its settings until the new results are computed
            config = config.save_in(run, SETTINGS_FILE)
            run.accept_input()
        counted = _count_all(run, config, sources, tokenizer, progress, cluster)
        measured = _measure_all(counted, plan, progress)
        first_corpus = next(iter(measured.values()))
        with progress_by_part("models", progress) as advance:
            records_of_models = model_records(model_folders.values(), config, run.name, *first_corpus, advance)
        config = config.save_in(run, SETTINGS_FILE)
        corpora = [_save_corpus(run, config, name, *results, encodings) for name, results in measured.items()]
        records = [
            record
            for name, results in measured.items()
            for record in geometry_records(RecordContext(name, run_name=run.name), *results)
        ]
        records += _records_between(run.name, measured, config.intervals and config.protocol == "default")
        records += records_of_models
        models = [
            # "summary" is a list of sentences here; in study.json it is a dict.
            {"name": name, "seed": seed, "folder": model, "summary": model_summary(records, name, seed)}
            for model, folder in model_folders.items()
            for name, seed in [name_and_seed(folder)]
        ]
        page_facts = {
            "title": f"Positions in {', '.join(sources)}",
            "protocol": config.protocol,
            "corpora": corpora,
            "models": models,
            "command": command_of("geometry", "--config", str(run.path / SETTINGS_FILE), scheme=config.scheme),
            "started": started,
            "seconds": round(time.perf_counter() - began, 1),
            "machine": machine_facts(),
            "settings": config.model_dump(mode="json"),
        }
        report = save_results(run, records, FACTS, page_facts)
    return {"out": str(out), "report": str(report), "corpora": corpora, "models": models}


def _count_all(
    run: RunFolder,
    config: GeometryConfig,
    sources: Mapping[str, Source],
    tokenizer: Any,
    progress: bool,
    cluster: Cluster | None,
) -> dict[str, Counts]:
    """Count all corpora; after each, remove the counts of its shards, which only a stopped run needs."""
    counted: dict[str, Counts] = {}
    for name, source in sources.items():
        counted[name] = _count_corpus(run, config, name, source, tokenizer, progress, cluster)
        if (shards := _shards_folder(run, name)).is_dir():
            remove_folder(shards)
    return counted


def _measure_all(counted: Mapping[str, Counts], plan: Plan, progress: bool) -> dict[str, Measured]:
    """Measure the geometry of all corpora; refuse too little text before any corpus is measured."""
    if not plan.follows_paper:
        for name, counts in counted.items():
            with name_text_in_errors(name):
                positional_distributions(counts.total(), min_support=plan.min_support)
    measured: dict[str, Measured] = {}
    for name, counts in counted.items():
        with progress_by_part(name, progress) as advance, name_text_in_errors(name):
            measured[name] = counts, corpus_geometry(counts, plan, advance)
    return measured


def _save_corpus(
    run: RunFolder,
    config: GeometryConfig,
    name: str,
    counts: Counts,
    geometry: Geometry,
    encodings: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """Write the table and the arrays of a measured corpus, and return its entry in geometry.json."""
    stem = _stem_of(name)
    table = _write_table(run, config, geometry, f"tables/{stem}-mds.npy")
    run.write(f"arrays/geometry-{stem}.npz", geometry_arrays(geometry, scatter(geometry, encodings, config.seed)))
    return {
        "name": name,
        "documents": int(counts.documents.sum()),
        "tokens": int(geometry.distributions.support.sum()),
        "positions_asked": config.positions,
        "positions_kept": len(geometry.distributions.positions),
        "left_out": geometry.distributions.left_out.tolist(),
        "align": config.align,
        "source": counts.facts.get("corpora"),
        "statistics": [{k: v for k, v in asdict(s).items() if v is not None} for s in geometry.statistics],
        "file": stem,
        "table": table,
        "summary": _summary_of(config, geometry, table),
    }


def _stem_of(corpus: str) -> str:
    """Return the part of file names that stands for a corpus."""
    return _NOT_IN_FILE_NAMES.sub("-", corpus)


def _check_names(names: Iterable[str]) -> None:
    """Refuse corpora whose files would overwrite each other."""
    by_stem = dict[str, str]()
    for name in names:
        if (other := by_stem.setdefault(_stem_of(name), name)) != name:
            raise ValueError(
                f"The corpora {other!r} and {name!r} have one file name, {_stem_of(name)}. Name one of them otherwise: "
                "--corpus NAME=TEXT."
            )


def _counts_file(corpus: str) -> str:
    """Return the name of the file that keeps the counts of a corpus."""
    return f"counts/{_stem_of(corpus)}.npz"


def _shards_folder(run: RunFolder, corpus: str) -> Path:
    """Return the folder that keeps the counts of a corpus's shards; no counts file has its ending."""
    return run.path / "counts" / f"{_stem_of(corpus)}.shards"


def _plan_of(config: GeometryConfig) -> Plan:
    """Return the settings of the measurements on each corpus, with the tables of `config.tables` read."""
    return Plan(
        follows_paper=config.protocol == "paper",
        dims=tuple(sorted(set(config.dims))),
        ranks=tuple(sorted(set(config.ranks))),
        tables=_load_tables(config),
        use_smacof=config.smacof,
        **config.model_dump(include={"min_support", "width", "heads", "splits", "intervals", "seed"}),
    )


def _make_tokenizer(config: GeometryConfig, sources: dict[str, Source], progress: bool) -> Any:
    """Return the configured tokenizer, else the first model's, else a WordPiece trained on the corpora in turns."""
    spec = config.tokenizer or (config.models[0] if config.models else None)
    if progress and spec is None:
        print(f"Reading {', '.join(sources)} and training a WordPiece", file=sys.stderr, flush=True)
    turns = zip_longest(*sources.values())
    return build_tokenizer(spec, (text for texts in turns for text in texts if text is not None), config.vocab_size)


def _load_tables(config: GeometryConfig) -> dict[str, np.ndarray]:
    """Load the tables to compare with the corpora; row i is of position i."""
    if not config.tables:
        return {}
    source_tables, left_out = load_tables(config.tables)
    if left_out:
        raise ValueError(
            f"{left_out[0]} has no position table, so it has no distances to compare. Leave it out of --table."
        )
    starts = [int(t.config.get("model_type") not in WITHOUT_CLS) for t in source_tables]
    starts = starts if config.first_row is None else [config.first_row] * len(source_tables)
    return {t.name: t.rows[start:] for t, start in zip(source_tables, starts, strict=True)}


def _count_corpus(
    run: RunFolder,
    config: GeometryConfig,
    name: str,
    source: Source,
    tokenizer: Any,
    progress: bool,
    cluster: Cluster | None,
) -> Counts:
    """Return the saved counts of a corpus if they can be reused; else count the corpus and save the counts."""
    if (saved := _reusable_counts(run, config, name, source, tokenizer)) is not None:
        return saved
    with progress_bar(f"counting {name}", progress) as advance:
        counts = count_source(
            source,
            tokenizer,
            config.positions,
            align=config.align,
            groups=config.groups,
            phrases=config.phrases,
            workers=config.workers,
            progress=advance,
            shards_folder=_shards_folder(run, name),  # a stopped command goes on with the counts there
            cluster=cluster,
        )
    counts.save(run.path / _counts_file(name))
    run.add_to_manifest(_counts_file(name))
    return counts


def _reusable_counts(
    run: RunFolder, config: GeometryConfig, name: str, source: Source, tokenizer: Any
) -> Counts | None:
    """Return the saved counts of a corpus if they are of this text and these settings; else remove them.

    Raises:
        ValueError: the run is finished, and has counted another text or by another tokenizer.
    """
    file = _counts_file(name)
    path = run.path / file
    if not path.is_file():
        return None
    run.check(file)
    saved = Counts.load(path)
    text = json.loads(json.dumps([{"name": source.name, **source.fingerprint()}]))
    expected = config.positions, config.groups, config.align, text, tokenizer_hash(tokenizer), config.phrases
    saved_facts = (saved.facts.get(key) for key in ("corpora", "tokenizer_sha256", "phrases"))
    if (saved.positions, saved.groups, saved.align, *saved_facts) == expected:
        if file not in run.listed_files():  # the process was killed between writing and listing the file
            run.add_to_manifest(file)
        return saved
    has_results = run.finished_step(RESULTS_STEP) is not None
    if has_results and saved.facts.get("corpora") != text:
        raise ValueError(
            f"The text of {name} is not the one that {run.path} has counted. Restore it, or choose another --out."
        )
    if has_results and saved.facts.get("tokenizer_sha256") != tokenizer_hash(tokenizer):
        raise ValueError(
            f"{run.path} has counted {name} by another tokenizer than this command's (--tokenizer, else the first "
            "--model's, else one made from the corpora). Choose another --out."
        )
    run.remove(file)
    return None


def _write_table(run: RunFolder, config: GeometryConfig, geometry: Geometry, file: str) -> dict[str, Any] | None:
    """Write the corpus's MDS table, and return its entry in geometry.json.

    Where positions are relative (`align`), position 0 has too few tokens, or the table fits other documents no better
    than a random one: remove a table of earlier results, and return None.
    """
    if config.align != "start" or geometry.distributions.positions[0] != 0 or not stands_out(geometry):
        if run.has(file):  # of earlier results
            run.remove(file)
        return None
    mds = geometry.mds_corrected or geometry.mds
    rank = min(config.rank or best_rank(geometry) or mds.coords.shape[1], mds.coords.shape[1])
    table = mds_table(mds.coords, geometry.distributions.positions, rank)
    run.write(file, table)
    corrected = geometry.mds_corrected is not None
    return {"file": file, "rows": len(table), "rank": rank, "corrected": corrected}


def geometry_records(context: RecordContext, counts: Counts, geometry: Geometry) -> list[Record]:
    """Return records of a corpus (`context.model` is its name): sizes, support, and every statistic."""
    distributions = geometry.distributions
    rows = len(distributions.positions)
    return [
        context.record("corpus.documents", counts.documents.sum()),
        context.record("corpus.tokens", distributions.support.sum()),
        context.record("positions.kept", rows, n=counts.positions),
        *context.records("support", distributions.support, {"index": range(len(distributions.support))}),
        *(
            context.record(s.metric, s.value, s.low, s.high, part=s.part, index=s.index, n=rows)
            for s in geometry.statistics
        ),
    ]


def _records_between(run_name: str, measured: dict[str, Measured], intervals: bool) -> list[Record]:
    """Return uncorrected Hellinger distances of every two corpora, by position; `intervals` adds intervals."""
    records = []
    context = RecordContext("", run_name=run_name)
    for a, b in combinations(measured, 2):
        p, q = (measured[name][1].distributions for name in (a, b))
        positions, rows, other_rows = np.intersect1d(p.positions, q.positions, return_indices=True)
        if not len(positions):
            continue
        rows_of_a = p.p[rows]
        rows_of_b = q.p[other_rows]
        margin = np.full(len(positions), np.nan)
        if intervals:
            sides = (
                _interval_margin(measured[a][0], positions, rows_of_b),
                _interval_margin(measured[b][0], positions, rows_of_a),
            )
            margin = np.hypot(*sides)
        distances = hellinger(rows_of_a, rows_of_b)
        for position, d, half in zip(positions, distances, margin, strict=True):
            records.append(context.record("between", d, d - half, d + half, part=f"{a}|{b}", index=int(position)))
    return records


def _interval_margin(counts: Counts, positions: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval (positions,) of distances from fixed distributions, over groups of documents.

    NaN at all positions if one group holds all tokens of any position.
    """
    groups = [counts.group(g)[positions] for g in range(counts.groups) if counts.documents[g]]
    support = np.array([group.sum(axis=1) for group in groups])
    if len(groups) < 2 or (support.sum(axis=0) - support).min() == 0:
        return np.full(len(positions), np.nan)
    interval = jackknife(
        groups, lambda counts_left: hellinger(positional_distributions(counts_left, min_support=0).p, fixed)
    )
    return np.asarray((interval.high - interval.low) / 2)


def geometry_arrays(geometry: Geometry, extra: dict[str, np.ndarray]) -> Arrays:
    """Return the arrays of a corpus's figures by name, with `extra` ones.

    Of m positions out of n: `positions` and noise floors (m,); `support` (n,); `left_out` (n - m,); `lag` (lags,), and
    at each lag the root of the mean squared distance, with the sign of that mean; distances of pairs (m, m) float32,
    and under names that end in `_half` the half-widths of 95 % intervals (`corrected_squares_half`: of the squares of
    `corrected`, each taken with the sign of its entry); `eigenvalues` (k,); `coords` (m, at most FIGURE_COLUMNS).
    """
    distributions = geometry.distributions
    lags_of_pairs = np.abs(distributions.positions[:, None] - distributions.positions)
    lags = np.arange(1, int(lags_of_pairs.max()) + 1)
    lags = lags[np.isin(lags, lags_of_pairs)]

    def root_mean_by_lag(squares: np.ndarray) -> np.ndarray:
        means = np.array([squares[lags_of_pairs == lag].mean() for lag in lags])
        return np.asarray(np.sign(means) * np.sqrt(np.abs(means)))

    arrays = {
        "positions": distributions.positions,
        "support": distributions.support,
        "left_out": distributions.left_out,
        **extra,
    }
    arrays |= {"lag": lags, "lag_mean": root_mean_by_lag(geometry.dist**2)}
    pairs = {
        "distance": geometry.dist,
        "distance_half": geometry.dist_margin,
        "corrected_squares_half": geometry.squares_margin,
    }
    if geometry.corrected is not None:
        pairs["corrected"] = geometry.corrected.signed
        arrays |= {key: getattr(geometry.corrected, key) for key in ("floor", "floor_low", "floor_high")}
        arrays["lag_mean_corrected"] = root_mean_by_lag(geometry.corrected.squares)
    arrays |= {name: array.astype(np.float32) for name, array in pairs.items() if array is not None}
    for ending, mds in (("", geometry.mds), ("_corrected", geometry.mds_corrected)):
        if mds is not None:
            arrays |= {f"eigenvalues{ending}": mds.eigenvalues, f"coords{ending}": mds.coords[:, :FIGURE_COLUMNS]}
    return arrays


def _summary_of(config: GeometryConfig, geometry: Geometry, table: dict[str, Any] | None) -> list[str]:
    """Return sentences on one corpus, made from its numbers by fixed rules; table: its entry (`_write_table`)."""
    statistics: Statistics = {(s.metric, s.part, s.index): s for s in geometry.statistics}
    rows = len(geometry.distributions.positions)
    sentences = [
        _support_sentence(config, geometry),
        *_noise_sentences(geometry, statistics),
        *_fit_sentences(statistics, rows, config.width),
    ]
    corrected = ".corrected" if geometry.corrected is not None else ""
    violations = statistics[f"violations{corrected}", "corpus", None].value
    sentences.append(
        f"In {100 * violations:.0f} % of the triples of positions the nearer one is the more different (0 if distances "
        "grow with the lag, 50 by chance)."
    )
    rank = (geometry.mds_corrected or geometry.mds).rank  # of the distances that the table is made of
    if ranks_above := [r for r in (*config.ranks, config.rank or 0) if r > rank]:
        sentences.append(f"The distances have rank {rank}, which is used where a rank of {max(ranks_above)} is set.")
    if table:
        sentences.append(
            f"`{table['file']}` is its table of rank {table['rank']} for {table['rows']} model positions: `--set "
            f"model.absolute=mds --set model.table_file=FILE --set model.table_width={table['rank']} --set "
            f"model.max_position_embeddings={table['rows']}`."
        )
    elif not stands_out(geometry):
        sentences.append(
            "No table made of these distances fits other documents better than a random one, so none is written."
        )
    return sentences


def _support_sentence(config: GeometryConfig, geometry: Geometry) -> str:
    distributions = geometry.distributions
    if geometry.corrected is None:
        empty = int(np.sum(distributions.support == 0))
        return (
            f"GEOM's protocol: all {config.positions} positions are kept, the last two empty, as [CLS] and [SEP] take "
            f"their place. {empty} in all are empty and count as uniform, and no noise is taken out."
        )
    left_out = distributions.left_out
    tail = f"; {len(left_out)} are left out (first: {left_out[0]})" if len(left_out) else ""
    rows = len(distributions.positions)
    return f"{rows} of {config.positions} positions have at least {config.min_support:g} tokens{tail}."


def _noise_sentences(geometry: Geometry, statistics: Statistics) -> list[str]:
    if geometry.corrected is None:
        return []
    mean = statistics["distance.mean.corrected", None, None]
    uncorrected = statistics["distance.mean", None, None].value
    floor_sentence = (
        f"Two halves of the documents are {geometry.corrected.floor.mean():.2f} apart at one and the same position. "
    )
    if (mean.low if mean.low is not None else mean.value) <= 0:
        return [f"{floor_sentence}Nothing is left of the distances between positions when that is taken out."]
    noise = 1 - mean.value**2 / uncorrected**2
    return [
        f"{floor_sentence}Without that, positions are {mean.value:.2f} apart (root mean square) instead of "
        f"{uncorrected:.2f}: {100 * noise:.0f} % of the squared distances were noise."
    ]


def _fit_sentences(statistics: Statistics, rows: int, width: int) -> list[str]:
    held_out = {key[1:]: s.value for key, s in statistics.items() if key[0] == "stress.held_out"}
    by_rank = [(stress, rank) for (part, rank), stress in held_out.items() if part == "mds" and rank is not None]
    if not by_rank:
        return []
    lowest, best = min(by_rank)
    lowest = held_out.get(("mds.chosen", None), lowest)  # the stress at a rank that was chosen on other documents
    sinusoids = held_out["sinusoidal", None]
    equal = held_out["equidistant", None]
    is_last = best == max(rank for _, rank in by_rank)
    edge = " (the most that stand out of the noise of half of the documents)" if is_last else ""
    dimensions = "dimensions" if best > 1 else "dimension"
    cost = "fewer" if best * (rows + width) < rows * width else "more"
    return [
        "Made from half of the documents and held against the others, the corpus's own table has the least stress, "
        f"{lowest:.3f}, with {best} {dimensions}{edge}; sinusoids have {sinusoids:.3f}, positions that "
        f"are all equally far apart {equal:.3f} (best scale; 0 is exact). r(n + d) = {best * (rows + width):,} numbers "
        f"are {cost} than the {rows * width:,} of a free table of width {width}."
    ]
