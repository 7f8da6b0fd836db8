"""The suite `steps`: training steps, inference and memory of a ViT-S with each encoding, beside the same model with none.

The contenders are our encodings in all their forms, and timm's if it is installed. All have the same residual stream
(bfloat16 by autocast), tokens and images; each is interleaved with the model without an encoding. "captured" is the same
work in a CUDA graph: the time of the device, which otherwise may wait for Python to launch kernels.
"""

import contextlib
import functools
import statistics
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.encoding import Encoding, parameters_of
from ropewalk.encodings import REGISTRY
from ropewalk.factory import find
from ropewalk.lab.bench.peers import TimmFactory, list_timm_factories
from ropewalk.lab.bench.timing import (
    BenchJob,
    BenchRow,
    TimedWork,
    WrongResultError,
    capture_graph,
    get_allocated_cuda_bytes,
    get_bench_device,
    measure_peak_memory,
    select_bench_jobs,
    time_interleaved_rounds,
)
from ropewalk.models import ViT

REPORTED_BLOCK_SIZES = {"liere": (8, 64)}  # sizes that papers report; the default alone of others


@dataclass(frozen=True, kw_only=True)
class StepSetting:
    """The model, the data, and how often each is timed."""

    preset: str = "small"
    size: tuple[int, int] = (224, 224)
    patch: int = 16
    batch: int = 256
    classes: int = 1000
    width: int | None = None
    depth: int | None = None
    heads: int | None = None
    rounds: int = 10
    inner: int = 3
    backend: str = "inductor"


ModelFactory = Callable[[StepSetting], ViT]


def create_bench_vit(setting: StepSetting, encoding: str, **options: Any) -> ViT:
    """The model with one of our encodings."""
    shape = {name: getattr(setting, name) for name in ("size", "patch", "classes", "width", "depth", "heads")}
    return ViT(setting.preset, encoding=encoding, options=options, **shape)


def create_timm_vit(setting: StepSetting, host: TimmFactory) -> ViT:
    """The model with an encoding of someone else."""
    model = create_bench_vit(setting, "none")
    model.encoding = host(model)  # type: ignore[assignment]
    return model


def list_step_contenders(own: Collection[str] = ()) -> dict[str, ModelFactory]:
    """None first, then every encoding that takes two axes, in all its forms, those of `own`, as module:Class, and timm's."""
    kinds = {name: kind for name, kind in REGISTRY.items() if kind.allowed_axes is None or 2 in kind.allowed_axes}
    ordered = [*sorted(kinds, key=lambda name: (name != "none", name)), *own]
    found: dict[str, ModelFactory] = {}
    for encoding in ordered:
        for name, options in _list_forms(encoding, kinds.get(encoding) or find(encoding)).items():
            found[name] = functools.partial(create_bench_vit, encoding=encoding, **options)
    return found | {name: functools.partial(create_timm_vit, host=host) for name, host in list_timm_factories().items()}


def _list_forms(name: str, kind: type[Encoding]) -> dict[str, dict[str, Any]]:
    """The options of each form by name: sizes of blocks; or fixed, and learned where it can be."""
    known = parameters_of(kind)
    if "block" in known:
        return {
            f"{name}, block {block}": {"block": block} for block in REPORTED_BLOCK_SIZES.get(name, (known["block"].default,))
        }
    return {name: {}} | ({f"{name}, learned": {"learned": True}} if "learned" in known else {})


STEP_MODES = ("eager", "captured", "compiled", "compiled and captured")
# Dynamo counts the graphs of all contenders as recompilations of one forward pass, and beyond 8 runs it eagerly.
MAX_COMPILED_GRAPHS = 10_000

LARGE_SETTING = StepSetting()
TINY_SHAPE: dict[str, Any] = {"width": 128, "depth": 2, "heads": 2, "size": (24, 40), "patch": 8, "batch": 2, "classes": 10}
SMALL_SETTING = StepSetting(
    **TINY_SHAPE, rounds=3, inner=1, backend="eager"
)  # graphs are captured, but compiling each takes ten seconds


