"""Sharded by FSDP2 over two processes on the CPU, models compute what they compute unsharded."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.distributed import fsdp_scenarios
from tests.support.exhaustive import ROOT

PATIENCE = 600
"""Seconds after which a pair of processes that does not end is killed."""


@pytest.fixture
def start_process(tmp_path):
    """Starts one of the two processes; at the end none is left."""
    started = []

    def start(rank):
        printed = (tmp_path / f"{rank}.txt").open("w")
        command = [sys.executable, "-m", "tests.distributed.fsdp_scenarios", str(rank), str(tmp_path)]
        options = {"cwd": ROOT, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "start_new_session": True}
        with printed:
            started.append(subprocess.Popen(command, stderr=printed, **options))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_sharded_models_compute_what_unsharded_ones_do(start_process, tmp_path):
    """One pair of processes for all scenarios: to import PyTorch takes longer than most of them."""
    for rank, process in enumerate([start_process(rank) for rank in range(2)]):
        assert process.wait(timeout=PATIENCE) == 0, (tmp_path / f"{rank}.txt").read_text()[-3000:]
    for rank in range(2):
        errors = json.loads((tmp_path / f"{rank}.json").read_text())
        assert errors == {}, "\n".join(f"{name}: {error}" for name, error in errors.items())


def test_every_encoding_is_among_the_scenarios():
    names = fsdp_scenarios.list_scenarios()
    for encoding in (*fsdp_scenarios.REGISTRY, "chain"):
        for policy in fsdp_scenarios.POLICIES:
            assert any(f", {encoding}, {policy}" in name for name in names), (encoding, policy)
        assert f"reset, {encoding}, 0" in names
