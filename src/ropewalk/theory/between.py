"""Checks of what lies between tokens and the rotation of q and k: a basis can go into projections that are nothing else."""

import copy

import torch
from torch import Tensor, nn

COMMUTES = 1e-6


def check_plain(linear: nn.Linear, where: str) -> None:
    """Refuse what is more than a weight and a bias: it would not be what is rewritten that acts."""
    plain = type(linear) is nn.Linear and isinstance(linear._parameters.get("weight"), nn.Parameter)
    if not plain or linear._forward_hooks or linear._forward_pre_hooks or not linear.weight.is_floating_point():
        wanted = "a plain nn.Linear of floating numbers, without hooks, norms or adapters (merge them first)"
        raise TypeError(f"{where} must come from {wanted}, got {linear}")
    if linear.weight.is_meta:
        raise ValueError(f"{where} has its weight on the meta device: load it first")


def check_commutes(module: nn.Module, basis: Tensor, where: str) -> None:
    """Refuse a module that does not commute with the basis, tested on random vectors, per head or on all heads."""
    if isinstance(module, nn.Identity):
        return
    heads, depth = basis.shape[:2]
    sizes = {weight.numel() for weight in (*module.parameters(), *module.buffers())}
    sizes |= {int(torch.Size(getattr(module, "normalized_shape", ())).numel())}
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, heads, depth, dtype=torch.float64, generator=generator, device="cpu")
    whole, trial = heads > 1 and heads * depth in sizes, copy.deepcopy(module).cpu().double()

    def passed(x: Tensor) -> Tensor:
        return trial(x.flatten(2)).view_as(x) if whole else trial(x)

    def changed(x: Tensor) -> Tensor:
        return torch.einsum("hij,bnhi->bnhj", basis, x)

    try:
        before, after = changed(passed(x)), passed(changed(x))
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{where} passes {module}, which takes no heads of {depth} channels: {error}") from error
    if not (apart := ((after - before).abs().max() / before.abs().max()).item()) <= COMMUTES:
        raise ValueError(
            f"{where} passes {module} before it is turned, which does not commute with the basis, by {apart:.2g}"
        )
