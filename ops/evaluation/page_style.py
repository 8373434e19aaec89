"""The report's looks, and its filters."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--ink:light-dark(#1c2430,#e3e8ef);--soft:light-dark(#5b6776,#9aa7b8);
--line:light-dark(#d8dee6,#364150);--card:light-dark(#fff,#1b222c);--page:light-dark(#f4f6f8,#12171e);
--good:light-dark(#1a7f4b,#58c48d);--bad:light-dark(#b3321f,#ff8a73)}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,"Noto Sans CJK SC",sans-serif}
main{max-width:62rem;margin:auto;padding:1.5rem}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
p.note{color:var(--soft);max-width:46rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
td.n{text-align:right}
dl.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:.6rem;margin:1rem 0}
dl.figures div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.5rem .8rem}
dl.figures dt{color:var(--soft);font-size:.8rem}dl.figures dd{margin:0;font-size:1.3rem;font-weight:600}
form{position:sticky;top:0;background:var(--page);padding:.6rem 0;display:flex;flex-wrap:wrap;gap:.6rem;z-index:1}
select,input{font:inherit;padding:.2rem .4rem;background:var(--card);color:inherit;border:1px solid var(--line);
border-radius:.3rem}
output{color:var(--soft);align-self:center}
article{background:var(--card);border:1px solid var(--line);border-left:.3rem solid var(--good);border-radius:.4rem;
padding:.7rem 1rem;margin:.7rem 0}
article.wrong{border-left-color:var(--bad)}
article[hidden]{display:none}
article header{color:var(--soft);font-size:.85rem;display:flex;flex-wrap:wrap;gap:.2rem .8rem}
.verdict{font-weight:600;color:var(--good)}.wrong .verdict{color:var(--bad)}
.asked{font-weight:600;white-space:pre-wrap;margin:.4rem 0}
.earlier{color:var(--soft);margin:.2rem 0 .2rem 1rem;white-space:pre-wrap}
.answer{white-space:pre-wrap;margin:.4rem 0}
mark{background:light-dark(#fdebc8,#5a4415);color:inherit}
.why{color:var(--bad);margin:.2rem 0}
details{font-size:.88rem;color:var(--soft)}
dl.made{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.88rem}
dl.made dt{color:var(--soft)}dl.made dd{margin:0;overflow-wrap:anywhere}
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
