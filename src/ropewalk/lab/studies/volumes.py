"""Which encodings carry over to three axes, and to finer grids? ModelNet10: furniture as occupancy grids.

Part `half` trains at 15³ voxels, 125 tokens, and probes test other grids up to twice as fine: 30³ is the resolution of
the file, with finer patches than in training, and 1,000 tokens. Part `whole` trains at 30³. All encodings have the same
initial weights, the same data in the same order, and the same span: their fastest channels rotate by the same angle
across the volume.

Of M-RoPE's channel pairs, time has the fastest and columns the slowest, as in its paper; `mrope-alternating` interleaves
them.

The dataset has duplicates: of 3,991 training volumes, 191 are copies of others byte for byte, and 72 of 908 test volumes
are copies of training volumes, 65 with the same label. Of the 398 validation volumes, which probes use, 23, 35 and 27
are in the training set with the seeds 0, 1 and 2. This is the same for all encodings: accuracies are too high, and
differences comparable.
"""

from typing import Any

from ropewalk.lab.encoding_spec import EncodingSpec
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.studies.equivariance import EQUIVARIANCE_ENCODINGS as NAMED
from ropewalk.lab.studies.study import Study, StudyPart

_MAIN = ("none", "learned-ape", "axial", "mixed", "spherical", "liere-8", "comrope-ld-8")
_ALSO = ("sincos", "uniform", "golden", "spherical-symmetric", "string-cayley", "alibi")
VOLUME_MAIN_ENCODINGS: dict[str, EncodingSpec] = {name: NAMED[name] for name in _MAIN} | {"mrope": "mrope"}
VOLUME_EXTRA_ENCODINGS: dict[str, EncodingSpec] = {name: NAMED[name] for name in _ALSO} | {
    "mrope-alternating": "mrope:variant=qwen3-vl"
}
_HALF = RECIPES["modelnet10-half"]
_WHOLE: dict[str, Any] = {name: getattr(RECIPES["modelnet10"], name) for name in ("size", "strength")}

VOLUMES_STUDY = Study(
    name="volumes",
    question="Which encodings carry over to three axes and to finer grids?",
    base=_HALF,
    encodings={**VOLUME_MAIN_ENCODINGS, **VOLUME_EXTRA_ENCODINGS},
    parts={
        "half": StudyPart("Trained at 15³, tested at sizes up to 30³.", tuple(VOLUME_MAIN_ENCODINGS), seeds=(0, 1, 2)),
        "whole": StudyPart("Trained at 30³.", tuple(VOLUME_MAIN_ENCODINGS), settings=_WHOLE),
        "also": StudyPart("Other encodings with one seed, at 15³.", tuple(VOLUME_EXTRA_ENCODINGS)),
    },
)
