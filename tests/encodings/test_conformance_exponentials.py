"""LieRE and ComRoPE by the exponential of whole D x D generators in float64, put together entry by entry."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from ropewalk import rotary
from tests.support.float64_reference import assert_close, assert_same, exponent_norm, leaf, normal, turned, twin

BATCH, HEADS, KV_HEADS = 2, 4, 2
DTYPES = (torch.float64, torch.float32)


def liere_generators(encoding: rw.Encoding, upper: Tensor) -> Tensor:
    """Entry (i, j), i < j, of each block is free, listed row by row: upper (h A G b(b-1)/2) to (h A D D)."""
    groups, free = upper.shape[2:]
    unit = torch.zeros(groups, free, encoding.head_dim, encoding.head_dim, dtype=torch.float64)
    for group in range(groups):
        for entry, (i, j) in enumerate(combinations(range(encoding.block), 2)):
            row, column = group * encoding.block + i, group * encoding.block + j
            unit[group, entry, row, column], unit[group, entry, column, row] = 1.0, -1.0
    return torch.einsum("hagf,gfij->haij", upper, unit)


def comrope_ap_generators(encoding: rw.Encoding, matrix: Tensor) -> Tensor:
    """Block j belongs to axis j mod A: matrix (h S A b b) to (h A D D)."""
    heads, shares, axes, block, _ = matrix.shape
    total = matrix.new_zeros(heads, axes, encoding.head_dim, encoding.head_dim)
    for j in range(shares * axes):
        free = matrix[:, j // axes, j % axes]
        total[:, j % axes, j * block : (j + 1) * block, j * block : (j + 1) * block] = free - free.transpose(1, 2)
    return total


def comrope_ld_generators(encoding: rw.Encoding, matrix: Tensor, theta: Tensor) -> Tensor:
    """Block j of axis a is theta_aj times one skew matrix: matrix (h G b b), theta (h or 1 A G) to (h A D D)."""
    heads, groups, block, _ = matrix.shape
    axes = theta.shape[1]
    total = matrix.new_zeros(max(heads, len(theta)), axes, encoding.head_dim, encoding.head_dim)
    for axis in range(axes):
        for j in range(groups):
            skew = matrix[:, j] - matrix[:, j].transpose(1, 2)
            total[:, axis, j * block : (j + 1) * block, j * block : (j + 1) * block] = theta[:, axis, j, None, None] * skew
    return total


GENERATORS = {"liere": liere_generators, "comrope-ap": comrope_ap_generators, "comrope-ld": comrope_ld_generators}


def reach_of(generators: Tensor, positions: Tensor) -> float:
    """A bound on the norm of what is exponentiated, four times over: scaling and squaring rounds more often than cos."""
    return 4 * exponent_norm(generators, positions)


CASES = {
    "liere, block 2": ("liere", {"head_dim": 12, "block": 2}),
    "liere, block 3, a channel left": ("liere", {"head_dim": 13, "block": 3, "axes": 1}),
    "liere, block 5, 3 axes": ("liere", {"head_dim": 12, "block": 5, "axes": 3}),
    "liere, block 8": ("liere", {"head_dim": 16, "block": 8}),
    "liere, dense": ("liere", {"head_dim": 7, "block": 7}),
    "liere, dense, 3 axes": ("liere", {"head_dim": 12, "block": 12, "axes": 3}),
    "liere, from zero": ("liere", {"head_dim": 12, "block": 4, "scale": 0.0}),
    "liere, shared": ("liere", {"head_dim": 12, "block": 4, "shared": True}),
    "ap, block 2": ("comrope-ap", {"head_dim": 12, "block": 2}),
    "ap, block 2, 1 axis": ("comrope-ap", {"head_dim": 7, "block": 2, "axes": 1}),
    "ap, block 3, 3 axes, channels left": ("comrope-ap", {"head_dim": 20, "block": 3, "axes": 3}),
    "ap, block 8": ("comrope-ap", {"head_dim": 33, "block": 8}),
    "ap, shared": ("comrope-ap", {"head_dim": 12, "block": 3, "shared": True}),
    "ap, from zero": ("comrope-ap", {"head_dim": 12, "block": 3, "std": 0.0}),
    "ld, block 2": ("comrope-ld", {"head_dim": 12, "block": 2}),
    "ld, block 3, 3 axes": ("comrope-ld", {"head_dim": 13, "block": 3, "axes": 3}),
    "ld, block 8": ("comrope-ld", {"head_dim": 16, "block": 8}),
    "ld, block 8, 1 axis": ("comrope-ld", {"head_dim": 17, "block": 8, "axes": 1}),
    "ld of the code, block 2": ("comrope-ld", {"head_dim": 12, "block": 2, "variant": "yu-code"}),
    "ld of the code, block 3": ("comrope-ld", {"head_dim": 12, "block": 3, "variant": "yu-code"}),
    "ld of the code, block 8": ("comrope-ld", {"head_dim": 16, "block": 8, "axes": 3, "variant": "yu-code"}),
    "ld, shared": ("comrope-ld", {"head_dim": 12, "block": 3, "shared": True}),
    "ld, from zero": ("comrope-ld", {"head_dim": 12, "block": 3, "std": 0.0}),
}


def made(case: str, dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    name, own = CASES[case]
    torch.manual_seed(0)
    return rw.create(name, heads=HEADS, **own, **options).to(dtype)


def parameters(encoding: rw.Encoding) -> tuple[list[Tensor], list[Tensor]]:
    """The raw parameters and their twins, in the order that the reference takes them."""
    ours = [getattr(encoding, name) for name in ("upper", "matrix", "theta") if hasattr(encoding, name)]
    assert len(ours) == len(list(encoding.parameters()))
    return ours, [twin(parameter) for parameter in ours]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_grid(case, dtype):
    """On a 3 x 5 grid (or 1-D and 3-D ones) in the coordinates of the paper: q, k, scores and all gradients."""
    encoding = made(case, dtype)
    ours, theirs = parameters(encoding)
    sizes = {1: (7,), 2: (3, 5), 3: (2, 3, 2)}[encoding.axes]
    positions = encoding.grid(*sizes, dtype=dtype)
    q, k = (leaf(BATCH, HEADS, len(positions), encoding.head_dim, seed=seed, dtype=dtype) for seed in (0, 1))
    generators = GENERATORS[encoding.name](encoding, *theirs)
    q1, k1 = encoding(positions).qk(q, k)
    q2, k2 = (turned(x, generators, positions) for x in (q, k))
    leaves = [q, k, *zip(ours, theirs, strict=True)]
    assert_same([q1, k1, q1 @ k1.mT], [q2, k2, q2 @ k2.mT], leaves, reach_of(generators, positions))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_layers_groups_and_samples(case, dtype):
    """Two layers, grouped queries, positions of each sample's own, keys elsewhere: gradients of the positions too."""
    encoding = made(case, dtype, kv_heads=KV_HEADS, layers=2)
    ours, theirs = parameters(encoding)
    q = leaf(BATCH, HEADS, 5, encoding.head_dim, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 3, encoding.head_dim, seed=1, dtype=dtype)
    places = [leaf(BATCH, n, encoding.axes, seed=seed, dtype=dtype) for n, seed in ((5, 2), (3, 3))]
    code = encoding(*places)
    turns, wanted, reach = [], [], 1.0
    for layer in range(2):
        turns += code[layer].qk(q, k)
        generators = GENERATORS[encoding.name](encoding, *[parameter[layer] for parameter in theirs])
        wanted += [turned(x, generators, p) for x, p in zip((q, k), places, strict=True)]
        reach = max(reach, *(reach_of(generators, p) for p in places))
    assert_same(turns, wanted, [q, k, *places, *zip(ours, theirs, strict=True)], reach)


