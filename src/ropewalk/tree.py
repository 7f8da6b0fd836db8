"""Frozen dataclasses as pytrees: fields marked static are structure, the others are leaves if they hold anything."""

from dataclasses import fields
from typing import Any

from torch.utils import _pytree as pytree

STATIC = {"static": True}
"""The metadata of a field that is structure, not data."""


def register(kind: type) -> None:
    """Make a dataclass a pytree, for `tree_map`, `torch.export`, `torch.func` and their like."""

    def unflatten(values: Any, context: Any) -> Any:
        names, structure = context
        return kind(**dict(zip(names, values, strict=True)), **dict(structure))

    pytree.register_pytree_node(
        kind,
        _flatten,
        unflatten,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=_flatten_with_keys,
    )


def _flatten(node: Any) -> tuple[list[Any], Any]:
    every = [(entry.name, bool(entry.metadata.get("static")), getattr(node, entry.name)) for entry in fields(node)]
    leaves = {name: value for name, fixed, value in every if not fixed and value is not None}
    structure = tuple((name, value) for name, fixed, value in every if fixed)
    return list(leaves.values()), (tuple(leaves), structure)


def _flatten_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], Any]:
    values, context = _flatten(node)
    return [(pytree.GetAttrKey(name), value) for name, value in zip(context[0], values, strict=True)], context
