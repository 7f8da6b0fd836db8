import math

import pytest
import torch

import ropewalk as rw
from ropewalk.code import Sphere
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import applicable
from ropewalk.lab.figures.sphere import (
    PATH_START,
    compute_sphere_path,
    draw_sphere_paths,
    list_axis_orders,
    project_sphere_points,
)
from ropewalk.lab.inspect.frequency_spectrum import compute_frequency_spectrum

OTHERS = [next(iter(kind.examples())) for kind in REGISTRY.values() if kind is not rw.Spherical]


def encoding(**options):
    return rw.create("spherical", **{"head_dim": 12, "size": (3, 5)} | options)


def lines(axes):
    """The lines of a sphere that are no great circles: x, y, style and colour."""
    return [line for line in axes.lines if line.get_linewidth() != 0.8]


@pytest.mark.parametrize("axes", [2, 3])
def test_the_path_in_the_own_order_ends_where_the_code_carries_the_triplet(axes):
    learned = encoding(axes=axes, size=(2, 3, 5)[-axes:], learned=True).double()
    torch.manual_seed(0)
    with torch.no_grad():
        learned.frequency.uniform_(0.15, 0.3)
    radians = compute_frequency_spectrum(learned, learned.size).radians[0, :, 0]
    origin, away = torch.zeros(1, axes), (learned.grid(*learned.size)[-1] - learned.grid(*learned.size)[0])[None]
    for triplet in range(4):
        own, reverse = (compute_sphere_path(radians[triplet], order)[-1][-1] for order in list_axis_orders(axes))
        q = torch.zeros(1, 1, 1, 12, dtype=torch.float64)
        q[..., 3 * triplet : 3 * triplet + 3] = PATH_START
        carried = learned(away, origin).q(q)[0, 0, 0, 3 * triplet : 3 * triplet + 3]
        torch.testing.assert_close(own, carried.detach(), atol=1e-5, rtol=0)
        assert (reverse - carried).norm() > 0.05


def test_arcs_are_circles_in_orthogonal_planes_on_the_sphere():
    for order in list_axis_orders(2):
        arcs = compute_sphere_path(torch.tensor([1.2, 0.7], dtype=torch.float64), order)
        assert torch.equal(arcs[0][0], PATH_START)
        assert torch.equal(arcs[0][-1], arcs[1][0])
        for axis, arc in zip(order, arcs, strict=True):
            torch.testing.assert_close(arc.norm(dim=1), torch.ones(len(arc), dtype=torch.float64))
            # Rows turn (a, c) and leave b; columns turn (b, c) and leave a.
            assert (arc[:, 1 - axis] == arc[0, 1 - axis]).all()
            assert arc[:, axis].std() > 0.1


def test_slow_triplets_end_closer_together():
    apart = [
        (compute_sphere_path(a, [0, 1])[-1][-1] - compute_sphere_path(a, [1, 0])[-1][-1]).norm()
        for a in (torch.ones(2) * s for s in (1.5, 0.5, 0.1))
    ]
    assert apart[0] > 2 * apart[1] > 4 * apart[2] > 0


def test_what_is_drawn_are_the_paths_as_they_are_seen():
    figure = draw_sphere_paths(encoding(), triplets=[1])
    (axes,) = figure.axes
    angles = torch.full((2,), math.pi / 2, dtype=torch.float64)
    arcs = [arc for order in list_axis_orders(2) for arc in compute_sphere_path(angles, order)]
    behind_and_before = lines(axes)[: 2 * len(arcs)]
    for arc, back, front in zip(arcs, behind_and_before[::2], behind_and_before[1::2], strict=True):
        x, y, depth = project_sphere_points(arc)
        shown = torch.where(depth >= 0, torch.tensor(front.get_xdata()), torch.tensor(back.get_xdata()))
        torch.testing.assert_close(shown, x, atol=1e-6, rtol=0)
        assert back.get_alpha() < front.get_alpha()
        assert torch.tensor(front.get_ydata()).nan_to_num().abs().max() <= y.abs().max()
    assert [line.get_linestyle() for line in behind_and_before] == ["-"] * 4 + ["--"] * 4
    colours = [line.get_color() for line in behind_and_before[::2]]
    assert colours[0] == colours[3] != colours[1] == colours[2]
    other, own, start = ((line.get_xdata()[0], line.get_ydata()[0]) for line in lines(axes)[-3:])
    assert own == pytest.approx([float(v) for v in project_sphere_points(arcs[1][-1])[:2]])
    assert other == pytest.approx([float(v) for v in project_sphere_points(arcs[3][-1])[:2]])
    assert start == pytest.approx([float(v) for v in project_sphere_points(PATH_START)[:2]])
    assert math.dist(own, other) > 0.5


def test_titles_say_how_far_apart():
    figure = draw_sphere_paths(encoding(head_dim=24), triplets=[0, 7])
    assert [axes.get_title().split(":")[0] for axes in figure.axes] == ["triplet 1", "triplet 8"]
    assert figure.axes[0].get_title().startswith("triplet 1: turns 90°,\nends ")
    own, other = (
        compute_sphere_path(torch.full((2,), math.pi / 2).double(), order)[-1][-1] for order in list_axis_orders(2)
    )
    assert f"ends {math.degrees(math.acos(own @ other)):.0f}° apart" in figure.axes[0].get_title()


def test_the_own_order_is_marked():
    words = [text.get_text() for text in draw_sphere_paths(encoding()).legends[0].get_texts()]
    assert words == ["turn along rows", "turn along columns", "rows then columns, the encoding's order", "columns then rows"]


def test_a_chain_with_triplets_has_paths():
    chained = rw.chain(encoding(heads=2), rw.create("alibi", head_dim=12, heads=2, axes=2, coordinates="pi", size=(3, 5)))
    assert "sphere" in applicable(chained)
    assert len(draw_sphere_paths(chained).axes) == 3


@pytest.mark.parametrize("other", [*OTHERS, encoding(axes=1, size=None)], ids=repr)
def test_others_are_refused_in_words(other):
    assert "sphere" not in applicable(other)
    assert type(other) is not rw.Spherical or isinstance(other(other.grid(1)), Sphere)
    with pytest.raises(ValueError, match=r"2 or 3 axes, got '[a-z0-9-]+'$"):
        draw_sphere_paths(other)


@pytest.mark.parametrize("options", [{"triplets": [4]}, {"triplets": [-1]}, {"head": 1}])
def test_triplets_and_heads_that_are_none_are_refused(options):
    with pytest.raises(ValueError, match=r"(triplets|head).*0.*\d"):
        draw_sphere_paths(encoding(), **options)
