"""The address of a cluster where there is none."""

import sys

import pytest
from cli_runner import whatwhere

from whatwhere.run.cluster import connect

pytestmark = pytest.mark.whole


def test_jobs_stay_here_without_an_address(tmp_path):
    with connect(None, tmp_path) as cluster:
        assert cluster is None


def test_scheduler_file_that_is_not_there_is_named(tmp_path):
    """Dask took its name for an address, and printed a traceback half a minute later."""
    with pytest.raises(ValueError, match="^There is no scheduler file no.json"), connect("no.json", tmp_path):
        pass


def test_address_without_dask_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    out = tmp_path / "out"
    done = whatwhere("study", "--out", str(out), "--on", "tcp://127.0.0.1:8786")
    assert done.returncode == 2 and done.stderr == "whatwhere: --on needs Dask: pip install 'whatwhere[cluster]'.\n"
    assert not out.exists()
