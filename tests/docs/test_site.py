"""The site: what its pages are made of. That it builds without a warning, `make docs` sees to, which `make test` runs."""

import inspect
import logging
import re
from collections.abc import Iterator
from typing import Self

import pytest
import torch
from mkdocs.config import load_config

import build
import encoding_pages
import library_tables
import markdown_text
import recipe_tables
import ropewalk as rw
from link_check import find_faults
from ropewalk import testing
from ropewalk.encoding import Encoding, Shape, Traits, parameters_of
from ropewalk.encodings import REGISTRY
from ropewalk.lab.augment.pipeline import AUGMENT_OPERATIONS
from ropewalk.lab.config import Config, describe_settings
from ropewalk.lab.data.dataset_registry import list_datasets as data_sets
from ropewalk.lab.figures import applicable
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.lab.inspect.encoding_facts import (
    DocstringEntry,
    parse_class_docstring,
    parse_docstring,
    parse_docstring_entries,
)
from ropewalk.lab.probes import list_task_probes
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.task_types import TASK_TYPES

KINDS = [pytest.param(kind, id=name) for name, kind in REGISTRY.items()]
TEXT = """A summary that
takes two lines.

    R(p) = exp(p A),    A = -Aᵀ

A paragraph with a word  and two blanks.

Beware: of this,
and of that.

variant  Whose.
  heo        his code
  heo-paper  his paper, which
             says more
base     Replaces
         `that`.
proportional A name as long as the column.

Beware: of more.

An afterthought.
"""


class Ramp(Encoding):
    """Ramp: a number for each place, added to the tokens.

        token at p += p

    Beware: it grows.

    steep  How much.
    """

    name = "ramp"
    paper = "arXiv:0000.00000"

    def __init__(self, *, steep: float = 1.0, **shape):
        super().__init__(**shape)
        self.steep = steep
        self.build(learned=False)

    def initial(self) -> dict[str, torch.Tensor]:
        return {}

    def encode(self, q: torch.Tensor, k: torch.Tensor | None) -> rw.Offset:
        return rw.Offset(layers=self.layers, offset=(self.steep * q.sum(-1, keepdim=True)).repeat_interleave(384, -1))

    @property
    def traits(self) -> Traits:
        return Traits(axes=self.axes, relative=(False,) * self.axes)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        yield cls(head_dim=64, heads=6)


def test_a_docstring_comes_apart():
    said = parse_docstring(TEXT)
    assert said.summary == "A summary that takes two lines."
    assert said.formulas == ("R(p) = exp(p A),    A = -Aᵀ",)
    assert said.definition[1:] == ("A paragraph with a word  and two blanks.", "An afterthought.")
    assert said.beware == ("of this, and of that.", "of more.")
    assert list(said.options) == ["variant", "base", "proportional"]
    assert said.options["variant"].text == "Whose."
    assert said.options["variant"].entries == (
        DocstringEntry("heo", "his code"),
        DocstringEntry("heo-paper", "his paper, which says more"),
    )
    assert said.options["base"].text == "Replaces `that`."
    assert said.options["proportional"].text == "A name as long as the column."


def test_a_list_may_begin_with_a_bare_name():
    (entry,) = parse_docstring_entries("variant\n  yu       the paper\n  yu-code  the file")
    assert entry == DocstringEntry("variant", "", (DocstringEntry("yu", "the paper"), DocstringEntry("yu-code", "the file")))


def test_a_family_explains_what_its_members_do_not():
    said = parse_class_docstring(rw.Mixed)
    assert {"scale", "interleaved"} <= set(said.options) - set(parse_docstring(rw.Mixed.__doc__).options)
    assert said.summary == parse_docstring(rw.Mixed.__doc__).summary
    assert parse_class_docstring(rw.RoPE).options["interleaved"].text.startswith("False (transformers'")


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_says_what_it_is(kind):
    said = parse_class_docstring(kind)
    assert said.summary.endswith(".")
    assert said.definition
    assert said.beware, f"{kind.__name__}'s docstring has no paragraph that begins with 'Beware:'"
    assert said.formulas or kind is rw.NoPE, f"{kind.__name__}'s docstring has no formula, that is no indented paragraph"


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_explains_its_options(kind):
    said = parse_class_docstring(kind)
    own = [name for name in parameters_of(kind) if name not in Shape.__annotations__]
    assert [name for name in own if not encoding_pages.explain_option(name, said)] == []
    assert set(said.options) <= set(parameters_of(kind)), "the docstring explains what is no option"


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_explains_its_variants(kind):
    entry = parse_class_docstring(kind).options.get("variant", DocstringEntry("variant", ""))
    assert len(kind.variants) == 1 or [variant.name for variant in entry.entries] == list(kind.variants)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_all_there_is(kind):
    page = encoding_pages.format_encoding_page(kind, dict.fromkeys(applicable(encoding_pages.create_instance(kind)), 700))
    said = parse_class_docstring(kind)
    assert page.startswith(f"# {kind.name}\n")
    for name in said.options:
        assert name == "variant" or f"\n`{name}=" in page
    for variant in kind.variants if len(kind.variants) > 1 else ():
        assert f"\n`{variant}`" in page
    for figure in applicable(encoding_pages.create_instance(kind)):
        assert f"]({kind.name}-{figure}-light.png#only-light)" in page
        assert f"]({kind.name}-{figure}-dark.png#only-dark)" in page
    assert kind.paper.removeprefix("arXiv:") in page


