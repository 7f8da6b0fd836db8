"""Figures of what probes found."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ropewalk.lab.report import insides, panels, series
from ropewalk.lab.report.figures import Panel, Shown, Sources, bars
from ropewalk.lab.report.panels import short
from ropewalk.lab.report.words import percent

MODES = {
    "extrapolate": "Extrapolate: patches keep their distance",
    "rescale": "Rescale: the image keeps its extent",
    "ntk": "NTK: slow waves are slowed down",
    "yarn": "YaRN: waves of few turns are slowed down",
}


def resolution(of: Sources) -> Shown | str:
    """Accuracy on images of other sizes, in each mode."""
    lines = {mode: series.lines_of(of.group, "resolution", series.of_mode(mode)) for mode in MODES}
    shown = [_sizes(of, mode, line) for mode, line in lines.items() if line]
    caption = (
        "Validation accuracy, %, on images of other sizes than in training, without further training: the file's images are "
        "brought to each size with antialiasing, and the positions of a larger image go on beyond those of training, or "
        f"move closer. {_rules(lines)}{_bars(*lines.values())}"
    )
    return _shown("resolution", "Other resolutions", caption, shown, sorted({*lines["extrapolate"], *lines["rescale"]}))


def _rules(lines: Mapping[str, series.Lines]) -> str:
    """What slows waves down, where there are encodings that have it."""
    if not (lines["ntk"] or lines["yarn"]):
        return ""
    return (
        "NTK and YaRN let positions go on and slow waves down along each axis that is longer than in training; encodings "
        "that take no such rule are not in these pictures. "
    )


def _sizes(of: Sources, mode: str, lines: series.Lines) -> Panel:
    square = all(len(set(where[1:])) == 1 for line in lines.values() for where in line)
    ticks = _ticks(lines, lambda where: "×".join(f"{side:g}" for side in (where[1:2] if square else where[1:])))
    return _places(
        of, f"resolution-{mode}", lines, MODES[mode], ticks, f"{'side' if square else 'size'} of the image, pixels"
    )


def offset(of: Sources) -> Shown | str:
    """Accuracy when all positions move by one vector."""
    caption = (
        "All positions of an image are moved by one random vector, of this deviation in patches along each axis; the mean "
        f"over several draws. {_noticing(of.group.prefix)}"
    )
    return _line(of, "offset", "Moved positions", caption, series.rho, "deviation of the move, in patches")


def _noticing(prefix: str) -> str:
    """Who sees that all patches move."""
    if not prefix:
        return "Encodings that see only differences of positions do not notice."
    return (
        f"These models have {prefix}, which stays where it is when all patches move: encodings that see only differences of "
        "positions notice too, by what patches and these tokens give each other. No line need be level."
    )


def translation(of: Sources) -> Shown | str:
    """Accuracy when the content of images moves."""
    caption = (
        "The content of images is moved, black comes in, and positions are kept; the mean over both ways along each axis. "
        "What leaves the image is lost, for every encoding alike."
    )
    return _line(of, "translation", "Moved content", caption, series.distance, "move, in pixels")


def _line(of: Sources, name: str, title: str, caption: str, place: Callable[..., Any], xlabel: str) -> Shown | str:
    """A figure of one picture with places on an axis."""
    lines = series.lines_of(of.group, name, place)
    ticks = _ticks(lines, lambda x: f"{x:g}")
    shown = [_places(of, name, lines, "Validation accuracy, %", ticks, xlabel)] if lines else []
    return _shown(name, title, f"{caption} {_bars(lines)}", shown, list(lines))


def _bars(*several: series.Lines) -> str:
    return bars(each for lines in several for line in lines.values() for each in line.values())


def _ticks(lines: series.Lines, words: Callable[[Any], str]) -> dict[Any, str]:
    return {where: words(where) for where in sorted({where for line in lines.values() for where in line})}


def _places(of: Sources, name: str, lines: series.Lines, title: str, ticks: Mapping[Any, str], xlabel: str) -> Panel:
    ends = (f"{label} {_ends(line, ticks)}" for label, line in lines.items())
    alt = f"{title.removesuffix(', %')}; accuracy by {xlabel}: " + "; ".join(ends)
    return of.panel(name, alt, list(lines), panels.places, lines, of.styles, title, ticks=ticks, xlabel=xlabel)


def _ends(line: Mapping[Any, Any], ticks: Mapping[Any, str]) -> str:
    """The first and the last place of a line."""
    first, *_, last = (*line, *line)
    return f"{percent(line[first])} at {ticks[first]}, {percent(line[last])} at {ticks[last]}"


def _shown(name: str, title: str, caption: str, shown: list[Panel], legend: list[str]) -> Shown | str:
    return Shown(name, title, caption, shown, legend) if shown else f"No run was probed for {name}."


def frequencies(of: Sources) -> Shown | str:
    """How far channels turn across the image, layer by layer."""
    found = {label: series.frequencies(list(seeds.values())) for label, seeds in of.group.found.items()}
    there = {label: layers for label, layers in found.items() if layers}
    reach = 1.3 * max((values[-1] for layers in there.values() for values in layers.values()), default=1.0) + 0.01
    shown = [_spectrum(of, f"frequencies-{i}", *each, reach) for i, each in enumerate(there.items(), start=1)]
    caption = (
        "How far trained channels turn from one side of the image to the other. Each tick is a plane of channels, of all "
        "heads and seeds (48 of them at even quantiles where there are more); the mark is the median. Where axes commute, "
        "it is the length of a wave vector; where they do not, each axis has ticks of its own. All pictures have the same "
        "scale, which is linear below 0.1. Encodings that turn nothing are not here."
    )
    return _shown("frequencies", "Frequencies of each layer", caption, shown, [])


def _spectrum(of: Sources, name: str, label: str, layers: Mapping[int, Sequence[float]], reach: float) -> Panel:
    said = (f"layer {layer + 1}: {values[len(values) // 2]:.3g}" for layer, values in layers.items())
    alt = f"Radians across the image of {label}, medians: " + "; ".join(said)
    return of.panel(name, alt, [], insides.spectra, layers, of.styles[label], short(label, 40), reach=reach)
