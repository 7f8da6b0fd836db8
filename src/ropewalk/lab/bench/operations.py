"""The suite ops: rotations of q and k, and the matrix exponentials of LieRE, forward and backward.

Rotations report bytes moved per second, beside a plain copy in the same run. Forward, q and k are read and written and the
table is read; backward, their gradients are. Gradients of the table need q and k once more, or their rotations, and are
written. Tables are random. Exponentials are those of LieRE's initialization for all layers of a ViT-S, beside PyTorch's own.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk import ops
from ropewalk.encodings.liere import LieRE
from ropewalk.lab.bench.correctness import (
    ReferenceFormula,
    check_output_error,
    compute_expected_gradients,
    compute_expected_output,
    compute_skew_part,
    exponentiate_skew_matrices,
    rotate_channel_blocks,
    rotate_channel_pairs,
    rotate_channel_triplets,
    sample_matrices,
)
from ropewalk.lab.bench.peers import RotationPeer, list_installed_peers
from ropewalk.lab.bench.timing import (
    BenchJob,
    BenchRow,
    TimedWork,
    get_bench_device,
    make_backward_work,
    time_backward_replay,
    time_calls,
    time_dispatch,
    time_graph_replay,
)


class RotationOp(NamedTuple):
    """A way to turn q and k: a table (h n ...) drawn for so many heads, tokens and channels, its code, its formula."""

    name: str
    draw: Callable[[int, int, int], Tensor]
    code: Callable[[int, Tensor], rw.Code]
    formula: ReferenceFormula
    everywhere: bool = False  # or else at the shape of images alone


def _sample_angles(heads: int, tokens: int, depth: int) -> Tensor:
    return 10 * torch.randn(heads, tokens, depth // 2, device=get_bench_device())


def _sample_triplets(heads: int, tokens: int, depth: int) -> Tensor:
    return 10 * torch.randn(heads, tokens, depth // 3, 2, device=get_bench_device())


def _sample_matrices(heads: int, tokens: int, depth: int, *, block: int) -> Tensor:
    free = torch.randn(heads, tokens, depth // block, block, block, device=get_bench_device(), dtype=torch.float64)
    return torch.linalg.matrix_exp(free - free.mT).float()


def _make_rotate_op(interleaved: bool) -> RotationOp:
    def code(depth: int, table: Tensor) -> rw.Code:
        return rw.Rotation(head_dim=depth, q_angle=table, interleaved=interleaved)

    formula = functools.partial(rotate_channel_pairs, interleaved=interleaved)
    return RotationOp(f"rotate, {'interleaved' if interleaved else 'half-split'}", _sample_angles, code, formula, True)


def _make_turn_op(block: int) -> RotationOp:
    def code(depth: int, table: Tensor) -> rw.Code:
        return rw.Turn(head_dim=depth, q_matrix=table)

    return RotationOp(
        f"turn, blocks of {block}", functools.partial(_sample_matrices, block=block), code, rotate_channel_blocks
    )


def _make_sphere_code(depth: int, table: Tensor) -> rw.Code:
    return rw.Sphere(head_dim=depth, q_angle=table)


ROTATION_OPS = (
    _make_rotate_op(True),
    _make_rotate_op(False),
    RotationOp("sphere", _sample_triplets, _make_sphere_code, rotate_channel_triplets),
    *map(_make_turn_op, (3, 8, 64)),
)

QueryKeyPair = tuple[Tensor, Tensor]

LONG_SHAPE, IMAGE_SHAPE = "4 x 8192 tokens, 32 + 8 heads of 128", "256 x 196 tokens, 6 + 6 heads of 64"
ROTATION_SHAPES = {LONG_SHAPE: (4, 8192, 32, 8, 128), IMAGE_SHAPE: (256, 196, 6, 6, 64)}
SMALL_ROTATION_SHAPES = {"2 x 15 tokens, 4 + 2 heads of 64": (2, 15, 4, 2, 64)}


class RotationCase:
    """One shape: its q and k, drawn when they are first asked for, and the speed of a plain copy."""

    def __init__(self, batch: int, tokens: int, heads: int, kv_heads: int, depth: int) -> None:
        self.batch, self.tokens, self.heads, self.kv_heads, self.depth = batch, tokens, heads, kv_heads, depth

    @functools.cached_property
    def views(self) -> QueryKeyPair:
        """q and k as they come out of one projection, with v between one token and the next."""
        torch.manual_seed(0)
        counts = (self.heads, self.kv_heads, self.kv_heads)
        fused = torch.randn(
            self.batch, self.tokens, sum(counts), self.depth, device=get_bench_device(), dtype=torch.bfloat16
        )
        q, k, _ = (x.transpose(1, 2) for x in fused.split(counts, dim=2))
        return q, k

    @functools.cached_property
    def pair(self) -> QueryKeyPair:
        """The same in one piece each."""
        q, k = (x.contiguous() for x in self.views)
        return q, k

    @functools.cached_property
    def copy(self) -> float:
        """Gigabytes that a plain copy of q and k reads and writes in a second."""
        outs = [torch.empty_like(x) for x in self.pair]
        return count_megabytes(2, self.pair) / time_graph_replay(
            lambda: [out.copy_(x) for out, x in zip(outs, self.pair, strict=True)]
        )

    def figures(self, size: float, ms: float, work: TimedWork, error: float) -> BenchRow:
        """The figures of work that moves `size` megabytes."""
        return {
            "ms": ms,
            "GB/s": size / ms,
            "of copy": size / ms / self.copy,
            "eager ms": time_dispatch(work),
            "error": error,
        }


def count_megabytes(times: int, pair: Sequence[Tensor], table: Tensor | None = None, table_times: int = 1) -> float:
    """Megabytes of q and k, so many times, and of the table."""
    size = times * sum(x.nbytes for x in pair) + (0 if table is None else table_times * table.nbytes)
    return size / 1e6


def measure_forward(case: RotationCase, op: RotationOp, *, heads: int = 1, views: bool = False) -> BenchRow:
    """Rotating q and k by a table for so many heads."""
    table, pair = _sample_table(case, op, heads), case.views if views else case.pair
    code = op.code(case.depth, table)
    error = check_output_error(code.qk(*pair), compute_expected_output(op.formula, pair, table), pair[0].dtype)
    work = functools.partial(code.qk, *pair)
    return case.figures(count_megabytes(2, pair, table), time_graph_replay(work), work, error)


def measure_backward(case: RotationCase, op: RotationOp, *, heads: int = 1, learned: bool = False) -> BenchRow:
    """The gradients of q and k, and of the table if it is learned."""
    table = _sample_table(case, op, heads).requires_grad_(learned)
    pair = [x.detach().requires_grad_() for x in case.pair]
    inputs = [*pair, table] if learned else pair
    gradients = [torch.randn_like(x) for x in pair]

    def there() -> Sequence[Tensor]:
        return op.code(case.depth, table).qk(pair[0], pair[1])

    found = torch.autograd.grad(there(), inputs, gradients)
    right = compute_expected_gradients(op.formula, pair, table, gradients)[: len(inputs)]
    error = check_output_error(found, right, pair[0].dtype)
    size = count_megabytes(3, pair, table, 2) if learned else count_megabytes(2, pair, table)
    return case.figures(
        size, time_backward_replay(there, inputs, gradients), make_backward_work(there, inputs, gradients), error
    )


def measure_peer(case: RotationCase, peer: RotationPeer) -> BenchRow:
    """Rotating q and k by another library's function, with angles that all heads share."""
    angle = _sample_table(case, ROTATION_OPS[0], 1)[0]
    turn, pair = peer.make(angle, case.pair[0].dtype), peer.copy_query_key(case.pair)
    formula = functools.partial(rotate_channel_pairs, interleaved=peer.interleaved)
    right = compute_expected_output(formula, pair, angle[None])
    error = check_output_error(turn(*pair), right, pair[0].dtype)
    work = functools.partial(turn, *pair)
    return case.figures(count_megabytes(2, pair, angle), time_graph_replay(work), work, error)


