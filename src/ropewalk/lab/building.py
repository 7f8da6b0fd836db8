"""The model of a run, and its encoding with the span that the run asks for."""

from typing import TYPE_CHECKING, Any

import torch

from ropewalk.encoding import Encoding, parameters_of
from ropewalk.factory import Chained
from ropewalk.lab.config import Config
from ropewalk.models import ViT
from ropewalk.theory import span

if TYPE_CHECKING:
    from ropewalk.lab.dense.origin import Origin
    from ropewalk.lab.dense.segmenter import Segmenter
    from ropewalk.lab.hosting import Hosted

STRETCHES = ("scale", "std")
"""Options that stretch all frequencies of an encoding in proportion, in the order in which they are looked for."""
SETTINGS = ("width", "depth", "heads", "ratio", "pool", "registers", "layer_scale", "drop_path", "dropout", "patch")


def model_of(
    config: Config, *, size: tuple[int, ...], channels: int, classes: int, origin: "Origin | None" = None
) -> "ViT | Hosted | Segmenter":
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own.

    `origin` is what the ViT of a dense task goes on from.
    """
    if config.task == "segment":
        from ropewalk.lab.dense.segmenter import segmenter_of

        return segmenter_of(config, size, classes, origin)
    return classifier_of(config, size=size, channels=channels, classes=classes)


def classifier_of(config: Config, **data: Any) -> "ViT | Hosted":
    """The model of images with one class, whatever the task."""
    model = _built(config, config.options, **data)
    if config.span is None:
        return model
    return _built(config, stretched(model.encoding, config.options, config.span), **data)


def _built(config: Config, options: dict[str, Any], **data: Any) -> "ViT | Hosted":
    if config.model is not None:
        from ropewalk.lab.hosting import hosted

        return hosted(config, options, **data)
    torch.manual_seed(config.seed)  # some encodings draw numbers that they do not learn
    model = ViT(encoding=config.encoding, options=options, **data, **{name: getattr(config, name) for name in SETTINGS})
    torch.manual_seed(config.seed)
    model.reset_parameters()
    return model


def stretched(encoding: Encoding, options: dict[str, Any], radians: float) -> dict[str, Any]:
    """Options with which the fastest channel, drawn alike, turns so many radians across the image; if any channel turns.

    Of a chain, the part that turns is stretched.
    """
    if isinstance(encoding, Chained):
        both = zip(encoding._parts(), encoding.parts, strict=True)
        return {**options, "parts": [stretched(member, part, radians) for member, part in both]}
    option = stretch_of(encoding)
    if option is None or not (fast := fastest(encoding)):
        return options
    return {**options, option: getattr(encoding, option) * radians / fast}


def stretch_of(encoding: Encoding) -> str | None:
    """The option by which an encoding that turns channels is stretched."""
    found = (name for name in STRETCHES if name in parameters_of(type(encoding)))
    return next(found, None) if encoding.traits.rotary else None


def fastest(encoding: Encoding) -> float:
    """Radians that the fastest channel of all heads and layers turns across the image of training, along an axis."""
    if encoding.size is None:
        raise ValueError(f"the span of {encoding.name} needs the size of an image, got size=None")
    return span(encoding, *encoding.size).max().item()
