"""Learned tables that are read at many places: their gradient, and when flex attention is worth it."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import ropewalk as rw
from ropewalk.attention import _spares
from ropewalk.code.lookup import Lookup, read


@pytest.mark.filterwarnings("ignore:.torch.jit.script:FutureWarning")  # torch's own, of forward mode
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("group", [1, 2])
def test_gradients_of_a_table_are_the_sums_of_its_places(batch, group):
    torch.manual_seed(0)
    table = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    head = (torch.arange(2 * group) // group)[:, None, None]
    index = torch.randint(5, (*batch, 1, 3, 4))
    weight = torch.randn(*batch, 2 * group, 3, 4, dtype=torch.float64)
    found = Lookup.apply(table, head, index)
    wanted = torch.zeros(2, 5, dtype=torch.float64)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in weight.shape)).tolist():
        *b, h, i, j = place
        entry = index[(*b, 0, i, j)]
        assert found[tuple(place)] == table[h // group, entry]
        wanted[h // group, entry] += weight[tuple(place)]
    torch.testing.assert_close(torch.autograd.grad((found * weight).sum(), table)[0], wanted)
    assert torch.autograd.gradgradcheck(lambda t: Lookup.apply(t, head, index) ** 2, table)
    assert torch.equal(read(table, head, index), found)
    ahead = torch.randn_like(table)
    with forward_ad.dual_level():
        dual = Lookup.apply(forward_ad.make_dual(table.detach(), ahead), head, index)
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, ahead[head, index])


def test_tables_are_read_under_vmap_and_by_one_place():
    table, head = torch.randn(4, 2, 5, requires_grad=True), torch.arange(2)[:, None, None]
    index = torch.randint(5, (1, 3, 3))
    every = torch.func.vmap(lambda one: torch.func.grad(lambda t: Lookup.apply(t, head, index).square().sum())(one))(table)
    for one, found in zip(table, every, strict=True):
        torch.testing.assert_close(torch.autograd.grad(one[head, index].square().sum(), one)[0], found)
    assert read(table[0], torch.tensor(1), torch.tensor(3)) == table[0, 1, 3]


def encoded(name, tokens, batch=None, **options):
    encoding = rw.create(name, head_dim=64, heads=8, axes=1, **options)
    places = torch.arange(tokens)
    return encoding(places if batch is None else torch.stack([places + i for i in range(batch)]))


@pytest.mark.parametrize(
    ("name", "batch", "tokens", "positions", "mask", "wanted"),
    [
        ("alibi", 1, 2896, None, None, False),  # 8 · 2896² is just below 2^26
        ("alibi", 1, 2897, None, None, True),
        ("alibi", 64, 512, None, None, False),  # one mask for the whole batch
        ("alibi", 64, 512, 64, None, True),
        ("alibi", 64, 512, None, 64, True),
        ("alibi", 64, 512, None, 1, False),
        ("none", 1, 4096, None, None, False),
        ("t5-bias", 1, 4096, None, None, False),  # its table learns
        ("t5-bias", 1, 11586, None, None, True),  # and now the mask has more than 2^30 entries
        ("swin-bias", 1, 4096, None, None, False),
    ],
)
def test_flex_attention_is_for_large_masks_that_learn_nothing(name, batch, tokens, positions, mask, wanted):
    options = {"size": (tokens,)} if name == "swin-bias" else {}
    code = encoded(name, tokens, positions, **options)
    with FakeTensorMode():
        q = torch.empty(batch, 8, tokens, 64, device="cuda", dtype=torch.bfloat16)
        seen = None if mask is None else torch.empty(mask, 1, tokens, tokens, device="cuda", dtype=torch.bool)
    assert _spares(q, q, code, seen) is wanted
    if name == "t5-bias":
        with torch.no_grad():
            assert _spares(q, q, code, seen)
    chained = rw.create("chain", parts=[{"name": "rope"}, {"name": name, **options}], head_dim=64, heads=8, axes=1)
    assert _spares(q, q, chained(torch.arange(tokens)), seen) is (wanted and positions is None)
