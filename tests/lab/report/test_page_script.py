"""The page's script in a browser: tables are sorted by their headers, and an encoding is highlighted everywhere."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import pytest

from ropewalk.lab.config import Config
from ropewalk.lab.record import RunRecord
from ropewalk.lab.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

SCORES = {"none": (0.4, 0.41), "mixed": (0.09, 0.1), "axial": (0.6, 0.61), "liere": ()}
DRIVER = """
const column = (i) => [...document.querySelectorAll(".results tbody tr")].map((row) => row.cells[i].textContent.trim());
const labels = (kind) => [...new Set([...document.querySelectorAll(kind)].map((each) => each.dataset.encoding))].sort();
const state = () => ({lit: labels(".lit"), dimmed: labels(".dimmed"), chip: !document.querySelector(".picked").hidden});
const point = (target) => target.dispatchEvent(new PointerEvent("pointerover", {bubbles: true, pointerType: "mouse"}));
const results = {sorted: {}, states: {}};
for (const [name, i] of [["score", 2], ["difference", 3], ["label", 0]]) {
  results.sorted[name] = [0, 1, 2].map(() => {
    const header = document.querySelectorAll(".results thead th")[i];
    header.querySelector("button").click();
    return [header.getAttribute("aria-sort"), column(0)];
  });
}
const legend = (label) => document.querySelector(`.legend [data-encoding="${label}"]`);
const line = document.querySelector('.plot g[data-encoding="axial"] path');
results.states.begin = state();
point(legend("mixed")); results.states.pointed = state();
point(document.body); results.states.left = state();
line.dispatchEvent(new MouseEvent("click", {bubbles: true})); point(document.body); results.states.clicked = state();
point(legend("none")); results.states.other = state();
point(document.body); results.states.back = state();
document.dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"})); results.states.escaped = state();
legend("none").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true})); results.states.entered = state();
document.querySelector(".picked button").click(); results.states.cleared = state();
const wide = document.querySelectorAll('.plot g[data-encoding="axial"] > path[style*="stroke-width: 9"]');
results.wide = wide.length;
document.body.replaceChildren(document.createElement("output"));
document.querySelector("output").textContent = JSON.stringify(results);
"""


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """What the driver saw. It is a script of its own, which the page's policy would refuse, so the policy is taken out."""
    folder = tmp_path_factory.mktemp("driven")
    records = [
        RunRecord(
            config=replace(Config(), encoding=name, seed=seed),
            run=None,
            result={"test_accuracy": values[seed]} if values else None,
            metrics=[{"epoch": epoch, "loss": 1.0 / epoch} for epoch in (1, 2)],
        )
        for name, values in SCORES.items()
        for seed in (0, 1)
    ]
    text = write_report(records, folder).read_text()
    text, removed = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert removed == 1
    page = folder / "driven.html"
    page.write_text(text.replace("</body>", f"<script>{DRIVER}</script></body>"))
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
    ]
    ended = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(unescape(re.findall(r"<output>(.*)</output>", ended.stdout, flags=re.DOTALL)[0]))


def test_tables_are_sorted_by_their_headers(driven):
    original = ["none", "axial", "mixed", "liere"]
    up, down = ["mixed", "none", "axial", "liere"], ["axial", "none", "mixed", "liere"]  # one without a score is last
    assert driven["sorted"] == {
        "score": [["descending", down], ["ascending", up], [None, original]],
        "difference": [["descending", down], ["ascending", up], [None, original]],
        "label": [["ascending", sorted(original)], ["descending", sorted(original)[::-1]], [None, original]],
    }


def test_encodings_are_highlighted(driven):
    def lit(label, chip=False):
        return {"lit": [label], "dimmed": sorted(set(SCORES) - {label}), "chip": chip}

    nothing = {"lit": [], "dimmed": [], "chip": False}
    assert driven["states"] == {
        "begin": nothing,
        "pointed": lit("mixed"),
        "left": nothing,
        "clicked": lit("axial", chip=True),
        "other": lit("none", chip=True),
        "back": lit("axial", chip=True),
        "escaped": nothing,
        "entered": lit("none", chip=True),
        "cleared": nothing,
    }


def test_lines_have_a_wide_copy_for_the_pointer(driven):
    assert driven["wide"] > 0
