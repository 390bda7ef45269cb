"""The one way to open a model: a folder of ours or of transformers, of sentence-transformers, a Hub name, `reference`.

Weights come from safetensors, never from a pickle; no code of a model's folder runs; numbers have at least 32 bits, as
analyses in bfloat16 would find something else. Files of ours are compared with their hashes first, and sizes that the
weights cannot have are refused before memory is taken.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from transformers import (
    MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)
from transformers.utils import logging

from ..corpus.tokenizer import open_tokenizer
from ..encoder import EncoderConfig
from ..run.errors import command_line, name_model_in_errors, one_line, suggest_name
from ..run.files import check_inside, read_json
from ..run.folder import RunFolder
from ..run.hub import check_hub, is_offline
from ..run.reference import FILES_TO_OPEN, check_model_name, model_source
from ..run.status import newest_step
from .lengths import max_tokens
from .modules import MODULES
from .own_config import COPY, check_sizes, is_ours, own_config

HEADS: dict[str | None, Any] = {
    None: AutoModel,
    "masked": AutoModelForMaskedLM,
    "labels": AutoModelForSequenceClassification,
    "answers": AutoModelForQuestionAnswering,
}
_PRETRAINED = ("BertForPreTraining", "AlbertForPreTraining")  # saved with a masked-language head of another name


class WeightsMisfit(ValueError):
    """Error raised for weights whose shapes differ from the requested configuration's."""


class HeadMissing(ValueError):
    """Error raised for weights without the head that config.json names, and that must not be drawn anew."""


@dataclass(frozen=True, eq=False)
class OpenModel:
    """An opened model: its configuration, the network in evaluation mode, its tokenizer and its folder.

    config: its configuration. model: the encoder with the requested head, in evaluation mode. folder: path of
    its files; for a model on the Hub, its name as a path.
    """

    config: Any
    model: Any
    folder: Path

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer saved with the model, or of a checkpoint with its run; opened at the first use.

        Raises:
            ValueError: there is none, a damaged one, or one with more tokens than the model's table of words has rows.
        """
        tokenizer = open_tokenizer(str(self.folder))
        table = getattr(self.model.get_input_embeddings(), "weight", None)
        if table is not None:
            check_rows(tokenizer, len(table), str(self.folder))
        return tokenizer

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of an input, special ones included; None where nothing bounds them."""
        return max_tokens(self.config)

    @property
    def token_types(self) -> bool:
        """True if token types tell the two texts of a pair apart for this model.

        Its tokenizer must give them and its class take them, which a DistilBERT with BERT's tokenizer does not.
        """
        has_types = "token_type_ids" in self.tokenizer.model_input_names
        accepts_types = "token_type_ids" in signature(self.model.forward).parameters
        return has_types and accepts_types and self.config.model_type != EncoderConfig.model_type

    def cap_length(self, length: int) -> int:
        """Return the smaller of `length` and the most tokens that the model reads."""
        return min(length, self.max_tokens or length)


def check_rows(tokenizer: Any, rows: int, source: str) -> None:
    """Refuse a tokenizer with more tokens than the model's table of words has rows.

    Raises:
        ValueError: names both numbers, and what to do.
    """
    tokens = max(len(tokenizer), 1 + max(tokenizer.get_vocab().values(), default=-1))
    if tokens > rows:
        raise ValueError(
            f"The tokenizer of {source} has {tokens:,} tokens, and the model's table of words {rows:,} rows. Use the "
            f"tokenizer that it was trained with, or save it after model.resize_token_embeddings({tokens})."
        )


