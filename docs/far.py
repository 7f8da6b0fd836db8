"""How exact RoPE is far from the beginning of a text, measured when the page is written."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

import ropewalk as rw
import tables

WIDTH, COUNT, APART = 128, 2048, 1000
PLACES = (4096, 32768, 131072, 1_000_000)


class Errors(NamedTuple):
    """The largest error of the angle between q and k, and the mean square error of scores."""

    angle: float
    score: float


def table() -> str:
    """Errors of the product in float32, and of what RoPE does."""
    head = ["up to place", "angle, product in float32", "angle, here", "scores, product in float32", "scores, here"]
    rows = []
    for last in PLACES:
        plain, here = measured(last, rounded=True), measured(last, rounded=False)
        rows.append((f"{last:,}", *(f"{x:.1e}" for x in (plain.angle, here.angle, plain.score, here.score))))
    return tables.table(head, rows)


def measured(last: int, *, rounded: bool) -> Errors:
    """Of random q in the second half of so many places and keys up to 1,000 places before them, base 10,000."""
    drawn = torch.Generator().manual_seed(0)
    places = torch.randint(last // 2, last, (COUNT,), generator=drawn)
    keys = places - torch.randint(0, APART, (COUNT,), generator=drawn)
    q, k = torch.randn(2, 1, 1, COUNT, WIDTH, generator=drawn, dtype=torch.float64).unbind()
    made = rw.create("rope", head_dim=WIDTH)
    exact = rw.create("rope", head_dim=WIDTH).double()(places, keys)
    code = _in_float32(made, places, keys) if rounded else made(places, keys)
    assert isinstance(code, rw.Rotation)
    assert isinstance(exact, rw.Rotation)
    off = _between(code) - _between(exact)
    off = off - 2 * math.pi * (off / (2 * math.pi)).round()
    wrong = _scores(code, q.float(), k.float()) - _scores(exact, q, k)
    return Errors(off.abs().max().item(), wrong.square().mean().sqrt().item())


def bfloat16() -> float:
    """What storing turned q and k in bfloat16 does to the same scores, in the mean square."""
    drawn = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, COUNT, WIDTH, generator=drawn, dtype=torch.float64).unbind()
    off = (q.bfloat16().double() * k.bfloat16().double() - q * k).sum(-1) / math.sqrt(WIDTH)
    return off.square().mean().sqrt().item()


def _in_float32(encoding: rw.Encoding, places: Tensor, keys: Tensor) -> rw.Rotation:
    """The code with the product of place and frequency in float32."""
    waves = encoding.get_buffer("frequency")
    q_angle, k_angle = ((p.float()[:, None] * waves)[None] for p in (places, keys))
    return rw.Rotation(head_dim=WIDTH, q_angle=q_angle, k_angle=k_angle, interleaved=False)


def _between(code: rw.Rotation) -> Tensor:
    assert code.k_angle is not None
    return code.q_angle.double() - code.k_angle.double()


def _scores(code: rw.Rotation, q: Tensor, k: Tensor) -> Tensor:
    q, k = code.qk(q, k)
    return (q.double() * k.double()).sum(-1) / math.sqrt(WIDTH)
