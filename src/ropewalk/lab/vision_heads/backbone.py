"""What models that predict boxes, masks or classes of pixels share: a ViT without its head, and images of other sizes."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ropewalk.encoding import Encoding
from ropewalk.models import ViT


class DenseModel(nn.Module, ABC):
    """A model on top of the feature maps of a ViT; `resolution` is how positions in images of other sizes are computed."""

    def __init__(self, backbone: ViT) -> None:
        super().__init__()
        backbone.register_module("head", None)  # the class of the image is not predicted
        self.backbone, self.resolution = backbone, choose_resolution(backbone.encoding)

    @property
    def encoding(self) -> Encoding:
        """That of the ViT."""
        return self.backbone.encoding

    @abstractmethod
    def compiled_outputs(self, images: Tensor) -> list[Tensor]:
        """Outputs for images of the training size before post-processing, by the compiled part if there is one."""

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay: those of the ViT, norms and biases."""
        spared = {f"backbone.{name}" for name in self.backbone.no_weight_decay()}
        return spared | {name for name, parameter in self.named_parameters() if parameter.ndim < 2}


@torch.no_grad()
def choose_resolution(encoding: Encoding) -> str:
    """How positions in images of other sizes are computed: extrapolated if the encoding accepts them, else rescaled.

    Unlike for classification, another size here means a larger or smaller picture at the same scale, not a finer one.
    The encoding is tried on the first and the last patch of an image of twice the size.
    """
    if encoding.size is None:
        return "extrapolate"
    # Encodings do not declare whether they accept positions outside of their training grid; a call shows it.
    try:
        encoding(encoding.grid(*(2 * side for side in encoding.size), resolution="extrapolate")[[0, -1]])
    except ValueError:
        return "rescale"
    return "extrapolate"


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model itself, without the wrapper that averages it or synchronizes processes, which differ in their images."""
    return getattr(model, "module", model)
