import ast
import importlib
import importlib.metadata
import importlib.resources
import inspect
import json
import math
import pickle
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk import factory
from ropewalk.encoding import Encoding, parameters_of
from ropewalk.encodings import REGISTRY

CLASSES = [kind.__name__ for kind in REGISTRY.values()]
CODES = ["Basis", "Bias", "Chain", "Code", "ContentBias", "Offset", "Rotation", "Sphere", "Turn"]
REST = [
    "Encoding",
    "Traits",
    "attend",
    "attend_qkv",
    "chain",
    "create",
    "fold",
    "fold_into",
    "names",
    "register",
    "validate",
]

FILES = sorted(path.stem for path in Path(rw.__file__).with_name("encodings").glob("*.py") if path.stem != "__init__")
# How an op is computed is no public matter: its package says what it does.
HIDDEN = ("reference", "kernel")
MODULES = sorted(m.name for m in pkgutil.walk_packages(rw.__path__, "ropewalk.") if not m.name.endswith(HIDDEN))
EXAMPLES = [
    pytest.param(example, id=f"{name}-{i}") for name, kind in REGISTRY.items() for i, example in enumerate(kind.examples())
]


def defined_in(module):
    """The public classes and functions that a module defines itself."""
    return [
        thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__ == module.__name__
    ]


def test_names_that_were_there_stay():
    first = "alibi axial comrope-ap comrope-ld learned-ape liere mixed none rope sincos spherical t5-bias uniform"
    third = "axial-spherical"
    second = "dinov3 golden mrope spherical-symmetric string-cayley string-circulant swin-bias transformer-xl xpos"
    assert {*first.split(), *second.split(), third} <= set(rw.names())


def test_public_names_are_pinned():
    found = [name for name in dir(rw) if not name.startswith("_") and not inspect.ismodule(getattr(rw, name))]
    assert sorted(found) == sorted(CLASSES + CODES + REST)


def test_public_modules():
    for module in (rw.extension, rw.layouts, rw.positions, rw.spectra, rw.theory):
        assert isinstance(module, types.ModuleType)


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_an_encoding(file):
    module = importlib.import_module(f"ropewalk.encodings.{file}")
    (kind,) = [thing for thing in defined_in(module) if inspect.isclass(thing) and issubclass(thing, Encoding)]
    assert REGISTRY[kind.name] is kind
    assert factory.find(file) is kind
    assert kind.__name__.lower() == file.replace("_", "")
    assert getattr(rw, kind.__name__) is kind


def test_no_encoding_lacks_a_file():
    assert len(FILES) == len(REGISTRY)
    assert all(kind.__module__.startswith("ropewalk.encodings.") for kind in REGISTRY.values())


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith("ropewalk.lab.")])
def test_everything_public_says_what_it_is(name):
    for thing in defined_in(importlib.import_module(name)):
        assert thing.__doc__, f"{name}.{thing.__name__} has no docstring"
        # A dataclass without a docstring is given its signature for one.
        assert not thing.__doc__.startswith(f"{thing.__name__}("), f"{name}.{thing.__name__} has no docstring"


@pytest.mark.parametrize("kind", [value for name in dir(rw) if inspect.isclass(value := getattr(rw, name))])
def test_every_public_method_says_what_it_does(kind):
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        ours = method.__module__.startswith("ropewalk") and not name.startswith("_")  # transformers adds to every nn.Module
        assert not ours or inspect.getdoc(method), f"{kind.__name__}.{name} has no docstring"


@pytest.mark.parametrize("kind", REGISTRY.values(), ids=lambda kind: kind.name)
def test_a_class_says_where_it_comes_from(kind):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind.name)
    assert re.fullmatch(r"arXiv:\d{4}\.\d{4,5}|https://\S+", kind.paper)
    assert kind.allowed_axes is None or kind.default_axes in kind.allowed_axes
    assert list(kind.examples())


@pytest.mark.parametrize(("kind", "variant"), [(kind, variant) for kind in REGISTRY.values() for variant in kind.variants])
def test_variants_can_be_built(kind, variant):
    size = {1: (7,), 2: (3, 5), 3: (2, 3, 5)}[kind.default_axes]
    encoding = rw.create(kind.name, head_dim=48, size=size, variant=variant)
    assert encoding.variant == variant
    assert encoding.coordinates == kind.variants[variant]["coordinates"]
    assert encoding.grid(*size).shape == (math.prod(size), kind.default_axes)


