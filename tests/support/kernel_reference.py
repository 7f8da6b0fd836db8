"""What the tests of kernels share: inputs, the matrix that each token meets in float64, error bounds, and which ops ran.

Nothing here comes from ropewalk but the kernels, which run on a GPU where there is one and are interpreted elsewhere.
"""

import importlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.float64_reference import normal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF_ULP = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}


def kernel(op: str):
    return importlib.import_module(f"ropewalk.ops.{op}.kernel")


def in_programs(monkeypatch, op: str, programs: int) -> None:
    """Let the items of a table's row be split only to get this many programs."""
    module = kernel("rotate" if op == "rotate" else "turn")
    settings = module.settings
    monkeypatch.setattr(module, "settings", lambda *given: settings(*given)._replace(programs=programs))
    monkeypatch.setattr(importlib.import_module("ropewalk.ops.launch"), "PLANS", {})


@dataclass(frozen=True)
class Side:
    """q or k: its heads, and a table of `rows` heads for the `tokens` after the prefix; `own`: one for each sample."""

    heads: int
    rows: int
    tokens: int
    prefix: int = 0
    own: bool = False


@dataclass(frozen=True)
class Kind:
    """An op: how its tables are drawn, how its kernels are called, and the matrix that each token meets."""

    op: str
    size: int
    axes: int = 1
    interleaved: bool = True
    gained: bool = False
    sections: tuple[int, ...] = ()

    def table(self, *lead: int, groups: int, seed: int = 0) -> Tensor:
        if self.op == "rotate":
            return 3 * normal(*lead, groups, seed=seed)
        if self.op == "sphere":
            return 3 * normal(*lead, groups, self.axes, seed=seed)
        free = normal(*lead, groups, self.size, self.size, seed=seed)
        return torch.linalg.matrix_exp(free - free.mT)

    def forward(self, xs, tables, gains, prefixes):
        if self.op == "rotate":
            return kernel("rotate").rotate_fused(xs, tables, gains, self.interleaved, self.sections, prefixes)
        return kernel("turn").turn_fused(xs, self.matrices(tables), prefixes)

    def back(self, dys, xs, ys, tables, gains, prefixes):
        if self.op == "rotate":
            return kernel("rotate").rotate_back(dys, ys, tables, gains, self.interleaved, self.sections, prefixes)
        found = kernel("turn").turn_back(dys, xs if ys else [], self.matrices(tables), prefixes)
        if self.op == "turn":
            return found
        dxs, gradients = found[: len(dys)], found[len(dys) :]
        return dxs + [kernel("sphere").sphere_back(*pair) for pair in zip(gradients, tables, strict=False)]

    def matrices(self, tables):
        return [kernel("sphere").sphere_fused(table) for table in tables] if self.op == "sphere" else tables

    def matrix(self, table: Tensor, gain: Tensor | None, width: int) -> Tensor:
        """([B] h n D D), written entry by entry."""
        groups = torch.arange(table.shape[-1 if self.op == "rotate" else -2 if self.op == "sphere" else -3])
        if self.op == "turn":
            whole = still(table.shape[:-3], width)
            for i in range(self.size):
                for j in range(self.size):
                    whole[..., groups * self.size + i, groups * self.size + j] = table[..., i, j]
            return whole
        if self.op == "rotate":
            first, step = (2 * groups, 1) if self.interleaved else (groups, len(groups))
            if self.sections:
                counts = torch.tensor(self.sections)
                step = counts.repeat_interleave(counts)
                first = groups + (counts.cumsum(0) - counts).repeat_interleave(counts)
            return plane(table, gain, first, first + step, width)
        whole = still(table.shape[:-2], width)
        for axis, (i, j) in enumerate(((0, 2), (1, 2), (0, 1))[: self.axes]):
            whole = plane(table[..., axis], None, 3 * groups + i, 3 * groups + j, width) @ whole
        return whole


def still(lead, width: int) -> Tensor:
    return torch.eye(width, dtype=torch.float64).repeat(*lead, 1, 1)


def plane(angle: Tensor, gain: Tensor | None, i: Tensor, j: Tensor, width: int) -> Tensor:
    """Rotations by the angles in the planes of channels i and j."""
    stretch = torch.ones_like(angle) if gain is None else gain
    whole = still(torch.broadcast_shapes(angle.shape, stretch.shape)[:-1], width)
    whole[..., i, i] = whole[..., j, j] = angle.cos() * stretch
    whole[..., i, j], whole[..., j, i] = -angle.sin() * stretch, angle.sin() * stretch
    return whole


