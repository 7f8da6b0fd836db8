"""An encoding into a model, and out of it again."""

import copy
from typing import Any, TypeVar

import torch
from torch import nn

from ropewalk.adapters.transformers import turning
from ropewalk.adapters.transformers.building import Asked, Made, build
from ropewalk.adapters.transformers.carrying import EAGER, FUSED, Begin, Choose
from ropewalk.adapters.transformers.embedding import ImagePositions, Positions, TextPositions, by_length, started
from ropewalk.adapters.transformers.families import Host, find
from ropewalk.adapters.transformers.marking import marked, unmarked
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
    config says what to save it as (`config.ropewalk`), unless it is still what the config said.
    """
    host = find(model)
    before = plain_config(host)
    made = build(host, encoding, before, options)
    for part in [made] if isinstance(made, Encoding) else made.values():
        started(part)
    uninstall(model)
    plain = encoding is None and not options
    place(model, made, before, copy.deepcopy(before) if plain else marked(before, made))
    return model


def uninstall(model: Model) -> Model:
    """Give a model back what it had before `install`: its rotary embedding, its config, its attention. Returns the model."""
    host = find(model)
    here = host.rotary
    if isinstance(here, Positions):
        for module in (*host.attentions, *host.layers[:1]):
            _unhook(module)
        config = plain_config(host)
        setattr(host.base, host.family.place, here.host)
        _swap(model, host.config, config)
    return model


def plain_config(host: Host) -> Any:
    """The config of a model as it is now, without what `install` wrote; the very same one if nothing else has changed."""
    here = host.rotary
    if not isinstance(here, Positions):
        return host.config
    now, was = unmarked(host.config), here.host_config
    if now._attn_implementation in (EAGER, FUSED):
        now._attn_implementation = was._attn_implementation
    same = now.to_dict() == was.to_dict() and now._attn_implementation == was._attn_implementation
    return was if same else now


def installed(model: nn.Module) -> Made | None:
    """The encoding of a model, or those of its types of layers, or None if there is none of ours."""
    here = find(model).rotary
    return here.own if isinstance(here, Positions) else None


def remark(model: nn.Module) -> None:
    """Write the encoding that a model has now into its config."""
    host, made = find(model), installed(model)
    assert made is not None
    config = marked(plain_config(host), made)
    config._attn_implementation = host.config._attn_implementation
    _swap(model, host.config, config)


def place(model: nn.Module, made: Made, before: Any, config: Any) -> None:
    """Put encodings in their place in a model that has none, and a config in the place of its own."""
    host = find(model)
    turning.teach(host.modelling)
    kind = TextPositions if host.family.axes == 1 else ImagePositions
    device = next(iter(host.base.parameters())).device
    positions = kind(made, host.rotary, len(host.layers), before).train(host.base.training)
    setattr(host.base, host.family.place, positions if device.type == "meta" else positions.to(device))
    _swap(model, host.config, config)
    _hook(host)
    if any(_biased(encoding) for encoding in ([made] if isinstance(made, Encoding) else made.values())):
        eager = host.config._attn_implementation == "eager"
        host.config._attn_implementation = EAGER if eager else FUSED


def _hook(host: Host) -> None:
    host.layers[0].register_forward_pre_hook(Begin(), with_kwargs=True)
    for layer, attention in enumerate(host.attentions):
        attention.register_forward_pre_hook(Choose(layer), with_kwargs=True)


def _unhook(module: nn.Module) -> None:
    for key in [key for key, hook in module._forward_pre_hooks.items() if isinstance(hook, Begin | Choose)]:
        del module._forward_pre_hooks[key]
        module._forward_pre_hooks_with_kwargs.pop(key, None)


def _swap(model: nn.Module, old: Any, new: Any) -> None:
    """Another config wherever a model has this one."""
    for module in model.modules():
        if not isinstance(module, Positions) and vars(module).get("config") is old:
            module.config = new


def _biased(encoding: Encoding) -> bool:
    """Whether it adds to the logits."""
    whole = encoding.at(1) if by_length(encoding) else encoding
    with torch.no_grad():
        return whole(whole.grid(*[1] * whole.axes)).biased
