"""The page: one file that needs no other, no network and no script."""

from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.lab.metrics import BITS_PER_BYTE, MEAN_IOU, TOP1_ACCURACY, RunMetric
from ropewalk.lab.report.conclusions import GroupConclusions
from ropewalk.lab.report.figures import ReportFigure
from ropewalk.lab.report.format import (
    HtmlText,
    format_count,
    format_setting,
    join_html,
    join_words,
    make_html_list,
    make_html_table,
    make_html_tag,
)
from ropewalk.lab.report.groups import RunGroup
from ropewalk.lab.report.panels import StyleMap
from ropewalk.lab.report.sections import (
    describe_missing,
    describe_source,
    list_differing_settings,
    render_conclusions,
    render_report_figure,
    render_reproduction,
    render_results,
    render_shared_settings,
    render_single_numbers,
)
from ropewalk.lab.report.theme import PAGE_CSS
from ropewalk.lab.results_table import TableRow

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Browsers refuse whatever would be fetched or run."""


class ReportChapter(NamedTuple):
    """A group with all that is said of it. `figures` that are sentences say why there is none."""

    group: RunGroup
    rows: list[TableRow]
    concluded: GroupConclusions
    figures: list[ReportFigure | str]
    mark: str


def render_page(chapters: Sequence[ReportChapter], styles: StyleMap, *, question: str, baseline: str) -> str:
    """All of it."""
    title = question.strip() or "What does the encoding change?"
    head = [
        HtmlText('<meta charset="utf-8">'),
        HtmlText('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        HtmlText(f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'),
        make_html_tag("title", title),
        make_html_tag("style", HtmlText(PAGE_CSS)),
    ]
    body = [
        make_html_tag(
            "header",
            make_html_tag("h1", title),
            make_html_tag("p", describe_runs(chapters), class_="lead"),
            *_render_summary(chapters),
            _render_nav(chapters),
        ),
        make_html_tag(
            "main",
            *_render_group_differences(chapters),
            *(_render_chapter(each, styles, baseline, len(chapters)) for each in chapters),
        ),
        make_html_tag("footer", f"Made by ropewalk from {describe_source([each.group for each in chapters])} alone."),
    ]
    return (
        f"<!doctype html>\n{make_html_tag('html', make_html_tag('head', *head), make_html_tag('body', *body), lang='en')}\n"
    )


def describe_runs(chapters: Sequence[ReportChapter]) -> str:
    """How many runs of what there are."""
    labels = {row.label for each in chapters for row in each.rows}
    runs = [found for each in chapters for found in each.group.runs]
    done = sum(found.score is not None for found in runs)
    data = sorted({format_setting(each.group.settings["data"]) for each in chapters})
    all_done = "all done" if done == len(runs) else f"{done} of them done"
    return f"{format_count(len(labels), 'encoding')} on {join_words(data)}, {format_count(len(runs), 'run')}, {all_done}."


def _render_summary(chapters: Sequence[ReportChapter]) -> list[HtmlText]:
    """The answer in short, where all runs can be compared and one is done."""
    if len(chapters) > 1 or not chapters[0].concluded.shown:
        return []
    first, *others = chapters[0].concluded.shown
    counts = [len(row.done) for row in chapters[0].rows if row.done]
    seeds = format_count(counts[0], "seed") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} seeds"
    caution = join_html(
        [f"From {seeds} of each encoding: ", make_html_tag("a", "what cannot be concluded", href="#conclusions"), "."]
    )
    said = (*(make_html_tag("p", each) for each in others), make_html_tag("p", caution, class_="note"))
    return [make_html_tag("div", make_html_tag("p", first, class_="verdict"), *said, class_="short")]


def _render_nav(chapters: Sequence[ReportChapter]) -> HtmlText:
    """Links into the page."""
    parts = {"equal": "What was held equal", "results": "Results", "conclusions": "Conclusions"}
    links = []
    for each in chapters:
        said = f" ({each.mark[1:]})" if each.mark else ""
        figures = {shown.name: shown.title for shown in each.figures if isinstance(shown, ReportFigure)}
        named = {**parts, **figures, "reproduce": "How to reproduce"}
        links += [make_html_tag("a", f"{title}{said}", href=f"#{name}{each.mark}") for name, title in named.items()]
    return make_html_tag("nav", *links, aria_label="Contents")


def _render_group_differences(chapters: Sequence[ReportChapter]) -> list[HtmlText]:
    """What tells groups apart, if there are several."""
    if len(chapters) < 2:
        return []
    words = (
        "These runs differ in more than encoding, options and seed, so that they are not all compared with one another: "
        f"they are in {len(chapters)} groups, and comparisons are within a group."
    )
    differ = list_differing_settings([each.group for each in chapters])
    head = ("Setting", *(f"Group {index}" for index in range(1, len(chapters) + 1)))
    body = [(name.replace("_", " "), *values) for name, values in differ.items()]
    return [
        make_html_tag("h2", "Groups", id="groups"),
        make_html_tag("p", words),
        make_html_table(head, body, label="Settings that differ between groups"),
    ]


def _render_chapter(of: ReportChapter, styles: StyleMap, baseline: str, count: int) -> HtmlText:
    """The sections of a group."""
    said = f", group {of.mark[1:]}" if count > 1 else ""
    drawn = [render_report_figure(each, styles, of.mark) for each in of.figures if isinstance(each, ReportFigure)]
    absent = [each for each in of.figures if isinstance(each, str)] + describe_missing(of.group)
    parts = [
        make_html_tag("h2", f"What was held equal{said}", id=f"equal{of.mark}"),
        make_html_tag(
            "p", f"All {format_count(len(of.group.runs), 'run')} share these settings; encoding, options and seed differ."
        ),
        render_shared_settings(of.group),
        make_html_tag("h2", f"Results{said}", id=f"results{of.mark}"),
        render_results(of.rows, styles, baseline),
        make_html_tag("p", describe_table(of.group.metric), *_list_time_notes(of.rows), class_="note"),
        *drawn[:1],
        make_html_tag("h2", f"What can and cannot be concluded{said}", id=f"conclusions{of.mark}"),
        render_conclusions(of.concluded),
        make_html_tag("h2", f"What else was measured{said}"),
        make_html_tag("p", PROBE_NOTES.get(of.group.metric, DEFAULT_PROBE_NOTE)),
        make_html_tag("div", *drawn[1:], *render_single_numbers(of.group, styles), class_="shown"),
        *([make_html_tag("h3", "What is not here"), make_html_list(absent)] if absent else []),
        make_html_tag("h2", f"How to reproduce{said}", id=f"reproduce{of.mark}"),
        make_html_tag("p", REPRODUCTION_NOTE),
        render_reproduction(of.rows),
    ]
    return join_html(parts)


def describe_table(metric: RunMetric) -> str:
    """What the numbers of the table are."""
    unit = "points of a hundred" if metric.scale == 100 else metric.points
    return (
        f"{metric.capitalized_name} on the test set, which was read once, at the end of training: mean over seeds ± half "
        f"of a 95 % interval. Differences are taken seed by seed, in {unit}; their intervals hold for all of them at once."
    )


BUSY_MACHINE_NOTE = " Times are of the machine as it was: whatever else ran there made them longer."
REPRODUCTION_NOTE = (
    "On a CPU equal settings make equal runs, as far as machines round alike; on a GPU runs of one seed may end some tenths "
    "of a point apart. Where data lie, with how many workers they are read and how often a state is kept are left out: they "
    "change no result."
)
PROBE_NOTES = {
    TOP1_ACCURACY: "Accuracies from here on are of the validation set, which training does not see, "
    "unless called test accuracy.",
    MEAN_IOU: "Mean IoUs from here on are of the validation set, which training does not see, unless called test mean IoU.",
    BITS_PER_BYTE: "Losses from here on are of the validation text, which training does not see.",
}

DEFAULT_PROBE_NOTE = (
    "Scores from here on are of validation images, which training does not see, unless they are called test scores."
)


def _list_time_notes(rows: Sequence[TableRow]) -> list[str]:
    """What makes times longer, where there are any."""
    return [BUSY_MACHINE_NOTE] if any(row.seconds is not None or row.per_second is not None for row in rows) else []
