"""Images and maps of folders: their forms, their views, and what is wrong with them."""

import numpy as np
import pytest
import torch
from PIL import Image

from ropewalk.lab.data.sampling import epoch_order
from ropewalk.lab.data.segmentation import SegmentationData
from ropewalk.lab.data.views import ViewOptions, evaluation_size
from tests.support import segmentation_folders as folders

RANDOM = ViewOptions(crop=True, flip=True)


def opened(path, **given):
    known = {"size": (24, 40), "patch": 8, "seed": 0, "validation": 0.2, "fraction": 1.0, "workers": 0}
    return SegmentationData(path, **{**known, **given})


def array(path):
    """The pixels of a file."""
    with Image.open(path) as file:
        return np.array(file).astype(np.float64)


def names(data, split):
    """The images of a split, by name."""
    index = data._index[split].tolist()
    return [data.pairs[split][i].image.name for i in index]


# Forms


def test_a_plain_folder_has_its_own_parts(tmp_path):
    data = opened(folders.folder(tmp_path, {"train": 5, "val": 2, "test": 3}))
    assert data.counts == {"train": 5, "validation": 2, "test": 3}
    assert data.classes == ["0", "1", "2"]
    assert names(data, "train") == [f"{i:02}.jpg" for i in range(5)]


def test_val_without_test_is_the_test_set_and_what_is_held_out_is_the_same_for_all_seeds(tmp_path):
    path = folders.folder(tmp_path, {"train": 10, "val": 3})
    first, second = opened(path), opened(path, seed=5)
    assert first.counts == {"train": 8, "validation": 2, "test": 3}
    assert names(first, "validation") == names(second, "validation")
    assert not set(names(first, "train")) & set(names(first, "validation"))
    half, other = opened(path, fraction=0.5), opened(path, fraction=0.5, seed=1)
    assert half.counts["train"] == 4
    assert set(names(half, "train")) < set(names(first, "train"))
    assert names(half, "train") != names(other, "train")


def test_names_of_classes_are_read(tmp_path):
    path = folders.folder(tmp_path, {"train": 2, "val": 1, "test": 1})
    (path / "classes.txt").write_text("ground\nred box\n\nblue box\n")
    data = opened(path)
    assert data.classes == ["ground", "red box", "blue box"]
    assert data.facts()["names"] == data.classes


def test_vocs_folder_is_read_with_its_palette(tmp_path):
    draw = np.random.default_rng(0)
    for name in ("a", "b", "c", "d"):
        image, map = folders.scene(draw, 30, 50)
        folders.save(tmp_path / "JPEGImages" / f"{name}.jpg", image)
        folders.save(tmp_path / "SegmentationClass" / f"{name}.png", map, palette=True)
    (tmp_path / "ImageSets" / "Segmentation").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Segmentation" / "train.txt").write_text("b\na\nc\n")
    (tmp_path / "ImageSets" / "Segmentation" / "val.txt").write_text("d\n")
    data = opened(tmp_path, validation=0.4)
    assert data.counts == {"train": 2, "validation": 1, "test": 1}
    assert (len(data.classes), data.classes[15]) == (21, "person")
    (batch,) = data.batches("test", [torch.tensor([0])])
    with Image.open(tmp_path / "SegmentationClass" / "d.png") as file:
        assert file.mode == "P"
    assert torch.equal(batch.labels[0], torch.from_numpy(map).long())


@pytest.mark.parametrize("ending", ["", ".png"])
def test_penn_fudans_folder_is_cut_by_a_fixed_permutation(tmp_path, ending):
    for i in range(170):
        folders.save(tmp_path / "PNGImages" / f"Ped{i:05}{ending}.png", np.full((2, 3, 3), i, dtype=np.uint8))
        folders.save(tmp_path / "PedMasks" / f"Ped{i:05}{ending}_mask.png", np.array([[0, 1, 2], [7, 0, 3]], dtype=np.uint8))
    data = opened(tmp_path, seed=3, size=(8, 8))
    order = torch.randperm(170, generator=torch.Generator().manual_seed(0)).tolist()
    wanted = {"test": order[:40], "validation": order[40:60], "train": order[60:]}
    for split, places in wanted.items():
        assert set(names(data, split)) == {f"Ped{i:05}{ending}.png" for i in places}
    assert data.counts == {"train": 110, "validation": 20, "test": 40}
    assert data.classes == ["background", "pedestrian"]
    (batch,) = data.batches("test", [torch.tensor([0])])
    assert batch.labels.tolist() == [[[0, 1, 1], [1, 0, 1]]]


