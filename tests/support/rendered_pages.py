"""Pages of the documentation, rendered without files: figures are drawn and kept."""

import re
from pathlib import Path

import page_engine
from markdown_text import format_picture
from ropewalk.lab.figures.theme import FIGURE_THEMES

THEORY = page_engine.HERE / "theory"


def read_theory(name):
    return (THEORY / f"{name}.md").read_text()


def make_namespace(name):
    """The names of a page, and its figures by name and theme."""
    figures = {}

    def figure(key, alt, draw, /, *args, **options):
        figures.update({(key, theme): draw(look, *args, **options) for theme, look in FIGURE_THEMES.items()})
        return format_picture(key, alt)

    return page_engine.make_namespace(Path(f"{name}.md")) | {"figure": figure}, figures


def render_theory(text, name):
    """The page, and its figures by name and theme."""
    namespace, figures = make_namespace(name)
    return page_engine.render_page(text, namespace, name=name, run=True), figures


def split_sections(text):
    """The beginning of a page, and its sections by anchor."""
    start, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return start, {re.search(r"\{#([\w-]+)\}", section)[1]: section for section in sections}
