"""Attention whose rotation functions are ours: copies of its methods see other functions under the names of the host's.

A modelling file calls `apply_rotary_pos_emb` as a global. Replacing that would reach every model of the file. Instead the
class of one attention module becomes a subclass whose methods are copies with globals of their own, in which the name means
something else. The file, its classes and other models are not touched.
"""

import functools
import re
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any, ClassVar

from torch import nn

from ropewalk.adapters.offloading import change_class
from ropewalk.adapters.transformers.apply_rotary import Usage, make_rotation

ROTATION = re.compile(r"_?(vision_)?apply_\w*(rotary|rope)\w*")
REGISTERED: set[Any] = set()
"""Rotation functions of other names."""


class Rebound(nn.Module):
    """What a rebound attention inherits from: it knows the class that it had, and how its functions are used."""

    host: ClassVar[type[nn.Module]]
    usages: ClassVar[tuple[Usage, ...]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A class made at run time has no name to be found under: copies and pickles make it anew."""
        return _blank, (self.host, self.usages), self.__getstate__()


@functools.cache
def find_rotations(kind: Any) -> tuple[str, ...]:
    """The names of the rotation functions that methods of a class call."""
    found = [name for _, function in list_methods(kind) for name in _global_names(unwrap(function))]
    return tuple(dict.fromkeys(found))


def rebind(attention: nn.Module, usages: tuple[Usage, ...]) -> None:
    """Let an attention module call our rotations."""
    change_class(attention, _rebound_class(host_class(attention), usages))


def rebind_to(attention: nn.Module, functions: dict[str, Callable[..., Any]]) -> None:
    """Let an attention module call these functions, for a while: copies and pickles of it do not work."""
    change_class(attention, _subclass(host_class(attention), functions, {}))


def restore(attention: nn.Module, kind: type | None = None) -> None:
    """Give an attention module its own class back, or one that it had meanwhile."""
    change_class(attention, kind or host_class(attention))


def host_class(module: nn.Module) -> Any:
    """The class that a module has, or had before it was rebound."""
    return getattr(type(module), "host", type(module)) if isinstance(module, Rebound) else type(module)


def rotation_function(kind: type, name: str) -> Any:
    """What a name means to the methods of a class."""
    for _, function in list_methods(kind):
        inner = unwrap(function)
        if name in _global_names(inner):
            return inner.__globals__[name]
    raise AttributeError(f"{kind.__name__} has no method that calls {name}")


@functools.cache
def _rebound_class(host: Any, usages: tuple[Usage, ...]) -> Any:
    functions = {usage.name: make_rotation(usage, rotation_function(host, usage.name)) for usage in usages}
    return _subclass(host, functions, {"usages": usages})


def _subclass(host: Any, functions: dict[str, Callable[..., Any]], attributes: dict[str, Any]) -> Any:
    methods = {name: _copied(function, functions) for name, function in list_methods(host) if _uses(function, functions)}
    attributes = {"host": host, "usages": (), "__module__": host.__module__, **attributes, **methods}
    return type(host.__name__, (Rebound, host), attributes)


def _blank(host: Any, usages: tuple[Usage, ...]) -> nn.Module:
    made = _rebound_class(host, usages)
    return made.__new__(made)


def list_methods(kind: Any) -> Iterator[tuple[str, Any]]:
    """The methods of a class and of those that it inherits from, the nearest of each name."""
    seen: set[str] = set()
    for each in kind.__mro__:
        if each in (nn.Module, object, Rebound):
            continue
        for name, value in vars(each).items():
            if isinstance(value, FunctionType) and name not in seen:
                seen.add(name)
                yield name, value


def unwrap(function: Any) -> Any:
    """What decorators wrap."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _uses(function: FunctionType, functions: dict[str, Any]) -> bool:
    return any(name in functions for name in _global_names(unwrap(function)))


def _global_names(function: FunctionType) -> list[str]:
    """The names of rotation functions in the code of a function and of those inside it."""
    names: list[str] = []
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        meant = {name: function.__globals__.get(name) for name in code.co_names}
        names += [name for name, value in meant.items() if callable(value) and _is_rotation(name, value)]
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    return names


def _is_rotation(name: str, value: Any) -> bool:
    return bool(ROTATION.fullmatch(name)) or any(value is known for known in REGISTERED)


def _copied(function: FunctionType, functions: dict[str, Callable[..., Any]]) -> FunctionType:
    """A copy of a method, and of what it wraps, that sees these functions.

    Its globals lack `__name__`: by that name torch.compile would look up the modelling file, and find the host's function.
    """
    inner = getattr(function, "__wrapped__", None)
    closure = function.__closure__
    if inner is None:
        scope = {name: value for name, value in function.__globals__.items() if name != "__name__"} | functions
    else:
        scope, changed = function.__globals__, _copied(inner, functions)
        closure = tuple(CellType(changed) if _holds(cell, inner) else cell for cell in closure or ())
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__, made.__doc__ = function.__kwdefaults__, function.__doc__
    made.__dict__.update(function.__dict__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    made.__annotations__ = function.__annotations__
    if inner is not None:
        made.__wrapped__ = changed  # type: ignore[attr-defined]
    return made


def _holds(cell: CellType, value: Any) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:  # not filled yet
        return False
