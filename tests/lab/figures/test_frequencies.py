import math

import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.patches import Circle, Rectangle

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import applicable
from ropewalk.lab.figures.frequencies import draw_frequencies, draw_turns
from ropewalk.lab.inspect.figure_grid import compute_axis_endpoints
from ropewalk.lab.inspect.frequency_spectrum import compute_frequency_spectrum

SIZE = (3, 5)
EXAMPLES = [example for kind in REGISTRY.values() for example in kind.examples() if "turns" in applicable(example)]
GENERATED = [example for example in EXAMPLES if hasattr(example, "generators")]


def points(figure, axes=0):
    """The points (n, 2) of the scatters of each head."""
    found = [each for each in figure.axes[axes].collections if isinstance(each, PathCollection)]
    return [torch.tensor(each.get_offsets().data) for each in found]


def generators(encoding, size):
    """Those of the first layer, in radians across the image, (h A D D)."""
    found = encoding.double().generators()
    ends = compute_axis_endpoints(encoding, size)
    return (found if encoding.layers is None else found[0]) * (ends[1:] - ends[:1]).diagonal()[:, None, None]


def speeds(matrix):
    """The frequencies of a skew-symmetric matrix, the fastest first, those of pairs once."""
    return torch.linalg.eigvalsh(1j * matrix).flip(-1)[..., : matrix.shape[-1] // 2]


@pytest.mark.parametrize("encoding", GENERATED, ids=repr)
def test_spectra_are_the_eigenvalues_of_the_generators(encoding):
    encoding = rw.create(**encoding.config())
    size = encoding.size or (3, 5, 7)[-encoding.axes :]
    found, matrices = compute_frequency_spectrum(encoding.double(), size), generators(encoding, size)
    assert found.combined == (encoding.axes == 1 or all(encoding.traits.relative))
    waves = found.radians.flatten(1, 2).double()  # (h n A)
    directions = torch.randn(7, encoding.axes, dtype=torch.float64) if found.combined else torch.eye(encoding.axes).double()
    for direction in directions:
        wanted = speeds((direction[:, None, None] * matrices).sum(1))
        shown = (waves * direction).sum(-1).abs().sort(descending=True).values
        wanted, shown = (torch.nn.functional.pad(x, (0, encoding.head_dim - x.shape[-1])) for x in (wanted, shown))
        torch.testing.assert_close(shown, wanted.expand_as(shown), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoding", [e for e in EXAMPLES if hasattr(e, "waves")], ids=repr)
def test_spectra_are_the_waves_times_the_extent(encoding):
    size = encoding.size or (3, 5, 7)[-encoding.axes :]
    waves = encoding.waves() if encoding.layers is None or encoding.waves().ndim == 3 else encoding.waves()[0]
    ends = compute_axis_endpoints(encoding, size)
    found = compute_frequency_spectrum(encoding, size)
    wanted = waves.detach() * (ends[1:] - ends[:1]).diagonal()
    torch.testing.assert_close(found.radians.squeeze(2), wanted.expand_as(found.radians.squeeze(2)), atol=1e-4, rtol=1e-4)


def test_axial_points_lie_on_the_axes_and_mixed_ones_do_not():
    (axial,) = points(draw_frequencies(rw.create("axial", head_dim=16, heads=2), size=SIZE))
    assert (axial == 0).any(1).all()
    assert axial.shape == (8, 2)
    torch.manual_seed(0)
    mixed = points(draw_frequencies(rw.create("mixed", head_dim=16, heads=2), size=SIZE))
    assert len(mixed) == 2
    assert not (torch.cat(mixed) == 0).any()


def test_rows_are_up_and_columns_across():
    (found,) = points(draw_frequencies(rw.create("axial", head_dim=4, variant="eva"), size=SIZE))
    assert found.tolist() == [[0, 2], [4, 0]]
    axes = draw_frequencies(rw.create("axial", head_dim=4), size=SIZE).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("radians across all columns", "radians across all rows")


def test_uniform_has_one_point_an_axis():
    figure = draw_frequencies(rw.create("uniform", head_dim=16, heads=2), size=SIZE)
    (found,) = points(figure)
    torch.testing.assert_close(found, torch.tensor([[0, 2 * math.pi], [2 * math.pi, 0]]).double(), atol=1e-4, rtol=0)
    (scatter,) = figure.axes[0].collections
    assert scatter.get_sizes().tolist() == [16 * 2.0] * 2


def test_blocks_of_linearly_dependent_generators_share_a_direction():
    torch.manual_seed(0)
    encoding = rw.create("comrope-ld", head_dim=16, heads=2, block=8, size=SIZE)
    radians = compute_frequency_spectrum(encoding, SIZE).radians  # (h G F A)
    angle = torch.atan2(radians[..., 0], radians[..., 1])
    torch.testing.assert_close(angle, angle[..., :1].expand_as(angle), atol=1e-3, rtol=0)
    assert (angle[:, 0] - angle[:, 1]).abs().min() > 0.1
    assert (radians[..., 0] > 0).all()


@pytest.mark.parametrize("name", ["liere", "spherical"])
def test_what_does_not_commute_is_on_the_axes_and_said_so(name):
    figure = draw_frequencies(rw.create(name, head_dim=24, size=SIZE))
    for found in points(figure):
        assert (found == 0).any(1).all()
    words = " ".join(text.get_text() for text in figure.texts)
    assert "frequencies of each axis" in words
    assert "do not combine" in words
    assert "do not combine" not in " ".join(t.get_text() for t in draw_frequencies(rw.create("axial", head_dim=8)).texts)


def test_circles_are_whole_turns():
    figure = draw_frequencies(rw.create("axial", head_dim=8, scale=4.0), size=(9, 9))
    radii = [each.radius / (2 * math.pi) for each in figure.axes[0].patches if isinstance(each, Circle)]
    assert radii == pytest.approx([4, 2, 1])
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["π per patch", "4 rotations", "2 rotations", "1 rotation"]
    (box,) = [each for each in figure.axes[0].patches if isinstance(each, Rectangle)]
    assert (box.get_x(), box.get_width()) == pytest.approx((-8 * math.pi, 16 * math.pi))


def test_slow_waves_have_no_box():
    figure = draw_frequencies(rw.create("axial", head_dim=8), size=(9, 9))
    assert not [each for each in figure.axes[0].patches if isinstance(each, Rectangle)]


def test_clips_have_three_planes():
    figure = draw_frequencies(rw.create("axial", head_dim=6, axes=3, variant="eva"), size=(2, 3, 5))
    assert [sorted(points(figure, i)[0].tolist()) for i in range(3)] == [
        [[0, 0], [0, 1], [2, 0]],
        [[0, 0], [0, 1], [4, 0]],
        [[0, 0], [0, 2], [4, 0]],
    ]


def test_a_text_has_a_line_of_frequencies():
    figure = draw_frequencies(rw.create("rope", head_dim=16, base=100.0))
    axes = figure.axes[0]
    shown = torch.tensor(axes.lines[0].get_xdata())
    torch.testing.assert_close(shown, 100.0 ** (-torch.arange(8) / 8), rtol=1e-5, atol=0)
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "frequency (radians per position)"
    assert [line.get_xdata()[0] for line in axes.lines[1:]] == pytest.approx([math.pi, 2 * math.pi / 2047])
    assert axes.child_axes[0].get_xlabel() == "period (positions)"


def test_frequencies_that_stand_still_are_counted():
    encoding = rw.create("rope", head_dim=12, rotary_dim=4, proportional=True)
    figure = draw_frequencies(encoding)
    assert len(figure.axes[0].lines[0].get_xdata()) == 2
    assert "4 zero frequencies are left out" in figure.texts[-1].get_text()


def test_turns_are_radians_across_the_image():
    figure = draw_turns(rw.create("axial", head_dim=8, variant="eva", base=16.0), size=SIZE)
    rows, columns = points(figure)[1::2]  # between them those of other heads, of which there are none
    torch.testing.assert_close(rows, torch.tensor([[1 - 0.12, 2], [2 - 0.12, 0.5]]).double())
    torch.testing.assert_close(columns, torch.tensor([[3 + 0.12, 4], [4 + 0.12, 1]]).double())
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel() == "radians across the image"
    assert [line.get_ydata()[0] for line in axes.lines] == pytest.approx([2 * math.pi, 2 * math.pi, 4 * math.pi])
    assert [text.get_text() for text in axes.texts] == ["one rotation", "π per step (rows)", "π per step (columns)"]
    assert axes.child_axes[0].get_ylabel() == "rotations"
    low, high = axes.get_ylim()
    figure.draw_without_rendering()
    assert axes.child_axes[0].get_ylim() == pytest.approx((low / (2 * math.pi), high / (2 * math.pi)))


def test_turns_of_a_clip_are_those_of_each_axis():
    figure = draw_turns(rw.create("axial", head_dim=6, axes=3, variant="eva"), size=(2, 3, 6))
    assert [found[:, 1].tolist() for found in points(figure)[1::2]] == [[1], [2], [5]]
    assert [found[:, 0].round().tolist() for found in points(figure)[1::2]] == [[1], [2], [3]]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "along frames",
        "along rows",
        "along columns",
    ]


def test_turns_of_heads_and_blocks():
    torch.manual_seed(0)
    encoding = rw.create("comrope-ap", head_dim=16, heads=3, block=4, size=SIZE)
    figure = draw_turns(encoding)
    others, first = points(figure)[:2]
    assert (len(others), len(first)) == (2 * 2 * 2, 2 * 2)  # 2 frequencies in each of 2 blocks of rows
    assert set(first[:, 0].round().tolist()) == {1, 3}
    assert "Each block has 2 frequencies. Head 1 in front, 2 others behind it." in figure.texts[-1].get_text()


def test_nothing_turns_before_training_starts_from_nothing():
    encoding = rw.create("comrope-ld", head_dim=16, block=8, std=0.0)
    assert "2 blocks of head 1 are not rotated" in draw_turns(encoding).texts[-1].get_text()
    (found,) = points(draw_frequencies(encoding))
    assert found.tolist() == [[0, 0]]


def test_layers_are_told_apart():
    encoding = rw.create("mixed", head_dim=8, layers=2)
    first, second = (torch.cat(points(draw_frequencies(encoding, layer=layer))) for layer in (0, 1))
    assert not torch.equal(first, second)
