"""Attention on grids of its own: what q and k become is computed anew, kind by kind, from positions that are listed here."""

import copy
import io
import itertools

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from packaging.version import parse as parse_version
from timm.models.naflexvit import NaFlexVit, NaFlexVitCfg
from torch.overrides import TorchFunctionMode
from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlock, SwinTransformerBlockV2

import ropewalk as rw
from ropewalk.adapters.timm import Grid, fold_into, grid_kinds, install, installed, register, uninstall
from tests.adapters.timm.test_install import drawn
from tests.support.float64_reference import normal


def grid(rows, columns, step=1, first=0.0):
    """Positions row by row; with a step, of every second or third, or of the centres of cells."""
    return [(first + step * i, first + step * j) for i, j in itertools.product(range(rows), range(columns))]


PLAIN = {"embed_dim": 48, "depth": 1, "num_heads": 2}
WINDOWS = {"img_size": (48, 80), "window_size": (3, 5), "embed_dim": 24, "depths": (2,), "num_heads": (2,)}
WIDE, SMALL, THREE_BY_FIVE = (48, 80), (64, 64), {"img_size": (48, 80)}

# Name, options, image, and of some attention its name, tokens without a position, and positions of queries and keys.
NEWER = ("qwen3", "convit")
KINDS = {
    "swin": ("swin_tiny_patch4_window7_224", WINDOWS, WIDE, "layers.0.blocks.1.attn", 0, grid(3, 5), grid(3, 5)),
    "swinv2": ("swinv2_tiny_window8_256", WINDOWS, WIDE, "layers.0.blocks.1.attn", 0, grid(3, 5), grid(3, 5)),
    "swinv2_cr": ("swinv2_cr_tiny_224", WINDOWS, WIDE, "stages.0.blocks.1.attn", 0, grid(3, 5), grid(3, 5)),
    "beit": ("beit_base_patch16_224", PLAIN | THREE_BY_FIVE, WIDE, "blocks.0.attn", 1, grid(3, 5), grid(3, 5)),
    "relpos": ("vit_relpos_small_patch16_224", PLAIN | THREE_BY_FIVE, WIDE, "blocks.0.attn", 0, grid(3, 5), grid(3, 5)),
    "cait": ("cait_xxs24_224", PLAIN | THREE_BY_FIVE, WIDE, "blocks.0.attn", 0, grid(3, 5), grid(3, 5)),
    "differences": (
        "vit_dwee_patch16_reg1_gap_256",
        PLAIN | THREE_BY_FIVE,
        WIDE,
        "blocks.0.attn",
        1,
        grid(3, 5),
        grid(3, 5),
    ),
    "parallel": ("vit_base_patch16_xp_224", PLAIN | THREE_BY_FIVE, WIDE, "blocks.0", 1, grid(3, 5), grid(3, 5)),
    "sam": ("samvit_base_patch16_224", PLAIN | THREE_BY_FIVE, WIDE, "blocks.0.attn", 0, grid(14, 14), grid(14, 14)),
    "qwen3": ("qwen3_vit_88m", PLAIN, (64, 96), "encoder.blocks.0.attn", 0, grid(4, 6), grid(4, 6)),
    "convit": (
        "convit_tiny",
        {"img_size": 48, "embed_dim": 12, "depth": 2, "num_heads": 4, "local_up_to_layer": 1},
        (48, 48),
        "blocks.1.attn",
        1,
        grid(3, 3),
        grid(3, 3),
    ),
    "tnt": (
        "tnt_s_patch16_224",
        {"img_size": (48, 80), "embed_dim": 48, "inner_dim": 24, "depth": 1, "num_heads_inner": 2, "num_heads_outer": 2},
        WIDE,
        "blocks.0.attn_out",
        1,
        grid(3, 5),
        grid(3, 5),
    ),
    "maxvit": (
        "maxvit_tiny_rw_224",
        {"img_size": (96, 160), "embed_dim": (32,), "depths": (1,), "block_type": ("M",)},
        (96, 160),
        "stages.0.blocks.0.attn_grid.attn",
        0,
        grid(3, 5),
        grid(3, 5),
    ),
    "coatnet": (
        "coatnet_0_224",
        {"img_size": (32, 48), "embed_dim": (32,), "depths": (1,), "block_type": ("T",)},
        (32, 48),
        "stages.0.blocks.0.attn",
        0,
        grid(8, 12),
        grid(8, 12),
    ),
    "levit, pooled queries": (
        "levit_128",
        {"img_size": 96, "embed_dim": (32, 48), "depth": (1, 1), "num_heads": (2, 2)},
        (96, 96),
        "stages.1.downsample.attn_downsample",
        0,
        grid(3, 3, step=2),
        grid(6, 6),
    ),
    "pvt, pooled keys": (
        "pvt_v2_b0",
        {"depths": (1, 1, 1, 1), "embed_dims": (16, 16, 16, 16), "num_heads": (1, 1, 1, 1)},
        (64, 96),
        "stages.1.blocks.0.attn",
        0,
        grid(8, 12),
        grid(2, 3, step=4, first=1.5),
    ),
    "twins": (
        "twins_svt_small",
        {"depths": (2,), "embed_dims": (24,), "num_heads": (2,)},
        (64, 96),
        "blocks.0.0.attn",
        0,
        grid(7, 7),
        grid(7, 7),
    ),
    "nest": ("nest_tiny", {"img_size": 64}, SMALL, "levels.0.transformer_encoder.0.attn", 0, grid(4, 4), grid(4, 4)),
    "davit": (
        "davit_tiny",
        {"embed_dims": (24,), "depths": (1,), "num_heads": (2,)},
        (48, 80),
        "stages.0.blocks.0.0.attn",
        0,
        grid(7, 7),
        grid(7, 7),
    ),
    "mvit, pooled queries and keys": (
        "mvitv2_tiny",
        {"img_size": 64},
        SMALL,
        "stages.1.blocks.0.attn",
        0,
        grid(8, 8, step=2),
        grid(8, 8, step=2),
    ),
    "hiera": (
        "hiera_tiny_224",
        {"img_size": (64, 96), "embed_dim": 24, "num_heads": 2, "stages": (1, 1, 2, 1)},
        (64, 96),
        "blocks.3.attn",
        0,
        None,
        None,
    ),
    "hiera, units": (
        "hiera_tiny_224",
        {"img_size": (64, 96), "embed_dim": 24, "num_heads": 2, "stages": (1, 1, 2, 1)},
        (64, 96),
        "blocks.1.attn",
        0,
        None,
        None,
    ),
    "pit": (
        "pit_ti_224",
        {"img_size": (64, 96), "base_dims": (24, 24), "depth": (1, 1), "heads": (2, 2)},
        (64, 96),
        "transformers.1.blocks.0.attn",
        1,
        grid(4, 6),
        grid(4, 6),
    ),
    "metaformer": (
        "efficientformer_l1",
        {"depths": (1, 1, 1, 2), "embed_dims": (16, 16, 16, 32)},
        (224, 224),
        "stages.3.blocks.2.token_mixer",
        0,
        grid(7, 7),
        grid(7, 7),
    ),
    "tiny_vit": (
        "tiny_vit_5m_224",
        {"embed_dims": (16, 32), "depths": (1, 1), "num_heads": (2, 2), "window_sizes": (5, 5)},
        (48, 80),
        "stages.1.blocks.0.attn",
        0,
        grid(5, 5),
        grid(5, 5),
    ),
}


