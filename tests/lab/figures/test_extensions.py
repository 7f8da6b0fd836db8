"""The figure of context extension, and the tables of its pages."""

import math

import pytest
import torch
from matplotlib.colors import to_hex

import extension_tables
import ropewalk as rw
from ropewalk import extension
from ropewalk.lab.figures.extensions import compute_extension_curves, create_default_rules, draw_extensions
from ropewalk.lab.figures.theme import FIGURE_THEMES


def drawn(figure):
    return {
        line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")
    }


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_each_rule_has_its_line(theme):
    found = drawn(draw_extensions(theme=theme))
    assert len(found) == len(create_default_rules(8.0, 4096)) == 7
    assert found["linear"] == pytest.approx([1 / 8] * 64)
    code = found["YaRN's code (× 1.208)"]
    assert (code[0], code[-1]) == pytest.approx((1, 1 / 8))
    assert list(code) == sorted(code, reverse=True)
    figure = draw_extensions(theme=theme)
    figure.draw_without_rendering()
    assert to_hex(figure.get_facecolor()) == FIGURE_THEMES[theme].paper


def test_rules_of_one_s_own():
    rules = {
        "mine": extension.LongRoPE(
            short_factor=[1] * 6, long_factor=range_of(6), original_max_position_embeddings=64, factor=4
        )
    }
    found = drawn(draw_extensions(rules, rotary_dim=12, original=64, factor=4.0))
    (name,) = found
    assert name == "mine (× 1.155)"
    assert found[name] == pytest.approx([1 / n for n in range_of(6)])
    short = compute_extension_curves(rules, base=1e4, rotary_dim=12, length=64)["mine"]
    assert torch.equal(short.ratio, torch.ones(6, dtype=torch.float64))


def range_of(n):
    return list(range(1, n + 1))


def test_the_turns_of_training_are_marked():
    axes = draw_extensions().axes[0]
    assert {text.get_text().strip() for text in axes.texts} == {"1 turn", "4 turns", "32 turns"}
    (once,) = [text for text in axes.texts if text.get_text().strip() == "1 turn"]
    assert once.get_position()[0] * 4096 == pytest.approx(2 * math.pi)
    assert [text.get_text().strip() for text in draw_extensions(original=5).axes[0].texts] == []


def test_the_table_of_rules_has_all():
    table = extension_tables.list_rules()
    assert all(f"| `{name}` | `{kind.__name__}` | " in table for name, kind in extension.RULES.items())


def test_frameworks_differ_where_the_page_says():
    rows = {
        row.split(" | ")[0].strip("| "): row.split(" | ")[1:]
        for row in extension_tables.compare_frameworks().splitlines()[2:]
    }
    own = f"{0.1 * math.log(16) + 1:.4f}"
    assert [cell.strip(" |") for cell in rows["nothing more"]] == [own] * 3
    assert [cell.strip(" |") for cell in rows["`attention_factor: 1.0`"]] == ["1.0000", own, own]
    assert [cell.strip(" |") for cell in rows["`mscale: 1.0, mscale_all_dim: 1.0`"]] == ["1.0000", own, "1.0000"]


def test_precision_at_a_million_positions():
    plain, here = (extension_tables.measure_errors(1_000_000, float32=float32) for float32 in (True, False))
    near = extension_tables.measure_errors(4096, float32=False)
    assert 0.04 < plain.angle < 1 / 16
    assert here.angle < 5e-5
    assert here.score == pytest.approx(near.score, rel=0.2)
    assert plain.score > 2 * extension_tables.measure_bfloat16_error() > 100 * here.score
    assert rw.create("rope", head_dim=128).traits.reach >= 1_000_000
