import pytest
import torch
from matplotlib.colors import to_hex

import ropewalk as rw
from ropewalk import theory
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import FIGURES
from ropewalk.lab.figures.equivariance import NO_CHANGE_TEXT, draw_equivariance
from ropewalk.lab.figures.theme import FIGURE_THEMES
from tests.lab.figures.test_figures import CHAINS, assert_no_trace, assert_readable

SHAPE = {"head_dim": 12, "heads": 2}
TURNING = [name for name, kind in REGISTRY.items() if hasattr(kind, "generators")]
SPHERE = {"learned": True, "size": (3, 5), **SHAPE}


def pictures(figure):
    """The numbers of each map."""
    return [torch.tensor(axes.images[0].get_array().data) for axes in figure.axes if axes.images]


def inside(axes):
    """Words on a map."""
    return [text.get_text() for text in axes.texts]


def steps(encoding, *size):
    """How far patches are apart, from the corners of the grid."""
    grid = encoding.grid(*size)
    return ((grid[-1] - grid[0]) / (torch.tensor(size) - 1)).tolist()


@pytest.mark.exhaustive("figures", kept=lambda theme, **_: theme == "light")
@pytest.mark.parametrize("theme", FIGURE_THEMES)
@pytest.mark.parametrize("name", TURNING)
def test_every_encoding_that_turns_can_be_drawn(name, theme):
    options = {"block": 3} if name == "comrope-ap" else {}
    figure = draw_equivariance(rw.create(name, **SHAPE, **options), theme=theme)
    assert figure.texts[0].get_text() == f"{name}: how much scores change when all tokens move"
    assert to_hex(figure.get_facecolor()) == FIGURE_THEMES[theme].paper
    assert_readable(figure)


@pytest.mark.parametrize("name", CHAINS)
def test_chains_and_their_long_names_are_readable(name):
    assert_readable(draw_equivariance(CHAINS[name]))


@pytest.mark.parametrize("size", [(1, 5), (5, 1), (3, 20), (20, 3), (2, 2), (7, 8)])
def test_images_of_any_form_are_readable(size):
    assert_readable(draw_equivariance(rw.create("spherical", **SHAPE), size=size))


@pytest.mark.parametrize("axes", [1, 3, 4])
def test_other_numbers_of_axes_are_readable(axes):
    encoding = rw.create("liere", axes=axes, block=4, size=(2, 2, 3, 5)[-axes:], **SHAPE)
    figure = draw_equivariance(encoding)
    assert len(pictures(figure)) == (axes if axes > 1 else 0)
    assert_readable(figure)


def test_maps_are_the_changes_of_each_query():
    encoding = rw.create("liere", block=4, size=(3, 5), **SHAPE)
    exact = encoding.double()
    maps = pictures(draw_equivariance(encoding))
    for axis, step in enumerate(steps(exact, 3, 5)):
        place = theory.equivariance(exact, exact.grid(3, 5), (step,)).place[:, axis, 0]  # (h N)
        torch.testing.assert_close(maps[axis], place.square().mean(0).sqrt().reshape(3, 5))


def test_maps_of_a_clip_are_over_its_frames():
    encoding = rw.create("spherical", axes=3, size=(2, 3, 4), **SHAPE).double()
    figure = draw_equivariance(encoding)
    maps = pictures(figure)
    for axis, step in enumerate(steps(encoding, 2, 3, 4)):
        place = theory.equivariance(encoding, encoding.grid(2, 3, 4), (step,)).place[0, axis, 0]
        wanted = place.reshape(2, 3, 4).square().mean(0).sqrt()
        torch.testing.assert_close(maps[axis], wanted if wanted.max() > 1e-9 else torch.zeros(3, 4, dtype=torch.float64))
    assert "Averaged over all frames." in " ".join(text.get_text() for text in figure.texts)
    assert [axes.get_title().partition(":")[0] for axes in figure.axes] == [
        *("moved by one frame", "moved by one row", "moved by one column")
    ]


def test_rounding_is_not_drawn():
    for name, blank in (("mixed", [True, True]), ("spherical", [False, True]), ("liere", [False, False])):
        figure = draw_equivariance(rw.create(name, **SHAPE))
        assert [not picture.any() for picture in pictures(figure)] == blank
        assert [inside(axes) == [NO_CHANGE_TEXT] for axes in figure.axes] == blank
        assert [":" in axes.get_title() for axes in figure.axes] == [not each for each in blank]
    assert NO_CHANGE_TEXT == "no change: below 1e-9"


