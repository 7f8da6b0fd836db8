"""What holds for every figure; test_plots_*.py read back what each of them shows."""

import importlib.util
import io
import itertools
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
import torch
from matplotlib.figure import Figure

import ropewalk as rw
from ropewalk.encodings import REGISTRY
from ropewalk.lab import figures
from ropewalk.lab.figures import FIGURES, applicable
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.inspect.encoding_facts import create_sample_encoding

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = [example for kind in REGISTRY.values() for example in kind.examples()]
SHAPE = {"head_dim": 12, "heads": 2, "size": (3, 5)}
ROTARY = ["patterns", "frequencies", "decay", "turns", "tables"]
CHAINS = {
    "alibi": rw.chain(rw.create("axial", **SHAPE), rw.create("alibi", axes=2, **SHAPE)),
    "ape": rw.chain(rw.create("learned-ape", **SHAPE), rw.create("mixed", **SHAPE)),
    "blocks": rw.chain(rw.create("liere", block=4, coordinates="index", **SHAPE), rw.create("alibi", axes=2, **SHAPE)),
}


def words(figure: Figure) -> list:
    """Titles, notes, labels and legends: all words but those of ticks."""
    found = list(figure.texts)
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for child in axes.child_axes:
            found += [child.xaxis.label, child.yaxis.label]
    legends = [*figure.legends, *[axes.get_legend() for axes in figure.axes if axes.get_legend() is not None]]
    found += [text for legend in legends for text in legend.get_texts()]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def assert_readable(figure: Figure) -> None:
    """Words are of 8 points or more, on the page, and do not cover each other."""
    figure.draw_without_rendering()
    boxes = {text: text.get_window_extent() for text in words(figure)}
    width, height = figure.bbox.size
    for text, box in boxes.items():
        assert text.get_fontsize() >= 8, text
        assert -0.5 <= box.x0 <= box.x1 <= width + 0.5, text
        assert -0.5 <= box.y0 <= box.y1 <= height + 0.5, text
    for (one, a), (other, b) in itertools.combinations(boxes.items(), 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(across, down) <= 1, (one, other)


def test_the_figures_are_these():
    assert list(FIGURES) == ["patterns", "frequencies", "sphere", "decay", "turns", "tables"]
    functions = [
        "draw_attention_patterns",
        "draw_frequencies",
        "draw_sphere_paths",
        "draw_decay",
        "draw_turns",
        "draw_code_tables",
    ]
    assert list(FIGURES.values()) == [getattr(figures, name) for name in functions]


@pytest.mark.exhaustive("figures", kept=lambda theme, **_: theme == "light")
@pytest.mark.parametrize("theme", FIGURE_THEMES)
@pytest.mark.parametrize("name", rw.names())
def test_every_figure_of_every_encoding(name, theme):
    torch.manual_seed(0)
    encoding = create_sample_encoding(REGISTRY[name])
    for figure in applicable(encoding):
        page = FIGURES[figure](encoding, theme=theme)
        assert isinstance(page, Figure)
        assert page.texts[0].get_text().startswith(f"{name}: ")
        assert matplotlib.colors.to_hex(page.get_facecolor()) == FIGURE_THEMES[theme].paper
        assert_readable(page)


@pytest.mark.exhaustive("figures")
@pytest.mark.parametrize("encoding", EXAMPLES, ids=repr)
def test_every_example_can_be_drawn(encoding):
    for figure in applicable(encoding):
        assert len(FIGURES[figure](encoding).axes) > 0


@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_the_figures_of_their_parts_and_long_names_are_readable(name):
    assert applicable(CHAINS[name]) == ROTARY
    for figure in ROTARY:
        assert_readable(FIGURES[figure](CHAINS[name]))


@pytest.mark.exhaustive("figures", kept=lambda axes, seed: seed < 2)
@pytest.mark.parametrize("axes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(8))
def test_frequencies_drawn_anew_are_readable(axes, seed):
    torch.manual_seed(seed)
    for name in ("mixed", "liere"):
        encoding = rw.create(name, head_dim=12, heads=2, axes=axes, size=(2, 2, 3, 5)[-axes:], coordinates="index")
        assert_readable(FIGURES["frequencies"](encoding))


@pytest.mark.parametrize("axes", [1, 4])
def test_other_numbers_of_axes_can_be_drawn(axes):
    encoding = rw.create("mixed", head_dim=12, heads=2, axes=axes, size=(2, 2, 3, 5)[-axes:])
    for figure in applicable(encoding):
        assert_readable(FIGURES[figure](encoding))
    turned = FIGURES["turns"](rw.create("mixed", head_dim=12, axes=4)).axes[0].get_legend()
    assert len({handle.get_facecolor().tobytes() for handle in turned.legend_handles}) == 4


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("none", ["patterns"]),
        ("alibi", ["patterns", "decay", "tables"]),
        ("transformer-xl", ["patterns", "decay", "tables"]),
        ("learned-ape", ["patterns", "decay", "tables"]),
        ("axial", ROTARY),
        ("liere", ROTARY),
        ("string-cayley", ROTARY),
        ("spherical", ["patterns", "frequencies", "sphere", "decay", "turns", "tables"]),
    ],
)
def test_what_applies(name, wanted):
    encoding = create_sample_encoding(REGISTRY[name])
    assert applicable(encoding) == wanted
    for figure in set(FIGURES) - set(wanted) - {"decay"}:
        with pytest.raises(ValueError, match=r", got '[a-z-]+'"):
            FIGURES[figure](encoding)