def build(kind):
    if kind in NEWER and parse_version(timm.__version__) < parse_version("1.0.31"):
        pytest.skip(f"timm {timm.__version__} has no {kind} that takes an encoding: 1.0.31 has")
    name, options, sizes, path, prefix, q, k = KINDS[kind]
    torch.manual_seed(0)
    model = drawn(timm.create_model(name, **options))
    return model, normal(2, 3, *sizes, seed=7, dtype=torch.float32), path, prefix, q, k


class Recording(TorchFunctionMode):
    """q and k of the first comparison of the attention that is watched."""

    found = None
    on = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self.on and self.found is None:
            if func is F.scaled_dot_product_attention:
                self.found = args[0], args[1]
            elif func in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
                self.found = args[0], args[1].mT
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def compared(model, x, path):
    """q and k of an attention of a model."""
    recording = Recording()
    module = model.get_submodule(path)
    handles = [
        module.register_forward_pre_hook(lambda *_: setattr(recording, "on", True)),
        module.register_forward_hook(lambda *_: setattr(recording, "on", False)),
    ]
    with recording:
        model(x)
    for handle in handles:
        handle.remove()
    return recording.found


def turned(x, wave, positions, prefix, heads):
    """Channel pairs as complex numbers, multiplied by exp(i w · p), in float64."""
    positions = torch.cat((torch.zeros(prefix, 2, dtype=torch.float64), torch.as_tensor(positions, dtype=torch.float64)))
    angles = torch.einsum("na,hpa->hnp", positions, wave.double())
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    factor = torch.polar(torch.ones_like(angles), angles)
    lead = {3: factor.repeat(x.shape[0] // heads, 1, 1), 4: factor}.get(x.ndim)
    if x.ndim == 5:  # windows before heads, or after them
        lead = factor if x.shape[2] == heads and x.shape[1] != heads else factor[:, None]
    return torch.view_as_real(pairs * lead).flatten(-2)


def hiera_positions(model, kind):
    """Positions in the order that the model itself gives to its tokens, for units of 8 × 8 and whole maps of 4 × 6."""
    schedule = copy.deepcopy(model.unroll)
    schedule.size, schedule.schedule = ([8, 8], [(2, 2)] * 3) if "units" in kind else ([4, 6], [(2, 2)])
    k = schedule(torch.tensor(grid(*schedule.size))[None])[0]
    pool = model.get_submodule(KINDS[kind][3]).q_stride
    return k.unflatten(0, (pool, -1)).mean(0).tolist(), k.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_q_and_k_are_turned_by_the_positions_of_their_tokens(kind):
    model, x, path, prefix, at_q, at_k = build(kind)
    if at_q is None:
        at_q, at_k = hiera_positions(model, kind)
    out = model(x)
    plain = compared(install(model, "none", image_size=x.shape[-2:]), x, path)  # without a rotation of its own
    install(model, "mixed", image_size=x.shape[-2:], interleaved=True)
    for name, encoding in model.encoding.items():
        if name != path:
            torch.nn.init.zeros_(encoding.wave)  # so that what comes before this attention stays the same
    wave = model.encoding[path].wave.detach()
    met = compared(model, x, path)
    for was, now, at in ((plain[0], met[0], at_q), (plain[1], met[1], at_k)):
        wanted = turned(was, wave, at, prefix, wave.shape[0])
        torch.testing.assert_close(now.double(), wanted, rtol=0, atol=2e-5 * float(was.abs().max()))
        assert (now - was).abs().max() > 1e-2 * was.abs().max()  # which a lost rotation would not do
    assert not torch.equal(model(x), out)


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_the_model_itself_and_everything_goes_back(kind):
    model, x, *_ = build(kind)
    own = any(getattr(module, "rope", None) is not None for module in model.modules())
    out, names, kinds = model(x), list(model.state_dict()), [type(module) for module in model.modules()]
    assert install(model, "none", image_size=x.shape[-2:]) is model
    if not own:
        assert torch.equal(model(x), out)
    install(model, "mixed", image_size=x.shape[-2:])
    learned = {name for name in model.state_dict() if name.endswith("encoding.wave")}
    assert set(model.state_dict()) == {*names, *learned}
    assert learned <= set(model.no_weight_decay())
    model(x).square().mean().backward()
    assert max(float(weight.grad.abs().max()) for name, weight in model.named_parameters() if name in learned) > 0
    uninstall(model)
    assert [type(module) for module in model.modules()] == kinds
    assert list(model.state_dict()) == names
    assert torch.equal(model(x), out)
    assert not hasattr(model, "grid_spots")


@pytest.mark.parametrize("kind", ["swin", "swinv2", "hiera, units", "pvt, pooled keys"])
def test_checkpointed_copied_and_pickled(kind):
    model, x, *_ = build(kind)
    install(model, "mixed", image_size=x.shape[-2:])
    out = model(x)
    out.square().mean().backward()
    wanted = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    model.set_grad_checkpointing(True)
    model(x).square().mean().backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, wanted[name], rtol=1e-4, atol=1e-6)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(model), torch.load(buffer, weights_only=False)):
        assert torch.equal(other(x), out)
        assert uninstall(other)(x).shape == out.shape


