"""docs/theory.md is true: what it names exists, and examples/theory prints the numbers that do not depend on the
corpus."""

import re
from pathlib import Path

import pytest
from cli_runner import sentences
from scripts import module_of

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/theory.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example():
    return module_of(ROOT / "examples/theory/__main__.py")


@pytest.fixture(scope="module")
def printed(example, tmp_path_factory):
    """Lines of the example on a small made-up corpus: {what was measured: its numbers as they were printed}."""
    path = tmp_path_factory.mktemp("theory") / "corpus.txt"
    path.write_text(sentences(1200), encoding="utf-8")
    lines: dict[str, list[str]] = {}
    example.say, say = (
        lambda what, *values: lines.update({what: [v if isinstance(v, str) else f"{v:.4g}" for v in values]}),
        example.say,
    )
    try:
        example.main(["--corpus", str(path), "--positions", "6"])
    finally:
        example.say = say
    return lines


def number(printed: dict[str, list[str]], what: str, at: int = 0) -> float:
    (values,) = [values for line, values in printed.items() if line.startswith(what)]
    return float(values[at])


def test_functions_and_tests_that_the_page_names_exist():
    sources = "\n".join(
        p.read_text(encoding="utf-8") for folder in ("src/whatwhere", "examples") for p in (ROOT / folder).rglob("*.py")
    )
    tests = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`(\w+)\(\)`", PAGE)
    assert len(names) >= 15
    for name in names:
        assert f"def {name}(" in sources, f"docs/theory.md names {name}(), which does not exist"
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) >= 20
    for name in named:
        assert f"def {name}(" in tests, f"docs/theory.md names {name}, which does not exist"
    for path in re.findall(r"`((?:src|tests|examples|geometry|analysis)/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).is_file() or (ROOT / "src/whatwhere" / path).is_file(), path


def test_the_example_finds_what_must_hold_on_any_corpus(printed):
    assert (
        number(printed, "largest gap of f(t')_i = f(t)_σ(i)") < 1e-13 < number(printed, "smallest gap of the printed")
    )
    for f in ("1 + d", "exp d", "d²"):
        assert number(printed, f"f(d) = {f}") < 0 > number(printed, f"f(d) = {f}", 1)
    assert number(printed, "f(d) = exp(-d)", 1) > 0
    assert number(printed, "C_b with all query matrices zero") > 0
    assert number(printed, "all d_H = 0") < 1e-13 and number(printed, "all d_H = 0", 2) > 0.1
    assert number(printed, "corpus and encoder, kernel exp(-d_H)") < 1e-9
    assert number(printed, "largest sum of E[δ_ij] over j") < 1e-12
    for part in ("(i) mean embeddings", "(ii) softmax of mean scores"):
        assert number(printed, part) <= number(printed, part, 1) <= 1
    assert number(printed, "(ii) expected weights", 1) <= 1


@pytest.mark.parametrize(
    ("what", "at"),
    [
        ("8 random positions, α and b × 0.01", 0),
        ("smallest value of the proof's bound", 0),
        ("8 positions on an arc", 1),
        ("triples that break |D(i‖k) - D(j‖k)| ≤ D(i‖j), uniform over 2 tokens", 0),
        ("triples that break |D(i‖k) - D(j‖k)| ≤ D(i‖j), uniform over 5 tokens", 0),
        ("triples that break |D(i‖k) - D(j‖k)| ≤ D(i‖j), uniform over 20 tokens", 0),
        ("all d_H = 0, tokens 0, 1 equal, exact", 2),
        ("largest D / (2√2 d_H)", 0),
        ("(ii) tokens ±1, ±2", 0),
        ("G as printed, 1/(2n)", 0),
        ("freedoms: rank 32, Toeplitz", 0),
        ("freedoms: rank 32, Toeplitz", 1),
    ],
)
def test_corpus_free_numbers_equal_the_example(printed, what, at):
    """Numbers of the page that no corpus enters are those of the example."""
    (values,) = [values for line, values in printed.items() if line.startswith(what)]
    assert re.search(rf"(?<![\d.]){re.escape(values[at])}(?!\d|\.\d)", PAGE), (
        f"docs/theory.md lacks {values[at]} ({what})"
    )
