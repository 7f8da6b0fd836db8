"""Medians of times in milliseconds, on CUDA by events, elsewhere by the clock; and peaks of memory."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Work = Callable[[], object]

LONG = 5  # milliseconds, beyond which one call is as good as several in a row


def device() -> str:
    """Where to measure."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def replayed(work: Work, *, rounds: int = 15, inner: int = 20) -> float:
    """One call of `work` as the device sees it: captured in a CUDA graph, so that no launch is waited for."""
    if device() != "cuda":
        return called(work, rounds=rounds)
    return called(captured(work, inner=inner), rounds=rounds) / inner


def captured(work: Work, *, inner: int = 1) -> Work:
    """So many calls of `work` as one CUDA graph."""
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


def replayed_back(
    forward: Callable[[], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    rounds: int = 15,
    inner: int = 20,
) -> float:
    """The way back from what `forward` returns to the inputs, as the device sees it.

    Autograd goes back on the stream on which it came, so that the way there is captured too, in a graph of its own. No other
    graph of autograd may lead to the inputs meanwhile: it would tie them to its stream, which is not captured.
    """
    if device() != "cuda":
        return called(back(forward, inputs, gradients), rounds=rounds)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        back(forward, inputs, gradients)()
    torch.cuda.current_stream().wait_stream(side)
    there, again = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(there):
        outs = forward()
    with torch.cuda.graph(again, pool=there.pool()):
        for _ in range(inner):
            torch.autograd.grad(outs, inputs, gradients, retain_graph=True)
    there.replay()
    return called(again.replay, rounds=rounds) / inner


def back(forward: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> Work:
    """The way back as work that can be done again and again, the way there having been gone once."""
    outs = forward()
    return lambda: torch.autograd.grad(outs, inputs, gradients, retain_graph=True)


def called(work: Work, *, rounds: int = 15, warm: int = 3) -> float:
    """One call of `work` from Python until it is done, what it launches included."""
    return in_turn(work, rounds=rounds, warm=warm)[0]


def dispatched(work: Work, *, rounds: int = 15, inner: int = 10) -> float:
    """How long a call of `work` keeps Python busy, whatever it leaves for the device to do."""
    for _ in range(3):
        work()
    inner = max(1, min(inner, int(LONG / _by_clock(work, 1))))
    return statistics.median(_by_clock(work, inner) for _ in range(rounds))


def in_turn(*works: Work, rounds: int = 15, warm: int = 3, inner: int = 1, where: str | None = None) -> list[float]:
    """The medians of several, each of `inner` calls in a row."""
    return [
        statistics.median(column) for column in rounds_in_turn(*works, rounds=rounds, warm=warm, inner=inner, where=where)
    ]


def rounds_in_turn(
    *works: Work, rounds: int = 15, warm: int = 3, inner: int = 1, where: str | None = None
) -> list[list[float]]:
    """The times of several in each round. They take turns, forth and back, so that a busy machine is busy for all."""
    once = _by_events if (where or device()) == "cuda" else _by_clock
    for work in works * warm:
        work()
    times: list[list[float]] = [[] for _ in works]
    for turn in range(rounds):
        for i in range(len(works))[:: 1 - 2 * (turn % 2)]:
            times[i].append(once(works[i], inner))
    return times


def _by_clock(work: Work, inner: int) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(inner):
        work()
    return (time.perf_counter() - start) * 1e3 / inner


def _by_events(work: Work, inner: int) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    for _ in range(inner):
        work()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / inner


def resident() -> int:
    """Bytes of the device that are in use; of a CPU nothing is known."""
    return torch.cuda.memory_allocated() if device() == "cuda" else 0


def peak(work: Work, *, above: int, warm: int = 3) -> float | None:
    """The most memory in use during one call, in gigabytes above so many bytes, once all is compiled; None on a CPU."""
    for _ in range(warm):
        work()
    if device() != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - above) / 1e9
