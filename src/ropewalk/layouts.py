"""Weights of q and k from one rotary layout to the other. A layout says which channels of a head make a pair.

With P pairs, pair i is, in the two layouts that models are trained with,

    half-split     channels (i, i + P)       transformers' Llama, GPT-NeoX
    interleaved    channels (2i, 2i + 1)     Meta's Llama, GPT-J

They are one rotation in two orders of the channels, and the order is that of the rows of q's and k's projections:

    interleaved[2i + j] = half_split[i + j P],    0 ≤ i < P,    j = 0, 1,

in each head; channels from 2P on do not turn and stay. A third layout is half-split within each axis' share of the channels:
sections of F_1, F_2, … pairs, 2 F_s channels each. Functions take it as (F_1, F_2, …).

q · k does not depend on the order of channels. Hence scores are unchanged if and only if both q and k are reordered and the
encoding is built with the other `interleaved` or `sections`.

Beware: no shape tells the layout. A model trained with one gives garbage with the other, silently. Converting twice the
same way is not the identity: `to_half_split` undoes `to_interleaved`, which does not undo itself.
"""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ropewalk.arguments import describe, one_of, positive, positives, tensor
from ropewalk.ops.layout import pair_channels

Layout = str | Sequence[int]
_OTHER = {"interleaved": "half-split", "half-split": "interleaved"}

# What holds rows of q and k, and how many heads that makes.
_FUSED, _BY_HEAD = "(heads + 2 kv_heads)", "3 heads"
_PROJECTIONS = dict.fromkeys(("q_proj", "wq"), "heads") | dict.fromkeys(("k_proj", "wk"), "kv_heads")
_PROJECTIONS |= dict.fromkeys(("qkv_proj", "wqkv", "qkv"), _FUSED) | {"query_key_value": _BY_HEAD}
_BIASES = {"q_bias": "heads", "k_bias": "kv_heads"}
_NORMS = dict.fromkeys(("q_norm", "q_layernorm", "q_layer_norm", "query_layernorm"), "heads")
_NORMS |= dict.fromkeys(("k_norm", "k_layernorm", "k_layer_norm", "key_layernorm"), "kv_heads")
_LATENT = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "wq_a", "wq_b", "wkv_a", "wkv_b"}
_OUTPUT = {"q_proj": "o_proj", "wq": "wo"}

_NAME = re.compile(rf"((?:.*\.)?)(?:({'|'.join(_PROJECTIONS | _NORMS)})\.(.+)|({'|'.join(_BIASES)}))")
_BY_ROW = re.compile(r"(base_layer\.|norms\.\d+\.)?(weight|bias)|(lora_B|lora_magnitude_vector)(\..+)?")


def to_interleaved(weight: Tensor, head_dim: int, *, rotary_dim: int | None = None, source: Layout = "half-split") -> Tensor:
    """A half-split weight (heads · head_dim, in), bias (heads · head_dim,) or gain (head_dim,) in the interleaved layout.

    rotary_dim   Only this many leading channels of each head turn: twice the pairs. Not for `proportional` RoPE, whose
                 pairs reach over the whole head.
    source       The layout that the weight has: "half-split", or sections of it, (F_1, F_2, …) pairs.
    """
    return _permuted(_checked("weight", weight, head_dim), _order("interleaved", source, head_dim, rotary_dim))


def to_half_split(weight: Tensor, head_dim: int, *, rotary_dim: int | None = None, source: Layout = "interleaved") -> Tensor:
    """An interleaved weight, bias or gain, or one in sections, in the half-split layout: the inverse of `to_interleaved`."""
    return _permuted(_checked("weight", weight, head_dim), _order("half-split", source, head_dim, rotary_dim))


def to_sections(weight: Tensor, head_dim: int, sections: Sequence[int], *, source: Layout) -> Tensor:
    """A weight, bias or gain of the layout `source`, half-split in sections of so many pairs; other channels stay."""
    return _permuted(_checked("weight", weight, head_dim), _order(sections, source, head_dim, None))


def convert(
    state: Mapping[str, Tensor],
    *,
    head_dim: int,
    to: Layout,
    rotary_dim: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    source: Layout | None = None,
) -> dict[str, Tensor]:
    """The state dict of a rotary model, or of its LoRA adapters, in the layout `to`: "interleaved", "half-split", sections.

    It reorders q_proj and k_proj (transformers), wq and wk (Meta), the gains and biases of norms of q and k, of qkv_proj,
    wqkv and timm's qkv the rows of q and k, which come first, EVA's q_bias and k_bias, and of query_key_value those of
    each head, as GPT-NeoX has it. Everything else stays the same object. Quantised weights and multi-head latent attention
    (DeepSeek) are refused.

    Beware: all such entries are taken for heads of this head_dim. Of a model of text and images, pass the part that turns.
    InternLM2's wqkv goes by groups of heads and ChatGLM's query_key_value by q, k, v: nothing tells them from those above.

    source            The layout that it has; by default, of "interleaved" and "half-split" the one that `to` is not.
    heads, kv_heads   Needed where q, k and v are fused; elsewhere a check of the rows. kv_heads defaults to heads.
    """
    if source is None and not isinstance(to, str):
        raise ValueError(f"weights go into sections from a layout that must be said: give source, got {to=} and source=None")
    source = _OTHER[one_of("to", str(to), _OTHER)] if source is None else source
    order, counts = _order(to, source, head_dim, rotary_dim), _counts(heads, kv_heads)
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise TypeError(f"state must be a state dict, names and tensors, got {describe(state)}")
    found = {name: _parts(match) for name in state if (match := _NAME.fullmatch(name))}
    for name in state:
        if _LATENT.intersection(name.split(".")):
            raise ValueError(f"{name} is of multi-head latent attention (MLA), whose rotary channels lie elsewhere")
    if not any(module in _PROJECTIONS for _, module, _ in found.values()):
        raise ValueError(f"state must hold one of {', '.join(_PROJECTIONS)}, got {', '.join(list(state)[:4]) or 'nothing'}")
    new = dict(state)
    for name, (path, module, entry) in found.items():
        if not entry.startswith("lora_A"):
            new[name] = _converted(name, state[name], module, entry, order, counts)
        output = state.get(f"{path}{_OUTPUT.get(module)}.weight")
        if entry == "weight" and not counts and output is not None and len(state[name]) != output.shape[-1]:
            reason = f"the output projection takes {output.shape[-1]} columns: if no gates are among the rows, give heads"
            raise ValueError(f"{name} must have as many rows as attention has channels, got {len(state[name])}; {reason}")
    return new


