"""Where a model of transformers makes a rotary embedding, and which attention uses it: found by structure, not by name.

A rotary embedding is a module with a class name such as `LlamaRotaryEmbedding` or `DINOv3ViTRopePositionEmbedding`. What
contains it, a decoder, a vision tower or an attention, is the host. Its attention is every module in it with a method that
calls a rotation function, such as `apply_rotary_pos_emb`, but for what belongs to another host inside.
"""

import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import CodeType, ModuleType
from typing import Any

from torch import nn

from ropewalk.adapters.transformers.embedding import Follower, Positions
from ropewalk.adapters.transformers.rebinding import find_rotations, host_class, list_methods, unwrap

REGISTERED: set[type] = set()
"""Rotary embeddings of other names."""

ROTARY = re.compile(r"\w*(Rotary|RoPE|Rope)\w*Embedding\w*")
PER_TYPE = "_inv_freq"  # how buffers of a rotary embedding for several types of layers end


@dataclass(frozen=True, eq=False)
class Host:
    """A part of a model that has a rotary embedding of its own.

    base        The module that owns it, or the one whose layers own one each.
    path        Of `base` in the model; "" for the model itself.
    places      The modules that have the rotary embedding, and under which name: one, or one for each layer.
    attentions  The attention of each layer.
    helpers     Modules inside these that rotate too, such as indexers of sparse attention.

    shares_config  Whether another part of the model has the same config.
    """

    base: Any
    path: str
    places: tuple[tuple[nn.Module, str], ...]
    attentions: tuple[nn.Module, ...]
    helpers: tuple[nn.Module, ...]
    shares_config: bool = False

    @property
    def key(self) -> str:
        """Its name among the parts that share a config."""
        owner, name = self.places[0]
        path = next(path for path, module in self.base.named_modules() if module is owner)
        return f"{type(self.base).__name__}.{path}{'.' if path else ''}{name}"

    @property
    def config(self) -> Any:
        """The config of the host."""
        own = getattr(self.base, "config", None)
        return getattr(self.attentions[0], "config", None) if own is None else own

    @property
    def rotary(self) -> nn.Module:
        """What stands where the rotary embedding was, or is; of several, the first."""
        owner, name = self.places[0]
        return getattr(owner, name)

    @property
    def host_rotary(self) -> nn.Module:
        """The rotary embedding that the model came with."""
        return self.rotary.host if isinstance(self.rotary, Positions) else self.rotary

    @cached_property
    def layers(self) -> list[nn.Module]:
        """The layers, in their order: what has the attention as a child."""
        parents = {id(child): module for module in self.base.modules() for child in module.children()}
        return [parents.get(id(attention), attention) for attention in self.attentions]

    @property
    def modelling(self) -> ModuleType:
        """The file that the rotary embedding is written in."""
        return sys.modules[type(self.host_rotary).__module__]

    @property
    def layer_types(self) -> list[str]:
        """The types of layers that have frequencies of their own, or none."""
        return list_layer_types(self.host_rotary)

    @property
    def named(self) -> str:
        """How errors and descriptions name it."""
        return f"{self.path or type(self.base).__name__} ({type(self.host_rotary).__name__})"


def list_layer_types(rotary: nn.Module) -> list[str]:
    """The types of layers for which a rotary embedding has frequencies of their own."""
    names = [name for name, _ in rotary.named_buffers(recurse=False)]
    found = {name.removesuffix(PER_TYPE) for name in names if name.endswith(PER_TYPE)}
    return sorted(name for name in found if not name.endswith("original") and name)


def layer_type_of(attention: nn.Module, layer: int, config: Any, types: list[str]) -> str | None:
    """The type of an attention's layer, of these."""
    for name in ("layer_type", "attention_type", "rope_layer_type"):
        if getattr(attention, name, None) in types:
            return str(getattr(attention, name))
    index = getattr(attention, "layer_idx", layer)
    named = getattr(config, "layer_types", None) or []
    kind = named[index] if isinstance(index, int) and index < len(named) else None
    return kind if kind in types else None


def is_rotary(module: nn.Module) -> bool:
    """Whether a module is a rotary embedding, or stands in the place of one."""
    if isinstance(module, Positions | Follower):
        return True
    if type(module) in REGISTERED:
        return True
    return bool(ROTARY.fullmatch(type(module).__name__)) and not find_rotations(host_class(module))


