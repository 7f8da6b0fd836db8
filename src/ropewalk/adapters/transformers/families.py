"""Where the models of transformers have what an encoding needs: one entry for each kind of model."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

from torch import nn


@dataclass(frozen=True)
class Family:
    """One kind of model.

    rotary     The class of its rotary embedding.
    place      The attribute of the model under which that is.
    layers     The path from the model to its layers.
    attention  The attribute of a layer with its attention.
    axes       Of its positions: 1 for texts, 2 for images.
    partial    Whether its config may ask for a rotation of a part of the channels.
    """

    rotary: str
    place: str = "rotary_emb"
    layers: str = "layers"
    attention: str = "self_attn"
    axes: int = 1
    partial: bool = False


FAMILIES = {
    "llama": Family("LlamaRotaryEmbedding"),
    "qwen3": Family("Qwen3RotaryEmbedding"),
    "mistral": Family("MistralRotaryEmbedding"),
    "gemma3_text": Family("Gemma3RotaryEmbedding"),
    "gpt_neox": Family("GPTNeoXRotaryEmbedding", attention="attention", partial=True),
    "dinov3_vit": Family(
        "DINOv3ViTRopePositionEmbedding", place="rope_embeddings", layers="model.layer", attention="attention", axes=2
    ),
}


class Host(NamedTuple):
    """The part of a model that has the layers and the rotary embedding, and what is known of its kind."""

    base: Any
    family: Family

    @property
    def config(self) -> Any:
        """The config of the model."""
        return self.base.config

    @property
    def rotary(self) -> nn.Module:
        """What stands where the rotary embedding was, or is."""
        return getattr(self.base, self.family.place)

    @property
    def layers(self) -> list[nn.Module]:
        """The layers, in their order."""
        return list(self.base.get_submodule(self.family.layers))

    @property
    def attentions(self) -> list[nn.Module]:
        """The attention of each layer."""
        return [getattr(layer, self.family.attention) for layer in self.layers]

    @property
    def modelling(self) -> ModuleType:
        """The file that the model is written in."""
        return sys.modules[type(self.base).__module__]

    @property
    def shape(self) -> dict[str, Any]:
        """What every encoding is made for."""
        config = self.config
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        return {"head_dim": head_dim, "heads": heads, "kv_heads": getattr(config, "num_key_value_heads", None)}

    @property
    def layer_types(self) -> list[str]:
        """The types of layers that have rotary embeddings of their own, or none."""
        nested = isinstance(next(iter((getattr(self.config, "rope_parameters", None) or {}).values()), None), dict)
        return sorted(set(self.config.layer_types)) if nested else []


def hosts(model: nn.Module) -> Iterator[Host]:
    """All parts of a model that can have an encoding."""
    for module in model.modules():
        family = FAMILIES.get(getattr(getattr(module, "config", None), "model_type", ""))
        place = None if family is None else module._modules.get(family.place)
        if family is not None and place is not None:
            yield Host(module, family)


def find(model: nn.Module) -> Host:
    """The one part of a model that can have an encoding."""
    found = list(hosts(model)) if isinstance(model, nn.Module) else []
    if len(found) == 1 and getattr(model, "config", found[0].config) is found[0].config:
        return found[0]
    wanted = f"a model of transformers of one of the kinds {', '.join(FAMILIES)}"
    raise TypeError(f"an encoding can be installed in {wanted}, got {type(model).__name__}")
