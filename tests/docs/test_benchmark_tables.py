"""Tables of what was measured: the numbers of the files in results/, row by row."""

import json

import pytest

import benchmark_tables
from benchmark_tables import (
    RESULTS,
    compare_attention,
    compare_dense_sizes,
    compare_folded,
    compare_hosts,
    compare_suite,
    describe_machine,
)

HEAD = {"machine": {"device": "GPU"}, "versions": {"torch": "2.9"}, "date": "2026-01-01"}


@pytest.fixture
def write_results(monkeypatch, tmp_path):
    """Writes a file of results, and has the tables read it."""
    monkeypatch.setattr(benchmark_tables, "RESULTS", tmp_path)
    benchmark_tables.load_results.cache_clear()

    def write(rows, name="made-up.json", **more):
        (tmp_path / name).write_text(json.dumps({**HEAD, **more, "rows": rows}))
        return name

    yield write
    benchmark_tables.load_results.cache_clear()


def load(name):
    return json.loads((RESULTS / name).read_text())


def test_suites_have_a_table_for_each_value_of_their_label(write_results):
    rows = [
        {"suite": "steps", "mode": "eager", "name": "axial", "train ms": 51.0, "train ms ratio": 1.02, "train GB": 8.7},
        {"suite": "steps", "mode": "eager", "name": "alibi", "failed": "Error: <CUDA> is *out* of | memory"},
        {"suite": "steps", "mode": "compiled", "name": "axial", "train ms": 50.0},
        {"suite": "ops", "shape": "256 tokens", "name": "rotate", "ms": 0.0461, "GB/s": 3321.4, "of copy": 0.957},
    ]
    name = write_results(rows)
    eager, compiled = compare_suite("steps", "mode", name).split("\n\n**compiled**\n\n")
    assert eager.startswith("**eager**\n\n|  | step, ms | × none | peak, GB |\n")
    assert "| axial | 51.0 | 1.020 | 8.70 |" in eager
    assert "| alibi | failed: Error: &#60;CUDA> is &#42;out&#42; of &#124; memory |  |" in eager
    assert compiled.splitlines() == ["|  | step, ms |", "| --- | --- |", "| axial | 50.0 |"]
    assert compare_suite("ops", "shape", name).splitlines()[2:] == [
        "|  | ms | GB/s | of the copy |", "| --- | --- | --- | --- |", "| rotate | 0.0461 | 3,321 | 0.96 |"
    ]  # fmt: skip


def test_a_measurement_that_was_stopped_is_marked(write_results):
    assert describe_machine(write_results([], "one.json")) == "Measured on one GPU, 2026-01-01, with torch 2.9."
    assert "stopped before its end" in describe_machine(write_results([], "two.json", finished=False))


@pytest.mark.parametrize(
    ("suite", "label", "name"),
    [
        *(
            (suite, label, "kernels-h200.json")
            for suite, label in (("steps", "mode"), ("ops", "shape"), ("lengths", "shape"))
        ),
        ("cpu", "shape", "rotate-cpu.json"),
    ],
)
def test_every_row_that_was_measured_is_in_its_table(suite, label, name):
    rows = [row for row in load(name)["rows"] if row["suite"] == suite]
    table = compare_suite(suite, label, name)
    assert len(rows) > 3
    assert sum(line.startswith(f"| {row['name']} |") for row in rows for line in table.splitlines()) >= len(rows)
    assert {f"**{row[label]}**" for row in rows} == {line for line in table.splitlines() if line.startswith("**")}


def test_attention_is_compared_where_the_kernel_is_taken(write_results):
    rows = [
        {"what": what, "shape": [8, 4, tokens, 48], "kernel": kernel, "ms": tokens * times, "back ms": 3 * tokens * times}
        for what, tokens in (("few, 8 samples", 64), ("many", 196))
        for kernel, times in (("flash", 4e-3), ("ropewalk", 1e-3))
    ]
    rows[1]["eager ms"] = 0.5
    table = compare_attention(write_results(rows))
    assert "| few | 8 × 4 × 48 | flash | 0.256 | 0.768 | 4.0 | 4.0 |  |" in table
    assert "| few | 8 × 4 × 48 | ropewalk | 0.064 | 0.192 | 1.0 | 1.0 | 0.50 |" in table
    assert "many" not in table


def test_dense_sizes_are_over_the_plain_model_of_each_library(write_results):
    own = {"name": "axial", "ms": 20.0, "over none": 1.25, "GB": 3.0}
    timm = {"name": "timm, axial", "ms": 40.0, "over none": 2.5, "over timm, plain": 1.5, "GB": 4.0}
    modes = (("compiled", 2), ("eager", 1))
    rows = [{**row, "mode": mode, "ms": row["ms"] / times} for mode, times in modes for row in (own, timm)]
    assert compare_dense_sizes(write_results(rows)).splitlines()[2:4] == [
        "| axial | 20.0 | 1.25 | 3.0 | 10.0 | 1.25 | 3.0 |",
        "| timm, axial | 40.0 | 1.50 | 4.0 | 20.0 | 1.50 | 4.0 |",
    ]


def test_hosts_have_their_ratios():
    rows = [line for line in compare_hosts().splitlines() if line.startswith(("| Llama", "| timm"))]
    measured = load("hosts-h200.json")["rows"]
    assert len(rows) == len(measured) == 6
    for line, row in zip(rows, measured, strict=True):
        assert f"| {row['mode']} |" in line
        assert f"| {row['ours over host']:.2f} |" in line


@pytest.mark.parametrize("name", ["folded-inference-cpu.json", "folded-inference-h200.json"])
def test_folded_encodings_have_both_ratios(name):
    found = load(name)
    for row in found["rows"]:
        as_it_is, folded = (f"{row[f'{how} over mixed']:.3f} ± {row[f'{how} spread']:.3f}" for how in ("as it is", "folded"))
        assert f"| {row['name']} | {as_it_is} | {folded} |" in compare_folded()
    assert found["finished"]
