/** Show one answer: its text while it streams, then its source, timings and tokens. */

import { h, icon } from "./chat-dom.js";
import { factsDisclosure } from "./chat-facts.js";
import { Prose } from "./chat-prose.js";
import { RatingView } from "./chat-rating.js";

/** @typedef {import("./chat-strings.js").Strings} Strings */
/** @typedef {import("./protocol.js").Response} Response */
/** @typedef {import("./protocol.js").ErrorDetail} ErrorDetail */
/** @typedef {import("./protocol.js").Grounding} Grounding */
/** @typedef {import("./replyline-client.js").Rating} Rating */
/** @typedef {import("./replyline-client.js").Said} Said */
/** @typedef {{ onRetry: () => void, onRate: (rating: Rating) => void, onChoose: (question: string) => void }} Wishes of the customer */

/** @type {Record<Response["source"], "spark" | "page" | "quote" | "chat" | "question" | "clock" | "person">} */
const SOURCE_ICONS = {
  model: "spark",
  mixed: "spark",
  faq: "page",
  quote: "quote",
  clarify: "question",
  courtesy: "chat",
  unsure: "question",
  busy: "clock",
  handoff: "person",
};
const RATED_SOURCES = ["model", "mixed", "faq", "quote"];
/** The text names these entries itself. @type {Response["source"][]} */
const NAMES_ITS_ENTRIES = ["quote", "clarify"];

export class AnswerView {
  #prose = new Prose();
  #foot = h("footer", { class: "foot" });
  element = h("article", { class: "answer" }, this.#prose.element, this.#foot);
  #strings;
  #wishes;
  /** @type {RatingView | null} */ #rating = null;
  /** @type {Response | null} */ #response = null;
  /** @type {ErrorDetail | null} */ #error = null;
  /** @type {Said | null} */ #said = null;

  /** @param {Strings} strings @param {Wishes} wishes */
  constructor(strings, wishes) {
    this.#strings = strings;
    this.#wishes = wishes;
    this.localize(strings);
  }

  /** @param {Strings} strings the texts around the answer; the answer itself is not translated */
  localize(strings) {
    this.#strings = strings;
    this.element.setAttribute("aria-label", strings.answer);
    if (this.#said) this.say(this.#said);
    else if (this.#response) this.finish(this.#response);
    else if (this.#error) this.fail(this.#error);
    else this.#prose.wait(strings);
  }

  /** @param {string} text the text so far */
  show(text) {
    this.#prose.show(text);
  }

  /** Show a person's message instead of an answer. @param {Said} said */
  say(said) {
    this.#said = said;
    this.element.setAttribute("aria-label", said.name);
    this.show(said.text);
    const badge = h("span", { class: "badge handoff" }, icon("person"), said.name);
    this.#foot.replaceChildren(h("div", { class: "meta" }, badge));
  }

  /** @param {Response} response its `output_text` replaces the streamed text */
  finish(response) {
    this.#response = response;
    const { status, source, output_text, grounding = [], replaced = [] } = response;
    if (replaced.length > 0) this.#prose.showMarked(output_text, replaced, this.#strings);
    else this.show(source === "clarify" ? output_text.split("\n", 1)[0] : output_text); // buttons have the rest
    if (source === "quote") this.#prose.quote(grounding.length);
    const based = NAMES_ITS_ENTRIES.includes(source) ? [] : grounding;
    const links = NAMES_ITS_ENTRIES.includes(source) ? grounding.filter(({ url }) => url) : [];
    const offered = source === "clarify" ? [...grounding.map(({ question }) => question), this.#strings.neither] : [];
    const choices = offered.map((question) => this.#choice(question));
    const [button, facts] = factsDisclosure(this.#strings, response);
    this.#foot.replaceChildren(
      ...(choices.length > 0 ? [h("div", { class: "choices" }, ...choices)] : []),
      ...based.map((entry) => basis(this.#strings, entry, output_text)),
      ...links.map(({ question, url = "" }) => h("p", { class: "basis" }, page(question, url))),
      h("div", { class: "meta" }, ...this.#origin(response), this.#ratingOf(response), button),
      facts,
    );
    if (status === "failed") this.#foot.prepend(this.#errorLine(response.error));
    else if (source === "busy") this.#foot.append(this.#retryButton());
  }

  /** Show the customer's rating. @param {Rating | null} rating @param {boolean} [failed] it could not be saved */
  rate(rating, failed = false) {
    this.#rating?.show(rating, failed);
  }

  /** Show the rating buttons if the answer can be rated. @param {Response} response */
  #ratingOf({ status, source }) {
    if ((status !== "completed" && status !== "incomplete") || !RATED_SOURCES.includes(source)) return null;
    this.#rating ??= new RatingView(this.#wishes.onRate);
    this.#rating.localize(this.#strings);
    return this.#rating.element;
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

  /** Show that there will be no answer. @param {ErrorDetail} error */
  fail(error) {
    this.#error = error;
    this.#prose.stopWaiting();
    this.#foot.replaceChildren(this.#errorLine(error));
  }

  /** Return what a screen reader announces after the text. */
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

  /** Return the button that asks one of the offered questions. @param {string} question */
  #choice(question) {
    return h("button", { type: "button", class: "quiet", onclick: () => this.#wishes.onChoose(question) }, question);
  }

  #retryButton(waitMs = 0) {
    const button = h(
      "button",
      { type: "button", class: "quiet", disabled: waitMs > 0, onclick: this.#wishes.onRetry },
      this.#strings.retry,
    );
    if (waitMs > 0) setTimeout(() => (button.disabled = false), waitMs);
    return button;
  }
}

/** @param {Response} response @returns {keyof Strings["mark"]} */
function markOf({ status, reason }) {
  if (reason === "infeasible") return "deadline"; // given up because it could not be completed in time
  if (reason !== "stop") return reason;
  return status === "cancelled" ? "client" : "deadline";
}

/** @param {Strings} strings @param {ErrorDetail | undefined} error */
export function describe(strings, error) {
  const known = new Map(Object.entries(strings.errors)); // a plain object also has `constructor` and others
  return known.get(error?.code ?? "") ?? error?.message ?? strings.failed;
}

/**
 * Show the help entry that an answer is based on; only its question if the answer is the entry's text.
 * @param {Strings} strings @param {Grounding} entry @param {string} text the answer
 */
function basis(strings, { question, answer, url }, text) {
  if (text.includes(answer)) return h("p", { class: "basis" }, url ? page(question, url) : question);
  return h(
    "details",
    { class: "basis" },
    h("summary", {}, icon("chevron"), strings.basedOn(question)),
    h("p", {}, answer),
    url ? h("p", {}, page(question, url)) : null,
  );
}

/** Return a link to the page of a help entry. @param {string} title @param {string} url */
function page(title, url) {
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, title);
}
