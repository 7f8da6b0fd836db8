"""Tables of the pages on longer contexts: rules, their temperature by framework, and precision at distant positions."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ropewalk as rw
from markdown_text import format_table
from ropewalk import extension
from ropewalk.lab.inspect.encoding_facts import parse_docstring

FRAMEWORKS = (None, "vllm", "mlx")
WIDTH, LONGEST = 128, 65536
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 4096}
CASES: dict[str, dict[str, Any]] = {
    "nothing more": {},
    "`attention_factor: 1.0`": {"attention_factor": 1.0},
    "`mscale: 1.0, mscale_all_dim: 1.0`": {"mscale": 1.0, "mscale_all_dim": 1.0},
    "`mscale: 0.707`": {"mscale": 0.707},
}
COUNT, MOST_APART = 2048, 1000
LENGTHS = (4096, 32768, 131072, 1_000_000)


def list_rules() -> str:
    rules = extension.RULES.items()
    rows = [(f"`{name}`", f"`{kind.__name__}`", parse_docstring(kind.__doc__ or "").summary) for name, kind in rules]
    return format_table(["`rope_type`", "class", "what it does"], rows)


def compare_frameworks() -> str:
    """The factor that q and k are multiplied by, as each framework reads one dictionary."""
    rows = [(name, *(_format_factor(keys, framework) for framework in FRAMEWORKS)) for name, keys in CASES.items()]
    return format_table(["with", "as written, transformers", "vLLM", "mlx-lm"], rows)


def _format_factor(keys: dict[str, Any], framework: str | None) -> str:
    try:
        found = extension.options(YARN | keys, head_dim=WIDTH, max_position_embeddings=LONGEST, framework=framework)
    except ValueError:
        return "an error"
    rule = extension.parse(found["extension"])
    assert rule is not None
    return f"{rule.attention(None):.4f}"


class RopeErrors(NamedTuple):
    """The largest error of the angle between q and k, and the root mean square error of scores."""

    angle: float
    score: float


def compare_precision() -> str:
    """Errors of RoPE at distant positions, with the product of position and frequency in float32 and as ropewalk has it."""
    head = ["positions up to", "angle, product in float32", "angle, here", "scores, product in float32", "scores, here"]
    rows = []
    for last in LENGTHS:
        plain, here = measure_errors(last, float32=True), measure_errors(last, float32=False)
        rows.append((f"{last:,}", *(f"{x:.1e}" for x in (plain.angle, here.angle, plain.score, here.score))))
    return format_table(head, rows)


def measure_errors(last: int, *, float32: bool) -> RopeErrors:
    """Of random q in the second half of so many positions, with keys up to 1,000 positions before them."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.randint(last // 2, last, (COUNT,), generator=generator)
    keys = positions - torch.randint(0, MOST_APART, (COUNT,), generator=generator)
    q, k = torch.randn(2, 1, 1, COUNT, WIDTH, generator=generator, dtype=torch.float64).unbind()
    encoding = rw.create("rope", head_dim=WIDTH)
    exact = rw.create("rope", head_dim=WIDTH).double()(positions, keys)
    code = _encode_in_float32(encoding, positions, keys) if float32 else encoding(positions, keys)
    off = (code.q_angle.double() - code.k_angle.double()) - (exact.q_angle - exact.k_angle)
    off = off - 2 * math.pi * (off / (2 * math.pi)).round()
    wrong = _compute_scores(code, q.float(), k.float()) - _compute_scores(exact, q, k)
    return RopeErrors(off.abs().max().item(), wrong.square().mean().sqrt().item())


def measure_bfloat16_error() -> float:
    """The root mean square error that storing rotated q and k in bfloat16 adds to the same scores."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, COUNT, WIDTH, generator=generator, dtype=torch.float64).unbind()
    off = (q.bfloat16().double() * k.bfloat16().double() - q * k).sum(-1) / math.sqrt(WIDTH)
    return off.square().mean().sqrt().item()


def _encode_in_float32(encoding: rw.Encoding, positions: Tensor, keys: Tensor) -> rw.Rotation:
    waves = encoding.get_buffer("frequency")
    q_angle, k_angle = ((p.float()[:, None] * waves)[None] for p in (positions, keys))
    return rw.Rotation(head_dim=WIDTH, q_angle=q_angle, k_angle=k_angle, interleaved=False)


def _compute_scores(code: rw.Rotation, q: Tensor, k: Tensor) -> Tensor:
    q, k = code.qk(q, k)
    return (q.double() * k.double()).sum(-1) / math.sqrt(WIDTH)
