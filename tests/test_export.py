"""Models as programs of torch.export, every encoding for images or for texts; each kind of code in ONNX, by onnxruntime."""

import io

import pytest
import timm
import torch
from torch import Tensor, nn

import ropewalk as rw
from ropewalk import export
from ropewalk.adapters.timm import install
from ropewalk.functional import apply_rotary
from ropewalk.models import LM, ViT
from ropewalk.testing.case import points

runtime = pytest.importorskip("onnxruntime", reason="programs of ONNX are run by onnxruntime, which is not installed")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript, which is not installed")

SMALL = {"block": 4}
DEEP = {"mixed", "string-cayley", "rope", "transformer-xl"}
ONNX = {
    ViT: {"learned-ape", "mixed", "spherical", "liere", "swin-bias", "string-cayley", "waves"},
    LM: {"rope", "transformer-xl", "liere"},
}
"""One encoding or more for each kind of code: what is exported of others is made of the same."""

IMAGES = {
    "alibi": {},
    "axial": {},
    "axial-spherical": {"angle": 30.0},
    "comrope-ap": SMALL,
    "comrope-ld": SMALL,
    "dinov3": {},
    "golden": {},
    "learned-ape": {},
    "liere": SMALL,
    "mixed": {},
    "none": {},
    "sincos": {},
    "spherical": {"learned": True},
    "spherical-symmetric": {},
    "string-cayley": {},
    "string-circulant": {},
    "swin-bias": {},
    "uniform": {},
    "waves": {"table": [[0.5, 0.1], [0.0, -0.3], [0.2, 0.1]], "interleaved": False, "sections": (1, 2)},
}
TEXTS = {
    "rope": {"extension": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 8}},
    "xpos": {},
    "t5-bias": {},
    "transformer-xl": {},
    "learned-ape": {},
    "liere": SMALL,
    "string-cayley": {},
}


def test_every_encoding_is_here():
    assert {*IMAGES, *TEXTS, "mrope"} == set(rw.names())


