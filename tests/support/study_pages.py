"""Pages of studies, rendered from records that are made up."""

import re
from dataclasses import replace
from pathlib import Path

import page_engine
import study_tables
from markdown_text import format_picture
from ropewalk.lab.config import Config
from ropewalk.lab.record import RunRecord
from tests.support.markdown_tables import cells


def make_record(part, name, seed, *, probes=None, curve=(), metric="accuracy", config=None, **result):
    """A record of a run with these results, and a validation curve."""
    metrics = [{"epoch": float(i), f"validation_{metric}": value} for i, value in enumerate(curve, 1)]
    settings = replace(config or Config(), seed=seed)
    return RunRecord(config=settings, run=None, part=part, name=name, result=result, metrics=metrics, probes=probes or {})


def render_study(name, records, monkeypatch):
    """Its tables by heading, in their order, and what its figures are called with, by their name."""
    monkeypatch.setattr(study_tables, "load_results", lambda _: tuple(records))
    target, figures = Path("studies") / f"{name}.md", {}
    namespace = page_engine.make_namespace(target) | study_tables.make_study_namespace(name, target)
    namespace["report"] = lambda part: f"{part}.html"

    def figure(key, alt, draw, some, /, *args, **options):
        if not some:
            return study_tables.NOT_RUN
        figures[key] = lambda look: draw(look, some, *args, **options)
        return format_picture(key, alt)

    namespace["figure"] = figure
    text = page_engine.render_page((page_engine.HERE / "studies" / f"{name}.md").read_text(), namespace, name=name)
    return find_tables(text), figures


def find_tables(text):
    """Tables of Markdown by the heading above them; a table that has not been run is None."""
    found = {}
    for section in re.split(r"^(?=##+ )", text, flags=re.MULTILINE):
        heading = section.splitlines()[0].lstrip("# ")
        blocks = re.findall(r"^\|.*(?:\n\|.*)*|^\*Not run yet\.\*$", section, flags=re.MULTILINE)
        found[heading] = [cells(block) if block.startswith("|") else None for block in blocks]
    return found
