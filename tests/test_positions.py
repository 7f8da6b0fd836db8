"""Builders of positions and their augmentation, against the papers' formulas written out and against laws of chance."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

from ropewalk import positions as places

EXACT = {"rtol": 0, "atol": 1e-14}  # float64 arithmetic
SINGLE = {"rtol": 1e-6, "atol": 1e-6}  # float32 arithmetic
DRAWS = 40_000  # of a law of chance; deviations below 4.5 standard errors pass
SIZES = [(7,), (1,), (3, 5), (5, 3), (1, 4), (4, 1), (1, 1), (2, 3, 4), (3, 1, 2)]
OTHER = {(7,): (4,), (1,): (5,), (3, 5): (4, 7), (5, 3): (2, 9), (1, 4): (3, 2), (4, 1): (6, 1), (1, 1): (2, 3)}
OTHER |= {(2, 3, 4): (3, 2, 8), (3, 1, 2): (1, 2, 3)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def points(batch=None, dtype=torch.float64):
    """A cloud of points (N, 2) or (B, N, 2) that is no grid, none of them near zero."""
    shape = (6, 2) if batch is None else (batch, 6, 2)
    return 1.0 + torch.rand(shape, dtype=dtype, generator=generator(99))


def largest_gap(draws, law):
    """Kolmogorov and Smirnov's statistic times √n; above 1.95 once in a thousand tries if the law is right."""
    draws = np.sort(np.asarray(draws, dtype=np.float64).ravel())
    below = np.array([law(x) for x in draws])
    steps = np.arange(len(draws) + 1) / len(draws)
    return max(np.abs(below - steps[:-1]).max(), np.abs(below - steps[1:]).max()) * math.sqrt(len(draws))


