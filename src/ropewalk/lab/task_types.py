"""What models are trained for: each task with its metric, the settings it has a use for, and the figures of its report.

    find_task(config).metric.key          # also of settings that were read from a file
    TASK_TYPES["detect"].implementation   # the class that trains it, imported when a run is opened

This module imports no torch. A task is an entry of `TASK_TYPES` and a file in `ropewalk.lab.tasks`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.validation import check_choice


@dataclass(frozen=True)
class RunMetric:
    """A number of each run.

    key        Its name in results and metrics, after that of the part of the data: test_accuracy.
    name       In words, with the unit of a single value, and `points` the unit of differences.
    scale      Factor for printing, with so many digits.
    higher     Whether higher is better.
    things     What throughput is counted in: images_per_second.
    secondary  Other numbers of the result, fractions of 1, that tables show beside it: names in results, and titles.
    """

    key: str
    name: str
    unit: str
    points: str
    scale: float
    digits: int
    higher: bool
    things: str
    secondary: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """Title of an axis or a column."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def capitalized_name(self) -> str:
        """The name at the beginning of a sentence."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def throughput_key(self) -> str:
        """Column of the throughput in the rows of the probe `cost`."""
        return f"{self.things}_per_second"

    @property
    def most(self) -> str:
        """The word for the best of several."""
        return "highest" if self.higher else "lowest"

    def rank(self, mean: float) -> float:
        """Sort key: lower is better."""
        return -mean if self.higher else mean

    def number(self, value: float, half: float | None = None, *, sign: str = "", more: int = 0) -> str:
        """Format a value, with the half-width of its interval if there is one."""
        digits = self.digits + more
        end = "" if half is None else f" ± {self.scale * half:.{digits}f}"
        return f"{self.scale * value:{sign}.{digits}f}{end}"

    def format_score(self, split: str, result: Mapping[str, Any]) -> str:
        """Format the metric of a result on a split."""
        value = self.number(result[f"{split}_{self.key}"])
        return f"{split} {self.name} {value} {self.unit}".rstrip()


@dataclass(frozen=True, kw_only=True)
class TaskType:
    """What a model is trained for.

    name             On the command line and in settings.
    summary          What the model predicts.
    metric           What runs are compared by.
    sample           What the model sees at a time: "image" or "text".
    features         Groups of settings that it has a use for: the `needs` of settings in `ropewalk.lab.config`.
    figures          Names of the figures that a report shows, in their order.
    implementation   module:Class that opens the data, builds the model and trains it: a `ropewalk.lab.tasks.base.Task`.
    implied_by       A setting that selects the task where none is named.
    picture_caption  How to read the pictures of its predictions.
    """

    name: str
    summary: str
    metric: RunMetric
    sample: str
    features: frozenset[str]
    figures: tuple[str, ...]
    implementation: str
    implied_by: str | None = None
    picture_caption: str = ""


_AP_TITLES = (("50", "AP50"), ("75", "AP75"), ("_small", "AP small"), ("_medium", "AP medium"), ("_large", "AP large"))


def _make_precision_metric(key: str, name: str, *more: tuple[str, str]) -> RunMetric:
    secondary = (*((f"test_{key}{end}", title) for end, title in _AP_TITLES), *more)
    return RunMetric(key, name, "%", "points", 100.0, 1, higher=True, things="images", secondary=secondary)


_IMAGE_FEATURES = frozenset({"images"})
_TRAINING_FIGURES = ("accuracy", "learning")
_BOXES_CAPTION = (
    "Dashed boxes are the ground truth; orange ones were predicted with a score of at least 0.5, which stands above them."
)

# A task comes after those whose metrics its results have too: masks have box AP, text has accuracy.
TASK_TYPES: dict[str, TaskType] = {
    each.name: each
    for each in (
        TaskType(
            name="classify",
            summary="The class of an image, a volume or a clip.",
            metric=RunMetric("accuracy", "accuracy", "%", "points", 100.0, 1, higher=True, things="images"),
            sample="image",
            features=_IMAGE_FEATURES
            | {"timm models", "soft targets", "label smoothing", "augmentation options", "position augmentation"},
            figures=(
                *_TRAINING_FIGURES, "resolution", "offset", "translation", "frequencies", "attention", "cost",
            ),
            implementation="ropewalk.lab.tasks.classify:ClassificationTask",
        ),
        TaskType(
            name="detect",
            summary="Boxes around objects, with their classes.",
            metric=_make_precision_metric("box_ap", "box AP"),
            sample="image",
            features=_IMAGE_FEATURES,
            figures=(*_TRAINING_FIGURES, "predictions", "cost"),
            implementation="ropewalk.lab.tasks.detect:DetectionTask",
            picture_caption=_BOXES_CAPTION,
        ),
        TaskType(
            name="masks",
            summary="Boxes around objects, and their segmentation masks.",
            metric=_make_precision_metric("mask_ap", "mask AP", ("test_box_ap", "box AP")),
            sample="image",
            features=_IMAGE_FEATURES,
            figures=(*_TRAINING_FIGURES, "predictions", "cost"),
            implementation="ropewalk.lab.tasks.detect:DetectionTask",
            picture_caption=_BOXES_CAPTION,
        ),
        TaskType(
            name="segment",
            summary="The class of each pixel.",
            metric=RunMetric(
                "iou", "mean IoU", "%", "points", 100.0, 1, higher=True, things="images",
                secondary=(("test_pixel_accuracy", "Test pixel accuracy"),),
            ),
            sample="image",
            features=_IMAGE_FEATURES
            | {"segmentation head", "label smoothing", "augmentation options", "position augmentation"},
            figures=(*_TRAINING_FIGURES, "predictions", "cost"),
            implementation="ropewalk.lab.tasks.segment:SegmentationTask",
            picture_caption="Beside each image are the ground truth and the prediction. Grey pixels are not evaluated.",
        ),
        TaskType(
            name="text",
            summary="The next byte of a text.",
            metric=RunMetric("bits", "bits per byte", "", "bits per byte", 1.0, 3, higher=False, things="bytes"),
            sample="text",
            features=frozenset({"text"}),
            figures=(*_TRAINING_FIGURES, "positions", "extensions", "passkey", "cost"),
            implementation="ropewalk.lab.tasks.text:TextTask",
            implied_by="length",
        ),
    )
}  # fmt: skip
DEFAULT_TASK = "classify"


def find_task(settings: Any) -> TaskType:
    """The task of a run, from its `Config` or from its settings by name."""
    get = settings.get if isinstance(settings, Mapping) else lambda name: getattr(settings, name, None)
    named = get("task")
    if named is not None:
        return TASK_TYPES[check_choice("task", named, TASK_TYPES)]
    implied = (each for each in TASK_TYPES.values() if each.implied_by and get(each.implied_by) is not None)
    return next(implied, TASK_TYPES[DEFAULT_TASK])


TOP1_ACCURACY, BOX_AP, MASK_AP, MEAN_IOU, BITS_PER_BYTE = (
    TASK_TYPES[name].metric for name in ("classify", "detect", "masks", "segment", "text")
)


def select_metric(settings: Mapping[str, Any]) -> RunMetric:
    """The metric that runs with these settings are compared by."""
    return find_task(settings).metric


def find_recorded_metric(record: Mapping[str, Any], split: str) -> RunMetric | None:
    """The metric that a record has for a part of the data, if any; its own where it also has those of other tasks."""
    metrics = [each.metric for each in reversed(TASK_TYPES.values())]
    return next((metric for metric in metrics if f"{split}_{metric.key}" in record), None)