def find_hosts(model: nn.Module) -> list[Host]:
    """All parts of a model that have a rotary embedding, and attention that uses it."""
    owners = {path: _rotary_children(module) for path, module in model.named_modules()}
    owners = {path: names for path, names in owners.items() if names}
    found: list[Host] = []
    grouped: set[str] = set()
    for path, names in owners.items():
        if path in grouped:
            continue
        owner = model.get_submodule(path)
        alike = [path]
        if find_rotations(host_class(owner)):
            alike = [other for other in owners if _pattern(other) == _pattern(path)]
            grouped.update(alike)
        listed = isinstance(owner, nn.ModuleList | nn.ModuleDict)
        whole = not listed and not find_rotations(host_class(owner))
        base, base_path = (owner, path) if whole else _above(model, alike)
        for name in names:
            places = tuple((model.get_submodule(each), name) for each in alike)
            attentions, helpers = _users(base, places)
            if attentions and _is_used(model, path.rpartition(".")[2] if listed else name):
                found.append(Host(base, base_path, places, attentions, helpers))
    configs = [id(host.config) for host in found]
    return [replace(host, shares_config=configs.count(id(host.config)) > 1) for host in found]


def _is_used(model: nn.Module, name: str) -> bool:
    """Whether a method of a module of the model but a constructor mentions an attribute: some models inherit one unused."""
    kinds = {host_class(module) for module in model.modules()}
    return any(name in list_attributes(kind) for kind in kinds)


@functools.cache
def list_attributes(kind: Any) -> frozenset[str]:
    """The names that the methods of a class use, but for its constructor."""
    codes = [unwrap(function).__code__ for name, function in list_methods(kind) if name != "__init__"]
    names: set[str] = set()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(names)


def find(model: nn.Module, tower: str | None = None, key: str | None = None) -> Host:
    """The one part of a model that has a rotary embedding, or the one of this name, and of this key where it has several."""
    found = find_hosts(model) if isinstance(model, nn.Module) else []
    if tower is not None:
        named = [host for host in found if host.path == tower and key in (None, host.key)]
        if len(named) == 1:
            return named[0]
        has = ", ".join(repr(host.path) for host in found) or "none"
        raise ValueError(f"tower must be one of the parts of the model with a rotary embedding, {has}, got {tower!r}")
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(repr(host.path) for host in found)
        raise ValueError(f"{type(model).__name__} has several parts with a rotary embedding: name one by tower=, of {names}")
    raise TypeError(f"{describe_missing(model)}, got {type(model).__name__}")


def describe_missing(model: Any) -> str:
    """Why nothing can be installed in a model without hosts."""
    wanted = "a model needs a rotary embedding, and attention that calls a function such as apply_rotary_pos_emb"
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    made = next((type(module).__name__ for module in modules if is_rotary(module)), None)
    uses = next((type(module).__name__ for module in modules if find_rotations(host_class(module))), None)
    if made is not None:
        return f"{wanted}; no module but {made} calls one: if yours has another name, register it"
    if uses is not None:
        return (
            f"{wanted}; {uses} calls one, but no module was recognized as a rotary embedding: register it, if there is one"
        )
    return f"{wanted}; if yours have other names, register them"


def _rotary_children(module: nn.Module) -> list[str]:
    if isinstance(module, Positions | Follower):
        return []
    return [name for name, child in module.named_children() if is_rotary(child)]


def _pattern(path: str) -> str:
    return re.sub(r"\d+", "*", path)


def _above(model: nn.Module, paths: list[str]) -> tuple[nn.Module, str]:
    """The nearest module above all of these that has a config and is no attention."""
    parts = paths[0].split(".")
    for length in range(len(parts) - 1, -1, -1):
        path = ".".join(parts[:length])
        module = model.get_submodule(path)
        inside = all(not path or other == path or other.startswith(f"{path}.") for other in paths)
        if inside and hasattr(module, "config") and not find_rotations(host_class(module)):
            return module, path
    return model, ""


def _users(
    base: nn.Module, places: tuple[tuple[nn.Module, str], ...]
) -> tuple[tuple[nn.Module, ...], tuple[nn.Module, ...]]:
    """The attention of a host, and what rotates inside it."""
    owners = {id(owner) for owner, _ in places}
    attentions: list[nn.Module] = []
    helpers: list[nn.Module] = []

    def visit(module: nn.Module, inside: bool) -> None:
        uses = bool(find_rotations(host_class(module))) and not getattr(module, "is_cross_attention", False)
        if uses:
            (helpers if inside else attentions).append(module)
        for child in module.children():
            foreign = id(child) not in owners and bool(_rotary_children(child))
            if not foreign and not isinstance(child, Positions | Follower):
                visit(child, inside or uses)

    visit(base, False)
    return tuple(attentions), tuple(helpers)


def each_attention(host: Host) -> Iterator[nn.Module]:
    """All that rotates in a host."""
    yield from host.attentions
    yield from host.helpers
