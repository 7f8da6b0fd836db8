"""Models of timm's with an encoding: places that hold for a while, in one thread; and models made on the meta device."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import timm
import torch
from timm.models._manipulate import reinit_non_persistent_buffers

import ropewalk as rw
from ropewalk.adapters.timm import install
from ropewalk.adapters.timm.attach import uninstall
from ropewalk.adapters.timm.rope import PLACING
from tests.adapters.timm.test_install import HOSTS, SMALL, close, host, images

# Places


def placed_and_still(model, x):
    """Logits with patches twice as far apart, and where they stand by themselves."""
    with model.rope.placed(2 * model.encoding.grid(3, 5)):
        far = model(x)
    still = model(x)
    assert (far - still).abs().max() > 1e-3
    return far, still


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_places_hold_in_one_thread_alone(kind):
    model, x = install(host(kind), "mixed").requires_grad_(False), images()
    far, still = placed_and_still(model, x)
    with ThreadPoolExecutor(1) as pool:
        with model.rope.placed(2 * model.encoding.grid(3, 5)):
            assert torch.equal(pool.submit(model, x).result(), still)
            assert torch.equal(model(x), far)
        assert torch.equal(pool.submit(lambda: placed_and_still(model, x)[0]).result(), far)


def test_two_threads_place_at_once():
    """Each is inside when the other runs, and leaves in the order in which it came."""
    model, x = install(host("plain"), "mixed").requires_grad_(False), images()
    grid, meet = model.encoding.grid(3, 5), threading.Barrier(2, timeout=30)

    def placed(factor):
        with model.rope.placed(factor * grid):
            meet.wait()
            found = model(x)
            meet.wait()
        return found

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(placed, (2, 3)))
    for factor, found in zip((2, 3), both, strict=True):
        with model.rope.placed(factor * grid):
            assert torch.equal(model(x), found)
    assert not torch.equal(*both)


def test_places_are_those_of_one_model():
    model, other = (install(host(kind), "mixed") for kind in ("plain", "mixed"))
    x, grid = images(), model.encoding.grid(3, 5)
    wanted, still = placed_and_still(model, x)[0], other(x)
    with model.rope.placed(2 * grid):
        assert torch.equal(other(x), still)
        with other.rope.placed(3 * grid):
            assert torch.equal(model(x), wanted)
            assert not torch.equal(other(x), still)
        with model.rope.placed(grid):
            assert not torch.equal(model(x), wanted)
        assert torch.equal(model(x), wanted)


def test_what_is_placed_does_not_move():
    model, x = install(host("plain", dynamic_img_size=True), "mixed", shift=0.3, drop_table=True).train(), images()
    assert not torch.equal(model(x), model(x))
    with model.rope.placed(model.encoding.grid(3, 5)):
        assert torch.equal(model(x), model(x))
    large = images(64, 112)
    with model.rope.placed(resolution="rescale"):
        finer = model(large)
    with model.rope.placed(model.encoding.grid(4, 7, resolution="rescale")):
        assert torch.equal(model(large), finer)
    with model.rope.placed(resolution="extrapolate"):
        assert not torch.equal(model(large), finer)
    with model.rope.placed(), pytest.warns(FutureWarning, match="rescaled by default"):
        assert torch.equal(model(large), finer)


def test_an_error_leaves_nothing_behind():
    model = install(host("plain"), "mixed")
    with pytest.raises(ValueError, match="positions"), model.rope.placed(torch.ones(3)):
        model(images())
    assert PLACING.now == ()


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_one_graph_with_places(kind):
    """The graph of one place is not taken for another, nor that of one thread for another's."""
    model, x = install(host(kind), "mixed").requires_grad_(False), images()
    far, still = placed_and_still(model, x)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    close(compiled(x), still)
    with model.rope.placed(2 * model.encoding.grid(3, 5)):
        close(compiled(x), far)
        with ThreadPoolExecutor(1) as pool:
            close(pool.submit(compiled, x).result(), still)
    close(compiled(x), still)


# The meta device


def bare(kind, encoding, **options):
    """A model that was made without values, with an encoding, and has memory by now, full of NaN."""
    name, own = HOSTS[kind]
    with torch.device("meta"):
        model = timm.create_model(name, **{**SMALL, **own}).eval()
    install(model, encoding, **options).to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.fill_(float("nan"))
    return model


@pytest.mark.parametrize("encoding", [None, "axial", "comrope-ld", "chain"])
@pytest.mark.parametrize("kind", ["plain", "axial", "mixed", "eva02", "dinov3"])
def test_values_come_from_a_checkpoint(kind, encoding):
    """And what is not saved is computed, as timm does it; the model's own rotation comes back, too."""
    shape, x = {"head_dim": 24, "heads": 2, "axes": 2, "layers": 2, "size": (3, 5)}, images()
    chosen = [
        rw.chain(*(rw.create(name, **shape) for name in ("axial", "alibi"))) if encoding == "chain" else encoding
        for _ in range(2)
    ]
    model, wanted = bare(kind, chosen[0]), install(host(kind), chosen[1])
    model.load_state_dict(wanted.state_dict())
    assert "rope" in reinit_non_persistent_buffers(model)
    assert torch.equal(model(x), wanted(x))
    if kind != "mixed" or encoding is None:  # or else its frequencies never had values
        assert torch.equal(uninstall(model)(x), uninstall(wanted)(x))


def test_the_rope_rebuilds_what_is_not_saved():
    """By itself, as timm's own modules do."""
    model, wanted = bare("axial", "golden"), install(host("axial"), "golden")
    model.rope.init_non_persistent_buffers()
    for ours, theirs in zip(model.rope.buffers(), wanted.rope.buffers(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", ["plain", "mixed"])
def test_values_are_drawn(kind):
    model = bare(kind, "mixed")
    model.init_weights(needs_reset=True)
    assert model(images()).isfinite().all()
    assert model.encoding.wave.std() > 0.01


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("plain", {"drop_table": True}, r"none.*table.*meta device"),
        ("mixed", {}, r"none.*frequencies"),
        ("mixed", {"drop_table": True}, r"none.*table.*frequencies"),
    ],
)
def test_what_never_had_values_cannot_come_back(kind, options, words):
    model = bare(kind, "comrope-ld", **options)
    model.load_state_dict(install(host(kind), "comrope-ld", **options).state_dict())
    logits = model(images())
    for change in (uninstall, lambda model: install(model, "axial")):
        with pytest.raises(ValueError, match=words):
            change(model)
    assert torch.equal(model(images()), logits)
