"""Random numbers for tests of codes, the same for each test: `drawn_anew` in conftest starts them again."""

import torch

DOUBLE = {"rtol": 0, "atol": 1e-12}
SOURCE = torch.Generator().manual_seed(1)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=SOURCE)
