"""The table of folded encodings: what it says of each, from the matrices that its code multiplies q by."""

import pytest
import torch

import folding_tables
import ropewalk as rw

CASES = folding_tables.list_cases()


def rotation(encoding, *position):
    """The matrices (h D D) that turn q from the origin to a position, whatever basis its code writes q in."""
    basis = torch.eye(folding_tables.WIDTH, dtype=torch.float64).expand(1, folding_tables.HEADS, -1, -1)
    places = torch.tensor([[0.0] * len(position), position], dtype=torch.float64)[:, None].expand(-1, len(basis[0, 0]), -1)
    with torch.no_grad():
        origin, there = (encoding(each).q(basis)[0].mT for each in places)
    return origin.mT @ there


def test_the_table_has_every_encoding():
    listed = {name for name, _, _ in CASES} | {name.strip("`") for name in folding_tables.list_others().split(", ")}
    assert listed == {*rw.names()}
    assert len(folding_tables.list_served().splitlines()) == 2 + len(CASES)


@pytest.mark.parametrize(("name", "options", "axes"), CASES)
def test_what_commutes_is_folded_and_what_is_folded_commutes(name, options, axes):
    encoding = folding_tables.make_encoding(name, axes, **options)
    steps = [rotation(encoding, *row) for row in torch.eye(axes).tolist()]
    apart = max((one @ two - two @ one).abs().max().item() for one in steps for two in steps)
    stretched = (steps[0] @ steps[0].mT - torch.eye(folding_tables.WIDTH)).abs().max().item()
    found = folding_tables.fold_case(encoding)
    assert (found is not None) == (apart < 1e-9 and stretched < 1e-9)
    assert found is None or found.error < 1e-12


def test_errors_are_those_of_scores(monkeypatch):
    encoding = folding_tables.make_encoding("comrope-ld", 2)

    def wrong(encoding):
        mixed, basis = rw.fold(encoding)
        with torch.no_grad():
            mixed.wave.mul_(1.01)
        return mixed, basis

    monkeypatch.setattr(folding_tables, "fold", wrong)
    assert folding_tables.fold_case(encoding).error > 1e-4


@pytest.mark.parametrize(("base", "found"), [(10000.0, 10000.0), (500.0, 500.0), (1.0, None)])
def test_stock_frequencies(base, found):
    frequency = torch.tensor([base ** (-i / 12) for i in range(12)], dtype=torch.float64)
    assert folding_tables.find_base(frequency) == found
    assert folding_tables.find_base(frequency.index_fill(0, torch.tensor([5]), 0.3)) is None


@pytest.mark.parametrize(
    ("name", "options", "axes", "served"),
    [
        ("rope", {}, 1, "stock RoPE, base 10000"),
        ("rope", {"learned": True, "shared": True}, 1, "stock RoPE with explicit frequencies"),
        ("string-cayley", {}, 1, "RoPE with frequencies of each head; `shared=True`: one set"),
        ("axial", {}, 2, "axial RoPE with explicit frequencies"),
        ("comrope-ld", {"shared": True}, 2, "RoPE-Mixed, one set of waves"),
        ("liere", {}, 2, "not at all: does not commute"),
        ("xpos", {}, 1, "not at all: stretches q and k"),
    ],
)
def test_what_serves_it(name, options, axes, served):
    shown = f"`{name}`" + "".join(f" `{key}={value}`" for key, value in options.items())
    rows = [line.strip("| ").split(" | ") for line in folding_tables.list_served().splitlines()]
    assert [row[-1] for row in rows if row[:2] == [shown, str(axes)]] == [served]
