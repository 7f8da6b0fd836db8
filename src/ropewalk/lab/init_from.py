"""The ViT of a dense task, and the run that it goes on from, if there is one.

A ViT that begins with the weights of a run is built as that one was: its encoding has the grid of that run as its yardstick,
hence the same frequencies, whatever the span makes of them, and the same table. Images of another size are then another
grid of the same places: a rotation turns as far from patch to patch as before, to the precision with which the coordinates
of its paper keep distances (see `ropewalk.positions.grid`), and a learned table, which ends with its grid, is read at places
squeezed into it, which resizes it. Images are normalised as in that run.

A run that begins with the weights of another.

All weights but those of the encoding must fit. The encoding's are taken over where it is the same, or where parts of a chain
are; others stay as they were drawn. So a model that was trained with a learned table goes on with that and, beside it, with
generators that are zero: it begins where the other ended.

A model of a dense task takes the ViT of a run that finds classes, without its head; `dense.origin` says how it is built.
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
"""Settings of a ViT that weights are made for."""


def load_origin(config: Config) -> BackboneOrigin | None:
    """That of a run, if it begins with the weights of another whose ViT is the same."""
    if config.start_path is None:
        return None
    run = RunFolder.at(config.start_path)
    facts = _check_origin_run(config, run)
    drawn = BackboneOrigin(tuple(facts["size"]), tuple(facts["mean"]), tuple(facts["std"]), run.config.seed)
    found = BackboneOrigin.from_facts(facts) or drawn
    return found if config.encoding == run.config.encoding else replace(found, seed=config.seed)


def _check_origin_run(config: Config, run: RunFolder) -> Mapping[str, Any]:
    """The facts of a run, if its ViT is that of these settings."""
    if find_task(run.config).sample != "image" or run.config.model:
        raise ValueError(f"a ViT on images can be initialized from a run of our own ViT on images only; {run.path} is none")
    alike = (*BACKBONE_FIELDS, "options", "span") if config.encoding == run.config.encoding else BACKBONE_FIELDS
    for name in alike:
        if (own := getattr(config, name)) != (theirs := getattr(run.config, name)):
            told = f"{name} of {config.encoding}" if name in ("options", "span") else name
            raise ValueError(f"{told} must be that of {run.path}, whose weights it begins with: {theirs}, got {own}")
    facts: Mapping[str, Any] = run.load_weights()[1]["data"]
    if facts["channels"] != 3 or len(facts["size"]) != 2:
        came = f"{facts['channels']} channels of {' × '.join(map(str, facts['size']))}"
        raise ValueError(f"a ViT on images goes on from one on images of three channels, and {run.path} has {came}")
    return facts


TrainableModel: TypeAlias = "ViT | LM | TimmModel | ViTDetector | ViTSegmenter"


def initialize_from_run(model: TrainableModel, run: RunFolder) -> None:
    """Give a model the weights of a run that is done, as they were judged."""
    if run.result() is None:
        raise ValueError(f"a run can begin from one that is done alone, and {run.path} has no result.json")
    body, apart = select_target_module(model, run.config)
    weights, own = run.load_weights()[0], find_encoding_prefix(body)
    kept = {name: value for name, value in body.state_dict().items() if name.startswith((own, *apart))}
    others = {name: value for name, value in weights.items() if not name.startswith((own, *apart))}
    given = {name.removeprefix(own): value for name, value in weights.items() if name.startswith(own)}
    taken = match_encoding_tensors(body.encoding, run.config, given)
    try:
        body.load_state_dict(others | kept | {own + name: value for name, value in taken.items()})
    except RuntimeError as error:
        raise ValueError(f"the weights of {run.path} do not fit these settings: {error}") from error


def select_target_module(model: TrainableModel, config: Config) -> tuple[TrainableModel, tuple[str, ...]]:
    """What of a model takes the weights of a run with these settings, and how names of those begin that it does not take."""
    body = getattr(model, "backbone", None)
    return (body, ("head.",)) if isinstance(body, ViT) and find_task(config).name == "classify" else (model, ())


def find_encoding_prefix(model: TrainableModel) -> str:
    """How names of the encoding's tensors begin."""
    return next(f"{name}." for name, module in model.named_modules() if module is model.encoding)


def match_encoding_tensors(encoding: Encoding, config: Config, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the tensors of a run's encoding, those that this one has too, of the same name and shape, by their names in it.

    Parts of a chain are matched in their order, each once.
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
    """The encoding, or those that are chained, with the beginning of the names of their tensors."""
    if isinstance(encoding, Chained):
        return [(f"members.{i}.", part) for i, part in enumerate(encoding.members) if isinstance(part, Encoding)]
    return [("", encoding)]


def list_part_names(config: Config) -> list[tuple[str, str]]:
    """The same of a run, by the names of its encodings."""
    if config.encoding != Chained.name:
        return [("", find(config.encoding).name)]
    return [(f"members.{i}.", find(part["name"]).name) for i, part in enumerate(config.options["parts"])]


def _get_shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}
