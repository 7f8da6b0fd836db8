"""Checks of what an instance claims in its traits."""

import itertools

import torch

from ropewalk.encoding import Encoding
from ropewalk.testing.case import Logits, close, exponential, generators, grid, matrices, points, ready, single, turns


def check_traits(encoding: Encoding) -> None:
    """What it says of its axes, its parameters and the directions it can see is so."""
    traits, instance = encoding.traits, ready(encoding)
    learned = any(True for _ in encoding.parameters())
    assert traits.axes == encoding.axes == len(traits.relative), f"{encoding.axes} axes, but traits say {traits}"
    assert traits.learned == learned, f"learned={traits.learned}, but it has {'' if learned else 'no '}parameters"
    rotary = instance(points(encoding, 2)).rotary
    assert traits.rotary == rotary, f"rotary={traits.rotary}, but its code is {'' if rotary else 'not '}rotary"
    if rotary:
        moved = generators(instance).abs().gt(0)  # ([L] h A D D)
        joined = torch.matrix_power(torch.eye(encoding.head_dim) + moved.any(-3), 64).gt(0)  # ([L] h D D)
        by_axis = torch.einsum("...ij,...aj->...ia", joined.double(), moved.any(-1).double()).gt(0)
        oblique = bool((by_axis.sum(-1) > 1).any())
        assert traits.oblique == oblique, f"oblique={traits.oblique}, but its generators say {oblique}"


def check_isometric(encoding: Encoding) -> None:
    """q and k keep their norms if it claims so, and do not all keep them if not."""
    code, changes = ready(encoding)(points(encoding, 6)), []
    q = torch.randn(2, encoding.heads, 6, encoding.head_dim, generator=torch.Generator().manual_seed(6)).double()
    k = q[:, : encoding.kv_heads or encoding.heads]
    for one in single(code):
        pairs = zip(one.qk(q, k), (q, k), strict=True)
        changes += [(turned.norm(dim=-1) - x.norm(dim=-1)).abs().max() for turned, x in pairs]
    change = max(changes).item()
    claim = f"isometric={encoding.traits.isometric}, but norms change by {change:.3g}"
    assert (change < 1e-10) if encoding.traits.isometric else (change > 1e-8), claim


def check_origin(encoding: Encoding) -> None:
    """At position zero nothing is turned: a token there is as one of the prefix."""
    still = turns(ready(encoding), torch.zeros(1, encoding.axes, dtype=torch.float64))
    identity = torch.eye(encoding.head_dim, dtype=torch.float64)
    close(still, identity.expand_as(still), "the matrix at zero and the identity")


def check_matrices(encoding: Encoding) -> None:
    """`qk` does what `matrices()` say, prefix included, and these are the exponentials of the generators."""
    instance, p, kp = ready(encoding), points(encoding, 5), points(encoding, 4, seed=8)
    whole = instance(p, kp).prefixed(q=1, k=2)
    for code in single(whole):
        q = torch.randn(2, encoding.heads, 6, encoding.head_dim, generator=torch.Generator().manual_seed(6)).double()
        k = q[:, : encoding.kv_heads or encoding.heads].flip(-1)
        for turned, x, each in zip(code.qk(q, k), (q, k), matrices(code), strict=True):
            by_matrix = each.repeat_interleave(x.shape[1] // each.shape[-4], -4) @ x.unsqueeze(-1)
            close(turned, by_matrix.squeeze(-1), "what qk does and what its matrices do")
    close(turns(instance, p), exponential(instance, p), "the matrices and the exponentials of the generators")


def check_relative(encoding: Encoding) -> None:
    """Shifting all tokens along an axis keeps the logits if it claims to be relative there, and changes them if not."""
    logits, whole = Logits(ready(encoding)), grid(encoding)
    reach = whole.amax(0) - whole.amin(0)
    p = whole.amin(0) + 0.5 * (points(encoding, 6) - whole.amin(0))
    signs = (1.0, -3.0) if encoding.traits.signed else (1.0,)
    for axis, relative in enumerate(encoding.traits.relative):
        shift = torch.zeros(encoding.axes, dtype=torch.float64)
        shift[axis] = 0.4 * reach[axis]
        changes = [(logits.at(p + sign * shift) - logits.at(p)).abs().max().item() for sign in signs]
        change = max(changes) if relative else min(changes)
        claim = f"relative={relative} along axis {axis}, but a shift changes the logits by {change:.3g}"
        assert (change < 1e-10) if relative else (change > 1e-8), claim


def check_monotone(encoding: Encoding) -> None:
    """What it adds to the logits falls as the key moves away, along every axis and either way, or it claims not to."""
    instance, falls = ready(encoding), True
    for axis, sign in itertools.product(range(encoding.axes), (1.0, -1.0) if encoding.traits.signed else (1.0,)):
        keys = torch.zeros(6, encoding.axes, dtype=torch.float64)
        keys[:, axis] = sign * torch.arange(6, dtype=torch.float64) * encoding.traits.reach / max(encoding.traits.reach, 5.0)
        q = torch.zeros(1, encoding.heads, 1, encoding.head_dim, dtype=torch.float64)
        for one in single(instance(keys[:1], keys)):
            bias = one.scores(q, q[:, : encoding.kv_heads or encoding.heads].expand(-1, -1, 6, -1))
            falls = falls and bias is not None and bool((bias.diff(dim=-1) < 0).all())
    claim = encoding.traits.monotone
    assert claim == falls, f"monotone={claim}, but what it adds {'falls' if falls else 'does not fall'} with distance"


def check_axes(encoding: Encoding) -> None:
    """Exchanging two axes of a grid with different sides changes the logits, unless it claims to be isotropic."""
    logits, p = Logits(ready(encoding)), points(encoding, 8)
    low = grid(encoding).amin(0)
    extent = (grid(encoding).amax(0) - low).clamp(min=1e-9)
    p = low.min() + (p - low) * extent.min() / extent
    for a, b in itertools.combinations(range(encoding.axes), 2):
        order = list(range(encoding.axes))
        order[a], order[b] = order[b], order[a]
        change = (logits.at(p[:, order]) - logits.at(p)).abs().max().item()
        claim = f"isotropic={encoding.traits.isotropic}, but exchanging axes {a} and {b} changes logits by {change:.3g}"
        assert (change < 1e-10) if encoding.traits.isotropic else (change > 1e-8), claim
