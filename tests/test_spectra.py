"""Frequency laws against their formulas, random ones against the laws of chance, spans against the papers' setups."""

import math

import numpy as np
import pytest
import torch

import ropewalk as rw
from ropewalk import spectra

EXACT = {"rtol": 1e-14, "atol": 1e-15}  # float64 arithmetic
PRINTED = 0.02  # of numbers that were printed with two digits
FRAMES = 20_000  # of a random law; deviations below 4.5 standard errors pass


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def square(line):
    """The tokens of a square image (N, 2) whose rows and columns stand at `line`."""
    return double([[row, column] for row in line for column in line])


def along_both_axes(frequencies):
    """Wave vectors (2 F, 2) along the rows and along the columns."""
    return torch.cat([torch.outer(frequencies, double([1, 0])), torch.outer(frequencies, double([0, 1]))])


INDEX, CENTRED, UNIT = range(14), np.linspace(-math.pi, math.pi, 14), np.linspace(0, 1, 14)
CENTRES = [2 * (i + 0.5) / 14 - 1 for i in range(14)]


# Laws


@pytest.mark.parametrize("base", [10.0, 100.0, 10_000, 500_000.0])
@pytest.mark.parametrize("count", [0, 1, 5, 64])
def test_geometric(count, base):
    torch.testing.assert_close(spectra.geometric(count, base), double([base ** (-j / count) for j in range(count)]), **EXACT)


def test_rope_of_width_128():
    frequency = spectra.geometric(64, 10_000)
    assert frequency[0] == 1
    assert frequency[63].item() == pytest.approx(1.15e-4, rel=0.01)
    assert 2 * math.pi / frequency[63].item() == pytest.approx(54_410, rel=1e-4)
    torch.testing.assert_close(frequency, double([10_000 ** (-2 * i / 128) for i in range(64)]), **EXACT)


def test_axial_of_heo():
    torch.testing.assert_close(spectra.geometric(16, 100), double([100 ** (-t / (64 / 4)) for t in range(16)]), **EXACT)


@pytest.mark.parametrize(("width", "groups"), [(64, 16), (63, 21), (48, 12)])
def test_van_de_geijn_divides_by_the_width(width, groups):
    law = spectra.geometric(groups, 100, over=width / 2)
    torch.testing.assert_close(law, double([100 ** (-2 * j / width) for j in range(groups)]), **EXACT)


def test_uniform():
    assert spectra.uniform(3).tolist() == [1.0, 1.0, 1.0]
    assert spectra.uniform(2, 0.25).tolist() == [0.25, 0.25]
    assert spectra.uniform(0).shape == (0,)


def test_linear_has_both_ends():
    torch.testing.assert_close(spectra.linear(5, 2.0, 1.0), double([2.0, 1.75, 1.5, 1.25, 1.0]), **EXACT)
    torch.testing.assert_close(spectra.linear(3), double([1.0, 0.5, 0.0]), **EXACT)
    assert spectra.linear(1, 3.0, 1.0).tolist() == [3.0]


@pytest.mark.parametrize(
    "law",
    [
        lambda: spectra.geometric(4, 10.0),
        lambda: spectra.uniform(4),
        lambda: spectra.linear(4),
        lambda: spectra.first_quadrant(4, 2),
        lambda: spectra.random_frames((3,), 4, 2),
        lambda: spectra.random_frames((3,), 4, 3),
        lambda: spectra.golden_directions(4, 1),
        lambda: spectra.golden_directions(4, 2),
        lambda: spectra.golden_directions(4, 3),
    ],
)
def test_laws_are_double_precision_on_the_cpu_whatever_the_defaults(law):
    with torch.device("meta"):
        values = law()
    assert values.dtype is torch.float64
    assert values.device.type == "cpu"


@pytest.mark.parametrize(
    ("base", "over", "got"),
    [(0.0, None, "base.*0.0"), (-2.0, None, "base.*-2.0"), (math.nan, None, "base.*nan"), (10.0, 0, "over.*0")],
)
def test_geometric_refuses(base, over, got):
    with pytest.raises(ValueError, match=got):
        spectra.geometric(4, base, over)


# Golden directions


def quantile(share):
    """Of the normal distribution, by bisection of its integral."""
    low, high = -9.0, 9.0
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 + math.erf(middle / math.sqrt(2))) / 2 < share else (low, middle)
    return low


def root(power):
    """The number above 1 whose power is itself and one, by bisection."""
    low, high = 1.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle**power < middle + 1 else (low, middle)
    return low


