"""Figures of what probes found, and of the weights themselves."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ropewalk.lab.report import insides, panels, series
from ropewalk.lab.report.figures import Panel, Shown, Sources, bars
from ropewalk.lab.report.panels import short
from ropewalk.lab.report.reading import Found
from ropewalk.lab.report.words import percent

MOST_HEADS = 6
MODES = {"extrapolate": "Extrapolate: patches keep their distance", "rescale": "Rescale: the image keeps its extent"}


def resolution(of: Sources) -> Shown | str:
    """Accuracy on images of other sizes, in both modes of positions."""
    lines = {mode: series.lines_of(of.group, "resolution", series.of_mode(mode)) for mode in MODES}
    shown = [_sizes(of, mode, line) for mode, line in lines.items() if line]
    caption = (
        "Validation accuracy, %, on images of other sizes than in training, without further training: the positions of "
        f"a larger image go on beyond those of training, or move closer. {_bars(*lines.values())}"
    )
    return _shown("resolution", "Other resolutions", caption, shown, sorted({*lines["extrapolate"], *lines["rescale"]}))


def _sizes(of: Sources, mode: str, lines: series.Lines) -> Panel:
    square = all(len(set(where[1:])) == 1 for line in lines.values() for where in line)
    ticks = _ticks(lines, lambda where: "×".join(f"{side:g}" for side in (where[1:2] if square else where[1:])))
    return _places(
        of, f"resolution-{mode}", lines, MODES[mode], ticks, f"{'side' if square else 'size'} of the image, pixels"
    )


def offset(of: Sources) -> Shown | str:
    """Accuracy when all positions move by one vector."""
    caption = (
        "All positions of an image are moved by one random vector, of this deviation in patches. "
        "Encodings that see only differences of positions do not notice."
    )
    return _line(of, "offset", "Moved positions", caption, series.rho, "deviation of the move, in patches")


def translation(of: Sources) -> Shown | str:
    """Accuracy when the content of images moves."""
    caption = (
        "The content of images is moved and positions are kept; the mean over directions. "
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
        "Each tick is a plane of channels, of all heads and seeds (48 of them at even quantiles where there are more); "
        "the mark is the median. All pictures have the same scale, which is linear below 0.1."
    )
    return _shown("frequencies", "Frequencies of each layer", caption, shown, [])


def _spectrum(of: Sources, name: str, label: str, layers: Mapping[int, Sequence[float]], reach: float) -> Panel:
    said = (f"layer {layer + 1}: {values[len(values) // 2]:.3g}" for layer, values in layers.items())
    alt = f"Radians across the image of {label}, medians: " + "; ".join(said)
    return of.panel(name, alt, [], insides.spectra, layers, of.styles[label], short(label, 40), reach=reach)


def attention(of: Sources) -> Shown | str:
    """Where heads look, from trained weights."""
    try:
        patterns = importlib.import_module("ropewalk.lab.probes").patterns
    except (ImportError, AttributeError):
        return "Attention patterns are not drawn: there is nothing to read them with."
    shown, refused = [], []
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        for found in [each for each in seeds.values() if each.accuracy is not None][:1]:
            try:
                shown.append(_attention(of, f"attention-{i}", label, _pictures(found, patterns)))
            except (ValueError, RuntimeError, OSError) as error:
                refused.append(f"{label}: {found.nameless(error)}.")
    if not shown:
        return " ".join(["No run that is done has weights to draw attention patterns from.", *refused])
    caption = (
        "Where a query in the middle of the image looks, on average over validation images: heads from left to right, of "
        "the first seed that is done. The cross is the query; each picture goes from nothing to its own highest weight."
    )
    return Shown("attention", "Attention of trained heads", " ".join([caption, *refused]), shown, [])


def _attention(of: Sources, name: str, label: str, pictures: Mapping[int, Any]) -> Panel:
    layers = " and ".join(str(layer + 1) for layer in pictures)
    alt = f"Mean attention of a query in the middle of the image, heads of {label}, layer {layers}"
    return of.panel(name, alt, [], insides.heads, pictures, short(label, 40))


def _pictures(found: Found, patterns: Callable[..., Any]) -> dict[int, Any]:
    """Of the first and last layer, a few heads; of a volume the frame in the middle."""
    layers = sorted({0, found.run.config.depth - 1})
    pictures = {layer: np.asarray(patterns(found.run, layer), dtype=np.float64)[:MOST_HEADS] for layer in layers}
    return {layer: each if each.ndim == 3 else each[:, each.shape[1] // 2] for layer, each in pictures.items()}
