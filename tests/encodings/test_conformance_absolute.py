"""What is added to tokens or logits: sinusoids from their formulas, tables through PyTorch's resampling, ALiBi by hand."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, leaf, normal, twin

BATCH, WIDTH = 2, 24
DTYPES = (torch.float64, torch.float32)


def made(name: str, dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    torch.manual_seed(0)
    encoding = rw.create(name, head_dim=6, heads=4, **options).to(dtype)
    for seed, parameter in enumerate(encoding.parameters()):
        parameter.data = normal(*parameter.shape, seed=50 + seed, dtype=dtype)
    return encoding


# Sinusoids


def vaswani(m: float, width: int, base: float = 10000.0) -> list[float]:
    """PE(m, 2i) = sin(m base^(-2i/D)), PE(m, 2i+1) = cos(m base^(-2i/D))."""
    phases = [m * base ** (-2 * i / width) for i in range(width // 2)]
    return [f(phase) for phase in phases for f in (math.sin, math.cos)]


def mae(point: tuple[int, ...], width: int, base: float) -> list[float]:
    """Axis by axis, the last (columns) first; in each, sines before cosines."""
    count = width // (2 * len(point))
    phases = [[m / base ** (i / count) for i in range(count)] for m in reversed(point)]
    return [f(phase) for axis in phases for f in (math.sin, math.cos) for phase in axis]


def timm(point: tuple[int, ...], width: int, base: float) -> list[float]:
    """Sines of all axes, the first (rows) first, then cosines of all axes."""
    count = width // (2 * len(point))
    phases = [m / base ** (i / count) for m in point for i in range(count)]
    return [*map(math.sin, phases), *map(math.cos, phases)]


def vaswani_by_axis(point: tuple[int, ...], width: int, base: float) -> list[float]:
    return [value for m in point for value in vaswani(m, width // len(point), base)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 63, 65])
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_sincos_of_a_sequence(base, length, dtype):
    encoding = made("sincos", dtype, base=base)
    table = torch.tensor([vaswani(m, WIDTH, base) for m in range(length)], dtype=torch.float64)
    x = leaf(BATCH, length, WIDTH, seed=0, dtype=dtype)
    assert_same(encoding(torch.arange(length)).tokens(x), x.double() + table, [x], length)


def test_sincos_of_samples_and_odd_widths():
    """Per-sample, fractional and negative positions; the channel of an odd width that has no partner gets 0."""
    encoding, positions = made("sincos", width=7), 10 * normal(BATCH, 5, 1, seed=1)
    table = [[[*vaswani(m, 6), 0.0] for m in sample] for sample in positions[..., 0].tolist()]
    x = leaf(BATCH, 5, 7, seed=0)
    assert_same(encoding(positions).tokens(x), x + torch.tensor(table, dtype=torch.float64), [x])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("base", [10000.0, 100.0])
@pytest.mark.parametrize("sizes", [(3, 5), (2, 3, 2)])
@pytest.mark.parametrize(("variant", "embed"), [("mae", mae), ("timm", timm), ("vaswani", vaswani_by_axis)])
def test_sincos_of_a_grid(variant, embed, sizes, base, dtype):
    encoding = made("sincos", dtype, axes=len(sizes), variant=variant, base=base)
    points = list(product(*map(range, sizes)))
    table = torch.tensor([embed(point, WIDTH, base) for point in points], dtype=torch.float64)
    x = leaf(BATCH, len(points), WIDTH, seed=0, dtype=dtype)
    ours = encoding(encoding.grid(*sizes, dtype=dtype)).tokens(x)
    assert_same(ours, x.double() + table, [x], max(sizes))


def test_all_sincos_variants_have_a_reference():
    assert list(rw.SinCos.variants) == ["mae", "timm", "vaswani"]


# Learned tables


def resampled(table: Tensor, sizes: tuple[int, ...], mode: str) -> Tensor:
    """A table (*sizes, C) at another resolution by F.interpolate, as tokens in row-major order.

    PyTorch has bicubic for two axes only. It is separable, so one axis at a time serves any number of them, each
    beside an axis of length 1 that stays so.
    """
    image = table.movedim(-1, 0)[None]
    if mode == "bilinear":
        mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(sizes)]
        image = F.interpolate(image, sizes, mode=mode, align_corners=False)
    elif len(sizes) == 2:
        image = F.interpolate(image, sizes, mode="bicubic", align_corners=False)
    else:
        for axis, n in enumerate(sizes, start=2):
            lines = image.movedim(axis, -1)
            flat = F.interpolate(lines.flatten(0, -2)[None, :, None], (1, n), mode="bicubic", align_corners=False)
            image = flat.unflatten(1, lines.shape[:-1])[0, ..., 0, :].movedim(-1, axis)
    return image[0].flatten(1).T


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        ((7,), (7,)),
        ((7,), (13,)),
        ((7,), (3,)),
        ((1,), (4,)),
        ((3, 5), (3, 5)),
        ((3, 5), (4, 7)),
        ((3, 5), (9, 2)),
        ((3, 5), (1, 1)),
        ((2, 3, 5), (2, 3, 5)),
        ((2, 3, 5), (3, 2, 8)),
    ],
)
def test_learned_table_resized(size, sizes, interpolation, dtype):
    encoding = made("learned-ape", dtype, axes=len(size), size=size, width=7, interpolation=interpolation)
    positions = encoding.grid(*sizes, resolution="rescale", dtype=dtype)
    table = twin(encoding.table)
    x = leaf(BATCH, len(positions), 7, seed=0, dtype=dtype)
    theirs = x.double() + resampled(table, sizes, interpolation)
    assert_same(encoding(positions).tokens(x), theirs, [x, (encoding.table, table)])


def sampled(table: Tensor, positions: Tensor, mode: str) -> Tensor:
    """A table (*sizes, C) read by F.grid_sample at positions (B N A) in entries: -1/2 and n - 1/2 are its edges -1 and 1."""
    sizes = torch.tensor(table.shape[:-1], dtype=torch.float64)
    edges = ((2 * positions.double() + 1) / sizes - 1).flip(-1)  # x first
    points = edges[:, :, None] if len(sizes) == 2 else edges[:, :, None, None]
    image = table.movedim(-1, 0).expand(len(positions), -1, *table.shape[:-1])
    read = F.grid_sample(image, points, mode=mode, padding_mode="border", align_corners=False)
    return read.flatten(2).mT


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("size", "interpolation"), [((3, 5), "bilinear"), ((3, 5), "bicubic"), ((2, 3, 5), "bilinear"), ((1, 5), "bicubic")]
)
def test_learned_table_sampled(size, interpolation, dtype):
    """Anywhere in the table, the half cells at its edges included: gradients of the table and of the positions."""
    encoding = made("learned-ape", dtype, axes=len(size), size=size, width=7, interpolation=interpolation)
    uniform = torch.special.ndtr(normal(BATCH, 65, len(size), seed=1))
    positions = (uniform * torch.tensor(size) - 0.5).to(dtype).requires_grad_()
    table = twin(encoding.table)
    x = leaf(BATCH, 65, 7, seed=0, dtype=dtype)
    theirs = x.double() + sampled(table, positions, interpolation)
    assert_same(encoding(positions).tokens(x), theirs, [x, positions, (encoding.table, table)])


def test_learned_table_clamped():
    encoding = made("learned-ape", size=(3, 5), width=7, outside="clamp")
    positions, table = 10 * normal(BATCH, 65, 2, seed=1), twin(encoding.table)
    x = leaf(BATCH, 65, 7, seed=0)
    theirs = x + sampled(table, positions, "bilinear")
    assert_same(encoding(positions).tokens(x), theirs, [x, (encoding.table, table)])


# ALiBi


def slopes(heads: int) -> list[float]:
    """The rule of the ALiBi paper's code, by recursion."""
    exponent = math.log2(heads)
    if exponent.is_integer():
        first = 2 ** -(2 ** -(exponent - 3))
        return [first * first**i for i in range(heads)]
    lower = 2 ** math.floor(exponent)
    return slopes(lower) + slopes(2 * lower)[::2][: heads - lower]


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 7, 8, 12, 16])
def test_alibi_slopes(heads):
    assert_close(
        rw.create("alibi", head_dim=6, heads=heads).double().slope, torch.tensor(slopes(heads), dtype=torch.float64)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, None), (6, 3), (12, 4)])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_alibi_between_points(axes, heads, kv_heads, dtype):
    """Minus slope times the Euclidean distance, for each head, query and key in turn."""
    encoding = rw.create("alibi", head_dim=6, heads=heads, kv_heads=kv_heads, axes=axes).to(dtype)
    queries, keys = (leaf(BATCH, n, axes, seed=seed, dtype=dtype) for n, seed in ((5, 0), (3, 1)))
    q, k = normal(BATCH, heads, 5, 6, seed=2, dtype=dtype), normal(BATCH, kv_heads or heads, 3, 6, seed=3, dtype=dtype)
    pairs = product(range(BATCH), slopes(heads), range(5), range(3))
    theirs = [-slope * torch.linalg.vector_norm(queries[b, i].double() - keys[b, j].double()) for b, slope, i, j in pairs]
    theirs = torch.stack(theirs).reshape(BATCH, heads, 5, 3)
    assert_same(encoding(queries, keys).scores(q, k), theirs, [queries, keys])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alibi_of_a_grid(dtype):
    """In patches; a token is at 0 from itself, and stays there to first order when it moves."""
    encoding = rw.create("alibi", head_dim=6, heads=6, axes=2).to(dtype)
    places = encoding.grid(3, 5, dtype=dtype).requires_grad_()
    patches = list(product(range(3), range(5)))
    q, k = (normal(BATCH, 6, 15, 6, seed=seed, dtype=dtype) for seed in (0, 1))
    ours = encoding(places).scores(q, k)
    by_hand = [[[-slope * math.dist(p, q) for q in patches] for p in patches] for slope in slopes(6)]
    assert_close(ours, torch.tensor(by_hand, dtype=torch.float64).expand_as(ours))
    distance = torch.linalg.vector_norm(places.double()[:, None] - places.double(), dim=-1)  # its gradient at 0 is 0
    assert_same(ours, torch.stack([-slope * distance for slope in slopes(6)]).expand_as(ours), [places])


