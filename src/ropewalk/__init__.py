"""ropewalk: positional encodings for PyTorch, from 1-D rotary embeddings to N-D Lie rotations."""

from ropewalk import extension as extension
from ropewalk import functional as functional
from ropewalk import layouts as layouts
from ropewalk import positions as positions
from ropewalk import spectra as spectra
from ropewalk import theory as theory
from ropewalk.attention import attend as attend
from ropewalk.attention import attend_qkv as attend_qkv
from ropewalk.code import Basis as Basis
from ropewalk.code import Bias as Bias
from ropewalk.code import Chain as Chain
from ropewalk.code import Code as Code
from ropewalk.code import ContentBias as ContentBias
from ropewalk.code import Offset as Offset
from ropewalk.code import Rotation as Rotation
from ropewalk.code import Sphere as Sphere
from ropewalk.code import Turn as Turn
from ropewalk.encoding import Encoding as Encoding
from ropewalk.encoding import Traits as Traits
from ropewalk.encodings import *  # noqa: F403
from ropewalk.factory import chain as chain
from ropewalk.factory import create as create
from ropewalk.factory import names as names
from ropewalk.positions import validate as validate
from ropewalk.theory import fold as fold
from ropewalk.theory import fold_into as fold_into

__version__ = "0.1.0"
