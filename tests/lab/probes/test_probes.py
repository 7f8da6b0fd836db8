"""Probes: each against a computation of its own on small trained runs; interrupted they go on; refusals are in words."""

import itertools
import json
import math
import shutil
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from accelerate.state import AcceleratorState
from PIL import Image

from ropewalk import attention
from ropewalk.lab import probes, tasks
from ropewalk.lab.config import Config
from ropewalk.lab.data.base import MemoryData
from ropewalk.lab.data.dataset_registry import open_dataset
from ropewalk.lab.data.sampling import sequential_order
from ropewalk.lab.errors import DamagedFileError, RunBusyError
from ropewalk.lab.probes import PROBES, list_task_probes, probe_run, save_probe, shifts
from ropewalk.lab.probes.attention import measure_attention_weights
from ropewalk.lab.probes.resolution import RESOLUTION_MODES, RESOLUTION_RULES, list_probe_grids, probe_grid, probe_resolution
from ropewalk.lab.probes.shifts import (
    OFFSET_DEVIATIONS,
    PROBE_DRAWS,
    list_pixel_shifts,
    probe_shuffle,
    sample_offset_positions,
    sample_offset_vector,
    shuffle_patches,
    translate_content,
)
from ropewalk.lab.report import write_report
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import read_json
from ropewalk.lab.tasks import open_trained_run, trained_images
from ropewalk.lab.tasks.base import normalize_images
from ropewalk.lab.tasks.classify import open_image_data
from ropewalk.lab.tasks.trained_images import ClassificationScores, ImageRun, average_scores, load_image_model, score_answers
from ropewalk.lab.train import train_run
from tests.support.patch_everywhere import patch_everywhere

