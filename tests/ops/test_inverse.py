"""The inverse against its definition, in both forms: seen through, and as one op that CUDA graphs leave out."""

import pytest
import torch
from functorch.compile import aot_function, nop
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from ropewalk import ops
from ropewalk.ops.inverse import Apart

both = pytest.mark.parametrize("inverse", [ops.inverse, Apart.apply], ids=["plain", "apart"])


def regular(*shape, dtype=torch.float64):
    """Matrices I - S with S skew-symmetric, none of which is singular."""
    free = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return torch.eye(shape[-1], dtype=dtype) - (free - free.mT)


@both
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (7, 7), (48, 48), (2, 0, 3, 3), (3, 5, 12, 12)], ids=str)
def test_a_product_with_the_inverse_is_the_identity(inverse, shape):
    matrix = regular(*shape)
    torch.testing.assert_close(matrix @ inverse(matrix), torch.eye(shape[-1]).double().expand(shape), rtol=0, atol=1e-12)


@both
def test_inverses_of_views(inverse):
    wide = regular(4, 3, 6, 6)
    for view in (wide.mT, wide.transpose(0, 1), wide[::2, 1:], wide[:1].expand(5, 3, 6, 6)):
        torch.testing.assert_close(inverse(view), inverse(view.contiguous()), rtol=0, atol=1e-13)


@both
def test_derivatives(inverse):
    matrix = regular(2, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(inverse, matrix)
    assert torch.autograd.gradgradcheck(inverse, matrix)


def test_autocast_rounds_nothing_of_what_gpus_do():
    matrix = regular(3, 8, 8, dtype=torch.float32).requires_grad_()
    weight = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1))
    plain = torch.autograd.grad(Apart.apply(matrix), matrix, weight)[0]
    with torch.autocast("cpu", torch.bfloat16):
        found = Apart.apply(matrix)
        cast = torch.autograd.grad(found, matrix, weight)[0]
    assert found.dtype == torch.float32
    torch.testing.assert_close(cast, plain, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_transformed():
    matrix, along, step = regular(3, 2, 4, 4), regular(3, 2, 4, 4).flip(0), 1e-6
    mapped = torch.func.vmap(ops.inverse, in_dims=1, out_dims=1)(matrix)
    torch.testing.assert_close(mapped, ops.inverse(matrix), rtol=0, atol=1e-13)
    _, slope = torch.func.jvp(ops.inverse, (matrix,), (along,))
    difference = (torch.linalg.inv(matrix + step * along) - torch.linalg.inv(matrix - step * along)) / (2 * step)
    torch.testing.assert_close(slope, difference, rtol=0, atol=1e-7)


def test_traced_there_and_back_it_is_the_same():
    matrix = regular(2, 5, 5, dtype=torch.float32).requires_grad_()
    traced = aot_function(lambda x: Apart.apply(x).sin(), fw_compiler=nop, bw_compiler=nop)
    results = []
    for inverse in (traced, lambda x: torch.linalg.inv(x).sin()):
        found = inverse(matrix)
        results.append([found, *torch.autograd.grad(found.sum(), matrix)])
    torch.testing.assert_close(*results)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("op", ["inverse", "inverse_apart"])
def test_declared_as_pytorch_wants(op):
    given = regular(2, 3, 3, dtype=torch.float32).requires_grad_(op == "inverse")
    torch.library.opcheck(getattr(torch.ops.ropewalk, op).default, (given,))


def test_on_a_gpu_graphs_leave_it_out():
    op = torch.ops.ropewalk.inverse_apart.default
    assert torch.Tag.cudagraph_unsafe in op.tags
    with FakeTensorMode():
        graph = make_fx(ops.inverse)(torch.empty(2, 3, 3, device="cuda"))
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"] == [op]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_on_a_gpu_transforms_see_through_it():
    with FakeTensorMode():
        matrix = torch.empty(2, 3, 3, device="cuda")
        assert torch.func.vmap(ops.inverse)(matrix).shape == matrix.shape
        assert torch.func.jvp(ops.inverse, (matrix,), (matrix,))[1].shape == matrix.shape
