"""Only the kernel: q and k turned by tables of cosines and sines that you have already.

    cos, sin = tables.from_transformers(cos, sin)
    q, k = apply_rotary(q, k, cos, sin)

Tables have half the width of what turns, one cosine and one sine a pair; `tables` makes them from those of others.
"""

from ropewalk.functional import tables as tables
from ropewalk.functional.rotary import apply_rotary as apply_rotary
from ropewalk.functional.rotary import apply_rotary_ as apply_rotary_
