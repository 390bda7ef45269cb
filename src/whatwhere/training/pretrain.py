"""Masked-language-model pretraining: a corpus, a preset and a budget in; a transformers folder out."""

import math
import statistics
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from accelerate.utils import broadcast
from pydantic import Field, PositiveFloat, model_validator
from transformers import PreTrainedTokenizerFast

from ..corpus import (
    MaskedBatches,
    Source,
    Windows,
    build_part,
    build_tokenizer,
    build_windows,
    load_tokenizer,
    open_source,
    tokenizer_hash,
)
from ..corpus.batches import in_pieces
from ..corpus.build import content
from ..corpus.tokenizer import UNITS
from ..encoder import PRESETS, EncoderConfig, EncoderForMaskedLM, preset
from ..encoder.attention import check_backend
from ..models.card import model_card
from ..models.explain import costs, try_scheme
from ..models.tables import check_table_files
from ..run.files import read_object
from ..run.hashes import check_files
from ..run.progress import Show
from ..run.settings import Count, StrictConfig
from .loop import Batch, BatchAt, Trainer, check_trackers, processes, run, validation
from .runs import begun, enter, one_writer, save_final
from .settings import LoopConfig, SchemeConfig
from .sharding import check_launcher

CONFIG = "pretrain.yaml"
BUDGET = ("steps", "tokens", "minutes")
TIMED = 5  # training steps
InnerShare = Annotated[float, Field(gt=0, lt=1)]

# Rates chosen by the mean validation loss of dstg and ap (docs/log.md has the tries): at `tiny` after 2.5M and 10M
# tokens; `small` takes them over, level with half the AdamW rate after 1.6M tokens.
_SEARCHED: dict[str, Any] = {
    "optimizer": "muon",
    "muon_scale": "spectral",
    "learning_rate": 4e-3,
    "matrix_learning_rate_scale": 3.0,  # 3 at 2.5M tokens, 1.5 at 10M: 625 and 2,500 steps of tiny
    "matrix_steps": 625,
    "schedule": "trapezoid",
    "warmup_steps": 100,
    "validate_every": 200,
    "validation_windows": 128,
}

# What a size changes in the defaults. `paper`: DSTG 3.3 (batch 256, 512 tokens, 10k warm-up steps, 70k steps),
# NeoBERT's learning rate.
RECIPES: dict[str, dict[str, Any]] = {
    "tiny": {**_SEARCHED, "length": 128, "batch_size": 32, "vocab_size": 4096, "steps": 625},
    "small": {**_SEARCHED, "length": 256, "batch_size": 32, "vocab_size": 8192, "steps": 2500},
    "paper": {
        "length": 512,
        "batch_size": 256,
        "learning_rate": 6e-4,
        "warmup_steps": 10_000,
        "tokenizer": "bert-base-uncased",
        "steps": 70_000,
    },
}

# Training tokens after which the slowest of dstg, ap, rp and rope (at `small` of dstg and ap) is half a nat below the
# unigram plateau by the recipe of the size.
LEAVES_PLATEAU = {"tiny": 2_500_000, "small": 5_000_000}

# What a family of papers changes in them, always and at one size. DSTG 3.3 is the rule above; TUPE: its Table 1, and
# BERT's masking. (Dropout and the epsilon of norms are part of a preset.)
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "dstg": {},
    "tupe": {
        "always": {
            "mask_rate": 0.15,
            "masking": "80-10-10",
            "schedule": "linear",
            "minimum_learning_rate_ratio": 0.0,
            "epsilon": 1e-6,
            "betas": (0.9, 0.999),
            "shift": False,
        },
        "paper": {"learning_rate": 1e-4, "steps": 1_000_000},
    },
}


# What a preset changes in them at a size: the rates of its own, by the search that docs/method.md "Training" describes.
# A preset that is not here trains by the recipe of its size.
SCHEMES: dict[str, dict[str, dict[str, Any]]] = {
    # T5 tables at ten times the rate: the lowest loss of the tries so far (docs/log.md, 2026-11-25; some are open).
    "tiny": {"dstg": {"bias_learning_rate_scale": 10.0}, "rp": {"bias_learning_rate_scale": 10.0}},
    "small": {},
}


def family(name: str) -> str:
    """The family of a preset: "tupe" for those of BERT's block, else "dstg"."""
    return "tupe" if PRESETS.get(name, {}).get("block") == "bert" else "dstg"


