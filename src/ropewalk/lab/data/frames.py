"""Frames of a video, read by PyAV: some of them, by their numbers.

A clip of n frames of a video of T has them s frames apart, from a first one on. s goes from 1 to (T - 1) // (n - 1), with
which the clip spans the video. In training s and the first frame are drawn, each uniform among what fits; at evaluation s is
the largest and the clip lies in the middle. Of a video of less than n frames, some come several times, at equal distances.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

MISSING = "videos are read by PyAV: pip install 'ropewalk[video]'"


def reader() -> Any:
    """PyAV, if it is installed."""
    try:
        import av
    except ImportError as error:
        raise ValueError(f"{MISSING} ({error})") from error
    return av


def chosen(count: int, frames: int, draws: Sequence[float] = ()) -> list[int]:
    """The numbers of so many frames of a video of `count`, by two draws in [0, 1): of s and of the first; or by none."""
    if count < frames:
        return [place * count // frames for place in range(frames)]
    most = max(1, (count - 1) // max(frames - 1, 1))
    step = 1 + int(draws[0] * most) if draws else most
    room = count - (frames - 1) * step
    first = int(draws[1] * room) if draws else (room - 1) // 2
    return [first + place * step for place in range(frames)]


def clip(path: str, choose: Callable[[int], Sequence[int]]) -> Tensor:
    """The frames (n 3 H W) of a video that `choose` names, once it knows how many there are; in RGB.

    Where fewer come than there are pictures, as some lack those that they are made of, it chooses among those that come.
    """
    av = reader()
    wanted = choose(_count(av, path))
    found, came = _decoded(av, path, wanted)
    if came <= max(wanted):
        if not came:
            raise ValueError("it has no frames")
        wanted = choose(came)
        found, _ = _decoded(av, path, wanted)
    return torch.from_numpy(np.stack([found[place] for place in wanted])).movedim(-1, 1)


def _decoded(av: Any, path: str, wanted: Sequence[int]) -> tuple[dict[int, np.ndarray], int]:
    """Frames by their numbers, and how many came up to the last of them."""
    found: dict[int, np.ndarray] = {}
    came = 0
    with av.open(path) as file:
        for came, frame in enumerate(file.decode(file.streams.video[0]), 1):
            if came - 1 in wanted:
                found[came - 1] = frame.to_ndarray(format="rgb24")
            if came > max(wanted):
                break
    return found, came


def _count(av: Any, path: str) -> int:
    """How many pictures a video shows: its packets, but for those that it says to leave out, as films that were cut do.

    What files say of their number counts those too, and in .avi gaps. Those that have an index have a packet for each of
    its entries, or are torn.
    """
    with av.open(path) as file:
        if not file.streams.video:
            raise ValueError("it has no pictures")
        stream = file.streams.video[0]
        left_out = [packet.is_discard for packet in file.demux(stream) if packet.size]
        if (wanted := sum(entry.size > 0 for entry in stream.index_entries)) > len(left_out):
            raise ValueError(f"it breaks off: it should have {wanted} frames, got {len(left_out)}")
    if all(left_out):
        raise ValueError("it has no frames")
    return left_out.count(False)
