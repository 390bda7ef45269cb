"""Models that read longer texts than they were trained on: position tables that go on, of ours, and of BERT, RoBERTa,
GPT-2 and what names its table as they do; rotations of ours whose frequencies are scaled; a short training after it."""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations

from ..corpus import MaskedBatches, WindowSet
from ..encoder import EncoderConfig
from ..encoder.carry import AUTO_CLASSES, ENTRY, carry
from ..encoder.registry import PAIR_TERMS
from ..geometry import extrapolate
from ..geometry.extrapolation import METHODS, OF_WAVES, usual_components
from ..models.lengths import (
    EXTENSION,
    LENGTHS,
    configured_length,
    rows_of_no_position,
    stated_positions,
    trained_length,
)
from ..models.model_tables import WITHOUT_CLS, table_key
from ..models.modules import TRANSFORMER_FILES, with_length
from ..models.open import check_folder
from ..models.tensors import named_tensors, write_errors_named
from ..run.files import read_json, read_object, sweep_beside, write_json, write_text
from ..run.folder import LOG, RunFolder
from ..run.hub import fetch_model
from ..run.manifest import MANIFEST
from ..run.progress import Progress, ignore_progress
from ..run.reference import model_source
from ..training.loop import Trainer
from ..training.training_keys import LoopConfig

KIND = "model"
Weights = dict[str, Tensor]  # of a file of safetensors, by name
SCALINGS = ("linear", "ntk", "yarn")  # of rotations; the first is position interpolation, of tables too
FORMULA = ("formula",)  # of tables that are computed
# Files of a run that are no part of its model: text, predictions and losses of the training among them.
LEFT_BEHIND = (
    "checkpoints",
    "corpus",
    "arrays",
    "*.parquet",
    "*.csv",
    "*.npz",
    "*.yaml",
    "report.html",
    LOG,
    MANIFEST,
)
# What a short training on longer texts changes: the network of SPLIT's eq. 5, the table, everything.
ADAPTED = ("network", "table", "all")
RATES = {"network": 4e-3, "table": 4e-3, "all": 1e-3}  # of a model 128 wide; wider ones take them in inverse proportion
WINDOWS = 8  # of a step of it


def methods_of(config: dict[str, Any], model: str | Path) -> tuple[str, ...]:
    """Return the names of the methods for a model, by its config.json; () where it reads any length without one.

    model: name for the message.

    Raises:
        ValueError: its positions cannot be continued.
    """
    kind = config.get("model_type")
    if kind != EncoderConfig.model_type:
        if kind in ("bart", "mbart", "opt"):
            raise ValueError(f"Models of type {kind} keep their positions in a way of their own. Give an encoder.")
        return METHODS
    if config.get("bilevel"):  # places beyond the table's rows share the last one, and segments are counted on
        return ()
    table = config["absolute"] != "none"
    if config.get("untied") == "free" or (table and config["rotation"] != "none"):
        what = "a free correlation" if config.get("untied") == "free" else "both a table and a rotation"
        advice = "Give one with a table or a rotation alone."
        raise ValueError(f"The positions of {model} are {what}, which no way continues. {advice}")
    if config["rotation"] == "rope":
        return SCALINGS
    if config["absolute"] in ("sinusoidal", "fourier"):
        return FORMULA
    return METHODS if table else ()


@dataclass(frozen=True, eq=False)
class _Plan:
    """A model that was read, and the copy that the arguments of `extend` ask for.

    known: names of its methods. before: tokens that it reads.
    """

    folder: Path
    config: dict[str, Any]
    known: tuple[str, ...]
    before: int
    length: int
    method: str | None
    components: int | None
    points: np.ndarray | None
    as_written: bool
    window: int | None

    @property
    def is_ours(self) -> bool:
        """True of an encoder of this package."""
        return bool(self.config.get("model_type") == EncoderConfig.model_type)

    @property
    def scheme(self) -> str:
        """Name of the scheme in messages."""
        return str(self.config.get("preset") or "this scheme")

    @property
    def keeps_positions(self) -> bool:
        """True where the copy has the model's positions: nothing bounds them, and no method scales them."""
        return not self.known or (self.known == SCALINGS and self.method is None)

    @property
    def continues_table(self) -> bool:
        """True where a table of positions goes on in the copy."""
        return not self.keeps_positions and self.known != SCALINGS


