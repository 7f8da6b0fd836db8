"""The encoding that a host has already: RoPE as its config says, or the wave vectors that its rotation was measured to have.

Either is compared with the matrices of the host before anybody gets it.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.adapters.transformers.embedding import by_length
from ropewalk.adapters.transformers.hosts import Host, layer_type_of, list_layer_types
from ropewalk.adapters.transformers.probing import (
    HostRefusedError,
    Shapes,
    call_on_pixels,
    list_ids,
    measure,
    on_a_device,
    on_the_cpu,
    read_shapes,
)
from ropewalk.code import Code
from ropewalk.encoding import Encoding
from ropewalk.extension.config import options as read_rule
from ropewalk.factory import create

BY_CALL = ("dynamic", "longrope")  # rules that transformers settles anew in each call
AGREES = 2e-5
"""How far the entries of a host's matrices may be from ours: rounding of float32 at the positions of the probe."""
PROBES = (1, 2, 5, 11)


@dataclass(eq=False)
class Found:
    """What is known of the layers of one type of a host.

    kind, axes  How positions come, one of `probing.IDS`, and how many axes they have.
    shapes      Of what each attention rotates, in the order of `each_attention`.
    """

    rotary: nn.Module
    kind: str
    axes: int
    layer_type: str | None
    shapes: dict[int, tuple[Shapes, ...]] = field(default_factory=dict)

    @property
    def first(self) -> Shapes:
        """What the first attention rotates."""
        return next(iter(self.shapes.values()))[0]

    @property
    def shape(self) -> dict[str, Any]:
        """What every encoding is made for."""
        several = [each for shapes in self.shapes.values() for each in shapes[:1] if each.heads == self.first.heads]
        heads, keys = self.first.heads, math.gcd(*(each.kv_heads for each in several))
        return {"head_dim": self.first.width, "heads": heads, "kv_heads": None if keys == heads else keys, "axes": self.axes}


@on_the_cpu
def inspect_host(host: Host) -> dict[str | None, Found]:
    """What is known of each type of layers; None is that of a host which does not tell types apart."""
    types: list[Any] = list_layer_types(host.host_rotary) or [None]
    attentions: dict[Any, list[nn.Module]] = {kind: [] for kind in types}
    for layer, attention in enumerate(host.attentions):
        kind = None if types == [None] else layer_type_of(attention, layer, host.config, types)
        if kind in attentions:
            attentions[kind].append(attention)
    return {kind: _inspect_type(host, kind, several) for kind, several in attentions.items() if several}


def _inspect_type(host: Host, kind: str | None, attentions: list[nn.Module]) -> Found:
    """What is known of the attentions of one type of layers."""
    rotary, refused = host.host_rotary, None
    for ids, axes in list_ids(rotary, kind):
        about = Found(rotary, ids, axes, kind)
        try:
            _read_attentions(host, about, attentions)
        except HostRefusedError as error:
            refused = error
            continue
        tables = about.first.calls[0].outputs
        if not isinstance(tables, tuple) or tables[0].shape[-1] <= about.first.width:
            return about
        refused = HostRefusedError(f"tables of {type(rotary).__name__} have more channels than the heads of its attention")
    raise refused or HostRefusedError(f"{type(rotary).__name__} takes positions in a way that is not known here")


def _read_attentions(host: Host, about: Found, attentions: list[nn.Module]) -> None:
    known: dict[Any, list[tuple[Shapes, ...] | None]] = {}
    refused = None
    for attention in attentions:
        helpers = [module for module in attention.modules() if any(module is helper for helper in host.helpers)]
        plain = {name: value for name, value in vars(attention).items() if isinstance(value, bool | int | float | str)}
        alike = (
            type(attention),
            len(helpers),
            *sorted((n, v) for n, v in plain.items() if n not in ("layer_idx", "training")),
        )
        if alike not in known:
            try:
                shapes = read_shapes(attention, helpers, about.rotary, about.kind, about.axes, about.layer_type)
            except HostRefusedError as error:
                refused = refused or error  # another layer may rotate
                continue
            known[alike] = [shapes.get(id(module)) for module in (attention, *helpers)]
        for module, own in zip((attention, *helpers), known[alike], strict=False):
            if own is not None:
                about.shapes[id(module)] = own
    if not about.shapes:
        raise refused or HostRefusedError(f"no attention of {host.named} rotates anything")


