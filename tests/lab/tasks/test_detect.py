"""Runs that find boxes and masks: trained, killed and resumed, begun with the weights of others, probed and reported."""

import json
import math
import shutil
import sys
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from ropewalk.lab.compare.plan import plan_comparison
from ropewalk.lab.compare.preflight import check_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.encoding_weights import load_run_encoding
from ropewalk.lab.errors import CommandError
from ropewalk.lab.init_from import initialize_from_run, load_origin
from ropewalk.lab.model_building import BackboneOrigin, build_backbone
from ropewalk.lab.probes import list_probe_names, probe_run
from ropewalk.lab.report import write_report
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks import build_task
from ropewalk.lab.tasks.detect import average_precisions, build_detector
from ropewalk.lab.tasks.trained_images import load_image_model
from ropewalk.lab.train import train_run
from ropewalk.lab.training_diagnosis import disable_dropout
from ropewalk.lab.vision_heads.backbone import choose_resolution
from tests.support.detection_folders import entry, paint_coco, paint_colours, paint_pedestrians
from tests.support.resumed_batches import assert_batches_resume

VIT = {"patch": 8, "width": 24, "depth": 2, "heads": 2, "workers": 0}


@pytest.fixture(scope="module")
def street(tmp_path_factory):
    return paint_pedestrians(tmp_path_factory.mktemp("street"))


def settings(folder, **more):
    return Config(task="masks", data=str(folder), size=(32, 40), epochs=2, batch=2, warmup=0.0, **VIT, **more)


