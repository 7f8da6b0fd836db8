"""Reports: their numbers are those of the files, nothing is fetched or run, and what is missing or hostile stops nothing."""

import base64
import csv
import hashlib
import json
import math
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from ropewalk.lab import report
from ropewalk.lab.config import PER_RUN_FIELDS, UNHASHED_FIELDS, Config, setting_applies
from ropewalk.lab.encoding_spec import parse_encoding
from ropewalk.lab.recipes import RECIPES, parse_settings
from ropewalk.lab.report import describe_findings, write_report
from ropewalk.lab.report.conclusions import GroupConclusions, write_conclusions
from ropewalk.lab.report.groups import group_records
from ropewalk.lab.report.page import ReportChapter, render_page
from ropewalk.lab.report.panels import ReportFigure
from ropewalk.lab.report.reproduce import format_reproduction, format_train_command
from ropewalk.lab.report.series import collect_frequencies, collect_lines, select_quantiles
from ropewalk.lab.report.theme import BASELINE_COLORS, DARK_THEME, ENCODING_PALETTE, LIGHT_THEME, LINE_DASHES, assign_styles
from ropewalk.lab.result_rows import build_table_rows, sort_table_rows
from ropewalk.lab.results_table import format_difference, format_score
from ropewalk.lab.run_loading import load_run
from ropewalk.lab.run_store import RunFolder
from ropewalk.lab.sealed_files import write_json
from ropewalk.lab.statistics import estimate_differences, estimate_means
from ropewalk.lab.task_types import TOP1_ACCURACY

BASE = Config(data="digits", patch=2, width=24, depth=2, heads=2, ratio=2.0, epochs=3, batch=64, workers=0, augment=())
WEIGHTS = "ropewalk.lab.report.probe_figures.measure_attention_weights"
ENCODINGS = {"none": {}, "learned-ape": {}, "mixed": {}, "liere": {"block": 4}}
LEVEL = {"none": 0.40, "learned-ape": 0.55, "mixed": 0.45, "liere": 0.60}
NASTY = """<script>alert(1)</script>"'&--><!-- $x_1$ </style></svg>"""


