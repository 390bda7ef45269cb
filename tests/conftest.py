"""Fixtures that all tests share.

The fixtures import what they need: the process that only hands out the tests would take seconds to import torch.
"""

import gc
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from hypothesis import HealthCheck, settings

# An example may take as long as a busy machine needs for it.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# No test asks the Hub; a name that is no folder is answered at once, here and in every process that is started.
os.environ["HF_HUB_OFFLINE"] = "1"
huggingface_hub.constants.HF_HUB_OFFLINE = True

# Files that take five seconds or more, in any suite: first, so that no process is left alone with one at the end.
LONG = [
    *("test_golden.py", "encoder/test_schemes.py", "training/test_finetune.py", "study/test_run.py"),
    *("training/test_resume.py", "training/test_sharding.py", "test_faults.py", "study/test_growth.py"),
    *("encoder/test_model.py", "report/test_study_page.py", "test_cli.py", "encoder/test_tiled_attention.py"),
    *("test_benchmarks.py", "report/test_browser.py", "encoder/test_compile.py", "training/test_begun.py"),
    *("models/test_predict.py", "evaluation/test_mteb.py", "analysis/test_ablation.py", "training/test_loop.py"),
    *("study/test_evaluation_run.py", "report/test_compare.py", "training/test_costs.py", "encoder/test_attention.py"),
    *("models/test_open.py", "length/test_length.py", "encoder/test_carry.py", "analysis/test_geometry.py"),
]

PYTHONS_THRESHOLD = gc.get_threshold()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_collectstart() -> None:
    """Collect no garbage while tests are collected: a third of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what imports and collection made out of garbage collections, which would look at it all each time.

    From then on they are seldom: at Python's own threshold they take a fifteenth of the time of small models' tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture
def usual_collections() -> Iterator[None]:
    """Garbage collections as often as in use, for tests that measure memory."""
    seldom = gc.get_threshold()
    gc.set_threshold(*PYTHONS_THRESHOLD)
    yield
    gc.set_threshold(*seldom)


@pytest.fixture(scope="module", autouse=True)
def own_schemes_end_with_their_file() -> Iterator[None]:
    """What a test file registers is unknown to the next."""
    from cli_runner import KNOWN, PUBLISHED

    yield
    for names, published in zip(KNOWN, PUBLISHED, strict=True):
        names.clear()
        names.update(published)


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory) -> Path:
    """400 short made-up documents, separated by blank lines."""
    from cli_runner import sentences

    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text(sentences(400), encoding="utf-8")
    return path


@pytest.fixture(params=["fork server", pytest.param("spawn", marks=pytest.mark.slow)])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the processes that the code starts come from: the fork server, at once; `slow`, spawned as everywhere else,
    with six seconds of imports each."""
    from fork_server import CONTEXT

    if request.param == "fork server":
        monkeypatch.setattr(multiprocessing, "get_context", lambda method: CONTEXT)
    return request.param
