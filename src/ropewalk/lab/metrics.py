"""What runs are compared by: the metric of their task."""

from collections.abc import Mapping
from typing import Any

from ropewalk.lab.task_types import TASK_TYPES, find_task
from ropewalk.lab.task_types import RunMetric as RunMetric

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
