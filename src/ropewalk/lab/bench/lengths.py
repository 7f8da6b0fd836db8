"""Decoding one token, where Python is all that costs; and long sequences, in time and memory."""

import functools
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.lab.bench import judge
from ropewalk.lab.bench.clock import called, device, dispatched, peak, replayed, resident
from ropewalk.lab.bench.job import Job, Row

HEADS, KV_HEADS, DEPTH, BASE = 8, 2, 128, 10000.0
PLACE = 1000
LENGTHS, SMALL = (1_000, 10_000, 100_000, 1_000_000), (100,)


def drawn(tokens: int) -> tuple[Tensor, Tensor]:
    """q and k of one sequence."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, heads, tokens, DEPTH, device=device(), dtype=torch.bfloat16) for heads in (HEADS, KV_HEADS))
    return q, k


def rope() -> rw.Encoding:
    """The encoding that is measured."""
    return rw.create("rope", head_dim=DEPTH, heads=HEADS, kv_heads=KV_HEADS, base=BASE).to(device())


def right(pair: tuple[Tensor, Tensor], places: Tensor) -> list[Tensor]:
    """q and k turned in float64, by angles that are rounded once, to float32."""
    frequency = BASE ** (-torch.arange(0, DEPTH, 2, device=device(), dtype=torch.float64) / DEPTH)
    angle = places.float()[:, None] * frequency.float()
    return judge.expected(functools.partial(judge.rotated, interleaved=False), pair, angle[None])


@torch.no_grad()
def decoding() -> Row:
    """One query and one key, with their code made beforehand and with it made anew."""
    encoding, place, pair = rope(), torch.tensor([PLACE], device=device()), drawn(1)
    code = encoding(place)
    error = judge.judged(code.qk(*pair), right(pair, place), pair[0].dtype)
    turned, whole = dispatched(lambda: code.qk(*pair), rounds=50), dispatched(lambda: encoding(place).qk(*pair), rounds=50)
    return {"eager ms": turned, "with its code": whole, "error": error}


@torch.no_grad()
def decoding_in_transformers() -> Row:
    """The same by transformers' functions."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=DEPTH, num_attention_heads=1, head_dim=DEPTH)
    theirs, place, pair = LlamaRotaryEmbedding(config).to(device()), torch.tensor([[PLACE]], device=device()), drawn(1)
    tables = theirs(pair[0], place)
    error = judge.judged(apply_rotary_pos_emb(*pair, *tables), right(pair, place[0]), pair[0].dtype)
    turned = dispatched(lambda: apply_rotary_pos_emb(*pair, *tables), rounds=50)
    whole = dispatched(lambda: apply_rotary_pos_emb(*pair, *theirs(pair[0], place)), rounds=50)
    return {"eager ms": turned, "with its code": whole, "error": error}


@torch.no_grad()
def launching() -> Row:
    """One plain op on q: the least that Python can do."""
    q, _ = drawn(1)
    return {"eager ms": dispatched(lambda: torch.neg(q), rounds=50)}


@torch.no_grad()
def sequence(tokens: int) -> Row:
    """q and k of so many tokens, beside a copy; and the most memory that making the code and turning takes besides them."""
    encoding, places, pair = rope(), torch.arange(tokens, device=device()), drawn(tokens)
    most = peak(lambda: encoding(places).qk(*pair), above=resident(), warm=1)
    code, outs = encoding(places), [torch.empty_like(x) for x in pair]
    error = judge.judged(code.qk(*pair), right(pair, places), pair[0].dtype)
    copy = replayed(lambda: [out.copy_(x) for out, x in zip(outs, pair, strict=True)])
    ms, size = replayed(lambda: code.qk(*pair)), 2 * sum(x.nbytes for x in pair) / 1e6
    made = called(lambda: encoding(places))
    row = {"ms": ms, "GB/s": size / ms, "of copy": copy / ms, "code ms": made, "error": error}
    return row | ({} if most is None else {"peak GB": most})


def settings() -> Row:
    """What all rows have in common."""
    return {"encoding": "rope", "heads": f"{HEADS} + {KV_HEADS} of {DEPTH}", "dtype": "bfloat16", "batch": 1}


def jobs() -> list[Job]:
    """One token, ours beside transformers' and beside a plain op; then from 1 thousand to 1 million."""
    one: dict[str, Callable[[], Row]] = {"plain op": launching, "ropewalk": decoding}
    if find_spec("transformers"):
        one["transformers"] = decoding_in_transformers
    labels = {"suite": "lengths", "shape": "decoding one token"}
    found = [Job(labels | {"name": name}, work, name == "plain op") for name, work in one.items()]
    for tokens in LENGTHS if device() == "cuda" else SMALL:
        labels = {"suite": "lengths", "shape": f"{tokens:,} tokens", "name": "ropewalk"}
        found.append(Job(labels, functools.partial(sequence, tokens)))
    return found
