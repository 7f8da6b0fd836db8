"""Probes of runs on text: losses by position, rules for longer texts, hidden keys, cost, and what reports draw of them."""

import csv
import io
import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from ropewalk.lab.bench import timing
from ropewalk.lab.data.text import KEY_QUESTION, KEY_SENTENCE, MIN_KEY_LENGTH
from ropewalk.lab.encoding_spec import parse_encoding
from ropewalk.lab.probes import list_task_probes, probe_run, text
from ropewalk.lab.probes.cost import probe_cost
from ropewalk.lab.probes.text import (
    KEY_DEPTHS,
    KEY_DRAWS,
    build_passkey_texts,
    compute_bin_edges,
    measure_position_loss,
    probe_passkey,
    probe_positions,
)
from ropewalk.lab.report import write_report
from ropewalk.lab.report.panels import shorten_label
from ropewalk.lab.report.text_figures import plot_length_lines
from ropewalk.lab.report.theme import assign_styles
from ropewalk.lab.sealed_files import read_json
from ropewalk.lab.statistics import MeanEstimate
from ropewalk.lab.tasks import open_trained_run
from ropewalk.lab.tasks.text import TEXT_EXTENSION_RULES, TextRun
from ropewalk.lab.train import train_run
from tests.lab.tasks.test_text import LENGTH, SMALL, sentences
from tests.support.patch_everywhere import patch_everywhere

