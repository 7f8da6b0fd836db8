"""Rows to be: what each is called and how its figures are found. One that fails says why, and the others go on."""

import gc
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ropewalk.lab.verdicts import one_line

LONGEST = 300  # characters of a reason

Row = dict[str, Any]


class Refused(Exception):
    """What was to be measured gives wrong answers; the message says how wrong."""


@dataclass(frozen=True)
class Job:
    """The labels of a row, and the work that finds its figures. Whatever is large is made by the work.

    A yardstick is what others with the same labels but for the name are measured by.
    """

    labels: dict[str, str]
    measure: Callable[[], Row]
    yardstick: bool = False

    def row(self) -> Row:
        """The labels and the figures, or why there are none."""
        try:
            return {**self.labels, **_finite(self.measure())}
        except Refused as refusal:
            return {**self.labels, "refused": one_line(refusal)}
        except Exception as error:
            return {**self.labels, "failed": one_line(f"{type(error).__name__}: {error}")[:LONGEST]}
        finally:
            if torch.cuda.is_available():
                gc.collect()
                torch.cuda.empty_cache()

    def answers_to(self, names: Collection[str]) -> bool:
        """Whether one of the names is its own, or what stands in it before the first comma; no names mean all."""
        name = self.labels["name"]
        return not names or name in names or name.partition(",")[0] in names

    def runs_in(self, modes: Collection[str]) -> bool:
        """Whether it has one of the modes, or none at all."""
        return "mode" not in self.labels or self.labels["mode"] in modes

    @property
    def group(self) -> dict[str, str]:
        """All its labels but the name."""
        return self.labels | {"name": ""}


def _finite(row: Row) -> Row:
    for key, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ArithmeticError(f"{key} is {value}")
    return row


def select(jobs: Sequence[Job], names: Collection[str], modes: Collection[str]) -> list[Job]:
    """Those of these names and modes, and their yardsticks."""
    named = [job.group for job in jobs if job.answers_to(names)]
    chosen = [job for job in jobs if job.answers_to(names) or (job.yardstick and job.group in named)]
    return [job for job in chosen if job.runs_in(modes)]
