"""What goes through a model in place of cosines and sines: the codes of all layers, made once a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.adapters.transformers.remembering import remember
from ropewalk.code import Chain, Code
from ropewalk.encoding import Encoding

FUSED, EAGER = "ropewalk", "ropewalk_eager"  # the names of our attention functions
KEYWORD = "ropewalk"  # under which attention functions get what they score with


@dataclass
class Carried:
    """The code for all tokens of a pass, that of each layer, and what scores them against keys of a cache."""

    whole: Code
    layers: tuple[Code, ...]
    positions: Tensor
    biases: Sequence[Encoding] = ()
    made: dict[int, tuple[Code, ...]] = field(default_factory=dict)

    def scoring(self, layer: int, seen: Tensor, keys: int) -> Code:
        """The code that scores the tokens of this pass against so many keys, of positions that end with those of `seen`."""
        if keys not in self.made:
            places = seen[..., -keys:] if keys <= seen.shape[-1] else F.pad(seen, (0, keys - seen.shape[-1]))
            codes = [biased(self.positions, places) for biased in self.biases]
            code = Chain(layers=codes[0].layers, codes=tuple(codes))
            self.made[keys] = each_layer(code, len(self.layers))
        return self.made[keys][layer]


@dataclass
class Scored:
    """What an attention function needs to score: `code(keys)`, for so many keys."""

    carried: Carried
    layer: int
    seen: Tensor | None

    def code(self, keys: int) -> Code:
        """The code whose scores are added to the logits of so many keys."""
        if self.seen is None:
            return self.carried.layers[self.layer]
        return self.carried.scoring(self.layer, self.seen, keys)


class Choose:
    """A hook before the attention of a layer: it picks the layer's code."""

    def __init__(self, layer: int) -> None:
        self.layer = layer

    def __call__(self, module: nn.Module, args: Any, options: dict[str, Any]) -> Any:
        carried = options.get("position_embeddings")
        if not isinstance(carried, Carried):
            return None
        code = carried.layers[self.layer]
        options = {**options, "position_embeddings": (code, code)}
        function = module.config._attn_implementation  # type: ignore[union-attr]
        if function in (FUSED, EAGER):
            options[KEYWORD] = self._scored(carried, options)
        elif carried.biases:
            raise ValueError(f"this encoding adds to the logits: attn_implementation must stay {FUSED!r}, got {function!r}")
        return args, options

    def _scored(self, carried: Carried, options: dict[str, Any]) -> Scored:
        cache = options.get("past_key_values", options.get("layer_past"))
        if cache is None or not carried.biases:
            return Scored(carried, self.layer, None)
        return Scored(carried, self.layer, remember(cache, self.layer, carried.positions))


class Begin:
    """A hook before the first layer: it adds to the tokens what their positions say."""

    def __call__(self, module: nn.Module, args: Any, options: dict[str, Any]) -> Any:
        carried = options.get("position_embeddings")
        if not isinstance(carried, Carried):
            return None
        return (carried.whole.tokens(args[0]), *args[1:]), options


def each_layer(code: Code, count: int) -> tuple[Code, ...]:
    """The code of each of so many layers."""
    return (code,) * count if code.layers is None else code.unbind()
