"""The page of the study of longer texts: its tables, and whether what it says of them is so."""

import json
import math
from pathlib import Path

import pytest

import context_tables
from page_engine import find_section
from ropewalk.lab.figures.theme import FIGURE_THEMES
from tests.support.markdown_tables import cells

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "results" / "context" / "study.json").read_text())["runs"]


def bits(label, rule, to, factor=None, *, tuned=False):
    """The mean of all runs, straight from the file."""
    rows = [row for run in FOUND if (run["label"], run["tuned"]) == (label, tuned) for row in run["positions"]]
    found = [row["loss"] for row in rows if (row["rule"], row["to"]) == (rule, to) and factor in (None, row["factor"])]
    assert len(found) == 2
    return sum(found) / len(found) / math.log(2)


def test_tables_say_what_was_found():
    far = cells(context_tables.compare_runs("encoding", tuned=False, factors=(1, 16), keys=(1, 16)))
    assert far["alibi"]["to 8,192"] == f"{bits('alibi', None, 8192):.2f}"
    assert far["rope"]["test"].startswith("1.680 ± ")
    assert far["rope"]["keys in 512"] == "100 %"
    for factor in (2, 4, 8, 16):
        rows = cells(context_tables.compare_rules(factors=(2, 4, 8, 16), keys=(2,)))
        assert rows["yarn"][f"to {512 * factor:,}"] == f"{bits('rope', 'yarn', 512 * factor, factor):.2f}"
    tuned = cells(context_tables.compare_runs("rule", tuned=True, factors=(8,), keys=(4,)))
    assert set(tuned) == {"rope", *context_tables.list_rules()}
    assert tuned["rope"]["to 4,096"] == f"{bits('rope', None, 4096, tuned=True):.2f}"


def test_what_the_page_says_is_so():
    for factor in (2, 4, 8, 16):
        end = 512 * factor
        yarn, *others = (bits("rope", rule, end, factor) for rule in ("yarn", "linear", "ntk-aware"))
        assert yarn < min(others) - 0.2
    assert bits("rope", "yarn", 2048, 4) - bits("rope", None, 512) < 0.015
    assert bits("rope", "yarn", 8192, 16) - bits("rope", None, 512) == pytest.approx(0.24, abs=0.01)
    assert bits("rope", "yarn-article", 8192, 16) - bits("rope", "yarn", 8192, 16) == pytest.approx(0.26, abs=0.005)
    assert abs(bits("rope", "yarn", 2048, 4) - bits("rope", "llama3", 2048, 4)) < 0.01
    for label in ("alibi", 'chain:parts=[{"name": "rope"}, {"name": "alibi"}]'):
        assert bits(label, None, 8192) < bits(label, None, 512)
    tuned = cells(context_tables.compare_runs("rule", tuned=True, factors=(4,), keys=(4,)))
    scores = {name: float(row["test"].split()[0]) for name, row in tuned.items()}
    assert max(scores, key=scores.get) == "linear"
    assert scores["ntk-aware"] - scores["yarn"] == pytest.approx(0.003, abs=5e-4)


def test_the_readme_has_the_figures_of_the_page():
    rows = cells(find_section((ROOT / "README.md").read_text(), "Longer texts").split("\n\n")[-1].strip())
    assert len(rows) == 6
    named = {"rope`, as it was trained": None, "with linear interpolation": "linear", "NTK-aware": "ntk-aware"}
    named |= {"Llama 3's rule": "llama3", "YaRN": "yarn"}
    for words, rule in named.items():
        for factor in (2, 4, 16):
            far = bits("rope", rule, 512 * factor, 16 if rule is None else factor)
            assert rows[words][f"{512 * factor:,}"] == f"{far:.2f}"
    assert [rows["alibi"][f"{n:,}"] for n in (1024, 2048, 8192)] == [
        f"{bits('alibi', None, n):.2f}" for n in (1024, 2048, 8192)
    ]


@pytest.mark.parametrize("look", FIGURE_THEMES.values(), ids=FIGURE_THEMES)
def test_figures_show_every_encoding_and_every_rule(look):
    (axes,) = context_tables.draw_encodings(look).axes
    assert len(axes.get_legend().get_texts()) == len(context_tables.list_labels()) == 9
    for axes, factor in zip(context_tables.draw_rules(look).axes, (4, 16), strict=True):
        shown = {line.get_label(): line.get_data() for line in axes.lines}
        assert {*context_tables.list_rules(), context_tables.UNCHANGED} <= set(shown)
        ends = dict(zip(*shown["yarn"], strict=True))
        assert ends[512 * factor] == pytest.approx(bits("rope", "yarn", 512 * factor, factor))
        assert max(shown[context_tables.UNCHANGED][0]) == 512 * factor
