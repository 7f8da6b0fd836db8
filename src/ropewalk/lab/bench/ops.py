"""The ways to turn q and k that are measured: tables drawn at random, codes that hold them, formulas to judge them by."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.lab.bench import judge
from ropewalk.lab.bench.clock import device


class Op(NamedTuple):
    """A way to turn q and k: a table (h n ...) drawn for so many heads, tokens and channels, its code, its formula."""

    name: str
    draw: Callable[[int, int, int], Tensor]
    code: Callable[[int, Tensor], rw.Code]
    formula: judge.Formula
    everywhere: bool = False  # or else at the shape of images alone


def _angles(heads: int, tokens: int, depth: int) -> Tensor:
    return 10 * torch.randn(heads, tokens, depth // 2, device=device())


def _triplets(heads: int, tokens: int, depth: int) -> Tensor:
    return 10 * torch.randn(heads, tokens, depth // 3, 2, device=device())


def _matrices(heads: int, tokens: int, depth: int, *, block: int) -> Tensor:
    free = torch.randn(heads, tokens, depth // block, block, block, device=device(), dtype=torch.float64)
    return torch.linalg.matrix_exp(free - free.mT).float()


def _rotate(interleaved: bool) -> Op:
    def code(depth: int, table: Tensor) -> rw.Code:
        return rw.Rotation(head_dim=depth, q_angle=table, interleaved=interleaved)

    formula = functools.partial(judge.rotated, interleaved=interleaved)
    return Op(f"rotate, {'interleaved' if interleaved else 'half-split'}", _angles, code, formula, True)


def _turn(block: int) -> Op:
    def code(depth: int, table: Tensor) -> rw.Code:
        return rw.Turn(head_dim=depth, q_matrix=table)

    return Op(f"turn, blocks of {block}", functools.partial(_matrices, block=block), code, judge.turned)


def _sphere(depth: int, table: Tensor) -> rw.Code:
    return rw.Sphere(head_dim=depth, q_angle=table)


OPS = (_rotate(True), _rotate(False), Op("sphere", _triplets, _sphere, judge.on_sphere), *map(_turn, (3, 8, 64)))
