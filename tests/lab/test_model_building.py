"""Models of runs: one span for all encodings, the same weights but for the encoding's."""

from dataclasses import replace

import pytest
import torch

import ropewalk as rw
from ropewalk.lab.config import Config
from ropewalk.lab.model_building import build_model, compute_max_span

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
