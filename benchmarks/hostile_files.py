"""Hostile files for `damage_trials`, and the readers that open each of them."""

import io
import json
import os
import random
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

import ropewalk as rw
from ropewalk.lab.compare.plan import Comparison, read_outcome
from ropewalk.lab.config import Config
from ropewalk.lab.data.coco import CocoData
from ropewalk.lab.data.dataset_registry import open_dataset
from ropewalk.lab.data.image_files import read_label_map
from ropewalk.lab.data.image_folder import ImageCrops
from ropewalk.lab.data.segmentation import find_map_files
from ropewalk.lab.data.text import TextData
from ropewalk.lab.data.video_folder import VideoClips
from ropewalk.lab.encoding_weights import load_encoding_weights
from ropewalk.lab.metrics_log import list_lines, parse_lines
from ropewalk.lab.record import RunRecord
from ropewalk.lab.record_lines import load_records
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json

CONFIG = Config(data="digits", epochs=1)

# Readers: each is given the path of a hostile file, which stands in for the file that it expects.


def _read_in_run(name: str) -> Callable[[Path], Any]:
    """A reader of a run directory whose file of this name is the hostile one."""

    def read(path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = RunFolder(folder, CONFIG)
            run.acquire({})
            run.log(step=1, epoch=1, loss=1.0)
            run.save_checkpoint({"model/a": torch.zeros(2)}, step=1, epoch=1, data={})
            run.finish(test_accuracy=0.5, encoding_parameters=0)
            run.release()
            (run.path / name).unlink(missing_ok=True)
            (run.path / name).symlink_to(path.absolute())
            read_outcome(run.path)
            found = load_run(run.path)
            RunRecord.from_dict(found.to_dict())
            RunFolder.at(run.path).load_weights()

    return read


def _read_coco(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "annotations").mkdir()
        for number, part in enumerate(("train", "val")):
            (Path(folder) / part).mkdir()
            Image.new("RGB", (8, 8), (number, 0, 0)).save(Path(folder) / part / "a.png")
            (Path(folder) / "annotations" / f"instances_{part}.json").symlink_to(path.absolute())
        data = CocoData(Path(folder), validation=0.0, fraction=1.0, masks=True)
        data.look()
        for part, count in data.counts.items():
            for place in range(min(count, 2)):
                data.read(part, place)


def _read_voc(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lists = Path(folder) / "ImageSets" / "Segmentation"
        lists.mkdir(parents=True)
        (Path(folder) / "JPEGImages").mkdir()
        for name in ("train.txt", "val.txt"):
            (lists / name).symlink_to(path.absolute())
        (Path(folder) / "classes.txt").symlink_to(path.absolute())
        find_map_files(Path(folder), 0.1)


def _read_data(path: Path) -> None:
    data = open_dataset(path)
    for split in data.counts:
        list(data.batches(split, [torch.arange(min(2, data.counts[split]))]))


def _read_sample(samples: ImageCrops) -> None:
    """A sample, or the error of a message that stands in for it."""
    if isinstance(found := samples[0, [0]], str):
        raise ValueError(found)


def _read_weights(path: Path) -> None:
    load_encoding_weights(rw.create("learned-ape", head_dim=8, heads=1, size=(2, 2)), str(path))


RUN_FILES = (
    "config.json", "environment.json", "metrics.jsonl", "result.json", "probes.json", "checkpoint.safetensors", "failed.txt",
)  # fmt: skip
READERS: dict[str, Callable[[Path], Any]] = {
    "json": read_json,
    "records": load_records,
    "metrics": lambda path: parse_lines(path, list_lines(path)),
    "comparison": lambda path: [Comparison.at(path).left(), Comparison.at(path).found()],
    **{f"{name} of a run": _read_in_run(name) for name in RUN_FILES},
    "arrays": _read_data,
    "image": lambda path: _read_sample(ImageCrops([(str(path), 0)], (8, 8))),
    "label map": read_label_map,
    "text": TextData,
    "weights": _read_weights,
    "annotations of COCO": _read_coco,
    "lists of Pascal VOC": _read_voc,
    "video": lambda path: _read_sample(VideoClips([(str(path), 0)], (2, 8, 8))),
}


# Hostile files


def make_hostile_file(number: int, folder: Path, draw: random.Random) -> tuple[str, Path]:
    """Create a hostile file in its own folder and return its description and path. Numbers cycle through the kinds."""
    folder.mkdir()
    name, make = list(KINDS.items())[number % len(KINDS)]
    path = folder / f"some\x1b[31m{draw.choice(('.json', '.jsonl', '.npz', '.png', '.mp4', '.safetensors'))}"
    make(path, draw)
    return f"{name}, number {number}", path


def _write(make: Callable[[random.Random], bytes]) -> Callable[[Path, random.Random], Any]:
    return lambda path, draw: path.write_bytes(make(draw))


def _link(target: str) -> Callable[[Path, random.Random], Any]:
    return lambda path, draw: path.symlink_to(target)


def _make_deep(draw: random.Random) -> bytes:
    depth = draw.choice((101, 900, 5_000, 100_000, 1_000_000))
    start, end = draw.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return start * depth + (b"1" + end * depth if draw.random() < 0.5 else b"")


ANNOTATION = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 4, 4], "segmentation": [[0, 0, 4, 0, 4, 4]]}

