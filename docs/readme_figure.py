"""Draw the README's picture of what positional encodings do to attention, after Figure 1A of arXiv 2511.08368."""

import io
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image

import ropewalk as rw
from ropewalk.lab.figures.attention_patterns import draw_attention_patterns
from ropewalk.lab.figures.theme import FIGURE_THEMES

HERE = Path(__file__).parent
SHAPE = {"head_dim": 48, "heads": 3, "axes": 2, "size": (18, 32)}

# The fastest channels turn four times across the image; those of LieRE and ComRoPE, drawn at random, three to eight times.
METHODS = {
    "axial": ("axial", {"variant": "van-de-geijn", "scale": 4}),
    "uniform": ("uniform", {"variant": "van-de-geijn", "scale": 4}),
    "mixed": ("mixed", {"variant": "van-de-geijn", "scale": 4}),
    "spherical": ("spherical", {"variant": "van-de-geijn", "scale": 4}),
    "LieRE": ("liere", {"block": 8}),
    "ComRoPE-LD": ("comrope-ld", {"block": 8, "std": 3.0}),
    "ALiBi": ("alibi", {"heads": 8}),
}


def main() -> None:
    """Draw attention patterns of several encodings on an image of 18 x 32 patches, light and dark, to docs/images."""
    folder = HERE / "images"
    folder.mkdir(exist_ok=True, parents=True)
    encodings = {label: build(name, options) for label, (name, options) in METHODS.items()}
    for theme in FIGURE_THEMES:
        path = folder / f"attention-patterns-{theme}.png"
        save(draw_attention_patterns(encodings, heads=3, seed=1, theme=theme), path)
        print(path)


def build(name: str, options: dict[str, object]) -> rw.Encoding:
    """An encoding whose random start, if it has one, is the same every time."""
    torch.manual_seed(1)
    return rw.create(name, **SHAPE | options)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of 256 colours, a third of the size of one in full colour."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=140)
    Image.open(buffer).convert("RGB").quantize(256).save(path, optimize=True)


if __name__ == "__main__":
    main()
