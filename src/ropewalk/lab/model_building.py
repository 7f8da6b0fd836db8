"""The model of a run, and its encoding with the span that the run asks for."""

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch

from ropewalk.encoding import Encoding, parameters_of
from ropewalk.factory import Chained, find
from ropewalk.lab.config import SETTINGS, Config
from ropewalk.models import ViT
from ropewalk.theory import span

if TYPE_CHECKING:
    from ropewalk.lab.timm_model import TimmModel

# Prefix of the fields of a `BackboneOrigin` in the facts of a run.
BACKBONE_PREFIX = "backbone_"

ChannelValues = tuple[float, ...]


@dataclass(frozen=True)
class BackboneOrigin:
    """What a ViT that is initialized from a run must share with it: the size of images that its encoding is made for, their
    mean and standard deviation, and the seed of random values that are not learned, which are in no file."""

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
        """From the facts of a run, if it was initialized from another."""
        if f"{BACKBONE_PREFIX}size" not in facts:
            return None
        size, mean, std = (tuple(facts[BACKBONE_PREFIX + name]) for name in ("size", "mean", "std"))
        return cls(size, mean, std, facts[f"{BACKBONE_PREFIX}seed"])


# Options that rescale all frequencies of an encoding; the first that an encoding has is used.
SPAN_OPTIONS = ("scale", "std")
# Settings that are arguments of our ViT.
VIT_SETTINGS = tuple(
    name for name in inspect.signature(ViT).parameters if name in SETTINGS and name not in ("encoding", "options", "size")
)


def build_model(config: Config, *, size: tuple[int, ...], channels: int, classes: int) -> "ViT | TimmModel":
    """The model that classifies images: our ViT, or one of timm's.

    Its weights are drawn from the seed of the run: for every encoding the same ones but for the encoding's own.
    """
    data: dict[str, Any] = {"size": size, "channels": channels, "classes": classes}
    model = _build_with_options(config, config.options, **data)
    if config.span is None:
        return model
    return _build_with_options(config, scale_to_span(model.encoding, config.options, config.span), **data)


def build_backbone(config: Config, size: tuple[int, ...], classes: int, origin: BackboneOrigin | None = None) -> ViT:
    """Our ViT for a model that predicts boxes, masks or the classes of pixels, initialized as a classifier."""
    if origin is not None:
        config, size = replace(config, seed=origin.seed), origin.size
    model = build_model(config, size=size, channels=3, classes=classes)
    assert isinstance(model, ViT)
    return model


def check_encoding_class(config: Config) -> None:
    """Refuse a module:Class that is not imported: the name may come from a file, which must not run code."""
    find(config.encoding)


def _build_with_options(config: Config, options: dict[str, Any], **data: Any) -> "ViT | TimmModel":
    check_encoding_class(config)
    if config.model is not None:
        from ropewalk.lab.timm_model import build_timm_model

        return build_timm_model(config, options, **data)
    torch.manual_seed(config.seed)  # some encodings draw random values that they do not learn
    model = ViT(encoding=config.encoding, options=options, **data, **{name: getattr(config, name) for name in VIT_SETTINGS})
    torch.manual_seed(config.seed)
    model.reset_parameters()
    return model


def scale_to_span(encoding: Encoding, options: dict[str, Any], radians: float) -> dict[str, Any]:
    """Options with which the fastest channel of a rotary encoding rotates by so many radians across the image.

    In a chain, the rotary part is rescaled.
    """
    if isinstance(encoding, Chained):
        both = zip(encoding._parts(), encoding.parts, strict=True)
        return {**options, "parts": [scale_to_span(member, part, radians) for member, part in both]}
    option = find_span_option(encoding)
    if option is None or not (fast := compute_max_span(encoding)):
        return options
    return {**options, option: getattr(encoding, option) * radians / fast}


def find_span_option(encoding: Encoding) -> str | None:
    """The option that rescales the frequencies of a rotary encoding."""
    found = (name for name in SPAN_OPTIONS if name in parameters_of(type(encoding)))
    return next(found, None) if encoding.traits.rotary else None


def compute_max_span(encoding: Encoding) -> float:
    """Radians that the fastest channel of all heads and layers rotates across the training image, along one axis."""
    if encoding.size is None:
        raise ValueError(f"the span of {encoding.name} needs the size of an image, got size=None")
    return span(encoding, *encoding.size).max().item()


AXES_IN_WORDS = {1: "one axis, as in text", 3: "3 axes (time, row, column)"}


def check_axes(config: Config, axes: int) -> None:
    """Refuse an encoding of positions with more or fewer axes than the images have."""
    kind = find(config.encoding)
    if kind.allowed_axes is None or axes in kind.allowed_axes or "axes" in config.options:
        return
    least, most = kind.allowed_axes[0], kind.allowed_axes[-1]
    wanted = AXES_IN_WORDS.get(most, f"{most} axes") if least == most else f"{least} to {most} axes"
    raise ValueError(f"{kind.name} takes positions with {wanted}; the images of {config.data!r} have {axes}")


def check_span(config: Config, encoding: Encoding) -> None:
    """Refuse options that contradict the span of a run, and rotary encodings whose frequencies cannot be rescaled to it."""
    if config.span is None or not _is_rotary(encoding):
        return
    rotary, given = _find_rotary_part(encoding, config.options)
    if (option := find_span_option(rotary)) in given:
        raise ValueError(
            f"span={config.span} sets the option {option}, which was given too; use span=none, or drop {option}"
        )
    if option is None or not compute_max_span(rotary):
        raise ValueError(f"cannot rescale this encoding's frequencies to span={config.span}; use span=none")


def _find_rotary_part(encoding: Encoding, options: Mapping[str, Any]) -> tuple[Encoding, Mapping[str, Any]]:
    """The rotary encoding, which may be a part of a chain, and the options that were given for it."""
    if not isinstance(encoding, Chained):
        return encoding, options
    rotary = next(part for part in encoding._parts() if part.traits.rotary)
    return rotary, next((each for each in options["parts"] if each.get("name") == rotary.name), {})


def _is_rotary(encoding: Encoding) -> bool:
    """Whether it, or a part of it, rotates q and k."""
    parts = encoding.members if isinstance(encoding, Chained) else [encoding]
    return any(part.traits.rotary for part in parts if isinstance(part, Encoding))
