"""A sheet of pictures of scores, in rows, each with a scale of its own."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patheffects import withStroke

from ropewalk.lab.patterns import Panel, Patterns
from ropewalk.lab.plots.page import LABEL, SMALL, page
from ropewalk.lab.plots.theme import Theme

PICTURE, BETWEEN, GAP, LINE, ABOVE, TICKS = 1.5, 0.14, 0.2, 0.24, 0.12, 0.45  # inches


class Row(NamedTuple):
    """Pictures, None for an empty place, of these patterns, with words above or at the left."""

    panels: Sequence[Panel | None]
    of: Patterns
    above: str = ""
    left: str = ""

    @property
    def height(self) -> float:
        """Of a picture, in inches."""
        rows, columns = self.of.size
        return min(max(PICTURE * rows / columns, 0.3), 2.2)

    @property
    def total(self) -> float:
        """The height with the words above."""
        return self.height + LINE + bool(self.above) * (LINE + ABOVE)


class Sheet:
    """A figure that is filled from the top, in inches."""

    def __init__(self, rows: Sequence[Row], look: Theme, *, split: int = 0, title: str = "", below: str = "", note: str):
        self.look, self.split = look, split
        self.left = max([0.62, *[0.25 + 0.1 * len(row.left) for row in rows]])
        columns = max(len(row.panels) for row in rows)
        width = self.left + columns * (PICTURE + BETWEEN) + bool(split) * GAP
        height = sum(row.total for row in rows) + (2 * LINE if split else TICKS) + LINE
        free = page(max(width, 5.0), height, look, title=title, below=below, note=note)
        self.figure = free.figure
        self.figure.set_layout_engine("none")
        self.width, self.height = self.figure.get_size_inches()
        self.y = free.top * self.height
        self._key(free.bottom * self.height + 0.3)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """A part of the figure, from its lower left corner."""
        return self.figure.add_axes((x / self.width, y / self.height, width / self.width, height / self.height))

    def words(self, x: float, y: float, text: str, *, size: float, colour: str, ha: str = "left") -> None:
        """A line of words whose middle is at this height."""
        self.figure.text(x / self.width, y / self.height, text, fontsize=size, color=colour, ha=ha, va="center")

    def x(self, column: int) -> float:
        """Where the pictures of a column begin."""
        return self.left + column * (PICTURE + BETWEEN) + (GAP if self.split and column >= self.split else 0)

    def headings(self, *texts: str, columns: int) -> None:
        """Words over the pictures before and after the split."""
        ends = (0, self.split, columns)
        for text, first, last in zip(texts, ends[:-1], ends[1:], strict=True):
            middle = (self.x(first) + self.x(last - 1) + PICTURE) / 2
            self.words(middle, self.y - 0.06, text, size=LABEL + 1, colour=self.look.ink, ha="center")
        self.y -= LINE

    def row(self, row: Row, *, last: bool) -> None:
        """Add a row; the last one of a sheet says what the axes are."""
        if row.above:
            self.y -= LINE + ABOVE
            self.words(self.left, self.y + LINE / 3, row.above, size=LABEL, colour=self.look.ink)
        self.y -= row.height + LINE
        if row.left:
            self.words(self.left - 0.12, self.y + row.height / 2, row.left, size=LABEL + 2, colour=self.look.ink, ha="right")
        for column, panel in enumerate(row.panels):
            if panel is not None:
                axes = self.axes(self.x(column), self.y, PICTURE, row.height)
                _picture(axes, panel, row.of, self.look)
                _ticks(axes, row.of, self.look, rows=column == 0 and not row.left, columns=last and not row.left)

    def _key(self, y: float) -> None:
        axes = self.axes(self.left, y - 0.12, PICTURE, 0.09)
        axes.imshow([[i / 63 - 1 for i in range(127)]], cmap=self.look.colours(), aspect="auto", extent=(-1, 1, 0, 1))
        axes.set_frame_on(False)
        axes.set_yticks([])
        axes.set_xticks([-1, 0, 1], ["low", "0", "high"], color=self.look.faint, fontsize=SMALL)
        axes.tick_params(length=0, pad=2)


def _picture(axes: Axes, panel: Panel, of: Patterns, look: Theme) -> None:
    rows, columns = of.size
    limit = panel.scores.abs().max().item()
    smooth = "auto" if of.query is None else "bicubic"
    axes.imshow(
        panel.scores.numpy(),
        cmap=look.colours(),
        norm=Normalize(-limit or -1, limit or 1),
        interpolation=smooth,
        interpolation_stage="data",
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )
    if of.query is not None:
        halo = [withStroke(linewidth=2.5, foreground=look.paper)]
        axes.plot(*reversed(of.query), "+", color=look.ink, markersize=5, markeredgewidth=1, path_effects=halo)
    axes.set_title(f"{panel.title}, ±{limit:.2g}", color=look.faint, fontsize=SMALL, pad=3)
    for spine in axes.spines.values():
        spine.set(color=look.line, linewidth=0.8)


def _ticks(axes: Axes, of: Patterns, look: Theme, *, rows: bool, columns: bool) -> None:
    for axis, n, label, shown in zip((axes.yaxis, axes.xaxis), of.size, of.axes, (rows, columns), strict=True):
        axis.set_ticks([0, n - 1] if shown else [])
        axis.set_tick_params(colors=look.faint, labelsize=SMALL, length=2, pad=2)
        if shown:
            axis.set_label_text(label, color=look.faint, fontsize=SMALL)
            axis.labelpad = -4