def open_model(
    source: str | Path,
    head: str | None = None,
    *,
    untrained: bool = False,
    seed: int = 0,
    classes: int | None = None,
    new_head: bool = False,
    config: Any = None,
    attention: str | None = None,
) -> OpenModel:
    """Open a model, ours or another package's, in evaluation mode; its tokenizer follows at its first use.

    Args:
        source: a model's folder, a checkpoint, a name on the Hub, or "reference".
        head: None for the bare encoder, "masked" for words, "labels" for a classifier, "answers" for the ends of
            answers. "answers", and "labels" with a `config` or `classes`, get new weights where none are saved.
        untrained: draw all weights from `seed` and read the configuration alone.
        seed: of weights that are drawn; it seeds torch's own generator, which the drawing moves on.
        classes: of a new classifier; 0 for one number to regress. None: as the model was saved.
        new_head: draw the head from `seed` even where one is saved, as `classes` does.
        config: the configuration of `open_config`, with fields changed; "answers" and `classes` change it in place.
        attention: implementation of attention for transformers' models, such as "eager", which returns its weights.

    Raises:
        ValueError: as `open_config`; weights that are damaged or lack what the configuration asks for.
        WeightsMisfit: weights of other shapes than `config` asks for.
        HeadMissing: the weights lack the words or labels that their configuration names.
    """
    _check_head_name(head)
    name, local = _name_and_locality(source)
    changed = config is not None or classes is not None
    new_head = new_head or classes is not None
    config = _read_config(name, local) if config is None else config
    _check_head(name, config, head)
    if head == "answers":
        config.num_labels = 2  # as BERT's head reads it: a score of the start and one of the end
    if classes is not None:
        config.num_labels = classes or 1
        config.problem_type = "single_label_classification" if classes else "regression"
    dtype = torch.float64 if getattr(config, "dtype", None) in (torch.float64, "float64") else torch.float32
    how: dict[str, Any] = {"trust_remote_code": False}
    if attention is not None and config.model_type != EncoderConfig.model_type:
        how["attn_implementation"] = attention
    torch.manual_seed(seed)
    with name_model_in_errors(name), _quiet():
        if untrained:
            model = HEADS[head].from_config(config, **how).to(dtype)
            return OpenModel(model.config, model.eval(), Path(name))
        how |= {"use_safetensors": True, "local_files_only": local or is_offline(), "output_loading_info": True}
        how["ignore_mismatched_sizes"] = new_head  # of a saved head; `_draw_head` refuses any other
        try:
            model, info = HEADS[head].from_pretrained(name, config=config, dtype=dtype, **how)
        except RuntimeError as error:
            if not changed:
                raise
            raise WeightsMisfit(
                f"The weights of {name} do not fit the requested configuration ({one_line(error)}). "
                "Give a model of that shape."
            ) from None
        _check_weights(model, info["missing_keys"], name)
        if new_head:
            _draw_head(model, lambda: HEADS[head].from_config(config), info, seed, name)
        if head == "masked" or (head == "labels" and not changed):
            _check_saved_head(model, info["missing_keys"], name)
    return OpenModel(model.config, model.eval(), Path(name))


def open_config(source: str | Path, head: str | None = None) -> Any:
    """Read the configuration of a model that can have a head; no weight is read.

    Raises:
        ValueError: an unknown head, no such folder, no finished model in it, several models, a pickle alone, a damaged
            file, one that is not as it was written, sizes that the weights cannot have, no such model on the Hub, or
            one without that head.
    """
    _check_head_name(head)
    name, local = _name_and_locality(source)
    config = _read_config(name, local)
    _check_head(name, config, head)
    return config


