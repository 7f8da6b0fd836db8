"""The ViT of a dense task, and the run that it goes on from, if there is one.

A ViT that begins with the weights of a run is built as that one was: its encoding has the grid of that run as its yardstick,
hence the same frequencies, whatever the span makes of them, and the same table. Images of another size are then another
grid of the same places: a rotation turns as far from patch to patch as before, to the precision with which the coordinates
of its paper keep distances (see `ropewalk.positions.grid`), and a learned table, which ends with its grid, is read at places
squeezed into it, which resizes it. Images are normalised as in that run.
"""

from dataclasses import dataclass, replace

from torch import nn

from ropewalk.encoding import Encoding
from ropewalk.lab.building import SETTINGS, model_of
from ropewalk.lab.config import Config
from ropewalk.lab.store import Run
from ropewalk.models import ViT

ALIKE = tuple(name for name in SETTINGS if name not in ("drop_path", "dropout"))
"""Settings of a ViT that weights are made for."""
FAR = 2
"""How many times larger a grid may become than the one that an encoding was made for."""

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Origin:
    """What a ViT goes on from: settings, the size of images that its encoding is made for, and their mean and deviation."""

    config: Config
    size: tuple[int, ...]
    mean: Numbers
    std: Numbers


def origin_of(config: Config) -> Origin | None:
    """That of a run, if it begins with the weights of another whose ViT is the same."""
    if config.begins is None:
        return None
    run = Run.at(config.begins)
    if run.config.length is not None or run.config.model is not None:
        raise ValueError(f"a ViT on images can go on from our own ViT on images alone, and {run.path} is none")
    for name in ALIKE:
        if (own := getattr(config, name)) != (theirs := getattr(run.config, name)):
            raise ValueError(f"{name} must be that of {run.path}, whose weights it begins with: {theirs}, got {own}")
    if config.encoding == run.config.encoding:
        for name in ("options", "span"):
            if (own := getattr(config, name)) != (theirs := getattr(run.config, name)):
                told = f"{name} of {config.encoding} must be that of {run.path}, which it goes on from"
                raise ValueError(f"{told}: {theirs}, got {own}")
    facts = run.judged()[1]["data"]
    size = facts.get("backbone", facts["size"])
    return Origin(run.config, tuple(size), tuple(facts["mean"]), tuple(facts["std"]))


def backbone_of(config: Config, size: tuple[int, int], origin: Origin | None = None) -> ViT:
    """Our ViT without a head, its weights drawn from the seed of the run."""
    if config.model is not None:
        raise ValueError(f"a dense task needs our own ViT: model must be none, got {config.model}")
    if origin is not None and config.encoding == origin.config.encoding:
        config = replace(config, seed=origin.config.seed)  # what an encoding draws and does not learn is in no file
    model = model_of(config, size=size if origin is None else origin.size, channels=3, classes=1)
    assert isinstance(model, ViT)
    model.head = nn.Identity()  # type: ignore[assignment]
    return model


def resolution_of(encoding: Encoding) -> str:
    """How it takes larger grids: it extrapolates, unless it ends with its grid, as tables do; then they are squeezed in."""
    far = [FAR * side for side in encoding.size or (1,) * encoding.axes]
    try:
        encoding(encoding.grid(*far))
    except ValueError:
        return "rescale"
    return "extrapolate"
