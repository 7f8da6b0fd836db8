"""What models of dense tasks have in common: a ViT without its head, and how they take images of other sizes."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ropewalk.encoding import Encoding
from ropewalk.models import ViT


class DenseModel(nn.Module, ABC):
    """A model that goes on from the maps of a ViT; `resolution` is how that counts places."""

    def __init__(self, backbone: ViT) -> None:
        super().__init__()
        backbone.register_module("head", None)  # nobody asks for the class of the image
        self.backbone, self.resolution = backbone, choose_resolution(backbone.encoding)

    @property
    def encoding(self) -> Encoding:
        """That of the ViT."""
        return self.backbone.encoding

    @abstractmethod
    def compiled_outputs(self, images: Tensor) -> list[Tensor]:
        """What it makes of images of the size of training before anything is found, by what is compiled, if it is."""

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay would spoil: those of the ViT, norms and biases."""
        spared = {f"backbone.{name}" for name in self.backbone.no_weight_decay()}
        return spared | {name for name, parameter in self.named_parameters() if parameter.ndim < 2}


@torch.no_grad()
def choose_resolution(encoding: Encoding) -> str:
    """How places are counted in images of other sizes: on and on, where an encoding takes them; else within its table.

    It is asked for the first and the last patch of an image of twice the size. At the size of training both are alike.
    """
    if encoding.size is None:
        return "extrapolate"
    try:
        encoding(encoding.grid(*(2 * side for side in encoding.size))[[0, -1]])
    except ValueError:
        return "rescale"
    return "extrapolate"


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model itself, out of what averages it or keeps processes in step: they do not all have as many images."""
    return getattr(model, "module", model)
