"""How soon training was how good."""

from ropewalk.lab.metric import metric_of
from ropewalk.lab.probes.opening import Opened, Rows

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Of accuracy, or of whatever the run is judged by."""


def reached(opened: Opened) -> Rows:
    """The step of the first validation at or above each level; None where there was none."""
    key = metric_of(opened.config.document()).key
    seen = [record for record in opened.run.metrics() if record.get(f"validation_{key}") is not None]
    for level in LEVELS:
        steps = (record["step"] for record in seen if record[f"validation_{key}"] >= level)
        yield {key: level, "step": next(steps, None)}