def loud(model: nn.Module) -> nn.Module:
    """With weights so large that positions make a difference."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and not name.startswith("encoding."):
                parameter.normal_(0, 1.5 / parameter.shape[-1] ** 0.5)
            elif name.startswith("encoding."):
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def shape(encoding: str) -> dict[str, int]:
    """One layer, which is quick; some have two, so that layers are told apart."""
    return {"width": 24, "heads": 2, "depth": 2 if encoding in DEEP else 1}


def vit(encoding: str, *, size=(12, 20), **options) -> ViT:
    return loud(ViT(encoding=encoding, size=size, patch=4, channels=1, classes=5, **shape(encoding), **options))


def lm(encoding: str, *, length: int | None = 16, **options) -> LM:
    return loud(LM(17, encoding=encoding, options=options, kv_heads=1, length=length, **shape(encoding)))


def session(program: torch.onnx.ONNXProgram) -> "runtime.InferenceSession":
    buffer = io.BytesIO()
    program.save(buffer)
    return runtime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])


def answer(running: "runtime.InferenceSession", *xs: Tensor) -> list[Tensor]:
    named = {entry.name: x.numpy() for entry, x in zip(running.get_inputs(), xs, strict=True)}
    return [torch.from_numpy(y) for y in running.run(None, named)]


def assert_same_answers(model, inputs, elsewhere, **sizes):
    """Program, ONNX and eager agree on all inputs, and would not if tokens stood elsewhere."""
    program = export.program(model, **sizes)
    assert not any("linalg" in str(node.target) for node in program.graph.nodes)
    running = session(export.onnx(program)) if model.encoding.name in ONNX[type(model)] else None
    with torch.no_grad():
        for x in inputs:
            expected = model(x)
            torch.testing.assert_close(program.module()(x), expected, rtol=0, atol=1e-6)
            if running is not None:
                torch.testing.assert_close(answer(running, x)[0], expected, rtol=0, atol=2e-5)
        moved = (model(inputs[-1], elsewhere) - expected).abs().max()
    assert moved > 1e-3 or model.encoding.name == "none"


def test_every_kind_is_run_by_onnxruntime():
    examples = [next(rw.encodings.REGISTRY[name].examples()) for name in {"none", *ONNX[ViT], *ONNX[LM]}]
    made = {type(example(points(example, 2))) for example in examples}
    assert made == {rw.Code, rw.Offset, rw.Rotation, rw.Sphere, rw.Turn, rw.Bias, rw.ContentBias, rw.Chain}


@pytest.mark.exhaustive("programs", kept=lambda name: name != "string-cayley")  # kept as a text
@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    model = vit(name, options=IMAGES[name])
    elsewhere = model.encoding.grid(3, 5)[torch.randperm(15)]
    assert_same_answers(model, [torch.randn(batch, 1, 12, 20) for batch in (1, 3)], elsewhere)


@pytest.mark.exhaustive("programs", kept=lambda name: name != "liere")  # kept as an image
@pytest.mark.parametrize("name", TEXTS)
def test_texts(name):
    shapes = ((1, 1), (2, 16), (3, 11))
    assert_same_answers(
        lm(name, **TEXTS[name]), [torch.randint(17, shape) for shape in shapes], torch.randperm(11), length=16
    )


def test_tokens_without_a_place():
    model = vit("alibi", pool="class", registers=1)
    program = export.program(model)
    for batch in (1, 3):
        images = torch.randn(batch, 1, 12, 20)
        torch.testing.assert_close(program.module()(images), model(images), rtol=0, atol=1e-6)


def test_films():
    model = vit("mrope", size=(8, 4, 12))
    elsewhere = 3 * model.encoding.grid(2, 1, 3)[torch.tensor([1, 0, 2, 5, 3, 4])]
    assert_same_answers(model, [torch.randn(batch, 1, 8, 4, 12) for batch in (1, 3)], elsewhere)


def test_another_size():
    model = vit("mixed")
    images, found = torch.randn(3, 1, 16, 8), []
    for resolution in ("extrapolate", "rescale"):
        program = export.program(model, size=(16, 8), resolution=resolution)
        found.append(program.module()(images))
        torch.testing.assert_close(found[-1], model(images, resolution=resolution), rtol=0, atol=1e-6)
    assert (found[0] - found[1]).abs().max() > 1e-4


def test_a_chain_of_texts_of_any_length():
    model = lm("chain", length=None, parts=[{"name": "string-cayley"}, {"name": "alibi"}])
    program, tokens = export.program(model), torch.randint(17, (2, 40))
    torch.testing.assert_close(program.module()(tokens), model(tokens), rtol=0, atol=1e-6)
    assert not any("solve" in str(node.target) for node in program.graph.nodes)


def test_only_the_kernel():
    class Turn(nn.Module):
        def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            return *apply_rotary(q, k, cos, sin, prefix=1), *apply_rotary(q, k, cos, sin, interleaved=True, prefix=1)

    batch, n = torch.export.Dim("batch"), torch.export.Dim("n", min=2, max=64)
    shapes = ({0: batch, 2: n + 1}, {0: batch, 2: n + 1}, {0: n}, {0: n})

    def given(batch: int, n: int) -> tuple[Tensor, ...]:
        return (*(torch.randn(batch, heads, n + 1, 14) for heads in (4, 2)), torch.randn(n, 6), torch.randn(n, 6))

    program = torch.export.export(Turn(), given(2, 4), dynamic_shapes=shapes)
    running, xs = session(torch.onnx.export(program, dynamo=True, verbose=False)), given(3, 7)
    for mine, other, theirs in zip(program.module()(*xs), answer(running, *xs), Turn()(*xs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
        torch.testing.assert_close(other, theirs, rtol=0, atol=1e-6)


def test_what_is_fixed_shares_the_rest():
    model = vit("liere", options=SMALL)
    other = export.fixed(model)
    own = dict(model.named_parameters())
    assert all(weight is own[name] for name, weight in other.named_parameters())
    assert model.encoding.name == "liere"
    assert not list(other.encoding.parameters())
    assert set(other.state_dict()) == {name for name in model.state_dict() if not name.startswith("encoding.")}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["rope", "string-cayley", "mixed"])
def test_what_is_fixed_leaves_the_model_as_it_was(name, training):
    """Also where the mode of a part is not that of the whole, and where the encoding stays what it is."""
    model = vit(name, dropout=0.1) if name == "mixed" else lm(name)
    model.train(training)
    model.blocks[0].train(not training)
    before = {name: module.training for name, module in model.named_modules()}
    other = export.fixed(model)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert not any(module.training for module in other.modules())


def test_a_program_made_in_training_stays_as_it_was():
    """Weights that are learned later would not go with constants that were made before."""
    model = vit("swin-bias").train()  # whose code holds its very table
    program, images = export.program(model), torch.randn(3, 1, 12, 20)
    wanted = program.module()(images).clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert torch.equal(program.module()(images), wanted)


def test_training_goes_on():
    model = vit("axial", drop_path=0.5, dropout=0.3).train()
    program, images = export.program(model), torch.randn(3, 1, 12, 20)
    assert all(module.training for module in model.modules())
    torch.testing.assert_close(program.module()(images), model.eval()(images), rtol=0, atol=1e-6)


REFUSED = {
    "length": (lambda: export.program(lm("liere", block=4)), r"liere.*length, got None"),
    "patches": (lambda: export.program(vit("mixed"), size=(12, 18)), r"2.*patch \(4, 4\), got \(12, 18\)"),
    "axes": (lambda: export.program(vit("mixed"), size=(12,)), r"2.*patch \(4, 4\), got \(12,\)"),
    "grid": (lambda: export.fixed(vit("mixed"))(torch.ones(1, 1, 8, 20)), r"grid of \(3, 5\), got \(2, 5\)"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why):
    make, words = REFUSED[why]
    with pytest.raises(ValueError, match=words):
        make()


def hosted(name: str | None, *, width: int = 24, **options: object) -> nn.Module:
    """A model of timm with an encoding, of 3 × 5 patches."""
    size = {"embed_dim": width, "num_heads": 2, "depth": 2, "num_classes": 5}
    made = timm.create_model("vit_tiny_patch16_224", img_size=(12, 20), patch_size=4, dynamic_img_size=True, **size)
    return loud(install(made, name, **options))


@pytest.mark.parametrize("name", ["axial", "liere", "learned-ape", "swin-bias", None])
def test_models_of_timm(name):
    model, images = hosted(name, **(SMALL if name == "liere" else {})), torch.randn(3, 3, 12, 20)
    torch.testing.assert_close(export.program(model).module()(images), model(images), rtol=1e-4, atol=1e-4)


def test_models_of_timm_at_another_size():
    model, images = hosted("comrope-ld", block=4, resolution="extrapolate"), torch.randn(3, 3, 16, 8)
    program = export.program(model, size=(16, 8))
    torch.testing.assert_close(program.module()(images), model(images), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"install\(…, resolution=…\), got 'rescale'"):
        export.program(model, size=(16, 8), resolution="rescale")


def test_models_of_timm_in_onnx():
    """The matrix exponentials of LieRE, for which ONNX has no operator, are constants."""
    model, images = hosted("liere", width=32, block=8), torch.randn(3, 3, 12, 20)
    program = export.program(model)
    computing, made = (
        any("ropewalk.expm" in str(node.target) for node in each.graph.nodes)
        for each in (torch.export.export(model, (images,)), program)
    )
    assert (computing, made) == (True, False)
    (found,) = answer(session(export.onnx(program)), images)
    torch.testing.assert_close(found, model(images), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"no operator for ropewalk.expm.*ropewalk.export.program.*fold_into"):
        export.onnx(torch.export.export(model, (images,)))


@pytest.mark.parametrize("model", [nn.Linear(2, 2), timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1)])
def test_other_models_are_refused(model):
    for make in (export.program, export.onnx):
        with pytest.raises(
            TypeError,
            match=r"ViT or LM of ropewalk, or a plain ViT or Eva of timm or a decoder of transformers after install",
        ):
            make(model)