@dataclass(frozen=True)
class Waves:
    """A rotation that was measured: wave vectors (P A) in float64, which channels make pairs, and what it multiplies by."""

    table: Tensor
    interleaved: bool
    offset: int
    factor: float
    sections: tuple[int, ...] | None = None

    def options(self) -> dict[str, Any]:
        """For `rw.create("waves", …)`."""
        plain: dict[str, Any] = {"table": self.table.tolist(), "interleaved": self.interleaved}
        plain |= {} if self.factor == 1.0 else {"factor": self.factor}
        return plain | ({} if self.sections is None else {"sections": self.sections})


def read_waves(about: Found, shapes: Shapes) -> Waves:
    """The wave vectors of a host, from its matrices at the unit positions of each axis and some more."""
    rotary = on_a_device(about.rotary)
    still = measure(shapes, rotary, about.kind, torch.zeros(about.axes, dtype=torch.long), about.layer_type)
    order = _order(still)
    factor = still.norm().item() / math.sqrt(len(still))
    units = torch.eye(about.axes, dtype=torch.long)
    probes = [*units, *(5 * units), torch.ones(about.axes, dtype=torch.long)]
    matrices = [measure(shapes, rotary, about.kind, point, about.layer_type)[order] for point in probes]
    pairs = _find_pairs(matrices)
    width = len(still)
    waves: dict[tuple[int, int], list[float]] = {}
    for i, j in pairs:
        angles = [math.atan2(matrix[j, i].item(), matrix[i, i].item()) for matrix in matrices[: about.axes]]
        waves[i, j] = [_exact(angle, rotary) for angle in angles]
    gains = {i: math.hypot(matrices[0][j, i].item(), matrices[0][i, i].item()) for i, j in pairs}
    if gains and (max(gains.values()) - min(gains.values()) > AGREES * factor):
        raise HostRefusedError(f"{type(about.rotary).__name__} scales pairs of channels by different factors")
    factor = 1.0 if not gains else next(iter(gains.values()))
    return _laid_out(waves, width, about.axes, 1.0 if abs(factor - 1) < 1e-6 else factor)


def _order(still: Tensor) -> Tensor:
    """The order of channels in which a host returns what it rotates: what its matrix at position 0 does but stretch."""
    order = still.abs().argmax(dim=0)
    rest = still.clone()
    rest[order, torch.arange(len(still))] = 0
    if rest.abs().max() > AGREES or len(set(order.tolist())) != len(still):
        raise HostRefusedError("a token at position 0 is not left as it is, but for a factor and the order of its channels")
    return order


def _find_pairs(matrices: list[Tensor]) -> list[tuple[int, int]]:
    mixed = sum(matrix.abs() for matrix in matrices)
    assert isinstance(mixed, Tensor)
    mixed.fill_diagonal_(0)
    pairs = []
    for i in range(len(mixed)):
        partners = mixed[:, i].nonzero().flatten().tolist()
        if len(partners) > 1:
            raise HostRefusedError(f"channel {i} of q is mixed with the channels {partners}: not a rotation of pairs")
        if partners and i < partners[0]:
            pairs.append((i, partners[0]))
    return pairs


def _exact(angle: float, rotary: nn.Module) -> float:
    """An angle as the frequency of the host's that it comes of, which is exact where cosine and sine are not."""
    if angle == 0:
        return 0.0
    buffers = [
        buffer for name, buffer in rotary.named_buffers(recurse=False) if "inv_freq" in name and "original" not in name
    ]
    known = torch.cat([buffer.detach().double().flatten().cpu() for buffer in buffers]) if buffers else torch.zeros(0)
    if not len(known):
        return angle
    near = known[(known - abs(angle)).abs().argmin()].item()
    return math.copysign(near, angle) if abs(near - abs(angle)) <= 1e-5 * near else angle


