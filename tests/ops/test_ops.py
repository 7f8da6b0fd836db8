"""The ops against their definitions in NumPy, in every shape, layout and precision, with all derivatives."""

import gc
import itertools
import math

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ropewalk import ops

DOUBLE = {"rtol": 0, "atol": 1e-12}
SINGLE = {"rtol": 0, "atol": 2e-6}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


# What each op is to do, on one query (D,) with the numbers of its token: written out, channel by channel.


def turn_pairs(x, angle, gain, interleaved, sections):
    out, pairs = x.copy(), len(angle)
    for p in range(pairs):
        first = [start for start in itertools.accumulate(sections, initial=0) if start <= p][-1]
        count = sections[list(itertools.accumulate(sections, initial=0)).index(first)] if sections else pairs
        i, j = (2 * p, 2 * p + 1) if interleaved else (p + first, p + first + count)
        z = complex(x[i], x[j]) * gain[p] * complex(math.cos(angle[p]), math.sin(angle[p]))
        out[i], out[j] = z.real, z.imag
    return out


def turn_triplets(x, angle):
    """The paper's code for two axes: first the planes (a, c), then (b, c); a third axis turns (a, b)."""
    out = x.copy()
    for t, angles in enumerate(angle):
        a, b, c = x[3 * t : 3 * t + 3]
        turns = [math.cos(angle) for angle in angles], [math.sin(angle) for angle in angles]
        for axis, (cos, sin) in enumerate(zip(*turns, strict=True)):
            if axis == 0:
                a, c = a * cos - c * sin, a * sin + c * cos
            elif axis == 1:
                b, c = b * cos - c * sin, b * sin + c * cos
            else:
                a, b = a * cos - b * sin, a * sin + b * cos
        out[3 * t : 3 * t + 3] = a, b, c
    return out


def turn_blocks(x, matrix):
    out, size = x.copy(), matrix.shape[-1]
    for g, block in enumerate(matrix):
        for i in range(size):
            out[g * size + i] = sum(block[i, j] * x[g * size + j] for j in range(size))
    return out


