"""Studies by name: `ropewalk compare --study NAME`."""

from ropewalk.lab.studies.equivariance import EQUIVARIANCE, IMAGENETTE
from ropewalk.lab.studies.pedestrians import PEDESTRIANS
from ropewalk.lab.studies.study import Part as Part
from ropewalk.lab.studies.study import Study as Study
from ropewalk.lab.studies.volumes import VOLUMES

STUDIES: dict[str, Study] = {study.name: study for study in (EQUIVARIANCE, IMAGENETTE, VOLUMES, PEDESTRIANS)}
