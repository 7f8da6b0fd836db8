"""What runs are judged by: accuracy on images, precision of boxes or masks, overlap of maps, bits per byte of text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunMetric:
    """A number of each run.

    key     Its name in results and metrics, after that of the part of the data: test_accuracy.
    name    In words, with the unit where one number stands behind it, and `points` the unit of differences.
    scale   What it is multiplied by to be read, with so many digits.
    higher  Whether a higher one is better.
    things  What costs are counted in, by the second.
    """

    key: str
    name: str
    unit: str
    points: str
    scale: float
    digits: int
    higher: bool
    things: str

    @property
    def title(self) -> str:
        """Of an axis or a column."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def capitalized_name(self) -> str:
        """The name where a sentence begins."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def throughput_key(self) -> str:
        """The name of what costs are told by."""
        return f"{self.things}_per_second"

    @property
    def most(self) -> str:
        """Of the best of several."""
        return "highest" if self.higher else "lowest"

    def rank(self, mean: float) -> float:
        """Lower for what is better."""
        return -mean if self.higher else mean

    def number(self, value: float, half: float | None = None, *, sign: str = "", more: int = 0) -> str:
        """A value, with half its interval if there is one, as it is read."""
        digits = self.digits + more
        end = "" if half is None else f" ± {self.scale * half:.{digits}f}"
        return f"{self.scale * value:{sign}.{digits}f}{end}"

    def told(self, split: str, result: Mapping[str, Any]) -> str:
        """What a run came to on a part of the data."""
        value = self.number(result[f"{split}_{self.key}"])
        return f"{split} {self.name} {value} {self.unit}".rstrip()


TOP1_ACCURACY = RunMetric("accuracy", "accuracy", "%", "points", 100.0, 1, higher=True, things="images")
BOX_AP = RunMetric("box_ap", "box AP", "%", "points", 100.0, 1, higher=True, things="images")
MASK_AP = RunMetric("mask_ap", "mask AP", "%", "points", 100.0, 1, higher=True, things="images")
MEAN_IOU = RunMetric("iou", "mean IoU", "%", "points", 100.0, 1, higher=True, things="images")
TASK_METRICS = {None: TOP1_ACCURACY, "detect": BOX_AP, "masks": MASK_AP, "segment": MEAN_IOU}
BITS_PER_BYTE = RunMetric("bits", "bits per byte", "", "bits per byte", 1.0, 3, higher=False, things="bytes")


def select_metric(settings: Mapping[str, Any]) -> RunMetric:
    """What a run with these settings is judged by."""
    return TASK_METRICS[settings.get("task")] if settings.get("length") is None else BITS_PER_BYTE


def find_recorded_metric(record: Mapping[str, Any], split: str) -> RunMetric | None:
    """What a record was judged by on a part of the data, if it was: masks have boxes too, and text accuracies."""
    return next(
        (
            metric
            for metric in (BITS_PER_BYTE, MASK_AP, BOX_AP, MEAN_IOU, TOP1_ACCURACY)
            if f"{split}_{metric.key}" in record
        ),
        None,
    )
