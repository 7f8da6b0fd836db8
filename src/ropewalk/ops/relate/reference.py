"""The terms of Transformer-XL in plain PyTorch. Sines and cosines of differences are sums of products, so what depends on
the distance is one more product of queries and keys, and no tensor has both a pair of tokens and a frequency."""

import torch
from torch import Tensor

from ropewalk.ops.layout import exactly


def relate_reference(
    q: Tensor, k: Tensor, u: Tensor, v: Tensor, sine: Tensor, cosine: Tensor, q_angle: Tensor, k_angle: Tensor
) -> Tensor:
    dtype = torch.promote_types(q.dtype, u.dtype)
    queries, keys = (x.to(dtype).unflatten(1, (u.shape[0], -1)) for x in (q, k))  # (B h g n D)
    u, v, sine, cosine = (table.to(dtype) for table in (u, v, sine, cosine))
    with exactly(q):
        by_key = (keys * u[:, None, None]).sum(-1).unsqueeze(-2)  # (B h g 1 m), or (B h 1 1 m) with grouped queries
        total = by_key + by_place(queries + v[:, None, None], sine[:, None], cosine[:, None], q_angle, k_angle)
    return total.flatten(1, 2)


def by_place(queries: Tensor, sine: Tensor, cosine: Tensor, q_angle: Tensor, k_angle: Tensor) -> Tensor:
    x, y = (angle[..., None, None, :, :] for angle in (q_angle, k_angle))  # ([B] 1 1 n F)
    sin_x, cos_x, sin_y, cos_y = (part.to(queries.dtype) for part in (x.sin(), x.cos(), y.sin(), y.cos()))
    s, c = queries @ sine, queries @ cosine  # (B h g n F)
    return (s * sin_x + c * cos_x) @ cos_y.mT + (c * sin_x - s * cos_x) @ sin_y.mT
