"""Outlines of things in the forms of COCO, polygons and run lengths, which pycocotools reads and writes."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Entry = dict[str, Any]


def coder() -> Any:
    """pycocotools' coder of masks, if it is installed."""
    try:
        import pycocotools.mask  # type: ignore[import-untyped]
    except ImportError as error:
        raise ValueError(f"boxes and masks are judged by pycocotools: pip install 'ropewalk[dense]' ({error})") from error
    return pycocotools.mask


def outlined(path: Path, image: Entry, entries: list[Entry]) -> Tensor:
    """Masks bool (n, rows, columns) of what is in an image, which has a height and a width."""
    out = torch.zeros(len(entries), image["height"], image["width"], dtype=torch.bool)
    for mask, entry in zip(out, entries, strict=True):
        try:
            mask.copy_(torch.from_numpy(decoded(entry["segmentation"], *mask.shape)))
        except Exception as error:
            told = f"the outline of annotation {entry.get('id')!r} in {path}"
            raise ValueError(f"{told} cannot be read: {type(error).__name__}: {error}") from error
    return out


def decoded(outline: Any, rows: int, columns: int) -> np.ndarray:
    """The mask of polygons, or of run lengths, compressed or not."""
    coded = outline
    if isinstance(outline, list):
        coded = coder().merge(coder().frPyObjects(outline, rows, columns))
    elif isinstance(outline["counts"], list):
        coded = coder().frPyObjects(outline, rows, columns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="__array__ implementation", category=DeprecationWarning)
        return coder().decode(coded)


def encoded(masks: Tensor) -> list[Entry]:
    """Masks (n, rows, columns) as run lengths."""
    return [coder().encode(np.asfortranarray(mask.numpy())) for mask in masks.cpu().byte()]
