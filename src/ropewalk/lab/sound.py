"""Attention whose gradients can be trusted.

On Hopper GPUs cuDNN's way back through attention gives NaN where the keys fill half of its last tile of 128 and all scores
of a query are below -88 (pytorch/pytorch#196678), and torch 2.11 chooses cuDNN by itself. An image of 8 × 8 patches has such
keys, and a run of ours met such scores in its 404th step: the forward pass was right, and all weights were lost.

What is compiled has its kernel from when it was traced, and is found again on disk by keys in which the choice of kernels
has no part: `TAG` must be one, or a training would take up what was compiled without this.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

TAG = "attention without cuDNN"
"""For `torch.compiler.config.cache_key_tag`."""


@contextmanager
def sound() -> Iterator[None]:
    """PyTorch chooses among its other kernels; which one goes back is decided on the way there."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
