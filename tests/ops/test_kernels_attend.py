"""Attention among few tokens: its kernels against float64, and when it is taken."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import ropewalk as rw
from ropewalk.models import ViT
from ropewalk.ops.fused import transformed
from tests.ops.test_kernels import ARRANGED
from tests.support.float64_reference import normal
from tests.support.kernel_reference import DEVICE, Calls, kernel

MODULE = importlib.import_module("ropewalk.ops.attend")  # `ropewalk.ops.attend` itself is the function
SCALE = 0.3
ALLOWED = {torch.float32: 40 * 2**-24, torch.float16: 3 * 2**-11, torch.bfloat16: 3 * 2**-8}
"""Of the norm: of 16 bits a few roundings of what is written and of the weights, of 32 those of all that is summed."""

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


def given(n, m, depth, *, batch=2, heads=3, dtype=torch.float32):
    shapes = [(batch, heads, tokens, depth) for tokens in (n, m, m, n)]
    return [normal(*shape, seed=i).to(dtype) for i, shape in enumerate(shapes)]


def far(wrong, right):
    """The error over the norm of what is right, or where that is zero, over little."""
    return (wrong.double() - right).norm() / (right.norm() + 1e-6 * right.numel() ** 0.5)


def check(n, m, depth, *, arrange=lambda x: x, mean=0.0, **how):
    """Errors are a few roundings, of outputs and of scores."""
    q, k, v, dy = given(n, m, depth, **how)
    q, k, v, dy = (arrange(x) for x in (q + mean, k - mean, v, dy))
    bound = ALLOWED[q.dtype] * max(1.0, SCALE * depth * mean**2)
    for one, right in zip(found(q, k, v, dy, SCALE), exact(q, k, v, dy, SCALE), strict=True):
        assert one.dtype is q.dtype
        assert far(one.cpu(), right) < bound


@pytest.mark.parametrize("tokens", [(1, 1), (1, 64), (15, 63), (16, 17), (64, 64), (63, 2), (65, 100)])
@pytest.mark.parametrize("depth", [1, 17, 48, 64])
def test_sizes(tokens, depth):
    check(*tokens, depth)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_sixteen_bits(dtype):
    if dtype is torch.bfloat16 and DEVICE == "cpu":
        pytest.skip("Triton's interpreter multiplies bfloat16 as integers: needs a CUDA device")
    check(64, 64, 48, dtype=dtype)
    check(15, 5, 17, dtype=dtype)
    check(100, 125, 48, dtype=dtype)
    check(128, 128, 64, dtype=dtype)


@pytest.mark.parametrize("arrange", ARRANGED.values(), ids=ARRANGED)
def test_strides(arrange):
    check(5, 5, 8, arrange=arrange)


def test_a_sample_that_is_repeated():
    check(5, 7, 8, batch=3, arrange=lambda x: x[:1].expand_as(x))


@pytest.mark.parametrize("tokens", [(64, 64), (49, 63)])
def test_scores_far_below_zero(tokens):
    """All scores are about -150 or below: their powers alone would be zeros, and what fills a tile would count."""
    check(*tokens, 6, mean=9.0)


def test_an_empty_batch():
    empty = torch.empty(0, 2, 5, 8)
    assert all(x.shape == empty.shape for x in found(empty, empty, empty, empty, SCALE))


@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
def test_an_infinite_key_stays_in_its_place():
    """Queries and keys that only fill a tile take no part, whatever they would have been."""
    q, k, v, dy = given(5, 7, 8)
    q, k[0, 1, 2, 3] = q.abs(), -float("inf")
    for one, right in zip(found(q, k, v, dy, SCALE), exact(q, k, v, dy, SCALE), strict=True):
        assert torch.equal(one.cpu().isnan(), right.isnan())


MUTANTS = {
    "another-scale": lambda q, k, v, dy: exact(q, k, v, dy, 1.02 * SCALE),
    "a-key-that-fills-a-tile": lambda q, k, v, dy: [
        one[:, :, : x.shape[2]]
        for one, x in zip(exact(q, *(F.pad(x, (0, 0, 0, 1)) for x in (k, v)), dy, SCALE), (q, q, k, v), strict=True)
    ],
    "dy-of-another-head": lambda q, k, v, dy: exact(q, k, v, dy.roll(1, 1), SCALE),
}


@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_the_bounds_reject(mutant, dtype):
    inputs = given(15, 5, 17, dtype=dtype)
    errors = [far(*pair) for pair in zip(MUTANTS[mutant](*inputs), exact(*inputs, SCALE), strict=True)]
    assert max(errors) > ALLOWED[dtype]


def taken(
    q=(64, 4, 64, 48), k=None, v=None, *, dtype=torch.bfloat16, device="cuda", masked=False, compiling=True, **options
):
    """Whether tensors that say they are on a GPU and are compiled, and hold nothing, meet the kernel."""
    with FakeTensorMode(), Calls() as calls, pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: compiling)
        k = q if k is None else k
        inputs = [torch.empty(shape, dtype=dtype, device=device) for shape in (q, k, k if v is None else v)]
        mask = torch.empty(64, 64, dtype=torch.bool, device=device) if masked else None
        rw.attend(*inputs, mask=mask, **options)
    return "attend_fused" in calls.names


def test_the_kernel_is_taken_for_what_it_was_made_for():
    assert taken()
    assert taken(dtype=torch.float16, scale=0.3)
    assert taken((64, 4, 1, 8), (64, 4, 128, 8))
    with torch.no_grad():
        assert taken((64, 4, 64, 8))
        assert not taken((64, 4, 65, 8))


REST = {
    "few-heads": {"q": (63, 4, 64, 48)},
    "many-queries": {"q": (64, 4, 129, 48)},
    "many-keys": {"q": (64, 4, 64, 48), "k": (64, 4, 129, 48)},
    "wide": {"q": (64, 4, 64, 65)},
    "wide-values": {"v": (64, 4, 64, 49)},
    "grouped": {"k": (64, 2, 64, 48)},
    "no-keys": {"k": (64, 4, 0, 48)},
    "float64": {"dtype": torch.float64},
    "float32": {"dtype": torch.float32},
    "on-a-cpu": {"device": "cpu"},
    "causal": {"causal": True},
    "dropout": {"dropout": 0.1},
    "masked": {"masked": True},
    "told-otherwise": {"kernel": "sdpa"},
    "eager": {"compiling": False},
}


@pytest.mark.parametrize("case", REST)
def test_the_rest_is_left_to_pytorch(case):
    assert not taken(**REST[case])


def test_autocast_casts_as_it_does_elsewhere(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", {"cuda": torch.bfloat16}.__getitem__)
    assert taken()
    assert not taken(dtype=torch.float16)


@pytest.fixture
def everywhere(monkeypatch):
    """Attention runs its kernel: without a GPU on CPU tensors, interpreted; and however few heads there are."""
    torch.use_deterministic_algorithms(False)  # what PyTorch computes beside it may ask for an option of cuBLAS
    monkeypatch.setattr("ropewalk.attention.few", lambda q, k, v: q.shape[2] <= 64)
    if DEVICE == "cuda":
        yield
        return
    monkeypatch.setattr(MODULE, "fits", lambda xs, tables: not transformed())
    with torch.library._scoped_library("ropewalk", "IMPL") as library:
        for op in ("attend_fused", "attend_back"):
            library.impl(op, importlib.import_module("ropewalk.ops.fused").late(op), "CPU")
        yield


def projected(seed=0):
    return normal(2, 5, 9, 12, seed=seed).float().to(DEVICE).requires_grad_()


def through(attend, code=None):
    """What comes of a projection of q, k and v, and its gradient."""
    x = projected()
    out = attend(x, 3, code)
    return [out.detach(), *torch.autograd.grad((out * normal(*out.shape, seed=1).to(out)).sum(), x)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_of_projections(everywhere, compiled):
    """Turned by a code and not; as autograd and compilers see it."""
    torch.compiler.reset()
    attend = torch.compile(rw.attend_qkv, fullgraph=True, dynamic=False) if compiled else rw.attend_qkv
    for code in (None, rw.create("axial", head_dim=12, axes=1).to(DEVICE)(torch.arange(5.0)[:, None].to(DEVICE))):
        expected = through(lambda *given: rw.attend_qkv(*given, kernel="sdpa"), code)
        for one, other in zip(through(attend, code), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_second_derivative_is_refused(everywhere):
    x = projected()
    (slope,) = torch.autograd.grad(rw.attend_qkv(x, 3).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_a_batch_of_gradients_is_refused(everywhere):
    x = projected()
    out = rw.attend_qkv(x, 3)
    with pytest.raises(RuntimeError, match="one gradient at a time"):
        torch.autograd.grad(out, x, torch.stack([torch.ones_like(out)] * 2), is_grads_batched=True)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_see_through_it(everywhere):
    x = projected().detach()

    def total(x, kernel):
        return rw.attend_qkv(x, 3, kernel=kernel).square().sum()

    pair = [torch.func.grad(lambda x, kernel=kernel: total(x, kernel))(x) for kernel in ("auto", "sdpa")]
    torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-5)
    pair = [torch.vmap(lambda x, kernel=kernel: total(x, kernel))(torch.stack([x, 2 * x])) for kernel in ("auto", "sdpa")]
    torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-5)


def test_programs_are_exported_without_it_for_any_batch():
    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return rw.attend(q, k, v)

    with FakeTensorMode():
        inputs = tuple(torch.empty(2048, 4, 64, 48, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        batch = torch.export.Dim("batch", min=2, max=8192)
        program = torch.export.export(Attention(), inputs, dynamic_shapes=[{0: batch}] * 3)
    assert "scaled_dot_product_attention" in str(program.graph)
    assert "ropewalk" not in str(program.graph)


@pytest.mark.parametrize("arrange", [lambda x: x, ARRANGED["fused-qkv"], ARRANGED["channels-first"]])
def test_opcheck(everywhere, arrange):
    q, k, v, dy = (arrange(normal(2, 3, n, 6, seed=n).float()).to(DEVICE) for n in (5, 4, 4, 5))
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(torch.ops.ropewalk.attend_fused, (q, k, v, 0.3), test_utils=tests)
    torch.library.opcheck(torch.ops.ropewalk.attend_back, (dy, q, k, v, 0.3), test_utils=tests)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device, none is here")
@pytest.mark.parametrize("size", [32, 40], ids=["64-tokens", "100-tokens"])
def test_models_give_the_same_with_either(size, monkeypatch):
    """A whole ViT, compiled, with gradients."""
    torch.compiler.reset()
    torch.use_deterministic_algorithms(False)
    images, results = torch.randn(256, 3, size, size, device="cuda", generator=torch.Generator("cuda").manual_seed(0)), []
    for many in (1, 1 << 40):
        monkeypatch.setattr(MODULE, "MANY", many)
        torch.manual_seed(0)
        model = ViT("tiny", encoding="mixed", size=(size, size), patch=4, classes=10, heads=4, depth=3).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            out = torch.compile(model, dynamic=False)(images)
        gradients = torch.autograd.grad(out.float().square().sum(), list(model.parameters()))
        results.append([out.float(), *gradients])
        torch.compiler.reset()
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() <= 3e-2 * other.norm() + 1e-6