@pytest.mark.parametrize("kind", ["pit"])
def test_one_graph(kind):
    """Windows of q and kᵀ that are multiplied, and a map that is noted on its way."""
    model, x, *_ = build(kind)
    install(model, "mixed", image_size=x.shape[-2:])
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def test_a_bias_is_added_where_q_and_k_are_compared():
    """ALiBi by its formula, in windows whose attention is fused and in those whose attention is not."""
    model, x, *_ = build("swin")
    bias = -torch.cdist(torch.tensor(grid(3, 5)), torch.tensor(grid(3, 5))) * torch.tensor([2.0**-4, 2.0**-8])[:, None, None]
    wanted = copy.deepcopy(model)
    for layer in wanted.layers[0].blocks:
        own = layer.attn._get_rel_pos_bias
        layer.attn._get_rel_pos_bias = lambda own=own: own() + bias
    for fused in (True, False):
        for block in model.layers[0].blocks:
            block.attn.fused_attn = fused
        torch.testing.assert_close(install(model, "alibi")(x), wanted(x), rtol=1e-5, atol=1e-5)


def test_what_is_installed_and_where(capsys):
    model, x, *_ = build("swin")
    assert installed(model) is None
    install(model, "mixed", describe=True)
    said = capsys.readouterr().out
    assert "2 × 2 heads of 12 channels on 3 × 5" in said
    assert said.count("\n") == 1
    assert list(installed(model)) == ["layers.0.blocks.0.attn", "layers.0.blocks.1.attn"]
    other = build("swin")[0]
    install(other, installed(model))
    assert torch.equal(other(x), model(x))
    before = model(x)
    with pytest.raises(ValueError, match=r"head_dim=12.*head_dim=16"):
        install(model, rw.create("mixed", head_dim=16, heads=2))
    assert torch.equal(model(x), before)
    plain = timm.create_model("vit_small_patch16_224", img_size=48, **PLAIN)
    assert installed(install(plain, "golden")) is plain.encoding


