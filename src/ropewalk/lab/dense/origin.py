"""The ViT of a dense task, and the run that it goes on from, if there is one.

A ViT that begins with the weights of a run is built as that one was: its encoding has the grid of that run as its yardstick,
hence the same frequencies, whatever the span makes of them, and the same table. Images of another size are then another
grid of the same places: a rotation turns as far from patch to patch as before, to the precision with which the coordinates
of its paper keep distances (see `ropewalk.positions.grid`), and a learned table, which ends with its grid, is read at places
squeezed into it, which resizes it. Images are normalised as in that run.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from ropewalk.lab.building import SETTINGS, classifier_of
from ropewalk.lab.config import Config
from ropewalk.lab.store import Run
from ropewalk.models import ViT

ALIKE = tuple(name for name in SETTINGS if name not in ("drop_path", "dropout"))
"""Settings of a ViT that weights are made for."""
PREFIX = "backbone_"
"""How names of what a ViT was built with begin in the facts of a run."""

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Origin:
    """What a ViT goes on from: the size of images that its encoding is made for, their mean and deviation, and the seed by
    which it draws what it does not learn, which is in no file."""

    size: tuple[int, ...]
    mean: Numbers
    std: Numbers
    seed: int

    def facts(self) -> dict[str, Any]:
        """As plain JSON values, for the facts of a run."""
        return {PREFIX + name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def within(cls, facts: Mapping[str, Any]) -> Self | None:
        """That of a run, from its facts, if it has one."""
        if f"{PREFIX}size" not in facts:
            return None
        size, mean, std = (tuple(facts[PREFIX + name]) for name in ("size", "mean", "std"))
        return cls(size, mean, std, facts[f"{PREFIX}seed"])


def origin_of(config: Config) -> Origin | None:
    """That of a run, if it begins with the weights of another whose ViT is the same."""
    if config.begins is None:
        return None
    run = Run.at(config.begins)
    facts = _checked(config, run)
    drawn = Origin(tuple(facts["size"]), tuple(facts["mean"]), tuple(facts["std"]), run.config.seed)
    found = Origin.within(facts) or drawn
    return found if config.encoding == run.config.encoding else replace(found, seed=config.seed)


def _checked(config: Config, run: Run) -> Mapping[str, Any]:
    """The facts of a run, if its ViT is that of these settings."""
    if run.config.length is not None or run.config.model is not None:
        raise ValueError(f"a ViT on images can go on from our own ViT on images alone, and {run.path} is none")
    alike = (*ALIKE, "options", "span") if config.encoding == run.config.encoding else ALIKE
    for name in alike:
        if (own := getattr(config, name)) != (theirs := getattr(run.config, name)):
            told = f"{name} of {config.encoding}" if name in ("options", "span") else name
            raise ValueError(f"{told} must be that of {run.path}, whose weights it begins with: {theirs}, got {own}")
    facts: Mapping[str, Any] = run.judged()[1]["data"]
    if facts["channels"] != 3 or len(facts["size"]) != 2:
        came = f"{facts['channels']} channels of {' × '.join(map(str, facts['size']))}"
        raise ValueError(f"a ViT on images goes on from one on images of three channels, and {run.path} has {came}")
    return facts


def backbone_of(config: Config, size: tuple[int, ...], classes: int, origin: Origin | None = None) -> ViT:
    """Our ViT, its weights drawn from the seed of the run, as if it found one of so many classes."""
    if config.model is not None:
        raise ValueError(f"a dense task needs our own ViT: model must be none, got {config.model}")
    if origin is not None:
        config, size = replace(config, seed=origin.seed), origin.size
    model = classifier_of(config, size=size, channels=3, classes=classes)
    assert isinstance(model, ViT)
    return model