@pytest.fixture(scope="module")
def done(street, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return [train_run(settings(street, encoding=name), runs) for name in ("none", "mixed")]


def test_a_run_is_judged_by_precision_and_draws_what_it_found(done):
    result = done[1].result()
    names = ("loss", *(f"{kind}_{name}" for kind in ("box", "mask") for name in ("ap", "ap50", "ap75")))
    assert all(result[f"{part}_{name}"] >= 0 for part in ("validation", "test") for name in names)
    assert all(result[f"test_{kind}_ap"] <= 1 for kind in ("box", "mask"))
    assert "test_box_ap_large" not in result  # there are no such things
    assert (done[1].path / "predictions.png").read_bytes()[:4] == b"\x89PNG"
    assert [record["step"] for record in done[1].metrics()] == [3, 6]


@pytest.mark.exhaustive("training")
def test_what_stands_out_is_found(tmp_path):
    """Bright boxes on dark ground: before training next to none of them is found, and after some steps most."""
    config = replace(
        settings(paint_pedestrians(tmp_path / "street", 34), encoding="mixed"), width=48, depth=1, task="detect"
    )
    config = replace(config, epochs=8, every=8, learning_rate=2e-3)
    task = build_task(config, "cpu")
    before = task.scores(task.model, "test", Rank(0, 1))
    after = train_run(config, tmp_path / "runs").result()
    assert before["box_ap50"] < 0.1
    assert after["test_box_ap50"] > 0.4
    assert after["test_loss"] < before["loss"]


class Killed(BaseException):
    """As by a signal."""


def test_a_run_that_was_killed_goes_on_bit_by_bit(done, street, tmp_path):
    def kill(record):
        raise Killed

    config = replace(settings(street, encoding="mixed"), checkpoint=0.0)
    with pytest.raises(Killed):
        train_run(config, tmp_path, watch=kill)
    assert [record["epoch"] for record in RunFolder(tmp_path, config).metrics()] == [1]
    again = train_run(config, tmp_path)
    old, new = done[1], again
    assert {n: v for n, v in new.result().items() if n != "seconds"} == {
        n: v for n, v in old.result().items() if n != "seconds"
    }
    assert all(torch.equal(value, new.load_weights()[0][name]) for name, value in old.load_weights()[0].items())


@pytest.mark.parametrize("task", ["detect", "segment"])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_compiler_that_is_wrong_in_training_is_told_of(street, tmp_path, monkeypatch, task, wrong):
    """With drop-path and dropout, which must not count; validation and test are computed once when training is done."""

    def backend(graph, inputs):
        def run(*given):
            out = graph(*given)
            return [each * (1.3 if wrong and each.is_floating_point() else 1.0) for each in out]

        return run

    compiled, seen = torch.compile, []
    monkeypatch.setattr(torch, "compile", lambda given, **options: compiled(given, backend=backend, dynamic=False))
    scores = type(build_task(replace(settings(street), task=task), "cpu")).scores
    owner = "ropewalk.lab.tasks.detect.DetectionTask" if task == "detect" else "ropewalk.lab.tasks.segment.SegmentationTask"
    monkeypatch.setattr(f"{owner}.scores", lambda own, model, split, process: (
        seen.append(split) or scores(own, model, split, process)))  # fmt: skip
    config = replace(settings(street, encoding="mixed", drop_path=0.5, dropout=0.25), task=task, epochs=1, compile=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = train_run(config, tmp_path)
    assert any("not to be trusted" in str(each.message) for each in told) is wrong
    assert seen == ["validation", "test", "validation"]
    assert run.result()["step"] == 3


def test_what_is_not_dropped_for_a_while_is_dropped_again():
    model = build_detector(replace(settings("", encoding="mixed", drop_path=0.4), depth=3), (32, 40), 1).train()
    before = [block.keep.item() for block in model.backbone.blocks]
    images = torch.randn(3, 3, 32, 40)
    with disable_dropout(model.backbone), torch.no_grad():
        assert model.training
        for one, other in zip(model.compiled_outputs(images), model.eval().compiled_outputs(images), strict=True):
            assert torch.equal(one, other)
    assert [block.keep.item() for block in model.backbone.blocks] == before == pytest.approx([1.0, 0.8, 0.6])


def test_a_picture_that_cannot_be_drawn_costs_no_result(street, tmp_path, monkeypatch):
    monkeypatch.setattr("ropewalk.lab.tasks.detect.draw_detections", lambda shown: 1 / 0)
    with pytest.warns(UserWarning, match=r"predictions\.png.*division by zero"):
        run = train_run(replace(settings(street), epochs=1, task="detect"), tmp_path)
    assert "test_box_ap" in run.result()
    assert "test_mask_ap" not in run.result()


def test_the_average_of_weights_is_what_is_judged(street, tmp_path):
    run = train_run(replace(settings(street), epochs=1, task="detect", ema=0.5), tmp_path)
    assert run.result()["test_loss"] > 0
    averaged, plain = run.load_weights()[0], {n: v for n, v in run.load_checkpoint()[0].items() if n.startswith("model/")}
    assert averaged.keys() == {name.removeprefix("model/") for name in plain}
    assert not torch.equal(averaged["backbone.embed.weight"], plain["model/backbone.embed.weight"])


def test_the_validation_loss_does_not_depend_on_what_was_drawn_before(street):
    task = build_task(settings(street), "cpu")
    (judged,) = task.whole["test"].read([0])
    torch.manual_seed(5)
    first = task._lost(task.model.eval(), judged, 0)
    torch.manual_seed(6)
    assert task._lost(task.model, judged, 0) == first


def test_images_of_coco_are_trained_on_with_and_without_things(tmp_path):
    entries = {"train": [entry(i, i, (5, 5, 20, 20), kind=3 + 4 * (i % 2)) for i in range(1, 9)],
               "val": [entry(20, 101, (5, 5, 20, 20)), entry(21, 101, (30, 5, 20, 20), iscrowd=1)]}  # fmt: skip
    paint_coco(tmp_path / "data", entries)
    run = train_run(replace(settings(tmp_path / "data"), epochs=1, validation=0.2, span=6.0), tmp_path / "runs")
    assert run.result()["test_mask_ap"] >= 0


# What is refused


def test_a_model_of_timm_is_refused(street):
    with pytest.raises(ValueError, match=r"model.*classify.*masks.*timm:vit_tiny"):
        replace(settings(street), model="timm:vit_tiny_patch16_224")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": None}, "size of rows and columns"),
        ({"size": (32, 36)}, "multiples of the patch 8"),
        ({"patch": 2}, "multiple of 4, got 2"),
        ({"mixup": 0.5}, "mixup.*classify.*masks.*got 0.5"),
        ({"augment": ("flip", "jitter")}, r"augment.*flip, crop.*masks.*got jitter"),
        ({"batch": 8}, r"batch.*larger than the data"),
        ({"data": "digits"}, r"penn-fudan.*got 'digits'"),
        ({"data": "digits", "size": None, "smoothing": 0.1}, "needs data in a folder"),
        ({"encoding": "rope", "options": {"axes": 1}}, "rope"),
    ],
)
def test_what_cannot_be_trained_is_refused_before(street, tmp_path, given, words):
    config = replace(settings(street), **given)
    with pytest.raises(CommandError, match=words):
        check_comparison(plan_comparison([config.encoding], config, tmp_path, seeds=[0], baseline=config.encoding))
    assert not any(tmp_path.iterdir())


