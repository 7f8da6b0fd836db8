"""Operations on tensors, each declared to PyTorch once: the boundary behind which a kernel may replace the plain formula.

An op is declared with its schema as a composite of others, so that autograd, `torch.compile`, `torch.export` and
`torch.func` see through it: of its reference, or where a kernel fits, of one opaque op.
Ops know tensors only, nothing of encodings.
"""

from ropewalk.ops.attend import attend as attend
from ropewalk.ops.change import change as change
from ropewalk.ops.expm import expm as expm
from ropewalk.ops.inverse import inverse as inverse
from ropewalk.ops.relate import relate as relate
from ropewalk.ops.rotate import rotate as rotate
from ropewalk.ops.rotate import rotate_ as rotate_
from ropewalk.ops.rotate import rotate_qkv as rotate_qkv
from ropewalk.ops.sphere import sphere as sphere
from ropewalk.ops.turn import turn as turn
from ropewalk.ops.turn import turn_ as turn_
from ropewalk.ops.turn import turn_qkv as turn_qkv
