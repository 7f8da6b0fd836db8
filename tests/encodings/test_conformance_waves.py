"""Pairs of channels as complex numbers: x + iy at p becomes (x + iy) exp(i w · p), in float64.

Wave vectors and coordinates are written out again from the formulas of the papers and of their published code.
"""

import math

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import TOLERANCE, assert_close, assert_same, leaf, normal, twin

BATCH, HEADS, KV_HEADS = 2, 4, 2
DTYPES = (torch.float64, torch.float32)


def made(name: str, dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    """An encoding whose parameters, if any, all differ."""
    torch.manual_seed(0)
    encoding = rw.create(name, heads=HEADS, **options).to(dtype)
    for seed, parameter in enumerate(encoding.parameters()):
        parameter.data += 0.1 * normal(*parameter.shape, seed=50 + seed, dtype=dtype)
    return encoding


def turned(x: Tensor, waves: Tensor, positions: Tensor, interleaved: bool, fade: Tensor | None = None) -> Tensor:
    """x (B H N D) with pair t turned by waves (h P A) · positions ([B] N A), each h serving a group of heads.

    With `fade` (P), pair t of a token at m on a line is also stretched by exp(m fade_t).
    """
    x, positions = x.double(), positions.double()
    waves = waves.repeat_interleave(x.shape[1] // waves.shape[0], dim=0)
    places = positions if positions.ndim == 3 else positions.expand(len(x), *positions.shape)
    angle = torch.einsum("hpa,bna->bhnp", waves, places)
    pairs = waves.shape[1]
    real, imaginary = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    )
    growth = 0.0 if fade is None else places[:, None] * fade
    z = torch.complex(x[..., real], x[..., imaginary]) * torch.exp(growth + 1j * angle)
    parts = torch.stack([z.real, z.imag], dim=-1 if interleaved else -2).flatten(-2)
    return torch.cat([parts, x[..., 2 * pairs :]], dim=-1)


def along(pairs: list[tuple[int, float]], axes: int) -> Tensor:
    """Wave vectors (1 P A) from the axis and the frequency of each pair."""
    waves = torch.zeros(1, len(pairs), axes, dtype=torch.float64)
    for pair, (axis, frequency) in enumerate(pairs):
        waves[0, pair, axis] = frequency
    return waves


def concatenated(axes: list[int], frequencies: list[float]) -> list[tuple[int, float]]:
    return [(axis, frequency) for axis in axes for frequency in frequencies]


def alternating(axes: list[int], frequencies: list[float]) -> list[tuple[int, float]]:
    return [(axis, frequency) for frequency in frequencies for axis in axes]


def axial_pairs(variant: str, d: int, n: int, base: float | None = None) -> list[tuple[int, float]]:
    """The axis and the frequency of each pair. Axis 0 is y (rows), the last is x (columns)."""
    share, axes = range(d // (2 * n)), list(range(n))
    match variant:
        case "heo":
            return concatenated(axes[::-1], [(base or 100) ** (-t / len(share)) for t in share])
        case "heo-paper":
            return alternating(axes[::-1], [(base or 100) ** (-t / len(share)) for t in share])
        case "eva":
            return concatenated(axes, [(base or 10000) ** (-t / len(share)) for t in share])
        case "van-de-geijn":
            return concatenated(axes, [(base or 100) ** (-2 * t / d) for t in share])
        case "liere":
            return concatenated(axes, [(base or math.e**4) ** -(t / (len(share) - 1)) for t in share])
        case "comrope":
            return alternating(axes, [(base or 10000) ** (-2 * n / d * t) for t in share])
    raise KeyError(variant)


COORDINATES = {
    "axial": {
        "heo": "index",
        "heo-paper": "index",
        "eva": "index",
        "van-de-geijn": "pi",
        "liere": "unit",
        "comrope": "centre",
    },
    "uniform": {"van-de-geijn": "pi", "van-de-geijn-code": "pi"},
    "mixed": {"heo": "index", "van-de-geijn": "pi", "liere": "unit"},
    "golden": {"xiong": "area"},
    "dinov3": {"standard": "separate"},
    "mrope": {"qwen2-vl": "index", "qwen3-vl": "index"},
    "xpos": {"standard": "index"},
}
VARIANTS = {name: list(variants) for name, variants in COORDINATES.items()}


def points(convention: str, sizes: tuple[int, ...], trained: tuple[int, ...]) -> Tensor:
    """A grid's points in row-major order, for an encoding trained on another grid."""
    lines, mean = [], math.prod(trained) ** (1 / len(trained))
    for n, n0 in zip(sizes, trained, strict=True):
        ends = {"pi": (-math.pi * n / n0, math.pi * n / n0), "unit": (0.0, n / n0), "index": (0, n - 1)}
        ends |= {"area": (-n / mean, n / mean), "separate": ((1 - n) / n0, (n - 1) / n0)}
        first, last = ends.get(convention, (0.5 / n0, (n - 0.5) / n0))
        lines.append(torch.linspace(first, last, n, dtype=torch.float64))
    return torch.cartesian_prod(*lines).reshape(-1, len(sizes))


@pytest.mark.parametrize("name", COORDINATES)
def test_all_variants_have_a_reference(name):
    assert VARIANTS[name] == list(type(rw.create(name, head_dim=12)).variants)


# Fixed encodings on grids


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("trained", "sizes"), [((3, 5), (3, 5)), ((3, 5), (4, 7)), ((2, 3, 5), (3, 2, 4))])
@pytest.mark.parametrize("variant", VARIANTS["axial"])
def test_axial(variant, trained, sizes, interleaved, dtype):
    axes = len(sizes)
    encoding = made("axial", dtype, head_dim=24, axes=axes, size=trained, variant=variant, interleaved=interleaved)
    waves = along(axial_pairs(variant, 24, axes), axes)
    positions = points(COORDINATES["axial"][variant], sizes, trained)
    q, k = (leaf(BATCH, HEADS, len(positions), 24, seed=seed, dtype=dtype) for seed in (0, 1))
    ours = encoding(encoding.grid(*sizes, resolution="extrapolate", dtype=dtype)).qk(q, k)
    assert_same(ours, [turned(x, waves, positions, interleaved) for x in (q, k)], [q, k], positions.abs().max().item())


@pytest.mark.parametrize("base", [10.0, 777.0])
@pytest.mark.parametrize("variant", VARIANTS["axial"])
def test_axial_of_another_base(variant, base):
    encoding = made("axial", head_dim=24, variant=variant, base=base)
    waves, positions = along(axial_pairs(variant, 24, 2, base), 2), normal(BATCH, 15, 2, seed=2)
    q, k = (leaf(BATCH, HEADS, 15, 24, seed=seed) for seed in (0, 1))
    assert_same(encoding(positions).qk(q, k), [turned(x, waves, positions, True) for x in (q, k)], [q, k])


@pytest.mark.parametrize("interleaved", [True, False])
def test_axial_leaves_odd_channels_still(interleaved):
    """27 = 2 axes of 6 pairs and 3 channels; the frequencies are those of the 24 channels that turn."""
    encoding = made("axial", head_dim=27, interleaved=interleaved)
    waves, positions = along(axial_pairs("heo", 24, 2), 2), points("index", (3, 5), (3, 5))
    q, k = (leaf(BATCH, HEADS, 15, 27, seed=seed) for seed in (0, 1))
    ours = encoding(encoding.grid(3, 5, dtype=torch.float64)).qk(q, k)
    assert_same(ours, [turned(x, waves, positions, interleaved) for x in (q, k)], [q, k])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("trained", "sizes"), [((3, 5), (3, 5)), ((3, 5), (4, 7)), ((2, 3, 5), (3, 2, 4))])