def _sample_table(case: RotationCase, op: RotationOp, heads: int) -> Tensor:
    torch.manual_seed(1)
    return op.draw(heads, case.tokens, case.depth)


def get_rotation_settings() -> BenchRow:
    """What all rows have in common."""
    return {
        "dtype": "bfloat16, tables float32",
        "timing": "CUDA-graph replay" if get_bench_device() == "cuda" else "eager calls",
        "eager ms": "Python time of one call, whatever it leaves for the device to do",
        "GB/s": "q and k read and written, the table read; back the same, and with its gradients q and k read once more and "
        "the table's gradient written",
        "error": "the largest of a row of channels, over the typical norm of a row, against float64",
    }


def list_rotation_jobs() -> list[BenchJob]:
    """A job for each shape and contender."""
    found = []
    for label, shape in (ROTATION_SHAPES if get_bench_device() == "cuda" else SMALL_ROTATION_SHAPES).items():
        case = RotationCase(*shape)
        works: dict[str, Callable[[], BenchRow]] = {"plain copy": functools.partial(_measure_copy, case)}
        for op in ROTATION_OPS if label != LONG_SHAPE else [op for op in ROTATION_OPS if op.everywhere]:
            works |= _list_op_work(case, op)
        works |= {
            peer.name: functools.partial(measure_peer, case, peer) for peer in list_installed_peers(get_bench_device())
        }
        labels = {"suite": "ops", "shape": label}
        found += [BenchJob(labels | {"name": name}, work, name == "plain copy") for name, work in works.items()]
    return found


