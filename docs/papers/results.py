"""What van de Geijn et al.'s tables say of spherical and mixed RoPE."""

from matplotlib.figure import Figure

from .figures import Theme, cool, label, legend, sheet, warm
from .page import Finding, picture, table

# Top-1 on CIFAR-100 and ImageNet, mean and deviation of three seeds: Table 2.
FULL = {
    "axial": ((72.1, 0.6), (75.6, 0.2)),
    "spherical, fixed": ((73.2, 0.4), (76.4, 0.3)),
    "spherical, learned": ((74.1, 0.4), (77.4, 0.2)),
    "mixed": ((74.7, 0.3), (77.4, 0.1)),
}
# Top-1 on fractions of CIFAR-100, one run each: Table 7.
FRACTIONS = (0.2, 0.4, 0.6, 0.8)
LOW_DATA = {
    "spherical, fixed": (56.04, 63.6, 67.6, 69.8),
    "spherical, learned": (57.2, 65.34, 69.8, 72.6),
    "mixed": (56.9, 64.4, 70.0, 71.6),
}


def behind(name: str) -> tuple[float, float]:
    """Points below mixed RoPE on CIFAR-100 and on ImageNet."""
    cifar, imagenet = (mixed[0] - other[0] for mixed, other in zip(FULL["mixed"], FULL[name], strict=True))
    return cifar, imagenet


def deviations(name: str) -> list[float]:
    """The same in deviations of the difference."""
    spreads = [(own[1] ** 2 + mixed[1] ** 2) ** 0.5 for own, mixed in zip(FULL[name], FULL["mixed"], strict=True)]
    return [points / spread for points, spread in zip(behind(name), spreads, strict=True)]


def lead(name: str) -> list[float]:
    """Points above mixed RoPE on each fraction of CIFAR-100."""
    return [own - mixed for own, mixed in zip(LOW_DATA[name], LOW_DATA["mixed"], strict=True)]


def noise() -> float:
    """The deviation of a difference of two single runs, if runs scatter as the three of the full set do."""
    return (FULL["spherical, learned"][0][1] ** 2 + FULL["mixed"][0][1] ** 2) ** 0.5


def draw(look: Theme) -> Figure:
    """Leads over mixed RoPE on fractions of the data."""
    figure, axes = sheet(look, height=2.6)
    axes.axhspan(
        -2 * noise(), 2 * noise(), color=look.faint, alpha=0.18, linewidth=0, label="± 2 deviations of a difference"
    )
    axes.axhline(0, color=look.ink, linewidth=0.8)
    for name, colour, mark in (("spherical, learned", warm(look), "o"), ("spherical, fixed", cool(look), "s")):
        axes.plot(FRACTIONS, lead(name), color=colour, marker=mark, markersize=5, label=name, linewidth=1.4)
    axes.set(xticks=FRACTIONS, xlim=(0.15, 0.85), ylim=(-4, 2))
    label(axes, look, x="fraction of CIFAR-100", y="points above mixed")
    legend(axes, look, loc="lower left")
    return figure


def finding() -> Finding:
    """The section."""
    rows = [
        (name, *(f"{mean} ± {deviation}" for mean, deviation in both), *(f"{points:.1f}" for points in behind(name)))
        for name, both in FULL.items()
    ]
    fixed, learned = behind("spherical, fixed"), behind("spherical, learned")
    leads = ", ".join(f"{points:+.2f}" for points in lead("spherical, learned"))
    text = f"""
Summaries of “A Circular Argument” (arXiv 2511.08368) say that spherical RoPE is on a par with mixed RoPE or ahead of it,
and best with little data. They do not say which spherical RoPE: the paper has a fixed and a learned one. Its Table 2:

{table(("", "CIFAR-100", "ImageNet", "below mixed, CIFAR-100", "below mixed, ImageNet"), rows)}

Fixed spherical RoPE is {fixed[1]:.1f} to {fixed[0]:.1f} points below mixed, {deviations("spherical, fixed")[0]:.1f}
deviations of the difference or more. The learned one is level on ImageNet and {learned[0]:.1f} below on CIFAR-100. The
paper compares each form with its equivariant analogue, fixed with axial and learned with mixed; against these it is
ahead, level or slightly behind.

“Best in low data” is about the learned variant and rests on one run for each fraction (Table 7). Its leads over mixed
are {leads} points; the fixed variant is behind at every fraction. If runs scatter as the three seeds of Table 2 do, a
difference of two single runs has a deviation of {noise():.1f} points, more on less data.

{picture("results", "Leads over mixed: the learned variant within or near the scatter, the fixed one below")}

In ropewalk `spherical` is fixed by default and learned with `learned=True`. A comparison with `mixed`, which is always
learned, wants the learned one.
"""
    return Finding(
        name="results",
        title="Fixed spherical RoPE does not match mixed RoPE in the paper's own table",
        number=f"{fixed[1]:.1f} to {fixed[0]:.1f} points below; low data: single runs",
        where="summaries of arXiv 2511.08368",
        here="`spherical`, `learned=True`",
        text=text,
        figures={"results": draw},
    )
