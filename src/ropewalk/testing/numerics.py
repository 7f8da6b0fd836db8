"""Checks of its arithmetic: how exact angles are far out, and that every input gets its gradient."""

import copy

import torch
from torch import Tensor

from ropewalk.code import ContentBias, Offset
from ropewalk.encoding import Encoding
from ropewalk.factory import Chained
from ropewalk.testing.case import Logits, exponential, generators, points, ready, single, turns

ULP = 2.0**-23


def check_precision(encoding: Encoding) -> None:
    """Up to its reach, float32 is off by at most 2^-23 of the sum over axes of the angles turned.

    Rotations are compared with exponentials of their generators, and may be off by their `rounding` times that. Offsets
    and biases are compared with their own float64 copy, which tells rounding, not a wrong formula.
    """
    narrow, reach = ready(encoding, torch.float32), encoding.traits.reach
    wide = copy.deepcopy(narrow).double()
    for far, seed in ((0.999, 0), (0.01, 1)):
        p = (far * reach * _directions(encoding, seed)).float()
        for mine, exact, bound in _compare(narrow, wide, p):
            error = (mine.double() - exact).abs()
            worst = (error / bound).max().item()
            assert worst <= 1, f"at {p.abs().max():.6g} the error is {worst:.3g} times the bound"


def _directions(encoding: Encoding, seed: int) -> Tensor:
    """Points of the cube from -1 to 1, or from 0 where negative positions are none."""
    cube = torch.rand(8, encoding.axes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 2 * cube - 1 if encoding.traits.signed else cube


def _compare(narrow: Encoding, wide: Encoding, p: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Pairs of a float32 and a float64 result, with the bound on their difference."""
    if isinstance(narrow, Chained) and isinstance(wide, Chained):
        return [row for pair in zip(narrow.members, wide.members, strict=True) for row in _compare(*pair, p)]  # type: ignore[arg-type]
    mine, exact = narrow(p), wide(p.double())
    if mine.rotary:
        matrices = exponential(wide, p.double())
        size = matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1)
        bound = narrow.traits.rounding * ULP * (1 + _turned(wide, p.double())).unsqueeze(-1)
        return [(turns(narrow, p), matrices, size * bound)]
    if isinstance(mine, Offset) and isinstance(exact, Offset):
        ulps = 8 if narrow.traits.learned else 1
        return [(mine.offset, exact.offset, ulps * ULP * (1 + p.double().abs().sum(-1, keepdim=True)))]
    if mine.biased:
        q, k = (torch.zeros(1, heads, len(p), narrow.head_dim) for heads in (narrow.heads, narrow.own_heads))
        rows = [(m.scores(q, k), e.scores(q, k)) for m, e in zip(single(mine), single(exact), strict=True)]
        far = 1 + (p.double().abs().amax() if isinstance(mine, ContentBias) else 0)
        return [(m, e, 4 * ULP * far * (1 + e.abs())) for m, e in rows if m is not None and e is not None]
    return []


def _turned(encoding: Encoding, p: Tensor) -> Tensor:
    """How far each channel's block turns at p, at most: ([L] h N D), from the generators."""
    moved = generators(encoding).abs()  # ([L] h A D D)
    rows = torch.einsum("na,...aij->...ni", p.abs(), moved)
    joined = torch.matrix_power(torch.eye(encoding.head_dim, dtype=p.dtype) + moved.sum(-3).gt(0), 64).gt(0)
    return (joined.unsqueeze(-3) * rows.unsqueeze(-2)).amax(-1)


def check_distinct(encoding: Encoding) -> None:
    """In a bfloat16 model, a key one step away from the query looks different from one in its place, up to its reach."""
    instance, reach = ready(encoding, torch.bfloat16), encoding.traits.reach
    logits = Logits(instance, torch.bfloat16)
    for axis in range(encoding.axes):
        step = _step(encoding, axis)
        starts = [start for start in (0.0, 1.0, 100.0, 4096.0, 65536.0, reach - step) if 0 <= start <= reach - step]
        starts += [-start - step for start in starts] if encoding.traits.signed else []
        for start in starts:
            behind = torch.full((1, encoding.axes), start)
            here = behind.clone()
            here[0, axis] += step
            token = logits.tokens(1)
            changed = logits(token, token, here) != logits(token, token, here, behind)
            assert changed.any(), f"positions {start:.9g} and {start + step:.9g} on axis {axis} look alike"


def _step(encoding: Encoding, axis: int) -> float:
    """One, or what turns the axis's fastest channel by a quarter: bfloat16 tells no smaller turns apart."""
    if not encoding.traits.rotary:
        return 1.0
    return max(1.0, 0.25 / generators(ready(encoding))[..., axis, :, :].abs().amax().item())


def check_gradients(encoding: Encoding) -> None:
    """Every parameter gets a finite gradient, at zero too, where tokens coincide too, and not zero in any layer."""
    for zero in (False, True):
        instance = ready(encoding)
        if zero:
            for parameter in instance.parameters():
                parameter.data.zero_()
        p = points(encoding, 6)
        p[1] = p[0]
        p.requires_grad_()
        logits = Logits(instance)
        loss = logits(logits.tokens(7), logits.tokens(8, seed=4), p, None, (1, 2)).square().sum()
        if loss.requires_grad:
            loss.backward()
        assert p.grad is None or p.grad.isfinite().all(), "the gradient of a position is not finite"
        for name, parameter in instance.named_parameters():
            grad = parameter.grad
            assert grad is not None, f"{name} gets no gradient"
            assert grad.isfinite().all(), f"the gradient of {name} is not finite{' at zero' if zero else ''}"
            layered = encoding.layers is not None and parameter.shape[0] == encoding.layers
            for slice_ in grad if layered else [grad]:
                assert zero or slice_.any(), f"the gradient of {name} is zero{' in some layer' if layered else ''}"


def check_gradcheck(encoding: Encoding) -> None:
    """In float64, gradients of tokens, positions and parameters are those of finite differences."""
    logits = Logits(ready(encoding))
    names = [f"encoding.{name}" for name, _ in logits.encoding.named_parameters()]
    inputs = [logits.tokens(4), logits.tokens(3, seed=4), points(encoding, 4), points(encoding, 3, seed=8)]
    parameters = [parameter.detach().clone() for parameter in logits.encoding.parameters()]

    def function(x: Tensor, y: Tensor, p: Tensor, kp: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(logits, dict(zip(names, values, strict=True)), (x, y, p, kp))

    leaves = [tensor.requires_grad_() for tensor in (*inputs, *parameters)]
    try:
        torch.autograd.gradcheck(function, leaves, fast_mode=True)
    except RuntimeError as error:
        raise AssertionError(f"gradients are not those of finite differences: {error}") from error
