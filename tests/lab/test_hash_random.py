"""Draws: every number as pure Python counts it, uniform on every margin, and independent of all neighbours."""

import math

import pytest
import torch
from scipy import stats

from ropewalk.lab.hash_random import derive_seed, draw_beta, draw_uniform, draw_words

WORD = 2**64
SAMPLES = 4096


def mixed(numbers):
    """The definition, in Python's own integers."""
    h = 0
    for n in numbers:
        h = ((h ^ (n % WORD)) + 0x9E3779B97F4A7C15) % WORD
        h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        h = (h ^ (h >> 27)) * 0x94D049BB133111EB % WORD
        h = h ^ (h >> 31)
    return h


def chi_square(counts):
    """The probability of counts at least as uneven as these, if all cells are equally likely."""
    return stats.chisquare(counts.flatten().numpy()).pvalue


def cells(*numbers, bins=16):
    """How often each combination of bins occurs."""
    place = torch.zeros_like(numbers[0], dtype=torch.int64)
    for u in numbers:
        place = place * bins + (u * bins).long()
    return torch.bincount(place, minlength=bins ** len(numbers))


def drawn(seed=0, epoch=0, first=0, stream=0, count=1):
    return draw_uniform(seed, epoch, torch.arange(first, first + SAMPLES), stream, count)


@pytest.mark.parametrize(("seed", "epoch", "stream"), [(0, 0, 0), (7, 3, 2), (2**63 + 5, 10**6, 31), (-1, -2, -3)])
def test_every_word_is_the_one_that_python_counts(seed, epoch, stream):
    samples = [0, 1, 5, 49_999, 2**40, 2**63 - 1, -1]
    got = draw_words(seed, epoch, torch.tensor(samples), stream, 3)
    wanted = [[mixed((seed, epoch, stream, i, k)) for k in range(3)] for i in samples]
    assert [[word % WORD for word in row] for row in got.tolist()] == wanted
    numbers = draw_uniform(seed, epoch, torch.tensor(samples), stream, 3)
    assert numbers.tolist() == [[(word >> 40) / 2**24 for word in row] for row in wanted]


def test_known_words():
    """The first outputs of splitmix64 for the state 0: taking in one number n is its output for the state n."""
    assert mixed([0]) == 0xE220A8397B1DCDAF
    assert mixed([0x9E3779B97F4A7C15]) == 0x6E789E6AA1B965F4
    assert derive_seed(0) == 0xE220A8397B1DCDAF >> 1


def test_numbers_do_not_depend_on_the_batch_or_the_order():
    index = torch.randperm(1000)
    whole = draw_uniform(1, 2, index, 3, 5)
    assert torch.equal(whole, torch.cat([draw_uniform(1, 2, part, 3, 5) for part in index.split(37)]))
    assert torch.equal(whole[:, :2], draw_uniform(1, 2, index, 3, 2))
    assert torch.equal(whole[index.argsort()], draw_uniform(1, 2, torch.arange(1000), 3, 5))


def test_dtype_range_and_emptiness():
    numbers = drawn(count=64)
    assert numbers.dtype == torch.float32
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert draw_uniform(0, 0, torch.arange(0), 0, 4).shape == (0, 4)
    assert draw_uniform(0, 0, torch.arange(3), 0, 0).shape == (3, 0)


@pytest.mark.parametrize("changed", ["seed", "epoch", "first", "stream"])
@pytest.mark.parametrize("step", [1, 2, 256])
def test_each_margin_and_each_pair_of_neighbours_is_uniform(changed, step):
    """A pair of margins that depended on each other would fill its 256 cells unevenly."""
    for at in (0, 1, 1000):
        here, there = drawn(**{changed: at}, count=2), drawn(**{changed: at + step}, count=2)
        assert chi_square(cells(here[:, 0], bins=64)) > 1e-4
        assert chi_square(cells(here[:, 0], there[:, 0])) > 1e-4
        assert chi_square(cells(here[:, 1], there[:, 1])) > 1e-4
        assert chi_square(cells(here[:, 0], there[:, 1])) > 1e-4


def test_numbers_of_one_sample_are_independent():
    numbers = drawn(count=8)
    for k in range(7):
        assert chi_square(cells(numbers[:, k], numbers[:, k + 1])) > 1e-4
    assert chi_square(cells(*numbers[:, :3].T, bins=6)) > 1e-4


def test_every_bit_is_even():
    """And flips with even chance when the index grows by one."""
    word = draw_words(0, 0, torch.arange(SAMPLES), 0, 1)
    flips = word[1:] ^ word[:-1]
    for values in (word, flips):
        ones = torch.stack([(values >> bit & 1).float().mean() for bit in range(64)])
        assert (ones - 0.5).abs().max() < 5 * 0.5 / math.sqrt(SAMPLES)


