"""Checks that compilers see the whole of it: no graph breaks, few compilations, export with a free length."""

from typing import Any

import torch
from torch._dynamo.backends.registry import lookup_backend
from torch.utils import _pytree as pytree

from ropewalk.encoding import Encoding
from ropewalk.testing.case import Logits, close, points, ready

LENGTHS = (6, 9, 5, 12, 2)


def check_compile(encoding: Encoding, backend: str = "aot_eager") -> None:
    """`torch.compile(fullgraph=True)` at five lengths compiles at most twice and gives what eager gives, backward too.

    Args:
        encoding: The instance to check.
        backend: What runs the graphs: "aot_eager" traces gradients as well, "eager" takes half the time or less.
    """
    compiled = 0

    def count_compilation(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return lookup_backend(backend)(graph, inputs)

    torch.compiler.reset()
    logits = Logits(ready(encoding))
    traced = torch.compile(logits, fullgraph=True, backend=count_compilation)
    for n in LENGTHS:
        x, y, p = logits.tokens(n).requires_grad_(), logits.tokens(n, seed=4), points(encoding, n)
        try:
            mine = traced(x, y, p)
        except Exception as error:
            raise AssertionError(f"it does not compile as one graph: {error}") from error
        eager = logits(x, y, p)
        close(mine, eager, f"compiled and eager logits of {n} tokens")
        gradients = [torch.autograd.grad(out.sum(), x)[0] for out in (mine, eager)]
        close(gradients[0], gradients[1], "compiled and eager gradients")
    torch.compiler.reset()
    assert compiled <= 2, f"five lengths took {compiled} compilations, at most 2 are allowed"


def check_export(encoding: Encoding) -> None:
    """`torch.export` with a free number of tokens gives a program that answers alike at other lengths."""
    logits = Logits(ready(encoding))
    length = torch.export.Dim("length", min=2, max=1 << 20)
    example = (logits.tokens(6), logits.tokens(6, seed=4), points(encoding, 6))
    shapes = ({1: length}, {1: length}, {0: length}, None, (None, None))
    try:
        program = torch.export.export(logits, (*example, None, (0, 0)), dynamic_shapes=shapes)
    except Exception as error:
        raise AssertionError(f"it cannot be exported: {error}") from error
    for n in (6, 11):
        x, y, p = logits.tokens(n), logits.tokens(n, seed=4), points(encoding, n)
        close(program.module()(x, y, p, None, (0, 0)), logits(x, y, p), f"exported and eager logits of {n} tokens")


def check_transforms(encoding: Encoding) -> None:
    """`torch.func` sees through it: `vmap` over positions gives the batch, and its codes are pytrees."""
    instance, p = ready(encoding), points(encoding, 5, batch=3)
    try:
        mapped = torch.func.vmap(lambda one: pytree.tree_leaves(instance(one)))(p)
    except Exception as error:
        raise AssertionError(f"it cannot be mapped over positions: {error}") from error
    for i in range(3):
        code = instance(p[i])
        values, structure = pytree.tree_flatten(code)
        again = pytree.tree_unflatten(values, structure)
        assert type(again) is type(code), f"{type(code).__name__} came back from its leaves as {type(again).__name__}"
        same = [a is b for a, b in zip(pytree.tree_leaves(again), values, strict=True)]
        assert all(same), "the leaves of a code are not what it was put together from"
        for mine, theirs in zip(mapped, values, strict=True):
            close(mine[i], theirs, f"sample {i} mapped and alone")
