"""What a page does not have, and why: what could not be measured or read, and what was not written down."""

from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.words import counted, listed

RESTORED = (
    "These runs are restored from lines of a study. Data, first weights and names of folders are as the study has them now; "
    "times, weights, pictures, losses of training and what probes refused are not in lines."
)


def lacking(group: Group) -> list[str]:
    """All of it, in sentences."""
    return restored(group) + _refused(group) + _troubles(group)


def restored(group: Group) -> list[str]:
    """What lines do not hold, where runs are restored from them."""
    return [RESTORED] if any(found.environment.get("restored") for found in group.runs) else []


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
