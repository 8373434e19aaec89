"""A report's looks: a printed paper's, in light and dark. Colours of its own kinds are the report's to add."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: light-dark(#fdfcf9, #14171a);
  --ink: light-dark(#1d2326, #e6e8e6);
  --muted: light-dark(#5d676b, #9aa5a8);
  --hair: light-dark(#dcd8cf, #30373b);
  --shade: light-dark(#f3efe5, #1d2226);
  --ours: light-dark(#0b6a4f, #67cfa8);
  --late: light-dark(#c4642d, #e3935f);
  --light: light-dark(#b9c4bd, #4b585a);
  --refused: light-dark(#7d3b52, #c5839b);
  --blue: light-dark(#2f6690, #82b4dc);
  --violet: light-dark(#6d5a9c, #b2a2de);
  --ochre: light-dark(#94701a, #d5b263);
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", Georgia, serif;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 400 1.0625rem/1.55 var(--serif); }
main { width: min(100% - 40px, 800px); margin: 64px auto 96px; }
h1 { margin: 0 0 20px; font: 400 2.25rem/1.15 var(--serif); letter-spacing: -0.01em; }
h2 { margin: 64px 0 12px; font: 400 1.375rem/1.3 var(--serif); }
p { max-width: 66ch; margin: 0 0 14px; }
header { padding-bottom: 28px; border-bottom: 1px solid var(--ink); }
.abstract { margin: 0; padding: 0; list-style: none; color: var(--muted); }
.abstract li + li { margin-top: 6px; }
.abstract b { color: var(--ink); font-weight: 600; }
figure { margin: 48px 0 0; }
figcaption { max-width: 62ch; margin-top: 10px; color: var(--muted); font-size: 0.9375rem; }
figcaption b { color: var(--ink); font-weight: 600; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.wide > * + * { margin-top: 28px; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 28px 36px; }
.panels { align-items: end; }
text { fill: var(--muted); font: 400 12px/1 var(--sans); font-variant-numeric: tabular-nums; }
text.x { text-anchor: middle; }
text.y { text-anchor: end; }
text.name { fill: var(--c); font-weight: 500; }
text.note { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.axis { fill: none; stroke: var(--muted); stroke-width: 1; }
.grid { fill: none; stroke: var(--hair); stroke-width: 1; }
.thread { fill: none; stroke: var(--hair); stroke-width: 1; }
.line { fill: none; stroke: var(--c); stroke-width: 1.6; stroke-linejoin: round; stroke-dasharray: var(--d, none); }
.dot { fill: var(--paper); stroke: var(--c); stroke-width: 1.6; }
.dot.full { fill: var(--c); }
.speck { fill: var(--c); opacity: 0.28; }
.mark { fill: none; stroke: var(--ink); stroke-width: 1; stroke-dasharray: 2 3; }
.span { fill: var(--shade); }
.bar { fill: var(--c); }
table { border-collapse: collapse; font: 400 0.875rem/1.4 var(--sans); font-variant-numeric: tabular-nums; }
caption { padding-bottom: 6px; text-align: left; font: 600 0.9375rem/1.4 var(--serif); }
th { font-weight: 400; text-align: left; white-space: nowrap; }
td { text-align: right; white-space: nowrap; }
.outcomes { width: 100%; }
.outcomes th { width: 8.5em; padding: 3px 12px 3px 0; }
.outcomes td.figure { width: 4em; }
.panels .outcomes { font-size: 0.8125rem; }
.stack { height: 12px; min-width: 100px; }
.part, .key { fill: var(--c, var(--muted)); background: var(--c, var(--muted)); }
.key { display: inline-block; width: 10px; height: 10px; margin-right: 5px; }
.keys > span { margin-right: 10px; white-space: nowrap; }
.scroll { margin-top: 18px; overflow-x: auto; }
.rows { border-block: 1px solid var(--ink); }
.rows th, .rows td { padding: 5px 14px 5px 0; }
.rows thead th { border-bottom: 1px solid var(--muted); color: var(--muted); text-align: right; white-space: normal; }
.rows thead th { vertical-align: bottom; }
.rows thead th.head { text-align: left; }
dl { display: grid; grid-template-columns: minmax(9em, max-content) 1fr; gap: 6px 20px; margin: 0; }
dl { font-size: 0.9375rem; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { main { margin: 0 auto; } figure { break-inside: avoid; } }
"""
