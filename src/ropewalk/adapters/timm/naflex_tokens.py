"""Tokens of NaFlexViT: images of a batch have grids of their own, so that positions are given sample by sample."""

from typing import Any

import torch
from torch import Tensor

from ropewalk.adapters.timm.rope import Rule
from ropewalk.encoding import Encoding
from ropewalk.positions import check_resolution


class Tokens:
    """What goes to attention in the place of a mask: the mask, and where patches are.

    No dataclass: see `ropewalk.code.sealed`.

    sizes   The grid, if all images have the same.
    coords  Else rows and columns of patches, (B, N, 2); what is padded may have any.
    kept    Indices (B, n) of patches that were not dropped, if some were.
    """

    def __init__(
        self, mask: Tensor | None, sizes: tuple[int, int] | None, coords: Tensor | None, kept: Tensor | None, prefix: int
    ) -> None:
        self.mask, self.sizes, self.coords, self.kept, self.prefix = mask, sizes, coords, kept, prefix

    def place(self, rule: Rule, encoding: Encoding, device: torch.device) -> Tensor:
        """Positions of patches, (N, 2) or (B, n, 2)."""
        if self.coords is not None:
            p = _scale_coords(self.coords, rule, encoding)
        else:
            assert self.sizes is not None
            p = rule(encoding, self.sizes, device)
        if self.kept is None:
            return p
        p = p.expand(self.kept.shape[0], *p.shape[-2:])
        return p.gather(1, self.kept[..., None].expand(-1, -1, 2))


def _scale_coords(coords: Tensor, rule: Rule, encoding: Encoding) -> Tensor:
    """Rows and columns as positions: as they are, or each image rescaled to the grid of training, axis by axis."""
    if encoding.coordinates != "index" or encoding.waiting:
        wanted = "patches of images of several sizes need an encoding with coordinates='index' and no rule of extension"
        raise ValueError(f"{wanted}, got {encoding.name} with coordinates={encoding.coordinates!r}")
    mode: Any = rule.resolution or encoding.own_resolution or "rescale"
    p = coords.to(torch.float32)
    extents = p.amax(dim=1, keepdim=True) + 1
    known = torch.tensor(encoding.size or rule.known, dtype=p.dtype, device=p.device)
    rescaled = (p + 0.5) * known / extents - 0.5
    modes = check_resolution(mode, 2)
    return torch.stack([(rescaled if word == "rescale" else p)[..., axis] for axis, word in enumerate(modes)], dim=-1)
