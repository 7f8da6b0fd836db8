"""Contrasts on test and on held-out images: tables from records that are made up, and those of the studies by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import contrast_tables
from ropewalk.lab.studies import ALL_STUDIES
from study_tables import NOT_RUN, RESULTS, exclude_names, load_results, select_runs
from tests.support.markdown_tables import cells
from tests.support.study_pages import make_record

STUDY = ALL_STUDIES["equivariance"]
ROTATIONS = {
    "relative": ("axial", "learned-axial", "mixed", "golden", "comrope-ld-8"),
    "other": ("spherical", "learned-spherical", "spherical-symmetric", "liere-8"),
}
NAMES = (*ROTATIONS["relative"], *ROTATIONS["other"])


def read_lines(path):
    return [json.loads(line) for line in (RESULTS / path).read_text().splitlines()]


def average_by_name(lines, measure):
    """The mean over seeds, straight from the file."""
    values = {}
    for line in lines:
        values.setdefault(line["name"], []).append(measure(line))
    return {name: float(np.mean(each)) for name, each in values.items()}


def make_runs(levels):
    """Three seeds of each name, with these accuracies on test and on held-out images, in points."""
    return [
        make_record("main", name, seed, test_accuracy=(test + noise) / 100, validation_accuracy=(held - noise) / 100)
        for i, (name, (test, held)) in enumerate(levels.items())
        for seed, noise in enumerate((0.0, 0.1 * (-1) ** i, 0.05 * i))
    ]


RUNS = make_runs({"a": (70.0, 60.0), "b": (68.0, 60.1), "c": (66.0, 60.0)})


def test_each_set_of_images_has_its_own_column():
    table = contrast_tables.compare_image_sets({"a less others": (RUNS, ["a"], ["b", "c"]), "missing": (RUNS, ["a"], ["x"])})
    rows = cells(table)
    assert list(rows) == ["a less others"]
    row = rows["a less others"]
    assert float(row["test images"].split(" ± ")[0]) == pytest.approx(3, abs=0.1)
    assert float(row["held-out images"].split(" ± ")[0]) == pytest.approx(-0.05, abs=0.1)
    assert row["interval excludes zero"] == "on test images alone"


@pytest.mark.parametrize(
    ("levels", "word"),
    [
        (((70.0, 60.0), (66.0, 50.0)), "on both"),
        (((70.0, 60.0), (70.0, 50.0)), "on held-out images alone"),
        (((70.0, 60.0), (70.0, 60.0)), "no"),
    ],
)
def test_where_an_interval_excludes_zero(levels, word):
    some = make_runs(dict(zip("ab", levels, strict=True)))
    row = cells(contrast_tables.compare_image_sets({"x": (some, ["a"], ["b"])}))["x"]
    assert row["interval excludes zero"] == word


def test_equality_is_tested_on_each_set():
    row = cells(contrast_tables.compare_equality_tests({"x": RUNS, "none": []}, ["a", "b", "c", "d"]))["x"]
    assert row["rotations"] == "3"
    test, held = (row[f"{name}: F, p; range, points"] for name in ("test images", "held-out images"))
    assert "p 0.000; 4.0" in test
    assert float(held.split("p ")[1].split(";")[0]) > 0.05


def test_tables_without_runs_are_a_note():
    contrasts = {"x": ([], ["a"], ["b"])}
    assert contrast_tables.compare_image_sets(contrasts) == NOT_RUN
    assert contrast_tables.compare_equality_tests({"x": []}, "ab") == NOT_RUN
    assert contrast_tables.list_correlations([], "abcd") == NOT_RUN
    assert contrast_tables.compare_repeated_runs([], []) == NOT_RUN
    assert contrast_tables.compare_as_units([], "ab", "cd") == NOT_RUN
    assert contrast_tables.format_variance_share([], "a") == NOT_RUN


@pytest.mark.parametrize(
    ("files", "sets"),
    [
        (["equivariance/main.jsonl"], ("+0.33 ± 0.19", "+0.16 ± 0.28")),
        (["equivariance/imagenette.jsonl", "equivariance/imagenette-again.jsonl"], ("+0.48 ± 0.28", "-0.31 ± 0.51")),
        (["volumes/half.jsonl"], ("+1.17 ± 1.00", "+0.81 ± 1.02")),
    ],
)
def test_relative_rotations_of_the_studies(files, sets):
    """Means straight from the files."""
    lines = [line for path in files for line in read_lines(path)]
    records = [
        record
        for path in files
        for record in load_results(path.split("/")[0])
        if record.part == path.split("/")[1].removesuffix(".jsonl")
    ]
    contrast = (exclude_names(records, "uniform"), *ROTATIONS.values())
    row = cells(contrast_tables.compare_image_sets({"x": contrast}))["x"]
    assert (row["test images"], row["held-out images"]) == sets
    for key, cell in zip(("test_accuracy", "validation_accuracy"), sets, strict=True):
        levels = average_by_name(lines, lambda line, key=key: 100 * line["result"][key])
        sides = [np.mean([levels[name] for name in names if name in levels]) for names in ROTATIONS.values()]
        assert f"{sides[0] - sides[1]:+.2f}" == cell.split(" ± ")[0]


def test_what_accuracy_is_correlated_with():
    """Geometric means and correlations straight from the file."""
    rows = cells(contrast_tables.list_correlations(select_runs(load_results("equivariance"), "main"), NAMES))
    lines = [line for line in read_lines("equivariance/main.jsonl") if line["name"] in NAMES]
    predictors = {
        "logarithm of the geometric mean turn": lambda line: np.mean(
            [np.log(np.abs(row["radians"])).mean() for row in line["probes"]["frequencies"]]
        ),
        "error of equivariance": lambda line: np.mean([row["expected"] for row in line["probes"]["equivariance"]]),
    }
    for title, measure in predictors.items():
        x = average_by_name(lines, measure)
        for head, key in (("test images", "test_accuracy"), ("held-out images", "validation_accuracy")):
            y = average_by_name(lines, lambda line, key=key: line["result"][key])
            expected = stats.pearsonr([x[name] for name in NAMES], [y[name] for name in NAMES]).statistic
            assert rows[title][head].startswith(f"{expected:.2f} (")
    assert rows["error of equivariance"]["the other predictor"] == rows[next(iter(predictors))]["the other predictor"]


def test_the_mean_turn_is_geometric():
    record = make_record("main", "a", 0, probes={"frequencies": [{"radians": [1.0, -4.0]}, {"radians": [2.0, 2.0]}]})
    assert contrast_tables.measure_mean_turn(record) == pytest.approx(2)
    assert contrast_tables.measure_mean_log_turn(record) == pytest.approx(math.log(2))
    still = replace(record, probes={"frequencies": [{"radians": [0.0, 1.0]}]})
    assert (
        contrast_tables.measure_mean_turn(still) is contrast_tables.measure_mean_log_turn(replace(record, probes={})) is None
    )


def test_claims_are_judged_as_pre_registered_and_as_published():
    """The pre-registered measure, the best accuracy at 48 pixels of all modes, straight from the file."""
    rows = cells(contrast_tables.list_reworded_claims(select_runs(load_results("equivariance"), "main")))
    first, last = rows["Spherical extrapolates better than axial."], rows["On larger images spherical is better than axial."]
    assert (first["difference"], first["verdict"].strip("*")) == ("-2.1 ± 1.7", "refuted")
    assert (last["difference"], last["verdict"].strip("*")) == ("-1.4 ± 1.7", "undecided")
    levels = average_by_name(
        read_lines("equivariance/main.jsonl"),
        lambda line: 100 * max(row["accuracy"] for row in line["probes"]["resolution"] if row.get("size") == [48, 48]),
    )
    assert f"{levels['spherical'] - levels['axial']:+.1f}" == first["difference"].split(" ± ")[0]


def test_runs_made_twice_are_compared():
    twice = [make_record("cudnn", "a", seed, test_accuracy=0.71, test_loss=1.5) for seed in range(3)]
    again = [make_record("main", "a", seed, test_accuracy=x, test_loss=1.5) for seed, x in enumerate((0.70, 0.71, 0.69))]
    rows = cells(contrast_tables.compare_repeated_runs(twice, again))
    assert list(rows) == ["accuracy on test images, points", "loss on test images"]
    row = rows["accuracy on test images, points"]
    assert (row["difference"], row["negative"]) == (f"-1.00 ± {4.3027 / 3**0.5:.2f}", "2 of 3")
    assert rows["loss on test images"]["difference"] == "+0.000 ± 0.000"


def test_the_last_epochs_are_averaged():
    record = make_record("main", "a", 0, curve=[0.0, *(0.01 * i for i in range(10))])
    assert contrast_tables.average_last_epochs("validation_accuracy")(record) == pytest.approx(4.5)
    assert contrast_tables.average_last_epochs("validation_accuracy", 12)(record) is None


def test_shares_of_the_pooled_variance():
    assert contrast_tables.format_variance_share(select_runs(load_results("equivariance"), "main"), "uniform") == "81 %"
    assert contrast_tables.format_text_variance("sincos").startswith("89 %")
    assert "± 0.007" in contrast_tables.format_text_variance("sincos")


def read_page(path):
    """Its text with single spaces."""
    return " ".join((RESULTS.parent / path).read_text().split())


def test_prose_has_the_figures_of_the_tables():
    """What stands in sentences of the page and of the README, computed again from the records."""
    main = exclude_names(select_runs(load_results("equivariance"), "main"), "uniform")
    photographs = select_runs(load_results("equivariance"), "imagenette", "imagenette-again")
    groups, pair = tuple(ROTATIONS.values()), (("spherical",), ("axial",))
    contrasts = {"main": (main, *groups), "photographs": (photographs, *groups), "pair": (main, *pair)}
    contrasts |= {"pair, photographs": (photographs, *pair), "table": (main, ("axial",), ("learned-ape",))}
    rows = cells(contrast_tables.compare_image_sets(contrasts))
    test, held = (
        {title: [float(x) for x in row[head].split(" ± ")] for title, row in rows.items()}
        for head in contrast_tables.IMAGE_SETS
    )
    page, readme = read_page("docs/studies/equivariance.md"), read_page("README.md")
    (mean, half), (other, wide) = held["main"], held["photographs"]
    assert f"{mean:.1f} ± {half:.1f} on held-out images, which differ by seed" in page
    assert f"and {other:.1f} ± {wide:.1f} on held-out images" in page
    assert f"the equivariant ones are {mean:.1f} ± {half:.1f} points above the others, and on photographs" in readme
    assert f"on photographs {-other:.1f} ± {wide:.1f} below" in readme
    said = (
        f"spherical is {-test['pair'][0]:.2f} points below axial on test images and {-held['pair'][0]:.2f} on held-out ones"
    )
    assert f"{said}, on photographs {-test['pair, photographs'][0]:.2f} and {-held['pair, photographs'][0]:.2f}" in readme
    for records, names in (
        (main, NAMES),
        (photographs, ("axial", "mixed", "comrope-ld-8", "spherical", "spherical-symmetric")),
    ):
        table = contrast_tables.compare_image_sets(
            {f"{one} {other}": (records, [one], [other]) for one in names for other in names if one < other}
        )
        assert all("held-out" not in row["interval excludes zero"] for row in cells(table).values())
        assert all(row["interval excludes zero"] != "on both" for row in cells(table).values())


def test_rotations_exceed_a_table_by_what_the_readme_reports():
    lines = read_lines("equivariance/main.jsonl")
    for key, said in (("test_accuracy", "1.9 to 2.8 points over a learned table"), ("validation_accuracy", "1.8 to 2.2")):
        levels = average_by_name(lines, lambda line, key=key: 100 * line["result"][key])
        gains = [levels[name] - levels["learned-ape"] for name in NAMES]
        assert said.startswith(f"{min(gains):.1f} to {max(gains):.1f}")
        assert said in read_page("README.md")
