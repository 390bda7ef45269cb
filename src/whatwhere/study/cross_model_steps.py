"""Steps of a study that open several trained models: regressions between them, and attention for the explorer."""

from functools import partial
from typing import Any

import numpy as np

from ..analysis.head_labels import term_names
from ..analysis.passes import choose_windows
from ..analysis.regressions import regression_records
from ..corpus import Windows, load_tokenizer
from ..models.open import open_model
from ..records.record import Record
from ..run.folder import RunFolder
from ..run.jobs import progress_by_part
from .explorer_files import INDEX, MOST_SHOWN, choose_texts, save_attention
from .model_task import has_windows_for_analyses
from .study_settings import StudyConfig
from .training_plan import ModelOfSeed

TARGET_MODEL = "dstg"  # regressions go from the states of the other models to its streams
MOST_EXPLORER_BYTES = 12_000_000  # all maps together, before compression


def open_models(run: RunFolder, config: StudyConfig, seed: int) -> dict[str, Any]:
    """Open the trained models of a seed, by name."""
    folders = {name: run.path / ModelOfSeed(name, seed).folder for name in config.models}
    return {name: open_model(folder, "masked").model for name, folder in folders.items()}


def compare_models(run: RunFolder, config: StudyConfig, windows: Windows, seed: int, progress: bool) -> list[Record]:
    """Return records of regressions from a seed's models onto the streams of `dstg` (DSTG B.2), measured once.

    There are no records without `dstg`, without another model, or with too few held-out windows.
    """
    if TARGET_MODEL not in config.models or len(config.models) < 2 or not has_windows_for_analyses(windows):
        return []
    step = f"compared models of seed {seed}"
    file = f"between-seed-{seed}.parquet"
    inputs = {"models": config.models}
    if not run.is_reusable(step, inputs=inputs):
        models = open_models(run, config, seed)
        target_model = models.pop(TARGET_MODEL)
        with progress_by_part("between models", progress) as advance:
            measured = regression_records(
                target_model,
                models,
                choose_windows(windows["held_out"], config.probe_windows),
                run_name=run.name,
                reference=TARGET_MODEL,
                seed=seed,
                splits=config.probe_splits,
                progress=partial(advance, part="regression"),
            )
        run.write(file, measured)
        run.mark_done(step, inputs=inputs, files=[file])
    records: list[Record] = run.read(file)
    return records


def save_explorer_attention(run: RunFolder, config: StudyConfig, windows: Windows) -> None:
    """Save the attention of the first seed's models in the explorer's texts, for models that lack it."""
    step_names = {name: f"texts of {ModelOfSeed(name, 0)}" for name in config.models}
    missing = [name for name in config.models if not run.is_reusable(step_names[name])]
    if not missing or not config.texts:
        return
    models = open_models(run, config, 0)
    map_count = 0
    for model in models.values():
        heads = model.config.num_hidden_layers * model.config.num_attention_heads
        map_count += heads * (1 + len(term_names(model)))
    # A map of n tokens has n² bytes.
    tokens_shown = min(config.length, MOST_SHOWN, int((MOST_EXPLORER_BYTES / map_count / (1 + config.texts)) ** 0.5))
    if len(missing) < len(step_names):  # the study gained models: their texts are as long as the saved ones
        saved_names = step_names.keys() - {*missing}
        saved = [entry["texts"] for entry in run.read(INDEX) if entry["name"] in saved_names]
        tokens_shown = max(len(text["tokens"]) for entry_texts in saved for text in entry_texts)
    held_out = windows["held_out"]
    window_numbers = np.linspace(0, len(held_out) - 1, config.texts if len(held_out) else 0).astype(int)
    tokenizer = load_tokenizer(str(run.path / "corpus" / "tokenizer"))
    texts = choose_texts(held_out, tokenizer, window_numbers, tokens_shown)
    for name in missing:
        file = save_attention(run, models[name], tokenizer, texts, name=name, seed=0)
        run.mark_done(step_names[name], files=[file, INDEX])
