"""Docstrings as a corpus: what is read, what is left out, how a docstring becomes paragraphs."""

import sys

import pytest

from whatwhere.corpus import open_source, python_docs
from whatwhere.corpus.python_docs import prose

LONG = (
    "This sentence is long enough to be kept, because it has more than one hundred and twenty characters of plain "
    "English in it, number {}."
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Function from {file: source} to the documents of a package of these files."""

    def of(sources):
        for name, text in sources.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr(python_docs, "_folders", lambda: [("thing", tmp_path)])
        monkeypatch.setattr(python_docs, "_version", lambda name: "1.0")
        return list(open_source("python-docs"))

    return of


def test_public_docstrings_are_documents_in_order(package):
    code = f'''"""{LONG.format(1)}"""
def f():
    """{LONG.format(2)}"""
    def inner():
        """{LONG.format("inner")}"""
class C:
    """{LONG.format(3)}"""
    def method(self):
        """{LONG.format(4)}"""
    def _hidden(self):
        """{LONG.format("hidden")}"""
    async def later(self):
        """short"""
add_newdoc("place", "name", """{LONG.format(5)}""")
'''
    documents = package({"b.py": code, "a/__init__.py": f'"""{LONG.format(0)}"""'})
    assert documents == [LONG.format(i) for i in (0, 1, 5, 2, 3, 4)]


def test_tests_private_folders_and_broken_files_are_left_out(package):
    text = f'"""{LONG.format(1)}"""'
    left_out = [
        "tests/a.py",
        "pkg/test_b.py",
        "_private/c.py",
        "pkg/testing/d.py",
        "site-packages/e.py",
        "conftest.py",
        "f.txt",
    ]
    sources = dict.fromkeys(left_out, text) | {
        "broken.py": '"""x"""\ndef (',
        "nul.py": '"""x"""\0',
        "good.py": f'"""{LONG.format(2)}"""',
    }
    assert package(sources) == [LONG.format(2)]


def test_repeated_text_is_left_out(package):
    same = LONG.format("same")
    more = LONG.format("more")
    files = {
        "a.py": f'"""{same}"""',
        "b.py": f'"""{same}"""',
        "c.py": f'"""{same}\n\n{more}"""',
        "d.py": f'"""{more}\n\n{same}\n\nNew."""',
    }
    assert package(files) == [same, f"{same}\n{more}"]


def test_prose_keeps_paragraphs_and_drops_code():
    docstring = """Return the roots, with
    :func:`numpy.roots`, of a polynomial.

    Parameters
    ----------
    p : array_like, optional
        The coefficients in ``descending``
        order.
    q, r : int

    Returns
    -------

    Examples
    --------
    It is easy to use:

    >>> f(1)
    array([1, 2])

    .. math:: x = y

    .. note::
        Words in a note
        stay.

    * first item
      goes on
    * second item

    Args:
        name (str): what it
            is called.
        other: something.

    | 1 | 2 | = {} |
    """
    assert prose(docstring) == [
        "Return the roots, with numpy.roots, of a polynomial.",
        "Parameters",
        "p : array_like, optional",
        "The coefficients in descending order.",
        "q, r : int",
        "Examples",
        "It is easy to use:",
        "note:",
        "Words in a note stay.",
        "* first item goes on",
        "* second item",
        "Args:",
        "name (str): what it is called.",
        "other: something.",
    ]


def test_headings_of_nothing_are_dropped():
    assert prose("Text here.\n\nReturns\n-------\n\nNotes\n-----\nMore.\n\nSee Also\n--------\n") == [
        "Text here.",
        "Notes",
        "More.",
    ]


@pytest.mark.whole
def test_the_standard_library_alone_is_a_corpus(monkeypatch):
    monkeypatch.setattr(python_docs, "PACKAGES", ())
    before = set(sys.modules)
    source = open_source("python-docs")
    documents = list(source)
    assert set(sys.modules) <= before  # nothing was imported
    assert len(documents) > 800 and len(set(documents)) == len(documents)
    assert sum(map(len, documents)) > 500_000
    assert list(source) == documents and source.share_read() == 1.0
    assert source.fingerprint()["packages"] == {"python": sys.version.split()[0]}
    # English, not code: by far most characters are letters and spaces.
    text = "".join(documents)
    assert sum(c.isalpha() or c.isspace() for c in text) / len(text) > 0.9


def test_installed_packages_are_found_and_named():
    names = open_source("python-docs").fingerprint()["packages"]
    assert {"python", "numpy", "scipy", "sklearn", "torch", "transformers"} <= set(names)
    assert all(names.values())
