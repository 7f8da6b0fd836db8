"""The pages on theory: they run, each assertion on them can fail, and what they compute stands where it belongs."""

import re
from pathlib import Path

import pytest

import ropewalk as rw
from page_engine import HERE, VERDICT, find_verdicts
from ropewalk.lab.figures.theme import FIGURE_THEMES
from tests.support.rendered_pages import THEORY, read_theory, render_theory

PAGES = ("tokens", "rotations", "commuting")
WRITTEN = [path.stem for path in sorted(THEORY.glob("*.md")) if path.stem != "index"]
PAGE = """# A page

```python
x = 2 / 3
print(x > 0)
```

## Two thirds are {less} than one {{#thirds}}

```python
assert x < {bound}
```

{{{{ figure("line", "A line", draw_curves, {{"it": ([0, 1], [0, x])}}, x="a", y="b") }}}}

**Exact.** It is {{{{ x:.3f }}}} of
{{{{ 1 + 1 }}}}.

## This says nothing {{#nothing}}
"""

# A page, what is replaced there, and by what: the page must fail then.
MUTANTS = {
    "permutations-with-an-encoding": (
        "tokens",
        'none = moved(rw.create("none", head_dim=12, heads=4, axes=2, size=(3, 5)))',
        'none = moved(rw.create("mixed", head_dim=12, heads=4, size=(3, 5)).double())',
    ),
    "permutations-not-put-back": ("tokens", "before[:, :, order]", "before"),
    "permutations-without-a-mask": ("tokens", ", causal=True)", ")"),
    "sinusoids-reflected": ("tokens", "[-w.sin(), w.cos()]", "[w.sin(), w.cos()]"),
    "sinusoids-of-another-base": ("tokens", "step * 10000.0 **", "step * 100.0 **"),
    "sinusoids-for-a-table": (
        "tokens",
        'rw.create("learned-ape", head_dim=12, heads=4, axes=1, size=(199,))',
        'rw.create("sincos", head_dim=12, heads=4)',
    ),
    "sinusoid-scores-projected": ("tokens", "lambda e: e @ e.mT)", "lambda e: e @ W.mT @ e.mT)"),
    "sinusoid-scores-alone": ("tokens", "lambda e: (e @ W.mT) @ (e @ V.mT).mT)", "lambda e: e @ e.mT)"),
    "sinusoid-scores-without-a-move": ("tokens", "p + 100", "p"),
    "norms-of-all": ("rotations", " if encoding.traits.isometric}", "}"),
    "norms-without-xpos": ("rotations", 'lengthening(rotary["xpos"])', 'lengthening(rotary["rope"])'),
    "norms-prefix-turned": (
        "rotations",
        ".randn(15, encoding.axes, dtype=torch.float64)).prefixed(q=2, k=2)",
        ".randn(17, encoding.axes, dtype=torch.float64))",
    ),
    "norms-all-tokens-written": ("rotations", "torch.equal(turned[:, :, :2], q[:, :, :2])", "torch.equal(turned, q)"),
    "equation-not-commuting": ("rotations", "tried(torch.zeros(300, 1, 1)", "tried(torch.ones(300, 1, 1)"),
    "equation-not-skew": ("rotations", "turn.cos() * first @ first @ first", "turn.cos() * first @ first"),
    "equation-other-sign": (
        "rotations",
        "exp((y - x)[0] * first + (y - x)[1] * second)",
        "exp((x - y)[0] * first + (x - y)[1] * second)",
    ),
    "equation-smaller-bound": ("rotations", "second @ first) / 2", "second @ first) / 4"),
    "equation-larger-bound": ("rotations", "second @ first) / 2", "second @ first)"),
    "equation-always-commuting": ("rotations", "+ turn.sin() * skew(len(way))", "+ 1e-9 * turn.sin() * first"),
    "equation-of-rope": ("rotations", "theory.rope_equation(encoding)", 'theory.rope_equation(rotary["rope"])'),
    "commutators-of-liere": ("rotations", "theory.commutators(encoding)", 'theory.commutators(rotary["liere"])'),
    "spherical-the-other-way": ("rotations", "exp(parts[1]) @ exp(parts[0])", "exp(parts[0]) @ exp(parts[1])"),
    "spherical-symmetric": ("rotations", 'rotary["spherical"], torch', 'rotary["spherical-symmetric"], torch'),
    "values-turned-twice": ("rotations", "(R.mT @ out", "(R @ out"),
    "values-of-axial": ("rotations", "free = shifted(liere)", "free = shifted(axial)"),
    "values-the-other-way": ("rotations", "places - places[:, None]", "places[:, None] - places"),
    "one-dimension-without-the-basis": ("commuting", "((q @ basis, k @ basis), (q, k))", "((q, k), (q, k))"),
    "one-dimension-other-frequencies": ("commuting", "mixed.wave.detach()[..., 0]", "mixed.wave.detach()[..., 0].flip(-1)"),
    "one-dimension-other-eigenvalues": ("commuting", "theory.generators(liere)[:, 0]", "2 * theory.generators(liere)[:, 0]"),
    "commuting-as-drawn": (
        "commuting",
        'rw.create("liere", head_dim=24, heads=2, block=8',
        'rw.create("liere", head_dim=24, heads=2, block=2',
    ),
    "commuting-planes-of-pairs": (
        "commuting",
        "theory.planes(theory.generators(liere))",
        'theory.planes(theory.generators(rw.create("liere", head_dim=24, block=2).double()))',
    ),
    "commuting-by-multiples": ("commuting", "cube = first @ first @ first /", "cube = first /"),
    "commuting-half-a-basis": ("commuting", "scores(mixed, q @ basis, k @ basis, p), ", "scores(mixed, q @ basis, k, p), "),
    "comrope-ap-oblique": ("commuting", 'rw.create("comrope-ap", head_dim=48', 'rw.create("comrope-ld", head_dim=48'),
    "comrope-ap-for-ld": (
        "commuting",
        'off_axis(rw.create("comrope-ld", head_dim=48, heads=2, block=8)',
        'off_axis(rw.create("comrope-ap", head_dim=48, heads=2, block=8)',
    ),
    "comrope-ap-of-one-axis": ("commuting", "argmax(-1) == 0", "argmax(-1) >= 0"),
    "comrope-ld-axial": (
        "commuting",
        'ld = rw.create("comrope-ld", head_dim=48, heads=2, block=block',
        'ld = rw.create("comrope-ap", head_dim=48, heads=2, block=block',
    ),
    "comrope-ld-of-one-block": (
        "commuting",
        "block=block, size=(3, 5)).double()\n    counts",
        "block=8, size=(3, 5)).double()\n    counts",
    ),
    "comrope-ld-without-the-basis": ("commuting", "residual, without = folding(ld", "without, residual = folding(ld"),
    "comrope-ld-frames": (
        "commuting",
        'rw.create("mixed", head_dim=48, heads=2, variant="liere")',
        'rw.create("mixed", head_dim=48)',
    ),
    "string-other-sign": ("commuting", "(C - C.mT)", "(C.mT - C)"),
    "string-not-circulant": ("commuting", "torch.arange(12)) % 12", "torch.arange(12)).abs()"),
    "string-cayley-still": ("commuting", "theory.spectrum(circulant).still", "theory.spectrum(cayley).still"),
    "folding-the-encoding-alone": ("commuting", "rw.fold_into(model)", "model.encoding = rw.fold(model.encoding)[0]"),
    "folding-a-copy": ("commuting", "rw.fold_into(model)", "rw.fold_into(copy.deepcopy(model))"),
    "folding-other-numbers": ("commuting", "theory.parameters(model.encoding)", "theory.parameters(liere)"),
    "folding-everything": ("commuting", "careless.encoding = model.encoding", "careless = model"),
    "gains-equal": ("commuting", "torch.linspace(0.7, 1.9, 12,", "torch.linspace(1.3, 1.3, 12,"),
    "gains-of-one-only": (
        "commuting",
        "folded = rw.fold_into(copy.deepcopy(attention))\n",
        "folded = rw.fold_into(copy.deepcopy(attention))\nfolded.norm.weight.data[0] = 2\n",
    ),
    "gains-not-named": ("commuting", "between=(self.norm,)", "between=()"),
    "training-with-adam": ("commuting", "in (torch.optim.SGD, torch.optim.Adam)", "in (torch.optim.Adam, torch.optim.Adam)"),
    "training-projections-alone": ("commuting", "learned=True)\nprint", "learned=False)\nprint"),
    "training-without-the-basis": ("commuting", "basis.mT @ start)", "start.clone())"),
}


