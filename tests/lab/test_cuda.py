"""Training on a GPU, where the model is compiled to CUDA graphs."""

from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator

from ropewalk.lab.environment import disable_cudnn_attention
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.train import Trainer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: what CUDA graphs do in training"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),  # PyTorch's own first graph, which holds nothing
]
STILL = replace(
    RECIPES["digits"], compile=True, dropout=0.3, drop_path=0.3, learning_rate=1e-12, precision="bfloat16", ema=0.9
)


def trainer(folder):
    made = Trainer(STILL, RunFolder(folder, STILL), Accelerator(mixed_precision="bf16"), lambda record: None)
    made.model.train()
    return made


def losses(made, steps):
    """Of one batch, as if it came in these steps."""
    batch, found = next(iter(made.load_batches())), []
    for made.step in steps:
        found.append(made.train_step(batch).item())
    return found


def test_graphs_draw_anew_in_each_step_and_alike_in_the_same(tmp_path):
    first, again = (losses(trainer(tmp_path), (0, 1, 2, 3, 4, 5, 3)) for _ in range(2))
    assert first == again
    assert first[3] == first[6]
    assert len(set(first)) == 6


def test_validation_in_between_changes_nothing(tmp_path):
    plain, broken = (trainer(tmp_path) for _ in range(2))
    whole = losses(plain, range(6))
    parts = losses(broken, range(3))
    broken.compute_scores("validation")
    broken.model.train()
    assert parts + losses(broken, range(3, 6)) == whole


def test_scores_far_below_zero_have_gradients():
    """All scores are about -120, of 64 keys: there cuDNN's way back gives NaN."""
    q, k, v = torch.randn(
        3, 2, 4, 64, 48, device="cuda", dtype=torch.bfloat16, generator=torch.Generator("cuda").manual_seed(0)
    )
    q, k = 0.1 * q, 0.1 * k
    q[..., 0], k[..., 0] = 1.0, -120 * 48**0.5
    inputs = [x.requires_grad_() for x in (q, k, v)]
    with disable_cudnn_attention():
        out = torch.nn.functional.scaled_dot_product_attention(*inputs)
    for found in torch.autograd.grad(out.float().square().sum(), inputs):
        assert found.isfinite().all()
