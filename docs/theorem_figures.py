"""The figures of the pages on theory, in the colours of a theme: each takes the theme as `look` and plain numbers."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from papers.figures import Theme, cool, label, legend, sheet, warm


def curves(
    look: Theme, found: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, x: str, y: str, **scale: str
) -> Figure:
    """Lines by name, each of x and y; `scale` may say xscale="log" and yscale="log"."""
    figure, axes = sheet(look, height=2.9)
    colours = [cool(look), warm(look), look.faint, look.ink]
    for (name, (across, up)), colour in zip(found.items(), colours, strict=False):
        axes.plot(list(across), list(up), color=colour, label=name, linewidth=1.6)
    axes.set(**scale)
    label(axes, look, x=x, y=y)
    legend(axes, look)
    return figure


def maps(look: Theme, found: Mapping[str, Tensor], *, words: str) -> Figure:
    """Values (rows, columns) by name, side by side, on one scale from zero; `words` say what they are."""
    most = max(values.max().item() for values in found.values())
    figure, panels = sheet(look, height=2.9, columns=len(found))
    panels = [panels] if len(found) == 1 else list(panels)
    for axes, (name, values) in zip(panels, found.items(), strict=True):
        drawn = axes.imshow(values.numpy(), vmin=0, vmax=most or 1, cmap="magma" if look.paper != "#ffffff" else "magma_r")
        label(axes, look, x="column", y="row" if axes is panels[0] else "", title=name)
    bar = figure.colorbar(drawn, ax=panels)
    bar.ax.tick_params(colors=look.faint, labelsize=8)
    bar.set_label(words, color=look.ink, fontsize=8.5)
    return figure


def dots(look: Theme, found: Mapping[str, tuple[Tensor, Tensor]], *, x: str, y: str, line: str) -> Figure:
    """Points by name, each of x and y, on logarithmic scales; `line` names the line on which both are equal."""
    figure, axes = sheet(look, height=3.1)
    for (name, (across, up)), colour in zip(found.items(), (warm(look), cool(look)), strict=False):
        axes.scatter(across.tolist(), up.tolist(), s=8, color=colour, label=name, linewidths=0, zorder=2)
    axes.axline((1, 1), (10, 10), color=look.faint, label=line, linewidth=1.0, zorder=1)
    axes.set(xscale="log", yscale="log")
    label(axes, look, x=x, y=y)
    legend(axes, look)
    return figure
