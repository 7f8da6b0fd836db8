"""The benchmark of trainings side by side: if one ends, so does the measurement, in words."""

import importlib.util
import queue
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "side_by_side.py"


@pytest.fixture
def benchmark(monkeypatch):
    """The module, by a name under which new processes find it, too."""
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    spec = importlib.util.spec_from_file_location("side_by_side", BENCHMARK)
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "side_by_side", found)
    spec.loader.exec_module(found)
    return found


def test_times_are_gathered_until_all_have_come(benchmark):
    times = queue.Queue()
    for each in ((1, 0.5), (2, 0.7), (2, 0.6), (3, 9.9)):
        times.put(each)
    members = [SimpleNamespace(exitcode=code) for code in (0, None, 0)]
    assert benchmark.gathered(3, members, times) == [(1, 0.5), (2, 0.7), (2, 0.6)]


@pytest.mark.parametrize("code", [1, -9])
def test_a_training_that_fails_ends_the_measurement(benchmark, code):
    with pytest.raises(SystemExit, match=f"one of 2 trainings ended with the code {code}: see above"):
        benchmark.gathered(3, [SimpleNamespace(exitcode=None), SimpleNamespace(exitcode=code)], queue.Queue())


def stuck(number, most, epochs, given, data, gate, times):
    """The second fails; the first waits for it."""
    if number:
        sys.exit(3)
    gate.wait(timeout=30)


def test_those_that_wait_for_it_are_ended(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "worker", stuck)
    begun = []
    real = benchmark.multiprocessing.get_context("spawn")
    monkeypatch.setattr(real, "Process", lambda **given: begun.append(type(real).Process(**given)) or begun[-1])
    with pytest.raises(SystemExit, match="ended with the code 3"):
        benchmark.measured(2, 1, {}, 10)
    assert [each.exitcode for each in begun] == [-15, 3]
