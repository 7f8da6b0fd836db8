"""What `ropewalk.testing.fuzz` calls: public functions, the values that they want, and what they promise for them."""

import functools
import math
import random
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk import extension, functional, layouts, positions, spectra, theory
from ropewalk.factory import from_config
from ropewalk.functional import tables
from ropewalk.models.lm import LM
from ropewalk.models.vit import ViT
from ropewalk.testing.fuzz_values import (
    DTYPE,
    ENCODING,
    FLAG,
    INTEGER,
    INTEGERS,
    MAPPING,
    NAME,
    NUMBER,
    NUMBERS,
    Wanted,
    describe_value,
    either,
    floats,
    integers,
    is_integer,
    is_number,
    make_heads,
    make_odd_value,
    make_positions,
    name_of,
    optional,
    pick_code,
    pick_encoding,
    tensor,
)

ODD_SHARE = 0.9  # of calls that get an odd value


class UnexpectedResultError(Exception):
    """A function returned, and should not have, or returned something else than it promises."""


@dataclass
class Call:
    """A function with arguments, some of which may be odd, and the check of its result."""

    target: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    wanted: dict[str, Wanted]
    positional: tuple[str, ...]
    promise: Callable[[Any, Mapping[str, Any]], None] | None
    odd: set[str] = field(default_factory=set)

    def make(self) -> Any:
        """Call it."""
        named = {name: value for name, value in self.arguments.items() if name not in self.positional}
        return self.function(*(self.arguments[name] for name in self.positional), **named)

    def check(self, result: Any) -> None:
        """Raise an error if it accepted what it should not have, or did not keep its promise."""
        for name in self.odd:
            if not self.wanted[name].takes(self.arguments[name]):
                came = reprlib.repr(self.arguments[name])
                raise UnexpectedResultError(f"{name} must be {self.wanted[name].name}, and {came} was accepted")
        if self.promise is not None:
            self.promise(result, self.arguments)

    def __str__(self) -> str:
        return f"{self.target}({', '.join(f'{name}={describe_value(value)}' for name, value in self.arguments.items())})"


# What is called: the function, its arguments, and its promise

Target = Callable[[random.Random], Call]
TARGETS: dict[str, Target] = {}


def add_target(
    name: str,
    function: Callable[..., Any],
    wanted: Mapping[str, Wanted],
    *,
    positional: tuple[str, ...] = (),
    promise: Callable[[Any, Mapping[str, Any]], None] | None = None,
) -> None:
    """Add a function whose arguments do not depend on each other."""

    def build(generator: random.Random) -> Call:
        arguments = {key: kind.make(generator) for key, kind in wanted.items()}
        return Call(name, function, arguments, dict(wanted), positional, promise)

    TARGETS[name] = build


def make_call(generator: random.Random, name: str) -> Call:
    """A call of this target, with odd values in the place of some arguments."""
    call = TARGETS[name](generator)
    if generator.random() < ODD_SHARE and call.arguments:
        for key in generator.sample(sorted(call.arguments), min(len(call.arguments), generator.choice((1, 1, 1, 2)))):
            call.arguments[key] = make_odd_value(generator, call.arguments[key])
            call.odd.add(key)
    return call


def expect(condition: bool, words: str) -> None:
    """Raise an error if a promise was not kept."""
    if not condition:
        raise UnexpectedResultError(words)


def expect_finite(result: Tensor, *inputs: Any) -> None:
    """A result of finite inputs of moderate size is finite."""
    for value in inputs:
        if not isinstance(value, Tensor) or not value.numel():
            continue
        if value.is_meta or not value.isfinite().all() or value.to(torch.complex128).abs().amax() > 1e30:
            return
    if result.is_floating_point() and not result.is_meta:
        expect(bool(result.isfinite().all()), "the result is not finite")