def extend(
    source: str | Path,
    out: Path,
    length: int,
    method: str | None = None,
    *,
    components: int | None = None,
    points: np.ndarray | None = None,
    as_written: bool = False,
    window: int | None = None,
) -> dict[str, Any]:
    """Write a copy of a model to `out` that reads `length` tokens.

    Rows that belong to no position (RoBERTa's first two) stay before the table. Row 0 of a model whose texts begin with
    [CLS] or a token like it is that token's: it stays, and the table behind it is continued, or repeated.
    Tables by a formula (`sinusoidal`, `fourier`) go on by it. Of a table of low rank, A·Bᵀ, the product goes on, and
    the new rows of A are those that give what is nearest to it; B stays.

    Args:
        source: folder of a model, a name on the Hub, or `reference`.
        method: of a table as of `geometry.extrapolate`; of a rotation one of SCALINGS (EncoderConfig). Default:
            `cyclic` of a table, and a rotation stays unchanged.
        components, as_written: as of `geometry.extrapolate`.
        points: as there, a row each of `length` positions of the model, as `geometry` writes tables: row 0 is for
            [CLS].
        window: tokens on each side that a token looks at in the copy, of a model of ours; None: as before.

    Returns:
        out, parent, method (None where nothing but the window is new), components, as_written, window, length,
        `before`, the tokens that the model read, and `trained`, its training's, all but out also in EXTENSION
        of the copy; or out None and `reason`, where it needs nothing and nothing is written.

    Raises:
        ValueError: as `geometry.extrapolate`, no model, one whose table has another name, a copy that goes on already,
            an option that the model has no use for, or `out` is there.
    """
    folder = fetch_model(str(source))
    if not folder.is_dir():
        raise ValueError(f"No model at {folder}: there is no such folder. Give the folder of a trained model.")
    check_folder(folder)
    config = read_object(folder / "config.json", hint="Use a complete copy.")
    known = methods_of(config, folder)
    before = configured_length(config)
    plan = _Plan(folder, config, known, before, length, method, components, points, as_written, window)
    _refuse_options(plan)
    if plan.keeps_positions and window is None:
        return {"out": None, "reason": _reason_for_no_copy(plan)}
    _refuse_window(plan)
    plan = replace(plan, method=_chosen_method(plan))
    sweep_beside(out)
    _refuse_extension(plan, out)
    trained, changed, weights, components = _extended_parts(plan)
    facts = {"parent": _name_of_parent(source, folder), "method": plan.method, "components": components}
    facts |= {"as_written": as_written, "window": window, "length": length, "before": plan.before, "trained": trained}
    _write_copy(plan, out, changed, weights, facts)
    return {"out": str(out), **facts}


def _refuse_options(plan: _Plan) -> None:
    """Refuse a method, or an option of a table, that the model has no use for."""
    known = plan.known
    method = plan.method
    names = known if known in (SCALINGS, METHODS) else tuple(dict.fromkeys((*METHODS, *SCALINGS)))
    if method is not None and method not in names:
        what = "a rotation" if known == SCALINGS else "a position table"
        other = "a table" if known == SCALINGS else "RoPE"
        of_others = f": it is of {other}" if method in (*SCALINGS, *METHODS) else ""
        raise ValueError(f"There is no method {method!r} for {what}{of_others}. Known: {', '.join(names)}.")
    if (plan.as_written or plan.components is not None or plan.points is not None) and known != METHODS:
        raise ValueError(
            "components, points and as_written are of a learned position table, which this model has not. "
            "Leave them out."
        )
    if method is not None and known != names:
        has = "no table and no rotation to continue" if known != FORMULA else "a table by a formula, which goes on"
        raise ValueError(f"{plan.scheme} has {has}, so {method} has no use here. Leave it out.")


