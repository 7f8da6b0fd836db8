"""Transformers' own tests of models, run on models that have an encoding: what passes without must pass with one.

python benchmarks/transformers_tests.py --checkout CHECKOUT

CHECKOUT is a checkout of transformers, whose `src` is to be imported (PYTHONPATH=CHECKOUT/src): its tests are run unchanged.
In each model that a test makes, `install` has put the encoding that it has already, once with fixed and once with learned
frequencies; parts that it refuses are left as they are. Tests that fail without any encoding are counted apart.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import torch
import transformers
import tyro

RESULTS = Path(__file__).parents[1] / "results" / "transformers-tests.json"
MODELS = {
    "llama": "LlamaModelTest",
    "qwen3_moe": "Qwen3MoeModelTest",
    "gemma3": "Gemma3TextModelTest",
    "qwen2_5_vl": "Qwen2_5_VLModelTest",
    "dinov3_vit": "Dinov3ModelTest",
}
TESTS = [
    "test_model",
    "test_model_outputs_equivalence",
    "test_determinism",
    "test_forward_signature",
    "test_hidden_states_output",
    "test_attention_outputs",
    "test_inputs_embeds",
    "test_inputs_embeds_matches_input_ids",
    "test_batching_equivalence",
    "test_retain_grad_hidden_states_attentions",
    "test_resize_tokens_embeddings",
    "test_tied_weights_keys",
    "test_save_load",
    "test_load_save_without_tied_weights",
    "test_save_load_keys_to_ignore_on_save",
    "test_from_pretrained_no_checkpoint",
    "test_can_use_safetensors",
    "test_load_with_mismatched_shapes",
    "test_can_init_all_missing_weights",
    "test_init_weights_can_init_buffers",
    "test_keep_in_fp32_modules",
    "test_can_load_with_meta_device_context_manager",
    "test_training",
    "test_training_gradient_checkpointing",
    "test_training_gradient_checkpointing_use_reentrant_false",
    "test_training_gradient_checkpointing_use_reentrant_true",
    "test_problem_types",
    "test_torch_save_load",
    "test_head_pruning",
    "test_greedy_generate",
    "test_greedy_generate_dict_outputs_use_cache",
    "test_sample_generate",
    "test_beam_search_generate",
    "test_generate_with_static_cache",
    "test_generate_continue_from_past_key_values",
    "test_generate_continue_from_inputs_embeds",
    "test_left_padding_compatibility",
    "test_past_key_values_format",
    "test_generate_without_input_ids",
    "test_assisted_decoding_sample",
    "test_prompt_lookup_decoding_stops_at_eos",
    "test_sdpa_can_compile_dynamic",
    "test_generate_compile_model_forward_fullgraph",
    "test_torch_compile_for_training",
    "test_cpu_offload",
    "test_disk_offload_safetensors",
]
WAYS = ("none", "own", "learned")
VARIABLE = "ROPEWALK_INSTALLED"


def pytest_configure(config: Any) -> None:
    """As a plugin of pytest: every model gets an encoding when it has been made."""
    way = os.environ.get(VARIABLE, "none")
    if way == "none":
        return
    from ropewalk.adapters.transformers import install
    from ropewalk.adapters.transformers.embedding import Positions
    from ropewalk.adapters.transformers.hosts import find_hosts
    from ropewalk.adapters.transformers.probing import HostRefusedError

    host = transformers.PreTrainedModel.post_init

    def post_init(self: Any) -> None:
        host(self)
        for found in find_hosts(self):
            if not isinstance(found.rotary, Positions):
                try:
                    install(self, tower=found.path, **({"learned": True} if way == "learned" else {}))
                except HostRefusedError as error:  # in older releases, towers for images
                    print(f"refused: {error}")

    transformers.PreTrainedModel.post_init = post_init


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the tests that are listed, by the names of their functions."""
    items[:] = [item for item in items if item.function.__name__ in TESTS]


def run_tests(checkout: Path, model: str, way: str) -> dict[str, str]:
    """The outcome of each test of a model."""
    file = f"tests/models/{model}/test_modeling_{model}.py"
    paths = [str(Path(__file__).parent), str(checkout / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {VARIABLE: way, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", Path(__file__).stem, "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", f"{file}::{MODELS[model]}", *options]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(f"pytest did not finish: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return {case.attrib["name"]: _outcome(case) for case in Xml.parse(report).iter("testcase")}


def _outcome(case: Any) -> str:
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return kind if kind == "skipped" else f"{kind}: {' '.join(found.attrib.get('message', '').split())[:300]}"
    return "passed"


def main(checkout: Path, models: tuple[str, ...] = tuple(MODELS), path: Path = RESULTS) -> None:
    """Run the tests and write the counts, and all that passes without an encoding and fails with one."""
    rows = json.loads(path.read_text())["models"] if path.exists() else {}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    for model in models:
        found = {way: run_tests(checkout.resolve(), model, way) for way in WAYS}
        passing = [name for name, outcome in found["none"].items() if outcome == "passed"]
        row: dict[str, Any] = {"tests": len(found["none"]), "pass without": len(passing)}
        for way in WAYS[1:]:
            lost = {name: found[way].get(name, "not run") for name in passing if found[way].get(name) != "passed"}
            row |= {f"pass with {way}": len(passing) - len(lost), f"lost with {way}": lost}
        rows[model] = row
        print(model, row)
        said = {"date": datetime.date.today().isoformat(), "versions": versions, "models": rows}
        path.write_text(json.dumps(said, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    tyro.cli(main)
