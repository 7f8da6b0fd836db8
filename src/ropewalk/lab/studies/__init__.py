"""Registry of studies: `ropewalk study NAME` runs one."""

from ropewalk.lab.studies.degree import DEGREE_STUDY
from ropewalk.lab.studies.equivariance import EQUIVARIANCE_STUDY, IMAGENETTE_STUDY
from ropewalk.lab.studies.pedestrians import PEDESTRIANS_STUDY
from ropewalk.lab.studies.study import Study
from ropewalk.lab.studies.volumes import VOLUMES_STUDY

ALL_STUDIES: dict[str, Study] = {
    study.name: study for study in (EQUIVARIANCE_STUDY, IMAGENETTE_STUDY, VOLUMES_STUDY, PEDESTRIANS_STUDY, DEGREE_STUDY)
}
