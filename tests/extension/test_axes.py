"""Rules for images and volumes, component by component in plain Python, and against the rules for texts."""

import json
import math

import pytest
import torch

import ropewalk as rw
from ropewalk import extension
from ropewalk.extension.by_parts import ByParts, YaRN
from ropewalk.extension.image_rules import AxesByParts, AxesLinear, AxesNTK, AxesYaRN
from ropewalk.extension.scaling import Linear, NTKAware
from tests.support.random_tensors import DOUBLE, normal

pytestmark = pytest.mark.usefixtures("drawn_anew")

RULES = [
    AxesLinear(),
    AxesNTK(),
    AxesNTK(by="wave"),
    AxesByParts(),
    AxesByParts(by="wave", beta_fast=3.0, beta_slow=0.2),
    AxesYaRN(),
    AxesYaRN(growth="side", by="wave"),
    AxesYaRN(attention_factor=1.3, beta_fast=2.0, beta_slow=0.5),
]
GRIDS = [((7.0,), (2.0,)), ((3.0, 5.0), (2.0, 1.25)), ((6.0, 2.5), (1.0, 3.0)), ((4.0, 3.0, 9.0), (1.5, 1.0, 2.0))]


def name_of(rule):
    return json.dumps(rule.spec())


def plain_ratio(rule, wave, axis, every, extent, s):
    """New over old of one component, as the docstrings have it."""
    size = abs(wave[axis]) if getattr(rule, "by", "axis") == "axis" else math.hypot(*wave)
    if rule.rope_type == "linear":
        return 1 / s
    if rule.rope_type == "ntk-aware":
        lengths = [math.hypot(*each) for each in every]
        share = math.log(max(lengths) / size) / math.log(max(lengths) / min(lengths))
        return s ** -min(max(share, 0), 1)
    across = [w * wide / (2 * math.pi) for w, wide in zip(wave, extent, strict=True)]
    turns = abs(across[axis]) if rule.by == "axis" else math.hypot(*across)
    gamma = min(max((turns - rule.beta_slow) / (rule.beta_fast - rule.beta_slow), 0), 1)
    return gamma + (1 - gamma) / s


@pytest.mark.parametrize(("extent", "stretch"), GRIDS)
@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_components_are_slowed_as_the_formula_says(rule, extent, stretch):
    waves = 3 * normal(2, 3, 6, len(extent))
    found = rule(waves, extent=extent, stretch=stretch).frequency
    for head, theirs in zip(waves.flatten(0, 1).tolist(), found.flatten(0, 1), strict=True):
        expected = [[w * plain_ratio(rule, wave, a, head, extent, stretch[a]) for a, w in enumerate(wave)] for wave in head]
        torch.testing.assert_close(theirs, torch.tensor(expected, dtype=torch.float64), **DOUBLE)


@pytest.mark.parametrize("s", [1.0, 1.5, 4.0, 32.0])
@pytest.mark.parametrize(("base", "width", "length"), [(10000.0, 128, 2048), (150.0, 12, 64), (100.0, 24, 14)])
def test_along_one_axis_they_are_the_rules_for_texts(base, width, length, s):
    frequency = rw.spectra.geometric(width // 2, base)
    ends = {"beta_fast": 32.0, "beta_slow": 1.0}
    of = {"factor": s, "original_max_position_embeddings": length}
    pairs = [
        (AxesLinear(), Linear(factor=s)),
        (AxesNTK(), NTKAware(factor=s)),
        (AxesByParts(**ends), ByParts(**of)),
        (AxesByParts(), ByParts(**of, beta_fast=4.0, beta_slow=1.0)),
        (AxesYaRN(**ends), YaRN(**of, ramp="turns")),
        (AxesYaRN(**ends, by="wave", growth="side"), YaRN(**of, ramp="turns")),
    ]
    for axes, text in pairs:
        ours = axes(frequency[:, None], extent=(float(length),), stretch=(s,))
        theirs = text(frequency, base=base, rotary_dim=width)
        torch.testing.assert_close(ours.frequency[:, 0], theirs.frequency, rtol=1e-13, atol=0)
        assert ours.attention_factor == pytest.approx(theirs.attention_factor, rel=1e-15)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_what_does_not_grow_stays_bit_for_bit(rule):
    waves = 3 * normal(2, 6, 3).float()
    same = rule(waves, extent=(4.0, 3.0, 9.0), stretch=(1.0, 1.0, 1.0))
    assert same.frequency is waves
    assert same.attention_factor == rule.attention((1.0, 1.0, 1.0)) == 1.0
    found = rule(waves, extent=(4.0, 3.0, 9.0), stretch=(1.0, 2.0, 1.0)).frequency
    assert torch.equal(found[..., 0], waves[..., 0])
    assert torch.equal(found[..., 2], waves[..., 2])
    assert not torch.equal(found[..., 1], waves[..., 1])


@pytest.mark.parametrize("rule", [AxesNTK, AxesByParts, AxesYaRN])
def test_decided_by_the_wave_a_pair_keeps_its_direction(rule):
    waves, (turn, _) = 3 * normal(6, 2), torch.linalg.qr(normal(2, 2))
    how = {"extent": (5.0, 5.0), "stretch": (3.0, 3.0)}
    for by, kept in (("wave", True), ("axis", False)):
        made = rule(by=by)
        turned, straight = made(waves @ turn, **how).frequency, made(waves, **how).frequency @ turn
        assert torch.allclose(turned, straight, rtol=0, atol=1e-12) == kept


def test_attention_is_sharpened_by_the_number_of_tokens_or_by_the_side():
    assert AxesYaRN().attention((2.0, 1.5)) == pytest.approx(0.1 * math.log(3.0) + 1)
    assert AxesYaRN(growth="side").attention((2.0, 8.0)) == pytest.approx(0.1 * math.log(4.0) + 1)
    assert AxesYaRN(attention_factor=1.3).attention((2.0, 1.0)) == 1.3
    text = YaRN(factor=4.0, original_max_position_embeddings=64).attention(None)
    assert AxesYaRN().attention((1.0, 4.0)) == text
    assert AxesYaRN(growth="side").attention((1.0, 4.0)) != text
    assert AxesByParts().attention((2.0, 2.0)) == AxesNTK().attention((2.0, 2.0)) == 1


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_gradients_are_those_of_the_formula(rule):
    waves = (3 * normal(2, 4, 2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: rule(w, extent=(3.0, 5.0), stretch=(2.0, 1.5)).frequency, waves)


@pytest.mark.parametrize("still", ["one", "all", "alike"])
@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_waves_that_stand_still_are_no_trouble(rule, still):
    waves = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.3, -0.4]]])
    waves = {"one": waves, "all": 0 * waves, "alike": torch.ones_like(waves)}[still].requires_grad_()
    found = rule(waves, extent=(3.0, 5.0), stretch=(2.0, 1.5)).frequency
    assert torch.equal(found == 0, waves == 0)
    found.sum().backward()
    assert waves.grad.isfinite().all()