def test_golden_directions_of_the_plane_turn_by_the_golden_ratio():
    phi = (1 + math.sqrt(5)) / 2
    want = [[math.sin(n * math.pi / phi), math.cos(n * math.pi / phi)] for n in range(65)]
    torch.testing.assert_close(spectra.golden_directions(65, 2), double(want), rtol=0, atol=1e-13)


@pytest.mark.parametrize("axes", [3, 4, 5])
def test_golden_directions_of_space_are_points_of_the_r_sequence(axes):
    want, ratio = [], root(axes + 1)
    for n in range(1, 31):
        point = [quantile(n * ratio**-a % 1) for a in range(1, axes + 1)]
        want.append([x / math.hypot(*point) for x in point])
    torch.testing.assert_close(spectra.golden_directions(30, axes), double(want), rtol=0, atol=1e-12)


def test_there_is_one_direction_on_a_line():
    assert spectra.golden_directions(3, 1).tolist() == [[1.0], [1.0], [1.0]]


def smallest_angle(directions):
    """Between any two, opposite directions being one."""
    cosines = (directions @ directions.T).abs() - torch.eye(len(directions))
    return math.acos(cosines.max().item())


def largest_hole(directions):
    """The angle from the loneliest of many probes to the nearest direction."""
    probes = torch.nn.functional.normalize(torch.randn(4000, 3, generator=generator(9), dtype=torch.float64), dim=-1)
    return math.acos((probes @ directions.T).abs().amax(1).min().item())


@pytest.mark.parametrize("run", [8, 16, 64])
def test_any_run_of_golden_directions_of_the_plane_is_spread_out(run):
    """Half an even share of the half circle is free around each, or nearly; by chance, next to nothing."""
    even, directions = math.pi / run, spectra.golden_directions(1000, 2)
    assert min(smallest_angle(directions[start : start + run]) for start in range(0, 900, 7)) > 0.5 * even
    chance = torch.rand(200, run, generator=generator(), dtype=torch.float64) * math.pi
    by_chance = [smallest_angle(torch.stack([turn.sin(), turn.cos()], -1)) for turn in chance]
    assert sorted(by_chance)[100] < 0.12 * even


def test_golden_directions_of_space_leave_smaller_holes_than_chance():
    golden = largest_hole(spectra.golden_directions(128, 3))
    chance = torch.nn.functional.normalize(torch.randn(50, 128, 3, generator=generator(), dtype=torch.float64), dim=-1)
    assert golden < 0.9 * min(map(largest_hole, chance))


# Random laws


def test_first_quadrant_is_uniform_between_zero_and_one():
    draws = spectra.first_quadrant(FRAMES, 2, generator=generator())
    assert draws.shape == (FRAMES, 2)
    assert draws.min() >= 0
    assert draws.max() <= 1
    assert uniformity(draws) < 1.95


@pytest.mark.parametrize(
    "law",
    [
        lambda g=None: spectra.first_quadrant(3, 2, generator=g),
        lambda g=None: spectra.random_frames((3,), 4, 2, generator=g),
        lambda g=None: spectra.random_frames((3,), 4, 3, generator=g),
    ],
)
def test_draws_come_from_the_generator(law):
    state = torch.get_rng_state()
    assert torch.equal(law(generator(1)), law(generator(1)))
    assert not torch.equal(law(generator(1)), law(generator(2)))
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        assert not torch.equal(law(), law())


def uniformity(draws):
    """Kolmogorov and Smirnov's statistic times √n of draws from U(0, 1); above 1.95 once in a thousand tries."""
    draws = np.sort(np.asarray(draws).ravel())
    steps = np.arange(len(draws) + 1) / len(draws)
    return max(np.abs(draws - steps[:-1]).max(), np.abs(draws - steps[1:]).max()) * math.sqrt(len(draws))


@pytest.mark.parametrize(
    ("count", "axes", "runs"),
    [
        (6, 2, (3, 3)),
        (7, 2, (4, 3)),
        (1, 2, (1, 0)),
        (7, 3, (3, 2, 2)),
        (8, 3, (3, 3, 2)),
        (5, 1, (5,)),
        (6, 4, (2, 2, 1, 1)),
    ],
)
@pytest.mark.parametrize("base", [10.0, 100.0])
def test_runs_of_a_frame_are_geometric_laws(count, axes, runs, base):
    waves = spectra.random_frames((2, 3), count, axes, base, generator())
    assert waves.shape == (2, 3, count, axes)
    want = [base ** (-j / run) for run in runs for j in range(run)]
    torch.testing.assert_close(waves.norm(dim=-1), double(want).expand(2, 3, -1), rtol=1e-12, atol=0)
    start = 0
    for run in runs:
        directions = torch.nn.functional.normalize(waves[..., start : start + run, :], dim=-1)
        torch.testing.assert_close(directions, directions[..., :1, :].expand_as(directions), rtol=0, atol=1e-12)
        start += run


