"""What the verbs train, evaluate, compare and report do. What is heavy is imported when it is asked for."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab.choose import Refusal, parse, refusing

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.lab.compare import Comparison
    from ropewalk.lab.config import Config
    from ropewalk.lab.store import Run


def settings(recipe: str, words: Sequence[str]) -> "Config":
    """A recipe with some settings replaced, as key=value; a list of one has no comma."""
    from ropewalk.lab.config import Config
    from ropewalk.lab.recipes import RECIPES

    if recipe not in RECIPES:
        raise Refusal(f"no recipe is named {recipe!r}; there are {', '.join(RECIPES)}")
    given = {
        name: [value] if name == "augment" and isinstance(value, str) else value for name, value in parse(words).items()
    }
    with refusing():
        return Config.of(RECIPES[recipe].document() | given)


def train(said: str, config: "Config", runs: Path, console: "Console", trackers: tuple[str, ...] = ()) -> "Run":
    """Train one encoding, or go on with it."""
    from ropewalk.lab.comparing.entries import entry
    from ropewalk.lab.progress import display
    from ropewalk.lab.train import train

    chosen = entry(said)
    config = dataclasses.replace(config, encoding=chosen.encoding, options=chosen.options)
    with display(console, runs=1, epochs=config.epochs) as shown, refusing():
        shown.begin(f"{chosen.label}, seed {config.seed}")
        run = train(config, runs, watch=shown.record, trackers=trackers)
        shown.end(f"test accuracy {100 * (run.result() or {})['test_accuracy']:.1f} %")
    return run


def evaluate(path: Path, probes: Sequence[str], console: "Console") -> dict[str, Any]:
    """Probe a run that is there."""
    from ropewalk.lab.probes import PROBES, probe

    if unknown := sorted(set(probes) - set(PROBES)):
        raise Refusal(f"no probe is named {', '.join(unknown)}; there are {', '.join(PROBES)}")
    return probe(found([path])[0], list(probes) or list(PROBES), watch=lambda name: console.print(name))


def compare(
    encodings: Sequence[str], config: "Config", runs: Path, seeds: int, baseline: str, console: "Console"
) -> "Comparison":
    """Train encodings with several seeds, and print the table."""
    from ropewalk.lab.compare import compare, rendered, table

    comparison = compare(encodings, config, runs, seeds=range(seeds), baseline=baseline, console=console)
    console.print(rendered(table(comparison)))
    return comparison


def found(paths: Sequence[Path]) -> list["Run"]:
    """The runs at these places: a run's folder, a comparison's file, or a folder of runs."""
    from ropewalk.lab.compare import Comparison
    from ropewalk.lab.store import Run

    runs: list[Run] = []
    for path in paths:
        with refusing():
            if path.is_file():
                runs += Comparison.at(path).found()
            elif (path / "config.json").is_file():
                runs.append(Run.at(path))
            else:
                runs += [Run.at(each.parent) for each in sorted(path.glob("*/config.json"))]
    if not runs:
        raise Refusal(f"no run is at {', '.join(map(str, paths))}: a run is a folder with a config.json")
    return runs
