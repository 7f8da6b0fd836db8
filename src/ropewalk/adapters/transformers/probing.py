"""What a host does to q and k, measured: how its attention calls the rotation, and the matrices that come of it.

The attention of a host runs once on some tokens of zeros, up to the rotation, whose arguments tell the shapes of q and k.
Then the host's own functions rotate basis vectors: that is the matrix of a position, whatever the host's code looks like.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ropewalk.adapters.offloading import computing_device
from ropewalk.adapters.transformers.apply_rotary import Usage
from ropewalk.adapters.transformers.rebinding import find_rotations, host_class, rebind_to, restore, rotation_function

TOKENS = 7  # of the probe: unlike the numbers of heads that models have
COSINES = ("cos", "sin", "freqs_cis", "freqs_ci", "position_embeddings", "sinusoidal_pos")
TOKENS_ARE = ("hidden_states", "query", "key", "value", "context_hidden_states")
IDS = ("tokens", "axes first", "flat", "axes last", "pixels")  # (B N), (A B N), (N A), (B N A), images (B C H W)


Function = TypeVar("Function", bound=Callable[..., Any])


def on_the_cpu(function: Function) -> Function:
    """Let what a function makes be on the CPU, also while a model is made on the meta device, where nothing has values."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with torch.device("cpu"):
            return function(*args, **options)

    return cast(Function, called)


class HostRefusedError(TypeError):
    """A host cannot be understood, or does something that no encoding here can stand for."""


class _Reached(Exception):
    """The rotation was called as often as the probe wants."""


@dataclass(frozen=True)
class Call:
    """One call of a rotation function by an attention."""

    name: str
    function: Any
    args: tuple[Any, ...]
    options: dict[str, Any]
    outputs: Any
    ids: Tensor | None


@dataclass(frozen=True)
class Shapes:
    """What an attention rotates."""

    usage: Usage
    calls: tuple[Call, ...]
    width: int
    heads: int
    kv_heads: int


def list_ids(rotary: nn.Module, layer_type: str | None) -> Iterator[tuple[str, int]]:
    """How a rotary embedding may take positions, the kinds of `IDS` with numbers of axes. Some take any number of axes."""
    if "pixel_values" in inspect.signature(rotary.forward).parameters:
        yield "pixels", 2
        return
    trials: list[tuple[str, int, tuple[int, ...]]] = [("axes first", axes, (axes, 1, TOKENS)) for axes in (3, 2, 4)]
    trials += [("tokens", 1, (1, TOKENS)), ("axes last", 2, (1, TOKENS, 2))]
    trials += [("flat", axes, (TOKENS, axes)) for axes in (3, 2)]
    device = device_of(rotary)
    for kind, axes, shape in trials:
        try:
            out = call_rotary(rotary, torch.ones(shape, dtype=torch.long, device=device), layer_type)
        except (RuntimeError, IndexError, ValueError, TypeError, AttributeError):
            continue
        table = out[0] if isinstance(out, tuple) else out
        fits = isinstance(table, Tensor) and table.ndim > 1 and table.shape[-2] == TOKENS and table.shape[:-2].numel() == 1
        if fits and (axes == 1 or _uses_last_axis(rotary, table, shape, kind, layer_type)):
            yield kind, axes


def _uses_last_axis(rotary: nn.Module, table: Tensor, shape: tuple[int, ...], kind: str, layer_type: str | None) -> bool:
    """Whether the last axis of positions changes the tables; where there are no values, it may."""
    ids = torch.ones(shape, dtype=torch.long, device=table.device)
    if table.is_meta:
        return True
    (ids[-1] if kind == "axes first" else ids[..., -1]).fill_(2)
    out = call_rotary(rotary, ids, layer_type)
    return not torch.equal(out[0] if isinstance(out, tuple) else out, table)


def make_ids(kind: str, points: Tensor) -> Tensor:
    """Positions (N A) as a rotary embedding takes them."""
    if kind == "tokens":
        return points[None, :, 0]
    if kind == "axes first":
        return points.T[:, None]
    return points if kind == "flat" else points[None]


def call_rotary(rotary: nn.Module, ids: Tensor, layer_type: str | None) -> Any:
    """The tables of a rotary embedding."""
    options = {} if layer_type is None else {"layer_type": layer_type}
    with torch.no_grad():
        return rotary(torch.zeros(1, ids.shape[-1], 2, device=ids.device), ids, **options)


