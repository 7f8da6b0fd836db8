"""A run in numbers: what is trained, on what, how. Equal settings make equal runs.

Settings that change results name the run, so that the same command finds its own folder and goes on; where data lie, how
often a state is kept, on what device and with how many processes it runs do not.
"""

import dataclasses
import hashlib
import json
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ropewalk import factory
from ropewalk.validation import is_finite_number

UNHASHED_FIELDS = ("root", "workers", "checkpoint")
"""Settings that change nothing of what a run comes to."""
PER_RUN_FIELDS = ("encoding", "options", "seed")
"""Settings in which the runs of a comparison differ."""
HASHED_IF_SET_FIELDS = ("model", "length", "keys", "kv_heads", "start", "task", "head")
"""Settings that not all runs have: where they are None they name no run."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run.

    encoding       The positional encoding, with its `options`; its axes, heads, layers and size come from model and data.
    span           Radians that the fastest channel of the encoding turns across the image at its start, the same for every
                   encoding; None leaves each its own.
    seed           Of the weights, the order of the data, augmentation, dropout.
    data           digits, cifar10, cifar100, mnist, fashion-mnist, a .npz file, or a folder of images or videos; with a
                   `length`, a file of text, or a folder with train.txt and val.txt; with a `task`, a folder of images and
                   what is in them.
    task           What is found in images: detect, boxes around things; masks, their outlines too; segment, the class of
                   each pixel; None, one class.
    head           Of the task segment: linear, or pyramid, which looks at several scales; None is linear.
    root           Where torchvision's data sets lie.
    size           Of the images in training, of clips with the frames first; None is that of the data.
    validation     The share of the training set that is kept for validation, where the data have none of their own.
    fraction       The share of what is left that is trained on.
    length         Bytes of a window of text, from which each next one is to be found; None: images.
    keys           The share of windows of text that tell a key of five digits and ask for it later; None: none.
    model          timm:NAME, a vision transformer of timm's; None: our own. timm's takes patch, drop_path and dropout. Its
                   width, depth, heads, ratio, pool and layer_scale are its own: those here, which recipes set, are not
                   looked at. Its registers are too, and must be 0 here.
    patch          The side of a patch, or one for each axis: 2,16,16 is a tubelet of two frames.
    kv_heads       Heads of keys and values, for text; None: as many as of queries.
    ratio          Of the perceptron's width to the model's.
    pool           What is classified: the mean of the patches, or a class token.
    layer_scale    The start of learned gains on branches.
    start          The folder of a run that is done, whose weights it begins with; its name counts, not its place. {seed} in
                   it is the run's own.
    batch          Images or windows of text in a step, of all processes together.
    learning_rate  At its highest, after the warm-up; then it falls to zero as a cosine.
    warmup         Epochs in which it rises, from zero.
    clip           The largest norm of the gradient.
    ema            The decay of a moving average of the weights, which is then what is evaluated.
    loss           Cross entropy of softmax, or binary cross entropy of each class, as in DeiT-III.
    augment        flip, turn, crop, resized-crop, three-augment, rand-augment, jitter; `strength` has their options by name.
    perturb        Positions in training: a Gaussian of this deviation, in patches, on each, cut off at half a patch, drawn
                   once a step (or `per_sample`). `shift` moves all alike, up to so many images along each axis; `rescale`
                   stretches by up to this factor.
    precision      Of the model: float32, or bfloat16 by autocast.
    every          Epochs between validations.
    checkpoint     Seconds between checkpoints at most, which are written after validations: sooner where writing one takes
                   less than a twentieth of the time. The last state is always kept.
    """

    encoding: str = "mixed"
    options: dict[str, Any] = field(default_factory=dict)
    span: float | None = None
    seed: int = 0

    task: typing.Literal["detect", "masks", "segment"] | None = None
    head: typing.Literal["linear", "pyramid"] | None = None
    data: str = "digits"
    root: str = "data"
    size: tuple[int, ...] | None = None
    validation: float = 0.1
    fraction: float = 1.0
    workers: int = 4
    length: int | None = None
    keys: float | None = None

    model: str | None = None
    patch: int | tuple[int, ...] = 4
    width: int = 192
    depth: int = 12
    heads: int = 4
    kv_heads: int | None = None
    ratio: float = 4.0
    pool: typing.Literal["mean", "class"] = "mean"
    registers: int = 0
    layer_scale: float | None = None
    drop_path: float = 0.0
    dropout: float = 0.0

    start: str | None = None
    epochs: int = 50
    batch: int = 1024
    optimiser: typing.Literal["adamw", "lamb"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warmup: float = 5.0
    clip: float | None = 1.0
    ema: float | None = None
    loss: typing.Literal["softmax", "binary"] = "softmax"
    smoothing: float = 0.0
    augment: tuple[str, ...] = ("flip", "crop")
    strength: dict[str, Any] = field(default_factory=dict)
    mixup: float = 0.0
    cutmix: float = 0.0
    perturb: float = 0.0
    shift: float = 0.0
    rescale: float = 1.0
    per_sample: bool = False
    precision: typing.Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    every: int = 1
    checkpoint: float = 30.0

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            _check_type(each.name, value, hints[each.name])
            if type(value) is int and not _accepts_integer(value, hints[each.name]):
                object.__setattr__(self, each.name, float(value))  # equal settings have one spelling
        for name in ("epochs", "batch", "depth", "heads", "width", "every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        sides = (self.patch,) if isinstance(self.patch, int) else self.patch
        if not sides or min(sides) < 1:
            raise ValueError(f"patch must be 1 or more, or one such number for each axis, got {self.patch}")
        for name in ("length", "kv_heads"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be none, or 1 or more, got {getattr(self, name)}")
        for name in ("learning_rate", "clip", "rescale", "ratio", "span"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, got {value}")
        for name in ("warmup", "weight_decay", "mixup", "cutmix", "perturb", "shift"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise ValueError(f"ema must be from 0 up to 1, got {self.ema}")
        for name in ("validation", "dropout", "drop_path", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 up to 1, got {getattr(self, name)}")
        if not self.checkpoint >= 0:
            raise ValueError(f"checkpoint must be 0 or more seconds, got {self.checkpoint}")
        for name in ("fraction", "keys"):
            if (value := getattr(self, name)) is not None and not 0 < value <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, got {value}")
        for name in ("keys", "kv_heads"):
            if self.length is None and getattr(self, name) is not None:
                raise ValueError(f"{name} is of text: without a length it must be none, got {getattr(self, name)}")
        if self.task is not None and self.length is not None:
            raise ValueError(f"a task is of images, and a length of text: got {self.task} and {self.length}")
        if self.head is not None and self.task != "segment":
            raise ValueError(f"head is of the task segment: without it, it must be none, got {self.head}")
        factory.find(self.encoding)
        # Equal settings have one spelling.
        if self.head == "linear":
            object.__setattr__(self, "head", None)
        if self.size is not None and sides == sides[:1] * len(self.size):
            object.__setattr__(self, "patch", sides[0])

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """From what `document` gave."""
        known = {each.name for each in dataclasses.fields(cls)}
        if unknown := sorted(set(document) - known):
            raise ValueError(f"no setting is named {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        lists: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
        }
        return cls(**lists)

    @property
    def name(self) -> str:
        """Of its folder: the encoding, the seed, and a hash of all other settings that change results."""
        said = {name: value for name, value in self.document().items() if name not in (*UNHASHED_FIELDS, "seed")}
        said = {name: value for name, value in said.items() if value is not None or name not in HASHED_IF_SET_FIELDS}
        if self.start is not None:
            said["start"] = Path(self.start).name
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
        return f"{self.encoding.replace(':', '.')}-seed{self.seed}-{digest[:10]}"

    def validates_at(self, epoch: int) -> bool:
        """Whether there is a validation after this epoch, counted from one."""
        return epoch in self.validation_epochs or epoch == self.epochs

    @property
    def validation_epochs(self) -> range:
        """Epochs before the last one after which there is a validation."""
        return range(self.every, self.epochs, self.every)

    @property
    def start_path(self) -> Path | None:
        """The folder of the run whose weights it begins with."""
        return None if self.start is None else Path(self.start.replace("{seed}", str(self.seed)))


def _check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value of another type; whole numbers are numbers."""
    if not _matches_type(value, hint):
        *others, last = sorted(_describe_type(hint), key="none".__ne__)
        raise ValueError(f"{name} must be {' or '.join([', '.join(others), last] if others else [last])}, got {value!r}")


def _describe_type(hint: Any) -> list[str]:
    """What may be given, in words."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return [str(each) for each in inside]
    if origin is types.UnionType or origin is typing.Union:
        return [word for one in inside for word in _describe_type(one)]
    return ["none" if hint is types.NoneType else str(hint).replace("typing.", "") if inside else hint.__name__]


def _accepts_integer(value: int, hint: Any) -> bool:
    """Whether a whole number is meant, and not any number."""
    return hint is int or int in typing.get_args(hint)


def _matches_type(value: Any, hint: Any) -> bool:
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in inside
    if origin is types.UnionType or origin is typing.Union:
        return any(_matches_type(value, one) for one in inside)
    if origin is tuple:
        return isinstance(value, tuple) and all(_matches_type(each, inside[0]) for each in value)
    if hint is float:
        return isinstance(value, float) or is_finite_number(value)
    plain = origin or hint
    return isinstance(value, plain) and (plain is bool or not isinstance(value, bool))
