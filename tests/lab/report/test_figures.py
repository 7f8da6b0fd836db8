"""Figures of a report: values are drawn where they were measured, and probes declare their curves."""

import math
import re
from dataclasses import replace

import pytest

from ropewalk.lab.config import Config
from ropewalk.lab.probes import PROBES
from ropewalk.lab.probes.probe import Probe, ProbeCurve
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.figures import FIGURES, list_figure_names, make_figures, plot_estimates
from ropewalk.lab.report.groups import group_records
from ropewalk.lab.report.page import PageCell, make_cell
from ropewalk.lab.report.panels import FigureSources, ReportFigure, compute_error_lengths, make_canvas, render_svg
from ropewalk.lab.report.probe_figures import draw_probe_curve, plot_curves, set_measured_ticks
from ropewalk.lab.report.theme import assign_styles
from ropewalk.lab.result_rows import TableRow, build_table_rows
from ropewalk.lab.results_table import TableCell
from ropewalk.lab.statistics import MeanEstimate
from ropewalk.lab.task_types import BITS_PER_BYTE, TASK_TYPES, TOP1_ACCURACY

BASE = Config(data="digits")
CURVE = ProbeCurve(title="Noise", caption="Noise is added.", x="noise", x_label="noise, counts")


def sources(rows, *, encodings=("none", "mixed"), seeds=(0, 1), suffix=""):
    """A group in which all runs have these probe rows, with scores that depend on encoding and seed."""
    records = [
        RunRecord(
            config=replace(BASE, encoding=name, seed=seed),
            run=None,
            result={"test_accuracy": 0.5 + 0.1 * i + 0.01 * seed},
            probes={"noise": rows},
        )
        for i, name in enumerate(encodings)
        for seed in seeds
    ]
    (group,) = group_records(records)
    styles = assign_styles(encodings, "none")
    return FigureSources(group, build_table_rows(group.found, group.metric, baseline="none"), styles, "none", suffix)


def error_bars(figure):
    """The ends of all error bars in a figure, along the axis of values."""
    (axes,) = figure.axes
    return [path.vertices for bars in axes.collections for path in bars.get_paths()]


# Error bars and positions


def test_error_bars_end_at_the_bounds():
    estimates = [
        MeanEstimate(0.02, 0.1, 2),
        MeanEstimate(0.5, 0.1, 2),
        MeanEstimate(0.95, 0.1, 2),
        MeanEstimate(0.3, None, 1),
    ]
    below, above = compute_error_lengths(estimates, (0.0, 1.0))
    assert below == pytest.approx([0.02, 0.1, 0.1, 0.0])
    assert above == pytest.approx([0.1, 0.1, 0.05, 0.0])


@pytest.mark.parametrize(("metric", "ends"), [(TOP1_ACCURACY, [0.0, 1.0]), (BITS_PER_BYTE, [0.0, 1.35])])
def test_drawn_scores_have_error_bars_between_0_and_100_percent(metric, ends):
    rows = build_table_rows(sources([]).group.found, metric, baseline="none")
    rows = [replace(rows[0], score=MeanEstimate(0.05, 0.4, 2)), replace(rows[1], score=MeanEstimate(0.95, 0.4, 2))]
    drawn = error_bars(plot_estimates(rows, assign_styles(["none", "mixed"], "none"), ""))
    assert [min(each[:, 0].min() for each in drawn), max(each[:, 0].max() for each in drawn)] == pytest.approx(ends)


def test_markers_of_all_encodings_are_at_their_x_values():
    line = {0.5: MeanEstimate(0.9, 0.3, 2), 3.0: MeanEstimate(0.1, 0.3, 2), 4.0: MeanEstimate(0.2, 0.3, 2)}
    lines = {label: line for label in ("none", "mixed", "axial")}
    figure = plot_curves(lines, assign_styles(lines, "none"), "", xlabel="", ylabel="", metric=TOP1_ACCURACY)
    (axes,) = figure.axes
    assert [list(each.get_xdata()) for each in axes.lines] == [[0.5, 3.0, 4.0]] * 3
    ends = error_bars(figure)
    assert {x for each in ends for x in each[:, 0]} == {0.5, 3.0, 4.0}
    assert (min(each[:, 1].min() for each in ends), max(each[:, 1].max() for each in ends)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "labels", "scale"),
    [
        ([0, 0.5, 1, 2, 4, 8], ["0", "", "1", "2", "4", "8"], "linear"),
        ([1, 2, 16], ["1", "2", "16"], "log"),
        ([5], ["5"], "linear"),
    ],
)
def test_ticks_are_where_values_were_measured_and_labels_do_not_overlap(values, labels, scale):
    _, axes = make_canvas("")
    axes.plot(values, values)
    set_measured_ticks(axes, values)
    assert list(axes.get_xticks()) == values
    assert [each.get_text() for each in axes.get_xticklabels()] == labels
    assert axes.get_xscale() == scale


# Curves that probes declare


