"""The folder of a training, whatever it trains: claimed at the start, a transformers folder at the end, the facts of
its summary."""

import contextlib
import json
import os
import platform
import resource
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ..encoder import EncoderPreTrainedModel, write_sentence_transformer
from ..files import check_writable, flush, read_json, temporary_folder, write_json, write_text
from .checkpoints import WEIGHTS, save_model
from .config import SCHEME, SchemeConfig
from .loop import BatchAt, LoopConfig, Outcome, Show, Trainer, processes, run

SUMMARY = "training.json"
C = TypeVar("C", bound=SchemeConfig)


def began_with(kind: type[C], saved: Path) -> C:
    """The configuration that a run was begun with.

    Raises:
        ValueError: another version wrote it, whose settings are not those of this one.
    """
    try:
        return kind.load_run(saved)
    except ValueError as error:
        raise ValueError(
            f"{saved} is of a run that another version's recipe began ({str(error).split('. ')[0]}). Nothing in "
            f"{saved.parent} was changed: finish the run with that version, or choose another --out."
        ) from None


def claim_folder(config: SchemeConfig, out: Path, name: str, resume: bool, free: tuple[str, ...] = ()) -> bool:
    """Make sure that `out` is empty, or holds the same run if `resume`; True if it holds one already.

    `free` keys may differ between the two configurations.

    Raises:
        ValueError: the folder holds something else, a run that was not to be resumed, or one with other settings.
    """
    saved = out / name
    check_writable(out)
    if out.is_file():
        raise ValueError(f"{out} is a file, where the folder of a run is needed. Choose another --out.")
    if saved.is_file():
        if not resume:
            raise ValueError(
                f"{out} already holds a run ({name}). Go on with it (resume=True), or choose another folder."
            )
        config.check_scheme(out)
        old = began_with(type(config), saved).model_dump()
        for key, value in config.model_dump().items():
            if key == "scheme" and None not in (value, old[key]):
                continue  # the same text, wherever it stands
            if key not in free and old.get(key) != value:
                raise ValueError(
                    f"{out} holds a run with {key}={old.get(key)!r}, now {key}={value!r}. Use the same settings, or "
                    "another --out."
                )
        return True
    # Windows alone are of a run whose other input was refused; `build_windows` knows whether they are the right ones.
    if out.is_dir() and any(p for p in out.iterdir() if not p.name.startswith(".") and not _windows(p)):
        raise ValueError(f"{out} is not empty and holds no run of this kind ({name} is missing). Choose another --out.")
    return False


def _windows(path: Path) -> bool:
    """Whether a folder holds windows of a corpus, finished or not, and was named by this package."""
    return path.name == "corpus" and (path / "settings.json").is_file()


def enter(config: C, out: Path, name: str, resume: bool, free: tuple[str, ...] = ()) -> tuple[C | None, Any]:
    """Claim `out` for all processes: the configuration that its run began with, and its summary if it is finished; None
    where absent.

    Raises:
        ValueError: see `claim_folder`.
    """
    state = processes()
    if state.is_main_process:  # alone: a slower process would find this one's files
        claim_folder(config, out, name, resume, free)
    state.wait_for_everyone()
    saved = type(config).load_run(out / name) if (out / name).is_file() else None
    finished = (out / WEIGHTS).is_file() and (out / SUMMARY).is_file()
    state.wait_for_everyone()  # before one of them begins the run
    return saved, read_json(out / SUMMARY) if finished else None


@contextlib.contextmanager
def begun(config: SchemeConfig, out: Path, name: str, *more: str) -> Iterator[None]:
    """The settings of a new run on disk from before its data are prepared, so that one stopped meanwhile can go on;
    gone again, with `more` files of it, where wrong input is refused."""
    new = processes().is_main_process and not (out / name).is_file()
    if new:
        config.save_run(out / name)
    try:
        yield
    except ValueError:
        if new:
            for written in (name, SCHEME, *more):
                (out / written).unlink(missing_ok=True)
        raise


