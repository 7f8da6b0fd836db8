"""Data sets in memory: who is in which split and batch, what files may hold, and that the test set is left alone."""

import json
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from sklearn.datasets import load_digits

from ropewalk.lab.data.base import ImageBatch, ImageSource, MemoryData, channel_moments, resize_images
from ropewalk.lab.data.dataset_registry import list_datasets, open_dataset
from ropewalk.lab.data.npz import infer_layout
from ropewalk.lab.data.sampling import epoch_order, sequential_order, split_train_validation

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def whole(data, split, batch=7):
    """All samples of a split, in order."""
    some = list(data.batches(split, sequential_order(data.counts[split], batch)))
    return ImageBatch(*(torch.cat([getattr(b, name) for b in some]) for name in ("images", "labels", "index")))


def random_images(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def arrays(shape=(5, 7, 3), train=40, test=12, **more):
    """A data set of three classes as MedMNIST would have it."""
    return {
        "train_images": random_images(train, *shape),
        "train_labels": (np.arange(train) % 3).astype(np.uint8)[:, None],
        "test_images": random_images(test, *shape, seed=1),
        "test_labels": (np.arange(test) % 3).astype(np.uint8)[:, None],
    } | more


@pytest.fixture
def saved(tmp_path):
    """Writes a data set and says where; what is None is left out."""

    def save(**contents):
        np.savez(tmp_path / "set.npz", **{key: array for key, array in contents.items() if array is not None})
        return tmp_path / "set.npz"

    return save


# The order of an epoch


def test_an_epoch_has_every_sample_once_but_for_an_incomplete_batch():
    order = epoch_order(53, 12, seed=0, epoch=0)
    assert [len(batch) for batch in order] == [12] * 4
    seen = torch.cat(order)
    assert len(seen.unique()) == 48
    assert (seen.min() >= 0) & (seen.max() <= 52)
    assert not torch.equal(seen, seen.sort().values)


def test_an_order_is_that_of_its_seed_and_epoch():
    orders = {(s, e): torch.cat(epoch_order(40, 8, seed=s, epoch=e)) for s in (0, 1) for e in (0, 1)}
    assert torch.equal(orders[0, 1], torch.cat(epoch_order(40, 8, seed=0, epoch=1)))
    flat = list(orders.values())
    assert not any(torch.equal(a, b) for i, a in enumerate(flat) for b in flat[:i])


def test_an_order_draws_from_nothing_global():
    before = torch.get_rng_state()
    epoch_order(40, 8, seed=0, epoch=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_place_is_as_likely_for_every_sample():
    first = torch.stack([epoch_order(6, 6, seed=0, epoch=e)[0] for e in range(3000)])
    counts = torch.stack([(first == sample).sum(0) for sample in range(6)])
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 52.6  # 25 degrees of freedom, one in a thousand


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_shares_side_by_side_are_the_batch(world):
    alone = epoch_order(53, 12, seed=3, epoch=2)
    shares = [epoch_order(53, 12, seed=3, epoch=2, rank=rank, world=world) for rank in range(world)]
    assert all(len(part) % 2 == 0 for share in shares for part in share)
    for i, batch in enumerate(alone):
        assert torch.equal(torch.cat([share[i] for share in shares]), batch)


@pytest.mark.parametrize(("batch", "world"), [(1, 1), (3, 1), (9, 3), (12, 2)])
def test_shares_that_nothing_pairs_may_be_odd(batch, world):
    order = torch.cat(epoch_order(53, 2, seed=3, epoch=2))
    shares = [epoch_order(53, batch, seed=3, epoch=2, rank=rank, world=world, pairs=False) for rank in range(world)]
    assert {len(part) for share in shares for part in share} == {batch // world}
    found = torch.cat([torch.cat(parts) for parts in zip(*shares, strict=True)])
    assert torch.equal(found[: len(order)], order[: len(found)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 64}, "batch must be at most 53, the number of training samples, got 64"),
        ({"batch": 7}, "batch must be a multiple of 2, since pairs of samples are not split, got 7"),
        (
            {"batch": 12, "world": 4},
            "batch must be a multiple of 8, since pairs of samples are not split among 4 processes, got 12",
        ),
        (
            {"batch": 10, "world": 4},
            "batch must be a multiple of 8, since pairs of samples are not split among 4 processes, got 10",
        ),
        (
            {"batch": 9, "world": 2, "pairs": False},
            "batch must be a multiple of 2, since samples are shared equally among 2 processes, got 9",
        ),
        ({"batch": 0}, "batch must be a positive integer, got 0"),
        ({"batch": 12, "world": 2, "rank": 2}, "rank must be from 0 to 1, below the number of processes, got 2"),
        ({"batch": 12, "rank": -1}, "rank must be from 0 to 0, below the number of processes, got -1"),
    ],
)
def test_orders_that_cannot_be(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        epoch_order(53, **options, seed=0, epoch=0)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize(("count", "batch"), [(23, 5), (20, 5), (21, 4), (3, 8), (0, 4)])
def test_evaluation_sees_every_sample_once(count, batch, world):
    shares = [sequential_order(count, batch, rank, world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    assert all(sum(len(share[i]) for share in shares) <= batch for i in range(len(shares[0])))
    seen = [position for i in range(len(shares[0])) for share in shares for position in share[i].tolist()]
    assert seen == list(range(count))


def test_evaluation_by_a_process_that_is_not_there():
    with pytest.raises(ValueError, match=r"from 0 to 2, .*got 3"):
        sequential_order(9, 3, 3, 3)


# Splits


LABELS = torch.tensor([0] * 101 + [1] * 53 + [2] * 10 + [3] * 2 + [4])[torch.randperm(167, generator=torch.Generator())]


def split(seed=0, validation=0.2, fraction=1.0):
    return split_train_validation(LABELS, seed=seed, validation=validation, fraction=fraction)


def test_training_and_validation_are_all_samples_and_share_none():
    train, held = split()
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(167))
    assert torch.equal(train, train.sort().values)
    assert torch.equal(held, held.sort().values)


@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.31, 0.01])
def test_classes_keep_their_shares_to_half_a_sample(fraction):
    train, held = split(fraction=fraction)
    counts = LABELS.bincount()
    found, rest = LABELS[held].bincount(minlength=5), counts - LABELS[held].bincount(minlength=5)
    wanted = torch.minimum(counts * 0.2, counts - 1.0)
    assert ((found - wanted).abs() <= 0.5).all()
    assert ((LABELS[train].bincount(minlength=5) - (rest * fraction).clamp(min=1)).abs() <= 0.5).all()


def test_every_class_keeps_one_to_train_on():
    train, held = split(validation=0.99, fraction=0.001)
    assert LABELS[train].tolist().count(4) == 1
    assert LABELS[train].unique().tolist() == [0, 1, 2, 3, 4]
    assert len(held) == 167 - 5


def test_validation_does_not_depend_on_the_fraction_and_fractions_are_nested():
    held = split()[1]
    inner: set[int] = set()
    for fraction in (0.05, 0.2, 0.4, 0.41, 0.9, 1.0):
        train, same = split(fraction=fraction)
        assert torch.equal(same, held)
        assert inner <= set(train.tolist())
        inner = set(train.tolist())


def test_a_split_is_that_of_its_seed():
    assert torch.equal(split(seed=1)[1], split(seed=1)[1])
    assert not torch.equal(split(seed=1)[1], split(seed=2)[1])
    assert not torch.equal(split(seed=1, fraction=0.5)[0], split(seed=2, fraction=0.5)[0])


def test_who_is_kept_does_not_follow_from_who_was_nearly_held():
    """Of those who would be held next, half are in half of the rest, because other draws decide."""
    large = torch.zeros(4000, dtype=torch.int64)
    nearly = split_train_validation(large, seed=0, validation=0.5, fraction=1.0)[1].tolist()
    kept = split_train_validation(large, seed=0, validation=0.25, fraction=0.5)[0].tolist()
    assert abs(len(set(nearly) & set(kept)) - 500) < 80


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"validation": 1.0}, r"validation.*0.*1, got 1.0"),
        ({"validation": -0.1}, r"validation.*0.*1, got -0.1"),
        ({"validation": float("nan")}, r"validation.*0.*1, got nan"),
        ({"fraction": 0.0}, r"fraction.*0.*1, got 0.0"),
        ({"fraction": 1.5}, r"fraction.*0.*1, got 1.5"),
    ],
)
def test_shares_that_cannot_be(options, words):
    with pytest.raises(ValueError, match=words):
        open_dataset("digits", **options)


