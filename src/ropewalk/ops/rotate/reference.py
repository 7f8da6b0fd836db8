"""Rotation of pairs in plain PyTorch: (a, b) becomes (a cos t - b sin t, a sin t + b cos t).

Two neighbouring channels are a complex number, which eager PyTorch multiplies in one pass; compilers and exporters, which
know little of complex numbers, see the same in real ones.
"""

import functools

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ropewalk.ops.fused import bare, learning
from ropewalk.ops.layout import turn_part, widened


class Circle:
    """Cosines and sines, (B h n P)."""

    def __init__(self, cos: Tensor, sin: Tensor) -> None:
        self.cos, self.sin = cos, sin

    @functools.cached_property
    def number(self) -> Tensor:
        """As complex numbers."""
        return torch.complex(self.cos, self.sin)

    @functools.cached_property
    def whole(self) -> tuple[Tensor, Tensor]:
        """As `spread`, kept."""
        return self.spread()

    def spread(self) -> tuple[Tensor, Tensor]:
        """For half-split channels: (cos, cos), and (-sin, sin) for the channels that stand across."""
        return torch.cat([self.cos, self.cos], dim=-1), torch.cat([-self.sin, self.sin], dim=-1)

    def stretched(self, gain: Tensor | None) -> "Circle":
        if gain is None:
            return self
        gain = gain if gain.ndim == 4 else gain.unsqueeze(0)
        return Circle(self.cos * gain, self.sin * gain)

    def in_groups(self) -> "Circle":
        """(B h 1 n P)."""
        return Circle(self.cos.unsqueeze(2), self.sin.unsqueeze(2))

    def split(self, sections: list[int]) -> list["Circle"]:
        """Those of so many pairs each."""
        both = zip(self.cos.split(sections, -1), self.sin.split(sections, -1), strict=True)
        return [Circle(cos, sin) for cos, sin in both]

    def to(self, dtype: torch.dtype) -> "Circle":
        return self if self.cos.dtype is dtype else Circle(self.cos.to(dtype), self.sin.to(dtype))


KEPT: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Circles of angles on a CPU that do not learn, with the version of the angles: a code may serve many layers."""


FEW = 1 << 16
"""Entries of q that are few."""


def rotate_reference(
    xs: list[Tensor],
    angles: list[Tensor],
    gains: list[Tensor | None],
    interleaved: bool,
    sections: list[int],
    prefixes: list[int],
) -> list[Tensor]:
    if not interleaved and not sections and few(xs, angles, gains, prefixes):
        return few_halves(xs, circle(angles[0]))
    first = circle(angles[0])
    circles = [first if angle is angles[0] else circle(angle) for angle in angles]
    return [rotate_one(*args, interleaved, sections) for args in zip(xs, circles, gains, prefixes, strict=True)]


def few(xs: list[Tensor], angles: list[Tensor], gains: list[Tensor | None], prefixes: list[int]) -> bool:
    """Whether nothing learns and so little turns, all of it by the same angles, that calls take longer than arithmetic."""
    x, angle = xs[0], angles[0]
    if torch.compiler.is_compiling() or x.device.type != "cpu" or not bare(*xs, angle) or x.numel() > FEW:
        return False
    if angles[-1] is not angle or 2 * angle.shape[-1] != x.shape[-1] or angle.shape[-3] != 1 or any(prefixes):
        return False
    if not len(xs) == len(angles) == len(gains) == len(prefixes):
        return False
    alike = all(y.dtype is x.dtype and y.shape[0] == x.shape[0] and y.shape[2:] == x.shape[2:] for y in xs[1:])
    return alike and all(gain is None for gain in gains) and not learning(*xs, angle)


def few_halves(xs: list[Tensor], point: Circle) -> list[Tensor]:
    """All of them together, in as few calls as there can be."""
    turned = whole_halves(torch.cat(xs, dim=1), *point.whole)
    return list(turned.split_with_sizes([x.shape[1] for x in xs], 1))


def whole_halves(x: Tensor, along: Tensor, across: Tensor) -> Tensor:
    """Half-split channels by both tensors of `Circle.spread`."""
    wide = x.to(torch.promote_types(x.dtype, along.dtype))
    return torch.addcmul(wide * along, wide.roll(x.shape[-1] // 2, -1), across).to(x.dtype)


def circle(angle: Tensor) -> Circle:
    """The circle of an angle, kept while the angle lives unless something learns, looks on, or can change it unseen."""
    compiled = torch.compiler.is_compiling() or angle.device.type != "cpu"
    if compiled or angle.requires_grad or angle.is_inference() or not bare(angle):
        return made(angle)
    version, found = KEPT.get(angle, (None, None))
    if found is None or version != angle._version:
        found = made(angle)
        KEPT[angle] = (angle._version, found)
    return found


def made(angle: Tensor) -> Circle:
    angle = widened(angle if angle.ndim == 4 else angle.unsqueeze(0))
    return Circle(angle.cos(), angle.sin())


def rotate_one(x: Tensor, point: Circle, gain: Tensor | None, prefix: int, interleaved: bool, sections: list[int]) -> Tensor:
    if sections and (interleaved or sum(sections) != point.cos.shape[-1] or min(sections) < 1):
        wanted = f"half-split sections must make {point.cos.shape[-1]} pairs"
        raise ValueError(f"{wanted}, got {sections}{' and interleaved=True' if interleaved else ''}")
    point = point.stretched(gain)
    heads, pairs_wide = point.cos.shape[1], 2 * point.cos.shape[-1]
    grouped = heads not in (1, x.shape[1])
    point = point.in_groups() if grouped else point
    turn = halves if not interleaved else complex_pairs if plain(x) else pairs

    def wide(x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, point.cos.dtype)
        moved, circles = x.to(dtype), point.to(dtype)
        if not sections:
            return turn(moved, circles, x.dtype)
        parts = zip(moved.split([2 * count for count in sections], -1), circles.split(sections), strict=True)
        return torch.cat([turn(*part, x.dtype) for part in parts], -1)

    return turn_part(x, prefix, heads if grouped else None, pairs_wide, wide)


def plain(x: Tensor) -> bool:
    """Whether this is eager PyTorch on a device with complex numbers."""
    return type(x) in (Tensor, torch.nn.Parameter) and x.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling()


def halves(x: Tensor, point: Circle, dtype: torch.dtype) -> Tensor:
    cos, sin, (a, b) = point.cos, point.sin, x.chunk(2, dim=-1)
    if bare(x, cos) and not learning(x, cos):
        return halves_at_once(a, b, cos, sin, torch.empty_like(x)).to(dtype)
    return torch.cat([torch.addcmul(a * cos, b, -sin).to(dtype), torch.addcmul(b * cos, a, sin).to(dtype)], dim=-1)


def halves_at_once(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
    """The same where nothing learns: each half is written where it stays."""
    first, second = out.chunk(2, dim=-1)
    torch.mul(a, cos, out=first).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=second).addcmul_(a, sin)
    return out


def pairs(x: Tensor, point: Circle, dtype: torch.dtype) -> Tensor:
    cos, sin, (a, b) = point.cos, point.sin, x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(dtype)


def complex_pairs(x: Tensor, point: Circle, dtype: torch.dtype) -> Tensor:
    x = x.unflatten(-1, (-1, 2))
    even = x.stride(-1) == 1 and not x.storage_offset() % 2 and not any(stride % 2 for stride in x.stride()[:-1])
    turned = torch.view_as_complex(x if even else x.clone(memory_format=torch.contiguous_format)) * point.number
    return torch.view_as_real(turned).flatten(-2).to(dtype)