# What is wrong


def broken(path, how):
    """A plain folder with one fault."""
    folders.folder(path, {"train": 3, "val": 2, "test": 2}, sizes=((30, 50),))
    image, map = path / "images" / "train" / "01.jpg", path / "maps" / "train" / "01.png"
    if how == "missing":
        map.unlink()
    elif how == "size":
        folders.save(map, np.zeros((50, 30), dtype=np.uint8))
    elif how == "range":
        (path / "classes.txt").write_text("ground\nred\n")
    elif how == "mode":
        folders.save(map, np.zeros((30, 50, 3), dtype=np.uint8))
    elif how == "map":
        map.write_bytes(map.read_bytes()[:40])
    elif how == "image":
        image.write_bytes(b"no image")
    elif how == "deep":
        Image.fromarray(np.full((30, 50), 999, dtype=np.uint16)).save(image, format="PNG")
    return path


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("missing", r"maps/train/01\.png"),
        ("size", r"size, got 50.*30.*30.*50.*images/train/01\.jpg.*maps/train/01\.png"),
        ("range", r"maps/train/0\d\.png.*0.*1.*255, got 2"),
        ("mode", r"maps/train/01\.png.*got.*mode RGB"),
        ("map", r"maps/train/01\.png cannot be read"),
        ("image", r"images/train/01\.jpg cannot be read"),
        ("deep", r"images/train/01\.jpg cannot be read.*8.*got.*mode I"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_wrong_file_is_named(tmp_path, how, words, workers):
    path = broken(tmp_path, how)
    with pytest.raises(ValueError, match=words):
        list(opened(path, workers=workers).batches("train", [torch.arange(3)]))


@pytest.mark.parametrize("how", ["size", "mode", "image", "deep"])
def test_a_look_at_the_beginning_of_files_finds_it_too(tmp_path, how):
    path = broken(tmp_path, how)
    (path / "classes.txt").write_text("ground\nred\nblue\n")
    with pytest.raises(ValueError, match=r"train/01\."):
        opened(path).look()


def test_a_folder_that_has_no_form_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"images/ and maps/.*none"):
        opened(tmp_path)
    (tmp_path / "images" / "train").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"images.*train/.*test/.*val/.*got train"):
        opened(tmp_path)
    (tmp_path / "images" / "test").mkdir()
    with pytest.raises(ValueError, match=r"images/train.*none"):
        opened(tmp_path)


# Views


@pytest.fixture(scope="module")
def ramps(tmp_path_factory):
    """Images whose red is the number of the row and whose green is that of the column; maps that have one of them."""
    path = tmp_path_factory.mktemp("ramps")
    for channel, folder in enumerate(("rows", "columns")):
        for i, sides in enumerate([(90, 130), (130, 90), (10, 13), (60, 200)]):
            places = np.indices(sides).astype(np.uint8)
            for part in ("train", "test"):
                folders.save(path / folder / "images" / part / f"{i}.png", np.stack([*places, places[0] * 0], axis=-1))
                folders.save(path / folder / "maps" / part / f"{i}.png", places[channel])
        (path / folder / "classes.txt").write_text("\n".join(map(str, range(200))))
    return path


@pytest.mark.parametrize(("folder", "channel"), [("rows", 0), ("columns", 1)])
@pytest.mark.parametrize("epoch", range(5))
def test_views_of_an_image_and_its_map_are_of_one_place(ramps, folder, channel, epoch):
    data = opened(ramps / folder, view=RANDOM, validation=0.0)
    (batch,) = data.batches("train", [torch.arange(4)], epoch=epoch)
    assert batch.images.shape == (4, 3, 24, 40)
    assert batch.labels.shape == (4, 24, 40)
    apart = (batch.images[:, channel].double() - batch.labels.double()).abs()
    assert apart.flatten(1).mean(1).max() < 1  # of a pixel of the file; the largest is shown 1/5 of its size
    assert apart.max() <= 4


def test_views_have_no_classes_that_are_not_in_the_map(tmp_path):
    """Between 0 and 2 there is 1 for whoever blends them."""
    draw = np.random.default_rng(0)
    for part in ("train", "test"):
        folders.save(tmp_path / "images" / part / "0.png", np.zeros((31, 47, 3), dtype=np.uint8))
        folders.save(
            tmp_path / "maps" / part / "0.png", np.array([0, 2, 255], dtype=np.uint8)[draw.integers(0, 3, (31, 47))]
        )
    data = opened(tmp_path, view=RANDOM, validation=0.0)
    for epoch in range(5):
        (batch,) = data.batches("train", [torch.arange(1)], epoch=epoch)
        assert batch.labels.unique().tolist() == [0, 2, 255]


