"""Text in the lab: windows of bytes, runs that are killed and go on or begin from others, and comparisons by bits."""

import csv
import io
import json
import math
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from ropewalk.lab.checkpoint_file import compute_checksum
from ropewalk.lab.compare.plan import Comparison
from ropewalk.lab.compare.run import compare_encodings, format_comparison_csv, tabulate_comparison
from ropewalk.lab.config import Config
from ropewalk.lab.data.text import TextData
from ropewalk.lab.encoding_weights import load_run_encoding
from ropewalk.lab.errors import CommandError, DamagedFileError
from ropewalk.lab.report import write_report
from ropewalk.lab.results_table import make_rich_table
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import write_json
from ropewalk.lab.task_types import BITS_PER_BYTE
from ropewalk.lab.tasks import build_task
from ropewalk.lab.tasks.text import build_language_model
from ropewalk.lab.tasks.trained_images import load_image_model
from ropewalk.lab.train import train_run
from tests.support.killed_training import SERVER, killed_after_steps
from tests.support.resumed_batches import assert_batches_resume

LENGTH = 24
SMALL = Config(
    encoding="rope", length=LENGTH, width=24, depth=2, heads=2, ratio=2.0, epochs=3, batch=16, learning_rate=1e-2,
    warmup=0.5, augment=(), workers=0, ema=0.9, checkpoint=0.0,
)  # fmt: skip


def sentences(count, seed=0):
    """Words that come again and again, so that there is something to learn."""
    draw = torch.Generator().manual_seed(seed)
    words = [b"rope ", b"walk ", b"hall ", b"strand ", b"turn "]
    return b"".join(words[i] for i in torch.randint(len(words), (count,), generator=draw))


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """A folder of text."""
    folder = tmp_path_factory.mktemp("books")
    (folder / "train.txt").write_bytes(sentences(4000))
    (folder / "val.txt").write_bytes(sentences(600, seed=1))
    return folder


def small(books, **settings):
    return replace(SMALL, **{"data": str(books), **settings})


# Windows


def test_a_folder_and_a_file_are_cut(books, tmp_path):
    held, text = (books / "val.txt").read_bytes(), TextData(books)
    assert bytes(text.parts["train"].tolist()) == (books / "train.txt").read_bytes()
    assert bytes(text.parts["validation"].tolist()) + bytes(text.parts["test"].tolist()) == held
    assert len(text.parts["validation"]) == len(held) // 2
    (tmp_path / "one.txt").write_bytes(bytes(range(200)))
    one = TextData(tmp_path / "one.txt")
    assert [part.tolist() for part in one.parts.values()] == [list(range(180)), list(range(180, 190)), list(range(190, 200))]
    assert len(TextData(tmp_path / "one.txt", fraction=0.5).parts["train"]) == 90


def test_an_epoch_has_every_window_once_from_an_offset_that_is_drawn(tmp_path):
    """Each byte tells its place, so that windows tell where they begin."""
    (tmp_path / "train.txt").write_bytes(bytes(range(256)))
    (tmp_path / "val.txt").write_bytes(bytes(range(64)))
    text, offsets, orders = TextData(tmp_path), set(), set()
    for epoch in range(20):
        windows = torch.cat(list(text.epoch(7, 10, seed=3, epoch=epoch)))
        assert windows.shape == (30, 8)
        assert torch.equal(windows - windows[:, :1], torch.arange(8).expand(30, 8))
        begins = windows[:, 0]
        assert len(set((begins % 7).tolist())) == 1
        assert len(set(begins.tolist())) == 30
        assert begins.max() + 7 <= 255
        offsets.add(int(begins[0] % 7))
        orders.add(tuple(begins.argsort().tolist()))
        again = torch.cat(list(text.epoch(7, 10, seed=3, epoch=epoch)))
        assert torch.equal(again, windows)
    assert len(offsets) > 4
    assert len(orders) == 20
    assert text.count_train_windows(7) == 35


