"""Two views of a batch that all operations share: one number a sample, and one index a sample and place."""

from torch import Tensor


def per_sample(values: Tensor, images: Tensor) -> Tensor:
    """Values (B,) so that they broadcast over images (B …)."""
    return values.view(-1, *[1] * (images.ndim - 1))


def along(values: Tensor, images: Tensor, dim: int) -> Tensor:
    """Values (B, n) so that they broadcast over images (B …) whose dimension `dim` has length n."""
    shape = [1] * images.ndim
    shape[0], shape[dim] = values.shape
    return values.view(shape)


def take(images: Tensor, dim: int, source: Tensor) -> Tensor:
    """Images whose place j along a dimension is the old place source[b, j], source (B, n)."""
    shape = list(images.shape)
    shape[dim] = source.shape[1]
    return images.gather(dim, along(source, images, dim).expand(shape))
