"""The figures on pages of studies, from records that are made up."""

import itertools

import pytest
from matplotlib.colors import to_rgb

from ropewalk.lab.config import Config
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.studies import ALL_STUDIES
from study_figures import STYLED_NAMES, collect_accuracies, draw_sizes, draw_training, get_style, subtract_values
from study_tables import load_results
from tests.support.study_pages import make_record, render_study

LIGHT = FIGURE_THEMES["light"]
SIDES = (30, 9, 15)
CURVES = {0: [0.1, 0.2, 0.4], 1: [0.3, 0.3, 0.5]}


def make_volume(name, seed, points):
    """A run with this accuracy at 30³, in points; coarser grids have less, and rescaled ones 5 less still."""
    rows = [
        {"mode": mode, "size": [side] * 3, "accuracy": (points - (30 - side) - less) / 100}
        for side in SIDES
        for mode, less in (("extrapolate", 0), ("rescale", 5), ("yarn", 40))
    ]
    return make_record(
        "half", name, seed, probes={"resolution": [*rows, {"mode": "rescale", "why": "no"}]}, test_accuracy=0.5
    )


def make_detector(name, seed, ap, curve):
    """A run with this box AP on the test set, in points: 8 epochs, every third of them and the last validated."""
    config = Config(epochs=8, every=3)
    return make_record("masks", name, seed, curve=curve, metric="box_ap", config=config, test_box_ap=ap / 100)


VOLUMES = [make_volume(name, seed, 80 - 10 * i + seed**2) for i, name in enumerate(("mrope", "none")) for seed in range(3)]
DETECTORS = [
    *(make_detector("axial", seed, 45 + seed, curve) for seed, curve in CURVES.items()),
    make_detector("none", 2, 30, [0.0, 0.1, 0.2]),
]


@pytest.mark.parametrize("look", FIGURE_THEMES.values(), ids=FIGURE_THEMES)
def test_sizes(look, monkeypatch):
    figure = render_study("volumes", VOLUMES, monkeypatch)[1]["grids"](look)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["extrapolate", "rescale"]
    for axes, less in zip(figure.axes, (0, 5), strict=True):
        shown = {each.get_label(): each for each in axes.containers}
        assert list(shown) == ["none", "mrope"]
        for name, points in (("mrope", 80), ("none", 70)):
            line, _, (bars,) = shown[name].lines
            lowest = [points - 21 - less, points - 15 - less, points - less]
            assert [round(x) for x in line.get_xdata()] == sorted(SIDES)
            assert line.get_ydata() == pytest.approx([each + 5 / 3 for each in lowest])
            assert [tuple(end[1] for end in bar) for bar in bars.get_segments()] == [
                pytest.approx((each, each + 4)) for each in lowest
            ]


def test_differences_have_a_row_of_their_own():
    figure = draw_sizes(LIGHT, VOLUMES, ("none", "mrope"), title="", unit="", below="", base="mrope", limit=15)
    (line, _, _) = next(each for each in figure.axes[2].containers if each.get_label() == "none").lines
    assert line.get_ydata() == pytest.approx([-10.0] * 3)
    assert figure.axes[2].get_ylim() == (-15, 15)


def test_bars_of_two_encodings_do_not_hide_each_other():
    names = ALL_STUDIES["volumes"].parts["half"].encodings
    records = [make_volume(name, 0, 80.0) for name in names]
    for beside, count in ((True, len(names)), (False, 1)):
        drawn = draw_sizes(LIGHT, records, names, title="", unit="", below="", beside=beside).axes[0].containers
        places = [each.lines[0].get_xdata()[1] for each in drawn]
        assert len({round(place, 6) for place in places}) == count
        assert sum(places) / len(places) == pytest.approx(15)
        assert {round(place) for place in places} == {15}


