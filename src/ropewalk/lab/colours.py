"""The colours of scores, from the lowest over zero, which has the colour of the paper, to the highest."""

SCALES = {
    "light": ("#08306b", "#2f7fc1", "#a9d0ea", "#ffffff", "#fbc69c", "#dd6b20", "#7f2704"),
    "dark": ("#c6ecff", "#4aa8e8", "#17507f", "#0d1117", "#7f3a12", "#f08a3c", "#ffe3c2"),
}


def colour(value: float, scale: tuple[str, ...]) -> str:
    """The colour of a value from -1 to 1."""
    place = (value + 1) / 2 * (len(scale) - 1)
    first = min(int(place), len(scale) - 2)
    low, high = (_rgb(scale[i]) for i in (first, first + 1))
    return "#" + "".join(f"{round(a + (b - a) * (place - first)):02x}" for a, b in zip(low, high, strict=True))


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
