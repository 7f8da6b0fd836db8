"""Former home of `normalised`, kept for scripts that import it from here."""

from ropewalk.lab.tasks.base import normalize_images as normalised

__all__ = ["normalised"]
