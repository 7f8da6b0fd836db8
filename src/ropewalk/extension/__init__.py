"""Context extension: rules that make a model with RoPE read longer texts than those it was trained on.

A rule is a pure function from a spectrum to another one and a factor for q and k:

    frequency, factor = YaRN(factor=4, original_max_position_embeddings=4096)(frequency, base=1e4, rotary_dim=128)

`parse` makes a rule of a dictionary in transformers' spelling, `options` all that RoPE takes of a model's config. What
depends on the length of a text is settled once, by the largest length that it will have: nothing here remembers earlier
calls.

The rules for images and volumes are in `AXES`: each axis has a factor of its own. `parse_axes` makes them.
"""

from ropewalk.extension.by_parts import ByParts as ByParts
from ropewalk.extension.by_parts import Llama3 as Llama3
from ropewalk.extension.by_parts import YaRN as YaRN
from ropewalk.extension.config import AXES as AXES
from ropewalk.extension.config import RULES as RULES
from ropewalk.extension.config import options as options
from ropewalk.extension.config import parse as parse
from ropewalk.extension.config import parse_axes as parse_axes
from ropewalk.extension.image_rules import AxesByParts as AxesByParts
from ropewalk.extension.image_rules import AxesLinear as AxesLinear
from ropewalk.extension.image_rules import AxesNTK as AxesNTK
from ropewalk.extension.image_rules import AxesRule as AxesRule
from ropewalk.extension.image_rules import AxesYaRN as AxesYaRN
from ropewalk.extension.longrope import LongRoPE as LongRoPE
from ropewalk.extension.longrope import YarnArticle as YarnArticle
from ropewalk.extension.rule import Extended as Extended
from ropewalk.extension.rule import Rule as Rule
from ropewalk.extension.scaling import DynamicNTK as DynamicNTK
from ropewalk.extension.scaling import Linear as Linear
from ropewalk.extension.scaling import NTKAware as NTKAware
from ropewalk.extension.scaling import Proportional as Proportional
