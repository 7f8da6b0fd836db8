"""timm's rotary and sinusoidal embeddings. timm computes angles in float32, so float32 is what is compared."""

import inspect

import pytest
import timm
import torch
from timm.layers import (
    AttentionRope,
    RotaryEmbeddingCat,
    RotaryEmbeddingDinoV3,
    RotaryEmbeddingMixed,
    apply_rot_embed_cat,
    build_rotary_pos_embed,
    build_sincos2d_pos_embed,
)
from torch import Tensor

import ropewalk as rw
from tests.support.float64_reference import assert_close, assert_same, gradients, leaf, normal

BATCH, HEADS = 2, 4
GRIDS = [(3, 5), (1, 7), (9, 7)]


def tokens(count: int, head_dim: int) -> tuple[Tensor, Tensor]:
    q, k = (leaf(BATCH, HEADS, count, head_dim, seed=seed, dtype=torch.float32) for seed in (0, 1))
    return q, k


def variant_of(indexing: str) -> str:
    """timm's "xy" deals the first half of the channels to columns, as Heo et al. do; "ij", of EVA-02, to rows."""
    return {"xy": "heo", "ij": "eva"}[indexing]


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("indexing", ["ij", "xy"])
@pytest.mark.parametrize("temperature", [100.0, 10000.0, 7.0])
@pytest.mark.parametrize("sizes", GRIDS)
def test_axial(sizes, temperature, indexing, half, cached):
    if half and "rotate_half" not in inspect.signature(RotaryEmbeddingCat).parameters:
        pytest.skip(f"timm {timm.__version__} has no axial rotation of halves, which came with 1.0.30")
    peer = RotaryEmbeddingCat(
        24,
        in_pixels=False,
        temperature=temperature,
        grid_indexing=indexing,
        feat_shape=list(sizes) if cached else None,
        **({"rotate_half": True} if half else {}),
    )
    embed = peer.get_embed() if cached else peer.get_embed(list(sizes))
    options = {"variant": variant_of(indexing), "base": temperature, "interleaved": not half}
    encoding = rw.create("axial", head_dim=24, heads=HEADS, **options)
    q, k = tokens(sizes[0] * sizes[1], 24)
    theirs = [apply_rot_embed_cat(x, embed, half=half) for x in (q, k)]
    assert_same(encoding(encoding.grid(*sizes)).qk(q, k), theirs, [q, k], max(sizes))


@pytest.mark.parametrize(("indexing", "temperature"), [("xy", 100.0), ("ij", 10000.0)])
def test_axial_by_its_defaults(indexing, temperature):
    """The bases of Heo et al. and of EVA-02 need not be asked for."""
    embed = RotaryEmbeddingCat(24, in_pixels=False, temperature=temperature, grid_indexing=indexing).get_embed([3, 5])
    encoding = rw.create("axial", head_dim=24, heads=HEADS, variant=variant_of(indexing))
    q, k = tokens(15, 24)
    assert_same(encoding(encoding.grid(3, 5)).qk(q, k), [apply_rot_embed_cat(x, embed) for x in (q, k)], [q, k], 5.0)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_axial_at_moved_and_squeezed_positions(indexing):
    """EVA-02 squeezes the indices of a larger grid into its training grid; other models of timm's move them all."""
    sizes, trained = (4, 7), (3, 5)
    embed = build_rotary_pos_embed(
        list(sizes), dim=24, in_pixels=False, ref_feat_shape=list(trained), grid_offset=0.5, grid_indexing=indexing
    )
    encoding = rw.create("axial", head_dim=24, heads=HEADS, variant=variant_of(indexing), base=10000.0)
    positions = (encoding.grid(*sizes) + 0.5) * torch.tensor([3 / 4, 5 / 7])
    q, k = tokens(28, 24)
    theirs = [apply_rot_embed_cat(x, torch.cat(embed, -1)) for x in (q, k)]
    assert_same(encoding(positions).qk(q, k), theirs, [q, k], 5.0)