@pytest.mark.parametrize(
    ("case", "convention"), [("liere, block 8", "unit"), ("ap, block 2", "centre"), ("ld, block 2", "centre")]
)
def test_coordinates(case, convention):
    """LieRE: linspace(0, 1), beyond the training grid on to P/P0. ComRoPE: centres of the patches over the image's side."""
    encoding = made(case, size=(3, 5))
    if convention == "unit":
        lines = [torch.linspace(0, n / n0, n, dtype=torch.float64) for n, n0 in ((4, 3), (7, 5))]
    else:
        lines = [(torch.arange(n, dtype=torch.float64) + 0.5) / n0 for n, n0 in ((4, 3), (7, 5))]
    assert_close(encoding.grid(4, 7, resolution="extrapolate", dtype=torch.float64), torch.cartesian_prod(*lines))


def test_liere_of_block_2_is_mixed():
    """U = (0 u; 0 0) makes U - Uᵀ turn a pair by -u: the wave vectors of mixed RoPE, with the other sign."""
    encoding = made("liere, block 2")
    mixed = rw.create("mixed", head_dim=12, heads=HEADS).double()
    mixed.wave.data = -encoding.upper.detach()[..., 0].mT
    q, k = (normal(BATCH, HEADS, 7, 12, seed=seed) for seed in (0, 1))
    positions = normal(7, 2, seed=2)
    for ours, theirs in zip(encoding(positions).qk(q, k), mixed(positions).qk(q, k), strict=True):
        assert_close(ours.detach(), theirs.detach())


