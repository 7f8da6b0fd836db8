"""Runs on maps, seen from the command line: probes, tables, reports and pictures."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ropewalk import cli
from ropewalk.lab.config import Config, setting_applies
from ropewalk.lab.fold_run import fold_run
from ropewalk.lab.probes import probe_run
from ropewalk.lab.probes.attention import measure_attention_weights
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.report import write_report
from ropewalk.lab.report.reproduce import format_train_command
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json
from ropewalk.lab.tasks.trained_images import load_image_model
from ropewalk.lab.train import train_run
from ropewalk.lab.vision_heads.draw_predictions import _GRAY_LEVEL, SegmentationExample, class_colors, draw_segmentations
from tests.support import segmentation_folders

SETTINGS = [
    "size=24,40", "patch=8", "width=24", "depth=1", "heads=2", "ratio=2.0", "epochs=2", "batch=4", "warmup=0.5", "workers=0",
    "precision=float32", "compile=false",
]  # fmt: skip


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of a comparison that the command line made, with its report."""
    folder = tmp_path_factory.mktemp("compared")
    scenes = segmentation_folders.folder(folder / "scenes", {"train": 9, "val": 2, "test": 3})
    (scenes / "classes.txt").write_text("ground\nred <box>\nblue box\n")
    words = ["--task", "segment", "--recipe", "penn-fudan-maps", "--set", f"data={scenes}", *SETTINGS]
    places = ["--runs", str(folder / "runs"), "--out", str(folder / "report"), "--seeds", "2", "--also"]
    assert cli.main(["compare", "mixed", *words, *places]) == 0
    return folder


def runs_of(compared):
    return [RunFolder.at(path.parent) for path in sorted((compared / "runs").glob("*/config.json"))]


def test_a_report_has_mean_iou_pixel_accuracy_and_pictures(compared):
    page = (compared / "report" / "report.html").read_text()
    for words in (
        "Test mean IoU",
        "Test pixel accuracy",
        "Validation mean IoU",
        "Predictions",
    ):
        assert words in page
    assert "Mean iou" not in page
    assert re.search(r"<b>task</b> segment", page)
    assert page.count("data:image/png;base64,") == 2  # of the first seed of each
    for found in (compared / "report" / "figures").glob("found-*.png"):
        assert found.read_bytes() in [(run.path / "predictions.png").read_bytes() for run in runs_of(compared)]
    result = runs_of(compared)[0].result()
    assert {"test_iou", "test_pixel_accuracy", "test_loss", "test_iou_red <box>"} <= result.keys()
    seeds = [run.result()["test_pixel_accuracy"] for run in runs_of(compared) if run.config.encoding == "mixed"]
    assert f"{100 * np.mean(seeds):.1f} %" in page
    assert "red <box>" not in page
    assert (compared / "report" / "report.csv").read_text().splitlines()[0].split(",")[6] == "test_iou"


def test_a_report_without_a_picture_says_so(compared, tmp_path):
    run = train_run(replace(runs_of(compared)[0].config, seed=7), tmp_path / "runs")
    (run.path / "predictions.png").write_bytes(b"no picture")
    page = write_report([run], tmp_path / "out").read_text()
    assert "No finished run has a picture of its predictions." in page
    assert "cannot identify image file" in page
    assert str(tmp_path) not in page
    (run.path / "predictions.png").unlink()
    assert "No finished run has a picture" in write_report([run], tmp_path / "out").read_text()


def test_runs_were_probed_for_what_there_is(compared):
    for run in runs_of(compared):
        found = read_json(run.path / "probes.json")
        assert {name for name, rows in found.items() if rows} == {"reached", "cost"}
        (cost,) = found["cost"]
        assert cost["images_per_second"] > 0
        assert cost["parameters"] == run.result()["parameters"]
        best = max(record["validation_iou"] for record in run.metrics())
        for row in found["reached"]:
            assert (row["step"] is not None) == (best >= row["iou"])


def test_what_is_not_measured_of_maps_is_refused_by_name(compared, capsys):
    run = runs_of(compared)[0]
    with pytest.raises(ValueError, match=r"resolution.*segment.*reached, cost"):
        probe_run(run, ["resolution"])
    with pytest.raises(ValueError, match=r"'resolutions'.*reached, cost"):
        probe_run(run, ["resolutions"])
    with pytest.raises(ValueError, match=r"attention patterns.*segment"):
        measure_attention_weights(run, [0])
    with pytest.raises(ValueError, match=r"classify.*folded.*segment"):
        fold_run(run)
    assert cli.main(["evaluate", str(run.path), "--probes", "shuffle"]) != 0
    assert "'shuffle' does not support the task segment" in capsys.readouterr().err


def test_an_encoding_that_was_trained_on_maps_can_be_looked_at(compared, capsys):
    run = next(run for run in runs_of(compared) if run.config.encoding == "mixed")
    model = load_image_model(run)
    assert model.encoding.name == "mixed"
    assert not model.training
    assert cli.main(["theory", str(run.path)]) == 0
    assert "mixed" in capsys.readouterr().out


def test_settings_of_classes_are_not_said_of_maps(compared):
    shared = runs_of(compared)[0].config.document()
    assert not any(setting_applies(name, shared) for name in ("loss", "mixup", "cutmix"))
    assert all(setting_applies(name, shared) for name in ("smoothing", "strength", "perturb", "task"))
    assert setting_applies("mixup", shared | {"task": None})


def test_a_line_trains_a_run_again(compared):
    config = runs_of(compared)[0].config
    assert "task=segment" in format_train_command(config)
    own = replace(RECIPES["penn-fudan-maps"], head="pyramid", seed=3)
    assert format_train_command(own) == "ropewalk train mixed --recipe penn-fudan-maps --set head=pyramid --seed 3"


# Pictures


def test_a_picture_has_the_image_the_truth_and_the_answer():
    image = np.full((30, 50, 3), 200, dtype=np.uint8)
    truth, answer = np.zeros((2, 30, 50), dtype=np.int64)
    truth[:, 25:], answer[15:] = 1, 1
    truth[0] = 255
    with Image.open(
        io.BytesIO(draw_segmentations([SegmentationExample(image, truth, answer)] * 2, ["ground", "thing"]))
    ) as picture:
        pixels = np.array(picture.convert("RGB")).astype(int)
    red = (pixels[..., 0] - pixels[..., 2] > 60) & (pixels[..., 1] == pixels[..., 2])
    rows, columns = np.nonzero(red[: int(0.45 * len(red))])  # the upper example; below are the lower one and the legend
    third = pixels.shape[1] / 3
    assert columns.min() > 1.3 * third  # none on the image, and none in the left half of the truth
    truths, answers = columns < 2 * third, columns > 2 * third
    assert rows[answers].min() > rows[truths].min() + 20
    assert columns[answers].min() < 2.3 * third


def test_colours_are_those_of_pascal_voc():
    wanted = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 8: (64, 0, 0), 15: (192, 128, 128), 20: (0, 64, 128)}
    for number, colour in wanted.items():
        assert tuple(class_colors(np.array(number))) == colour
    assert tuple(class_colors(np.array(255))) == (_GRAY_LEVEL,) * 3


def test_settings_of_other_runs_name_them_as_before():
    assert Config().name == replace(Config(), task=None, head=None).name == NAME


NAME = "mixed-seed0-3456349d4d"
"""What the run had for a name before there were maps."""
