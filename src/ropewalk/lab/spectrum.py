"""How far channels turn across an image: the frequencies of any rotary encoding, read from its code or its generators."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ropewalk.code import Code, Rotation, Sphere, Turn
from ropewalk.encoding import Encoding
from ropewalk.lab.anatomy import groups, on_cpu, turning
from ropewalk.lab.places import corners
from ropewalk.theory import planes
from ropewalk.theory.commuting import turning as turned_part
from ropewalk.theory.commuting import turns


class Spectrum(NamedTuple):
    """Radians (h G F A) that each of the F waves of each of G groups turns across the image along each axis.

    If `combined`, a wave turns by their sum as the position moves along several axes: it is a wave vector. If not, the
    axes' turns do not commute: entry f along an axis is a frequency of that axis alone. `noun` is what a group is.
    """

    noun: str
    radians: Tensor
    combined: bool


def has_spectrum(encoding: Encoding, code: Code) -> bool:
    """Whether `spectrum` has an answer."""
    turn = turning(code)
    return isinstance(turn, Rotation | Sphere) or (isinstance(turn, Turn) and turns(encoding))


@torch.no_grad()
def spectrum(encoding: Encoding, size: Sequence[int], *, layer: int = 0) -> Spectrum:
    """The spectrum on an image of so many patches."""
    encoding = on_cpu(encoding)
    ends = corners(encoding, size)
    code = encoding(ends)
    if not has_spectrum(encoding, code):
        raise ValueError(f"only encodings that turn channels have frequencies, got {encoding!r}")
    code = code if encoding.layers is None else code[layer]
    turn, found = cast(Rotation | Sphere | Turn, turning(code)), groups(code)
    if isinstance(turn, Turn):
        combined, radians = _of_blocks(encoding, found.channels, (ends[1:] - ends[:1]).diagonal(), layer)
        return Spectrum(found.noun, radians, combined)
    away = turn.q_angle[:, 1:] - turn.q_angle[:, :1]  # (h A P) or (h A T A)
    combined = isinstance(turn, Rotation)
    radians = away.movedim(1, -1) if combined else away.diagonal(dim1=1, dim2=3)
    return Spectrum(found.noun, radians.unsqueeze(2), combined or encoding.axes == 1)


def _of_blocks(encoding: Encoding, channels: list[tuple[int, ...]], extent: Tensor, layer: int) -> tuple[bool, Tensor]:
    """Whether the axes' generators commute, and the spectrum of each block on an image of that extent."""
    source: Any = turned_part(encoding)
    generators = (source.generators() if encoding.layers is None else source.generators()[layer]).double()
    blocks = torch.stack([generators[..., c[0] : c[-1] + 1, c[0] : c[-1] + 1] for c in channels], dim=1)  # (h G A b b)
    blocks = blocks * extent.double()[:, None, None]
    combined = all(source.traits.relative)
    return combined, planes(blocks).waves if combined else _separate(blocks)


def _separate(blocks: Tensor) -> Tensor:
    """Frequencies (… F A) of each of the skew-symmetric matrices (… A b b) alone, the fastest first."""
    values = torch.linalg.eigvalsh(1j * blocks).flip(-1)
    return values[..., : blocks.shape[-1] // 2].mT
