"""Axial and mixed RoPE on images larger than those of training: what is slowed down, by how much, in which coordinates."""

import math

import pytest
import torch

import ropewalk as rw
from ropewalk.extension.by_parts import ByParts
from ropewalk.extension.image_rules import AxesLinear, AxesNTK, AxesYaRN
from ropewalk.extension.scaling import NTKAware
from ropewalk.positions import CONVENTIONS
from ropewalk.testing import check_compile, check_export, checks_for
from tests.support.random_tensors import DOUBLE, normal

pytestmark = pytest.mark.usefixtures("drawn_anew")

SIZE, LARGE = (3, 5), (7, 8)
STEPS = {
    "index": (1.0, 1.0),
    "centre": (1 / 3, 1 / 5),
    "separate": (2 / 3, 2 / 5),
    "longer": (2 / 5, 2 / 5),
    "shorter": (2 / 3, 2 / 3),
    "pi": (math.pi, math.pi / 2),
    "unit": (1 / 2, 1 / 4),
    "area": (3 / math.sqrt(15), 5 / math.sqrt(15) / 2),
}
"""How far patches of a 3 x 5 grid are apart."""


def axial(head_dim=24, **options):
    return rw.create("axial", head_dim=head_dim, heads=2, **{"size": SIZE, **options})


def mixed(head_dim=12, **options):
    return rw.create("mixed", head_dim=head_dim, heads=2, **{"size": SIZE, **options})


def logits(encoding, positions, q, k):
    q, k = encoding(positions).qk(q, k)
    return q @ k.mT


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("variant", ["heo", "heo-paper"])
def test_axial_is_rope_along_each_axis(variant, learned):
    made = axial(variant=variant, scale=6.0, learned=learned, extension="ntk-by-parts").double().at(LARGE)
    columns, rows = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]] if variant == "heo" else [range(0, 12, 2), range(1, 12, 2)]
    for axis, pairs in ((0, rows), (1, columns)):
        of = {"factor": LARGE[axis] / SIZE[axis], "original_max_position_embeddings": SIZE[axis]}
        rule = ByParts(**of, beta_fast=4.0, beta_slow=1.0)
        rope = rw.create("rope", head_dim=12, base=100.0, scale=6.0, learned=learned, extension=rule).double()
        theirs = rope.waves()[0, :, 0]
        ratio = theirs / torch.tensor([6 * 100 ** (-i / 6) for i in range(6)])
        assert ratio.max() - ratio.min() > 0.2
        torch.testing.assert_close(made.waves()[0, list(pairs), axis], theirs, rtol=1e-12, atol=0)
        assert (made.waves()[:, list(pairs), 1 - axis] == 0).all()