class Page(HTMLParser):
    """All tags with their attributes, and the words; tags that close what was not opened are an error."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def all(self, tag, **wanted):
        return [found for name, found in self.tags if name == tag and wanted.items() <= found.items()]


def made(runs, config, *, accuracy=None, metrics=True, probes=None, **result):
    """The folder of a run as training leaves it."""
    run = RunFolder(runs, config)
    run.acquire({"machine": {"device": "CPU"}, "versions": {"torch": "9.9"}})
    run.release()
    if metrics:
        for epoch in range(1, config.epochs + 1):
            run.log(step=5 * epoch, epoch=epoch, loss=2.0 / epoch, validation_accuracy=0.1 * epoch, seconds=0.5 * epoch)
    if accuracy is not None:
        numbers = {"seconds": 1.5, "parameters": 38_000, "encoding_parameters": 96, **result}
        run.finish(test_accuracy=accuracy, test_loss=1.0, validation_accuracy=accuracy, **numbers)
    if probes is not None:
        write_json(run.path / "probes.json", probes)
    return run


def probed(accuracy):
    """All probes, made up."""
    sizes = [([6, 10], -0.1), ([8, 8], 0.0), ([12, 20], -0.2)]
    return {
        "resolution": [
            {"mode": mode, "size": size, "accuracy": accuracy + less - 0.05 * (mode == "rescale"), "loss": 1.0}
            for mode in ("extrapolate", "rescale")
            for size, less in sizes
        ],
        "offset": [{"rho": r, "accuracy": accuracy - 0.01 * r, "draws": 3} for r in (0, 0.5, 8)],
        "translation": [{"shift": s, "accuracy": accuracy - 0.1 * abs(sum(s))} for s in ([0, 0], [0, 1], [-1, 0], [2, 0])],
        "shuffle": [{"accuracy": 0.2, "draws": 3}],
        "reached": [{"accuracy": 0.2, "step": 10}, {"accuracy": 0.9, "step": None}],
        "frequencies": [{"layer": i, "radians": [0.0, 0.5, 3.0, 30.0]} for i in range(2)],
        "equivariance": [{"layer": 0, "axis": "row", "expected": 0.1, "worst": 0.25}],
        "cost": [{"images_per_second": 8000.0, "without_encoding": 10000.0, "peak_bytes": 3 * 2**20}],
        "refused": [
            {"probe": "waves", "why": "they do not commute"},
            {"probe": "shuffle", "why": "they do not commute"},
            {"probe": "offset", "rho": 4, "why": "too far"},
            {"probe": "offset", "rho": 8, "why": "still further"},
        ],
    }


def score(name, seed):
    return LEVEL[name] + 0.01 * ((7 * seed + len(name)) % 5 - 2)


def many(runs, *, seeds=(0, 1, 2), base=BASE, **more):
    return [
        made(runs, replace(base, encoding=name, options=options, seed=seed), accuracy=score(name, seed), **more)
        for seed in seeds
        for name, options in ENCODINGS.items()
    ]


def grouped(runs):
    """Runs in groups, read from their folders."""
    return group_records([load_run(run.path) for run in runs])


def tabulated(group, baseline):
    return sort_table_rows(build_table_rows(group.found, group.metric, baseline=baseline), first=baseline)


@pytest.fixture
def no_patterns(monkeypatch):
    """No weights can be opened."""

    def refuse(run, layers):
        raise ValueError("no weights here")

    monkeypatch.setattr(WEIGHTS, refuse)


@pytest.fixture
def squares(monkeypatch):
    """Attention patterns need no weights."""
    monkeypatch.setattr(WEIGHTS, make_up_weights)


def make_up_weights(run, layers):
    return {i: np.arange(1.0, 31).reshape(2, 3, 5) / 30 for i in layers}


def read(path):
    return Page(path.read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report of everything: its page, its folder, and the runs."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WEIGHTS, make_up_weights)
        runs = many(folder / "runs", probes=probed(0.5))
        path = write_report(runs, folder / "out", question="Which?")
    return read(path), folder / "out", runs


def cells(out):
    """The rows of a spreadsheet."""
    return list(csv.DictReader((out / "report.csv").read_text().splitlines()))


def by_hand():
    """Accuracies by label and seed."""
    labels = {name: "liere:block=4" if name == "liere" else name for name in ENCODINGS}
    return {labels[name]: {seed: score(name, seed) for seed in range(3)} for name in ENCODINGS}


# The page


def test_a_page_is_one_whole_file(whole):
    page, out, _ = whole
    assert page.all("html", lang="en")
    assert page.all("meta", charset="utf-8")
    assert "width=device-width" in page.all("meta", name="viewport")[0]["content"]
    assert page.text.count("Which?") == 2  # the title and the heading
    assert [tag for tag, _ in page.tags].count("h1") == 1
    style = (out / "report.html").read_text().partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme:dark" in style
    assert "overflow-x: auto" in style
    assert not {"link", "iframe", "img", "object"} & {tag for tag, _ in page.tags}
    assert page.all("script") == [{}]  # inline


def test_nothing_is_fetched(whole):
    page, out, _ = whole
    text = (out / "report.html").read_text()
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            if "://" in (value or ""):
                assert (tag, name) == ("a", "href")
    assert page.all("a", href="https://arxiv.org/abs/2403.13298")
    assert "@import" not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {f"#{found['id']}" for found in page.all("clippath")}
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert policy.endswith(f"script-src 'sha256-{digest}'")


def test_results_come_first_and_conclusions_once(whole):
    page, _, _ = whole
    body = page.text.partition("How to read this Results")[2]
    places = [
        "has the highest mean",
        "Points above none",
        "Thick lines are",
        "Shared by all",
        "ropewalk train",
        "Scores are means",
    ]
    order = [body.index(words) for words in places]
    assert order == sorted(order)
    assert page.text.count("has the highest mean") == 1


def test_ids_are_there_once_and_links_lead_somewhere(whole):
    page, _, _ = whole
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    inside = [found["href"][1:] for found in page.all("a") if found["href"].startswith("#")]
    assert len(inside) > 9
    assert set(inside) <= set(ids)
    uses = {attributes["xlink:href"][1:] for tag, attributes in page.tags if tag == "use"}
    assert uses
    assert uses <= set(ids)


def test_every_figure_has_words(whole):
    page, out, _ = whole
    plots = page.all("svg", **{"class": "plot"})
    assert len(plots) == len(list((out / "figures").glob("*.png"))) == 2 + 2 + 2 + 1 + 1 + 4 + 4 + 1
    assert all(found["role"] == "img" and len(found["aria-label"]) > 20 for found in plots)
    assert [tag for tag, _ in page.tags].count("figcaption") == len(page.all("figure")) == 8
    mean = estimate_means({label: list(seeds.values()) for label, seeds in by_hand().items()})["mixed"]
    assert f"mixed {format_score(mean, TOP1_ACCURACY)}" in plots[0]["aria-label"]


def test_rows_legends_and_lines_carry_their_encoding(whole):
    page, _, _ = whole
    for label in by_hand():
        kinds = [tag for tag, attributes in page.tags if attributes.get("data-encoding") == label]
        assert kinds.count("tr") == 2  # results and single numbers
        assert kinds.count("li") == 5
        assert kinds.count("g") > 20
        assert kinds.count("svg") == 2  # frequencies and attention
        assert set(kinds) == {"tr", "li", "g", "svg"}


def test_words_in_figures_are_large_enough(whole):
    _, out, _ = whole
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", (out / "report.html").read_text())}
    assert sizes
    assert min(sizes) >= 8.6  # points of a figure of 288, which a phone shows in 268: 8 are left


def test_figures_have_colours_of_both_themes(whole):
    _, out, _ = whole
    svgs = re.findall(r"<svg.*?</svg>", (out / "report.html").read_text(), flags=re.DOTALL)
    colours = set(re.findall(r"(?:fill|stroke): ?([^;\"]+)", " ".join(svgs)))
    assert {"var(--ink)", "var(--faint)", "var(--line)", "var(--base)", "var(--c0)"} <= colours
    assert not [colour for colour in colours if colour.startswith("#")]


def drawn_legend(folder, styles):
    """The items of a legend in a page, by label."""
    (group,) = grouped([made(folder, BASE, metrics=False)])
    figure = ReportFigure("learning", "", "", [], [*styles])
    chapter = ReportChapter(group, tabulated(group, "none"), GroupConclusions([], []), [figure], "")
    page = render_page([chapter], assign_styles(["mixed"], "none") | styles, question="", baseline="none")
    items = re.findall(r'<li data-encoding="([^"]*)">(.*?)</li>', page, flags=re.DOTALL)
    assert [label for label, _ in items] == [*styles]
    return dict(items)


def test_legends_distinguish_encodings_of_one_color(tmp_path):
    styles = assign_styles([*(f"e{i:02}" for i in range(2 * len(ENCODING_PALETTE) + 1)), "none"], "none")
    drawn = drawn_legend(tmp_path, styles)
    first, again = drawn["e00"], drawn[f"e{len(ENCODING_PALETTE):02}"]
    assert "var(--c0)" in first
    assert "var(--c0)" in again
    assert 'stroke-dasharray="none"' in first
    assert 'stroke-dasharray="2 3"' in again
    assert 'stroke-dasharray="6 3"' in drawn["none"]
    assert set(re.findall(r'stroke-dasharray="([^"]+)"', "".join(drawn.values()))) == set(LINE_DASHES.values())
    looks = {re.sub(r"(e\d\d|none)$", "", item) for item in drawn.values()}
    assert len(looks) == len(drawn)


def test_pngs_are_pictures(whole):
    _, out, _ = whole
    for path in (out / "figures").glob("*.png"):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert path.stat().st_size > 2000


# The numbers


def test_numbers_are_those_of_the_files(whole):
    page, _, _ = whole
    found = by_hand()
    mean = estimate_means({label: list(seeds.values()) for label, seeds in found.items()})
    apart = estimate_differences(found, "none")
    for label, estimate in mean.items():
        assert format_score(estimate, TOP1_ACCURACY) in page.text
        assert label == "none" or format_difference(apart[label], TOP1_ACCURACY) in page.text
    # Once more without the functions that are judged: three seeds, eight degrees of freedom, of which t is 2.306.
    squares = [(y - sum(s.values()) / 3) ** 2 for s in found.values() for y in s.values()]
    half = 2.306 * math.sqrt(sum(squares) / 8 / 3)
    assert mean["mixed"].half == pytest.approx(half, rel=1e-4)


def test_the_spreadsheet_reads_back(whole):
    _, out, _ = whole
    rows = {row["label"]: row for row in cells(out)}
    found = by_hand()
    assert rows.keys() == found.keys()
    mean, apart = estimate_means({k: list(v.values()) for k, v in found.items()}), estimate_differences(found, "none")
    for label, row in rows.items():
        assert float(row["test_accuracy"]) == mean[label].mean
        assert float(row["test_accuracy_half"]) == mean[label].half
        assert row["seeds"] == "0 1 2"
        assert float(row["inference_ratio"]) == 1.25
        assert float(row["peak_bytes"]) == 3 * 2**20
        if label != "none":
            assert (float(row["difference"]), float(row["difference_half"])) == apart[label][:2]
    assert rows["none"]["difference"] == ""
    assert json.loads(rows["liere:block=4"]["options"]) == {"block": 4}


def test_probes_are_means_over_seeds(tmp_path):
    first = probed(0.5) | {"offset": [{"rho": 1, "accuracy": 0.2}, {"rho": 1, "accuracy": 0.4}]}
    runs = [made(tmp_path, BASE, accuracy=0.5, probes=first)]
    runs.append(made(tmp_path, replace(BASE, seed=1), accuracy=0.5, probes={"offset": [{"rho": 1, "accuracy": 0.7}]}))
    (group,) = grouped(runs)
    (found,) = collect_lines(group, "offset", lambda row: row["rho"])["mixed"].values()
    assert found.mean == pytest.approx(0.5)
    assert found.half == pytest.approx(12.706 * math.sqrt(0.08) / math.sqrt(2), rel=1e-3)
    sizes = collect_lines(group, "resolution", lambda row: row["size"][1] if row["mode"] == "rescale" else None)["mixed"]
    assert {width: round(each.mean, 6) for width, each in sizes.items()} == {10: 0.35, 8: 0.45, 20: 0.25}
    assert collect_frequencies(group.runs) == {0: [0.0, 0.5, 3.0, 30.0], 1: [0.0, 0.5, 3.0, 30.0]}


def test_many_frequencies_are_thinned_to_quantiles():
    assert select_quantiles([1.0, 2.0], 5) == [1.0, 2.0]
    assert select_quantiles([float(i) for i in range(101)], 5) == [0.0, 25.0, 50.0, 75.0, 100.0]


def test_single_numbers_are_told(whole):
    page, _, _ = whole
    assert "Accuracy, patches shuffled" in page.text
    assert "Steps to 20 %" in page.text
    assert "Steps to 90 %" not in page.text
    assert "0.25" in page.text
    assert page.text.count("mixed, waves and shuffle: they do not commute.") == 1
    assert "mixed, offset: too far." in page.text


def test_it_is_said_what_was_held_equal(whole):
    page, _, runs = whole
    settings = {name: value for name, value in BASE.document().items() if name not in (*PER_RUN_FIELDS, *UNHASHED_FIELDS)}
    applied = [name.replace("_", " ") for name in settings if setting_applies(name, settings)]
    assert len(applied) > 20
    assert [name for name in applied if f"{name} " not in page.text] == []
    assert "width 24" in page.text
    assert "size that of the data" in page.text
    assert "span each encoding's own" in page.text
    assert "All ran on CPU, torch 9.9." in page.text
    assert f"Shared by all {len(runs)} runs" in page.text


# What can be concluded


def concluded(scores, tmp_path, baseline="none", **base):
    runs = [
        made(tmp_path, replace(BASE, encoding=name, seed=seed, **base), accuracy=value, metrics=False)
        for name, values in scores.items()
        for seed, value in values.items()
    ]
    (group,) = grouped(runs)
    found = write_conclusions(group, tabulated(group, baseline), baseline)
    return " ".join(found.findings), " ".join(found.caveats)


def test_differences_beyond_their_intervals_are_concluded(tmp_path):
    scores = {
        "none": {0: 0.50, 1: 0.52, 2: 0.51},
        "mixed": {0: 0.60, 1: 0.63, 2: 0.61},
        "axial": {0: 0.51, 1: 0.51, 2: 0.52},
        "sincos": {0: 0.40, 1: 0.41, 2: 0.42},
    }
    shown, left = concluded(scores, tmp_path)
    assert "mixed has the highest mean test accuracy, 61.3" in shown
    assert "It differs significantly from all others." in shown
    assert "Significantly above none, in points: mixed +10.3 ± " in shown
    assert "Significantly below none, in points: sincos −10.0 ± " in shown
    assert "No significant difference from none, in points: axial +0.3 ± " in shown
    assert left == "3 seeds of each encoding, 8 degrees of freedom."


UNSTEADY = "of the summed variance"


def spread(*widths):
    """Scores of three seeds; variances are squares of these widths, in points."""
    names = ("none", "mixed", "axial", "sincos", "golden")
    return {name: {0: 0.5 - w / 100, 1: 0.5, 2: 0.5 + w / 100} for name, w in zip(names, widths, strict=False)}


def test_an_encoding_with_more_of_the_variance_than_chance_gives_is_told(tmp_path):
    """By the table of Cochran's C: of four variances of three values each, the largest has 86.4 % of their sum at 1 %."""
    told = concluded(spread(5, 1, 1, 1), tmp_path / "one")[1]
    assert f"none has 89 % {UNSTEADY} of the 4 encodings with 3 seeds (significant above 86 %" in told
    assert UNSTEADY not in concluded(spread(4, 1, 1, 1), tmp_path / "two")[1]  # 84 %
    assert UNSTEADY not in concluded({"none": {0: 0.3, 1: 0.7}, "mixed": {0: 0.5}}, tmp_path / "three")[1]
    assert UNSTEADY not in concluded(spread(0, 0, 0, 0), tmp_path / "four")[1]