def test_windows_fit_wherever_the_first_begins(tmp_path, monkeypatch):
    (tmp_path / "train.txt").write_bytes(bytes(range(64)))
    (tmp_path / "val.txt").write_bytes(bytes(64))
    text = TextData(tmp_path)
    for length in (3, 7, 8, 9):
        order = [torch.arange(text.count_train_windows(length))]
        (windows,) = text.windows("train", length, order, offset=length - 1)
        assert windows[-1, -1] <= 63
        with pytest.raises(IndexError):
            list(text.windows("train", length, [order[0] + 1], offset=length - 1))


def test_shares_of_processes_make_the_batch_of_one(books):
    text = TextData(books)
    whole = list(text.epoch(LENGTH, 16, seed=1, epoch=2))
    shares = [list(text.epoch(LENGTH, 16, seed=1, epoch=2, rank=rank, world=4)) for rank in range(4)]
    for one, *parts in zip(whole, *shares, strict=True):
        assert torch.equal(one, torch.cat(parts))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data": "nowhere"}, r"train\.txt.*val\.txt.*nowhere"),
        ({"batch": 4096}, r"batch.*4096.*24"),
        ({"length": 2000, "batch": 2}, r"validation.*2000"),
        ({"dropout": 0.1}, r"dropout.*0\.0, got 0\.1"),
        ({"augment": ("flip",)}, r"augment.*classify.*got flip"),
        ({"kv_heads": 3}, r"heads.*width.*kv_heads.*heads, got 24, 2.*3"),
        ({"length": 0}, r"length.*1.*got 0"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_trained(books, tmp_path, settings, words):
    with pytest.raises((CommandError, ValueError), match=words):
        compare_encodings(["rope"], small(books, **settings), tmp_path, seeds=[0])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_texts_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"no train\.txt and no val\.txt"):
        TextData(tmp_path)


# The task


def test_models_begin_alike_whatever_their_encoding(books):
    one, two = build_language_model(small(books)), build_language_model(small(books, encoding="t5-bias"))
    mine, theirs = one.state_dict(), two.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine if not name.startswith("encoding."))
    other = build_language_model(small(books, seed=1)).state_dict()
    assert not torch.equal(mine["embed.weight"], other["embed.weight"])
    assert build_language_model(small(books, kv_heads=1)).blocks[0].qkv.weight.shape == (24 + 2 * 12, 24)


def test_a_gated_perceptron_has_as_many_numbers_as_a_plain_one_of_that_ratio(books):
    block = build_language_model(small(books, width=192, heads=2, ratio=4.0)).blocks[0]
    count = sum(each.weight.numel() for each in (block.gate, block.up, block.down))
    assert count == 2 * 4 * 192 * 192


class Alone:
    """What a task asks of an accelerator."""

    process_index, num_processes, device = 0, 1, torch.device("cpu")

    def reduce(self, value, how):
        return value