def test_asking_what_applies_draws_nothing(monkeypatch):
    monkeypatch.setattr(Figure, "__init__", None)
    for kind in REGISTRY.values():
        assert "patterns" in applicable(create_sample_encoding(kind))


def test_what_a_stranger_does_can_be_drawn():
    class Louder(rw.Code):
        def q(self, q):
            return 2 * q

    class Stranger(rw.NoPE):
        def encode(self, q, k):
            return Louder(layers=self.layers)

    encoding = Stranger(head_dim=8, heads=2, axes=2)
    assert applicable(encoding) == ["patterns", "decay"]
    for figure in applicable(encoding):
        FIGURES[figure](encoding).draw_without_rendering()


def assert_no_trace(draw, folder) -> None:
    """A figure is the same every time, and nothing else changes: no settings, no random numbers, no files."""
    settings, state = dict(matplotlib.rcParams), torch.get_rng_state()
    pictures = []
    for _ in range(2):
        buffer = io.BytesIO()
        draw().savefig(buffer, format="png", dpi=30)
        pictures.append(buffer.getvalue())
        torch.rand(1)
    assert pictures[0] == pictures[1]
    assert dict(matplotlib.rcParams) == settings
    torch.set_rng_state(state)
    draw()
    assert torch.equal(torch.get_rng_state(), state)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", FIGURES)
def test_the_same_every_time_and_no_trace(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoding = rw.create("spherical", **SHAPE)
    assert_no_trace(lambda: FIGURES[name](encoding), tmp_path)


@pytest.mark.parametrize("name", FIGURES)
def test_unknown_themes_and_sizes_are_refused(name):
    encoding = rw.create("spherical", **SHAPE)
    with pytest.raises(ValueError, match=r"theme 'sepia'.*light, dark"):
        FIGURES[name](encoding, theme="sepia")
    with pytest.raises(ValueError, match=r"2 axes, got \(3, 5, 7\)"):
        FIGURES[name](encoding, size=(3, 5, 7))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_take_encodings_of_any_precision_and_layer(name):
    encoding = rw.create("spherical", learned=True, layers=2, **SHAPE).double()
    page = FIGURES[name](encoding, layer=1)
    page.draw_without_rendering()
    assert "layer 2 of Spherical" in " ".join(text.get_text() for text in page.texts)


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_zero_has_the_colour_of_the_paper(theme):
    paper = [int(FIGURE_THEMES[theme].paper[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    assert FIGURE_THEMES[theme].colours()(0.5)[:3] == pytest.approx(paper)


def test_drawing_leaves_no_global_figure_behind():
    program = """
import sys
import ropewalk as rw
from ropewalk.lab.figures import FIGURES
for draw in FIGURES.values():
    draw(rw.create("spherical", head_dim=6)).savefig("/dev/null", format="png")
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.exhaustive("figures")
def test_the_pictures_of_the_readme_are_drawn(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("readme_figure", DOCS / "readme_figure.py")
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    (tmp_path / "images").mkdir()
    drawing.main(tmp_path / "images")
    pictures = [f"attention-patterns-{theme}.png" for theme in FIGURE_THEMES]
    assert capsys.readouterr().out.split() == [str(tmp_path / "images" / picture) for picture in pictures]
    for picture in pictures:
        sizes = [(folder / "images" / picture).stat().st_size for folder in (tmp_path, DOCS)]
        assert all(100_000 < size < 300_000 for size in sizes)
