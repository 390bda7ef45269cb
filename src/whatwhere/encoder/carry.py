"""A saved model carries this folder's files, so that transformers opens it where this package is not installed.

`auto_map` in config.json names `modeling_whatwhere.py`: this folder's `__init__.py`, and a line for each scheme of your
own in the model. transformers copies it, and the files that it imports by lines `from .x import`, into a package of its
own (`trust_remote_code=True`).
"""

import ast
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from transformers import PreTrainedModel
from transformers.dynamic_module_utils import get_relative_import_files

from .registry import scheme_files

ENTRY = "modeling_whatwhere"
AUTO_CLASSES = {
    "AutoConfig": "EncoderConfig",
    "AutoModel": "Encoder",
    "AutoModelForMaskedLM": "EncoderForMaskedLM",
    "AutoModelForSequenceClassification": "EncoderForSequenceClassification",
    "AutoModelForMultipleChoice": "EncoderForMultipleChoice",
    "AutoModelForTokenClassification": "EncoderForTokenClassification",
    "AutoModelForQuestionAnswering": "EncoderForQuestionAnswering",
}

_HERE = Path(__file__).parent


def _modules_of_public_names() -> dict[str, str]:
    """Return the module of this folder from which `__init__.py` imports each public name."""
    tree = ast.parse((_HERE / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module]
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


def _imports_whatwhere(node: ast.AST) -> bool:
    """Tell if a statement imports from whatwhere."""
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and not node.level:
        modules = [str(node.module)]
    return any(module.split(".")[0] == "whatwhere" for module in modules)


def _relative_lines(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the relative import lines that do the same as an import from whatwhere."""
    public_modules = _modules_of_public_names()
    module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
    if module in ("whatwhere", "whatwhere.encoder") and all(alias.name in public_modules for alias in node.names):
        return [f"from .{public_modules[alias.name]} import {ast.unparse(alias)}" for alias in node.names]
    if module.startswith("whatwhere.encoder."):
        names = ", ".join(map(ast.unparse, node.names))
        return [f"from .{module.removeprefix('whatwhere.encoder.')} import {names}"]
    raise ValueError(
        f"Line {node.lineno}, `{ast.unparse(node)}`, imports what a saved model does not carry. Write `from "
        f"whatwhere.encoder import NAME`, or import from its modules. Names: {', '.join(sorted(public_modules))}."
    )


def make_imports_relative(text: str) -> str:
    """Rewrite the lines of a scheme that import from `whatwhere.encoder` as relative imports; return its text.

    `from whatwhere import NAME` may import the names of `whatwhere.encoder` that `whatwhere` offers, such as `preset`.

    Raises:
        SyntaxError: the text is not Python.
        ValueError: the scheme imports anything else of whatwhere, or not on a line of its own.
    """
    lines = text.removesuffix("\n").split("\n")  # Python's lines: a form feed ends none, unlike in `splitlines`
    nodes = [
        n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom) and _imports_whatwhere(n)
    ]
    for node in sorted(nodes, key=lambda node: -node.lineno):  # from the last, so that line numbers stay
        first = node.lineno - 1
        last = node.end_lineno or node.lineno
        statement = lines[first].lstrip()
        indent = lines[first].removesuffix(statement)
        try:
            statements = ast.parse("\n".join(line.strip() for line in lines[first:last])).body
        except SyntaxError:
            statements = []
        if len(statements) != 1 or not isinstance(statements[0], ast.Import | ast.ImportFrom):
            raise ValueError(
                f"An import of whatwhere in a scheme must stand on a line of its own; got `{statement.rstrip()}`."
            )
        lines[first:last] = [indent + line for line in _relative_lines(node)]
    return "\n".join(lines) + "\n"


def check_imports(text: str) -> None:
    """Refuse a scheme whose imports a saved model could not carry.

    Raises:
        SyntaxError, ValueError: as `make_imports_relative`.
    """
    make_imports_relative(text)


def _carried_files(schemes: Iterable[str]) -> dict[str, str]:
    """Return the text of every file to carry, by its name."""
    entry = _HERE / f"{ENTRY}.py"
    if entry.exists():  # this is a carried copy itself
        return {path.name: path.read_text("utf-8") for path in [entry, *map(Path, get_relative_import_files(entry))]}
    files = {path.name: path.read_text("utf-8") for path in _HERE.glob("*.py")}
    text = files.pop("__init__.py")
    for number, scheme in enumerate(schemes, 1):
        name = "own_scheme" if number == 1 else f"own_scheme_{number}"
        files[f"{name}.py"] = make_imports_relative(scheme)
        text += f"\nfrom .{name} import __name__ as _  # runs it: it registers its parts\n"
    return {**files, f"{ENTRY}.py": text}


def carry(folder: str | os.PathLike[str], schemes: Iterable[str] = ()) -> None:
    """Write the files of the encoder into `folder`.

    Args:
        schemes: texts of the files that registered the model's parts.

    Raises:
        ValueError: a scheme imports more of whatwhere than `whatwhere.encoder`.
    """
    files = _carried_files(schemes)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (Path(folder) / name).write_text(text, encoding="utf-8")


class CarriedModel(PreTrainedModel):
    """Model that is saved with its code, and read from safetensors only."""

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], *args: Any, code: bool = True, **kwargs: Any
    ) -> None:
        """Save the weights as transformers does, with the code beside them; other arguments go to transformers.

        Args:
            code: False leaves the code out, so that only `whatwhere` opens the folder.

        Raises:
            ValueError: a scheme cannot be carried (see `make_imports_relative`).
        """
        # transformers sets `_auto_class` when it opens a carried copy, and would then save this class's file alone.
        type(self)._auto_class = None
        type(self.config)._auto_class = None
        if code:
            if kwargs.get("is_main_process", True):
                carry(save_directory, list(scheme_files(self.config).values()))
            self.config.auto_map = {auto: f"{ENTRY}.{name}" for auto, name in AUTO_CLASSES.items()}
        elif hasattr(self.config, "auto_map"):  # left from the folder that the model was read from
            del self.config.auto_map
        super().save_pretrained(save_directory, *args, **kwargs)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str] | None, *args: Any, **kwargs: Any
    ) -> Self:
        """Open a saved model as transformers does, but never read a pickle.

        Raises:
            ValueError: the folder has no safetensors file, or a pickle is asked for.
        """
        folder = Path(str(pretrained_model_name_or_path)) / kwargs.get("subfolder", "")
        pickled = kwargs.get("use_safetensors") is False or folder.suffix in (".bin", ".pt", ".pth", ".ckpt")
        if pickled or (folder.is_dir() and not any(folder.glob("*.safetensors"))):
            raise ValueError(
                f"{folder} opens from model.safetensors alone: a pickle (pytorch_model.bin) is never read. Save it "
                "with safetensors in the program that made it, and leave use_safetensors=False out."
            )
        return super().from_pretrained(pretrained_model_name_or_path, *args, **{**kwargs, "use_safetensors": True})