def train(
    model: PreTrainedModel,
    config: LoopConfig,
    steps: int,
    batch_at: BatchAt,
    out: Path,
    *,
    tokens_per_step: int,
    validate: Callable[[Trainer], dict[str, float]] | None,
    resume: bool,
    label: str,
    progress: bool | Show,
) -> tuple[Trainer, dict[str, Any]]:
    """Run the loop on a model whose weights are the same in all processes; returns the trainer and the facts of every
    summary."""
    state = processes()
    if state.process_index:  # dropout of its own in each process
        torch.manual_seed((config.seed << 16) + state.process_index)
    _forget_peak_memory()
    trainer = Trainer(model, config, steps, out)
    outcome = run(
        trainer,
        batch_at,
        out,
        tokens_per_step=tokens_per_step,
        validate=validate,
        resume=resume,
        label=label,
        progress=progress,
    )
    return trainer, _facts(model, config, outcome, trainer, tokens_per_step)


@torch.no_grad()
def validation(trainer: Trainer, batches: Iterable[dict[str, torch.Tensor]]) -> tuple[float, int, int]:
    """Mean loss of a label, how many labels are predicted right, and how many there are (-100 is none)."""
    trainer.plain.eval()
    total, correct, labels = 0.0, 0, 0
    for batch in batches:
        batch = {key: value.to(trainer.accelerator.device) for key, value in batch.items()}
        with trainer.accelerator.autocast():
            output = trainer.plain(**batch)
        targets = batch["labels"][batch["labels"] != -100]
        total += float(output.loss) * len(targets)
        correct += int((output.logits.argmax(-1) == targets).sum())
        labels += len(targets)
    return total / max(labels, 1), correct, labels


def _facts(
    model: PreTrainedModel, config: LoopConfig, outcome: Outcome, trainer: Trainer, tokens_per_step: int
) -> dict[str, Any]:
    device = trainer.accelerator.device
    on_gpu = device.type == "cuda"
    validated = [line for line in outcome.history if "validation_loss" in line]
    rates = sorted(line["tokens_per_second"] for line in outcome.history if "tokens_per_second" in line)
    words = model.get_input_embeddings()
    assert isinstance(words, torch.nn.Embedding)
    return {
        "preset": model.config.preset,
        "seed": config.seed,
        "steps": outcome.steps,
        "tokens": outcome.steps * tokens_per_step,
        "seconds": outcome.seconds,
        "tokens_per_second": rates[len(rates) // 2],
        "parameters": sum(p.numel() for p in model.parameters()),
        "embedding_parameters": words.weight.numel(),
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else _peak_memory(),
        "validation_loss": validated[-1]["validation_loss"] if validated else None,
        "validation_accuracy": validated[-1]["validation_accuracy"] if validated else None,
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "precision": trainer.accelerator.mixed_precision.replace("no", "fp32"),
        "processes": trainer.accelerator.num_processes,
    }


def _forget_peak_memory() -> None:
    """Start measuring the peak anew, so that a model in a study does not inherit that of the one before."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # Linux: 5 resets the high-water mark of the resident memory
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_memory() -> int:
    """Largest resident memory of this process in bytes since `_forget_peak_memory`; of its life where the system cannot
    forget."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def save_final(
    model: EncoderPreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    *,
    summary: Mapping[str, Any],
    card: str,
    metadata: Mapping[str, str],
    pooling: str | None = None,
) -> None:
    """A transformers folder at `out`, its weights last: their presence means that all the rest is there.

    Args:
        card: README.md. metadata: texts for the head of the weights' file.
        pooling: also make it a folder that sentence-transformers opens, with this pooling.
    """
    with temporary_folder(out / "final") as temporary:
        save_model(model, temporary, code=True, metadata=metadata)
        tokenizer.save_pretrained(temporary)
        tokenizer_config = temporary / "tokenizer_config.json"
        facts = read_json(tokenizer_config)
        for how_it_was_opened in ("is_local", "local_files_only"):
            facts.pop(how_it_was_opened, None)
        if model.config.longest is not None:  # so that `truncation=True` cuts where the position table ends
            facts["model_max_length"] = model.config.longest
        write_text(tokenizer_config, json.dumps(facts, indent=2))
        write_text(temporary / "README.md", card)
        if pooling is not None:
            write_sentence_transformer(temporary, pooling)
        write_json(out / SUMMARY, summary)
        flush(temporary)
        for path in sorted(temporary.iterdir(), key=lambda p: p.name == WEIGHTS):
            shutil.rmtree(out / path.name, ignore_errors=True)  # a folder that an attempt left; a file is replaced
            os.replace(path, out / path.name)