SMALL = Config(
    data="digits", size=(6, 10), patch=2, width=24, depth=2, heads=2, ratio=2.0, epochs=4, batch=64, learning_rate=1e-2,
    warmup=0.5, validation=0.2, workers=0, augment=(), encoding="none",
)  # fmt: skip
GRID, TIMED = (3, 5), "cost"
CONFIGS = {
    "none": SMALL,
    "mixed": replace(SMALL, encoding="mixed"),
    "prefixed": replace(SMALL, encoding="mixed", epochs=2, ema=0.8, pool="class", registers=1),
    "liere": replace(SMALL, encoding="liere", options={"block": 4}, epochs=2),
    "sincos": replace(SMALL, encoding="sincos", epochs=8),
    "learned-ape": replace(SMALL, encoding="learned-ape", epochs=1),
    "clamped": replace(SMALL, encoding="learned-ape", options={"outside": "clamp"}, epochs=2),
    "alibi": replace(SMALL, encoding="alibi", epochs=1, precision="bfloat16"),
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Trained runs by name, each trained once."""
    runs, made = tmp_path_factory.mktemp("runs"), {}

    def find(name):
        if name not in made:
            AcceleratorState._reset_state()  # or it would insist on the precision of the run before
            with torch.enable_grad():  # a test that asks may have none
                made[name] = train_run(CONFIGS[name], runs)
            AcceleratorState._reset_state()
        return made[name]

    return find


@pytest.fixture(scope="module")
def probed(run_of):
    """What all probes say of a run, made once."""
    made = {}

    def find(name):
        if name not in made:
            made[name] = probe_run(run_of(name), device="cpu")
        return made[name]

    return find


@pytest.fixture
def copied(run_of, tmp_path):
    """The run of `none` in a folder of its own, without probes."""
    source, path = run_of("none").path, tmp_path / "run"
    path.mkdir()
    for name in ("config.json", "metrics.jsonl", "checkpoint.safetensors", "result.json"):
        (path / name).write_bytes((source / name).read_bytes())
    return RunFolder.at(path)


def validation(data):
    """All images of the validation set in one batch."""
    return next(data.batches("validation", sequential_order(data.counts["validation"], 10_000)))


@torch.no_grad()
def scores(model, data, images, labels, **how):
    """Accuracy and loss by numpy, all images at once."""
    z = model(normalize_images(images.float() / 255, data), **how).double().numpy()
    z -= z.max(1, keepdims=True)
    chosen = z[np.arange(len(labels)), labels.numpy()]
    return (z.argmax(1) == labels.numpy()).mean(), (np.log(np.exp(z).sum(1)) - chosen).mean()


def row(rows, **wanted):
    (found,) = [each for each in rows if wanted.items() <= each.items()]
    return found


# What is taken up again


@pytest.mark.parametrize("name", ["none", "prefixed", "liere", "alibi"])
def test_unchanged_it_has_the_accuracy_of_the_result(run_of, probed, name):
    found, result = probed(name), run_of(name).result()
    unchanged = [row(found["resolution"], mode=mode, size=[6, 10]) for mode in ("extrapolate", "rescale")]
    unchanged += [row(found["offset"], rho=0.0), row(found["translation"], shift=[0, 0])]
    assert {each["accuracy"] for each in unchanged} == {result["validation_accuracy"]}
    assert [each["loss"] for each in unchanged] == pytest.approx([result["validation_loss"]] * 4, rel=1e-6)


def test_what_is_unchanged_is_looked_at_once(copied, monkeypatch):
    shown, logits = Counter(), ImageRun.logits

    def spy(self, images, *places, **how):
        shown[tuple(images.shape[2:]), bool(places)] += len(images)
        return logits(self, images, *places, **how)

    monkeypatch.setattr(ImageRun, "logits", spy)
    probe_run(copied, ["resolution", "offset", "translation"], device="cpu")
    count = open_dataset("digits", validation=0.2).counts["validation"]
    assert shown[(6, 10), False] == count * (1 + len(list_pixel_shifts((6, 10))))
    assert shown[(6, 10), True] == count * len(OFFSET_DEVIATIONS) * PROBE_DRAWS
    assert shown[(12, 20), False] == 2 * count


def test_the_average_of_the_weights_is_what_is_probed(run_of):
    run = run_of("prefixed")
    tensors = run.load_checkpoint()[0]
    model, data = load_image_model(run), open_image_data(run.config)
    assert not model.training
    assert data.size == (6, 10)
    assert torch.equal(model.head.weight, tensors["average/module.head.weight"])
    assert not torch.equal(model.head.weight, tensors["model/head.weight"])
    plain = load_image_model(run_of("none"))
    assert torch.equal(plain.head.weight, run_of("none").load_checkpoint()[0]["model/head.weight"])


def test_the_test_set_is_not_read(copied, monkeypatch):
    monkeypatch.setattr(MemoryData, "_test", lambda self: pytest.fail("the test set was read"))
    found = probe_run(copied, device="cpu")
    assert set(found) == {*list_task_probes("classify"), "refused"}
    assert found == read_json(copied.path / "probes.json")


def test_probes_follow_from_the_run_alone(copied, probed):
    state = torch.random.get_rng_state()
    again = probe_run(copied, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {n: rows for n, rows in again.items() if n != TIMED} == {n: r for n, r in probed("none").items() if n != TIMED}


# Resolution


def by_pillow(images, size):
    """Antialiased by another library, image by image."""
    rows, columns = size
    made = [Image.fromarray(image[0].numpy()).resize((columns, rows), Image.Resampling.BILINEAR) for image in images]
    return torch.stack([torch.from_numpy(np.array(image, dtype=np.uint8))[None] for image in made])


def test_sizes_go_from_half_to_three_times_the_grid():
    assert list_probe_grids((3, 5)) == [(2, 3), (2, 4), (3, 5), (4, 6), (5, 8), (5, 9), (6, 10), (9, 15)]
    assert list_probe_grids((1, 14))[0] == (1, 7)
    assert list_probe_grids((10, 10))[1] == (7, 7)  # 112 of 160 pixels
    assert list_probe_grids((100, 100))[:3] == [(50, 50), (70, 70), (75, 75)]


@pytest.mark.parametrize("grid", [(2, 3), (4, 6), (6, 10)])
def test_other_sizes_are_those_of_the_original_images(run_of, probed, monkeypatch, grid):
    model, data = load_image_model(run_of("mixed")), open_image_data(run_of("mixed").config)
    originals, size = validation(open_dataset("digits", seed=0, validation=0.2)), tuple(2 * side for side in grid)
    seen, judged = [], score_answers
    patch_everywhere(
        monkeypatch,
        trained_images,
        "score_answers",
        lambda some, *rest, **how: seen.append(some) or judged(some, *rest, **how),
    )
    again = list(probe_grid(open_trained_run(run_of("mixed"), "cpu"), grid))
    images = validation(seen[0]).images
    assert (images.int() - by_pillow(originals.images, size).int()).abs().max() <= 1  # the libraries round differently
    losses = set()
    for mode in ("extrapolate", "rescale"):
        index = [np.arange(side) if mode == "extrapolate" else (np.arange(side) + 0.5) * old / side - 0.5
                 for side, old in zip(grid, GRID, strict=True)]  # fmt: skip
        positions = torch.tensor(list(itertools.product(*index)), dtype=torch.float32)
        wanted = scores(model, data, images, originals.labels, positions=positions)
        found = row(probed("mixed")["resolution"], mode=mode, size=list(size), grid=list(grid))
        assert found == row(again, mode=mode)
        assert (found["accuracy"], found["loss"]) == pytest.approx(wanted, rel=1e-5)
        losses.add(round(found["loss"], 3))
    assert len(losses) == 2


def test_tables_that_end_refuse_larger_grids_or_follow_their_own_rule(probed):
    found = probed("learned-ape")
    refused = [each for each in found["refused"] if each["probe"] == "resolution"]
    ended = [each for each in refused if "positions must lie in the 3 x 5 table" in each["why"]]
    assert {tuple(each["grid"]) for each in ended} == {(4, 6), (5, 8), (5, 9), (6, 10), (9, 15)}
    assert {each["mode"] for each in ended} == {"extrapolate"}
    assert refused[: len(ended)] == ended  # a report has the first reason
    assert len(found["resolution"]) == 2 * 8 - len(ended)
    assert not [each for each in probed("clamped")["refused"] if "table" in each["why"]]


@pytest.mark.parametrize("name", ["learned-ape", "none", "liere"])
def test_encodings_that_take_no_rule_say_so_once(run_of, probed, name):
    words = f"{run_of(name).config.encoding} does not support context extension along each axis; axial and mixed do"
    refused = [each for each in probed(name)["refused"] if each.get("mode") in ("ntk", "yarn")]
    assert refused == [{"probe": "resolution", "mode": mode, "why": words} for mode in ("ntk", "yarn")]
    assert {each["mode"] for each in probed(name)["resolution"]} == {"extrapolate", "rescale"}


def slowed(wave, mode, grid):
    """A learned wave vector of a head's (P, 2), in numpy, by the rule of a mode, and the factor of q and k."""
    s = np.maximum(1, np.array(grid) / GRID)
    if mode == "ntk":
        length = np.sqrt((wave**2).sum(1))
        share = np.log(length.max() / np.maximum(np.abs(wave), length.min())) / np.log(length.max() / length.min())
        return wave * s**-share, 1.0
    kept = np.clip((np.abs(wave) * GRID / (2 * np.pi) - 1) / 3, 0, 1)
    return wave * (kept + (1 - kept) / s), 1 + 0.1 * np.log(s.prod())


@pytest.mark.parametrize("mode", ["ntk", "yarn"])
@pytest.mark.parametrize(("name", "grid"), [("mixed", (4, 6)), ("mixed", (6, 10)), ("prefixed", (5, 8))])
def test_larger_images_are_seen_with_slower_waves(run_of, probed, monkeypatch, name, grid, mode):
    model, data = load_image_model(run_of(name)), open_image_data(run_of(name).config)
    labels, seen, judged = validation(data).labels, [], score_answers
    patch_everywhere(
        monkeypatch,
        trained_images,
        "score_answers",
        lambda some, *rest, **how: seen.append(some) or judged(some, *rest, **how),
    )
    list(probe_grid(open_trained_run(run_of(name), "cpu"), grid))
    wave, forward = model.encoding.wave.double().numpy(), type(model.encoding).rotation
    each = [[slowed(head, mode, grid) for head in layer] for layer in wave]
    model.encoding.wave.copy_(torch.tensor(np.array([[waves for waves, _ in layer] for layer in each])))
    monkeypatch.setattr(type(model.encoding), "rotation", lambda *given: forward(*given).stretched(each[0][0][1]))
    wanted = scores(model, data, validation(seen[0]).images, labels, resolution="extrapolate")
    found = row(probed(name)["resolution"], mode=mode, grid=list(grid))
    assert (found["accuracy"], found["loss"]) == pytest.approx(wanted, rel=1e-5)
    assert found["loss"] != pytest.approx(row(probed(name)["resolution"], mode="extrapolate", grid=list(grid))["loss"], 1e-3)


def test_rules_change_nothing_of_images_that_are_not_larger(run_of, probed, monkeypatch):
    before = {name: value.clone() for name, value in load_image_model(run_of("mixed")).state_dict().items()}
    for grid in ((2, 3), (2, 4), (3, 5)):
        rows = [row(probed("mixed")["resolution"], mode=mode, grid=list(grid)) for mode in ("extrapolate", "ntk", "yarn")]
        assert len({(each["accuracy"], each["loss"]) for each in rows}) == 1
    subject, shown, logits = open_trained_run(run_of("mixed"), "cpu"), Counter(), ImageRun.logits

    def spy(self, images, *places, **how):
        shown[tuple(images.shape[2:])] += len(images)
        return logits(self, images, *places, **how)

    monkeypatch.setattr(ImageRun, "logits", spy)
    list(probe_resolution(subject))
    count = subject.data.counts["validation"]
    assert (shown[4, 6], shown[6, 10], shown[8, 12]) == (2 * count, count, 4 * count)
    assert subject.encoding.rule is None
    assert all(torch.equal(value, before[name]) for name, value in subject.model.state_dict().items())


def test_a_report_has_a_picture_of_each_way(run_of, probed, tmp_path):
    for name, ways in (("mixed", [*RESOLUTION_MODES, *RESOLUTION_RULES]), ("none", [*RESOLUTION_MODES])):
        rows = [each for each in probed(name)["resolution"] if each["size"] in ([6, 10], [12, 20])]
        run = RunFolder.at(shutil.copytree(run_of(name).path, tmp_path / name))
        (run.path / "probes.json").write_text(json.dumps({"resolution": rows}))
        (run.path / "checkpoint.safetensors").unlink()  # no attention to draw
        write_report([run], tmp_path / f"{name}-page")
        drawn = (tmp_path / f"{name}-page" / "figures").glob("resolution-*.png")
        assert sorted(each.stem for each in drawn) == sorted(f"resolution-{way}" for way in ways)


def test_what_is_not_finite_is_refused():
    assert average_scores([ClassificationScores(0.5, 1.0), ClassificationScores(0.25, 2.0)]) == {
        "accuracy": 0.375,
        "loss": 1.5,
    }
    assert average_scores([ClassificationScores(0.5, 1.0), ClassificationScores(0.1, math.nan)]) == {
        "why": "logits must be finite, got a loss of nan"
    }


# Positions and content


def test_relative_encodings_do_not_mind_offsets_and_absolute_ones_do(run_of, probed):
    assert [each["rho"] for each in probed("mixed")["offset"]] == [0, 0.5, 1, 2, 4, 8]
    for name in ("mixed", "none"):
        accuracies, losses = zip(*((each["accuracy"], each["loss"]) for each in probed(name)["offset"]), strict=True)
        assert accuracies == pytest.approx([accuracies[0]] * 6, abs=0.004)  # one sample, should two classes draw
        assert losses == pytest.approx([losses[0]] * 6, abs=1e-4)
    for name in ("sincos", "liere", "clamped", "prefixed"):  # a prefix has no position: patches leave it behind
        losses = [each["loss"] for each in probed(name)["offset"]]
        assert max(abs(loss - losses[0]) for loss in losses) > 3e-4
    accuracies = [each["accuracy"] for each in probed("sincos")["offset"]]
    assert accuracies[-1] < accuracies[0] - 0.1


@torch.no_grad()
def test_offsets_keep_the_logits_of_mixed_and_not_those_of_learned_tables(run_of):
    for name, kept in (("mixed", True), ("clamped", False)):
        model, data = load_image_model(run_of(name)), open_image_data(run_of(name).config)
        x = normalize_images(validation(data).images[:9].float() / 255, data)
        away = model(x, model.encoding.grid(*GRID) + torch.tensor([1.0, -2.0])) - model(x)
        assert (away.abs().max() < 1e-4) == kept


def test_an_offset_is_one_vector_in_patches_whatever_the_coordinates(run_of):
    found = {}
    for name, unit in (("sincos", torch.ones(2)), ("liere", 1 / torch.tensor([2.0, 4.0]))):  # patches; [0, 1] across
        subject = open_trained_run(run_of(name), "cpu")
        moved = torch.stack(sample_offset_positions(subject, 2.0)) - subject.encoding.grid(*GRID)
        assert torch.allclose(moved, moved[:, :1].expand_as(moved), atol=1e-5)
        found[name] = moved[:, 0] / unit
    assert torch.allclose(found["sincos"], found["liere"], atol=1e-4)
    assert len(found["sincos"].unique(dim=0)) == PROBE_DRAWS
    vectors = torch.stack([sample_offset_vector(0, draw, 2) for draw in range(2000)])
    assert vectors.mean(0).abs().max() < 0.1
    assert vectors.std(0) == pytest.approx([1, 1], abs=0.1)


def test_accuracy_under_offsets_is_the_mean_over_draws(run_of, probed):
    subject = open_trained_run(run_of("sincos"), "cpu")
    held = validation(subject.data)
    each = [scores(subject.model, subject.data, held.images, held.labels, positions=p)
            for p in sample_offset_positions(subject, 4.0)]  # fmt: skip
    accuracy, loss = np.mean(each, axis=0)
    found = row(probed("sincos")["offset"], rho=4.0)
    assert found["draws"] == PROBE_DRAWS > 1
    assert (found["accuracy"], found["loss"]) == pytest.approx((accuracy, loss), rel=1e-5)


def test_offsets_beyond_a_table_are_refused(probed):
    found = probed("learned-ape")
    assert [each["rho"] for each in found["offset"]] == [0.0]
    assert [each["rho"] for each in found["refused"] if each["probe"] == "offset"] == [0.5, 1, 2, 4, 8]


def test_content_moves_and_black_comes_in(run_of, probed):
    images = torch.arange(1, 1 + 2 * 3 * 4 * 5, dtype=torch.uint8).view(1, 2, 3, 4, 5)
    for move in ((0, 0, 2), (-1, 0, 0), (0, 3, 0), (1, -2, 0)):
        moved = translate_content(images, move)
        for place in itertools.product(*map(range, (3, 4, 5))):
            here = [a - b for a, b in zip(place, move, strict=True)]
            there = all(0 <= a < n for a, n in zip(here, (3, 4, 5), strict=True))
            assert torch.equal(moved[(0, slice(None), *place)], images[(0, slice(None), *here)] if there else torch.zeros(2))
    assert list_pixel_shifts((6, 10)) == [(-1, 0), (1, 0), (0, -2), (0, -1), (0, 1), (0, 2)]
    model, data = load_image_model(run_of("sincos")), open_image_data(run_of("sincos").config)
    held = validation(data)
    right = torch.zeros_like(held.images)
    right[..., 2:] = held.images[..., :-2]
    found = row(probed("sincos")["translation"], shift=[0, 2])
    assert (found["accuracy"], found["loss"]) == pytest.approx(scores(model, data, right, held.labels), rel=1e-5)


def test_patches_change_places_and_nothing_else():
    images = torch.randint(256, (3, 2, 4, 6, 2), dtype=torch.uint8)
    order = torch.stack([torch.randperm(2 * 2 * 2) for _ in range(3)])
    found = shuffle_patches(images, order, (2, 3, 1))
    places = list(itertools.product(range(0, 4, 2), range(0, 6, 3), range(2)))
    for b, n in itertools.product(range(3), range(8)):
        (i, j, k), (u, v, w) = places[n], places[order[b, n]]
        assert torch.equal(found[b, :, i : i + 2, j : j + 3, k], images[b, :, u : u + 2, v : v + 3, w])


def test_shuffled_patches_change_nothing_without_an_encoding(run_of, probed):
    (plain,) = probed("none")["shuffle"]
    result = run_of("none").result()
    assert plain["accuracy"] == pytest.approx(result["validation_accuracy"], abs=0.004)
    assert plain["loss"] == pytest.approx(result["validation_loss"], abs=1e-5)
    (lost,) = probed("sincos")["shuffle"]
    assert lost["accuracy"] < run_of("sincos").result()["validation_accuracy"] - 0.1
    assert lost["draws"] == PROBE_DRAWS


def test_every_image_and_draw_has_a_permutation_of_its_own(run_of, monkeypatch):
    orders = []
    patch_everywhere(monkeypatch, shifts, "shuffle_patches", lambda images, order, patch: orders.append(order) or images)
    list(probe_shuffle(open_trained_run(run_of("none"), "cpu")))
    every = torch.cat(orders)
    assert len(every) == PROBE_DRAWS * open_dataset("digits", validation=0.2).counts["validation"]
    assert torch.equal(every.sort(1).values, torch.arange(15).expand_as(every))
    assert len(every.unique(dim=0)) == len(every)
    first = Counter(every[:, 0].tolist())
    assert min(first.values()) > 0.6 * len(every) / 15


# What the encoding is


def test_levels_are_reached_at_the_first_validation_that_has_them(copied):
    seen = [0.15, 0.45, 0.3, 0.5, 0.45]
    lines = [json.dumps({"step": 7 * i, "epoch": i, "validation_accuracy": a}) for i, a in enumerate(seen)]
    (copied.path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    found = {each["accuracy"]: each["step"] for each in probe_run(copied, ["reached"], device="cpu")["reached"]}
    assert {level: found[level] for level in (0.1, 0.3, 0.4, 0.5, 0.6, 0.99)} == {
        0.1: 0, 0.3: 7, 0.4: 7, 0.5: 21, 0.6: None, 0.99: None,
    }  # fmt: skip


def test_waves_are_those_of_the_checkpoint(run_of, probed):
    trained = run_of("mixed").load_checkpoint()[0]["model/encoding.wave"].double()  # (L h P A), radians a patch
    across = trained * torch.tensor([2.0, 4.0])
    for layer, (found, lengths) in enumerate(zip(probed("mixed")["waves"], probed("mixed")["frequencies"], strict=True)):
        assert found["layer"] == lengths["layer"] == layer
        vectors, wanted = torch.tensor(found["vectors"]).double(), across[layer].flatten(0, 1)
        assert vectors.shape == wanted.shape == (2 * 6, 2)
        assert torch.allclose(vectors, wanted, atol=1e-5)
        assert lengths["radians"] == pytest.approx(sorted(wanted.norm(dim=1).tolist()), abs=1e-5)
        assert lengths["combined"]


def test_frequencies_of_turns_that_do_not_commute_are_those_of_each_axis(run_of, probed):
    model = load_image_model(run_of("liere"))
    generators = model.encoding.generators().double().numpy()  # (L h A D D), across [0, 1]
    for layer, found in enumerate(probed("liere")["frequencies"]):
        values = np.linalg.eigvals(generators[layer]).imag
        assert found["radians"] == pytest.approx(sorted(values[values > 0]), rel=1e-4)
        assert len(found["radians"]) == 2 * 2 * 6
        assert not found["combined"]
    assert probed("liere")["waves"] == []
    assert "do not commute" in row(probed("liere")["refused"], probe="waves")["why"]


def test_equivariance_is_that_of_all_pairs(run_of, probed):
    assert max(each["worst"] for each in probed("mixed")["equivariance"]) < 1e-9
    assert min(each["expected"] for each in probed("liere")["equivariance"]) > 0
    encoding = load_image_model(run_of("liere")).encoding.double()
    positions = encoding.grid(*GRID, dtype=torch.float64)
    for layer, (axis, name) in itertools.product(range(2), enumerate(("row", "column"))):
        step = torch.zeros(2, dtype=torch.float64)
        step[axis] = 1 / (GRID[axis] - 1)
        before, after = ((r := encoding(p).matrices()[layer]).mT.unsqueeze(2) @ r.unsqueeze(1)
                         for p in (positions, positions + step))  # fmt: skip
        delta = (after - before).numpy()
        found = row(probed("liere")["equivariance"], layer=layer, axis=name)
        assert found["worst"] == pytest.approx(np.linalg.norm(delta, 2, axis=(-2, -1)).max(), rel=1e-6)
        assert found["expected"] == pytest.approx(np.sqrt((delta**2).sum((-2, -1)).mean() / 12), rel=1e-6)


def test_what_turns_nothing_is_refused_by_what_looks_at_turns(probed):
    refused = {each["probe"]: each["why"] for each in probed("alibi")["refused"] if each["probe"] != "resolution"}
    assert set(refused) == {"frequencies", "waves", "equivariance"}
    assert "only encodings that rotate channels have frequencies" in refused["waves"]
    assert "does not rotate q and k" in refused["equivariance"]
    assert [probed("alibi")[name] for name in refused] == [[], [], []]


def test_cost_counts_what_the_result_counts(run_of, probed):
    (found,), result = probed("mixed")["cost"], run_of("mixed").result()
    assert {name: found[name] for name in ("parameters", "encoding_parameters")} == {
        name: result[name] for name in ("parameters", "encoding_parameters")
    }
    assert found["images_per_second"] > 0 < found["without_encoding"]
    assert (found["peak_bytes"], found["batch"], found["device"]) == (None, 64, "cpu")


# Attention


@pytest.mark.parametrize("name", ["prefixed", "alibi", "liere"])
def test_patterns_are_what_attention_weighs(run_of, monkeypatch, name):
    run, calls, attend = run_of(name), [], F.scaled_dot_product_attention

    def spy(q, k, v, *mask, scale=None, **options):
        calls.append((q.double() @ k.double().mT / 12**0.5 + (mask[0].double() if mask else 0.0)).softmax(-1))
        return attend(q, k, v, *mask, scale=scale, **options)

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", spy)
    subject = open_trained_run(run, "cpu")
    subject.logits(validation(subject.data).images)
    before, found = subject.model.tokens, measure_attention_weights(run, [0, 1], device="cpu")
    for layer, weights in enumerate(calls[:2]):
        wanted = weights[:, :, before + 1 * 5 + 2, before:].mean(0).view(2, *GRID)  # row 1, column 2
        assert torch.allclose(found[layer], wanted, atol=1e-2 if name == "alibi" else 1e-5)
    total = found[1].sum((1, 2))
    assert torch.allclose(total, torch.ones(2).double(), atol=1e-5) == (before == 0)


def test_all_layers_are_read_from_one_pass(run_of, monkeypatch):
    passes, opened = [], open_trained_run
    patch_everywhere(monkeypatch, tasks, "open_trained_run", lambda *given: passes.append(given) or opened(*given))
    both = measure_attention_weights(run_of("liere"), [1, 0], device="cpu")
    assert list(both) == [1, 0]
    assert len(passes) == 1
    for layer, found in both.items():
        assert torch.equal(found, measure_attention_weights(run_of("liere"), [layer], device="cpu")[layer])
    assert not torch.equal(both[0], both[1])


def test_layers_that_are_not_there_are_refused(run_of):
    for layer in (2, -1):
        with pytest.raises(ValueError, match=f"layer must be from 0 to 1, got {layer}"):
            measure_attention_weights(run_of("none"), [0, layer])


# No images


def test_without_a_validation_set_only_what_looks_at_no_images_is_probed(copied, monkeypatch):
    def without(run, device):
        subject = open_trained_run(run, device)
        subject.data.counts["validation"] = 0
        return subject

    patch_everywhere(monkeypatch, tasks, "open_trained_run", without)
    patch_everywhere(monkeypatch, tasks, "open_trained_run", without)
    lines = [{"step": 1, "epoch": 1, "validation_accuracy": None}, {"step": 2, "epoch": 2}]
    (copied.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = probe_run(copied, device="cpu")
    words = {each["probe"]: each["why"] for each in found["refused"]}
    for name in ("resolution", "offset", "translation", "shuffle"):
        assert found[name] == []
        assert "the validation set of digits is empty" in words[name]
    assert {each["step"] for each in found["reached"]} == {None}
    assert found["cost"]
    with pytest.raises(ValueError, match="is empty"):
        measure_attention_weights(copied, [0], device="cpu")


# Volumes


def test_volumes_are_probed_too(tmp_path):
    draw = np.random.default_rng(0)
    labels = np.arange(60) % 3
    volumes = (draw.integers(0, 60, (60, 4, 6, 4, 1)) + 90 * labels[:, None, None, None, None]).astype(np.uint8)
    np.savez(tmp_path / "volumes.npz", train_images=volumes[:45], train_labels=labels[:45],
             test_images=volumes[45:], test_labels=labels[45:])  # fmt: skip
    config = replace(SMALL, data=str(tmp_path / "volumes.npz"), size=None, batch=12, epochs=1, encoding="axial")
    run = train_run(config, tmp_path / "runs")
    found = probe_run(run, device="cpu")
    assert found["refused"] == []
    assert [each["mode"] for each in found["resolution"][:4]] == ["extrapolate", "rescale", "ntk", "yarn"]
    assert [each["grid"] for each in found["resolution"]][::4] == [
        [1, 2, 1], [2, 2, 2], [2, 3, 2], [3, 4, 3], [3, 5, 3], [4, 5, 4], [4, 6, 4],
    ]  # fmt: skip
    unchanged = row(found["resolution"], mode="rescale", grid=[2, 3, 2])
    assert unchanged["accuracy"] == run.result()["validation_accuracy"]
    assert [each["shift"] for each in found["translation"]][-2:] == [[0, 0, -1], [0, 0, 1]]
    assert [each["axis"] for each in found["equivariance"]][:3] == ["frame", "row", "column"]
    assert measure_attention_weights(run, [0], device="cpu")[0].shape == (2, 2, 3, 2)


# On disk


def test_interrupted_it_goes_on(copied, probed):
    begun = []

    def interrupt(name):
        begun.append(name)
        if name == "shuffle":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe_run(copied, device="cpu", watch=interrupt)
    assert begun == ["resolution", "offset", "translation", "shuffle"]
    kept = read_json(copied.path / "probes.json")
    assert set(kept) == {"resolution", "offset", "translation", "refused"}
    begun.clear()
    found = probe_run(copied, device="cpu", watch=begun.append)
    assert begun == ["shuffle", "reached", "frequencies", "waves", "equivariance", "cost"]
    assert {n: r for n, r in found.items() if n != TIMED} == {n: r for n, r in probed("none").items() if n != TIMED}
    assert not list(copied.path.glob("*.part"))


def test_a_probe_that_fails_loses_no_other(copied, monkeypatch):
    broken = replace(PROBES["translation"], measure=lambda opened: (1 / 0 for _ in range(1)))
    monkeypatch.setitem(PROBES, "translation", broken)
    with pytest.raises(ZeroDivisionError):
        probe_run(copied, ["reached", "translation"], device="cpu")
    assert set(read_json(copied.path / "probes.json")) == {"reached", "refused"}


def test_what_is_done_is_not_done_again(copied, monkeypatch):
    begun = []
    first = probe_run(copied, ["reached", "waves", "reached"], device="cpu", watch=begun.append)
    assert begun == ["reached", "waves"]
    assert (first["waves"], [each["probe"] for each in first["refused"]]) == ([], ["waves"])
    patch_everywhere(monkeypatch, tasks, "open_trained_run", lambda *_: pytest.fail("the run was opened"))
    assert probe_run(copied, ["waves", "reached"], device="cpu") == first
    assert probe_run(copied, [], device="cpu") == first


@pytest.fixture
def unprobed(tmp_path):
    run = RunFolder(tmp_path, SMALL)
    run.path.mkdir()
    return run


def test_refusals_are_those_of_the_last_time(unprobed):
    save_probe(unprobed, "waves", [{"why": "no waves"}, {"why": "none at all"}])
    save_probe(unprobed, "offset", [{"rho": 0.0}, {"why": "too far"}])
    found = save_probe(unprobed, "waves", [{"layer": 0}, {"why": "one layer"}])
    assert found == read_json(unprobed.path / "probes.json")
    assert found == {
        "waves": [{"layer": 0}],
        "offset": [{"rho": 0.0}],
        "refused": [{"probe": "offset", "why": "too far"}, {"probe": "waves", "why": "one layer"}],
    }
    (unprobed.path / "probes.json").write_text('{"offset": [3]}')
    with pytest.raises(DamagedFileError, match="must hold an object of lists of objects"):
        save_probe(unprobed, "waves", [])


def test_two_processes_that_probe_one_run_lose_nothing(unprobed, monkeypatch):
    """The other stores its rows while this one holds the lock, which it has to wait for."""
    load, threads = probes.load_probes, []

    def store():
        save_probe(RunFolder(unprobed.path.parent, SMALL), "waves", [{"layer": 0}])

    def slow(run):
        found = load(run)
        if not threads:
            threads.append(threading.Thread(target=store))
            threads[0].start()
            threads[0].join(0.5)
        return found

    monkeypatch.setattr(probes, "load_probes", slow)
    save_probe(unprobed, "offset", [{"rho": 0.0}])
    threads[0].join()
    assert read_json(unprobed.path / "probes.json") == {"offset": [{"rho": 0.0}], "waves": [{"layer": 0}], "refused": []}


def test_probes_wait_for_another_process_and_not_for_ever(unprobed, monkeypatch):
    unprobed.lock_folder()
    save_probe(unprobed, "offset", [])  # with the lock that it holds, and keeps
    other = RunFolder(unprobed.path.parent, SMALL)
    monkeypatch.setattr(probes, "LOCK_WAIT_SECONDS", 0.2)
    with pytest.raises(RunBusyError, match="being written by another process"):
        save_probe(other, "waves", [])
    unprobed.release()
    save_probe(other, "waves", [])
    unprobed.lock_folder()
    unprobed.release()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"offset": [{"rh', r"cannot be read \(Unterminated string"),
        ("[]", "must hold an object, got list"),
        ('{"offset": 3}', "must hold an object of lists of objects"),
        ('{"offset": [3]}', "must hold an object of lists of objects"),
    ],
)
def test_a_damaged_file_is_reported_and_left(copied, text, words):
    (copied.path / "probes.json").write_text(text)
    with pytest.raises(DamagedFileError, match=rf"probes.json {words}.*; delete it to probe again"):
        probe_run(copied, ["reached"], device="cpu")
    assert (copied.path / "probes.json").read_text() == text


def test_names_that_no_probe_has_are_refused(copied):
    with pytest.raises(ValueError, match=r"'ofset'.*Did you mean 'offset'"):
        probe_run(copied, ["reached", "ofset"])
    assert not (copied.path / "probes.json").exists()


def test_a_run_that_is_not_done_is_refused(copied):
    (copied.path / "result.json").unlink()
    with pytest.raises(ValueError, match=r"no result\.json"):
        probe_run(copied)
    (copied.path / "checkpoint.safetensors").unlink()
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors.*none"):
        load_image_model(copied)
