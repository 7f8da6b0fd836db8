"""The rotary embeddings, T5 bias and ALiBi of transformers.

Its rotary modules compute angles in float32 whatever the model's dtype, so float32 is what is compared.
"""

import math

import pytest
import torch
from torch import Tensor
from transformers import (
    BloomConfig,
    DINOv3ViTConfig,
    GlmConfig,
    GPTJConfig,
    GPTNeoXConfig,
    LlamaConfig,
    PhiConfig,
    T5Config,
)
from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor
from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3
from transformers.models.glm import modeling_glm as glm
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.phi import modeling_phi as phi
from transformers.models.t5.modeling_t5 import T5Attention

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, leaf, normal

BATCH, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 14
LENGTHS = [1, 63, 65]


def places(length: int) -> Tensor:
    """One sample from 0 on, one with gaps that begins before 0."""
    return torch.stack([torch.arange(length), 2 * torch.arange(length) - 7])


def heads(count: int, length: int, head_dim: int = HEAD_DIM, seed: int = 0) -> Tensor:
    return leaf(BATCH, count, length, head_dim, seed=seed, dtype=torch.float32)


def split(x: Tensor, head_dim: int) -> Tensor:
    """(B N H·D) to (B H N D)."""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def causal_mask(length: int) -> Tensor:
    return torch.full((length, length), -math.inf).triu(1)[None, None]


def llama_config(**rope: object) -> LlamaConfig:
    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0} | rope,
    )
    config._attn_implementation = "eager"
    return config


# Rotary embeddings


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("base", [10000.0, 500000.0, 100.0])
def test_rope_like_llama(base, length):
    q, k, position_ids = heads(HEADS, length), heads(KV_HEADS, length, seed=1), places(length)
    cos, sin = llama.LlamaRotaryEmbedding(llama_config(rope_theta=base))(q, position_ids)
    encoding = rw.create("rope", head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, base=base)
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    assert_same(encoding(position_ids).qk(q, k), theirs, [q, k], position_ids.abs().max().item())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("factor", "rotary_dim"), [(0.25, 6), (0.5, 12), (1.0, 24)])
@pytest.mark.parametrize(
    ("peer", "kind", "config", "interleaved"),
    [
        (gpt_neox, "GPTNeoXRotaryEmbedding", GPTNeoXConfig, False),
        (phi, "PhiRotaryEmbedding", PhiConfig, False),
        (glm, "GlmRotaryEmbedding", GlmConfig, True),
    ],
    ids=["gpt-neox", "phi", "glm"],
)
def test_partial_rope(peer, kind, config, interleaved, factor, rotary_dim, length):
    rope = {"rope_type": "default", "rope_theta": 777.0, "partial_rotary_factor": factor}
    rotary = getattr(peer, kind)(
        config(hidden_size=HEADS * 24, num_attention_heads=HEADS, head_dim=24, rope_parameters=rope)
    )
    q, k, position_ids = heads(HEADS, length, 24), heads(HEADS, length, 24, seed=1), places(length)
    cos, sin = rotary(q, position_ids)
    assert cos.shape[-1] == rotary_dim
    if peer is phi:  # whose attention does this around the function
        turned = peer.apply_rotary_pos_emb(q[..., :rotary_dim], k[..., :rotary_dim], cos, sin)
        theirs = [torch.cat([x, y[..., rotary_dim:]], -1) for x, y in zip(turned, (q, k), strict=True)]
    else:
        theirs = peer.apply_rotary_pos_emb(q, k, cos, sin)
    options = {"base": 777.0, "rotary_dim": rotary_dim, "interleaved": interleaved}
    encoding = rw.create("rope", head_dim=24, heads=HEADS, **options)
    assert_same(encoding(position_ids).qk(q, k), theirs, [q, k], position_ids.abs().max().item())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("factor", "rotary_dim"), [(0.25, 2), (0.5, 6), (1.0, 14)])
