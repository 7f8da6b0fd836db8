"""What theory found of an encoding, in words."""

from collections.abc import Iterator, Sequence
from typing import Any

from ropewalk.lab.inspect.figure_grid import format_grid_size

SCORE_ROUNDING = 1e-9  # a change of scores below this is none


def format_theory_facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Findings in words: labels, blank where the one above still holds, and words."""
    yield "instance", found["repr"]
    if found.get("weights"):
        yield "weights", found["weights"]
    if found["turns"] is None:
        yield "generators", f"none: it turns no channels by exp(p_1 A_1 + p_2 A_2 + …), it acts on {found['acts_on']}"
        yield "scores", _format_claim(found["relative"])
        return
    if found["turns"] != found["name"]:
        yield "of", f"{found['turns']}, the part that turns q and k: all that follows is of it alone"
    yield from _format_generators(found["generators"])
    yield "equation", _format_equation(**found["rope_equation"])
    yield from _format_shifts(found["moves"], found["size"])
    yield "waves", _format_waves(found)
    yield from _format_span(found["span"], found["size"])
    yield "learns", f"{found['parameters']['learned']:,} numbers"
    why = f"yes, with {found['parameters']['folded']:,} numbers" if found["folds"] else f"no, {found['why']}"
    yield "folds", f"to mixed RoPE: {why}"


def _format_claim(relative: dict[str, bool]) -> str:
    kept = [f"{name}s" for name, value in relative.items() if value]
    changed = [f"{name}s" for name, value in relative.items() if not value]
    words = [f"do not change when all tokens move along {' or '.join(kept)}"] * bool(kept)
    words += [f"change when all tokens move along {' or '.join(changed)}"] * bool(changed)
    return "; they ".join(words) + ", by its own claim"


def _format_generators(generators: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not generators["pairs"]:
        yield "generators", "commute: there is but one"
        return
    verdict = "commute" if generators["commute"] else "do not commute"
    yield "generators", f"{verdict}; |AB - BA| over |A||B|, which is 1 at most:"
    for pair in generators["pairs"]:
        words = f"{' and '.join(pair['axes'])}: {format_residual(pair['largest'])}"
        if pair["layer"] is not None or pair["head"] is not None:
            words += f" at most{_format_location(pair, pair['largest'])}, {format_residual(pair['mean'])} on average"
        yield "", words


def _format_equation(residual: float, reach: float) -> str:
    drawn = f"of |q||k| (places and moves drawn at random, of deviation {reach:.3g})"
    if residual < SCORE_ROUNDING:
        return f"scores depend on differences of positions alone, to {format_residual(residual)} {drawn}"
    return f"scores depend on more than differences of positions, by up to {format_residual(residual)} {drawn}"


def _format_shifts(moves: dict[str, Any], size: Sequence[int]) -> Iterator[tuple[str, str]]:
    few = " × ".join(map(str, moves["places"])) + (" places" if len(size) > 1 else "")
    at = "all" if moves["places"] == list(size) else f"{few} of"
    yield (
        "both move",
        f"what scores change by as all tokens move (so far in its coordinates), at {at} {format_grid_size(size)}:",
    )
    for row in moves["shifts"]:
        by = f"{row['patches']:g} {row['axis']}{'' if row['patches'] == 1 else 's'} ({row['distance']:.3g})"
        worst = f"at worst {format_residual(row['worst'])} of |q||k|{_format_location(row, row['worst'])}"
        yield "", f"by {by}: {worst}, expected {format_residual(row['expected'])} of a score"


def _format_location(row: dict[str, Any], value: float) -> str:
    """Where the largest value is, if it is more than rounding."""
    named = [f"{what} {row[what] + 1}" for what in ("head", "layer") if row[what] is not None]
    return f" ({' of '.join(named)})" if named and value > SCORE_ROUNDING else ""


def _format_waves(found: dict[str, Any]) -> str:
    if found["waves"] is None:
        own = (f"{_format_range(*row['different'])} along {row['axis']}s alone" for row in found["span"])
        return f"no wave vectors; frequencies: {', '.join(own)}"
    heads = found["waves"]
    different, directions, still = (
        _format_plural(noun, min(head[key] for head in heads), max(head[key] for head in heads))
        for key, noun in (("different", "different vector"), ("directions", "direction"), ("still", "channel"))
    )
    planes = [count for head in heads for count in head["planes"]]
    if not planes:
        return "none: nothing turns"
    turn = f"each turns {_format_plural('plane', min(planes), max(planes))}"
    return f"{different} in a head, along {directions}; {turn}; {still} not turned"


def _format_span(rows: list[dict[str, Any]], size: Sequence[int]) -> Iterator[tuple[str, str]]:
    yield "span", f"radians across {format_grid_size(size)}:"
    for row in rows:
        still = f"; {_format_plural('plane', *row['still'])} of {row['planes']} not turned" if max(row["still"]) else ""
        yield "", f"along {row['axis']}s: fastest plane {row['fastest']:.3g}, slowest {row['slowest']:.3g}{still}"


def _format_plural(noun: str, low: int, high: int) -> str:
    return f"{_format_range(low, high)} {noun}{'' if high == 1 else 's'}"


def _format_range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def format_residual(value: float) -> str:
    """Three digits; of what rounding may have left, one."""
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-") if value < 1e-8 else f"{value:.3g}"
