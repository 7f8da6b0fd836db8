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
from ropewalk.lab.compare.plan import Comparison
from ropewalk.lab.config import Config
from ropewalk.lab.data.base import ImageData
from ropewalk.lab.data.sampling import epoch_order
from ropewalk.lab.errors import CommandError, translate_value_errors
from ropewalk.lab.init_from import load_origin
from ropewalk.lab.model_building import build_model, compute_max_span, find_span_option
from ropewalk.lab.patch_size import compute_patch_grid, format_patch, get_square_side, patch_divides_image
from ropewalk.lab.position_augment import perturb_positions
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.classify import build_augment, open_image_data
from ropewalk.lab.tasks.text import build_language_model, check_text_config, check_window_length, open_text_data

CHECKED_SAMPLES = 2
"""In a trial: a pair, which mixup mixes."""


def check_comparison(comparison: Comparison, *, processes: int = 1) -> None:
    """Refuse a comparison of which some run could not be trained."""
    configs = {each.label: comparison.config(each) for each in comparison.members[: len(comparison.entries)]}
    config = configs[comparison.baseline]
    if config.model is None and config.width % config.heads:
        raise CommandError(f"heads must divide the width, got {config.heads} heads and a width of {config.width}")
    for member in comparison.members:
        _check_start(comparison.config(member))
    if config.length is not None:
        return _check_texts(configs, config, processes)
    if config.task in ("detect", "masks"):
        return _check_detection(configs, config, processes)
    data = _open_checked_data(config)
    _check_sizes(config, data, processes)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        images = _augment_blank_images(config, data)
        for label, each in configs.items():
            _check_forward(label, each, data, images)


def _open_checked_data(config: Config) -> ImageData:
    """The data, if they are there."""
    with _translate_data_errors(config):
        data = open_image_data(config)
        if config.task == "segment":
            _check_segmentation(config, data)
        return data


def _check_segmentation(config: Config, data: ImageData) -> None:
    """Images that fit their maps, and a test set."""
    from ropewalk.lab.data.segmentation import SegmentationData

    assert isinstance(data, SegmentationData)
    data.look()
    if not data.counts["test"]:
        raise ValueError(f"there must be a test set, got none of {data}")


@contextmanager
def _translate_data_errors(config: Config) -> Iterator[None]:
    try:
        with translate_value_errors():
            yield
    except (OSError, RuntimeError) as error:
        raise CommandError(f"the data {config.data!r} cannot be read: {error}") from error


def _check_start(config: Config) -> None:
    """The run whose weights it begins with, if there is one, is done."""
    if config.start_path is not None:
        with translate_value_errors():
            if RunFolder.at(config.start_path).result() is None:
                raise ValueError(f"a run can begin from one that is done alone, and {config.start_path} has no result.json")


def _check_texts(configs: Mapping[str, Config], config: Config, processes: int) -> None:
    """Text that is long enough, and encodings that read it."""
    with _translate_data_errors(config):
        text, length = open_text_data(config), check_window_length(config)
        check_text_config(config, text)
        epoch_order(text.count_train_windows(length), config.batch, seed=config.seed, epoch=0, world=processes)
    tokens = torch.zeros(CHECKED_SAMPLES, length, dtype=torch.int64)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for label, each in configs.items():
            with _name_encoding_in_errors(label):
                model = build_language_model(replace(each, depth=1))
                _check_span(each, model.encoding)
                model(tokens)


