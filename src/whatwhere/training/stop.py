"""Wishes of single processes that all processes of a training must follow after the same step."""

import torch
from accelerate import Accelerator
from torch import Tensor

from ..run.signals import stop_signal


class StopSignal:
    """The signal that asks a training to stop, and a checkpoint's deadline, agreed by all processes.

    A signal may reach one process only, and their clocks differ; a checkpoint is written by all after the same step.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def agree(self, overdue: bool) -> tuple[bool, bool]:
        """Return whether any process was asked to stop, and whether in any a checkpoint is `overdue`.

        All processes must call it after the same step.
        """
        wishes = [stop_signal() is not None, overdue]
        if self.accelerator.num_processes > 1:
            votes = torch.tensor(wishes, dtype=torch.float32, device=self.accelerator.device)
            total: Tensor = self.accelerator.reduce(votes, "sum")
            wishes = [vote > 0 for vote in total.tolist()]
        stop, save = wishes
        return stop, save
