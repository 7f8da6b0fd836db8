"""Folders of videos: frames at equal distances, cut alike, drawn by seed, epoch and index alone; broken files by name."""

import importlib.util
import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from ropewalk.lab.config import Config
from ropewalk.lab.data.base import CropRange
from ropewalk.lab.data.dataset_registry import open_dataset
from ropewalk.lab.data.image_folder import FILE_CROP_STREAM, choose_crop_box
from ropewalk.lab.data.sampling import sequential_order
from ropewalk.lab.data.video_folder import VideoData, choose_frames, read_clip
from ropewalk.lab.hash_random import draw_uniform
from ropewalk.lab.probes import probe_run
from ropewalk.lab.train import train_run

NEEDED = pytest.mark.skipif(importlib.util.find_spec("av") is None, reason="needs PyAV, which reads videos: pip install av")
LENGTHS = (12, 5, 30)
STEP = 8
"""Brightness that a video gains from frame to frame: what a frame shows says which one it is."""


def write(path, frames, codec="ffv1", colours="gray", form=None, **options):
    """A video of grey frames, without loss if nothing else is said."""
    import av

    with av.open(str(path), "w", options=form or {}) as file:
        stream = file.add_stream(codec, rate=10, options=options)
        stream.height, stream.width = frames[0].shape
        stream.pix_fmt = colours
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        file.mux(stream.encode())


def film(path, count, size=(24, 40), first=0):
    """A video whose frame i has the brightness first + i · STEP."""
    write(path, [np.full(size, first + i * STEP, dtype=np.uint8) for i in range(count)])


@pytest.fixture
def films(tmp_path):
    """Two classes, three videos of other lengths in each, and as many for the test."""
    for part in ("train", "val"):
        for name in ("falls", "rises"):
            (tmp_path / "films" / part / name).mkdir(parents=True)
            for i, count in enumerate(LENGTHS):
                film(tmp_path / "films" / part / name / f"{i}.mkv", count, first=3 * (name == "rises"))
    return tmp_path / "films"


def opened(path, **options):
    return open_dataset(path, **{"size": (4, 6, 10), "workers": 0, "validation": 0.0} | options)


def passed(data, split="train", epoch=0, batch=2):
    return list(data.batches(split, sequential_order(data.counts[split], batch), epoch=epoch))


def numbers_of(clip):
    """Which frames of its video a clip (3 T H W) shows: all of a frame has one brightness."""
    assert (clip.flatten(2).amax(2) - clip.flatten(2).amin(2)).max() <= 1
    return (clip.float().mean((0, 2, 3)) / STEP).round().int().tolist()


# Which frames


@pytest.mark.parametrize(("count", "frames"), [(1, 1), (7, 1), (5, 5), (9, 4), (10, 4), (100, 8), (3, 2)])
def test_frames_are_at_equal_distances_inside_the_video(count, frames):
    seen = set()
    for draws in (*np.random.default_rng(0).random((400, 2)).tolist(), ()):
        places = choose_frames(count, frames, draws)
        assert len(places) == frames
        assert 0 <= places[0] <= places[-1] < count
        steps = {b - a for a, b in itertools.pairwise(places)}
        assert len(steps) <= 1
        seen |= steps
    assert seen == set(range(1, (count - 1) // (frames - 1) + 1) if frames > 1 else ())


def test_without_draws_a_clip_spans_the_middle():
    assert choose_frames(10, 4) == [0, 3, 6, 9]
    assert choose_frames(12, 4) == [1, 4, 7, 10]
    assert choose_frames(7, 1) == [3]


def test_every_start_is_drawn():
    first = [choose_frames(10, 4, (0.0, v))[0] for v in np.linspace(0, 1, 701)[:-1]]
    assert np.bincount(first).tolist() == [100] * 7


def test_short_videos_repeat_frames():
    assert choose_frames(2, 5) == [0, 0, 0, 1, 1]
    assert choose_frames(1, 3, (0.9, 0.9)) == [0, 0, 0]


# Reading


@NEEDED
def test_a_clip_has_the_frames_that_were_asked_for(tmp_path):
    film(tmp_path / "one.mkv", 9, (6, 10), first=1)
    found = read_clip(str(tmp_path / "one.mkv"), lambda count: [0, count - 1, 4, 4])
    assert found.shape == (4, 3, 6, 10)
    assert found.dtype == torch.uint8
    assert (found.float().mean((1, 2, 3)) - torch.tensor([1.0, 65.0, 33.0, 33.0])).abs().max() <= 1


@NEEDED
def test_frames_that_lie_in_another_order_in_the_file_are_counted_as_they_are_shown(tmp_path):
    """An .mp4 says how many frames it has, and has those later that are made of two others."""
    import av

    path = str(tmp_path / "one.mp4")
    write(path, [np.full((32, 48), 20 * i, dtype=np.uint8) for i in range(11)], "mpeg4", "yuv420p", bf="2")
    with av.open(path) as file:
        assert file.streams.video[0].frames == 11
        assert any(packet.pts != packet.dts for packet in file.demux(video=0) if packet.size)
    found = read_clip(path, lambda count: list(range(count)))
    assert (found.float().mean((1, 2, 3)) - torch.arange(11) * 20.0).abs().max() < 4


@NEEDED
def test_a_folder_of_videos_is_data_like_any_other(films):
    data = opened(films, validation=0.3)
    assert isinstance(data, VideoData)
    assert (data.name, data.classes, data.channels, data.size) == ("films", ["falls", "rises"], 3, (4, 6, 10))
    assert data.counts == {"train": 4, "validation": 2, "test": 6}
    (batch,) = passed(data, "test", batch=6)
    assert batch.images.shape == (6, 3, 4, 6, 10)
    assert batch.labels.tolist() == [0, 0, 0, 1, 1, 1]
    wanted = [choose_frames(count, 4) for count in LENGTHS]
    assert [numbers_of(each) for each in batch.images] == wanted * 2
    assert 0 < data.mean[0] < 1
    assert open_dataset(films, workers=0).size == (16, 224, 224)


@NEEDED
@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes:UserWarning")
def test_training_clips_follow_from_seed_epoch_and_index(films, monkeypatch):
    monkeypatch.setattr("ropewalk.lab.data.loader.count_cpu_cores", lambda: 2)
    data = opened(films, seed=3)
    for epoch in (0, 5):
        for batch in passed(data, epoch=epoch):
            draws = draw_uniform(3, epoch, batch.index, 1008, 2).tolist()
            wanted = [choose_frames(LENGTHS[i % 3], 4, own) for i, own in zip(batch.index.tolist(), draws, strict=True)]
            assert [numbers_of(each) for each in batch.images] == wanted
    for other in (opened(films, seed=3, workers=2), opened(films, seed=3)):
        for one, two in zip(passed(data, epoch=2), passed(other, epoch=2), strict=True):
            assert torch.equal(one.images, two.images)
    moved = [torch.cat([batch.images for batch in passed(each, epoch=epoch)]) for each, epoch in
             ((data, 0), (data, 1), (opened(films, seed=4), 0))]  # fmt: skip
    assert not torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])


