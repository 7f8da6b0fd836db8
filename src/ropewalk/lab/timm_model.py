"""Models of timm in the lab: with the encoding of a run installed, and the interface of our own ViT."""

import copy
import difflib
import inspect
from typing import Any

import timm
import torch
from timm.models import is_model
from torch import Tensor, nn

from ropewalk.adapters.timm import install
from ropewalk.encoding import Encoding
from ropewalk.lab.config import Config
from ropewalk.lab.patch_grid import get_patch_sides
from ropewalk.positions import Resolution

TIMM_PREFIX = "timm:"
# Modules of timm with the models that take an encoding.
TIMM_MODULES = ["vision_transformer", "deit", "eva"]
TIMM_EXAMPLES = "expected a plain ViT of timm, such as timm:vit_tiny_patch16_224 or timm:vit_small_patch16_224"
# Arguments of `install` besides the options of an encoding.
INSTALL_OPTIONS = [name for name, each in inspect.signature(install).parameters.items() if each.kind is each.KEYWORD_ONLY]


class TimmModel(nn.Module):
    """A model of timm that takes positions as our ViT does."""

    def __init__(self, host: Any) -> None:
        super().__init__()
        self.host = host

    @property
    def encoding(self) -> Encoding:
        """The encoding that is installed."""
        found: Encoding = self.host.encoding
        return found

    @property
    def patch(self) -> tuple[int, ...]:
        """The sides of a patch."""
        sides: tuple[int, ...] = tuple(self.host.patch_embed.patch_size)
        return sides

    @property
    def absent_tensors(self) -> set[str]:
        """Names of tensors that timm's model has and this one was built without."""
        return {"host.pos_embed"} if self.host.pos_embed is None else set()

    def forward(self, images: Tensor, positions: Tensor | None = None, *, resolution: Resolution | None = None) -> Tensor:
        """Logits (B classes) of images (B channels rows columns), by default with the patches at their own positions."""
        if positions is None and resolution in (None, self.host.rope.rule.resolution):
            return self.host(images)
        with self.host.rope.placed(positions, resolution):
            return self.host(images)

    def with_encoding(self, encoding: Encoding) -> "TimmModel":
        """The same model, sharing all weights, with another encoding of its kind."""
        other, host, rope = copy.copy(self), copy.copy(self.host), copy.copy(self.host.rope)
        rope._modules = {**rope._modules, "encoding": encoding}
        host._modules = {**host._modules, "rope": rope}
        other._modules = {"host": host}
        return other

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: timm's choice, the encoding's, norms, gains and biases."""
        spared = {f"host.{name}" for name in self.host.no_weight_decay()}
        return spared | {name for name, parameter in self.named_parameters() if parameter.ndim < 2}


def build_timm_model(
    config: Config, options: dict[str, Any], *, size: tuple[int, ...], channels: int, classes: int
) -> TimmModel:
    """The model of a run, its weights drawn from the seed: for every encoding the same ones but for the encoding's own."""
    name = parse_timm_name(config)
    _check_timm_settings(config, options, size)
    made: dict[str, Any] = {
        "img_size": size,
        "patch_size": get_patch_sides(config.patch, 2),
        "in_chans": channels,
        "num_classes": classes,
    }
    torch.manual_seed(config.seed)
    drops: dict[str, Any] = {"drop_path_rate": config.drop_path, "drop_rate": config.dropout}
    try:
        host = timm.create_model(name, **made, **drops, dynamic_img_size=True)
    except TypeError as error:
        raise ValueError(
            f"{config.model} is no vision transformer that can be built for a patch and an image size; {TIMM_EXAMPLES}"
        ) from error
    torch.manual_seed(config.seed)
    return TimmModel(install(host, config.encoding, drop_table=bool(config.drop_table), **options))


def _check_timm_settings(config: Config, options: dict[str, Any], size: tuple[int, ...]) -> None:
    """Refuse settings that would change more than the encoding, or nothing."""
    if len(size) != 2:
        raise ValueError(f"{config.model} takes images of two axes, got a size of {' × '.join(map(str, size))}")
    if config.registers:
        raise ValueError(f"{config.model} has registers of its own, if any: registers must be 0, got {config.registers}")
    if taken := [name for name in INSTALL_OPTIONS if name in options]:
        wanted = "options must be the encoding's: settings of the run drop the table and move patches"
        raise ValueError(f"{wanted}; {config.encoding} got {', '.join(taken)}")


def parse_timm_name(config: Config) -> str:
    """timm's name of the model in the settings, if there is such a model."""
    given = str(config.model)
    if not given.startswith(TIMM_PREFIX):
        close = f". Did you mean '{TIMM_PREFIX}{given}'?" if is_model(given) else f"; {TIMM_EXAMPLES}"
        raise ValueError(f"model must be none, for our own ViT, or timm:NAME, got {given!r}{close}")
    name = given.removeprefix(TIMM_PREFIX)
    if not is_model(name):
        known = timm.list_models(module=TIMM_MODULES)
        longer = [each for each in known if each.startswith(name)]
        similar = [f"'{TIMM_PREFIX}{each}'" for each in (longer or difflib.get_close_matches(name, known))[:3]]
        hint = f". Did you mean {', '.join(similar)}?" if similar else f"; {TIMM_EXAMPLES}"
        raise ValueError(f"timm has no model named {name!r}{hint}")
    return name
