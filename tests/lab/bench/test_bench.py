"""What `ropewalk bench` reports: right answers only, failures as rows, and a document that is whole at any time.

All of it runs on the CPU, in small shapes, also where there is a GPU.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import sys
import types
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ropewalk as rw
from ropewalk import cli, ops
from ropewalk.code import Code
from ropewalk.encodings import REGISTRY
from ropewalk.lab.bench import cpu, lengths, peers, steps, suites, timing
from ropewalk.lab.bench.correctness import (
    MATRIX_SAMPLE_SIZE,
    check_output_error,
    compute_skew_part,
    exponentiate_skew_matrices,
    sample_matrices,
)
from ropewalk.lab.bench.cpu import list_cpu_jobs, use_one_thread
from ropewalk.lab.bench.lengths import list_length_jobs
from ropewalk.lab.bench.operations import (
    ROTATION_OPS,
    RotationCase,
    _list_op_work,
    count_megabytes,
    list_rotation_jobs,
    measure_backward,
    measure_exponential,
    measure_forward,
    measure_peer,
)
from ropewalk.lab.bench.peers import ROTATION_PEERS, RotationPeer, _make_complex, _make_plain
from ropewalk.lab.bench.steps import (
    STEP_MODES,
    StepField,
    StepSetting,
    create_timm_vit,
    list_step_contenders,
    measure_step_rows,
)
from ropewalk.lab.bench.suites import BENCH_SUITES, BenchSuite, explain_missing_figures, run_bench_suites
from ropewalk.lab.bench.timing import (
    BenchJob,
    WrongResultError,
    select_bench_jobs,
    time_backward_replay,
    time_calls,
    time_graph_replay,
    time_interleaved,
    time_interleaved_rounds,
)
from ropewalk.lab.figures.cost import draw_step_cost
from ropewalk.lab.figures.figure_files import encode_figure
from ropewalk.lab.figures.theme import FIGURE_THEMES
from ropewalk.models import ViT
from tests.lab.figures.test_figures import assert_readable
from tests.support.patch_everywhere import patch_everywhere

TINY = StepSetting(width=24, depth=1, heads=2, size=(6, 10), patch=2, batch=2, classes=3, rounds=2, inner=1, backend="eager")
HALF = torch.bfloat16


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def case():
    return RotationCase(2, 15, 4, 2, 24)


# Who is right


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("op", ROTATION_OPS[:-1], ids=lambda op: op.name)
def test_formulas_agree_with_the_matrices_of_codes(op, heads):
    torch.manual_seed(0)
    x, table = torch.randn(2, 4, 5, 24, dtype=torch.float64), op.draw(heads, 5, 24).double()
    matrices = op.code(24, table).matrices().repeat_interleave(4 // heads, dim=0)
    torch.testing.assert_close(op.formula(x, table), (matrices @ x[..., None])[..., 0])


@pytest.mark.parametrize("size", [3, 8])
def test_exponentials_agree_with_pytorch_also_where_the_spectrum_repeats(size):
    free = 3 * torch.randn(4, size, size, dtype=torch.float64)
    free[0], free[1, 1:] = 0, 0
    skew, gradient = (free - free.mT).requires_grad_(), torch.randn(4, size, size, dtype=torch.float64)
    right = torch.linalg.matrix_exp(skew)
    (back,) = torch.autograd.grad(right, skew, gradient)
    found, found_back = exponentiate_skew_matrices(skew.detach(), gradient)
    torch.testing.assert_close(found, right.detach())
    torch.testing.assert_close(found_back, compute_skew_part(back))


def test_a_judge_admits_rounding_and_nothing_more():
    right = torch.randn(4, 1000, 64, dtype=torch.float64)
    assert check_output_error([right.to(HALF)], [right], HALF) < 2**-8
    assert check_output_error([right.float()], [right], torch.float32) < 2**-23
    assert check_output_error([right, right.to(HALF)], [right, right], HALF) > 2**-11
    with pytest.raises(WrongResultError, match="off by"):
        check_output_error([right.to(HALF)], [right], torch.float32)


@pytest.mark.parametrize("wrong", [0.0, math.nan, math.inf])
def test_one_wrong_row_of_thousands_is_found(wrong):
    right = torch.randn(4, 1000, 64, dtype=torch.float64)
    out = right.to(HALF)
    out[3, -1] = wrong
    with pytest.raises(WrongResultError, match="off by"):
        check_output_error([right.to(HALF), out], [right, right], HALF)
    with pytest.raises(WrongResultError, match=r"of shape \(4, 1, 64\)"):
        check_output_error([out[:, :1]], [right], HALF)


def test_a_sample_has_the_first_and_the_last_of_each_stack():
    stack = torch.arange(2000.0)[:, None, None].expand(2000, 3, 3)
    one, other = sample_matrices(stack.unflatten(0, (2, 1000)), -stack.unflatten(0, (2, 1000)))
    assert (len(one), one[0, 0, 0], one[-1, 0, 0]) == (MATRIX_SAMPLE_SIZE, 0, 1999)
    assert torch.equal(one, -other)


# Turning q and k


class Wrong(torch.autograd.Function):
    """Turns rightly; what it says of gradients is multiplied."""

    @staticmethod
    def forward(ctx, op, factors, x, table):
        ctx.op, ctx.factors = op, factors
        ctx.save_for_backward(x, table)
        return op.formula(x.double(), table.double()).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        inputs = [tensor.detach().double().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            out = ctx.op.formula(*inputs)
        found = torch.autograd.grad(out, inputs, gradient.double())
        kept = zip(found, ctx.saved_tensors, ctx.factors, strict=True)
        return None, None, *(factor * grad.to(tensor.dtype) for grad, tensor, factor in kept)


def mutant(op, of_x=1.0, of_table=1.0):
    """An op whose outputs are right, and whose gradients are wrong by these factors."""

    class Mutant(Code):
        def __init__(self, table):
            super().__init__()
            object.__setattr__(self, "table", table)

        def qk(self, q, k):
            return tuple(Wrong.apply(op, (of_x, of_table), x, self.table) for x in (q, k))

    return op._replace(code=lambda depth, table: Mutant(table))


@pytest.mark.parametrize("op", ROTATION_OPS[:-1], ids=lambda op: op.name)
def test_ops_are_measured_there_and_back(case, op):
    works = _list_op_work(case, op)
    assert [name.removeprefix(f"{op.name}, ") for name in works] == [
        "forward",
        "forward, a table for each head",
        "forward, views of one projection",
        "backward",
        "backward, table learned",
    ]
    for work in works.values():
        row = work()
        assert list(row) == ["ms", "GB/s", "of copy", "eager ms", "error"]
        assert 0 < row["error"] < 2**-7
        assert row["of copy"] == pytest.approx(row["GB/s"] / case.copy)


@pytest.mark.parametrize("op", [ROTATION_OPS[0], ROTATION_OPS[2], ROTATION_OPS[4]], ids=lambda op: op.name)
def test_wrong_gradients_are_refused(case, op):
    right, of_x, of_table = mutant(op), mutant(op, of_x=1.1), mutant(op, of_table=1.1)
    measure_backward(case, right, heads=2, learned=True)
    measure_backward(case, of_table, heads=2)
    for wrong in (of_x, of_table):
        measure_forward(case, wrong)
        with pytest.raises(WrongResultError):
            measure_backward(case, wrong, heads=2, learned=True)


def test_a_wrong_output_is_refused(case):
    interleaved, half_split = ROTATION_OPS[:2]
    with pytest.raises(WrongResultError):
        measure_forward(case, interleaved._replace(code=half_split.code))


def test_views_are_views_and_copies_are_equal(case):
    assert [x.is_contiguous() for x in (*case.views, *case.pair)] == [False, False, True, True]
    assert case.views[0].untyped_storage().data_ptr() == case.views[1].untyped_storage().data_ptr()
    assert torch.equal(case.views[1], case.pair[1])


def test_bytes_are_those_that_must_be_moved():
    pair, table = [torch.empty(2, 3, 4, dtype=HALF)] * 2, torch.empty(4, 2)
    assert count_megabytes(2, pair, table) == pytest.approx((2 * 2 * 48 + 32) / 1e6)
    assert count_megabytes(3, pair, table, 2) == pytest.approx((3 * 2 * 48 + 64) / 1e6)


# Peers


def peer(name):
    return next(peer for peer in ROTATION_PEERS if peer.name == name)


@pytest.mark.parametrize("name", ["rope-vit's complex formula", "transformers", "timm"])
def test_peers_are_right_and_taken_for_the_other_layout_are_refused(case, name):
    assert measure_peer(case, peer(name))["error"] < 2**-7
    with pytest.raises(WrongResultError):
        measure_peer(case, peer(name)._replace(interleaved=not peer(name).interleaved))


def test_the_plain_formula_is_right(case):
    assert measure_peer(case, peer("plain formula, compiled")._replace(make=_make_plain))["error"] < 2**-7


def halves(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def liger(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    """As Liger documents it: tables (1 N D), q and k (B H N D) that lie as (B N H D), turned in place."""
    for x in (q, k):
        assert x.transpose(1, 2).is_contiguous()
        assert cos.shape == sin.shape == (1, x.shape[2], x.shape[3])
        x.copy_(halves(x, *(table[..., : x.shape[-1] // 2] for table in (cos, sin))))
    return q, k


def apply_rotary(x, cos, sin, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None, interleaved=False, inplace=False):
    """As flash-attn documents it: x (B N H D), tables (N D/2) of its dtype."""
    assert x.is_contiguous()
    assert cos.dtype == sin.dtype == x.dtype
    assert cos.shape == sin.shape == (x.shape[1], x.shape[3] // 2)
    turned = halves(x, cos[:, None], sin[:, None])
    return x.copy_(turned) if inplace else turned


@pytest.fixture
def stand_ins(monkeypatch):
    """Modules of packages that need a GPU, whose functions check what they are given."""
    for path, name, function in (
        ("liger_kernel.transformers.rope", "liger_rotary_pos_emb", liger),
        ("flash_attn.ops.triton.rotary", "apply_rotary", apply_rotary),
    ):
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        setattr(sys.modules[path], name, function)


@pytest.mark.parametrize("name", ["liger, in place", "flash-attn", "flash-attn, in place"])
def test_peers_that_need_a_gpu_get_what_they_document(case, stand_ins, name):
    before = [x.clone() for x in case.pair]
    assert measure_peer(case, peer(name))["error"] < 2**-7
    assert all(torch.equal(x, y) for x, y in zip(before, case.pair, strict=True)), "who turns in place gets copies"


def test_a_peer_that_cannot_be_imported_is_a_row(case):
    row = BenchJob({"name": "liger"}, functools.partial(measure_peer, case, peer("liger, in place"))).row()
    assert row["failed"].startswith("ModuleNotFoundError: No module named 'liger_kernel'")


def test_peers_that_are_not_installed_have_no_rows():
    names = {job.labels["name"] for job in list_rotation_jobs()}
    assert {"plain copy", "timm", "transformers", "plain formula, compiled"} <= names
    assert not any(name.startswith(("liger", "flash-attn")) for name in names)


# Exponentials


class Lazy(torch.autograd.Function):
    """The exponential with the gradient of the identity."""

    @staticmethod
    def forward(ctx, skew):
        return torch.linalg.matrix_exp(skew)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_exponentials_are_measured_and_wrong_ones_refused():
    row = measure_exponential(ops.expm, 8, captured=True)
    assert list(row) == ["ms", "eager ms", "back ms", "eager back ms", "error"]
    with pytest.raises(WrongResultError):
        measure_exponential(Lazy.apply, 8, captured=False)
    with pytest.raises(WrongResultError):
        measure_exponential(lambda skew: torch.eye(8) + skew + skew @ skew / 2, 8, captured=False)


# Lengths


def test_lengths_and_decoding(monkeypatch):
    rows = {(row["shape"], row["name"]): row for row in (job.row() for job in list_length_jobs())}
    assert not any(explain_missing_figures(row) for row in rows.values())
    ours, theirs_ = (rows["decoding one token", name] for name in ("ropewalk", "transformers"))
    assert list(ours) == list(theirs_)
    assert ours["with its code"] > ours["eager ms"] > rows["decoding one token", "plain op"]["eager ms"]
    assert {"GB/s", "of copy", "code ms", "error"} <= set(rows["100 tokens", "ropewalk"])
    patch_everywhere(
        monkeypatch, lengths, "create_bench_rope", lambda: rw.create("rope", head_dim=128, heads=8, kv_heads=2, base=9000.0)
    )
    refused = [job.row()["name"] for job in list_length_jobs() if "refused" in job.row()]
    assert refused == ["ropewalk", "ropewalk"]


# On a CPU


def test_a_race_has_all_who_can_run(monkeypatch):
    def broken(angle, dtype):
        raise RuntimeError("out of order")

    def mirrored(angle, dtype):
        return _make_complex(-angle, dtype)

    more = (RotationPeer("broken", broken, True), RotationPeer("mirrored", mirrored, True))
    patch_everywhere(monkeypatch, peers, "ROTATION_PEERS", (*ROTATION_PEERS, *more))
    patch_everywhere(monkeypatch, cpu, "CPU_SHAPES", {"2 x 15 tokens": (2, 4, 15, 24)})
    patch_everywhere(monkeypatch, cpu, "CPU_ROUNDS", 3)
    found = [job.row() for job in list_cpu_jobs()]
    half = {row["name"]: row for row in found if row["shape"] == "2 x 15 tokens, bfloat16"}
    assert len(found) == 2 * len(half)
    assert half["broken"]["failed"] == "RuntimeError: out of order"
    assert "off by" in half["mirrored"]["refused"]
    interleaved = min(half[name]["ms"] for name in ("timm", "rope-vit's complex formula"))
    assert half["ropewalk, interleaved"]["over fastest peer"] == half["ropewalk, interleaved"]["ms"] / interleaved
    ratio = half["ropewalk, half-split"]["ms"] / half["transformers"]["ms"]
    assert half["ropewalk, half-split"]["over fastest peer"] == ratio
    assert "plain formula, compiled" not in half


def test_a_race_is_run_in_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with use_one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# The clock


class Event:
    """An event of a device on which whatever lies between two of them takes 40 ms."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        pass

    def elapsed_time(self, other):
        return 40.0


