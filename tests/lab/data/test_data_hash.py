"""Hashes of data: they change with the data, and with nothing else."""

import hashlib

import numpy as np

from ropewalk.lab.config import Config
from ropewalk.lab.data.dataset_registry import describe_data, hash_data, open_dataset


def test_a_file_is_hashed_by_its_contents_wherever_it_lies(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"some")
    (tmp_path / "b.npz").write_bytes(b"some")
    wanted = (hashlib.sha256(b"some").hexdigest(), "file contents")
    assert hash_data(str(tmp_path / "a.npz"), "data") == hash_data(str(tmp_path / "b.npz"), "data") == wanted


def test_digits_are_hashed_whatever_is_trained_on():
    found = [
        describe_data(config, open_dataset("digits", seed=config.seed, fraction=config.fraction).facts())
        for config in (Config(), Config(seed=1, fraction=0.5))
    ]
    assert found[0]["sha256"] == found[1]["sha256"]
    assert found[0]["counts"] != found[1]["counts"]
    assert (found[0]["name"], found[0]["sha256_of"]) == ("digits", "arrays")


def test_torchvision_sets_are_hashed_without_the_archives_that_they_came_in(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "train").write_bytes(b"one")
    (raw / "test").write_bytes(b"two")
    before = hash_data("mnist", str(tmp_path))
    (raw / "train.gz").write_bytes(b"packed")
    assert hash_data("mnist", str(tmp_path)) == before
    (raw / "test").write_bytes(b"owt")
    assert hash_data("mnist", str(tmp_path)).sha256 != before.sha256


def test_folders_are_hashed_by_names_and_sizes(tmp_path):
    folder = tmp_path / "images"
    (folder / "train" / "a").mkdir(parents=True)
    (folder / "train" / "a" / "1.png").write_bytes(b"12")
    (folder / "train" / "a" / "2.png").write_bytes(b"123")
    before = hash_data(str(folder), "data")
    assert before.sha256_of == "file names and sizes"
    (folder / ".cache").write_bytes(b"hidden")
    (folder / "train" / "again").symlink_to(folder / "train")  # which leads back to where it lies
    assert hash_data(str(folder), "data") == before
    (folder / "train" / "a" / "2.png").rename(folder / "train" / "a" / "3.png")
    renamed = hash_data(str(folder), "data")
    (folder / "train" / "a" / "3.png").write_bytes(b"1234")
    assert len({before, renamed, hash_data(str(folder), "data")}) == 3


def test_a_text_is_hashed_by_its_splits():
    facts = {name: {"bytes": 3, "sha256": np.base_repr(i, 16)} for i, name in enumerate(("train", "validation", "test"))}
    found = describe_data(Config(data="some/book.txt", length=2), facts)
    assert (found["name"], found["counts"]) == ("book.txt", {"train": 3, "validation": 3, "test": 3})
    other = describe_data(Config(data="some/book.txt", length=2), facts | {"test": {"bytes": 3, "sha256": "F"}})
    assert other["sha256"] != found["sha256"]


def test_data_that_cannot_be_read_have_no_hash(tmp_path):
    assert hash_data(str(tmp_path / "nowhere.npz"), "data") == (None, None)
