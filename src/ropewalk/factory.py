"""Encodings by name, and encodings made of several."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from torch import Tensor, nn

from ropewalk.code import Chain, Code, Offset
from ropewalk.encoding import Encoding, Traits
from ropewalk.encodings import REGISTRY

ALIASES = {"nope": "none"}
COMMON = ("head_dim", "heads", "kv_heads", "axes", "layers", "size", "coordinates")


def names() -> list[str]:
    """The names that `create` knows."""
    return sorted(REGISTRY)


def find(name: str) -> type[Encoding]:
    """The class of a name; `-` and `_` are alike."""
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain == Chained.name:
        return Chained
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


def chain(*encodings: Encoding) -> "Chained":
    """One encoding that does what several do, in turn: `chain(create("rope", …), create("alibi", …))`.

    They keep their parameters and must agree on head_dim, heads, kv_heads, axes, layers, coordinates and, where they have
    one, on size, because they are given the same positions.
    """
    return Chained(parts=encodings)


class Chained(Encoding):
    """Several encodings in turn, as one: mixed RoPE with a learned absolute embedding, RoPE with ALiBi, …

    parts  Encodings, or their options with their names, as `config()` has them; at least two, of which one may turn.
    """

    name = "chain"
    paper = "arXiv:2403.13298"

    def __init__(self, *, parts: Sequence[Encoding | Mapping[str, Any]], **shape: Any) -> None:
        given = {name: value for name, value in shape.items() if name != "variant" and value is not None}
        if len(parts) < 2:
            raise ValueError(f"a chain has at least two parts, got {len(parts)}")
        members: list[Encoding] = []
        for part in parts:
            if not isinstance(part, Encoding | Mapping):
                raise TypeError(f"a part of a chain must be an encoding, or its name and options, got {part!r}")
            members.append(part if isinstance(part, Encoding) else create(**{**given, **part}))
            given["axes"] = members[0].axes
        common = {name: _agreed(name, members) for name in COMMON}
        super().__init__(variant=shape.get("variant"), **common)
        self.members = nn.ModuleList(members)
        widths = {getattr(member, "width") for member in members if isinstance(self._alone(member), Offset)}  # noqa: B009
        if len(widths) > 1:
            raise ValueError(f"parts of a chain that add to tokens must agree on width, got {sorted(widths)}")
        turning = [name for member in members for name in _turning(member)]
        if len(turning) > 1:
            raise ValueError(f"one part of a chain may turn q and k, got {', '.join(turning)}")

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The name and options of each part, but for those that all have in common."""
        configs = [member.config() for member in self._members()]
        return [{name: value for name, value in config.items() if name not in COMMON} for config in configs]

    @property
    def width(self) -> int:
        """Channels of a token: what a part that adds to tokens has, or heads · head_dim."""
        adding = [member for member in self._members() if isinstance(self._alone(member), Offset)]
        return next((getattr(member, "width") for member in adding), self.heads * self.head_dim)  # noqa: B009

    def _alone(self, member: Encoding) -> Code:
        """A member's code for one token."""
        return member(member.grid(*[1] * self.axes))

    def initial(self) -> dict[str, Tensor]:
        return {}

    def reset_parameters(self) -> None:
        for member in self._members():
            member.reset_parameters()

    def init_non_persistent_buffers(self) -> None:
        for member in self._members():
            member.init_non_persistent_buffers()

    def encode(self, q: Tensor, k: Tensor | None) -> Chain:
        return Chain(layers=self.layers, codes=tuple(member.encode(q, k) for member in self._members()))

    @property
    def traits(self) -> Traits:
        each = [member.traits for member in self._members()]
        biased = [self._alone(member).biased for member in self._members()]
        falling = [traits.monotone for traits, adds in zip(each, biased, strict=True) if adds]
        return Traits(
            axes=self.axes,
            relative=tuple(all(axis) for axis in zip(*(traits.relative for traits in each), strict=True)),
            isometric=all(traits.isometric for traits in each),
            learned=any(traits.learned for traits in each),
            oblique=any(traits.oblique for traits in each),
            isotropic=all(traits.isotropic for traits in each),
            monotone=bool(falling) and all(falling),
            signed=all(traits.signed for traits in each),
            reach=min(traits.reach for traits in each),
            rounding=max(traits.rounding for traits in each),
            anchored=any(traits.anchored for traits in each),
        )

    def summary(self) -> str:
        return " + ".join(member.summary() for member in self._members())

    def _members(self) -> list[Encoding]:
        return [member for member in self.members if isinstance(member, Encoding)]

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(parts=[{"name": "mixed"}, {"name": "learned-ape"}], head_dim=12, heads=2, size=(3, 5))
        yield cls(parts=[{"name": "rope"}, {"name": "alibi"}], head_dim=12, heads=4, kv_heads=2, layers=2)
        three = ({"name": "string-cayley"}, {"name": "swin-bias"}, {"name": "sincos"})
        yield cls(parts=three, head_dim=12, heads=2, size=(3, 5))


def _turning(member: Encoding) -> list[str]:
    """The names of those that turn q and k: itself, or parts of it."""
    if isinstance(member, Chained):
        return [name for part in member._members() for name in _turning(part)]
    return [member.name] if member.traits.rotary else []


def _agreed(name: str, members: Sequence[Encoding]) -> Any:
    """What all members say of `name`; a size may be known to some of them only."""
    values = [getattr(member, name) for member in members]
    said = [value for value in values if value is not None or name != "size"]
    if any(value != said[0] for value in said):
        told = ", ".join(f"{value!r} in {member.name}" for value, member in zip(values, members, strict=True))
        raise ValueError(f"the parts of a chain must agree on {name}, got {told}")
    return said[0] if said else None
