"""Models of timm's with an encoding in use: other sizes, training, compilation, folding."""

import copy

import pytest
import torch

import ropewalk as rw
from ropewalk.adapters.timm import fold_into, install
from ropewalk.adapters.timm.attach import uninstall
from tests.adapters.timm.test_install import OLD, TURNING, close, host, images, knows, results

# Sizes


@pytest.mark.parametrize("kind", [*TURNING, "plain"])
def test_other_sizes_are_met_as_timm_meets_them(kind):
    model = host(kind, dynamic_img_size=True)
    installed = install(copy.deepcopy(model))
    for sizes in ((64, 112), (80, 48), (16, 32)):
        close(installed(images(*sizes)), model(images(*sizes)))


@pytest.mark.parametrize("kind", [*TURNING, "plain"])
def test_the_size_can_be_set(kind):
    model = host(kind)
    installed = install(copy.deepcopy(model))  # keeps the model's own rule, without a warning
    dropped = install(copy.deepcopy(model), "golden", drop_table=True, resolution="rescale")
    for each in (model, installed, dropped):
        each.set_input_size((64, 112))
    logits = model(images(64, 112))
    close(installed(images(64, 112)), logits)
    assert dropped(images(64, 112)).shape == (2, 5)
    assert torch.equal(uninstall(installed)(images(64, 112)), logits)
    assert torch.equal(uninstall(dropped)(images(64, 112)), logits)


@pytest.mark.parametrize("kind", ["plain", "eva02"])
@pytest.mark.parametrize("resolution", ["extrapolate", "rescale"])
def test_places_are_those_of_the_encoding_s_grid(kind, resolution):
    """Of the grid at installation, of which a larger image is a larger one, or a finer one."""
    model = host(kind, dynamic_img_size=True)
    x, options = images(64, 112), {"coordinates": "centre", "reference": (3, 5)}
    encoding = rw.create("comrope-ld", head_dim=24, heads=2, layers=2, size=(3, 5))
    install(model, encoding, resolution=resolution)
    wanted = rw.positions.grid(4, 7, resolution=resolution, **options)
    assert torch.equal(model.rope.positions((4, 7), x.device), wanted)
    logits = model(x)
    if resolution == "rescale":
        with pytest.warns(FutureWarning, match="rescaled by default"):
            assert torch.equal(install(model, encoding)(x), logits)
    other = "rescale" if resolution == "extrapolate" else "extrapolate"
    assert (install(model, encoding, resolution=other)(x) - logits).abs().max() > 1e-3


def test_eva_s_own_rule_for_places_can_be_replaced():
    model = host("eva02", dynamic_img_size=True)
    assert model.rope.ref_feat_shape == (16, 16)
    corner = install(model).rope.positions((4, 7), torch.device("cpu"))[-1]
    close(corner, torch.tensor([3 / 4 * 16, 6 / 7 * 16]))
    corner = install(model, resolution="extrapolate").rope.positions((4, 7), torch.device("cpu"))[-1]
    assert corner.tolist() == [3, 6]


def test_a_table_of_differences_ends_where_it_ends():
    model = install(host("plain", dynamic_img_size=True), "swin-bias", resolution="extrapolate")
    with pytest.raises(ValueError, match="apart"):
        model(images(96, 80))
    assert install(model, "swin-bias", resolution="rescale")(images(96, 80)).isfinite().all()


# Training


def test_places_are_moved_in_training_alone():
    model, x = install(host("plain"), "golden", shift=0.3, jitter=1.5, rescale=2.0), images()
    still = model(x)
    assert torch.equal(model(x), still)
    grid = model.encoding.grid(3, 5)
    model.train()
    torch.manual_seed(1)
    moved = model.rope.positions((3, 5), x.device)
    torch.manual_seed(1)
    wanted = rw.positions.rescale(rw.positions.jitter(rw.positions.shift(grid, 0.3), 1.5), 2.0)
    assert torch.equal(moved, wanted)
    assert not torch.equal(moved, grid)
    assert (model(x) - model(x)).abs().max() > 1e-3
    assert torch.equal(model.eval()(x), still)
    assert torch.equal(install(model.train(), "golden")(x), still)


