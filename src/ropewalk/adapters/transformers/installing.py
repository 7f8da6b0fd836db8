"""Install an encoding in a model of transformers, and uninstall it."""

import copy
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from ropewalk.adapters.offloading import computing_device
from ropewalk.adapters.transformers import rebinding
from ropewalk.adapters.transformers.building import Asked, Made, build
from ropewalk.adapters.transformers.code_state import EAGER, FUSED, Begin, Choose
from ropewalk.adapters.transformers.config_io import marked, ours, plain_config, says_folded, unmarked
from ropewalk.adapters.transformers.embedding import (
    Follower,
    IdPositions,
    ImagePositions,
    Positions,
    settle_for_trial,
    started,
)
from ropewalk.adapters.transformers.host_use import HostUse, read_use
from ropewalk.adapters.transformers.hosts import Host, describe_missing, each_attention, find, find_hosts, is_rotary
from ropewalk.adapters.transformers.native import inspect_host
from ropewalk.adapters.transformers.probing import HostRefusedError
from ropewalk.adapters.transformers.weight_decay import spare_encodings
from ropewalk.code import Code, Rotary
from ropewalk.encoding import Encoding

Model = TypeVar("Model", bound=nn.Module)


def install(
    model: Model, encoding: Asked = None, *, tower: str | None = None, describe: bool = False, **options: Any
) -> Model:
    """Change the positional encoding of a model of transformers, in place, and return the model.

    model     A model with a rotary embedding: a decoder, an encoder, a vision or audio tower, or a composite of these. Its
              own rotation is measured first; the call raises if no encoding reproduces it.
    encoding  An encoding; the name of one, with its `options`; a dictionary of either by layer type, if the model has
              several; or None to keep the model's own, with `options` such as `learned=True`. Numbers of heads and
              channels are those of the model unless options set them; all layers share parameters unless `layers` is
              the number of layers.
    tower     Module path of one part of a composite model, such as "model.visual" or "model.language_model". By default
              `encoding=None` covers all parts; any other encoding needs it if there are several.
    describe  Print what was found and installed, one line per part.

    An encoding that was installed before is replaced. Parameters of the encoding are registered in the model, in float32,
    and `config.ropewalk` describes it for saving, unless it is what the original config describes. A folded model accepts
    only the encoding that it has.
    """
    several = find_hosts(model) if tower is None and encoding is None and isinstance(model, nn.Module) else []
    hosts = several if len(several) > 1 else [find(model, tower)]
    plans = []
    for host in hosts:
        plans.append(_plan(host, encoding, options, alone=len(hosts) == 1))
    for host, plan in zip(hosts, plans, strict=True):
        _carry_out(model, host, plan)
        if describe:
            print(describe_host(find(model, host.path, host.key)))
    return model


class Plan(NamedTuple):
    """What goes into a host: nothing of a model is changed before all its hosts have one."""

    made: Made
    use: HostUse
    folded: bool
    plain: bool


def _plan(host: Host, encoding: Asked, options: dict[str, Any], *, alone: bool) -> Plan:
    try:
        about = inspect_host(host)
        made = build(host, about, encoding, unmarked(plain_config(host)), options)
    except HostRefusedError as error:
        others = "" if alone else "; use tower= to install in another part of the model alone"
        raise HostRefusedError(f"{host.named}: {error}{others}") from error
    folded = _refuse_others(host, made) or says_folded(encoding)
    return Plan(made, read_use(host, about, made), folded, plain=encoding is None and not options)


def _carry_out(model: nn.Module, host: Host, plan: Plan) -> None:
    for part in _each(plan.made):
        started(part)
    _take_out(model, host)
    host = find(model, host.path, host.key)
    before = host.config
    config = copy.deepcopy(before) if plan.plain else marked(before, plan.made, host, plan.use, folded=plan.folded)
    place(model, host, plan.use, plan.made, before, config, folded=plan.folded)


def describe_host(host: Host) -> str:
    """What a part of a model has, in a line."""
    here = host.rotary
    assert isinstance(here, Positions)
    parts = here.own if isinstance(here.own, dict) else {"": here.own}
    shown = "; ".join(
        f"{kind}: {each.name}, {each.summary()}" if kind else f"{each.name}, {each.summary()}"
        for kind, each in parts.items()
    )
    return f"{host.named}: {len(host.attentions)} layers, positions as {here.use.ids}, now {shown}"


def uninstall(model: Model) -> Model:
    """Restore the rotary embedding, config and attention that a model had before `install`. Returns the model.

    Raises for a folded model: its weights are in another basis, in which its own rotation is a different one.
    """
    found = find_hosts(model) if isinstance(model, nn.Module) else []
    if not found:
        raise TypeError(f"{describe_missing(model)}, got {type(model).__name__}")
    for host in found:
        _refuse_others(host, None)
    for host in reversed(found):  # parts that share a config were marked in their order
        _take_out(model, host)
    return model


def _take_out(model: nn.Module, host: Host) -> None:
    here = host.rotary
    if not isinstance(here, Positions):
        return
    _unhook(host)
    config = plain_config(host)
    for owner, name in host.places:
        setattr(owner, name, getattr(owner, name).host)
    others = [other for other in find_hosts(model) if isinstance(other.rotary, Positions)]
    kept = {id(attention) for other in others for attention in each_attention(other)}
    for attention in each_attention(host):
        if id(attention) not in kept:
            rebinding.restore(attention)
    swap(model, host.config, config)


