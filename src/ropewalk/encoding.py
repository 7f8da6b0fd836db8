"""The protocol: an encoding is a pure, differentiable map from positions to a code."""

import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Required, Self, TypedDict

import torch
from torch import Tensor, nn

from ropewalk import positions as places
from ropewalk.arguments import LARGEST_SIZE, flag, integer, one_of, positive, positives
from ropewalk.code import Code
from ropewalk.validation import describe_unknown


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What an instance claims of itself; `ropewalk.testing` holds it to every claim.

    relative   for each axis: scores stay put when all positions shift along it
    isometric  q and k keep their norms
    rotary     q and k are turned by a matrix that depends on the position, the identity at zero
    ordered    the axes act one after another: R(p) is a product of exponentials, not the exponential of a sum
    learned    it has parameters
    oblique    some channels answer to a mixture of axes
    isotropic  permuting the axes changes nothing
    monotone   what it adds to the logits falls as the key moves away
    signed     negative positions are as good as positive ones
    reach      the largest |position| up to which its float32 arithmetic keeps every other promise
    rounding   how many times 2^-23 of the angles that it turns its float32 arithmetic may be off
    anchored   prefix tokens, which have no position, get learned biases of their own
    """

    axes: int
    relative: tuple[bool, ...]
    isometric: bool = True
    rotary: bool = False
    ordered: bool = False
    learned: bool = False
    oblique: bool = False
    isotropic: bool = False
    monotone: bool = False
    signed: bool = True
    reach: float = 1e6
    rounding: float = 1.0
    anchored: bool = False


BEYOND, NEAR = 10.0, 100.0
"""How many times an encoding's reach positions are warned of, where looking at them costs nothing, and the least of them."""


class Shape(TypedDict, total=False):
    """What every encoding is made for. An encoding's own options come before these."""

    head_dim: Required[int]
    heads: int
    kv_heads: int | None
    axes: int | None
    layers: int | None
    size: Sequence[int] | None
    variant: str | None
    coordinates: str | None


