"""Settings: those that cannot be meant are refused, and equal ones have one name."""

import pytest

from ropewalk.lab.config import Config
from ropewalk.lab.recipes import RECIPES


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clip": -1}, "clip must be above 0, got -1"),
        ({"clip": 0}, "clip must be above 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0"),
        ({"learning_rate": float("inf")}, "learning_rate must be above 0"),
        ({"ema": 2}, "ema must be from 0 up to 1, got 2"),
        ({"weight_decay": -1}, "weight_decay must be 0 or more"),
        ({"warmup": -20}, "warmup must be 0 or more"),
        ({"mixup": float("nan")}, "mixup must be 0 or more"),
        ({"checkpoint": -1}, "checkpoint must be 0 or more seconds"),
        ({"fraction": 0}, "fraction must be above 0"),
        ({"batch": 0}, "batch must be 1 or more"),
        ({"epochs": 2.5}, "epochs must be int"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Config(**settings)


def test_equal_settings_have_one_name():
    whole, fraction = (Config(warmup=value, span=value, clip=value) for value in (2, 2.0))
    assert whole == fraction
    assert whole.name == fraction.name
    assert Config.of(whole.document()).name == whole.name
    assert Config(warmup=2.5).name != Config(warmup=2).name
    assert type(Config(batch=8).batch) is int


def test_where_things_lie_and_how_often_they_are_kept_is_not_in_the_name():
    base = RECIPES["digits"]
    for other in ({"root": "elsewhere"}, {"workers": 7}, {"checkpoint": 0.0}):
        assert Config.of(base.document() | other).name == base.name
