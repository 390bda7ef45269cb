"""The default corpus: the prose of the docstrings of the standard library and the installed scientific packages.

Nothing is imported: the source files are parsed. Real English with sentences and paragraphs, and nothing to download.
"""

import ast
import gc
import hashlib
import importlib.metadata
import importlib.util
import inspect
import platform
import re
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from .source import Source

# In this order; packages that are not installed are passed over. Packages whose docstrings a program wrote (plotly) are
# not in the list.
PACKAGES = (
    "numpy scipy pandas sklearn networkx sympy torch matplotlib statsmodels transformers datasets huggingface_hub "
    "accelerate "
    "pyarrow joblib pydantic mpmath"
).split()
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_LEFT_OUT = frozenset(
    "test tests testing conftest.py site-packages dist-packages idlelib lib2to3 turtledemo vendored".split()
)
# Folders with a leading underscore are private, but numpy documents its public functions in this one.
_PUBLIC = frozenset(["_core"])

SHORTEST = 120  # characters of a document: less is a label, not a text
MOST_SYMBOLS = 0.15  # share of brackets, digits, operators ... above which a paragraph is code, a formula or a table
LEAST_NEW = 0.25  # share of the characters of a document in paragraphs that no earlier docstring had
_SYMBOLS = str.maketrans("", "", '_=(){}[]<>|*#/\\0123456789+^~@$%&"')
# Doctests, fenced blocks and the directives that hold no prose, each up to the next empty line.
_DIRECTIVES = (
    "math|code|code-block|plot|ipython|doctest|testcode|testsetup|image|figure|autosummary|autofunction|autoclass|automodule|"
    "currentmodule|module|toctree|only|index|csv-table|table|list-table"
)
_CODE = re.compile(
    rf"^[ \t]*(```|~~~).*?^[ \t]*\1[^\n]*$|^[ \t]*(?:>>>|\.\. (?:{_DIRECTIVES})::).*?(?=\n[ \t]*\n|\Z)",
    re.M | re.S,
)
_DIRECTIVE = re.compile(r"^([ \t]*)\.\. (\[\w+\]|[\w -]+::)", re.M)
_ROLE = re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)\s*(?:<[^`>]*>)?`")
_UNDERLINE = re.compile(r"^[ \t]*([-=~^*#\"'+.])\1{2,}[ \t]*$\n?", re.M)
# A list item, a field, a parameter in numpy's style ("axis : int") or Google's ("axis (int): ...", "axis: ...").
_ITEM = re.compile(r"[-*+•] |\d+[.)] |\[\w+\] |:\w|@\w|\*{0,2}[\w.]+(, \*{0,2}[\w.]+)* : |\*{0,2}\w+( \([^)]*\))?: ")
_NUMPY_ITEM = re.compile(r"\*{0,2}[\w.]+(, \*{0,2}[\w.]+)* : ")
_HEADINGS = frozenset(
    "parameters,other parameters,returns,return,yields,receives,raises,warns,warnings,see "
    "also,notes,note,references,examples,example,"
    "attributes,methods,args,arguments,keyword args,shape,usage,inputs,outputs,input,output".split(",")
)


class PythonDocs(Source):
    """Docstrings of Python packages as documents of unwrapped paragraphs, one a line.

    Documents come in the order of PACKAGES, of the file names, and of the files. Left out: tests and vendored code,
    private folders, functions and classes; doctests, code blocks and paragraphs that are mostly symbols; documents
    under SHORTEST characters; and documents most of whose text was there before. What is read stays in memory, some
    twenty MB, so that a second pass costs nothing.

    every: N reads every Nth file, evenly over all packages, where little text will do.
    """

    def __init__(self, every: int = 1) -> None:
        self.every = every
        self.name = "python-docs" if every == 1 else f"python-docs (one file of {every})"
        self._documents: list[str] | None = None
        self._read = 0

    def documents(self) -> Iterator[str]:
        if self._documents is None:
            with _no_collector():
                self._documents = list(_gather(self.every))
        for number, document in enumerate(self._documents, 1):
            self._read = number
            yield document

    def fingerprint(self) -> dict[str, Any]:
        rules = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        part = {} if self.every == 1 else {"every": self.every}
        return {"packages": {name: _version(name) for name, _ in _folders()}, "rules_sha256": rules, **part}

    def share_read(self) -> float | None:
        return self._read / max(len(self._documents), 1) if self._documents else None


def _folders() -> list[tuple[str, Path]]:
    folders = [("python", Path(sysconfig.get_path("stdlib")))]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            folders.append((name, Path(list(spec.submodule_search_locations)[0])))
    return folders


def _version(name: str) -> str:
    if name == "python":
        return platform.python_version()
    return importlib.metadata.version(_DISTRIBUTIONS.get(name, name))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switch the cycle collector off, which makes parsing three times slower.

    Syntax trees have no cycles, but their many nodes set it off again and again.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _gather(every: int = 1) -> Iterator[str]:
    """Yield the documents of every Nth file (`every`) of all packages without those that mostly repeat others."""
    names_before: set[str] = set()
    for _, folder in _folders():
        for path in islice(_files(folder), 0, None, every):
            for docstring in _docstrings(path):
                paragraphs = prose(docstring)
                length = sum(map(len, paragraphs))
                if length < SHORTEST:
                    continue
                new = sum(len(p) for p in paragraphs if p not in names_before)
                names_before.update(paragraphs)
                if new >= LEAST_NEW * length:
                    yield "\n".join(paragraphs)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the public source files below `folder`, in sorted order."""
    for path in sorted(folder.iterdir()):
        name = path.name
        if name in _LEFT_OUT or name.startswith("test_"):
            continue
        if path.is_dir() and not path.is_symlink():
            if not name.startswith((".", "_")) or name in _PUBLIC:
                yield from _files(path)
        elif name.endswith(".py"):
            yield path


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file's module, public classes and public functions; none if the file does not parse."""
    source = path.read_bytes()
    if b'"""' not in source:
        return
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    stack: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while stack:
        node = stack.pop()
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            if len(first.value.value) >= SHORTEST:
                yield first.value.value
        if isinstance(node, ast.Module):
            yield from _added(node)
        if isinstance(node, ast.Module | ast.ClassDef):
            inner = [n for n in node.body if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
            stack.extend(n for n in reversed(inner) if not n.name.startswith("_") or n.name.startswith("__"))


def _added(module: ast.Module) -> Iterator[str]:
    """Yield docstrings of compiled functions, given as arguments of calls such as add_newdoc(place, name, text)."""
    for statement in module.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            for argument in statement.value.args:
                for node in ast.walk(argument):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= SHORTEST:
                        yield node.value


def prose(docstring: str) -> list[str]:
    """Extract the paragraphs of a docstring, each on one line.

    Markup, code, formulas, tables and headings of nothing are left out.
    """
    text = inspect.cleandoc(docstring)
    text = _UNDERLINE.sub("\n", _CODE.sub("", text))
    text = _DIRECTIVE.sub(lambda m: m[1] + m[2].replace("::", ":"), text)
    text = _ROLE.sub(r"\1", text).replace("`", "").replace("::\n", ":\n")
    paragraphs: list[str] = []
    for block in re.split(r"\n[ \t]*\n", text):
        for paragraph in _unwrap(block):
            symbols = len(paragraph) - len(paragraph.translate(_SYMBOLS))
            if symbols <= MOST_SYMBOLS * len(paragraph) and any(map(str.isalpha, paragraph)):
                if paragraphs and _is_heading(paragraphs[-1]) and _is_heading(paragraph):
                    paragraphs.pop()
                paragraphs.append(paragraph)
    if paragraphs and _is_heading(paragraphs[-1]):
        paragraphs.pop()
    return paragraphs


def _is_heading(paragraph: str) -> bool:
    return len(paragraph) < 20 and paragraph.rstrip(":").lower() in _HEADINGS


def _unwrap(block: str) -> list[str]:
    """Join the lines of a block to paragraphs; a new one begins at a change of indent, an item, or after a heading."""
    out: list[list[str]] = []
    last = 0
    hangs = False
    for line in block.splitlines():
        bare = line.strip()
        if not bare:
            continue
        indent = len(line) - len(line.lstrip())
        item = _ITEM.match(bare) is not None
        goes_on = indent == last or (hangs and indent > last)
        if out and goes_on and not item and not _is_heading(out[-1][0]):
            out[-1].append(bare)
            hangs = False
        else:
            out.append([bare])
            # The text of an item hangs to the right of its mark; in numpy's style a description stands below the name,
            # apart.
            hangs = item and _NUMPY_ITEM.match(bare) is None
        last = indent
    return [" ".join(" ".join(lines).split()) for lines in out]
