"""Checks of what an encoding does with positions: nothing but they decide, and every way of asking gives one answer."""

import torch
import torch.nn.functional as F

from ropewalk.encoding import Encoding
from ropewalk.testing.case import Logits, close, leaves, like, points, ready


def check_pure(encoding: Encoding) -> None:
    """The answer depends on the positions alone, not on the calls before, and no call changes anything."""
    used, p = ready(encoding), points(encoding, 6)
    fresh, before = ready(encoding), p.clone()
    for other in (points(encoding, 6, seed=9), points(encoding, 9), points(encoding, 6).flip(0), p.float()):
        used(other)
        used(other, points(encoding, 4))
    close(Logits(used).at(p), Logits(fresh).at(p), "a used and a fresh instance", atol=0.0)
    close(p, before, "the positions before and after", atol=0.0)
    for (name, mine), theirs in zip(used.state_dict().items(), fresh.state_dict().values(), strict=True):
        close(mine, theirs, f"{name} before and after", atol=0.0)


def check_settings(encoding: Encoding) -> None:
    """Instances with different settings give different answers, also one right after the other."""
    p = points(encoding, 6)
    for name, value in encoding.config().items():
        if isinstance(value, float) and value:
            answers = []
            for setting in (value, 2 * value):
                torch.manual_seed(0)
                answers.append(Logits(like(encoding, **{name: setting}).double()).at(p))
            changed = not torch.equal(*answers)
            assert changed, f"{name}={value} and {name}={2 * value} give the same logits"


def check_decoding(encoding: Encoding) -> None:
    """One query at a time, with the positions of all keys, gives the rows of the whole."""
    logits, p = Logits(ready(encoding)), points(encoding, 6)
    x, y = logits.tokens(6), logits.tokens(6, seed=4)
    whole = logits(x, y, p)
    for i in range(6):
        close(logits(x[:, i : i + 1], y, p[i : i + 1], p), whole[:, :, i : i + 1], f"row {i} alone and in the whole")


def check_batch(encoding: Encoding) -> None:
    """Samples with positions of their own do not see each other."""
    logits, p = Logits(ready(encoding)), points(encoding, 6, batch=2)
    p[1] = p[1] * 0.5
    x, y = logits.tokens(6), logits.tokens(6, seed=4)
    layers = encoding.layers or 1
    whole = logits(x, y, p).unflatten(0, (layers, 2))
    for i in range(2):
        alone = logits(x[i : i + 1], y[i : i + 1], p[i]).unflatten(0, (layers, 1))
        close(whole[:, i : i + 1], alone, f"sample {i} in a batch and alone")


def check_integers(encoding: Encoding) -> None:
    """Integer positions (N,) and (B, N) are the points of the same numbers."""
    instance, ids = ready(encoding), torch.tensor([3, 0, 1, 2, 2])
    for integers in (ids, torch.stack([ids, ids.flip(0)])):
        floats = leaves(instance(integers.unsqueeze(-1).double()))
        for name, leaf in leaves(instance(integers)).items():
            close(leaf, floats[name], f"{name} for integers and for points of the same numbers", atol=0.0)