def normal_law(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


# Sequences


@pytest.mark.parametrize(("n", "start"), [(0, 0), (1, 0), (5, 0), (4, 7), (3, -2), (np.int64(3), np.int64(1))])
def test_sequence(n, start):
    place = places.sequence(n, start)
    assert place.tolist() == [start + i for i in range(n)]
    assert place.dtype is torch.int64


@pytest.mark.parametrize("lengths", [[], [0], [4], [3, 0, 2], [1, 1, 5]])
def test_packed_sequences_each_count_from_zero(lengths):
    place, member = places.packed(lengths), places.segments(lengths)
    assert place.tolist() == [i for length in lengths for i in range(length)]
    assert member.tolist() == [which for which, length in enumerate(lengths) for _ in range(length)]
    assert place.dtype is member.dtype is torch.int64


def test_segments_keep_packed_sequences_apart():
    member = places.segments([2, 3])
    first, second = [True, True, False, False, False], [False, False, True, True, True]
    assert (member[:, None] == member).tolist() == [first, first, second, second, second]


# Texts and images in a row


def counted(parts, interval=1.0, resume="largest"):
    """The rule of Qwen2-VL, token by token: (time, row, column) of each."""
    ids, start = [], 0
    for part in parts:
        if isinstance(part, tuple):
            frames, rows, columns = part
            for frame, row, column in itertools.product(range(frames), range(rows), range(columns)):
                ids.append((start + int(frame * interval), start + row, start + column))
            start = max(map(max, ids)) + 1 if resume == "largest" else start + max(rows, columns)
        else:
            ids += [(start + m,) * 3 for m in range(part)]
            start += part
    return ids


@pytest.mark.parametrize("resume", ["largest", "side"])
@pytest.mark.parametrize("interval", [1.0, 0.4, 2.5, 50.0])
@pytest.mark.parametrize(
    "parts",
    [
        (5,),
        ((1, 3, 5),),
        (4, (1, 3, 5), 2, (4, 2, 3), 6),
        ((7, 2, 1), (1, 1, 1), (1, 5, 3), 1),
        (0, (2, 3, 2), 0, 3),
    ],
    ids=str,
)
def test_mrope_counts_on_after_an_image(parts, interval, resume):
    ids = places.mrope(*parts, interval=interval, resume=resume)
    assert ids.dtype is torch.float32
    assert ids.tolist() == [list(row) for row in counted(parts, interval, resume)]


def test_mrope_resumes_beyond_the_largest_id_unless_told_otherwise():
    assert torch.equal(places.mrope(2, (5, 2, 3), 3), places.mrope(2, (5, 2, 3), 3, resume="largest"))


def test_mrope_of_nothing_and_of_other_numbers():
    assert places.mrope().shape == places.mrope(0, 0).shape == (0, 3)
    assert places.mrope(3, (1, 2, 3), dtype=torch.float64).dtype is torch.float64
    given = places.mrope(np.int64(3), [1, np.int64(2), 3], np.int64(1))
    assert torch.equal(given, places.mrope(3, (1, 2, 3), 1))


@pytest.mark.parametrize(
    "build",
    [
        lambda **kw: places.sequence(3, **kw),
        lambda **kw: places.packed([2, 1], **kw),
        lambda **kw: places.segments([], **kw),
        lambda **kw: places.grid(3, 5, **kw),
        lambda **kw: places.mrope(3, (2, 3, 5), 1, **kw),
        lambda **kw: places.mrope(3, (2, 3, 5), 1, resume="side", **kw),
    ],
)
def test_builders_heed_the_device(build):
    assert build().device.type == "cpu"
    assert build(device="meta").device.type == "meta"


# Grids


def own_size(coordinates, n, side):
    """One axis of n patches as the convention's paper defines it; `side` is the side that it divides by."""
    return {
        "index": lambda i: float(i),
        "centre": lambda i: (i + 0.5) / n,
        "separate": lambda i: 2 * ((i + 0.5) / side) - 1,
        "longer": lambda i: 2 * ((i + 0.5) / side) - 1,
        "shorter": lambda i: 2 * ((i + 0.5) / side) - 1,
        "pi": lambda i: np.linspace(-math.pi, math.pi, n)[i] if n > 1 else 0.0,
        "unit": lambda i: np.linspace(0, 1, n)[i],
        "area": lambda i: np.linspace(-side, side, n)[i] if n > 1 else 0.0,
    }[coordinates]


def extrapolated(coordinates, n, side, ref, ref_side):
    """The same beyond the reference's size: what the paper does, or the reference's step from a centre that stays."""
    return {
        "index": lambda i: float(i),
        "centre": lambda i: (i + 0.5) / ref,
        "separate": lambda i: (i - (side - 1) / 2) * (2 / ref_side),
        "longer": lambda i: (i - (side - 1) / 2) * (2 / ref_side),
        "shorter": lambda i: (i - (side - 1) / 2) * (2 / ref_side),
        "pi": lambda i: np.linspace(-math.pi * n / ref, math.pi * n / ref, n)[i] if n > 1 else 0.0,
        "unit": lambda i: np.linspace(0, n / ref, n)[i],
        "area": lambda i: np.linspace(-ref_side * n / ref, ref_side * n / ref, n)[i] if n > 1 else 0.0,
    }[coordinates]


def side_of(coordinates, sizes, axis):
    share = sizes[axis] / math.exp(sum(map(math.log, sizes)) / len(sizes))
    return {"longer": max(sizes), "shorter": min(sizes), "area": share}.get(coordinates, sizes[axis])


def in_row_major_order(sizes, rules):
    rows = itertools.product(*(range(n) for n in sizes))
    return torch.tensor([[rule(i) for rule, i in zip(rules, row, strict=True)] for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("coordinates", places.CONVENTIONS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_grid_follows_the_paper_at_its_own_size(sizes, coordinates):
    rules = [own_size(coordinates, n, side_of(coordinates, sizes, axis)) for axis, n in enumerate(sizes)]
    want = in_row_major_order(sizes, rules)
    for resolution in ("extrapolate", "rescale"):
        got = places.grid(*sizes, coordinates=coordinates, resolution=resolution, dtype=torch.float64)
        torch.testing.assert_close(got, want, **EXACT)
    given = places.grid(*sizes, coordinates=coordinates, reference=sizes, dtype=torch.float64)
    torch.testing.assert_close(given, want, **EXACT)


@pytest.mark.parametrize("coordinates", places.CONVENTIONS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_grid_beyond_the_reference(sizes, coordinates):
    reference = OTHER[sizes]
    sides = [(side_of(coordinates, sizes, a), side_of(coordinates, reference, a)) for a in range(len(sizes))]
    rules = [
        extrapolated(coordinates, n, side, ref, ref_side)
        for n, ref, (side, ref_side) in zip(sizes, reference, sides, strict=True)
    ]
    options = {"coordinates": coordinates, "reference": reference, "dtype": torch.float64}
    got = places.grid(*sizes, resolution="extrapolate", **options)
    torch.testing.assert_close(got, in_row_major_order(sizes, rules), **EXACT)


@pytest.mark.parametrize("coordinates", places.CONVENTIONS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_grid_within_the_reference(sizes, coordinates):
    """Rescaled, a normalising convention forgets the reference; indices lie where the reference's patches would."""
    reference = OTHER[sizes]
    rules = [own_size(coordinates, n, side_of(coordinates, sizes, axis)) for axis, n in enumerate(sizes)]
    if coordinates == "index":
        rules = [lambda i, n=n, ref=ref: (i + 0.5) * ref / n - 0.5 for n, ref in zip(sizes, reference, strict=True)]
    got = places.grid(*sizes, coordinates=coordinates, reference=reference, resolution="rescale", dtype=torch.float64)
    torch.testing.assert_close(got, in_row_major_order(sizes, rules), **EXACT)


@pytest.mark.parametrize("coordinates", places.CONVENTIONS)
def test_by_default_images_are_rescaled_and_nothing_else(coordinates):
    options = {"coordinates": coordinates, "dtype": torch.float64}
    for sizes, reference in (((6, 11), (3, 5)), ((2, 3), (3, 5)), ((4, 6, 11), (4, 3, 5))):
        extrapolated, rescaled = (
            places.grid(*sizes, reference=reference, resolution=mode, **options) for mode in places.RESOLUTIONS
        )
        assert (rescaled - extrapolated).abs().max() > 0.1
        with pytest.warns(FutureWarning, match=r"rescaled by default.*resolution='extrapolate' for the old"):
            assert torch.equal(places.grid(*sizes, reference=reference, **options), rescaled)
    for sizes, reference in (((9,), (4,)), ((3, 5), (3, 5)), ((3, 5), None), ((4, 3, 5), (4, 3, 5))):  # without a warning
        wanted = places.grid(*sizes, reference=reference, resolution="extrapolate", **options)
        assert torch.equal(places.grid(*sizes, reference=reference, **options), wanted)


def test_each_axis_can_have_a_resolution_of_its_own():
    clip = {"reference": (4, 3, 5), "dtype": torch.float64}
    both = [places.grid(8, 6, 11, resolution=mode, **clip) for mode in ("extrapolate", "rescale")]
    mixed = places.grid(8, 6, 11, resolution=("extrapolate", "rescale", "rescale"), **clip)
    assert torch.equal(mixed, torch.cat([both[0][:, :1], both[1][:, 1:]], dim=1))
    assert torch.equal(mixed, places.grid(8, 6, 11, resolution=["extrapolate", "rescale", "rescale"], **clip))


def test_the_new_default_is_warned_of_once_a_process():
    """As Python shows warnings by default: one of the same text from the same line is shown once."""
    code = """
import ropewalk as rw
for sizes in ((6, 5), (7, 9)):
    rw.positions.grid(*sizes, reference=(3, 5))
    rw.create("axial", head_dim=8, size=(3, 5)).grid(*sizes)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert shown.count("FutureWarning: images") == 1


@pytest.mark.parametrize("coordinates", ["index", "centre", "separate", "longer", "shorter"])
def test_extrapolating_keeps_the_distance_between_patches(coordinates):
    options = {"coordinates": coordinates, "reference": (3, 5), "resolution": "extrapolate", "dtype": torch.float64}
    small, large = (places.grid(*sizes, **options).unflatten(0, sizes) for sizes in ((3, 5), (6, 11)))
    torch.testing.assert_close(large[1, 1] - large[0, 0], small[1, 1] - small[0, 0], **EXACT)


def test_grid_is_row_major_with_the_row_first():
    grid = places.grid(3, 5)
    assert grid.shape == (15, 2)
    for row, column in itertools.product(range(3), range(5)):
        assert grid[row * 5 + column].tolist() == [row, column]
    frame, row, column = 1, 2, 3
    assert places.grid(2, 3, 4)[(frame * 3 + row) * 4 + column].tolist() == [frame, row, column]


@pytest.mark.parametrize(
    ("coordinates", "divisors"),
    [("separate", (3, 5)), ("longer", (5, 5)), ("shorter", (3, 3))],
    ids=["separate", "max", "min"],
)
def test_dinov3(coordinates, divisors):
    """Centres over a side, mapped from [0, 1] to [-1, 1]; the code's names for the sides are separate, max and min."""
    rows, columns = np.arange(0.5, 3) / divisors[0], np.arange(0.5, 5) / divisors[1]
    want = 2.0 * np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(15, 2) - 1.0
    torch.testing.assert_close(
        places.grid(3, 5, coordinates=coordinates, dtype=torch.float64), torch.from_numpy(want), **EXACT
    )


@pytest.mark.parametrize("steps", [14, 20, 28])
def test_liere(steps):
    line = places.grid(steps, coordinates="unit", reference=(14,), dtype=torch.float64).flatten()
    torch.testing.assert_close(line, torch.linspace(0, steps / 14, steps, dtype=torch.float64), **EXACT)


@pytest.mark.parametrize(("patches", "trained"), [(14, 14), (16, 14), (12, 14)])
def test_van_de_geijn(patches, trained):
    options = {"coordinates": "pi", "reference": (trained, trained), "resolution": "extrapolate"}
    grid = places.grid(patches, patches, dtype=torch.float64, **options)
    reach = patches / trained * math.pi
    want = torch.tensor([[-reach, -reach], [reach, reach]], dtype=torch.float64)
    torch.testing.assert_close(grid[[0, -1]], want, **EXACT)
    assert grid.diff(dim=0)[: patches - 2, 1].std() < 1e-14  # evenly spaced


@pytest.mark.parametrize("sizes", [(3, 5), (14, 14), (2, 50), (2, 3, 5)], ids=str)
def test_xiong(sizes):
    """x from -√(w/h) to √(w/h), y from -√(h/w) to √(h/w): an image of area 4, whatever its shape."""
    grid = places.grid(*sizes, coordinates="area", dtype=torch.float64)
    extent = grid.amax(0) - grid.amin(0)
    assert extent.prod().item() == pytest.approx(2 ** len(sizes), rel=1e-14)
    torch.testing.assert_close(extent / extent[0], torch.tensor(sizes) / torch.tensor(sizes[0]).double(), **EXACT)
    if len(sizes) == 2:
        height, width = sizes
        assert grid[-1].tolist() == pytest.approx([math.sqrt(height / width), math.sqrt(width / height)], rel=1e-14)


@pytest.mark.parametrize("sizes", [(3, 5), (6, 7), (9, 4), (1, 2)], ids=str)
def test_rescaled_indices_are_where_interpolation_reads(sizes):
    """Bilinear samples of a table, read by hand at the grid's points, are PyTorch's interpolation of it."""
    table = torch.randn(4, 6, dtype=torch.float64, generator=generator())
    grid = places.grid(*sizes, reference=(4, 6), resolution="rescale", dtype=torch.float64)
    samples = []
    for point in grid.tolist():
        total = 0.0
        for row, column in itertools.product(range(4), range(6)):
            held = [min(max(x, 0.0), last) for x, last in zip(point, (3.0, 5.0), strict=True)]
            weight = max(0.0, 1 - abs(held[0] - row)) * max(0.0, 1 - abs(held[1] - column))
            total += weight * table[row, column].item()
        samples.append(total)
    want = F.interpolate(table[None, None], size=sizes, mode="bilinear", align_corners=False).flatten()
    torch.testing.assert_close(torch.tensor(samples, dtype=torch.float64), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("coordinates", places.CONVENTIONS)
@pytest.mark.parametrize("resolution", ["extrapolate", "rescale"])
@pytest.mark.parametrize("sizes", [(0,), (0, 5), (3, 0), (2, 0, 4)], ids=str)
def test_an_empty_grid(sizes, resolution, coordinates):
    for reference in (None, (2, 3, 4)[: len(sizes)]):
        grid = places.grid(*sizes, coordinates=coordinates, reference=reference, resolution=resolution)
        assert grid.shape == (0, len(sizes))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("coordinates", places.CONVENTIONS)
def test_grid_is_as_exact_as_its_dtype(dtype, coordinates):
    options = {"coordinates": coordinates, "reference": (30, 5), "resolution": "rescale"}
    exact = places.grid(37, 3, dtype=torch.float64, **options)
    grid = places.grid(37, 3, dtype=dtype, **options)
    assert grid.dtype is dtype
    # Rounded once from float32 arithmetic, or in float32 arithmetic.
    slack = 0.5 * torch.finfo(dtype).eps if dtype in (torch.bfloat16, torch.float16) else 0.0
    error = (grid.double() - exact).abs()
    assert (error <= exact.abs() * slack + 37 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps).all()


def test_default_dtype_of_a_grid_is_single_precision():
    assert places.grid(3, 5).dtype is torch.float32
    torch.testing.assert_close(places.grid(3, 5, coordinates="pi")[-1], torch.tensor([math.pi, math.pi]), **SINGLE)


@pytest.mark.parametrize("coordinates", places.CONVENTIONS)
def test_grid_compiles_for_any_size(coordinates):
    def both(image):
        options = {"coordinates": coordinates, "reference": (4, 7)}
        return [places.grid(*image.shape, resolution=mode, **options) + 0 for mode in ("extrapolate", "rescale")]

    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(both, fullgraph=True, backend=counter)
    for sizes in [(3, 5), (6, 9), (10, 4), (5, 31)]:
        image = torch.empty(sizes)
        torch.testing.assert_close(compiled(image), both(image), **SINGLE)
    assert counter.frame_count <= 2


def test_grid_compiles_with_sizes_unknown_from_the_start():
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    build = torch.compile(
        lambda image: places.grid(*image.shape, coordinates="longer") + 0, fullgraph=True, dynamic=True, backend=counter
    )
    for sizes in [(3, 5), (6, 9), (10, 4)]:
        torch.testing.assert_close(build(torch.empty(sizes)), places.grid(*sizes, coordinates="longer"), **SINGLE)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: places.sequence(-1), r"n.*0, got -1"),
        (lambda: places.sequence(2.5), r"n must be an integer.*got 2\.5"),
        (lambda: places.sequence(2, start=0.5), r"start.*got 0\.5"),
        (lambda: places.packed([3, -1]), r"lengths.*0, got -1"),
        (lambda: places.packed([3, 1.0]), r"lengths.*got 1\.0"),
        (lambda: places.segments([3, -1]), r"lengths.*0, got -1"),
        (lambda: places.mrope(3, (1, 2)), r"\(frames.*columns\), got \(1, 2\)"),
        (lambda: places.mrope(3, (0, 2, 2)), r"parts must be a positive integer, got 0"),
        (lambda: places.mrope(3, (1, 2, 2.5)), r"parts.*got 2\.5"),
        (lambda: places.mrope(-1), r"parts.*0, got -1"),
        (lambda: places.mrope(True), r"parts.*got True"),
        (lambda: places.mrope(2.5), r"got 2\.5"),
        (lambda: places.mrope((2, 2, 2), interval=-1.0), r"interval.*0, got -1\.0"),
        (lambda: places.mrope((2, 2, 2), interval=math.nan), r"interval.*0, got nan"),
        (lambda: places.mrope(2, resume="later"), r"resume 'later'.*largest, side"),
        (lambda: places.grid(), "one size, got none"),
        (lambda: places.grid(3, -5), r"sizes.*0, got -5"),
        (lambda: places.grid((3, 5)), r"sizes.*got \(3, 5\)"),
        (lambda: places.grid(3.0, 5), r"sizes.*got 3\.0"),
        (lambda: places.grid(True, 5), r"sizes.*got True"),
        (lambda: places.grid(3, 5, coordinates="pixels"), r"coordinates 'pixels'.*index, centre, .*area"),
        (lambda: places.grid(3, 5, resolution="crop"), r"resolution 'crop'.*extrapolate, rescale"),
        (lambda: places.grid(3, 5, resolution=("rescale",)), r"resolution.*2 axes, got \('rescale',\)"),
        (lambda: places.grid(3, 5, resolution=("rescale", "crop")), r"resolution 'crop'.*extrapolate, rescale"),
        (
            lambda: places.grid(2, 3, 5, reference=(4, 3, 5)),
            r"first of 3 axes.*2 in place of 4.*'rescale' for depth.*for time",
        ),
        (lambda: places.grid(3, 5, reference=(3,)), r"2 sizes, got \(3,\)"),
        (lambda: places.grid(3, 5, reference=(3, 0)), r"reference.*positive.*got 0"),
        (lambda: places.grid(3, 5, reference=(3, 5.5)), r"reference.*got 5\.5"),
        (lambda: places.grid(3, 5, dtype=torch.int64), r"got torch\.int64"),
    ],
)
def test_builders_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# What an encoding reads


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers_gain_an_axis(dtype):
    assert places.as_coordinates("positions", torch.arange(3).to(dtype), 1).tolist() == [[0], [1], [2]]
    assert places.as_coordinates("positions", torch.zeros(2, 3, dtype=dtype), 1).shape == (2, 3, 1)


@pytest.mark.parametrize("shape", [(6, 2), (4, 6, 2), (0, 2)])
def test_floats_pass(shape):
    given = torch.zeros(shape)
    assert places.as_coordinates("positions", given, 2) is given


@pytest.mark.parametrize(
    ("given", "axes", "message"),
    [
        (torch.arange(3), 2, r"encoding.*2.*\(N, 2\)"),
        (torch.zeros(2, 3, 1, dtype=torch.int64), 1, r"\(N,\).*\(B, N\), got \(2, 3, 1\)"),
        (torch.zeros(3), 1, r"\(N, 1\).*\(B, N, 1\), got \(3,\)"),
        (torch.zeros(3, 2), 3, r"\(N, 3\).*\(B, N, 3\), got \(3, 2\)"),
        (torch.zeros(1, 2, 3, 2), 2, r"got \(1, 2, 3, 2\)"),
        (torch.zeros(3, 2, dtype=torch.bool), 2, r"got torch\.bool"),
        (torch.zeros(3, 2, dtype=torch.complex64), 2, r"got torch\.complex64"),
        (torch.tensor([[0.0, math.nan]]), 2, r"finite, got 1.*of 2"),
        (torch.tensor([[-math.inf, math.nan]]), 2, r"finite, got 2.*of 2"),
    ],
)
def test_what_an_encoding_refuses(given, axes, message):
    with pytest.raises(ValueError, match=message):
        places.as_coordinates("places", given, axes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2], ids=str)
def test_positions_that_were_cast_are_refused(dtype):
    with pytest.raises(ValueError, match=rf"floating places.*float32, got {dtype}.*cast_forward_inputs=False"):
        places.as_coordinates("places", torch.zeros(3, 2).to(dtype), 2)


class Marked(torch.Tensor):
    """A subclass that leaves dispatching to PyTorch."""


@pytest.mark.parametrize("kind", [torch.nn.Parameter, lambda x: x.as_subclass(Marked)], ids=["parameter", "subclass"])
def test_nan_is_seen_in_parameters_and_subclasses(kind):
    with pytest.raises(ValueError, match="finite, got 1"):
        places.as_coordinates("places", kind(torch.tensor([[0.0, math.nan]])), 2)


def test_values_of_fake_tensors_are_not_looked_at():
    with FakeTensorMode():
        given = torch.zeros(3, 2)
        assert places.as_coordinates("places", given, 2) is given


def test_validate_passes_finite_positions_and_integers():
    for given in (torch.zeros(3, 2), torch.arange(3), torch.zeros(0, 2)):
        assert places.validate(given) is given


# Augmentation

MOVES = {
    "perturb": lambda p, g=None: places.perturb(p, 0.5, sigma=0.7, generator=g),
    "perturb-code": lambda p, g=None: places.perturb(p, 0.5, sigma=0.7, variant="code", generator=g),
    "offset": lambda p, g=None: places.offset(p, 0.3, generator=g),
    "shift": lambda p, g=None: places.shift(p, 0.3, generator=g),
    "jitter": lambda p, g=None: places.jitter(p, 2.0, generator=g),
    "rescale": lambda p, g=None: places.rescale(p, 2.0, generator=g),
}
STRETCHES = ("jitter", "rescale")
move = pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)


@move
@pytest.mark.parametrize("batch", [None, 3])
def test_draws_come_from_the_generator_alone(move, batch):
    given = points(batch)
    kept, state = given.clone(), torch.get_rng_state()
    first, again, other = move(given, generator(1)), move(given, generator(1)), move(given, generator(2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first, other)
    assert first.shape == given.shape
    assert first.dtype is given.dtype
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(given, kept)


@move
def test_draws_come_from_the_global_generator_otherwise(move):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        first, second = move(points()), move(points())
        torch.manual_seed(5)
        torch.testing.assert_close(move(points()), first, rtol=0, atol=0)
    assert not torch.equal(first, second)


@move
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_drawn_and_moved_in_single(move, dtype):
    """The same draws as in float32, rounded once at the end."""
    given = points(50, torch.float32).to(dtype)
    torch.testing.assert_close(move(given, generator()), move(given.float(), generator()).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("name", MOVES)
def test_moved_positions_are_differentiable(name):
    given = points().requires_grad_()
    moved = MOVES[name](given, generator())
    (slope,) = torch.autograd.grad(moved.sum(), given)
    stretched = name in STRETCHES
    torch.testing.assert_close(slope, moved.detach() / given.detach() if stretched else torch.ones_like(slope), **EXACT)


@move
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_positions_to_move_must_be_finite(move, bad):
    given = points()
    given[1, 1] = bad
    with pytest.raises(ValueError, match=r"finite, got 1.*of 12"):
        move(given)


@move
@pytest.mark.parametrize("given", [torch.arange(4), torch.zeros(4), torch.zeros(1, 1, 4, 2)], ids=["integer", "1d", "4d"])
def test_only_points_can_be_moved(move, given):
    with pytest.raises(ValueError, match=r"\(N, axes\).*\(B, N, axes\), got torch\.") as caught:
        move(given)
    assert str(tuple(given.shape)) in str(caught.value)


def test_moves_compile():
    compiled = torch.compile(lambda p: [move(p) for move in MOVES.values()], fullgraph=True, backend="aot_eager")
    assert all(moved.shape == (6, 2) for moved in compiled(points()))


@pytest.mark.parametrize(
    "still",
    [
        lambda p: places.perturb(p, 2.0, sigma=0.0),
        lambda p: places.perturb(p, 2.0, sigma=0.0, variant="code"),
        lambda p: places.perturb(p, 0.0),
        lambda p: places.offset(p, 0.0),
        lambda p: places.shift(p, 0.0),
        lambda p: places.jitter(p, 1.0),
        lambda p: places.rescale(p, 1.0),
    ],
)
def test_nothing_moves_at_zero_strength(still):
    assert torch.equal(still(points()), points())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: places.perturb(p, 1.0, sigma=-1.0), r"sigma.*0.*got -1\.0"),
        (lambda p: places.perturb(p, 1.0, sigma=math.nan), r"sigma.*0.*got nan"),
        (lambda p: places.perturb(p, 1.0, sigma=math.inf), r"sigma.*0.*got inf"),
        (lambda p: places.perturb(p, 1.0, variant="clipped"), r"variant 'clipped'.*paper, code"),
        (lambda p: places.perturb(p, (1.0, 1.0, 1.0)), r"2 axes, got \(1\.0, 1\.0, 1\.0\)"),
        (lambda p: places.perturb(p, (1.0,)), r"2 axes, got \(1\.0,\)"),
        (lambda p: places.offset(p, -0.1), r"rho.*0.*got -0\.1"),
        (lambda p: places.shift(p, math.nan), r"amount.*0.*got nan"),
        (lambda p: places.jitter(p, 0.5), r"factor.*1.*got 0\.5"),
        (lambda p: places.rescale(p, math.nan), r"factor.*1.*got nan"),
    ],
)
def test_moves_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call(points())


def moves_of(step, dtype=torch.float64, **options):
    """Many draws of a perturbation in units of the step, (DRAWS, axes)."""
    given = torch.zeros(DRAWS, 2, dtype=dtype)
    return places.perturb(given, step, generator=generator(3), **options) / torch.tensor(step, dtype=dtype)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("step", [1.0, 1 / 14, (2.0, 0.25)], ids=str)
def test_perturbation_of_the_paper_is_a_truncated_gaussian(sigma, step):
    moved = moves_of(step, sigma=sigma)
    edge = 0.5 / sigma
    inside = 2 * normal_law(edge) - 1
    density = math.exp(-(edge**2) / 2) / math.sqrt(2 * math.pi)
    deviation = sigma * math.sqrt(1 - 2 * edge * density / inside)
    assert moved.abs().max() <= 0.5
    assert (moved.abs() >= 0.5 - 1e-9).sum() == 0  # what lies beyond is drawn anew, not moved to the edge
    assert moved.std(dim=0).tolist() == pytest.approx([deviation] * 2, rel=4.5 / math.sqrt(2 * DRAWS))
    assert largest_gap(moved, lambda x: (normal_law(x / sigma) - normal_law(-edge)) / inside) < 1.95
    assert abs(np.corrcoef(moved.T)[0, 1]) < 4.5 / math.sqrt(DRAWS)


@pytest.mark.parametrize("step", [1.0, (2.0, 0.25)], ids=str)
def test_perturbation_of_the_code_has_half_the_deviation_and_is_clamped(step):
    narrow = moves_of(step, sigma=0.2, variant="code")
    assert largest_gap(narrow, lambda x: normal_law(x / 0.1)) < 1.95
    wide = moves_of(step, sigma=3.0, variant="code")
    beyond = normal_law(-0.5 / 1.5)
    error = 4.5 * math.sqrt(beyond * (1 - beyond) / DRAWS)
    assert wide.abs().max() == 0.5
    assert (wide == 0.5).double().mean(dim=0).tolist() == pytest.approx([beyond] * 2, abs=error)
    assert (wide == -0.5).double().mean(dim=0).tolist() == pytest.approx([beyond] * 2, abs=error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_small_perturbation_has_no_outliers(dtype):
    """Coarse draws would reach the end of the unit interval, whose image under the inverse of erf is infinite."""
    moved = moves_of(1.0, dtype, sigma=0.01)
    assert moved.abs().max() < 0.06
    assert moved.float().std(dim=0).tolist() == pytest.approx([0.01] * 2, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_lowest_draw_is_no_outlier_either(dtype, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, dtype, **_: torch.zeros(shape, dtype=dtype))
    moved = places.perturb(torch.zeros(1, 2, dtype=dtype), 1.0, sigma=0.01)
    assert moved.max() < -0.04
    assert moved.min() > -0.09


def test_half_precision_keeps_the_law():
    moved = moves_of(1.0, torch.bfloat16, sigma=1.0).double()
    assert moved.abs().max() <= 0.5
    assert largest_gap(moved, lambda x: (normal_law(x) - normal_law(-0.5)) / (1 - 2 * normal_law(-0.5))) < 3  # rounding


def per_sample(name):
    """The change of each of many samples, checked to be one for all tokens: (DRAWS, axes)."""
    given = points()
    moved = MOVES[name](given.expand(DRAWS, -1, -1), generator(4))
    changes = moved / given if name in STRETCHES else moved - given
    torch.testing.assert_close(changes, changes[:, :1].expand_as(changes), rtol=0, atol=1e-12)
    return changes[:, 0]


def test_offset_is_one_gaussian_vector_a_sample():
    changes = per_sample("offset")
    assert largest_gap(changes, lambda x: normal_law(x / 0.3)) < 1.95
    assert abs(np.corrcoef(changes.T)[0, 1]) < 4.5 / math.sqrt(DRAWS)


def test_shift_is_one_uniform_vector_a_sample():
    changes = per_sample("shift")
    assert changes.abs().max() <= 0.3
    assert largest_gap(changes, lambda x: (x + 0.3) / 0.6) < 1.95
    assert abs(np.corrcoef(changes.T)[0, 1]) < 4.5 / math.sqrt(DRAWS)


def test_jitter_stretches_each_axis_by_a_log_uniform_factor_of_its_own():
    factors = per_sample("jitter")
    assert factors.min() >= 0.5 - 1e-12
    assert factors.max() <= 2.0 + 1e-12
    assert largest_gap(factors, lambda x: math.log(2 * x) / math.log(4)) < 1.95
    assert abs(np.corrcoef(factors.T)[0, 1]) < 4.5 / math.sqrt(DRAWS)


def test_rescale_stretches_all_axes_by_one_log_uniform_factor():
    factors = per_sample("rescale")
    torch.testing.assert_close(factors[:, 0], factors[:, 1], rtol=0, atol=1e-12)
    assert factors.min() >= 0.5 - 1e-12
    assert factors.max() <= 2.0 + 1e-12
    assert largest_gap(factors[:, 0], lambda x: math.log(2 * x) / math.log(4)) < 1.95


@pytest.mark.parametrize("name", ["offset", "shift", "jitter", "rescale"])
def test_one_sample_moves_as_one(name):
    moved, given = MOVES[name](points(), generator()), points()
    change = moved / given if name in STRETCHES else moved - given
    torch.testing.assert_close(change, change[:1].expand_as(change), rtol=0, atol=1e-12)
    assert (change[0] != (1 if name in STRETCHES else 0)).all()
