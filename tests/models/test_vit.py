"""The plain vision transformer: any encoding, any size, and what a trainer asks of it."""

import contextlib
import copy
import math

import pytest
import timm
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

import ropewalk as rw
from ropewalk.code import Offset, unseal
from ropewalk.encodings import REGISTRY
from ropewalk.models import ViT
from ropewalk.models.vit import PRESETS, Block, patches

SMALL = {"width": 24, "depth": 2, "heads": 2, "size": (12, 20), "patch": 4, "classes": 7}
NAMES = {
    axes: [name for name, kind in REGISTRY.items() if kind.allowed_axes is None or axes in kind.allowed_axes]
    for axes in (2, 3)
}
for several in NAMES.values():
    several[:] = [name for name in several if name not in ("rope", "t5-bias", "transformer-xl", "xpos")]  # of one axis


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def small(encoding="axial", **options):
    return ViT("tiny", encoding=encoding, **{**SMALL, **options})


def images(*batch_and_size, channels=3):
    batch, *size = batch_and_size or (2, 12, 20)
    return torch.randn(batch, channels, *size)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("preset", PRESETS)
def test_as_many_parameters_as_timm(preset):
    with torch.device("meta"):
        theirs = timm.create_model(f"vit_{preset}_patch16_224")
        ours, embedded = ViT(preset, pool="class"), ViT(preset, pool="mean", encoding="learned-ape")
    table = theirs.pos_embed.numel()
    assert count(ours) == count(theirs) - table
    width = PRESETS[preset]["width"]
    assert count(embedded) == count(theirs) - 2 * width  # the class token and its position


@pytest.mark.parametrize(("axes", "name"), [(axes, name) for axes in NAMES for name in NAMES[axes]])
def test_every_encoding_trains(axes, name):
    size = (12, 20, 8)[:axes]
    vit = small(name, size=size, width=96, pool="class", registers=2, layer_scale=0.1)  # heads of 48 fit all
    assert vit.encoding.name == name
    assert vit.encoding.axes == axes
    with torch.no_grad():
        for parameter in vit.encoding.parameters():  # some start at zero, where others get no gradient
            parameter.add_(0.1 * torch.randn_like(parameter))
    logits = vit(images(2, *size))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    for key, parameter in vit.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


def test_positions_matter():
    """Patches that change places change the answer with an encoding, and do not without."""
    x = images()
    swapped = torch.cat([x[..., 4:8], x[..., :4], x[..., 8:]], -1)
    for name, alike in (("none", True), ("axial", False), ("mixed", False), ("learned-ape", False)):
        vit = small(name, width=48).eval()
        torch.nn.init.normal_(vit.blocks[0].qkv.weight)
        assert torch.allclose(vit(x), vit(swapped), atol=1e-5) == alike, name


def test_pooling():
    x = images()
    for pool, tokens in (("class", 1), ("mean", 0)):
        vit, seen = small(pool=pool, registers=3), []
        assert vit.prefix.shape == (1, tokens + 3, 24)
        vit.norm.register_forward_hook(lambda module, given, out, seen=seen: seen.append(out))
        vit.head.register_forward_pre_hook(lambda module, given, seen=seen: seen.append(given[0]))
        vit(x)
        out, read = seen
        assert out.shape == (2, tokens + 3 + 15, 24)
        torch.testing.assert_close(read, out[:, 0] if pool == "class" else out[:, 3:].mean(1))


