"""The table of results: every renderer shows the same columns, and a column is declared once."""

import csv
import io
from dataclasses import replace

import pytest
from rich.console import Console

from ropewalk.lab import results_table
from ropewalk.lab.config import Config
from ropewalk.lab.record import RunRecord
from ropewalk.lab.result_rows import TableRow, build_table_rows, describe_state, sort_table_rows
from ropewalk.lab.results_table import (
    COLUMNS,
    TABLES,
    TableColumn,
    format_csv,
    format_difference,
    format_markdown_table,
    format_score,
    format_text_table,
    make_rich_table,
    make_table_cells,
)
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means
from ropewalk.lab.task_types import BITS_PER_BYTE, MASK_AP, MEAN_IOU, TOP1_ACCURACY

BASE = Config(data="digits", epochs=3)
SCORES = {"none": {0: 0.40, 1: 0.42}, "mixed": {0: 0.50, 1: 0.54}, "liere:block=4": {0: 0.30, 1: 0.32}}
COST = {"images_per_second": 8000.0, "without_encoding": 10000.0, "peak_bytes": 3 * 2**20}


def make_record(seed, score=None, *, encoding="mixed", options=None, cost=COST, **result):
    numbers = {"test_accuracy": score, "seconds": 10.0 + seed, "parameters": 38_000, "encoding_parameters": 96, **result}
    return RunRecord(
        config=replace(BASE, encoding=encoding, options=options or {}, seed=seed),
        run=None,
        result=None if score is None else numbers,
        probes={"cost": [cost]} if cost else {},
    )


def make_rows(scores=SCORES, *, baseline="none", **more):
    runs = {}
    for label, seeds in scores.items():
        name, _, option = label.partition(":block=")
        options = {"block": int(option)} if option else {}
        runs[label] = {seed: make_record(seed, score, encoding=name, options=options) for seed, score in seeds.items()}
    return build_table_rows(runs, TOP1_ACCURACY, baseline=baseline, **more)


def read_csv(rows, table):
    return list(csv.DictReader(io.StringIO(format_csv([rows], table))))


def show(rows):
    console = Console(file=io.StringIO(), width=200)
    console.print(make_rich_table(rows))
    return console.file.getvalue()


def test_names_and_order_of_columns_in_csv_stay():
    """Scripts read them. New columns may stand between them."""
    comparison = "label seeds planned test_accuracy test_accuracy_half difference difference_half encoding_parameters"
    report = (
        "group label encoding options seeds unfinished_seeds test_accuracy test_accuracy_half difference difference_half "
        "difference_seeds encoding_parameters parameters seconds images_per_second inference_ratio peak_bytes"
    )
    pinned = {"comparison.csv": [*comparison.split(), "images_per_second", "notes"], "report.csv": report.split()}
    for table, names in pinned.items():
        assert [name for name in read_csv(make_rows(), table)[0] if name in names] == names


def test_numbers_of_csv_are_not_rounded():
    means = estimate_means({label: list(seeds.values()) for label, seeds in SCORES.items()})
    apart = estimate_differences(SCORES, "none")
    for table in ("comparison.csv", "report.csv"):
        for row in read_csv(make_rows(), table):
            label = row["label"]
            assert (float(row["test_accuracy"]), float(row["test_accuracy_half"])) == means[label][:2]
            found = (row["difference"], row["difference_half"])
            assert found == (("", "") if label == "none" else tuple(map(str, apart[label][:2])))
    (_, mixed, liere) = read_csv(make_rows(), "report.csv")
    assert (mixed["seconds"], mixed["inference_ratio"], mixed["peak_bytes"]) == ("10.5", "1.25", str(3.0 * 2**20))
    assert (mixed["seeds"], mixed["difference_seeds"], liere["options"]) == ("0 1", "2", '{"block": 4}')


def test_seeds_are_those_that_are_done():
    rows = make_rows({"none": {0: 0.4, 1: 0.5}, "mixed": {0: 0.5, 1: None}}, notes={"mixed": ["seed 1 begun"]}, planned=3)
    none, mixed = rows
    assert (none.seeds, mixed.seeds, mixed.done, list(mixed.undone)) == (2, 1, (0,), [1])
    assert [row["seeds"] for row in read_csv(rows, "comparison.csv")] == ["2", "1"]
    assert [row["seeds"] for row in read_csv(rows, "report.csv")] == ["0 1", "0"]
    assert [row["unfinished_seeds"] for row in read_csv(rows, "report.csv")] == ["", "1"]
    assert [row["notes"] for row in read_csv(rows, "comparison.csv")] == ["", "seed 1 begun"]
    assert "1 of 3" in show(rows)
    assert "seed 1 begun" in show(rows)


def test_people_see_the_numbers_of_the_rows():
    rows = make_rows()
    table = make_table_cells(rows, "page")
    assert table.titles[:4] == ["Encoding", "Seeds", "Test accuracy", "Points above none"]
    mixed = dict(zip(table.titles, table.rows[1], strict=True))
    assert mixed["Test accuracy"].text == format_score(rows[1].score, TOP1_ACCURACY)
    assert mixed["Test accuracy"].text.startswith("52.0 ± ")
    assert mixed["Test accuracy"].value == rows[1].score.mean
    assert mixed["Points above none"].text.startswith("+11.0 ± ")
    assert mixed["Peak memory, MiB"].text == "3"
    assert table.rows[0][3].text == "–"
    assert "52.00 ± " in show(rows)
    assert "−10.00 ± " in show(rows)


def test_columns_without_a_value_are_left_out_for_people_alone():
    rows = build_table_rows({"mixed": {0: make_record(0, 0.5, cost=None)}}, TOP1_ACCURACY, baseline="none")
    titles = make_table_cells(rows, "page").titles
    assert "Test accuracy" in titles
    assert not {"Images per second", "Points above none", "Peak memory, MiB"} & {*titles}
    assert read_csv(rows, "report.csv")[0]["images_per_second"] == ""


