"""Positions as plain tensors: builders, the literature's coordinate conventions, and augmentation for training.

Integers (N,) or (B, N) are places in a sequence; floats (N, axes) or (B, N, axes) are points, axes in (row, column) or
(frame, row, column) order, tokens in row-major order. Whoever holds such a tensor holds all that an encoding looks at.
"""

import math
import warnings
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ropewalk.arguments import (
    describe,
    float_dtype,
    instance_of,
    integer,
    integers,
    number,
    one_of,
    positives,
    same_device,
    tensor,
)
from ropewalk.validation import describe_cast

LARGEST = 1e6
"""The most that augmentation moves or stretches: no encoding is exact farther away."""

CONVENTIONS = {
    "index": "patch index from 0 (Heo et al., language models)",
    "centre": "patch centres (i + 0.5) / P in [0, 1] (ComRoPE)",
    "separate": "patch centres in [-1, 1], each axis by its own side (DINOv3)",
    "longer": "patch centres in [-1, 1], every axis by the longer side (DINOv3, max)",
    "shorter": "patch centres in [-1, 1], every axis by the shorter side (DINOv3, min)",
    "pi": "from -pi to pi, end points included (van de Geijn et al.)",
    "unit": "from 0 to 1, end points included (LieRE)",
    "area": "from -s to s, end points included, s the side over the geometric mean of the sides (golden-gate RoPE)",
}
"""The conventions by name. Each is defined at the reference size; `grid` says what happens at others."""

RESOLUTIONS = ("extrapolate", "rescale")
"""What happens to positions on a grid of another size than the reference: see `grid`."""

Resolution = str | Sequence[str]
"""One of RESOLUTIONS for all axes, or one for each."""


def sequence(n: int, start: int = 0, *, device: torch.device | str | None = None) -> Tensor:
    """Places start, …, start + n - 1, as integers (n,)."""
    start = integer("start", start)
    return torch.arange(start, start + integer("n", n, least=0), device=device)