class Graph:
    """A graph of a device: what is captured into it is done once, and not again when it is replayed."""

    def pool(self):
        return "pool"

    def replay(self):
        pass


@pytest.fixture
def device(monkeypatch):
    """A device that keeps time; what it is given is done on the CPU."""

    def capture(graph, pool=None):
        return contextlib.nullcontext()

    stream = types.SimpleNamespace(wait_stream=lambda other: None)
    patch_everywhere(monkeypatch, timing, "get_bench_device", lambda: "cuda")
    fakes = {"Stream": lambda: stream, "current_stream": lambda: stream, "stream": contextlib.nullcontext, "graph": capture}
    for name, fake in {**fakes, "CUDAGraph": Graph, "Event": Event, "synchronize": lambda: None}.items():
        monkeypatch.setattr(torch.cuda, name, fake)


def test_a_graph_of_many_calls_has_the_time_of_one(device):
    done = []
    assert time_graph_replay(lambda: done.append(1), inner=20) == 2.0
    assert len(done) == 22
    assert time_calls(lambda: None) == 40.0


def test_the_way_back_is_timed_without_the_way_there(device):
    x, there, back = torch.ones(3, requires_grad=True), [], []

    def forward():
        there.append(1)
        out = 2 * x
        out.register_hook(back.append)
        return [out]

    assert time_backward_replay(forward, [x], [torch.ones(3)], inner=20) == 2.0
    assert (len(there), len(back)) == (2, 21)


