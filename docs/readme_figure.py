"""Draw the README's picture of what positional encodings do to attention, after Figure 1A of arXiv 2511.08368."""

from pathlib import Path

import torch

import ropewalk as rw
from plots import save_figure
from ropewalk.lab.figures.attention_patterns import draw_attention_patterns
from ropewalk.lab.figures.theme import FIGURE_THEMES

SHAPE = {"head_dim": 48, "heads": 3, "axes": 2, "size": (18, 32)}
# The fastest channels rotate four times across the image; those of LieRE and ComRoPE, drawn at random, three to eight times.
METHODS = {
    "axial": ("axial", {"variant": "van-de-geijn", "scale": 4}),
    "uniform": ("uniform", {"variant": "van-de-geijn", "scale": 4}),
    "mixed": ("mixed", {"variant": "van-de-geijn", "scale": 4}),
    "spherical": ("spherical", {"variant": "van-de-geijn", "scale": 4}),
    "LieRE": ("liere", {"block": 8}),
    "ComRoPE-LD": ("comrope-ld", {"block": 8, "std": 3.0}),
    "ALiBi": ("alibi", {"heads": 8}),
}


def create_seeded_encoding(name: str, options: dict[str, object]) -> rw.Encoding:
    torch.manual_seed(1)
    return rw.create(name, **SHAPE | options)


def main(folder: Path = Path(__file__).parent / "images") -> None:
    encodings = {label: create_seeded_encoding(*method) for label, method in METHODS.items()}
    for theme in FIGURE_THEMES:
        path = folder / f"attention-patterns-{theme}.png"
        save_figure(draw_attention_patterns(encodings, heads=3, seed=1, theme=theme), path, dpi=140)
        print(path)


if __name__ == "__main__":
    main()
