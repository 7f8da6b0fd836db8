"""All settings of a run, and what is known about each: its help, its range, and the tasks it applies to.

    config = Config(encoding="liere", data="cifar100", epochs=50)
    config.name             # liere-seed0-<hash of the settings that change results>: the name of the run directory
    describe_settings()     # name, group, type, default and help of every setting

A setting is one field of `Config`, declared with `setting(...)`. Everything else that is known about settings is derived
from these declarations. This module imports no torch, so that the command line describes settings without waiting for it.
"""

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import ropewalk
from ropewalk.lab.task_types import DEFAULT_TASK, TASK_TYPES, find_task
from ropewalk.validation import check_choice, is_finite_number

KNOWN_ENCODINGS = ("mixed", "rope")
"""Encodings of recipes, which are known to exist: looking up any other name imports torch."""


@dataclass(frozen=True, kw_only=True)
class SettingRules:
    """What is known about a setting.

    group        Heading under which it is listed.
    help         What it is, in one or two sentences.
    hashed       Whether it is part of the run's name; "if set": only if it is not None, so that older names stay.
    per_run      Whether the runs of one comparison differ in it.
    needs        Feature of a task without which it has no effect; None: it applies to every task.
    unused       Value that it must have where it has no effect; by default its default.
    replaced_by  Setting that makes this one meaningless when set.
    least, above, most, below  Bounds of numbers, and of each number in a tuple.
    """

    group: str
    help: str
    hashed: bool | typing.Literal["if set"] = True
    per_run: bool = False
    needs: str | None = None
    unused: Any
    replaced_by: str | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    @property
    def bounds(self) -> str:
        """The range in words."""
        limits = {"{} or more": self.least, "above {}": self.above, "at most {}": self.most, "below {}": self.below}
        return " and ".join(words.format(value) for words, value in limits.items() if value is not None)

    def allows(self, value: float) -> bool:
        """Whether a number is finite and in range."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
            and math.isfinite(value)
        )


def setting(default: Any, **rules: Any) -> Any:
    """Declare a setting: its default, and the fields of `SettingRules` by name."""
    metadata = {"rules": SettingRules(**{"unused": default} | rules)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run. `describe_settings()` and `ropewalk list --settings` explain each of them."""

    encoding: str = setting(
        "mixed", group="Encoding", per_run=True, help="The positional encoding: a name of `ropewalk list`, or module:Class."
    )
    options: dict[str, Any] = setting(
        {}, group="Encoding", per_run=True,
        help="Options of the encoding by name. Its axes, heads, layers and size come from the model and the data.",
    )  # fmt: skip
    span: float | None = setting(
        None, group="Positions", above=0,
        help="Radians that the fastest channel of the encoding rotates across the image at initialization, the same for "
        "every encoding. None: each encoding's own.",
    )  # fmt: skip
    seed: int = setting(
        0, group="Training", per_run=True, help="Seed of the weights, the order of the data, augmentation and dropout."
    )

    task: str | None = setting(
        None, group="Data", hashed="if set", help=f"What is trained: {', '.join(TASK_TYPES)}. None: {DEFAULT_TASK}, or text "
        "if there is a length.",
    )  # fmt: skip
    head: typing.Literal["linear", "pyramid"] | None = setting(
        None, group="Model", hashed="if set", needs="segmentation head",
        help="Head of the task segment: linear, or pyramid, which pools over several scales. None: linear.",
    )  # fmt: skip
    data: str = setting(
        "digits", group="Data",
        help="digits, cifar10, cifar100, mnist, fashion-mnist, a .npz file, or a folder of images or videos. With a length: "
        "a text file, or a folder with train.txt and val.txt. With a task: a folder of images and annotations.",
    )  # fmt: skip
    root: str = setting("data", group="Data", hashed=False, help="Folder of torchvision's datasets.")
    size: tuple[int, ...] | None = setting(
        None, group="Data", needs="images", least=1,
        help="Size of the images in training, of clips with the frames first. None: that of the data.",
    )  # fmt: skip
    validation: float = setting(
        0.1, group="Data", needs="images", least=0, below=1,
        help="Share of the training set that is held out for validation, if the data have no validation set.",
    )  # fmt: skip
    fraction: float = setting(
        1.0, group="Data", above=0, most=1, help="Share of the remaining training set that is trained on."
    )
    workers: int = setting(4, group="Data", hashed=False, least=0, help="Processes that read files.")
    length: int | None = setting(
        None, group="Data", hashed="if set", needs="text", least=1,
        help="Bytes of a window of text, of which every next byte is predicted. None: images.",
    )  # fmt: skip
    keys: float | None = setting(
        None, group="Data", hashed="if set", needs="text", above=0, most=1,
        help="Share of windows that state a key of five digits and ask for it later. None: no window.",
    )  # fmt: skip

    model: str | None = setting(
        None, group="Model", hashed="if set", needs="timm models",
        help="timm:NAME, a vision transformer of timm, built with this patch, drop_path and dropout. None: our own.",
    )  # fmt: skip
    drop_table: bool | None = setting(
        None, group="Model", hashed="if set", needs="timm models",
        help="Whether the absolute table of a timm model is left out, also where the model is initialized from one that has "
        "it. None: it stays.",
    )  # fmt: skip
    patch: int | tuple[int, ...] = setting(
        4, group="Model", needs="images", least=1,
        help="Side of a patch, or one number for each axis: 2,16,16 is a tubelet of two frames.",
    )  # fmt: skip
    width: int = setting(192, group="Model", replaced_by="model", least=1, help="Channels of the model.")
    depth: int = setting(12, group="Model", replaced_by="model", least=1, help="Number of layers.")
    heads: int = setting(4, group="Model", replaced_by="model", least=1, help="Number of attention heads.")
    kv_heads: int | None = setting(
        None, group="Model", hashed="if set", needs="text", least=1,
        help="Heads of keys and values. None: as many as of queries.",
    )  # fmt: skip
    ratio: float = setting(
        4.0, group="Model", replaced_by="model", above=0, help="Hidden channels of the MLP, as a multiple of the width."
    )
    pool: typing.Literal["mean", "class"] = setting(
        "mean", group="Model", needs="images", replaced_by="model",
        help="What is classified: the mean of the patches, or a class token.",
    )  # fmt: skip
    registers: int = setting(
        0, group="Model", needs="images", replaced_by="model", least=0,
        help="Register tokens. A timm model has its own: 0 there.",
    )  # fmt: skip
    layer_scale: float | None = setting(
        None, group="Model", needs="images", replaced_by="model",
        help="Initial value of learned gains on the branches of a block. None: no gains.",
    )  # fmt: skip
    drop_path: float = setting(
        0.0, group="Model", needs="images", least=0, below=1, help="Probability that a branch of a block is dropped."
    )
    dropout: float = setting(0.0, group="Model", needs="images", least=0, below=1, help="Dropout probability.")

    start: str | None = setting(
        None, group="Training", hashed="if set",
        help="Directory of a finished run whose weights the model is initialized from; {seed} in it is the run's own seed. "
        "The name of the directory is part of the run's name, its location is not.",
    )  # fmt: skip
    epochs: int = setting(50, group="Training", least=1, help="Passes over the training set.")
    batch: int = setting(
        1024, group="Training", least=1, help="Images or windows of text in a step, of all processes together."
    )
    optimiser: typing.Literal["adamw", "lamb"] = setting("adamw", group="Training", help="The optimizer.")
    learning_rate: float = setting(
        1e-3, group="Training", above=0, help="Highest learning rate, after the warm-up; it then decays to zero as a cosine."
    )
    encoding_rate: float | None = setting(
        None, group="Training", hashed="if set", above=0,
        help="Factor on the learning rate of the encoding's parameters. None: the rate of all others.",
    )  # fmt: skip
    weight_decay: float = setting(0.05, group="Training", least=0, help="Weight decay.")
    warmup: float = setting(5.0, group="Training", least=0, help="Epochs in which the learning rate rises from zero.")
    clip: float | None = setting(1.0, group="Training", above=0, help="Largest norm of the gradient. None: no clipping.")
    ema: float | None = setting(
        None, group="Training", least=0, below=1,
        help="Decay of a moving average of the weights, which is then evaluated in their place. None: no average.",
    )  # fmt: skip
    loss: typing.Literal["softmax", "binary"] = setting(
        "softmax", group="Training", needs="soft targets",
        help="Cross entropy of the softmax, or binary cross entropy of each class, as in DeiT-III.",
    )  # fmt: skip
    smoothing: float = setting(0.0, group="Training", needs="label smoothing", least=0, below=1, help="Label smoothing.")
    augment: tuple[str, ...] = setting(
        ("flip", "crop"), group="Augmentation", needs="images", unused=(),
        help="Augmentation: flip, turn, crop, resized-crop, three-augment, rand-augment, jitter.",
    )  # fmt: skip
    strength: dict[str, Any] = setting(
        {}, group="Augmentation", needs="augmentation options", help="Options of augmentation by name."
    )
    mixup: float = setting(
        0.0, group="Augmentation", needs="soft targets", least=0, help="Parameter of mixup's beta distribution. 0: no mixup."
    )
    cutmix: float = setting(
        0.0,
        group="Augmentation",
        needs="soft targets",
        least=0,
        help="Parameter of CutMix's beta distribution. 0: no CutMix.",
    )
    perturb: float = setting(
        0.0, group="Positions", needs="position augmentation", least=0,
        help="Standard deviation, in patches, of Gaussian noise on the positions in training, truncated at half a patch and "
        "drawn once a step (see per_sample).",
    )  # fmt: skip
    shift: float = setting(
        0.0, group="Positions", needs="position augmentation", least=0,
        help="Largest random offset of all positions in training, in image sizes along each axis.",
    )  # fmt: skip
    rescale: float = setting(
        1.0, group="Positions", needs="position augmentation", above=0,
        help="Largest factor by which positions are rescaled in training.",
    )  # fmt: skip
    per_sample: bool = setting(
        False, group="Positions", needs="position augmentation", help="Draw perturb, shift and rescale for each sample."
    )
    precision: typing.Literal["float32", "bfloat16"] = setting(
        "float32", group="Training", help="Precision of the model: float32, or bfloat16 by autocast."
    )
    compile: bool = setting(False, group="Training", help="Compile the model with torch.compile.")
    every: int = setting(1, group="Training", least=1, help="Epochs between validations.")
    checkpoint: float = setting(
        30.0, group="Training", hashed=False, least=0,
        help="Longest time between checkpoints, in seconds. They are written sooner where writing one takes less than a "
        "twentieth of the time. The last state is always saved.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for name, rules in SETTINGS.items():
            value = getattr(self, name)
            _check_type(name, value, hints[name])
            _check_bounds(name, value, rules)
            if type(value) is int and not _accepts_integer(value, hints[name]):
                object.__setattr__(self, name, float(value))  # equal settings have one spelling
        if self.encoding not in KNOWN_ENCODINGS and ":" not in self.encoding:
            ropewalk.factory.find(self.encoding)  # module:Class is found where it is built: runs are read without the module
        if (task := find_task(self)).implied_by and getattr(self, task.implied_by) is None:
            raise ValueError(f"the task {task.name} needs the setting {task.implied_by}, got {task.implied_by}=None")
        check_unused_settings(self, [name for name, rules in SETTINGS.items() if rules.hashed == "if set"])
        # Equal settings have one spelling.
        if task.implied_by or task.name == DEFAULT_TASK:
            object.__setattr__(self, "task", None)
        if self.head == "linear":
            object.__setattr__(self, "head", None)
        if self.drop_table is False:
            object.__setattr__(self, "drop_table", None)
        if self.encoding_rate == 1:
            object.__setattr__(self, "encoding_rate", None)
        sides = (self.patch,) if isinstance(self.patch, int) else self.patch
        if self.size is not None and sides == sides[:1] * len(self.size):
            object.__setattr__(self, "patch", sides[0])

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """From the values of `document()`."""
        for name in document:
            check_choice("setting", name, SETTINGS)
        lists: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
        }
        return cls(**lists)

    @property
    def name(self) -> str:
        """Name of the run directory: the encoding, the seed, and a hash of all other settings that change results."""
        hashed = {
            name: value
            for name, value in self.document().items()
            if name not in (*UNHASHED_FIELDS, "seed") and (value is not None or name not in HASHED_IF_SET_FIELDS)
        }
        if self.start is not None:
            hashed["start"] = Path(self.start).name
        digest = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()
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
        """Directory of the run whose weights the model is initialized from."""
        return None if self.start is None else Path(self.start.replace("{seed}", str(self.seed)))


