"""State dicts of transformers' and timm's models in the other layout, with the encoding in the other layout installed."""

import copy

import pytest
import torch

import ropewalk as rw
import tests.adapters.timm.test_install as vision
import tests.adapters.transformers.test_install as language
from ropewalk.adapters.timm import install as install_timm
from ropewalk.adapters.transformers import install
from ropewalk.layouts import convert
from tests.support.float64_reference import normal

HEAD_DIM = {"qwen3": 20}
PARTIAL = {"gpt_neox": 4}
FUSED = {"gpt_neox": {"heads": 4}}


@pytest.mark.parametrize("build", [*language.DECODERS, language.dinov3], ids=lambda build: build.__name__)
def test_models_of_transformers(build):
    model, name = build(), build.__name__
    given = normal(2, 3, 48, 80, seed=0, dtype=torch.float32) if name == "dinov3" else language.words(2, 13)
    read = {"head_dim": HEAD_DIM.get(name, 16), "rotary_dim": PARTIAL.get(name)}
    other, wrong = copy.deepcopy(model), copy.deepcopy(model)
    other.load_state_dict(convert(model.state_dict(), to="interleaved", **read, **FUSED.get(name, {})))
    with torch.no_grad():
        expected, found, astray = (
            each(given)[0] for each in (model, *(install(x, interleaved=True) for x in (other, wrong)))
        )
    torch.testing.assert_close(found, expected, **language.SMALL)
    assert (astray - expected).abs().max() > 0.01 * expected.abs().max()


@pytest.mark.parametrize("kind", ["axial", "eva02", "eva02 apart", "dinov3", "pe", "gap"])
def test_models_of_timm(kind):
    model, given = install_timm(vision.host(kind)), vision.images()
    own = model.encoding.config()
    flipped = own | {"interleaved": not own["interleaved"]}
    to = "interleaved" if flipped["interleaved"] else "half-split"
    other, wrong = copy.deepcopy(model), copy.deepcopy(model)
    for each in (other, wrong):
        each.rope.encoding = rw.create(**flipped)
    other.load_state_dict(convert(model.state_dict(), head_dim=24, to=to, heads=2))
    with torch.no_grad():
        expected, found, astray = (each(given) for each in (model, other, wrong))
    vision.close(found, expected)
    assert (astray - expected).abs().max() > 0.01 * expected.abs().max()


@pytest.mark.parametrize("entry", ["weight", "bias"])
def test_heads_that_come_one_by_one(entry):
    """GPT-NeoX has q, k and v of a head side by side: by hand, with two heads of four channels."""
    rows = torch.arange(24.0) if entry == "bias" else torch.arange(24.0)[:, None].expand(-1, 3)
    (new,) = convert({f"a.query_key_value.{entry}": rows}, head_dim=4, to="interleaved").values()
    wanted = [
        12 * head + 4 * part + i
        for head in (0, 1)
        for part in (0, 1, 2)
        for i in ((0, 1, 2, 3) if part == 2 else (0, 2, 1, 3))
    ]
    assert (new if entry == "bias" else new[:, 0]).tolist() == wanted


def test_biases_beside_a_projection():
    state = {"attn.qkv.weight": torch.ones(24, 8), "attn.q_bias": torch.arange(8.0), "attn.v_bias": torch.arange(8.0)}
    new = convert(state, head_dim=4, to="interleaved", heads=2)
    assert new["attn.q_bias"].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert new["attn.v_bias"] is state["attn.v_bias"]


@pytest.mark.parametrize(
    ("name", "shape", "options", "words"),
    [
        (
            "query_key_value.weight",
            (20, 3),
            {},
            r"3.*head_dim = 12.*head, got shape \(20, 3\)",
        ),
        ("query_key_value.weight", (24, 3), {"heads": 3}, r"3 heads.*head_dim = 9.*4.*got shape \(24, 3\)"),
        ("qkv.weight", (24, 3), {}, r"q, k and v.*heads"),
    ],
)
def test_refused(name, shape, options, words):
    with pytest.raises(ValueError, match=words):
        convert({name: torch.ones(shape)}, head_dim=4, to="interleaved", **options)
