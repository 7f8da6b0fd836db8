"""The model families of transformers that have rotary embeddings, and the class of each that is judged.

A family is a directory of `transformers/models`. It is listed if one of its `modeling_*.py` files defines a class or a
function with one of the words rotary, rope, rotate in its name (words as in CamelCase or snake_case, so that "property" is
none). This includes files that only compute positions for the rotary embedding of a part
(`get_rope_index`).
"""

import ast
import hashlib
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import transformers
from transformers import PreTrainedModel

WORDS = re.compile(r"(?:Rotary|RoPE|Rope|ROPE|Rotate|(?:^|_)(?:rotary|rope|rotate))(?=$|[_A-Z0-9])")
DEFINED = re.compile(r"^[ \t]*(?:class|def) (\w+)", re.MULTILINE)
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
    texts = [file.read_text() for file in sorted(folder.glob("modeling_*.py"))]
    return sorted({name for text in texts for name in DEFINED.findall(text) if WORDS.search(name)})


def compute_structure(family: str) -> str:
    """What families have in common whose rotary functions and rotary modules' forward have the same code but for names."""
    return hashlib.sha256("\n".join(_rotary_code(MODELS / family)).encode()).hexdigest()[:12]


def _rotary_code(folder: Path) -> list[str]:
    """The code of rotary functions and rotary modules' forward, without docstrings, annotations and decorators, sorted."""
    found: set[str] = set()
    for file in sorted(folder.glob("modeling_*.py")):
        for node in ast.parse(file.read_text()).body:
            rotary = isinstance(node, ast.ClassDef | ast.FunctionDef) and WORDS.search(node.name)
            if rotary and isinstance(node, ast.FunctionDef):
                found.add(_plain_code(node))
            elif rotary and isinstance(node, ast.ClassDef):
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "forward"]
                found |= {_plain_code(method) for method in methods}
    return sorted(found)


def _plain_code(function: ast.FunctionDef) -> str:
    parameters = [argument.arg for argument in function.args.args]
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return f"{parameters}\n" + "\n".join(ast.unparse(statement) for statement in body)


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