def test_variances_of_the_seeds_that_most_have_are_compared(tmp_path):
    """One that is alone with its number of seeds has no like."""
    scores = spread(5, 1, 1, 1, 9)
    assert "none has 89 %" not in concluded(scores, tmp_path / "one")[1]
    for seeds, number in (({0: 0.3, 1: 0.7}, "two"), ({0: 0.3, 1: 0.7, 2: 0.1, 3: 0.9}, "four"), ({0: 0.5}, "alone")):
        scores["golden"] = seeds
        assert f"none has 89 % {UNSTEADY} of the 4 encodings with 3 seeds" in concluded(scores, tmp_path / number)[1]


def test_most_have_one_seed_and_others_are_compared_still(tmp_path):
    scores = {name: {0: 0.5} for name in ("liere", "uniform", "alibi", "golden", "spherical")} | spread(5, 1, 1, 1)
    assert f"none has 89 % {UNSTEADY} of the 4 encodings with 3 seeds" in concluded(scores, tmp_path)[1]


def test_the_noise_of_inference_ratios_is_that_of_no_encoding(tmp_path):
    def write(name, seed, throughput):
        cost = {"cost": [{"images_per_second": throughput, "without_encoding": 1000.0}]}
        return made(tmp_path, replace(BASE, encoding=name, seed=seed), accuracy=0.5, probes=cost)

    runs = [write("mixed", 0, 500.0)]
    for none, words in (
        ([], None),
        ([1000 / 0.88], "has a ratio of 0.88 instead of 1: the ratios of other encodings have an error of about 0.12 too."),
        ([1000 / 1.05], "has ratios of 0.88 to 1.05 instead of 1"),
    ):
        runs += [write("none", len(runs), throughput) for throughput in none]
        (group,) = grouped(runs)
        caveats = " ".join(write_conclusions(group, tabulated(group, "none"), "none").caveats)
        assert words in caveats if words else "ratio" not in caveats