def test_without_pycocotools_nothing_is_trained(street, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools.mask", None)
    config = replace(settings(street), task="detect")
    with pytest.raises(CommandError, match=r"'ropewalk\[dense\]'"):
        check_comparison(plan_comparison(["none"], config, tmp_path, seeds=[0], baseline="none"))
    with pytest.raises(ValueError, match="evaluated by pycocotools"):
        build_task(config, "cpu")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (lambda path: path.unlink(), r"val2017/000102.png cannot be read"),
        (lambda path: path.write_bytes(b"no image"), r"val2017/000102.png cannot be read"),
        (lambda path: Image.new("RGB", (40, 56)).save(path), r"000102.png.*40.*56.*got 56.*40"),
        (lambda path: Image.new("I;16", (56, 40)).save(path), r"000102.png cannot be read.*I"),
    ],
)
def test_a_test_image_that_is_not_what_is_said_is_found_before_training(tmp_path, how, words):
    things = {"train": [entry(1, i, (5, 5, 20, 20)) for i in range(1, 9)], "val": [entry(20, 101, (5, 5, 20, 20))]}
    folder = paint_coco(tmp_path / "data", things)
    compared = plan_comparison(
        ["none"], replace(settings(folder), validation=0.2), tmp_path / "runs", seeds=[0], baseline="none"
    )
    check_comparison(compared)
    how(folder / "val2017" / "000102.png")
    with pytest.raises(CommandError, match=words):
        check_comparison(compared)


def test_an_outline_of_another_size_is_found_before_training(tmp_path):
    things = {"train": [entry(1, i, (5, 5, 20, 20)) for i in range(1, 9)]}
    things["val"] = [entry(20, 101, (5, 5, 20, 20), segmentation={"counts": [7, 8], "size": [3, 5]})]
    config = replace(settings(paint_coco(tmp_path / "data", things)), validation=0.2)
    with pytest.raises(CommandError, match=r"20.*000101.png.*40.*56.*3.*5"):
        check_comparison(plan_comparison(["none"], config, tmp_path / "runs", seeds=[0], baseline="none"))
    check_comparison(
        plan_comparison(["none"], replace(config, task="detect"), tmp_path / "runs", seeds=[0], baseline="none")
    )


