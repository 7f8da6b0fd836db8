"""Tables of a ViT that was trained with an absolute table and then fine-tuned with a rotation installed."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmark_tables import load_results
from markdown_text import format_table
from ropewalk.lab.statistics import MeanEstimate, estimate_differences, estimate_means

RECORD = "fine-tuning.json"
ARMS = {
    "none": "nothing",
    "comrope-ld": "`comrope-ld`, `std=0.0`",
    "comrope-ld fast": "`comrope-ld`, `std=0.0`, its rate × 8",
    "liere fast": "`liere`, `scale=0.0`, its rate × 8",
    "mixed": "`mixed`",
    "mixed without table": "`mixed`, `drop_table=True`",
}
EPOCHS = (1, 5)
"""Epochs of fine-tuning after which accuracy is shown; beside these, the start and the end."""
SIDES = (48, 64)
MODES = {"rescale": "rescaled", "extrapolate": "extrapolated"}

Reading = Callable[[Mapping[str, Any]], float | None]


def read_epoch(epoch: int) -> Reading:
    return lambda run: run["curve"][epoch - 1] if run["curve"] else None


def read_size(mode: str, side: int) -> Reading:
    return lambda run: next(row["accuracy"] for row in run["sizes"] if (row["mode"], row["size"]) == (mode, [side, side]))


READINGS: dict[str, Reading] = {
    "start": lambda run: run["at_start"],
    **{f"epoch {epoch}": read_epoch(epoch) for epoch in EPOCHS},
    "end": lambda run: run["validation_accuracy"],
    "test": lambda run: run["test_accuracy"],
    **{f"{mode} {side}": read_size(mode, side) for side in SIDES for mode in MODES},
}


def collect_accuracies(reading: str) -> dict[str, dict[int, float]]:
    """Accuracy in per cent by arm and seed; seeds without a value are left out."""
    found: dict[str, dict[int, float]] = {arm: {} for arm in ARMS}
    for run in load_results(RECORD)["runs"]:
        if run["arm"] is not None and (value := READINGS[reading](run)) is not None:
            found[run["arm"]][run["seed"]] = 100 * value
    return found


def estimate_accuracies(reading: str) -> dict[str, MeanEstimate]:
    """Means over seeds, with 95 % intervals from the variance that all arms share."""
    return estimate_means({arm: list(values.values()) for arm, values in collect_accuracies(reading).items()})


def estimate_gains(reading: str) -> dict[str, MeanEstimate]:
    """Differences to the arm without an encoding, seed by seed."""
    return estimate_differences(collect_accuracies(reading), "none")


def get_mean(arm: str, reading: str) -> float:
    return estimate_accuracies(reading)[arm].mean


def get_gain(arm: str, reading: str) -> float:
    return estimate_gains(reading)[arm].mean


def get_largest_gain(reading: str) -> float:
    """The highest upper end of the intervals of all differences."""
    return max(gain.mean + (gain.half or 0.0) for gain in estimate_gains(reading).values())


def get_generator(arm: str) -> float:
    """The largest entry of learned generators, in radians a patch: the mean over seeds."""
    found = [run["generator"] for run in load_results(RECORD)["runs"] if run["arm"] == arm]
    return sum(found) / len(found)


def measure_base(name: str) -> MeanEstimate:
    """Accuracy of the ViT before fine-tuning."""
    bases = [run for run in load_results(RECORD)["runs"] if run["arm"] is None]
    return estimate_means({"": [100 * run[name] for run in bases]})[""]


def compare_training() -> str:
    """Accuracy by epoch on held-out images, and on the test set with the difference to the arm without an encoding."""
    shown = ["start", *(f"epoch {epoch}" for epoch in EPOCHS), "end"]
    (last,) = {run["epochs"] for run in load_results(RECORD)["runs"] if run["arm"] is not None}
    heads = ["installed", "before the first step", *(f"after epoch {epoch}" for epoch in (*EPOCHS, last))]
    columns, test, gains = [estimate_accuracies(name) for name in shown], estimate_accuracies("test"), estimate_gains("test")
    most = max(each.seeds for each in test.values())
    rows = [
        [
            words,
            *(_format_mean(column[arm], most) for column in columns),
            _format_level(test[arm]),
            _format_gain(gains.get(arm)),
        ]
        for arm, words in ARMS.items()
    ]
    return format_table([*heads, "test set", "difference to none"], rows)


def compare_sizes() -> str:
    """Accuracy after fine-tuning on held-out images of other sizes, and the differences to the arm without an encoding."""
    names = [(f"{mode} {side}", f"{side} px, {word}") for side in SIDES for mode, word in MODES.items()]
    columns = [(estimate_accuracies(name), estimate_gains(name)) for name, _ in names]
    heads = ["installed", *(head for _, words in names for head in (words, "difference to none"))]
    rows = [
        [words, *(cell for levels, gains in columns for cell in (f"{levels[arm].mean:.1f}", _format_gain(gains.get(arm))))]
        for arm, words in ARMS.items()
    ]
    return format_table(heads, rows)


def _format_mean(level: MeanEstimate, seeds: int) -> str:
    """Empty if a seed has no value: seeds differ by more than arms."""
    return f"{level.mean:.1f}" if level.seeds == seeds else ""


def _format_level(level: MeanEstimate) -> str:
    return f"{level.mean:.1f} ± {level.half:.1f}"


def _format_gain(gain: MeanEstimate | None) -> str:
    return "" if gain is None else f"{gain.mean:+.1f} ± {gain.half:.1f}"
