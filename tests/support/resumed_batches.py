"""An epoch that is resumed has the batches that are left, tensor by tensor."""

from dataclasses import fields, is_dataclass

import torch


def list_tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if is_dataclass(value):
        return [each for field in fields(value) for each in list_tensors(getattr(value, field.name))]
    if isinstance(value, dict):
        return [each for name in sorted(value) for each in list_tensors(value[name])]
    return [each for part in value for each in list_tensors(part)] if isinstance(value, list | tuple) else []


def assert_batches_resume(task, first=1):
    whole = [list_tensors(batch) for batch in task.batches(1, 0, 1)]
    rest = [list_tensors(batch) for batch in task.batches(1, 0, 1, first=first)]
    assert len(whole) == task.steps
    assert len(rest) == task.steps - first > 0
    for wanted, found in zip(whole[first:], rest, strict=True):
        assert wanted
        assert len(wanted) == len(found)
        assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(whole[0], rest[0], strict=True))