@pytest.mark.parametrize(("variant", "frequency"), [("van-de-geijn", 1.0), ("van-de-geijn-code", 1 / math.pi)])
def test_uniform(variant, frequency, trained, sizes, interleaved, dtype):
    axes = len(sizes)
    encoding = made("uniform", dtype, head_dim=26, axes=axes, size=trained, variant=variant, interleaved=interleaved)
    waves = along(concatenated(list(range(axes)), [frequency] * (26 // (2 * axes))), axes)
    positions = points("pi", sizes, trained)
    q, k = (leaf(BATCH, HEADS, len(positions), 26, seed=seed, dtype=dtype) for seed in (0, 1))
    ours = encoding(encoding.grid(*sizes, resolution="extrapolate", dtype=dtype)).qk(q, k)
    assert_same(ours, [turned(x, waves, positions, interleaved) for x in (q, k)], [q, k], positions.abs().max().item())


def golden_direction(n: int, axes: int) -> list[float]:
    """Of the n-th pair, counted from 0 over all heads."""
    if axes == 2:
        turn = n * math.pi / ((1 + math.sqrt(5)) / 2)
        return [math.sin(turn), math.cos(turn)]
    low, high = 1.0, 2.0
    for _ in range(60):  # of halving, around g with g^(axes + 1) = g + 1
        g = (low + high) / 2
        low, high = (g, high) if g ** (axes + 1) < g + 1 else (low, g)
    shares = torch.tensor([(n + 1) * low**-a % 1 for a in range(1, axes + 1)], dtype=torch.float64)
    point = torch.special.ndtri(shares).tolist()
    return [x / math.hypot(*point) for x in point]


def golden_waves(heads: int, pairs: int, axes: int, fastest: float, slowest: float, resting: int) -> Tensor:
    waves = torch.zeros(heads, pairs, axes, dtype=torch.float64)
    for head in range(heads):
        for pair in range(resting, pairs):
            frequency = slowest * (fastest / slowest) ** ((pair - resting) / (pairs - resting - 1))
            for axis, x in enumerate(golden_direction(head * pairs + pair, axes)):
                waves[head, pair, axis] = frequency * x
    return waves


GOLDEN = {
    "by default": ({}, (20.0, 0.2, 0)),
    "slower": ({"fastest": 7.0, "slowest": 0.5}, (7.0, 0.5, 0)),
    "some still": ({"still": 0.3}, (20.0, 0.2, 4)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("trained", "sizes"), [((3, 5), (3, 5)), ((3, 5), (4, 7)), ((2, 3, 5), (3, 2, 4))])
@pytest.mark.parametrize("case", GOLDEN)
def test_golden(case, trained, sizes, interleaved, dtype):
    """Two layers, grouped queries, a channel left over: directions run on from one key head to the next."""
    options, law = GOLDEN[case]
    encoding = made("golden", dtype, head_dim=25, kv_heads=KV_HEADS, layers=2, axes=len(sizes), size=trained,
                    interleaved=interleaved, **options)  # fmt: skip
    waves, positions = golden_waves(KV_HEADS, 12, len(sizes), *law), points("area", sizes, trained)
    q = leaf(BATCH, HEADS, len(positions), 25, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, len(positions), 25, seed=1, dtype=dtype)
    code = encoding(encoding.grid(*sizes, resolution="extrapolate", dtype=dtype))
    ours = [*code[0].qk(q, k), *code[1].qk(q, k)]
    theirs = [turned(x, waves, positions, interleaved) for x in (q, k, q, k)]
    assert_same(ours, theirs, [q, k], law[0] * positions.norm(dim=-1).max().item())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("trained", "sizes"), [((3, 5), (3, 5)), ((3, 5), (4, 7)), ((2, 3, 5), (3, 2, 4))])
@pytest.mark.parametrize(
    ("options", "period"),
    [
        ({}, lambda j, count: 100 ** (j / count)),
        ({"base": 30.0}, lambda j, count: 30 ** (j / count)),
        ({"min_period": 0.5, "max_period": 8.0}, lambda j, count: 0.5 * 16 ** (j / (count - 1))),
    ],
    ids=["by default", "base", "periods"],
)
def test_dinov3(options, period, trained, sizes, interleaved, dtype):
    """Half-split unless told otherwise. Its periods are float32 numbers, so no angle is closer than that."""
    axes = len(sizes)
    layout = {"interleaved": True} if interleaved else {}
    encoding = made("dinov3", dtype, head_dim=26, axes=axes, size=trained, **layout, **options)
    count = 26 // (2 * axes)
    waves = along(concatenated(list(range(axes)), [2 * math.pi / period(j, count) for j in range(count)]), axes)
    positions = points("separate", sizes, trained)
    q, k = (leaf(BATCH, HEADS, len(positions), 26, seed=seed, dtype=dtype) for seed in (0, 1))
    ours = encoding(encoding.grid(*sizes, resolution="extrapolate", dtype=dtype)).qk(q, k)
    theirs = [turned(x, waves, positions, interleaved) for x in (q, k)]
    single = 1e-7 / TOLERANCE[dtype]
    assert_same(ours, theirs, [q, k], 4 * math.pi * positions.abs().max().item() * max(1.0, single))


# Fixed encodings of sequences


def rope_waves(width: int, turns: int, base: float) -> Tensor:
    """The fastest `turns` pairs of a width, the others at rest."""
    frequencies = [base ** (-2 * i / width) if i < turns else 0.0 for i in range(width // 2)]
    return torch.tensor(frequencies, dtype=torch.float64)[None, :, None]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 63, 65])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("base", [10000.0, 500.0])
@pytest.mark.parametrize(
    ("options", "width", "turns"),
    [
        ({"head_dim": 14}, 14, 7),
        ({"head_dim": 7}, 6, 3),
        ({"head_dim": 14, "rotary_dim": 6}, 6, 3),
        ({"head_dim": 14, "rotary_dim": 6, "proportional": True}, 14, 3),
    ],
)
def test_rope(options, width, turns, base, interleaved, length, dtype):
    encoding = made("rope", dtype, base=base, interleaved=interleaved, **options)
    places = torch.stack([torch.arange(length), 3 * torch.arange(length) - 7])
    q, k = (leaf(BATCH, HEADS, length, options["head_dim"], seed=seed, dtype=dtype) for seed in (0, 1))
    theirs = [turned(x, rope_waves(width, turns, base), places[..., None], interleaved) for x in (q, k)]
    assert_same(encoding(places).qk(q, k), theirs, [q, k], places.abs().max().item())


def fading(head_dim: int, gamma: float, scale_base: float) -> Tensor:
    """The logarithm of the gain of each pair for one step."""
    zeta = [(2 * i / (head_dim // 2 * 2) + gamma) / (1 + gamma) for i in range(head_dim // 2)]
    return torch.tensor([math.log(z) / scale_base for z in zeta], dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 63, 65])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(
    ("options", "base", "gamma", "scale_base"),
    [({}, 10000.0, 0.4, 512.0), ({"base": 500.0, "gamma": 0.1, "scale_base": 40.0}, 500.0, 0.1, 40.0)],
    ids=["by default", "other"],
)
@pytest.mark.parametrize("head_dim", [14, 7])
def test_xpos(head_dim, options, base, gamma, scale_base, interleaved, length, dtype):
    """Keys grow as queries fade."""
    encoding = made("xpos", dtype, head_dim=head_dim, interleaved=interleaved, **options)
    places = torch.stack([torch.arange(length), 3 * torch.arange(length) - 7])
    waves, fade = rope_waves(head_dim // 2 * 2, head_dim // 2, base), fading(head_dim, gamma, scale_base)
    q, k = (leaf(BATCH, HEADS, length, head_dim, seed=seed, dtype=dtype) for seed in (0, 1))
    theirs = [turned(x, waves, places[..., None], interleaved, sign * fade) for x, sign in ((q, 1), (k, -1))]
    assert_same(encoding(places).qk(q, k), theirs, [q, k], places.abs().max().item())


@pytest.mark.parametrize("shift", [-300.0, 0.37, 1000.0])
def test_xpos_scores_depend_on_the_distance_alone(shift):
    encoding, places = made("xpos", head_dim=14), 20 * normal(BATCH, 9, 1, seed=2)
    q, k = (normal(BATCH, HEADS, 9, 14, seed=seed) for seed in (0, 1))
    (q1, k1), (q2, k2) = (encoding(places + move).qk(q, k) for move in (0.0, shift))
    assert (q1 - q2).abs().max() > 0.1
    assert_close(q1 @ k1.mT, q2 @ k2.mT, 1000.0)


@pytest.mark.parametrize("interleaved", [True, False])
def test_xpos_that_never_fades_is_rope(interleaved):
    """The larger gamma, the closer is ζ to 1."""
    xpos, rope = (
        made(name, head_dim=14, interleaved=interleaved, **options)
        for name, options in (("xpos", {"gamma": 1e14}), ("rope", {}))
    )
    q, k = (leaf(BATCH, HEADS, 63, 14, seed=seed) for seed in (0, 1))
    assert_same(xpos(torch.arange(63)).qk(q, k), rope(torch.arange(63)).qk(q, k), [q, k], 63.0)


# M-RoPE: one law of frequencies, dealt out to three axes

MROPE = {
    "runs": ({"head_dim": 16, "sections": (3, 4, 1)}, 1e6, [0, 0, 0, 1, 1, 1, 1, 2]),
    "runs, in proportion": ({"head_dim": 16}, 1e6, [0, 0, 1, 1, 1, 2, 2, 2]),
    "runs, another base": ({"head_dim": 16, "base": 50.0}, 50.0, [0, 0, 1, 1, 1, 2, 2, 2]),
    "alternating": ({"head_dim": 17, "variant": "qwen3-vl", "sections": (4, 2, 2)}, 5e6, [0, 1, 2, 0, 1, 2, 0, 0]),
    "alternating, uneven": ({"head_dim": 16, "variant": "qwen3-vl", "sections": (1, 1, 3)}, 5e6, [0, 1, 2, 0, 0, 2, 0, 0]),
    "alternating, in proportion": ({"head_dim": 16, "variant": "qwen3-vl"}, 5e6, [0, 1, 2, 0, 1, 2, 0, 0]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("case", MROPE)
def test_mrope(case, interleaved, dtype):
    options, base, axes = MROPE[case]
    encoding = made("mrope", dtype, interleaved=interleaved, **options)
    waves = along([(axis, base ** (-i / len(axes))) for i, axis in enumerate(axes)], 3)
    positions = points("index", (2, 3, 5), (2, 3, 5)) + torch.tensor([7.0, 3.0, -2.5], dtype=torch.float64)
    q, k = (leaf(BATCH, HEADS, 30, encoding.head_dim, seed=seed, dtype=dtype) for seed in (0, 1))
    ours = encoding(positions.to(dtype)).qk(q, k)
    assert_same(ours, [turned(x, waves, positions, interleaved) for x in (q, k)], [q, k], 8.0)


# Fixed encodings: tokens anywhere, keys elsewhere, and half precision

FIXED = {
    "golden": ({"head_dim": 13}, lambda: golden_waves(KV_HEADS, 6, 2, 20.0, 0.2, 0)),
    "golden, fewer frequencies": (
        {"head_dim": 13, "fastest": 8.0, "slowest": 2.0, "frequencies": 3},
        lambda: golden_waves(KV_HEADS, 6, 2, 1.0, 1.0, 0) * torch.tensor([2.0, 2, 4, 4, 8, 8], dtype=torch.float64)[:, None],
    ),
    "golden, 3 axes": ({"head_dim": 13, "axes": 3}, lambda: golden_waves(KV_HEADS, 6, 3, 20.0, 0.2, 0)),
    "dinov3": ({"head_dim": 13, "base": 16.0, "interleaved": True},
               lambda: along(concatenated([0, 1], [2 * math.pi / p for p in (1.0, 16 ** (1 / 3), 16 ** (2 / 3))]), 2)),
    "mrope": ({"head_dim": 12, "sections": (1, 2, 3), "base": 100.0, "interleaved": True},
              lambda: along(list(zip([0, 1, 1, 2, 2, 2], [100 ** (-i / 6) for i in range(6)], strict=True)), 3)),
    "xpos": ({"head_dim": 13}, lambda: rope_waves(12, 6, 10000.0)),
}  # fmt: skip


def anywhere(case: str, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """What two layers make of grouped queries and keys at fractional positions of each sample's own; theirs; leaves."""
    options, waves_of = FIXED[case]
    wide = torch.promote_types(dtype, torch.float32)
    encoding = made(case.split(",")[0], wide, kv_heads=KV_HEADS, layers=2, **options)
    q = leaf(BATCH, HEADS, 7, encoding.head_dim, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 9, encoding.head_dim, seed=1, dtype=dtype)
    places = [leaf(BATCH, n, encoding.axes, seed=seed, dtype=wide) for n, seed in ((7, 2), (9, 3))]
    code, ours, theirs = encoding(*places), [], []
    for layer in range(2):
        ours += code[layer].qk(q, k)
        for x, p, sign in zip((q, k), places, (1, -1), strict=True):
            fade = sign * fading(13, 0.4, 512.0) if case == "xpos" else None
            theirs.append(turned(x, waves_of(), p, True, fade))
    return ours, theirs, [q, k, *places]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", FIXED)
def test_fixed_waves_anywhere(case, dtype):
    """Gradients of the positions too. DINOv3's periods are float32 numbers, whatever the rest is."""
    ours, theirs, leaves = anywhere(case, dtype)
    single = 1e-7 / TOLERANCE[dtype] if case == "dinov3" else 1.0
    assert_same(ours, theirs, leaves, 4 * FIXED[case][1]().norm(dim=-1).max().item() * max(1.0, single))


@pytest.mark.parametrize("case", FIXED)
def test_fixed_waves_of_half_precision(case):
    """Turned in float32, by angles of as much as 60 rad, and rounded once."""
    ours, theirs, _ = anywhere(case, torch.bfloat16)
    for actual, expected in zip(ours, theirs, strict=True):
        assert actual.dtype is torch.bfloat16
        torch.testing.assert_close(actual.double(), expected, rtol=2**-8, atol=1e-5)


# Learned encodings: parameters by layer and key head, tokens anywhere, keys elsewhere


def rope_of(frequency: Tensor) -> Tensor:
    return frequency.unsqueeze(-1)


def axial_of(order: str, columns_first: bool):
    def waves(frequency: Tensor) -> Tensor:
        """Frequencies (h A F) of each axis to wave vectors (h P A)."""
        _, axes, count = frequency.shape
        axis_order = list(range(axes))[:: -1 if columns_first else 1]
        pairs = [(a, j) for a in axis_order for j in range(count)]
        pairs = pairs if order == "concatenated" else [(a, j) for j in range(count) for a in axis_order]
        units = torch.eye(axes, dtype=torch.float64)
        return torch.stack([frequency[:, a, j, None] * units[a] for a, j in pairs], dim=1)

    return waves


def mixed_of(wave: Tensor) -> Tensor:
    return wave


LEARNED = {
    "rope": ("rope", {"learned": True, "head_dim": 14}, rope_of),
    "rope-partial": ("rope", {"learned": True, "head_dim": 14, "rotary_dim": 6}, rope_of),
    "axial-heo": ("axial", {"learned": True, "head_dim": 25}, axial_of("concatenated", True)),
    "axial-heo-paper": ("axial", {"learned": True, "head_dim": 24, "variant": "heo-paper"}, axial_of("alternating", True)),
    "axial-eva": ("axial", {"learned": True, "head_dim": 24, "variant": "eva"}, axial_of("concatenated", False)),
    "axial-van-de-geijn": (
        "axial",
        {"learned": True, "head_dim": 24, "variant": "van-de-geijn", "axes": 3},
        axial_of("concatenated", False),
    ),
    "axial-liere": ("axial", {"learned": True, "head_dim": 24, "variant": "liere"}, axial_of("concatenated", False)),
    "axial-comrope": ("axial", {"learned": True, "head_dim": 24, "variant": "comrope"}, axial_of("alternating", False)),
    "mixed-heo": ("mixed", {"head_dim": 12}, mixed_of),
    "mixed-van-de-geijn": ("mixed", {"head_dim": 13, "variant": "van-de-geijn", "axes": 3}, mixed_of),
    "mixed-liere": ("mixed", {"head_dim": 12, "variant": "liere", "axes": 1}, mixed_of),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("case", LEARNED)
def test_learned_waves(case, interleaved, dtype):
    """Two layers, grouped queries, fractional positions of each sample's own: gradients of parameters and positions too."""
    name, options, waves_of = LEARNED[case]
    encoding = made(name, dtype, kv_heads=KV_HEADS, layers=2, interleaved=interleaved, **options)
    (parameter,) = encoding.parameters()
    assert parameter.shape[:2] == (2, KV_HEADS)
    q = leaf(BATCH, HEADS, 7, encoding.head_dim, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 9, encoding.head_dim, seed=1, dtype=dtype)
    places = [leaf(BATCH, n, encoding.axes, seed=seed, dtype=dtype) for n, seed in ((7, 2), (9, 3))]
    code, other = encoding(*places), twin(parameter)
    ours, theirs = [], []
    for layer in range(2):
        ours += code[layer].qk(q, k)
        waves = waves_of(other[layer])
        theirs += [turned(x, waves, p, interleaved) for x, p in zip((q, k), places, strict=True)]
    assert_same(ours, theirs, [q, k, *places, (parameter, other)], reach=4.0)


@pytest.mark.parametrize("case", ["rope", "axial-eva", "mixed-heo"])
def test_shared_waves(case):
    name, options, waves_of = LEARNED[case]
    encoding = made(name, shared=True, interleaved=True, **options)
    (parameter,) = encoding.parameters()
    assert len(parameter) == 1
    q, k = (leaf(BATCH, HEADS, 7, encoding.head_dim, seed=seed) for seed in (0, 1))
    places, other = leaf(7, encoding.axes, seed=2), twin(parameter)
    theirs = [turned(x, waves_of(other), places, True) for x in (q, k)]
    assert_same(encoding(places).qk(q, k), theirs, [q, k, places, (parameter, other)])


# How parameters start


@pytest.mark.parametrize(("options", "width", "turns"), [({}, 14, 7), ({"rotary_dim": 6, "proportional": True}, 14, 3)])
def test_learned_rope_starts_as_rope(options, width, turns):
    encoding = rw.create("rope", head_dim=14, heads=HEADS, learned=True, layers=3, **options)
    assert encoding.frequency.shape[-1] == turns
    assert_close(encoding.waves()[..., 0], rope_waves(width, turns, 10000.0)[:, :, 0].expand(3, HEADS, -1))


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS["axial"] if variant != "van-de-geijn"])
def test_learned_axial_starts_as_axial(variant):
    encoding = rw.create("axial", head_dim=24, heads=HEADS, learned=True, variant=variant)
    first_axis = [frequency for axis, frequency in axial_pairs(variant, 24, 2) if axis == 0]
    assert_close(encoding.frequency, torch.tensor(first_axis, dtype=torch.float64).expand(HEADS, 2, -1))


@pytest.mark.parametrize("base", [10.0, 100.0])
@pytest.mark.parametrize("head_dim", [12, 64])
def test_mixed_of_heo_starts_as_axial_in_turned_frames(head_dim, base):
    """Magnitudes base^(-4k/d); the first d/4 pairs look along one direction, the others across it; a frame for each head."""
    torch.manual_seed(0)
    wave = rw.create("mixed", head_dim=head_dim, heads=6, layers=5, base=base).wave.detach()
    assert wave.shape == (5, 6, head_dim // 2, 2)
    quarter = head_dim // 4
    magnitude = torch.tensor([base ** (-4 * k / head_dim) for k in range(quarter)], dtype=torch.float64)
    assert_close(wave.norm(dim=-1), torch.cat([magnitude, magnitude]).expand(5, 6, -1))
    direction = wave / wave.norm(dim=-1, keepdim=True)
    first, second = direction[..., :1, :], direction[..., quarter : quarter + 1, :]
    assert_close(direction[..., :quarter, :], first.expand(5, 6, quarter, 2))
    assert_close(direction[..., quarter:, :], second.expand(5, 6, quarter, 2))
    (row, column), (second_row, second_column) = first.unbind(-1), second.unbind(-1)
    assert_close(torch.stack([second_column, second_row]), torch.stack([-row, column]))  # a quarter turn from x to y
    turn = torch.atan2(first[..., 0, 1], first[..., 0, 0]).flatten()
    assert len(turn.unique()) == 30
    assert len((turn / (math.pi / 2)).floor().unique()) == 4, "every quadrant has a head that looks into it"


@pytest.mark.parametrize(
    ("name", "options", "high"),
    [
        ("mixed", {"variant": "van-de-geijn"}, 1.0),
        ("mixed", {"variant": "liere"}, 2 * math.pi),
        ("axial", {"variant": "van-de-geijn", "learned": True}, 1.0),
    ],
)
def test_uniform_starts(name, options, high):
    torch.manual_seed(0)
    (parameter,) = rw.create(name, head_dim=64, heads=6, layers=5, **options).parameters()
    edges = torch.linspace(0, high, 9)
    counts = torch.histogram(parameter.detach().flatten(), edges)[0]
    assert counts.sum() == parameter.numel(), f"all start in [0, {high}]"
    assert (counts / parameter.numel() - 1 / 8).abs().max() < 0.04, "and evenly so"


# Layouts


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rope", {}),
        ("rope", {"learned": True}),
        ("axial", {}),
        ("axial", {"variant": "heo-paper"}),
        ("uniform", {}),
        ("mixed", {}),
        ("golden", {}),
        ("dinov3", {}),
        ("mrope", {}),
        ("xpos", {}),
    ],
)
def test_layouts_agree_after_permuting_channels(name, options):
    """Channel 2i of the interleaved layout is channel i of the half-split one, 2i + 1 is i + d/2."""
    split, interleaved = (made(name, head_dim=24, interleaved=flag, **options) for flag in (False, True))
    order = torch.cat([torch.arange(0, 24, 2), torch.arange(1, 24, 2)])
    q, k = (leaf(BATCH, HEADS, 15, 24, seed=seed) for seed in (0, 1))
    positions = normal(15, split.axes, seed=2)
    ours = split(positions).qk(q[..., order], k[..., order])
    theirs = [x[..., order] for x in interleaved(positions).qk(q, k)]
    assert_close(ours[0] @ ours[1].mT, theirs[0] @ theirs[1].mT)
    assert_same(ours, theirs, [q, k])
