"""What the checks work with: an instance made ready, points inside its grid, and the logits that come of it."""

import contextlib
import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ropewalk.code import Code
from ropewalk.encoding import Encoding

SIZES = {1: (7,), 2: (3, 5), 3: (2, 3, 5)}


def ready(encoding: Encoding, dtype: torch.dtype = torch.float64) -> Encoding:
    """A copy in `dtype` whose parameters are random and not zero, so that no law holds for want of an angle."""
    encoding = copy.deepcopy(encoding).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return encoding


def like(encoding: Encoding, **changes: Any) -> Encoding:
    """A new instance with the same options but for the changes."""
    options = {name: value for name, value in encoding.config().items() if name != "name"}
    return type(encoding)(**(options | changes))


def grid(encoding: Encoding, dtype: torch.dtype = torch.float64) -> Tensor:
    """The grid of its training size, or a small one with sides that differ."""
    return encoding.grid(*(encoding.size or SIZES.get(encoding.axes, (2,) * encoding.axes)), dtype=dtype, device="cpu")


def points(encoding: Encoding, n: int, *, batch: int | None = None, seed: int = 0) -> Tensor:
    """Random points well inside its grid, (n, axes) or (batch, n, axes), in float64."""
    whole, generator = grid(encoding), torch.Generator().manual_seed(seed)
    low, high = whole.amin(0), whole.amax(0)
    shape = (n, encoding.axes) if batch is None else (batch, n, encoding.axes)
    return low + (high - low) * (0.05 + 0.9 * torch.rand(shape, generator=generator, dtype=torch.float64))


class Logits(nn.Module):
    """Attention logits of a model that has nothing but this encoding: (B H N M), all layers in a row of batches."""

    def __init__(self, encoding: Encoding, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.encoding = encoding
        self.heads, self.kv_heads = encoding.heads, encoding.kv_heads or encoding.heads
        self.width: int = getattr(encoding, "width", encoding.heads * encoding.head_dim)
        generator = torch.Generator().manual_seed(2)
        for name, heads in (("to_q", self.heads), ("to_k", self.kv_heads)):
            weight = torch.randn(self.width, heads * encoding.head_dim, generator=generator, dtype=torch.float64)
            self.register_buffer(name, (weight / math.sqrt(self.width)).to(dtype))

    def tokens(self, n: int, seed: int = 3, batch: int = 2) -> Tensor:
        """Random tokens (batch, n, width)."""
        generator = torch.Generator().manual_seed(seed)
        draw = torch.randn(batch, n, self.width, generator=generator, dtype=torch.float64)
        return draw.to(self.get_buffer("to_q").dtype)

    def forward(self, x: Tensor, y: Tensor, p: Tensor, kp: Tensor | None = None, prefix: tuple[int, int] = (0, 0)) -> Tensor:
        code = self.encoding(p, kp).prefixed(q=prefix[0], k=prefix[1])
        keys = self.encoding(p if kp is None else kp).prefixed(q=prefix[1])
        q = self.split(code.tokens(x), "to_q", self.heads)
        k = self.split(keys.tokens(y), "to_k", self.kv_heads)
        if code.layers is None:
            return self.attend(code, q, k)
        return torch.cat([self.attend(code[layer], q, k) for layer in range(code.layers)])

    def split(self, x: Tensor, weight: str, heads: int) -> Tensor:
        return (x @ self.get_buffer(weight)).unflatten(-1, (heads, -1)).transpose(1, 2)

    def attend(self, code: Code, q: Tensor, k: Tensor) -> Tensor:
        q, k = code.qk(q, k)
        added = code.scores(q, k)
        key_head = torch.arange(self.heads, device=k.device) // (self.heads // self.kv_heads)
        logits = q @ k.index_select(1, key_head).mT / math.sqrt(q.shape[-1])
        return logits if added is None else logits + added.to(logits.dtype)

    def at(self, p: Tensor, kp: Tensor | None = None) -> Tensor:
        """Logits of the same random tokens at p."""
        return self(self.tokens(p.shape[-2]), self.tokens((p if kp is None else kp).shape[-2], seed=4), p, kp)


def generators(encoding: Encoding) -> Tensor:
    """Its generators ([L] h A D D)."""
    return encoding.generators()  # type: ignore[operator]


def matrices(code: Code) -> tuple[Tensor, Tensor]:
    """The matrices that meet queries and keys, each ([L] [B] h N D D)."""
    assert code.rotary, f"a rotary encoding makes a rotary code, got {type(code).__name__}"
    return code.matrices(), code.key_matrices()  # type: ignore[attr-defined]


def turns(encoding: Encoding, p: Tensor) -> Tensor:
    """The matrices at p, seen from the basis that tokens of the prefix, which are not turned, are written in.

    Its vectors are at right angles, but may be stretched.
    """
    first, rest = matrices(encoding(p).prefixed(q=1))[0].split([1, len(p)], dim=-3)
    return first.mT @ rest / first.square().sum(-2).unsqueeze(-1)


def exponential(encoding: Encoding, p: Tensor) -> Tensor:
    """exp(sum of p_a A_a), or the product of exp(p_a A_a) with axis 0 first, token by token: ([L] h N D D)."""
    each, rows = generators(encoding), []
    for point in p:
        weighted = (point[:, None, None] * each).movedim(-3, 0)  # (A [L] h D D)
        if encoding.traits.ordered:
            total = torch.linalg.matrix_exp(weighted[0])
            for axis in weighted[1:]:
                total = torch.linalg.matrix_exp(axis) @ total
        else:
            total = torch.linalg.matrix_exp(weighted.sum(0))
        rows.append(total)
    return torch.stack(rows, dim=-3)


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """The global random numbers from seed 0, and afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def single(code: Code) -> list[Code]:
    """The code itself, or the codes of its layers."""
    return [code] if code.layers is None else [code[layer] for layer in range(code.layers)]


def leaves(code: Code) -> dict[str, Tensor]:
    """The tensors of a code by name."""
    paths, _ = pytree.tree_flatten_with_path(code)
    return {pytree.keystr(path).lstrip("."): value for path, value in paths}


def close(actual: Tensor, expected: Tensor, what: str, *, atol: float = 1e-9) -> None:
    """Assert equality up to `atol`, which 0 makes exact; NaN is never equal."""
    assert actual.shape == expected.shape, f"{what}: shapes {tuple(actual.shape)} and {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, f"{what}: dtypes {actual.dtype} and {expected.dtype}"
    error = (actual.double() - expected.double()).abs().max().item() if actual.numel() else 0.0
    assert error <= atol, f"{what}: they differ by {error:.3g}, allowed {atol:.3g}"
