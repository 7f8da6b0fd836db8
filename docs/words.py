"""What the traits of an encoding are in words, short for a table, long for its page."""

from dataclasses import asdict
from typing import Any

from ropewalk.encoding import Encoding, Traits
from ropewalk.lab.inspect.encoding_facts import format_parameter_counts as format_parameter_counts
from ropewalk.lab.inspect.encoding_facts import parse_docstring
from ropewalk.lab.inspect.figure_grid import get_axis_names

OWN = ("oblique", "learned")  # traits that have a row of their own
GROUPS = ("pairs", "triplets", "blocks")


def relative(traits: Traits, *, long: bool = False) -> str:
    """Along which axes scores depend on differences of positions alone."""
    along = [name for name, holds in zip(get_axis_names(traits.axes), traits.relative, strict=True) if holds]
    if len(along) == traits.axes:
        return "yes: scores stay put when all positions shift" if long else "yes"
    if not along:
        return "no: scores change when all positions shift" if long else "no"
    only = f"{' and '.join(along)} only"
    return f"{only}: when all positions shift along another axis, scores change" if long else only


def oblique(traits: Traits, *, long: bool = False) -> str:
    """Whether channels mix axes; nothing where there is but one, or where none turn."""
    if traits.axes == 1 or not traits.rotary:
        return ""
    if traits.oblique:
        return "yes: some channels answer to a mixture of axes" if long else "yes"
    return "no: each channel answers to one axis" if long else "no"


def others(traits: Traits) -> str:
    """What else it claims, each in a line, in the words of `Traits` itself."""
    said = parse_docstring(Traits.__doc__ or "").options
    return "<br>".join(said[name].text for name, value in asdict(traits).items() if value is True and name not in OWN)


def acts_on(row: dict[str, Any]) -> str:
    """What it acts on."""
    return ", ".join(f"{part} of channels" if part in GROUPS else part for part in row["acts_on"].split(", "))


def axes(kind: type[Encoding]) -> str:
    """How many axes it takes; the first is the default."""
    most = "any" if kind.allowed_axes is None else f"1 to {kind.allowed_axes[-1]}"
    return str(kind.default_axes) if kind.allowed_axes and len(kind.allowed_axes) == 1 else f"{kind.default_axes} ({most})"


def learning(row: dict[str, Any]) -> str:
    """Whether it needs to learn."""
    return "yes" if row["needs_learning"] else row["learned"]


def paper(kind: type[Encoding]) -> str:
    """A link to the paper, or to the page that stands for one."""
    number = kind.paper.removeprefix("arXiv:")
    return f"[{number.removeprefix('https://')}]({number if '://' in number else f'https://arxiv.org/abs/{number}'})"


def setting(name: str, value: Any) -> str:
    """One setting of a variant."""
    shown = ("no", "yes")[value] if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else value
    return f"{name.replace('_', ' ')}: {shown}"
