"""The tables on pages of studies, from records that are made up, and from those in results/."""

import math
from dataclasses import replace

import pytest
import torch

import study_tables
from ropewalk.lab.model_building import build_model
from ropewalk.lab.statistics import estimate_differences
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.claims import ClaimSide, get_test_accuracy
from ropewalk.lab.studies.contrasts import PairedContrast
from study_tables import (
    RESULTS,
    above,
    average,
    compare,
    compare_groups,
    epochs_to_share,
    format_estimate,
    format_number,
    level,
    list_progress,
    load_results,
    means,
    probe_mean,
    reached,
    result_metric,
    select_runs,
    sooner,
    translation_loss,
)
from tests.support.markdown_tables import cells
from tests.support.study_pages import make_record, render_study

STUDY = ALL_STUDIES["equivariance"]


def make_classifier(part, name, seed, points):
    """A run of the study of equivariance with this accuracy, in points."""
    resolution = [
        {"mode": mode, "size": [side, side], "accuracy": (points - abs(side - 32) / 2 - i) / 100}
        for side in (32, 48, 64)
        for i, mode in enumerate(("extrapolate", "rescale"))
    ]
    shifts = {(0, 0): points / 100, (8, 0): (points - 1) / 100, (0, -8): (points - 4) / 100, (0, 4): 0.0}
    probes = {
        "resolution": [*resolution, {"mode": "yarn", "size": [48, 48], "accuracy": 0.99}],
        "offset": [{"rho": 0.0, "accuracy": points / 100}, {"rho": 4.0, "accuracy": (points - 3) / 100}],
        "shuffle": [{"accuracy": 0.2}],
        "translation": [{"shift": list(shift), "accuracy": value} for shift, value in shifts.items()],
        "equivariance": [
            {"layer": i, "axis": axis, "expected": value, "worst": 2.0}
            for i, values in enumerate(((0.1, 0.0), (0.34, 0.02)))
            for axis, value in zip(("row", "column"), values, strict=True)
        ],
        "frequencies": [{"layer": i, "radians": [6.0 - i, 1.0, 8.0 - i]} for i in range(3)],
    }
    known = part in STUDY.parts and name in STUDY.encodings
    config = STUDY.run_config(part, name, seed, {}) if known else None
    result = {"test_accuracy": points / 100, "validation_accuracy": points / 100, "encoding_parameters": 1234}
    return make_record(part, name, seed, probes=probes, curve=[0.1, 0.5, points / 100], config=config, **result)


@pytest.fixture(scope="module")
def records():
    found = [
        make_classifier("recipe-paper", "learned-ape", 0, 50.0),
        make_classifier("recipe-adamw", "learned-ape", 0, 55.0),
    ]
    for part in ("screening", "main", "fifth", "perturbed"):
        for i, name in enumerate(STUDY.parts[part].encodings):
            seeds = STUDY.parts[part].seeds
            found += [make_classifier(part, name, seed, 60 + i + 0.1 * ((i * seed) % 3)) for seed in seeds]
    return found


@pytest.fixture(scope="module")
def equivariance(records):
    with pytest.MonkeyPatch.context() as patch:
        return render_study("equivariance", records, patch)


def test_the_main_table(equivariance):
    (rows,) = equivariance[0]["The most distinctive encodings"]
    assert set(rows) == set(STUDY.parts["main"].encodings)
    assert next(iter(rows)) == "golden"
    assert rows["mixed"]["The paper's"] == "74.7"
    assert rows["learned-ape"]["Test accuracy"].startswith("60.0 ± ")
    assert rows["none"]["Points above `learned-ape"].startswith("+1.1 ± ")
    assert (rows["none"]["Each seed"], rows["none"]["Seeds"]) == ("61.0, 61.1, 61.2", "3")
    assert rows["none"]["Parameters of encoding"] == "1,234"


def test_probes(equivariance):
    (rows,) = equivariance[0]["What probes show"]
    assert list(rows) == list(equivariance[0]["The most distinctive encodings"][0])
    ape = rows["learned-ape"]
    assert (ape["48 px"], ape["positions shifted"], ape["content moved"], ape["90 % after"]) == (
        "52.0",
        "3.0",
        "2.5",
        "100.0",
    )
    assert (ape["shuffled"], ape["error, down"], ape["error, sideways"]) == ("20.0", "0.22", "0.01")