def test_findings_and_the_page_have_one_order(whole):
    page, _, runs = whole
    first, *others = describe_findings([load_run(run.path) for run in reversed(runs)])
    assert others
    assert all(" ".join(sentence.split()) in page.text for sentence in (first, *others))


def test_data_are_named_without_their_folder(tmp_path, no_patterns):
    runs = many(tmp_path / "runs", seeds=(0,), base=replace(BASE, data="/home/me/data/solids.npz"))
    page = read(write_report(runs, tmp_path / "out"))
    assert "4 encodings on solids.npz, 4 runs" in page.text
    assert "/home/me" not in page.text.partition("How to reproduce On a CPU")[0]


def test_names_of_encodings_are_not_wrapped():
    style = (Path(report.__file__).parent / "style.css").read_text()
    assert re.findall(r"\.name \{([^}]*)\}", style) == [" white-space: nowrap "]


def test_noise_is_not_concluded(tmp_path):
    shown, _ = concluded({"none": {0: 0.4, 1: 0.6}, "mixed": {0: 0.65, 1: 0.45}}, tmp_path)
    assert "mixed has the highest mean test accuracy, 55.0 ± 43.0 %. It does not differ significantly from none." in shown
    assert "No significant difference from none, in points: mixed" in shown


def test_one_seed_has_no_interval(tmp_path, no_patterns):
    shown, left = concluded({"none": {0: 0.4}, "mixed": {0: 0.9}}, tmp_path)
    assert "Significantly" not in shown
    assert "One seed of each encoding does not allow a significance test" in shown
    assert "one seed of each encoding, so there are no confidence intervals" in left
    page = read(write_report([RunFolder.at(path) for path in tmp_path.iterdir()], tmp_path / "out"))
    assert "90.0 %" in page.text
    assert "90.0 ±" not in page.text
    assert "+50.0" in page.text
    assert "not significant" not in page.text
    assert "single seeds. There is one seed of each encoding" in page.text


