"""A ViT-S with each encoding, beside the same model with none: training step, inference, memory.

Same residual stream (bfloat16 by autocast), same tokens, same images; the model and the one with none take turns. Captured
is the same work in a CUDA graph: what the device does, where it may wait for Python to launch it otherwise.
"""

import contextlib
import functools
import statistics
from collections.abc import Collection, Iterator
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.bench.clock import Work, captured, device, peak, resident, rounds_in_turn
from ropewalk.lab.bench.contenders import Make, Setting, contenders
from ropewalk.lab.bench.job import Job, Refused, Row, select

MODES = ("eager", "captured", "compiled", "compiled and captured")
# Dynamo counts the graphs of all contenders as recompilations of one forward pass, and beyond 8 runs it eagerly.
GRAPHS = 10_000

LARGE = Setting()
TINY: dict[str, Any] = {"width": 128, "depth": 2, "heads": 2, "size": (24, 40), "patch": 8, "batch": 2, "classes": 10}
SMALL = Setting(**TINY, rounds=3, inner=1, backend="eager")  # graphs are captured, but compiling each takes ten seconds


class Contender:
    """A model, and what it does: a training step, and inference. Compiled, it is one graph or an error."""

    def __init__(self, setting: Setting, make: Make, mode: str) -> None:
        torch.manual_seed(0)
        before = resident()
        self.model = make(setting).to(device())
        self.images = torch.randn(setting.batch, 3, *setting.size, device=device())
        self.labels = torch.randint(setting.classes, (setting.batch,), device=device())
        capturable = "captured" in mode
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True, capturable=capturable)
        self.stream = self._stream()
        if "compiled" in mode:
            self.model.compile(fullgraph=True, dynamic=False, backend=setting.backend)
        self.memory = peak(self._train, above=before)
        self.train: Work = self._train
        self.infer: Work = self._infer
        if capturable:
            self.train = captured(self._train)
            self.model.eval()
            self.infer = captured(self._infer)

    def _train(self) -> None:
        """One step."""
        with torch.autocast(device(), torch.bfloat16):
            loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _infer(self) -> None:
        """Logits of a batch."""
        with torch.autocast(device(), torch.bfloat16):
            self.model(self.images)

    @torch.no_grad()
    def _stream(self) -> Row:
        """What the last block hands on: of which dtype, and how many tokens."""
        seen: list[Tensor] = []
        hook = self.model.blocks[-1].register_forward_hook(lambda module, given, out: seen.append(out))
        with torch.autocast(device(), torch.bfloat16):
            self.model(self.images[:1])
        hook.remove()
        return {"residual": str(seen[0].dtype).removeprefix("torch."), "tokens": seen[0].shape[1]}


class Field:
    """All contenders of one mode; the model with no encoding is made when the first of them is measured."""

    def __init__(self, setting: Setting, mode: str) -> None:
        self.setting, self.mode = setting, mode

    @functools.cached_property
    def base(self) -> Contender:
        """The model with no encoding."""
        return Contender(self.setting, contenders()["none"], self.mode)

    def measure(self, make: Make) -> Row:
        """A contender beside the base."""
        with every_graph() if "compiled" in self.mode else contextlib.nullcontext():
            return self._beside(self.base, Contender(self.setting, make, self.mode))

    def _beside(self, base: Contender, other: Contender) -> Row:
        """Medians, and ratios to the base, the two taking turns."""
        if other.stream != base.stream:
            raise Refused(f"its blocks hand on {other.stream}, those of the model with no encoding {base.stream}")
        row: Row = {"parameters": sum(weight.numel() for weight in other.model.encoding.parameters()), **other.stream}
        for name, training in (("train", True), ("infer", False)):
            for contender in (other, base):
                contender.model.train(training)
            works = getattr(other, name), getattr(base, name)
            mine, theirs = rounds_in_turn(*works, rounds=self.setting.rounds, inner=self.setting.inner)
            low, ratio, high = statistics.quantiles([a / b for a, b in zip(mine, theirs, strict=True)], n=4)
            row |= {f"{name} ms": statistics.median(mine), f"{name} ms ratio": ratio, f"{name} spread": (high - low) / 2}
        if other.memory is not None and base.memory is not None:
            row |= {"train GB": other.memory, "train GB ratio": other.memory / base.memory}
        return row


@contextlib.contextmanager
def every_graph() -> Iterator[None]:
    """A context in which whatever is to be compiled is compiled, or else is an error."""
    limits = dict.fromkeys(("recompile_limit", "accumulated_recompile_limit"), GRAPHS)
    with torch._dynamo.config.patch({**limits, "fail_on_recompile_limit_hit": True}):
        yield


def settings() -> Row:
    """What all rows have in common."""
    chosen = LARGE if device() == "cuda" else SMALL
    common = {"autocast": "bfloat16", "optimiser": "AdamW, fused", "pool": "mean, no class token"}
    return asdict(chosen) | common


def jobs() -> list[Job]:
    """A job for each mode and contender. "none" beside itself tells what a ratio is worth."""
    found = []
    for mode in MODES if device() == "cuda" else ("eager", "compiled"):
        field = Field(LARGE if device() == "cuda" else SMALL, mode)
        for name, make in contenders().items():
            labels = {"suite": "steps", "mode": mode, "name": name}
            found.append(Job(labels, functools.partial(field.measure, make), yardstick=name == "none"))
    return found


def rows(names: Collection[str] = (), modes: Collection[str] = MODES) -> Iterator[Row]:
    """The rows of contenders of these names and modes, those of "none" with them."""
    return (job.row() for job in select(jobs(), names, modes))
