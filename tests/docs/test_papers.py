"""The page on papers: its numbers are those of the papers, files and tables, computed otherwise here or written down."""

import importlib
import math
import re
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from ropewalk.lab.figures.theme import FIGURE_THEMES

sys.path.append(str(Path(__file__).parents[2] / "docs"))
papers = importlib.import_module("papers")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    papers.write(folder)
    return folder


@pytest.fixture(scope="module")
def spans():
    return papers.spans.spans()


# Radians across 14 patches, to the digits that were worked out by hand.
@pytest.mark.parametrize(
    ("setup", "slowest", "fastest"),
    [
        ("axial, Heo", 0.173, 13),
        ("mixed at its start, Heo", 1.50, 13),
        ("DINOv3", 0.156, 11.7),
        ("axial, van de Geijn", 0.726, 6.28),
        ("spherical, van de Geijn", 0.338, 6.28),
        ("uniform, van de Geijn's paper", 6.28, 6.28),
        ("uniform, van de Geijn's file", 2, 2),
        ("“VisionLLaMA” axial, LieRE", 0.0183, 1),
        ("vanilla RoPE, ComRoPE", 0.000165, 13 / 14),
    ],
)
def test_spans_of_fixed_laws(spans, setup, slowest, fastest):
    assert spans[setup].slowest == pytest.approx(slowest, rel=4e-3)
    assert spans[setup].fastest == pytest.approx(fastest, rel=4e-3)


@pytest.mark.parametrize("setup", ["mixed at its start, van de Geijn", "“RoPE-Mixed” at its start, LieRE"])
def test_spans_of_the_first_quadrant_reach_its_corner(spans, setup):
    assert 0.97 < spans[setup].fastest / (2 * math.pi * math.sqrt(2)) <= 1
    assert spans[setup].slowest < 0.1


def test_spans_of_liere_grow_with_the_block(spans):
    # The matrix of means, π above the diagonal, has the largest eigenvalue π cot(π / 2b).
    assert spans["LieRE, block 64, at its start"].fastest == pytest.approx(math.pi / math.tan(math.pi / 128), rel=0.06)
    assert 15.8 < spans["LieRE, block 8, at its start"].fastest < 25


def test_span_of_trained_blocks_is_about_one(spans):
    trained = spans["ComRoPE-LD, block 8, trained"]
    assert trained.fastest * 14 / 13 == pytest.approx(1.0, abs=0.02)
    assert trained.slowest < trained.fastest / 5


def test_liere_uses_layer_0_in_every_layer():
    assert [int(layer) for layer in papers.layers.published(torch.arange(12))] == [0] * 12
    trained = papers.layers.gradients(papers.layers.published) > 0
    assert trained.tolist() == [True] + [False] * 11
    assert (papers.layers.gradients(list) > 0).all()


@pytest.mark.parametrize(("block", "count"), [(2, 9_216), (8, 64_512), (64, 580_608)])
def test_parameters_of_liere(block, count):
    assert papers.layers.parameters(block) == count


def test_directions_of_baselines():
    heo, liere = (papers.directions.turns("mixed", variant) for variant in ("heo", "liere"))
    assert papers.directions.falling(heo) == 0.5
    assert papers.directions.falling(liere) == 0
    assert 6.2 < liere.max() <= 2 * math.pi
    axial = papers.directions.turns("axial", "liere").norm(dim=-1)
    assert [axial.min().item(), axial.max().item()] == pytest.approx([math.exp(-4), 1])


def test_the_file_reads_rows_of_the_table_between_its_middle_columns():
    found = papers.lookup.reading()
    assert torch.equal(found.file, found.file[:, :1].expand(-1, 14))
    assert found.touched.nonzero()[:, 1].unique().tolist() == [6, 7]
    assert int(found.touched.sum()) == 28
    at = torch.arange(0.5, 14, dtype=torch.float64) / 14 * 13
    low, part = at.long(), at.frac()
    middle = found.table[:, 6:8].mean(1)
    torch.testing.assert_close(found.file[:, 0], middle[low] * (1 - part) + middle[low + 1] * part)
    torch.testing.assert_close(found.here, found.table)


def test_the_flag_is_inverted():
    assert papers.settings.has_ape(keep_ape=False)
    assert not papers.settings.has_ape(keep_ape=True)


def test_perturbations_of_paper_and_file():
    paper, file = papers.settings.perturbation("paper"), papers.settings.perturbation("code")
    assert paper.abs().max() < 0.5 == file.abs().max()
    assert papers.settings.on_the_edge(paper) == 0
    # Beyond one deviation lie 31.73 % of a Gaussian; a Gaussian cut at half a deviation has itself one of 0.2838.
    assert papers.settings.on_the_edge(file) == pytest.approx(0.3173, abs=0.004)
    assert paper.std().item() == pytest.approx(0.2838, abs=0.002)
    assert file.std().item() == pytest.approx(0.359, abs=0.002)


