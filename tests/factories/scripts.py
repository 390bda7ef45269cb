"""Scripts that are no part of the package, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType


def module_of(path: Path) -> ModuleType:
    """The module of a script, which is not begun as a program."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem.strip('_')}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
