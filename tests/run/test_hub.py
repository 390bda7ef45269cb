"""Models of the Hub where workers of a cluster would open them."""

from unittest import mock

import pytest

import whatwhere as ww
from whatwhere.evaluation.glue import GLUE, GlueConfig
from whatwhere.run.hub import refuse_hub_names
from whatwhere.study.evaluation_run import run_evaluation


def test_models_of_the_hub_are_refused_on_a_cluster(tmp_path):
    """A name on the Hub was each worker's own copy: of two commits, one table of results was made."""
    refuse_hub_names(["reference", ww.reference()])
    config = GlueConfig.parse({"models": ["reference", "some/encoder"]})
    with pytest.raises(ValueError, match="^some/encoder is a model on the Hub.*: hf download some/encoder --local-dir"):
        run_evaluation(GLUE, config, tmp_path / "out", cluster=mock.Mock())
    assert not (tmp_path / "out").exists()
