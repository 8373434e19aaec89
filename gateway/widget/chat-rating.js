/** The customer's rating of an answer. */

import { h, icon } from "./chat-dom.js";

/** @typedef {import("./chat-strings.js").Strings} Strings */
/** @typedef {import("./replyline-client.js").Rating} Rating */

/** Two thumbs; at most one is pressed. */
export class RatingView {
  #failed = h("span", { class: "rating-failed", hidden: true });
  /** @type {Record<Rating, HTMLElement>} */ #thumbs;
  element;

  /** @param {(rating: Rating) => void} onRate */
  constructor(onRate) {
    const thumb = (/** @type {Rating} */ rating) => {
      const press = () => {
        this.show(rating);
        onRate(rating);
      };
      const attributes = { type: "button", class: `thumb ${rating}`, "aria-pressed": "false", onclick: press };
      return h("button", attributes, icon("thumb"));
    };
    this.#thumbs = { up: thumb("up"), down: thumb("down") };
    this.element = h("div", { class: "rating", role: "group" }, this.#thumbs.up, this.#thumbs.down, this.#failed);
  }

  /** @param {Strings} strings */
  localize(strings) {
    this.element.setAttribute("aria-label", strings.rating);
    this.#failed.textContent = strings.ratingFailed;
    for (const rating of /** @type {Rating[]} */ (["up", "down"])) {
      this.#thumbs[rating].setAttribute("aria-label", strings.ratings[rating]);
      this.#thumbs[rating].title = strings.ratings[rating];
    }
  }

  /** @param {Rating | null} pressed @param {boolean} [failed] */
  show(pressed, failed = false) {
    for (const [rating, button] of Object.entries(this.#thumbs)) {
      button.setAttribute("aria-pressed", String(rating === pressed));
    }
    this.#failed.hidden = !failed;
  }
}
