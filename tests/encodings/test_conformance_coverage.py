"""No encoding without a reference that shares no code with it."""

import re
from pathlib import Path

import pytest

import ropewalk as rw

REFERENCES = {
    "alibi": {"transformers": "test_alibi", "absolute": "test_alibi_with_a_class_token", "chain": "test_rope_and_alibi"},
    "axial": {"timm": "test_axial", "waves": "test_axial"},
    "axial-spherical": {"degree": "test_blocks"},
    "comrope-ap": {"exponentials": "test_grid"},
    "comrope-ld": {"exponentials": "test_grid"},
    "dinov3": {"timm": "test_dinov3", "transformers": "test_dinov3", "waves": "test_dinov3"},
    "golden": {"waves": "test_golden"},
    "learned-ape": {"absolute": "test_learned_table_resized", "chain": "test_mixed_and_learned_ape"},
    "liere": {"exponentials": "test_grid"},
    "mixed": {"timm": "test_mixed", "waves": "test_learned_waves", "chain": "test_mixed_and_learned_ape"},
    "mrope": {"mrope": "test_mrope_of_the_published_models", "waves": "test_mrope"},
    "rope": {"transformers": "test_rope_like_llama", "waves": "test_rope", "chain": "test_rope_and_alibi"},
    "sincos": {"timm": "test_sincos", "absolute": "test_sincos_of_a_grid"},
    "spherical": {"spherical": "test_fixed"},
    "spherical-symmetric": {"symmetric": "test_symmetric"},
    "string-cayley": {"string": "test_grid_with_a_prefix"},
    "string-circulant": {"string": "test_grid_with_a_prefix"},
    "swin-bias": {"bias": "test_swin_bias"},
    "t5-bias": {"transformers": "test_t5_bias"},
    "transformer-xl": {"bias": "test_transformer_xl"},
    "uniform": {"waves": "test_uniform"},
    "waves": {"wave_table": "test_tables_of_all_shapes"},
    "xpos": {"waves": "test_xpos"},
}
NOTHING_TO_REFER_TO = {"none"}


def test_every_encoding_has_a_reference():
    assert set(REFERENCES) | NOTHING_TO_REFER_TO == set(rw.names())


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_is_a_test_of_that_encoding(name):
    for file, test in REFERENCES[name].items():
        text = (Path(__file__).parent / f"test_conformance_{file}.py").read_text()
        assert re.search(rf"^def {test}\(", text, re.MULTILINE)
        assert f'"{name}"' in text
