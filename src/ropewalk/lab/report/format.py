"""Counts, settings and lists as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropewalk.lab.record import RunRecord
from ropewalk.lab.statistics import MeanEstimate


def exceeds_interval(estimate: MeanEstimate) -> bool:
    """Whether a difference is larger than half its interval; one without an interval is not."""
    return estimate.half is not None and abs(estimate.mean) > estimate.half


def format_setting(value: Any) -> str:
    """A setting as text: yes and no, lists with commas."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(format_setting(each) for each in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {format_setting(each)}" for key, each in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_data_name(data: str) -> str:
    """The name of a dataset: of a file or folder without those that hold it."""
    return Path(data).name or data


def join_words(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def format_count(count: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_record_error(record: RunRecord, error: Exception) -> str:
    """An error without the path of the folder that holds the run."""
    return str(error) if record.location is None else str(error).replace(record.location, Path(record.location).name)
