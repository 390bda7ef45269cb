"""The default corpus: docstrings of the standard library and the installed scientific packages, read without importing them."""

import ast
import importlib.metadata
import importlib.util
import inspect
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whatwhere.corpus.sources import Source

PACKAGES = (
    "numpy scipy pandas sklearn networkx sympy torch transformers matplotlib plotly statsmodels datasets huggingface_hub "
    "accelerate pyarrow joblib pydantic mpmath hypothesis rich jinja2"
).split()
_LEFT_OUT = frozenset("tests test testing _vendor vendored site-packages idlelib lib2to3 turtledemo".split())


class PythonDocs(Source):
    name = "python-docs"

    def documents(self) -> Iterator[str]:
        seen = set()
        for _, folder in _folders():
            for path in sorted(folder.rglob("*.py")):
                if _LEFT_OUT & set(path.relative_to(folder).parts):
                    continue
                for text in _docstrings(path):
                    if text not in seen:
                        seen.add(text)
                        yield text

    def fingerprint(self) -> dict[str, Any]:
        return {"versions": {name: _version(name) for name, _ in _folders()}}


def _folders() -> list[tuple[str, Path]]:
    found = [("python", Path(sysconfig.get_path("stdlib")))]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found.append((name, Path(list(spec.submodule_search_locations)[0])))
    return found


def _version(name: str) -> str:
    if name == "python":
        return platform.python_version()
    return importlib.metadata.version({"sklearn": "scikit-learn"}.get(name, name))


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    stack: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while stack:
        node = stack.pop()
        stack.extend(n for n in reversed(node.body) if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
        text = ast.get_docstring(node, clean=False)
        if text and len(text) > 200:
            yield inspect.cleandoc(text)
