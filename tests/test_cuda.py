"""On an accelerator: the same answers as on the CPU, flex attention, and kernels as models use them."""

import contextlib
import copy
import importlib
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.models import ViT
from ropewalk.testing.case import Logits, leaves, points, ready
from tests.support.float64_reference import normal
from tests.support.kernel_reference import Kind, Side, check

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, none is here")

EXAMPLES = [
    pytest.param(encoding, id=f"{name}-{i}") for name, kind in REGISTRY.items() for i, encoding in enumerate(kind.examples())
]


def answer(logits, p, device):
    logits = copy.deepcopy(logits).to(device)
    x, y = logits.tokens(6).to(device).requires_grad_(), logits.tokens(6, seed=4).to(device)
    out = logits(x, y, p.to(device))
    inputs = [x, *logits.parameters()]
    gradients = torch.autograd.grad(out.square().sum(), inputs, allow_unused=True, materialize_grads=True)
    return [out.detach().cpu(), *(gradient.cpu() for gradient in gradients)]


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


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
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
@pytest.mark.parametrize("name", ["rope", "mixed", "spherical", "spherical-symmetric", "liere", "alibi", "learned-ape"])
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


ENCODINGS = {
    "axial": ("axial", {}),
    "mixed": ("mixed", {}),
    "waves": ("waves", {"learned": True, "interleaved": False, "sections": (12, 12)}),
    "spherical": ("spherical", {"learned": True}),
    "liere": ("liere", {"block": 8}),
    "comrope-ld": ("comrope-ld", {}),
    "string-cayley": ("string-cayley", {}),
}
OP = {
    "axial": "rotate",
    "mixed": "rotate",
    "waves": "rotate",
    "spherical": "turn",
    "liere": "turn",
    "comrope-ld": "turn",
    "string-cayley": "rotate",
}
every_encoding = pytest.mark.parametrize("name", ENCODINGS)


@contextlib.contextmanager
def references():
    """Ops do without their kernels."""
    with pytest.MonkeyPatch.context() as patch:
        for op in ("turning", "sphere", "expm"):
            patch.setattr(importlib.import_module(f"ropewalk.ops.{op}"), "fits", lambda *given: False)
        yield


def vit(name, **options):
    torch.manual_seed(0)
    encoding, chosen = ENCODINGS[name]
    shape = {"width": 96, "depth": 3, "heads": 2, "size": (24, 40), "patch": 8, "classes": 10, "pool": "class"}
    return ViT("tiny", encoding=encoding, options=chosen, **{**shape, **options}).cuda()


def batch(count=8, size=(24, 40)):
    images = normal(count, 3, *size, seed=1, dtype=torch.float32).cuda()
    return images, torch.arange(count, device="cuda") % 10


def loss_of(model, images, labels):
    with torch.autocast("cuda", torch.bfloat16):
        return F.cross_entropy(model(images), labels)


def launched(run):
    """How often each kernel's function was called."""
    fused, counts = importlib.import_module("ropewalk.ops.fused"), Counter()
    find = fused._kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "KERNELS", {})
        patch.setattr(fused, "_kernel", lambda op: lambda *given: counts.update([op]) or find(op)(*given))
        run()
    return counts


@every_encoding
def test_a_model_runs_its_kernels_and_no_reference(name):
    model, (images, labels) = vit(name), batch()
    calls = launched(lambda: loss_of(model, images, labels).backward())
    assert calls[f"{OP[name]}_fused"] == calls[f"{OP[name]}_{'back' if name == 'string-cayley' else 'join'}"] == 3
    assert ("expm_fused" in calls) == (name in ("liere", "comrope-ld"))
    assert calls.get("sphere_fused", 0) == (name == "spherical")


@every_encoding
def test_losses_and_gradients_are_those_of_the_references(name):
    model, (images, labels) = vit(name), batch()
    results = []
    for context in (contextlib.nullcontext(), references()):
        with context:
            loss = F.cross_entropy(model(images), labels)
            results.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)


