import importlib

import pytest

import ropewalk.lab as lab

FORMER = {
    "compare": "compare as_csv table",
    "config": "Config",
    "evaluate": "normalised",
    "probes": "probe restored",
    "recipes": "RECIPES",
    "report": "report",
    "store": "Run",
    "train": "train open_data",
}
"""Names that the documentation has shown, by module of the lab."""


def test_the_lab_has_its_names():
    assert {"Config", "RECIPES", "Run", "train_run", "compare_encodings", "probe_run", "write_report"} <= set(dir(lab))
    for name in lab._HOMES:
        assert name == "RECIPES" or getattr(lab, name).__module__.startswith("ropewalk.lab.")


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match=r"no_such_name.*train_run"):
        lab.no_such_name  # noqa: B018


@pytest.mark.parametrize("module", FORMER)
def test_former_names_stay(module):
    home = importlib.import_module(f"ropewalk.lab.{module}")
    for name in FORMER[module].split():
        assert name == "RECIPES" or callable(getattr(home, name)), name


def test_former_names_are_the_functions():
    from ropewalk.lab.compare import as_csv, compare, table
    from ropewalk.lab.report import report

    assert (compare, as_csv, table) == (lab.compare_encodings, lab.format_comparison_csv, lab.tabulate_comparison)
    assert report is lab.write_report
