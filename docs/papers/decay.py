"""RoPE's decay with distance is a property of aligned queries and keys."""

from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from .figures import Theme, cool, label, sheet, warm
from .page import Finding, made, picture

WIDTH, LENGTH, CHOSEN, DRAWS = 128, 2048, 1000, 500


def scores(q: Tensor, k: Tensor, step: int = 1) -> Tensor:
    """The score of queries (B D) with keys (B D), all made units, that stand 0, step, 2 step, … places ahead, (B N)."""
    ahead = torch.arange(0, LENGTH, step)
    code = made("rope", head_dim=WIDTH)(torch.tensor([0]), ahead)
    q, k = (x[:, None, None] / x.norm(dim=-1)[:, None, None, None] for x in (q, k))
    q, k = code.qk(q, k.expand(-1, -1, len(ahead), -1))
    return (q @ k.mT)[:, 0, 0]


def drawn(count: int) -> Tensor:
    """Random vectors."""
    return torch.randn(count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(count))


def aligned() -> Tensor:
    """Equal q and k of which all pairs are alike."""
    ones = torch.ones(1, WIDTH, dtype=torch.float64)
    return scores(ones, ones)[0]


def chosen() -> Tensor:
    """A random q, and the k that `CHOSEN` places ahead is turned into its direction."""
    q = drawn(1)
    back = made("rope", head_dim=WIDTH)(torch.tensor([-CHOSEN]))
    return scores(q, back.q(q[:, None, None])[:, 0, 0])[0]


def spread() -> Tensor:
    """The root mean square of the score of random q and k, at 128 distances."""
    return scores(*drawn(2 * DRAWS).chunk(2), step=LENGTH // 128).square().mean(0).sqrt()


def draw(found: dict[str, Tensor], look: Theme) -> Figure:
    """A panel for each choice of q and k."""
    figure, panels = sheet(look, height=2.5, columns=3, sharey=True)
    for axes, (name, score), colour in zip(panels, found.items(), (cool(look), look.faint, warm(look)), strict=False):
        axes.plot(score.tolist(), color=colour, linewidth=0.9)
        axes.axhline(0, color=look.faint, linewidth=0.5, zorder=0)
        axes.set_ylim(-0.45, 1.08)
        label(axes, look, x="distance", y="score, |q| = |k| = 1" if axes is panels[0] else "", title=name)
    return figure


def finding() -> Finding:
    """The section."""
    one, other = drawn(2).split(1)
    found = {"q = k": aligned(), "random q and k": scores(one, other)[0], "k chosen for 1000 ahead": chosen()}
    rms, peak = spread(), found["k chosen for 1000 ahead"]
    near, far = (found["q = k"][part].mean().item() for part in (slice(0, 20), slice(1000, 2000)))
    text = f"""
RoFormer is often cited for scores that decay with distance. They do if q and k have the same phase in every pair, as in
its derivation. For q = k with equal pairs, the mean score is {near:.2f} over distances below 20 and {far:.2f} from 1000
to 2000.

{picture("decay", "Score over distance: decaying for equal q and k, noise for random ones, a peak at 1000 for chosen ones")}

Random q and k show no decay: over {DRAWS:,} of them the root mean square of the score lies between {rms.min():.4f} and
{rms.max():.4f} at 128 distances up to {LENGTH}; for random directions it is 1/√d = {WIDTH**-0.5:.4f} whatever turns
them. And for any distance there is a k that has its maximum just there: turn q back by that distance. In the right panel
that is {CHOSEN}; the score there is {peak[CHOSEN]:.3f}, the most two unit vectors can have, and it is the largest of
all, at distance {int(peak.argmax())} (Barbero et al., arXiv 2410.06205, Proposition 3.1).

A model learns q and k, so RoPE lets a head prefer near keys, but does not make it. In ropewalk `alibi` is the encoding
that does: its traits say `monotone`, and the contract holds it to that.
"""
    return Finding(
        name="decay",
        title="RoPE's decay with distance holds for aligned q and k",
        number=f"random q and k: {rms.min():.3f} to {rms.max():.3f} at all distances",
        where="RoFormer, and what cites it",
        here="`alibi` decays; `rope` does not claim to",
        text=text,
        figures={"decay": partial(draw, found)},
    )
