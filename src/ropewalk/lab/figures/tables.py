"""Tables of what a code holds for the tokens of an image: computed from the code, and drawn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ropewalk.code import Basis, Bias, Code, ContentBias, Offset, Rotation, Sphere, Turn
from ropewalk.encoding import Encoding
from ropewalk.lab.figures.figure_layout import (
    LABEL_SIZE,
    SMALL_LABEL_SIZE,
    create_figure_page,
    format_figure_subtitle,
    style_axes,
)
from ropewalk.lab.figures.theme import FigureTheme, get_figure_theme
from ropewalk.lab.inspect.code_structure import compute_sample_code, ensure_on_cpu, list_code_parts
from ropewalk.lab.inspect.figure_grid import get_axis_names, interpolate_positions, resolve_grid_size, spread_indices

TABLE_TEXT_LENGTH, MAX_TABLE_TOKENS, MAX_TABLE_HEADS = 48, 2048, 3


@dataclass(frozen=True, kw_only=True)
class CodeTable:
    """One table: its title, its values, what rows and columns are, which of them are marked, and if it is drawn square."""

    title: str
    values: Tensor
    rows: str
    columns: str
    row_ticks: dict[float, str] = field(default_factory=dict)
    column_ticks: dict[float, str] = field(default_factory=dict)
    square: bool = False


def choose_table_size(encoding: Encoding, size: Sequence[int] | None) -> tuple[int, ...]:
    """The size of an image whose tokens are few enough to be looked at."""
    found = resolve_grid_size(encoding, size, places=TABLE_TEXT_LENGTH)
    return found if math.prod(found) <= MAX_TABLE_TOKENS else tuple(min(n, 8) for n in found)


def has_code_tables(code: Code) -> bool:
    """Whether the code has any table to draw."""
    return any(type(part) in TABLE_BUILDERS for part in list_code_parts(code))


@torch.no_grad()
def compute_code_tables(encoding: Encoding, size: Sequence[int], *, seed: int = 0, layer: int = 0) -> list[list[CodeTable]]:
    """The tables of each part of the code, for the tokens of an image of that size, or for a few if they are matrices."""
    encoding = ensure_on_cpu(encoding)
    few = any(isinstance(part, Turn) for part in list_code_parts(compute_sample_code(encoding)))
    last = encoding.axes - 1
    lines = [_pick_indices(n, 5 if axis == last else 3) if few else torch.arange(n) for axis, n in enumerate(size)]
    code = encoding(interpolate_positions(encoding, size, *[line.float() for line in lines]))
    scene = TableContext(encoding, lines, torch.Generator().manual_seed(seed))
    held = [part if part.layers is None or isinstance(part, Offset) else part[layer] for part in list_code_parts(code)]
    return [TABLE_BUILDERS[type(part)](part, scene) for part in held if type(part) in TABLE_BUILDERS]


class TableContext(NamedTuple):
    """Whose code it is, the indices of its tokens along each axis, and where random numbers come from."""

    encoding: Encoding
    lines: list[Tensor]
    generator: torch.Generator

    @property
    def token(self) -> str:
        return "position" if self.encoding.axes == 1 else "token"


def _pick_indices(n: int, most: int) -> Tensor:
    """At most so many of n indices, the first and the last among them."""
    return torch.linspace(0, n - 1, min(n, most)).round().long()


def _make_rotation_tables(part: Rotation, scene: TableContext) -> list[CodeTable]:
    gain = 1.0 if part.q_gain is None else part.q_gain.expand_as(part.q_angle)[0]
    angle, stretched = part.q_angle[0], "" if part.q_gain is None else "gain · "
    words: dict[str, Any] = {"rows": scene.token, "columns": "pair"}
    return [
        CodeTable(title=f"{stretched}{name} of head 1", values=gain * wave, **words)
        for name, wave in (("cos", angle.cos()), ("sin", angle.sin()))
    ]


def _make_sphere_tables(part: Sphere, scene: TableContext) -> list[CodeTable]:
    words: dict[str, Any] = {"rows": scene.token, "columns": "triplet"}
    return [
        CodeTable(title=f"{wave.__name__}, {name}s", values=wave(part.q_angle[0, ..., axis]), **words)
        for axis, name in enumerate(get_axis_names(scene.encoding.axes))
        for wave in (torch.cos, torch.sin)
    ]


def _make_block_tables(part: Turn, scene: TableContext) -> list[CodeTable]:
    """Blocks of the first head at a few positions, in the layout of the grid; of a clip, in its middle frame."""
    rows, columns = [torch.zeros(1), *scene.lines][-2:]
    matrix = part.q_matrix[0].unflatten(0, (-1, len(rows), len(columns)))
    matrix = matrix[len(matrix) // 2]  # (R C G b b)
    pitch = matrix.shape[-1] + 1
    ticks = [{(i + 0.5) * pitch - 1: f"{index:.0f}" for i, index in enumerate(line.tolist())} for line in (rows, columns)]
    down, across = ["", *get_axis_names(scene.encoding.axes)][-2:]
    words: dict[str, Any] = {"rows": down, "columns": across, "row_ticks": ticks[0], "column_ticks": ticks[1]}
    return [
        CodeTable(title=f"block {i + 1} of head 1", values=_join_tiles(matrix[:, :, i]), square=True, **words)
        for i in spread_indices(matrix.shape[2], 2)
    ]


def _join_tiles(tiles: Tensor) -> Tensor:
    """Tiles (R C b b) side by side, with a line of NaN between."""
    framed = F.pad(tiles, (0, 1, 0, 1), value=math.nan)
    return framed.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)[:-1, :-1]


def _make_offset_tables(part: Offset, scene: TableContext) -> list[CodeTable]:
    return [CodeTable(title="what is added to the tokens", values=part.offset, rows=scene.token, columns="channel")]


def _make_bias_tables(part: Bias | ContentBias, scene: TableContext) -> list[CodeTable]:
    """What is added to the scores of one query with one key, both random, wherever they stand."""
    encoding, count = scene.encoding, math.prod(map(len, scene.lines))
    draw = torch.randn(2, 1, encoding.heads, 1, encoding.head_dim, generator=scene.generator)
    added = part.scores(*draw.expand(-1, -1, -1, count, -1).unbind()).broadcast_to(1, encoding.heads, count, count)[0]
    words: dict[str, Any] = {"rows": f"query's {scene.token}", "columns": f"key's {scene.token}"}
    return [
        CodeTable(title=f"head {i + 1}", values=added[i], square=True, **words)
        for i in spread_indices(encoding.heads, MAX_TABLE_HEADS)
    ]


def _make_basis_tables(part: Basis, scene: TableContext) -> list[CodeTable]:
    words: dict[str, Any] = {"rows": "channel", "columns": "basis vector"}
    return [CodeTable(title="basis of head 1", values=part.basis[0], square=True, **words)]


TABLE_BUILDERS: dict[type[Code], Callable[..., list[CodeTable]]] = {
    Rotation: _make_rotation_tables,
    Sphere: _make_sphere_tables,
    Turn: _make_block_tables,
    Offset: _make_offset_tables,
    Bias: _make_bias_tables,
    ContentBias: _make_bias_tables,
    Basis: _make_basis_tables,
}


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
        raise ValueError(
            f"the figure tables needs an encoding that rotates channels, or adds to tokens or logits, got {encoding.name!r}"
        )
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
    """In inches: three, or what a square table needs, within limits."""
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
