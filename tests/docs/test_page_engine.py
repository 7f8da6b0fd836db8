"""The page engine: expressions, blocks of Python, sections of other files and figures."""

import pytest
from matplotlib.figure import Figure
from PIL import Image

from page_engine import fill_expressions, find_section, include_section, list_verdicts, make_namespace, render_page
from ropewalk.lab.figures.theme import FIGURE_THEMES


def render(text, *, run=True, **names):
    return render_page(text, dict(names), name="page.md", run=run)


def test_values_are_formatted_as_in_f_strings():
    names = {"x": 0.123456, "n": 12345, "d": {"a": 1.0}}
    assert render("{{ x:.2f }} {{ n:, }} {{ d['a'] }} {{ n - 1:, }} {{ x:.1% }}", **names) == "0.12 12,345 1.0 12,344 12.3%"
    assert render("{{ f'{x:.1f}' }} {{ {**d}['a']:.2f }} {{ 'abc'[0:2] }}", **names) == "0.1 1.00 ab"


def test_expressions_may_span_lines():
    assert render("{{ add(\n    1,\n    2,\n) }}", add=lambda a, b: a + b) == "3"


def test_an_expression_that_fails_is_named():
    with pytest.raises(NameError) as caught:
        fill_expressions("{{ missing }}", {}, "page.md")
    assert "missing" in caught.value.__notes__[0]
    assert "page.md" in caught.value.__notes__[0]


@pytest.mark.parametrize("text", ["{{checks}}", "{{ unfinished", "{{ }}"])
def test_braces_that_hold_no_expression_are_refused(text):
    with pytest.raises((ValueError, SyntaxError), match=r"page\.md"):
        render(text)


def test_expressions_see_the_blocks_above_them():
    text = "first {{ x }}\n\n```python\nx = 1\n```\n\nsecond {{ x }}\n\n```python\nx = 2\n```\n\nthird {{ x }}\n"
    made = render(text)
    assert [line for line in made.splitlines() if " " in line and "=" not in line] == ["first 2", "second 1", "third 2"]


def test_blocks_are_shown_folded_or_hidden():
    block = "x = 1\nprint(x)\n```\n"
    shown = f"```python\n{block}\n```text\n1\n```\n"
    assert render(f"a\n```python\n{block}b\n") == f"a\n{shown}b\n"
    assert render(f"a\n```python hidden\n{block}{{{{ x }}}}\n", run=False) == "a\n1\n"
    folded = render(f"a\n```python folded\n{block}{{{{ x }}}}\n", run=False)
    assert folded == f"a\n<details markdown><summary>Code</summary>\n\n{shown}\n</details>\n1\n"


def test_blocks_run_on_pages_that_run_alone():
    assert render("a\n```python\nraise ValueError\n```\nb\n", run=False) == "a\n```python\nraise ValueError\n```\nb\n"
    with pytest.raises(AssertionError):
        render("a\n```python\nassert False\n```\n")


def test_figures_are_drawn_in_both_themes(tmp_path):
    def draw(look, width, *, height):
        return Figure(figsize=(width, height), facecolor=look.paper)

    target = tmp_path / "deep" / "page.md"
    made = render_page(
        '{{ figure("one", "words", draw, 2, height=1) }}', make_namespace(target) | {"draw": draw}, name="page"
    )
    assert made.splitlines() == [f"![words](images/page-one-{theme}.png#only-{theme})" for theme in ("light", "dark")]
    for theme, look in FIGURE_THEMES.items():
        image = Image.open(target.parent / "images" / f"page-one-{theme}.png").convert("RGB")
        assert image.size == (320, 160)
        assert image.getpixel((0, 0)) == tuple(bytes.fromhex(look.paper[1:]))


def test_pages_include_sections_of_other_files():
    text = "# A\n\nfirst\n\n## B\n\nsecond\n\n### C\n\nthird\n\n## D\n\nfourth\n"
    assert find_section(text, "B").split() == ["second", "###", "C", "third"]
    assert find_section(text, "D").split() == ["fourth"]
    assert find_section("# A\n```python\n# no heading\n```\n# B\n", "A") == "```python\n# no heading\n```"
    with pytest.raises(ValueError, match=r"'E'.*A, B, C, D"):
        find_section(text, "E")


def test_included_links_lead_to_pages_of_the_site():
    made = include_section("README.md", "Further")
    assert "](adding.md)" in made
    assert "CONTRIBUTING.md" not in made
    assert "| [`axial`](encodings/axial.md) |" in include_section("README.md", "Which encoding should I use?")


def test_verdicts_are_listed_by_page(tmp_path):
    (tmp_path / "b.md").write_text("# B\n\n## One {#one}\n\n**Exact.** It is\n3.\n\n## Two {#two}\n\nNothing.\n")
    (tmp_path / "a.md").write_text("# A\n\n## Three {#three}\n\n**Overstated.** No.\n")
    assert list_verdicts(tmp_path, "b", "a").splitlines()[2:] == [
        "| [One](b.md#one) | Exact | It is 3. |",
        "| [Three](a.md#three) | Overstated | No. |",
    ]