def test_epoch_and_index_are_not_added():
    """Sample i + 1 of an epoch has nothing of sample i of the next; a hash of their sum is found out."""
    assert chi_square(cells(drawn(epoch=0)[1:, 0], drawn(epoch=1)[:-1, 0])) > 1e-4
    summed = [draw_uniform(0, 0, torch.arange(SAMPLES) + epoch, 0, 1)[:, 0] for epoch in (0, 1)]
    assert chi_square(cells(summed[0][1:], summed[1][:-1])) < 1e-9


def test_multiples_of_an_irrational_number_are_found_out():
    """They fill every margin evenly, but each tells the next."""
    numbers = torch.arange(SAMPLES).double().mul(0.6180339887).frac()
    assert chi_square(cells(numbers, bins=64)) > 1e-4
    assert chi_square(cells(numbers[:-1], numbers[1:])) < 1e-9


def test_seeds_differ_and_fit():
    seeds = {
        derive_seed(*numbers)
        for numbers in [(0,), (0, 0), (0, 1), (1, 0), (1,), (-1,), (2**64 + 1, 1), (1, 2, 3), (3, 2, 1)]
    }
    assert len(seeds) == 9
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(1, 2) == mixed((1, 2)) >> 1
    torch.manual_seed(max(seeds))


@pytest.mark.parametrize("alpha", [0.2, 0.4, 0.5, 0.8, 1.0, 2.0, 7.5])
def test_beta_has_its_distribution_and_its_moments(alpha):
    u, v = draw_uniform(0, 0, torch.arange(40_000), 0, 2).unbind(1)
    x = draw_beta(u, v, alpha)
    assert x.dtype == torch.float32
    law = stats.beta(alpha, alpha)
    inner = torch.linspace(0.01, 0.99, 33)
    found = (x[:, None] < inner).double().mean(0)
    assert (found - torch.from_numpy(law.cdf(inner.numpy()))).abs().max() < 2.2 / math.sqrt(len(x))
    x = x.double() - 0.5
    assert x.mean().abs() < 5 * law.std() / math.sqrt(len(x))
    assert (x**2).mean().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)
    assert (x**4).mean().item() == pytest.approx(3 / (16 * (2 * alpha + 1) * (2 * alpha + 3)), rel=0.05)


def test_beta_of_one_alpha_is_not_that_of_another():
    u, v = draw_uniform(0, 0, torch.arange(40_000), 0, 2).unbind(1)
    assert stats.kstest(draw_beta(u, v, 0.8).double().numpy(), stats.beta(0.8, 0.8).cdf).pvalue > 1e-4
    assert stats.kstest(draw_beta(u, v, 0.8).double().numpy(), stats.beta(1, 1).cdf).pvalue < 1e-9
    each = draw_beta(u[:4], v[:4], torch.tensor([0.2, 0.8, 1.0, 2.0]))
    assert each.tolist() == [draw_beta(u[i], v[i], a).item() for i, a in enumerate((0.2, 0.8, 1.0, 2.0))]


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.8, 50.0])
def test_beta_is_finite_at_the_corners(alpha):
    ends = torch.tensor([0.0, 2.0**-24, 0.25, 0.5, 0.75, 1 - 2.0**-24])
    inner = draw_uniform(0, 0, torch.arange(40_000), 0, 2)
    x = draw_beta(*torch.cat([torch.cartesian_prod(ends, ends), inner]).unbind(1), alpha)
    assert x.isfinite().all()
    assert ((x >= 0) & (x <= 1)).all()


@pytest.mark.parametrize("index", [torch.arange(3.0), torch.arange(3, dtype=torch.int32), torch.zeros(2, 2).long()])
def test_other_indices_are_errors(index):
    with pytest.raises(ValueError, match=r"index.*int64 \(N,\), got torch"):
        draw_uniform(0, 0, index, 0, 1)


def test_numbers_are_not_drawn_inside_of_a_graph():
    """Its integers are no 64-bit words; without `fullgraph` it is left for the draws."""
    torch.compiler.reset()
    with pytest.raises(Exception, match=r"outside.*torch\.compile"):
        torch.compile(draw_uniform, backend="eager", fullgraph=True)(0, 0, torch.arange(3), 0, 2)
    torch.compiler.reset()
    compiled = torch.compile(draw_uniform, backend="eager")
    for epoch in range(4):
        assert torch.equal(compiled(0, epoch, torch.arange(3), 0, 2), draw_uniform(0, epoch, torch.arange(3), 0, 2))


def test_a_negative_count_is_an_error():
    with pytest.raises(ValueError, match=r"count.*got -1"):
        draw_uniform(0, 0, torch.arange(3), 0, -1)
