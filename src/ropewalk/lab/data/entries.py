"""What files of COCO's form must say of images, kinds and things. What is wrong is told with the file and the entry."""

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Entry = dict[str, Any]


class Rule(NamedTuple):
    """What a value must be, in words and as a test; and what it is where there is none."""

    wanted: str
    right: Callable[[Any], bool]
    default: Any = None


def check(path: Path, what: str, entries: Sequence[Any], rules: Mapping[str, Rule]) -> None:
    """Refuse a file with an entry that breaks a rule; `what` an entry is, is said."""
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ValueError(f"{path}: {what} {place} of its list must be an object, got {reprlib.repr(entry)}")
        for name, (wanted, right, default) in rules.items():
            if not right(value := entry.get(name, default)):
                told = f"{what} {entry['id']!r}" if "id" in entry else f"{what} {place} of its list"
                came = reprlib.repr(value) if name in entry else "none"
                raise ValueError(f"{path}: {told} must have {name}, {wanted}, got {came}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _key(value: Any) -> bool:
    return _whole(value) or isinstance(value, str)


def _name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _pixels(value: Any) -> bool:
    return _whole(value) and value > 0


def _box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(_number, value))


def _outline(value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(value.get("counts"), list | str) and isinstance(value.get("size"), list)
    return isinstance(value, list) and len(value) > 0 and all(map(_polygon, value))


def _polygon(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= 6 and len(value) % 2 == 0 and all(map(_number, value))


_SIDE, _KEY = Rule("a whole number of pixels", _pixels), Rule("a number or a name", _key)
IMAGE = {"id": _KEY, "file_name": Rule("a name", _name), "height": _SIDE, "width": _SIDE}
KIND = {
    "id": Rule("a whole number", _whole),
    "name": Rule("a name", _name),
}
THING = {
    "image_id": _KEY,
    "category_id": _KEY,
    "bbox": Rule("four numbers", _box),
    "area": Rule("a number", _number, 0),
    "iscrowd": Rule("0 or 1", lambda value: value in (0, 1), 0),
}
OUTLINED = THING | {"segmentation": Rule("polygons of three points or more, or run lengths", _outline)}
"""Of things whose outlines are asked for."""