def test_contenders_take_turns_forth_and_back():
    order = []
    time_interleaved(lambda: order.append("a"), lambda: order.append("b"), rounds=3, warm=0, inner=2)
    assert "".join(order) == "aabbbbaaaabb"


# Steps


def small(monkeypatch, **changes):
    patch_everywhere(monkeypatch, steps, "SMALL_SETTING", dataclasses.replace(TINY, **changes))


def test_every_encoding_of_two_axes_is_a_contender(monkeypatch):
    names = list(list_step_contenders())
    heads = [name.partition(",")[0] for name in names]
    wanted = {name for name, kind in REGISTRY.items() if kind.allowed_axes is None or 2 in kind.allowed_axes}
    assert set(heads) == {*wanted, "timm"}
    assert "rope" not in wanted
    assert names[0] == "none"
    assert {"axial", "axial, learned", "spherical", "spherical, learned", "liere, block 8", "liere, block 64"} <= set(names)
    assert {"timm, axial", "timm, mixed"} <= set(names)
    monkeypatch.delitem(REGISTRY, "golden")
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    assert not {"golden", "timm, axial"} & set(list_step_contenders())


def test_steps_are_measured_beside_the_model_with_none(monkeypatch):
    small(monkeypatch)
    rows = list(measure_step_rows(names=("axial", "liere, block 8", "timm"), modes=("eager",)))
    assert [row["name"] for row in rows] == [
        "none",
        "axial",
        "axial, learned",
        "liere, block 8",
        "timm, axial",
        "timm, mixed",
    ]
    for row in rows:
        assert {"train ms", "train ms ratio", "infer ms", "infer ms ratio"} <= set(row), row
        assert (row["mode"], row["residual"], row["tokens"]) == ("eager", "bfloat16", 15)
    assert [row["parameters"] > 0 for row in rows] == [False, False, True, True, False, True]