def defaults(recipe: str, size: str, name: str | None = None) -> dict[str, Any]:
    """Training keys of a family (unknown names: none) at a size, and of the preset `name` there."""
    own = FAMILIES.get(recipe, {})
    scheme = SCHEMES.get(size, {}).get(name or "", {})
    return {**RECIPES.get(size, {}), **own.get("always", {}), **own.get(size, {}), **scheme}


class CorpusConfig(StrictConfig):
    """Which text, and how it becomes windows of token ids."""

    corpus: str = "python-docs"  # or a file or folder, hub:NAME[:CONFIG], synthetic:repeat, synthetic:three-regimes
    field: str = "text"  # of a .jsonl, .tsv, .csv, .parquet or Hub corpus: the one that holds the text
    document: str = "auto"  # what a document of a text file is: auto, file, blank-line, line, heading
    tokenizer: str | None = None  # vocabulary file, folder, Hub name, words, characters; none: train a WordPiece
    vocab_size: Annotated[int, Field(ge=16)] = 4096  # entries of a tokenizer made from the corpus
    newline_token: bool = True  # line breaks become [NL] tokens
    length: Annotated[int, Field(ge=4)] = 128  # tokens of a window, [CLS] and [SEP] included
    join: Literal["none", "isolate", "run-on"] = "run-on"  # of python-docs, whose documents are enough: none
    # Of a document that does not run on: first (as DSTG's code truncates), all, auto (first where that is enough text).
    pieces: Literal["auto", "first", "all"] = "auto"
    held_out: InnerShare = 0.05  # share of the documents kept from training
    workers: Count | None = None  # processes that tokenise; default: one per core

    @model_validator(mode="before")
    @classmethod
    def _keep_documents_apart(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Keep the documents of the default corpus apart, as DSTG's code does, where nothing else is asked for."""
        if values.get("join") is None and values.get("corpus") in (None, "python-docs"):
            return {**values, "join": "none"}
        return values

    def same_content(self, key: str, out: Path) -> bool:
        """Of a corpus and a tokenizer of another name or place: those of the windows in the folder of a run."""
        kept = out / "corpus" / "settings.json"
        if key not in ("corpus", "tokenizer") or not kept.is_file():
            return False
        try:
            settings = read_object(kept, "source", "tokenizer_sha256")
            source = open_source(self.corpus, self.field, self.document)
            if key == "corpus":
                return content(source.fingerprint()) == content(settings["source"])
            if self.tokenizer in (None, *UNITS):  # one that is made, where that of the run was loaded
                return False
            tokenizer = build_tokenizer(self.tokenizer, source, newline_token=self.newline_token)
        except ValueError:
            return False
        return bool(tokenizer_hash(tokenizer) == settings["tokenizer_sha256"])


class PretrainConfig(LoopConfig, CorpusConfig, SchemeConfig):
    """A pretraining run. Keys that a size, a recipe or a preset sets (RECIPES, FAMILIES, SCHEMES) may be given, too."""

    preset: str = "dstg"
    size: str = "tiny"
    recipe: Literal["dstg", "tupe"] = "dstg"  # whose training defaults; default: those of the preset's family
    model: dict[str, Any] = {}  # EncoderConfig fields that override the preset's
    tokens: Count | None = None  # budget: training tokens, padding included
    minutes: PositiveFloat | None = None  # budget: minutes of training, turned into steps once, by timing
    mask_rate: InnerShare = 0.2  # share of the tokens that is predicted
    masking: Literal["all", "80-10-10"] = "all"
    shift: bool = True  # positions at random where a text is shorter than the table (DSTG 3.3): not with join=run-on
    subset: bool = False  # instead: as many of the positions as a text has tokens, at random, in their order
    # Length curriculum: windows in pieces of so many tokens, twice as many in each equal part of the steps, at last
    # whole; a piece keeps its positions.
    first_length: Annotated[int, Field(ge=4)] | None = None
    validation_windows: Count = 256  # held-out windows of a validation
    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] = "und"  # of the text, for the card (ISO 639)
    pooling: Literal["mean", "semantic"] = "mean"  # columns of a text's vector in sentence-transformers: all, semantic

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = {**values, "recipe": values.get("recipe") or family(str(values.get("preset", "dstg")))}
        name = str(values.get("preset") or "dstg")
        recipe = defaults(str(values["recipe"]), str(values.get("size", "tiny")), name)
        given = {key: value for key, value in values.items() if value is not None or key == "tokenizer"}
        if any(key in given for key in BUDGET):
            recipe.pop("steps", None)
        return {**recipe, **given}

    @model_validator(mode="after")
    def _check(self) -> "PretrainConfig":
        given = [key for key in BUDGET if getattr(self, key) is not None]
        if len(given) != 1:
            preset(self.preset, self.size)  # of an unknown size no recipe has steps
            raise ValueError(f"Give one budget of {', '.join(BUDGET)}; got {' and '.join(given) or 'none'}.")
        if self.first_length is not None and self.first_length >= self.length:
            raise ValueError(f"first_length is below length={self.length}; got {self.first_length}.")
        return self

    @property
    def scheme_recipe(self) -> dict[str, Any]:
        """The keys that have the value of the preset's own recipe (`SCHEMES`)."""
        own = SCHEMES.get(self.size, {}).get(self.preset, {})
        return {key: value for key, value in own.items() if getattr(self, key) == value}

    def encoder_config(self, windows: Windows | None = None) -> EncoderConfig:
        """The model's configuration; vocabulary and special tokens are those of `windows`, if given."""
        fields = dict(self.model)
        if "preset" in fields:
            way_out = f"choose the preset itself, for example --preset {fields['preset']}"
            raise ValueError(f"model.preset cannot be set: {way_out}.")
        if windows is not None:
            entries = windows.manifest["vocab_size"]
            fields = {"vocab_size": entries, **windows.manifest["special_token_ids"], **fields}
            if fields["vocab_size"] < entries:
                raise ValueError(
                    f"model.vocab_size={fields['vocab_size']}, but the tokenizer has {entries} entries. "
                    "Leave model.vocab_size out, or use the tokenizer of that model."
                )
        config = preset(self.preset, self.size, **fields)
        if (longest := config.longest) is not None and self.length > longest:
            raise ValueError(
                f"length={self.length} tokens, but the position table of {self.preset} has {longest} rows. "
                f"Use --length {longest}, or --set model.max_position_embeddings={self.length}."
            )
        if self.subset and self.join == "run-on" and (rows := config.max_position_embeddings) <= self.length:
            raise ValueError(
                f"subset draws positions from more than length={self.length}, but there are {rows}: none is random. "
                f"Use --set model.max_position_embeddings={8 * self.length}, or leave subset out."
            )
        return config

    def check(self) -> EncoderConfig:
        """Refuse what cannot work before any text is read: the encoder, files it starts from, the attention backend, a
        step of an own scheme.

        Raises:
            ValueError: says which and why.
        """
        config = self.encoder_config()
        check_trackers(self.trackers)
        check_launcher()
        check_table_files(config)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        check_backend(self.backend, device, training=True, dropout=config.dropout)
        try_scheme(config, self.length)
        return config


