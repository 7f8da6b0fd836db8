"""Former name of `ropewalk.lab.run_store`, kept for scripts that import `Run` from here."""

from ropewalk.lab.run_store import RunFolder as Run

__all__ = ["Run"]
