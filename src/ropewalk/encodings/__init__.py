"""Every encoding, one method a file. A new one is a file here and a line below."""

from ropewalk.encoding import Encoding as _Encoding
from ropewalk.encodings.alibi import ALiBi as ALiBi
from ropewalk.encodings.axial import Axial as Axial
from ropewalk.encodings.comrope_ap import ComRoPEAP as ComRoPEAP
from ropewalk.encodings.comrope_ld import ComRoPELD as ComRoPELD
from ropewalk.encodings.learned_ape import LearnedAPE as LearnedAPE
from ropewalk.encodings.liere import LieRE as LieRE
from ropewalk.encodings.mixed import Mixed as Mixed
from ropewalk.encodings.nope import NoPE as NoPE
from ropewalk.encodings.rope import RoPE as RoPE
from ropewalk.encodings.sincos import SinCos as SinCos
from ropewalk.encodings.spherical import Spherical as Spherical
from ropewalk.encodings.t5_bias import T5Bias as T5Bias
from ropewalk.encodings.uniform import Uniform as Uniform

REGISTRY: dict[str, type[_Encoding]] = {
    kind.name: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, _Encoding) and kind is not _Encoding
}
__all__ = sorted(kind.__name__ for kind in REGISTRY.values())
