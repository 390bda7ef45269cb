"""The folder of a training, whatever it trains: claimed at the start, a transformers folder at the end."""

import contextlib
import functools
import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..models.card import weights_metadata
from ..models.lengths import most_tokens
from ..models.sentence import write_sentence_transformer
from ..run.files import (
    check_writable,
    flush,
    read_json,
    read_yaml,
    remove_folder,
    temporary_folder,
    write_json,
    write_text,
)
from ..run.hashes import check_files, check_lines, forget_hashes, write_hashes
from ..run.locks import is_locked, locked, sweep
from ..run.status import LOG, STUDY, TRAININGS, finished
from .checkpoints import CHECKPOINTS, WEIGHTS
from .environment import join_processes
from .model_folder import save_model
from .settings import SCHEME, SchemeConfig, UnknownProgram

SUMMARY = "training.json"
TOKENIZER = ("tokenizer", "vocab_size", "newline_token")  # keys of the tokenizer that windows were made with
C = TypeVar("C", bound=SchemeConfig)
P = ParamSpec("P")
R = TypeVar("R")


def one_writer(work: Callable[P, R]) -> Callable[P, R]:
    """A function that holds the folder which is its argument `out`, if any, while it works (`locks.locked`); of several
    processes of a training the main one does."""
    signature = inspect.signature(work)

    @functools.wraps(work)
    def held(*args: P.args, **kwargs: P.kwargs) -> R:
        out = signature.bind(*args, **kwargs).arguments.get("out")
        if out is None or not join_processes().is_main_process:
            return work(*args, **kwargs)
        with locked(Path(out)):
            result = work(*args, **kwargs)
            sweep(Path(out))  # only now it is known to be a run's
            return result

    return held


def began_with(kind: type[C], saved: Path) -> C:
    """The configuration that a run was begun with.

    Raises:
        ValueError: it is not as it was written, or another version wrote it, whose settings are not those of this one.
    """
    check_lines(saved)
    read_yaml(saved, "Use a complete copy, or another --out.")
    try:
        return kind.load_run(saved)
    except UnknownProgram:
        raise
    except ValueError as error:
        raise ValueError(
            f"{saved} is of a run that another version's recipe began ({str(error).split('. ')[0]}). Nothing in "
            f"{saved.parent} was changed: finish the run with that version, or choose another --out."
        ) from None


def claim_folder(
    config: SchemeConfig, out: Path, name: str, resume: bool, free: tuple[str, ...] = (), shared: bool = False
) -> bool:
    """Make sure that `out` is empty, or holds the same run if `resume`; True if it holds one already.

    `free` keys may differ between the two configurations. shared: others may be writing there, so nothing is removed.

    Raises:
        ValueError: the folder holds something else, a run that was not to be resumed, or one with other settings.
    """
    saved = out / name
    check_writable(out)
    if out.is_file():
        raise ValueError(f"{out} is a file, where the folder of a run is needed. Choose another --out.")
    if saved.is_file():
        if not resume:
            way_out = "Go on with it (resume=True), or choose another folder."
            raise ValueError(f"{out} already holds a run ({name}). {way_out}")
        config.check_scheme(out)
        old = began_with(type(config), saved).model_dump()
        given = config.model_fields_set  # what was asked for is named first
        for key, value in sorted(config.model_dump().items(), key=lambda pair: pair[0] not in given):
            if key == "scheme" and None not in (value, old[key]):
                continue  # the same text, wherever it stands
            if key not in free and old.get(key) != value and not config.same_content(key, out):
                differs = f"{key}={old.get(key)!r}, now {key}={value!r}{' by default' * (key not in given)}"
                ways = "Use the same settings, or another --out."
                if name in (*TRAININGS, STUDY):
                    ways = "Use the same settings (--resume takes those that are not given), or another --out."
                raise ValueError(f"{out} holds a run with {differs}. {ways}")
        if not shared:
            sweep(out)
        return True
    for path in out.iterdir() if out.is_dir() else ():
        # Windows alone, or in the making, are of a run whose other input was refused or that does not train yet;
        # `build_windows` knows whether they are the right.
        windows = path.name == "corpus" and ((path / "settings.json").is_file() or is_locked(path) is not None)
        if not windows and not path.name.startswith("."):
            what = f"is not empty and holds no run of this kind ({saved} is missing)"
            raise ValueError(f"{out} {what}. Choose another --out.")
    return False