def model_folder(source: str | Path) -> Path:
    """Find the folder that holds a model's config.json and weights.

    It is the folder given, `reference`'s, or the encoder's in an older folder of sentence-transformers; of a
    model on the Hub a path that is only its name.

    Raises:
        ValueError: as `model_source`, or a modules.json that names a folder outside of it.
    """
    folder = Path(model_source(source))
    if (folder / "config.json").is_file() or not (folder / MODULES).is_file():
        return folder
    parts = read_json(folder / MODULES, COPY)
    paths = [str(part.get("path", "")) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    check_inside(folder / MODULES, paths)
    return next((folder / path for path in paths if (folder / path / "config.json").is_file()), folder)


def model_hashes(source: str | Path) -> dict[str, str] | None:
    """Return the hashes of the files that a model's folder is opened from; None for the Hub, where the name says it."""
    folder = model_folder(source)
    if not folder.is_dir():
        return None
    files = [path for path in sorted(folder.iterdir()) if path.suffix == ".safetensors" or path.name in FILES_TO_OPEN]
    run = RunFolder.at(folder)
    return {path.name: run.hash_of(path.name) for path in files}


def name_and_seed(folder: Path) -> tuple[str, int | None]:
    """Return name and seed of a model from its path: NAME and K of `NAME/seed-K`, else the folder's name and None."""
    folder = folder.absolute()
    seed = folder.name.removeprefix("seed-")
    if seed != folder.name and seed.isdigit() and folder.parent.name:
        return folder.parent.name, int(seed)
    return folder.name, None


def _name_and_locality(source: str | Path) -> tuple[str, bool]:
    """Return the name that transformers opens, and True if it is a folder; refuse a folder without a finished model."""
    folder = model_folder(source)
    if folder.is_dir():
        check_folder(folder)
        return str(folder), True
    check_model_name(source)
    return str(source), False


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds no finished model, or the models of a study.

    Raises:
        ValueError: what the folder lacks, and what to do.
    """
    if not (folder / "config.json").is_file():
        seeds = sorted(path.parent for path in folder.glob("**/seed-*/config.json"))
        if seeds:
            many = "one model" if len(seeds) == 1 else f"{len(seeds)} models"
            raise ValueError(f"{folder} holds {many} of a study. Name one, for example {seeds[0]}.")
        if RunFolder.at(folder).kind in ("pretrain", "finetune"):
            newest = newest_step(folder)  # the checkpoint of step 0 has learned nothing
            other = f", or open its checkpoint {folder / f'checkpoints/step-{newest}'}" if newest else ""
            raise ValueError(f"The training in {folder} is not finished. Give its command again{other}.")
        raise ValueError(f"No model at {folder}: config.json is missing. Give the folder of a trained model.")
    if not any(folder.glob("*.safetensors")):
        finish = f"Finish its training: {command_line('pretrain', '--out', folder)}."
        advice = finish if is_ours(folder) else "Bring its weights."
        if RunFolder.at(folder).kind == "export":
            raise ValueError(f"{folder} holds an exported graph, which onnxruntime opens. Give the model's own folder.")
        raise ValueError(
            f"{folder} holds no finished model: model.safetensors is missing, and a pickle is never read. {advice}"
        )


def _read_config(name: str, local: bool) -> Any:
    """Read the configuration of a folder (`local`) or of a model on the Hub; refuse one that is damaged or not found.

    Raises:
        ValueError: the Hub returns no such model, or a configuration is wrong; the message names the model.
    """
    with name_model_in_errors(name):
        if local and is_ours(Path(name)):
            return own_config(Path(name))
        try:
            if not local:
                check_hub(name, "config.json")
            config = AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=local or is_offline())
        except OSError as error:
            if local:
                raise
            reason = shorten(str(error), 100, placeholder=" …")
            raise ValueError(
                f"{name} is no folder here, and the Hub returns no such model ({reason}). Check the name; for a model "
                "of the Hub, the network too."
            ) from None
        if local:
            check_sizes(Path(name), config)
        return config


def _check_head_name(head: str | None) -> None:
    if head not in HEADS:
        known = ", ".join(repr(name) for name in HEADS)
        hint = suggest_name(str(head), [name for name in HEADS if name])
        raise ValueError(f"Unknown head {str(head)[:60]!r}.{hint} Heads: {known}.")


def _check_head(name: str, config: Any, head: str | None) -> None:
    """Refuse a model whose type has no such head, or that was saved without the one that must not be drawn anew."""
    kind = type(config)
    if head == "answers" and kind not in MODEL_FOR_QUESTION_ANSWERING_MAPPING:
        raise ValueError(
            f"{name} ({config.model_type}) has no head for questions in transformers. Give an encoder that has one."
        )
    if head == "labels" and kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise ValueError(f"transformers has no classifier of type {config.model_type}. Give an encoder that has one.")
    saved = str((getattr(config, "architectures", None) or ["no head"])[0])
    if head == "masked" and "ForMaskedLM" not in saved and saved not in _PRETRAINED:
        raise ValueError(
            f"{name} ({saved}) was saved without a masked-language head, which says how likely a word is. Give a "
            "model with one; heads needs none without --ablate."
        )


def _check_weights(model: Any, missing: Any, name: str) -> None:
    """Refuse a model whose file lacks more than half of its weights or, for one of ours, any of words or blocks."""
    lacking = sorted(missing)
    ours = model.config.model_type == EncoderConfig.model_type
    of_body = [key for key in lacking if ".layers." in f".{key}" or "word_embeddings" in key]
    if 2 * len(lacking) > len(set(model.state_dict())) or (ours and of_body):
        raise ValueError(
            f"The weights of {name} lack {lacking[0]}, which its config.json asks for. Use a complete copy."
        )


def _draw_head(model: Any, make: Callable[[], Any], info: dict[str, Any], seed: int, name: str) -> None:
    """Draw the head of a model from a seed where the whole head was saved; a head that was not is drawn already.

    Args:
        make: function that returns such a model with weights drawn at random.
        info: what transformers says of loading: `missing_keys`, `mismatched_keys`.

    Raises:
        WeightsMisfit: weights of the encoder have other shapes than its configuration asks for.
    """
    head = {key for key, _ in model.named_parameters() if not key.startswith(f"{model.base_model_prefix}.")}
    misfits = {key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]}
    if of_encoder := sorted(misfits - head):
        raise WeightsMisfit(
            f"The weights of {name} do not fit the requested configuration ({of_encoder[0]}). Give a model of that "
            "shape."
        )
    if misfits or not head & {*info["missing_keys"]}:
        torch.manual_seed(seed)
        parameters = dict(make().named_parameters())
        with torch.no_grad():
            for key in head:
                model.get_parameter(key).copy_(parameters[key])


def _check_saved_head(model: Any, missing: Any, name: str) -> None:
    """Refuse a head of which weights were not in the file: drawn at random, it would predict anything.

    The config.json of encoders for sentences often names the head of the pretraining, which their weights lack.
    """
    body = f"{model.base_model_prefix}."
    if lacking := sorted(key for key in missing if not key.startswith(body)):
        raise HeadMissing(
            f"{name} was saved without the head that its config.json names, {type(model).__name__}: {lacking[0]} is "
            "not among its weights. Ask for vectors, or give a model with that head."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' bars, and its remarks on heads that a checkpoint has and a model lacks, or the reverse."""
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
