"""The parts of a page that are words and tables."""

import json
import math
from collections.abc import Callable, Mapping, Sequence

from ropewalk import factory
from ropewalk.lab.config import ELSEWHERE
from ropewalk.lab.metric import Metric
from ropewalk.lab.report.commands import again
from ropewalk.lab.report.conclusions import Conclusions
from ropewalk.lab.report.elements import Html, bullets, details, joined, table, tag
from ropewalk.lab.report.figures import Shown
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.numbers import MOVED, SHUFFLED, numbers_of
from ropewalk.lab.report.rows import BESIDE, Row
from ropewalk.lab.report.styles import DASHES, MARKS, Style
from ropewalk.lab.report.words import amount, apart, exceeds, listed, told

NUMBERS = {
    SHUFFLED: "With shuffled patches, positions are kept: what is left is what the model knows without them.",
    MOVED: "The change of scores is that of moving all tokens by one patch, over layers, axes and seeds: zero where an "
    "encoding sees differences of positions alone. It follows from the encoding's matrices, between patches.",
}


def key(style: Style) -> Html:
    """The mark of an encoding."""
    return _svg("key", 16, style, MARKS[style.mark])


def lined(style: Style) -> Html:
    """The mark of an encoding on its line: colours come again, and curves have no marks."""
    line = f"<path d='M0 8H32' stroke='var({style.variable})' stroke-width='1.6' stroke-dasharray='{DASHES[style.dash]}'/>"
    return _svg("key lined", 32, style, f"{line}<g transform='translate(8)'>{MARKS[style.mark]}</g>")


def _svg(kind: str, width: int, style: Style, shapes: str) -> Html:
    fill = f"fill='var({style.variable})'"
    return Html(f"<svg class='{kind}' viewBox='0 0 {width} 16' aria-hidden='true' {fill}>{shapes}</svg>")


def results(rows: Sequence[Row], styles: Mapping[str, Style], baseline: str) -> Html:
    """The table; columns that nobody has are left out."""
    metric = rows[0].metric
    columns: dict[str, Callable[[Row], str]] = {
        f"Test {metric.name}": lambda row: told(row.score, metric),
        "Test pixel accuracy": lambda row: _mean(row, "test_pixel_accuracy"),
        f"{metric.points.capitalize()} above {baseline}": lambda row: _against(row, baseline),
        **_beside(metric),
        "Parameters of encoding": lambda row: amount(row.encoding_parameters),
        "Parameters of model": lambda row: amount(row.parameters),
        "Training, s": lambda row: amount(row.seconds),
        f"{metric.things.capitalize()} per second": lambda row: amount(row.per_second),
        "Inference, × without": lambda row: amount(row.inference_ratio),
        "Peak memory, MiB": lambda row: amount(None if row.peak_bytes is None else row.peak_bytes / 2**20),
    }
    cells = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    kept = {name: column for name, column in cells.items() if any(cell != "–" for cell in column)}
    body = [(named(row.label, styles), seeds(row), *(column[i] for column in kept.values())) for i, row in enumerate(rows)]
    marked = next((i for i, row in enumerate(rows) if row.label == baseline), None)
    return tag("div", table(("Encoding", "Seeds", *kept), body, label="Results", marked=marked), class_="results")


def _beside(metric: Metric) -> dict[str, Callable[[Row], str]]:
    """Columns of what stands beside a metric."""

    def cell(name: str) -> Callable[[Row], str]:
        return lambda row: "–" if (value := row.beside()[name]) is None else metric.number(value)

    return {title: cell(name) for name, title in BESIDE.get(metric.key, {}).items()}


def _mean(row: Row, name: str) -> str:
    """Of seeds, in per cent; a dash where none has it."""
    there = [found.result[name] for found in row.runs.values() if name in found.result]
    return f"{100 * math.fsum(there) / len(there):.1f} %" if there else "–"


