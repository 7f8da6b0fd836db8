"""Runs that begin with the weights of others: what is taken over, and what stays as it was drawn."""

from dataclasses import replace

import pytest
import torch

from ropewalk.lab.init_from import initialize_from_run, match_encoding_tensors
from ropewalk.lab.model_building import build_model
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.train import train_run

SMALL = replace(RECIPES["digits"], width=24, depth=2, heads=2, epochs=1, fraction=0.3, batch=64, compile=False)
ZERO = {"comrope-ld": "std", "comrope-ap": "std", "liere": "scale"}
"""Encodings whose generators can begin at zero, and the option that says so."""
CHAINS = {
    name: {"parts": [{"name": name, option: 0.0, "block": 4, "coordinates": "index"}, {"name": "learned-ape"}]}
    for name, option in ZERO.items()
}
CHAIN = CHAINS["comrope-ld"]
SHAPE = {"size": (8, 8), "channels": 1, "classes": 10}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_run(replace(SMALL, encoding="learned-ape"), tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_table_goes_on_beside_generators_that_are_zero_and_nothing_changes(trained, chain):
    old, new = (build_model(replace(SMALL, encoding=name, options=own, span=None), **SHAPE) for name, own in
                (("learned-ape", {}), ("chain", chain)))  # fmt: skip
    old.load_state_dict(trained.load_weights()[0])
    initialize_from_run(new, trained)
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(new.eval()(images), old.eval()(images))
    new(images).square().sum().backward()
    for part in new.encoding.members:
        assert any(weight.grad.abs().max() > 0 for weight in part.parameters())


def test_an_encoding_of_another_kind_stays_as_it_was_drawn(trained):
    new = build_model(replace(SMALL, encoding="mixed"), **SHAPE)
    drawn = {name: weight.clone() for name, weight in new.encoding.named_parameters()}
    initialize_from_run(new, trained)
    assert all(torch.equal(weight, drawn[name]) for name, weight in new.encoding.named_parameters())
    assert torch.equal(new.state_dict()["head.weight"], trained.load_weights()[0]["head.weight"])


def test_parts_are_known_by_name_and_shape(trained):
    chained = build_model(replace(SMALL, encoding="chain", options=CHAIN, span=None), **SHAPE).encoding
    given = {"table": torch.ones_like(chained.members[1].table)}
    assert list(match_encoding_tensors(chained, trained.config, given)) == ["members.1.table"]
    assert match_encoding_tensors(chained, trained.config, {"table": torch.ones(3)}) == {}
    twice = replace(SMALL, encoding="chain", options={"parts": [{"name": "learned-ape"}] * 2}, span=None)
    pair = build_model(twice, **SHAPE).encoding
    numbered = {f"members.{i}.table": torch.full_like(pair.members[i].table, float(i)) for i in range(2)}
    assert {name: value.max().item() for name, value in match_encoding_tensors(pair, twice, numbered).items()} == {
        "members.0.table": 0.0,
        "members.1.table": 1.0,
    }
    back = replace(SMALL, encoding="chain", options=CHAIN, span=None)
    alone = build_model(replace(SMALL, encoding="learned-ape"), **SHAPE).encoding
    both = {name: value for name, value in chained.state_dict().items()}
    assert list(match_encoding_tensors(alone, back, both)) == ["table"]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_fine_tuned_run_keeps_and_improves_what_it_began_with(trained, tmp_path, chain):
    more = replace(SMALL, encoding="chain", options=chain, span=None, start=str(trained.path), learning_rate=5e-4)
    tuned = train_run(more, tmp_path)
    assert tuned.result()["validation_loss"] < trained.result()["validation_loss"]
