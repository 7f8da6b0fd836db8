"""The figure of what was found in images of the test set: the pictures that runs drew when they were done, as they are."""

import base64
import io

from PIL import Image

from ropewalk.lab.report.elements import tag
from ropewalk.lab.report.figures import Panel, Shown, Sources
from ropewalk.lab.report.panels import short
from ropewalk.lab.store import PICTURE

BOXES = "Dashed boxes are what is there; orange ones were found with a score of at least 0.5, which stands above them."
MAPS = "Beside each image are the truth and what was found. Grey pixels are not judged."


def pictures(of: Sources) -> Shown | str:
    """A picture for each encoding, of its first seed that is done and has one."""
    shown, refused = list[Panel](), list[str]()
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        there = [each for each in seeds.values() if each.score is not None and (each.run.path / PICTURE).is_file()]
        for found in there[:1]:
            try:
                shown.append(_panel(f"found-{i}{of.mark}", label, (found.run.path / PICTURE).read_bytes()))
            except (OSError, ValueError, SyntaxError) as error:
                refused.append(f"{label}: its picture cannot be read ({found.nameless(error)}).")
    if not shown:
        return " ".join(["No run that is done has a picture of what it found.", *refused])
    about = MAPS if of.group.settings.get("task") == "segment" else BOXES
    caption = f"The same images of the test set for each encoding, of its first seed that is done. {about}"
    return Shown("found", "What was found", " ".join([caption, *refused]), shown, [])


def _panel(name: str, label: str, data: bytes) -> Panel:
    """The bytes of a picture, if they are one, under the name of the encoding."""
    with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
        width, height = picture.size
        picture.verify()
    line = width // 16
    title = tag("text", short(label, 40), x="0", y=f"{0.6 * line:g}", font_size=f"{line / 2:g}", fill="currentColor")
    held = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    image = f'<image y="{line}" width="{width}" height="{height}" href="{held}"/>'
    svg = f'<svg viewBox="0 0 {width} {height + line}">{title}{image}</svg>'
    return Panel(name, f"Images of the test set with what {label} found", svg, data)