def sections(text):
    return re.split(r"^## ", text, flags=re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def built():
    return {name: render_theory(read_theory(name), name) for name in PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_and_nothing_is_left_to_fill(built, name):
    text, figures = built[name]
    assert "{{" not in text
    shown = re.findall(r"\]\((\S+)-(light|dark)\.png#only-(light|dark)\)", text)
    assert {(figure, theme) for figure, theme, _ in shown} == set(figures)
    assert all(theme == only for _, theme, only in shown)
    assert [claim[1] for claim in find_verdicts(text)] == [claim[1] for claim in find_verdicts(read_theory(name))]


@pytest.mark.parametrize(("name", "before", "after"), MUTANTS.values(), ids=MUTANTS)
def test_an_assertion_can_fail(name, before, after):
    text = read_theory(name)
    assert before in text
    with pytest.raises(AssertionError):
        render_theory(text.replace(before, after), name)


@pytest.mark.parametrize("name", PAGES)
def test_every_section_has_a_mutant(name):
    own = [before for page, before, _ in MUTANTS.values() if page == name]
    assert [
        section.splitlines()[0] for section in sections(read_theory(name)) if not any(text in section for text in own)
    ] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_every_section_has_one_verdict(name):
    text = read_theory(name)
    found = [len(VERDICT.findall(section)) for section in sections(text)]
    assert found == [1] * len(find_verdicts(text))
    assert found


@pytest.mark.parametrize("name", WRITTEN)
def test_links_lead_somewhere(name):
    anchors = {page: re.findall(r"\{#([\w-]+)\}$", read_theory(page), flags=re.MULTILINE) for page in WRITTEN}
    parts = re.findall(r"\{#(\w+)\}$", (HERE / "pages" / "papers.md").read_text(), flags=re.MULTILINE)
    for target in re.findall(r"\]\(([^)]+\.md[^)]*)\)", read_theory(name)):
        page, _, anchor = target.partition("#")
        kind = str(Path(page).parent)
        if kind == "." and Path(page).stem in WRITTEN:
            assert not anchor or anchor in anchors[Path(page).stem], target
        elif kind == "../encodings":
            assert Path(page).stem in rw.names(), target
        elif page == "../papers.md":
            assert anchor in parts, target


def test_output_stands_below_its_block_and_values_are_filled():
    text, figures = render_theory(PAGE.format(less="less", bound=1), "page")
    assert "print(x > 0)\n```\n\n```text\nTrue\n```\n" in text
    assert "assert x < 1\n```\n\n![A line](line-light.png#only-light)\n![A line](line-dark.png#only-dark)\n" in text
    assert "It is 0.667 of\n2." in text
    assert set(figures) == {("line", theme) for theme in FIGURE_THEMES}


def test_a_failing_assertion_fails_the_page():
    with pytest.raises(AssertionError):
        render_theory(PAGE.format(less="less", bound=0.5), "page")


def test_claims_are_the_verdicts_of_sections():
    text, _ = render_theory(PAGE.format(less="less", bound=1), "page")
    assert find_verdicts(text) == [("Two thirds are less than one", "thirds", "Exact", "It is 0.667 of 2.")]
