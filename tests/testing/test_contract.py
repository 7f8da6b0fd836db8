"""Every example of every encoding keeps every promise that applies to it."""

from functools import partial

import pytest

from ropewalk.code import Chain, Code
from ropewalk.encodings import REGISTRY
from ropewalk.factory import Chained
from ropewalk.testing import check_compile, checks_for
from ropewalk.testing.case import points


def code_structure(code: Code) -> tuple:
    """What distinguishes programs of codes: their types and whether they have layers, not the values they hold."""
    parts = tuple(map(code_structure, code.codes)) if isinstance(code, Chain) else ()
    return type(code), code.layers is None, parts


def contract_cases():
    """Compile the gradients of the first example of each structure; for others, tracing the forward pass is enough."""
    traced = set()
    for name, kind in [*REGISTRY.items(), ("chain", Chained)]:
        for i, encoding in enumerate(kind.examples()):
            for check in checks_for(encoding):
                case = f"{name}-{i}-{check.__name__.removeprefix('check_')}"
                if check is check_compile:
                    structure = code_structure(encoding(points(encoding, 2)))
                    if structure in traced:
                        check = partial(check_compile, backend="eager")
                    traced.add(structure)
                yield pytest.param(encoding, check, id=case)


@pytest.mark.parametrize(("encoding", "check"), list(contract_cases()))
def test_contract(encoding, check):
    check(encoding)
