"""Jobs in processes of their own: who gets how many threads, results, what happens when one fails, is killed or is told
to stop."""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from fork_server import LONGEST
from rich.progress import Progress
from threadpoolctl import threadpool_info

from whatwhere.run.executors import Job
from whatwhere.run.jobs import progress_by_part, run_jobs, threads_of_jobs
from whatwhere.run.processes import Processes
from whatwhere.run.signals import Stopped


def square(value, progress):
    progress(1, 1, "squaring")
    return value * value, torch.get_num_threads(), os.getpid()


def refuse(value, progress):
    raise ValueError(f"{value} is refused.")


def wait_long(folder, progress):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(LONGEST)


def fail_when_others_wait(folder, progress):
    while not any(Path(folder).iterdir()):
        time.sleep(0.01)
    raise ValueError("one line.")


def tune(progress):
    progress(0, 2, "reading")
    for done in (1, 2):
        progress(done, 4, "fine-tuning")


def die(progress):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("jobs", "most", "plan"),
    [
        (4, 2, [1, 1, 1, 1]),
        (3, 2, [1, 1, 2]),  # the last one has both cores
        (6, 4, [1, 1, 1, 1, 2, 2]),
        (7, 4, [1, 1, 1, 1, 1, 1, 1]),  # four cores for three: one idles
        (1, 4, [4]),
        (3, 1, [None, None, None]),  # one by one, with all that the process has
        (0, 2, []),
    ],
)
def test_the_last_jobs_share_the_cores_that_would_idle(jobs, most, plan):
    assert threads_of_jobs(jobs, most) == plan


@pytest.mark.whole
@pytest.mark.parametrize(("fresh", "most"), [(True, 4), (False, 2)])
def test_short_jobs_may_share_processes(processes, fresh, most):
    jobs = [Job(str(i), square, (i,), 1) for i in range(4)]
    pids = {result[2] for _, result in run_jobs(jobs, 2, progress=False, process_per_job=fresh)}
    assert len(pids) == 4 if fresh else 1 <= len(pids) <= most


@pytest.mark.whole
def test_results_come_from_processes_with_the_planned_threads(processes, capsys):
    jobs = [Job(str(i), square, (i,), each) for i, each in enumerate(threads_of_jobs(3, 2))]
    found = {job.args[0]: result for job, result in run_jobs(jobs, 2, progress=True)}
    assert [found[i][:2] for i in range(3)] == [(0, 1), (1, 1), (4, 2)]
    assert os.getpid() not in {pid for _, _, pid in found.values()}
    *_, last = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert last.startswith("all 3 models") and "100%" in last and "left 0:00:00" in last


def threads_of_libraries(progress):
    import scipy.linalg  # brings a BLAS of its own, which nothing has loaded when the process begins

    assert scipy.linalg.inv([[2.0]]) == 0.5
    return {library["num_threads"] for library in threadpool_info()}


@pytest.mark.long  # a process is spawned, as a user's is
def test_libraries_that_a_job_loads_keep_its_threads(monkeypatch):
    """scipy's BLAS took all cores in a job of one thread, as it is loaded later than the limit was set."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    with Processes(1) as processes:
        assert processes.submit(Job("threads", threads_of_libraries, ()), 0).result() == {1}


def in_parts(progress):
    for done in (1, 2):
        progress(done, 4, "training")
    progress(0, 1, "looking")


def test_bars_that_end_look_complete(capsys, monkeypatch):
    """One bar of all jobs and bars that end look ended."""
    monkeypatch.setenv("COLUMNS", "120")
    seen = []
    update = Progress.update
    monkeypatch.setattr(Progress, "update", lambda *a, **k: (seen.append(k.get("completed")), update(*a, **k))[1])
    list(run_jobs([Job("a", in_parts, (), None), Job("b", in_parts, (), None)], None, progress=True))
    of_all = [round(value, 3) for value in seen if isinstance(value, float)]
    assert of_all == sorted(of_all) and {0.2, 0.4, 0.8, 1.0, 1.2, 1.8, 2.0} <= set(of_all)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert lines[-1].startswith("all 2 models") and "100%" in lines[-1] and not [x for x in lines if "looking" in x]
    seen.clear()
    list(run_jobs([Job("a", tune, (), None), Job("b", tune, (), None)], None, progress=True, name="pieces of work"))
    of_all = {round(value, 3) for value in seen if isinstance(value, float)}
    assert of_all == {0.0, 0.2, 0.4, 1.0, 1.2, 1.4, 2.0}  # what comes before has no share
    assert capsys.readouterr().err.splitlines()[-1].startswith("all 2 pieces of work")
    with progress_by_part("model", True) as advance:
        advance(0, 1, "documents")
    assert "100%" in capsys.readouterr().err.splitlines()[-1]


def test_a_single_job_runs_in_this_process():
    """A single job runs here with its threads and gives them back."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ((_, result),) = run_jobs([Job("one", square, (3,), 1)], 2, progress=False)
        assert result == (9, 1, os.getpid()) and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_error_stops_the_other_jobs(tmp_path, processes):
    """An error is the callers and stops the others at once."""
    jobs = [Job("long", wait_long, (str(tmp_path),), 1), Job("bad", fail_when_others_wait, (str(tmp_path),), 1)]
    began = time.monotonic()
    with pytest.raises(ValueError, match="^one line.$"):
        list(run_jobs(jobs, 2, progress=False))
    assert time.monotonic() - began < LONGEST  # that the other one sleeps
    (pid,) = (int(path.name) for path in tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_signal_while_processes_start_stops_them(tmp_path, processes, monkeypatch):
    """A signal that comes while processes start stops their jobs."""

    # It was raised before the pipe that stops them was looked after, and all jobs ran to their ends.
    @contextmanager
    def signalled():
        yield
        while not any(tmp_path.iterdir()):
            time.sleep(0.01)
        raise Stopped

    monkeypatch.setattr("whatwhere.run.processes.hold_signals_while_spawning", signalled)
    jobs = [Job(name, wait_long, (str(tmp_path),), 1) for name in ("one", "two")]
    began = time.monotonic()
    with pytest.raises(Stopped):
        list(run_jobs(jobs, 2, progress=False))
    assert time.monotonic() - began < LONGEST  # that each sleeps


def test_a_killed_process_is_reported_in_one_line(processes):
    """A killed process is one line that says the way out."""
    jobs = [Job("a", die, (), 1), Job("b", die, (), 1)]
    advice = "put `OMP_NUM_THREADS=1` before it and add `--set at_once=1`"
    with pytest.raises(OSError, match=f"A process was killed, .*one of the models at a time, {advice}"):
        list(run_jobs(jobs, 2, progress=False))
    with pytest.raises(OSError, match="one of the pieces at a time, put `taskset -c 0` before it"):
        list(run_jobs(jobs, 2, progress=False, process_per_job=False, name="pieces"))


def held(progress):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow  # the fork server has a mask of its own
@pytest.mark.parametrize("fresh", [True, False])
def test_ctrl_c_does_not_reach_processes_that_still_import(fresh):
    jobs = [Job(str(i), held, (), 1) for i in range(3)]
    assert all(result for _, result in run_jobs(jobs, 2, progress=False, process_per_job=fresh))
    assert not held(print)


def test_an_error_in_this_process_is_not_wrapped():
    with pytest.raises(ValueError, match="3 is refused"):
        list(run_jobs([Job("one", refuse, (3,), None)], None, progress=False))