def _refuse_others(host: Host, made: Made | None) -> bool:
    """Whether a model is folded; then refuse all but the encoding that it has. None is the model's own rotation."""
    here = host.rotary
    if not isinstance(here, Positions) or not here.folded:
        return False
    if not _same(here.own, made):
        wanted = "the weights of q and k hold the basis of a folded encoding, and go with this alone and its parameters"
        came = "the rotation of the model itself" if made is None else f"another one, {_named(made)}"
        raise ValueError(f"{wanted}, {_named(here.own)}, got {came}: begin with the model as it was before it was folded")
    return True


def _named(made: Made) -> str:
    return repr(made.name) if isinstance(made, Encoding) else "one for each type of layers"


def _same(one: Made, other: Made | None) -> bool:
    """Whether they have the same options and the same parameters."""
    if not isinstance(one, Encoding) or not isinstance(other, Encoding) or one.config() != other.config():
        return False
    values = other.state_dict()
    return all(torch.equal(value.cpu(), values[name].cpu()) for name, value in one.state_dict().items())


def installed(model: nn.Module) -> Any:
    """The installed encoding of a model, a dictionary of encodings by layer type, or None if none is installed.

    For a model with several parts, a dictionary of these by module path, without parts that have no encoding installed.
    """
    found = find_hosts(model) if isinstance(model, nn.Module) else []
    if not found:
        raise TypeError(f"{describe_missing(model)}, got {type(model).__name__}")
    paths = [host.path for host in found]
    names = [host.path if paths.count(host.path) == 1 else f"{host.path}:{host.places[0][1]}" for host in found]
    here = {name: host.rotary.own for name, host in zip(names, found, strict=True) if isinstance(host.rotary, Positions)}
    return next(iter(here.values()), None) if len(found) == 1 else here or None


def remark(model: nn.Module, tower: str | None = None) -> None:
    """Write the encoding that a model has now into its config."""
    host = find(model, tower)
    here = host.rotary
    assert isinstance(here, Positions)
    config = marked(plain_config(host), here.own, host, here.use, folded=here.folded)
    config._attn_implementation = host.config._attn_implementation
    swap(model, host.config, config)
    _hook(host, here)


def place(model: nn.Module, host: Host, use: HostUse, made: Made, before: Any, config: Any, *, folded: bool) -> None:
    """Put encodings in their place in a host that has none, and a config in the place of its own."""
    kind = ImagePositions if use.ids == "pixels" else IdPositions
    positions = kind(made, host.rotary, len(host.attentions), before, use, folded=folded)
    positions.train(host.base.training)
    device = computing_device(host.base)
    (owner, attribute), *others = host.places
    if any(owner is attention for attention in host.attentions):
        positions.layer = 0
        if any(_code(encoding).biased for encoding in _each(made)):
            raise ValueError(f"attention of {host.named} makes its rotation itself and takes nothing that adds to logits")
    setattr(owner, attribute, positions if device.type == "meta" else positions.to(device))
    for layer, (module, name) in enumerate(others, start=1):
        assert isinstance(positions, IdPositions)
        setattr(module, name, Follower(positions, getattr(module, name), layer))
    for attention in each_attention(host):
        kinds = [kind.__name__ for kind in rebinding.host_class(attention).__mro__]
        usages = next((use.usages[kind] for kind in kinds if kind in use.usages), ())
        if usages:
            rebinding.rebind(attention, usages)
    swap(model, host.config, config)
    if any(True for encoding in _each(made) for _ in encoding.parameters()):
        spare_encodings()
    if any(_code(encoding).biased for encoding in _each(made)):
        host.config._attn_implementation = ours(host.config._attn_implementation)
    _hook(host, positions)


def _each(made: Made) -> list[Encoding]:
    return [made] if isinstance(made, Encoding) else list(made.values())


def _hook(host: Host, positions: Positions) -> None:
    """Hooks where layers need more than one code for all of them."""
    _unhook(host)
    positions.light = host.config._attn_implementation not in (EAGER, FUSED) and all(map(_light, _each(positions.own)))
    uses = [usage for module in each_attention(host) for usage in getattr(type(module), "usages", ())]
    positions.few = positions.use.ids == "tokens" and all(usage[1:] == (2, -2, 0, None) for usage in uses)
    if positions.light:
        return
    host.layers[0].register_forward_pre_hook(Begin(host.key), with_kwargs=True)
    for layer, attention in enumerate(host.attentions):
        attention.register_forward_pre_hook(Choose(host.key, layer), with_kwargs=True)


def _unhook(host: Host) -> None:
    for module in (*host.attentions, *host.layers[:1]):
        hooks = module._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, Begin | Choose) and hook.owner == host.key]:
            del hooks[key]
            module._forward_pre_hooks_with_kwargs.pop(key, None)


def swap(model: nn.Module, old: Any, new: Any) -> None:
    """Another config wherever a model has this one, also as a part of another config."""
    if old is new:
        return
    for module in model.modules():
        if vars(module).get("config") is old and not is_rotary(
            module
        ):  # which computes with the config that it was made with
            module.config = new
    wholes = {id(config): config for module in model.modules() if (config := vars(module).get("config")) is not None}
    for whole in wholes.values():
        names = [name for name, value in getattr(whole, "__dict__", {}).items() if value is old]
        if names:
            other = copy.copy(whole)
            for name in names:
                setattr(other, name, new)
            swap(model, whole, other)


def _light(encoding: Encoding) -> bool:
    """Whether it turns q and k of all layers alike, and does nothing else."""
    return isinstance(_code(encoding), Rotary) and encoding.layers is None and next(encoding.parameters(), None) is None


def _code(encoding: Encoding) -> Code:
    """The code of one token."""
    whole = settle_for_trial(encoding)
    with torch.no_grad():
        return whole(whole.grid(*[1] * whole.axes, resolution="extrapolate"))