IMAGE_ENTRIES = {
    "images": [{"id": 1, "file_name": "a.png", "height": 8, "width": 8}],
    "categories": [{"id": 1, "name": "a"}],
}
RUN_LENGTHS: tuple[Any, ...] = ([0, 64], [1], [], "", "0", "P2", "o" * 50, [0, 10**6], [0, -4, 68], [64])


def _make_document(draw: random.Random) -> bytes:
    """A document of one of the formats, with some values replaced, removed or moved."""
    document = draw.choice(
        (
            RunRecord(config=CONFIG, run=CONFIG.name, metrics=[{"step": 1, "loss": 0.5}]).to_dict(),
            CONFIG.document(),
            {
                "format": "ropewalk comparison 1", "baseline": "none", "seeds": [0], "settings": CONFIG.document(),
                "encodings": [{"label": "none", "encoding": "none", "options": {}}],
                "runs": [{"label": "none", "seed": 0, "run": "none-seed0-0123456789"}],
            },
            {
                **IMAGE_ENTRIES,
                "annotations": [{**ANNOTATION, "segmentation": {"size": [8, 8], "counts": draw.choice(RUN_LENGTHS)}}],
            },
            {**IMAGE_ENTRIES, "annotations": [ANNOTATION]},
            {"cost": [{"name": "a", "seconds": 1.0}], "test_accuracy": 0.5, "ropewalk": {"format": "ropewalk run 2"}},
        )
    )  # fmt: skip
    for _ in range(draw.randint(1, 3)):
        document = _mutate(document, draw)
    return json.dumps(document).encode(errors="surrogatepass") + b"\n"


def _mutate(value: Any, draw: random.Random) -> Any:
    """The value with one value in it replaced or removed."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        rest = {name: each for name, each in value.items() if name != key}
        return rest if draw.random() < 0.2 else {**rest, key: _mutate(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        return [*value[:place], _mutate(value[place], draw), *value[place + 1 :]]
    return draw.choice(ODD_VALUES)


ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**9, 10**400, 1e308, float("nan"), float("inf"), "", "\x1b[31m", "../../etc/passwd", "/etc/passwd",
    "\udc80", "a\0b", "x" * 10_000, [], {}, [[]], [None], {"": None}, [1e999], {"a": {"b": []}}, "none",
    "ropewalk run 9", [-1, "a"],
)  # fmt: skip


def _make_archive(draw: random.Random) -> bytes:
    """A .npz file, one array of which lies about its shape, or is huge, pickled or torn."""
    images, labels = np.zeros((6, 4, 4), np.uint8), np.arange(6) % 2
    out = io.BytesIO()
    np.savez(out, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    with zipfile.ZipFile(out) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice(list(held))
    shape = draw.choice(
        ("(10**12,)", "(1000000000000, 4, 4)", "(-6, 4, 4)", "(6, 4)", "(" * 4000 + ")" * 4000, "'a'", "(6, 4, 4.0)")
    )
    kind = draw.choice(("|u1", "|O", "<f8", "|V9", "<U999999999", "<M8[ns]", "x"))
    words = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(words)) + words
    held[name] = draw.choice((header, header + bytes(96), held[name][: draw.randrange(100)], draw.randbytes(200)))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in held.items():
            archive.writestr(each, data)
    return _tear(out.getvalue(), draw)


def _make_bomb(draw: random.Random) -> bytes:
    """An archive whose one entry claims a tebibyte."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("train_images.npy", "train_labels.npy", "test_images.npy", "test_labels.npy"):
            archive.writestr(name, bytes(10**6))
    data, size = bytearray(out.getvalue()), struct.pack("<I", 2**32 - 2)
    place = data.find(b"PK\x01\x02")
    while place >= 0:  # the sizes in the directory of the archive
        data[place + 24 : place + 28] = size
        place = data.find(b"PK\x01\x02", place + 4)
    return bytes(data)


