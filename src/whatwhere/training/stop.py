"""Agreement of all processes of a training to stop or to write a checkpoint as soon as one of them must."""

import torch
from accelerate import Accelerator
from torch import Tensor

from ..run.signals import stop_signal


class StopAgreement:
    """Agreement of all processes on a signal that asks to stop, and on the deadline of a checkpoint.

    A signal may reach one process only, and clocks differ; but all processes must write a checkpoint after the same
    step.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    def agree(self, is_overdue: bool) -> tuple[bool, bool]:
        """Ask all processes whether to stop and whether to save; all must call it after the same step.

        Returns:
            Whether a signal asked any process to stop, and whether any process has an overdue checkpoint.
        """
        requests = [stop_signal() is not None, is_overdue]
        if self.accelerator.num_processes > 1:
            votes = torch.tensor(requests, dtype=torch.float32, device=self.accelerator.device)
            total: Tensor = self.accelerator.reduce(votes, "sum")
            requests = [vote > 0 for vote in total.tolist()]
        return requests[0], requests[1]