@every_encoding
def test_training_goes_the_same_way(name):
    losses = []
    for context in (contextlib.nullcontext(), references()):
        model, (images, labels) = vit(name), batch(32)
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
        with context:
            for _ in range(50):
                loss = loss_of(model, images, labels)
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()
        losses.append(loss.item())
    start = loss_of(vit(name), *batch(32)).item()
    assert losses[0] < 0.7 * start
    assert losses[0] == pytest.approx(losses[1], rel=0.1, abs=0.02)


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("name", ["mixed", "spherical", "liere", "comrope-ld"])
def test_compiled_models_call_kernels(name):
    torch.compiler.reset()
    model, (images, labels) = vit(name), batch()
    compiled = torch.compile(model, fullgraph=True)
    eager, fast = loss_of(model, images, labels), loss_of(compiled, images, labels)
    torch.testing.assert_close(fast, eager, rtol=1e-2, atol=1e-2)
    wanted = torch.autograd.grad(eager, list(model.parameters()))
    for (key, _), found, exact in zip(
        model.named_parameters(), torch.autograd.grad(fast, list(model.parameters())), wanted, strict=True
    ):
        assert (found - exact).norm() <= 0.05 * exact.norm() + 1e-5, key
    calls = launched(lambda: loss_of(compiled, images, labels).backward())
    assert calls[f"{OP[name]}_fused"] == calls[f"{OP[name]}_{'back' if name == 'string-cayley' else 'join'}"] == 3
    assert ("expm_fused" in calls) == (name in ("liere", "comrope-ld"))


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # PyTorch's own first graph, which holds nothing
@pytest.mark.parametrize("name", ["mixed", "liere", "string-cayley"])
def test_compiled_to_cuda_graphs(name):
    torch.compiler.reset()
    model, (images, labels) = vit(name), batch()
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    weights = list(model.parameters())
    for shift in range(4):  # the first calls record; later ones replay, with other images
        moved = images.roll(shift, 0)
        wanted, found = loss_of(model, moved, labels), loss_of(compiled, moved, labels)
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
        gradients = torch.autograd.grad(found, weights)
        for exact, gradient in zip(torch.autograd.grad(wanted, weights), gradients, strict=True):
            assert (gradient - exact).norm() <= 0.05 * exact.norm() + 1e-5


@pytest.mark.parametrize("name", ["mixed", "spherical", "liere"])
def test_graph_capture_and_replay(name):
    model, (images, labels) = vit(name), batch()

    def step():
        loss = loss_of(model, images, labels)
        return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    images.copy_(images.flip(0))
    graph.replay()
    loss, gradients = step()
    torch.testing.assert_close(captured[0], loss, rtol=1e-2, atol=1e-2)
    for found, exact in zip(captured[1], gradients, strict=True):
        assert (found - exact).norm() <= 0.05 * exact.norm() + 1e-5


@pytest.mark.parametrize("name", ["mixed", "spherical", "liere"])
def test_checkpointed_blocks_get_the_same_gradients(name, monkeypatch):
    model, (images, labels) = vit(name), batch()
    plain = torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))
    for block in model.blocks:
        forward = block.forward
        monkeypatch.setattr(block, "forward", lambda x, code, run=forward: checkpoint(run, x, code, use_reentrant=False))
    saved = torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))
    torch.testing.assert_close(saved, plain, rtol=1e-4, atol=1e-6)


@every_encoding
def test_autocast_leaves_tables_in_float32(name):
    encoding = vit(name).encoding
    p = encoding.grid(3, 5, device="cuda")
    plain = torch.utils._pytree.tree_leaves(encoding(p))
    with torch.autocast("cuda", torch.bfloat16):
        cast = torch.utils._pytree.tree_leaves(encoding(p))
    for one, other in zip(plain, cast, strict=True):
        assert one.dtype == other.dtype == torch.float32
        torch.testing.assert_close(other, one, rtol=0, atol=0)


def test_exponentials_under_autocast():
    free = normal(20, 8, 8, seed=0).float().cuda()
    with torch.autocast("cuda", torch.bfloat16):
        found = rw.ops.expm(free - free.mT)
    exact = torch.linalg.matrix_exp((free - free.mT).double())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [3, 5, 7, 24])
def test_exponentials_in_many_tiles(size):
    """A tile that size does not divide must not touch the matrices of the next, which another program writes."""
    free = normal(20_000, size, size, seed=0).float().cuda()
    found = rw.ops.expm(free - free.mT)
    exact = torch.linalg.matrix_exp((free - free.mT).cpu().double())
    torch.testing.assert_close(found.cpu().double(), exact, rtol=0, atol=5e-5)


