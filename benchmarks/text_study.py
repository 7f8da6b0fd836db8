"""The study of text: encodings trained on windows of 512 bytes, RoPE's rules for longer texts without and with brief
fine-tuning on windows of 2,048, all probed far beyond these lengths, and a page on each.

python benchmarks/text_study.py data/books runs out/text

It goes on where it was stopped. There are nine runs of two epochs and seven short ones, one seed of each.
"""

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ropewalk.lab.compare import Comparison, as_csv, compare, table
from ropewalk.lab.config import Config
from ropewalk.lab.probing import names, probe_all
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.report import report

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


def rules(length: int) -> list:
    """RoPE as it was trained, and with each rule for texts that are four times as long."""
    factors = {name: float(FACTOR) for name in ("linear", "ntk-aware", "yarn", "llama3", "yarn-article")} | {"dynamic": 2.0}
    said = {"original_max_position_embeddings": length}
    found = [("rope", {"extension": {"rope_type": name, "factor": factor, **said}}) for name, factor in factors.items()]
    return ["rope", *found]


def tuning(base: Config, start: Path) -> Config:
    """A tenth of the text once, in windows that are four times as long, gently."""
    longer = {"length": FACTOR * (base.length or 0), "batch": max(2, base.batch // FACTOR)}
    return replace(base, **longer, start=str(start), epochs=1, fraction=base.fraction / 10, learning_rate=2e-4)


def study(base: Config, runs: Path, out: Path) -> list[Comparison]:
    """Train, fine-tune, probe and report."""
    console = Console()
    first = compare(ENCODINGS, base, runs, seeds=[0], console=console)
    rope = next(each for each in first.members if each.label == "rope")
    second = compare(
        rules(base.length or 0), tuning(base, runs / rope.name), runs, seeds=[0], baseline="rope", console=console
    )
    found = [run for each in (first, second) for run in each.found()]
    probe_all([run for run in found if run.result() is not None], names(()), console)
    for each in (first, second):
        print(as_csv(table(each)))
    print(report(first.found(), out, question=QUESTION))
    print(report(second.found(), out / "tuned", question=TUNED, baseline="rope"))
    return [first, second]


if __name__ == "__main__":
    data, runs, out = [*sys.argv[1:], *("data/books", "runs", "out/text")[len(sys.argv) - 1 :]]
    study(replace(RECIPES["books"], data=data), Path(runs), Path(out))
