"""What a config says of an encoding, so that the model can be saved and loaded.

`config.ropewalk` is the encoding's `config()`, or one for each type of layers. `rope_type` is "ropewalk", which no program
knows that lacks this adapter: it refuses such a checkpoint and does not take it for a model with RoPE.
"""

import copy
from collections.abc import Mapping
from typing import Any

from ropewalk.adapters.transformers.building import Made
from ropewalk.encoding import Encoding

NAME = "ropewalk"
REPLACES = "replaces"


def marked(config: Any, made: Made) -> Any:
    """A copy of a config that says what encoding the model has."""
    other = copy.deepcopy(config)
    other.ropewalk = made.config() if isinstance(made, Encoding) else {kind: each.config() for kind, each in made.items()}
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