def prepare_windows(config: CorpusConfig, out: Path, progress: bool = True) -> Windows:
    """Tokenizer and windows of a corpus in `out`; finished parts are kept."""
    return build_windows(*_text_and_tokenizer(config, out, progress), out, **_how(config), progress=progress)


def prepare_part(config: CorpusConfig, out: Path, part: tuple[int, int], progress: bool = True) -> int:
    """A part of what `prepare_windows` makes, see `build_part`; returns its number of shards."""
    return build_part(*_text_and_tokenizer(config, out, progress), out, part, **_how(config), progress=progress)


def _text_and_tokenizer(config: CorpusConfig, out: Path, progress: bool) -> tuple[Source, PreTrainedTokenizerFast]:
    source = open_source(config.corpus, field=config.field, document=config.document)
    saved = out / "tokenizer"
    if saved.is_dir():  # of an earlier call that was stopped
        check_files(saved, way_out=f"Delete {saved} and run the command again.")
        return source, load_tokenizer(str(saved))
    if progress and config.tokenizer is None:
        entries = f"{config.vocab_size:,} entries"
        print(f"Reading {config.corpus} and training a WordPiece of {entries}", file=sys.stderr, flush=True)
    return source, build_tokenizer(config.tokenizer, source, config.vocab_size, newline_token=config.newline_token)


