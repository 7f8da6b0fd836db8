"""A rule that an article calls YaRN, beside YaRN."""

import math
from collections.abc import Callable
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

import ropewalk as rw

from .figures import Theme, cool, label, legend, sheet, warm
from .page import Finding, picture, table

WIDTH, BASE, LENGTH, FACTOR = 128, 1e4, 2048, 4.0
SHOWN = (0, 10, 16, 25, 35, 40, 41, 63)
PAIRS = torch.arange(WIDTH // 2, dtype=torch.float64)
FREQUENCY = rw.spectra.geometric(WIDTH // 2, BASE)
ROTATIONS = LENGTH * FREQUENCY / (2 * math.pi)  # of each pair within the trained length


def blend(kept: Tensor) -> Tensor:
    """The factor of frequencies of which a share is kept and the rest divided by the factor of extension."""
    return kept + (1 - kept) / FACTOR


def yarn_paper() -> Tensor:
    """Kept where a pair turns 32 times or more, interpolated where it turns once or less, a ramp in turns between."""
    return blend(((ROTATIONS - 1) / 31).clamp(0, 1))


def yarn_code() -> Tensor:
    """The same ends, rounded outwards to whole pairs, and a ramp in the index of the pair."""
    low, high = (WIDTH * math.log(LENGTH / (2 * math.pi * turns)) / (2 * math.log(BASE)) for turns in (32, 1))
    low, high = math.floor(low), math.ceil(high)
    return blend(1 - ((PAIRS - low) / (high - low)).clamp(0, 1))


def article() -> Tensor:
    """1 - (β - 1) / (4β), with β growing from 1 to 32 along the pairs, up to the first that turns less than once."""
    beta = 1 + 31 * PAIRS / (WIDTH // 2 - 1)
    return torch.where(ROTATIONS >= 1, (beta * FACTOR - beta + 1) / (beta * FACTOR), 1 / FACTOR)


def interpolation() -> Tensor:
    """Every frequency divided alike."""
    return torch.full_like(PAIRS, 1 / FACTOR)


def ntk() -> Tensor:
    """A larger base, such that the slowest pair is divided by the factor and the fastest kept."""
    return rw.spectra.geometric(WIDTH // 2, BASE * FACTOR ** (WIDTH / (WIDTH - 2))) / FREQUENCY


RULES: dict[str, Callable[[], Tensor]] = {
    "YaRN, paper": yarn_paper,
    "YaRN, its code": yarn_code,
    "the article": article,
    "interpolation": interpolation,
    "NTK": ntk,
}


def draw(found: dict[str, Tensor], look: Theme) -> Figure:
    """The factor of every pair under each rule."""
    figure, axes = sheet(look, height=3.2)
    styles = zip((cool(look), cool(look), warm(look), look.faint, look.faint), ("-", "--", "-", ":", "-."), strict=True)
    for (name, factor), (colour, style) in zip(found.items(), styles, strict=True):
        axes.plot(factor.tolist(), color=colour, linestyle=style, label=name, linewidth=1.8)
    axes.set(ylim=(0, 1.05), xlim=(0, 63))
    label(axes, look, x="pair, from the fastest to the slowest", y="new frequency / old frequency")
    legend(axes, look, loc="upper right")
    return figure


def finding() -> Finding:
    """The section."""
    found = {name: rule() for name, rule in RULES.items()}
    shown = {name: factor for name, factor in found.items() if name != "interpolation"}
    rows = [(pair, f"{ROTATIONS[pair]:.3g}", *(f"{factor[pair]:.3f}" for factor in shown.values())) for pair in SHOWN]
    jump = found["the article"][40:42].tolist()
    slowest, temperature = FREQUENCY[-1].item(), 0.1 * math.log(FACTOR) + 1
    text = f"""
An article in Chinese, “RoPE: the elegant mathematics of encoding position by rotation”, explains YaRN with λ = (βα - β +
1) / (βα) and a few lines of code. minimind had such lines from October to December 2025 (commits 4e35fb9 and 151fdf7).
It is another rule. The factor that each rule gives the frequencies, for d = {WIDTH}, base 10⁴, a trained length of
{LENGTH} and an extension by {FACTOR:.0f}, beside the turns that a pair makes within the trained length; position
interpolation gives all of them {1 / FACTOR}:

{picture("yarn", "Factor over pairs: YaRN falls from 1 to a quarter in a ramp; the article's rule jumps")}

{table(("pair", "turns", *shown), rows)}

1. The prose says that high frequencies are scaled most and low ones hardly. YaRN keeps the high ones and divides the low
   ones by the factor. The article's code does too, against its prose.
2. The formula is not YaRN's. It falls from 1 towards 1 - 1/α = {1 - 1 / FACTOR:.2f} as β grows, and never reaches 1/α.
3. So the code changes pairs that should be left alone (pair 10: {found["the article"][10]:.3f}) and falls from
   {jump[0]:.3f} to {jump[1]:.3f} from one pair to the next, where YaRN has a ramp.
4. It lacks the attention temperature: YaRN multiplies q and k by 0.1 ln s + 1 = {temperature:.3f} each.

YaRN's own paper and code differ too: the ramp is linear in the number of turns in one and in the index of the pair in
the other, with ends rounded to whole pairs. At pair 25 that is {found["YaRN, paper"][25]:.3f} against
{found["YaRN, its code"][25]:.3f}; transformers follows the code.

Other slips of the article: for d = {WIDTH} the slowest frequency is {slowest:.3g} and its period
{2 * math.pi / slowest:,.0f} tokens, not 0.0001 and 20000π = {20000 * math.pi:,.0f}. LLaMA 1 and 2 have base 10⁴; 10⁶ is
Code Llama's, which did not use YaRN either. The example of `rotate_half` pairs x₁ with x₂, but the function pairs xᵢ
with x at i + d/2. And what it calls Transformer-XL, a learned bias of i - j on the scores, is T5's; Transformer-XL adds
products of queries with encoded distances and two learned vectors.

In ropewalk all of these are rules of [`rw.extension`](longer.md), the article's under the name `yarn-article`; which
framework runs which YaRN is [told elsewhere](yarn.md). `t5-bias` and `transformer-xl` are two encodings.
"""
    return Finding(
        name="yarn",
        title="An article's YaRN is not YaRN",
        number=f"a jump from {jump[0]:.2f} to {jump[1]:.2f}; YaRN has a ramp",
        where="an article, and code that had the same lines",
        here="`extension=`, each rule by its own name",
        text=text,
        figures={"yarn": partial(draw, found)},
    )