def turned(x: Tensor, matrix: Tensor, prefix: int) -> Tensor:
    each = matrix.repeat_interleave(x.shape[1] // matrix.shape[-4], -4)
    return torch.cat([x[:, :, :prefix], (each @ x[:, :, prefix:, :, None]).squeeze(-1)], 2)


def within(actual: Tensor, expected: Tensor, bound: Tensor, what: str) -> None:
    assert actual.shape == expected.shape, f"{what}: {tuple(actual.shape)}, wanted {tuple(expected.shape)}"
    error = (actual.detach().cpu().double() - expected).abs()
    assert (error <= bound).all(), (
        f"{what}: off by {error.max():.3g}, {(error / bound).max():.3g} times what rounding allows"
    )


def same(tensor: Tensor) -> Tensor:
    return tensor


def drawn(
    kind: Kind, batch: int, side: Side, i: int, width: int, groups: int | None, dtype: torch.dtype, arrange, tabled, scale
):
    """x, dy, table and gain of side i, as the kernel gets them."""
    shape = batch, side.heads, side.prefix + side.tokens, width
    x, dy = (arrange(normal(*shape, seed=10 * i + j, dtype=dtype).to(DEVICE)) for j in (1, 2))
    lead = (*([batch] if side.own else []), side.rows, side.tokens)
    table = scale * kind.table(*lead, groups=width // kind.size if groups is None else groups, seed=10 * i + 3)
    table = tabled(table.to(DEVICE, torch.float32))
    return x, dy, table, tabled(1 + 0.5 * table.sin()) if kind.gained else None


def check(
    kind: Kind, batch: int, sides, *, width=12, groups=None, dtype=torch.float32,
    arrange=same, tabled=same, scale=1.0, learned=True,
):  # fmt: skip
    """Outputs and gradients of the kernels are those of float64, but for one rounding; what they read stays as it was.

    `arrange` gives x and dy other strides, `tabled` tables, and `scale` changes angles. The result: all that kernels gave.
    """
    given = [drawn(kind, batch, side, i, width, groups, dtype, arrange, tabled, scale) for i, side in enumerate(sides)]
    xs, dys, tables, gains = (list(each) for each in zip(*given, strict=True))
    prefixes, before = [side.prefix for side in sides], [tensor.clone() for tensor in (*xs, *dys, *tables)]
    ys = kind.forward(xs, tables, gains, prefixes)
    found = kind.back(dys, xs, ys if learned else [], tables, gains, prefixes)
    assert [len(ys), len(found)] == [len(sides), len(sides) * (1 + learned)]
    assert all(torch.equal(*pair) for pair in zip((*xs, *dys, *tables), before, strict=True)), (
        "the kernel wrote to its input"
    )
    for i, side in enumerate(sides):
        compare(kind, side, given[i], ys[i], found[i], found[len(sides) + i] if learned else None)
    return [*ys, *found]


def compare(kind: Kind, side: Side, given, y: Tensor, dx: Tensor, dtable: Tensor | None) -> None:
    x, dy, table, gain = (None if t is None else t.cpu().double().contiguous().requires_grad_() for t in given)
    wanted = turned(x, kind.matrix(table, gain, x.shape[-1]), side.prefix)
    wanted_dx, wanted_dtable = torch.autograd.grad(wanted, [x, table], dy.detach(), materialize_grads=True)
    half, lost = rounding(kind, y.dtype)
    for name, actual, expected, source in (("y", y, wanted, x), ("dx", dx, wanted_dx, dy)):
        assert actual.dtype == given[0].dtype
        bound = half * expected.abs() + lost * source.norm(dim=-1, keepdim=True) + 2**-25
        within(actual, expected.detach(), bound.detach(), name)
    if dtable is not None:
        bound = (2 * half + lost) * served(wanted.detach(), dy.detach(), side) + 1e-30
        within(dtable, wanted_dtable, bound.reshape(*bound.shape, *[1] * (table.ndim - bound.ndim)), "gradient of table")


def rounding(kind: Kind, dtype: torch.dtype) -> tuple[float, float]:
    """Half a unit in the last place, and what may be lost before the result is rounded, relative to the length of x.

    On tensor cores a matrix is the sum of two numbers of 16 bits: 16 bits of bfloat16, and of float16 down to 2^-25.
    Triton's interpreter rounds bfloat16 towards zero.
    """
    half = HALF_ULP[dtype] * (2 if dtype is torch.bfloat16 and DEVICE == "cpu" else 1)
    return half, 2**-16 if kind.op != "rotate" and dtype is torch.bfloat16 else 2**-21


def served(y: Tensor, dy: Tensor, side: Side) -> Tensor:
    """Sums of |y| |dy| over what each entry of a table serves: ([B] h n)."""
    each = (y.norm(dim=-1) * dy.norm(dim=-1))[:, :, side.prefix :].unflatten(1, (side.rows, -1)).sum(2)
    return each if side.own else each.sum(0)


class Calls(TorchDispatchMode):
    """The names of the ops of ropewalk that were run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "ropewalk":
            self.names.append(function.__name__.removesuffix(".default"))
        return function(*args, **(kwargs or {}))
