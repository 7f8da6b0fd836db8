"""How far channels turn across an image: the frequencies of any rotary encoding, read from its code or its generators."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ropewalk.code import Code, Rotation, Sphere, Turn
from ropewalk.encoding import Encoding
from ropewalk.lab.inspect.code_structure import ensure_on_cpu, find_channel_groups, find_rotary_part
from ropewalk.lab.inspect.figure_grid import compute_axis_endpoints
from ropewalk.theory import planes
from ropewalk.theory.commuting import turning as turned_part
from ropewalk.theory.commuting import turns


class FrequencySpectrum(NamedTuple):
    """Radians (h G F A) that each of the F waves of each of G groups turns across the image along each axis.

    If `combined`, a wave turns by their sum as the position moves along several axes: it is a wave vector. If not, the
    axes' turns do not commute: entry f along an axis is a frequency of that axis alone. `noun` is what a group is.
    """

    noun: str
    radians: Tensor
    combined: bool


def has_frequency_spectrum(encoding: Encoding, code: Code) -> bool:
    """Whether `compute_frequency_spectrum` supports the encoding."""
    turn = find_rotary_part(code)
    return isinstance(turn, Rotation | Sphere) or (isinstance(turn, Turn) and turns(encoding))


@torch.no_grad()
def compute_frequency_spectrum(encoding: Encoding, size: Sequence[int], *, layer: int = 0) -> FrequencySpectrum:
    """The spectrum on an image of so many patches."""
    encoding = ensure_on_cpu(encoding)
    ends = compute_axis_endpoints(encoding, size)
    code = encoding(ends.double())  # in float32, RoPE leaves whole turns out
    if not has_frequency_spectrum(encoding, code):
        raise ValueError(f"only encodings that rotate channels have frequencies, got {encoding.name!r}")
    code = code if encoding.layers is None else code[layer]
    turn, found = cast(Rotation | Sphere | Turn, find_rotary_part(code)), find_channel_groups(code)
    if isinstance(turn, Turn):
        combined, radians = _compute_block_spectrum(encoding, found.channels, (ends[1:] - ends[:1]).diagonal(), layer)
        return FrequencySpectrum(found.noun, radians, combined)
    away = (turn.q_angle[:, 1:] - turn.q_angle[:, :1]).to(ends.dtype)  # (h A P) or (h A T A)
    combined = isinstance(turn, Rotation)
    radians = away.movedim(1, -1) if combined else away.diagonal(dim1=1, dim2=3)
    return FrequencySpectrum(found.noun, radians.unsqueeze(2), combined or encoding.axes == 1)


def _compute_block_spectrum(
    encoding: Encoding, channels: list[tuple[int, ...]], extent: Tensor, layer: int
) -> tuple[bool, Tensor]:
    """Whether the axes' generators commute, and the spectrum of each block on an image of that extent."""
    source: Any = turned_part(encoding)
    generators = (source.generators() if encoding.layers is None else source.generators()[layer]).double()
    blocks = torch.stack([generators[..., c[0] : c[-1] + 1, c[0] : c[-1] + 1] for c in channels], dim=1)  # (h G A b b)
    blocks = blocks * extent.double()[:, None, None]
    combined = all(source.traits.relative)
    return combined, planes(blocks).waves if combined else _compute_separate_frequencies(blocks)


def _compute_separate_frequencies(blocks: Tensor) -> Tensor:
    """Frequencies (… F A) of each of the skew-symmetric matrices (… A b b) alone, the fastest first."""
    values = torch.linalg.eigvalsh(1j * blocks).flip(-1)
    return values[..., : blocks.shape[-1] // 2].mT