@pytest.mark.skipif(not knows("rope_shift_coords"), reason=OLD.format("rope_shift_coords"))
def test_what_dinov3_moves_is_moved():
    """timm's module draws in the same order, one number an axis: the same seed gives the same tables."""
    model, x = host("dinov3", rope_shift_coords=0.2, rope_jitter_coords=1.3, rope_rescale_coords=2.0).train(), images()
    torch.manual_seed(2)
    logits = model(x)
    install(model)
    torch.manual_seed(2)
    close(model(x), logits)
    assert (model(x) - logits).abs().max() > 1e-3
    install(model, rescale=1.5)
    assert (model.rope.moves.shift, model.rope.moves.rescale) == (None, 1.5)


@pytest.mark.parametrize("kind", ["plain", "axial", "mixed", "eva02"])
def test_what_is_dropped_in_training_is_dropped_as_before(kind):
    """Paths, tokens, attention and patches, by the same draws."""
    options = {"drop_path_rate": 0.4, "pos_drop_rate": 0.2, "attn_drop_rate": 0.2, "proj_drop_rate": 0.2}
    model, x = host(kind, patch_drop_rate=0.4, **options).train(), images()
    torch.manual_seed(3)
    logits = model(x)
    assert (model(x) - logits).abs().max() > 1e-3
    install(model)
    torch.manual_seed(3)
    close(model(x), logits)
    assert model.eval()(x).isfinite().all()


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_patches_keep_their_places_when_others_are_dropped(kind):
    """So small a rate drops none and only shuffles them: nothing changes if each takes its place along."""
    model, x = install(host(kind, patch_drop_rate=1e-17), "mixed"), images()
    logits = model(x)
    close(model.train()(x), logits)


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_saving_memory_changes_nothing(kind):
    """Each block runs once more going back, with the codes of its own pass, though the size was another in between."""
    model = install(host(kind, drop_path_rate=0.3, dynamic_img_size=True), "comrope-ld", resolution="rescale").train()
    runs, found = [], []
    for block in model.blocks:
        block.attn.qkv.register_forward_hook(lambda *_: runs.append(1))
    for saving in (False, True):
        model.set_grad_checkpointing(saving)
        model.zero_grad()
        torch.manual_seed(4)
        (model(images()).sum() + model(images(64, 32)).square().sum()).backward()
        found.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    assert len(runs) == 4 + 8
    assert found[0]["rope.encoding.matrix"].abs().max() > 0
    for name, gradient in found[0].items():
        close(found[1][name], gradient)


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_features_and_heads(kind):
    model, x = host(kind), images()
    features, (last,) = model.forward_features(x), model.forward_intermediates(x, 1, intermediates_only=True)
    install(model)
    close(model.forward_features(x), features)
    close(model.forward_intermediates(x, 1, intermediates_only=True)[0], last)
    final, both = model.forward_intermediates(x, indices=[0, 1], norm=True, output_fmt="NLC")
    assert torch.equal(both[1], final[:, model.num_prefix_tokens :])
    model.reset_classifier(7)
    assert model(x).shape == (2, 7)
    model.prune_intermediate_layers([0])
    assert len(model.forward_intermediates(x, intermediates_only=True)) == 1


