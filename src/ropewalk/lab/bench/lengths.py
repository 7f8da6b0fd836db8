"""The suite `lengths`: decoding of one token, where Python's overhead dominates, and long sequences in time and memory."""

import functools
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.lab.bench.correctness import check_output_error, compute_expected_output, rotate_channel_pairs
from ropewalk.lab.bench.timing import (
    BenchJob,
    BenchRow,
    get_allocated_cuda_bytes,
    get_bench_device,
    measure_peak_memory,
    time_calls,
    time_dispatch,
    time_graph_replay,
)

QUERY_HEADS, KV_HEADS, SEQUENCE_HEAD_DIM, ROPE_BASE = 8, 2, 128, 10000.0
DECODED_POSITION = 1000
SEQUENCE_LENGTHS, SMALL_SEQUENCE_LENGTHS = (1_000, 10_000, 100_000, 1_000_000), (100,)


def sample_query_key(tokens: int) -> tuple[Tensor, Tensor]:
    """q and k of one sequence."""
    torch.manual_seed(0)
    q, k = (
        torch.randn(1, heads, tokens, SEQUENCE_HEAD_DIM, device=get_bench_device(), dtype=torch.bfloat16)
        for heads in (QUERY_HEADS, KV_HEADS)
    )
    return q, k


def create_bench_rope() -> rw.Encoding:
    """The encoding that is measured."""
    return rw.create("rope", head_dim=SEQUENCE_HEAD_DIM, heads=QUERY_HEADS, kv_heads=KV_HEADS, base=ROPE_BASE).to(
        get_bench_device()
    )


def rotate_in_float64(pair: tuple[Tensor, Tensor], places: Tensor) -> list[Tensor]:
    """q and k turned in float64, by angles that are rounded once, to float32."""
    # Angles are rounded to float32 as in the implementations: at a million tokens that rounding exceeds the error that is
    # allowed for a rotation.
    frequency = ROPE_BASE ** (
        -torch.arange(0, SEQUENCE_HEAD_DIM, 2, device=get_bench_device(), dtype=torch.float64) / SEQUENCE_HEAD_DIM
    )
    angle = places.float()[:, None] * frequency.float()
    return compute_expected_output(functools.partial(rotate_channel_pairs, interleaved=False), pair, angle[None])


@torch.no_grad()
def measure_decoding() -> BenchRow:
    """One query and one key, with their code made beforehand and with it made anew."""
    encoding, place, pair = (
        create_bench_rope(),
        torch.tensor([DECODED_POSITION], device=get_bench_device()),
        sample_query_key(1),
    )
    code = encoding(place)
    error = check_output_error(code.qk(*pair), rotate_in_float64(pair, place), pair[0].dtype)
    turned, whole = (
        time_dispatch(lambda: code.qk(*pair), rounds=50),
        time_dispatch(lambda: encoding(place).qk(*pair), rounds=50),
    )
    return {"eager ms": turned, "with its code": whole, "error": error}


@torch.no_grad()
def measure_transformers_decoding() -> BenchRow:
    """The same by transformers' functions."""
    # transformers takes seconds to import, and only this row needs it.
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=SEQUENCE_HEAD_DIM, num_attention_heads=1, head_dim=SEQUENCE_HEAD_DIM)
    theirs, place, pair = (
        LlamaRotaryEmbedding(config).to(get_bench_device()),
        torch.tensor([[DECODED_POSITION]], device=get_bench_device()),
        sample_query_key(1),
    )
    tables = theirs(pair[0], place)
    error = check_output_error(apply_rotary_pos_emb(*pair, *tables), rotate_in_float64(pair, place[0]), pair[0].dtype)
    turned = time_dispatch(lambda: apply_rotary_pos_emb(*pair, *tables), rounds=50)
    whole = time_dispatch(lambda: apply_rotary_pos_emb(*pair, *theirs(pair[0], place)), rounds=50)
    return {"eager ms": turned, "with its code": whole, "error": error}


@torch.no_grad()
def measure_launch() -> BenchRow:
    """One plain op on q: the least that Python can do."""
    q, _ = sample_query_key(1)
    return {"eager ms": time_dispatch(lambda: torch.neg(q), rounds=50)}


@torch.no_grad()
def measure_sequence(tokens: int) -> BenchRow:
    """q and k of so many tokens, beside a copy; and the most memory that making the code and turning takes besides them."""
    encoding, places, pair = create_bench_rope(), torch.arange(tokens, device=get_bench_device()), sample_query_key(tokens)
    most = measure_peak_memory(lambda: encoding(places).qk(*pair), above=get_allocated_cuda_bytes(), warm=1)
    code, outs = encoding(places), [torch.empty_like(x) for x in pair]
    error = check_output_error(code.qk(*pair), rotate_in_float64(pair, places), pair[0].dtype)
    copy = time_graph_replay(lambda: [out.copy_(x) for out, x in zip(outs, pair, strict=True)])
    ms, size = time_graph_replay(lambda: code.qk(*pair)), 2 * sum(x.nbytes for x in pair) / 1e6
    made = time_calls(lambda: encoding(places))
    row = {"ms": ms, "GB/s": size / ms, "of copy": copy / ms, "code ms": made, "error": error}
    return row | ({} if most is None else {"peak GB": most})


def get_length_settings() -> BenchRow:
    """What all rows have in common."""
    return {
        "encoding": "rope",
        "heads": f"{QUERY_HEADS} + {KV_HEADS} of {SEQUENCE_HEAD_DIM}",
        "dtype": "bfloat16",
        "batch": 1,
    }


def list_length_jobs() -> list[BenchJob]:
    """One token, ours beside transformers' and beside a plain op; then from 1 thousand to 1 million."""
    one: dict[str, Callable[[], BenchRow]] = {"plain op": measure_launch, "ropewalk": measure_decoding}
    if find_spec("transformers"):
        one["transformers"] = measure_transformers_decoding
    labels = {"suite": "lengths", "shape": "decoding one token"}
    found = [BenchJob(labels | {"name": name}, work, name == "plain op") for name, work in one.items()]
    for tokens in SEQUENCE_LENGTHS if get_bench_device() == "cuda" else SMALL_SEQUENCE_LENGTHS:
        labels = {"suite": "lengths", "shape": f"{tokens:,} tokens", "name": "ropewalk"}
        found.append(BenchJob(labels, functools.partial(measure_sequence, tokens)))
    return found
