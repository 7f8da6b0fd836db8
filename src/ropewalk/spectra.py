"""Frequency laws: how fast each channel turns, and in which direction. Pure functions, float64 on the CPU.

A frequency is the angle in radians for one unit of position. A wave vector has one frequency an axis: the channel turns by
their scalar product with the position, fastest along the vector's direction.
"""

import math

import torch
from torch import Tensor

from ropewalk.arguments import (
    floating,
    instance_of,
    integer,
    integers,
    not_negative,
    number,
    positive_number,
    same_device,
    tensor,
)

MOST_AXES = 1024


def geometric(count: int, base: float, over: float | None = None) -> Tensor:
    """base^(-j / over) for j = 0, …, count - 1: evenly spaced in the logarithm, from 1 down. `over` defaults to count.

    RoPE: count = d/2, base 10,000. Axial RoPE of Heo et al.: count = d/4, base 100.
    van de Geijn et al. write 100^(-2j/D) with fewer than D/2 groups: over = D/2.
    """
    count = integer("count", count, least=0)
    over = max(count, 1) if over is None else positive_number("over", over)
    return positive_number("base", base) ** (-torch.arange(count, dtype=torch.float64, device="cpu") / over)


def uniform(count: int, frequency: float = 1.0) -> Tensor:
    """One frequency for all. With positions in [-pi, pi], 1 makes one turn across the image."""
    return torch.full((integer("count", count, least=0),), number("frequency", frequency), dtype=torch.float64, device="cpu")


def linear(count: int, fastest: float = 1.0, slowest: float = 0.0) -> Tensor:
    """Evenly spaced frequencies from the fastest to the slowest, both included."""
    first, last = number("fastest", fastest), number("slowest", slowest)
    return torch.linspace(first, last, integer("count", count, least=0), dtype=torch.float64, device="cpu")


def first_quadrant(*shape: int, generator: torch.Generator | None = None) -> Tensor:
    """Frequencies from U(0, 1): wave vectors that all point into the first quadrant (van de Geijn et al.)."""
    shape = integers("shape", shape, least=0)
    _check_generator(generator)
    return torch.rand(shape, dtype=torch.float64, device="cpu", generator=generator)


def random_frames(
    lead: tuple[int, ...], count: int, axes: int, base: float = 10.0, generator: torch.Generator | None = None
) -> Tensor:
    """Wave vectors (*lead, count, axes) on the axes of a random frame, one frame for each entry of `lead` (Heo et al.).

    The count is dealt out over the frame's axes in runs, each a geometric law of its own. With two axes the frame is a
    rotation by an angle from U(0, 2 pi); with more, a rotation drawn uniformly.
    """
    _check_generator(generator)
    lead, axes = integers("lead", lead, least=0), integer("axes", axes, least=1, most=MOST_AXES)
    count, base = integer("count", count, least=0), positive_number("base", base)
    frame = _frames(lead, axes, generator)  # (*lead, axes, axes): row a is the direction of run a
    runs = [len(run) for run in torch.arange(count, device="cpu").tensor_split(axes)]
    waves = [geometric(n, base)[:, None] * frame[..., a : a + 1, :] for a, n in enumerate(runs)]
    return torch.cat(waves, dim=-2)


def golden_directions(count: int, axes: int) -> Tensor:
    """Unit vectors (count, axes) whose first ones always cover all directions evenly (Xiong).

    Two axes: at the angle n pi/phi from the columns, so that any run is spread out, opposite ones counted as one. More:
    points of the R-sequence, whose step has the coordinates 1/g, 1/g^2, … with g^(axes + 1) = g + 1, taken from the cube
    to the sphere by the normal distribution's quantiles. This leaves smaller holes than chance does, but may bring two
    directions close.
    """
    count = integer("count", count, least=0)
    if integer("axes", axes, least=1, most=MOST_AXES) <= 2:
        turn = torch.arange(count, dtype=torch.float64, device="cpu") * (math.pi * (math.sqrt(5) - 1) / 2)
        return torch.stack([turn.sin(), turn.cos()], -1) if axes == 2 else torch.ones_like(turn).unsqueeze(-1)
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (axes + 1))
    step = ratio ** -torch.arange(1, axes + 1, dtype=torch.float64, device="cpu")
    cube = torch.arange(1, count + 1, dtype=torch.float64, device="cpu")[:, None] * step % 1.0
    return torch.nn.functional.normalize(torch.erfinv(2 * cube - 1), dim=-1)


def _check_generator(generator: torch.Generator | None) -> None:
    if generator is not None:
        instance_of("generator", generator, torch.Generator)


def _frames(lead: tuple[int, ...], axes: int, generator: torch.Generator | None) -> Tensor:
    if axes == 2:
        turn = 2 * math.pi * torch.rand(lead, dtype=torch.float64, device="cpu", generator=generator)
        cos, sin = turn.cos(), turn.sin()
        return torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)
    draw = torch.randn((*lead, axes, axes), dtype=torch.float64, device="cpu", generator=generator)
    frame, upper = torch.linalg.qr(draw)
    frame = frame * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    if axes > 1:
        frame[..., -1] *= torch.linalg.det(frame).sign().unsqueeze(-1)
    return frame


def span(waves: Tensor, positions: Tensor) -> Tensor:
    """Radians that each wave vector (..., axes) turns across an image whose tokens stand at `positions` (N, axes).

    Of the image it takes the extent along each axis, last minus first token: |(w_1 extent_1, w_2 extent_2, …)|. For
    a wave along an axis that is its turn from one side of the image to the other.
    """
    same_device(waves=floating("waves", waves), positions=tensor("positions", positions))
    if floating("positions", positions).ndim != 2 or not len(positions) or positions.shape[-1:] != waves.shape[-1:]:
        shapes = f"{tuple(waves.shape)} and {tuple(positions.shape)}"
        raise ValueError(f"waves must be (..., axes) and positions (N, axes) with the same axes, got {shapes}")
    extent = positions.amax(-2) - positions.amin(-2)
    return torch.linalg.vector_norm(waves * extent, dim=-1)


def with_span(waves: Tensor, positions: Tensor, radians: float) -> Tensor:
    """The wave vectors, all stretched by one factor such that the fastest turns `radians` across the image."""
    radians = not_negative("radians", radians)
    spans = span(waves, positions)
    fastest = spans.max() if spans.numel() else spans.new_zeros(())
    if not fastest > 0:
        raise ValueError("frequencies or an image without extent turn by nothing: no factor gives them a span")
    return waves * (radians / fastest)
