"""ViTs at the sizes of detection and segmentation: 1024 pixels, 4,096 tokens. What does an encoding cost there?

python benchmarks/dense_sizes.py --path results/dense-sizes-h200.json
python benchmarks/dense_sizes.py --path out/dense.json --size 64 --width 48 --depth 2 --heads 1 --batch 1 --rounds 2

A training step (forward, backward, AdamW) in bfloat16 by autocast: our ViT-S without an encoding and with some, and timm's
plain ViT and its two with rotations, all in turns in one run, all with the mean of patches in the place of a class token.
timm's plain one has a learned table. Compiled are the blocks, in which all of these spend their time; what is made once for
all blocks is not.
"""

import contextlib
import datetime
import functools
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
import tyro
from torch import nn

from ropewalk.lab.bench.steps import require_full_compilation
from ropewalk.lab.bench.timing import (
    TimedWork,
    get_allocated_cuda_bytes,
    get_bench_device,
    measure_peak_memory,
    time_interleaved_rounds,
)
from ropewalk.lab.environment import describe_machine, list_package_versions
from ropewalk.models import ViT

Row = dict[str, Any]
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "axial": ("axial", {}),
    "mixed": ("mixed", {}),
    "spherical": ("spherical", {}),
    "liere, block 8": ("liere", {"block": 8}),
    "comrope-ld, block 8": ("comrope-ld", {"block": 8}),
}
THEIRS = {
    "timm, plain": "vit_small_patch16_224",
    "timm, axial": "vit_small_patch16_rope_224",
    "timm, mixed": "vit_small_patch16_rope_mixed_224",
}
PLAIN = {**dict.fromkeys(OURS, "none"), **dict.fromkeys(THEIRS, "timm, plain")}
"""The model of the same library without a rotation."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The model, the images, and how often each is timed.

    size     The side of an image, in pixels.
    batch    Images in a step.
    rounds   In which all models take turns.
    backend  Of torch.compile.
    """

    size: int = 1024
    patch: int = 16
    batch: int = 8
    classes: int = 1000
    width: int = 384
    depth: int = 12
    heads: int = 6
    rounds: int = 7
    backend: str = "inductor"


def ours(setting: Setting, encoding: str, options: dict[str, Any]) -> nn.Module:
    """Our ViT."""
    shape = {name: getattr(setting, name) for name in ("width", "depth", "heads", "patch", "classes")}
    return ViT(encoding=encoding, options=options, size=(setting.size, setting.size), **shape)


def theirs(setting: Setting, name: str) -> nn.Module:
    """timm's."""
    shape: dict[str, Any] = {"embed_dim": setting.width, "depth": setting.depth, "num_heads": setting.heads}
    shape |= {"img_size": setting.size, "patch_size": setting.patch, "num_classes": setting.classes}
    found: nn.Module = timm.create_model(name, class_token=False, global_pool="avg", **shape)
    return found


MODELS: dict[str, Callable[[Setting], nn.Module]] = {
    **{name: functools.partial(ours, encoding=said[0], options=said[1]) for name, said in OURS.items()},
    **{name: functools.partial(theirs, name=said) for name, said in THEIRS.items()},
}


def step_of(model: nn.Module, setting: Setting) -> TimedWork:
    """A training step on noise."""
    images = torch.randn(setting.batch, 3, setting.size, setting.size, device=get_bench_device())
    labels = torch.randint(setting.classes, (setting.batch,), device=get_bench_device())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        with torch.autocast(get_bench_device(), torch.bfloat16):
            loss = F.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def made(name: str, mode: str, setting: Setting) -> tuple[TimedWork, float | None]:
    """The step of a model, warm, and the gigabytes that it needs at its peak, weights included."""
    torch.manual_seed(0)
    before = get_allocated_cuda_bytes()
    model = MODELS[name](setting).to(get_bench_device()).train()
    for block in model.blocks if mode == "compiled" else ():
        block.compile(fullgraph=True, dynamic=False, backend=setting.backend)
    step = step_of(model, setting)
    return step, measure_peak_memory(step, above=before, warm=2)


def measured(names: Sequence[str], mode: str, setting: Setting) -> list[Row]:
    """A row for each model: milliseconds, and ratios to models without a rotation, round by round."""
    with require_full_compilation() if mode == "compiled" else contextlib.nullcontext():
        all_made = {name: made(name, mode, setting) for name in names}
        columns = time_interleaved_rounds(*(step for step, _ in all_made.values()), rounds=setting.rounds, warm=1)
    times = dict(zip(names, columns, strict=True))
    rows = []
    for name, (_, memory) in all_made.items():
        over = {f"over {base}": ratio(times[name], times[base]) for base in dict.fromkeys(("none", PLAIN[name]))}
        rows.append({"name": name, "mode": mode, "ms": statistics.median(times[name]), **over, "GB": memory})
    return rows


def ratio(mine: Sequence[float], base: Sequence[float]) -> float:
    """The median of ratios in each round."""
    return statistics.median(a / b for a, b in zip(mine, base, strict=True))


def main(path: Path, setting: tyro.conf.OmitArgPrefixes[Setting], modes: tuple[str, ...] = ("eager", "compiled")) -> None:
    """Measure and write.

    Args:
        path: The file.
        setting: The models and images.
        modes: Eager, compiled, or both.
    """
    head = {"machine": describe_machine(), "versions": list_package_versions(), "date": datetime.date.today().isoformat()}
    rows: list[Row] = []
    for mode in modes:
        for row in measured(list(MODELS), mode, setting):
            print({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}, flush=True)
            rows.append(row)
        path.write_text(json.dumps(head | {"settings": asdict(setting), "rows": rows}, indent=1) + "\n")
        torch.compiler.reset()
    print(path)


if __name__ == "__main__":
    tyro.cli(main)