def test_frames_of_heo():
    """The last half of the pairs lies a quarter turn further than the first, whose angle is uniform, frame by frame."""
    waves = spectra.random_frames((FRAMES,), 32, 2, generator=generator())
    first, second = waves[:, 0], waves[:, 16]
    torch.testing.assert_close(second, torch.stack([-first[:, 1], first[:, 0]], dim=-1), rtol=0, atol=1e-12)
    magnitude = double([10 ** (-4 * k / 64) for k in range(16)])
    torch.testing.assert_close(waves[:, :16], magnitude[:, None] * first[:, None], rtol=0, atol=1e-12)
    torch.testing.assert_close(waves[:, 16:], magnitude[:, None] * second[:, None], rtol=0, atol=1e-12)
    angle = torch.atan2(first[:, 1], first[:, 0]) / (2 * math.pi) % 1
    assert uniformity(angle) < 1.95


@pytest.mark.parametrize("axes", [3, 4])
def test_frames_in_space_are_rotations(axes):
    frame = spectra.random_frames((50,), axes, axes, generator=generator())  # one wave an axis: the frame itself
    torch.testing.assert_close(frame @ frame.mT, torch.eye(axes, dtype=torch.float64).expand(50, -1, -1), rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(frame), torch.ones(50, dtype=torch.float64), rtol=0, atol=1e-12)


def test_frames_in_space_are_uniform():
    """Every row points anywhere: a coordinate of a uniform direction in space is itself uniform in [-1, 1]."""
    frame = spectra.random_frames((FRAMES,), 3, 3, generator=generator())
    for row in range(3):
        for column in range(3):
            assert uniformity((frame[:, row, column] + 1) / 2) < 1.95
        mean = frame[:, row].mean(dim=0)
        assert mean.abs().max() < 4.5 / math.sqrt(3 * FRAMES)
        second = (frame[:, row, :, None] * frame[:, row, None, :]).mean(dim=0)
        assert (second - torch.eye(3) / 3).abs().max() < 4.5 * math.sqrt(4 / 45 / FRAMES)
    # The angle of a uniform rotation: its trace 1 + 2 cos a has the mean 0 and the second moment 1.
    trace = frame.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert abs(trace.mean().item()) < 4.5 / math.sqrt(FRAMES)
    assert trace.square().mean().item() == pytest.approx(1.0, abs=4.5 * math.sqrt(2 / FRAMES))


# Spans