def test_a_mask_of_a_pedestrian_of_another_size_is_found_before_training(tmp_path):
    folder = paint_pedestrians(tmp_path / "street")
    Image.new("L", (3, 5), 1).save(folder / "PedMasks" / "Ped00001_mask.png")
    with pytest.raises(CommandError, match=r"size, got 36.*48.*3.*5.*Ped00001.png"):
        check_comparison(plan_comparison(["none"], settings(folder), tmp_path / "runs", seeds=[0], baseline="none"))


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_file_that_breaks_costs_no_training(done, street, tmp_path, part):
    """The last validation or the test fails; once the file is mended, nothing is trained again, and all is as it were."""
    folder = tmp_path / "street"
    shutil.copytree(street, folder)
    config = replace(settings(folder, encoding="mixed"), every=2)
    task = build_task(config, "cpu")
    path = task.scenes.files[task.scenes.index[part][0]][0]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"{path.name} cannot be read as an image.*keeps the state of epoch 2"):
        train_run(config, tmp_path / "runs")
    path.write_bytes(whole)
    seen = []
    with pytest.warns(UserWarning, match=r"names or sizes of files have changed.*street must be [0-9a-f]{64}, got"):
        run = train_run(config, tmp_path / "runs", watch=seen.append)
    assert seen == []
    assert {n: v for n, v in run.result().items() if n != "seconds"} == {
        n: v for n, v in done[1].result().items() if n != "seconds"
    }
    (record,) = run.metrics()
    assert record.keys() == done[1].metrics()[-1].keys()
    assert {n: v for n, v in record.items() if n != "seconds"} == {
        n: v for n, v in done[1].metrics()[-1].items() if n != "seconds"
    }
    assert "unvalidated" not in run.load_checkpoint()[1]


@pytest.mark.parametrize("batch", [1, 3])
def test_batches_may_be_odd(street, tmp_path, batch):
    config = replace(settings(street), task="detect", batch=batch, epochs=1)
    check_comparison(plan_comparison(["mixed"], config, tmp_path, seeds=[0], baseline="mixed"))
    task = build_task(config, "cpu")
    assert [len(seen.images) for seen in task.batches(0, 0, 1)] == [batch] * task.steps
    if task.steps > 1:
        assert_batches_resume(task)


def test_what_can_be_trained_is_not_refused(street, tmp_path):
    names = ["none", "learned-ape", "mixed", "spherical", "liere", "alibi"]
    check_comparison(plan_comparison(names, settings(street, span=6.0), tmp_path, seeds=[0], baseline="none"))
    check_comparison(
        plan_comparison(names[:2], replace(settings(street), task="detect"), tmp_path, seeds=[0], baseline="none")
    )


# Beginning with the weights of a run that finds classes


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    return paint_colours(tmp_path_factory.mktemp("colours") / "colours.npz")


@pytest.fixture(scope="module")
def classes(colours, tmp_path_factory):
    runs = tmp_path_factory.mktemp("classes")

    def trained(name, **more):
        config = Config(encoding=name, data=str(colours), epochs=1, batch=20, warmup=0.0, augment=(), **VIT, **more)
        return train_run(config, runs)

    return trained


@pytest.mark.parametrize("span", [None, 6.0])
@pytest.mark.parametrize("name", ["axial", "mixed", "spherical", "liere", "dinov3"])
def test_a_rotation_turns_as_far_from_patch_to_patch_as_in_the_run_it_goes_on_from(classes, street, name, span):
    first = classes(name, span=span, seed=3)
    config = settings(street, encoding=name, span=span, start=str(first.path))
    task = build_task(config, "cpu")
    initialize_from_run(task.model, first)
    old, new = load_image_model(first).encoding, task.model.encoding
    assert new.size == old.size == (2, 3)
    assert task.model.resolution == "extrapolate"
    old_places, new_places = old.grid(2, 3).view(2, 3, 2), new.grid(4, 5, resolution="extrapolate").view(4, 5, 2)
    nearly = (
        torch.tensor([4 / 2 * 1 / 3, 5 / 3 * 2 / 4]) if new.coordinates in ("pi", "unit") else 1.0
    )  # as positions.grid says
    torch.testing.assert_close(new_places[1, 1] - new_places[0, 0], nearly * (old_places[1, 1] - old_places[0, 0]))
    there = new_places.flatten(0, 1)
    assert torch.equal(new(there)[0].matrices(), old(there)[0].matrices())
    own = build_backbone(replace(config, start=None, seed=3), (32, 40), 1).encoding
    if span is not None:  # made for its own grid, it would turn less from patch to patch
        steps = [each(each.grid(4, 5, resolution="extrapolate"))[0].matrices() for each in (own, new)]
        assert not torch.allclose(*steps, atol=1e-3)


