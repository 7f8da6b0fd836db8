"""How much scores change when both tokens move, against scores of random vectors and what is known in closed form."""

import math

import pytest
import torch

import ropewalk as rw
from ropewalk.ops.expm.reference import expm_reference
from ropewalk.testing.case import points, ready
from ropewalk.theory import equivariance, farthest_pair, rope_equation
from ropewalk.theory import shifts as measured

RELATIVE = ["axial", "mixed", "uniform", "golden", "string-cayley", "string-circulant", "comrope-ap", "comrope-ld"]


def made(name, **options):
    return ready(rw.create(name, **{"head_dim": 12, "heads": 2, "axes": 2, **options}), torch.float64)


@pytest.mark.parametrize("name", RELATIVE)
def test_scores_of_a_relative_encoding_do_not_change(name):
    encoding = made(name, **({"block": 3} if name.startswith("comrope") else {}))
    change = equivariance(encoding, points(encoding, 5), (0.5, 2.0))
    assert change.worst.shape[-2:] == (2, 2)
    assert change.worst.max() < 1e-10
    assert rope_equation(encoding) < 1e-10


def test_spherical_is_relative_along_its_last_axis_alone():
    change = equivariance(made("spherical", learned=True), points(made("spherical"), 5), (1.0,))
    assert change.worst[:, 1].max() < 1e-12
    assert change.worst[:, 0].min() > 0.1
    assert rope_equation(made("spherical", learned=True)) > 0.1


def test_liere_is_relative_along_one_axis_and_not_along_two():
    assert rope_equation(made("liere", axes=1, block=4)) < 1e-10
    assert rope_equation(made("liere", block=4)) > 0.1


def test_the_expected_change_is_that_of_random_vectors():
    encoding, p, shift = made("liere", block=4, layers=2), points(made("liere", block=4), 4), 0.7
    change = equivariance(encoding, p, (shift,))
    q, k = (torch.randn(20_000, 2, 4, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    codes = [encoding(p)[1], encoding(p + torch.tensor([shift, 0.0], dtype=p.dtype))[1]]
    before, after = (torch.matmul(*(x if i == 0 else x.mT for i, x in enumerate(code.qk(q, k)))) for code in codes)
    found = (after - before).square().mean((0, 2, 3)).sqrt() / math.sqrt(12)
    torch.testing.assert_close(found, change.expected[1, :, 0, 0], rtol=0.02, atol=0)
    each = (after - before).square().mean((0, 3)).sqrt() / math.sqrt(12)
    torch.testing.assert_close(each, change.place[1, :, 0, 0], rtol=0.05, atol=0)


def test_the_worst_change_is_reached_and_not_exceeded():
    encoding, p = made("spherical"), torch.tensor([[0.3, -1.0], [1.2, 0.4]], dtype=torch.float64)
    worst = equivariance(encoding, p, (0.9,)).worst[0, 0, 0]
    first, second = (encoding(p + s * torch.tensor([1.0, 0.0], dtype=p.dtype)).matrices()[0] for s in (0.0, 0.9))
    delta = [second[i].mT @ second[j] - first[i].mT @ first[j] for i in range(2) for j in range(2)]
    values = torch.linalg.svdvals(torch.stack(delta))
    assert values.max().item() == pytest.approx(worst.item(), rel=1e-12)
    assert worst <= 2


def compare_all_pairs(encoding, p, move):
    """The change by its definition, with dense matrices: worst ([L] h) and place ([L] h N)."""
    before, after = encoding(p), encoding(p + move)
    if hasattr(before, "codes"):
        before, after = before.codes[1], after.codes[1]  # what follows a basis
    a, b, c, d = (m.detach() for m in (before.matrices(), before.key_matrices(), after.matrices(), after.key_matrices()))
    delta = c.unsqueeze(-3).mT @ d.unsqueeze(-4) - a.unsqueeze(-3).mT @ b.unsqueeze(-4)
    place = (delta.square().sum((-2, -1)).mean(-1) / encoding.head_dim).sqrt()
    return torch.linalg.svdvals(delta).amax((-3, -2, -1)), place


@pytest.mark.parametrize("elements", [1, 2**22])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("liere", {"block": 5}),
        ("liere", {"block": 4, "scale": 0.05, "layers": None}),
        ("liere", {"block": 12}),
        ("spherical", {"learned": True}),
        ("string-cayley", {}),
        ("xpos", {"axes": 1}),
    ],
)
def test_it_is_the_change_by_its_definition(name, options, elements, monkeypatch):
    encoding = made(name, **{"layers": 2} | options)
    p = points(encoding, 70) / 4
    monkeypatch.setattr(measured, "ELEMENTS", elements)
    monkeypatch.setattr(farthest_pair, "ELEMENTS", elements)
    found = equivariance(encoding, p, (0.3, 1.0))
    for axis in range(encoding.axes):
        for index, shift in enumerate((0.3, 1.0)):
            worst, place = compare_all_pairs(encoding, p, shift * torch.eye(encoding.axes, dtype=p.dtype)[axis])
            torch.testing.assert_close(found.worst[..., axis, index], worst, rtol=2e-6, atol=1e-12)
            torch.testing.assert_close(found.place[..., axis, index, :], place, rtol=1e-12, atol=1e-13)
            root = place.square().mean(-1).sqrt()
            torch.testing.assert_close(found.expected[..., axis, index], root, rtol=1e-12, atol=1e-13)


