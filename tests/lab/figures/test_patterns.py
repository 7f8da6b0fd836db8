import pytest
import torch

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures.attention_patterns import draw_attention_patterns
from ropewalk.lab.inspect.attention_scores import compute_attention_inputs, compute_attention_patterns, sample_random_tokens
from ropewalk.lab.inspect.encoding_facts import create_sample_encoding

SIZE = (3, 5)
PLANE = [example for kind in REGISTRY.values() for example in kind.examples() if example.axes == 2]
FIRST = [next(example for example in PLANE if example.name == name).config() for name in {example.name for example in PLANE}]
LINES = [create_sample_encoding(REGISTRY[name]) for name in rw.names() if REGISTRY[name].default_axes == 1]


def titles(figure):
    return [axes.get_title().partition(",")[0] for axes in figure.axes if axes.get_title()]


def pictures(figure):
    return [axes.images[0] for axes in figure.axes if axes.get_title()]


def along_diagonals(scores):
    """Whether a square picture is constant along its diagonals."""
    return torch.allclose(scores[1:, 1:], scores[:-1, :-1], atol=2e-5 * float(scores.abs().max()))


@pytest.mark.exhaustive("figures", kept=lambda encoding: encoding.config() in FIRST)
@pytest.mark.parametrize("encoding", PLANE, ids=repr)
def test_every_family_has_groups_if_it_turns_channels_and_heads(encoding):
    shown = titles(draw_attention_patterns(encoding, size=SIZE, groups=2, heads=2))
    turned = encoding.traits.rotary
    assert shown[-2:] == ["head 1", "head 2"]
    assert len(shown) == (4 if turned else 2)
    words = " ".join(text.get_text() for text in draw_attention_patterns(encoding, size=SIZE).texts)
    assert ("what positions add" in words) != turned


@pytest.mark.parametrize(
    "encoding", [e for e in PLANE if hasattr(e(e.grid(1, 1, resolution="extrapolate")), "matrices")], ids=repr
)
def test_scores_are_those_of_the_matrices(encoding):
    encoding = rw.create(**encoding.config()).double()
    x, y = sample_random_tokens(encoding, 2).double().split(1)
    places = encoding.grid(*SIZE, resolution="rescale")
    code = encoding(places[7:8], places)
    code = code if encoding.layers is None else code[0]
    q, k = (token.unflatten(1, (encoding.heads, -1))[0] for token in (x, y))
    share = encoding.heads // code.matrices().shape[0]
    q_turns, k_turns = (turns.repeat_interleave(share, 0) for turns in (code.matrices(), code.key_matrices()))
    wanted = torch.einsum("hied,hd,hnef,hf->hn", q_turns, q, k_turns, k) / encoding.head_dim**0.5
    torch.testing.assert_close(compute_attention_inputs(encoding, x, y, places[7:8], places).logits()[0, :, 0], wanted)


def test_scores_of_biases_and_offsets():
    alibi = rw.create("alibi", head_dim=4, heads=2, axes=2)
    x, y = sample_random_tokens(alibi, 2).split(1)
    places = alibi.grid(*SIZE)
    q, k = (token.unflatten(1, (2, 4))[0] for token in (x, y))
    plain = (q * k).sum(-1)[:, None] / 2
    met = compute_attention_inputs(alibi, x, y, places[7:8], places)
    wanted = -alibi.slope[:, None] * (places - places[7]).norm(dim=-1)
    torch.testing.assert_close(met.logits()[0, :, 0], plain + wanted)
    torch.testing.assert_close(met.plain[0, :, 0], plain)

    sincos = rw.create("sincos", head_dim=4, heads=2, axes=2)
    added = sincos(places).tokens(torch.zeros(1, 15, 8)).unflatten(-1, (2, 4))[0]
    wanted = ((k + added) * (q + added[7])).sum(-1).T / 2
    torch.testing.assert_close(compute_attention_inputs(sincos, x, y, places[7:8], places).logits()[0, :, 0], wanted)


def test_what_positions_add_is_the_bias_alone():
    encoding = rw.create("alibi", head_dim=4, heads=2, axes=2)
    drawn = compute_attention_patterns(encoding, size=(3, 5))
    rows, columns = drawn.heads[0].scores.shape
    down, across = (torch.arange(n) / (n / m) - (m - m / n) / 2 for n, m in ((rows, 3), (columns, 5)))
    wanted = -encoding.slope[1] * (down[:, None].square() + across.square()).sqrt()
    torch.testing.assert_close(drawn.heads[1].scores, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["axial", "uniform", "mixed", "spherical", "liere", "comrope-ap", "comrope-ld", "string-cayley", "golden"]
)
def test_groups_add_up_to_their_head(name):
    drawn = compute_attention_patterns(rw.create(name, head_dim=48, heads=2), size=SIZE, groups=48, heads=1)
    torch.testing.assert_close(sum(panel.scores for panel in drawn.groups), drawn.heads[0].scores, atol=1e-4, rtol=1e-4)


def test_axial_pairs_are_stripes_along_the_axes_and_mixed_ones_are_not():
    torch.manual_seed(0)
    along = [
        [bool((panel.scores == panel.scores.select(axis, 0).unsqueeze(axis)).all()) for axis in (0, 1)]
        for name in ("axial", "mixed")
        for panel in compute_attention_patterns(rw.create(name, head_dim=8), size=SIZE, groups=4).groups
    ]
    assert along == [[True, False], [True, False], [False, True], [False, True]] + [[False, False]] * 4


