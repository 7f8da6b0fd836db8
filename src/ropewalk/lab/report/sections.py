"""What a page does not have, and why: what could not be measured or read, and what was not written down.

The parts of a page that are words and tables.

What was held equal, and what was not.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence

from ropewalk import factory
from ropewalk.lab.config import UNHASHED_FIELDS, list_setting_groups, setting_applies
from ropewalk.lab.metrics import RunMetric
from ropewalk.lab.report.conclusions import GroupConclusions
from ropewalk.lab.report.figures import ReportFigure
from ropewalk.lab.report.format import (
    HtmlText,
    exceeds_interval,
    format_amount,
    format_count,
    format_difference,
    format_score,
    format_setting,
    join_html,
    join_words,
    make_html_details,
    make_html_list,
    make_html_table,
    make_html_tag,
)
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.load import LoadedRun
from ropewalk.lab.report.reproduce import format_reproduction
from ropewalk.lab.report.table import (
    SCORE_CHANGE_TITLE,
    SECONDARY_METRICS,
    SHUFFLED_TITLE,
    TableRow,
    tabulate_single_numbers,
)
from ropewalk.lab.report.theme import LINE_DASHES, MARKER_SHAPES, EncodingStyle

RESTORED_OMISSIONS = (
    "First weights, names of folders, and data that a line does not name are as the study has them now. Weights, pictures, "
    "losses of training and what probes refused are not in lines; times and memory are left out, since lines do not say "
    "what else ran there."
)


def describe_source(groups: Sequence[RunGroup]) -> str:
    """What runs were read from: folders, lines, or both."""
    names = {True: "lines of a study", False: "the folders of runs"}
    return join_words([names[each] for each in sorted({found.restored for group in groups for found in group.runs})])


def describe_missing(group: RunGroup) -> list[str]:
    """All of it, in sentences."""
    return describe_restored_runs(group) + _describe_refusals(group) + _describe_unreadable(group)


def describe_restored_runs(group: RunGroup) -> list[str]:
    """How many runs are restored from lines, if any, and what they lack."""
    count = sum(found.restored for found in group.runs)
    few = f"{count} of these runs {'is' if count == 1 else 'are'}"
    these = "These runs are" if count == len(group.runs) else few
    return [f"{these} restored from lines of a study. {RESTORED_OMISSIONS}"] if count else []


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
    """Files that could not be read, and runs that were given twice."""
    told = [trouble for found in group.runs for trouble in found.troubles]
    return told + (
        [f"{format_count(group.twice, 'run')} with the same settings as another left out."] if group.twice else []
    )


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
    """The table; columns that nobody has are left out."""
    metric = rows[0].metric
    columns: dict[str, Callable[[TableRow], str]] = {
        f"Test {metric.name}": lambda row: format_score(row.score, metric),
        "Test pixel accuracy": lambda row: _format_seed_mean(row, "test_pixel_accuracy"),
        f"{metric.points.capitalize()} above {baseline}": lambda row: render_difference(row, baseline),
        **_secondary_columns(metric),
        "Parameters of encoding": lambda row: format_amount(row.encoding_parameters),
        "Parameters of model": lambda row: format_amount(row.parameters),
        "Training, s": lambda row: format_amount(row.seconds),
        f"{metric.things.capitalize()} per second": lambda row: format_amount(row.per_second),
        "Inference, × without": lambda row: format_amount(row.inference_ratio),
        "Peak memory, MiB": lambda row: format_amount(None if row.peak_bytes is None else row.peak_bytes / 2**20),
    }
    cells = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    kept = {name: column for name, column in cells.items() if any(cell != "–" for cell in column)}
    body = [
        (render_label(row.label, styles), format_seed_count(row), *(column[i] for column in kept.values()))
        for i, row in enumerate(rows)
    ]
    marked = next((i for i, row in enumerate(rows) if row.label == baseline), None)
    return make_html_tag(
        "div", make_html_table(("Encoding", "Seeds", *kept), body, label="Results", marked=marked), class_="results"
    )


def _secondary_columns(metric: RunMetric) -> dict[str, Callable[[TableRow], str]]:
    """Columns of what stands beside a metric."""

    def cell(name: str) -> Callable[[TableRow], str]:
        return lambda row: "–" if (value := row.beside()[name]) is None else metric.number(value)

    return {title: cell(name) for name, title in SECONDARY_METRICS.get(metric.key, {}).items()}


def _format_seed_mean(row: TableRow, name: str) -> str:
    """Of seeds, in per cent; a dash where none has it."""
    there = [found.result[name] for found in row.runs.values() if name in found.result]
    return f"{100 * math.fsum(there) / len(there):.1f} %" if there else "–"


def render_label(label: str, styles: Mapping[str, EncodingStyle]) -> HtmlText:
    """An encoding with its mark; a long label has several lines."""
    return make_html_tag("span", render_marker(styles[label]), label, class_="name" if len(label) < 33 else "long")


def format_seed_count(row: TableRow) -> str:
    """How many are done, and of how many."""
    return f"{len(row.done)} of {len(row.runs)}" if row.undone else str(len(row.done))


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
    config = next(iter(row.runs.values())).run.config
    settings = {name: value for name, value in config.document().items() if name not in UNHASHED_FIELDS}
    lines = format_reproduction([found.run.config for found in row.runs.values()])
    folders = join_words([found.run.path.name for found in row.runs.values()])
    said = make_html_tag("p", "Folders: ", folders, ". ", render_paper_link(config.encoding), class_="note")
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


UNSET_MEANINGS = {"size": "that of the data", "span": "each encoding's own"}
"""What it means that a setting is not there."""


def render_shared_settings(group: RunGroup) -> HtmlText:
    """The settings that all runs of a group share, by area, and where they ran."""
    shown = {name: value for name, value in group.settings.items() if setting_applies(name, group.settings)}
    body = [
        (area, join_html(_render_setting(name, shown[name]) for name in names if name in shown))
        for area, names in list_setting_groups().items()
        if any(name in shown for name in names)
    ]
    return join_html(
        [
            make_html_table(("", "Settings"), body, label="Settings that all runs share"),
            make_html_tag("p", describe_machines(group)),
        ]
    )


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


def _describe_machine(found: LoadedRun) -> str:
    parts = [found.environment.get("machine"), found.environment.get("versions")]
    machine, versions = (part if isinstance(part, dict) else {} for part in parts)
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
