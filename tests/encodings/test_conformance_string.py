"""STRING by the exponential of whole D x D generators in float64, put together entry by entry.

q and k come in a basis of their own, prefix tokens too, so scores are what is compared, with their gradients.
"""

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, exponent_norm, gradients, leaf, normal, turned, twin

BATCH, HEADS, KV_HEADS = 2, 4, 2
DTYPES = (torch.float64, torch.float32)


def cayley(skew: Tensor, d: int) -> Tensor:
    """P = (I - S)(I + S)^-1 for S with free entries (i, j), i < j, listed row by row: (h d(d-1)/2) to (h D D)."""
    unit = torch.zeros(skew.shape[-1], d, d, dtype=torch.float64)
    for entry, (i, j) in enumerate(combinations(range(d), 2)):
        unit[entry, i, j], unit[entry, j, i] = 1.0, -1.0
    s, identity = torch.einsum("he,eij->hij", skew, unit), torch.eye(d, dtype=torch.float64)
    return (identity - s) @ torch.linalg.inv(identity + s)


def cayley_generators(encoding: rw.Encoding, wave: Tensor, skew: Tensor) -> Tensor:
    """Pᵀ W_a P, in which W_a turns pair t by wave_ta: wave (h P A) to (h A D D)."""
    d, pairs = encoding.head_dim, wave.shape[1]
    unit = torch.zeros(pairs, d, d, dtype=torch.float64)
    for pair in range(pairs):
        i, j = (2 * pair, 2 * pair + 1) if encoding.interleaved else (pair, pair + pairs)
        unit[pair, j, i], unit[pair, i, j] = 1.0, -1.0
    p = cayley(skew, d)[:, None]
    return p.mT @ torch.einsum("hta,tij->haij", wave, unit) @ p


def circulant_generators(encoding: rw.Encoding, coefficient: Tensor) -> Tensor:
    """C - Cᵀ with C[i, j] = c[(i - j) mod d]: coefficient (h A D) to (h A D D)."""
    d = encoding.head_dim
    index = torch.tensor([[(i - j) % d for j in range(d)] for i in range(d)])
    c = coefficient[..., index]
    return c - c.mT


GENERATORS = {"string-cayley": cayley_generators, "string-circulant": circulant_generators}
CASES = {
    "cayley": ("string-cayley", {"head_dim": 12}),
    "cayley, half-split": ("string-cayley", {"head_dim": 12, "interleaved": False}),
    "cayley, 1 axis, a channel left": ("string-cayley", {"head_dim": 7, "axes": 1}),
    "cayley, 3 axes": ("string-cayley", {"head_dim": 10, "axes": 3}),
    "cayley, shared": ("string-cayley", {"head_dim": 12, "shared": True}),
    "cayley, from the identity": ("string-cayley", {"head_dim": 12, "std": 0.0}),
    "circulant": ("string-circulant", {"head_dim": 12}),
    "circulant, half-split": ("string-circulant", {"head_dim": 12, "interleaved": False}),
    "circulant, 1 axis, odd": ("string-circulant", {"head_dim": 7, "axes": 1}),
    "circulant, 3 axes, odd": ("string-circulant", {"head_dim": 9, "axes": 3, "interleaved": False}),
    "circulant, shared": ("string-circulant", {"head_dim": 12, "shared": True}),
    "circulant, one mode": ("string-circulant", {"head_dim": 3}),
}


