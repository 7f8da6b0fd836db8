"""Images with things in them: how folders are read and cut in parts, what is seen of them, and how precise answers are."""

import itertools
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from ropewalk.lab.data.coco import _expand_run_lengths, _is_outline, decode_mask, encode_masks
from ropewalk.lab.data.detection import ImageScene
from ropewalk.lab.data.loader import SampleReader
from ropewalk.lab.data.pennfudan import split_pennfudan
from ropewalk.lab.data.segmentation import SegmentationData
from ropewalk.lab.data.views import (
    SceneViews,
    ViewDraw,
    ViewOptions,
    WholeScenes,
    collate_views,
    crop_instances,
    crop_of_view,
    evaluation_size,
    make_view,
)
from ropewalk.lab.tasks.detect import average_precisions, detection_entries, open_detection_data, truth_entry
from tests.support.detection_folders import entry, paint_coco, paint_pedestrians

BOTH = ViewOptions(crop=True, flip=True, scale=(1.0, 1.5))
WAYS = {"validation": 0.2, "fraction": 1.0, "masks": True}


def test_the_parts_of_pedestrians_are_fixed_and_apart(tmp_path):
    parts = split_pennfudan(170)
    assert {name: len(index) for name, index in parts.items()} == {"train": 110, "validation": 20, "test": 40}
    order = torch.randperm(170, generator=torch.Generator().manual_seed(0))
    assert torch.equal(parts["test"], order[:40])
    assert torch.equal(parts["validation"], order[40:60])
    assert sorted(torch.cat([*parts.values()]).tolist()) == list(range(170))
    with pytest.raises(ValueError, match=r"5 images.*got 4"):
        split_pennfudan(4)
    folder = str(paint_pedestrians(tmp_path))
    whole, fewer = (open_detection_data(folder, **(WAYS | {"fraction": share})).index for share in (1.0, 0.5))
    assert torch.equal(fewer["test"], whole["test"])
    assert set(fewer["train"].tolist()) < set(whole["train"].tolist())


def test_boxes_and_maps_of_pedestrians_are_of_the_same_images_in_the_same_parts(tmp_path):
    scenes = open_detection_data(str(paint_pedestrians(tmp_path)), **WAYS)
    maps = SegmentationData(tmp_path, size=(24, 32), patch=8, seed=3, validation=0.5, fraction=1.0, workers=0)
    for part, pairs in maps.pairs.items():
        assert [pair.image for pair in pairs] == [scenes.files[number][0] for number in scenes.index[part].tolist()]


def test_pedestrians_have_the_least_boxes_that_hold_them(tmp_path):
    scenes = open_detection_data(str(paint_pedestrians(tmp_path)), **WAYS)
    assert scenes.counts == {"train": 6, "validation": 1, "test": 2}
    assert sum(map(scenes.count_objects, scenes.counts)) == 13
    for number in range(9):
        scene = scenes.scene(number)
        held = np.asarray(Image.open(tmp_path / "PedMasks" / f"Ped{number:05}_mask.png"))
        assert len(scene.boxes) == held.max()
        for k, (box, mask, area) in enumerate(zip(scene.boxes, scene.masks, scene.areas, strict=True), start=1):
            rows, columns = np.where(held == k)
            assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert torch.equal(mask, torch.from_numpy(held == k))
            assert area == 180
        assert scene.labels.tolist() == [1] * len(scene.boxes)
    assert open_detection_data(str(tmp_path), **(WAYS | {"masks": False})).scene(0).masks is None


def test_mean_and_deviation_are_those_of_the_images_that_are_trained_on(tmp_path):
    scenes = open_detection_data(str(paint_pedestrians(tmp_path)), **WAYS)
    pixels = torch.cat([scenes.scene(i).image.flatten(1) for i in scenes.index["train"].tolist()], dim=1).double() / 255
    torch.testing.assert_close(torch.tensor(scenes.mean, dtype=torch.float64), pixels.mean(1))
    torch.testing.assert_close(torch.tensor(scenes.std, dtype=torch.float64), pixels.std(1, unbiased=False))


