"""What a code is made of: its parts, and the channels that turn together."""

import copy
from typing import NamedTuple

from ropewalk.code import Basis, Bias, Chain, Code, ContentBias, Offset, Rotary, Rotation, Sphere, Turn
from ropewalk.encoding import Encoding
from ropewalk.ops.layout import pair_channels

CODE_TARGETS = {
    Rotation: "pairs",
    Sphere: "triplets",
    Turn: "blocks",
    Bias: "logits",
    ContentBias: "logits",
    Offset: "tokens",
    Code: "nothing",
}

PER_HEAD_FIELDS = ("q_angle", "q_matrix", "table", "u", "basis")  # what codes hold that has rows for heads


class ChannelGroups(NamedTuple):
    """What the groups of channels that turn together are called, and the channels of each."""

    noun: str
    channels: list[tuple[int, ...]]


def list_code_parts(code: Code) -> list[Code]:
    """The code itself, or the codes that it chains."""
    return [part for link in code.codes for part in list_code_parts(link)] if isinstance(code, Chain) else [code]


def ensure_on_cpu(encoding: Encoding) -> Encoding:
    """The encoding, or a copy of it if it is on another device."""
    tensors = [*encoding.parameters(), *encoding.buffers()]
    return encoding if all(tensor.device.type == "cpu" for tensor in tensors) else copy.deepcopy(encoding).cpu()


def compute_sample_code(encoding: Encoding) -> Code:
    """Its code for one token: enough to see of what kind it is."""
    return encoding(encoding.grid(*[1] * encoding.axes, resolution="extrapolate"))


def find_rotary_part(code: Code) -> Rotary | None:
    """The part that turns q and k last, if one does."""
    return next((part for part in reversed(list_code_parts(code)) if isinstance(part, Rotary)), None)


def find_channel_groups(code: Code) -> ChannelGroups:
    """The groups of channels that the code turns, none if it turns nothing or mixes channels afterwards."""
    last = next((part for part in reversed(list_code_parts(code)) if isinstance(part, Rotary | Basis)), None)
    if isinstance(last, Rotation):
        pairs = pair_channels(last.q_angle.shape[-1], last.interleaved, last.sections)
        return ChannelGroups("pair", [*pairs])
    if isinstance(last, Sphere):
        return ChannelGroups("triplet", _split_channels(last.q_angle.shape[-2], 3))
    if isinstance(last, Turn):
        return ChannelGroups("block", _split_channels(last.q_matrix.shape[-3], last.q_matrix.shape[-1]))
    return ChannelGroups("head", [])


def describe_code_target(code: Code) -> str:
    """What the code works on: groups of channels, logits, tokens, or several of these."""
    found = [
        CODE_TARGETS.get(type(part), type(part).__name__.lower())
        for part in list_code_parts(code)
        if not isinstance(part, Basis)
    ]
    return ", ".join(dict.fromkeys(found)) or "channels"


def _split_channels(count: int, size: int) -> list[tuple[int, ...]]:
    return [tuple(range(size * i, size * (i + 1))) for i in range(count)]


def count_distinct_heads(encoding: Encoding) -> int:
    """How many heads there are that positions treat differently: 1 where all share what the code holds."""
    found = list_code_parts(compute_sample_code(encoding))
    lead = 0 if encoding.layers is None else 1
    tables = [getattr(part, name) for part in found for name in PER_HEAD_FIELDS if hasattr(part, name)]
    rows = max((table.shape[lead] for table in tables), default=1)
    return encoding.heads if rows > 1 or any(isinstance(part, Offset) for part in found) else 1
