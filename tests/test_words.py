"""Words of the code (CONTRIBUTING.md): one statement a line, first lines that can stand alone, short test names."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/whatwhere"
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("test_*.py"))
ROOT = Path(__file__).parents[1]
# Code outside the package.
OTHERS = sorted(path for room in ("tests", "examples", "benchmarks", "docs") for path in (ROOT / room).rglob("*.py"))
NOT_A_BEGINNING = {"Of", "As", "What", "Whether", "Where", "How", "Which", "Who", "Is", "Are", "One", "For"}
# Folders whose decorators take a docstring as words of a page: a claim and its rule, what a figure draws.
SHOWN = ("claims", "report/figures")
# A function's docstring begins with one of these. A new verb is welcome; a noun is not.
VERBS = set(
    "Add Admit Answer Append Apply Approximate Arrange Ask Average Build Change Choose Close Collect Compare Compose "
    "Compute Connect Continue Copy Count Cut Delete Describe Divide Do Draw Encode End Escape Estimate Export Extract "
    "Fetch Find Fine-tune Fit Flatten Flush Forget Format Gather Give Go Guess Hand Handle Hash Hold Inspect Join "
    "Judge Keep Lay Leave Let Limit List Load Lock Log Look Make Map Mark Mask Measure Merge Move Name Normalise "
    "Number Open Order Pack Parse Pass Pool Predict Pretrain Print Probe Put Raise Read Record Refuse Register "
    "Remember Remove Render Reorder Replace Restore Retry Return Rewrite Rotate Round Run Save Say Scale Score Seed "
    "Select Set Shard Share Show Spend Split Stack Start Stop Submit Subtract Sum Take Tell Time Tokenise Train "
    "Transform "
    "Trust Turn Update Wait Write Yield".split()
)
# Participles and pronouns that were names of variables, fields and functions before nouns took their place.
NO_NOUNS = set("found said held kept own each there young begun seen asked taken given who here".split())
KEYS = {("corpus/synthetic.py", "own")}  # an option in the names of corpora, `synthetic:three-regimes:own=2`


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Syntax tree of every file: parsed by the tests, since collection would parse them in every process."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef)}


def name_of(path: Path) -> str:
    """Path of a file inside the package."""
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Every node of a syntax tree, which several rules look at."""
    return list(ast.walk(tree))


def packed(tree: ast.AST) -> Iterator[ast.Assign]:
    """Yield chained assignments (`a = b = 0`), and those of several values to several names.

    Swaps, whose values read their targets, are one statement.
    """
    for node in nodes_of(tree):
        if not isinstance(node, ast.Assign):
            continue
        if len(node.targets) > 1:
            yield node
        elif not isinstance(node.targets[0], ast.Tuple):
            continue
        elif isinstance(node.value, ast.Tuple) and not any(isinstance(v, ast.Starred) for v in node.value.elts):
            targets = {ast.unparse(target) for target in node.targets[0].elts}
            read = {
                ast.unparse(n) for n in ast.walk(node.value) if isinstance(n, ast.Name | ast.Attribute | ast.Subscript)
            }
            if not targets & read:
                yield node


PHRASES = re.compile(r"\b(that|those)\s+of\b|\bso many\b|\bas it is\b")
PACKED = (ast.Tuple, ast.List, ast.IfExp, ast.BoolOp)
PACKED_KEYS = (ast.Dict, ast.IfExp, ast.BoolOp)


def nested(tree: ast.AST) -> Iterator[ast.IfExp]:
    """Yield conditional expressions inside conditional expressions."""
    for node in nodes_of(tree):
        if isinstance(node, ast.IfExp) and any(isinstance(n, ast.IfExp) for n in ast.walk(node) if n is not node):
            yield node