def mixed_pair(indexing: str, head_dim: int, layers: int) -> tuple[RotaryEmbeddingMixed, rw.Encoding]:
    """timm's module, and an encoding with its frequencies: of timm's two axes "xy" means column, row; "ij" row, column."""
    torch.manual_seed(0)
    peer = RotaryEmbeddingMixed(HEADS * head_dim, depth=layers, num_heads=HEADS, grid_indexing=indexing)
    encoding = rw.create("mixed", head_dim=head_dim, heads=HEADS, layers=layers)
    encoding.wave.data = rows_first(peer.freqs.detach(), indexing)
    return peer, encoding


def rows_first(freqs: Tensor, indexing: str) -> Tensor:
    """timm's (axis, L, H, P) as (L, H, P, axis), the row's frequency first."""
    return (freqs.flip(0) if indexing == "xy" else freqs).permute(1, 2, 3, 0).contiguous()


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("head_dim", [12, 28])
@pytest.mark.parametrize("sizes", GRIDS)
def test_mixed(sizes, head_dim, indexing):
    peer, encoding = mixed_pair(indexing, head_dim, layers=2)
    code, embed = encoding(encoding.grid(*sizes)), peer.get_embed(list(sizes))
    q, k = tokens(sizes[0] * sizes[1], head_dim)
    ours = [x for layer in range(2) for x in code[layer].qk(q, k)]
    theirs = [apply_rot_embed_cat(x, embed[layer]) for layer in range(2) for x in (q, k)]
    *same, ours_wave = gradients(ours, [q, k, encoding.wave])
    *wanted, theirs_freqs = gradients(theirs, [q, k, peer.freqs])
    for actual, expected in zip([*ours, *same], [*theirs, *wanted], strict=True):
        assert_close(actual, expected, max(sizes))
    assert_close(ours_wave, rows_first(theirs_freqs, indexing), max(sizes))


# DINOv3, bit for bit

NORMALISED = {"separate": "separate", "longer": "max", "shorter": "min"}
PERIODS = {
    "by default": ({}, {}),
    "temperature": ({"base": 7.0}, {"temperature": 7.0}),
    "periods": ({"min_period": 0.3, "max_period": 90.0}, {"min_period": 0.3, "max_period": 90.0}),
}


def dinov3_pair(head_dim: int, half: bool, coordinates: str = "separate", periods: str = "by default"):
    ours, theirs = PERIODS[periods]
    peer = RotaryEmbeddingDinoV3(head_dim, normalize_coords=NORMALISED[coordinates], rotate_half=half, **theirs)
    options = {"coordinates": coordinates, "interleaved": not half} | ours
    return peer, rw.create("dinov3", head_dim=head_dim, heads=HEADS, **options)


def unfolded(first: Tensor, second: Tensor, half: bool) -> Tensor:
    """Numbers of each pair's first and second channel, (n P) each, in the order of the channels."""
    return torch.cat([first, second], -1) if half else torch.stack([first, second], -1).flatten(-2)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("periods", PERIODS)
