"""The data of a run on maps, and which settings such runs have."""

from pathlib import Path
from typing import Any

from ropewalk.lab.augment import Augment
from ropewalk.lab.augment.checks import interval
from ropewalk.lab.config import Config
from ropewalk.lab.data.maps import Maps
from ropewalk.lab.data.pixels import sides_of
from ropewalk.lab.data.sight import View
from ropewalk.lab.dense.settings import check
from ropewalk.lab.patching import square

SIZE = 320
"""Of views, if none is asked for."""
OPERATIONS = ("flip", "crop", "jitter")
"""Of augmentation: the first two are done where files are read, the last on the device."""
STRENGTHS = ("scale", "brightness", "contrast", "saturation")
LARGEST = 16
"""The largest factor by which a view may be scaled."""


def open_maps(config: Config) -> Maps:
    """The data of a run, if its settings are of maps."""
    check_settings(config)
    rows, columns = sides_of(config.size or (SIZE, SIZE), 2)
    view = View("crop" in config.augment, "flip" in config.augment, scale_of(config))
    names = ("seed", "validation", "fraction", "workers")
    given: dict[str, Any] = {"patch": square(config.patch)} | {name: getattr(config, name) for name in names}
    return Maps(Path(config.data).expanduser(), size=(rows, columns), view=view, **given)


def scale_of(config: Config) -> tuple[float, float]:
    """The factors by which views are scaled, as they were asked for."""
    given: Any = config.strength.get("scale", View().scale)
    return tuple(given) if isinstance(given, list) else given  # JSON knows lists alone


def colours_of(config: Config) -> Augment:
    """What is done to views on the device."""
    options = {name: value for name, value in config.strength.items() if name != "scale"}
    return Augment(tuple(name for name in config.augment if name == "jitter"), seed=config.seed, **options)


def check_settings(config: Config) -> None:
    """Refuse settings that maps have no use for."""
    check(config, OPERATIONS)
    if strange := sorted(set(config.strength) - set(STRENGTHS)):
        raise ValueError(f"strength takes {', '.join(STRENGTHS)} for {config.task}, got {', '.join(strange)}")
    colours_of(config)
    interval("scale", scale_of(config), LARGEST)