def test_scores_are_those_of_all_windows(books):
    task = build_task(small(books), "cpu")
    part = TextData(books).parts["validation"].long()
    count = (len(part) - 1) // LENGTH
    windows = torch.stack([part[i * LENGTH : (i + 1) * LENGTH + 1] for i in range(count)])
    assert count % 16  # the last batch is not whole
    with torch.no_grad():
        logits = task.model(windows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()
    found = task.scores(task.model, "validation", Alone())
    assert found["loss"] == pytest.approx(loss, rel=1e-6)
    assert found["bits"] == pytest.approx(loss / math.log(2), rel=1e-6)
    assert found["accuracy"] == pytest.approx((logits.argmax(-1) == windows[:, 1:]).float().mean().item(), rel=1e-6)
    batch = next(task.batches(0, 0, 1))
    own = task.loss(task.model, batch, epoch=0, step=0, rank=0)
    wanted = torch.stack([F.cross_entropy(task.model(row[None, :-1])[0], row[1:]) for row in batch]).mean()
    torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize("keys", [None, 0.5])
def test_an_epoch_is_resumed_at_a_batch(books, keys):
    assert_batches_resume(build_task(small(books, length=200, batch=8, keys=keys), "cpu"), first=2)


# Runs


@pytest.fixture(scope="module")
def whole(books, tmp_path_factory):
    """A run that nobody disturbed."""
    return train_run(small(books), tmp_path_factory.mktemp("whole"))


def test_it_learns(whole):
    first, *_, last = whole.metrics()
    result = whole.result()
    assert last["loss"] < 0.8 * first["loss"]
    assert result["test_bits"] == pytest.approx(result["test_loss"] / math.log(2))
    assert result["test_bits"] < 4 < math.log2(256)
    assert result["test_accuracy"] > 0.3
    assert result["validation_bits"] == last["validation_bits"]


def test_killed_it_goes_on_to_the_same_end(whole, tmp_path):
    process = SERVER.Process(target=killed_after_steps, args=(whole.config.document(), tmp_path, 2))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    facts = RunFolder(tmp_path, whole.config).load_checkpoint()[1]
    assert (facts["step"], facts["batch"]) == (2, 2)
    after = train_run(whole.config, tmp_path)
    strip = [{name: value for name, value in each.items() if name != "seconds"} for each in after.metrics()]
    assert strip == [{name: value for name, value in each.items() if name != "seconds"} for each in whole.metrics()]
    mine, theirs = after.load_checkpoint()[0], whole.load_checkpoint()[0]
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert after.result()["test_bits"] == whole.result()["test_bits"]


def test_a_run_begins_with_the_weights_of_another(books, whole, tmp_path):
    rule = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": LENGTH}
    config = small(books, start=str(whole.path), length=2 * LENGTH, epochs=1, batch=8, options={"extension": rule})
    still = train_run(replace(config, learning_rate=1e-30, ema=None), tmp_path)
    own, given = still.load_weights()[0], whole.load_weights()[0]
    assert own.keys() == given.keys()
    assert all(torch.equal(own[name], given[name]) for name in own)
    assert given["norm.weight"].equal(whole.load_checkpoint()[0]["average/module.norm.weight"])  # as it was judged
    tuned = train_run(config, tmp_path)
    assert tuned.result()["test_bits"] < still.result()["test_bits"]


def test_what_it_learned_can_be_looked_at_and_images_are_not_looked_for(whole):
    encoding, path, seed = load_run_encoding(str(whole.path))
    assert (encoding.name, encoding.size, seed) == ("rope", (LENGTH,), 0)
    assert path == str(whole.path / "checkpoint.safetensors")
    with pytest.raises(ValueError, match=r"run on images.*text"):
        load_image_model(whole)


def test_where_it_begins_is_part_of_its_name_and_the_place_of_that_is_not(books):
    config = small(books)
    one, two = (replace(config, start=f"{folder}/rope-seed0-aaaaaaaaaa") for folder in ("here", "there"))
    other = replace(config, start="here/rope-seed1-bbbbbbbbbb")
    assert one.name == two.name
    assert len({one.name, other.name, config.name}) == 3


def test_seeds_share_the_rest_of_the_name_and_each_begins_from_its_own(books, whole):
    config = small(books, start=str(whole.path).replace("seed0", "seed{seed}"))
    other = replace(config, seed=1)
    assert other.name == config.name.replace("seed0", "seed1")
    assert (config.start_path, str(other.start_path)) == (whole.path, str(whole.path).replace("seed0", "seed1"))
    with pytest.raises(CommandError, match=rf"{whole.path.name.replace('seed0', 'seed1')} is not a run directory"):
        compare_encodings(["rope"], config, whole.path.parent, seeds=[0, 1])


def test_settings_of_text_are_refused_for_images():
    for name, value in {"keys": 0.5, "kv_heads": 2}.items():
        with pytest.raises(ValueError, match=f"{name}.*text.*none, got {value}"):
            replace(Config(), **{name: value})


def test_only_a_run_that_is_done_and_fits_is_begun_from(books, whole, tmp_path):
    with pytest.raises(CommandError, match=r"not a run directory.*config\.json"):
        compare_encodings(["rope"], small(books, start=str(tmp_path)), tmp_path / "runs", seeds=[0])
    with pytest.raises(ValueError, match=rf"the weights of {whole.path} do not fit these settings"):
        train_run(small(books, start=str(whole.path), depth=1), tmp_path)
    begun = RunFolder(tmp_path / "begun", small(books, seed=5))
    begun.acquire({})
    begun.release()
    with pytest.raises(CommandError, match=r"no result\.json"):
        compare_encodings(["rope"], small(books, start=str(begun.path)), tmp_path / "runs", seeds=[0])


def test_another_text_of_the_same_bytes_is_noticed(books, tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    for name in ("train.txt", "val.txt"):
        (folder / name).write_bytes((books / name).read_bytes())

    def stop(record):
        raise KeyboardInterrupt

    config = small(folder)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path, watch=stop)
    (folder / "train.txt").write_bytes((books / "train.txt").read_bytes()[::-1])
    with pytest.raises(DamagedFileError, match="other data"):
        train_run(config, tmp_path)


def test_runs_of_another_name_are_read_where_they_are_named(whole, tmp_path):
    """Names had the seed in their hash once, in format 1."""
    older = tmp_path / "rope-seed0-0123456789"
    shutil.copytree(whole.path, older)
    held, facts = whole.load_checkpoint()
    said = {"format": "ropewalk run 1", "run": older.name, "facts": json.dumps(facts)}
    write_json(older / "config.json", whole.config.document())
    tensors = {name: value.contiguous() for name, value in held.items()}
    save_file(tensors, older / "checkpoint.safetensors", metadata=said | {"sum": compute_checksum(tensors, said["facts"])})
    assert RunFolder.at(older).load_weights()[0].keys() == whole.load_weights()[0].keys()
    (tmp_path / "other").mkdir()
    shutil.copytree(older, tmp_path / "other" / "rope-seed0-9876543210")
    with pytest.raises(DamagedFileError, match="must be a checkpoint of"):
        RunFolder.at(tmp_path / "other" / "rope-seed0-9876543210").load_checkpoint()


# Comparisons


@pytest.fixture(scope="module")
def compared(books, tmp_path_factory):
    """No encoding and RoPE, two seeds each."""
    return compare_encodings(["rope"], small(books, epochs=2), tmp_path_factory.mktemp("compared"), seeds=range(2))


def test_a_comparison_of_text_is_told_in_bits(compared):
    assert compared.code == 0
    assert compared.metric is BITS_PER_BYTE
    rows = {row.label: row for row in tabulate_comparison(compared)}
    results = [RunFolder.at(compared.runs / each.name).result() for each in compared.members if each.label == "rope"]
    assert rows["rope"].score.mean == pytest.approx(sum(each["test_bits"] for each in results) / 2, rel=1e-12)
    (_, rope) = csv.DictReader(io.StringIO(format_comparison_csv(list(rows.values()))))
    assert float(rope["test_bits"]) == rows["rope"].score.mean
    assert "images_per_second" not in rope
    titles = [column.header for column in make_rich_table(list(rows.values())).columns]
    assert titles[2] == "Test bits per byte"
    assert f"{rows['rope'].score.mean:.4f}" in list(make_rich_table(list(rows.values())).columns[2].cells)[1].plain


def test_a_report_of_text_takes_the_lowest_for_the_best(compared, tmp_path):
    words = write_report(Comparison.at(compared.path).found(), tmp_path).read_text()
    rows = {row.label: row.score.mean for row in tabulate_comparison(compared)}
    best = min(rows, key=rows.get)
    assert f"{best} has the lowest mean test bits per byte, {rows[best]:.3f}" in words
    assert "Test bits per byte" in words
    assert "points" not in words.replace("endpoints", "")
    first, second = csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text()))
    assert float(second["test_bits"]) == rows["rope"]
    assert "test_accuracy" not in first
    assert "dropout" not in words.split('id="reproduce"')[0]
    assert json.loads(Path(compared.path).read_text())["settings"]["length"] == LENGTH


def test_two_metrics_have_their_columns_in_one_report(compared, tmp_path):
    config = Config(data="digits", patch=2, width=24, depth=1, heads=2, epochs=1, batch=64, workers=0, augment=())
    images = train_run(config, tmp_path)
    write_report([images, *compared.found()], tmp_path / "out")
    text, *_, image = csv.DictReader(io.StringIO((tmp_path / "out" / "report.csv").read_text()))
    assert (text["test_accuracy"], image["test_bits"]) == ("", "")
    assert float(image["test_accuracy"]) == images.result()["test_accuracy"]
    assert float(text["test_bits"]) > 0
