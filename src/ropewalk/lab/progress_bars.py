"""How far a comparison, or other work that takes its time, is: bars in a terminal, plain lines elsewhere.

Both tell of every run how it ended. In between, the bars show all runs and the current one with its epoch, loss, accuracy
and time left; lines say the same now and then. Time left is counted in epochs, at the pace of those trained here.
"""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ropewalk.lab.metrics import find_recorded_metric

LINE_INTERVAL = 5.0
"""Seconds between lines."""

Clock = Callable[[], float]


class ProgressLines:
    """A line for each run, and for its epochs at most one in `PAUSE` seconds."""

    def __init__(self, console: Console, *, runs: int, epochs: int, clock: Clock = time.monotonic) -> None:
        self.console, self.runs, self.epochs, self.clock = console, runs, epochs, clock
        self.ended, self.epoch, self.trained, self.title, self.judged = 0, 0, 0, "", ""
        self.start = self.last = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def begin(self, title: str) -> None:
        """A run is taken up."""
        self.title, self.epoch, self.judged = title, 0, ""
        self.show(f"{title}: begins")

    def record(self, record: Mapping[str, Any]) -> None:
        """An epoch of it is trained."""
        self.epoch, self.trained = record["epoch"], self.trained + 1
        if metric := find_recorded_metric(record, "validation"):
            self.judged = f", {metric.told('validation', record).removeprefix('validation ')}"
        words = f"epoch {self.epoch} of {self.epochs}, loss {record['loss']:.4g}{self.judged}"
        self.show(f"{self.title}: {words}, {self.left(self.epochs - self.epoch)} left")

    def end(self, words: str) -> None:
        """It is over, in words."""
        self.ended, self.epoch = self.ended + 1, 0
        self.say(f"{self.ended} of {self.runs}  {self.title}: {words}")

    def show(self, words: str) -> None:
        """What goes on now."""
        if self.clock() - self.last >= LINE_INTERVAL:
            self.last = self.clock()
            self.say(f"{self.ended + 1} of {self.runs}  {words}, {self.left(self.count_remaining_epochs())} of all")

    def say(self, words: str) -> None:
        """One line, whatever is in it and however long."""
        self.console.print(Text(words), soft_wrap=True)

    def count_remaining_epochs(self) -> int:
        """Epochs of all runs that are to come."""
        return (self.runs - self.ended) * self.epochs - self.epoch

    def left(self, epochs: int) -> str:
        """How long so many epochs will take, which nobody knows before one is trained."""
        return format_duration((self.clock() - self.start) / self.trained * epochs) if self.trained else "?"


class ProgressBars(ProgressLines):
    """One bar for all runs, one for the current one. They move with the epochs, not by themselves: training has the time."""

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

    def show(self, words: str) -> None:
        told = f"{self.ended} of {self.runs} runs, {self.left(self.count_remaining_epochs())} left"
        self.bars.update(self.whole, completed=self.runs * self.epochs - self.count_remaining_epochs(), description=told)
        self.bars.update(self.current, completed=self.epoch, description=words, refresh=True)


def make_progress(console: Console, *, runs: int, epochs: int) -> ProgressLines:
    """Bars if somebody looks at them."""
    kind = ProgressBars if console.is_terminal and not console.quiet else ProgressLines
    return kind(console, runs=runs, epochs=epochs)


class StageProgress:
    """Work in so many stages: a bar if somebody looks at it, else a line at most each `PAUSE` seconds."""

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
        """A stage, counted from 0, is taken up."""
        told = f"{number + 1} of {self.total}  {words}"
        self.bar.update(self.task, completed=number, description=told, refresh=True)
        if self.bar.disable and self.clock() - self.last >= LINE_INTERVAL:
            self.last = self.clock()
            self.say(told)

    def say(self, words: str) -> None:
        """One line that stays."""
        self.console.print(Text(words), soft_wrap=True)


def format_duration(seconds: float) -> str:
    """A time in two units at most."""
    whole = round(seconds)
    for unit, length, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {below}"
    return f"{whole} s"
