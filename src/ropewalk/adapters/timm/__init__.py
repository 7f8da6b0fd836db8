"""Any encoding inside a vision transformer of timm's.

    import timm
    from ropewalk.adapters.timm import install

    model = install(timm.create_model("vit_small_patch16_224", pretrained=True), "comrope-ld", std=0.0)

It takes timm's `VisionTransformer` (plain ViTs, DeiT, CLIP, DINOv2, …) and `Eva` (EVA-02, the rope and rope_mixed ViTs,
Perception Encoders, DINOv3, …). The model is changed in place and stays what it was otherwise: the same modules with
the same names, of classes that inherit from timm's. The encoding is `model.encoding`, the module `model.rope.encoding`.
`uninstall` puts everything back.

It takes models whose attention has grids of its own, too (Swin, MaxViT, BEiT, Hiera, PVT, …, torchvision's ViT and Swin):
there `model.encoding` is a dictionary, of an encoding for each attention by its name. `register` is for other attention.
"""

from ropewalk.adapters.timm.attach import uninstall as uninstall
from ropewalk.adapters.timm.folding import fold_into as fold_into
from ropewalk.adapters.timm.grid_kinds import register as register
from ropewalk.adapters.timm.grids import Grid as Grid
from ropewalk.adapters.timm.installing import install as install
from ropewalk.adapters.timm.installing import installed as installed
