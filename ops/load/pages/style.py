"""What is of a load's report alone: its headline, and the colours of ends, lines and buckets."""

from typing import Final

STYLE: Final = """
.headline { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 18px 24px; }
.headline { margin: 4px 0 20px; }
.headline b { display: block; margin-bottom: 4px; font: 400 1.5rem/1.1 var(--serif); white-space: nowrap; }
.headline span { display: block; color: var(--muted); font-size: 0.9375rem; line-height: 1.35; }
.ends { width: 100%; margin-top: 24px; }
.ends th { width: 8.5em; padding: 3px 12px 3px 0; }
.ends td.figure { width: 5em; padding-left: 12px; }
.e-model-in-time { --c: var(--ours); }
.e-model-late-or-cut { --c: var(--late); }
.e-mixed-in-time { --c: var(--blue); }
.e-faq { --c: var(--ochre); }
.e-courtesy { --c: light-dark(#d9a5b3, #8a5766); }
.e-unsure { --c: var(--violet); }
.e-busy { --c: var(--light); }
.e-handoff { --c: var(--ink); }
.e-no-answer { --c: var(--refused); }
.l-offered { --c: var(--ink); --d: 2 3; }
.l-answered { --c: var(--blue); }
.l-ttft { --c: var(--ours); }
.l-e2e { --c: var(--blue); }
.l-any { --c: var(--muted); --d: 7 3; }
.l-before { --c: var(--muted); --d: 5 3; }
.l-after { --c: var(--ours); }
.b-short { --c: var(--ours); }
.b-medium { --c: var(--blue); }
.b-long { --c: var(--ochre); }
.v-passed { --c: var(--ours); }
.v-failed { --c: var(--late); }
.rows tr.v-regression td:last-child, .rows tr.v-failed td:last-child { color: var(--late); font-weight: 600; }
.rows tr.v-improvement td:last-child, .rows tr.v-passed td:last-child { color: var(--ours); font-weight: 600; }
"""
