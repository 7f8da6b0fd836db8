"""What a run shares with others: the processes that train it, their devices, and trackers that follow it elsewhere."""

import os
from collections.abc import Sequence

import torch
from accelerate import PartialState, tracking
from accelerate.utils import parse_flag_from_env

from ropewalk.lab.choose import Refusal, known


def processes() -> int:
    """How many train together. A GPU that they are told to use must be there."""
    device = os.environ.get("ACCELERATE_TORCH_DEVICE", "")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise Refusal(f"ACCELERATE_TORCH_DEVICE must name a device that is there, got {device}, and torch finds no GPU")
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU")).num_processes


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are not there. Accelerate would leave them out and say nothing."""
    there = {str(each) for each in tracking.get_available_trackers()}
    for name in names:
        known("tracker", name, tracking.LOGGER_TYPE_TO_CLASS)
        if name not in there:
            raise Refusal(f"the tracker {name} is not installed: pip install {name.replace('_', '-')}")
