"""Explicit tables of wave vectors: pairs of channels rotated by hand in float64, and what is refused."""

import json
import math
import re

import pytest
import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.testing import check_config
from tests.support.float64_reference import TOLERANCE, assert_close, assert_same, leaf, normal, twin

BATCH, HEADS, KV_HEADS, HEAD_DIM, PAIRS = 2, 4, 2, 11, 4
DTYPES = (torch.float64, torch.float32)


def rotated(
    x: Tensor, table: Tensor, positions: Tensor, *, interleaved: bool, factor: float = 1.0, sections: tuple[int, ...] = ()
) -> Tensor:
    """x (B H N D) by a table (h P A), one pair and one axis after another; positions ([B] N A)."""
    positions = positions.double().expand(len(x), *positions.shape[-2:])
    heads = []
    for head in range(x.shape[1]):
        waves = table[head * table.shape[0] // x.shape[1]]
        channels = list(x[:, head].double().unbind(-1))
        members = [(2 * i, 2 * i + 1) if interleaved else (i, i + len(waves)) for i in range(len(waves))]
        if sections:
            shares = torch.arange(2 * sum(sections)).split([2 * count for count in sections])
            members = [pair for share in shares for pair in zip(*share.chunk(2), strict=True)]
        for pair, (i, j) in enumerate(members):
            angle = sum(waves[pair, axis] * positions[..., axis] for axis in range(waves.shape[-1]))
            a, b = channels[i], channels[j]
            channels[i] = factor * (a * torch.cos(angle) - b * torch.sin(angle))
            channels[j] = factor * (a * torch.sin(angle) + b * torch.cos(angle))
        heads.append(torch.stack(channels, dim=-1))
    return torch.stack(heads, dim=1)


def tokens(queries: int, keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return leaf(BATCH, HEADS, queries, HEAD_DIM, seed=0, dtype=dtype), leaf(
        BATCH, KV_HEADS, keys, HEAD_DIM, seed=1, dtype=dtype
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("lead", [(), (1,), (KV_HEADS,), (3, 1), (3, KV_HEADS)], ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_tables_of_all_shapes(axes, lead, learned, interleaved, dtype):
    """Grouped queries, channels left over, a pair that does not rotate, keys elsewhere, positions per sample."""
    table = normal(*lead, PAIRS, axes, seed=3)
    table[..., 1, :] = 0.0
    options = {"table": table, "factor": 1.25, "interleaved": interleaved, "layers": 3 if len(lead) == 2 else None}
    encoding = rw.create("waves", head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, learned=learned, **options).to(dtype)
    assert encoding.axes == axes
    places = [3 * normal(BATCH, 7, axes, seed=4, dtype=dtype), 3 * normal(5, axes, seed=5, dtype=dtype)]
    xs, code, own = tokens(7, 5, dtype), encoding(*places), twin(encoding.wave)
    layers = range(3 if encoding.layers else 1)
    ours = [y for layer in layers for y in (code[layer] if encoding.layers else code).qk(*xs)]
    theirs = []
    for layer in layers:
        waves = own[layer] if len(lead) == 2 else own
        theirs += [rotated(x, waves, p, interleaved=interleaved, factor=1.25) for x, p in zip(xs, places, strict=True)]
    wanted = table.float().double() if learned or dtype is torch.float32 else table  # parameters start in float32
    rows = wanted[None] if not lead else wanted
    assert torch.equal(own.detach(), rows.expand_as(own))
    assert own.shape[-3] == (KV_HEADS if learned else (lead or (1,))[-1])
    assert_same(ours, theirs, [*xs, *([(encoding.wave, own)] if learned else [])], 30.0)


@pytest.mark.parametrize("length", [1, 63, 65])
def test_a_text_far_away(length):
    """At position 1,000,000 float32 angles are as exact as near zero: whole turns are subtracted in float64."""
    table = torch.tensor([[1.0], [0.1], [1e-3]]).double()
    encoding = rw.create("waves", table=table, head_dim=6, heads=2)
    places = torch.arange(1_000_000 - length, 1_000_000)
    x = leaf(1, 2, length, 6, seed=0, dtype=torch.float32)
    theirs = rotated(x, table.float().double()[None], places[:, None], interleaved=True)
    assert_same(encoding(places).q(x), theirs, [x])


@pytest.mark.parametrize(
    ("name", "options"),
    [("rope", {"interleaved": True}), ("axial", {"variant": "eva"}), ("mixed", {"layers": 2}), ("mrope", {})],
)
def test_tables_of_other_encodings(name, options):
    """What an encoding rotates by is a table: both give the same numbers, and the same scores with a rule."""
    other = rw.create(name, head_dim=12, heads=2, **options)
    shape = {"head_dim": 12, "heads": 2, "layers": other.layers, "interleaved": other.interleaved}
    encoding = rw.create("waves", table=other.waves().detach(), **shape)
    points = encoding.grid(*[4, 7, 3][: other.axes])
    angles = encoding(points).q_angle, other(points).q_angle
    for each in (torch.cos, torch.sin):  # whole turns are subtracted from one
        torch.testing.assert_close(each(angles[0]), each(angles[1]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sections", [(4,), (1, 3), (2, 1, 1), (1, 1, 1, 1)], ids=str)
def test_sections(sections, dtype):
    """Half-split within each section; channels left over stay. What all ways of asking give, and the matrices."""
    table = normal(KV_HEADS, PAIRS, 2, seed=3)
    options = {"interleaved": False, "sections": sections, "factor": 1.25, "learned": True}
    encoding = rw.create("waves", table=table, head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, **options).to(dtype)
    places, own = 3 * normal(7, 2, seed=4, dtype=dtype), twin(encoding.wave)
    q, k = tokens(7, 7, dtype)
    code = encoding(places)
    theirs = [rotated(x, own, places, interleaved=False, sections=sections, factor=1.25) for x in (q, k)]
    projection = torch.cat([q, k, k], dim=1).transpose(1, 2)
    *both, v = code.qkv(projection, HEADS)
    assert torch.equal(v, k)
    assert_same([*code.qk(q, k), *both], [*theirs, *theirs], [q, k, (encoding.wave, own)], 30.0)
    by_matrix = code.matrices().repeat_interleave(2, -4) @ q.unsqueeze(-1)
    assert_close(by_matrix.squeeze(-1), theirs[0], 30.0)
    with torch.no_grad():
        lying = [x.detach().clone() for x in (q, k)]
        code.qk_(*lying)
    for mine, other in zip(lying, theirs, strict=True):
        assert_close(mine, other.detach(), 30.0)
    assert f"half-split in sections of {', '.join(map(str, sections))}" in repr(encoding)
    assert rw.create(**json.loads(json.dumps(encoding.config()))).sections == sections


@pytest.mark.parametrize(("name", "sections"), [("axial", (3, 3)), ("mixed", (2, 4)), ("waves", (3, 3))])
def test_sections_are_another_order_of_channels(name, sections):
    """Weights in this layout give the scores that half-split ones give."""
    shape = {"head_dim": 12, "heads": 2, "interleaved": False}
    torch.manual_seed(0)
    plain = rw.create(name, **shape)
    parted = rw.create(name, **shape, sections=sections)
    parted.load_state_dict(plain.state_dict())
    q, k = normal(1, 2, 15, 12, seed=0).float(), normal(1, 2, 15, 12, seed=1).float()
    points = plain.grid(3, 5)
    moved = [rw.layouts.to_sections(x.flatten(0, 2).T.contiguous(), 12, sections, source="half-split") for x in (q, k)]
    moved = [x.T.reshape(y.shape) for x, y in zip(moved, (q, k), strict=True)]
    scores = [a @ b.mT for a, b in (plain(points).qk(q, k), parted(points).qk(*moved), parted(points).qk(q, k))]
    torch.testing.assert_close(scores[1], scores[0], rtol=0, atol=1e-5)
    assert (scores[2] - scores[0]).abs().max() > 1e-2


def test_extension_is_that_of_mixed():
    mixed = rw.create("mixed", head_dim=12, heads=2, size=(3, 5), extension="yarn", length=(6, 9)).double()
    options = {"size": (3, 5), "extension": "yarn", "length": (6, 9), "factor": 2.0}
    encoding = rw.create("waves", table=mixed.wave, head_dim=12, heads=2, **options).double()
    q, k = leaf(BATCH, 2, 15, 12, seed=0), leaf(BATCH, 2, 15, 12, seed=1)
    points = encoding.grid(3, 5)
    assert_same(encoding(points).qk(q, k), [2 * x for x in mixed(points).qk(q, k)], [q, k])
    assert torch.equal(encoding.at((3, 5)).waves(), mixed.wave)


def test_without_a_table_it_is_axial():
    encoding = rw.create("waves", head_dim=14, heads=2)
    frequencies = [1e4 ** (-j / 3) for j in range(3)]
    table = [[f, 0.0] for f in frequencies] + [[0.0, f] for f in frequencies]
    assert encoding.config()["table"] is None
    torch.testing.assert_close(encoding.waves()[0].tolist(), table, rtol=1e-6, atol=0)


# Numbers are kept


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.mT.contiguous().mT, lambda x: x[:, ::2]], ids=["plain", "turned", "step"]
)
def test_a_tensor_comes_back(view, dtype):
    table = view(normal(5, 4, seed=0).to(dtype)).requires_grad_()
    encoding = rw.create("waves", table=table, head_dim=12, heads=2)
    config = json.loads(json.dumps(encoding.config()))
    assert torch.equal(torch.tensor(config["table"], dtype=torch.float64), table.double())
    assert torch.equal(rw.create(**config).double().wave[0], table.double())
    assert torch.equal(encoding.wave[0], table.float())
    assert not encoding.wave.requires_grad


def test_a_table_is_copied():
    default, table = torch.get_default_dtype(), normal(3, 2, seed=0)
    before = table.tolist()
    try:
        torch.set_default_dtype(torch.float64)
        encoding = rw.create("waves", table=table, head_dim=12)
    finally:
        torch.set_default_dtype(default)
    table.zero_()
    encoding.wave.zero_()
    assert encoding.table == before
    encoding.reset_parameters()
    assert encoding.wave[0].tolist() == before


def test_a_long_table_is_not_shown():
    short, long = (rw.create("waves", table=normal(n, 3, seed=0), head_dim=128) for n in (4, 64))
    assert "table=[[" in repr(short)
    assert repr(long) == "Waves(head_dim=128, axes=3, table=...)  # 3 axes, 64 pairs, interleaved, table (64, 3)"
    assert len(long.config()["table"]) == 64
    check_config(long)


def test_integers_are_numbers():
    assert rw.create("waves", table=[[1, 0], [0, 2]], head_dim=4).wave[0].tolist() == [[1.0, 0.0], [0.0, 2.0]]


# What is refused


@pytest.mark.parametrize(
    ("options", "reason"),
    {
        "ragged": ({"table": [[1.0, 2.0], [3.0]]}, r"table\[1\] must have 2 entries.*got 1"),
        "mixed depth": ({"table": [[1.0], 2.0]}, r"table\[1\] must be a list of 1.*got 2.0"),
        "deeper": ({"table": [[1.0, [2.0]]]}, r"table\[0\]\[1\] must be a finite number, got \[2.0\]"),
        "nan": ({"table": [[1.0, math.nan]]}, r"table\[0\]\[1\] must be a finite number, got nan"),
        "words": ({"table": "rows"}, r"nested lists of numbers or a tensor, got 'rows'"),
        "nan in a tensor": ({"table": torch.tensor([[1.0, math.nan, math.inf]])}, "finite numbers, got 2 that are not"),
        "complex": ({"table": torch.ones(2, 2, dtype=torch.complex64)}, "real numbers, got a tensor, torch.complex64"),
        "meta": ({"table": torch.ones(2, 2, device="meta")}, "meta device has none"),
        "flat": ({"table": [1.0, 2.0]}, r"\(P, A\).*got \(2,\)"),
        "empty": ({"table": []}, r"\(P, A\).*got \(0,\)"),
        "no pairs": ({"table": torch.ones(0, 2)}, r"none of them 0, got \(0, 2\)"),
        "too many pairs": ({"table": torch.ones(5, 2)}, r"at most head_dim / 2 = 4 pairs, got \(5, 2\)"),
        "axes": ({"table": torch.ones(4, 2), "axes": 3}, r"each of axes=3.*got \(4, 2\)"),
        "heads": ({"table": torch.ones(3, 4, 2)}, r"for 1 or heads=4, .*got \(3, 4, 2\)"),
        "query heads": ({"table": torch.ones(4, 4, 2), "kv_heads": 2}, r"for 1 or kv_heads=2, .*got \(4, 4, 2\)"),
        "no layers": ({"table": torch.ones(3, 1, 4, 2)}, r"layers=L, got \(3, 1, 4, 2\) and layers=None"),
        "layers": ({"table": torch.ones(3, 1, 4, 2), "layers": 2}, r"got \(3, 1, 4, 2\) and layers=2"),
        "shared": ({"table": torch.ones(4, 4, 2), "learned": True, "shared": True}, "a table for all heads"),
        "shared and fixed": ({"table": torch.ones(4, 2), "shared": True}, "shared=True needs learned=True"),
        "too narrow": ({"axes": 5}, "head_dim of 10 or more, got 8"),
        "sections": ({"table": torch.ones(4, 2), "sections": [2, 2]}, "sections are half-split: .* got interleaved=True"),
        "sum of sections": ({"table": torch.ones(4, 2), "sections": [5], "interleaved": False}, "4 pairs, got 5 = 5"),
        "empty section": ({"table": torch.ones(4, 2), "sections": [4, 0], "interleaved": False}, "positive integer, got 0"),
        "factor": ({"factor": 0.0}, "factor must be a number above zero"),
    }.values(),
)  # fmt: skip
def test_what_is_refused(options, reason):
    with pytest.raises(ValueError, match=re.compile(reason, re.DOTALL)):
        rw.create("waves", head_dim=8, heads=4, **options)


def test_the_reference_tells_layouts_apart():
    """What the comparisons above rest on: another order of channels, a wave more or a factor gives other numbers."""
    x, table, places = normal(1, 2, 5, HEAD_DIM, seed=0), normal(1, PAIRS, 2, seed=1), normal(5, 2, seed=2)
    plain = rotated(x, table, places, interleaved=True)
    for other in (
        rotated(x, table, places, interleaved=False),
        rotated(x, table.flip(-1), places, interleaved=True),
        rotated(x, table, places, interleaved=True, factor=1.25),
    ):
        with pytest.raises(AssertionError):
            assert_close(other, plain)
    assert TOLERANCE[torch.float64] < 1e-12
