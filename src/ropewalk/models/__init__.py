"""Plain transformers that take any encoding, to be read from top to bottom."""

from ropewalk.models.lm import LM as LM
from ropewalk.models.vit import ViT as ViT