def croma(sizes: tuple[int, int], heads: int) -> Tensor:
    """The bias of CROMA's file, (H, 1 + n, 1 + n): patches by their distance, zeros before them for the class token."""
    patches, tokens = list(product(*map(range, sizes))), 1 + math.prod(sizes)
    bias = torch.zeros(heads, tokens, tokens, dtype=torch.float64)
    for head, (i, p), (j, q) in product(range(heads), enumerate(patches, start=1), enumerate(patches, start=1)):
        bias[head, i, j] = -slopes(heads)[head] * math.hypot(p[0] - q[0], p[1] - q[1])
    return bias


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, None), (4, 2)])
@pytest.mark.parametrize("sizes", [(3, 5), (1, 7), (1, 1)])
def test_alibi_with_a_class_token(sizes, heads, kv_heads, dtype):
    """Scores, whatever q's dtype, and attention with them: the class token sees all patches, and is seen, as they are."""
    encoding = rw.create("alibi", head_dim=6, heads=heads, kv_heads=kv_heads, axes=2, layers=2).to(dtype)
    code, tokens = encoding(encoding.grid(*sizes)).prefixed(q=1, k=1)[1], 1 + math.prod(sizes)
    q = leaf(BATCH, heads, tokens, 6, seed=0, dtype=dtype)
    k, v = (leaf(BATCH, kv_heads or heads, tokens, 6, seed=seed, dtype=dtype) for seed in (1, 2))
    for kind in (dtype, torch.bfloat16):
        assert_close(code.scores(q.to(kind), k.to(kind)), croma(sizes, heads))
    keys, values = (x.double().repeat_interleave(heads // x.shape[1], dim=1) for x in (k, v))
    probabilities = (q.double() @ keys.mT / math.sqrt(6) + croma(sizes, heads)).softmax(-1)
    assert_same(rw.attend(q, k, v, code), probabilities @ values, [q, k, v], 4.0)
