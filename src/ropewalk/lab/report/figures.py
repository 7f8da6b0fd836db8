"""The figures of a group, each with a caption and its words for those who do not see it; or why one is not there."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ropewalk.lab.intervals import Estimate
from ropewalk.lab.metric import Metric
from ropewalk.lab.report import drawing, panels, series
from ropewalk.lab.report.gather import Group
from ropewalk.lab.report.panels import Styles, short
from ropewalk.lab.report.rows import Row
from ropewalk.lab.report.words import apart, told

INTERVALS = "Marks are means over seeds; bars are 95 % intervals from the variance of all encodings together, one at a time."
TIMED = {
    "inference_ratio": "Batches went in turn through the model and through the same without an encoding, on the machine of "
    "the probe: the fastest round of each counts, and the median over seeds. How far a model without an encoding is from 1 "
    "tells how busy the machine was with other things.",
    "per_second": "Times are medians over seeds, on the machine of the probe.",
    "seconds": "Times are medians over seeds of what training took, without validation, on the machine of the run.",
}
"""How costs were measured."""
ALONE = "There is one seed of each, so that there are no intervals."


def bars(estimates: Iterable[Estimate | None]) -> str:
    """What the bars of a figure are, if it has any."""
    return INTERVALS if any(each is not None and each.half is not None for each in estimates) else ALONE


class Panel(NamedTuple):
    """One picture: its name, what it shows in words, and its two forms."""

    name: str
    alt: str
    svg: str
    png: bytes


class Shown(NamedTuple):
    """A figure: pictures with one title, one caption and one legend, which may be empty."""

    name: str
    title: str
    caption: str
    panels: list[Panel]
    legend: list[str]


class Sources(NamedTuple):
    """What figures are made from; `mark` tells the files of one group from those of another."""

    group: Group
    rows: list[Row]
    styles: Styles
    baseline: str
    mark: str

    @property
    def done(self) -> list[Row]:
        """Rows with a result."""
        return [row for row in self.rows if row.score]

    def panel(
        self, name: str, alt: str, legend: Sequence[str], draw: Callable[..., Figure], *given: Any, **options: Any
    ) -> Panel:
        """Draw."""
        name = f"{name}{self.mark}"
        with drawing.plainly(name):
            figure = draw(*given, **options)
            return Panel(name, alt, drawing.svg(figure), drawing.png(figure, self.styles, legend))


def accuracy(of: Sources) -> Shown | str:
    """Means with intervals, and differences to the baseline."""
    if not of.done:
        return "No run is done: there is no accuracy to draw."
    metric = of.group.metric
    alt = f"Test {metric.name}: " + "; ".join(f"{row.label} {told(row.score, metric)}" for row in of.done)
    shown = [of.panel("accuracy", alt, [], panels.dots, of.done, of.styles, f"Test {metric.title}")]
    caption = f"{bars(row.score for row in of.done)} Small ticks are single seeds."
    if compared := [row for row in of.done if row.difference]:
        points = metric.points.capitalize()
        said = "; ".join(f"{row.label} {apart(row.difference, metric)}" for row in compared)
        alt, title = f"{points} above {of.baseline}: {said}", f"{points} above {short(of.baseline)}, seed by seed"
        shown.append(of.panel("difference", alt, [], panels.dots, compared, of.styles, title, against=of.baseline))
        if any(row.difference and row.difference.half is not None for row in compared):
            several = ", all of them at once" if len(compared) > 1 else ""
            caption += (
                f" Bars of differences are 95 % intervals{several}: where one crosses the dashed line, the encoding is not "
                f"told apart from {of.baseline}."
            )
    return Shown("accuracy", metric.heading, caption, shown, [])


def learning(of: Sources) -> Shown | str:
    """Loss in training and accuracy in validation over the epochs."""
    labels = [label for label, seeds in of.group.found.items() if any(found.metrics for found in seeds.values())]
    if not labels or of.group.logged.isdisjoint(("loss", f"validation_{of.group.metric.key}")):
        return "No run has metrics: there are no learning curves."
    metric, logged = of.group.metric, of.group.logged
    shown, said = list[Panel](), list[str]()
    if "loss" in logged:
        shown.append(_curves(of, labels, "loss", "Training loss", None))
        said.append("the mean loss of the steps of each")
    if f"validation_{metric.key}" in logged:
        shown.append(_curves(of, labels, f"validation_{metric.key}", f"Validation {metric.title}", metric))
        said.append(f"the {metric.name} on {'images that are' if metric.higher else 'text that is'} not trained on")
    seeds = "Thick lines are means over the seeds that are done; thin lines are single seeds."
    return Shown("learning", "Learning curves", f"Over the epochs, {', and '.join(said)}. {seeds}", shown, labels)


def _curves(of: Sources, labels: Sequence[str], name: str, title: str, metric: Metric | None) -> Panel:
    """One thing that was measured over the epochs."""
    lines = {label: series.mean_curve(list(of.group.found[label].values()), name) for label in labels}
    last = {label: list(line.values())[-1] for label, line in lines.items() if line}
    said = "; ".join(f"{label} {_number(value, metric)}" for label, value in last.items())
    alt = f"{title.removesuffix(', %')} over epochs, at the end: {said or 'no run is done'}"
    file = f"learning-{name.replace('_', '-')}"
    return of.panel(file, alt, labels, panels.learning, of.group, of.styles, name, title, metric=metric)


def _number(value: float, metric: Metric | None) -> str:
    return f"{value:.3g}" if metric is None else f"{metric.number(value)} {metric.unit}".rstrip()


def cost(of: Sources) -> Shown | str:
    """Accuracy against inference beside the model without an encoding; or against training, where that was not measured."""
    metric = of.group.metric
    words = {
        "inference_ratio": "time of inference, × that without an encoding",
        "per_second": f"{metric.things} per second in inference",
        "seconds": "seconds of training",
    }
    for what, xlabel in words.items():
        if there := [row for row in of.done if getattr(row, what) is not None]:
            said = "; ".join(f"{row.label} {told(row.score, metric)} at {getattr(row, what):,.3g}" for row in there)
            alt, legend = f"Test {metric.name} against {xlabel}: {said}", [row.label for row in there]
            options = {"what": what, "xlabel": xlabel}
            made = of.panel("cost", alt, legend, panels.costs, there, of.styles, f"Test {metric.title}", **options)
            side = "right" if what == "per_second" else "left"
            caption = f"The {'upper' if metric.higher else 'lower'} {side} is better. {TIMED[what]}"
            return Shown("cost", f"Cost against {metric.name}", caption, [made], legend)
    return "No run that is done says what it cost."