def test_a_contender_that_fails_leaves_the_others_alone(monkeypatch):
    small(monkeypatch)
    rows = {row["name"]: row for row in measure_step_rows(names=("liere", "sincos"), modes=("eager",))}
    assert "block must be from 2 to head_dim=12, got 64" in rows["liere, block 64"]["failed"]
    assert "train ms" in rows["liere, block 8"]
    assert "train ms" in rows["sincos"]


def test_another_residual_stream_is_refused(monkeypatch):
    class Wide(Code):
        def tokens(self, x: Tensor) -> Tensor:
            return x.float()

    class Host(nn.Module):
        size, waiting = (), False

        def grid(self, *sizes, **options):
            return torch.empty(0)

        def forward(self, positions):
            return Wide(layers=1)

    field, make = StepField(TINY, "eager"), functools.partial(create_timm_vit, host=lambda model: Host())
    with pytest.raises(WrongResultError, match=r"float32.*bfloat16"):
        field.measure(make)


def test_models_are_not_put_into_another_mode_while_they_are_timed(monkeypatch):
    calls, training = [], []

    def train(self, mode=True):
        calls.append(mode)
        return nn.Module.train(self, mode)

    def rounds_in_turn(*works, **options):
        before = len(calls)
        found = time_interleaved_rounds(*works, **options)
        assert len(calls) == before
        training.append([work.__self__.model.training for work in works])
        return found

    monkeypatch.setattr(ViT, "train", train)
    patch_everywhere(monkeypatch, timing, "time_interleaved_rounds", rounds_in_turn)
    StepField(TINY, "eager").measure(list_step_contenders()["axial"])
    assert training == [[True, True], [False, False]]


