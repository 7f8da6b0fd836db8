"""Locations of runs: paths, or file:// URLs of this machine."""

import re
from pathlib import Path
from urllib.parse import unquote


def parse_location(location: Path | str) -> Path:
    """The path of a location: a path, which may begin with `~`, or a file:// URL on this machine."""
    said = str(location)
    url = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?((?:/.*)?)", said, re.DOTALL)
    if url is None or said.endswith(":"):
        return Path(location).expanduser()
    scheme, host, path = url.groups()
    if scheme.lower() != "file" or host not in (None, "", "localhost"):  # a Path has made one slash of two
        raise ValueError(
            f"a location must be a path or a file:// URL of this machine, got {said!r}; copy the run to a local directory"
        )
    return Path(unquote(path))
