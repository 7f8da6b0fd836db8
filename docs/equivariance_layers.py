"""What layers learn in the study of equivariance: how much faster the first turn than the last, before and after training.

Before training is what the seed of a run draws, which is drawn here again.
"""

from collections.abc import Sequence

import studied
import tables
from ropewalk.lab.model_building import build_model
from ropewalk.lab.probes.spectrum import compute_layer_frequencies
from ropewalk.lab.statistics import estimate_means
from ropewalk.lab.studies import ALL_STUDIES
from ropewalk.lab.studies.equivariance import compute_frequency_drop, measure_frequency_drop
from studied import ResultLine

SHOWN = ("mixed", "learned-spherical", "comrope-ld-8", "learned-axial", "liere-8", "spherical-symmetric")
SIDE, CLASSES = 32, 100
"""Of CIFAR-100."""


def begun(name: str, seed: int) -> float:
    """What a run of the main part began with."""
    config = ALL_STUDIES["equivariance"].run_config("main", name, seed, {})
    model = build_model(config, size=(SIDE, SIDE), channels=3, classes=CLASSES)
    return compute_frequency_drop(compute_layer_frequencies(model.encoding, (SIDE // config.patch,) * 2, config.depth))


def table(lines: Sequence[ResultLine]) -> str:
    """Before, after, and what training added, with its interval."""
    after = {name: each for name, each in studied.by_name(lines, measure_frequency_drop).items() if name in SHOWN}
    if not after:
        return studied.ABSENT
    before = {name: {seed: begun(name, seed) for seed in each} for name, each in after.items()}
    added = estimate_means(
        {name: [value - before[name][seed] for seed, value in each.items()] for name, each in after.items()}
    )
    rows = [
        [f"`{name}`", studied.mean(before[name], 2), studied.mean(after[name], 2), studied.told(added[name], digits=2)]
        for name in SHOWN
        if name in after
    ]
    return tables.table(["encoding", "before", "after", "added"], rows)