def enter(config: C, out: Path, name: str, resume: bool, free: tuple[str, ...] = ()) -> tuple[C | None, Any]:
    """Claim `out` for all processes: the configuration its run began with, its summary if finished; None where absent.

    Settings and scheme bind from the first step that is kept: a run that failed before begins anew with those given.

    Raises:
        ValueError: see `claim_folder`.
    """
    state = join_processes()
    if state.is_main_process:  # alone: a slower process would find this one's files
        kept = any(out.glob(f"{CHECKPOINTS}/step-[1-9]*")) or any(out.glob("*.safetensors"))
        if resume and (out / name).is_file() and not kept:
            _begin_anew(config, out, name)
        else:
            claim_folder(config, out, name, resume, free)
    state.wait_for_everyone()
    saved = type(config).load_run(out / name) if (out / name).is_file() else None
    if done := finished(out):
        check_files(out)
    state.wait_for_everyone()  # before one of them begins the run
    return saved, read_json(out / SUMMARY) if done else None


def _begin_anew(config: SchemeConfig, out: Path, name: str) -> None:
    """Make the run in `out`, of which no step is kept, that of these settings and this text of an own scheme.

    Raises:
        ValueError: the windows there are of another tokenizer.
    """
    check_writable(out)
    if (out / "corpus" / "tokenizer").is_dir():  # which is taken as it is; `build_windows` compares the text
        old = read_yaml(out / name, "Delete it, or choose another --out.")
        for key in [key for key in TOKENIZER if isinstance(old, dict) and key in old]:
            if old[key] != (value := getattr(config, key)) and not config.same_content(key, out):
                seen = f"{out / 'corpus'} holds windows of {key}={old[key]!r}, now {key}={value!r}"
                raise ValueError(f"{seen}. Delete it, or choose another --out.")
    sweep(out)
    config.save_run(out / name)
    failed = [path.name for path in out.glob("not-finite-*.npz")]
    for written in ("data.json", "log.jsonl", *failed, *([] if config.scheme else [SCHEME])):
        (out / written).unlink(missing_ok=True)
    if (out / CHECKPOINTS).is_dir():
        remove_folder(out / CHECKPOINTS)


@contextlib.contextmanager
def begun(config: SchemeConfig, out: Path, name: str, *more: str) -> Iterator[None]:
    """Keep the settings of a new run from before its data are prepared, so that one stopped meanwhile can go on.

    Where wrong input is refused, they are gone again, and with them `more` files.
    """
    new = join_processes().is_main_process and not (out / name).is_file()
    if new:
        config.save_run(out / name)
    try:
        yield
    except ValueError:
        if new:
            for written in (name, SCHEME, *more):
                (out / written).unlink(missing_ok=True)
        raise


def save_final(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    *,
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    card: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], str],
    pooling: str | None = None,
) -> None:
    """A transformers folder at `out`, the hashes of its files last: they mean that all the rest is there.

    Args:
        settings: of the run. card: makes README.md of the model's configuration, the settings and the summary.
        pooling: also make it a folder that sentence-transformers opens, with this pooling.
    """
    if not join_processes().is_main_process:
        return
    with temporary_folder(out / "final") as temporary:
        save_model(model, temporary, code=True, metadata=weights_metadata(model.config, settings, summary))
        tokenizer.save_pretrained(temporary)
        tokenizer_config = temporary / "tokenizer_config.json"
        facts = read_json(tokenizer_config)
        for how_it_was_opened in ("is_local", "local_files_only"):
            facts.pop(how_it_was_opened, None)
        if (longest := most_tokens(model.config)) is not None:  # so that `truncation=True` cuts where the table ends
            facts["model_max_length"] = longest
        write_text(tokenizer_config, json.dumps(facts, indent=2))
        write_text(temporary / "README.md", card(model.config, settings, summary))
        if pooling is not None:
            write_sentence_transformer(temporary, pooling)
        write_json(temporary / SUMMARY, summary)
        flush(temporary)
        forget_hashes(out)
        for path in sorted(temporary.iterdir(), key=lambda p: p.name == WEIGHTS):
            shutil.rmtree(out / path.name, ignore_errors=True)  # a folder that an attempt left; a file is replaced
            os.replace(path, out / path.name)
        write_hashes(out, more=[LOG])
