"""How work on runs ends when it does not end well: whatever went wrong with files, numbers or memory is told in a line."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from safetensors import SafetensorError

from ropewalk.lab.choose import Failure, Refusal, refusing
from ropewalk.lab.store import Busy, Damaged
from ropewalk.lab.train import NotFinite


@contextmanager
def ending() -> Iterator[None]:
    """Refuse what cannot be done, files that cannot be trusted and disks that are full; fail when numbers or memory end."""
    try:
        with refusing():
            yield
    except (Damaged, Busy) as error:
        raise Refusal(str(error)) from error
    except SafetensorError as error:  # which is what a full disk is, when weights are written
        raise Refusal(f"weights cannot be kept: {error}") from error
    except NotFinite as error:
        raise Failure(str(error)) from error
    except torch.OutOfMemoryError as error:
        raise Failure(f"memory is used up, a smaller batch needs less: {error}") from error