def test_proportional_rope(factor, rotary_dim, length):
    config = llama_config(rope_type="proportional", rope_theta=5000.0, partial_rotary_factor=factor)
    q, k, position_ids = heads(HEADS, length), heads(KV_HEADS, length, seed=1), places(length)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, position_ids)
    options = {"base": 5000.0, "rotary_dim": rotary_dim, "proportional": True}
    encoding = rw.create("rope", head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, **options)
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    assert_same(encoding(position_ids).qk(q, k), theirs, [q, k], position_ids.abs().max().item())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(80, 64), (14, 14), (14, 6)])
def test_rope_like_gptj(head_dim, rotary_dim, length):
    """GPT-J turns (B, N, H, D), by a table that begins at position 0."""
    position_ids = places(length) + 7
    q, k = heads(HEADS, length, head_dim), heads(HEADS, length, head_dim, seed=1)
    sin, cos = gptj.create_sinusoidal_positions(3 * length + 7, rotary_dim)[position_ids].chunk(2, dim=-1)
    theirs = []
    for x in (q, k):
        turned = gptj.apply_rotary_pos_emb(x.transpose(1, 2)[..., :rotary_dim], sin, cos).transpose(1, 2)
        theirs.append(torch.cat([turned, x[..., rotary_dim:]], dim=-1))
    encoding = rw.create("rope", head_dim=head_dim, heads=HEADS, interleaved=True, rotary_dim=rotary_dim)
    assert_same(encoding(position_ids).qk(q, k), theirs, [q, k], position_ids.max().item())


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(("head_dim", "base"), [(64, 100.0), (32, 100.0), (48, 30.0)])
@pytest.mark.parametrize("sizes", [(3, 5), (1, 7), (37, 53), (1, 1)])
def test_dinov3(sizes, head_dim, base, prefix):
    """Images of whole patches of 2 x 2 pixels; class and register tokens come first."""
    config = DINOv3ViTConfig(hidden_size=HEADS * head_dim, num_attention_heads=HEADS, patch_size=2, rope_theta=base)
    rotary = dinov3.DINOv3ViTRopePositionEmbedding(config).eval()
    cos, sin = rotary(torch.zeros(1, 3, 2 * sizes[0], 2 * sizes[1]))
    encoding = rw.create("dinov3", head_dim=head_dim, heads=HEADS, base=base)
    code = encoding(encoding.grid(*sizes))
    assert_close(code.q_angle[0].cos().tile(2), cos)
    assert_close(code.q_angle[0].sin().tile(2), sin)
    q, k = (heads(HEADS, prefix + sizes[0] * sizes[1], head_dim, seed=seed) for seed in (0, 1))
    theirs = dinov3.apply_rotary_pos_emb(q, k, cos, sin)
    assert_same(code.prefixed(q=prefix, k=prefix).qk(q, k), theirs, [q, k])


# Whole attention layers


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_attention_of_llama(base, length):
    """Grouped queries and a causal mask: output, gradients of input and weights."""
    torch.manual_seed(0)
    config = llama_config(rope_theta=base)
    layer, x, position_ids = llama.LlamaAttention(config, 0), normal(BATCH, length, 24, seed=0).float(), places(length)
    x.requires_grad_()
    embeddings = llama.LlamaRotaryEmbedding(config)(x, position_ids)
    theirs, _ = layer(x, embeddings, causal_mask(length))
    code = rw.create("rope", head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, base=base)(position_ids)
    q, k, v = (split(project(x), HEAD_DIM) for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    ours = layer.o_proj(joined(rw.attend(q, k, v, code, causal=True)))
    leaves = [x, layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]
    assert_same(ours, theirs, leaves, position_ids.abs().max().item())


def test_decoding_of_llama():
    """The last rows of a causal layer are what new queries see over all keys."""
    torch.manual_seed(0)
    config, encoding = llama_config(), rw.create("rope", head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS)
    layer, x, position_ids = llama.LlamaAttention(config, 0), normal(BATCH, 63, 24, seed=0).float(), places(63)
    theirs, _ = layer(x, llama.LlamaRotaryEmbedding(config)(x, position_ids), causal_mask(63))
    q, k, v = (split(project(x), HEAD_DIM) for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    code = encoding(position_ids[:, -5:], position_ids)
    ours = layer.o_proj(joined(rw.attend(q[:, :, -5:], k, v, code, causal=True)))
    assert_close(ours, theirs[:, -5:], position_ids.max().item())


def test_attention_of_gptj():
    torch.manual_seed(0)
    config = GPTJConfig(n_embd=HEADS * 20, n_head=HEADS, rotary_dim=16, attn_pdrop=0.0, resid_pdrop=0.0, n_positions=200)
    layer, x = gptj.GPTJAttention(config, 0), leaf(BATCH, 63, HEADS * 20, seed=0, dtype=torch.float32)
    position_ids = places(63) + 7
    theirs, _ = layer(x, attention_mask=causal_mask(63), position_ids=position_ids)
    code = rw.create("rope", head_dim=20, heads=HEADS, interleaved=True, rotary_dim=16)(position_ids)
    q, k, v = (split(project(x), 20) for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    ours = layer.out_proj(joined(rw.attend(q, k, v, code, causal=True)))
    assert_same(ours, theirs, [x, layer.q_proj.weight, layer.k_proj.weight], position_ids.max().item())


# T5's relative bias


def t5_pair(dtype: torch.dtype, decoder: bool, buckets: int, distance: int) -> tuple[T5Attention, rw.Encoding]:
    torch.manual_seed(0)
    config = T5Config(
        d_model=24,
        d_kv=7,
        num_heads=6,
        is_decoder=decoder,
        dropout_rate=0.0,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance,
    )
    config._attn_implementation = "eager"
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).to(dtype)
    options = {"buckets": buckets, "max_distance": distance, "bidirectional": not decoder}
    encoding = rw.create("t5-bias", head_dim=7, heads=6, **options).to(dtype)
    encoding.table.data = layer.relative_attention_bias.weight.detach().T.clone()
    return layer, encoding


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (12, 50)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (63, 65), (65, 63), (300, 300)])
def test_t5_bias(queries, keys, buckets, distance, decoder, dtype):
    layer, encoding = t5_pair(dtype, decoder, buckets, distance)
    theirs = layer.compute_bias(queries, keys)
    code = encoding(torch.arange(queries), torch.arange(keys))
    ours = code.scores(normal(1, 6, queries, 7, seed=0, dtype=dtype), normal(1, 6, keys, 7, seed=1, dtype=dtype))
    assert torch.equal(ours.expand_as(theirs), theirs)
    weight = normal(*theirs.shape, seed=2, dtype=dtype)
    (mine,) = torch.autograd.grad((ours * weight).sum(), encoding.table)
    (other,) = torch.autograd.grad((theirs * weight).sum(), layer.relative_attention_bias.weight)
    assert_close(mine, other.T)