@pytest.mark.parametrize(
    ("encoding", "options", "words"),
    [
        ("learned-ape", {"width": 24}, "adds to the tokens"),
        ("mixed", {"drop_table": True}, "drop_table=True is for plain ViTs"),
        ("mixed", {"shift": 0.1}, "shift move the patches of plain ViTs"),
        ({"a": rw.create("none", head_dim=12, heads=2, axes=2)}, {}, "an encoding for each of layers.0.blocks.0.attn"),
        ("mixed", {"image_size": (50, 50)}, "does not run on images of .50, 50."),
    ],
)
def test_refused(encoding, options, words):
    model = build("swin")[0]
    with pytest.raises(ValueError, match=words):
        install(model, encoding, **options)
    assert type(model) is timm.models.SwinTransformer


def test_no_folding():
    with pytest.raises(TypeError, match=r"plain ViTs of timm can be folded.*SwinTransformer"):
        fold_into(install(build("swin")[0], "mixed"))


@pytest.mark.filterwarnings("ignore:images of another size:FutureWarning")
@pytest.mark.parametrize("extension", [{"rope_type": "yarn"}, {"rope_type": "ntk-aware"}])
def test_maps_of_other_sizes(extension):
    """Keys stay at the centres of what was pooled; rescaled by default, and by a rule of extension where one is given."""
    model, _, path, *_ = build("pvt, pooled keys")
    larger = normal(2, 3, 96, 160, seed=9, dtype=torch.float32)
    plain = compared(install(model, "none", image_size=(64, 96)), larger, path)
    install(model, "mixed", image_size=(64, 96), interleaved=True)
    for name, encoding in model.encoding.items():
        if name != path:
            torch.nn.init.zeros_(encoding.wave)
    wave = model.encoding[path].wave.detach()
    at_k = [((2 / 3) * (4 * i + 1.5 + 0.5) - 0.5, 0.6 * (4 * j + 1.5 + 0.5) - 0.5) for i in range(3) for j in range(5)]
    wanted = turned(plain[1], wave, at_k, 0, 1)
    torch.testing.assert_close(compared(model, larger, path)[1].double(), wanted, rtol=0, atol=1e-4)
    assert install(model, "axial", image_size=(64, 96), extension=extension)(larger).isfinite().all()


