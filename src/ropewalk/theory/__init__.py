"""What an encoding's mathematics says of it, computed on the encoding itself, trained or not.

`commutators` says whether its generators commute, `rope_equation` whether what it turns depends on differences of positions
alone, `equivariance` by how much scores change when both tokens move; `spectrum`, `span` and `parameters` what it holds. A
commuting encoding is RoPE-Mixed in another basis: `fold` finds it, `fold_into` puts the basis into a model's projections.
"""

from ropewalk.theory.commuting import Planes as Planes
from ropewalk.theory.commuting import commutators as commutators
from ropewalk.theory.commuting import generators as generators
from ropewalk.theory.commuting import planes as planes
from ropewalk.theory.folding import fold as fold
from ropewalk.theory.projecting import Foldable as Foldable
from ropewalk.theory.projecting import Projection as Projection
from ropewalk.theory.projecting import fold_into as fold_into
from ropewalk.theory.shifts import Change as Change
from ropewalk.theory.shifts import equivariance as equivariance
from ropewalk.theory.shifts import rope_equation as rope_equation
from ropewalk.theory.waves import Counts as Counts
from ropewalk.theory.waves import Spectrum as Spectrum
from ropewalk.theory.waves import parameters as parameters
from ropewalk.theory.waves import span as span
from ropewalk.theory.waves import spectrum as spectrum
