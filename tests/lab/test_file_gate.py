"""The gate for files of users: what is not a regular file, too large, too deep or outside of its folder is refused."""

import json
import os
import signal
import socket
import tracemalloc
import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import ropewalk as rw
from ropewalk.lab import file_gate
from ropewalk.lab.compare.plan import Comparison, is_run_locked, read_outcome
from ropewalk.lab.config import Config
from ropewalk.lab.data.coco import CocoData
from ropewalk.lab.data.dataset_registry import hash_data, open_dataset
from ropewalk.lab.data.image_files import read_label_map, read_rgb_image
from ropewalk.lab.data.segmentation import find_map_files
from ropewalk.lab.data.text import TextData
from ropewalk.lab.encoding_spec import parse_options
from ropewalk.lab.encoding_weights import load_encoding_weights
from ropewalk.lab.errors import CommandError, DamagedFileError
from ropewalk.lab.file_gate import (
    MAX_JSON_DEPTH,
    JsonDepthError,
    check_memory_budget,
    check_regular_file,
    find_memory_budget,
    measure_json_depth,
    open_lock_file,
    open_regular_file,
    parse_json,
    read_file_bytes,
    read_file_text,
    resolve_inside,
)
from ropewalk.lab.metrics_log import list_lines
from ropewalk.lab.record_lines import load_records, write_records
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json
from tests.support.detection_folders import entry, paint_coco


