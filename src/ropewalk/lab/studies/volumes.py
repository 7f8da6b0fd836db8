"""Which encodings carry over to three axes, and to finer grids? ModelNet10: furniture as occupancy grids.

`half` trains at 15³, 125 tokens, and probes ask for other grids up to twice as fine: 30³ is what the file has, with patches
that were never seen so close, and 1,000 tokens. `whole` trains there. All encodings have the same weights at the start, the
same data in the same order, and the same span: fastest channels turn by as much across the volume.

Of M-RoPE's pairs, time has the fastest and columns the slowest, as in its paper; `mrope-alternating` deals them out in turn.

The file has repeats: of 3,991 volumes to train on, 191 are others byte for byte, and 72 of 908 that are tested on are among
them, 65 with the same label. Of 398 that validate, and that probes ask about, 23, 35 and 27 are trained on with the seeds 0,
1 and 2. All encodings meet the same ones: accuracies are too high by what they were seen, and compare as they are.
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
        "half": StudyPart("Trained at 15³, asked at other sizes up to 30³.", tuple(VOLUME_MAIN_ENCODINGS), seeds=(0, 1, 2)),
        "whole": StudyPart("Trained at 30³.", tuple(VOLUME_MAIN_ENCODINGS), settings=_WHOLE),
        "also": StudyPart("Other encodings, once each, at 15³.", tuple(VOLUME_EXTRA_ENCODINGS)),
    },
)
