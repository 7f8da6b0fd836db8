"""No encoding without a reference that shares no code with it."""

import re
from pathlib import Path

import pytest

import ropewalk as rw

REFERENCES = {
    "alibi": {"transformers": "test_alibi", "absolute": "test_alibi_between_points"},
    "axial": {"timm": "test_axial", "waves": "test_axial"},
    "comrope-ap": {"exponentials": "test_grid"},
    "comrope-ld": {"exponentials": "test_grid"},
    "learned-ape": {"absolute": "test_learned_table_resized"},
    "liere": {"exponentials": "test_grid"},
    "mixed": {"timm": "test_mixed", "waves": "test_learned_waves"},
    "rope": {"transformers": "test_rope_like_llama", "waves": "test_rope"},
    "sincos": {"timm": "test_sincos", "absolute": "test_sincos_of_a_grid"},
    "spherical": {"spherical": "test_fixed"},
    "t5-bias": {"transformers": "test_t5_bias"},
    "uniform": {"waves": "test_uniform"},
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
