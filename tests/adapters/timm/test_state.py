"""What stays of a model of timm's when an encoding is in it: names of weights, copies, training; and all of it later."""

import copy
import io
from concurrent.futures import ThreadPoolExecutor

import pytest
import timm
import torch
from timm.utils import ModelEmaV3
from torch import nn

import ropewalk as rw
from ropewalk.adapters.timm import install
from ropewalk.adapters.timm.attach import uninstall
from ropewalk.adapters.timm.models import PASSING
from tests.adapters.timm.test_install import HOSTS, SMALL, close, host, images, results


def described(model):
    """All that a model is, but for its numbers."""
    plain = {
        name: {key: value for key, value in vars(module).items() if isinstance(value, int | float | str | tuple | None)}
        for name, module in model.named_modules()
    }
    return [(name, type(module)) for name, module in model.named_modules()], plain, list(model.state_dict()), str(model)


@pytest.mark.parametrize("kind", [*HOSTS, "dropping"])
def test_what_is_taken_out_leaves_the_model_as_it_was(kind):
    model, x = host("mixed" if kind == "dropping" else kind, patch_drop_rate=0.3 if kind == "dropping" else 0.0), images()
    before, logits, numbers = described(model), model(x), copy.deepcopy(model.state_dict())
    install(model, "comrope-ld", drop_table=True, resolution="rescale", shift=0.1)
    assert (model(x) - logits).abs().max() > 1e-3
    install(model, "liere")
    assert uninstall(model) is model
    assert described(model) == before
    assert torch.equal(model(x), logits)
    assert all(torch.equal(new, numbers[name]) for name, new in model.state_dict().items())
    assert uninstall(model) is model


@pytest.mark.parametrize("kind", ["mixed", "dinov3", "axial", "plain"])
def test_checkpoints_of_timm_s_load_and_are_written(kind):
    """Names and shapes are timm's, both ways; frequencies that rope_mixed has learned are read."""
    trained, x = host(kind), images()
    other = install(timm.create_model(HOSTS[kind][0], **{**SMALL, **HOSTS[kind][1]}).eval())
    assert (other(x) - trained(x)).abs().max() > 1e-2
    other.load_state_dict(trained.state_dict())
    close(other(x), trained(x))
    assert {name: value.shape for name, value in other.state_dict().items()} == {
        name: value.shape for name, value in trained.state_dict().items()
    }
    again = timm.create_model(HOSTS[kind][0], **{**SMALL, **HOSTS[kind][1]}).eval()
    again.load_state_dict(other.state_dict())
    assert torch.equal(again(x), trained(x))


def test_mixed_rope_of_ours_reads_timm_s_frequencies():
    trained, x = host("mixed"), images()
    model = install(host("mixed"), "mixed")
    assert "rope.encoding.wave" in model.state_dict()
    model.load_state_dict(trained.state_dict())
    close(model(x), trained(x))
    with pytest.raises(RuntimeError, match=r"rope\.freqs"):
        install(host("mixed"), "golden").load_state_dict(trained.state_dict())


@pytest.mark.parametrize("encoding", [None, "comrope-ld", "swin-bias"])
def test_an_average_of_the_weights_follows_the_encoding_s(encoding):
    """timm's averages write into the tensors of the state dict: they must be the parameters themselves."""
    model = install(host("mixed"), encoding)
    average = ModelEmaV3(model, decay=0.5, foreach=False)
    start = [weight.clone() for weight in average.module.encoding.parameters()]
    assert start
    with torch.no_grad():
        for weight in model.encoding.parameters():
            weight += 1.0
    average.update(model)
    for old, new in zip(start, average.module.encoding.parameters(), strict=True):
        close(new, old + 0.5)