def _parts(match: re.Match[str]) -> tuple[str, str, str]:
    """Where a module is, its name, and that of its entry; a bias that a model keeps beside its projection is its own."""
    path, module, entry, bias = match.groups()
    return (path, bias, "bias") if module is None else (path, module, entry)


def _counts(heads: int | None, kv_heads: int | None) -> dict[str, int]:
    k = None if kv_heads is None else positive("kv_heads", kv_heads)
    q = None if heads is None else positive("heads", heads)
    if k and (not q or q % k):
        raise ValueError(f"heads must be a multiple of kv_heads, got heads={q} and kv_heads={k}")
    return {"heads": q, "kv_heads": k or q, _FUSED: q + 2 * (k or q), _BY_HEAD: 3 * q} if q else {}


def _converted(name: str, x: Tensor, module: str, entry: str, order: Tensor, counts: dict[str, int]) -> Tensor:
    if not _BY_ROW.fullmatch(entry):
        reason = f"of {module}, only weights, biases and LoRA that are not quantised can"
        raise ValueError(f"{name} cannot be reordered: {reason}; dequantise it first")
    unit, norm = (_PROJECTIONS | _NORMS | _BIASES)[module], module in _NORMS
    head_dim, axis = len(order), -1 if norm else 0  # Cohere's gains are (heads, head_dim)
    rows = _checked(name, x, head_dim, axis).shape[axis]
    if unit == _FUSED and not counts:
        raise ValueError(f"{name} holds q, k and v: give heads, and kv_heads if they are fewer, got heads=None")
    if counts and rows != counts[unit] * head_dim and not (norm and rows == head_dim):
        wanted = f"{unit} · head_dim = {counts[unit]} · {head_dim} rows"
        raise ValueError(f"{name} must have {wanted}, got shape {tuple(x.shape)}")
    if unit == _BY_HEAD:
        if rows % (3 * head_dim):
            wanted = f"3 · head_dim = {3 * head_dim}, q, k and v of each head"
            raise ValueError(f"rows of {name} must be a multiple of {wanted}, got shape {tuple(x.shape)}")
        q, k, v = x.unflatten(0, (-1, 3, head_dim)).unbind(1)
        q, k = (_permuted(each, order, 1) for each in (q, k))
        return torch.stack([q, k, v], 1).flatten(0, 2)
    if unit != _FUSED:
        return _permuted(x, order, axis)
    v = counts["kv_heads"] * head_dim
    return torch.cat([_permuted(x[:-v], order), x[-v:]])


def _checked(name: str, x: Tensor, head_dim: int, axis: int = 0) -> Tensor:
    if tensor(name, x).ndim not in (1, 2) or not x.is_floating_point() or x.dtype.itemsize == 1:
        wanted = "one or two dimensions, in floating point that is not quantised"
        raise ValueError(f"{name} must have {wanted}, got shape {tuple(x.shape)} and {x.dtype}")
    if not x.shape[axis] or x.shape[axis] % positive("head_dim", head_dim):
        raise ValueError(f"rows of {name} must be a multiple of head_dim={head_dim}, got shape {tuple(x.shape)}")
    return x


def _order(to: Layout, source: Layout, head_dim: int, rotary_dim: int | None) -> Tensor:
    """For each channel of a head in the layout `to`, the channel of the layout `source` that it takes."""
    layouts = [_named(*each) for each in (("to", to), ("source", source))]
    pairs = positive("head_dim", head_dim) // 2
    counts = [sum(layout) for layout in layouts if not isinstance(layout, str)]
    turned = 2 * counts[0] if counts else 2 * pairs
    turned = turned if rotary_dim is None else positive("rotary_dim", rotary_dim)
    if turned % 2 or not 2 <= turned <= head_dim:
        raise ValueError(f"rotary_dim must be even and from 2 to head_dim={head_dim}, got {rotary_dim}")
    if any(2 * count != turned for count in counts):
        raise ValueError(
            f"sections must make {turned // 2} pairs of head_dim={head_dim}, got {' and '.join(map(str, counts))}"
        )
    order = torch.arange(head_dim, device="cpu")
    channels = [_channels(layout, turned // 2) for layout in layouts]
    order[channels[0]] = channels[1]
    return order


def _named(name: str, layout: Layout) -> str | tuple[int, ...]:
    return one_of(name, layout, _OTHER) if isinstance(layout, str) else positives(name, layout)


def _channels(layout: str | tuple[int, ...], pairs: int) -> Tensor:
    """The channels of each pair, one pair after another."""
    sections = None if isinstance(layout, str) else layout
    return torch.tensor(pair_channels(pairs, layout == "interleaved", sections), device="cpu").flatten()


def _permuted(x: Tensor, order: Tensor, axis: int = 0) -> Tensor:
    axis %= x.ndim
    return x.unflatten(axis, (-1, len(order))).index_select(axis + 1, order.to(x.device)).flatten(axis, axis + 1)
