"""The study of text: encodings trained on windows of 512 bytes, RoPE's rules for longer texts without and with brief
fine-tuning on windows of 2,048, all probed far beyond these lengths, and a page on each.

python benchmarks/text_study.py --data data/books --runs runs --out out/text --seeds 2

An interrupted study resumes. For each seed there are nine runs of three epochs and eight short ones. All that was found,
without the weights, is in study.json.
"""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from ropewalk.lab.compare.plan import Comparison
from ropewalk.lab.compare.run import compare_encodings, format_comparison_csv, tabulate_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import ParsedEncoding
from ropewalk.lab.probes import list_probe_names, load_probes, probe_all_runs
from ropewalk.lab.probes.text import TEXT_EXTENSION_RULES
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.report import write_report
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json

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
    factors = {name: 2.0 if name == "dynamic" else float(FACTOR) for name in TEXT_EXTENSION_RULES}
    return ["rope", *(("rope", {"extension": {"rope_type": rule, "factor": by, **said}}) for rule, by in factors.items())]


def tuning(base: Config, runs: Path) -> Config:
    """A tenth of the text once, in windows that are four times as long, gently, from RoPE's run of the same seed."""
    start = replace(base, encoding="rope", options={}, seed=0).name.replace("-seed0-", "-seed{seed}-")
    longer = {"length": FACTOR * (base.length or 0), "batch": max(2, base.batch // FACTOR)}
    return replace(base, **longer, start=str(runs / start), epochs=1, fraction=base.fraction / 10, learning_rate=2e-4)


def study(base: Config, runs: Path, out: Path, seeds: int) -> list[Comparison]:
    """Train, fine-tune, probe and report."""
    console, every = Console(), {"seeds": range(seeds)}
    first = compare_encodings(ENCODINGS, base, runs, **every, console=console)
    second = compare_encodings(rules(base.length or 0), tuning(base, runs), runs, **every, baseline="rope", console=console)
    found = [run for each in (first, second) for run in each.found() if run.result() is not None]
    probe_all_runs(found, list_probe_names(found[0]), console)
    for each in (first, second):
        print(format_comparison_csv(tabulate_comparison(each)))
    print(write_report(first.found(), out, question=QUESTION))
    print(write_report(second.found(), out / "tuned", question=TUNED, baseline="rope"))
    (out / "study.json").write_text(document(found))
    return [first, second]


def document(runs: list[RunFolder]) -> str:
    """What was found of runs, a line for each, with the machines and versions that they ran with."""
    told = {run.path.name: read_json(run.path / "environment.json") for run in runs}
    head = {"date": datetime.date.today().isoformat(), "length": min(run.config.length or 0 for run in runs)}
    head |= {name: next(iter(told.values()))[name] for name in ("machine", "versions")}
    lines = ",\n  ".join(json.dumps(line(run)) for run in runs)
    return f'{json.dumps(head, indent=1)[:-2]},\n "runs": [\n  {lines}\n ]\n}}\n'


def line(run: RunFolder) -> dict[str, Any]:
    """One run: what was trained, what it came to, and its probes, to five digits."""
    config, result, found = run.config, run.result() or {}, load_probes(run)
    label = ParsedEncoding(config.encoding, config.options).label
    own = {"label": label, "seed": config.seed, "tuned": config.start is not None, "test_bits": result["test_bits"]}
    rows = {name: [_short(row) for row in found.get(name, [])] for name in ("positions", "passkey")}
    return _short(own) | rows


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in row.items()}


def main(data: str = "data/books", runs: Path = Path("runs"), out: Path = Path("out/text"), seeds: int = 2) -> None:
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
