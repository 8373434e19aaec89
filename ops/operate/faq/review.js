// The page on which a person reviews learned entries. Texts are set as text and values, never as HTML.

const token = location.hash.slice(1);
const byId = (id) => document.getElementById(id);
const WORDS = { new: "new", changed: "its page has changed", gone: "gone from its page", done: "decided" };
const CHANGED = 409;
let version = "";
let published = true;

function made(tag, text = "", attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

class FaqEntry extends HTMLElement {
  /** @param {any} item an Item of review.py */
  show(item) {
    this.item = item;
    this.append(made("h2", `${item.question} (${item.language}, ${WORDS[item.state]})`));
    if (item.url) this.append(made("a", item.url, { href: item.url, target: "_blank", rel: "noopener noreferrer" }));
    if (item.notes.length) {
      const notes = made("ul", "", { "aria-label": "Look at" });
      notes.append(...item.notes.map((note) => made("li", note)));
      this.append(notes);
    }
    this.question = this.field("input", "Question", item.question);
    this.answer = this.field("textarea", "Answer", item.answer);
    if (item.served && item.served !== item.answer) this.append(made("p", `Served now: ${item.served}`));
    this.alternatives = this.field("textarea", "Other wordings, one a line", item.alternatives.join("\n"));
    this.alternatives.className = "short";
    this.buttons = ["accept", "drop"].map((verdict) => this.button(verdict));
    this.decide(item.state === "done" ? item.verdict : "");
    this.isNew = false;
    this.addEventListener("input", () => this.decide("accept"));
  }

  /** @param {FaqEntry} before the same entry, as it was decided before the page was loaded again */
  take(before) {
    for (const field of ["question", "answer", "alternatives"]) this[field].value = before[field].value;
    this.decide(before.verdict);
  }

  field(tag, name, value) {
    const label = made("label", name);
    const field = made(tag);
    field.value = value;
    if (tag === "input") field.setAttribute("lang", this.item.language);
    label.append(field);
    this.append(label);
    return field;
  }

  button(verdict) {
    const name = verdict === "accept" ? "Accept" : "Drop";
    const button = made("button", name, { type: "button", "aria-label": `${name}: ${this.item.question}` });
    button.addEventListener("click", () => this.decide(this.verdict === verdict ? "" : verdict));
    this.append(button);
    return [verdict, button];
  }

  decide(verdict) {
    this.verdict = verdict;
    this.dataset.verdict = verdict;
    this.isNew = verdict !== "";
    for (const [name, button] of this.buttons) button.setAttribute("aria-pressed", String(name === verdict));
    if (this.isConnected) countSoon();
  }

  get decision() {
    const alternatives = this.alternatives.value.split("\n");
    const text = { question: this.question.value, answer: this.answer.value, alternatives };
    return { key: this.item.key, verdict: this.verdict, ...text };
  }
}
customElements.define("faq-entry", FaqEntry);

const entries = () => /** @type {FaqEntry[]} */ ([...document.querySelectorAll("faq-entry")]);
const decided = () => entries().filter((entry) => entry.isNew);

function count() {
  const open = entries().filter((entry) => entry.item.state !== "done" && !entry.verdict).length;
  const ready = decided().length;
  published = ready === 0;
  byId("publish").textContent = `Publish ${ready}`;
  byId("publish").toggleAttribute("disabled", ready === 0);
  byId("status").textContent = `${entries().length} entries, ${open} open`;
}

let isCounting = false;

/** Counts once for all that changes now: each count visits all entries. */
function countSoon() {
  if (isCounting) return;
  isCounting = true;
  queueMicrotask(() => {
    isCounting = false;
    count();
  });
}

function filter() {
  for (const entry of entries()) entry.hidden = entry.item.state === "done" && !byId("all").checked;
}

async function asked(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { authorization: `Bearer ${token}` } });
  const body = await response.json();
  if (!response.ok) throw Object.assign(new Error(body.error), { status: response.status });
  return body;
}

/** @param {FaqEntry[]} before what was decided, which stays where an entry is as it was */
async function load(before = []) {
  const kept = new Map(before.map((entry) => [JSON.stringify(entry.item), entry]));
  const shown = await asked("/entries");
  version = shown.version;
  byId("into").textContent = shown.into;
  byId("left-out").textContent = `${shown.left_out.length} left out when the pages were read`;
  byId("reasons").replaceChildren(...shown.left_out.map((line) => made("li", line)));
  byId("items").replaceChildren();
  for (const item of shown.items) {
    const entry = new FaqEntry();
    byId("items").append(entry);
    entry.show(item);
    const same = kept.get(JSON.stringify(item));
    if (same) entry.take(same);
  }
  filter();
  count();
}

async function told(work) {
  byId("fault").textContent = "";
  try {
    await work();
  } catch (error) {
    byId("fault").textContent = `Not done: ${error.message}`;
  }
}

byId("all").addEventListener("change", filter);
byId("accept-all").addEventListener("click", () => {
  for (const entry of entries()) if (entry.item.state !== "done" && !entry.verdict) entry.decide("accept");
});
byId("publish").addEventListener("click", () =>
  told(async () => {
    const decisions = decided().map((entry) => entry.decision);
    const body = await asked("/publish", { method: "POST", body: JSON.stringify({ version, decisions }) }).catch(
      async (error) => {
        if (error.status === CHANGED) await load(decided());
        throw error;
      },
    );
    await load();
    byId("status").textContent = `${body.published} served. ${byId("status").textContent}`;
  }),
);
addEventListener("beforeunload", (event) => {
  if (!published) event.preventDefault();
});
told(() => load());