def _promise_grid(result: Any, given: Mapping[str, Any]) -> None:
    sizes = [value for name, value in given.items() if name.startswith("n")]
    expect(tuple(result.shape) == (math.prod(sizes), len(sizes)), f"a grid of shape {tuple(result.shape)}")
    expect(bool(result.isfinite().all()) or result.is_meta, "a grid that is not finite")


def _promise_same_shape(result: Any, given: Mapping[str, Any]) -> None:
    expect(result.shape == given["positions"].shape, f"moved positions of shape {tuple(result.shape)}")
    expect_finite(result, given["positions"])


def _promise_rotary(result: Any, given: Mapping[str, Any]) -> None:
    for name, turned in zip("qk", result, strict=True):
        if (x := given[name]) is not None:
            expect(turned.shape == x.shape and turned.dtype == x.dtype, f"{name} came back as {turned.dtype}")


def _promise_codes(result: Any, given: Mapping[str, Any]) -> None:
    """Rotations keep norms, and agree with their matrices."""
    code = result
    expect(isinstance(code, rw.Code), f"no code but {type(code).__name__}")
    if code.rotary and not any(table.is_meta for table in code.tables.values()):
        matrices = code.matrices()
        expect_finite(matrices, given["positions"])


def _build_encode(generator: random.Random) -> Call:
    encoding = pick_encoding(generator)
    encoding = encoding.at(64) if encoding.waiting else encoding
    sized = tensor(lambda g: make_positions(encoding))
    wanted = {"positions": sized, "key_positions": optional(sized)}
    arguments = {name: kind.make(generator) for name, kind in wanted.items()}
    return Call(f"{encoding.name}()", encoding, arguments, wanted, ("positions",), _promise_codes)


def _build_use(generator: random.Random) -> Call:
    encoding = pick_encoding(generator)
    encoding = encoding.at(64) if encoding.waiting else encoding
    code = encoding(make_positions(encoding))
    code = code if code.layers is None else code[0]
    wanted = {
        "q": tensor(lambda g: make_heads(encoding)),
        "k": tensor(lambda g: make_heads(encoding, keys=True)),
    }
    method = generator.choice(("qk", "scores"))
    isometric = encoding.traits.isometric and encoding.traits.rotary

    def promise(result: Any, given: Mapping[str, Any]) -> None:
        if method == "scores":
            if result is not None:
                expect_finite(result, *given.values())
            return
        for name, turned in zip("qk", result, strict=True):
            x = given[name]
            expect(turned.shape == x.shape and turned.dtype == x.dtype, f"{name} came back as {turned.dtype}")
            expect_finite(turned, x)
            if isometric and x.dtype == torch.float32 and not x.is_meta and x.isfinite().all() and x.abs().lt(1e6).all():
                torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-4, atol=1e-4)

    arguments = {name: kind.make(generator) for name, kind in wanted.items()}
    return Call(f"{encoding.name}.{method}", getattr(code, method), arguments, wanted, ("q", "k"), promise)


def _build_method(name: str, wanted: Mapping[str, Wanted], positional: tuple[str, ...] = ()) -> Target:
    def build(generator: random.Random) -> Call:
        arguments = {key: kind.make(generator) for key, kind in wanted.items()}
        return Call(f"code.{name}", getattr(pick_code(generator), name), arguments, dict(wanted), positional, None)

    return build


def _build_encoding_method(name: str, wanted: Mapping[str, Wanted], positional: tuple[str, ...]) -> Target:
    def build(generator: random.Random) -> Call:
        arguments = {key: kind.make(generator) for key, kind in wanted.items()}
        method = getattr(pick_encoding(generator), name)
        return Call(f"encoding.{name}", method, arguments, dict(wanted), positional, None)

    return build


