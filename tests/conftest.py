"""Small tensors, several test processes: one thread each is fastest."""

import torch

torch.set_num_threads(1)
