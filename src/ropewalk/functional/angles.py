"""Rotation by cosines and sines, declared to PyTorch as `ropewalk::rotate_by`: the formula and the kernel of `ops.rotate`.

The formula takes cosines and sines as they are. The kernel wants angles and gains: the angle and the length of the vector
(cos, sin), which is 1 but for rounding, or for what YaRN folds into it.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk import ops
from ropewalk.ops.fused import fits, learning
from ropewalk.ops.layout import widened
from ropewalk.ops.rotate.reference import Circle, rotate_one

torch.library.define(
    "ropewalk::rotate_by",
    "(Tensor[] xs, Tensor cos, Tensor sin, bool interleaved, int[] sections, SymInt prefix) -> Tensor[]",
)


def turn(xs: list[Tensor], cos: Tensor, sin: Tensor, interleaved: bool, sections: list[int], prefix: int) -> list[Tensor]:
    """Turn each x (B H N D) by the same tables (B h n P), h dividing H and N = prefix + n."""
    if torch.compiler.is_compiling():
        return torch.ops.ropewalk.rotate_by(xs, cos, sin, interleaved, sections, prefix)
    return _turn(xs, cos, sin, interleaved, sections, prefix)


def turn_(xs: list[Tensor], cos: Tensor, sin: Tensor, interleaved: bool, sections: list[int], prefix: int) -> None:
    """As `turn`, where xs lie, for inference."""
    if learning(*xs, cos, sin):
        raise RuntimeError("q and k cannot be turned in place where gradients are asked for: use torch.no_grad()")
    if fits(xs, [cos, sin]):
        angle, gain = polar(widened(cos), widened(sin))
        layout: dict[str, Any] = {"interleaved": interleaved, "sections": sections}
        ops.rotate_(xs, *_each(xs, angle, gain), **layout, prefixes=[prefix] * len(xs))
        return
    for x, y in zip(xs, turn(xs, cos, sin, interleaved, sections, prefix), strict=True):
        x.copy_(y)


def _turn(xs: list[Tensor], cos: Tensor, sin: Tensor, interleaved: bool, sections: list[int], prefix: int) -> list[Tensor]:
    way = by_angles if fits(xs, [cos, sin]) else as_given
    return way(xs, cos, sin, interleaved, sections, prefix)


def as_given(
    xs: list[Tensor], cos: Tensor, sin: Tensor, interleaved: bool, sections: list[int], prefix: int
) -> list[Tensor]:
    """With the formula: no rounding but its own."""
    cos, sin = widened(cos), widened(sin)
    if learning(cos, sin):
        cos, sin = torch.stack([cos, sin]).unbind()  # either both learn or none, which is what the formula knows
    return [rotate_one(x, Circle(cos, sin), None, prefix, interleaved, sections) for x in xs]


def by_angles(
    xs: list[Tensor], cos: Tensor, sin: Tensor, interleaved: bool, sections: list[int], prefix: int
) -> list[Tensor]:
    """With the op that has a kernel, which knows the gradients of angles; those of lengths are added here."""
    angle, gain = polar(widened(cos), widened(sin))
    angles, gains = _each(xs, angle, gain.detach())
    layout: dict[str, Any] = {"interleaved": interleaved, "sections": sections}
    outs = ops.rotate(xs, angles, gains, **layout, prefixes=[prefix] * len(xs))
    return [Length.apply(y, gain, interleaved, sections, prefix) for y in outs] if learning(gain) else outs


def polar(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Angles and lengths. Where both cos and sin are 0 there is no angle, and nothing learns."""
    if not learning(cos, sin):
        return torch.atan2(sin, cos), torch.hypot(cos, sin)
    none = (cos == 0) & (sin == 0)
    cos = torch.where(none, 1.0, cos)
    return torch.atan2(sin, cos), torch.where(none, 0.0, torch.hypot(cos, sin))


def _each(xs: list[Tensor], angle: Tensor, gain: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [angle] * len(xs), [gain] * len(xs)


class Length(torch.autograd.Function):
    """The identity of y = g R x; its backward gives the gain g (B h n P) its gradient, dL/dg = dL/dy · y / g."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, gain: Tensor, interleaved: bool, sections: list[int], prefix: int) -> Tensor:
        ctx.save_for_backward(y, gain)
        ctx.options = interleaved, sections, prefix
        return y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (y, gain), (interleaved, sections, prefix) = ctx.saved_tensors, ctx.options
        pairs, part = gain.shape[-1], (slice(None), slice(None), slice(prefix, None), slice(2 * gain.shape[-1]))
        product = dy[part].to(gain.dtype) * y[part]
        if interleaved:
            product = product.unflatten(-1, (pairs, 2)).sum(-1)
        else:
            parts = product.split([2 * count for count in sections or [pairs]], -1)
            product = torch.cat([part.unflatten(-1, (2, -1)).sum(-2) for part in parts], -1)
        product = product.unflatten(1, (gain.shape[1], -1)).sum(2)
        return (
            dy,
            torch.where(gain == 0, 0.0, product / gain),
            None,
            None,
            None,
        )  # autograd sums over what gains broadcast to


torch.library.impl("ropewalk::rotate_by", "CompositeImplicitAutograd", _turn)
torch.library.impl("ropewalk::rotate_by", "FuncTorchBatched", as_given)
