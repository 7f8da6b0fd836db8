"""The model of a run, and its encoding with the span that the run asks for."""

from typing import Any

import torch

from ropewalk import factory
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.lab.config import Config
from ropewalk.models import ViT
from ropewalk.theory import span

STRETCHES = ("scale", "std")
"""Options that stretch all frequencies of an encoding in proportion, in the order in which they are looked for."""


def model_of(config: Config, *, size: tuple[int, ...], channels: int, classes: int) -> ViT:
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own."""
    grid = tuple(side // config.patch for side in size)
    shape = {"head_dim": config.width // config.heads, "heads": config.heads, "layers": config.depth, "size": grid}
    options = with_span(config.encoding, config.options, config.span, {**shape, "axes": len(size)}, config.seed)
    torch.manual_seed(config.seed)
    names = ("width", "depth", "heads", "ratio", "pool", "registers", "layer_scale", "drop_path", "dropout", "patch")
    settings = {name: getattr(config, name) for name in names}
    return ViT(encoding=config.encoding, options=options, size=size, channels=channels, classes=classes, **settings)


def with_span(name: str, options: dict[str, Any], radians: float | None, shape: dict[str, Any], seed: int) -> dict[str, Any]:
    """Options with which the fastest channel turns so many radians across the image at the start; of rotary encodings."""
    kind = factory.find(name)
    if radians is None:
        return options
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = kind(**{**shape, **options})
    stretch = next((option for option in STRETCHES if option in parameters_of(kind)), None)
    if stretch is None or not made.traits.rotary:
        return options
    return {**options, stretch: getattr(made, stretch) * radians / fastest(made)}


def fastest(encoding: Encoding) -> float:
    """Radians that the fastest channel of all heads and layers turns across the image of training, along an axis."""
    if encoding.size is None:
        raise ValueError(f"the span of {encoding.name} needs the size of an image, got size=None")
    return span(encoding, *encoding.size).max().item()
