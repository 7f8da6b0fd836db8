"""The environment of a run: commit, package versions, machine and attention kernels for its record; processes, trackers.

Training disables cuDNN's attention. On Hopper GPUs its backward pass returns NaN where the keys fill half of its last tile
of 128 and all scores of a query are below -88 (pytorch/pytorch#196678), and PyTorch prefers it by default; 8 × 8 patches
have such keys. Compiled code keeps the kernel that was chosen when it was traced, and the key of the compile cache does not
contain that choice, hence `COMPILE_CACHE_TAG`.
"""

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState, tracking
from accelerate.utils import parse_flag_from_env

from ropewalk.lab.errors import CommandError
from ropewalk.validation import check_choice

ENVIRONMENT_FORMAT = "ropewalk environment 1"
RECORDED_PACKAGES = (
    "ropewalk", "triton", "numpy", "torchvision", "accelerate", "timm", "transformers", "liger-kernel", "flash-attn",
)  # fmt: skip
NEIGHBORS_VARIABLE = "ROPEWALK_NEIGHBORS"
"""Environment variable with the number of trainings that were started beside this one on the same machine."""


def describe_environment(device: torch.device, *, processes: int, compiled: bool) -> dict[str, Any]:
    """The provenance of a run as `environment.json` holds it; what is not known is None."""
    return {
        "format": ENVIRONMENT_FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": read_commit(),
        "versions": list_package_versions(),
        "machine": describe_machine(),
        "attention_kernel": describe_attention_kernels(device, compiled=compiled),
        "processes": processes,
        "neighbors": count_neighbors(),
        "encoding": None,
        "data": None,
        "index_seed": None,
    }


def continue_environment(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a run that is resumed: `earlier` lists other environments in which parts of it were computed.

    Encoding, data and the seed of the split stay until they are known again, since opening them may fail.
    """
    names = ("commit", "versions", "machine", "attention_kernel", "processes", "neighbors")
    past, present = ({name: each.get(name) for name in names} for each in (before, now))
    earlier = [*before.get("earlier", []), *([past] if past != present else [])]
    kept = {name: before.get(name) if now.get(name) is None else now[name] for name in ("encoding", "data", "index_seed")}
    return {**now, **kept, "created": before.get("created"), **({"earlier": earlier} if earlier else {})}


@functools.cache
def read_commit() -> str | None:
    """The commit of the git checkout that ropewalk runs from, with "-dirty" if files were changed; None if there is none."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():  # an installed package may lie in a repository that is not ropewalk's
        return None
    call = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=30).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def describe_machine() -> dict[str, Any]:
    """Device, processor, and the numbers of cores and threads."""
    cores = {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", **cores}


def list_package_versions() -> dict[str, str]:
    """Versions of Python, CUDA and the packages that can change results, without those that are not installed."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in RECORDED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})


def describe_attention_kernels(device: torch.device, *, compiled: bool) -> str:
    """The attention kernels that training may use on a device, as "sdpa: flash, math"; PyTorch chooses one for each call."""
    allowed = {
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled() and device.type == "cuda",
        "math": torch.backends.cuda.math_sdp_enabled(),
    }
    own = "ropewalk; " if compiled and device.type == "cuda" else ""
    return f"{own}sdpa: {', '.join(name for name, enabled in allowed.items() if enabled)}"


def count_neighbors() -> int | None:
    """How many trainings were started beside this one on the machine; None if unknown."""
    said = os.environ.get(NEIGHBORS_VARIABLE, "")
    return int(said) if said.isdecimal() else None


def count_cpu_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_processes() -> int:
    """The number of processes that train together. A GPU named by ACCELERATE_TORCH_DEVICE must exist."""
    device = os.environ.get("ACCELERATE_TORCH_DEVICE", "")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CommandError(f"ACCELERATE_TORCH_DEVICE is {device!r}, but torch finds no GPU")
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU")).num_processes


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are not installed, which accelerate would silently ignore."""
    there = {str(each) for each in tracking.get_available_trackers()}
    for name in names:
        check_choice("tracker", name, tracking.LOGGER_TYPE_TO_CLASS, error=CommandError)
        if name not in there:
            raise CommandError(f"the tracker {name} is not installed: pip install {name.replace('_', '-')}")


@contextmanager
def use_trackers(accelerator: Accelerator, names: Sequence[str], settings: Mapping[str, Any]) -> Iterator[None]:
    """Start trackers with the settings of a run, in the forms that they accept, and end them after the context."""
    if not names:
        yield
        return
    flat = {name: value if isinstance(value, int | float | str | bool) else str(value) for name, value in settings.items()}
    try:
        accelerator.init_trackers("ropewalk", config=flat)
        yield
    finally:
        accelerator.end_training()


COMPILE_CACHE_TAG = "attention without cuDNN"
"""For `torch.compiler.config.cache_key_tag`, so that code compiled with cuDNN attention is not reused."""


@contextmanager
def disable_cudnn_attention() -> Iterator[None]:
    """Disable cuDNN attention inside the context. The backward pass uses the kernel that the forward pass chose."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