SETTINGS: dict[str, SettingRules] = {each.name: each.metadata["rules"] for each in dataclasses.fields(Config)}
UNHASHED_FIELDS = tuple(name for name, rules in SETTINGS.items() if not rules.hashed)
"""Settings that do not change results."""
HASHED_IF_SET_FIELDS = tuple(name for name, rules in SETTINGS.items() if rules.hashed == "if set")
"""Settings that are part of the run's name only if they are not None."""
PER_RUN_FIELDS = tuple(name for name, rules in SETTINGS.items() if rules.per_run)
"""Settings in which the runs of a comparison differ."""


def setting_applies(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting has an effect in runs with these settings."""
    rules = SETTINGS[name]
    if rules.needs is not None and rules.needs not in find_task(settings).features:
        return False
    if rules.replaced_by is not None and settings.get(rules.replaced_by) is not None:
        return False
    return rules.hashed != "if set" or settings[name] is not None


def check_unused_settings(config: Config, names: typing.Iterable[str] = ()) -> None:
    """Refuse settings, all by default, that have no effect on the task of a run but are set."""
    task = find_task(config)
    for name in names or SETTINGS:
        rules, value = SETTINGS[name], getattr(config, name)
        if rules.needs is not None and rules.needs not in task.features and value != rules.unused:
            users = [each.name for each in TASK_TYPES.values() if rules.needs in each.features]
            raise ValueError(
                f"{name} has an effect with the task {' or '.join(users)} only; for the task {task.name} leave it at "
                f"{format_setting_value(rules.unused)}, got {format_setting_value(value)}"
            )


class SettingDescription(NamedTuple):
    """One setting, for people."""

    name: str
    group: str
    type: str
    default: Any
    help: str


def describe_settings() -> list[SettingDescription]:
    """All settings in the order of `Config`."""
    hints, defaults = typing.get_type_hints(Config), Config()
    return [
        SettingDescription(name, rules.group, _join_alternatives(hints[name]), getattr(defaults, name), rules.help)
        for name, rules in SETTINGS.items()
    ]


def format_setting_value(value: Any) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value, default=str) if value else "none"
    return "none" if value is None else str(value)


def list_setting_groups() -> dict[str, tuple[str, ...]]:
    """Names of settings by group."""
    groups = dict.fromkeys(rules.group for rules in SETTINGS.values())
    return {group: tuple(name for name, rules in SETTINGS.items() if rules.group == group) for group in groups}


def _check_bounds(name: str, value: Any, rules: SettingRules) -> None:
    """Refuse numbers that are not finite or out of range, also in tuples, and empty tuples of numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be {rules.bounds}{' and ' if rules.bounds else ''}finite, got {value}")
    if value is None or not (rules.bounds and isinstance(value, int | float | tuple)):
        return
    numbers = value if isinstance(value, tuple) else (value,)
    if not numbers or not all(map(rules.allows, numbers)):
        raise ValueError(f"{name} must be {rules.bounds}, got {format_setting_value(value)}")


def _check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value of another type; whole numbers are accepted as numbers."""
    if not _matches_type(value, hint):
        given = repr(value) if isinstance(value, str) else format_setting_value(value)
        raise ValueError(f"{name} must be {_join_alternatives(hint)}, got {given}")


def _join_alternatives(hint: Any) -> str:
    *others, last = sorted(_describe_type(hint), key="none".__eq__)
    return " or ".join([", ".join(others), last] if others else [last])


def _describe_type(hint: Any) -> list[str]:
    """The alternatives of a type, in words."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return [str(each) for each in inside]
    if origin is types.UnionType or origin is typing.Union:
        return [word for one in inside for word in _describe_type(one)]
    return [_TYPE_WORDS[hint]]


_TYPE_WORDS = {
    types.NoneType: "none",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    tuple[int, ...]: "whole numbers separated by commas",
    tuple[str, ...]: "names separated by commas",
    dict[str, Any]: "a JSON object",
}


def _accepts_integer(value: int, hint: Any) -> bool:
    """Whether the type has whole numbers, not only numbers."""
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
