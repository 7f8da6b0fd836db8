"""An encoding into a model, and out of it again."""

import copy
from typing import Any, TypeVar

import torch
from torch import nn

from ropewalk.adapters.transformers import apply_rotary
from ropewalk.adapters.transformers.building import Asked, Made, build
from ropewalk.adapters.transformers.code_state import EAGER, FUSED, Begin, Choose
from ropewalk.adapters.transformers.config_io import marked, ours, plain_config, says_folded
from ropewalk.adapters.transformers.embedding import ImagePositions, Positions, TextPositions, by_length, started
from ropewalk.adapters.transformers.families import Host, find
from ropewalk.code import Code, Rotary
from ropewalk.encoding import Encoding

Model = TypeVar("Model", bound=nn.Module)


def install(model: Model, encoding: Asked = None, **options: Any) -> Model:
    """Change the positional encoding of a model of transformers, in place, and return the model.

    model     Llama, Qwen3, Mistral, Gemma 3 (text), GPT-NeoX or DINOv3 (ViT), with or without a head.
    encoding  An encoding; a name, with its `options`; a dictionary of either for each type of layers, where a model
              has several; or None for what the config says, which computes what the model did. Heads, channels and
              the like are the model's unless options say otherwise; all layers share parameters unless `layers` is
              their number.

    What was installed before is replaced. The encoding's parameters are the model's from now on, in float32, and its
    config says what to save it as (`config.ropewalk`), unless it is still what the config said. A folded model takes no
    encoding but the one that it has.
    """
    host = find(model)
    before = plain_config(host)
    made = build(host, encoding, before, options)
    folded = _refuse_others(host, made) or says_folded(encoding)
    for part in _each(made):
        started(part)
    _take_out(model)
    plain = encoding is None and not options
    config = copy.deepcopy(before) if plain else marked(before, made, folded=folded)
    place(model, made, before, config, folded=folded)
    return model


def uninstall(model: Model) -> Model:
    """Give a model back what it had before `install`: its rotary embedding, its config, its attention. Returns the model.

    A model that was folded is refused: its own rotation is another one in the basis that its weights hold.
    """
    _refuse_others(find(model), None)
    return _take_out(model)


def _take_out(model: Model) -> Model:
    host = find(model)
    here = host.rotary
    if isinstance(here, Positions):
        for module in (*host.attentions, *host.layers[:1]):
            _unhook(module)
        config = plain_config(host)
        setattr(host.base, host.family.place, here.host)
        swap(model, host.config, config)
    return model


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


def installed(model: nn.Module) -> Made | None:
    """The encoding of a model, or those of its types of layers, or None if there is none of ours."""
    here = find(model).rotary
    return here.own if isinstance(here, Positions) else None


def remark(model: nn.Module) -> None:
    """Write the encoding that a model has now into its config."""
    host = find(model)
    here = host.rotary
    assert isinstance(here, Positions)
    config = marked(plain_config(host), here.own, folded=here.folded)
    config._attn_implementation = host.config._attn_implementation
    swap(model, host.config, config)
    _hook(host, here)


def place(model: nn.Module, made: Made, before: Any, config: Any, *, folded: bool) -> None:
    """Put encodings in their place in a model that has none, and a config in the place of its own."""
    host = find(model)
    apply_rotary.teach(host.modelling)
    kind = TextPositions if host.family.axes == 1 else ImagePositions
    device = next(iter(host.base.parameters())).device
    positions = kind(made, host.rotary, len(host.layers), before, folded=folded).train(host.base.training)
    setattr(host.base, host.family.place, positions if device.type == "meta" else positions.to(device))
    swap(model, host.config, config)
    if any(_code(encoding).biased for encoding in _each(made)):
        host.config._attn_implementation = ours(host.config._attn_implementation)
    _hook(host, positions)


def _each(made: Made) -> list[Encoding]:
    return [made] if isinstance(made, Encoding) else list(made.values())


def _hook(host: Host, positions: Positions) -> None:
    """Hooks where layers need more than one code for all of them."""
    for module in (*host.attentions, *host.layers[:1]):
        _unhook(module)
    positions.light = host.config._attn_implementation not in (EAGER, FUSED) and all(map(_light, _each(positions.own)))
    if positions.light:
        return
    host.layers[0].register_forward_pre_hook(Begin(), with_kwargs=True)
    for layer, attention in enumerate(host.attentions):
        attention.register_forward_pre_hook(Choose(layer), with_kwargs=True)


def _unhook(module: nn.Module) -> None:
    for key in [key for key, hook in module._forward_pre_hooks.items() if isinstance(hook, Begin | Choose)]:
        del module._forward_pre_hooks[key]
        module._forward_pre_hooks_with_kwargs.pop(key, None)


def swap(model: nn.Module, old: Any, new: Any) -> None:
    """Another config wherever a model has this one."""
    for module in model.modules():
        if not isinstance(module, Positions) and vars(module).get("config") is old:
            module.config = new


def _light(encoding: Encoding) -> bool:
    """Whether it turns q and k of all layers alike, and does nothing else."""
    return isinstance(_code(encoding), Rotary) and encoding.layers is None and next(encoding.parameters(), None) is None


def _code(encoding: Encoding) -> Code:
    """The code of one token."""
    whole = encoding.at(1) if by_length(encoding) else encoding
    with torch.no_grad():
        return whole(whole.grid(*[1] * whole.axes))
