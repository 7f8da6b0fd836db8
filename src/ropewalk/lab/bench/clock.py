"""Medians of times in milliseconds, on CUDA by events, elsewhere by the clock."""

import statistics
import time
from collections.abc import Callable

import torch

Work = Callable[[], object]


def replayed(work: Work, *, rounds: int = 15, inner: int = 5) -> float:
    """One call of `work` as the device sees it: captured in a CUDA graph, so that no launch is waited for."""
    if not torch.cuda.is_available():
        return called(work, rounds=rounds)
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
    return called(graph.replay, rounds=rounds) / inner


def called(work: Work, *, rounds: int = 15, warm: int = 3) -> float:
    """One call of `work` from Python, what it launches included."""
    for _ in range(warm):
        work()
    return statistics.median(_once(work) for _ in range(rounds))


def in_turn(*works: Work, rounds: int = 15, warm: int = 3) -> list[float]:
    """The medians of several, which take turns."""
    for work in works * warm:
        work()
    times = [[_once(work) for work in works] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def _once(work: Work) -> float:
    if not torch.cuda.is_available():
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    work()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last)


def device() -> str:
    """Where to measure."""
    return "cuda" if torch.cuda.is_available() else "cpu"