def test_files_that_are_missing_or_broken_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"PNGImages/.*PedMasks/"):
        open_detection_data(str(tmp_path), **WAYS)
    paint_pedestrians(tmp_path)
    scenes = open_detection_data(str(tmp_path), **WAYS)
    Image.new("L", (3, 3)).save(tmp_path / "PedMasks" / "Ped00001_mask.png")
    with pytest.raises(ValueError, match=r"Ped00001_mask.png.*size, got \(48, 36\).*\(3, 3\)"):
        scenes.scene(1)
    (tmp_path / "PNGImages" / "Ped00002.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"Ped00002.png cannot be read"):
        scenes.scene(2)
    Image.new("I;16", (36, 48), 300).save(tmp_path / "PNGImages" / "Ped00004.png")
    with pytest.raises(ValueError, match=r"Ped00004.png cannot be read.*8.*got.*mode I"):
        scenes.scene(4)
    part = next(part for part, index in scenes.index.items() if 2 in index)
    with pytest.raises(ValueError, match=r"Ped00002.png cannot be read"):
        list(SampleReader(WholeScenes(scenes, part, (16, 16), 8), 0, part).read([scenes.index[part].tolist().index(2)]))
    for file in (tmp_path / "PNGImages").iterdir():
        file.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"Ped0000\d.png cannot be read"):
        list(SampleReader(SceneViews(scenes, (16, 16), seed=0, options=ViewOptions()), 0, "train").read([(0, [0])]))
    (tmp_path / "PedMasks" / "Ped00003_mask.png").unlink()
    with pytest.raises(ValueError, match=r"Ped00003_mask.png"):
        open_detection_data(str(tmp_path), **WAYS)


def runs_of(mask):
    """Run lengths of a mask, column by column, beginning with zeros: COCO's uncompressed form, by hand."""
    counts, last = [0], 0
    for value in mask.T.ravel().tolist():
        if value != last:
            counts.append(0)
            last = value
        counts[-1] += 1
    return {"size": list(mask.shape), "counts": counts}


def test_coco_has_polygons_and_run_lengths_crowds_and_boxes_cut_at_the_border(tmp_path):
    mask = np.zeros((40, 56), dtype=np.uint8)
    mask[5:9, 10:30] = 1
    there = [
        entry(1, 1, (4, 6, 10, 12)),
        entry(2, 1, (10, 5, 20, 4), kind=7, segmentation=runs_of(mask), iscrowd=1),
        entry(3, 2, (50, -5, 20, 15)),
    ]
    paint_coco(tmp_path, {"train": there, "val": [entry(9, 101, (0, 0, 8, 8))]})
    scenes = open_detection_data(str(tmp_path), **WAYS)
    assert scenes.classes == ["cat", "dog"]
    assert scenes.counts == {"train": 8, "validation": 2, "test": 2}
    scene = scenes.scene(0)
    assert scene.boxes.tolist() == [[4, 6, 14, 18], [10, 5, 30, 9]]
    assert scene.labels.tolist() == [1, 2]
    assert scene.crowd.tolist() == [False, True]
    assert torch.equal(scene.masks[1], torch.from_numpy(mask).bool())
    inside = torch.zeros(40, 56, dtype=torch.bool)
    inside[6:18, 4:14] = True
    assert torch.equal(scene.masks[0], inside)
    assert scenes.scene(1).boxes.tolist() == [[50, 0, 56, 10]]
    assert scenes.scene(2).image.shape == (3, 40, 56)  # gray in its file
    assert scenes.scene(2).boxes.shape == (0, 4)
    assert scenes.scene(2).masks.shape == (0, 40, 56)
    assert scenes.count_objects("test") == 1
    assert sum(map(scenes.count_objects, scenes.counts)) == 3
    assert crop_instances(scene, (0, 0, 40, 56), (40, 56))["labels"].tolist() == [1]  # crowds are not trained on


