"""What `ropewalk theory` says, against what is computed without it."""

import itertools
import json
import math
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ropewalk as rw
from ropewalk import cli, theory
from ropewalk.encodings import REGISTRY
from ropewalk.lab.inspect import theory_facts
from ropewalk.lab.inspect.theory_facts import (
    TokenShift,
    analyze_encoding,
    convert_to_float64,
    format_residual,
    measure_shift_change,
)
from ropewalk.models import ViT
from tests.support.patch_everywhere import patch_everywhere

SMALL = ["head_dim=12", "heads=2"]
OPTIONS = {"comrope-ap": ["block=3"], "comrope-ld": ["block=4"], "liere": ["block=4"], "mrope": ["size=2,3,4"]}
TURNING = [name for name, kind in REGISTRY.items() if hasattr(kind, "generators")]
RELATIVE = [name for name in TURNING if name not in ("liere", "spherical", "spherical-symmetric")]
PNG, SVG = b"\x89PNG", b"<?xml"

STRANGERS = """
from dataclasses import replace
from ropewalk import LieRE

class Liar(LieRE):
    '''Says that it is relative.'''
    name = "liar"

    @property
    def traits(self):
        return replace(super().traits, relative=(True, True))
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(capsys, *words):
    status = cli.main(["theory", *words])
    out, err = capsys.readouterr()
    return status, out, err


def document(capsys, *words):
    status, out, err = run(capsys, *words, "--json")
    assert (status, err) == (0, "")
    return json.loads(out, parse_constant=pytest.fail)


def told(capsys, *words):
    """The words of each label, those of several lines in one."""
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    found, label = {}, ""
    for line in out.splitlines():
        label = line[:12].strip() or label
        found[label] = f"{found.get(label, '')} {line[13:]}".strip()
    return found


def refusal(capsys, *words):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("ropewalk: ")
    assert err.count("\n") == 1
    assert not Path("out").exists()
    return err


def small(name, **options):
    return rw.create(name, **{"head_dim": 12, "heads": 2, **options})


def turned(code, depth):
    """R of queries and of keys, (h N D D), from what the code does to unit vectors."""
    unit = torch.eye(depth, dtype=torch.float64)[:, None, None]  # (D 1 1 D): a batch for each channel
    heads, tokens = code.matrices().shape[:2]
    return [side.movedim(0, -1) for side in code.qk(*[unit.expand(-1, heads, tokens, -1)] * 2)]


def changed(encoding, places, along):
    """Differences (h N N D D) of the operators between all tokens before and after a move."""
    operators = []
    for p in (places, places + along):
        q, k = turned(encoding(p), encoding.head_dim)
        operators.append(torch.einsum("hnij,hmik->hnmjk", q, k))
    return operators[1] - operators[0]


@pytest.mark.parametrize("name", rw.names())
def test_every_encoding_has_words_a_document_and_a_figure_or_says_that_it_turns_nothing(capsys, name):
    words = [name, *SMALL, *OPTIONS.get(name, [])]
    said, found = told(capsys, *words), document(capsys, *words)
    assert said["instance"] == found["repr"]
    assert (found["turns"] is None) == (name not in TURNING)
    if name in TURNING:
        assert list(said) == [
            *("instance", "generators", "equation", "both move", "waves", "span", "learns", "folds", "drawn to")
        ]
        assert said["drawn to"] == f"out/{name}-equivariance-light.png"
        assert [path.name for path in Path("out").iterdir()] == [Path(said["drawn to"]).name]
        assert Path(said["drawn to"]).read_bytes().startswith(PNG)
    else:
        assert list(said) == ["instance", "generators", "scores"]
        assert said["generators"].startswith("none: ")
        assert not Path("out").exists()


@pytest.mark.parametrize("name", TURNING)
def test_what_is_relative_holds_the_equation_and_what_is_not_does_not(capsys, name):
    found = document(capsys, name, *SMALL, *OPTIONS.get(name, []))
    worst = {axis: 0.0 for axis in found["relative"]}
    for row in found["moves"]["shifts"]:
        worst[row["axis"]] = max(worst[row["axis"]], row["worst"])
    assert {axis: value < 1e-12 for axis, value in worst.items()} == found["relative"]
    assert (found["rope_equation"]["residual"] < 1e-12) == (name in RELATIVE) == all(found["relative"].values())
    assert found["folds"] == (name in RELATIVE and name != "xpos")


def test_words_of_what_turns_nothing(capsys):
    said = told(capsys, "alibi", "axes=2", *SMALL)
    assert said["generators"].endswith("and acts on logits")
    assert said["scores"] == "do not change when all tokens move along rows or columns (claimed by its traits, not computed)"
    said = told(capsys, "learned-ape", *SMALL)
    assert said["scores"] == "change when all tokens move along rows or columns (claimed by its traits, not computed)"


def test_the_commutator_of_spherical_is_that_of_its_frequencies(capsys):
    """[ω X, ω Y] = ω² Z for the turns X, Y, Z about the axes of space, all of Frobenius norm √2."""
    found = document(capsys, "spherical", "head_dim=48")
    frequency = 100 ** (-2 * torch.arange(16, dtype=torch.float64) / 48)
    wanted = (2 * frequency**4).sum().sqrt() / (2 * frequency**2).sum()
    (pair,) = found["generators"]["pairs"]
    assert not found["generators"]["commute"]
    assert pair["axes"] == ["row", "column"]
    assert pair["largest"] == pair["mean"] == pytest.approx(wanted.item(), rel=1e-12)
    assert (pair["layer"], pair["head"]) == (None, None)
    words = told(capsys, "spherical", "head_dim=48")
    assert words["generators"].endswith(f"row and column: {wanted:.3g}")
    why = f"to mixed RoPE: no, the generators of spherical do not commute, by {wanted:.3g} of their size: "
    assert words["folds"].startswith(why)


def test_rotations_have_commutators_of_one_at_most():
    """Which turns of four channels by unit quaternions reach."""
    i = torch.tensor([[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, -1], [0, 0, 1, 0]], dtype=torch.float64)
    j = torch.tensor([[0, 0, -1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, -1, 0, 0]], dtype=torch.float64)
    a = torch.randn(2, 5000, 4, 4, dtype=torch.float64)
    x, y = torch.cat([a - a.mT, torch.stack([i, j])[:, None]], dim=1)
    share = (x @ y - y @ x).flatten(1).norm(dim=1) / (x.flatten(1).norm(dim=1) * y.flatten(1).norm(dim=1))
    assert share[-1].item() == pytest.approx(1.0)
    assert share.max() <= 1 + 1e-12


def test_changes_of_scores_are_those_of_unit_vectors(capsys):
    """With six patches every place is looked at; a patch is what the encoding's grid says."""
    found = document(capsys, "spherical", *SMALL, "size=3,2", "learned=true")
    torch.manual_seed(0)
    encoding = small("spherical", size=(3, 2), learned=True).double()
    places = encoding.grid(3, 2)
    step = (places[2] - places[0])[0].item(), (places[1] - places[0])[1].item()
    rows = {(row["axis"], row["patches"]): row for row in found["moves"]["shifts"]}
    assert found["moves"]["places"] == [3, 2]
    assert list(rows) == [("row", 1.0), ("row", 1.5), ("column", 1.0)]
    for (axis, by), row in rows.items():
        which = ("row", "column").index(axis)
        assert row["distance"] == pytest.approx(by * step[which])
        delta = changed(encoding, places, row["distance"] * torch.eye(2, dtype=torch.float64)[which])
        worst = torch.linalg.svdvals(delta).amax((-3, -2, -1))  # (h)
        assert row["worst"] == pytest.approx(worst.max().item(), abs=1e-12)
        assert row["expected"] == pytest.approx((delta.square().sum((-2, -1)).mean() / 12).sqrt().item(), abs=1e-12)
        assert axis == "column" or row["head"] == worst.argmax()
    assert rows["row", 1.0]["worst"] > 0.01
    assert rows["column", 1.0]["worst"] < 1e-12