def test_a_declared_curve_is_drawn_for_every_encoding():
    rows = [{"noise": 2, "accuracy": 0.4}, {"noise": 1, "accuracy": 0.8}, {"noise": 2, "accuracy": 0.6}]
    figure = draw_probe_curve(sources(rows, suffix="-2"), "noise", CURVE)
    assert (figure.name, figure.title, figure.legend) == ("noise", "Noise", ["mixed", "none"])
    assert figure.caption.startswith("Noise is added.")
    (panel,) = figure.panels
    assert panel.name == "noise-2"
    assert "mixed 80.0 ± 0.0 % at 1, 50.0 ± 0.0 % at 2" in panel.alt
    assert panel.png[:4] == b"\x89PNG"
    for text in ("Validation accuracy, %", "noise, counts"):
        assert f">{text}</text>" in panel.svg
    assert set(re.findall(r'data-encoding="([^"]+)"', panel.svg)) == {"mixed", "none"}


def test_a_declared_curve_has_a_panel_for_each_title_with_rows():
    rows = [{"kind": kind, "size": [3, x], "loss": x / 7} for kind in ("a", "c") for x in (4, 6)]
    curve = replace(
        CURVE,
        x=lambda row: row["size"][1],
        y="loss",
        y_label="Loss, nats",
        panel_column="kind",
        panels=(("a", "First"), ("b", "Second"), ("c", "Third")),
    )
    first, third = draw_probe_curve(sources(rows), "noise", curve).panels
    assert (first.name, third.name) == ("noise-a", "noise-c")
    assert "0.571 at 4, 0.857 at 6" in first.alt
    assert ">Loss, nats</text>" in third.svg
    assert ">Third</text>" in third.svg


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"why": "too noisy"}],
        [{"noise": "x", "accuracy": 0.5}],
        [{"noise": 1, "accuracy": "half"}],
        [{"noise": math.nan, "accuracy": 0.5}],
    ],
)
def test_rows_that_cannot_be_drawn_leave_no_figure(rows):
    assert draw_probe_curve(sources(rows), "noise", CURVE) == "No run was probed for noise."


@pytest.mark.parametrize("row", [{}, {"size": 3}, {"size": []}, {"size": ["x"]}, {"size": [0]}])
def test_a_place_that_cannot_be_computed_leaves_a_row_out(row):
    curve = replace(CURVE, x=lambda row: 1 / row["size"][0])
    assert draw_probe_curve(sources([row | {"accuracy": 0.5}]), "noise", curve) == "No run was probed for noise."
    figure = draw_probe_curve(sources([row | {"accuracy": 0.5}, {"size": [2], "accuracy": 0.9}]), "noise", curve)
    assert "90.0 ± 0.0 % at 0.5" in figure.panels[0].alt
    assert "50.0" not in figure.panels[0].alt


def test_one_seed_has_no_error_bars():
    figure = draw_probe_curve(sources([{"noise": 1, "accuracy": 0.5}], seeds=(0,)), "noise", CURVE)
    assert "no confidence intervals" in figure.caption
    assert "±" not in figure.panels[0].alt


# Encodings in SVG


def test_labels_in_svg_are_escaped():
    label = '<b onload="x">&\'--></svg>'
    rows = build_table_rows({label: sources([]).group.found["mixed"]}, TOP1_ACCURACY, baseline="none")
    svg = render_svg(plot_estimates(rows, assign_styles([label], "none"), ""))
    assert "<b" not in svg
    assert svg.count("</svg>") == 1
    assert 'data-encoding="&lt;b onload=&quot;x&quot;&gt;' in svg
    assert not re.search(r'<g[^>]* id="', svg)


# The registry


def test_every_figure_that_a_task_names_can_be_drawn():
    for task in TASK_TYPES.values():
        names = list_figure_names(task)
        assert names[: len(task.figures)] == [*task.figures]
        assert all(name in FIGURES or PROBES[name].curve is not None for name in names)
    assert "resolution" not in list_figure_names(TASK_TYPES["text"])


def test_a_probe_with_a_curve_is_drawn_without_further_code(monkeypatch):
    monkeypatch.setitem(PROBES, "noise", Probe(name="noise", summary="", measure=list, tasks=("classify",), curve=CURVE))
    figures = make_figures(sources([{"noise": 1, "accuracy": 0.5}]))
    assert [each.name for each in figures if isinstance(each, ReportFigure)] == ["accuracy", "noise"]
    assert "No run was probed for offset." in figures
    assert "noise" not in list_figure_names(TASK_TYPES["text"])


# Tables


@pytest.mark.parametrize(("metric", "better"), [(BITS_PER_BYTE, False), (TOP1_ACCURACY, True)])
def test_significant_differences_are_marked_as_better_or_worse(metric, better):
    row = TableRow(label="mixed", runs={}, metric=metric, difference=MeanEstimate(0.2, 0.1, 3))
    kinds = ["better", "worse"] if better else ["worse", "better"]
    for sign, kind in zip((1, -1), kinds, strict=True):
        row = replace(row, difference=MeanEstimate(sign * 0.2, 0.1, 3))
        assert make_cell(row, TableCell("+20", sign * 0.2, "difference")) == PageCell("+20", sign * 0.2, "significant", kind)


@pytest.mark.parametrize(
    ("difference", "remark"), [(MeanEstimate(0.1, 0.1, 3), "not significant"), (MeanEstimate(0.9, None, 1), ""), (None, "")]
)
def test_other_differences_are_not_called_significant(difference, remark):
    row = TableRow(label="mixed", runs={}, difference=difference)
    assert make_cell(row, TableCell("x", None, "difference")).remark == remark
    assert make_cell(row, TableCell("x", 3, "seeds")) == PageCell("x", 3.0)
