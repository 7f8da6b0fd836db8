"""What generators tell, against attention scores that are computed without them."""

import pytest
import torch

import ropewalk as rw
from ropewalk import theory
from ropewalk.testing.case import points, ready

COMMUTING = {
    "mixed": {},
    "axial": {},
    "uniform": {},
    "golden": {},
    "string-cayley": {},
    "string-circulant": {},
    "comrope-ap": {"block": 3},
    "comrope-ld": {"block": 4},
}
SHAPES = {
    "plain": {"head_dim": 12, "heads": 2},
    "grouped-layers": {"head_dim": 13, "heads": 4, "kv_heads": 2, "layers": 2},
}


def made(name, shape, **options):
    return ready(rw.create(name, axes=2, **SHAPES[shape], **options), torch.float64)


def scores(encoding, q, k, p):
    code = encoding(p)
    code = code if code.layers is None else code[1]
    q, k = code.qk(q, k)
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT


def changed(x, basis):
    """Uᵀ x, the basis of a key head for all heads of its group."""
    return x @ basis.repeat_interleave(x.shape[1] // basis.shape[0], 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", COMMUTING)
def test_scores_in_the_basis_of_the_planes_are_those_of_mixed(name, shape):
    encoding = made(name, shape, **COMMUTING[name])
    mixed, basis = theory.fold(encoding)
    basis = basis if encoding.layers is None else basis[1]
    p = points(encoding, 7)
    heads = encoding.heads, encoding.kv_heads or encoding.heads
    q, k = (torch.randn(2, h, 7, encoding.head_dim, dtype=torch.float64) for h in heads)
    exact = scores(encoding, q, k, p)
    torch.testing.assert_close(scores(mixed, changed(q, basis), changed(k, basis), p), exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_does_not_commute_is_refused_with_its_number(shape):
    encoding = made("liere", shape, block=4)
    assert theory.commutators(encoding).max() > 0.01
    with pytest.raises(ValueError, match=r"0\.\d+.*size"):
        theory.fold(encoding)


def test_generators_that_vanish_have_no_planes():
    encoding = made("comrope-ld", "plain", std=0.0, block=4)
    torch.nn.init.zeros_(encoding.matrix)
    mixed, basis = theory.fold(encoding)
    assert not mixed.wave.any()
    torch.testing.assert_close(basis.mT @ basis, torch.eye(12, dtype=torch.float64).expand_as(basis))


def test_without_generators_there_is_nothing_to_fold():
    with pytest.raises(TypeError, match="alibi has no generators"):
        theory.fold(rw.create("alibi", head_dim=12, heads=2))


def generators_of(waves, basis):
    """A_a = U W_a Uᵀ, spelled out."""
    axes, depth = waves.shape[1], len(basis)
    total = torch.zeros(axes, depth, depth, dtype=torch.float64)
    for pair, wave in enumerate(waves):
        x, y = basis[:, 2 * pair], basis[:, 2 * pair + 1]
        for axis in range(axes):
            total[axis] += wave[axis] * (torch.outer(y, x) - torch.outer(x, y))
    return total


def check_planes(waves, depth=9):
    basis = torch.linalg.qr(torch.randn(depth, depth, dtype=torch.float64)).Q
    a = generators_of(waves, basis)
    found = theory.planes(a[None])
    torch.testing.assert_close(found.basis[0].mT @ found.basis[0], torch.eye(depth, dtype=torch.float64))
    torch.testing.assert_close(
        generators_of(found.waves[0], found.basis[0]), a, rtol=0, atol=1e-10 * max(1.0, a.abs().max().item())
    )
    assert found.residual < 1e-10
    return found


@pytest.mark.parametrize(
    "waves",
    [
        [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [0.0, 0.0]],
        [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]],
        [[1.0, 0.0], [1.0, 1e-4], [1e-5, 1.0], [0.0, 0.0]],
        [[0.0, 0.0]] * 4,
        [[1e6, 1.0], [1.0, 1e6], [1e-2, 0.0], [3.0, 3.0]],
    ],
    ids=["repeated", "along-axes", "close", "zero", "far-apart"],
)
def test_planes_of_special_waves(waves):
    check_planes(torch.tensor(waves, dtype=torch.float64))


def test_planes_that_one_mixture_cannot_tell_apart(monkeypatch):
    """Two waves that come to the same in the first mixture that is tried; with their mirror images, axes are of one size."""
    a, b = torch.randn(2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    waves = torch.tensor([[1.0, 2.0], [1.0 + b, 2.0 - a], [2.0, 1.0], [2.0 - a, 1.0 + b]], dtype=torch.float64)
    check_planes(waves)
    monkeypatch.setattr("ropewalk.theory.commuting.MIXTURES", 1)
    with pytest.raises(AssertionError):
        check_planes(waves)


def test_waves_have_a_sign_and_an_order():
    found = check_planes(torch.tensor([[-1.0, 2.0], [0.0, -3.0], [0.5, 0.5]], dtype=torch.float64))
    wanted = torch.tensor([[0.0, 3.0], [1.0, -2.0], [0.5, 0.5], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found.waves[0], wanted)


def test_spectrum_counts_planes_of_one_wave():
    found = theory.spectrum(made("uniform", "plain"))
    assert sorted(found.waves.abs().sum(-1).tolist()) == pytest.approx([1.0, 1.0])
    assert found.multiplicity.tolist() == [3, 3]
    assert (found.still, found.directions()) == (0, 2)
    zero = theory.spectrum(rw.create("rope", head_dim=12, rotary_dim=8))
    assert (len(zero.waves), zero.still) == (4, 4)


@pytest.mark.parametrize(("block", "directions"), [(2, 6), (4, 3), (6, 2), (12, 1)])
def test_comrope_ld_has_a_direction_for_each_block(block, directions):
    found = theory.spectrum(made("comrope-ld", "plain", block=block), head=1)
    assert len(found.waves) == 6
    assert found.directions() == directions


def test_the_spectrum_is_that_of_the_head_and_layer_asked_for():
    encoding = made("mixed", "grouped-layers")
    found = theory.spectrum(encoding, layer=1, head=1)
    lengths = encoding.wave[1, 1].norm(dim=-1).sort(descending=True).values
    torch.testing.assert_close(found.waves.norm(dim=-1), lengths.detach())


def test_span_is_what_each_axis_turns():
    encoding = rw.create("axial", head_dim=12, heads=2, variant="eva")
    wanted = torch.tensor([1.0, 1e4 ** (-1 / 3), 1e4 ** (-2 / 3)], dtype=torch.float64)
    found = theory.span(encoding, 3, 5)
    torch.testing.assert_close(found[0, 0, :3], 2 * wanted)
    torch.testing.assert_close(found[0, 1, :3], 4 * wanted)
    assert not found[..., 3:].abs().gt(1e-12).any()


def test_parameters_before_and_after_folding():
    assert theory.parameters(made("comrope-ld", "plain", block=4)) == (2 * 3 * (16 + 2), 2 * 6 * 2)
    assert theory.parameters(made("liere", "plain", block=4)) == (2 * 2 * 3 * 6, None)
    assert theory.parameters(rw.create("axial", head_dim=12, heads=2)) == (0, 6 * 2)


@pytest.mark.parametrize("size", [1e-4, 1e-7, 1e-8, 1e-10])
def test_slow_waves_keep_their_planes(size):
    """Beside fast ones, a slow wave is hardly told from its opposite."""
    encoding = made("string-cayley", "plain")
    with torch.no_grad():
        encoding.wave[:, 3:] *= size
    mixed, basis = theory.fold(encoding)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(12, dtype=torch.float64).expand_as(basis), rtol=0, atol=1e-12)
    q, k, p = *torch.randn(2, 1, 2, 7, 12, dtype=torch.float64), 10 * points(encoding, 7)
    torch.testing.assert_close(
        scores(mixed, changed(q, basis), changed(k, basis), p), scores(encoding, q, k, p), rtol=0, atol=1e-10
    )


def nearly(apart, depth=12):
    """LieRE whose second generator is the first and a part that anticommutes with it."""
    encoding = made("liere", "plain", block=depth)
    turn, other = (torch.kron(torch.eye(depth // 4).double(), torch.tensor(m).double()) for m in (
        [[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, -1], [0, 0, 1, 0]],
        [[0.0, 0, -1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, -1, 0, 0]],
    ))  # fmt: skip
    row, column = torch.triu_indices(depth, depth, 1)
    encoding.upper.data[:, 0, 0], encoding.upper.data[:, 1, 0] = turn[row, column], (turn + apart * other)[row, column]
    return encoding


@pytest.mark.parametrize("apart", [1e-12, 3e-10, 3e-9])
def test_what_is_folded_is_as_close_as_the_tolerance_says(apart):
    encoding = nearly(apart)
    mixed, basis = theory.fold(encoding)
    q, k = torch.nn.functional.normalize(torch.randn(2, 1, 2, 9, 12, dtype=torch.float64), dim=-1)
    p = 100 * torch.nn.functional.normalize(torch.randn(9, 2, dtype=torch.float64), dim=-1)
    exact = scores(encoding, q, k, p)
    assert (scores(mixed, changed(q, basis), changed(k, basis), p) - exact).abs().max() < 2e-6


@pytest.mark.parametrize("apart", [1.5e-5, 1e-7, 3e-8])
def test_what_would_be_further_off_is_refused(apart):
    with pytest.raises(ValueError, match=r"size.*5e-09"):
        theory.fold(nearly(apart))
    theory.fold(nearly(apart), tolerance=10 * apart)


def test_one_bad_head_is_enough():
    encoding = nearly(0.0)
    encoding.upper.data[1] = nearly(0.1).upper.data[1]
    with pytest.raises(ValueError, match="do not commute"):
        theory.fold(encoding)
    assert theory.parameters(encoding).folded is None


def test_numbers_that_are_not_finite_are_refused():
    encoding = made("comrope-ld", "plain", block=4)
    encoding.matrix.data[0, 0, 0, 1] = torch.nan
    for measure in (theory.commutators, theory.fold, theory.spectrum):
        with pytest.raises(ValueError, match=r"comrope-ld.*not finite"):
            measure(encoding)


def test_encodings_without_numbers_are_refused():
    with torch.device("meta"):
        encoding = rw.create("mixed", head_dim=12)
    with pytest.raises(ValueError, match=r"mixed.*meta device"):
        theory.fold(encoding)


@pytest.mark.parametrize("name", ["string-circulant", "comrope-ld", "mixed"])
def test_nobody_s_random_numbers_are_drawn(name):
    encoding = rw.create(name, head_dim=12, heads=2)
    state = torch.get_rng_state()
    for measure in (theory.commutators, theory.fold, theory.spectrum, theory.rope_equation, theory.parameters):
        measure(encoding)
    assert torch.equal(torch.get_rng_state(), state)


def test_another_default_device_changes_nothing():
    encoding = rw.create("comrope-ld", head_dim=12, heads=2, block=4)
    with torch.device("meta"):
        mixed, basis = theory.fold(encoding)
        assert theory.rope_equation(encoding) < 1e-10
        assert len(theory.spectrum(encoding).waves) == 6
        assert theory.equivariance(encoding, encoding.grid(3, 5, device="cpu"), (1.0,)).worst.max() < 1e-10
    assert mixed.wave.device.type == basis.device.type == "cpu"


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("name", ["axial", "mixed", "dinov3"])
def test_what_turns_pairs_already_folds_to_itself(name, interleaved):
    encoding = made(name, "grouped-layers", interleaved=interleaved)
    mixed, basis = theory.fold(encoding)
    assert torch.equal(basis, torch.eye(13, dtype=torch.float64).expand_as(basis))
    assert mixed.interleaved == interleaved
    q, k, p = torch.randn(2, 4, 7, 13).double(), torch.randn(2, 2, 7, 13).double(), points(encoding, 7)
    torch.testing.assert_close(scores(mixed, q, k, p), scores(encoding, q, k, p), rtol=0, atol=1e-12)


def test_half_split_parts_of_a_head_fold():
    encoding = ready(rw.create("rope", head_dim=12, heads=2, rotary_dim=8))
    mixed, basis = theory.fold(encoding)
    q, k, p = torch.randn(2, 2, 7, 12).double(), torch.randn(2, 2, 7, 12).double(), torch.arange(7)
    code, other = encoding(p), mixed(p)
    exact, found = (a @ b.mT for a, b in (code.qk(q, k), other.qk(q @ basis, k @ basis)))
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-10)


def test_what_was_fixed_or_frozen_stays_so():
    frozen = rw.create("comrope-ld", head_dim=12).requires_grad_(False)
    for encoding, learns in (
        (rw.create("axial", head_dim=12), False),
        (frozen, False),
        (rw.create("mixed", head_dim=12), True),
    ):
        assert theory.fold(encoding)[0].wave.requires_grad == learns


def test_what_is_folded_is_its_own():
    encoding = rw.create("mixed", head_dim=12, size=(3, 5))
    mixed, _ = theory.fold(encoding)
    mixed.wave.data.zero_()
    assert encoding.wave.abs().max() > 0
    assert mixed.size == (3, 5)
    assert mixed.coordinates == encoding.coordinates
    chain = rw.chain(rw.create("mixed", head_dim=12, size=(3, 5)), rw.create("learned-ape", head_dim=12, size=(3, 5)))
    folded, _ = theory.fold(chain)
    assert not {id(p) for p in folded.parameters()} & {id(p) for p in chain.parameters()}


@pytest.mark.parametrize(("where", "words"), [({"layer": 2}, r"layer.*0.*1, got 2"), ({"head": -1}, "head must be")])
def test_heads_and_layers_that_are_not_there(where, words):
    with pytest.raises(ValueError, match=words):
        theory.spectrum(made("axial", "grouped-layers"), **where)


def test_spans_count_from_side_to_side():
    encoding = rw.create("axial", head_dim=12, heads=2, variant="van-de-geijn", size=(3, 5))
    assert theory.span(encoding, 3, 5)[0, :, 0].tolist() == pytest.approx([2 * torch.pi, 2 * torch.pi])


def test_of_a_chain_what_turns_counts():
    options = {"head_dim": 12, "heads": 2, "size": (3, 5)}
    chain = rw.chain(rw.create("learned-ape", **options), rw.create("mixed", **options))
    assert theory.parameters(chain) == (2 * 6 * 2, 2 * 6 * 2)
    assert torch.equal(theory.commutators(chain), theory.commutators(chain.members[1]))
