import pytest
import torch

import ropewalk as rw
from ropewalk.lab.figures.tables import draw_code_tables

SIZE = (3, 5)
SHAPE = {"head_dim": 12, "heads": 4, "size": SIZE}


def pictures(figure):
    """The tables by title: values as they are drawn."""
    return {axes.get_title().partition(", ±")[0]: torch.tensor(axes.images[0].get_array().data) for axes in figure.axes[:-1]}


def test_cosines_and_sines_are_those_of_the_code():
    encoding = rw.create("mixed", **SHAPE)
    shown = pictures(draw_code_tables(encoding))
    angle = encoding(encoding.grid(*SIZE)).q_angle[0].detach()
    assert list(shown) == ["cos of head 1", "sin of head 1"]
    torch.testing.assert_close(shown["cos of head 1"], angle.cos())
    torch.testing.assert_close(shown["sin of head 1"], angle.sin())
    axes = draw_code_tables(encoding).axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("token", "pair")


def test_gains_are_in_the_tables():
    encoding = rw.create("xpos", head_dim=12, heads=2)
    code = encoding(encoding.grid(48))
    shown = pictures(draw_code_tables(encoding))["gain · cos of head 1"]
    torch.testing.assert_close(shown, (code.q_gain * code.q_angle.cos())[0])
    assert (code.q_gain != 1).any()


def test_spheres_have_tables_for_each_axis():
    encoding = rw.create("spherical", **SHAPE)
    shown = pictures(draw_code_tables(encoding))
    angle = encoding(encoding.grid(*SIZE)).q_angle[0]
    assert list(shown) == ["cos, rows", "sin, rows", "cos, columns", "sin, columns"]
    torch.testing.assert_close(shown["sin, columns"], angle[..., 1].sin())
    torch.testing.assert_close(shown["cos, rows"], angle[..., 0].cos())
    assert not torch.equal(shown["cos, rows"], shown["cos, columns"])


def test_rotation_matrices_lie_where_their_places_do():
    encoding = rw.create("liere", block=4, **SHAPE)
    figure = draw_code_tables(encoding)
    shown = pictures(figure)
    matrix = encoding(encoding.grid(*SIZE)).q_matrix[0].detach()  # (n G b b)
    assert list(shown) == ["block 1 of head 1", "block 2 of head 1"]
    for row in range(3):
        for column in range(5):
            tile = shown["block 2 of head 1"][5 * row : 5 * row + 4, 5 * column : 5 * column + 4]
            torch.testing.assert_close(tile, matrix[5 * row + column, 1], atol=1e-5, rtol=1e-5)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "3", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2"]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("row", "column")
    assert axes.get_xticks().tolist() == [1.5, 6.5, 11.5, 16.5, 21.5]


def test_rotation_matrices_of_texts_and_clips():
    text = draw_code_tables(rw.create("liere", head_dim=8, block=4, axes=1), size=(9,)).axes[0]
    assert [label.get_text() for label in text.get_xticklabels()] == ["0", "2", "4", "6", "8"]
    assert (text.get_ylabel(), text.get_xlabel()) == ("", "position")
    clip = rw.create("liere", head_dim=8, block=4, axes=3, size=(3, 3, 5))
    middle = clip(clip.grid(3, 3, 5)).q_matrix[0, 15:30, 0].detach()
    torch.testing.assert_close(
        pictures(draw_code_tables(clip))["block 1 of head 1"][:4, :4], middle[0], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("layers", [None, 2])
def test_offsets_are_what_is_added(layers):
    encoding = rw.create("learned-ape", layers=layers, **SHAPE)
    shown = pictures(draw_code_tables(encoding, layer=0 if layers is None else 1))
    torch.testing.assert_close(shown["what is added to the tokens"], encoding.table.detach().flatten(0, 1))


def test_biases_are_those_of_each_head():
    encoding = rw.create("alibi", axes=2, **SHAPE)
    shown = pictures(draw_code_tables(encoding))
    places = encoding.grid(*SIZE)
    assert list(shown) == ["head 1", "head 2", "head 3"]
    for head, values in enumerate(shown.values()):
        torch.testing.assert_close(values, -encoding.slope[head] * torch.cdist(places, places), atol=1e-5, rtol=1e-5)
    assert draw_code_tables(encoding).axes[0].get_ylabel() == "query's token"


def test_biases_that_depend_on_the_content_are_of_a_random_query_and_key():
    encoding = rw.create("transformer-xl", head_dim=12, heads=2)
    shown = pictures(draw_code_tables(encoding, size=(9,)))["head 1"]
    torch.testing.assert_close(shown[1:, 1:], shown[:-1, :-1], atol=1e-4, rtol=1e-4)
    other = pictures(draw_code_tables(encoding, size=(9,), seed=1))["head 1"]
    assert not torch.allclose(shown, other)


def test_chains_have_a_row_for_each_part():
    chained = rw.chain(rw.create("learned-ape", **SHAPE), rw.create("axial", **SHAPE), rw.create("alibi", axes=2, **SHAPE))
    figure = draw_code_tables(chained)
    wanted = ["what is added to the tokens", "cos of head 1", "sin of head 1", "head 1", "head 2", "head 3"]
    assert list(pictures(figure)) == wanted
    figure.draw_without_rendering()
    heights = [axes.get_position().y0 for axes in figure.axes[:-1]]
    assert heights[0] > heights[1] == heights[2] > heights[3] == pytest.approx(heights[4])


def test_a_basis_is_shown_before_what_it_is_for():
    encoding = rw.create("string-cayley", **SHAPE)
    shown = pictures(draw_code_tables(encoding))
    assert list(shown) == ["basis of head 1", "cos of head 1", "sin of head 1"]
    basis = shown["basis of head 1"]
    torch.testing.assert_close(basis.T @ basis, torch.eye(12), atol=1e-5, rtol=0)


def test_scales_are_symmetric_and_said():
    for axes in draw_code_tables(rw.create("alibi", axes=2, **SHAPE)).axes[:-1]:
        low, high = axes.images[0].get_clim()
        assert low == -high == -abs(axes.images[0].get_array()).max()
        assert axes.get_title().endswith(f"±{high:.2g}")


def test_large_images_are_cut():
    words = [text.get_text() for text in draw_code_tables(rw.create("axial", head_dim=8, size=(64, 48))).texts]
    assert any(line.startswith("On 8 × 8 patches") for line in words)
