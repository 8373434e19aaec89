/** One answer on the page: its text as it grows, then where it came from and what it cost. */

import { h, icon } from "./chat-dom.js";

/** @typedef {import("./chat-strings.js").Strings} Strings */
/** @typedef {import("./replyline-client.js").Response} Response */
/** @typedef {import("./replyline-client.js").ErrorDetail} ErrorDetail */
/** @typedef {import("./replyline-client.js").Grounding} Grounding */

/** @type {Record<Response["source"], "spark" | "page" | "clock">} */
const SOURCE_ICONS = { model: "spark", faq: "page", busy: "clock" };

export class AnswerView {
  /** @type {string} */ text = "";
  #prose = h("div", { class: "prose", dir: "auto" });
  #foot = h("footer", { class: "foot" });
  element = h("article", { class: "answer" }, this.#prose, this.#foot);
  #strings;
  #onRetry;
  /** @type {Response | null} */ #response = null;
  /** @type {ErrorDetail | null} */ #error = null;

  /** @param {Strings} strings @param {() => void} onRetry */
  constructor(strings, onRetry) {
    this.#strings = strings;
    this.#onRetry = onRetry;
    this.localize(strings);
  }

  /** @param {Strings} strings the words around the answer; the answer itself stays as it was given */
  localize(strings) {
    this.#strings = strings;
    this.element.setAttribute("aria-label", strings.answer);
    if (this.#response) this.finish(this.#response);
    else if (this.#error) this.fail(this.#error);
    else if (!this.text) this.#prose.replaceChildren(waiting(strings));
  }

  /** @param {string} text all of it so far */
  show(text) {
    if (!this.text) this.#prose.replaceChildren(); // the waiting dots
    this.text = text;
    const paragraphs = text.split(/\n{2,}/).filter((paragraph) => paragraph.trim());
    while (this.#prose.childElementCount > paragraphs.length) this.#prose.lastChild.remove();
    while (this.#prose.childElementCount < paragraphs.length) this.#prose.append(h("p"));
    paragraphs.forEach((paragraph, index) => {
      const shown = this.#prose.children[index];
      if (shown.textContent !== paragraph) shown.textContent = paragraph;
    });
  }

  /** @param {Response} response its `output_text` is final, whatever was streamed */
  finish(response) {
    this.#response = response;
    this.show(response.output_text);
    const { status, source, output_text, grounding = [] } = response;
    const [button, facts] = factsDisclosure(this.#strings, response);
    this.#foot.replaceChildren(
      ...grounding.map((entry) => basis(this.#strings, entry, output_text)),
      h("div", { class: "meta" }, ...this.#origin(response), button),
      facts,
    );
    if (status === "failed") this.#foot.prepend(this.#errorLine(response.error));
    else if (source === "busy") this.#foot.append(this.#retryButton());
  }

  /** @param {Response} response */
  #origin(response) {
    if (response.status === "failed") return [];
    const { source } = response;
    return [
      h("span", { class: `badge ${source}` }, icon(SOURCE_ICONS[source]), this.#strings.source[source]),
      response.status === "completed"
        ? null
        : h("span", { class: "mark" }, this.#strings.mark[markOf(response)]),
    ];
  }

  /** No answer will come. @param {ErrorDetail} error */
  fail(error) {
    this.#error = error;
    if (!this.text) this.#prose.replaceChildren();
    this.#foot.replaceChildren(this.#errorLine(error));
  }

  /** What a screen reader hears after the text. */
  get label() {
    const strings = this.#strings;
    if (this.#error) return describe(strings, this.#error);
    if (!this.#response) return "";
    if (this.#response.status === "failed") return describe(strings, this.#response.error);
    const source = strings.source[this.#response.source];
    return this.#response.status === "completed"
      ? source
      : `${source}, ${strings.mark[markOf(this.#response)]}`;
  }

  /** @param {ErrorDetail | undefined} error */
  #errorLine(error) {
    const retryable = error?.retryable ?? true;
    return h(
      "div",
      { class: "error" },
      h("p", {}, describe(this.#strings, error)),
      retryable ? this.#retryButton(error?.retry_after_ms) : null,
    );
  }

  #retryButton(waitMs = 0) {
    const button = h(
      "button",
      { type: "button", class: "quiet", disabled: waitMs > 0, onclick: this.#onRetry },
      this.#strings.retry,
    );
    if (waitMs > 0) setTimeout(() => (button.disabled = false), waitMs);
    return button;
  }
}

/** @param {Response} response @returns {keyof Strings["mark"]} */
function markOf({ status, reason }) {
  if (reason !== "stop") return reason;
  return status === "cancelled" ? "client" : "deadline";
}

/** @param {Strings} strings @param {ErrorDetail | undefined} error */
function describe(strings, error) {
  const known = new Map(Object.entries(strings.errors)); // a plain object has `constructor` and the like besides
  return known.get(error?.code ?? "") ?? error?.message ?? strings.failed;
}

/** @param {Strings} strings */
const waiting = (strings) =>
  h(
    "div",
    { class: "waiting" },
    h("span", { class: "visually-hidden" }, strings.thinking),
    h("i"),
    h("i"),
    h("i"),
  );

/**
 * The help entry behind an answer. Where the answer is the entry itself, its question says enough.
 * @param {Strings} strings @param {Grounding} entry @param {string} text the answer
 */
function basis(strings, { question, answer }, text) {
  if (text.includes(answer)) return h("p", { class: "basis" }, question);
  return h(
    "details",
    { class: "basis" },
    h("summary", {}, icon("chevron"), strings.basedOn(question)),
    h("p", {}, answer),
  );
}

/** @param {Strings} strings @param {Response} response @returns {[HTMLElement, HTMLElement]} a button and what it opens */
function factsDisclosure(strings, response) {
  const { usage, timings } = response;
  const rows = [
    [strings.ttft, duration(strings, timings.ttft_ms)],
    [strings.total, duration(strings, timings.total_ms)],
    [strings.queue, duration(strings, timings.queue_ms)],
    [strings.prefill, duration(strings, timings.prefill_ms)],
    [strings.tokensIn, tokensRead(strings, usage)],
    [strings.tokensOut, usage.output_tokens ? String(usage.output_tokens) : undefined],
    [strings.model, response.model],
  ].filter(([, value]) => value);
  const facts = h(
    "div",
    { class: "facts", hidden: true },
    timeline(strings, timings),
    h("dl", {}, ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
  );
  const button = h(
    "button",
    {
      type: "button",
      class: "facts-button",
      "aria-expanded": "false",
      title: strings.facts,
      onclick: () => {
        facts.hidden = !facts.hidden;
        button.setAttribute("aria-expanded", String(!facts.hidden));
      },
    },
    h("span", { class: "visually-hidden" }, `${strings.facts}: `),
    duration(strings, timings.total_ms) ?? "…",
    icon("chevron"),
  );
  return [button, facts];
}

/** Queue, reading and writing in proportion. @param {Strings} strings @param {Response["timings"]} timings */
function timeline(strings, { queue_ms = 0, prefill_ms = 0, ttft_ms, total_ms }) {
  if (!ttft_ms || !total_ms) return null;
  const parts = { queue: queue_ms, prefill: prefill_ms, writing: total_ms - ttft_ms };
  const segments = Object.entries(parts).map(([name, ms]) => {
    const segment = h("span", { class: name, title: strings[/** @type {keyof typeof parts} */ (name)] });
    segment.style.flexGrow = String(Math.max(ms, 0));
    return segment;
  });
  return h("div", { class: "timeline", "aria-hidden": "true" }, ...segments);
}

/** @param {Strings} strings @param {Response["usage"]} usage */
function tokensRead(strings, { input_tokens, cached_tokens }) {
  if (!input_tokens) return undefined;
  return cached_tokens ? `${input_tokens} (${strings.cached(cached_tokens)})` : String(input_tokens);
}

/** @param {Strings} strings @param {number | undefined} ms */
function duration(strings, ms) {
  if (ms === undefined || ms === null) return undefined;
  return ms < 1000
    ? `${Math.round(ms)} ${strings.milliseconds}`
    : `${(ms / 1000).toFixed(2)} ${strings.seconds}`;
}
