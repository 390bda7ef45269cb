"""Memory of a command whose work is on a Dask cluster, and a cluster that has as many workers as it needs."""

import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import environment, sentences
from cluster_jobs import rest
from dask_cluster import FORKS, DaskCluster

from whatwhere.run.cluster import connect
from whatwhere.run.executors import Job
from whatwhere.run.jobs import run_jobs
from whatwhere.run.lock import lock

PEAK = Path(__file__).parents[1] / "factories/cluster_peak.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("distributed")
    with DaskCluster(tmp_path_factory.mktemp("cluster"), 2, **FORKS) as cluster:
        yield cluster


@pytest.mark.slow
def test_memory_of_the_command_is_flat(cluster, tmp_path):
    """The command kept the text of its last thousand shards, where these are small: 50 kB for each more of them."""
    (tmp_path / "text.txt").write_text(sentences(80_000), encoding="utf-8")
    words = (str(tmp_path / "text.txt"), str(cluster.file), str(tmp_path / "out"))
    done = subprocess.run([sys.executable, PEAK, *words], env=environment(), capture_output=True, check=True)
    peaks = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    (few, low), *_, (many, high) = peaks
    print(f"{few} shards {low / 1024:.0f} MiB, {many} shards {high / 1024:.0f} MiB")
    assert few == 50 and many > 250
    assert high - low <= 20 * (many - few), peaks  # in kB, of shards of 49 kB


@pytest.mark.slow
def test_cluster_that_adapts_may_begin_empty(tmp_path):
    """It starts workers where a job waits; the command waited for a worker before it gave a job."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None) as local:
        local.adapt(minimum=0, maximum=1, interval="100ms")
        with connect(local.scheduler_address, tmp_path / "out") as connected, lock(tmp_path / "out"):
            assert len(list(run_jobs([Job("rest", rest, (0.1,))] * 3, None, False, cluster=connected))) == 3