def test_the_slowest_wave_that_turns_is_divided_and_the_fastest_kept():
    waves = torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.1, 0.0], [0.01, 1.0]], dtype=torch.float64)
    found = AxesNTK()(waves, extent=(3.0, 5.0), stretch=(4.0, 2.0)).frequency
    expected = [[0.0, 0.0], [0.0, 2.0], [0.025, 0.0], [0.0025, 2 ** -(math.log(2) / math.log(20))]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), **DOUBLE)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_rule_comes_back_from_its_dictionary(rule):
    spec = json.loads(json.dumps(rule.spec()))
    assert extension.parse_axes(spec) == rule
    assert extension.parse_axes(rule) is rule
    assert type(rule) is extension.AXES[spec["rope_type"]]


def test_no_rule_is_none():
    assert extension.parse_axes(None) is extension.parse_axes("default") is None
    assert extension.parse_axes("yarn") == AxesYaRN()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("dynamic", "'dynamic'; expected one of default, linear, ntk-aware, ntk-by-parts, yarn"),
        ({"rope_type": "yarn", "factor": 2.0}, r"'yarn'.*beta_fast, beta_slow, growth.*got factor"),
        ({"rope_type": "yarn", "growth": "area"}, r"growth.*'tokens'.*'side', got 'area'"),
        ({"rope_type": "ntk-aware", "by": "pair"}, r"by.*'axis'.*'wave', got 'pair'"),
        ({"rope_type": "yarn", "beta_fast": 0.5}, r"beta_fast.*beta_slow.*got 0.5.*1.0"),
        ({"rope_type": "yarn", "beta_slow": 0}, r"beta_fast.*beta_slow.*got 4.0.*0"),
        ({"rope_type": "yarn", "beta_slow": "1"}, r"beta_slow.*got '1'"),
    ],
)
def test_what_cannot_be_meant_is_refused(spec, words):
    with pytest.raises(ValueError, match=words):
        extension.parse_axes(spec)


def test_rules_for_texts_and_for_images_are_not_mistaken():
    with pytest.raises(TypeError, match=r"extension.*axes.*got Linear"):
        extension.parse_axes(Linear(factor=2.0))
    with pytest.raises(TypeError, match=r"extension.*got AxesYaRN\("):
        extension.parse(AxesYaRN())


def test_every_axis_has_an_extent_and_a_stretch():
    for extent, stretch in (((1.0,), (2.0, 2.0)), ((1.0, 1.0), (2.0,)), ((1.0,) * 3, (2.0,) * 3)):
        with pytest.raises(ValueError, match=r"2 axes.*stretch"):
            AxesNTK()(torch.ones(3, 2), extent=extent, stretch=stretch)
    for stretch in ((1.0, 0.5), (2.0, 0.5)):
        with pytest.raises(ValueError, match=r"stretch.*1, got 0.5"):
            AxesNTK()(torch.ones(3, 2), extent=(1.0, 1.0), stretch=stretch)
