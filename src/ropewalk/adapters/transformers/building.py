"""The encoding that a model is to have: given, by name, or what it has already."""

import warnings
from collections.abc import Mapping
from typing import Any, cast

import torch

from ropewalk.adapters.transformers.embedding import pair, settle_for_trial
from ropewalk.adapters.transformers.host_use import own_width
from ropewalk.adapters.transformers.hosts import Host
from ropewalk.adapters.transformers.native import Found, agree_on_images, native_encoding
from ropewalk.code import Code
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.encodings.rope import RoPE
from ropewalk.factory import create, find
from ropewalk.rotary import Waves

Asked = Encoding | str | Mapping[str, Any] | None
FOLDED = "folded"  # beside the options of an encoding whose basis is in the weights of its model
USE = "host"  # beside them too: how the host uses its rotary embedding
Made = Encoding | dict[str, Encoding]
OWN = ("rope", "waves", "dinov3")  # what hosts have already: asked for by name, it is as they have it
INHERITED = ("base", "rotary_dim", "interleaved", "extension", "proportional", "scale", "factor")


def build(host: Host, about: Mapping[str | None, Found], asked: Asked, config: Any, options: dict[str, Any]) -> Made:
    """The encoding of a host, or one for each type of its layers. `config` is that of the model as it came.

    One and the same for all types is an encoding for all layers: no model has to save it twice.
    """
    types = [kind for kind in about if kind is not None]
    if isinstance(asked, Mapping):  # what a config says has more among it
        asked = {key: value for key, value in asked.items() if key not in (FOLDED, USE)}
    if isinstance(asked, Mapping) and "name" not in asked:
        if set(asked) != set(types):
            wanted = ", ".join(map(repr, types)) or "no types of layers"
            raise ValueError(f"encodings by type of layers must be for {wanted}, got {', '.join(map(repr, asked))}")
        given = list(asked.values())
        if isinstance(given[0], Encoding) and all(each is given[0] for each in given):
            return _one(host, about, given[0], config, options, types[0])
        return {kind: _one(host, about, asked[kind], config, options, kind) for kind in types}
    own = isinstance(asked, str | Mapping) and (asked if isinstance(asked, str) else asked.get("name")) in OWN
    if types and (asked is None or own):  # each type has frequencies of its own
        return {kind: _one(host, about, asked, config, options, kind) for kind in types}
    widths = {found.first.width for found in about.values()}
    if len(widths) > 1:
        wanted = f"encodings by type of layers, {{{', '.join(f'{kind!r}: …' for kind in types)}}}"
        raise ValueError(f"heads of {host.named} have {sorted(widths)} channels: give {wanted}, got one for all")
    return _one(host, about, asked, config, options, types[0] if types else None)


def _one(
    host: Host, about: Mapping[str | None, Found], asked: Asked, config: Any, options: dict[str, Any], kind: str | None
) -> Encoding:
    """One encoding, checked against its host."""
    found = about[kind]
    if isinstance(asked, Encoding):
        if options:
            raise ValueError(f"an encoding has its options already, got {', '.join(options)}")
        made = asked
    elif asked is None:
        made = native(host, found, config, options)
        _warn_of_replaced(host, native(host, found, config, {}).config() if options else {}, options)
    else:
        made = _named(host, found, asked, config, options)
    check(host, found, made)
    return made


def _named(host: Host, found: Found, asked: Any, config: Any, options: dict[str, Any]) -> Encoding:
    said = {"name": asked} if isinstance(asked, str) else asked
    name, own = said["name"], {key: value for key, value in said.items() if key != "name"}
    chosen = find(name, load=isinstance(asked, str))  # a name that the model's config says imports nothing
    inherited = _inherited(host, found, name, config) if name in OWN else {}
    _warn_of_replaced(host, inherited, options)
    return chosen(**{**defaults(host, found, name), **inherited, **own, **options})


def _inherited(host: Host, found: Found, name: str, config: Any) -> dict[str, Any]:
    """The options of the encoding that a host has, where it is asked for by name."""
    here = native(host, found, config, {})
    if here.name == name:
        return {
            key: value for key, value in here.config().items() if key in (*INHERITED, "table", "min_period", "max_period")
        }
    if name == "waves" and isinstance(here, Waves) and not here.waiting:
        wave = here.waves()
        factor = {"factor": here._factor} if isinstance(here, RoPE) else {}
        return {"table": wave.reshape(-1, here.axes).tolist(), "interleaved": here.interleaved} | factor
    words = f"the rotation of the model is {here.name}, so that {name!r} inherits nothing of it"
    warnings.warn(f"{host.named}: {words}; install(model, learned=True) keeps it", stacklevel=7)
    return {}


