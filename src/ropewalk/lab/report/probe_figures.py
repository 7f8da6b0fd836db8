"""Figures of what probes found."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ropewalk.lab.report.figures import FigurePanel, FigureSources, ReportFigure, describe_error_bars
from ropewalk.lab.report.format import format_accuracy
from ropewalk.lab.report.learned_figures import plot_layer_frequencies
from ropewalk.lab.report.panels import plot_accuracy_lines, shorten_label
from ropewalk.lab.report.series import (
    EstimateLines,
    collect_frequencies,
    collect_lines,
    get_offset_deviation,
    get_shift_distance,
    make_size_key,
)

MODE_TITLES = {
    "extrapolate": "Extrapolate: patches keep their distance",
    "rescale": "Rescale: the image keeps its extent",
    "ntk": "NTK: slow waves are slowed down",
    "yarn": "YaRN: waves of few turns are slowed down",
}


def make_resolution_figure(of: FigureSources) -> ReportFigure | str:
    """Accuracy on images of other sizes, in each mode."""
    lines = {mode: collect_lines(of.group, "resolution", make_size_key(mode)) for mode in MODE_TITLES}
    shown = [_make_sizes_panel(of, mode, line) for mode, line in lines.items() if line]
    caption = (
        "Validation accuracy, %, on images of other sizes than in training, without further training: the file's images are "
        "brought to each size with antialiasing, and the positions of a larger image go on beyond those of training, or "
        f"move closer. {_describe_rules(lines)}{_describe_bars(*lines.values())}"
    )
    return _make_figure(
        "resolution", "Other resolutions", caption, shown, sorted({*lines["extrapolate"], *lines["rescale"]})
    )


def _describe_rules(lines: Mapping[str, EstimateLines]) -> str:
    """What slows waves down, where there are encodings that have it."""
    if not (lines["ntk"] or lines["yarn"]):
        return ""
    return (
        "NTK and YaRN let positions go on and slow waves down along each axis that is longer than in training; encodings "
        "that take no such rule are not in these pictures. "
    )


def _make_sizes_panel(of: FigureSources, mode: str, lines: EstimateLines) -> FigurePanel:
    square = all(len(set(where[1:])) == 1 for line in lines.values() for where in line)
    ticks = _make_ticks(lines, lambda where: "×".join(f"{side:g}" for side in (where[1:2] if square else where[1:])))
    return _make_line_panel(
        of, f"resolution-{mode}", lines, MODE_TITLES[mode], ticks, f"{'side' if square else 'size'} of the image, pixels"
    )


def make_offset_figure(of: FigureSources) -> ReportFigure | str:
    """Accuracy when all positions move by one vector."""
    caption = (
        "All positions of an image are moved by one random vector, of this deviation in patches along each axis; the mean "
        f"over several draws. {_describe_offset_effect(of.group.prefix)}"
    )
    return _make_line_figure(
        of, "offset", "Moved positions", caption, get_offset_deviation, "deviation of the move, in patches"
    )


def _describe_offset_effect(prefix: str) -> str:
    """Who sees that all patches move."""
    if not prefix:
        return "Encodings that see only differences of positions do not notice."
    return (
        f"These models have {prefix}, which stays where it is when all patches move: encodings that see only differences of "
        "positions notice too, by what patches and these tokens give each other. No line need be level."
    )


def make_translation_figure(of: FigureSources) -> ReportFigure | str:
    """Accuracy when the content of images moves."""
    caption = (
        "The content of images is moved, black comes in, and positions are kept; the mean over both ways along each axis. "
        "What leaves the image is lost, for every encoding alike."
    )
    return _make_line_figure(of, "translation", "Moved content", caption, get_shift_distance, "move, in pixels")


def _make_line_figure(
    of: FigureSources, name: str, title: str, caption: str, place: Callable[..., Any], xlabel: str
) -> ReportFigure | str:
    """A figure of one picture with places on an axis."""
    lines = collect_lines(of.group, name, place)
    ticks = _make_ticks(lines, lambda x: f"{x:g}")
    shown = [_make_line_panel(of, name, lines, "Validation accuracy, %", ticks, xlabel)] if lines else []
    return _make_figure(name, title, f"{caption} {_describe_bars(lines)}", shown, list(lines))


def _describe_bars(*several: EstimateLines) -> str:
    return describe_error_bars(each for lines in several for line in lines.values() for each in line.values())


def _make_ticks(lines: EstimateLines, words: Callable[[Any], str]) -> dict[Any, str]:
    return {where: words(where) for where in sorted({where for line in lines.values() for where in line})}


def _make_line_panel(
    of: FigureSources, name: str, lines: EstimateLines, title: str, ticks: Mapping[Any, str], xlabel: str
) -> FigurePanel:
    ends = (f"{label} {_format_ends(line, ticks)}" for label, line in lines.items())
    alt = f"{title.removesuffix(', %')}; accuracy by {xlabel}: " + "; ".join(ends)
    return of.panel(name, alt, list(lines), plot_accuracy_lines, lines, of.styles, title, ticks=ticks, xlabel=xlabel)


def _format_ends(line: Mapping[Any, Any], ticks: Mapping[Any, str]) -> str:
    """The first and the last place of a line."""
    first, *_, last = (*line, *line)
    return f"{format_accuracy(line[first])} at {ticks[first]}, {format_accuracy(line[last])} at {ticks[last]}"


def _make_figure(name: str, title: str, caption: str, shown: list[FigurePanel], legend: list[str]) -> ReportFigure | str:
    return ReportFigure(name, title, caption, shown, legend) if shown else f"No run was probed for {name}."


def make_frequencies_figure(of: FigureSources) -> ReportFigure | str:
    """How far channels turn across the image, layer by layer."""
    found = {label: collect_frequencies(list(seeds.values())) for label, seeds in of.group.found.items()}
    there = {label: layers for label, layers in found.items() if layers}
    reach = 1.3 * max((values[-1] for layers in there.values() for values in layers.values()), default=1.0) + 0.01
    shown = [_make_spectrum_panel(of, f"frequencies-{i}", *each, reach) for i, each in enumerate(there.items(), start=1)]
    caption = (
        "How far trained channels turn from one side of the image to the other. Each tick is a plane of channels, of all "
        "heads and seeds (48 of them at even quantiles where there are more); the mark is the median. Where axes commute, "
        "it is the length of a wave vector; where they do not, each axis has ticks of its own. All pictures have the same "
        "scale, which is linear below 0.1. Encodings that turn nothing are not here."
    )
    return _make_figure("frequencies", "Frequencies of each layer", caption, shown, [])


def _make_spectrum_panel(
    of: FigureSources, name: str, label: str, layers: Mapping[int, Sequence[float]], reach: float
) -> FigurePanel:
    said = (f"layer {layer + 1}: {values[len(values) // 2]:.3g}" for layer, values in layers.items())
    alt = f"Radians across the image of {label}, medians: " + "; ".join(said)
    return of.panel(name, alt, [], plot_layer_frequencies, layers, of.styles[label], shorten_label(label, 40), reach=reach)
