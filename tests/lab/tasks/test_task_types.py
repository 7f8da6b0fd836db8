"""Declarations of tasks, settings and probes agree with each other."""

import subprocess
import sys

import pytest

import ropewalk as rw
from ropewalk.lab.compare.plan import plan_comparison
from ropewalk.lab.compare.preflight import check_comparison
from ropewalk.lab.config import (
    KNOWN_ENCODINGS,
    SETTINGS,
    Config,
    check_unused_settings,
    describe_settings,
    list_setting_groups,
    setting_applies,
)
from ropewalk.lab.errors import CommandError
from ropewalk.lab.probes import PROBES, list_task_probes
from ropewalk.lab.recipes import RECIPES
from ropewalk.lab.task_types import TASK_TYPES, find_recorded_metric, find_task, select_metric
from ropewalk.lab.tasks import load_task
from ropewalk.lab.tasks.base import Task

IMPLIED = {"text": {"length": 64}}


def make_config(task):
    return Config(task=task, **IMPLIED.get(task, {}))


@pytest.mark.parametrize("task", TASK_TYPES)
def test_a_task_is_found_and_implemented(task):
    config = make_config(task)
    assert find_task(config) is find_task(config.document()) is TASK_TYPES[task]
    assert select_metric(config.document()) is TASK_TYPES[task].metric
    kind = load_task(config)
    assert all(callable(getattr(kind, name)) for name in vars(Task) if not name.startswith("_") and name != "model")
    assert "cost" in list_task_probes(task)


def test_default_and_implied_tasks_have_one_spelling():
    assert Config(task="classify") == Config()
    assert Config(task="text", length=64) == Config(length=64)
    with pytest.raises(ValueError, match=r"task text needs.*length"):
        Config(task="text")
    with pytest.raises(ValueError, match=r"length.*text.*detect.*got 64"):
        Config(task="detect", length=64)


def test_results_have_the_metric_of_their_task():
    for task in TASK_TYPES.values():
        metrics = [each.metric for each in TASK_TYPES.values()]
        also = [metric.key for metric in metrics if f"test_{metric.key}" in dict(task.metric.secondary)]
        also += ["accuracy"] if task.name == "text" else []
        record = {f"test_{key}": 0.5 for key in (*also, task.metric.key)}
        assert find_recorded_metric(record, "test") is task.metric
    assert find_recorded_metric({"test_loss": 1.0}, "test") is None


def test_features_of_tasks_are_needs_of_settings():
    needed = {rules.needs for rules in SETTINGS.values()} - {None}
    assert needed == set().union(*(each.features for each in TASK_TYPES.values()))


def test_probes_name_tasks():
    assert {task for probe in PROBES.values() for task in probe.tasks} <= set(TASK_TYPES)


def test_settings_are_described():
    described = describe_settings()
    assert [each.name for each in described] == list(SETTINGS)
    assert all(each.help.endswith(".") and each.type and each.group for each in described)
    assert sorted(name for names in list_setting_groups().values() for name in names) == sorted(SETTINGS)


def test_settings_without_effect_are_refused_and_not_shown():
    config = Config(task="detect", mixup=0.5)
    with pytest.raises(ValueError, match=r"mixup.*classify.*detect.*got 0\.5"):
        check_unused_settings(config)
    assert not setting_applies("mixup", config.document())
    assert setting_applies("mixup", Config().document())
    assert not setting_applies("width", Config(model="timm:x").document())
    for recipe in RECIPES.values():
        check_unused_settings(recipe)


def test_names_that_are_not_looked_up_exist():
    assert set(KNOWN_ENCODINGS) <= set(rw.names())
    with pytest.raises(ValueError, match=r"'mixd'.*'mixed'"):
        Config(encoding="mixd")


def test_settings_are_described_without_torch():
    code = "import sys; from ropewalk.lab.config import describe_settings as d; d(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("encoding", "words"), [("mrope", r"mrope.*3 axes.*time, row, column.*'digits'.*2"), ("rope", r"rope.*one axis.*2")]
)
def test_axes_that_do_not_fit_the_images_are_reported(encoding, words, tmp_path):
    comparison = plan_comparison([encoding], RECIPES["digits"], tmp_path, seeds=[0], baseline=encoding)
    with pytest.raises(CommandError, match=words):
        check_comparison(comparison)


def test_a_span_that_an_encoding_cannot_have_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("ropewalk.lab.model_building.SPAN_OPTIONS", ())
    comparison = plan_comparison(["mixed"], RECIPES["digits"], tmp_path, seeds=[0], baseline="none")
    with pytest.raises(CommandError, match=r"frequencies.*span=6\.0.*span=none"):
        check_comparison(comparison)
