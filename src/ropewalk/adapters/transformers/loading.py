"""Models whose config names an encoding come with it: `from_pretrained` of transformers works as for any other.

Two methods of `PreTrainedModel` are followed: at the end of a model's construction the encoding that its config names is
put in place, and where transformers makes weights that no file has, encodings make their own. Models whose config does not
name one are left alone.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.adapters.transformers.building import build
from ropewalk.adapters.transformers.config_io import NAME, says_folded, unmarked
from ropewalk.adapters.transformers.embedding import STARTED, Positions
from ropewalk.adapters.transformers.hosts import Host, find, find_hosts
from ropewalk.adapters.transformers.native import inspect_host
from ropewalk.adapters.transformers.installing import place, swap
from ropewalk.encoding import Encoding

GIVEN: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # the configs that models were made from: their heads' too


def finish(model: nn.Module) -> None:
    """Give a model that was just made from its config the encoding that this names."""
    config = getattr(model, "config", None)
    if config is None or getattr(config, NAME, None) is None:
        return
    for host in find_hosts(model):
        if host.base is model and not isinstance(host.rotary, Positions):
            _fill(host, config)
        elif GIVEN.get(host.base) is config:
            swap(model, config, host.config)


def _fill(host: Host, config: Any) -> None:
    """Give a model the encoding, and a config of its own: the one it was made from is somebody else's."""
    plain = unmarked(config)
    for owner, name in host.places:
        setattr(owner, name, type(getattr(owner, name))(plain))
    host = find(host.base, "")
    about = inspect_host(host)
    made, folded = build(host, about, config.ropewalk, plain, {}), says_folded(config.ropewalk)
    place(host.base, host, about, made, plain, copy.deepcopy(config), folded=folded)
    GIVEN[host.base] = config


def make(encoding: Encoding) -> None:
    """Make what no file has: all, if a parameter is among it, else the buffers."""
    own: list[Tensor] = list(encoding.parameters(recurse=False))
    if all(getattr(parameter, STARTED, False) for parameter in own):
        encoding.init_non_persistent_buffers()
    else:
        encoding.reset_parameters()
    setattr(encoding, STARTED, True)


def follow() -> None:
    """Follow the two methods, once."""
    if hasattr(PreTrainedModel.post_init, NAME):
        return
    PreTrainedModel.post_init = _followed(PreTrainedModel.post_init, finish)  # type: ignore[method-assign]
    host: Callable[..., None] = PreTrainedModel._initialize_weights

    @functools.wraps(host)
    def initialize(self: Any, module: nn.Module, *args: Any, **options: Any) -> None:
        if not isinstance(module, Encoding):
            host(self, module, *args, **options)
        elif not getattr(module, STARTED, False):
            make(module)

    PreTrainedModel._initialize_weights = initialize  # type: ignore[method-assign]


def _followed(host: Callable[[Any], None], after: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(host)
    def both(self: Any) -> None:
        host(self)
        after(self)

    setattr(both, NAME, True)
    return both
