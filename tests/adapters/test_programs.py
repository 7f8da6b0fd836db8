"""Decoders of transformers with an encoding, as programs of torch.export."""

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaModel

from ropewalk import export
from ropewalk.adapters.transformers import install, installed
from tests.adapters.test_use import KINDS, installed_llama, logits_of, small_llama
from tests.adapters.transformers.test_install import GROUPED, SMALL, gemma3, words

CHAIN = {"name": "chain", "parts": [{"name": "string-cayley"}, {"name": "alibi"}]}
MATRICES = ("expm", "matrix_exp", "solve")


def assert_same(program, model, shapes):
    assert not [node for node in program.graph.nodes if any(word in str(node.target) for word in MATRICES)]
    for shape in shapes:
        given = words(*shape)
        torch.testing.assert_close(program.module()(given), logits_of(model, given), **SMALL)


@pytest.mark.parametrize(("name", "options"), [KINDS["learned"], ("liere", {"layers": 2, "block": 4}), (CHAIN, {})])
def test_texts_of_any_length_up_to_one(name, options):
    model = install(small_llama(), name, **options)
    program = export.program(model, length=40)
    assert_same(program, model, [(1, 1), (2, 40), (3, 9)])
    with pytest.raises(AssertionError, match=r"Guard failed.*40"):
        program.module()(words(1, 41))


def test_texts_of_any_length():
    model = installed_llama("alibi")
    assert_same(export.program(model), model, [(3, 65)])
    with pytest.raises(ValueError, match=r"comrope-ld needs a table.*give length"):
        export.program(installed_llama("comrope-ld"))


def test_types_of_layers():
    model = install(gemma3(), {"sliding_attention": "comrope-ld", "full_attention": "liere"}, block=4)
    assert_same(export.program(model, length=20), model, [(2, 20), (1, 7)])


def test_the_model_is_left_as_it_was():
    model = installed_llama("comrope-ld").train()
    kind, before = type(installed(model)), copy.deepcopy(model.state_dict())
    program = export.program(model, length=8)
    with torch.no_grad():
        installed(model).matrix.mul_(2)
    assert model.training
    assert type(installed(model)) is kind
    assert [*model.state_dict()] == [*before]
    changed = logits_of(model.eval(), words(2, 8))
    assert (program.module()(words(2, 8)) - changed).abs().max() > 1e-3
    model.load_state_dict(before)
    torch.testing.assert_close(program.module()(words(2, 8)), logits_of(model, words(2, 8)), **SMALL)


def test_a_model_without_a_head():
    model = install(LlamaModel(LlamaConfig(**GROUPED)).eval())
    with torch.no_grad():
        wanted = model(words(2, 9)).last_hidden_state
    torch.testing.assert_close(export.program(model).module()(words(2, 9)), wanted, **SMALL)
