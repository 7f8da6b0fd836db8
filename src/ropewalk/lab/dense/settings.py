"""Settings that a dense task has no use for."""

from collections.abc import Sequence

from ropewalk.lab.config import Config

PLAIN = Config()


def check(config: Config, *, without: Sequence[str], ways: Sequence[str]) -> None:
    """Refuse settings that would do nothing: those of classes that differ from their defaults, and augmentation that is not
    among the ways that there are."""
    for name in without:
        if (value := getattr(config, name)) != (default := getattr(PLAIN, name)):
            raise ValueError(f"{name} is of classes: for {config.task} it must be {default!r}, got {value!r}")
    if unknown := [name for name in config.augment if name not in ways]:
        raise ValueError(f"augment takes {', '.join(ways)} for {config.task}, got {', '.join(unknown)}")
