"""Score queries and keys by content and by the difference of their angles: the terms of Transformer-XL."""

import torch
from torch import Tensor

from ropewalk.ops.relate.reference import relate_reference

torch.library.define(
    "ropewalk::relate",
    "(Tensor q, Tensor k, Tensor u, Tensor v, Tensor sine, Tensor cosine, Tensor q_angle, Tensor k_angle) -> Tensor",
)
torch.library.impl("ropewalk::relate", ("CompositeImplicitAutograd", "FuncTorchBatched"), relate_reference)


def relate(
    q: Tensor, k: Tensor, u: Tensor, v: Tensor, sine: Tensor, cosine: Tensor, q_angle: Tensor, k_angle: Tensor
) -> Tensor:
    """u · k + (q + v) · (S sin(x - y) + C cos(x - y)) for each query at angles x and key at angles y: (B H n m).

    q is (B H n D), k (B H' m D), u and v (h D), S and C (h D F), angles ([B] n F); h divides H and H'. At least float32.
    """
    return torch.ops.ropewalk.relate(q, k, u, v, sine, cosine, q_angle, k_angle)
