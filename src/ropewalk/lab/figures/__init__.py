"""Figures of encodings: an encoding in, a `matplotlib.figure.Figure` out. No global state, no files."""

from collections.abc import Callable

from matplotlib.figure import Figure

from ropewalk.code import Code
from ropewalk.encoding import Encoding
from ropewalk.lab.figures.attention_patterns import draw_attention_patterns
from ropewalk.lab.figures.decay import draw_decay
from ropewalk.lab.figures.frequencies import draw_frequencies, draw_turns
from ropewalk.lab.figures.sphere import draw_sphere_paths, has_sphere_paths
from ropewalk.lab.figures.tables import draw_code_tables, has_code_tables
from ropewalk.lab.inspect.code_structure import compute_sample_code, list_code_parts
from ropewalk.lab.inspect.frequency_spectrum import has_frequency_spectrum

FIGURES: dict[str, Callable[..., Figure]] = {
    "patterns": draw_attention_patterns,
    "frequencies": draw_frequencies,
    "sphere": draw_sphere_paths,
    "decay": draw_decay,
    "turns": draw_turns,
    "tables": draw_code_tables,
}


def applicable(encoding: Encoding) -> list[str]:
    """The names of the figures that there are of an encoding. Draws nothing."""
    code = compute_sample_code(encoding)
    rotary = has_frequency_spectrum(encoding, code)
    there = {
        "patterns": True,
        "frequencies": rotary,
        "sphere": has_sphere_paths(encoding),
        "decay": any(type(part) is not Code for part in list_code_parts(code)),
        "turns": rotary,
        "tables": has_code_tables(code),
    }
    return [name for name in FIGURES if there[name]]