@pytest.mark.parametrize(("kind", "encoding"), [("plain", "comrope-ld"), ("mixed", None)])
def test_one_graph(kind, encoding):
    model, x = install(host(kind), encoding, shift=0.1), images()
    logits, gradients = results(model, x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    close(compiled(x), logits)
    _, others = results(compiled, x)
    for name, gradient in gradients.items():
        close(others[name if name == "images" else f"_orig_mod.{name}"], gradient, 1e-5)


@pytest.mark.parametrize("kind", ["plain", "eva02"])
def test_fast_paths_are_taken(kind, monkeypatch):
    """q and k turn in one pass over the projection, where nothing stands between; attention is the fused one."""
    called = []

    def counted(owner, name):
        inner = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **options: called.append(name) or inner(*args, **options))

    counted(rw.Rotation, "qkv")
    counted(torch.nn.functional, "scaled_dot_product_attention")
    install(host(kind), "mixed")(images())
    assert sorted(called) == ["qkv"] * 2 + ["scaled_dot_product_attention"] * 2


# Folding


@pytest.mark.parametrize("encoding", ["comrope-ld", "string-cayley"])
@pytest.mark.parametrize("kind", ["plain", "registers", "eva02", "eva02 apart", "dinov3"])
def test_folding_keeps_the_logits(kind, encoding):
    """Also where EVA keeps the bias of q by itself, and with tokens that have no place."""
    model, x = install(host(kind), encoding), images()
    logits = model(x)
    assert fold_into(model) is model
    assert type(model.encoding) is rw.Mixed
    close(model(x), logits)
    with torch.no_grad():
        model.encoding.wave.zero_()
    assert (model(x) - logits).abs().max() > 1e-3


def test_one_encoding_for_all_layers_folds_too():
    model, x = host("eva02"), images()
    install(model, rw.create("comrope-ld", head_dim=24, heads=2, size=(3, 5)))
    logits, gradients = results(model, x)
    assert gradients["rope.matrix"].shape == (2, 3, 8, 8)
    close(fold_into(model)(x), logits)


def test_norms_between_are_refused():
    model, x = install(host("clip"), "comrope-ld"), images()
    logits = model(x)
    with pytest.raises(ValueError, match=r"0.*LayerNorm.*does"):
        fold_into(model)
    assert torch.equal(model(x), logits)
    with pytest.raises(ValueError, match="commute"):
        fold_into(install(model, "liere"))
    with pytest.raises(TypeError, match="install one first"):
        fold_into(uninstall(model))


def test_a_rotation_cannot_come_back_into_another_basis():
    """Scores that nothing turns are the same in any basis; those that the model's own rotation turns are not."""
    model, x = host("plain"), images()
    logits = model(x)
    close(uninstall(fold_into(install(model, "comrope-ld")))(x), logits)
    model = fold_into(install(host("axial"), "comrope-ld"))
    with pytest.raises(ValueError, match="folded"):
        uninstall(model)


# Other sizes than at installation


@pytest.mark.parametrize("kind", ["plain", "eva02"])
def test_a_rule_for_axes_works_at_any_size(kind):
    model = install(host(kind, dynamic_img_size=True), "axial", extension={"rope_type": "yarn"})
    for sizes in ((3, 5), (6, 5), (2, 3)):
        x = images(*(16 * n for n in sizes))
        with model.rope.placed(model.encoding.grid(*sizes, resolution="extrapolate")):
            wanted = model(x)
        assert torch.equal(model(x), wanted)
        settled = install(host(kind, dynamic_img_size=True), model.encoding.at(sizes))
        close(settled(x), wanted)
    with pytest.raises(ValueError, match=r"extension.*yarn.*already"):
        install(host(kind, dynamic_img_size=True), "axial", extension="yarn", resolution="rescale")(images(96, 80))


def test_an_encoding_without_a_size_asks_for_one():
    model = install(host("plain", dynamic_img_size=True), rw.create("axial", head_dim=24, heads=2))
    assert model(images()).isfinite().all()
    with pytest.raises(ValueError, match=r"size=None: for 6 × 5 patches.*size=\(3, 5\).*resolution='extrapolate'"):
        model(images(96, 80))
    assert install(model, model.encoding, resolution="extrapolate")(images(96, 80)).isfinite().all()
