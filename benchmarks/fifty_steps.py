"""A ViT-S trained for fifty steps with kernels and with the plain formulas, from one seed: the losses of both, on a GPU."""

import datetime
import importlib
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from ropewalk.lab.environment import describe_machine, list_package_versions
from ropewalk.models import ViT

CASES = {"mixed": {}, "spherical": {"learned": True}, "comrope-ld": {}, "liere": {"block": 8}}
OPS = [importlib.import_module(f"ropewalk.ops.{name}") for name in ("turning", "sphere", "expm")]
RULES = [op.fits for op in OPS]


def losses(name: str, options: dict, *, kernels: bool) -> list[float]:
    """Of ten random prototypes and noise around them, in bfloat16 by autocast."""
    for op, rule in zip(OPS, RULES, strict=True):
        op.fits = rule if kernels else lambda *given: False
    torch.manual_seed(0)
    model = ViT("small", encoding=name, options=options, classes=10).cuda()
    generator = torch.Generator("cuda").manual_seed(1)
    prototypes = torch.randn(10, 3, 224, 224, device="cuda", generator=generator)
    optimiser, found = torch.optim.AdamW(model.parameters(), lr=3e-4), []
    for _ in range(50):
        labels = torch.randint(10, (64,), device="cuda", generator=generator)
        images = prototypes[labels] + torch.randn(64, 3, 224, 224, device="cuda", generator=generator)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        found.append(loss.detach())
    return [round(loss, 5) for loss in torch.stack(found).tolist()]


def main(path: Path) -> None:
    found = {
        "machine": describe_machine(),
        "versions": list_package_versions(),
        "date": datetime.date.today().isoformat(),
        "losses": {},
    }
    for name, options in CASES.items():
        pair = {how: losses(name, options, kernels=how == "kernels") for how in ("kernels", "references")}
        apart = max(abs(a - b) for a, b in zip(*pair.values(), strict=True))
        print(f"{name}: last {pair['kernels'][-1]} and {pair['references'][-1]}, at most {apart:.5f} apart")
        found["losses"][name] = pair
        path.write_text(json.dumps(found) + "\n")
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "fifty-steps.json"))