def test_ntk_of_axial_is_a_larger_base_along_each_axis():
    made = axial(extension="ntk-aware", length=LARGE).double()
    for axis, pairs in ((1, slice(0, 6)), (0, slice(6, 12))):
        rope = rw.create("rope", head_dim=12, base=100.0, extension=NTKAware(factor=LARGE[axis] / SIZE[axis])).double()
        torch.testing.assert_close(made.waves()[0, pairs, axis], rope.waves()[0, :, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_q_and_k_are_turned_and_stretched(axes):
    size, large = (3, 5, 2)[:axes], (4, 9, 4)[:axes]
    made = mixed(axes=axes, size=size, scale=6.0, extension="yarn").double().at(large)
    q, k = normal(1, 2, 4, 12), normal(1, 2, 3, 12)
    places = normal(4, axes), normal(3, axes)
    s = [b / a for a, b in zip(size, large, strict=True)]
    factor = 0.1 * math.log(math.prod(s)) + 1
    for x, place, found in zip((q, k), places, made(*places).qk(q, k), strict=True):
        for head, n, pair in ((h, n, p) for h in range(2) for n in range(len(place)) for p in range(6)):
            angle = 0.0
            for axis, w in enumerate(made.wave[head, pair].tolist()):
                kept = min(max((abs(w) * size[axis] / (2 * math.pi) - 1) / 3, 0.0), 1.0)
                angle += w * (kept + (1 - kept) / s[axis]) * place[n, axis].item()
            a, b = x[0, head, n, 2 * pair : 2 * pair + 2].tolist()
            turned = [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
            ours = found[0, head, n, 2 * pair : 2 * pair + 2].tolist()
            assert ours == pytest.approx([factor * each for each in turned], abs=1e-12)


@pytest.mark.parametrize("rule", ["linear", "ntk-by-parts", "yarn"])
@pytest.mark.parametrize("coordinates", CONVENTIONS)
def test_turns_are_counted_across_the_image_whatever_the_coordinates(coordinates, rule):
    plain = mixed(extension=rule, length=LARGE).double()
    other = mixed(extension=rule, length=LARGE, coordinates=coordinates).double()
    steps = torch.tensor(STEPS[coordinates], dtype=torch.float64)
    with torch.no_grad():
        plain.wave.copy_(4 * normal(2, 6, 2))
        other.wave.copy_(plain.wave / steps)
    torch.testing.assert_close(other.waves() * steps, plain.waves(), **DOUBLE)


@pytest.mark.parametrize("coordinates", CONVENTIONS)
def test_interpolated_waves_have_the_scores_of_rescaled_positions(coordinates):
    plain = mixed(coordinates=coordinates).double()
    slow = plain.extended("linear", (6, 10))
    q, k = normal(1, 2, 60, 12), normal(1, 2, 60, 12)
    rescaled = logits(plain, plain.grid(6, 10, resolution="rescale"), q, k)
    torch.testing.assert_close(logits(slow, slow.grid(6, 10), q, k), rescaled, **DOUBLE)


@pytest.mark.parametrize("rule", ["linear", "ntk-aware", "ntk-by-parts", "yarn", AxesYaRN(attention_factor=2.0)])
@pytest.mark.parametrize("make", [axial, mixed])
def test_images_that_are_not_larger_are_as_in_training(make, rule):
    plain = make()
    q, k = (normal(1, 2, 15, plain.head_dim).float() for _ in range(2))
    for sides in (SIZE, (2, 5), (1, 1)):
        made = plain.extended(rule, sides)
        assert torch.equal(logits(made, made.grid(*SIZE), q, k), logits(plain, plain.grid(*SIZE), q, k))
        assert made.traits.isometric


@pytest.mark.parametrize("make", [axial, mixed])
def test_only_the_axis_that_grows_is_slowed(make):
    plain = make()
    for axis, sides in enumerate(((6, 4), (3, 9))):
        found, before = plain.extended("ntk-aware", sides).waves(), plain.waves()
        assert torch.equal(found[..., 1 - axis], before[..., 1 - axis])
        assert (found[..., axis].abs() < before[..., axis].abs()).any()


def test_a_rule_waits_for_the_size_of_the_image():
    for make in (axial, mixed):
        waiting = make(extension="yarn")
        assert "pairs" in repr(waiting)
        for call in (lambda made=waiting: made(made.grid(*SIZE)), waiting.waves):
            with pytest.raises(ValueError, match=r"size.*encoding.at\(sizes\)"):
                call()
        made = waiting.at(LARGE)
        assert (made.length, waiting.length) == (LARGE, None)
        assert torch.equal(made.at(SIZE).waves(), waiting.vectors())
        assert torch.equal(made.at(SIZE).at(LARGE).waves(), made.waves())


def test_at_keeps_parameters_dtype_mode_and_draws_nothing():
    made = mixed(extension="yarn", layers=3, kv_heads=1).double().eval()
    state = torch.random.get_rng_state()
    other = made.at(LARGE)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert other.wave is made.wave
    assert (other.waves().dtype, other.training) == (torch.float64, False)
    assert other.config() == made.config() | {"length": list(LARGE)}
    assert rw.create(**other.config()).config() == other.config()
    assert axial(extension="yarn").to("meta").at(LARGE).frequency.is_meta
    assert torch.equal(axial(extension="yarn").double().at(LARGE).frequency, axial().double().frequency)


def test_an_encoding_without_a_rule_is_itself_at_any_size():
    for made in (axial(), mixed()):
        assert made.at(LARGE) is made.at(100) is made
        for wrong, words in ((0, "positive integer, got 0"), ((3,), r"for each of the 2 axes, got \(3,\)")):
            with pytest.raises(ValueError, match=f"length must .*{words}"):
                made.at(wrong)
    one = mixed(axes=1, size=(3,), extension="yarn")
    assert one.at(9).length == (9,)
    with pytest.raises(ValueError, match=r"length.*2 axes, got \(9,\)"):
        mixed(extension="yarn").at(9)


@pytest.mark.parametrize("make", [lambda **o: axial(learned=True, scale=9.0, **o), lambda **o: mixed(scale=9.0, **o)])
@pytest.mark.parametrize(
    "rule", [AxesNTK(), AxesYaRN(), AxesYaRN(by="wave")], ids=lambda rule: f"{rule.rope_type}-{rule.by}"
)
def test_learned_waves_stay_those_of_training_and_get_gradients(make, rule):
    made = make(extension=rule, length=LARGE).double()
    (parameter,) = made.parameters()
    with torch.no_grad():
        parameter.mul_(1 + 0.1 * normal(*parameter.shape))  # no two alike
    q, k, places = normal(1, 2, 4, made.head_dim), normal(1, 2, 4, made.head_dim), 0.3 * normal(4, 2)
    before = parameter.detach().clone()
    logits(made, places, q, k).pow(2).sum().backward()
    assert torch.equal(parameter, before)

    def loss(step, index):
        with torch.no_grad():
            parameter.view(-1)[index] += step
            value = logits(made, places, q, k).pow(2).sum().item()
            parameter.copy_(before)
        return value

    for index in range(0, parameter.numel(), 5):
        slope = (loss(1e-6, index) - loss(-1e-6, index)) / 2e-6
        assert parameter.grad.view(-1)[index].item() == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_what_is_stretched_is_not_folded_and_the_rest_is():
    with pytest.raises(ValueError, match=r"axial.*RoPE-Mixed"):
        rw.fold(axial(extension="yarn", length=LARGE))
    made = axial(extension="ntk-aware", length=LARGE)
    folded, _ = rw.fold(made)
    assert folded.rule is None
    torch.testing.assert_close(folded.waves(), made.waves().expand_as(folded.waves()))


def test_the_repr_says_what_is_stretched():
    made = mixed(extension=AxesYaRN(beta_fast=3.0), length=(6, 10))
    assert "extension={'rope_type': 'yarn', 'beta_fast': 3.0}, length=(6, 10)" in repr(made)
    assert repr(made).endswith("# 2 axes, 6 pairs, interleaved, q and k times 1.139")
    assert "times" not in repr(mixed(extension=AxesLinear(), length=(6, 10)))


def test_options_that_cannot_be_meant_are_refused():
    for make in (axial, mixed):
        with pytest.raises(ValueError, match=r"size.*got length=\(7, 8\)"):
            make(length=LARGE)
        with pytest.raises(ValueError, match=r"size.*2.*got size=None"):
            make(size=None, extension="yarn")
        with pytest.raises(ValueError, match=r"length.*2 axes, got \(4, 5, 6\)"):
            make(extension="yarn", length=(4, 5, 6))


@pytest.mark.parametrize(
    "made",
    [
        axial(variant="van-de-geijn", learned=True, extension="yarn", length=LARGE, layers=2),
        mixed(axes=3, size=(2, 3, 4), scale=3.0, variant="liere", extension=AxesNTK(by="wave"), length=(4, 3, 7)),
    ],
    ids=repr,
)
def test_the_contract(made):
    """But for compilers, which the examples of the classes are shown to."""
    for check in checks_for(made):
        if check not in (check_compile, check_export):
            check(made)
