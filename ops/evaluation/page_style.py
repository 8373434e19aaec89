"""What is of the evaluation's report alone: its figures, its filters, and an answer's looks."""

from typing import Final

STYLE: Final = """
.figures { grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: 18px 24px; margin: 28px 0 0; }
.figures dd { font: 400 1.5rem/1.2 var(--serif); }
.rows td:last-child { white-space: normal; }
form { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: 10px; padding: 10px 0; }
form { background: var(--paper); font: 400 0.875rem/1.4 var(--sans); }
select, input { padding: 3px 6px; border: 1px solid var(--hair); background: var(--paper); color: inherit; }
select, input { font: inherit; }
output { align-self: center; color: var(--muted); }
article { margin-top: 18px; padding-left: 14px; border-left: 3px solid var(--ours); }
article.wrong { border-left-color: var(--late); }
article[hidden] { display: none; }
article p { margin: 4px 0; }
.about { display: flex; flex-wrap: wrap; gap: 2px 12px; color: var(--muted); font: 400 0.8125rem/1.4 var(--sans); }
.verdict { color: var(--ours); font-weight: 600; }
.wrong .verdict, .why { color: var(--late); }
.asked { font-weight: 600; }
.asked, .answer, .earlier { white-space: pre-wrap; }
article .earlier { margin-left: 16px; color: var(--muted); }
mark { background: light-dark(#fdebc8, #5a4415); color: inherit; }
details { color: var(--muted); font-size: 0.9375rem; }
"""

SCRIPT: Final = """
const form = document.querySelector("form"), all = [...document.querySelectorAll("article")];
function show() {
  const wanted = new FormData(form), text = wanted.get("text").toLowerCase();
  let shown = 0;
  for (const one of all) {
    const fits = ["verdict", "kind", "language", "source"].every(
      name => !wanted.get(name) || one.dataset[name] === wanted.get(name));
    one.hidden = !(fits && (!text || one.textContent.toLowerCase().includes(text)));
    shown += !one.hidden;
  }
  form.querySelector("output").textContent = `${shown} of ${all.length}`;
}
form.addEventListener("input", show);
form.addEventListener("submit", event => event.preventDefault());
show();
"""
