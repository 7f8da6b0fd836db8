"""The tables and figures of the study of equivariance, from runs that are made up."""

import re

import equivariance
import equivariance_figures
import equivariance_layers
import equivariance_relative
import pytest
import studied
import torch

import study_figures
from ropewalk.lab.model_building import build_model
from ropewalk.lab.record import load_records
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.run import have_equal_settings
from tests.support.markdown_tables import cells

STUDY = ALL_STUDIES["equivariance"]


def made_up(part, name, seed, level):
    """A line of a run with this accuracy, in points."""
    rows = [
        {"mode": mode, "size": [side, side], "accuracy": (level - abs(side - 32) / 2 - i) / 100}
        for side in (32, 48, 64)
        for i, mode in enumerate(("extrapolate", "rescale"))
    ]
    probes = {
        "resolution": rows,
        "offset": [{"rho": 0.0, "accuracy": level / 100}, {"rho": 4.0, "accuracy": (level - 3) / 100}],
        "shuffle": [{"accuracy": 0.2}],
        "translation": [
            {"shift": [0, 0], "accuracy": level / 100},
            {"shift": [8, 0], "accuracy": (level - 1) / 100},
            {"shift": [0, -8], "accuracy": (level - 4) / 100},
            {"shift": [0, 4], "accuracy": 0.0},
        ],
        "equivariance": [
            {"layer": i, "axis": axis, "expected": value, "worst": 2.0}
            for i, values in enumerate(((0.1, 0.0), (0.34, 0.02)))
            for axis, value in zip(("row", "column"), values, strict=True)
        ],
        "frequencies": [{"layer": i, "radians": [6.0 - i, 1.0, 8.0 - i]} for i in range(3)],
    }
    head = {"part": part, "name": name, "seed": seed, "test_accuracy": level / 100, "validation_accuracy": level / 100}
    return head | {"curve": [0.1, 0.5, level / 100], "encoding_parameters": 1234, "probes": probes}


@pytest.fixture(scope="module")
def lines():
    found = [made_up("recipe-paper", "learned-ape", 0, 50.0), made_up("recipe-adamw", "learned-ape", 0, 55.0)]
    for part in ("screening", "main", "fifth", "perturbed"):
        for i, name in enumerate(STUDY.parts[part].encodings):
            found += [made_up(part, name, seed, 60 + i + 0.1 * ((i * seed) % 3)) for seed in STUDY.parts[part].seeds]
    return found


def test_tables(lines):
    rows = cells(equivariance.main_table(lines))
    assert set(rows) == set(STUDY.parts["main"].encodings)
    assert rows["mixed"]["the paper's"] == "74.7"
    assert rows["learned-ape"]["test accuracy"].startswith("60.0 ± ")
    assert rows["none"]["above learned-ape"].startswith("+1.1 ± ")
    assert rows["none"]["each seed"] == "61.0, 61.1, 61.2"
    probes = cells(equivariance.probes_table(lines))
    assert list(probes) == list(rows)
    ape = probes["learned-ape"]
    assert (ape["48 px"], ape["places moved"], ape["content moved"], ape["90 % after"]) == ("52.0", "3.0", "2.5", "100.0")
    assert (ape["shuffled"], ape["error, down"], ape["error, sideways"]) == ("20.0", "0.22", "0.01")
    assert list(cells(equivariance.recipes_table(lines))) == ["adamw", "paper"]
    assert set(cells(equivariance.screening_table(lines))) == set(STUDY.parts["screening"].encodings)


def test_tables_of_other_parts(lines):
    assert set(cells(equivariance.perturbed_table(lines))) == set(STUDY.parts["perturbed"].encodings)
    assert cells(equivariance.perturbed_table(lines))["axial"]["not moved in training"] == "62.1"
    rows = cells(equivariance.fractions_table(lines))
    assert (rows["mixed"]["45,000 images"][:4], rows["mixed"]["22,500 images"], rows["mixed"]["9,000 images"][:4]) == (
        "65.1",
        "",
        "62.1",
    )
    own = [made_up("own", "axial", 0, 70.0)]
    assert equivariance.own_table(lines) == equivariance.imagenette_table(lines) == studied.ABSENT
    assert cells(equivariance.state_table([*lines, *own]))["imagenette"]["runs"] == "0 of 18"


