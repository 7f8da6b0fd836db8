import math

import pytest
import torch

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures.decay import compute_decay_curves, draw_decay
from ropewalk.lab.inspect.encoding_facts import create_sample_encoding

SIZE = (3, 5)
TURNING = [
    example
    for kind in REGISTRY.values()
    for example in kind.examples()
    if example.traits.rotary and example.traits.isometric and example.layers is None
]


def lines(axes):
    """The curves of heads: label and values."""
    return {line.get_label(): torch.tensor(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) > 2}


@pytest.mark.parametrize("encoding", TURNING, ids=repr)
def test_aligned_scores_start_at_their_maximum_which_is_the_norm(encoding):
    size = encoding.size or (3, 5, 7)[-encoding.axes :]
    found = compute_decay_curves(encoding, size)
    assert found.distance[0] == 0
    assert (found.aligned[:, :, 0] - encoding.head_dim**0.5).abs().max() < 1e-3
    assert (found.aligned <= found.aligned[:, :, :1] + 1e-3).all()


def test_only_aligned_scores_of_rope_decay():
    found = compute_decay_curves(rw.create("rope", head_dim=48, heads=2), (256,))
    near, far = (found.aligned[:, :, part].mean() for part in (slice(0, 8), slice(200, 256)))
    assert near > 2 * far > 1
    standard_error = len(found.random) ** -0.5
    assert (found.random.mean(0).abs() < 5 * standard_error).all()
    assert 0.8 < found.random.std(0).mean() < 1.2


def test_aligned_scores_of_rope_are_the_mean_of_cosines():
    encoding = rw.create("rope", head_dim=64)
    found = compute_decay_curves(encoding, (64,))
    wanted = 8 * (torch.arange(64)[:, None] * encoding.frequency[0]).cos().mean(1)
    assert (found.aligned.mean(0)[0] - wanted).abs().max() < 0.6


@pytest.mark.parametrize("axis", [0, 1])
def test_biases_are_those_of_the_distance(axis):
    encoding = rw.create("alibi", head_dim=8, heads=4, axes=2, size=SIZE)
    found = compute_decay_curves(encoding, SIZE, axis=axis)
    assert found.distance[-1] == SIZE[axis] - 1
    for scores in (found.aligned, found.random):
        lost = (scores - scores[:, :, :1]).mean(0)
        torch.testing.assert_close(lost, -encoding.slope[:, None] * found.distance, atol=1e-4, rtol=1e-4)


def test_keys_stand_before_the_query():
    encoding = rw.create("t5-bias", head_dim=8)
    with torch.no_grad():
        encoding.table.zero_()[:, 16:] = 1.0  # keys ahead
    found = compute_decay_curves(encoding, (20,))
    assert found.random.std(-1).max() < 1e-5


def test_axes_and_units_are_said():
    figure = draw_decay(rw.create("axial", head_dim=8, heads=2), size=SIZE, axis=0)
    left, right = figure.axes
    assert figure.texts[0].get_text() == "axial: score against distance along rows"
    assert [axes.get_title() for axes in figure.axes] == ["aligned: q = k", "independent q and k"]
    assert left.get_ylabel() == "score"
    assert {axes.get_xlabel() for axes in figure.axes} == {"distance (patches)"}
    assert draw_decay(rw.create("rope", head_dim=8)).axes[0].get_xlabel() == "distance (positions)"
    assert left.get_ylim() == right.get_ylim()


def test_lines_are_means_and_the_band_holds_most_of_them():
    encoding = rw.create("rope", head_dim=8)
    found = compute_decay_curves(encoding, (256,))
    figure = draw_decay(encoding)
    for axes, scores in zip(figure.axes, (found.aligned, found.random), strict=True):
        torch.testing.assert_close(lines(axes)["head 1"], scores[:, 0].mean(0))
        (band,) = axes.collections
        edges = torch.tensor(band.get_paths()[0].vertices)[:, 1]
        inside = (scores[:, 0] >= edges.min()) & (scores[:, 0] <= edges.max())
        low, high = torch.quantile(scores[:, 0], torch.tensor([0.1, 0.9]), dim=0)
        assert edges.min() == pytest.approx(low.min().item())
        assert edges.max() == pytest.approx(high.max().item())
        assert inside.double().mean() >= 0.8


def test_heads_that_share_a_table_are_one_line_and_others_are_several():
    assert list(lines(draw_decay(rw.create("axial", head_dim=8, heads=8)).axes[0])) == ["head 1"]
    for name in ("mixed", "alibi", "sincos", "t5-bias", "transformer-xl", "string-cayley", "liere"):
        assert list(lines(draw_decay(create_sample_encoding(REGISTRY[name])).axes[0])) == [
            "head 1",
            "head 3",
            "head 5",
            "head 7",
        ]


def test_draws_are_fewer_where_there_is_more_to_hold():
    assert len(compute_decay_curves(rw.create("axial", head_dim=8), SIZE).aligned) == 96
    assert len(compute_decay_curves(rw.create("rope", head_dim=128, heads=8), (256,)).aligned) == 16


@pytest.mark.parametrize("axis", [2, -3])
def test_axes_that_are_none_are_refused(axis):
    with pytest.raises(ValueError, match=f"axis must be one of the 2 axes, got {axis}"):
        draw_decay(rw.create("axial", head_dim=8), axis=axis)


def test_the_first_score_is_the_root_of_the_width():
    assert lines(draw_decay(rw.create("spherical", head_dim=9)).axes[0])["head 1"][0] == pytest.approx(math.sqrt(9))