def test_an_encoding_without_a_common_seed_has_no_difference(tmp_path):
    shown, left = concluded({"none": {0: 0.4, 1: 0.41}, "mixed": {2: 0.9}}, tmp_path)
    assert "mixed: no seed in common with none" in shown
    assert "1 to 2 seeds" in left
    assert "Intervals of mixed, with one seed, rest on" in left
    assert "ignificant difference" not in shown
    assert "Significantly" not in shown


def test_without_the_baseline_there_are_no_differences(tmp_path):
    shown, _ = concluded({"axial": {0: 0.4, 1: 0.41}, "mixed": {0: 0.9, 1: 0.91}}, tmp_path)
    assert "The baseline, none, has no finished run" in shown
    assert "Significantly" not in shown


# What is not there


def test_a_folder_of_settings_alone_is_enough(tmp_path, no_patterns):
    run = made(tmp_path / "runs", BASE, metrics=False)
    (run.path / "environment.json").unlink()
    page = read(write_report([run], tmp_path / "out"))
    assert "No run is finished." in page.text
    assert "mixed, seed 0 (not finished: 0 of 3 epochs)" in page.text
    assert "No run has a record of its machine" in page.text
    for name in ("resolution", "offset", "translation", "frequencies"):
        assert f"No run was probed for {name}." in page.text
    assert "No run has metrics" in page.text
    assert "attention patterns" in page.text
    assert not page.all("figure")
    assert not (tmp_path / "out" / "figures").exists()


def test_no_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path)


def test_failed_runs_are_told_and_left_out(tmp_path, no_patterns):
    runs = many(tmp_path / "runs", metrics=False)
    gone = made(tmp_path / "runs", replace(BASE, seed=3), metrics=False)
    (gone.path / "failed.txt").write_text("NotFinite: the loss of epoch 2 is nan\n")
    done = runs[2]
    (done.path / "failed.txt").write_text("an attempt before the one that went well")
    page = read(write_report([*runs, gone], tmp_path / "out"))
    assert "mixed, seed 3 (failed: NotFinite: the loss of epoch 2 is nan)" in page.text
    assert "3 of 4" in page.text
    assert "an attempt before" not in page.text
    rows = {row["label"]: row for row in cells(tmp_path / "out")}
    assert rows["mixed"]["unfinished_seeds"] == "3"
    assert (
        float(rows["mixed"]["test_accuracy"]) == estimate_means({"m": [score("mixed", seed) for seed in range(3)]})["m"].mean
    )


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"test_accuracy": NaN}', '{"test_accuracy": "0.9"}', '{"test_loss": 1.0}', "\xff"]
)
def test_results_that_are_none_are_told(tmp_path, no_patterns, text):
    run = made(tmp_path / "runs", BASE, metrics=False)
    (run.path / "result.json").write_text(text, encoding="latin-1")
    page = read(write_report([run], tmp_path / "out"))
    assert "failed: its result.json has no finite test metric" in page.text
    assert str(tmp_path) not in page.text


@pytest.mark.parametrize(
    "text",
    ["{", "[]x", "[3]", '{"offset": 3}', '{"offset": [3, {"rho": "a"}, {"accuracy": 0.5}, {"rho": 1, "accuracy": NaN}]}',
     '{"resolution": [{"mode": "rescale", "size": "8", "accuracy": 0.5}, {"mode": 3, "size": [8, null], "accuracy": 1}]}',
     '{"frequencies": [{"layer": "x", "radians": [1]}, {"layer": 0, "radians": ["a"]}], "cost": [{}], "reached": [{}]}'],
)  # fmt: skip
def test_probes_that_are_none_are_left_out(tmp_path, no_patterns, text):
    run = made(tmp_path / "runs", BASE, accuracy=0.5, metrics=False)
    (run.path / "probes.json").write_text(text)
    page = read(write_report([run], tmp_path / "out"))
    assert "50.0 %" in page.text
    for name in ("resolution", "offset", "frequencies"):
        assert f"No run was probed for {name}." in page.text
    broken = text in ("{", "[]x", "[3]", '{"offset": 3}') or "[3, " in text
    assert ("probes.json" in page.text) == broken


