"""What the verbs fold, train, compare and report do. What is heavy is imported when it is asked for."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.lab.choose import Refusal, known, parse, refusing

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.lab.compare import Comparison
    from ropewalk.lab.config import Config
    from ropewalk.lab.folded import Folded
    from ropewalk.lab.store import Run


def settings(recipe: str, words: Sequence[str]) -> "Config":
    """A recipe with some settings replaced, as key=value; a list of one has no comma."""
    from ropewalk.lab.config import Config
    from ropewalk.lab.recipes import RECIPES

    base = RECIPES[known("recipe", recipe, RECIPES)].document()
    with refusing():
        return Config.of(base | _replaced(base, words))


def _replaced(base: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Settings of key=value, of those that there are. One number for the size is that of all axes: two, or the base's."""
    from ropewalk.lab.comparing.plan import OWN

    given = parse(words)
    for name in given:
        if name in OWN:
            raise Refusal(f"{name} is not a setting: encodings come with their options, and seeds by --seed or --seeds")
        known("setting", name, [each for each in base if each not in OWN])
    if isinstance(said := given.get("augment"), str):
        given["augment"] = [said] if said else []
    if type(side := given.get("size")) is int:
        given["size"] = [side] * len(base["size"] or (side, side))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def spelt(**given: str | None) -> list[str]:
    """Settings that have a flag of their own, as key=value."""
    return [f"{name}={value}" for name, value in given.items() if value is not None]


def study(
    name: str,
    encodings: Sequence[str],
    words: Sequence[str],
    parts: Sequence[str],
    only: Sequence[str],
    seeds: Sequence[int],
    runs: Path,
    out: Path,
    console: "Console",
    *,
    count: int = 1,
) -> int:
    """Run a study, or some of it, part after part; with a count, by so many processes that share its runs."""
    from ropewalk.lab.endings import ending
    from ropewalk.lab.studies import STUDIES
    from ropewalk.lab.studies.running import asked, run, table

    chosen = STUDIES[known("study", name, STUDIES)]
    if encodings:
        raise Refusal(f"a study has its encodings: choose among them by --only, got {', '.join(encodings)}")
    _check_count(count)
    given, code = _replaced(chosen.base.document(), words), 0
    for part in chosen.chosen(parts):
        console.print(f"{part}: {chosen.parts[part].about}")
        with ending():
            wanted = asked(chosen, part, out, only=only, seeds=seeds, given=given)
            if wanted is None:
                continue
            if count > 1 and not wanted.complete():
                if _together(count, _again(name, part, words, only, seeds, runs, out), console) == Refusal.code:
                    return Refusal.code
            else:
                run(wanted, runs, console)
            code = code or int(not wanted.complete())
        console.print(*table(wanted.path, wanted.config), str(wanted.path), sep="\n", highlight=False)
    return code