def _reason_for_no_copy(plan: _Plan) -> str:
    """Say why a model reads texts of any length as it stands."""
    scaled = f" Its frequencies can be scaled: --method {', '.join(SCALINGS)}." if plan.known else ""
    cause = "its table counts places in a segment" if plan.config.get("bilevel") else "it has no table of positions"
    return f"{plan.scheme} needs no change to read texts of any length: {cause}.{scaled}"


def _refuse_window(plan: _Plan) -> None:
    """Refuse a window of attention for a model of others, or one that hides nothing."""
    if plan.window is not None and not plan.is_ours:
        raise ValueError(
            f"Attention to a window of tokens is of this package's encoders; {plan.folder} is none. Leave it out."
        )
    if plan.window is not None and plan.window >= plan.length - 1:
        raise ValueError(
            f"A window of {plan.window} tokens on each side hides nothing of {plan.length}. Give less, or none."
        )


def _chosen_method(plan: _Plan) -> str | None:
    """Return the method of the copy: the given one, or the default of its kind of positions; None for a new window."""
    if plan.known == FORMULA:
        return "formula"
    if plan.length == plan.before:  # the window alone is new
        if plan.method is not None or plan.points is not None:
            raise ValueError(
                f"The model reads {plan.before} tokens already: method and points have no use. Leave them out."
            )
        return None
    return plan.method if plan.keeps_positions else plan.method or "cyclic"


def _refuse_extension(plan: _Plan, out: Path) -> None:
    """Refuse a folder that is there, a length that needs no copy, a continued copy, and rows beyond the memory."""
    RunFolder.check_can_create(out, KIND)
    length = plan.length
    has_new_window = plan.keeps_positions or (plan.window and plan.known != SCALINGS)
    if length < plan.before or (length == plan.before and not has_new_window):
        read = f"{plan.before} tokens (predict --length {plan.before})"
        needed = f"With a window give {plan.before} or" if has_new_window else "Give"
        raise ValueError(f"The model already reads {read}. {needed} more; got {length}.")
    check_original(plan.folder, length)
    room = psutil.virtual_memory().available  # 8 float64
    needed_bytes = 64 * length * int(plan.config.get("hidden_size", 1))
    if plan.continues_table and needed_bytes > room:
        raise ValueError(
            f"Rows for {length:,} tokens need {needed_bytes / 2**30:,.0f} GiB, and {room / 2**30:,.0f} are free. Give "
            "less."
        )


def _extended_parts(plan: _Plan) -> tuple[int, dict[str, Any], dict[Path, Weights], int | None]:
    """Return the tokens of the longest text in the training, the keys of config.json that change, by file of the model
    the weights of the one that changes, and the number of frequencies.

    Raises:
        ValueError: the positions cannot be continued as planned.
    """
    tensors = named_tensors(plan.folder)
    key = table_key(tensors, plan.is_ours)
    if key is None and plan.known == METHODS:
        raise ValueError(
            f"{plan.folder} keeps no table of positions that can be continued. Give a model with a learned one."
        )
    trained = trained_length(plan.folder, plan.config)
    changed = _changed_keys(plan, trained)
    if key is None or plan.method is None:
        return trained, changed, {}, plan.components
    weights, components = _extended_weights(plan, tensors, key)
    return trained, changed, {tensors[key]: weights}, components