# Digits


def test_digits_are_scikit_learns():
    data, file = open_dataset(), load_digits()
    assert (data.name, data.channels, data.size) == ("digits", 1, (8, 8))
    assert data.classes == [str(digit) for digit in range(10)]
    assert sum(data.counts.values()) == 1797
    assert json.loads(json.dumps(data.counts)) == data.counts
    assert repr(data) == "digits: 1295 train, 143 validation, 359 test; 10 classes, 1 × 8 × 8"
    found = [whole(data, split) for split in ("train", "validation", "test")]
    images = torch.cat([part.images for part in found]).flatten(1)
    pairs = sorted(zip(images.tolist(), torch.cat([part.labels for part in found]).tolist(), strict=True))
    scaled = np.round(file.images.reshape(1797, 64) * 255 / 16).astype(int).tolist()
    assert pairs == sorted(zip(scaled, file.target.tolist(), strict=True))


def test_the_test_set_of_digits_is_the_same_for_all_seeds_and_stratified():
    first, second = whole(open_dataset(seed=0), "test"), whole(open_dataset(seed=5, validation=0.3, fraction=0.2), "test")
    assert torch.equal(first.images, second.images)
    counts = np.bincount(load_digits().target)
    assert (np.abs(first.labels.bincount().numpy() - counts * 0.2) <= 0.5).all()


