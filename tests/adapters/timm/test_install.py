"""Encodings inside timm's models: the model's own one changes nothing, others do what timm does when told to by hand."""

import copy
import inspect

import pytest
import timm
import torch
from timm.layers import Attention, AttentionRope, RotaryEmbeddingCat
from timm.models.eva import Eva

import ropewalk as rw
from ropewalk.adapters.timm import install
from ropewalk.adapters.timm.attach import uninstall
from tests.support.float64_reference import normal

SMALL = {"pretrained": False, "img_size": (48, 80), "patch_size": 16, "embed_dim": 48, "depth": 2, "num_classes": 5}
HOSTS = {
    "plain": ("vit_small_patch16_224", {"num_heads": 2}),
    "registers": ("vit_small_patch16_224", {"num_heads": 2, "reg_tokens": 3, "no_embed_class": True, "init_values": 0.3}),
    "clip": ("vit_base_patch16_clip_224", {"num_heads": 2, "qk_norm": True, "scale_attn_norm": True}),
    "axial": ("vit_small_patch16_rope_224", {"num_heads": 2}),
    "mixed": ("vit_small_patch16_rope_mixed_ape_224", {"num_heads": 2}),
    "eva02": ("eva02_tiny_patch14_224", {"num_heads": 2}),
    "eva02 apart": ("eva02_base_patch14_224", {"num_heads": 2}),
    "dinov3": ("vit_small_patch16_dinov3_qkvb", {"num_heads": 2}),
    "pe": ("vit_pe_core_tiny_patch16_384", {"num_heads": 2}),
    "gap": ("vit_base_patch16_rope_reg1_gap_256", {"num_heads": 2}),
    "table": ("vit_small_patch16_rope_ape_224", {"num_heads": 2}),
    "no rope": ("eva_giant_patch14_224", {"num_heads": 2}),
}
TURNING = ["axial", "mixed", "eva02", "eva02 apart", "dinov3", "pe", "gap"]


def drawn(model):
    """The model with weights so large that attention is far from even: otherwise a lost rotation would hardly show."""
    for seed, (name, weight) in enumerate(model.named_parameters()):
        if not name.startswith("rope"):
            spread = 1.5 * weight[0].numel() ** -0.5 if weight.ndim == 2 else 0.5
            start = 1.0 if weight.ndim == 1 and "bias" not in name else 0.0
            weight.data = start + spread * normal(*weight.shape, seed=seed, dtype=torch.float32)
    return model.eval()


def host(kind, **options):
    name, own = HOSTS[kind]
    return drawn(timm.create_model(name, **{**SMALL, **own, **options}))


def images(*sizes, batch=2):
    return normal(batch, 3, *(sizes or (48, 80)), seed=7, dtype=torch.float32)


def close(actual, expected, tolerance=2e-6):
    largest = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * largest)


def results(model, x):
    """Logits, and gradients of images and of every parameter by its name."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    logits = model(x)
    (logits * normal(*logits.shape, seed=8, dtype=torch.float32)).sum().backward()
    named = {name.replace("rope.encoding.", "rope."): weight.grad for name, weight in model.named_parameters()}
    return logits.detach(), {"images": x.grad, **{name: grad for name, grad in named.items() if grad is not None}}


@pytest.mark.parametrize("kind", HOSTS)
def test_the_model_s_own_encoding_changes_nothing(kind):
    model, x = host(kind), images()
    logits, gradients = results(model, x)
    assert install(model) is model
    same, others = results(model, x)
    close(same, logits)
    assert others.keys() == gradients.keys()
    for name, gradient in gradients.items():
        close(others[name], gradient, 1e-5)


@pytest.mark.parametrize("kind", TURNING)
def test_the_rotation_is_the_encoding_s(kind):
    """The same with no encoding is another model: the comparison above can tell."""
    model, x = host(kind), images()
    logits = model(x)
    assert (install(model, "none")(x) - logits).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "start", "weight"), [("comrope-ld", {"std": 0.0}, "matrix"), ("liere", {"scale": 0.0}, "upper")]
)
@pytest.mark.parametrize("kind", ["plain", "registers", "clip", "no rope"])
def test_none_and_zero_are_the_model_itself_to_the_last_bit(kind, name, start, weight):
    model, x = host(kind), images()
    logits = model(x)
    assert torch.equal(install(model, "none")(x), logits)
    install(model, name, **start)
    zero, gradients = results(model, x)
    assert torch.equal(zero, logits)
    assert gradients[f"rope.{weight}"].abs().amax((-1, -2)).min() > 0


class Gated(Attention):
    """timm's attention with the gate that its models do not ask for."""

    def __init__(self, *args, **options):
        super().__init__(*args, gated=True, **options)


def test_gates_and_attention_that_is_not_fused_stay():
    model, x = host("plain", attn_layer=Gated), images()
    for block in model.blocks:
        block.attn.fused_attn = False
    logits, gradients = results(model, x)
    same, others = results(install(model), x)
    close(same, logits)
    close(others["blocks.0.attn.gate.weight"], gradients["blocks.0.attn.gate.weight"], 1e-5)


