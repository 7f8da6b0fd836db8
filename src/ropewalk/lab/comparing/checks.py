"""What is refused before anything is trained: a comparison that fails in its fifth hour was checked too late.

Numbers that do not fit each other are told in words. Then each encoding goes through the model once, in one block, with two
empty images that were augmented as in training, or two empty texts; what it refuses there is refused here. Nothing is
measured on the test set; where boxes or maps are to be found, its files are looked at.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.factory import Chained
from ropewalk.lab.building import fastest, model_of, stretch_of
from ropewalk.lab.choose import Refusal, refusing
from ropewalk.lab.comparing.plan import Comparison
from ropewalk.lab.config import Config
from ropewalk.lab.data import Data, epoch_order
from ropewalk.lab.dense.origin import origin_of
from ropewalk.lab.patching import fills, grid_of, square, told
from ropewalk.lab.placing import moved
from ropewalk.lab.store import Run
from ropewalk.lab.tasks.text import check_text, length_of, open_text, reader_of
from ropewalk.lab.tasks.vision import augment_of, open_data

SAMPLES = 2
"""In a trial: a pair, which mixup mixes."""


def check(comparison: Comparison, *, processes: int = 1) -> None:
    """Refuse a comparison of which some run could not be trained."""
    configs = {each.label: comparison.config(each) for each in comparison.members[: len(comparison.entries)]}
    config = configs[comparison.baseline]
    if config.model is None and config.width % config.heads:
        raise Refusal(f"heads must divide the width, got {config.heads} heads and a width of {config.width}")
    for member in comparison.members:
        _check_start(comparison.config(member))
    if config.length is not None:
        return _check_texts(configs, config, processes)
    if config.task in ("detect", "masks"):
        return _check_things(configs, config, processes)
    data = _opened(config)
    _check_numbers(config, data, processes)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        images = _augmented(config, data)
        for label, each in configs.items():
            _try(label, each, data, images)


def _opened(config: Config) -> Data:
    """The data, if they are there."""
    with _reading(config):
        data = open_data(config)
        if config.task == "segment":
            _check_maps(config, data)
        return data


def _check_maps(config: Config, data: Data) -> None:
    """Images that fit their maps, and a test set."""
    from ropewalk.lab.data.maps import Maps

    assert isinstance(data, Maps)
    data.look()
    if not data.counts["test"]:
        raise ValueError(f"there must be a test set, got none of {data}")


@contextmanager
def _reading(config: Config) -> Iterator[None]:
    try:
        with refusing():
            yield
    except (OSError, RuntimeError) as error:
        raise Refusal(f"the data {config.data!r} cannot be read: {error}") from error


def _check_start(config: Config) -> None:
    """The run whose weights it begins with, if there is one, is done."""
    if config.begins is not None:
        with refusing():
            if Run.at(config.begins).result() is None:
                raise ValueError(f"a run can begin from one that is done alone, and {config.begins} has no result.json")


def _check_texts(configs: Mapping[str, Config], config: Config, processes: int) -> None:
    """Text that is long enough, and encodings that read it."""
    with _reading(config):
        text, length = open_text(config), length_of(config)
        check_text(config, text)
        epoch_order(text.drawn(length), config.batch, seed=config.seed, epoch=0, world=processes)
    tokens = torch.zeros(SAMPLES, length, dtype=torch.int64)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for label, each in configs.items():
            with _trying(label):
                model = reader_of(replace(each, depth=1))
                _check_span(each, model.encoding)
                model(tokens)


def _check_things(configs: Mapping[str, Config], config: Config, processes: int) -> None:
    """Images with things in them, and encodings that look at them in training and at another size."""
    from ropewalk.lab.tasks.detect import detector_of, scenes_of, size_of

    with _reading(config):
        scenes, size = scenes_of(config), size_of(config)
        scenes.look()
        epoch_order(scenes.counts["train"], config.batch, seed=config.seed, epoch=0, world=processes, pairs=False)
    images, none = torch.zeros(SAMPLES, 3, *size), {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    none |= {"masks": torch.zeros(0, *size, dtype=torch.uint8)} if config.task == "masks" else {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for label, each in configs.items():
            with _trying(label):
                model = detector_of(replace(each, depth=1), size, len(scenes.classes), origin_of(each))
                _check_span(each, model.encoding)
                model(images, [none] * SAMPLES)
                model.eval()(images[:1].repeat_interleave(2, dim=-1))


def _check_numbers(config: Config, data: Data, processes: int) -> None:
    """Patches that fill the images, batches that the data fill, and something to validate by."""
    size = config.size or data.size
    with refusing():
        filled = fills(size, config.patch)
    if not filled:
        came = f"a patch of {told(config.patch)} and images of {told(size)}"
        raise Refusal(f"the patch must divide the sides of the images, got {came}")
    count = data.counts["train"]
    if count < config.batch:
        raise Refusal(f"a batch must be no larger than the data, got a batch of {config.batch} and {count} to train on")
    if not data.counts["validation"]:
        raise Refusal(f"there must be a validation set, got none of {data}; raise validation, which is {config.validation}")
    with refusing():
        epoch_order(count, config.batch, seed=config.seed, epoch=0, world=processes, pairs=config.task is None)


def _augmented(config: Config, data: Data) -> Tensor:
    """Empty images as the model would get them."""
    images = torch.zeros(SAMPLES, data.channels, *(config.size or data.size), dtype=torch.uint8)
    index = torch.arange(SAMPLES)
    if config.task == "segment":  # its views are cut where they are read, and colours are checked with the settings
        return images.float()
    with refusing():
        return augment_of(config, data)(images, torch.zeros_like(index), index, epoch=0, classes=len(data.classes))[0]


def _try(label: str, config: Config, data: Data, images: Tensor) -> None:
    """One forward pass."""
    size = tuple(images.shape[2:])
    grid, classes = grid_of(size, config.patch), len(data.classes)
    with _trying(label):
        origin = origin_of(config) if config.task == "segment" else None
        model = model_of(replace(config, depth=1), size=size, channels=data.channels, classes=classes, origin=origin)
        _check_span(config, model.encoding)
        way = getattr(model, "resolution", "extrapolate")
        model(images, moved(config, model.encoding, grid, step=0, share=slice(SAMPLES), resolution=way))
        if config.task == "segment":  # images that are not trained on have other sizes
            for sides in ((2 * size[0], size[1]), (size[0], size[1] + square(config.patch))):
                model.eval()(images.new_zeros(1, data.channels, *sides))


@contextmanager
def _trying(label: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as error:
        raise Refusal(f"{label} cannot be trained with these settings: {error}") from error


def _check_span(config: Config, encoding: Encoding) -> None:
    """A span holds for all encodings that turn: refuse options that contradict it, and encodings that cannot have it."""
    if config.span is None or not _turns(encoding):
        return
    turning, given = _turning(encoding, config.options)
    if (option := stretch_of(turning)) in given:
        raise ValueError(f"a span of {config.span} for all encodings decides {option}, which was given too")
    if option is None or not fastest(turning):
        raise ValueError(f"it turns channels, and has no option that gives it the span of {config.span} that all have")


def _turning(encoding: Encoding, options: Mapping[str, Any]) -> tuple[Encoding, Mapping[str, Any]]:
    """What turns, the encoding or a part of it, and the options that were given for that."""
    if not isinstance(encoding, Chained):
        return encoding, options
    turning = next(part for part in encoding._parts() if part.traits.rotary)
    return turning, next((each for each in options["parts"] if each.get("name") == turning.name), {})


def _turns(encoding: Encoding) -> bool:
    """Whether it, or a part of it, turns q and k."""
    parts = encoding.members if isinstance(encoding, Chained) else [encoding]
    return any(part.traits.rotary for part in parts if isinstance(part, Encoding))
