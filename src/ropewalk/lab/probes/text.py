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

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.data.sampling import sequential_order
from ropewalk.lab.data.text import KEY_DIGITS, MIN_KEY_LENGTH, draw_keys, hide_key
from ropewalk.lab.inspect.code_structure import ensure_on_cpu
from ropewalk.lab.probes.probe import Probe, ProbeRows
from ropewalk.lab.tasks.text import TextRun
from ropewalk.models import LM

MAX_PROBED_BYTES = 2**20
"""Bytes that are read for one line, at most."""


def probe_positions(subject: TextRun) -> ProbeRows:
    """The loss in bins of positions, as it was trained in the longest windows, and by each rule in those of each length."""
    longest = subject.factors[-1]
    yield from _probe_window(subject, None, longest)
    for rule, factor in itertools.product(subject.rules, [each for each in subject.factors if each > 1]):
        yield from _probe_window(subject, rule, factor)


def _probe_window(subject: TextRun, rule: str | None, factor: int) -> ProbeRows:
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


def probe_passkey(subject: TextRun) -> ProbeRows:
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


def _probe_key_length(subject: TextRun, rule: str | None, factor: int, length: int) -> ProbeRows:
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


POSITIONS = Probe(
    name="positions",
    summary="Loss by position in texts up to 16 times as long as in training, also with rules of context extension.",
    measure=probe_positions,
    tasks=("text",),
)
PASSKEY = Probe(
    name="passkey",
    summary="Digits of a key, hidden in a text, that are predicted at its end, by length of the text and depth of the key.",
    measure=probe_passkey,
    tasks=("text",),
)