def test_checkpoints_of_the_host_and_bfloat16():
    model, x, *_ = build("swinv2")
    state = copy.deepcopy(model.state_dict())
    install(model, "axial")
    model.load_state_dict(state)
    exact = model(x)
    off = (
        (copy.deepcopy(uninstall(copy.deepcopy(model))).bfloat16()(x.bfloat16()) - uninstall(copy.deepcopy(model))(x))
        .abs()
        .max()
    )
    narrow = model.bfloat16()(x.bfloat16())
    assert narrow.dtype is torch.bfloat16
    assert (narrow - exact).abs().max() < 4 * off
    assert model.encoding["layers.0.blocks.0.attn"](torch.zeros(1, 2)).layers is None


def test_an_attention_that_compares_nothing_is_an_error():
    model, x, *_ = build("swin")
    install(model, "axial")
    attention = model.layers[0].blocks[0].attn
    attention.host.forward, forward = lambda self, x, mask=None: x, attention.host.forward
    try:
        with pytest.raises(RuntimeError, match="compared no queries with keys"):
            model(x)
    finally:
        attention.host.forward = forward


def torchvision_vit():
    model = torchvision.models.VisionTransformer(48, 16, 2, 2, 48, 64, num_classes=5)
    return drawn(model), normal(2, 3, 48, 48, seed=7, dtype=torch.float32)


def torchvision_swin(block):
    options = {"patch_size": [4, 4], "embed_dim": 24, "depths": [2], "num_heads": [2], "window_size": [3, 5], "block": block}
    if block is SwinTransformerBlockV2:
        options["downsample_layer"] = PatchMergingV2
    return drawn(torchvision.models.SwinTransformer(**options)), normal(2, 3, 48, 80, seed=7, dtype=torch.float32)


TORCHVISION = {
    "vit": (torchvision_vit, "encoder.layers.encoder_layer_0.self_attention", 1, grid(3, 3)),
    "swin": (lambda: torchvision_swin(SwinTransformerBlock), "features.1.1.attn", 0, grid(3, 5)),
    "swin v2": (lambda: torchvision_swin(SwinTransformerBlockV2), "features.1.1.attn", 0, grid(3, 5)),
}


