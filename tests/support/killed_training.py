"""Trainings that are killed within an epoch."""

import multiprocessing
import os
import signal

import torch

from ropewalk.lab import run_store, train
from ropewalk.lab.config import Config

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["ropewalk.lab.train"])


FILES_BEFORE_STEPS = 5
"""config.json, environment.json twice, metrics.jsonl, and the first checkpoint."""


def killed_after_steps(config, runs, count):
    """Train with a checkpoint after each step, in a process that kills itself when so many of them are written."""
    torch.set_num_threads(1)
    train.CHECKPOINT_INTERVAL_FACTOR = 0
    calls, move = iter(range(1, 10_000)), os.replace

    def put(part, path):
        move(part, path)
        if next(calls) == FILES_BEFORE_STEPS + count:
            os.kill(os.getpid(), signal.SIGKILL)

    run_store.os.replace = put
    train.train_run(Config.of({**config, "checkpoint": 0.0}), runs)