class InSteps(rw.Axial):
    """Rotates by multiples of four patches: nothing at the positions at which blocks are looked for."""

    name = "in-steps"

    def encode(self, q, k):
        return super().encode((q / 4).floor() * 4, None if k is None else (k / 4).floor() * 4)


def test_blocks_of_an_encoding_that_is_not_smooth_are_found():
    encoding = InSteps(head_dim=12, heads=2, axes=2).double()
    p = torch.cartesian_prod(torch.arange(9.0), torch.arange(9.0)).double()
    found = equivariance(encoding, p, (1.0,))
    for axis in range(2):
        worst, place = compare_all_pairs(encoding, p, torch.eye(2, dtype=p.dtype)[axis])
        torch.testing.assert_close(found.worst[..., axis, 0], worst, rtol=2e-6, atol=1e-12)
        torch.testing.assert_close(found.place[..., axis, 0, :], place, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("many", "one"), [(1.2, 2.0), (0.495, 0.5)])
def test_the_farthest_pair_is_found_among_blocks_whose_norms_mislead(many, one):
    """A pair of one large angle has a smaller Frobenius norm than pairs of several middling ones."""
    turns = [[0.0] * 4, *[[many] * 4] * 100, [0.0, 0.0, 0.0, one]]
    angles = torch.tensor(turns, dtype=torch.float64)
    blocks = torch.stack([torch.block_diag(*map(expm_reference, turn)) for turn in plane(angles)]).unsqueeze(1)
    found = farthest_pair.find_farthest(blocks, blocks)
    assert found.found == pytest.approx(2 * math.sin(one / 2), rel=1e-6)
    assert found.bound == found.found


def plane(angles):
    return angles[..., None, None] * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=angles.dtype)


def test_what_could_not_be_tried_is_said(monkeypatch):
    encoding = made("liere", block=12)
    p = points(encoding, 70) / 4
    monkeypatch.setattr(farthest_pair, "TRIED", 1)
    monkeypatch.setattr(farthest_pair, "LEAST", 1)
    monkeypatch.setattr(farthest_pair, "FIRST", 1)
    with pytest.warns(UserWarning, match="lower bound.*largest Frobenius norms only"):
        few = equivariance(encoding, p, (0.1,))
    monkeypatch.undo()
    assert (few.worst <= equivariance(encoding, p, (0.1,)).worst * (1 + 1e-5)).all()


