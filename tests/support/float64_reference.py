"""What the conformance tests share: inputs, tolerances and the comparison. Nothing here comes from ropewalk."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-6}
"""The largest error by the dtype of what is judged, relative to the largest entry or to 1, whichever is larger."""


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def leaf(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(*shape, seed=seed, dtype=dtype).requires_grad_()


def twin(tensor: Tensor) -> Tensor:
    """A leaf of the same values in float64, for the other side of a comparison."""
    return tensor.detach().clone().double().requires_grad_()


def gradients(outputs: Tensor | Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Of one random projection of the outputs, the same for all outputs of these shapes."""
    outputs = [outputs] if isinstance(outputs, Tensor) else outputs
    projections = [(x * normal(*x.shape, seed=100 + i, dtype=x.dtype)).sum() for i, x in enumerate(outputs)]
    return torch.autograd.grad(projections, leaves)


def assert_close(actual: Tensor, expected: Tensor, reach: float = 1.0) -> None:
    """`reach`: the largest angle in radians, or norm of a generator; where rounding grows with it, so does the tolerance."""
    largest = max(1.0, expected.abs().max().item())
    tolerance = TOLERANCE[actual.dtype] * max(1.0, reach) * largest
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=tolerance)


def assert_same(
    ours: Tensor | Sequence[Tensor],
    theirs: Tensor | Sequence[Tensor],
    leaves: Sequence[Tensor | tuple[Tensor, Tensor]],
    reach: float = 1.0,
) -> None:
    """Outputs agree, and their gradients with respect to each leaf: a tensor that both sides read, or a pair of twins."""
    pairs = [(x, x) if isinstance(x, Tensor) else x for x in leaves]
    ours, theirs = ([x] if isinstance(x, Tensor) else list(x) for x in (ours, theirs))
    ours += gradients(ours, [mine for mine, _ in pairs])
    theirs += gradients(theirs, [other for _, other in pairs])
    for actual, expected in zip(ours, theirs, strict=True):
        assert_close(actual, expected, reach)


def in_layers(code: Sequence, xs: Sequence[Tensor], places: Sequence[Tensor], tables: Sequence, turned: Callable) -> list:
    """What each layer of a code makes of q and k, and what `turned` does with that layer's table, for queries and keys."""
    ours, theirs = [], []
    for layer, table in enumerate(tables):
        ours += code[layer].qk(*xs)
        theirs += [turned(x, table, p) for x, p in zip(xs, places, strict=True)]
    return [ours, theirs]


def turned(x: Tensor, generators: Tensor, positions: Tensor, prefix: int = 0) -> Tensor:
    """exp(sum of p_a A_a) x for x (B H N D), generators (h A D D), positions ([B] N A); the prefix stays as it is."""
    generators = generators.repeat_interleave(x.shape[1] // generators.shape[0], dim=0)
    places = positions.double() if positions.ndim == 3 else positions.double().expand(len(x), *positions.shape)
    exponent = torch.einsum("bna,haij->bhnij", places, generators).contiguous()
    moved = torch.einsum("bhnij,bhnj->bhni", torch.linalg.matrix_exp(exponent), x[:, :, prefix:].double())
    return torch.cat([x[:, :, :prefix].double(), moved], dim=2)


def exponent_norm(generators: Tensor, *positions: Tensor) -> float:
    """A bound on the spectral norm of what `turned` exponentiates at these positions."""
    largest = torch.cat([p.detach().double().abs().flatten(0, -2) for p in positions]).amax(0)
    return (torch.linalg.matrix_norm(generators.detach(), ord=2) * largest).sum(-1).max().item()
