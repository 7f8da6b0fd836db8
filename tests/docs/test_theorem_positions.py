"""The pages on what breaks without commuting and on distance: they run, and each assertion on them can fail."""

import ast
import contextlib

import pytest

from page_engine import BLOCK, EXPRESSION, find_verdicts
from tests.support.rendered_pages import read_theory, render_theory, split_sections

PAGES = ("breaking", "distance")

# Section, what is replaced in it, and by what: the section must fail then.
MUTANTS = {
    "mixed-for-axial": ("axial", '("axial", "mixed"))\ncontent', '("mixed", "mixed"))\ncontent'),
    "axial-for-mixed": ("axial", '("axial", "mixed"))\ncontent', '("axial", "axial"))\ncontent'),
    "key-turned-on": ("axial", "COLUMNS + column].sum(0)", "COLUMNS + column].sum(1)"),
    "two-places-without-ghosts": ("axial", "attention(axial, (1, 9)", "attention(golden, (1, 9)"),
    "two-places-with-ghosts": ("axial", "attention(golden, (1, 9)", "attention(axial, (1, 9)"),
    "the-other-diagonal": ("axial", "torch.tensor([1.0, -1.0]", "torch.tensor([1.0, 1.0]"),
    "rows-without-minus": ("spherical", "-frequency * row", "frequency * row"),
    "another-plane": ("spherical", "plane(1, 2, ", "plane(0, 1, "),
    "closed-form-without-root": ("spherical", " * (1 - sine**2).sqrt()", ""),
    "closed-form-of-whole-shift": ("spherical", "frequency * shift / 2", "frequency * shift"),
    "small-frequencies-otherwise": ("spherical", "(2**0.5 * frequency**2", "(2 * frequency**2"),
    "spherical-not-symmetric": (
        "spherical",
        'encoding = rw.create("spherical"',
        'encoding = rw.create("spherical-symmetric"',
    ),
    "rows-first-twice": ("symmetric", '("spherical", "spherical-symmetric"))\ngrid', '("spherical", "spherical"))\ngrid'),
    "symmetric-twice": ("symmetric", "lambda p: triplets(spherical, p)", "lambda p: triplets(symmetric, p)"),
    "not-alternating": ("symmetric", "triplets(spherical, p.flip(-1))", "triplets(spherical, p)"),
    "basis-reversed": ("symmetric", "basis @ triplets(symmetric, p) @ basis.T", "basis.T @ triplets(symmetric, p) @ basis"),
    "other-frequencies": ("symmetric", "dtype=torch.float64) / 24)", "dtype=torch.float64) / 16)"),
    "block-of-other-sign": ("symmetric", "= -frequencies  #", "= frequencies  #"),
    "half-where-it-turns-far": ("symmetric", "scale=0.01", "scale=1.0"),
    "one-side-for-both": ("degree", "(column - cosine * row, sine * row)", "(column + cosine * row, -sine * row)"),
    "right-without-inverse": ("degree", "r_y @ r_x.mH @ r_xm", "r_y @ r_x @ r_xm"),
    "lowest-order-of-a-whole-commutator": ("degree", "across**2 / 8", "across**2 / 2"),
    "lowest-order-along-the-shift": ("degree", "(move[0] * (key - query)[1] - move", "(move[0] * (key - query)[1] + move"),
    "commutator-of-the-cosine": ("degree", "abs(norm - math.sin", "abs(norm - math.cos"),
    "symmetric-in-a-column": ("where", 'in_a_column("spherical")', 'in_a_column("spherical-symmetric")'),
    "spherical-in-a-column": ("where", 'in_a_column("liere")', 'in_a_column("spherical")'),
    "not-mirrored": ("where", 'where["→"][f"{name} →"].T)', 'where["→"][f"{name} →"])'),
    "liere-mirrored": ("where", 'mirrored("spherical-symmetric")', 'mirrored("liere")'),
    "free-for-dependent": ("liere", 'loss("comrope-ld", block=8)', 'loss("liere", block=8)'),
    "anticommutator": ("liere", "first @ second - second @ first", "first @ second + second @ first"),
    "whole-commutator": ("liere", "(0.5 / 13", "(1 / 13"),
    "one-scale": ("liere", "block=block, scale=scale)", "block=block)"),
    "commuting-throughout": ("liere", 'loss("liere", block=block, scale=scale)', 'loss("comrope-ld", block=block)'),
    "not-aligned": ("decay", "torch.ones(2, 1, 128", "torch.randn(2, 1, 128"),
    "cosines-of-another-base": ("decay", "10000 ** (-torch", "1000 ** (-torch"),
    "trace-of-xpos": ("decay", "relations(rope).diagonal", 'relations(rw.create("xpos", head_dim=128).double()).diagonal'),
    "norms-of-xpos": ("decay", "(relations(rope).square", '(relations(rw.create("xpos", head_dim=128).double()).square'),
    "norms-kept-by-xpos": ("decay", 'xpos = relations(rw.create("xpos"', 'xpos = relations(rw.create("rope"'),
    "key-turned-away": ("decay", "rope(torch.tensor([t])).q", "rope(torch.tensor([-t])).q"),
    "sampled-with-a-mean": ("decay", "torch.randn(2, 8000", "torch.rand(2, 8000"),
    "bound-of-one-frequency": ("decay", "frequency * torch.arange(16384)", "torch.ones(64).double() * torch.arange(16384)"),
    "bound-without-the-last": ("decay", "pad(products, (0, 1)).diff", "pad(products, (0, 0)).diff"),
    "bound-without-taper": ("decay", "(1 - torch.arange(64) / 64)", "(2 - torch.arange(64) / 64)"),
    "whole-periods": ("base", "length / (2 * math.pi)) / math", "length) / math"),
    "fast-pairs": ("base", "frequencies(base) > length", "frequencies(base) < length"),
    "one-base": ("base", "head_dim=128, base=base", "head_dim=128"),
    "fallen-at-once": ("base", ".lt(0.5)", ".lt(2.0)"),
    "still-pairs-of-one-base": ("base", "(4096 * frequencies(base) < 0.1)", "(4096 * frequencies(1e4) < 0.1)"),
    "not-interpolated": ("unseen", "train, every / factor", "train, every"),
    "interpolated-to-one-step-more": ("unseen", "factor = (times * length - 1) / (length - 1)", "factor = times"),
    "formula-without-half-a-step": ("unseen", "new - first + 0.5", "new - first"),
    "half-a-period": ("unseen", "(2 * math.pi / frequency > length)", "(math.pi / frequency > length)"),
    "seen-twice-as-long": ("unseen", "torch.arange(length,", "torch.arange(2 * length,"),
    "one-sign-of-distances": ("unseen", "torch.arange(-13, 14", "torch.arange(0, 14"),
    "not-rescaled": ("unseen", 'resolution="rescale"', 'resolution="extrapolate"'),
    "not-the-last-patch": ("uniform", "turns[13] - turns[0]", "turns[12] - turns[0]"),
    "both-one-turn": ("uniform", 'rotations(variant="van-de-geijn-code")', "rotations()"),
    "not-spread": ("uniform", "scale=13 / 14))", "scale=1.0))"),
}