def test_axes_of_different_lengths_have_patches_of_their_own(capsys):
    found = document(capsys, "uniform", *SMALL, "size=3,5")
    assert {(row["axis"], row["patches"]): row["distance"] for row in found["moves"]["shifts"]} == pytest.approx(
        {
            ("row", 1.0): math.pi,
            ("row", 1.5): 1.5 * math.pi,
            ("column", 1.0): math.pi / 2,
            ("column", 2.5): 2.5 * math.pi / 2,
        }
    )
    assert document(capsys, "axial", *SMALL, "size=1,5")["moves"]["shifts"][0]["distance"] == 1.0


def test_what_places_are_left_out_is_said(capsys, monkeypatch):
    assert "at 8 × 8 positions of 14 × 14 patches:" in told(capsys, "axial", *SMALL)["both move"]
    assert "at 8 of 64 positions:" in told(capsys, "rope", *SMALL)["both move"]
    assert "at all 3 × 5 patches:" in told(capsys, "axial", *SMALL, "size=3,5")["both move"]
    patch_everywhere(monkeypatch, theory_facts, "MAX_HELD_NUMBERS", 2**16)
    assert "at 6 × 6 positions of 14 × 14 patches:" in told(capsys, "axial", *SMALL)["both move"]


def test_more_work_is_less_places():
    encoding = convert_to_float64(small("mixed"))
    shifts = [TokenShift(0, 1.0, 1.0)]
    places = [measure_shift_change(encoding, (14, 5), shifts, work=work).places for work in (0, 10**5, 10**6, 10**9)]
    assert places[0] == (2, 2)
    assert places[-1] == (8, 5)
    assert [math.prod(each) for each in places] == sorted(math.prod(each) for each in places)
    few, many = (measure_shift_change(encoding, (14, 5), shifts, most=most).change.place for most in (2, 14))
    assert (few.shape[-1], many.shape[-1]) == (4, 70)


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("axial", [], (6, 2, 1, 0)),
        ("uniform", [], (2, 2, 3, 0)),
        ("comrope-ld", ["block=4"], (6, 3, 1, 0)),
        ("comrope-ap", ["block=3"], (4, 2, 1, 4)),
        ("string-circulant", [], (5, 5, 1, 2)),
        ("rope", ["rotary_dim=8"], (4, 1, 1, 4)),
    ],
)
def test_waves(capsys, name, options, wanted):
    for head in document(capsys, name, *SMALL, *options)["waves"]:
        different, directions, planes, still = wanted
        assert (head["different"], head["directions"], head["still"]) == (different, directions, still)
        assert head["planes"] == [planes] * different


