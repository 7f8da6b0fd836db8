"""Whether one of several variances is larger than chance makes it: Cochran's C.

Of k variances of n values each, C is the largest over their sum. If values are normal and the true variances are equal, the
share that a given one has is beta distributed, with (n - 1) / 2 and (k - 1)(n - 1) / 2; that any of them exceeds C has at
most k times the probability that this one does.
"""

import math

from ropewalk.lab.intervals import within

SHARE = 0.99


def critical(count: int, size: int, share: float = SHARE) -> float:
    """What the largest of `count` equal variances of `size` values has of their sum at most, in this share of cases."""
    own, others, low, high = size - 1, (count - 1) * (size - 1), 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if count * _beyond(middle, own, others) > 1 - share else (low, middle)
    return high


def _beyond(x: float, own: int, others: int) -> float:
    """The probability of a share above x, of a sum of `own` squares in one of `own + others`.

    That of one square is Student's, that of two is a power; each two more add a term (Abramowitz and Stegun 26.5.16).
    """
    a, b = 1 - own % 2 / 2, others / 2
    beyond = (1 - x) ** b if a == 1 else 1 - within(math.sqrt(others * x / (1 - x)), others)
    while a < own / 2:
        beyond += x**a * (1 - x) ** b * math.exp(math.lgamma(a + b) - math.lgamma(a + 1) - math.lgamma(b))
        a += 1
    return beyond
