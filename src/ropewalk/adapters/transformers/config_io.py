"""What a config says of an encoding, so that the model can be saved and loaded.

`config.ropewalk` is the encoding's `config()`, or one for each type of layers; "folded" is among it where the weights of the
model hold the basis of a folded encoding. `rope_type` is "ropewalk", which no program
knows that lacks this adapter: it refuses such a checkpoint and does not take it for a model with RoPE.
"""

import copy
from collections.abc import Mapping
from typing import Any

from ropewalk.adapters.transformers.building import FOLDED, Made
from ropewalk.adapters.transformers.code_state import EAGER, FUSED
from ropewalk.adapters.transformers.embedding import Positions
from ropewalk.adapters.transformers.hosts import Host
from ropewalk.encoding import Encoding

NAME = "ropewalk"
REPLACES = "replaces"


def marked(config: Any, made: Made, *, folded: bool = False) -> Any:
    """A copy of a config that says what encoding the model has."""
    other = copy.deepcopy(config)
    said = made.config() if isinstance(made, Encoding) else {kind: each.config() for kind, each in made.items()}
    other.ropewalk = said | ({FOLDED: True} if folded else {})
    if getattr(other, "rope_parameters", None):
        other.rope_parameters = _each(other.rope_parameters, _mark)
    return other


def unmarked(config: Any) -> Any:
    """A copy of a config without what `marked` wrote."""
    other = copy.deepcopy(config)
    if hasattr(other, NAME):
        del other.ropewalk
    if getattr(other, "rope_parameters", None):
        other.rope_parameters = _each(other.rope_parameters, _unmark)
    return other


def says_folded(asked: Any) -> bool:
    """Whether a description of an encoding has the mark of a folded one."""
    return isinstance(asked, Mapping) and bool(asked.get(FOLDED, False))


def plain_config(host: Host) -> Any:
    """The config of a model as it is now, without what `install` wrote; the very same one if nothing else has changed."""
    here = host.rotary
    if not isinstance(here, Positions):
        return host.config
    now, was = unmarked(host.config), here.host_config
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


def _mark(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {**parameters, "rope_type": NAME, REPLACES: parameters.get("rope_type", "default")}


def _unmark(parameters: Mapping[str, Any]) -> dict[str, Any]:
    if parameters.get("rope_type") != NAME:
        return dict(parameters)
    rest = {key: value for key, value in parameters.items() if key != REPLACES}
    return {**rest, "rope_type": parameters.get(REPLACES, "default")}
