"""How a page looks: one column on a phone, two pictures in a row where there is room, light or dark as the screen is."""

from ropewalk.lab.report.styles import variables

_RULES = """
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

CSS = (
    f":root{{color-scheme:light dark;{variables(dark=False)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{variables(dark=True)}}}}}{_RULES}"
)