@NEEDED
def test_all_frames_are_cut_alike(films):
    """One box for the whole clip, resized as Pillow does it; at evaluation the middle."""
    path = films / "train" / "falls" / "0.mkv"
    ramp = np.add.outer(np.arange(24) * 4, np.arange(40) * 3).astype(np.uint8)
    write(path, [ramp] * 8)
    batch = passed(opened(films, crop=CropRange((0.3, 0.6)), seed=2), epoch=1)[0]
    assert batch.index[0] == 0
    draws = draw_uniform(2, 1, batch.index, FILE_CROP_STREAM, 40).view(-1, 10, 4).tolist()[0]
    top, left, height, width = choose_crop_box((24, 40), draws, CropRange((0.3, 0.6)))
    image = Image.fromarray(ramp).crop((left, top, left + width, top + height)).resize((10, 6), Image.Resampling.BILINEAR)
    assert (batch.images[0].int() - torch.from_numpy(np.asarray(image).copy()).int()).abs().max() <= 2
    middle = passed(opened(films))[0].images[0]
    assert (middle == middle[:, :1]).all()
    image = Image.fromarray(ramp).resize((11, 7), Image.Resampling.BILINEAR).crop((0, 0, 10, 6))
    assert (middle.int() - torch.from_numpy(np.asarray(image).copy()).int()).abs().max() <= 2


@NEEDED
def test_files_that_break_are_named(films):
    path = films / "train" / "rises" / "1.mkv"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"rises/1\.mkv cannot be read"):
        passed(opened(films))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"rises/1\.mkv cannot be read"):
        passed(opened(films))
    path.unlink()
    assert opened(films).counts["train"] == 5
    for left in (films / "train" / "rises").iterdir():
        left.unlink()
    with pytest.raises(ValueError, match=r"films/train.*each class.* rises"):
        opened(films)


@NEEDED
def test_a_torn_video_is_named(tmp_path):
    """Its head says how many frames should follow."""
    path = tmp_path / "torn.mp4"
    grey = [np.full((32, 48), 8 * i, dtype=np.uint8) for i in range(20)]
    write(path, grey, "mpeg4", "yuv420p", {"movflags": "+faststart"})
    assert len(read_clip(str(path), lambda count: range(count))) == 20
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ValueError, match=r"20 frames, got 1\d"):
        read_clip(str(path), lambda count: [0])


def cut(source, target, packets, back=0.0, **options):
    """The packets of a film from one on, as they are, shown so many seconds earlier: what begins before 0 is left out."""
    import av

    with av.open(str(source)) as film, av.open(str(target), "w", options=options) as file:
        stream = film.streams.video[0]
        copy = file.add_stream_from_template(stream)
        for packet in [packet for packet in film.demux(stream) if packet.size][packets:]:
            ticks = round(back / packet.time_base)
            packet.pts, packet.dts, packet.stream = packet.pts - ticks, packet.dts - ticks, copy
            file.mux(packet)


