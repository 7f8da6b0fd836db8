"""What a page does not have, and why: what could not be measured or read, and what was not written down.

The parts of a page that are words and tables.

What was held equal, and what was not.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk import factory
from ropewalk.lab.config import HASHED_IF_SET_FIELDS, UNHASHED_FIELDS
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report.conclusions import GroupConclusions
from ropewalk.lab.report.figures import ReportFigure
from ropewalk.lab.report.format import (
    HtmlText,
    exceeds_interval,
    format_count,
    format_setting,
    join_html,
    join_words,
    make_html_details,
    make_html_list,
    make_html_table,
    make_html_tag,
)
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.reproduce import format_reproduction
from ropewalk.lab.report.series import SCORE_CHANGE_TITLE, SHUFFLED_TITLE, tabulate_single_numbers
from ropewalk.lab.report.theme import LINE_DASHES, MARKER_SHAPES, EncodingStyle
from ropewalk.lab.results_table import TableRow, format_difference, make_table_cells
from ropewalk.lab.tasks.base import UNUSED_FIELDS
from ropewalk.lab.tasks.text import IMAGE_ONLY_FIELDS


def describe_source(groups: Sequence[RunGroup]) -> str:
    """What the records were read from: run directories, JSON lines, or both."""
    names = {True: "JSON lines", False: "run directories"}
    read = {record.location is None for group in groups for record in group.runs}
    return join_words([names[each] for each in sorted(read)])


def describe_missing(group: RunGroup) -> list[str]:
    """What could not be shown, a sentence each."""
    return _describe_missing_files(group) + _describe_refusals(group) + _describe_unreadable(group)


def _describe_missing_files(group: RunGroup) -> list[str]:
    """What JSON lines do not hold."""
    count = sum(record.location is None for record in group.runs)
    subject = "All runs" if count == len(group.runs) else format_count(count, "run")
    lines = f"{subject} {'was' if count == 1 and count < len(group.runs) else 'were'} read from JSON lines, without weights."
    times = "Times are left out where the load of the machine was not recorded."
    untimed = any(record.location is None and record.neighbors is None for record in group.runs)
    return ([lines] if count else []) + ([times] if untimed else [])


def _describe_refusals(group: RunGroup) -> list[str]:
    """What probes could not measure: of each encoding and probe the first reason, in the words of whoever refused."""
    told: dict[tuple[str, str], str] = {}
    for label, seeds in group.found.items():
        for entry in (entry for found in seeds.values() for entry in found.probes.get("refused", [])):
            told.setdefault((label, str(entry.get("probe"))), str(entry.get("why")))
    alike: dict[tuple[str, str], list[str]] = {}
    for (label, probe), why in told.items():
        alike.setdefault((label, why), []).append(probe)
    return [f"{label}, {join_words(probes)}: {why}." for (label, why), probes in alike.items()]


def _describe_unreadable(group: RunGroup) -> list[str]:
    """Files that could not be read, and duplicate runs."""
    problems = [f"{problem}." for record in group.runs for problem in record.problems]
    return problems + ([f"{format_count(group.twice, 'duplicate run')} left out."] if group.twice else [])


SINGLE_NUMBER_NOTES = {
    SHUFFLED_TITLE: "With shuffled patches, positions are kept: what is left is what the model knows without them.",
    SCORE_CHANGE_TITLE: "The change of scores is that of moving all tokens by one patch, over layers, axes and seeds: zero "
    "where an encoding sees differences of positions alone. It follows from the encoding's matrices, between patches.",
}


def render_marker(style: EncodingStyle) -> HtmlText:
    """The mark of an encoding."""
    return _render_marker_svg("key", 16, style, MARKER_SHAPES[style.mark])


def render_line_marker(style: EncodingStyle) -> HtmlText:
    """The mark of an encoding on its line: colours come again, and curves have no marks."""
    line = (
        f"<path d='M0 8H32' stroke='var({style.variable})' stroke-width='1.6' stroke-dasharray='{LINE_DASHES[style.dash]}'/>"
    )
    return _render_marker_svg("key lined", 32, style, f"{line}<g transform='translate(8)'>{MARKER_SHAPES[style.mark]}</g>")


def _render_marker_svg(kind: str, width: int, style: EncodingStyle, shapes: str) -> HtmlText:
    fill = f"fill='var({style.variable})'"
    return HtmlText(f"<svg class='{kind}' viewBox='0 0 {width} 16' aria-hidden='true' {fill}>{shapes}</svg>")


def render_results(rows: Sequence[TableRow], styles: Mapping[str, EncodingStyle], baseline: str) -> HtmlText:
    """The table of results."""
    table = make_table_cells(rows, "page")
    body = [
        [
            render_label(row.label, styles)
            if cell.key == "label"
            else render_difference(row, baseline)
            if cell.key == "difference"
            else cell.text
            for cell in cells
        ]
        for row, cells in zip(rows, table.rows, strict=True)
    ]
    marked = next((i for i, row in enumerate(rows) if row.label == baseline), None)
    return make_html_tag("div", make_html_table(table.titles, body, label="Results", marked=marked), class_="results")


def render_label(label: str, styles: Mapping[str, EncodingStyle]) -> HtmlText:
    """An encoding with its mark; a long label has several lines."""
    return make_html_tag("span", render_marker(styles[label]), label, class_="name" if len(label) < 33 else "long")


def render_difference(row: TableRow, baseline: str) -> str:
    """Render the difference to the baseline as a table cell."""
    if row.label == baseline and row.score:
        return make_html_tag("span", "baseline", class_="even")
    if row.difference is None:
        return "–"
    if row.difference.half is None:
        return format_difference(row.difference, row.metric)
    better = row.metric.rank(row.difference.mean) < 0
    kind = "even" if not exceeds_interval(row.difference) else "above" if better else "below"
    word = "not told apart" if kind == "even" else "above" if row.difference.mean > 0 else "below"
    return join_html([format_difference(row.difference, row.metric), " ", make_html_tag("span", word, class_=kind)])


def render_conclusions(found: GroupConclusions) -> HtmlText:
    """What can and cannot be concluded."""
    parts = [make_html_tag("h3", "What can be concluded"), make_html_list(found.shown)] if found.shown else []
    return join_html([*parts, make_html_tag("h3", "What cannot be concluded"), make_html_list(found.open)])


def render_report_figure(shown: ReportFigure, styles: Mapping[str, EncodingStyle], mark: str) -> HtmlText:
    """Pictures with a heading, a legend and a caption; one picture takes half a row."""
    names = [make_html_tag("li", render_line_marker(styles[label]), label) for label in shown.legend]
    legend = make_html_tag("ul", *names, class_="legend") if names else HtmlText("")
    plots = make_html_tag("div", *(_render_plot(panel.svg, panel.alt) for panel in shown.panels), class_="plots")
    inside = make_html_tag("figure", legend, plots, make_html_tag("figcaption", shown.caption))
    width = "half" if len(shown.panels) == 1 else "wide"
    return make_html_tag("section", make_html_tag("h3", shown.title, id=f"{shown.name}{mark}"), inside, class_=width)


def _render_plot(svg: str, alt: str) -> HtmlText:
    opening = make_html_tag("svg", class_="plot", role="img", aria_label=alt).removesuffix("></svg>")
    return HtmlText(opening + svg.removeprefix("<svg"))


def render_single_numbers(group: RunGroup, styles: Mapping[str, EncodingStyle]) -> list[HtmlText]:
    """A table of probes that come to one number, if there are any."""
    found = tabulate_single_numbers(group)
    if not found:
        return []
    titles = list(next(iter(found.values())))
    body = [(render_label(label, styles), *cells.values()) for label, cells in found.items()]
    said = [SINGLE_NUMBER_NOTES[title] for title in titles if title in SINGLE_NUMBER_NOTES]
    numbers = make_html_tag(
        "div", make_html_table(("Encoding", *titles), body, label="Probes in single numbers"), class_="results"
    )
    return [
        make_html_tag(
            "section",
            make_html_tag("h3", "In single numbers"),
            numbers,
            make_html_tag("p", " ".join(said), class_="note"),
            class_="half",
        )
    ]


def render_reproduction(rows: Sequence[TableRow]) -> HtmlText:
    """For each encoding the lines that train it again, and its settings."""
    return join_html(make_html_details(f"{row.label}, {_format_seeds(row)}", *_render_commands(row)) for row in rows)


def _format_seeds(row: TableRow) -> str:
    numbers = [str(seed) for seed in row.runs]
    return f"{'seed' if len(numbers) == 1 else 'seeds'} {join_words(numbers)}"


def _render_commands(row: TableRow) -> list[HtmlText]:
    config = next(iter(row.runs.values())).config
    settings = {name: value for name, value in config.document().items() if name not in UNHASHED_FIELDS}
    lines = format_reproduction([record.config for record in row.runs.values()])
    names = join_words(
        [Path(record.location).name if record.location else record.config.name for record in row.runs.values()]
    )
    said = make_html_tag("p", "Run directories: ", names, ". ", render_paper_link(config.encoding), class_="note")
    return [
        said,
        make_html_tag("pre", "\n".join(lines)),
        make_html_tag("pre", json.dumps(settings, indent=1, ensure_ascii=False)),
    ]


def render_paper_link(encoding: str) -> HtmlText:
    """A link to where an encoding comes from."""
    source = str(factory.find(encoding).paper)
    address = source.replace("arXiv:", "https://arxiv.org/abs/") if source.startswith("arXiv:") else source
    link = make_html_tag("a", source, href=address, rel="noreferrer") if address.startswith("https://") else source
    return join_html(["Source: ", link, "."])


SETTING_AREAS = {
    "Data": ("task", "data", "size", "length", "keys", "validation", "fraction"),
    "Model": (
        "model", "head", "patch", "width", "depth", "heads", "kv_heads", "ratio", "pool", "registers", "layer_scale",
        "drop_path", "dropout",
    ),
    "Training": (
        "start", "epochs", "batch", "optimiser", "learning_rate", "weight_decay", "warmup", "clip", "ema", "loss",
        "smoothing", "precision", "compile", "every",
    ),
    "Augmentation": ("augment", "strength", "mixup", "cutmix"),
    "Positions": ("span", "perturb", "shift", "rescale", "per_sample"),
}  # fmt: skip

EXTERNAL_MODEL_SETTINGS = ("width", "depth", "heads", "ratio", "pool", "registers", "layer_scale")
"""Settings that a model of another library has of its own."""
UNSET_MEANINGS = {"size": "that of the data", "span": "each encoding's own"}
"""What it means that a setting is not there."""


def render_shared_settings(group: RunGroup) -> HtmlText:
    """The settings that all runs of a group share, by area, and where they ran."""
    known = {name for names in SETTING_AREAS.values() for name in names}
    areas = {**SETTING_AREAS, "Other": tuple(name for name in group.settings if name not in known)}
    shown = {name: value for name, value in group.settings.items() if setting_applies(name, group.settings)}
    body = [
        (area, join_html(_render_setting(name, shown[name]) for name in names if name in shown))
        for area, names in areas.items()
        if any(name in shown for name in names)
    ]
    return join_html(
        [
            make_html_table(("", "Settings"), body, label="Settings that all runs share"),
            make_html_tag("p", describe_machines(group)),
        ]
    )


def setting_applies(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting says something: those of images do not where there is text, nor those of text where it is none, nor
    those of classes where boxes or maps are found."""
    if settings.get("length") is not None and name in (
        *IMAGE_ONLY_FIELDS,
        *SETTING_AREAS["Augmentation"],
        "patch",
        "validation",
    ):
        return False
    if settings.get("model") is not None and name in EXTERNAL_MODEL_SETTINGS:
        return False
    if name in UNUSED_FIELDS.get(settings.get("task") or "", ()):
        return False
    return name not in HASHED_IF_SET_FIELDS or settings[name] is not None


