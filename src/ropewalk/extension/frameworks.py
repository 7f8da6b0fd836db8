"""How frameworks read one and the same dictionary, as their code stood in the summer of 2026.

Each function turns a dictionary, complete but for what a rule has by default, into one that says what the framework does.
"""

from collections.abc import Callable
from typing import Any

from ropewalk.extension.parts import temperature

Reader = Callable[[dict[str, Any], bool], dict[str, Any]]

VLLM_YARN = ("attn_factor", "apply_yarn_scaling")


def transformers(spec: dict[str, Any], nested: bool) -> dict[str, Any]:
    """As it says, but for `truncate` in a dictionary of one type of layers, which it does not look at."""
    ignored = ("truncate",) if nested and spec["rope_type"] == "yarn" else ()
    return {key: value for key, value in spec.items() if key not in ignored}


def vllm(spec: dict[str, Any], nested: bool) -> dict[str, Any]:
    """YaRN with attn_factor, which multiplies, and without attention_factor or mscale; one dynamic NTK for all lengths."""
    if spec["rope_type"] == "yarn":
        return _vllm_yarn(spec)
    if spec["rope_type"] != "dynamic":
        return dict(spec)
    rest = {key: value for key, value in spec.items() if key not in ("alpha", "factor", "original_max_position_embeddings")}
    if "alpha" in spec:
        return {**rest, "rope_type": "ntk-aware", "factor": spec["alpha"]}
    # One base for every text, that of `factor` times the length of the config.
    factor = _factor(spec)
    return {**rest, "rope_type": "ntk-aware", "factor": factor * factor - (factor - 1)}


def _vllm_yarn(spec: dict[str, Any]) -> dict[str, Any]:
    if spec.get("extrapolation_factor", 1) != 1:
        raise ValueError(f"an extrapolation_factor other than 1 is not supported, got {spec['extrapolation_factor']}")
    dropped = ("attention_factor", "mscale", "mscale_all_dim", "extrapolation_factor", *VLLM_YARN)
    own = temperature(_factor(spec)) if spec.get("apply_yarn_scaling", True) else 1.0
    rest = {key: value for key, value in spec.items() if key not in dropped}
    return {**rest, "attention_factor": own * spec.get("attn_factor", 1.0)}


def mlx(spec: dict[str, Any], nested: bool) -> dict[str, Any]:
    """YaRN without attention_factor and truncate, and with mscale 1 and mscale_all_dim 0 where they lack; LongRoPE long."""
    if spec["rope_type"] == "yarn":
        dropped = ("attention_factor", "mscale", "mscale_all_dim", "truncate")
        rest = {key: value for key, value in spec.items() if key not in dropped}
        each = [temperature(_factor(spec), spec.get(*pair)) for pair in (("mscale", 1), ("mscale_all_dim", 0))]
        return {**rest, "attention_factor": each[0] / each[1]}
    if spec["rope_type"] == "longrope":
        return {**spec, "short_factor": spec["long_factor"]}
    if spec["rope_type"] in ("default", "linear", "llama3", "proportional"):
        return dict(spec)
    raise ValueError(f"mlx-lm has no rope_type {spec['rope_type']!r}")


def _factor(spec: dict[str, Any]) -> float:
    if "factor" not in spec:
        raise ValueError(f"the rule {spec['rope_type']!r} needs a factor, got {', '.join(spec)}")
    return float(spec["factor"])


FRAMEWORKS: dict[str, Reader] = {"transformers": transformers, "vllm": vllm, "mlx": mlx}
