"""Fine-tune a timm ViT, trained with its absolute table, with a rotation added: what it keeps and what it gains.

python benchmarks/fine_tuning.py --data data/cifar100.npz --runs runs --out results/fine-tuning.json
python benchmarks/fine_tuning.py --data data/cifar100.npz --runs runs --out results/fine-tuning-cpu.json --epochs 20 8 \
    --seeds 0 --set model=timm:test_vit fraction=0.2 batch=128 learning_rate=1e-3 precision=float32 compile=false

First the ViT alone; then, from its weights and with the same settings for all, without a rotation, with ComRoPE and LieRE
that start at zero, and with mixed RoPE, which does not. Places are counted in patches: from 0 to 1, as the papers count
them, generators would have to grow eight times as far to turn as much. An interrupted run resumes; seeds can be
trained side by side by calls of their own, and a last call for all of them writes the file.
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
from rich.console import Console

from ropewalk.lab.compare.run import compare_encodings, format_comparison_csv, tabulate_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import ParsedEncoding, parse_options
from ropewalk.lab.init_from import initialize_from_run
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json
from ropewalk.lab.train import Trainer

PLACES = "coordinates=index"
ENCODINGS = (
    "none", f"comrope-ld:std=0.0,{PLACES}", f"comrope-ap:std=0.0,{PLACES}", f"liere:scale=0.0,{PLACES}", "mixed"
)  # fmt: skip
MODEL = "timm:vit_tiny_patch16_224"
BASE = replace(RECIPES["cifar100-tiny"], model=MODEL, encoding="none", span=None, mixup=0.8, cutmix=1.0)


def tuning(base: Config, runs: Path, epochs: int) -> Config:
    """A few epochs more, so gently that what was learned is kept, from the run of the same seed."""
    start = replace(base, seed=0).name.replace("-seed0-", "-seed{seed}-")
    return replace(base, start=str(runs / start), epochs=epochs, learning_rate=base.learning_rate / 8, warmup=2.0)


def line(run: RunFolder) -> dict[str, Any]:
    """One run: accuracies on the validation set before the first step and after each epoch, and on the test set."""
    config, result = run.config, run.result() or {}
    own: dict[str, Any] = {"label": ParsedEncoding(config.encoding, config.options).label, "seed": config.seed}
    own |= {"tuned": config.start is not None, "epochs": config.epochs, "test_accuracy": result["test_accuracy"]}
    if config.start is not None:
        own["at_start"] = at_start(config)
    rows = [json.loads(row) for row in (run.path / "metrics.jsonl").read_text().splitlines()]
    return own | {"validation_accuracy": [row["validation_accuracy"] for row in rows if "validation_accuracy" in row]}


def at_start(config: Config) -> float:
    """The accuracy on the validation set of the model as the run began."""
    plain, precision = replace(config, compile=False), "bf16" if config.precision == "bfloat16" else "no"
    AcceleratorState._reset_state()
    with tempfile.TemporaryDirectory() as folder:
        run, accelerator = RunFolder(Path(folder), plain), Accelerator(mixed_precision=precision)
        trainer = Trainer(plain, run, accelerator, lambda record: None)
        initialize_from_run(trainer.plain, RunFolder.at(config.start_path or Path()))
        return trainer.compute_scores("validation")["accuracy"]


def document(runs: list[RunFolder]) -> str:
    """What was found of runs, a line for each, with the machine and the versions that they ran with."""
    told = read_json(runs[0].path / "environment.json")
    head = {"date": datetime.date.today().isoformat(), "machine": told["machine"], "versions": told["versions"]}
    head |= {"settings": runs[-1].config.document() | {"data": "cifar100", "start": None}}
    lines = ",\n  ".join(json.dumps(line(run)) for run in runs)
    return f'{json.dumps(head)[:-1]},\n "runs": [\n  {lines}\n ]\n}}\n'


def main(
    data: str = "data/cifar100.npz",
    runs: Path = Path("runs"),
    out: Path | None = None,
    seeds: tuple[int, ...] = (0, 1, 2),
    epochs: tuple[int, int] = (50, 20),
    set: tuple[str, ...] = (),
) -> None:
    """Train, fine-tune and, if a file is named, write what was found.

    Args:
        data: CIFAR-100 as an .npz file.
        runs: Where runs are kept.
        out: The file.
        seeds: Those to train.
        epochs: Of the ViT alone, and of each run that is initialized from it.
        set: Settings that replace those of the recipe, as key=value.
    """
    own = {"data": data, "epochs": epochs[0], **parse_options(set)}
    console, base = Console(), Config.of(BASE.document() | own)
    first = compare_encodings(["none"], base, runs, seeds=seeds, console=console)
    second = compare_encodings(ENCODINGS, tuning(base, runs, epochs[1]), runs, seeds=seeds, console=console)
    print(format_comparison_csv(tabulate_comparison(second)))
    if out is not None:
        out.write_text(document([run for each in (first, second) for run in each.found()]))
        print(out)


if __name__ == "__main__":
    tyro.cli(main)
