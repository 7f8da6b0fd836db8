"""Learned frequencies under the name that they have in timm's checkpoints, `rope.freqs`."""

from typing import Any

from torch import Tensor

from ropewalk.encodings.mixed import Mixed

TIMM = "freqs"


class TimmMixed(Mixed):
    """RoPE-Mixed whose parameter lies as in timm: `freqs` (2 L H P), columns before rows."""

    columns_first = True

    freqs: Tensor

    def initial(self) -> dict[str, Tensor]:
        return {TIMM: timm_order(super().initial()["wave"], self.columns_first)}

    def vectors(self) -> Tensor:
        return our_order(self.freqs, self.columns_first)


class TimmMixedRowsFirst(TimmMixed):
    """The same, rows before columns."""

    columns_first = False


def our_order(freqs: Tensor, columns_first: bool) -> Tensor:
    """timm's (axis L H P) as (L H P axis), the row's frequency first."""
    return (freqs.flip(0) if columns_first else freqs).permute(1, 2, 3, 0)


def timm_order(wave: Tensor, columns_first: bool) -> Tensor:
    """(L H P axis), the row's frequency first, as timm's (axis L H P)."""
    wave = wave.permute(3, 0, 1, 2)
    return (wave.flip(0) if columns_first else wave).contiguous()


def write(rope: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Frequencies that are those of timm's module get its name: the same tensor, so that averages of weights write to it."""
    if isinstance(rope.encoding, TimmMixed):
        state[f"{prefix}{TIMM}"] = state.pop(f"{prefix}encoding.{TIMM}")


def read(rope: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """timm's frequencies, for an encoding that has these: timm's own, or RoPE-Mixed of patch indices."""
    encoding, columns_first = rope.encoding, rope.columns_first
    if not (f"{prefix}{TIMM}" in state and isinstance(encoding, Mixed) and encoding.coordinates == "index"):
        return
    if isinstance(encoding, TimmMixed):
        state[f"{prefix}encoding.{TIMM}"] = state.pop(f"{prefix}{TIMM}")
    elif isinstance(columns_first, bool) and encoding.wave.ndim == 4:
        state[f"{prefix}encoding.wave"] = our_order(state.pop(f"{prefix}{TIMM}"), columns_first)