def test_screening_and_recipes(equivariance):
    (screened,), (recipes,) = (equivariance[0][heading] for heading in ("Every encoding once", "What is held equal"))
    assert set(screened) == set(STUDY.parts["screening"].encodings)
    assert "±" not in screened["axial"]["Test accuracy"]
    assert (list(recipes), recipes["paper"]["validation accuracy"]) == (["adamw", "paper"], "50.0")


def test_parts_that_have_not_run_say_nothing(equivariance):
    own, perturbed, fractions = equivariance[0]["Own spans, moved positions, less data"]
    photographs, claims = equivariance[0]["Photographs"]
    assert own is photographs is equivariance[0]["Another kernel of attention"][0] is None
    assert set(perturbed) == set(STUDY.parts["perturbed"].encodings)
    assert perturbed["axial"]["Without perturbation"] == "62.1"
    assert [fractions["mixed"][f"{n} images"][:4] for n in ("45,000", "22,500", "9,000")] == ["65.1", "", "62.1"]
    assert {row["verdict"] for row in claims.values()} == {"**not run**"}


def test_what_is_lost_when_positions_shift_is_that_of_the_part(records, monkeypatch):
    moved = [make_classifier("perturbed", "axial", seed, 60.0) for seed in range(3)]
    for record in moved:
        record.probes["offset"] = [{"rho": 0.0, "accuracy": 0.6}, {"rho": 4.0, "accuracy": 0.5}]
    still = select_runs(records, "main")
    tables, _ = render_study("equivariance", [*still, *moved], monkeypatch)
    assert tables["Own spans, moved positions, less data"][1]["axial"]["Lost when shifted"] == "10.0"


def test_progress(records, monkeypatch, equivariance):
    (state,) = equivariance[0]["Does RoPE need to be equivariant for vision?"]
    assert state["main"]["runs"] == "36 of 36"
    assert state["imagenette"]["runs"] == "0 of 18"
    assert state["fifth"]["epochs"] == "500"
    assert not any(name.startswith("recipe-") for name in state)


def test_progress_counts_runs_of_the_study_alone(records):
    """Once each, with its settings, encodings and seeds."""
    one, *_ = runs = select_runs(records, "main")
    shorter = replace(one, config=replace(one.config, epochs=one.config.epochs - 1))
    elsewhere = replace(one, config=replace(one.config, data="/data/cifar100.npz"))
    strange = [replace(one, config=replace(one.config, seed=9)), replace(one, name="alibi"), replace(one, result=None)]
    for found, count in ((runs, 36), ([one, one], 1), ([shorter, *strange], 0), ([elsewhere], 1)):
        assert f"{count} of 36" in list_progress([STUDY], found), count


def test_claims_have_their_verdicts_and_sides(equivariance):
    (rows,) = equivariance[0]["Claims"]
    mixed = rows["Mixed beats axial, since it sees oblique directions."]
    assert mixed["verdict"] == "**confirmed**"
    assert mixed["comparison"].startswith("mixed` less `axial`: test")
    assert rows["It does so by 8 points on CIFAR-100."]["verdict"] == "**refuted**"
    drop = rows["Deeper layers learn lower frequencies: mixed."]
    assert drop["difference"].startswith("+2.0")
    assert drop["comparison"] == "mixed`: radians across the image"
    (gain,) = [row for row in rows.values() if "(perturbed)" in row["comparison"]]
    assert gain["comparison"].startswith("comrope-ld-8` (perturbed) less `comrope-ld-8` (main): ")
    assert rows["With a fifth of the data spherical beats axial."]["comparison"].endswith("(fifth): test accuracy, points")


def test_an_encoding_whose_seeds_are_far_apart_can_be_left_out(records, monkeypatch):
    apart = [
        replace(record, result={"test_accuracy": 0.1 * record.config.seed}) if record.name == "uniform" else record
        for record in select_runs(records, "main")
    ]
    (rows,) = render_study("equivariance", apart, monkeypatch)[0]["Claims"]
    row = rows["Mixed beats axial, since it sees oblique directions."]
    assert row["verdict"] == "**undecided**"
    assert row["without `uniform"].startswith("± 0.")
    assert row["without `uniform"].endswith(", confirmed")
    assert rows["Uniform RoPE is weak: frequencies must differ."]["without `uniform"] == ""