@pytest.mark.parametrize(
    ("case", "name", "law", "deviation"),
    [
        ("liere, block 8", "upper", "uniform", 2 * torch.pi / 12**0.5),
        ("ap, block 8", "matrix", "normal", 1.0),
        ("ld, block 8", "matrix", "normal", 1.0),
        ("ld, block 8", "theta", "normal", 1.0),
        ("liere, from zero", "upper", "zero", 0.0),
        ("ap, from zero", "matrix", "zero", 0.0),
        ("ld, from zero", "matrix", "zero", 0.0),
        ("ld, from zero", "theta", "normal", 1.0),
    ],
)
def test_starts(case, name, law, deviation):
    """LieRE's entries from U(0, 2 pi); ComRoPE's from a normal law of deviation std, theta's of deviation 1."""
    values = getattr(made(case, layers=100), name).detach()
    mean = {"uniform": torch.pi, "normal": 0.0, "zero": 0.0}[law]
    assert abs(values.mean().item() - mean) <= 0.1 * deviation
    assert abs(values.std().item() - deviation) <= 0.1 * deviation
    if law == "uniform":
        assert 0 <= values.min() < 0.1 < 2 * torch.pi - 0.1 < values.max() <= 2 * torch.pi


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(("name", "layers"), [("liere", 2), ("comrope-ld", None)])
def test_positions_are_taken_in_pieces_on_a_cpu(name, layers, batch, monkeypatch):
    encoding = rw.create(name, head_dim=12, heads=2, block=4, layers=layers, size=(3, 5)).double()
    positions = torch.rand(*batch, 15, 2, dtype=torch.float64)
    whole = encoding(positions)
    sizes = []
    with monkeypatch.context() as patched:
        taken = rotary.ops.expm
        patched.setattr(rotary, "PIECE", 4 * 96 * (layers or 1) * (batch or (1,))[0])
        patched.setattr(rotary.ops, "expm", lambda skew: sizes.append(skew.shape[-4]) or taken(skew))
        pieces = encoding(positions)
    assert sizes == [4, 4, 4, 3]
    left, right = ([each.q_matrix, *autograd(each.q_matrix, encoding)] for each in (whole, pieces))
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def autograd(matrix, encoding):
    weights = torch.arange(matrix.numel(), dtype=matrix.dtype).view_as(matrix).sin()
    return torch.autograd.grad((matrix * weights).sum(), list(encoding.parameters()))
