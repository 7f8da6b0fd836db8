"""Fold a run: write the weights of an equivalent model with RoPE-Mixed to one safetensors file.

    with safe_open("folded.safetensors", framework="pt") as file:
        vit = ViT(**json.loads(file.metadata()["model"]))
    vit.load_state_dict(load_file("folded.safetensors"))

The weights are the moving average's, if there is one. The metadata of the file has the name of the `run`, the config of the
`encoding` (for `ropewalk.create`), and the arguments that build the `model`.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from ropewalk.lab.data.base import ImageData
from ropewalk.lab.errors import CommandError
from ropewalk.lab.model_building import VIT_SETTINGS
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import write_atomically
from ropewalk.lab.task_types import find_task
from ropewalk.lab.tasks import load_trained_model
from ropewalk.lab.tasks.base import normalize_images
from ropewalk.lab.tasks.classify import open_image_data
from ropewalk.models import ViT
from ropewalk.theory import fold_into

FOLDED_FORMAT = "ropewalk folded 1"
COMPARED_IMAGES = 64
"""Of the validation set, at most, on which both models are compared."""


@dataclass(frozen=True)
class FoldResult:
    """The file of a folded run, and how its model differs: the largest change of a logit, the largest logit, and how many of
    the compared images have another predicted class."""

    path: Path
    moved: float
    largest: float
    changed: int
    images: int

    @property
    def summary(self) -> str:
        """A sentence about the change of logits and predictions."""
        logits = f"logits differ by at most {self.moved:.1g} (the largest logit is {self.largest:.3g})"
        return f"{logits}; {self.changed} of {self.images} predictions on validation images changed"


def fold_run(run: RunFolder, out: Path | None = None) -> FoldResult:
    """Write the weights of a run that is done, folded; beside its own by default. What cannot be folded is refused."""
    path = _resolve_output(run, out)
    if run.result() is None:
        raise ValueError(f"only a finished run can be folded; {run.path} has no result.json")
    model, task = load_trained_model(run), find_task(run.config).name
    if task != "classify":
        raise ValueError(f"only a run with the task classify can be folded; the task of {run.path} is {task}")
    if not isinstance(model, ViT):
        raise ValueError(
            f"only a run of our own ViT can be folded by this command, got {run.config.model}; "
            "ropewalk.adapters.timm.fold_into folds models of timm"
        )
    data = open_image_data(run.config)
    folded = fold_into(copy.deepcopy(model))
    found = _compare_outputs(path, model, folded, data)
    held = {name: value.contiguous() for name, value in folded.state_dict().items()}
    _write_file(path, save(held, metadata=make_fold_metadata(run, folded, data)))
    return found


def make_fold_metadata(run: RunFolder, model: ViT, data: ImageData) -> dict[str, str]:
    """The metadata of the file."""
    config = model.encoding.config()
    options = {name: value for name, value in config.items() if name != "name"}
    built: dict[str, Any] = {name: getattr(run.config, name) for name in VIT_SETTINGS}
    built |= {"size": data.size, "channels": data.channels, "classes": len(data.classes)}
    built |= {"encoding": config["name"], "options": options}
    return {"format": FOLDED_FORMAT, "run": run.config.name, "encoding": json.dumps(config), "model": json.dumps(built)}


@torch.no_grad()
def _compare_outputs(path: Path, model: ViT, folded: ViT, data: ImageData) -> FoldResult:
    """Compare both models on the first images of the validation set, in float32."""
    some = next(iter(data.batches("validation", [torch.arange(min(COMPARED_IMAGES, data.counts["validation"]))])))
    x = normalize_images(some.images.float() / 255, data)
    before, after = model(x), folded(x)
    changed = int((before.argmax(-1) != after.argmax(-1)).sum())
    return FoldResult(path, (before - after).abs().max().item(), before.abs().max().item(), changed, len(x))


def _resolve_output(run: RunFolder, out: Path | None) -> Path:
    """The path of the file, which must not be the checkpoint of the run."""
    path = run.path / "folded.safetensors" if out is None else out
    if path.suffix != ".safetensors":
        raise CommandError(f"folded weights go to a file that ends in .safetensors, got {path}")
    if path.resolve() == (run.path / "checkpoint.safetensors").resolve():
        raise CommandError(f"folded weights must not replace the run's own, got {path}")
    return path


def _write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, and create its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda part: part.write_bytes(content))
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
