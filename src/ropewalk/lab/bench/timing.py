"""Times in milliseconds, peaks of memory, and the rows of a benchmark.

Times are medians: by events on CUDA, by the clock elsewhere. A `BenchJob` is a row that is to be measured; if it fails, the
row has the reason, and the other jobs continue.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ropewalk.lab.console import collapse_whitespace

TimedWork = Callable[[], object]

LONG_CALL_MS = 5  # milliseconds, beyond which one call is as good as several in a row


def get_bench_device() -> str:
    """Where to measure."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def time_graph_replay(work: TimedWork, *, rounds: int = 15, inner: int = 20) -> float:
    """One call of `work` as the device sees it: captured in a CUDA graph, so that no launch is waited for."""
    if get_bench_device() != "cuda":
        return time_calls(work, rounds=rounds)
    return time_calls(capture_graph(work, inner=inner), rounds=rounds) / inner


def capture_graph(work: TimedWork, *, inner: int = 1) -> TimedWork:
    """So many calls of `work` as one CUDA graph."""
    # The first calls initialize libraries and choose kernels, which cannot be captured. They run on a side stream, as CUDA
    # graphs ask for.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            work()
    return graph.replay


def time_backward_replay(
    forward: Callable[[], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    rounds: int = 15,
    inner: int = 20,
) -> float:
    """Device time of the backward pass from what `forward` returns to the inputs.

    Autograd runs the backward pass on the stream of the forward pass, so that the forward pass is captured too, in a graph
    of its own. No other autograd graph may lead to the inputs: it would tie them to its stream, which is not captured.
    """
    if get_bench_device() != "cuda":
        return time_calls(make_backward_work(forward, inputs, gradients), rounds=rounds)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        make_backward_work(forward, inputs, gradients)()
    torch.cuda.current_stream().wait_stream(side)
    there, again = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(there):
        outs = forward()
    # One memory pool for both graphs: the backward pass reads what the captured forward pass stored.
    with torch.cuda.graph(again, pool=there.pool()):
        for _ in range(inner):
            torch.autograd.grad(outs, inputs, gradients, retain_graph=True)
    there.replay()
    return time_calls(again.replay, rounds=rounds) / inner


def make_backward_work(
    forward: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor], gradients: Sequence[Tensor]
) -> TimedWork:
    """The backward pass as work that can be repeated; the forward pass runs once."""
    outs = forward()
    return lambda: torch.autograd.grad(outs, inputs, gradients, retain_graph=True)


def time_calls(work: TimedWork, *, rounds: int = 15, warm: int = 3) -> float:
    """One call of `work` from Python until it is done, what it launches included."""
    return time_interleaved(work, rounds=rounds, warm=warm)[0]


def time_dispatch(work: TimedWork, *, rounds: int = 15, inner: int = 10) -> float:
    """How long a call of `work` keeps Python busy, whatever it leaves for the device to do."""
    for _ in range(3):
        work()
    # Several short calls are timed in a row, because reading the clock takes time. Long ones are not: the launch queue would
    # fill up, and Python would wait for the device.
    inner = max(1, min(inner, int(LONG_CALL_MS / _time_by_clock(work, 1))))
    return statistics.median(_time_by_clock(work, inner) for _ in range(rounds))


def time_interleaved(
    *works: TimedWork, rounds: int = 15, warm: int = 3, inner: int = 1, where: str | None = None
) -> list[float]:
    """The medians of several, each of `inner` calls in a row."""
    return [
        statistics.median(column)
        for column in time_interleaved_rounds(*works, rounds=rounds, warm=warm, inner=inner, where=where)
    ]


def time_interleaved_rounds(
    *works: TimedWork, rounds: int = 15, warm: int = 3, inner: int = 1, where: str | None = None
) -> list[list[float]]:
    """The times of several in each round. They take turns, forth and back, so that a busy machine is busy for all."""
    once = _time_by_events if (where or get_bench_device()) == "cuda" else _time_by_clock
    for work in works * warm:
        work()
    times: list[list[float]] = [[] for _ in works]
    for turn in range(rounds):
        # Every other round goes backwards, so that a clock rate that drifts within a round favors none of them.
        for i in range(len(works))[:: 1 - 2 * (turn % 2)]:
            times[i].append(once(works[i], inner))
    return times


def _time_by_clock(work: TimedWork, inner: int) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(inner):
        work()
    # Not synchronized at the end: `time_dispatch` measures how long Python is busy.
    return (time.perf_counter() - start) * 1e3 / inner


def _time_by_events(work: TimedWork, inner: int) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    for _ in range(inner):
        work()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / inner


def get_allocated_cuda_bytes() -> int:
    """Bytes of tensors allocated on the GPU; 0 without a GPU."""
    return torch.cuda.memory_allocated() if get_bench_device() == "cuda" else 0


def measure_peak_memory(work: TimedWork, *, above: int, warm: int = 3) -> float | None:
    """Peak GPU memory of one call after warm-up, in gigabytes above a number of bytes; None on a CPU."""
    for _ in range(warm):
        work()
    if get_bench_device() != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - above) / 1e9


MAX_REASON_LENGTH = 300  # characters of a reason

BenchRow = dict[str, Any]


class WrongResultError(Exception):
    """What was to be measured gives wrong answers; the message says how wrong."""


@dataclass(frozen=True)
class BenchJob:
    """The labels of a row, and the work that finds its figures. Whatever is large is made by the work.

    A yardstick is what others with the same labels but for the name are measured by.
    """

    labels: dict[str, str]
    measure: Callable[[], BenchRow]
    yardstick: bool = False

    def row(self) -> BenchRow:
        """The labels and the figures, or why there are none."""
        try:
            return {**self.labels, **_check_finite(self.measure())}
        except WrongResultError as refusal:
            return {**self.labels, "refused": collapse_whitespace(refusal)}
        except Exception as error:
            return {**self.labels, "failed": collapse_whitespace(f"{type(error).__name__}: {error}")[:MAX_REASON_LENGTH]}
        finally:
            # What this row allocated must not count towards the peak memory of the next.
            if torch.cuda.is_available():
                gc.collect()
                torch.cuda.empty_cache()

    def matches_names(self, names: Collection[str]) -> bool:
        """Whether one of the names is its own, or what stands in it before the first comma; no names mean all."""
        name = self.labels["name"]
        return not names or name in names or name.partition(",")[0] in names

    def matches_modes(self, modes: Collection[str]) -> bool:
        """Whether it has one of the modes, or none at all."""
        return "mode" not in self.labels or self.labels["mode"] in modes

    @property
    def group(self) -> dict[str, str]:
        """All its labels but the name."""
        return self.labels | {"name": ""}


def _check_finite(row: BenchRow) -> BenchRow:
    for key, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ArithmeticError(f"{key} is {value}")
    return row


def select_bench_jobs(jobs: Sequence[BenchJob], names: Collection[str], modes: Collection[str]) -> list[BenchJob]:
    """Those of these names and modes, and their yardsticks."""
    named = [job.group for job in jobs if job.matches_names(names)]
    chosen = [job for job in jobs if job.matches_names(names) or (job.yardstick and job.group in named)]
    return [job for job in chosen if job.matches_modes(modes)]