def test_spans_of_their_own(records, monkeypatch):
    own = [
        make_classifier("own", name, seed, 70.0 + 0.2 * (seed == 1))
        for name in ("axial", "uniform-code")
        for seed in range(3)
    ]
    own[3].probes["frequencies"] = [{"layer": 0, "radians": [1.0, 2.0]}, {"layer": 1, "radians": [3.0, 9.0]}]
    for record in own[4:]:
        record.probes.clear()
    every = [*select_runs(records, "main"), *own]
    tables, _ = render_study("equivariance", every, monkeypatch)
    rows, (claims,) = tables["Own spans, moved positions, less data"][0], tables["Claims"]
    axial, uniform = rows["axial"], rows["uniform-code"]
    assert axial["own span"].startswith("70.1 ± ")
    assert (axial["equal span"], uniform["equal span"]) == ("62.1", "64.1")
    assert (axial["fastest channel, radians"], uniform["fastest channel, radians"]) == ("8.0", "9.0")
    assert (axial["above that"][:4], uniform["above that"][:4]) == ("+8.0", "+6.0")
    assert uniform["above learned-ape"].startswith("+10.1 ± ")
    assert uniform["above axial"] == "+8.0 ± 0.1"
    assert claims["Uniform RoPE is weak with the span of its code, too."]["difference"] == "-8.0 ± 0.1"
    wild = [
        replace(record, result={"test_accuracy": 0.1 * record.config.seed}) if record.name == "none" else record
        for record in every
    ]
    (row,) = [render_study("equivariance", wild, monkeypatch)[0]["Own spans, moved positions, less data"][0]["uniform-code"]]
    assert float(row["above axial"].split(" ± ")[1]) > 1


def test_later_photographs_are_shown_with_the_first_and_judged_alone(monkeypatch):
    points = {"axial": 80.0, "spherical": 78.0, "mixed": 78.5, "learned-ape": 77.0, "spherical-symmetric": 75.0}
    first = [make_classifier("imagenette", name, seed, 70.0 + seed) for name in points for seed in range(3)]
    later = [
        make_classifier("imagenette-again", name, seed, value + 0.1 * ((seed * i) % 3))
        for i, (name, value) in enumerate(points.items())
        for seed in (3, 4, 5)
    ]
    shown, claims = render_study("equivariance", [*first, *later], monkeypatch)[0]["Photographs"]
    assert shown["axial"]["Test accuracy"].startswith("75.5")
    assert [row["verdict"] for row in claims.values()] == [
        "**confirmed**", "**refuted**", "**confirmed**", "**confirmed**", "**refuted**", "**not run**"
    ]  # fmt: skip
    row = claims["Axial beats spherical."]
    assert row["difference"].startswith("+1.9 ± ")
    assert row["comparison"].startswith("axial` less `spherical` (imagenette-again): test")


def test_sizes_of_photographs_are_of_the_seeds_that_all_have(monkeypatch):
    some = [make_classifier(part, name, seed, 60.0 + seed) for part, seed in (("imagenette", 0), ("imagenette-again", 3))
            for name in ("axial", "mixed")]  # fmt: skip
    for record in some:
        score = record.result["test_accuracy"]
        record.probes["resolution"] = [
            {"mode": mode, "size": [112, 112], "accuracy": value}
            for mode, value in (("rescale", score), ("extrapolate", score / 2), ("yarn", 0.99))
        ]
    some[0].probes.clear()
    rows = render_study("equivariance", some, monkeypatch)[0]["Photographs"][0]
    assert (rows["axial"]["112 px"], rows["mixed"]["112 px"]) == ("63.0", "63.0")
    assert "80 px" not in rows["mixed"]


def test_relative_rotations_are_compared_with_the_others(monkeypatch):
    points = {
        "axial": 70.0,
        "mixed": 68.0,
        "golden": 72.0,
        "spherical": 67.0,
        "liere-8": 66.0,
        "uniform": 10.0,
        "none": 20.0,
    }
    some = [
        make_classifier("main", name, seed, value + 0.1 * ((seed * i) % 3))
        for i, (name, value) in enumerate(points.items())
        for seed in range(3)
    ]
    (rows,) = render_study("equivariance", some, monkeypatch)[0]["Relative or not"]
    assert list(rows) == ["CIFAR-100", "CIFAR-100, without `uniform"]
    row = rows["CIFAR-100"]
    assert (row["relative"], row["not"]) == ("axial`, `mixed`, `golden", "spherical`, `liere-8")
    assert row["difference"].startswith("+3.5 ± ")
    wild = [
        replace(record, result={"test_accuracy": 0.1 * record.config.seed}) if record.name == "uniform" else record
        for record in some
    ]
    (rows,) = render_study("equivariance", wild, monkeypatch)[0]["Relative or not"]
    halves = [float(row["difference"].split(" ± ")[1]) for row in rows.values()]
    assert halves[0] > 1 > halves[1]
    assert cells(compare_groups({"x": some}, {"one": ["axial"], "other": []}))["x"]["difference"] == ""