def test_an_encoding_is_in_the_gallery_as_soon_as_it_is_registered(monkeypatch, tmp_path):
    monkeypatch.setitem(REGISTRY, "ramp", Ramp)
    encoding_pages.write_encoding_page("ramp", tmp_path)
    page = (tmp_path / "ramp.md").read_text()
    assert "grows" in page
    assert "](ramp.md)" in encoding_pages.list_encodings()
    drawn = {path.name for path in tmp_path.glob("ramp-*.png")}
    names = ["thumbnail", *applicable(encoding_pages.create_instance(Ramp))]
    assert drawn == {f"ramp-{name}-{theme}.png" for name in names for theme in FIGURE_THEMES}
    assert all(f"](ramp-{name}-dark.png#only-dark){{ width=" in page for name in names[1:])
    assert "ropewalk.encodings.axial.Axial" in library_tables.reference_encodings()


def test_the_random_start_of_a_figure_is_the_same_every_time():
    first, second = (encoding_pages.create_instance(rw.Mixed) for _ in range(2))
    assert torch.equal(first.wave, second.wave)


def test_claims_are_in_the_words_of_the_traits():
    said = encoding_pages.format_facts(rw.ALiBi)
    assert "what it adds to the logits falls as the key moves away" in said
    assert "what it adds to the logits falls as the key moves away" not in encoding_pages.format_facts(rw.Mixed)
    assert "q and k keep their norms" not in encoding_pages.format_facts(rw.XPos)
    assert "| column only:" in encoding_pages.format_facts(rw.Spherical)


def test_formulas_and_code_are_left_alone():
    assert markdown_text.escape_prose("    x[0] * y[1]") == "    x[0] * y[1]"
    assert markdown_text.escape_prose("from [0, 1] by `x[0]`, a * b < c") == "from &#91;0, 1] by `x[0]`, a &#42; b &#60; c"


def test_aligned_lists_become_definition_lists():
    made = markdown_text.format_docstring("Words.\n\nvariant  Whose.\n  heo  his\nbase     More.")
    assert made == "Words.\n\n`variant`\n:   Whose.\n\n    `heo`\n    :   his\n\n`base`\n:   More."


def test_every_page_is_in_the_navigation_once(tmp_path):
    config = load_config(str(build.ROOT / "mkdocs.yml"), docs_dir=str(tmp_path))
    sources = build.list_sources(tmp_path)
    for target in sources.values():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    build.extend_navigation(config.nav, tmp_path)
    pages = [page for entry in config.nav for page in _leaves(entry)]
    written = {str(path.relative_to(tmp_path)) for path in sources.values()}
    assert sorted(pages) == sorted({*written, *(f"encodings/{name}.md" for name in rw.names())})
    assert len(pages) > 60


def test_pages_of_studies_are_named_after_them():
    assert {path.stem for path in (build.HERE / "studies").glob("*.md")} <= set(ALL_STUDIES)


def test_warnings_are_errors(tmp_path):
    config = load_config(str(build.ROOT / "mkdocs.yml"), docs_dir=str(tmp_path))
    assert config.strict
    levels = config.validation
    assert {levels.nav.omitted_files, levels.links.not_found, levels.links.anchors} == {logging.WARNING}
    assert {levels.links.absolute_links, levels.links.unrecognized_links} == {logging.WARNING}


