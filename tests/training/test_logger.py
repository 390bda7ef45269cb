"""The log of a training: its speed and its waiting by a clock that the test sets."""

from types import SimpleNamespace

import pytest
import torch

from whatwhere.run.files import read_lines
from whatwhere.training import logger as logger_module
from whatwhere.training.logger import Logger
from whatwhere.training.settings import LoopConfig


class Clock:
    """A clock that stands still until it is told."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(logger_module, "time", clock)
    return clock


def make_logger(out) -> Logger:
    accelerator = SimpleNamespace(
        is_main_process=True, device=torch.device("cpu"), wait_for_everyone=lambda: None, print=print
    )
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.25)
    training = SimpleNamespace(accelerator=accelerator, config=LoopConfig(log_every=2), steps=5, optimizers=[optimizer])
    return Logger(out, training, tokens_per_step=30)


def test_pauses_are_no_part_of_the_speed(clock, tmp_path):
    """2 steps of 30 tokens in 10 seconds, 4 of them in a validation, 1.5 without a batch."""
    logger = make_logger(tmp_path)
    clock.now += 50
    logger.open()
    with logger.waiting():
        clock.now += 1.5
    clock.now += 4.5
    for loss in (2.0, 4.0):
        logger.add_loss(loss)
    with logger.pausing():
        clock.now += 4
    line = logger.log_steps(2, gradient_norm=0.5)
    assert line["tokens_per_second"] == pytest.approx(60 / 6) and line["waiting"] == pytest.approx(1.5 / 6)
    assert (line["loss"], line["gradient_norm"], line["learning_rate"]) == (3.0, 0.5, 0.25)
    assert logger.seconds == 10.0
    clock.now += 3
    logger.add_loss(1.0)
    assert logger.log_steps(4, 0.5)["tokens_per_second"] == pytest.approx(30 / 3)
    assert [line["step"] for line in read_lines(tmp_path / "log.jsonl")] == [2, 4]
    assert [step for step in range(1, 6) if logger.is_due(step)] == [2, 4, 5]


def test_a_resumed_log_goes_on_from_its_checkpoint(clock, tmp_path):
    """The mean of a line does not depend on a stop between two lines; later lines are cut off."""
    first = make_logger(tmp_path)
    first.open()
    first.log(0, {"validation_loss": 5.0})
    clock.now += 7
    first.add_loss(2.0)
    state = first.state_dict()
    first.add_loss(100.0)
    clock.now += 1
    first.log_steps(2, 0.5)

    resumed = make_logger(tmp_path)
    resumed.load_state_dict(state, step=1)
    resumed.open()
    assert resumed.seconds == 7.0
    clock.now += 1
    resumed.add_loss(4.0)
    assert resumed.log_steps(2, 0.5)["loss"] == 3.0
    assert [line["step"] for line in read_lines(tmp_path / "log.jsonl")] == [0, 2]