def test_the_worst_of_many_positions_is_that_of_a_sample(monkeypatch):
    encoding = made("liere", block=4)
    p = points(encoding, 70)
    whole = equivariance(encoding, p, (0.5,))
    monkeypatch.setattr(measured, "WORK", 2**18)
    with pytest.warns(UserWarning, match="lower bound: it is that of .* positions drawn from 70"):
        some = equivariance(encoding, p, (0.5,))
    assert (some.worst <= whole.worst * (1 + 1e-5)).all()
    assert torch.equal(some.place, whole.place)


def test_pairs_of_what_changes_norms_are_sampled(monkeypatch):
    encoding, p = made("xpos", axes=1), torch.arange(30)
    monkeypatch.setattr(measured, "PAIRS", 150)
    with pytest.warns(UserWarning, match="xpos changes norms: scores are with 5 keys drawn from 30"):
        assert equivariance(encoding, p, (2.0,)).place.shape[-1] == 30


def test_progress_is_that_of_shifts():
    calls = []
    equivariance(made("axial"), points(made("axial"), 3), (0.5, 1.0), progress=lambda *done: calls.append(done))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_gains_of_queries_and_keys_cancel():
    encoding = made("xpos", axes=1)
    assert equivariance(encoding, points(encoding, 5), (7.0,)).worst.max() < 1e-10
    assert rope_equation(encoding) < 1e-10


def test_of_a_chain_it_is_what_turns():
    options = {"head_dim": 12, "heads": 2, "axes": 2, "coordinates": "index"}
    spherical = rw.create("spherical", **options).double()
    chain, p = rw.chain(rw.create("alibi", **options).double(), spherical), points(spherical, 4)
    assert torch.equal(equivariance(chain, p, (0.5,)).place, equivariance(spherical, p, (0.5,)).place)
    assert rope_equation(chain) == rope_equation(spherical) > 0.1


@pytest.mark.parametrize("shape", [(0, 2), (4, 3), (2, 4, 2)])
def test_positions_must_be_of_its_axes(shape):
    with pytest.raises(ValueError, match=r"positions.*\(.*N, 2\)"):
        equivariance(made("axial"), torch.zeros(shape, dtype=torch.float64), (1.0,))


def test_there_must_be_shifts():
    with pytest.raises(ValueError, match=r"got \(3, 2\) and 0 shifts"):
        equivariance(made("axial"), torch.zeros(3, 2, dtype=torch.float64), ())


def test_whole_numbers_are_positions_of_one_axis():
    encoding = made("xpos", axes=1)
    one, two = (
        equivariance(encoding, p, (2.0,)) for p in (torch.arange(5), torch.arange(5.0, dtype=torch.float64)[:, None])
    )
    assert one.place.shape == (1, 1, 1, 5)
    assert torch.equal(one.place, two.place)


def test_it_is_measured_in_float64_whatever_the_encoding_computes_in():
    wide, narrow = (made("spherical", learned=True) for _ in range(2))
    narrow.load_state_dict(wide.state_dict())
    found = [equivariance(each, points(wide, 4).float(), (0.5,)).worst for each in (wide, narrow.float())]
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-12)
    assert found[1].dtype == torch.float64
    assert found[1][:, 1].max() < 1e-12


@pytest.mark.parametrize("block", [4, 5])
def test_the_worst_change_of_blocks_is_a_singular_value(block):
    encoding, p = made("liere", block=block), torch.tensor([[0.3, -1.0], [1.2, 0.4]], dtype=torch.float64)
    first, second = (encoding(p + s * torch.tensor([1.0, 0.0], dtype=p.dtype)).matrices().detach() for s in (0.0, 0.9))
    delta = second[:, :, None].mT @ second[:, None] - first[:, :, None].mT @ first[:, None]
    found = equivariance(encoding, p, (0.9,)).worst[:, 0, 0]
    torch.testing.assert_close(found, torch.linalg.svdvals(delta).amax((1, 2, 3)))


def test_what_turns_nothing_is_refused():
    with pytest.raises(TypeError, match="alibi has no generators"):
        equivariance(rw.create("alibi", head_dim=12, heads=2), torch.zeros(2, 1, dtype=torch.float64), (1.0,))
