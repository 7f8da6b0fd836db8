"""M-RoPE against the rotary classes and the position ids of transformers' Qwen models, and against timm's module.

All of them compute angles in float32, so float32 is what is compared.
"""

import pytest
import torch
from timm.layers import RotaryEmbeddingMRope, apply_rot_embed_cat
from torch import Tensor
from transformers import Qwen2_5_VLConfig, Qwen2VLConfig, Qwen2VLTextConfig, Qwen3VLConfig, Qwen3VLTextConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3

import ropewalk as rw
from tests.support.float64_reference import assert_same, leaf

BATCH, HEADS, KV_HEADS = 2, 4, 2
MODELS = {
    "qwen2-vl": (qwen2, Qwen2VLTextConfig, "Qwen2VLRotaryEmbedding"),
    "qwen3-vl": (qwen3, Qwen3VLTextConfig, "Qwen3VLTextRotaryEmbedding"),
}
REAL = {"qwen2-vl": ([16, 24, 24], 1e6), "qwen3-vl": ([24, 20, 20], 5e6)}


def tokens(length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    q = leaf(BATCH, HEADS, length, head_dim, seed=0, dtype=torch.float32)
    return q, leaf(BATCH, KV_HEADS, length, head_dim, seed=1, dtype=torch.float32)


def assert_angles(angle: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Angles (... P), whose sines and cosines the peer has twice over, are its own to 2^-20 of each, the slowest too."""
    angle = torch.cat([angle, angle], dim=-1)
    assert ((angle.sin() - sin).abs() <= 2**-20 * angle.abs()).all()
    assert ((angle.cos() - cos).abs() <= 2**-20 * angle.abs() + 2**-23).all()


def assert_like_the_model(encoding: rw.Encoding, sections: list[int], base: float, ids: Tensor) -> None:
    """cos and sin, rotated q and k, and gradients, at ids (3, B, N)."""
    peer, config, kind = MODELS[encoding.variant]
    head_dim, reach = encoding.head_dim, ids.abs().max().item()
    rope = {"rope_type": "default", "rope_theta": base, "mrope_section": sections}
    shape = {"hidden_size": HEADS * head_dim, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    rotary = getattr(peer, kind)(config(head_dim=head_dim, rope_parameters=rope, **shape))
    q, k = tokens(ids.shape[-1], head_dim)
    cos, sin = rotary(q, ids)
    code = encoding(ids.permute(1, 2, 0).float())
    assert_angles(code.q_angle[:, 0], cos, sin)
    assert_same(code.qk(q, k), peer.apply_rotary_pos_emb(q, k, cos, sin), [q, k], reach)


def scattered(length: int) -> Tensor:
    """Ids of which no two axes are alike, one sample's below zero too."""
    steps = torch.arange(length)
    sample = torch.stack([2 * steps, 7 + steps % 13, 90 - steps])
    return torch.stack([sample, sample - 40], dim=1)


@pytest.mark.parametrize("length", [1, 63, 65])
@pytest.mark.parametrize("variant", REAL)
def test_mrope_of_the_published_models(variant, length):
    """Heads of 128 channels; sections and base are the variant's own."""
    encoding = rw.create("mrope", head_dim=128, heads=HEADS, kv_heads=KV_HEADS, variant=variant)
    assert_like_the_model(encoding, *REAL[variant], scattered(length))


@pytest.mark.parametrize(
    ("variant", "head_dim", "sections", "base"),
    [
        ("qwen2-vl", 16, [2, 3, 3], 1e4),
        ("qwen2-vl", 18, [1, 6, 2], 50.0),
        ("qwen3-vl", 16, [4, 2, 2], 1e4),
        ("qwen3-vl", 18, [3, 3, 3], 50.0),
        ("qwen3-vl", 26, [2, 3, 5], 50.0),
        ("qwen3-vl", 72, [8, 12, 12], 1e4),
    ],
)
def test_mrope_of_small_models(variant, head_dim, sections, base):
    options = {"variant": variant, "sections": sections, "base": base}
    encoding = rw.create("mrope", head_dim=head_dim, heads=HEADS, kv_heads=KV_HEADS, **options)
    assert_like_the_model(encoding, sections, base, scattered(15))


@pytest.mark.parametrize("variant", REAL)
def test_mrope_of_a_text_is_rope(variant):
    mrope = rw.create("mrope", head_dim=128, heads=HEADS, kv_heads=KV_HEADS, variant=variant)
    rope = rw.create("rope", head_dim=128, heads=HEADS, kv_heads=KV_HEADS, base=REAL[variant][1])
    q, k = tokens(65, 128)
    assert_same(mrope(rw.positions.mrope(65)).qk(q, k), rope(torch.arange(65)).qk(q, k), [q, k], 65.0)


@pytest.mark.parametrize("sizes", [(3, 5), (1, 7), (37, 53)])
@pytest.mark.parametrize(
    ("head_dim", "sections", "base"),
    [(72, (8, 12, 12), 1e4), (64, (8, 12, 12), 1e4), (72, (12, 12, 12), 100.0), (16, (2, 3, 1), 7.0)],
)
def test_mrope_of_timm(head_dim, sections, base, sizes):
    """Images have time 0. Sections are limits, which 64 channels meet before rows and columns have 12 pairs each."""
    embed = RotaryEmbeddingMRope(head_dim, sections, temperature=base).get_embed(list(sizes))
    encoding = rw.create("mrope", head_dim=head_dim, heads=HEADS, variant="qwen3-vl", sections=sections, base=base)
    code = encoding(encoding.grid(1, *sizes))
    sin, cos = embed.chunk(2, dim=-1)
    assert_angles(code.q_angle[0], cos, sin)
    q, k = (leaf(1, HEADS, sizes[0] * sizes[1], head_dim, seed=seed, dtype=torch.float32) for seed in (0, 1))
    assert_same(code.qk(q, k), [apply_rot_embed_cat(x, embed, half=True) for x in (q, k)], [q, k], max(sizes))


# Ids. A part is the length of a text, or ("image" or "video", frames, rows, columns) after patches of 2 x 2 were merged.

IDS = {
    "Qwen2-VL": (qwen2.Qwen2VLModel, Qwen2VLConfig),
    "Qwen2.5-VL": (Qwen2_5_VLModel, Qwen2_5_VLConfig),
    "Qwen3-VL": (qwen3.Qwen3VLModel, Qwen3VLConfig),
}
ROWS = {
    "image": [3, ("image", 1, 3, 5), 2],
    "text, image, text, video": [4, ("image", 1, 3, 5), 2, ("video", 2, 4, 3), 7],
    "video, image": [("video", 3, 2, 6), 1, ("image", 1, 1, 1), 5, ("image", 1, 6, 2)],
    "long video": [2, ("video", 5, 2, 3), 3, ("image", 1, 2, 2), 4],
}


def ids_of(model: str, row: list, **options: Tensor) -> Tensor:
    """The ids (N, 3) that transformers counts out for a row of parts; nothing of the model but its method is run."""
    kind, config = IDS[model]
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    vision = {"depth": 1, "spatial_merge_size": 2, "tokens_per_second": 2}
    with torch.device("meta"):
        peer = kind(config(text_config=text, vision_config=vision))
    types, grids = [], {}
    for part in row:
        if isinstance(part, int):
            types += [0] * part
        else:
            name, frames, rows, columns = part
            types += [1 if name == "image" else 2] * (frames * rows * columns)
            grids.setdefault(f"{name}_grid_thw", []).append([frames, 2 * rows, 2 * columns])
    given = {name: torch.tensor(grid) for name, grid in grids.items()} | options
    token_types = torch.tensor([types], dtype=torch.int32)
    ids, _ = peer.get_rope_index(torch.zeros(1, len(types), dtype=torch.long), token_types, **given)
    return ids[:, 0].T


def parts_of(row: list) -> list:
    return [part if isinstance(part, int) else part[1:] for part in row]


@pytest.mark.parametrize("row", ROWS)
def test_ids_of_qwen2_vl(row):
    ours = rw.positions.mrope(*parts_of(ROWS[row]), resume="side")
    assert torch.equal(ours, ids_of("Qwen2-VL", ROWS[row]).float())


@pytest.mark.parametrize("seconds", [0.2, 0.7, 25.0])
def test_ids_of_qwen2_5_vl(seconds):
    """Frames lie 2 tokens a second times their seconds apart, cut to whole numbers."""
    row = [4, ("image", 1, 3, 5), 2, ("video", 3, 4, 3), 7]
    theirs = ids_of("Qwen2.5-VL", row, second_per_grid_ts=torch.tensor([seconds], dtype=torch.float64))
    assert torch.equal(rw.positions.mrope(*parts_of(row), interval=2 * seconds, resume="side"), theirs.float())


@pytest.mark.parametrize("resume", ["largest", "side"])
def test_ids_of_qwen3_vl(resume):
    """transformers is told of one video of 3 frames, of which each is a part here, after a time stamp of its own."""
    row = [4, ("image", 1, 3, 5), 2, ("video", 1, 4, 3), 3, ("video", 1, 4, 3), 2, ("video", 1, 4, 3), 7]
    theirs = ids_of("Qwen3-VL", row, video_grid_thw=torch.tensor([[3, 8, 6]]))
    assert torch.equal(rw.positions.mrope(*parts_of(row), resume=resume), theirs.float())


def test_after_a_long_video_the_paper_and_transformers_count_on_differently():
    """5 frames of 2 x 3: the paper's text goes on at 2 + 5, behind the last frame; transformers' at 2 + 3, among them.

    Up to the video's end both are alike, and from there on they differ by the frames beyond the longer side.
    """
    row = ROWS["long video"]
    paper, library = (rw.positions.mrope(*parts_of(row), resume=resume) for resume in ("largest", "side"))
    assert torch.equal(library, ids_of("Qwen2-VL", row).float())
    end = 2 + 5 * 2 * 3
    assert torch.equal(paper[:end], library[:end])
    assert paper[end].tolist() == [7, 7, 7]
    assert library[end].tolist() == [5, 5, 5]
    assert (paper[end:] - library[end:] == 5 - 3).all()
    assert library[:end, 0].max() > library[end, 0], "the text begins before the video's last frame"


@pytest.mark.parametrize("row", ["image", "text, image, text, video", "video, image"])
def test_after_short_videos_both_rules_agree(row):
    paper, library = (rw.positions.mrope(*parts_of(ROWS[row]), resume=resume) for resume in ("largest", "side"))
    assert torch.equal(paper, library)
