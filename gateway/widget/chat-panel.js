/** The chat: the conversation, the input, and the state of the connection. */

import { Announcer } from "./chat-announcer.js";
import { AnswerView } from "./chat-answer.js";
import { CareBar } from "./chat-care.js";
import { h, icon, isComposing } from "./chat-dom.js";
import { chooseLanguage } from "./chat-strings.js";
import { attempt, safeStorage, toJson } from "./replyline-browser.js";
import { ReplylineClient } from "./replyline-client.js";

const NEAR_THE_END_PX = 48;
const MAX_INPUT_CHARACTERS = 4000;

/** @typedef {import("./chat-strings.js").Strings} Strings */
/** @typedef {import("./protocol.js").Response} Response */
/** @typedef {import("./protocol.js").ErrorDetail} ErrorDetail */
/** @typedef {import("./replyline-client.js").Rating} Rating */
/** @typedef {import("./replyline-client.js").Said} Said */
/** @typedef {{ event_id: string, question: string, response?: Response, rating?: Rating | null, said?: Said }} SavedTurn
 *     what a reload restores: a question, or a person's message */
/** @typedef {SavedTurn & { view: AnswerView, question_element: HTMLElement, settled: boolean }} Turn */

export class ChatPanel {
  #client;
  #announcer = new Announcer();
  /** @type {Map<string, Turn>} by event_id, oldest first */ #turns = new Map();
  #strings = chooseLanguage([]).strings;
  #storage = safeStorage("sessionStorage");
  #storageKey;
  #draftKey;
  #closeCode = 0;
  #shift = false; // held at the last key
  /** the view follows the end of the conversation */ #following = true;
  #scrollTop = 0;

