"""Pictures of what was learned: frequencies of layers, and where heads look.

The figure of where trained heads look, from the weights themselves.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ropewalk.lab.probes.attention import measure_attention_weights
from ropewalk.lab.report.figures import FigurePanel, FigureSources, ReportFigure
from ropewalk.lab.report.format import format_record_error, join_words
from ropewalk.lab.report.panels import PANEL_WIDTH, make_canvas, shorten_label
from ropewalk.lab.report.series import select_quantiles
from ropewalk.lab.report.theme import LIGHT_THEME, EncodingStyle
from ropewalk.lab.run_store import RunFolder

ATTENTION_COLOR = "#d9570c"
"""The colour of weights, more or less of it: it can be seen on light and on dark paper."""


def plot_layer_frequencies(
    layers: Mapping[int, Sequence[float]], style: EncodingStyle, title: str, *, reach: float
) -> Figure:
    """A row of ticks for each layer: how far its planes turn across the image; the median has a mark."""
    figure, axes = make_canvas(title, 0.9 + max(0.22 * len(layers), 0.5))
    for layer, radians in layers.items():
        some = select_quantiles(radians)
        axes.plot(some, [layer + 1] * len(some), "|", color=style.colour, alpha=0.55, markersize=10)
        axes.plot(radians[len(radians) // 2], layer + 1, style.mark, color=style.colour, markersize=5)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(0, reach)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(max(layers) + 1.6, min(layers) + 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="radians across the image", ylabel="layer")
    return figure


def plot_attention_heads(pictures: Mapping[int, NDArray[np.float64]], title: str) -> Figure:
    """Attention weights (heads h w), a row for each layer, each from nothing to its highest; the query has a cross."""
    columns = max(4, *(len(weights) for weights in pictures.values()))
    height = 0.45 + len(pictures) * (PANEL_WIDTH - 0.3) / columns
    figure, grid = make_canvas(title, height, nrows=len(pictures), ncols=columns, squeeze=False)
    for line, (layer, weights) in zip(grid, pictures.items(), strict=True):
        for axes in line:
            axes.set(xticks=[], yticks=[])
            axes.spines[["left", "bottom"]].set_visible(False)
        for axes, one in zip(line, weights, strict=False):
            colour = np.broadcast_to(to_rgba(ATTENTION_COLOR), (*one.shape, 4)).copy()
            colour[..., 3] = one / max(one.max(), 1e-12)
            axes.imshow(colour, interpolation="nearest")
            axes.plot(one.shape[1] // 2, one.shape[0] // 2, "+", color=LIGHT_THEME.ink, markersize=5)
        line[0].set_ylabel(f"layer {layer + 1}")
    return figure


MAX_HEADS = 6


def make_attention_figure(of: FigureSources) -> ReportFigure | str:
    """Where heads look, from trained weights."""
    shown, refused, bare = list[FigurePanel](), list[str](), list[str]()
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        for record in [each for each in seeds.values() if each.score is not None and each.location is not None][:1]:
            folder = Path(record.location or "")
            try:
                shown.append(_make_attention_panel(of, f"attention-{i}", label, _load_patterns(folder)))
            except (ValueError, RuntimeError, OSError) as error:
                if (folder / "checkpoint.safetensors").is_file():
                    refused.append(f"{label}: {format_record_error(record, error)}.")
                else:
                    bare.append(label)
    refused += [f"There is no checkpoint.safetensors of {join_words(bare)}."] if bare else []
    if not shown:
        return " ".join(["No run that is done has weights to draw attention patterns from.", *refused])
    caption = (
        "Where a query in the middle of the image looks: its attention weights on all patches, on average over validation "
        f"images. Heads are from left to right{_describe_selection(of)}, of the first seed that is "
        "done. The cross is the query; each picture goes from nothing to its own highest weight, "
        "so that pictures tell where a head looks, not how firmly."
    )
    return ReportFigure("attention", "Attention of trained heads", " ".join([caption, *refused]), shown, [])


def _describe_selection(of: FigureSources) -> str:
    """Which heads and layers are drawn, if not all."""
    depth, heads = of.group.settings["depth"], of.group.settings["heads"]
    layers = ", the first and the last layer" if depth > 2 else ""
    return f"{layers}, the first {MAX_HEADS} of {heads}" if heads > MAX_HEADS else layers


def _make_attention_panel(of: FigureSources, name: str, label: str, pictures: Mapping[int, Any]) -> FigurePanel:
    layers = " and ".join(str(layer + 1) for layer in pictures)
    alt = f"Mean attention of a query in the middle of the image, heads of {label}, layer {layers}"
    return of.panel(name, alt, [], plot_attention_heads, pictures, shorten_label(label, 40))


def _load_patterns(folder: Path) -> dict[int, Any]:
    """Of the first and last layer, a few heads; of a volume the frame in the middle."""
    run = RunFolder.at(folder)
    layers = sorted({0, run.config.depth - 1})
    pictures = {layer: np.asarray(each)[:MAX_HEADS] for layer, each in measure_attention_weights(run, layers).items()}
    return {layer: each if each.ndim == 3 else each[:, each.shape[1] // 2] for layer, each in pictures.items()}
