"""Replace a function of ropewalk in every module that has imported it."""

import sys
from typing import Any

import pytest


def patch_everywhere(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: Any) -> None:
    """
    Set `module.name` to `value`, and so in each loaded module of ropewalk whose global of that name is the same object.

    Modules import functions directly, so that a patch of the module that defines one would not reach those who call it.
    """
    old = getattr(module, name)
    monkeypatch.setattr(module, name, value)
    for loaded_name, loaded in list(sys.modules.items()):
        if loaded_name.split(".")[0] == "ropewalk" and vars(loaded).get(name) is old:
            monkeypatch.setattr(loaded, name, value)
