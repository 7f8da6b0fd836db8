"""Three axes: every encoding that takes them is trained and sees all of them; what does not fit is refused; the study."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.cli import main
from ropewalk.encodings import REGISTRY
from ropewalk.lab.compare.plan import plan_comparison
from ropewalk.lab.compare.preflight import check_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.data.dataset_registry import open_dataset
from ropewalk.lab.encoding_spec import parse_encoding
from ropewalk.lab.errors import CommandError
from ropewalk.lab.model_building import build_model, compute_max_span
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.record_lines import load_records
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.train import train_run

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
THREE = [name for name, kind in REGISTRY.items() if kind.allowed_axes is None or 3 in kind.allowed_axes]
SIZE, PATCH, GRID = (3, 8, 10), (1, 2, 2), (3, 4, 5)
SMALL = Config(
    size=SIZE, patch=PATCH, width=48, depth=1, heads=2, ratio=2.0, epochs=1, batch=12, warmup=0.5, workers=0,
    augment=("flip", "crop"), strength={"pad": 1, "mirrored": [0, 2]}, validation=0.2,
)  # fmt: skip
STUDY = ALL_STUDIES["volumes"]


@pytest.fixture(scope="module")
def solid(tmp_path_factory):
    """Volumes of two classes, of twice the size that is trained on along all axes but the first."""
    draw, labels = np.random.default_rng(0), np.arange(60) % 2
    volumes = draw.integers(0, 2, (60, 3, 16, 20)) * (draw.random((60, 3, 16, 20)) < 0.5 + 0.4 * labels[:, None, None, None])
    path = tmp_path_factory.mktemp("solid") / "solid.npz"
    train, test = {"train_images": volumes[:40], "train_labels": labels[:40]}, {"test_images": volumes[40:]}
    np.savez(path, **train, **test, test_labels=labels[40:])
    return path


def test_these_take_three_axes():
    assert set(THREE) == {
        "none", "learned-ape", "sincos", "axial", "mixed", "uniform", "golden", "spherical", "spherical-symmetric", "liere",
        "comrope-ap", "comrope-ld", "string-cayley", "string-circulant", "dinov3", "mrope", "alibi", "swin-bias", "waves",
    }  # fmt: skip


@pytest.mark.parametrize("name", THREE)
def test_each_is_trained_on_volumes(name, solid, tmp_path):
    config = replace(SMALL, encoding=name, data=str(solid), options={"block": 4} if "comrope" in name else {})
    before = build_model(config, size=SIZE, channels=1, classes=2).encoding
    assert (before.axes, before.size) == (3, GRID)
    run = train_run(config, tmp_path)
    assert np.isfinite(run.result()["test_loss"])
    weights, _ = run.load_weights()
    for key, start in before.named_parameters():
        assert not torch.equal(weights[f"encoding.{key}"], start), f"{key} was not trained"


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", THREE)
def test_each_sees_every_axis(name, axis):
    """Patches that change places along an axis change the answer, unless their positions go with them."""
    config = replace(SMALL, encoding=name)
    model = build_model(config, size=SIZE, channels=1, classes=5).double()
    for weight in model.parameters():  # some encodings begin with zeros, and small weights with small answers
        torch.nn.init.normal_(weight, std=0.3)
    images = torch.randn(2, 1, *SIZE, dtype=torch.float64)
    order = torch.arange(GRID[axis])
    order[1:3] = order[1:3].flip(0)  # both ends changed places, uniform RoPE would not see it; all mirrored, ALiBi would not
    pixels = torch.arange(SIZE[axis]).view(-1, PATCH[axis])[order].flatten()
    moved = images.index_select(2 + axis, pixels)
    where = model.encoding.grid(*GRID).double().unflatten(0, GRID).index_select(axis, order).flatten(0, 2)
    plain = model(images)
    torch.testing.assert_close(model(moved, where), plain, rtol=0, atol=1e-10)
    assert torch.allclose(model(moved), plain, rtol=0, atol=1e-10) == (name == "none")


@pytest.mark.parametrize(
    ("name", "heads", "words"),
    [
        ("axial", 12, r"axial.*2.*head_dim.*6.*got 4"),
        ("uniform", 12, r"uniform.*2.*head_dim.*6.*got 4"),
        ("mrope", 12, r"mrope.*3 axes, got head_dim=4"),
        ("comrope-ap", 3, r"comrope-ap.*block.*8.*head_dim.*24.*got 16"),
        ("comrope-ld", 8, r"block.*2.*head_dim=6, got 8"),
        ("liere", 8, r"block.*2.*head_dim=6, got 8"),
        ("spherical", 24, r"spherical.*got head_dim=2"),
        ("rope", 4, r"rope.*one axis.*have 3"),
    ],
)
def test_widths_and_axes_that_do_not_fit_are_refused_in_words(name, heads, words, solid, tmp_path):
    comparison = plan_comparison([name], replace(SMALL, data=str(solid), heads=heads), tmp_path, seeds=[0], baseline=name)
    with pytest.raises(CommandError, match=words):
        check_comparison(comparison)


# The study


def test_the_study_asks_what_it_says():
    assert [*STUDY.parts["half"].encodings] == [
        "none", "learned-ape", "axial", "mixed", "spherical", "liere-8", "comrope-ld-8", "mrope",
    ]  # fmt: skip
    assert STUDY.parts["half"].seeds == (0, 1, 2)
    half, whole = (STUDY.config(part, {}) for part in ("half", "whole"))
    assert (half.size, whole.size, half.patch, whole.patch) == ((15,) * 3, (30,) * 3, 3, 3)
    assert half == RECIPES["modelnet10-half"]
    assert whole == RECIPES["modelnet10"]
    labels = [parse_encoding(said).label for said in STUDY.encodings.values()]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", STUDY.encodings)
def test_all_that_turn_have_one_span(name):
    said = parse_encoding(STUDY.encodings[name])
    config = replace(STUDY.config("half", {}), encoding=said.encoding, options=said.options, depth=1)
    assert STUDY.find_name(config) == name
    encoding = build_model(config, size=(15, 15, 15), channels=1, classes=10).encoding
    if encoding.traits.rotary:
        assert compute_max_span(encoding) == pytest.approx(6.0, rel=1e-5)


def test_a_row_is_trained_small_and_asked_at_the_size_of_the_file(solid, tmp_path):
    """Trained at half the size, probed at that of the file: with the distance of patches kept, and with their extent."""
    words = ["study", "volumes", "--part", "half", "--only", "mixed", "--seed", "0", "--runs"]
    given = "size=2,8,10 patch=1,2,2 width=24 heads=2 depth=1 epochs=1 batch=12 warmup=0.5 compile=false precision=float32"
    place = [str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--set", f"data={solid}", *given.split()]
    assert main([*words, *place, "augment=crop"]) == 0
    (record,) = load_records(tmp_path / "out" / "half.jsonl")
    rows = {(each["mode"], tuple(each["size"])): each for each in record.probes["resolution"]}
    assert {mode for mode, size in rows if size == (4, 16, 20)} >= {"extrapolate", "rescale"}
    assert rows["extrapolate", (2, 8, 10)]["accuracy"] == rows["rescale", (2, 8, 10)]["accuracy"]
    assert {"offset", "translation", "shuffle", "frequencies", "equivariance"} <= record.probes.keys()
    (path,) = (tmp_path / "runs").glob("mixed-*")
    assert RunFolder.at(path).config.patch == (1, 2, 2)


def test_one_number_for_the_size_is_that_of_all_axes():
    from ropewalk.lab.recipes import parse_settings

    assert parse_settings("modelnet10", ["size=15"]).size == (15, 15, 15)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data beside the checkout: which way ModelNet10 stands")
def test_modelnet10_stands_on_its_last_axis_and_is_halved_by_shares(tmp_path):
    path = tmp_path / "modelnet10.npz"
    subprocess.run([sys.executable, SHARED / "unpack.py", "modelnet10", path], check=True, capture_output=True)
    with np.load(path) as file:
        images, labels, names = (file[key] for key in ("test_images", "test_labels", "classes"))
    tables = images[labels == names.tolist().index("table")].astype(np.float64)
    heights = [
        (tables.sum(tuple(a for a in (1, 2, 3) if a != axis)) * np.arange(30)).sum(1) / tables.sum((1, 2, 3))
        for axis in (1, 2, 3)
    ]
    off = [np.median(each) - 14.5 for each in heights]
    assert off[2] > 3, "the board of a table is above the middle"
    assert max(map(abs, off[:2])) < 1, "along the other axes tables are the same both ways"
    half = open_dataset(path, size=15)
    assert half.size == (15, 15, 15)
    with pytest.warns(UserWarning, match=r"72 of 908 test images.*training set"):
        (batch,) = half.batches("test", [torch.arange(908)])
    share = images.reshape(908, 15, 2, 15, 2, 15, 2).mean((2, 4, 6)) * 255
    assert np.abs(batch.images[:, 0].numpy() - share).max() <= 0.501