def test_coco_is_refused_where_it_contradicts_itself(tmp_path):
    one = {"train": [entry(1, 1, (0, 0, 9, 9))], "val": [entry(2, 101, (0, 0, 9, 9))]}
    folder = paint_coco(tmp_path / "none", {**one, "train": [entry(1, 1, (60, 3, 5, 5)), entry(2, 1, (3, 3, 0, 5))]})
    with pytest.warns(UserWarning, match="2 boxes"):
        assert open_detection_data(str(folder), **WAYS).count_objects("train") == 0
    for name, entries, words in (
        ("image", {**one, "train": [entry(1, 77, (0, 0, 9, 9))]}, "image 77"),
        ("kind", {**one, "val": [entry(1, 101, (0, 0, 9, 9), kind=5)]}, r"\b5\b"),
    ):
        with pytest.raises(ValueError, match=words):
            open_detection_data(str(paint_coco(tmp_path / name, entries)), **WAYS)
    folder = paint_coco(tmp_path / "twice", one)
    path = folder / "annotations" / "instances_val2017.json"
    held = json.loads(path.read_text())
    held["images"][1]["file_name"] = "000004.png"
    path.write_text(json.dumps(held))
    Image.new("RGB", (56, 40)).save(folder / "val2017" / "000004.png")
    assert open_detection_data(str(folder), **WAYS).counts["test"] == 2  # another image of the same name
    (folder / "val2017" / "000004.png").write_bytes((folder / "train2017" / "000004.png").read_bytes())
    with pytest.raises(ValueError, match=r"got .*train2017/000004.png.*val2017/000004.png"):
        open_detection_data(str(folder), **WAYS)
    held["images"][1]["id"] = 101
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match=r"once.*got 2 of 1"):
        open_detection_data(str(folder), **WAYS)
    held["categories"] = held["categories"][:1]
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="same categories"):
        open_detection_data(str(folder), **WAYS)
    path.write_text("{")
    with pytest.raises(ValueError, match=re.escape(f"{path} cannot be read as annotations of COCO")):
        open_detection_data(str(folder), **WAYS)
    path.write_text(json.dumps({"images": []}))
    with pytest.raises(ValueError, match="annotations, categories"):
        open_detection_data(str(folder), **WAYS)
    path.unlink()
    with pytest.raises(ValueError, match=r"instances_val\*.json"):
        open_detection_data(str(folder), **WAYS)