def test_the_size_of_training_is_marked(monkeypatch):
    (side,) = set(ALL_STUDIES["volumes"].config("half", {}).size)
    for axes in render_study("volumes", VOLUMES, monkeypatch)[1]["grids"](LIGHT).axes:
        assert [side] * 2 in [list(line.get_xdata()) for line in axes.lines]


@pytest.mark.parametrize("look", FIGURE_THEMES.values(), ids=FIGURE_THEMES)
def test_training(look, monkeypatch):
    left, right = render_study("pedestrians", DETECTORS, monkeypatch)[1]["boxes"](look).axes
    curves = {line.get_label(): line for line in left.lines}
    assert list(curves["axial"].get_xdata()) == list(curves["none"].get_xdata()) == [3, 6, 8]
    assert curves["axial"].get_ydata() == pytest.approx([20, 25, 45])
    assert curves["none"].get_ydata() == pytest.approx([0, 10, 20])
    rows = dict(zip((label.get_text() for label in right.get_yticklabels()), right.get_yticks(), strict=True))
    dots = {(x, y) for line in right.lines for x, y in zip(*line.get_data(), strict=True)}
    assert dots == {(45.0, rows["axial"]), (46.0, rows["axial"]), (30.0, rows["none"])}
    colors = {line.get_ydata()[0]: line.get_color() for line in right.lines if len(line.get_ydata())}
    assert colors == {rows[name]: curves[name].get_color() for name in ("axial", "none")}


def test_detectors_that_were_never_validated_have_dots_alone():
    records = [make_detector("mixed", 0, 40.0, [])]
    left, right = draw_training(LIGHT, records, ("none", "mixed"), metric="box_ap", title="", unit="").axes
    assert not any(len(line.get_xdata()) for line in left.lines)
    assert [x for line in right.lines for x in line.get_xdata()] == [40.0]


def test_differences_are_those_of_sizes_and_seeds_that_both_have():
    own, base = {32: {0: 60.0, 1: 61.0}, 48: {2: 50.0}, 64: {0: 9.0}}, {32: {0: 58.0, 2: 1.0}, 48: {0: 40.0}}
    assert subtract_values(own, base) == {32: {0: 2.0}}


def test_accuracies_are_those_of_the_mode():
    assert collect_accuracies(VOLUMES, "mrope", "rescale")[15] == pytest.approx({0: 60.0, 1: 61.0, 2: 64.0})


@pytest.mark.parametrize("name", ["equivariance", "volumes", "pedestrians"])
def test_figures_of_what_was_measured_show_every_encoding(name, monkeypatch):
    for key, draw in render_study(name, load_results(name), monkeypatch)[1].items():
        figure = draw(LIGHT)
        assert all(axes.lines or axes.containers or axes.collections for axes in figure.axes), key


@pytest.mark.parametrize("look", FIGURE_THEMES.values(), ids=FIGURE_THEMES)
def test_encodings_can_be_distinguished(look, monkeypatch):
    styles = {name: get_style(name, look) for name in STYLED_NAMES}
    assert len({style["color"] for style in styles.values()}) == len(styles)
    assert all(one != after for one, after in itertools.pairwise(style["linestyle"] for style in styles.values()))
    drawn = set()
    for name, key in (("equivariance", "sizes"), ("volumes", "grids"), ("pedestrians", "boxes")):
        figure = render_study(name, load_results(name), monkeypatch)[1][key](look)
        drawn |= {label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]}
    assert drawn == set(styles)
    assert get_style("another", look, ("none", "another"))["color"]


@pytest.mark.parametrize("look", FIGURE_THEMES.values(), ids=FIGURE_THEMES)
def test_lines_stand_out_from_the_paper(look):
    paper = compute_luminance(look.paper)
    for name in STYLED_NAMES:
        low, high = sorted((paper, compute_luminance(get_style(name, look)["color"])))
        assert (high + 0.05) / (low + 0.05) >= 3


def compute_luminance(color):
    """As WCAG 2 defines it."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))
