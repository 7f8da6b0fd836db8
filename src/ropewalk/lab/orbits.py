"""Where turns about different axes carry a point of the sphere, and how that looks from outside."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.ops.sphere import PLANES

STEPS = 48


def _direction(*channels: float) -> Tensor:
    return F.normalize(torch.tensor(channels, dtype=torch.float64, device="cpu"), dim=0)


# In channels a, b, c of a triplet: where paths begin, from where the sphere is seen, and what is right and up then.
START = _direction(0.55, -0.25, 0.8)
EYE = _direction(-1.0, -1.0, 0.9)
RIGHT = F.normalize(torch.linalg.cross(_direction(0.0, 0.0, 1.0), EYE), dim=0)
UP = torch.linalg.cross(EYE, RIGHT)


def orders(axes: int) -> tuple[list[int], list[int]]:
    """The order in which the axes act, and the reverse."""
    return list(range(axes)), list(reversed(range(axes)))


def path(angles: Tensor, order: Sequence[int]) -> list[Tensor]:
    """The arcs (steps, 3) on which a vector is carried by turns by these angles, one an axis, in this order."""
    arcs, here = [], START
    for axis in order:
        angle = torch.linspace(0, 1, STEPS, dtype=torch.float64) * angles[axis]
        arcs.append(turned(here, axis, angle))
        here = arcs[-1][-1]
    return arcs


def turned(point: Tensor, axis: int, angle: Tensor) -> Tensor:
    """The point (3) turned in the plane of an axis by each angle (n): (n, 3)."""
    first, second = PLANES[axis]
    points = point.repeat(len(angle), 1)
    points[:, first] = point[first] * angle.cos() - point[second] * angle.sin()
    points[:, second] = point[first] * angle.sin() + point[second] * angle.cos()
    return points


def seen(points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Points (…, 3) as they are seen: to the right, up, and towards the eye."""
    return points @ RIGHT, points @ UP, points @ EYE
