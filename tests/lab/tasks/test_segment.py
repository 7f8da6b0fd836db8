"""Runs that find the class of every pixel: model, scores, loss, runs that are killed and go on, and what is refused."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from ropewalk.lab.compare.plan import plan_comparison
from ropewalk.lab.compare.preflight import check_comparison
from ropewalk.lab.compare.run import compare_encodings, format_comparison_csv, tabulate_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.data.base import ImageBatch
from ropewalk.lab.errors import CommandError, DamagedFileError
from ropewalk.lab.init_from import find_encoding_prefix
from ropewalk.lab.model_building import build_model
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks import build_task
from ropewalk.lab.tasks.segment import (
    build_segmenter,
    class_iou,
    count_confusion,
    mean_iou,
    pixel_accuracy,
    segmentation_loss,
)
from ropewalk.lab.train import train_run
from ropewalk.lab.vision_heads.backbone import choose_resolution
from ropewalk.lab.vision_heads.segmenter import HalvingPool, MultiscaleHead, ViTSegmenter, resize_like
from ropewalk.models import ViT
from tests.support import segmentation_folders
from tests.support.killed_training import SERVER, killed_after_steps
from tests.support.resumed_batches import assert_batches_resume

SMALL = Config(
    task="segment", encoding="mixed", size=(24, 40), patch=8, width=24, depth=1, heads=2, ratio=2.0, epochs=3, batch=4,
    learning_rate=1e-2, warmup=0.5, workers=0, ema=0.9, checkpoint=0.0,
)  # fmt: skip
SHAPE = {"size": (24, 40), "classes": 3}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """A folder of small scenes."""
    return segmentation_folders.folder(tmp_path_factory.mktemp("scenes"), {"train": 13, "val": 5, "test": 3})


def small(scenes, **settings):
    return replace(SMALL, **{"data": str(scenes), **settings})


# Overlap


def slowly(truth, answer, classes):
    """Mean IoU and pixel accuracy from sets of pixels, class by class."""
    known = {place for place in np.ndindex(truth.shape) if truth[place] != 255}
    found = []
    for number in range(classes):
        own = {place for place in known if truth[place] == number}
        taken = {place for place in known if answer[place] == number}
        if own:
            found.append(len(own & taken) / len(own | taken))
    return sum(found) / len(found), sum(truth[place] == answer[place] for place in known) / len(known)


def test_overlap_is_that_of_sets_of_pixels():
    """Class 3 does not occur but is answered, class 4 is neither; strided views of odd sizes."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 3, (2, 7, 10), generator=draw)[:, ::2, 1::3]
    answer = torch.randint(0, 4, (2, 10, 7), generator=draw).mT[:, ::2, 1::3]
    truth[0, 0] = 255
    counts = count_confusion(truth, answer, 5)
    wanted = slowly(truth.numpy(), answer.numpy(), 5)
    assert (mean_iou(counts), pixel_accuracy(counts)) == pytest.approx(wanted, rel=1e-12)
    assert class_iou(counts)[3:].isnan().all()
    assert counts.sum() == (truth != 255).sum()
    parts = [count_confusion(one, other, 5) for one, other in zip(truth, answer, strict=True)]
    assert torch.equal(sum(parts), counts)


def test_overlap_of_nothing_is_nothing():
    counts = count_confusion(torch.full((3, 5), 255), torch.zeros(3, 5, dtype=torch.int64), 2)
    assert counts.tolist() == [[0, 0], [0, 0]]


# Models


@pytest.mark.parametrize("head", ["linear", "pyramid"])
@pytest.mark.parametrize("sides", [(24, 40), (40, 16), (8, 8)])
def test_a_model_gives_logits_of_pixels_at_any_size(head, sides):
    model = build_segmenter(replace(SMALL, head=head), **SHAPE).eval()
    images = torch.randn(2, 3, *sides)
    assert model(images).shape == (2, 3, *sides)
    assert model(images, size=(11, 23)).shape == (2, 3, 11, 23)
    torch.testing.assert_close(model(images)[1:], model(images[1:]))


