"""Models of a geometry run: checks, separation of their tables, and GEOM's conditions H1 and H3 on a corpus."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.corpus_geometry import CorpusDistances, Geometry
from ..analysis.course import checkpoints_of, separation_records
from ..analysis.matrices import condition_records, scores_of_model
from ..analysis.record_context import RecordContext
from ..corpus import load_tokenizer
from ..geometry import Counts, positional_distributions
from ..models.model_tables import has_table
from ..models.open import name_and_seed, open_model
from ..models.own_config import is_ours
from ..records.record import Record, select
from ..run.progress import Progress
from .study_settings import GeometryConfig


def check_model_names(sources: Iterable[str], folders: Mapping[str, Path]) -> None:
    """Refuse two models of one name and seed, whose records could not be told apart."""
    by_name = dict[tuple[str, int | None], str]()
    for source in sources:
        if (other := by_name.setdefault(name_and_seed(folders[source]), source)) != source:
            raise ValueError(f"The models {other!r} and {source!r} have one name. Rename the folder of one of them.")


def check_model(folder: Path) -> None:
    """Refuse a folder without a model, without a position table, or with matrices of an unknown architecture."""
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"No finished model at {folder}: config.json is missing. Give the folder of a pretraining or fine-tuning."
        )
    if not is_ours(folder):
        scores_of_model(open_model(folder).model)
    elif not has_table(folder):
        raise ValueError(
            f"{folder} has no position table: its scheme keeps no position in the input. Give an ap or dstg model."
        )


def check_vocabulary(folder: Path, tokenizer: Any) -> None:
    """Refuse a model of another vocabulary than the tokenizer's; a model without a saved tokenizer passes."""
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json"))
    if has_tokenizer and load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
        raise ValueError(
            f"The corpora would be counted with another vocabulary than {folder} has, so their ids are other words "
            "than the model's. Leave --tokenizer out, and measure models of different vocabularies one by one."
        )


def model_records(
    folders: Iterable[Path],
    config: GeometryConfig,
    run_name: str,
    counts: Counts,
    geometry: Geometry,
    progress: Progress,
) -> list[Record]:
    """Return records of models on the first corpus, whose counts and geometry are given.

    They hold the separation of tables at every checkpoint, and GEOM's conditions H1 and H3 there and of the finished
    model. `progress` gets a part for each model, in checkpoints.
    """
    records: list[Record] = []
    distributions = geometry.distributions
    corpus = CorpusDistances(
        geometry.dist, distributions.positions, geometry.corrected.distances if geometry.corrected else None
    )
    halves = _random_halves(counts, distributions.positions, config) if config.models else []
    for folder in folders:
        name, seed = name_and_seed(folder)
        context = RecordContext(name, seed, run_name)
        folders_by_step: list[tuple[int | None, Path]] = [(None, folder)]
        if (folder / "checkpoints").is_dir():
            records += separation_records(folder, context, corpus=corpus)
            folders_by_step += checkpoints_of(folder)
        for number, (step, folder_of_step) in enumerate(folders_by_step):
            progress(number, len(folders_by_step), f"conditions of {name}")
            scores = scores_of_model(open_model(folder_of_step).model)
            records += condition_records(scores, distributions.p, context.at(step), halves=halves)
        progress(len(folders_by_step), len(folders_by_step), f"conditions of {name}")
    return records


def _random_halves(counts: Counts, positions: np.ndarray, config: GeometryConfig) -> list[tuple[Any, Any]]:
    """Return the distributions of the two halves of random splits; both halves have tokens at every position."""
    rng = np.random.default_rng(config.seed)
    groups = np.flatnonzero(counts.documents)  # that have documents
    halves = []
    for _ in range(config.splits):
        order = rng.permutation(groups)
        parts = [counts.of(half.tolist())[positions] for half in np.array_split(order, 2)]
        if all(part.sum(axis=1).all() for part in parts):
            halves.append(tuple(positional_distributions(part, min_support=0).p for part in parts))
    return halves


def model_summary(records: Sequence[Record], name: str, seed: int | None) -> list[str]:
    """Return sentences on one model: how far apart its table's rows are over training, and GEOM's H1 and H3."""
    of_model = [r for r in records if (r.model, r.seed) == (name, seed)]
    sentences = []
    separation = [r for r in of_model if r.metric == "separation" and r.part == "corpus"]
    if separations := sorted((r.step, r.value) for r in separation if r.step is not None):
        (first_step, start) = separations[0]
        (last_step, end) = separations[-1]
        nearest = "The nearest two rows of its position table are"
        sentences.append(f"{nearest} {start:.3g} apart at step {first_step}, {end:.3g} at step {last_step}.")
    subjects = {"h1": "mean word vectors of two positions (H1)", "h3": "the same times M or Mᵀ of a head (H3)"}
    for metric, subject in subjects.items():
        smallest = select(of_model, metric=metric, step=None)
        floor = {(r.layer, r.head, r.part): r.value for r in select(of_model, metric=f"{metric}.floor", step=None)}
        before = [r.value for r in select(of_model, metric=metric, step=0)]
        tail = f" ({min(before):.3g} at step 0)" if before else ""
        if len(floor) == 1:
            tail += f"; two halves of the documents differ by {min(floor.values()):.3g} at one position"
        elif floor:
            below = sum(r.value < floor[r.layer, r.head, r.part] for r in smallest)
            tail += f"; in {below} of the {len(smallest)} matrices below what two halves of the documents differ by"
        if smallest:
            sentences.append(f"Smallest distance of {subject}: {min(r.value for r in smallest):.3g}{tail}.")
    return sentences