def _make_image(draw: random.Random) -> bytes:
    out = io.BytesIO()
    kind = draw.choice(("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM", "EPS", "PDF", "ICO", "SGI", "TGA"))
    Image.fromarray(np.frombuffer(draw.randbytes(192), np.uint8).reshape(8, 8, 3)).save(out, kind)
    return _tear(out.getvalue(), draw)


def _make_large_image(draw: random.Random) -> bytes:
    """A PNG that says it has 10^5 × 10^5 pixels, and more."""
    side = draw.choice((100_000, 2**31 - 1))
    out = io.BytesIO()
    Image.new("L", (8, 8)).save(out, "PNG")
    data = out.getvalue()
    return data[:16] + struct.pack(">II", side, side) + data[24:]


def _make_weights(draw: random.Random) -> bytes:
    data = save(
        {"table": torch.zeros(4, 8), "model/a": torch.ones(3)}, metadata={"format": "ropewalk run 2", "run": CONFIG.name}
    )
    if draw.random() < 0.3:
        header = draw.choice(
            (b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}', b"[" * 100_000, b"{}")
        )
        return struct.pack("<Q", draw.choice((len(header), 2**63, 2**31))) + header
    return _tear(data, draw)


def _make_pickle(draw: random.Random) -> bytes:
    out = io.BytesIO()
    torch.save({"a": torch.zeros(2)}, out)
    return out.getvalue()


def _make_playlist(draw: random.Random) -> bytes:
    return draw.choice(
        (
            b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
            b"ffconcat version 1.0\nfile /etc/passwd\n",
            b"/etc/passwd\n../../secret\n",
        )
    )


def _make_video(draw: random.Random) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.mkv"
        with av.open(str(path), "w") as file:
            stream = file.add_stream("ffv1", rate=10)
            stream.height, stream.width, stream.pix_fmt = 16, 16, "gray"
            for value in range(4):
                frame = av.VideoFrame.from_ndarray(np.full((16, 16), value, np.uint8), format="gray")
                file.mux(stream.encode(frame))
            file.mux(stream.encode())
        return _tear(path.read_bytes(), draw)


def _tear(data: bytes, draw: random.Random) -> bytes:
    """The data with a few bytes changed, or cut off."""
    if draw.random() < 0.5:
        return data[: draw.randrange(len(data) + 1)]
    held = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        held[draw.randrange(len(held))] = draw.randrange(256)
    return bytes(held)


KINDS: dict[str, Callable[[Path, random.Random], Any]] = {
    "a named pipe": lambda path, draw: os.mkfifo(path),
    "/dev/zero": _link("/dev/zero"),
    "a terminal": _link("/dev/tty"),
    "a directory": lambda path, draw: path.mkdir(),
    "a link to itself": lambda path, draw: path.symlink_to(path.name),
    "nothing": _write(lambda draw: b""),
    "noise": _write(lambda draw: draw.randbytes(draw.randrange(1, 5_000))),
    "deep JSON": _write(_make_deep),
    "a mutated document": _write(_make_document),
    "another mutated document": _write(_make_document),
    "a document with bytes changed": _write(lambda draw: _tear(_make_document(draw), draw)),
    "an archive": _write(_make_archive),
    "an archive that claims gibibytes": _write(_make_bomb),
    "an image": _write(_make_image),
    "an image that claims to be large": _write(_make_large_image),
    "weights": _write(_make_weights),
    "a pickle": _write(_make_pickle),
    "a playlist": _write(_make_playlist),
    "a video": _write(_make_video),
}