def test_an_index_is_a_samples_own_whatever_the_split():
    """The same index is the same image in all splits of the training set."""
    images = {}
    for options in ({}, {"seed": 4}, {"fraction": 0.3}, {"validation": 0.4}):
        data = open_dataset(**options)
        for split in ("train", "validation"):
            part = whole(data, split)
            assert part.index.dtype == part.labels.dtype == torch.int64
            for number, image, label in zip(part.index.tolist(), part.images, part.labels.tolist(), strict=True):
                held, known = images.setdefault(number, (image, label))
                assert torch.equal(image, held)
                assert label == known
    assert sorted(images) == list(range(1438))


def test_batches_hold_the_positions_that_were_asked_for():
    data = open_dataset(fraction=0.5)
    all_of_it = whole(data, "train")
    order = [torch.tensor([5, 0, 5]), torch.tensor([], dtype=torch.int64), torch.tensor([2])]
    found = list(data.batches("train", order, epoch=3))
    assert [tuple(batch.images.shape) for batch in found] == [(3, 1, 8, 8), (0, 1, 8, 8), (1, 1, 8, 8)]
    for batch, positions in zip(found, order, strict=True):
        assert batch.images.dtype == torch.uint8
        assert torch.equal(batch.images, all_of_it.images[positions])
        assert torch.equal(batch.labels, all_of_it.labels[positions])
        assert torch.equal(batch.index, all_of_it.index[positions])
    assert list(data.batches("train", [])) == []


@pytest.mark.parametrize(
    ("split", "positions", "words"),
    [
        ("train", torch.tensor([0, 1295]), r"positions.*0.*1294.*'train', got 0.*1295"),
        ("validation", torch.tensor([-1]), r"positions.*0.*142.*'validation', got -1.*-1"),
        ("train", torch.tensor([0.0]), r"int64 \(B,\), got torch.float32 \(1,\)"),
        ("train", torch.tensor([[0]]), r"int64 \(B,\), got torch.int64 \(1, 1\)"),
        ("val", torch.tensor([0]), r"split 'val'.*train, validation, test"),
    ],
)
def test_batches_that_cannot_be_are_refused_at_once(split, positions, words):
    with pytest.raises(ValueError, match=words):
        open_dataset().batches(split, [positions])


def test_mean_and_deviation_are_those_of_what_is_trained_on():
    data = open_dataset(fraction=0.3)
    images = whole(data, "train").images.numpy() / 255
    np.testing.assert_allclose(data.mean, [images.mean()], rtol=1e-12)
    np.testing.assert_allclose(data.std, [images.std()], rtol=1e-12)
    assert data.mean != open_dataset().mean


