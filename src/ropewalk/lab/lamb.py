"""LAMB: Adam whose step, for each tensor, is as long as the tensor itself times the learning rate.

    u = m̂ / (√v̂ + ε) + λ w,    w ← w - η · (|w| / |u|) · u        where λ = 0 the step stays Adam's

All tensors of a group go through each operation together (`torch._foreach_…`): a few dozen launches a step on a GPU, however
many tensors there are. As in DeiT-III's recipe the gradient is clipped before, not here.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Lamb(Optimizer):
    """LAMB of arXiv 1904.00962, with bias correction."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        if lr < 0 or eps <= 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"lr, eps, weight_decay and betas must be in their ranges, got {lr}, {eps}, {weight_decay}, {betas}"
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._together(weights, group)
        return loss

    def _together(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        states = [self._state_of(weight) for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        steps = [state["step"] for state in states]
        (beta1, beta2), decay = group["betas"], group["weight_decay"]
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        count = steps[0].item()
        roots = torch._foreach_div(torch._foreach_sqrt(squares), (1 - beta2**count) ** 0.5)
        torch._foreach_add_(roots, group["eps"])
        update = torch._foreach_div(torch._foreach_div(means, 1 - beta1**count), roots)
        if decay:
            torch._foreach_add_(update, weights, alpha=decay)
            torch._foreach_mul_(update, self._ratios(weights, list(update)))
        torch._foreach_add_(weights, update, alpha=-group["lr"])

    def _ratios(self, weights: list[Tensor], update: list[Tensor]) -> list[Tensor]:
        """|w| / |u|, or 1 where one of them vanishes."""
        long, short = (torch.stack(torch._foreach_norm(each)) for each in (weights, update))
        return list(torch.where((long > 0) & (short > 0), long / short, 1.0).unbind())

    def _state_of(self, weight: Tensor) -> dict[str, Tensor]:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        return state
