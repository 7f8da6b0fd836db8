"""Table of what each rotary encoding becomes when it is folded, computed from the encodings themselves."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

import ropewalk as rw
from markdown_text import format_table
from ropewalk.encoding import parameters_of
from ropewalk.encodings import REGISTRY
from ropewalk.theory import commutators, fold
from ropewalk.theory.commuting import turns

WIDTH, HEADS, SIZES = 24, 2, {1: (7,), 2: (3, 5), 3: (2, 3, 4)}
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rope", {"learned": True}),
    ("rope", {"learned": True, "shared": True}),
    ("comrope-ld", {"shared": True}),
    ("liere", {"block": 2}),
)
"""Rows besides those of each encoding without options."""


class Folding(NamedTuple):
    """A folded encoding: RoPE-Mixed, whether its basis is 1, and the largest error of scores of unit q and k."""

    mixed: rw.Mixed
    plain: bool
    error: float


def make_encoding(name: str, axes: int, **options: Any) -> rw.Encoding:
    """An encoding in float64, its parameters moved as if by training, by the same random numbers each time."""
    size = {"size": SIZES[axes]} if axes > 1 else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = rw.create(name, head_dim=WIDTH, heads=HEADS, axes=axes, **size, **options).double()
        with torch.no_grad():
            for weight in made.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
    return made


def list_cases() -> list[tuple[str, dict[str, Any], int]]:
    """Names, options and axes of all encodings that rotate, by name."""
    plain: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in REGISTRY if not _needs_table(name)]
    found = []
    for name, options in sorted((*plain, *OPTIONS), key=lambda case: (case[0], len(case[1]))):
        allowed = REGISTRY[name].allowed_axes
        axes = [each for each in (1, 2) if allowed is None or each in allowed] or [3]
        found += [(name, options, each) for each in axes if turns(make_encoding(name, each, **options))]
    return found


def _needs_table(name: str) -> bool:
    return name in ("learned-ape", "swin-bias")  # which are made for a size, and rotate nothing


def fold_case(encoding: rw.Encoding) -> Folding | None:
    """What an encoding becomes, or None if it is refused."""
    try:
        mixed, basis = fold(encoding)
    except ValueError:
        return None
    assert isinstance(mixed, rw.Mixed)
    positions = encoding.grid(*SIZES[encoding.axes], resolution="extrapolate", dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    shape = (2, 1, HEADS, len(positions), WIDTH)
    q, k = torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)
    with torch.no_grad():
        wanted = _compute_scores(encoding, positions, q, k)
        found = _compute_scores(mixed, positions, q @ basis, k @ basis)
    plain = torch.equal(basis, torch.eye(WIDTH, dtype=basis.dtype).expand_as(basis))
    return Folding(mixed, plain, (found - wanted).abs().max().item())


def _compute_scores(encoding: rw.Encoding, positions: Tensor, q: Tensor, k: Tensor) -> Tensor:
    q, k = encoding(positions).qk(q, k)
    return q @ k.mT


def describe_served(mixed: rw.Mixed, *, shareable: bool) -> str:
    """What code can compute the folded encoding."""
    wave = mixed.wave.detach()
    if wave.shape[-3] > 1:
        own = "frequencies" if mixed.axes == 1 else "waves"
        kind = "RoPE" if mixed.axes == 1 else "RoPE-Mixed"
        return f"{kind} with {own} of each head" + ("; `shared=True`: one set" if shareable else "")
    if mixed.axes > 1:
        axial = ((wave != 0).sum(-1) <= 1).all()
        return "axial RoPE with explicit frequencies" if axial else "RoPE-Mixed, one set of waves"
    base = find_base(wave.flatten())
    return "stock RoPE with explicit frequencies" if base is None else f"stock RoPE, base {base:g}"


def find_base(frequency: Tensor) -> float | None:
    """The base of frequencies that fall from 1 by one factor, as stock RoPE has them."""
    base = float((frequency[0] / frequency[1]) ** len(frequency)) if frequency.all() else 1.0
    stock = base ** (-torch.arange(len(frequency)) / len(frequency))
    return round(base, 3) if base > 1 and torch.allclose(frequency.float(), stock, rtol=1e-5, atol=0) else None


def list_served() -> str:
    """Every encoding that rotates: whether its generators commute, and what serves it once it is folded."""
    rows = []
    for name, options, axes in list_cases():
        encoding = make_encoding(name, axes, **options)
        shown = f"`{name}`" + "".join(f" `{key}={value}`" for key, value in options.items())
        apart = commutators(encoding).max().item()
        commuting = "yes" if apart < 1e-9 else f"no, by {apart:.2f}"
        found = fold_case(encoding)
        if found is None:
            why = "stretches q and k" if not encoding.traits.isometric else "does not commute"
            rows.append((shown, axes, commuting, "", "", f"not at all: {why}"))
            continue
        shareable = "shared" in parameters_of(REGISTRY[name]) and (name != "rope" or options.get("learned", False))
        basis = "none" if found.plain else "in q and k"
        error = "0" if found.error == 0 else f"{found.error:.0e}"
        rows.append((shown, axes, commuting, basis, error, describe_served(found.mixed, shareable=shareable)))
    return format_table(["encoding", "axes", "commutes", "basis", "error of scores", "served as"], rows)


def list_others() -> str:
    """Encodings that rotate nothing, by name."""
    rotating = {name for name, _, _ in list_cases()}
    return ", ".join(f"`{name}`" for name in sorted({*REGISTRY} - rotating))
