"""What files of COCO's form must say of images, kinds and things. What is wrong is told with the file and the entry."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.lab.rules import NAME, WHOLE, Rule, broken, finite, numbers, whole

Entry = dict[str, Any]


def check(path: Path, what: str, entries: Sequence[Any], rules: Mapping[str, Rule]) -> None:
    """Refuse a file with an entry that breaks a rule; `what` an entry is, is said."""
    for place, entry in enumerate(entries):
        if fault := broken(entry, rules):
            known = isinstance(entry, dict) and "id" in entry
            raise ValueError(f"{path}: {what} {repr(entry['id']) if known else f'{place} of its list'} {fault}")


def _key(value: Any) -> bool:
    return whole(value) or isinstance(value, str)


def _pixels(value: Any) -> bool:
    return whole(value) and value > 0


def _box(value: Any) -> bool:
    return numbers(value) and len(value) == 4


def _outline(value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(value.get("counts"), list | str) and isinstance(value.get("size"), list)
    return isinstance(value, list) and len(value) > 0 and all(map(_polygon, value))


def _polygon(value: Any) -> bool:
    return numbers(value) and len(value) >= 6 and len(value) % 2 == 0


_SIDE, _KEY = Rule("a whole number of pixels", _pixels), Rule("a number or a name", _key)
IMAGE = {"id": _KEY, "file_name": NAME, "height": _SIDE, "width": _SIDE}
KIND = {"id": WHOLE, "name": NAME}
THING = {
    "image_id": _KEY,
    "category_id": _KEY,
    "bbox": Rule("four numbers", _box),
    "area": Rule("a number", finite, 0),
    "iscrowd": Rule("0 or 1", lambda value: value in (0, 1), 0),
}
OUTLINED = THING | {"segmentation": Rule("polygons of three points or more, or run lengths", _outline)}
"""Of things whose outlines are asked for."""