def test_damaged_metrics_are_told(tmp_path, no_patterns):
    run = made(tmp_path / "runs", BASE, accuracy=0.5)
    path = run.path / "metrics.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    page = read(write_report([run], tmp_path / "out"))
    assert f"line 1 of {run.path.name}/metrics.jsonl cannot be read" in page.text
    assert "No run has metrics" in page.text


@pytest.mark.parametrize("missing", [None, math.nan, "gone"])
def test_runs_without_validation_are_reported_all_the_same(tmp_path, no_patterns, missing):
    run = made(tmp_path / "runs", BASE, accuracy=0.5, metrics=False)
    told = {} if missing == "gone" else {"validation_accuracy": missing}
    write_json(run.path / "result.json", {"test_accuracy": 0.5, "seconds": 1.0, **told})
    for epoch in (1, 2):
        run.log(step=epoch, epoch=epoch, loss=1.0 / epoch, **told)
    page = read(write_report([run], tmp_path / "out"))
    assert "50.0 %" in page.text
    assert len(page.all("svg", **{"class": "plot"})) == 3  # accuracy, loss, cost
    assert "Training loss" in page.text
    assert "Validation accuracy" not in page.text


def test_metrics_without_numbers_are_no_curves(tmp_path, no_patterns):
    run = made(tmp_path / "runs", BASE, accuracy=0.5, metrics=False)
    run.log(step=5, epoch=1, loss=math.nan, validation_accuracy=None)
    assert "No run has metrics, so there are no learning curves." in read(write_report([run], tmp_path / "out")).text


def test_weights_that_cannot_be_read_are_told(tmp_path):
    run = made(tmp_path / "runs", BASE, accuracy=0.5, metrics=False)
    other = made(tmp_path / "runs", replace(BASE, encoding="axial"), accuracy=0.5, metrics=False)
    (other.path / "checkpoint.safetensors").write_text("nonsense")
    page = read(write_report([run, other], tmp_path / "out"))
    assert "No checkpoint of mixed." in page.text
    assert f"axial: {other.path.name}/checkpoint.safetensors cannot be read" in page.text
    assert str(tmp_path) not in page.text


# Fairness


def test_runs_that_were_treated_differently_are_apart(tmp_path, no_patterns):
    longer = replace(BASE, epochs=4, augment=("flip", "crop"))
    runs = many(tmp_path / "runs", metrics=False)
    other = [made(tmp_path / "runs", replace(longer, encoding="mixed"), accuracy=0.99, metrics=False)]
    page = read(write_report([*other, *runs], tmp_path / "out"))
    assert "These runs form 2 groups" in page.text
    assert "epochs34" in page.text  # the cells of a row
    assert "augmentnoneflip, crop" in page.text
    rows = cells(tmp_path / "out")
    assert [row["group"] for row in rows] == ["1"] * 4 + ["2"]
    assert float(rows[-1]["test_accuracy"]) == 0.99
    assert rows[-1]["difference"] == ""
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} >= {"accuracy-1.png", "accuracy-2.png"}


def test_groups_do_not_depend_on_the_order_of_runs(tmp_path):
    runs = [made(tmp_path, replace(BASE, epochs=epochs), metrics=False) for epochs in (9, 4, 7)]
    found = [[group.settings["epochs"] for group in grouped(order)] for order in (runs, runs[::-1], runs[1:] + runs[:1])]
    assert found == [[4, 7, 9]] * 3


def test_where_runs_find_things_makes_no_difference(tmp_path):
    one = made(tmp_path / "a", replace(BASE, root="here", workers=0), accuracy=0.5, metrics=False)
    two = made(tmp_path / "b", replace(BASE, root="there", workers=2, seed=1), accuracy=0.7, metrics=False)
    (group,) = grouped([one, two])
    assert list(group.found["mixed"]) == [0, 1]


def after(runs, *, own=True, epochs=2, **changes):
    """Runs of two encodings and seeds, each after one of the same encoding and seed, or all after the first of these."""
    firsts, found = [], []
    for encoding in ("none", "mixed"):
        for seed in (0, 1):
            first = replace(BASE, encoding=encoding, seed=seed, epochs=epochs, **changes)
            firsts.append(made(runs, first, metrics=False).path)
            begun = replace(BASE, encoding=encoding, seed=seed, start=str(firsts[-1 if own else 0]))
            found.append(made(runs, begun, accuracy=0.5, metrics=False))
    return found


def seeds(group):
    return {label: list(each) for label, each in group.found.items()}


def test_runs_that_begin_alike_are_compared(tmp_path):
    (group,) = grouped(after(tmp_path))
    assert seeds(group) == {"mixed": [0, 1], "none": [0, 1]}
    assert group.settings["start"] == "runs of the same encoding, 2 epochs of digits"


def test_runs_that_begin_with_one_are_compared(tmp_path):
    runs = after(tmp_path, own=False)
    (group,) = grouped(runs)
    assert seeds(group) == {"mixed": [0, 1], "none": [0, 1]}
    assert group.settings["start"] == runs[0].config.start_path.name


def test_runs_that_name_their_seed_to_begin_with_are_compared(tmp_path):
    """Also where nothing is left of what they begin with, or of one alone."""
    runs = [made(tmp_path, replace(BASE, seed=seed, start="gone/mixed-seed{seed}-0"), metrics=False) for seed in (0, 1)]
    for _ in range(2):
        (group,) = grouped(runs)
        assert list(group.found["mixed"]) == [0, 1]
        assert group.settings["start"] == "mixed-seed{seed}-0"
        (tmp_path / "mixed-seed0-0").mkdir(exist_ok=True)
        write_json(tmp_path / "mixed-seed0-0" / "config.json", BASE.document())