def _changed_keys(plan: _Plan, trained: int) -> dict[str, Any]:
    """Return the keys of config.json that a copy changes, with their values."""
    config = plan.config
    beyond = stated_positions(config) - plan.before  # RoBERTa's counts rows of no position, BART's does not
    changed: dict[str, Any] = {name: plan.length + beyond for name in LENGTHS if name in config}
    keeps_max_positions = getattr(PAIR_TERMS.get(config.get("pair_terms", "none")), "keeps_max_positions", False)
    if keeps_max_positions and plan.continues_table and plan.length > plan.before:
        raise ValueError(
            f"{plan.scheme} cannot be continued: its {config['pair_terms']} terms are made for {plan.before} "
            "positions, as many as its table has rows. Give a model that has one of both."
        )
    if config.get("bilevel") or keeps_max_positions:  # whose rows are places in a segment, or which keeps them
        changed = {}
    if plan.window is not None:
        changed["attention_window"] = plan.window
    if plan.known == SCALINGS and not plan.keeps_positions:
        if config.get("rotation_scaling", "none") != "none":
            raise ValueError(f"{plan.folder} is scaled already. Give the model that it was made from.")
        changed |= {"rotation_scaling": plan.method, "rotation_factor": plan.length / trained}
    return changed


def _extended_weights(plan: _Plan, tensors: Mapping[str, Path], key: str) -> tuple[Weights, int | None]:
    """Return the weights of the table's file with the table continued, and the number of frequencies of the method."""
    weights = load_file(tensors[key])
    unused = rows_of_no_position(plan.config)
    first = unused + (plan.config.get("model_type") not in WITHOUT_CLS)
    head, table = weights[key].split([first, len(weights[key]) - first])
    points = plan.points
    if points is not None:
        if len(points) < plan.length:
            raise ValueError(
                f"There are points for {len(points)} positions, and LENGTH is {plan.length}. Give as many."
            )
        points = points[first - unused : plan.length]
    components = plan.components
    if plan.method in OF_WAVES and components is None:
        components = usual_components(len(table))
    how: dict[str, Any] = {"components": components, "points": points, "as_written": plan.as_written}
    known_rows = table.double().numpy()
    mixed = _mixed(tensors, key)
    product = known_rows if mixed is None else known_rows @ mixed.T
    rows_beyond = extrapolate(product, plan.length + unused - first, str(plan.method), **how)
    if mixed is not None:
        rows_beyond[: len(table)] -= product  # so that rows which stay are the same to the last bit
        rows_beyond = np.linalg.lstsq(mixed, rows_beyond.T)[0].T
        rows_beyond[: len(table)] += known_rows
    weights[key] = torch.cat([head, torch.from_numpy(rows_beyond).to(table.dtype)])
    # Numbers of the rows, which old checkpoints keep: older transformers refuse numbers of another length.
    return {name: tensor for name, tensor in weights.items() if not name.endswith("position_ids")}, components


def _name_of_parent(source: str | Path, folder: Path) -> str:
    """Return the name of the model that a copy is made from: its folder's, with its study's, or that on the Hub."""
    if not Path(model_source(str(source))).is_dir():  # fetched: the folder's name is a revision
        return str(source)
    place = folder.resolve()
    return f"{place.parent.name}/{place.name}" if place.name.startswith("seed-") else place.name


def copy_files(folder: Path, new: Path, left: Sequence[str] = ()) -> None:
    """Copy the files of a folder, without their modes, but for what has a name that matches a pattern of `left`."""
    # shutil.copytree also copies the mode of a read-only folder, so that nothing more can be written into the copy, and
    # raises a list of errors.
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_left = any(fnmatchcase(part, pattern) for part in parts for pattern in left)
        if path.is_file() and not is_left:
            new.joinpath(*parts).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, new.joinpath(*parts))


