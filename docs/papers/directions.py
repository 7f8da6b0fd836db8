"""Where the wave vectors of baselines start, against Heo et al.'s own."""

from functools import partial

from matplotlib.figure import Figure
from torch import Tensor

from .figures import Theme, cool, label, sheet
from .page import Finding, made, percent, picture

SIDE = 14
SETUPS = {
    "mixed, Heo": ("mixed", "heo"),
    "“RoPE-Mixed”, LieRE": ("mixed", "liere"),
    "axial, Heo": ("axial", "heo"),
    "“VisionLLaMA”, LieRE": ("axial", "liere"),
}


def turns(name: str, variant: str) -> Tensor:
    """What each pair of six heads turns across the image along rows and columns, (P 2), in radians."""
    encoding = made(name, head_dim=64, heads=6, size=(SIDE, SIDE), variant=variant)
    extent = encoding.grid(SIDE, SIDE).amax(0) - encoding.grid(SIDE, SIDE).amin(0)
    return (encoding.waves() * extent).detach().flatten(0, -2)


def falling(waves: Tensor) -> float:
    """The share of pairs whose stripes run along the other diagonal than those of a wave in the first quadrant."""
    return (waves.prod(-1) < 0).double().mean().item()


def draw(found: dict[str, Tensor], look: Theme) -> Figure:
    """The wave vectors of every setup in the plane of frequencies."""
    figure, panels = sheet(look, height=2.5, columns=len(found), sharex=True, sharey=True)
    for axes, (name, waves) in zip(panels, found.items(), strict=True):
        axes.axhline(0, color=look.faint, linewidth=0.6, zorder=0)
        axes.axvline(0, color=look.faint, linewidth=0.6, zorder=0)
        axes.scatter(*waves.T.flip(0).numpy(), s=4, color=cool(look), linewidths=0)
        axes.set(xlim=(-14, 14), ylim=(-14, 14), aspect="equal", xticks=(-13, 0, 13), yticks=(-13, 0, 13))
        label(axes, look, x="along columns, rad", y="along rows, rad" if axes is panels[0] else "", title=name)
    return figure


def finding() -> Finding:
    """The section."""
    found = {name: turns(*setup) for name, setup in SETUPS.items()}
    heo, liere = (falling(found[name]) for name in list(found)[:2])
    fastest = {name: waves.norm(dim=-1).max().item() for name, waves in found.items()}
    slowest = found["“VisionLLaMA”, LieRE"].norm(dim=-1).min().item()
    text = f"""
RoPE-Mixed as Heo et al. start it gives every head an axial RoPE in a frame of its own, turned at random: the two halves
of its pairs are perpendicular, so that {percent(heo)} of the pairs have stripes along one diagonal and as many along the
other. The row “RoPE-Mixed” of LieRE's tables is LieRE with blocks of 2: frequencies from U(0, 2π) on positions in [0,
1]. All of them start in the first quadrant; {percent(liere)} of the pairs look along the other diagonal until training
has turned them there.

{picture("directions", "Wave vectors: Heo's in all directions, LieRE's mixed in one quadrant, its axial ones near zero")}

The row “VisionLLaMA” is an axial RoPE with frequencies from 1 down to e⁻⁴ on [0, 1]: its pairs turn by {slowest:.3f} to
{fastest["“VisionLLaMA”, LieRE"]:.1f} rad across the whole image, where Heo's fastest turns {fastest["axial, Heo"]:.0f}.
Its scores say little about axial RoPE as others use it.

Both baselines are variants here, so that what the paper compared can be run:
`rw.create("mixed", head_dim=64, variant="liere")` and `rw.create("axial", head_dim=64, variant="liere")`, beside
`variant="heo"`. van de Geijn et al. start mixed RoPE in the first quadrant too (`variant="van-de-geijn"`).
"""
    return Finding(
        name="directions",
        title="LieRE's baselines: one quadrant of directions, and 1 rad",
        number=f"{percent(liere)} of pairs along one diagonal, Heo's start {percent(heo)}",
        where="LieRE, published code",
        here='`variant="liere"` beside `variant="heo"`',
        text=text,
        figures={"directions": partial(draw, found)},
    )
