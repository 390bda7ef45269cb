"""The house rules: imports run downwards only, and every file says in its first lines what it is."""

import ast
import functools
import importlib.util
import re
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/whatwhere"
# A part may import only parts further down; "__init__" is the package itself, which holds all of them.
LEVELS = [
    {"cli", "__main__"},
    {"__init__"},
    {"study"},
    {"length"},
    {"report", "evaluation"},
    {"analysis"},
    {"training"},
    {"models"},
    {"corpus"},
    {"encoder", "claims", "geometry"},
    {"records"},
    {"run", "papers"},
    {"version", "auto_classes"},
]
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
FILES = sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@functools.cache
def tree_of(text: str) -> ast.Module:
    """Syntax tree of a file, which several tests walk."""
    return ast.parse(text)


@functools.cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree."""
    return tuple(ast.walk(tree_of(text)))


@functools.cache
def imports(text: str, inside: tuple[str, ...]) -> list[tuple[tuple[str, ...], bool]]:
    """What a file in the folder `inside` imports of the package: the path of each module below it, () for the package
    itself; and whether inside a function."""
    late = {n for f in nodes_of(text) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    imported = []
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            modules = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ("whatwhere", *inside)[: len(inside) + 2 - node.level] if node.level else ()
            base = (*above, *(node.module.split(".") if node.module else ()))
            modules = [
                (*base, alias.name) if (PACKAGE.joinpath(*base[1:], f"{alias.name}.py")).is_file() else base
                for alias in node.names
            ]
            if base == ("whatwhere",):  # also `from .. import records`: it has the package itself loaded first
                modules = [base]
        else:
            continue
        imported += [(module[1:], node in late) for module in modules if module[0] == "whatwhere"]
    return imported


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import whatwhere", ()),
        ("import whatwhere as ww", ()),
        ("import whatwhere.study.study", ("study", "study")),
        ("from whatwhere import records", ()),
        ("from whatwhere import Encoder", ()),
        ("from .. import records", ()),
        ("from ..training.loop import Trainer", ("training", "loop")),
        ("from . import windows", ("corpus", "windows")),
        ("from . import Windows", ("corpus",)),
        ("from .windows import Windows", ("corpus", "windows")),
    ],
)
def test_every_way_to_import_is_seen(line, module):
    assert imports(line, ("corpus",)) == [(module, False)]
    assert imports(f"def f():\n    {line}", ("corpus",)) == [(module, True)]


def test_imports_run_downwards_only():
    for path in FILES:
        check_imports(path)


def check_imports(path):
    """Every import of a file is of a part further down, written relative."""
    text = path.read_text(encoding="utf-8")
    inside = path.relative_to(PACKAGE).parts[:-1]
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module, late in imports(text, inside):
        other = module[0] if module else "__init__"
        allowed = other == part or LEVEL[other] > LEVEL[part] or (part, other) == ("__main__", "cli")
        assert allowed, f"{place(path)} imports {other}, which is not below {part}"
        # The verbs of the command line load what they need when they are called, so that it starts fast.
        assert not late or part == "cli", f"{place(path)} imports {'.'.join(module)} inside a function"
    if part == "__init__":
        assert {module[0] for module, _ in imports(text, ()) if module} <= {
            "encoder",
            "evaluation",
            "geometry",
            "report",
            "models",
            "run",
            "version",
            "auto_classes",
        }
    absolute = [
        n for n in nodes_of(text) if isinstance(n, ast.ImportFrom) and not n.level and n.module.startswith("whatwhere")
    ]
    assert not absolute, f"{place(path)}: within the package imports are relative"


def test_no_circle_in_a_folder():
    for folder in sorted({p.parent for p in FILES}):
        inside = folder.relative_to(PACKAGE).parts
        needs = {}
        for path in folder.glob("*.py"):
            modules = {m for m, _ in imports(path.read_text(encoding="utf-8"), inside) if m[: len(inside)] == inside}
            needs[path.stem] = {m[len(inside)] if len(m) > len(inside) else "__init__" for m in modules} - {path.stem}
        try:
            list(TopologicalSorter(needs).static_order())
        except CycleError as error:
            pytest.fail(f"{place(folder)}: {' → '.join(error.args[1])}")


# Names to which Python gives a meaning: the package of a folder, and what `python -m` runs (the package, the claims).
SHARED_NAMES = {"__init__.py", "__main__.py"}


def test_no_file_name_occurs_twice():
    """A file is found by its name alone, whatever its folder."""
    names = Counter(path.name for path in FILES)
    assert {name for name, count in names.items() if count > 1} == SHARED_NAMES


def test_encoder_imports_nothing_of_ours_but_itself():
    # A saved model carries this folder along, so its imports must be relative, and what transformers needs must be
    # enough.
    files = [path for path in FILES if path.parent.name == "encoder"]
    assert files
    nodes = [(path, node) for path in files for node in nodes_of(path.read_text(encoding="utf-8"))]
    for path, node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path.name} imports from outside the folder"
            names = [] if node.level else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | {
            "torch",
            "transformers",
            "huggingface_hub",  # which transformers needs
            "numpy",
            "safetensors",
        }, path.name


def test_analyses_claims_and_geometry_know_no_run():
    """What measures and judges takes arrays and models, and leaves files, folders and locks to its callers."""
    for path in FILES:
        folder = path.parent.name
        if folder in ("analysis", "claims", "geometry") and path.name != "counts.py":  # which has a file
            needed = {module[0] for module, _ in imports(path.read_text(encoding="utf-8"), (folder,)) if module}
            assert "run" not in needed, place(path)


# Modules that are imported by their name: the lazy parts of the package, the files of analyses, and, the one arrow that
# points upwards, the analyses whose rows stand in their files (records/metrics.py says why).
BY_NAME = {"__init__.py", "auto_classes.py", "analysis/__init__.py", "corpus/__init__.py", "records/metrics.py"}


def test_modules_are_imported_by_name_in_few_files():
    found = {place(path) for path in FILES if "import_module(" in path.read_text(encoding="utf-8")}
    assert {name.removeprefix("src/whatwhere/") for name in found} == BY_NAME


def test_geometry_knows_no_torch():
    files = [path for path in FILES if path.parent.name == "geometry"]
    assert files and not [path.name for path in files if "import torch" in path.read_text(encoding="utf-8")]


# What runs code that stands in a file, or makes objects of bytes: no file that is read may do so but a scheme.
RUNS_CODE = {"pickle", "dill", "joblib", "marshal", "shelve", "runpy"}
RUNS_CODE |= {"eval", "exec", "compile", "__import__", "exec_module", "run_path"}
RUNS_CODE |= {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.load", "joblib.load", "pd.read_pickle"}
RUNS_CODE |= {"broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list"}
RUNS_CODE |= {"allow_pickle=True", "trust_remote_code=True", "weights_only=False"}


def code_of_files(text: str) -> set[str]:
    """Which of these a file uses."""
    found = set()
    for node in nodes_of(text):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {part for alias in names for part in (alias.name, alias.name.split(".")[0])}
                found |= {(node.module or "").split(".")[0]} if isinstance(node, ast.ImportFrom) else set()
            case ast.Call(func=ast.Name(id=name)):
                found.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                found |= {f"{owner}.{name}", *({name} - {"eval", "compile"})}  # model.eval(), re.compile()
            case ast.Attribute(attr=name):
                found |= {name} - {"eval", "compile"}
        if isinstance(node, ast.keyword):
            found.add(f"{node.arg}={ast.unparse(node.value)}")
    return found & RUNS_CODE


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ("import pickle", {"pickle"}),
        ("from pickle import loads", {"pickle"}),
        ("eval('1')", {"eval"}),
        ("model.eval()", set()),
        ("yaml.load(text)", {"yaml.load"}),
        ("yaml.safe_load(text)", set()),
        ("torch.load(path, weights_only=False)", {"torch.load", "weights_only=False"}),
        ("np.load(path, allow_pickle=True)", {"allow_pickle=True"}),
        ("torch.distributed.broadcast_object_list(sent)", {"broadcast_object_list"}),
        ("spec.loader.exec_module(module)", {"exec_module"}),
    ],
)
def test_what_runs_code_is_seen(line, used):
    assert code_of_files(line) == used


def test_only_the_loading_of_schemes_runs_code_of_files():
    found = {place(path): used for path in FILES if (used := code_of_files(path.read_text(encoding="utf-8")))}
    own = "auto_classes.py"  # where the package's own classes are told to transformers, once that is imported
    calls = {
        "run/cluster_jobs.py": {"pickle"},
        "run/remote.py": {"pickle"},
    }  # of a command, to workers that the user started
    assert found == {"encoder/registry.py": {"exec_module"}, own: {"exec_module"}, **calls}


# Who may open a model or a tokenizer by transformers' own functions; the encoder's heads are what they open.
OPENERS = {"models/open.py", "corpus/tokenizer.py", "encoder/carry.py"}


def test_one_file_opens_models_and_one_tokenizers():
    found = set()
    for path in FILES:
        calls = [node.func for node in nodes_of(path.read_text("utf-8")) if isinstance(node, ast.Call)]
        if {"from_pretrained", "from_config"} & {call.attr for call in calls if isinstance(call, ast.Attribute)}:
            found.add(place(path))
    assert found == OPENERS


def test_only_run_knows_locks_and_manifests_of_runs():
    """Locks, sweeping and the lines of a manifest are the business of `run/`; others ask `RunFolder`."""
    names = {"lock", "sweep", "sweep_beside", "is_free", "append_line", "Manifest"}
    found = set()
    for path in FILES:
        for node in nodes_of(path.read_text("utf-8")):
            from_run = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("run.")
            if from_run and names & {alias.name for alias in node.names}:
                found.add(place(path))
    # Lines of a log; folders that become a model beside the folder where they stand.
    assert found == {"training/logger.py", "models/export.py", "length/extension.py"}


PADDED = re.compile(r"[<>^]?[1-9]\d*|[<>^]?\{.*\}|[<>^]\d+,?")  # format specifications that only make a cell wider


def test_one_file_aligns_tables_of_the_terminal():
    """Columns of text are aligned by run/text_tables.py alone, and no other file pads cells itself."""
    files = set()
    for path in FILES:
        for node in nodes_of(path.read_text(encoding="utf-8")):
            pads = isinstance(node, ast.Attribute) and node.attr in ("ljust", "rjust")
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                pads = bool(PADDED.fullmatch(ast.unparse(node.format_spec)[2:-1]))
            loads = isinstance(node, ast.ImportFrom) and node.module == "rich.table"
            files |= {place(path)} if pads or loads else set()
    assert files == {"run/text_tables.py"}


EVERY = [p for folder in ("src", "tests", "benchmarks", "examples") for p in sorted((ROOT / folder).rglob("*.py"))]


def test_every_file_says_first_what_it_is():
    for path in EVERY:
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(ROOT))
        docstring = ast.get_docstring(tree_of(text))
        assert docstring and len(docstring.splitlines()[0]) > 20, f"{name} needs an opening docstring"
        assert text.lstrip().startswith('"""'), f"{name}: the docstring comes first"
        assert len(text.splitlines()) <= 550, f"{name}: more than 550 lines"


def test_scripts_import_names_that_exist():
    """A name changed in the package broke a script of examples/, which types and default tests do not read."""
    scripts = [path for folder in ("examples", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    missing = []
    for path in scripts:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.level or not str(node.module).startswith("whatwhere"):
                continue
            names = [alias.name for alias in node.names]
            module = importlib.import_module(str(node.module))
            missing += [
                f"{path.name}: {node.module}.{name}"
                for name in names
                if not hasattr(module, name)
                and not (hasattr(module, "__path__") and importlib.util.find_spec(f"{node.module}.{name}"))
            ]
    assert len(scripts) > 20 and missing == []