def _write_copy(
    plan: _Plan, out: Path, changed: dict[str, Any], weights: Mapping[Path, Weights], facts: dict[str, Any]
) -> None:
    """Write the files of a copy: the model's, with the weights, keys and lengths that change."""
    folder = plan.folder
    with RunFolder.create_locked(out, KIND) as new:
        left = (*LEFT_BEHIND, "*.py") if plan.is_ours else LEFT_BEHIND
        copy_files(folder, new, left)
        with write_errors_named(out):
            for file, tensors in weights.items():
                save_file(tensors, new / file.name, {"format": "pt"})
        if plan.is_ours:  # its own code may be older than what is new in the configuration; the shipped model has none
            carry(new, [path.read_text("utf-8") for path in sorted(folder.glob("own_scheme*.py"))])
            changed["auto_map"] = {auto: f"{ENTRY}.{name}" for auto, name in AUTO_CLASSES.items()}
        write_json(new / "config.json", plan.config | changed)
        about_tokenizer = new / "tokenizer_config.json"
        if about_tokenizer.is_file() and "model_max_length" in (about := read_json(about_tokenizer)):
            write_json(about_tokenizer, about | {"model_max_length": plan.length})
        for file in (new / name for name in TRANSFORMER_FILES if (new / name).is_file()):
            write_json(file, with_length(read_json(file), plan.length))
        if (new / "tokenizer.json").is_file():  # of the old length, for whoever reads the file alone
            write_json(
                new / "tokenizer.json", read_json(new / "tokenizer.json") | {"truncation": None, "padding": None}
            )
        write_json(new / EXTENSION, facts)
        _card_of_copy(new, facts)


def _mixed(tensors: Mapping[str, Path], key: str) -> np.ndarray | None:
    """B (width, r) of a table A·Bᵀ whose A has this name, in float64; None of other tables."""
    if not key.endswith(".A"):
        return None
    other = f"{key.removesuffix('A')}B"
    tensor: np.ndarray = load_file(tensors[other])[other].double().numpy()
    return tensor


def _in_words(facts: dict[str, Any]) -> str:
    waves = f" of {facts['components']} frequencies" if facts["components"] else ""
    written = ", by the equation in the rows before, too" if facts["as_written"] else ""
    how = [f"positions beyond by `{facts['method']}`{waves}{written}"] if facts["method"] else []
    how += [f"a token looks at {facts['window']:,} tokens on each side"] if facts["window"] else []
    read = f"{facts['length']:,} tokens ({facts['before']:,} before, trained on {facts['trained']:,})"
    return f"A copy of `{facts['parent']}` that reads {read}: {'; '.join(how)}."


def _card_of_copy(folder: Path, facts: dict[str, Any]) -> None:
    """The original's card with what a copy is on top, the length that it reads, and its own folder to open."""
    say_in_card(folder, f"{_in_words(facts)} What follows is said of the original, but for the longest input.")
    card = (folder / "README.md").read_text("utf-8")
    for key in ("longest input |", "Longest input:"):
        card = card.replace(f"{key} {facts['before']} tokens", f"{key} {facts['length']} tokens")
    card = card.replace("ww.reference()", '"FOLDER"')
    of_reference = "it is the model `reference`: `whatwhere attention reference"
    card = card.replace(f"On the command line {of_reference}", "On the command line: `whatwhere attention FOLDER")
    write_text(folder / "README.md", card)


def check_original(folder: Path, length: int) -> None:
    """Refuse a model that is a copy, continued already by a method, but not as far as `length` tokens.

    What training has learned of its positions is in the model that the copy was made from.

    Raises:
        ValueError: the model is such a copy.
    """
    extension = folder / EXTENSION
    facts = read_object(extension, "method", "length", "before") if extension.is_file() else {}
    if facts and facts["method"] not in (None, "formula") and facts["before"] < facts["length"] < length:
        how = f"by {facts['method']} to {facts['length']} tokens"
        raise ValueError(f"{folder} is a copy that goes on already, {how}. Give the model that it was made from.")


def say_in_card(folder: Path, sentence: str) -> None:
    """Put a sentence on top of a folder's model card, below its head; where there is none the card is the sentence."""
    card = folder / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    head, mark, rest = text.partition("\n---\n") if text.startswith("---\n") else ("", "", text)
    write_text(card, f"{head}{mark}\n> {sentence}\n\n{rest.lstrip()}".lstrip())


def check_enough(texts: WindowSet) -> None:
    """Refuse texts with fewer windows than a step of `adapt` reads.

    Raises:
        ValueError: there are fewer.
    """
    if len(texts) < WINDOWS:
        raise ValueError(f"{len(texts)} texts are left to adapt to; a step has {WINDOWS}. Give more text: --corpus.")


