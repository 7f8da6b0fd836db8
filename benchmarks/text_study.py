"""The study of text: encodings trained on windows of 512 bytes, RoPE's rules for longer texts without and with brief
fine-tuning on windows of 2,048, all probed far beyond these lengths, and a page on each.

python benchmarks/text_study.py --data data/books --runs runs --out out/text --seeds 3

It goes on where it was stopped. For each seed there are nine runs of three epochs and eight short ones. All that was found,
without the weights, is in study.json.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from ropewalk.lab.compare import Comparison, as_csv, compare, table
from ropewalk.lab.config import Config
from ropewalk.lab.probes import names_of
from ropewalk.lab.probes.file import held
from ropewalk.lab.probes.reading import RULES
from ropewalk.lab.probing import probe_all
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.report import report
from ropewalk.lab.store import Run

ENCODINGS = (
    "none",
    "sincos",
    "rope",
    "rope:learned=true",
    "comrope-ld:std=0.06",  # whose fastest plane then turns about a radian a byte, as RoPE's does
    "alibi",
    "t5-bias:bidirectional=false",
    "xpos",
    ("chain", {"parts": [{"name": "rope"}, {"name": "alibi"}]}),
)
FACTOR = 4
QUESTION = "How far beyond its length of training does each encoding read?"
TUNED = "What do rules for longer texts come to after brief fine-tuning?"


def rules(length: int) -> list[Any]:
    """RoPE as it was trained, and with each rule for texts that are four times as long."""
    said = {"original_max_position_embeddings": length}
    factors = {name: 2.0 if name == "dynamic" else float(FACTOR) for name in RULES}
    return ["rope", *(("rope", {"extension": {"rope_type": rule, "factor": by, **said}}) for rule, by in factors.items())]


def tuning(base: Config, runs: Path) -> Config:
    """A tenth of the text once, in windows that are four times as long, gently, from RoPE's run of the same seed."""
    start = replace(base, encoding="rope", options={}, seed=0).name.replace("-seed0-", "-seed{seed}-")
    longer = {"length": FACTOR * (base.length or 0), "batch": max(2, base.batch // FACTOR)}
    return replace(base, **longer, start=str(runs / start), epochs=1, fraction=base.fraction / 10, learning_rate=2e-4)


def study(base: Config, runs: Path, out: Path, seeds: int) -> list[Comparison]:
    """Train, fine-tune, probe and report."""
    console, every = Console(), {"seeds": range(seeds)}
    first = compare(ENCODINGS, base, runs, **every, console=console)
    second = compare(rules(base.length or 0), tuning(base, runs), runs, **every, baseline="rope", console=console)
    found = [run for each in (first, second) for run in each.found() if run.result() is not None]
    probe_all(found, names_of(found[0]), console)
    for each in (first, second):
        print(as_csv(table(each)))
    print(report(first.found(), out, question=QUESTION))
    print(report(second.found(), out / "tuned", question=TUNED, baseline="rope"))
    (out / "study.json").write_text(json.dumps(told(found), indent=1))
    return [first, second]


def told(runs: list[Run]) -> dict[str, Any]:
    """All that is known of runs, in rows."""
    return {run.path.name: {"config": run.config.document(), "result": run.result(), "probes": held(run)} for run in runs}


def main(data: str = "data/books", runs: Path = Path("runs"), out: Path = Path("out/text"), seeds: int = 3) -> None:
    """Run the study.

    Args:
        data: A folder with train.txt and val.txt, or one file of text.
        runs: Where runs are kept.
        out: Where pages are written.
        seeds: How many seeds there are of each run.
    """
    study(replace(RECIPES["books"], data=data), runs, out, seeds)


if __name__ == "__main__":
    tyro.cli(main)
