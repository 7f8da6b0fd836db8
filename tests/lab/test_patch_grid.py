"""Patches that differ by axis: their grids and what is refused; augmented positions, the same for all encodings."""

from dataclasses import replace

import pytest
import torch

import ropewalk as rw
from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError
from ropewalk.lab.model_building import build_model
from ropewalk.lab.patch_grid import (
    compute_grid_size,
    compute_patch_grid,
    get_patch_sides,
    patch_divides_image,
    patches_to_coordinates,
    perturb_positions,
)
from ropewalk.lab.recipes import RECIPES, parse_settings


def test_grids_go_by_axis():
    assert compute_patch_grid((4, 32, 48), (2, 16, 16)) == (2, 2, 3)
    assert compute_patch_grid((6, 10), 2) == (3, 5)
    assert compute_grid_size((2, 3, 5), (2, 4, 1)) == (4, 12, 5)
    assert compute_patch_grid((7, 11), 2) == (3, 5)
    assert patch_divides_image((4, 12, 5), (2, 4, 1))
    assert not patch_divides_image((12, 4, 5), (1, 3, 5))
    assert get_patch_sides((2, 3), 2) == (2, 3)
    with pytest.raises(ValueError, match=r"patch.*2.*got 2.*4.*4"):
        compute_patch_grid((8, 8), (2, 4, 4))


@pytest.mark.parametrize("patch", [0, (), (2, 0), (-1, 4, 4)])
def test_patches_are_positive(patch):
    with pytest.raises(ValueError, match=r"patch.*1"):
        Config(patch=patch)
    with pytest.raises(ValueError, match="patch must be a whole number or whole numbers separated by commas"):
        Config(patch=2.5)


def test_names_of_runs_stay():
    assert Config().name == "mixed-seed0-3456349d4d"
    assert RECIPES["cifar100-tiny"].name == "mixed-seed0-72753fd11a"
    assert Config(patch=(2, 4, 4)).name != Config(patch=(4, 2, 4)).name
    config = Config(patch=(2, 4, 4))
    assert Config.of(config.document()) == config


def test_a_model_cuts_tubelets():
    config = Config(patch=(2, 4, 3), width=24, depth=1, heads=2, encoding="axial")
    model = build_model(config, size=(4, 12, 15), channels=2, classes=3)
    assert model.encoding.size == (2, 3, 5)
    assert model.embed.in_features == 2 * 2 * 4 * 3
    assert model(torch.zeros(2, 2, 4, 12, 15)).shape == (2, 3)


def test_settings_take_one_for_each_axis():
    assert parse_settings("digits", ["patch=2,4,4"]).patch == (2, 4, 4)
    assert parse_settings("digits", ["size=12"]).size == (12, 12)
    with pytest.raises(CommandError, match="patch must be 1 or more"):
        parse_settings("digits", ["patch=2,0"])


def test_a_patch_that_does_not_fit_the_axes_is_refused_before_training(tmp_path):
    from ropewalk.lab.compare.plan import plan_comparison
    from ropewalk.lab.compare.preflight import check_comparison

    for patch, words in (
        ((2, 2, 2), r"one number or 2.*each axis"),
        ((3, 2), r"patch.*3.*2.*8.*8"),
    ):
        config = replace(RECIPES["digits"], patch=patch)
        with pytest.raises(CommandError, match=words):
            check_comparison(plan_comparison(["none"], config, tmp_path, seeds=[0], baseline="none"))


SMALL = Config(patch=2, width=48, depth=2, heads=2, ratio=2.0)


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