@pytest.fixture
def site(tmp_path):
    """A site without faults."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.png").touch()
    (tmp_path / "style.css").write_text("p { background: url(a.png) }")
    (tmp_path / "404.html").write_text('<a href="/index.html">home</a>')
    (tmp_path / "deep" / "b.html").write_text('<h1 id="top">B</h1> <a href="../index.html#here">A</a>')
    head = '<link rel="stylesheet" href="style.css">'
    linked = (
        '<a href="deep/b.html#top">B</a> <a href="#here" id="here">A</a> <a href="https://arxiv.org/abs/2403.13298">P</a>'
    )
    (tmp_path / "index.html").write_text(f'{head} {linked} <img src="a.png#only-light" srcset="a.png 2x" alt="words">')
    assert find_faults(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ('<a href="c.html">C</a>', "leads nowhere: c.html"),
        ('<a href="deep/b.html#bottom">B</a>', "leads nowhere: deep/b.html#bottom"),
        ('<a href="#nowhere">A</a>', "leads nowhere: #nowhere"),
        ('<a href="/index.html">A</a>', "leads nowhere: /index.html"),
        ('<img src="b.png" alt="words">', "leads nowhere: b.png"),
        ('<img src="a.png" srcset="b.png 2x" alt="words">', "leads nowhere: b.png"),
        ('<img src="a.png">', "a picture has no words: a.png"),
        ('<img src="a.png" alt="">', "a picture has no words: a.png"),
        ('<script src="https://unpkg.com/x.js"></script>', "loads from another host: https://unpkg.com/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "loads from another host: //fonts.example/x.css"),
        ('<a href="http://arxiv.org/pdf/2403.13298">P</a>', "a link to a paper must be"),
        ('<a href="https://arxiv.org/abs/arXiv:2403.13298">P</a>', "a link to a paper must be"),
    ],
)
def test_faults_of_a_page_are_found(site, wrong, fault):
    page = site / "index.html"
    page.write_text(page.read_text() + wrong)
    (found,) = find_faults(site)
    assert found.startswith("index.html: ")
    assert fault in found


def test_styles_load_nothing_from_elsewhere(site):
    (site / "style.css").write_text('@import "https://fonts.example/x.css"; p { background: url("//img.example/a.png") }')
    assert [fault.partition(" host: ")[2] for fault in find_faults(site)] == [
        "https://fonts.example/x.css",
        "//img.example/a.png",
    ]


def test_common_options_are_all_on_their_page():
    page = (build.HERE / "pages" / "reference" / "options.md").read_text()
    assert [name for name in Shape.__annotations__ if f"\n`{name}`\n:" not in page] == []


def test_every_check_is_in_its_table():
    table = library_tables.list_checks()
    for check in {*testing.ALWAYS, *testing.checks_for(rw.RoPE(head_dim=8)), *testing.checks_for(rw.Axial(head_dim=8))}:
        assert f"| {check.__name__.removeprefix('check_').replace('_', ' ')} | " in table
        assert inspect.getdoc(check).partition("\n")[0].replace("|", "&#124;") in table


def test_recipes_are_beside_each_other_where_they_differ():
    head, _, *rows = recipe_tables.list_recipes().splitlines()
    assert re.findall(r"`(.+?)`", head) == list(RECIPES)
    shown = {cells[0].strip("`"): cells[1:] for cells in (row.strip("| ").split(" | ") for row in rows)}
    assert shown["batch"] == [f"{config.batch:,}" for config in RECIPES.values()]
    assert shown["augment"][list(RECIPES).index("liere")] == "flip,<br>crop,<br>rand-augment"
    assert "clip" not in shown, "the gradient is clipped alike in all"
    assert "workers" not in shown, "how many processes read changes no result"
    differ = {
        field
        for field in vars(Config())
        if any(getattr(each, field) != getattr(RECIPES["digits"], field) for each in RECIPES.values())
    }
    assert set(shown) == differ - {"workers", "root", "checkpoint"}


def test_recipes_say_whose_they_are():
    assert re.findall(r"^`(.+)`$", recipe_tables.describe_recipes(), flags=re.MULTILINE) == list(RECIPES)


@pytest.mark.parametrize("each", recipe_tables.CONTRADICTIONS, ids=lambda each: f"{each.recipe}-{each.setting}")
def test_recipes_take_a_side(each):
    assert each.get_value(RECIPES[each.recipe]) in (each.one[0], each.other[0])
    assert each.one[0] != each.other[0]
    assert f"| {each.setting} | " in recipe_tables.list_contradictions()


def test_every_setting_is_in_its_table():
    table = recipe_tables.list_settings()
    assert re.findall(r"^\| `(.+?)` \|", table, flags=re.MULTILINE) == list(vars(Config()))
    assert "| `batch` | Training | 1,024 | Images or windows of text in a step, of all processes together. |" in table
    assert "| `strength` | Augmentation | – | Options of augmentation by name. |" in table


def test_help_of_settings_names_what_there_is():
    expected = {"data": data_sets(), "augment": AUGMENT_OPERATIONS, "task": TASK_TYPES}
    words = {each.name: each.help for each in describe_settings()}
    for setting, names in expected.items():
        assert [name for name in names if not re.search(rf"(?<![\w-]){name}(?![\w-])", words[setting])] == []


def test_settings_are_words():
    assert [recipe_tables.format_value(value) for value in (None, True, [], [3, 5], {"a": 0.5}, 1e-4, "x")] == [
        "–", "yes", "–", "3, 5", "a 0.5", "0.0001", "x",
    ]  # fmt: skip


def test_the_pages_of_the_lab_leave_nothing_out():
    pages = {page.stem: page.read_text() for page in (build.HERE / "pages").glob("lab-*.md")}
    assert re.findall(r"^## ([a-z]+)$", pages["lab-probes"], flags=re.MULTILINE) == list(list_task_probes("classify"))
    assert [name for name in (*data_sets(), *AUGMENT_OPERATIONS) if f"`{name}`" not in pages["lab-recipes"]] == []


def _leaves(entry):
    if isinstance(entry, str):
        return [entry]
    return [leaf for value in (entry.values() if isinstance(entry, dict) else entry) for leaf in _leaves(value)]
