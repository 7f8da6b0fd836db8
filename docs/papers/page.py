"""What a finding is made of, and the markdown that all of them use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from matplotlib.figure import Figure

import ropewalk as rw

from .figures import Theme

Draw = Callable[[Theme], Figure]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One section of the page, its line in the table on top, and its figures by name."""

    name: str
    title: str
    number: str
    where: str
    here: str
    text: str
    figures: dict[str, Draw] = field(default_factory=dict)

    def section(self, place: int) -> str:
        """The section as markdown."""
        return f"## {place}. {self.title} {{#{self.name}}}\n\n{self.text.strip()}\n"

    def line(self) -> tuple[str, ...]:
        """The finding in the table on top."""
        return f"[{self.title}](#{self.name})", self.number, self.where, self.here


def picture(name: str, alt: str) -> str:
    """A figure in both themes, of which the site shows one."""
    return "\n".join(f"![{alt}](papers/{name}-{theme}.png#only-{theme})" for theme in ("light", "dark"))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent."""
    return f"{100 * share:.{digits}f} %"


def made(name: str, *, seed: int = 0, **options: Any) -> rw.Encoding:
    """An encoding in float64 whose random start is always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return rw.create(name, **options).double()
