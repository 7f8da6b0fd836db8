"""The model families of transformers that have rotary embeddings, and the class of each that is judged.

A family is a directory of `transformers/models`. It is listed if one of its `modeling_*.py` files defines a class or a
function with one of the words rotary, rope, rotate in its name (words as in CamelCase or snake_case, so that "property" is
none), by the syntax tree of the file. This includes files that only compute positions for the rotary embedding of a part
(`get_rope_index`).
"""

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import transformers
from transformers import PreTrainedModel

WORDS = re.compile(r"(?:^|_|(?<=[a-z0-9]))(?:Rotary|rotary|RoPE|Rope|ROPE|rope|Rotate|rotate)(?=$|_|[A-Z0-9])")
MODELS = Path(transformers.__file__).parent / "models"
# The class that is judged where the order of `ENDINGS` finds another or none.
CHOSEN = {
    "clvp": "ClvpEncoder",
    "eomt_dinov3": "EomtDinov3ForUniversalSegmentation",
    "evolla": "EvollaForProteinText2Text",
    "gemma3n": "Gemma3nForCausalLM",
    "idefics": "IdeficsForVisionText2Text",
    "lightglue": "LightGlueForKeypointMatching",
    "moshi": "MoshiForCausalLM",
    "nemotron_asr_streaming": "NemotronAsrStreamingEncoder",
    "openai_privacy_filter": "OpenAIPrivacyFilterForTokenClassification",
    "pe_audio": "PeAudioEncoder",
    "pe_audio_video": "PeAudioVideoEncoder",
    "pe_video": "PeVideoEncoder",
    "qwen2_5_omni": "Qwen2_5OmniThinkerForConditionalGeneration",
    "qwen3_omni_moe": "Qwen3OmniMoeThinkerForConditionalGeneration",
    "seamless_m4t": "SeamlessM4TSpeechEncoder",
}
ENDINGS = ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForCTC", "Model")


@cache
def list_families() -> dict[str, list[str]]:
    """Every directory that is listed, with the names that list it."""
    found = {folder.name: _rotary_names(folder) for folder in sorted(MODELS.iterdir()) if folder.is_dir()}
    return {family: names for family, names in found.items() if names}


def _rotary_names(folder: Path) -> list[str]:
    names: set[str] = set()
    for file in sorted(folder.glob("modeling_*.py")):
        nodes = ast.walk(ast.parse(file.read_text()))
        names |= {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return sorted(name for name in names if WORDS.search(name))


def choose_class(family: str) -> type[PreTrainedModel]:
    """The class of a family that is judged: the first by `ENDINGS`, of those the shortest name."""
    classes = _model_classes(family)
    if family in CHOSEN:
        return classes[CHOSEN[family]]
    for ending in ENDINGS:
        found = sorted((name for name in classes if name.endswith(ending)), key=lambda name: (len(name), name))
        if found:
            return classes[found[0]]
    raise LookupError(f"{family}: no class of {sorted(classes)} ends with one of {ENDINGS}; enter one in CHOSEN")


def _model_classes(family: str) -> dict[str, type[PreTrainedModel]]:
    classes: dict[str, type[PreTrainedModel]] = {}
    for file in sorted((MODELS / family).glob("modeling_*.py")):
        module = importlib.import_module(f"transformers.models.{family}.{file.stem}")
        for name, value in inspect.getmembers(module, inspect.isclass):
            if issubclass(value, PreTrainedModel) and value.__module__ == module.__name__ and "forward" in dir(value):
                classes[name] = value
    return {name: value for name, value in classes.items() if not name.endswith("PreTrainedModel")}
