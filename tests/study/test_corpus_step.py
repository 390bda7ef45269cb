"""The step of a study that measures its corpus: what it says where positions cannot be compared."""

import pickle
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from whatwhere.geometry.counts import Counts
from whatwhere.geometry.distances import TooLittleText
from whatwhere.run.folder import RunFolder
from whatwhere.study import corpus_step
from whatwhere.study.study_settings import StudyConfig


class NoWindows(dict[str, Any]):
    """Windows without a text."""

    facts = {"length": 16}


def test_the_warning_names_no_option_of_geometry(tmp_path, monkeypatch, caplog):
    """The advice of `whatwhere geometry`, whose options a study does not have, was cut out of the text of its error."""
    problem = "2 of 14 positions have at least 500 tokens; a geometry needs 3."

    def refuse(*_: Any) -> None:
        raise TooLittleText(problem, "Count more text, or lower min_support.")

    monkeypatch.setattr(corpus_step, "count_windows", lambda *_, **__: None)
    monkeypatch.setattr(corpus_step, "corpus_geometry", refuse)
    with RunFolder.open(tmp_path / "run", "study") as run:
        corpus_step.measure_corpus(run, NoWindows(train=None))
        corpus_step.measure_corpus(run, NoWindows(train=None))  # said once
        assert corpus_step.corpus_geometry_records(run) == []
    (message,) = caplog.messages
    assert message.startswith(f"No geometry of the corpus: {problem} Study more text, or smaller documents")
    assert "--set document=blank-line" in message and "min_support" not in message
    assert {"document"} <= set(StudyConfig.model_fields) and "min_support" not in StudyConfig.model_fields


def test_advice_of_one_document_is_said_alone(tmp_path, monkeypatch, caplog):
    """The warning repeats an error that already tells how to cut a text into documents, and adds nothing to it."""
    counts = Counts(csr_array(np.eye(14, 20) * 1000), 14, 1, np.array([1]))
    monkeypatch.setattr(corpus_step, "count_windows", lambda *_, **__: counts)
    with RunFolder.open(tmp_path / "run", "study") as run:
        corpus_step.measure_corpus(run, NoWindows(train=None))
    (message,) = caplog.messages
    assert message.endswith("Give at least two; --set document=line or blank-line cuts a text into documents.")


def test_the_error_is_whole_from_another_process():
    error = pickle.loads(pickle.dumps(TooLittleText("It is short.", "Give more.")))
    assert (error.problem, str(error)) == ("It is short.", "It is short. Give more.")
