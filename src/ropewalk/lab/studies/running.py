"""A study is run: part after part, each trained, probed and written down before the next begins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ropewalk.lab import probing
from ropewalk.lab.choose import refusing
from ropewalk.lab.compare import Comparison, compare
from ropewalk.lab.probes import PROBES
from ropewalk.lab.studies.lines import line, write
from ropewalk.lab.studies.study import Study


def run_part(
    study: Study,
    part: str,
    runs: Path,
    out: Path,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    given: Mapping[str, Any],
    console: Console,
) -> Comparison | None:
    """Train, probe and write down a part, or some of its runs; None if none of its runs is asked for."""
    names, numbers = study.members(part, only, seeds)
    if not names:
        return None
    with refusing():
        config = study.config(part, given)
    said = [study.encodings[name] for name in names]
    done = compare(said, config, runs, seeds=numbers, baseline=said[0], console=console)
    ended = [each for each in done.found() if each.result() is not None]
    if study.parts[part].probed:
        probing.probe_all(ended, list(PROBES), console)
    write(out / f"{part}.jsonl", [line(study, part, each) for each in ended])
    return done
