"""What a page does not have, and why: what could not be measured or read, and what was not written down."""

from collections.abc import Sequence

from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.words import counted, listed

LEFT_OUT = (
    "First weights, names of folders, and data that a line does not name are as the study has them now. Weights, pictures, "
    "losses of training and what probes refused are not in lines; times and memory are left out, since lines do not say "
    "what else ran there."
)


def source(groups: Sequence[Group]) -> str:
    """What runs were read from: folders, lines, or both."""
    names = {True: "lines of a study", False: "the folders of runs"}
    return listed([names[each] for each in sorted({found.restored for group in groups for found in group.runs})])


def lacking(group: Group) -> list[str]:
    """All of it, in sentences."""
    return restored(group) + _refused(group) + _troubles(group)


def restored(group: Group) -> list[str]:
    """How many runs are restored from lines, if any, and what they lack."""
    count = sum(found.restored for found in group.runs)
    few = f"{count} of these runs {'is' if count == 1 else 'are'}"
    these = "These runs are" if count == len(group.runs) else few
    return [f"{these} restored from lines of a study. {LEFT_OUT}"] if count else []


def _refused(group: Group) -> list[str]:
    """What probes could not measure: of each encoding and probe the first reason, in the words of whoever refused."""
    told: dict[tuple[str, str], str] = {}
    for label, seeds in group.found.items():
        for entry in (entry for found in seeds.values() for entry in found.probes.get("refused", [])):
            told.setdefault((label, str(entry.get("probe"))), str(entry.get("why")))
    alike: dict[tuple[str, str], list[str]] = {}
    for (label, probe), why in told.items():
        alike.setdefault((label, why), []).append(probe)
    return [f"{label}, {listed(probes)}: {why}." for (label, why), probes in alike.items()]


def _troubles(group: Group) -> list[str]:
    """Files that could not be read, and runs that were given twice."""
    told = [trouble for found in group.runs for trouble in found.troubles]
    return told + ([f"{counted(group.twice, 'run')} with the same settings as another left out."] if group.twice else [])