def test_moments_are_per_channel_and_the_same_for_any_chunks():
    images = torch.from_numpy(random_images(11, 3, 5, 7)).clone()
    images[:, 1] = 9
    mean, std = channel_moments([images], 3)
    array = images.numpy().astype(np.float64) / 255
    np.testing.assert_allclose(mean, array.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, array.std((0, 2, 3)), rtol=1e-12, atol=1e-15)
    assert std[1] == 0
    assert channel_moments(images.split(4), 3) == (mean, std)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_batches_come_where_the_data_were_sent(split):
    data = open_dataset().to("meta")
    (batch,) = data.batches(split, [torch.arange(4)])
    assert {tensor.device.type for tensor in (batch.images, batch.labels, batch.index)} == {"meta"}
    assert tuple(batch.images.shape) == (4, 1, 8, 8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: whether batches there equal those of a CPU")
def test_batches_on_a_gpu_are_those_of_a_cpu():
    here, there = open_dataset(size=(5, 7)), open_dataset(size=(5, 7)).to("cuda")
    assert there.mean == here.mean
    for split in ("train", "validation", "test"):
        one, other = whole(here, split), whole(there, split)
        assert other.images.is_cuda
        assert all(torch.equal(getattr(one, n), getattr(other, n).cpu()) for n in ("images", "labels", "index"))
    back = whole(there.to("cpu"), "train")
    assert torch.equal(back.images, whole(here, "train").images)


# Sizes


@pytest.mark.parametrize("size", [(5, 7), (3, 8), (13, 20)])
def test_images_are_resized_as_pillow_does_it(size):
    images = torch.from_numpy(random_images(4, 3, 11, 9))
    found = resize_images(images, size)
    assert found.dtype == torch.uint8
    for image, small in zip(images, found, strict=True):
        right = Image.fromarray(image.permute(1, 2, 0).numpy()).resize(size[::-1], Image.Resampling.BILINEAR)
        assert (torch.from_numpy(np.asarray(right).copy()).permute(2, 0, 1).int() - small.int()).abs().max() <= 1


def test_volumes_are_resized_by_lines_along_each_axis():
    volume = random_images(2, 1, 4, 6, 5)
    right = volume.astype(np.float64)
    for axis, side in ((2, 6), (3, 3), (4, 7)):
        old = right.shape[axis]
        at = (np.arange(side) + 0.5) * old / side - 0.5
        right = np.apply_along_axis(lambda line, at=at, old=old: np.interp(at, np.arange(old), line), axis, right)
    found = resize_images(torch.from_numpy(volume), (6, 3, 7))
    assert tuple(found.shape) == (2, 1, 6, 3, 7)
    assert np.abs(found.numpy() - right).max() <= 0.501


def test_volumes_that_shrink_are_means_of_what_each_cell_covers():
    filled = np.random.default_rng(0).integers(0, 2, (3, 1, 6, 9, 4), dtype=np.uint8) * 255
    cells = filled.astype(np.float64).reshape(3, 1, 2, 3, 3, 3, 4).mean((3, 5))
    found = resize_images(torch.from_numpy(filled), (2, 3, 4)).numpy()
    assert np.abs(found - cells).max() <= 0.501
    longer = resize_images(torch.from_numpy(filled), (2, 3, 8)).numpy()
    assert np.abs(longer[..., 1:-1:2] - (0.75 * cells[..., :-1] + 0.25 * cells[..., 1:])).max() <= 0.501
    single = resize_images(torch.from_numpy(filled), (1, 1, 1)).numpy().reshape(3)
    assert np.abs(single - filled.reshape(3, -1).mean(1)).max() <= 0.501
    assert resize_images(torch.from_numpy(filled[:0]), (2, 3, 4)).shape == (0, 1, 2, 3, 4)


def test_a_size_is_that_of_all_splits_and_of_the_moments(saved):
    path = saved(**arrays(), val_images=random_images(6, 5, 7, 3), val_labels=np.arange(6) % 3)
    data = open_dataset(path, size=(4, 9))
    assert data.size == (4, 9)
    for split in ("train", "validation", "test"):
        assert tuple(whole(data, split).images.shape) == (data.counts[split], 3, 4, 9)
    np.testing.assert_allclose(data.std, whole(data, "train").images.numpy().std((0, 2, 3)) / 255, rtol=1e-12)
    assert open_dataset("digits", size=5).size == (5, 5)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((4, 4, 4), r"size.*2, got \(4, 4, 4\)"),
        ((0, 4), r"size.*got 0"),
        (2.5, r"size.*got 2.5"),
    ],
)
def test_sizes_that_cannot_be(size, words):
    with pytest.raises(ValueError, match=words):
        open_dataset("digits", size=size)


