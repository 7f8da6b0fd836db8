"""Datasets in a folder of videos, read by PyAV.

A folder has train/ and test/ or val/, with a folder of videos for each class. A sample is a clip of `size`, (frames,
rows, columns), whose frames are all cropped to the same box, as images are. Draws follow from the seed, the epoch and the
index of the sample.

A clip of n frames of a video of T has a stride of 1 to (T - 1) // (n - 1) frames; the largest spans the video. In
training the stride and the first frame are drawn uniformly; in evaluation the stride is the largest and the clip is
centered. Of a video of fewer than n frames, some frames are repeated, evenly spaced.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.datasets import DatasetFolder  # type: ignore[import-untyped]
from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped]

from ropewalk.lab.data.base import CropRange
from ropewalk.lab.data.image_folder import DEFAULT_IMAGE_SIZE, CropDraws, FolderData, ImageCrops
from ropewalk.lab.file_gate import check_regular_file
from ropewalk.lab.hash_random import draw_uniform

VIDEO_FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,mpegvideo,h264,hevc"
"""Formats of FFmpeg that are read."""
MISSING_PYAV = "videos are read by PyAV: pip install 'ropewalk[video]'"


def import_pyav() -> Any:
    """PyAV, which is an optional dependency."""
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise ValueError(f"{MISSING_PYAV} ({error})") from error


def choose_frames(count: int, frames: int, draws: Sequence[float] = ()) -> list[int]:
    """The numbers of so many frames of a video of `count`, by two draws in [0, 1): of s and of the first; or by none."""
    # Too short: frames are repeated, evenly spaced.
    if count < frames:
        return [place * count // frames for place in range(frames)]
    most = max(1, (count - 1) // max(frames - 1, 1))
    step = 1 + int(draws[0] * most) if draws else most
    room = count - (frames - 1) * step
    first = int(draws[1] * room) if draws else (room - 1) // 2
    return [first + place * step for place in range(frames)]


def read_clip(path: str, choose: Callable[[int], Sequence[int]]) -> Tensor:
    """The frames (n 3 H W) of a video that `choose` names, once it knows how many there are; in RGB.

    Where fewer come than there are pictures, as some lack those that they are made of, it chooses among those that come.
    """
    av = import_pyav()
    wanted = choose(_count_frames(av, path))
    found, came = _decode_frames(av, path, wanted)
    if came <= max(wanted):
        if not came:
            raise ValueError("it has no frames")
        wanted = choose(came)
        found, _ = _decode_frames(av, path, wanted)
    return torch.from_numpy(np.stack([found[place] for place in wanted])).movedim(-1, 1)


def _open_video(av: Any, path: str) -> Any:
    """Open a video in a known format; playlists, which name other files and addresses, are none."""
    check_regular_file(path)
    try:
        return av.open(path, options={"format_whitelist": VIDEO_FORMATS, "protocol_whitelist": "file"})
    except av.error.ArgumentError as error:
        raise ValueError(f"it must be a video in one of the formats {VIDEO_FORMATS}") from error


def _decode_frames(av: Any, path: str, wanted: Sequence[int]) -> tuple[dict[int, np.ndarray], int]:
    """Frames by their numbers, and how many came up to the last of them."""
    found: dict[int, np.ndarray] = {}
    came = 0
    with _open_video(av, path) as file:
        for came, frame in enumerate(file.decode(file.streams.video[0]), 1):
            if came - 1 in wanted:
                found[came - 1] = frame.to_ndarray(format="rgb24")
            if came > max(wanted):
                break
    return found, came


def _count_frames(av: Any, path: str) -> int:
    """How many pictures a video shows: its packets, but for those that it says to leave out, as films that were cut do.

    What files say of their number counts those too, and in .avi gaps. Those that have an index have a packet for each of
    its entries, or are torn.
    """
    with _open_video(av, path) as file:
        if not file.streams.video:
            raise ValueError("it has no pictures")
        stream = file.streams.video[0]
        left_out = [packet.is_discard for packet in file.demux(stream) if packet.size]
        if (wanted := sum(entry.size > 0 for entry in stream.index_entries)) > len(left_out):
            raise ValueError(f"it breaks off: it should have {wanted} frames, got {len(left_out)}")
    if all(left_out):
        raise ValueError("it has no frames")
    return left_out.count(False)


VIDEO_SUFFIXES = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg", ".mpeg")
# Frames of a clip, if no size is given.
DEFAULT_FRAMES = 16
# Mean and deviation are taken over at most so many clips.
MAX_MOMENT_CLIPS = 256
# Random stream.
FRAME_STREAM = 1008


def holds_videos(path: Path) -> bool:
    """Whether the first image or video in a folder's train/ is a video."""
    kinds = (file.suffix.lower() for file in (path / "train").rglob("*"))
    return next((kind for kind in kinds if kind in VIDEO_SUFFIXES or kind in IMG_EXTENSIONS), None) in VIDEO_SUFFIXES


class VideoClips(ImageCrops):
    """Batches of clips (B 3 frames rows columns), from a random time if there is a seed; or words about a broken file."""

    what = "a video"

    def __init__(
        self,
        samples: Sequence[tuple[str, int]],
        size: tuple[int, ...],
        seed: int | None = None,
        crop: CropRange | None = None,
    ) -> None:
        super().__init__(samples, size, seed or 0, crop)
        self.moving = seed is not None

    @property
    def still(self) -> bool:
        return super().still and not self.moving

    def _draws(self, epoch: int, index: Tensor) -> list[CropDraws]:
        """The numbers of time, if any, and after them those of the box."""
        times = draw_uniform(self.seed, epoch, index, FRAME_STREAM, 2).tolist() if self.moving else [[]] * len(index)
        return [[time, *box] for time, box in zip(times, super()._draws(epoch, index), strict=True)]

    def _open(self, path: str, draws: CropDraws) -> Tensor:
        return read_clip(path, partial(choose_frames, frames=self.size[0], draws=draws[0]))

    def _cut(self, image: Any, draws: CropDraws) -> Tensor:
        return super()._cut(image, draws[1:]).movedim(0, 1)


class VideoData(FolderData):
    """A folder of videos. Mean and deviation are those of at most 256 training clips."""

    things = "videos"
    usual = (DEFAULT_FRAMES, DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    few = MAX_MOMENT_CLIPS

    def __init__(self, path: Path, **options: Any) -> None:
        # Without this, a missing PyAV would only show in the first batch, as the message of a worker.
        import_pyav()
        super().__init__(path, **options)

    def _files(self, path: Path) -> DatasetFolder:
        return DatasetFolder(path, loader=str, extensions=VIDEO_SUFFIXES)

    def _cuts(
        self, samples: Sequence[tuple[str, int]], seed: int | None = None, crop: CropRange | None = None
    ) -> VideoClips:
        return VideoClips(samples, self.size, seed, crop)
