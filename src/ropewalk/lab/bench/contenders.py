"""Models that differ by their encoding alone: none, each of ours in all its forms, and timm's where it is installed."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ropewalk.encoding import Encoding, parameters_of
from ropewalk.encodings import REGISTRY
from ropewalk.lab.bench import theirs
from ropewalk.models import ViT

BLOCKS = {"liere": (8, 64)}  # sizes that papers report; the default alone of others


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The model, the data, and how often each is timed."""

    preset: str = "small"
    size: tuple[int, int] = (224, 224)
    patch: int = 16
    batch: int = 256
    classes: int = 1000
    width: int | None = None
    depth: int | None = None
    heads: int | None = None
    rounds: int = 10
    inner: int = 3
    backend: str = "inductor"


Make = Callable[[Setting], ViT]


def vit(setting: Setting, encoding: str, **options: Any) -> ViT:
    """The model with one of our encodings."""
    shape = {name: getattr(setting, name) for name in ("size", "patch", "classes", "width", "depth", "heads")}
    return ViT(setting.preset, encoding=encoding, options=options, **shape)


def hosting(setting: Setting, host: theirs.Host) -> ViT:
    """The model with an encoding of someone else."""
    model = vit(setting, "none")
    model.encoding = host(model)  # type: ignore[assignment]
    return model


def contenders() -> dict[str, Make]:
    """None first, then every encoding that takes two axes, in all its forms, and then timm's."""
    kinds = [kind for kind in REGISTRY.values() if kind.allowed_axes is None or 2 in kind.allowed_axes]
    found: dict[str, Make] = {}
    for kind in sorted(kinds, key=lambda kind: (kind.name != "none", kind.name)):
        for name, options in _forms(kind).items():
            found[name] = functools.partial(vit, encoding=kind.name, **options)
    return found | {name: functools.partial(hosting, host=host) for name, host in theirs.hosts().items()}


def _forms(kind: type[Encoding]) -> dict[str, dict[str, Any]]:
    """The options of each form by name: sizes of blocks; or fixed, and learned where it can be."""
    known = parameters_of(kind)
    if "block" in known:
        return {
            f"{kind.name}, block {block}": {"block": block} for block in BLOCKS.get(kind.name, (known["block"].default,))
        }
    return {kind.name: {}} | ({f"{kind.name}, learned": {"learned": True}} if "learned" in known else {})