def _laid_out(waves: dict[tuple[int, int], list[float]], width: int, axes: int, factor: float) -> Waves:
    """Pairs in one of the layouts that encodings have; pairs that are not there turn by nothing."""
    if not waves:
        raise HostRefusedError("it rotates nothing")
    distances = {j - i for i, j in waves}
    least, most = min(i for i, _ in waves), max(j for _, j in waves)
    still = [0.0] * axes
    if distances == {1} and (len(waves) > 1 or width == 2):
        offset = least % 2
        count = (most + 1 - offset) // 2
        table = [waves.get((offset + 2 * n, offset + 2 * n + 1), still) for n in range(count)]
        return Waves(torch.tensor(table, dtype=torch.float64), True, offset, factor)
    if len(distances) == 1:
        (half,) = distances
        offset = 0 if least < half and max(i for i, _ in waves) < half else least
        table = [waves.get((offset + n, offset + half + n), still) for n in range(half)]
        if len([row for row in table if row is not still]) == len(waves):
            return Waves(torch.tensor(table, dtype=torch.float64), False, offset, factor)
    return _by_sections(waves, factor)


def _by_sections(waves: dict[tuple[int, int], list[float]], factor: float) -> Waves:
    """Halves within shares of the channels that follow one another."""
    sections, table, start = [], [], 0
    while (start, *[j for i, j in waves if i == start]) in waves:
        half = next(j for i, j in waves if i == start) - start
        rows = [waves.get((start + n, start + half + n)) for n in range(half)]
        if None in rows:
            break
        table += rows
        sections.append(half)
        start += 2 * half
    if len(table) != len(waves):
        shown = ", ".join(f"({i}, {j})" for i, j in list(waves)[:6])
        raise HostRefusedError(f"it rotates pairs of channels in an order that no layout here has: {shown}, …")
    return Waves(torch.tensor(table, dtype=torch.float64), False, 0, factor, tuple(sections))


def native_encoding(host: Host, about: Found, config: Any, options: dict[str, Any]) -> Encoding:
    """The encoding that the layers of one type have, with options besides."""
    own = _compare_native(about, config).config()
    if "extension" in options:
        own.pop("length", None)
    return create(**(own | options))


@on_the_cpu
def _compare_native(about: Found, config: Any) -> Encoding:
    """RoPE as the config says if that is what the host does, or the wave vectors that were measured."""
    plain = _by_config(about, config)
    if plain is not None:
        try:
            agree(about, plain)
            return plain
        except HostRefusedError:
            if by_length(plain) or plain.config().get("length") is not None:
                raise
    waves = read_waves(about, about.first)
    shape = about.shape | {"coordinates": "index", "head_dim": about.first.width - waves.offset}
    measured = create("waves", **(shape | waves.options()))
    agree(about, measured)
    return measured