# Files


@pytest.mark.parametrize(
    ("shape", "channels", "sides"),
    [
        ((5, 7), 1, (5, 7)),
        ((5, 7, 3), 3, (5, 7)),
        ((5, 7, 1), 1, (5, 7)),
        ((4, 5, 7), 1, (4, 5, 7)),
        ((4, 5, 7, 1), 1, (4, 5, 7)),
        ((4, 5, 7, 3), 3, (4, 5, 7)),
        ((3, 1), 1, (3, 1)),
    ],
)
def test_axes_of_images_are_told_by_their_number_and_the_last(saved, shape, channels, sides):
    contents = arrays(shape)
    data = open_dataset(saved(**contents), validation=0.0)
    assert (data.name, data.channels, data.size) == ("set", channels, sides)
    assert data.counts == {"train": 40, "validation": 0, "test": 12}
    for split in ("train", "test"):
        right = contents[f"{split}_images"].reshape(-1, *sides, channels)
        found = whole(data, split)
        assert torch.equal(found.images.movedim(1, -1), torch.from_numpy(right))
        assert torch.equal(found.labels, torch.arange(data.counts[split]) % 3)
        assert found.images.is_contiguous()


@pytest.mark.parametrize("shape", [(), (5,), (5, 5), (5, 4, 4, 4, 2), (5, 4, 4, 4, 4, 3), (5, 0, 4), (0, 4, 4)])
def test_shapes_that_no_images_have(shape):
    with pytest.raises(ValueError, match=r"these.*\(N, H, W\), \(N, H, W, 3\), \(N, D, H, W\)") as caught:
        infer_layout(shape, "these")
    assert str(caught.value).endswith(f"got {shape}")


def test_arrays_may_lie_in_memory_as_they_like(saved):
    contents = arrays()
    wanted = open_dataset(saved(**contents), validation=0.25)
    strange = {key: np.asfortranarray(array) for key, array in contents.items()}
    strange["train_labels"] = contents["train_labels"][:, 0].astype(">i4")
    found = open_dataset(saved(**strange), validation=0.25)
    for split in ("train", "validation", "test"):
        assert torch.equal(whole(found, split).images, whole(wanted, split).images)
        assert torch.equal(whole(found, split).labels, whole(wanted, split).labels)


def test_a_files_own_validation_set_is_used(saved):
    val = random_images(9, 5, 7, 3, seed=2)
    data = open_dataset(saved(**arrays(), val_images=val, val_labels=np.arange(9) % 3), validation=0.5)
    assert data.counts == {"train": 40, "validation": 9, "test": 12}
    found = whole(data, "validation")
    assert torch.equal(found.images.movedim(1, -1), torch.from_numpy(val))
    assert found.index.tolist() == list(range(9))


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.int64, np.float32])
def test_occupancy_grids_become_black_and_white(saved, dtype):
    grids = {f"{part}_images": random_images(n, 4, 5, 6, seed=n) % 2 for part, n in (("train", 40), ("test", 12))}
    data = open_dataset(saved(**(arrays() | {key: grid.astype(dtype) for key, grid in grids.items()})))
    for split in ("train", "validation", "test"):
        assert whole(data, split).images.unique().tolist() == [0, 255]
    assert torch.equal(whole(data, "test").images[:, 0], torch.from_numpy(grids["test_images"] * np.uint8(255)))


@pytest.mark.parametrize("kind", [np.uint8, bool])
def test_test_images_that_are_training_images_are_told_and_stay(saved, kind):
    """Whatever type they have in the file; those that differ in one pixel are others."""
    train, test = random_images(40, 4, 5, 6) % 2, random_images(12, 4, 5, 6, seed=1) % 2
    test[[2, 7, 11]] = train[[0, 39, 39]]
    test[4] = train[5]
    test[4, 3, 4, 5] ^= 1
    data = open_dataset(saved(**arrays(train_images=train, test_images=test.astype(kind))))
    with pytest.warns(UserWarning, match=r"set\.npz.*3 of 12 test images.*training set"):
        found = whole(data, "test")
    assert torch.equal(found.images[:, 0], torch.from_numpy(test) * 255)
    assert whole(open_dataset(saved(**arrays())), "test").images.shape == (12, 3, 5, 7)  # without a word


