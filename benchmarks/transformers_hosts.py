"""The table of transformers' model families: in which an encoding can be installed, and that it is right there.

python benchmarks/transformers_hosts.py                all families, some minutes on one core
python benchmarks/transformers_hosts.py llama gemma3   these alone; the other rows of the file stay

Each family (`host_families`) is built tiny (`tiny_configs`, `tiny_inputs`) and judged (`host_criteria`); the verdicts are
written to results/transformers-hosts.json.
"""

import datetime
import gc
import json
import os
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transformers
import tyro
from host_criteria import TOLERANCE, judge_family
from host_families import choose_class, compute_structure, list_families

from ropewalk.adapters import transformers as adapter
from ropewalk.lab.environment import list_package_versions

RESULTS = Path(__file__).parent.parent / "results" / "transformers-hosts.json"
RULE = (
    "model directories of transformers with a file modeling_*.py that defines a class or function with one of the words "
    "rotary, rope, rotate in its name"
)
Row = dict[str, Any]


def main(families: tyro.conf.Positional[tuple[str, ...]] = (), *, path: Path = RESULTS, verbose: bool = False) -> None:
    """Judge families, all unless some are named, and write the table."""
    listed = list_families()
    unknown = sorted(set(families) - set(listed))
    if unknown:
        raise SystemExit(
            f"unknown families {', '.join(unknown)}; expected directories of transformers/models that are listed"
        )
    rows: dict[str, Row] = {row["family"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    rows = {family: row for family, row in rows.items() if family in listed}
    for family in families or listed:
        rows[family] = judge_row(family)
        print(f"{family:28} {rows[family]['status']:18} {rows[family]['reason'][:150]}", flush=True)
        if verbose:
            print(json.dumps(rows[family]["figures"], indent=1))
        write_table(path, rows, listed)
    print(Counter(row["status"] for row in rows.values()))


def judge_row(family: str) -> Row:
    """The row of a family in the table."""
    began = time.process_time()
    try:
        name = choose_class(family).__name__
    except LookupError:
        name = ""
    verdict = judge_family(family, adapter)
    gc.collect()
    seconds = round(time.process_time() - began, 1)
    row = {
        "family": family,
        "class": name,
        "structure": compute_structure(family),
        "status": verdict.status,
        "reason": verdict.reason,
    }
    return row | {"figures": _round_numbers(verdict.figures), "cpu seconds": seconds}


def _round_numbers(figures: Row) -> Row:
    return {name: float(f"{value:.1e}") if isinstance(value, float) else value for name, value in figures.items()}


def write_table(path: Path, rows: dict[str, Row], listed: dict[str, list[str]]) -> None:
    """The whole file; what it had before stays until the new one is complete."""
    table = {
        "versions": list_package_versions(),
        "date": datetime.date.today().isoformat(),
        "rule": RULE,
        "families": len(listed),
        "tolerance": TOLERANCE,
        "counts": dict(sorted(Counter(row["status"] for row in rows.values()).items())),
        "rows": [rows[family] for family in sorted(rows)],
    }
    new = path.with_suffix(".new")
    new.write_text(json.dumps(table, indent=1) + "\n")
    os.replace(new, path)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    tyro.cli(main)