class Continued(nn.Module):
    """Parametrization of a table whose rows from `trained` on are (1 - α) p_{i mod L} + α f(i/L) (SPLIT notes, eq. 5).

    f is trained. It starts from the rows that the table has there, and adds a network of 32 tanh units over i/L and its
    waves.

    Args:
        table: (rows, width), as forward takes and gives it.
        first: number of rows before position 0; the L rows from there to `trained` are repeated.
    """

    again: Tensor
    share: Tensor
    start: Tensor
    at: Tensor

    def __init__(self, table: Tensor, first: int, trained: int) -> None:
        super().__init__()
        n = trained - first
        at = torch.arange(n, len(table) - first) / n
        waves = [f(2**k * math.pi * at) for k in range(5) for f in (torch.sin, torch.cos)]
        self.trained = trained
        self.register_buffer("again", first + torch.arange(n, len(table) - first) % n)
        self.register_buffer("share", torch.sigmoid(5 * (at - 1))[:, None])
        self.register_buffer("start", (table[trained:] - (1 - self.share) * table[self.again]) / self.share)
        self.register_buffer("at", torch.stack([at, *waves], dim=1))
        last = nn.Linear(32, table.shape[1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.more = nn.Sequential(nn.Linear(self.at.shape[1], 32), nn.Tanh(), last)

    def forward(self, table: Tensor) -> Tensor:
        """Return the table (rows, width) with its rows from `trained` on computed by eq. 5."""
        beyond = (1 - self.share) * table[self.again] + self.share * (self.start + self.more(self.at))
        return torch.cat([table[: self.trained], beyond])


def adapt(
    model: Any,
    texts: WindowSet,
    steps: int,
    what: str,
    trained: int = 0,
    seed: int = 0,
    progress: Progress = ignore_progress,
) -> list[float]:
    """Train a masked-language model, whose weights are changed, on windows of the new length.

    AdamW, a rate that falls to 0 along a line, 20 % of the tokens masked, WINDOWS windows a step. Returns the loss of
    each step, in nats.

    Args:
        what: "network", `Continued` alone; "table", its position table alone, all else frozen; or "all".
        trained: positions that the table had before, of "network".

    Raises:
        ValueError: no table to train, or fewer windows than a step has.
        NotFiniteError: the loss or the gradient is no finite number.
    """
    check_enough(texts)
    tables = {name: p for name, p in model.named_parameters() if "position_embeddings." in name}
    if what != "all" and not tables:
        raise ValueError(f"{type(model).__name__} has no position table that could be trained alone. Adapt all of it.")
    model.requires_grad_(what == "all")
    for parameter in tables.values() if what == "table" else ():
        parameter.requires_grad_(True)
    holder = None
    parameter_name = ""
    if what == "network":
        name, table = next(iter(tables.items()))
        unused = rows_of_no_position(model.config.to_dict())
        place, _, parameter_name = name.rpartition(".")  # `weight`, or the A of a table of low rank
        holder = model.get_submodule(place)
        register_parametrization(holder, parameter_name, Continued(table.detach(), unused + 1, unused + trained))
    batches = MaskedBatches(texts, seed, max_positions=texts.length, shift=False)
    settings = {"seed": seed, "batch_size": WINDOWS, "learning_rate": RATES[what] * 128 / model.config.hidden_size}
    settings |= {"warmup_steps": steps // 10, "schedule": "linear", "minimum_learning_rate_ratio": 0.0}
    trainer = Trainer(model, LoopConfig.parse({**settings, "weight_decay": 0.0}), steps)
    ours = model.config.model_type == EncoderConfig.model_type
    losses = []
    for step in range(steps):
        parts = trainer.make_micro_batches(batches.micro_batch, step)
        if not ours:  # others count for themselves, RoBERTa from 2
            parts = [{key: rows for key, rows in part.items() if key != "position_ids"} for part in parts]
        loss, _ = trainer.take_step(step, parts)
        losses.append(loss)
        progress(step + 1, steps, "adapting", f"{loss:.3f}")
    if holder is not None:
        remove_parametrizations(holder, parameter_name)
    return losses