def test_training_images_decide_whether_one_is_white(saved):
    dark = arrays(test_images=np.ones((12, 5, 7, 3), dtype=np.uint8))
    assert whole(open_dataset(saved(**dark)), "test").images.unique().tolist() == [1]
    grids = arrays(train_images=np.ones((40, 5, 7, 3), dtype=np.uint8))
    data = open_dataset(saved(**grids))
    with pytest.raises(ValueError, match=r"test_images.*set.npz.*0.*1.*got uint8"):
        data.batches("test", [])


def test_classes_may_have_names(saved):
    assert open_dataset(saved(**arrays())).classes == ["0", "1", "2"]
    assert open_dataset(saved(**arrays(), classes=np.array(["ox", "ass", "hen", "owl"]))).classes == [
        "ox",
        "ass",
        "hen",
        "owl",
    ]


def with_one(array, value):
    array = array.copy()
    array.reshape(-1)[5] = value
    return array


FLOATS = np.linspace(-1, 2, 40 * 105).reshape(40, 5, 7, 3)
LABEL = np.arange(40) % 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_labels": None}, "train_labels, got train_images, test_images, test_labels"),
        ({"test_images": None, "test_labels": None}, "test_images, test_labels"),
        ({"val_images": random_images(4, 5, 7, 3)}, "must have val_labels, got"),
        ({"train_labels": LABEL[:39]}, r"train_labels.*\(40,\).*\(40, 1\).*40.*got \(39,\)"),
        ({"test_labels": LABEL[:11]}, r"test_labels.*\(12,\).*\(12, 1\).*got \(11,\)"),
        ({"train_labels": np.zeros((40, 14), dtype=int)}, r"train_labels.*got \(40, 14\)"),
        (
            {"train_images": FLOATS},
            r"train_images.*uint8.*0.*1.*got float64.*-1.0.*2.0",
        ),
        ({"train_images": with_one(FLOATS, np.nan)}, r"train_images.*got float64.*NaN"),
        ({"train_images": np.full((40, 5, 7, 3), "a")}, "train_images .* got <U1"),
        ({"train_images": random_images(40, 5)}, r"train_images.*\(N, H, W\).*got \(40, 5\)"),
        ({"test_images": random_images(12, 5, 8, 3)}, r"one size.*got \(5, 7, 3\) and \(5, 8, 3\)"),
        ({"test_images": random_images(12, 5, 7)}, r"got \(5, 7, 3\).*\(5, 7, 1\)"),
        ({"train_labels": with_one(LABEL, -1)}, r"classes.*got -1, 0, 1, 2"),
        ({"train_labels": LABEL * 2}, r"classes.*got 0, 2, 4"),
        ({"train_labels": LABEL * 1.0}, r"train_labels.*0.*2, got float64.*0.0.*2.0"),
        ({"classes": np.array(["ox", "ass"])}, r"train_labels.*0.*1, got uint8.*0.*2"),
        ({"train_images": np.full((40, 5, 7, 3), None)}, r"train_images.*cannot be read"),
        ({"classes": np.array(["ox", 1], dtype=object)}, r"classes.*cannot be read"),
    ],
)
def test_files_that_hold_something_else(saved, change, words):
    with pytest.raises(ValueError, match=words):
        open_dataset(saved(**(arrays() | change)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_labels": np.arange(12)}, r"test_labels.*0.*2, got int64.*0.*11"),
        ({"test_images": np.zeros((12, 5, 7, 3), dtype=np.float32)}, r"test_images.*uint8.*got float32"),
    ],
)
def test_tests_that_hold_something_else_are_found_when_they_are_read(saved, change, words):
    data = open_dataset(saved(**(arrays() | change)))
    with pytest.raises(ValueError, match=words):
        data.batches("test", [])