def _check_detection(configs: Mapping[str, Config], config: Config, processes: int) -> None:
    """Images with things in them, and encodings that look at them in training and at another size."""
    from ropewalk.lab.tasks.detect import build_detector, check_view_size, open_checked_scenes

    with _translate_data_errors(config):
        scenes, size = open_checked_scenes(config), check_view_size(config)
        scenes.look()
        epoch_order(scenes.counts["train"], config.batch, seed=config.seed, epoch=0, world=processes, pairs=False)
    images, none = (
        torch.zeros(CHECKED_SAMPLES, 3, *size),
        {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)},
    )
    none |= {"masks": torch.zeros(0, *size, dtype=torch.uint8)} if config.task == "masks" else {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for label, each in configs.items():
            with _name_encoding_in_errors(label):
                model = build_detector(replace(each, depth=1), size, len(scenes.classes), load_origin(each))
                _check_span(each, model.encoding)
                model(images, [none] * CHECKED_SAMPLES)
                model.eval()(images[:1].repeat_interleave(2, dim=-1))


def _check_sizes(config: Config, data: ImageData, processes: int) -> None:
    """Patches that fill the images, batches that the data fill, and something to validate by."""
    size = config.size or data.size
    with translate_value_errors():
        filled = patch_divides_image(size, config.patch)
    if not filled:
        came = f"a patch of {format_patch(config.patch)} and images of {format_patch(size)}"
        raise CommandError(f"the patch must divide the sides of the images, got {came}")
    count = data.counts["train"]
    if count < config.batch:
        raise CommandError(f"a batch must be no larger than the data, got a batch of {config.batch} and {count} to train on")
    if not data.counts["validation"]:
        raise CommandError(
            f"there must be a validation set, got none of {data}; raise validation, which is {config.validation}"
        )
    with translate_value_errors():
        epoch_order(count, config.batch, seed=config.seed, epoch=0, world=processes, pairs=config.task is None)


def _augment_blank_images(config: Config, data: ImageData) -> Tensor:
    """Empty images as the model would get them."""
    images = torch.zeros(CHECKED_SAMPLES, data.channels, *(config.size or data.size), dtype=torch.uint8)
    index = torch.arange(CHECKED_SAMPLES)
    if config.task == "segment":  # its views are cut where they are read, and colours are checked with the settings
        return images.float()
    with translate_value_errors():
        return build_augment(config, data)(images, torch.zeros_like(index), index, epoch=0, classes=len(data.classes))[0]


def _check_forward(label: str, config: Config, data: ImageData, images: Tensor) -> None:
    """One forward pass."""
    size = tuple(images.shape[2:])
    grid, classes = compute_patch_grid(size, config.patch), len(data.classes)
    with _name_encoding_in_errors(label):
        origin = load_origin(config) if config.task == "segment" else None
        model = build_model(replace(config, depth=1), size=size, channels=data.channels, classes=classes, origin=origin)
        _check_span(config, model.encoding)
        way = getattr(model, "resolution", "extrapolate")
        model(images, perturb_positions(config, model.encoding, grid, step=0, share=slice(CHECKED_SAMPLES), resolution=way))
        if config.task == "segment":  # images that are not trained on have other sizes
            for sides in ((2 * size[0], size[1]), (size[0], size[1] + get_square_side(config.patch))):
                model.eval()(images.new_zeros(1, data.channels, *sides))


@contextmanager
def _name_encoding_in_errors(label: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as error:
        raise CommandError(f"{label} cannot be trained with these settings: {error}") from error


def _check_span(config: Config, encoding: Encoding) -> None:
    """A span holds for all encodings that turn: refuse options that contradict it, and encodings that cannot have it."""
    if config.span is None or not _is_rotary(encoding):
        return
    turning, given = _find_rotary_part(encoding, config.options)
    if (option := find_span_option(turning)) in given:
        raise ValueError(f"a span of {config.span} for all encodings decides {option}, which was given too")
    if option is None or not compute_max_span(turning):
        raise ValueError(f"it turns channels, and has no option that gives it the span of {config.span} that all have")


def _find_rotary_part(encoding: Encoding, options: Mapping[str, Any]) -> tuple[Encoding, Mapping[str, Any]]:
    """What turns, the encoding or a part of it, and the options that were given for that."""
    if not isinstance(encoding, Chained):
        return encoding, options
    turning = next(part for part in encoding._parts() if part.traits.rotary)
    return turning, next((each for each in options["parts"] if each.get("name") == turning.name), {})


def _is_rotary(encoding: Encoding) -> bool:
    """Whether it, or a part of it, turns q and k."""
    parts = encoding.members if isinstance(encoding, Chained) else [encoding]
    return any(part.traits.rotary for part in parts if isinstance(part, Encoding))