def _render_setting(name: str, value: object) -> HtmlText:
    said = UNSET_MEANINGS[name] if value is None and name in UNSET_MEANINGS else format_setting(value)
    return join_html([make_html_tag("span", make_html_tag("b", name.replace("_", " ")), f" {said}", class_="set"), " "])


def describe_machines(group: RunGroup) -> str:
    """Whether all ran on the same device with the same versions."""
    places = [_describe_machine(found) for found in group.runs]
    told = sorted({place for place in places if place})
    if not told:
        return "The runs do not say what machine they were on."
    if len(told) == 1 and all(places):
        return f"All ran on {told[0]}."
    unknown = f" {format_count(places.count(''), 'run')} do not say where." if "" in places else ""
    return f"They did not all run on the same machine, so that times cannot be compared: {'; '.join(told)}.{unknown}"


def _describe_machine(found: RunRecord) -> str:
    machine, versions = found.machine or {}, found.versions or {}
    said = [str(machine.get("device", "")), f"torch {versions['torch']}" if "torch" in versions else ""]
    return ", ".join(word for word in said if word)


def list_differing_settings(groups: Sequence[RunGroup]) -> dict[str, list[str]]:
    """Settings that differ between groups, with the value in each."""
    names = groups[0].settings
    return {
        name: [format_setting(group.settings[name]) for group in groups]
        for name in names
        if len({json.dumps(group.settings[name]) for group in groups}) > 1
    }
