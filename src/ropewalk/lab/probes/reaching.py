"""How soon training was how good."""

from ropewalk.lab.probes.opening import Opened, Rows

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Of accuracy."""


def reached(opened: Opened) -> Rows:
    """The step of the first validation at or above each level; None where there was none."""
    seen = [record for record in opened.run.metrics() if record.get("validation_accuracy") is not None]
    for level in LEVELS:
        steps = (record["step"] for record in seen if record["validation_accuracy"] >= level)
        yield {"accuracy": level, "step": next(steps, None)}