def test_what_is_small_but_no_rounding_is_drawn():
    figure = draw_equivariance(rw.create("liere", block=4, scale=1e-3, **SHAPE))
    assert all(picture.min() > 0 for picture in pictures(figure))
    assert max(picture.max() for picture in pictures(figure)) < 1e-3


def test_all_maps_have_one_scale_from_zero():
    figure = draw_equivariance(rw.create("liere", block=4, size=(3, 5), **SHAPE))
    most = max(picture.max().item() for picture in pictures(figure))
    for axes in figure.axes:
        assert axes.images[0].get_clim() == (0, pytest.approx(most))
    (key,) = figure.axes[-1].child_axes
    assert key.get_ylabel() == "change relative to the score"
    assert key.get_ylim() == (0, pytest.approx(most))
    assert all(0 <= tick <= most for tick in key.get_yticks())


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_no_change_has_the_colour_of_the_paper(theme):
    figure = draw_equivariance(rw.create("mixed", **SHAPE), theme=theme)
    assert to_hex(figure.axes[0].images[0].cmap(0.0)) == FIGURE_THEMES[theme].paper
    (key,) = figure.axes[-1].child_axes
    assert [label.get_text() for label in key.get_yticklabels()] == ["0", "1e-9"]


def test_places_that_are_left_out_are_said():
    figure = draw_equivariance(rw.create("liere", head_dim=48, heads=2, block=48), size=(14, 14))
    (rows, columns) = pictures(figure)[0].shape
    assert 2 <= rows == columns < 14
    assert f"Computed at {rows} × {columns} evenly spaced positions." in " ".join(text.get_text() for text in figure.texts)
    assert not any("evenly" in text.get_text() for text in draw_equivariance(rw.create("spherical", **SHAPE)).texts)


def test_the_edges_of_a_map_are_those_of_its_places():
    image = draw_equivariance(rw.create("spherical", **SHAPE), size=(3, 5)).axes[0].images[0]
    assert image.get_extent() == [-0.5, 4.5, 2.5, -0.5]
    coarse = draw_equivariance(rw.create("liere", head_dim=48, heads=2, block=48), size=(14, 14)).axes[0].images[0]
    count = coarse.get_array().shape[0]
    left, right, bottom, top = coarse.get_extent()
    assert (left, top) == pytest.approx((-13 / (count - 1) / 2,) * 2)
    assert (right, bottom) == pytest.approx((13 - left,) * 2)


class Crooked(rw.Mixed):
    """Turns by the square of the position."""

    def encode(self, q, k):
        return super().encode(q**2, None if k is None else k**2)


def test_with_one_axis_it_is_a_line():
    (axes,) = draw_equivariance(rw.create("rope", **SHAPE)).axes
    assert not axes.lines[0].get_ydata().any()
    assert inside(axes) == [NO_CHANGE_TEXT]
    encoding = Crooked(axes=1, size=(7,), **SHAPE).double()
    (axes,) = draw_equivariance(encoding, size=(7,)).axes
    place = theory.equivariance(encoding, encoding.grid(7), (1.0,)).place[:, 0, 0]
    torch.testing.assert_close(torch.tensor(axes.lines[0].get_ydata()), place.square().mean(0).sqrt())
    assert axes.lines[0].get_xdata().tolist() == list(range(7))
    assert not inside(axes)


def test_layers_are_drawn_one_at_a_time():
    encoding = rw.create("spherical", layers=2, **SPHERE)
    with torch.no_grad():
        encoding.frequency[0] = 0
    first, second = (draw_equivariance(encoding, layer=layer) for layer in (0, 1))
    assert not pictures(first)[0].any()
    assert pictures(second)[0].any()
    assert "layer 2 of Spherical" in " ".join(text.get_text() for text in second.texts)


def test_the_same_every_time_and_no_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoding = rw.create("spherical", **SPHERE)
    assert_no_trace(lambda: draw_equivariance(encoding), tmp_path)
    assert encoding.frequency.dtype is torch.float32


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="got 'alibi'"):
        draw_equivariance(rw.create("alibi", **SHAPE))
    with pytest.raises(ValueError, match=r"theme 'sepia'.*light, dark"):
        draw_equivariance(rw.create("mixed", **SHAPE), theme="sepia")
    with pytest.raises(ValueError, match=r"2 axes, got \(3, 5, 7\)"):
        draw_equivariance(rw.create("mixed", **SHAPE), size=(3, 5, 7))


def test_draw_leaves_it_to_theory():
    assert draw_equivariance not in FIGURES.values()
