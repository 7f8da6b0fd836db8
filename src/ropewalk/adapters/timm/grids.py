"""Where the tokens of an attention stand: the grid of its windows or of its feature map, and what was pooled of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Grid:
    """Tokens of an attention: a grid of these sizes, row by row, after `prefix` tokens that have no position.

    queries  What becomes of the grid's positions (rows columns 2) where queries are pooled, or lie in another order.
    keys     The same of keys, where it differs.
    """

    sizes: tuple[int, int]
    prefix: int = 0
    queries: Change | None = None
    keys: Change | None = None

    def places(self, positions: Tensor) -> tuple[Tensor, Tensor | None]:
        """Positions of queries (N, 2), and of keys where they differ, of those of the grid (rows · columns, 2)."""
        whole = positions.unflatten(0, self.sizes)
        q = positions if self.queries is None else self.queries(whole).reshape(-1, 2)
        k = positions if self.keys is None else self.keys(whole).reshape(-1, 2)
        return q, None if self.queries is self.keys else k


Place = Callable[..., Grid]  # of the attention, the model and the attention's arguments


def pooled(stride: Sequence[int]) -> Change:
    """Cells of a grid have the mean position of their members; what is left over at the end is dropped."""
    rows, columns = stride

    def change(whole: Tensor) -> Tensor:
        return F.avg_pool2d(whole.permute(2, 0, 1), (rows, columns), (rows, columns)).permute(1, 2, 0)

    return change


def sampled(stride: Sequence[int]) -> Change:
    """Every second, third, … row and column from the first on: what a padded convolution or a slice is centred on."""
    return lambda whole: whole[:: stride[0], :: stride[1]]


def shrunk(rows: int, columns: int) -> Change:
    """Adaptive pooling to a grid of these sizes."""
    return lambda whole: F.adaptive_avg_pool2d(whole.permute(2, 0, 1), (rows, columns)).permute(1, 2, 0)


def lined(group: int) -> Change:
    """Groups of tokens that follow each other row by row have their mean position."""
    return lambda whole: F.avg_pool1d(whole.reshape(-1, 2).T, group, group).T


def unrolled(schedule: Sequence[Sequence[int]], pool: int = 1) -> Change:
    """Hiera's order: tokens that will be pooled together lie `pool` parts apart; of these the mean."""

    def change(whole: Tensor) -> Tensor:
        x = whole.unsqueeze(0)
        for rows, columns in schedule:
            x = x.unflatten(1, (-1, rows)).unflatten(3, (-1, columns)).permute(0, 2, 4, 1, 3, 5).flatten(0, 2)
        return x.reshape(pool, -1, 2).mean(0)

    return change


def pair(value: Any) -> tuple[int, int]:
    """Rows and columns."""
    rows, columns = (value, value) if isinstance(value, int) else value
    return int(rows), int(columns)


# Places of tokens, for kinds of attention


def window(attention: Any, model: Any, *given: Any, **named: Any) -> Grid:
    """A window, of which the attention knows the size: positions within windows, alike in all of them."""
    return Grid(pair(attention.window_size))


def resolution(attention: Any, model: Any, *given: Any, **named: Any) -> Grid:
    """A map or window of which the attention knows the size."""
    return Grid(pair(attention.resolution))


def halved(attention: Any, model: Any, *given: Any, **named: Any) -> Grid:
    """The same, with every second row and column of queries."""
    stride = pair(getattr(attention, "stride", 2))
    return Grid(pair(attention.resolution), queries=sampled(stride))