def _build_attend(generator: random.Random) -> Call:
    encoding = pick_encoding(generator)
    encoding = encoding.at(64) if encoding.waiting else encoding
    code = encoding(make_positions(encoding))
    n = len(make_positions(encoding))
    wanted = {
        "q": tensor(lambda g: make_heads(encoding)),
        "k": tensor(lambda g: make_heads(encoding, keys=True)),
        "v": tensor(lambda g: make_heads(encoding, keys=True)),
        "code": Wanted(
            lambda g: code if code.layers is None else code[0],
            lambda value: value is None or isinstance(value, rw.Code),
            "a code",
        ),
        "mask": optional(tensor(lambda g: torch.ones(n, n, dtype=torch.bool))),
        "causal": FLAG,
        "scale": optional(NUMBER),
        "dropout": Wanted(lambda g: 0.0, is_number, "a number"),
        "kernel": name_of("auto", "sdpa"),
        "turned": FLAG,
    }
    arguments = {name: kind.make(generator) for name, kind in wanted.items()}

    def promise(result: Any, given: Mapping[str, Any]) -> None:
        q, v = given["q"], given["v"]
        expect(result.shape == (*q.shape[:3], v.shape[-1]), f"attention of shape {tuple(result.shape)}")
        expect_finite(result, q, given["k"], v, given["mask"])

    return Call("attend", rw.attend, arguments, wanted, ("q", "k", "v"), promise)


def _build_create(generator: random.Random) -> Call:
    example = pick_encoding(generator)
    config = {key: value for key, value in example.config().items() if key != "name" and value is not None}
    config = dict(generator.sample(sorted(config.items()), min(4, len(config)))) | {"head_dim": example.head_dim}
    if example.size is not None:
        config |= {"size": list(example.size), "axes": example.axes}
    wanted = {"name": NAME} | {key: Wanted(lambda g: None, lambda value: True, key) for key in config}
    arguments = {"name": example.name, **config}

    def promise(result: Any, given: Mapping[str, Any]) -> None:
        for key, value in given.items():
            if isinstance(value, bool) != isinstance(config.get(key, value), bool):
                raise UnexpectedResultError(f"{key}={value!r} was accepted in the place of {config[key]!r}")
        for tensor_name, table in (*result.named_parameters(), *result.named_buffers()):
            expect(bool(table.isfinite().all()), f"{tensor_name} is not finite")

    return Call("create", rw.create, arguments, wanted, ("name",), promise)


WORDS = name_of(*positions.RESOLUTIONS)
RESOLUTION = Wanted(WORDS.make, optional(WORDS).takes, "extrapolate, rescale or None")
"""None, the default, is taken and not drawn: it is refused where the first of three axes may be time."""


def _build_vit(generator: random.Random) -> Call:
    model = _make_vit(generator.choice(("axial", "learned-ape", "liere", "none")))
    wanted = {
        "images": floats(2, 3, 8, 8),
        "positions": optional(tensor(lambda g: torch.rand(4, 2))),
        "resolution": RESOLUTION,
    }
    arguments = {name: kind.make(generator) for name, kind in wanted.items()}
    return Call("ViT", model, arguments, wanted, ("images",), lambda result, given: expect_finite(result, given["images"]))


@functools.cache
def _make_vit(encoding: str) -> ViT:
    return ViT(encoding=encoding, size=(8, 8), patch=4, width=16, depth=1, heads=2, classes=3).eval()


@functools.cache
def _make_lm() -> LM:
    return LM(vocabulary=7, encoding="rope", width=16, depth=1, heads=2).eval()