def named(label: str, styles: Mapping[str, Style]) -> Html:
    """An encoding with its mark; a long label has several lines."""
    return tag("span", key(styles[label]), label, class_="name" if len(label) < 33 else "long")


def seeds(row: Row) -> str:
    """How many are done, and of how many."""
    return f"{len(row.done)} of {len(row.runs)}" if row.undone else str(len(row.done))


def _against(row: Row, baseline: str) -> str:
    if row.label == baseline and row.score:
        return tag("span", "baseline", class_="even")
    if row.difference is None:
        return "–"
    if row.difference.half is None:
        return apart(row.difference, row.metric)
    better = row.metric.rank(row.difference.mean) < 0
    kind = "even" if not exceeds(row.difference) else "above" if better else "below"
    word = "not told apart" if kind == "even" else "above" if row.difference.mean > 0 else "below"
    return joined([apart(row.difference, row.metric), " ", tag("span", word, class_=kind)])


def concluded(found: Conclusions) -> Html:
    """What can and cannot be concluded."""
    parts = [tag("h3", "What can be concluded"), bullets(found.shown)] if found.shown else []
    return joined([*parts, tag("h3", "What cannot be concluded"), bullets(found.open)])


def figure(shown: Shown, styles: Mapping[str, Style], mark: str) -> Html:
    """Pictures with a heading, a legend and a caption; one picture takes half a row."""
    names = [tag("li", lined(styles[label]), label) for label in shown.legend]
    legend = tag("ul", *names, class_="legend") if names else Html("")
    plots = tag("div", *(_plot(panel.svg, panel.alt) for panel in shown.panels), class_="plots")
    inside = tag("figure", legend, plots, tag("figcaption", shown.caption))
    width = "half" if len(shown.panels) == 1 else "wide"
    return tag("section", tag("h3", shown.title, id=f"{shown.name}{mark}"), inside, class_=width)


def _plot(svg: str, alt: str) -> Html:
    opening = tag("svg", class_="plot", role="img", aria_label=alt).removesuffix("></svg>")
    return Html(opening + svg.removeprefix("<svg"))


def more_numbers(group: Group, styles: Mapping[str, Style]) -> list[Html]:
    """A table of probes that come to one number, if there are any."""
    found = numbers_of(group)
    if not found:
        return []
    titles = list(next(iter(found.values())))
    body = [(named(label, styles), *cells.values()) for label, cells in found.items()]
    said = [NUMBERS[title] for title in titles if title in NUMBERS]
    numbers = tag("div", table(("Encoding", *titles), body, label="Probes in single numbers"), class_="results")
    return [tag("section", tag("h3", "In single numbers"), numbers, tag("p", " ".join(said), class_="note"), class_="half")]


def reproduce(rows: Sequence[Row]) -> Html:
    """For each encoding the lines that train it again, and its settings."""
    return joined(details(f"{row.label}, {_named(row)}", *_again(row)) for row in rows)


def _named(row: Row) -> str:
    numbers = [str(seed) for seed in row.runs]
    return f"{'seed' if len(numbers) == 1 else 'seeds'} {listed(numbers)}"


def _again(row: Row) -> list[Html]:
    config = next(iter(row.runs.values())).run.config
    settings = {name: value for name, value in config.document().items() if name not in ELSEWHERE}
    lines = again([found.run.config for found in row.runs.values()])
    folders = listed([found.run.path.name for found in row.runs.values()])
    said = tag("p", "Folders: ", folders, ". ", paper(config.encoding), class_="note")
    return [said, tag("pre", "\n".join(lines)), tag("pre", json.dumps(settings, indent=1, ensure_ascii=False))]


def paper(encoding: str) -> Html:
    """A link to where an encoding comes from."""
    source = str(factory.find(encoding).paper)
    address = source.replace("arXiv:", "https://arxiv.org/abs/") if source.startswith("arXiv:") else source
    link = tag("a", source, href=address, rel="noreferrer") if address.startswith("https://") else source
    return joined(["Source: ", link, "."])
