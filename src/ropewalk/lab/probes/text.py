"""A run on text taken up again, and how well it finds the bytes of texts longer than those of training.

Losses are in nats a byte, on the validation text, cut into windows of a length and read from the beginning of each. Bins
of positions are half octaves, so that they are even on a logarithmic axis. With rules of context extension, the model is not
trained any further: `window` is `factor` times the length of training, and the rule is made for just that. "dynamic" has the
factor 2 of its own formula whatever the window is, as in most configs.

A key of five digits, hidden in a text and asked for at its end.

The text around it is the validation text. What a model says of each digit is looked at with the digits before it as they
are: it says the whole key by itself exactly if it finds each of them so. Chance has a loss of ln 10 = 2.30 nats a digit.
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
from ropewalk.lab.config import Config
from ropewalk.lab.data.passkeys import KEY_DIGITS, MIN_KEY_LENGTH, draw_keys, hide_key
from ropewalk.lab.data.sampling import sequential_order
from ropewalk.lab.data.text import TextData
from ropewalk.lab.inspect.code_structure import ensure_on_cpu
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.tasks.text import build_language_model, check_window_length, open_text_data
from ropewalk.models import LM

TextProbeRows = Iterator[dict[str, Any]]

MAX_LENGTH_FACTOR, FINE_TUNED_LENGTH_FACTOR = 16, 4
"""How many times the length of training is looked at, and after fine-tuning on texts that were longer already."""
TEXT_EXTENSION_RULES = ("linear", "ntk-aware", "dynamic", "ntk-by-parts", "yarn", "llama3", "yarn-article")
MAX_PROBED_BYTES = 2**20
"""Bytes that are read for one line, at most."""


@dataclass(frozen=True)
class TextRun:
    """A run on text that is probed, with its model and its text on one device."""

    run: RunFolder
    model: LM
    text: TextData

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.run.config

    @property
    def length(self) -> int:
        """Of texts in training."""
        return check_window_length(self.config)

    @property
    def encoding(self) -> Encoding:
        """The trained encoding."""
        return self.model.encoding

    @property
    def factors(self) -> list[int]:
        """1, 2, 4, …: how many times the length of training there are windows for, as long as the text goes."""
        reach = MAX_LENGTH_FACTOR if self.config.start is None else FINE_TUNED_LENGTH_FACTOR
        every = [2**i for i in range(reach.bit_length())]
        return [factor for factor in every if self.text.count("validation", factor * self.length)]

    @property
    def rules(self) -> Sequence[str]:
        """Rules that can be applied: to encodings that take one and have none."""
        return TEXT_EXTENSION_RULES if isinstance(self.encoding, RoPE) and self.encoding.extension is None else ()

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


def open_text_run(run: RunFolder, device: torch.device | str) -> TextRun:
    """A run on a device."""
    weights, text = run.load_weights()[0], open_text_data(run.config)
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        model = build_language_model(run.config)
    model.load_state_dict(weights)
    return TextRun(run, model.eval().requires_grad_(False).to(device), text.to(device))


def probe_positions(subject: TextRun) -> TextProbeRows:
    """The loss in bins of positions, as it was trained in the longest windows, and by each rule in those of each length."""
    longest = subject.factors[-1]
    yield from _probe_window(subject, None, longest)
    for rule, factor in itertools.product(subject.rules, [each for each in subject.factors if each > 1]):
        yield from _probe_window(subject, rule, factor)


def _probe_window(subject: TextRun, rule: str | None, factor: int) -> TextProbeRows:
    window = factor * subject.length
    about = {"rule": rule, "factor": factor, "window": window}
    try:
        model = subject.extended(rule, factor)
        ensure_on_cpu(model.encoding)(torch.tensor([0, window - 1]))  # it looks at positions on a CPU alone
    except ValueError as error:
        yield {**about, "why": str(error)}
        return
    losses, count = measure_position_loss(subject, model, window)
    for first, last in itertools.pairwise(compute_bin_edges(subject.length, window)):
        loss = losses[first:last].mean().item()
        yield {**about, "from": first, "to": last, "loss": loss, "texts": count}


def compute_bin_edges(length: int, window: int) -> list[int]:
    """Where bins begin and end: 0, then half octaves from an eighth of the length of training on, up to the window's end."""
    halves = range(-6, 2 * math.ceil(math.log2(window / length)) + 1)
    return list(dict.fromkeys([0, *(min(window, max(1, round(length * 2 ** (i / 2)))) for i in halves), window]))