@pytest.mark.parametrize("kind", TORCHVISION)
def test_torchvision(kind):
    make, path, prefix, at = TORCHVISION[kind]
    model, x = make()
    out, names = model(x), list(model.state_dict())
    install(model, "none", image_size=x.shape[-2:])
    torch.testing.assert_close(model(x), out, rtol=1e-5, atol=1e-5)
    plain = compared(model, x, path)
    install(model, "mixed", image_size=x.shape[-2:], interleaved=True)
    assert installed(model).keys() >= {path}
    for name, encoding in model.encoding.items():
        if name != path:
            torch.nn.init.zeros_(encoding.wave)
    wave = model.encoding[path].wave.detach()
    for was, now in zip(plain, compared(model, x, path), strict=True):
        torch.testing.assert_close(now.double(), turned(was, wave, at, prefix, 2), rtol=0, atol=1e-4)
        assert (now - was).abs().max() > 1e-2
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), model(x))
    model(x).square().mean().backward()
    assert model.encoding[path].wave.grad.abs().max() > 0
    assert torch.equal(uninstall(model)(x), out)
    assert list(model.state_dict()) == names


class OwnAttention(torch.nn.Module):
    """Attention as the ViTs of torch.hub write it."""

    def __init__(self, width, heads):
        super().__init__()
        self.num_heads, self.qkv, self.proj = heads, torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


class OneHead(OwnAttention):
    """q, k and v (B, N, C), without heads, as SHViT and iFormer have them."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.proj((q @ k.mT).softmax(-1) @ v)


class OwnViT(torch.nn.Module):
    """A ViT without any grid that one could find, and a mean over its tokens."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Conv2d(3, 48, 16, 16)
        self.attention = OwnAttention(48, 2)

    def forward(self, x):
        return self.attention(self.embed(x).flatten(2).mT)


def test_attention_of_one_head(monkeypatch):
    """Rotated by hand, and with a bias by hand."""
    monkeypatch.setattr(grid_kinds, "REGISTERED", {})
    register(OneHead, lambda attention, model, x: Grid((3, 5)), layout="bnd")
    model, x = OwnViT(), normal(2, 3, 48, 80, seed=7, dtype=torch.float32)
    model.attention = OneHead(48, 2)
    drawn(model)
    q, k = compared(model, x, "attention")
    v = model.attention.qkv(model.embed(x).flatten(2).mT)[..., 96:]
    install(model, "mixed", image_size=(48, 80), interleaved=True)
    wave = model.encoding["attention"].wave.detach()
    for was, now in zip((q, k), compared(model, x, "attention"), strict=True):
        torch.testing.assert_close(now.double(), turned(was, wave, grid(3, 5), 0, 1), rtol=0, atol=1e-4)
    install(model, "alibi", image_size=(48, 80))
    bias = -torch.cdist(torch.tensor(grid(3, 5)), torch.tensor(grid(3, 5))) * 2.0**-8
    wanted = model.attention.proj((q @ k.mT + bias).softmax(-1) @ v)
    torch.testing.assert_close(model(x), wanted, rtol=1e-4, atol=1e-5)


def test_attention_of_one_s_own(monkeypatch):
    model, x = drawn(OwnViT()), normal(2, 3, 48, 80, seed=7, dtype=torch.float32)
    monkeypatch.setattr(grid_kinds, "REGISTERED", {})
    with pytest.raises(TypeError, match=r"test_grids\.OwnViT: register\(ITS_ATTENTION_CLASS, place\)"):
        install(model, "mixed")
    register(OwnAttention, lambda attention, model, x: Grid((3, 5)))
    with pytest.raises(ValueError, match=r"OwnViT does not say for which images it is: give image_size"):
        install(model, "mixed")
    plain = compared(model, x, "attention")
    install(model, "mixed", image_size=(48, 80), interleaved=True)
    wave = model.encoding["attention"].wave.detach()
    for was, now in zip(plain, compared(model, x, "attention"), strict=True):
        torch.testing.assert_close(now.double(), turned(was, wave, grid(3, 5), 0, 2), rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="Unknown layout 'nhd'; expected one of bhnd"):
        register(OwnAttention, layout="nhd")
    with pytest.raises(TypeError, match="a class of modules"):
        register(model.attention)


