"""Every example of every encoding keeps every promise that applies to it."""

from functools import partial

import pytest

from ropewalk.code import Chain, Code
from ropewalk.encodings import REGISTRY
from ropewalk.factory import Chained
from ropewalk.testing import check_compile, check_export, checks_for
from ropewalk.testing.case import points


def code_structure(code: Code) -> tuple:
    """What distinguishes programs of codes: their types and whether they have layers, not the values they hold."""
    parts = tuple(map(code_structure, code.codes)) if isinstance(code, Chain) else ()
    return type(code), code.layers is None, parts


def contract_cases():
    """Each check of each example.

    `make test` compiles the forward pass for one example of each encoding and of each code structure, and compiles gradients
    and exports programs for one example of each type of code. `make test-all` does all three for every example.
    """
    structures, types = set(), set()
    for name, kind in [*REGISTRY.items(), ("chain", Chained)]:
        for i, encoding in enumerate(kind.examples()):
            code = encoding(points(encoding, 2))
            traced = i == 0 or code_structure(code) not in structures
            differentiated = type(code) not in types
            structures.add(code_structure(code))
            types.add(type(code))
            for check in checks_for(encoding):
                case = f"{name}-{i}-{check.__name__.removeprefix('check_')}"
                if check is check_compile and traced and not differentiated:
                    yield pytest.param(encoding, partial(check_compile, backend="eager"), id=f"{case}_forward")
                rare = check in (check_compile, check_export) and not differentiated
                yield pytest.param(encoding, check, id=case, marks=[pytest.mark.exhaustive("programs")] if rare else [])


@pytest.mark.parametrize(("encoding", "check"), list(contract_cases()))
def test_contract(encoding, check):
    check(encoding)
