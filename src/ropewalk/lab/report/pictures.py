"""The figure of what was found in images of the test set, as each run drew it when it was done."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imread

from ropewalk.lab.report.figures import Panel, Shown, Sources
from ropewalk.lab.report.panels import WIDTH, canvas, short
from ropewalk.lab.store import PICTURE


def pictures(of: Sources) -> Shown | str:
    """A row of images for each encoding, of its first seed that is done and has a picture."""
    shown, refused = list[Panel](), list[str]()
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        files = [found.run.path / PICTURE for found in seeds.values() if found.score is not None]
        for file in [each for each in files if each.is_file()][:1]:
            try:
                shown.append(_panel(of, f"found-{i}", label, file))
            except (OSError, ValueError, SyntaxError) as error:
                refused.append(f"{label}: its picture cannot be read ({error}).")
    if not shown:
        return " ".join(["No run that is done has a picture of what it found.", *refused])
    caption = (
        "The same images of the test set in each row. Dashed boxes are what is there; orange ones were found with a score "
        "of at least 0.5, which stands above them. Of each encoding the first seed that is done."
    )
    return Shown("found", "What was found", " ".join([caption, *refused]), shown, [])


def _panel(of: Sources, name: str, label: str, file: Path) -> Panel:
    return of.panel(name, f"Images of the test set with what {label} found", [], _drawn, imread(file), short(label, 40))


def _drawn(image: Any, title: str) -> Figure:
    pixels = np.asarray(image)
    figure, axes = canvas(title, 0.35 + WIDTH * pixels.shape[0] / pixels.shape[1])
    axes.imshow(pixels)
    axes.set_axis_off()
    return figure
