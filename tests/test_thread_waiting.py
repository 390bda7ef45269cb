"""Threads wait as the machine allows: said in the environment before torch is loaded, never by the library."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import environment

from whatwhere.run.thread_waiting import (
    MOST_USED,
    SLEEP,
    SPIN,
    VARIABLES,
    CoreTimes,
    core_times,
    cores_used_by_others,
    set_wait_policy,
)


def test_cores_of_others_exclude_idle_and_ours():
    """Cores of others are what is neither idle nor ours."""
    begin = CoreTimes(clock=10.0, idle=100.0, process=3.0, cores=4)
    end = CoreTimes(clock=12.0, idle=105.0, process=4.5, cores=4)
    # 8 seconds of four cores: 5 idle, 1.5 ours, 1.5 of others in 2 seconds.
    assert cores_used_by_others(begin, end) == pytest.approx(0.75)
    assert cores_used_by_others(begin, CoreTimes(12.0, 108.02, 3.0, 4)) == 0.0  # the system counts in 10 ms
    assert cores_used_by_others(begin, CoreTimes(10.0, 99.98, 3.0, 4)) == 4.0  # no time between the readings


def test_times_of_this_machine_are_read():
    begin = core_times()
    sum(range(10**6))
    end = core_times()
    assert end.process > begin.process and end.clock > begin.clock and end.idle >= begin.idle
    assert 0.0 <= cores_used_by_others(begin, end) <= end.cores


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")


@pytest.mark.usefixtures("without_torch")
def test_threads_sleep_beside_others_and_spin_alone():
    """Threads sleep where others use the cores and spin where nobody does."""
    for others, chosen in ((0.0, SPIN), (MOST_USED, SPIN), (MOST_USED + 0.01, SLEEP), (2.0, SLEEP)):
        given = {"HOME": "/home/me"}
        set_wait_policy(others, given)
        assert given == {"HOME": "/home/me", **chosen}


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("name", VARIABLES)
def test_what_the_user_has_set_wins(name):
    for others in (0.0, 2.0):
        given = {name: "5"}
        set_wait_policy(others, given)
        assert given == {name: "5"}


def test_nothing_is_set_where_torch_would_not_read_it():
    given = {}
    set_wait_policy(2.0, given)
    assert "torch" in sys.modules and given == {}


AS_TORCH_LOADS = """
import json, os, sys
names = json.loads(sys.argv[1])
class Says:
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print(json.dumps({each: os.environ[each] for each in names if each in os.environ}), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Says())
"""
COMMAND = """
import whatwhere.cli
whatwhere.cli.cores_used_by_others = lambda begin, end: {others}
sys.argv = ["whatwhere", "doctor"]
whatwhere.cli.main()
"""


def printed(code: str, *arguments: str, **variables: str) -> list[str]:
    """What a new process prints, line by line; of all variables that say how threads wait it has the given ones."""
    given = {name: value for name, value in environment().items() if name not in VARIABLES}
    words = [sys.executable, "-c", code, json.dumps(VARIABLES), *arguments]
    done = subprocess.run(words, env=given | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("code", "given", "seen"),
    [
        (COMMAND.format(others=2.0), {}, SLEEP),
        (COMMAND.format(others=0.0), {}, SPIN),
        (COMMAND.format(others=2.0), {"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ("import whatwhere.encoder", {}, {}),  # the library leaves the environment of its user's process alone
    ],
    ids=["a busy machine", "an idle machine", "a user's value", "the library"],
)
def test_torch_reads_the_environment_at_loading(code, given, seen):
    """What torch finds in the environment as it is loaded."""
    assert json.loads(printed(AS_TORCH_LOADS + code, **given)[-1]) == seen


SAID = """
from pathlib import Path
def begun_with(*anything):
    \"\"\"The variables that this process was begun with, whatever was set in it since.\"\"\"
    pairs = [pair.partition("=") for pair in Path("/proc/self/environ").read_text().split("\\0")]
    return {name: value for name, _, value in pairs}
"""
PRESETS = """
import contextlib, io, json, sys
import whatwhere.cli
from pathlib import Path
names, folder = json.loads(sys.argv[1]), sys.argv[2]
sys.path.insert(0, folder)
whatwhere.cli.cores_used_by_others = lambda begin, end: 2.0
sys.argv = ["whatwhere", "presets"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    whatwhere.cli.main()
from said import begun_with
"""
SPAWNED = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
with ProcessPoolExecutor(1, get_context("spawn")) as pool:
    found = [pool.submit(begun_with).result()]
"""
OUR_WORKERS = """
from whatwhere.run.shard_pool import ShardPool
from whatwhere.run.reference import reference
from whatwhere.run.executors import Job
from whatwhere.run.jobs import run_jobs
jobs = [Job("a", begun_with, ()), Job("b", begun_with, ())]
found = [result for _, result in run_jobs(jobs, 2, False, process_per_job=False)]
with ShardPool(Path(reference()) / "tokenizer.json", 2) as pool:
    found.append(pool.submit_to_process(Job("c", begun_with, ()), 0).result())
"""
FOUND = """
for environment in [begun_with(), *found]:
    print(json.dumps({name: environment[name] for name in names if name in environment}))
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system does not tell")
@pytest.mark.parametrize(
    ("workers", "count"),
    [
        pytest.param(SPAWNED, 1, id="spawned as ours are"),
        pytest.param(OUR_WORKERS, 3, id="two of a study, one that tokenises", marks=pytest.mark.slow),
    ],
)
def test_worker_processes_begin_with_the_policy_of_the_command(workers, count, tmp_path):
    (tmp_path / "said.py").write_text(SAID, encoding="utf-8")
    command, *found = map(json.loads, printed(PRESETS + workers + FOUND, str(tmp_path)))
    assert command == {}  # nobody had set it before
    assert found == [SLEEP] * count
