"""Every example of every encoding keeps every promise that applies to it."""

import pytest

from ropewalk.encodings import REGISTRY
from ropewalk.factory import Chained
from ropewalk.testing import checks_for

CASES = [
    pytest.param(encoding, check, id=f"{name}-{i}-{check.__name__.removeprefix('check_')}")
    for name, kind in [*REGISTRY.items(), ("chain", Chained)]
    for i, encoding in enumerate(kind.examples())
    for check in checks_for(encoding)
]


@pytest.mark.parametrize(("encoding", "check"), CASES)
def test_contract(encoding, check):
    check(encoding)
