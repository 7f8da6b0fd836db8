"""Trainings that are killed on the way."""

import multiprocessing
import os
import signal

import torch

from ropewalk.lab import run_store
from ropewalk.lab.config import Config
from ropewalk.lab.train import train_run

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["ropewalk.lab.train"])


def killed_after(config, runs, count):
    """Train in a process that dies as it has put so many files in place."""
    torch.set_num_threads(1)
    calls, move = iter(range(10_000)), os.replace

    def put(part, path):
        move(part, path)
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    run_store.os.replace = put
    train_run(Config.of(config), runs)
