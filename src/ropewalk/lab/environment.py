"""What a run shares with others: the processes that train it, their devices, and trackers that follow it elsewhere.

Attention whose gradients can be trusted.

On Hopper GPUs cuDNN's way back through attention gives NaN where the keys fill half of its last tile of 128 and all scores
of a query are below -88 (pytorch/pytorch#196678), and torch 2.11 chooses cuDNN by itself. An image of 8 × 8 patches has such
keys, and a run of ours met such scores in its 404th step: the forward pass was right, and all weights were lost.

What is compiled has its kernel from when it was traced, and is found again on disk by keys in which the choice of kernels
has no part: `TAG` must be one, or a training would take up what was compiled without this.
"""

import importlib.metadata
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import PartialState, tracking
from accelerate.utils import parse_flag_from_env

from ropewalk.lab.errors import CommandError
from ropewalk.validation import check_choice

VERSIONED_PACKAGES = ("triton", "ropewalk", "timm", "transformers", "liger-kernel", "flash-attn")


def describe_machine() -> dict[str, Any]:
    """Where."""
    cores = {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", **cores}


def list_package_versions() -> dict[str, str]:
    """With what."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in VERSIONED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def count_cpu_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_processes() -> int:
    """How many train together. A GPU that they are told to use must be there."""
    device = os.environ.get("ACCELERATE_TORCH_DEVICE", "")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CommandError(f"ACCELERATE_TORCH_DEVICE must name a device that is there, got {device}, and torch finds no GPU")
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU")).num_processes


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are not there. Accelerate would leave them out and say nothing."""
    there = {str(each) for each in tracking.get_available_trackers()}
    for name in names:
        check_choice("tracker", name, tracking.LOGGER_TYPE_TO_CLASS, error=CommandError)
        if name not in there:
            raise CommandError(f"the tracker {name} is not installed: pip install {name.replace('_', '-')}")


COMPILE_CACHE_TAG = "attention without cuDNN"
"""For `torch.compiler.config.cache_key_tag`."""


@contextmanager
def disable_cudnn_attention() -> Iterator[None]:
    """PyTorch chooses among its other kernels; which one goes back is decided on the way there."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
