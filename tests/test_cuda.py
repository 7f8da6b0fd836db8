"""On an accelerator: the same answers as on the CPU, and flex attention with its gradients."""

import copy

import pytest
import torch

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.testing.case import Logits, leaves, points, ready

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, none is here")

EXAMPLES = [
    pytest.param(encoding, id=f"{name}-{i}") for name, kind in REGISTRY.items() for i, encoding in enumerate(kind.examples())
]


def answer(logits, p, device):
    logits = copy.deepcopy(logits).to(device)
    x, y = logits.tokens(6).to(device).requires_grad_(), logits.tokens(6, seed=4).to(device)
    out = logits(x, y, p.to(device))
    inputs = [x, *logits.parameters()]
    return [out.detach().cpu(), *(grad.cpu() for grad in torch.autograd.grad(out.square().sum(), inputs))]


@pytest.mark.parametrize("encoding", EXAMPLES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_same_as_on_the_cpu(encoding, dtype):
    logits, p = Logits(ready(encoding, dtype), dtype), points(encoding, 6).to(dtype)
    tolerance = 1e-10 if dtype is torch.float64 else 2e-4
    torch.testing.assert_close(answer(logits, p, "cuda"), answer(logits, p, "cpu"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("encoding", EXAMPLES)
def test_autocast_and_casts_are_harmless(encoding):
    plain = ready(encoding, torch.float32).cuda()
    p = points(encoding, 6).float().cuda()
    with torch.autocast("cuda", torch.bfloat16):
        cast = copy.deepcopy(plain).bfloat16()(p)
    expected = leaves(plain(p))
    assert expected or encoding.name == "none"
    for name, leaf in leaves(cast).items():
        torch.testing.assert_close(leaf, expected[name], rtol=0, atol=0)


FLEX = {
    "alibi": ("alibi", {"heads": 4}, {}),
    "alibi-2d": ("alibi", {"heads": 4, "axes": 2}, {}),
    "t5": ("t5-bias", {"heads": 4}, {}),
    "t5-causal": ("t5-bias", {"heads": 4, "bidirectional": False}, {"causal": True}),
    "grouped": ("t5-bias", {"heads": 4, "kv_heads": 2}, {"causal": True}),
    "swin": ("swin-bias", {"heads": 4, "size": (30, 50), "outside": "clamp", "class_token": True}, {}),
    "transformer-xl": ("transformer-xl", {"heads": 4}, {}),
}


@pytest.mark.parametrize("case", FLEX)
def test_flex_attention_and_its_gradients(case):
    torch.compiler.reset()
    torch.manual_seed(0)
    name, options, how = FLEX[case]
    encoding = rw.create(name, head_dim=64, **options).cuda()
    n, kv = 257, options.get("kv_heads", 4)
    p = points(encoding, n - 2).float().cuda() * 10
    results = []
    for kernel in ("sdpa", "flex"):
        generator = torch.Generator("cuda").manual_seed(1)
        q, k, v = (torch.randn(2, h, n, 64, device="cuda", generator=generator).requires_grad_() for h in (4, kv, kv))
        out = rw.attend(q, k, v, encoding(p).prefixed(q=2, k=2), kernel=kernel, **how)
        results.append([out, *torch.autograd.grad(out.square().sum(), [q, k, v, *encoding.parameters()])])
    torch.testing.assert_close(results[1], results[0], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["string-cayley", "string-circulant", "transformer-xl", "liere"])
def test_products_do_not_use_tf32(name):
    encoding = ready(rw.create(name, head_dim=64, heads=2), torch.float32)
    p, q = points(encoding, 65).float(), torch.randn(2, 2, 65, 64, generator=torch.Generator().manual_seed(0))
    exact = results(copy.deepcopy(encoding).double()(p.double()), q.double())
    torch.set_float32_matmul_precision("high")
    try:
        mine = results(encoding.cuda()(p.cuda()), q.cuda())
    finally:
        torch.set_float32_matmul_precision("highest")
    for name, value in mine.items():
        error = (value.cpu().double() - exact[name]).abs().max() / exact[name].abs().max()
        assert error < 2e-5, f"{name} is off by {error:.3g} of its largest entry"


def results(code, q):
    """What a code makes of q, as queries and as keys."""
    found = {"q": code.q(q), "k": code.k(q), "scores": code.scores(q, q)}
    return {name: value.detach() for name, value in found.items() if value is not None}


def test_auto_takes_flex_only_for_a_large_bias(monkeypatch):
    taken = []
    monkeypatch.setattr(rw.attention, "_flex", lambda q, *rest: taken.append("flex") or q)
    q = torch.randn(1, 4, 4096, 16, device="cuda")
    for name, n in (("rope", 4096), ("alibi", 32), ("alibi", 4096)):
        code = rw.create(name, head_dim=16, heads=4).cuda()(torch.arange(n, device="cuda"))
        rw.attend(*[q[:, :, :n]] * 3, code)
    assert taken == ["flex"]


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("name", ["rope", "mixed", "spherical", "liere", "alibi", "learned-ape"])
def test_inductor(name):
    torch.compiler.reset()
    torch.manual_seed(0)
    size = {"size": (3, 5)} if name == "learned-ape" else {}
    logits = Logits(rw.create(name, head_dim=12, heads=2, **size), torch.float32).cuda()
    compiled = torch.compile(logits, fullgraph=True)
    for n in (6, 9):
        p = points(logits.encoding, n).float().cuda()
        x, y = logits.tokens(n).cuda(), logits.tokens(n, seed=4).cuda()
        torch.testing.assert_close(compiled(x, y, p), logits(x, y, p), rtol=1e-4, atol=1e-4)