@pytest.mark.parametrize(
    ("where", "change", "words"),
    [
        ("annotations", {"bbox": None}, "annotation 2 must have bbox, four numbers, got None"),
        ("annotations", {"bbox": ...}, "annotation 2 must have bbox, four numbers, got none"),
        ("annotations", {"bbox": [1, 2, 3]}, r"annotation 2 must have bbox, four numbers, got \[1, 2, 3\]"),
        ("annotations", {"bbox": ["a", 1, 2, 3]}, r"bbox, four numbers, got \['a', 1, 2, 3\]"),
        ("annotations", {"bbox": [0, 0, float("nan"), 3]}, r"bbox, four numbers, got \[0, 0, nan, 3\]"),
        ("annotations", {"area": None}, "annotation 2 must have area, a number, got None"),
        ("annotations", {"image_id": ...}, "annotation 2 must have image_id, a number or a name, got none"),
        ("annotations", {"category_id": [3]}, r"annotation 2 must have category_id, .*, got \[3\]"),
        ("annotations", {"iscrowd": "no"}, "annotation 2 must have iscrowd, 0 or 1, got 'no'"),
        ("annotations", {"segmentation": ...}, "annotation 2 must have segmentation, polygons .* got none"),
        ("annotations", {"segmentation": []}, r"annotation 2 must have segmentation, polygons .* got \[\]"),
        ("annotations", {"segmentation": [[1, 2, 3, 4]]}, r"segmentation, polygons .* got \[\[1, 2, 3, 4\]\]"),
        ("annotations", {"segmentation": {"counts": 3, "size": [40, 56]}}, "or run lengths, got {'counts': 3"),
        ("annotations", {"id": ..., "bbox": ...}, "annotation 0 of its list must have bbox"),
        ("images", {"width": ...}, "image 101 must have width, a whole number of pixels, got none"),
        ("images", {"width": "56"}, "image 101 must have width, a whole number of pixels, got '56'"),
        ("images", {"height": 0}, "image 101 must have height, a whole number of pixels, got 0"),
        ("images", {"file_name": None}, "image 101 must have file_name, a name, got None"),
        ("categories", {"name": ...}, "category 3 must have name, a name, got none"),
        ("categories", {"id": "three"}, "category 'three' must have id, a whole number, got 'three'"),
        ("annotations", None, "annotation 0 of its list must be an object, got None"),
    ],
)
def test_entries_of_coco_that_do_not_say_enough_are_named(tmp_path, where, change, words):
    one = {"train": [entry(1, 1, (0, 0, 9, 9))], "val": [entry(2, 101, (0, 0, 9, 9))]}
    path = paint_coco(tmp_path, one) / "annotations" / "instances_val2017.json"
    held = json.loads(path.read_text())
    if change is None:
        held[where][0] = None
    else:
        changed = held[where][0] | change
        held[where][0] = {name: value for name, value in changed.items() if value is not ...}
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: .*{words}"):
        open_detection_data(str(tmp_path), **WAYS)


def test_entries_of_coco_may_say_less_where_less_is_asked_for(tmp_path):
    thing = {"id": 2, "image_id": 101, "category_id": 3, "bbox": [1, 2, 5, 8.5]}
    paint_coco(tmp_path, {"train": [entry(1, 1, (0, 0, 9, 9), segmentation=[])], "val": [thing]})
    scenes = open_detection_data(str(tmp_path), **(WAYS | {"masks": False}))
    scene = scenes.read("test", 0)
    assert scene.areas.tolist() == [5 * 8.5]
    assert scene.crowd.tolist() == [False]


def test_an_outline_that_cannot_be_read_is_named(tmp_path):
    torn = entry(2, 101, (0, 0, 9, 9), segmentation={"counts": [3, 4], "size": [3, 5]})
    paint_coco(tmp_path, {"train": [entry(1, 1, (0, 0, 9, 9))], "val": [torn]})
    with pytest.raises(ValueError, match=r"2.*000101.png cannot be read"):
        open_detection_data(str(tmp_path), **WAYS).read("test", 0)


def blank(rows=60, columns=90, box=(20, 30, 50, 42)):
    """A black image with one white thing."""
    image = torch.zeros(3, rows, columns, dtype=torch.uint8)
    left, top, right, bottom = box
    image[:, top:bottom, left:right] = 255
    masks = image[:1].bool()
    return ImageScene(image, torch.tensor([box], dtype=torch.float32), torch.tensor([1]), torch.tensor([False]),
                 masks.flatten(1).sum(1).float(), masks)  # fmt: skip


def extent(white):
    """The edges of what is white, to fractions of a pixel by the sums of the lines through its middle: x, y, x, y."""
    white = white.double()
    rows, columns = torch.where(white > 0.5)
    y, x = int(rows.double().mean().round()), int(columns.double().mean().round())
    width, height = white[y].sum(), white[:, x].sum()
    centre_x = (white[y] * (torch.arange(white.shape[1]) + 0.5)).sum() / width
    centre_y = (white[:, x] * (torch.arange(white.shape[0]) + 0.5)).sum() / height
    return torch.stack([centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2])


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("draws", [(1.0, 0.5, 0.5), (1.44, 0.4, 0.3), (1.2, 0.99, 0.1)])
def test_boxes_and_masks_stay_on_what_they_are_of(draws, flip):
    scene = blank()
    image, things = make_view(scene, (48, 64), ViewDraw(*draws, flip))
    assert image.shape == (3, 48, 64)
    torch.testing.assert_close(extent(image[0] / 255).float(), things["boxes"][0], rtol=0, atol=0.1)
    assert things["masks"].shape == (1, 48, 64)
    assert (things["masks"][0].bool() != (image[0] > 127)).float().mean() < 0.01
    mirrored = make_view(scene, (48, 64), ViewDraw(*draws, not flip))[1]["boxes"][0]
    torch.testing.assert_close(mirrored[[0, 2]], 64 - things["boxes"][0][[2, 0]])


