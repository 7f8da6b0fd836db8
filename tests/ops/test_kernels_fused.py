"""When kernels are taken, and what autograd, compilers and encodings see of them."""

import importlib
import inspect

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from ropewalk.encodings import REGISTRY
from ropewalk.ops import expm, rotate, rotate_qkv, sphere, turn, turn_qkv
from ropewalk.ops.fused import fits
from ropewalk.testing.case import points, ready, single
from tests.support.float64_reference import normal
from tests.support.kernel_reference import DEVICE, Calls

pytest.importorskip("triton", reason="kernels are written in Triton, which is not installed")


@pytest.fixture
def pretended():
    """Tensors that say they are on a GPU, and hold nothing."""
    with FakeTensorMode():
        yield


def called(function, *given, **options):
    with Calls() as calls:
        function(*given, **options)
    return calls.names


def fake(*shape, dtype=torch.float32, device="cuda", learned=False):
    return torch.empty(shape, dtype=dtype, device=device, requires_grad=learned)


X, ANGLE = (2, 4, 3, 12), (1, 3, 6)


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("table", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_fit_what_they_know(dtype, table):
    assert fits([fake(*X, dtype=dtype), fake(*X, dtype=dtype)], [fake(*ANGLE, dtype=table, learned=True)] * 2)
    assert fits([fake(*X, dtype=dtype, learned=True)], [fake(*ANGLE, dtype=table)])


@pytest.mark.usefixtures("pretended")
def test_kernels_do_not_fit_the_rest():
    x, angle = fake(*X), fake(*ANGLE)
    assert fits([x], [angle])
    assert not fits([x.double()], [angle])
    assert not fits([x], [angle.double()])
    assert not fits([x, x.half()], [angle, angle])
    assert not fits([x, fake(2, 4, 3, 8)], [angle, angle])
    assert not fits([fake(*X, device="cpu")], [fake(*ANGLE, device="cpu")])
    assert not fits([x], [fake(*ANGLE, device="cpu")])
    if torch.cuda.device_count() != 1:  # where there is one GPU, another cannot even be pretended
        assert not fits([x], [fake(*ANGLE, device="cuda:1")])
        assert not fits([x, fake(*X, device="cuda:1")], [angle])


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
def test_kernels_do_not_fit_forward_mode(kernels_everywhere, monkeypatch):
    """A tangent would be lost."""
    monkeypatch.setattr("ropewalk.ops.turning.fits", without_a_device(fits))
    x, angle = normal(1, 2, 3, 4, seed=0).float().to(DEVICE), normal(1, 3, 2, seed=1).float().to(DEVICE)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        (y,) = rotate([dual], [angle], [None], interleaved=True, prefixes=[0])
        tangent = forward_ad.unpack_dual(y).tangent
    torch.testing.assert_close(tangent, rotate([torch.ones_like(x)], [angle], [None], interleaved=True, prefixes=[0])[0])


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_kernels_do_not_fit_traces(kernels_everywhere, monkeypatch):
    monkeypatch.setattr("ropewalk.ops.turning.fits", without_a_device(fits))
    x, angle = normal(1, 2, 3, 4, seed=0).float().to(DEVICE), normal(1, 3, 2, seed=1).float().to(DEVICE)
    traced = torch.jit.trace(
        lambda x, t: turn([x], [sphere(t[..., None, :1].expand(1, 3, 1, 1))], prefixes=[0])[0], (x, angle)
    )
    other = normal(5, 2, 3, 4, seed=2).float().to(DEVICE)
    torch.testing.assert_close(
        traced(other, angle), turn([other], [sphere(angle[..., None, :1].expand(1, 3, 1, 1))], prefixes=[0])[0]
    )


def without_a_device(real):
    """The real rule for tensors that are where the kernels are interpreted."""
    source = inspect.getsource(real).replace("not tensor.is_cuda or ", "")
    space = dict(vars(importlib.import_module("ropewalk.ops.fused")))
    exec(source, space)
    return space["fits"]


@pytest.mark.usefixtures("pretended")
def test_gains_that_kernels_know():
    def ops(**gain):
        given = {"gains": [fake(*ANGLE, **gain)], "interleaved": True, "prefixes": [0]}
        return called(rotate, [fake(*X)], [fake(*ANGLE)], **given)

    assert ops() == ops(dtype=torch.bfloat16) == ["rotate_fused"]
    assert ops(dtype=torch.float64) == ops(learned=True) == []


@pytest.mark.usefixtures("pretended")
def test_kernels_do_not_fit_without_triton(monkeypatch):
    monkeypatch.setattr("ropewalk.ops.fused.TRITON", False)
    assert not fits([fake(*X)], [fake(*ANGLE)])


@pytest.mark.usefixtures("pretended")
def test_kernels_do_not_fit_what_is_transformed():
    seen = []
    torch.vmap(lambda x: seen.append(fits([x], [fake(*ANGLE)])) or x)(fake(5, *X))
    assert seen == [False]


@pytest.mark.usefixtures("pretended")
def test_ops_take_their_kernels():
    x = fake(*X)
    assert called(rotate, [x], [fake(*ANGLE)], [None], interleaved=True, prefixes=[0]) == ["rotate_fused"]
    assert called(sphere, fake(1, 3, 4, 2)) == ["sphere_fused"]
    assert called(sphere, fake(1, 3, 4, 2, dtype=torch.bfloat16)) == []
    assert called(turn, [x], [fake(1, 3, 4, 3, 3)], prefixes=[0]) == ["turn_fused"]
    assert called(expm, fake(7, 3, 3)) == called(expm, fake(7, 64, 64)) == ["expm_fused"]
    assert called(expm, fake(7, 2, 2)) == called(expm, fake(7, 65, 65)) == []
    assert called(rotate, [x.double()], [fake(*ANGLE)], [None], interleaved=True, prefixes=[0]) == []


@pytest.mark.usefixtures("pretended")
def test_kernels_do_not_fit_tables_that_differ_in_more_than_heads_and_tokens():
    x = fake(*X)
    assert called(rotate, [x, x], [fake(1, 3, 6), fake(1, 3, 5)], [None] * 2, interleaved=True, prefixes=[0, 0]) == []
    assert called(turn, [x, x], [fake(1, 3, 4, 3, 3), fake(1, 3, 6, 2, 2)], prefixes=[0, 0]) == []


UNEVEN = {
    "only-q-gained": ([(1, 2, 3)] * 2, [(1, 2, 3), None]),
    "only-k-gained": ([(1, 2, 3)] * 2, [None, (1, 2, 3)]),
    "gain-of-one-head": ([(2, 2, 3)] * 2, [(1, 2, 3)] * 2),
    "gain-of-a-batch": ([(1, 2, 3)] * 2, [(2, 1, 2, 3)] * 2),
    "angle-of-a-batch": ([(2, 1, 2, 3)] * 2, [(1, 2, 3)] * 2),
}


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize("case", UNEVEN)
def test_uneven_tables_are_left_to_the_reference(case):
    tables = [[None if shape is None else fake(*shape) for shape in shapes] for shapes in UNEVEN[case]]
    assert called(rotate, [fake(2, 2, 2, 6)] * 2, *tables, interleaved=True, prefixes=[0, 0]) == []


WRONG = {
    "more-pairs-than-channels": (rotate, (1, 3, 7)),
    "tokens-missing": (rotate, (1, 2, 6)),
    "tokens-too-many": (rotate, (1, 4, 6)),
    "heads-that-do-not-divide": (rotate, (3, 3, 6)),
    "another-batch": (rotate, (3, 1, 3, 6)),
    "more-blocks-than-channels": (turn, (1, 3, 5, 3, 3)),
    "turns-for-other-tokens": (turn, (1, 2, 4, 3, 3)),
}


@pytest.mark.usefixtures("kernels_everywhere")
@pytest.mark.parametrize("case", WRONG)
def test_tables_made_for_something_else_are_refused(case):
    """Kernels would read and write beyond the end of tensors."""
    op, shape = WRONG[case]
    options = {"gains": [None], "interleaved": True} if op is rotate else {}
    with pytest.raises(RuntimeError):
        op([torch.ones(X, device=DEVICE)], [torch.ones(shape, device=DEVICE)], prefixes=[0], **options)


@pytest.fixture
def kernels_everywhere(monkeypatch, few_programs):
    """Ops run their kernels: without a GPU on CPU tensors, interpreted."""
    if DEVICE == "cuda":
        yield
        return
    with torch.library._scoped_library("ropewalk", "IMPL") as library:
        for name in ("rotate", "sphere", "turn", "expm"):
            for op in (f"{name}_fused", f"{name}_back", *([f"{name}_join"] if name in ("rotate", "turn") else [])):
                library.impl(op, importlib.import_module("ropewalk.ops.fused").late(op), "CPU")
        for name in ("turning", "sphere", "expm"):
            module = importlib.import_module(f"ropewalk.ops.{name}")
            monkeypatch.setattr(module, "fits", lambda xs, *rest: xs[0].dtype is not torch.float64)
        monkeypatch.setattr(importlib.import_module("ropewalk.ops.rotate"), "_known", lambda *pair: True)
        yield


def test_gradients_of_what_wants_them(kernels_everywhere):
    x, angle = normal(2, 2, 3, 4, seed=0).float().to(DEVICE), normal(1, 3, 2, seed=1).float().to(DEVICE)

    def gradients(*learned):
        given = [t.clone().requires_grad_(want) for t, want in zip((x, x, angle, angle), learned, strict=True)]
        with Calls() as calls:
            q, k = rotate(given[:2], given[2:], [None] * 2, interleaved=True, prefixes=[0, 0])
            (q.square() * normal(*q.shape, seed=2).to(q) + k).sum().backward()
        assert calls.names == ["rotate_fused", "rotate_back"]
        return [t.grad for t in given]

    whole = gradients(True, True, True, True)
    for learned in ((True, True, False, False), (False, False, True, False), (True, False, False, True)):
        for some, all_, want in zip(gradients(*learned), whole, learned, strict=True):
            assert torch.equal(some, all_) if want else some is None


def test_an_output_that_nobody_uses(kernels_everywhere):
    x, angle = normal(2, 2, 3, 4, seed=0).float().to(DEVICE).requires_grad_(), normal(1, 3, 2, seed=1).float().to(DEVICE)
    q, _ = rotate([x, x.detach()], [angle.requires_grad_(), angle], [None] * 2, interleaved=True, prefixes=[0, 0])
    found = torch.autograd.grad(q.square().sum(), [x, angle])
    torch.testing.assert_close(found[0], 2 * x.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[1], torch.zeros_like(angle), rtol=0, atol=1e-5)


def test_what_is_computed_twice_to_save_memory(kernels_everywhere):
    free = normal(1, 3, 1, 5, 5, seed=0).float().to(DEVICE).requires_grad_()
    x, weight = (normal(2, 2, 3, 7, seed=i).float().to(DEVICE).requires_grad_() for i in (1, 2))

    def run(x, free):
        (y,) = turn([x], [expm(free - free.mT)], prefixes=[0])
        return (rotate([y], [free[..., 0, 0, :3]], [None], interleaved=False, prefixes=[0])[0] * weight).sum()

    plain = torch.autograd.grad(run(x, free), [x, free, weight])
    saved = torch.autograd.grad(checkpoint(run, x, free, use_reentrant=False), [x, free, weight])
    assert all(torch.equal(*pair) for pair in zip(plain, saved, strict=True))


def test_a_second_derivative_is_refused(kernels_everywhere):
    x, angle = normal(1, 1, 3, 4, seed=0).float().to(DEVICE), normal(1, 3, 2, seed=1).float().to(DEVICE).requires_grad_()
    (y,) = rotate([x], [angle], [None], interleaved=True, prefixes=[0])
    (slope,) = torch.autograd.grad(y.square().sum() + y.sum(), angle, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


ROTARY = [
    pytest.param(encoding, id=f"{name}-{i}")
    for name, kind in REGISTRY.items()
    for i, encoding in enumerate(kind.examples())
    if single(encoding(points(encoding, 2)))[0].rotary
]
FIRST = [next(kind.examples()).config() for kind in REGISTRY.values()]


@pytest.mark.exhaustive("kernels", kept=lambda encoding: encoding.config() in FIRST)
@pytest.mark.parametrize("encoding", ROTARY)
def test_every_rotary_encoding(kernels_everywhere, encoding):
    """Scores and gradients of all parameters through the kernels are those of float64 on a CPU."""
    p, results = points(encoding, 2), []
    for dtype, device in ((torch.float64, "cpu"), (torch.float32, DEVICE)):
        made, scores = ready(encoding, dtype).to(device), []
        codes = single(made(p.to(device, dtype)).prefixed(q=1, k=1))
        heads = made.heads, made.kv_heads or made.heads
        with Calls() as calls:
            for i, code in enumerate(codes):
                xs = [normal(2, h, 3, made.head_dim, seed=i, dtype=dtype).to(device) for h in heads]
                q, k = code.qk(*xs)
                scores.append(q @ k.repeat_interleave(heads[0] // heads[1], 1).mT)
        assert bool(calls.names) == (dtype is torch.float32)
        scores = torch.stack(scores)
        learned = torch.autograd.grad(scores.square().sum(), list(made.parameters())) if made.traits.learned else ()
        results.append([scores.detach(), *learned])
    for exact, found in zip(*results, strict=True):
        torch.testing.assert_close(found.cpu().double(), exact, rtol=0, atol=2e-5 * max(1, exact.abs().max().item()))


SAMPLES = {
    "rotate": ([(1, 2, 3)], ([None], True, [], [1])),
    "turn": ([(1, 2, 2, 3, 3)], ([1],)),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "channels-first"])
def test_opcheck(kernels_everywhere, name, transposed):
    (shape,), options = SAMPLES[name]
    x, table = normal(2, 2, 3, 6, seed=0).float().to(DEVICE), normal(*shape, seed=1).float().to(DEVICE)
    x = x.mT.contiguous().mT if transposed else x
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(getattr(torch.ops.ropewalk, f"{name}_fused"), ([x], [table], *options), test_utils=tests)
    for ys in ([x], []):
        torch.library.opcheck(getattr(torch.ops.ropewalk, f"{name}_back"), ([x], ys, [table], *options), test_utils=tests)
        both = [part * 2 if isinstance(part, list) else part for part in options]  # of no sections as many
        given = ([x, x, x], ys * 2, [table], *both)
        torch.library.opcheck(getattr(torch.ops.ropewalk, f"{name}_join"), given, test_utils=tests)


def test_opcheck_of_exponentials(kernels_everywhere):
    skew = normal(2, 5, 5, seed=0).float().to(DEVICE)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(torch.ops.ropewalk.expm_fused, (skew - skew.mT,), test_utils=tests)
    torch.library.opcheck(torch.ops.ropewalk.expm_back, (skew, skew - skew.mT, skew), test_utils=tests)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_opcheck_of_triplets(kernels_everywhere, axes):
    angle, grad = normal(2, 5, axes, seed=0).float().to(DEVICE), normal(2, 5, 3, 3, seed=1).float().to(DEVICE)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(torch.ops.ropewalk.sphere_fused, (angle,), test_utils=tests)
    torch.library.opcheck(torch.ops.ropewalk.sphere_back, (grad, angle), test_utils=tests)


def test_a_table_that_q_and_k_share_gets_one_gradient(kernels_everywhere):
    xs = [normal(2, heads, tokens, 12, seed=heads).float().to(DEVICE) for heads, tokens in ((4, 4), (2, 3))]
    for op, table, options in (
        (rotate, normal(2, 3, 6, seed=1), {"gains": [None] * 2, "interleaved": True}),
        (
            rotate,
            normal(2, 3, 6, seed=1),
            {"gains": [normal(2, 3, 6, seed=i).float().to(DEVICE) for i in (2, 3)], "interleaved": True},
        ),
        (turn, torch.linalg.matrix_exp((free := normal(2, 3, 3, 4, 4, seed=1)) - free.mT), {}),
    ):
        table = table.float().to(DEVICE).requires_grad_()
        found = []
        for tables in ([table, table], [table, table.view_as(table)]):
            ys = (
                op(xs, tables, *options.values(), prefixes=[1, 0])
                if op is turn
                else op(xs, tables, prefixes=[1, 0], **options)
            )
            found.append([*ys, *torch.autograd.grad(sum((y * y.detach().sin()).sum() for y in ys), table)])
        for shared, apart in zip(*found, strict=True):
            torch.testing.assert_close(shared, apart, rtol=1e-5, atol=1e-5)


def projections():
    angle, free = normal(2, 3, 6, seed=1), normal(2, 3, 3, 4, 4, seed=1)
    gains = [1 + 0.3 * normal(2, 3, 6, seed=i).sin() for i in (2, 3)]
    turns = torch.linalg.matrix_exp(free - free.mT)
    yield "pairs", rotate, rotate_qkv, angle, {"gains": [None] * 2, "interleaved": True}
    yield "stretched halves", rotate, rotate_qkv, angle, {"gains": gains, "interleaved": False}
    yield "sections", rotate, rotate_qkv, angle, {"gains": gains, "interleaved": False, "sections": (1, 3, 2)}
    yield "blocks", turn, turn_qkv, turns, {}


PROJECTIONS = [pytest.param(*case, id=name) for name, *case in projections()]


# Each pair of settings is kept.
@pytest.mark.exhaustive("kernels", kept=lambda learned, kv_heads, **_: learned == (kv_heads == 2))
@pytest.mark.usefixtures("kernels_everywhere", "unwritten_is_nan")
@pytest.mark.parametrize("learned", [True, False], ids=["learned", "fixed"])
@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize(("op", "projected", "table", "options"), PROJECTIONS)
def test_a_projection_is_turned_like_its_parts(op, projected, table, options, kv_heads, learned):
    """q, k, v and all gradients, with one table for both sides and with two."""
    options = {
        name: [g if g is None else g.float().to(DEVICE) for g in v] if name == "gains" else v for name, v in options.items()
    }
    table = table.float().to(DEVICE).requires_grad_(learned)
    for tables in ([table, table], [table, table.flip(1)]):
        found = []
        for whole in (True, False):
            x = normal(3, 5, 4 + 2 * kv_heads, 14, seed=7, dtype=torch.float32).to(DEVICE).requires_grad_()
            if whole:
                with Calls() as calls:
                    q, k, v = projected(x, 4, tables, prefixes=[2, 2], **options)
            else:
                parts = [part.transpose(1, 2) for part in x.split([4, kv_heads, kv_heads], 2)]
                (q, k), v = op(parts[:2], tables, prefixes=[2, 2], **options), parts[2]
            score = (q * k.repeat_interleave(4 // kv_heads, 1).sin() * v.repeat_interleave(4 // kv_heads, 1).cos()).sum()
            found.append([q, k, v, *torch.autograd.grad(score, [x, table] if learned else [x])])
        assert calls.names == [f"{op.__name__}_fused"]
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("kernels_everywhere")
def test_the_gradient_of_a_projection_is_written_once():
    x, angle = normal(2, 3, 6, 4, seed=0).float().to(DEVICE).requires_grad_(), normal(1, 3, 2, seed=1).float().to(DEVICE)
    with Calls() as calls:
        q, k, v = rotate_qkv(x, 2, [angle, angle], [None] * 2, interleaved=True, prefixes=[0, 0])
        (q * k * v).sum().backward()
    assert calls.names == ["rotate_fused", "rotate_join"]
    assert v.data_ptr() == x[:, :, 4].data_ptr()


@pytest.mark.usefixtures("kernels_everywhere")
def test_a_projection_compiles():
    torch.compiler.reset()
    encoding = ready(REGISTRY["mixed"](head_dim=4, heads=2), torch.float32).to(DEVICE)
    x = normal(2, 3, 6, 4, seed=0).float().to(DEVICE).requires_grad_()

    def loss(x, p):
        q, k, v = encoding(p).qkv(x, 2)
        return (q * k * v).sum()

    p, results = points(encoding, 3).float().to(DEVICE), []
    for run in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        results.append(torch.autograd.grad(run(x, p), [x, *encoding.parameters()]))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


IN_PLACE = {
    "one-tensor": lambda x: x,
    "views-of-a-projection": lambda x: x.repeat(1, 3, 1, 1)[:, ::3],
    "channels-apart": lambda x: x.mT.contiguous().mT,
}


@pytest.mark.usefixtures("kernels_everywhere", "unwritten_is_nan")
@pytest.mark.parametrize("arrange", IN_PLACE.values(), ids=IN_PLACE)
@pytest.mark.parametrize("name", ["mixed", "spherical", "liere", "string-cayley"])
def test_in_place(name, arrange):
    """What is turned lies where it lay, for any strides, and nothing else is touched; no room is made where kernels can."""
    encoding = ready(REGISTRY[name](head_dim=12, heads=2), torch.float32).to(DEVICE)
    code = encoding(points(encoding, 3).float().to(DEVICE)).prefixed(q=1, k=1)
    with torch.no_grad():
        xs = [arrange(normal(2, 2, 4, 12, seed=i, dtype=torch.float32).to(DEVICE)) for i in (1, 2)]
        wanted, places = code.qk(*xs), [x.data_ptr() for x in xs]
        found = code.qk_(*xs)
    assert [x.data_ptr() for x in found] == places
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("kernels_everywhere")
def test_in_place_is_refused_where_gradients_are_asked_for():
    encoding = ready(REGISTRY["mixed"](head_dim=12, heads=2), torch.float32).to(DEVICE)
    code, x = encoding(points(encoding, 3).float().to(DEVICE)), normal(2, 2, 3, 12, seed=0, dtype=torch.float32).to(DEVICE)
    with pytest.raises(RuntimeError, match="in place"):
        code.qk_(x, x.clone())
    fixed = encoding.requires_grad_(False)(points(encoding, 3).float().to(DEVICE))
    with pytest.raises(RuntimeError, match="in place"):
        fixed.qk_(x.requires_grad_(), x.clone())


@pytest.mark.usefixtures("kernels_everywhere")
def test_what_is_turned_in_place_is_known_to_have_changed():
    code = REGISTRY["axial"](head_dim=12, heads=2).to(DEVICE)(torch.ones(3, 2, device=DEVICE)).serving(2, 2)
    weight = normal(1, 2, 3, 12, seed=0, dtype=torch.float32).to(DEVICE).requires_grad_()
    hidden = weight * 1
    total = hidden.square().sum()
    with torch.no_grad():
        code.qk_(hidden, hidden.clone())
    with pytest.raises(RuntimeError, match="inplace operation"):
        total.backward()


@pytest.mark.usefixtures("kernels_everywhere")
def test_memory_that_entries_share_is_not_turned_twice():
    code = REGISTRY["axial"](head_dim=12, heads=2).to(DEVICE)(torch.ones(3, 2, device=DEVICE)).serving(2, 2)
    x = normal(1, 2, 3, 12, seed=0, dtype=torch.float32).to(DEVICE)
    with torch.no_grad():
        wanted = code.q(x)
        same = x.clone()
        code.qk_(same, same)
        torch.testing.assert_close(same, wanted)
        with pytest.raises(RuntimeError, match="more than one element"):
            code.qk_(x.expand(4, -1, -1, -1), x.clone())


@pytest.mark.usefixtures("kernels_everywhere")
def test_negated_views_are_negated():
    x, angle = normal(1, 2, 3, 4, seed=0).float().to(DEVICE), normal(1, 3, 2, seed=1).float().to(DEVICE)
    plain, negated = (rotate([y], [angle], [None], interleaved=True, prefixes=[0])[0] for y in (x, torch._neg_view(x)))
    torch.testing.assert_close(negated, -plain)


@pytest.mark.usefixtures("kernels_everywhere")
def test_gains_are_kept_for_the_way_back():
    x, angle = normal(1, 2, 3, 4, seed=0).float().to(DEVICE).requires_grad_(), normal(1, 3, 2, seed=1).float().to(DEVICE)
    gain = torch.full_like(angle, 2.0)
    (y,) = rotate([x], [angle], [gain], interleaved=True, prefixes=[0])
    gain.mul_(3)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


@pytest.mark.usefixtures("kernels_everywhere")
def test_values_of_a_frozen_projection_ask_for_nothing():
    x, angle = normal(1, 3, 6, 4, seed=0).float().to(DEVICE), normal(1, 3, 2, seed=1).float().to(DEVICE).requires_grad_()
    q, k, v = rotate_qkv(x, 2, [angle, angle], [None] * 2, interleaved=True, prefixes=[0, 0])
    assert [t.requires_grad for t in (q, k, v)] == [True, True, False]


@pytest.mark.usefixtures("kernels_everywhere")
def test_turns_that_are_no_rotations_get_their_gradients():
    x, matrix = normal(2, 2, 3, 6, seed=0).to(DEVICE), normal(1, 3, 2, 3, 3, seed=1).to(DEVICE)
    found = []
    for dtype in (torch.float64, torch.float32):
        given = [t.to(dtype).requires_grad_() for t in (x, matrix)]
        found.append(torch.autograd.grad(turn([given[0]], [given[1]], prefixes=[0])[0].sin().sum(), given))
    for exact, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("kernels_everywhere")
def test_what_is_not_finite_stays_out_of_prefixes():
    x = torch.ones(1, 1, 3, 6, device=DEVICE)
    x[:, :, 0, 0] = float("inf")
    (y,) = turn([x], [torch.eye(3, device=DEVICE).expand(1, 2, 2, 3, 3)], prefixes=[1])
    assert torch.equal(y[:, :, :1], x[:, :, :1])


@pytest.mark.usefixtures("kernels_everywhere")
def test_gradients_in_batches_are_refused_in_words():
    x, angle = normal(1, 1, 2, 4, seed=0).float().to(DEVICE).requires_grad_(), normal(1, 2, 2, seed=1).float().to(DEVICE)
    (y,) = rotate([x], [angle], [None], interleaved=True, prefixes=[0])
    with pytest.raises(RuntimeError, match="one gradient at a time"):
        torch.autograd.grad(y, x, torch.ones(3, *y.shape, device=DEVICE), is_grads_batched=True)
