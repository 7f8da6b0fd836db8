"""Text, byte by byte: each is to be found from those before it."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.building import stretched
from ropewalk.lab.config import Config
from ropewalk.lab.data import in_order
from ropewalk.lab.data.keys import SHORTEST
from ropewalk.lab.data.text import Text
from ropewalk.models import LM

VISUAL = (
    "model", "size", "pool", "registers", "layer_scale", "drop_path", "dropout", "loss", "smoothing", "strength", "mixup",
    "cutmix", "perturb", "shift", "rescale", "per_sample",
)  # fmt: skip
"""Settings that only images have."""


class Reading:
    """Finds the next byte."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config, self.length = config, length_of(config)
        self.text = open_text(config).to(device)
        check_text(config, self.text)
        self.model = reader_of(config).to(device)
        self.steps = self.text.drawn(self.length) // config.batch

    def batches(self, epoch: int, rank: int, world: int) -> Iterator[Tensor]:
        """One process's share of each batch of an epoch, (B, length + 1)."""
        config = self.config
        who = {"seed": config.seed, "epoch": epoch, "rank": rank, "world": world}
        return self.text.epoch(self.length, config.batch, keys=config.keys, **who)

    def facts(self) -> dict[str, Any]:
        """What tells its text from others."""
        sums = self.text.sums
        return {split: {"bytes": len(part), "sha256": sums[split]} for split, part in self.text.parts.items()}

    def loss(self, model: nn.Module, batch: Tensor, *, epoch: int, step: int, rank: int) -> Tensor:
        """In nats a byte."""
        return F.cross_entropy(model(batch[:, :-1]).float().flatten(0, 1), batch[:, 1:].flatten())

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """The share of bytes that are found, the loss in nats, and in bits."""
        model.eval()
        rank, world = accelerator.process_index, accelerator.num_processes
        order = in_order(self.text.count(split, self.length), self.config.batch, rank, world)
        sums = torch.zeros(3, dtype=torch.float64, device=accelerator.device)
        for some in self.text.windows(split, self.length, order):
            whole = F.pad(some, (0, 0, 0, len(order[0]) - len(some)))  # all batches have one shape
            logits = model(whole[:, :-1]).float()[: len(some)].flatten(0, 1)
            targets = some[:, 1:].flatten()
            sums[0] += (logits.argmax(-1) == targets).sum()
            sums[1] += F.cross_entropy(logits, targets, reduction="sum")
            sums[2] += len(targets)
        right, lost, seen = accelerator.reduce(sums, "sum").tolist()
        return {"accuracy": right / seen, "loss": lost / seen, "bits": lost / seen / math.log(2)}


def reader_of(config: Config) -> LM:
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own."""
    model = _built(config, config.options)
    return model if config.span is None else _built(config, stretched(model.encoding, config.options, config.span))


def _built(config: Config, options: dict[str, Any]) -> LM:
    names = ("encoding", "width", "depth", "heads", "kv_heads", "length")
    hidden = -(-round(2 * config.ratio * config.width) // 96) * 32  # two thirds, since it has three matrices and not two
    torch.manual_seed(config.seed)
    model = LM(256, options=options, hidden=hidden, **{name: getattr(config, name) for name in names})
    torch.manual_seed(config.seed)  # whatever the encoding has drawn by now
    model.reset_parameters()
    return model


def open_text(config: Config) -> Text:
    """The text of a run."""
    return Text(config.data, fraction=config.fraction)


def check_text(config: Config, text: Text) -> None:
    """Refuse a text that is too short, and settings that only images have."""
    for each in dataclasses.fields(Config):
        value = getattr(config, each.name)
        default = each.default if each.default is not dataclasses.MISSING else {}
        if each.name in VISUAL and value != default:
            raise ValueError(f"{each.name} is of images: for text it must be {default!r}, got {value!r}")
    if config.augment:
        raise ValueError(f"augment is of images: for text it must be empty, got {', '.join(config.augment)}")
    length, count = length_of(config), text.drawn(length_of(config))
    if config.keys is not None and length + 1 < SHORTEST:
        raise ValueError(f"keys must be none for windows of less than {SHORTEST - 1} bytes, got a length of {length}")
    if count < config.batch:
        raise ValueError(f"a batch of {config.batch} windows of {length} bytes is more than there is to train on: {text}")
    for split in ("validation", "test"):
        if not text.count(split, length):
            raise ValueError(f"the {split} text must have more than {length} bytes, got {text}")


def length_of(config: Config) -> int:
    """Bytes of a window."""
    if config.length is None:
        raise ValueError("a run on text needs a length, got length=None")
    return config.length
