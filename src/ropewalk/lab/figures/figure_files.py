"""Figures to files: where each goes, what it is written as, and no half of one."""

import io
import os
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from ropewalk.encoding import Encoding
from ropewalk.lab.errors import CommandError, translate_value_errors
from ropewalk.lab.figures import FIGURES, applicable
from ropewalk.validation import check_choice

FIGURE_FORMATS = ("png", "svg")
FIGURE_DPI = 144


def draw_figure_files(
    encoding: Encoding, figure: str, out: str, *, theme: str = "light", format: str | None = None
) -> list[Path]:
    """Draw a figure, or all that there are, all of them before the first is written; say where they are."""
    places = resolve_figure_paths(choose_figures(encoding, figure), out, encoding=encoding, theme=theme, format=format)
    drawn = {}
    for name, path in places.items():
        with translate_value_errors():
            drawn[path] = encode_figure(FIGURES[name](encoding, theme=theme), _get_suffix(path))
    for path, content in drawn.items():
        try:
            write_figure_file(path, content)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
    return list(drawn)


def choose_figures(encoding: Encoding, figure: str) -> list[str]:
    """The figures that a word asks for: one by name, or all that there are of the encoding."""
    there = applicable(encoding)
    if figure == "all":
        return there
    check_choice("figure", figure, [*FIGURES, "all"], error=CommandError)
    if figure not in there:
        raise CommandError(f"{encoding.name} has no figure {figure!r}; expected one of {', '.join(there)}")
    return [figure]


def resolve_figure_paths(
    names: list[str], out: str, *, encoding: Encoding, theme: str, format: str | None
) -> dict[str, Path]:
    """A path for each figure: in the folder `out`, or `out` itself if it is a file, which holds one."""
    path = Path(out)
    if path.is_dir() or out.endswith(("/", os.sep)) or not path.suffix:
        return {name: path / f"{encoding.name}-{name}-{theme}.{format or FIGURE_FORMATS[0]}" for name in names}
    if _get_suffix(path) not in FIGURE_FORMATS or format not in (None, _get_suffix(path)):
        wanted = " or ".join(f".{each}" for each in (FIGURE_FORMATS if format is None else (format,)))
        raise CommandError(f"a figure goes to a folder or to a file that ends in {wanted}, got {out}")
    if len(names) > 1:
        raise CommandError(f"a file holds one figure: --figure must choose one of {', '.join(names)}, got {out} for all")
    return dict.fromkeys(names, path)


def _get_suffix(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()


def encode_figure(figure: Figure, format: str) -> bytes:
    """The figure as a file's content, the same every time."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "ropewalk"}):
        figure.savefig(buffer, format=format, dpi=FIGURE_DPI, metadata={"Date": None} if format == "svg" else None)
    return buffer.getvalue()


def write_figure_file(path: Path, content: bytes) -> None:
    """A file, whole or not at all, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
