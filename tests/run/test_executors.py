"""Jobs handed to executors: how many are under way, what stops at an error, what is drawn when."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from whatwhere.run.executors import Job, ThisProcess, submit_and_yield


class Slow:
    """Executor whose jobs finish when the test says so."""

    def __init__(self):
        self.futures = {}

    def submit(self, job, number):
        self.futures[number] = Future()
        return self.futures[number]


def square(value, progress):
    progress(1, 2, "half")
    return value**2


def refuse(value, progress):
    raise ValueError(f"{value} is refused")


def numbered(count, drawn, work=square):
    for number in range(count):
        drawn.append(number)
        yield number, Job(str(number), work, (number,))


def test_jobs_are_drawn_as_others_finish():
    drawn = []
    executor = Slow()
    finished = submit_and_yield(executor, numbered(5, drawn), lambda: 2)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, finished)
        while len(executor.futures) < 2:
            time.sleep(0.01)
        executor.futures[1].set_result("one")
        number, job, future = first.result()
    assert (number, job.args, future.result()) == (1, (1,), "one") and drawn == [0, 1]
    for later in (0, 2):
        finish = threading.Timer(0.1, lambda later=later: executor.futures[later].set_result(None))
        finish.start()
        assert next(finished)[0] == later
    assert drawn == [0, 1, 2, 3]


def test_all_jobs_are_handed_over_without_a_limit():
    drawn = []
    executor = Slow()
    finished = submit_and_yield(executor, numbered(5, drawn))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, finished)
        while len(executor.futures) < 5:
            time.sleep(0.01)
        executor.futures[4].set_result(None)
        assert first.result()[0] == 4
    assert drawn == list(range(5))


def test_this_process_does_a_job_when_asked():
    """A job of this process is drawn when the result of the one before was taken, and shows its progress."""
    drawn = []
    seen = []
    finished = submit_and_yield(ThisProcess(lambda *state: seen.append(state)), numbered(3, drawn))
    for count, (number, _, future) in enumerate(finished, start=1):
        assert future.result() == number**2 and drawn == list(range(count))
    assert seen == [(number, str(number), 1, 2, "half", "") for number in range(3)]


def test_error_in_this_process_stops_the_rest():
    drawn = []
    with pytest.raises(ValueError, match="0 is refused"):
        list(submit_and_yield(ThisProcess(), numbered(3, drawn, refuse)))
    assert drawn == [0]


def test_job_in_this_process_has_its_threads():
    before = torch.get_num_threads()
    job = Job("threads", lambda progress: torch.get_num_threads(), (), threads=before + 1)
    assert ThisProcess().submit(job, 0).result() == before + 1 and torch.get_num_threads() == before
