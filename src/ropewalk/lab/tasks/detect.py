"""Images with things in them, whose boxes and kinds are to be found, and with "masks" their outlines too."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from ropewalk.lab.config import Config
from ropewalk.lab.data import epoch_order
from ropewalk.lab.data.order import spread
from ropewalk.lab.data.outlines import coder
from ropewalk.lab.data.reader import Reader
from ropewalk.lab.data.scenes import Scenes, open_scenes
from ropewalk.lab.data.sight import View
from ropewalk.lab.data.views import Judged, Seen, Views, Whole
from ropewalk.lab.dense.base import alone
from ropewalk.lab.dense.detector import Detector, Things
from ropewalk.lab.dense.origin import Origin, backbone_of, origin_of
from ropewalk.lab.dense.precision import answer, precisions, truth
from ropewalk.lab.dense.settings import check
from ropewalk.lab.dense.sizes import brought_back
from ropewalk.lab.draws import seed_of
from ropewalk.lab.evaluate import normalised
from ropewalk.lab.patching import square

WAYS, CLOSER = ("flip", "crop"), 1.5
"""How views may be cut at random, and how much smaller than the largest they are at most."""
SHOWN = 4
"""Images in a picture."""


class Detecting:
    """Finds things."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config, self.device = config, torch.device(device)
        self.scenes, self.size = scenes_of(config), size_of(config)
        self.origin = origin_of(config)
        classes = len(self.scenes.classes)
        self.model = detector_of(config, self.size, classes, self.origin).to(device)
        self.steps = self.scenes.counts["train"] // config.batch
        way = View("crop" in config.augment, "flip" in config.augment, (1.0, CLOSER))
        views = Views(self.scenes, self.size, seed=config.seed, way=way)
        self.views: Reader[Seen] = Reader(views, config.workers, "train")
        patch = square(config.patch)
        self.whole = {
            part: Reader[Judged](Whole(self.scenes, part, self.size, patch), config.workers, part, lasting=part != "test")
            for part in ("validation", "test")
        }

    def batches(self, epoch: int, rank: int, world: int) -> Iterator[Seen]:
        """One process's share of each batch of an epoch."""
        config, count = self.config, self.scenes.counts["train"]
        order = epoch_order(count, config.batch, seed=config.seed, epoch=epoch, rank=rank, world=world, pairs=False)
        return (seen.to(self.device) for seen in self.views.read([(epoch, places.tolist()) for places in order]))

    def loss(self, model: nn.Module, batch: Seen, *, epoch: int, step: int, rank: int) -> Tensor:
        """The sum of what proposals, kinds, boxes and outlines lose."""
        lost: Tensor = model(self.normalised(batch.images), batch.targets)
        return lost

    def normalised(self, images: Tensor) -> Tensor:
        """Images of bytes (B 3 rows columns), normalised as those that are trained on, or that weights were trained on."""
        return normalised(images.to(self.device, non_blocking=True).float() / 255, self.origin or self.scenes)

    def facts(self) -> dict[str, Any]:
        """What tells its data from others, and what it goes on from."""
        return {**self._facts, **(self.origin.facts() if self.origin else {})}

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {**self.scenes.facts(), "size": list(self.size)}

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Average precisions of images as they are, each by itself, and the mean loss of the middle of each."""
        own = alone(model).eval()
        truths, answers, lost = [], [], torch.zeros((), dtype=torch.float64)
        for number, judged in self._judged(split, accelerator.process_index, accelerator.num_processes):
            lost += self._lost(own, judged, number)
            truths.append(truth(judged.scene, number))
            answers += answer(self.found(own, judged), number)
        truths, answers = gather_object(truths), gather_object(answers)
        total = accelerator.reduce(lost.float().to(accelerator.device), "sum").item()
        kinds = ("box", "mask") if self.config.task == "masks" else ("box",)
        scores = {"loss": total / self.scenes.counts[split]}
        for kind in kinds:
            scores |= precisions(truths, answers, len(self.scenes.classes), kind)
        return scores

    def _judged(self, split: str, rank: int, world: int) -> Iterator[tuple[int, Judged]]:
        """One process's share of the images of a part, with their numbers."""
        places = range(self.scenes.counts[split])[rank::world]
        return zip(places, self.whole[split].read(places), strict=True)

    def found(self, model: nn.Module, judged: Judged) -> Things:
        """What a model finds in an image, in its own pixels."""
        (found,) = model(self.normalised(judged.whole[None]))
        return brought_back(found, judged.whole.shape[-2:], judged.scene.sides)

    @torch.no_grad()
    def _lost(self, model: nn.Module, judged: Judged, number: int) -> float:
        """The loss of the middle of an image; what is sampled for it follows from its number."""
        torch.manual_seed(seed_of(number))
        seen = judged.middle.to(self.device)
        return float(model(self.normalised(seen.images), seen.targets))

    @torch.no_grad()
    def picture(self, model: nn.Module) -> bytes:
        """What is found in a few test images, at even distances among them."""
        from ropewalk.lab.dense.picture import picture

        own, places = alone(model).eval(), spread(self.scenes.counts["test"], SHOWN)
        return picture([(each.scene, self.found(own, each)) for each in self.whole["test"].read(places.tolist())])


def detector_of(config: Config, size: tuple[int, int], classes: int, origin: Origin | None = None) -> Detector:
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own."""
    backbone = backbone_of(config, size, classes, origin)
    torch.manual_seed(config.seed)
    return Detector(backbone, classes=classes, masks=config.task == "masks")


def scenes_of(config: Config) -> Scenes:
    """The images of a run, if its settings are of boxes and it can be trained on them and judged by them."""
    check(config, WAYS)
    coder()  # without which nothing can be judged
    masks = config.task == "masks"
    scenes = open_scenes(config.data, validation=config.validation, fraction=config.fraction, masks=masks)
    if scenes.counts["train"] < config.batch:
        raise ValueError(f"a batch must be no larger than the data, got a batch of {config.batch} and {scenes}")
    for part in ("validation", "test"):
        if not scenes.things(part):
            raise ValueError(f"the {part} images must have things to be found, got none in {scenes}")
    return scenes


def size_of(config: Config) -> tuple[int, int]:
    """Rows and columns of a view, which patches fill."""
    patch = square(config.patch)
    if config.size is None or len(config.size) != 2 or any(side % patch or side < 1 for side in config.size):
        wanted = f"a size of rows and columns for its views, multiples of the patch {patch}"
        raise ValueError(f"a run with the task {config.task} needs {wanted}, got {config.size}")
    rows, columns = config.size
    return rows, columns