def test_ranges_where_heads_differ(capsys):
    encoding = small("mixed", axes=1)
    with torch.no_grad():
        encoding.wave[0] = torch.tensor([0.0, 0.0, 2.0, 2.0, 2.0, -2.0])[:, None]
        encoding.wave[1] = torch.arange(1.0, 7.0)[:, None]
    save_file(encoding.state_dict(), "waves.safetensors")
    words = ["mixed", *SMALL, "axes=1", "--weights", "waves.safetensors"]
    heads = document(capsys, *words)["waves"]
    assert [(head["head"], head["different"], head["planes"], head["still"]) for head in heads] == [
        (0, 1, [4], 4),
        (1, 6, [1] * 6, 0),
    ]
    said = told(capsys, *words)
    wanted = "1 to 6 distinct vectors per head, along 1 direction; each rotates 1 to 4 planes; 0 to 4 channels not rotated"
    assert said["waves"] == wanted
    assert said["span"].endswith("along positions: fastest plane 378, slowest 63; 0 to 2 planes of 6 not rotated")


def test_nothing_turns(capsys):
    said = told(capsys, "comrope-ld", *SMALL, "block=4", "std=0")
    assert said["waves"] == "none: no channel is rotated"
    assert "fastest plane 0, slowest 0; 6 planes of 6 not rotated" in said["span"]


def test_spans_are_frequencies_times_the_extent(capsys):
    rows = document(capsys, "axial", *SMALL, "size=4,7", "base=10")["span"]
    frequency = rw.create("axial", head_dim=12, base=10.0).frequency.double()
    for row, patches in zip(rows, (4, 7), strict=True):
        assert row["fastest"] == pytest.approx(frequency.max().item() * (patches - 1), rel=1e-6)
        assert row["slowest"] == pytest.approx(frequency.min().item() * (patches - 1), rel=1e-6)
        assert (row["planes"], row["different"], row["still"]) == (6, [3, 3], [3, 3])