class Encoding(nn.Module, ABC):
    """A map from positions to a `Code`, exact in float32 whatever the model around it computes in.

    A subclass names itself, passes `head_dim`, `heads`, … on to this class, keeps each option of its own as an attribute
    of the same name, calls `build()` last, and defines `initial`, `encode`, `traits` and `examples`. `variants` has the
    settings of each paper by name, the default one first; `coordinates` is the one that every variant has.

    Parameters and buffers stay at least float32: casts to bfloat16 or half leave them alone. Buffers are functions of the
    options, are not saved, and come back exact after `.double()` and when an encoding leaves the meta device. Parameters
    that left it are NaN until they are drawn or loaded, and the first call refuses them (compiled code gives NaN).
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    allowed_axes: ClassVar[range | None] = None
    default_axes: ClassVar[int] = 1
    variants: ClassVar[dict[str, dict[str, Any]]] = {"standard": {"coordinates": "index"}}

    def __init__(
        self,
        *,
        head_dim: int,
        heads: int = 1,
        kv_heads: int | None = None,
        axes: int | None = None,
        layers: int | None = None,
        size: Sequence[int] | None = None,
        variant: str | None = None,
        coordinates: str | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        self._awaits_values = (
            False  # whether parameters have left the meta device and nobody has looked whether they were set
        )
        if unknown:
            raise TypeError(describe_unknown("option", unknown, parameters_of(type(self)), of=self.name))
        self.head_dim = integer("head_dim", head_dim, least=1, most=LARGEST_SIZE)
        self.heads = integer("heads", heads, least=1, most=LARGEST_SIZE)
        self.kv_heads = None if kv_heads is None else positive("kv_heads", kv_heads)
        self.axes = self.default_axes if axes is None else integer("axes", axes, least=1, most=LARGEST_SIZE)
        self.layers = None if layers is None else integer("layers", layers, least=1, most=LARGEST_SIZE)
        self.size = None if size is None else positives("size", size)
        self.variant = one_of("variant", next(iter(self.variants)) if variant is None else variant, self.variants)
        chosen = self.setting("coordinates") if coordinates is None else coordinates
        self.coordinates = one_of("coordinates", chosen, places.CONVENTIONS)
        if self.allowed_axes is not None and self.axes not in self.allowed_axes:
            least, most = self.allowed_axes[0], self.allowed_axes[-1]
            wanted = f"{least} to {most} axes" if most > least else "one axis" if most == 1 else f"{most} axes"
            raise ValueError(f"{self.name} takes {wanted}, got axes={self.axes}")
        if self.size is not None and len(self.size) != self.axes:
            raise ValueError(f"size must have one number for each of the {self.axes} axes, got {self.size}")
        if self.heads % (self.kv_heads or 1):
            raise ValueError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")

    # What an encoding defines

    @abstractmethod
    def initial(self) -> dict[str, Tensor]:
        """The values its parameters and buffers start from, by name, in float64 on the CPU."""

    @abstractmethod
    def encode(self, q: Tensor, k: Tensor | None) -> Code:
        """The code for queries at q ([B] N A) and keys at k, or at q where k is None.

        Its tables share no memory with a parameter, which FSDP2 frees after this call: a parameter itself is cloned.
        """

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What this instance claims of itself."""

    @classmethod
    @abstractmethod
    def examples(cls) -> Iterator[Self]:
        """Small instances that together show every option: they feed the contract, the gallery and the benchmark."""

    # What it gets

    def forward(self, positions: Tensor, key_positions: Tensor | None = None) -> Code:
        """The code for tokens at `positions`; with `key_positions`, for keys that stand elsewhere.

        Floating positions are (N, axes) or (B, N, axes), integers (N,) or (B, N) and of one axis.
        """
        if self._awaits_values and not torch.compiler.is_compiling():
            self._check_values()
        dtype, device = self._arithmetic()
        q = self._coordinates("positions", positions, dtype, device)
        k = None if key_positions is None else self._coordinates("key_positions", key_positions, dtype, q.device)
        if k is not None and k.dtype != q.dtype:
            q, k = (each.to(torch.promote_types(q.dtype, k.dtype)) for each in (q, k))
        code = self.encode(q, k)
        return code.serving(self.heads, self.own_heads)

    @property
    def waiting(self) -> bool:
        """Whether it wants the length of the text, or the sizes of the image, first, by `at`."""
        return False

    @property
    def pinned(self) -> tuple[str, ...]:
        """Which of "heads" and "layers" an option of its own fixes, as a table by head does: other numbers are refused."""
        return ()

    def at(self, length: int | Sequence[int]) -> "Encoding":
        """The encoding for texts of up to `length` tokens, or for images of up to so many patches along each axis.

        That is itself, unless it is one that depends on that.
        """
        sides = (positive("length", length),) if isinstance(length, int) else positives("length", length)
        if len(sides) not in (1, self.axes):
            raise ValueError(f"length must be one number or one for each of the {self.axes} axes, got {length}")
        return self

    @property
    def own_resolution(self) -> places.Resolution | None:
        """How its variant positions grids of another size than in training; None where the paper leaves that open."""
        stated: places.Resolution | None = self.variants[self.variant].get("resolution")
        return stated

    def grid(
        self,
        *sizes: int,
        resolution: places.Resolution | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Positions of a grid, (N, axes), in the coordinates that this encoding was made for, and on its device.

        `size`, the training grid, is the yardstick: a larger grid goes beyond it ("extrapolate") or is squeezed
        into it ("rescale"); both give the same positions on the training grid, and where `size` is None, which makes each
        grid its own yardstick. The default is `own_resolution`, or else that of `rw.positions.grid`: images are rescaled.
        """
        if len(sizes) != self.axes:
            raise ValueError(f"this encoding has {self.axes} axes: its grid needs as many sizes, got {sizes}")
        resolution = self.own_resolution if resolution is None else resolution
        dtype = self._arithmetic()[0] if dtype is None else dtype
        device = next((tensor.device for tensor in self._tensors()), None) if device is None else device
        return places.grid(
            *sizes, coordinates=self.coordinates, reference=self.size, resolution=resolution, dtype=dtype, device=device
        )

    def start(self) -> dict[str, Tensor]:
        """What `initial` says, as a family of encodings adjusts it."""
        return self.initial()

    def build(self, *, learned: bool, fixed: Collection[str] = ()) -> None:
        """Create what `initial` names: parameters if learned and not fixed, otherwise buffers that are not saved."""
        dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
        for name, value in self.start().items():
            if places.readable(value) and not value.to(dtype).isfinite().all():
                options = {key: getattr(self, key, None) for key in parameters_of(type(self))}
                shown = ", ".join(f"{key}={value!r}" for key, value in options.items() if isinstance(value, float))
                raise ValueError(f"{name} of {self.name} is not finite in {dtype}: an option is too large or small: {shown}")
            value = value.to(device=torch.get_default_device(), dtype=dtype)
            if learned and name not in fixed:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value, persistent=False)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw parameters anew and rebuild buffers, as at construction: the end of initialisation on the meta device."""
        for name, value in self.start().items():
            _fill_tensor(getattr(self, name), value)
        self._awaits_values = False

    @torch.no_grad()
    def init_non_persistent_buffers(self) -> None:
        """Rebuild the buffers and leave parameters alone: for weights that were loaded after `to_empty()`."""
        for name, value in self.start().items() if self._buffers else ():
            if name in self._buffers:
                _fill_tensor(getattr(self, name), value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = [buffer.dtype for buffer in self.buffers()]
        empty = {name for name, tensor in self._own_tensors() if tensor.device.type == "meta" or _loses_values(fn, tensor)}
        super()._apply(lambda tensor: _at_least_float32(tensor, fn(tensor)), recurse)
        filled = {name for name, tensor in self._own_tensors() if name in empty and tensor.device.type != "meta"}
        if [buffer.dtype for buffer in self.buffers()] != before or not filled.isdisjoint(self._buffers):
            self.init_non_persistent_buffers()
        for name in filled.intersection(self._parameters):
            with torch.no_grad():
                self.get_parameter(name).fill_(float("nan"))
            self._awaits_values = True
        self._awaits_values |= any(child._awaits_values for child in self.modules() if isinstance(child, Encoding))
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        """Where a state dict is assigned, parameters leave the meta device, and buffers, which are not saved, go with them.

        Of an encoding without parameters nothing says where to: its buffers go to the default device.
        """
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
        if self._parameters and all(prefix + name in state_dict for name in self._parameters):
            self._awaits_values = False
        empty = [name for name, buffer in self._buffers.items() if buffer is not None and buffer.device.type == "meta"]
        if not empty or not local_metadata.get("assign_to_params_buffers"):
            return
        given = (value for value in (*self._parameters.values(), *state_dict.values()) if isinstance(value, Tensor))
        device = next((value.device for value in given if value.device.type != "meta"), torch.get_default_device())
        if device.type != "meta":
            for name in empty:
                self._buffers[name] = torch.empty_like(self.get_buffer(name), device=device)
            self.init_non_persistent_buffers()

    def _own_tensors(self) -> list[tuple[str, Tensor]]:
        return [*self.named_parameters(recurse=False), *self.named_buffers(recurse=False)]

    def _check_values(self) -> None:
        """Refuse parameters that have left the meta device and were neither drawn nor loaded."""
        unset = [name for name, parameter in self.named_parameters() if _is_unset(parameter)]
        if unset:
            made = "it was made on the meta device, and to_empty() gives memory but no values"
            mend = "call reset_parameters(), or load_state_dict() with these"
            raise RuntimeError(f"{', '.join(unset)} of {self.name} must be drawn or loaded before use: {made}; {mend}")
        self._awaits_values = False

    def config(self) -> dict[str, Any]:
        """All options as plain JSON values: `rw.create(**encoding.config())` builds its like."""
        values = {name: getattr(self, name) for name in parameters_of(type(self))}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"name": config_name(type(self))} | plain

    def __repr__(self) -> str:
        default = {name: parameter.default for name, parameter in parameters_of(type(self)).items()}
        default |= {
            "axes": self.default_axes,
            "variant": next(iter(self.variants)),
            "coordinates": self.setting("coordinates"),
        }
        shown = [f"{n}={self.shown(n)}" for n, value in default.items() if getattr(self, n) != value]
        return f"{type(self).__name__}({', '.join(shown)})  # {self.summary()}"

    def shown(self, name: str) -> str:
        """An option as `repr` shows it; `...` for one that is too long to be shown."""
        return repr(getattr(self, name))

    def summary(self) -> str:
        """In a few words: what it acts on, and what it leaves alone."""
        return f"{self.axes} ax{'i' if self.axes == 1 else 'e'}s"

    def setting(self, name: str) -> Any:
        """What the chosen variant says of `name`."""
        return self.variants[self.variant][name]

    @property
    def own_heads(self) -> int:
        """Heads that may have parameters of their own: with grouped queries, those of keys and values."""
        return self.kv_heads or self.heads

    def lead(self, *, shared: bool = False) -> tuple[int, ...]:
        """The leading dimensions of a parameter, ([L] h); h is 1 where heads share."""
        return (*([] if self.layers is None else [self.layers]), 1 if shared else self.own_heads)

    def per_layer(self, table: Tensor) -> Tensor:
        """A table that no layer has for itself, with the layer axis that a code of several layers wants."""
        return table if self.layers is None else table.expand(self.layers, *table.shape)

    def _coordinates(self, name: str, positions: Tensor, dtype: torch.dtype, device: torch.device | None) -> Tensor:
        """Positions as at least float32, ([B] N A), checked."""
        p = places.as_coordinates(name, positions, self.axes)
        if device is not None and p.device != device:
            raise ValueError(f"{name} must be on one device with {self.name}, got {p.device} and {device}")
        p = p.to(torch.promote_types(p.dtype, dtype))
        if p.dtype is torch.float32 and p.numel() and places.readable(positions):
            self._check_reach(name, p)
        return p

    def _check_reach(self, name: str, positions: Tensor) -> None:
        """Warn of positions so far away that float32 arithmetic has lost what the traits of a rotation claim."""
        farthest = positions.detach().abs().max().item()
        if farthest <= NEAR or not (traits := self.traits).rotary or farthest <= BEYOND * traits.reach:
            return
        words = f"rotations of {self.name} are exact in float32 for positions up to {traits.reach:g}, got {name} up to"
        warnings.warn(f"{words} {farthest:g}: check their coordinates, or call .double() on the encoding", stacklevel=4)

    def _tensors(self) -> list[Tensor]:
        return [*self.parameters(), *self.buffers()]

    def _arithmetic(self) -> tuple[torch.dtype, torch.device | None]:
        """What it computes in, and where, if it holds anything. Casts cannot narrow it; sharding, or a state dict that is
        assigned, can."""
        dtype, device = torch.float32, None
        for tensor in self._tensors():
            if torch.promote_types(tensor.dtype, torch.float32) != tensor.dtype:
                advice = "keep it in float32: call .float(), and shard or replicate it without mixed precision"
                raise ValueError(f"{self.name} computes in float32 or better, but holds {tensor.dtype}; {advice}")
            dtype, device = torch.promote_types(dtype, tensor.dtype), tensor.device
        return dtype, device


def shares(shared: bool, learned: bool) -> bool:
    """`shared` if it can tell: what is not learned is the same in all heads anyway."""
    if flag("shared", shared) and not learned:
        raise ValueError("fixed frequencies are the same in all heads: shared=True needs learned=True")
    return shared


def table_size(encoding: Encoding) -> tuple[int, ...]:
    """The training grid of an encoding that has a table with entries for its patches: needed, and counted in patches."""
    if encoding.size is None:
        raise ValueError(f"{encoding.name} needs the size of its table, {encoding.axes} numbers, got size=None")
    if encoding.coordinates != "index":
        raise ValueError(f"{encoding.name} counts patches: coordinates must be 'index', got {encoding.coordinates!r}")
    return encoding.size


def config_name(kind: type[Encoding]) -> str:
    """The name of a class in configs: its own in ropewalk; "module:Class" elsewhere, so that `create` finds it."""
    if kind.__module__.partition(".")[0] == "ropewalk" or "<locals>" in kind.__qualname__:
        return kind.name
    return f"{kind.__module__}:{kind.__qualname__}"


def parameters_of(kind: type[Encoding]) -> dict[str, inspect.Parameter]:
    """The options that an encoding's constructor takes, in order, those that it passes on included."""
    found: dict[str, inspect.Parameter] = {}
    for cls in kind.__mro__:
        if "__init__" not in vars(cls):
            continue
        own = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
        found = {n: p for n, p in own.items() if p.kind is p.KEYWORD_ONLY and n not in found} | found
        if cls is Encoding or not any(p.kind is p.VAR_KEYWORD for p in own.values()):
            break
    return found


def _fill_tensor(tensor: Tensor, value: Tensor) -> None:
    """Copy a whole value into a tensor; of a sharded one each process keeps its part of what the first process drew."""
    distributed: Any = sys.modules.get("torch.distributed.tensor")  # imported by whoever made a sharded tensor
    if distributed is not None and isinstance(tensor, distributed.DTensor):
        whole = value.to(device=tensor.device, dtype=tensor.dtype)
        value = distributed.distribute_tensor(whole, tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


def _loses_values(fn: Callable[[Tensor], Tensor], like: Tensor) -> bool:
    """Whether what is applied to tensors gives memory without values, as `to_empty()` does; casts and moves keep them."""
    known = torch.linspace(1, 2, 7, dtype=like.dtype, device=like.device)
    try:
        found = fn(known)
    except (RuntimeError, TypeError, ValueError, AttributeError):  # what is meant for parameters of a kind of their own
        return False
    if not isinstance(found, Tensor) or found.shape != known.shape or found.device.type == "meta":
        return False
    return not torch.allclose(found.detach().to(known), known, rtol=0.1)


def _is_unset(parameter: Tensor) -> bool:
    """Whether a parameter is NaN, as where nobody has written to it; False where that cannot be seen."""
    distributed: Any = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(parameter, distributed.DTensor):
        parameter = parameter.to_local()
    plain = type(parameter).__torch_dispatch__ is Tensor.__torch_dispatch__
    if not plain or parameter.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(parameter):
        return False
    return bool(parameter.isnan().any())


def _at_least_float32(before: Tensor, after: Tensor) -> Tensor:
    narrow = after.is_floating_point() and after.dtype.itemsize < 4
    return before.to(after.device) if narrow else after