KINDS = {
    "rotate": Kind("rotate", 2),
    "half-split": Kind("rotate", 2, interleaved=False),
    "sphere": Kind("sphere", 3, axes=2),
    "turn": Kind("turn", 8),
}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [48, 64, 80, 128])
def test_tensor_cores_round_once(kind, dtype, width):
    check(kind, 5, [Side(6, 2, 33, 1), Side(2, 2, 21)], width=width, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("sections", "width"), [((8, 28, 28), 128), ((8, 8), 64), ((1, 3, 2), 13)], ids=["all", "some", "odd"]
)
def test_sections_of_half_split_channels(sections, width, dtype):
    kind = Kind("rotate", 2, interleaved=False, gained=True, sections=sections)
    sides = [Side(6, 2, 65, 1), Side(2, 2, 21)]
    for _ in range(2):  # as it is compiled, and as it is called again
        check(kind, 5, sides, width=width, groups=sum(sections), dtype=dtype)


@pytest.mark.parametrize("op", ["rotate", "sphere", "turn"])
@pytest.mark.parametrize("width", [192, 256])
def test_wide_heads(op, width):
    """A kernel does them, or leaves them to the reference; either way they come out."""
    kind = KINDS[op]
    x = normal(2, 2, 3, width, seed=0, dtype=torch.bfloat16).cuda().requires_grad_()
    table = kind.table(1, 3, groups=width // kind.size).float().cuda().requires_grad_()
    call = {
        "rotate": lambda: rw.ops.rotate([x], [table], [None], interleaved=True, prefixes=[0]),
        "sphere": lambda: rw.ops.turn([x], [rw.ops.sphere(table)], prefixes=[0]),
        "turn": lambda: rw.ops.turn([x], [table], prefixes=[0]),
    }
    results = []
    for context in (contextlib.nullcontext(), references()):
        with context:
            (y,) = call[op]()
            results.append([y.detach(), *torch.autograd.grad(y.float().square().sum() + y.float().sum(), [x, table])])
    for found, exact in zip(*results, strict=True):
        assert (found - exact).float().norm() <= 0.02 * exact.float().norm()


def test_more_blocks_than_a_grid_has_rows():
    """65,535 is the most that the second and third dimension of a grid take."""
    n = 70_001
    for kind in (KINDS["half-split"], KINDS["sphere"], KINDS["turn"]):
        x = normal(1, 1, n, 16, seed=0, dtype=torch.bfloat16).cuda()
        table = kind.table(1, 7, groups=16 // kind.size).float().cuda()
        table = table.index_select(1, torch.arange(n, device="cuda") % 7)
        (y,) = kind.forward([x], [table], [None], [0])
        (far,) = kind.forward([x[:, :, -9:].contiguous()], [table[:, -9:].contiguous()], [None], [0])
        assert torch.equal(y[:, :, -9:], far)


@pytest.mark.parametrize("op", ["rotate", "sphere", "turn"])
def test_more_elements_than_32_bits_count(op):
    """Three heads of one sample, of which the last lies beyond 2^31 elements though a head's stride does not."""
    room, kind = torch.cuda.mem_get_info()[0], KINDS[op]
    if room < 24 << 30:
        pytest.skip(f"needs 24 GiB of free GPU memory, {room >> 30} are here")
    n, rows = 18_800_000, 5
    whole = torch.zeros(1, 3, n, 64, dtype=torch.bfloat16, device="cuda")
    x = whole[:, :, -rows:]
    x.copy_(normal(1, 3, rows, 64, seed=0))
    table = kind.table(1, rows, groups=64 // kind.size).float().cuda()
    assert x.stride(1) < 2**31 < 2 * x.stride(1)
    (expected,) = kind.forward([x.contiguous()], [table], [None], [0])
    (y,) = kind.forward([x], [table], [None], [0])
    assert torch.equal(y, expected)
    dx, dtable = kind.back([x], [x], [x], [table], [None], [0])
    for found, exact in zip((dx, dtable), kind.back(*[[x.contiguous()]] * 3, [table], [None], [0]), strict=True):
        assert torch.equal(found, exact)


def test_outputs_beyond_32_bits():
    room = torch.cuda.mem_get_info()[0]
    if room < 24 << 30:
        pytest.skip(f"needs 24 GiB of free GPU memory, {room >> 30} are here")
    n = 18_800_000
    x, angle = torch.zeros(1, 3, n, 64, dtype=torch.bfloat16, device="cuda"), torch.zeros(1, n, 1, device="cuda")
    x[:, 2, -1], angle[:, -1] = 1, 1.0
    (y,) = KINDS["rotate"].forward([x], [angle], [None], [0])
    turn = torch.tensor([1.0]).cos() - torch.tensor([1.0]).sin(), torch.tensor([1.0]).cos() + torch.tensor([1.0]).sin()
    torch.testing.assert_close(y[0, 2, -1, :2].float().cpu(), torch.cat(turn), rtol=2**-8, atol=0)
    assert torch.equal(y[0, 2, -1, 2:], x[0, 2, -1, 2:])
    assert not y[:, :2].any()


@pytest.mark.parametrize("name", ["rope", "mixed", "spherical", "liere"])
def test_decoding_token_by_token(name):
    axes = 1 if name == "rope" else 2
    encoding = rw.create(name, head_dim=48, heads=4, kv_heads=2, axes=axes).cuda()
    p = normal(9, axes, seed=0).float().cuda()
    q, k = (normal(2, h, 9, 48, seed=h, dtype=torch.bfloat16).cuda() for h in (4, 2))
    whole = encoding(p).qk(q, k)
    for t in range(9):
        here = encoding(p[t : t + 1]).qk(q[:, :, t : t + 1], k[:, :, t : t + 1])
        assert all(torch.equal(one, every[:, :, t : t + 1]) for one, every in zip(here, whole, strict=True))
    last = encoding(p[-1:], p).qk(q[:, :, -1:], k)
    assert torch.equal(last[0], whole[0][:, :, -1:])
    assert torch.equal(last[1], whole[1])


def test_packed_sequences():
    encoding = rw.create("rope", head_dim=64, heads=2).cuda()
    ids = torch.cat([torch.arange(n) for n in (5, 1, 7)]).cuda()
    q = normal(2, 2, 13, 64, seed=0, dtype=torch.bfloat16).cuda()
    whole = encoding(ids).q(q)
    parts = [encoding(torch.arange(x.shape[2], device="cuda")).q(x) for x in q.split([5, 1, 7], 2)]
    assert torch.equal(whole, torch.cat(parts, 2))
    each = torch.stack([ids, ids.flip(0)])
    assert torch.equal(encoding(each).q(q)[1], encoding(ids.flip(0)).q(q)[1])


def test_distributed_data_parallel():
    """One process, which has all its gradients go through DDP's buckets."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        images, labels = batch()
        results = []
        for wrap in (torch.nn.parallel.DistributedDataParallel, lambda model: model):
            model = vit("mixed")
            F.cross_entropy(wrap(model)(images), labels).backward()
            results.append([parameter.grad for parameter in model.parameters()])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_symmetric_spheres(axes):
    """Against the same in float64 on the CPU, with gradients."""
    options = {"head_dim": 13, "heads": 4, "kv_heads": 2, "axes": axes, "learned": True}
    wide = rw.create("spherical-symmetric", **options).double()
    narrow = rw.create("spherical-symmetric", **options).cuda()
    narrow.load_state_dict(wide.state_dict())
    p = points(wide, 65)
    q, k = torch.randn(2, 4, 65, 13, dtype=torch.float64), torch.randn(2, 2, 65, 13, dtype=torch.float64)
    exact = wide(p).qk(q, k)
    found = narrow(p.float().cuda()).qk(q.float().cuda(), k.float().cuda())
    for mine, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.double().cpu(), theirs, rtol=0, atol=2e-5)
    (wanted,), (own,) = (torch.autograd.grad(sum(x.square().sum(-1).cos().sum() + x.sum() for x in each), [e.frequency])
                         for each, e in ((exact, wide), (found, narrow)))  # fmt: skip
    assert (own.double().cpu() - wanted).norm() <= 1e-4 * wanted.norm()


@pytest.mark.parametrize("name", ["comrope-ld", "string-cayley"])
def test_folding(name):
    model = ViT("tiny", encoding=name, size=(48, 80), patch=16, classes=5, depth=2).cuda().eval()
    images = torch.randn(2, 3, 48, 80, device="cuda")
    with torch.no_grad():
        for block in model.blocks:
            torch.nn.init.normal_(block.qkv.weight, std=0.1)
        before = model(images)
        after = rw.fold_into(model)(images)
    assert {weight.device.type for weight in model.parameters()} == {"cuda"}
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
    assert "expm_fused" not in launched(lambda: model(images))