@pytest.mark.parametrize("encoding", LINES, ids=repr)
def test_of_a_text_relative_encodings_show_diagonals_and_others_do_not(encoding):
    drawn = compute_attention_patterns(encoding, size=(24,))
    assert drawn.query is None
    assert {along_diagonals(panel.scores) for panel in [*drawn.groups, *drawn.heads]} == {encoding.traits.relative[0]}


def test_a_learned_table_of_a_text_shows_no_diagonals():
    drawn = compute_attention_patterns(rw.create("learned-ape", head_dim=8, heads=2, axes=1, size=(9,)))
    assert drawn.size == (9, 9)
    assert not any(along_diagonals(panel.scores) for panel in drawn.heads)


def test_of_a_text_queries_go_down_and_keys_across():
    ahead = rw.create("t5-bias", head_dim=8, heads=1)
    with torch.no_grad():
        ahead.table.zero_()[:, 16:] = 1.0  # keys ahead of the query
    image = pictures(draw_attention_patterns(ahead, size=(6,)))[0]
    assert torch.equal(torch.tensor(image.get_array().data).sign(), torch.ones(6, 6).triu(1))
    axes = image.axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("query position", "key position")


def test_of_a_clip_the_middle_frame_is_shown():
    clip = rw.create("learned-ape", head_dim=12, heads=2, size=(4, 3, 5), axes=3)
    with torch.no_grad():
        clip.table *= 50
    x, y = sample_random_tokens(clip, 2).split(1)
    image = torch.cat([torch.full((15, 1), 2.0), rw.positions.grid(3, 5)], dim=1)
    met = compute_attention_inputs(clip, x, y, image[7:8], image)
    wanted = (met.logits() - met.plain)[0, :, 0].unflatten(-1, (3, 5))
    drawn = compute_attention_patterns(clip)
    assert drawn.frame == "frame 3 of 4"
    torch.testing.assert_close(drawn.heads[1].scores[4::9, 4::9], wanted[1], atol=1e-5, rtol=1e-5)
    words = [text.get_text() for text in draw_attention_patterns(clip).texts]
    assert "whole heads, frame 3 of 4" in words


def test_pictures_are_wide_where_images_are_and_have_a_scale_about_zero():
    figure = draw_attention_patterns(rw.create("axial", head_dim=8, heads=3), size=SIZE, groups=3, heads=2)
    figure.draw_without_rendering()
    for image in pictures(figure):
        rows, columns = image.get_array().shape
        assert rows / columns == 3 / 5
        assert image.get_extent() == [-0.5, 4.5, 2.5, -0.5]
        box = image.axes.get_window_extent()
        assert box.height / box.width == pytest.approx(3 / 5, rel=0.02)
        low, high = image.get_clim()
        assert low == -high == -abs(image.get_array()).max()
        cross = image.axes.lines[0]
        assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (2, 1)


def test_the_query_stands_at_the_cross():
    drawn = compute_attention_patterns(rw.create("alibi", head_dim=8, axes=2), size=SIZE)
    peak = divmod(int(drawn.heads[0].scores.argmax()), drawn.heads[0].scores.shape[1])
    middle = [(n - 1) / 2 for n in drawn.heads[0].scores.shape]
    assert all(abs(a - b) <= 0.5 for a, b in zip(peak, middle, strict=True))
    assert drawn.query == (1, 2)


def test_several_encodings_have_a_row_each():
    encodings = {"one": rw.create("axial", head_dim=8, heads=3), "two": rw.create("alibi", head_dim=8, heads=3)}
    figure = draw_attention_patterns(encodings, groups=3, heads=2)
    assert titles(figure) == ["pair 1", "pair 2", "pair 3", "head 1", "head 2", "head 1", "head 2"]
    words = [text.get_text() for text in figure.texts]
    assert {"single groups of channels", "whole heads", "one", "two", "turns no channels"} <= set(words)
    assert [image.get_array().shape[0] == 48 for image in pictures(figure)] == [False] * 5 + [True] * 2


def test_without_an_encoding_there_is_nothing_to_see():
    drawn = compute_attention_patterns(rw.create("none", head_dim=8, heads=2))
    assert not any(panel.scores.any() for panel in drawn.heads)
    figure = draw_attention_patterns(rw.create("none", head_dim=8, heads=2))
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["head 1, ±0", "head 2, ±0"]


def test_offsets_of_another_width_are_projected():
    wide, narrow = (rw.create("learned-ape", head_dim=8, heads=2, size=SIZE, width=width) for width in (16, 7))
    assert sample_random_tokens(narrow, 2).shape == (2, 7)
    assert compute_attention_patterns(narrow).heads[0].scores.shape == compute_attention_patterns(wide).heads[0].scores.shape


def test_the_same_seed_draws_the_same():
    encoding = rw.create("axial", head_dim=8, heads=2)
    first, again, other = (compute_attention_patterns(encoding, size=SIZE, seed=seed).heads[0].scores for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_layers_look_different():
    encoding = rw.create("mixed", head_dim=8, heads=2, layers=2)
    first, second = (compute_attention_patterns(encoding, size=SIZE, layer=layer).heads[0].scores for layer in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"groups": 0}, r"groups.*got 0"),
        ({"heads": 0}, r"heads.*got 0"),
        ({"encoding": {}}, "at least one encoding"),
        ({"size": (3, 0)}, r"size.*got 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        draw_attention_patterns(**{"encoding": rw.create("axial", head_dim=8)} | options)