def test_frequencies_of_each_axis_where_there_are_no_waves(capsys):
    found = document(capsys, "liere", *SMALL, "block=4")
    assert found["waves"] is None
    assert [row["different"] for row in found["span"]] == [[6, 6], [6, 6]]
    assert told(capsys, "liere", *SMALL, "block=4")["waves"] == (
        "no wave vectors; distinct frequencies: 6 along rows alone, 6 along columns alone"
    )
    assert told(capsys, "xpos", *SMALL)["waves"] == "no wave vectors; distinct frequencies: 6 along positions alone"


@pytest.mark.parametrize("name", TURNING)
def test_parameters_are_those_of_theory(capsys, name):
    options = {"block": int(OPTIONS[name][0][-1])} if "block" in OPTIONS.get(name, [""])[0] else {}
    found = document(capsys, name, *SMALL, *OPTIONS.get(name, []))
    assert found["parameters"] == theory.parameters(small(name, **options).double())._asdict()


def test_folding_is_yes_with_a_count_or_no_with_a_number(capsys):
    assert told(capsys, "mixed", *SMALL)["folds"] == "to mixed RoPE: yes, with 24 parameters"
    assert told(capsys, "string-cayley", *SMALL)["learns"] == "156 parameters"
    found = document(capsys, "liere", *SMALL, "block=4")
    largest = found["generators"]["pairs"][0]["largest"]
    assert found["why"].startswith(f"the generators of liere do not commute, by {largest:.3g} of their size: ")
    assert "not skew-symmetric" in document(capsys, "xpos", *SMALL)["why"]


@pytest.mark.parametrize(("apart", "folds"), [(0.0, True), (1e-8, True), (1e-3, False)])
def test_generators_that_nearly_commute(capsys, apart, folds):
    encoding = small("liere", block=4).double()
    with torch.no_grad():
        encoding.upper[:, 1] = 2 * encoding.upper[:, 0]
        encoding.upper[:, 1, :, 0] += apart * encoding.upper.abs().max()
    save_file(encoding.state_dict(), "near.safetensors")
    words = ["liere", *SMALL, "block=4", "--weights", "near.safetensors"]
    found = document(capsys, *words)
    assert found["folds"] == found["generators"]["commute"] == folds
    assert (found["rope_equation"]["residual"] < 1e-12) == (apart == 0)
    assert (found["rope_equation"]["residual"] > 1e-9) == (apart > 0)


def test_what_is_worst_is_named(capsys):
    encoding = small("liere", block=4, layers=3, size=(3, 5))
    with torch.no_grad():
        encoding.upper[:, :, 1] = encoding.upper[:, :, 0]
        encoding.upper[1, 1, 1, 0, 0] += 1.0
    save_file(encoding.state_dict(), "one.safetensors")
    words = ["liere", *SMALL, "block=4", "layers=3", "size=3,5", "--weights", "one.safetensors"]
    found = document(capsys, *words)
    for row in (*found["generators"]["pairs"], *found["moves"]["shifts"]):
        assert (row["layer"], row["head"]) == (1, 1)
    (pair,) = found["generators"]["pairs"]
    assert pair["mean"] == pytest.approx(pair["largest"] / 6)
    said = told(capsys, *words)
    share = f"{pair['largest']:.3g} at most (head 2 of layer 2), mean {pair['mean']:.3g}"
    assert said["generators"].endswith(f"row and column: {share}")
    assert said["both move"].count("(head 2 of layer 2)") == 4


