"""What was held equal, and what was not."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.lab.config import LATER
from ropewalk.lab.dense.settings import WITHOUT
from ropewalk.lab.report.elements import Html, joined, table, tag
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.reading import Found
from ropewalk.lab.report.words import counted, setting
from ropewalk.lab.tasks.text import VISUAL

AREAS = {
    "Data": ("task", "data", "size", "length", "keys", "validation", "fraction"),
    "Model": (
        "model", "head", "patch", "width", "depth", "heads", "kv_heads", "ratio", "pool", "registers", "layer_scale",
        "drop_path", "dropout",
    ),
    "Training": (
        "start", "epochs", "batch", "optimiser", "learning_rate", "weight_decay", "warmup", "clip", "ema", "loss",
        "smoothing", "precision", "compile", "every",
    ),
    "Augmentation": ("augment", "strength", "mixup", "cutmix"),
    "Positions": ("span", "perturb", "shift", "rescale", "per_sample"),
}  # fmt: skip

THEIRS = ("width", "depth", "heads", "ratio", "pool", "registers", "layer_scale")
"""Settings that a model of another library has of its own."""
SILENT = {"size": "that of the data", "span": "each encoding's own"}
"""What it means that a setting is not there."""


def held_equal(group: Group) -> Html:
    """The settings that all runs of a group share, by area, and where they ran."""
    known = {name for names in AREAS.values() for name in names}
    areas = {**AREAS, "Other": tuple(name for name in group.settings if name not in known)}
    shown = {name: value for name, value in group.settings.items() if applies(name, group.settings)}
    body = [
        (area, joined(_set(name, shown[name]) for name in names if name in shown))
        for area, names in areas.items()
        if any(name in shown for name in names)
    ]
    return joined([table(("", "Settings"), body, label="Settings that all runs share"), tag("p", machines(group))])


def applies(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting says something: those of images do not where there is text, nor those of text where it is none, nor
    those of classes where boxes or maps are found."""
    if settings.get("length") is not None and name in (*VISUAL, *AREAS["Augmentation"], "patch", "validation"):
        return False
    if settings.get("model") is not None and name in THEIRS:
        return False
    if name in WITHOUT.get(settings.get("task") or "", ()):
        return False
    return name not in LATER or settings[name] is not None


def _set(name: str, value: object) -> Html:
    said = SILENT[name] if value is None and name in SILENT else setting(value)
    return joined([tag("span", tag("b", name.replace("_", " ")), f" {said}", class_="set"), " "])


def machines(group: Group) -> str:
    """Whether all ran on the same device with the same versions."""
    places = [_place(found) for found in group.runs]
    told = sorted({place for place in places if place})
    if not told:
        return "The runs do not say what machine they were on."
    if len(told) == 1 and all(places):
        return f"All ran on {told[0]}."
    unknown = f" {counted(places.count(''), 'run')} do not say where." if "" in places else ""
    return f"They did not all run on the same machine, so that times cannot be compared: {'; '.join(told)}.{unknown}"


def _place(found: Found) -> str:
    parts = [found.environment.get("machine"), found.environment.get("versions")]
    machine, versions = (part if isinstance(part, dict) else {} for part in parts)
    said = [str(machine.get("device", "")), f"torch {versions['torch']}" if "torch" in versions else ""]
    return ", ".join(word for word in said if word)


def differing(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Settings that differ between groups, with the value in each."""
    names = groups[0].settings
    return {
        name: [setting(group.settings[name]) for group in groups]
        for name in names
        if len({json.dumps(group.settings[name]) for group in groups}) > 1
    }