def test_spans_of_their_own(lines):
    own = [made_up("own", name, seed, 70.0 + 0.2 * (seed == 1)) for name in ("axial", "uniform-code") for seed in range(3)]
    own[3]["probes"] = {"frequencies": [{"layer": 0, "radians": [1.0, 2.0]}, {"layer": 1, "radians": [3.0, 9.0]}]}
    for line in own[4:]:
        line["probes"] = {}
    every = [*lines, *own]
    rows, claimed = cells(equivariance.own_table(every)), cells(equivariance.claims_table(every))
    axial, uniform = rows["axial"], rows["uniform-code"]
    assert axial["own span"].startswith("70.1 ± ")
    assert (axial["equal span"], uniform["equal span"]) == ("62.1", "64.1")
    assert (axial["turns by, radians"], uniform["turns by, radians"]) == ("8.0", "9.0")
    assert (axial["above that"][:4], uniform["above that"][:4]) == ("+8.0", "+6.0")
    assert uniform["above learned-ape"].startswith("+10.1 ± ")
    alike = claimed["Uniform RoPE is weak with the span of its code, too."]
    assert (uniform["above axial"], alike["difference"]) == ("+8.0 ± 0.1", "-8.0 ± 0.1")
    wild = [line | {"test_accuracy": 0.1 * line["seed"]} if line["name"] == "none" else line for line in every]
    assert float(cells(equivariance.own_table(wild))["uniform-code"]["above axial"].split(" ± ")[1]) > 1
    assert alike["whose"] == "ours, post hoc"
    assert alike["of what"].startswith("axial` (main) less `uniform-code` (own): test accuracy")


def test_photographs_are_asked_at_other_sizes():
    sides, rows = (80, 112, 128, 160, 208, 320), []
    for side in sides:
        rows += [{"mode": mode, "size": [side, side], "accuracy": side / 1000} for mode in ("rescale", "extrapolate")]
        rows.append({"mode": "yarn", "size": [side, side], "accuracy": 0.99})
    line = made_up("imagenette", "axial", 0, 80.0) | {"probes": {"resolution": rows}}
    row = cells(equivariance.imagenette_table([line]))["axial"]
    assert [row[f"{side} px"] for side in sides if side != 160] == ["8.0", "11.2", "12.8", "20.8", "32.0"]


def test_later_photographs_are_shown_with_the_first_and_judged_alone():
    level = {"axial": 80.0, "spherical": 78.0, "mixed": 78.5, "learned-ape": 77.0, "spherical-symmetric": 75.0}
    first = [made_up("imagenette", name, seed, 70.0 + seed) for name in level for seed in range(3)]
    later = [
        made_up("imagenette-again", name, seed, value + 0.1 * ((seed * i) % 3))
        for i, (name, value) in enumerate(level.items())
        for seed in (3, 4, 5)
    ]
    assert cells(equivariance.imagenette_table([*first, *later]))["axial"]["test accuracy"].startswith("75.5")
    rows = cells(equivariance.again_table([*first, *later]))
    assert [row["verdict"] for row in rows.values()] == [
        "**confirmed**", "**refuted**", "**confirmed**", "**confirmed**", "**refuted**", "**not run**"
    ]  # fmt: skip
    row = rows["Axial beats spherical."]
    assert row["difference"].startswith("+1.9 ± ")
    assert row["whose"] == "our first three seeds"
    assert row["of what"].startswith("axial` less `spherical` (imagenette-again): test")
    assert {row["verdict"] for row in cells(equivariance.again_table(first)).values()} == {"**not run**"}


def test_sizes_are_told_of_the_seeds_that_all_have():
    some = [made_up(part, name, seed, 60.0 + seed) for part, seed in (("imagenette", 0), ("imagenette-again", 3))
            for name in ("axial", "mixed")]  # fmt: skip
    for line in some:
        line["probes"]["resolution"] = [{"mode": "rescale", "size": [112, 112], "accuracy": line["test_accuracy"]}]
    some[0]["probes"] = {}
    rows = cells(equivariance.imagenette_table(some))
    assert (rows["axial"]["112 px"], rows["mixed"]["112 px"], rows["mixed"]["80 px"]) == ("63.0", "63.0", "")


def test_the_page_has_every_table():
    page = (studied.RESULTS.parent / "docs" / "studies" / "equivariance.md").read_text()
    assert set(re.findall(r"{{ (equivariance-[a-z]+) }}", page)) == set(equivariance.TABLES)