def test_what_is_called_relative_is():
    page = {}
    text = (study_tables.RESULTS.parent / "docs" / "studies" / "equivariance.md").read_text()
    exec(text.split("```python hidden\n")[1].split("```\n")[0], page)
    for name in (*page["relative"], *page["not_relative"]):
        model = build_model(STUDY.run_config("main", name, 0, {}), size=(32, 32), channels=3, classes=100)
        assert all(model.encoding.traits.relative) == (name in page["relative"]), name


def test_layers_are_shown_with_what_training_added(equivariance):
    """The initial value by hand: the extent of the grid times the learned frequencies, of all heads and axes of a layer."""
    (rows,) = equivariance[0]["What layers learn"]
    assert rows["mixed"] == {"encoding": "mixed", "before": "0.00", "after": "2.00", "added": "2.00 ± 0.13"} | {
        "added": rows["mixed"]["added"]
    }
    drawn = []
    for seed in range(3):
        config = STUDY.run_config("main", "learned-spherical", seed, {})
        encoding = build_model(config, size=(32, 32), channels=3, classes=100).encoding.double()
        extent = encoding.grid(8, 8, dtype=torch.float64)[-1] - encoding.grid(8, 8, dtype=torch.float64)[0]
        middle = (encoding.frequency * extent).abs().flatten(1).quantile(0.5, dim=1)
        drawn.append((middle[:4].mean() - middle[-4:].mean()).item())
    before = math.fsum(drawn) / 3
    assert abs(before) > 0.02
    assert rows["learned-spherical"]["before"] == f"{before:.2f}"
    assert rows["learned-spherical"]["added"].startswith(f"{2 - before:.2f} ± ")


def test_runs_made_twice_are_paired(records, monkeypatch):
    twice = [make_classifier("cudnn", "learned-ape", 0, 59.75), make_classifier("cudnn", "none", 1, 61.5)]
    tables = render_study("equivariance", [*twice, *select_runs(records, "main")], monkeypatch)[0]
    rows, values = tables["Another kernel of attention"]
    assert [list(row.values()) for row in rows.values()] == [
        ["learned-ape", "0", "59.75", "60.00", "+0.25"],
        ["none", "1", "61.50", "61.10", "-0.40"],
    ]
    assert values["accuracy on test images, points"]["negative"] == "1 of 2"


def test_values_have_the_intervals_that_seeds_give():
    """By hand: both have a deviation of 1 over 3 seeds, which pooled have 4 degrees of freedom; t = 2.776."""
    values = {"learned-ape": (80.0, 81.0, 82.0), "axial": (84.0, 86.0, 85.0)}
    records = [
        make_record("half", name, i, test_accuracy=x / 100) for name, each in values.items() for i, x in enumerate(each)
    ]
    half = 2.776 / 3**0.5
    rows = cells(compare(records, {"level": level(), "above": above("learned-ape"), "mean": average()}))
    assert list(rows) == ["axial", "learned-ape"]
    pair = estimate_differences({name: dict(enumerate(each)) for name, each in values.items()}, "learned-ape")["axial"]
    assert rows["axial"]["level"] == f"85.0 ± {half:.1f}"
    assert rows["axial"]["above"] == f"+4.0 ± {pair.half:.1f}"
    assert (rows["axial"]["mean"], rows["learned-ape"]["above"]) == ("85.0", "")
    table = cells(means(records, {"x": lambda _: lambda name: "1" if name == "axial" else ""}))
    assert table["axial"]["Points above `learned-ape"] == rows["axial"]["above"]
    assert (table["axial"]["x"], table["learned-ape"]["x"]) == ("1", "–")
    assert format_estimate(pair._replace(mean=-0.04), sign="+").startswith("+0.0 ")
    assert (format_estimate(None), format_number(-0.04)) == ("", "0.0")


