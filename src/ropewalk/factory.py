"""Encodings by name, and encodings made of several."""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from torch import Tensor, nn

from ropewalk.arguments import describe, instance_of
from ropewalk.code import Chain, Code, ContentBias, Offset
from ropewalk.encoding import Encoding, Traits
from ropewalk.encodings import REGISTRY
from ropewalk.positions import Resolution
from ropewalk.validation import check_choice, describe_unknown

ALIASES = {"nope": "none"}
COMMON = ("head_dim", "heads", "kv_heads", "axes", "layers", "size", "coordinates")

EncodingClass = TypeVar("EncodingClass", bound=type[Encoding])


def names() -> list[str]:
    """The names that `create` knows."""
    return sorted(REGISTRY)


def find(name: str, *, load: bool = False) -> type[Encoding]:
    """The class of a name, in which `-` and `_` are alike, or of "module:Class".

    The module must have been imported already, so that a name read from a file runs no code; `load` imports it.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of an encoding must be a string, got {describe(name)}")
    if ":" in name:
        return _find_by_path(name, load)
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    return Chained if plain == Chained.name else REGISTRY[check_choice("encoding", name, names(), key=plain)]


def create(name: str, **options: Any) -> Encoding:
    """Build an encoding by name: `create("rope", head_dim=128)`, or by "module:Class", which imports the module.

    Every encoding takes head_dim, heads=1, kv_heads=None, axes=None, layers=None, size=None, variant=None and
    coordinates=None; its class has the rest. Unknown options are errors. For a name from a file that you do not trust,
    use `from_config`, which imports nothing.
    """
    return find(name, load=True)(**options)


def from_config(config: Mapping[str, Any]) -> Encoding:
    """Build an encoding from its `config()`. A class "module:Class" must have been imported before."""
    options = dict(instance_of("config", config, Mapping))
    if not isinstance(options.get("name"), str):
        raise ValueError(f"config must have a name, as config() of an encoding has, got {describe(config)}")
    return find(options.pop("name"))(**options)


def register(kind: EncodingClass) -> EncodingClass:
    """Add an encoding class to the names that `create` knows; usable as a class decorator.

    Registering a class again, as when the cell of a notebook is run again, replaces it. A name that another class has is
    refused.
    """
    if not (isinstance(kind, type) and issubclass(kind, Encoding)):
        raise TypeError(f"register takes a subclass of ropewalk.Encoding, got {kind!r}")
    name = getattr(kind, "name", None)
    if not (isinstance(name, str) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)):
        raise ValueError(f"{kind.__name__}.name must be lower-case letters and digits with hyphens between, got {name!r}")
    if inspect.isabstract(kind):
        raise TypeError(f"{kind.__name__} is abstract: it must define {', '.join(sorted(kind.__abstractmethods__))}")
    taken = Chained if name == Chained.name else REGISTRY.get(ALIASES.get(name, name))
    if taken is not None and _path_of(taken) != _path_of(kind):
        raise ValueError(f"the name {name!r} is taken by {_path_of(taken)}: give {kind.__name__} another")
    REGISTRY[name] = kind
    return kind


def canonical_name(name: str) -> str:
    """The one spelling of a name of an encoding: that of its class, or "module:Class" where it was given so."""
    kind = find(name)
    built_in = kind.__module__.startswith("ropewalk.") and kind in REGISTRY.values()
    return name if ":" in name and not built_in else kind.name


def is_known(name: str) -> bool:
    """Whether `create` knows the name without importing a module for it."""
    try:
        find(name)
    except ValueError:
        return False
    return True


def import_module(name: str) -> None:
    """Import a module that defines encodings."""
    if name in sys.modules:
        return
    try:
        importlib.import_module(name)
    except Exception as error:
        raise ValueError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error


def _path_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _find_by_path(path: str, load: bool) -> type[Encoding]:
    """The class of "module:Class"."""
    name, _, attribute = path.partition(":")
    if load:
        import_module(name)
    if name not in sys.modules:
        raise ValueError(
            f"the encoding {path!r} is defined outside of ropewalk: import {name} first, or pass --import {name}"
        )
    found: Any = sys.modules[name]
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ValueError(describe_unknown("class", [attribute], _list_classes(name), of=name))
    if not (isinstance(found, type) and issubclass(found, Encoding)):
        raise ValueError(f"{path} must be a subclass of ropewalk.Encoding, got {found!r}")
    if inspect.isabstract(found):
        raise ValueError(f"{path} is abstract: it must define {', '.join(sorted(found.__abstractmethods__))}")
    return found


def _list_classes(module: str) -> list[str]:
    """The encodings that a module defines itself."""
    found = [kind for kind in vars(sys.modules[module]).values() if isinstance(kind, type) and issubclass(kind, Encoding)]
    return [kind.__name__ for kind in found if kind.__module__ == module and not inspect.isabstract(kind)]


def chain(*encodings: Encoding) -> "Chained":
    """One encoding that does what several do, in turn: `chain(create("rope", …), create("alibi", …))`.

    They keep their parameters and must agree on head_dim, heads, kv_heads, axes, layers, coordinates and, where they have
    one, on size, because they are given the same positions.
    """
    return Chained(parts=encodings)


class Chained(Encoding):
    """Several encodings in turn, as one: mixed RoPE with a learned absolute embedding, RoPE with ALiBi, …

    parts  Encodings, or their options with their names, as `config()` has them; at least two, of which one may turn. The
           parts of a chain among them are parts of this one.
    """

    name = "chain"
    paper = "arXiv:2403.13298"
    default_axes = 0  # none of its own: it has those of its parts

    def __init__(self, *, parts: Sequence[Encoding | Mapping[str, Any]] = (), **shape: Any) -> None:
        members = _members(parts, {name: value for name, value in shape.items() if name in COMMON and value is not None})
        common = {name: _agreed(name, members) for name in COMMON}
        for name, value in shape.items():
            if name in COMMON and value is not None and common[name] != (tuple(value) if name == "size" else value):
                raise ValueError(f"the parts of this chain have {name}={common[name]!r}, got {name}={value!r}")
        super().__init__(**{**shape, **common})
        self.members = nn.ModuleList(members)
        self._check()

    def _check(self) -> None:
        codes = self._codes()
        turning = [member.name for member, code in codes if code.rotary]
        content = [member.name for member, code in codes if isinstance(code, ContentBias)]
        if len(turning) > 1:
            raise ValueError(f"one part of a chain may turn q and k, got {', '.join(turning)}")
        if turning and content:
            names = ", ".join(turning + content)
            raise ValueError(f"terms that know q and k must not see them turned: they were not relative, got {names}")
        widths = {code.offset.shape[-1] for _, code in codes if isinstance(code, Offset)}
        if len(widths) > 1:
            raise ValueError(f"parts of a chain that add to tokens must agree on width, got {sorted(widths)}")

    def _codes(self) -> list[tuple[Encoding, Code]]:
        """Each member with its code for one token."""
        one = 1 if self.axes == 1 else [1] * self.axes
        ready = [member.at(one) if member.waiting else member for member in self._parts()]
        return [(member, member(member.grid(*[1] * self.axes, resolution="extrapolate"))) for member in ready]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The name and options of each part, but for those that all have in common."""
        configs = [member.config() for member in self._parts()]
        return [{name: value for name, value in config.items() if name not in COMMON} for config in configs]

    @property
    def width(self) -> int:
        """Channels of a token: what a part that adds to tokens has, or heads · head_dim."""
        widths = [code.offset.shape[-1] for _, code in self._codes() if isinstance(code, Offset)]
        return widths[0] if widths else self.heads * self.head_dim

    def initial(self) -> dict[str, Tensor]:
        return {}

    def reset_parameters(self) -> None:
        for member in self._parts():
            member.reset_parameters()

    def init_non_persistent_buffers(self) -> None:
        for member in self._parts():
            member.init_non_persistent_buffers()

    @property
    def waiting(self) -> bool:
        return any(member.waiting for member in self._parts())

    @property
    def own_resolution(self) -> Resolution | None:
        stated = {member.own_resolution for member in self._parts()} - {None}
        return stated.pop() if len(stated) == 1 else None

    def at(self, length: int | Sequence[int]) -> Encoding:
        members = self._parts()
        chosen = [member.at(length) for member in members]
        if all(a is b for a, b in zip(members, chosen, strict=True)):
            return self
        other = object.__new__(type(self))  # its parts agreed already; compilers trace this
        other.__dict__.update(self.__dict__)
        other.__dict__["_modules"] = {**self._modules, "members": nn.ModuleList(chosen)}
        return other

    def encode(self, q: Tensor, k: Tensor | None) -> Chain:
        return Chain(layers=self.layers, codes=tuple(member.encode(q, k) for member in self._parts()))

    @property
    def traits(self) -> Traits:
        each = [member.traits for member in self._parts()]
        falling = [member.traits.monotone for member, code in self._codes() if code.biased]
        return Traits(
            axes=self.axes,
            relative=tuple(all(axis) for axis in zip(*(traits.relative for traits in each), strict=True)),
            isometric=all(traits.isometric for traits in each),
            learned=any(traits.learned for traits in each),
            oblique=any(traits.oblique for traits in each),
            isotropic=all(traits.isotropic for traits in each),
            monotone=bool(falling) and all(falling),
            signed=all(traits.signed for traits in each),
            reach=min((traits.reach for traits in each if traits.reach), default=0.0),
            rounding=max(traits.rounding for traits in each),
            anchored=any(traits.anchored for traits in each),
        )

    def summary(self) -> str:
        return " + ".join(member.summary() for member in self._parts())

    def _parts(self) -> list[Encoding]:
        return [member for member in self.members if isinstance(member, Encoding)]

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(parts=[{"name": "mixed"}, {"name": "learned-ape"}], head_dim=12, heads=2, size=(3, 5))
        yield cls(parts=[{"name": "rope"}, {"name": "alibi"}], head_dim=12, heads=4, kv_heads=2, layers=2)
        three = ({"name": "string-cayley"}, {"name": "swin-bias"}, {"name": "sincos"})
        yield cls(parts=three, head_dim=12, heads=2, size=(3, 5))
        yield cls(parts=[{"name": "alibi"}, {"name": "transformer-xl"}], head_dim=12, heads=2)


def _members(parts: Sequence[Encoding | Mapping[str, Any]], shape: dict[str, Any]) -> list[Encoding]:
    """The parts as encodings, chains taken apart; those without axes of their own have the first one's."""
    members: list[Encoding] = []
    for part in parts:
        if not isinstance(part, Encoding | Mapping):
            raise TypeError(f"a part of a chain must be an encoding, or its name and options, got {part!r}")
        made = part if isinstance(part, Encoding) else from_config({**shape, **part})
        members += made._parts() if isinstance(made, Chained) else [made]
        shape = {"axes": members[0].axes, **shape}
    if len(members) < 2:
        raise ValueError(f"a chain has at least two parts, got {len(members)}")
    return members


def _agreed(name: str, members: Sequence[Encoding]) -> Any:
    """What all members say of `name`; a size may be known to some of them only."""
    values = [getattr(member, name) for member in members]
    said = [value for value in values if value is not None or name != "size"]
    if any(value != said[0] for value in said):
        told = ", ".join(f"{value!r} in {member.name}" for value, member in zip(values, members, strict=True))
        raise ValueError(f"the parts of a chain must agree on {name}, got {told}")
    return said[0] if said else None