class StepContender:
    """A model, and what it does: a training step, and inference. Compiled, it is one graph or an error."""

    def __init__(self, setting: StepSetting, make: ModelFactory, mode: str) -> None:
        torch.manual_seed(0)
        before = get_allocated_cuda_bytes()
        self.model = make(setting).to(get_bench_device())
        self.images = torch.randn(setting.batch, 3, *setting.size, device=get_bench_device())
        self.labels = torch.randint(setting.classes, (setting.batch,), device=get_bench_device())
        # A captured optimizer has to count its steps on the device.
        capturable = "captured" in mode
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True, capturable=capturable)
        self.stream = self._stream()
        if "compiled" in mode:
            self.model.compile(fullgraph=True, dynamic=False, backend=setting.backend)
        # This also compiles the model and creates the optimizer's state, neither of which may be captured.
        self.memory = measure_peak_memory(self._train, above=before)
        self.train: TimedWork = self._train
        self.infer: TimedWork = self._infer
        if capturable:
            self.train = capture_graph(self._train)
            self.model.eval()
            self.infer = capture_graph(self._infer)

    def _train(self) -> None:
        """One step."""
        with torch.autocast(get_bench_device(), torch.bfloat16):
            loss = F.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _infer(self) -> None:
        """Logits of a batch."""
        with torch.autocast(get_bench_device(), torch.bfloat16):
            self.model(self.images)

    @torch.no_grad()
    def _stream(self) -> BenchRow:
        """What the last block hands on: of which dtype, and how many tokens."""
        seen: list[Tensor] = []
        hook = self.model.blocks[-1].register_forward_hook(lambda module, given, out: seen.append(out))
        with torch.autocast(get_bench_device(), torch.bfloat16):
            self.model(self.images[:1])
        hook.remove()
        return {"residual": str(seen[0].dtype).removeprefix("torch."), "tokens": seen[0].shape[1]}


class StepField:
    """All contenders of one mode; the model with no encoding is made when the first of them is measured."""

    def __init__(self, setting: StepSetting, mode: str) -> None:
        self.setting, self.mode = setting, mode

    @functools.cached_property
    def base(self) -> StepContender:
        """The model with no encoding."""
        return StepContender(self.setting, list_step_contenders()["none"], self.mode)

    def measure(self, make: ModelFactory) -> BenchRow:
        """A contender beside the base."""
        with require_full_compilation() if "compiled" in self.mode else contextlib.nullcontext():
            return self._beside(self.base, StepContender(self.setting, make, self.mode))

    def _beside(self, base: StepContender, other: StepContender) -> BenchRow:
        """Medians, and ratios to the base, the two taking turns."""
        if other.stream != base.stream:
            raise WrongResultError(f"its blocks hand on {other.stream}, those of the model with no encoding {base.stream}")
        row: BenchRow = {"parameters": sum(weight.numel() for weight in other.model.encoding.parameters()), **other.stream}
        for name, training in (("train", True), ("infer", False)):
            for contender in (other, base):
                contender.model.train(training)
            works = getattr(other, name), getattr(base, name)
            mine, theirs = time_interleaved_rounds(*works, rounds=self.setting.rounds, inner=self.setting.inner)
            low, ratio, high = statistics.quantiles([a / b for a, b in zip(mine, theirs, strict=True)], n=4)
            row |= {f"{name} ms": statistics.median(mine), f"{name} ms ratio": ratio, f"{name} spread": (high - low) / 2}
        if other.memory is not None and base.memory is not None:
            row |= {"train GB": other.memory, "train GB ratio": other.memory / base.memory}
        return row


@contextlib.contextmanager
def require_full_compilation() -> Iterator[None]:
    """A context in which whatever is to be compiled is compiled, or else is an error."""
    limits = dict.fromkeys(("recompile_limit", "accumulated_recompile_limit"), MAX_COMPILED_GRAPHS)
    with torch._dynamo.config.patch({**limits, "fail_on_recompile_limit_hit": True}):
        yield


def get_step_settings() -> BenchRow:
    """What all rows have in common."""
    chosen = LARGE_SETTING if get_bench_device() == "cuda" else SMALL_SETTING
    common = {"autocast": "bfloat16", "optimiser": "AdamW, fused", "pool": "mean, no class token"}
    return asdict(chosen) | common


def list_step_jobs(own: Collection[str] = ()) -> list[BenchJob]:
    """A job for each mode and contender. The ratio of "none" to itself shows the precision of ratios."""
    found = []
    for mode in STEP_MODES if get_bench_device() == "cuda" else ("eager", "compiled"):
        field = StepField(LARGE_SETTING if get_bench_device() == "cuda" else SMALL_SETTING, mode)
        for name, make in list_step_contenders(own).items():
            labels = {"suite": "steps", "mode": mode, "name": name}
            found.append(BenchJob(labels, functools.partial(field.measure, make), yardstick=name == "none"))
    return found


def measure_step_rows(names: Collection[str] = (), modes: Collection[str] = STEP_MODES) -> Iterator[BenchRow]:
    """The rows of contenders of these names and modes, those of "none" with them."""
    return (job.row() for job in select_bench_jobs(list_step_jobs(), names, modes))