def _by_config(about: Found, config: Any) -> Encoding | None:
    """RoPE as the config says, of a host whose tokens are numbered, or None if this does not describe it."""
    said = getattr(config, "rope_parameters", None)
    if about.axes != 1 or not isinstance(said, dict) or not said:
        return None
    nested = any(isinstance(value, dict) for value in said.values())
    kind = about.layer_type if nested else None
    chosen = said.get(kind) if nested else said
    if not isinstance(chosen, dict):
        return None
    layout = read_waves(about, about.first) if about.first.calls else None
    partial = chosen.get("partial_rotary_factor")
    if layout is None or layout.offset:
        return None
    try:
        found = read_rule(
            {str(kind): chosen} if nested else chosen,
            head_dim=about.first.width,
            max_position_embeddings=getattr(config, "max_position_embeddings", None),
            original_max_position_embeddings=getattr(config, "original_max_position_embeddings", None),
            rope_theta=getattr(config, "rope_theta", None),
            layer_type=kind,
            framework="transformers",
        )
        pairs = len(layout.table)
        if partial is not None and found.get("extension", {}).get("rope_type") != "proportional":
            found["rotary_dim"] = 2 * pairs
            if 2 * pairs == about.first.width:
                del found["rotary_dim"]
        elif 2 * pairs < about.first.width and not found.get("extension"):
            found["rotary_dim"] = 2 * pairs
        shape = about.shape | {"coordinates": "index", "interleaved": layout.interleaved}
        made = create("rope", **(shape | found))
    except (ValueError, TypeError):
        return None
    settled = by_length(made) and found.get("extension", {}).get("rope_type") not in BY_CALL
    longest = getattr(config, "max_position_embeddings", None)
    if settled and longest is None:
        raise HostRefusedError(
            f"the rule {made.config()['extension']} depends on the longest text: its config has no max_position_embeddings"
        )
    return made.at(longest) if settled and longest is not None else made


def agree(about: Found, encoding: Encoding) -> None:
    """Refuse an encoding whose matrices are not those of the host, up to the order in which it returns channels."""
    distinct = {id(several): several[0] for several in about.shapes.values()}
    first = read_waves(about, about.first)
    for shapes in distinct.values():
        if shapes is about.first or _same_layout(first, read_waves(about, shapes)):
            _agree(about, shapes, encoding)


def _same_layout(one: Waves, other: Waves) -> bool:
    return (one.interleaved, one.offset, one.sections) == (other.interleaved, other.offset, other.sections)


def _agree(about: Found, shapes: Shapes, encoding: Encoding) -> None:
    rotary = on_a_device(about.rotary)
    offset = shapes.width - encoding.head_dim
    for point in _probe_points(about.axes):
        for side in (0, 1):
            theirs = measure(shapes, rotary, about.kind, point, about.layer_type, side)
            theirs = theirs[_order(measure(shapes, rotary, about.kind, 0 * point, about.layer_type, side))]
            with torch.no_grad():
                ours = _matrix(encoding.at(int(point.max()) + 1) if by_length(encoding) else encoding, point)
            far = (theirs[offset:, offset:] - ours).abs().max().item()
            if far > AGREES * max(1.0, theirs.abs().max().item()):
                where = tuple(point.tolist())
                what = (
                    f"the rotation of {type(about.rotary).__name__} at position {where} differs from that of {encoding.name}"
                )
                raise HostRefusedError(f"{what} by {far:.2g}: nothing was installed")


def _probe_points(axes: int) -> list[Tensor]:
    points = [torch.full((axes,), place, dtype=torch.long) for place in PROBES]
    return [point + torch.arange(axes) * (1 + index) for index, point in enumerate(points)]


def _matrix(encoding: Encoding, point: Tensor) -> Tensor:
    code: Code = encoding(point if encoding.axes == 1 else point[None].float())
    code = code if code.layers is None else code[0]
    return code.matrices().double().cpu().reshape(-1, encoding.head_dim, encoding.head_dim)[0]  # type: ignore[attr-defined]


@on_the_cpu
def agree_on_images(about: Found, encoding: Encoding) -> None:
    """The same of a tower that is given images: its cosines and sines for 3 × 5 patches are those of the encoding."""
    rotary = on_a_device(about.rotary)
    with torch.no_grad():
        cos, sin = call_on_pixels(rotary, 3, 5)
        angle = encoding(encoding.grid(3, 5)).q_angle[0]
    far = max(
        (table.cpu() - wanted.tile(2)).abs().max().item() for table, wanted in ((cos, angle.cos()), (sin, angle.sin()))
    )
    if far > AGREES:
        raise HostRefusedError(f"the cosines of {type(rotary).__name__} differ from those of {encoding.name} by {far:.2g}")
