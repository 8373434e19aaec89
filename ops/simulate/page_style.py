"""What is of the simulator's report alone: the colours and dashes of policies and outcomes."""

from typing import Final

STYLE: Final = """
.line.p-goodput { stroke-width: 2.6; }
.dot.p-goodput { fill: var(--c); }
.p-goodput { --c: var(--ours); }
.p-bound { --c: var(--ink); --d: 2 3; }
.p-edf { --c: var(--blue); }
.p-sjf { --c: var(--violet); }
.p-fcfs-shed { --c: var(--ochre); }
.p-fcfs-continuous { --c: var(--late); --d: 7 3; }
.p-sorted-budget { --c: var(--refused); --d: 4 3; }
.p-static { --c: var(--muted); --d: 1 3; }
.o-in-deadline { --c: var(--ours); }
.o-late { --c: var(--late); }
.o-fallback { --c: var(--light); }
.o-refused { --c: var(--refused); }
.rows tr.p-goodput th, .rows tr.p-goodput td, .outcomes tr.p-goodput th, .outcomes tr.p-goodput td {
  color: var(--ours);
  font-weight: 600;
}
"""
