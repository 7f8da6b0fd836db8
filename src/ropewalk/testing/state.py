"""Checks of what an encoding is made of: it survives copies, saving, casts, and a start on the meta device."""

import copy
import json

import torch
from torch import Tensor, nn

from ropewalk.encoding import Encoding, config_name
from ropewalk.testing.behaviour import refused
from ropewalk.testing.case import Logits, close, leaves, like, points, ready, seeded, single


def check_state_dict(encoding: Encoding) -> None:
    """Its state dict holds its parameters, and another instance that loads it answers alike."""
    saved, p = ready(encoding), points(encoding, 6)
    other = like(encoding).double()
    other.load_state_dict(saved.state_dict())
    assert set(saved.state_dict()) == {name for name, _ in saved.named_parameters()}, "buffers are not to be saved"
    close(Logits(other).at(p), Logits(saved).at(p), "the saved and the loaded instance", atol=0.0)


def check_copy(encoding: Encoding) -> None:
    """A deep copy answers alike and is independent."""
    mine, p = ready(encoding), points(encoding, 6)
    before, other = Logits(mine).at(p), copy.deepcopy(mine)
    close(Logits(other).at(p), before, "an instance and its copy", atol=0.0)
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            tensor.add_(1.0)
    close(Logits(mine).at(p), before, "an instance before and after its copy was changed", atol=0.0)


def check_config(encoding: Encoding) -> None:
    """`config()` is JSON that builds its like, and so does its repr where no option is too long for it."""
    config = json.loads(json.dumps(encoding.config()))
    name = config_name(type(encoding))
    assert config.pop("name") == name, f"config() must name {name!r}"
    kind, p = type(encoding), points(encoding, 6).float()
    ways = {"config()": lambda: kind(**config), "the repr": lambda: eval(repr(encoding), {kind.__name__: kind})}
    if "..." in (encoding.shown(option) for option in config):
        del ways["the repr"]
    for what, build in ways.items():
        rebuilt = build()
        assert rebuilt.config() == encoding.config(), f"{what} rebuilds {rebuilt!r}, not {encoding!r}"
        rebuilt.load_state_dict(encoding.state_dict())
        close(_narrow(rebuilt, p), _narrow(encoding, p), f"an instance and what {what} rebuilds", atol=0.0)


def check_meta(encoding: Encoding) -> None:
    """Built on the meta device, it is materialized by `reset_parameters()`, or by loading and then rebuilding buffers."""
    p = points(encoding, 6).float()
    with torch.device("meta"):
        built = like(encoding)
    assert all(t.is_meta for t in (*built.parameters(), *built.buffers())), "the meta device was not respected"
    reset = _poisoned(built)
    with seeded():
        reset.reset_parameters()
    with seeded():
        anew = like(encoding)
    close(_narrow(reset, p), _narrow(anew, p), "an instance reset and one built anew", atol=0.0)
    loaded, source = _poisoned(built), ready(encoding, torch.float32)
    loaded.load_state_dict(source.state_dict())
    loaded.init_non_persistent_buffers()
    close(_narrow(loaded, p), _narrow(source, p), "an instance loaded after meta, and its source", atol=0.0)


def check_emptied(encoding: Encoding) -> None:
    """Inside another module it leaves the meta device by `to_empty()`: buffers are exact, and parameters are refused until
    they were drawn, loaded, assigned or written to."""
    p, source = points(encoding, 6).float(), ready(encoding, torch.float32)
    expected = _narrow(source, p)

    def emptied() -> nn.Module:
        with torch.device("meta"):
            made = nn.ModuleDict({"inner": nn.Sequential(like(encoding))})
        return made.to_empty(device="cpu")

    def inside(model: nn.Module) -> Encoding:
        (found,) = (
            child for child in model.modules() if isinstance(child, Encoding) and child.config() == encoding.config()
        )
        return found

    saved = {f"inner.0.{name}": value for name, value in source.state_dict().items()}
    if saved:
        refused(lambda: inside(emptied())(p), RuntimeError, "parameters that nobody drew or loaded")
    for way in ("loaded", "written to", "assigned"):
        if way == "assigned":
            with torch.device("meta"):
                model: nn.Module = nn.ModuleDict({"inner": nn.Sequential(like(encoding))})
        else:
            model = emptied()
        if way == "written to":
            for name, parameter in model.named_parameters():
                parameter.data.copy_(saved[name])
        else:
            model.load_state_dict({name: value.clone() for name, value in saved.items()}, assign=way == "assigned")
        try:
            answer = _narrow(inside(model), p)
        except RuntimeError as error:
            raise AssertionError(f"an instance whose parameters were {way} after meta is refused: {error}") from error
        close(answer, expected, f"an instance whose parameters were {way} after meta, and its source", atol=0.0)


def _narrow(encoding: Encoding, p: Tensor) -> Tensor:
    return Logits(encoding, torch.float32).at(p)


def _poisoned(encoding: Encoding) -> Encoding:
    real = copy.deepcopy(encoding).to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*real.parameters(), *real.buffers()):
            tensor.fill_(float("nan"))
    return real


def check_casts(encoding: Encoding) -> None:
    """Casts to bfloat16 and half change neither it nor its codes; `.double()` makes it exact in float64."""
    p = points(encoding, 6).float()
    plain = ready(encoding, torch.float32)
    expected = leaves(plain(p))
    for cast in (torch.bfloat16, torch.float16):
        narrow = copy.deepcopy(plain).to(cast)
        for name, leaf in leaves(narrow(p)).items():
            close(leaf, expected[name], f"{name} before and after a cast to {cast}", atol=0.0)
        ours, theirs = (_answers(instance, p, cast) for instance in (narrow, plain))
        for name, answer in ours.items():
            close(answer, theirs[name], f"{name} in {cast} before and after a cast of the encoding", atol=0.0)
            assert name == "scores" or answer.dtype == cast, f"{name} in {cast} became {answer.dtype}"
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        built = like(encoding)
    finally:
        torch.set_default_dtype(default)
    built.load_state_dict(ready(encoding).state_dict())
    wide = Logits(ready(copy.deepcopy(encoding))).at(p.double())
    close(wide, Logits(built).at(p.double()), "an instance cast to float64 and one built in it", atol=0.0)


def check_autocast(encoding: Encoding) -> None:
    """Autocast to bfloat16 changes neither its codes nor what they do to q and k."""
    instance, p = ready(encoding, torch.float32), points(encoding, 6).float()
    plain, answers = leaves(instance(p)), _answers(instance, p, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        for name, leaf in leaves(instance(p)).items():
            close(leaf, plain[name], f"{name} with and without autocast", atol=0.0)
        for name, answer in _answers(instance, p, torch.float32).items():
            close(answer, answers[name], f"{name} with and without autocast", atol=0.0)


def _answers(encoding: Encoding, p: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Its code applied to random tokens, queries and keys."""
    logits, code = Logits(encoding, dtype), encoding(p)
    one, generator = single(code)[-1], torch.Generator().manual_seed(6)
    q = torch.randn(2, encoding.heads, 6, encoding.head_dim, generator=generator).to(dtype)
    k = q[:, : logits.kv_heads]
    found = {"tokens": code.tokens(logits.tokens(6)), "q": one.q(q), "k": one.k(k), "scores": one.scores(q, k)}
    return {name: value for name, value in found.items() if value is not None}
