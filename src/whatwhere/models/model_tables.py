"""Position and word tables of any model, read by name from its folder: ours, BERT's, GPT-2's, ViT's; or a .npy file."""

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from ..encoder import EncoderConfig
from ..encoder.config import TABLE_STARTS
from ..encoder.registry import register_folder_reader
from ..encoder.tables import PositionTable, check_table, read_npy_table, read_starting_table
from ..run.files import read_object
from .lengths import rows_of_no_position
from .own_config import COPY, is_ours, own_config
from .tensors import named_tensors, read_tensor

WITHOUT_CLS = ("gpt2", "opt", "gpt_neo", "gpt_bigcode", "gptj", "openai-gpt", "vit_mae")  # read text from row 0 on

# Tables in the weights of transformers' models and of ours (ViT's and BEiT's positions are no embedding layer).
_POSITIONS = ("position_embeddings.weight", "position_embeddings", "wpe.weight", "embed_positions.weight")
_WORDS = ("word_embeddings.weight", "wte.weight", "embed_tokens.weight", "tok_embeddings.weight")
_OWN = "position_embeddings."  # the module of all our tables


def read_table(source: str | Path, words: bool = False) -> Tensor:
    """Read a position table (rows, width) in float64 from a .npy file or a model's folder; row i is position i.

    Of a model folder one tensor is read by its name, from safetensors alone, and no model is built: BERT, ALBERT,
    RoBERTa, ELECTRA, GPT-2, ViT and models that name their table as these do; of a model of ours, the table as the
    model uses it, whatever its kind.

    Args:
        words: read the table of words instead, row i token id i, all rows; a .npy file has none.

    Raises:
        ValueError: no such file or table, weights in pickle files alone, not two dimensions, or NaN or infinity.
    """
    path = Path(source)
    if path.is_dir():
        table = _table_of_model(path, words)
    elif words:
        advice = "Give the folder of a model, or the words as a source of their own."
        raise ValueError(f"{path} is one table and has no words beside it. {advice}")
    else:
        return read_npy_table(path)
    check_table(table, path)
    return table


def _table_of_model(folder: Path, words: bool) -> Tensor:
    about = folder / "config.json"
    config = read_object(about, hint=COPY) if about.is_file() else {}
    kind = config.get("model_type")
    tensors = named_tensors(folder)
    if kind == EncoderConfig.model_type and not words:
        return _own_table(folder, tensors)
    what, names = ("word", _WORDS) if words else ("position", _POSITIONS)
    key = _called(tensors, names)
    if key is None:
        whose = f"model type {kind!r} keeps none" if kind else "no config.json says what model it is"
        advice = "Leave --words out." if words else "Give a model with absolute positions, or a .npy file."
        raise ValueError(f"No {what} table in {folder}: {whose} under the names {', '.join(names)}. {advice}")
    table = read_tensor(tensors[key], key).double()
    if words:
        return table
    table = table[0] if table.ndim == 3 and table.shape[0] == 1 else table  # ViT's has a batch dimension
    return table[rows_of_no_position(config) :]


def has_table(folder: Path) -> bool:
    """Tell whether a model's folder, ours or of transformers, has a position table that `read_table` reads."""
    if is_ours(folder):
        return _numbers_positions(own_config(folder))
    return _called(named_tensors(folder), _POSITIONS) is not None


def _numbers_positions(config: EncoderConfig) -> bool:
    """Tell if a model of ours has a table whose rows are positions, and not places in a segment."""
    return config.absolute != "none" and not config.bilevel


def table_key(tensors: Iterable[str], ours: bool) -> str | None:
    """Find the name of the position table among the tensors of a model; None where there is none."""
    return _called(tensors, tuple(f"{_OWN}table.{name}" for name in ("weight", "A")) if ours else _POSITIONS)


def _called(tensors: Iterable[str], names: tuple[str, ...]) -> str | None:
    return next((k for k in tensors if f".{k}".endswith(tuple(f".{name}" for name in names))), None)


def _own_table(folder: Path, tensors: dict[str, Path]) -> Tensor:
    """Compute the table of a model of ours from its parts, in float64."""
    config = own_config(folder)
    if not _numbers_positions(config):
        scheme = config.preset or "unnamed"
        advice = "Try a dstg or ap model."
        problem = "has rows for places in a segment" if config.bilevel else "keeps no position in one"
        raise ValueError(f"No position table in {folder}: its scheme, {scheme}, {problem}. {advice}")
    parts = {key.rpartition(_OWN)[2]: read_tensor(path, key) for key, path in tensors.items() if _OWN in key}
    module = PositionTable(config)
    try:
        module.load_state_dict(parts)
    except RuntimeError as error:
        why = " ".join(str(error).split())[:160]
        raise ValueError(f"The table of {folder} does not fit its config.json ({why}). Use a complete copy.") from None
    table: Tensor = module.double()()
    return table.detach()


def check_table_files(config: EncoderConfig) -> None:
    """Read the files that a new model's table comes from, so that unusable ones are refused before the training.

    Raises:
        ValueError: a file is missing, is no table, or does not fit.
    """
    start = None if config.table_start in TABLE_STARTS else config.table_start
    width = config.table_width or config.position_vector_width
    for source in (config.table_file, start):
        if source is not None:
            read_starting_table(source, config.max_position_embeddings, width)


register_folder_reader(read_table)