ENCODINGS = {"none": {}, "rope": {}, "alibi": {}, "learned-ape": {}, "mixed": {}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of each encoding, by its name, and one that was fine-tuned."""
    books, out = tmp_path_factory.mktemp("books"), tmp_path_factory.mktemp("runs")
    (books / "train.txt").write_bytes(sentences(2000))
    (books / "val.txt").write_bytes(sentences(2600, seed=1))
    base = replace(SMALL, data=str(books), epochs=1, width=48)
    made = {name: train_run(replace(base, encoding=name, options=own), out) for name, own in ENCODINGS.items()}
    rule = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": LENGTH}
    longer = replace(base, encoding="rope", options={"extension": rule}, length=4 * LENGTH, batch=4)
    return made | {"tuned": train_run(replace(longer, start=str(made["rope"].path)), out)}


@pytest.fixture(scope="module")
def subject(runs):
    return open_trained_run(runs["rope"], "cpu")


@pytest.fixture(scope="module")
def rows(subject):
    return list(probe_positions(subject))


def told(rows, **wanted):
    return [row for row in rows if wanted.items() <= row.items()]


# Positions


def test_bins_are_even_octaves_and_leave_nothing_out():
    found = compute_bin_edges(512, 8192)
    assert (found[0], found[-1]) == (0, 8192)
    assert {64, 128, 256, 512, 1024, 2048, 4096} <= set(found)
    assert found == sorted(set(found))
    assert all(b / a == pytest.approx(2**0.5, rel=0.01) for a, b in itertools.pairwise(found[1:]))
    assert compute_bin_edges(24, 24)[-1] == 24
    assert compute_bin_edges(3, 12)[0] == 0


def test_losses_by_position_are_those_of_each_byte(subject):
    window = 2 * LENGTH
    found, count = measure_position_loss(subject, subject.model, window)
    part = subject.text.parts["validation"].long()
    assert count == (len(part) - 1) // window
    total = torch.zeros(window)
    for i in range(count):
        text = part[i * window : (i + 1) * window + 1]
        with torch.no_grad():
            total += F.cross_entropy(subject.model(text[None, :-1])[0], text[1:], reduction="none")
    torch.testing.assert_close(found.float(), total / count)


def test_positions_go_to_sixteen_times_the_length_and_to_four_after_fine_tuning(runs, rows):
    plain = told(rows, rule=None)
    assert [(row["from"], row["to"]) for row in plain] == list(itertools.pairwise(compute_bin_edges(LENGTH, 384)))
    assert {(row["rule"], row["factor"]) for row in rows} == {
        (None, 16),
        *((r, f) for r in TEXT_EXTENSION_RULES for f in (2, 4, 8, 16)),
    }
    assert all(0 < row["loss"] < 8 and row["window"] == row["factor"] * LENGTH for row in rows)
    assert max(row["to"] for row in told(rows, rule="yarn", factor=4)) == 4 * LENGTH
    tuned = list(probe_positions(open_trained_run(runs["tuned"], "cpu")))
    assert {(row["rule"], row["window"]) for row in tuned} == {(None, 16 * LENGTH)}


def test_a_bin_is_the_mean_of_its_positions_and_rules_change_it(subject, rows):
    model = subject.extended("linear", 4)
    losses, count = measure_position_loss(subject, model, 4 * LENGTH)
    for row in told(rows, rule="linear", factor=4):
        assert row["loss"] == pytest.approx(losses[row["from"] : row["to"]].mean().item(), rel=1e-9)
        assert row["texts"] == count
    assert model.encoding.extension == {"rope_type": "linear", "factor": 4.0, "original_max_position_embeddings": LENGTH}
    as_trained = measure_position_loss(subject, subject.model, 4 * LENGTH)[0]
    assert (losses - as_trained).abs().max() > 1e-3


def test_no_more_is_read_than_enough(subject, monkeypatch):
    patch_everywhere(monkeypatch, text, "MAX_PROBED_BYTES", 3 * LENGTH)
    assert measure_position_loss(subject, subject.model, LENGTH)[1] == 3
    assert measure_position_loss(subject, subject.model, 4 * LENGTH)[1] == 1


def test_tables_that_end_and_encodings_without_rules_say_so(runs):
    for name in ("none", "alibi", "mixed"):
        rows = list(probe_positions(open_trained_run(runs[name], "cpu")))
        assert {row["rule"] for row in rows} == {None}
        assert not any("why" in row for row in rows)
    rows = list(probe_positions(open_trained_run(runs["learned-ape"], "cpu")))
    assert len(rows) == 1
    assert "why" in rows[0]


# Keys


def test_a_key_is_hidden_at_its_depth_and_asked_for_at_the_end(subject):
    text = bytes(build_passkey_texts(subject, 384, 0.25)[0].tolist())
    key, around = text[-5:].decode(), 384 - len(KEY_SENTENCE + KEY_QUESTION)
    said = KEY_SENTENCE.decode().replace("#####", key).encode()
    part = bytes(subject.text.parts["validation"][:around].tolist())
    assert key.isdigit()
    assert text == part[: round(around / 4)] + said + part[round(around / 4) :] + KEY_QUESTION[:-5] + key.encode()


def test_keys_are_asked_for_at_each_length_and_depth(subject):
    rows, short = [], []
    for row in probe_passkey(subject):
        (short if "why" in row else rows).append(row)
    assert {row["length"] for row in short} == {n * LENGTH for n in (1, 2, 4)}  # which have no room
    assert f"must have {MIN_KEY_LENGTH} bytes" in short[0]["why"]
    lengths = {row["length"] for row in rows}
    assert min(lengths) >= MIN_KEY_LENGTH
    assert max(lengths) == 16 * LENGTH
    assert {(row["rule"], row["depth"]) for row in rows} == {
        (rule, depth) for rule in (None, *TEXT_EXTENSION_RULES) for depth in KEY_DEPTHS
    }
    assert all(0 <= row["exact"] <= row["digits"] <= 1 and row["loss"] > 0 for row in rows)


class Copier:
    """A model that finds the key wherever it is hidden, but for its last digit."""

    def __call__(self, tokens, last):
        logits = torch.zeros(*tokens.shape, 256)
        for row, window in zip(logits, tokens, strict=True):
            place = bytes(window.tolist()).index(b"The pass key is ") + 16
            row[-5:].scatter_(1, window[place : place + 5, None], 9.0)
            row[-1] = 0
        return logits[:, -last:]


def test_digits_that_are_found_count(subject, monkeypatch):
    monkeypatch.setattr(TextRun, "extended", lambda self, rule, factor: Copier())
    for row in (row for row in probe_passkey(subject) if "why" not in row):
        assert row["digits"] == pytest.approx(0.8)
        assert row["exact"] == 0
        assert row["loss"] == pytest.approx((4 * math.log(1 + 255 * math.exp(-9)) + math.log(256)) / 5, rel=1e-4)
    texts = {bytes(text.tolist()) for text in build_passkey_texts(subject, 384, 0.5)}
    assert len({text[-5:] for text in texts}) == len(texts) == KEY_DRAWS
    assert {len(text) for text in texts} == {384}


# On disk, on a page


def test_a_run_is_probed_for_what_there_is_of_text(runs):
    found = probe_run(runs["rope"], device="cpu")
    assert {name for name in found if name != "refused"} == set(list_task_probes("text"))
    (cost,) = found["cost"]
    assert cost["bytes_per_second"] > 0 < cost["without_encoding"]
    assert read_json(runs["rope"].path / "probes.json") == found
    with pytest.raises(ValueError, match=r"'resolution'.*positions"):
        probe_run(runs["rope"], ["resolution"])


def test_cost_is_counted_in_bytes(subject, monkeypatch):
    patch_everywhere(
        monkeypatch, timing, "time_interleaved_rounds", lambda *works, **options: ([1e3, 2e3], [5e2])
    )  # in milliseconds
    (row,) = probe_cost(subject)
    assert (row["bytes_per_second"], row["without_encoding"]) == (16 * LENGTH, 32 * LENGTH)
    assert row["parameters"] == sum(weight.numel() for weight in subject.model.parameters())
    assert row["encoding_parameters"] == 0


@pytest.mark.parametrize(
    ("encoding", "options", "words"),
    [
        ("rope", {"extension": {"rope_type": "yarn-article", "factor": 4.0}}, "rope:yarn-article"),
        ("rope", {"extension": {"factor": 4.0, "rope_type": "yarn"}, "learned": True}, "rope:yarn,learned=true"),
        ("chain", {"parts": [{"name": "rope", "base": 100.0}, {"name": "alibi"}]}, "rope + alibi"),
        ("liere", {"block": 4}, "liere:block=4"),
        ("rope", {"base": 123456.0, "rotary_dim": 16}, "rope:base=123456.0,rota…"),
    ],
)
def test_labels_are_told_apart_in_little_room(encoding, options, words):
    assert shorten_label(parse_encoding((encoding, options)).label) == words


def test_keys_in_a_picture_name_their_lines():
    levels = {"a": 1.0, "b": 20.0}
    lines = {name: {1.0: MeanEstimate(level, None, 1), 90.0: MeanEstimate(level, None, 1)} for name, level in levels.items()}
    styles = assign_styles(lines, "a")
    figure = plot_length_lines(lines, styles, "title", length=24, xlabel="position", top=8.0, own_legend=True)
    (axes,), (legend,) = figure.axes, figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["a", "b"]
    drawn = [each[0].get_color() for each in axes.get_legend_handles_labels()[0]]
    assert drawn == [styles[name].colour for name in words]
    assert axes.get_ylim()[1] == 8.0


def test_a_report_draws_losses_by_position(runs, tmp_path):
    for run in runs.values():
        probe_run(run, ["positions", "passkey", "cost"], device="cpu")
    page = write_report(list(runs.values()), tmp_path).read_text()
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"positions-1.png", "positions-2.png", "passkey-1.png", "passkey-rules-1-1.png", "cost-1.png"} <= names
    assert {f"extensions-1-{factor}-1.png" for factor in (2, 4, 8, 16)} <= names
    assert not any(name.startswith(("resolution", "attention")) for name in names)
    assert "learned-ape, positions" in page  # which refused
    for word in ("Loss by position", "Context extension", "Passkey retrieval"):
        assert word in page
    first, *_ = csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text()))
    assert float(first["bytes_per_second"]) > 0
