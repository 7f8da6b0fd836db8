"""Inference of a ViT-S with a commuting encoding, as it is and folded, beside the same model with RoPE-Mixed, in one run.

python benchmarks/folded_inference.py results/folded-inference-cpu.json
"""

import copy
import datetime
import json
import statistics
import sys
from pathlib import Path

import torch

import ropewalk as rw
from ropewalk.lab.bench.timing import capture_graph, get_bench_device, time_interleaved_rounds
from ropewalk.lab.environment import describe_machine, list_package_versions
from ropewalk.models import ViT

CASES = {"comrope-ld": {}, "comrope-ap": {}, "string-cayley": {}, "string-circulant": {}}
UNCAPTURED = ("string-cayley",)  # a linear solve cannot be captured
BATCH, ROUNDS = (256, 21) if get_bench_device() == "cuda" else (4, 15)


def made(name: str, options: dict) -> ViT:
    """A model with weights large enough that positions matter."""
    torch.manual_seed(0)
    model = ViT("small", encoding=name, options=options, classes=10).to(get_bench_device()).eval()
    for block in model.blocks:
        torch.nn.init.normal_(block.qkv.weight, std=0.1)
    return model


def inference(model: ViT, images: torch.Tensor, *, graph: bool):
    """What is timed: on a GPU, if it can be, captured in a CUDA graph, so that no launch is waited for."""

    @torch.no_grad()
    def work() -> torch.Tensor:
        with torch.autocast(get_bench_device(), torch.bfloat16, enabled=get_bench_device() == "cuda"):
            return model(images)

    return capture_graph(work) if graph else work


def measured(name: str, options: dict, mixed: ViT, images: torch.Tensor) -> dict:
    """Ratios to RoPE-Mixed, by rounds, with half their quartile range; and how far folding moves logits in float32."""
    model = made(name, options)
    folded = rw.fold_into(copy.deepcopy(model))
    with torch.no_grad():
        before, after = model(images[:4]), folded(images[:4])
    graph = get_bench_device() == "cuda" and name not in UNCAPTURED
    times = time_interleaved_rounds(*(inference(one, images, graph=graph) for one in (model, folded, mixed)), rounds=ROUNDS)
    row = {"name": name, "options": options, "mode": "captured" if graph else "eager"}
    row |= {"mixed ms": statistics.median(times[2])} if get_bench_device() == "cuda" else {}
    for label, own in zip(("as it is", "folded"), times, strict=False):
        low, ratio, high = statistics.quantiles([a / b for a, b in zip(own, times[2], strict=True)], n=4)
        row |= {f"{label} over mixed": ratio, f"{label} spread": (high - low) / 2}
    return row | {"logits apart": ((after - before).abs().max() / before.abs().max()).item()}


def main(path: Path) -> None:
    images = torch.randn(
        BATCH, 3, 224, 224, device=get_bench_device(), generator=torch.Generator(get_bench_device()).manual_seed(0)
    )
    mixed, date = made("mixed", {}), datetime.date.today().isoformat()
    found = {
        "machine": describe_machine(),
        "versions": list_package_versions(),
        "date": date,
        "finished": False,
        "batch": BATCH,
        "rows": [],
    }
    for name, options in CASES.items():
        row = measured(name, options, mixed, images)
        print(f"{name}: {row['as it is over mixed']:.3f} of mixed, folded {row['folded over mixed']:.3f}")
        found["rows"].append(row)
        found["finished"] = len(found["rows"]) == len(CASES)
        path.write_text(json.dumps(found, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "folded-inference.json"))