  // Texts are set in `localize`.
  #heading = h("h2", { id: "heading" });
  #status = h("span", { class: "status", role: "status" });
  #newChat = h("button", { type: "button", class: "tool", onclick: () => this.#startOver() });
  #greeting = h("p", { class: "greeting" });
  #suggestions = h("ul", { class: "suggestions" });
  #empty = h("div", { class: "empty" }, this.#greeting, this.#suggestions);
  #log = h(
    "div",
    { class: "log", role: "log", "aria-live": "off", tabindex: "0", onscroll: () => this.#onScroll() },
    this.#empty,
  );
  #latest = h(
    "button",
    { type: "button", class: "latest", hidden: true, onclick: () => this.#scrollToEnd() },
    icon("down"),
  );
  #notice = h("div", { class: "notice", hidden: true });
  #care = new CareBar(() => this.#client.requestHandoff(this.element.lang));
  #label = h("label", { class: "visually-hidden", for: "input" });
  #input = h("textarea", {
    id: "input",
    rows: "1",
    dir: "auto",
    enterkeyhint: "send",
    autocomplete: "off",
    oninput: () => this.#onInput(),
    onkeydown: (/** @type {any} */ event) => this.#onInputKey(event),
    onbeforeinput: (/** @type {any} */ event) => this.#onLineBreak(event),
  });
  // Not "submit": a sandboxed frame without allow-forms ignores it, as does a page that prevents the default of clicks.
  #send = h("button", { type: "button", class: "send", onclick: () => this.#submit() }, icon("send"));
  #stop = h(
    "button",
    { type: "button", class: "send", hidden: true, onclick: () => this.#stopAnswer() },
    icon("stop"),
  );
  #form = h(
    "form",
    {
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        this.#submit();
      },
    },
    this.#label,
    this.#input,
    this.#send,
    this.#stop,
  );

  #header = h("header", {}, h("div", { class: "title" }, this.#heading, this.#status), this.#newChat);
  element = h(
    "section",
    {
      class: "panel",
      "aria-labelledby": "heading",
      onkeydown: (/** @type {any} */ event) => this.#onKey(event),
    },
    this.#header,
    h("div", { class: "middle" }, this.#log, this.#latest),
    this.#notice,
    this.#care.element,
    this.#form,
    h("slot", { name: "note" }),
    this.#announcer.element,
  );

  /**
   * @param {{ url: string, token: import("./replyline-client.js").TokenSource, consent: { training: boolean },
   *     tools: HTMLElement[] }} options `tools` are additional buttons for the header
   */
  constructor({ url, token, consent, tools }) {
    this.#header.append(...tools);
    this.#storageKey = `replyline:turns:${url}`;
    this.#draftKey = `replyline:draft:${url}`;
    this.#client = new ReplylineClient({ url, token, consent });
    this.#client.on("state", ({ code }) => this.#showState(code));
    this.#client.on("delta", ({ event_id, text }) => this.#onText(event_id, text));
    this.#client.on("done", ({ event_id, response }) => this.#onDone(event_id, response));
    this.#client.on("handoff", (detail) => this.#care.show(detail));
    this.#client.on("said", (said) => this.#onSaid(said));
    this.#client.on("rated", ({ response_id, rating, error }) => this.#onRated(response_id, rating, error));
    this.#client.on("error", ({ event_id, error }) => this.#onError(event_id, error));
    this.#restore();
    this.#input.value = this.#storage.get(this.#draftKey) ?? "";
    this.#showActivity();
    attempt(() => new ResizeObserver(() => this.#keepAtEnd()).observe(this.#log));
  }

  connect() {
    this.#client.connect();
  }

  disconnect() {
    this.#client.close();
  }

  focus() {
    this.#input.focus();
  }

  /** Restore the scroll position and the draft after the element was moved in the page. */
  restoreView() {
    if (this.#following) this.#keepAtEnd();
    else this.#log.scrollTop = this.#scrollTop;
    this.#fitInput();
  }

  /**
   * @param {string} language @param {Strings} strings @param {string | null} heading the title set by the page
   * @param {string[]} suggested the questions set by the page
   */
  localize(language, strings, heading, suggested) {
    this.#strings = strings;
    this.element.lang = language;
    this.#heading.textContent = heading ?? strings.heading;
    this.#log.setAttribute("aria-label", strings.conversation);
    this.#greeting.textContent = strings.greeting;
    this.#suggestions.setAttribute("aria-label", strings.suggestions);
    this.#suggestions.replaceChildren(...suggested.map((question) => this.#suggestion(question)));
    this.#suggestions.hidden = suggested.length === 0;
    this.#label.textContent = strings.input;
    this.#input.placeholder = strings.placeholder;
    this.#newChat.textContent = strings.newChat;
    name(this.#latest, strings.latest);
    name(this.#send, strings.send);
    name(this.#stop, strings.stop);
    this.#care.localize(strings);
    for (const { view, question_element } of this.#turns.values()) {
      question_element.setAttribute("aria-label", strings.you);
      view.localize(strings);
    }
    this.#showState();
  }

  // --- asking and answering ----------------------------------------------------------------------------------

  get #active() {
    return [...this.#turns.values()].find((turn) => !turn.settled);
  }

  #submit() {
    const question = this.#input.value.trim();
    if (!question || this.#active) return;
    if (question.length > MAX_INPUT_CHARACTERS) this.#input.setCustomValidity(this.#strings.errors.input_too_long);
    if (!this.#input.reportValidity()) return;
    this.#input.value = "";
    this.#onInput();
    this.#ask(question);
  }

  /** @param {string} question */
  #ask(question) {
    this.#announcer.reset();
    const event_id = this.#client.create(question);
    this.#addTurn({ event_id, question });
    this.#scrollToEnd();
    this.#save();
  }

  /** @param {string} event_id */
  #view(event_id) {
    return new AnswerView(this.#strings, {
      onRetry: () => this.#askAgain(event_id),
      onRate: (rating) => this.#rate(event_id, rating),
      onChoose: (question) => this.#choose(question),
    });
  }

  /** @param {Said} said a person's message */
  #addSaid(said) {
    const view = this.#view(said.message_id);
    const { message_id: event_id } = said;
    view.say(said);
    this.#turns.set(event_id, { event_id, question: "", said, view, question_element: h("span"), settled: true });
    if (this.#empty.parentNode) this.#empty.remove();
    this.#log.append(view.element);
    this.#showActivity();
  }

  /** @param {Said} said */
  #onSaid(said) {
    this.#addSaid(said);
    this.#keepAtEnd();
    this.#announcer.say(`${said.name}: ${said.text}`);
    this.#save();
  }

  /** @param {SavedTurn} saved */
  #addTurn({ event_id, question, response, rating }) {
    const view = this.#view(event_id);
    const question_element = h(
      "article",
      { class: "question", "aria-label": this.#strings.you },
      h("p", { dir: "auto" }, question),
    );
    this.#turns.set(event_id, {
      event_id,
      question,
      response,
      rating,
      view,
      question_element,
      settled: Boolean(response),
    });
    if (response) view.finish(response);
    if (rating) view.rate(rating);
    if (this.#empty.parentNode) this.#empty.remove(); // Prototype.js replaces `remove` by one that needs a parent
    this.#log.append(question_element, view.element);
    this.#showActivity();
  }

  /** Replace the failed attempt by a new one at the end of the conversation. */
  #askAgain(/** @type {string} */ event_id) {
    const turn = this.#turns.get(event_id);
    if (!turn || this.#active) return;
    this.#turns.delete(event_id);
    turn.question_element.remove();
    turn.view.element.remove();
    this.#ask(turn.question);
    this.#input.focus();
  }

  /** Ask a question that an answer offers, unless another answer is being written. @param {string} question */
  #choose(question) {
    if (this.#active) return;
    this.#ask(question);
    this.#input.focus();
  }

  #stopAnswer() {
    if (this.#active) this.#client.cancel(this.#active.event_id);
  }

  #onText(/** @type {string} */ event_id, /** @type {string} */ text) {
    const turn = this.#turns.get(event_id);
    if (!turn) return;
    turn.view.show(text);
    this.#keepAtEnd();
    this.#announcer.progress(text);
  }

  #onDone(/** @type {string} */ event_id, /** @type {Response} */ response) {
    const turn = this.#turns.get(event_id);
    if (!turn) return;
    turn.response = response;
    turn.view.finish(response);
    this.#settle(turn);
    this.#announcer.finish(response.output_text, turn.view.label);
    this.#save();
  }

  #rate(/** @type {string} */ event_id, /** @type {Rating} */ rating) {
    const response = this.#turns.get(event_id)?.response;
    if (response) this.#client.rate(response.id, rating);
  }

  /** @param {string} response_id @param {Rating | null} rating @param {ErrorDetail} [error] */
  #onRated(response_id, rating, error) {
    const turn = [...this.#turns.values()].find(({ response }) => response?.id === response_id);
    if (!turn) return;
    if (!error) turn.rating = rating;
    turn.view.rate(turn.rating ?? null, Boolean(error));
    this.#announcer.say(error ? this.#strings.ratingFailed : this.#strings.rated);
    this.#save();
  }

  /** @param {string | undefined} event_id @param {import("./protocol.js").ErrorDetail} error */
  #onError(event_id, error) {
    const turn = this.#turns.get(event_id ?? "");
    if (!turn) return console.warn(`replyline: ${error.code}: ${error.message}`);
    turn.view.fail(error);
    this.#settle(turn);
    this.#announcer.say(turn.view.label);
    this.#save();
  }

  /** @param {Turn} turn */
  #settle(turn) {
    turn.settled = true;
    this.#keepAtEnd();
    this.#showActivity();
  }

  #startOver() {
    this.#client.deleteSession();
    this.#turns.clear();
    this.#announcer.reset();
    this.#log.replaceChildren(this.#empty);
    this.#save();
    this.#showActivity();
    this.#scrollToEnd();
    this.#input.focus();
  }

  // --- a reload keeps the conversation -----------------------------------------------------------------------

  #save() {
    const failed = (/** @type {Turn} */ turn) => turn.settled && !turn.response && !turn.said;
    const turns = [...this.#turns.values()].filter((turn) => !failed(turn));
    const saved = turns.map(({ event_id, question, response, rating, said }) => ({
      event_id, question, response, rating, said,
    }));
    this.#storage.set(this.#storageKey, toJson(saved));
  }

  #restore() {
    for (const turn of this.#saved()) {
      if (turn.said) {
        this.#addSaid(turn.said);
        this.#client.restoreSaid([turn.said]);
        continue;
      }
      this.#addTurn(turn);
      if (!turn.response) this.#client.create(turn.question, { event_id: turn.event_id });
    }
    this.#scrollToEnd();
  }

  /** Return the turns to restore after a reload; empty if the page has stored other data under the key. @returns {SavedTurn[]} */
  #saved() {
    try {
      return JSON.parse(this.#storage.get(this.#storageKey) ?? "[]").filter(isSavedTurn);
    } catch {
      return [];
    }
  }

  // --- keys --------------------------------------------------------------------------------------------------

  /** Send on Enter; insert a line break on Shift+Enter. */
  #onInputKey(/** @type {KeyboardEvent} */ event) {
    this.#shift = event.shiftKey;
    if (event.key !== "Enter" || event.shiftKey || isComposing(event)) return;
    event.preventDefault();
    this.#submit();
  }

  /** Send on an Enter whose key this element does not see: a phone's, or one that the page's listener has stopped. */
  #onLineBreak(/** @type {InputEvent} */ event) {
    if (event.inputType !== "insertLineBreak" || this.#shift) return;
    event.preventDefault();
    this.#submit();
  }

  #onKey(/** @type {KeyboardEvent} */ event) {
    if (event.key !== "Escape" || isComposing(event) || !this.#active) return;
    event.preventDefault();
    this.#stopAnswer();
  }

  // --- what is shown -----------------------------------------------------------------------------------------

  /** Show the send or the stop button. Keep the focus when a button disappears. */
  #showActivity() {
    const active = Boolean(this.#active);
    this.#newChat.hidden = this.#turns.size === 0;
    const hadFocus = this.#stop.matches(":focus");
    this.#send.hidden = active;
    this.#stop.hidden = !active;
    if (hadFocus && !active) this.#input.focus();
    if (this.#client.state === "reconnecting") this.#showState();
  }

  #showState(code = this.#closeCode) {
    this.#closeCode = code;
    const { state } = this.#client;
    this.#status.textContent = this.#strings.state[state];
    this.#status.dataset.state = state;
    this.#notice.hidden = state !== "reconnecting" && state !== "closed";
    if (state === "reconnecting")
      this.#notice.replaceChildren(this.#active ? this.#strings.reconnectingToAnswer : this.#strings.reconnecting);
    if (state === "closed") {
      this.#notice.replaceChildren(
        h("span", {}, this.#strings.closed(code)),
        h(
          "button",
          { type: "button", class: "quiet", onclick: () => this.#client.connect() },
          this.#strings.connectAgain,
        ),
      );
    }
  }

  /** @param {string} question */
  #suggestion(question) {
    const ask = () => {
      this.#ask(question);
      this.#input.focus();
    };
    return h("li", {}, h("button", { type: "button", onclick: ask }, question));
  }

  #onInput() {
    this.#input.setCustomValidity("");
    this.#storage.set(this.#draftKey, this.#input.value);
    this.#fitInput();
  }

  #fitInput() {
    this.#input.style.height = "auto";
    if (this.#input.scrollHeight === 0) return; // not shown
    this.#input.style.height = `${this.#input.scrollHeight}px`;
  }

  #onScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.#log;
    if (clientHeight === 0) return; // not shown
    this.#scrollTop = scrollTop;
    this.#following = scrollHeight - scrollTop - clientHeight < NEAR_THE_END_PX;
    this.#latest.hidden = this.#following;
  }

  /** Scroll to the end, unless the reader has scrolled back. */
  #keepAtEnd() {
    if (this.#following) this.#log.scrollTop = this.#log.scrollHeight;
  }

  #scrollToEnd() {
    this.#following = true;
    this.#keepAtEnd();
  }
}

/** @param {any} turn */
const isSavedTurn = (turn) =>
  typeof turn?.event_id === "string" &&
  typeof turn.question === "string" &&
  (turn.response === undefined || typeof turn.response?.output_text === "string") &&
  (turn.said === undefined || (typeof turn.said?.text === "string" && typeof turn.said.message_id === "string"));

/** Label a button that shows only an icon. @param {HTMLElement} button @param {string} words */
export function name(button, words) {
  button.setAttribute("aria-label", words);
  button.title = words;
}
