"""The suite `cpu`: rotation of q and k in eager PyTorch and one thread, ours and other libraries' interleaved in one run."""

import contextlib
import functools
from collections.abc import Iterator

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.lab.bench.correctness import check_output_error, compute_expected_output, rotate_channel_pairs
from ropewalk.lab.bench.peers import RotateFunction, RotationPeer, list_installed_peers
from ropewalk.lab.bench.timing import BenchJob, BenchRow, TimedWork, time_interleaved

CPU_SHAPES = {"4 x 1024 tokens": (4, 8, 1024, 64), "8 x 196 tokens": (8, 6, 196, 64), "1 token": (1, 8, 1, 64)}
CPU_DTYPES = (torch.float32, torch.bfloat16)
CPU_ROUNDS, CPU_INNER_CALLS = 30, 50
SMALL_QUERY_SIZE = 100_000  # numbers in q, below which INNER calls are timed in a row


def _make_own(angle: Tensor, dtype: torch.dtype, *, interleaved: bool) -> RotateFunction:
    return rw.Rotation(head_dim=2 * angle.shape[-1], q_angle=angle[None], interleaved=interleaved).qk


OWN_ROTATIONS = {
    f"ropewalk, {layout}": RotationPeer(layout, functools.partial(_make_own, interleaved=interleaved), interleaved)
    for layout, interleaved in (("interleaved", True), ("half-split", False))
}


class CpuRace:
    """All contenders at one shape and dtype, measured together when the first of them is asked for."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.peers = {peer.name: peer for peer in list_installed_peers("cpu") if peer.eager}
        self.faults: dict[str, Exception] = {}

    def figures(self, name: str) -> BenchRow:
        """Of one contender; ours beside the fastest of the others whose pairs lie alike."""
        found = self.outcome
        if name in self.faults:
            raise self.faults[name]
        if name not in OWN_ROTATIONS:
            return found[name]
        like = [found[other]["ms"] for other, peer in self.peers.items() if other in found and self._alike(name, peer)]
        return found[name] | ({"over fastest peer": found[name]["ms"] / min(like)} if like else {})

    def _alike(self, name: str, peer: RotationPeer) -> bool:
        return OWN_ROTATIONS[name].interleaved == peer.interleaved

    @functools.cached_property
    def outcome(self) -> dict[str, BenchRow]:
        """The time and error of each that has no fault."""
        torch.manual_seed(0)
        q, k = torch.randn(2, *self.shape).to(self.dtype).unbind()
        angle = 10 * torch.randn(self.shape[-2], self.shape[-1] // 2)
        with use_one_thread(), torch.no_grad():
            ready = {name: self._ready(name, peer, q, k, angle) for name, peer in (OWN_ROTATIONS | self.peers).items()}
            works = {name: both[0] for name, both in ready.items() if both is not None}
            inner = CPU_INNER_CALLS if q.numel() < SMALL_QUERY_SIZE else 1
            times = time_interleaved(*works.values(), rounds=CPU_ROUNDS, inner=inner, where="cpu")
        errors = [both[1] for both in ready.values() if both is not None]
        return {name: {"ms": ms, "error": error} for name, ms, error in zip(works, times, errors, strict=True)}

    def _ready(self, name: str, peer: RotationPeer, q: Tensor, k: Tensor, angle: Tensor) -> tuple[TimedWork, float] | None:
        """What is to be timed and its error; nothing, but a fault, where that fails."""
        try:
            turn, formula = (
                peer.make(angle, self.dtype),
                functools.partial(rotate_channel_pairs, interleaved=peer.interleaved),
            )
            error = check_output_error(turn(q, k), compute_expected_output(formula, (q, k), angle[None]), self.dtype)
        except Exception as fault:
            self.faults[name] = fault
            return None
        return functools.partial(turn, q, k), error


@contextlib.contextmanager
def use_one_thread() -> Iterator[None]:
    """A context in which PyTorch computes in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def get_cpu_settings() -> BenchRow:
    """What all rows have in common."""
    return {
        "threads": 1,
        "rounds": CPU_ROUNDS,
        "mode": "eager, no gradients, tables made beforehand",
        "heads": "8 or 6 of 64",
    }


def list_cpu_jobs() -> list[BenchJob]:
    """A job for each shape, dtype and contender."""
    found = []
    for label, shape in CPU_SHAPES.items():
        for dtype in CPU_DTYPES:
            race = CpuRace(shape, dtype)
            words = f"{label}, {str(dtype).removeprefix('torch.')}"
            for name in OWN_ROTATIONS | race.peers:
                found.append(BenchJob({"suite": "cpu", "shape": words, "name": name}, functools.partial(race.figures, name)))
    return found
