"""What a run costs: throughput, memory and parameters of inference, and the steps of training until it was good.

The model and the same model without an encoding are timed in alternating rounds, so that a busy machine slows both, and the
fastest round of each counts. Times depend on the machine that the probe runs on: compare runs of one machine, by the ratio.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.lab.bench.timing import time_interleaved_rounds
from ropewalk.lab.probes.probe import Probe, ProbeRows
from ropewalk.lab.task_types import find_task
from ropewalk.lab.tasks import load_task
from ropewalk.lab.tasks.base import TrainedRun

TIMING_ROUNDS = 9
CPU_BATCH_LIMIT = 64
"""Largest batch on a CPU."""
CONVERGENCE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Levels of the metric."""
PRECISION_METRICS = ("box_ap", "mask_ap")
"""Average precisions stay far below 1: their levels are shares of the last validation."""
CONVERGENCE_SHARES = (0.5, 0.8, 0.9)


def probe_cost(opened: TrainedRun) -> ProbeRows:
    """Images or bytes of text per second through the model, and `without_encoding`; peak_bytes is None on a CPU."""
    config = opened.config
    count = config.batch if opened.device.type == "cuda" else min(config.batch, CPU_BATCH_LIMIT)
    own, bare = (opened.select_timed_part(model) for model in (opened.model, build_bare_model(opened)))
    things = find_task(config).metric.things
    yield measure_model_cost(own, bare, opened.make_blank_inputs(count), config.precision, things) | {"batch": count}


def measure_model_cost(own: nn.Module, bare: nn.Module, given: Tensor, precision: str, things: str) -> dict[str, Any]:
    """The cost of a model, and the throughput of the same model without an encoding; text is counted in bytes."""
    device, many = given.device, given.numel() if things == "bytes" else len(given)
    works = [partial(_forward, model, given, precision) for model in (own, bare)]
    mine, plain = (
        1e3 * many / min(each) for each in time_interleaved_rounds(*works, rounds=TIMING_ROUNDS, warm=2, where=device.type)
    )
    encoding: Any = own.encoding
    return {
        f"{things}_per_second": mine,
        "without_encoding": plain,
        "peak_bytes": _measure_peak_memory(works[0], device),
        "parameters": _count_parameters(own),
        "encoding_parameters": _count_parameters(encoding),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def build_bare_model(opened: TrainedRun) -> nn.Module:
    """The same model without an encoding."""
    config = replace(opened.config, encoding="none", options={}, span=None, start=None)
    with torch.random.fork_rng(devices=[]):
        model = load_task(config).build_from_facts(config, opened.model_facts)
    return model.eval().to(opened.device)


@torch.no_grad()
def _forward(model: nn.Module, given: Tensor, precision: str) -> None:
    with torch.autocast(given.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        model(given)


def _measure_peak_memory(work: partial[None], device: torch.device) -> int | None:
    """Largest number of bytes in use during a call, including the model."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def _count_parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def probe_convergence(opened: TrainedRun) -> ProbeRows:
    """The step of the first validation at or above each level; None if there was none."""
    metric = find_task(opened.config).metric.key
    name = f"validation_{metric}"
    seen = [(record["step"], record[name]) for record in opened.run.metrics() if record.get(name) is not None]
    if metric not in PRECISION_METRICS:
        for level in CONVERGENCE_LEVELS:
            yield {metric: level, "step": next((step for step, value in seen if value >= level), None)}
        return
    for share in CONVERGENCE_SHARES if seen else ():
        level = share * seen[-1][1]
        yield {"share": share, "value": level, "step": next(step for step, value in seen if value >= level)}


COST = Probe(
    name="cost", summary="Throughput of inference, with and without the encoding, memory and parameters.", measure=probe_cost
)
CONVERGENCE = Probe(
    name="reached",
    summary="Steps of training until the validation metric reached each of several levels.",
    measure=probe_convergence,
    tasks=("classify", "detect", "masks", "segment"),
)