def _warn_of_replaced(host: Host, inherited: dict[str, Any], options: dict[str, Any]) -> None:
    """Name the options that replace those with which the model was trained."""
    # Pairs in another layout go with weights that were reordered, which is nobody's slip.
    for key in sorted(options.keys() & inherited.keys() & set(INHERITED) - {"interleaved"}):
        if options[key] != inherited[key]:
            words = f"{key}={options[key]!r} replaces {key}={inherited[key]!r}, with which the model was trained"
            warnings.warn(f"{host.named}: {words}", stacklevel=7)


def native(host: Host, found: Found, config: Any, options: dict[str, Any]) -> Encoding:
    """The encoding that a host has, with options besides."""
    if found.kind == "pixels":
        said = getattr(config, "rope_parameters", None) or {}
        plain = found.shape | {"base": float(getattr(config, "rope_theta", None) or said["rope_theta"])}
        with torch.device("cpu"):
            made = create("dinov3", **plain)
        agree_on_images(found, made)
        if not options.keys() & {"learned", "shared"}:
            return create("dinov3", **(plain | options))
        wave = cast(Waves, made).waves()[0]
        waves = {"table": wave.tolist(), "coordinates": made.coordinates, "interleaved": made.interleaved}
        return create("waves", **(found.shape | waves | options))
    return native_encoding(host, found, config, options)


def defaults(host: Host, found: Found, name: str) -> dict[str, Any]:
    """What an encoding is made with unless somebody says otherwise."""
    shape = found.shape
    if "width" in parameters_of(find(name)):
        shape["width"] = host.config.hidden_size
    if found.kind != "pixels":
        return shape | {"coordinates": "index"}
    sizes = zip(pair(host.config.image_size), pair(host.config.patch_size), strict=True)
    return shape if name == "dinov3" else shape | {"size": tuple(n // p for n, p in sizes)}


def check(host: Host, found: Found, encoding: Encoding) -> None:
    """Refuse what the host cannot use, by a trial of one token."""
    kind, axes = type(host.base).__name__, found.axes
    if encoding.axes != axes:
        raise ValueError(f"positions of {kind} have {'one axis' if axes == 1 else f'{axes} axes'}, got axes={encoding.axes}")
    if found.kind != "pixels" and encoding.coordinates != "index":
        raise ValueError(f"positions of {kind} count tokens: coordinates must be 'index', got {encoding.coordinates!r}")
    layers = len(host.attentions)
    if encoding.layers not in (None, layers):
        raise ValueError(f"{kind} has {layers} layers: layers must be {layers} or None, got {encoding.layers}")
    whole = settle_for_trial(encoding)
    with torch.no_grad():
        place = whole.grid(*[1] * axes, resolution="extrapolate")
        _try(host, found, whole(place), place.device, own_width(found, encoding))


def _try(host: Host, found: Found, code: Code, device: torch.device, depth: int) -> None:
    hidden = getattr(host.config, "hidden_size", None)
    if hidden is not None:
        code.tokens(torch.zeros(1, 1, hidden, device=device))
    own = code if code.layers is None else code[0]
    q, k = (torch.zeros(1, heads, 1, depth, device=device) for heads in (found.first.heads, found.first.kv_heads))
    own.scores(*own.qk(q, k))


def build_saved(said: Mapping[str, Any], host: Host, plain: Any) -> Made:
    """The encoding that a saved config names, or one for each type of layers; what it lacks is the host's."""
    rest = {key: value for key, value in said.items() if key not in (FOLDED, USE)}
    named = {None: rest} if "name" in rest else rest
    made: dict[Any, Any] = {}
    for kind, options in named.items():
        if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
            raise ValueError(f"the config of {host.named} must name an encoding and its options, got {options!r}")
        own = {key: value for key, value in options.items() if key != "name"}
        made[kind] = find(options["name"])(**own)  # a name that a file says imports nothing
    return made.get(None, made)
