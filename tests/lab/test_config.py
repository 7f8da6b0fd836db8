"""Settings: those that cannot be meant are refused, and equal ones have one name."""

import pytest

from ropewalk.lab.config import Config
from ropewalk.lab.recipes import RECIPES


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clip": -1}, r"clip.*0, got -1"),
        ({"clip": 0}, "clip must be above 0"),
        ({"learning_rate": -1.0}, r"learning_rate.*0"),
        ({"learning_rate": float("inf")}, r"learning_rate.*0.* finite, got inf"),
        ({"checkpoint": float("inf")}, r"checkpoint must be 0 or more and finite, got inf"),
        ({"checkpoint": float("nan")}, r"checkpoint must be 0 or more and finite, got nan"),
        ({"layer_scale": float("nan")}, r"layer_scale must be finite, got nan"),
        ({"ema": 2}, r"ema.*0.*1, got 2"),
        ({"weight_decay": -1}, r"weight_decay.*0"),
        ({"warmup": -20}, "warmup must be 0 or more"),
        ({"mixup": float("nan")}, "mixup must be 0 or more"),
        ({"checkpoint": -1}, r"checkpoint.*0"),
        ({"fraction": 0}, "fraction must be above 0"),
        ({"batch": 0}, "batch must be 1 or more"),
        ({"epochs": 2.5}, r"epochs.*got 2.5"),
        ({"task": "boxes"}, r"task 'boxes'.*detect, masks"),
        ({"pool": "max"}, r"pool.*got 'max'"),
        ({"span": "wide"}, r"span.*got 'wide'"),
        ({"size": 8}, "size must be whole numbers separated by commas or none, got 8"),
        ({"options": 3}, "options must be a JSON object, got 3"),
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


def test_a_patch_that_is_as_long_along_all_axes_is_one_number():
    one, two, three = (Config(size=(32, 48), patch=patch) for patch in (16, (16, 16), (16, 8)))
    assert one == two
    assert (one.name, one.patch) == (two.name, 16)
    assert three.patch == (16, 8)
    assert three.name != one.name
    assert Config(size=(8, 32, 48), patch=(4, 4, 4)).name == Config(size=(8, 32, 48), patch=4).name


@pytest.mark.parametrize("size", [None, (32, 48)])
def test_a_patch_for_other_axes_stays_and_is_refused_where_it_is_used(size):
    """What the data have is not known here, and a patch of a volume is none of an image."""
    assert Config(size=size, patch=(4, 4, 4)).patch == (4, 4, 4)


def test_no_head_is_the_linear_one():
    linear, none = (Config(task="segment", head=head) for head in ("linear", None))
    assert linear == none
    assert linear.name == none.name != Config(task="segment", head="pyramid").name


def test_where_things_lie_and_how_often_they_are_kept_is_not_in_the_name():
    base = RECIPES["digits"]
    for other in ({"root": "elsewhere"}, {"workers": 7}, {"checkpoint": 0.0}):
        assert Config.of(base.document() | other).name == base.name
