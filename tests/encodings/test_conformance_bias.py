"""Swin's bias against timm's modules and PyTorch's sampling, Transformer-XL's terms against XLNet's and by hand."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from timm.layers import RelPosBias
from timm.models.beit import Attention as BeitAttention
from timm.models.swin_transformer import WindowAttention
from torch import Tensor
from transformers import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetModel

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, gradients, leaf, normal, twin

BATCH, HEADS, KV_HEADS = 2, 4, 2
DTYPES = (torch.float64, torch.float32)


def made(name: str, dtype: torch.dtype = torch.float64, **options: object) -> rw.Encoding:
    """An encoding whose parameters are all of the order of 1."""
    torch.manual_seed(0)
    encoding = rw.create(name, head_dim=6, heads=HEADS, **options).to(dtype)
    for seed, parameter in enumerate(encoding.parameters()):
        parameter.data = normal(*parameter.shape, seed=50 + seed, dtype=dtype)
    return encoding


# Swin's table, its last three rows the class token's


def swin_pair(table: Tensor, sizes: tuple[int, int], prefix: int) -> rw.Encoding:
    """An encoding with timm's table (entries, heads)."""
    encoding = made("swin-bias", table.dtype, size=sizes, class_token=bool(prefix))
    entries = (2 * sizes[0] - 1) * (2 * sizes[1] - 1)
    encoding.table.data = table[:entries].detach().T.unflatten(1, (2 * sizes[0] - 1, -1)).contiguous()
    if prefix:
        encoding.prefix.data = table[entries:].detach().T.contiguous()
    return encoding


def as_timm(*tensors: Tensor) -> Tensor:
    """The table (h *entries), and the prefix (h 3) where there is one, as timm has them."""
    return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1).T


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("sizes", [(3, 5), (1, 7), (7, 1), (1, 1), (6, 4)])
def test_swin_bias(sizes, prefix, dtype):
    """Between whole positions every entry is timm's own, to the last bit."""
    peer = RelPosBias(sizes, HEADS, prefix_tokens=prefix).to(dtype)
    peer.relative_position_bias_table.data = normal(*peer.relative_position_bias_table.shape, seed=0, dtype=dtype)
    encoding, theirs = swin_pair(peer.relative_position_bias_table, sizes, prefix), peer.get_bias()
    q, k = (normal(BATCH, HEADS, prefix + math.prod(sizes), 6, seed=seed, dtype=dtype) for seed in (0, 1))
    ours = encoding(encoding.grid(*sizes)).prefixed(q=prefix, k=prefix).scores(q, k)
    assert torch.equal(ours.expand_as(theirs), theirs)
    mine = gradients(ours.expand_as(theirs), list(encoding.parameters()))
    (other,) = gradients(theirs, [peer.relative_position_bias_table])
    assert_close(as_timm(*mine), other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("kind", "prefix"), [(WindowAttention, 0), (BeitAttention, 1)], ids=["swin", "beit"])
def test_attention_of_timm(kind, prefix, dtype):
    """Swin's windows have no class token, BEiT's have: output, gradients of input, weights and table."""
    layer = kind(24, HEADS, window_size=(3, 5)).to(dtype)
    layer.relative_position_bias_table.data = normal(45 + 3 * prefix, HEADS, seed=0, dtype=dtype)
    encoding = swin_pair(layer.relative_position_bias_table, (3, 5), prefix)
    x = leaf(BATCH, prefix + 15, 24, seed=1, dtype=dtype)
    q, k, v = layer.qkv(x).unflatten(-1, (3, HEADS, 6)).permute(2, 0, 3, 1, 4)
    code = encoding(encoding.grid(3, 5)).prefixed(q=prefix, k=prefix)
    ours, theirs = layer.proj(rw.attend(q, k, v, code).transpose(1, 2).flatten(2)), layer(x)
    mine = gradients(ours, [x, layer.qkv.weight, *encoding.parameters()])
    others = gradients(theirs, [x, layer.qkv.weight, layer.relative_position_bias_table])
    for actual, expected in zip([ours, *mine[:2], as_timm(*mine[2:])], [theirs, *others], strict=True):
        assert_close(actual, expected)


