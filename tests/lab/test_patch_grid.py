"""Patches that differ by axis: their grids, what is refused, and that one number means what it always meant."""

from dataclasses import replace

import pytest
import torch

from ropewalk.lab.config import Config
from ropewalk.lab.errors import CommandError
from ropewalk.lab.model_building import build_model
from ropewalk.lab.patch_grid import compute_grid_size, compute_patch_grid, get_patch_sides, patch_divides_image
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
    with pytest.raises(ValueError, match="patch must be int"):
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
