"""Runs at paths or file:// URLs: run directories, directories of runs, the file of a comparison, files of JSON lines."""

from collections.abc import Sequence
from pathlib import Path

from ropewalk.lab.compare.plan import Comparison
from ropewalk.lab.console import make_console
from ropewalk.lab.errors import CommandError, DamagedFileError
from ropewalk.lab.record import RunRecord
from ropewalk.lab.record_lines import load_records
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_location import parse_location
from ropewalk.lab.run_store import RunFolder, translate_run_errors


def find_run_folders(paths: Sequence[Path | str]) -> list[RunFolder]:
    """The run directories at these paths, for what needs weights. Raises CommandError if there are none."""
    with translate_run_errors():
        places = [parse_location(path) for path in paths]
        if files := [path for path in places if _is_record_file(path)]:
            raise CommandError(f"expected run directories, which hold weights; got JSON lines: {_join_paths(files)}")
        found = [run for path in places for run in _find_folders(path)]
    if not found:
        raise CommandError(f"no run found at {_join_paths(paths)}: expected run directories, which have a config.json")
    return found


def find_records(paths: Sequence[Path | str]) -> list[RunRecord]:
    """The records of the runs at these paths. Raises CommandError if there are none."""
    found: list[RunRecord] = []
    with translate_run_errors():
        for path in map(parse_location, paths):
            if _is_record_file(path):
                found += load_records(path)
            elif runs := _find_folders(path):
                found += [load_run(run.path) for run in runs]
            elif files := sorted(path.glob("*.jsonl")):
                raise CommandError(f"{path} holds no run directories, but JSON lines; give the files: {_join_paths(files)}")
    if not found:
        hint = "expected run directories, which have a config.json, or files of JSON lines, .jsonl"
        raise CommandError(f"no run found at {_join_paths(paths)}: {hint}")
    return found


def _is_record_file(path: Path) -> bool:
    return path.suffix == ".jsonl" and not path.is_dir()


def _find_folders(path: Path) -> list[RunFolder]:
    if path.is_file():
        return Comparison.at(path).found()
    if (path / "config.json").is_file():
        return [RunFolder.at(path)]
    runs: list[RunFolder] = []
    for config in sorted(path.glob("*/config.json")):
        try:
            runs.append(RunFolder.at(config.parent))
        except (ValueError, DamagedFileError) as error:
            make_console(stderr=True).print(f"{config.parent} is left out: {error}")
    return runs


def _join_paths(paths: Sequence[Path | str]) -> str:
    return ", ".join(map(str, paths))