def naflex(**options):
    small = {"embed_dim": 48, "depth": 2, "num_heads": 2, "reg_tokens": 1, "pos_embed": "none"}
    return drawn(NaFlexVit(NaFlexVitCfg(**(small | options)), num_classes=5, img_size=96))


def flexible(*grids, tokens=16):
    """Patches of images of several sizes, padded, and the images."""
    images = [normal(1, 3, 16 * rows, 16 * columns, seed=rows, dtype=torch.float32) for rows, columns in grids]
    patches, coords, valid = (
        torch.zeros(len(grids), tokens, 768),
        torch.zeros(len(grids), tokens, 2),
        torch.zeros(len(grids), tokens),
    )
    for i, (image, (rows, columns)) in enumerate(zip(images, grids, strict=True)):
        count = rows * columns
        patches[i, :count] = image[0].unfold(1, 16, 16).unfold(2, 16, 16).permute(1, 2, 3, 4, 0).reshape(count, 768)
        coords[i, :count] = torch.tensor(grid(rows, columns))
        valid[i, :count] = 1
    return {"patches": patches, "patch_coord": coords.long(), "patch_valid": valid.bool()}, images


@pytest.mark.filterwarnings("ignore:images of another size:FutureWarning")
@pytest.mark.parametrize("resolution", ["extrapolate", "rescale"])
def test_images_of_several_sizes_in_a_batch(resolution):
    """Each as it is alone, where the encoding places its grid; and as by the model's own mask for none."""
    model = naflex()
    batch, images = flexible((3, 5), (4, 2))
    plain = model(batch)
    torch.testing.assert_close(install(model, "none", image_size=(96, 96))(batch), plain, rtol=1e-5, atol=1e-5)
    install(model, "mixed", resolution=resolution, image_size=(96, 96))
    together = model(batch)
    assert (together - plain).abs().max() > 1e-3
    torch.testing.assert_close(together, torch.cat([model(image) for image in images]), rtol=1e-4, atol=1e-4)
    together.square().mean().backward()
    assert all(encoding.wave.grad.abs().max() > 0 for encoding in model.encoding.values())
    model.set_grad_checkpointing(True)
    torch.testing.assert_close(model(batch), together)
    with pytest.raises(ValueError, match="coordinates='index' and no rule of extension"):
        install(model, "axial", coordinates="pi", image_size=(96, 96))(batch)
    torch.testing.assert_close(uninstall(model)(batch), plain, rtol=0, atol=0)


def test_an_image_of_naflexvit_is_turned_as_that_of_a_plain_vit():
    """Its own rotation is replaced; patches that are dropped take their positions along."""
    model = naflex(rope_type="axial")
    x = normal(2, 3, 96, 96, seed=7, dtype=torch.float32)
    before = model(x)
    plain = compared(install(model, "none", image_size=(96, 96)), x, "blocks.0.attn")
    install(model, "mixed", interleaved=True, image_size=(96, 96))
    wave = model.encoding["blocks.0.attn"].wave.detach()
    for was, now in zip(plain, compared(model, x, "blocks.0.attn"), strict=True):
        torch.testing.assert_close(
            now.double(), turned(was, wave, grid(6, 6), model.num_prefix_tokens, 2), rtol=0, atol=1e-4
        )
    with pytest.raises(ValueError, match="cannot be kept as an encoding: name the one"):
        install(model, image_size=(96, 96))
    assert torch.equal(uninstall(model)(x), before)
    dropping = naflex(patch_drop_rate=0.5)
    batch, _ = flexible((3, 5), (4, 2))
    assert install(dropping, "mixed", image_size=(96, 96)).train()(batch).isfinite().all()
