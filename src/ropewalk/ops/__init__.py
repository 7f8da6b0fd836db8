"""Operations on tensors, each declared to PyTorch once: the boundary behind which a kernel may replace the plain formula.

An op is declared with its schema and gets its reference as a composite implementation, so autograd, `torch.compile`,
`torch.export` and `torch.func` see through it; a device with a kernel of its own overrides that for itself.
Ops know tensors only, nothing of encodings.
"""

from ropewalk.ops.change import change as change
from ropewalk.ops.expm import expm as expm
from ropewalk.ops.relate import relate as relate
from ropewalk.ops.rotate import rotate as rotate
from ropewalk.ops.rotate import rotate_ as rotate_
from ropewalk.ops.rotate import rotate_qkv as rotate_qkv
from ropewalk.ops.sphere import sphere as sphere
from ropewalk.ops.turn import turn as turn
from ropewalk.ops.turn import turn_ as turn_
from ropewalk.ops.turn import turn_qkv as turn_qkv
