"""ComRoPE's learned absolute embedding is read by row alone."""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

import ropewalk as rw

from .figures import Theme, label, sheet
from .page import Finding, made, picture

SIDE = 14


class Reading(NamedTuple):
    """A table (rows columns), what the file reads from it for each patch, what ropewalk reads, and the entries read."""

    table: Tensor
    file: Tensor
    here: Tensor
    touched: Tensor


def published(table: Tensor) -> Tensor:
    """Read a table (rows columns) at every patch with coordinates (0, row, column), which sampling takes for (x, y, z)."""
    places = 2 * rw.positions.grid(SIDE, SIDE, coordinates="centre", dtype=table.dtype) - 1
    places = F.pad(places, (1, 0))[None, None, None]
    read = F.grid_sample(table[None, None, None], places, align_corners=True, padding_mode="border")
    return read.view(SIDE, SIDE)


def reading() -> Reading:
    """Both readings of one random table."""
    encoding = made("learned-ape", head_dim=1, size=(SIDE, SIDE))
    table = encoding.table.detach()[..., 0] / 0.02
    table.requires_grad_()
    file = published(table)
    (touched,) = torch.autograd.grad(file.sum(), table)
    here = encoding(encoding.grid(SIDE, SIDE)).offset.detach().view(SIDE, SIDE) / 0.02
    return Reading(table.detach(), file.detach(), here, touched != 0)


def draw(found: Reading, look: Theme) -> Figure:
    """The table, and what each patch reads."""
    figure, panels = sheet(look, height=2.7, columns=3)
    for axes, values, title in zip(panels, found, ("the table", "read by the file", "read by ropewalk"), strict=False):
        axes.imshow(values.numpy(), cmap=look.colours(), vmin=-2.5, vmax=2.5)
        axes.set(xticks=(0, 6, 13), yticks=(0, 6, 13))
        label(axes, look, x="column", y="row" if axes is panels[0] else "", title=title)
    return figure


def finding() -> Finding:
    """The section."""
    found = reading()
    spread = (found.file.amax(1) - found.file.amin(1)).max().item()
    read, columns = int(found.touched.sum()), found.touched.any(0).nonzero().flatten().tolist()
    text = f"""
ComRoPE's baseline with a learned absolute embedding reads its table with `grid_sample`. For images the published file
(`model.py`) hands it the coordinates (0, row, column) of a volume one frame deep. `grid_sample` takes the last dimension
for (x, y, z): x, the column, is always the middle, and the patch's column becomes the depth, of which there is one. So
all patches of a row get the same embedding. On a {SIDE} × {SIDE} grid, one channel:

{picture("lookup", "A random table, the file's reading in horizontal stripes, and ropewalk's reading, which is the table")}

Within a row the values differ by {spread:.0g}; of {found.touched.numel()} entries {read} are read, those of columns
{" and ".join(map(str, columns))} (counted from 0), and the other {found.touched.numel() - read} never get a gradient.
For videos, whose coordinates are (frame, row, column), frame and column change places.

We cannot tell whether the paper's runs had this. If they had, its APE rows are those of a model that knows the row of a
patch and not its column.

In ropewalk `learned-ape` reads its table at (row, column), and on its own grid what it reads is the table.
"""
    return Finding(
        name="lookup",
        title="ComRoPE's learned APE is read by row alone",
        number=f"{read} of {found.touched.numel()} entries are ever read",
        where="ComRoPE, published code",
        here="`learned-ape` reads (row, column)",
        text=text,
        figures={"lookup": partial(draw, found)},
    )
