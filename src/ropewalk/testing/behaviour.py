"""Checks of what an encoding does with positions: nothing but they decide, and every way of asking gives one answer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ropewalk import positions as places
from ropewalk.code import Chain, Code, Offset
from ropewalk.encoding import Encoding
from ropewalk.testing.case import Logits, close, leaves, like, points, ready, seeded, single

SHAPE = {"name", "head_dim", "heads", "kv_heads", "axes", "layers", "size", "width", "coordinates"}


def check_pure(encoding: Encoding) -> None:
    """The answer depends on the positions alone: not on the calls before, on gradient mode or on training mode."""
    used, p = ready(encoding), points(encoding, 6)
    fresh, before = ready(encoding), p.clone()
    expected = Logits(fresh).at(p).detach()
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with context():
            for other in (points(encoding, 6, seed=9), points(encoding, 9), points(encoding, 6).flip(0), p.float()):
                used(other)
                used(other, points(encoding, 4))
            for mode in (True, False):
                close(Logits(used.train(mode)).at(p), expected, f"a used and a fresh instance, {context.__name__}", atol=0.0)
    close(p, before, "the positions before and after", atol=0.0)
    for (name, mine), theirs in zip(used.state_dict().items(), fresh.state_dict().values(), strict=True):
        close(mine, theirs, f"{name} before and after", atol=0.0)


def check_settings(encoding: Encoding) -> None:
    """Every setting tells: another number, flag or variant gives another answer, other parameters, or a refusal."""
    base = like(encoding, head_dim=max(encoding.head_dim, 12))
    for name, value in base.config().items():
        if name in SHAPE or value in (None, 0.0):
            continue
        for other in _others(encoding, name, value):
            answers = [_spread(base, **{name: setting}) for setting in (value, other)]
            assert answers[0] != answers[1], f"{name}={value!r} and {name}={other!r} are alike in every respect"


def _others(encoding: Encoding, name: str, value: object) -> list[object]:
    if name == "variant":
        return [variant for variant in encoding.variants if variant != value]
    if isinstance(value, bool):
        return [not value]
    return [2 * value] if isinstance(value, int | float) else []


def _spread(encoding: Encoding, **changes: object) -> object:
    """A print of an instance with these changes: its parameters, and its logits near and far; or that it is refused."""
    try:
        with seeded():
            instance = like(encoding, **changes).double()
    except ValueError:
        return "refused"
    p, reach = points(encoding, 6), encoding.traits.reach
    unit = (p - p.amin(0)) / (p.amax(0) - p.amin(0)).clamp(min=1e-9)
    shapes = {name: tuple(parameter.shape) for name, parameter in instance.named_parameters()}
    return [shapes, *(Logits(instance).at(place).tolist() for place in (p, min(reach, 30) * unit, min(reach, 300) * unit))]


def check_decoding(encoding: Encoding) -> None:
    """One query or one key at a time gives the rows or columns of the whole."""
    logits, p = Logits(ready(encoding)), points(encoding, 6)
    x, y = logits.tokens(6), logits.tokens(6, seed=4)
    whole = logits(x, y, p)
    for i in range(6):
        close(logits(x[:, i : i + 1], y, p[i : i + 1], p), whole[:, :, i : i + 1], f"row {i} alone and in the whole")
        close(logits(x, y[:, i : i + 1], p, p[i : i + 1]), whole[..., i : i + 1], f"column {i} alone and in the whole")


def check_batch(encoding: Encoding) -> None:
    """Samples with positions of their own do not see each other, whichever of queries and keys have their own."""
    logits, layers = Logits(ready(encoding)), encoding.layers or 1
    p, kp = points(encoding, 6, batch=2), points(encoding, 5, batch=2, seed=7)
    p[1], kp[1] = p[1] * 0.5, kp[1] * 0.7
    x, y = logits.tokens(6), logits.tokens(5, seed=4)
    for q_places, k_places in ((p, kp), (p[0], kp), (p, kp[0]), (p[:1], kp), (p, None)):
        y_here = y if k_places is not None else x
        whole = logits(x, y_here, q_places, k_places).unflatten(0, (layers, 2))
        for i in range(2):
            mine, keys = _sample(q_places, i), None if k_places is None else _sample(k_places, i)
            alone = logits(x[i : i + 1], y_here[i : i + 1], mine, keys).unflatten(0, (layers, 1))
            close(whole[:, i : i + 1], alone, f"sample {i} in a batch and alone")


def _sample(p: Tensor, i: int) -> Tensor:
    return p if p.ndim == 2 else p[i if len(p) > 1 else 0]


def check_integers(encoding: Encoding) -> None:
    """Integer positions (N,) and (B, N), of queries and of keys, are the points of the same numbers."""
    instance, ids = ready(encoding), torch.tensor([3, 0, 1, 2, 2])
    for integers in (ids, torch.stack([ids, ids.flip(0)])):
        floats = integers.unsqueeze(-1).double()
        for mine, theirs in ((instance(integers), instance(floats)), (instance(floats, integers), instance(floats, floats))):
            for name, leaf in leaves(mine).items():
                close(leaf, leaves(theirs)[name], f"{name} for integers and for points of the same numbers", atol=0.0)


def check_grid(encoding: Encoding) -> None:
    """`grid` gives the points of its coordinates, row by row, measured by its training size."""
    sides = [4, 7, 3, 5, 2][: encoding.axes]
    for resolution in ("extrapolate", "rescale"):
        plain = places.grid(
            *sides, coordinates=encoding.coordinates, reference=encoding.size, resolution=resolution, dtype=torch.float64
        )
        close(encoding.grid(*sides, resolution=resolution, dtype=torch.float64), plain, f"the grid, {resolution}", atol=0.0)


def check_prefix(encoding: Encoding) -> None:
    """Prefix tokens have no position: nothing that happens to them, seen from either side, depends on one."""
    logits, p = Logits(ready(encoding)), points(encoding, 6)
    x, y = logits.tokens(9), logits.tokens(8, seed=4)
    prefixed = logits(x, y, p, None, (3, 2))
    close(prefixed[:, :, 3:, 2:], logits(x[:, 3:], y[:, 2:], p), "logits among tokens with and without a prefix")
    code = logits.encoding(p)
    q = logits.split(torch.cat([x[:, :3], code.tokens(x[:, 3:])], 1), "to_q", logits.heads)
    k = logits.split(torch.cat([y[:, :2], code.tokens(y[:, 2:])], 1), "to_k", logits.kv_heads)
    twice = code.prefixed(q=1).prefixed(q=2, k=2)
    assert (twice.q_prefix, twice.k_prefix) == (3, 2), (
        f"1 and 2 prefix tokens make {twice.q_prefix}, 0 and 2 {twice.k_prefix}"
    )
    still = torch.zeros(3, encoding.axes, dtype=p.dtype)
    at_zero = single(logits.encoding(still, still[:2]))
    for one, zero, mine in zip(single(code), at_zero, prefixed.chunk(encoding.layers or 1), strict=True):
        first, rest = zero.qk(q[:, :, :3], k[:, :, :2]), one.qk(q[:, :, 3:], k[:, :, 2:])
        bias = one.scores(*rest)
        bare = logits.attend(Code(), torch.cat([first[0], rest[0]], 2), torch.cat([first[1], rest[1]], 2))
        added = mine - bare - (0 if bias is None else F.pad(bias, (2, 0, 3, 0)))
        if encoding.traits.anchored:
            _check_anchors(added)
        else:
            close(added, torch.zeros_like(added), "logits with a prefix and with its rows and columns left alone")


def _check_anchors(added: Tensor) -> None:
    """What three prefix queries and two prefix keys get is one number a head for each way in which two tokens meet."""
    ways = {"prefix to tokens": added[:, :, :3, 2:], "tokens to prefix": added[:, :, 3:, :2], "prefix": added[:, :, :3, :2]}
    for name, part in ways.items():
        close(part, part[:1, :, :1, :1].expand_as(part), f"the bias of {name} and that of its first pair")
        assert part.abs().max() > 1e-3, f"anchored, but the bias of {name} is nothing"
    rest = added[:, :, 3:, 2:]
    close(rest, torch.zeros_like(rest), "logits among tokens with and without a prefix")


def check_unrotated(encoding: Encoding) -> None:
    """Tokens without a position get the same wherever they are: in front, behind, or where a mask of each sample says."""
    instance, p = ready(encoding), points(encoding, 6)
    x, q, k = _sides(encoding, 9, 8)
    front = _results(instance(p).with_unrotated(q=3, k=2), x, q, k)
    alike = _results(instance(p).prefixed(q=3, k=2), x, q, k)
    behind = _results(instance(p).with_unrotated(q=(0, 3), k=(0, 2)), *(each.roll(6, -2) for each in (x, q, k)))
    for name, mine in front.items():
        close(mine, alike[name], f"{name} with leading tokens and with a prefix", atol=0.0)
        moved = mine.roll((6, 6), (-2, -1)) if name == "scores" else mine.roll(6, -2)
        close(behind[name], moved, f"{name} with tokens behind and with them in front")
    q_mask = torch.tensor([[i in places for i in range(9)] for places in ((0, 4, 8), (1, 2, 3))])
    k_mask = torch.tensor([[i in places for i in range(8)] for places in ((3,), (0, 5, 6, 7))])
    places, key_places = points(encoding, 9, batch=2), points(encoding, 8, batch=2, seed=7)
    masked = _results(instance(places, key_places).with_unrotated(q=q_mask, k=k_mask), x, q, k)
    for i in range(2):
        a, b = (mask[i].int().argsort(descending=True, stable=True) for mask in (q_mask, k_mask))
        code = instance(places[i, ~q_mask[i]], key_places[i, ~k_mask[i]])
        code = code.with_unrotated(q=int(q_mask[i].sum()), k=int(k_mask[i].sum()))
        for name, expected in _results(code, x[i : i + 1, a], q[i : i + 1, :, a], k[i : i + 1, :, b]).items():
            mine = masked[name].unflatten(0, (-1, 2))[:, i]
            mine = mine[..., a, :][..., b] if name == "scores" else mine[..., b if name == "k" else a, :]
            close(mine, expected, f"{name} of sample {i} by a mask and with leading tokens")
    refused(lambda: instance(p).with_unrotated(q=(1, 2, 3)), ValueError, "three numbers of tokens")
    refused(lambda: instance(p).with_unrotated(q=torch.zeros(6)), ValueError, "a mask that is not boolean")


def _sides(encoding: Encoding, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens, queries and keys of two samples."""
    logits, generator = Logits(encoding), torch.Generator().manual_seed(6)
    q = torch.randn(2, logits.heads, queries, encoding.head_dim, generator=generator, dtype=torch.float64)
    k = torch.randn(2, logits.kv_heads, keys, encoding.head_dim, generator=generator, dtype=torch.float64)
    return logits.tokens(queries), q, k