def test_names_with_fewer_seeds_stand_last():
    some = [make_record("main", name, seed, test_accuracy=x) for name, x in (("b", 0.5), ("a", 0.4)) for seed in range(2)]
    some.append(make_record("main", "best", 0, test_accuracy=0.9))
    assert list(cells(compare(some, {"x": average()}))) == ["b", "a", "best"]


def test_values_of_probes():
    record = make_classifier("main", "axial", 0, 60.0)
    assert translation_loss(8)(record) == pytest.approx(2.5)
    assert translation_loss(2)(record) is probe_mean("none", "x")(record) is result_metric("nothing")(record) is None
    assert probe_mean("equivariance", "expected", axis="row", layer=0)(record) == 0.1
    assert epochs_to_share(0.8)(record) == pytest.approx(200 / 3)
    assert get_test_accuracy(record) == pytest.approx(60)


CURVES = {
    "learned-ape": ([0.1, 0.2, 0.46, 0.5], [0.1, 0.2, 0.3, 0.5]),
    "axial": ([0.46, 0.6, 0.5, 0.6], [0.2, 0.3, 0.5, 0.6]),
    "mixed": ([0.46, 0.5, 0.6, 0.6], [0.1, 0.2, 0.3, 0.4]),
    "none": ([0.1, 0.1, 0.2, 0.2], [0.1, 0.1, 0.2, 0.2]),
}
"""Nine tenths of 0.5, which learned-ape has in the end, are reached after 75 and 100 % of the training by itself, after 25
and 75 by axial, after 25 by one of mixed."""


def make_detector(name, seed, ap, curve):
    keys = ("box_ap", "box_ap50", "mask_ap", "mask_ap50", "box_ap75")
    scores = {f"test_{key}": (ap + i) / 100 for i, key in enumerate(keys)}
    return make_record("masks", name, seed, curve=curve, metric="box_ap", **scores)


def test_how_soon_detectors_are_good(monkeypatch):
    points = {"learned-ape": (40, 42), "axial": (50, 51), "mixed": (60, 60), "none": (20, 21)}
    records = [make_detector(name, seed, points[name][seed], CURVES[name][seed]) for name in points for seed in range(2)]
    (rows,) = render_study("pedestrians", records, monkeypatch)[0]["Boxes and masks"]
    assert {name: row["reached after"] for name, row in rows.items()} == {
        "learned-ape": "87.5", "axial": "50.0", "mixed": "1 of 2 runs", "none": "0 of 2 runs"
    }  # fmt: skip
    assert list(rows) == ["mixed", "axial", "learned-ape", "none"]
    assert rows["axial"]["sooner"].startswith("+37.5 ± ")
    assert {rows[name]["sooner"] for name in ("learned-ape", "mixed", "none")} == {""}
    assert rows["axial"]["box AP"].startswith("50.5 ± ")
    heads = ("box AP50", "mask AP", "mask AP50", "box AP75")
    assert [rows["axial"][head] for head in heads] == ["51.5", "52.5", "53.5", "54.5"]
    assert rows["none"]["above learned-ape"].startswith("-20.5 ± ")


def test_detectors_that_were_never_validated_are_not_timed():
    columns = {"after": reached("validation_box_ap", "learned-ape", 0.9), "sooner": sooner("validation_box_ap", "none", 0.9)}
    table = compare([make_detector("learned-ape", 0, 40, [])], columns, by=result_metric("test_box_ap"))
    assert cells(table)["learned-ape"] == {"encoding": "learned-ape", "after": "", "sooner": ""}


def make_volume(part, name, seed, points):
    """A run that loses 10 points at 30³, and 5 more if rescaled."""
    rows = [
        {"mode": mode, "size": [size] * 3, "accuracy": (points - less) / 100}
        for size, mode, less in ((15, "extrapolate", 0), (15, "rescale", 0), (30, "extrapolate", 10), (30, "rescale", 15))
    ]
    probes = {"resolution": [*rows, {"mode": "yarn", "why": "no rule"}]}
    return make_record(part, name, seed, probes=probes, test_accuracy=points / 100)


