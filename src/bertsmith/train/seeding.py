"""Random numbers of a step: functions of a seed alone."""

import torch


def seed_step(seed: int, device: torch.device) -> None:
    """Seed torch's generators for a step on this device.

    `torch.manual_seed` also formats a stack trace for each kind of accelerator that is not in use,
    which takes a millisecond or more: too long for the steps of a CPU.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
