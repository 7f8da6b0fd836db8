"""Counter-based random numbers: each is a hash of seed, epoch, stream, sample and position, without a generator's state.

    numbers = draw_uniform(seed, epoch, index, stream, count)   # (len(index), count), float32 in [0, 1)

Number k of the sample with index i is a function of (seed, epoch, stream, i, k) and of nothing else. The five integers n are
hashed in this order by h <- mix((h xor n) + c), starting at h = 0; c is 2^64 divided by the golden ratio, and mix is the
output function of the generator splitmix64. It is a bijection of 64-bit words: no two samples have the same word for the
same k.

A number therefore does not depend on the device, the batch, the process that holds the sample, or earlier draws: integers
wrap alike on all devices, and a uniform number is the upper 24 bits of a word, which float32 represents exactly. The stream
is a number that the caller chooses, so that draws for different purposes are independent.
"""

import torch
from torch import Tensor

GOLDEN_RATIO_WORD = 0x9E3779B97F4A7C15
HASH_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
WORD_MASK = (1 << 64) - 1


def draw_uniform(seed: int, epoch: int, index: Tensor, stream: int, count: int) -> Tensor:
    """Numbers (len(index), count) uniform in [0, 1): multiples of 2^-24, on the index's device."""
    return ((draw_words(seed, epoch, index, stream, count) >> 40) & 0xFFFFFF).float() * 2.0**-24


def draw_words(seed: int, epoch: int, index: Tensor, stream: int, count: int) -> Tensor:
    """Hashes (len(index), count), all 64 bits of them, as int64."""
    if index.dtype != torch.int64 or index.ndim != 1:
        raise ValueError(f"index must be int64 (N,), got {index.dtype} {tuple(index.shape)}")
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    if torch.compiler.is_compiling():  # its integers have no 64 bits that wrap
        raise RuntimeError("numbers must be drawn outside of what torch.compile compiles, and given to it")
    samples = _update_hash(index, _to_signed(_hash_integers(seed, epoch, stream)))
    return _update_hash(samples[:, None], torch.arange(count, device=index.device))


def derive_seed(*numbers: int) -> int:
    """A seed of 63 bits for a generator that has a state, such as torch's, from the numbers that say what it is for."""
    return _hash_integers(*numbers) >> 1


def draw_beta(u: Tensor, v: Tensor, alpha: Tensor | float) -> Tensor:
    """A draw from Beta(alpha, alpha) for every two uniform numbers u, v in [0, 1), exact for every alpha above zero.

    sqrt(u^(-1/alpha) - 1) cos(2 pi v) is Student's t of 2 alpha degrees of freedom over sqrt(2 alpha) (Bailey's polar
    method), and (1 + t / sqrt(1 + t^2)) / 2 of it is the draw. With w = u^(1/alpha) no term is infinite. Powers and
    cosines are taken in float64 and rounded: their last bit is not the same on all devices and for all batches.
    """
    w, cosine = u.double() ** (1 / alpha), (v.double() * (2 * torch.pi)).cos()
    rest = 1 - w
    return (0.5 + 0.5 * cosine * (rest / (w + rest * cosine * cosine)).sqrt()).clamp(0, 1).float()


def _hash_integers(*numbers: int) -> int:
    """The hash of whole numbers, of any sign; 64 bits of each count."""
    state = 0
    for number in numbers:
        state = ((state ^ (number & WORD_MASK)) + GOLDEN_RATIO_WORD) & WORD_MASK
        state = ((state ^ (state >> 30)) * HASH_FACTORS[0]) & WORD_MASK
        state = ((state ^ (state >> 27)) * HASH_FACTORS[1]) & WORD_MASK
        state ^= state >> 31
    return state


def _update_hash(state: Tensor, number: Tensor | int) -> Tensor:
    """One step of `_hash_integers` on int64 tensors, whose sums and products wrap."""
    state = (state ^ number) + _to_signed(GOLDEN_RATIO_WORD)
    state = _xor_shift(state, 30) * _to_signed(HASH_FACTORS[0])
    state = _xor_shift(state, 27) * _to_signed(HASH_FACTORS[1])
    return _xor_shift(state, 31)


def _xor_shift(state: Tensor, shift: int) -> Tensor:
    """state xor (state >> shift), where zeros come in from above: torch's own shift brings in the sign."""
    return state ^ ((state >> shift) & (WORD_MASK >> shift))


def _to_signed(word: int) -> int:
    """The 64-bit word as torch's int64 writes it."""
    return word - (1 << 64) if word >> 63 else word