def test_views_fill_their_size_from_images_of_any_shape():
    for sides in ((60, 90), (5, 200), (300, 7), (48, 64), (1, 1)):
        for draws in ((1.0, 0.5, 0.5), (1.5, 0.999, 0.999), (1.1, 0.0, 0.0), (0.5, 0.999, 0.0)):
            top, left, rows, columns = crop_of_view(sides, (48, 64), ViewDraw(*draws))
            assert 0 <= top <= top + rows <= sides[0]
            assert 0 <= left <= left + columns <= sides[1]
            assert min(rows, columns) >= 1
    assert crop_of_view((60, 90), (48, 64), ViewDraw()) == (0, 5, 60, 80)
    assert crop_of_view((60, 90), (48, 64), ViewDraw(closer=0.5)) == (0, 5, 60, 80)  # there is no more to show
    assert crop_of_view((60, 90), (48, 64), ViewDraw(1.5, 0.0, 0.999)) == (0, 37, 40, 53)


def test_things_of_which_too_little_is_left_are_left_out():
    whole = blank(60, 90, (0, 10, 20, 50))
    for left, stay in ((17, True), (19, False), (25, False)):
        assert len(crop_instances(whole, (0, left, 60, 60), (60, 60))["boxes"]) == stay
    thin = blank(60, 90, (30, 10, 34, 50))
    assert len(crop_instances(thin, (0, 0, 60, 90), (30, 45))["boxes"]) == 1
    assert len(crop_instances(thin, (0, 0, 60, 90), (20, 30))["boxes"]) == 0


def test_views_follow_from_seed_epoch_and_image_alone(tmp_path):
    scenes = open_detection_data(str(paint_pedestrians(tmp_path)), **WAYS)

    def seen(epoch, places, *, seed=0, options=BOTH):
        (batch,) = SampleReader(SceneViews(scenes, (24, 32), seed=seed, options=options), 0, "train").read([(epoch, places)])
        return batch

    one, other = seen(3, [4, 1, 0]), seen(3, [0, 4])
    assert torch.equal(one.images[0], other.images[1])
    assert torch.equal(one.targets[2]["masks"], other.targets[0]["masks"])
    assert torch.equal(one.images, seen(3, [4, 1, 0]).images)
    for changed in (seen(4, [4, 1, 0]), seen(3, [4, 1, 0], seed=1), seen(3, [4, 1, 0], options=ViewOptions())):
        assert not torch.equal(one.images, changed.images)
    assert torch.equal(seen(0, [4], options=ViewOptions()).images, seen(9, [4], options=ViewOptions(), seed=5).images)
    assert [len(each["boxes"]) for each in one.targets] == one.counts


