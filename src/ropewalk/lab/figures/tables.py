"""The tables that a code holds."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ropewalk.encoding import Encoding
from ropewalk.lab.figures.figure_layout import (
    LABEL_SIZE,
    SMALL_LABEL_SIZE,
    create_figure_page,
    format_figure_subtitle,
    style_axes,
)
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme
from ropewalk.lab.inspect.code_tables import CodeTable, choose_table_size, compute_code_tables

TABLE_WIDTH = 7.4


def draw_code_tables(
    encoding: Encoding, *, theme: str = "light", size: Sequence[int] | None = None, seed: int = 0, layer: int = 0
) -> Figure:
    """What a code holds for the tokens of an image: cosines and sines, rotation matrices, offsets or biases.

    A code that chains several has a row of pictures for each. Tokens are in row-major order.
    """
    look, size = get_figure_theme(theme), choose_table_size(encoding, size)
    rows = compute_code_tables(encoding, size, seed=seed, layer=layer)
    if not rows:
        raise ValueError(f"only encodings that turn or add something have tables, got {encoding!r}")
    below = format_figure_subtitle(encoding, size, layer)
    heights = [_compute_row_height(row) for row in rows]
    free = create_figure_page(TABLE_WIDTH, sum(heights), look, title=f"{encoding.name}: tables", below=below)
    grid = free.figure.add_gridspec(len(rows), 2, height_ratios=heights, width_ratios=[1, 0.012])
    for i, row in enumerate(rows):
        places = grid[i, 0].subgridspec(1, len(row))
        for j, table in enumerate(row):
            _draw_table(free.figure.add_subplot(places[0, j]), table, look)
    _draw_scale(free.figure, free.figure.add_subplot(grid[:, 1]), look)
    return free.figure


def _compute_row_height(row: Sequence[CodeTable]) -> float:
    """In inches: square where the table says so, if that fits, else three."""
    width = (TABLE_WIDTH - 0.9) / len(row) - 0.55
    rows, columns = row[0].values.shape
    return min(max(width * rows / columns, 0.6), 3.4) + 0.8 if row[0].square else 3.2


def _draw_table(axes: Axes, table: CodeTable, look: FigureTheme) -> None:
    limit = max(table.values.nan_to_num().abs().max().item(), 1e-9)
    axes.imshow(
        table.values.numpy(),
        cmap=look.colours(),
        norm=Normalize(-limit, limit),
        aspect="equal" if table.square else "auto",
        interpolation="auto",
        interpolation_stage="data",
    )
    style_axes(axes, look)
    axes.set_title(f"{table.title}, ±{limit:.2g}", color=look.ink, fontsize=LABEL_SIZE)
    axes.set(xlabel=table.columns, ylabel=table.rows)
    for axis, ticks in ((axes.yaxis, table.row_ticks), (axes.xaxis, table.column_ticks)):
        if ticks:
            axis.set_ticks(list(ticks), list(ticks.values()))
        else:
            axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axis.set_tick_params(length=2)


def _draw_scale(figure: Figure, axes: Axes, look: FigureTheme) -> None:
    bar = figure.colorbar(ScalarMappable(Normalize(-1, 1), look.colours()), cax=axes)
    bar.set_ticks([-1, 0, 1], labels=["low", "0", "high"])
    bar.ax.tick_params(colors=look.faint, labelsize=SMALL_LABEL_SIZE, length=0)
    bar.outline.set_visible(False)