def test_frames_are_divided_by_patches():
    assert papers.settings.frames(8, 14) == pytest.approx((1 / 28, 15 / 28))
    assert papers.settings.frames(8, 8) == pytest.approx((1 / 16, 15 / 16))


@pytest.mark.parametrize(("variant", "count"), [("yu", 76_032), ("yu-code", 73_920)])
def test_parameters_of_comrope_ld(variant, count):
    assert papers.settings.parameters(variant) == count


@pytest.mark.parametrize(("block", "count"), [(2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1)])
def test_larger_blocks_have_fewer_directions(block, count):
    assert papers.expressivity.directions(papers.expressivity.of_heads("comrope-ld", block=block)[0]) == count


@pytest.mark.parametrize(("variant", "count"), [("yu", 96), ("yu-code", 8)])
def test_directions_of_twelve_heads(variant, count):
    waves = papers.expressivity.of_heads("comrope-ld", block=8, heads=12, variant=variant)
    assert papers.expressivity.directions(waves.flatten(0, 1)) == count


# Axial RoPE has equal frequencies along both axes, which a combination with equal weights would confuse.
@pytest.mark.parametrize("name", ["mixed", "axial"])
def test_the_spectrum_is_that_of_the_generators(name):
    encoding = papers.page.made(name, head_dim=12)
    basis, _ = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    found, _ = papers.expressivity.spectrum(basis @ encoding.generators().detach()[0] @ basis.T)
    wanted = torch.cat([encoding.waves()[0], -encoding.waves()[0]]).detach()
    assert torch.cdist(wanted, found).amin(1).max() < 1e-12
    assert torch.cdist(found, wanted).amin(1).max() < 1e-12


def test_comrope_ap_is_axial_and_ld_is_mixed():
    ap = papers.expressivity.of_heads("comrope-ap", block=8)[0]
    assert ap.abs().amin(-1).max() < 1e-12 < ap.abs().amax(-1).min()
    assert (ap.abs().argmax(-1) == 0).sum() == 32
    assert 0 < papers.expressivity.residual() < 1e-10


# The wanted means are two digits of another draw, good to 6 %.
@pytest.mark.parametrize(("frequency", "wanted"), [(1.0, 1.63), (0.3, 0.37), (0.1, 0.046), (0.05, 0.011)])
def test_spherical_is_relative_along_columns_alone(frequency, wanted):
    change, down, across = papers.sphere.change, papers.sphere.DOWN, papers.sphere.ACROSS
    assert change(frequency, down) == pytest.approx(wanted, rel=0.06)
    assert change(frequency, across) < 1e-15
    assert change(frequency, across, swapped=True) == pytest.approx(wanted, rel=0.06)
    assert change(frequency, down, swapped=True) < 1e-15


def test_change_of_slow_triplets_is_that_of_the_commutator():
    assert papers.sphere.change(0.02, papers.sphere.DOWN) == pytest.approx(papers.sphere.SMALL * 0.02**2, rel=0.01)
    assert pytest.approx(4.6526, abs=1e-4) == papers.sphere.SMALL


def test_slowest_frequencies_of_spherical():
    assert papers.sphere.slowest("van-de-geijn") == pytest.approx(100 ** (-40 / 63))
    assert papers.sphere.slowest("van-de-geijn-paper") == pytest.approx(100 ** (-40 / 21))


def test_uniform_has_the_same_code_at_both_ends():
    paper, file, axial = papers.uniform.SETUPS.values()
    assert [papers.uniform.codes(*setup) for setup in (paper, file, axial)] == [169, 196, 196]
    assert papers.uniform.codes(*paper, scale=13 / 14) == 196
    assert papers.uniform.first_row(*paper)[-1].item() == pytest.approx(1)
    column = torch.arange(14, dtype=torch.float64)
    torch.testing.assert_close(papers.uniform.first_row(*file), (1 + torch.cos(2 * column / 13)) / 2, atol=1e-6, rtol=0)


# Factors of the frequencies for d = 128, base 10⁴, length 2048 and an extension by 4, to three digits.
@pytest.mark.parametrize(
    ("pair", "turns", "paper", "code", "article", "ntk"),
    [
        (0, 326, 1.000, 1.000, 1.000, 1.000),
        (10, 77.3, 1.000, 1.000, 0.792, 0.802),
        (16, 32.6, 1.000, 1.000, 0.778, 0.703),
        (25, 8.93, 0.442, 0.730, 0.769, 0.577),
        (35, 2.12, 0.277, 0.430, 0.764, 0.463),
        (40, 1.03, 0.251, 0.280, 0.762, 0.415),
        (41, 0.893, 0.250, 0.250, 0.250, 0.406),
        (63, 0.0376, 0.250, 0.250, 0.250, 0.250),
    ],
)
def test_rules_of_extension(pair, turns, paper, code, article, ntk):
    found = [rule()[pair].item() for rule in papers.yarn.RULES.values()]
    assert found == pytest.approx([paper, code, article, 0.25, ntk], abs=6e-4)
    assert papers.yarn.ROTATIONS[pair].item() == pytest.approx(turns, rel=2e-3)