def test_all_weights_but_the_head_are_taken_over_and_the_rest_is_as_drawn(classes, street):
    first = classes("mixed")
    config = settings(street, encoding="mixed", start=str(first.path))
    model = build_detector(config, (32, 40), 1, load_origin(config))
    drawn = {name: value.clone() for name, value in model.state_dict().items()}
    initialize_from_run(model, first)
    given = first.load_weights()[0]
    for name, value in model.state_dict().items():
        wanted = given[name.removeprefix("backbone.")] if name.startswith("backbone.") else drawn[name]
        assert torch.equal(value, wanted)
    task = build_task(config, "cpu")
    facts = first.load_weights()[1]["data"]
    images = torch.randint(0, 256, (1, 3, 4, 5), dtype=torch.uint8)
    wanted = (images.double() / 255 - torch.tensor(facts["mean"]).view(3, 1, 1)) / torch.tensor(facts["std"]).view(3, 1, 1)
    torch.testing.assert_close(task.normalize_images(images).double(), wanted)
    assert task.facts()["backbone_size"] == [16, 24]


def test_a_table_is_resized_to_the_grid(classes, street):
    first = classes("learned-ape")
    config = settings(street, encoding="learned-ape", start=str(first.path))
    model = build_detector(config, (32, 40), 1, load_origin(config))
    initialize_from_run(model, first)
    assert model.resolution == "rescale"
    table = first.load_weights()[0]["encoding.table"].movedim(-1, 0)[None]
    wanted = F.interpolate(table, (4, 5), mode="bilinear", align_corners=False)[0].flatten(1).T
    got = model.encoding(model.encoding.grid(4, 5, resolution="rescale")).tokens(torch.zeros(1, 20, 24))[0]
    torch.testing.assert_close(got, wanted)


def test_a_run_goes_on_from_one_that_finds_classes_and_from_one_that_finds_boxes(classes, street, tmp_path):
    first = classes("axial", span=6.0)
    config = replace(settings(street, encoding="axial", span=6.0, start=str(first.path)), epochs=1)
    second = train_run(config, tmp_path)
    third = train_run(replace(config, start=str(second.path), size=(40, 48)), tmp_path)
    assert load_origin(third.config) == BackboneOrigin.from_facts(third.load_weights()[1]["data"]) == load_origin(config)
    assert load_origin(config).size == (16, 24)
    assert probe_run(second, ["cost"])["cost"][0]["encoding_parameters"] == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"width": 48}, r"width.*24, got 48"),
        ({"heads": 1}, r"heads.*2, got 1"),
        ({"patch": 16, "size": (32, 48)}, r"patch.*8, got 16"),
        ({"pool": "class"}, r"pool.*mean, got class"),
        ({"span": 5.0}, r"span.*mixed.*None, got 5.0"),
        ({"options": {"learned": False}}, "options of mixed"),
    ],
)
def test_another_model_is_not_begun_with(classes, street, given, words, tmp_path):
    config = replace(settings(street, encoding="mixed", start=str(classes("mixed").path)), **given)
    with pytest.raises(ValueError, match=words):
        build_task(config, "cpu")


def test_encodings_that_end_with_their_grid_are_squeezed_into_it(street):
    ways = {name: choose_resolution(build_backbone(settings(street, encoding=name), (32, 40), 1).encoding)
            for name in ("none", "axial", "learned-ape", "swin-bias", "alibi", "sincos")}  # fmt: skip
    assert [name for name, way in ways.items() if way == "rescale"] == ["learned-ape", "swin-bias"]