@NEEDED
@pytest.mark.parametrize("keys", [12, 1])
def test_a_film_that_was_cut_without_encoding_it_anew_has_the_frames_that_it_shows(tmp_path, keys):
    """The frames before the beginning are in the file, as others are made of them, and are not shown."""
    import av

    grey = [np.full((32, 48), 10 * i, dtype=np.uint8) for i in range(24)]
    write(tmp_path / "whole.mp4", grey, "mpeg4", "yuv420p", g=str(keys), sc_threshold="1000000000")
    cut(tmp_path / "whole.mp4", tmp_path / "cut.mp4", 0, 0.5, avoid_negative_ts="disabled", use_editlist="1")
    with av.open(str(tmp_path / "cut.mp4")) as file:
        assert file.streams.video[0].frames == 24
        assert len(list(file.decode(video=0))) == 19
    with av.open(str(tmp_path / "cut.mp4")) as file:
        assert sum(packet.is_discard for packet in file.demux(video=0)) == (0 if keys == 1 else 5)
    for frames in (2, 5, 19, 24):
        places = torch.tensor(choose_frames(19, frames))
        found = read_clip(str(tmp_path / "cut.mp4"), lambda count, frames=frames: choose_frames(count, frames))
        assert (found.float().mean((1, 2, 3)) - 10 * (places + 5)).abs().max() < 5


@NEEDED
def test_frames_that_cannot_be_made_do_not_count(tmp_path):
    """A film that was cut before frames that are made of the one before the cut, too."""
    grey = [np.full((32, 48), 8 * i, dtype=np.uint8) for i in range(20)]
    write(tmp_path / "whole.mkv", grey, "mpeg2video", "yuv420p", g="6", bf="2")
    cut(tmp_path / "whole.mkv", tmp_path / "cut.mkv", 4)
    assert read_clip(str(tmp_path / "cut.mkv"), lambda count: [0] * count).shape[0] == 16
    found = read_clip(str(tmp_path / "cut.mkv"), lambda count: [0, count - 1])
    assert (found.float().mean((1, 2, 3)) - torch.tensor([48.0, 152.0])).abs().max() < 4


@NEEDED
def test_gaps_of_a_film_are_no_frames(tmp_path):
    """An .avi says how long it is, in frames."""
    import av

    with av.open(str(tmp_path / "gaps.avi"), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.height, stream.width, stream.pix_fmt = 32, 48, "yuv420p"
        for i in (0, 1, 2, 7, 8, 9):
            frame = av.VideoFrame.from_ndarray(np.full((32, 48), 20 * i, dtype=np.uint8), format="gray")
            frame.pts = i
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    with av.open(str(tmp_path / "gaps.avi")) as file:
        assert file.streams.video[0].frames == 10
    assert len(read_clip(str(tmp_path / "gaps.avi"), lambda count: range(count))) == 6


@NEEDED
def test_sound_alone_is_no_video(tmp_path):
    import av

    with av.open(str(tmp_path / "sound.mkv"), "w") as file:
        stream = file.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        file.mux(stream.encode(frame))
        file.mux(stream.encode())
    with pytest.raises(ValueError, match="it has no pictures"):
        read_clip(str(tmp_path / "sound.mkv"), lambda count: [0])


@NEEDED
def test_clips_have_three_sides(films):
    with pytest.raises(ValueError, match=r"size.*3, got \(6, 10\)"):
        opened(films, size=(6, 10))


def test_without_a_reader_it_is_said_what_to_install(tmp_path, monkeypatch):
    for part in ("train", "val"):
        (tmp_path / part / "one").mkdir(parents=True)
        (tmp_path / part / "one" / "a.mp4").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ValueError, match=r"PyAV.*'ropewalk\[video\]'"):
        open_dataset(tmp_path)


# Training


@NEEDED
def test_a_run_learns_from_clips_whoever_reads_them(films, tmp_path):
    """Tubelets of two frames, trained, and probed at other sizes, in time too."""
    config = Config(
        data=str(films), size=(4, 6, 10), patch=(2, 2, 5), width=24, depth=1, heads=2, epochs=2, batch=2, warmup=0.5,
        validation=0.3, workers=0, augment=("resized-crop", "flip"), encoding="axial",
    )  # fmt: skip
    run = train_run(config, tmp_path / "runs")
    assert run.result()["test_accuracy"] >= 0
    found = probe_run(run, ["resolution", "translation", "shuffle"], device="cpu")
    assert {"size": [8, 12, 20], "grid": [4, 6, 4], "mode": "rescale"}.items() <= found["resolution"][-3].items()
    again = train_run(replace(config, workers=1), tmp_path / "others")
    assert again.result()["test_loss"] == pytest.approx(run.result()["test_loss"], rel=1e-5)


@NEEDED
@pytest.mark.parametrize(
    "words", ["#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n", "ffconcat version 1.0\nfile {}\n"]
)
def test_playlists_open_no_other_file(tmp_path, words):
    film(tmp_path / "secret.mkv", 4)
    path = tmp_path / "some.mp4"
    path.write_text(words.format("secret.mkv"))
    with pytest.raises(ValueError, match=r"it must be a video in one of the formats mov,mp4|Invalid data"):
        read_clip(str(path), lambda count: [0])
