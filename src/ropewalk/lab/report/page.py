"""The page of a report: one HTML file that needs no other file, no network and no script.

The text, markup, style and script are in page.html.j2, style.css and page.js; this module gathers what they show. Values are
escaped by the template, and the content security policy allows no script but page.js.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ropewalk import factory
from ropewalk.lab.config import UNHASHED_FIELDS, list_setting_groups, setting_applies
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.conclusions import GroupConclusions, list_missing
from ropewalk.lab.report.format import exceeds_interval, format_count, format_data_name, format_setting, join_words
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.panels import ReportFigure
from ropewalk.lab.report.reproduce import format_reproduction
from ropewalk.lab.report.series import tabulate_single_numbers
from ropewalk.lab.report.theme import LINE_DASHES, MARKER_SHAPES, StyleMap, format_css_variables
from ropewalk.lab.result_rows import TableRow
from ropewalk.lab.results_table import TableCell, make_table_cells

SOURCES = Path(__file__).parent


class ReportChapter(NamedTuple):
    """A group of runs and what is shown of it. A figure that is a string gives the reason why it is missing.

    `suffix` distinguishes the ids of several groups.
    """

    group: RunGroup
    rows: list[TableRow]
    conclusions: GroupConclusions
    figures: list[ReportFigure | str]
    suffix: str


def render_page(chapters: Sequence[ReportChapter], styles: StyleMap, *, question: str, baseline: str) -> str:
    """Render the page of all groups."""
    groups = [each.group for each in chapters]
    return (
        make_environment()
        .get_template("page.html.j2")
        .render(
            title=question.strip() or "What does the encoding change?",
            lead=describe_runs(groups),
            styles=styles,
            differing=list_differing_settings(groups) if len(groups) > 1 else {},
            chapters=[_describe_chapter(each, baseline, several=len(chapters) > 1) for each in chapters],
        )
    )


def make_environment() -> Environment:
    """The template's environment, with style and script."""
    environment = Environment(
        loader=FileSystemLoader(SOURCES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    script = (SOURCES / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    light, dark = (format_css_variables(dark=dark) for dark in (False, True))
    variables = f":root{{color-scheme:light dark;{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    environment.globals |= {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        "css": Markup(f"{variables}\n{(SOURCES / 'style.css').read_text()}"),
        "script": Markup(script),
        "shapes": {name: Markup(shape) for name, shape in MARKER_SHAPES.items()},
        "dashes": LINE_DASHES,
    }
    environment.filters["svg"] = Markup
    return environment


def describe_runs(groups: Sequence[RunGroup]) -> str:
    """How many encodings and runs there are, and on which data."""
    labels = {label for group in groups for label in group.found}
    runs = [record for group in groups for record in group.runs]
    done = sum(record.score is not None for record in runs)
    data = sorted({format_data_name(group.settings["data"]) for group in groups})
    finished = "all finished" if done == len(runs) else f"{done} of them finished"
    return f"{format_count(len(labels), 'encoding')} on {join_words(data)}, {format_count(len(runs), 'run')}, {finished}."


def _describe_chapter(of: ReportChapter, baseline: str, *, several: bool) -> dict[str, Any]:
    """What the template shows of a group."""
    group = of.group
    return {
        "suffix": of.suffix,
        "name": f", group {of.suffix[1:]}" if several else "",
        "findings": of.conclusions.findings,
        "caveats": of.conclusions.caveats,
        "results": list_results(of.rows, baseline),
        "numbers": list_single_numbers(group),
        "figures": [each for each in of.figures if isinstance(each, ReportFigure)],
        "missing": [*(each for each in of.figures if isinstance(each, str)), *list_missing(group)],
        "runs": format_count(len(group.runs), "run"),
        "settings": list_shared_settings(group.settings),
        "machines": describe_machines(group),
        "reproduction": [_describe_reproduction(row) for row in of.rows],
    }


# Tables


class PageCell(NamedTuple):
    """A cell: its text, the number it sorts by where the text does not begin with it, and a remark with its CSS class."""

    text: str
    sort: float | None = None
    remark: str = ""
    kind: str = ""


class PageTable(NamedTuple):
    """A table whose rows are encodings; `marked` is the row of the baseline."""

    titles: list[str]
    rows: dict[str, list[PageCell]]
    marked: str | None = None


def list_results(rows: Sequence[TableRow], baseline: str) -> PageTable:
    """The table of results, with the significance of differences."""
    titles, body = make_table_cells(rows, "page")
    cells = {row.label: [make_cell(row, cell) for cell in line[1:]] for row, line in zip(rows, body, strict=True)}
    return PageTable(titles, cells, baseline if baseline in cells else None)


def make_cell(row: TableRow, cell: TableCell) -> PageCell:
    """Add whether a difference is significant; its CSS class says whether it is better or worse."""
    sort = float(cell.value) if isinstance(cell.value, int | float) else None
    if cell.key != "difference":
        return PageCell(cell.text, sort)
    if row.label == row.baseline and row.score:
        return PageCell("baseline", 0.0, kind="even")
    if row.difference is None or row.difference.half is None:
        return PageCell(cell.text, sort)
    if not exceeds_interval(row.difference):
        return PageCell(cell.text, sort, "not significant", "even")
    return PageCell(cell.text, sort, "significant", "better" if row.metric.rank(row.difference.mean) < 0 else "worse")


def list_single_numbers(group: RunGroup) -> PageTable | None:
    """The table of probes with one number for each encoding, if there are any."""
    found = tabulate_single_numbers(group)
    if not found:
        return None
    titles = ["Encoding", *next(iter(found.values()))]
    return PageTable(titles, {label: [PageCell(text) for text in cells.values()] for label, cells in found.items()})


# Settings

UNSET_MEANINGS = {"size": "that of the data", "span": "each encoding's own"}


def list_shared_settings(settings: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Names and values of the settings that runs share and that have an effect, by group."""
    shown = {name: value for name, value in settings.items() if setting_applies(name, settings)}
    groups = list_setting_groups().items()
    values = {group: [_describe_setting(name, shown[name]) for name in names if name in shown] for group, names in groups}
    return {group: described for group, described in values.items() if described}


def _describe_setting(name: str, value: Any) -> tuple[str, str]:
    if name == "data":
        return name, format_data_name(value)
    unset = UNSET_MEANINGS.get(name) if value is None else None
    return name.replace("_", " "), unset or format_setting(value)


def list_differing_settings(groups: Sequence[RunGroup]) -> dict[str, list[str]]:
    """Settings that differ between groups, with the value in each."""
    return {
        name.replace("_", " "): [format_setting(group.settings[name]) for group in groups]
        for name in groups[0].settings
        if len({json.dumps(group.settings[name]) for group in groups}) > 1
    }


def describe_machines(group: RunGroup) -> str:
    """Whether all runs were on the same device with the same version of torch."""
    machines = [_describe_machine(record) for record in group.runs]
    known = sorted({each for each in machines if each})
    if not known:
        return "No run has a record of its machine."
    if len(known) == 1 and all(machines):
        return f"All ran on {known[0]}."
    unknown = f" {format_count(machines.count(''), 'run')} without a record." if "" in machines else ""
    return f"Runs were on different machines, so times are not comparable: {'; '.join(known)}.{unknown}"


def _describe_machine(record: RunRecord) -> str:
    machine, versions = record.machine or {}, record.versions or {}
    parts = [str(machine.get("device") or ""), f"torch {versions['torch']}" if versions.get("torch") else ""]
    return ", ".join(part for part in parts if part)


# Reproduction


def _describe_reproduction(row: TableRow) -> dict[str, Any]:
    """How the runs of an encoding are trained again."""
    records = list(row.runs.values())
    config = records[0].config
    settings = {name: value for name, value in config.document().items() if name not in UNHASHED_FIELDS}
    seeds = [str(seed) for seed in row.runs]
    paper = find_paper(config.encoding)
    return {
        "title": f"{row.label}, {'seed' if len(seeds) == 1 else 'seeds'} {join_words(seeds)}",
        "runs": join_words([each.run or each.config.name for each in records]),
        "paper": paper,
        "link": re.sub("^arXiv:", "https://arxiv.org/abs/", paper) if paper.startswith(("arXiv:", "https://")) else "",
        "commands": "\n".join(format_reproduction([each.config for each in records])),
        "settings": json.dumps(settings, indent=1, ensure_ascii=False),
    }


def find_paper(encoding: str) -> str:
    """The paper of an encoding; empty if its class is not known here."""
    try:
        return str(factory.find(encoding).paper or "")
    except ValueError:
        return ""