@pytest.mark.parametrize("other", [{"epochs": 5}, {"learning_rate": 0.5}], ids=str)
def test_runs_that_begin_otherwise_are_apart(tmp_path, other):
    one, two = grouped([*after(tmp_path / "one")[:2], *after(tmp_path / "two", **other)])
    assert [len(one.runs), len(two.runs)] == [4, 2]


def test_an_encoding_that_begins_twice_is_not_counted_once(tmp_path):
    """Of three encodings and seeds, once after their own run and once after another's: only the latter are apart."""
    first, second = grouped([*after(tmp_path, own=False)[1:], *after(tmp_path)])
    assert seeds(first) == {"mixed": [0, 1], "none": [0, 1]}
    assert seeds(second) == {"mixed": [0, 1], "none": [1]}
    assert first.settings["start"] == "runs of the same encoding, 2 epochs of digits"
    assert first.twice == second.twice == 0


def test_one_run_in_two_places_begins_once(tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    run = after(tmp_path / "one")[0]
    copied = made(tmp_path / "two", replace(run.config, start=run.config.start_path.name), accuracy=0.5, metrics=False)
    assert copied.config.name == run.config.name
    (group,) = grouped([run, copied])
    assert group.twice == 1


def test_beginnings_of_beginnings_count(tmp_path):
    runs = [
        made(tmp_path, replace(each.config, start=str(each.path), epochs=7), metrics=False)
        for each in (*after(tmp_path), *after(tmp_path, epochs=5))
    ]
    one, two = grouped(runs)
    assert seeds(one) == seeds(two) == {"mixed": [0, 1], "none": [0, 1]}


def test_several_encodings_to_begin_with_are_told(tmp_path):
    none, _, mixed, _ = after(tmp_path)
    swapped = [
        made(tmp_path, replace(one.config, start=other.config.start), metrics=False)
        for one, other in ((none, mixed), (mixed, none))
    ]
    (group,) = grouped(swapped)
    assert group.settings["start"] == "runs of several encodings, 2 epochs of digits"


def test_what_a_run_begins_with_is_found_beside_it(tmp_path):
    runs = after(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "moved")
    (group,) = grouped([RunFolder.at(tmp_path / "moved" / run.path.name) for run in runs])
    assert len(group.runs) == 4


def test_what_a_run_begins_with_is_named_if_it_is_gone(tmp_path):
    runs = after(tmp_path)[:2]
    names = {run.config.start_path.name for run in runs}
    for name in names:
        (tmp_path / name / "config.json").unlink()
    assert {group.settings["start"] for group in grouped(runs)} == names


@pytest.mark.parametrize("text", ["[]", "{", None], ids=["no-object", "cut", "a-name-that-is-too-long"])
def test_what_a_run_begins_with_may_be_damaged(tmp_path, text):
    name = "first" if text else 1000 * "x"
    if text:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    (group,) = grouped([made(tmp_path, replace(BASE, start=name), metrics=False)])
    assert group.settings["start"] == name


def test_a_run_that_begins_with_itself_is_told(tmp_path):
    run = made(tmp_path, BASE, metrics=False)
    write_json(run.path / "config.json", replace(BASE, start=str(run.path)).document())
    (group,) = grouped([RunFolder.at(run.path)])
    assert group.settings["start"] == run.path.name


def test_runs_given_twice_count_once(tmp_path):
    undone = made(tmp_path / "a", BASE, metrics=False)
    done = made(tmp_path / "b", BASE, accuracy=0.5, metrics=False)
    for runs in ([undone, done], [done, undone], [done, undone, done]):
        (group,) = grouped(runs)
        assert group.scores() == {"mixed": {0: 0.5}}
        assert group.twice == len(runs) - 1


def test_machines_that_differ_are_told(tmp_path, no_patterns):
    runs = many(tmp_path / "runs", seeds=(0,), metrics=False)
    write_json(runs[0].path / "environment.json", {"machine": {"device": "H100"}, "versions": {"torch": "9.8"}})
    (runs[1].path / "environment.json").write_text('{"machine": 3}')
    page = read(write_report(runs, tmp_path / "out"))
    assert "different machines, so times are not comparable" in page.text
    assert "H100, torch 9.8" in page.text


# Hostile words


def test_words_from_files_stay_words(tmp_path, squares):
    options = {"variant": NASTY, "$key$": "x"}
    bad = probed(0.5)
    bad["refused"] = [{"probe": NASTY, "why": NASTY}]
    runs = [
        made(tmp_path / "runs", replace(BASE, options=options, data=NASTY, seed=seed), accuracy=0.5 + seed / 9, probes=bad)
        for seed in range(2)
    ]
    gone = made(tmp_path / "runs", replace(BASE, options=options, data=NASTY, seed=2), metrics=False)
    (gone.path / "failed.txt").write_text(NASTY)
    write_json(gone.path / "environment.json", {"machine": {"device": NASTY}, "versions": {"torch": NASTY}})
    path = write_report([*runs, gone], tmp_path / "out", question=NASTY, baseline=NASTY)
    text, page = path.read_text(), read(path)
    assert text.lower().count("<script") == 1
    assert "<!--" not in text
    assert page.all("script") == [{}]
    assert text.rindex("<script>") > text.index("<footer>")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert text.count("</style>") == 1
    assert NASTY in " ".join(page.words)
    assert len(page.all("svg", **{"class": "plot"})) > 8


def test_words_are_not_formulas(tmp_path, no_patterns):
    run = made(tmp_path / "runs", replace(BASE, options={"variant": "$x_1$"}), accuracy=0.5, metrics=False)
    text = write_report([run], tmp_path / "out").read_text()
    assert re.search(r"<text[^>]*>mixed:variant=\$x_1\$</text>", text)


def test_long_labels_are_shortened_in_figures_alone(tmp_path, no_patterns):
    long = "w" * 300
    run = made(tmp_path / "runs", replace(BASE, options={"variant": long}), accuracy=0.5)
    page = read(write_report([run], tmp_path / "out"))
    assert f"mixed:variant={long}" in page.text
    assert "mixed:variant=wwwwwwwww…" in page.text


# Again


def obeyed(line):
    """The settings of the run that a line for a shell trains."""
    ropewalk, train, said, *words = shlex.split(line)
    assert (ropewalk, train, words[0], words[-2]) == ("ropewalk", "train", "--recipe", "--seed")
    assert words[2] == "--set" or len(words) == 4
    chosen, base = parse_encoding(said), parse_settings(words[1], words[3:-2])
    return replace(base, encoding=chosen.encoding, options=chosen.options, seed=int(words[-1]))


def test_lines_printed_train_the_same_runs(whole):
    page, _, runs = whole
    lines = [line for words in page.words for line in words.split("\n") if line.startswith("ropewalk train")]
    assert len(lines) == len(runs)
    assert {obeyed(line).name for line in lines} == {run.config.name for run in runs}
    blocks = [json.loads(words) for words in page.words if words.startswith("{")]
    assert {Config.of(block).encoding for block in blocks} == set(ENCODINGS)


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("digits", {}),
        ("digits", {"encoding": "liere", "options": {"block": 4, "scale": 0.5}, "seed": 7}),
        ("digits", {"augment": ("flip", "crop"), "strength": {"padding": 1}, "span": None, "clip": None, "ema": 0.9}),
        ("digits", {"augment": ("flip",), "size": (6, 10), "ratio": 3, "compile": True, "learning_rate": 1e-5}),
        ("liere", {"strength": {}, "augment": (), "data": "my data, none/it's.npz"}),
        ("cifar100-tiny", {"data": "true", "encoding": "axial", "options": {"learned": True}}),
        ("comrope", {"encoding": "mrope", "options": {"sections": [8, 12, 12], "variant": "qwen2"}, "size": (64,)}),
        ("deit-iii", {"pool": "mean", "root": "elsewhere", "workers": 1, "checkpoint": 1.0}),
    ],
)
def test_a_line_says_all_settings_with_the_recipe_that_needs_the_fewest(recipe, changes):
    config = replace(RECIPES[recipe], **changes)
    line = format_train_command(config)
    assert obeyed(line).name == config.name
    words = len(set(changes) - {"encoding", "options", "seed", *UNHASHED_FIELDS})
    assert f"--recipe {recipe} " in line
    assert len(shlex.split(line)) == 7 + words + (words > 0)