@pytest.mark.parametrize("coordinates", NORMALISED)
@pytest.mark.parametrize("head_dim", [64, 32, 48])
@pytest.mark.parametrize("sizes", [(3, 5), (14, 14), (37, 53), (1, 1), (1, 7)])
def test_dinov3(sizes, head_dim, coordinates, periods, half):
    """The sines and cosines of the angles, and what becomes of pairs (1, 0), are timm's to the last bit."""
    peer, encoding = dinov3_pair(head_dim, half, coordinates, periods)
    sin, cos = peer.get_embed(list(sizes)).chunk(2, dim=-1)
    code = encoding(encoding.grid(*sizes))
    (angle,) = code.q_angle
    assert torch.equal(unfolded(angle, angle, half).sin(), sin)
    assert torch.equal(unfolded(angle, angle, half).cos(), cos)
    one, zero = torch.ones_like(angle), torch.zeros_like(angle)
    turned = code.q(unfolded(one, zero, half).expand(1, HEADS, -1, -1))
    assert torch.equal(turned[0, 0], unfolded(angle.cos(), angle.sin(), half))


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("coordinates", NORMALISED)
@pytest.mark.parametrize("sizes", [(3, 5), (1, 7), (1, 1)])
def test_dinov3_turns(sizes, coordinates, half):
    """q and k, class and register tokens before them: at most the last bit differs, of numbers below 8."""
    peer, encoding = dinov3_pair(32, half, coordinates)
    embed, count = peer.get_embed(list(sizes)), sizes[0] * sizes[1]
    q, k = tokens(count + 5, 32)
    theirs = [torch.cat([x[:, :, :5], apply_rot_embed_cat(x[:, :, 5:], embed, half=half)], dim=2) for x in (q, k)]
    ours = encoding(encoding.grid(*sizes)).prefixed(q=5, k=5).qk(q, k)
    for actual, expected in zip([*ours, *gradients(ours, [q, k])], [*theirs, *gradients(theirs, [q, k])], strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=8 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("half", [True, False])
def test_dinov3_at_moved_positions(half):
    """Beyond its grid and in between, where timm's module, whose grid is moved, computes the same angles."""
    peer, encoding = dinov3_pair(32, half)
    peer.grid_offset = 0.25
    sin, cos = peer.get_embed([3, 5]).chunk(2, dim=-1)
    positions = 2 * ((torch.cartesian_prod(torch.arange(3.0), torch.arange(5.0)) + 0.75) / torch.tensor([3.0, 5.0])) - 1
    (angle,) = encoding(positions).q_angle
    assert torch.equal(unfolded(angle, angle, half).sin(), sin)
    assert torch.equal(unfolded(angle, angle, half).cos(), cos)


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("kind", ["axial", "mixed"])
def test_attention_with_a_prefix(kind, indexing, prefix):
    """A whole attention layer of timm's, class and register tokens unturned: output, gradients of input and weights."""
    torch.manual_seed(0)
    layer = AttentionRope(HEADS * 12, HEADS, qkv_fused=True, num_prefix_tokens=prefix)
    if kind == "axial":
        embed = RotaryEmbeddingCat(12, in_pixels=False, grid_indexing=indexing).get_embed([3, 5])
        encoding = rw.create("axial", head_dim=12, heads=HEADS, variant=variant_of(indexing), base=10000.0)
        code = encoding(encoding.grid(3, 5))
    else:
        peer, encoding = mixed_pair(indexing, 12, layers=1)
        embed, code = peer.get_embed([3, 5])[0], encoding(encoding.grid(3, 5))[0]
    x = leaf(BATCH, prefix + 15, HEADS * 12, seed=0, dtype=torch.float32)
    q, k, v = layer.qkv(x).unflatten(-1, (3, HEADS, 12)).permute(2, 0, 3, 1, 4)
    ours = layer.proj(rw.attend(q, k, v, code.prefixed(q=prefix, k=prefix)).transpose(1, 2).flatten(2))
    assert_same(ours, layer(x, rope=embed), [x, layer.qkv.weight, layer.proj.weight], 5.0)


@pytest.mark.parametrize("temperature", [10000.0, 100.0])
@pytest.mark.parametrize("sizes", GRIDS)
def test_sincos(sizes, temperature):
    table = build_sincos2d_pos_embed(list(sizes), dim=28, temperature=temperature)
    encoding = rw.create("sincos", head_dim=7, heads=4, axes=2, variant="timm", base=temperature)
    x = leaf(BATCH, sizes[0] * sizes[1], 28, seed=0, dtype=torch.float32)
    assert_same(encoding(encoding.grid(*sizes)).tokens(x), x + table, [x], max(sizes))


@pytest.mark.parametrize("sizes", GRIDS)
def test_sincos_in_the_order_of_mae(sizes):
    """timm gets there with two flags, and then has the tokens column by column."""
    table = build_sincos2d_pos_embed(list(sizes), dim=28, reverse_coord=True, interleave_sin_cos=True)
    table = table.unflatten(0, sizes[::-1]).transpose(0, 1).flatten(0, 1)
    encoding = rw.create("sincos", head_dim=7, heads=4, axes=2, variant="mae")
    x = normal(BATCH, sizes[0] * sizes[1], 28, seed=0, dtype=torch.float32)
    assert_close(encoding(encoding.grid(*sizes)).tokens(x), x + table, max(sizes))