def test_views_are_scaled_flipped_and_cut_anywhere(ramps):
    data, whole = opened(ramps / "columns", view=RANDOM, validation=0.0), opened(ramps / "columns", validation=0.0)
    seen = torch.cat([batch.labels[:1] for i in range(60) for batch in data.batches("train", [torch.arange(1)], epoch=i)])
    first, last = seen[:, 0, 0], seen[:, 0, -1]
    assert 15 < (first > last).sum() < 45
    spans = (last - first).abs().double()
    assert spans.min() == pytest.approx(65, abs=3)  # twice as close as where 130 columns fill 40 pixels
    assert spans.max() == pytest.approx(130, abs=3)  # all, since no view has room around the image
    assert torch.minimum(first, last).unique().numel() > 10
    (middle,) = whole.batches("train", [torch.arange(1)], epoch=7)
    assert (middle.labels[0, 0, 0], middle.labels[0, 0, -1]) == (1, 128)


def test_a_view_follows_from_seed_epoch_and_sample(ramps):
    data = opened(ramps / "columns", view=RANDOM, validation=0.0)

    def seen(order, epoch=2, data=data):
        return torch.cat([batch.images for batch in data.batches("train", order, epoch=epoch)])

    together, alone = seen([torch.tensor([3, 0, 1])]), seen([torch.tensor([0]), torch.tensor([1]), torch.tensor([3])])
    assert torch.equal(together, alone[[2, 0, 1]])
    assert torch.equal(
        together, seen([torch.tensor([3, 0, 1])], data=opened(ramps / "columns", view=RANDOM, validation=0.0, workers=1))
    )
    assert not torch.equal(together, seen([torch.tensor([3, 0, 1])], epoch=3))
    other = opened(ramps / "columns", view=RANDOM, validation=0.0, seed=1)
    assert not torch.equal(together, seen([torch.tensor([3, 0, 1])], data=other))


@pytest.mark.parametrize(
    ("sides", "wanted"),
    [
        ((90, 130), (24, 32)),  # 34.7 columns
        ((130, 90), (32, 24)),
        ((10, 13), (24, 32)),
        ((24, 24), (24, 24)),
        ((60, 200), (16, 48)),  # 80 columns would be over twice 24: 14.4 rows
        ((7, 1), (48, 8)),
    ],
)
def test_whole_images_keep_their_shape_and_fill_patches(sides, wanted):
    assert evaluation_size(sides, (24, 40), 8) == wanted


def test_whole_images_come_alone_with_their_maps_as_they_are(ramps):
    data = opened(ramps / "columns", view=RANDOM, validation=0.0)
    batches = list(data.batches("test", [torch.tensor([i]) for i in range(4)]))
    assert [tuple(batch.images.shape[2:]) for batch in batches] == [(24, 32), (32, 24), (24, 32), (16, 48)]
    with pytest.raises(ValueError, match=r"'test'.*size.*batch, got \[2\]"):
        data.batches("test", [torch.arange(2)])
    for i, batch in enumerate(batches):
        assert np.array_equal(batch.labels[0], array(data.pairs["test"][i].map))


def test_mean_and_deviation_are_those_of_the_middles(tmp_path):
    data = opened(folders.folder(tmp_path, {"train": 4, "val": 1, "test": 1}, sizes=((24, 40),)), view=RANDOM)
    pixels = np.concatenate([array(pair.image).reshape(-1, 3) / 255 for pair in data.pairs["train"]])
    assert data.mean == pytest.approx(pixels.mean(0), abs=1e-9)
    assert data.std == pytest.approx(pixels.std(0), abs=1e-9)
    numbers = np.concatenate([array(pair.map).ravel() for pair in data.pairs["train"]])
    assert data.facts()["pixels"] == [int((numbers == i).sum()) for i in (0, 1, 2, 255)]


def test_an_epoch_has_every_image_once(tmp_path):
    data = opened(folders.folder(tmp_path, {"train": 6, "val": 1, "test": 1}), view=RANDOM)
    order = epoch_order(6, 2, seed=0, epoch=0)
    seen = torch.cat([batch.index for batch in data.batches("train", order)])
    assert sorted(seen.tolist()) == list(range(6))
