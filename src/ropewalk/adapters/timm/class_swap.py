"""Modules change their class and nothing else: names, parameters, hooks and optimisers know no difference."""

import functools
from typing import Any, ClassVar

from torch import nn

from ropewalk.adapters.offloading import change_class


class Swapped(nn.Module):
    """What a module of timm's is made to inherit from before its own class, `host`."""

    host: ClassVar[type[nn.Module]]
    mixin: ClassVar[type["Swapped"]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A class made at run time has no name to be found under: copies and pickles make it anew."""
        return _blank, (self.mixin, self.host), self.__getstate__()


def swap(module: nn.Module, mixin: Any) -> None:
    """Give a module what `mixin` defines; the rest stays that of its class."""
    change_class(module, _joined(mixin, host_of(module)))


def restore(module: nn.Module) -> None:
    """Give a module its own class back."""
    change_class(module, host_of(module))


def host_of(module: nn.Module) -> Any:
    """The class that a module has, or had before it was swapped."""
    return module.host if isinstance(module, Swapped) else type(module)


@functools.cache
def _joined(mixin: Any, host: Any) -> type[nn.Module]:
    return type(f"Coded{host.__name__}", (mixin, host), {"host": host, "mixin": mixin})


def _blank(mixin: Any, host: Any) -> nn.Module:
    made = _joined(mixin, host)
    return made.__new__(made)
