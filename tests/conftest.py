"""Small tensors, several test processes: one thread each is fastest."""

import pytest
import torch

import drawn

torch.set_num_threads(1)


@pytest.fixture
def drawn_anew():
    """Random numbers of `drawn` from their beginning, whatever tests ran before."""
    drawn.SOURCE.manual_seed(0)
