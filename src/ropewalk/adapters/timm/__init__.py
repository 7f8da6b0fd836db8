"""Install any encoding in a vision transformer of timm.

    import timm
    from ropewalk.adapters.timm import install

    model = install(timm.create_model("vit_small_patch16_224", pretrained=True), "comrope-ld", std=0.0)

Plain ViTs are timm's `VisionTransformer` (ViT, DeiT, CLIP, DINOv2, …) and `Eva` (EVA-02, the rope and rope_mixed ViTs,
Perception Encoders, DINOv3, …). The model is changed in place and keeps its modules and their names; their classes become
subclasses of timm's. The encoding is `model.encoding`, the module `model.rope.encoding`. `uninstall` restores the model.

Models in which each attention has its own grid are supported too (Swin, MaxViT, BEiT, Hiera, PVT, …, torchvision's ViT and
Swin): there `model.encoding` is a dictionary of encodings by the attention's module name. `register` adds other attention
classes.
"""

from ropewalk.adapters.timm.attach import uninstall as uninstall
from ropewalk.adapters.timm.folding import fold_into as fold_into
from ropewalk.adapters.timm.grid_kinds import register as register
from ropewalk.adapters.timm.grids import Grid as Grid
from ropewalk.adapters.timm.installing import install as install
from ropewalk.adapters.timm.installing import installed as installed