@pytest.mark.parametrize("size", [(12, 20), (4, 28), (12, 20, 8)])
def test_maps_have_each_patch_in_its_place(size):
    """Without mixing, what stands in a place depends on the pixels of that place alone."""
    vit = small("none", size=size, pool="class", registers=2)
    for block in vit.blocks:
        torch.nn.init.zeros_(block.proj.weight)  # tokens do not see each other
    there, other = images(2, *size), images(2, *size)
    place = (*(1 if side == 12 else 0 for side in size[:-1]), 1)
    pixels = tuple(slice(4 * i, 4 * i + 4) for i in place)
    other[(..., *pixels)] = there[(..., *pixels)]
    changed = (vit.maps(there) != vit.maps(other)).any(1).any(0)
    assert changed.shape == tuple(side // 4 for side in size)
    assert not changed[place]
    assert changed.sum() == changed.numel() - 1


def test_maps_are_what_is_classified():
    vit = small("axial", registers=1)
    x = images()
    torch.testing.assert_close(vit(x), vit.head(vit.maps(x).flatten(2).mean(2)))
    torch.testing.assert_close(vit.maps(x), vit.features(x)[:, 1:].mT.reshape(2, 24, 3, 5))


def test_without_prefix_tokens_every_parameter_gets_a_gradient():
    vit = small("mixed")
    vit(images()).sum().backward()
    assert all(weight.grad is not None and weight.numel() for weight in vit.parameters())


def test_prefix_tokens_are_not_turned():
    vit, seen = small("axial", pool="class", registers=1), []
    vit.blocks[0].register_forward_pre_hook(lambda module, given: seen.append(given[1]))
    vit(images())
    code = unseal(*seen)
    assert (code.q_prefix, code.k_prefix) == (2, 2)
    assert torch.equal(code.matrices()[..., :2, :, :], torch.eye(12).expand(1, 2, 12, 12))


def test_every_layer_gets_its_own_code():
    vit, seen = small("mixed", depth=3), []
    for block in vit.blocks:
        block.register_forward_pre_hook(lambda module, given: seen.append(unseal(given[1]).q_angle))
    vit(images())
    whole = vit.encoding(vit.encoding.grid(3, 5)).q_angle
    assert [torch.equal(angle, row) for angle, row in zip(seen, whole, strict=True)] == [True] * 3
    assert not torch.equal(seen[0], seen[1])


def test_offsets_are_added_once_and_to_patches_alone():
    vit, seen = small("learned-ape", pool="class"), []
    vit.blocks[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    x = images()
    vit(x)
    code = vit.encoding(vit.encoding.grid(3, 5))
    assert isinstance(code, Offset)
    embedded = vit.embed(patches(x, vit.patch)).flatten(1, 2)
    torch.testing.assert_close(seen[0], torch.cat([vit.prefix.expand(2, 1, 24), code.tokens(embedded)], 1))


@pytest.mark.parametrize("size", [(12, 20), (20, 12), (4, 4), (24, 40)])
def test_other_sizes_in_use(size):
    vit = small("mixed")
    x = images(1, *size)
    assert vit(x, resolution="extrapolate").shape == (1, 7)
    rescaled = vit(x, resolution="rescale")
    assert rescaled.shape == (1, 7)
    with contextlib.nullcontext() if size == SMALL["size"] else pytest.warns(FutureWarning, match="rescaled by default"):
        assert torch.equal(vit(x), rescaled)


def test_patches_of_any_shape_and_one_channel():
    vit = small("axial", size=(12, 20), patch=(3, 10), channels=1)
    assert vit(images(2, 12, 20, channels=1)).shape == (2, 7)


@pytest.mark.parametrize(("convolution", "patch"), [(F.conv2d, (3, 5)), (F.conv3d, (2, 3, 5))], ids=["images", "volumes"])
def test_a_linear_map_of_patches_is_a_convolution(convolution, patch):
    x, weight = torch.randn(2, 3, *(2 * p * (i + 1) for i, p in enumerate(patch))), torch.randn(7, 3, *patch)
    expected = convolution(x, weight, stride=patch).movedim(1, -1)
    torch.testing.assert_close(F.linear(patches(x, patch), weight.flatten(1)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("resolution", ["extrapolate", "rescale"])
def test_positions_can_be_given(resolution):
    vit, x = small("mixed").eval(), images(2, 16, 12)
    p = vit.encoding.grid(4, 3, resolution=resolution)
    expected = vit(x, resolution=resolution)
    torch.testing.assert_close(vit(x, p), expected)
    torch.testing.assert_close(vit(x, p.expand(2, -1, -1)), expected)
    moved = torch.stack([p, 2 * p])
    assert torch.allclose(vit(x, moved)[0], expected[0], atol=1e-6)
    assert not torch.allclose(vit(x, moved)[1], expected[1], atol=1e-6)


def test_layer_scale():
    vit = small(layer_scale=1e-5)
    assert all(torch.equal(scale, torch.full((24,), 1e-5)) for b in vit.blocks for scale in (b.scale1, b.scale2))
    assert all(b.scale1 is None and b.scale2 is None for b in small().blocks)
    code, x = rw.Code(), torch.randn(2, 3, 24)
    block = Block(24, 2, 4.0, 0.5, 0.0, 0.0)
    plain = Block(24, 2, 4.0, None, 0.0, 0.0)
    plain.load_state_dict(block.state_dict(), strict=False)
    torch.nn.init.zeros_(block.scale2), torch.nn.init.zeros_(plain.down.weight), torch.nn.init.zeros_(plain.down.bias)
    torch.testing.assert_close(block(x, code) - x, 0.5 * (plain(x, code) - x))


def test_drop_path_leaves_out_whole_samples_and_keeps_the_mean():
    block, x = Block(24, 2, 4.0, None, 0.25, 0.0), torch.ones(4000, 2, 3)
    out = block._branch(x, None)
    kept = out[:, 0, 0] != 0
    torch.testing.assert_close(out, (kept.float() / 0.75)[:, None, None].expand_as(out))
    assert abs(kept.float().mean().item() - 0.75) < 4 * math.sqrt(0.25 * 0.75 / 4000)
    assert torch.equal(block.eval()._branch(x, None), x)


def test_drop_path_grows_with_depth():
    rates = [block.drop_path for block in small(depth=5, drop_path=0.2).blocks]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert [block.drop_path for block in small(depth=1, drop_path=0.2).blocks] == [0]


def test_dropout_acts_in_training_alone():
    vit, x = small(dropout=0.5), images()
    assert not torch.equal(vit(x), vit(x))
    vit.eval()
    plain = small()
    plain.load_state_dict(vit.state_dict())
    assert torch.equal(vit(x), vit(x))
    assert torch.equal(vit(x), plain.eval()(x))


def test_state_dict_round_trip():
    first, second, x = small("spherical", options={"learned": True}), small("spherical", options={"learned": True}), images()
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert torch.equal(first(x), second(x))


def test_options_reach_the_encoding():
    vit = small("liere", options={"block": 4}, heads=2)
    assert vit.encoding.block == 4
    assert (vit.encoding.layers, vit.encoding.heads, vit.encoding.head_dim, vit.encoding.size) == (2, 2, 12, (3, 5))


def test_weights_start_as_timm_starts_them():
    vit = ViT("tiny", encoding="swin-bias", pool="class", registers=4)
    for weight in (vit.head.weight, vit.blocks[3].qkv.weight, vit.blocks[3].up.weight, vit.prefix):
        assert abs(weight.std().item() - 0.02) < 0.002
        assert abs(weight.mean().item()) < 0.002
    others = [
        p for name, p in vit.named_parameters() if name.endswith("bias") and not name.startswith(("encoding", "embed"))
    ]
    assert not any(bias.any() for bias in others)
    assert not [type(m) for m in vit.encoding.modules() if isinstance(m, torch.nn.Linear)]  # which it would start anew


@pytest.mark.parametrize("patch", [4, 16])
def test_patches_are_embedded_as_by_a_convolution_of_pytorch(patch):
    """Within ± 1 / √fan-in, also after a reset: for small patches far more than 0.02, which timm keeps for other layers."""
    bound = 1 / math.sqrt(3 * patch * patch)
    vit = ViT("tiny", size=(32, 32), patch=patch)
    with torch.no_grad():
        vit.embed.weight.zero_()
    vit.reset_parameters()
    for weight in (vit.embed.weight, vit.embed.bias):
        assert weight.abs().max() <= bound
    assert vit.embed.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_what_weight_decay_leaves_alone():
    vit = small("mixed", pool="class", layer_scale=0.1)
    spared = vit.no_weight_decay()
    assert spared <= {name for name, _ in vit.named_parameters()}
    matrices = {f"blocks.{i}.{name}.weight" for i in range(2) for name in ("qkv", "proj", "up", "down")}
    assert {name for name, _ in vit.named_parameters()} - spared == matrices | {"embed.weight", "head.weight"}
    assert any(name.startswith("encoding.") for name in spared)
    assert {"prefix", "blocks.0.scale1", "blocks.1.norm2.weight", "head.bias"} <= spared


WRONG = {
    "unknown preset": ({"preset": "huge"}, r"preset 'huge'.*tiny, small, base"),
    "unknown pool": ({"pool": "max"}, r"pool 'max'.*mean, class"),
    "unknown encoding": ({"encoding": "axail"}, "Did you mean 'axial'"),
    "patch that does not divide": ({"size": (225, 224)}, r"patch, got \(225, 224\).*\(16, 16\)"),
    "one axis": ({"size": (224,)}, r"got \(224,\)"),
    "patch of another number of axes": ({"patch": (16, 16, 16)}, r"got \(224, 224\).*\(16, 16, 16\)"),
    "no patch": ({"patch": 0}, "patch"),
    "no width": ({"width": 0}, "width"),
    "no depth": ({"depth": 0}, "depth"),
    "no heads": ({"heads": 0}, "heads"),
    "heads that do not divide": ({"heads": 5}, r"width.*heads, got 192.*5"),
    "drop path of one": ({"drop_path": 1.0}, "drop_path"),
    "fewer than no registers": ({"registers": -1}, "registers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_in_words(case):
    options, message = WRONG[case]
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        ViT(**{"preset": "tiny", **options})


def test_images_that_patches_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="patch"):
        small()(images(1, 13, 20))


def test_positions_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="14"):
        small()(images(), torch.zeros(14, 2))


@pytest.mark.exhaustive("programs", kept=lambda name: name == "mixed")
@pytest.mark.parametrize("name", ["mixed", "liere", "swin-bias", "string-cayley"])
def test_compiles_whole(name):
    torch.compiler.reset()
    vit, x = small(name, pool="class"), images()
    backend = CompileCounterWithBackend("aot_eager")
    fast = torch.compile(vit, fullgraph=True, backend=backend)
    results = []
    for model in (vit, fast):
        loss = model(x).square().sum()
        results.append([loss.detach(), *torch.autograd.grad(loss, list(vit.parameters()))])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert backend.frame_count == 1


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # which the compiler looks at
@pytest.mark.exhaustive("programs", kept=lambda name, drop_path: name == "none" or drop_path > 0)
@pytest.mark.parametrize(("name", "drop_path"), [("none", 0.0), ("mixed", 0.0), ("liere", 0.0), ("mixed", 0.3)])
def test_one_block_compiles_for_all_layers(name, drop_path):
    torch.compiler.reset()
    vit, x = small(name, depth=12, drop_path=drop_path), images()
    eager = copy.deepcopy(vit).eval()
    backend = CompileCounterWithBackend("aot_eager")
    for block in vit.blocks:
        block.compile(fullgraph=True, backend=backend)
    torch.testing.assert_close(vit.eval()(x), eager(x), rtol=1e-4, atol=1e-5)
    assert backend.frame_count == 1
    vit.train()(x).sum().backward()
    assert backend.frame_count <= (2 if drop_path == 0 else 4)


def test_a_model_made_without_memory_can_be_filled():
    with torch.device("meta"):
        made = small("spherical", options={"learned": True}, layer_scale=0.1, drop_path=0.2, pool="class")
    made.to_empty(device="cpu")
    for tensor in (*made.parameters(), *made.buffers()):
        torch.nn.init.constant_(tensor, math.nan) if tensor.is_floating_point() else None
    made.reset_parameters()
    assert not [name for name, tensor in (*made.named_parameters(), *made.named_buffers()) if tensor.isnan().any()]
    assert [round(float(block.keep), 3) for block in made.blocks] == [1.0, 0.8]
    assert torch.equal(made.blocks[0].scale1, torch.full((24,), 0.1))
    assert made(images()).isfinite().all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 12}, "size"),
        ({"ratio": 0.0}, "ratio"),
        ({"layer_scale": math.nan}, "layer_scale"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_settings_that_cannot_be_meant(options, words):
    with pytest.raises(ValueError, match=words):
        small(**options)


def test_images_of_another_rank():
    with pytest.raises(ValueError, match="2 sides"):
        small()(torch.zeros(1, 3, 12))


def test_dropout_acts_on_both_branches():
    block = small(dropout=0.5).blocks[0]
    x = torch.randn(2, 15, 24)
    assert (block._attention(x, rw.Code()) == 0).any()
    assert (block._perceptron(x) == 0).any()
    assert not (block.eval()._attention(x, rw.Code()) == 0).any()


# Other sizes than in training

LARGE = (24, 20)
RULED = {"extension": {"rope_type": "yarn"}}


def settled(vit, grid):
    """The model with its rule settled beforehand, for images of this grid alone."""
    return vit.with_encoding(vit.encoding.at(grid))


@pytest.mark.parametrize("name", ["axial", "mixed"])
def test_a_rule_is_settled_for_each_image(name):
    """Positions are extrapolated then; at the size of training nothing changes, bit for bit."""
    vit, plain = (small(name, options=options).eval() for options in (RULED, {}))
    plain.load_state_dict(vit.state_dict())
    x = images(2, *SMALL["size"])
    assert torch.equal(vit(x), plain(x))
    for size, grid in ((LARGE, (6, 5)), ((12, 40), (3, 10)), ((8, 8), (2, 2))):
        x, ruled = images(2, *size), settled(vit, grid)
        extrapolated = ruled.encoding.grid(*grid, resolution="extrapolate")
        wanted = ruled(x, extrapolated)
        assert torch.equal(vit(x), wanted)
        assert torch.equal(vit(x, resolution="extrapolate"), wanted)
        changes = (wanted - plain(x, extrapolated)).abs().max() > 1e-6
        assert changes == (size != (8, 8))
    with pytest.raises(ValueError, match=r"extension.*yarn.*already.*resolution='extrapolate'"):
        vit(images(2, *LARGE), resolution="rescale")


def test_a_rule_leaves_learned_waves_to_training_and_compiles():
    vit, x = small("mixed", options=RULED, depth=1), images(2, *LARGE)
    vit(x).square().sum().backward()
    wanted, found = vit.encoding.wave.grad.clone(), []
    vit.zero_grad()
    torch.compiler.reset()
    fast = torch.compile(vit, fullgraph=True, backend="aot_eager")
    fast(x).square().sum().backward()
    found.append(vit.encoding.wave.grad)
    torch.testing.assert_close(found[0], wanted, rtol=1e-3, atol=1e-5)
    assert wanted.abs().max() > 0
    x = images(2, *SMALL["size"])
    torch.testing.assert_close(fast(x), vit(x))


def test_a_chain_settles_its_rule_too():
    parts = [{"name": "axial", **RULED}, {"name": "alibi"}]
    vit, x = small("chain", options={"parts": parts}, depth=1).eval(), images(2, *LARGE)
    wanted = settled(vit, (6, 5))
    assert torch.equal(vit(x), wanted(x, wanted.encoding.grid(6, 5, resolution="extrapolate")))
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(vit, fullgraph=True, backend="aot_eager")(x), vit(x))


def test_a_table_is_interpolated_by_default():
    vit, x = small("learned-ape").eval(), images(2, *LARGE)
    table = vit.encoding.table.detach().permute(2, 0, 1)[None]
    finer = F.interpolate(table, (6, 5), mode="bilinear", align_corners=False)[0].permute(1, 2, 0)
    with pytest.warns(FutureWarning, match="rescaled by default"):
        found = vit(x)
    plain = vit.with_encoding(small("none").encoding)
    embedded = plain.embed.register_forward_hook(lambda module, given, out: out + finer)
    torch.testing.assert_close(found, plain(x), rtol=1e-5, atol=1e-5)
    embedded.remove()


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({}, None, r"3 × 5 patches.*axial has size=None: for 6 × 5 patches.*size=\(3, 5\).*resolution='extrapolate'"),
        ({}, "rescale", r"size=None.*resolution='extrapolate'"),
        ({"coordinates": "centre"}, "extrapolate", r"size=None.*resolution='rescale'"),
    ],
)
def test_without_a_known_size_there_is_no_guess(options, given, words):
    vit = small("axial", options={"size": None, **options}).eval()
    assert vit(images()).isfinite().all()  # at the size of training all ways are one
    with pytest.raises(ValueError, match=words):
        vit(images(2, *LARGE), resolution=given)


def test_without_a_known_size_the_way_that_needs_none_is_taken():
    x = images(2, *LARGE)
    for coordinates, mode in (("index", "extrapolate"), ("centre", "rescale")):
        vit, known = (small("axial", options={"size": size, "coordinates": coordinates}).eval() for size in (None, (3, 5)))
        known.load_state_dict(vit.state_dict())
        assert torch.equal(vit(x, resolution=mode), known(x, resolution=mode))
    assert torch.equal(vit(x), known(x, resolution="rescale"))
    assert small("none", options={"size": None})(x).shape == (2, 7)


def test_time_is_not_rescaled_unasked():
    vit = small("axial", size=(8, 12, 20)).eval()
    with pytest.raises(ValueError, match=r"first of 3 axes.*4 in place of 2.*'rescale' for depth"):
        vit(images(1, 16, 12, 20))
    clip = vit(images(1, 16, 12, 20) * 0 + 1, resolution=("extrapolate", "rescale", "rescale"))
    assert clip.isfinite().all()


def test_sides_that_patches_do_not_divide():
    with pytest.raises(ValueError, match=r"2 sides that the patch \(4, 4\) divides.*got \(1, 3, 14, 20\)"):
        small()(images(1, 14, 20))
