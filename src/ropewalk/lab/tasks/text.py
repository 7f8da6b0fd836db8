"""The task text: every next byte of a text is predicted from those before it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from ropewalk.encodings.rope import RoPE
from ropewalk.lab.config import Config, check_unused_settings
from ropewalk.lab.data.sampling import epoch_order, sequential_order
from ropewalk.lab.data.text import MIN_KEY_LENGTH, TextData
from ropewalk.lab.init_from import TrainableModel
from ropewalk.lab.model_building import check_encoding_class, check_span, scale_to_span
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.base import CHECKED_SAMPLES, TrainedRun, Trial, load_trained_weights
from ropewalk.models import LM


class TextTask:
    """Predicts the next byte."""

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
        """What identifies the text."""
        sums = self.text.sums
        return {split: {"bytes": len(part), "sha256": sums[split]} for split, part in self.text.parts.items()}

    def loss(self, model: nn.Module, batch: Tensor, *, epoch: int, step: int, rank: int) -> Tensor:
        """The loss in nats per byte."""
        return F.cross_entropy(model(batch[:, :-1]).float().flatten(0, 1), batch[:, 1:].flatten())

    @torch.no_grad()
    def scores(self, model: nn.Module, split: str, accelerator: Accelerator) -> Mapping[str, float]:
        """Accuracy of the predicted bytes, the loss in nats, and in bits."""
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

    @classmethod
    def open_trial(cls, config: Config, processes: int) -> Trial:
        """Check that the text is long enough; trials are shown blank texts."""
        text, length = open_text_data(config), check_window_length(config)
        check_text_config(config, text)
        epoch_order(text.count_train_windows(length), config.batch, seed=config.seed, epoch=0, world=processes)
        tokens = torch.zeros(CHECKED_SAMPLES, length, dtype=torch.int64)

        def check_forward(each: Config) -> None:
            model = build_language_model(replace(each, depth=1))
            check_span(each, model.encoding)
            model(tokens)

        return check_forward

    @classmethod
    def build_from_facts(cls, config: Config, facts: Mapping[str, Any]) -> TrainableModel:
        """The model, which depends on the settings alone."""
        return build_language_model(config)

    @classmethod
    def open_trained(cls, run: RunFolder, device: torch.device) -> "TextRun":
        """A finished run with its text."""
        return TextRun(run, load_trained_weights(cls, run).to(device), open_text_data(run.config).to(device))


def build_language_model(config: Config) -> LM:
    """The model of a run, its weights drawn from the seed: for every encoding the same ones but for the encoding's own."""
    model = _build_lm(config, config.options)
    return model if config.span is None else _build_lm(config, scale_to_span(model.encoding, config.options, config.span))


def _build_lm(config: Config, options: dict[str, Any]) -> LM:
    check_encoding_class(config)
    names = ("encoding", "width", "depth", "heads", "kv_heads", "length")
    hidden = (
        -(-round(2 * config.ratio * config.width) // 96) * 32
    )  # two thirds, since its MLP has three matrices and not two
    torch.manual_seed(config.seed)
    model = LM(256, options=options, hidden=hidden, **{name: getattr(config, name) for name in names})
    torch.manual_seed(config.seed)  # whatever the encoding has drawn before
    model.reset_parameters()
    return model


def open_text_data(config: Config) -> TextData:
    """The text of a run."""
    return TextData(config.data, fraction=config.fraction)


def check_text_config(config: Config, text: TextData) -> None:
    """Refuse settings that have no effect on text, and a text that is too short."""
    check_unused_settings(config)
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


MAX_LENGTH_FACTOR, FINE_TUNED_LENGTH_FACTOR = 16, 4
"""Largest multiple of the length of training that is probed, and after fine-tuning on texts that were longer already."""
TEXT_EXTENSION_RULES = ("linear", "ntk-aware", "dynamic", "ntk-by-parts", "yarn", "llama3", "yarn-article")


@dataclass(frozen=True)
class TextRun(TrainedRun):
    """A run on text, with its model and its text on one device."""

    model: LM
    text: TextData

    @property
    def device(self) -> torch.device:
        return self.text.parts["train"].device

    @property
    def model_facts(self) -> Mapping[str, Any]:
        return {}

    def make_blank_inputs(self, count: int) -> Tensor:
        return torch.zeros(count, self.length, dtype=torch.int64, device=self.device)

    @property
    def length(self) -> int:
        """Bytes of a text in training."""
        return check_window_length(self.config)

    @property
    def factors(self) -> list[int]:
        """1, 2, 4, …: multiples of the length of training that fit in the validation text."""
        reach = MAX_LENGTH_FACTOR if self.config.start is None else FINE_TUNED_LENGTH_FACTOR
        every = [2**i for i in range(reach.bit_length())]
        return [factor for factor in every if self.text.count("validation", factor * self.length)]

    @property
    def rules(self) -> Sequence[str]:
        """Rules that can be applied: to RoPE without a rule of its own."""
        return TEXT_EXTENSION_RULES if isinstance(self.encoding, RoPE) and self.encoding.extension is None else ()

    def extended(self, rule: str | None, factor: int) -> LM:
        """The model for texts that are `factor` times as long, with a rule or as it was trained."""
        spec = {"factor": 2.0 if rule == "dynamic" else float(factor), "original_max_position_embeddings": self.length}
        return self.model.extended(None if rule is None else {"rope_type": rule, **spec}, factor * self.length)

    @torch.no_grad()
    def logits(self, model: LM, tokens: Tensor, last: int | None = None) -> Tensor:
        """Logits in the precision of training."""
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            found: Tensor = model(tokens, last=last)
        return found.float()
