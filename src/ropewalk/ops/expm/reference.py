"""Matrix exponentials by PyTorch's scaling and squaring, whose derivative needs no eigenvectors."""

import torch
from torch import Tensor


def expm_reference(skew: Tensor) -> Tensor:
    # Expanded or permuted batches make matrix_exp raise; autocast would run its products in bfloat16.
    with torch.autocast(skew.device.type, enabled=False):
        return torch.linalg.matrix_exp(skew.contiguous())