@pytest.fixture
def graphs(monkeypatch):
    """Every graph that is compiled leaves a mark."""
    found = []

    def backend(graph, inputs):
        found.append(graph)
        return graph.forward

    torch._dynamo.reset()
    small(monkeypatch, backend=backend)
    yield found
    torch._dynamo.reset()


MANY = ("dinov3", "golden", "learned-ape", "sincos")


def test_all_contenders_are_compiled_however_many_there_are(graphs):
    rows = []
    for row in measure_step_rows(names=MANY, modes=("compiled",)):
        rows.append((row["name"], explain_missing_figures(row), len(graphs)))
    assert len(rows) == 5
    assert not any(excuse for _, excuse, _ in rows)
    counts = [count for *_, count in rows]
    # The base shares its graphs with "none"; every other has one to train and one to infer.
    assert [after - before for before, after in itertools.pairwise(counts)] == [2] * 4


def test_what_would_not_be_compiled_fails(graphs, monkeypatch):
    patch_everywhere(monkeypatch, steps, "MAX_COMPILED_GRAPHS", 8)  # Dynamo's own limit
    rows = list(measure_step_rows(names=MANY, modes=("compiled",)))
    assert "train ms" in rows[0]
    assert "limit" in rows[-1]["failed"]


@pytest.mark.parametrize("name", ["axial", "mixed"])
def test_timm_inside_our_model_does_what_ours_does(name):
    torch.manual_seed(0)
    shape = {"width": 24, "depth": 2, "heads": 2, "size": (6, 10), "patch": 2, "classes": 3}
    host, model = ViT(**shape), ViT(encoding=name, **shape)
    with torch.no_grad():
        for block in host.blocks:
            block.qkv.weight.mul_(50)
    model.load_state_dict({**model.state_dict(), **host.state_dict()})
    host.encoding = getattr(peers, f"create_timm_{name}")(host)
    images = torch.randn(2, 3, 6, 10)
    if name == "mixed":
        with torch.no_grad():
            model.encoding.wave.copy_(host.encoding.embedding.freqs.movedim(0, -1).flip(-1))
    torch.testing.assert_close(host(images), model(images), rtol=0, atol=1e-5)
    with torch.no_grad():
        for tensor in (*model.encoding.parameters(), *model.encoding.buffers()):
            tensor.mul_(1.5)
    assert (host(images) - model(images)).abs().max() > 1e-3


