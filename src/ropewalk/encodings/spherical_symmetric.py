from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk import ops
from ropewalk.code import Code, Turn
from ropewalk.encoding import Traits
from ropewalk.encodings.spherical import Spherical


class SphericalSymmetric(Spherical):
    """Spherical RoPE that breaks every axis alike: triplets turn by the exponential of a sum, not by one axis after another.

        R(p) = exp(ω p_0 G_0 + ω p_1 G_1 + …)        G_0 turns (a, c), G_1 (b, c), G_2 (a, b)

    Frequencies are those of `spherical`. A triplet turns by ω |p| about a direction that depends on where p lies. No axis
    is preferred: exchanging both of two, or passing three on in a circle, is a change of basis, so scores fail to be
    relative by the same amount along each. `spherical` is relative along its last axis; against it and `mixed`, which is
    relative along both, this tells what equivariance is worth. It is LieRE with blocks of 3 and fixed orthogonal
    generators, made here for that question.

    Beware: nobody has published results with it. It distinguishes positions best near the middle: a step across the
    line to zero turns by |sin(r/2)| / (r/2) of what a step along it does, r = ω |p|. That is 0.36 in the corners of
    [-pi, pi]² for ω = 1, and nothing at r = 2 pi, where whole circles of places are as if they stood at zero.

    variant  Whose frequencies, and what D in ω_j = 100^(-2j/D) is; both read [-pi, pi].
      van-de-geijn        the published code of spherical RoPE: the head width. Ends near 100^(-2/3).
      van-de-geijn-paper  the paper's appendix: the number of triplets. Ends near 100^(-2).
    base     Replaces the 100 of fixed frequencies.
    scale    Stretches all frequencies.
    learned  Frequencies are parameters, one an axis, triplet, head (or `shared`) and layer, from U(0, 1). Fixed, one serves
             all axes, heads and layers; only then are axes exactly alike.
    """

    name = "spherical-symmetric"
    paper = "arXiv:2406.10322"

    def encode(self, q: Tensor, k: Tensor | None) -> Code:
        k_matrix = None if k is None else ops.expm(self._skew(k))
        return Turn(layers=self.layers, head_dim=self.head_dim, q_matrix=ops.expm(self._skew(q)), k_matrix=k_matrix)

    def _skew(self, p: Tensor) -> Tensor:
        """The sum ([L] [B] h n T 3 3) of the axes' generators, weighted by the position."""
        x, y, z = F.pad(self._angle(p), (0, 3 - self.axes)).unbind(-1)
        zero = torch.zeros_like(x)
        return torch.stack([zero, -z, -x, z, zero, -y, x, y, zero], dim=-1).unflatten(-1, (3, 3))

    @property
    def traits(self) -> Traits:
        relative = (self.axes == 1,) * self.axes
        return replace(super().traits, relative=relative, ordered=False, reach=16.0, rounding=4.0)
