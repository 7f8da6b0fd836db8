"""One colour and one mark for each encoding, the same in all figures of a page.

Figures are drawn in the light theme. On the page every colour is a variable that has another value where the reader's
screen is dark; colours are chosen to have a contrast of at least 3 to the paper in both.

How a page looks: one column on a phone, two pictures in a row where there is room, light or dark as the screen is.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from ropewalk.lab.figures.theme import FIGURE_THEMES

LIGHT_THEME, DARK_THEME = FIGURE_THEMES["light"], FIGURE_THEMES["dark"]
EXTRA_COLORS = (
    ("#bf3989", "#f778ba"),
    ("#1b7c83", "#39c5cf"),
    ("#9a6700", "#d29922"),
    ("#cf222e", "#ff7b72"),
    ("#57606a", "#b1bac4"),
)
ENCODING_PALETTE = (*zip(LIGHT_THEME.axis.values(), DARK_THEME.axis.values(), strict=True), *EXTRA_COLORS[:-1])
"""Pairs of colours on light and on dark paper."""
BASELINE_COLORS = EXTRA_COLORS[-1]
"""The baseline's."""
MARKER_SHAPES = {
    "o": "<circle cx='8' cy='8' r='4.5'/>",
    "s": "<rect x='4' y='4' width='8' height='8'/>",
    "^": "<path d='M8 3 13 12H3z'/>",
    "D": "<path d='M8 2.5 13.5 8 8 13.5 2.5 8z'/>",
    "v": "<path d='M8 13 3 4h10z'/>",
}
"""Marks of matplotlib, and as shapes of SVG in a square of 16."""

LINE_DASHES = {"-": "none", "--": "6 3", ":": "2 3", "-.": "7 3 2 3"}
"""Lines of matplotlib, and as dashes of SVG."""


class EncodingStyle(NamedTuple):
    """How an encoding is drawn: the colour on light paper, its variable, its mark, and its line."""

    colour: str
    variable: str
    mark: str
    dash: str


def assign_styles(labels: Collection[str], baseline: str) -> dict[str, EncodingStyle]:
    """A style for each label; the baseline's is grey and dashed, and colours that come again have another mark and line."""
    others = sorted(set(labels) - {baseline})
    marks = list(MARKER_SHAPES)
    found = {
        label: EncodingStyle(
            ENCODING_PALETTE[i % len(ENCODING_PALETTE)][0],
            f"--c{i % len(ENCODING_PALETTE)}",
            marks[(i + i // len(ENCODING_PALETTE)) % 5],
            _choose_dash(i),
        )
        for i, label in enumerate(others)
    }
    return {baseline: EncodingStyle(BASELINE_COLORS[0], "--base", "o", "--"), **found} if baseline in labels else found


def _choose_dash(i: int) -> str:
    return ("-", ":", "-.")[i // len(ENCODING_PALETTE) % 3]


def format_css_variables(dark: bool) -> str:
    """All colours as variables of CSS."""
    look = DARK_THEME if dark else LIGHT_THEME
    named = {f"--{name}": getattr(look, name) for name in ("paper", "ink", "faint", "line")}
    named |= {f"--c{i}": pair[dark] for i, pair in enumerate(ENCODING_PALETTE)} | {"--base": BASELINE_COLORS[dark]}
    return "".join(f"{name}:{value};" for name, value in named.items())


_COLOR_VARIABLES = {
    **{getattr(LIGHT_THEME, name): f"--{name}" for name in ("paper", "ink", "faint", "line")},
    **{pair[0]: f"--c{i}" for i, pair in enumerate(ENCODING_PALETTE)},
    BASELINE_COLORS[0]: "--base",
}


def use_css_variables(svg: str) -> str:
    """A drawing in the light theme whose colours are variables."""
    return re.sub(
        r"(fill|stroke): (#[0-9a-f]{6})\b",
        lambda found: f"{found[1]}: var({_COLOR_VARIABLES[found[2]]})" if found[2] in _COLOR_VARIABLES else found[0],
        svg,
    )


_CSS_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main,header,footer{max-width:1160px;margin:0 auto;padding:0 16px}
header{padding-top:40px}
h1{font-size:clamp(1.6rem,1.1rem + 2.4vw,2.5rem);line-height:1.15;letter-spacing:-.02em;margin:0 0 .4em;text-wrap:balance;
overflow-wrap:anywhere}
h2{font-size:1.4rem;line-height:1.25;letter-spacing:-.01em;margin:2.2em 0 .6em;padding-top:.9em;
border-top:1px solid var(--line)}
h3{font-size:1.08rem;margin:2em 0 .4em}
p,li{max-width:72ch;overflow-wrap:anywhere}
a{color:var(--c0)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
.lead{color:var(--faint);font-size:1.08rem;margin:.2em 0 1.2em}
nav{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:.92rem;margin:1.2em 0}
.short{border:1px solid var(--line);border-left:4px solid var(--c0);border-radius:8px;padding:14px 18px;margin:1.4em 0}
.short p{margin:.2em 0}
.short .verdict{font-size:1.12rem}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;margin:1em 0}
table{border-collapse:collapse;width:100%;font-size:.93rem;font-variant-numeric:tabular-nums}
th,td{padding:8px 12px;text-align:left;border-bottom:1px solid var(--line);vertical-align:baseline}
thead th{font-size:.84rem;font-weight:600;color:var(--faint)}
tbody tr:last-child>*{border-bottom:0}
tbody th{font-weight:600}
.name{white-space:nowrap}
.long{display:inline-block;min-width:14em;overflow-wrap:anywhere}
.results td{white-space:nowrap}
.marked{background:color-mix(in srgb,var(--line) 28%,transparent)}
.key{display:inline-block;width:16px;height:16px;vertical-align:-3px;margin-right:6px}
.lined{width:32px}
.above{color:var(--c2)}.below{color:var(--c7)}.even,.note{color:var(--faint)}
.note{font-size:.9rem}
.set{display:inline-block;margin:1px 14px 1px 0}
.set b{font-weight:400;color:var(--faint)}
figure{margin:.6em 0 1em}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:12px 28px;align-items:start}
.shown{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:0 28px}
.wide{grid-column:1/-1}
.plot{display:block;width:100%;max-width:520px;height:auto}
.plot *{stroke-linejoin:round;stroke-linecap:butt}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;list-style:none;padding:0;margin:.4em 0;font-size:.9rem}
.legend li{overflow-wrap:anywhere}
figcaption{color:var(--faint);font-size:.92rem;max-width:76ch;margin-top:.5em}
details{border:1px solid var(--line);border-radius:8px;padding:8px 14px;margin:.5em 0}
summary{cursor:pointer;font-weight:600;overflow-wrap:anywhere}
pre{overflow-x:auto;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;border-top:1px solid var(--line);
padding-top:10px;margin:10px 0 4px}
ul{padding-left:1.2em}
li{margin:.3em 0}
footer{color:var(--faint);font-size:.9rem;padding-top:3em;padding-bottom:3em}
@media print{.plots{break-inside:avoid}details{break-inside:avoid}}
"""

PAGE_CSS = (
    f":root{{color-scheme:light dark;{format_css_variables(dark=False)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{format_css_variables(dark=True)}}}}}{_CSS_RULES}"
)
