"""CPU time of each test: `pytest -p tests.support.cpu_times --cpu-times FILE`; times of other programs do not count."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest


def cpu_seconds() -> float:
    """Of this process, its threads, and the processes that it started and waited for."""
    return sum(os.times()[:4])


def pytest_addoption(parser):
    parser.addoption("--cpu-times", type=Path, help="append a JSON line for each test to this file: its id and CPU seconds")


class CpuTimes:
    def __init__(self, path: Path):
        self.path = path
        self.seconds = defaultdict(float)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        start = cpu_seconds()
        yield
        with self.path.open("a") as file:
            file.write(json.dumps({"test": item.nodeid, "seconds": round(cpu_seconds() - start, 3)}) + "\n")


def pytest_configure(config):
    if path := config.getoption("--cpu-times"):
        config.pluginmanager.register(CpuTimes(path))