def _how(config: CorpusConfig) -> dict[str, Any]:
    return {key: getattr(config, key) for key in ("length", "join", "pieces", "held_out", "workers")}


def check_one_batch(windows: Windows, batch_size: int) -> None:
    """Refuse windows that give less than one batch to train on.

    Raises:
        ValueError: says how many there are, and what would give more.
    """
    count, length = len(windows["train"]), windows.manifest["length"]
    if count >= batch_size:
        return
    if windows.manifest["join"] != "run-on" and windows.manifest["pieces"] == "first":
        documents = windows.manifest["documents"]["train"]
        raise ValueError(
            f"pieces=first leaves {count} training windows, the beginnings of {documents} documents, less than one "
            f"batch of {batch_size}. Use --set pieces=all, or give more documents or a smaller --set batch_size=."
        )
    raise ValueError(
        f"The corpus has {count} training windows of {length} tokens, less than one batch of {batch_size}. Give more "
        "text, or a smaller --set batch_size= or --length."
    )


def make_batches(config: PretrainConfig, windows: Windows, split: str, model: EncoderConfig) -> MaskedBatches:
    """The masked batches of a split as `config` wants them."""
    return MaskedBatches(
        windows[split],
        seed=config.seed,
        mask_rate=config.mask_rate,
        masking=config.masking,
        max_positions=model.max_position_embeddings,
        shift=config.shift and split == "train" and model.longest is not None,
        subset=config.subset and split == "train",
    )


def curriculum(config: PretrainConfig, batches: MaskedBatches, steps: int) -> BatchAt:
    """The batches of a training, cut into pieces as long as its `first_length` wants them."""
    if (first := config.first_length) is None:
        return batches.batch
    lengths = [first]
    while 2 * lengths[-1] < config.length:
        lengths.append(2 * lengths[-1])
    parts = steps * config.accumulate

    def cut(part: int, *share: int) -> Batch:
        batch, stage = batches.batch(part, *share), part * (len(lengths) + 1) // parts
        return batch if stage == len(lengths) else in_pieces(batch, lengths[stage], batches.windows.special_ids)

    return cut


def timed_step(config: PretrainConfig, windows: Windows) -> float:
    """Seconds of one training step of this configuration here: the median of TIMED on a throw-away model."""
    model_config = config.encoder_config(windows)
    torch.manual_seed(config.seed)
    batches = make_batches(config, windows, "train", model_config)
    trainer, times = Trainer(EncoderForMaskedLM(model_config), config, TIMED + 1), []
    for step in range(TIMED + 1):
        parts = trainer.micro_batches(batches.batch, step)
        began = time.perf_counter()
        trainer.step(step, parts)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first warms up


def steps_to_learn(config: PretrainConfig) -> int:
    """Steps after which models of this size have learned more than token frequencies; 0 where that was not measured."""
    return math.ceil(LEAVES_PLATEAU.get(config.size, 0) / (config.batch_size * config.length))


def too_few(minutes: float, steps: int, config: PretrainConfig, wanted_minutes: float, fewest: int = 1) -> str:
    """What is said where `minutes` buy fewer `steps` than `steps_to_learn`, which would take `wanted_minutes`.

    fewest: steps that are done whatever they take.
    """
    return (
        f"{minutes:g} minutes buy {'at most ' * (steps <= fewest)}{steps:,} step{'s' * (steps != 1)}; "
        f"models of size {config.size} need about {steps_to_learn(config):,} to learn more than how often each word "
        f"occurs: about {math.ceil(wanted_minutes)} minutes on this machine"
    )


def budget_steps(config: PretrainConfig, windows: Windows) -> int:
    """Optimizer steps that the configured budget buys."""
    if config.steps is not None:
        return config.steps
    if config.tokens is not None:
        return math.ceil(config.tokens / (config.batch_size * config.length))
    assert config.minutes is not None
    seconds = timed_step(config, windows)
    steps = max(1, int(config.minutes * 60 / seconds))
    wanted = steps_to_learn(config)
    bought = f"{config.minutes:g} minutes buy {steps:,} step{'s' * (steps != 1)} of {1000 * seconds:,.0f} ms"
    print(too_few(config.minutes, steps, config, wanted * seconds / 60) if wanted > steps else bought, file=sys.stderr)
    return steps


