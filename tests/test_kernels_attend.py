"""Attention among few tokens: its kernels against float64, and when it is taken."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import ropewalk as rw
from reference import normal
from test_kernels import ARRANGED
from turns import DEVICE, HALF_ULP, kernel

pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")
pytestmark = pytest.mark.usefixtures("unwritten_is_nan")


def exact(q, k, v, dy, scale):
    """In float64, written out: what comes of it and the gradients of q, k and v."""
    q, k, v, dy = (x.double() for x in (q, k, v, dy))
    scores = scale * torch.einsum("bhnd,bhmd->bhnm", q, k)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    moved = torch.einsum("bhnd,bhmd->bhnm", dy, v)
    moved = weights * (moved - (weights * moved).sum(-1, keepdim=True))
    return (
        torch.einsum("bhnm,bhmd->bhnd", weights, v),
        scale * torch.einsum("bhnm,bhmd->bhnd", moved, k),
        scale * torch.einsum("bhnm,bhnd->bhmd", moved, q),
        torch.einsum("bhnm,bhnd->bhmd", weights, dy),
    )


def found(q, k, v, dy, scale):
    q, k, v, dy = (x.to(DEVICE) for x in (q, k, v, dy))
    return [kernel("attend").attend_fused(q, k, v, scale), *kernel("attend").attend_back(dy, q, k, v, scale)]


def check(n, m, depth, *, batch=2, heads=3, dtype=torch.float32, scale=0.3, arrange=lambda x: x, mean=0.0):
    """Errors are a few roundings of the largest entry, and of the largest score."""
    shapes = [(batch, heads, tokens, depth) for tokens in (n, m, m, n)]
    given = [arrange(normal(*shape, seed=i).to(dtype)) for i, shape in enumerate(shapes)]
    given[0], given[1] = given[0] + mean, given[1] - mean
    rounding = HALF_ULP[dtype] * max(1.0, scale * depth * mean**2)
    for one, right in zip(found(*given, scale), exact(*given, scale), strict=True):
        assert one.dtype is dtype
        largest = right.abs().max().item() + 1
        torch.testing.assert_close(one.cpu().double(), right, rtol=0, atol=16 * rounding * largest)


@pytest.mark.parametrize("tokens", [(1, 1), (1, 64), (15, 63), (16, 17), (64, 64), (63, 2)])
@pytest.mark.parametrize("depth", [1, 17, 48, 64])
def test_sizes(tokens, depth):
    check(*tokens, depth)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_sixteen_bits(dtype):
    if dtype is torch.bfloat16 and DEVICE == "cpu":
        pytest.skip("Triton's interpreter multiplies bfloat16 as integers: needs a CUDA device")
    check(64, 64, 48, dtype=dtype)
    check(15, 63, 17, dtype=dtype)


@pytest.mark.parametrize("arrange", ARRANGED.values(), ids=ARRANGED)
def test_strides(arrange):
    check(5, 5, 8, arrange=arrange)


def test_a_sample_that_is_repeated():
    check(5, 7, 8, batch=3, arrange=lambda x: x[:1].expand_as(x))


def test_scores_far_below_zero():
    """All scores are about -150 or below: their powers alone would be zeros."""
    check(64, 64, 6, mean=9.0)


def test_an_empty_batch():
    empty = torch.empty(0, 2, 5, 8)
    assert all(x.shape == empty.shape for x in found(empty, empty, empty, empty, 0.3))


def test_scale_and_rows_matter():
    """What the bounds above reject: another scale, and keys that a padded tile would add."""
    given = [normal(2, 3, 5, 8, seed=i).float() for i in range(4)]
    right = exact(*given, 0.3)
    for wrong in (exact(*given, 0.31), exact(*(torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in given), 0.3)):
        for one, other in zip(wrong, right, strict=True):
            assert (one[:, :, :5] - other).abs().max() > 100 * 2**-24


class Calls(TorchDispatchMode):
    """The names of the ops that were run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.__name__.removesuffix(".default"))
        return function(*args, **(kwargs or {}))


def taken(q=(256, 4, 64, 48), k=None, v=None, *, dtype=torch.bfloat16, device="cuda", masked=False, **options):
    """Whether tensors that say they are on a GPU, and hold nothing, meet the kernel."""
    with FakeTensorMode(), Calls() as calls:
        k = q if k is None else k
        inputs = [torch.empty(shape, dtype=dtype, device=device) for shape in (q, k, k if v is None else v)]
        mask = torch.empty(64, 64, dtype=torch.bool, device=device) if masked else None
        rw.attend(*inputs, mask=mask, **options)
    return "attend_fused" in calls.names


def test_the_kernel_is_taken_where_it_pays():
    assert taken()
    assert taken(dtype=torch.float32, scale=0.3)
    assert taken((256, 4, 1, 8), (256, 4, 64, 8))


REST = {
    "few-heads": {"q": (255, 4, 64, 48)},
    "many-queries": {"q": (256, 4, 65, 48)},
    "many-keys": {"q": (256, 4, 64, 48), "k": (256, 4, 65, 48)},
    "wide": {"q": (256, 4, 64, 65)},
    "wide-values": {"v": (256, 4, 64, 49)},
    "grouped": {"k": (256, 2, 64, 48)},
    "no-keys": {"k": (256, 4, 0, 48)},
    "float64": {"dtype": torch.float64},
    "on-a-cpu": {"device": "cpu", "dtype": torch.float32},
    "causal": {"causal": True},
    "dropout": {"dropout": 0.1},
    "masked": {"masked": True},
    "told-otherwise": {"kernel": "sdpa"},
}


@pytest.mark.parametrize("case", REST)
def test_the_rest_is_left_to_pytorch(case):
    assert not taken(**REST[case])


def test_autocast_casts_as_it_does_elsewhere(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", {"cuda": torch.bfloat16}.__getitem__)
    assert taken()
    assert not taken(dtype=torch.float32)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device, none is here")
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_models_give_the_same_with_either(compiled, dtype, monkeypatch):
    """A whole ViT, with gradients, of 8 × 8 patches."""
    torch.compiler.reset()
    torch.use_deterministic_algorithms(False)
    images, results = torch.randn(256, 3, 32, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(0)), []
    for many in (1024, 1 << 40):
        monkeypatch.setattr("ropewalk.ops.attend.MANY", many)
        torch.manual_seed(0)
        model = rw.models.ViT("tiny", encoding="mixed", size=(32, 32), patch=4, classes=10, heads=4, depth=3).cuda()
        run = torch.compile(model, dynamic=False) if compiled else model
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype is torch.bfloat16):
            out = run(images)
        gradients = torch.autograd.grad(out.float().square().sum(), list(model.parameters()))
        results.append([out.float(), *gradients])
        torch.compiler.reset()
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() <= (1e-4 if dtype is torch.float32 else 3e-2) * other.norm() + 1e-6
