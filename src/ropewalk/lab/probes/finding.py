"""A key of five digits, hidden in a text and asked for at its end.

The text around it is the validation text. What a model says of each digit is looked at with the digits before it as they
are: it says the whole key by itself exactly if it finds each of them so. Chance has a loss of ln 10 = 2.30 nats a digit.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk.lab.draws import words
from ropewalk.lab.probes.reading import Read, Rows
from ropewalk.models import LM

HIDDEN, ASKED = "\nThe pass key is {}. Remember it: {}.\n", "\nWhat is the pass key? The pass key is {}"
DIGITS = 5
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
DRAWS = 8
"""Keys and texts for each length and depth."""
STREAM = 1006
"""Of the draws of keys."""


def passkey(subject: Read) -> Rows:
    """Digits and whole keys that are found, and the loss of a digit, by length of the whole text and depth of the key.

    Texts that are longer than those of training are read as it was trained, and by YaRN where it takes a rule.
    """
    for factor in subject.factors:
        length = factor * subject.length
        if length < shortest() or len(subject.text.parts["validation"]) < DRAWS * length:
            continue
        for rule in (None, "yarn") if factor > 1 and "yarn" in subject.rules else (None,):
            yield from _at(subject, rule, factor, length)


def shortest() -> int:
    """Bytes that a text must have for a key to be hidden in it."""
    return 2 * len(prompt(b"", 0.0, "0" * DIGITS))


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
    tokens = torch.stack([_text(subject, length, depth, draw) for draw in range(DRAWS)])
    many = max(1, subject.config.batch * subject.length // length)
    logits = torch.cat([subject.logits(model, some[:, :-1], last=DIGITS) for some in tokens.split(many)])
    targets = tokens[:, -DIGITS:]
    return logits.argmax(-1) == targets, F.cross_entropy(logits.mT, targets, reduction="none")


def _text(subject: Read, length: int, depth: float, draw: int) -> Tensor:
    """A text of so many bytes; each draw has its own key and its own place in the validation text."""
    part = subject.text.parts["validation"]
    drawn = words(subject.config.seed, 0, torch.tensor([draw]), STREAM, DIGITS)[0].remainder(10)
    key = "".join(map(str, drawn.tolist()))
    around = part[draw * length : (draw + 1) * length - len(prompt(b"", depth, key))]
    return torch.tensor(list(prompt(bytes(around.tolist()), depth, key)), device=part.device)


def prompt(around: Sequence[int], depth: float, key: str) -> bytes:
    """A text with a key hidden at a depth, from 0 to 1, and asked for and told at its end."""
    place = round(depth * len(around))
    return bytes(around[:place]) + HIDDEN.format(key, key).encode() + bytes(around[place:]) + ASKED.format(key).encode()
