"""A run on text taken up again, and how well it finds the bytes of texts longer than those of training.

Losses are in nats a byte, on the validation text, cut into windows of a length and read from the beginning of each. Bins
of positions are half octaves, so that they are even on a logarithmic axis. With rules of context extension, the model is not
trained any further: `window` is `factor` times the length of training, and the rule is made for just that. "dynamic" has the
factor 2 of its own formula whatever the window is, as in most configs.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.encodings.rope import RoPE
from ropewalk.lab.anatomy import on_cpu
from ropewalk.lab.config import Config
from ropewalk.lab.data import in_order
from ropewalk.lab.data.text import Text
from ropewalk.lab.store import Run
from ropewalk.lab.tasks.text import length_of, open_text, reader_of
from ropewalk.models import LM

Rows = Iterator[dict[str, Any]]

REACH, AFTER = 16, 4
"""How many times the length of training is looked at, and after fine-tuning on texts that were longer already."""
RULES = ("linear", "ntk-aware", "dynamic", "ntk-by-parts", "yarn", "llama3", "yarn-article")
ENOUGH = 2**20
"""Bytes that are read for one line, at most."""


@dataclass(frozen=True)
class Read:
    """A run on text that is probed, with its model and its text on one device."""

    run: Run
    model: LM
    text: Text

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.run.config

    @property
    def length(self) -> int:
        """Of texts in training."""
        return length_of(self.config)

    @property
    def encoding(self) -> Encoding:
        """The trained encoding."""
        return self.model.encoding

    @property
    def factors(self) -> list[int]:
        """1, 2, 4, …: how many times the length of training there are windows for, as long as the text goes."""
        reach = REACH if self.config.start is None else AFTER
        every = [2**i for i in range(reach.bit_length())]
        return [factor for factor in every if self.text.count("validation", factor * self.length)]

    @property
    def rules(self) -> Sequence[str]:
        """Rules that can be applied: to encodings that take one and have none."""
        return RULES if isinstance(self.encoding, RoPE) and self.encoding.extension is None else ()

    def extended(self, rule: str | None, factor: int) -> LM:
        """The model for texts so many times as long, by a rule or as it was trained."""
        spec = {"factor": 2.0 if rule == "dynamic" else float(factor), "original_max_position_embeddings": self.length}
        return self.model.extended(None if rule is None else {"rope_type": rule, **spec}, factor * self.length)

    @torch.no_grad()
    def logits(self, model: LM, tokens: Tensor, last: int | None = None) -> Tensor:
        """In the precision of training."""
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            found: Tensor = model(tokens, last=last)
        return found.float()


def read(run: Run, device: torch.device | str) -> Read:
    """A run on a device."""
    weights, text = run.judged()[0], open_text(run.config)
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        model = reader_of(run.config)
    model.load_state_dict(weights)
    return Read(run, model.eval().requires_grad_(False).to(device), text.to(device))


def positions(subject: Read) -> Rows:
    """The loss in bins of positions, as it was trained in the longest windows, and by each rule in those of each length."""
    longest = subject.factors[-1]
    yield from _line(subject, None, longest)
    for rule, factor in itertools.product(subject.rules, [each for each in subject.factors if each > 1]):
        yield from _line(subject, rule, factor)


def _line(subject: Read, rule: str | None, factor: int) -> Rows:
    window = factor * subject.length
    about = {"rule": rule, "factor": factor, "window": window}
    try:
        model = subject.extended(rule, factor)
        on_cpu(model.encoding)(torch.tensor([0, window - 1]))  # it looks at positions on a CPU alone
    except ValueError as error:
        yield {**about, "why": str(error)}
        return
    losses, count = by_position(subject, model, window)
    for first, last in itertools.pairwise(edges(subject.length, window)):
        loss = losses[first:last].mean().item()
        yield {**about, "from": first, "to": last, "loss": loss, "texts": count}


def edges(length: int, window: int) -> list[int]:
    """Where bins begin and end: 0, then half octaves from an eighth of the length of training on, up to the window's end."""
    halves = range(-6, 2 * math.ceil(math.log2(window / length)) + 1)
    return list(dict.fromkeys([0, *(min(window, max(1, round(length * 2 ** (i / 2)))) for i in halves), window]))


def by_position(subject: Read, model: LM, window: int) -> tuple[Tensor, int]:
    """The mean loss (window,) of the bytes at each position, and of how many texts."""
    count = min(subject.text.count("validation", window), max(1, ENOUGH // window))
    many = max(1, subject.config.batch * subject.length // window)
    total = torch.zeros(window, dtype=torch.float64)
    for some in subject.text.windows("validation", window, in_order(count, many)):
        logits = subject.logits(model, some[:, :-1])
        total += (
            F.cross_entropy(logits.flatten(0, 1), some[:, 1:].flatten(), reduction="none").view(len(some), -1).sum(0).cpu()
        )
    return total / count, count
