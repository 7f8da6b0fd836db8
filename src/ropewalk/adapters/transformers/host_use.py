"""How a host uses its rotary embedding: what a saved model must know to be loaded without measuring anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.adapters.transformers.apply_rotary import Usage
from ropewalk.adapters.transformers.hosts import Host, each_attention
from ropewalk.adapters.transformers.native import Found, read_waves
from ropewalk.adapters.transformers.probing import IDS, Shapes, on_the_cpu
from ropewalk.adapters.transformers.rebinding import host_class
from ropewalk.encoding import Encoding


def own_width(found: Found, encoding: Encoding) -> int:
    """The channels of a head that an encoding is given: all, but those before the first that a wave table rotates."""
    return min(encoding.head_dim, found.first.width) if encoding.name == "waves" else found.first.width


@dataclass(frozen=True)
class HostUse:
    """How a host uses its rotary embedding: what has to be known to stand in its place.

    ids     How positions come, one of `probing.IDS`.
    single  Whether one table of complex numbers is wanted, and not cosines and sines.
    usages  How each class of attention calls its rotation functions.
    """

    ids: str
    single: bool
    usages: dict[str, tuple[Usage, ...]]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "ids": self.ids,
            "single": self.single,
            "usages": {n: [list(u) for u in us] for n, us in self.usages.items()},
        }

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> "HostUse":
        """From what `to_dict` gave. It comes from a file, which may hold anything."""
        try:
            usages = {str(name): tuple(Usage(*usage) for usage in several) for name, several in said["usages"].items()}
            plain = all(
                isinstance(each.name, str) and each.tensors in (1, 2) for several in usages.values() for each in several
            )
            if not plain or said["ids"] not in IDS:
                raise ValueError(said)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            wanted = "how the model uses its rotary embedding, as save_pretrained writes it"
            raise ValueError(f"config.ropewalk must say under 'host' {wanted}, got {said!r}") from error
        return cls(said["ids"], bool(said["single"]), usages)


@on_the_cpu
def read_use(host: Host, about: Mapping[str | None, Found], made: Encoding | dict[str, Encoding]) -> HostUse:
    """How a host uses its rotary embedding, given the layout of the encodings."""
    first = next(iter(about.values()))
    usages: dict[str, tuple[Usage, ...]] = {}
    for kind, found in about.items():
        encoding = made if isinstance(made, Encoding) else made[str(kind)]
        for attention in each_attention(host):
            name, shapes = host_class(attention).__name__, found.shapes.get(id(attention))
            if shapes is not None and name not in usages:
                usages[name] = tuple(_usage(found, each, encoding) for each in shapes)
    return HostUse(first.kind, not isinstance(first.first.calls[0].outputs, tuple), usages)


def _usage(about: Found, shapes: Shapes, encoding: Encoding) -> Usage:
    interleaved = getattr(encoding, "interleaved", None)
    offset = about.first.width - own_width(about, encoding)
    if about.kind == "pixels":
        return shapes.usage._replace(prefix=True)
    if shapes is about.first or any(each.is_meta for each in about.rotary.buffers()):
        return shapes.usage._replace(offset=offset)
    waves = read_waves(about, shapes)
    other = waves.interleaved if waves.sections is None and waves.interleaved is not interleaved else None
    return shapes.usage._replace(offset=offset, interleaved=other)