def measure_position_loss(subject: TextRun, model: LM, window: int) -> tuple[Tensor, int]:
    """The mean loss (window,) of the bytes at each position, and of how many texts."""
    count = min(subject.text.count("validation", window), max(1, MAX_PROBED_BYTES // window))
    many = max(1, subject.config.batch * subject.length // window)
    total = torch.zeros(window, dtype=torch.float64)
    for some in subject.text.windows("validation", window, sequential_order(count, many)):
        logits = subject.logits(model, some[:, :-1])
        total += (
            F.cross_entropy(logits.flatten(0, 1), some[:, 1:].flatten(), reduction="none").view(len(some), -1).sum(0).cpu()
        )
    return total / count, count


KEY_DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
KEY_DRAWS = 8
"""Keys and texts for each length and depth."""


def probe_passkey(subject: TextRun) -> TextProbeRows:
    """Digits and whole keys that are found, and the loss of a digit, by length of the whole text and depth of the key.

    Texts that are longer than those of training are read as it was trained, and by each rule where it takes one.
    """
    for factor in subject.factors:
        length = factor * subject.length
        if length < MIN_KEY_LENGTH or len(subject.text.parts["validation"]) < KEY_DRAWS * length:
            wanted = f"a text with a key must have {MIN_KEY_LENGTH} bytes, and the validation text {KEY_DRAWS} of them"
            words = f"{wanted}, got {length:,}"
            yield {"rule": None, "factor": factor, "length": length, "why": words}
            continue
        for rule in (None, *subject.rules) if factor > 1 else (None,):
            yield from _probe_key_length(subject, rule, factor, length)


def _probe_key_length(subject: TextRun, rule: str | None, factor: int, length: int) -> TextProbeRows:
    about = {"rule": rule, "factor": factor, "length": length}
    try:
        model = subject.extended(rule, factor)
        found = [(depth, *_score_digits(subject, model, length, depth)) for depth in KEY_DEPTHS]
    except ValueError as error:
        yield {**about, "why": str(error)}
        return
    for depth, right, loss in found:
        exact = right.all(1).float().mean().item()
        yield {**about, "depth": depth, "digits": right.float().mean().item(), "exact": exact, "loss": loss.mean().item()}


def _score_digits(subject: TextRun, model: LM, length: int, depth: float) -> tuple[Tensor, Tensor]:
    """Whether each digit of each key is found, and its loss, both (DRAWS, DIGITS)."""
    texts = build_passkey_texts(subject, length, depth)
    many = max(1, subject.config.batch * subject.length // length)
    logits = torch.cat([subject.logits(model, some[:, :-1], last=KEY_DIGITS) for some in texts.split(many)])
    targets = texts[:, -KEY_DIGITS:]
    return logits.argmax(-1) == targets, F.cross_entropy(logits.mT, targets, reduction="none")


def build_passkey_texts(subject: TextRun, length: int, depth: float) -> Tensor:
    """Texts (DRAWS, length), each with a key of its own and from its own place in the validation text."""
    part = subject.text.parts["validation"]
    index = torch.arange(KEY_DRAWS, device=part.device)
    digits = (draw_keys(subject.config.seed, -1, index)[:, -KEY_DIGITS:] * 10).long()
    told = torch.full((KEY_DRAWS,), depth, device=part.device)
    return hide_key(part[: KEY_DRAWS * length].view(KEY_DRAWS, length).long(), told, torch.ones_like(told), digits)
