"""What goes through a model in place of cosines and sines: the codes of all layers, made once a forward pass."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.adapters.transformers.cache_positions import remember
from ropewalk.adapters.transformers.token_rows import Rows, SealedTable, TableLike
from ropewalk.code import Chain, Code, Sealed
from ropewalk.encoding import Encoding

FUSED, EAGER = "ropewalk", "ropewalk_eager"  # the names of our attention functions
KEYWORD = "ropewalk"  # under which attention functions get what they score with


class Carried(TableLike):
    """The code for all tokens of a pass, that of each layer, and what scores them against keys of a cache.

    It is no dataclass: see `ropewalk.code.sealed`.

    make  Makes the code for all tokens once more. None where no gradient goes through it.
    """

    def __init__(
        self,
        whole: Code,
        layers: tuple[Code, ...],
        positions: Tensor,
        biases: Sequence[Encoding] = (),
        make: Callable[[], Code] | None = None,
    ) -> None:
        self.whole, self.layers, self.positions = whole, layers, positions
        self.biases, self.make = biases, make
        self.blind = False  # whether a layer has run without gradients
        self.function = ""  # of attention, as the first layer found it: asking a config takes a while
        self.made: dict[int, tuple[Code, ...]] = {}

    def code(self, layer: int) -> Code:
        """The code of a layer."""
        if self.make is None or not self._again():
            return self.layers[layer]
        return each_layer(self.make(), len(self.layers))[layer]

    def _again(self) -> bool:
        """Whether a layer runs a second time, with gradients, after it ran without.

        So does checkpointing that is reentrant. There each layer goes back by itself, and the way through a code that all of
        them share would be gone after the first: each needs a code of its own.
        """
        graded = torch.is_grad_enabled()
        self.blind = self.blind or not graded
        return self.blind and graded

    def scoring(self, layer: int, seen: Tensor, keys: int) -> Code:
        """The code that scores the tokens of this pass against so many keys, of positions that end with those of `seen`."""
        if keys not in self.made:
            places = seen[..., -keys:] if keys <= seen.shape[-1] else F.pad(seen, (0, keys - seen.shape[-1]))
            codes = [biased(self.positions, places) for biased in self.biases]
            code = Chain(layers=codes[0].layers, codes=tuple(codes))
            self.made[keys] = each_layer(code, len(self.layers))
        return self.made[keys][layer]


class Scored:
    """What an attention function needs to score: `code(keys)`, for so many keys. It is no dataclass, as `Carried`."""

    def __init__(self, carried: Carried, layer: int, own: Code, seen: Tensor | None) -> None:
        self.carried, self.layer, self.own, self.seen = carried, layer, own, seen

    def code(self, keys: int) -> Code:
        """The code whose scores are added to the logits of so many keys."""
        if self.seen is None:
            return self.own
        return self.carried.scoring(self.layer, self.seen, keys)


class Choose:
    """A hook before the attention of a layer: it picks the layer's code from whatever the attention is given."""

    def __init__(self, owner: str, layer: int) -> None:
        self.owner, self.layer = owner, layer

    def __call__(self, module: nn.Module, args: Any, options: dict[str, Any]) -> Any:
        carried = find_carried((args, options))
        if carried is None:
            return None
        code = carried.code(self.layer)
        sealed = SealedTable(code, flat=carried.flat)
        given, chosen = put_in_place(args, sealed), put_in_place(options, sealed)
        function = carried.function = carried.function or attention_function(module)
        if function in (FUSED, EAGER):
            chosen[KEYWORD] = Scored(carried, self.layer, code, self._seen(carried, options))
        elif carried.biases:
            wanted = f"attn_implementation must be {FUSED!r}, or {EAGER!r} for weights of attention"
            raise ValueError(f"this encoding adds to the logits: {wanted}, got {function!r}")
        return given, chosen

    def _seen(self, carried: Carried, options: dict[str, Any]) -> Tensor | None:
        """The positions of all keys, where those of a cache are to be scored."""
        cache = options.get("past_key_values", options.get("layer_past"))
        return remember(cache, self.layer, carried.positions) if cache is not None and carried.biases else None


class Begin:
    """A hook before the first layer: it adds to the tokens what their positions say."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def __call__(self, module: nn.Module, args: Any, options: dict[str, Any]) -> Any:
        carried = find_carried((args, options))
        if carried is None or carried.whole.rotary:  # which adds nothing to tokens
            return None
        if args:
            return (carried.whole.tokens(args[0]), *args[1:]), options
        return args, {**options, "hidden_states": carried.whole.tokens(options["hidden_states"])}


def attention_function(module: Any) -> str:
    """The name of the attention function of a module; old models have none to choose."""
    return str(module.config._attn_implementation) if hasattr(module, "config") else "eager"


def find_carried(given: Any) -> Carried | None:
    """What is carried among the inputs of a module."""
    if isinstance(given, Carried):
        return given
    if isinstance(given, Rows):
        return find_carried(given.carried)
    values = given.values() if isinstance(given, dict) else given if isinstance(given, tuple | list) else ()
    return next((found for value in values if (found := find_carried(value)) is not None), None)


def put_in_place(given: Any, code: Sealed) -> Any:
    """The inputs of a module with a layer's code wherever those of all layers were."""
    if isinstance(given, Carried):
        return code
    if isinstance(given, Rows):
        return Rows(put_in_place(given.carried, code), given.steps)
    if type(given) is tuple:
        return tuple(put_in_place(value, code) for value in given)
    return {name: put_in_place(value, code) for name, value in given.items()} if type(given) is dict else given


def each_layer(code: Code, count: int) -> tuple[Code, ...]:
    """The code of each of so many layers."""
    return (code,) * count if code.layers is None else code.unbind()