def made(case: str, dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    """An encoding whose parameters all differ, the skew ones as large as others; those of std 0 stay as they start."""
    name, own = CASES[case]
    torch.manual_seed(0)
    encoding = rw.create(name, heads=HEADS, **own, **options).to(dtype)
    for seed, parameter in enumerate(encoding.parameters()):
        if own.get("std") != 0.0:
            parameter.data += 0.3 * normal(*parameter.shape, seed=50 + seed, dtype=dtype)
    return encoding


def parameters(encoding: rw.Encoding) -> tuple[list[Tensor], list[Tensor]]:
    """The raw parameters and their twins, in the order that the reference takes them."""
    ours = [getattr(encoding, name) for name in ("wave", "skew", "coefficient") if hasattr(encoding, name)]
    assert len(ours) == len(list(encoding.parameters()))
    return ours, [twin(parameter) for parameter in ours]


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT


def reach_of(generators: Tensor, *positions: Tensor) -> float:
    """A bound on what is exponentiated, times 16 for the basis, products of q and k, and repeated squaring."""
    return 16 * exponent_norm(generators, *positions)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_grid_with_a_prefix(case, dtype):
    """On a 3 x 5 grid (or 1-D and 3-D ones) after class and register tokens, which the basis acts on as well."""
    encoding = made(case, dtype)
    ours, theirs = parameters(encoding)
    sizes = {1: (7,), 2: (3, 5), 3: (2, 3, 2)}[encoding.axes]
    positions = encoding.grid(*sizes, dtype=dtype)
    q, k = (leaf(BATCH, HEADS, len(positions) + n, encoding.head_dim, seed=n, dtype=dtype) for n in (1, 2))
    generators = GENERATORS[encoding.name](encoding, *theirs)
    wanted = scores(turned(q, generators, positions, 1), turned(k, generators, positions, 2))
    leaves = [q, k, *zip(ours, theirs, strict=True)]
    assert_same(scores(*encoding(positions).prefixed(q=1, k=2).qk(q, k)), wanted, leaves, reach_of(generators, positions))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_layers_groups_and_samples(case, dtype):
    """Two layers, grouped queries, positions of each sample's own, keys elsewhere: gradients of the positions too."""
    encoding = made(case, dtype, kv_heads=KV_HEADS, layers=2)
    ours, theirs = parameters(encoding)
    q = leaf(BATCH, HEADS, 5, encoding.head_dim, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 3, encoding.head_dim, seed=1, dtype=dtype)
    places = [leaf(BATCH, n, encoding.axes, seed=seed, dtype=dtype) for n, seed in ((5, 2), (3, 3))]
    code, found, wanted, reach = encoding(*places), [], [], 1.0
    for layer in range(2):
        found.append(scores(*code[layer].qk(q, k)))
        generators = GENERATORS[encoding.name](encoding, *[parameter[layer] for parameter in theirs])
        wanted.append(scores(*(turned(x, generators, p) for x, p in zip((q, k), places, strict=True))))
        reach = max(reach, reach_of(generators, *places))
    assert_same(found, wanted, [q, k, *places, *zip(ours, theirs, strict=True)], reach)


@pytest.mark.parametrize("case", CASES)
def test_generators(case):
    encoding = made(case)
    ours, theirs = parameters(encoding)
    assert_same(encoding.generators(), GENERATORS[encoding.name](encoding, *theirs), zip(ours, theirs, strict=True))


@pytest.mark.parametrize("length", [1, 63, 65])
@pytest.mark.parametrize("case", ["cayley, 1 axis, a channel left", "circulant, 1 axis, odd"])
def test_sequences_in_half_precision(case, length):
    """q and k are rounded twice, after the basis and after the turn: scores to 2^-8 of the product of norms, twice each."""
    encoding = made(case, torch.float32)
    _, theirs = parameters(encoding)
    places = torch.arange(length)[:, None] - 7.0
    q, k = (normal(BATCH, HEADS, length, 7, seed=seed).bfloat16() for seed in (0, 1))
    q1, k1 = encoding(places).qk(q, k)
    assert q1.dtype is k1.dtype is torch.bfloat16
    generators = GENERATORS[encoding.name](encoding, *theirs)
    wanted = scores(turned(q, generators, places), turned(k, generators, places))
    norms = q.double().norm(dim=-1)[..., None] * k.double().norm(dim=-1)[:, :, None]
    assert ((scores(q1.double(), k1.double()) - wanted).abs() <= 2**-7 * norms + 1e-4).all()


@pytest.mark.parametrize("interleaved", [True, False])
def test_cayley_writes_q_and_k_in_the_basis_of_p(interleaved):
    """q becomes RoPE(p) P q; a token of the prefix, P q."""
    encoding = made("cayley" if interleaved else "cayley, half-split")
    mixed = rw.create("mixed", head_dim=12, heads=HEADS, interleaved=interleaved).double()
    mixed.wave.data = encoding.wave.detach()
    q, k, places = normal(BATCH, HEADS, 7, 12, seed=0), normal(BATCH, HEADS, 7, 12, seed=1), normal(5, 2, seed=2)
    p = cayley(encoding.skew.detach(), 12)
    wanted = mixed(places).prefixed(q=2, k=2).qk(*(torch.einsum("hij,bhnj->bhni", p, x) for x in (q, k)))
    for ours, theirs in zip(encoding(places).prefixed(q=2, k=2).qk(q, k), wanted, strict=True):
        assert_close(ours.detach(), theirs.detach(), 16.0)


def test_cayley_from_the_identity_starts_as_mixed():
    encoding, mixed = made("cayley, from the identity"), rw.create("mixed", head_dim=12, heads=HEADS).double()
    mixed.wave.data = encoding.wave.detach()
    q, k, places = leaf(BATCH, HEADS, 7, 12, seed=0), leaf(BATCH, HEADS, 7, 12, seed=1), normal(7, 2, seed=2)
    assert_same(encoding(places).qk(q, k), mixed(places).qk(q, k), [q, k, (encoding.wave, mixed.wave)])
    (slope,) = gradients(scores(*encoding(places).qk(q, k)), [encoding.skew])
    learning = (slope.abs() > 1e-6).sum(-1)
    assert learning.tolist() == [66 - 6] * HEADS, "S learns but for the turns inside a pair, which commute with RoPE's"


def modes(d: int) -> dict[str, Tensor]:
    """The Fourier modes of d channels, normalised, and the name of each."""
    channel = torch.arange(d, dtype=torch.float64)
    found = {
        f"{f.__name__} {j}": f(2 * math.pi * j * channel / d) for j in range(1, (d + 1) // 2) for f in (torch.cos, torch.sin)
    }
    found |= {"sum": torch.ones(d, dtype=torch.float64)}
    found |= {"alternating sum": 1 - 2 * (channel % 2)} if d % 2 == 0 else {}
    return {name: mode / mode.norm() for name, mode in found.items()}


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("d", [12, 7, 3])
def test_circulants_leave_two_modes_unturned(d, interleaved):
    """Whatever the coefficients, the sum of channels never turns, nor, of an even number, the alternating sum."""
    for seed in range(5):
        encoding = rw.create("string-circulant", head_dim=d, heads=HEADS, interleaved=interleaved).double()
        encoding.coefficient.data = 3 * normal(*encoding.coefficient.shape, seed=seed)
        places, k = 5 * normal(9, 2, seed=seed), normal(1, HEADS, 9, d, seed=seed).detach()
        for name, mode in modes(d).items():
            q = mode.expand(1, HEADS, 9, d)
            moved = scores(*encoding(places, torch.zeros(9, 2)).qk(q, k)) - scores(q, k)
            if "sum" in name:
                assert moved.abs().max() < 1e-12, name
            else:
                assert moved.abs().amax((0, 2, 3)).min() > 0.1, name


def test_circulants_know_half_of_their_coefficients():
    """What is added evenly, as much to c[m] as to c[d - m], changes nothing, nor does c[0]."""
    encoding, other = made("circulant"), made("circulant")
    even = normal(*encoding.coefficient.shape, seed=1)
    other.coefficient.data = encoding.coefficient.detach() + even + torch.cat([even[..., :1], even[..., 1:].flip(-1)], -1)
    q, k, places = normal(1, HEADS, 7, 12, seed=2), normal(1, HEADS, 7, 12, seed=3), normal(7, 2, seed=4)
    for ours, theirs in zip(encoding(places).qk(q, k), other(places).qk(q, k), strict=True):
        assert_close(ours.detach(), theirs.detach(), 16.0)


@pytest.mark.parametrize(
    ("case", "name", "deviation"),
    [("cayley", "skew", 0.02), ("cayley, from the identity", "skew", 0.0), ("circulant", "coefficient", 0.05)],
)
def test_starts(case, name, deviation):
    torch.manual_seed(0)
    kind, options = CASES[case]
    values = getattr(rw.create(kind, heads=HEADS, layers=50, **options), name).detach()
    assert abs(values.mean().item()) <= 0.05 * deviation
    assert abs(values.std().item() - deviation) <= 0.05 * deviation


@pytest.mark.parametrize("base", [10.0, 100.0])
def test_cayley_starts_from_the_waves_of_mixed(base):
    """Of one seed, both draw the same frames first."""
    torch.manual_seed(0)
    waves = rw.create("string-cayley", head_dim=12, heads=HEADS, base=base).wave
    torch.manual_seed(0)
    assert torch.equal(waves, rw.create("mixed", head_dim=12, heads=HEADS, base=base).wave)
