"""Turning q and k on a CPU, beside transformers' and timm's own functions, in one run: ratios of median times.

python benchmarks/rotate_cpu.py results/rotate-cpu.json
"""

import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable

import torch
from timm.layers import RotaryEmbeddingCat, apply_rot_embed_cat
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import ropewalk as rw

SHAPES = {"batch": (4, 8, 1024, 64), "image": (8, 6, 196, 64), "decode": (1, 8, 1, 64)}
ROUNDS = 60

Turn = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def contestants(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Turn]:
    """Functions of q and k, with their tables made beforehand."""
    n, d = shape[-2:]
    config = LlamaConfig(hidden_size=d, num_attention_heads=1, head_dim=d)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=dtype), torch.arange(n)[None])
    rope = {kind: rw.create("rope", head_dim=d, interleaved=kind)(torch.arange(n)) for kind in (False, True)}
    axial = rw.create("axial", head_dim=d, variant="eva")
    table = RotaryEmbeddingCat(d, in_pixels=False, feat_shape=(n, 1)).get_embed().to(dtype)
    return {
        "transformers, half-split": lambda q, k: apply_rotary_pos_emb(q, k, cos, sin),
        "ropewalk, half-split": rope[False].qk,
        "timm, interleaved": lambda q, k: (apply_rot_embed_cat(q, table), apply_rot_embed_cat(k, table)),
        "ropewalk, interleaved": axial(axial.grid(n, 1)).qk,
    }


def check(turns: dict[str, Turn], q: torch.Tensor, k: torch.Tensor) -> None:
    """No ratio for a wrong answer: each of ours against its peer."""
    for ours, theirs in (
        ("ropewalk, half-split", "transformers, half-split"),
        ("ropewalk, interleaved", "timm, interleaved"),
    ):
        atol = 1e-3 if q.dtype is torch.float32 else 0.1
        torch.testing.assert_close(turns[ours](q, k), turns[theirs](q, k), rtol=0, atol=atol)


def measure(turns: dict[str, Turn], q: torch.Tensor, k: torch.Tensor) -> dict[str, float]:
    """Median milliseconds, the contestants taking turns so that a busy machine is busy for all."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    repeat = 1 if q.numel() > 1e5 else 50
    for _ in range(ROUNDS):
        for name, turn in turns.items():
            start = time.perf_counter()
            for _ in range(repeat):
                turn(q, k)
            times[name].append((time.perf_counter() - start) * 1e3 / repeat)
    return {name: statistics.median(found) for name, found in times.items()}


def main(path: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = []
    for shape, dtype in ((s, d) for s in SHAPES for d in (torch.float32, torch.bfloat16)):
        q, k = torch.randn(2, *SHAPES[shape]).to(dtype).unbind()
        turns = contestants(SHAPES[shape], dtype)
        with torch.no_grad():
            check(turns, q, k)
            ms = measure(turns, q, k)
        half = ms["ropewalk, half-split"] / ms["transformers, half-split"]
        interleaved = ms["ropewalk, interleaved"] / ms["timm, interleaved"]
        rows.append({"shape": SHAPES[shape], "dtype": str(dtype), "half-split over transformers": half})
        rows[-1]["interleaved over timm"] = interleaved
        print(f"{shape:7} {dtype!s:15} half-split {half:.2f} of transformers, interleaved {interleaved:.2f} of timm")
    about = {
        "what": "turning q and k, no gradients, one CPU thread",
        "machine": platform.machine(),
        "torch": torch.__version__,
    }
    with open(path, "w") as file:
        json.dump({**about, "date": str(datetime.date.today()), "rows": rows}, file, indent=1)
    print(f"written to {path}")


if __name__ == "__main__":
    main(sys.argv[1])
