"""Folder of any training: its settings, whether it is finished, and the model that it ends with."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..corpus.tokenizer import save_tokenizer
from ..models.card import weights_metadata
from ..models.lengths import max_tokens
from ..models.sentence import write_sentence_transformer
from ..run.files import flush_folder, read_json, read_yaml, temporary_folder, write_json, write_text
from ..run.folder import LOG, RunFolder
from ..run.names import SUMMARY, TRAINED_STEP
from ..run.status import has_weights
from .checkpoints import CHECKPOINTS, WEIGHTS
from .environment import process_group_state
from .model_folder import save_model
from .scheme_settings import SCHEME, ConfigWithScheme

C = TypeVar("C", bound=ConfigWithScheme)
_TOKENIZER_KEYS = ("tokenizer", "vocab_size", "newline_token")


@contextmanager
def open_training(out: str | Path, kind: str) -> Iterator[RunFolder]:
    """Open the folder of a training; the main process holds its lock and writes its manifest.

    The others read the manifest, and write files that it does not list: their shards of optimizer states, and a batch
    that is not finite.

    Raises:
        ValueError: as `RunFolder.open`.
    """
    if process_group_state().is_main_process:
        with RunFolder.open(out, kind) as run:
            yield run
    else:
        yield RunFolder.at(out)


def has_progress(run: RunFolder) -> bool:
    """Return whether a training has something to resume: a checkpoint after step 0, or the finished model."""
    return any(run.path.glob(f"{CHECKPOINTS}/step-[1-9]*")) or any(run.path.glob("*.safetensors"))


def resume_or_clear_training(config: C, run: RunFolder, name: str, changeable: Iterable[str] = ()) -> C:
    """Return the settings that a training goes on with; a training without progress (`has_progress`) is cleared first.

    All processes call this. Clearing removes the log, checkpoints, batches that were not finite, and listed files but
    the scheme that `config` names; the corpus stays. Any other training keeps its settings and its scheme.

    Args:
        name: name of the YAML file. changeable: keys that may differ, besides the class's `CHANGEABLE_KEYS`.

    Raises:
        ValueError: see `StrictConfig.merge_with_saved`; or the folder holds windows of another tokenizer.
    """
    process_group = process_group_state()
    if process_group.is_main_process and not has_progress(run):
        _check_tokenizer_of_windows(config, run, name)
        _remove_leftovers(config, run, name)
        config.save_in(run, name)
    process_group.wait_for_everyone()
    # The file is there for every process: saved by an earlier command, or by the main process above.
    resumed = config.merge_with_saved(run, name, changeable=changeable)
    process_group.wait_for_everyone()  # before the main process writes again
    return resumed


def _check_tokenizer_of_windows(config: ConfigWithScheme, run: RunFolder, name: str) -> None:
    """Refuse windows that an earlier command made with another tokenizer.

    Raises:
        ValueError: the windows are of another tokenizer, or the settings are damaged.
    """
    out = run.path
    if name not in run.listed_files():
        return
    run.check(name)
    if not (out / "corpus" / "tokenizer").is_dir():
        return
    # Before the earlier files are removed: `prepare_windows` would refuse another tokenizer only afterwards.
    settings = read_yaml(out / name, "Delete it, or choose another --out.")
    for key in [key for key in _TOKENIZER_KEYS if isinstance(settings, dict) and key in settings]:
        value = getattr(config, key)
        if settings[key] != value and not config.has_same_content(key, out):
            raise ValueError(
                f"{out / 'corpus'} holds windows of {key}={settings[key]!r}, this command has {key}={value!r}. "
                "Delete it, or choose another --out."
            )


def _remove_leftovers(config: ConfigWithScheme, run: RunFolder, name: str) -> None:
    """Remove the files of a training, its checkpoint of step 0 too, but not settings, corpus and a scheme in use."""
    out = run.path
    leftovers = [LOG, CHECKPOINTS, *(path.name for path in out.glob("not-finite-*.npz"))]
    # There are no weights and no checkpoint after step 0: all other listed files are of no use. Files of corpus/, a run
    # of its own, are not among them.
    leftovers += [file for file in run.listed_files() if file not in (name, SCHEME)]
    if config.scheme is None:
        leftovers.append(SCHEME)
    if names := [path for path in dict.fromkeys(leftovers) if (out / path).exists() or path in run.listed_files()]:
        run.remove(*names)


def accept_training(config: ConfigWithScheme, run: RunFolder, name: str) -> None:
    """Save the settings of a training whose input is good; no later error then removes its files."""
    if LOG in run.listed_files():  # a finished training listed it and lost its weights: lines are added again
        run.drop_entries(LOG)
    config.save_in(run, name)
    run.accept_input()


def finished_summary(run: RunFolder) -> dict[str, Any] | None:
    """Return the summary of a finished training; None if it is not finished, or its weights or summary are gone.

    Raises:
        ValueError: a file of it is missing or not as it was written.
    """
    if TRAINED_STEP not in run.inputs_of_finished() or not (run.path / SUMMARY).is_file() or not has_weights(run.path):
        return None
    run.check_step(TRAINED_STEP)
    summary: dict[str, Any] = run.read(SUMMARY)
    return summary


def finish_training(
    run: RunFolder,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    card: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], str],
    pooling: str | None = None,
) -> None:
    """Write a transformers folder into the run, its weights last, and mark the training as finished.

    Only the main process writes. Weights in several files (above 50 GB) come in any order.

    Args:
        card: function that makes the text of README.md from the model's configuration, settings and summary.
        pooling: pooling of sentence-transformers, which then opens the folder, too.
    """
    if not process_group_state().is_main_process:
        return
    names_before = run.listed_files()
    with temporary_folder(run.path / "final") as temporary:
        save_model(model, temporary, with_code=True, metadata=weights_metadata(model.config, settings, summary))
        save_tokenizer(tokenizer, temporary)
        tokenizer_config = temporary / "tokenizer_config.json"
        tokenizer_settings = read_json(tokenizer_config)
        for key in ("is_local", "local_files_only"):
            tokenizer_settings.pop(key, None)
        longest = max_tokens(model.config)
        if longest is not None:  # a table may have more rows; no text of the training was longer
            tokenizer_settings["model_max_length"] = min(longest, settings["length"])
        write_text(tokenizer_config, json.dumps(tokenizer_settings, indent=2))
        write_text(temporary / "README.md", card(model.config, settings, summary))
        if pooling is not None:
            write_sentence_transformer(temporary, pooling, settings["length"])
        write_json(temporary / SUMMARY, summary)
        flush_folder(temporary)
        model_files = run.move_in(temporary, last=WEIGHTS)
    run.add_to_manifest(LOG)
    # Settings, scheme, facts of the data and predictions.
    other_files = [name for name in names_before if name.endswith((".yaml", ".json", ".py", ".csv"))]
    run.mark_done(TRAINED_STEP, files=sorted({*model_files, *other_files, LOG}))
