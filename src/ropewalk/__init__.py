"""ropewalk: positional encodings for PyTorch, from 1-D rotary embeddings to N-D Lie rotations."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk import extension as extension
    from ropewalk import functional as functional
    from ropewalk import layouts as layouts
    from ropewalk import positions as positions
    from ropewalk import spectra as spectra
    from ropewalk import theory as theory
    from ropewalk.attention import attend as attend
    from ropewalk.attention import attend_qkv as attend_qkv
    from ropewalk.code import Basis as Basis
    from ropewalk.code import Bias as Bias
    from ropewalk.code import Chain as Chain
    from ropewalk.code import Code as Code
    from ropewalk.code import ContentBias as ContentBias
    from ropewalk.code import Offset as Offset
    from ropewalk.code import Rotation as Rotation
    from ropewalk.code import Sphere as Sphere
    from ropewalk.code import Turn as Turn
    from ropewalk.encoding import Encoding as Encoding
    from ropewalk.encoding import Traits as Traits
    from ropewalk.encodings import *  # noqa: F403
    from ropewalk.factory import chain as chain
    from ropewalk.factory import create as create
    from ropewalk.factory import names as names
    from ropewalk.factory import register as register
    from ropewalk.positions import validate as validate
    from ropewalk.theory import fold as fold
    from ropewalk.theory import fold_into as fold_into

__version__ = "0.1.0"

# Names are imported when they are first used (PEP 562), so that `ropewalk --help` does not wait for torch. The block above
# shows them to type checkers and editors; encodings are found in ropewalk.encodings and need no entry here.
_PUBLIC = {
    "attention": ("attend", "attend_qkv"),
    "code": ("Basis", "Bias", "Chain", "Code", "ContentBias", "Offset", "Rotation", "Sphere", "Turn"),
    "encoding": ("Encoding", "Traits"),
    "factory": ("chain", "create", "names", "register"),
    "positions": ("validate",),
    "theory": ("fold", "fold_into"),
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}
_PUBLIC_MODULES = ("extension", "functional", "layouts", "positions", "spectra", "theory")
_MODULES = ("attention", "code", "encoding", "encodings", "factory", "ops", "rotary", "tree", "validation", *_PUBLIC_MODULES)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_MODULE_OF, *_PUBLIC_MODULES, *_encodings().__all__])
    if name in _MODULES:
        return importlib.import_module(f"ropewalk.{name}")
    if name in _MODULE_OF:
        found = getattr(importlib.import_module(f"ropewalk.{_MODULE_OF[name]}"), name)
    elif not name.startswith("_") and name in _encodings().__all__:
        found = getattr(_encodings(), name)
    else:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__getattr__("__all__")])


def _encodings() -> Any:
    return importlib.import_module("ropewalk.encodings")
