"""A key of five digits, hidden in a text and asked for at its end.

The text around it is the validation text. What a model says of each digit is looked at with the digits before it as they
are: it says the whole key by itself exactly if it finds each of them so. Chance has a loss of ln 10 = 2.30 nats a digit.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.data.keys import DIGITS, SHORTEST, drawn, hide
from ropewalk.lab.probes.reading import Read, Rows
from ropewalk.models import LM

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
DRAWS = 8
"""Keys and texts for each length and depth."""


def passkey(subject: Read) -> Rows:
    """Digits and whole keys that are found, and the loss of a digit, by length of the whole text and depth of the key.

    Texts that are longer than those of training are read as it was trained, and by each rule where it takes one.
    """
    for factor in subject.factors:
        length = factor * subject.length
        if length < SHORTEST or len(subject.text.parts["validation"]) < DRAWS * length:
            words = f"a text with a key must have {SHORTEST} bytes, and the validation text {DRAWS} of them, got {length:,}"
            yield {"rule": None, "factor": factor, "length": length, "why": words}
            continue
        for rule in (None, *subject.rules) if factor > 1 else (None,):
            yield from _at(subject, rule, factor, length)


def _at(subject: Read, rule: str | None, factor: int, length: int) -> Rows:
    about = {"rule": rule, "factor": factor, "length": length}
    try:
        model = subject.extended(rule, factor)
        found = [(depth, *_answers(subject, model, length, depth)) for depth in DEPTHS]
    except ValueError as error:
        yield {**about, "why": str(error)}
        return
    for depth, right, loss in found:
        exact = right.all(1).float().mean().item()
        yield {**about, "depth": depth, "digits": right.float().mean().item(), "exact": exact, "loss": loss.mean().item()}


def _answers(subject: Read, model: LM, length: int, depth: float) -> tuple[Tensor, Tensor]:
    """Whether each digit of each key is found, and its loss, both (DRAWS, DIGITS)."""
    texts = keyed(subject, length, depth)
    many = max(1, subject.config.batch * subject.length // length)
    logits = torch.cat([subject.logits(model, some[:, :-1], last=DIGITS) for some in texts.split(many)])
    targets = texts[:, -DIGITS:]
    return logits.argmax(-1) == targets, F.cross_entropy(logits.mT, targets, reduction="none")


def keyed(subject: Read, length: int, depth: float) -> Tensor:
    """Texts (DRAWS, length), each with a key of its own and from its own place in the validation text."""
    part = subject.text.parts["validation"]
    index = torch.arange(DRAWS, device=part.device)
    digits = (drawn(subject.config.seed, -1, index)[:, -DIGITS:] * 10).long()
    told = torch.full((DRAWS,), depth, device=part.device)
    return hide(part[: DRAWS * length].view(DRAWS, length).long(), told, torch.ones_like(told), digits)