def _check_count(count: int) -> None:
    """Refuse a number of processes that cannot be started."""
    if count < 1:
        raise Refusal(f"together must be a number of processes, 1 or more, got {count}")
    if count > 1 and (world := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise Refusal(f"--together starts its own processes: it must not be launched in several, got WORLD_SIZE={world}")


def _again(
    name: str, part: str, words: Sequence[str], only: Sequence[str], seeds: Sequence[int], runs: Path, out: Path
) -> list[str]:
    """The words that ask for a part of a study on the command line."""
    lists = {"--set": words, "--only": only, "--seed": [str(seed) for seed in seeds]}
    chosen = [word for flag, given in lists.items() if given for word in (flag, *given)]
    return ["compare", "--study", name, "--part", part, *chosen, "--runs", str(runs), "--out", str(out)]


def _together(count: int, words: Sequence[str], console: "Console") -> int:
    """Several processes with these words: the worst of their codes; it is told which were killed."""
    from ropewalk.lab.together import together

    try:
        codes = together(count, words, console)
    except (KeyboardInterrupt, SystemExit):
        console.print("stopped; the same command goes on")
        raise
    for number, code in enumerate(codes, 1):
        if code < 0:
            console.print(f"process {number} was ended by signal {-code}; the same command goes on")
    return max(codes)


def fold(path: Path, out: Path | None) -> "Folded":
    """Fold the encoding of a run into its projections."""
    from ropewalk.lab.endings import ending
    from ropewalk.lab.folded import fold_run
    from ropewalk.lab.store import Run

    with ending():
        return fold_run(Run.at(path), out)


def train(said: str, config: "Config", runs: Path, console: "Console", trackers: tuple[str, ...] = ()) -> "Run":
    """Train one encoding, or go on with it. What cannot be trained is refused before its folder is made."""
    from ropewalk.lab.comparing.checks import check
    from ropewalk.lab.comparing.plan import plan
    from ropewalk.lab.endings import ending
    from ropewalk.lab.processes import check_trackers, processes
    from ropewalk.lab.progress import display
    from ropewalk.lab.train import train

    check_trackers(trackers)
    alone = plan([said], config, runs, seeds=[config.seed], baseline=said)
    (member,) = alone.members
    with display(console, runs=1, epochs=config.epochs) as shown, ending():
        if alone.left():
            check(alone, processes=processes())
        shown.begin(f"{member.label}, seed {member.seed}")
        try:
            run = train(alone.config(member), runs, watch=shown.record, trackers=trackers)
        except KeyboardInterrupt:
            shown.say("stopped; the same command goes on")
            raise
        result = run.result()  # of several processes, the first alone has written it for sure
        shown.end("done" if result is None else alone.metric.told("test", result))
    return run


def beside(encodings: Sequence[str], also: Sequence[str]) -> list[str]:
    """Encodings, and those that are trained beside them if they are not among them, however they are spelt."""
    from ropewalk.lab.comparing.entries import entry

    named = {entry(each).label for each in encodings}
    return [*encodings, *(each for each in also if entry(each).label not in named)]


def compare(
    encodings: Sequence[str], config: "Config", runs: Path, seeds: int, baseline: str, console: "Console"
) -> "Comparison":
    """Train encodings with several seeds."""
    from ropewalk.lab.compare import compare
    from ropewalk.lab.endings import ending
    from ropewalk.lab.processes import processes

    processes()
    with ending():
        return compare(encodings, config, runs, seeds=range(seeds), baseline=baseline, console=console)


def ended(comparison: "Comparison") -> list["Run"]:
    """The runs of a comparison that are done."""
    from ropewalk.lab.endings import ending
    from ropewalk.lab.store import Run

    done = [each.name for each in comparison.members if comparison.outcome(each).result is not None]
    with ending():
        return [Run.at(comparison.runs / name) for name in done]


def tabulate(comparison: "Comparison", console: "Console") -> None:
    """Print the table of a comparison."""
    from ropewalk.lab.compare import rendered, table

    console.print(rendered(table(comparison)))


def report(runs: Sequence["Run"], out: Path, console: "Console", *, question: str = "", baseline: str = "none") -> Path:
    """Write the page on runs, and say where it is."""
    from ropewalk.lab.comparing.entries import entry
    from ropewalk.lab.endings import ending
    from ropewalk.lab.report import report

    label = entry(baseline).label
    with console.status(f"a report of {len(runs)} run{'' if len(runs) == 1 else 's'}"), ending():
        return report(runs, out, question=question, baseline=label)


def found(paths: Sequence[Path], scratch: Path | None = None) -> list["Run"]:
    """The runs at these places: a run's folder, a comparison's file, or a folder of runs; with a folder to put them in, the
    lines of a study, too."""
    from ropewalk.lab.endings import ending

    with ending():
        runs = [run for i, path in enumerate(paths) for run in _at(path, scratch and scratch / f"{i:05}")]
    if not runs:
        also = "" if scratch is None else ", or a line in a file of a study, .jsonl"
        raise Refusal(f"no run is at {', '.join(map(str, paths))}: a run is a folder with a config.json{also}")
    return runs


def _at(path: Path, scratch: Path | None) -> list["Run"]:
    """The runs at one place."""
    from ropewalk.lab.compare import Comparison
    from ropewalk.lab.store import Run

    if path.suffix == ".jsonl" and not path.is_dir():
        return _lines(path, scratch)
    if path.is_file():
        return Comparison.at(path).found()
    if (path / "config.json").is_file():
        return [Run.at(path)]
    runs = _inside(path)
    if scratch is not None and not runs and any(path.glob("*.jsonl")):
        raise Refusal(f"{path} holds lines and no run: give the .jsonl files themselves, got their folder")
    return runs


def _lines(path: Path, scratch: Path | None) -> list["Run"]:
    """The runs of lines, in this folder."""
    from ropewalk.lab.studies.unfolded import unfolded

    if not path.is_file():
        raise Refusal(f"a file of lines must be there, and there is no {path}")
    if scratch is None:
        raise Refusal(f"lines of a study hold no weights: wanted are folders of runs, got {path}")
    return unfolded(path, scratch)


def _inside(folder: Path) -> list["Run"]:
    """The runs in a folder. One that cannot be read is told, and left out."""
    from ropewalk.lab import output
    from ropewalk.lab.store import Damaged, Run

    runs: list[Run] = []
    for path in sorted(folder.glob("*/config.json")):
        try:
            runs.append(Run.at(path.parent))
        except (ValueError, Damaged) as error:
            output.console(stderr=True).print(f"{path.parent} is left out: {error}")
    return runs