def make_pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.fixture(autouse=True)
def hasty():
    """What waits for a named pipe fails instead."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# Regular files


def test_what_is_not_a_regular_file_is_refused_with_what_it_is(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        found = {
            tmp_path / "s": "a socket",
            Path("/dev/zero"): "a character device",
            make_pipe(tmp_path / "p"): "a named pipe",
        }
        for path, kind in found.items():
            for read in (check_regular_file, open_regular_file, read_file_bytes, read_file_text):
                with pytest.raises(OSError, match=rf"{path} must be a regular file, got {kind}") as error:
                    read(path)
                assert error.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        open_regular_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular_file(tmp_path / "nowhere")


def test_a_file_that_becomes_a_pipe_after_it_was_looked_at_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "some"
    path.touch()
    plain = file_gate.check_regular_file
    monkeypatch.setattr(file_gate, "check_regular_file", lambda name: (plain(name), make_pipe(path)))
    with pytest.raises(OSError, match="got a named pipe"):
        open_regular_file(path)


def test_links_to_regular_files_are_followed(tmp_path):
    (tmp_path / "some").write_text("words")
    (tmp_path / "link").symlink_to("some")
    assert read_file_text(tmp_path / "link") == "words"


READERS = {
    "json": read_json,
    "lines": load_records,
    "metrics": list_lines,
    "npz": open_dataset,
    "image": read_rgb_image,
    "map": read_label_map,
    "weights": lambda path: load_encoding_weights(rw.create("learned-ape", head_dim=8, heads=1, size=(2, 2)), str(path)),
    "text": TextData,
    "comparison": Comparison.at,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("device", [False, True])
def test_no_reader_waits_for_a_pipe_or_fills_the_memory(tmp_path, name, device):
    path = tmp_path / "some.npz"
    path.symlink_to("/dev/zero") if device else make_pipe(path)
    with pytest.raises((OSError, ValueError, DamagedFileError, CommandError), match=r"regular file|must be a .*file"):
        READERS[name](path)


@pytest.mark.parametrize(
    "name", ["config.json", "environment.json", "metrics.jsonl", "result.json", "probes.json", "failed.txt"]
)
def test_a_pipe_in_a_run_is_a_problem(tmp_path, name):
    run = RunFolder(tmp_path, Config())
    run.acquire({})
    run.log(step=1)
    run.release()
    make_pipe(run.path / name)
    if name == "config.json":
        with pytest.raises(ValueError, match=r"no config\.json"):
            load_run(run.path)
    else:
        assert any("regular file, got a named pipe" in each for each in load_run(run.path).problems)
    assert name not in ("result.json", "failed.txt") or "a named pipe" in read_outcome(run.path).note
    for checkpoint in ("checkpoint.safetensors", "checkpoint.previous.safetensors"):
        make_pipe(run.path / checkpoint)
    for load in (run.load_checkpoint, run.load_latest_checkpoint, run.load_weights):
        with pytest.raises(DamagedFileError, match="regular file, got a named pipe"):
            load()
    make_pipe(run.path / "lock")
    assert not is_run_locked(run.path)


def test_pipes_in_folders_are_not_opened(tmp_path):
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    make_pipe(tmp_path / "MNIST" / "raw" / "images")
    assert hash_data("mnist", str(tmp_path)) == (None, None)


# Memory


def test_the_budget_is_half_of_the_memory_that_there_is(tmp_path, monkeypatch):
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(file_gate, "CGROUP_LIMIT", tmp_path / "memory.max")
    assert find_memory_budget.__wrapped__() == memory // 2
    (tmp_path / "memory.max").write_text("max\n")
    assert find_memory_budget.__wrapped__() == memory // 2
    (tmp_path / "memory.max").write_text("1000\n")
    assert find_memory_budget.__wrapped__() == 500
    with pytest.raises(ValueError, match=r"^it must take at most .* GiB in memory, half of .*, got 931,322.6 GiB$"):
        check_memory_budget(10**15, "it")


def test_files_larger_than_the_budget_are_not_read(tmp_path, monkeypatch):
    path = tmp_path / "some.txt"
    path.write_bytes(bytes(1001))
    monkeypatch.setattr(file_gate, "find_memory_budget", lambda: 1000)
    for read in (read_file_bytes, TextData):
        with pytest.raises(ValueError, match=r"some\.txt must take at most 1,000 bytes in memory.*got 1,001 bytes"):
            read(path)


def write_npz(path, **changes):
    """A .npz file, in which the bytes of some arrays are others."""
    images, labels = np.zeros((6, 4, 4), np.uint8), np.arange(6) % 2
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (held | {f"{name}.npy": data for name, data in changes.items()}).items():
            archive.writestr(name, data)
    return path


def make_header(shape):
    words = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words.encode()


def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "bomb.npz", train_images=make_header("(6, 4000, 4000)") + bytes(6 * 4000 * 4000))
    assert path.stat().st_size < 10**6
    monkeypatch.setattr(file_gate, "find_memory_budget", lambda: 10**6)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(ValueError, match=r"arrays of .*bomb\.npz must take at most 1,000,000 bytes in memory.*got 96,"):
        open_dataset(path)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (make_header("(100000000000, 4, 4)"), r"train_images\.npy has 128 bytes, fewer than its shape"),
        (make_header("(" * 4000 + ")" * 4000), "cannot be read"),
        (make_header("'4'"), "cannot be read"),
        (b"\x93NUMPY\x01\x00\xff", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_headers_of_arrays_are_not_trusted(tmp_path, header, words):
    with pytest.raises(ValueError, match=words):
        open_dataset(write_npz(tmp_path / "own.npz", train_images=header))


def test_an_encrypted_archive_is_refused(tmp_path):
    path = write_npz(tmp_path / "own.npz")
    data = bytearray(path.read_bytes())
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(magic)
        while at >= 0:
            data[at + flags] |= 1
            at = data.find(magic, at + 4)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"own\.npz must be a \.npz file, but cannot be read: .*encrypted"):
        open_dataset(path)


# JSON


@pytest.mark.parametrize(
    ("data", "depth"),
    [
        ("1", 0),
        ("[]", 1),
        ('{"a": [{}, {}], "b": []}', 3),
        ('"[[["', 0),
        (r'["\\", ["\"]", [1]]]', 3),
        ("[" * 50 + "]" * 50, 50),
        ("[" * 10**6, 10**6),
    ],
)
def test_depth(data, depth):
    assert measure_json_depth(data.encode()) == depth


def test_brackets_in_strings_do_not_count(monkeypatch):
    words = json.dumps({"label": '[{"\\' * 1000, "more": "{" * 1000})
    assert parse_json(words) == json.loads(words)
    monkeypatch.setattr(file_gate, "DEPTH_CHUNK", 7)
    assert measure_json_depth(words.encode()) == 1
    assert measure_json_depth(b"[" * 150 + b"]" * 150) == 150


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 2**20])
def test_the_depth_is_that_of_the_parsed_document(monkeypatch, chunk):
    monkeypatch.setattr(file_gate, "DEPTH_CHUNK", chunk)
    random = Random(0)

    def make(depth):
        parts = [make(depth - 1) for _ in range(random.randrange(3))] if depth else []
        word = "".join(random.choices('\\"[]{}a∢', k=random.randrange(6)))
        return random.choice([[word, *parts], {word: parts}, word])

    def measure(value):
        if isinstance(value, str):
            return 0
        return 1 + max(map(measure, value.values() if isinstance(value, dict) else value), default=0)

    for _ in range(200):
        value = make(4)
        for ascii_only in (True, False):
            assert measure_json_depth(json.dumps(value, ensure_ascii=ascii_only).encode()) == measure(value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
def test_closing_brackets_in_strings_hide_no_depth(monkeypatch, encoding):
    monkeypatch.setattr(file_gate.json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    data = '["∢]",' * 5000 + '"' + "]" * 5000 + '"' + "]" * 5000
    with pytest.raises(JsonDepthError, match="nested at most 100 deep, got 5,000"):
        parse_json(data.encode(encoding))


def test_json_that_python_cannot_parse_here_is_too_deep(monkeypatch):
    def fail(*_, **__):
        raise RecursionError

    monkeypatch.setattr(file_gate.json, "loads", fail)
    with pytest.raises(JsonDepthError, match="than Python can parse it here, got 1"):
        parse_json("[]")


def test_parsed_json_fits_into_the_budget(monkeypatch):
    """Objects and lists take more than their brackets; of annotations like COCO's half a gigabyte is read in 8 GiB."""
    monkeypatch.setattr(file_gate, "find_memory_budget", lambda: 3000)
    assert file_gate.parse_json(json.dumps([{}] * 9)) == [{}] * 9
    with pytest.raises(ValueError, match=r"a JSON document of 40 bytes must take at most 3,000 bytes in memory"):
        file_gate.parse_json(json.dumps([{}] * 10))
    box = [217.62, 240.54, 38.99, 57.75]
    annotation = {
        "segmentation": [[round(100.25 + i / 100, 2) for i in range(40)]],
        "area": 702.1,
        "iscrowd": 0,
        "bbox": box,
    }
    held = [annotation | {"image_id": 500_000 + i, "category_id": 3, "id": i} for i in range(100)]
    text = json.dumps({"annotations": held})
    monkeypatch.setattr(file_gate, "find_memory_budget", lambda: 8 * 2**30 * len(text) // 500_000_000)
    assert file_gate.parse_json(text)["annotations"] == held


def test_the_depth_of_large_strings_takes_little_memory():
    data = b'"' + b"\\\\" * 2**23 + b'"'
    tracemalloc.start()
    try:
        assert measure_json_depth(data + b"[" * 101) == 101
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("depth", [MAX_JSON_DEPTH + 1, 10**5, 10**6])
@pytest.mark.parametrize("ends", [False, True])
def test_deep_json_is_refused_before_it_is_parsed(tmp_path, monkeypatch, depth, ends):
    data = '{"a":' * depth + ("1" + "}" * depth if ends else "")
    monkeypatch.setattr(file_gate.json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    path = tmp_path / "some.jsonl"
    path.write_text(data)
    for read in (read_json, load_records, Comparison.at):
        with pytest.raises(DamagedFileError, match=rf"some\.jsonl.*nested at most 100 deep, got {depth:,}"):
            read(path)
    with pytest.raises(CommandError, match=rf"at most 100 deep, got {depth:,}"):
        parse_options([f"strength={data}"])


def test_options_that_contain_themselves_are_refused():
    from ropewalk.lab.encoding_spec import parse_encoding

    deep = {}
    deep["parts"] = [deep]
    with pytest.raises(CommandError, match="must be plain JSON values"):
        parse_encoding(("chain", deep))


# Folders


def test_names_stay_in_their_folder(tmp_path):
    folder = tmp_path / "data" / "images"
    (folder / "deeper").mkdir(parents=True)
    (tmp_path / "secret").touch()
    (tmp_path / "data" / "other").touch()
    (folder / "in").symlink_to("deeper")
    (folder / "beside").symlink_to("../other")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "deeper" / "away").symlink_to(tmp_path)
    links = ("in", "in/a", "out", "deeper/away/secret", "in/away/secret", "beside")  # made by who owns the folder
    for name in ("a", "deeper/a", "nowhere/a", *links):
        assert resolve_inside(folder, name) == folder / name
    for name in ("", "..", "../other", "deeper/../../other", str(folder / "a"), "/etc/passwd", "a\0b"):
        with pytest.raises(ValueError, match=r"must be relative paths inside .*without '\.\.', got"):
            resolve_inside(folder, name)


def test_annotations_of_coco_name_images_of_their_folder(tmp_path):
    paint_coco(tmp_path / "coco", {"train": [entry(1, 1, [1, 1, 4, 4])]})
    (path,) = (tmp_path / "coco" / "annotations").glob("instances_train*")
    whole = json.loads(path.read_text())
    for name in (str(tmp_path / "secret.png"), "../secret.png"):
        whole["images"][0]["file_name"] = name
        path.write_text(json.dumps(whole))
        with pytest.raises(ValueError, match=r"must be relative paths inside .*train"):
            CocoData(tmp_path / "coco", validation=0.1, fraction=1.0, masks=False)


@pytest.mark.parametrize("name", ["../../secret", "/etc/secret"])
def test_lists_of_voc_name_images_of_their_folder(tmp_path, name):
    (tmp_path / "JPEGImages").mkdir()
    (tmp_path / "ImageSets" / "Segmentation").mkdir(parents=True)
    for part in ("train", "val"):
        (tmp_path / "ImageSets" / "Segmentation" / f"{part}.txt").write_text(f"{name}\n")
    with pytest.raises(ValueError, match=r"must be relative paths inside .*JPEGImages"):
        find_map_files(tmp_path, 0.1)


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "a/b", "..", ".", "", 3, None])
def test_a_comparison_names_runs_of_its_folder(tmp_path, name):
    document = {
        "format": "ropewalk comparison 1", "baseline": "none", "seeds": [0], "settings": {},
        "encodings": [{"label": "none", "encoding": "none", "options": {}}],
        "runs": [{"label": "none", "seed": 0, "run": name}],
    }  # fmt: skip
    (tmp_path / "comparison.json").write_text(json.dumps(document))
    with pytest.raises(DamagedFileError, match=r"comparison\.json has .*(names of runs must be|relative paths)"):
        Comparison.at(tmp_path / "comparison.json")