def sampled(table: Tensor, q: Tensor, k: Tensor, size: tuple[int, ...]) -> Tensor:
    """Tables (h *entries) read by F.grid_sample at q - k, for q (B N A), k (B M A), in (B h N M).

    The farthest differences within the grid, ±(n - 1), are the corners, at ±1.
    """
    apart = (q[:, :, None] - k[:, None]).double() / torch.tensor([n - 1 for n in size], dtype=torch.float64)
    image = table.double().expand(len(q), *table.shape)
    points = apart.flip(-1)
    if len(size) == 1:
        image, points = image[..., None, :], F.pad(points, (0, 1))
    if len(size) == 3:
        points = points[..., None, :]
    read = F.grid_sample(image, points, mode="bilinear", padding_mode="border", align_corners=True)
    return read.reshape(len(q), table.shape[0], q.shape[1], k.shape[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("outside", ["error", "clamp"])
@pytest.mark.parametrize("size", [(3, 5), (6,), (2, 3, 5)], ids=str)
def test_swin_bias_between_entries(size, outside, dtype):
    """Two layers, grouped queries, a prefix without entries: gradients of the table and of the positions.

    Clamped, differences go beyond the table; otherwise they stay inside it.
    """
    axes, extent = len(size), torch.tensor([n - 1 for n in size])
    encoding = made("swin-bias", dtype, axes=axes, size=size, outside=outside, kv_heads=KV_HEADS, layers=2)
    reach = extent if outside == "error" else 3 * extent
    start = torch.tensor([0.0, 100.0 if outside == "clamp" else 0.0], dtype=torch.float64)[:, None, None]
    places = [(torch.special.ndtr(normal(BATCH, n, axes, seed=n)) * reach + start).to(dtype) for n in (5, 7)]
    queries, keys = (place.requires_grad_() for place in places)
    q = normal(BATCH, HEADS, 6, 6, seed=2, dtype=dtype)
    k = normal(BATCH, KV_HEADS, 9, 6, seed=3, dtype=dtype)
    code, table = encoding(queries, keys).prefixed(q=1, k=2), twin(encoding.table)
    ours = [code[layer].scores(q, k) for layer in range(2)]
    theirs = [F.pad(sampled(table[i], queries, keys, size).repeat_interleave(2, dim=1), (2, 0, 1, 0)) for i in range(2)]
    assert_same(ours, theirs, [queries, keys, (encoding.table, table)], 400.0 if outside == "clamp" else 4.0)


def test_swin_bias_of_samples_that_lie_far_apart():
    """Positions of two samples are never compared: each is inside its own 3 x 5 window."""
    encoding = made("swin-bias", size=(3, 5))
    window = encoding.grid(3, 5, dtype=torch.float64)
    q, k = normal(BATCH, HEADS, 15, 6, seed=0), normal(BATCH, HEADS, 15, 6, seed=1)
    ours = encoding(torch.stack([window, window + 100])).scores(q, k)
    assert_close(ours, encoding(window).scores(q, k).expand_as(ours))


@pytest.mark.parametrize("sizes", [(3, 5), (2, 4), (1, 1), (6, 10), (4, 7), (9, 2)])
def test_swin_bias_at_another_resolution(sizes):
    """Rescaled, a larger grid's outermost patches lie less than one patch of the table's grid beyond its entries."""
    encoding = made("swin-bias", size=(3, 5))
    places, table = encoding.grid(*sizes, resolution="rescale", dtype=torch.float64), twin(encoding.table)
    q, k = (normal(1, HEADS, len(places), 6, seed=seed) for seed in (0, 1))
    ours = encoding(places).scores(q, k)
    theirs = sampled(table, places[None], places[None], (3, 5))[0]
    assert_same(ours, theirs, [(encoding.table, table)])


@pytest.mark.parametrize(("sizes", "apart"), [((4, 5), "3, 4"), ((3, 6), "2, 5"), ((9, 9), "8, 8")])
def test_swin_bias_has_no_entries_beyond_its_grid(sizes, apart):
    encoding = made("swin-bias", size=(3, 5))
    with pytest.raises(ValueError, match=rf'\(3, 5\) apart \(or outside="clamp"\), got {apart}'):
        encoding(encoding.grid(*sizes, resolution="extrapolate"))


def test_swin_bias_beyond_its_grid_where_values_are_not_looked_at():
    """NaN for the pairs that no entry holds, and for no others; clamped, a number for each."""
    strict, clamped = (made("swin-bias", size=(3, 5), outside=outside) for outside in ("error", "clamp"))
    places = strict.grid(4, 6, resolution="extrapolate", dtype=torch.float64)
    q = normal(1, HEADS, 24, 6, seed=0)
    bias, held = (torch.vmap(lambda p, e=e: e(p).scores(q, q))(places[None])[0] for e in (strict, clamped))
    apart = (places[:, None] - places).abs()
    beyond = ((apart[..., 0] > 2) | (apart[..., 1] > 4)).expand_as(bias)
    assert torch.equal(bias.isnan(), beyond)
    assert held.isfinite().all()
    assert torch.equal(bias[~beyond], held[~beyond])


# Transformer-XL


def xl_by_hand(q: Tensor, k: Tensor, places: tuple[Tensor, Tensor], u: Tensor, v: Tensor, w: Tensor, base: float) -> Tensor:
    """All logits but q · k, (B H N M), one by one: for each pair of a query and a key its distance's sinusoid."""
    total, width = [], w.shape[-1]
    for b, h, i, j in product(range(len(q)), range(q.shape[1]), range(q.shape[2]), range(k.shape[2])):
        group, key_group = h * len(u) // q.shape[1], h * k.shape[1] // q.shape[1]
        distance = (places[0][b, i, 0] - places[1][b, j, 0]).double()
        phases = [distance * base ** (-2 * f / width) for f in range(width // 2)]
        r = w[group] @ torch.stack([phase.sin() for phase in phases] + [phase.cos() for phase in phases])
        query, key = q[b, h, i].double(), k[b, key_group, j].double()
        total.append((query.dot(r) + u[group].dot(key) + v[group].dot(r)) / math.sqrt(q.shape[-1]))
    return torch.stack(total).reshape(*q.shape[:3], k.shape[2])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("options", "base", "width"), [({}, 10000.0, 24), ({"base": 50.0, "width": 10}, 50.0, 10)])
def test_transformer_xl(options, base, width, dtype):
    """Two layers, grouped queries, any real positions, a prefix that gets nothing: gradients of all there is."""
    encoding = made("transformer-xl", dtype, kv_heads=KV_HEADS, layers=2, **options)
    assert encoding.weight.shape == (2, KV_HEADS, 6, width)
    q = leaf(BATCH, HEADS, 1 + 5, 6, seed=0, dtype=dtype)
    k = leaf(BATCH, KV_HEADS, 2 + 3, 6, seed=1, dtype=dtype)
    places = [(5 * normal(BATCH, n, 1, seed=n)).to(dtype).requires_grad_() for n in (5, 3)]
    code, ours, theirs = encoding(*places).prefixed(q=1, k=2), [], []
    mine = [encoding.u, encoding.v, encoding.weight]
    others = [twin(parameter) for parameter in mine]
    for layer in range(2):
        ours.append(code[layer].scores(*code[layer].qk(q, k)))
        bias = xl_by_hand(q[:, :, 1:], k[:, :, 2:], places, *(parameter[layer] for parameter in others), base)
        theirs.append(F.pad(bias, (2, 0, 1, 0)))
    assert_same(ours, theirs, [q, k, *places, *zip(mine, others, strict=True)], 16.0)


@pytest.mark.parametrize(("length", "past"), [(1, 0), (63, 0), (65, 0), (1, 62), (5, 63)])
def test_attention_of_xlnet(length, past):
    """XLNet's layer, its segments left out; with a memory before the queries: output and gradients.

    XLNet computes sinusoids in float32, of distances up to the length, and shifts rows to where they belong.
    """
    torch.manual_seed(0)
    config = XLNetConfig(vocab_size=8, d_model=24, n_layer=1, n_head=HEADS, d_inner=8, dropout=0.0)
    model = XLNetModel(config).eval()
    layer = model.layer[0].rel_attn
    for seed, parameter in enumerate((layer.q, layer.k, layer.v, layer.o, layer.r, layer.r_r_bias, layer.r_w_bias)):
        parameter.data = 0.3 * normal(*parameter.shape, seed=10 + seed, dtype=torch.float32)
    x, memory = leaf(length, BATCH, 24, seed=0, dtype=torch.float32), normal(past, BATCH, 24, seed=1, dtype=torch.float32)
    r = model.relative_positional_encoding(length, past + length, BATCH)
    theirs, _ = layer(x, None, None, None, r, None, mems=memory if past else None)

    encoding = rw.create("transformer-xl", head_dim=6, heads=HEADS)
    encoding.u.data, encoding.v.data = layer.r_w_bias.detach(), layer.r_r_bias.detach()
    encoding.weight.data = layer.r.detach().permute(1, 2, 0).contiguous()
    q = torch.einsum("ibh,hnd->bnid", x, layer.q)
    k, v = (torch.einsum("ibh,hnd->bnid", torch.cat([memory, x]), weight) for weight in (layer.k, layer.v))
    code = encoding(torch.arange(past, past + length), torch.arange(past + length))
    ours = layer.post_attention(x, rw.attend(q, k, v, code).permute(2, 0, 1, 3))

    mine = gradients(ours, [x, layer.q, layer.k, encoding.u, encoding.v, encoding.weight])
    others = [*gradients(theirs, [x, layer.q, layer.k, layer.r_w_bias, layer.r_r_bias, layer.r])]
    others[-1] = others[-1].permute(1, 2, 0)
    for actual, expected in zip([ours, *mine], [theirs, *others], strict=True):
        assert_close(actual, expected, 20.0)


@pytest.mark.parametrize("length", [1, 63, 65])
def test_transformer_xl_of_half_precision(length):
    """q and k in bfloat16: what is added is computed from their values in float32."""
    encoding = made("transformer-xl", torch.float32)
    q, k = (normal(1, HEADS, length, 6, seed=seed).bfloat16() for seed in (0, 1))
    ours = encoding(torch.arange(length)).scores(q, k)
    assert ours.dtype is torch.float32
    exact = made("transformer-xl", torch.float64)(torch.arange(length)).scores(q.double(), k.double())
    assert_close(ours, exact, length)
