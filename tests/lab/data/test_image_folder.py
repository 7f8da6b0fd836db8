"""Folders of images: crops follow from seed, epoch and index alone, whoever reads them."""

import math
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import RandomResizedCrop

from ropewalk.lab.data.base import CropRange
from ropewalk.lab.data.dataset_registry import open_dataset
from ropewalk.lab.data.image_files import read_rgb_image
from ropewalk.lab.data.image_folder import FILE_CROP_STREAM, choose_crop_box
from ropewalk.lab.data.sampling import epoch_order, sequential_order
from ropewalk.lab.hash_random import draw_uniform

SIZES = [(9, 13), (20, 7), (16, 16), (1, 1), (6, 40)]
FIELDS = ("images", "labels", "index")

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes:UserWarning")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    """Two workers are two, also where there is one core, of which torch warns."""
    monkeypatch.setattr("ropewalk.lab.data.loader.count_cpu_cores", lambda: 2)


def paint(folder, count, seed=0, classes=("cat", "dog", "eel")):
    """Images of odd sizes and several kinds in each class."""
    source = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(count):
            colours = source.integers(0, 256, (*SIZES[i % len(SIZES)], 3), dtype=np.uint8)
            Image.fromarray(colours).convert(("RGB", "L", "RGBA")[i % 3]).save(folder / name / f"{i:02}.png")


@pytest.fixture
def pictures(tmp_path):
    paint(tmp_path / "train", 10)
    paint(tmp_path / "val", 3, seed=1)
    return tmp_path


def opened(path, **options):
    return open_dataset(path, **{"size": (6, 10), "workers": 0, "validation": 0.2, "crop": CropRange()} | options)


def passed(data, split="train", epoch=0, batch=4):
    """The batches of a pass in order."""
    return list(data.batches(split, sequential_order(data.counts[split], batch), epoch=epoch))


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(getattr(a, field), getattr(b, field)) for a, b in zip(one, other, strict=True) for field in FIELDS
    )


def file_of(path, part, number):
    """The image with that index, in three channels."""
    files = sorted((path / part).rglob("*.png"))
    return Image.open(files[number]).convert("RGB")


def as_tensor(image):
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)


def test_a_folder_is_data_like_any_other(pictures):
    data = opened(pictures)
    assert (data.name, data.classes, data.channels, data.size) == (pictures.name, ["cat", "dog", "eel"], 3, (6, 10))
    assert data.counts == {"train": 24, "validation": 6, "test": 9}
    assert repr(data).endswith("24 train, 6 validation, 9 test; 3 classes, 3 × 6 × 10")
    found = {split: passed(data, split) for split in data.counts}
    for split, some in found.items():
        labels, index = (torch.cat([getattr(batch, name) for batch in some]) for name in ("labels", "index"))
        assert {batch.images.dtype for batch in some} == {torch.uint8}
        assert {tuple(batch.images.shape[1:]) for batch in some} == {(3, 6, 10)}
        assert torch.equal(labels, index // (3 if split == "test" else 10))
        assert labels.dtype == index.dtype == torch.int64
    numbers = [n for split in ("train", "validation") for batch in found[split] for n in batch.index.tolist()]
    assert sorted(numbers) == list(range(30))


def test_the_size_is_224_if_none_is_asked_for(pictures):
    assert opened(pictures, size=None).size == (224, 224)
    assert opened(pictures, size=8).size == (8, 8)
    with pytest.raises(ValueError, match=r"size.*2, got \(4, 5, 6\)"):
        opened(pictures, size=(4, 5, 6))


# What images look like


def test_training_crops_are_those_of_their_box(pictures):
    data = opened(pictures, seed=7)
    for batch in passed(data, epoch=3):
        draws = draw_uniform(7, 3, batch.index, FILE_CROP_STREAM, 40).view(-1, 10, 4).tolist()
        for image, number, own in zip(batch.images, batch.index.tolist(), draws, strict=True):
            whole = file_of(pictures, "train", number)
            top, left, height, width = choose_crop_box((whole.height, whole.width), own, CropRange())
            cut = whole.crop((left, top, left + width, top + height))
            assert torch.equal(image, as_tensor(cut.resize((10, 6), Image.Resampling.BILINEAR)))


def middle(path, part, number):
    """What evaluation should see of an image."""
    whole = file_of(path, part, number)
    factor = max(6 / whole.height, 10 / whole.width) * 8 / 7
    height, width = round(whole.height * factor), round(whole.width * factor)
    top, left = round((height - 6) / 2), round((width - 10) / 2)
    return as_tensor(whole.resize((width, height), Image.Resampling.BILINEAR))[:, top : top + 6, left : left + 10]


def all_middle(path, part, batches):
    return all(
        torch.equal(image, middle(path, part, number))
        for batch in batches
        for image, number in zip(batch.images, batch.index.tolist(), strict=True)
    )


@pytest.mark.parametrize(("split", "part"), [("validation", "train"), ("test", "val")])
def test_evaluation_looks_at_the_middle_and_draws_nothing(pictures, split, part):
    data = opened(pictures)
    assert all_middle(pictures, part, passed(data, split, epoch=0))
    assert all_middle(pictures, part, passed(data, split, epoch=1))


def boxes(size, count=4000, seed=0):
    draws = draw_uniform(seed, 0, torch.arange(count), FILE_CROP_STREAM, 40).view(-1, 10, 4).tolist()
    return torch.tensor([choose_crop_box(size, own, CropRange()) for own in draws])


@pytest.mark.parametrize("size", [(60, 90), (90, 60), (1, 1), (200, 11), (3, 50)])
def test_boxes_lie_in_the_image(size):
    top, left, height, width = boxes(size, 500).unbind(1)
    assert (torch.stack([top, left]) >= 0).all()
    assert (torch.stack([height, width]) > 0).all()
    assert (top + height <= size[0]).all()
    assert (left + width <= size[1]).all()


@pytest.mark.parametrize("size", [(60, 90), (100, 80), (200, 40)])
def test_boxes_are_distributed_as_torchvisions(size):
    """Means and deviations of place, area and the logarithm of the ratio, within the error of 4000 draws."""
    torch.manual_seed(0)
    blank = torch.zeros(3, *size)
    crops = [RandomResizedCrop.get_params(blank, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)]

    def summary(found):
        top, left, height, width = found.double().unbind(1)
        return torch.stack([top + height / 2, left + width / 2, height * width, (width / height).log()])

    ours, theirs = summary(boxes(size)), summary(torch.tensor(crops))
    error = (ours.var(1) / 4000 + theirs.var(1) / 4000).sqrt()
    assert ((ours.mean(1) - theirs.mean(1)).abs() < 4 * error).all()
    assert ((ours.std(1) / theirs.std(1)).log().abs() < 0.06).all()


def test_four_numbers_are_area_ratio_and_place():
    assert choose_crop_box((100, 100), [[0.5, 0.999, 0.0, 0.0]], CropRange()) == (0, 0, 64, 85)
    assert choose_crop_box((100, 100), [[0.5, 0.0, 0.999, 0.0]], CropRange()) == (15, 0, 85, 64)
    assert choose_crop_box((100, 100), [[0.0, 0.5, 0.0, 0.999]], CropRange()) == (0, 72, 28, 28)
    assert choose_crop_box((80, 100), [[0.999, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0]], CropRange()) == (0, 0, 25, 25)


def test_an_image_in_which_no_box_fits_is_cut_in_its_middle():
    never = [[0.999, 0.5, 0.1, 0.9]] * 10
    assert choose_crop_box((200, 11), never, CropRange()) == (92, 0, 15, 11)
    assert choose_crop_box((3, 50), never, CropRange()) == (0, 23, 3, 4)


# Who decides


def test_crops_change_with_seed_and_epoch_and_are_each_samples_own(pictures):
    first, again = passed(opened(pictures), epoch=1), passed(opened(pictures), epoch=1)
    assert same(first, again)
    assert not same(first, passed(opened(pictures), epoch=2))
    draws = draw_uniform(0, 1, torch.arange(30), FILE_CROP_STREAM, 40)
    assert len(draws.unique(dim=0)) == 30


def test_crops_do_not_depend_on_the_batch(pictures):
    data = opened(pictures)
    order = epoch_order(24, 8, seed=0, epoch=5)
    one = {
        n: image
        for batch in data.batches("train", order, epoch=5)
        for n, image in zip(batch.index.tolist(), batch.images, strict=True)
    }
    for batch in passed(data, epoch=5, batch=5):
        assert all(torch.equal(image, one[n]) for n, image in zip(batch.index.tolist(), batch.images, strict=True))


@pytest.mark.parametrize("options", [{"seed": 3}, {"fraction": 0.5}, {"validation": 0.5}])
def test_an_index_is_a_samples_own_whatever_the_split(pictures, options):
    """The middle of an image, by index, is the same in every validation set."""
    known = {
        n: image
        for b in passed(opened(pictures, validation=0.6), "validation")
        for n, image in zip(b.index.tolist(), b.images, strict=True)
    }
    met = 0
    for batch in passed(opened(pictures, **options), "validation"):
        for number, image in zip(batch.index.tolist(), batch.images, strict=True):
            met += number in known
            assert number not in known or torch.equal(image, known[number])
    assert met


def test_workers_change_nothing(pictures):
    alone, two = opened(pictures), opened(pictures, workers=2)
    assert (alone.workers, two.workers) == (0, 2)
    for split in ("train", "validation", "test"):
        for epoch in (0, 1):
            assert same(passed(alone, split, epoch), passed(two, split, epoch))
    assert (alone.mean, alone.std) == (two.mean, two.std)


def test_workers_stay_and_an_abandoned_pass_leaves_nothing_behind(pictures):
    data = opened(pictures, workers=2)
    next(data.batches("train", sequential_order(24, 2), epoch=0))
    loader = data._readers["train"]._loader
    workers = [worker.pid for worker in loader._iterator._workers]
    assert same(passed(data, epoch=1), passed(opened(pictures), epoch=1))
    assert [worker.pid for worker in loader._iterator._workers] == workers


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_ends_when_another_begins(pictures, workers):
    data = opened(pictures, workers=workers)
    first = data.batches("train", sequential_order(24, 4), epoch=0)
    next(first)
    right = passed(data, epoch=1)
    assert same(right, passed(opened(pictures), epoch=1))
    with pytest.raises(RuntimeError, match="a new pass through 'train'"):
        next(first)


def test_splits_go_side_by_side(pictures):
    data = opened(pictures)
    pairs = list(
        zip(data.batches("train", sequential_order(24, 8)), data.batches("test", sequential_order(9, 3)), strict=True)
    )
    assert same([train for train, _ in pairs], passed(opened(pictures), batch=8))
    assert same([test for _, test in pairs], passed(opened(pictures), "test", batch=3))


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_global_is_drawn_from(pictures, workers):
    before = torch.get_rng_state()
    data = opened(pictures, workers=workers)
    passed(data)
    assert data.mean
    assert torch.equal(torch.get_rng_state(), before)


def test_there_are_no_more_workers_than_cores(pictures, monkeypatch):
    monkeypatch.setattr("ropewalk.lab.data.loader.count_cpu_cores", lambda: 1)
    assert opened(pictures, workers=50).workers == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_may_be_empty(pictures, workers):
    found = list(opened(pictures, workers=workers).batches("test", [torch.arange(2), torch.arange(0)]))
    assert [tuple(batch.images.shape) for batch in found] == [(2, 3, 6, 10), (0, 3, 6, 10)]
    assert found[1].labels.dtype == torch.int64


def test_batches_come_where_the_data_were_sent(pictures):
    (batch,) = opened(pictures).to("meta").batches("train", [torch.arange(4)])
    assert {getattr(batch, field).device.type for field in FIELDS} == {"meta"}


@pytest.mark.parametrize(("most", "numbers"), [(2048, range(30)), (4, (0, 10, 19, 29))])
def test_mean_and_deviation_are_those_of_the_middles_of_some(pictures, monkeypatch, most, numbers):
    monkeypatch.setattr("ropewalk.lab.data.image_folder.FolderData.few", most)
    data = opened(pictures, validation=0.0)
    images = torch.stack([middle(pictures, "train", number) for number in numbers]).numpy() / 255
    np.testing.assert_allclose(data.mean, images.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(data.std, images.std((0, 2, 3)), rtol=1e-12)


# What a folder must have


def test_a_folder_with_val_and_test_has_its_own_validation_set(pictures):
    paint(pictures / "test", 2, seed=5)
    data = opened(pictures)
    assert data.counts == {"train": 30, "validation": 9, "test": 6}
    for split, part in (("validation", "val"), ("test", "test")):
        found = passed(data, split)
        assert all_middle(pictures, part, found)
        assert [number for batch in found for number in batch.index.tolist()] == list(range(data.counts[split]))


def test_a_folder_with_test_alone(pictures):
    (pictures / "val").rename(pictures / "test")
    assert opened(pictures).counts == {"train": 24, "validation": 6, "test": 9}


def test_folders_that_are_something_else(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(ValueError, match=r"photos.*train/.*test/.*val/.*none"):
        open_dataset(tmp_path / "photos")
    paint(tmp_path / "photos" / "train", 2)
    with pytest.raises(ValueError, match=r"photos.*train/.*test/.*val/.*got train"):
        open_dataset(tmp_path / "photos")
    (tmp_path / "photos" / "val").mkdir()
    with pytest.raises(ValueError, match=r"photos/val.*each class"):
        open_dataset(tmp_path / "photos")
    paint(tmp_path / "photos" / "test", 1, classes=("cat", "dog", "emu"))
    (tmp_path / "photos" / "val").rmdir()
    with pytest.raises(ValueError, match=r"photos/test.*classes of train/.*eel, emu"):
        open_dataset(tmp_path / "photos")
    (tmp_path / "photos" / "train" / "ant").mkdir()
    with pytest.raises(ValueError, match=r"photos/train.*each class.* ant"):
        open_dataset(tmp_path / "photos")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("spoil", [lambda whole: b"no image", lambda whole: whole[: len(whole) // 2], lambda whole: b""])
def test_a_spoilt_image_is_named(pictures, workers, spoil):
    file = pictures / "train" / "dog" / "03.png"
    file.write_bytes(spoil(file.read_bytes()))
    data = opened(pictures, validation=0.0, workers=workers)
    with pytest.raises(ValueError, match=re.escape(f"{file} cannot be read as an image: ")):
        passed(data)


@pytest.mark.parametrize(("kind", "form"), [(np.uint16, "PNG"), (np.int32, "TIFF"), (np.float32, "TIFF")])
def test_images_of_more_than_8_bits_are_refused(pictures, kind, form):
    """They would become white or black, as nothing tells what their values mean."""
    file = pictures / "train" / "dog" / "03.png"
    Image.fromarray(np.full((20, 30), 0.5 if kind is np.float32 else 300, dtype=kind)).save(file, format=form)
    with pytest.raises(
        ValueError, match=re.escape(f"{file} cannot be read as an image: ") + ".*8 bits a colour.*the mode [IF]"
    ):
        passed(opened(pictures, validation=0.0))


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "RGBA", "CMYK"])
def test_other_images_become_rgb_as_pillow_says(tmp_path, mode):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    image.save(tmp_path / "image", format="TIFF")
    assert np.array_equal(np.asarray(read_rgb_image(tmp_path / "image")), np.asarray(image.convert("RGB")))


def test_files_of_the_test_set_are_not_opened_before_its_batches(pictures):
    for file in (pictures / "val").rglob("*.png"):
        file.write_bytes(b"no image")
    data = opened(pictures)
    passed(data), passed(data, "validation")
    assert data.counts["test"] == 9
    assert all(math.isfinite(value) for value in (*data.mean, *data.std))
    with pytest.raises(ValueError, match="cannot be read"):
        passed(data, "test")


def test_without_a_crop_training_images_are_cut_as_at_evaluation(pictures):
    plain = opened(pictures, crop=None)
    first, again = (passed(plain, epoch=epoch) for epoch in (0, 1))
    assert all(torch.equal(one.images, other.images) for one, other in zip(first, again, strict=True))
    random = passed(opened(pictures))
    assert not all(torch.equal(one.images, other.images) for one, other in zip(first, random, strict=True))


def test_crops_are_as_large_as_asked():
    draws = draw_uniform(0, 0, torch.arange(200), FILE_CROP_STREAM, 40).view(-1, 10, 4).tolist()
    boxes = torch.tensor([choose_crop_box((100, 100), own, CropRange(scale=(0.5, 0.6), ratio=(1.0, 1.0))) for own in draws])
    assert torch.equal(boxes[:, 2], boxes[:, 3])
    assert boxes[:, 2].min() > 70
    assert boxes[:, 2].max() < 78


# What stays in memory


def emptied(path):
    """Make every image a file that cannot be read."""
    for file in path.rglob("*.png"):
        file.write_bytes(b"")


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_cut_as_at_evaluation_is_read_once(pictures, workers):
    data = opened(pictures, crop=None, workers=workers)
    orders = [epoch_order(data.counts["train"], 10, seed=0, epoch=epoch) for epoch in range(3)]
    fresh = [list(opened(pictures, crop=None).batches("train", order, epoch=0)) for order in orders]
    first = [list(data.batches("train", order, epoch=i)) for i, order in enumerate(orders[:2])]
    assert all(map(same, first, fresh[:2]))
    rest = passed(data), passed(data, "validation"), passed(data, "test")
    emptied(pictures)
    assert same(list(data.batches("train", orders[2], epoch=2)), fresh[2])
    assert all(map(same, (passed(data), passed(data, "validation"), passed(data, "test")), rest))


def test_a_sample_that_a_pass_left_out_is_read_when_it_comes(pictures):
    data, count = opened(pictures, crop=None), 24
    list(data.batches("train", [torch.arange(count - 1)]))
    emptied(pictures)
    with pytest.raises(ValueError, match="cannot be read"):
        list(data.batches("train", [torch.arange(count)]))
    (batch,) = data.batches("train", [torch.arange(count - 1).flip(0)])
    assert len(batch.labels) == count - 1


def test_random_crops_are_not_kept(pictures):
    data = opened(pictures)
    assert not same(passed(data, epoch=0), passed(data, epoch=1))
    emptied(pictures)
    with pytest.raises(ValueError, match="cannot be read"):
        passed(data)


def test_what_would_take_too_much_memory_is_not_kept(pictures, monkeypatch):
    monkeypatch.setattr("ropewalk.lab.data.base.MAX_CACHE_BYTES", 24 * 3 * 6 * 10)
    assert not kept_after_a_pass(pictures, size=(6, 11))
    assert kept_after_a_pass(pictures, size=(6, 10))


def kept_after_a_pass(path, **options):
    """Whether a second pass through the training set opens no files."""
    data = opened(path, crop=None, **options)
    before, sources = passed(data), {file: file.read_bytes() for file in path.rglob("*.png")}
    emptied(path)
    try:
        return same(passed(data), before)
    except ValueError:
        return False
    finally:
        for file, content in sources.items():
            file.write_bytes(content)


def test_batches_that_are_spoilt_leave_what_is_kept_as_it_was(pictures):
    data = opened(pictures, crop=None)
    first = passed(data)
    for batch in passed(data):
        batch.images.zero_()
    assert same(passed(data), first)
