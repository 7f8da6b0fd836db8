"""How frameworks read one and the same dictionary, as their code stood in the summer of 2026.

Each function turns a dictionary, complete but for what a rule has by default, into one that says what the framework does.
`longest` is the config's max_position_embeddings. Keys that a rule does not take are dropped after that, as they do.
"""

from collections.abc import Callable
from typing import Any

from ropewalk.arguments import positive_number
from ropewalk.extension.by_parts import temperature

Spec = dict[str, Any]
Reader = Callable[[Spec, bool, int | None], Spec]

ORIGINAL = "original_max_position_embeddings"
ABSENT = {"mlx": {"llama3": 8192, "yarn": 4096}}
"""What a framework takes for the length of training where a dictionary has none; others take it from the config."""


def transformers(spec: Spec, nested: bool, longest: int | None) -> Spec:
    """As it says, but for `truncate` in a dictionary of one type of layers, which it does not look at, and for dynamic NTK,
    whose length is the config's."""
    if spec["rope_type"] == "dynamic" and longest is not None:
        return {**spec, ORIGINAL: longest}
    return _without(spec, "truncate") if nested and spec["rope_type"] == "yarn" else dict(spec)


def vllm(spec: Spec, nested: bool, longest: int | None) -> Spec:
    """YaRN with attn_factor, which multiplies, and without attention_factor or mscale; one dynamic NTK for all lengths.

    Its models of DeepSeek's kind rename YaRN to deepseek_yarn, which has the mscales.
    """
    if spec["rope_type"] in ("yarn", "deepseek_yarn"):
        return _vllm_yarn(spec)
    if spec["rope_type"] == "longrope":
        return _by_config(spec, longest, "attention_factor", "factor")
    if spec["rope_type"] != "dynamic":
        return dict(spec)
    rest = _without(spec, "alpha", "factor", ORIGINAL)
    if "alpha" in spec:
        return {**rest, "rope_type": "ntk-aware", "factor": spec["alpha"]}
    # One base for every text, that of `factor` times the length of the config.
    factor = _factor(spec)
    return {**rest, "rope_type": "ntk-aware", "factor": factor * factor - (factor - 1)}


def _vllm_yarn(spec: Spec) -> Spec:
    if spec.get("extrapolation_factor", 1) != 1:
        raise ValueError(f"an extrapolation_factor other than 1 is not supported, got {spec['extrapolation_factor']}")
    if spec["rope_type"] == "deepseek_yarn":
        own = _quotient(spec)
    else:
        own = temperature(_factor(spec)) if spec.get("apply_yarn_scaling", True) else 1.0
    rest = _without(spec, "attention_factor", "mscale", "mscale_all_dim", "extrapolation_factor")
    return {**rest, "rope_type": "yarn", "attention_factor": own * spec.get("attn_factor", 1.0)}


def mlx(spec: Spec, nested: bool, longest: int | None) -> Spec:
    """YaRN without attention_factor and truncate, and with mscale 1 and mscale_all_dim 0 where they lack; LongRoPE long."""
    if spec["rope_type"] == "yarn":
        rest = _without(spec, "attention_factor", "mscale", "mscale_all_dim", "truncate")
        return {**rest, "attention_factor": _quotient(spec)}
    if spec["rope_type"] == "longrope":
        rest = _by_config(spec, longest, "attention_factor", "factor", "short_mscale", "long_mscale")
        if "long_factor" not in spec:
            raise ValueError(f"the rule 'longrope' needs long_factor, got {', '.join(spec)}")
        return {**rest, "short_factor": spec["long_factor"]}
    if spec["rope_type"] in ("default", "linear", "llama3", "proportional"):
        return dict(spec)
    raise ValueError(f"mlx-lm has no rope_type {spec['rope_type']!r}")


def _quotient(spec: Spec) -> float:
    """The factor of DeepSeek's code."""
    over, under = (temperature(_factor(spec), spec.get(*pair)) for pair in (("mscale", 1.0), ("mscale_all_dim", 0.0)))
    return over / under


def _by_config(spec: Spec, longest: int | None, *dropped: str) -> Spec:
    """LongRoPE, whose factor is the config's length over that of training, whatever the dictionary says."""
    if longest is None or ORIGINAL not in spec:
        raise ValueError(f"longrope is read by max_position_embeddings and {ORIGINAL}, got {longest} and {', '.join(spec)}")
    return {**_without(spec, *dropped), "factor": max(longest / spec[ORIGINAL], 1.0)}


def _without(spec: Spec, *dropped: str) -> Spec:
    return {key: value for key, value in spec.items() if key not in dropped}


def _factor(spec: Spec) -> float:
    if "factor" not in spec:
        raise ValueError(f"the rule {spec['rope_type']!r} needs a factor, got {', '.join(spec)}")
    return positive_number("factor", spec["factor"])


FRAMEWORKS: dict[str, Reader] = {"transformers": transformers, "vllm": vllm, "mlx": mlx}
