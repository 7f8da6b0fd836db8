"""Codes whose tables were cast below float32 are refused where they are used, as are q and k that are not floating."""

import pytest
import torch
from torch.utils import _pytree as pytree

import ropewalk as rw
from ropewalk.code import Basis, Chain, ContentBias
from ropewalk.encodings.alibi import Distance
from tests.support.random_tensors import normal

ANGLE, POSITIONS, IDENTITY = normal(2, 3, 3).float(), normal(3, 1).float(), torch.eye(7).expand(2, 7, 7)
ROTATION = rw.Rotation(head_dim=7, interleaved=True, q_angle=ANGLE, k_angle=ANGLE, q_gain=ANGLE, k_gain=ANGLE)
BASIS = Basis(head_dim=7, basis=IDENTITY)
BIAS = rw.Bias(rule=Distance(), table=torch.ones(2), q_positions=POSITIONS, k_positions=POSITIONS, prefix=torch.ones(2, 3))
CODES = {
    "rotation": ROTATION,
    "sphere": rw.Sphere(head_dim=7, q_angle=normal(2, 3, 2, 3).float()),
    "turn": rw.Turn(head_dim=7, q_matrix=normal(2, 3, 2, 3, 3).float()),
    "bias": BIAS,
    "content": ContentBias(
        u=normal(2, 7).float(),
        v=normal(2, 7).float(),
        sine=normal(2, 7, 2).float(),
        cosine=normal(2, 7, 2).float(),
        q_angle=normal(3, 2).float(),
        k_angle=normal(3, 2).float(),
    ),
    "basis": BASIS,
    "chain": Chain(codes=(BASIS, ROTATION)),
    "chain-bias": Chain(codes=(BIAS, BIAS)),
}
X = normal(1, 2, 3, 7).float()
USES = {
    "q": lambda code: code.q(X),
    "k": lambda code: code.k(X),
    "qk": lambda code: code.qk(X, X),
    "qk_": lambda code: code.qk_(X.clone(), X.clone()),
    "qkv": lambda code: code.qkv(X.repeat(1, 3, 1, 1).transpose(1, 2), 2),
    "attend": lambda code: rw.attend(X, X, X, code),
}
SCORES = {"scores": lambda code: code.scores(X, X), "score_mod": lambda code: code.score_mod(X, X)}
MATRICES = {"matrices": lambda code: code.matrices(), "key_matrices": lambda code: code.key_matrices()}
every_code = pytest.mark.parametrize("code", CODES.values(), ids=CODES)


def uses_of(code):
    return [*USES.values(), *(SCORES.values() if code.biased else ()), *(MATRICES.values() if code.rotary else ())]


def cast_table(code, index, dtype):
    """The code with one of its tensors in another dtype."""
    leaves, structure = pytree.tree_flatten(code)
    return pytree.tree_unflatten([leaf.to(dtype) if i == index else leaf for i, leaf in enumerate(leaves)], structure)


@every_code
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2], ids=str)
def test_a_single_table_that_was_cast_is_refused_by_name(code, dtype):
    for index, name in enumerate(code.tables):
        narrow = cast_table(code, index, dtype)
        for use in uses_of(code):
            with pytest.raises(
                ValueError, match=rf"{name.rpartition('.')[2]} of a code.*{dtype}.*cast_forward_inputs=False"
            ):
                use(narrow)


@every_code
def test_codes_in_float32_and_float64_are_used(code):
    for dtype in (torch.float32, torch.float64):
        wide = pytree.tree_map(lambda table, dtype=dtype: table.to(dtype), code)
        for use in uses_of(code):
            use(wide)


@every_code
@pytest.mark.parametrize("dtype", [torch.int8, torch.long, torch.bool], ids=str)
def test_q_and_k_that_are_not_floating_are_refused(code, dtype):
    whole = X.to(dtype)
    for call in (
        lambda: code.q(whole),
        lambda: code.k(whole),
        lambda: code.qk(X, whole),
        lambda: code.qk_(whole, X),
        lambda: code.qkv(whole.repeat(1, 3, 1, 1).transpose(1, 2), 2),
        lambda: rw.attend(whole, X, X, code),
    ):
        with pytest.raises(ValueError, match=f"must be floating, got {dtype}"):
            call()


def test_the_code_of_no_encoding_refuses_integers_too():
    for call in (rw.Code().q, rw.Code().k):
        with pytest.raises(ValueError, match=r"must be floating, got torch.int8"):
            call(X.to(torch.int8))


def test_offsets_that_were_cast_and_tokens_of_integers_are_refused():
    offset, x = normal(3, 4).float(), torch.ones(2, 3, 4)
    with pytest.raises(ValueError, match=r"offset of a code.*torch.bfloat16.*cast_forward_inputs"):
        rw.Offset(offset=offset.bfloat16()).tokens(x)
    with pytest.raises(ValueError, match=r"tokens must be floating, got torch.int64"):
        rw.Offset(offset=offset).tokens(x.long())


@pytest.mark.parametrize("code", [CODES["sphere"], CODES["rotation"]], ids=["sphere", "rotation"])
def test_all_layers_of_a_code_that_was_cast_are_refused(code):
    """Of a sphere, `unbind` computes matrices in float32: from narrow angles they would look exact."""
    layered = pytree.tree_map(lambda table: table.expand(2, *table.shape), code)
    narrow = type(code)(**{**vars(layered), "layers": 2} | {name: t.bfloat16() for name, t in layered.tables.items()})
    with pytest.raises(ValueError, match="cast_forward_inputs"):
        narrow.unbind()
