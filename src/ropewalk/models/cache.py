"""What a decoder has seen, for the tokens that follow."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

Held = tuple[Tensor, Tensor]
"""Keys, turned already, and values of a layer, (B h M D)."""


@dataclass
class Cache:
    """Positions (M,) or (B, M) of all that was seen, and keys and values for each layer.

    It is written when a pass is complete: one that fails leaves it as it was.
    """

    positions: Tensor | None = None
    layers: list[Held] = field(default_factory=list)

    def __len__(self) -> int:
        return 0 if self.positions is None else self.positions.shape[-1]

    def before(self, layer: int) -> Held | None:
        """What a layer has seen."""
        return self.layers[layer] if self.layers else None

    def following(self, tokens: Tensor) -> Tensor:
        """Positions for tokens (B N) that follow: from 0 on, or from the last one of each row."""
        along = torch.arange(tokens.shape[1], device=tokens.device)
        if self.positions is None or self.positions.ndim == 1:
            return along + len(self)
        return self.positions[:, -1:] + 1 + along

    def placed(self, positions: Tensor) -> Tensor:
        """Positions of all that was seen, these last."""
        if self.positions is None:
            return positions
        if self.positions.ndim != positions.ndim:
            wanted, came = (f"{x.ndim} dimension{'s' if x.ndim > 1 else ''}" for x in (self.positions, positions))
            raise ValueError(f"the positions in this cache have {wanted}: so must those that follow, got {came}")
        return torch.cat([self.positions, positions], dim=-1)

    def take(self, positions: Tensor, layers: list[Held]) -> None:
        """Take in what was seen, whose keys and values are those of all so far."""
        self.positions, self.layers = self.placed(positions), layers
