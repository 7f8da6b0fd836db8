"""Codes: what happens to a transformer because of the positions of its tokens.

Letters in the shape comments:

    B batch   H query heads   h heads of a table, dividing H   N queries   M keys   n tokens without the prefix
    D channels a head   C width of the model   P pairs   T triplets   G blocks   b block size   A axes   L layers

A code is immutable and knows three moments of a forward pass: `tokens(x)` once, before the first block; `qk(q, k)` in
every block; `scores(q, k)` in every block, with q and k as `qk` returned them. Each does nothing unless the code defines it.
Of an encoding made with `layers=`, the code carries all layers and `code[i]` is the code of layer i.
"""

from ropewalk.code.base import Code as Code
from ropewalk.code.base import Offset as Offset
from ropewalk.code.bias import Bias as Bias
from ropewalk.code.bias import ContentBias as ContentBias
from ropewalk.code.chain import Basis as Basis
from ropewalk.code.chain import Chain as Chain
from ropewalk.code.rotary import Rotary as Rotary
from ropewalk.code.rotary import Rotation as Rotation
from ropewalk.code.rotary import Sphere as Sphere
from ropewalk.code.rotary import Turn as Turn
from ropewalk.code.sealed import Sealed as Sealed
from ropewalk.code.sealed import unseal as unseal
