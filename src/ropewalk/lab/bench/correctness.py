"""Reference formulas in float64, and the error that an output may have. They share no code with what they judge.

Tables are ([h] n ...) as in codes, h dividing the heads; x is (B H N D).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ropewalk.lab.bench.timing import WrongResultError

ReferenceFormula = Callable[[Tensor, Tensor], Tensor]

# Rounding to bfloat16 is off by at most 2^-9 of a number; those who multiply in it, a few times that. Exponentials in
# float32 lose up to 2^-21 of the angle, which may be 100 rad.
ERROR_LIMITS = {torch.bfloat16: 2.0**-6, torch.float32: 2.0**-10}
MATRIX_SAMPLE_SIZE = 256  # matrices whose exponentials are judged


def check_output_error(outs: Sequence[Tensor], rights: Sequence[Tensor], dtype: torch.dtype) -> float:
    """The largest error of a row of channels, over the typical norm of a row. Too large a one for the dtype is refused."""
    errors = [_compute_error(out, right) for out, right in zip(outs, rights, strict=True)]
    for off in errors:
        if not off <= ERROR_LIMITS[dtype]:  # NaN is not
            raise WrongResultError(f"its answer is off by {off:.3g} of the norm, where {ERROR_LIMITS[dtype]:.3g} is allowed")
    return max(errors)


def _compute_error(out: Tensor, right: Tensor) -> float:
    if out.shape != right.shape:
        raise WrongResultError(f"its answer is of shape {tuple(out.shape)}, where {tuple(right.shape)} is right")
    typical = right.norm(dim=-1).square().mean().sqrt()
    return ((out.double() - right).norm(dim=-1).max() / typical).item()


def compute_expected_output(formula: ReferenceFormula, pair: Sequence[Tensor], table: Tensor) -> list[Tensor]:
    """The result of a formula on q and k, in float64."""
    return [formula(x.double(), table.double()) for x in pair]


def compute_expected_gradients(
    formula: ReferenceFormula, pair: Sequence[Tensor], table: Tensor, gradients: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of q, k and the table."""
    inputs = [x.detach().double().requires_grad_() for x in (*pair, table)]
    outs = [formula(x, inputs[-1]) for x in inputs[:-1]]
    return list(torch.autograd.grad(outs, inputs, [gradient.double() for gradient in gradients]))


def rotate_channel_pairs(x: Tensor, angle: Tensor, *, interleaved: bool) -> Tensor:
    """Pairs (a, b) become (a cos - b sin, a sin + b cos)."""
    angle = _expand_to_heads(angle, x)
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
    turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


def rotate_channel_triplets(x: Tensor, angle: Tensor) -> Tensor:
    """Triplets (a, b, c): by the first angle in the plane of a and c, then by the second in that of b and c."""
    first, second = _expand_to_heads(angle, x).unbind(-1)
    width = 3 * first.shape[-1]
    a, b, c = (x[..., i:width:3] for i in range(3))
    a, c = a * first.cos() - c * first.sin(), a * first.sin() + c * first.cos()
    b, c = b * second.cos() - c * second.sin(), b * second.sin() + c * second.cos()
    return torch.cat([torch.stack([a, b, c], -1).flatten(-2), x[..., width:]], -1)


def rotate_channel_blocks(x: Tensor, matrix: Tensor) -> Tensor:
    """Blocks of channels become their products with matrices."""
    groups, size = matrix.shape[-3], matrix.shape[-1]
    blocks = x[..., : groups * size].unflatten(-1, (groups, size))
    products = torch.einsum("bhngj,hngij->bhngi", blocks, _expand_to_heads(matrix, x).expand(x.shape[1], -1, -1, -1, -1))
    return torch.cat([products.flatten(-2), x[..., groups * size :]], -1)


def exponentiate_skew_matrices(skew: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """exp(A) of skew-symmetric A (... b b), and the skew-symmetric part of the gradient of A, by the spectrum of iA.

    With A = V diag(i w) Vᴴ the derivative multiplies entry (j, k) in the basis V by the mean of exp(i w) between w_j and
    w_k, which is exp(i (w_j + w_k) / 2) sinc((w_j - w_k) / 2), also where the two are equal.
    """
    values, basis = torch.linalg.eigh(-1j * skew.to(torch.complex128))
    rotation = (basis * torch.exp(1j * values).unsqueeze(-2)) @ basis.mH
    total, apart = (values.unsqueeze(-1) + values.unsqueeze(-2)) / 2, (values.unsqueeze(-1) - values.unsqueeze(-2)) / 2
    mean = torch.exp(-1j * total) * torch.sinc(apart / torch.pi)
    found = (basis @ (mean * (basis.mH @ gradient.to(torch.complex128) @ basis)) @ basis.mH).real
    return rotation.real, compute_skew_part(found)


def compute_skew_part(matrix: Tensor) -> Tensor:
    """The part of a gradient that counts where matrices stay skew-symmetric."""
    return (matrix - matrix.mT) / 2


def sample_matrices(*stacks: Tensor) -> list[Tensor]:
    """Evenly spaced matrices of stacks (... b b), the first and the last among them, the same ones of each, on the CPU."""
    flat = [stack.detach().flatten(0, -3) for stack in stacks]
    chosen = torch.linspace(0, len(flat[0]) - 1, min(MATRIX_SAMPLE_SIZE, len(flat[0]))).round().long()
    return [matrices[chosen.to(matrices.device)].cpu() for matrices in flat]


def _expand_to_heads(table: Tensor, x: Tensor) -> Tensor:
    """A table with a row for each head of x, or with one for all."""
    return table if table.shape[0] == 1 else table.repeat_interleave(x.shape[1] // table.shape[0], dim=0)