@pytest.mark.parametrize(
    ("waves", "line", "fastest", "slowest"),
    [
        (along_both_axes(spectra.geometric(16, 100)), INDEX, 13.0, 0.17),
        (spectra.random_frames((4,), 32, 2, generator=generator()), INDEX, 13.0, 1.5),
        (along_both_axes(2 * math.pi * spectra.geometric(16, 100)), CENTRES, 11.7, 0.156),
        (along_both_axes(spectra.geometric(16, 100, over=32)), CENTRED, 6.28, 0.73),
        (along_both_axes(spectra.geometric(21, 100, over=63 / 2)), CENTRED, 6.28, 0.34),
        (along_both_axes(spectra.uniform(16)), CENTRED, 6.28, 6.28),
        (along_both_axes(spectra.uniform(16, 1 / math.pi)), CENTRED, 2.0, 2.0),
        (along_both_axes(spectra.geometric(16, math.e**4, over=15)), UNIT, 1.0, 0.018),
    ],
    ids=["heo-axial", "heo-mixed", "dinov3", "axial", "spherical", "uniform", "uniform-code", "vision-llama"],
)
def test_spans_of_the_literature(waves, line, fastest, slowest):
    """Radians of the fastest and the slowest channel across 14 patches."""
    spans = spectra.span(waves, square(line))
    assert spans.shape == waves.shape[:-1]
    assert spans.max().item() == pytest.approx(fastest, rel=PRINTED)
    assert spans.min().item() == pytest.approx(slowest, rel=PRINTED)
    elsewhere = square(np.linspace(5, 7, 9))
    torch.testing.assert_close(
        spectra.span(spectra.with_span(waves, elsewhere, spans.max().item()), elsewhere), spans, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize(
    ("encoding", "fastest", "slowest"),
    [
        (rw.create("axial", head_dim=64), 13.0, 0.17),
        (rw.create("mixed", head_dim=64, heads=2), 13.0, 1.5),
        (rw.create("axial", head_dim=64, variant="van-de-geijn", size=(14, 14)), 6.28, 0.73),
        (rw.create("uniform", head_dim=64, size=(14, 14)), 6.28, 6.28),
        (rw.create("uniform", head_dim=64, size=(14, 14), variant="van-de-geijn-code"), 2.0, 2.0),
        (rw.create("axial", head_dim=64, variant="liere", size=(14, 14)), 1.0, 0.018),
        (rw.create("dinov3", head_dim=64), 11.7, 0.156),
        (rw.create("golden", head_dim=64), 40.0, 0.4),
    ],
    ids=["heo-axial", "heo-mixed", "axial", "uniform", "uniform-code", "vision-llama", "dinov3", "golden"],
)
def test_spans_of_encodings_on_their_own_grid(encoding, fastest, slowest):
    spans = spectra.span(encoding.waves().detach(), encoding.grid(14, 14))
    assert spans.max().item() == pytest.approx(fastest, rel=PRINTED)
    assert spans.min().item() == pytest.approx(slowest, rel=PRINTED)


def test_span_weighs_each_axis_by_its_extent():
    image = double([[row, column] for row in range(3) for column in range(5)])  # extents 2 and 4
    waves = double([[1.0, 0.0], [0.0, -1.0], [0.3, 0.7]])
    want = [math.hypot(2 * row, 4 * column) for row, column in waves.tolist()]
    torch.testing.assert_close(spectra.span(waves, image), double(want), **EXACT)
    torch.testing.assert_close(spectra.span(waves, image + 100), double(want), rtol=1e-12, atol=0)
    video = double([[frame, row, 1.0] for frame in range(4) for row in range(2)])  # extents 3, 1 and 0
    want = [math.sqrt((3 * 0.5) ** 2 + 0.25**2)]
    torch.testing.assert_close(spectra.span(double([[0.5, 0.25, 9.0]]), video), double(want), **EXACT)


@pytest.mark.parametrize("radians", [13.0, 2 * math.pi, 1.0])
def test_with_span_stretches_all_waves_alike(radians):
    image = double([[row, column] for row in range(3) for column in range(5)])
    waves = spectra.random_frames((2,), 5, 2, generator=generator())
    stretched = spectra.with_span(waves, image, radians)
    assert spectra.span(stretched, image).max().item() == pytest.approx(radians, rel=1e-12)
    factor = stretched / waves
    torch.testing.assert_close(factor, factor[:1, :1, :1].expand_as(factor), rtol=1e-12, atol=0)
    assert factor.min() > 0


@pytest.mark.parametrize(
    ("waves", "image"),
    [
        (torch.zeros(3, 2), torch.rand(4, 2)),
        (torch.ones(3, 2), torch.zeros(4, 2)),
        (torch.ones(3, 2), torch.zeros(1, 2)),
        (torch.full((3, 2), math.nan), torch.rand(4, 2)),
    ],
    ids=["still", "point", "one-token", "nan"],
)
def test_no_factor_gives_nothing_a_span(waves, image):
    with pytest.raises(ValueError, match=r"no factor.*span"):
        spectra.with_span(waves, image, 1.0)


@pytest.mark.parametrize(
    ("waves", "image", "got"),
    [
        (torch.ones(3, 1), torch.rand(4, 2), r"\(3, 1\) and \(4, 2\)"),
        (torch.ones(3), torch.rand(4, 2), r"\(3,\) and \(4, 2\)"),
        (torch.ones(3, 2), torch.rand(5, 4, 2), r"\(3, 2\) and \(5, 4, 2\)"),
        (torch.ones(3, 1), torch.arange(4.0), r"\(3, 1\) and \(4,\)"),
    ],
)
@pytest.mark.parametrize("measure", [spectra.span, lambda waves, image: spectra.with_span(waves, image, 1.0)])
def test_waves_and_positions_must_have_the_same_axes(measure, waves, image, got):
    with pytest.raises(ValueError, match=rf"waves must be \(\.\.\., axes\) and positions \(N, axes\).*got {got}"):
        measure(waves, image)