# Probes and reports


def test_probes_of_boxes_are_cost_and_how_soon_it_was_how_good(done):
    assert list_probe_names(done[0]) == ("reached", "cost")
    found = probe_run(done[1])
    (cost,) = found["cost"]
    assert cost["images_per_second"] > 0
    assert cost["encoding_parameters"] == done[1].result()["encoding_parameters"] > 0
    assert cost["parameters"] == done[1].result()["parameters"]
    seen = [record["validation_mask_ap"] for record in done[1].metrics()]
    for row in found["reached"]:
        assert row["value"] == row["share"] * seen[-1]
        assert row["step"] == next(3 * (i + 1) for i, value in enumerate(seen) if value >= row["value"])
    assert [row["share"] for row in found["reached"]] == [0.5, 0.8, 0.9]
    with pytest.raises(ValueError, match=r"offset.*masks.*reached, cost"):
        probe_run(done[1], ["offset"])


def test_other_readers_of_runs_say_what_they_wanted(done):
    with pytest.raises(ValueError, match=r"classify or segment.*masks"):
        load_image_model(done[1])
    encoding, _, seed = load_run_encoding(str(done[1].path))
    weights = done[1].load_weights()[0]
    assert seed == 0
    assert all(torch.equal(value, weights[f"backbone.encoding.{name}"]) for name, value in encoding.state_dict().items())


class Rank:
    """One of two processes, as scores know it."""

    device = torch.device("cpu")

    def __init__(self, rank, world):
        self.process_index, self.num_processes = rank, world

    def reduce(self, value, how):
        return value


def test_processes_share_the_images_and_their_answers_are_those_of_one(done, street, monkeypatch):
    task = build_task(replace(done[1].config), "cpu")
    task.model.load_state_dict(done[1].load_weights()[0])
    told = []
    monkeypatch.setattr("ropewalk.lab.tasks.detect.gather_object", lambda given: told.append(given) or given)
    whole = task.scores(task.model, "test", Rank(0, 1))
    assert whole["loss"] == pytest.approx(done[1].result()["test_loss"])
    parts = [task.scores(task.model, "test", Rank(rank, 2)) for rank in range(2)]
    assert math.fsum(part["loss"] for part in parts) == pytest.approx(whole["loss"])
    truths, answers = told[2] + told[4], told[3] + told[5]
    assert sorted(each["image"]["id"] for each in truths) == [0, 1]
    assert len(answers) == len(told[1])
    for kind in ("box", "mask"):
        scores = average_precisions(truths[::-1], answers[::-1], 1, kind)
        assert scores == {name: value for name, value in whole.items() if name.startswith(kind)}


def test_a_report_shows_precisions_and_what_was_found(done, tmp_path):
    for run in done:
        probe_run(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = write_report(done, tmp_path / "out").read_text()
    for words in (
        "Mask AP",
        "AP50",
        "AP75",
        "AP small",
        "box AP",
        "Predictions",
        "Steps to 90 %",
        "Cost against mask AP",
    ):
        assert words in text
    header, *rows = (tmp_path / "out" / "report.csv").read_text().splitlines()
    assert "test_mask_ap,test_mask_ap_half,test_mask_ap50" in header
    assert len(rows) == 2
    assert sum(path.name.startswith("found-") for path in (tmp_path / "out" / "figures").iterdir()) == 2
    (done[0].path / "predictions.png").write_bytes(b"torn")
    assert "its predictions.png cannot be read" in write_report(done, tmp_path / "torn").read_text()


def test_a_comparison_knows_runs_that_are_done(done, street):
    from ropewalk.lab.compare.plan import read_outcome

    assert read_outcome(done[0].path).result == done[0].result()
    torn = dict(done[0].result())
    torn.pop("test_mask_ap"), torn.pop("test_box_ap")
    (done[0].path / "result.json").write_text(json.dumps(torn))
    assert "has no test_accuracy" in read_outcome(done[0].path).note