def _build_model(generator: random.Random) -> Call:
    """The constructors of models."""
    count = Wanted(lambda g: g.choice((1, 2)), is_integer, "an integer")
    width = Wanted(lambda g: 16, is_integer, "an integer")
    image = generator.random() < 0.5
    encoding = Wanted(lambda g: g.choice(("axial", "none") if image else ("rope", "alibi")), NAME.takes, "a name")
    wanted = {"encoding": encoding, "width": width, "depth": count, "heads": count, "options": optional(MAPPING)}
    if image:
        wanted |= {key: optional(wanted[key]) for key in ("width", "depth", "heads")}  # by default the preset's
        wanted |= {
            "size": Wanted(lambda g: (8, 8), INTEGERS.takes, "integers"),
            "patch": Wanted(lambda g: 4, either(INTEGER, INTEGERS).takes, "integers"),
            "ratio": NUMBER,
            "pool": name_of("mean", "class"),
            **{"registers": count, "classes": count, "channels": count},
            "layer_scale": optional(NUMBER),
            **{"drop_path": ZERO, "dropout": ZERO},
        }
    else:
        wanted |= {"vocabulary": INTEGER, "kv_heads": optional(count), "hidden": optional(width), "length": optional(width)}
    function: Callable[..., Any] = ViT if image else LM
    arguments = {name: kind.make(generator) for name, kind in wanted.items()}
    return Call(f"{function.__name__}()", function, arguments, wanted, (), None)


def _build_lm(generator: random.Random) -> Call:
    wanted = {
        "tokens": integers(2, 4),
        "positions": optional(tensor(lambda g: torch.arange(4))),
        "mask": optional(tensor(lambda g: torch.ones(4, 4, dtype=torch.bool).tril())),
        "last": optional(Wanted(lambda g: 1, is_integer, "an integer")),
    }
    arguments = {name: kind.make(generator) for name, kind in wanted.items()}
    return Call("LM", _make_lm(), arguments, wanted, ("tokens",), lambda result, given: expect_finite(result))


def _build_grid(generator: random.Random) -> Call:
    count = generator.choice((1, 2, 3))
    wanted = {f"n{i}": INTEGER for i in range(count)} | {
        "coordinates": name_of(*positions.CONVENTIONS),
        "reference": optional(Wanted(lambda g: [2] * count, INTEGERS.takes, "integers")),
        "resolution": RESOLUTION,
        "dtype": DTYPE,
    }
    arguments = {name: kind.make(generator) for name, kind in wanted.items()}
    return Call("positions.grid", positions.grid, arguments, wanted, tuple(f"n{i}" for i in range(count)), _promise_grid)


def _build_rule(generator: random.Random) -> Call:
    kinds = sorted({**extension.RULES, **extension.AXES})
    values: dict[str, Any] = {
        "rope_type": generator.choice(kinds),
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "attention_factor": 1.1,
    }
    spec = dict(generator.sample(sorted(values.items()), generator.choice((1, 2, 3, 4)))) | {
        "rope_type": values["rope_type"]
    }
    if generator.random() < 0.7:
        spec[generator.choice(sorted(spec))] = make_odd_value(generator, None)
    wanted = {
        "parameters": Wanted(lambda g: spec, lambda value: value is None or isinstance(value, Mapping), "a dictionary"),
        "head_dim": Wanted(lambda g: 8, is_integer, "an integer"),
        "max_position_embeddings": optional(INTEGER),
        "rope_theta": optional(Wanted(lambda g: 1e4, is_number, "a number")),
        "partial_rotary_factor": optional(Wanted(lambda g: 0.5, is_number, "a number")),
        "framework": optional(name_of("transformers", "vllm", "mlx")),
    }
    arguments = {name: kind.make(generator) for name, kind in wanted.items()}

    def make(parameters: Any, **options: Any) -> Any:
        found = extension.options(parameters, **options)
        encoding = rw.create("rope", head_dim=options["head_dim"], **found)
        return encoding.at(128)(torch.arange(4))

    return Call("extension.options", make, arguments, wanted, ("parameters",), None)


ZERO = Wanted(lambda g: 0.0, is_number, "a number")
POINTS = floats(5, 2)
UNROTATED = Wanted(
    lambda g: g.choice((1, 2, (1, 2), [0, 3])),
    lambda value: is_integer(value) or (isinstance(value, list | tuple) and len(value) == 2 and all(map(is_integer, value))),
    "one or two integers",
)
GENERATOR = Wanted(lambda g: None, lambda value: value is None or isinstance(value, torch.Generator), "a generator")
WAVES = floats(2, 6, 2, dtype=torch.float64)

