"""Progress of comparisons and probes: bars in a terminal, plain lines elsewhere.

Both report how each run ended. In between, bars show all runs and the current one, with its epoch, loss, score and time
left; lines report the same at intervals. Time left is that of the remaining epochs at the mean pace of those trained so far.
"""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ropewalk.lab.task_types import find_recorded_metric

LINE_INTERVAL = 5.0
"""Seconds between lines."""

Clock = Callable[[], float]


class ProgressLines:
    """A line for each run, and for its epochs at most one in `LINE_INTERVAL` seconds."""

    def __init__(self, console: Console, *, runs: int, epochs: int, clock: Clock = time.monotonic) -> None:
        self.console, self.runs, self.epochs, self.clock = console, runs, epochs, clock
        self.ended, self.epoch, self.trained, self.title, self.score = 0, 0, 0, "", ""
        self.start = self.last = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def begin(self, title: str) -> None:
        """Start a run."""
        self.title, self.epoch, self.score = title, 0, ""
        self._show_status(f"{title}: begins")

    def record(self, record: Mapping[str, Any]) -> None:
        """Report an epoch of the current run, as the training loop describes it."""
        self.epoch, self.trained = record["epoch"], self.trained + 1
        if metric := find_recorded_metric(record, "validation"):
            self.score = f", {metric.format_score('validation', record).removeprefix('validation ')}"
        words = f"epoch {self.epoch} of {self.epochs}, loss {record['loss']:.4g}{self.score}"
        self._show_status(f"{self.title}: {words}, {self._format_time(self.epochs - self.epoch)} left")

    def end(self, words: str) -> None:
        """End the current run, with a description of its result."""
        self.ended, self.epoch = self.ended + 1, 0
        self.say(f"{self.ended} of {self.runs}  {self.title}: {words}")

    def _show_status(self, words: str) -> None:
        if self.clock() - self.last >= LINE_INTERVAL:
            self.last = self.clock()
            self.say(f"{self.ended + 1} of {self.runs}  {words}, {self._format_time(self._count_remaining_epochs())} of all")

    def say(self, words: str) -> None:
        """Print one line, without markup or wrapping."""
        self.console.print(Text(words), soft_wrap=True)

    def _count_remaining_epochs(self) -> int:
        return (self.runs - self.ended) * self.epochs - self.epoch

    def _format_time(self, epochs: int) -> str:
        """The time that so many epochs will take; unknown before the first one."""
        return format_duration((self.clock() - self.start) / self.trained * epochs) if self.trained else "?"


class ProgressBars(ProgressLines):
    """One bar for all runs and one for the current run, redrawn after each epoch: a timer would take time from training."""

    def __init__(self, console: Console, *, runs: int, epochs: int, clock: Clock = time.monotonic) -> None:
        super().__init__(console, runs=runs, epochs=epochs, clock=clock)
        looks = (BarColumn(20), TextColumn("{task.description}", markup=False))
        self.bars = Progress(*looks, console=console, transient=True, auto_refresh=False)
        self.whole = self.bars.add_task("", total=runs * epochs)
        self.current = self.bars.add_task("", total=epochs)

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.bars.stop()

    def _show_status(self, words: str) -> None:
        remaining = self._count_remaining_epochs()
        whole = f"{self.ended} of {self.runs} runs, {self._format_time(remaining)} left"
        self.bars.update(self.whole, completed=self.runs * self.epochs - remaining, description=whole)
        self.bars.update(self.current, completed=self.epoch, description=words, refresh=True)


def make_progress(console: Console, *, runs: int, epochs: int) -> ProgressLines:
    """Bars in a terminal, lines elsewhere."""
    kind = ProgressBars if console.is_terminal and not console.quiet else ProgressLines
    return kind(console, runs=runs, epochs=epochs)


class StageProgress:
    """Work in a known number of stages: a bar in a terminal, else at most one line in `LINE_INTERVAL` seconds."""

    def __init__(self, console: Console, total: int, *, clock: Clock = time.monotonic) -> None:
        looks = (BarColumn(20), TextColumn("{task.description}", markup=False))
        seen = console.is_terminal and not console.quiet
        self.console, self.total, self.clock, self.last = console, total, clock, clock()
        self.bar = Progress(*looks, console=console, transient=True, auto_refresh=False, disable=not seen)
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.bar.stop()

    def begin(self, number: int, words: str) -> None:
        """Start a stage, counted from 0."""
        status = f"{number + 1} of {self.total}  {words}"
        self.bar.update(self.task, completed=number, description=status, refresh=True)
        if self.bar.disable and self.clock() - self.last >= LINE_INTERVAL:
            self.last = self.clock()
            self.say(status)

    def say(self, words: str) -> None:
        """Print one line that stays."""
        self.console.print(Text(words), soft_wrap=True)


def format_duration(seconds: float) -> str:
    """A duration in at most two units."""
    whole = round(seconds)
    for unit, length, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {below}"
    return f"{whole} s"