def test_files_that_are_no_archives(tmp_path, saved):
    path = tmp_path / "noise.npz"
    path.write_bytes(random_images(1000).tobytes())
    with pytest.raises(ValueError, match=r"noise\.npz.*cannot be read"):
        open_dataset(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"noise\.npz.*cannot be read"):
        open_dataset(path)
    with path.open("wb") as file:
        np.save(file, np.arange(5))
    with pytest.raises(ValueError, match=r"\.npz.*got one array"):
        open_dataset(path)
    whole_file = saved(**arrays()).read_bytes()
    path.write_bytes(whole_file[: len(whole_file) // 2])
    with pytest.raises(ValueError, match=r"noise\.npz.*cannot be read"):
        open_dataset(path)


def spoilt(path, member):
    """The same archive, a byte of one array changed, which its checksum betrays."""
    with zipfile.ZipFile(path) as file:
        start = file.getinfo(member).header_offset + 400
    contents = bytearray(path.read_bytes())
    contents[start] ^= 255
    path.write_bytes(contents)
    return path


def test_a_spoilt_byte_is_found(saved):
    with pytest.raises(ValueError, match=r"train_images.*set.npz cannot be read: Bad CRC-32"):
        open_dataset(spoilt(saved(**arrays()), "train_images.npy"))


class Trap:
    """Says that it was unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize("key", ["train_images", "train_labels", "classes"])
def test_nothing_is_unpickled(saved, key):
    with pytest.raises(ValueError, match="cannot be read: it holds Python objects") as caught:
        open_dataset(
            saved(**(arrays() | {key: np.full((40, 5, 7, 3) if key == "train_images" else 40, Trap(), dtype=object)}))
        )
    assert "allow_pickle" not in str(caught.value)


def test_a_pickle_is_no_archive(tmp_path):
    (tmp_path / "set.npz").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match=r"cannot be read: it is no \.npz file") as caught:
        open_dataset(tmp_path / "set.npz")
    assert "allow_pickle" not in str(caught.value)


# The test set is read once, at the end


def used(data):
    """Everything but the test set."""
    assert all(value >= 0 for value in (*data.mean, *data.std))
    assert data.counts["test"]
    for split in ("train", "validation"):
        whole(data.to("cpu"), split)


def test_arrays_of_the_test_set_are_not_read_before_its_batches(saved, monkeypatch):
    log, read = [], np.lib.npyio.NpzFile.__getitem__

    def spy(self, key):
        log.append(key)
        return read(self, key)

    path = saved(**arrays())
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", spy)
    data = open_dataset(path)
    used(data)
    assert sorted(log) == ["train_images", "train_labels"]
    for _ in range(2):
        data.batches("test", [])
        assert sorted(log) == ["test_images", "test_labels", "train_images", "train_labels"]


def test_a_spoilt_test_set_harms_nobody_before(saved):
    data = open_dataset(spoilt(saved(**arrays((40, 50, 3))), "test_images.npy"))
    used(data)
    with pytest.raises(ValueError, match=r"test_images.*cannot be read: Bad CRC-32"):
        data.batches("test", [])


def test_a_source_is_asked_for_its_test_set_once():
    samples = torch.zeros(9, 1, 3, 5, dtype=torch.uint8), torch.arange(9) % 3
    asked = []
    source = ImageSource("odd", ["a", "b", "c"], samples, None, lambda: asked.append(1) or samples, 9)
    data = MemoryData(source, seed=0, validation=0.4, fraction=1.0, size=None)
    used(data)
    assert not asked
    assert len(whole(data, "test").index) == len(whole(data, "test").index) == 9
    assert len(asked) == 1


def test_a_test_set_of_another_length_is_refused():
    samples = torch.zeros(9, 1, 3, 5, dtype=torch.uint8), torch.arange(9) % 3
    data = MemoryData(
        ImageSource("odd", ["a"] * 3, samples, None, lambda: samples, 8), seed=0, validation=0, fraction=1, size=None
    )
    for _ in range(2):
        with pytest.raises(ValueError, match=r"test set of odd.*8.*got 9"):
            data.batches("test", [])


# torchvision's sets


def fake(log, shape, tensors):
    """A class like torchvision's, with 90 images to train on and 10,000 to test."""

    class Fake:
        def __init__(self, root, train, download):
            log.append((Path(root), train, download))
            count = 90 if train else 10_000
            self.data = np.broadcast_to(random_images(count, *[1] * len(shape)), (count, *shape)).copy()
            self.targets, self.classes = [i % 9 for i in range(count)], [f"class {i}" for i in range(9)]
            if tensors:
                self.data, self.targets = torch.from_numpy(self.data), torch.tensor(self.targets)

    return Fake


@pytest.mark.parametrize(
    ("name", "kind", "shape", "tensors"),
    [
        ("cifar10", "CIFAR10", (5, 7, 3), False),
        ("cifar100", "CIFAR100", (5, 7, 3), False),
        ("mnist", "MNIST", (5, 7), True),
        ("fashion_MNIST", "FashionMNIST", (5, 7), True),
    ],
)
def test_sets_of_torchvision(monkeypatch, name, kind, shape, tensors):
    log = []
    monkeypatch.setattr(torchvision.datasets, kind, fake(log, shape, tensors))
    data = open_dataset(name, "some/where", validation=0.2)
    used(data)
    assert log == [(Path("some/where"), True, False)]
    assert data.counts == {"train": 72, "validation": 18, "test": 10_000}
    assert (data.channels, data.size, data.classes[8]) == (3 if len(shape) == 3 else 1, (5, 7), "class 8")
    (batch,) = data.batches("test", [torch.tensor([9_999, 3])])
    assert batch.labels.tolist() == [0, 3]
    assert batch.images[:, 0, 0, 0].tolist() == random_images(10_000)[[9_999, 3]].tolist()
    assert log[1:] == [(Path("some/where"), False, False)]
    for split in ("train", "validation"):
        assert (whole(data, split).labels.bincount() == data.counts[split] // 9).all()


@pytest.mark.parametrize(
    ("name", "kind", "folder"),
    [
        ("cifar10", "CIFAR10", "cifar-10-batches-py"),
        ("cifar100", "CIFAR100", "cifar-100-python"),
        ("mnist", "MNIST", "MNIST/raw"),
        ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw"),
    ],
)
def test_what_is_absent_is_named_with_the_line_that_gets_it(tmp_path, name, kind, folder):
    with pytest.raises(ValueError, match="was not found") as caught:
        open_dataset(name, tmp_path)
    assert str(caught.value).startswith(f"the dataset {name} was not found in {tmp_path / folder}. To download it, run ")
    assert f"torchvision.datasets.{kind}({str(tmp_path)!r}, download=True)" in str(caught.value)


def test_a_cifar_of_other_making_is_not_unpickled(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for part, count in (("train", 20), ("test", 10)):
        contents = {"data": random_images(count, 3072), "fine_labels": [0] * count, "trap": Trap()}
        (folder / part).write_bytes(pickle.dumps(contents))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": ["a"], "trap": Trap()}))
    with pytest.raises(ValueError, match=r"cifar-100-python.*cannot be read \(Dataset"):
        open_dataset("cifar100", tmp_path)


def test_a_spoilt_mnist_is_named(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (folder / f"{part}-{kind}-ubyte").write_bytes(b"\0\0\10\3" + bytes(13))
    with pytest.raises(ValueError, match=r"MNIST/raw.*cannot be read"):
        open_dataset("mnist", tmp_path)


# Names


def test_names_are_pinned():
    assert list_datasets() == ["digits", "cifar10", "cifar100", "mnist", "fashion-mnist"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cifar-100", r"'cifar-100'.*digits, cifar10.*Did you mean 'cifar100'"),
        ("xyzzy", r"'xyzzy'.*cifar10, cifar100.*fashion-mnist"),
        ("absent.npz", r"absent\.npz does not exist"),
        ("some/where", "some/where"),
    ],
)
def test_names_of_nothing(name, words):
    with pytest.raises(ValueError, match=words):
        open_dataset(name)


def test_workers_that_cannot_be():
    with pytest.raises(ValueError, match=r"workers.*0.*got -1"):
        open_dataset("digits", workers=-1)


# Real volumes


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data beside the checkout: loading ModelNet10")
def test_modelnet10(tmp_path):
    path = tmp_path / "modelnet10.npz"
    subprocess.run([sys.executable, SHARED / "unpack.py", "modelnet10", path], check=True, capture_output=True)
    data = open_dataset(path)
    assert (data.name, data.channels, data.size) == ("modelnet10", 1, (30, 30, 30))
    assert (data.counts["train"] + data.counts["validation"], data.counts["test"]) == (3991, 908)
    assert (len(data.classes), data.classes[0]) == (10, "bathtub")
    with pytest.warns(UserWarning, match=r"72 of 908 test images.*training set"):
        (batch,) = data.batches("test", [torch.arange(908)])
    with np.load(path) as file:
        assert torch.equal(batch.images[:, 0], torch.from_numpy(file["test_images"]) * 255)
        assert batch.labels.tolist() == file["test_labels"].tolist()
    assert 0.01 < data.mean[0] < 0.3
