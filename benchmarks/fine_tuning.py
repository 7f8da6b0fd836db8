"""Retrofit a timm ViT: train it with its absolute table, then fine-tune it with a rotation installed.

python benchmarks/fine_tuning.py --data data/cifar100.npz --runs runs --out results/fine-tuning.json
python benchmarks/fine_tuning.py --data data/cifar100.npz --runs runs --out out/fine-tuning.json --epochs 2 1 --seeds 0 \
    --set model=timm:test_vit fraction=0.02 batch=128 precision=float32 compile=false

From the weights of the ViT of its seed, each arm is fine-tuned at an eighth of the learning rate. ComRoPE and LieRE start at
zero, where they are the identity; mixed RoPE does not. In "fast" arms the encoding's parameters have the rate of the first
training. Positions are counted in patches: in coordinates from 0 to 1 generators would have to grow eight times as large to
rotate as much.

An interrupted run resumes. With `--arms` alone only the ViTs are trained; then arms and seeds can be fine-tuned side by side
by calls of their own, and a last call for all of them writes the file.
"""

import datetime
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import get_encoding_label, parse_encoding, parse_options
from ropewalk.lab.init_from import initialize_from_run
from ropewalk.lab.probes.resolution import probe_grid
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json
from ropewalk.lab.tasks.classify import ClassificationTask
from ropewalk.lab.train import Trainer, train_run
from ropewalk.lab.training_diagnosis import differs_compiled
from ropewalk.rotary import Exponentials

PLACES = "coordinates=index"
RATE_DIVISOR = 8
FAST: dict[str, Any] = {"encoding_rate": float(RATE_DIVISOR)}
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "comrope-ld": (f"comrope-ld:std=0.0,{PLACES}", {}),
    "comrope-ld fast": (f"comrope-ld:std=0.0,{PLACES}", FAST),
    "liere fast": (f"liere:scale=0.0,{PLACES}", FAST),
    "mixed": ("mixed", {}),
    "mixed without table": ("mixed", {"drop_table": True}),
}
MODEL = "timm:vit_tiny_patch16_224"
BASE = replace(RECIPES["cifar100-tiny"], model=MODEL, encoding="none", span=None, mixup=0.8, cutmix=1.0)
# Sizes over that of training on which the last weights are evaluated.
SIZE_FACTORS = (1.5, 2)
MEASURED = "fine-tuning.json"
MEASURES = ("at_start", "generator", "sizes")


def tuning(base: Config, arm: str, runs: Path, epochs: int) -> Config:
    """A few epochs more, so gently that what was learned is kept, from the run of the same seed."""
    spec, settings = ARMS[arm]
    parsed = parse_encoding(spec)
    own = replace(base, encoding=parsed.encoding, options=parsed.options, start=str(runs / base.name), epochs=epochs)
    return replace(own, learning_rate=base.learning_rate / RATE_DIVISOR, warmup=2.0, **settings)


def train_arm(config: Config, runs: Path, arm: str | None) -> dict[str, Any]:
    """The record of a run, which is trained and measured unless it was before."""
    run = train_run(config, runs)
    if run.read_document(MEASURED) is None:
        run.write_document(MEASURED, measure_run(run))
    told = read_json(run.path / "environment.json")
    return {"arm": arm, **describe_scores(run), "machine": told["machine"], "versions": told["versions"]}


def describe_scores(run: RunFolder) -> dict[str, Any]:
    """Accuracies of a run: on the test set, and on the validation set at the end (uncompiled) and by epoch.

    Epochs are validated with the compiled model. If it differs at the end from the uncompiled one, there is no curve.
    """
    config, result, rows, measured = run.config, run.result() or {}, run.metrics(), run.read_document(MEASURED) or {}
    own: dict[str, Any] = {"label": get_encoding_label(config), "seed": config.seed, "epochs": config.epochs}
    own |= {name: result[name] for name in ("test_accuracy", "validation_accuracy", "encoding_parameters")}
    trusted = not differs_compiled(rows[-1]["validation_loss"], result["validation_loss"])
    curve = [row["validation_accuracy"] for row in rows] if trusted else None
    return own | {name: measured[name] for name in MEASURES if name in measured} | {"curve": curve}


def measure_run(run: RunFolder) -> dict[str, Any]:
    """Accuracy before the first step and at the end on images of other sizes, and the largest entry of generators."""
    own: dict[str, Any] = {}
    if run.config.start is not None:
        own["at_start"] = at_start(run.config)
    opened = ClassificationTask.open_trained(run, Accelerator().device)
    if isinstance(opened.encoding, Exponentials):
        own["generator"] = opened.encoding.blocks().abs().max().item()
    grids = [tuple(int(side * factor) for side in opened.grid) for factor in SIZE_FACTORS]
    rows = [row for grid in grids for row in probe_grid(opened, grid)]
    return own | {"sizes": [{name: row[name] for name in ("mode", "size", "accuracy")} for row in rows]}


def at_start(config: Config) -> float:
    """The accuracy on the validation set of the model as the run began."""
    plain, precision = replace(config, compile=False), "bf16" if config.precision == "bfloat16" else "no"
    AcceleratorState._reset_state()
    with tempfile.TemporaryDirectory() as folder:
        run, accelerator = RunFolder(Path(folder), plain), Accelerator(mixed_precision=precision)
        trainer = Trainer(plain, run, accelerator, lambda record: None)
        initialize_from_run(trainer.plain, RunFolder.at(config.start_path or Path()))
        return trainer.compute_scores("validation")["accuracy"]


def document(settings: Config, records: list[dict[str, Any]]) -> str:
    """The records of runs, a line for each, with the machine and the versions that they ran with."""
    shared = {name: records[0][name] for name in ("machine", "versions")}
    head = {"date": datetime.date.today().isoformat(), **shared, "settings": settings.document() | {"data": "cifar100"}}
    lines = ",\n  ".join(json.dumps({key: value for key, value in each.items() if key not in shared}) for each in records)
    return f'{json.dumps(head)[:-1]},\n "runs": [\n  {lines}\n ]\n}}\n'


def main(
    data: str = "data/cifar100.npz",
    runs: Path = Path("runs"),
    out: Path | None = None,
    seeds: tuple[int, ...] = (1, 2, 3),
    arms: tuple[str, ...] = tuple(ARMS),
    epochs: tuple[int, int] = (50, 20),
    set: tuple[str, ...] = (),
) -> None:
    """Train, fine-tune and, if a file is named, write what was found.

    Args:
        data: CIFAR-100 as an .npz file.
        runs: Where runs are kept.
        out: The file.
        seeds: Those to train.
        arms: Those to fine-tune; none: the ViTs only.
        epochs: Of the ViT alone, and of each run that is initialized from it.
        set: Settings that replace those of the recipe, as key=value.
    """
    own = {"data": data, "epochs": epochs[0], **parse_options(set)}
    bases = [Config.of(BASE.document() | own | {"seed": seed}) for seed in seeds]
    trained = [train_arm(base, runs, None) for base in bases]
    trained += [train_arm(tuning(base, arm, runs, epochs[1]), runs, arm) for base in bases for arm in arms]
    if out is not None:
        out.write_text(document(replace(tuning(bases[0], "none", runs, epochs[1]), start=None), trained))
        print(out)


if __name__ == "__main__":
    tyro.cli(main)