def test_logits_stand_where_their_patches_stand(monkeypatch):
    """A map of the middles of its patches, interpolated, is the middle of each pixel, but at the rim."""
    model = build_segmenter(SMALL, **SHAPE).eval()
    rows, columns = (torch.arange(n) * 8.0 + 4 for n in (3, 5))
    middles = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    monkeypatch.setattr(model.backbone, "maps", lambda *given, **how: middles[None])
    model.head = torch.nn.Identity()
    for size in ((24, 40), (48, 120)):
        found = model(torch.zeros(1, 3, 24, 40), size=size)[0]
        pixels = [(torch.arange(n) + 0.5) * side / n for n, side in zip(size, (24, 40), strict=True)]
        wanted = torch.stack(torch.meshgrid(*pixels, indexing="ij"))
        inside = ((wanted >= 4) & (wanted <= torch.tensor([20.0, 36.0])[:, None, None])).all(0)
        assert inside.sum() == size[0] * size[1] * (16 / 24) * (32 / 40)
        torch.testing.assert_close(found[:, inside], wanted[:, inside])


def test_levels_of_a_pyramid_stay_in_place():
    """What is mirrored stays mirrored, whatever the sizes: a level that is shifted would not."""
    x = torch.randn(1, 6, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(HalvingPool()(x.flip(-1, -2)), HalvingPool()(x).flip(-1, -2))
    assert HalvingPool()(x).shape == (1, 6, 2, 3)
    pyramid = MultiscaleHead(6, 2, channels=4).double()
    for module in pyramid.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            module.weight.data = (module.weight.data + module.weight.data.flip(-1, -2)) / 2
    found = pyramid(x)
    assert found.shape == (1, 2, 12, 20)
    torch.testing.assert_close(pyramid(x.flip(-1, -2)).flip(-1, -2), found)
    middles = ((torch.arange(5.0) + 0.5) / 5).expand(1, 1, 3, 5)
    wanted = ((torch.arange(20.0) + 0.5) / 20)[2:-2]
    torch.testing.assert_close(resize_like(middles, found)[0, 0, :, 2:-2], wanted.expand(12, 16))


@pytest.mark.parametrize("head", ["linear", "pyramid"])
def test_models_begin_alike_whatever_their_encoding(head):
    one, two = (build_segmenter(replace(SMALL, head=head, encoding=name), **SHAPE) for name in ("mixed", "learned-ape"))
    mine, theirs = one.state_dict(), two.state_dict()
    own = find_encoding_prefix(one)
    assert own == "backbone.encoding."
    assert all(torch.equal(mine[name], theirs[name]) for name in mine if not name.startswith(own))
    other = build_segmenter(replace(SMALL, head=head, seed=1), **SHAPE).state_dict()
    changed = {name for name in mine if not torch.equal(mine[name], other[name])}
    assert {"head.weight", "head.last.weight"} & changed
    assert not any(name.startswith("backbone.head") for name in mine)
    assert set(one.no_weight_decay()) >= {"backbone.encoding.wave", "backbone.norm.weight", "backbone.blocks.0.qkv.bias"}
    assert "backbone.blocks.0.qkv.weight" not in one.no_weight_decay()


def test_the_backbone_is_that_of_a_run_on_classes():
    plain = build_model(replace(SMALL, task=None), **SHAPE, channels=3)
    model = build_segmenter(SMALL, **SHAPE)
    mine, theirs = model.backbone.state_dict(), plain.state_dict()
    assert theirs.keys() - mine.keys() == {"head.weight", "head.bias"}
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(
    "name", ["none", "mixed", "axial", "liere", "sincos", "alibi", "dinov3", "learned-ape", "swin-bias"]
)
def test_images_larger_than_those_of_training_are_looked_at(name):
    model = build_segmenter(replace(SMALL, encoding=name, options={"axes": 2} if name == "alibi" else {}), **SHAPE).eval()
    wanted = "rescale" if name in ("learned-ape", "swin-bias") else "extrapolate"
    assert choose_resolution(model.encoding) == model.resolution == wanted
    x = torch.randn(1, 3, 48, 80)
    assert model(x).isfinite().all()
    torch.testing.assert_close(model(x[..., :24, :40]), model(x[..., :24, :40], resolution="extrapolate"))


def test_volumes_have_no_maps():
    with pytest.raises(ValueError, match=r"axes, got.*backbone.*3"):
        ViTSegmenter(ViT("tiny", size=(4, 8, 8), patch=4, depth=1), 2)


# The task


class Process:
    """What a task asks of an accelerator; it remembers what it was to add up."""

    device = torch.device("cpu")

    def __init__(self, rank=0, world=1):
        self.process_index, self.num_processes, self.given = rank, world, []

    def reduce(self, value, how):
        assert how == "sum"
        self.given.append(value.clone())
        return value


def by_hand(task, split, short=24, patch=8):
    """Truths, logits at the pixels of files, image by image, in float64."""
    model = task.model.double().eval()
    mean, std = (torch.tensor(each, dtype=torch.float64)[:, None, None] for each in (task.data.mean, task.data.std))
    for pair in task.data.pairs[split]:
        with Image.open(pair.image) as image, Image.open(pair.map) as map:
            sides = [round(n * short / min(image.size) / patch) * patch for n in image.size]  # none is over twice as long
            pixels = np.array(image.resize(sides, Image.Resampling.BILINEAR)).astype(np.float64) / 255
            truth = torch.from_numpy(np.array(map)).long()
        x = (torch.from_numpy(pixels).movedim(-1, 0) - mean) / std
        coarse = model.backbone.maps(x[None], resolution="extrapolate")
        yield truth, F.interpolate(F.conv2d(coarse, model.head.weight, model.head.bias), truth.shape, mode="bilinear")[0]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_scores_are_those_of_all_pixels_of_the_files(scenes, split):
    task, process = build_task(small(scenes), "cpu"), Process()
    torch.nn.init.normal_(task.model.head.weight, std=0.5)  # so that all classes are answered
    found = task.scores(task.model, split, process)
    with torch.no_grad():
        truths, logits = zip(*by_hand(task, split), strict=True)
    flat = torch.cat([truth.flatten() for truth in truths])
    rows = torch.cat([each.flatten(1).mT for each in logits])
    overlap, right = slowly(flat.numpy(), rows.argmax(1).numpy(), 3)
    assert len(rows.argmax(1).unique()) == 3
    assert found["iou"] == pytest.approx(overlap, abs=1e-3)  # float32 against float64 moves few pixels
    assert found["pixel_accuracy"] == pytest.approx(right, abs=1e-3)
    known = flat != 255
    loss = -rows[known].log_softmax(1).gather(1, flat[known, None]).mean().item()
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    assert ({"iou_0", "iou_1", "iou_2"} <= found.keys()) == (split == "test")


def test_two_processes_count_what_one_counts(scenes):
    """Five images: the last share of the second process is empty."""
    task, one, both = build_task(small(scenes), "cpu"), Process(), [Process(rank, 2) for rank in range(2)]
    for process in (one, *both):
        task.scores(task.model, "validation", process)
    assert torch.equal(one.given[0], both[0].given[0] + both[1].given[0])
    torch.testing.assert_close(one.given[1], both[0].given[1] + both[1].given[1])
    assert both[1].given[0].sum() < one.given[0].sum()


def test_processes_need_not_keep_step(scenes):
    """What wraps a model for several processes sends its buffers around in every call, which all must make alike."""

    class Wrapped(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    task = build_task(small(scenes), "cpu")
    wrapped = Wrapped(task.model)  # it has no forward
    assert task.scores(wrapped, "validation", Process()) == task.scores(task.model, "validation", Process())
    assert task.picture(wrapped) == task.picture(task.model)


def test_the_loss_is_the_mean_over_images_of_what_is_known_of_them():
    draw = torch.Generator().manual_seed(0)
    logits, truth = torch.randn(4, 3, 3, 5, generator=draw), torch.randint(0, 3, (4, 3, 5), generator=draw)
    truth[0, 0], truth[3] = 255, 255
    each = []
    for one, numbers in zip(logits.double(), truth, strict=True):
        logs = one.log_softmax(0).movedim(0, -1)
        own = [-logs[place][numbers[place]] for place in np.ndindex(3, 5) if numbers[place] != 255]
        each.append(sum(own) / len(own) if own else 0.0)
    assert segmentation_loss(logits, truth, 0.0).item() == pytest.approx(float(sum(each)) / 4, rel=1e-5)
    halves = torch.stack([segmentation_loss(logits[:2], truth[:2], 0.1), segmentation_loss(logits[2:], truth[2:], 0.1)])
    torch.testing.assert_close(halves.mean(), segmentation_loss(logits, truth, 0.1))
    assert segmentation_loss(logits[3:], truth[3:], 0.1) == 0


def test_training_is_compiled_and_evaluation_of_many_sizes_is_not(scenes):
    task, seen = build_task(small(scenes, ema=None), "cpu"), []

    def compiled(*given, **options):
        seen.append(given[0].shape)
        return task.model._call_impl(*given, **options)

    task.model._compiled_call_impl = compiled
    task.loss(task.model, next(task.batches(0, 0, 1)), epoch=0, step=0, rank=0)
    assert seen == [(4, 3, 24, 40)]
    task.scores(task.model, "validation", Process())
    task.picture(task.model)
    assert len(seen) == 1
    assert task.model._compiled_call_impl is compiled


def test_positions_may_be_moved_and_colours_changed(scenes):
    plain, moved = (build_task(small(scenes, **more), "cpu") for more in ({}, {"perturb": 1.0, "augment": ("jitter",)}))
    batch = ImageBatch(
        torch.randint(0, 256, (4, 3, 24, 40), dtype=torch.uint8), torch.zeros(4, 24, 40).long(), torch.arange(4)
    )
    losses = [task.loss(task.model, batch, epoch=0, step=0, rank=0) for task in (plain, moved)]
    assert losses[0] != losses[1]
    assert losses[1] == moved.loss(moved.model, batch, epoch=0, step=0, rank=0)


# Runs


@pytest.fixture(scope="module")
def whole(scenes, tmp_path_factory):
    """A run that nobody disturbed."""
    return train_run(small(scenes), tmp_path_factory.mktemp("whole"))


def test_it_learns(scenes, tmp_path):
    run = train_run(small(scenes, epochs=40, batch=12, ema=None, every=40, patch=4, augment=("flip",)), tmp_path)
    result = run.result()
    assert result["test_iou"] > 0.7
    assert result["test_pixel_accuracy"] > 0.85
    assert result["test_iou"] == pytest.approx(np.mean([result[f"test_iou_{i}"] for i in range(3)]))


def test_killed_it_goes_on_to_the_same_end(whole, tmp_path):
    process = SERVER.Process(target=killed_after_steps, args=(whole.config.document(), tmp_path, 2))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    facts = RunFolder(tmp_path, whole.config).load_checkpoint()[1]
    assert (facts["step"], facts["batch"]) == (2, 2)
    after = train_run(whole.config, tmp_path)
    strip = [{name: value for name, value in each.items() if name != "seconds"} for each in after.metrics()]
    assert strip == [{name: value for name, value in each.items() if name != "seconds"} for each in whole.metrics()]
    mine, theirs = after.load_checkpoint()[0], whole.load_checkpoint()[0]
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert after.result()["test_iou"] == whole.result()["test_iou"]
    assert (after.path / "predictions.png").read_bytes() == (whole.path / "predictions.png").read_bytes()


def test_a_picture_that_cannot_be_drawn_costs_no_result(scenes, tmp_path, monkeypatch):
    monkeypatch.setattr("ropewalk.lab.tasks.segment.draw_segmentations", lambda *given: 1 / 0)
    with pytest.warns(UserWarning, match=r"predictions\.png.*division by zero"):
        run = train_run(small(scenes, epochs=1), tmp_path)
    assert run.result()["test_iou"] > 0
    assert not (run.path / "predictions.png").exists()


def test_a_run_begins_with_the_weights_of_another(scenes, whole, tmp_path):
    config = small(scenes, start=str(whole.path), learning_rate=1e-30, ema=None, epochs=1)
    own, given = train_run(config, tmp_path).load_weights()[0], whole.load_weights()[0]
    assert own.keys() == given.keys()
    assert all(torch.equal(own[name], given[name]) for name in own)


def test_other_maps_under_the_same_name_are_noticed(tmp_path):
    path = segmentation_folders.folder(tmp_path / "scenes", {"train": 5, "val": 2, "test": 2})

    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(small(path), tmp_path, watch=stop)
    segmentation_folders.save(path / "maps" / "train" / "00.png", np.zeros((37, 53), dtype=np.uint8))
    with pytest.raises(DamagedFileError, match="other data"):
        train_run(small(path), tmp_path)


def test_encodings_are_compared_by_mean_iou(scenes, tmp_path):
    comparison = compare_encodings(["learned-ape"], small(scenes, epochs=1, ema=None), tmp_path, seeds=[0], baseline="mixed")
    rows = tabulate_comparison(comparison)
    assert [row.label for row in rows] == ["mixed", "learned-ape"]
    assert format_comparison_csv(rows).startswith("label,seeds,planned,test_iou,test_iou_half")
    assert all(0 < row.score.mean < 1 for row in rows)


# What is refused


def test_a_model_of_timm_is_refused(scenes):
    with pytest.raises(ValueError, match=r"model.*none, got timm:vit_tiny"):
        small(scenes, model="timm:vit_tiny_patch16_224")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data": "nowhere"}, r"penn-fudan-maps.*got 'nowhere'"),
        ({"batch": 40}, r"batch.*got.*batch.*40.*13"),
        ({"patch": 7}, r"patch.*got.*patch.*7.*24.*40"),
        ({"size": (24, 40, 8)}, r"size.*2, got \(24, 40, 8\)"),
        ({"loss": "binary"}, r"loss.*softmax, got binary"),
        ({"mixup": 0.5}, r"mixup.*0\.0, got 0\.5"),
        ({"augment": ("flip", "resized-crop")}, r"augment.*flip, crop, jitter.*segment.*got resized-crop"),
        ({"strength": {"magnitude": 3}}, r"'magnitude'.*strength.*scale"),
        ({"strength": {"scale": 2.0}}, r"scale.*got 2\.0"),
        ({"strength": {"brightness": -1.0}}, r"brightness.*zero"),
        ({"encoding": "mrope"}, "mrope cannot be trained"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is(scenes, tmp_path, settings, words):
    config = small(scenes, **settings)
    with pytest.raises(CommandError, match=words):
        compare_encodings([config.encoding], config, tmp_path, seeds=[0], baseline=config.encoding)
    assert list(tmp_path.iterdir()) == []


def test_batches_may_be_odd(scenes, tmp_path):
    config = small(scenes, batch=3)
    check_comparison(plan_comparison(["mixed"], config, tmp_path, seeds=[0], baseline="mixed"))
    task = build_task(config, "cpu")
    assert [len(some.images) for some in task.batches(0, 0, 1)] == [3] * task.steps
    assert_batches_resume(build_task(small(scenes, batch=1), "cpu"))


def test_a_file_that_does_not_fit_is_refused_before_anything_is_trained(tmp_path):
    path = segmentation_folders.folder(tmp_path / "scenes", {"train": 5, "val": 2, "test": 2})
    segmentation_folders.save(path / "maps" / "test" / "01.png", np.zeros((5, 5), dtype=np.uint8))
    with pytest.raises(CommandError, match=r"size, got 41.*64.*5.*5.*test/01\.jpg"):
        compare_encodings(["mixed"], small(path), tmp_path / "runs", seeds=[0], baseline="mixed")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("names", [None, "ground\nred\nblue\n"])
def test_test_maps_are_read_before_anything_is_trained(tmp_path, names):
    path = segmentation_folders.folder(tmp_path / "scenes", {"train": 5, "val": 2, "test": 2})
    if names is not None:
        (path / "classes.txt").write_text(names)
    file = path / "maps" / "test" / "01.png"
    whole = file.read_bytes()
    segmentation_folders.save(file, np.full((64, 41), 3, dtype=np.uint8))
    with pytest.raises(CommandError, match=r"test/01\.png.*0.*2.*255, got 3"):
        compare_encodings(["mixed"], small(path), tmp_path / "runs", seeds=[0], baseline="mixed")
    file.write_bytes(whole[:-30])
    with pytest.raises(CommandError, match=r"test/01\.png cannot be read"):
        compare_encodings(["mixed"], small(path), tmp_path / "runs", seeds=[0], baseline="mixed")
    assert not (tmp_path / "runs").exists()


def test_without_what_validates_there_is_no_run(tmp_path):
    path = segmentation_folders.folder(tmp_path / "scenes", {"train": 5, "val": 2})
    with pytest.raises(ValueError, match="validation set, got none"):
        build_task(small(path, validation=0.0), "cpu")
    segmentation_folders.save(path / "maps" / "val" / "00.png", np.full((37, 53), 255, dtype=np.uint8))
    segmentation_folders.save(path / "maps" / "val" / "01.png", np.full((64, 41), 255, dtype=np.uint8))
    task = build_task(small(path, validation=0.2), "cpu")
    with pytest.raises(ValueError, match=r"pixels.*255.*none"):
        task.scores(task.model, "test", Process())


def test_a_head_is_of_maps_and_names_its_run():
    with pytest.raises(ValueError, match=r"head.*segment.*got linear"):
        replace(Config(), head="linear")
    assert len({SMALL.name, replace(SMALL, head="pyramid").name, replace(SMALL, task=None).name}) == 3
    recipe = RECIPES["penn-fudan-maps"]
    assert (recipe.task, recipe.head, recipe.size) == ("segment", None, (320, 320))


def test_no_padding_is_attended(scenes, monkeypatch):
    """Whatever goes through the backbone is an image that fills its sides, alone or in a batch of views of one size."""
    shapes, look = [], ViT.maps

    def spied(self, images, *given, **how):
        shapes.append(tuple(images.shape))
        return look(self, images, *given, **how)

    monkeypatch.setattr(ViT, "maps", spied)
    task = build_task(small(scenes), "cpu")
    for batch in task.batches(0, 0, 1):
        task.loss(task.model, batch, epoch=0, step=0, rank=0)
    task.scores(task.model, "validation", Process())
    assert shapes == [(4, 3, 24, 40)] * 3 + [(1, 3, 24, 32), (1, 3, 40, 24), (1, 3, 24, 24), (1, 3, 24, 32), (1, 3, 40, 24)]