def _measure_copy(case: RotationCase) -> BenchRow:
    return {"ms": count_megabytes(2, case.pair) / case.copy, "GB/s": case.copy, "of copy": 1.0}


def _list_op_work(case: RotationCase, op: RotationOp) -> dict[str, Callable[[], BenchRow]]:
    return {
        f"{op.name}, forward": functools.partial(measure_forward, case, op),
        f"{op.name}, forward, a table for each head": functools.partial(measure_forward, case, op, heads=case.kv_heads),
        f"{op.name}, forward, views of one projection": functools.partial(measure_forward, case, op, views=True),
        f"{op.name}, backward": functools.partial(measure_backward, case, op),
        f"{op.name}, backward, table learned": functools.partial(
            measure_backward, case, op, heads=case.kv_heads, learned=True
        ),
    }


BLOCK_SIZES = (8, 64)
LARGE_SHAPE: dict[str, Any] = {"layers": 12, "heads": 6, "size": (14, 14)}
SMALL_SHAPE: dict[str, Any] = {"layers": 2, "heads": 2, "size": (2, 3)}

ExponentialFunction = Callable[[Tensor], Tensor]


def sample_skew_matrices(block: int) -> Tensor:
    """What LieRE exponentiates, (L h n G b b)."""
    shape = LARGE_SHAPE if get_bench_device() == "cuda" else SMALL_SHAPE
    torch.manual_seed(0)
    encoding = LieRE(head_dim=64, block=block, **shape)
    found = torch.einsum("na,lhagij->lhngij", encoding.grid(*shape["size"]), encoding.blocks().detach())
    return found.contiguous().to(get_bench_device())


def measure_exponential(exponential: ExponentialFunction, block: int, *, captured: bool) -> BenchRow:
    """Forward and backward. What waits for the device in between cannot be captured."""
    skew = sample_skew_matrices(block).requires_grad_()
    gradient = torch.randn_like(skew)

    def there() -> list[Tensor]:
        return [exponential(skew)]

    error = {"error": check_exponential_error(there()[0], skew, gradient)}
    there_and_back = (there, [skew], [gradient])
    if not captured:
        return {
            "ms": time_calls(there, rounds=5),
            "back ms": time_calls(make_backward_work(*there_and_back), rounds=5),
            **error,
        }
    with torch.no_grad():
        row = {"ms": time_graph_replay(there), "eager ms": time_dispatch(there)}
    return row | {
        "back ms": time_backward_replay(*there_and_back),
        "eager back ms": time_dispatch(make_backward_work(*there_and_back)),
        **error,
    }


def check_exponential_error(rotation: Tensor, skew: Tensor, gradient: Tensor) -> float:
    """The error of the rotation and of the gradient that leads back from it, of a sample."""
    (found,) = torch.autograd.grad(rotation, skew, gradient)
    matrices, outs, given, back_outs = sample_matrices(skew, rotation, gradient, found)
    right, back_right = exponentiate_skew_matrices(matrices, given)
    return check_output_error([outs, compute_skew_part(back_outs)], [right, back_right], skew.dtype)


def list_exponential_jobs() -> list[BenchJob]:
    """Ours and PyTorch's, for each size of blocks."""
    contenders = {"expm": (ops.expm, True), "torch.linalg.matrix_exp": (torch.linalg.matrix_exp, False)}
    return [
        BenchJob(
            {"suite": "ops", "shape": _format_label(block), "name": name},
            functools.partial(measure_exponential, exponential, block, captured=captured),
        )
        for block in BLOCK_SIZES
        for name, (exponential, captured) in contenders.items()
    ]


def _format_label(block: int) -> str:
    shape = LARGE_SHAPE if get_bench_device() == "cuda" else SMALL_SHAPE
    rows, columns = shape["size"]
    return f"{shape['layers']} layers, {shape['heads']} heads, {rows} x {columns} patches, blocks of {block}"