def _results(code: Code, x: Tensor, q: Tensor, k: Tensor) -> dict[str, Tensor]:
    """Tokens, queries and keys after a code, and what it adds to their logits, layer after layer of all samples."""
    found = {"tokens": code.tokens(x)}
    found["q"], found["k"] = (torch.cat(parts) for parts in zip(*(one.qk(q, k) for one in single(code)), strict=True))
    scores = [one.scores(*one.qk(q, k)) for one in single(code)]
    every = [each.expand(len(q), *q.shape[1:3], k.shape[2]) for each in scores if each is not None]
    return found | ({"scores": torch.cat(every)} if every else {})


def check_score_mod(encoding: Encoding) -> None:
    """What flex attention adds, element by element, is what `scores` adds: prefixes, groups and samples included."""
    logits, p, kp = Logits(ready(encoding)), points(encoding, 4, batch=2), points(encoding, 3)
    q, k = torch.zeros(2, logits.heads, 6, encoding.head_dim), torch.zeros(2, logits.kv_heads, 4, encoding.head_dim)
    index = torch.meshgrid(*(torch.arange(n) for n in (2, logits.heads, 6, 4)), indexing="ij")
    q_mask, k_mask = torch.tensor([[False, True] * 3, [True] * 3 + [False] * 3]), torch.tensor([False, True, False, False])
    prefixed = logits.encoding(p, kp).prefixed(q=2, k=1)
    for one in (*single(prefixed), *single(prefixed.with_unrotated(q=q_mask, k=k_mask))):
        dense, modify = one.scores(q, k), one.score_mod(q, k)
        assert (dense is None) == (modify is None), "scores and score_mod do not agree on whether there is a bias"
        if dense is not None and modify is not None:
            zero = torch.zeros(index[0].shape, dtype=dense.dtype)
            close(modify(zero, *index), dense.expand_as(zero), "what score_mod and what scores add")