@pytest.mark.parametrize("past", [1, 62, 200])
def test_t5_bias_while_decoding(past):
    layer, encoding = t5_pair(torch.float32, True, 32, 128)
    theirs = layer.compute_bias(3, past + 3, past_seen_tokens=past)
    code = encoding(torch.arange(past, past + 3), torch.arange(past + 3))
    ours = code.scores(normal(1, 6, 3, 7, seed=0), normal(1, 6, past + 3, 7, seed=1))
    assert torch.equal(ours.expand_as(theirs), theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("decoder", [False, True])
def test_attention_of_t5(decoder, dtype):
    """T5 does not scale its logits."""
    layer, encoding = t5_pair(dtype, decoder, 32, 128)
    x = leaf(BATCH, 65, 24, seed=0, dtype=dtype)
    theirs, *_ = layer(x, mask=causal_mask(65).to(dtype) if decoder else None)
    q, k, v = (split(project(x), 7) for project in (layer.q, layer.k, layer.v))
    ours = layer.o(joined(rw.attend(q, k, v, encoding(torch.arange(65)), causal=decoder, scale=1.0)))
    assert_same(ours, theirs, [x, layer.q.weight, layer.v.weight])


# ALiBi. transformers adds slope · key, the same for all queries: less slope · query it is -slope · distance for keys that a
# causal model sees, and what a row of logits has in common does not change its softmax.


def alibi_of_bloom(count: int, length: int) -> Tensor:
    return build_alibi_tensor(torch.ones(1, length), count, torch.float32).unflatten(0, (1, count))


def alibi_of_mpt(count: int, length: int) -> Tensor:
    return build_mpt_alibi_tensor(count, length)[None]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 6, 8, 12, 14])
@pytest.mark.parametrize("peer", [alibi_of_bloom, alibi_of_mpt])
def test_alibi(peer, count, length):
    encoding = rw.create("alibi", head_dim=7, heads=count)
    q, k, v = (leaf(BATCH, count, length, 7, seed=seed, dtype=torch.float32) for seed in range(3))
    by_key = peer(count, length)
    theirs = (by_key - by_key.mT).tril()
    assert_close(encoding(torch.arange(length)).scores(q, k).tril(), theirs[0])
    probabilities = (q @ k.mT / math.sqrt(7) + by_key + causal_mask(length)).softmax(-1)
    ours = rw.attend(q, k, v, encoding(torch.arange(length)), causal=True)
    assert_same(ours, probabilities @ v, [q, k, v], 4.0)


def test_attention_of_bloom():
    torch.manual_seed(0)
    config = BloomConfig(hidden_size=42, n_head=6, attention_dropout=0.0, hidden_dropout=0.0)
    layer, x = BloomAttention(config, layer_idx=0), leaf(BATCH, 63, 42, seed=0, dtype=torch.float32)
    alibi = build_alibi_tensor(torch.ones(BATCH, 63), 6, torch.float32)
    residual = torch.zeros_like(x)
    theirs = layer(x, residual, alibi, causal_mask(63).clamp(min=torch.finfo(torch.float32).min))[0]
    q, k, v = layer.query_key_value(x).unflatten(-1, (6, 3, 7)).permute(3, 0, 2, 1, 4)
    code = rw.create("alibi", head_dim=7, heads=6)(torch.arange(63))
    ours = layer.dense(joined(rw.attend(q, k, v, code, causal=True)))
    assert_same(ours, theirs, [x, layer.query_key_value.weight], 4.0)
