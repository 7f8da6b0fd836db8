"""Images with things in them, whose boxes and kinds are to be found, and with "masks" their outlines too."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from ropewalk.lab.config import Config
from ropewalk.lab.data import epoch_order
from ropewalk.lab.data.reader import Reader
from ropewalk.lab.data.scenes import Scene, Scenes, open_scenes
from ropewalk.lab.data.sight import View, looked_at
from ropewalk.lab.data.views import Seen, Views, Whole, together, view
from ropewalk.lab.dense.detector import Detector, Things
from ropewalk.lab.dense.origin import Origin, backbone_of, origin_of, resolution_of
from ropewalk.lab.dense.precision import answer, precisions, truth
from ropewalk.lab.dense.sizes import brought_back, resized
from ropewalk.lab.draws import seed_of
from ropewalk.lab.patching import square
from ropewalk.lab.store import PICTURE

WITHOUT = ("model", "loss", "smoothing", "strength", "mixup", "cutmix", "perturb", "shift", "rescale", "per_sample")
"""Settings that detection has no use for."""
WAYS, CLOSER = ("flip", "crop"), 1.5
"""How views may be cut at random, and how much smaller than the largest they are at most."""
SHOWN = 4
"""Images of the test set whose predictions are kept for a picture."""


class Detecting:
    """Finds things."""

    file = PICTURE

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config, self.device, self.size = config, torch.device(device), size_of(config)
        check_settings(config)
        self.scenes = scenes_of(config)
        check_scenes(config, self.scenes)
        self.origin = origin_of(config)
        classes = len(self.scenes.classes)
        self.model = detector_of(config, self.size, classes, self.origin).to(device)
        self.steps = self.scenes.counts["train"] // config.batch
        way = View("crop" in config.augment, "flip" in config.augment, (1.0, CLOSER))
        views = Views(self.scenes, self.size, seed=config.seed, way=way)
        self.views: Reader[Seen] = Reader(views, config.workers, "train")
        self.whole: dict[str, Reader[Scene]] = {}
        self.shown: list[tuple[Scene, Things]] = []

    def batches(self, epoch: int, rank: int, world: int) -> Iterator[Seen]:
        """One process's share of each batch of an epoch."""
        config, count = self.config, self.scenes.counts["train"]
        order = epoch_order(count, config.batch, seed=config.seed, epoch=epoch, rank=rank, world=world)
        return (seen.to(self.device) for seen in self.views.read([(epoch, places.tolist()) for places in order]))

    def loss(self, model: nn.Module, batch: Seen, *, epoch: int, step: int, rank: int) -> Tensor:
        """The sum of what proposals, kinds, boxes and outlines lose."""
        lost: Tensor = model(self.normalised(batch.images), batch.targets)
        return lost

    def normalised(self, images: Tensor) -> Tensor:
        """Images of bytes with the mean 0 and deviation 1 of those that are trained on, or that weights were trained on."""
        mean, std = (each.view(3, 1, 1) for each in self._moments)
        return (images.to(self.device, non_blocking=True).float() / 255 - mean) / std

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        mean, std = self.scenes.moments if self.origin is None else (self.origin.mean, self.origin.std)
        return torch.tensor(mean, device=self.device), torch.tensor([each or 1.0 for each in std], device=self.device)

    def facts(self) -> dict[str, Any]:
        """What tells its data from others, and the size of images that the encoding is made for."""
        return dict(self._facts)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        made_for = self.size if self.origin is None else self.origin.size
        return {**self.scenes.facts(), "size": list(self.size), "backbone": list(made_for)}

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Average precisions of images as they are, each by itself, and the mean loss of the middle of each."""
        own: Any = accelerator.unwrap_model(model).eval()
        truths, answers, lost = [], [], torch.zeros((), dtype=torch.float64)
        for number, scene in self._scenes(split, accelerator.process_index, accelerator.num_processes):
            found = self.found(own, scene)
            lost += self._lost(own, scene, number)
            truths.append(truth(scene, number))
            answers += answer(found, number)
            if split == "test" and len(self.shown) < SHOWN:
                self.shown.append((scene, found))
        truths, answers = gather_object(truths), gather_object(answers)
        total = accelerator.reduce(lost.float().to(accelerator.device), "sum").item()
        kinds = ("box", "mask") if self.config.task == "masks" else ("box",)
        scores = {"loss": total / self.scenes.counts[split]}
        for kind in kinds:
            scores |= precisions(truths, answers, len(self.scenes.classes), kind)
        return scores

    def _scenes(self, split: str, rank: int, world: int) -> Iterator[tuple[int, Scene]]:
        """One process's share of the images of a part, with their numbers."""
        places = range(self.scenes.counts[split])[rank::world]
        reader = self.whole.setdefault(split, Reader(Whole(self.scenes, split), self.config.workers, split))
        return zip(places, reader.read(list(places)), strict=True)

    def found(self, model: nn.Module, scene: Scene) -> Things:
        """What a model finds in an image, in its own pixels."""
        seen = looked_at(scene.sides, self.size, square(self.config.patch))
        (found,) = model(self.normalised(resized(scene.image, seen)).unsqueeze(0))
        return brought_back(found, seen, scene.sides)

    @torch.no_grad()
    def _lost(self, model: nn.Module, scene: Scene, number: int) -> float:
        """The loss of the middle of an image; what is sampled for it follows from its number."""
        torch.manual_seed(seed_of(number))
        seen = together([view(scene, self.size)]).to(self.device)
        return float(model(self.normalised(seen.images), seen.targets))

    def picture(self, model: nn.Module) -> bytes:
        """What was found in the first images of the test set, when that was judged."""
        from ropewalk.lab.dense.picture import picture

        return picture(self.shown)


def detector_of(config: Config, size: tuple[int, int], classes: int, origin: Origin | None = None) -> Detector:
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own."""
    backbone = backbone_of(config, size, origin)
    torch.manual_seed(config.seed)
    way = resolution_of(backbone.encoding)
    return Detector(backbone, classes=classes, masks=config.task == "masks", resolution=way)


def scenes_of(config: Config) -> Scenes:
    """The images of a run."""
    masks = config.task == "masks"
    return open_scenes(config.data, validation=config.validation, fraction=config.fraction, masks=masks)


def size_of(config: Config) -> tuple[int, int]:
    """Rows and columns of a view, which patches fill."""
    patch = square(config.patch)
    if config.size is None or len(config.size) != 2 or any(side % patch or side < 1 for side in config.size):
        wanted = f"a size of rows and columns for its views, multiples of the patch {patch}"
        raise ValueError(f"a run with the task {config.task} needs {wanted}, got {config.size}")
    rows, columns = config.size
    return rows, columns


def check_settings(config: Config) -> None:
    """Refuse settings that would do nothing."""
    for each in dataclasses.fields(Config):
        default = each.default if each.default is not dataclasses.MISSING else {}
        if each.name in WITHOUT and (value := getattr(config, each.name)) != default:
            raise ValueError(f"{each.name} is of classes: for {config.task} it must be {default!r}, got {value!r}")
    if unknown := sorted(set(config.augment) - set(WAYS)):
        raise ValueError(f"augment takes {' and '.join(WAYS)} for {config.task}, got {', '.join(unknown)}")


def check_scenes(config: Config, scenes: Scenes) -> None:
    """Refuse parts that cannot be trained on or judged by."""
    if scenes.counts["train"] < config.batch:
        raise ValueError(f"a batch must be no larger than the data, got a batch of {config.batch} and {scenes}")
    for part in ("validation", "test"):
        if not scenes.things(part):
            raise ValueError(f"the {part} images must have things to be found, got none in {scenes}")