TARGETS |= {
    "encoding()": _build_encode,
    "code.qk": _build_use,
    "code.prefixed": _build_method("prefixed", {"q": INTEGER, "k": INTEGER}),
    "code.with_unrotated": _build_method("with_unrotated", {"q": UNROTATED, "k": UNROTATED}),
    "code[]": _build_method("__getitem__", {"layer": Wanted(lambda g: 0, is_integer, "an integer")}, ("layer",)),
    "code.qkv": _build_method("qkv", {"x": floats(2, 4, 6, 12), "heads": INTEGER}, ("x",)),
    "code.tokens": _build_method("tokens", {"x": floats(2, 4, 12)}, ("x",)),
    "attend": _build_attend,
    "create": _build_create,
    "ViT": _build_vit,
    "LM": _build_lm,
    "models": _build_model,
    "encoding.at": _build_encoding_method("at", {"length": either(INTEGER, INTEGERS)}, ("length",)),
    "encoding.grid": _build_encoding_method("grid", {"n": INTEGER, "dtype": optional(DTYPE)}, ("n",)),
    "positions.grid": _build_grid,
    "extension.options": _build_rule,
}
add_target("positions.sequence", positions.sequence, {"n": INTEGER, "start": INTEGER})
add_target("positions.packed", positions.packed, {"lengths": INTEGERS})
add_target("positions.segments", positions.segments, {"lengths": INTEGERS})
add_target("positions.padded", positions.padded, {"real": tensor(lambda g: torch.ones(2, 3, dtype=torch.bool))})
add_target(
    "positions.visible",
    positions.visible,
    {
        "places": integers(4),
        "key_places": optional(integers(6)),
        "window": optional(INTEGER),
        "owner": optional(integers(4)),
        "key_owner": optional(integers(6)),
    },
)
add_target(
    "positions.mrope",
    positions.mrope,
    {
        "one": either(INTEGER, Wanted(lambda g: (1, 2, 2), INTEGERS.takes, "integers")),
        "two": INTEGER,
        "interval": NUMBER,
        "resume": name_of("largest", "side"),
        "dtype": DTYPE,
    },
    positional=("one", "two"),
)
add_target(
    "positions.perturb",
    positions.perturb,
    {
        "positions": POINTS,
        "step": either(NUMBER, NUMBERS),
        "sigma": NUMBER,
        "variant": name_of("paper", "code"),
        "generator": GENERATOR,
    },
    promise=_promise_same_shape,
)
for _name in ("offset", "shift", "jitter", "rescale"):
    _amount = {"offset": "rho", "shift": "amount"}.get(_name, "factor")
    add_target(
        f"positions.{_name}",
        getattr(positions, _name),
        {"positions": POINTS, _amount: Wanted(lambda g: 1.5, is_number, "a number"), "generator": GENERATOR},
        promise=_promise_same_shape,
    )
add_target("validate", rw.validate, {"positions": POINTS})
add_target("spectra.geometric", spectra.geometric, {"count": INTEGER, "base": NUMBER, "over": optional(NUMBER)})
add_target("spectra.uniform", spectra.uniform, {"count": INTEGER, "frequency": NUMBER})
add_target("spectra.linear", spectra.linear, {"count": INTEGER, "fastest": NUMBER, "slowest": NUMBER})
add_target("spectra.first_quadrant", spectra.first_quadrant, {"n": INTEGER, "m": INTEGER}, positional=("n", "m"))
add_target(
    "spectra.random_frames", spectra.random_frames, {"lead": INTEGERS, "count": INTEGER, "axes": INTEGER, "base": NUMBER}
)
add_target("spectra.golden_directions", spectra.golden_directions, {"count": INTEGER, "axes": INTEGER})
add_target("spectra.span", spectra.span, {"waves": WAVES, "positions": POINTS})
add_target("spectra.with_span", spectra.with_span, {"waves": WAVES, "positions": POINTS, "radians": NUMBER})
for _name in ("to_interleaved", "to_half_split"):
    add_target(
        f"layouts.{_name}",
        getattr(layouts, _name),
        {
            "weight": floats(16, 8),
            "head_dim": Wanted(lambda g: 8, is_integer, "an integer"),
            "rotary_dim": optional(Wanted(lambda g: 4, is_integer, "an integer")),
        },
    )
