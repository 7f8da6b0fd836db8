import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.lab.patterns import patterns, scores
from ropewalk.lab.plots import THEMES, attention_patterns

DOCS = Path(__file__).parent.parent / "docs"
SIZES = (3, 5)
EXAMPLES = [example for kind in REGISTRY.values() for example in kind.examples()]
PLANE = [example for example in EXAMPLES if example.axes == 2]
OTHERS = [example for example in EXAMPLES if example.axes != 2]


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


@pytest.mark.parametrize("encoding", PLANE, ids=repr)
def test_every_family_can_be_drawn(encoding):
    figure = attention_patterns({"label": encoding}, sizes=SIZES, groups=2, heads=2)
    groups = titles(figure)[:-2]
    assert titles(figure)[-2:] == ["head 1", "head 2"]
    assert len(groups) == (2 if encoding.traits.rotary else 0)
    assert ("turns no channels" in [text.get_text() for text in figure.texts]) != encoding.traits.rotary
    figure.savefig(io.BytesIO(), format="png", dpi=20)


@pytest.mark.parametrize("encoding", OTHERS, ids=repr)
def test_other_numbers_of_axes_are_refused(encoding):
    with pytest.raises(ValueError, match=r"2 axes, got .*axes=|2 axes, got .*1 axis"):
        attention_patterns({"label": encoding})


@pytest.mark.parametrize("encoding", [e for e in PLANE if e.traits.rotary], ids=repr)
def test_scores_are_those_of_the_matrices(encoding):
    encoding = rw.create(**encoding.config()).double()
    q, k = torch.randn(2, 1, encoding.heads, encoding.head_dim, dtype=torch.float64)
    places = encoding.grid(*SIZES, resolution="rescale")
    code = encoding(places.mean(0, keepdim=True), places)
    code = code if encoding.layers is None else code[0]
    share = encoding.heads // code.matrices().shape[0]
    q_turns, k_turns = (turns.repeat_interleave(share, 0) for turns in (code.matrices(), code.key_matrices()))
    wanted = torch.einsum("hied,hd,hnef,hf->hn", q_turns, q[0], k_turns, k[0]) / encoding.head_dim**0.5
    torch.testing.assert_close(scores(encoding, q, k, sizes=SIZES)[0].flatten(1), wanted)


def test_scores_of_biases_and_offsets():
    alibi = rw.create("alibi", head_dim=4, heads=2, axes=2)
    q, k = torch.randn(2, 1, 2, 4)
    away = alibi.grid(*SIZES) - torch.tensor([1.0, 2.0])
    wanted = (q * k).sum(-1)[0, :, None] / 2 - alibi.slope[:, None] * away.norm(dim=-1)
    torch.testing.assert_close(scores(alibi, q, k, sizes=SIZES)[0].flatten(1), wanted)

    sincos = rw.create("sincos", head_dim=4, heads=2, axes=2)
    added = sincos(sincos.grid(*SIZES)).tokens(torch.zeros(1, 15, 8)).unflatten(-1, (2, 4))[0]
    wanted = ((k[0] + added) * (q[0] + added[7])).sum(-1).T / 2
    torch.testing.assert_close(scores(sincos, q, k, sizes=SIZES)[0].flatten(1), wanted)


@pytest.mark.parametrize("name", ["axial", "uniform", "mixed", "spherical", "liere", "comrope-ap", "comrope-ld"])
def test_groups_add_up_to_their_head(name):
    encoding = rw.create(name, head_dim=48, heads=2)
    drawn = patterns(encoding, sizes=SIZES, groups=48, heads=1)
    torch.testing.assert_close(sum(panel.scores for panel in drawn.groups), drawn.heads[0].scores)


def test_axial_pairs_are_stripes_along_the_axes_and_mixed_ones_are_not():
    along = [
        [bool((panel.scores == panel.scores.select(axis, 0).unsqueeze(axis)).all()) for axis in (0, 1)]
        for name in ("axial", "mixed")
        for panel in patterns(rw.create(name, head_dim=8), sizes=SIZES, groups=4).groups
    ]
    assert along == [[True, False], [True, False], [False, True], [False, True]] + [[False, False]] * 4


def test_pictures_have_rows_and_columns_and_a_scale_about_zero():
    encodings = {"one": rw.create("axial", head_dim=8, heads=3), "two": rw.create("alibi", head_dim=8, heads=3, axes=2)}
    figure = attention_patterns(encodings, sizes=SIZES, groups=3, heads=2)
    assert titles(figure) == ["pair 1", "pair 2", "pair 3", "head 1", "head 2", "head 1", "head 2"]
    words = [text.get_text() for text in figure.texts]
    assert words == ["single groups of channels", "whole heads", "one", "two", "turns no channels"]
    for image in (axes.images[0] for axes in figure.axes if axes.get_title()):
        low, high = image.get_clim()
        assert image.get_array().shape == SIZES
        assert low == -high == -abs(image.get_array()).max()


def test_the_same_seed_draws_the_same():
    encoding = rw.create("axial", head_dim=8, heads=2)
    first, again, other = (patterns(encoding, sizes=SIZES, seed=seed).heads[0].scores for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("theme", THEMES)
def test_zero_has_the_colour_of_the_paper(theme):
    paper = [int(THEMES[theme].paper[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    assert THEMES[theme].colours()(0.5)[:3] == pytest.approx(paper)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"theme": "sepia"}, "theme must be one of 'light', 'dark', got 'sepia'"),
        ({"groups": 0}, "groups must be a positive integer, got 0"),
        ({"heads": 0}, "heads must be a positive integer, got 0"),
        ({"encodings": {}}, "at least one encoding, got none"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        attention_patterns(**{"encodings": {"axial": rw.create("axial", head_dim=8)}} | options)


def test_drawing_leaves_no_global_figure_behind():
    program = """
import sys
import ropewalk as rw
from ropewalk.lab.plots import attention_patterns
attention_patterns({"axial": rw.create("axial", head_dim=8)}).savefig("/dev/null", format="png")
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_demo_draws_the_pictures_of_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("demo", DOCS / "demo.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "HERE", tmp_path / "docs")
    demo.main()
    pictures = [f"attention-patterns-{theme}.png" for theme in THEMES]
    assert capsys.readouterr().out.split() == [f"out/{picture}" for picture in pictures]
    for picture in pictures:
        sizes = [(folder / picture).stat().st_size for folder in (tmp_path / "out", DOCS / "images")]
        assert all(100_000 < size < 300_000 for size in sizes)
