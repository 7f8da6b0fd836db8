"""Attention among few tokens: those of small images, of windows and of coarse volumes.

PyTorch's kernels are made for long sequences. On an H200, compiled, forward and backward take less than half the time of
the best of them with the 64 tokens of an image of 8 × 8 patches, and seven to nine tenths with 100 to 128. Without
gradients it is taken up to 64, since cuDNN's is quicker with 100 and 128, if not with 125. It does not ask which of them
PyTorch was set to use. What is not compiled goes without: a single call and its gradient take longer than with PyTorch's.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.ops.fused import fits, late, one_at_a_time, room

FEW, FORWARD, NARROW, MANY = 128, 64, 64, 256
"""So many tokens at most, fewer where nothing goes back, so many channels at most, and so many heads of all samples at
least. Measured were 49 to 128 tokens, 32 to 64 channels, 256 to 6,144 heads."""

torch.library.define("ropewalk::attend", "(Tensor q, Tensor k, Tensor v, float scale) -> Tensor")
torch.library.define("ropewalk::attend_fused", "(Tensor q, Tensor k, Tensor v, float scale) -> Tensor")
torch.library.define("ropewalk::attend_back", "(Tensor dy, Tensor q, Tensor k, Tensor v, float scale) -> Tensor[]")
for _name in ("attend_fused", "attend_back"):
    torch.library.impl(f"ropewalk::{_name}", "CUDA", late(_name))
torch.library.register_fake("ropewalk::attend_fused", lambda q, k, v, scale: room(q))
torch.library.register_fake("ropewalk::attend_back", lambda dy, *qkv: [room(x) for x in qkv[:3]])


def attend_reference(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """By whatever kernel PyTorch chooses."""
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def few(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel is made for such sizes, of 16 bits, compiled. What is exported is for any number of samples."""
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return False
    alike = k.shape == v.shape and (*q.shape[:2], q.shape[3]) == (*k.shape[:2], k.shape[3])
    most = FEW if torch.is_grad_enabled() else FORWARD
    narrow = 1 <= q.shape[2] <= most and 1 <= k.shape[2] <= most and 1 <= q.shape[3] <= NARROW
    return q.is_cuda and q.element_size() == 2 and alike and narrow and q.shape[0] * q.shape[1] >= MANY


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    # autocast may ask for another dtype than q's, and PyTorch's attention casts
    cast = torch.is_autocast_enabled("cuda") and q.dtype is not torch.get_autocast_dtype("cuda")
    if not cast and fits([q, k, v], []):
        return Attended.apply(q, k, v, scale)
    return attend_reference(q, k, v, scale)


torch.library.impl("ropewalk::attend", "CompositeImplicitAutograd", _attend)
torch.library.impl("ropewalk::attend", "FuncTorchBatched", attend_reference)


class Attended(torch.autograd.Function):
    """The fused attention with its derivative."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return torch.ops.ropewalk.attend_fused(q, k, v, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        one_at_a_time([dy])
        return *torch.ops.ropewalk.attend_back(dy, *ctx.saved_tensors, ctx.scale), None


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """softmax(scale · q kᵀ) v of q (B H N D), k and v (B H M D) that are `few`. The kernel is not differentiable twice."""
    return torch.ops.ropewalk.attend(q, k, v, scale)
