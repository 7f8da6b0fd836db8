"""Rules from the dictionaries of model configs, in transformers' spelling. What is not known is an error."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from ropewalk.arguments import describe, positive, positive_number
from ropewalk.extension.by_parts import ByParts, Llama3, YaRN
from ropewalk.extension.frameworks import ABSENT, FRAMEWORKS, ORIGINAL
from ropewalk.extension.image_rules import AxesByParts, AxesLinear, AxesNTK, AxesRule, AxesYaRN
from ropewalk.extension.longrope import LongRoPE, YarnArticle
from ropewalk.extension.rule import Rule, Specified
from ropewalk.extension.scaling import DynamicNTK, Linear, NTKAware, Proportional
from ropewalk.validation import check_choice, describe_unknown

Spec = Mapping[str, Any]
Kind = TypeVar("Kind", bound=Specified)

RULES: dict[str, type[Rule]] = {
    rule.rope_type: rule
    for rule in (Linear, NTKAware, DynamicNTK, ByParts, YaRN, Llama3, LongRoPE, Proportional, YarnArticle)
}
AXES: dict[str, type[AxesRule]] = {rule.rope_type: rule for rule in (AxesLinear, AxesNTK, AxesByParts, AxesYaRN)}
ALIASES = {"su": "longrope", "deepseek_yarn": "yarn"}  # of early Phi-3 configs, and of vLLM's
MODEL_KEYS = ("rope_theta", "partial_rotary_factor")  # which are of the encoding, not of the rule
TRAINED = ("yarn", "deepseek_yarn", "llama3", "longrope")  # whose dictionary has the length of training


def parse(spec: Rule | Spec | str | None) -> Rule | None:
    """The rule of a specification: a rule itself, its name, or a dictionary with `rope_type` (or `type`) and its options.

    None and the type "default" are no rule. Keys whose value is None count as not there.
    """
    return spec if spec is None or isinstance(spec, Rule) else _read(spec, RULES, "a rule")


def parse_axes(spec: AxesRule | Spec | str | None) -> AxesRule | None:
    """The same of a rule for images and volumes."""
    return spec if spec is None or isinstance(spec, AxesRule) else _read(spec, AXES, "a rule for axes")


def _read(spec: Any, rules: Mapping[str, type[Kind]], noun: str) -> Kind | None:
    if not isinstance(spec, Mapping | str):
        raise TypeError(f"an extension must be {noun}, its name or a dictionary, got {spec!r}")
    given = (
        {"rope_type": spec} if isinstance(spec, str) else {key: value for key, value in spec.items() if value is not None}
    )
    name = ALIASES.get(_type_of(given), _type_of(given))
    given = {key: value for key, value in given.items() if key not in ("rope_type", "type")}
    if name == "default":
        _refuse_unknown("default", given, ())
        return None
    if name not in rules:
        raise ValueError(describe_unknown("rope_type", [name], ["default", *rules]))
    return _made(rules[name], given)


def options(
    parameters: Spec | None,
    *,
    head_dim: int,
    max_position_embeddings: int | None = None,
    original_max_position_embeddings: int | None = None,
    rope_theta: float | None = None,
    partial_rotary_factor: float | None = None,
    layer_type: str | None = None,
    framework: str | None = None,
) -> dict[str, Any]:
    """What `rw.create("rope", head_dim=head_dim, …)` takes for the `rope_parameters` or `rope_scaling` of a model config.

    max_position_embeddings           The config's: what a rule needs and the dictionary lacks comes of it (transformers).
    original_max_position_embeddings  The config's, where it has one beside the dictionary, as Phi-3's: it comes first,
                                      unless the dictionary is that of one type of layers.
    rope_theta                        The config's, where the dictionary has none (before transformers 5); else 10,000.
    partial_rotary_factor             The same: the share of the channels that turn; else all.
    layer_type                        Whose, where the dictionary has one for each type of layer.
    framework                         Read it as "transformers", "vllm" or "mlx" does, faults included, among them that keys
                                      that they do not know are passed over; None reads what it says.
    """
    if framework is not None:
        check_choice("framework", framework, FRAMEWORKS)
    positive("head_dim", head_dim)
    for name, value in (
        ("max_position_embeddings", max_position_embeddings),
        ("original_max_position_embeddings", original_max_position_embeddings),
    ):
        if value is not None:
            positive(name, value)
    rope_theta = None if rope_theta is None else positive_number("rope_theta", rope_theta)
    if partial_rotary_factor is not None:
        partial_rotary_factor = _check_share(partial_rotary_factor)
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"rope_parameters must be a dictionary, got {describe(parameters)}")
    if not all(isinstance(key, str) for key in parameters or {}):
        raise TypeError(f"keys of rope_parameters must be strings, got {describe(parameters)}")
    chosen, nested = _of_layer(parameters or {}, layer_type)
    chosen = {key: value for key, value in chosen.items() if value is not None}
    chosen["rope_type"] = _type_of(chosen)
    chosen.pop("type", None)
    if framework != "vllm" or chosen["rope_type"] == "su":
        chosen["rope_type"] = ALIASES.get(chosen["rope_type"], chosen["rope_type"])
    if original_max_position_embeddings is not None and chosen["rope_type"] in TRAINED:
        beside = {ORIGINAL: original_max_position_embeddings}
        chosen = {**beside, **chosen} if nested else {**chosen, **beside}
    if (length := ABSENT.get(framework or "", {}).get(chosen["rope_type"])) is not None:
        chosen = {ORIGINAL: length, **chosen}
    chosen = _completed(chosen, max_position_embeddings)
    if framework is not None:
        chosen = _known(FRAMEWORKS[framework](chosen, nested, max_position_embeddings))
    base = positive_number("rope_theta", chosen.pop("rope_theta", rope_theta or 10000.0))
    found: dict[str, Any] = {"base": base}
    if chosen["rope_type"] != "proportional":
        share = chosen.pop("partial_rotary_factor", partial_rotary_factor)
        found |= {} if share is None else {"rotary_dim": int(head_dim * _check_share(share))}
    elif partial_rotary_factor is not None:
        chosen = {"partial_rotary_factor": partial_rotary_factor, **chosen}
    rule = parse(chosen)
    return found | ({} if rule is None else {"extension": rule.spec()})


def _check_share(share: float) -> float:
    if positive_number("partial_rotary_factor", share) > 1:
        raise ValueError(f"partial_rotary_factor must be at most 1, got {share}")
    return share


def _made(kind: type[Kind], given: dict[str, Any]) -> Kind:
    known = {entry.name: entry for entry in fields(kind)}
    _refuse_unknown(kind.rope_type, given, tuple(known))
    missing = [name for name, entry in known.items() if entry.default is MISSING and name not in given]
    if missing:
        raise ValueError(f"the rule {kind.rope_type!r} needs {', '.join(missing)}, got {', '.join(given) or 'nothing'}")
    return kind(**given)


def _known(spec: dict[str, Any]) -> dict[str, Any]:
    """A dictionary without the keys that its rule does not take, as frameworks pass them over."""
    kind = RULES.get(spec["rope_type"])
    kept = {"rope_type", *MODEL_KEYS, *(entry.name for entry in fields(kind))} if kind else {"rope_type", *MODEL_KEYS}
    return {key: value for key, value in spec.items() if key in kept}


def _refuse_unknown(name: str, given: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = [key for key in given if key not in known]
    if not unknown:
        return
    hint = ""
    if set(unknown) & set(MODEL_KEYS):
        hint = "; extension.options takes a config's whole dictionary"
    if "attn_factor" in unknown:
        hint = "; attn_factor is vLLM's, to be read with framework='vllm'"
    raise ValueError(f"the rule {name!r} takes {', '.join(known) or 'nothing'}, got {', '.join(unknown)}{hint}")


def _type_of(spec: Spec) -> str:
    both = [spec[key] for key in ("rope_type", "type") if spec.get(key) is not None]
    if len(both) > 1 and both[0] != both[1]:
        raise ValueError(f"rope_type and type are two names of one thing, got {spec['rope_type']!r} and {spec['type']!r}")
    if both and not isinstance(both[0], str):
        raise ValueError(f"rope_type must be a name, got {both[0]!r}")
    return both[0] if both else "default"


def _of_layer(parameters: Spec, layer_type: str | None) -> tuple[dict[str, Any], bool]:
    """The dictionary of one type of layers, and whether there are several."""
    values = list(parameters.values())
    nested = any(isinstance(value, Mapping) for value in values)
    nested = nested and all(value is None or isinstance(value, Mapping) for value in values)
    if not nested:
        return dict(parameters), False
    if layer_type is None:
        raise ValueError(f"layer_type must be one of {', '.join(parameters)}: this config has parameters for each, got None")
    if layer_type not in parameters:
        raise ValueError(describe_unknown("layer_type", [layer_type], parameters))
    if parameters[layer_type] is None:
        raise ValueError(f"layers of type {layer_type!r} have no rotary embedding in this config")
    return dict(parameters[layer_type]), True


def _completed(spec: dict[str, Any], longest: int | None) -> dict[str, Any]:
    """The dictionary with what transformers takes from the config's max_position_embeddings."""
    name = spec["rope_type"]
    if longest is None or name not in ("dynamic", *TRAINED):
        return spec
    spec = {ORIGINAL: longest, **spec}
    ratio = max(longest / positive_number(ORIGINAL, spec[ORIGINAL]), 1.0)
    return {"factor": ratio, **spec} if name in ("yarn", "deepseek_yarn", "longrope") else spec
