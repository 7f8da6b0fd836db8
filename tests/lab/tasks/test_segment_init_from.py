"""Runs on maps that begin with the ViT of a run that finds classes: what it sees, how images come to it, what is refused."""

import shutil
from dataclasses import replace

import pytest
import torch

from ropewalk import cli
from ropewalk.encodings import REGISTRY
from ropewalk.encodings.axial import Axial
from ropewalk.lab.compare.plan import plan_comparison
from ropewalk.lab.compare.preflight import check_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.init_from import initialize_from_run, load_origin
from ropewalk.lab.model_building import BackboneOrigin
from ropewalk.lab.probes import probe_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks import build_task
from ropewalk.lab.tasks.segment import build_segmenter
from ropewalk.lab.tasks.trained_images import load_image_model
from ropewalk.lab.train import train_run
from tests.support import segmentation_folders
from tests.support.detection_folders import paint_colours

VIT = {"patch": 8, "width": 24, "depth": 2, "heads": 2, "workers": 0, "warmup": 0.0}


class Fixed(Axial):
    """Axial RoPE whose frequencies are drawn and not learned: no file has them."""

    name = "fixed"

    def initial(self):
        return {name: value * torch.rand(value.shape) for name, value in super().initial().items()}


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(REGISTRY, "fixed", Fixed)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    """A folder of small images and maps."""
    return segmentation_folders.folder(tmp_path_factory.mktemp("boxes"), {"train": 4, "val": 2, "test": 2})


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """What trains on images of 16 × 24 pixels, a grid of 2 × 3 patches."""
    folder = tmp_path_factory.mktemp("classes")
    data = str(paint_colours(folder / "colours.npz"))

    def trained(name, **more):
        config = Config(encoding=name, data=data, epochs=1, batch=20, augment=(), seed=3, **VIT)
        return train_run(replace(config, **more), folder)

    return trained


def settings(boxes, first, **more):
    """Of a run on maps, in views of 3 × 5 patches, that begins with another."""
    same = {name: getattr(first.config, name) for name in ("encoding", "options", "span")}
    config = Config(task="segment", data=str(boxes), size=(24, 40), epochs=1, batch=4, start=str(first.path), **same, **VIT)
    return replace(config, **more)


def begun(config):
    """The task of a run as its first step finds it."""
    task = build_task(config, "cpu")
    initialize_from_run(task.model, RunFolder.at(config.start_path))
    task.model.eval()
    return task


