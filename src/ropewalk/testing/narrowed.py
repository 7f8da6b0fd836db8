"""The check that precision is never lost in silence: by casts of codes and positions, or by FSDP2 freeing parameters."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ropewalk.code import Code
from ropewalk.encoding import Encoding
from ropewalk.testing.behaviour import refused
from ropewalk.testing.case import Logits, leaves, points, ready, single

NARROW = (torch.bfloat16, torch.float16)


def check_narrowed(encoding: Encoding) -> None:
    """Positions and codes that were cast below float32 are refused, and codes share no memory with parameters.

    So does FSDP2 cast what it finds among the inputs of a module, table by table; and it frees parameters after the call in
    which a code was made of them.
    """
    instance, p = ready(encoding, torch.float32), points(encoding, 6).float()
    code, logits = instance(p), Logits(instance, torch.float32)
    owners = {parameter.untyped_storage().data_ptr(): name for name, parameter in instance.named_parameters()}
    for name, leaf in leaves(code).items():
        owner = owners.get(leaf.untyped_storage().data_ptr())
        assert owner is None, f"{name} of its code shares memory with its parameter {owner}: clone the parameter"
    for dtype in NARROW:
        refused(lambda dtype=dtype: instance(p.to(dtype)), ValueError, f"positions in {dtype}")
        refused(lambda dtype=dtype: instance(p, p.to(dtype)), ValueError, f"key positions in {dtype}")
        for name in leaves(code):
            _check_cast(code, name, dtype, logits)


def _check_cast(code: Code, name: str, dtype: torch.dtype, logits: Logits) -> None:
    """A code with one table that was cast is refused by something, and everything else is as it was."""
    values, structure = pytree.tree_flatten(code)
    cast = [value.to(dtype) if each == name else value for each, value in zip(leaves(code), values, strict=True)]
    narrow, refusals = pytree.tree_unflatten(cast, structure), 0
    for use, apply in _uses(logits).items():
        try:
            found = apply(narrow)
        except ValueError:
            refusals += 1
            continue
        for mine, plain in zip(found, apply(code), strict=True):
            assert torch.equal(mine, plain), f"{use} computes with {name} as a cast to {dtype} has left it"
    assert refusals, f"{name} of a code may be cast to {dtype}, and nothing refuses it"


def _uses(logits: Logits) -> dict[str, Callable[[Code], list[Tensor]]]:
    """What is done with a code, by name."""
    x = logits.tokens(6)
    q, k = logits.split(x, "to_q", logits.heads), logits.split(x, "to_k", logits.kv_heads)
    projection = torch.cat([q, k, k], dim=1).transpose(1, 2)

    def each(apply: Callable[[Code], list[Tensor]]) -> Callable[[Code], list[Tensor]]:
        return lambda code: [value for one in single(code) for value in apply(one)]

    def score(one: Code) -> list[Tensor]:
        added = one.scores(q, k)
        return [] if added is None else [added]

    return {
        "tokens": lambda code: [code.tokens(x)],
        "q": each(lambda one: [one.q(q)]),
        "k": each(lambda one: [one.k(k)]),
        "qkv": each(lambda one: list(one.qkv(projection, logits.heads))),
        "scores": each(score),
    }