# Jobs


def job(name, measure=None, **labels):
    return BenchJob({"suite": "ops", **labels, "name": name}, measure or (lambda: {"ms": 1.0}))


def raising(error):
    def measure():
        raise error

    return measure


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory.\nTried"), {"failed": "OutOfMemoryError: CUDA out of memory. Tried"}),
        (ImportError("no"), {"failed": "ImportError: no"}),
        (AssertionError(), {"failed": "AssertionError:"}),
        (WrongResultError("it is off"), {"refused": "it is off"}),
    ],
)
def test_a_job_that_raises_is_a_row(error, said):
    assert job("a", raising(error)).row() == {"suite": "ops", "name": "a", **said}


def test_a_figure_that_is_no_number_is_none():
    assert job("a", lambda: {"ms": math.nan}).row()["failed"] == "ArithmeticError: ms is nan"


def test_reasons_are_short():
    assert len(job("a", raising(ValueError("x" * 10_000))).row()["failed"]) <= 300


def test_interruptions_are_no_rows():
    with pytest.raises(KeyboardInterrupt):
        job("a", raising(KeyboardInterrupt())).row()


def test_jobs_are_chosen_by_name_and_mode_with_their_yardsticks():
    made = [job(name, mode=mode) for mode in ("eager", "compiled") for name in ("axial", "axial, learned", "mixed")]
    made = [dataclasses.replace(job("none", mode=mode), yardstick=True) for mode in ("eager", "compiled")] + made
    made.append(job("copy", shape="long"))

    def chosen(names=(), modes=STEP_MODES):
        return [
            tuple(each.labels[key] for key in ("mode", "name") if key in each.labels)
            for each in select_bench_jobs(made, names, modes)
        ]

    assert len(chosen()) == len(made)
    assert chosen(["axial, learned"], ["eager"]) == [("eager", "none"), ("eager", "axial, learned")]
    assert chosen(["axial"], ["compiled"]) == [("compiled", name) for name in ("none", "axial", "axial, learned")]
    assert chosen(["copy"]) == [("copy",)]


