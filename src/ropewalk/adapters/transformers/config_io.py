"""What a config says of an encoding, so that the model can be saved and loaded.

`config.ropewalk` is the encoding's `config()`, or one for each type of layers, or for each part of the model that shares the
config; "folded" is among it where the weights hold the basis of a folded encoding. `rope_type` becomes one that no program
knows without this adapter: it refuses such a checkpoint and does not take it for a model with RoPE.
"""

import copy
from collections.abc import Mapping
from typing import Any

from ropewalk.adapters.transformers.building import FOLDED, USE, Made
from ropewalk.adapters.transformers.code_state import EAGER, FUSED
from ropewalk.adapters.transformers.embedding import Positions
from ropewalk.adapters.transformers.host_use import HostUse
from ropewalk.adapters.transformers.hosts import Host
from ropewalk.encoding import Encoding

NAME = "ropewalk"
REPLACES = "replaces"
PATHS = "paths"  # in the config of a whole model: the encodings of parts whose own configs are not saved with it
PARTS = "towers"  # under which there are the encodings of several parts that share a config
KIND = "ropewalk: pip install ropewalk, then import ropewalk.adapters.transformers"
"""The type of RoPE of a marked config. A program without this adapter does not know it, and shows it in its error."""


def marked(config: Any, made: Made, host: Host, use: HostUse, *, folded: bool = False) -> Any:
    """A copy of a config that says what encoding a host has."""
    other = copy.deepcopy(config)
    said = made.config() if isinstance(made, Encoding) else {kind: each.config() for kind, each in made.items()}
    said |= {USE: use.to_dict()} | ({FOLDED: True} if folded else {})
    before = getattr(other, NAME, None) or {}
    other.ropewalk = {PARTS: {**before.get(PARTS, {}), host.key: said}} if host.shares_config else said
    if getattr(other, "rope_parameters", None) and "ROPE_INIT_FUNCTIONS" in _names_of(type(host.host_rotary)):
        plain, other.rope_parameters = other.rope_parameters, _each(other.rope_parameters, _mark)
        try:
            type(other).from_dict(other.to_dict())
        except Exception:  # configs may insist on types of their own, in errors of any kind
            other.rope_parameters = plain
    return other


def unmarked(config: Any, key: str | None = None) -> Any:
    """A copy of a config without what `marked` wrote, for all parts that share it or for one."""
    other = copy.deepcopy(config)
    whole = getattr(other, NAME, None)
    parts = whole.get(PARTS) if isinstance(whole, Mapping) else None
    rest = {name: said for name, said in parts.items() if name != key} if isinstance(parts, Mapping) else {}
    if key is not None and rest:
        other.ropewalk = {PARTS: rest}
        return other
    if hasattr(other, NAME):
        del other.ropewalk
    if getattr(other, "rope_parameters", None):
        other.rope_parameters = _each(other.rope_parameters, _unmark)
    return other


def read_mark(config: Any, key: str) -> Any:
    """What a config says of the encoding of a host, or None."""
    whole = getattr(config, NAME, None)
    if whole is not None and not isinstance(whole, Mapping):
        raise ValueError(f"config.ropewalk must be a dictionary that describes an encoding, got {whole!r}")
    said: Any = {name: value for name, value in (whole or {}).items() if name != PATHS}
    said = said[PARTS].get(key) if isinstance(said.get(PARTS), Mapping) else said or None
    if said is not None and not isinstance(said, Mapping):
        raise ValueError(f"config.ropewalk must be a dictionary that describes an encoding, got {said!r}")
    return said


def says_folded(asked: Any) -> bool:
    """Whether a description of an encoding has the mark of a folded one."""
    return isinstance(asked, Mapping) and bool(asked.get(FOLDED, False))


def plain_config(host: Host) -> Any:
    """The config of a model as it is now, without what `install` wrote; the very same one if nothing else has changed."""
    here = host.rotary
    if not isinstance(here, Positions):
        return host.config
    now, was = unmarked(host.config, host.key), here.host_config
    if now._attn_implementation == ours(was._attn_implementation):
        now._attn_implementation = was._attn_implementation
    now._attn_implementation = theirs(now._attn_implementation)
    same = now.to_dict() == was.to_dict() and now._attn_implementation == was._attn_implementation
    return was if same else now


def ours(function: str) -> str:
    """The attention function of ours that stands for one of transformers'."""
    return EAGER if function in ("eager", EAGER) else FUSED


def theirs(function: str) -> str:
    """The other way round; any other function stays."""
    return {EAGER: "eager", FUSED: "sdpa"}.get(function, function)


def _each(parameters: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """A dictionary changed, or those that it has for types of layers."""
    if not any(isinstance(value, Mapping) for value in parameters.values()):
        return change(parameters)
    return {kind: change(value) if isinstance(value, Mapping) else value for kind, value in parameters.items()}


def _names_of(rotary: type) -> tuple[str, ...]:
    """The names in the constructor of a rotary embedding: some look their type of RoPE up, others insist on one."""
    code = getattr(vars(rotary).get("__init__"), "__code__", None)
    return () if code is None else code.co_names


def _mark(parameters: Mapping[str, Any]) -> dict[str, Any]:
    if parameters.get("rope_type") in (NAME, KIND):
        return dict(parameters)
    return {**parameters, "rope_type": KIND, REPLACES: parameters.get("rope_type", "default")}


def _unmark(parameters: Mapping[str, Any]) -> dict[str, Any]:
    if parameters.get("rope_type") not in (NAME, KIND):
        return dict(parameters)
    rest = {key: value for key, value in parameters.items() if key != REPLACES}
    return {**rest, "rope_type": parameters.get(REPLACES, "default")}