def call_on_pixels(rotary: Any, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines for an image of so many patches, as they are when a model is not trained."""
    patch = rotary.config.patch_size
    height, width = (patch, patch) if isinstance(patch, int) else patch
    training = rotary.training
    try:
        with torch.no_grad():
            return rotary.eval()(torch.zeros(1, 3, rows * height, columns * width, device=device_of(rotary)))
    finally:
        rotary.train(training)


def device_of(rotary: nn.Module) -> torch.device:
    """Where the frequencies lie."""
    return next((buffer.device for buffer in rotary.buffers()), torch.device("cpu"))


def read_shapes(
    attention: nn.Module, helpers: list[nn.Module], rotary: nn.Module, kind: str, axes: int, layer_type: str | None
) -> dict[int, tuple[Shapes, ...]]:
    """What an attention and its helpers rotate, by the module, one for each of its functions."""
    calls = _capture(attention, helpers, rotary, kind, axes, layer_type)
    found = {}
    for module, own in calls.items():
        named: dict[str, list[Call]] = {}
        for call in own:
            named.setdefault(call.name, []).append(call)
        found[module] = tuple(_shapes(name, several) for name, several in named.items())
    return found


def _shapes(name: str, calls: list[Call]) -> Shapes:
    count = _count(calls[0].function)
    xs = [x for call in calls for x in _rotated(call, count)]
    axis = _token_axis(xs[0])
    heads = [x.shape[-2 if axis == -3 else -3] if x.ndim > 2 else 1 for x in xs]
    return Shapes(Usage(name, count, axis), tuple(calls), xs[0].shape[-1], heads[0], heads[-1])


def _count(function: Callable[..., Any]) -> int:
    """How many tensors a rotation function rotates."""
    names = list(inspect.signature(function).parameters)
    first = next((index for index, name in enumerate(names) if name in COSINES), None)
    if first not in (1, 2):
        raise HostRefusedError(f"{function.__name__}({', '.join(names)}) takes something else than q, k and tables")
    return first


def _rotated(call: Call, count: int) -> list[Tensor]:
    given = [*call.args, *call.options.values()][:count]
    return [x for x in given if isinstance(x, Tensor)]


def _has_tokens(call: Call) -> bool:
    """Whether the tokens of the probe are where they can be found."""
    return all(TOKENS in x.shape[-3:-1] for x in _rotated(call, _count(call.function))[:1])


def _token_axis(x: Tensor) -> int:
    if x.shape[-2] == TOKENS:
        return -2
    if x.ndim > 2 and x.shape[-3] == TOKENS:
        return -3
    raise HostRefusedError(
        f"its attention rotates q of {tuple(x.shape)}, among which {TOKENS} tokens of a probe are not found"
    )


def _capture(
    attention: nn.Module, helpers: list[nn.Module], rotary: nn.Module, kind: str, axes: int, layer_type: str | None
) -> dict[int, list[Call]]:
    """The calls of rotation functions by an attention that is given tokens of zeros, and by its helpers."""
    device = computing_device(attention)
    points = torch.arange(TOKENS, device=device_of(rotary))[:, None].expand(TOKENS, axes)
    if kind == "pixels":
        ids, outputs = points, call_on_pixels(rotary, 1, TOKENS)
    else:
        ids = make_ids(kind, points)
        outputs = call_rotary(rotary, ids, layer_type)
    moved = tuple(each.to(device) for each in outputs) if isinstance(outputs, tuple) else outputs.to(device)
    own: list[Any] = []  # tables that the attention made by itself
    modules = [attention, *helpers]
    calls: dict[int, list[Call]] = {}

    def spy(module: nn.Module, name: str, function: Any) -> Callable[..., Any]:
        count = _count(function)

        def called(*args: Any, **options: Any) -> Any:
            calls.setdefault(id(module), []).append(Call(name, function, args, options, own[-1] if own else moved, ids))
            same = [call for call in calls[id(module)] if call.name == name]
            if not helpers and (count == 2 or len(same) == 2):
                raise _Reached
            return function(*args, **options)

        return called

    hook = rotary.register_forward_hook(lambda module, args, out: own.append(out))
    before = [type(module) for module in modules]
    training = {module: module.training for module in attention.modules()}
    errors: list[Exception] = []
    try:
        for module in modules:
            kinds = host_class(module)
            rebind_to(module, {name: spy(module, name, rotation_function(kinds, name)) for name in find_rotations(kinds)})
        attention.eval()
        for hidden in _hidden(attention, device):
            given = _arguments(attention, hidden, moved, ids.to(device))
            for masked in (False, True) if "attention_mask" in given else (False,):
                calls.clear()
                if masked:
                    given["attention_mask"] = torch.zeros(1, 1, TOKENS, TOKENS, device=device)
                try:
                    with torch.no_grad():
                        attention(**given)
                except _Reached:
                    pass
                except Exception as error:  # whatever a host raises when it is given something that it does not know
                    errors.append(error)
                done = not helpers or len(calls) == len(modules)
                if calls and done and all(_has_tokens(call) for several in calls.values() for call in several):
                    return calls
    finally:
        hook.remove()
        for module, was in training.items():
            module.training = was
        for module, host in zip(modules, before, strict=True):
            restore(module, host)
    said = f"{type(errors[0]).__name__}: {errors[0]}" if errors else "it rotated nothing"
    raise HostRefusedError(f"{host_class(attention).__name__} could not be analyzed with {TOKENS} tokens: {said}")


def _hidden(attention: nn.Module, device: torch.device) -> list[Tensor]:
    """Tokens as the attention may want them, the likeliest first."""
    linear = next((each for each in attention.modules() if isinstance(getattr(each, "weight", None), Tensor)
                   and each.weight.ndim == 2), None)  # fmt: skip
    config = getattr(attention, "config", None)
    width = getattr(linear, "in_features", None) or getattr(config, "hidden_size", None)
    if width is None:
        raise HostRefusedError(f"{type(attention).__name__} has no linear layer that tells how wide tokens are")
    weight = getattr(linear, "weight", None)
    dtype = weight.dtype if isinstance(weight, Tensor) and weight.is_floating_point() else torch.float32
    shapes = [(1, TOKENS, width), (TOKENS, width), (1, 1, TOKENS, width)]
    if "cu_seqlens" in inspect.signature(host_class(attention).forward).parameters:
        shapes[0], shapes[1] = shapes[1], shapes[0]
    return [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]


def _arguments(attention: nn.Module, hidden: Tensor, outputs: Any, ids: Tensor) -> dict[str, Any]:
    """What the forward method of an attention is called with."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(host_class(attention).forward).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        required = parameter.default is parameter.empty
        if name in TOKENS_ARE or (name == "encoder_hidden_states" and required):
            given[name] = hidden
        elif "position_embeddings" in name or name in ("freqs_ci", "rotary_pos_emb"):
            given[name] = outputs
        elif name == "position_ids":
            given[name] = ids
        elif name == "cu_seqlens":
            given[name] = torch.tensor([0, TOKENS], dtype=torch.int32, device=hidden.device)
        elif name == "max_seqlen":
            given[name] = TOKENS
        elif name == "layer_idx":
            given[name] = 0
        elif name == "shared_kv_states":
            given[name] = {}
        elif required or name == "attention_mask":
            given[name] = None
    return given


def measure(shapes: Shapes, rotary: nn.Module, kind: str, point: Tensor, layer_type: str | None, side: int = 0) -> Tensor:
    """The matrix (D D), float64, by which a host multiplies q at a position (A,); keys for the side 1."""
    width, device = shapes.width, device_of(rotary)
    ids = make_ids(kind, point.to(device).expand(width, -1))
    tables = call_rotary(rotary, ids, layer_type)
    basis = torch.eye(width, device=device)
    call = shapes.calls[min(side, len(shapes.calls) - 1)]
    sample = _rotated(call, shapes.usage.tensors)[0]
    given = basis[None] if shapes.usage.axis == -2 else basis[:, None]
    given = given[None] if sample.ndim == 4 else given
    known = {id(call.ids): ids} | dict(zip(_identities(call.outputs), _tensors(tables), strict=True))
    position = iter(range(shapes.usage.tensors))

    def replaced(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in known:
            return known[id(value)]
        if next(position, None) is None:
            raise HostRefusedError(
                f"its attention changes the tables of {type(rotary).__name__} before it calls {call.name}"
            )
        return given

    args = [replaced(value) for value in call.args]
    options = {name: replaced(value) for name, value in call.options.items()}
    try:
        with torch.no_grad():
            out = call.function(*args, **options)
    except Exception as error:  # whatever a host raises when it is given something that it does not know
        said = f"{type(error).__name__}: {error}"
        raise HostRefusedError(f"{call.name} could not be analyzed on basis vectors: {said}") from error
    out = out[side if len(shapes.calls) == 1 else 0] if isinstance(out, tuple) else out
    if out.numel() != width * width:
        raise HostRefusedError(f"the tables of {type(rotary).__name__} go along another axis of q than that of tokens")
    return out.reshape(width, width).T.double().cpu()


def _tensors(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def _identities(outputs: Any) -> list[int]:
    return [id(each) for each in _tensors(outputs)]


def remake_rotary(rotary: nn.Module, config: Any, plain: Any) -> nn.Module:
    """The rotary embedding made anew with another config than it was made with; itself where it does not take one."""
    names = list(inspect.signature(type(rotary)).parameters)
    if not names or names[0] != "config" or config.to_dict() == plain.to_dict():
        return rotary
    rest = {name: getattr(rotary, name) for name in names[1:] if hasattr(rotary, name)}
    return type(rotary)(plain, **rest)


def on_a_device(rotary: nn.Module) -> nn.Module:
    """The rotary embedding, or where that has no values, or values that a cast has rounded, one like it as it was made."""
    rounded = any(buffer.is_floating_point() and buffer.dtype.itemsize < 4 for buffer in rotary.buffers())
    if device_of(rotary).type != "meta" and not rounded:
        return rotary
    kind, config = type(rotary), getattr(rotary, "config", None)
    names = list(inspect.signature(kind).parameters)
    with torch.device("cpu"):
        try:
            rest = {name: getattr(rotary, name) for name in names[1:] if hasattr(rotary, name)}
            return (
                kind(copy.deepcopy(config), **rest)
                if names[:1] == ["config"]
                else kind(*[getattr(rotary, name) for name in names])
            )
        except (TypeError, AttributeError) as error:
            advice = "load the weights first, then install"
            raise HostRefusedError(f"{kind.__name__} is on the meta device and cannot be made anew: {advice}") from error