def check_layers(encoding: Encoding) -> None:
    """Of an encoding of several layers, each acts as an encoding of its own with that layer's parameters.

    One whose options fix the number of layers refuses others.
    """
    if "layers" in encoding.pinned:
        return refused(lambda: like(encoding, layers=(encoding.layers or 0) + 1), ValueError, "another number of layers")
    deep, alone = ready(like(encoding, layers=3)), ready(like(encoding, layers=None))
    for p in (points(encoding, 6), points(encoding, 6, batch=2)):
        whole, code = Logits(deep).at(p).chunk(3), deep(p)
        for layer in range(3):
            for name, parameter in alone.named_parameters():
                own = deep.get_parameter(name)
                layered = own.shape == (3, *parameter.shape)
                assert layered or _has_offset(code), f"{name} {tuple(own.shape)} has no axis for three layers"
                parameter.data.copy_(own[layer] if layered else own)
            close(whole[layer], Logits(alone).at(p), f"layer {layer} of three and alone")
            tokens = Logits(deep).tokens(6)
            close(code[layer].tokens(tokens), tokens, "tokens before and after a single layer's code", atol=0.0)
        logits = Logits(deep)
        q, k = logits.split(tokens, "to_q", logits.heads), logits.split(tokens, "to_k", logits.kv_heads)
        for layer, own in enumerate(code.unbind()):
            close(logits.attend(own, q, k), logits.attend(code[layer], q, k), f"code.unbind()[{layer}] and code[{layer}]")
    q = torch.zeros(2, encoding.heads, 6, encoding.head_dim)
    refused(lambda: code.qk(q, q), TypeError, "q and k for a code of three layers at once")
    refused(lambda: code[3], IndexError, "layer 3 of three")


