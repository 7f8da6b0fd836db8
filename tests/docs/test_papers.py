"""The page on papers: its numbers are those of the papers, files and tables, computed otherwise here or written down."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_hex

import page_engine
from ropewalk.lab.figures.theme import FIGURE_THEMES
from tests.support.rendered_pages import make_namespace


@pytest.fixture(scope="module")
def rendered():
    """The page, what its code computes, and its figures."""
    namespace, figures = make_namespace("papers")
    text = page_engine.render_page((page_engine.HERE / "pages" / "papers.md").read_text(), namespace, name="papers.md")
    return text, SimpleNamespace(**namespace), figures


@pytest.fixture(scope="module")
def page(rendered):
    return rendered[0]


@pytest.fixture(scope="module")
def papers(rendered):
    return rendered[1]


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
def test_spans_of_fixed_laws(papers, setup, slowest, fastest):
    assert papers.spans[setup] == pytest.approx((slowest, fastest), rel=4e-3)
    assert setup not in papers.learned or "mixed" in setup


@pytest.mark.parametrize("setup", ["mixed at its start, van de Geijn", "“RoPE-Mixed” at its start, LieRE"])
def test_spans_of_the_first_quadrant_reach_its_corner(papers, setup):
    slowest, fastest = papers.spans[setup]
    assert 0.97 < fastest / (2 * math.pi * math.sqrt(2)) <= 1
    assert slowest < 0.1


def test_spans_of_liere_grow_with_the_block(papers):
    # The matrix of means, π above the diagonal, has the largest eigenvalue π cot(π / 2b).
    assert papers.spans["LieRE, block 64, at its start"][1] == pytest.approx(math.pi / math.tan(math.pi / 128), rel=0.06)
    assert 15.8 < papers.spans["LieRE, block 8, at its start"][1] < 25


def test_span_of_trained_blocks_is_about_one(papers):
    slowest, fastest = papers.spans["ComRoPE-LD, block 8, trained"]
    assert fastest * 14 / 13 == pytest.approx(1.0, abs=0.02)
    assert slowest < fastest / 5


def test_liere_uses_layer_0_in_every_layer(papers):
    assert [int(layer) for layer in papers.slice_as_published(torch.arange(12))] == [0] * 12
    trained = papers.compute_gradient_norms(papers.slice_as_published) > 0
    assert trained.tolist() == [True] + [False] * 11
    assert (papers.compute_gradient_norms(list) > 0).all()


@pytest.mark.parametrize(("block", "count"), [(2, 9_216), (8, 64_512), (64, 580_608)])
def test_parameters_of_liere(papers, block, count):
    assert papers.count_parameters("liere", block=block) == count


def test_directions_of_baselines(papers):
    heo, liere = (papers.compute_waves("mixed", variant) for variant in ("heo", "liere"))
    assert papers.compute_falling_share(heo) == 0.5
    assert papers.compute_falling_share(liere) == 0
    assert 6.2 < liere.max() <= 2 * math.pi
    axial = papers.compute_waves("axial", "liere").norm(dim=-1)
    assert [axial.min().item(), axial.max().item()] == pytest.approx([math.exp(-4), 1])


def test_the_file_reads_rows_of_the_table_between_its_middle_columns(papers):
    table, file, here = papers.readings.values()
    assert torch.equal(file, file[:, :1].expand(-1, 14))
    assert papers.touched.nonzero()[:, 1].unique().tolist() == [6, 7]
    assert int(papers.touched.sum()) == 28
    at = torch.arange(0.5, 14, dtype=torch.float64) / 14 * 13
    low, part = at.long(), at.frac()
    middle = table[:, 6:8].mean(1)
    torch.testing.assert_close(file[:, 0], middle[low] * (1 - part) + middle[low + 1] * part)
    torch.testing.assert_close(here, table)


def test_the_flag_is_inverted(papers):
    assert papers.has_absolute_embedding(keep_ape=False)
    assert not papers.has_absolute_embedding(keep_ape=True)


def test_perturbations_of_paper_and_file(papers):
    paper, file = papers.sample_perturbation("paper"), papers.sample_perturbation("code")
    assert paper.abs().max() < 0.5 == file.abs().max()
    assert papers.compute_edge_share(paper) == 0
    # Beyond one deviation lie 31.73 % of a Gaussian; a Gaussian cut at half a deviation has itself one of 0.2838.
    assert papers.compute_edge_share(file) == pytest.approx(0.3173, abs=0.004)
    assert paper.std().item() == pytest.approx(0.2838, abs=0.002)
    assert file.std().item() == pytest.approx(0.359, abs=0.002)


def test_frames_are_divided_by_patches(papers):
    assert papers.compute_frame_ends(8, 14) == pytest.approx((1 / 28, 15 / 28))
    assert papers.compute_frame_ends(8, 8) == pytest.approx((1 / 16, 15 / 16))


@pytest.mark.parametrize(("variant", "count"), [("yu", 76_032), ("yu-code", 73_920)])
def test_parameters_of_comrope_ld(papers, variant, count):
    assert papers.count_parameters("comrope-ld", block=8, variant=variant) == count


@pytest.mark.parametrize(("block", "count"), [(2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1)])
def test_larger_blocks_have_fewer_directions(papers, block, count):
    assert papers.count_directions(papers.compute_head_waves("comrope-ld", block=block)[0]) == count


@pytest.mark.parametrize(("variant", "count"), [("yu", 96), ("yu-code", 8)])
def test_directions_of_twelve_heads(papers, variant, count):
    waves = papers.compute_head_waves("comrope-ld", block=8, heads=12, variant=variant)
    assert papers.count_directions(waves.flatten(0, 1)) == count


# Axial RoPE has equal frequencies along both axes, which a combination with equal weights would confuse.
@pytest.mark.parametrize("name", ["mixed", "axial"])
def test_the_spectrum_is_that_of_the_generators(papers, name):
    encoding = papers.create(name, head_dim=12)
    basis, _ = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    found, _ = papers.compute_spectrum(basis @ encoding.generators().detach()[0] @ basis.T)
    wanted = torch.cat([encoding.waves()[0], -encoding.waves()[0]]).detach()
    assert torch.cdist(wanted, found).amin(1).max() < 1e-12
    assert torch.cdist(found, wanted).amin(1).max() < 1e-12


def test_comrope_ap_is_axial_and_ld_is_mixed(papers):
    ap = papers.compute_head_waves("comrope-ap", block=8)[0]
    assert ap.abs().amin(-1).max() < 1e-12 < ap.abs().amax(-1).min()
    assert (ap.abs().argmax(-1) == 0).sum() == 32
    assert 0 < papers.compute_residual() < 1e-10


# The wanted means are two digits of another draw, good to 6 %.
@pytest.mark.parametrize(("frequency", "wanted"), [(1.0, 1.63), (0.3, 0.37), (0.1, 0.046), (0.05, 0.011)])
def test_spherical_is_relative_along_columns_alone(papers, frequency, wanted):
    change, down, across = papers.compute_change, papers.down, papers.across
    assert change(frequency, down) == pytest.approx(wanted, rel=0.06)
    assert change(frequency, across) < 1e-15
    assert change(frequency, across, swapped=True) == pytest.approx(wanted, rel=0.06)
    assert change(frequency, down, swapped=True) < 1e-15


def test_change_of_slow_triplets_is_that_of_the_commutator(papers):
    assert papers.compute_change(0.02, papers.down) == pytest.approx(papers.small_factor * 0.02**2, rel=0.01)
    assert pytest.approx(4.6526, abs=1e-4) == papers.small_factor


def test_slowest_frequencies_of_spherical(papers):
    assert papers.get_slowest_frequency("van-de-geijn") == pytest.approx(100 ** (-40 / 63))
    assert papers.get_slowest_frequency("van-de-geijn-paper") == pytest.approx(100 ** (-40 / 21))


def test_uniform_has_the_same_code_at_both_ends(papers):
    paper, file, axial = papers.setups.values()
    assert [papers.count_codes(*setup) for setup in (paper, file, axial)] == [169, 196, 196]
    assert papers.count_codes(*paper, scale=13 / 14) == 196
    assert papers.compute_row_scores(*paper)[-1].item() == pytest.approx(1)
    column = torch.arange(14, dtype=torch.float64)
    torch.testing.assert_close(papers.compute_row_scores(*file), (1 + torch.cos(2 * column / 13)) / 2, atol=1e-6, rtol=0)


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
def test_rules_of_extension(papers, pair, turns, paper, code, article, ntk):
    found = [rule[pair].item() for rule in papers.factors.values()]
    assert found == pytest.approx([paper, code, article, 0.25, ntk], abs=6e-4)
    assert papers.turns[pair].item() == pytest.approx(turns, rel=2e-3)


def test_slowest_frequency_of_rope(papers):
    slowest = papers.frequency[63].item()
    assert slowest == pytest.approx(1.155e-4, rel=1e-3)
    assert 2 * math.pi / slowest == pytest.approx(54_410, abs=1)


def test_decay_needs_alignment(papers):
    ahead = torch.arange(2048, dtype=torch.float64)
    frequency = 1e4 ** (-torch.arange(64, dtype=torch.float64) / 64)
    aligned = papers.decays["q = k"]
    torch.testing.assert_close(aligned, torch.cos(ahead[:, None] * frequency).mean(1), atol=1e-4, rtol=0)
    means = aligned.unflatten(0, (4, 512)).mean(1)
    assert (means.diff() < 0).all()
    assert (papers.deviation * math.sqrt(128) - 1).abs().max() < 0.15
    chosen = papers.decays["k chosen for 1000 ahead"]
    assert int(chosen.argmax()) == 1000
    assert chosen.max().item() == pytest.approx(1)


def test_percentages_of_comrope(papers):
    gain = papers.compute_gain
    assert gain("LD", "LieRE", resolution=512) == pytest.approx(2.88, abs=0.005)
    assert gain("LD", "LieRE", resolution=224) == pytest.approx(1.76, abs=0.005)
    assert gain("LD", "LieRE", resolution=224, sigma=0) == pytest.approx(1.87, abs=0.005)
    assert gain("AP", "LieRE", resolution=224) == pytest.approx(1.49, abs=0.005)
    assert gain("APE", "APE", resolution=512, over_sigma=0) == pytest.approx(19.53, abs=0.005)
    assert gain("APE", "APE", resolution=224, over_sigma=0) == pytest.approx(0.24, abs=0.005)
    assert gain("LD", "LD", resolution=512, over_sigma=0) == pytest.approx(3.08, abs=0.005)
    pairs = papers.at_224.values()
    assert len(pairs) == 8
    assert min(abs(percent - 1.6) for percent in pairs) > 0.1


def test_spherical_in_the_tables(papers):
    assert papers.compute_gaps("spherical, fixed") == pytest.approx((1.5, 1.0))
    assert papers.compute_gaps("spherical, learned") == pytest.approx((0.6, 0.0))
    assert papers.compute_scaled_gaps("spherical, fixed") == pytest.approx([3.0, 3.16], abs=0.01)
    assert papers.leads["spherical, learned"] == pytest.approx([0.3, 0.94, -0.2, 1.0])
    assert max(papers.leads["spherical, fixed"]) < 0
    assert papers.noise == pytest.approx(0.5)


def test_every_figure_is_shown_in_both_themes(rendered):
    text, _, figures = rendered
    shown = re.findall(r"\]\(([a-z]+)-(light|dark)\.png#only-(light|dark)\)", text)
    assert {(name, theme) for name, theme, _ in shown} == set(figures)
    assert len(shown) == 22
    assert all(theme == only for _, theme, only in shown)


def test_figures_have_the_colour_of_their_theme(rendered):
    for (_, theme), figure in rendered[2].items():
        assert to_hex(figure.get_facecolor()) == FIGURE_THEMES[theme].paper
        assert any(axes.lines or axes.collections or axes.patches or axes.images for axes in figure.axes)


def test_the_table_on_top_leads_to_every_section(page):
    links, anchors = re.findall(r"\]\(#(\w+)\)", page), re.findall(r"^## \d+\. .* \{#(\w+)\}$", page, flags=re.MULTILINE)
    assert links == anchors
    assert len(anchors) == 12


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
        "Of 196 positions 169 codes are left",
        "| 40 | 1.03 | 0.251 | 0.280 | 0.762 | 0.415 |",
        "its period 54,410 tokens",
        "0.1 ln s + 1 = 1.139",
        "at distance 1000 (Barbero",
        "2.88 %, 1.55 points",
        "1.0 to 1.5 points below mixed",
    ],
)
def test_the_page_says_what_was_computed(papers, page, words):
    assert words in " ".join(page.split())
