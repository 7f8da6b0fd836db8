"""The benchmark of attention's kernels, on a CPU, which has two of them."""

import importlib.util
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "attention_kernels.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("attention_kernels", PATH)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_kernels_that_are_here_are_timed_and_others_say_why(benchmark):
    found = {row["kernel"]: row for row in benchmark.rows({"tiny": (3, 2, 5, 8)}, torch.float32)}
    for kernel in ("flash", "formula"):
        assert found[kernel]["ms"] > 0
        assert found[kernel]["back ms"] > 0
        assert found[kernel]["eager ms"] > 0
    for kernel in ("cuDNN", "efficient", "ropewalk"):
        assert "why" in found[kernel]


def test_a_kernel_with_wrong_gradients_is_not_timed(benchmark, monkeypatch):
    right = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(benchmark, "attention", lambda kernel: lambda q, k, v: right(q, k, v, scale=0.4))
    assert benchmark.timed("flash", (3, 2, 5, 8), torch.float32)["why"].startswith("gradients are off by")


def test_wrong_gradients_are_refused(benchmark):
    inputs, gradient = [torch.randn(2, 2, 5, 8).requires_grad_() for _ in range(3)], torch.randn(2, 2, 5, 8)
    right = torch.nn.functional.scaled_dot_product_attention
    benchmark.checked(right, inputs, gradient)
    for wrong in (lambda q, k, v: right(q, k, v, scale=0.4), lambda q, k, v: right(q, k, v) * torch.nan):
        with pytest.raises(benchmark.Wrong, match="gradients are off by"):
            benchmark.checked(wrong, inputs, gradient)
