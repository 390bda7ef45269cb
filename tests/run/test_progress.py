"""Bars where stderr is a log file, as under nohup or a batch system."""

import time

from whatwhere.run.progress import progress_bar


def test_a_log_gets_the_bars_once_a_minute(capfd, monkeypatch):
    """A log file had no line between the beginning of a training and its end."""
    now = time.monotonic()
    monkeypatch.setattr("whatwhere.run.progress.time.monotonic", lambda: now)
    with progress_bar("training", True) as advance:
        advance(10, 100, note="loss 5.25")
        assert capfd.readouterr().err == ""
        now += 61
        advance(30, 100, note="loss 5.01")
        advance(31, 100, note="loss 5.00")
        line = capfd.readouterr().err
    assert line.count("training") == 1 and "30%" in line and "loss 5.01" in line and "left" in line


def test_a_log_has_the_time_left_of_long_lines(capfd, monkeypatch):
    """Of 80 columns rich cut the times: "0… left 0…"."""
    monkeypatch.setattr("whatwhere.run.progress.SECONDS_BETWEEN_LINES", 0.0)
    with progress_bar("one-rate-half-turn seed 0: training", True) as advance:
        advance(30, 100, note="loss 7.158  3,803 tokens/s  0.2 nats since the last one")
        lines = capfd.readouterr().err.splitlines()
    assert all("…" not in line for line in lines) and "since the last one" in lines[-1], lines
