"""A run that begins with the weights of another.

All weights but those of the encoding must fit. The encoding's are taken over where it is the same, or where parts of a chain
are; others stay as they were drawn. So a model that was trained with a learned table goes on with that and, beside it, with
generators that are zero: it begins where the other ended.

A model of a dense task takes the ViT of a run that finds classes, without its head; `dense.origin` says how it is built.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from ropewalk.encoding import Encoding
from ropewalk.factory import Chained, find
from ropewalk.lab.config import Config
from ropewalk.lab.store import Run
from ropewalk.models import LM, ViT

if TYPE_CHECKING:
    from ropewalk.lab.dense.detector import Detector
    from ropewalk.lab.dense.segmenter import Segmenter
    from ropewalk.lab.hosting import Hosted

Model: TypeAlias = "ViT | LM | Hosted | Detector | Segmenter"


def begin(model: Model, run: Run) -> None:
    """Give a model the weights of a run that is done, as they were judged."""
    if run.result() is None:
        raise ValueError(f"a run can begin from one that is done alone, and {run.path} has no result.json")
    body, apart = body_of(model, run.config)
    weights, own = run.judged()[0], prefix(body)
    kept = {name: value for name, value in body.state_dict().items() if name.startswith((own, *apart))}
    others = {name: value for name, value in weights.items() if not name.startswith((own, *apart))}
    given = {name.removeprefix(own): value for name, value in weights.items() if name.startswith(own)}
    taken = matching(body.encoding, run.config, given)
    try:
        body.load_state_dict(others | kept | {own + name: value for name, value in taken.items()})
    except RuntimeError as error:
        raise ValueError(f"the weights of {run.path} do not fit these settings: {error}") from error


def body_of(model: Model, config: Config) -> tuple[Model, tuple[str, ...]]:
    """What of a model takes the weights of a run with these settings, and how names of those begin that it does not take."""
    body = getattr(model, "backbone", None)
    return (body, ("head.",)) if isinstance(body, ViT) and config.task is None else (model, ())


def prefix(model: Model) -> str:
    """How names of the encoding's tensors begin."""
    return next(f"{name}." for name, module in model.named_modules() if module is model.encoding)


def matching(encoding: Encoding, config: Config, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the tensors of a run's encoding, those that this one has too, of the same name and shape, by their names in it.

    Parts of a chain are matched in their order, each once.
    """
    found, left = dict[str, Tensor](), parts(encoding)
    for place, name in named(config):
        theirs = {rest.removeprefix(place): value for rest, value in given.items() if rest.startswith(place)}
        for where, own in left:
            if own.name == name and _shapes(own.state_dict()) == _shapes(theirs):
                found |= {where + rest: value for rest, value in theirs.items()}
                left = [each for each in left if each[0] != where]
                break
    return found


def parts(encoding: Encoding) -> list[tuple[str, Encoding]]:
    """The encoding, or those that are chained, with the beginning of the names of their tensors."""
    if isinstance(encoding, Chained):
        return [(f"members.{i}.", part) for i, part in enumerate(encoding.members) if isinstance(part, Encoding)]
    return [("", encoding)]


def named(config: Config) -> list[tuple[str, str]]:
    """The same of a run, by the names of its encodings."""
    if config.encoding != Chained.name:
        return [("", find(config.encoding).name)]
    return [(f"members.{i}.", find(part["name"]).name) for i, part in enumerate(config.options["parts"])]


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}