def spread(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is unpacked where it stands inside code: `*("a", "b")`, `*(a if there else ())`, `**(a or {})`.

    The tables of words at the top of a file may be several such rows. `**` is looked at inside dicts, not in calls.
    """
    for function in nodes_of(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in nodes_of(function):
                if isinstance(node, ast.Starred) and isinstance(node.value, PACKED):
                    yield node
                if isinstance(node, ast.Dict):
                    unpacked = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
                    yield from (value for value in unpacked if isinstance(value, PACKED_KEYS))


def repeated(tree: ast.AST) -> Iterator[ast.BinOp]:
    """Yield products of a text, `"s" * (n > 1)`, which hide a condition; `" " * indent` counts spaces."""
    for node in nodes_of(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for side in (node.left, node.right):
                is_text = isinstance(side, ast.Constant) and isinstance(side.value, str) and side.value != " "
                if is_text or isinstance(side, ast.JoinedStr):
                    yield node


ONE_STATEMENT = (packed, nested, spread, repeated)


def first_lines(tree: ast.Module, shown: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Yield name, first line of the docstring, and whether it is a function, of everything public.

    shown: leave out decorated functions, whose docstrings are words of a page.
    """
    left: list[ast.AST] = [tree]
    while left:
        for node in ast.iter_child_nodes(left.pop()):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                left.append(node)
            elif not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            if shown and isinstance(node, ast.FunctionDef) and node.decorator_list:
                continue
            if docstring := ast.get_docstring(node):
                decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
                is_function = isinstance(node, ast.FunctionDef) and not decorators & {"property", "cached_property"}
                yield node.name, docstring.splitlines()[0], is_function


def undocumented(tree: ast.Module, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the public classes, functions and methods of a module that have no docstring.

    A method that overrides a documented one of a class in `classes`, by name, needs none of its own.
    """
    left: list[tuple[ast.AST, str]] = [(tree, "")]
    while left:
        owner, path = left.pop()
        for node in ast.iter_child_nodes(owner):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                left.append((node, f"{path}{node.name}."))
            inherits = isinstance(owner, ast.ClassDef) and documented_below(owner, node.name, classes)
            if not ast.get_docstring(node) and not inherits:
                yield f"{path}{node.name}"


def documented_below(owner: ast.ClassDef, method: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Return whether a base of a class, or a base of that one, has a docstring for a method."""
    bases = [classes[name] for base in owner.bases if (name := ast.unparse(base)) in classes]
    for base in bases:
        found = [node for node in base.body if isinstance(node, ast.FunctionDef) and node.name == method]
        if any(ast.get_docstring(node) for node in found) or documented_below(base, method, classes):
            return True
    return False


def test_what_packs_is_seen():
    code = "a, b = 1, 2\na, b = b, a\na = b, c = 1, 2\nlast = other = 1, 2\nself.b, self.h = b, h = q.shape[:2]\n"
    code += "x = 1 if p else (2 if q else 3)\nTABLE = {**{'a': 1}}\n"
    code += "def f():\n    return [*('a', 'b')], {**{'a': 1}, **more}, {**(more or {})}, {**(more if more else {})}\n"
    code += "words = 's' * (n > 1) + more * f'{n}' + ' ' * indent\n"
    tree = ast.parse(code)
    assert [len(list(kind(tree))) for kind in ONE_STATEMENT] == [4, 1, 4, 2]


def test_a_line_holds_one_statement():
    found = {path: [node for kind in ONE_STATEMENT for node in kind(tree)] for path, tree in trees().items()}
    assert [f"{name_of(path)}:{node.lineno}" for path, nodes in found.items() for node in nodes] == []


def test_code_outside_the_package_packs_no_assignments():
    found = {path: packed(ast.parse(path.read_text(encoding="utf-8"))) for path in OTHERS}
    assert [f"{path}:{node.lineno}" for path, nodes in found.items() for node in nodes] == []


def test_docstrings_begin_with_a_verb_or_a_noun():
    wrong = []
    for path, tree in trees().items():
        shown = name_of(path).startswith(SHOWN) and name_of(path) != "claims/claim.py"
        for name, line, is_function in first_lines(tree, shown):
            word = re.split(r"[\s,:]", line)[0]
            if word in NOT_A_BEGINNING or (is_function and word not in VERBS):
                wrong.append(f"{name_of(path)}, {name}: {line}")
    assert wrong == []


def test_what_has_no_docstring_is_seen():
    """Functions, classes, methods and properties are seen, and a base may speak for a method."""
    tree = ast.parse(
        "def f(): pass\ndef _g(): pass\ndef d():\n    'Do.'\n"
        "class A:\n    'A.'\n    def said(self):\n        'Say.'\n"
        "    def own(self): pass\nclass B(A):\n    'B.'\n    def said(self): pass\n"
        "    @property\n    def p(self): pass\n"
        "class C(B):\n    def said(self): pass\n"
    )
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert sorted(undocumented(tree, classes)) == ["A.own", "B.p", "C", "f"]


def stored_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield what code names, and the line: variables, attributes, fields, arguments, functions, classes, imports."""
    for node in nodes_of(tree):
        match node:
            case (
                ast.Name(id=str(name), ctx=ast.Store())
                | ast.Attribute(attr=str(name), ctx=ast.Store())
                | ast.arg(arg=str(name))
                | ast.FunctionDef(name=str(name))
                | ast.AsyncFunctionDef(name=str(name))
                | ast.ClassDef(name=str(name))
                | ast.ExceptHandler(name=str(name))
                | ast.alias(asname=str(name))
            ):
                yield name, node.lineno


def no_nouns(tree: ast.AST) -> list[tuple[str, int]]:
    """Return names in `NO_NOUNS`, underscores in front of them aside, with their lines."""
    return [(name, line) for name, line in stored_names(tree) if name.lstrip("_") in NO_NOUNS]


def test_no_name_is_a_participle_or_pronoun():
    """Variables, arguments, fields and classes are nouns, functions verbs; keys that users write stay as they are."""
    code = "found = 1\ndef _said(own, *, here): pass\nclass A:\n    each: int = 0\nself._held = {'kept': seen}\n"
    assert {name for name, _ in no_nouns(ast.parse(code))} == {"found", "_said", "own", "here", "each", "_held"}
    names = [(name_of(path), *place) for path, tree in trees().items() for place in no_nouns(tree)]
    assert [f"{path}:{line}: {name}" for path, name, line in names if (path, name) not in KEYS] == []


def test_public_names_have_docstrings():
    """A verb of the command line takes its help from its docstring; all other public names are read in the code."""
    known = classes()
    found = {name_of(path): list(undocumented(tree, known)) for path, tree in trees().items()}
    assert {name: names for name, names in found.items() if names} == {}


def test_no_phrase_points_back_at_a_noun():
    """Docstrings, comments, messages and pages repeat the noun or use 's (CONTRIBUTING.md, rule 2)."""
    pages = [path for path in (PACKAGE.parents[1] / "docs").rglob("*.md") if "results" not in path.parts]
    words = [*FILES, *pages, *PACKAGE.rglob("*.md"), *PACKAGE.rglob("*.j2"), PACKAGE.parents[1] / "README.md"]
    found = {path.name: match.group() for path in words if (match := PHRASES.search(path.read_text(encoding="utf-8")))}
    assert not found


def test_test_names_have_at_most_nine_words():
    """The sentence that a test proves stands in its docstring."""
    names = [name for path in TESTS for name in re.findall(r"^ *def (test_\w+)", path.read_text("utf-8"), re.M)]
    assert len(names) > 500
    assert [name for name in names if name.count("_") > 9] == []


ARRAYS = re.compile(r"\b(Tensor|ndarray|Arrays?|csr_array)\b")
SHAPES = re.compile(r"\((?:[^()]*,[^()]*|n|m|b|k|L|d|h)\)|shape")
ERRORS = re.compile(r"\b[Rr]aises?\b|\bRefuse\b")


def documented(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str, str]]:
    """Yield public functions and methods that have a docstring: node, name, and its words with those of its class."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for owner in (tree, *classes):
        of_class = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        words_of_class = ast.get_docstring(owner) or "" if of_class else ""
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                words = ast.get_docstring(node)  # without one, those of the method that it overrides hold
                if words:
                    yield node, f"{of_class}{node.name}", f"{words} {words_of_class}"


def takes_arrays(node: ast.FunctionDef) -> bool:
    """Return whether a function takes or gives arrays."""
    kinds = [*(argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs)), node.returns]
    return any(kind is not None and ARRAYS.search(ast.unparse(kind)) for kind in kinds)


def raises(node: ast.FunctionDef) -> bool:
    """Return whether the body of a function raises an error of its own."""
    errors = [ast.unparse(part.exc) for part in ast.walk(node) if isinstance(part, ast.Raise) and part.exc is not None]
    return any(error != "NotImplementedError" for error in errors)


def test_docstrings_give_shapes_of_arrays():
    """Public functions that take or give arrays say their shapes, or that any will do."""
    places = [(name_of(path), *place) for path, tree in trees().items() for place in documented(tree)]
    of_arrays = [(path, name, words) for path, node, name, words in places if takes_arrays(node)]
    assert len(of_arrays) > 300
    assert [(path, name) for path, name, words in of_arrays if not SHAPES.search(words)] == []


def test_docstrings_say_which_errors_are_raised():
    """Verbs of the command line show help, and every claim raises `Missing`; all others say what they raise."""
    places = [(name_of(path), *place) for path, tree in trees().items() for place in documented(tree)]
    raising = [(path, name, words) for path, node, name, words in places if raises(node)]
    assert len(raising) > 100
    left = [(path, name) for path, name, words in raising if not ERRORS.search(words)]
    assert [place for place in left if not place[0].startswith(("cli/", "claims/"))] == []
