"""Figures of encodings: an encoding in, a `matplotlib.figure.Figure` out. No global state, no files."""

from collections.abc import Callable

from matplotlib.figure import Figure

from ropewalk.code import Code
from ropewalk.encoding import Encoding
from ropewalk.lab.anatomy import parts, sample_code
from ropewalk.lab.holdings import has_tables
from ropewalk.lab.plots.attention_patterns import attention_patterns as attention_patterns
from ropewalk.lab.plots.cost import cost as cost
from ropewalk.lab.plots.decay import decay as decay
from ropewalk.lab.plots.equivariance import equivariance as equivariance
from ropewalk.lab.plots.frequency_plane import frequency_plane as frequency_plane
from ropewalk.lab.plots.sphere_paths import on_sphere
from ropewalk.lab.plots.sphere_paths import sphere_paths as sphere_paths
from ropewalk.lab.plots.tables import tables as tables
from ropewalk.lab.plots.theme import THEMES as THEMES
from ropewalk.lab.plots.turns import turns as turns
from ropewalk.lab.spectrum import has_spectrum

FIGURES: dict[str, Callable[..., Figure]] = {
    "patterns": attention_patterns,
    "frequencies": frequency_plane,
    "sphere": sphere_paths,
    "decay": decay,
    "turns": turns,
    "tables": tables,
}


def applicable(encoding: Encoding) -> list[str]:
    """The names of the figures that there are of an encoding. Draws nothing."""
    code = sample_code(encoding)
    rotary = has_spectrum(encoding, code)
    there = {
        "patterns": True,
        "frequencies": rotary,
        "sphere": on_sphere(encoding),
        "decay": any(type(part) is not Code for part in parts(code)),
        "turns": rotary,
        "tables": has_tables(code),
    }
    return [name for name in FIGURES if there[name]]