def test_what_is_lost_when_positions_move_is_that_of_the_part(lines):
    moved = [made_up("perturbed", "axial", seed, 60.0) for seed in range(3)]
    for line in moved:
        line["probes"]["offset"] = [{"rho": 0.0, "accuracy": 0.6}, {"rho": 4.0, "accuracy": 0.5}]
    still = [line for line in lines if line["part"] == "main"]
    assert cells(equivariance.perturbed_table([*still, *moved]))["axial"]["lost when moved"] == "10.0"


def test_claims(lines):
    rows = cells(equivariance.claims_table(lines))
    assert rows["Mixed beats axial, since it sees oblique directions."]["verdict"] == "**confirmed**"
    assert rows["It does so by 8 points on CIFAR-100."]["verdict"] == "**refuted**"
    assert rows["Deeper layers learn lower frequencies: mixed."]["difference"].startswith("+2.0")


def test_an_encoding_whose_seeds_are_far_apart_can_be_left_out(lines):
    apart = [line | {"test_accuracy": 0.1 * line["seed"]} if line["name"] == "uniform" else line for line in lines]
    rows = cells(equivariance.claims_table(apart))
    row = rows["Mixed beats axial, since it sees oblique directions."]
    assert row["verdict"] == "**undecided**"
    assert row["without `uniform"].startswith("± 0.")
    assert row["without `uniform"].endswith(", confirmed")
    assert rows["Uniform RoPE is weak: frequencies must differ."]["without `uniform"] == ""


def test_claims_say_what_is_compared(lines):
    rows = cells(equivariance.claims_table(lines))
    assert rows["Mixed beats axial, since it sees oblique directions."]["of what"].startswith("mixed` less `axial`: test")
    assert rows["Deeper layers learn lower frequencies: mixed."]["of what"] == "mixed`: radians across the image"
    gain = rows["ComRoPE gains by positions that are moved in training."]["of what"]
    assert gain.startswith("comrope-ld-8` (perturbed) less `comrope-ld-8` (main): ")


def test_what_has_fewer_seeds_stands_last(lines):
    some = [line for line in lines if line["part"] == "main" and (line["name"] != "golden" or line["seed"] == 0)]
    assert list(cells(equivariance.main_table(some)))[-1] == "golden"
    assert next(iter(cells(equivariance.main_table(lines)))) == "golden"


def test_layers_are_told_by_what_training_added(lines):
    some = [line for line in lines if line["part"] == "main" and line["name"] == "mixed"]
    assert equivariance.layers_table(some).splitlines()[2:] == ["| `mixed` | 0.00 | 2.00 | 2.00 ± 0.00 |"]
    assert equivariance.layers_table([]) == studied.ABSENT


def test_before_training_is_what_the_seed_drew():
    """By hand: the extent of the grid times the numbers that are learned, of all heads and axes of a layer."""
    config = STUDY.run_config("main", "learned-spherical", 1, {})
    encoding = build_model(config, size=(32, 32), channels=3, classes=100).encoding.double()
    extent = encoding.grid(8, 8, dtype=torch.float64)[-1] - encoding.grid(8, 8, dtype=torch.float64)[0]
    middle = (encoding.frequency * extent).abs().flatten(1).quantile(0.5, dim=1)
    drawn = (middle[:4].mean() - middle[-4:].mean()).item()
    assert drawn > 0.1
    assert equivariance_layers.begun("learned-spherical", 1) == pytest.approx(drawn, abs=1e-6)
    assert abs(equivariance_layers.begun("mixed", 1)) < 1e-6


def test_parts_that_have_not_run_say_nothing(lines):
    fewer = [line for line in lines if line["part"] == "main"]
    row = cells(equivariance.claims_table(fewer))["With a fifth of the data spherical beats axial."]
    assert (row["difference"], row["verdict"]) == ("", "**not run**")


def test_what_has_run_is_counted(lines):
    rows = cells(studied.state(STUDY, lines[:-1]))
    assert rows["screening"]["runs"] == "21 of 21"
    assert rows["perturbed"]["runs"] == "11 of 12"
    assert rows["own"]["runs"] == "0 of 33"
    assert not any(name.startswith("recipe") for name in rows)


def test_before_the_main_part_has_run_the_page_says_so(lines, tmp_path):
    fewer = [line for line in lines if line["part"] != "main"]
    assert (
        equivariance.main_table(fewer) == equivariance.probes_table(fewer) == equivariance.pictures(fewer) == studied.ABSENT
    )
    equivariance_figures.draw(tmp_path, fewer)
    assert not list((tmp_path / "images").iterdir())


