"""Text, byte by byte: each is to be found from those before it."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.lab.config import Config
from ropewalk.lab.data.passkeys import MIN_KEY_LENGTH
from ropewalk.lab.data.sampling import sequential_order
from ropewalk.lab.data.text import TextData
from ropewalk.lab.model_building import scale_to_span
from ropewalk.models import LM

IMAGE_ONLY_FIELDS = (
    "model", "size", "pool", "registers", "layer_scale", "drop_path", "dropout", "loss", "smoothing", "strength", "mixup",
    "cutmix", "perturb", "shift", "rescale", "per_sample",
)  # fmt: skip
"""Settings that only images have."""


class TextTask:
    """Finds the next byte."""

    def __init__(self, config: Config, device: torch.device | str) -> None:
        self.config, self.length = config, check_window_length(config)
        self.text = open_text_data(config).to(device)
        check_text_config(config, self.text)
        self.model = build_language_model(config).to(device)
        self.steps = self.text.count_train_windows(self.length) // config.batch

    def batches(self, epoch: int, rank: int, world: int, *, first: int = 0) -> Iterator[Tensor]:
        """One process's share of each batch of an epoch, (B, length + 1), from batch `first` on."""
        config = self.config
        who = {"seed": config.seed, "epoch": epoch, "rank": rank, "world": world, "first": first}
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
        order = sequential_order(self.text.count(split, self.length), self.config.batch, rank, world)
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


def build_language_model(config: Config) -> LM:
    """The model, its weights drawn from the seed of the run: the same ones for every encoding but for its own."""
    model = _build_lm(config, config.options)
    return model if config.span is None else _build_lm(config, scale_to_span(model.encoding, config.options, config.span))


def _build_lm(config: Config, options: dict[str, Any]) -> LM:
    names = ("encoding", "width", "depth", "heads", "kv_heads", "length")
    hidden = -(-round(2 * config.ratio * config.width) // 96) * 32  # two thirds, since it has three matrices and not two
    torch.manual_seed(config.seed)
    model = LM(256, options=options, hidden=hidden, **{name: getattr(config, name) for name in names})
    torch.manual_seed(config.seed)  # whatever the encoding has drawn by now
    model.reset_parameters()
    return model


def open_text_data(config: Config) -> TextData:
    """The text of a run."""
    return TextData(config.data, fraction=config.fraction)


def check_text_config(config: Config, text: TextData) -> None:
    """Refuse a text that is too short, and settings that only images have."""
    for each in dataclasses.fields(Config):
        value = getattr(config, each.name)
        default = each.default if each.default is not dataclasses.MISSING else {}
        if each.name in IMAGE_ONLY_FIELDS and value != default:
            raise ValueError(f"{each.name} is of images: for text it must be {default!r}, got {value!r}")
    if config.augment:
        raise ValueError(f"augment is of images: for text it must be empty, got {', '.join(config.augment)}")
    length, count = check_window_length(config), text.count_train_windows(check_window_length(config))
    if config.keys is not None and length + 1 < MIN_KEY_LENGTH:
        raise ValueError(f"keys must be none for windows of less than {MIN_KEY_LENGTH - 1} bytes, got a length of {length}")
    if count < config.batch:
        raise ValueError(f"a batch of {config.batch} windows of {length} bytes is more than there is to train on: {text}")
    for split in ("validation", "test"):
        if not text.count(split, length):
            raise ValueError(f"the {split} text must have more than {length} bytes, got {text}")


def check_window_length(config: Config) -> int:
    """Bytes of a window."""
    if config.length is None:
        raise ValueError("a run on text needs a length, got length=None")
    return config.length
