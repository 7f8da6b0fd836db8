"""Models whose config names an encoding come with it: `from_pretrained` of transformers works as for any other.

Three methods of `PreTrainedModel` are followed: at the end of a model's construction the encoding that its config names is
put in place; where transformers makes weights that no file has, encodings make their own; and before a model is saved, its
config is made to say what its parts have. Models whose config does not name an encoding are left alone.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.adapters.transformers.building import USE, build, build_saved
from ropewalk.adapters.transformers.config_io import NAME, PATHS, read_mark, says_folded, unmarked
from ropewalk.adapters.transformers.embedding import STARTED, Positions
from ropewalk.adapters.transformers.host_use import HostUse, read_use
from ropewalk.adapters.transformers.hosts import Host, find, find_hosts
from ropewalk.adapters.transformers.installing import place, swap
from ropewalk.adapters.transformers.native import inspect_host
from ropewalk.adapters.transformers.probing import remake_rotary
from ropewalk.encoding import Encoding

GIVEN: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # the configs that models were made from: their heads' too


def finish(model: nn.Module) -> None:
    """Give a model that was just made from its config the encodings that this, or those of its parts, name."""
    config = getattr(model, "config", None)
    if config is None:
        return
    for host in find_hosts(model):
        if isinstance(host.rotary, Positions):
            if GIVEN.get(host.base) is config:
                swap(model, config, host.config)
        elif (said := read_mark(host.config, host.key)) is not None:
            _fill(model, host, said)
    whole = getattr(config, NAME, None)
    paths = whole.get(PATHS) if isinstance(whole, Mapping) else None
    for path, said in paths.items() if isinstance(paths, Mapping) else ():
        for host in find_hosts(model):
            if host.path == path and not isinstance(host.rotary, Positions):
                _fill(model, host, said)


def _fill(model: nn.Module, host: Host, said: Any) -> None:
    """Give a host the encoding, and a config of its own: the one it was made from is somebody else's."""
    config = host.config
    plain = unmarked(config)
    for owner, name in host.places:
        setattr(owner, name, remake_rotary(getattr(owner, name), config, plain))
    host = find(model, host.path, host.key)
    if USE in said:  # since then it was measured once and for all
        made, use = build_saved(said, host, plain), HostUse.from_dict(said[USE])
    else:
        about = inspect_host(host)
        made = build(host, about, said, plain, {})
        use = read_use(host, about, made)
    place(model, host, use, made, plain, copy.deepcopy(config), folded=says_folded(said))
    GIVEN[host.base] = config
    for module in model.modules():
        if isinstance(module, Encoding):  # as transformers does for what a model has from the beginning
            cast(Any, model)._initialize_weights(module)


def make(encoding: Encoding) -> None:
    """Make what no file has: all, if a parameter is among it, else the buffers. On the meta device nothing can be made."""
    own: list[Tensor] = list(encoding.parameters(recurse=False))
    if any(tensor.is_meta for tensor in (*own, *encoding.buffers(recurse=False))):
        return
    if all(getattr(parameter, STARTED, False) for parameter in own):
        encoding.init_non_persistent_buffers()
    else:
        encoding.reset_parameters()
    setattr(encoding, STARTED, True)


def config_to_save(model: nn.Module) -> Any:
    """The config of a model as it says what all parts have, also if an encoding went into a part alone, or out of it."""
    found = [host for host in find_hosts(model) if isinstance(host.rotary, Positions)]
    marked = {id(cast(Positions, host.rotary).host_config): host.config for host in found}
    saved: set[int] = set()

    def visit(config: Any) -> Any:
        config = marked.get(id(config), config)
        if getattr(config, NAME, None) is not None and not any(config is host.config for host in found):
            config = unmarked(config)
        saved.add(id(config))
        parts = {name: getattr(config, name, None) for name in getattr(config, "sub_configs", None) or {}}
        changed = {name: new for name, part in parts.items() if part is not None and (new := visit(part)) is not part}
        if changed:
            config = copy.copy(config)
            for name, part in changed.items():
                setattr(config, name, part)
        return config

    config = visit(getattr(model, "config", None))
    lost = {host.path: said for host in found if (said := read_mark(host.config, host.key)) and id(host.config) not in saved}
    if lost:
        config = copy.copy(config)
        config.ropewalk = (getattr(config, NAME, None) or {}) | {PATHS: lost}
    return config


def follow() -> None:
    """Follow the three methods, once."""
    if hasattr(PreTrainedModel.post_init, NAME):
        return
    PreTrainedModel.post_init = _followed(PreTrainedModel.post_init, finish)  # type: ignore[method-assign]
    save: Callable[..., Any] = PreTrainedModel.save_pretrained

    @functools.wraps(save)
    def save_pretrained(self: Any, *args: Any, **options: Any) -> Any:
        before = self.config
        self.config = config_to_save(self)
        try:
            return save(self, *args, **options)
        finally:
            self.config = before

    PreTrainedModel.save_pretrained = save_pretrained  # type: ignore[method-assign]
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