def test_a_claim_is_not_taken_for_a_fact(capsys, tmp_path, monkeypatch):
    (tmp_path / "strangers.py").write_text(STRANGERS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = document(capsys, "strangers:Liar", *SMALL, "block=4")
    sys.modules.pop("strangers")
    assert found["relative"] == {"row": True, "column": True}
    assert found["rope_equation"]["residual"] > 0.1
    assert min(row["worst"] for row in found["moves"]["shifts"]) > 0.01
    assert not found["folds"]


def test_mutants_of_theory_are_seen(capsys, monkeypatch):
    """Words and documents come from `ropewalk.theory`, not from names and traits."""
    wrong = {
        "commutators": lambda encoding: torch.full((2, 2, 2), 0.25),
        "rope_equation": lambda encoding, reach: 0.125,
        "span": lambda encoding, *size: torch.full((2, 2, 6), 7.0),
    }
    for name, mutant in wrong.items():
        monkeypatch.setattr(theory, name, mutant)
    said = told(capsys, "mixed", *SMALL)
    assert said["generators"].startswith("do not commute")
    assert "more than relative positions, by up to 0.125 of |q||k|" in said["equation"]
    assert "along rows: fastest plane 7, slowest 7" in said["span"]


PARTS = 'parts=[{"name": "spherical"}, {"name": "learned-ape"}]'


def test_a_chain_is_what_its_turning_part_is(capsys):
    shape = [*SMALL, "size=3,5", "coordinates=index"]
    found, alone = document(capsys, "chain", PARTS, *shape), document(capsys, "spherical", *shape)
    assert found["turns"] == "spherical"
    assert found["relative"] == {"row": False, "column": False}
    for key in ("generators", "rope_equation", "moves", "span", "folds", "why", "waves", "parameters"):
        assert found[key] == alone[key]
    assert told(capsys, "chain", PARTS, *shape)["of"].startswith("spherical, the part that rotates q and k")


def test_trained_numbers_are_used(capsys):
    encoding = small("liere", block=4, size=(3, 5)).double()
    with torch.no_grad():
        encoding.upper.normal_()
    save_file(encoding.state_dict(), "trained.safetensors")
    words = ["liere", *SMALL, "block=4", "size=3,5"]
    found = document(capsys, *words, "--weights", "trained.safetensors")
    assert found == analyze_encoding(encoding) | {"weights": "trained.safetensors", "seed": 0}
    before = document(capsys, *words)
    assert before["weights"] is None
    assert before["generators"] != found["generators"]
    assert told(capsys, *words, "--weights", "trained.safetensors")["weights"] == "trained.safetensors"


def test_a_model_file_is_read_for_its_encoding(capsys):
    options = {"width": 24, "depth": 2, "heads": 2}
    model = ViT(encoding="liere", options={"block": 4}, size=(12, 20), patch=4, classes=3, **options)
    save_file(model.state_dict(), "model.safetensors")
    words = ["liere", *SMALL, "layers=2", "block=4", "size=3,5", "--seed", "1", "--weights", "model.safetensors"]
    assert document(capsys, *words) == analyze_encoding(model.encoding) | {"weights": "model.safetensors", "seed": 1}
    save_file({"encoding.upper": model.encoding.upper.detach().bfloat16()}, "half.safetensors")
    assert run(capsys, *words[:-1], "half.safetensors", "--json")[0] == 0


def files():
    """Files that do not fit RoPE-Mixed of two heads of 12 channels, and why."""
    wave = small("mixed").wave.detach()
    return {
        "names": ({"waves": wave}, "wanted are wave, alone or with the prefix encoding.; there are waves"),
        "more": ({"wave": wave, "skew": wave + 1}, "there are skew, wave"),
        "many": ({f"w{i}": wave + i for i in range(6)}, "there are w0, w1, w2, w3 and 2 more"),
        "prefixed": ({"wave": wave, "encoding.other": wave + 1}, "there are other"),
        "none": ({}, "there are none"),
        "heads": (
            {"wave": wave[:1].clone()},
            "wave in heads.safetensors is (1, 6, 2), but that of mixed with these options is",
        ),
        "layers": ({"wave": wave[None].clone()}, "is (1, 2, 6, 2), but that of mixed with these options is (2, 6, 2): give"),
        "whole": ({"wave": wave.long()}, "must be floating, got torch.int64"),
        "nan": ({"wave": wave / 0}, "must be finite in float32, got 24 values of 24 that are not"),
        "huge": ({"wave": wave.double() * 1e60}, "must be finite in float32"),
    }


@pytest.mark.parametrize("name", files())
def test_weights_that_do_not_fit_are_refused(capsys, name):
    tensors, reason = files()[name]
    save_file(tensors, f"{name}.safetensors")
    assert reason in refusal(capsys, "mixed", *SMALL, "--weights", f"{name}.safetensors")


def test_files_that_are_none_are_refused(capsys):
    save_file(small("mixed").state_dict(), "whole.safetensors")
    whole = Path("whole.safetensors").read_bytes()
    for content in (b"", b"words", whole[:-8], whole[:40]):
        Path("bad.safetensors").write_bytes(content)
        assert "bad.safetensors is not a complete safetensors file" in refusal(
            capsys, "mixed", *SMALL, "--weights", "bad.safetensors"
        )
    assert "gone.safetensors cannot be read: No such file" in refusal(capsys, "mixed", "--weights", "gone.safetensors")
    assert "has no parameters: there is nothing to load from" in refusal(capsys, "axial", "--weights", "whole.safetensors")


def test_numbers_that_overflow_are_refused(capsys):
    encoding = small("comrope-ld", block=4)
    with torch.no_grad():
        encoding.matrix.mul_(1e30)
    save_file(encoding.state_dict(), "far.safetensors")
    words = refusal(capsys, "comrope-ld", *SMALL, "block=4", "--weights", "far.safetensors")
    assert "comrope-ld has parameters that are too large to compute with" in words


def test_without_the_packages_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "figures need matplotlib: pip install 'ropewalk[lab]'" in refusal(capsys, "axial", *SMALL)
    assert document(capsys, "axial", *SMALL)["folds"]
    assert run(capsys, "none", *SMALL)[0] == 0
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert "weights are read by safetensors: pip install 'ropewalk[lab]'" in refusal(capsys, "mixed", "--weights", "a")


def test_a_document_draws_nothing(capsys):
    document(capsys, "spherical", *SMALL)
    assert not Path("out").exists()


def test_figures_go_where_they_are_said_to(capsys):
    for words, path in {
        ("--out", "a/b", "--theme", "dark"): "a/b/axial-equivariance-dark.png",
        ("--out", "c.svg"): "c.svg",
    }.items():
        assert told(capsys, "axial", *SMALL, *words)["drawn to"] == path
        assert Path(path).read_bytes().startswith(SVG if path.endswith("svg") else PNG)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["axail"], "Did you mean 'axial'"),
        (["axial", "bass=3"], "Unknown option 'bass' of axial"),
        (["axial", "--out", "a.pdf"], "a folder or to a file that ends in .png or .svg, got a.pdf"),
        (["axial", *SMALL, "--out", "taken/a"], "taken/a/axial-equivariance-light.png cannot be written: "),
    ],
)
def test_refusals(capsys, words, reason):
    Path("taken").write_text("")
    assert reason in refusal(capsys, *words)


def test_seeds_are_of_what_is_drawn(capsys):
    spans = [document(capsys, "mixed", *SMALL, "--seed", str(seed))["span"] for seed in (0, 0, 1)]
    assert spans[0] == spans[1] != spans[2]


def test_looking_changes_nothing():
    encoding = small("mixed", layers=2)
    before, state = encoding.wave.detach().clone(), torch.get_rng_state()
    first, second = analyze_encoding(encoding), analyze_encoding(encoding)
    assert first == second
    assert encoding.wave.dtype is torch.float32
    assert torch.equal(encoding.wave, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_numbers_of_rounding_have_one_digit():
    values = (0.0, 2.3e-15, 4.6e-10, 3.25e-7, 0.15426, 1.99999)
    assert list(map(format_residual, values)) == ["0", "2e-15", "5e-10", "3.25e-07", "0.154", "2"]


def test_every_pair_of_axes_is_looked_at(capsys):
    found = document(capsys, "liere", *SMALL, "axes=3", "block=4", "size=2,2,2")
    names = ("frame", "row", "column")
    assert [tuple(pair["axes"]) for pair in found["generators"]["pairs"]] == list(itertools.combinations(names, 2))