SECTIONS = {anchor: (name, section) for name in PAGES for anchor, section in split_sections(read_theory(name))[1].items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_and_nothing_is_left_to_fill(name):
    text, figures = render_theory(read_theory(name), name)
    assert "{{" not in text
    assert len(figures) == 2 * read_theory(name).count("{{ figure(")
    assert [anchor for _, anchor, _, _ in find_verdicts(text)] == list(split_sections(read_theory(name))[1])


@pytest.mark.parametrize(("anchor", "before", "after"), MUTANTS.values(), ids=MUTANTS)
def test_an_assertion_can_fail(anchor, before, after):
    name, section = SECTIONS[anchor]
    assert before in section
    with pytest.raises(AssertionError):
        render_theory(split_sections(read_theory(name))[0] + section.replace(before, after), name)


def test_every_section_has_a_mutant():
    assert {anchor for anchor, _, _ in MUTANTS.values()} == set(SECTIONS)


def names(code, context):
    """The names of some Python that are set, or read."""
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


@pytest.mark.parametrize("name", PAGES)
def test_no_section_sets_what_an_earlier_one_shows(name):
    shown = set()
    for section in split_sections(read_theory(name))[1].values():
        assert not shown & set().union(*(names(block, ast.Store) for _, block in BLOCK.findall(section)))
        shown |= set().union(*(names(drop_format(code), ast.Load) for code in EXPRESSION.findall(section)))


def drop_format(code):
    """An expression without its format, if it has one."""
    with contextlib.suppress(SyntaxError):
        ast.parse(code)
        return code
    return code.rpartition(":")[0]