# The document


@pytest.fixture
def suite(monkeypatch):
    """Suites are replaced by one of these jobs."""

    def use(*jobs):
        patch_everywhere(
            monkeypatch, suites, "BENCH_SUITES", {"ops": BenchSuite(lambda: list(jobs), lambda: {"dtype": "bfloat16"})}
        )

    return use


def test_the_document_says_where_with_what_and_how(suite, tmp_path):
    suite(job("a", lambda: {"ms": 1 / 3}), job("b", raising(ValueError("no"))))
    begun, told = [], []
    document = run_bench_suites(["ops"], tmp_path / "deep" / "a.json", told.append, begun=begun.append)
    assert json.loads((tmp_path / "deep" / "a.json").read_text()) == document
    assert document["rows"] == told == [{"suite": "ops", "name": "a", "ms": 0.33333}, told[1]]
    assert told[1]["failed"] == "ValueError: no"
    assert [each.labels["name"] for each in begun] == ["a", "b"]
    assert document["machine"]["device"] == "CPU"
    assert {"python", "torch", "timm", "transformers"} <= set(document["versions"])
    assert document["versions"]["torch"] == torch.__version__
    assert document["settings"] == {"ops": {"dtype": "bfloat16"}}
    assert document["finished"] is True


def test_settings_are_plain_values():
    assert json.loads(json.dumps({name: made.settings() for name, made in BENCH_SUITES.items()}))["steps"]["batch"] == 2


