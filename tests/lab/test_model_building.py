"""Models of runs: one span for all encodings, the same weights but for the encoding's, positions moved alike."""

from dataclasses import replace

import pytest
import torch

import ropewalk as rw
from ropewalk.lab.config import Config
from ropewalk.lab.model_building import build_model, compute_max_span
from ropewalk.lab.optimizer import compute_learning_rate
from ropewalk.lab.patch_grid import patches_to_coordinates, perturb_positions

SMALL = Config(patch=2, width=48, depth=2, heads=2, ratio=2.0)
DATA = {"size": (6, 10), "channels": 1, "classes": 3}
ROTARY = [name for name in rw.names() if name not in ("rope", "xpos", "mrope") and not name.endswith(("bias", "ape"))]
ROTARY = [name for name in ROTARY if name not in ("alibi", "none", "sincos", "transformer-xl")]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ROTARY)
def test_every_encoding_gets_the_span(name, seed):
    model = build_model(replace(SMALL, encoding=name, span=5.0, seed=seed), **DATA)
    assert compute_max_span(model.encoding) == pytest.approx(5.0, rel=1e-5)


def test_of_a_chain_the_part_that_turns_gets_the_span():
    options = {"parts": [{"name": "learned-ape"}, {"name": "mixed", "shared": True}]}
    model = build_model(replace(SMALL, encoding="chain", options=options, span=5.0), **DATA)
    table, mixed = model.encoding._parts()
    assert compute_max_span(mixed) == pytest.approx(5.0, rel=1e-5)
    assert (table.name, mixed.shared) == ("learned-ape", True)


@pytest.mark.parametrize("name", ["none", "learned-ape", "alibi"])
def test_what_does_not_turn_has_no_span(name):
    model = build_model(replace(SMALL, encoding=name, span=5.0, options={"axes": 2} if name == "alibi" else {}), **DATA)
    assert model.encoding.name == name


def test_weights_are_the_same_for_every_encoding():
    first = build_model(replace(SMALL, encoding="none"), **DATA).state_dict()
    for name in (*ROTARY, "learned-ape", "swin-bias"):
        other = build_model(replace(SMALL, encoding=name, span=5.0), **DATA).state_dict()
        assert all(torch.equal(value, other[key]) for key, value in first.items()), name
    states = [first]
    other = build_model(replace(SMALL, encoding="none", seed=1), **DATA).state_dict()
    assert not torch.equal(other["head.weight"], states[0]["head.weight"])


def test_positions_move_by_the_same_parts_of_a_patch():
    config = replace(SMALL, perturb=1.0, shift=0.5, rescale=1.5)
    found = {}
    for name in ("mixed", "spherical", "comrope-ld", "liere"):
        encoding = rw.create(name, head_dim=12, size=(3, 5))
        p, whole = perturb_positions(config, encoding, (3, 5), step=7, share=slice(4)), encoding.grid(3, 5)
        step = (whole[-1] - whole[0]) / torch.tensor([2.0, 4.0])
        found[name] = (p - whole) / step
    for other in found.values():
        torch.testing.assert_close(other, found["mixed"], rtol=0, atol=1e-5)
    assert found["mixed"].abs().max() > 0.1
    assert perturb_positions(SMALL, rw.create("mixed", head_dim=12), (3, 5), step=0, share=slice(4)) is None


def test_positions_are_drawn_once_a_step_or_for_each_sample():
    encoding, grid = rw.create("mixed", head_dim=12, size=(3, 5)), (3, 5)
    one, two = (perturb_positions(replace(SMALL, perturb=1.0), encoding, grid, step=step, share=slice(4)) for step in (1, 2))
    assert one.shape == (15, 2)
    assert not torch.equal(one, two)
    assert torch.equal(one, perturb_positions(replace(SMALL, perturb=1.0), encoding, grid, step=1, share=slice(8)))
    each = perturb_positions(replace(SMALL, perturb=1.0, per_sample=True), encoding, grid, step=1, share=slice(4))
    assert each.shape == (4, 15, 2)
    assert not torch.equal(each[0], each[1])


@pytest.mark.parametrize("coordinates", rw.positions.CONVENTIONS)
def test_patches_in_every_convention(coordinates):
    encoding = rw.create("mixed", head_dim=12, size=(3, 5), coordinates=coordinates)
    patches = rw.positions.grid(3, 5, coordinates="index")
    torch.testing.assert_close(patches_to_coordinates(encoding, (3, 5), patches), encoding.grid(3, 5))


def test_the_rate_rises_and_falls():
    rates = [compute_learning_rate(step, highest=2.0, warmup=4, steps=12) for step in range(13)]
    assert rates[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates[8] == pytest.approx(1.0)
    assert rates[12] == pytest.approx(0.0)
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_positions_move_by_parts_of_an_image():
    encoding, grid = rw.create("mixed", head_dim=12, size=(3, 5)), (3, 5)
    config, whole = replace(SMALL, shift=0.5), encoding.grid(3, 5)
    moves = torch.stack(
        [perturb_positions(config, encoding, grid, step=step, share=slice(4))[0] - whole[0] for step in range(400)]
    )
    assert moves.abs().amax(0) == pytest.approx([1.5, 2.5], abs=0.05)


def test_processes_share_the_positions_of_a_batch():
    encoding, grid = rw.create("mixed", head_dim=12, size=(3, 5)), (3, 5)
    config = replace(SMALL, perturb=1.0, rescale=1.5, shift=0.5, per_sample=True, batch=8)
    whole, first, second = (
        perturb_positions(config, encoding, grid, step=3, share=share) for share in (slice(8), slice(4), slice(4, 8))
    )
    assert torch.equal(torch.cat([first, second]), whole)
