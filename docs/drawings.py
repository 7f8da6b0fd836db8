"""The figures of the gallery, and the encodings that they show."""

from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from ropewalk.encoding import Encoding
from ropewalk.encodings import REGISTRY
from ropewalk.lab.figures import FIGURES, applicable
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.inspect.attention_scores import compute_attention_patterns
from ropewalk.lab.inspect.figure_grid import get_default_grid_size

DPI = 160  # a page shows an inch as 100 pixels, and many a screen has two for one
THUMBNAIL = 112


def instance(kind: type[Encoding]) -> Encoding:
    """What the gallery shows of a class: the attention of a ViT-S, on 14 x 14 patches if it can take images."""
    axes = 2 if kind.allowed_axes is None or 2 in kind.allowed_axes else kind.default_axes
    torch.manual_seed(1)
    return kind(head_dim=64, heads=6, axes=axes, size=get_default_grid_size(axes))


def names(kind: type[Encoding]) -> list[str]:
    """The figures that there are of a class."""
    return applicable(instance(kind))


def draw(name: str, theme: str, folder: Path) -> dict[str, int]:
    """All figures of one encoding in one theme, to FOLDER/NAME-FIGURE-THEME.png, and how wide a page shows each."""
    torch.set_num_threads(1)
    kind = REGISTRY[name]
    thumbnail(instance(kind), theme).save(folder / f"{name}-thumbnail-{theme}.png", optimize=True)
    drawn = {figure: FIGURES[figure](instance(kind), theme=theme) for figure in names(kind)}
    for title, figure in drawn.items():
        save(figure, folder / f"{name}-{title}-{theme}.png")
    return {title: round(100 * figure.get_figwidth()) for title, figure in drawn.items()}


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of 256 colours, a third of the size of one in full colour."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    pixels.convert("RGB").quantize(256).save(path, optimize=True)


def thumbnail(encoding: Encoding, theme: str) -> Image.Image:
    """The attention pattern of the first head, without words."""
    scores = compute_attention_patterns(encoding, heads=1).heads[0].scores
    scaled = 0.5 + 0.5 * scores / scores.abs().max().clamp(min=1e-9)
    pixels = FIGURE_THEMES[theme].colours()(scaled.numpy(), bytes=True)
    return Image.fromarray(pixels).convert("RGB").resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BICUBIC).quantize(64)
