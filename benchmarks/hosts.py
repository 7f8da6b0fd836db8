"""Models of transformers and timm with their own rotation and with ours installed, side by side in one run.

python benchmarks/hosts.py --path results/hosts-h200.json

The same weights twice, one of them after `install(model)`, in turns, eager and compiled: a training step (forward, backward)
of a decoder as Llama's and of timm's rope_mixed ViT, both in bfloat16, and a decoded token of the decoder with a cache.
Before it is timed, what both give is compared. Rows of a file that is there already stay, unless they are measured again.
"""

import copy
import datetime
import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
import tyro
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

from ropewalk.adapters import timm as for_timm
from ropewalk.adapters import transformers as for_transformers
from ropewalk.lab.bench.timing import time_interleaved_rounds
from ropewalk.lab.environment import describe_machine, list_package_versions

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
LLAMA = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS, SEEN, ROUNDS = ((4, 2048), 1024, 15) if GPU else ((1, 64), 16, 2)
IMAGES = (128, 3, 224, 224) if GPU else (2, 3, 64, 64)
Row = dict[str, Any]


def llama() -> nn.Module:
    """A decoder of some 160 million weights, keys shared by four heads."""
    sizes = LLAMA if GPU else SMALL
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=32000, num_key_value_heads=sizes["num_attention_heads"] // 4, **sizes))


def vit() -> nn.Module:
    """timm's ViT-S with mixed RoPE."""
    torch.manual_seed(0)
    sizes = {} if GPU else {"embed_dim": 48, "depth": 2, "num_heads": 2, "img_size": 64}
    return timm.create_model("vit_small_patch16_rope_mixed_224", **sizes)


def pair(model: nn.Module, install: Callable[[nn.Module], nn.Module], *, compiled: bool) -> list[nn.Module]:
    """The model as it is and with ours in the place of its rotation."""
    both = [model.to(DEVICE), install(copy.deepcopy(model)).to(DEVICE)]
    for each in both if compiled else ():
        each.compile()
    return both


def training(model: nn.Module, given: torch.Tensor) -> Callable[[], None]:
    """Forward and backward in autocast."""

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(given, labels=given).loss if given.ndim == 2 else model(given).float().square().mean()
        loss.backward()
        model.zero_grad(set_to_none=True)

    return step


@torch.no_grad()
def decoding(model: nn.Module, seen: torch.Tensor, *, compiled: bool) -> Callable[[], None]:
    """One token more, after a cache that is cut back each time; compiled as `generate` does, with a cache of fixed size."""
    cache = StaticCache(config=model.config, max_cache_len=2 * SEEN) if compiled else DynamicCache(config=model.config)
    model(seen, past_key_values=cache, use_cache=True)
    forward = torch.compile(model.forward, mode="reduce-overhead") if compiled else model.forward
    token = seen[:, -1:]

    @torch.no_grad()
    def step() -> None:
        forward(token, past_key_values=cache, use_cache=True)
        if not compiled:
            return cache.crop(-1)
        for layer in cache.layers:
            layer.cumulative_length.sub_(1)

    return step


def compared(works: list[Callable[[], None]], rounds: int = ROUNDS, inner: int = 1, **about: Any) -> Row:
    """Medians of both, and of their ratio, round by round; and the ratio of the least, which others disturb less."""
    host, ours = time_interleaved_rounds(*works, rounds=rounds, inner=inner)
    ratios = [mine / theirs for mine, theirs in zip(ours, host, strict=True)]
    row = {**about, "host ms": statistics.median(host), "ours ms": statistics.median(ours)}
    row |= {"ours over host": statistics.median(ratios), "of the least": min(ours) / min(host)}
    return row | {"ratio, first quarter": _quarter(ratios, 0), "ratio, third quarter": _quarter(ratios, 2)}


def _quarter(values: list[float], which: int) -> float:
    return statistics.quantiles(values, n=4)[which]


def same(both: list[nn.Module], given: torch.Tensor) -> float:
    """How far apart the answers are, over the largest, in float32."""
    with torch.no_grad():
        host, ours = (out if isinstance(out := model(given), torch.Tensor) else out.logits for model in both)
    return ((host - ours).abs().max() / host.abs().max()).item()


def training_row(model: nn.Module, install: Callable[[nn.Module], nn.Module], shape: tuple[int, ...], **about: Any) -> Row:
    """Both models in training, on noise."""
    given = torch.randint(32000, shape, device=DEVICE) if len(shape) == 2 else torch.randn(shape, device=DEVICE)
    both = pair(model, install, compiled=about["mode"] == "compiled")
    off = same([each.eval() for each in both], given[:1])
    return compared([training(each.train(), given) for each in both], **about, off=off)


def decoding_row(**about: Any) -> Row:
    """Both decoders, a token at a time."""
    both = [each.eval().to(torch.bfloat16) for each in pair(llama(), for_transformers.install, compiled=False)]
    seen = torch.randint(32000, (1, SEEN), device=DEVICE)
    works = [decoding(each, seen, compiled=about["mode"] == "compiled") for each in both]
    return compared(works, rounds=10 * ROUNDS, inner=3, **about, seen=SEEN)


WHAT: dict[str, Callable[..., Row]] = {
    "Llama, one token": decoding_row,
    "Llama, training step": lambda **about: training_row(llama(), for_transformers.install, TOKENS, **about),
    "timm rope_mixed ViT-S, training step": lambda **about: training_row(vit(), for_timm.install, IMAGES, **about),
}


def main(path: Path, only: str = "") -> None:
    """Measure and write.

    Args:
        path: The file.
        only: Those measurements alone whose names and modes, as "Llama, one token, eager", have this in them.
    """
    head = {"machine": describe_machine(), "versions": list_package_versions(), "date": datetime.date.today().isoformat()}
    found = {(row["what"], row["mode"]): row for row in (json.loads(path.read_text())["rows"] if path.exists() else ())}
    for mode, (what, measure) in itertools.product(("eager", "compiled"), WHAT.items()):
        if only in f"{what}, {mode}":
            row = found[what, mode] = measure(what=what, mode=mode)
            print({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
            path.write_text(json.dumps(head | {"rows": list(found.values())}, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    tyro.cli(main)
