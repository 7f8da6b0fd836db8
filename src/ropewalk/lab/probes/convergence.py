"""How soon training was how good."""

from ropewalk.lab.metrics import select_metric
from ropewalk.lab.probes.open_run import DetectionRun, ImageRun, ProbeRows

CONVERGENCE_SHARES = (0.5, 0.8, 0.9)
"""Of what a run came to in its last validation."""


def probe_detection_convergence(subject: DetectionRun) -> ProbeRows:
    """The step of the first validation at or above shares of the last one, and how good that is."""
    name = f"validation_{select_metric(subject.config.document()).key}"
    seen = [(record["step"], record[name]) for record in subject.run.metrics() if record.get(name) is not None]
    for share in CONVERGENCE_SHARES if seen else ():
        level = share * seen[-1][1]
        yield {"share": share, "value": level, "step": next(step for step, value in seen if value >= level)}


CONVERGENCE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Of accuracy, or of whatever the run is judged by."""


def probe_convergence(opened: ImageRun) -> ProbeRows:
    """The step of the first validation at or above each level; None where there was none."""
    key = select_metric(opened.config.document()).key
    seen = [record for record in opened.run.metrics() if record.get(f"validation_{key}") is not None]
    for level in CONVERGENCE_LEVELS:
        steps = (record["step"] for record in seen if record[f"validation_{key}"] >= level)
        yield {key: level, "step": next(steps, None)}
