/**
 * Announce a growing answer to screen readers sentence by sentence. The visible text is not a live region, because
 * announcing every token would be noise.
 */

import { h } from "./chat-dom.js";

/** Matches up to the end of the last sentence: a line's end, CJK punctuation, or Latin punctuation before a space. */
const WHOLE_SENTENCES = /^[\s\S]*(?:[.!?…]["'”’)]*(?=\s)|[。！？][”’）]*|\n)/;

export class Announcer {
  element = h("div", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  #spoken = 0;

  /** Clear the region, because a new answer begins. */
  reset() {
    this.#spoken = 0;
    this.element.replaceChildren();
  }

  /** @param {string} text the answer so far; each complete sentence is announced once */
  progress(text) {
    const sentences = WHOLE_SENTENCES.exec(text.slice(this.#spoken))?.[0];
    if (!sentences) return;
    this.#spoken += sentences.length;
    this.say(sentences);
  }

  /** @param {string} text the final text @param {string} label what kind of answer it was */
  finish(text, label) {
    this.say(`${text.slice(this.#spoken)} ${label}`);
    this.#spoken = text.length;
  }

  say(/** @type {string} */ words) {
    if (words.trim()) this.element.append(h("p", {}, words.trim()));
  }
}