@pytest.mark.parametrize("name", ["deit_small_distilled_patch16_224", "vit_small_patch16_18x2_224"])
def test_relatives_of_the_plain_vit(name):
    """One with two class tokens, and one with several layers of attention side by side."""
    model, x = drawn(timm.create_model(name, **SMALL, num_heads=2)), images()
    logits, gradients = results(model, x)
    same, others = results(install(model), x)
    close(same, logits)
    assert gradients.keys() == others.keys()
    logits, gradients = results(install(model, "mixed"), x)
    assert (logits - same).abs().max() > 1e-3
    assert gradients["rope.wave"].abs().amax((-1, -2, -3)).min() > 0


OLD = f"timm {timm.__version__} has not got {{}}, which came with 1.0.30"


def knows(option):
    """Whether this version of timm has an option of its `Eva`."""
    return option in inspect.signature(Eva).parameters


@pytest.mark.skipif(not knows("num_kv_heads"), reason=OLD.format("num_kv_heads"))
def test_blocks_may_differ_in_how_many_heads_share_a_key():
    options = {"num_heads": 8, "num_kv_heads": (2, 4), "qkv_fused": False, "attn_type": "rope", "qk_norm": True}
    options |= {"use_rot_pos_emb": True, "img_size": (48, 80), "embed_dim": 96, "depth": 2, "num_classes": 3}
    model, x = drawn(Eva(**options)), images()
    logits = model(x)
    close(install(model)(x), logits)
    assert (install(model, "mixed")(x) - logits).abs().max() > 1e-3
    assert model.encoding.wave.shape == (2, 2, 6, 2)


class Rotated(torch.nn.Module):
    """timm's attention that turns, with a table of timm's and the weights of its attention that does not."""

    def __init__(self, attention, embed, prefix):
        super().__init__()
        norms = {"norm_layer": torch.nn.LayerNorm, "qk_norm": True, "scale_norm": True}
        self.inner = AttentionRope(48, 2, num_prefix_tokens=prefix, **norms).eval()
        self.inner.load_state_dict(attention.state_dict())
        self.embed = embed

    def forward(self, x, attn_mask=None, is_causal=False):
        return self.inner(x, rope=self.embed)


def test_a_plain_vit_turns_as_timm_s_attention_does():
    """Norms of q and k come before, the class token stays, the grid is not square."""
    model, x = host("clip"), images()
    wanted = copy.deepcopy(model)
    for block in wanted.blocks:
        embed = RotaryEmbeddingCat(24, in_pixels=False, temperature=100.0, grid_indexing="xy").get_embed([3, 5])
        block.attn = Rotated(block.attn, embed, 1)
        for norm in (block.attn.inner.q_norm, block.attn.inner.k_norm, block.attn.inner.norm):
            norm.eps = block.norm1.eps
    close(install(model, "axial")(x), wanted(x))


@pytest.mark.parametrize("kind", ["plain", "registers", "eva02"])
def test_a_bias_is_added_to_the_logits(kind):
    """ALiBi by its formula, as a mask that timm adds; nothing for the class token and registers."""
    model, x = host(kind), images()
    prefix = model.num_prefix_tokens
    model.rope = None
    places = torch.cartesian_prod(torch.arange(3.0), torch.arange(5.0))
    bias = torch.zeros(2, prefix + 15, prefix + 15)
    bias[:, prefix:, prefix:] = -torch.cdist(places, places) * torch.tensor([2.0**-4, 2.0**-8])[:, None, None]
    wanted = model(x, attn_mask=bias)
    assert (wanted - model(x)).abs().max() > 1e-3
    close(install(model, "alibi")(x), wanted)
    hidden = torch.ones(prefix + 15, dtype=torch.bool)
    hidden[-4:] = False
    masked = uninstall(model)(x, attn_mask=bias.masked_fill(~hidden, float("-inf")))
    close(install(model, "alibi")(x, attn_mask=hidden.expand(prefix + 15, -1)), masked)
    for block in model.blocks:
        block.attn.fused_attn = False
    close(model(x, attn_mask=hidden.expand(prefix + 15, -1)), masked)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["registers", "table"])
def test_a_table_can_be_dropped_and_learned_by_an_encoding(kind, dynamic):
    """Before dropout and norms, and only for patches: a chain with timm's own table in it is the model itself."""
    model, x = host(kind, dynamic_img_size=dynamic), images()
    logits, table = model(x), model.pos_embed.detach()
    shape = {"head_dim": 24, "heads": 2, "axes": 2, "layers": 2, "size": (3, 5)}
    added = rw.create("learned-ape", width=48, **shape)
    added.table.data = table.reshape(3, 5, 48)
    both = rw.chain(rw.create("none" if kind == "registers" else "axial", **shape), added)
    close(install(model, both, drop_table=True)(x), logits)
    assert model.pos_embed is None
    assert "pos_embed" not in model.state_dict()
    assert (install(model, both)(x) - logits).abs().max() > 1e-3  # the table is back, and is added twice
    assert torch.equal(model.pos_embed, table)