@pytest.mark.parametrize("changes", [{"encoding": "nope"}, {"options": {"variant": "a,b=c"}}, {"options": {"a-b": 1}}])
def test_what_a_shell_cannot_say_is_said_in_python(changes):
    configs = [replace(BASE, **changes, seed=seed) for seed in range(2)]
    assert format_train_command(configs[0]) is None
    lines = [line for line in format_reproduction(configs) if line.startswith("train_run(")]
    found = [eval(line, {"train_run": lambda config, path: config, "Config": Config, "Path": str}) for line in lines]
    assert [config.name for config in found] == [config.name for config in configs]


def test_the_same_folders_give_the_same_bytes(tmp_path, squares):
    runs = [
        run for run in many(tmp_path / "runs", seeds=(0, 1), probes=probed(0.4)) if run.config.encoding in ("none", "mixed")
    ]
    first, second = write_report(runs, tmp_path / "a"), write_report(runs[::-1], tmp_path / "b")
    for path in [first, *(tmp_path / "a" / "figures").iterdir(), tmp_path / "a" / "report.csv"]:
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    assert second.name == "report.html"
    assert not list((tmp_path / "a").rglob("*.part"))


# Colours


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_seen_in_both_themes():
    for light, dark in (*ENCODING_PALETTE, BASELINE_COLORS):
        assert contrast(light, LIGHT_THEME.paper) >= 3
        assert contrast(dark, DARK_THEME.paper) >= 3
    assert len({pair for pair in (*ENCODING_PALETTE, BASELINE_COLORS)}) == len(ENCODING_PALETTE) + 1


def test_styles_are_stable_and_differ():
    labels = [f"e{i}" for i in range(20)]
    styles = assign_styles([*labels, "none"], "none")
    assert styles == assign_styles(["none", *labels[::-1]], "none")
    assert len({(style.colour, style.mark, style.dash) for style in styles.values()}) == 21
    assert styles["none"].colour == BASELINE_COLORS[0]
    assert len({styles[label].mark for label in sorted(labels)[:5]}) == 5
