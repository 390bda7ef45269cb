"""Fixtures of the tests of the report: made-up runs, a browser, strings that try to break out of the page."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from geometry_run import make_run
from made_study import make_study
from page_view import ARGUMENTS

from whatwhere.encoder import PRESETS
from whatwhere.records.record import Record
from whatwhere.report import references
from whatwhere.report.loaded_run import Run


@pytest.fixture
def without_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reference study comes with the package."""
    monkeypatch.setattr(references, "FOLDER", tmp_path / "no references")


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Builds a made-up study folder: build(models=..., seeds=..., layers=...)."""

    def make(name: str = "study", **options: object) -> Path:
        return make_study(tmp_path / name, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One made-up study of four models and one seed, shared by all tests; do not write into it."""
    return make_study(tmp_path_factory.mktemp("report") / "demo")


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One made-up study of all presets and a scheme of somebody's own, shared by all tests; do not write into it."""
    return make_study(tmp_path_factory.mktemp("all") / "all", models=(*PRESETS, "log-decay"), shifts=True)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One made-up study of four models with records of every analysis and an explorer, shared by all tests; do not
    write into it."""
    from whole_study import complete

    return complete(make_study(tmp_path_factory.mktemp("whole") / "whole", shifts=True))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the system's Chromium; the test is skipped where there is none."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        pytest.skip("no Chromium on this machine")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str):
    """A headless Chromium, shared by all tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def geometry_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One made-up geometry run of two corpora, shared by all tests; do not write into it."""
    return make_run(tmp_path_factory.mktemp("geometry") / "run")


# Strings that try to become markup, script, a template, a hover field; the last tries all at once.
HOSTILE = [
    "</script><script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1">',
    "\" onmouseover='window.pwned=1' x=\"",
    "a\u202eb\u2066c",
    "{{ 7*7 }}{% raw %}",
    "<!--<script>",
    "`<b>x</b>`",
    "</style><svg onload=window.pwned=1>",
    "%{customdata}<br>$x$&lt;",
]
HOSTILE.append(" ".join(HOSTILE))


@pytest.fixture(scope="session")
def hostile_texts() -> list[str]:
    """Strings that try to break out of the page."""
    return HOSTILE


@pytest.fixture(scope="session")
def hostile_study() -> Callable[[str], Run]:
    """Builds a study whose every string is the given one."""
    return _hostile_study


def _hostile_study(text: str) -> Run:
    """A study whose every string is `text`."""
    records = [
        Record(text, text, "r2.token", 0.5, 0.4, 0.6, text, 0, layer, None, part, None, None, 5)
        for layer in range(3)
        for part in ("all", "position", "semantic", text)
    ]
    records += [
        Record(text, text, "loss", 5.0 - s / 10, unit=text, seed=0, part="validation", step=s) for s in range(5)
    ]
    records += [Record(text, text, "pca.share", 0.5, index=i, seed=0) for i in range(2)] + [
        Record(text, text, "pca.top2", 1.0, seed=0)
    ]
    records += _hostile_insides(text)
    keys = ("id", "claim", "verdict", "source", "rule", "scale", "unit")
    facts = {
        "title": text,
        "corpus": {"name": text, text: text, "source": {text: [text]}},
        "models": [
            {
                "name": text,
                "seed": 0,
                "config": {"preset": text, text: text, "mlm_head": text},
                "training": {text: text},
            }
        ],
        "size": text,
        "machine": {text: text, "cpu": text},
        "versions": {text: text},
        "started": text,
        "command": [text, text],
        "seconds": text,
    }
    return Run(text, facts, records, [dict.fromkeys(keys, text) | {"value": 0.5, "paper_value": 0.4}] * 2)


def _hostile_insides(text: str) -> list[Record]:
    """Records of heads, attention and of one model beside another, whose every name is `text`."""
    place = {"study": text, "model": text, "seed": 0, "unit": text, "n": 5}
    bounded = {"value": 0.5, "low": 0.4, "high": 0.6}
    records = []
    for layer in (1, 2):
        for head in (0, 1):
            where = place | {"layer": layer, "head": head}
            for term in ("semantic", "absolute", text):
                records += [Record(metric=f"{metric}.{term}", **where, **bounded) for metric in ("kl", "kl.share")]
            records += [
                Record(metric=f"ablation.{kind}", part=text, **where, **bounded)
                for kind in ("remove", "mean", "shuffle")
            ]
            looks = ("previous", "next", "self", "special", "local", "broad", "retrieval")
            records += [
                Record(metric=f"attention.{look}", part=part, **where, **bounded)
                for look in looks
                for part in (text, "total")
            ]
            records += [
                Record(metric=metric, part=text, **where, **bounded)
                for metric in ("head.label", "pattern", "correlation.share")
            ]
        for metric in ("ablation.remove", "hidden.top2", "sentences.separation", "sentences.null", "sentences.excess"):
            records.append(Record(metric=metric, part=text, layer=layer, **place, **bounded))
        for metric in (
            "regression.position",
            "regression.semantic",
            "projected.stress.raw",
            "projected.stress.optimal",
        ):
            records.append(Record(metric=metric, part=text, layer=layer, **place, **bounded))
    records += [
        Record(metric=metric, part=text, **place, **bounded)
        for metric in ("heads.share", "patterns.share", "ablation.remove")
    ]
    records += [Record(metric=f"convergence.{kind}", part=text, **place, **bounded) for kind in ("share", "reached")]
    other = place | {"model": f"{text} too"}
    records += [Record(metric=f"convergence.{kind}", part=text, **other, **bounded) for kind in ("share", "reached")]
    corpus = place | {"model": "corpus", "seed": None}
    return records + [Record(metric=f"stress.{scale}", part=text, **corpus, **bounded) for scale in ("raw", "optimal")]
