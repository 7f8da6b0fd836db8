"""How a model hands codes to its blocks: in an object that wrappers of modules do not look into.

FSDP2 with mixed precision casts every floating tensor among the inputs of a sharded module, and finds them in lists, tuples,
dictionaries and dataclasses. A code is a dataclass: its tables would be rounded on their way into each block.
"""

from typing import Any

from torch.utils import _pytree as pytree

from ropewalk.code.base import Code


class Sealed:
    """Carries a code through the boundary of a module. It must stay a plain class: no dataclass, no tuple, no pytree."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def to(self, device: Any = None, **options: Any) -> "Sealed":
        """The same on another device: what spreads a model over devices asks this of all that layers are given."""
        return Sealed(pytree.tree_map(lambda table: table.to(device=device), self.code))

    def __repr__(self) -> str:
        return f"Sealed({self.code!r})"


def unseal(given: Code | Sealed) -> Code:
    """The code that a block was given, sealed or not."""
    return given.code if isinstance(given, Sealed) else given