def _has_offset(code: Code) -> bool:
    return isinstance(code, Offset) or (isinstance(code, Chain) and any(map(_has_offset, code.codes)))


def check_groups(encoding: Encoding) -> None:
    """With grouped queries, what belongs to a key head is shared by the query heads of its group.

    An encoding whose options fix the number of heads refuses others.
    """
    if "heads" in encoding.pinned:
        several = 2 * encoding.heads
        return refused(lambda: like(encoding, heads=several, kv_heads=several), ValueError, "another number of heads")
    grouped, plain = ready(like(encoding, heads=4, kv_heads=2)), ready(like(encoding, heads=4, kv_heads=None))
    for groups, heads in ((grouped.named_parameters(), plain.get_parameter), (grouped.named_buffers(), plain.get_buffer)):
        for name, own in groups:
            wanted = heads(name)
            for axis, (mine, many) in enumerate(zip(own.shape, wanted.shape, strict=True)):
                own = own.repeat_interleave(2, axis) if 2 * mine == many else own
            wanted.data.copy_(own.detach())
    p = points(encoding, 6)
    few, single_heads = Logits(grouped), Logits(plain)
    weight = few.get_buffer("to_k").unflatten(-1, (2, 1, -1)).expand(-1, -1, 2, -1).flatten(1)
    single_heads.get_buffer("to_k").copy_(weight)
    close(few.at(p), single_heads.at(p), "two key heads and the same two repeated")


def check_views(encoding: Encoding) -> None:
    """Views of one fused projection, empty batches and single tokens give what plain tensors give; inputs stay intact."""
    instance, heads = ready(encoding, torch.float32), encoding.heads
    p = points(encoding, 5)
    code = single(instance(p.float()))[0]
    fused = torch.randn(2, 5, 3, heads, encoding.head_dim, generator=torch.Generator().manual_seed(5))
    q, k, _ = fused.permute(2, 0, 3, 1, 4).unbind(0)
    k = k[:, : encoding.kv_heads or heads]
    before = fused.clone()
    for mine, theirs in zip(code.qk(q, k), code.qk(q.contiguous(), k.contiguous()), strict=True):
        close(mine, theirs, "a view and its contiguous copy", atol=1e-6)
    close(fused, before, "q and k before and after", atol=0.0)
    close(code.q(q), code.qk(q, k)[0], "q alone and with k", atol=0.0)
    close(code.k(k), code.qk(q, k)[1], "k alone and with q", atol=0.0)
    projection = torch.cat([q, k, k + 1], dim=1).transpose(1, 2)
    for name, mine, theirs in zip("qkv", code.qkv(projection, heads), (*code.qk(q, k), k + 1), strict=True):
        close(mine, theirs, f"{name} of a projection and by itself", atol=1e-6)
    with torch.no_grad():
        lying = q.clone(), k.clone()
        code.qk_(*lying)
    for mine, theirs in zip(lying, code.qk(q, k), strict=True):
        close(mine, theirs, "what is turned where it lies and elsewhere", atol=1e-6)
    empty, _ = code.qk(q[:0], k[:0])
    assert empty.shape == q[:0].shape, f"an empty batch came back as {tuple(empty.shape)}"
    one = single(instance(p[:1].float()))[0]
    close(one.q(q[:, :, :1]), code.q(q)[:, :, :1], "a single token and the first of five", atol=1e-6)
    none = single(instance(p[:0].float()))[0]
    assert none.q(q[:, :, :0]).shape == q[:, :, :0].shape, "no tokens came back as some"


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
        code = single(encoding(p))[0]
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
