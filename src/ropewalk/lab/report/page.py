"""The page: one file that needs no other, no network and no script."""

from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.lab.metric import ACCURACY, BITS, OVERLAP, Metric
from ropewalk.lab.report import sections, settings
from ropewalk.lab.report.conclusions import Conclusions
from ropewalk.lab.report.elements import Html, bullets, joined, table, tag
from ropewalk.lab.report.figures import Shown
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.lacking import lacking, source
from ropewalk.lab.report.panels import Styles
from ropewalk.lab.report.rows import Row
from ropewalk.lab.report.style import CSS
from ropewalk.lab.report.words import counted, listed, setting

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Browsers refuse whatever would be fetched or run."""


class Chapter(NamedTuple):
    """A group with all that is said of it. `figures` that are sentences say why there is none."""

    group: Group
    rows: list[Row]
    concluded: Conclusions
    figures: list[Shown | str]
    mark: str


def page(chapters: Sequence[Chapter], styles: Styles, *, question: str, baseline: str) -> str:
    """All of it."""
    title = question.strip() or "What does the encoding change?"
    head = [
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", title),
        tag("style", Html(CSS)),
    ]
    body = [
        tag("header", tag("h1", title), tag("p", lead(chapters), class_="lead"), *_short(chapters), _nav(chapters)),
        tag("main", *_apart(chapters), *(_chapter(each, styles, baseline, len(chapters)) for each in chapters)),
        tag("footer", f"Made by ropewalk from {source([each.group for each in chapters])} alone."),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def lead(chapters: Sequence[Chapter]) -> str:
    """How many runs of what there are."""
    labels = {row.label for each in chapters for row in each.rows}
    runs = [found for each in chapters for found in each.group.runs]
    done = sum(found.score is not None for found in runs)
    data = sorted({setting(each.group.settings["data"]) for each in chapters})
    all_done = "all done" if done == len(runs) else f"{done} of them done"
    return f"{counted(len(labels), 'encoding')} on {listed(data)}, {counted(len(runs), 'run')}, {all_done}."


def _short(chapters: Sequence[Chapter]) -> list[Html]:
    """The answer in short, where all runs can be compared and one is done."""
    if len(chapters) > 1 or not chapters[0].concluded.shown:
        return []
    first, *others = chapters[0].concluded.shown
    counts = [len(row.done) for row in chapters[0].rows if row.done]
    seeds = counted(counts[0], "seed") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} seeds"
    caution = joined([f"From {seeds} of each encoding: ", tag("a", "what cannot be concluded", href="#conclusions"), "."])
    said = (*(tag("p", each) for each in others), tag("p", caution, class_="note"))
    return [tag("div", tag("p", first, class_="verdict"), *said, class_="short")]


def _nav(chapters: Sequence[Chapter]) -> Html:
    """Links into the page."""
    parts = {"equal": "What was held equal", "results": "Results", "conclusions": "Conclusions"}
    links = []
    for each in chapters:
        said = f" ({each.mark[1:]})" if each.mark else ""
        figures = {shown.name: shown.title for shown in each.figures if isinstance(shown, Shown)}
        named = {**parts, **figures, "reproduce": "How to reproduce"}
        links += [tag("a", f"{title}{said}", href=f"#{name}{each.mark}") for name, title in named.items()]
    return tag("nav", *links, aria_label="Contents")


def _apart(chapters: Sequence[Chapter]) -> list[Html]:
    """What tells groups apart, if there are several."""
    if len(chapters) < 2:
        return []
    words = (
        "These runs differ in more than encoding, options and seed, so that they are not all compared with one another: "
        f"they are in {len(chapters)} groups, and comparisons are within a group."
    )
    differ = settings.differing([each.group for each in chapters])
    head = ("Setting", *(f"Group {index}" for index in range(1, len(chapters) + 1)))
    body = [(name.replace("_", " "), *values) for name, values in differ.items()]
    return [
        tag("h2", "Groups", id="groups"),
        tag("p", words),
        table(head, body, label="Settings that differ between groups"),
    ]


def _chapter(of: Chapter, styles: Styles, baseline: str, count: int) -> Html:
    """The sections of a group."""
    said = f", group {of.mark[1:]}" if count > 1 else ""
    drawn = [sections.figure(each, styles, of.mark) for each in of.figures if isinstance(each, Shown)]
    absent = [each for each in of.figures if isinstance(each, str)] + lacking(of.group)
    parts = [
        tag("h2", f"What was held equal{said}", id=f"equal{of.mark}"),
        tag("p", f"All {counted(len(of.group.runs), 'run')} share these settings; encoding, options and seed differ."),
        settings.held_equal(of.group),
        tag("h2", f"Results{said}", id=f"results{of.mark}"),
        sections.results(of.rows, styles, baseline),
        tag("p", note(of.group.metric), *_busy(of.rows), class_="note"),
        *drawn[:1],
        tag("h2", f"What can and cannot be concluded{said}", id=f"conclusions{of.mark}"),
        sections.concluded(of.concluded),
        tag("h2", f"What else was measured{said}"),
        tag("p", PROBED.get(of.group.metric, UNSEEN)),
        tag("div", *drawn[1:], *sections.more_numbers(of.group, styles), class_="shown"),
        *([tag("h3", "What is not here"), bullets(absent)] if absent else []),
        tag("h2", f"How to reproduce{said}", id=f"reproduce{of.mark}"),
        tag("p", AGAIN),
        sections.reproduce(of.rows),
    ]
    return joined(parts)


def note(metric: Metric) -> str:
    """What the numbers of the table are."""
    unit = "points of a hundred" if metric.scale == 100 else metric.points
    return (
        f"{metric.heading} on the test set, which was read once, at the end of training: mean over seeds ± half "
        f"of a 95 % interval. Differences are taken seed by seed, in {unit}; their intervals hold for all of them at once."
    )


BUSY = " Times are of the machine as it was: whatever else ran there made them longer."
AGAIN = (
    "On a CPU equal settings make equal runs, as far as machines round alike; on a GPU runs of one seed may end some tenths "
    "of a point apart. Where data lie, with how many workers they are read and how often a state is kept are left out: they "
    "change no result."
)
PROBED = {
    ACCURACY: "Accuracies from here on are of the validation set, which training does not see, unless called test accuracy.",
    OVERLAP: "Mean IoUs from here on are of the validation set, which training does not see, unless called test mean IoU.",
    BITS: "Losses from here on are of the validation text, which training does not see.",
}

UNSEEN = "Scores from here on are of validation images, which training does not see, unless they are called test scores."


def _busy(rows: Sequence[Row]) -> list[str]:
    """What makes times longer, where there are any."""
    return [BUSY] if any(row.seconds is not None or row.per_second is not None for row in rows) else []
