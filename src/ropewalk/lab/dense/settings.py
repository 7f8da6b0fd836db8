"""Settings that a dense task needs, and that it has no use for."""

from collections.abc import Sequence
from pathlib import Path

from ropewalk.lab.config import Config

PLAIN = Config()
THINGS = ("model", "loss", "smoothing", "strength", "mixup", "cutmix", "perturb", "shift", "rescale", "per_sample")
WITHOUT = {"detect": THINGS, "masks": THINGS, "segment": ("model", "loss", "mixup", "cutmix")}
"""Settings of classes that a task has no use for."""


def check(config: Config, ways: Sequence[str]) -> None:
    """Refuse data that are no folder, and settings that would do nothing: those of classes that differ from their defaults,
    and augmentation that is not among the ways that there are."""
    if not Path(config.data).expanduser().is_dir():
        wanted = "a folder of images and what is in them, as the recipes penn-fudan and penn-fudan-maps take"
        raise ValueError(f"the task {config.task} needs data in {wanted}, got {config.data!r}")
    for name in WITHOUT[str(config.task)]:
        if (value := getattr(config, name)) != (default := getattr(PLAIN, name)):
            raise ValueError(f"{name} is of classes: for {config.task} it must be {default!r}, got {value!r}")
    if unknown := [name for name in config.augment if name not in ways]:
        raise ValueError(f"augment takes {', '.join(ways)} for {config.task}, got {', '.join(unknown)}")
