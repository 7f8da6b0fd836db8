"""The study of degree: one number at a time, and rules that find what made-up records contain."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import ropewalk as rw
from ropewalk import theory
from ropewalk.lab.config import Config
from ropewalk.lab.model_building import build_model
from ropewalk.lab.patch_grid import perturb_positions
from ropewalk.lab.record import RunRecord
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.claims import ClaimSide
from ropewalk.lab.studies.contrasts import collect_contrast, judge_contrasts
from ropewalk.lab.studies.degree import (
    DEGREE_ANGLES,
    DEGREE_BASES,
    DEGREE_CONTRASTS,
    DEGREE_SEEDS,
    OFFSET_CONTRAST,
    PRIMARY_CONTRAST,
    compute_equivariance_error,
    make_slope_contrast,
    name_arm,
)

STUDY = ALL_STUDIES["degree"]
ARMS = [(part, name) for part, each in STUDY.parts.items() for name in each.encodings]


def encoding(part, name, depth=1):
    config = replace(STUDY.run_config(part, name, DEGREE_SEEDS[0]), depth=depth)
    return build_model(config, size=(32, 32), channels=3, classes=100).encoding.double()


def radians(made):
    """Across the image, of all channels that turn along the first axis, and along the second."""
    spans = theory.span(made, 8, 8).reshape(-1, 2, 24)
    return [spans[0, axis][spans[0, axis] > 1e-9] for axis in range(2)]


def points(levels, seeds=DEGREE_SEEDS, part="e1"):
    """Runs with these accuracies; a seed moves all alike."""
    found = []
    for name, seed in itertools.product(levels, seeds):
        result = {"test_accuracy": (levels[name] + math.sin(seed)) / 100}
        found.append(RunRecord(config=Config(seed=seed), run=None, part=part, name=name, result=result))
    return found


def test_seeds_are_fresh():
    old = {
        seed
        for name, study in ALL_STUDIES.items()
        if name != "degree"
        for part in study.parts.values()
        for seed in part.seeds
    }
    assert not old & {seed for part in STUDY.parts.values() for seed in part.seeds}
    assert len(STUDY.parts["e1"].seeds) == 10
    assert len(STUDY.parts["e1"].encodings) * 10 == 100


def test_everything_else_is_that_of_the_study_of_equivariance():
    assert STUDY.base == ALL_STUDIES["equivariance"].base
    assert [part.settings for part in STUDY.parts.values() if {*part.settings} - {"span", "shift", "per_sample"}] == []


def test_all_angles_have_one_spectrum_along_each_axis():
    for base in DEGREE_BASES:
        straight = radians(encoding("e1", name_arm(0, base)))
        assert straight[0].max().item() == pytest.approx(6.0)
        for angle in DEGREE_ANGLES[1:]:
            for one, other in zip(radians(encoding("e1", name_arm(angle, base))), straight, strict=True):
                torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["three-quarters", "angle-90-base-3"])
def test_the_control_has_the_same_range_and_as_many_idle_channels(name):
    whole, made = encoding("e1", "angle-0-base-3"), encoding("e1", name)
    moved = made.generators().abs().sum(-3).sum(-1)[0, 0]
    assert int((moved == 0).sum()) == 12
    for one, other in zip(radians(made), radians(whole), strict=True):
        torch.testing.assert_close(torch.stack(one.aminmax()), torch.stack(other.aminmax()))


@pytest.mark.parametrize(
    ("part", "name", "count", "mean"),
    [
        ("e1", "angle-0-base-100", 12, 0.73),
        ("e2", "one-at-0.73", 1, 0.73),
        ("e2-rest", "two-at-0.73", 2, 0.73),
        ("e2-rest", "one-at-2.1", 1, 2.1),
        ("e2-rest", "two-at-2.1", 2, 2.1),
        ("e2-rest", "twelve-at-2.1", 12, 2.1),
        ("e2-rest", "one-at-0.37", 1, 0.37),
    ],
)
def test_frequencies_have_the_count_and_the_mean_of_their_name(part, name, count, mean):
    made = encoding(part, name)
    assert made.traits.relative == (True, True)
    for axis in radians(made):
        assert len(axis) == 12
        assert len({round(each, 6) for each in axis.tolist()}) == count
        assert axis.log().mean().exp().item() == pytest.approx(mean, rel=0.01)


def test_golden_has_the_lengths_of_axial():
    waves = encoding("e3", "golden").waves()
    axial = rw.create("axial", head_dim=48, scale=6 / 7).double().vectors()[0]
    for head in waves:
        torch.testing.assert_close(head.norm(dim=-1).sort().values, axial.norm(dim=-1).sort().values, rtol=1e-6, atol=0)


def test_learned_directions_start_with_the_lengths_of_axial():
    mixed, axial = (encoding("e3-learned", name, depth=2) for name in ("mixed", "learned-axial"))
    lengths = [each.vectors().detach().norm(dim=-1).sort(-1).values for each in (mixed, axial)]
    torch.testing.assert_close(lengths[0], lengths[1].expand_as(lengths[0]), rtol=0.03, atol=0)


def test_offsets_reach_eight_patches_and_change_nothing_at_zero():
    config = replace(STUDY.run_config("e4", "angle-90-base-100", 100), batch=256)
    straight, right = encoding("e1", "angle-0-base-100"), encoding("e4", "angle-90-base-100")
    p = perturb_positions(config, right, (8, 8), step=0, share=slice(256))
    moves = p - right.grid(8, 8)
    assert moves.abs().max() <= 8.0 + 1e-4
    assert moves[:, 0].abs().amax(0).min() > 7.5
    torch.testing.assert_close(moves, moves[:, :1].expand_as(moves), rtol=0, atol=1e-4)
    q, k = torch.randn(2, 1, 4, 64, 48, dtype=torch.float64)
    for made, same in ((straight, True), (right, False)):
        scores = [a @ b.mT for a, b in (made(where)[0].qk(q, k) for where in (made.grid(8, 8), p[:1].double()))]
        assert (
            (scores[0] - scores[1]).abs().max().item() < 1e-4 if same else (scores[0] - scores[1]).abs().max().item() > 0.1
        )


def test_contrasts_are_of_runs_of_the_study():
    for contrast in (*DEGREE_CONTRASTS, make_slope_contrast()):
        assert abs(sum(contrast.weights.values())) < 1e-9, contrast.name
        for side in contrast.weights:
            assert side.name in STUDY.parts[side.part].encodings
        seeds = [set(STUDY.parts[side.part].seeds) for side in contrast.weights]
        assert set.intersection(*seeds) == set(DEGREE_SEEDS)
    assert [each.name for each in DEGREE_CONTRASTS if each.family] == ["E1", "E2", "E3"]
    assert PRIMARY_CONTRAST.margin == 0.5


def test_the_primary_difference_is_the_mean_of_both_bases():
    levels = {name_arm(90, 100): 60.0, name_arm(0, 100): 61.0, name_arm(90, 3): 58.0, name_arm(0, 3): 61.0}
    found = {each.contrast.name: each for each in judge_contrasts(DEGREE_CONTRASTS, points(levels))}
    assert found["E1"].found.mean == pytest.approx(-2.0)
    assert (found["E1"].found.seeds, found["E1"].word) == (10, "different")
    assert found["base × ε"].found.mean == pytest.approx(2.0)
    assert found["E1c"].found is None
    one_base = [each for each in points(levels) if not each.name.endswith("-3")]
    assert judge_contrasts([PRIMARY_CONTRAST], one_base)[0].found is None, "a mean over both bases needs both"


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("E1", "angle-90-base-3", "angle-0-base-3"),
        ("E2", "one-at-0.73", "angle-0-base-100"),
        ("E3", "golden", "angle-0-base-100"),
        ("base × ε", "angle-90-base-100", "angle-90-base-3"),
        ("30°", "angle-30-base-100", "angle-0-base-100"),
        ("E1c", "three-quarters", "angle-0-base-3"),
        ("90°, idle channels", "angle-90-base-3", "three-quarters"),
        ("ordered", "ordered-90", "angle-90-base-100"),
        ("rotation", "angle-0-base-100", "learned-ape"),
        ("E3, learned", "mixed", "learned-axial"),
    ],
)
def test_what_is_named_first_counts_as_plus(name, one, other):
    (contrast,) = (each for each in DEGREE_CONTRASTS if each.name == name)
    weights = {side.name: weight for side, weight in contrast.weights.items()}
    assert weights[one] > 0 > weights[other]


def test_offsets_are_subtracted():
    assert {side.part for side, weight in OFFSET_CONTRAST.weights.items() if weight < 0} == {"e4"}


def test_each_contrast_finds_its_own_runs():
    """Raise one run by a point: the contrasts that have it move by its weight, the others stay."""
    slope = make_slope_contrast({(a, b): a / 90 for a in DEGREE_ANGLES for b in DEGREE_BASES})
    every = [*DEGREE_CONTRASTS, slope]
    for raised in ARMS:
        records = [
            each for part, name in ARMS for each in points({name: 60.0 + ((part, name) == raised)}, DEGREE_SEEDS, part)
        ]
        for contrast in every:
            values = collect_contrast(contrast, records)
            assert len(values) == 10
            weight = contrast.weights.get(ClaimSide(raised[1], raised[0]), 0.0)
            assert np.mean(list(values.values())) == pytest.approx(weight, abs=1e-9)


def test_the_slope_is_that_of_least_squares():
    errors = {(a, b): math.sin(math.radians(a)) * (0.3 if b == 100 else 0.7) for a in DEGREE_ANGLES for b in DEGREE_BASES}
    generator = np.random.default_rng(0)
    values = {arm: 60 - 2 * error + 3 * (arm[1] == 3) + generator.normal() for arm, error in errors.items()}
    contrast = make_slope_contrast(errors)
    found = collect_contrast(contrast, points({name_arm(*arm): value for arm, value in values.items()}))
    design = np.array([[error, base == 100, base == 3] for (_, base), error in errors.items()], float)
    expected = np.linalg.lstsq(design, np.array(list(values.values())), rcond=None)[0][0]
    assert list(found.values()) == pytest.approx([expected] * 10)


def test_the_error_of_equivariance():
    for base in DEGREE_BASES:
        none, some, most = (compute_equivariance_error(angle, base) for angle in DEGREE_ANGLES)
        assert none < 1e-12 < 0.1 < some < most < 1.5
    assert compute_equivariance_error(90, 3) > compute_equivariance_error(90, 100), "fast channels fail more"


def test_the_error_of_equivariance_pair_by_pair():
    """By the definition, of all pairs on the grid, without the theory's shortcut."""
    made = encoding("e1", "angle-90-base-3")
    turns = lambda p: made(p).matrices()[0, 0]  # noqa: E731
    grid, squares = made.grid(8, 8), []
    for axis, shift in itertools.product(range(2), range(1, 9)):
        move = torch.zeros(2, dtype=torch.float64)
        move[axis] = shift
        here, there = turns(grid), turns(grid + move)
        change = torch.einsum("nij,mik->nmjk", there, there) - torch.einsum("nij,mik->nmjk", here, here)
        squares.append(change.square().sum((-2, -1)).mean() / 48)
    assert compute_equivariance_error(90, 3) == pytest.approx(torch.stack(squares).mean().sqrt().item())
