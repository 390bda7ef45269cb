"""The reference model, which comes with the package, and what an argument that names a model means."""

from pathlib import Path

from .folder import RunFolder

REFERENCE = "reference"
_FOLDER = Path(__file__).parents[1] / "reference"  # package data; examples/make_reference.py writes it
# Files that code which opens a model reads, beside the weights.
FILES_TO_OPEN = ("config.json", "tokenizer.json", "tokenizer_config.json")
_REQUIRED_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def reference() -> str:
    """Return the path of the reference model, a transformers folder inside the installed package.

    The model is a small `dstg`, trained on English Wikipedia. Its weights are stored in bfloat16 and open in float32.
    The path is a `str`, because not every library takes a `Path`: `AutoModel.from_pretrained(whatwhere.reference())`.
    README.md in the folder says what the model learned, and how well.

    Raises:
        ValueError: the package data are missing.
    """
    missing = [name for name in _REQUIRED_FILES if not (_FOLDER / name).is_file()]
    if missing:
        raise ValueError(
            f"The reference model is not part of this installation: {_FOLDER} has no {missing[0]}. "
            "Reinstall whatwhere, or give a model folder."
        )
    return str(_FOLDER)


def model_source(model: str | Path) -> str:
    """Return the folder or Hub name that a model argument means, after comparing the hashes of a folder's files.

    The word `reference` means the reference model, even where the working directory has a folder of that name; this
    folder is `./reference`, or a `Path`.

    Raises:
        ValueError: as `reference`, or a file of the model is not as it was written.
    """
    source = reference() if model == REFERENCE else str(model)
    if Path(source).is_dir():
        run = RunFolder.at(source)
        run.check(*FILES_TO_OPEN, *run.listed_files("model*.safetensors"))
    return source


def check_model_name(model: str | Path) -> None:
    """Refuse a model argument that is neither a folder nor `reference`, and cannot be a name on the Hub.

    Raises:
        ValueError: the argument is a file, or a path that does not exist.
    """
    path = Path(model)
    name = str(model)
    is_path = path.exists() or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if is_path and not path.is_dir() and model != REFERENCE:
        raise ValueError(f"No model at {name}: it is no folder. Give the folder of a trained model.")