def test_workers_read_what_is_read_without_them(tmp_path):
    scenes = open_detection_data(str(paint_pedestrians(tmp_path)), **WAYS)
    keys = [(0, [0, 1]), (0, [2, 3]), (1, [4])]
    here, there = (
        list(SampleReader(SceneViews(scenes, (24, 32), seed=0, options=ViewOptions(crop=True)), n, "train").read(keys))
        for n in (0, 1)
    )
    for a, b in zip(here, there, strict=True):
        assert torch.equal(a.images, b.images)
        assert a.counts == b.counts
        assert all(torch.equal(a.objects[name], b.objects[name]) for name in a.objects)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_that_are_judged_are_resized_where_they_are_read(tmp_path, workers):
    scenes = open_detection_data(str(paint_pedestrians(tmp_path)), **WAYS)
    (judged,) = SampleReader(WholeScenes(scenes, "test", (24, 32), 8), workers, "test", lasting=False).read([1])
    scene = scenes.read("test", 1)
    assert judged.whole.dtype == torch.uint8
    assert tuple(judged.whole.shape[1:]) == evaluation_size(scene.sides, (24, 32), 8) != scene.sides
    means = [torch.tensor([image.double().mean(dim=(1, 2)).tolist()]) for image in (judged.whole, scene.image)]
    torch.testing.assert_close(*means, rtol=0, atol=2.0)
    image, things = make_view(scene, (24, 32))
    assert torch.equal(judged.center.images[0], image)
    assert torch.equal(judged.center.targets[0]["masks"], things["masks"])
    assert torch.equal(judged.scene.image, scene.image)


