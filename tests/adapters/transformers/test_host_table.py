"""The table of transformers' families agrees with what is seen, and each criterion of its judge rejects a mutant."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from packaging.version import Version
from transformers.models.llama import modeling_llama

from ropewalk import create
from ropewalk.adapters import transformers as adapter

ROOT = Path(__file__).parents[3]
TABLE = json.loads((ROOT / "results" / "transformers-hosts.json").read_text())
ROWS = {row["family"]: row for row in TABLE["rows"]}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def hosts():
    """The modules of benchmarks that build tiny models and judge them."""
    if Version(transformers.__version__) < Version(TABLE["versions"]["transformers"]):
        pytest.skip(f"tiny models are made for transformers {TABLE['versions']['transformers']} and later")
    names = [path.stem for kind in ("host_*.py", "tiny_*.py") for path in sorted((ROOT / "benchmarks").glob(kind))]
    transformers.logging.disable_progress_bar()
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    sys.path.remove(str(ROOT / "benchmarks"))
    for name in names:
        sys.modules.pop(name)
    transformers.logging.enable_progress_bar()


def pick_families():
    """The cheapest family of each structure that counts, and how many families have it."""
    counting = [row for row in TABLE["rows"] if row["status"] == "counts"]
    shared = {row["structure"]: sum(other["structure"] == row["structure"] for other in counting) for row in counting}
    cheapest = {row["structure"]: row for row in sorted(counting, key=lambda row: -row["cpu seconds"])}
    return {row["family"]: shared[structure] for structure, row in cheapest.items()}


PICKED = pick_families()


@pytest.mark.exhaustive("hosts", kept=lambda family: PICKED[family] > 2)
@pytest.mark.parametrize("family", sorted(PICKED))
def test_a_family_of_each_structure_counts_as_the_table_claims(hosts, family):
    verdict = hosts.host_criteria.judge_family(family, adapter)
    assert (verdict.status, verdict.reason) == ("counts", "")


def test_the_table_lists_every_family(hosts):
    if transformers.__version__ != TABLE["versions"]["transformers"]:
        pytest.skip(f"the table is of transformers {TABLE['versions']['transformers']}")
    listed = hosts.host_families.list_families()
    assert set(ROWS) == set(listed)
    assert TABLE["families"] == len(listed)
    structures = {family: hosts.host_families.compute_structure(family) for family in ("llama", "gemma3", "glm", "sam3")}
    assert structures == {family: ROWS[family]["structure"] for family in structures}


def test_rows_that_do_not_count_give_a_reason():
    assert sum(row["status"] == "counts" for row in TABLE["rows"]) == TABLE["counts"]["counts"]
    assert [row["family"] for row in TABLE["rows"] if (row["status"] == "counts") != (row["reason"] == "")] == []


@pytest.mark.parametrize(
    ("name", "rotary"),
    [
        ("LlamaRotaryEmbedding", True),
        ("apply_rotary_pos_emb", True),
        ("DINOv3ViTRopePositionEmbedding", True),
        ("Sam2VideoRoPEAttention", True),
        ("rotate_half", True),
        ("get_rope_index", True),
        ("_set_cos_sin_property", False),
        ("europe", False),
        ("Property", False),
    ],
)
def test_words_of_names(hosts, name, rotary):
    assert (hosts.host_families.WORDS.search(name) is not None) == rotary


# Tiny models.


def test_a_tiny_model_is_the_same_each_time(hosts):
    one, other = (hosts.tiny_models.build_model("qwen3_next").state_dict() for _ in range(2))
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_tiny_config_keeps_each_kind_of_layer_and_the_sections_of_axes(hosts):
    make = hosts.tiny_configs.make_tiny
    hybrid = make(transformers.Qwen3NextConfig)
    assert set(hybrid.layer_types) == {"linear_attention", "full_attention"}
    assert hybrid.num_hidden_layers == len(hybrid.layer_types) <= 4
    vision = make(transformers.Qwen2_5_VLConfig).text_config
    assert sum(vision.rope_parameters["mrope_section"]) == vision.hidden_size // vision.num_attention_heads // 2
    assert hosts.tiny_configs.share_pairs([16, 24, 24], 8) == [2, 3, 3]


# Mutants of the adapter: each fails one criterion, on a model where the adapter itself holds all.


def change_frequency(model, factor=1.01):
    """The largest frequency of the first encoding in a model, changed."""
    encoding = adapter.installed(model)
    with torch.no_grad():
        encoding.frequency.view(-1)[0] *= factor
    return model


def add_decoy(model, learned):
    """An encoding in a model, that nothing uses."""
    model.decoy = create("rope", head_dim=16, heads=4, coordinates="index", learned=learned)
    return model


def install_wrong(model, **options):
    return change_frequency(adapter.install(model, **options))


def install_nothing(model, **options):
    return model


def install_unused(model, **options):
    return add_decoy(adapter.install(model, **options), learned=False)


def install_fixed(model, learned=False):
    return adapter.install(model)


def install_undriven(model, learned=False):
    adapter.install(model, learned=learned)
    return add_decoy(model, learned=True) if learned else model


def install_forgetful(model, learned=False):
    """Saves what was installed, not what was learned."""
    adapter.install(model, learned=learned)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    if learned:
        model._register_state_dict_hook(lambda module, state, *_: state.update(saved))
    return model


def uninstall_moved(model):
    adapter.uninstall(model)
    with torch.no_grad():
        model.lm_head.weight.view(-1)[0] += 1e-4
    return model


def uninstall_attribute(model):
    adapter.uninstall(model).model.layers[0].trace = 1
    return model


def uninstall_hook(model):
    adapter.uninstall(model).model.register_forward_pre_hook(lambda *_: None)
    return model


def uninstall_config(model):
    adapter.uninstall(model).config.trace = 1
    return model


def uninstall_class(model):
    adapter.uninstall(model)
    layer = model.model.layers[0]
    layer.__class__ = type("Other", (type(layer),), {})
    return model


def uninstall_global(model):
    own = modeling_llama.rotate_half
    modeling_llama.rotate_half = lambda x: own(x)
    return adapter.uninstall(model)


INSTALLS = {
    "agreement": (install_wrong,),
    "own": (install_nothing,),
    "wired": (install_unused,),
    "learned": (install_fixed, install_undriven, install_forgetful),
}
UNINSTALLS = (uninstall_moved, uninstall_attribute, uninstall_hook, uninstall_config, uninstall_class, uninstall_global)
MUTANTS = [
    *((criterion, install, adapter.uninstall) for criterion, installs in INSTALLS.items() for install in installs),
    *(("traceless", adapter.install, uninstall) for uninstall in UNINSTALLS),
]


@pytest.mark.parametrize(("criterion", "install", "uninstall"), MUTANTS)
def test_each_criterion_rejects_its_mutant(hosts, monkeypatch, criterion, install, uninstall):
    monkeypatch.setattr(modeling_llama, "rotate_half", modeling_llama.rotate_half)  # which one mutant replaces
    verdict = hosts.host_criteria.judge_family("llama", SimpleNamespace(install=install, uninstall=uninstall))
    assert verdict.status == f"fails {criterion}", verdict.reason


def test_refusals_are_no_failures(hosts):
    def refuse(model, **options):
        raise TypeError("no such model")

    verdict = hosts.host_criteria.judge_family("llama", SimpleNamespace(install=refuse, uninstall=adapter.uninstall))
    assert (verdict.status, verdict.reason) == ("refused", "no such model")


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_masked_logits_hide_no_difference(hosts, value):
    lowest = torch.finfo(torch.float32).min
    compute = hosts.host_criteria.compute_difference
    assert compute(torch.tensor([1.0, 2.0, lowest]), torch.tensor([1.0, 2.0, lowest])) == 0
    assert compute(torch.tensor([1.0, 2.5, lowest]), torch.tensor([1.0, 2.0, lowest])) == 0.25
    assert not compute(torch.tensor([1.0, 2.0, value]), torch.tensor([1.0, 2.0, lowest])) <= 1
    assert not compute(torch.tensor([1.0, value, lowest]), torch.tensor([1.0, 2.0, lowest])) < 1
