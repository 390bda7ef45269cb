"""The small study that tests of whole studies run."""

import pytest
import yaml
from cli_runner import sentences
from small_study import TRAINING, VALUES

from whatwhere.study.study_settings import StudyConfig


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    path = tmp_path_factory.mktemp("study-text") / "corpus.txt"
    path.write_text(sentences(600), encoding="utf-8")
    config = StudyConfig.parse(
        {**VALUES, "corpus": str(path), "steps": 20, "models": ["dstg", "rope"], "training": TRAINING}
    )
    path.with_suffix(".yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    return ("study", "--config", str(path.with_suffix(".yaml")), "--json")
