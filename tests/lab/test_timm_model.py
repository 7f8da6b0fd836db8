"""Models of timm's in the lab: trained, probed, begun from, with any encoding."""

from dataclasses import replace

import pytest
import timm
import torch

from ropewalk.adapters.timm.rope import PLACING
from ropewalk.lab.compare.run import compare_encodings
from ropewalk.lab.errors import CommandError
from ropewalk.lab.init_from import initialize_from_run
from ropewalk.lab.model_building import build_model
from ropewalk.lab.probes import probe_run
from ropewalk.lab.probes.attention import measure_attention_weights
from ropewalk.lab.probes.cost import build_bare_model
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.tasks import open_trained_run
from ropewalk.lab.tasks.trained_images import load_image_model
from ropewalk.lab.train import train_run

VIT = "timm:test_vit"
SMALL = replace(
    RECIPES["digits"], model=VIT, patch=2, epochs=1, fraction=0.3, batch=64, compile=False, learning_rate=2e-3, ema=0.5
)
SHAPE = {"size": (8, 8), "channels": 1, "classes": 10}


def images(count=3, side=8):
    return torch.randn(count, 1, side, side, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_run(replace(SMALL, encoding="mixed"), tmp_path_factory.mktemp("runs"))


def test_the_model_is_timm_s_with_the_encoding(trained):
    model = load_image_model(trained)
    assert isinstance(model.host, timm.models.VisionTransformer)
    assert model.encoding.name == "mixed"
    assert (model.patch, model.host.num_classes) == ((2, 2), 10)
    assert trained.result()["encoding_parameters"] == sum(w.numel() for w in model.encoding.parameters()) > 0
    assert trained.config.name != replace(trained.config, model=None).name


def test_all_weights_but_the_encoding_s_are_the_same_for_all_encodings():
    one, two = (build_model(replace(SMALL, encoding=name), **SHAPE) for name in ("mixed", "none"))
    weights, others = dict(one.named_parameters()), dict(two.named_parameters())
    own = {name for name in weights if name.startswith("host.rope.encoding.")}
    assert weights.keys() - others.keys() == own
    assert own
    assert all(torch.equal(weights[name], others[name]) for name in others)
    spared = one.no_weight_decay()
    assert own <= spared
    assert {"host.pos_embed", "host.cls_token", "host.norm.weight"} <= spared
    assert "host.blocks.0.attn.qkv.weight" not in spared


def test_what_is_dropped_is_handed_on():
    model = build_model(replace(SMALL, encoding="mixed", drop_path=0.2, dropout=0.1), **SHAPE)
    assert model.host.blocks[-1].drop_path1.drop_prob == pytest.approx(0.2)
    assert model.host.head_drop.p == 0.1


def test_the_encoding_is_drawn_from_the_seed_whatever_the_model_drew():
    models = (
        build_model(replace(SMALL, encoding="mixed", span=None, model=name), **SHAPE) for name in (VIT, "timm:test_vit2")
    )
    first, second = (next(model.encoding.parameters()) for model in models)
    assert first.shape != second.shape
    assert torch.equal(first[0, 0], second[0, 0])


def test_positions_are_taken_as_our_own_model_takes_them(trained):
    model, grid = load_image_model(trained), load_image_model(trained).encoding.grid(4, 4)
    x = images()
    assert torch.equal(model(x, grid), model(x))
    assert (model(x, 2 * grid) - model(x)).abs().max() > 1e-3
    each = torch.stack([grid, 2 * grid, grid])
    torch.testing.assert_close(model(x, each)[1], model(x, 2 * grid)[1], rtol=0, atol=1e-5)
    large = images(side=12)
    assert (model(large, resolution="rescale") - model(large, resolution="extrapolate")).abs().max() > 1e-4
    assert torch.equal(model(large, model.encoding.grid(6, 6, resolution="rescale")), model(large, resolution="rescale"))
    assert PLACING.now == ()


def test_another_encoding_leaves_the_model_as_it_was(trained):
    model, x = load_image_model(trained), images()
    before = model(x)
    other = model.with_encoding(model.encoding.extended("linear", (8, 8)))
    assert (other(x) - before).abs().max() > 1e-4
    assert torch.equal(model(x), before)


def test_runs_are_probed_and_what_is_of_our_own_model_is_refused(trained):
    found = probe_run(trained, ["resolution", "offset", "shuffle", "waves", "cost"], device="cpu")
    assert {row["layer"] for row in found["waves"]} == set(range(6))  # of test_vit, whatever the recipe's depth is
    assert {row["mode"] for row in found["resolution"]} == {"extrapolate", "rescale", "ntk", "yarn"}
    assert len({row["accuracy"] for row in found["offset"]}) <= 2
    with pytest.raises(ValueError, match=f"attention patterns.*our own ViT.*the model {VIT}"):
        measure_attention_weights(trained, [0])


def test_generators_that_are_zero_begin_where_the_model_ended(tmp_path):
    plain = train_run(replace(SMALL, encoding="none"), tmp_path)
    new = build_model(replace(SMALL, encoding="comrope-ld", options={"std": 0.0, "block": 4}, span=None), **SHAPE)
    initialize_from_run(new, plain)
    assert torch.equal(new.eval()(images()), load_image_model(plain)(images()))
    tuned = replace(SMALL, encoding="comrope-ld", options={"std": 0.0, "block": 4}, span=None, learning_rate=5e-4)
    done = train_run(replace(tuned, start=str(plain.path)), tmp_path)
    assert done.result()["validation_loss"] < plain.result()["validation_loss"]


def test_a_table_is_dropped_from_a_run_that_has_it(tmp_path):
    """All else is loaded; the host without its table, from timm alone, gives the same logits."""
    plain = train_run(replace(SMALL, encoding="none"), tmp_path)
    dropped = replace(SMALL, encoding="none", drop_table=True)
    assert dropped.name != replace(dropped, drop_table=False).name == replace(SMALL, encoding="none").name
    new = build_model(dropped, **SHAPE)
    assert new.host.pos_embed is None
    initialize_from_run(new, plain)
    bare = timm.create_model("test_vit", img_size=8, patch_size=2, in_chans=1, num_classes=10, pos_embed="none")
    weights = {name.removeprefix("host."): value for name, value in plain.load_weights()[0].items()}
    bare.load_state_dict({name: value for name, value in weights.items() if name != "pos_embed"})
    with torch.no_grad():
        torch.testing.assert_close(new.eval()(images()), bare.eval()(images()))
        assert (load_image_model(plain)(images()) - bare(images())).abs().max() > 1e-4
    done = train_run(replace(dropped, encoding="axial", span=None, start=str(plain.path)), tmp_path)
    opened = open_trained_run(done, "cpu")
    assert opened.model.host.pos_embed is None
    assert build_bare_model(opened).host.pos_embed is None
    with pytest.raises(ValueError, match=r"host\.pos_embed"):
        initialize_from_run(build_model(replace(SMALL, encoding="none"), **SHAPE), done)


def test_cost_is_measured_beside_the_same_model(trained):
    """All but the encoding is there: the table, too."""
    run = open_trained_run(trained, "cpu")
    own = {name: weight.shape for name, weight in run.model.named_parameters() if ".rope." not in name}
    like = build_bare_model(run)
    assert {name: weight.shape for name, weight in like.named_parameters()} == own
    assert "host.pos_embed" in own
    assert (type(like.host), like.encoding.name, like.training) == (type(run.model.host), "none", False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"registers": 4}, f"{VIT} has registers of its own, if any: registers must be 0, got 4"),
        ({"model": "timm:vit_smal"}, "'vit_smal'. Did you mean 'timm:vit_small_"),
        ({"model": "timm:zzz"}, "'zzz'; expected .*timm:vit_tiny_patch16_224"),
        ({"model": "timm:vit_small_patch16_22"}, r"Did you mean 'timm:vit_small_patch16_224'"),
        ({"model": "vit_small_patch16_224"}, r"Did you mean 'timm:vit_small_patch16_224'\?"),
        ({"model": "vit"}, r"model must be none.*timm:vit_tiny_patch16_224"),
        ({"model": "timm:resnet18"}, r"timm:resnet18 is no vision transformer.*timm:vit_tiny_patch16_224"),
    ],
)
def test_what_cannot_be_trained_is_refused_before(settings, words, tmp_path):
    with pytest.raises(CommandError, match=words):
        compare_encodings(["mixed"], replace(SMALL, **settings), tmp_path, seeds=[0], baseline="mixed")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop_table": True}, r"options.*encoding's.*mixed got drop_table"),
        ({"rescale": 2.0, "shift": 0.1}, "mixed got shift, rescale"),
        ({"resolution": "rescale", "scale": 0.5}, "mixed got resolution$"),
        ({"jitter": 1.5}, "mixed got jitter$"),
        ({"tilt": 1.5}, "Unknown option 'tilt' of mixed"),
    ],
)
def test_options_are_those_of_the_encoding(options, words):
    """What `install` takes besides would change more, and not the model beside which the cost is measured."""
    with pytest.raises((ValueError, TypeError), match=words):
        build_model(replace(SMALL, encoding="mixed", options=options), **SHAPE)
