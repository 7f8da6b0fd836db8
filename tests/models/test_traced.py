"""Models under torch.jit.trace, which has tensors where others have sizes; PyTorch keeps it, deprecated."""

import pytest
import timm
import torch

from ropewalk.adapters.timm import install
from ropewalk.models import LM, ViT

pytestmark = [
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]
SMALL = {"width": 24, "depth": 1, "heads": 2}


def images(batch):
    return torch.randn(batch, 3, 12, 20)


def texts(batch):
    return torch.randint(17, (batch, 7))


def vit(name):
    return ViT("tiny", encoding=name, size=(12, 20), patch=4, classes=7, **SMALL)


def host(name):
    made = timm.create_model("vit_tiny_patch16_224", img_size=(12, 20), patch_size=4, embed_dim=24, num_heads=2, depth=1)
    return install(made, name, std=0.3)


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: vit("axial"), images),
        (lambda: vit("learned-ape"), images),
        (lambda: vit("swin-bias"), images),
        (lambda: LM(17, kv_heads=1, **SMALL), texts),
        (lambda: host("comrope-ld"), images),
    ],
    ids=["axial", "learned-ape", "swin-bias", "grouped", "timm"],
)
def test_a_traced_model_computes_the_same(make, draw):
    torch.manual_seed(0)
    model = make().eval()
    traced = torch.jit.trace(model, draw(2), check_trace=False)
    for batch in (2, 3):
        x = draw(batch)
        torch.testing.assert_close(traced(x), model(x), rtol=1e-5, atol=1e-5)