def rows_first(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """A map (B C rows columns)."""
    return Grid(pair(x.shape[2:]))


def windows_or_map(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """Windows of a map (B C rows columns), or the map where the attention has none."""
    return Grid(pair(attention.window_size or x.shape[2:]))


def channels_last(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """A map or window (B rows columns C), of which queries may be pooled."""
    pool = getattr(attention, "q_pool", None)
    return Grid(pair(x.shape[1:3]), queries=None if pool is None else pooled(pair(pool.stride)))


def patches(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """The model's grid of patches, after its class tokens and registers if these are there."""
    embed = getattr(model, "patch_embed", None)
    if embed is None:  # torchvision's
        return fit_tokens([pair([model.image_size // model.patch_size] * 2)], model, x)
    return fit_tokens([_grid_of(each) for each in (embed if isinstance(embed, nn.ModuleList) else [embed])], model, x)


def _grid_of(embed: Any) -> tuple[int, int]:
    if getattr(embed, "grid_size", None) is not None:
        return pair(embed.grid_size)
    sides = zip(pair(embed.img_size), pair(embed.patch_size), strict=True)
    return pair([size // side for size, side in sides])


def square(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """A square: a block of an image, or a map of a fixed size."""
    side = math.isqrt(x.shape[-2])
    return fit_tokens([(side, side)], model, x)


def pixels(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """TNT's pixels of a patch, or its patches."""
    if any(block.attn_in is attention for block in model.blocks):
        return Grid(pair(model.pixel_embed.new_patch_size))
    return fit_tokens([pair(model.pixel_embed.grid_size)], model, x)


def fit_tokens(grids: Sequence[tuple[int, int]], model: Any, x: Tensor) -> Grid:
    """The grid that has as many cells as x (… N C) has tokens, with or without the model's class tokens and registers."""
    count, prefix = x.shape[-2], int(getattr(model, "num_prefix_tokens", getattr(model, "num_tokens", 1)))
    found = [Grid(sizes, more) for sizes in grids for more in {0, prefix} if sizes[0] * sizes[1] + more == count]
    if len(found) == 1:
        return found[0]
    shown = " or ".join(f"{rows} × {columns}" for rows, columns in grids)
    wanted = f"tokens must be a grid of {shown}, which is that of the model's image size, and {prefix} more or none"
    raise ValueError(f"{wanted}, got {count} tokens: make the model for images of this size")


def given_sizes(attention: Any, model: Any, x: Tensor, sizes: Any, *given: Any, **named: Any) -> Grid:
    """A map whose sizes the attention is given; keys are pooled by convolutions as large as their stride, or adaptively."""
    ratio = getattr(attention, "sr", None)
    if getattr(attention, "pool", None) is not None:
        return Grid(pair(sizes), keys=shrunk(*pair(attention.pool.output_size)))
    return Grid(pair(sizes), keys=None if ratio is None else pooled(pair(ratio.stride)))


def local_windows(attention: Any, model: Any, *given: Any, **named: Any) -> Grid:
    """Twins' windows."""
    return Grid(pair(attention.ws))


def multi_scale(attention: Any, model: Any, x: Tensor, sizes: Any, *given: Any, **named: Any) -> Grid:
    """MViT's queries and keys, each pooled by padded convolutions of their own."""
    changes = [None if pool is None else sampled(pair(pool.stride)) for pool in (attention.pool_q, attention.pool_k)]
    return Grid(pair(sizes), int(attention.has_cls_token), *changes)


def mask_units(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """Hiera's mask units, or its whole map, at the resolution that has so many tokens."""
    schedule = model.unroll.schedule
    local, pool = attention.use_mask_unit_attn, attention.q_stride
    sizes, count = pair(model.mask_unit_size if local else model.unroll.size), x.shape[1]
    count = pool * attention.window_size if local else count
    for stage in range(len(schedule) + 1):
        if sizes[0] * sizes[1] == count:
            left = schedule[stage:]
            return Grid(sizes, queries=unrolled(left, pool), keys=unrolled(left))
        sizes = (sizes[0] // schedule[stage][0], sizes[1] // schedule[stage][1]) if stage < len(schedule) else sizes
    raise ValueError(
        f"Hiera's tokens must be whole maps, got {count} of them: masks and other image sizes are not supported"
    )


def strided(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """A map (B C rows columns) that is pooled before q, k and v are made."""
    stride = attention.att_stride
    return Grid((-(-x.shape[2] // stride), -(-x.shape[3] // stride)))


def multi_query(attention: Any, model: Any, x: Tensor, *given: Any, **named: Any) -> Grid:
    """A map (B C rows columns) whose queries are pooled and whose keys are convolved with a stride."""
    queries = pooled(pair(attention.query_strides)) if attention.has_query_strides else None
    keys = sampled(pair(attention.kv_stride)) if attention.kv_stride > 1 else None
    return Grid(pair(x.shape[2:]), queries=queries, keys=keys)
