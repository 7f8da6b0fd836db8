"""Run folders made before run format 2, in tests/support/runs_format1, are read, kept and resumed.

They hold a comparison of two encodings, of which axial is finished and mixed was stopped after epoch 2, and a run with LAMB
and a moving average that was stopped likewise. `undisturbed.json` holds what that code found for the two without a stop.
"""

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from ropewalk.lab.compare.plan import Comparison
from ropewalk.lab.compare.run import compare_encodings
from ropewalk.lab.config import Config
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.train import train_run

OLD_FOLDERS = Path(__file__).parents[1] / "support" / "runs_format1"
UNDISTURBED = json.loads((OLD_FOLDERS / "undisturbed.json").read_text())
FINISHED, STOPPED, STOPPED_LAMB = "axial-seed0-d734444e37", "mixed-seed0-5796197912", "none-seed0-70516f15a2"


@pytest.fixture
def runs(tmp_path):
    return Path(shutil.copytree(OLD_FOLDERS / "runs", tmp_path / "runs"))


def assert_as_undisturbed(run):
    """To rounding, which differs between processors: without the state of the optimiser, losses differ by 0.3 %."""
    wanted = UNDISTURBED[run.path.name]
    assert run.result()["test_loss"] == pytest.approx(wanted["result"]["test_loss"], rel=1e-4)
    assert run.result()["step"] == wanted["result"]["step"]
    metrics = run.metrics()
    assert [each["step"] for each in metrics] == [each["step"] for each in wanted["metrics"]]
    for name in ("loss", "validation_loss", "learning_rate"):
        assert [each[name] for each in metrics] == pytest.approx([each[name] for each in wanted["metrics"]], rel=1e-4)


def test_a_comparison_resumes_in_its_folder(runs):
    (path,) = runs.glob("comparison-*.json")
    before = Comparison.at(path)
    files = {each: each.read_bytes() for each in (runs / FINISHED).iterdir()}
    base = Config.of({**before.settings, "encoding": "none", "options": {}, "seed": 7})
    after = compare_encodings(["axial", "mixed"], base, runs, seeds=[0], baseline="axial", console=Console(quiet=True))
    assert after == before
    assert after.path == path
    assert [member.name for member in after.members] == [FINISHED, STOPPED]
    assert after.code == 0
    assert {each: each.read_bytes() for each in (runs / FINISHED).iterdir()} == files
    assert_as_undisturbed(RunFolder.at(runs / STOPPED))
    assert {each.name for each in runs.glob("*-seed*")} == {FINISHED, STOPPED, STOPPED_LAMB}


def test_a_comparison_without_newer_settings_has_their_defaults(runs):
    (path,) = runs.glob("comparison-*.json")
    before, document = Comparison.at(path), json.loads(path.read_text())
    assert document["settings"].pop("ema", "missing") is None
    path.write_text(json.dumps(document))
    assert Comparison.at(path) == before


def test_a_run_with_lamb_and_an_average_resumes(runs):
    config = RunFolder.at(runs / STOPPED_LAMB).config
    assert config.name == STOPPED_LAMB
    assert_as_undisturbed(train_run(config, runs))
    facts = RunFolder.at(runs / STOPPED_LAMB).load_checkpoint()[1]
    assert [group["step"] for group in facts["optimizer"]] == [facts["step"]] * 2


def test_old_folders_are_read(runs):
    done, stopped = load_run(runs / FINISHED), load_run(runs / STOPPED)
    assert done.problems == stopped.problems == ()
    assert done.result["test_accuracy"] == json.loads((runs / FINISHED / "result.json").read_text())["test_accuracy"]
    assert stopped.result is None
    assert done.test_correct is done.index_seed is None
    assert [each["epoch"] for each in stopped.metrics] == [1, 2, 3]
    assert done.commit == "f10efa01fda427445a0f290978ba219d052497fc"
    assert RunFolder.at(runs / FINISHED).load_weights()[1]["epoch"] == 4