@one_writer
def pretrain(
    config: PretrainConfig,
    out: str | Path,
    *,
    resume: bool = False,
    windows: Windows | None = None,
    progress: bool | Show = True,
    label: str | None = None,
) -> dict[str, Any]:
    """Train one encoder and leave a transformers folder at `out`; returns its training summary.

    Checkpoints are in `out/checkpoints/step-N`, the log in `out/log.jsonl`, the resolved configuration in
    `out/pretrain.yaml` (it runs again), the summary in `out/training.json`; `model.safetensors` is written last.
    Without `windows` they are made from `config.corpus` in `out/corpus`.

    Raises:
        ValueError: bad configuration, a corpus smaller than one batch, or a loss that is no finite number.
    """
    out = Path(out)
    if not (out / CONFIG).is_file():
        config.check()
    # Whoever gives windows answers for their text.
    free = (*BUDGET, "workers", "sharding", *(("corpus",) if windows is not None else ()))
    saved, finished = enter(config, out, CONFIG, resume, free=free)
    if saved is not None:
        tokens_per_step = saved.batch_size * saved.length
        asked = config.steps if config.tokens is None else math.ceil(config.tokens / tokens_per_step)
        if None not in (asked, saved.steps) and asked != saved.steps:
            seen = f"{out} holds a run of steps={saved.steps}, now steps={asked} are asked"
            raise ValueError(f"{seen}. The schedule is made for its steps: others need another --out.")
        if config.minutes is not None and saved.steps is not None and finished is None and progress:
            print(f"{out} goes on to its {saved.steps:,} steps; minutes bought them when it began", file=sys.stderr)
        # Stopped while its text was read, it has no steps yet: the budget is that of this call.
        budget = {key: getattr(config, key) for key in BUDGET} if saved.steps is None else {}
        config = saved.model_copy(update=budget | {"corpus": config.corpus, "sharding": config.sharding})
    if finished is not None:
        return finished
    state = processes()
    with begun(config, out, CONFIG):
        if windows is None:
            with state.main_process_first():
                windows = prepare_windows(config, out / "corpus", bool(progress))
        model_config = config.encoder_config(windows)
        batches = make_batches(config, windows, "train", model_config)
        check_one_batch(windows, config.batch_size)
        steps = int(broadcast(torch.tensor(budget_steps(config, windows), device=state.device)))
        passes = steps * config.batch_size / len(windows["train"])
        if passes > 1 and progress is True and state.is_main_process:
            print(f"{len(windows['train']):,} training windows, each read {passes:.3g} times", file=sys.stderr)
        config = config.model_copy(update={"steps": steps, "tokens": None, "minutes": None})
        torch.manual_seed(config.seed)
        model = EncoderForMaskedLM(model_config)
    if state.is_main_process:
        config.save_run(out / CONFIG)
    trainer = Trainer(model, config, steps, out)
    facts = run(
        trainer,
        curriculum(config, batches, steps),
        out,
        tokens_per_step=config.batch_size * config.length,
        validate=_validator(config, windows, model_config) if len(windows["held_out"]) else None,
        resume=resume,
        label=label or f"{config.preset} seed {config.seed}",
        progress=progress,
    )
    summary = {"size": config.size, **facts, "operations": _operations(config, model_config)}
    summary |= {"pieces": windows.manifest["pieces"], "passes": passes}
    tokenizer, settings = windows.tokenizer(), config.model_dump()
    save_final(
        trainer.whole(), tokenizer, out, settings=settings, summary=summary, card=model_card, pooling=config.pooling
    )
    trainer.accelerator.wait_for_everyone()
    return summary


def _validator(config: PretrainConfig, windows: Windows, model_config: EncoderConfig) -> Any:
    held_out = make_batches(config, windows, "held_out", model_config)

    def validate(trainer: Trainer) -> dict[str, float]:
        loss, correct, n = validation(trainer, held_out.in_order(config.batch_size, limit=config.validation_windows))
        return {"validation_loss": loss, "validation_accuracy": correct / max(n, 1), "validation_labels": n}

    return validate


def _operations(config: PretrainConfig, model_config: EncoderConfig) -> float | None:
    """Operations per token of a forward pass; None for an own scheme that must see numbers to run (see `costs`)."""
    try:
        return costs(model_config, config.length, config.mask_rate).of("operations")
    except ValueError as error:
        print(error, file=sys.stderr)
        return None
