"""The page that compares all encodings."""

from pathlib import Path

import drawings
import ropewalk as rw
from gallery import picture
from ropewalk.encodings import REGISTRY
from ropewalk.lab.inspect.encoding_facts import summarize_encoding
from tables import table
from words import axes, format_parameter_counts, learning, oblique, paper, relative

HEAD = ["encoding", "acts on", "axes", "relative", "oblique", "needs learning", "parameters", "coordinates", "paper"]
TEXT = """---
hide: [toc]
---

# Encodings

The attention of a ViT-S with each encoding as it comes: six heads of 64 channels, on 14 × 14 patches where it takes images.
A picture shows the scores of a random query in the middle with a random key that visits every patch, or, of encodings of one
axis, of a query at every place with a key at every place. Blue is low, orange high.

<div class="comparison" markdown>

{table}

</div>

relative
:   Scores stay put when all positions shift.

oblique
:   Some channels answer to a mixture of axes, so that a head can look along diagonals. Only where there are several
    axes and channels that turn.

axes
:   Its own number, and in brackets how many it can take.

parameters
:   What it learns in a ViT-S of 12 layers; of those that can learn but need not, fixed or learned.

coordinates
:   What `encoding.grid` builds: [positions and coordinates](../positions.md#who-scales-coordinates).
"""


def write(folder: Path) -> None:
    """The index of the gallery."""
    (folder / "index.md").write_text(TEXT.replace("{table}", table(HEAD, map(line, rw.names()))))


def line(name: str) -> list[str]:
    """The row of one encoding."""
    kind, row, encoding = REGISTRY[name], summarize_encoding(REGISTRY[name]), drawings.instance(REGISTRY[name])
    thumbnail = picture(f"{name}-thumbnail", f"attention pattern of {name}", 56).replace("\n", " ")
    return [
        f"[{thumbnail}<br>`{name}`]({name}.md)",
        row["acts_on"],
        axes(kind),
        relative(encoding.traits),
        oblique(encoding.traits),
        learning(row),
        format_parameter_counts(row),
        f"`{encoding.coordinates}`",
        paper(kind),
    ]
