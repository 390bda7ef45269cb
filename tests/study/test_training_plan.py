"""Threads and steps of the trainings of a study."""

import torch

from whatwhere.study import training_plan


def test_trainings_on_an_accelerator_share_the_cores(monkeypatch):
    """Two at once had one thread each, however many cores there were: the one job of a device was taken for a core."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(training_plan, "count_cores", lambda: 8)
    assert training_plan.threads_per_model(2) == 4