@pytest.mark.parametrize("encoding", EXAMPLES)
def test_config_is_json_that_builds_the_like(encoding):
    config = encoding.config()
    again = rw.create(**json.loads(json.dumps(config)))
    assert type(again) is type(encoding)
    assert again.config() == config
    assert repr(again) == repr(encoding)
    shapes = [{name: value.shape for name, value in e.named_parameters()} for e in (encoding, again)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(("wrong", "right"), [("sphericle", "spherical"), ("com-rope-ld", "comrope-ld"), ("Axail", "axial")])
def test_unknown_names_bring_a_near_one_to_mind(wrong, right):
    with pytest.raises(
        ValueError, match=f"Unknown encoding '{wrong}'; expected one of alibi, axial.*Did you mean '{right}'"
    ):
        rw.create(wrong, head_dim=48)


def test_unknown_options_bring_the_known_ones():
    with pytest.raises(TypeError, match=r"'bass', 'blok' of axial; .*head_dim, heads.*learned.*Did you mean 'base'"):
        rw.create("axial", head_dim=48, bass=1, blok=2)


@pytest.mark.parametrize("name", REGISTRY)
def test_options_have_one_spelling(name):
    options = list(parameters_of(factory.find(name)))
    assert options[:8] == ["head_dim", "heads", "kv_heads", "axes", "layers", "size", "variant", "coordinates"]
    assert set(options[8:]) <= {
        *("base", "block", "interleaved", "learned", "scale", "shared", "std", "width", "rotary_dim", "proportional"),
        *("buckets", "max_distance", "bidirectional", "interpolation", "outside", "class_token"),
        *("fastest", "slowest", "still", "min_period", "max_period", "sections", "gamma", "scale_base"),
        *("extension", "length", "angle", "ordered", "frequencies", "table", "factor"),
    }


def test_hyphens_and_underscores_are_alike():
    for spelling in ("comrope-ld", "comrope_ld", "ComRoPE_LD"):
        assert type(rw.create(spelling, head_dim=48)) is rw.ComRoPELD


def test_nope_is_none():
    assert type(rw.create("nope", head_dim=48)) is type(rw.create("none", head_dim=48)) is rw.NoPE


def test_version_is_that_of_the_package():
    assert rw.__version__ == importlib.metadata.version("ropewalk")


def test_types_are_shipped():
    assert importlib.resources.files("ropewalk").joinpath("py.typed").is_file()


def test_importing_it_imports_torch_alone():
    program = """
import sys, json
import torch
before = set(sys.modules)
import ropewalk
print(json.dumps([name for name in set(sys.modules) - before if name.partition(".")[0] != "ropewalk"]))
print(json.dumps([name for name in sys.modules if name.startswith("ropewalk.")]))
"""
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    others, ours = map(json.loads, answer.splitlines())
    roots = {name.partition(".")[0] for name in others}
    assert roots <= {"torch", *sys.stdlib_module_names}
    assert not {"ropewalk.cli", "ropewalk.lab", "ropewalk.testing"} & set(ours)


def test_names_are_imported_when_they_are_used():
    program = """
import sys
import ropewalk as rw
assert "torch" not in sys.modules
assert {"create", "positions", "Axial", "__version__"} <= set(dir(rw))
assert not hasattr(rw, "Axail") and not hasattr(rw, "_private")
assert rw.positions.grid(2, 3).shape == (6, 2)
space = {}
exec("from ropewalk import *", space)
assert space["create"] is rw.create and space["Axial"] is rw.Axial and space["theory"] is rw.theory
assert "importlib" not in space
assert isinstance(rw.create("axial", head_dim=8), rw.Axial)
assert rw.factory.find("axial") is rw.Axial
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_attributes_name_the_module():
    with pytest.raises(AttributeError, match="module 'ropewalk' has no attribute 'craete'"):
        rw.craete  # noqa: B018


def test_type_checkers_see_every_public_name():
    tree = ast.parse(Path(rw.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    shown = {alias.asname for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names} - {None}
    assert shown | set(CLASSES) == set(rw.__all__)


@pytest.mark.parametrize("example", [rw.Axial(head_dim=8), rw.create("alibi", head_dim=8, heads=2)])
def test_pickling(example):
    again = pickle.loads(pickle.dumps(example))
    assert type(again) is type(example)
    assert again.config() == example.config()


# Encodings of others

OWN = """
from ropewalk import Axial

class Diagonal(Axial):
    '''Of another package.'''
    name = "diagonal"

class Stranger:
    '''No encoding.'''
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_encodings.py").write_text(OWN)
    yield "own_encodings:Diagonal"
    sys.modules.pop("own_encodings", None)


@pytest.fixture
def registry(monkeypatch):
    for name, kind in REGISTRY.items():  # put back what a test adds or replaces
        monkeypatch.setitem(REGISTRY, name, kind)
    before = set(REGISTRY)
    yield REGISTRY
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def test_an_encoding_of_another_module_is_created(own):
    made = rw.create(own, head_dim=8, heads=2)
    assert (type(made).__name__, made.heads) == ("Diagonal", 2)
    assert type(rw.chain(made, rw.create("alibi", head_dim=8, heads=2, axes=2))).__name__ == "Chained"
    for wrong, reason in (
        ("own_encodings:Nobody", "Unknown class 'Nobody'"),
        ("own_encodings:Stranger", "must be a subclass"),
    ):
        with pytest.raises(ValueError, match=reason):
            rw.create(wrong, head_dim=8)
    with pytest.raises(ValueError, match="'nowhere' cannot be imported: ModuleNotFoundError"):
        rw.create("nowhere:Diagonal", head_dim=8)


def test_a_name_from_a_file_imports_nothing(own):
    with pytest.raises(
        ValueError, match="defined outside of ropewalk: import own_encodings first, or pass --import own_enc"
    ):
        factory.from_config({"name": own, "head_dim": 8})
    with pytest.raises(ValueError, match="defined outside of ropewalk"):
        rw.create("chain", head_dim=8, parts=[{"name": own}, {"name": "alibi"}])
    assert "own_encodings" not in sys.modules
    importlib.import_module("own_encodings")
    assert type(factory.from_config({"name": own, "head_dim": 8})).__name__ == "Diagonal"


def test_names_have_one_spelling(own, registry):
    assert factory.canonical_name("Learned_APE") == "learned-ape"
    assert factory.canonical_name("ropewalk.encodings.axial:Axial") == "axial"
    rw.register(factory.find(own, load=True))
    assert factory.canonical_name(own) == own
    assert factory.canonical_name("diagonal") == "diagonal"


def test_registered_encodings_have_a_name(registry):
    @rw.register
    class Slanted(rw.Axial):
        """Of a notebook."""

        name = "slanted"

    assert type(rw.create("slanted", head_dim=8)) is Slanted
    assert "slanted" in rw.names()
    with pytest.raises(ValueError, match="Did you mean 'slanted'"):
        rw.create("slante", head_dim=8)
    again = type("Slanted", (rw.Axial,), {"name": "slanted", "__qualname__": Slanted.__qualname__, "__module__": __name__})
    assert rw.register(again) is again is factory.find("slanted")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("axial", "the name 'axial' is taken by ropewalk.encodings.axial:Axial"),
        ("chain", "the name 'chain' is taken by ropewalk.factory:Chained"),
        ("nope", "the name 'nope' is taken by ropewalk.encodings.nope:NoPE"),
        ("Own Name", "must be lower-case letters and digits"),
        ("a:b", "must be lower-case letters and digits"),
        (None, "must be lower-case letters and digits"),
    ],
)
def test_names_that_cannot_be_registered(registry, name, reason):
    before = dict(registry)
    with pytest.raises(ValueError, match=reason):
        rw.register(type("Own", (rw.Axial,), {"name": name}))
    assert registry == before


def test_what_is_no_encoding_is_not_registered(registry):
    with pytest.raises(TypeError, match="takes a subclass of"):
        rw.register(int)
    with pytest.raises(TypeError, match="Unfinished is abstract: it must define encode, examples, initial, traits"):
        rw.register(type("Unfinished", (rw.Encoding,), {"name": "unfinished"}))
