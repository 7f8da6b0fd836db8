"""The learning rate over a run: a rise in proportion, then half a cosine down to zero."""

import math


def learning_rate(step: int, *, highest: float, warmup: int, steps: int) -> float:
    """Of step 0, 1, …: highest · (step + 1) / warmup at first, then highest · (1 + cos(π t)) / 2 with t from 0 to 1."""
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1))) / 2