@pytest.mark.parametrize("encoding", ["comrope-ld", "swin-bias", None])
@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_copies_and_pickles(kind, encoding):
    model, x = install(host(kind), encoding, shift=0.1), images()
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(model), torch.load(buffer, weights_only=False)):
        assert torch.equal(other(x), model(x))
        assert type(other) is type(model)
        with torch.no_grad():
            other.head.bias += 1.0
        assert not torch.equal(other(x), model(x))
        assert type(uninstall(other)) is type(host(kind))


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_parameters_are_the_model_s(kind):
    model, x = install(host(kind), "comrope-ld"), images()
    names = {"rope.encoding.matrix", "rope.encoding.theta"}
    assert names <= dict(model.named_parameters()).keys()
    assert names <= model.no_weight_decay()
    assert {"cls_token", "pos_embed"} <= model.no_weight_decay()
    before = [weight.clone() for weight in model.encoding.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    results(model, x)
    optimizer.step()
    assert all((old != new).any() for old, new in zip(before, model.encoding.parameters(), strict=True))
    model.bfloat16()
    assert {weight.dtype for weight in model.encoding.parameters()} == {torch.float32}
    assert model(x.bfloat16()).dtype is torch.bfloat16


@pytest.mark.parametrize("encoding", ["mixed", "comrope-ld", "alibi", "learned-ape"])
def test_bfloat16(encoding):
    """As far off as bfloat16 makes the model without an encoding, within a factor."""
    model, x = host("clip"), images()
    off = (copy.deepcopy(model).bfloat16()(x.bfloat16()) - model(x)).abs().max()
    install(model, encoding)
    exact = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = model(x)
    for narrow in (cast, model.bfloat16()(x.bfloat16())):
        assert narrow.dtype is torch.bfloat16
        assert (narrow - exact).abs().max() < 4 * off


REFUSED = {
    "no model of these": (lambda: nn.Linear(2, 2), "mixed", {}, TypeError, r"plain ViT.*modules\.linear\.Linear"),
    "channels": (
        lambda: timm.create_model("xcit_nano_12_p16_224", depth=1, cls_attn_layers=1),
        "mixed",
        {},
        TypeError,
        "Xcit.*XCA: it compares channels",
    ),
    "one axis": (lambda: host("plain"), rw.create("rope", head_dim=24, heads=2), {}, ValueError, "axes=2"),
    "other heads": (lambda: host("plain"), rw.create("mixed", head_dim=24, heads=3), {}, ValueError, "heads=2"),
    "options alone": (lambda: host("plain"), None, {"std": 0.0}, TypeError, "options go with the name"),
    "resolution": (lambda: host("plain"), "mixed", {"resolution": "larger"}, ValueError, "'larger'.*extrapolate, rescale"),
    "jitter": (lambda: host("plain"), "mixed", {"jitter": 0.5}, ValueError, "at least 1"),
    "a table for two": (
        lambda: timm.create_model("deit_small_distilled_patch16_224", **SMALL, num_heads=2),
        "mixed",
        {"drop_table": True},
        TypeError,
        "cannot be left out",
    ),
    "no encoding": (lambda: host("plain"), 3, {}, TypeError, "got int"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_leaves_the_model_alone(case):
    make, encoding, options, error, words = REFUSED[case]
    model = make()
    before = type(model)
    with pytest.raises(error, match=words):
        install(model, encoding, **options)
    assert type(model) is before


def test_pairs_at_odds_are_refused():
    """Older releases of timm let attention rotate halves with a table for neighbours, which is no rotation."""
    model = host("axial")
    model.blocks[1].attn.rotate_half = True
    with pytest.raises(ValueError, match="at odds with itself"):
        install(model)


def test_blocks_by_themselves_ask_for_their_code():
    model = install(host("plain"), "mixed")
    with pytest.raises(TypeError, match="forward_features"):
        model.blocks[0](torch.zeros(1, 16, 48))


def test_nothing_of_a_pass_stays_in_the_model():
    """Neither of one that ends well nor of one that does not: the next would find it."""
    model = install(host("plain"), "mixed")
    model(images())
    assert PASSING.handed is None
    with pytest.raises(AssertionError, match="Input height"):
        model(images(64, 80))
    assert PASSING.handed is None


def test_threads_do_not_meet():
    model = install(host("plain", dynamic_img_size=True), "mixed", drop_table=True, resolution="rescale").eval()
    shapes = [(48, 80), (80, 48)]
    with torch.no_grad():
        wanted = [model(images(*shape)) for shape in shapes]

        def answers(i):
            with torch.no_grad():
                return [torch.equal(model(images(*shapes[i])), wanted[i]) for _ in range(60)]

        with ThreadPoolExecutor(2) as pool:
            assert all(all(found) for found in pool.map(answers, range(2)))


def test_frequencies_that_were_learned_stay_the_model_s():
    model = install(host("mixed"))
    with torch.no_grad():
        model.encoding.freqs.mul_(1.5)
    wanted, x = model.encoding.freqs.clone(), images()
    answer = model.eval()(x)
    install(model, jitter=1.1)
    assert torch.equal(model.encoding.freqs, wanted)
    assert torch.equal(model.eval()(x), answer)
    install(model, "axial")
    uninstall(model)
    assert torch.equal(model.rope.freqs, wanted)
    close(model.eval()(x), answer)


def test_a_plain_vit_has_its_image_size():
    with pytest.raises(ValueError, match="leave image_size out"):
        install(timm.create_model("test_vit"), "axial", image_size=(512, 512))