def test_the_page_shows_the_figures_that_are_drawn(lines, tmp_path):
    equivariance_figures.draw(tmp_path, lines)
    shown = re.findall(r"\.\./images/([\w-]+\.png)#only-(\w+)", equivariance.pictures(lines))
    assert {name for name, _ in shown} == {path.name for path in (tmp_path / "images").iterdir()}
    assert all(name.endswith(f"-{theme}.png") for name, theme in shown)


def test_runs_that_were_made_twice_stand_beside_each_other(lines):
    twice = [made_up("cudnn", "none", 1, 61.5), made_up("cudnn", "learned-ape", 0, 59.75), made_up("cudnn", "axial", 9, 1.0)]
    rows = equivariance.kernels_table([*twice, *lines]).splitlines()[2:]
    assert [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows] == [
        ["learned-ape", "0", "59.75", "60.00", "+0.25"],
        ["none", "1", "61.50", "61.10", "-0.40"],
    ]
    assert equivariance.main_table([*twice, *lines]) == equivariance.main_table(lines)
    assert equivariance.kernels_table(twice) == studied.ABSENT


def test_what_was_measured_fills_the_page():
    screened = cells(equivariance.screening_table())
    assert set(screened) <= set(STUDY.encodings)
    assert len(cells(equivariance.recipes_table())) == 5
    recipe = max(
        (each for path in (studied.RESULTS / "equivariance").glob("recipe-*.jsonl") for each in load_records(path)),
        key=lambda record: record.result["validation_accuracy"],
    )
    assert have_equal_settings(recipe.config, STUDY.config("screening", {}), but=("encoding", "options", "epochs"))


def test_differences_are_those_of_sizes_and_seeds_that_both_have():
    own, base = {32: {0: 60.0, 1: 61.0}, 48: {2: 50.0}, 64: {0: 9.0}}, {32: {0: 58.0, 2: 1.0}, 48: {0: 40.0}}
    assert equivariance_figures.less(own, base) == {32: {0: 2.0}}


def test_accuracies_are_those_of_the_mode(lines):
    found = study_figures.accuracies([line for line in lines if line["part"] == "main"], "learned-ape", "rescale")
    assert found[48] == {0: 51.0, 1: 51.0, 2: 51.0}


def test_figures(lines, tmp_path):
    equivariance_figures.draw(tmp_path, lines)
    names = {path.name for path in (tmp_path / "images").iterdir()}
    assert names == {f"equivariance-{what}-{theme}.png" for what in ("sizes", "frequencies") for theme in ("light", "dark")}


def test_relative_rotations_are_compared_with_the_others(lines):
    spread = {
        "axial": 70.0,
        "mixed": 68.0,
        "golden": 72.0,
        "spherical": 67.0,
        "liere-8": 66.0,
        "uniform": 10.0,
        "none": 20.0,
    }
    some = [made_up("main", name, seed, level + 0.1 * ((seed * i) % 3)) for i, (name, level) in enumerate(spread.items())
            for seed in range(3)]  # fmt: skip
    rows = cells(equivariance.relative_table(some))
    assert list(rows) == ["CIFAR-100", "CIFAR-100, without `uniform"]
    row = rows["CIFAR-100"]
    assert (row["relative"], row["not"]) == ("axial`, `mixed`, `golden", "spherical`, `liere-8")
    assert row["difference"].startswith("+3.5 ± ")
    wild = [line | {"test_accuracy": 0.1 * line["seed"]} if line["name"] == "uniform" else line for line in some]
    halves = [float(row["difference"].split(" ± ")[1]) for row in cells(equivariance.relative_table(wild)).values()]
    assert halves[0] > 1 > halves[1]
    assert equivariance.relative_table([]) == studied.ABSENT
    assert equivariance_relative.between({"axial": {0: 1.0}}, ["axial"], []) is None


def test_what_is_called_relative_is():
    study = ALL_STUDIES["equivariance"]
    for name in (*equivariance_relative.RELATIVE, *equivariance_relative.OTHERS):
        config = study.run_config("main", name, 0, {})
        model = build_model(config, size=(32, 32), channels=3, classes=100)
        assert all(model.encoding.traits.relative) == (name in equivariance_relative.RELATIVE), name
