"""A plain decoder with any positional encoding of sequences, for text.

    lm = LM(256, encoding="rope", width=384, depth=6, heads=6)
    logits = lm(tokens)  # (B N vocabulary), all places at once

    cache = lm.cache()
    logits = lm(tokens[:, :100], cache=cache)  # or in pieces: what was seen is kept
    logits = lm(tokens[:, 100:101], cache=cache)

    longer = lm.extended({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, length=2048)

As in LLaMA: a norm before each branch, a gated perceptron, no biases, heads of keys and values that queries share. Positions
count tokens, whatever coordinates an encoding has for images.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ropewalk.arguments import LARGEST_SIZE, describe, instance_of, integer, positive, tensor
from ropewalk.attention import attend
from ropewalk.code import Code, Sealed, unseal
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.extension import Rule
from ropewalk.factory import Chained, create
from ropewalk.models.cache import Cache, Held
from ropewalk.positions import readable


class LM(nn.Module):
    """Tokens, blocks, the next token.

    vocabulary  How many tokens there are; 256 for bytes.
    encoding    The name of an encoding of sequences, with its `options`.
    kv_heads    Heads of keys and values, which divide `heads`; as many by default.
    hidden      The width of the perceptron; 8/3 of the model's by default, rounded up to a multiple of 32.
    length      Of the texts in training: the size of tables, and what rules go by that depend on it.
    """

    def __init__(
        self,
        vocabulary: int = 256,
        *,
        encoding: str = "rope",
        options: Mapping[str, Any] | None = None,
        width: int = 384,
        depth: int = 6,
        heads: int = 6,
        kv_heads: int | None = None,
        hidden: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("width", width), ("depth", depth), ("heads", heads)):
            integer(name, value, least=1, most=LARGEST_SIZE)
        hidden = None if hidden is None else integer("hidden", hidden, least=1, most=LARGEST_SIZE)
        length = None if length is None else positive("length", length)
        kv_heads = heads if kv_heads is None else positive("kv_heads", kv_heads)
        if width % positive("heads", heads) or heads % kv_heads:
            raise ValueError(f"heads must divide width and kv_heads divide heads, got {width}, {heads} and {kv_heads}")
        shape: dict[str, Any] = {"head_dim": width // heads, "heads": heads, "kv_heads": kv_heads, "axes": 1}
        shape |= {"layers": depth, "coordinates": "index", "size": None if length is None else (length,)}
        if options is not None:
            shape |= instance_of("options", options, Mapping)
        made = create(encoding, **shape)
        self.encoding = made if length is None else made.at(length)
        if made.coordinates != "index":
            raise ValueError(f"positions of text count tokens: coordinates must be 'index', got {made.coordinates!r}")
        self.embed = nn.Embedding(vocabulary, width)
        hidden = -(-8 * width // 96) * 32 if hidden is None else positive("hidden", hidden)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, hidden) for _ in range(positive("depth", depth)))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal weights of deviation 0.02, those that end a branch less by the root of twice the depth.

        The encoding draws last: all other weights are the same with any encoding.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.RMSNorm):
                module.reset_parameters()
        for block in self.blocks:
            for last in (block.proj, block.down):
                nn.init.normal_(last.weight, std=0.02 / (2 * len(self.blocks)) ** 0.5)  # type: ignore[union-attr, arg-type]
        self.encoding.reset_parameters()

    def cache(self) -> Cache:
        """Room for what is seen piece by piece."""
        return Cache()

    def extended(self, extension: Rule | Mapping[str, Any] | str | None = None, length: int | None = None) -> "LM":
        """The same model, sharing all weights, for texts of up to `length` tokens, with a rule of `ropewalk.extension`.

        Without a rule it has the one that it was made with, if any.
        """
        encoding: Encoding = self.encoding if extension is None else _ruled(self.encoding, extension)
        encoding = encoding if length is None else encoding.at(length)
        other = copy.copy(self)
        other._modules = {**self._modules, "encoding": encoding}
        return other

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        cache: Cache | None = None,
        mask: Tensor | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Logits (B N vocabulary) of tokens (B N), which see themselves and what came before.

        positions  Of the tokens, (N,) or (B, N); by default they continue those of the cache, or start at 0.
        cache      What was seen before; it takes these tokens in.
        mask       True where a query may look, (B, 1, N, M) or what broadcasts to it, for padding, windows and packed
                   sequences; never beyond what came before.
        last       Logits of so many last tokens alone.
        """
        whole_numbers = tensor("tokens", tokens).dtype in (torch.int32, torch.int64)
        if tokens.ndim != 2 or not whole_numbers:
            raise ValueError(f"tokens must be integers (B, N), got {describe(tokens)}")
        if readable(tokens) and tokens.numel() and not 0 <= tokens.min() <= tokens.max() < self.embed.num_embeddings:
            most = self.embed.num_embeddings - 1
            raise ValueError(f"tokens must be from 0 to {most}, got {tokens.min()} to {tokens.max()}")
        if last is not None:
            integer("last", last, least=0, most=tokens.shape[1])
        seen = Cache() if cache is None else instance_of("cache", cache, Cache)
        positions = seen.following(tokens) if positions is None else positions
        self._check(positions)
        own = self.encoding(positions)
        whole = self.encoding(positions, seen.placed(positions)) if own.biased and len(seen) else own
        x, new = own.tokens(self.embed(tokens)), []
        for layer, (block, mine, all_) in enumerate(zip(self.blocks, own.unbind(), whole.unbind(), strict=True)):
            x, held = block(x, Sealed(mine), Sealed(all_), seen.before(layer), mask)
            if cache is not None:
                new.append(held)
        if cache is not None:
            cache.take(positions, new)
        return self.head(self.norm(x if last is None else x[:, x.shape[1] - last :]))

    def _check(self, positions: Tensor) -> None:
        """Refuse texts that are longer than what a rule was settled for, where looking costs nothing."""
        settled = getattr(self.encoding, "length", None)
        if settled is not None and readable(positions) and positions.numel() and positions.max() >= settled:
            words = f"the rule of this model is settled for texts of {settled} tokens, got the position {positions.max()}"
            raise ValueError(f"{words}: lm.extended(length=…) settles it for longer ones")

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that weight decay would spoil: those of the encoding, of embeddings and norms."""
        encoding = {f"encoding.{name}" for name, _ in self.encoding.named_parameters()}
        return encoding | {"embed.weight"} | {name for name, parameter in self.named_parameters() if parameter.ndim < 2}


def _ruled(encoding: Encoding, extension: Rule | Mapping[str, Any] | str) -> Encoding:
    """An encoding with another rule and the same parameters; of a chain, the part that takes a rule."""
    if isinstance(encoding, Chained):
        parts = [part for part in encoding.members if isinstance(part, Encoding)]
        able = [part for part in parts if "extension" in parameters_of(type(part))]
        if able:
            return Chained(parts=[_ruled(part, extension) if part in able else part for part in parts]).train(
                encoding.training
            )
    if "extension" not in parameters_of(type(encoding)):
        raise ValueError(f"{encoding.name} has no extension for longer texts, got {extension!r}")
    tensors = [*encoding.parameters(), *encoding.buffers()]
    with torch.random.fork_rng(devices=[]):  # what is drawn here is not kept
        other = create(**(encoding.config() | {"extension": extension, "length": None})).to(tensors[0])
    for name, parameter in encoding.named_parameters():
        other.register_parameter(name, parameter)
    return other.train(encoding.training)


class Block(nn.Module):
    """Attention to what came before and a gated perceptron, each after a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.sizes = (heads, kv_heads, kv_heads)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * (width // heads), bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self,
        x: Tensor,
        own: Code | Sealed,
        whole: Code | Sealed,
        before: Held | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Held]:
        """`own` turns these tokens' q and k; `whole` scores them against all that was seen, whose keys and values come
        from `before` and go on, these last."""
        own, whole = unseal(own), unseal(whole)
        q, k, v = own.qkv(self.qkv(self.norm1(x)).unflatten(-1, (sum(self.sizes), -1)), self.sizes[0])
        if before is not None:
            k, v = torch.cat([before[0], k], dim=2), torch.cat([before[1], v], dim=2)
        x = x + self.proj(attend(q, k, v, whole, mask=mask, causal=True, turned=True).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (k, v)