def test_slowest_frequency_of_rope():
    slowest = papers.yarn.FREQUENCY[63].item()
    assert slowest == pytest.approx(1.155e-4, rel=1e-3)
    assert 2 * math.pi / slowest == pytest.approx(54_410, abs=1)


def test_decay_needs_alignment():
    ahead = torch.arange(2048, dtype=torch.float64)
    frequency = 1e4 ** (-torch.arange(64, dtype=torch.float64) / 64)
    aligned = papers.decay.aligned()
    torch.testing.assert_close(aligned, torch.cos(ahead[:, None] * frequency).mean(1), atol=1e-4, rtol=0)
    means = aligned.unflatten(0, (4, 512)).mean(1)
    assert (means.diff() < 0).all()
    assert (papers.decay.spread() * math.sqrt(128) - 1).abs().max() < 0.15
    chosen = papers.decay.chosen()
    assert int(chosen.argmax()) == 1000
    assert chosen.max().item() == pytest.approx(1)


def test_percentages_of_comrope():
    gain = papers.percentages.gain
    assert gain("LD", "LieRE", resolution=512) == pytest.approx(2.88, abs=0.005)
    assert gain("LD", "LieRE", resolution=224) == pytest.approx(1.76, abs=0.005)
    assert gain("LD", "LieRE", resolution=224, sigma=0) == pytest.approx(1.87, abs=0.005)
    assert gain("AP", "LieRE", resolution=224) == pytest.approx(1.49, abs=0.005)
    assert gain("APE", "APE", resolution=512, over_sigma=0) == pytest.approx(19.53, abs=0.005)
    assert gain("APE", "APE", resolution=224, over_sigma=0) == pytest.approx(0.24, abs=0.005)
    assert gain("LD", "LD", resolution=512, over_sigma=0) == pytest.approx(3.08, abs=0.005)
    pairs = papers.percentages.over_liere(224).values()
    assert len(pairs) == 8
    assert min(abs(percent - 1.6) for percent in pairs) > 0.1


def test_spherical_in_the_tables():
    assert papers.results.behind("spherical, fixed") == pytest.approx((1.5, 1.0))
    assert papers.results.behind("spherical, learned") == pytest.approx((0.6, 0.0))
    assert papers.results.deviations("spherical, fixed") == pytest.approx([3.0, 3.16], abs=0.01)
    assert papers.results.lead("spherical, learned") == pytest.approx([0.3, 0.94, -0.2, 1.0])
    assert max(papers.results.lead("spherical, fixed")) < 0
    assert papers.results.noise() == pytest.approx(0.5)


def test_every_figure_is_shown_in_both_themes(page):
    shown = re.findall(r"\]\(papers/([a-z]+-(light|dark)\.png)#only-(light|dark)\)", (page / "papers.md").read_text())
    assert sorted(name for name, *_ in shown) == sorted(path.name for path in (page / "papers").iterdir())
    assert len(shown) == 2 * sum(len(part.finding().figures) for part in papers.PARTS) == 22
    assert all(theme == only for _, theme, only in shown)


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_figures_have_the_colour_of_their_theme(page, theme):
    paper = tuple(bytes.fromhex(FIGURE_THEMES[theme].paper[1:]))
    for path in (page / "papers").glob(f"*-{theme}.png"):
        image = Image.open(path).convert("RGB")
        assert image.getpixel((0, 0)) == paper
        assert len(image.getcolors(image.width * image.height)) > 20


def test_the_table_on_top_leads_to_every_section(page):
    text = (page / "papers.md").read_text()
    links, anchors = re.findall(r"\]\(#(\w+)\)", text), re.findall(r"^## \d+\. .* \{#(\w+)\}$", text, flags=re.MULTILINE)
    assert links == anchors
    assert len(anchors) == len(papers.PARTS) == 12


@pytest.mark.parametrize(
    "words",
    [
        "59,136 of 64,512 parameters idle",
        "50 % of the pairs have stripes",
        "of 196 entries 28 are read",
        "0.284 and 0.359; 0 % and 31.",
        "76,032 parameters in a ViT-B",
        "| directions | 32 | 16 | 8 | 4 | 2 | 1 |",
        "ω = 0.00016 or 0.054",
        "Of 196 places 169 codes are left",
        "| 40 | 1.03 | 0.251 | 0.280 | 0.762 | 0.415 |",
        "its period 54,410 tokens",
        "0.1 ln s + 1 = 1.139",
        "at distance 1000 (Barbero",
        "2.88 %, 1.55 points",
        "1.0 to 1.5 points below mixed",
    ],
)
def test_the_page_says_what_was_computed(page, words):
    assert words in " ".join((page / "papers.md").read_text().split())
