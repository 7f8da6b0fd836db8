"""Small tensors, several test processes: one thread each is fastest. Without a GPU, Triton's kernels are interpreted."""

import gc
import os
import signal

import pytest
import torch

from tests.support import exhaustive, kernel_reference, random_tensors

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when a kernel is defined

torch.set_num_threads(1)

# Imports leave half a million objects that stay. Each full pass of the garbage collector over them takes half a second.
gc.disable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it to what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    options = parser.getgroup("exhaustive tests")
    options.addoption("--all", dest="whole", action="store_true", help="run exhaustive tests too")
    options.addoption("--group", help=f"run the exhaustive tests of one group alone: {', '.join(exhaustive.GROUPS)}")
    options.addoption("--record", action="store_true", help="write results/test-all.json if all tests pass")


def pytest_configure(config):
    config.pluginmanager.register(exhaustive.ExhaustivePlugin(config))


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    gc.unfreeze()


@pytest.fixture(autouse=True)
def seeded():
    """Encodings draw the same numbers whatever tests ran before, in whatever process."""
    torch.manual_seed(0)


@pytest.fixture
def unwritten_is_nan():
    """Memory that nobody has written to is NaN, so that a kernel that leaves some out is found."""
    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def few_programs(monkeypatch):
    """The interpreter takes its time for each program: where it is not their number that is tested, it gets few."""
    if not torch.cuda.is_available():
        kernel_reference.in_programs(monkeypatch, "turn", 1)


@pytest.fixture
def drawn_anew():
    """Random numbers of `drawn` from their beginning, whatever tests ran before."""
    random_tensors.SOURCE.manual_seed(0)
