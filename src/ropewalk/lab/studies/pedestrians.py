"""Does an encoding help detection, and does detection converge sooner with it? Penn-Fudan: pedestrians in 170 street
scenes.

Part `backbones` trains a ViT with each encoding to classify Imagenette at 160 pixels, with three seeds. Most of these
runs are those of the study of equivariance on photographs, and are not repeated. Part `masks` initializes a detector
from each at 320 pixels: boxes and masks of pedestrians, with a hundred images in training. Average precision is measured
often, which gives the number of steps to a level of precision: a popular article reports that detection converges 29 %
sooner with one encoding. Forty test images have little statistical power.
"""

from typing import Any

from ropewalk.lab.encoding_spec import EncodingSpec
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.studies.equivariance import EQUIVARIANCE_ENCODINGS as NAMED
from ropewalk.lab.studies.equivariance import IMAGENETTE_STUDY
from ropewalk.lab.studies.study import Study, StudyPart

PEDESTRIAN_NAMES = ("none", "learned-ape", "axial", "mixed", "spherical", "liere-8", "comrope-ld-8")
PEDESTRIAN_ENCODINGS: dict[str, EncodingSpec] = {name: NAMED[name] for name in PEDESTRIAN_NAMES}
PEDESTRIAN_SEEDS = (0, 1, 2)
_BASE = RECIPES["penn-fudan"]
_CLASSES: dict[str, Any] = {name: each for name, each in vars(IMAGENETTE_STUDY.base).items() if each != getattr(_BASE, name)}

PEDESTRIANS_STUDY = Study(
    name="pedestrians",
    question="Does an encoding improve detection, and how early in training?",
    base=_BASE,
    encodings=PEDESTRIAN_ENCODINGS,
    parts={
        "backbones": StudyPart(
            "Ten classes of photographs.", PEDESTRIAN_NAMES, seeds=PEDESTRIAN_SEEDS, settings=_CLASSES, probed=False
        ),
        "masks": StudyPart(
            "Boxes and masks of pedestrians, initialized from these.",
            PEDESTRIAN_NAMES,
            seeds=PEDESTRIAN_SEEDS,
            settings={"task": "masks", "every": 3},
            after="backbones",
        ),
    },
)