def test_the_document_is_whole_whatever_happens(suite, tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    suite(job("a"), job("b"), job("c", raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        run_bench_suites(["ops"], path)
    document = json.loads(path.read_text())
    assert [row["name"] for row in document["rows"]] == ["a", "b"]
    assert document["finished"] is False
    suite(job("other"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", _full)
        with pytest.raises(OSError, match="No space"):
            run_bench_suites(["ops"], path)
    assert json.loads(path.read_text()) == document
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def _full(*arguments):
    raise OSError(28, "No space left on device")


# The command line


def command(capsys, *words):
    status = cli.main(["bench", *map(str, words)])
    return status, *capsys.readouterr()


def test_bench_tells_rows_and_tables_and_where_they_are(capsys, suite, tmp_path):
    failing = job("b", raising(ValueError("no [luck]")), shape="one")
    suite(job("a", shape="one"), failing, job("c", lambda: {"GB/s": 4321.0, "of copy": 0.98765}, shape="two"))
    status, out, err = command(capsys, "ops", "--out", tmp_path / "a.json")
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert lines[:3] == [
        "one · a: ms 1",
        "one · b: failed: ValueError: no [luck]",
        "two · c: GB/s 4,321, of copy 0.9877",
    ]
    assert [line for line in lines if line.startswith("ops, ")] == ["ops, one", "ops, two"]
    assert out.count("no [luck]") == 2
    assert lines[-1] == str(tmp_path / "a.json")


def test_bench_prints_json_alone_and_wrong_answers_are_its_status(capsys, suite, tmp_path):
    suite(job("a", raising(WrongResultError("it is off"))), job("b"))
    status, out, err = command(capsys, "--json", "--out", tmp_path / "a.json", "--names", "a")
    assert status == 1
    assert [row["refused"] for row in json.loads(out)["rows"]] == ["it is off"]
    assert "it is off" in err


@pytest.mark.parametrize("done", [0, 2])
def test_an_interrupted_run_says_what_it_has(capsys, suite, tmp_path, done):
    path = tmp_path / "a.json"
    path.write_text("{}")
    suite(*[job(str(i)) for i in range(done)], job("last", raising(KeyboardInterrupt())))
    status, out, _ = command(capsys, "--out", path)
    assert status == 130
    where = f"2 of 3 rows are in {path}" if done else f"nothing was measured, {path} is as it was"
    assert out.splitlines()[-1] == f"stopped: {where}"
    assert len(json.loads(path.read_text()).get("rows", [])) == done


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["opps"], "Unknown suite 'opps'; expected one of ops, lengths, steps, cpu. Did you mean 'ops'?"),
        (
            ["ops", "--modes", "eger"],
            "Unknown mode 'eger'; expected one of eager, captured, compiled, compiled and captured. Did you mean 'eager'?",
        ),
        (
            ["ops", "--names", "rotat"],
            "Unknown row 'rotat'; expected one of plain copy, rotate, sphere, turn",
        ),
        (["ops", "--out", "a.txt"], "--out must be a file that ends in .json, got a.txt"),
        (["lengths", "--names", "plain op", "--out", "file/a.json"], "file/a.json cannot be written: "),
    ],
)
def test_refusals_are_one_line(capsys, tmp_path, monkeypatch, words, reason):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    status, _, err = command(capsys, *words)
    assert status == 2
    assert err.startswith(f"ropewalk: {reason}")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_bench_draws_the_steps(capsys, tmp_path, monkeypatch):
    small(monkeypatch)
    words = ("steps", "--names", "axial", "--modes", "eager", "--out", tmp_path / "a.json")
    status, out, _ = command(capsys, *words)
    assert status == 0
    assert out.split()[-2:] == [str(tmp_path / "a.json"), str(tmp_path / "a.png")]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


# The figure and the page


def synthetic() -> dict:
    """A document as a GPU would give it, with a row of each kind."""
    rows = []
    for mode in STEP_MODES:
        for i, name in enumerate(list_step_contenders()):
            ratio = 1 + i / 100
            figures = {"train ms": 50 * ratio, "train ms ratio": ratio, "infer ms": 10.0, "infer ms ratio": 1.0}
            rows.append({"suite": "steps", "mode": mode, "name": name, **figures, "train GB": 8.7, "train GB ratio": 1.0})
    rows[1] = {"suite": "steps", "mode": "eager", "name": "alibi", "failed": "OutOfMemoryError: <CUDA> is *out* of | memory"}
    ours = {"ms": 0.046, "GB/s": 3321.4, "of copy": 0.957, "eager ms": 0.05, "error": 0.002}
    rows += [{"suite": "ops", "shape": "256 x 196 tokens", "name": "rotate, interleaved, forward", **ours}]
    rows += [{"suite": "lengths", "shape": "1,000,000 tokens", "name": "ropewalk", "ms": 1.3, "peak GB": 2.81}]
    said = {"steps": {"preset": "small", "batch": 256, "size": [224, 224]}}
    whole = {"machine": {"device": "NVIDIA H200"}, "versions": {"torch": "2.11.0"}, "date": "2026-11-15", "settings": said}
    return whole | {"finished": True, "rows": rows}


@pytest.mark.parametrize("theme", FIGURE_THEMES)
def test_the_figure_shows_every_ratio(theme):
    document = synthetic()
    page = draw_step_cost(document, theme=theme)
    names = list(list_step_contenders())
    for axes, key in zip(page.axes, ("train ms ratio", "infer ms ratio"), strict=True):
        written = [text.get_text() for text in axes.texts]
        assert written.count("failed") == 1
        assert sorted(written) == sorted(["failed", *(f"{row[key]:.3f}" for row in document["rows"] if key in row)])
    assert [label.get_text() for label in page.axes[0].get_yticklabels()] == names
    dots = [line for line in page.axes[0].lines if line.get_marker() == "o" and len(line.get_xdata())]
    assert [dot.get_xdata()[0] for dot in dots] == [row["train ms ratio"] for row in document["rows"] if "train ms" in row]
    assert_readable(page)
    assert "NVIDIA H200, torch 2.11.0, 2026-11-15; ViT small, 256 images of 224 x 224" in page.texts[1].get_text()
    assert encode_figure(page, "png").startswith(b"\x89PNG")


def test_a_document_without_steps_has_no_figure():
    with pytest.raises(ValueError, match="'steps'"):
        draw_step_cost(synthetic() | {"rows": []})