add_target(
    "layouts.to_sections",
    layouts.to_sections,
    {
        "weight": floats(16, 8),
        "head_dim": Wanted(lambda g: 8, is_integer, "an integer"),
        "sections": INTEGERS,
        "source": name_of("interleaved", "half-split"),
    },
)
add_target(
    "layouts.convert",
    layouts.convert,
    {
        "state": Wanted(
            lambda g: {"q_proj.weight": torch.randn(16, 8), "k_proj.weight": torch.randn(16, 8)},
            lambda value: isinstance(value, Mapping),
            "a state dict",
        ),
        "head_dim": Wanted(lambda g: 8, is_integer, "an integer"),
        "to": name_of("interleaved", "half-split"),
        "heads": optional(Wanted(lambda g: 2, is_integer, "an integer")),
    },
)
for _name in ("apply_rotary", "apply_rotary_"):
    add_target(
        f"functional.{_name}",
        getattr(functional, _name),
        {
            "q": floats(2, 4, 5, 8),
            "k": optional(floats(2, 2, 5, 8)),
            "cos": floats(5, 4),
            "sin": floats(5, 4),
            "interleaved": FLAG,
            "layout": name_of("bhnd"),
            "prefix": Wanted(lambda g: 0, is_integer, "an integer"),
            "sections": optional(INTEGERS),
        },
        promise=_promise_rotary if _name == "apply_rotary" else None,
    )
_HALVES = tensor(lambda g: torch.ones(5, 8))
add_target("tables.from_transformers", tables.from_transformers, {"cos": _HALVES, "sin": _HALVES, "interleaved": FLAG})
add_target(
    "tables.from_flash_attn",
    tables.from_flash_attn,
    {
        "cos": floats(8, 4),
        "sin": floats(8, 4),
        "seqlen": optional(INTEGER),
        "seqlen_offsets": either(INTEGER, integers(2)),
    },
)
add_target("tables.from_timm", tables.from_timm, {"rope": tensor(lambda g: torch.ones(5, 16)), "half": FLAG})
add_target("tables.from_complex", tables.from_complex, {"freqs_cis": tensor(lambda g: torch.randn(5, 4) * 1j)})
add_target("from_config", from_config, {"config": Wanted(lambda g: pick_encoding(g).config(), MAPPING.takes, "a config")})
add_target("register", rw.register, {"kind": Wanted(lambda g: rw.Axial, lambda value: isinstance(value, type), "a class")})
add_target("chain", rw.chain, {"one": ENCODING, "two": ENCODING}, positional=("one", "two"))
add_target("fold", rw.fold, {"encoding": ENCODING, "tolerance": NUMBER})
add_target("theory.commutators", theory.commutators, {"encoding": ENCODING})
add_target("theory.rope_equation", theory.rope_equation, {"encoding": ENCODING, "pairs": INTEGER, "reach": NUMBER})
add_target("theory.spectrum", theory.spectrum, {"encoding": ENCODING, "layer": INTEGER, "head": INTEGER})
add_target("theory.parameters", theory.parameters, {"encoding": ENCODING})
add_target("theory.equivariance", theory.equivariance, {"encoding": ENCODING, "positions": POINTS, "shifts": NUMBERS})
add_target("theory.span", theory.span, {"encoding": ENCODING, "n": INTEGER, "m": INTEGER}, positional=("encoding", "n", "m"))