class Pairs:
    def __init__(self, *, interleaved, gain=False, first=None):
        self.interleaved, self.gain, self.first = interleaved, gain, first

    def sections(self, pairs):
        """So many pairs first, the others after them."""
        return () if self.first is None or self.first >= pairs else (self.first, pairs - self.first)

    def tables(self, *lead, width, dtype=torch.float64):
        angle = 3 * torch.randn(*lead, width // 2, dtype=dtype)
        return (angle, torch.rand_like(angle) + 0.5) if self.gain else (angle,)

    def apply(self, xs, tables, prefixes):
        angles = [table[0] for table in tables]
        gains = [table[1] if self.gain else None for table in tables]
        return ops.rotate(
            xs, angles, gains, interleaved=self.interleaved, prefixes=prefixes, sections=self.sections(angles[0].shape[-1])
        )

    def on_one(self, x, angle, gain=None):
        return turn_pairs(
            x, angle, np.ones_like(angle) if gain is None else gain, self.interleaved, self.sections(len(angle))
        )


class Triplets:
    def __init__(self, axes):
        self.axes = axes

    def tables(self, *lead, width, dtype=torch.float64):
        return (3 * torch.randn(*lead, width // 3, self.axes, dtype=dtype),)

    def apply(self, xs, tables, prefixes):
        return ops.turn(xs, [ops.sphere(table) for (table,) in tables], prefixes=prefixes)

    def on_one(self, x, angle):
        return turn_triplets(x, angle)


class Blocks:
    def __init__(self, size):
        self.size = size

    def tables(self, *lead, width, dtype=torch.float64):
        return (torch.randn(*lead, width // self.size, self.size, self.size, dtype=dtype),)

    def apply(self, xs, tables, prefixes):
        return ops.turn(xs, [table for (table,) in tables], prefixes=prefixes)

    def on_one(self, x, matrix):
        return turn_blocks(x, matrix)


KINDS = {
    "interleaved": Pairs(interleaved=True),
    "half-split": Pairs(interleaved=False),
    "interleaved-gain": Pairs(interleaved=True, gain=True),
    "half-split-gain": Pairs(interleaved=False, gain=True),
    "sections": Pairs(interleaved=False, first=2),
    "sections-gain": Pairs(interleaved=False, gain=True, first=1),
    "sphere-1": Triplets(1),
    "sphere-2": Triplets(2),
    "sphere-3": Triplets(3),
    "turn-2": Blocks(2),
    "turn-5": Blocks(5),
}
FEW = {name: KINDS[name] for name in ("interleaved-gain", "half-split", "sphere-2", "turn-5")}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
few_kinds = pytest.mark.parametrize("kind", FEW.values(), ids=FEW)


def apply(kind, x, tables, prefix=0):
    (turned,) = kind.apply([x], [tables], [prefix])
    return turned


def expected(kind, x, tables, prefix=0):
    """The op, token by token."""
    out, tables = x.double().numpy().copy(), [table.detach().double().numpy() for table in tables]
    shared = tables[0].ndim == {Pairs: 3, Triplets: 4, Blocks: 5}[type(kind)]
    heads = tables[0].shape[0 if shared else 1]
    for b, h, n in itertools.product(*map(range, (x.shape[0], x.shape[1], x.shape[2] - prefix))):
        row = h // (x.shape[1] // heads)
        numbers = [table[row, n] if shared else table[b, row, n] for table in tables]
        out[b, h, prefix + n] = kind.on_one(out[b, h, prefix + n], *numbers)
    return torch.from_numpy(out)


# Values


@every_kind
@pytest.mark.parametrize(
    ("shape", "heads", "prefix", "width", "per_sample"),
    [
        ((2, 4, 15, 12), 4, 0, 12, False),
        ((2, 4, 15, 12), 2, 0, 12, True),  # grouped heads, positions of each sample
        ((2, 6, 17, 12), 1, 2, 12, False),  # one table for all heads, a prefix
        ((3, 4, 16, 13), 2, 1, 10, True),  # channels beyond the turned ones
        ((1, 1, 1, 6), 1, 0, 6, False),
        ((2, 2, 63, 6), 2, 0, 6, False),
        ((2, 2, 65, 6), 2, 0, 6, True),
        ((1, 2, 3, 100), 1, 1, 100, False),
        ((2, 2, 3, 7), 2, 3, 6, False),  # nothing but prefix
        ((0, 2, 5, 6), 2, 1, 6, False),
        ((2, 2, 0, 6), 2, 0, 6, False),
        ((0, 4, 0, 6), 2, 0, 6, True),
    ],
    ids=str,
)
def test_values(kind, shape, heads, prefix, width, per_sample):
    x = torch.randn(shape, dtype=torch.float64)
    lead = (*shape[:1],) if per_sample else ()
    tables = kind.tables(*lead, heads, shape[2] - prefix, width=width)
    kept = x.clone(), [table.clone() for table in tables]
    turned = apply(kind, x, tables, prefix)
    torch.testing.assert_close(turned, expected(kind, x, tables, prefix), **DOUBLE)
    assert torch.equal(turned[:, :, :prefix], x[:, :, :prefix])
    assert turned.data_ptr() != x.data_ptr() or x.numel() == 0
    assert torch.equal(x, kept[0])
    assert all(torch.equal(table, copy) for table, copy in zip(tables, kept[1], strict=True))


@every_kind
def test_a_table_of_one_sample_serves_a_batch(kind):
    x = torch.randn(3, 2, 4, 12, dtype=torch.float64)
    tables = kind.tables(1, 2, 4, width=12)
    torch.testing.assert_close(apply(kind, x, tables), apply(kind, x, [table[0] for table in tables]), **DOUBLE)


@every_kind
def test_queries_and_keys_together_are_each_alone(kind):
    q, k = torch.randn(2, 4, 8, 13), torch.randn(2, 2, 6, 13)
    tables = kind.tables(2, 7, width=12, dtype=torch.float32), kind.tables(2, 2, 4, width=12, dtype=torch.float32)
    both = kind.apply([q, k], tables, [1, 2])
    assert torch.equal(both[0], apply(kind, q, tables[0], 1))
    assert torch.equal(both[1], apply(kind, k, tables[1], 2))


def test_a_gain_belongs_to_its_own_tensor():
    xs = [torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4)]
    angle, gain = torch.randn(1, 2, 2), torch.rand(1, 2, 2) + 1
    q, k = ops.rotate(xs, [angle, angle], [None, gain], interleaved=True, prefixes=[0, 0])
    torch.testing.assert_close(q.norm(dim=-1), xs[0].norm(dim=-1))
    torch.testing.assert_close(k.unflatten(-1, (2, 2)).norm(dim=-1), xs[1].unflatten(-1, (2, 2)).norm(dim=-1) * gain)


@every_kind
@pytest.mark.parametrize("order", ["bnthd", "bhntd", "tbnhd"])
def test_views_of_a_fused_projection(kind, order):
    """q and k as slices of one tensor that holds q, k and v: any strides will do, and the tensor stays as it is."""
    sizes = {"b": 2, "n": 5, "t": 3, "h": 4, "d": 12}
    fused = torch.randn(*(sizes[letter] for letter in order), dtype=torch.float64)
    kept = fused.clone()
    q, k, _ = fused.permute(*(order.index(letter) for letter in "tbhnd")).unbind(0)
    tables = [kind.tables(2, 5, width=12) for _ in range(2)]
    views = kind.apply([q, k], tables, [0, 0])
    copies = kind.apply([q.contiguous(), k.contiguous()], tables, [0, 0])
    for view, copy, x, table in zip(views, copies, (q, k), tables, strict=True):
        torch.testing.assert_close(view, copy, **DOUBLE)
        torch.testing.assert_close(view, expected(kind, x, table), **DOUBLE)
    assert torch.equal(fused, kept)


@every_kind
def test_strided_tables(kind):
    x = torch.randn(2, 4, 6, 12, dtype=torch.float64)
    wide = kind.tables(6, 2, width=12)
    tables = [table.transpose(0, 1) for table in wide]
    torch.testing.assert_close(apply(kind, x, tables), expected(kind, x, tables), **DOUBLE)
    broken = [table[::2].expand(2, *table.shape[1:]) for table in kind.tables(2, 6, width=12)]
    torch.testing.assert_close(apply(kind, x, broken), expected(kind, x, broken), **DOUBLE)


# Precision


def within_one_unit(got, want, size):
    """`got` is `want` within a unit in the last place, or within what single precision leaves of numbers of that size."""
    exponent = torch.frexp(want.abs().clamp(min=torch.finfo(got.dtype).tiny)).exponent
    unit = torch.ldexp(torch.full_like(want, torch.finfo(got.dtype).eps), exponent - 1)
    return ((got.double() - want).abs() <= unit + 8 * 2**-24 * size).all()


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_rounded_once(kind, dtype):
    x = torch.randn(2, 4, 33, 13).to(dtype)
    tables = kind.tables(2, 32, width=12, dtype=torch.float32)
    turned = apply(kind, x, tables, 1)
    assert turned.dtype is dtype
    size = x.double().abs().amax() * max(table.double().abs().amax() for table in tables[1:] or [torch.ones(1)])
    size = size * (tables[0].abs().amax() * 5 if isinstance(kind, Blocks) else 1)
    assert within_one_unit(turned, expected(kind, x, tables, 1), size)
    assert torch.equal(turned[:, :, :1], x[:, :, :1])


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_tables_are_computed_with_in_single(kind, dtype):
    x = torch.randn(2, 2, 5, 12).to(dtype)
    tables = [table.to(dtype) for table in kind.tables(2, 5, width=12, dtype=torch.float32)]
    assert torch.equal(apply(kind, x, tables), apply(kind, x, [table.float() for table in tables]))


@every_kind
def test_double_precision_stays(kind):
    x = torch.randn(2, 2, 5, 12, dtype=torch.float64)
    tables = kind.tables(2, 5, width=12)
    assert apply(kind, x, tables).dtype is torch.float64
    mixed = apply(kind, x.float(), tables)  # double tables, single x
    assert mixed.dtype is torch.float32
    assert torch.equal(mixed, apply(kind, x.float().double(), tables).float())


@every_kind
def test_single_precision(kind):
    x = torch.randn(2, 2, 5, 12)
    tables = kind.tables(2, 5, width=12, dtype=torch.float32)
    torch.testing.assert_close(apply(kind, x, tables).double(), expected(kind, x, tables), rtol=0, atol=2e-5)


@pytest.mark.parametrize("reach", [1e3, 1e6])
@pytest.mark.parametrize("kind", [KINDS["interleaved"], KINDS["half-split"], KINDS["sphere-3"]])
def test_large_angles_in_single_precision(kind, reach):
    """Sines of a million radians are as exact as those of one: the angle is taken for what it is."""
    x = torch.randn(1, 1, 200, 6)
    tables = [(torch.rand_like(table) * 2 - 1) * reach for table in kind.tables(1, 200, width=6, dtype=torch.float32)]
    torch.testing.assert_close(apply(kind, x, tables).double(), expected(kind, x, tables), **SINGLE)


@every_kind
def test_autocast_changes_nothing(kind):
    x = torch.randn(2, 4, 5, 12, requires_grad=True)
    tables = [table.requires_grad_() for table in kind.tables(2, 5, width=12, dtype=torch.float32)]

    with torch.autocast("cpu", torch.bfloat16):
        cast = apply(kind, x, tables)
    assert_same_with_gradients(cast, apply(kind, x, tables), [x, *tables])


def assert_same_with_gradients(cast, plain, given):
    """Bit by bit. Backward passes run outside autocast, as PyTorch asks for."""
    assert cast.dtype is torch.float32
    assert torch.equal(cast, plain)
    slopes = [torch.autograd.grad(turned.square().sum(), given) for turned in (cast, plain)]
    assert all(torch.equal(a, b) for a, b in zip(*slopes, strict=True))


@every_kind
def test_shapes_on_the_meta_device(kind):
    x = torch.randn(2, 4, 6, 13, device="meta")
    tables = [table.to("meta") for table in kind.tables(2, 5, width=12)]
    turned = apply(kind, x, tables, 1)
    assert turned.device.type == "meta"
    assert turned.shape == x.shape


# Derivatives


def inputs(kind, *, per_sample=False):
    """Queries, keys and tables of both, small, that all want gradients."""
    q, k = torch.randn(2, 2, 3, 7, dtype=torch.float64), torch.randn(2, 1, 2, 7, dtype=torch.float64)
    lead = (2,) if per_sample else ()
    tables = [*kind.tables(*lead, 1, 2, width=6), *kind.tables(1, 2, width=6)]
    return [x.requires_grad_() for x in (q, k, *tables)]


def as_function(kind):
    def function(q, k, *tables):
        half = len(tables) // 2
        return tuple(kind.apply([q, k], [tables[:half], tables[half:]], [1, 0]))

    return function


@every_kind
@pytest.mark.parametrize("per_sample", [False, True], ids=["shared", "per-sample"])
def test_first_derivatives(kind, per_sample):
    assert torch.autograd.gradcheck(as_function(kind), inputs(kind, per_sample=per_sample))


@few_kinds
def test_second_derivatives(kind):
    assert torch.autograd.gradgradcheck(as_function(kind), inputs(kind), fast_mode=True)


@few_kinds
def test_gradients_have_the_dtype_of_their_input(kind):
    x = torch.randn(2, 2, 5, 12, dtype=torch.bfloat16, requires_grad=True)
    tables = [table.requires_grad_() for table in kind.tables(2, 5, width=12, dtype=torch.float32)]
    slopes = torch.autograd.grad(apply(kind, x, tables).float().sum(), [x, *tables])
    assert [slope.dtype for slope in slopes] == [torch.bfloat16] + [torch.float32] * len(tables)


@few_kinds
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_forward_mode(kind):
    given = [x.detach() for x in inputs(kind)]
    along = [torch.randn_like(x) for x in given]
    function, step = as_function(kind), 1e-6
    _, slopes = torch.func.jvp(function, tuple(given), tuple(along))
    ahead = function(*(x + step * v for x, v in zip(given, along, strict=True)))
    behind = function(*(x - step * v for x, v in zip(given, along, strict=True)))
    for slope, a, b in zip(slopes, ahead, behind, strict=True):
        torch.testing.assert_close(slope, (a - b) / (2 * step), rtol=0, atol=1e-7)


@few_kinds
@pytest.mark.parametrize("mapped", ["x", "tables", "both"])
def test_mapped_over_a_further_dimension(kind, mapped):
    many = {"x": mapped != "tables", "tables": mapped != "x"}
    x = torch.randn(3, 2, 4, 5, 12, dtype=torch.float64) if many["x"] else torch.randn(2, 4, 5, 12, dtype=torch.float64)
    tables = kind.tables(*([3] if many["tables"] else []), 2, 4, width=12)
    dims = (0 if many["x"] else None, *[0 if many["tables"] else None] * len(tables))
    turned = torch.func.vmap(lambda x, *tables: apply(kind, x, tables, 1), in_dims=dims)(x, *tables)
    for i in range(3):
        own = [table[i] if many["tables"] else table for table in tables]
        torch.testing.assert_close(turned[i], apply(kind, x[i] if many["x"] else x, own, 1), **DOUBLE)


# As PyTorch sees them


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("name", ["rotate", "sphere", "turn", "expm"])
def test_declared_as_pytorch_wants(name):
    q, k = torch.randn(2, 4, 5, 13, requires_grad=True), torch.randn(2, 2, 6, 13, requires_grad=True)
    angles = [torch.randn(2, 4, 6, requires_grad=True), torch.randn(2, 2, 6, 6, requires_grad=True)]
    matrices = [torch.randn(2, 4, 2, 6, 6, requires_grad=True), torch.randn(2, 2, 6, 2, 6, 6, requires_grad=True)]
    gain = torch.rand(2, 4, 6, requires_grad=True)
    arguments = {
        "rotate": ([q, k], angles, [gain, None], True, [], [1, 0]),
        "sphere": (torch.randn(2, 4, 4, 2, requires_grad=True),),
        "turn": ([q, k], matrices, [1, 0]),
        "expm": (torch.randn(2, 3, 4, 4, requires_grad=True),),
    }[name]
    torch.library.opcheck(getattr(torch.ops.ropewalk, name).default, arguments)


class Largest(TorchDispatchMode):
    """Records the most numbers that any tensor made inside it holds in memory."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


@pytest.mark.parametrize(("heads", "table_heads"), [(2, 2), (4, 2), (4, 1)])
def test_matrices_shared_by_a_batch_are_never_repeated(heads, table_heads):
    batch, tokens, blocks, size = 16, 6, 2, 8
    x = torch.randn(batch, heads, tokens, blocks * size, requires_grad=True)
    matrix = torch.randn(table_heads, tokens, blocks, size, size, requires_grad=True)
    with Largest() as largest:
        (turned,) = ops.turn([x], [matrix], prefixes=[0])
        torch.autograd.grad(turned.square().sum(), [x, matrix])
    assert x.numel() > matrix.numel()
    assert largest.numel <= x.numel()


@few_kinds
def test_lists_must_have_the_same_length(kind):
    x, tables = torch.randn(1, 1, 2, 12), kind.tables(1, 2, width=12, dtype=torch.float32)
    with pytest.raises(ValueError, match="zip"):
        kind.apply([x, x], [tables], [0, 0])


# Exponentials


def skew(*shape, scale=1.0, dtype=torch.float64):
    free = scale * torch.randn(*shape, dtype=dtype)
    return free - free.mT


def exponential(matrix):
    """exp of a skew-symmetric matrix from the eigenvectors of i times it, which is Hermitian."""
    value, vector = np.linalg.eigh(1j * matrix.double().numpy())
    return torch.from_numpy((vector * np.exp(-1j * value)[..., None, :] @ vector.conj().swapaxes(-1, -2)).real)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize("scale", [1e-4, 0.1, 1.0, 10.0])
def test_expm(size, scale):
    matrix = skew(3, 2, size, size, scale=scale)
    torch.testing.assert_close(ops.expm(matrix), exponential(matrix), rtol=0, atol=1e-11)


def test_expm_of_a_plane_is_a_turn():
    angle = torch.linspace(-7, 7, 15, dtype=torch.float64)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).unflatten(-1, (2, 2))
    generator = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(ops.expm(angle[:, None, None] * generator), turn, rtol=0, atol=1e-13)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_expm_in_single_precision_is_a_rotation(size):
    rotation = ops.expm(skew(20, size, size, scale=2.0, dtype=torch.float32))
    assert rotation.dtype is torch.float32
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(size).expand(20, -1, -1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_expm_of_low_precision_is_rounded_once(dtype):
    matrix = skew(4, 3, 3).to(dtype)
    assert torch.equal(ops.expm(matrix), ops.expm(matrix.float()).to(dtype))


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 4, 4), (3, 3), (1, 1)])
def test_expm_of_awkward_batches(shape):
    matrix = skew(*shape)
    torch.testing.assert_close(ops.expm(matrix), exponential(matrix), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.expand(5, *a.shape),
        lambda a: a[:, :1].expand_as(a),
        lambda a: a.transpose(0, 1),
        lambda a: a.mT,
        lambda a: a.permute(1, 0, 3, 2),
        lambda a: a[:, ::2],
    ],
    ids=["expanded", "expanded-within", "permuted", "transposed", "mixed", "strided"],
)
def test_expm_of_views(view):
    free = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    given = view(free)
    copy = given.detach().clone().contiguous().requires_grad_()
    turned, want = ops.expm(given), ops.expm(copy)
    torch.testing.assert_close(turned, want, **DOUBLE)
    weight = torch.randn_like(want)
    (slope,) = torch.autograd.grad((turned * weight).sum(), given, retain_graph=True)
    torch.testing.assert_close(slope, torch.autograd.grad((want * weight).sum(), copy)[0], **DOUBLE)


def repeated(size):
    """A skew-symmetric matrix with the eigenvalues ±i, each size/2 times."""
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    return torch.kron(torch.eye(size // 2, dtype=torch.float64), quarter)


@pytest.mark.parametrize(
    "matrix",
    [*(torch.zeros(n, n, dtype=torch.float64) for n in (2, 3, 4)), repeated(4), math.pi * repeated(4)],
    ids=["zero-2", "zero-3", "zero-4", "repeated", "half-turns"],
)
def test_derivatives_of_expm_where_eigenvectors_are_not_unique(matrix):
    given = matrix.requires_grad_()
    assert torch.autograd.gradcheck(lambda a: ops.expm(a - a.mT), given)
    assert torch.autograd.gradgradcheck(lambda a: ops.expm(a - a.mT), given, fast_mode=True)


def test_derivative_of_expm_at_zero_is_the_direction_itself():
    along = skew(4, 4)
    given = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 4, dtype=torch.float64)
    (slope,) = torch.autograd.grad((ops.expm(given) * weight).sum(), given)
    torch.testing.assert_close((slope * along).sum(), (weight * along).sum(), **DOUBLE)


def test_derivatives_of_expm_in_a_batch():
    free = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: ops.expm((a - a.mT).expand(2, 2, 3, 3)), free)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_expm_under_transformations():
    matrix, along, step = skew(3, 2, 4, 4), skew(3, 2, 4, 4), 1e-6
    mapped = torch.func.vmap(ops.expm, in_dims=1, out_dims=1)(matrix)
    torch.testing.assert_close(mapped, ops.expm(matrix), **DOUBLE)
    _, slope = torch.func.jvp(ops.expm, (matrix,), (along,))
    difference = (exponential(matrix + step * along) - exponential(matrix - step * along)) / (2 * step)
    torch.testing.assert_close(slope, difference, rtol=0, atol=1e-7)


def test_autocast_leaves_expm_alone():
    free = torch.randn(5, 8, 8, requires_grad=True)

    with torch.autocast("cpu", torch.bfloat16):
        cast = ops.expm(free - free.mT)
    assert_same_with_gradients(cast, ops.expm(free - free.mT), [free])


def test_expm_on_the_meta_device():
    assert ops.expm(torch.zeros(5, 3, 3, device="meta")).shape == (5, 3, 3)


# Circles that are kept


def turned(x, angle):
    return ops.rotate([x], [angle], [None], interleaved=True, prefixes=[0])[0]


def test_a_table_that_changes_is_seen():
    x, angle = torch.randn(2, 2, 3, 4), torch.randn(1, 3, 2)
    turned(x, angle)
    for change in (lambda: angle.mul_(2), lambda: angle[:, :1].add_(1), lambda: angle.copy_(torch.randn(1, 3, 2))):
        change()
        torch.testing.assert_close(turned(x, angle), turned(x, angle.clone()), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_tracers_do_not_take_a_kept_circle_for_a_constant():
    x, angle, other = torch.randn(2, 2, 3, 4), torch.randn(1, 3, 2), torch.randn(1, 3, 2)
    turned(x, angle)
    halves = lambda x, t: ops.rotate([x], [t], [None], interleaved=False, prefixes=[0])[0]  # noqa: E731
    for traced in (torch.jit.trace(halves, (x, angle)), make_fx(halves)(x, angle)):
        torch.testing.assert_close(traced(x, other), halves(x, other))


def test_a_kept_circle_leaves_with_its_table():
    from ropewalk.ops.rotate.reference import KEPT

    gc.collect()
    before, angle = len(KEPT), torch.randn(1, 3, 2)
    turned(torch.randn(2, 2, 3, 4), angle)
    assert len(KEPT) == before + 1
    del angle
    gc.collect()
    assert len(KEPT) <= before


def test_what_learns_is_not_kept():
    x, angle = torch.randn(2, 2, 3, 4), torch.randn(1, 3, 2, requires_grad=True)
    with torch.no_grad():
        turned(x, angle)
    (slope,) = torch.autograd.grad(turned(x, angle).square().sum() + turned(x, angle)[..., 0].sum(), angle)
    assert slope.abs().max() > 0
    plain = torch.randn(1, 3, 2)
    turned(x, plain)
    assert torch.autograd.grad(turned(x, plain.requires_grad_())[..., 0].sum(), plain)[0].abs().max() > 0
    with torch.inference_mode():
        turned(x, torch.randn(1, 3, 2))