def found(boxes, scores, label=1, masks=None):
    out = {"boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4), "scores": torch.tensor(scores)}
    return out | {"labels": torch.full((len(scores),), label)} | ({} if masks is None else {"masks": masks})


def test_what_is_found_exactly_has_a_precision_of_one_and_nothing_of_none():
    scene = blank()
    truths = [truth_entry(scene, 0)]
    right = detection_entries(found([[20, 30, 50, 42]], [0.9], masks=scene.masks), 0)
    for kind in ("box", "mask"):
        scores = average_precisions(truths, right, 1, kind)
        assert scores == pytest.approx({f"{kind}_{name}": 1.0 for name in ("ap", "ap50", "ap75", "ap_small")})
        assert average_precisions(truths, [], 1, kind)[f"{kind}_ap"] == 0.0
        assert (
            average_precisions(truths, detection_entries(found([], [], masks=scene.masks[:0]), 0), 1, kind)[f"{kind}_ap50"]
            == 0.0
        )
    assert average_precisions([truth_entry(replaced(scene, boxes=scene.boxes[:0]), 0)], right, 1, "box") == {}


def replaced(scene, **values):
    """A scene of which things are left out."""
    count = len(values["boxes"])
    return ImageScene(scene.image, values["boxes"], scene.labels[:count], scene.crowd[:count], scene.areas[:count],
                 scene.masks[:count])  # fmt: skip


def test_precision_is_the_area_under_the_curve_by_hand():
    """Two things; three answers in the order right, wrong, right: precisions of 1 up to a recall of ½, then 2/3."""
    scene = ImageScene(torch.zeros(3, 80, 80, dtype=torch.uint8), torch.tensor([[0.0, 0, 10, 10], [40, 40, 60, 60]]),
                  torch.tensor([1, 1]), torch.tensor([False, False]), torch.tensor([100.0, 400.0]))  # fmt: skip
    given = detection_entries(found([[0, 0, 10, 10], [20, 0, 30, 10], [40, 40, 60, 60]], [0.9, 0.8, 0.7]), 0)
    got = average_precisions([truth_entry(scene, 0)], given, 1, "box")["box_ap50"]
    wanted = sum(1.0 if recall <= 0.5 else 2 / 3 for recall in (i / 100 for i in range(101))) / 101
    assert got == pytest.approx(wanted, abs=1e-9)
    shifted = detection_entries(found([[0, 0, 10, 6], [40, 40, 60, 60]], [0.9, 0.7]), 0)  # overlaps of 0.6 and 1
    scores = average_precisions([truth_entry(scene, 0)], shifted, 1, "box")
    assert scores["box_ap50"] == pytest.approx(1.0)
    assert scores["box_ap75"] == pytest.approx(sum(0.5 for i in range(101) if i / 100 <= 0.5) / 101)
    other = average_precisions(
        [truth_entry(scene, 0)], detection_entries(found([[0, 0, 10, 10]], [0.9], label=2), 0), 2, "box"
    )
    assert other["box_ap"] == 0.0


def test_what_is_found_in_a_crowd_does_no_harm():
    boxes = torch.tensor([[0.0, 0, 10, 10], [40, 40, 80, 80]])
    parts = [torch.zeros(3, 80, 80, dtype=torch.uint8), boxes, torch.tensor([1, 1])]
    areas = torch.tensor([100.0, 1600.0])
    given = detection_entries(found([[45, 45, 55, 55], [0, 0, 10, 10]], [0.9, 0.8]), 0)
    crowd = ImageScene(*parts, torch.tensor([False, True]), areas)
    alone = ImageScene(*parts, torch.tensor([False, False]), areas)
    assert average_precisions([truth_entry(crowd, 0)], given, 1, "box")["box_ap"] == pytest.approx(1.0)
    assert average_precisions([truth_entry(alone, 0)], given, 1, "box")["box_ap"] < 0.5


def test_a_batch_of_views_is_told_apart_again():
    views = [make_view(blank(), (24, 32)), make_view(blank(box=(0, 0, 1, 1)), (24, 32))]
    batch = collate_views(views)
    assert batch.counts == [1, 0]
    assert batch.targets[1]["boxes"].shape == (0, 4)
    assert batch.targets[1]["masks"].shape == (0, 24, 32)
    assert torch.equal(batch.targets[0]["boxes"], views[0][1]["boxes"])


@pytest.mark.parametrize(
    ("outline", "words"),
    [
        ({"size": [10**5, 10**6], "counts": [0, 10]}, r"for 4 × 5 pixels, got those for \[100000, 1000000\]"),
        ({"size": [5, 4], "counts": [0, 20]}, r"for 4 × 5 pixels, got those for \[5, 4\]"),
        ({"size": [4, 5], "counts": [1]}, "add up to 4 × 5 pixels, got 1"),
        ({"size": [4, 5], "counts": []}, "for 4 × 5 pixels"),
        ({"size": [4, 5], "counts": ""}, "for 4 × 5 pixels"),
        ({"size": [4, 5], "counts": [0, -5, 25]}, "for 4 × 5 pixels"),
        ({"size": [4, 5], "counts": [0, "a"]}, "for 4 × 5 pixels"),
        ({"size": [4, 5], "counts": [0, 10**6]}, "add up to 4 × 5 pixels, got 1,000,000"),
        ({"size": [4, 5], "counts": "0"}, "add up to 4 × 5 pixels, got 0"),
        ({"size": [4, 5], "counts": "o"}, "break off"),
        ({"size": [4, 5], "counts": "o" * 10**7}, "break off"),
    ],
)
def test_run_lengths_are_those_of_all_pixels(outline, words):
    with pytest.raises(ValueError, match=f"run lengths must .*{words}"):
        decode_mask(outline, 4, 5)


def test_compressed_run_lengths_are_those_of_pycocotools():
    masks = torch.rand(20, 37, 53, generator=torch.Generator().manual_seed(0)) < torch.linspace(0, 1, 20)[:, None, None] ** 4
    for mask, coded in zip(masks, encode_masks(masks), strict=True):
        words = coded["counts"].decode()
        rows = mask.T.reshape(-1).int()
        ends = [0, *(rows.diff().nonzero()[:, 0] + 1).tolist(), len(rows)]
        wanted = ([0] if rows[0] else []) + [b - a for a, b in itertools.pairwise(ends)]
        assert _expand_run_lengths(words) == wanted
        assert (decode_mask({"size": [37, 53], "counts": words}, 37, 53) == mask.numpy()).all()
        assert (decode_mask({"size": [37, 53], "counts": wanted}, 37, 53) == mask.numpy()).all()


@pytest.mark.parametrize("far", [1e6, 1e300, -(10**6)])
def test_polygons_that_go_too_far_are_refused(far):
    assert _is_outline([[0, 0, 1e5, 0, 1e5, 1e5]])
    assert not _is_outline([[0, 0, 4, 0, 4, far]])