@pytest.mark.parametrize("span", [None, 6.0])
@pytest.mark.parametrize(
    ("name", "options"),
    [("axial", {}), ("mixed", {}), ("fixed", {}), ("spherical", {}), ("liere", {}), ("dinov3", {}),
     ("learned-ape", {}), ("swin-bias", {}), ("sincos", {})],
)  # fmt: skip
def test_its_maps_are_those_of_the_run_it_goes_on_from(boxes, classes, name, options, span):
    """Bit by bit, at the size of that run, though views have another and so has the seed."""
    first = classes(name, options=options, span=span)
    images = torch.randint(0, 256, (2, 3, 16, 24), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    task, facts = begun(settings(boxes, first)), first.load_weights()[1]["data"]
    mean, std = (torch.tensor(facts[each]).view(1, 3, 1, 1) for each in ("mean", "std"))
    x = (images.float() / 255 - mean) / std
    assert torch.equal(task.normalize_images(images.float() / 255), x)
    with torch.no_grad():
        found, wanted = task.model.backbone.maps(x, resolution=task.model.resolution), load_image_model(first).maps(x)
    assert torch.equal(found, wanted)
    assert task.model.encoding.size == (2, 3)
    assert task.model.resolution == ("rescale" if name in ("learned-ape", "swin-bias") else "extrapolate")


@pytest.mark.parametrize("wrong", [{"size": (24, 40)}, {"seed": 0}])
def test_made_for_its_own_views_or_drawn_anew_it_would_see_something_else(boxes, classes, wrong):
    """What the test above is for: the grid is the yardstick of the span, and the seed draws what is not learned."""
    first = classes("fixed", span=6.0)
    config, x = settings(boxes, first), torch.randn(1, 3, 16, 24)
    right, other = (
        build_segmenter(config, (24, 40), 3, origin)
        for origin in (load_origin(config), replace(load_origin(config), **wrong))
    )
    for model in (right, other):
        initialize_from_run(model.eval(), first)
    assert torch.equal(right.backbone.maps(x), load_image_model(first).maps(x))
    assert not torch.equal(other.backbone.maps(x, resolution="extrapolate"), load_image_model(first).maps(x))


def test_from_the_command_line_and_from_maps_to_maps(boxes, classes, tmp_path):
    first = classes("fixed", span=6.0)
    words = [f"{name}={value}" for name, value in {**VIT, "data": boxes, "size": "24,40", "epochs": 1, "batch": 4}.items()]
    words += ["precision=float32", "compile=false"]
    more = ["--recipe", "penn-fudan-maps", "--task", "segment", "--runs", str(tmp_path), "--set", *words]
    assert cli.main(["train", "fixed", "--from", str(first.path), "--seed", "1", *more]) == 0
    (second,) = [RunFolder.at(path.parent) for path in tmp_path.glob("*/result.json")]
    assert second.result()["test_iou"] >= 0
    third = train_run(replace(second.config, start=str(second.path), size=(32, 32), seed=2), tmp_path)
    facts = first.load_weights()[1]["data"]
    wanted = BackboneOrigin((16, 24), tuple(facts["mean"]), tuple(facts["std"]), 3)
    for run in (second, third):
        assert load_origin(run.config) == BackboneOrigin.from_facts(run.load_weights()[1]["data"]) == wanted
    assert probe_run(third, ["cost"])["cost"][0]["parameters"] == third.result()["parameters"]


def test_once_done_it_needs_the_other_no_more(boxes, classes, tmp_path):
    away = tmp_path / "away"
    shutil.copytree(classes("fixed", span=6.0).path, away)
    run = train_run(settings(boxes, RunFolder.at(away)), tmp_path / "runs")
    x = torch.randn(1, 3, 24, 40)
    task = begun(run.config)
    task.model.load_state_dict(run.load_weights()[0])
    shutil.rmtree(away)
    assert torch.equal(load_image_model(run)(x), task.model(x))


def test_positions_are_moved_within_a_table_of_another_grid(boxes, classes):
    """On a grid of 3 × 5 the last places of a table of 2 × 3 are its last ones, as if nothing moved."""
    first = classes("learned-ape")
    plain, moved = (begun(settings(boxes, first, perturb=sigma)) for sigma in (0.0, 1e-6))
    batch = next(plain.batches(0, 0, 1))
    losses = [task.loss(task.model, batch, epoch=0, step=0, rank=0) for task in (plain, moved)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def test_a_comparison_that_begins_with_it_is_not_refused(boxes, classes, tmp_path):
    first = classes("mixed")
    check_comparison(
        plan_comparison(["mixed", "learned-ape"], settings(boxes, first), tmp_path, seeds=[0], baseline="mixed")
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"width": 48}, r"width.*24, got 48"),
        ({"depth": 1}, r"depth.*2, got 1"),
        ({"span": 5.0}, r"span.*mixed.*None, got 5.0"),
        ({"options": {"scale": 2.0}}, "options of mixed"),
    ],
)
def test_another_model_is_not_begun_with(boxes, classes, given, words):
    with pytest.raises(ValueError, match=words):
        build_task(settings(boxes, classes("mixed"), **given), "cpu")


def test_images_of_one_channel_are_not_gone_on_from(boxes, classes):
    first = classes("mixed", data="digits", size=(16, 24), batch=64)
    with pytest.raises(ValueError, match=r"three channels.*1 channels? of 16 × 24"):
        build_task(settings(boxes, first), "cpu")