@pytest.mark.parametrize(
    ("metric", "present", "absent"),
    [
        (TOP1_ACCURACY, [], ["test_pixel_accuracy", "test_mask_ap50", "test_box_ap"]),
        (MEAN_IOU, ["test_pixel_accuracy", "test_iou_half"], ["test_accuracy", "test_box_ap50"]),
        (MASK_AP, ["test_mask_ap50", "test_mask_ap_small", "test_box_ap"], ["test_box_ap50"]),
        (BITS_PER_BYTE, ["test_bits", "bytes_per_second"], ["images_per_second", "test_accuracy"]),
    ],
)
def test_metrics_have_columns_of_their_own(metric, present, absent):
    names = (
        format_csv([[TableRow(label="x", runs={0: make_record(0)}, metric=metric)]], "report.csv").splitlines()[0].split(",")
    )
    assert {*present} <= {*names}
    assert not {*absent} & {*names}


def test_secondary_metrics_are_means_over_seeds():
    runs = {seed: make_record(seed, 0.0, test_iou=0.5, test_pixel_accuracy=0.8 + seed / 10) for seed in range(2)}
    (row,) = build_table_rows({"mixed": runs}, MEAN_IOU)
    cells = make_table_cells([row], "page")
    assert cells.rows[0][cells.titles.index("Test pixel accuracy")].text == "85.0 %"
    assert float(read_csv([row], "report.csv")[0]["test_pixel_accuracy"]) == pytest.approx(0.85)


def test_rows_are_sorted_with_the_best_first():
    rows = make_rows({**SCORES, "golden": {0: None}})
    assert [row.label for row in sort_table_rows(rows)] == ["mixed", "none", "liere:block=4", "golden"]
    assert [row.label for row in sort_table_rows(rows, first="liere:block=4")][:2] == ["liere:block=4", "mixed"]
    low = [replace(row, metric=BITS_PER_BYTE) for row in rows]
    assert [row.label for row in sort_table_rows(low)] == ["liere:block=4", "none", "mixed", "golden"]


def test_text_and_markdown_have_the_columns_of_studies():
    rows = make_rows(baseline=None)
    head, *lines = format_text_table(rows)
    assert head.split("  ")[0] == "Encoding"
    assert "above" not in head
    assert len(lines) == 3
    assert {line.index("52.00") for line in lines if "52.00" in line} == {head.index("Test accuracy")}
    assert format_text_table([]) == []
    head, rule, first, *_ = format_markdown_table(make_rows()).splitlines()
    titles = [title.strip() for title in head.strip("|").split("|")]
    assert titles[:5] == ["Encoding", "Seeds", "Test accuracy", "Points above none", "Parameters of encoding"]
    assert not {"Training, s", "Peak memory, MiB", "Notes"} & {*titles}
    assert rule == "|" + " --- |" * len(titles)
    assert first.startswith("| none | 2 | 41.0 ± ")
    length = TableColumn(compute=lambda row: len(row.label), title="Letters | all")
    assert format_markdown_table(make_rows(), [length]).splitlines()[0] == f"{head} Letters &#124; all |"


def test_a_column_is_one_entry(monkeypatch):
    """Every table has a column that is added to the list."""
    column = TableColumn(compute=lambda row: 100 * len(row.runs), key="hundreds", title="Hundreds")
    monkeypatch.setattr(results_table, "COLUMNS", (*COLUMNS, column))
    rows = make_rows()
    assert "Hundreds" in show(rows)
    assert [read_csv(rows, table)[0]["hundreds"] for table in ("comparison.csv", "report.csv")] == ["200", "200"]
    assert make_table_cells(rows, "page").titles[-1] == "Hundreds"
    assert format_text_table(rows)[0].endswith("Hundreds")
    assert format_markdown_table(rows).splitlines()[0].endswith("| Hundreds |")


def test_columns_are_declared_once():
    for table in TABLES:
        shown = [each for each in COLUMNS if table in each.tables]
        for name in ("key", "title"):
            names = [(getattr(each, name), metric) for each in shown for metric in each.metrics or ("",)]
            given = [each for each in names if each[0] is not None]
            assert len(given) == len({*given}), (table, name)
        assert all({*each.tables} <= {*TABLES} and (each.key or each.title) for each in shown)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"result": {"test_accuracy": 0.5}}, "done"),
        ({"failure": "ValueError: nan"}, "failed: ValueError: nan"),
        ({"result": {"test_loss": 1.0}}, "failed: its result.json has no finite test metric"),
        ({"problems": ("x/result.json cannot be read",)}, "failed: its result.json has no finite test metric"),
        ({"metrics": [{"epoch": 2, "loss": 1.0}]}, "not finished: 2 of 3 epochs"),
        ({}, "not finished: 0 of 3 epochs"),
    ],
)
def test_the_state_of_a_run(changes, words):
    assert describe_state(RunRecord(config=BASE, run=None, **changes)) == words


def test_estimates_as_text():
    estimate = MeanEstimate(0.675, 0.084, 3)
    assert format_score(estimate, TOP1_ACCURACY) == "67.5 ± 8.4 %"
    assert format_score(estimate, TOP1_ACCURACY, more_digits=1) == "67.50 ± 8.40 %"
    assert format_score(estimate, BITS_PER_BYTE) == "0.675 ± 0.084"
    assert format_difference(MeanEstimate(-0.1, None, 1), TOP1_ACCURACY) == "−10.0"
    assert format_difference(None, TOP1_ACCURACY) == format_score(None, TOP1_ACCURACY) == "–"
