"""Exhaustive tests have passed since their sources last changed; which tests are exhaustive, and when a record is stale."""

import json
from types import SimpleNamespace

import pytest

from tests.support import exhaustive
from tests.support.exhaustive import GROUPS, RECORD, ROOT, Group, compute_digest, find_group, find_stale_groups, strip_prose

GROUP = Group(tests=("tests/test_*.py",), sources=("src/**/*.py",))


@pytest.mark.parametrize("name", GROUPS)
def test_the_recorded_run_is_of_these_files(name):
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    assert find_stale_groups(record, {name: GROUPS[name]}) == [], (
        f"the sources of the exhaustive tests {name!r} have changed since they last passed: "
        f"run `make test-all GROUP={name}` and commit results/test-all.json"
    )


@pytest.mark.parametrize("name", GROUPS)
def test_every_pattern_finds_files_and_every_test_file_has_exhaustive_tests(name):
    for pattern in (*GROUPS[name].tests, *GROUPS[name].sources):
        assert list(ROOT.glob(pattern)), pattern
    assert any(f'exhaustive("{name}"' in path.read_text() for pattern in GROUPS[name].tests for path in ROOT.glob(pattern))


@pytest.fixture
def tree(tmp_path):
    for name in ("tests/test_a.py", "src/b/c.py", "docs/d.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"title"\n' if name.endswith(".py") else name)
    return tmp_path


@pytest.mark.parametrize("change", ["src/b/c.py", "src/b/new.py", "tests/test_a.py"])
def test_a_group_is_stale_once_a_file_of_it_changes(tree, change):
    record = {"some": {"passed": 3, "sha256": compute_digest(GROUP, tree)}}
    (tree / "docs" / "d.md").write_text("other")
    assert find_stale_groups(record, {"some": GROUP}, tree) == []
    (tree / change).write_text("other = 1\n")
    assert find_stale_groups(record, {"some": GROUP}, tree) == ["some"]


CODE = """'Module.'
import a  # why


class B:
    '''Ä class,
    of two lines.'''  # here
    text = '''kept''' # more

    def c(self): 'said'; return "# kept"
"""


@pytest.mark.parametrize("change", ["why", "Module", "Ä class", "lines", "here", "more", "said"])
def test_changes_of_prose_are_none(change):
    assert strip_prose(CODE.replace(change, "other")) == strip_prose(CODE)
    assert change not in strip_prose(CODE)


@pytest.mark.parametrize("change", ["import a", "'''kept", "# kept", "text", "class B", "def c"])
def test_changes_of_code_are_seen(change):
    assert strip_prose(CODE.replace(change, change + "0")) != strip_prose(CODE)


def test_a_renamed_file_is_a_change(tree):
    before = compute_digest(GROUP, tree)
    (tree / "src/b/c.py").rename(tree / "src/b/d.py")
    assert compute_digest(GROUP, tree) != before


@pytest.mark.parametrize("latest", [None, {"passed": 0}, {"passed": 3, "sha256": "0" * 64}])
def test_a_group_that_never_passed_is_stale(tree, latest):
    record = {} if latest is None else {"some": {"sha256": compute_digest(GROUP, tree)} | latest}
    assert find_stale_groups(record, {"some": GROUP}, tree) == ["some"]


def item(*marker, path="tests/test_a.py", params=None, **options):
    """What the plugin reads of a test that has this marker."""
    marked = pytest.mark.exhaustive(*marker, **options).mark if marker else None
    return SimpleNamespace(
        nodeid="a",
        path=ROOT / path,
        callspec=SimpleNamespace(params=params or {}),
        get_closest_marker=lambda name: marked,
    )


def test_cases_that_are_kept_are_in_no_group():
    (path, *_), kept = GROUPS["kernels"].tests, {"kept": lambda name: name == "mixed"}
    assert find_group(item()) is None
    assert find_group(item("kernels", path=path)) == "kernels"
    assert find_group(item("kernels", path=path, params={"name": "liere"}, **kept)) == "kernels"
    assert find_group(item("kernels", path=path, params={"name": "mixed"}, **kept)) is None


@pytest.mark.parametrize(
    ("group", "path", "words"),
    [("kernel", "tests/ops/test_kernels_fused.py", "'kernel'.*kernels"), ("kernels", "tests/test_cli.py", "list it")],
)
def test_a_group_must_exist_and_list_the_file(group, path, words):
    with pytest.raises(pytest.UsageError, match=words):
        find_group(item(group, path=path))


def plugin(record, **options):
    given = {"whole": False, "group": None, "record": record} | options
    return exhaustive.ExhaustivePlugin(SimpleNamespace(getoption=given.get, args_source=None))


@pytest.mark.parametrize(
    ("options", "arguments", "selected"),
    [
        ({}, ["tests"], [True, False]),
        ({}, ["tests/test_a.py::test_b"], [True, True]),
        ({"whole": True}, ["tests"], [True, True]),
        ({"group": "kernels"}, ["tests"], [False, True]),
        ({"group": "figures"}, ["tests"], [False, False]),
    ],
)
def test_what_is_selected(options, arguments, selected):
    made = plugin(False, **options)
    given = SimpleNamespace(config=SimpleNamespace(args=arguments))
    assert [made.is_selected(given, group) for group in (None, "kernels")] == selected


def report(outcome, when="call", path="tests/ops/test_kernels_fused.py"):
    return SimpleNamespace(
        nodeid=f"{path}::test_a",
        user_properties=[("exhaustive", "kernels")],
        when=when,
        outcome=outcome,
        passed=outcome == "passed",
    )


def test_groups_that_ran_are_recorded_and_others_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(exhaustive, "RECORD", tmp_path / "test-all.json")
    exhaustive.RECORD.write_text(json.dumps({"figures": {"passed": 1}, "gone": {}}))
    made = plugin(True)
    for each in (report("passed", "setup"), report("passed"), report("skipped", "setup")):
        made.pytest_runtest_logreport(each)
    made.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace()), pytest.ExitCode.TESTS_FAILED)
    assert set(json.loads(exhaustive.RECORD.read_text())) == {"figures", "gone"}
    made.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace()), pytest.ExitCode.OK)
    record = json.loads(exhaustive.RECORD.read_text())
    assert set(record) == {"figures", "kernels"}
    assert record["figures"] == {"passed": 1}
    assert {name: record["kernels"][name] for name in ("passed", "skipped")} == {"passed": 1, "skipped": 1}
    assert find_stale_groups(record, {"kernels": GROUPS["kernels"]}) == []


@pytest.mark.parametrize(
    ("digest", "path"), [("0" * 64, "tests/ops/test_kernels_fused.py"), (None, "tests/ops/test_kernels.py")]
)
def test_files_that_change_during_the_run_or_were_left_out_are_not_recorded(monkeypatch, tmp_path, digest, path):
    monkeypatch.setattr(exhaustive, "RECORD", tmp_path / "test-all.json")
    made = plugin(True)
    made.pytest_runtest_logreport(report("passed", path=path))
    made.digests["kernels"] = digest or made.digests["kernels"]
    made.write_record()
    assert json.loads(exhaustive.RECORD.read_text()) == {}
