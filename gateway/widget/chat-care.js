/** The button that asks for a person, and the state of that request. */

import { describe } from "./chat-answer.js";
import { h, icon } from "./chat-dom.js";
import { chooseLanguage } from "./chat-strings.js";

/** @typedef {import("./chat-strings.js").Strings} Strings */
/** @typedef {import("./replyline-client.js").Handoff} Handoff */
/** @typedef {import("./replyline-client.js").Events["handoff"]} HandoffState */

const REFERENCE_CHARACTERS = 8;

export class CareBar {
  #words = h("p", { role: "status", tabindex: "-1" });
  #ask = h("span");
  #button;
  element;
  #strings = chooseLanguage([]).strings;
  /** @type {HandoffState} */ #state = { offered: false, wanted: false, open: null, person: null };

  /** @param {() => void} onRequest */
  constructor(onRequest) {
    this.#button = h("button", { type: "button", class: "person", onclick: onRequest }, icon("person"), this.#ask);
    this.element = h("div", { class: "care", hidden: true }, this.#words, this.#button);
  }

  /** @param {Strings} strings */
  localize(strings) {
    this.#strings = strings;
    this.#show();
  }

  /** @param {HandoffState} state as the client reports it */
  show(state) {
    this.#state = state;
    this.#show();
  }

  #show() {
    const { offered, wanted, open, person, error } = this.#state;
    const isTaken = person?.state === "taken";
    const told = person && person.state !== "waiting" ? this.#strings.personState[person.state](person.name ?? "") : "";
    const hadFocus = this.#button.matches(":focus");
    this.element.hidden = !offered && !open && !error && !told;
    this.element.dataset.state = open || isTaken ? "open" : error ? "failed" : "none";
    this.#ask.textContent = this.#strings.person;
    this.#button.hidden = Boolean(open) || isTaken || !offered;
    if (isTaken) this.#say(told);
    else if (open) this.#say(...this.#told(open));
    else if (error) this.#say(describe(this.#strings, error));
    else this.#say(wanted ? this.#strings.personWanted : told);
    if (hadFocus && this.#button.hidden) this.#words.focus(); // otherwise the focus would be lost
  }

  /** @param {Handoff} handoff @returns {[string, string]} */
  #told({ handoff_id, reason }) {
    const strings = this.#strings;
    const reference = handoff_id.replace(/^handoff_/, "").slice(0, REFERENCE_CHARACTERS);
    const words = reason === "fallbacks" ? strings.personAskedAfterFallbacks : strings.personAsked;
    return [words, strings.personReference(reference)];
  }

  /** Update only what is new: a live region announces every update. @param {string} words @param {string} [reference] */
  #say(words, reference) {
    const shown = [words, reference ?? ""].join("");
    if (this.#words.textContent === shown) return;
    this.#words.replaceChildren(
      ...(words ? [h("span", {}, words)] : []),
      ...(reference ? [h("span", { class: "reference" }, reference)] : []),
    );
  }
}
