"""The figure of where trained heads look, from the weights themselves."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ropewalk.lab.report import insides
from ropewalk.lab.report.figures import Panel, Shown, Sources
from ropewalk.lab.report.panels import short
from ropewalk.lab.report.reading import Found
from ropewalk.lab.report.words import listed

MOST_HEADS = 6


def attention(of: Sources) -> Shown | str:
    """Where heads look, from trained weights."""
    try:
        patterns = importlib.import_module("ropewalk.lab.probes").patterns
    except (ImportError, AttributeError):
        return "Attention patterns are not drawn: there is nothing to read them with."
    shown, refused, bare = list[Panel](), list[str](), list[str]()
    for i, (label, seeds) in enumerate(of.group.found.items(), start=1):
        for found in [each for each in seeds.values() if each.score is not None][:1]:
            try:
                shown.append(_attention(of, f"attention-{i}", label, _pictures(found, patterns)))
            except (ValueError, RuntimeError, OSError) as error:
                if (found.run.path / "checkpoint.safetensors").is_file():
                    refused.append(f"{label}: {found.nameless(error)}.")
                elif not found.restored:
                    bare.append(label)
    refused += [f"There is no checkpoint.safetensors of {listed(bare)}."] if bare else []
    if not shown:
        return " ".join(["No run that is done has weights to draw attention patterns from.", *refused])
    caption = (
        "Where a query in the middle of the image looks: its attention weights on all patches, on average over validation "
        f"images. Heads are from left to right{_few(of)}, of the first seed that is done. The cross is the query; each "
        "picture goes from nothing to its own highest weight, so that pictures tell where a head looks, not how firmly."
    )
    return Shown("attention", "Attention of trained heads", " ".join([caption, *refused]), shown, [])


def _few(of: Sources) -> str:
    """Which heads and layers are drawn, if not all."""
    depth, heads = of.group.settings["depth"], of.group.settings["heads"]
    layers = ", the first and the last layer" if depth > 2 else ""
    return f"{layers}, the first {MOST_HEADS} of {heads}" if heads > MOST_HEADS else layers


def _attention(of: Sources, name: str, label: str, pictures: Mapping[int, Any]) -> Panel:
    layers = " and ".join(str(layer + 1) for layer in pictures)
    alt = f"Mean attention of a query in the middle of the image, heads of {label}, layer {layers}"
    return of.panel(name, alt, [], insides.heads, pictures, short(label, 40))


def _pictures(found: Found, patterns: Callable[..., Any]) -> dict[int, Any]:
    """Of the first and last layer, a few heads; of a volume the frame in the middle."""
    layers = sorted({0, found.run.config.depth - 1})
    pictures = {layer: np.asarray(each)[:MOST_HEADS] for layer, each in patterns(found.run, layers).items()}
    return {layer: each if each.ndim == 3 else each[:, each.shape[1] // 2] for layer, each in pictures.items()}
