"""The page "What the papers do not tell you": every number on it is computed when it is written."""

from pathlib import Path

from ropewalk.lab.figures.theme import FIGURE_THEMES

from . import (
    decay,
    directions,
    expressivity,
    layers,
    lookup,
    percentages,
    results,
    settings,
    spans,
    sphere,
    uniform,
    yarn,
)
from .page import Finding, table

PARTS = (spans, layers, directions, lookup, settings, expressivity, sphere, uniform, yarn, decay, percentages, results)
HEADER = ("finding", "figure", "where", "in ropewalk")
OPENING = """
# What the papers do not tell you

Papers, their code and what is written about them do not always agree. Whoever compares encodings, or takes one over from
a published file, should know where. Each section below states what a file, formula or table does, computes it again with
ropewalk or with a few lines that do the same, and says what ropewalk does instead. Nothing here is about intentions; and
of most published files nobody outside can tell whether the runs of the paper were made with them.
"""

SOURCES = """
## Sources

Papers: [RoFormer](https://arxiv.org/abs/2104.09864), [YaRN](https://arxiv.org/abs/2309.00071),
[Heo et al.](https://arxiv.org/abs/2403.13298), [LieRE](https://arxiv.org/abs/2406.10322),
[Barbero et al.](https://arxiv.org/abs/2410.06205), [ComRoPE](https://arxiv.org/abs/2506.03737),
[van de Geijn et al.](https://arxiv.org/abs/2511.08368).

Files, as they stood in 2026: [rope-vit](https://github.com/naver-ai/rope-vit),
[LieRE](https://github.com/StanfordMIMI/LieRE) (`models/vit.py`, the loop since commit 8d4c6f6),
[ComRoPE](https://github.com/Longin-Yu/ComRoPE) (`model.py`), [CARE](https://github.com/ChasevdG/CARE) (spherical, uniform,
axial RoPE), [yarn](https://github.com/jquesnelle/yarn), [dinov3](https://github.com/facebookresearch/dinov3),
[minimind](https://github.com/jingyaogong/minimind) (commits 4e35fb9 and 151fdf7). The article on RoPE has no lasting address
that we know of; minimind's lines are what can be looked up.
"""


def write(folder: Path) -> None:
    """Write papers.md into a folder, and its figures, light and dark, into the folder papers in it."""
    findings = [part.finding() for part in PARTS]
    (folder / "papers").mkdir(parents=True, exist_ok=True)
    for finding in findings:
        _draw(finding, folder / "papers")
    parts = [OPENING.lstrip(), table(HEADER, [finding.line() for finding in findings]) + "\n"]
    parts += [finding.section(place) for place, finding in enumerate(findings, start=1)] + [SOURCES.lstrip()]
    (folder / "papers.md").write_text("\n".join(parts), encoding="utf-8")


def _draw(finding: Finding, folder: Path) -> None:
    for name, draw in finding.figures.items():
        for theme, look in FIGURE_THEMES.items():
            draw(look).savefig(folder / f"{name}-{theme}.png", dpi=160)