def packed(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Tensor:
    """Places of several sequences that lie one after another in a row, each counted from 0: integers (sum(lengths),)."""
    rows = [torch.arange(length, device=device) for length in integers("lengths", lengths, least=0)]
    return torch.cat([torch.arange(0, device=device), *rows])


def segments(lengths: Sequence[int], *, device: torch.device | str | None = None) -> Tensor:
    """Which sequence each token of `packed(lengths)` belongs to; `s[:, None] == s` is the attention mask."""
    lengths = integers("lengths", lengths, least=0)
    counts = torch.tensor(lengths, dtype=torch.long, device=device)
    return torch.arange(len(counts), device=device).repeat_interleave(counts, output_size=sum(lengths))


def padded(real: Tensor) -> Tensor:
    """Places (B, N) of texts that are padded, at the front or anywhere: real tokens are counted from 0, padding stands at 0.

    `real` (B, N) is True where a token is one (transformers' `attention_mask`); `visible(places, owner=real)` is the mask.
    """
    if tensor("real", real).ndim != 2 or real.is_floating_point() or real.is_complex():
        raise ValueError(f"real must be boolean or of zeros and ones, (B, N), got {real.dtype} {tuple(real.shape)}")
    return (real.bool().long().cumsum(-1) - 1).clamp(min=0)


def visible(
    places: Tensor,
    key_places: Tensor | None = None,
    *,
    window: int | None = None,
    owner: Tensor | None = None,
    key_owner: Tensor | None = None,
) -> Tensor:
    """Which keys a query may look at: those at its place or before, as a mask (N, M), or (B, 1, N, M) for places (B, N).

    The places decide, not the order in a cache, which may be any. The mask is for `attend` without `causal=True`.

    window     How many places back a query sees, its own counted.
    owner      Whose each query is, shaped like the places or as (N,): it sees keys of the same owner alone. `segments` of
               packed sequences, or True and False for tokens and padding.
    key_owner  The same of the keys, where they are others.
    """
    keys = places if key_places is None else key_places
    owners = owner if key_places is None and key_owner is None else key_owner
    for name, each in (("places", places), ("key_places", keys)):
        whole = not (tensor(name, each).is_floating_point() or each.is_complex() or each.dtype is torch.bool)
        if not whole or each.ndim not in (1, 2):
            raise ValueError(f"{name} must be integers, (N,) or (B, N), got {describe(each)}")
    if places.ndim == keys.ndim == 2 and len(places) != len(keys) and 1 not in (len(places), len(keys)):
        raise ValueError(f"places and key_places must have one batch, got {describe(places)} and {describe(keys)}")
    if (owner is None) != (owners is None):
        raise ValueError("owner and key_owner must be given together if keys differ from queries, got one of them")
    if owner is not None and owners is not None:
        _check_owner("owner", owner, places)
        _check_owner("key_owner", owners, keys)
    same_device(places=places, key_places=keys, owner=owner, key_owner=owners)
    back = places.unsqueeze(-1) - keys.unsqueeze(-2)
    seen = (back >= 0) if window is None else (back >= 0) & (back < integer("window", window, least=1))
    if owner is not None and owners is not None:
        seen = seen & (owner.unsqueeze(-1) == owners.unsqueeze(-2))
    return seen if seen.ndim == 2 else seen.unsqueeze(1)


def _check_owner(name: str, owner: Tensor, places: Tensor) -> None:
    if tensor(name, owner).shape not in (places.shape, places.shape[-1:]):
        raise ValueError(f"{name} must be shaped like its places {tuple(places.shape)}, or (N,), got {describe(owner)}")


def mrope(
    *parts: int | Sequence[int],
    interval: float = 1.0,
    resume: str = "largest",
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Ids (N, 3) of time, row and column for a row of texts and images, as Qwen's models count them.

    A part is the number of tokens of a text, each at (m, m, m), or the (frames, rows, columns) of an image or video as
    the language model sees it, after patches were merged. `interval` is the distance between frames, cut to whole
    numbers: 1, or in Qwen2.5-VL tokens per second times seconds per frame. Qwen3-VL has time stamps, texts, between
    frames: give each frame as a part of its own.

    resume  Where the part after an image begins: "largest", one beyond the largest id so far (the Qwen2-VL paper); "side",
            the image's start plus its longer side, whatever its number of frames (transformers from 5.3 on).
    """
    one_of("resume", resume, ("largest", "side"))
    instance_of("dtype", dtype, torch.dtype)
    interval = number("interval", interval, least=0)
    start, rows = 0, [torch.zeros(0, 3, dtype=torch.long, device=device)]
    for part in parts:
        if isinstance(part, list | tuple):
            ids, last = _volume(part, interval, device)
            after = max(last + 1, *part[1:]) if resume == "largest" else max(part[1:])
        else:
            ids = torch.arange(integer("parts", part, least=0), device=device)[:, None].expand(-1, 3)
            after = part
        rows.append(ids + start)
        start += after
    return torch.cat(rows).to(dtype)


def _volume(sides: Sequence[int], interval: float, device: torch.device | str | None) -> tuple[Tensor, int]:
    """Ids of a volume's tokens from 0 on, and the time of its last frame."""
    if len(positives("parts", sides)) != 3:
        raise ValueError(f"a part must be a number of tokens or (frames, rows, columns), got {tuple(sides)}")
    times = (torch.arange(sides[0], device="cpu") * interval).long()
    rows, columns = (torch.arange(side, device=device) for side in sides[1:])
    lines = torch.meshgrid(times.to(rows.device), rows, columns, indexing="ij")
    return torch.stack(lines, dim=-1).flatten(0, 2), int(times[-1])


def grid(
    *sizes: int,
    coordinates: str = "index",
    reference: Sequence[int] | None = None,
    resolution: Resolution | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Points of a grid of patches, (N, axes), in row-major order; none if a size is 0.

    `reference` is the grid that the convention is laid out on, by default this one. On another grid, "extrapolate"
    keeps the distance between patches, so that a larger image reaches further; "rescale" keeps the image's extent, so
    that patches move closer. Conventions centred on zero stay centred. At resolution "rescale", the patches of "index"
    lie where their centres fall in the reference's numbering: (i + 0.5) P0 / P - 0.5. One for all axes, or one for each.

    By default images, of two axes, are rescaled, and sequences, of one axis, extrapolated. The first of three axes may be
    time, which is rescaled only on request, or depth: if its size differs from the reference's, `resolution` is needed.

    "pi", "unit" and "area" have both ends included and extrapolate to P/P0 times the reference's, as their papers do.
    This keeps the distance between patches only nearly: it is (P/P0) (P0 - 1)/(P - 1) of the reference's.
    """
    if not sizes:
        raise ValueError("a grid needs at least one size, got none")
    one_of("coordinates", coordinates, CONVENTIONS)
    resolution = None if resolution is None else check_resolution(resolution, len(sizes))
    float_dtype("dtype", dtype)
    sizes = tuple(integer("sizes", n, least=0) for n in sizes)
    if reference is None:
        reference = [max(n, 1) for n in sizes]
    elif len(positives("reference", reference)) != len(sizes):
        raise ValueError(f"reference must have one number for each of the {len(sizes)} sizes, got {tuple(reference)}")
    modes = _default_resolution(sizes, reference) if resolution is None else resolution
    lines = []
    for axis, n in enumerate(sizes):
        i = torch.arange(n, dtype=_wide(dtype), device=device)
        lines.append(_line(coordinates, i, axis, sizes, reference, modes[axis] == "rescale").to(dtype))
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), dim=-1).flatten(0, -2)


def check_resolution(resolution: Resolution, axes: int) -> tuple[str, ...]:
    """The resolution of each axis, or an error."""
    if isinstance(resolution, list | tuple):
        modes = tuple(one_of("resolution", mode, RESOLUTIONS) for mode in resolution)
    else:
        modes = (one_of("resolution", cast(str, resolution), RESOLUTIONS),) * axes
    if len(modes) != axes:
        raise ValueError(f"resolution must be one word or one for each of the {axes} axes, got {resolution!r}")
    return modes


def _default_resolution(sizes: Sequence[int], reference: Sequence[int]) -> tuple[str, ...]:
    """Rows and columns are rescaled, places in sequences are not; no other axis is rescaled or extrapolated unasked."""
    axes = len(sizes)
    if axes == 1:
        return ("extrapolate",)
    if axes > 2 and sizes[0] != reference[0]:
        ways = "'rescale' for depth, or ('extrapolate', 'rescale', …), one for each axis, for time"
        got = f"{sizes[0]} in place of {reference[0]}"
        raise ValueError(f"the first of {axes} axes has another size than in training, {got}: give resolution, {ways}")
    if not torch.compiler.is_compiling() and tuple(sizes) != tuple(reference):
        _warn_of_rescaling()
    return ("rescale",) * axes


def _warn_of_rescaling() -> None:
    """Warn of the new default, for one release: the same text at the same line, which Python prints once a process."""
    words = "images of another size than in training are rescaled by default, which earlier versions extrapolated"
    advice = "give resolution='extrapolate' for the old positions, or 'rescale' for these without a warning"
    warnings.warn(f"{words}: {advice}", FutureWarning, stacklevel=1)


def _line(coordinates: str, i: Tensor, axis: int, sizes: Sequence[int], reference: Sequence[int], rescale: bool) -> Tensor:
    """The coordinates of patches i along one axis."""
    n, ref = sizes[axis], reference[axis]
    if coordinates == "index":
        return (i + 0.5) * ref / n - 0.5 if rescale else i
    if coordinates == "centre":
        return (i + 0.5) / (n if rescale else ref)
    if coordinates in ("pi", "unit", "area"):
        stretch = 1.0 if rescale else n / ref
        steps = n - 1 if n > 1 else 1
        if coordinates == "unit":
            return i * (stretch / steps)
        end = math.pi if coordinates == "pi" else _share(axis, sizes if rescale else reference)
        return (2 * i - (n - 1)) * (stretch * end / steps)
    # DINOv3's arithmetic, which equality bit for bit wants: to [0, 1] by the longer, shorter or own side, then to [-1, 1].
    side = _side(coordinates, axis, sizes)
    centred = 2 * ((i + 0.5) / side) - 1
    return centred if rescale else centred * (side / _side(coordinates, axis, reference))


def _side(coordinates: str, axis: int, sizes: Sequence[int]) -> int:
    return sizes[axis] if coordinates == "separate" else max(sizes) if coordinates == "longer" else min(sizes)


def _share(axis: int, sizes: Sequence[int]) -> float:
    """A side over the geometric mean of all sides."""
    volume = 1
    for n in sizes:
        volume = volume * max(n, 1)
    return max(sizes[axis], 1) / volume ** (1 / len(sizes))


def perturb(
    positions: Tensor,
    step: float | Sequence[float],
    *,
    sigma: float = 1.0,
    variant: str = "paper",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Move every token within its patch (ComRoPE). `step` is the distance between patches, one for all axes or each.

    "paper": a Gaussian of deviation sigma * step, truncated to half a step either way.
    "code": the published file's, of half that deviation and clamped, so that the edges of the patch collect what
    would lie beyond.
    """
    p = _points(positions, generator)
    sigma = number("sigma", sigma, least=0, most=LARGEST)
    one_of("variant", variant, ("paper", "code"))
    several = step if isinstance(step, list | tuple) else [step]
    each = [number("step", one, least=0, most=LARGEST) for one in several]
    steps = torch.tensor(each if several is step else each[0], dtype=p.dtype, device=p.device)
    if steps.shape not in ((), p.shape[-1:]):
        raise ValueError(f"step must be one number or one for each of the {p.shape[-1]} axes, got {step}")
    if variant == "paper":
        edge = math.erf(0.5 / sigma / math.sqrt(2)) if sigma else 0.0
        draw = edge * _symmetric(p, p.shape, generator)
        last = 1 - torch.finfo(p.dtype).eps  # the inverse of erf is infinite at 1, where a small sigma has its edge
        move = (torch.special.erfinv(draw.clamp(-last, last)) * (math.sqrt(2) * sigma)).clamp(-0.5, 0.5)
    else:
        move = (_normal(p, p.shape, generator) * (0.5 * sigma)).clamp(-0.5, 0.5)
    return (p + move * steps).to(positions.dtype)


def offset(positions: Tensor, rho: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Move all tokens of a sample by one vector, each coordinate Gaussian of deviation rho (ComRoPE)."""
    p = _points(positions, generator)
    return (p + number("rho", rho, least=0, most=LARGEST) * _normal(p, _per_sample(p, p.shape[-1]), generator)).to(
        positions.dtype
    )


def shift(positions: Tensor, amount: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Move all tokens of a sample by one vector, each coordinate uniform in ±amount (DINOv3)."""
    p = _points(positions, generator)
    move = number("amount", amount, least=0, most=LARGEST) * _symmetric(p, _per_sample(p, p.shape[-1]), generator)
    return (p + move).to(positions.dtype)


def jitter(positions: Tensor, factor: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Stretch each axis of a sample by a factor of its own, log-uniform in [1/factor, factor] (DINOv3)."""
    return _stretch(positions, factor, generator, one=False)


def rescale(positions: Tensor, factor: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Stretch all axes of a sample by one factor, log-uniform in [1/factor, factor] (DINOv3)."""
    return _stretch(positions, factor, generator, one=True)


def validate(positions: Tensor) -> Tensor:
    """The positions, or an error if one is not finite. Reads the values: it waits for the device."""
    if tensor("positions", positions).is_meta:
        raise ValueError("positions must have values to look at, got a tensor on the meta device")
    if positions.is_floating_point() and not positions.isfinite().all():
        bad = int((~positions.isfinite()).sum())
        raise ValueError(f"positions must be finite, got {bad} that are not, of {positions.numel()}")
    return positions


def as_coordinates(name: str, positions: Tensor, axes: int) -> Tensor:
    """Positions with an axis dimension, ([B] N axes), checked; values are looked at only in eager mode on the CPU.

    Floats below float32 are refused: bfloat16 has eight bits, so that the positions 256 and 257 are one.
    """
    shape = tuple(tensor(name, positions).shape)
    if positions.dtype is torch.bool or positions.is_complex():
        raise ValueError(f"{name} must be floating or integer, got {positions.dtype}")
    if not positions.is_floating_point():
        if axes != 1:
            raise ValueError(f"integer {name} have one axis, this encoding has {axes}: give floats (N, {axes})")
        if positions.ndim not in (1, 2):
            raise ValueError(f"integer {name} must be (N,) or (B, N), got {shape}")
        return positions.unsqueeze(-1)
    if positions.dtype not in (torch.float32, torch.float64):
        raise ValueError(describe_cast(f"floating {name}", positions.dtype))
    if positions.ndim not in (2, 3) or shape[-1] != axes:
        raise ValueError(f"floating {name} must be (N, {axes}) or (B, N, {axes}), got {shape}")
    if readable(positions):
        validate(positions)
    return positions


def readable(tensor: Tensor) -> bool:
    """Whether looking at its values costs nothing and breaks nothing: eager, on the CPU, and not under a transform.

    Of subclasses, parameters and others that leave dispatching to PyTorch have values; fake and distributed tensors do not.
    """
    if torch.compiler.is_compiling() or tensor.device.type != "cpu":
        return False
    plain = type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    return plain and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _points(positions: Tensor, generator: torch.Generator | None) -> Tensor:
    """Positions to augment, checked, in at least float32: draws and sums in less would be coarse."""
    if generator is not None:
        instance_of("generator", generator, torch.Generator)
    if not tensor("positions", positions).is_floating_point() or positions.ndim not in (2, 3):
        got = f"{positions.dtype} {tuple(positions.shape)}"
        raise ValueError(f"positions must be floating, (N, axes) or (B, N, axes), got {got}")
    checked = positions if torch.compiler.is_compiling() or positions.is_meta else validate(positions)
    return checked.to(_wide(positions.dtype))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _stretch(positions: Tensor, factor: float, generator: torch.Generator | None, *, one: bool) -> Tensor:
    p = _points(positions, generator)
    factors = _per_sample(p, 1 if one else p.shape[-1])
    logarithm = math.log(number("factor", factor, least=1, most=LARGEST)) * _symmetric(p, factors, generator)
    return (p * logarithm.exp()).to(positions.dtype)


def _per_sample(positions: Tensor, axes: int) -> tuple[int, ...]:
    return (*positions.shape[:-2], 1, axes)


def _normal(like: Tensor, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def _symmetric(like: Tensor, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """Uniform in [-1, 1)."""
    return 2 * torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device) - 1