def test_volumes(monkeypatch):
    points = {"learned-ape": (80, 82, 81), "axial": (84, 85, 89)}
    records = [make_volume("half", name, seed, each[seed]) for name, each in points.items() for seed in range(3)]
    more = [make_volume("whole", "axial", 0, 90.0), make_volume("also", "alibi", 0, 70.0)]
    tables, _ = render_study("volumes", [*records, *more], monkeypatch)
    (rows,) = tables["Trained at 15³"]
    assert list(rows) == ["axial", "learned-ape"]
    assert rows["axial"]["Points above `learned-ape"].startswith("+5.0 ± ")
    assert (rows["axial"]["30³, extrapolate"], rows["axial"]["30³, rescale"]) == ("76.0", "71.0")
    assert "30³, yarn" not in rows["axial"]
    (once,) = tables["Once each"]
    assert once["axial"] == {"encoding": "axial", "trained at 30³": "90.0", "others at 15³": ""}
    assert once["alibi"]["others at 15³"] == "70.0"


def test_contrasts_have_a_row_each():
    contrast = PairedContrast("E1", "One less other.", {ClaimSide("a"): 1.0, ClaimSide("b"): -1.0}, 0.5, family=True)
    missing = PairedContrast("E2", "Another.", {ClaimSide("x"): 1.0, ClaimSide("b"): -1.0}, family=True)
    records = [make_record("main", "b", seed, test_accuracy=0.6 + 0.01 * seed, test_loss=1.0) for seed in range(3)]
    for seed, gap in enumerate((0.001, 0.002, 0.003)):
        records.append(make_record("main", "a", seed, test_accuracy=0.6 + 0.01 * seed + gap, test_loss=0.9))
    rows = cells(study_tables.list_contrasts([contrast, missing], records))
    # t with 2 degrees of freedom is 4.303 and 2.920; the standard error is 0.1 / √3.
    assert rows["**E1**"] == {
        "contrast": "**E1**",
        "question": "One less other. Test accuracy, points",
        "seeds": "3",
        "difference, 95 %": "+0.20 ± 0.25",
        "90 %": "± 0.17",
        "other images": "",
        "p": "0.074",
        "p, Holm": "0.148",
        "p, sign flips": "0.250",
        "test loss, nats": "-0.1000 ± 0.0000",
        "verdict": "**equivalent**",
    }
    assert (rows["**E2**"]["verdict"], rows["**E2**"]["p"]) == ("**not run**", "")


def test_the_page_of_degree_has_its_contrasts(monkeypatch):
    study = ALL_STUDIES["degree"]
    probes = {"offset": [{"rho": rho, "accuracy": 0.6} for rho in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)]}
    records = [
        make_record(part, name, seed, probes=probes, test_accuracy=0.6 + 0.01 * (seed % 3), test_loss=1.0)
        for part, each in study.parts.items()
        for name in each.encodings
        for seed in each.seeds
    ]
    tables, _ = render_study("degree", records, monkeypatch)
    verdicts = tables["Results"][0]
    assert [row["verdict"] for row in verdicts.values()].count("**not run**") == 0
    assert [name.strip("*") for name in verdicts][:3] == ["E1", "E2", "E3"]
    assert {row["seeds"] for row in verdicts.values()} == {"10"}
    nothing, _ = render_study("degree", [], monkeypatch)
    assert {row["verdict"] for row in nothing["Results"][0].values()} == {"**not run**"}


@pytest.mark.parametrize("name", ["equivariance", "pedestrians", "volumes"])
def test_what_has_not_run_is_marked(name, monkeypatch):
    tables, figures = render_study(name, [], monkeypatch)
    assert figures == {}
    assert sum(table is None for found in tables.values() for table in found) >= 3


@pytest.mark.parametrize("name", ["equivariance", "pedestrians", "volumes"])
def test_what_was_measured_fills_the_page(name, monkeypatch):
    records, study = load_results(name), ALL_STUDIES[name]
    tables, figures = render_study(name, records, monkeypatch)
    state = next(iter(tables.values()))[0]
    counted = sum(int(row["runs"].split()[0]) for row in state.values())
    assert counted == sum(not record.part.startswith(("recipe-", "cudnn")) for record in records)
    assert figures
    assert all(int(state[part]["epochs"]) == study.config(part, {}).epochs for part in study.parts if part in state)
    assert {record.part for record in records} - {"cudnn"} <= {part for each in ALL_STUDIES.values() for part in each.parts}
    assert len(list((RESULTS / name).glob("*.jsonl"))) > 1
