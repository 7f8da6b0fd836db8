"""Models that are initialized from the weights of another run.

All weights but those of the encoding must fit. The encoding's weights are copied if it is the same, or for parts of a
chain that are the same; all others keep their random initialization. So a model that was trained with a learned table can
be fine-tuned with this table and, beside it, generators that are zero: at first it computes what the other computed.

A model that predicts boxes, masks or the classes of pixels copies the ViT of a run that classifies, without its head. Its
ViT is built like that of the run: the encoding has the same grid as reference, hence the same frequencies and the same
table, whatever the span. Images of another size are another grid in the same coordinates: a rotation differs by the same
angle from patch to patch, to the precision with which the coordinates of its paper keep distances (see
`ropewalk.positions.grid`), and a learned table, which ends with its grid, is interpolated. Images are normalized as in
that run.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.factory import Chained, find
from ropewalk.lab.config import Config
from ropewalk.lab.model_building import VIT_SETTINGS, BackboneOrigin
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.task_types import find_task
from ropewalk.models import LM, ViT

if TYPE_CHECKING:
    from ropewalk.lab.timm_model import TimmModel
    from ropewalk.lab.vision_heads.detector import ViTDetector
    from ropewalk.lab.vision_heads.segmenter import ViTSegmenter


BACKBONE_FIELDS = tuple(name for name in VIT_SETTINGS if name not in ("drop_path", "dropout"))
"""Settings of a ViT that decide the shapes of its weights."""


def load_origin(config: Config) -> BackboneOrigin | None:
    """The origin of a run's ViT, if it is initialized from a run, whose ViT must be the same."""
    if config.start_path is None:
        return None
    run = RunFolder.at(config.start_path)
    facts = _check_origin_run(config, run)
    drawn = BackboneOrigin(tuple(facts["size"]), tuple(facts["mean"]), tuple(facts["std"]), run.config.seed)
    found = BackboneOrigin.from_facts(facts) or drawn
    return found if config.encoding == run.config.encoding else replace(found, seed=config.seed)


def _check_origin_run(config: Config, run: RunFolder) -> Mapping[str, Any]:
    """The facts of a run, after a check that its ViT is that of these settings."""
    if find_task(run.config).sample != "image" or run.config.model:
        raise ValueError(f"a ViT on images can be initialized from a run of our own ViT on images only; {run.path} is none")
    alike = (*BACKBONE_FIELDS, "options", "span") if config.encoding == run.config.encoding else BACKBONE_FIELDS
    for name in alike:
        if (own := getattr(config, name)) != (theirs := getattr(run.config, name)):
            what = f"{name} of {config.encoding}" if name in ("options", "span") else name
            raise ValueError(f"{what} must be that of {run.path}, whose weights are copied: {theirs}, got {own}")
    facts: Mapping[str, Any] = run.load_weights()[1]["data"]
    if facts["channels"] != 3 or len(facts["size"]) != 2:
        came = f"{facts['channels']} channels of {' × '.join(map(str, facts['size']))}"
        raise ValueError(f"a ViT on images can be initialized from one on images of three channels; {run.path} has {came}")
    return facts


TrainableModel: TypeAlias = "ViT | LM | TimmModel | ViTDetector | ViTSegmenter"


def initialize_from_run(model: TrainableModel, run: RunFolder) -> None:
    """Copy the weights of a finished run, as they were evaluated, into a model."""
    if run.result() is None:
        raise ValueError(f"a run can be initialized from a finished run only; {run.path} has no result.json")
    body, apart = select_target_module(model, run.config)
    weights, own = run.load_weights()[0], find_encoding_prefix(body)
    kept = {name: value for name, value in body.state_dict().items() if name.startswith((own, *apart))}
    absent: set[str] = getattr(body, "absent_tensors", set())
    others = {name: value for name, value in weights.items() if not name.startswith((own, *apart)) and name not in absent}
    given = {name.removeprefix(own): value for name, value in weights.items() if name.startswith(own)}
    taken = match_encoding_tensors(body.encoding, run.config, given)
    try:
        body.load_state_dict(others | kept | {own + name: value for name, value in taken.items()})
    except RuntimeError as error:
        raise ValueError(f"the weights of {run.path} do not fit these settings: {error}") from error


def select_target_module(model: TrainableModel, config: Config) -> tuple[TrainableModel, tuple[str, ...]]:
    """The part of a model that gets the weights of a run, and prefixes of weights that are not copied."""
    body = getattr(model, "backbone", None)
    return (body, ("head.",)) if isinstance(body, ViT) and find_task(config).name == "classify" else (model, ())


def find_encoding_prefix(model: TrainableModel) -> str:
    """Prefix of the names of the encoding's tensors."""
    return next(f"{name}." for name, module in model.named_modules() if module is model.encoding)


def match_encoding_tensors(encoding: Encoding, config: Config, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a run's encoding that this encoding has too, with the same name and shape, by their names in it.

    Parts of a chain are matched in order, each once.
    """
    found, left = dict[str, Tensor](), list_encoding_parts(encoding)
    for place, name in list_part_names(config):
        theirs = {rest.removeprefix(place): value for rest, value in given.items() if rest.startswith(place)}
        for where, own in left:
            if own.name == name and _get_shapes(own.state_dict()) == _get_shapes(theirs):
                found |= {where + rest: value for rest, value in theirs.items()}
                left = [each for each in left if each[0] != where]
                break
    return found


def list_encoding_parts(encoding: Encoding) -> list[tuple[str, Encoding]]:
    """The encoding, or the parts of a chain, with the prefixes of their tensors."""
    if isinstance(encoding, Chained):
        return [(f"members.{i}.", part) for i, part in enumerate(encoding.members) if isinstance(part, Encoding)]
    return [("", encoding)]


def list_part_names(config: Config) -> list[tuple[str, str]]:
    """Names of the encoding of a run, or of the parts of its chain, with the prefixes of their tensors."""
    if config.encoding != Chained.name:
        return [("", find(config.encoding).name)]
    return [(f"members.{i}.", find(part["name"]).name) for i, part in enumerate(config.options["parts"])]


def _get_shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}