# Images


@pytest.mark.parametrize("kind", ["EPS", "PDF", "ICO", "PCX", "TGA", "SGI"])
def test_images_of_other_formats_are_not_read(tmp_path, kind):
    Image.new("RGB", (8, 8)).save(tmp_path / "some.png", format=kind)
    with pytest.raises(ValueError, match="must be an image in the format PNG, JPEG"):
        read_rgb_image(tmp_path / "some.png")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM"])
def test_images_of_known_formats_are_read(tmp_path, kind):
    Image.new("RGB", (8, 8)).save(tmp_path / "some.png", format=kind)
    assert read_rgb_image(tmp_path / "some.png").size == (8, 8)


def test_an_image_that_would_fill_the_memory_is_refused_in_words(tmp_path, monkeypatch):
    Image.new("L", (100, 100)).save(tmp_path / "some.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match="it must have at most 2,000 pixels, so that a small file cannot fill"):
        read_rgb_image(tmp_path / "some.png")


def test_weights_that_are_pickles_are_refused(tmp_path):
    encoding = rw.create("learned-ape", head_dim=8, heads=1, size=(2, 2))
    torch.save(encoding.state_dict(), tmp_path / "weights.safetensors")
    with pytest.raises(CommandError, match="is not a complete safetensors file"):
        load_encoding_weights(encoding, str(tmp_path / "weights.safetensors"))
    save_file(encoding.state_dict(), tmp_path / "weights.safetensors")
    load_encoding_weights(encoding, str(tmp_path / "weights.safetensors"))


def test_a_lock_beside_records_that_is_a_pipe_is_refused(tmp_path):
    make_pipe(tmp_path / ".lock")
    with pytest.raises(OSError, match=r"\.lock must be a regular file, got a named pipe"):
        write_records(tmp_path / "some.jsonl", [])


def test_a_lock_that_is_a_link_is_refused_and_its_target_is_kept(tmp_path):
    (tmp_path / "precious").write_text("words")
    (tmp_path / ".lock").symlink_to("precious")
    with pytest.raises(OSError, match=r"\.lock must be a regular file, got a symbolic link"):
        write_records(tmp_path / "some.jsonl", [])
    assert (tmp_path / "precious").read_text() == "words"


def test_a_lock_is_not_truncated_or_waited_for(tmp_path):
    (tmp_path / "lock").write_text("words")
    open_lock_file(tmp_path / "lock").close()
    assert (tmp_path / "lock").read_text() == "words"
    with pytest.raises(IsADirectoryError):
        open_lock_file(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="got a socket"):
            open_lock_file(tmp_path / "s")
