"""The figures of the studies of volumes and pedestrians, from runs that are made up."""

import itertools
import re

import equivariance_figures
import pedestrians
import pedestrians_figures
import pytest
import studied
import volumes
import volumes_figures
from matplotlib.colors import to_rgb

import study_figures
from ropewalk.lab.figures.theme import FIGURE_THEMES

SIDES = (30, 9, 15)
CURVES = {0: [0.1, 0.2, 0.4], 1: [0.3, 0.3, 0.5]}
PAGES = {"volumes": (volumes, volumes_figures), "pedestrians": (pedestrians, pedestrians_figures)}


def volume(name, seed, level):
    """A line of a run with this accuracy at 30³, in points; coarser grids have less, and rescaled ones 5 less still."""
    rows = [
        {"mode": mode, "size": [side] * 3, "grid": [side // 3] * 3, "accuracy": (level - (30 - side) - less) / 100}
        for side in SIDES
        for mode, less in (("extrapolate", 0), ("rescale", 5), ("yarn", 40))
    ]
    return {"part": "half", "name": name, "seed": seed, "probes": {"resolution": [*rows, {"mode": "rescale", "why": "no"}]}}


def detector(name, seed, ap, curve):
    """A line of a run with this box AP on the test set, in points: 8 epochs, every third of them and the last validated."""
    more = {"test_box_ap": ap / 100, "box_curve": curve, "epochs": 8, "settings": {"every": 3}}
    return {"part": "masks", "name": name, "seed": seed, "encoding_parameters": 0, **more}


LINES = {
    "volumes": [volume(name, seed, 80 - 10 * i + seed**2) for i, name in enumerate(("mrope", "none")) for seed in range(3)],
    "pedestrians": [
        *(detector("axial", seed, 45 + seed, curve) for seed, curve in CURVES.items()),
        detector("none", 2, 30, [0.0, 0.1, 0.2]),
    ],
}
both = pytest.mark.parametrize("study", PAGES)


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_grids(theme):
    figure = volumes_figures.grids(FIGURE_THEMES[theme], LINES["volumes"])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["extrapolate", "rescale"]
    for axes, less in zip(figure.axes, (0, 5), strict=True):
        shown = {each.get_label(): each for each in axes.containers}
        assert list(shown) == ["none", "mrope"]
        for name, level in (("mrope", 80), ("none", 70)):
            line, _, (bars,) = shown[name].lines
            lowest = [level - 21 - less, level - 15 - less, level - less]
            assert [round(x) for x in line.get_xdata()] == sorted(SIDES)
            assert line.get_ydata() == pytest.approx([each + 5 / 3 for each in lowest])
            assert [tuple(end[1] for end in bar) for bar in bars.get_segments()] == [
                pytest.approx((each, each + 4)) for each in lowest
            ]


def test_bars_of_two_encodings_do_not_hide_each_other():
    lines = [volume(name, 0, 80.0) for name in volumes_figures.DRAWN]
    drawn = volumes_figures.grids(FIGURE_THEMES["light"], lines).axes[0].containers
    places = [each.lines[0].get_xdata()[1] for each in drawn]
    assert len({round(place, 6) for place in places}) == len(volumes_figures.DRAWN)
    assert sum(places) / len(places) == pytest.approx(15)
    assert {round(place) for place in places} == {15}


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_boxes(theme):
    left, right = pedestrians_figures.boxes(FIGURE_THEMES[theme], LINES["pedestrians"]).axes
    curves = {line.get_label(): line for line in left.lines}
    assert list(curves["axial"].get_xdata()) == list(curves["none"].get_xdata()) == [3, 6, 8]
    assert curves["axial"].get_ydata() == pytest.approx([20, 25, 45])
    assert curves["none"].get_ydata() == pytest.approx([0, 10, 20])
    rows = dict(zip((label.get_text() for label in right.get_yticklabels()), right.get_yticks(), strict=True))
    dots = {(x, y) for line in right.lines for x, y in zip(*line.get_data(), strict=True)}
    assert dots == {(45.0, rows["axial"]), (46.0, rows["axial"]), (30.0, rows["none"])}
    colours = {line.get_ydata()[0]: line.get_color() for line in right.lines if len(line.get_ydata())}
    assert colours == {rows[name]: curves[name].get_color() for name in ("axial", "none")}


def test_detectors_that_were_never_validated_have_dots_alone():
    left, right = pedestrians_figures.boxes(FIGURE_THEMES["light"], [detector("mixed", 0, 40.0, [])]).axes
    assert not any(len(line.get_xdata()) for line in left.lines)
    assert [x for line in right.lines for x in line.get_xdata()] == [40.0]


@both
def test_the_page_shows_the_figure_that_is_drawn(study, tmp_path):
    page, figures = PAGES[study]
    figures.draw(tmp_path, LINES[study])
    shown = re.findall(r"\.\./images/([\w-]+\.png)#only-(\w+)", page.picture(LINES[study]))
    assert {theme for _, theme in shown} == set(FIGURE_THEMES)
    assert {name for name, _ in shown} == {path.name for path in (tmp_path / "images").iterdir()}
    assert page.TABLES[f"{study}-figure"] is page.picture


@both
def test_nothing_is_drawn_before_the_runs_are_made(study, tmp_path):
    page, figures = PAGES[study]
    for lines in ([], [line | {"part": "other"} for line in LINES[study]]):
        assert page.picture(lines) == studied.ABSENT
        figures.draw(tmp_path, lines)
        assert not list((tmp_path / "images").iterdir())


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_encodings_can_be_told_apart(theme):
    looks = {name: study_figures.style(name, FIGURE_THEMES[theme]) for name in study_figures.NAMES}
    assert len({look["color"] for look in looks.values()}) == len(looks)
    drawn = {*equivariance_figures.DRAWN, *volumes_figures.DRAWN, *pedestrians_figures.DRAWN}
    assert drawn == set(looks)
    dashes = [look["linestyle"] for look in looks.values()]
    assert all(one != after for one, after in itertools.pairwise(dashes))


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_lines_stand_out_from_the_paper(theme):
    look = FIGURE_THEMES[theme]
    paper = luminance(look.paper)
    for name in study_figures.NAMES:
        low, high = sorted((paper, luminance(study_figures.style(name, look)["color"])))
        assert (high + 0.05) / (low + 0.05) >= 3


def luminance(colour):
    """How bright it is, as WCAG 2 defines it."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def test_the_grid_of_training_is_marked():
    assert set(volumes.STUDY.config("half", {}).size) == {volumes_figures.TRAINED}
    for axes in volumes_figures.grids(FIGURE_THEMES["light"], LINES["volumes"]).axes:
        assert [volumes_figures.TRAINED] * 2 in [list(line.get_xdata()) for line in axes.lines]
