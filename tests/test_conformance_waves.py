"""Pairs of channels as complex numbers: x + iy at p becomes (x + iy) exp(i w · p), in float64.

Wave vectors and coordinates are written out again from the formulas of the papers and of their published code.
"""

import math

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from reference import assert_close, assert_same, leaf, normal, twin

BATCH, HEADS, KV_HEADS = 2, 4, 2
DTYPES = (torch.float64, torch.float32)


def made(name: str, dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    """An encoding whose parameters, if any, all differ."""
    torch.manual_seed(0)
    encoding = rw.create(name, heads=HEADS, **options).to(dtype)
    for seed, parameter in enumerate(encoding.parameters()):
        parameter.data += 0.1 * normal(*parameter.shape, seed=50 + seed, dtype=dtype)
    return encoding


def turned(x: Tensor, waves: Tensor, positions: Tensor, interleaved: bool) -> Tensor:
    """x (B H N D) with pair t turned by waves (h P A) · positions ([B] N A), each h serving a group of heads."""
    x, positions = x.double(), positions.double()
    waves = waves.repeat_interleave(x.shape[1] // waves.shape[0], dim=0)
    places = positions if positions.ndim == 3 else positions.expand(len(x), *positions.shape)
    angle = torch.einsum("hpa,bna->bhnp", waves, places)
    pairs = waves.shape[1]
    real, imaginary = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    )
    z = torch.complex(x[..., real], x[..., imaginary]) * torch.exp(1j * angle)
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
}
VARIANTS = {name: list(variants) for name, variants in COORDINATES.items()}


def points(convention: str, sizes: tuple[int, ...], trained: tuple[int, ...]) -> Tensor:
    """A grid's points in row-major order, for an encoding trained on another grid."""
    lines = []
    for n, n0 in zip(sizes, trained, strict=True):
        ends = {"pi": (-math.pi * n / n0, math.pi * n / n0), "unit": (0.0, n / n0), "index": (0, n - 1)}
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
    ours = encoding(encoding.grid(*sizes, dtype=dtype)).qk(q, k)
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
    ours = encoding(encoding.grid(*sizes, dtype=dtype)).qk(q, k)
    assert_same(ours, [turned(x, waves, positions, interleaved) for x in (q, k)], [q, k], positions.abs().max().item())


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
