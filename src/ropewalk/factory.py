"""Encodings by name."""

import difflib
from typing import Any

from ropewalk.encoding import Encoding
from ropewalk.encodings import REGISTRY

ALIASES = {"nope": "none"}


def names() -> list[str]:
    """The names that `create` knows."""
    return sorted(REGISTRY)


def find(name: str) -> type[Encoding]:
    """The class of a name; `-` and `_` are alike."""
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain not in REGISTRY:
        close = difflib.get_close_matches(plain, REGISTRY, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"no encoding is named {name!r}{hint}; there are {', '.join(names())}")
    return REGISTRY[plain]


def create(name: str, **options: Any) -> Encoding:
    """Build an encoding by name: `create("rope", head_dim=128)`.

    Every encoding takes head_dim, heads=1, kv_heads=None, axes=None, layers=None, size=None, variant=None and
    coordinates=None; its class has the rest. Unknown options are errors.
    """
    return find(name)(**options)
