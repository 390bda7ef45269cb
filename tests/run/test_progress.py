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
