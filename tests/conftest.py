"""One thread each is fastest for small tensors in several test processes. Without a GPU, Triton's kernels are interpreted."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when a kernel is defined

torch.set_num_threads(1)


@pytest.fixture
def unwritten_is_nan():
    """Memory that nobody has written to is NaN, so that a kernel that leaves some out is found."""
    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
