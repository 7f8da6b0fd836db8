"""Every encoding, one method a file. A new one is a file here and a line below."""

from ropewalk.encoding import Encoding as _Encoding
from ropewalk.encodings.alibi import ALiBi as ALiBi
from ropewalk.encodings.axial import Axial as Axial
from ropewalk.encodings.axial_spherical import AxialSpherical as AxialSpherical
from ropewalk.encodings.comrope_ap import ComRoPEAP as ComRoPEAP
from ropewalk.encodings.comrope_ld import ComRoPELD as ComRoPELD
from ropewalk.encodings.dinov3 import DINOv3 as DINOv3
from ropewalk.encodings.golden import Golden as Golden
from ropewalk.encodings.learned_ape import LearnedAPE as LearnedAPE
from ropewalk.encodings.liere import LieRE as LieRE
from ropewalk.encodings.mixed import Mixed as Mixed
from ropewalk.encodings.mrope import MRoPE as MRoPE
from ropewalk.encodings.nope import NoPE as NoPE
from ropewalk.encodings.rope import RoPE as RoPE
from ropewalk.encodings.sincos import SinCos as SinCos
from ropewalk.encodings.spherical import Spherical as Spherical
from ropewalk.encodings.spherical_symmetric import SphericalSymmetric as SphericalSymmetric
from ropewalk.encodings.string_cayley import StringCayley as StringCayley
from ropewalk.encodings.string_circulant import StringCirculant as StringCirculant
from ropewalk.encodings.swin_bias import SwinBias as SwinBias
from ropewalk.encodings.t5_bias import T5Bias as T5Bias
from ropewalk.encodings.transformer_xl import TransformerXL as TransformerXL
from ropewalk.encodings.uniform import Uniform as Uniform
from ropewalk.encodings.waves import Waves as Waves
from ropewalk.encodings.xpos import XPos as XPos

REGISTRY: dict[str, type[_Encoding]] = {
    kind.name: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, _Encoding) and kind is not _Encoding
}
__all__ = sorted(kind.__name__ for kind in REGISTRY.values())
