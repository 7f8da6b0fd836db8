"""The model of a run, and its encoding with the span that the run asks for."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch

from ropewalk.encoding import Encoding, parameters_of
from ropewalk.factory import Chained
from ropewalk.lab.config import Config
from ropewalk.lab.hash_random import derive_seed
from ropewalk.lab.vision_heads.segmenter import ViTSegmenter
from ropewalk.models import ViT
from ropewalk.theory import span

if TYPE_CHECKING:
    from ropewalk.lab.timm_model import TimmModel
    from ropewalk.lab.vision_heads.segmenter import ViTSegmenter

BACKBONE_PREFIX = "backbone_"
"""How names of what a ViT was built with begin in the facts of a run."""

ChannelValues = tuple[float, ...]


@dataclass(frozen=True)
class BackboneOrigin:
    """What a ViT goes on from: the size of images that its encoding is made for, their mean and deviation, and the seed by
    which it draws what it does not learn, which is in no file."""

    size: tuple[int, ...]
    mean: ChannelValues
    std: ChannelValues
    seed: int

    def facts(self) -> dict[str, Any]:
        """As plain JSON values, for the facts of a run."""
        return {
            BACKBONE_PREFIX + name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self | None:
        """That of a run, from its facts, if it has one."""
        if f"{BACKBONE_PREFIX}size" not in facts:
            return None
        size, mean, std = (tuple(facts[BACKBONE_PREFIX + name]) for name in ("size", "mean", "std"))
        return cls(size, mean, std, facts[f"{BACKBONE_PREFIX}seed"])


def build_backbone(config: Config, size: tuple[int, ...], classes: int, origin: BackboneOrigin | None = None) -> ViT:
    """Our ViT, its weights drawn from the seed of the run, as if it found one of so many classes."""
    if config.model is not None:
        raise ValueError(f"a dense task needs our own ViT: model must be none, got {config.model}")
    if origin is not None:
        config, size = replace(config, seed=origin.seed), origin.size
    model = build_classifier(config, size=size, channels=3, classes=classes)
    assert isinstance(model, ViT)
    return model


SEGMENTER_HEAD_STREAM = 1011
"""Of the draws of a head's weights."""


def build_segmenter(
    config: Config, size: tuple[int, ...], classes: int, origin: BackboneOrigin | None = None
) -> ViTSegmenter:
    """The model of a run, the weights of its head drawn from the seed: the same for every encoding."""
    backbone = build_backbone(config, size, classes, origin)
    torch.manual_seed(derive_seed(config.seed, SEGMENTER_HEAD_STREAM))
    return ViTSegmenter(backbone, classes, config.head or "linear")


SPAN_OPTIONS = ("scale", "std")
"""Options that stretch all frequencies of an encoding in proportion, in the order in which they are looked for."""
VIT_SETTINGS = ("width", "depth", "heads", "ratio", "pool", "registers", "layer_scale", "drop_path", "dropout", "patch")


def build_model(
    config: Config, *, size: tuple[int, ...], channels: int, classes: int, origin: "BackboneOrigin | None" = None
) -> "ViT | TimmModel | ViTSegmenter":
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own.

    `origin` is what the ViT of a dense task goes on from.
    """
    if config.task == "segment":
        return build_segmenter(config, size, classes, origin)
    return build_classifier(config, size=size, channels=channels, classes=classes)


def build_classifier(config: Config, **data: Any) -> "ViT | TimmModel":
    """The model of images with one class, whatever the task."""
    model = _build_with_options(config, config.options, **data)
    if config.span is None:
        return model
    return _build_with_options(config, scale_to_span(model.encoding, config.options, config.span), **data)


def _build_with_options(config: Config, options: dict[str, Any], **data: Any) -> "ViT | TimmModel":
    if config.model is not None:
        from ropewalk.lab.timm_model import build_timm_model

        return build_timm_model(config, options, **data)
    torch.manual_seed(config.seed)  # some encodings draw numbers that they do not learn
    model = ViT(encoding=config.encoding, options=options, **data, **{name: getattr(config, name) for name in VIT_SETTINGS})
    torch.manual_seed(config.seed)
    model.reset_parameters()
    return model


def scale_to_span(encoding: Encoding, options: dict[str, Any], radians: float) -> dict[str, Any]:
    """Options with which the fastest channel, drawn alike, turns so many radians across the image; if any channel turns.

    Of a chain, the part that turns is stretched.
    """
    if isinstance(encoding, Chained):
        both = zip(encoding._parts(), encoding.parts, strict=True)
        return {**options, "parts": [scale_to_span(member, part, radians) for member, part in both]}
    option = find_span_option(encoding)
    if option is None or not (fast := compute_max_span(encoding)):
        return options
    return {**options, option: getattr(encoding, option) * radians / fast}


def find_span_option(encoding: Encoding) -> str | None:
    """The option by which an encoding that turns channels is stretched."""
    found = (name for name in SPAN_OPTIONS if name in parameters_of(type(encoding)))
    return next(found, None) if encoding.traits.rotary else None


def compute_max_span(encoding: Encoding) -> float:
    """Radians that the fastest channel of all heads and layers turns across the image of training, along an axis."""
    if encoding.size is None:
        raise ValueError(f"the span of {encoding.name} needs the size of an image, got size=None")
    return span(encoding, *encoding.size).max().item()