def check_prefix(encoding: Encoding) -> None:
    """Prefix tokens have no position: they are not turned, get no bias and no offset, seen from either side."""
    logits, p = Logits(ready(encoding)), points(encoding, 6)
    x, y = logits.tokens(8), logits.tokens(8, seed=4)
    prefixed = logits(x, y, p, None, 2)
    close(prefixed[:, :, 2:, 2:], logits(x[:, 2:], y[:, 2:], p), "logits among tokens with and without a prefix")
    if encoding.traits.rotary:
        standing = torch.cat([torch.zeros(2, encoding.axes, dtype=p.dtype), p])
        close(prefixed, logits(x, y, standing), "logits of prefix tokens and of tokens at zero")
        return
    code = logits.encoding(p)
    q = logits.split(torch.cat([x[:, :2], code.tokens(x[:, 2:])], 1), "to_q", logits.heads)
    k = logits.split(torch.cat([y[:, :2], code.tokens(y[:, 2:])], 1), "to_k", logits.kv_heads)
    k = k.repeat_interleave(logits.heads // logits.kv_heads, 1)
    for layer, mine in enumerate(prefixed.chunk(encoding.layers or 1)):
        one = code if encoding.layers is None else code[layer]
        bias = one.scores(q[:, :, 2:], k[:, :, 2:])
        expected = q @ k.mT / encoding.head_dim**0.5 + (0 if bias is None else F.pad(bias, (2, 0, 2, 0)))
        close(mine, expected, "logits with a prefix and with its rows and columns left alone")


def check_layers(encoding: Encoding) -> None:
    """Of an encoding of several layers, each acts as an encoding of its own with that layer's parameters."""
    deep, single = ready(like(encoding, layers=3)), ready(like(encoding, layers=None))
    p, q = points(encoding, 6), torch.zeros(1, encoding.heads, 6, encoding.head_dim)
    whole, code = Logits(deep).at(p).chunk(3), deep(p)
    for layer in range(3):
        for name, parameter in single.named_parameters():
            own = deep.get_parameter(name)
            parameter.data.copy_(own[layer] if own.ndim > parameter.ndim else own)
        close(whole[layer], Logits(single).at(p), f"layer {layer} of three and alone")
        tokens = Logits(deep).tokens(6)
        close(code[layer].tokens(tokens), tokens, "tokens before and after a single layer's code", atol=0.0)
    refused(lambda: code.qk(q, q), TypeError, "q and k for a code of three layers at once")
    refused(lambda: code[3], IndexError, "layer 3 of three")


def check_groups(encoding: Encoding) -> None:
    """With grouped queries, what belongs to a key head is shared by the query heads of its group."""
    grouped, plain = ready(like(encoding, heads=4, kv_heads=2)), ready(like(encoding, heads=4, kv_heads=None))
    for name, parameter in plain.named_parameters():
        own = grouped.get_parameter(name).detach()
        for axis, (mine, wanted) in enumerate(zip(own.shape, parameter.shape, strict=True)):
            own = own.repeat_interleave(2, axis) if 2 * mine == wanted else own
        parameter.data.copy_(own)
    p = points(encoding, 6)
    few, many = Logits(grouped), Logits(plain)
    weight = few.get_buffer("to_k").unflatten(-1, (2, 1, -1)).expand(-1, -1, 2, -1).flatten(1)
    many.get_buffer("to_k").copy_(weight)
    close(few.at(p), many.at(p), "two key heads and the same two repeated")


def check_views(encoding: Encoding) -> None:
    """Views of one fused projection, empty batches and single tokens give what plain tensors give; inputs stay intact."""
    instance, heads = ready(encoding, torch.float32), encoding.heads
    p = points(encoding, 5)
    code = instance(p.float())
    code = code if code.layers is None else code[0]
    fused = torch.randn(2, 5, 3, heads, encoding.head_dim, generator=torch.Generator().manual_seed(5))
    q, k, _ = fused.permute(2, 0, 3, 1, 4).unbind(0)
    before = fused.clone()
    for mine, theirs in zip(code.qk(q, k), code.qk(q.contiguous(), k.contiguous()), strict=True):
        close(mine, theirs, "a view and its contiguous copy", atol=0.0)
    close(fused, before, "q and k before and after", atol=0.0)
    close(code.q(q), code.qk(q, k)[0], "q alone and with k", atol=0.0)
    close(code.k(k), code.qk(q, k)[1], "k alone and with q", atol=0.0)
    empty, _ = code.qk(q[:0], k[:0])
    assert empty.shape == q[:0].shape, f"an empty batch came back as {tuple(empty.shape)}"
    one = instance(p[:1].float())
    one = one if one.layers is None else one[0]
    close(one.q(q[:, :, :1]), code.q(q)[:, :, :1], "a single token and the first of five", atol=1e-6)
    assert all(leaf.numel() == 0 or leaf.shape for leaf in leaves(instance(p[:0].float())).values())


def check_errors(encoding: Encoding) -> None:
    """Input that cannot be meant is refused, in words."""
    axes, p = encoding.axes, points(encoding, 4).float()
    refused(lambda: encoding(torch.zeros(4, axes + 1)), ValueError, f"points of {axes + 1} axes")
    refused(lambda: encoding(p, torch.zeros(4, axes + 1)), ValueError, f"keys of {axes + 1} axes")
    refused(lambda: encoding(torch.zeros(4)), ValueError, "floating positions without an axis")
    refused(lambda: encoding(torch.zeros(2, 2, 4, axes)), ValueError, "positions of four dimensions")
    refused(lambda: encoding(torch.zeros(4, 1, axes, dtype=torch.long)), ValueError, "integers with an axis")
    refused(lambda: encoding(torch.zeros(4, axes, dtype=torch.bool)), ValueError, "booleans")
    refused(lambda: encoding(torch.full((4, axes), float("nan"))), ValueError, "positions that are NaN")
    refused(lambda: encoding.grid(*[3] * (axes + 1)), ValueError, f"a grid of {axes + 1} sizes")
    refused(lambda: encoding.grid(*[3] * axes, resolution="none"), ValueError, "an unknown resolution")
    refused(lambda: like(encoding, colour="red"), TypeError, "an unknown option")
    refused(lambda: like(encoding, variant="unheard-of"), ValueError, "an unknown variant")
    refused(lambda: like(encoding, head_dim=0), ValueError, "heads without channels")
    if encoding.axes > 1:
        refused(lambda: encoding(torch.arange(4)), ValueError, "integers for more than one axis")
    if encoding.traits.rotary:
        code = encoding(p)
        code = code if code.layers is None else code[0]
        wide = torch.zeros(1, encoding.heads, 4, encoding.head_dim + 1)
        refused(lambda: code.qk(wide, wide), ValueError, "queries that are too wide")
        refused(lambda: code.q(wide[:, :, :3, :-1]), ValueError, "fewer queries than positions")


def refused(call: object, kind: type[Exception], what: str) -> None:
    """Assert that the call raises an error of this kind that says something."""
    assert callable(call)
    try:
        call()
    except kind as error:
        words = str(error)
    except Exception as error:
        raise AssertionError(f"{what}: wanted a {kind.__name__}, got {type(error).__name__}: {error}") from error
    else:
        raise AssertionError(f"{what}: wanted a {kind.__name__}, nothing was raised")
    assert len(words) > 15, f"{what}: the error says only {words!r}"
